"""Attributes, policies and consents, and the pages on which one member proposes a change and another decides on it.

Nothing here is a form of Django's admin: every change goes through a door of `policies.publishing` or
`policies.approvals`, as the person who is signed in.
"""

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import OuterRef, QuerySet, Subquery
from django.db.models.functions import Coalesce
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import path, reverse
from django.utils.module_loading import import_string
from django.utils.translation import gettext as _

from policies import approvals, publishing, wording
from policies.approvals import ANSWER_REASONS, REASONS, Act, Answer
from policies.catalogue import Catalogue, catalogue
from policies.changes import compare
from policies.decision import Question, decide
from policies.definitions import AttributeDefinition, definition
from policies.documents import DocumentRefused, read_json
from policies.models import (
    Attribute,
    AttributeVersion,
    Consent,
    Decision,
    DecisionRequest,
    Delegation,
    Policy,
    PolicyVersion,
)
from policies.publishing import Version
from policies.rules import PolicyDocument, policy_document
from policies.vocabulary import Basis, Confirm, Kind, Sensitivity, SourceKind
from tenants.actors import MemberRole
from tenants.admin import HistoryAdmin, MetadataAdmin, PageAdmin, instant, known_id, link_to, one_of, standing, words
from tenants.errors import Clash, Forbidden, Missing, Problem
from tenants.models import User
from tenants.registry import CLEARANCES
from tenants.words import gettext_lazy, in_words

_STATES = words("draft", "active", "retired", "discarded")
#: Who may propose a change; whoever approves it is another, and an approver.
DRAFTERS = frozenset({MemberRole.APPROVER, MemberRole.TENANT_ADMIN, MemberRole.PRIVACY_OFFICER})
#: Longer than any document that a person reviews.
MAX_CHARACTERS = 200_000

#: Refusals of the doors, as this reader meets them.
_TOLD = {
    "own_request": gettext_lazy("You asked for this yourself. Another approver decides."),
    "role_missing": gettext_lazy("Your roles in this tenant do not allow that."),
    "not_the_requester": gettext_lazy("Whoever asked takes it back."),
    "already_asked": gettext_lazy("It is asked about already."),
    "already_decided": gettext_lazy("It was decided already."),
    "changed_since_shown": gettext_lazy("It changed since you looked. This page shows it as it is now."),
    "base_moved": gettext_lazy(
        "Another version came into force since it was drafted. Draft it anew on what is in force now."
    ),
    "request_expired": gettext_lazy("Nobody decided in time. It can be asked anew."),
    "not_a_draft": gettext_lazy("It is no draft any more."),
    "unchanged": gettext_lazy("This is what is in force already."),
    "cardinality_changes": gettext_lazy(
        "One or several answers is fixed once a version was in force: it decides what stored facts mean."
    ),
    "request_refused": gettext_lazy("A reason is needed."),
    "decision_refused": gettext_lazy("A decision needs a reason that goes with it."),
    "delegation_refused": gettext_lazy("Name another member, and a time that lies ahead and is at most 31 days long."),
    "delegation_ended": gettext_lazy("It has ended already."),
}

#: What is wrong at a place of a document that somebody wrote.
_WRONG = {
    "missing": gettext_lazy("is needed"),
    "unknown_field": gettext_lazy("is no known field"),
    "wrong_type": gettext_lazy("is of the wrong type"),
    "not_in_enum": gettext_lazy("is not one of the known words"),
    "too_short": gettext_lazy("is too short"),
    "too_long": gettext_lazy("is too long"),
    "too_small": gettext_lazy("is too small"),
    "too_big": gettext_lazy("is too big"),
    "bad_pattern": gettext_lazy("has not the right shape"),
    "not_json": gettext_lazy("is not JSON"),
    "duplicate_field": gettext_lazy("names a field twice"),
    "not_finite": gettext_lazy("is no finite number"),
    "not_unique": gettext_lazy("has an item twice"),
    "invalid_schema": gettext_lazy("is not a schema that can be used"),
    "not_a_duration": gettext_lazy("is no duration such as P30D"),
    "duplicate_id": gettext_lazy("has two rules of one id"),
    "only_with_ask": gettext_lazy('goes with "ask" only'),
    "too_large": gettext_lazy("is too large"),
    "fixed": gettext_lazy("stays as it is"),
}


def _json(document: Any) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False)


def _now() -> datetime:
    return datetime.now(UTC)


def _may_draft(request: HttpRequest) -> bool:
    return standing(request).is_one_of(*DRAFTERS)


def _require_drafter(request: HttpRequest) -> None:
    if not _may_draft(request):
        raise PermissionDenied


def _told(problem: Problem) -> str:
    return _TOLD.get(problem.code, _("It was not done: %(code)s.") % {"code": problem.code})


def _wrong(errors: Sequence[tuple[str, str]], text: str) -> list[tuple[str, str]]:
    found = []
    for place, code in errors:
        words = _WRONG.get(code, code.replace("_", " "))
        found.append((place, f"{words}{_where(text)}" if code == "not_json" else words))
    return found


def _where(text: str) -> str:
    """Return where a text stops to be JSON."""
    try:
        json.loads(text)
    except json.JSONDecodeError as stop:
        return _(": line %(line)s, column %(column)s") % {"line": stop.lineno, "column": stop.colno}
    except (ValueError, RecursionError):
        pass
    return ""


def _names(*people: UUID | None) -> dict[UUID, str]:
    """Return what members are called, by id: whoever has no user is an operator's command."""
    return dict(User.objects.filter(id__in={each for each in people if each is not None}).values_list("id", "username"))


def _only(method: str, view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """Let a view answer one method (`GET` stands for HEAD too), and an unknown id look like one that is not there."""

    def answered(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        allowed = ["GET", "HEAD"] if method == "GET" else method.split()
        if request.method not in allowed:
            return HttpResponseNotAllowed(allowed)
        try:
            return view(request, *args, **kwargs)
        except Missing:
            raise Http404 from None

    return answered


def _route(
    site: admin.AdminSite, where: str, view: Callable[..., HttpResponse], name: str, method: str = "POST"
) -> Any:
    return path(where, site.admin_view(_only(method, view)), name=name)


class _Drafts:
    """What the pages of attributes and of policies share: drafting a version in a form."""

    act: Act

    def read(self, text: str) -> Any:
        """Return what somebody wrote as a document of this kind. Raises `DocumentRefused`."""
        raise NotImplementedError

    def keep(self, request: HttpRequest, read: Any) -> Version:
        """Keep it as a draft."""
        raise NotImplementedError

    def form_page(
        self,
        request: HttpRequest,
        *,
        text: str,
        about: Any,
        errors: Sequence[tuple[str, str]] = (),
        problem: str = "",
        status: int = 200,
    ) -> HttpResponse:
        """Show the form with what is written in it, and what is wrong with it by place."""
        context = {
            **self.admin_site.each_context(request),  # type: ignore[attr-defined]
            "opts": self.opts,  # type: ignore[attr-defined]
            "title": _("Draft"),
            "about": about,
            "is_policy": self.act is Act.PUBLISH_POLICY,
            "text": text,
            "errors": _wrong(errors, text),
            "problem": problem,
        }
        return TemplateResponse(request, "admin/policies/draft.html", context, status=status)

    def sent(self, request: HttpRequest, *, about: Any, name: str | None) -> HttpResponse:
        """Read what was sent; keep it and go to the draft, or show what is wrong."""
        text = request.POST.get("document", "")[: MAX_CHARACTERS + 1]
        errors: list[tuple[str, str]] = []
        if len(text) > MAX_CHARACTERS:
            return self.form_page(request, text="", about=about, errors=[("document", "too_large")], status=400)
        try:
            read = self.read(text)
            if name is not None and read.name != name:
                errors = [(f"{'policy' if self.act is Act.PUBLISH_POLICY else 'attribute'}.name", "fixed")]
        except DocumentRefused as refusal:
            errors = refusal.errors
        if errors:
            return self.form_page(request, text=text, about=about, errors=errors, status=400)
        try:
            version = self.keep(request, read)
        except Clash as clash:
            return self.form_page(request, text=text, about=about, problem=_told(clash), status=409)
        messages.success(
            request, _("The draft is kept. Nothing is in force by it: look at it, and ask for its approval.")
        )
        return HttpResponseRedirect(reverse(f"admin:policies_{version._meta.model_name}_change", args=[version.id]))


_EXAMPLE = {
    "name": "preferred_language",
    "description": "The language in which somebody wants to be answered.",
    "schema": {"type": "string", "maxLength": 40},
    "sensitivity": "personal",
    "basis": "session",
    "confirm": "never",
    "cues": ["language", "answer in"],
}


@admin.register(Attribute)
class AttributeAdmin(_Drafts, HistoryAdmin, PageAdmin):
    """What may be known of a subject, by name."""

    act = Act.PUBLISH_ATTRIBUTE
    seen_by = frozenset(MemberRole)
    list_display = ("name", "cardinality", instant("created_at"))
    list_filter = (one_of("cardinality", words("single", "multi")),)
    list_before_template = "admin/policies/above_attributes.html"

    def get_urls(self) -> list[Any]:
        site = self.admin_site
        return [
            _route(site, "draft/", self.new_view, "policies_attribute_draft_new", "GET POST"),
            _route(site, "<path:object_id>/draft/", self.draft_view, "policies_attribute_draft", "GET POST"),
            *super().get_urls(),
        ]

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        return super().changelist_view(request, {**(extra_context or {}), "may_draft": _may_draft(request)})

    def page(self, request: HttpRequest, found: Any) -> HttpResponse:
        """Show what is in force of an attribute in plain words, its versions, and what is stored under each."""
        versions = list(AttributeVersion.objects.filter(attribute_id=found.id).order_by("-number")[:50])
        in_force = next((each for each in versions if each.state == "active"), None)
        stored = import_string(settings.FACTS_BY_VERSION)(found.tenant_id, found.id)
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": found.name,
            "attribute": found,
            "in_force": in_force,
            "read": None if in_force is None else definition(in_force.definition),
            "said": [] if in_force is None else wording.attribute(definition(in_force.definition)),
            "versions": [(each, stored.get(each.id, 0)) for each in versions],
            "may_draft": _may_draft(request),
        }
        return TemplateResponse(request, "admin/policies/attribute.html", context)

    def new_view(self, request: HttpRequest) -> HttpResponse:
        """Draft an attribute that is not there yet. A name may come from elsewhere, in the body of the request alone."""
        _require_drafter(request)
        if request.method == "POST" and "document" in request.POST:
            return self.sent(request, about=None, name=None)
        example = {**_EXAMPLE, "name": request.POST["name"][:200]} if request.POST.get("name") else _EXAMPLE
        return self.form_page(request, text=_json(example), about=None)

    def draft_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Draft the next version, beginning with the one in force, or with another one of its versions."""
        _require_drafter(request)
        found = self.get_object(request, object_id)
        if request.method == "POST":
            return self.sent(request, about=found, name=found.name)
        versions = AttributeVersion.objects.filter(attribute_id=found.id)
        begun = versions.filter(id=known_id(request.GET["from"])) if "from" in request.GET else versions
        latest = begun.filter(state="active").first() or begun.order_by("-number").first()
        if latest is None:
            raise Http404
        return self.form_page(request, text=_json(_document(latest)), about=found)

    def read(self, text: str) -> AttributeDefinition:
        return definition(read_json(text, "attribute"))

    def keep(self, request: HttpRequest, read: AttributeDefinition) -> Version:
        return publishing.draft_attribute(standing(request).actor, read, now=_now())


class _Versions(PageAdmin):
    """The pages of a version: what it says, what it would change, and what may be done with it."""

    act: Act

    def get_urls(self) -> list[Any]:
        name = f"policies_{self.opts.model_name}"
        site = self.admin_site
        return [
            _route(site, "<path:object_id>/ask/", self.ask_view, f"{name}_ask"),
            _route(site, "<path:object_id>/discard/", self.discard_view, f"{name}_discard"),
            _route(site, "<path:object_id>/again/", self.again_view, f"{name}_again"),
            *super().get_urls(),
        ]

    def ask_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Ask for a draft to be put in force."""
        _require_drafter(request)
        version = self.get_object(request, object_id)
        try:
            asked = publishing.ask(
                standing(request).actor, self.act, version.id, reason=request.POST.get("reason", ""), now=_now()
            )
        except Problem as problem:
            return self.page(request, version, problem=_told(problem), status=problem.status)
        messages.success(request, _("Asked. Another member with the role approver decides."))
        return HttpResponseRedirect(reverse("admin:policies_decisionrequest_change", args=[asked.id]))

    def discard_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Drop a draft."""
        _require_drafter(request)
        version = self.get_object(request, object_id)
        try:
            publishing.discard(standing(request).actor, self.act, version.id)
        except Clash as clash:
            return self.page(request, version, problem=_told(clash), status=clash.status)
        messages.success(request, _("%(version)s was dropped.") % {"version": version})
        return HttpResponseRedirect(reverse(f"admin:policies_{self.opts.model_name}_changelist"))

    def again_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Draft an earlier version again: the way back is the way forward."""
        _require_drafter(request)
        version = self.get_object(request, object_id)
        actor = standing(request).actor
        drafted: Version
        try:
            if self.act is Act.PUBLISH_ATTRIBUTE:
                drafted = publishing.draft_attribute(actor, definition(version.definition), now=_now())
            else:
                drafted = publishing.draft_policy(actor, policy_document(version.rules), now=_now())
        except Clash as clash:
            return self.page(request, version, problem=_told(clash), status=clash.status)
        messages.success(
            request,
            _("Version %(number)s is drafted as version %(earlier)s was. Ask for its approval.")
            % {"number": drafted.number, "earlier": version.number},
        )
        return HttpResponseRedirect(reverse(f"admin:policies_{self.opts.model_name}_change", args=[drafted.id]))

    def page(self, request: HttpRequest, version: Any, *, problem: str = "", status: int = 200) -> HttpResponse:
        """Show a version, beside what it would replace where it is a draft and else beside its base."""
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": str(version),
            "problem": problem,
            "may_draft": _may_draft(request),
            "open": publishing.open_request(version.tenant_id, self.act, version.id),
            "requests": DecisionRequest.objects.filter(target_id=version.id).order_by("-id")[:20],
            "drafter": _names(version.drafted_by).get(version.drafted_by),
            "asking_reasons": words(*REASONS),
            "names": {
                part: f"admin:policies_{self.opts.model_name}_{part}" for part in ("ask", "discard", "again", "change")
            },
            **_compared(version),
        }
        return TemplateResponse(request, "admin/policies/version.html", context, status=status)


def _document(version: Any) -> dict[str, Any]:
    """Return the text of a version, its fields in the order in which people write them."""
    if isinstance(version, AttributeVersion):
        return definition(version.definition).document()
    return policy_document(version.rules).document()


def _compared(version: Any) -> dict[str, Any]:
    """Return what a page says of a version: what differs from what it replaces, what follows, what is stored."""
    of_attribute = isinstance(version, AttributeVersion)
    current: Any = publishing.in_force(version) if version.state == "draft" else version.base
    text, former = _document(version), None if current is None else _document(current)
    changes = [] if former is None else compare(former, text)
    found: dict[str, Any] = {
        "version": version,
        "of_attribute": of_attribute,
        "owner": version.attribute if of_attribute else version.policy,
        "current": current,
        "moved": version.state == "draft" and (None if current is None else current.id) != version.base_id,
        "changes": changes,
        "text": _json(text),
        "digest": bytes(version.digest).hex(),
        "stored": [],
    }
    if of_attribute:
        found["said"] = wording.attribute(definition(text))
        before = None if former is None else definition(former)
        found["effects"] = wording.effects(before, definition(text))
        numbers = dict(
            AttributeVersion.objects.filter(attribute_id=version.attribute_id).values_list("id", "number")[:1000]
        )
        stored = import_string(settings.FACTS_BY_VERSION)(version.tenant_id, version.attribute_id)
        found["stored"] = sorted((numbers[each], count) for each, count in stored.items() if each in numbers)
    else:
        found["read"] = policy_document(text)
        found["rules"] = wording.rules(found["read"])
        found["lifetimes"] = wording.lifetimes(found["read"])
        found["effects"] = wording.policy_effects(each.path for each in changes)
    return found


@admin.register(AttributeVersion)
class AttributeVersionAdmin(_Versions):
    """The rules of an attribute, as drafted and as published."""

    act = Act.PUBLISH_ATTRIBUTE
    list_display = ("__str__", "attribute_name", "number", "state", instant("created_at"))
    list_filter = (one_of("state", _STATES),)
    list_select_related = ("attribute",)

    @admin.display(description=gettext_lazy("attribute"))
    def attribute_name(self, version: AttributeVersion) -> str:
        name: str = version.attribute.name
        return name


@admin.register(Policy)
class PolicyAdmin(_Drafts, HistoryAdmin, PageAdmin):
    """A tenant's write policies."""

    act = Act.PUBLISH_POLICY
    seen_by = frozenset(MemberRole)
    list_display = ("name", instant("created_at"))
    list_before_template = "admin/policies/above_policies.html"

    def get_urls(self) -> list[Any]:
        site = self.admin_site
        return [
            _route(site, "explain/", self.explain_view, "policies_policy_explain", "GET"),
            _route(site, "draft/", self.draft_view, "policies_policy_draft", "GET POST"),
            *super().get_urls(),
        ]

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        return super().changelist_view(request, {**(extra_context or {}), "may_draft": _may_draft(request)})

    def page(self, request: HttpRequest, policy: Any) -> HttpResponse:
        """Show a policy in plain words, and its versions."""
        versions = list(PolicyVersion.objects.filter(policy_id=policy.id).order_by("-number")[:50])
        in_force = next((each for each in versions if each.state == "active"), None)
        shown = in_force or next(iter(versions), None)
        read = None if shown is None else policy_document(shown.rules)
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": policy.name,
            "policy": policy,
            "in_force": in_force,
            "shown": shown,
            "read": read,
            "rules": [] if read is None else wording.rules(read),
            "lifetimes": [] if read is None else wording.lifetimes(read),
            "classes": CLEARANCES,
            "versions": versions,
            "may_draft": _may_draft(request),
        }
        return TemplateResponse(request, "admin/policies/policy.html", context)

    def draft_view(self, request: HttpRequest) -> HttpResponse:
        """Draft the tenant's next policy, beginning with the one in force, or with another version."""
        _require_drafter(request)
        versions = PolicyVersion.objects.select_related("policy")
        if "from" in request.GET:
            found = versions.filter(id=known_id(request.GET["from"])).first()
        else:
            found = versions.filter(state="active").first()
        if request.method == "POST":
            return self.sent(request, about=None if found is None else found.policy, name=None)
        if found is None:
            raise Http404
        return self.form_page(request, text=_json(_document(found)), about=found.policy)

    def read(self, text: str) -> PolicyDocument:
        return policy_document(read_json(text, "policy"))

    def keep(self, request: HttpRequest, read: PolicyDocument) -> Version:
        return publishing.draft_policy(standing(request).actor, read, now=_now())

    def explain_view(self, request: HttpRequest) -> HttpResponse:
        """Say what would become of a write that nobody has made, and why."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        tenant = standing(request).tenant
        context: dict[str, Any] = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": _("What would become of it?"),
            "problem": "",
        }
        status = 200
        try:
            if tenant is None:
                raise PermissionDenied
            found = catalogue(tenant)
        except Clash:
            context["problem"] = _("No policy is in force: nothing may be written.")
            return TemplateResponse(request, "admin/policies/explain.html", context, status=409)
        fields = _questionnaire(found)
        chosen = {name: request.GET.get(name, offered["default"]) for name, offered in fields.items()}
        context.update(fields=[(name, offered, chosen[name]) for name, offered in fields.items()], version=found)
        wrong = [
            offered["label"]
            for name, offered in fields.items()
            if offered["choices"] is not None and chosen[name] not in offered["choices"]
        ]
        question = None if wrong else _question(found, chosen)
        if question is None:
            context["problem"] = _("Something was asked that this page does not offer.")
            status = 400
        elif request.GET:
            verdict = decide(question, found.policy, version=found.policy_version)
            context.update(
                verdict=verdict,
                becomes=wording.outcome(verdict.outcome, verdict.confirm_by),
                level=verdict.sensitivity.label,
                passed=wording.passed_over(found.policy, question, verdict.rule)
                if not verdict.rule.startswith("builtin.") or verdict.rule == "builtin.undecided"
                else [],
                built_in=wording.decisive(verdict.rule),
                decisive=next((each for each in wording.rules(found.policy) if each.id == verdict.rule), None),
            )
        return TemplateResponse(request, "admin/policies/explain.html", context, status=status)


def _questionnaire(found: Catalogue) -> dict[str, dict[str, Any]]:
    """Return what may be asked about a write: closed lists, and two numbers."""
    classes = {level.label: level.label for level in Sensitivity}
    names = sorted(found.attributes)

    def listed(label: str, choices: dict[str, str], default: str) -> dict[str, Any]:
        return {"label": label, "choices": choices, "default": default}

    return {
        "attribute": listed(_("Attribute"), {each: each for each in names}, names[0] if names else ""),
        "act": listed(_("What is written"), {"fact": _("a value"), "end": _("that it no longer holds")}, "fact"),
        "source": listed(_("It comes from"), words(*(each.value for each in SourceKind)), "statement"),
        "declared": listed(_("The writer declares"), {"": "nothing", **classes}, ""),
        "detected": listed(
            _("Detection finds"), {"public": "nothing", **{k: v for k, v in classes.items() if k != "public"}}, "public"
        ),
        "basis": listed(_("Basis"), {"": _("the attribute's own"), **words(*(each.value for each in Basis))}, ""),
        "consent": listed(
            _("Consent"),
            {"standing": "stands", "withdrawn": _("was withdrawn"), "none": _("none is named")},
            "standing",
        ),
        "clearance": listed(_("The writer is cleared up to"), classes, "restricted"),
        "confidence": {"label": _("Confidence (0 to 1)"), "choices": None, "default": ""},
        "trust": {"label": _("The writer's trust (0 to 100)"), "choices": None, "default": "50"},
    }


def _question(found: Catalogue, chosen: dict[str, str]) -> Question | None:
    """Return the question that was chosen; None where a number is none."""
    attribute = found.attributes.get(chosen["attribute"])
    try:
        confidence = float(chosen["confidence"]) if chosen["confidence"] else None
        trust = int(chosen["trust"])
    except ValueError:
        return None
    if attribute is None or not 0 <= trust <= 100 or (confidence is not None and not 0 <= confidence <= 1):
        return None
    defined = attribute.definition
    source = SourceKind(chosen["source"])
    return Question(
        act="end" if chosen["act"] == "end" else "fact",
        attribute=attribute.name,
        kind=Kind(defined.kind),
        source=source,
        confirmed=source is SourceKind.CONFIRMATION,
        inferred=source is SourceKind.STATEMENT,
        declared=Sensitivity.of(chosen["declared"]) if chosen["declared"] else None,
        default=defined.sensitivity,
        detected=Sensitivity.of(chosen["detected"]),
        basis=Basis(chosen["basis"]) if chosen["basis"] else defined.basis,
        consent={"standing": "standing", "withdrawn": "withdrawn"}.get(chosen["consent"], "none"),  # type: ignore[arg-type]
        consent_purposes=None,
        purposes=frozenset(),
        confidence=confidence,
        trust=trust,
        clearance=Sensitivity.of(chosen["clearance"]),
        confirm=Confirm(defined.confirm),
        written_at=_now(),
        expires_at=None,
        recurrence=defined.recurrence is not None,
        expected=defined.basis,
    )


@admin.register(PolicyVersion)
class PolicyVersionAdmin(_Versions):
    """The rules of a policy, as drafted and as published."""

    act = Act.PUBLISH_POLICY
    list_display = ("__str__", "policy_name", "number", "state", instant("created_at"))
    list_filter = (one_of("state", _STATES),)
    list_select_related = ("policy",)

    @admin.display(description=gettext_lazy("policy"))
    def policy_name(self, version: PolicyVersion) -> str:
        name: str = version.policy.name
        return name


_ACTS = {
    Act.PUBLISH_ATTRIBUTE: gettext_lazy("Put a version of an attribute in force"),
    Act.PUBLISH_POLICY: gettext_lazy("Put a version of the policy in force"),
    Act.PROMOTE_PROCEDURE: gettext_lazy("Make a version of a procedure the active one"),
    Act.LOWER_CLASS: gettext_lazy("Lower a class"),
    Act.EXTEND_LIFETIME: gettext_lazy("Keep something longer"),
    Act.RELEASE_HOLD: gettext_lazy("Release a hold"),
    Act.ERASE_SUBJECT: gettext_lazy("Erase a subject"),
}
#: Acts that are decided on the page of what they are about, by the name of that page.
_ELSEWHERE = {
    Act.RELEASE_HOLD: "admin:retention_hold_change",
    Act.PROMOTE_PROCEDURE: "admin:memory_procedureversion_change",
    Act.ERASE_SUBJECT: "admin:retention_erasure_of",
}
_ANSWERS = {
    Answer.APPROVE: gettext_lazy("Approve"),
    Answer.RETURN: gettext_lazy("Send back"),
    Answer.REFUSE: gettext_lazy("Refuse"),
}


@admin.register(DecisionRequest)
class DecisionRequestAdmin(HistoryAdmin, PageAdmin):
    """What one member asks for and another decides on."""

    seen_by = frozenset(MemberRole)
    list_display = (
        *("__str__", "act", "what", "state", "asked_by", "because"),
        *(instant("requested_at"), instant("expires_at")),
    )
    list_filter = (
        one_of("state", words("pending", "approved", "done", "refused", "returned", "withdrawn", "expired")),
        one_of("act", {each.value: each.value for each in Act}),
    )
    fields: Sequence[Any] = (
        *("id", "act", "target_kind", "target_id", "state", "reason", "requested_by", instant("requested_at")),
        *(instant("expires_at"), "carried_out_by", instant("carried_out_at")),
    )

    def get_urls(self) -> list[Any]:
        site = self.admin_site
        return [
            _route(site, "<path:object_id>/decide/", self.decide_view, "policies_decisionrequest_decide"),
            _route(site, "<path:object_id>/withdraw/", self.withdraw_view, "policies_decisionrequest_withdraw"),
            *super().get_urls(),
        ]

    def get_queryset(self, request: HttpRequest) -> QuerySet[DecisionRequest]:
        found: QuerySet[DecisionRequest] = super().get_queryset(request)
        attributes = AttributeVersion.objects.filter(id=OuterRef("target_id")).values("attribute__name")
        policies = PolicyVersion.objects.filter(id=OuterRef("target_id")).values("policy__name")
        people = User.objects.filter(id=OuterRef("requested_by")).values("username")
        return found.annotate(
            target_name=Coalesce(Subquery(attributes), Subquery(policies)), requester_name=Subquery(people)
        )

    @admin.display(description=gettext_lazy("what"))
    def what(self, asked: DecisionRequest) -> str:
        return asked.target_name or str(asked.target_id)[-8:]  # type: ignore[attr-defined]

    @admin.display(description=gettext_lazy("asked by"))
    def asked_by(self, asked: DecisionRequest) -> str:
        return asked.requester_name or "–"  # type: ignore[attr-defined, no-any-return]

    @admin.display(description=gettext_lazy("because"))
    def because(self, asked: DecisionRequest) -> str:
        because: str = in_words(asked.reason.replace("_", " "))
        return because

    def decide_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Approve, refuse or send back, as the person who is signed in."""
        asked = self.get_object(request, object_id)
        try:
            answer = Answer(request.POST.get("answer", ""))
            shown = bytes.fromhex(request.POST.get("shown", ""))
        except ValueError:
            return self.page(request, asked, problem=_("A decision says yes, no, or not like this."), status=400)
        try:
            settled, _version = publishing.decide(
                standing(request).actor,
                asked.id,
                answer,
                shown=shown,
                reason=request.POST.get("reason", ""),
                now=_now(),
            )
        except Forbidden:
            raise PermissionDenied from None
        except Missing:
            raise
        except Problem as problem:
            return self.page(
                request, self.get_object(request, object_id), problem=_told(problem), status=problem.status
            )
        told = {"done": _("Approved. It is in force."), "refused": _("Refused."), "returned": _("Sent back.")}
        messages.success(request, told.get(settled.state, _("Decided.")))
        return HttpResponseRedirect(reverse("admin:policies_decisionrequest_change", args=[settled.id]))

    def withdraw_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Take back what one asked for; a proposal of a procedure on its own page, since the version goes with it."""
        asked = self.get_object(request, object_id)
        if asked.act == Act.PROMOTE_PROCEDURE:
            return HttpResponseRedirect(reverse(_ELSEWHERE[Act.PROMOTE_PROCEDURE], args=[asked.target_id]))
        try:
            approvals.withdraw(standing(request).actor, asked.id, now=_now())
        except Forbidden:
            raise PermissionDenied from None
        except Clash as clash:
            return self.page(request, self.get_object(request, object_id), problem=_told(clash), status=clash.status)
        messages.success(request, _("Taken back. The draft is still there."))
        return HttpResponseRedirect(reverse("admin:policies_decisionrequest_change", args=[asked.id]))

    def page(
        self, request: HttpRequest, asked: DecisionRequest, *, problem: str = "", status: int = 200
    ) -> HttpResponse:
        """Show a request with what it is bound to."""
        act, actor, now = Act(asked.act), standing(request).actor, _now()
        decision = Decision.objects.select_related("delegation").filter(request_id=asked.id).first()
        people = _names(asked.requested_by, asked.carried_out_by, None if decision is None else decision.decided_by)
        waits = asked.state == "pending" and now < asked.expires_at
        context: dict[str, Any] = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": _ACTS[act],
            "asked": asked,
            "act_words": _ACTS[act],
            "requester": people.get(asked.requested_by, "somebody"),
            "decision": decision,
            "decider": None if decision is None else people.get(decision.decided_by, "somebody"),
            "because": in_words(asked.reason.replace("_", " ")),
            "answer_words": ""
            if decision is None
            else f"{in_words(decision.verdict)}, {in_words(decision.reason.replace('_', ' '))}",
            "waits": waits,
            "lapsed": asked.state == "pending" and not waits,
            "mine": asked.requested_by == actor.id,
            "may_decide": waits and approvals.may_decide(actor, asked, now=now),
            "needed": in_words(act.decided_by.value.replace("_", " ")),
            "shown": bytes(asked.digest).hex(),
            "answers": [(answer.value, _ANSWERS[answer], words(*ANSWER_REASONS[answer])) for answer in _ANSWERS],
            "problem": problem,
            "current": None,
            "elsewhere": reverse(_ELSEWHERE[act], args=[asked.target_id]) if act in _ELSEWHERE else "",
        }
        if act in (Act.PUBLISH_ATTRIBUTE, Act.PUBLISH_POLICY):
            version = publishing.version_of(asked.tenant_id, act, asked.target_id)
            context.update(_compared(version))
            # What stands on the page is what the decision binds.
            context["shown"] = publishing.shown_digest(version).hex()
        return TemplateResponse(request, "admin/policies/request.html", context, status=status)


@admin.register(Delegation)
class DelegationAdmin(MetadataAdmin):
    """Roles that members handed to others, by name and for a time."""

    list_display = ("__str__", "role", "giver", "receiver", instant("starts_at"), instant("ends_at"), "standing_word")
    list_select_related = ("given_to",)
    list_before_template = "admin/policies/above_delegations.html"
    fields: Sequence[Any] = (
        *("id", "role", "giver", "receiver", instant("starts_at"), instant("ends_at"), instant("created_at")),
        *(instant("ended_at"), "standing_word"),
    )

    def get_urls(self) -> list[Any]:
        site = self.admin_site
        return [
            _route(site, "give/", self.give_view, "policies_delegation_give", "GET POST"),
            _route(site, "<path:object_id>/end/", self.end_view, "policies_delegation_end"),
            *super().get_urls(),
        ]

    def give_view(self, request: HttpRequest) -> HttpResponse:
        """Hand a role of one's own to a member, for some days from now on."""
        mine = sorted(
            role for role in (MemberRole.APPROVER, MemberRole.PRIVACY_OFFICER) if standing(request).is_one_of(role)
        )
        if not mine:
            raise PermissionDenied
        problem, status = "", 200
        if request.method == "POST":
            days = request.POST.get("days", "")
            role = next((each for each in mine if each.value == request.POST.get("role")), None)
            if role is None or not (days.isascii() and days.isdigit() and 1 <= int(days[:3]) <= 31):
                problem, status = _("Choose a role of yours, and 1 to 31 days."), 400
            else:
                now = _now()
                try:
                    approvals.delegate(
                        standing(request).actor,
                        request.POST.get("given_to", "")[:150],
                        role,
                        starts_at=now,
                        ends_at=now + timedelta(days=int(days)),
                        now=now,
                    )
                except Problem as refused:
                    problem, status = _told(refused), refused.status
                else:
                    messages.success(request, _("Handed on. You keep the role yourself, and can end this at any time."))
                    return HttpResponseRedirect(reverse("admin:policies_delegation_changelist"))
        given = Delegation.objects.select_related("given_to").filter(given_by=standing(request).actor.id, ended_at=None)
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": _("Hand a role on"),
            "roles": {role.value: role.value.replace("_", " ") for role in mine},
            "given": given.filter(ends_at__gt=_now()).order_by("-id")[:20],
            "problem": problem,
        }
        return TemplateResponse(request, "admin/policies/delegate.html", context, status=status)

    def end_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """End what one handed on."""
        found = self.get_object(request, object_id)
        try:
            approvals.end_delegation(standing(request).actor, found.id, now=_now())
        except Clash as clash:
            messages.error(request, _told(clash))
        else:
            messages.success(request, _("Ended."))
        return HttpResponseRedirect(reverse("admin:policies_delegation_changelist"))

    def get_queryset(self, request: HttpRequest) -> QuerySet[Delegation]:
        found: QuerySet[Delegation] = super().get_queryset(request)
        named = User.objects.filter(id=OuterRef("given_by")).values("username")
        return found.annotate(giver_name=Subquery(named))

    @admin.display(description=gettext_lazy("from"))
    def giver(self, delegation: Delegation) -> str:
        return str(delegation.giver_name)  # type: ignore[attr-defined]

    @admin.display(description=gettext_lazy("to"))
    def receiver(self, delegation: Delegation) -> str:
        name: str = delegation.given_to.username
        return name

    @admin.display(description=gettext_lazy("standing"))
    def standing_word(self, delegation: Delegation) -> str:
        now = _now()
        if delegation.ended_at is not None or delegation.ends_at <= now:
            return _("ended")
        return _("to come") if delegation.starts_at > now else _("stands")


@admin.register(Consent)
class ConsentAdmin(MetadataAdmin):
    """Subjects' consents, by the organisation's own reference."""

    list_display = ("__str__", "ref", link_to("memory_subject", "subject_id"), "standing", instant("granted_at"))
    fields: Sequence[Any] = (
        *("id", "ref", link_to("memory_subject", "subject_id"), "purposes", "standing"),
        *(instant("granted_at"), instant("withdrawn_at"), instant("created_at")),
    )

    @admin.display(description=gettext_lazy("standing"))
    def standing(self, consent: Consent) -> str:
        return _("stands") if consent.withdrawn_at is None else _("withdrawn")
