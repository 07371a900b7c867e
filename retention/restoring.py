"""Restoring a backup into an empty database, and applying what has ended since, before anybody is let in.

From its first step to its last nobody but the restore can log in as the application: the database refuses the role, and a
schema of its own says why. Each step may be cut off; the same command goes on with it. What ended after the backup was
made is applied from the endings logs; data keys come as the last rotation wrapped them. What was written after the backup
is not there, and is told as far as it is known.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
from django.conf import settings
from django.db import DatabaseError, connection
from django.db.migrations.loader import MigrationLoader
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from memory import consent, erasure, rows, suppression
from memory.endings import worker
from retention import endings_log, erasing, holds, matters, redaction, restricting, rotation
from retention.backups import DUMP, BackupProblem, Manifest, manifest_of, needed, refuse_bound, run
from retention.endings_log import Entry, Kind
from tenants.actors import Actor, ActorKind
from tenants.audit import PLATFORM, Action, Event, append
from tenants.isolation import Role, tenant_transaction
from tenants.keyring import SignedLog
from tenants.registry import OPERATOR
from tenants.secrets import provider
from tenants.verification import Head, chains, checkpoints, export_heads

#: The application's login; nobody else reaches a tenant's row but who bypasses row-level security.
_APP = "muniment_app"


_CHUNK = 1_000
_UNREADABLE = """
SELECT p.id FROM memory_payload p JOIN tenants_subjectkey k ON k.tenant_id = p.tenant_id AND k.id = p.key_id
WHERE p.tenant_id = %s::uuid AND p.ended_at IS NULL AND NOT k.version = ANY (%s::int[]) LIMIT %s
"""


@dataclass(slots=True)
class Restored:
    """What a restore came to.

    `applied` counts endings by kind, `unmatched` those whose record came after the backup, `unreadable` data keys that no
    living version wraps, `lost` how many entries of the audit chains checkpoints tell to have followed the backup.
    `unknown` are tenants that have an endings log and are not in the backup.
    """

    made_at: datetime
    tenants: int
    applied: Counter[str] = field(default_factory=Counter)
    unmatched: int = 0
    unreadable: int = 0
    lost: int = 0
    unknown: list[UUID] = field(default_factory=list)


# how each kind of ending is applied again --------------------------------------------------------------------------------

#: Harmless where the ending is applied already; False where its record is not there. The set names what was undone later.
Applier = Callable[[UUID, Entry, "Undone"], bool]


@dataclass(frozen=True, slots=True)
class Undone:
    """What the log tells to have been taken back later: suppressions by digest, holds and restrictions by id."""

    lifted: Mapping[str, int]
    released: frozenset[UUID]
    allowed: frozenset[UUID]

    @classmethod
    def of(cls, tenant: UUID) -> Undone:
        """Read it from the tenant's log."""
        lifted: dict[str, int] = {}
        released: set[UUID] = set()
        allowed: set[UUID] = set()
        for entry in endings_log.told(tenant):
            if entry.kind is Kind.SUPPRESSION_LIFTED:
                lifted |= dict.fromkeys(entry.record["digests"], entry.number)
            elif entry.kind is Kind.HOLD_RELEASED:
                released.add(entry.target)
            elif entry.kind is Kind.RESTRICTION and entry.record["state"] == "lifted":
                allowed.add(UUID(entry.record["restriction"]))
        return cls(lifted, frozenset(released), frozenset(allowed))


def _withdraw(tenant: UUID, entry: Entry, _: Undone) -> bool:
    return consent.withdraw_again(tenant, entry.target, datetime.fromisoformat(entry.record["withdrawn_at"]))


def _suppress(tenant: UUID, entry: Entry, undone: Undone) -> bool:
    keys = [key for key in entry.record["keys"] if undone.lifted.get(key[1], 0) < entry.number]
    if keys:
        with tenant_transaction(Role.WORKER, tenant=tenant):
            suppression.restore(tenant, entry.target, {**entry.record, "keys": keys})
    return True


def _hold(tenant: UUID, entry: Entry, undone: Undone) -> bool:
    if entry.target in undone.released:
        return False
    actor = Actor(kind=ActorKind.OPERATOR, id=OPERATOR.id, tenant=tenant)
    with tenant_transaction(Role.STAFF, tenant=tenant, actor=actor.id):
        matters.place_again(actor, entry.target, entry.record, now=entry.at)
    return True


def _restrict(tenant: UUID, entry: Entry, undone: Undone) -> bool:
    if UUID(entry.record["restriction"]) in undone.allowed:
        return False
    actor = Actor(kind=ActorKind.OPERATOR, id=OPERATOR.id, tenant=tenant)
    with tenant_transaction(Role.STAFF, tenant=tenant, actor=actor.id):
        return restricting.restrict_again(actor, entry.target, {**entry.record, "at": entry.at})


def _left_to_people(tenant: UUID, entry: Entry, _: Undone) -> bool:
    """A hold that was released, a suppression that was lifted (a restriction is alike): what a person decided stays with persons, and on the safe
    side. One that the backup knows stands until it is let go again; one that it does not know is not made."""
    return False


def _redact(tenant: UUID, entry: Entry, _: Undone) -> bool:
    with tenant_transaction(Role.WORKER, tenant=tenant):
        return redaction.end_again(tenant, entry.record["records"], now=entry.at)


def _erase(tenant: UUID, entry: Entry, _: Undone) -> bool:
    with tenant_transaction(Role.WORKER, tenant=tenant):
        run = erasing.erase_again(worker(tenant), entry.target, UUID(entry.record["erasure"]), now=entry.at)
    if run is None:
        return False
    erasing.finish_again(tenant, run.id)
    return True


APPLIERS: Mapping[Kind, Applier] = {
    Kind.ERASURE: _erase,
    Kind.REDACTION: _redact,
    Kind.CONSENT_WITHDRAWN: _withdraw,
    Kind.SUPPRESSION: _suppress,
    Kind.SUPPRESSION_LIFTED: _left_to_people,
    Kind.HOLD_PLACED: _hold,
    Kind.HOLD_RELEASED: _left_to_people,
    Kind.RESTRICTION: _restrict,
}


# the whole ------------------------------------------------------------------------------------------------------------


def restore(folder: Path, *, url: str) -> Restored:
    """Restore the backup in `folder` into the empty database of `url`, or go on with a restore of it that was cut off.

    `url` logs in as a superuser: objects get their owners back. The folder of keys and the endings logs have to be in
    place, the newest of them. On return everything that had ended is ended again, the chains tell of the restore, and the
    application may log in. Raises `BackupProblem` (those of `manifest_of`; `database_not_empty`, `restore_running`,
    `other_restore`, `roles_missing`, `version_differs`, `endings_log_behind`, `ending_unknown`, `restore_failed`, ...),
    `LogDamaged`, `KeyUnavailable`.
    """
    manifest = manifest_of(folder)
    _refuse_other_version(manifest)
    _refuse_short_logs(manifest)
    with psycopg.connect(needed(url), autocommit=True) as session:
        refuse_bound(session)
        if not _one(session, "SELECT pg_try_advisory_lock(hashtext('muniment.restore'))"):
            raise BackupProblem("restore_running")
        step = _begin(session, manifest)
        restored = Restored(manifest.made_at, len(manifest.slugs))
        if step == "begun":
            if not _is_loaded(session):
                # One transaction: it is there whole, or not at all.
                arguments = ["--single-transaction", "--exit-on-error", "--dbname", session.info.dbname]
                run(
                    "pg_restore",
                    session.info.server_version // 10_000,
                    url,
                    [*arguments, str(folder / DUMP)],
                    failed="restore_failed",
                )
            session.execute("ANALYZE")
            _at(session, step := "loaded")
        if step == "loaded":
            for tenant in manifest.slugs:
                _rewrap(session, tenant)
            _at(session, step := "keyed")
        with _as_application(url):
            if step == "keyed":
                _tell(manifest)
                _at(session, step := "told")
            for tenant, (line, _) in manifest.endings.items():
                # First, so that no ending stumbles over what nobody can read.
                _end_unreadable(tenant)
                _end_again(session, tenant, line)
        _count(session, manifest, restored)
        _open(session)
    return restored


def _refuse_other_version(manifest: Manifest) -> None:
    if set(MigrationLoader(None).disk_migrations or ()) != manifest.migrations:
        raise BackupProblem("version_differs")


def _refuse_short_logs(manifest: Manifest) -> None:
    """Raise unless every endings log goes on from where it was when the backup was made."""
    for tenant, (lines, head) in manifest.endings.items():
        if endings_log.state(tenant).lines < lines or (lines and endings_log.digest_at(tenant, lines) != head):
            raise BackupProblem("endings_log_behind")


# letting nobody in ------------------------------------------------------------------------------------------------------


def _begin(session: psycopg.Connection[Any], manifest: Manifest) -> str:
    """Shut the application out, and return the step that the restore has come to."""
    if _one(session, "SELECT to_regnamespace('restore_under_way') IS NOT NULL"):
        found = session.execute("SELECT backup, step FROM restore_under_way.progress").fetchone()
        if found is None or bytes(found[0]) != manifest.digest:
            raise BackupProblem("other_restore")
        return str(found[1])
    if _one(
        session, "SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p')"
    ):
        raise BackupProblem("database_not_empty")
    if (
        _one(
            session,
            "SELECT count(*) FROM pg_roles WHERE rolname = ANY ('{muniment_owner,muniment_app,muniment_chain}')",
        )
        < 3
    ):
        raise BackupProblem("roles_missing")
    with session.transaction():
        session.execute("CREATE SCHEMA restore_under_way")
        session.execute("CREATE TABLE restore_under_way.progress (backup bytea NOT NULL, step text NOT NULL)")
        session.execute(
            "CREATE TABLE restore_under_way.applied (tenant uuid, line bigint, kind text NOT NULL, was_there boolean NOT NULL,"
            " PRIMARY KEY (tenant, line))"
        )
        session.execute("INSERT INTO restore_under_way.progress VALUES (%s, 'begun')", [manifest.digest])
        _connect(session, "REVOKE CONNECT ON DATABASE {} FROM {}")
    session.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = %s AND datname = current_database()",
        [_APP],
    )
    return "begun"


def _at(session: psycopg.Connection[Any], step: str) -> None:
    session.execute("UPDATE restore_under_way.progress SET step = %s", [step])


def _open(session: psycopg.Connection[Any]) -> None:
    with session.transaction():
        session.execute("DROP SCHEMA restore_under_way CASCADE")
        _connect(session, "GRANT CONNECT ON DATABASE {} TO {}")


def _connect(session: psycopg.Connection[Any], statement: Any) -> None:
    session.execute(sql.SQL(statement).format(sql.Identifier(session.info.dbname), sql.Identifier(_APP)))


def _is_loaded(session: psycopg.Connection[Any]) -> bool:
    return bool(_one(session, "SELECT to_regclass('public.tenants_tenant') IS NOT NULL"))


@contextmanager
def _as_application(url: str) -> Iterator[None]:
    """Let Django reach the database as the application's role, by a session that is let in while the application is not."""
    connection.close()
    before = dict(connection.settings_dict)
    named = conninfo_to_dict(url)
    try:
        connection.settings_dict.update(
            {
                setting: str(named.get(name) or "")
                for setting, name in (
                    ("NAME", "dbname"),
                    ("USER", "user"),
                    ("PASSWORD", "password"),
                    ("HOST", "host"),
                    ("PORT", "port"),
                )
            }
        )
        connection.settings_dict["OPTIONS"] = {**before["OPTIONS"], "options": f"-c role={_APP}"}
        yield
    finally:
        connection.close()
        connection.settings_dict.clear()
        connection.settings_dict.update(before)


# the steps ------------------------------------------------------------------------------------------------------------


def _rewrap(session: psycopg.Connection[Any], tenant: UUID) -> None:
    """Take the data keys as the last rotation wrapped them."""
    oldest = provider().versions(tenant)[0]
    known = list(rotation.rewrapped(tenant))
    with session.transaction():
        session.execute(
            "UPDATE tenants_subjectkey k SET wrapped = w.wrapped, version = w.version"
            " FROM unnest(%s::uuid[], %s::bytea[], %s::int[]) AS w (id, wrapped, version)"
            " WHERE k.tenant_id = %s AND k.id = w.id AND k.version < w.version",
            [[key for key, _, _ in known], [wrapped for _, wrapped, _ in known], [by for _, _, by in known], tenant],
        )
        session.execute(
            "UPDATE tenants_tenant SET oldest_key_version = greatest(oldest_key_version, %s),"
            " destroyed_key_version = greatest(destroyed_key_version, %s) WHERE id = %s",
            [oldest, oldest - 1, tenant],
        )


def _tell(manifest: Manifest) -> None:
    """Let every chain go on with an entry that names the head it had, and the checkpoints know where it goes on."""
    log = SignedLog(settings.ENVIRONMENT.home / "checkpoints.jsonl", provider())
    signed = checkpoints(log)
    with tenant_transaction(Role.FRONT, tenant=None):
        present = chains()
    for chain, (seq, digest) in manifest.chains.items():
        if present[chain].seq > seq:
            continue  # told before this was cut off
        old = signed.get(chain)
        last = old if old is not None and old.seq > seq else Head(seq, digest)
        event = Event(
            actor=OPERATOR,
            action=Action.BACKUP_RESTORED,
            target_kind="audit_chain",
            target_id=chain,
            digest=last.hash,
            numbers={"old_seq": last.seq, "backup_seq": seq},
        )
        if last.seq > seq:
            # Before the entry: whoever is cut off in between says it again.
            export_heads(log, {chain: Head(seq, digest)}, now=manifest.made_at, restored=True)
        with tenant_transaction(Role.FRONT, tenant=None if chain == PLATFORM else chain):
            append([event], chain=chain)


def _end_again(session: psycopg.Connection[Any], tenant: UUID, after: int) -> None:
    """Apply what the tenant's log tells after the line that the backup knows of, each ending in a transaction of its own."""
    done = session.execute("SELECT max(line) FROM restore_under_way.applied WHERE tenant = %s", [tenant]).fetchone()
    after = max(after, done[0] or 0) if done else after
    undone = Undone.of(tenant)
    for entry in endings_log.told(tenant):
        if entry.number <= after:
            continue
        apply = APPLIERS.get(entry.kind)
        if apply is None:
            raise BackupProblem("ending_unknown")
        was_there = apply(tenant, entry, undone)
        session.execute(
            "INSERT INTO restore_under_way.applied VALUES (%s, %s, %s, %s)",
            [tenant, entry.number, entry.kind.value, was_there],
        )


def _end_unreadable(tenant: UUID) -> None:
    """End what is sealed by a data key that no living version wraps: nobody reads it again, and it must not be tried.

    What a hold covers stays as it is.
    """
    versions = provider().versions(tenant)
    with contextlib.suppress(DatabaseError):
        while True:
            with tenant_transaction(Role.WORKER, tenant=tenant):
                holds.share(tenant)
                found = [row[0] for row in rows.fetch(_UNREADABLE, [tenant, versions, _CHUNK])]
                erasure.erase_payloads(tenant, found)
            if len(found) < _CHUNK:
                return


def _count(session: psycopg.Connection[Any], manifest: Manifest, restored: Restored) -> None:
    for kind, was_there, number in session.execute(
        "SELECT kind, was_there, count(*) FROM restore_under_way.applied GROUP BY 1, 2"
    ):
        if was_there:
            restored.applied[kind] += number
        else:
            restored.unmatched += number
    for tenant in manifest.slugs:
        wrapped = session.execute(
            "SELECT count(*) FROM tenants_subjectkey k WHERE k.tenant_id = %s AND NOT k.version = ANY (%s)",
            [tenant, provider().versions(tenant)],
        ).fetchone()
        restored.unreadable += wrapped[0] if wrapped else 0
    lost = session.execute(
        "SELECT sum((numbers->>'old_seq')::bigint - (numbers->>'backup_seq')::bigint) FROM tenants_auditevent e"
        " WHERE action = %s AND seq = (numbers->>'backup_seq')::bigint + 1",
        [Action.BACKUP_RESTORED.value],
    ).fetchone()
    restored.lost = int(lost[0]) if lost and lost[0] is not None else 0
    restored.unknown = sorted(_known_outside() - set(manifest.slugs))


def _known_outside() -> set[UUID]:
    folder: Path = settings.ENVIRONMENT.endings_folder
    return {UUID(file.stem) for file in folder.glob("*.jsonl")} if folder.is_dir() else set()


def _one(session: psycopg.Connection[Any], statement: str) -> Any:
    row = session.execute(statement.encode()).fetchone()
    return row[0] if row else None
