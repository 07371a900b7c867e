"""How much a key may send within a minute: counted by the database, exactly, and only where the tenant says so."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import connection

from tenants import isolation
from tenants.isolation import Role, assume, tenant_transaction
from tenants.models import AuditEvent, Tenant
from tenants.registry import OPERATOR, limit_rates

READ = "/api/v1/facts/?subject=mira&attribute=city"


def limit(organisation: Any, requests: int | None = None, writes: int | None = None) -> None:
    with tenant_transaction(Role.FRONT, tenant=None):
        tenant = Tenant.objects.get(id=organisation.id)
        assume(Role.FRONT, tenant=tenant.id)
        limit_rates(tenant, requests=requests, writes=writes, by=OPERATOR, now=datetime.now(UTC))


def say(ledger: Any, value: str) -> Any:
    return ledger.post(
        "/facts/", {"subject": "mira", "attribute": "city", "value": value, "provenance": {"turn_id": value}}
    )


def begin_a_minute(superuser: Any) -> None:
    """Let the test run within one minute of the database's clock: wait out the last seconds of one."""
    superuser.execute(
        "SELECT pg_sleep(CASE WHEN extract(second FROM clock_timestamp()) > 50"
        " THEN 60.1 - extract(second FROM clock_timestamp()) ELSE 0 END)"
    )


def another_minute(superuser: Any, agent: Any) -> None:
    superuser.execute(
        "UPDATE tenants_agentkey SET counted_minute = counted_minute - interval '1 minute' WHERE id = %s",
        [agent.row.id],
    )


def test_without_a_limit_nothing_is_counted(ledger: Any, superuser: Any) -> None:
    for _ in range(5):
        assert ledger.api.get(READ).status_code == 200
    assert superuser.execute(
        "SELECT counted_minute, counted_requests FROM tenants_agentkey WHERE id = %s", [ledger.agent.row.id]
    ).fetchone() == (None, 0)


def test_a_request_over_the_limit_is_told_when_to_come_back_and_changes_nothing(
    organisation: Any, ledger: Any, superuser: Any
) -> None:
    limit(organisation, requests=3)
    begin_a_minute(superuser)
    assert [ledger.api.get(READ).status_code for _ in range(2)] == [200, 200]
    assert say(ledger, "Lisbon").status_code == 201
    refused = say(ledger, "Porto")
    assert (refused.status_code, refused.json()["code"]) == (429, "too_many_requests")
    assert 1 <= int(refused.headers["Retry-After"]) <= 60
    another_minute(superuser, ledger.agent)
    assert [fact["value"] for fact in ledger.api.get(READ).json()["results"]] == ["Lisbon"]


def test_writes_have_a_limit_of_their_own_and_reads_go_on(organisation: Any, ledger: Any, superuser: Any) -> None:
    limit(organisation, writes=1)
    begin_a_minute(superuser)
    assert [say(ledger, value).status_code for value in ("Lisbon", "Porto")] == [201, 429]
    assert {ledger.api.get(READ).status_code for _ in range(5)} == {200}
    another_minute(superuser, ledger.agent)
    assert say(ledger, "Porto").status_code == 201


def test_a_limit_counts_from_the_next_request_also_for_a_key_that_is_remembered(
    organisation: Any, ledger: Any, superuser: Any
) -> None:
    begin_a_minute(superuser)
    assert ledger.api.get(READ).status_code == 200
    limit(organisation, requests=1)
    assert [ledger.api.get(READ).status_code for _ in range(3)] == [200, 429, 429]
    limit(organisation)
    assert [ledger.api.get(READ).status_code for _ in range(3)] == [200, 200, 200]


def test_a_limit_is_counted_by_the_look_up_itself(
    organisation: Any, ledger: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(organisation, requests=100)
    ledger.api.get(READ)
    trips: list[int] = []
    sent = isolation.trip  # type: ignore[attr-defined]

    def noted(session: Any, questions: Any) -> Any:
        trips.append(len(questions))
        return sent(session, questions)

    monkeypatch.setattr(isolation, "trip", noted)
    assert ledger.api.get(READ).status_code == 200
    assert trips == [2, 2]


def test_requests_at_once_are_counted_one_by_one(organisation: Any, ledger: Any, superuser: Any) -> None:
    limit(organisation, requests=20)
    begin_a_minute(superuser)

    def read(_: int) -> int:
        try:
            return int(ledger.agent.api.get(READ).status_code)
        finally:
            connection.close()

    with ThreadPoolExecutor(8) as threads:
        statuses = list(threads.map(read, range(60)))
    assert (statuses.count(200), statuses.count(429)) == (20, 40)
    counted = "SELECT counted_requests FROM tenants_agentkey WHERE id = %s"
    assert superuser.execute(counted, [ledger.agent.row.id]).fetchone() == (20,)


def test_each_key_is_counted_by_itself_and_a_wrong_secret_counts_for_nobody(
    organisation: Any, ledger: Any, superuser: Any
) -> None:
    limit(organisation, requests=2)
    begin_a_minute(superuser)
    wrong = ledger.agent.key[:-1] + ("A" if ledger.agent.key[-1] != "A" else "B")
    for _ in range(4):
        assert ledger.api.get(READ, headers={"Authorization": f"Api-Key {wrong}"}).status_code == 401
    assert [ledger.api.get(READ).status_code for _ in range(3)] == [200, 200, 429]
    assert organisation.agent("another").api.get(READ).status_code == 200


def test_a_limit_of_one_tenant_is_not_anothers(organisation: Any, ledger: Any, foreign: Any) -> None:
    limit(organisation, requests=1)
    assert {foreign.api.get(READ).status_code for _ in range(4)} == {200}


def test_a_limit_that_is_set_is_audited_and_kept_in_the_history(organisation: Any, ledger: Any) -> None:
    limit(organisation, requests=10)
    limit(organisation, writes=7)
    with tenant_transaction(Role.FRONT, tenant=organisation.id):
        entries = AuditEvent.objects.filter(chain=organisation.id, action="tenant.limited").order_by("seq")
        assert [entry.numbers for entry in entries] == [{"requests": 10, "writes": 0}, {"requests": 0, "writes": 7}]
        history = Tenant.objects.get(id=organisation.id).history.order_by("-history_date", "-history_id")[:2]
        assert [(each.requests_a_minute, each.writes_a_minute) for each in history] == [(None, 7), (10, None)]
