"""What is known, as metadata: subjects, episodes, facts, evidence, beliefs, candidates, receipts and work.

The staff role may not read payloads: where content would stand, its class stands. Only the page of a candidate opens
content, through `memory.sight.show`, for the reviewer who asks, and that of a procedure's version, through `memory.promotion.show`.
"""

import json
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from django.conf import settings
from django.contrib import admin, messages
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.postgres.expressions import ArraySubquery
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import OuterRef, QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import path, reverse
from django.utils.html import format_html, format_html_join
from django.utils.module_loading import import_string
from django.utils.translation import gettext as _
from unfold.views import ChangeList

from memory import outbox, promotion, remember, sight, timeline
from memory.contracts import ProcedureVersionBody, parse, procedure_name
from memory.legible import Change, Piece, changes, compared, pieces
from memory.models import (
    Belief,
    Candidate,
    CandidateSaying,
    Episode,
    Evidence,
    Extraction,
    Fact,
    FactKey,
    OutboxEntry,
    Procedure,
    ProcedureVersion,
    Receipt,
    Subject,
)
from memory.outcomes import Denied
from policies import approvals, wording
from policies.admin import DRAFTERS
from policies.approvals import ANSWER_REASONS, Answer
from policies.detection import DETECTORS, Group
from policies.models import Consent
from policies.vocabulary import Basis, Sensitivity, SourceKind
from tenants.actors import Actor, MemberRole
from tenants.admin import (
    HistoryAdmin,
    MetadataAdmin,
    NewestFirst,
    PageAdmin,
    instant,
    link_to,
    one_of,
    standing,
    words,
    yes,
)
from tenants.errors import Forbidden, Missing, Problem
from tenants.identity import uuid_or_missing
from tenants.isolation import Role, assume
from tenants.models import Agent
from tenants.words import gettext_lazy, in_words, pgettext_lazy

_CLASSES = {int(each): each.label for each in Sensitivity}
_BASES = words(*(each.value for each in Basis))
_OUTCOMES = words("accept", "ask", "buffer", "reject")

_BY_CLASS = one_of("sensitivity", _CLASSES, "class")
_BY_BASIS = one_of("basis", _BASES)
_SUBJECT = link_to("memory_subject", "subject_id")
_KEY = link_to("memory_factkey", "key_id", "key")
_FACT = link_to("memory_fact", "fact_id")
_POLICY = link_to("policies_policyversion", "policy_version_id", gettext_lazy("policy version"))
_RULES = link_to("policies_attributeversion", "attribute_version_id", gettext_lazy("attribute version"))
_CONSENT = link_to("policies_consent", "consent_id")


def placeholder(what: str, sensitivity: int, *, ended: bool = False) -> str:
    """Return what stands where content would: what it is and of which class, or that it has ended."""
    label = in_words("ended") if ended else f"{in_words(what)}: {in_words(Sensitivity(sensitivity).label)}"
    return format_html('<span class="masked">‹{}›</span>', label)


@admin.display(description=gettext_lazy("class"))
def sensitivity_word(row: Any) -> str:
    """Return the class of a governed row as a badge."""
    label = Sensitivity(row.sensitivity).label
    return format_html('<span class="badge {}">{}</span>', label, in_words(label))


@admin.display(description=gettext_lazy("kept until"))
def kept_until(row: Any) -> str:
    """Return until when a governed row may be shown."""
    expires: datetime | None = row.expires_at
    if expires is None:
        return _("no end")
    return format_html(
        '<time class="instant" datetime="{}">{}</time>', expires.isoformat(), f"{expires:%Y-%m-%d %H:%M}"
    )


@admin.display(description=gettext_lazy("writer"))
def writer(row: Any) -> str:
    """Return who wrote a row, by kind and short id."""
    return f"{in_words(row.writer_kind)} {str(row.writer_id)[-8:]}"


def holding(row: Any) -> list[tuple[UUID, str]]:
    """Return the legal holds that keep a record, by id and their matter's reference."""
    found: list[tuple[UUID, str]] = import_string(settings.HOLDING)(row.tenant_id, row._meta.model_name, row.id)
    return found


class _Held(MetadataAdmin):
    """A record whose page says which holds keep it."""

    def changeform_view(
        self, request: HttpRequest, object_id: str | None = None, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        found = None
        if object_id is not None and request.method in ("GET", "HEAD"):
            found = self.get_object(request, object_id)
        told = {} if found is None else {"held_by": holding(found)}
        return super().changeform_view(request, object_id, form_url, {**told, **(extra_context or {})})


_SAID_SHOWN = 100
#: What the state of a stretch is called, and how its bar looks.
_STATES = {
    "now": (gettext_lazy("holds now"), "now"),
    "past": (pgettext_lazy("stretch", "held"), "past"),
    "later": (gettext_lazy("will hold"), "later"),
    "nothing": (gettext_lazy("nothing known to hold"), "end"),
    "redacted": (pgettext_lazy("code", "redacted"), "end"),
    "expired": (pgettext_lazy("code", "expired"), "end"),
    "consent_withdrawn": (gettext_lazy("consent withdrawn"), "end"),
    "erased": (pgettext_lazy("code", "erased"), "end"),
}


def _label(stretch: sight.Stretch) -> str:
    if stretch.sensitivity is None or _STATES[stretch.state][1] == "end":
        return _STATES[stretch.state][0]
    return _("‹value: %(level)s›") % {"level": in_words(Sensitivity(stretch.sensitivity).label)}


def _place_asked(request: HttpRequest, name: str) -> int:
    """Return after how many of a list to begin; 0 for what is no such number."""
    said = request.GET.get(name, "")
    return int(said) if re.fullmatch(r"[0-9]{1,6}", said, re.ASCII) else 0


def _instant_asked(request: HttpRequest, name: str) -> tuple[datetime | None, str]:
    """Return the instant of a query, as UTC where it names no zone, and what is wrong with it."""
    text = request.GET.get(name, "")
    if not text:
        return None, ""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None, _("That is no instant: write it as 2026-06-04 or 2026-06-04T10:00.")
    found = found.replace(tzinfo=UTC) if found.tzinfo is None else found
    if not _EARLIEST < found < _LATEST:
        return None, _("That instant is out of bounds.")
    return found, ""


_EARLIEST, _LATEST = datetime(1900, 1, 1, tzinfo=UTC), datetime(2200, 1, 1, tzinfo=UTC)


def _span(stretch: sight.Stretch, label: str, held: Collection[UUID]) -> timeline.Span:
    ends = stretch.expires_at if stretch.state in ("now", "past", "later") else None
    return timeline.Span(
        kept_until=ends,
        held=stretch.fact in held,
        recorded_at=stretch.recorded_at,
        lane=stretch.attribute,
        label=label,
        style=_STATES[stretch.state][1],
        valid_from=stretch.valid_from,
        valid_to=stretch.valid_to,
        link=reverse("admin:memory_belief_change", args=[stretch.belief]),
    )


def _redaction_of(request: HttpRequest, kind: str, row: str | None) -> Sequence[tuple[str, str, bool]]:
    """Offer whoever may propose it the page on which a record is redacted; it stands in a layer above."""
    if row is None or not standing(request).is_one_of(MemberRole.REVIEWER, MemberRole.PRIVACY_OFFICER):
        return ()
    where = reverse("admin:retention_redactionrequest_propose")
    return [(_("Redact"), f"{where}?kind={kind}&id={row}", True)]


_GOVERNED = (sensitivity_word, "basis", kept_until, "redaction_state", yes("restricted"))


@admin.register(Subject)
class SubjectAdmin(PageAdmin):
    """The entities that facts are about, by kind: their names are content."""

    list_display = ("__str__", "kind", "key_masked", yes("restricted"), instant("created_at"))
    list_filter = (
        one_of("restricted", {True: gettext_lazy("restricted"), False: gettext_lazy("not restricted")}, "processing"),
    )
    fields = ("id", "kind", "key_masked", yes("restricted"), instant("created_at"))

    #: What the page is made with; an app above adds to it.
    page_template = "admin/memory/subject.html"

    def held(self, tenant: UUID, facts: Collection[UUID]) -> Collection[UUID]:
        """Return which of these facts may not end. An app above knows."""
        return ()

    def beside(self, request: HttpRequest, subject: Any, facts: Collection[UUID]) -> dict[str, Any]:
        """Return what an app above shows beside."""
        return {}

    def page(self, request: HttpRequest, subject: Any) -> HttpResponse:
        """Show what held when about a subject, as a drawing and as a table of the same."""
        tenant = subject.tenant_id
        known_at, problem = _instant_asked(request, "known_at")
        first = _place_asked(request, "first")
        found = sight.stretches(tenant, subject.id, known_at=known_at, first=first)
        sums = sight.sums(tenant, subject.id, known_at=known_at)
        shown = [(stretch, _label(stretch), _STATES[stretch.state]) for stretch in found]
        facts = [each.fact for each in found if each.fact is not None]
        held = self.held(tenant, set(facts))
        spans = [_span(each, label, held) for each, label, _ in shown]
        happened = [
            timeline.Tick(*each) for each in sight.happened(tenant, subject.id, sorted({each.key for each in found}))
        ]
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": str(subject),
            "subject": subject,
            "held_by": holding(subject),
            "shown": shown,
            "sums": sums,
            "counted": sight.STRETCHES_COUNTED,
            "first": first,
            "last": first + len(found),
            "before": max(first - sight.SHOWN, 0) if first else None,
            "after": first + sight.SHOWN if first + sight.SHOWN < sums.stretches else None,
            "drawing": timeline.draw(spans, now=datetime.now(UTC), known_at=known_at, happened=happened),
            "redactions": any(each.kind == "redacted" for each in happened),
            "held": held,
            "known_at": known_at,
            "problem": problem,
            "figures": sight.figures(tenant, subject.id, facts),
            "facts": sums.facts,
            "current": sums.current,
            "consents": Consent.objects.filter(subject_id=subject.id).order_by("-id")[:20],
            "candidates": Candidate.objects.filter(subject_id=subject.id, state__in=("asked", "buffered"))
            .select_related("attribute")
            .order_by("-id")[:20],
            "episodes": Episode.objects.filter(subject_id=subject.id).order_by("-id")[:10],
            **self.beside(request, subject, set(facts)),
        }
        return TemplateResponse(request, self.page_template, context, status=400 if problem else 200)

    @admin.display(description=gettext_lazy("name"))
    def key_masked(self, subject: Subject) -> str:
        return format_html('<span class="masked">‹{}›</span>', _("name"))


@admin.register(Episode)
class EpisodeAdmin(_Held):
    """Raw input, without its text."""

    list_display = (
        *("__str__", "kind", "text_masked", _SUBJECT, sensitivity_word, kept_until, instant("recorded_at")),
        yes("quarantined"),
    )
    list_filter = (
        one_of("kind", words("message", "tool_result", "event")),
        _BY_CLASS,
        one_of("quarantined", {True: "quarantined", False: gettext_lazy("not quarantined")}),
    )
    fields: Sequence[Any] = (
        *("id", "kind", "role", "text_masked", _SUBJECT, "session_id", "turn_id", "tool_call_id", writer),
        *(instant("occurred_at"), instant("recorded_at"), _CONSENT, "extraction", _POLICY, *_GOVERNED),
        *("detected", "replaced", yes("quarantined")),
    )

    def acts(self, request: HttpRequest, row: str | None) -> Sequence[tuple[str, str, bool]]:
        return _redaction_of(request, "episode", row)

    @admin.display(description=gettext_lazy("text"))
    def text_masked(self, episode: Episode) -> str:
        return placeholder("text", episode.sensitivity, ended=episode.redaction_state == "applied")


@admin.register(Extraction)
class ExtractionAdmin(MetadataAdmin):
    """What became of drawing facts from episodes: how far, how often tried, and why not."""

    list_display = ("__str__", "state", "code", "attempts", _SUBJECT, instant("asked_at"), instant("finished_at"))
    list_filter = (one_of("state", words("pending", "done", "failed", "skipped")),)
    fields: Sequence[Any] = (
        *("id", link_to("memory_episode", "episode_id"), _SUBJECT, "state", "code", "attempts", "extractors"),
        *(instant("asked_at"), instant("finished_at")),
    )


@admin.register(FactKey)
class FactKeyAdmin(PageAdmin):
    """Questions that have one answer at a time."""

    list_display = ("__str__", _SUBJECT, "attribute_name", "act_no", instant("newest_at"))
    list_select_related = ("attribute",)
    fields: Sequence[Any] = (
        *("id", _SUBJECT, link_to("policies_attribute", "attribute_id"), "act_no", "checked_act_no"),
        *(instant("newest_at"), "chain_no"),
    )

    def page(self, request: HttpRequest, key: Any) -> HttpResponse:
        """Show everything that was said under a key, and every stretch that was ever believed."""
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": str(key),
            "key": key,
            "attribute": key.attribute,
            "evidence": Evidence.objects.filter(key_id=key.id).order_by("-valid_from", "-id")[:_SAID_SHOWN],
            "beliefs": Belief.objects.filter(key_id=key.id).order_by("-believed_from", "-valid_from")[:_SAID_SHOWN],
            "most": _SAID_SHOWN,
        }
        return TemplateResponse(request, "admin/memory/factkey.html", context)

    @admin.display(description=gettext_lazy("attribute"))
    def attribute_name(self, key: FactKey) -> str:
        name: str = key.attribute.name
        return name


class _Ends(admin.SimpleListFilter):
    """Facts that are kept no longer than that."""

    title = gettext_lazy("ends")
    parameter_name = "ends"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("day", _("within a day")), ("week", _("within 7 days"))]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        asked = self.value()
        if asked is None:
            return queryset
        if asked not in ("day", "week"):
            raise IncorrectLookupParameters
        now = datetime.now(UTC)
        until = now + timedelta(days=1 if asked == "day" else 7)
        return queryset.filter(ended_at=None, expires_at__gt=now, expires_at__lte=until)


@admin.register(Fact)
class FactAdmin(_Held):
    """Values, by their class."""

    list_display = (
        *(
            "__str__",
            "attribute_name",
            "value_masked",
            _SUBJECT,
            sensitivity_word,
            "basis",
            kept_until,
            yes("confirmed"),
        ),
        "evidence_count",
    )
    list_filter = (
        _BY_CLASS,
        _BY_BASIS,
        one_of("confirmed", {True: "confirmed", False: gettext_lazy("not confirmed")}),
        _Ends,
    )
    list_select_related = ("key__attribute",)
    fields: Sequence[Any] = (
        *("id", "attribute_name", "value_masked", _SUBJECT, _KEY, _RULES, _POLICY, yes("confirmed"), "confidence"),
        "evidence_count",
        *_GOVERNED,
        *(instant("review_at"), instant("ended_at"), "ended_by", instant("created_at"), "seen_by_whom"),
    )

    def acts(self, request: HttpRequest, row: str | None) -> Sequence[tuple[str, str, bool]]:
        found = _redaction_of(request, "fact", row)
        if row is None:
            return found
        return (*found, (_("How long it is kept"), reverse("admin:retention_lifetimechange_of", args=[row]), False))

    @admin.display(description=gettext_lazy("who saw it"))
    def seen_by_whom(self, fact: Fact) -> str:
        """Who read it, as the receipts tell: one look-up."""
        found = sight.readers(fact.tenant_id, fact.id)
        if not found:
            return _("nobody, as far as receipts tell")
        rows = format_html_join(
            "",
            '<li>{} <strong>{}</strong>: {} read{}, last <time class="instant" datetime="{}">{}</time></li>',
            (
                (each.kind, each.name or str(each.id)[-8:], each.reads, "" if each.reads == 1 else "s",
                 each.last.isoformat(), f"{each.last:%Y-%m-%d %H:%M:%S}")
                for each in found
            ),
        )  # fmt: skip
        receipts = f"{reverse('admin:memory_receipt_changelist')}?fact={fact.id}"
        return format_html('<ul>{}</ul><a href="{}">Receipts</a>', rows, receipts)

    @admin.display(description=gettext_lazy("attribute"))
    def attribute_name(self, fact: Fact) -> str:
        name: str = fact.key.attribute.name
        return name

    @admin.display(description=gettext_lazy("value"))
    def value_masked(self, fact: Fact) -> str:
        return placeholder(
            "value", fact.sensitivity, ended=fact.ended_at is not None or fact.redaction_state == "applied"
        )


@admin.register(Evidence)
class EvidenceAdmin(_Held):
    """Sayings, with their provenance and without their quotes."""

    list_display = (
        *("__str__", _FACT, "source", writer, sensitivity_word, instant("valid_from"), instant("recorded_at")),
        "standing",
    )
    list_filter = (one_of("source", words(*(each.value for each in SourceKind))), _BY_CLASS)
    fields: Sequence[Any] = (
        *(
            "id",
            _KEY,
            _FACT,
            yes("is_end", "ends"),
            instant("valid_from"),
            instant("stated_to"),
            instant("recorded_at"),
            "act_no",
        ),
        *("source", "quote_masked", link_to("memory_episode", "episode_id"), "turn_id", "tool_call_id", _CONSENT),
        *(writer, "trust", "rank", yes("confirmed"), "confidence", yes("imported"), "extractor", instant("written_at")),
        "detected",
        *(link_to("memory_evidence", "corrects_id"), _RULES, _POLICY, *_GOVERNED),
        *("standing", instant("retracted_at"), "retraction_reason"),
    )

    def acts(self, request: HttpRequest, row: str | None) -> Sequence[tuple[str, str, bool]]:
        return _redaction_of(request, "evidence", row)

    @admin.display(description=gettext_lazy("quote"))
    def quote_masked(self, evidence: Evidence) -> str:
        return "" if evidence.quote_id is None else placeholder("quote", evidence.sensitivity)

    @admin.display(description=gettext_lazy("standing"))
    def standing(self, evidence: Evidence) -> str:
        return _("stands") if evidence.retracted_at is None else _("taken back")


@admin.register(Belief)
class BeliefAdmin(MetadataAdmin):
    """What held when, as believed when."""

    list_display = (
        *("__str__", _FACT, instant("valid_from"), instant("valid_to"), instant("believed_from")),
        instant("believed_to"),
    )
    fields: Sequence[Any] = (
        *("id", _KEY, _FACT, link_to("memory_evidence", "evidence_id"), instant("valid_from"), instant("valid_to")),
        *(instant("believed_from"), instant("believed_to")),
    )


_SAYINGS_SHOWN = 20


@admin.register(Candidate)
class CandidateAdmin(PageAdmin):
    """Proposed sayings: what waits for a person, what waits to recur, what became of either.

    A reviewer sees what a decision is about by asking for it, which is audited, and decides through the door.
    """

    list_display = (
        *("__str__", "attribute_name", "value_masked", "act", "state", "reasons", sensitivity_word, "occurrences"),
        instant("created_at"),
    )
    list_filter = (
        one_of("state", words("asked", "buffered", "accepted", "promoted", "rejected", "expired")),
        _BY_CLASS,
    )
    list_select_related = ("attribute", "policy_version")

    def get_urls(self) -> list[Any]:
        return [
            path("<path:object_id>/show/", self.admin_site.admin_view(self.show_view), name="memory_candidate_show"),
            path(
                "<path:object_id>/decide/", self.admin_site.admin_view(self.decide_view), name="memory_candidate_decide"
            ),
            *super().get_urls(),
        ]

    def show_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Show a reviewer in clear what the decision is about, once the chain says so."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        self._require_reviewer(request)
        candidate = self.get_object(request, object_id)
        if candidate.state not in _WAITING:
            return self.page(request, candidate, problem=_("It was decided already."), status=409)
        with _as_writer(request) as actor:
            shown = sight.show(actor, candidate.id)
        return self.page(request, candidate, shown=shown, asked=True)

    def decide_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Confirm or reject with a reason, as the person who is signed in."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        self._require_reviewer(request)
        candidate = self.get_object(request, object_id)
        decision, reason = request.POST.get("decision", ""), request.POST.get("reason", "")
        if reason not in wording.DECIDING.get(decision, {}):
            return self.page(request, candidate, problem=_("A decision needs a reason that goes with it."), status=400)
        if not _may_decide(request, candidate):
            raise PermissionDenied
        if request.POST.get("occurrences") != str(candidate.occurrences):
            return self.page(request, candidate, problem=_("It changed since you looked. Look again."), status=409)
        try:
            with _as_writer(request) as actor:
                outcome = remember.decide_candidate(actor, candidate.id, accept=decision == "confirm", reason=reason)
        except Missing:
            raise Http404 from None
        if isinstance(outcome, Denied):
            told = _DENIED.get(outcome.code, _("Nothing was decided: %(code)s.") % {"code": outcome.code})
            return self.page(request, candidate, problem=told, status=outcome.status)
        messages.success(
            request,
            (_("%(candidate)s was confirmed.") if decision == "confirm" else _("%(candidate)s was rejected."))
            % {"candidate": candidate},
        )
        following = sight.next_waiting(candidate.tenant_id, candidate.id)
        if following is not None:
            return HttpResponseRedirect(reverse("admin:memory_candidate_change", args=[following]))
        return HttpResponseRedirect(f"{reverse('admin:memory_candidate_changelist')}?state=asked")

    def _require_reviewer(self, request: HttpRequest) -> None:
        if not standing(request).is_one_of(MemberRole.REVIEWER):
            raise PermissionDenied

    def page(
        self,
        request: HttpRequest,
        candidate: Candidate,
        *,
        shown: sight.Shown | None = None,
        asked: bool = False,
        problem: str = "",
        status: int = 200,
    ) -> HttpResponse:
        tenant = candidate.tenant_id
        sayings = list(
            CandidateSaying.objects.filter(candidate_id=candidate.id)
            .select_related("consent")
            .order_by("-id")[:_SAYINGS_SHOWN]
        )
        clear = {each.saying: each for each in shown.sources} if shown is not None else {}
        writers = dict(Agent.objects.filter(id__in={each.writer_id for each in sayings}).values_list("id", "name"))
        episodes = Episode.objects.in_bulk({each.episode_id for each in sayings if each.episode_id is not None})
        provenance = [
            _Said(
                saying,
                *_evidence(clear.get(saying.id)),
                Sensitivity(saying.sensitivity).label,
                writers.get(saying.writer_id, str(saying.writer_id)[-8:]),
                episodes.get(saying.episode_id),
            )
            for saying in sayings
        ]
        waits = candidate.state in _WAITING
        held = sight.held(tenant, candidate.id) if waits else None
        value = None if shown is None else shown.value
        former = None if shown is None else shown.held
        before, after = (
            compared(former, value)
            if former is not None and value is not None
            else (None if former is None else pieces(former), None if value is None else pieces(value))
        )
        name = ""
        if candidate.attribute_id is None and value is not None:
            said = json.loads(value)
            name = said["attribute"]
            after = pieces(said["value"] if isinstance(said["value"], str) else json.dumps(said["value"]))
        version = candidate.policy_version
        level = Sensitivity(candidate.sensitivity).label
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": str(candidate),
            "candidate": candidate,
            "held_by": holding(candidate),
            "level": level,
            "reasons": [wording.asked(reason) for reason in candidate.reasons],
            "provenance": provenance,
            "first": sayings[0] if sayings else None,
            "value": after,
            "named": name,
            "may_draft": standing(request).is_one_of(*DRAFTERS),
            "held": held,
            "held_level": "" if held is None else Sensitivity(held.sensitivity).label,
            "former": before,
            "readers": [] if held is None else sight.readers(tenant, held.fact),
            "policy": version,
            "lifetime": version.rules.get("lifetimes", {}).get(candidate.basis, {}).get(level, ""),
            "alike": Candidate.objects.filter(subject_id=candidate.subject_id, state="asked")
            .exclude(id=candidate.id)
            .select_related("attribute")
            .order_by("id")[:5],
            "following": sight.next_waiting(tenant, candidate.id) if waits else None,
            "asked": asked,
            "shown": shown,
            "problem": problem,
            "waits": waits,
            "reviewer": standing(request).is_one_of(MemberRole.REVIEWER),
            "may_decide": _may_decide(request, candidate),
            "too_high": candidate.sensitivity > Sensitivity.PERSONAL,
            "decisions": wording.DECIDING,
        }
        return TemplateResponse(request, "admin/memory/candidate.html", context, status=status)

    @admin.display(description=gettext_lazy("attribute"))
    def attribute_name(self, candidate: Candidate) -> str:
        return _("not defined") if candidate.attribute is None else candidate.attribute.name

    @admin.display(description=gettext_lazy("value"))
    def value_masked(self, candidate: Candidate) -> str:
        if candidate.payload_id is None:
            return ""
        return placeholder("value", candidate.sensitivity, ended=candidate.redaction_state == "applied")


_WAITING = ("asked", "buffered")
_DENIED = {
    "already_decided": gettext_lazy("It was decided already."),
    "attribute_retired": gettext_lazy(
        "The attribute has no version in force any more: nothing can be confirmed under it."
    ),
    "consent_withdrawn": gettext_lazy("The consent was withdrawn since: it cannot be confirmed."),
    "attribute_not_defined": gettext_lazy(
        "Nobody has put an attribute of that name in force yet. It can be confirmed once somebody has."
    ),
    "rejected": gettext_lazy(
        "The policy gives content of the class of that attribute no life on this basis: it can only be rejected."
    ),
    "changed_since": gettext_lazy("It changed since you looked. Look again."),
}


def _may_decide(request: HttpRequest, candidate: Candidate) -> bool:
    """Whether the reader is a reviewer, and holds the role that the policy names for this decision."""
    found = standing(request)
    named = candidate.confirm_by
    return found.is_one_of(MemberRole.REVIEWER) and (
        named not in list(MemberRole) or found.is_one_of(MemberRole(named))
    )


class _Said(NamedTuple):
    """A saying on the page of its candidate: its row, its text or its quote in clear, class, writer and episode."""

    row: CandidateSaying
    text: list[Piece] | None
    quote: list[Piece] | None
    level: str
    writer: str
    episode: Episode | None


def _evidence(source: sight.Quoted | None) -> tuple[list[Piece] | None, list[Piece] | None]:
    """Return the text with its quote marked, and the quote alone where there is no text to be shown."""
    if source is None:
        return None, None
    if source.text is not None:
        return pieces(source.text, source.quote or ""), None
    return None, None if source.quote is None else pieces(source.quote)


@contextmanager
def _as_writer(request: HttpRequest) -> Iterator[Actor]:
    """Take the write door's role for one act of the person who is signed in, and the page's role again after it."""
    found = standing(request)
    actor = found.actor
    assume(Role.WRITER, tenant=found.tenant, clearance=actor.clearance, actor=actor.id)
    yield actor
    assume(Role.STAFF, tenant=found.tenant, clearance=actor.clearance, actor=actor.id)


class _OfAFact(NewestFirst):
    """Receipts, and where a query names a fact, those that returned it."""

    fact: UUID | None = None

    def get_filters_params(self, params: Any = None) -> Any:
        asked = self.filter_params.pop("fact", None)
        if asked is not None:
            try:
                self.fact = uuid_or_missing(asked[-1])
            except Missing:
                raise IncorrectLookupParameters from None
        return super().get_filters_params(params)

    def get_queryset(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        found = super().get_queryset(request, *args, **kwargs)
        return found if self.fact is None else found.filter(fact_ids__contains=[self.fact])


@admin.register(Receipt)
class ReceiptAdmin(MetadataAdmin):
    """Who asked or wrote, when, about whom, and what was withheld."""

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return _OfAFact

    def lookup_allowed(self, lookup: str, value: Any, request: HttpRequest | None = None) -> bool:
        return lookup == "fact" or super().lookup_allowed(lookup, value, request)

    list_display = ("__str__", "act", "actor", instant("at"), "returned", "verdict", "sealed")
    list_filter = (one_of("verdict", _OUTCOMES),)
    fields: Sequence[Any] = (
        *("id", "act", "actor", instant("at"), instant("valid_at"), instant("known_at"), "subject_ids"),
        *("attribute_ids", "fact_ids", "withheld", "verdict", "reasons", _POLICY, "sealed"),
    )

    @admin.display(description=gettext_lazy("actor"))
    def actor(self, receipt: Receipt) -> str:
        return f"{in_words(receipt.actor_kind)} {str(receipt.actor_id)[-8:]}"

    @admin.display(description=gettext_lazy("facts"))
    def returned(self, receipt: Receipt) -> int:
        return len(receipt.fact_ids)

    @admin.display(description=gettext_lazy("sealed"))
    def sealed(self, receipt: Receipt) -> str:
        return (
            _("not yet")
            if receipt.sealed_seq is None
            else _("in entry %(sealed_seq)s") % {"sealed_seq": receipt.sealed_seq}
        )


@admin.register(OutboxEntry)
class OutboxEntryAdmin(MetadataAdmin):
    """Work that committed acts have left to do."""

    list_display = ("__str__", "topic", "state_word", "attempts", instant("due_at"), instant("done_at"), "failure")
    list_filter = (one_of("state", words("pending", "done", "failed")),)
    fields: Sequence[Any] = (
        *("id", "topic", "target_id", "state_word", "attempts", instant("due_at"), instant("created_at")),
        *(instant("done_at"), "failure"),
    )
    change_form_after_template = "admin/memory/retry.html"

    @admin.display(description=gettext_lazy("state"))
    def state_word(self, entry: OutboxEntry) -> str:
        look = {"failed": "bad", "pending": "warn", "done": "ok"}[entry.state]
        words = _("given up") if entry.state == "failed" else in_words(entry.state)
        return format_html('<span class="m-state {}">{}</span>', look, words)

    def get_urls(self) -> list[Any]:
        return [
            path(
                "<path:object_id>/retry/", self.admin_site.admin_view(self.retry_view), name="memory_outboxentry_retry"
            ),
            *super().get_urls(),
        ]

    def changeform_view(
        self, request: HttpRequest, object_id: str | None = None, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        """Show an entry, and to whoever may let it be tried again, the act."""
        may = standing(request).is_one_of(*_RETRIERS)
        return super().changeform_view(request, object_id, form_url, {"may_retry": may, **(extra_context or {})})

    def retry_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Let work that was given up be tried again."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        found = standing(request)
        if found.tenant is None or not found.is_one_of(*_RETRIERS):
            raise PermissionDenied
        entry = self.get_object(request, object_id)
        assume(Role.WORKER, tenant=found.tenant, actor=found.person)
        tried = outbox.retry(found.actor, entry.id)
        assume(Role.STAFF, tenant=found.tenant, clearance=found.actor.clearance, actor=found.person)
        if tried:
            messages.success(request, _("%(entry)s is tried again.") % {"entry": entry})
        else:
            messages.warning(request, _("%(entry)s was not given up: nothing was changed.") % {"entry": entry})
        return HttpResponseRedirect(reverse("admin:memory_outboxentry_change", args=[entry.id]))


_RETRIERS = (MemberRole.TENANT_ADMIN, MemberRole.PRIVACY_OFFICER)


# procedures -----------------------------------------------------------------------------------------------------------

#: Whoever may see what a procedure says, and propose another: every member who may see content at all.
_WORKS_ON_PROCEDURES = frozenset(MemberRole) - {MemberRole.AUDITOR}
_VERSION_STATES = words("draft", "proposed", "approved", "active", "retired", "refused")
_STATE_LOOKS = {
    "active": "active",
    "approved": "approved",
    "proposed": "pending",
    "draft": "draft",
    "refused": "refused",
}
_TOLD_OF_PROCEDURES = {
    "own_request": gettext_lazy("You proposed it: another approver decides."),
    "own_agent": gettext_lazy(
        "You registered the agent that proposes it, or were handed a key of it: another approver decides."
    ),
    "role_missing": gettext_lazy("Only an approver may do that."),
    "already_decided": gettext_lazy("It was decided already. Look at what became of it."),
    "changed_since_shown": gettext_lazy("It changed since you looked. Look again."),
    "request_expired": gettext_lazy("The time to decide is over. It has to be proposed anew."),
    "base_moved": gettext_lazy(
        "Another version became active since this was proposed: what you compare is not what would change."
    ),
    "test_not_passed": gettext_lazy("Its test did not pass, so it cannot be approved. Send it back, or refuse it."),
    "text_ended": gettext_lazy("Its text was redacted, or is about to be: nothing can be active without a text."),
    "rollback_gone": gettext_lazy("What it would give way to may no longer be kept. Deactivate it instead."),
    "not_approved": gettext_lazy("No approval of it stands that is not used up or over."),
    "not_active": gettext_lazy("It is not the active one any more."),
    "not_a_draft": gettext_lazy("It is proposed already, or decided."),
    "not_proposed": gettext_lazy("It waits for no decision."),
    "not_the_requester": gettext_lazy("Whoever proposed it takes it back."),
    "already_asked": gettext_lazy("It is proposed already."),
    "credential": gettext_lazy("It holds a password, a key or a token. Put a reference to your vault in its place."),
    "class_too_high": gettext_lazy("Nothing restricted becomes a procedure."),
    "scope_refused": gettext_lazy("There is no agent of that name."),
    "time_refused": gettext_lazy("Choose an instant that lies ahead, and before the approval ends."),
    "decision_refused": gettext_lazy("Choose a reason that goes with it."),
    "malformed": gettext_lazy("Something is missing, or not of its form"),
}
_ENDINGS = words(*promotion.ENDING_REASONS)
_ANSWERS = (
    ("approve", gettext_lazy("Approve"), "a", "main"),
    ("return", gettext_lazy("Send back"), "d", ""),
    ("refuse", gettext_lazy("Refuse"), "", "stop"),
)


def _told(problem: Problem) -> str:
    said = _TOLD_OF_PROCEDURES.get(problem.code, _("It was not done: %(code)s.") % {"code": problem.code})
    return said if said.endswith(".") else f"{said}: {', '.join(each.path for each in problem.errors)}."


def _for_whom(scope: str) -> str:
    kind, _colon, name = scope.partition(":")
    if kind == "purpose":
        return _("agents that act for the purpose %(name)s") % {"name": name}
    return _("the agent %(name)s") % {"name": name} if kind == "agent" else _("every agent of the tenant")


def _state_badge(version: ProcedureVersion) -> str:
    return format_html(
        '<span class="m-state {}">{}</span>', _STATE_LOOKS.get(version.state, ""), in_words(version.state)
    )


def _of_workers(site: Any, where: str, view: Any, name: str, methods: str = "POST") -> Any:
    """Return a route to an act on procedures, for members who work on them and by its methods alone."""
    allowed = methods.split()

    def routed(request: HttpRequest, **kwargs: Any) -> HttpResponse:
        if request.method not in allowed:
            return HttpResponseNotAllowed(allowed)
        found = standing(request)
        if found.tenant is None or not found.is_one_of(*_WORKS_ON_PROCEDURES):
            raise PermissionDenied
        answer: HttpResponse = view(request, **kwargs)
        return answer

    return path(where, site.admin_view(routed), name=name)


@admin.register(Procedure)
class ProcedureAdmin(PageAdmin):
    """How things are done, by name, and what is active of each."""

    list_display = ("name", "in_force", instant("created_at"))
    list_before_template = "admin/memory/above_procedures.html"

    def get_urls(self) -> list[Any]:
        site = self.admin_site
        return [
            _of_workers(site, "propose/", self.propose_view, "memory_procedure_propose", "GET POST"),
            *super().get_urls(),
        ]

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        may = standing(request).is_one_of(*_WORKS_ON_PROCEDURES)
        return super().changelist_view(request, {**(extra_context or {}), "may_propose": may})

    def get_queryset(self, request: HttpRequest) -> QuerySet[Procedure]:
        found: QuerySet[Procedure] = super().get_queryset(request)
        active = ProcedureVersion.objects.filter(procedure_id=OuterRef("id"), state="active").order_by("scope_rank")
        return found.annotate(active_for=ArraySubquery(active.values("scope")))

    @admin.display(description=gettext_lazy("active for"))
    def in_force(self, procedure: Procedure) -> str:
        return ", ".join(procedure.active_for) or "–"  # type: ignore[attr-defined]

    def page(self, request: HttpRequest, procedure: Any) -> HttpResponse:
        """Show a procedure's versions, those of each scope together."""
        versions = ProcedureVersion.objects.filter(procedure_id=procedure.id).order_by("scope_rank", "scope", "-number")
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": procedure.name,
            "procedure": procedure,
            "versions": [
                (each, _state_badge(each), _for_whom(each.scope), Sensitivity(each.sensitivity).label)
                for each in versions[:200]
            ],
            "may_propose": standing(request).is_one_of(*_WORKS_ON_PROCEDURES),
        }
        return TemplateResponse(request, "admin/memory/procedure.html", context)

    def propose_view(self, request: HttpRequest) -> HttpResponse:
        """Propose a version, as the member who is signed in."""
        typed = {name: request.POST.get(name, "") for name in _PROPOSAL}
        problem, status = "", 200
        if request.method == "POST":
            try:
                name = procedure_name(typed["name"].strip())
                body = parse(ProcedureVersionBody, _proposal(typed))
                # What fails takes the role back with what it did.
                with transaction.atomic(), _as_writer(request) as actor:
                    proposed = promotion.propose(actor, name, body, now=datetime.now(UTC))
            except Missing:
                problem, status = _("A name begins with a small letter, and has letters, digits, - and _."), 400
            except Problem as refused:
                problem, status = _told(refused), refused.status
            else:
                messages.success(request, _PROPOSED[proposed.outcome])
                return HttpResponseRedirect(reverse("admin:memory_procedureversion_change", args=[proposed.version]))
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": _("Propose a version"),
            "typed": typed if request.method == "POST" else {**typed, "name": request.GET.get("name", "")[:80]},
            "agents": Agent.objects.filter(state="active").order_by("name").values_list("name", flat=True)[:100],
            "problem": problem,
        }
        return TemplateResponse(request, "admin/memory/propose.html", context, status=status)


_PROPOSED = {
    "proposed": gettext_lazy("Proposed. Another member with the role approver decides."),
    "joined": gettext_lazy("The same text waits already."),
    "unchanged": gettext_lazy("That is active already: nothing was changed."),
}
_PROPOSAL = ("name", "scope", "body", "kind", "reference", "result", "cases", "passed")


def _proposal(typed: dict[str, str]) -> dict[str, Any]:
    """Return a form's fields as the body that the API takes, so that both are refused alike."""
    test: dict[str, Any] = {name: typed[name] for name in ("kind", "reference", "result") if typed[name]}
    for name in ("cases", "passed"):
        if typed[name]:
            digits = typed[name].isascii() and typed[name].isdigit() and len(typed[name]) < 9
            test[name] = int(typed[name]) if digits else typed[name]
    # A form sends line ends as two characters; what is proposed has those that were typed.
    text = typed["body"].replace("\r\n", "\n")
    return {"body": text, "scope": typed["scope"].strip() or "tenant", "test": test}


@admin.register(ProcedureVersion)
class ProcedureVersionAdmin(HistoryAdmin, PageAdmin):
    """Versions of procedures: proposed by one, approved by another, taken back by one."""

    seen_by = frozenset(MemberRole)
    list_display = (
        *("__str__", "procedure_name", "number", "scope", "state_word", sensitivity_word, "proposer"),
        *(instant("created_at"), instant("activated_at")),
    )
    list_filter = (one_of("state", _VERSION_STATES), _BY_CLASS)
    list_select_related = ("procedure",)
    fields: Sequence[Any] = (
        *("id", "procedure", "number", "scope", "state", "sensitivity", "test_kind", "test_reference", "test_result"),
        *("proposed_by_kind", "proposed_by", instant("created_at"), instant("activate_at"), "scheduled_by"),
        *(instant("activated_at"), "activated_by", instant("retired_at"), "retired_by", "retired_because"),
    )

    def get_urls(self) -> list[Any]:
        acts = {
            "show": self.show_view,
            "decide": self.decide_view,
            "activate": self.activate_view,
            "schedule": self.schedule_view,
            "end": self.end_view,
            "take_back": self.take_back_view,
            "again": self.again_view,
        }
        return [
            *(
                _of_workers(self.admin_site, f"<path:object_id>/{name}/", view, f"memory_procedureversion_{name}")
                for name, view in acts.items()
            ),
            *super().get_urls(),
        ]

    @admin.display(description=gettext_lazy("procedure"))
    def procedure_name(self, version: ProcedureVersion) -> str:
        name: str = version.procedure.name
        return name

    @admin.display(description=gettext_lazy("state"))
    def state_word(self, version: ProcedureVersion) -> str:
        return _state_badge(version)

    @admin.display(description=gettext_lazy("proposed by"))
    def proposer(self, version: ProcedureVersion) -> str:
        return f"{in_words(version.proposed_by_kind)} {str(version.proposed_by)[-8:]}"

    def show_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Show in clear what a version says and what it would change, once the chain says so."""
        version = self.get_object(request, object_id)
        with _as_writer(request) as actor:
            shown = promotion.show(actor, version.id)
        return self.page(request, version, shown=shown)

    def decide_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Approve, send back or refuse; an approval may make it active at once."""
        version = self.get_object(request, object_id)
        actor, now, shown = standing(request).actor, datetime.now(UTC), _bound(request)
        try:
            answer = Answer(request.POST.get("answer", ""))
        except ValueError:
            return self.page(request, version, problem=_("A decision says yes, no, or not like this."), status=400)

        def decided() -> str:
            promotion.decide(actor, version.id, answer, shown=shown, reason=request.POST.get("reason", ""), now=now)
            if answer is not Answer.APPROVE:
                return _("Sent back. It is a draft again.") if answer is Answer.RETURN else _("Refused.")
            if request.POST.get("when") != "now":
                return _("Approved. It is not active yet: make it so, or set a time.")
            promotion.activate(actor, version.id, shown=shown, now=now)
            return _("Approved. Version %(version)s is active for %(scope)s.") % {
                "version": version.number,
                "scope": _for_whom(version.scope),
            }

        return self._acted(request, version, decided)

    def activate_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Make an approved version the active one."""
        version = self.get_object(request, object_id)

        def acted() -> str:
            promotion.activate(standing(request).actor, version.id, shown=_bound(request), now=datetime.now(UTC))
            return _("Version %(version)s is active for %(scope)s.") % {
                "version": version.number,
                "scope": _for_whom(version.scope),
            }

        return self._acted(request, version, acted)

    def schedule_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Set a time at which an approved version becomes active, in UTC; an empty one takes it away."""
        version = self.get_object(request, object_id)
        text, at = request.POST.get("at", ""), None
        if text:
            try:
                at = datetime.fromisoformat(text)
            except ValueError:
                return self.page(request, version, problem=_TOLD_OF_PROCEDURES["time_refused"], status=400)
            at = at.replace(tzinfo=UTC) if at.tzinfo is None else at
            if not _EARLIEST < at < _LATEST:
                return self.page(request, version, problem=_TOLD_OF_PROCEDURES["time_refused"], status=400)

        def acted() -> str:
            actor, now = standing(request).actor, datetime.now(UTC)
            promotion.activate_at(actor, version.id, at, shown=_bound(request), now=now)
            if at is None:
                return _("No time is set any more. It stays approved.")
            return _("It becomes active at %(at)s UTC, if everything still holds then.") % {
                "at": format(at, "%Y-%m-%d %H:%M")
            }

        return self._acted(request, version, acted)

    def end_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Roll an active version back, or deactivate it."""
        version = self.get_object(request, object_id)
        act = {"roll_back": promotion.roll_back, "deactivate": promotion.deactivate}.get(request.POST.get("act", ""))
        if act is None:
            return self.page(request, version, problem=_("Roll back, or deactivate."), status=400)

        def acted() -> str:
            actor, now = standing(request).actor, datetime.now(UTC)
            left = act(actor, version.id, shown=_bound(request), reason=request.POST.get("reason", ""), now=now)
            if left.id == version.id:
                return _("Version %(version)s is no longer active. Nothing is, for %(scope)s.") % {
                    "version": version.number,
                    "scope": _for_whom(version.scope),
                }
            return _("Rolled back. Version %(version)s is active again for %(scope)s.") % {
                "version": left.number,
                "scope": _for_whom(left.scope),
            }

        return self._acted(request, version, acted)

    def take_back_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Take back one's own proposal, or let one go whose time is over."""
        version = self.get_object(request, object_id)

        def acted() -> str:
            promotion.take_back(standing(request).actor, version.id, now=datetime.now(UTC))
            return _("Taken back. It is a draft again.")

        return self._acted(request, version, acted)

    def again_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Propose a draft again."""
        version = self.get_object(request, object_id)

        def acted() -> str:
            actor, now = standing(request).actor, datetime.now(UTC)
            promotion.propose_again(actor, version.id, reason="correction", now=now)
            return _("Proposed. Another member with the role approver decides.")

        return self._acted(request, version, acted)

    def _acted(self, request: HttpRequest, version: ProcedureVersion, act: Callable[[], str]) -> HttpResponse:
        try:
            with transaction.atomic():
                told = act()
        except (Missing, Forbidden) as refused:
            if isinstance(refused, Forbidden):
                raise PermissionDenied from None
            raise Http404 from None
        except Problem as problem:
            again = self.get_object(request, str(version.id))
            return self.page(request, again, problem=_told(problem), status=problem.status)
        messages.success(request, told)
        return HttpResponseRedirect(reverse("admin:memory_procedureversion_change", args=[version.id]))

    def page(
        self,
        request: HttpRequest,
        version: ProcedureVersion,
        *,
        shown: promotion.ShownProcedure | None = None,
        problem: str = "",
        status: int = 200,
    ) -> HttpResponse:
        """Show a version with all that a decision on it needs; its text only where it was asked for."""
        found, now = standing(request), datetime.now(UTC)
        about = promotion.about(version, now=now)
        told: list[Change] = []
        if shown is not None and shown.body is not None:
            told = [Change("kept", pieces(shown.body, around=len(shown.body)))]
            if version.base_id is not None:
                told = changes(shown.base or "", shown.body)
        waits = version.state == "proposed" and about.stands
        decision = about.decision
        approver = approvals.holds_role(found.actor, MemberRole.APPROVER)
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": _("%(name)s, version %(version)s") % {"name": version.procedure.name, "version": version.number},
            "version": version,
            "badge": _state_badge(version),
            "level": Sensitivity(version.sensitivity).label,
            "whom": _for_whom(version.scope),
            "about": about,
            "named": about.names,
            "proposer": about.names.get(version.proposed_by, "somebody"),
            "activator": about.names.get(version.activated_by, "somebody"),
            "retirer": about.names.get(version.retired_by, "somebody"),
            "scheduler": about.names.get(version.scheduled_by, "somebody"),
            "decider": "" if decision is None else about.names.get(decision.decided_by, "somebody"),
            "decided": "" if decision is None else f"{decision.verdict}, {decision.reason.replace('_', ' ')}",
            "retired_because": in_words((version.retired_because or "").replace("_", " ")),
            "marks": [in_words(each.replace("_", " ")) for each in version.detected if DETECTORS.get(each) is Group.HIDDEN],
            "speaks": [each for each in version.detected if DETECTORS.get(each) is Group.INSTRUCTION],
            "shown": shown,
            "told": told,
            "added": sum(each.kind == "new" for each in told),
            "removed": sum(each.kind == "gone" for each in told),
            "may_see": found.is_one_of(*_WORKS_ON_PROCEDURES),
            "waits": waits,
            "lapsed": version.state in ("proposed", "approved") and not about.stands,
            "mine": version.proposed_by == found.actor.id,
            "may_decide": waits and about.question is not None
            and approvals.may_decide(found.actor, about.question, now=now),
            "approver": approver,
            "answers": [(*each, words(*ANSWER_REASONS[Answer(each[0])])) for each in _ANSWERS],
            "endings": _ENDINGS,
            "digest": bytes(version.digest).hex(),
            "problem": problem,
        }  # fmt: skip
        return TemplateResponse(request, "admin/memory/procedureversion.html", context, status=status)


def _bound(request: HttpRequest) -> bytes:
    """Return the digest that stood on the page; what is none equals none."""
    try:
        return bytes.fromhex(request.POST.get("shown", ""))
    except ValueError:
        return b""
