"""Facts that may no longer be kept are marked as ended. Their stretches stay, as boundaries without value.

Reads hide them without this, to the microsecond. Marking frees their values to be said anew; content is removed
elsewhere.
"""

from collections.abc import Sequence
from uuid import UUID

from memory import rows
from memory.outbox import Outcomes, Settled
from tenants.actors import Actor, ActorKind
from tenants.audit import PLATFORM, Action, Event, append

#: Facts that one transaction ends.
CHUNK = 500

_OVERDUE = "f.expires_at <= clock_timestamp()"
_UNCONSENTED = "f.consent_ids IS NOT NULL AND NOT consent_stands(f.consent_ids)"

_FIND_OVERDUE = f"""
SELECT f.id, f.key_id FROM memory_fact f
WHERE f.tenant_id = %s::uuid AND f.ended_at IS NULL AND {_OVERDUE} ORDER BY f.expires_at LIMIT %s
"""
_FIND_UNCONSENTED = f"""
SELECT f.id, f.key_id FROM memory_fact f
WHERE f.tenant_id = %s::uuid AND f.ended_at IS NULL AND f.consent_ids && %s::uuid[] AND {_UNCONSENTED} LIMIT %s
"""
# The key's lock is the one under which writers let a fact gain evidence, and with it life. Whoever holds one is passed
# over, so that this waits for nobody and no circle of waiting can close.
_LOCK_KEYS = """
SELECT k.id FROM memory_factkey k WHERE k.tenant_id = %s::uuid AND k.id = ANY(%s::uuid[])
ORDER BY k.subject_id, k.attribute_id FOR NO KEY UPDATE SKIP LOCKED
"""
# A statement of its own: it must see what a writer committed just before the lock was had.
_END = """
UPDATE memory_fact f SET ended_at = clock_timestamp(), ended_by = %s
WHERE f.tenant_id = %s::uuid AND f.id = ANY(%s::uuid[]) AND f.key_id = ANY(%s::uuid[]) AND f.ended_at IS NULL AND {due}
RETURNING f.id
"""
_END_OVERDUE = _END.format(due=_OVERDUE)
_END_UNCONSENTED = _END.format(due=_UNCONSENTED)


def worker(tenant: UUID) -> Actor:
    """Return the background work of a tenant as an actor."""
    return Actor(kind=ActorKind.JOB, id=PLATFORM, tenant=tenant)


def end_overdue(tenant: UUID, *, limit: int = CHUNK) -> int:
    """Mark facts whose expiry has passed as ended, at most `limit`; return how many were.

    In the worker's open transaction, of which it must be the last act. A fact whose key a writer holds is left to that
    writer or to the next call. Never ends a fact that has gained a later expiry meanwhile.
    """
    found = rows.fetch(_FIND_OVERDUE, [tenant, limit])
    return len(_end(tenant, found, _END_OVERDUE, "expired"))


def end_unconsented(tenant: UUID, consents: Sequence[UUID]) -> Outcomes:
    """Mark facts that rest on `consents`, and on no consent that stands, as ended; a chunk a call.

    The handler of `consent.withdrawn`: while there is more, it says so and is called again.
    """
    found = rows.fetch(_FIND_UNCONSENTED, [tenant, list(consents), CHUNK])
    ended = _end(tenant, found, _END_UNCONSENTED, "consent_withdrawn")
    if len(found) == CHUNK and ended:
        return dict.fromkeys(consents, Settled.MORE)
    if len(ended) < len(found):
        return dict.fromkeys(consents, Settled.AGAIN)
    return {}


def _end(tenant: UUID, found: Sequence[tuple[UUID, UUID]], statement: str, cause: str) -> list[UUID]:
    if not found:
        return []
    keys = [row[0] for row in rows.fetch(_LOCK_KEYS, [tenant, list({key for _, key in found})])]
    if not keys:
        return []
    ended = [row[0] for row in rows.fetch(statement, [cause, tenant, [fact for fact, _ in found], keys])]
    actor = worker(tenant)
    append(
        [
            Event(actor=actor, action=Action.FACT_SETTLED, target_kind="fact", target_id=fact, reason=cause)
            for fact in sorted(ended)
        ]
    )
    return ended
