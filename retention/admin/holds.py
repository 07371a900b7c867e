"""Pages of matters and holds: placing one after a dry count, asking for its release, deciding as another person."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import OuterRef, QuerySet, Subquery
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import path, reverse
from django.utils.html import format_html
from django.utils.translation import gettext as _

from memory import subjects
from policies import approvals
from policies.approvals import ANSWER_REASONS, Act, Answer
from policies.models import Attribute, Decision, DecisionRequest
from retention import holds, matters
from retention.holds import Kind
from retention.matters import Target
from retention.models import Hold, HoldScope, Matter, RefusedEnding
from tenants.actors import MemberRole
from tenants.admin import HistoryAdmin, MetadataAdmin, PageAdmin, instant, link_to, one_of, standing, words
from tenants.errors import Forbidden, Missing, Problem
from tenants.identity import uuid_or_missing
from tenants.isolation import Role, borrowed
from tenants.models import Agent, User
from tenants.words import gettext_lazy, in_words

#: Refusals of the doors, as this reader meets them.
_TOLD = {
    "own_request": gettext_lazy("You asked for this yourself. Another privacy officer decides."),
    "role_missing": gettext_lazy("Your roles in this tenant do not allow that."),
    "already_asked": gettext_lazy("It is asked about already."),
    "already_decided": gettext_lazy("It was decided already."),
    "changed_since_shown": gettext_lazy("The hold's scopes changed since that was shown. It can be asked anew."),
    "request_expired": gettext_lazy("Nobody decided in time. It can be asked anew."),
    "request_refused": gettext_lazy("A reason is needed."),
    "decision_refused": gettext_lazy("A decision needs a reason that goes with it."),
    "matter_exists": gettext_lazy("A matter of that reference is there, with another reason or closed."),
    "matter_closed": gettext_lazy("The matter is closed."),
    "hold_in_force": gettext_lazy("A hold of it is in force. It has to be released first."),
    "hold_released": gettext_lazy("It was released already."),
    "endings_log_unavailable": gettext_lazy(
        "The log outside the database cannot be written. An operator has to look; nothing was done."
    ),
}
_WRONG = {
    "bad_shape": gettext_lazy("A reference has letters, digits and . _ / - only, at most 60."),
    "personal_identifier": gettext_lazy(
        "That looks like an e-mail, a phone, a card or the like. Take the case number."
    ),
    "not_in_enum": gettext_lazy("Choose one of the list."),
    "empty": gettext_lazy("Say what is to be held: a record, or at least one of the others."),
    "too_many": gettext_lazy("Too many at once: place several holds."),
    "stands_alone": gettext_lazy("A record stands alone: leave the others empty."),
    "out_of_range": gettext_lazy("The end lies after the beginning."),
}
_ANSWERS = {
    Answer.APPROVE: gettext_lazy("Release it"),
    Answer.RETURN: gettext_lazy("Send back"),
    Answer.REFUSE: gettext_lazy("Keep it"),
}
_KINDS = words("fact", "evidence", "episode", "candidate", "procedure")


def _told(problem: Problem) -> str:
    if problem.errors:
        return _WRONG.get(problem.errors[0].code, _("It was not done: %(code)s.") % {"code": problem.code})
    return _TOLD.get(problem.code, _("It was not done: %(code)s.") % {"code": problem.code})


def _now() -> datetime:
    return datetime.now(UTC)


def _is_keeper(request: HttpRequest) -> bool:
    return standing(request).is_one_of(MemberRole.PRIVACY_OFFICER)


def _require_keeper(request: HttpRequest) -> None:
    if not _is_keeper(request):
        raise PermissionDenied


def _only(view: Callable[..., HttpResponse], *methods: str) -> Callable[..., HttpResponse]:
    def answered(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if request.method not in methods:
            return HttpResponseNotAllowed(methods)
        try:
            return view(request, *args, **kwargs)
        except Missing:
            raise Http404 from None
        except Forbidden:
            raise PermissionDenied from None

    return answered


def _called(*people: UUID | None) -> dict[UUID, str]:
    """Return what members and agents are called, by id; whoever is neither is an operator."""
    ids = {each for each in people if each is not None}
    names = dict(Agent.objects.filter(id__in=ids).values_list("id", "name"))
    return (
        dict.fromkeys(ids, _("an operator"))
        | names
        | dict(User.objects.filter(id__in=ids).values_list("id", "username"))
    )


@admin.register(Matter)
class MatterAdmin(HistoryAdmin, PageAdmin):
    """Legal matters, by the organisation's reference."""

    list_display = ("reference", "reason", "state", instant("opened_at"), instant("closed_at"))
    list_filter = (one_of("state", words("open", "closed")), one_of("reason", words(*matters.REASONS)))
    fields: Sequence[Any] = (
        *("id", "reference", "reason", "state", "opened_by", instant("opened_at"), "closed_by"),
        instant("closed_at"),
    )

    def get_urls(self) -> list[Any]:
        site, name = self.admin_site, "retention_matter"
        return [
            path("open/", site.admin_view(_only(self.open_view, "GET", "HEAD", "POST")), name=f"{name}_open"),
            path("<path:object_id>/close/", site.admin_view(_only(self.close_view, "POST")), name=f"{name}_close"),
            path("<path:object_id>/place/", site.admin_view(_only(self.place_view, "POST")), name=f"{name}_place"),
            *super().get_urls(),
        ]

    def acts(self, request: HttpRequest, row: str | None) -> Sequence[tuple[str, str, bool]]:
        if row is not None or not _is_keeper(request):
            return ()
        return [(_("Open a matter"), reverse("admin:retention_matter_open"), False)]

    def open_view(self, request: HttpRequest) -> HttpResponse:
        """Open a matter under its reference."""
        _require_keeper(request)
        problem, status = "", 200
        if request.method == "POST":
            try:
                matter, _made = matters.open_matter(
                    standing(request).actor,
                    request.POST.get("reference", "").strip(),
                    request.POST.get("reason", ""),
                    now=_now(),
                )
            except Problem as refused:
                problem, status = _told(refused), refused.status
            else:
                messages.success(request, _("It is open. Place a hold on what it concerns."))
                return HttpResponseRedirect(reverse("admin:retention_matter_change", args=[matter.id]))
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": _("Open a matter"),
            "reasons": words(*matters.REASONS),
            "problem": problem,
        }
        return TemplateResponse(request, "admin/retention/open_matter.html", context, status=status)

    def close_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Close a matter."""
        _require_keeper(request)
        found = self.get_object(request, object_id)
        try:
            matters.close_matter(standing(request).actor, found.id, now=_now())
        except Problem as problem:
            return self.page(request, found, problem=_told(problem), status=problem.status)
        messages.success(request, _("Closed."))
        return HttpResponseRedirect(reverse("admin:retention_matter_change", args=[found.id]))

    def place_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Place a hold for a matter, or count what it would cover."""
        _require_keeper(request)
        found = self.get_object(request, object_id)
        try:
            targets = _targets(request)
            if request.POST.get("act") == "count":
                return self.page(request, found, covers=matters.covered(found.tenant_id, targets))
            hold = matters.place(standing(request).actor, found.id, targets, now=_now())
        except Missing:
            told = _("Nothing by that id or name is there.")
            return self.page(request, found, problem=told, status=422)
        except Problem as problem:
            if isinstance(problem, Forbidden):
                raise
            return self.page(request, found, problem=_told(problem), status=problem.status)
        messages.success(request, _("The hold is in force: nothing that it covers ends."))
        return HttpResponseRedirect(reverse("admin:retention_hold_change", args=[hold.id]))

    def page(
        self,
        request: HttpRequest,
        matter: Any,
        *,
        covers: dict[str, int] | None = None,
        problem: str = "",
        status: int = 200,
    ) -> HttpResponse:
        """Show a matter with its holds, and to a privacy officer what may be done."""
        placed = list(Hold.objects.filter(matter_id=matter.id).order_by("-id")[:50])
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": _("Matter %(reference)s") % {"reference": matter.reference},
            "matter": matter,
            "holds": placed,
            "may": _is_keeper(request) and matter.state == "open",
            "may_close": all(each.state == "released" for each in placed),
            "opener": _called(matter.opened_by).get(matter.opened_by),
            "kinds": _KINDS,
            "attributes": list(
                Attribute.objects.filter(tenant_id=matter.tenant_id).order_by("name").values_list("id", "name")[:500]
            ),
            "agents": list(
                Agent.objects.filter(tenant_id=matter.tenant_id).order_by("name").values_list("id", "name")[:200]
            ),
            "given": {name: request.POST.get(name, "")[:4000] for name in _FIELDS},
            "covers": covers,
            "most": matters.COUNTED,
            "problem": problem,
        }
        return TemplateResponse(request, "admin/retention/matter.html", context, status=status)


_FIELDS = ("kind", "records", "subject", "attribute", "session_id", "writer", "recorded_from", "recorded_until")


def _targets(request: HttpRequest) -> list[Target]:
    """Return what a form says is to be held. Raises `Missing` for what names nothing, `Problem` for what says nothing."""
    given = {name: request.POST.get(name, "").strip()[:4000] for name in _FIELDS}
    records = [uuid_or_missing(each) for each in given["records"].split()]
    rest = Target(
        subject_id=_subject(request, given["subject"]),
        attribute_id=uuid_or_missing(given["attribute"]) if given["attribute"] else None,
        session_id=given["session_id"] or None,
        writer_id=uuid_or_missing(given["writer"]) if given["writer"] else None,
        recorded_from=_instant(given["recorded_from"]),
        recorded_until=_instant(given["recorded_until"]),
    )
    named = [Target(**{**rest.named(), "record_kind": given["kind"], "record_id": each}) for each in records]
    return named or ([rest] if rest.named() else [])


def _subject(request: HttpRequest, text: str) -> UUID | None:
    """Return the subject of an id, a key or an alias. A name is looked up by its digest, and nothing is shown of it."""
    if not text:
        return None
    try:
        return uuid_or_missing(text)
    except Missing:
        tenant = standing(request).actor.tenant
        with borrowed(Role.WRITER, back_to=Role.STAFF):
            found = subjects.ids_of(tenant, {text[:200]})
        if not found:
            raise
        return next(iter(found.values()))


def _instant(text: str) -> datetime | None:
    if not text:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise Missing from None
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found


@admin.register(Hold)
class HoldAdmin(HistoryAdmin, PageAdmin):
    """What forbids endings: its scopes, what it refused, and its release by two persons."""

    list_display = ("__str__", "matter_word", "state", "release_word", instant("placed_at"), instant("released_at"))
    list_filter = (one_of("state", words("active", "released")),)
    fields: Sequence[Any] = (
        *("id", "matter_id", "state", "placed_by", instant("placed_at"), "proposed_by", instant("proposed_at")),
        *("released_by", instant("released_at")),
    )

    def get_urls(self) -> list[Any]:
        site, name = self.admin_site, "retention_hold"
        return [
            path("<path:object_id>/ask/", site.admin_view(_only(self.ask_view, "POST")), name=f"{name}_ask"),
            path("<path:object_id>/decide/", site.admin_view(_only(self.decide_view, "POST")), name=f"{name}_decide"),
            *super().get_urls(),
        ]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Hold]:
        found: QuerySet[Hold] = super().get_queryset(request)
        of_matter = Matter.objects.filter(id=OuterRef("matter_id")).values("reference")
        asked = DecisionRequest.objects.filter(
            target_id=OuterRef("id"), act=Act.RELEASE_HOLD.value, state__in=("pending", "approved")
        ).values("state")[:1]
        return found.annotate(reference=Subquery(of_matter), asked=Subquery(asked))

    @admin.display(description=gettext_lazy("matter"))
    def matter_word(self, hold: Hold) -> str:
        return str(hold.reference)  # type: ignore[attr-defined]

    @admin.display(description=gettext_lazy("release"))
    def release_word(self, hold: Hold) -> str:
        if hold.state == "released":
            return _("released")
        if hold.asked is not None:  # type: ignore[attr-defined]
            return _("asked for")
        return "" if hold.proposed_at is None else _("proposed")

    def ask_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Ask for the release of a hold."""
        _require_keeper(request)
        found = self.get_object(request, object_id)
        try:
            matters.ask_release(standing(request).actor, found.id, reason=request.POST.get("reason", ""), now=_now())
        except Problem as problem:
            if isinstance(problem, Forbidden | Missing):
                raise
            return self.page(request, found, problem=_told(problem), status=problem.status)
        messages.success(request, _("Asked. Another privacy officer decides."))
        return HttpResponseRedirect(reverse("admin:retention_hold_change", args=[found.id]))

    def decide_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Release a hold, keep it, or send the question back, as the person who is signed in."""
        found = self.get_object(request, object_id)
        question = _release_asked(found)
        if question is None:
            return self.page(request, found, problem=_("Nobody asks for its release."), status=409)
        try:
            answer = Answer(request.POST.get("answer", ""))
            shown = bytes.fromhex(request.POST.get("shown", ""))
        except ValueError:
            return self.page(request, found, problem=_("A decision says yes, no, or not like this."), status=400)
        try:
            settled, _version = matters.decide_release(
                standing(request).actor,
                question.id,
                answer,
                shown=shown,
                reason=request.POST.get("reason", ""),
                now=_now(),
            )
        except Problem as problem:
            if isinstance(problem, Forbidden | Missing):
                raise
            return self.page(request, found, problem=_told(problem), status=problem.status)
        told = {"done": _("Released. Its row stays."), "refused": _("It stays in force."), "returned": _("Sent back.")}
        messages.success(request, told.get(settled.state, _("Decided.")))
        return HttpResponseRedirect(reverse("admin:retention_hold_change", args=[found.id]))

    def page(self, request: HttpRequest, hold: Any, *, problem: str = "", status: int = 200) -> HttpResponse:
        """Show a hold: what it covers, what it refused, who let go of it."""
        actor, now = standing(request).actor, _now()
        scopes = list(HoldScope.objects.select_related("attribute").filter(hold_id=hold.id).order_by("id"))
        question = _release_asked(hold)
        decided = (
            Decision.objects.select_related("request")
            .filter(request__target_id=hold.id, request__act=Act.RELEASE_HOLD.value)
            .order_by("-id")[:10]
        )
        people = _called(
            *(hold.placed_by, hold.proposed_by, hold.released_by, None if question is None else question.requested_by),
            *(each.writer_id for each in scopes),
            *(each.decided_by for each in decided),
        )
        asking = question is not None and question.state == "pending" and now < question.expires_at
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": str(hold),
            "hold": hold,
            "matter": Matter.objects.get(id=hold.matter_id),
            "scopes": [(each, people.get(each.writer_id) if each.writer_id else None) for each in scopes],
            "counted": matters.covered(hold.tenant_id, _of_scopes(scopes)) if "count" in request.GET else None,
            "most": matters.COUNTED,
            "refused": RefusedEnding.objects.filter(hold_id=hold.id).order_by("-last_at")[:20],
            "placer": people.get(hold.placed_by),
            "proposer": people.get(hold.proposed_by),
            "releaser": people.get(hold.released_by),
            "decided": [(each, people.get(each.decided_by, "somebody")) for each in decided],
            "question": question if asking else None,
            "requester": None if question is None else people.get(question.requested_by),
            "mine": question is not None and question.requested_by == actor.id,
            "may_ask": _is_keeper(request) and hold.state == "active" and not asking,
            "may_decide": asking and question is not None and approvals.may_decide(actor, question, now=now),
            # What stands on this page is what the decision binds.
            "shown": holds.digest(hold.id).hex(),
            "reasons": words("matter_ended", "correction", "law_changed", "other"),
            "answers": [(answer.value, _ANSWERS[answer], words(*ANSWER_REASONS[answer])) for answer in _ANSWERS],
            "problem": problem,
        }
        return TemplateResponse(request, "admin/retention/hold.html", context, status=status)


def _release_asked(hold: Hold) -> DecisionRequest | None:
    return DecisionRequest.objects.filter(
        tenant_id=hold.tenant_id, act=Act.RELEASE_HOLD.value, target_id=hold.id, state__in=("pending", "approved")
    ).first()


def _of_scopes(scopes: Sequence[HoldScope]) -> list[Target]:
    names = (
        "record_kind",
        "record_id",
        "subject_id",
        "attribute_id",
        "session_id",
        "writer_id",
        "recorded_from",
        "recorded_until",
    )
    return [Target(**{name: getattr(each, name) for name in names}) for each in scopes]


@admin.register(RefusedEnding)
class RefusedEndingAdmin(MetadataAdmin):
    """Endings that holds refused."""

    list_display = (
        *("__str__", "record", link_to("retention_hold", "hold_id"), "act", "times", instant("first_at")),
        instant("last_at"),
    )
    list_filter = (one_of("record_kind", words(*Kind)),)
    fields: Sequence[Any] = (
        *("id", "record", link_to("retention_hold", "hold_id"), "act", "times", "actor_kind", "actor_id", "run_id"),
        *(instant("first_at"), instant("last_at")),
    )

    @admin.display(description=gettext_lazy("record"))
    def record(self, refused: RefusedEnding) -> str:
        if refused.record_kind == Kind.PROCEDURE:
            return _("procedure %(record_id)s") % {"record_id": str(refused.record_id)[-8:]}
        where = reverse(f"admin:memory_{refused.record_kind}_change", args=[refused.record_id])
        return format_html('<a class="text-primary-600 dark:text-primary-500" href="{}">{} {}</a>', where,
                           in_words(refused.record_kind), str(refused.record_id)[-8:])  # fmt: skip


def holding(tenant: UUID, kind: str, record: UUID) -> list[tuple[UUID, str]]:
    """Return the holds in force that cover a record, with their matters' references, for the page of the record."""
    ids = holds.held(tenant, kind, [record]).get(record, [])
    found = Hold.objects.filter(tenant_id=tenant, id__in=ids).order_by("id").values_list("id", "matter__reference")
    return list(found)
