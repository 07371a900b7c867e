"""What was done, counted by day from the audit chain: each entry once."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection

from retention import charts, tally
from tenants.audit import Action
from tenants.isolation import Role, tenant_transaction
from tests.memory.doors import Doors


@pytest.fixture
def doors(database: Any) -> Doors:
    return Doors()


def all_of(doors: Doors) -> dict[str, int]:
    """Everything that the tally of a tenant says, by action."""
    with tenant_transaction(Role.STAFF, tenant=doors.id), connection.cursor() as cursor:
        cursor.execute("SELECT action, sum(number)::int FROM retention_tally GROUP BY 1")
        return dict(cursor.fetchall())


def chain_of(doors: Doors) -> dict[str, int]:
    with tenant_transaction(Role.STAFF, tenant=doors.id), connection.cursor() as cursor:
        cursor.execute("SELECT action, count(*)::int FROM tenants_auditevent WHERE chain = %s GROUP BY 1", [doors.id])
        return dict(cursor.fetchall())


def settled(doors: Doors) -> None:
    while tally.count(doors.id):
        pass


def test_the_tally_says_what_the_chain_says_and_goes_on_where_it_was(doors: Doors) -> None:
    for number in range(3):
        doors.say("city", f"city {number}", number)
    settled(doors)
    assert all_of(doors) == chain_of(doors)
    assert all_of(doors)["fact.written"] == 3
    doors.say("city", "Ulm", 9)
    settled(doors)
    assert all_of(doors) == chain_of(doors)


def test_an_entry_is_counted_once_in_whatever_portions_and_by_however_many(doors: Doors) -> None:
    for number in range(30):
        doors.say("tags", f"tag {number}", 1)

    def one(_: int) -> int:
        try:
            return sum(tally.count(doors.id, limit=7) for _ in range(6))
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as pool:
        counted = sum(pool.map(one, range(4)))
    while more := tally.count(doors.id, limit=7):
        counted += more
    assert all_of(doors) == chain_of(doors)
    assert counted == sum(chain_of(doors).values())


def test_agents_are_told_by_what_they_wrote_and_what_was_refused(doors: Doors) -> None:
    doors.say("city", "Ulm", 1)
    doors.say("city", "Bern", 2)
    doors.say("plan", "gold", 1, by=doors.high)
    settled(doors)
    today = datetime.now(UTC).date()
    with tenant_transaction(Role.STAFF, tenant=doors.id):
        found = tally.agents(
            doors.id,
            writes=[Action.FACT_WRITTEN],
            refusals=[Action.WRITE_REFUSED],
            since=today - timedelta(days=1),
            until=today,
            most=10,
        )
        days = tally.by_day(doors.id, [Action.FACT_WRITTEN], since=today - timedelta(days=3), until=today)
    assert found == [(doors.agent.id, 2, 0), (doors.high.id, 1, 0)]
    assert (len(days.days), days.numbers[-1] + days.numbers[-2]) == (4, 3)


def test_members_may_read_it_and_nobody_but_the_worker_may_write_it(doors: Doors, superuser: Any) -> None:
    doors.say("city", "Ulm", 1)
    settled(doors)
    for role in (Role.STAFF, Role.AGENT, Role.WRITER):
        with pytest.raises(Exception, match="permission denied"), tenant_transaction(role, tenant=doors.id):
            connection.cursor().execute("UPDATE retention_tally SET number = 1")


@pytest.mark.parametrize(
    ("most", "scale"), [(0, ["0", "1", "2"]), (3, ["0", "2", "4"]), (17, ["0", "10", "20"]), (1_500, ["0", "1k", "2k"])]
)
def test_a_scale_ends_at_a_round_number_that_no_bar_exceeds(most: int, scale: list[str]) -> None:
    day = datetime(2026, 3, 1, tzinfo=UTC).date()
    chart = charts.bars([day, day + timedelta(days=1)], [("one", [most, 0]), ("two", [0, most])])
    assert [mark.words for mark in chart.scale] == scale
    assert len(chart.bars) == (2 if most else 0)
    for bar in chart.bars:
        assert bar.y >= charts.TOP
        assert bar.y + bar.height == pytest.approx(chart.bottom, abs=0.2)
        assert chart.left <= bar.x
        assert bar.x + bar.width <= chart.width
