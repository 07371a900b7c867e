"""What had ended is not read out of files: of yesterday's base backup and WAL, nor of the server's own after maintenance."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from django.conf import settings
from psycopg.conninfo import conninfo_to_dict

from config.embedded import Embedded, binaries
from memory import rows
from retention import certificates, rotation
from tenants.actors import Actor, ActorKind
from tenants.isolation import Role, tenant_transaction
from tenants.keyring import KeyUnavailable, Unsealable
from tenants.secrets import keyring, provider
from tests.memory.background import settle_all
from tests.memory.doors import Doors
from tests.retention.test_compaction import age, compact
from tests.retention.test_erasing import Office, furnish

pytestmark = pytest.mark.slow


@pytest.fixture
def data(database: Any) -> Path:
    """The data folder of the server under test."""
    folder: Path = settings.ENVIRONMENT.home / "pg"
    if not folder.is_dir():
        pytest.skip("needs the server's own files: unset DATABASE_URL to run on the embedded PostgreSQL")
    return folder


def holding(folder: Path, word: bytes) -> list[str]:
    """The files of which some byte run is the word."""
    found = []
    for file in sorted(folder.rglob("*")):
        try:
            if file.is_file() and word in file.read_bytes():
                found.append(str(file.relative_to(folder)))
        except FileNotFoundError:
            continue  # the server removed it meanwhile
    return found


@contextmanager
def opened(base: Path, home: Path) -> Iterator[psycopg.Connection[Any]]:
    """A server on a base backup, which it recovers from with the WAL that came along."""
    home.mkdir(mode=0o700)
    shutil.move(base, home / "pg")
    if os.geteuid() == 0:
        subprocess.run(["chown", "-R", "pgserver", str(home / "pg")], check=True)
    embedded = Embedded(home)
    urls = embedded.start()
    try:
        with psycopg.connect(urls.superuser, autocommit=True) as session:
            yield session
    finally:
        embedded.stop()


def test_yesterdays_base_backup_and_wal_do_not_decrypt_with_todays_keys(
    database: Any, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rotation, "GRACE", timedelta())
    office = Office()
    tenant = office.doors.id
    furnish(office)
    word = f"canary{uuid4().hex}"
    office.doors.say("city", word, 4)
    office.doors.episode(f"She told me {word} yesterday.", subject="mira", turn_id="e-9", extract="no")
    settle_all(office.doors.organisation)
    subject = office.subject("mira")
    base = tmp_path / "base"
    place = conninfo_to_dict(database.superuser)
    subprocess.run(
        [
            str(binaries() / "pg_basebackup"), "--host", str(place["host"]), "--port", str(place["port"]), "--username",
            str(place["user"]), "--pgdata", str(base), "--wal-method=stream", "--checkpoint=fast", "--no-sync",
        ],
        check=True,
        capture_output=True,
    )  # fmt: skip
    # Personal content stands in no file in clear, neither of the backup nor of the server.
    assert (holding(base, word.encode()), holding(data, word.encode())) == ([], [])
    office.erased("mira")
    rotation.rotate(Actor(kind=ActorKind.OPERATOR, id=UUID(int=0), tenant=tenant))
    wal = tmp_path / "wal"
    shutil.copytree(data / "pg_wal", wal, ignore_dangling_symlinks=True)
    assert holding(wal, word.encode()) == []
    with opened(base, tmp_path / "home") as session:
        stored = session.execute(
            "SELECT k.wrapped, k.version, p.sealed FROM memory_payload p"
            " JOIN tenants_subjectkey k ON k.tenant_id = p.tenant_id AND k.id = p.key_id WHERE p.tenant_id = %s",
            [tenant],
        ).fetchall()
        keys = session.execute(
            "SELECT k.wrapped, k.version FROM memory_subject s"
            " JOIN tenants_subjectkey k ON k.tenant_id = s.tenant_id AND k.id = s.key_id WHERE s.id = %s",
            [subject],
        ).fetchall()
    assert len(stored) > 10
    assert len(keys) == 1
    for wrapped, version in [*keys, *((row[0], row[1]) for row in stored)]:
        with pytest.raises(KeyUnavailable) as gone:
            keyring().unwrap(tenant, bytes(wrapped), version)
        assert gone.value.code == "deleted_version"
        # Nor by any version that there is.
        for living in provider().versions(tenant):
            with pytest.raises(Unsealable):
                keyring().unwrap(tenant, bytes(wrapped), living)
    # The key that was erased is not among those that the rotation wrote down for backups of before.
    kept = {key: (again, by) for key, again, by in rotation.rewrapped(tenant)}
    assert kept
    with tenant_transaction(Role.WORKER, tenant=tenant):
        present = {row[0] for row in rows.fetch("SELECT id FROM tenants_subjectkey", [])}
    assert set(kept) <= present


def test_the_clear_classes_are_gone_from_the_data_files_once_maintenance_has_run(
    database: Any, data: Path, superuser: psycopg.Connection[Any]
) -> None:
    doors = Doors()
    word = f"canary{uuid4().hex}"
    doors.say("shade", word, 1)
    settle_all(doors.organisation)
    superuser.execute("CHECKPOINT")
    assert holding(data / "base", word.encode()) != []
    age(superuser, doors)
    compact(doors)
    with tenant_transaction(Role.WORKER, tenant=doors.id):
        issued = rows.fetch("SELECT id FROM retention_certificate ORDER BY id", [])
        bodies = [certificates.find(doors.id, row[0]).document["body"] for row in issued]
    # What it did not do it does not claim.
    assert bodies
    assert {body["clear"]["state"] for body in bodies} == {"maintenance_due"}
    superuser.execute("VACUUM (FULL, ANALYZE) memory_payload")
    superuser.execute("REINDEX TABLE memory_searchentry")
    superuser.execute("CHECKPOINT")
    assert holding(data / "base", word.encode()) == []
