"""Erasures of subjects, suppressions and notices, as privacy officers work on them: ask, decide as another, follow, lift."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import path, reverse
from django.utils.translation import gettext as _

from memory import suppression
from memory.contracts import subject_text
from memory.models import Suppression
from policies import approvals
from policies.approvals import ANSWER_REASONS, Answer
from policies.models import DecisionRequest
from retention import erasing
from retention.models import Erasure, ErasureItem, Notice, Run
from tenants import audit
from tenants.actors import MemberRole
from tenants.admin import PageAdmin, instant, link_to, one_of, standing, words
from tenants.errors import Missing, Problem
from tenants.identity import uuid_or_missing
from tenants.models import Agent, User
from tenants.words import gettext_lazy, in_words

_TOLD = {
    "own_request": gettext_lazy("You asked for this yourself. Another privacy officer decides."),
    "role_missing": gettext_lazy("Your roles in this tenant do not allow that."),
    "changed_since_shown": gettext_lazy(
        "Something about the subject changed since you looked. It has to be asked for as it is now."
    ),
    "already_decided": gettext_lazy("It was decided already."),
    "already_asked": gettext_lazy("A question about this subject is open, of another person."),
    "request_expired": gettext_lazy("Nobody decided in time. It can be asked anew."),
    "erasure_open": gettext_lazy("An erasure of this subject is on its way."),
    "subject_erased": gettext_lazy("The subject was erased already."),
    "held": gettext_lazy("A legal hold covers it."),
    "erasure_refused": gettext_lazy("A reason is needed that goes with it."),
    "decision_refused": gettext_lazy("A reason is needed that goes with the answer."),
}
_ANSWERS = {
    Answer.APPROVE: gettext_lazy("Erase"),
    Answer.RETURN: gettext_lazy("Send back"),
    Answer.REFUSE: gettext_lazy("Refuse"),
}
#: What a preview counts, in the order of its page, in words.
_COUNTED = {
    "facts": gettext_lazy("facts that hold or held"),
    "ended_facts": gettext_lazy("facts that ended before"),
    "evidence": gettext_lazy("pieces of evidence"),
    "episodes": gettext_lazy("episodes"),
    "candidates": gettext_lazy("proposals"),
    "names": gettext_lazy("names"),
    "consents": gettext_lazy("consents"),
    "derived": gettext_lazy("derived texts"),
    "mentions": gettext_lazy("episodes of others that name the subject: a person decides on each"),
    "facts_of_others": gettext_lazy("facts of others that rest on its episodes"),
    "facts_of_others_alone": gettext_lazy("of these, without any other source: a person decides on each"),
    "held_facts": gettext_lazy("facts that a legal hold keeps"),
    "held_episodes": gettext_lazy("episodes that a legal hold keeps"),
    "held_candidates": gettext_lazy("proposals that a legal hold keeps"),
    "held_subject": gettext_lazy("legal hold on the subject itself"),
}
_OFFICER = MemberRole.PRIVACY_OFFICER


def _now() -> datetime:
    return datetime.now(UTC)


def _told(problem: Problem) -> str:
    return _TOLD.get(problem.code, _("It was not done: %(code)s.") % {"code": problem.code})


def _require_officer(request: HttpRequest) -> None:
    if not standing(request).is_one_of(_OFFICER):
        raise PermissionDenied


@admin.register(Erasure)
class ErasureAdmin(PageAdmin):
    """Erasures, from the question to the certificate."""

    list_display = (
        *("__str__", "state", "reason", link_to("memory_subject", "subject_id"), instant("asked_at")),
        *(instant("approved_at"), instant("finished_at")),
    )
    list_filter = (
        one_of("state", words("requested", "asked", "running", "held", "failed", "done", "refused", "withdrawn")),
    )

    def acts(self, request: HttpRequest, row: str | None) -> Any:
        if row is None and standing(request).is_one_of(_OFFICER):
            return ((_("Ask for an erasure"), reverse("admin:retention_erasure_ask"), False),)
        return ()

    def get_urls(self) -> list[Any]:
        view = self.admin_site.admin_view
        act = self._act
        return [
            path("ask/", view(self.ask_view), name="retention_erasure_ask"),
            path("of/<path:subject>/", view(self.of_view), name="retention_erasure_of"),
            path("<path:object_id>/put/", view(act(self._put)), name="retention_erasure_put"),
            path("<path:object_id>/withdraw/", view(act(self._withdraw)), name="retention_erasure_withdraw"),
            path("<path:object_id>/decide/", view(act(self._decide)), name="retention_erasure_decide"),
            path("<path:object_id>/go-on/", view(act(self._go_on)), name="retention_erasure_go_on"),
            path("<path:object_id>/item/", view(act(self._item)), name="retention_erasure_item"),
            *super().get_urls(),
        ]

    def ask_view(self, request: HttpRequest) -> HttpResponse:
        """Ask for the erasure of a subject, by one of its names; another privacy officer decides."""
        _require_officer(request)
        if request.method not in ("GET", "HEAD", "POST"):
            return HttpResponseNotAllowed(["GET", "HEAD", "POST"])
        here, problem = standing(request), ""
        if request.method == "POST" and here.tenant is not None:
            try:
                subject = erasing.subject_of(here.tenant, subject_text(request.POST.get("subject", "")))
                found = erasing.ask(here.actor, subject, reason=request.POST.get("reason", ""), now=_now())
            except Missing:
                problem = _("No subject has that name.")
            except Problem as refused:
                problem = _told(refused)
            except ValueError:
                problem = _("A key or another name of the subject is needed.")
            else:
                messages.success(request, _("Asked. Another privacy officer decides."))
                return HttpResponseRedirect(reverse("admin:retention_erasure_change", args=[found.id]))
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": _("Ask for an erasure"),
            "reasons": words(*erasing.REASONS),
            "problem": problem,
        }
        return TemplateResponse(request, "admin/retention/ask_erasure.html", context, status=400 if problem else 200)

    def of_view(self, request: HttpRequest, subject: str) -> HttpResponse:
        """Lead to the erasure of a subject, the newest where there were several."""
        # First: the role of whoever may not see erasures may not even read their table.
        if not self.has_view_permission(request):
            raise PermissionDenied
        if request.method not in ("GET", "HEAD"):
            return HttpResponseNotAllowed(["GET", "HEAD"])
        try:
            about = uuid_or_missing(subject)
        except Missing:
            raise Http404 from None
        found = Erasure.objects.filter(subject_id=about).order_by("-id").first()
        if found is None:
            raise Http404
        return HttpResponseRedirect(reverse("admin:retention_erasure_change", args=[found.id]))

    # the acts of a page: each does one thing and says what was done

    def _put(self, request: HttpRequest, found: Any) -> str:
        erasing.ask_again(standing(request).actor, found.id, now=_now())
        return _("Asked as it is now. Another privacy officer decides.")

    def _withdraw(self, request: HttpRequest, found: Any) -> str:
        erasing.withdraw(standing(request).actor, found.id, now=_now())
        return _("Taken back. Nothing was erased.")

    def _decide(self, request: HttpRequest, found: Any) -> str:
        answer = Answer(request.POST.get("answer", ""))
        shown = bytes.fromhex(request.POST.get("shown", ""))
        reason = request.POST.get("reason", "")
        settled = erasing.decide(standing(request).actor, found.id, answer, shown=shown, reason=reason, now=_now())
        told = {
            "running": _("Approved. No name of the subject resolves any more; the rest is on its way."),
            "refused": _("Refused. Nothing was erased."),
        }
        return told.get(settled.state, _("Sent back."))

    def _go_on(self, request: HttpRequest, found: Any) -> str:
        erasing.go_on_after_holds(standing(request).actor, found.id, now=_now())
        return _("It goes on with what is not held.")

    def _item(self, request: HttpRequest, found: Any) -> str:
        keep = {"keep": True, "end": False}.get(request.POST.get("answer", ""))
        if keep is None:
            raise ValueError
        item = uuid_or_missing(request.POST.get("item", ""))
        reason = request.POST.get("reason", "")
        proposal = erasing.decide_item(standing(request).actor, item, keep=keep, reason=reason, now=_now())
        return _("Decided.") if proposal is None else _("Hidden, and proposed for redaction.")

    def _act(self, act: Callable[[HttpRequest, Any], str]) -> Callable[..., HttpResponse]:
        def view(request: HttpRequest, object_id: str) -> HttpResponse:
            if request.method != "POST":
                return HttpResponseNotAllowed(["POST"])
            _require_officer(request)
            found = self.get_object(request, object_id)
            try:
                said = act(request, found)
            except Missing:
                raise Http404 from None
            except Problem as problem:
                return self.page(request, found, problem=_told(problem), status=problem.status)
            except ValueError:
                return self.page(request, found, problem=_("A decision says which, and why."), status=400)
            messages.success(request, said)
            return HttpResponseRedirect(reverse("admin:retention_erasure_change", args=[found.id]))

        return view

    def page(self, request: HttpRequest, erasure: Any, *, problem: str = "", status: int = 200) -> HttpResponse:
        """Show an erasure: what it would take or took, who decides, how far it is, and what it left to a person."""
        actor, now = standing(request).actor, _now()
        question = None
        if erasure.state == "asked":
            question = DecisionRequest.objects.filter(
                id=erasure.question_id, state="pending", expires_at__gt=now
            ).first()
        run = Run.objects.filter(id=erasure.run_id).first() if erasure.run_id else None
        people = dict(
            User.objects.filter(
                id__in=[each for each in (erasure.asked_by, erasure.approved_by) if each is not None]
            ).values_list("id", "username")
        )
        officer = standing(request).is_one_of(_OFFICER)
        step = None if run is None else run.step
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": str(erasure),
            "erasure": erasure,
            "counts": [(word, erasure.preview.get(name, 0), name.startswith("held")) for name, word in _COUNTED.items()],
            "question": question,
            "mine": question is not None and question.requested_by == actor.id,
            "may_decide": question is not None and approvals.may_decide(actor, question, now=now),
            "may_put": officer and erasure.state in ("requested", "asked") and question is None,
            "may_withdraw": officer and erasure.state in ("requested", "asked"),
            "may_go_on": officer and erasure.state in ("held", "failed"),
            "officer": officer,
            "shown": bytes(erasure.digest).hex(),
            "asker": people.get(erasure.asked_by, _("a program")),
            "approver": people.get(erasure.approved_by),
            "answers": [(answer.value, _ANSWERS[answer], words(*ANSWER_REASONS[answer])) for answer in _ANSWERS],
            "run": run,
            "steps": [
                (in_words(name.replace("_", " ")), "done" if step is None or erasing.STEPS.index(name) < erasing.STEPS.index(step)
                 else "now" if name == step else "")
                for name in erasing.STEPS
            ] if run is not None and step in erasing.STEPS else [],
            "came_to": [] if run is None else sorted((in_words(name.replace("_", " ")), count) for name, count in run.counts.items()),
            "items": ErasureItem.objects.filter(erasure_id=erasure.id).order_by("state", "id")[:200],
            "item_reasons": words(*erasing.ITEM_REASONS),
            "notices": Notice.objects.filter(erasure_id=erasure.id).order_by("id")[:50],
            "problem": problem,
        }  # fmt: skip
        return TemplateResponse(request, "admin/retention/erasure.html", context, status=status)


@admin.register(Suppression)
class SuppressionAdmin(PageAdmin):
    """What does not come back: as digests, of which nobody reads what they stand for."""

    list_display = (
        *("__str__", "key", "cause", "attribute_name", instant("decided_at"), instant("lifted_at"), "lift_reason"),
    )
    list_filter = (
        one_of("key", words(*suppression.Key)),
        one_of("cause", words("rejected", "redacted", "erased")),
    )
    list_select_related = ("attribute",)

    @admin.display(description=gettext_lazy("attribute"), empty_value="–")
    def attribute_name(self, row: Suppression) -> str:
        return "" if row.attribute is None else row.attribute.name

    def get_urls(self) -> list[Any]:
        lift = self.admin_site.admin_view(self.lift_view)
        return [path("<path:object_id>/lift/", lift, name="memory_suppression_lift"), *super().get_urls()]

    def lift_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Lift a suppression, or all of the same decision, with a reason; the rows stay."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        _require_officer(request)
        found = self.get_object(request, object_id)
        reason = request.POST.get("reason", "")
        if reason not in erasing.ITEM_REASONS:
            return self.page(request, found, problem=_("A reason is needed."), status=400)
        ids = [found.id]
        if "all" in request.POST:
            same = Suppression.objects.filter(target_id=found.target_id, lifted_at=None).order_by("id")
            ids = list(same.values_list("id", flat=True)[:400])
        try:
            lifted, events = suppression.lift(standing(request).actor, ids, reason=reason)
        except Missing:
            return self.page(request, found, problem=_("It was lifted already."), status=409)
        audit.append(events)
        messages.success(
            request, _("%(number)s lifted. What they kept out may come in again.") % {"number": len(lifted)}
        )
        return HttpResponseRedirect(reverse("admin:memory_suppression_change", args=[found.id]))

    def page(self, request: HttpRequest, row: Any, *, problem: str = "", status: int = 200) -> HttpResponse:
        same = Suppression.objects.filter(target_id=row.target_id, lifted_at=None).exclude(id=row.id)
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": str(row),
            "row": row,
            "attribute": self.attribute_name(row),
            "same": len(same.values_list("id")[:400]),
            "lifter": User.objects.filter(id=row.lifted_by).first() if row.lifted_by else None,
            "may_lift": row.lifted_at is None and standing(request).is_one_of(_OFFICER),
            "reasons": words(*erasing.ITEM_REASONS),
            "problem": problem,
        }
        return TemplateResponse(request, "admin/retention/suppression.html", context, status=status)


@admin.register(Notice)
class NoticeAdmin(PageAdmin):
    """Who was told of what was erased, and what came of it: the delivery log."""

    list_display = (
        *("__str__", "state", link_to("retention_erasure", "erasure_id"), "attempts", "status", "code"),
        *(instant("created_at"), instant("tried_at"), instant("sent_at")),
    )
    list_filter = (one_of("state", words("waiting", "sent", "failed", "nobody")),)

    def page(self, request: HttpRequest, row: Any) -> HttpResponse:
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": str(row),
            "row": row,
            "agent": Agent.objects.filter(id=row.agent_id).first(),
            "facts": len(row.fact_ids),
        }
        return TemplateResponse(request, "admin/retention/notice.html", context)
