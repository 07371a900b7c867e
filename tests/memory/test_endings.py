"""Facts that may no longer be kept are marked as ended, in chunks, past whoever writes, and audited."""

from typing import Any

import pytest

from memory import endings
from tenants.isolation import Role, tenant_transaction
from tests.memory.background import entries, grant, make_due, publish, say, settle_all, withdraw, worker_rows

pytestmark = pytest.mark.usefixtures("database")

_ENDED = "SELECT ended_by, count(*) FROM memory_fact GROUP BY 1 ORDER BY 1 NULLS FIRST"
_EVENTS = (
    "SELECT actor_kind, reason, count(*) FROM tenants_auditevent WHERE action = 'fact.settled'"
    " AND target_id IN (SELECT id FROM memory_fact WHERE ended_at IS NOT NULL) GROUP BY 1, 2"
)


def consented(ref: str) -> dict[str, Any]:
    return {"provenance": {"turn_id": "t", "consent_ref": ref}, "retention": {"basis": "consent"}}


def test_a_withdrawal_ends_in_chunks_what_rests_on_it_alone(
    tenant: Any, agent: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(tenant)
    monkeypatch.setattr(endings, "CHUNK", 2)
    grant(agent, "form-1")
    grant(agent, "form-2")
    for number in range(5):
        say(agent, "mira", "tag", f"only-one-{number}", **consented("form-1"))
    say(agent, "mira", "tag", "both", **consented("form-1"))
    say(agent, "mira", "tag", "both", **consented("form-2"))
    say(agent, "mira", "tag", "without")
    settle_all(tenant)
    withdraw(agent, "form-1")
    settle_all(tenant)
    assert worker_rows(tenant, _ENDED) == [(None, 2), ("consent_withdrawn", 5)]
    assert worker_rows(tenant, _EVENTS) == [("job", "consent_withdrawn", 5)]
    assert {row[1] for row in entries(tenant, "consent.withdrawn")} == {"done"}
    withdraw(agent, "form-2")
    settle_all(tenant)
    assert worker_rows(tenant, _ENDED) == [(None, 1), ("consent_withdrawn", 6)]


def test_a_withdrawal_waits_for_a_writer_and_ends_the_rest_later(tenant: Any, agent: Any, superuser: Any) -> None:
    publish(tenant)
    grant(agent, "form-1")
    say(agent, "mira", "city", "Oslo", **consented("form-1"))
    settle_all(tenant)
    withdraw(agent, "form-1")
    with superuser.transaction():
        superuser.execute("SELECT FROM memory_factkey WHERE tenant_id = %s FOR UPDATE", [tenant.id])
        settle_all(tenant)
    assert worker_rows(tenant, _ENDED) == [(None, 1)]
    assert [row[1:3] for row in entries(tenant, "consent.withdrawn")] == [("pending", 0)]
    make_due(superuser, tenant)
    settle_all(tenant)
    assert worker_rows(tenant, _ENDED) == [("consent_withdrawn", 1)]


def test_the_value_may_be_said_anew_after_it_ended(tenant: Any, agent: Any, superuser: Any) -> None:
    publish(tenant)
    say(agent, value="Oslo")
    superuser.execute(
        "UPDATE memory_fact SET expires_at = clock_timestamp() - interval '1 second' WHERE tenant_id = %s", [tenant.id]
    )
    with tenant_transaction(Role.WORKER, tenant=tenant.id):
        assert endings.end_overdue(tenant.id) == 1
    say(agent, value="Oslo")
    settle_all(tenant)
    assert worker_rows(tenant, _ENDED) == [(None, 1), ("expired", 1)]
    assert {row[1] for row in entries(tenant)} == {"done"}
