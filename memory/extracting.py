"""Drawing facts from stored episodes: at once, in the background, or again where it failed.

An extractor proposes; it chooses neither tenant, nor source, nor class, nor life of what it proposes. Each proposal is
checked against the episode, the attributes and what this product itself has served, and what is left goes through the
door of every write. An episode is drawn from once.
"""

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from pydantic import ValidationError

from memory import admission, drawing, recall, remember, rows
from memory.contracts import DrawnBody, EpisodeBody, Provenance
from memory.drawing import Drawn, Source
from memory.extraction import served
from memory.extraction.checks import check
from memory.extraction.model import Configuration, ModelExtractor
from memory.extraction.patterns import PatternExtractor
from memory.extraction.protocol import (
    AttributeSlice,
    EpisodeText,
    ExtractionFailed,
    Extractor,
    Proposal,
    Stored,
    Turn,
)
from memory.extraction.structured import StructuredExtractor
from memory.outbox import GivenUp, Retry, Settled
from memory.outcomes import Denied, EpisodeKept, Repeat
from memory.spending import EpisodeMeter, lower
from memory.writing import Writing
from policies.catalogue import AttributeInForce, Catalogue, catalogue
from policies.detection.hostile import instructions
from policies.detection.reading import Reading
from policies.rules import PolicyDocument
from policies.values import canonical_text
from policies.vocabulary import Kind, Sensitivity, SourceKind
from tenants.actors import Actor
from tenants.errors import Forbidden, Missing
from tenants.identity import first_id
from tenants.isolation import Role, tenant_transaction

_log = logging.getLogger("muniment.extraction")

#: How often the background tries an episode before it gives up.
ATTEMPTS = 5
#: The largest slice of attributes that one episode is held against, by name.
MOST_ATTRIBUTES = 500
#: Turns before the episode that explain it, among so many of the session's episodes.
_MOST_BEFORE, _LOOKED_AT = 6, 12
#: How long what was served to an agent counts as the source of the same value in a tool's answer to that agent.
ECHO = timedelta(hours=1)

_PATTERNS = PatternExtractor()
_STRUCTURED = StructuredExtractor()


def extractors_for(source: Source, text: EpisodeText, policy: PolicyDocument) -> tuple[Extractor, ...]:
    """Return who reads such an episode, in the order of precedence: of two who say the same, the first is named.

    A model reads what people write, where the operator has set one up and the policy lets it see the episode. What it may
    not see, patterns read, as where there is none; and so they do with what speaks to the agent. JSON is read by paths.
    """
    if text.kind != "message" and text.content.lstrip()[:1] in ("{", "["):
        return (_STRUCTURED,)
    model = None if source.quarantined else _model(source, policy)
    if model is not None and model.may_read(text):
        return (model,)
    return (_PATTERNS,) if text.kind == "message" else (_STRUCTURED,)


def _model(source: Source, policy: PolicyDocument) -> ModelExtractor | None:
    configuration: Configuration | None = settings.MODEL_EXTRACTOR
    allowed = policy.model
    if configuration is None or allowed is None:
        return None
    meter = EpisodeMeter(
        source.writer,
        source.id,
        model=configuration.named.label,
        ceiling=allowed.up_to,
        per_day=lower(configuration.tokens_per_day, allowed.tokens_per_day),
        per_month=lower(configuration.tokens_per_month, allowed.tokens_per_month),
    )
    return ModelExtractor(configuration, meter, ceiling=allowed.up_to, more=admission.names_finder())


# the doors ------------------------------------------------------------------------------------------------------------


def keep(actor: Actor, body: EpisodeBody, *, repeat: Repeat | None = None) -> EpisodeKept | Denied:
    """Keep an episode, in the caller's transaction, and draw from it at once where that is wanted and needs no network.

    What an extractor that calls out is wanted for at once is left pending: see `unfinished`, and `draw`.
    """
    return remember.episode(actor, body, repeat=repeat, draw=_draw if body.extract == "now" else None)


def unfinished(body: EpisodeBody, kept: EpisodeKept) -> bool:
    """Whether an episode that was to be drawn from at once still is to be, now that it is kept."""
    if body.extract != "now" or kept.again:
        return False
    return kept.repeated or (kept.extraction == "pending" and kept.code is None)


def ask(actor: Actor, episode: UUID) -> bool:
    """Let an episode be drawn from again where that failed or waits, or for the first time where nothing was asked.

    In the caller's transaction, under the writer's role; then call `draw`. False where there is nothing to do: it is
    drawn from already, or nothing in it can be. Raises `Missing` for what the actor cannot see, and
    `Forbidden("not_the_writer")` where nothing was asked by its writer and the actor is another.
    """
    state = drawing.hold(actor.tenant, episode)
    source = drawing.load(actor.tenant, episode, writer=actor)
    if source is None or source.ended is not None or source.sensitivity > actor.clearance:
        raise Missing
    if state is not None and state.state in ("done", "skipped"):
        return False
    if source.writer.id != actor.id and state is None:
        raise Forbidden("not_the_writer")
    silent = drawing.silence(source.kind, source.role, source.subject)
    if silent is not None:
        remember.extraction_ended(source, silent, attempts=0)
        return False
    remember.ask_extraction(actor, source)
    return True


def draw(tenant: UUID, episode: UUID) -> None:
    """Draw from an episode that waits for it, now. A failure is recorded and left to the background; none is raised.

    Opens its own transactions; none is open while an extractor calls out.
    """
    work(tenant, episode)


def work(tenant: UUID, episode: UUID) -> Settled | GivenUp | Retry:
    """Draw from an episode that waits for it: the work of the topic `episode.extract`. Harmless to repeat."""
    try:
        _run(tenant, episode)
    except ExtractionFailed as failed:
        return _failed(tenant, episode, failed.code, final=failed.final, wait=failed.wait)
    except Exception as error:
        # By its type only: the text of an error may hold what was read.
        _log.error("drawing from an episode failed", extra={"code": type(error).__name__})
        return _failed(tenant, episode, "unexpected", final=False)
    return Settled.DONE


def _run(tenant: UUID, episode: UUID) -> None:
    with _writing(tenant):
        held = _held(tenant, episode)
        if held is None:
            return
        source, attempts = held
        if source.ended is not None:
            remember.extraction_ended(source, source.ended, attempts=attempts)
            return
        in_force = catalogue(tenant)
        view = _view(source, in_force)
        extractors = extractors_for(source, view.text, in_force.policy)
        if not any(each.remote for each in extractors):
            remember.extraction(source, _drawn(view, extractors), attempts=attempts)
            return
    proposed = _proposed(view, extractors)
    with _writing(tenant):
        held = _held(tenant, episode)
        if held is not None:
            remember.extraction(held[0], _chosen(view, extractors, proposed), attempts=held[1])


def _held(tenant: UUID, episode: UUID) -> tuple[Source, int] | None:
    """Hold an episode's row and return it as a source, with the number of this attempt; None where it waits no more."""
    state = drawing.hold(tenant, episode)
    if state is None or state.state != "pending":
        return None
    source = drawing.load(tenant, episode)
    return None if source is None else (source, state.attempts + 1)


def _failed(
    tenant: UUID, episode: UUID, code: str, *, final: bool, wait: timedelta | None = None
) -> Settled | GivenUp | Retry:
    """Record a failure, to be tried again where that is worth it, after `wait` where that is known."""
    with _writing(tenant):
        held = _held(tenant, episode)
        if held is None:
            return Settled.DONE
        source, attempts = held
        if code == "budget_spent":
            # Nothing was tried: it waits for another day, however often it is looked at before.
            attempts -= 1
        final = final or attempts >= ATTEMPTS
        remember.extraction_failed(source, code, attempts=attempts, final=final)
    return GivenUp(code) if final else Retry(code, wait)


def _writing(tenant: UUID) -> Any:
    return tenant_transaction(Role.WRITER, tenant=tenant)


# what an extractor is given -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _View:
    """An episode as extractors see it: without what this product served, with the attributes in play."""

    source: Source
    text: EpisodeText = field(repr=False)
    slices: Sequence[AttributeSlice] = field(repr=False)
    #: The attributes by name; the facts that hold now, by attribute and canonical value.
    attributes: dict[str, AttributeInForce]
    held: dict[tuple[str, str], UUID] = field(repr=False)
    #: The episode is kept in this very transaction.
    new: bool = False
    #: Why there is nothing to read.
    code: str | None = None


_CONTENT = rows.look_up("sk", "tenants_subjectkey", "x.id = p.key_id", outer=True)
# What holds now of the subject, as far as the episode's writer may see it.
_HELD = f"""
SELECT k.attribute_id, b.valid_from, f.id, f.sensitivity, p.id, p.clear, p.sealed, sk.wrapped, sk.version
FROM (SELECT %s::uuid AS tenant) t {rows.look_up("k", "memory_factkey", "x.subject_id = %s::uuid")} {
    rows.look_up(
        "b",
        "memory_belief",
        "x.key_id = k.id AND x.believed_to IS NULL AND x.valid_from <= clock_timestamp()"
        " AND coalesce(x.valid_to, 'infinity'::timestamptz) > clock_timestamp()",
    )
} {
    rows.look_up(
        "f",
        "memory_fact",
        "x.id = b.fact_id AND x.ended_at IS NULL AND x.redaction_state = 'none' AND NOT x.restricted"
        " AND x.sensitivity <= %s AND (x.expires_at IS NULL OR x.expires_at > clock_timestamp())",
    )
} {rows.look_up("p", "memory_payload", "x.id = f.payload_id")} {_CONTENT}
WHERE f.consent_ids IS NULL OR consent_stands(f.consent_ids)
ORDER BY k.id, b.valid_from LIMIT 1000
"""
_BEFORE = f"""
SELECT e.role, e.occurred_at, p.id, p.clear, p.sealed, sk.wrapped, sk.version
FROM (SELECT %(tenant)s::uuid AS tenant) t
  CROSS JOIN LATERAL (SELECT * FROM memory_episode y WHERE y.tenant_id = t.tenant AND y.session_id = %(session)s
      AND y.occurred_at <= %(at)s ORDER BY y.occurred_at DESC, y.id DESC LIMIT %(looked)s) e {rows.look_up("p", "memory_payload", "x.id = e.payload_id")} {_CONTENT}
WHERE e.subject_id = %(subject)s::uuid AND e.writer_id = %(writer)s::uuid AND e.kind = 'message'
  AND e.role IN ('user', 'assistant') AND e.id <> %(episode)s::uuid AND e.redaction_state = 'none' AND NOT e.restricted
  AND (e.expires_at IS NULL OR e.expires_at > clock_timestamp())
  AND (e.consent_id IS NULL OR consent_stands(ARRAY[e.consent_id]))
ORDER BY e.occurred_at DESC, e.id DESC LIMIT %(most)s
"""
# Ids that only an answer of ours names.
_OURS = """
SELECT w.id FROM unnest(%(ids)s::uuid[]) AS w (id)
WHERE EXISTS (SELECT FROM memory_receipt r WHERE r.tenant_id = %(tenant)s::uuid AND r.id = w.id)
  OR EXISTS (SELECT FROM memory_fact f WHERE f.tenant_id = %(tenant)s::uuid AND f.id = w.id)
  OR EXISTS (SELECT FROM memory_evidence e WHERE e.tenant_id = %(tenant)s::uuid AND e.id = w.id)
  OR EXISTS (SELECT FROM memory_episode e WHERE e.tenant_id = %(tenant)s::uuid AND e.id = w.id)
"""
# What was said on the strength of the episode before, taken back or not.
_SAID = f"""
SELECT k.attribute_id, p.id, p.clear, p.sealed, sk.wrapped, sk.version
FROM (SELECT %s::uuid AS tenant) t {rows.look_up("e", "memory_evidence", "x.episode_id = %s::uuid")} {
    rows.look_up("k", "memory_factkey", "x.id = e.key_id")
} {rows.look_up("f", "memory_fact", "x.id = e.fact_id")} {rows.look_up("p", "memory_payload", "x.id = f.payload_id")} {
    _CONTENT
}
"""
# Receipts are named in the order of time: of a tenant's only those of the time asked about are looked at.
_SERVED = """
SELECT r.fact_ids FROM memory_receipt r
WHERE r.tenant_id = %(tenant)s::uuid AND r.id BETWEEN %(first)s::uuid AND %(last)s::uuid
  AND r.fact_ids && %(facts)s::uuid[] AND r.actor_id = %(actor)s::uuid AND r.verdict IS NULL
"""


# What else the subject is called, where its text may go to a model.
_NAMES = """
SELECT p.id, p.clear, p.sealed, k.wrapped, k.version FROM memory_subjectidentifier i
  JOIN memory_payload p ON p.tenant_id = i.tenant_id AND p.id = i.payload_id
  LEFT JOIN tenants_subjectkey k ON k.tenant_id = p.tenant_id AND k.id = p.key_id
WHERE i.tenant_id = %s::uuid AND i.subject_id = %s::uuid AND NOT i.is_key LIMIT 200
"""


def _view(source: Source, in_force: Catalogue, *, new: bool = False) -> _View:
    """Return an episode as extractors are to see it. Its text must be readable."""
    tenant, text = source.writer.tenant, source.text or ""
    in_play = sorted(
        (each for each in in_force.attributes.values() if each.definition.kind is Kind.SEMANTIC),
        key=lambda each: each.name,
    )[:MOST_ATTRIBUTES]
    by_id = {each.id: each for each in in_play}
    named = served.ids(text)
    message = source.kind == "message"
    read_elsewhere = settings.MODEL_EXTRACTOR is not None and in_force.policy.model is not None
    held_now, before, ours, names = rows.fetch_all(
        [
            (_HELD, [tenant, source.subject_id, source.writer.clearance]),
            (
                _BEFORE,
                {
                    "tenant": tenant,
                    "subject": source.subject_id,
                    "session": source.session_id,
                    "writer": source.writer.id,
                    "episode": source.id,
                    "at": source.occurred_at,
                    "looked": _LOOKED_AT,
                    "most": _MOST_BEFORE,
                },
            )
            if message
            else None,
            (_OURS, {"tenant": tenant, "ids": named}) if named else None,
            (_NAMES, [tenant, source.subject_id]) if read_elsewhere else None,
        ]
    )
    current: dict[UUID, list[Stored]] = {}
    held: dict[tuple[str, str], UUID] = {}
    for attribute, since, fact, level, *content in held_now:
        value = drawing.opened(tenant, "value", *content) if attribute in by_id else None
        if value is not None:
            current.setdefault(attribute, []).append(Stored(json.loads(value), since, Sensitivity(level)))
            held[by_id[attribute].name, value] = fact
    code = None
    readable = served.without_fences(text) if message else text
    if ours and not message:
        # One answer among others in one document: none of it is taken for a source.
        readable, code = "", "served_before"
    elif ours:
        readable = served.without_lines(readable, {row[0] for row in ours})
    if code is None and not readable.strip():
        code = "served_before"
    turns = [
        Turn(role, drawing.opened(tenant, "episode", *content) or "", at) for role, at, *content in reversed(before)
    ]
    return _View(
        source=source,
        text=EpisodeText(
            role=source.role,  # type: ignore[arg-type]
            content=readable,
            occurred_at=source.occurred_at,
            subject=source.subject or "",
            kind=source.kind,  # type: ignore[arg-type]
            before=turns,
            sensitivity=Sensitivity(source.stated),
            names=[name for each in names if (name := drawing.opened(tenant, "alias", *each)) is not None],
        ),
        slices=[AttributeSlice(each.definition, tuple(current.get(each.id, ()))) for each in in_play],
        attributes={each.name: each for each in in_play},
        held=held,
        new=new,
        code=code,
    )


# drawing and choosing -------------------------------------------------------------------------------------------------

_Proposed = list[tuple[str, Proposal]]


def _draw(writing: Writing, source: Source) -> Drawn | None:
    """Draw from an episode within the transaction that keeps it; None where an extractor would have to call out."""
    view = _view(source, writing.catalogue, new=True)
    extractors = extractors_for(source, view.text, writing.catalogue.policy)
    if any(each.remote for each in extractors):
        return None
    try:
        return _drawn(view, extractors)
    except ExtractionFailed as failed:
        return Drawn(code=failed.code, failed=True)
    except Exception as error:
        _log.error("drawing from an episode failed", extra={"code": type(error).__name__})
        return Drawn(code="unexpected", failed=True)


def _drawn(view: _View, extractors: Sequence[Extractor]) -> Drawn:
    return _chosen(view, extractors, _proposed(view, extractors))


def _proposed(view: _View, extractors: Sequence[Extractor]) -> _Proposed:
    """Return what the extractors propose, each under its name. Raises `ExtractionFailed`. Asks no database."""
    if view.code is not None:
        return []
    return [(each.name, proposal) for each in extractors for proposal in each.extract(view.text, view.slices)]


def _chosen(view: _View, extractors: Sequence[Extractor], proposed: _Proposed) -> Drawn:
    """Sort proposals into sayings for the door and what is left out, by name."""
    names = tuple(each.name for each in extractors)
    if view.code is not None:
        return Drawn(code=view.code, extractors=names)
    checked = check(view.text, view.slices, [proposal for _, proposal in proposed])
    left: list[tuple[str | None, str]] = [(each.attribute, each.reason) for each in checked.rejected]
    spoken_to_agents = [(start, end) for start, end, *_ in instructions(Reading(view.text.content))]
    said, echoes = _said_before(view), _echoes(view, checked.accepted)
    sayings: list[DrawnBody] = []
    for proposal in checked.accepted:
        attribute, value, place = proposal.attribute, canonical_text(proposal.value), proposal.evidence
        if any(place.start < end and start < place.end for start, end in spoken_to_agents):
            left.append((attribute, "instruction"))
        elif not said.isdisjoint({(attribute, value), (attribute, None)}):
            left.append((attribute, "said_before"))
        elif view.held.get((attribute, value)) in echoes:
            left.append((proposal.attribute, "served_before"))
        else:
            try:
                sayings.append(_saying(view.source, proposal, _named(proposed, proposal)))
            except ValidationError:
                left.append((proposal.attribute, "malformed"))
    return Drawn(sayings=sayings, left=left, extractors=names)


def _said_before(view: _View) -> set[tuple[str, str | None]]:
    """Return what rests on the episode already, by attribute and value; the value is None where it was taken out."""
    if view.new:
        return set()
    tenant = view.source.writer.tenant
    names = {each.id: name for name, each in view.attributes.items()}
    return {
        (names[attribute], drawing.opened(tenant, "value", *content))
        for attribute, *content in rows.fetch(_SAID, [tenant, view.source.id])
        if attribute in names
    }


def _echoes(view: _View, proposals: Sequence[Proposal]) -> set[UUID]:
    """Return the facts that a tool's answer repeats to the agent to whom they were served just before."""
    if view.text.kind == "message":
        return set()
    repeated = {view.held.get((each.attribute, canonical_text(each.value))) for each in proposals} - {None}
    if not repeated:
        return set()
    source = view.source
    asked = {
        "tenant": source.writer.tenant,
        "facts": sorted(filter(None, repeated)),
        "actor": source.writer.id,
        "first": first_id(source.recorded_at - ECHO),
        "last": first_id(source.recorded_at + timedelta(seconds=1)),
    }
    return {fact for row in rows.fetch(_SERVED, asked) for fact in row[0]}


def _named(proposed: _Proposed, proposal: Proposal) -> str:
    """Return who proposed it: the first of those that it may come from."""
    for name, each in proposed:
        if (each.attribute, each.evidence.quote) == (proposal.attribute, proposal.evidence.quote):
            return name
    return proposed[0][0]


def _saying(source: Source, proposal: Proposal, extractor: str) -> DrawnBody:
    """Return a proposal as a saying of the episode's writer. Class and life are the attribute's and the policy's.

    What comes from an episode that was sent as restricted is restricted; a consent that the episode rests on carries what is drawn too.
    Raises `ValidationError` for what no request could say either.
    """
    tool = source.kind == "tool_result"
    return DrawnBody(
        subject=proposal.subject,
        attribute=proposal.attribute,
        value=proposal.value,
        valid_from=proposal.valid_from,
        confidence=proposal.confidence,
        sensitivity=Sensitivity.RESTRICTED if source.stated >= Sensitivity.RESTRICTED else None,
        provenance=Provenance(
            turn_id=source.turn_id,
            tool_call_id=source.tool_call_id,
            consent_ref=source.consent_ref,
            source_episode=source.id,
            quote=proposal.evidence.quote,
            source=SourceKind.TOOL_RESULT if tool else SourceKind.QUOTE,
        ),
        extractor=extractor,
    )


# telling --------------------------------------------------------------------------------------------------------------

_STATE = """
SELECT x.state, x.code, x.attempts, x.extractors, x.results::text
FROM memory_extraction x WHERE x.tenant_id = %s::uuid AND x.episode_id = %s::uuid
"""
_CANDIDATES_SEEN = "SELECT c.id FROM memory_candidate c WHERE c.tenant_id = %s::uuid AND c.id = ANY(%s::uuid[])"


def told(actor: Actor, episode: UUID, *, whole: bool = True) -> dict[str, Any]:
    """Return how far drawing from an episode has come, and what it came to, as far as the actor may see that.

    `extraction`: state, code, attempts and extractors. `facts`: each with its change and the fact
    as it stands now, where `whole`; `asked` and `buffered` with their candidates; `rejected` by attribute and reasons. To be called
    under the agent's role. Leaves no receipt.
    """
    found = rows.fetch(_STATE, [actor.tenant, episode])
    if not found:
        return untouched()
    state, code, attempts, extractors, text = found[0]
    results: list[dict[str, Any]] = json.loads(text)
    drawn = {UUID(each["fact"]) for each in results if each.get("fact")}
    waiting = {each["candidate"] for each in results if "candidate" in each}
    facts = recall.facts_by_id(actor, sorted(drawn)) if whole else {}
    seen = {str(row[0]) for row in rows.fetch(_CANDIDATES_SEEN, [actor.tenant, sorted(waiting)])} if waiting else set()
    lists: dict[str, list[dict[str, Any]]] = {"facts": [], "asked": [], "buffered": [], "rejected": []}
    for each in results:
        kind, attribute, reasons = each["outcome"], each["attribute"], each.get("reasons", [])
        if kind == "fact" and each["fact"] is not None and UUID(each["fact"]) in facts:
            lists["facts"].append(
                {
                    "attribute": attribute,
                    "change": each["change"],
                    "fact": facts[UUID(each["fact"])],
                    "evidence": UUID(each["evidence"]),
                    "reasons": reasons,
                }
            )
        elif kind in ("asked", "buffered") and each["candidate"] in seen:
            lists[kind].append({"attribute": attribute, "candidate": UUID(each["candidate"]), "reasons": reasons})
        elif kind == "rejected":
            lists["rejected"].append({"attribute": attribute, "reasons": reasons})
    extraction: dict[str, Any] = {
        "state": state,
        "code": code,
        "attempts": attempts,
        "extractors": extractors,
    }
    return {"extraction": extraction, **lists}


def untouched(state: str = "none", code: str | None = None) -> dict[str, Any]:
    """Return the same of an episode from which nothing has been drawn."""
    return {
        "extraction": {"state": state, "code": code, "attempts": 0, "extractors": []},
        "facts": [],
        "asked": [],
        "buffered": [],
        "rejected": [],
    }


@dataclass(frozen=True, slots=True)
class Waiting:
    """How many episodes are yet to be drawn from, and since when the oldest is."""

    episodes: int
    since: datetime | None


_WAITING = f"""
SELECT count(*), min(e.recorded_at)
FROM (SELECT %s::uuid AS tenant) t {
    rows.look_up("d", "memory_extraction", "x.state = 'pending' AND x.subject_id = %s::uuid")
} {rows.look_up("e", "memory_episode", "x.id = d.episode_id")}
WHERE %s::text IS NULL OR e.session_id = %s::text
"""


def waiting(tenant: UUID, subject: UUID, *, session: str | None = None) -> Waiting:
    """Return what waits about a subject, of one session where that is given: a context is not yet what was said there.

    Under the agent's role, so that it counts what the reader may see. Never content.
    """
    return Waiting(*rows.fetch(_WAITING, [tenant, subject, session, session])[0])
