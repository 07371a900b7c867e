"""Legal holds: what may not end, whoever asks, for as long as a matter needs it.

A hold beats every ending, since both go by one lock a tenant: endings have it shared, whoever places a hold has it alone.
An ending that has the lock sees every hold there is, and none is placed until it has committed.
"""

from collections.abc import Collection, Sequence
from enum import StrEnum
from uuid import UUID

from django.db import connection

from memory import rows
from memory.erasure import sharing_quotes, taken_along
from tenants.actors import Actor
from tenants.identity import new_id


class Kind(StrEnum):
    """The kinds of record that a hold may cover. The list is closed in the database too."""

    FACT = "fact"
    EVIDENCE = "evidence"
    EPISODE = "episode"
    CANDIDATE = "candidate"
    SUBJECT = "subject"
    PROCEDURE = "procedure"


# the lock -------------------------------------------------------------------------------------------------------------


def share(tenant: UUID) -> None:
    """Take the hold lock as an ending does, to the end of the open transaction: before any other lock, row locks too.

    Waits while somebody places a hold. What is asked of `held` and `free` afterwards stays true until the commit.
    """
    _lock("SELECT pg_advisory_xact_lock_shared(hold_lock_no(%s::uuid))", tenant)


def take(tenant: UUID) -> None:
    """Take the hold lock as whoever places a hold does: waits for every ending that is under way to commit."""
    _lock("SELECT pg_advisory_xact_lock(hold_lock_no(%s::uuid))", tenant)


def _lock(statement: str, tenant: UUID) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement, [tenant])


# what is held ---------------------------------------------------------------------------------------------------------

_HELD = "SELECT h.record_id, h.hold_id FROM held_records(%s::text, %s::uuid[]) h ORDER BY 1, 2"


def held(tenant: UUID, kind: Kind | str, ids: Collection[UUID]) -> dict[UUID, list[UUID]]:
    """Return which holds in force cover which of these records; records that none covers are not in it.

    Of the open transaction's tenant, under writer, staff or worker. One statement, whatever the number of records; a
    tenant without a hold in force is answered at once. What comes later than its hold is covered like everything else,
    since scopes are held against what a record says now. Only under `share` does the answer stay true.
    """
    found: dict[UUID, list[UUID]] = {}
    if ids:
        for record, hold in rows.fetch(_HELD, [Kind(kind).value, list(ids)]):
            found.setdefault(record, []).append(hold)
    return found


# Of one record, hold and act there is one row. A job that comes by again within a day is not counted: it does so for ever.
_REFUSE = """
INSERT INTO retention_refusedending AS r
  (tenant_id, id, hold_id, record_kind, record_id, act, run_id, actor_kind, actor_id, times, first_at, last_at)
SELECT %(tenant)s::uuid, x.id, x.hold_id, %(kind)s, x.record_id, %(act)s, %(run)s::uuid, %(actor_kind)s, %(actor)s::uuid, 1,
  n.now, n.now
FROM unnest(%(ids)s::uuid[], %(holds)s::uuid[], %(records)s::uuid[]) AS x (id, hold_id, record_id),
  (SELECT clock_timestamp() AS now) n
ORDER BY x.record_id, x.hold_id
ON CONFLICT (tenant_id, record_id, hold_id, act) DO UPDATE SET times = r.times + 1, last_at = greatest(r.last_at, excluded.last_at),
  run_id = excluded.run_id, actor_kind = excluded.actor_kind, actor_id = excluded.actor_id
WHERE excluded.actor_kind <> 'job' OR r.last_at < excluded.last_at - interval '1 day'
"""


def free(
    tenant: UUID, kind: Kind | str, ids: Sequence[UUID], *, actor: Actor, act: str, run: UUID | None = None
) -> list[UUID]:
    """Return those of `ids` that may end, in their order, and record the rest as refused endings.

    Under `Role.WORKER` and `share`, in the transaction that ends them. `act` is a code of the ending (`compaction`,
    `redaction`, `erasure`, ...). Each refusal is a row, and at the commit an entry of the audit chain; both are lost where
    the transaction rolls back, so a face answers what was refused with a status below 400.
    """
    stopped = held(tenant, kind, ids)
    if stopped:
        refused = [(record, hold) for record, holds in stopped.items() for hold in holds]
        rows.execute(
            _REFUSE,
            {
                "tenant": tenant,
                "kind": Kind(kind).value,
                "act": act,
                "run": run,
                "actor_kind": actor.kind.value,
                "actor": actor.id,
                "ids": [new_id() for _ in refused],
                "holds": [hold for _, hold in refused],
                "records": [record for record, _ in refused],
            },
        )
    return [each for each in ids if each not in stopped]


def free_facts(
    tenant: UUID, facts: Sequence[UUID], cause: str, *, actor: Actor, act: str, run: UUID | None = None
) -> list[UUID]:
    """Return those of `facts` that may end for `cause` with all that goes with them; the rest is recorded as `free` does.

    A fact stays where a hold covers it, evidence of it, or a proposal that would lose content with it, each recorded as
    what it is.
    """
    going = free(tenant, Kind.FACT, facts, actor=actor, act=act, run=run)
    along = taken_along(tenant, going, cause)
    loose = set(free(tenant, Kind.CANDIDATE, sorted({each for _, each in along}), actor=actor, act=act, run=run))
    stopped = {fact for fact, candidate in along if candidate not in loose}
    said = rows.fetch(_EVIDENCE_OF, [tenant, going]) if going else []
    loose = set(free(tenant, Kind.EVIDENCE, [row[0] for row in said], actor=actor, act=act, run=run))
    stopped |= {fact for evidence, fact in said if evidence not in loose}
    return [each for each in going if each not in stopped]


def free_quotes(
    tenant: UUID, evidence: Sequence[UUID], *, actor: Actor, act: str, run: UUID | None = None
) -> list[UUID]:
    """Return the `evidence` that may lose its quote: no hold covers it, nor a proposal that holds the same quote."""
    going = free(tenant, Kind.EVIDENCE, evidence, actor=actor, act=act, run=run)
    shared = sharing_quotes(tenant, going)
    loose = set(free(tenant, Kind.CANDIDATE, sorted({each for _, each in shared}), actor=actor, act=act, run=run))
    stopped = {each for each, candidate in shared if candidate not in loose}
    return [each for each in going if each not in stopped]


_EVIDENCE_OF = (
    "SELECT e.id, e.fact_id FROM memory_evidence e WHERE e.tenant_id = %s::uuid AND e.fact_id = ANY (%s::uuid[])"
)
_NAMED_BY_SCOPES = """
SELECT s.subject_id FROM retention_holdscope s WHERE s.tenant_id = %s::uuid AND s.subject_id = ANY (%s::uuid[])
"""


def named_by_scopes(tenant: UUID, subjects: Collection[UUID]) -> set[UUID]:
    """Return which of these subjects a scope names, of a hold in force or a released one: their rows stay, emptied."""
    return {row[0] for row in rows.fetch(_NAMED_BY_SCOPES, [tenant, list(subjects)])} if subjects else set()


def digest(hold: UUID) -> bytes:
    """Return what the release of a hold is bound to: the hold and each of its scopes. Under `Role.STAFF`."""
    return bytes(rows.fetch("SELECT hold_digest(%s::uuid)", [hold])[0][0])
