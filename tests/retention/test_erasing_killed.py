"""An erasure whose process is killed before any statement of any step: it is finished once, nothing doubled, nothing half."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from memory import rows
from memory.outcomes import Denied
from policies.approvals import Answer
from retention import certificates, endings_log, erasing, runs
from retention.erasing import Erasure
from tenants.isolation import Role, tenant_transaction
from tests.retention.killing import killed_at, print_of, wait_until_noticed
from tests.retention.test_erasing import Office, furnish, items

pytestmark = [pytest.mark.usefixtures("database"), pytest.mark.slow]


@pytest.fixture
def office(database: Any) -> Office:
    return Office()


def through(office: Office, superuser: Any, work: Callable[[], Any], is_over: Callable[[], bool]) -> int:
    """Kill `work` before each of its statements in turn, and after its commit, until all of it is done; return the kills.

    `work` does a part in a transaction of its own.
    """
    statement, kills = 1, 0
    while not is_over():
        before = print_of(superuser, office.doors.id)
        came = killed_at(statement, work)
        wait_until_noticed(superuser, came)
        kills += came.killed
        if came.commits:
            # It was done, whether it was killed afterwards or not: on to the next part.
            statement = 1
            continue
        assert came.killed
        assert print_of(superuser, office.doors.id) == before, "what was cut off left something half done"
        statement += 1
    return kills


def test_killed_before_any_statement_of_any_step_it_is_finished_once(
    office: Office, superuser: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("FACTS", "EPISODES", "RECEIPTS", "CANDIDATES", "ROWS"):
        monkeypatch.setattr(erasing, name, 3)
    counts = counted(Office())
    furnish(office)
    office.doors.page("city")  # somebody has read it, and is told
    subject, tenant = office.subject(), office.doors.id
    erasure = office.approved()
    run = erasure.run
    assert run is not None
    kills = through(
        office, superuser, lambda: erasing.advance(tenant, run, erasure.id),
        lambda: office.now(erasure).state != "running",
    )  # fmt: skip
    assert kills > 150, kills
    assert_finished_once(office, erasure, subject, counts)
    # What is done may be told to go on, by whoever was told late.
    erasing.work(tenant, erasure.id)
    assert_finished_once(office, erasure, subject, counts)


def counted(office: Office) -> dict[str, int]:
    """Return what such an erasure counts where nothing cuts it off."""
    furnish(office)
    office.doors.page("city")
    run = office.erased().run
    assert run is not None
    with tenant_transaction(Role.STAFF, tenant=office.doors.id):
        found = runs.find(office.doors.id, run)
    assert found is not None
    assert found.counts["facts"] >= 4
    return found.counts


def assert_finished_once(office: Office, erasure: Erasure, subject: UUID, counts: dict[str, int]) -> None:
    """It is done, by one run with one certificate that counts each row once; others are as they were."""
    doors = office.doors
    assert office.now(erasure).state == "done"
    assert office.left(subject) == {"episodes": 1}
    run = office.now(erasure).run
    assert run is not None
    with tenant_transaction(Role.STAFF, tenant=doors.id):
        found = runs.find(doors.id, run)
        assert found is not None
        assert len(certificates.of_run(doors.id, run)) == 1
        notices = rows.fetch("SELECT n.agent_id FROM retention_notice n WHERE n.erasure_id = %s", [erasure.id])
        audited = rows.fetch(
            "SELECT action, count(*) FROM tenants_auditevent WHERE chain = %s AND action IN ('run.begun', 'run.finished')"
            " GROUP BY 1 ORDER BY 1",
            [doors.id],
        )
    assert found.counts == counts
    assert [agent for (agent,) in notices] == [doors.agent.id]
    assert audited == [("run.begun", 1), ("run.finished", 1)]
    assert sorted(items(office, erasure)) == ["fact", "mention"]
    assert doors.value("city", 1.5, subject="bob") == "Porto"
    assert doors.value("city", 1.5, subject="carl") == "Turin"


def test_killed_before_any_statement_of_its_approval_it_is_approved_once_or_not_at_all(
    office: Office, superuser: Any
) -> None:
    furnish(office)
    subject, tenant = office.subject(), office.doors.id
    erasure = office.ask()

    def approve() -> None:
        actor = office.second
        with tenant_transaction(Role.STAFF, tenant=tenant, actor=actor.id):
            erasing.decide(
                actor, erasure.id, Answer.APPROVE, shown=erasure.digest, reason="checked", now=erasure.asked_at
            )

    statement = 1
    while not (came := killed_at(statement, approve)).commits:
        assert came.killed
        wait_until_noticed(superuser, came)
        # Nothing of it has happened: names resolve, and the question waits.
        assert (office.now(erasure).state, office.subject()) == ("asked", subject)
        statement += 1
    assert came.killed, "it was never killed between its commit and the endings log"
    wait_until_noticed(superuser, came)
    assert office.now(erasure).state == "running"
    assert statement > 20, statement
    # It was killed before the endings log was told: whoever comes next tells it.
    assert [each for each in endings_log.told(tenant) if each.kind == "erasure"] == []
    assert endings_log.settle(tenant) > 0
    assert len([each for each in endings_log.told(tenant) if each.kind == "erasure"]) == 1
    assert endings_log.settle(tenant) == 0
    assert isinstance(office.doors.say("city", "Lisbon", 1), Denied)
    erasing.go_on(tenant, erasure.id, seconds=60)
    assert office.now(erasure).state == "done"
    assert office.left(subject) == {"episodes": 1}
