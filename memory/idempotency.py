"""A request that comes twice is carried out once. Kept seven days, as ids; answers are rendered anew from rows."""

import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from hashlib import sha256
from uuid import UUID

from django.db import connection
from django.db.utils import OperationalError

from memory import rows
from memory.outcomes import Outcome, Repeat, from_json, to_json
from memory.rows import IdempotencyRow, Json
from tenants.actors import Actor
from tenants.errors import Clash
from tenants.identity import new_id
from tenants.secrets import keyring

KEPT = timedelta(days=7)
_FORGOTTEN_AT_ONCE = 1_000

_LOCK_NOT_AVAILABLE = "55P03"
_LOCK = "SELECT set_config('lock_timeout', '5s', true), pg_advisory_xact_lock(%s)"
_LOOK = (
    "SELECT request_digest, outcome::text FROM memory_idempotencyrecord"
    " WHERE tenant_id = %s AND agent_id = %s AND key_digest = %s"
)
_FORGET = (
    "DELETE FROM memory_idempotencyrecord WHERE tenant_id = %s AND id = ANY (ARRAY(SELECT r.id FROM memory_idempotencyrecord r"
    " WHERE r.tenant_id = %s AND r.created_at < clock_timestamp() - make_interval(secs => %s) ORDER BY r.created_at LIMIT %s"
    "))"
)


def earlier(actor: Actor, repeat: Repeat) -> list[Outcome] | None:
    """Return what this request came to before, or None: then it is this transaction's to carry out.

    A twin that is still running is waited for, up to five seconds. Raises `Clash("in_progress")` when it takes
    longer, and `Clash("idempotency_key_reused")` where the key came with another body or route.
    """
    key = _key_digest(actor, repeat)
    number = int.from_bytes(
        sha256(b"idempotency" + actor.tenant.bytes + actor.id.bytes + key).digest()[:8], signed=True
    )
    with connection.cursor() as cursor:
        try:
            cursor.execute(_LOCK, [number])
            # A statement of its own: the snapshot of the locking one is older than the lock.
            cursor.execute(_LOOK, [actor.tenant, actor.id, key])
            row = cursor.fetchone()
        except OperationalError as error:
            if getattr(error.__cause__, "sqlstate", None) != _LOCK_NOT_AVAILABLE:
                raise
            raise Clash("in_progress") from None
    if row is None:
        return None
    if bytes(row[0]) != keyring().request_digest(actor.tenant, repeat.route, repeat.body):
        raise Clash("idempotency_key_reused")
    return [from_json(each) for each in json.loads(row[1])]


def record(actor: Actor, repeat: Repeat, outcomes: Sequence[Outcome], *, status: int, now: datetime) -> IdempotencyRow:
    """Return what the request is to be remembered by, to be stored in the transaction of its writes."""
    return IdempotencyRow(
        id=new_id(),
        agent_id=actor.id,
        key_digest=_key_digest(actor, repeat),
        request_digest=keyring().request_digest(actor.tenant, repeat.route, repeat.body),
        status=status,
        outcome=Json([to_json(each) for each in outcomes]),
        created_at=now,
    )


def keep(actor: Actor, repeat: Repeat, outcomes: Sequence[Outcome], *, status: int, now: datetime) -> None:
    """Remember what the request came to, in the transaction of its writes."""
    rows.IDEMPOTENCY.insert(actor.tenant, [record(actor, repeat, outcomes, status=status, now=now)])


def forget(tenant: UUID) -> int:
    """Delete a chunk of the records that are past their time, in the worker's open transaction; return how many."""
    with connection.cursor() as cursor:
        cursor.execute(_FORGET, [tenant, tenant, KEPT.total_seconds(), _FORGOTTEN_AT_ONCE])
        return int(cursor.rowcount)


def _key_digest(actor: Actor, repeat: Repeat) -> bytes:
    return keyring().request_digest(actor.tenant, "key", repeat.key.encode("utf-8"))
