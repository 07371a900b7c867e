"""The endings log tells of every ending outside the database, before the act is acknowledged, and loses none."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from django.db import Error, connection

from memory import outbox, rows
from retention import endings_log
from tenants.errors import Unavailable
from tenants.isolation import Role, Rollback, tenant_transaction
from tenants.keyring import LogDamaged
from tests.memory.background import entries, grant, make_due, publish, settle_all, withdraw, worker_rows

pytestmark = pytest.mark.usefixtures("database")


def told(tenant: Any) -> list[tuple[str, str]]:
    return [(each.kind.value, str(each.target)) for each in endings_log.told(tenant.id)]


@pytest.fixture
def closed(tenant: Any) -> Iterator[None]:
    """The tenant's log cannot be written."""
    place = endings_log.path(tenant.id)
    place.mkdir(parents=True)
    yield
    if place.is_dir():
        place.rmdir()


def test_a_withdrawal_is_told_before_it_is_acknowledged(tenant: Any, agent: Any) -> None:
    publish(tenant)
    consent = grant(agent, "form-1")
    withdraw(agent, "form-1")
    (entry,) = endings_log.told(tenant.id)
    assert (entry.kind, entry.target, set(entry.record)) == ("consent_withdrawn", consent, {"withdrawn_at"})
    with tenant_transaction(Role.WORKER, tenant=tenant.id):
        assert endings_log.owed(tenant.id) == (0, 1)
    assert endings_log.state(tenant.id).lines == 1
    withdraw(agent, "form-1")
    assert len(told(tenant)) == 1


def test_an_act_that_rolls_back_tells_nothing(tenant: Any) -> None:
    with tenant_transaction(Role.WORKER, tenant=tenant.id):
        endings_log.owe(tenant.id, "erasure", uuid4(), {})
        raise Rollback
    assert told(tenant) == []
    assert endings_log.settle(tenant.id) == 0


@pytest.mark.parametrize("role", [Role.WRITER, Role.STAFF, Role.WORKER])
def test_every_role_that_ends_something_owes_and_stays_what_it_was(tenant: Any, role: Role) -> None:
    with tenant_transaction(role, tenant=tenant.id):
        endings_log.owe(tenant.id, "hold_placed", uuid4(), {"scopes": [{"subject": uuid4()}], "count": 1})
        assert rows.fetch("SELECT current_user::text", []) == [(role.value,)]
    assert [kind for kind, _ in told(tenant)] == ["hold_placed"]


def test_what_a_killed_act_left_owed_is_told_by_the_next_drain_once(tenant: Any, superuser: Any) -> None:
    with tenant_transaction(Role.WORKER, tenant=tenant.id):
        endings_log.owe(tenant.id, "redaction", uuid4(), {"fields": ["value"]})
        # Whoever is killed right after its commit has run nothing of what was to follow.
        connection.run_on_commit = []
    assert told(tenant) == []
    assert [row[1] for row in entries(tenant, endings_log.TOPIC)] == ["pending"]
    settle_all(tenant)
    assert told(tenant) == []
    make_due(superuser, tenant)
    settle_all(tenant)
    assert [kind for kind, _ in told(tenant)] == ["redaction"]
    assert [row[1] for row in entries(tenant, endings_log.TOPIC)] == ["done"]


def test_an_append_that_was_cut_off_from_noting_it_stands_twice_and_is_told_once(tenant: Any, superuser: Any) -> None:
    with tenant_transaction(Role.WORKER, tenant=tenant.id):
        endings_log.owe(tenant.id, "erasure", uuid4(), {})
    superuser.execute("ALTER TABLE retention_owedending DISABLE TRIGGER owedending_frozen")
    try:
        superuser.execute(
            "UPDATE retention_owedending SET settled_at = NULL, line = NULL WHERE tenant_id = %s", [tenant.id]
        )
    finally:
        superuser.execute("ALTER TABLE retention_owedending ENABLE TRIGGER owedending_frozen")
    assert endings_log.settle(tenant.id) == 1
    assert endings_log.state(tenant.id).lines == 2
    assert len(told(tenant)) == 1


@pytest.mark.usefixtures("closed")
def test_where_the_log_cannot_be_written_the_act_is_refused_or_stays_owed(tenant: Any, superuser: Any) -> None:
    with pytest.raises(Unavailable), tenant_transaction(Role.WORKER, tenant=tenant.id):
        endings_log.owe(tenant.id, "erasure", uuid4(), {})
    with tenant_transaction(Role.WORKER, tenant=tenant.id):
        assert endings_log.owed(tenant.id) == (1, 0)
    endings_log.path(tenant.id).rmdir()
    assert endings_log.settle(tenant.id) == 1
    assert [kind for kind, _ in told(tenant)] == ["erasure"]


def test_acts_at_once_are_told_each_once_and_in_the_order_they_were_owed(tenant: Any) -> None:
    def act() -> None:
        try:
            for _ in range(5):
                with tenant_transaction(Role.WORKER, tenant=tenant.id):
                    endings_log.owe(tenant.id, "redaction", uuid4(), {})
        finally:
            connection.close()

    threads = [threading.Thread(target=act) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert endings_log.state(tenant.id).lines == 30
    owed = worker_rows(tenant, "SELECT target_id, line FROM retention_owedending ORDER BY line")
    assert [(str(target), line) for target, line in owed] == [
        (target, line) for line, (_, target) in enumerate(told(tenant), 1)
    ]


def test_a_line_that_was_changed_is_found(tenant: Any) -> None:
    for _ in range(3):
        with tenant_transaction(Role.WORKER, tenant=tenant.id):
            endings_log.owe(tenant.id, "erasure", uuid4(), {})
    place = endings_log.path(tenant.id)
    lines = place.read_bytes().splitlines(keepends=True)
    place.write_bytes(b"".join([lines[0], lines[2]]))
    try:
        with pytest.raises(LogDamaged) as damage:
            endings_log.state(tenant.id)
    finally:
        # A backup reads the logs of all tenants, and refuses where one is damaged.
        place.write_bytes(b"".join(lines))
    assert (damage.value.line, damage.value.code) == (2, "out_of_sequence")


@pytest.mark.parametrize("record", [{"why": "she asked us to"}, {"value": ["Łódź"]}, {"two words": 1}, {"x": object()}])
def test_prose_is_refused_and_not_repeated(tenant: Any, record: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="ids, instants") as refused, tenant_transaction(Role.WORKER, tenant=tenant.id):
        endings_log.owe(tenant.id, "erasure", uuid4(), record)
    assert "asked" not in str(refused.value)


def test_what_was_owed_never_changes_whoever_asks(tenant: Any, superuser: Any) -> None:
    with tenant_transaction(Role.WORKER, tenant=tenant.id):
        endings_log.owe(tenant.id, "erasure", uuid4(), {})
    for change in ("UPDATE retention_owedending SET line = 9", "DELETE FROM retention_owedending"):
        with pytest.raises(psycopg.errors.RestrictViolation):
            superuser.execute(f"{change} WHERE tenant_id = %s", [tenant.id])
    with pytest.raises(Error):
        worker_rows(tenant, "UPDATE retention_owedending SET kind = 'redaction' RETURNING id")


_KILLED = """
import os, django
django.setup()
from uuid import UUID
from django.db import transaction
from retention import endings_log
from tenants.isolation import Role, tenant_transaction
tenant = UUID(os.environ["TENANT"])
with tenant_transaction(Role.WORKER, tenant=tenant):
    transaction.on_commit(lambda: os.kill(os.getpid(), 9))
    endings_log.owe(tenant, "erasure", tenant, {})
"""


def test_a_process_that_is_killed_between_commit_and_log_loses_nothing(tenant: Any, superuser: Any) -> None:
    environment = {**os.environ, "TENANT": str(tenant.id), "DJANGO_SETTINGS_MODULE": "config.settings"}
    killed = subprocess.run([sys.executable, "-c", _KILLED], env=environment, check=False)
    assert killed.returncode == -9
    assert told(tenant) == []
    make_due(superuser, tenant)
    assert outbox.drain_tenant(tenant.id) == 1
    assert told(tenant) == [("erasure", str(tenant.id))]
    line = json.loads(endings_log.path(tenant.id).read_text(encoding="utf-8"))
    assert set(line["entry"]["record"]) == {"id", "kind", "target", "at", "record"}
