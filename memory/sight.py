"""What members see of a tenant's memory: what waits, what is known of a subject, and for whoever decides, what about.

Everything but `show` needs `Role.STAFF`, which may not read payloads.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from memory.rows import fetch
from memory.subjects import payload_context
from policies.vocabulary import Sensitivity
from tenants.actors import Actor, ActorKind
from tenants.audit import Action, Event, append
from tenants.errors import Forbidden
from tenants.secrets import keyring

#: No count goes further: a page says "1,000 or more".
COUNTED = 1_000


#: A page shows so many stretches of a subject, and leads to the next.
SHOWN = 100
#: No count of stretches goes further.
STRETCHES_COUNTED = 10_000


@dataclass(frozen=True, slots=True)
class Stretch:
    """A stretch of a subject's attribute as believed at an instant. `fact` is None where nothing is known to hold.

    `recorded_at` is when the saying that opens it was recorded: a stretch may be believed anew for its end alone.
    """

    attribute: str
    key: UUID
    belief: UUID
    fact: UUID | None
    valid_from: datetime
    valid_to: datetime | None
    believed_from: datetime
    recorded_at: datetime
    source: str
    turn: str
    sensitivity: int | None
    basis: str | None
    expires_at: datetime | None
    evidence: int | None
    confirmed: bool | None
    state: str


_STRETCHES = """
SELECT a.name, k.id, b.id, b.fact_id, b.valid_from, b.valid_to, b.believed_from, e.recorded_at, e.source, e.turn_id,
  f.sensitivity, f.basis, f.expires_at, f.evidence_count, f.confirmed,
  CASE WHEN b.fact_id IS NULL THEN 'nothing'
    WHEN f.redaction_state <> 'none' THEN 'redacted'
    WHEN f.ended_at IS NOT NULL THEN f.ended_by
    WHEN f.expires_at <= statement_timestamp() THEN 'expired'
    WHEN b.valid_from > statement_timestamp() THEN 'later'
    WHEN b.valid_to <= statement_timestamp() THEN 'past'
    ELSE 'now' END
FROM memory_factkey k
  JOIN policies_attribute a ON a.tenant_id = k.tenant_id AND a.id = k.attribute_id
  JOIN memory_belief b ON b.tenant_id = k.tenant_id AND b.key_id = k.id AND {known}
  JOIN memory_evidence e ON e.tenant_id = b.tenant_id AND e.id = b.evidence_id
  LEFT JOIN memory_fact f ON f.tenant_id = b.tenant_id AND f.id = b.fact_id
WHERE k.tenant_id = %s AND k.subject_id = %s
ORDER BY a.name, b.valid_from, b.id OFFSET %s LIMIT %s
"""
_BELIEVED_NOW = _STRETCHES.format(known="b.believed_to IS NULL")
_BELIEVED_THEN = _STRETCHES.format(known="b.believed_from <= %s AND (b.believed_to IS NULL OR b.believed_to > %s)")


_SUMS = """
SELECT count(*), count(DISTINCT s.fact), count(*) FILTER (WHERE s.state = 'now')
FROM ({stretches}) AS s (attribute, key, belief, fact, valid_from, valid_to, believed_from, recorded_at, source, turn,
  sensitivity, basis, expires_at, evidence, confirmed, state)
"""


def stretches(
    tenant: UUID, subject: UUID, *, known_at: datetime | None = None, first: int = 0, most: int = SHOWN
) -> list[Stretch]:
    """Return what is believed of a subject, now or as known then, by attribute and start: `most` after the `first`.

    What may no longer be kept is so as of today, whatever instant is asked.
    """
    rest = [tenant, subject, first, most]
    if known_at is None:
        return [Stretch(*row) for row in fetch(_BELIEVED_NOW, rest)]
    return [Stretch(*row) for row in fetch(_BELIEVED_THEN, [known_at, known_at, *rest])]


@dataclass(frozen=True, slots=True)
class Sums:
    """How many stretches are believed of a subject, of how many facts, and how many hold now; of `STRETCHES_COUNTED` at most."""

    stretches: int
    facts: int
    current: int


def sums(tenant: UUID, subject: UUID, *, known_at: datetime | None = None) -> Sums:
    """Return how much `stretches` has in all."""
    rest = [tenant, subject, 0, STRETCHES_COUNTED]
    if known_at is None:
        return Sums(*fetch(_SUMS.format(stretches=_BELIEVED_NOW), rest)[0])
    return Sums(*fetch(_SUMS.format(stretches=_BELIEVED_THEN), [known_at, known_at, *rest])[0])


_HAPPENED = """
SELECT a.name, 'confirmed', e.recorded_at FROM memory_factkey k
  JOIN policies_attribute a ON a.tenant_id = k.tenant_id AND a.id = k.attribute_id
  JOIN memory_evidence e ON e.tenant_id = k.tenant_id AND e.key_id = k.id AND e.confirmed AND e.retracted_at IS NULL
WHERE k.tenant_id = %(tenant)s AND k.subject_id = %(subject)s AND k.id = ANY (%(keys)s::uuid[])
UNION ALL
SELECT a.name, 'redacted', f.ended_at FROM memory_factkey k
  JOIN policies_attribute a ON a.tenant_id = k.tenant_id AND a.id = k.attribute_id
  JOIN memory_fact f ON f.tenant_id = k.tenant_id AND f.key_id = k.id AND f.ended_by = 'redacted'
WHERE k.tenant_id = %(tenant)s AND k.subject_id = %(subject)s AND k.id = ANY (%(keys)s::uuid[])
ORDER BY 3 DESC LIMIT %(most)s
"""


def happened(tenant: UUID, subject: UUID, keys: Sequence[UUID]) -> list[tuple[str, str, datetime]]:
    """Return what people did to what is known under `keys` of a subject, the newest first: attribute, `confirmed` or `redacted`, when."""
    found = fetch(_HAPPENED, {"tenant": tenant, "subject": subject, "keys": list(keys), "most": SHOWN})
    return [(name, what, at) for name, what, at in found]


#: So many records a lineage draws.
DRAWN = 60


@dataclass(frozen=True, slots=True)
class Origin:
    """That a fact rests on an episode: by which saying, of which kind."""

    fact: UUID
    attribute: str
    evidence: UUID
    source: str
    episode: UUID | None
    turn: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Result:
    """That something derived rests on a fact."""

    fact: UUID
    derived: UUID
    kind: str


_ORIGINS = """
SELECT f.id, a.name, e.id, e.source, e.episode_id, e.turn_id, e.recorded_at
FROM memory_fact f
  JOIN memory_factkey k ON k.tenant_id = f.tenant_id AND k.id = f.key_id
  JOIN policies_attribute a ON a.tenant_id = k.tenant_id AND a.id = k.attribute_id
  JOIN memory_evidence e ON e.tenant_id = f.tenant_id AND e.fact_id = f.id AND e.retracted_at IS NULL
WHERE f.tenant_id = %s AND f.id = ANY (%s::uuid[]) ORDER BY e.recorded_at DESC, e.id LIMIT %s
"""
_RESULTS = """
SELECT DISTINCT s.fact_id, d.id, d.kind FROM memory_derivedsource s
  JOIN memory_derived d ON d.tenant_id = s.tenant_id AND d.id = s.derived_id
WHERE s.tenant_id = %s AND s.fact_id = ANY (%s::uuid[]) ORDER BY d.id, s.fact_id LIMIT %s
"""


def lineage(tenant: UUID, facts: Sequence[UUID]) -> tuple[list[Origin], list[Result]]:
    """Return what facts rest on, the newest sayings first, and what was derived of them; no more than `DRAWN` of each."""
    origins = [Origin(*row) for row in fetch(_ORIGINS, [tenant, list(facts), DRAWN])]
    results = [Result(*row) for row in fetch(_RESULTS, [tenant, list(facts), DRAWN])]
    return origins, results


@dataclass(frozen=True, slots=True)
class Figures:
    """What there is about a subject, as counts that stop at `COUNTED`."""

    episodes: int
    waiting: int
    consents: int
    reads: int
    readers: int


_FIGURES = """
WITH seen AS (SELECT actor_id FROM memory_receipt
  WHERE tenant_id = %(tenant)s AND fact_ids && %(facts)s::uuid[] AND act LIKE '%%.read' LIMIT %(most)s)
SELECT
  (SELECT count(*) FROM (SELECT FROM memory_episode WHERE tenant_id = %(tenant)s AND subject_id = %(subject)s LIMIT %(most)s) x),
  (SELECT count(*) FROM (SELECT FROM memory_candidate WHERE tenant_id = %(tenant)s AND subject_id = %(subject)s
    AND state IN ('asked', 'buffered') LIMIT %(most)s) x),
  (SELECT count(*) FROM (SELECT FROM policies_consent WHERE tenant_id = %(tenant)s AND subject_id = %(subject)s
    AND withdrawn_at IS NULL LIMIT %(most)s) x),
  (SELECT count(*) FROM seen), (SELECT count(DISTINCT actor_id) FROM seen)
"""


def figures(tenant: UUID, subject: UUID, facts: Sequence[UUID]) -> Figures:
    """Return what there is about a subject; reads are those of `facts`."""
    asked = {"tenant": tenant, "subject": subject, "facts": list(facts), "most": COUNTED}
    return Figures(*fetch(_FIGURES, asked)[0])


@dataclass(frozen=True, slots=True)
class Reader:
    """Who read a fact: how often, and when last. No more than `COUNTED` receipts are looked at."""

    kind: str
    id: UUID
    name: str
    reads: int
    last: datetime


_READERS = """
SELECT r.actor_kind, r.actor_id, coalesce(max(a.name), ''), count(*), max(r.at)
FROM (SELECT actor_kind, actor_id, at FROM memory_receipt
    WHERE tenant_id = %s AND fact_ids @> ARRAY[%s::uuid] AND act LIKE '%%.read' LIMIT %s) r
  LEFT JOIN tenants_agent a ON a.tenant_id = %s AND a.id = r.actor_id
GROUP BY 1, 2 ORDER BY 5 DESC LIMIT 20
"""


def readers(tenant: UUID, fact: UUID) -> list[Reader]:
    """Return who saw a fact, the newest reader first, as the receipts tell."""
    return [Reader(*row) for row in fetch(_READERS, [tenant, fact, COUNTED, tenant])]


@dataclass(frozen=True, slots=True)
class Held:
    """What holds of a single-valued attribute while a proposal about it waits; in clear only by `show`."""

    fact: UUID
    valid_from: datetime
    sensitivity: int
    confirmed: bool
    evidence: int


_HELD = """
SELECT f.id, b.valid_from, f.sensitivity, f.confirmed, f.evidence_count
FROM memory_candidate c
  JOIN policies_attribute a ON a.tenant_id = c.tenant_id AND a.id = c.attribute_id AND a.cardinality = 'single'
  JOIN memory_factkey k ON k.tenant_id = c.tenant_id AND k.subject_id = c.subject_id AND k.attribute_id = c.attribute_id
  JOIN memory_belief b ON b.tenant_id = k.tenant_id AND b.key_id = k.id AND b.believed_to IS NULL
    AND b.valid_from <= statement_timestamp() AND (b.valid_to IS NULL OR b.valid_to > statement_timestamp())
  JOIN memory_fact f ON f.tenant_id = b.tenant_id AND f.id = b.fact_id
WHERE c.tenant_id = %s AND c.id = %s AND f.ended_at IS NULL AND f.redaction_state = 'none'
  AND (f.expires_at IS NULL OR f.expires_at > statement_timestamp())
LIMIT 1
"""


def held(tenant: UUID, candidate: UUID) -> Held | None:
    """Return what holds now where a candidate proposes another value; None where nothing does, or several values may."""
    found = fetch(_HELD, [tenant, candidate])
    return Held(*found[0]) if found else None


def next_waiting(tenant: UUID, after: UUID) -> UUID | None:
    """Return the candidate to decide after this one: the next younger that waits for a person, else the oldest."""
    found = fetch(
        "SELECT id FROM memory_candidate WHERE tenant_id = %s AND state = 'asked' AND id <> %s"
        " ORDER BY id < %s, id LIMIT 1",
        [tenant, after, after],
    )
    return found[0][0] if found else None


#: Of how many facts a page says by which version they were written.
VERSIONS_COUNTED = 10_000

_BY_VERSION = """
SELECT x.version, count(*)
FROM (SELECT f.attribute_version_id AS version
  FROM memory_factkey k
    JOIN memory_belief b ON b.tenant_id = k.tenant_id AND b.key_id = k.id AND b.believed_to IS NULL
      AND b.valid_from <= statement_timestamp() AND coalesce(b.valid_to, 'infinity'::timestamptz) > statement_timestamp()
    JOIN memory_fact f ON f.tenant_id = b.tenant_id AND f.id = b.fact_id
      AND f.ended_at IS NULL AND (f.expires_at IS NULL OR f.expires_at > statement_timestamp())
  WHERE k.tenant_id = %s AND k.attribute_id = %s LIMIT %s) x
GROUP BY x.version
"""


def facts_by_version(tenant: UUID, attribute: UUID) -> dict[UUID, int]:
    """Return how many current facts of an attribute were written under each of its versions; counts `VERSIONS_COUNTED`."""
    return dict(fetch(_BY_VERSION, [tenant, attribute, VERSIONS_COUNTED]))  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Quoted:
    """What was said in an episode: its text, and the part of it that is the evidence. Either may be None: not to be shown."""

    saying: UUID
    text: str | None
    quote: str | None


@dataclass(frozen=True, slots=True)
class Shown:
    """A candidate in clear, and what holds now. A value is None where there is none, or where it may not be shown.

    `subject` is what the subject is called; `held_sources` are what the value rests on that holds now.
    """

    value: str | None
    sources: tuple[Quoted, ...]
    held: str | None
    subject: str | None = None
    held_sources: tuple[Quoted, ...] = ()


#: Of the sayings that a candidate stands for, so many are shown in clear, the newest first.
SOURCES = 5
_OPEN = (
    "{p}.sensitivity <= %s AND {p}.redaction_state = 'none' AND NOT {p}.restricted"
    " AND ({p}.expires_at IS NULL OR {p}.expires_at > statement_timestamp())"
    " AND ({p}.consent_ids IS NULL OR consent_stands({p}.consent_ids))"
)
_CONTENT = "{p}.id, {p}.purpose, {p}.clear, {p}.sealed, {k}.wrapped, {k}.version"


def _joined(alias: str, key: str, link: str) -> str:
    return (
        f" LEFT JOIN memory_payload {alias} ON {alias}.tenant_id = s.tenant_id AND {alias}.id = {link}"
        f" AND {_OPEN.format(p=alias)}"
        f" LEFT JOIN tenants_subjectkey {key} ON {key}.tenant_id = {alias}.tenant_id AND {key}.id = {alias}.key_id"
    )


_VALUE = (
    f"SELECT {_CONTENT.format(p='p', k='k')}, {_CONTENT.format(p='n', k='nk')} FROM memory_candidate s"
    " JOIN memory_subject u ON u.tenant_id = s.tenant_id AND u.id = s.subject_id"
    f"{_joined('p', 'k', 's.payload_id')}{_joined('n', 'nk', 'u.payload_id')}"
    " WHERE s.tenant_id = %s AND s.id = %s AND s.sensitivity <= %s"
    " AND (s.expires_at IS NULL OR s.expires_at > statement_timestamp())"
)
_SOURCES = (
    f"SELECT s.id, {_CONTENT.format(p='t', k='tk')}, {_CONTENT.format(p='q', k='qk')} FROM memory_candidatesaying s"
    " LEFT JOIN memory_episode e ON e.tenant_id = s.tenant_id AND e.id = s.episode_id"
    f"{_joined('t', 'tk', 'e.payload_id')}{_joined('q', 'qk', 's.quote_id')}"
    " WHERE s.tenant_id = %s AND s.candidate_id = %s ORDER BY s.id DESC LIMIT %s"
)
_HELD_SOURCES = (
    f"SELECT s.id, {_CONTENT.format(p='t', k='tk')}, {_CONTENT.format(p='q', k='qk')} FROM memory_evidence s"
    " LEFT JOIN memory_episode e ON e.tenant_id = s.tenant_id AND e.id = s.episode_id"
    f"{_joined('t', 'tk', 'e.payload_id')}{_joined('q', 'qk', 's.quote_id')}"
    " WHERE s.tenant_id = %s AND s.fact_id = %s AND s.retracted_at IS NULL ORDER BY s.id DESC LIMIT %s"
)


_HELD_VALUE = f"SELECT {_CONTENT.format(p='p', k='k')} FROM memory_fact s{_joined('p', 'k', 's.payload_id')} WHERE s.tenant_id = %s AND s.id = %s"


def show(actor: Actor, candidate: UUID, *, up_to: Sensitivity = Sensitivity.PERSONAL) -> Shown | None:
    """Return in clear what a decision is about, and write into the audit chain that it was shown.

    Needs `Role.WRITER`. Nothing above `up_to` is opened (above `personal` only what was revealed), nor what has ended or
    whose consent was withdrawn; None where the candidate itself may not be shown. Raises `Forbidden("a_person_decides")`
    for any actor that is not a person.
    """
    if actor.kind is not ActorKind.PERSON:
        raise Forbidden("a_person_decides")
    most, tenant = int(up_to), actor.tenant
    found = fetch(_VALUE, [most, most, tenant, candidate, most])
    if not found:
        return None
    said, subject = _opened(tenant, found[0][:6]), _opened(tenant, found[0][6:12])
    sources = _quoted(tenant, fetch(_SOURCES, [most, most, tenant, candidate, SOURCES]))
    stands = held(tenant, candidate)
    former: str | None = None
    rests_on: tuple[Quoted, ...] = ()
    if stands is not None:
        former = _opened(tenant, fetch(_HELD_VALUE, [most, tenant, stands.fact])[0])
        rests_on = _quoted(tenant, fetch(_HELD_SOURCES, [most, most, tenant, stands.fact, SOURCES]))
    append(
        [
            Event(
                actor=actor,
                action=Action.CONTENT_SHOWN,
                target_kind="candidate",
                target_id=candidate,
                numbers={
                    "sources": sum(each.text is not None or each.quote is not None for each in sources),
                    "held": former is not None,
                },
            )
        ]
    )
    return Shown(
        None if said is None else _as_words(said),
        sources,
        None if former is None else _as_words(former),
        subject,
        rests_on,
    )


_EPISODE = (
    f"SELECT {_CONTENT.format(p='p', k='k')} FROM memory_episode s{_joined('p', 'k', 's.payload_id')}"
    " WHERE s.tenant_id = %s AND s.id = %s"
)


def show_episode(actor: Actor, episode: UUID, *, up_to: Sensitivity = Sensitivity.PERSONAL) -> str | None:
    """Return an episode's text in clear, and write into the audit chain that it was shown. As `show` otherwise."""
    if actor.kind is not ActorKind.PERSON:
        raise Forbidden("a_person_decides")
    found = fetch(_EPISODE, [int(up_to), actor.tenant, episode])
    text = _opened(actor.tenant, found[0]) if found else None
    if text is None:
        return None
    append([Event(actor=actor, action=Action.CONTENT_SHOWN, target_kind="episode", target_id=episode)])
    return text


def _quoted(tenant: UUID, found: Sequence[Sequence[Any]]) -> tuple[Quoted, ...]:
    return tuple(Quoted(row[0], _opened(tenant, row[1:7]), _opened(tenant, row[7:13])) for row in found)


def _opened(tenant: UUID, columns: Sequence[Any]) -> str | None:
    payload, purpose, clear, sealed, wrapped, version = columns
    if sealed is None:
        return None if clear is None else str(clear)
    key = keyring().unwrap(tenant, bytes(wrapped), version)
    return keyring().open(key, bytes(sealed), payload_context(tenant, payload, purpose)).decode("utf-8")


def _as_words(value: str) -> str:
    plain = json.loads(value)
    return plain if isinstance(plain, str) else value
