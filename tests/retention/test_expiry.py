"""The sweep that marks as ended what has outlived its time."""

import threading
import time
from typing import Any

import pytest
from django.db import connection

from memory import endings
from retention import expiry
from tenants.isolation import Role, tenant_transaction
from tests.memory.background import publish, say, worker_rows
from tests.paths.ledger import at_once

pytestmark = pytest.mark.usefixtures("database")

_ENDED = "SELECT ended_by, count(*) FROM memory_fact GROUP BY 1 ORDER BY 1 NULLS FIRST"


def overdue(superuser: Any, tenant: Any, where: str = "true") -> None:
    superuser.execute(
        "UPDATE memory_fact SET expires_at = clock_timestamp() - interval '1 millisecond'"
        f" WHERE tenant_id = %s AND {where}",
        [tenant.id],
    )


def test_overdue_facts_are_marked_in_chunks_and_others_are_left(
    tenant: Any, agent: Any, superuser: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(tenant)
    for number in range(5):
        say(agent, f"subject-{number}", value="Oslo")
    say(agent, "mira", value="Rome")
    newest = f"SELECT key_id FROM memory_fact WHERE tenant_id = '{tenant.id}' ORDER BY id DESC LIMIT 1"
    overdue(superuser, tenant, f"key_id <> ({newest})")
    monkeypatch.setattr(endings.end_overdue, "__kwdefaults__", {"limit": 2})
    assert [expiry.end_overdue_of(tenant.id) for _ in range(4)] == [2, 2, 1, 0]
    assert worker_rows(tenant, _ENDED) == [(None, 1), ("expired", 5)]
    assert worker_rows(
        tenant,
        "SELECT actor_kind, reason, count(*), count(DISTINCT target_id) FROM tenants_auditevent"
        " WHERE action = 'fact.settled' GROUP BY 1, 2",
    ) == [("job", "expired", 5, 5)]


def test_the_sweep_visits_every_tenant(tenant: Any, other_tenant: Any, superuser: Any) -> None:
    for each in (tenant, other_tenant):
        publish(each)
        say(each.agent(), value="Oslo")
        overdue(superuser, each)
    expiry.end_overdue()
    for each in (tenant, other_tenant):
        assert worker_rows(each, _ENDED) == [("expired", 1)]


def test_a_fact_that_a_writer_gives_more_life_is_not_ended(tenant: Any, agent: Any, superuser: Any) -> None:
    publish(tenant)
    say(agent, value="Oslo")
    overdue(superuser, tenant)
    began, go = threading.Event(), threading.Event()

    def write() -> None:
        # A writer under way: it holds the key, and has given the fact a later end.
        with superuser.transaction():
            superuser.execute("SELECT FROM memory_factkey WHERE tenant_id = %s FOR UPDATE", [tenant.id])
            superuser.execute(
                "UPDATE memory_fact SET expires_at = clock_timestamp() + interval '1 day' WHERE tenant_id = %s",
                [tenant.id],
            )
            began.set()
            go.wait(10)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        assert began.wait(10)
        before = time.monotonic()
        assert expiry.end_overdue_of(tenant.id) == 0
        assert time.monotonic() - before < 5, "the sweep must not wait for a writer"
    finally:
        go.set()
        writer.join()
    assert expiry.end_overdue_of(tenant.id) == 0
    assert worker_rows(tenant, _ENDED) == [(None, 1)]


def test_writers_and_sweeps_at_once_neither_block_nor_end_what_lives(tenant: Any, agent: Any, superuser: Any) -> None:
    publish(tenant)
    for number in range(8):
        say(agent, f"subject-{number}", value="Oslo")
    overdue(superuser, tenant)

    def sweep() -> int:
        total = 0
        for _ in range(20):
            total += expiry.end_overdue_of(tenant.id)
        return total

    def write(worker: int) -> int:
        for number in range(16):
            say(agent, f"subject-{(number + worker) % 8}", value="Oslo")
        return 0

    ended = sum(at_once([sweep, sweep, lambda: write(0), lambda: write(3)]))
    expired = worker_rows(tenant, "SELECT count(*) FROM memory_fact WHERE ended_by = 'expired'")[0][0]
    assert expired == 8
    assert ended <= expired  # the door itself ends what is overdue in its way
    alive = "SELECT count(*) FROM memory_fact WHERE ended_at IS NULL AND expires_at > clock_timestamp()"
    assert worker_rows(tenant, alive) == [(8,)]


def test_a_tenant_in_which_it_fails_does_not_keep_it_from_the_others(
    tenant: Any, other_tenant: Any, superuser: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(other_tenant)
    say(other_tenant.agent(), value="Oslo")
    overdue(superuser, other_tenant)
    real = endings.end_overdue

    def end(id: Any) -> int:
        if id == tenant.id:
            raise ZeroDivisionError
        return real(id)

    monkeypatch.setattr(endings, "end_overdue", end)
    with pytest.raises(ZeroDivisionError):
        expiry.end_overdue()
    assert worker_rows(other_tenant, _ENDED) == [("expired", 1)]
    assert not connection.in_atomic_block
    with tenant_transaction(Role.WORKER, tenant=tenant.id):
        pass
