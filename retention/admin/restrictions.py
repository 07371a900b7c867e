"""Pages of restrictions of processing: restricting a subject, a fact or an episode, and lifting it."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import path, reverse
from django.utils.translation import gettext as _

from memory import subjects
from retention import restricting
from retention.models import Restriction
from tenants.actors import MemberRole
from tenants.admin import PageAdmin, instant, one_of, standing, words
from tenants.errors import Missing, Problem
from tenants.identity import uuid_or_missing
from tenants.isolation import Role, borrowed
from tenants.models import User
from tenants.words import gettext_lazy, in_words

_TOLD = {
    "restricted_already": gettext_lazy("Its processing is restricted already."),
    "restriction_lifted": gettext_lazy("It was lifted already."),
    "notice_owed": gettext_lazy("Whoever asked for it has to be told first. Say that they were."),
    "restriction_refused": gettext_lazy("Choose what it is and why."),
    "subject_request_closed": gettext_lazy("That request is closed."),
    "identity_not_confirmed": gettext_lazy("Nobody has confirmed yet who asks in that request."),
    "endings_log_unavailable": gettext_lazy(
        "The log outside the database cannot be written. An operator has to look; nothing was done."
    ),
}


@admin.register(Restriction)
class RestrictionAdmin(PageAdmin):
    """What is restricted: kept, seen by staff, seen by no agent."""

    list_display = ("__str__", "what", "ground", "state", instant("restricted_at"), instant("lifted_at"))
    list_filter = (one_of("state", words("active", "lifted")), one_of("target_kind", words(*restricting.KINDS), "what"))

    @admin.display(description=gettext_lazy("what"))
    def what(self, row: Restriction) -> str:
        return f"{in_words(row.target_kind)} {str(row.target_id)[-8:]}"

    def get_urls(self) -> list[Any]:
        site, name = self.admin_site, "retention_restriction"
        return [
            path("restrict/", site.admin_view(self.restrict_view), name=f"{name}_restrict"),
            path("<path:object_id>/lift/", site.admin_view(self.lift_view), name=f"{name}_lift"),
            *super().get_urls(),
        ]

    def acts(self, request: HttpRequest, row: str | None) -> Sequence[tuple[str, str, bool]]:
        if row is not None or not _is_officer(request):
            return ()
        return [(_("Restrict processing"), reverse("admin:retention_restriction_restrict"), False)]

    def restrict_view(self, request: HttpRequest) -> HttpResponse:
        """Restrict the processing of what a form names."""
        if request.method not in ("GET", "HEAD", "POST"):
            return HttpResponseNotAllowed(["GET", "HEAD", "POST"])
        if not _is_officer(request):
            raise PermissionDenied
        problem, status = "", 200
        if request.method == "POST":
            actor, kind = standing(request).actor, request.POST.get("kind", "")
            asked = request.POST.get("request", "").strip()
            try:
                row = restricting.restrict(
                    actor,
                    kind,
                    _named(request, kind, request.POST.get("target", "").strip()[:200]),
                    ground=request.POST.get("ground", ""),
                    answers=uuid_or_missing(asked) if asked else None,
                    now=datetime.now(UTC),
                )
            except Missing:
                problem, status = _("Nothing by that id or name is there."), 422
            except Problem as refused:
                problem, status = (
                    _TOLD.get(refused.code, _("It was not done: %(code)s.") % {"code": refused.code}),
                    refused.status,
                )
            else:
                messages.success(request, _("Restricted: no agent sees it any more."))
                return HttpResponseRedirect(reverse("admin:retention_restriction_change", args=[row.id]))
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": _("Restrict processing"),
            "kinds": words(*restricting.KINDS),
            "grounds": words(*restricting.GROUNDS),
            "problem": problem,
        }
        return TemplateResponse(request, "admin/retention/restrict.html", context, status=status)

    def lift_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Lift a restriction."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        if not _is_officer(request):
            raise PermissionDenied
        row = self.get_object(request, object_id)
        try:
            restricting.lift(
                standing(request).actor,
                row.id,
                because=request.POST.get("because", ""),
                told=request.POST.get("told") == "yes",
                now=datetime.now(UTC),
            )
        except Problem as refused:
            told = _TOLD.get(refused.code, _("It was not done: %(code)s.") % {"code": refused.code})
            return self.page(request, row, problem=told, status=refused.status)
        messages.success(request, _("Lifted. Agents see again what nothing else hides."))
        return HttpResponseRedirect(reverse("admin:retention_restriction_change", args=[row.id]))

    def page(self, request: HttpRequest, row: Any, *, problem: str = "", status: int = 200) -> HttpResponse:
        """Show a restriction, and to a privacy officer how it is lifted."""
        people = dict(
            User.objects.filter(id__in=[each for each in (row.restricted_by, row.lifted_by) if each]).values_list(
                "id", "username"
            )
        )
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": str(row),
            "row": row,
            "where": reverse(f"admin:memory_{row.target_kind}_change", args=[row.target_id]),
            "restricter": people.get(row.restricted_by, _("an operator")),
            "lifter": people.get(row.lifted_by, ""),
            "may": _is_officer(request) and row.state == "active",
            "reasons": words(*restricting.LIFTED),
            "problem": problem,
        }
        return TemplateResponse(request, "admin/retention/restriction.html", context, status=status)


def _is_officer(request: HttpRequest) -> bool:
    return standing(request).is_one_of(MemberRole.PRIVACY_OFFICER)


def _named(request: HttpRequest, kind: str, text: str) -> Any:
    """Return the id that a form names; a subject by any of its names too."""
    try:
        return uuid_or_missing(text)
    except Missing:
        if kind != "subject" or not text:
            raise
    tenant = standing(request).actor.tenant
    with borrowed(Role.WRITER, back_to=Role.STAFF):
        found = subjects.ids_of(tenant, {text})
    if not found:
        raise Missing
    return found[text]
