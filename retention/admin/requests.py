"""Requests of data subjects, as whoever works on them sees them: by when, who asks, what came of it, and the acts."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import Model
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import path, reverse
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from memory.contracts import chosen_id, subject_text
from memory.contracts import instant as instant_of
from memory.models import Evidence
from retention import access, deadlines, erasing, escalating, requests
from retention.models import AccessExport, Erasure, Restriction, Run, SubjectRequest
from retention.requests import CLOSERS, HANDLERS, Kind
from tenants.admin import PageAdmin, instant, link_to, one_of, standing, words
from tenants.errors import Clash, Missing, Problem
from tenants.identity import uuid_or_missing
from tenants.words import gettext_lazy, in_words

_TOLD = {
    "subject_request_closed": gettext_lazy("It was closed already."),
    "identity_confirmed": gettext_lazy("Who asks was found out already."),
    "identity_not_confirmed": gettext_lazy("First find out who asks: nothing is done for somebody who may be another."),
    "extended_already": gettext_lazy("It was extended already; that can be done once."),
    "extension_too_late": gettext_lazy("The first month is over: it can no longer be extended."),
    "led_to_nothing": gettext_lazy("Nothing is recorded that it led to. Where nothing is held, say so."),
    "not_handed_over": gettext_lazy("It is done by handing over what was fetched. First make an export and fetch it."),
    "not_about_access": gettext_lazy("An export is made for a request of access or portability."),
    "not_about_erasure": gettext_lazy("This request is not about erasure."),
    "subject_not_known": gettext_lazy("Nothing is kept under the name that was given."),
    "not_found": gettext_lazy("Nothing of that kind has that id."),
    "export_pending": gettext_lazy("One is being made already."),
    "export_not_there": gettext_lazy("It is not made yet, or it has ended."),
    "erasure_open": gettext_lazy("An erasure of this subject is under way already."),
    "role_missing": gettext_lazy("Your roles in this tenant do not allow that."),
    "subject_request_refused": gettext_lazy("A word is needed that goes with it."),
}


def now() -> datetime:
    """Return the time of a request to a page."""
    return datetime.now(UTC)


def told(problem: Problem) -> str:
    """Return a refusal in plain words."""
    return _TOLD.get(problem.code, _("It was not done: %(code)s.") % {"code": problem.code})


def badge(request: SubjectRequest, at: datetime) -> tuple[str, str]:
    """Return how much time is left, as words and as the look of a badge."""
    if request.closed_at is not None:
        return in_words(request.state), "ok"
    found = requests.waiting(request, now=at)
    if found.overdue:
        late = -found.days_left
        return ngettext("overdue by %(days)s day", "overdue by %(days)s days", late) % {"days": late}, "bad"
    left = ngettext("%(days)s day left", "%(days)s days left", found.days_left) % {"days": found.days_left}
    return left, "warn" if found.days_left < 7 else "ok"


#: What a request may have led to elsewhere, by the word under which it is recorded.
_LED_TO: dict[str, type[Model]] = {"evidence": Evidence, "restriction": Restriction, "erasure": Erasure, "run": Run}
#: The acts of a page: the door, the word that it takes from the form, and what is said when it was done.
_ACTS: dict[str, tuple[Callable[..., Any], str, str]] = {
    "identity": (
        requests.confirm_identity,
        "method",
        gettext_lazy("It is recorded who asks; the request is in progress."),
    ),
    "fail": (requests.fail_identity, "method", gettext_lazy("It is recorded that it could not be found out who asks.")),
    "extend": (
        requests.extend,
        "reason",
        gettext_lazy("Extended by two months. Tell the subject so, and why, within the first."),
    ),
    "complete": (requests.complete, "outcome", gettext_lazy("Closed. Tell the subject what was done.")),
    "refuse": (requests.refuse, "ground", gettext_lazy("Refused. Tell the subject why, and where to complain.")),
    "withdraw": (requests.withdraw, "", gettext_lazy("Closed: the subject took it back.")),
}


@admin.register(SubjectRequest)
class SubjectRequestAdmin(PageAdmin):
    """What data subjects asked for, those that are due first in the queue of the desk."""

    list_display = (
        *("__str__", "kind", "state", "time_left", "identity", link_to("memory_subject", "subject_id"), "reference"),
        *(instant("received_at"), "repeats"),
    )
    list_filter = (
        one_of("kind", words(*(each.value for each in Kind))),
        one_of("state", words("received", "in_progress", "completed", "refused", "withdrawn")),
    )

    @admin.display(description=gettext_lazy("time"))
    def time_left(self, request: SubjectRequest) -> str:
        left, look = badge(request, now())
        return format_html('<span class="m-state {}">{}</span>', look, left)

    def acts(self, request: HttpRequest, row: str | None) -> Any:
        if row is None and standing(request).is_one_of(*HANDLERS):
            return ((_("Enter a request"), reverse("admin:retention_subjectrequest_lodge"), False),)
        return ()

    def get_urls(self) -> list[Any]:
        view = self.admin_site.admin_view
        return [
            path("lodge/", view(self.lodge_view), name="retention_subjectrequest_lodge"),
            *(
                path(f"<path:object_id>/{act}/", view(self._act(act)), name=f"retention_subjectrequest_{act}")
                for act in _ACTS
            ),
            path("<path:object_id>/export/", view(self.export_view), name="retention_subjectrequest_export"),
            path("<path:object_id>/handover/", view(self.handover_view), name="retention_subjectrequest_handover"),
            path("<path:object_id>/erase/", view(self.erase_view), name="retention_subjectrequest_erase"),
            path("<path:object_id>/led/", view(self.led_view), name="retention_subjectrequest_led"),
            path("<path:object_id>/download/", view(self.download_view), name="retention_subjectrequest_download"),
            *super().get_urls(),
        ]

    def lodge_view(self, request: HttpRequest) -> HttpResponse:
        """Enter a request that came in by letter, mail or telephone."""
        if not standing(request).is_one_of(*HANDLERS):
            raise PermissionDenied
        if request.method not in ("GET", "HEAD", "POST"):
            return HttpResponseNotAllowed(["GET", "HEAD", "POST"])
        problem = ""
        if request.method == "POST":
            try:
                return self._lodged(request)
            except Problem as refused:
                problem = told(refused)
            except ValueError:
                problem = _("A kind, the subject's key or another of its names, and a day that has been are needed.")
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": _("Enter a request"),
            "kinds": {each.value: f"{in_words(each.value)} ({each.article})" for each in Kind},
            "problem": problem,
        }
        return TemplateResponse(request, "admin/retention/lodge.html", context, status=400 if problem else 200)

    def _lodged(self, request: HttpRequest) -> HttpResponse:
        at = now()
        kind = Kind(request.POST.get("kind", ""))
        subject = subject_text(request.POST.get("subject", ""))
        text = request.POST.get("received_at", "")
        received = instant_of(f"{text}:00+00:00" if len(text) == 16 else text) if text else None
        reference = chosen_id(request.POST["reference"]) if request.POST.get("reference") else None
        found, new = requests.lodge(
            standing(request).actor, kind, subject, now=at, received_at=received, reference=reference
        )
        if new:
            messages.success(request, _("Entered."))
        else:
            messages.warning(request, _("The same was asked already and is still open: it was counted there."))
        return HttpResponseRedirect(reverse("admin:retention_subjectrequest_change", args=[found.id]))

    def _act(self, act: str) -> Callable[..., HttpResponse]:
        door, field, said = _ACTS[act]

        def view(request: HttpRequest, object_id: str) -> HttpResponse:
            if request.method != "POST":
                return HttpResponseNotAllowed(["POST"])
            if not standing(request).is_one_of(*HANDLERS):
                raise PermissionDenied
            found = self.get_object(request, object_id)
            given = (request.POST.get(field, ""),) if field else ()
            try:
                door(standing(request).actor, found.id, *given, now=now())
            except Problem as problem:
                return self.page(request, found, problem=told(problem), status=problem.status)
            messages.success(request, said)
            return HttpResponseRedirect(reverse("admin:retention_subjectrequest_change", args=[found.id]))

        return view

    def export_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Have an export made; it is there in a moment."""

        def act(found: SubjectRequest) -> str:
            access.ask(standing(request).actor, found.id, now=now())
            return _("It is being made. Look again in a moment.")

        return self._did(request, object_id, act)

    def handover_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Close a request of portability: what was fetched was handed over. The certificate of it is among the certificates."""

        def act(found: SubjectRequest) -> str:
            access.hand_over(standing(request).actor, found.id, request.POST.get("to", ""), now=now())
            return _("Handed over, and closed. The certificate of it can be downloaded.")

        return self._did(request, object_id, act)

    def erase_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Put the erasure of the subject before a second person."""

        def act(found: SubjectRequest) -> str:
            actor = standing(request).actor
            asked = requests.open_for(actor, found.id, CLOSERS)
            if asked.kind not in (Kind.ERASURE, Kind.OBJECTION):
                raise Clash("not_about_erasure")
            if asked.identity != "confirmed":
                raise Clash("identity_not_confirmed")
            if asked.subject_id is None:
                raise Clash("subject_not_known")
            erasure = erasing.ask(
                actor, asked.subject_id, reason="subject_request", now=now(), subject_request=asked.id
            )
            requests.link(actor, asked.id, "erasure", erasure.id)
            return _("Another privacy officer decides on the erasure.")

        return self._did(request, object_id, act)

    def led_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Record what was done elsewhere for a request: a correction, a restriction, an erasure, by its id."""

        def act(found: SubjectRequest) -> str:
            kind, target = request.POST.get("kind", ""), uuid_or_missing(request.POST.get("id", "").strip())
            model = _LED_TO.get(kind)
            if model is None or not model._default_manager.filter(tenant_id=found.tenant_id, id=target).exists():
                raise Missing
            actor = standing(request).actor
            requests.link(actor, requests.open_for(actor, found.id, HANDLERS).id, kind, target)
            return _("Recorded.")

        return self._did(request, object_id, act)

    def _did(self, request: HttpRequest, object_id: str, act: Callable[[Any], str]) -> HttpResponse:
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        if not standing(request).is_one_of(*HANDLERS):
            raise PermissionDenied
        found = self.get_object(request, object_id)
        try:
            said = act(found)
        except Problem as problem:
            return self.page(request, found, problem=told(problem), status=problem.status)
        messages.success(request, said)
        return HttpResponseRedirect(reverse("admin:retention_subjectrequest_change", args=[found.id]))

    def download_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Hand an export out: it is in the audit chain before a byte leaves."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        if not standing(request).is_one_of(*CLOSERS):
            raise PermissionDenied
        found = self.get_object(request, object_id)
        export = AccessExport.objects.filter(asked_id=found.id, state="done").order_by("-id").first()
        try:
            if export is None:
                raise Clash("export_not_there")
            whole = access.download(standing(request).actor, export.id, now=now())
        except Problem as problem:
            return self.page(request, found, problem=told(problem), status=problem.status)
        answer = HttpResponse(whole, content_type="application/zip")
        answer["Content-Disposition"] = f'attachment; filename="{found.kind}-{str(export.id)[-8:]}.zip"'
        answer["Cache-Control"] = "no-store"
        return answer

    def page(self, request: HttpRequest, found: Any, *, problem: str = "", status: int = 200) -> HttpResponse:
        """Show a request: by when, who asks, what else is open about the subject, and what may be done now."""
        at, here = now(), standing(request)
        left, look = badge(found, at)
        zone = requests.zone()
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": str(found),
            "asked": found,
            "kind": Kind(found.kind),
            "left": left,
            "look": look,
            "due_at": requests.effective_due(found),
            "last_day": deadlines.last_day(
                found.received_at,
                months=deadlines.FIRST if found.extended_at is None else deadlines.EXTENDED,
                zone=zone,
            ),
            "zone": str(zone),
            "open": found.closed_at is None,
            "may_extend": found.closed_at is None and found.extended_at is None and at < found.due_at,
            "handles": here.is_one_of(*HANDLERS),
            "closes": here.is_one_of(*CLOSERS),
            "methods": words(*requests.METHODS),
            "reasons": words(*requests.EXTENSION_REASONS),
            "grounds": words(*requests.GROUNDS),
            "outcomes": words(*(requests.OUTCOMES[2:] if found.kind == Kind.PORTABILITY else requests.OUTCOMES)),
            "recipients": words(*access.HANDED_TO),
            "certificate": found.led_to_id if found.led_to_kind == "certificate" else None,
            "escalated_to": escalating.told_of(found.tenant_id, [found.id]).get(found.id),
            "others": SubjectRequest.objects.filter(subject_digest=found.subject_digest)
            .exclude(id=found.id)
            .order_by("-id")[:20],
            "exports": AccessExport.objects.filter(asked_id=found.id).order_by("-id")[:10],
            "may_export": found.kind in ("access", "portability") and found.subject_id is not None,
            "may_hand_over": found.kind == Kind.PORTABILITY and found.identity == "confirmed",
            "may_erase": found.kind in ("erasure", "objection") and found.subject_id is not None,
            "at": at,
            "problem": problem,
        }
        return TemplateResponse(request, "admin/retention/subject_request.html", context, status=status)
