"""The ledger checks itself: after every act, what is believed of a key must be what its standing evidence says.

Read only, but for the mark of how far a key was checked.
"""

import logging
from collections.abc import Iterator, Sequence
from typing import Any
from uuid import UUID

from django.db import connection

from memory import rows
from memory.ledger import BeliefState, Chain, KeyState
from memory.outbox import GivenUp, Outcomes, Settled
from memory.reconcile import Plan, Saying, plan, stretches

_log = logging.getLogger("muniment.ledger")

#: A key of up to so many acts is checked after each. A larger one when it has grown by a sixteenth since it was checked,
#: so that what a check costs is bounded by what was written.
ALWAYS_UP_TO = 64
_SHARE = 16
#: Keys beyond this are left to whoever examines the ledger as a whole.
_NEVER_BEYOND = 200_000
_ACTS_AT_ONCE = 20_000

_ACTS = """
SELECT k.id, k.act_no, k.checked_act_no FROM memory_factkey k WHERE k.tenant_id = %s::uuid AND k.id = ANY(%s::uuid[])
"""
# One statement, hence one snapshot: keys, evidence and beliefs as they were after one and the same act, without a lock.
_SNAPSHOT = """
SELECT 'key', k.id, k.id, k.subject_id, k.attribute_id, a.cardinality = 'multi', k.chain_no, NULL::timestamptz, NULL::timestamptz,
  0, k.act_no
FROM memory_factkey k JOIN policies_attribute a ON a.tenant_id = k.tenant_id AND a.id = k.attribute_id
WHERE k.tenant_id = %(tenant)s::uuid AND k.id = ANY(%(keys)s::uuid[])
UNION ALL
SELECT 'evidence', e.key_id, e.id, NULL, e.fact_id, e.is_end, f.chain_no, e.valid_from, e.stated_to, e.rank, e.act_no
FROM memory_evidence e LEFT JOIN memory_fact f ON f.tenant_id = e.tenant_id AND f.id = e.fact_id
WHERE e.tenant_id = %(tenant)s::uuid AND e.key_id = ANY(%(keys)s::uuid[]) AND e.retracted_at IS NULL
UNION ALL
SELECT 'belief', b.key_id, b.id, b.evidence_id, b.fact_id, false, b.chain_no, b.valid_from, b.valid_to, 0, 0
FROM memory_belief b
WHERE b.tenant_id = %(tenant)s::uuid AND b.key_id = ANY(%(keys)s::uuid[]) AND b.believed_to IS NULL
"""
_FREE = """
SELECT k.id FROM memory_factkey k WHERE k.tenant_id = %s::uuid AND k.id = ANY(%s::uuid[])
ORDER BY k.subject_id, k.attribute_id FOR NO KEY UPDATE SKIP LOCKED
"""
_CHECKED = """
UPDATE memory_factkey k SET checked_act_no = w.act_no FROM unnest(%s::uuid[], %s::bigint[]) AS w (id, act_no)
WHERE k.tenant_id = %s::uuid AND k.id = w.id AND k.checked_act_no < w.act_no
"""


def check(tenant: UUID, keys: Sequence[UUID]) -> Outcomes:
    """Compare the present beliefs of `keys` with what their standing evidence says, in the worker's open transaction.

    A key that agrees is marked as checked up to its act; one that a writer holds just then comes again. One that does
    not agree is given up as `ledger_differs`, loudly: nothing is mended, since nobody can know yet which side is wrong.
    """
    agreed: dict[UUID, int] = {}
    outcomes: Outcomes = {}
    for part in _parts(tenant, keys):
        for key in _read(tenant, part):
            if all(_agrees(chain) for chain in key.chains.values()):
                agreed[key.id] = key.act_no
            else:
                outcomes[key.id] = GivenUp("ledger_differs")
    if outcomes:
        _log.critical("beliefs differ from their evidence", extra={"code": "ledger_differs", "count": len(outcomes)})
    # Only now, and only for the moment until the commit: writers wait for nothing that is computed.
    free = {row[0] for row in rows.fetch(_FREE, [tenant, list(agreed)])} if agreed else set()
    outcomes |= {key: Settled.AGAIN for key in agreed if key not in free}
    if free:
        marked = sorted(free)
        with connection.cursor() as cursor:
            cursor.execute(_CHECKED, [marked, [agreed[key] for key in marked], tenant])
    return outcomes


def _parts(tenant: UUID, keys: Sequence[UUID]) -> Iterator[list[UUID]]:
    """The keys that are worth a check now, in parts that fit into memory."""
    part: list[UUID] = []
    size = 0
    for key, acts, checked in rows.fetch(_ACTS, [tenant, list(keys)]):
        grown = acts - checked
        if grown <= 0 or acts > _NEVER_BEYOND or (acts > ALWAYS_UP_TO and grown * _SHARE < acts):
            continue
        if part and size + acts > _ACTS_AT_ONCE:
            yield part
            part, size = [], 0
        part.append(key)
        size += acts
    if part:
        yield part


def _read(tenant: UUID, keys: Sequence[UUID]) -> list[KeyState]:
    """The keys with their chains: standing sayings, and beliefs held now."""
    found: dict[str, list[tuple[Any, ...]]] = {"key": [], "evidence": [], "belief": []}
    for kind, *row in rows.fetch(_SNAPSHOT, {"tenant": tenant, "keys": list(keys)}):  # type: ignore[arg-type]
        found[kind].append(tuple(row))
    states: dict[UUID, KeyState] = {}
    for key, _, subject, attribute, multi, chain_no, _, _, _, act_no in found["key"]:
        states[key] = KeyState(key, subject, attribute, chain_no, multi, act_no, None, None)  # type: ignore[arg-type]
    sayings: dict[UUID, list[tuple[int, Saying]]] = {key: [] for key in states}
    for key, evidence, _, fact, is_end, chain_no, valid_from, stated_to, rank, act_no in found["evidence"]:
        saying = Saying(evidence, None if is_end else fact, valid_from, stated_to, rank, act_no)
        state = states[key]
        if state.multi and fact is None:
            # An end without a value belongs to every chain of the key.
            state.ends.append(saying)
        else:
            sayings[key].append((chain_no if state.multi else state.chain_no, saying))
    for key, belief, evidence, fact, _, chain_no, valid_from, valid_to, _, _ in found["belief"]:
        # Where a belief stands in a chain of no evidence, that chain says too much.
        states[key].chain(chain_no).held[belief] = BeliefState(
            belief, chain_no, evidence, fact, valid_from, valid_to, valid_from
        )
    for key, pairs in sayings.items():
        for chain_no, saying in pairs:
            chain = states[key].chain(chain_no)
            assert chain.sayings is not None
            chain.sayings[saying.id] = saying
    return list(states.values())


def _agrees(chain: Chain) -> bool:
    held = [belief.held() for belief in chain.held.values()]
    return plan(held, stretches((chain.sayings or {}).values())) == Plan((), ())
