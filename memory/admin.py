"""What is known, as metadata: subjects, episodes, facts, evidence, beliefs, candidates, receipts and work.

The staff role may not read payloads: where content would stand, its class stands. Only the page of a candidate opens
content, through `memory.sight.show`, for the reviewer who asks.
"""

import json
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from django.conf import settings
from django.contrib import admin, messages
from django.contrib.admin.options import IncorrectLookupParameters
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import path, reverse
from django.utils.html import format_html, format_html_join
from django.utils.module_loading import import_string
from unfold.views import ChangeList

from memory import outbox, remember, sight, timeline
from memory.legible import Piece, compared, pieces
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
    Receipt,
    Subject,
)
from memory.outcomes import Denied
from policies import wording
from policies.admin import DRAFTERS
from policies.models import Consent
from policies.vocabulary import Basis, Sensitivity, SourceKind
from tenants.actors import Actor, MemberRole
from tenants.admin import (
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
from tenants.errors import Missing
from tenants.identity import uuid_or_missing
from tenants.isolation import Role, assume
from tenants.models import Agent

_CLASSES = {int(each): each.label for each in Sensitivity}
_BASES = words(*(each.value for each in Basis))
_OUTCOMES = words("accept", "ask", "buffer", "reject")

_BY_CLASS = one_of("sensitivity", _CLASSES, "class")
_BY_BASIS = one_of("basis", _BASES)
_SUBJECT = link_to("memory_subject", "subject_id")
_KEY = link_to("memory_factkey", "key_id", "key")
_FACT = link_to("memory_fact", "fact_id")
_POLICY = link_to("policies_policyversion", "policy_version_id", "policy version")
_RULES = link_to("policies_attributeversion", "attribute_version_id", "attribute version")
_CONSENT = link_to("policies_consent", "consent_id")


def placeholder(what: str, sensitivity: int, *, ended: bool = False) -> str:
    """Return what stands where content would: what it is and of which class, or that it has ended."""
    label = "ended" if ended else f"{what}: {Sensitivity(sensitivity).label}"
    return format_html('<span class="masked">‹{}›</span>', label)


@admin.display(description="class")
def sensitivity_word(row: Any) -> str:
    """Return the class of a governed row as a badge."""
    label = Sensitivity(row.sensitivity).label
    return format_html('<span class="badge {}">{}</span>', label, label)


@admin.display(description="kept until")
def kept_until(row: Any) -> str:
    """Return until when a governed row may be shown."""
    expires: datetime | None = row.expires_at
    if expires is None:
        return "no end"
    return format_html(
        '<time class="instant" datetime="{}">{}</time>', expires.isoformat(), f"{expires:%Y-%m-%d %H:%M}"
    )


@admin.display(description="writer")
def writer(row: Any) -> str:
    """Return who wrote a row, by kind and short id."""
    return f"{row.writer_kind} {str(row.writer_id)[-8:]}"


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
    "now": ("holds now", "now"),
    "past": ("held", "past"),
    "later": ("will hold", "later"),
    "nothing": ("nothing known to hold", "end"),
    "redacted": ("redacted", "end"),
    "expired": ("expired", "end"),
    "consent_withdrawn": ("consent withdrawn", "end"),
    "erased": ("erased", "end"),
}


def _label(stretch: sight.Stretch) -> str:
    if stretch.sensitivity is None or _STATES[stretch.state][1] == "end":
        return _STATES[stretch.state][0]
    return f"‹value: {Sensitivity(stretch.sensitivity).label}›"


def _instant_asked(request: HttpRequest, name: str) -> tuple[datetime | None, str]:
    """Return the instant of a query, as UTC where it names no zone, and what is wrong with it."""
    text = request.GET.get(name, "")
    if not text:
        return None, ""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None, "That is no instant: write it as 2026-06-04 or 2026-06-04T10:00."
    found = found.replace(tzinfo=UTC) if found.tzinfo is None else found
    if not _EARLIEST < found < _LATEST:
        return None, "That instant is out of bounds."
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
    return [("Redact", f"{where}?kind={kind}&id={row}", True)]


_GOVERNED = (sensitivity_word, "basis", kept_until, "redaction_state", yes("restricted"))


@admin.register(Subject)
class SubjectAdmin(PageAdmin):
    """The entities that facts are about, by kind: their names are content."""

    list_display = ("__str__", "kind", "key_masked", yes("restricted"), instant("created_at"))
    list_filter = (one_of("restricted", {True: "restricted", False: "not restricted"}, "processing"),)
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
        found = sight.stretches(tenant, subject.id, known_at=known_at)
        more, found = len(found) > sight.SHOWN, found[: sight.SHOWN]
        shown = [(stretch, _label(stretch), _STATES[stretch.state]) for stretch in found]
        facts = [each.fact for each in found if each.fact is not None]
        held = self.held(tenant, set(facts))
        spans = [_span(each, label, held) for each, label, _ in shown]
        happened = [timeline.Tick(*each) for each in sight.happened(tenant, subject.id)]
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": str(subject),
            "subject": subject,
            "held_by": holding(subject),
            "shown": shown,
            "more": more,
            "drawing": timeline.draw(spans, now=datetime.now(UTC), known_at=known_at, happened=happened),
            "redactions": any(each.kind == "redacted" for each in happened),
            "held": held,
            "known_at": known_at,
            "problem": problem,
            "figures": sight.figures(tenant, subject.id, facts),
            "facts": len(set(facts)),
            "current": sum(each.state == "now" for each in found),
            "consents": Consent.objects.filter(subject_id=subject.id).order_by("-id")[:20],
            "candidates": Candidate.objects.filter(subject_id=subject.id, state__in=("asked", "buffered"))
            .select_related("attribute")
            .order_by("-id")[:20],
            "episodes": Episode.objects.filter(subject_id=subject.id).order_by("-id")[:10],
            **self.beside(request, subject, set(facts)),
        }
        return TemplateResponse(request, self.page_template, context, status=400 if problem else 200)

    @admin.display(description="name")
    def key_masked(self, subject: Subject) -> str:
        return format_html('<span class="masked">‹{}›</span>', "name")


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
        one_of("quarantined", {True: "quarantined", False: "not quarantined"}),
    )
    fields: Sequence[Any] = (
        *("id", "kind", "role", "text_masked", _SUBJECT, "session_id", "turn_id", "tool_call_id", writer),
        *(instant("occurred_at"), instant("recorded_at"), _CONSENT, "extraction", _POLICY, *_GOVERNED),
        *("detected", "replaced", yes("quarantined")),
    )

    def acts(self, request: HttpRequest, row: str | None) -> Sequence[tuple[str, str, bool]]:
        return _redaction_of(request, "episode", row)

    @admin.display(description="text")
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

    @admin.display(description="attribute")
    def attribute_name(self, key: FactKey) -> str:
        name: str = key.attribute.name
        return name


class _Ends(admin.SimpleListFilter):
    """Facts that are kept no longer than that."""

    title = "ends"
    parameter_name = "ends"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("day", "within a day"), ("week", "within 7 days")]

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
    list_filter = (_BY_CLASS, _BY_BASIS, one_of("confirmed", {True: "confirmed", False: "not confirmed"}), _Ends)
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
        return (*found, ("How long it is kept", reverse("admin:retention_lifetimechange_of", args=[row]), False))

    @admin.display(description="who saw it")
    def seen_by_whom(self, fact: Fact) -> str:
        """Who read it, as the receipts tell: one look-up."""
        found = sight.readers(fact.tenant_id, fact.id)
        if not found:
            return "nobody, as far as receipts tell"
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

    @admin.display(description="attribute")
    def attribute_name(self, fact: Fact) -> str:
        name: str = fact.key.attribute.name
        return name

    @admin.display(description="value")
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

    @admin.display(description="quote")
    def quote_masked(self, evidence: Evidence) -> str:
        return "" if evidence.quote_id is None else placeholder("quote", evidence.sensitivity)

    @admin.display(description="standing")
    def standing(self, evidence: Evidence) -> str:
        return "stands" if evidence.retracted_at is None else "taken back"


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
            return self.page(request, candidate, problem="It was decided already.", status=409)
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
            return self.page(request, candidate, problem="A decision needs a reason that goes with it.", status=400)
        if not _may_decide(request, candidate):
            raise PermissionDenied
        if request.POST.get("occurrences") != str(candidate.occurrences):
            return self.page(request, candidate, problem="It changed since you looked. Look again.", status=409)
        try:
            with _as_writer(request) as actor:
                outcome = remember.decide_candidate(actor, candidate.id, accept=decision == "confirm", reason=reason)
        except Missing:
            raise Http404 from None
        if isinstance(outcome, Denied):
            told = _DENIED.get(outcome.code, f"Nothing was decided: {outcome.code}.")
            return self.page(request, candidate, problem=told, status=outcome.status)
        messages.success(request, f"{candidate} was {'confirmed' if decision == 'confirm' else 'rejected'}.")
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

    @admin.display(description="attribute")
    def attribute_name(self, candidate: Candidate) -> str:
        return "not defined" if candidate.attribute is None else candidate.attribute.name

    @admin.display(description="value")
    def value_masked(self, candidate: Candidate) -> str:
        if candidate.payload_id is None:
            return ""
        return placeholder("value", candidate.sensitivity, ended=candidate.redaction_state == "applied")


_WAITING = ("asked", "buffered")
_DENIED = {
    "already_decided": "It was decided already.",
    "attribute_retired": "The attribute has no version in force any more: nothing can be confirmed under it.",
    "consent_withdrawn": "The consent was withdrawn since: it cannot be confirmed.",
    "attribute_not_defined": "Nobody has put an attribute of that name in force yet. It can be confirmed once somebody has.",
    "rejected": "The policy gives content of the class of that attribute no life on this basis: it can only be rejected.",
    "changed_since": "It changed since you looked. Look again.",
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

    @admin.display(description="actor")
    def actor(self, receipt: Receipt) -> str:
        return f"{receipt.actor_kind} {str(receipt.actor_id)[-8:]}"

    @admin.display(description="facts")
    def returned(self, receipt: Receipt) -> int:
        return len(receipt.fact_ids)

    @admin.display(description="sealed")
    def sealed(self, receipt: Receipt) -> str:
        return "not yet" if receipt.sealed_seq is None else f"in entry {receipt.sealed_seq}"


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

    @admin.display(description="state")
    def state_word(self, entry: OutboxEntry) -> str:
        look = {"failed": "bad", "pending": "warn", "done": "ok"}[entry.state]
        words = "given up" if entry.state == "failed" else entry.state
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
            messages.success(request, f"{entry} is tried again.")
        else:
            messages.warning(request, f"{entry} was not given up: nothing was changed.")
        return HttpResponseRedirect(reverse("admin:memory_outboxentry_change", args=[entry.id]))


_RETRIERS = (MemberRole.TENANT_ADMIN, MemberRole.PRIVACY_OFFICER)
