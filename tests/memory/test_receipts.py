"""Sealed receipts: what is altered, removed or added afterwards is found."""

from datetime import timedelta
from typing import Any

import pytest

from memory import receipts
from memory.receipts import Seals
from tenants.isolation import Role, tenant_transaction
from tests.memory.background import publish, say, worker_rows

pytestmark = pytest.mark.usefixtures("database")


def seal(tenant: Any) -> int:
    with tenant_transaction(Role.WORKER, tenant=tenant.id):
        return receipts.seal(tenant.id, older_than=timedelta())


def verified(tenant: Any) -> Seals:
    with tenant_transaction(Role.WORKER, tenant=tenant.id):
        return receipts.verify_receipts(tenant.id)


def test_receipts_are_sealed_in_batches_that_the_chain_counts(
    tenant: Any, agent: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(tenant)
    monkeypatch.setattr(receipts, "CHUNK", 3)
    for number in range(5):
        say(agent, value=f"city-{number}")
    assert [seal(tenant), seal(tenant), seal(tenant)] == [3, 2, 0]
    assert worker_rows(
        tenant,
        "SELECT e.actor_kind, e.numbers->>'count', (SELECT count(*) FROM memory_receipt r WHERE r.sealed_seq = e.seq)"
        " FROM tenants_auditevent e WHERE e.action = 'receipts.sealed' ORDER BY e.seq",
    ) == [("job", "3", 3), ("job", "2", 2)]
    assert verified(tenant) == Seals(batches=2, receipts=5, bad=None)


def test_a_receipt_of_just_now_waits(tenant: Any, agent: Any) -> None:
    publish(tenant)
    say(agent, value="Oslo")
    with tenant_transaction(Role.WORKER, tenant=tenant.id):
        assert receipts.seal(tenant.id) == 0


@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM memory_receipt WHERE tenant_id = %s",
        "DELETE FROM memory_receipt r WHERE r.tenant_id = %s AND r.id = (SELECT id FROM memory_receipt"
        " WHERE tenant_id = r.tenant_id ORDER BY id LIMIT 1)",
        "UPDATE memory_receipt SET fact_ids = '{}' WHERE tenant_id = %s",
        "UPDATE memory_receipt SET at = at + interval '1 microsecond' WHERE tenant_id = %s",
        "UPDATE memory_receipt SET withheld = '{\"expired\": 1}' WHERE tenant_id = %s",
        "UPDATE memory_receipt SET reasons = reasons || '{x}' WHERE tenant_id = %s",
        "UPDATE memory_receipt SET sealed_seq = NULL WHERE tenant_id = %s",
        "UPDATE memory_receipt SET sealed_seq = 1 WHERE tenant_id = %s",
    ],
)
def test_a_damaged_receipt_is_found(tenant: Any, agent: Any, superuser: Any, damage: str) -> None:
    publish(tenant)
    for value in ("Oslo", "Rome"):
        say(agent, value=value)
    assert seal(tenant) == 2
    assert verified(tenant).bad is None
    superuser.execute(damage, [tenant.id])
    assert verified(tenant).bad is not None
