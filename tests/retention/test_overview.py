"""The first page of a tenant: every number is right, opens its list, and costs no more the larger the tenant."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection

from retention import overview, tally
from tenants.actors import MemberRole
from tenants.isolation import Role, tenant_transaction
from tests.memory.doors import Doors

LISTS = frozenset({"memory/candidate/", "memory/fact/", "policies/decisionrequest/"})


@pytest.fixture
def doors(database: Any) -> Doors:
    return Doors()


def page(doors: Doors) -> overview.Overview:
    while tally.count(doors.id):
        pass
    with tenant_transaction(Role.STAFF, tenant=doors.id):
        return overview.overview(doors.id, now=datetime.now(UTC), lists=LISTS)


def test_what_waits_is_told_by_age_oldest_first(doors: Doors, superuser: Any) -> None:
    for number in range(4):
        doors.say("checked", f"value {number}", 1, subject=f"subject {number}")
    for place, days in enumerate((0, 2, 5, 40)):
        superuser.execute(
            "UPDATE memory_candidate SET created_at = now() - %s::interval WHERE id = (SELECT id FROM memory_candidate"
            " WHERE tenant_id = %s ORDER BY id DESC OFFSET %s LIMIT 1)",
            [timedelta(days=days, hours=1), doors.id, place],
        )
    waiting = page(doors).backlogs[0]
    assert (waiting.title, waiting.number) == ("Sensitive facts", 4)
    assert [number for _, number in waiting.ages] == [1, 1, 1, 1]
    assert waiting.shares == [(1, 0.0, 25.0), (2, 25.0, 25.0), (3, 50.0, 25.0), (4, 75.0, 25.0)]
    assert waiting.oldest is not None
    assert datetime.now(UTC) - waiting.oldest > timedelta(days=40)


def test_what_ends_soon_is_counted_and_what_has_ended_is_not(doors: Doors, superuser: Any) -> None:
    for number, ends in enumerate(("1 hour", "3 days", "20 days", "-1 hour")):
        fact = doors.say("tags", f"tag {number}", 1).fact
        superuser.execute("UPDATE memory_fact SET expires_at = now() + %s::interval WHERE id = %s", [ends, fact])
    day, week = page(doors).ends[1:3]
    assert (day.number, week.number) == (1, 2)


def test_decisions_in_time_are_a_share_of_those_of_the_last_weeks(doors: Doors, superuser: Any) -> None:
    assert page(doors).in_time.number == "none yet"
    for number in range(3):
        asked = doors.say("checked", f"value {number}", 1, subject=f"subject {number}")
        doors.decide(asked.candidate, accept=number != 1)
    superuser.execute(
        "UPDATE memory_candidate SET created_at = now() - interval '9 days' WHERE tenant_id = %s AND state = 'rejected'",
        [doors.id],
    )
    card = page(doors).in_time
    assert (card.number, card.note, card.tone) == ("66 %", "of 3 decided in 28 days", "bad")


def test_agents_and_days_come_from_the_chain(doors: Doors) -> None:
    doors.say("city", "Ulm", 1)
    doors.say("city", "Bern", 2)
    found = page(doors)
    assert [(line.id, line.writes, line.refusals) for line in found.agents] == [(doors.agent.id, 2, 0)]
    written = found.trends[0]
    assert sum(numbers[0] for _, numbers in written.days) == 2
    assert len(written.days) == overview.DAYS
    assert {card.title: card.number for card in found.order}["Entries not counted yet"] == "0"


def test_every_table_of_a_tenant_is_behind_row_level_security(doors: Doors) -> None:
    card = next(card for card in page(doors).order if card.title == "Tables behind row-level security")
    assert (card.note, card.tone) == ("all of them", "")


def test_a_number_whose_list_the_reader_may_not_open_links_to_nothing(doors: Doors) -> None:
    found = page(doors)
    shown: list[Any] = [*found.backlogs, found.in_time, *found.ends, *found.order, *found.trends]
    links = {each.link.partition("?")[0] for each in shown}
    assert links <= LISTS | {""}


@pytest.mark.parametrize("role", MemberRole)
def test_every_link_of_the_page_opens_for_whoever_sees_it(doors: Doors, role: MemberRole) -> None:
    doors.say("city", "Ulm", 1)
    doors.say("checked", "value", 1)
    client = doors.organisation.person(role).signed_in()
    source = client.get("/admin/").content.decode()
    links = set(re.findall(r'href="(/admin/[^"#]+)"', source[source.index('class="m-page') :]))
    assert links or role is MemberRole.TENANT_ADMIN
    for link in links:
        assert client.get(link.replace("&amp;", "&")).status_code == 200, link


def counted(superuser: Any, doors: Doors, action: str, kind: str, actor: Any, days: dict[int, int]) -> None:
    """Let the tally hold that an actor did something so often so many days ago."""
    for ago, number in days.items():
        superuser.execute(
            "INSERT INTO retention_tally (tenant_id, id, day, action, actor_kind, actor_id, number)"
            " VALUES (%s, gen_random_uuid(), (now() AT TIME ZONE 'UTC')::date - %s::int, %s, %s, %s, %s)",
            [doors.id, ago, action, kind, actor, number],
        )


def test_who_is_far_above_their_own_usual_is_named_and_who_is_not_is_not(doors: Doors, superuser: Any) -> None:
    busy, calm, refused, idle = (uuid4() for _ in range(4))
    curious = doors.organisation.person(MemberRole.REVIEWER)
    counted(superuser, doors, "fact.written", "agent", busy, {0: 500, 1: 90, 5: 110})
    counted(superuser, doors, "fact.written", "agent", calm, {0: 400, 1: 90, 5: 110})
    counted(superuser, doors, "fact.written", "agent", uuid4(), {0: 300})
    counted(superuser, doors, "write.refused", "agent", refused, {0: 20})
    counted(superuser, doors, "write.refused", "agent", idle, {0: 19})
    counted(superuser, doors, "content.revealed", "person", curious.actor.id, {0: 25, 2: 4, 9: 4})
    counted(superuser, doors, "content.revealed", "person", uuid4(), {0: 25, 2: 6, 9: 6})
    with tenant_transaction(Role.STAFF, tenant=doors.id):
        found = overview.overview(doors.id, now=datetime.now(UTC), lists=LISTS).unusual
    assert [(each.name, each.act, each.number, each.usual, each.link) for each in found] == [
        (str(busy)[-8:], "written", 500, 100, ""),
        (curious.username, "revealed", 25, 4, ""),
        (str(refused)[-8:], "refused", 20, 0, ""),
    ]


def test_an_alert_leads_to_the_chain_and_stands_first(doors: Doors, superuser: Any) -> None:
    counted(superuser, doors, "fact.written", "agent", doors.agent.id, {0: 500, 1: 10})
    client = doors.organisation.person(MemberRole.AUDITOR).signed_in()
    source = client.get("/admin/").content.decode()
    assert "500 today, usually 10 a day" in source
    (link,) = re.findall(r'href="(/admin/tenants/auditevent/\?action=[^"]+)"', source)
    assert client.get(link.replace("&amp;", "&")).status_code == 200


def test_the_page_costs_the_same_statements_for_few_and_for_many(doors: Doors) -> None:
    def cost() -> int:
        sent: list[str] = []

        def note(execute: Any, sql: Any, parameters: Any, many: Any, context: Any) -> Any:
            sent.append(sql)
            return execute(sql, parameters, many, context)

        with tenant_transaction(Role.STAFF, tenant=doors.id), connection.execute_wrapper(note):
            overview.overview(doors.id, now=datetime.now(UTC), lists=LISTS)
        return len(sent)

    before = cost()
    for number in range(20):
        doors.say("checked", f"value {number}", 1, subject=f"subject {number}")
    page(doors)
    assert cost() <= before + 1
    assert before <= 14
