"""Imports and rotations whose process is killed again and again, at every place: they are finished once, nothing doubled."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from memory import rows
from retention import matters, rotation, transfer
from retention.matters import Target
from tenants.actors import Actor, ActorKind
from tenants.isolation import Role, tenant_transaction
from tenants.secrets import provider
from tests.memory.background import publish, say, settle_all, worker_rows
from tests.organisation import Organisation
from tests.retention.killing import killed_at, wait_until_noticed
from tests.retention.test_rotation import value_of
from tests.retention.test_transfer import another, answers, exported, history_of

pytestmark = [pytest.mark.usefixtures("database"), pytest.mark.slow]

_COUNTED = (
    "memory_subject", "memory_subjectidentifier", "memory_episode", "memory_factkey", "memory_fact", "memory_evidence",
    "memory_belief", "memory_payload", "memory_candidate", "policies_consent", "retention_hold", "retention_holdscope",
)  # fmt: skip


def counted(superuser: psycopg.Connection[Any], tenant: Organisation) -> Counter[str]:
    """Return how many rows of each table a tenant has."""
    found: Counter[str] = Counter()
    for table in _COUNTED:
        (count,) = superuser.execute(
            f"SELECT count(*) FROM {table} WHERE tenant_id = %s".encode(), [tenant.id]
        ).fetchone()  # type: ignore[misc]
        found[table] = count
    return found


def test_an_import_that_is_killed_again_and_again_brings_everything_in_once(
    tenant: Any, agent: Any, superuser: Any, tmp_path: Path
) -> None:
    publish(tenant)
    history_of(tenant, agent)
    operator = Actor(kind=ActorKind.OPERATOR, id=uuid4(), tenant=tenant.id)
    with tenant_transaction(Role.WORKER, tenant=tenant.id):
        subject = rows.fetch("SELECT id FROM memory_subject ORDER BY id", [])[0][0]
    with tenant_transaction(Role.STAFF, tenant=tenant.id, actor=operator.id):
        matter, _ = matters.open_matter(operator, "2026/1", "litigation", now=datetime.now(UTC))
        matters.place(operator, matter.id, [Target(subject_id=subject)], now=datetime.now(UTC))
    file = exported(tenant, tmp_path)
    whole, target = another(), another()
    done = transfer.read_in(whole.id, file, now=datetime.now(UTC))
    assert done.refused == []
    statement, kills = 1, 0
    while (came := killed_at(statement, lambda: transfer.read_in(target.id, file, now=datetime.now(UTC)))).killed:
        wait_until_noticed(superuser, came)
        statement, kills = statement + 1, kills + 1
    assert kills > 30, kills
    assert counted(superuser, target) == counted(superuser, whole)
    known: list[datetime | None] = [None]
    assert answers(target.agent("reader"), known) == answers(agent, known)


def test_a_rotation_that_is_killed_before_each_statement_is_finished_once(
    tenant: Any, agent: Any, superuser: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rotation, "GRACE", timedelta())
    monkeypatch.setattr(rotation, "CHUNK", 2)
    publish(tenant)
    values = {f"subject {number}": f"town {number}" for number in range(5)}
    for subject, value in values.items():
        say(agent, subject, "city", value)
    settle_all(tenant)
    operator = Actor(kind=ActorKind.OPERATOR, id=UUID(int=0), tenant=tenant.id)

    def work() -> None:
        if rotation.is_open(tenant.id):
            rotation.go_on(tenant.id)
        elif provider().versions(tenant.id) == [1]:
            rotation.rotate(operator)

    statement, kills = 1, 0
    while (came := killed_at(statement, work)).killed:
        wait_until_noticed(superuser, came)
        assert [value_of(agent, subject) for subject in values] == list(values.values())
        statement, kills = statement + 1, kills + 1
    assert kills > 30, kills
    assert not rotation.is_open(tenant.id)
    assert provider().versions(tenant.id) == [2]
    assert worker_rows(tenant, "SELECT DISTINCT version FROM tenants_subjectkey") == [(2,)]
    ended = "SELECT numbers FROM tenants_auditevent WHERE action = 'keys.version_destroyed'"
    assert worker_rows(tenant, ended) == [({"version": 1, "current": 2},)]
    assert worker_rows(tenant, "SELECT state, count(*) FROM retention_run WHERE kind = 'rotation' GROUP BY 1") == [
        ("done", 1)
    ]
    assert len(list(rotation.rewrapped(tenant.id))) == len(values)
