"""Rotating a tenant's key: a new version wraps the data keys of the living, and the old versions are destroyed.

That is what makes an erasure true of every backup, replica and write-ahead log: a data key that was erased stands in
them still, wrapped by a version that is no more. A rotation may be cut off anywhere: what it has come to stands in the
provider and in the rows, and whoever goes on with it finishes it once. Reads and writes go on beside it.

In this order: a further version (current at once in every process) · all transactions that may hold the old one are over ·
the living data keys are wrapped anew, in chunks · the search index is made anew, whose tokens are digests under the
tenant's key · the old versions are retired, so that nobody who comes late is let in with one · what the living keys are
wrapped by now is written outside the database, for backups that are older than this · all transactions that may have
read an old wrapping are over · the old versions are destroyed, and it is told.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from uuid import UUID

from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, OperationalError, connection, connections

from memory import indexing, rows
from memory.endings import worker
from memory.rounds import each_tenant
from retention import certificates, runs
from retention.runs import Run
from tenants.actors import Actor
from tenants.audit import Action, Event, append
from tenants.errors import Clash
from tenants.examination import Check
from tenants.isolation import Role, tenant_transaction
from tenants.keyring import KeyUnavailable, Unsealable
from tenants.models import Tenant
from tenants.secrets import keyring, provider

#: Data keys that one transaction wraps anew.
CHUNK = 500
#: How long after its transaction's end a reader may still hold what it read of a key.
GRACE = timedelta(seconds=3)
_LOCK_SECONDS = "5s"
_POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Rotation:
    """How far a rotation has come. `waits_for` is empty where it is over, else `time` or `transactions`.

    `version` is the current version, `destroyed` are the versions that were destroyed, `rewrapped` how many data keys
    were wrapped anew and `reindexed` how many payloads were made findable anew, all of it by this call.
    """

    version: int
    destroyed: tuple[int, ...] = ()
    rewrapped: int = 0
    reindexed: int = 0
    waits_for: str = ""


_BEHIND = """
SELECT k.id, k.wrapped, k.version FROM tenants_subjectkey k
WHERE k.tenant_id = %s::uuid AND k.version < %s ORDER BY k.version, k.id LIMIT %s FOR NO KEY UPDATE SKIP LOCKED
"""
_REWRAPPED = """
UPDATE tenants_subjectkey k SET wrapped = w.wrapped, version = w.version
FROM unnest(%s::uuid[], %s::bytea[], %s::int[]) AS w (id, wrapped, version)
WHERE k.tenant_id = %s::uuid AND k.id = w.id
"""
_LEFT = "SELECT count(*) FROM tenants_subjectkey k WHERE k.tenant_id = %s::uuid AND k.version < %s"
_MADE = "SELECT s.key_version, s.made_to FROM memory_searchstate s WHERE s.tenant_id = %s::uuid AND s.id = s.tenant_id"
_STATE = "SELECT t.oldest_key_version, t.destroyed_key_version FROM tenants_tenant t WHERE t.id = %s::uuid"
_SHUT_OUT = "SELECT pg_advisory_xact_lock(hashtextextended('muniment.keys.' || %s::text, 0))"
_RETIRED = "UPDATE tenants_tenant t SET oldest_key_version = %s WHERE t.id = %s::uuid"
_DESTROYED = "UPDATE tenants_tenant t SET destroyed_key_version = %s WHERE t.id = %s::uuid"
_ALL = "SELECT k.id, k.wrapped, k.version FROM tenants_subjectkey k WHERE k.tenant_id = %s::uuid AND k.id > %s::uuid ORDER BY k.id LIMIT %s"
# Certificates that say of a data key that it is out of reach once the version that wrapped it is destroyed.
_PENDING = """
SELECT c.id, (c.document->'body'->'key'->>'version')::int FROM retention_certificate c
WHERE c.tenant_id = %s::uuid AND c.document->'body'->'key'->>'state' = 'pending_rotation'
  AND (c.document->'body'->'key'->>'version')::int <= %s::int
  AND NOT EXISTS (SELECT FROM retention_certificate n
    WHERE n.tenant_id = c.tenant_id AND n.follows_id = c.id AND n.kind = 'rotation')
ORDER BY c.id
"""
_BEGUN_AT = """
SELECT coalesce(max(e.at), (SELECT t.created_at FROM tenants_tenant t WHERE t.id = %s::uuid)) FROM tenants_auditevent e
WHERE e.action = %s AND e.target_id = %s::uuid
"""
# Asked as whoever logged in, who sees when its own sessions began; the server's clock, since theirs is compared.
_OLDEST = """
SELECT count(*) FILTER (WHERE a.xact_start < %s::timestamptz), clock_timestamp() FROM pg_stat_activity a
WHERE a.datname = current_database() AND a.usename = session_user AND a.pid <> pg_backend_pid()
"""


def rotate(actor: Actor, *, seconds: float = 3600.0) -> Rotation:
    """Rotate the key of the actor's tenant, or go on with a rotation that was cut off; for about `seconds`.

    One that was cut off is finished and another is begun, so that whatever ended before the call is out of reach of every
    copy after it. Opens its own transactions; must not be called inside of one. Where time or open transactions of others
    keep it from its end, the answer says so, and the next call or `go_on` goes on. Raises `Clash("rotation_running")`
    where another process is at it, `KeyUnavailable`.
    """
    until = time.monotonic() + seconds
    with _alone(actor.tenant):
        first = Rotation(0)
        if is_open(actor.tenant):
            first = _finish(actor, until)
            if first.waits_for:
                return first
        _begin(actor)
        last = _finish(actor, until)
    return replace(
        last,
        destroyed=first.destroyed + last.destroyed,
        rewrapped=first.rewrapped + last.rewrapped,
        reindexed=first.reindexed + last.reindexed,
    )


def go_on(tenant: UUID, *, seconds: float = 60.0) -> Rotation | None:
    """Finish a rotation that was cut off, for about `seconds`; None where there is none, or another process is at it."""
    if not is_open(tenant):
        return None
    try:
        with _alone(tenant):
            return _finish(worker(tenant), time.monotonic() + seconds)
    except Clash:
        return None


def rotate_due(*, now: datetime, every: timedelta | None, seconds: float = 60.0) -> int:
    """Go on with rotations that were cut off, and begin those whose key is older than `every`; return how many ended.

    The work of beat: without `every` nothing is begun, only gone on with.
    """

    def work(tenant: UUID) -> int:
        if is_open(tenant):
            ended = go_on(tenant, seconds=seconds)
        elif every is not None and now - begun_at(tenant) >= every:
            ended = rotate(worker(tenant), seconds=seconds)
        else:
            ended = None
        return 1 if ended is not None and not ended.waits_for else 0

    return each_tenant(work, seconds=seconds)


def is_open(tenant: UUID) -> bool:
    """Whether a rotation of the tenant's key was begun and is not over. Opens its own transaction. Raises `KeyUnavailable`."""
    versions = provider().versions(tenant)
    with tenant_transaction(Role.WORKER, tenant=tenant):
        oldest, destroyed = rows.fetch(_STATE, [tenant])[0]
    return len(versions) > 1 or int(oldest) < versions[-1] or int(destroyed) < versions[-1] - 1


def pending(tenant: UUID) -> int:
    """Return how many certificates wait for a rotation of the tenant's key. Opens its own transaction."""
    with tenant_transaction(Role.WORKER, tenant=tenant):
        return len(rows.fetch(_PENDING, [tenant, 2**31 - 1]))


def begun_at(tenant: UUID) -> datetime:
    """Return when the tenant's key was rotated last, or made. Opens its own transaction."""
    with tenant_transaction(Role.WORKER, tenant=tenant):
        begun: datetime = rows.fetch(_BEGUN_AT, [tenant, Action.ROTATION_BEGUN.value, tenant])[0][0]
    return begun


def checks() -> Iterator[Check]:
    """Yield what `doctor` asks of rotations: those that were cut off, and go on with the next round of beat."""
    with tenant_transaction(Role.FRONT, tenant=None):
        tenants = list(Tenant.objects.values_list("id", flat=True))
    try:
        half = sum(is_open(tenant) for tenant in tenants)
    except KeyUnavailable:
        return  # said by the check of keys
    waiting = sum(pending(tenant) for tenant in tenants)
    found = [
        each
        for each in (
            f"under way, or cut off, in {half} of {len(tenants)} tenants" if half else "",
            f"{waiting} erasures are not out of reach of backups before one" if waiting else "",
        )
        if each
    ]
    yield Check(
        "key rotation",
        None if found else True,
        "; ".join(found) or "none is under way, and none is waited for",
        "beat goes on with what was cut off; `manage.py rotate_keys TENANT` rotates, see Keys in docs/runbook.md",
    )


# the steps ------------------------------------------------------------------------------------------------------------


@contextmanager
def _alone(tenant: UUID) -> Iterator[None]:
    """Hold, on a session of its own, the lock under which one process at a time rotates a tenant's key."""
    session = connections.create_connection(DEFAULT_DB_ALIAS)
    try:
        with session.cursor() as cursor:
            cursor.execute(
                "SELECT pg_try_advisory_lock(hashtextextended('muniment.rotation.' || %s::text, 0))", [tenant]
            )
            if not cursor.fetchone()[0]:
                raise Clash("rotation_running")
        yield
    finally:
        session.close()


def _begin(actor: Actor) -> None:
    versions = provider().versions(actor.tenant)
    with tenant_transaction(Role.WORKER, tenant=actor.tenant):
        numbers = {"version": versions[-1] + 1}
        append(
            [
                Event(
                    actor=actor,
                    action=Action.ROTATION_BEGUN,
                    target_kind="tenant",
                    target_id=actor.tenant,
                    numbers={**numbers},
                )
            ]
        )
        # Before the commit: where it fails there is a version too many, which the next rotation destroys.
        provider().new_version(actor.tenant)


def _finish(actor: Actor, until: float) -> Rotation:
    tenant = actor.tenant
    version = provider().versions(tenant)[-1]
    made = Rotation(version)
    with tenant_transaction(Role.WORKER, tenant=tenant):
        run, _ = runs.begin(actor, "rotation", target_kind="tenant", target_id=tenant, now=_now())
        run = runs.advance(tenant, run, step="wait")
    # Who asked the provider before there was this version may have wrapped by the one before, and not stored it yet.
    if not _are_over(_clock(), until):
        return replace(made, waits_for="transactions")
    while True:
        rewrapped, all_of_them = _rewrap(tenant, run, version, until)
        made = replace(made, rewrapped=made.rewrapped + rewrapped)
        reindexed, is_made = _reindex(tenant, version, until)
        with tenant_transaction(Role.WORKER, tenant=tenant):
            run = runs.advance(tenant, _again(tenant, run), step="retire", counts={"reindexed": reindexed})
        made = replace(made, reindexed=made.reindexed + reindexed)
        if not (all_of_them and is_made):
            return replace(made, waits_for="time")
        if _retire(tenant, version):
            break
        if time.monotonic() > until:
            return replace(made, waits_for="transactions")
    _write_down(tenant, version)
    retired = _clock()
    if not _are_over(retired, until, grace=GRACE):
        return replace(made, waits_for="transactions")
    return replace(made, destroyed=_destroy(actor, run, version))


def _again(tenant: UUID, run: Run) -> Run:
    found = runs.find(tenant, run.id)
    assert found is not None
    return found


def _now() -> datetime:
    now: datetime = rows.fetch("SELECT clock_timestamp()", [])[0][0]
    return now


def _clock() -> datetime:
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        now: datetime = cursor.fetchone()[0]
    return now


def _are_over(moment: datetime, until: float, *, grace: timedelta = timedelta()) -> bool:
    """Wait until every transaction of the application that began before `moment` is over, and `grace` more has passed."""
    while True:
        with connection.cursor() as cursor:
            cursor.execute(_OLDEST, [moment])
            older, now = cursor.fetchone()
        if not older and now >= moment + grace:
            return True
        if time.monotonic() > until:
            return False
        time.sleep(_POLL_SECONDS)


def _rewrap(tenant: UUID, run: Run, version: int, until: float) -> tuple[int, bool]:
    """Wrap anew what older versions wrap; return how many data keys, and whether none is left."""
    total = 0
    while time.monotonic() < until:
        with tenant_transaction(Role.WORKER, tenant=tenant):
            found = rows.fetch(_BEHIND, [tenant, version, CHUNK])
            if found:
                anew = [_anew(tenant, bytes(wrapped), old, version) for _, wrapped, old in found]
                keys = [row[0] for row in found]
                rows.execute(_REWRAPPED, [keys, [each for each, _ in anew], [number for _, number in anew], tenant])
                run = runs.advance(tenant, run, step="rewrap", counts={"rewrapped": len(found)})
            elif not rows.fetch(_LEFT, [tenant, version])[0][0]:
                return total, True
        total += len(found)
        if not found:
            time.sleep(_POLL_SECONDS)  # what is left is under somebody's lock
    return total, False


def _anew(tenant: UUID, wrapped: bytes, old: int, version: int) -> tuple[bytes, int]:
    """Return a data key wrapped anew. One that nobody can unwrap any more must not keep the rest: it stays what it is."""
    try:
        return keyring().rewrap(tenant, wrapped, old)
    except KeyUnavailable as missing:
        if missing.code not in ("deleted_version", "unknown_version"):
            raise
    except Unsealable:
        pass
    return wrapped, version


def _reindex(tenant: UUID, version: int, until: float) -> tuple[int, bool]:
    """Make the search index anew under the version; return how many payloads, and whether it is made."""
    total = 0
    while time.monotonic() < until:
        done = indexing.make_up(tenant)
        total += done
        with tenant_transaction(Role.WRITER, tenant=tenant):
            state = rows.fetch(_MADE, [tenant])
        if state and state[0] == (version, None):
            while time.monotonic() < until:
                done = indexing.make_under_one_key(tenant)
                if not done:
                    return total, True
                total += done
        elif not done:
            time.sleep(_POLL_SECONDS)  # another process is at it
    return total, False


def _retire(tenant: UUID, version: int) -> bool:
    """Let nobody in any more with a data key that an older version wraps; False where one is there still."""
    try:
        with tenant_transaction(Role.WORKER, tenant=tenant):
            # Who comes behind this waits as long: a writer must not wait for its own timeout.
            rows.execute("SELECT set_config('lock_timeout', %s, true)", [_LOCK_SECONDS])
            rows.execute(_SHUT_OUT, [tenant])
            if rows.fetch(_LEFT, [tenant, version])[0][0]:
                return False
            rows.execute(_RETIRED, [version, tenant])
    except OperationalError:
        return False
    return True


def _destroy(actor: Actor, run: Run, version: int) -> tuple[int, ...]:
    tenant = actor.tenant
    for old in provider().versions(tenant):
        if old < version:
            provider().delete_version(tenant, old)
    with tenant_transaction(Role.WORKER, tenant=tenant):
        _, known = rows.fetch(_STATE, [tenant])[0]
        destroyed = tuple(range(known + 1, version))
        if destroyed:
            rows.execute(_DESTROYED, [version - 1, tenant])
            append(
                [
                    Event(
                        actor=actor,
                        action=Action.KEY_VERSION_DESTROYED,
                        target_kind="tenant",
                        target_id=tenant,
                        numbers={"version": old, "current": version},
                    )
                    for old in destroyed
                ]
            )
        now = _now()
        pending = rows.fetch(_PENDING, [tenant, version - 1])
        for certificate, wrapped_by in pending:
            # What the earlier one said to be pending is true from here on.
            body = {"key": {"state": "destroyed", "version": wrapped_by, "destroyed_through": version - 1}, "at": now}
            certificates.issue(actor, "rotation", run, body, now, follows=certificate)
        run = runs.advance(
            tenant,
            _again(tenant, run),
            step="destroy",
            counts={"destroyed": len(destroyed), "certificates": len(pending)},
        )
        runs.finish(actor, run)
    return destroyed


# what the living keys are wrapped by, outside the database ---------------------------------------------------------------


def rewrapped_file(tenant: UUID) -> Path:
    """Return the file that tells what the tenant's data keys are wrapped by since the last rotation."""
    folder: Path = settings.ENVIRONMENT.endings_folder
    return folder / f"{tenant}.keys"


def rewrapped(tenant: UUID) -> Iterator[tuple[UUID, bytes, int]]:
    """Yield (data key, what it is wrapped as, by which version) as of the tenant's last rotation; nothing without one.

    A backup from before that rotation holds these keys wrapped by a version that is no more. What had ended by then is not
    among them, and stays unreadable.
    """
    try:
        lines = rewrapped_file(tenant).read_text(encoding="ascii").splitlines()
    except FileNotFoundError:
        return
    for line in lines:
        key, version, wrapped = line.split(" ")
        yield UUID(key), bytes.fromhex(wrapped), int(version)


def _opens(tenant: UUID, wrapped: bytes, version: int) -> bool:
    try:
        keyring().unwrap(tenant, wrapped, version)
    except Unsealable:
        return False
    return True


def _write_down(tenant: UUID, version: int) -> None:
    place = rewrapped_file(tenant)
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = place.with_suffix(f".new-{os.getpid()}")
    after = UUID(int=0)
    try:
        with open(
            os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "w", encoding="ascii"
        ) as out:
            while True:
                with tenant_transaction(Role.WORKER, tenant=tenant):
                    found = rows.fetch(_ALL, [tenant, after, CHUNK])
                for key, wrapped, by in found:
                    if by == version and _opens(tenant, bytes(wrapped), by):
                        out.write(f"{key} {by} {bytes(wrapped).hex()}\n")
                if len(found) < CHUNK:
                    break
                after = found[-1][0]
            out.flush()
            os.fsync(out.fileno())
        draft.replace(place)
        folder = os.open(place.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    finally:
        draft.unlink(missing_ok=True)
