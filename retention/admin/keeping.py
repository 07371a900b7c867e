"""How long a fact is kept, and why: the page of its dates, what may be done about them, and what is due for review."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import path, reverse
from django.utils.translation import gettext as _

from memory.contracts import instant as instant_of
from policies.approvals import ANSWER_REASONS, Answer
from retention import disposition, keeping
from retention.models import LifetimeChange
from retention.requests import CLOSERS, HANDLERS
from tenants.admin import MetadataAdmin, instant, known_id, link_to, one_of, standing, words
from tenants.errors import Missing, Problem
from tenants.words import gettext_lazy

_TOLD = {
    "role_missing": gettext_lazy("Your roles in this tenant do not allow that."),
    "own_request": gettext_lazy("You asked for this yourself. Another privacy officer decides."),
    "already_asked": gettext_lazy("It is asked about already."),
    "already_decided": gettext_lazy("It was decided already."),
    "changed_since_shown": gettext_lazy("Its end changed since you looked. This page shows it as it is now."),
    "request_expired": gettext_lazy("Nobody decided in time. It can be asked anew."),
    "kept_without_end": gettext_lazy("It has no end: its review ends it, or keeps it."),
    "not_shorter": gettext_lazy("That is no earlier end than it has."),
    "not_longer": gettext_lazy("That is no later end than it has."),
    "in_progress": gettext_lazy("Somebody writes on it just now. Try again."),
    "lifetime_refused": gettext_lazy(
        "A reason is needed, and dates that lie ahead: no later end than the policy gives what is written now, and a review before it."
    ),
    "decision_refused": gettext_lazy("A decision needs a reason that goes with it."),
}
_ANSWERS = {
    Answer.APPROVE: gettext_lazy("Keep it longer"),
    Answer.RETURN: gettext_lazy("Send back"),
    Answer.REFUSE: gettext_lazy("Refuse"),
}


def _now() -> datetime:
    return datetime.now(UTC)


def _told(problem: Problem) -> str:
    return _TOLD.get(problem.code, _("It was not done: %(code)s.") % {"code": problem.code})


def _date(text: str) -> datetime:
    return instant_of(f"{text}T00:00:00+00:00")


@admin.register(LifetimeChange)
class LifetimeChangeAdmin(MetadataAdmin):
    """What people and writers changed in how long single facts are kept."""

    list_display = (
        *("__str__", "act", link_to("memory_fact", "fact_id"), "reason", instant("until"), instant("review_at")),
        instant("done_at"),
    )
    list_filter = (one_of("act", words("shortened", "extended", "kept", "ended")),)
    fields = (
        *("id", "act", link_to("memory_fact", "fact_id"), "reason", instant("until"), instant("review_at")),
        *("actor_kind", instant("done_at"), link_to("policies_decisionrequest", "question_id", "question")),
    )

    def acts(self, request: HttpRequest, row: str | None) -> Any:
        if row is None:
            return ((_("Due for review"), reverse("admin:retention_lifetimechange_due"), False),)
        return ()

    def get_urls(self) -> list[Any]:
        view = self.admin_site.admin_view
        return [
            path("due/", view(self.due_view), name="retention_lifetimechange_due"),
            path("of/<path:fact>/", view(self.fact_view), name="retention_lifetimechange_of"),
            *super().get_urls(),
        ]

    def due_view(self, request: HttpRequest) -> HttpResponse:
        """Show what is due for review, the longest overdue first."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        if request.method not in ("GET", "HEAD"):
            return HttpResponseNotAllowed(["GET", "HEAD"])
        tenant = standing(request).tenant
        assert tenant is not None
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": _("Due for review"),
            "due": disposition.queue(tenant, now=_now(), limit=100),
        }
        return TemplateResponse(request, "admin/retention/due.html", context)

    def fact_view(self, request: HttpRequest, fact: str) -> HttpResponse:
        """Show why a fact is kept until when; by POST, do one of the acts."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        if request.method not in ("GET", "HEAD", "POST"):
            return HttpResponseNotAllowed(["GET", "HEAD", "POST"])
        named = UUID(known_id(fact))
        problem, status = "", 200
        if request.method == "POST":
            if not standing(request).is_one_of(*HANDLERS):
                raise PermissionDenied
            try:
                messages.success(request, self._done(request, named))
                return HttpResponseRedirect(reverse("admin:retention_lifetimechange_of", args=[named]))
            except Missing:
                raise Http404 from None
            except Problem as refused:
                problem, status = _told(refused), refused.status
            except ValueError:
                problem, status = _("A date and a reason are needed."), 400
        return self._page(request, named, problem=problem, status=status)

    def _done(self, request: HttpRequest, fact: UUID) -> str:
        actor, sent, now = standing(request).actor, request.POST, _now()
        reason = sent.get("reason", "")
        match sent.get("act", ""):
            case "shorten":
                keeping.shorten(actor, fact, _date(sent.get("until", "")), reason=reason, now=now)
                return _("It is kept for a shorter time now.")
            case "extend":
                until, review_at = _date(sent.get("until", "")), _date(sent.get("review_at", ""))
                keeping.ask_extension(actor, fact, until, review_at=review_at, reason=reason, now=now)
                return _("Asked. Another privacy officer decides.")
            case "keep":
                disposition.keep(actor, fact, _date(sent.get("review_at", "")), reason=reason, now=now)
                return _("It is kept until it is looked at again.")
            case "end":
                done = disposition.end(actor, fact, reason=reason, now=now)
                return (
                    _("It has ended.")
                    if done
                    else _("A hold keeps it: it has not ended, and that it was tried is recorded.")
                )
            case "decide":
                question = UUID(sent.get("question", ""))
                answer, shown = Answer(sent.get("answer", "")), bytes.fromhex(sent.get("shown", ""))
                keeping.decide_extension(actor, question, answer, shown=shown, reason=reason, now=now)
                return _("Decided.")
        raise ValueError

    def _page(self, request: HttpRequest, fact: UUID, *, problem: str, status: int) -> HttpResponse:
        here = standing(request)
        tenant = here.tenant
        assert tenant is not None
        try:
            kept = keeping.explain(tenant, fact)
        except Missing:
            raise Http404 from None
        waits = keeping.pending(tenant, fact)
        now = _now()
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": _("How long it is kept"),
            "kept": kept,
            "fact": fact,
            "living": kept.ended_by is None and (kept.expires_at is None or kept.expires_at > now),
            "handles": here.is_one_of(*HANDLERS),
            "closes": here.is_one_of(*CLOSERS),
            "reasons": words(*keeping.REASONS),
            "waits": None if waits is None else waits[0],
            "question": None if waits is None else waits[1],
            "shown": "" if waits is None else bytes(waits[1].digest).hex(),
            "mine": waits is not None and waits[1].requested_by == here.person,
            "answers": [(each.value, said, words(*ANSWER_REASONS[each])) for each, said in _ANSWERS.items()],
            "changes": LifetimeChange.objects.filter(fact_id=fact).order_by("-id")[:20],
            "problem": problem,
        }
        return TemplateResponse(request, "admin/retention/keeping.html", context, status=status)
