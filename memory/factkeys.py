"""Fact keys as one write meets them: locked, then read as far as its acts need, and moved on to the acts that happened.

Joins are written in execution order. What is read of a key is read in a statement after its lock, whose own snapshot may
be older than that.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from memory import rows
from memory.ledger import BeliefState, Chain, FactState, KeyState
from memory.reconcile import Saying
from memory.sayings import Prepared
from tenants.identity import new_id

#: Keys by (subject, attribute).
Keys = dict[tuple[UUID, UUID], KeyState]


# locking --------------------------------------------------------------------------------------------------------------

_LOCK = """
INSERT INTO memory_factkey AS k (tenant_id, id, subject_id, attribute_id, act_no, newest_at)
SELECT %s::uuid, w.id, w.subject_id, w.attribute_id, w.acts, CASE WHEN w.imports THEN NULL ELSE clock_timestamp() END
FROM unnest(%s::uuid[], %s::uuid[], %s::uuid[], %s::int[], %s::boolean[]) AS w (id, subject_id, attribute_id, acts, imports)
ORDER BY w.subject_id, w.attribute_id
ON CONFLICT (tenant_id, subject_id, attribute_id) DO UPDATE SET
  act_no = k.act_no + excluded.act_no,
  newest_at = CASE WHEN excluded.newest_at IS NULL THEN k.newest_at
    ELSE greatest(clock_timestamp(), k.newest_at + excluded.act_no * interval '1 microsecond') END
RETURNING k.id, k.subject_id, k.attribute_id, k.chain_no, k.act_no, k.newest_at, xmax = 0, clock_timestamp()
"""


@dataclass(slots=True)
class _Acts:
    """What the acts of one transaction will ask of a key."""

    multi: bool
    count: int = 0
    imports: bool = False
    corrects: bool = False
    digests: set[bytes] = field(default_factory=set)

    @property
    def deep(self) -> bool:
        """Whether they need all that stands, not only the last stretch."""
        return self.multi or self.count > 1 or self.corrects


def lock(tenant: UUID, items: Sequence[Prepared]) -> Keys:
    """Create and lock the keys of `items` in the order of (subject, attribute), and load of them what the acts need.

    One act each is foreseen, with its number and instant; `store_acts` takes back what did not happen.
    """
    wanted: dict[tuple[UUID, UUID], _Acts] = {}
    for item in items:
        acts = wanted.setdefault(item.key, _Acts(item.attribute.multi))
        acts.count += 1
        acts.imports = acts.imports or item.recorded_at is not None
        acts.corrects = acts.corrects or bool(item.targets)
        acts.digests.add(item.digest or b"")
    columns = [
        [new_id() for _ in wanted],
        [subject for subject, _ in wanted],
        [attribute for _, attribute in wanted],
        [acts.count for acts in wanted.values()],
        [acts.imports for acts in wanted.values()],
    ]
    keys: Keys = {}
    known: list[tuple[KeyState, _Acts]] = []
    for key_id, subject, attribute, chain_no, act_no, newest, fresh, clock in rows.fetch(_LOCK, [tenant, *columns]):
        acts = wanted[(subject, attribute)]
        # The statement moved newest_at past all acts of this transaction: they are recorded up to there.
        before = newest if acts.imports or newest is None else newest - timedelta(microseconds=acts.count)
        key = KeyState(
            id=key_id,
            subject_id=subject,
            attribute_id=attribute,
            chain_no=chain_no,
            multi=acts.multi,
            act_no=act_no - acts.count,
            newest_at=before,
            clock=clock if acts.imports or before is None else before,
            reserved=act_no,
            imports=acts.imports,
        )
        keys[(subject, attribute)] = key
        if not fresh:
            known.append((key, acts))
    _load(
        tenant,
        [key for key, _ in known],
        sorted((key.id, digest) for key, acts in known for digest in acts.digests),
        whole=[key for key, acts in known if acts.deep],
    )
    return keys


_GLANCE = """
SELECT k.id, k.chain_no, k.act_no, k.newest_at, clock_timestamp() FROM memory_factkey k
WHERE k.tenant_id = %s::uuid AND k.subject_id = %s::uuid AND k.attribute_id = %s::uuid
"""


def glance(tenant: UUID, item: Prepared) -> KeyState | None:
    """Return the key of `item` as it stands, without a lock; None where nothing was ever said."""
    found = rows.fetch(_GLANCE, [tenant, *item.key])
    if not found:
        return None
    key_id, chain_no, act_no, newest, clock = found[0]
    key = KeyState(
        id=key_id,
        subject_id=item.subject.id,
        attribute_id=item.attribute.id,
        chain_no=chain_no,
        multi=item.attribute.multi,
        act_no=act_no,
        newest_at=newest,
        clock=clock,
        reserved=act_no,
        imports=True,
    )
    _load(tenant, [key], [(key_id, item.digest or b"")], whole=[key] if key.multi or item.targets else [])
    return key


# loading --------------------------------------------------------------------------------------------------------------

_FACT = (
    "f.id, f.chain_no, f.value_digest, f.payload_id, f.sensitivity, f.basis, f.expires_at, f.consent_ids,"
    " f.confirmed, f.confidence, f.evidence_count, f.review_at, p.clear"
)
_OF_KEY = f"f.key_id, f.expires_at <= clock_timestamp(), f.consent_ids IS NOT NULL AND NOT consent_stands(f.consent_ids), {_FACT}"
_FACTS = f"""
WITH w AS MATERIALIZED (SELECT * FROM unnest(%(keys)s::uuid[], %(digests)s::bytea[]) AS u (key_id, digest))
SELECT {_OF_KEY}
FROM w CROSS JOIN LATERAL (
    SELECT * FROM memory_fact f WHERE f.tenant_id = %(tenant)s::uuid AND f.key_id = w.key_id AND f.value_digest = w.digest
      AND f.ended_at IS NULL OFFSET 0) f
  CROSS JOIN LATERAL (SELECT p.clear FROM memory_payload p WHERE p.tenant_id = %(tenant)s::uuid AND p.id = f.payload_id
    OFFSET 0) p
UNION
SELECT {_OF_KEY}
FROM (SELECT DISTINCT key_id FROM w) w CROSS JOIN LATERAL (
    (SELECT * FROM memory_fact f WHERE f.tenant_id = %(tenant)s::uuid AND f.key_id = w.key_id AND f.ended_at IS NULL
      AND f.expires_at <= clock_timestamp() LIMIT 200)
    UNION ALL
    (SELECT * FROM memory_fact f WHERE f.tenant_id = %(tenant)s::uuid AND f.key_id = w.key_id AND f.ended_at IS NULL
      AND f.consent_ids IS NOT NULL AND NOT consent_stands(f.consent_ids) LIMIT 200)) f
  CROSS JOIN LATERAL (SELECT p.clear FROM memory_payload p WHERE p.tenant_id = %(tenant)s::uuid AND p.id = f.payload_id
    OFFSET 0) p
"""

_LAST = """
SELECT w.key_id, b.id, b.evidence_id, b.fact_id, b.valid_from, b.valid_to, b.believed_from, e.valid_from, f.sensitivity
FROM unnest(%s::uuid[]) AS w (key_id)
  LEFT JOIN LATERAL (SELECT * FROM memory_belief b WHERE b.tenant_id = %s::uuid AND b.key_id = w.key_id
    AND b.believed_to IS NULL ORDER BY coalesce(b.valid_to, 'infinity'::timestamptz) DESC, b.valid_from DESC LIMIT 1) b ON true
  LEFT JOIN LATERAL (SELECT e.valid_from FROM memory_evidence e WHERE e.tenant_id = %s::uuid AND e.key_id = w.key_id
    AND e.retracted_at IS NULL ORDER BY e.valid_from DESC LIMIT 1) e ON true
  LEFT JOIN LATERAL (SELECT f.sensitivity FROM memory_fact f WHERE f.tenant_id = %s::uuid AND f.key_id = w.key_id
    AND f.ended_at IS NULL ORDER BY f.sensitivity DESC LIMIT 1) f ON true
"""
_SAYINGS = """
SELECT e.key_id, e.id, e.fact_id, e.is_end, e.valid_from, e.stated_to, e.rank, e.act_no, f.chain_no
FROM unnest(%s::uuid[]) AS w (key_id) CROSS JOIN LATERAL (SELECT * FROM memory_evidence e
    WHERE e.tenant_id = %s::uuid AND e.key_id = w.key_id AND e.retracted_at IS NULL OFFSET 0) e
  LEFT JOIN LATERAL (SELECT * FROM memory_fact x WHERE x.tenant_id = e.tenant_id AND x.id = e.fact_id OFFSET 0) f ON true
"""
_BELIEFS = """
SELECT b.key_id, b.id, b.chain_no, b.evidence_id, b.fact_id, b.valid_from, b.valid_to, b.believed_from
FROM unnest(%s::uuid[]) AS w (key_id) CROSS JOIN LATERAL (SELECT * FROM memory_belief b
    WHERE b.tenant_id = %s::uuid AND b.key_id = w.key_id AND b.believed_to IS NULL OFFSET 0) b
"""
_ONE_FACT = f"""
SELECT {_FACT}
FROM memory_fact f CROSS JOIN LATERAL (SELECT * FROM memory_payload x WHERE x.tenant_id = f.tenant_id AND x.id = f.payload_id OFFSET 0) p
WHERE f.tenant_id = %s::uuid AND f.id = %s::uuid AND f.ended_at IS NULL
"""


def _load(
    tenant: UUID, keys: Sequence[KeyState], values: Sequence[tuple[UUID, bytes]], *, whole: Sequence[KeyState]
) -> None:
    """Load of `keys` the facts of `values` (key, digest), what is overdue and the last stretch; of `whole` all that stands."""
    if not keys:
        return
    by_id = {key.id: key for key in keys}
    digests = {"tenant": tenant, "keys": [key for key, _ in values], "digests": [digest for _, digest in values]}
    facts, last, *chains = rows.fetch_all(
        [(_FACTS, digests), (_LAST, [list(by_id), tenant, tenant, tenant]), *_chain_queries(tenant, whole)]
    )
    _read_facts(by_id, facts)
    _read_last(by_id, last)
    _read_chains(whole, *chains)


def load_whole(tenant: UUID, keys: Sequence[KeyState]) -> None:
    """Load all standing evidence and all present beliefs of `keys`, in place of what was loaded of their chains."""
    _read_chains(keys, *rows.fetch_all(_chain_queries(tenant, keys)))


def load_fact(tenant: UUID, key: KeyState, fact_id: UUID) -> FactState | None:
    """Return a fact of the key, loaded where it was not; None where it has ended."""
    for fact in key.facts.values():
        if fact.id == fact_id:
            return fact
    for row in rows.fetch(_ONE_FACT, [tenant, fact_id]):
        fact = _fact(*row)
        key.facts[fact.digest] = fact
        return fact
    return None


def _fact(
    fact: UUID,
    chain_no: int,
    digest: bytes,
    payload: UUID,
    sensitivity: int,
    basis: str,
    expires_at: datetime | None,
    consents: list[UUID] | None,
    *rest: Any,
) -> FactState:
    consent_ids = None if consents is None else frozenset(consents)
    return FactState(fact, chain_no, bytes(digest), payload, sensitivity, basis, expires_at, consent_ids, *rest)


def _read_facts(keys: dict[UUID, KeyState], answer: Iterable[tuple[Any, ...]]) -> None:
    for key_id, expired, unconsented, *columns in answer:
        if expired or unconsented:
            keys[key_id].overdue.append((columns[0], "expired" if expired else "consent_withdrawn"))
        else:
            fact = _fact(*columns)
            keys[key_id].facts[fact.digest] = fact


def _read_last(keys: dict[UUID, KeyState], answer: Iterable[tuple[Any, ...]]) -> None:
    for key_id, belief, evidence, fact, valid_from, valid_to, believed_from, newest, sensitivity in answer:
        key = keys[key_id]
        key.sensitivity = max(key.sensitivity, sensitivity or 0)
        if key.multi:
            continue
        chain = Chain(key.chain_no, newest=newest)
        if newest is None:
            chain.sayings = {}
        if belief is not None:
            chain.held[belief] = BeliefState(belief, key.chain_no, evidence, fact, valid_from, valid_to, believed_from)
        key.chains[key.chain_no] = chain


def _chain_queries(tenant: UUID, keys: Sequence[KeyState]) -> list[rows.Query | None]:
    if not keys:
        return [None, None]
    ids = [key.id for key in keys]
    return [(_SAYINGS, [ids, tenant]), (_BELIEFS, [ids, tenant])]


def _read_chains(
    keys: Iterable[KeyState], sayings: Iterable[tuple[Any, ...]], beliefs: Iterable[tuple[Any, ...]]
) -> None:
    by_id = {key.id: key for key in keys}
    for key in by_id.values():
        key.chains = {} if key.multi else {key.chain_no: Chain(key.chain_no, sayings={})}
        key.ends = []
    for key_id, evidence, fact, is_end, valid_from, stated_to, rank, act_no, chain_no in sayings:
        key = by_id[key_id]
        saying = Saying(evidence, None if is_end else fact, valid_from, stated_to, rank, act_no)
        if key.multi and fact is None:
            key.ends.append(saying)
        else:
            _stand(key.chain(chain_no if key.multi else key.chain_no), saying)
    for key_id, belief, chain_no, evidence, fact, valid_from, valid_to, believed_from in beliefs:
        by_id[key_id].chain(chain_no).held[belief] = BeliefState(
            belief, chain_no, evidence, fact, valid_from, valid_to, believed_from
        )
    # An end that names no value belongs to every chain of a multi-valued key.
    for key in by_id.values():
        for chain in key.chains.values():
            for saying in key.ends:
                _stand(chain, saying)


def _stand(chain: Chain, saying: Saying) -> None:
    assert chain.sayings is not None
    chain.sayings[saying.id] = saying
    if chain.newest is None or saying.valid_from > chain.newest:
        chain.newest = saying.valid_from


# moving on ------------------------------------------------------------------------------------------------------------

_MOVE = """
UPDATE memory_factkey k SET newest_at = w.newest_at, act_no = w.act_no
FROM unnest(%s::uuid[], %s::timestamptz[], %s::bigint[]) AS w (id, newest_at, act_no)
WHERE k.tenant_id = %s::uuid AND k.id = w.id
"""
_MOVE_BACK = """
UPDATE memory_factkey k SET newest_at = (
  SELECT max(greatest(e.recorded_at, e.retracted_at)) FROM memory_evidence e WHERE e.tenant_id = k.tenant_id AND e.key_id = k.id)
FROM unnest(%s::uuid[]) AS w (id)
WHERE k.tenant_id = %s::uuid AND k.id = w.id
"""


def store_acts(tenant: UUID, keys: Iterable[KeyState]) -> None:
    """Store how far the acts moved keys, where that is not what `lock` foresaw. To be called once the acts are stored."""
    moved, back = [], []
    for key in keys:
        if key.imports or key.act_no > key.reserved:
            moved.append(key)
        elif key.act_no < key.reserved:
            back.append(key)
    if moved:
        columns = [[key.id for key in moved], [key.newest_at for key in moved], [key.act_no for key in moved]]
        rows.execute(_MOVE, [*columns, tenant])
    if back:
        # Acts that were foreseen and did not happen (asked, refused) leave no trace in what an import must follow.
        rows.execute(_MOVE_BACK, [[key.id for key in back], tenant])
