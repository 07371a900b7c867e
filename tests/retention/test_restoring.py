"""A backup restored into an empty database: what ended since has ended before anybody is let in, and the living are read."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from django.conf import settings
from django.db import connection
from psycopg.conninfo import make_conninfo

from memory import recall, rows, suppression
from memory.outcomes import Written
from retention import backups, holds, matters, restoring, restricting, rotation
from retention.backups import BackupProblem
from retention.endings_log import Kind
from retention.matters import Target
from tenants.actors import Actor, ActorKind, MemberRole
from tenants.errors import Missing
from tenants.isolation import Role, tenant_transaction
from tenants.keyring import LogDamaged, SignedLog
from tenants.secrets import provider
from tenants.verification import verify_all
from tests.memory.background import grant, publish, say, settle_all, withdraw
from tests.paths.ledger import Ledger
from tests.retention.test_erasing import Office, furnish

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.usefixtures("database"), pytest.mark.slow]

CONSENTED: dict[str, Any] = {
    "provenance": {"turn_id": "t", "consent_ref": "form-1"},
    "retention": {"basis": "consent"},
}


@pytest.fixture(autouse=True)
def _needs_a_superuser(database: Any) -> None:
    if not database.superuser:
        pytest.skip("needs a superuser's session: unset DATABASE_URL to run on the embedded PostgreSQL")


@pytest.fixture
def empty(database: Any) -> Iterator[str]:
    """An empty database with the roles in it; the URL of its superuser."""
    name = f"restored_{uuid4().hex[:12]}"
    with psycopg.connect(database.superuser, autocommit=True) as session:
        session.execute(f"CREATE DATABASE {name} OWNER muniment_owner TEMPLATE template0 ENCODING 'UTF8'".encode())
    url = make_conninfo(database.superuser, dbname=name)
    with psycopg.connect(url, autocommit=True) as session:
        session.execute((ROOT / "tenants" / "bootstrap.sql").read_bytes())
    yield url
    connection.close()
    with psycopg.connect(database.superuser, autocommit=True) as session:
        session.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


@contextmanager
def served_by(url: str) -> Iterator[None]:
    """Django reaches the restored database, logged in as the application is."""
    before = dict(connection.settings_dict)
    connection.close()
    with psycopg.connect(url) as session:
        connection.settings_dict["NAME"] = session.info.dbname
    try:
        yield
    finally:
        connection.close()
        connection.settings_dict.clear()
        connection.settings_dict.update(before)


def made(database: Any, folder: Path) -> Path:
    return backups.make(folder, url=database.superuser, now=datetime.now(UTC)).folder


def values(agent: Any, subject: str) -> list[Any]:
    with tenant_transaction(Role.AGENT, tenant=agent.actor.tenant, clearance=3, actor=agent.actor.id):
        return [fact["value"] for fact in recall.facts(agent.actor, subject=subject).results]


def test_answers_are_as_before_and_what_ended_since_has_ended(
    tenant: Any, agent: Any, database: Any, empty: str, tmp_path: Path
) -> None:
    publish(tenant)
    consent = grant(agent, "form-1")
    say(agent, "mira", "city", "Oslo", **CONSENTED)
    say(agent, "nora", "city", "Turin")
    settle_all(tenant)
    backup = made(database, tmp_path)
    withdraw(agent, "form-1")
    say(agent, "nora", "city", "Bergen")
    done = restoring.restore(backup, url=empty)
    assert done.applied["consent_withdrawn"] >= 1
    with served_by(empty):
        assert (values(agent, "mira"), values(agent, "nora")) == ([], ["Turin"])
        settle_all(tenant)
    with psycopg.connect(empty) as session:
        assert session.execute(
            "SELECT ended_by FROM memory_fact WHERE ended_by IS NOT NULL AND tenant_id = %s", [tenant.id]
        ).fetchall() == [("consent_withdrawn",)]
        told = session.execute(
            "SELECT action, reason FROM tenants_auditevent WHERE chain = %s AND action IN"
            " ('backup.restored', 'consent.withdrawn') ORDER BY seq",
            [tenant.id],
        ).fetchall()
        assert told == [("backup.restored", "none"), ("consent.withdrawn", "restored")]
        assert session.execute(
            "SELECT withdrawn_at IS NOT NULL FROM policies_consent WHERE id = %s", [consent]
        ).fetchone()
    assert values(agent, "nora") == ["Bergen"]


def test_every_kind_of_ending_that_may_be_told_can_be_applied_again() -> None:
    assert set(restoring.APPLIERS) == set(Kind)


def test_holds_and_suppressions_of_since_stand_again(
    tenant: Any, agent: Any, database: Any, empty: str, tmp_path: Path
) -> None:
    publish(tenant)
    fact, restricted, freed = (say(agent, name, "city", "Oslo").fact for name in ("mira", "nora", "otto"))
    assert fact is not None
    assert restricted is not None
    assert freed is not None
    backup = made(database, tmp_path)
    operator = Actor(kind=ActorKind.OPERATOR, id=uuid4(), tenant=tenant.id)
    with tenant_transaction(Role.STAFF, tenant=tenant.id, actor=operator.id):
        matter, _ = matters.open_matter(operator, "2026/1", "litigation", now=datetime.now(UTC))
        hold = matters.place(operator, matter.id, [Target(record_kind="fact", record_id=fact)], now=datetime.now(UTC))
    with tenant_transaction(Role.WRITER, tenant=tenant.id):
        names = [bytes(row[0]) for row in rows.fetch("SELECT digest FROM memory_subjectidentifier", [])]
        suppression.add_subject(
            tenant.id, names, cause="erased", target_kind="run", target=uuid4(), now=datetime.now(UTC)
        )
    officer = tenant.person(MemberRole.PRIVACY_OFFICER).actor
    with tenant_transaction(Role.STAFF, tenant=tenant.id, actor=officer.id):
        for target, lifted in ((restricted, False), (freed, True)):
            row = restricting.restrict(officer, "fact", target, ground="unlawful", now=datetime.now(UTC))
            if lifted:
                restricting.lift(officer, row.id, because="in_error", now=datetime.now(UTC))
    done = restoring.restore(backup, url=empty)
    assert min(done.applied[kind] for kind in ("hold_placed", "suppression", "restriction")) >= 1
    with served_by(empty):
        with tenant_transaction(Role.WORKER, tenant=tenant.id):
            assert holds.held(tenant.id, "fact", [fact]) == {fact: [hold.id]}
        refused = Ledger(agent).say("mira", "city", "Lima")
        assert (values(agent, "nora"), values(agent, "otto")) == ([], ["Oslo"])
        # What erased it may only come back by a person: a saying without an episode to date it is asked about.
        assert (refused.status_code, refused.json()["reasons"]) == (202, ["suppressed"])
    with psycopg.connect(empty) as session:
        counted = session.execute(
            "SELECT count(*) FROM memory_suppression WHERE tenant_id = %s AND lifted_at IS NULL", [tenant.id]
        ).fetchone()
    assert counted == (len(names),)


def test_a_backup_from_before_a_rotation_is_readable_but_for_what_had_ended(
    tenant: Any, agent: Any, database: Any, empty: str, tmp_path: Path, superuser: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rotation, "GRACE", timedelta())
    publish(tenant)
    say(agent, "mira", "passport_deadline", "2026-07-15")
    say(agent, "gone", "passport_deadline", "2026-08-01")
    settle_all(tenant)
    backup = made(database, tmp_path)
    key = superuser.execute(
        "SELECT s.key_id FROM memory_subject s JOIN memory_fact f ON f.subject_id = s.id WHERE f.id = %s",
        [fact_of(agent, "gone")],
    ).fetchone()[0]
    rotation.rotate(Actor(kind=ActorKind.OPERATOR, id=UUID(int=0), tenant=tenant.id))
    # As if it had been erased before the rotation: then it is not among the living that the rotation wrote down.
    kept = rotation.rewrapped_file(tenant.id)
    lines = [line for line in kept.read_text().splitlines() if not line.startswith(str(key))]
    kept.write_text("".join(f"{line}\n" for line in lines))
    done = restoring.restore(backup, url=empty)
    assert done.unreadable == 1
    with served_by(empty):
        assert values(agent, "mira") == ["2026-07-15"]
        assert values(agent, "gone") in ([], [None])
    with psycopg.connect(empty) as session:
        version = session.execute("SELECT version FROM tenants_subjectkey WHERE id = %s", [key]).fetchone()
        sealed = session.execute("SELECT count(*) FROM memory_payload WHERE key_id = %s", [key]).fetchone()
    assert (version, sealed) == ((1,), (0,))
    assert provider().versions(tenant.id) == [2]


@pytest.mark.parametrize("rotated", [False, True])
def test_an_erased_subject_does_not_come_back_with_an_old_backup(
    database: Any, empty: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rotated: bool
) -> None:
    monkeypatch.setattr(rotation, "GRACE", timedelta())
    office = Office()
    furnish(office)
    office.doors.say("city", "Lyon", 1, subject="dora")
    settle_all(office.doors.organisation)
    backup = made(database, tmp_path)
    subject = office.subject("mira")
    erasure = office.erased("mira")
    assert office.certificate(erasure)["key"]["state"] == "pending_rotation"
    if rotated:
        rotation.rotate(Actor(kind=ActorKind.OPERATOR, id=UUID(int=0), tenant=office.doors.id))
        assert rotation.pending(office.doors.id) == 0
    done = restoring.restore(backup, url=empty)
    assert done.applied["erasure"] == 1
    with served_by(empty):
        with pytest.raises(Missing):
            office.subject("mira")
        # The empty row of the episode that facts of others cite.
        assert office.left(subject) == {"episodes": 1}
        with tenant_transaction(Role.AGENT, tenant=office.doors.id, clearance=3, actor=office.first.id):
            values_of = {
                name: [fact["value"] for fact in recall.facts(office.doors.agent, subject=name).results]
                for name in ("mira", "Mira Okafor", "dora")
            }
        # What it says of her may come in again only by a person.
        outcome = office.doors.say("city", "Lisbon", 1)
    assert values_of == {"mira": [], "Mira Okafor": [], "dora": ["Lyon"]}
    assert not isinstance(outcome, Written)


def fact_of(agent: Any, subject: str) -> UUID:
    with tenant_transaction(Role.AGENT, tenant=agent.actor.tenant, clearance=3, actor=agent.actor.id):
        return UUID(str(recall.facts(agent.actor, subject=subject).results[0]["id"]))


def test_the_application_is_let_in_only_when_all_is_done(
    tenant: Any, agent: Any, database: Any, empty: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(tenant)
    grant(agent, "form-1")
    say(agent, "mira", "city", "Oslo", **CONSENTED)
    settle_all(tenant)
    backup = made(database, tmp_path)
    withdraw(agent, "form-1")
    met: list[str] = []

    def looked_at(*_: Any) -> bool:
        name = psycopg.conninfo.conninfo_to_dict(empty)["dbname"]
        try:
            psycopg.connect(make_conninfo(database.app, dbname=str(name)))
        except psycopg.OperationalError as error:
            met.append(str(error))
        raise InterruptedError

    monkeypatch.setattr(restoring, "APPLIERS", {**restoring.APPLIERS, Kind.CONSENT_WITHDRAWN: looked_at})
    with pytest.raises(InterruptedError):
        restoring.restore(backup, url=empty)
    assert "permission denied for database" in met[0]
    # Whoever is let in all the same, by another login, does not begin to serve; and no launcher opens it either.
    with served_by(empty):
        connection.settings_dict["USER"] = "postgres"
        from tenants.fitness import unfit

        assert unfit() == "restore_unfinished"
    with psycopg.connect(empty, autocommit=True) as session:
        session.execute((ROOT / "tenants" / "bootstrap.sql").read_bytes())
        name = session.info.dbname
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(make_conninfo(database.app, dbname=name))
    monkeypatch.undo()
    restoring.restore(backup, url=empty)
    with served_by(empty):
        assert values(agent, "mira") == []


_KILLED = """
import os, django
django.setup()
from pathlib import Path
from retention import restoring
kept, calls = getattr(restoring, os.environ["BEFORE"]), [0]
def maybe(*args, **more):
    calls[0] += 1
    if calls[0] == int(os.environ["CALL"]):
        os.kill(os.getpid(), 9)
    return kept(*args, **more)
setattr(restoring, os.environ["BEFORE"], maybe)
restoring.restore(Path(os.environ["BACKUP"]), url=os.environ["URL"])
"""


def test_killed_in_any_step_it_is_gone_on_with_and_finished_once(
    tenant: Any, agent: Any, database: Any, empty: str, tmp_path: Path
) -> None:
    publish(tenant)
    grant(agent, "form-1")
    say(agent, "mira", "city", "Oslo", **CONSENTED)
    settle_all(tenant)
    backup = made(database, tmp_path)
    withdraw(agent, "form-1")
    steps = [
        ("run", 1),
        ("_at", 1),
        ("_rewrap", 1),
        ("_at", 1),
        ("_tell", 1),
        ("append", 2),
        ("_at", 1),
        ("_end_again", 1),
        ("_count", 1),
        ("_open", 1),
    ]
    for before, call in steps:
        environment = {
            **os.environ,
            "BACKUP": str(backup),
            "URL": empty,
            "BEFORE": before,
            "CALL": str(call),
            "DJANGO_SETTINGS_MODULE": "config.settings",
        }
        killed = subprocess.run([sys.executable, "-c", _KILLED], env=environment, check=False)
        assert killed.returncode == -signal.SIGKILL, before
        time.sleep(0.3)  # the server notices
    done = restoring.restore(backup, url=empty)
    assert done.applied["consent_withdrawn"] >= 1
    with served_by(empty):
        assert values(agent, "mira") == []
    with psycopg.connect(empty) as session:
        counted = session.execute(
            "SELECT count(*), count(*) FILTER (WHERE action = 'backup.restored'),"
            " count(*) FILTER (WHERE action = 'consent.withdrawn') FROM tenants_auditevent WHERE chain = %s",
            [tenant.id],
        ).fetchone()
    assert counted is not None
    assert counted[1:] == (1, 1)


def test_chains_go_on_from_the_backup_and_name_the_head_they_had(
    tenant: Any, agent: Any, database: Any, empty: str, tmp_path: Path
) -> None:
    publish(tenant)
    say(agent, "mira", "city", "Oslo")
    backup = made(database, tmp_path)
    say(agent, "mira", "city", "Turin")
    log = SignedLog(settings.ENVIRONMENT.home / "checkpoints.jsonl", provider())
    from tenants.verification import export

    with tenant_transaction(Role.FRONT, tenant=None):
        found = verify_all(log, only=tenant.id)
        export(log, found, now=datetime.now(UTC))
    old = found[0].head
    assert old is not None
    done = restoring.restore(backup, url=empty)
    assert done.lost >= 1
    with served_by(empty), tenant_transaction(Role.FRONT, tenant=None):
        assert [each.code for each in verify_all(log, only=tenant.id)] == ["sound"]
    with psycopg.connect(empty) as session:
        event = session.execute(
            "SELECT digest, numbers FROM tenants_auditevent WHERE chain = %s AND action = 'backup.restored'",
            [tenant.id],
        ).fetchone()
    assert event is not None
    assert (bytes(event[0]), event[1]["old_seq"]) == (old.hash, old.seq)
    log_file = settings.ENVIRONMENT.home / "checkpoints.jsonl"
    log_file.unlink()


@pytest.mark.parametrize(
    ("spoil", "code"),
    [
        (lambda folder: (folder / backups.MANIFEST).unlink(), "not_a_backup"),
        (lambda folder: _changed(folder, "made_at", "2020-01-01T00:00:00+00:00"), "manifest_not_signed"),
        (lambda folder: (folder / backups.DUMP).write_bytes(b"x"), "dump_changed"),
    ],
)
def test_what_is_no_whole_backup_of_ours_is_refused(
    tenant: Any, database: Any, empty: str, tmp_path: Path, spoil: Any, code: str
) -> None:
    backup = made(database, tmp_path)
    spoil(backup)
    with pytest.raises(BackupProblem) as refused:
        restoring.restore(backup, url=empty)
    assert refused.value.code == code


def _changed(folder: Path, name: str, value: Any) -> None:
    place = folder / backups.MANIFEST
    written = json.loads(place.read_text())
    written["manifest"][name] = value
    place.write_text(json.dumps(written))


def test_a_database_that_is_not_empty_and_logs_that_are_behind_are_refused(
    tenant: Any, agent: Any, database: Any, empty: str, tmp_path: Path
) -> None:
    from retention import endings_log

    publish(tenant)
    grant(agent, "form-1")
    withdraw(agent, "form-1")
    backup = made(database, tmp_path)
    with pytest.raises(BackupProblem) as refused:
        restoring.restore(backup, url=database.superuser)
    assert refused.value.code == "database_not_empty"
    with pytest.raises(BackupProblem) as refused:
        restoring.restore(backup, url=make_conninfo(empty, user="muniment_owner"))
    assert refused.value.code == "role_is_bound"
    place = endings_log.path(tenant.id)
    kept = place.read_bytes()
    for spoiled, expected in ((b"", BackupProblem), (kept[:-20] + b"\n", LogDamaged)):
        place.write_bytes(spoiled)
        with pytest.raises(expected):
            restoring.restore(backup, url=empty)
    place.write_bytes(kept)


def test_a_backup_holds_no_key_and_says_what_is_missing(database: Any, tenant: Any, tmp_path: Path) -> None:
    backup = made(database, tmp_path)
    assert sorted(each.name for each in backup.iterdir()) == [backups.DUMP, backups.MANIFEST]
    for secret in Path(settings.ENVIRONMENT.key_folder).rglob("*.key"):
        key = secret.read_bytes()[8:40]
        if key:
            assert key not in (backup / backups.DUMP).read_bytes()
    with pytest.raises(BackupProblem) as missing:
        backups.make(tmp_path, url="", now=datetime.now(UTC))
    assert missing.value.code == "no_backup_url"
    with pytest.raises(BackupProblem) as bound:
        backups.make(tmp_path, url=database.owner, now=datetime.now(UTC))
    assert bound.value.code == "role_is_bound"


def test_without_the_tools_it_says_so(database: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUNIMENT_POSTGRES_PROGRAMS", str(tmp_path))
    with pytest.raises(BackupProblem) as missing:
        backups.make(tmp_path, url=database.superuser, now=datetime.now(UTC))
    assert missing.value.code == "tool_missing"
    assert [each.name for each in tmp_path.iterdir() if not each.name.startswith(".")] == []
