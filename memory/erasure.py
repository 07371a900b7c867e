"""Removing content: the one place that does, and the rows that nothing needs afterwards.

Only `retention` calls it, in its own open transaction under `Role.WORKER`, with the hold lock shared and what is held
left out. Content is overwritten first; rows go in a later statement, so that a replica that follows changes never keeps
more than this database does. A row whose absence would let something else be read differently stays, without content.

Everything is done by sets: a thousand records take as many statements as one. Nothing here audits: the caller knows why.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from secrets import token_bytes
from uuid import UUID

from memory import rows
from memory.boundaries import Span, unneeded
from memory.idempotency import KEPT

#: Why facts end: the closed list of the database.
CAUSES = frozenset({"expired", "consent_withdrawn", "redacted", "erased"})
#: Who says which of some records are held: by kind (`fact`, `evidence`, `episode`, `candidate`, `subject`) and ids.
Held = Callable[[str, Sequence[UUID]], Collection[UUID]]


@dataclass(frozen=True, slots=True)
class Erased:
    """What a call removed: the records that it ended or removed, and how many rows of which kind."""

    records: tuple[UUID, ...] = ()
    counts: dict[str, int] = field(default_factory=dict)

    def __add__(self, other: "Erased") -> "Erased":
        return Erased((*self.records, *other.records), added(self.counts, other.counts))


def added(first: dict[str, int], second: dict[str, int]) -> dict[str, int]:
    """Return the sums of two sets of counts."""
    return {name: first.get(name, 0) + second.get(name, 0) for name in {**first, **second}}


# content --------------------------------------------------------------------------------------------------------------

# The worker may read no content, so whether any is there is told by the row's end alone.
_EMPTY = """
UPDATE memory_payload p SET clear = NULL, sealed = NULL, key_id = NULL, redaction_state = 'applied', ended_at = clock_timestamp()
WHERE p.tenant_id = %s::uuid AND p.id = ANY (%s::uuid[]) AND (p.ended_at IS NULL) IS TRUE AND p.purpose <> 'derived'
RETURNING p.purpose, p.sensitivity > 1
"""
_UNFIND = "DELETE FROM memory_searchentry e WHERE e.tenant_id = %s::uuid AND e.payload_id = ANY (%s::uuid[])"
_DERIVED_AMONG = """
SELECT p.id FROM memory_payload p WHERE p.tenant_id = %s::uuid AND p.id = ANY (%s::uuid[]) AND p.purpose = 'derived'
"""
_OWNERS = """
SELECT p.written_at, f.id FROM memory_payload p
  CROSS JOIN LATERAL (SELECT x.id FROM memory_fact x WHERE x.tenant_id = p.tenant_id AND x.payload_id = p.id OFFSET 0) f
WHERE p.tenant_id = %(tenant)s::uuid AND p.id = ANY (%(payloads)s::uuid[]) AND p.purpose = 'value' AND p.written_at > clock_timestamp() - %(since)s::interval
UNION ALL
SELECT p.written_at, e.id FROM memory_payload p
  CROSS JOIN LATERAL (SELECT x.id FROM memory_episode x WHERE x.tenant_id = p.tenant_id AND x.payload_id = p.id OFFSET 0) e
WHERE p.tenant_id = %(tenant)s::uuid AND p.id = ANY (%(payloads)s::uuid[]) AND p.purpose = 'episode' AND p.written_at > clock_timestamp() - %(since)s::interval
UNION ALL
SELECT p.written_at, c.id FROM memory_payload p
  CROSS JOIN LATERAL (SELECT x.id FROM memory_candidate x WHERE x.tenant_id = p.tenant_id AND x.payload_id = p.id OFFSET 0) c
WHERE p.tenant_id = %(tenant)s::uuid AND p.id = ANY (%(payloads)s::uuid[]) AND p.purpose = 'candidate' AND p.written_at > clock_timestamp() - %(since)s::interval
"""


def erase_payloads(tenant: UUID, payloads: Sequence[UUID]) -> Erased:
    """Overwrite the content of `payloads` with nothing, for good; the empty rows stay.

    What they were found by goes, and what remembered a request that wrote them. Derived texts among them are thrown away
    whole. Harmless to repeat: what is empty already is not counted.
    """
    if not payloads:
        return Erased()
    given = list(payloads)
    derived = [row[0] for row in rows.fetch(_DERIVED_AMONG, [tenant, given])]
    rows.throw_away(tenant, derived)
    # Before its text is gone: nobody ever finds a procedure without one that does not say so.
    rows.execute(_UNTOLD, [tenant, given])
    owners = rows.fetch(_OWNERS, {"tenant": tenant, "payloads": given, "since": _REMEMBERED})
    requests = _forget_requests(tenant, owners)
    return _emptied(tenant, given, {"derived": len(derived), "requests": requests})


def _emptied(tenant: UUID, payloads: Sequence[UUID], counts: dict[str, int]) -> Erased:
    if payloads:
        rows.execute(_UNFIND, [tenant, list(payloads)])
        for purpose, above_internal in rows.fetch(_EMPTY, [tenant, list(payloads)]):
            # What is personal stands sealed, always; what is not may stand in clear.
            for name in (_COUNTED[purpose], "sealed" if above_internal else "clear"):
                counts[name] = counts.get(name, 0) + 1
    return Erased((), {name: count for name, count in counts.items() if count})


# Whoever asks for a procedure whose text has ended is told so: there is nothing to act by.
_UNTOLD = (
    "UPDATE memory_procedureversion v SET redaction_state = 'applied', redaction_fields = '{body}'"
    " WHERE v.tenant_id = %s::uuid AND v.payload_id = ANY (%s::uuid[])"
)
#: What payloads are counted as.
_COUNTED = {
    "value": "values",
    "quote": "quotes",
    "episode": "texts",
    "candidate": "proposals",
    "export": "exports",
    "subject": "names",
    "alias": "names",
    "procedure": "procedures",
}

# A record of a request is made at the instant of what it wrote, to the microsecond, and found by that; a retraction is
# recorded within moments of it.
_REMEMBERED = KEPT + timedelta(days=1)
_FORGET_REQUESTS = """
DELETE FROM memory_idempotencyrecord r USING unnest(%s::timestamptz[], %s::text[]) AS w (at, name)
WHERE r.tenant_id = %s::uuid AND r.created_at BETWEEN w.at - interval '2 seconds' AND w.at + interval '2 seconds'
  AND strpos(r.outcome::text, w.name) > 0
"""
_ANY_REQUESTS = """
SELECT EXISTS (SELECT FROM memory_idempotencyrecord r WHERE r.tenant_id = %s::uuid
  AND r.created_at BETWEEN %s::timestamptz - interval '2 seconds' AND %s::timestamptz + interval '2 seconds')
"""
_FORGET_REQUESTS_AT = """
DELETE FROM memory_idempotencyrecord r USING unnest(%s::timestamptz[], %s::text[]) AS w (at, name)
WHERE r.tenant_id = %s::uuid AND r.created_at = w.at AND strpos(r.outcome::text, w.name) > 0
"""


def _forget_requests(tenant: UUID, named: Sequence[tuple[datetime, UUID]], *, about: bool = False) -> int:
    """Delete what is remembered of requests that name these ids, made at that instant or `about` then; return how much."""
    if not named:
        return 0
    times = [at for at, _ in named]
    # Most often nobody asked for any of it by a request that is remembered: then the names need not travel.
    if not rows.fetch(_ANY_REQUESTS, [tenant, min(times), max(times)])[0][0]:
        return 0
    statement = _FORGET_REQUESTS if about else _FORGET_REQUESTS_AT
    found = rows.fetch(statement + " RETURNING r.id", [times, [str(name) for _, name in named], tenant])
    return len(found)


# derived --------------------------------------------------------------------------------------------------------------

_RESTING_ON = """
SELECT d.payload_id FROM memory_derivedsource s
  CROSS JOIN LATERAL (SELECT x.payload_id FROM memory_derived x WHERE x.tenant_id = s.tenant_id AND x.id = s.derived_id OFFSET 0) d
WHERE s.tenant_id = %(tenant)s::uuid AND s.fact_id = ANY (%(facts)s::uuid[]) AND d.payload_id IS NOT NULL
UNION
SELECT d.payload_id FROM memory_derived d
WHERE d.tenant_id = %(tenant)s::uuid AND d.subject_id = ANY (%(subjects)s::uuid[]) AND d.kind = 'context' AND d.payload_id IS NOT NULL
"""


def throw_away_derived(tenant: UUID, *, facts: Sequence[UUID] = (), subjects: Collection[UUID] = ()) -> int:
    """Throw away every text that rests on one of `facts`, and every kept context of `subjects`; return how many.

    A context may rest on anything of its subject, so it goes with anything of it.
    """
    given = {"tenant": tenant, "facts": list(facts), "subjects": list(subjects)}
    texts = [row[0] for row in rows.fetch(_RESTING_ON, given)] if facts or subjects else []
    rows.throw_away(tenant, texts)
    return len(texts)


# facts ----------------------------------------------------------------------------------------------------------------

_LOCK_KEYS = """
SELECT 1 FROM memory_factkey k WHERE k.tenant_id = %s::uuid AND k.id = ANY (%s::uuid[])
ORDER BY k.subject_id, k.attribute_id FOR NO KEY UPDATE
"""
_KEYS_OF = "SELECT f.key_id, f.subject_id FROM memory_fact f WHERE f.tenant_id = %s::uuid AND f.id = ANY (%s::uuid[])"
# What ended before for a lesser cause ends for this one now: a fact that expired may still be redacted, and be erased.
_END_FACTS = """
UPDATE memory_fact f SET ended_at = coalesce(f.ended_at, %(now)s::timestamptz), ended_by = %(cause)s,
  redaction_state = CASE WHEN %(cause)s = 'redacted' THEN 'applied' ELSE f.redaction_state END
WHERE f.tenant_id = %(tenant)s::uuid AND f.id = ANY (%(facts)s::uuid[])
  AND (f.ended_at IS NULL OR f.ended_by <> %(cause)s AND %(cause)s IN ('redacted', 'erased'))
RETURNING f.id
"""
_HELD_BY_FACTS = """
SELECT 'value', f.payload_id, f.id, f.created_at, NULL::timestamptz FROM memory_fact f
WHERE f.tenant_id = %(tenant)s::uuid AND f.id = ANY (%(facts)s::uuid[])
UNION ALL
SELECT 'said', e.quote_id, e.id, e.written_at, e.retracted_at FROM memory_evidence e
WHERE e.tenant_id = %(tenant)s::uuid AND e.fact_id = ANY (%(facts)s::uuid[])
"""
_DECIDED = """
SELECT c.id FROM memory_candidate c WHERE c.tenant_id = %s::uuid AND c.evidence_id = ANY (%s::uuid[])
"""
# Proposals of the very value, under whatever state: what is redacted or erased is not proposed any more either.
_PROPOSED = """
SELECT c.id FROM memory_fact f
  CROSS JOIN LATERAL (SELECT x.attribute_id FROM memory_factkey x WHERE x.tenant_id = f.tenant_id AND x.id = f.key_id OFFSET 0) k
  CROSS JOIN LATERAL (SELECT x.id, x.attribute_id, x.value_digest FROM memory_candidate x
    WHERE x.tenant_id = f.tenant_id AND x.subject_id = f.subject_id OFFSET 0) c
WHERE f.tenant_id = %s::uuid AND f.id = ANY (%s::uuid[]) AND c.attribute_id = k.attribute_id AND c.value_digest = f.value_digest
"""


def end_facts(tenant: UUID, facts: Sequence[UUID], cause: str, now: datetime) -> Erased:
    """End `facts` and remove what they held: value, quotes, what was proposed of it, and derived texts that rest on it.

    Facts that ended before lose what content is left of them. Their keys are locked, waiting for writers; their stretches
    and evidence stay, as boundaries without content. `cause` is one of `CAUSES`; a fact that is `redacted` shows as a
    tombstone from now on, any other as nothing. Returns the facts that ended now.
    """
    if cause not in CAUSES:
        raise ValueError("no cause of an ending")
    if not facts:
        return Erased()
    given = list(facts)
    found = rows.fetch(_KEYS_OF, [tenant, given])
    rows.execute(_LOCK_KEYS, [tenant, list({row[0] for row in found})])
    ended = [row[0] for row in rows.fetch(_END_FACTS, {"tenant": tenant, "facts": given, "cause": cause, "now": now})]
    counts = {
        "facts": len(ended),
        "derived": throw_away_derived(tenant, facts=given, subjects={row[1] for row in found}),
    }
    held = rows.fetch(_HELD_BY_FACTS, {"tenant": tenant, "facts": given})
    said = [row[2] for row in held if row[0] == "said"]
    candidates = {row[0] for row in rows.fetch(_DECIDED, [tenant, said])} if said else set()
    if cause in ("redacted", "erased"):
        candidates |= {row[0] for row in rows.fetch(_PROPOSED, [tenant, given])}
    fresh = now - _REMEMBERED
    named = [(row[3], row[2]) for row in held if row[3] > fresh]
    taken_back = [(row[4], row[2]) for row in held if row[4] is not None and row[4] > fresh]
    counts["requests"] = _forget_requests(tenant, named) + _forget_requests(tenant, taken_back, about=True)
    emptied = _emptied(tenant, [row[1] for row in held if row[1] is not None], counts)
    return Erased(tuple(ended)) + emptied + Erased((), end_candidates(tenant, sorted(candidates), cause, now).counts)


# What a fact's end takes along beside its evidence: what it was accepted from, and proposals that hold the same quote.
_TAKEN_ALONG = """
SELECT e.fact_id, c.id FROM memory_evidence e
  CROSS JOIN LATERAL (SELECT x.id FROM memory_candidate x WHERE x.tenant_id = e.tenant_id AND x.evidence_id = e.id OFFSET 0) c
WHERE e.tenant_id = %(tenant)s::uuid AND e.fact_id = ANY (%(facts)s::uuid[])
UNION
SELECT e.fact_id, s.candidate_id FROM memory_evidence e
  CROSS JOIN LATERAL (SELECT x.candidate_id FROM memory_candidatesaying x
    WHERE x.tenant_id = e.tenant_id AND x.quote_id = e.quote_id OFFSET 0) s
WHERE e.tenant_id = %(tenant)s::uuid AND e.fact_id = ANY (%(facts)s::uuid[]) AND e.quote_id IS NOT NULL
"""
_SAME_VALUE = """
UNION
SELECT f.id, c.id FROM memory_fact f
  CROSS JOIN LATERAL (SELECT x.attribute_id FROM memory_factkey x WHERE x.tenant_id = f.tenant_id AND x.id = f.key_id OFFSET 0) k
  CROSS JOIN LATERAL (SELECT x.id, x.attribute_id, x.value_digest FROM memory_candidate x
    WHERE x.tenant_id = f.tenant_id AND x.subject_id = f.subject_id OFFSET 0) c
WHERE f.tenant_id = %(tenant)s::uuid AND f.id = ANY (%(facts)s::uuid[])
  AND c.attribute_id = k.attribute_id AND c.value_digest = f.value_digest
"""


def taken_along(tenant: UUID, facts: Sequence[UUID], cause: str) -> list[tuple[UUID, UUID]]:
    """Return (fact, candidate) for every proposal that loses content where `end_facts` ends these for that cause."""
    if not facts:
        return []
    statement = _TAKEN_ALONG + (_SAME_VALUE if cause in ("redacted", "erased") else "")
    return [(row[0], row[1]) for row in rows.fetch(statement, {"tenant": tenant, "facts": list(facts)})]


_SHARING = """
SELECT e.id, s.candidate_id FROM memory_evidence e
  CROSS JOIN LATERAL (SELECT x.candidate_id FROM memory_candidatesaying x
    WHERE x.tenant_id = e.tenant_id AND x.quote_id = e.quote_id OFFSET 0) s
WHERE e.tenant_id = %s::uuid AND e.id = ANY (%s::uuid[]) AND e.quote_id IS NOT NULL
"""


def sharing_quotes(tenant: UUID, evidence: Sequence[UUID]) -> list[tuple[UUID, UUID]]:
    """Return (evidence, candidate) for every proposal that holds the very quote of one of these."""
    return [(row[0], row[1]) for row in rows.fetch(_SHARING, [tenant, list(evidence)])] if evidence else []


_QUOTES_OF = """
SELECT e.quote_id FROM memory_evidence e WHERE e.tenant_id = %s::uuid AND e.id = ANY (%s::uuid[]) AND e.quote_id IS NOT NULL
"""
_UNQUOTE = """
UPDATE memory_evidence e SET quote_id = NULL WHERE e.tenant_id = %s::uuid AND e.id = ANY (%s::uuid[]) AND e.quote_id IS NOT NULL
RETURNING e.id
"""
_UNQUOTE_SAYINGS = """
UPDATE memory_candidatesaying s SET quote_id = NULL WHERE s.tenant_id = %s::uuid AND s.quote_id = ANY (%s::uuid[])
"""
_DELETE_PAYLOADS = "DELETE FROM memory_payload p WHERE p.tenant_id = %s::uuid AND p.id = ANY (%s::uuid[])"


_REDACTED_EVIDENCE = """
UPDATE memory_evidence e SET redaction_state = 'applied' WHERE e.tenant_id = %s::uuid AND e.id = ANY (%s::uuid[])
"""


def end_quotes(tenant: UUID, evidence: Sequence[UUID], cause: str) -> Erased:
    """Take from `evidence` its quotes, rows and all: what was said goes on marking its stretch without them.

    For evidence whose own life is over while other evidence keeps its fact, whose episode was erased, or which was
    `redacted` itself: then it says so from now on. Returns the evidence that had one.
    """
    if cause not in CAUSES:
        raise ValueError("no cause of an ending")
    if cause == "redacted" and evidence:
        rows.execute(_REDACTED_EVIDENCE, [tenant, list(evidence)])
    quotes = [row[0] for row in rows.fetch(_QUOTES_OF, [tenant, list(evidence)])] if evidence else []
    if not quotes:
        return Erased()
    emptied = _emptied(tenant, quotes, {})
    lost = [row[0] for row in rows.fetch(_UNQUOTE, [tenant, list(evidence)])]
    rows.execute(_UNQUOTE_SAYINGS, [tenant, quotes])
    rows.execute(_DELETE_PAYLOADS, [tenant, quotes])
    return Erased(tuple(lost), emptied.counts)


# episodes and candidates ----------------------------------------------------------------------------------------------

_END_EPISODES = """
UPDATE memory_episode e SET redaction_state = CASE WHEN %(cause)s IN ('redacted', 'erased') THEN 'applied' ELSE e.redaction_state END
FROM memory_payload p
WHERE e.tenant_id = %(tenant)s::uuid AND e.id = ANY (%(episodes)s::uuid[])
  AND p.tenant_id = e.tenant_id AND p.id = e.payload_id AND p.ended_at IS NULL
RETURNING e.id, e.payload_id, e.recorded_at, CASE WHEN e.subject_id IS NULL THEN p.key_id END, e.subject_id
"""


def end_episodes(tenant: UUID, episodes: Sequence[UUID], cause: str, now: datetime) -> Erased:
    """Remove the text of `episodes`. Their rows stay for what cites them; `redacted` and `erased` ones show as tombstones.

    Quotes from them are content of their own: a quote outlives its episode's expiry, and whoever redacts or erases an
    episode ends its quotes too (`quotes_of_episodes`). Returns the episodes that had a text.
    """
    if cause not in CAUSES:
        raise ValueError("no cause of an ending")
    if not episodes:
        return Erased()
    found = rows.fetch(_END_EPISODES, {"tenant": tenant, "episodes": list(episodes), "cause": cause})
    about = {row[4] for row in found if row[4] is not None}
    counts = {"episodes": len(found), "derived": throw_away_derived(tenant, subjects=about)}
    counts["requests"] = _forget_requests(tenant, [(row[2], row[0]) for row in found if row[2] > now - _REMEMBERED])
    erased = Erased(tuple(row[0] for row in found)) + _emptied(tenant, [row[1] for row in found], counts)
    # An episode about nobody has a key of its own, which is of no more use.
    own = remove_data_keys(tenant, [row[3] for row in found if row[3] is not None])
    return erased + Erased((), {"data_keys": own} if own else {})


_QUOTED_FROM = """
SELECT e.id FROM memory_evidence e
WHERE e.tenant_id = %s::uuid AND e.episode_id = ANY (%s::uuid[]) AND e.quote_id IS NOT NULL
"""


def quotes_of_episodes(tenant: UUID, episodes: Sequence[UUID]) -> list[UUID]:
    """Return the evidence that quotes one of `episodes`."""
    return [row[0] for row in rows.fetch(_QUOTED_FROM, [tenant, list(episodes)])] if episodes else []


_WAITING_QUOTES = """
SELECT s.candidate_id, s.quote_id FROM memory_candidatesaying s
WHERE s.tenant_id = %s::uuid AND s.episode_id = ANY (%s::uuid[]) AND s.quote_id IS NOT NULL
  AND NOT EXISTS (SELECT FROM memory_evidence e WHERE e.tenant_id = s.tenant_id AND e.quote_id = s.quote_id)
"""


def waiting_quotes(tenant: UUID, episodes: Sequence[UUID]) -> list[tuple[UUID, UUID]]:
    """Return (candidate, quote) for everything that a proposal quotes from one of `episodes` and no evidence does."""
    return [(row[0], row[1]) for row in rows.fetch(_WAITING_QUOTES, [tenant, list(episodes)])] if episodes else []


def end_waiting_quotes(tenant: UUID, quotes: Sequence[UUID]) -> Erased:
    """Take from proposals these quotes, rows and all: what they propose goes on waiting without them.

    For quotes of which the episode was erased (`waiting_quotes`).
    """
    if not quotes:
        return Erased()
    emptied = _emptied(tenant, list(quotes), {})
    rows.execute(_UNQUOTE_SAYINGS, [tenant, list(quotes)])
    rows.execute(_DELETE_PAYLOADS, [tenant, list(quotes)])
    return emptied


_END_CANDIDATES = """
UPDATE memory_candidate c SET state = 'expired', decided_at = %(now)s::timestamptz, decision_reason = %(cause)s
WHERE c.tenant_id = %(tenant)s::uuid AND c.id = ANY (%(candidates)s::uuid[]) AND c.state IN ('asked', 'buffered')
"""
_MARK_CANDIDATES = """
UPDATE memory_candidate c SET redaction_state = 'applied'
WHERE c.tenant_id = %(tenant)s::uuid AND c.id = ANY (%(candidates)s::uuid[]) AND c.redaction_state <> 'applied'
"""
# A quote that has become evidence is that evidence's, and goes with its fact.
_HELD_BY_CANDIDATES = """
SELECT c.id, c.payload_id, c.created_at, c.subject_id FROM memory_candidate c
WHERE c.tenant_id = %(tenant)s::uuid AND c.id = ANY (%(candidates)s::uuid[])
UNION ALL
SELECT s.candidate_id, s.quote_id, s.said_at, NULL FROM memory_candidatesaying s
WHERE s.tenant_id = %(tenant)s::uuid AND s.candidate_id = ANY (%(candidates)s::uuid[])
  AND NOT EXISTS (SELECT FROM memory_evidence e WHERE e.tenant_id = s.tenant_id AND e.quote_id = s.quote_id)
"""


def end_candidates(tenant: UUID, candidates: Sequence[UUID], cause: str, now: datetime) -> Erased:
    """Remove what `candidates` propose, value and quotes; those that still waited have lapsed. Returns them all.

    A quote that became evidence stays with it.
    """
    if cause not in CAUSES:
        raise ValueError("no cause of an ending")
    if not candidates:
        return Erased()
    given = {"tenant": tenant, "candidates": list(candidates), "cause": cause, "now": now}
    rows.execute(_END_CANDIDATES, given)
    if cause in ("redacted", "erased"):
        rows.execute(_MARK_CANDIDATES, given)
    held = rows.fetch(_HELD_BY_CANDIDATES, given)
    named = [(row[2], row[0]) for row in held if row[2] > now - _REMEMBERED]
    about = {row[3] for row in held if row[3] is not None}
    counts = {"candidates": len(candidates), "requests": _forget_requests(tenant, named)}
    counts["derived"] = throw_away_derived(tenant, subjects=about)
    return Erased(tuple(candidates)) + _emptied(tenant, [row[1] for row in held if row[1] is not None], counts)


# rows that nothing needs ----------------------------------------------------------------------------------------------

# What expired, lost its consent or was erased is to leave no row; what is redacted leaves its tombstone for the rest of its
# life. Only what is empty.
_ENDED = """
SELECT f.id, f.key_id, f.chain_no, f.payload_id, s.first, s.last
FROM memory_fact f
  CROSS JOIN LATERAL (SELECT FROM memory_payload p WHERE p.tenant_id = f.tenant_id AND p.id = f.payload_id AND p.ended_at IS NOT NULL
    OFFSET 0) p
  CROSS JOIN LATERAL (SELECT min(e.valid_from) AS first, max(e.valid_from) AS last FROM memory_evidence e
    WHERE e.tenant_id = f.tenant_id AND e.fact_id = f.id AND e.retracted_at IS NULL) s
WHERE f.tenant_id = %s::uuid AND f.key_id = ANY (%s::uuid[]) AND f.ended_at IS NOT NULL
  AND (f.ended_by IN ('expired', 'consent_withdrawn', 'erased') OR f.expires_at <= clock_timestamp())
"""
_ENDS = """
SELECT e.id, e.key_id, e.valid_from, e.retracted_at IS NOT NULL,
  coalesce(e.expires_at <= clock_timestamp(), false) OR e.redaction_state = 'applied'
FROM memory_evidence e WHERE e.tenant_id = %s::uuid AND e.key_id = ANY (%s::uuid[]) AND e.fact_id IS NULL
"""
_EVIDENCE_OF = """
SELECT e.id, e.fact_id FROM memory_evidence e WHERE e.tenant_id = %s::uuid AND e.fact_id = ANY (%s::uuid[])
"""
_STAYING = """
SELECT e.key_id, f.chain_no, min(e.valid_from)
FROM memory_evidence e
  CROSS JOIN LATERAL (SELECT x.chain_no FROM memory_fact x WHERE x.tenant_id = e.tenant_id AND x.id = e.fact_id OFFSET 0) f
WHERE e.tenant_id = %s::uuid AND e.key_id = ANY (%s::uuid[]) AND e.retracted_at IS NULL
  AND NOT EXISTS (SELECT FROM unnest(%s::uuid[]) AS w (id) WHERE w.id = e.fact_id)
GROUP BY 1, 2
"""
_DELETE_BELIEFS = """
DELETE FROM memory_belief b WHERE b.tenant_id = %(tenant)s::uuid
  AND (b.fact_id = ANY (%(facts)s::uuid[]) OR b.evidence_id = ANY (%(evidence)s::uuid[]))
"""
_DELETE_EVIDENCE = """
DELETE FROM memory_evidence e WHERE e.tenant_id = %s::uuid AND e.id = ANY (%s::uuid[]) RETURNING e.episode_id, e.quote_id
"""
_DELETE_FACTS = """
DELETE FROM memory_fact f WHERE f.tenant_id = %s::uuid AND f.id = ANY (%s::uuid[]) RETURNING f.payload_id
"""
_DELETE_KEYS = """
DELETE FROM memory_factkey k WHERE k.tenant_id = %(tenant)s::uuid AND k.id = ANY (%(keys)s::uuid[])
  AND NOT EXISTS (SELECT FROM memory_fact f WHERE f.tenant_id = k.tenant_id AND f.key_id = k.id)
  AND NOT EXISTS (SELECT FROM memory_evidence e WHERE e.tenant_id = k.tenant_id AND e.key_id = k.id)
  AND NOT EXISTS (SELECT FROM memory_belief b WHERE b.tenant_id = k.tenant_id AND b.key_id = k.id)
RETURNING k.subject_id
"""


@dataclass(frozen=True, slots=True)
class Removed:
    """The rows that are gone, by kind; `keys`, `episodes` and `subjects` lost something and may be looked at next."""

    counts: dict[str, int]
    episodes: tuple[UUID, ...] = ()
    subjects: tuple[UUID, ...] = ()
    keys: tuple[UUID, ...] = ()


def remove_facts(tenant: UUID, keys: Sequence[UUID], held: Held) -> Removed:
    """Remove what ended in these fact keys and is needed as a boundary no more: facts, evidence, stretches, the keys too.

    A fact that ended stays while anything kept stands before it in its chain, while it is held, or its evidence is, and as
    a tombstone while it is redacted and its life not over. The keys are locked, waiting for writers.
    """
    if not keys:
        return Removed({})
    given = list(keys)
    rows.execute(_LOCK_KEYS, [tenant, given])
    ended, ends = rows.fetch(_ENDED, [tenant, given]), rows.fetch(_ENDS, [tenant, given])
    said = rows.fetch(_EVIDENCE_OF, [tenant, [row[0] for row in ended]])
    over = [row[0] for row in ends if row[4]]
    stopped = {*held("fact", [row[0] for row in ended]), *held("evidence", [*(row[0] for row in said), *over])}
    # A proposal that is held keeps what it shares with evidence: the quote's empty row, and so what points at it.
    shared = sharing_quotes(tenant, [row[0] for row in said])
    of_held = set(held("candidate", sorted({candidate for _, candidate in shared})))
    stopped |= {evidence for evidence, candidate in shared if candidate in of_held}
    stopped |= {fact for evidence, fact in said if evidence in stopped}
    ended = [row for row in ended if row[0] not in stopped]
    spans = [Span(fact, key, chain, first, last) for fact, key, chain, _, first, last in ended]
    staying: dict[tuple[object, object | None], datetime] = {}
    for key, chain, first in rows.fetch(_STAYING, [tenant, given, [row[0] for row in ended]]):
        staying[key, chain] = first
    for end, key, at, retracted, is_over in ends:
        if is_over and end not in stopped:
            spans.append(Span(end, key, None, None if retracted else at, None if retracted else at))
        elif not retracted and (place := (key, None)) and at < staying.get(place, at + _MOMENT):
            staying[place] = at
    gone = unneeded(spans, staying)
    facts = [row[0] for row in ended if row[0] in gone]
    evidence = [*(row[0] for row in said if row[1] in gone), *(row[0] for row in ends if row[0] in gone)]
    return _removed(tenant, given, facts, evidence)


_MOMENT = timedelta(microseconds=1)


def _removed(tenant: UUID, keys: Sequence[UUID], facts: Sequence[UUID], evidence: Sequence[UUID]) -> Removed:
    counts = {"facts": len(facts), "evidence": len(evidence)}
    episodes: set[UUID] = set()
    payloads: list[UUID] = []
    if facts or evidence:
        counts["stretches"] = rows.count(_DELETE_BELIEFS, {"tenant": tenant, "facts": facts, "evidence": evidence})
        for episode, quote in rows.fetch(_DELETE_EVIDENCE, [tenant, evidence]):
            episodes.update([] if episode is None else [episode])
            payloads += [] if quote is None else [quote]
        payloads += [row[0] for row in rows.fetch(_DELETE_FACTS, [tenant, facts])]
        rows.execute(_UNQUOTE_SAYINGS, [tenant, payloads])
        counts["payloads"] = rows.count(_DELETE_PAYLOADS, [tenant, payloads])
    emptied = rows.fetch(_DELETE_KEYS, {"tenant": tenant, "keys": list(keys)})
    counts["keys"] = len(emptied)
    return Removed(_more_than_none(counts), tuple(sorted(episodes)), tuple(sorted({row[0] for row in emptied})))


def _more_than_none(counts: dict[str, int]) -> dict[str, int]:
    return {name: count for name, count in counts.items() if count}


_UNCITED = """
SELECT e.id, e.payload_id, e.subject_id FROM memory_episode e
  CROSS JOIN LATERAL (SELECT FROM memory_payload p WHERE p.tenant_id = e.tenant_id AND p.id = e.payload_id AND p.ended_at IS NOT NULL
    OFFSET 0) p
WHERE e.tenant_id = %s::uuid AND e.id = ANY (%s::uuid[]) AND (e.redaction_state = 'none' OR e.expires_at <= clock_timestamp() OR %s)
  AND NOT EXISTS (SELECT FROM memory_evidence v WHERE v.tenant_id = e.tenant_id AND v.episode_id = e.id)
  AND NOT EXISTS (SELECT FROM memory_candidatesaying s WHERE s.tenant_id = e.tenant_id AND s.episode_id = e.id)
ORDER BY e.id FOR UPDATE OF e SKIP LOCKED
"""
_DELETE_EXTRACTIONS = "DELETE FROM memory_extraction x WHERE x.tenant_id = %s::uuid AND x.episode_id = ANY (%s::uuid[])"
_DELETE_EPISODES = "DELETE FROM memory_episode e WHERE e.tenant_id = %s::uuid AND e.id = ANY (%s::uuid[])"


def remove_episodes(tenant: UUID, episodes: Sequence[UUID], held: Held, *, tombstones: bool = False) -> Removed:
    """Remove those of `episodes` that are empty and cited by nothing, with what is told of drawing from them.

    One that shows as a tombstone stays for the rest of its life, unless `tombstones` go too. One that somebody holds a
    lock on is left.
    """
    found = rows.fetch(_UNCITED, [tenant, list(episodes), tombstones]) if episodes else []
    stopped = held("episode", [row[0] for row in found]) if found else ()
    found = [row for row in found if row[0] not in stopped]
    if not found:
        return Removed({})
    gone = [row[0] for row in found]
    rows.execute(_DELETE_EXTRACTIONS, [tenant, gone])
    count = rows.count(_DELETE_EPISODES, [tenant, gone])
    payloads = rows.count(_DELETE_PAYLOADS, [tenant, [row[1] for row in found]])
    subjects = {row[2] for row in found if row[2] is not None}
    return Removed({"episodes": count, "payloads": payloads}, (), tuple(sorted(subjects)))


_EMPTY_CANDIDATES = """
SELECT c.id, c.payload_id, c.subject_id FROM memory_candidate c
WHERE c.tenant_id = %s::uuid AND c.id = ANY (%s::uuid[]) AND c.state NOT IN ('asked', 'buffered')
  AND NOT EXISTS (SELECT FROM memory_payload p WHERE p.tenant_id = c.tenant_id AND p.id = c.payload_id AND p.ended_at IS NULL)
ORDER BY c.id FOR UPDATE OF c SKIP LOCKED
"""
_DELETE_SAYINGS = """
DELETE FROM memory_candidatesaying s WHERE s.tenant_id = %s::uuid AND s.candidate_id = ANY (%s::uuid[])
RETURNING s.episode_id, s.quote_id
"""
_KEYS_OF_CANDIDATES = """
SELECT k.id FROM memory_candidate c
  CROSS JOIN LATERAL (SELECT x.id FROM memory_factkey x WHERE x.tenant_id = c.tenant_id AND x.subject_id = c.subject_id
    AND x.attribute_id = c.attribute_id OFFSET 0) k
WHERE c.tenant_id = %s::uuid AND c.id = ANY (%s::uuid[])
"""
_DELETE_CANDIDATES = "DELETE FROM memory_candidate c WHERE c.tenant_id = %s::uuid AND c.id = ANY (%s::uuid[])"
_LOOSE = """
SELECT p.id FROM memory_payload p WHERE p.tenant_id = %s::uuid AND p.id = ANY (%s::uuid[]) AND p.ended_at IS NOT NULL
  AND NOT EXISTS (SELECT FROM memory_evidence e WHERE e.tenant_id = p.tenant_id AND e.quote_id = p.id)
  AND NOT EXISTS (SELECT FROM memory_candidatesaying s WHERE s.tenant_id = p.tenant_id AND s.quote_id = p.id)
  AND NOT EXISTS (SELECT FROM memory_candidate c WHERE c.tenant_id = p.tenant_id AND c.payload_id = p.id)
"""


def remove_candidates(tenant: UUID, candidates: Sequence[UUID], held: Held) -> Removed:
    """Remove those of `candidates` that are decided and empty, with their sayings. One that is locked is left."""
    found = rows.fetch(_EMPTY_CANDIDATES, [tenant, list(candidates)]) if candidates else []
    stopped = held("candidate", [row[0] for row in found]) if found else ()
    found = [row for row in found if row[0] not in stopped]
    if not found:
        return Removed({})
    gone = [row[0] for row in found]
    keys = {row[0] for row in rows.fetch(_KEYS_OF_CANDIDATES, [tenant, gone])}
    sayings = rows.fetch(_DELETE_SAYINGS, [tenant, gone])
    count = rows.count(_DELETE_CANDIDATES, [tenant, gone])
    emptied = [*(row[1] for row in found if row[1] is not None), *(quote for _, quote in sayings if quote is not None)]
    payloads = [row[0] for row in rows.fetch(_LOOSE, [tenant, emptied])]
    counts = {
        "candidates": count,
        "sayings": len(sayings),
        "payloads": rows.count(_DELETE_PAYLOADS, [tenant, payloads]),
    }
    episodes = {episode for episode, _ in sayings if episode is not None}
    subjects = {row[2] for row in found}
    return Removed(_more_than_none(counts), tuple(sorted(episodes)), tuple(sorted(subjects)), tuple(sorted(keys)))


# Whoever writes about a subject holds it: one that is held is left. The look comes after the lock.
_LOCK_SUBJECTS = """
SELECT s.id FROM memory_subject s WHERE s.tenant_id = %s::uuid AND s.id = ANY (%s::uuid[]) ORDER BY s.id FOR UPDATE SKIP LOCKED
"""
_NOTHING_LEFT = """
SELECT s.id, s.key_id, s.payload_id FROM memory_subject s WHERE s.tenant_id = %s::uuid AND s.id = ANY (%s::uuid[])
  AND NOT EXISTS (SELECT FROM memory_factkey x WHERE x.tenant_id = s.tenant_id AND x.subject_id = s.id)
  AND NOT EXISTS (SELECT FROM memory_episode x WHERE x.tenant_id = s.tenant_id AND x.subject_id = s.id)
  AND NOT EXISTS (SELECT FROM memory_candidate x WHERE x.tenant_id = s.tenant_id AND x.subject_id = s.id)
  AND NOT EXISTS (SELECT FROM memory_extraction x WHERE x.tenant_id = s.tenant_id AND x.subject_id = s.id)
  AND NOT EXISTS (SELECT FROM policies_consent x WHERE x.tenant_id = s.tenant_id AND x.subject_id = s.id)
"""
_NAMES_OF = """
SELECT i.payload_id FROM memory_subjectidentifier i WHERE i.tenant_id = %s::uuid AND i.subject_id = ANY (%s::uuid[])
"""
_DELETE_OF_SUBJECTS = {
    "names": "DELETE FROM memory_subjectidentifier x WHERE x.tenant_id = %s::uuid AND x.subject_id = ANY (%s::uuid[])",
    "derived": "DELETE FROM memory_derived x WHERE x.tenant_id = %s::uuid AND x.subject_id = ANY (%s::uuid[])",
    "subjects": "DELETE FROM memory_subject x WHERE x.tenant_id = %s::uuid AND x.id = ANY (%s::uuid[])",
}


def remove_subjects(tenant: UUID, subjects: Sequence[UUID], held: Held) -> Removed:
    """Remove those of `subjects` about whom nothing is left: names, and the key that sealed what there was.

    Whoever has a consent on record, withdrawn or not, stays: it proves what was allowed. One that somebody writes about
    just now is left.
    """
    free = [row[0] for row in rows.fetch(_LOCK_SUBJECTS, [tenant, list(subjects)])] if subjects else []
    found = rows.fetch(_NOTHING_LEFT, [tenant, free]) if free else []
    stopped = held("subject", [row[0] for row in found]) if found else ()
    found = [row for row in found if row[0] not in stopped]
    if not found:
        return Removed({})
    gone = [row[0] for row in found]
    names = {*(row[0] for row in rows.fetch(_NAMES_OF, [tenant, gone])), *(row[2] for row in found)}
    _emptied(tenant, sorted(names), {})
    counts = {name: rows.count(statement, [tenant, gone]) for name, statement in _DELETE_OF_SUBJECTS.items()}
    counts["payloads"] = rows.count(_DELETE_PAYLOADS, [tenant, sorted(names)])
    counts["data_keys"] = remove_data_keys(tenant, [row[1] for row in found])
    return Removed(_more_than_none(counts))


_DELETE_DATA_KEYS = """
DELETE FROM tenants_subjectkey k WHERE k.tenant_id = %s::uuid AND k.id = ANY (%s::uuid[])
  AND NOT EXISTS (SELECT FROM memory_subject s WHERE s.tenant_id = k.tenant_id AND s.key_id = k.id)
  AND NOT EXISTS (SELECT FROM memory_payload p WHERE p.tenant_id = k.tenant_id AND p.key_id = k.id)
"""


def remove_data_keys(tenant: UUID, keys: Sequence[UUID]) -> int:
    """Remove the wrapped data keys that neither a subject nor any content needs; return how many.

    That destroys nothing that is in a backup: there they can be unwrapped until the tenant's key has been rotated.
    """
    return rows.count(_DELETE_DATA_KEYS, [tenant, list(keys)]) if keys else 0


# a subject ------------------------------------------------------------------------------------------------------------

_END_SUBJECT = """
UPDATE memory_subject s SET ended_at = %s::timestamptz WHERE s.tenant_id = %s::uuid AND s.id = %s::uuid AND s.ended_at IS NULL
"""
_RELEASE = "DELETE FROM memory_subjectidentifier i WHERE i.tenant_id = %s::uuid AND i.subject_id = %s::uuid"


def release_names(tenant: UUID, subject: UUID, now: datetime) -> int:
    """End a subject, whose row is locked: from the commit on no name finds it, and nothing more is written about it.

    Whoever says one of its names afterwards speaks of another subject. What the names said goes by `end_names`. Returns
    how many there were.
    """
    rows.execute(_END_SUBJECT, [now, tenant, subject])
    return rows.count(_RELEASE, [tenant, subject])


_DELETE_ALIASES = """
DELETE FROM memory_payload p WHERE p.tenant_id = %s::uuid AND p.id = ANY (%s::uuid[]) AND p.purpose = 'alias'
"""
_LEFT_OF_DERIVED = "DELETE FROM memory_derived d WHERE d.tenant_id = %s::uuid AND d.subject_id = %s::uuid"


def end_names(tenant: UUID, subject: UUID, payloads: Sequence[UUID]) -> Erased:
    """Overwrite what the names of a released subject said, with whatever they are found by; aliases' rows go too."""
    erased = erase_payloads(tenant, payloads)
    rows.execute(_DELETE_ALIASES, [tenant, list(payloads)])
    rows.execute(_LEFT_OF_DERIVED, [tenant, subject])
    return erased


_END_ENDS = """
UPDATE memory_evidence e SET redaction_state = 'applied'
WHERE e.tenant_id = %s::uuid AND e.key_id = ANY (%s::uuid[]) AND e.fact_id IS NULL AND e.redaction_state <> 'applied'
"""


def end_ends(tenant: UUID, keys: Sequence[UUID]) -> None:
    """Let what was said to have ended, in keys of an erased subject, be over: it marks nothing that is kept."""
    rows.execute(_END_ENDS, [tenant, list(keys)])


_DELETE_CONSENTS = """
DELETE FROM policies_consent c WHERE c.tenant_id = %s::uuid AND c.subject_id = %s::uuid
  AND NOT EXISTS (SELECT FROM memory_evidence e WHERE e.tenant_id = c.tenant_id AND e.consent_id = c.id)
  AND NOT EXISTS (SELECT FROM memory_episode e WHERE e.tenant_id = c.tenant_id AND e.consent_id = c.id)
"""


def remove_consents(tenant: UUID, subject: UUID) -> int:
    """Remove the consents of an erased subject, but for those that what is kept names; return how many."""
    return rows.count(_DELETE_CONSENTS, [tenant, subject])


_OVERWRITE_KEY = """
UPDATE tenants_subjectkey k SET wrapped = %s::bytea FROM memory_subject s
WHERE k.tenant_id = %s::uuid AND s.tenant_id = k.tenant_id AND s.id = %s::uuid AND k.id = s.key_id
"""


def overwrite_data_key(tenant: UUID, subject: UUID) -> int:
    """Overwrite the wrapped data key of a subject with noise: what it sealed is not read again from this database.

    A copy of the row as it was can be unwrapped until the tenant's key has been rotated. The row goes by `remove_subject`.
    """
    return rows.count(_OVERWRITE_KEY, [token_bytes(60), tenant, subject])


def remove_subject(tenant: UUID, subject: UUID, held: Held) -> Removed:
    """Remove the row of an erased subject and its data key, where nothing points at it any more, and `held` lets it go."""
    return remove_subjects(tenant, [subject], held)
