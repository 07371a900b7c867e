"""The ledger's check of itself: it agrees with every act of the door, and finds what was tampered with."""

import random
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from memory import checking
from memory.outbox import Settled
from tenants.isolation import Role, tenant_transaction
from tests.memory.background import entries, publish, say, settle_all, worker_rows

pytestmark = pytest.mark.usefixtures("database")

_KEYS = "SELECT id, act_no, checked_act_no FROM memory_factkey ORDER BY id"


def check(tenant: Any, *keys: UUID) -> Any:
    with tenant_transaction(Role.WORKER, tenant=tenant.id):
        return checking.check(tenant.id, keys)


def test_a_key_that_agrees_is_marked_up_to_its_act(tenant: Any, agent: Any) -> None:
    publish(tenant)
    for value in ("Oslo", "Rome", "Rome", "Lima"):
        say(agent, value=value)
    settle_all(tenant)
    ((_, act_no, checked),) = worker_rows(tenant, _KEYS)
    assert act_no == checked == 4


def test_any_mixture_of_sayings_agrees(tenant: Any, agent: Any) -> None:
    publish(
        tenant,
        [
            {"name": "city", "schema": {"type": "string"}, "conflict": "latest"},
            {"name": "tag", "schema": {"type": "string"}, "cardinality": "multi", "conflict": "latest"},
        ],
    )
    chance = random.Random(20260601)
    start = datetime(2026, 1, 1, tzinfo=UTC)
    for turn in range(60):
        attribute = chance.choice(["city", "tag"])
        rest: dict[str, Any] = {"valid_from": (start + timedelta(days=chance.randrange(40))).isoformat()}
        if chance.random() < 0.2:
            rest["ended"] = True
        if chance.random() < 0.2:
            rest["valid_to"] = (start + timedelta(days=41 + chance.randrange(20))).isoformat()
        value: str | None = chance.choice("abcd")
        if rest.get("ended") and (attribute == "city" or chance.random() < 0.5):
            value = None
        if rest.get("ended"):
            rest.pop("valid_to", None)
        say(agent, "mira", attribute, value, **rest)
        if turn % 7 == 0:
            settle_all(tenant)
    settle_all(tenant)
    assert {row[1] for row in entries(tenant)} == {"done"}
    assert all(act_no == checked for _, act_no, checked in worker_rows(tenant, _KEYS))


@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM memory_belief WHERE tenant_id = %s AND believed_to IS NULL AND valid_to IS NULL",
        "UPDATE memory_belief SET valid_to = valid_to - interval '1 hour' WHERE tenant_id = %s AND valid_to IS NOT NULL",
        "UPDATE memory_evidence SET valid_from = valid_from - interval '1 hour' WHERE tenant_id = %s AND act_no = 1",
    ],
)
def test_what_was_tampered_with_is_given_up_loudly(
    tenant: Any, agent: Any, superuser: Any, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    publish(tenant)
    say(agent, value="Oslo-canary", valid_from="2026-06-01T09:00:00Z")
    say(agent, value="Rome-canary", valid_from="2026-06-03T10:00:00Z")
    with superuser.transaction():
        superuser.execute("SET LOCAL session_replication_role = replica")
        assert superuser.execute(damage, [tenant.id]).rowcount == 1
    settle_all(tenant)
    found = entries(tenant)
    assert {row[1:] for row in found} == {("failed", 1, "ledger_differs")}
    ((_, act_no, checked),) = worker_rows(tenant, _KEYS)
    assert (act_no, checked) == (2, 0)
    (loud,) = [record for record in caplog.records if record.name == "muniment.ledger"]
    assert loud.levelname == "CRITICAL"
    assert "canary" not in str(loud.__dict__)


def test_a_key_that_is_being_written_comes_again(tenant: Any, agent: Any, superuser: Any) -> None:
    publish(tenant)
    say(agent, value="Oslo")
    ((key, _, _),) = worker_rows(tenant, _KEYS)
    with superuser.transaction():
        superuser.execute("SELECT FROM memory_factkey WHERE tenant_id = %s FOR UPDATE", [tenant.id])
        assert check(tenant, key) == {key: Settled.AGAIN}
    assert check(tenant, key) == {}
    assert worker_rows(tenant, _KEYS)[0][2] == 1


def test_a_large_key_is_checked_when_it_has_grown_by_a_sixteenth(
    tenant: Any, agent: Any, superuser: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(tenant)
    monkeypatch.setattr(checking, "ALWAYS_UP_TO", 10)
    checks = []
    for number in range(40):
        say(agent, value=f"city-{number}")
        settle_all(tenant)
        checks.append(worker_rows(tenant, _KEYS)[0][2])
    assert checks[:10] == list(range(1, 11))
    assert checks[-1] >= 38
    assert len(set(checks)) < 30
    assert {row[1] for row in entries(tenant)} == {"done"}
