"""What drawing facts from an episode rests on and leaves: the stored episode as it is read, and the row that says what
became of it.

That row is the lock of the work: whoever draws from an episode holds it, so that nothing is drawn twice.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from memory import rows
from memory.contracts import DrawnBody, EpisodeBody
from memory.outcomes import Asked, Denied, Outcome, Written
from memory.rows import OutboxRow
from memory.subjects import payload_context
from memory.writing import Writing
from tenants.actors import Actor, ActorKind, Scope
from tenants.audit import Action
from tenants.identity import new_id
from tenants.secrets import keyring

#: The topic of the work that an episode leaves.
TOPIC = "episode.extract"
#: More results than this the row does not keep.
_MOST_RESULTS = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A stored episode, and its writer as they stood when they sent it. `text` is None where it may not be read any more."""

    id: UUID
    kind: str
    role: str | None
    text: str | None = field(repr=False)
    subject: str | None = field(repr=False)
    subject_id: UUID | None
    occurred_at: datetime
    recorded_at: datetime
    session_id: str
    turn_id: str
    tool_call_id: str | None
    consent_ref: str | None
    contract_ref: str | None
    #: The class that it is kept under, and the same apart from what detection raised it to.
    sensitivity: int
    stated: int
    #: It speaks to the agent: the door asks a person about everything that is drawn from it.
    quarantined: bool
    writer: Actor
    #: Why it may not be read any more.
    ended: str | None = None


@dataclass(frozen=True, slots=True)
class Drawn:
    """What extractors drew: sayings for the door, and what was left out, by attribute (None: none of those) and code."""

    sayings: Sequence[DrawnBody] = field(default=(), repr=False)
    left: Sequence[tuple[str | None, str]] = ()
    extractors: tuple[str, ...] = ()
    #: Why there was nothing to read, or why it could not be read (`failed`).
    code: str | None = None
    failed: bool = False


#: Draws from an episode within the transaction that keeps it; None where that is not possible there.
Draw = Callable[[Writing, Source], Drawn | None]


def silence(kind: str, role: str | None, subject: str | None) -> str | None:
    """Return why nothing in such an episode can be a saying of its subject; None where something can.

    Facts are about the episode's subject. In a message only a user speaks for them: not the assistant, not instructions.
    """
    if subject is None:
        return "no_subject"
    if kind != "message" or role == "user":
        return None
    return "role_missing" if role is None else "not_said_by_subject"


def source_of(actor: Actor, body: EpisodeBody, **stored: Any) -> Source:
    """Return an episode that is being kept as a source."""
    return Source(
        kind=body.kind,
        role=body.role,
        subject=body.subject,
        occurred_at=body.occurred_at,
        session_id=body.session_id,
        turn_id=body.turn_id,
        tool_call_id=body.tool_call_id,
        consent_ref=body.consent_ref,
        contract_ref=body.contract_ref,
        writer=actor,
        **stored,
    )


# reading it again -----------------------------------------------------------------------------------------------------


class State(NamedTuple):
    """The row, held until the transaction ends."""

    state: str
    attempts: int


_LOCK = """
SELECT x.state, x.attempts FROM memory_extraction x WHERE x.tenant_id = %s::uuid AND x.episode_id = %s::uuid FOR UPDATE
"""


def hold(tenant: UUID, episode: UUID) -> State | None:
    """Lock the row of an episode, waiting for whoever draws from it now; None where nothing was ever asked of it."""
    found = rows.fetch(_LOCK, [tenant, episode])
    return State(*found[0]) if found else None


_SOURCE = f"""
SELECT e.kind, e.role, e.subject_id, e.occurred_at, e.recorded_at, e.session_id, e.turn_id, e.tool_call_id, e.sensitivity,
  e.writer_kind, e.writer_id, x.clearance, x.trust, x.purposes,
  (SELECT c.ref FROM policies_consent c WHERE c.tenant_id = e.tenant_id AND c.id = e.consent_id),
  CASE WHEN e.redaction_state <> 'none' OR p.clear IS NULL AND p.sealed IS NULL THEN 'episode_redacted'
    WHEN e.expires_at <= clock_timestamp() THEN 'episode_expired'
    WHEN e.consent_id IS NOT NULL AND NOT consent_stands(ARRAY[e.consent_id]) THEN 'consent_withdrawn'
    WHEN e.restricted OR s.restricted THEN 'restricted_processing' END,
  coalesce(x.stated, e.sensitivity), e.quarantined,
  p.id, p.clear, p.sealed, k.wrapped, k.version, sp.id, sp.sealed, sk.wrapped, sk.version, e.contract_ref
FROM (SELECT %s::uuid AS tenant) t {rows.look_up("e", "memory_episode", "x.id = %s::uuid")} {
    rows.look_up("x", "memory_extraction", "x.episode_id = e.id", outer=True)
} {rows.look_up("p", "memory_payload", "x.id = e.payload_id")} {
    rows.look_up("k", "tenants_subjectkey", "x.id = p.key_id", outer=True)
} {rows.look_up("s", "memory_subject", "x.id = e.subject_id", outer=True)} {
    rows.look_up("sp", "memory_payload", "x.id = s.payload_id", outer=True)
} {rows.look_up("sk", "tenants_subjectkey", "x.id = sp.key_id", outer=True)}
"""


def load(tenant: UUID, episode: UUID, *, writer: Actor | None = None) -> Source | None:
    """Return a stored episode, with its text as far as it may be read now; None where there is none.

    Its writer is as they stood when they asked something of it; where nothing was asked, `writer`, if it is theirs.
    """
    found = rows.fetch(_SOURCE, [tenant, episode])
    if not found:
        return None
    row = found[0]
    if row[11] is not None:
        writer = Actor(
            kind=ActorKind(row[9]),
            id=row[10],
            tenant=tenant,
            clearance=row[11],
            trust=row[12],
            scopes=frozenset({Scope.WRITE}),
            purposes=frozenset(row[13]),
        )
    elif writer is None or writer.id != row[10]:
        writer = Actor(kind=ActorKind(row[9]), id=row[10], tenant=tenant)
    ended = row[15]
    text = name = None
    if ended is None:
        text = opened(tenant, "episode", *row[18:23])
        name = None if row[23] is None else opened(tenant, "subject", row[23], None, *row[24:27])
    return Source(
        id=episode,
        kind=row[0],
        role=row[1],
        text=text,
        subject=name,
        subject_id=row[2],
        occurred_at=row[3],
        recorded_at=row[4],
        session_id=row[5],
        turn_id=row[6],
        tool_call_id=row[7],
        consent_ref=row[14],
        contract_ref=row[27],
        sensitivity=row[8],
        stated=row[16],
        quarantined=row[17],
        writer=writer,
        ended=ended,
    )


def opened(
    tenant: UUID,
    purpose: str,
    payload: UUID,
    clear: str | None,
    sealed: bytes | None,
    wrapped: bytes | None,
    version: int | None,
) -> str | None:
    """Return what stands in a payload, unsealed where it is sealed."""
    if sealed is None or wrapped is None or version is None:
        return clear
    key = keyring().unwrap(tenant, bytes(wrapped), version)
    return keyring().open(key, bytes(sealed), payload_context(tenant, payload, purpose)).decode("utf-8")


# what became of it ----------------------------------------------------------------------------------------------------

_RECORD = """
INSERT INTO memory_extraction (tenant_id, id, episode_id, subject_id, state, code, attempts, extractors, results,
  stated, clearance, trust, purposes, asked_at, finished_at)
VALUES (%(tenant)s::uuid, %(id)s::uuid, %(episode)s::uuid, %(subject)s::uuid, %(state)s::text, %(code)s::text,
  %(attempts)s::smallint, %(extractors)s::text[], %(results)s::jsonb, %(stated)s::smallint, %(clearance)s::smallint, %(trust)s::smallint,
  %(purposes)s::text[], clock_timestamp(), CASE WHEN %(state)s::text <> 'pending' THEN clock_timestamp() END)
ON CONFLICT (tenant_id, episode_id) DO UPDATE SET state = excluded.state, code = excluded.code,
  attempts = excluded.attempts, extractors = excluded.extractors, results = excluded.results,
  finished_at = excluded.finished_at
"""


def record(
    source: Source,
    state: str,
    *,
    code: str | None = None,
    attempts: int = 0,
    extractors: Sequence[str] = (),
    results: Sequence[dict[str, Any]] = (),
) -> None:
    """Store what became of drawing from an episode: `pending`, `done`, `failed` or `skipped`, the last two with a code."""
    rows.execute(
        _RECORD,
        {
            "tenant": source.writer.tenant,
            "id": new_id(),
            "episode": source.id,
            "subject": source.subject_id,
            "state": state,
            "code": code,
            "attempts": attempts,
            "extractors": list(extractors),
            "results": json.dumps(list(results)[:_MOST_RESULTS]),
            "stated": source.stated,
            "clearance": source.writer.clearance,
            "trust": source.writer.trust,
            "purposes": sorted(source.writer.purposes),
        },
    )


def leave(source: Source, now: datetime, *, after: timedelta = timedelta(0)) -> None:
    """Leave the work to the background, due `after` a while."""
    rows.OUTBOX.insert(source.writer.tenant, [OutboxRow(new_id(), TOPIC, source.id, now + after, now)])


def result(attribute: str | None, outcome: Outcome) -> dict[str, Any]:
    """Return what the door said of one saying, as ids and codes. Nothing more than that it was taken where it is blind."""
    told: dict[str, Any] = {"attribute": attribute}
    if isinstance(outcome, Denied):
        reasons = list(outcome.reasons or (outcome.errors[0].code if outcome.errors else outcome.code,))
        return told | {"outcome": "rejected", "reasons": reasons}
    if isinstance(outcome, Written | Asked) and outcome.blind:
        return told | {"outcome": "taken"}
    if isinstance(outcome, Asked):
        kind = "buffered" if outcome.verdict == "buffer" else "asked"
        return told | {"outcome": kind, "candidate": str(outcome.candidate), "reasons": list(outcome.reasons)}
    assert isinstance(outcome, Written)
    return told | {
        "outcome": "fact",
        "change": outcome.change,
        "fact": None if outcome.fact is None else str(outcome.fact),
        "evidence": str(outcome.evidence),
        "reasons": list(outcome.reasons),
    }


def left_out(attribute: str | None, code: str) -> dict[str, Any]:
    """Return a proposal that never came to the door, as a result."""
    return {"attribute": attribute, "outcome": "rejected", "reasons": [code]}


def note(writing: Writing, source: Source, code: str, results: Sequence[dict[str, Any]] = (), *, attempts: int) -> None:
    """Note for the audit what became of it: how many, and why."""
    counts = dict.fromkeys(("facts", "asked", "buffered", "rejected"), 0)
    for each in results:
        name = {"fact": "facts", "taken": "facts"}.get(each["outcome"], each["outcome"])
        counts[name] += 1
    writing.note(Action.EPISODE_EXTRACTED, "episode", source.id, reason=code, numbers={**counts, "attempt": attempts})
