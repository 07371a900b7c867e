"""The outbox: every entry takes effect once, whoever fails, repeats or comes at the same time."""

import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import connection

from memory import outbox
from memory.outbox import GivenUp, Settled
from tenants.identity import new_id
from tenants.isolation import Role, Rollback, tenant_transaction
from tests.memory.background import entries, make_due, publish, put, say, settle_all, worker_rows
from tests.paths.ledger import at_once

pytestmark = pytest.mark.usefixtures("database")


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
    """Let a function do the work of the topic `test.work`."""
    known = dict(outbox.handlers())

    def install(handler: Any) -> None:
        monkeypatch.setattr(outbox, "handlers", lambda: {**known, "test.work": handler})

    return install


@pytest.fixture
def work_apart(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
    """Let a function do the work of the topic `test.apart`, which opens transactions of its own."""

    def install(worker: Any) -> None:
        monkeypatch.setattr(outbox, "workers", lambda: {"test.apart": worker})

    return install


@pytest.fixture(autouse=True)
def rung(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A bell that counts."""
    rings: list[int] = []
    monkeypatch.setattr(outbox, "_bell", lambda: lambda: rings.append(1))
    return rings


def test_a_written_fact_leaves_one_entry_that_is_done_once(tenant: Any, agent: Any) -> None:
    publish(tenant)
    say(agent, value="Oslo")
    assert [row[1] for row in entries(tenant)] == ["pending"]
    assert settle_all(tenant) == 1
    assert [row[1:] for row in entries(tenant)] == [("done", 0, None)]
    assert settle_all(tenant) == 0


def test_a_write_rings_once_after_its_commit_and_not_at_all_when_undone(
    tenant: Any, agent: Any, rung: list[int]
) -> None:
    publish(tenant)
    say(agent, value="Oslo")
    assert len(rung) == 1
    with tenant_transaction(Role.WORKER, tenant=tenant.id):
        outbox.put(tenant.id, "test.work", [uuid4()])
        raise Rollback
    assert len(rung) == 1
    assert len(entries(tenant)) == 1


def test_a_bell_that_fails_does_not_fail_the_write(tenant: Any, agent: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(tenant)

    def broken() -> None:
        raise ConnectionError

    monkeypatch.setattr(outbox, "_bell", lambda: broken)
    say(agent, value="Oslo")
    assert settle_all(tenant) == 1


def test_several_entries_of_one_target_are_one_effect(tenant: Any, work: Any) -> None:
    calls: list[list[UUID]] = []

    def handler(_: UUID, targets: Sequence[UUID]) -> outbox.Outcomes:
        calls.append(list(targets))
        return {}

    work(handler)
    one, other = uuid4(), uuid4()
    put(tenant, "test.work", [one, other, one, one])
    assert settle_all(tenant) == 4
    assert [sorted(call) for call in calls] == [sorted([one, other])]


def test_one_bad_entry_does_not_sink_the_others(tenant: Any, work: Any) -> None:
    bad, good = uuid4(), [uuid4() for _ in range(5)]
    done: list[UUID] = []

    def handler(_: UUID, targets: Sequence[UUID]) -> outbox.Outcomes:
        if bad in targets:
            with connection.cursor() as cursor:
                cursor.execute("SELECT 1 / 0")  # what the database refuses must not spoil the transaction
        done.extend(targets)
        return {}

    work(handler)
    put(tenant, "test.work", [good[0], bad, *good[1:]])
    settle_all(tenant)
    found = {row[0]: row[1:] for row in entries(tenant)}
    assert found.pop(bad) == ("pending", 1, "DataError")
    assert set(found.values()) == {("done", 0, None)}
    assert sorted(done) == sorted(good)


def test_a_failing_entry_comes_again_later_each_time_and_is_given_up_after_eight(
    tenant: Any, work: Any, superuser: Any
) -> None:
    class Broken(Exception):
        pass

    def handler(_: UUID, targets: Sequence[UUID]) -> outbox.Outcomes:
        raise Broken("canary-in-a-message")

    work(handler)
    put(tenant, "test.work", [uuid4()])
    waits = []
    for attempt in range(1, 9):
        make_due(superuser, tenant)
        assert settle_all(tenant) == 1
        ((state, attempts, failure, wait),) = worker_rows(
            tenant,
            "SELECT state, attempts, failure, extract(epoch FROM due_at - clock_timestamp())::float8"
            " FROM memory_outboxentry",
        )
        assert (attempts, failure) == (attempt, "Broken")
        assert state == ("pending" if attempt < 8 else "failed")
        waits.append(wait)
        assert settle_all(tenant) == 0
    assert waits[:7] == sorted(waits[:7])
    assert waits[0] == pytest.approx(1, abs=0.7)
    assert waits[6] == pytest.approx(64, abs=2)


def test_an_unknown_topic_is_given_up_at_once(tenant: Any) -> None:
    put(tenant, "nobody.knows", [uuid4()])
    settle_all(tenant)
    assert [row[1:] for row in entries(tenant)] == [("failed", 1, "unknown_topic")]


def test_what_a_handler_did_is_undone_when_its_entry_cannot_be_marked(
    tenant: Any, work: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def handler(id: UUID, targets: Sequence[UUID]) -> outbox.Outcomes:
        outbox.put(id, "test.effect", targets)
        return {}

    work(handler)
    put(tenant, "test.work", [uuid4()])
    with monkeypatch.context() as broken:
        broken.setattr(outbox, "_DONE", "SELECT nonsense FROM memory_fact WHERE id = %s AND id = ANY(%s)")
        with pytest.raises(Exception, match=r"nonsense|column"):
            outbox.drain_tenant(tenant.id)
    assert entries(tenant, "test.effect") == []
    assert [row[1:3] for row in entries(tenant, "test.work")] == [("pending", 0)]
    outbox.drain_tenant(tenant.id)
    assert len(entries(tenant, "test.effect")) == 1


def test_a_handler_may_ask_to_be_called_again_or_for_more(tenant: Any, work: Any, superuser: Any) -> None:
    again, more = uuid4(), uuid4()
    calls: list[UUID] = []

    def handler(_: UUID, targets: Sequence[UUID]) -> outbox.Outcomes:
        calls.extend(targets)
        first = len(calls) <= 2
        return {again: Settled.AGAIN, more: Settled.MORE} if first else {again: GivenUp("hopeless")}

    work(handler)
    put(tenant, "test.work", [again, more])
    settle_all(tenant)
    assert calls.count(more) == 2
    assert sorted(row[1:] for row in entries(tenant)) == [
        ("done", 0, None),
        ("done", 0, None),
        ("pending", 0, None),
    ]
    make_due(superuser, tenant)
    settle_all(tenant)
    assert ("failed", 1, "hopeless") in [row[1:] for row in entries(tenant)]


def test_workers_at_once_never_do_an_entry_twice(tenant: Any, work: Any) -> None:
    lock, done = threading.Lock(), list[UUID]()

    def handler(_: UUID, targets: Sequence[UUID]) -> outbox.Outcomes:
        time.sleep(0.01)
        with lock:
            done.extend(targets)
        return {}

    work(handler)
    targets = [uuid4() for _ in range(300)]
    put(tenant, "test.work", targets)

    def drain() -> int:
        total = 0
        while taken := outbox.drain_tenant(tenant.id, limit=20):
            total += taken
        return total

    assert sum(at_once([drain] * 6)) == 300
    assert sorted(done) == sorted(targets)
    assert {row[1] for row in entries(tenant)} == {"done"}


def test_work_apart_is_taken_in_bounded_parts_in_a_tenant_of_which_there_are_no_statistics(
    tenant: Any, other_tenant: Any, work_apart: Any, superuser: Any
) -> None:
    done: list[UUID] = []

    def note(_tenant: UUID, target: UUID) -> Settled:
        done.append(target)
        return Settled.DONE

    work_apart(note)
    # A table that was counted before the tenant came: then the database takes it that the tenant has one entry at most.
    put(other_tenant, "test.other", [uuid4() for _ in range(400)])
    superuser.execute("ANALYZE memory_outboxentry")
    put(tenant, "test.apart", [uuid4() for _ in range(35)])
    assert [outbox.drain_tenant(tenant.id) for _ in range(5)] == [10, 10, 10, 5, 0]
    assert len(set(done)) == len(done) == 35


def test_a_drain_finds_every_tenant_that_has_something_due(tenant: Any, other_tenant: Any, work: Any) -> None:
    seen: dict[UUID, list[UUID]] = {}

    def handler(id: UUID, targets: Sequence[UUID]) -> outbox.Outcomes:
        seen.setdefault(id, []).extend(targets)
        return {}

    work(handler)
    mine, theirs = uuid4(), uuid4()
    put(tenant, "test.work", [mine])
    put(other_tenant, "test.work", [theirs])
    outbox.drain()
    assert (seen[tenant.id], seen[other_tenant.id]) == ([mine], [theirs])


def test_the_state_counts_what_waits_and_what_was_given_up(tenant: Any, superuser: Any) -> None:
    outbox.drain()
    put(tenant, "nobody.knows", [uuid4()])

    def state() -> outbox.State:
        with tenant_transaction(Role.FRONT, tenant=None):
            return outbox.state()

    before = state()
    superuser.execute(
        "UPDATE memory_outboxentry SET due_at = due_at - interval '1 hour' WHERE tenant_id = %s", [tenant.id]
    )
    late = state()
    assert late.lag_seconds == pytest.approx(3600, abs=30)
    settle_all(tenant)
    after = state()
    assert (after.pending, after.failed) == (before.pending - 1, before.failed + 1)


def test_done_entries_are_forgotten_after_a_day_and_failed_ones_are_not(tenant: Any, superuser: Any) -> None:
    now = datetime.now(UTC)
    for state, days in [("done", 2), ("done", 0), ("failed", 2), ("pending", 2)]:
        superuser.execute(
            "INSERT INTO memory_outboxentry (tenant_id, id, topic, target_id, state, due_at, created_at, done_at)"
            " VALUES (%s, %s, 'test.work', %s, %s, %s::timestamptz + interval '1 day', %s, %s::timestamptz - %s * interval '1 day')",
            [tenant.id, new_id(), uuid4(), state, now, now, now, days],
        )
    assert outbox.forget_done(tenant.id) == 1
    assert outbox.forget_done(tenant.id) == 0
    assert sorted(row[1] for row in entries(tenant)) == ["done", "failed", "pending"]


def test_requests_are_forgotten_after_a_week(tenant: Any, superuser: Any) -> None:
    from memory import idempotency

    for days in (6, 8, 9):
        superuser.execute(
            "INSERT INTO memory_idempotencyrecord (tenant_id, id, agent_id, key_digest, request_digest, status, outcome, created_at)"
            " VALUES (%s, %s, %s, %s, %s, 201, '[]', clock_timestamp() - %s * interval '1 day')",
            [tenant.id, new_id(), uuid4(), uuid4().bytes, b"d", days],
        )
    with tenant_transaction(Role.WORKER, tenant=tenant.id):
        assert idempotency.forget(tenant.id) == 2
    assert worker_rows(tenant, "SELECT count(*) FROM memory_idempotencyrecord") == [(1,)]
