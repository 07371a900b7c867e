"""Tenants, members, agents, keys and the audit chain, to look at. What changes them are doors, not forms."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from types import SimpleNamespace
from typing import Any, ClassVar
from uuid import UUID

from allauth.account.models import EmailAddress
from allauth.mfa.models import Authenticator
from django.conf import settings
from django.contrib import admin, messages
from django.contrib.admin import ShowFacets
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.utils import flatten_fieldsets
from django.contrib.auth.models import Group
from django.core.exceptions import BadRequest, PermissionDenied
from django.db.models import Model, QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.urls import path, reverse
from django.utils.html import format_html
from django.utils.translation import gettext as _
from simple_history.admin import SimpleHistoryAdmin
from unfold.admin import ModelAdmin
from unfold.views import ChangeList

from tenants.actors import ActorKind, MemberRole
from tenants.audit import PLATFORM, Action, Event, append
from tenants.errors import Missing
from tenants.identity import uuid_or_missing
from tenants.isolation import Role, assume
from tenants.keyring import SignedLog
from tenants.models import Agent, AgentKey, AuditEvent, Membership, Tenant, User
from tenants.registry import CLEARANCES
from tenants.secrets import provider
from tenants.standing import NOBODY, Standing
from tenants.verification import chains, checkpoints, verify
from tenants.words import gettext_lazy, head, in_words


def standing(request: HttpRequest) -> Standing:
    """Return where the person of a request stands."""
    found: Standing = getattr(request, "standing", NOBODY)
    return found


#: Fields that hold codes, which pages show in the reader's words. What the audit chain calls an act stays as it is there.
CODED = frozenset(
    [
        *("state", "kind", "reason", "basis", "cause", "role", "source", "verdict", "key", "identity", "ground"),
        *("actor_kind", "target_kind", "record_kind", "redaction_state", "test_kind", "test_result", "cardinality"),
        *("retired_because", "retraction_reason", "lift_reason", "proposed_by_kind", "act", "scope"),
        *("step", "extraction", "reasons", "detected"),
    ]
)


def coded(field: str) -> "Shown":
    """Return a column that shows the code in `field` in words."""

    @admin.display(description=head(field), ordering=field, empty_value="–")
    def shown(row: Any) -> str:
        found = getattr(row, field)
        said: str = ", ".join(map(in_words, found)) if isinstance(found, list) else in_words(found, field)
        return said

    shown.__name__ = field
    return shown


class ReadOnlyAdmin(ModelAdmin):
    """Pages to look at rows: no adding, changing or deleting, whoever asks; filters only by what is named.

    Seen by members with one of `seen_by` in the tenant they work in, and where `seen_by_operators` by a superuser who is
    outside every tenant.
    """

    seen_by: ClassVar[frozenset[MemberRole]] = frozenset()
    seen_by_operators: ClassVar[bool] = False
    #: Lookups that a query may use; anything else would let a reader guess at what is masked.
    lookups: ClassVar[frozenset[str]] = frozenset()

    actions = None
    show_facets = ShowFacets.NEVER
    show_full_result_count = False
    list_per_page = 50
    list_before_template = change_form_before_template = "admin/acts.html"

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name in ("list_display", "fields"):
            listed = cls.__dict__.get(name)
            if listed:
                setattr(
                    cls,
                    name,
                    tuple(coded(each) if each in CODED and not hasattr(cls, each) else each for each in listed),
                )

    def has_add_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_view_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        found = standing(request)
        if found.tenant is None:
            return found.operator and self.seen_by_operators
        return found.is_one_of(*self.seen_by)

    def has_module_permission(self, request: HttpRequest) -> bool:
        return self.has_view_permission(request)

    def lookup_allowed(self, lookup: str, value: Any, request: HttpRequest | None = None) -> bool:
        return lookup in self.lookups

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        # Django asks for the row first: the role of whoever may not see it may not even read its table.
        if not self.has_view_permission(request):
            raise PermissionDenied
        return super().get_object(request, known_id(object_id), from_field)

    def history_view(self, request: HttpRequest, object_id: str, extra_context: Any = None) -> HttpResponse:
        # Django's own shows its log of the admin's forms, of which there are none.
        raise Http404

    def acts(self, request: HttpRequest, row: str | None) -> Sequence[tuple[str, str, bool]]:
        """Return what the reader may do from the page of a row, or from the list: words, address, whether it ends something."""
        return ()

    def changeform_view(
        self, request: HttpRequest, object_id: str | None = None, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        if request.method not in ("GET", "HEAD"):
            return HttpResponseNotAllowed(["GET", "HEAD"])
        offered = {} if object_id is None else {"acts": self.acts(request, known_id(object_id))}
        page: HttpResponse = super().changeform_view(request, object_id, form_url, {**offered, **(extra_context or {})})
        return page

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        if request.method not in ("GET", "HEAD"):
            return HttpResponseNotAllowed(["GET", "HEAD"])
        if any("\0" in text for each in request.GET.lists() for text in (each[0], *each[1])):
            # No text in the database holds one, and asking for it would be an error there.
            raise BadRequest
        offered = {"acts": self.acts(request, None), **(extra_context or {})}
        page: HttpResponse = super().changelist_view(request, offered)
        return page


class HistoryAdmin(SimpleHistoryAdmin, ReadOnlyAdmin):
    """With the pages of a row's history, by GET alone: the library's own form accepts a POST."""

    def changeform_view(
        self, request: HttpRequest, object_id: str | None = None, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        if object_id is None:
            return super().changeform_view(request, object_id, form_url, extra_context)
        meta = self.opts
        history = reverse(f"admin:{meta.app_label}_{meta.model_name}_history", args=[known_id(object_id)])
        return super().changeform_view(request, object_id, form_url, {"history": history, **(extra_context or {})})

    def has_view_history_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return self.has_view_permission(request, obj)

    def history_view(self, request: HttpRequest, object_id: str, extra_context: Any = None) -> HttpResponse:
        if not self.has_view_permission(request):
            # Before the library looks: the role of whoever may not see the row may not even read its history.
            raise PermissionDenied
        if request.method not in ("GET", "HEAD"):
            return HttpResponseNotAllowed(["GET", "HEAD"])
        page: HttpResponse = super().history_view(request, known_id(object_id), extra_context)
        return page

    def get_history_queryset(
        self, request: HttpRequest, history_manager: Any, pk_name: str, object_id: Any
    ) -> QuerySet[Model]:
        # The library's own also joins every row that a version refers to, and some of these staff may not read.
        found: QuerySet[Model] = history_manager.filter(**{pk_name: object_id}).select_related("history_user")
        return found

    def set_history_delta_changes(
        self, request: HttpRequest, historical_records: Any, *args: Any, **kwargs: Any
    ) -> None:
        super().set_history_delta_changes(request, historical_records, *args, **kwargs)
        for record in historical_records:
            record.history_change_reason = in_words(record.history_change_reason)
            for change in getattr(record, "history_delta_changes", ()):
                change.update(old=in_words(change["old"]), new=in_words(change["new"]))

    def history_form_view(
        self, request: HttpRequest, object_id: str, version_id: str, extra_context: Any = None
    ) -> HttpResponse:
        if not self.has_view_permission(request):
            raise PermissionDenied
        if request.method not in ("GET", "HEAD"):
            return HttpResponseNotAllowed(["GET", "HEAD"])
        if not (version_id.isascii() and version_id.isdigit() and len(version_id) < 19):
            raise Http404
        page: HttpResponse = super().history_form_view(request, known_id(object_id), version_id, extra_context)
        return page

    def get_readonly_fields(self, request: HttpRequest, obj: Model | None = None) -> Any:
        # The library's page of a past version goes by these, and not by who may change what.
        return flatten_fieldsets(self.fieldsets) if self.fieldsets else tuple(self.fields or ())


Shown = Callable[[Any], str]


def _headed(label: str, field: str) -> str:
    # A label that is marked where it stands is not text yet.
    return label if label and not isinstance(label, str) else head(label or field)


def link_to(model: str, field: str, label: str = "") -> Shown:
    """Return a column that leads to the row whose id stands in `field`; `model` as in `memory_fact`."""

    @admin.display(description=_headed(label, field.removesuffix("_id")), empty_value="–")
    def shown(row: Any) -> str:
        found: UUID | None = getattr(row, field)
        if found is None:
            return ""
        where = reverse(f"admin:{model}_change", args=[found])
        return format_html('<a class="text-primary-600 dark:text-primary-500" href="{}">{}</a>', where, str(found)[-8:])

    shown.__name__ = f"{field}_link"
    return shown


def instant(field: str, label: str = "") -> Shown:
    """Return a column that shows an instant to the second, in UTC."""

    @admin.display(description=_headed(label, field), empty_value="–")
    def shown(row: Any) -> str:
        found: datetime | None = getattr(row, field)
        if found is None:
            return ""
        return format_html(
            '<time class="instant" datetime="{}">{}</time>', found.isoformat(), f"{found:%Y-%m-%d %H:%M:%S}"
        )

    shown.__name__ = f"{field}_instant"
    return shown


def yes(field: str, label: str = "") -> Shown:
    """Return a column that says `yes` where `field` is true, and nothing where it is not."""

    @admin.display(description=_headed(label, field), empty_value="–")
    def shown(row: Any) -> str:
        return _("yes") if getattr(row, field) else ""

    shown.__name__ = f"{field}_yes"
    return shown


def one_of(field: str, words: Mapping[Any, str], title: str = "") -> type[admin.SimpleListFilter]:
    """Return a filter of a list by a closed set of words: asking the table for them would read all of it."""
    known = {str(value): (value, word) for value, word in words.items()}

    class OneOf(admin.SimpleListFilter):
        parameter_name = field

        def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
            return [(value, in_words(word)) for value, (_, word) in known.items()]

        def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
            asked = self.value()
            if asked is None:
                return queryset
            if asked not in known:
                raise IncorrectLookupParameters
            return queryset.filter(**{field: known[asked][0]})

    OneOf.title = _headed(title, field)  # type: ignore[assignment]
    return OneOf


def words(*values: str) -> dict[str, str]:
    """Return coded words as choices of a filter."""
    return {value: value.replace("_", " ") for value in values}


class NewestFirst(ChangeList):
    """A list in pages by id, newest first: no page costs more than another, and no row is counted."""

    key = "pk"
    after: Any = None
    older: str | None = None
    newest: str | None = None

    def get_filters_params(self, params: Any = None) -> Any:
        asked = self.filter_params.pop("before", None)
        if asked is not None:
            try:
                self.after = self.place(asked[-1])
            except (Missing, ValueError):
                raise IncorrectLookupParameters from None
        return super().get_filters_params(params)

    def place(self, text: str) -> Any:
        """Return where a page begins, as a query names it. Raises `Missing` or `ValueError` for what names none."""
        return uuid_or_missing(text)

    def get_results(self, request: HttpRequest) -> None:
        found = self.queryset if self.after is None else self.queryset.filter(**{f"{self.key}__lt": self.after})
        shown = list(found[: self.list_per_page + 1])
        more, shown = len(shown) > self.list_per_page, shown[: self.list_per_page]
        self.older = self.get_query_string({"before": str(getattr(shown[-1], self.key))}) if more else None
        self.newest = self.get_query_string() if self.after is not None else None
        self.result_list, self.result_count, self.full_result_count = shown, len(shown), len(shown)
        self.show_full_result_count = self.show_admin_actions = False
        self.can_show_all = self.multi_page = False
        self.paginator = SimpleNamespace(template_name="admin/newest_first.html", count=len(shown))


class LatestEntries(NewestFirst):
    """The same of a chain, by sequence number."""

    key = "seq"

    def place(self, text: str) -> int:
        if not (text.isascii() and text.isdigit() and len(text) < 19):
            raise Missing
        return int(text)


class MetadataAdmin(ReadOnlyAdmin):
    """Rows of any number, as metadata that every member may see: by id, filtered by closed lists, never searched."""

    seen_by = frozenset(MemberRole)
    ordering = ("-id",)
    sortable_by = ()

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return NewestFirst

    def lookup_allowed(self, lookup: str, value: Any, request: HttpRequest | None = None) -> bool:
        return any(lookup == getattr(each, "parameter_name", None) for each in self.list_filter)

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        found = super().get_object(request, object_id, from_field)
        if found is None:
            raise Http404
        return found


class PageAdmin(MetadataAdmin):
    """Metadata of which one row has a page of our own, in place of the theme's form."""

    def changeform_view(
        self, request: HttpRequest, object_id: str | None = None, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        if request.method not in ("GET", "HEAD"):
            return HttpResponseNotAllowed(["GET", "HEAD"])
        if object_id is None or not self.has_view_permission(request):
            raise PermissionDenied
        return self.page(request, self.get_object(request, object_id))

    def page(self, request: HttpRequest, row: Any, /) -> HttpResponse:
        """Return the page of a row that is there, for somebody who may see it."""
        raise NotImplementedError


def known_id(text: str) -> str:
    """Return an id from a path; Http404 where it is none."""
    try:
        return str(uuid_or_missing(text))
    except Missing:
        raise Http404 from None


def _hands_out(request: HttpRequest) -> bool:
    """Whether the reader may hand out access and take it away (`tenants.access`)."""
    found = standing(request)
    return found.tenant is not None and found.is_one_of(MemberRole.TENANT_ADMIN)


_KEEPERS = frozenset({MemberRole.TENANT_ADMIN, MemberRole.AUDITOR})


@admin.register(Tenant)
class TenantAdmin(HistoryAdmin):
    seen_by = _KEEPERS
    seen_by_operators = True
    list_display = ("slug", "state", "catalogue_no", instant("created_at"))
    ordering = ("slug",)
    fields: Sequence[Any] = ("id", "slug", "state", "catalogue_no", instant("created_at"))


@admin.register(Agent)
class AgentAdmin(HistoryAdmin):
    seen_by = _KEEPERS
    list_display = ("name", "clearance_word", "trust", "state", instant("created_at"))
    list_filter = (
        one_of("state", words("active", "suspended", "ended")),
        one_of("clearance", dict(enumerate(CLEARANCES))),
    )
    lookups = frozenset({"state", "clearance"})
    ordering = ("name",)
    fields: Sequence[Any] = ("id", "name", "clearance_word", "trust", "purposes", "state", instant("created_at"))

    def acts(self, request: HttpRequest, row: str | None) -> Sequence[tuple[str, str, bool]]:
        if not _hands_out(request):
            return ()
        if row is None:
            return [(_("Register an agent"), reverse("register_agent"), False)]
        return [(_("Issue a key"), reverse("issue_key", args=[row]), False)]

    @admin.display(description=gettext_lazy("clearance"), ordering="clearance")
    def clearance_word(self, agent: Agent) -> str:
        word: str = in_words(CLEARANCES[agent.clearance])
        return word


@admin.register(AgentKey)
class AgentKeyAdmin(ReadOnlyAdmin):
    """Keys by their prefix. The digest is no secret and is not shown either."""

    seen_by = _KEEPERS
    _instants = (instant("expires_at"), instant("revoked_at"), instant("last_used_at"))
    list_display = ("prefix", "agent_name", "scopes", *_instants)
    list_select_related = ("agent",)
    ordering = ("-id",)
    fields: Sequence[Any] = ("id", "prefix", "agent_name", "scopes", *_instants, instant("created_at"))

    @admin.display(description=gettext_lazy("agent"), ordering="agent__name")
    def agent_name(self, key: AgentKey) -> str:
        return key.agent.name

    def acts(self, request: HttpRequest, row: str | None) -> Sequence[tuple[str, str, bool]]:
        if row is None or not _hands_out(request):
            return ()
        return [
            (_("Rotate this key"), reverse("rotate_key", args=[row]), False),
            (_("End this key"), reverse("revoke_key", args=[row]), True),
        ]


@admin.register(Membership)
class MembershipAdmin(HistoryAdmin):
    seen_by = _KEEPERS
    list_display = ("username", "role", instant("created_at"))
    list_filter = (one_of("role", words(*MemberRole)),)
    lookups = frozenset({"role"})
    ordering = ("-id",)
    fields: Sequence[Any] = ("id", "username", "role", instant("created_at"))
    list_select_related = ("user",)

    def acts(self, request: HttpRequest, row: str | None) -> Sequence[tuple[str, str, bool]]:
        if not _hands_out(request):
            return ()
        if row is None:
            return [(_("Add a member"), reverse("add_member"), False)]
        return [(_("End this role"), reverse("remove_member", args=[row]), True)]

    @admin.display(description=gettext_lazy("user"))
    def username(self, membership: Membership) -> str:
        return membership.user.username


@admin.register(User)
class UserAdmin(ReadOnlyAdmin):
    """Everyone who may sign in, of whatever tenant: operators' alone."""

    seen_by_operators = True
    list_display = ("username", "is_active", "is_superuser", instant("last_login"))
    ordering = ("username",)
    fields: Sequence[Any] = (
        "id",
        "username",
        "is_active",
        "is_staff",
        "is_superuser",
        instant("last_login"),
        instant("date_joined"),
    )


@admin.register(AuditEvent)
class AuditEventAdmin(ReadOnlyAdmin):
    """The tenant's chain, or for operators the platform's."""

    seen_by = frozenset({MemberRole.AUDITOR, MemberRole.PRIVACY_OFFICER, MemberRole.TENANT_ADMIN})
    seen_by_operators = True
    list_display = ("seq", instant("at"), "actor_kind", "action", "target_kind", "target_id", "reason")
    list_filter = (
        one_of("action", {each.value: each.value for each in Action}),
        one_of("actor_kind", words(*(each.value for each in ActorKind)), "actor"),
    )
    lookups = frozenset({"action", "actor_kind"})
    ordering = ("-seq",)
    sortable_by = ()
    list_before_template = "admin/verify_chain.html"
    fields: Sequence[Any] = (
        *("seq", instant("at"), "actor_kind", "actor_id", "action", "target_kind", "target_id", "reason"),
        *("digest_hex", "numbers", "hash_hex"),
    )

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return LatestEntries

    def get_urls(self) -> list[Any]:
        return [
            path("verify/", self.admin_site.admin_view(self.verify_view), name="tenants_auditevent_verify"),
            *super().get_urls(),
        ]

    def verify_view(self, request: HttpRequest) -> HttpResponse:
        """Walk the reader's chain, say whether it is sound or name the first bad entry, and audit that it was asked."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        if not self.has_view_permission(request):
            raise PermissionDenied
        found = standing(request)
        chain, actor = found.tenant or PLATFORM, found.actor
        assume(Role.FRONT, tenant=None)
        signed = checkpoints(SignedLog(settings.ENVIRONMENT.home / "checkpoints.jsonl", provider())).get(chain)
        finding = verify(chain, head=chains().get(chain), signed=signed)
        if found.tenant is not None:
            assume(Role.STAFF, tenant=found.tenant, clearance=actor.clearance, actor=actor.id)
        numbers: dict[str, int | float | bool] = {
            "chains": 1,
            "entries": finding.entries,
            "bad": int(finding.bad is not None),
        }
        append(
            [
                Event(
                    actor=actor,
                    action=Action.CHAINS_VERIFIED,
                    target_kind="audit_chain",
                    target_id=chain,
                    reason=finding.code,
                    numbers=numbers,
                )
            ],
            chain=chain,
        )
        if finding.bad is None:
            told = _("The chain is sound: %(entries)s entries checked.") % {"entries": finding.entries}
            if signed is not None:
                told = _(
                    "The chain is sound: %(entries)s entries checked, and holds the checkpoint signed at entry %(seq)s."
                ) % {
                    "entries": finding.entries,
                    "seq": signed.seq,
                }
            messages.success(request, told)
        else:
            messages.error(
                request,
                _("The chain does not hold from entry %(bad)s on: %(code)s.")
                % {"bad": finding.bad, "code": finding.code},
            )
        return HttpResponseRedirect(reverse("admin:tenants_auditevent_changelist"))

    def get_queryset(self, request: HttpRequest) -> QuerySet[AuditEvent]:
        # The front role sees every chain, to verify them; an operator reads the platform's.
        entries: QuerySet[AuditEvent] = super().get_queryset(request)
        return entries.filter(chain=standing(request).tenant or PLATFORM)

    @admin.display(description=gettext_lazy("digest"))
    def digest_hex(self, event: AuditEvent) -> str:
        return "" if event.digest is None else bytes(event.digest).hex()

    @admin.display(description=gettext_lazy("hash"))
    def hash_hex(self, event: AuditEvent) -> str:
        return bytes(event.hash).hex()


# Pages of libraries: groups mean nothing here, and what signs people in is nobody's to look at.
admin.site.unregister([Group, EmailAddress, Authenticator])
admin.site.disable_action("delete_selected")
