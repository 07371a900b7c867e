"""Bringing ends nearer: the one door by which what is stored is kept for a shorter time, with all that hangs on it.

A date only moves to an earlier one here, and the database holds evidence, episodes and waiting sayings to that. What
follows a piece of evidence is its quote; what follows all evidence of a fact is the fact, its value and what finds it.
Everything runs in the worker's open transaction, in bounded chunks, and waits for nobody.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from memory import endings, rows
from memory.endings import worker
from memory.outbox import Outcomes, Settled
from tenants.audit import Action, Event, append

#: Pieces of evidence, episodes and waiting sayings, each, that one transaction moves.
CHUNK = 500

_UNTIL = [("id", "uuid"), ("until", "timestamptz")]
_EVIDENCE = f"""
UPDATE memory_evidence e SET expires_at = w.until FROM {rows.recordset("rows", _UNTIL)}
WHERE e.tenant_id = %(tenant)s::uuid AND e.id = w.id AND e.expires_at > w.until
RETURNING e.fact_id, e.quote_id, w.until
"""
_PAYLOADS = f"""
UPDATE memory_payload p SET expires_at = w.until FROM {rows.recordset("rows", _UNTIL)}
WHERE p.tenant_id = %(tenant)s::uuid AND p.id = w.id AND p.expires_at > w.until
"""
# A fact's end is the latest of its standing evidence; where nothing stands for it any more, of what was said last of it. One that
# ended already follows too: by this date its value is found and removed.
_FACTS = """
WITH said AS (
  SELECT e.fact_id, count(*) FILTER (WHERE e.retracted_at IS NULL) AS standing,
    count(*) FILTER (WHERE e.expires_at IS NULL AND e.retracted_at IS NULL) AS endless,
    max(e.expires_at) FILTER (WHERE e.retracted_at IS NULL) AS latest, max(e.expires_at) AS ever,
    (array_agg(e.basis ORDER BY e.retracted_at IS NOT NULL, e.expires_at DESC NULLS FIRST))[1] AS basis
  FROM memory_evidence e
  WHERE e.tenant_id = %(tenant)s::uuid AND e.fact_id = ANY (%(facts)s::uuid[]) AND NOT e.is_end GROUP BY e.fact_id
), due AS (
  SELECT s.fact_id, CASE WHEN s.standing > 0 THEN s.latest ELSE s.ever END AS until, s.basis FROM said s WHERE s.endless = 0
)
UPDATE memory_fact f SET expires_at = d.until, basis = d.basis FROM due d
WHERE f.tenant_id = %(tenant)s::uuid AND f.id = d.fact_id AND f.expires_at > d.until
  AND d.basis <> 'indefinite'
RETURNING f.id, f.payload_id, f.expires_at, f.basis
"""
_VALUE = [("id", "uuid"), ("until", "timestamptz"), ("basis", "text")]
_VALUES = f"""
UPDATE memory_payload p SET expires_at = w.until, basis = w.basis FROM {rows.recordset("rows", _VALUE)}
WHERE p.tenant_id = %(tenant)s::uuid AND p.id = w.id AND p.expires_at > w.until
"""
_EPISODES = f"""
UPDATE memory_episode e SET expires_at = w.until FROM {rows.recordset("rows", _UNTIL)}
WHERE e.tenant_id = %(tenant)s::uuid AND e.id = w.id AND e.expires_at > w.until
RETURNING e.id, e.payload_id, w.until
"""
_SAYINGS = f"""
UPDATE memory_candidatesaying s SET expires_at = w.until FROM {rows.recordset("rows", _UNTIL)}
WHERE s.tenant_id = %(tenant)s::uuid AND s.id = w.id AND s.expires_at > w.until
RETURNING s.candidate_id, s.quote_id, w.until
"""
# A proposal waits no longer than the last of its sayings may be kept.
_CANDIDATES = """
WITH said AS (
  SELECT s.candidate_id, count(*) FILTER (WHERE s.expires_at IS NULL) AS endless, max(s.expires_at) AS latest
  FROM memory_candidatesaying s
  WHERE s.tenant_id = %(tenant)s::uuid AND s.candidate_id = ANY (%(candidates)s::uuid[]) GROUP BY s.candidate_id
)
UPDATE memory_candidate c SET expires_at = d.latest FROM said d
WHERE c.tenant_id = %(tenant)s::uuid AND c.id = d.candidate_id AND d.endless = 0 AND c.expires_at > d.latest
RETURNING c.payload_id, c.expires_at
"""
_LOCK_KEYS = """
SELECT k.id FROM memory_factkey k WHERE k.tenant_id = %s::uuid AND k.id = ANY(%s::uuid[])
ORDER BY k.subject_id, k.attribute_id FOR NO KEY UPDATE SKIP LOCKED
"""

#: A row and until when it may be kept from now on.
Until = tuple[UUID, datetime]


@dataclass(frozen=True, slots=True)
class Moved:
    """How many rows got an earlier end."""

    evidence: int = 0
    facts: int = 0
    episodes: int = 0
    candidates: int = 0

    def __bool__(self) -> bool:
        return bool(self.evidence or self.facts or self.episodes or self.candidates)

    def numbers(self) -> dict[str, int | float | bool]:
        """Return the counts for the audit."""
        return {
            "evidence": self.evidence,
            "facts": self.facts,
            "episodes": self.episodes,
            "candidates": self.candidates,
        }


def _returned(
    sql: str, tenant: UUID, columns: Sequence[tuple[str, str]], given: Sequence[Any]
) -> list[tuple[Any, ...]]:
    if not given:
        return []
    return rows.fetch(sql, {"tenant": tenant, "rows": rows.as_json([name for name, _ in columns], given)})


def shorten_evidence(tenant: UUID, untils: Sequence[Until]) -> Moved:
    """Let evidence be kept until an earlier instant, each its own; quotes, facts and values follow.

    The keys of its facts must be locked. What would end later than it does is left as it is.
    """
    moved = _returned(_EVIDENCE, tenant, _UNTIL, untils)
    rows.change(_PAYLOADS, tenant, _UNTIL, [(quote, until) for _, quote, until in moved if quote is not None])
    facts = _follow(tenant, {fact for fact, _, _ in moved if fact is not None})
    return Moved(evidence=len(moved), facts=facts)


def _follow(tenant: UUID, facts: set[UUID]) -> int:
    if not facts:
        return 0
    moved = rows.fetch(_FACTS, {"tenant": tenant, "facts": sorted(facts)})
    rows.change(_VALUES, tenant, _VALUE, [(payload, until, basis) for _, payload, until, basis in moved])
    return len(moved)


def shorten_episodes(tenant: UUID, untils: Sequence[Until]) -> Moved:
    """Let episodes, with their texts, be kept until an earlier instant, each its own."""
    moved = _returned(_EPISODES, tenant, _UNTIL, untils)
    rows.change(_PAYLOADS, tenant, _UNTIL, [(payload, until) for _, payload, until in moved])
    return Moved(episodes=len(moved))


def shorten_sayings(tenant: UUID, untils: Sequence[Until]) -> Moved:
    """Let waiting sayings be kept until an earlier instant, each its own; a proposal follows the last of its sayings."""
    moved = _returned(_SAYINGS, tenant, _UNTIL, untils)
    rows.change(_PAYLOADS, tenant, _UNTIL, [(quote, until) for _, quote, until in moved if quote is not None])
    if not moved:
        return Moved()
    asked = {"tenant": tenant, "candidates": sorted({each[0] for each in moved})}
    candidates = rows.fetch(_CANDIDATES, asked)
    rows.change(_PAYLOADS, tenant, _UNTIL, [(payload, until) for payload, until in candidates if payload is not None])
    return Moved(candidates=len(candidates))


def locked_keys(tenant: UUID, keys: Sequence[UUID]) -> set[UUID]:
    """Lock fact keys that nobody holds, and return them: a writer's is passed over, so that no circle of waiting closes."""
    return {row[0] for row in rows.fetch(_LOCK_KEYS, [tenant, sorted(set(keys))])} if keys else set()


_EXTENDED = """
UPDATE memory_evidence e SET expires_at = %(until)s::timestamptz
WHERE e.tenant_id = %(tenant)s::uuid AND e.fact_id = %(fact)s::uuid AND e.retracted_at IS NULL AND NOT e.is_end
  AND e.expires_at = (SELECT max(x.expires_at) FROM memory_evidence x WHERE x.tenant_id = e.tenant_id
    AND x.fact_id = e.fact_id AND x.retracted_at IS NULL AND NOT x.is_end)
RETURNING e.quote_id
"""
_EXTENDED_FACT = """
UPDATE memory_fact f SET expires_at = %(until)s::timestamptz, review_at = %(review_at)s::timestamptz
WHERE f.tenant_id = %(tenant)s::uuid AND f.id = %(fact)s::uuid RETURNING f.payload_id
"""
_EXTENDED_PAYLOADS = """
UPDATE memory_payload p SET expires_at = %(until)s::timestamptz
WHERE p.tenant_id = %(tenant)s::uuid AND p.id = ANY (%(payloads)s::uuid[]) AND p.expires_at < %(until)s::timestamptz
"""


def extend_fact(tenant: UUID, fact: UUID, until: datetime, review_at: datetime) -> None:
    """Let a fact be kept until a later instant, with the evidence that gave it its end; looked at again on `review_at`.

    Its key must be locked. The database allows it while an approval of it stands, and only then.
    """
    given: dict[str, Any] = {"tenant": tenant, "fact": fact, "until": until, "review_at": review_at}
    quotes = [row[0] for row in rows.fetch(_EXTENDED, given) if row[0] is not None]
    values = [row[0] for row in rows.fetch(_EXTENDED_FACT, given)]
    rows.execute(_EXTENDED_PAYLOADS, {**given, "payloads": [*quotes, *values]})


def review(tenant: UUID, fact: UUID, review_at: datetime) -> None:
    """Let somebody look at a fact again on a date. Its key must be locked."""
    rows.execute(
        "UPDATE memory_fact f SET review_at = %s::timestamptz WHERE f.tenant_id = %s::uuid AND f.id = %s::uuid",
        [review_at, tenant, fact],
    )


# occasions ------------------------------------------------------------------------------------------------------------

#: What was written by a transaction that began before the occasion was seen is brought in too: the clock runs so much
#: longer at most, and a second look follows.
IN_FLIGHT = "interval '10 minutes'"

_OF_SESSION = """
  AND t.kind = 'session' AND e.session_id = t.ref AND e.basis = 'session'
  AND (e.writer_id = t.writer_id OR {confirmed})
"""
# What a person confirmed rests on the session in which an agent of it said the same.
_CONFIRMED_OF_SESSION = """e.source = 'confirmation' AND EXISTS (SELECT FROM memory_evidence o
    WHERE o.tenant_id = e.tenant_id AND o.fact_id = e.fact_id AND o.session_id = t.ref AND o.writer_id = t.writer_id)"""
_OF_CONTRACT = "  AND t.kind = 'contract' AND e.contract_ref = t.ref AND e.basis = 'contract'"

_EVIDENCE_OF_TERM = """
SELECT e.id, e.key_id, t.due_at[e.sensitivity + 1]
FROM memory_term t
  JOIN memory_evidence e ON e.tenant_id = t.tenant_id AND e.expires_at > t.due_at[e.sensitivity + 1]
    AND e.written_at <= t.ended_at + {in_flight} {of}
  JOIN memory_factkey k ON k.tenant_id = e.tenant_id AND k.id = e.key_id AND (t.subject_id IS NULL OR k.subject_id = t.subject_id)
WHERE t.tenant_id = %s::uuid AND t.id = %s::uuid LIMIT %s
"""
_EPISODES_OF_TERM = """
SELECT e.id, t.due_at[e.sensitivity + 1]
FROM memory_term t
  JOIN memory_episode e ON e.tenant_id = t.tenant_id AND e.expires_at > t.due_at[e.sensitivity + 1]
    AND e.recorded_at <= t.ended_at + {in_flight} AND (t.subject_id IS NULL OR e.subject_id = t.subject_id) {of}
WHERE t.tenant_id = %s::uuid AND t.id = %s::uuid LIMIT %s FOR NO KEY UPDATE OF e SKIP LOCKED
"""
_SAYINGS_OF_TERM = """
SELECT e.id, t.due_at[e.sensitivity + 1]
FROM memory_term t
  JOIN memory_candidatesaying e ON e.tenant_id = t.tenant_id AND e.expires_at > t.due_at[e.sensitivity + 1]
    AND e.said_at <= t.ended_at + {in_flight} {of}
  JOIN memory_candidate c ON c.tenant_id = e.tenant_id AND c.id = e.candidate_id
    AND (t.subject_id IS NULL OR c.subject_id = t.subject_id)
WHERE t.tenant_id = %s::uuid AND t.id = %s::uuid LIMIT %s FOR NO KEY UPDATE OF e SKIP LOCKED
"""


def _both(sql: str, *, confirmed: str = "false") -> dict[str, str]:
    return {
        "session": sql.format(in_flight=IN_FLIGHT, of=_OF_SESSION.format(confirmed=confirmed)),
        "contract": sql.format(in_flight=IN_FLIGHT, of=_OF_CONTRACT),
    }


_BY_TERM = (
    _both(_EVIDENCE_OF_TERM, confirmed=_CONFIRMED_OF_SESSION),
    _both(_EPISODES_OF_TERM),
    _both(_SAYINGS_OF_TERM),
)


def run_out(tenant: UUID, terms: Sequence[UUID]) -> Outcomes:
    """Let what rests on sessions that were closed, or on contracts that ended, run out as was said then; a chunk a call.

    The handler of `term.ended`: while there is more it says so, and where a writer holds a key it comes again.
    """
    kinds = dict(
        rows.fetch(
            "SELECT t.id, t.kind FROM memory_term t WHERE t.tenant_id = %s AND t.id = ANY(%s)", [tenant, list(terms)]
        )
    )
    outcomes: Outcomes = {}
    events = []
    for term, kind in kinds.items():
        of_evidence, of_episodes, of_sayings = (each[kind] for each in _BY_TERM)
        said = rows.fetch(of_evidence, [tenant, term, CHUNK])
        mine = locked_keys(tenant, [key for _, key, _ in said])
        free = [(evidence, until) for evidence, key, until in said if key in mine]
        episodes = rows.fetch(of_episodes, [tenant, term, CHUNK])
        sayings = rows.fetch(of_sayings, [tenant, term, CHUNK])
        one, two, three = (
            shorten_evidence(tenant, free),
            shorten_episodes(tenant, episodes),
            shorten_sayings(tenant, sayings),
        )
        moved = Moved(one.evidence, one.facts, two.episodes, three.candidates)
        if CHUNK in (len(said), len(episodes), len(sayings)) and moved:
            outcomes[term] = Settled.MORE
        elif len(free) < len(said):
            outcomes[term] = Settled.AGAIN
        if moved:
            events.append(_event(tenant, "term", term, f"{kind}_over", moved))
    append(events)
    return outcomes


# consents -------------------------------------------------------------------------------------------------------------

_EVIDENCE_OF_CONSENT = """
SELECT e.id, e.key_id, c.withdrawn_at
FROM policies_consent c
  JOIN memory_evidence e ON e.tenant_id = c.tenant_id AND e.consent_id = c.id AND e.basis = 'consent'
    AND e.expires_at > c.withdrawn_at
WHERE c.tenant_id = %s::uuid AND c.id = %s::uuid AND c.withdrawn_at IS NOT NULL LIMIT %s
"""
_EPISODES_OF_CONSENT = """
SELECT e.id, c.withdrawn_at
FROM policies_consent c
  JOIN memory_episode e ON e.tenant_id = c.tenant_id AND e.consent_id = c.id AND e.basis = 'consent'
    AND e.expires_at > c.withdrawn_at
WHERE c.tenant_id = %s::uuid AND c.id = %s::uuid LIMIT %s FOR NO KEY UPDATE OF e SKIP LOCKED
"""
_SAYINGS_OF_CONSENT = """
SELECT e.id, c.withdrawn_at
FROM policies_consent c
  JOIN memory_candidatesaying e ON e.tenant_id = c.tenant_id AND e.consent_id = c.id AND e.basis = 'consent'
    AND e.expires_at > c.withdrawn_at
WHERE c.tenant_id = %s::uuid AND c.id = %s::uuid LIMIT %s FOR NO KEY UPDATE OF e SKIP LOCKED
"""


def run_out_unconsented(tenant: UUID, consent: UUID) -> tuple[Moved, Settled]:
    """Let what rests on a withdrawn consent be overdue since the withdrawal; a chunk a call, and whether more remains.

    What rests on another basis, or on another consent that stands, keeps its date. Nobody saw any of it since: that is the
    consent's own condition at every read.
    """
    said = rows.fetch(_EVIDENCE_OF_CONSENT, [tenant, consent, CHUNK])
    mine = locked_keys(tenant, [key for _, key, _ in said])
    free = [(evidence, until) for evidence, key, until in said if key in mine]
    episodes = rows.fetch(_EPISODES_OF_CONSENT, [tenant, consent, CHUNK])
    sayings = rows.fetch(_SAYINGS_OF_CONSENT, [tenant, consent, CHUNK])
    one = shorten_evidence(tenant, free)
    two = shorten_episodes(tenant, episodes)
    three = shorten_sayings(tenant, sayings)
    moved = Moved(one.evidence, one.facts, two.episodes, three.candidates)
    if len(free) < len(said):
        return moved, Settled.AGAIN
    more = CHUNK in (len(said), len(episodes), len(sayings)) and bool(moved)
    return moved, Settled.MORE if more else Settled.DONE


def end_unconsented(tenant: UUID, consents: Sequence[UUID]) -> Outcomes:
    """End what rests on withdrawn consents: facts are marked, and everything else that rests on them is overdue.

    The handler of `consent.withdrawn`, a chunk a call.
    """
    outcomes = endings.end_unconsented(tenant, consents)
    events = []
    for consent in consents:
        moved, settled = run_out_unconsented(tenant, consent)
        if settled is not Settled.DONE and outcomes.get(consent) is not Settled.MORE:
            outcomes[consent] = settled
        if moved:
            events.append(_event(tenant, "consent", consent, "consent_withdrawn", moved))
    append(events)
    return outcomes


def _event(tenant: UUID, kind: str, target: UUID, reason: str, moved: Moved) -> Event:
    return Event(
        actor=worker(tenant),
        action=Action.LIFETIMES_SHORTENED,
        target_kind=kind,
        target_id=target,
        reason=reason,
        numbers=moved.numbers(),
    )
