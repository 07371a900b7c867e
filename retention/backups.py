"""Backups of the database: one consistent dump, and a signed manifest that says how far everything had come.

A backup never holds keys: without the folder of the key provider nothing personal in it can be read. Nor does it hold the
endings logs: they go on telling what ends, and a restore applies what they have told since (`retention.restoring`).
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from django.conf import settings
from django.utils.module_loading import import_string
from psycopg.conninfo import conninfo_to_dict

from retention import endings_log
from tenants.audit import PLATFORM, Action, Event, append
from tenants.errors import Problem
from tenants.isolation import Role, tenant_transaction
from tenants.registry import OPERATOR
from tenants.secrets import provider

FORMAT = 1
DUMP, MANIFEST = "database.dump", "manifest.json"
_SIGNED_AS = b"muniment:backup:1\n"


class BackupProblem(Problem):
    """A backup cannot be made, or cannot be restored, as things are. `code` says why, the runbook what to do."""

    status = 409
    code = "backup_refused"
    title = "There is no backup or restore as things are"


@dataclass(frozen=True, slots=True)
class Made:
    """A backup that was made: where, how large, and what it holds."""

    folder: Path
    size: int
    tenants: int
    entries: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a backup says of itself, its signature checked. `endings` are (lines, digest of the last) by tenant."""

    made_at: datetime
    server: int
    sha256: str
    digest: bytes
    migrations: frozenset[tuple[str, str]]
    chains: Mapping[UUID, tuple[int, bytes]]
    slugs: Mapping[UUID, str]
    endings: Mapping[UUID, tuple[int, str]]


def make(folder: Path, *, url: str, now: datetime) -> Made:
    """Make a backup of the database of `url` as a new folder within `folder`; audited on the platform's chain.

    `url` logs in as a superuser or a role with BYPASSRLS: any other would be given no row. What is dumped is one instant;
    readers and writers are not waited for. The new folder appears whole or not at all. Raises `BackupProblem`
    (`no_backup_url`, `role_is_bound`, `tool_missing`, `dump_failed`), `LogDamaged`, `KeyUnavailable`, `OSError`.
    """
    place = folder / f"muniment-{now:%Y%m%dT%H%M%SZ}"
    draft = folder / f".{place.name}.part"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    shutil.rmtree(draft, ignore_errors=True)
    with psycopg.connect(needed(url)) as session:
        refuse_bound(session)
        session.rollback()
        session.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        # Before the snapshot: what the logs tell up to here was committed before it, and is in the dump as ended.
        endings = _endings([row[0] for row in _other_session(url, "SELECT id FROM tenants_tenant")])
        snapshot = _one(session, "SELECT pg_export_snapshot()")
        chains = {
            chain: (int(seq), bytes(digest))
            for chain, seq, digest in session.execute("SELECT chain, seq, hash FROM tenants_auditchain")
        }
        slugs: dict[UUID, str] = dict(session.execute("SELECT id, slug FROM tenants_tenant").fetchall())
        migrations = session.execute("SELECT app, name FROM django_migrations ORDER BY 1, 2").fetchall()
        server = session.info.server_version // 10_000
        draft.mkdir(mode=0o700)
        dump = draft / DUMP
        run(
            "pg_dump",
            server,
            url,
            [
                "--format=custom",
                f"--snapshot={snapshot}",
                f"--file={dump}",
                # What rings is no content, and sessions would let somebody in.
                "--exclude-schema=pgmq",
                "--exclude-table-data=public.django_session",
            ],
            failed="dump_failed",
        )
    dump.chmod(0o600)
    said = {
        "format": FORMAT,
        "made_at": now.isoformat(),
        "server": server,
        "database": {"bytes": dump.stat().st_size, "sha256": digest_of(dump)},
        "migrations": [list(each) for each in migrations],
        "chains": {str(chain): {"seq": seq, "hash": digest.hex()} for chain, (seq, digest) in chains.items()},
        "tenants": {
            str(tenant): {
                "slug": slug,
                "endings": dict(zip(("lines", "head"), endings.get(tenant, (0, "")), strict=True)),
                "key_versions": provider().versions(tenant),
            }
            for tenant, slug in slugs.items()
        },
    }
    signature = provider().signing_key().sign(_signed_bytes(said))
    written = {"manifest": said, "signature": base64.b64encode(signature).decode()}
    _write_durably(draft / MANIFEST, json.dumps(written, indent=1, sort_keys=True).encode())
    for each in (dump, draft):
        _sync(each)
    draft.rename(place)
    _sync(folder)
    entries = sum(seq for seq, _ in chains.values())
    with tenant_transaction(Role.FRONT, tenant=None):
        numbers = {"tenants": len(slugs), "bytes": dump_size(place), "entries": entries}
        append(
            [
                Event(
                    actor=OPERATOR,
                    action=Action.BACKUP_MADE,
                    target_kind="backup",
                    target_id=PLATFORM,
                    digest=hashlib.sha256(_signed_bytes(said)).digest(),
                    numbers={**numbers},
                )
            ],
            chain=PLATFORM,
        )
    return Made(place, dump_size(place), len(slugs), entries)


def manifest_of(folder: Path) -> Manifest:
    """Return what the backup in `folder` says of itself.

    Raises `BackupProblem`: `not_a_backup`, `manifest_not_signed` (not by the key of this provider, or changed),
    `dump_changed`, `format_unknown`.
    """
    try:
        written = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        said, signature = written["manifest"], base64.b64decode(written["signature"], validate=True)
    except (FileNotFoundError, NotADirectoryError):
        raise BackupProblem("not_a_backup") from None
    except (ValueError, KeyError, TypeError):
        raise BackupProblem("manifest_not_signed") from None
    public: Any = load_pem_public_key(provider().public_key_pem())
    try:
        public.verify(signature, _signed_bytes(said))
    except InvalidSignature:
        raise BackupProblem("manifest_not_signed") from None
    if said.get("format") != FORMAT:
        raise BackupProblem("format_unknown")
    if not (folder / DUMP).is_file() or digest_of(folder / DUMP) != said["database"]["sha256"]:
        raise BackupProblem("dump_changed")
    return Manifest(
        made_at=datetime.fromisoformat(said["made_at"]),
        server=said["server"],
        sha256=said["database"]["sha256"],
        digest=hashlib.sha256(_signed_bytes(said)).digest(),
        migrations=frozenset((app, name) for app, name in said["migrations"]),
        chains={UUID(chain): (head["seq"], bytes.fromhex(head["hash"])) for chain, head in said["chains"].items()},
        slugs={UUID(tenant): each["slug"] for tenant, each in said["tenants"].items()},
        endings={
            UUID(tenant): (each["endings"]["lines"], each["endings"]["head"])
            for tenant, each in said["tenants"].items()
        },
    )


# the server and its programs --------------------------------------------------------------------------------------------


def needed(url: str) -> str:
    """Return the URL that backups log in by. Raises `BackupProblem("no_backup_url")` where there is none."""
    if not url:
        raise BackupProblem("no_backup_url")
    return url


def refuse_bound(session: psycopg.Connection[Any]) -> None:
    """Raise `BackupProblem("role_is_bound")` unless row-level security does not bind the session's role."""
    if not _one(session, "SELECT rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = session_user"):
        raise BackupProblem("role_is_bound")


def run(program: str, server: int, url: str, arguments: Sequence[str], *, failed: str) -> None:
    """Run a client program of PostgreSQL on the database of `url`; nothing of it, nor of what it says, is logged.

    Raises `BackupProblem`: `tool_missing` where there is no such program for a server of that version, else `failed`.
    """
    found = import_string(settings.POSTGRES_PROGRAM)(program, server)
    if found is None:
        raise BackupProblem("tool_missing")
    named = conninfo_to_dict(url)
    place = {
        f"PG{variable}": str(named[name])
        for name, variable in (
            ("host", "HOST"),
            ("port", "PORT"),
            ("user", "USER"),
            ("password", "PASSWORD"),
            ("dbname", "DATABASE"),
            ("sslmode", "SSLMODE"),
            ("sslrootcert", "SSLROOTCERT"),
        )
        if named.get(name)
    }
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
    done = subprocess.run(
        [str(found), "--no-password", *arguments],
        env={**kept, "LC_ALL": "C", **place},
        stdin=subprocess.DEVNULL,
        # An error of a restore may name a row's values.
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
    )
    if done.returncode:
        raise BackupProblem(failed)


def digest_of(file: Path) -> str:
    """Return a file's SHA-256 in hex."""
    with open(file, "rb") as read:
        return hashlib.file_digest(read, "sha256").hexdigest()


def dump_size(folder: Path) -> int:
    """Return how many bytes the dump of a backup has."""
    return (folder / DUMP).stat().st_size


def _endings(tenants: Sequence[UUID]) -> dict[UUID, tuple[int, str]]:
    found = {}
    for tenant in tenants:
        state = endings_log.state(tenant)
        found[tenant] = (state.lines, state.head)
    return found


def _other_session(url: str, statement: str) -> list[Any]:
    with psycopg.connect(url) as session:
        return session.execute(statement.encode()).fetchall()


def _one(session: psycopg.Connection[Any], statement: str) -> Any:
    row = session.execute(statement.encode()).fetchone()
    return row[0] if row else None


def _signed_bytes(said: Mapping[str, Any]) -> bytes:
    return _SIGNED_AS + json.dumps(said, sort_keys=True, separators=(",", ":")).encode()


def _write_durably(place: Path, content: bytes) -> None:
    with open(os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb") as out:
        out.write(content)
        out.flush()
        os.fsync(out.fileno())


def _sync(place: Path) -> None:
    handle = os.open(place, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
