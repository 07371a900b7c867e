"""Rotating a tenant's key: the living stay readable, the old versions go for good, and nothing beside it fails."""

import os
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from django.db import OperationalError, connection

from memory import recall, rows
from retention import certificates, rotation
from tenants.actors import Actor, ActorKind
from tenants.errors import Clash
from tenants.isolation import Role, tenant_transaction
from tenants.keyring import KeyUnavailable
from tenants.secrets import keyring, provider
from tests.memory.background import publish, say, settle_all, worker_rows
from tests.paths.ledger import Ledger

pytestmark = pytest.mark.usefixtures("database")

_VERSIONS = "SELECT DISTINCT version FROM tenants_subjectkey ORDER BY 1"
_EVENTS = "SELECT action, numbers FROM tenants_auditevent WHERE action LIKE 'keys.%%' ORDER BY seq"


@pytest.fixture(autouse=True)
def _shortly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rotation, "GRACE", timedelta(milliseconds=50))


def operator(tenant: Any) -> Actor:
    return Actor(kind=ActorKind.OPERATOR, id=UUID(int=0), tenant=tenant.id)


def value_of(agent: Any, subject: str) -> Any:
    with tenant_transaction(Role.AGENT, tenant=agent.actor.tenant, clearance=3, actor=agent.actor.id):
        (fact,) = recall.facts(agent.actor, subject=subject).results
    return fact["value"]


def test_the_living_are_read_as_before_and_the_old_version_is_no_more(tenant: Any, agent: Any) -> None:
    publish(tenant)
    for number in range(7):
        say(agent, f"subject {number}", "city", f"town {number}")
    settle_all(tenant)
    with tenant_transaction(Role.WORKER, tenant=tenant.id):
        key, wrapped, version = rows.fetch("SELECT id, wrapped, version FROM tenants_subjectkey LIMIT 1", [])[0]
    done = rotation.rotate(operator(tenant))
    assert (done.version, done.destroyed, done.rewrapped, done.waits_for) == (2, (1,), 7, "")
    assert worker_rows(tenant, _VERSIONS) == [(2,)]
    assert [value_of(agent, f"subject {number}") for number in range(7)] == [f"town {number}" for number in range(7)]
    with pytest.raises(KeyUnavailable) as gone:
        keyring().unwrap(tenant.id, bytes(wrapped), version)
    assert gone.value.code == "deleted_version"
    # What backups that are older need of the living stands outside the database, under the new version alone.
    kept = {each: (by, again) for each, again, by in rotation.rewrapped(tenant.id)}
    assert len(kept) == 7
    by, again = kept[key]
    assert by == 2
    assert len(keyring().unwrap(tenant.id, again, by)) == 32
    assert worker_rows(tenant, _EVENTS) == [
        ("keys.rotation_begun", {"version": 2}),
        ("keys.version_destroyed", {"version": 1, "current": 2}),
    ]
    assert not rotation.is_open(tenant.id)


def test_the_index_is_made_anew_under_the_new_version(tenant: Any, agent: Any) -> None:
    publish(tenant)
    say(agent, "mira", "city", "Turin")
    settle_all(tenant)
    done = rotation.rotate(operator(tenant))
    assert done.reindexed
    with tenant_transaction(Role.WRITER, tenant=tenant.id):
        found = rows.fetch("SELECT kind, key_version FROM memory_searchentry ORDER BY kind", [])
    assert found == [("name", 2), ("value", 2)]
    answer = Ledger(agent).post("/recall/", {"question": "Turin", "purpose": "support", "budget_tokens": 200})
    assert answer.status_code == 200, answer.content
    assert "Turin" in answer.json()["text"]


def test_a_rotation_waits_for_whoever_may_have_wrapped_by_the_old_version(
    tenant: Any, agent: Any, database: Any
) -> None:
    publish(tenant)
    say(agent, value="Oslo")
    began, may_end, errors = threading.Event(), threading.Event(), []

    def slow_writer() -> None:
        actor = agent.actor
        try:
            with tenant_transaction(Role.WRITER, tenant=tenant.id, clearance=3, actor=actor.id):
                rows.fetch("SELECT 1", [])
                _, wrapped, version = keyring().new_data_key(tenant.id)
                began.set()
                may_end.wait(10)
                rows.fetch(
                    "INSERT INTO tenants_subjectkey (tenant_id, id, wrapped, version, created_at)"
                    " VALUES (%s::uuid, %s::uuid, %s::bytea, %s::int, now()) RETURNING 1",
                    [tenant.id, uuid4(), wrapped, version],
                )
        except Exception as error:
            errors.append(error)
        finally:
            connection.close()

    writer = threading.Thread(target=slow_writer)
    writer.start()
    assert began.wait(10)
    waited = rotation.rotate(operator(tenant), seconds=0.3)
    assert (waited.version, waited.destroyed, waited.waits_for) == (2, (), "transactions")
    assert rotation.is_open(tenant.id)
    assert provider().versions(tenant.id) == [1, 2]
    may_end.set()
    writer.join()
    assert errors == []
    done = rotation.go_on(tenant.id)
    assert done is not None
    assert (done.destroyed, done.rewrapped, done.waits_for) == ((1,), 2, "")


def test_whoever_comes_later_than_that_is_turned_away_and_tries_again(tenant: Any, agent: Any) -> None:
    """A wrapping that a stalled process brings after the old version was retired would be lost with it."""
    publish(tenant)
    _, wrapped, version = keyring().new_data_key(tenant.id)
    rotation.rotate(operator(tenant))
    with pytest.raises(OperationalError), tenant_transaction(Role.WRITER, tenant=tenant.id):
        rows.fetch(
            "INSERT INTO tenants_subjectkey (tenant_id, id, wrapped, version, created_at)"
            " VALUES (%s::uuid, %s::uuid, %s::bytea, %s::int, now()) RETURNING 1",
            [tenant.id, uuid4(), wrapped, version],
        )


def test_writers_and_readers_beside_rotations_never_fail(tenant: Any, agent: Any) -> None:
    publish(tenant)
    say(agent, "everybody", "city", "Oslo")
    over, errors, written = threading.Event(), [], []

    def work(number: int) -> None:
        try:
            turn = 0
            while not over.is_set():
                turn += 1
                subject = f"worker {number} turn {turn}"
                say(agent, subject, "city", subject)
                written.append(subject)
                assert value_of(agent, "everybody") == "Oslo"
        except Exception as error:
            errors.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    try:
        for version in (2, 3, 4):
            done = rotation.rotate(operator(tenant), seconds=60)
            assert (done.version, done.waits_for) == (version, "")
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert errors == []
    assert len(written) > 10
    assert [value_of(agent, subject) for subject in written] == written
    assert provider().versions(tenant.id) == [4]


def test_pending_rotation_becomes_true_by_a_further_certificate(tenant: Any, agent: Any) -> None:
    publish(tenant)
    say(agent, value="Oslo")
    with tenant_transaction(Role.WORKER, tenant=tenant.id):
        body = {"key": {"state": "pending_rotation", "version": 1}}
        first = certificates.issue(operator(tenant), "erasure", None, body, datetime.now(UTC))
    assert rotation.pending(tenant.id) == 1
    rotation.rotate(operator(tenant))
    assert rotation.pending(tenant.id) == 0
    with tenant_transaction(Role.WORKER, tenant=tenant.id):
        found = rows.fetch("SELECT id FROM retention_certificate WHERE follows_id = %s::uuid", [first.id])
        further = certificates.find(tenant.id, found[0][0])
        ended = rows.fetch("SELECT state, step, counts::text FROM retention_run WHERE kind = 'rotation'", [])
    assert further.document["body"]["key"] == {"state": "destroyed", "version": 1, "destroyed_through": 1}
    assert certificates.verify(certificates.export(further), provider().public_key_pem()).sound
    assert [row[:2] for row in ended] == [("done", "destroy")]
    # Once told it is told; what ends later waits for the next.
    rotation.rotate(operator(tenant))
    with tenant_transaction(Role.WORKER, tenant=tenant.id):
        assert rows.fetch("SELECT count(*) FROM retention_certificate", []) == [(2,)]


def test_one_process_at_a_time_rotates(tenant: Any, database: Any) -> None:
    with psycopg.connect(database.app, autocommit=True) as other:
        other.execute("SELECT pg_advisory_lock(hashtextextended('muniment.rotation.' || %s::text, 0))", [tenant.id])
        with pytest.raises(Clash) as running:
            rotation.rotate(operator(tenant))
    assert running.value.code == "rotation_running"
    assert provider().versions(tenant.id) == [1]


def test_beat_goes_on_with_what_was_cut_off_and_begins_what_is_due(
    tenant: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rotation, "each_tenant", lambda work, seconds: work(tenant.id))
    now = datetime.now(UTC)
    assert rotation.rotate_due(now=now, every=None) == 0
    assert rotation.rotate_due(now=now, every=timedelta(days=30)) == 0
    provider().new_version(tenant.id)
    assert rotation.rotate_due(now=now, every=None) == 1
    assert provider().versions(tenant.id) == [2]
    assert rotation.rotate_due(now=now + timedelta(days=31), every=timedelta(days=30)) == 1
    assert provider().versions(tenant.id) == [3]


_KILLED = """
import os, django
django.setup()
from uuid import UUID
from retention import certificates, rotation
from tenants.actors import Actor, ActorKind
module, _, name = os.environ["BEFORE"].rpartition(":")
def killed(*args, **more):
    os.kill(os.getpid(), 9)
target = {"rotation": rotation, "provider": type(rotation.provider()), "indexing": rotation.indexing}[module]
kept, calls = getattr(target, name), [0]
def maybe(*args, **more):
    calls[0] += 1
    if calls[0] == int(os.environ["CALL"]):
        killed()
    return kept(*args, **more)
setattr(target, name, maybe)
rotation.CHUNK = 2
rotation.rotate(Actor(kind=ActorKind.OPERATOR, id=UUID(int=0), tenant=UUID(os.environ["TENANT"])))
"""


@pytest.mark.parametrize(
    ("before", "call"),
    [
        ("provider:new_version", 1),
        ("rotation:_finish", 1),
        ("rotation:_rewrap", 1),
        ("rotation:keyring", 4),
        ("indexing:make_up", 1),
        ("rotation:_retire", 1),
        ("rotation:_write_down", 1),
        ("rotation:_destroy", 1),
        ("provider:delete_version", 1),
        ("rotation:append", 2),
        ("rotation:_again", 2),
    ],
)
def test_killed_in_any_step_it_is_finished_once(tenant: Any, agent: Any, before: str, call: int) -> None:
    publish(tenant)
    for number in range(7):
        say(agent, f"subject {number}", "city", f"town {number}")
    settle_all(tenant)
    environment = {
        **os.environ,
        "TENANT": str(tenant.id),
        "BEFORE": before,
        "CALL": str(call),
        "DJANGO_SETTINGS_MODULE": "config.settings",
    }
    killed = subprocess.run([sys.executable, "-c", _KILLED], env=environment, check=False)
    assert killed.returncode == -9
    assert [value_of(agent, f"subject {number}") for number in range(7)] == [f"town {number}" for number in range(7)]
    time.sleep(0.2)  # the server notices that the other process is gone
    done = rotation.go_on(tenant.id) if rotation.is_open(tenant.id) else rotation.rotate(operator(tenant))
    assert done is not None
    assert done.waits_for == ""
    assert provider().versions(tenant.id) == [2]
    assert worker_rows(tenant, _VERSIONS) == [(2,)]
    assert [value_of(agent, f"subject {number}") for number in range(7)] == [f"town {number}" for number in range(7)]
    destroyed = [numbers for action, numbers in worker_rows(tenant, _EVENTS) if action == "keys.version_destroyed"]
    assert destroyed == [{"version": 1, "current": 2}]
    assert len(list(rotation.rewrapped(tenant.id))) == 7
    assert not rotation.is_open(tenant.id)
