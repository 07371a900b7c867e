"""Fact keys as one write meets them: locked, then read as far as its acts need, and moved on to the acts that happened.

Joins are written in execution order. What is read of a key is read in statements of their own after the one that locks
it, whose snapshot may be older than the lock. They travel together, and name keys by subject and attribute: the id of a
key need not be waited for.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from memory import rows
from memory.ledger import BeliefState, Chain, FactState, KeyState
from memory.reconcile import Saying
from memory.sayings import Prepared
from tenants.identity import new_id

#: Keys by (subject, attribute).
Keys = dict[tuple[UUID, UUID], KeyState]


# locking --------------------------------------------------------------------------------------------------------------

_NAMED = [("subject_id", "uuid"), ("attribute_id", "uuid")]
_LOCKED = [*_NAMED, ("id", "uuid"), ("acts", "int"), ("imports", "boolean")]
_LOCK = f"""
INSERT INTO memory_factkey AS k (tenant_id, id, subject_id, attribute_id, act_no, newest_at)
SELECT %(tenant)s::uuid, w.id, w.subject_id, w.attribute_id, w.acts, CASE WHEN w.imports THEN NULL ELSE clock_timestamp() END
FROM {rows.recordset("keys", _LOCKED)}
ORDER BY w.subject_id, w.attribute_id
ON CONFLICT (tenant_id, subject_id, attribute_id) DO UPDATE SET
  act_no = k.act_no + excluded.act_no,
  newest_at = CASE WHEN excluded.newest_at IS NULL THEN k.newest_at
    ELSE greatest(clock_timestamp(), k.newest_at + excluded.act_no * interval '1 microsecond') END
RETURNING k.subject_id, k.attribute_id, k.id, k.chain_no, k.act_no, k.newest_at, clock_timestamp()
"""


@dataclass(slots=True)
class _Acts:
    """What the acts of one transaction will ask of a key."""

    name: tuple[UUID, UUID]
    multi: bool
    count: int = 0
    imports: bool = False
    corrects: bool = False
    digests: set[bytes] = field(default_factory=set)

    @property
    def deep(self) -> bool:
        """Whether they need all that stands, not only the last stretch."""
        return self.multi or self.count > 1 or self.corrects

    @property
    def needs(self) -> "_Needs":
        """What is to be read of the key for them; nothing where they are its first."""
        return _Needs(self.name, None, self.count, self.digests, self.deep)


def lock(tenant: UUID, items: Sequence[Prepared]) -> Keys:
    """Create and lock the keys of `items` in the order of (subject, attribute), and load of them what the acts need.

    One act each is foreseen, with its number and instant; `store_acts` takes back what did not happen.
    """
    wanted: dict[tuple[UUID, UUID], _Acts] = {}
    for item in items:
        acts = wanted.setdefault(item.key, _Acts(item.key, item.attribute.multi))
        acts.count += 1
        acts.imports = acts.imports or item.recorded_at is not None
        acts.corrects = acts.corrects or bool(item.targets)
        acts.digests.add(item.digest or b"")
    columns = [name for name, _ in _LOCKED]
    asked = rows.as_json(columns, [(*name, new_id(), acts.count, acts.imports) for name, acts in wanted.items()])
    lock = (_LOCK, {"tenant": tenant, "keys": asked})
    if len(wanted) == 1:
        locked, *found = rows.fetch_all([lock, *_queries(_BY_NAME, tenant, [acts.needs for acts in wanted.values()])])
    else:
        locked, found = rows.fetch(*lock), []
    keys: Keys = {}
    for subject, attribute, key_id, chain_no, act_no, newest, clock in locked:
        acts = wanted[(subject, attribute)]
        # The statement moved newest_at past all acts of this transaction: they are recorded up to there.
        before = newest if acts.imports or newest is None else newest - timedelta(microseconds=acts.count)
        keys[(subject, attribute)] = KeyState(
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
    if found:
        _read(list(keys.values()), [acts.needs for acts in wanted.values()], found)
    else:
        # Those that were acted on before; where there are many, to find them again by name could cost as much each time.
        acted_on = [key for key in keys.values() if key.act_no]
        needs = [wanted[(key.subject_id, key.attribute_id)].needs._replace(key=key.id) for key in acted_on]
        _load(tenant, acted_on, needs)
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
    _load(tenant, [key], [_Needs(item.key, key_id, 0, {item.digest or b""}, key.multi or bool(item.targets))])
    return key


# loading --------------------------------------------------------------------------------------------------------------

_FACT = (
    "f.id, f.chain_no, f.value_digest, f.payload_id, f.sensitivity, f.basis, f.expires_at, f.consent_ids,"
    " f.confirmed, f.confidence, f.evidence_count, f.review_at, p.clear"
)
_ASKED = [("place", "int"), *_NAMED, ("key_id", "uuid"), ("acts", "int")]


class _Statements:
    """What asks for the state of keys, found in one way."""

    def __init__(self, key: str) -> None:
        # Of each key the newest valid_from, the highest class, what is overdue, the last stretch, and the facts of the
        # digests: a key comes in as many rows as it has such facts, or in one.
        self.state = f"""
SELECT w.place,
  (SELECT e.valid_from FROM memory_evidence e WHERE e.tenant_id = %(tenant)s::uuid AND e.key_id = k.id
    AND e.retracted_at IS NULL ORDER BY e.valid_from DESC LIMIT 1),
  (SELECT f.sensitivity FROM memory_fact f WHERE f.tenant_id = %(tenant)s::uuid AND f.key_id = k.id
    AND f.ended_at IS NULL ORDER BY f.sensitivity DESC LIMIT 1),
  ARRAY(SELECT f.id FROM memory_fact f WHERE f.tenant_id = %(tenant)s::uuid AND f.key_id = k.id AND f.ended_at IS NULL
    AND f.expires_at <= statement_timestamp() LIMIT 200),
  ARRAY(SELECT f.id FROM memory_fact f WHERE f.tenant_id = %(tenant)s::uuid AND f.key_id = k.id AND f.ended_at IS NULL
    AND f.consent_ids IS NOT NULL AND NOT consent_stands(f.consent_ids) LIMIT 200),
  b.id, b.evidence_id, b.fact_id, b.valid_from, b.valid_to, b.believed_from, f.*
FROM {rows.recordset("keys", [*_ASKED, ("digests", "text[]")])}
  CROSS JOIN LATERAL {key} AS k (id)
  LEFT JOIN LATERAL (SELECT * FROM memory_belief b WHERE b.tenant_id = %(tenant)s::uuid AND b.key_id = k.id
    AND b.believed_to IS NULL ORDER BY coalesce(b.valid_to, 'infinity'::timestamptz) DESC, b.valid_from DESC LIMIT 1) b ON true
  LEFT JOIN LATERAL (
    SELECT coalesce(f.expires_at <= statement_timestamp(), false),
      coalesce(f.consent_ids IS NOT NULL AND NOT consent_stands(f.consent_ids), false), {_FACT}
    FROM unnest(w.digests) AS d (digest)
      CROSS JOIN LATERAL (SELECT * FROM memory_fact f WHERE f.tenant_id = %(tenant)s::uuid AND f.key_id = k.id
        AND f.value_digest = decode(d.digest, 'hex') AND f.ended_at IS NULL OFFSET 0) f
      CROSS JOIN LATERAL (SELECT p.clear FROM memory_payload p WHERE p.tenant_id = %(tenant)s::uuid AND p.id = f.payload_id
        OFFSET 0) p
  ) f ON true
"""
        self.sayings = f"""
SELECT w.place, e.id, e.fact_id, e.is_end, e.valid_from, e.stated_to, e.rank, e.act_no, f.chain_no
FROM {rows.recordset("whole", _ASKED)}
  CROSS JOIN LATERAL {key} AS k (id)
  CROSS JOIN LATERAL (SELECT * FROM memory_evidence e WHERE e.tenant_id = %(tenant)s::uuid AND e.key_id = k.id
    AND e.retracted_at IS NULL OFFSET 0) e
  LEFT JOIN LATERAL (SELECT f.chain_no FROM memory_fact f WHERE f.tenant_id = %(tenant)s::uuid AND f.id = e.fact_id
    OFFSET 0) f ON true
"""
        self.beliefs = f"""
SELECT w.place, b.id, b.chain_no, b.evidence_id, b.fact_id, b.valid_from, b.valid_to, b.believed_from
FROM {rows.recordset("whole", _ASKED)}
  CROSS JOIN LATERAL {key} AS k (id)
  CROSS JOIN LATERAL (SELECT * FROM memory_belief b WHERE b.tenant_id = %(tenant)s::uuid AND b.key_id = k.id
    AND b.believed_to IS NULL OFFSET 0) b
"""


#: By subject and attribute; what was never acted on before this transaction is not looked into.
_BY_NAME = _Statements(
    "(SELECT k.id FROM memory_factkey k WHERE k.tenant_id = %(tenant)s::uuid AND k.subject_id = w.subject_id"
    " AND k.attribute_id = w.attribute_id AND k.act_no > w.acts OFFSET 0)"
)
_BY_ID = _Statements("(SELECT w.key_id OFFSET 0)")
_ONE_FACT = f"""
SELECT {_FACT}
FROM memory_fact f
  CROSS JOIN LATERAL (SELECT * FROM memory_payload x WHERE x.tenant_id = f.tenant_id AND x.id = f.payload_id OFFSET 0) p
WHERE f.tenant_id = %s::uuid AND f.id = %s::uuid AND f.ended_at IS NULL
"""


class _Needs(NamedTuple):
    """What acts need of a key, found by its name or its id: the facts of `digests`, and whether all that stands."""

    name: tuple[UUID, UUID]
    key: UUID | None
    #: How many acts this transaction foresees: a key that had no more is new.
    acts: int
    digests: Collection[bytes]
    whole: bool


def _queries(how: _Statements, tenant: UUID, needs: Sequence[_Needs]) -> list[rows.Query | None]:
    asked = [
        (place, *each.name, each.key, each.acts, [digest.hex() for digest in sorted(each.digests)])
        for place, each in enumerate(needs)
    ]
    columns = [name for name, _ in _ASKED]
    state = (how.state, {"tenant": tenant, "keys": rows.as_json([*columns, "digests"], asked)})
    whole = [each for each in needs if each.whole]
    if not whole:
        return [state, None, None]
    deep = [(place, *each.name, each.key, each.acts) for place, each in enumerate(whole)]
    given = {"tenant": tenant, "whole": rows.as_json(columns, deep)}
    return [state, (how.sayings, given), (how.beliefs, given)]


def _read(keys: Sequence[KeyState], needs: Sequence[_Needs], answers: Sequence[Sequence[tuple[Any, ...]]]) -> None:
    """Read the answers to `_queries`: of all keys what they hold, and of some all that stands too."""
    state, *chains = answers
    _read_state(keys, state)
    _read_chains([key for key, each in zip(keys, needs, strict=True) if each.whole], *chains)


def _load(tenant: UUID, keys: Sequence[KeyState], needs: Sequence[_Needs]) -> None:
    """Load what is needed of `keys`, which are known by their ids."""
    if keys:
        _read(keys, needs, rows.fetch_all(_queries(_BY_ID, tenant, needs)))


def load_whole(tenant: UUID, keys: Sequence[KeyState]) -> None:
    """Load all standing evidence and all present beliefs of `keys`, in place of what was loaded of their chains."""
    needs = [_Needs((key.subject_id, key.attribute_id), key.id, 0, (), True) for key in keys]
    _read_chains(keys, *rows.fetch_all(_queries(_BY_ID, tenant, needs)[1:]))


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


def _read_state(keys: Sequence[KeyState], answer: Iterable[tuple[Any, ...]]) -> None:
    for place, newest, sensitivity, expired, unconsented, *rest in answer:
        (belief, *stretch), (gone, hidden, fact_id, *fact) = rest[:6], rest[6:]
        key = keys[place]
        if fact_id is not None and not gone and not hidden:
            found = _fact(fact_id, *fact)
            key.facts[found.digest] = found
        elif fact_id is not None:
            (expired if gone else unconsented).append(fact_id)
        overdue = dict.fromkeys(unconsented, "consent_withdrawn") | dict.fromkeys(expired, "expired")
        key.overdue = list((dict(key.overdue) | overdue).items())
        key.sensitivity = sensitivity or 0
        if key.multi or key.chain_no in key.chains:
            continue
        chain = Chain(key.chain_no, newest=newest)
        if newest is None:
            chain.sayings = {}
        if belief is not None:
            chain.held[belief] = BeliefState(belief, key.chain_no, *stretch)
        key.chains[key.chain_no] = chain


def _read_chains(
    keys: Sequence[KeyState], sayings: Iterable[tuple[Any, ...]], beliefs: Iterable[tuple[Any, ...]]
) -> None:
    """Read all that stands of `keys`; rows name them by their places."""
    for key in keys:
        key.chains = {} if key.multi else {key.chain_no: Chain(key.chain_no, sayings={})}
        key.ends = []
    for place, evidence, fact, is_end, valid_from, stated_to, rank, act_no, chain_no in sayings:
        key = keys[place]
        saying = Saying(evidence, None if is_end else fact, valid_from, stated_to, rank, act_no)
        if key.multi and fact is None:
            key.ends.append(saying)
        else:
            _stand(key.chain(chain_no if key.multi else key.chain_no), saying)
    for place, belief, chain_no, evidence, fact, valid_from, valid_to, believed_from in beliefs:
        keys[place].chain(chain_no).held[belief] = BeliefState(
            belief, chain_no, evidence, fact, valid_from, valid_to, believed_from
        )
    # An end that names no value belongs to every chain of a multi-valued key.
    for key in keys:
        for chain in key.chains.values():
            for saying in key.ends:
                _stand(chain, saying)


def _stand(chain: Chain, saying: Saying) -> None:
    assert chain.sayings is not None
    chain.sayings[saying.id] = saying
    if chain.newest is None or saying.valid_from > chain.newest:
        chain.newest = saying.valid_from


# moving on ------------------------------------------------------------------------------------------------------------

_MOVED = [("id", "uuid"), ("newest_at", "timestamptz"), ("act_no", "bigint")]
_MOVE = f"""
UPDATE memory_factkey k SET newest_at = w.newest_at, act_no = w.act_no
FROM {rows.recordset("rows", _MOVED)}
WHERE k.tenant_id = %(tenant)s::uuid AND k.id = w.id
"""
_BACK = [("id", "uuid")]
_MOVE_BACK = f"""
UPDATE memory_factkey k SET newest_at = (
  SELECT max(greatest(e.recorded_at, e.retracted_at)) FROM memory_evidence e WHERE e.tenant_id = k.tenant_id AND e.key_id = k.id)
FROM {rows.recordset("rows", _BACK)}
WHERE k.tenant_id = %(tenant)s::uuid AND k.id = w.id
"""


def store_acts(tenant: UUID, keys: Iterable[KeyState]) -> None:
    """Store how far the acts moved keys, where that is not what `lock` foresaw. To be called once the acts are stored."""
    moved, back = [], []
    for key in keys:
        if key.imports or key.act_no > key.reserved:
            moved.append(key)
        elif key.act_no < key.reserved:
            back.append(key)
    rows.change(_MOVE, tenant, _MOVED, [(key.id, key.newest_at, key.act_no) for key in moved])
    # Acts that were foreseen and did not happen (asked, refused) leave no trace in what an import must follow.
    rows.change(_MOVE_BACK, tenant, _BACK, [(key.id,) for key in back])
