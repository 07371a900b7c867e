"""The endings log: what has ended is told outside the database as well, so that a restored backup can be told of it.

One signed file a tenant (`MUNIMENT_ENDINGS`), content-free: ids, instants, digests, codes. What is to be told is owed in
the act's own transaction and appended right after its commit, before the act is acknowledged. A process that is cut off
in between leaves a row and an outbox entry: the entry is appended by the next act, or by the next drain.

An entry may stand twice, where the append was cut off from noting that it happened; its `id` tells. Applying one twice
must be harmless.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import connection, transaction

from memory import outbox, rows
from memory.outbox import Settled
from tenants.errors import Unavailable
from tenants.examination import Check
from tenants.identity import new_id
from tenants.isolation import Role, tenant_transaction
from tenants.keyring import KeyUnavailable, LogDamaged, LogState, SignedLog
from tenants.models import Tenant
from tenants.secrets import provider

#: The topic under which an entry that was not appended at once waits.
TOPIC = "ending.owed"
#: How long the outbox leaves an entry to the act that owes it.
_LEFT_TO_THE_ACT = timedelta(seconds=5)
#: What a word of a record may be: an id, an instant, a digest in hex, a code, a number. Nothing that anybody said.
_WORD = re.compile(r"[A-Za-z0-9_.:+-]{1,128}")
_LONGEST_RECORD = 60_000


class Kind(StrEnum):
    """What may be told. The list is closed: a restore has to know how to apply each."""

    REDACTION = "redaction"
    ERASURE = "erasure"
    SUPPRESSION = "suppression"
    SUPPRESSION_LIFTED = "suppression_lifted"
    CONSENT_WITHDRAWN = "consent_withdrawn"
    HOLD_PLACED = "hold_placed"
    HOLD_RELEASED = "hold_released"
    RESTRICTION = "restriction"


@dataclass(frozen=True, slots=True)
class Entry:
    """One ending as the log tells it. `number` counts the tenant's lines from 1."""

    number: int
    id: UUID
    kind: Kind
    target: UUID
    at: datetime
    record: Mapping[str, Any]


_OWE = """
INSERT INTO retention_owedending (tenant_id, id, kind, target_id, record, owed_at)
VALUES (%s::uuid, %s::uuid, %s::text, %s::uuid, %s::jsonb, clock_timestamp())
"""
# Whoever settles first holds the rows; who comes next waits, and finds them settled.
_OWED = """
SELECT o.id, o.kind, o.target_id, o.record, o.owed_at FROM retention_owedending o
WHERE o.tenant_id = %s::uuid AND o.settled_at IS NULL ORDER BY o.owed_at, o.id FOR UPDATE
"""
_SETTLED = """
UPDATE retention_owedending o SET settled_at = clock_timestamp(), line = w.line
FROM unnest(%s::uuid[], %s::bigint[]) AS w (id, line) WHERE o.tenant_id = %s::uuid AND o.id = w.id
"""
_STATE = """
SELECT count(*) FILTER (WHERE o.settled_at IS NULL), coalesce(max(o.line), 0) FROM retention_owedending o
WHERE o.tenant_id = %s::uuid
"""


def owe(tenant: UUID, kind: str, target_id: UUID, record: Mapping[str, Any]) -> None:
    """Owe the log an entry, in the act's open tenant transaction; it is appended right after the commit.

    Nobody has to call `settle` for it: whoever opened the transaction gets back from its commit only once the entry is on
    disk. Raises `Unavailable("endings_log_unavailable")` at once where the log cannot be written, so that the act rolls
    back; after the commit only where it fails that late, and then the outbox goes on with it: such an act has happened.
    `record` holds numbers, booleans, None, and strings that are ids, instants, digests or codes, in lists and dicts;
    raises `ValueError` for anything else, without repeating it.
    """
    known = Kind(kind)
    text = json.dumps(_plain(record), sort_keys=True)
    if len(text) > _LONGEST_RECORD:
        raise ValueError("a record of the endings log is longer than allowed")
    _refuse_unwritable(tenant)
    entry = new_id()
    before = Role(rows.fetch("SELECT current_setting('role')", [])[0][0])
    with connection.cursor() as cursor:
        # Of the doors' roles only one may write here, whichever act it is that ends something.
        cursor.execute("SELECT set_config('role', %s, true)", [Role.WORKER.value])
        cursor.execute(_OWE, [tenant, entry, known.value, target_id, text])
        outbox.put_aside(tenant, TOPIC, entry, after=_LEFT_TO_THE_ACT)
        cursor.execute("SELECT set_config('role', %s, true)", [before.value])
    confirm(tenant)


def confirm(tenant: UUID) -> None:
    """Have the open transaction's commit wait for whatever the tenant owes: for acts that find themselves done already."""
    transaction.on_commit(lambda: settle(tenant))


def settle(tenant: UUID) -> int:
    """Append what the tenant owes, in the order in which it was owed; return how many entries that were.

    Opens its own transaction. On return all of it is on disk, whoever appended it. Raises
    `Unavailable("endings_log_unavailable")`; what was not appended stays owed.
    """
    with tenant_transaction(Role.WORKER, tenant=tenant):
        owed = rows.fetch(_OWED, [tenant])
        if not owed:
            return 0
        done: list[tuple[UUID, int]] = []
        failure: Exception | None = None
        try:
            log = _log(tenant)
            for entry, kind, target, record, at in owed:
                told = {"id": str(entry), "kind": kind, "target": str(target), "at": at.isoformat(), "record": record}
                done.append((entry, log.append(told)))
        except (OSError, KeyUnavailable, LogDamaged) as error:
            failure = error
        if done:
            told_now = [entry for entry, _ in done]
            rows.execute(_SETTLED, [told_now, [line for _, line in done], tenant])
            outbox.done(tenant, told_now)
    if failure is not None:
        raise Unavailable("endings_log_unavailable") from None
    return len(done)


def work(tenant: UUID, target: UUID) -> Settled:
    """Append what an act left owed: the worker of `ending.owed`."""
    settle(tenant)
    return Settled.DONE


def told(tenant: UUID) -> Iterator[Entry]:
    """Yield what has been told of a tenant, in order, an entry that stands twice once.

    Each line is verified before it is yielded; call `state` first where a part must not be acted on. Raises `LogDamaged`,
    `KeyUnavailable`.
    """
    seen: set[UUID] = set()
    for number, each in enumerate(SignedLog(path(tenant), provider()).records(), 1):
        entry = UUID(each["id"])
        if entry not in seen:
            seen.add(entry)
            at = datetime.fromisoformat(each["at"])
            yield Entry(number, entry, Kind(each["kind"]), UUID(each["target"]), at, each["record"])


def state(tenant: UUID) -> LogState:
    """Verify the tenant's log and say how long it is. Raises `LogDamaged`, naming the first bad line; `KeyUnavailable`."""
    return SignedLog(path(tenant), provider()).verify()


def digest_at(tenant: UUID, line: int) -> str | None:
    """Return the digest of a line of the tenant's log, None where there is none. Raises `LogDamaged`, `KeyUnavailable`."""
    return SignedLog(path(tenant), provider()).digest_at(line)


def owed(tenant: UUID) -> tuple[int, int]:
    """Return how many entries the tenant still owes, and the last line that the database knows of.

    A log with fewer lines has been cut. In the worker's open transaction.
    """
    waiting, line = rows.fetch(_STATE, [tenant])[0]
    return int(waiting), int(line)


def checks() -> Iterator[Check]:
    """Yield what `doctor` asks of the logs: whole, as long as the database knows them, and nothing owed for long."""
    with tenant_transaction(Role.FRONT, tenant=None):
        tenants = list(Tenant.objects.values_list("id", flat=True))
    damaged, cut, waiting = 0, 0, 0
    for tenant in tenants:
        with tenant_transaction(Role.WORKER, tenant=tenant):
            late, line = owed(tenant)
        waiting += late
        try:
            cut += state(tenant).lines < line
        except (LogDamaged, KeyUnavailable, OSError):
            damaged += 1
    wrong = [
        f"{count} {what}"
        for count, what in ((damaged, "damaged"), (cut, "shorter than they were"), (waiting, "endings not told yet"))
        if count
    ]
    yield Check(
        "endings logs",
        not wrong,
        ", ".join(wrong) or f"whole for {len(tenants)} tenants",
        "point MUNIMENT_ENDINGS at the folder of the logs and see that it can be written; see the runbook",
    )


def path(tenant: UUID) -> Path:
    """Return the file that holds the tenant's log; it exists once something was told."""
    folder: Path = settings.ENVIRONMENT.endings_folder
    return folder / f"{tenant}.jsonl"


def _log(tenant: UUID) -> SignedLog:
    place = path(tenant)
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return SignedLog(place, provider())


def _refuse_unwritable(tenant: UUID) -> None:
    place = path(tenant)
    try:
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        usable = os.access(place if place.exists() else place.parent, os.W_OK)
    except OSError:
        usable = False
    if not usable:
        raise Unavailable("endings_log_unavailable")


def _plain(value: Any) -> Any:
    """Return `value` as plain JSON without prose. Raises `ValueError`, which does not repeat it."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, str) and _WORD.fullmatch(value):
        return value
    if isinstance(value, Mapping):
        return {str(_plain(name)): _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    raise ValueError("a record of the endings log holds ids, instants, digests, codes and numbers only")
