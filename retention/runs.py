"""Runs: work that ends memory, or proves that it ended, done in steps that survive being cut off.

A run is one row. Whoever works on it holds the row for one chunk, and moves it on in the transaction of what the chunk
did: so a chunk is done and known to be done, or neither. Two that are told to do the same find one run; whoever comes
while it is held goes away again, and a run that was left is taken up by the next who asks.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from memory import rows
from tenants.actors import Actor
from tenants.audit import Action, Event, append
from tenants.identity import new_id

Kind = Literal["compaction", "erasure", "redaction", "rotation", "restore", "backup", "verification"]
End = Literal["done", "failed", "stopped"]


@dataclass(frozen=True, slots=True)
class Run:
    """A run as it stands. `counts` are sums over its chunks, by code; `cursor` says where in its step it stands."""

    id: UUID
    kind: str
    target_kind: str
    target_id: UUID | None
    state: str
    step: str
    cursor: dict[str, Any] = field(repr=False)
    counts: dict[str, int] = field(repr=False)
    refused_by_hold: int
    requested_by: UUID
    started_at: datetime
    finished_at: datetime | None
    code: str | None

    @property
    def open(self) -> bool:
        """Whether there is anything left to do."""
        return self.finished_at is None


_COLUMNS = (
    "r.id, r.kind, r.target_kind, r.target_id, r.state, r.step, r.cursor::text, r.counts::text, r.refused_by_hold,"
    " r.requested_by, r.started_at, r.finished_at, r.code"
)


def _run(row: tuple[Any, ...]) -> Run:
    run, kind, target_kind, target, state, step, cursor, counts, *rest = row
    return Run(run, kind, target_kind, target, state, step, json.loads(cursor), json.loads(counts), *rest)


_BEGIN = f"""
INSERT INTO retention_run AS r (tenant_id, id, kind, target_kind, target_id, state, requested_by, started_at, advanced_at)
VALUES (%s::uuid, %s::uuid, %s, %s, %s::uuid, 'running', %s::uuid, %s::timestamptz, %s::timestamptz)
ON CONFLICT DO NOTHING RETURNING {_COLUMNS}
"""
_OPEN = f"""
SELECT {_COLUMNS} FROM retention_run r WHERE r.tenant_id = %s::uuid AND r.kind = %s AND r.target_id IS NOT DISTINCT FROM %s::uuid
  AND r.state IN ('pending', 'running')
"""


def begin(actor: Actor, kind: Kind, *, target_kind: str, target_id: UUID | None, now: datetime) -> tuple[Run, bool]:
    """Begin a run, or find the one of this kind and target that is open; return it and whether it is new.

    Under `Role.WORKER`, in the caller's transaction. A new one is audited.
    """
    parameters = [actor.tenant, new_id(), kind, target_kind, target_id, actor.id, now, now]
    made = rows.fetch(_BEGIN, parameters)
    if made:
        append([Event(actor=actor, action=Action.RUN_BEGUN, target_kind="run", target_id=made[0][0], reason=kind)])
        return _run(made[0]), True
    # Whoever made it has committed, since the insert waited for them; where it has ended in between, it is done.
    found = rows.fetch(_OPEN, [actor.tenant, kind, target_id])
    return (
        (_run(found[0]), False) if found else begin(actor, kind, target_kind=target_kind, target_id=target_id, now=now)
    )


_FIND = f"SELECT {_COLUMNS} FROM retention_run r WHERE r.tenant_id = %s::uuid AND r.id = %s::uuid"


def find(tenant: UUID, run: UUID) -> Run | None:
    """Return a run of the tenant as it stands, or None. Under worker, staff or agent."""
    found = rows.fetch(_FIND, [tenant, run])
    return _run(found[0]) if found else None


def hold(tenant: UUID, run: UUID) -> Run | None:
    """Take an open run for the rest of the transaction; None where another has it, or where it has ended."""
    found = rows.fetch(_FIND + " AND r.state IN ('pending', 'running') FOR UPDATE SKIP LOCKED", [tenant, run])
    return _run(found[0]) if found else None


# A plan that was made while a table was small must not scan it once it is not. To plan anew each time would be the other
# way: but what foreign keys ask for each row that goes would be planned anew as well, and take most of the time.
#: Asked at the start of a chunk that removes rows; its last column is the chunk's instant.
PLANS = """
SELECT set_config('enable_seqscan', 'off', true), set_config('plan_cache_mode', 'auto', true), clock_timestamp()
"""
_UNFINISHED = """
SELECT r.id FROM retention_run r
WHERE r.tenant_id = %s::uuid AND r.kind = %s AND r.state IN ('pending', 'running') ORDER BY r.id
"""


def unfinished(tenant: UUID, kind: Kind) -> list[UUID]:
    """Return the open runs of a kind, the oldest first: what was cut off is among them."""
    return [row[0] for row in rows.fetch(_UNFINISHED, [tenant, kind])]


_ADVANCE = f"""
UPDATE retention_run r SET state = 'running', step = %s, cursor = %s::jsonb, counts = %s::jsonb,
  refused_by_hold = r.refused_by_hold + %s::int, advanced_at = clock_timestamp()
WHERE r.tenant_id = %s::uuid AND r.id = %s::uuid RETURNING {_COLUMNS}
"""


def advance(
    tenant: UUID,
    run: Run,
    *,
    step: str,
    cursor: Mapping[str, Any] | None = None,
    counts: Mapping[str, int] | None = None,
    refused: int = 0,
) -> Run:
    """Move a run on, in the transaction of what was done: `counts` are added to its own, `refused` too.

    Numbers, ids, instants and codes only: the database refuses anything else. Raises `ValueError` for a run that ended.
    """
    sums = dict(run.counts)
    for name, count in (counts or {}).items():
        sums[name] = sums.get(name, 0) + count
    found = rows.fetch(_ADVANCE, [step, json.dumps(dict(cursor or {})), json.dumps(sums), refused, tenant, run.id])
    if not found:
        raise ValueError("no such run")
    return _run(found[0])


_FINISH = f"""
UPDATE retention_run r SET state = %s, finished_at = clock_timestamp(), advanced_at = clock_timestamp(), code = %s
WHERE r.tenant_id = %s::uuid AND r.id = %s::uuid RETURNING {_COLUMNS}
"""


def finish(actor: Actor, run: Run, state: End = "done", *, code: str | None = None) -> Run:
    """End a run, audited with its sums. `code` says why it failed or was stopped."""
    ended = _run(rows.fetch(_FINISH, [state, code, actor.tenant, run.id])[0])
    # The chain takes what fits: the row has all of it.
    numbers: dict[str, int | float | bool] = {
        **dict(sorted(ended.counts.items())[:12]),
        "refused_by_hold": ended.refused_by_hold,
    }
    append(
        [
            Event(
                actor=actor,
                action=Action.RUN_FINISHED,
                target_kind="run",
                target_id=ended.id,
                reason=code or state,
                numbers=numbers,
            )
        ]
    )
    return ended
