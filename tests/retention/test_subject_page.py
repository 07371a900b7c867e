"""The page of a subject with what other apps know of it: holds, and what its facts came from and led to."""

import re
from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from memory import derived, outbox, sight
from retention import ancestry, matters
from retention.matters import Target
from tenants.actors import MemberRole
from tenants.isolation import Role, tenant_transaction
from tests.memory.doors import Doors


@pytest.fixture
def doors(database: Any) -> Doors:
    return Doors()


def page_of(doors: Doors, superuser: Any, role: MemberRole = MemberRole.AUDITOR) -> str:
    subject = superuser.execute("SELECT id FROM memory_subject WHERE tenant_id = %s", [doors.id]).fetchone()[0]
    answer = doors.organisation.person(role).signed_in().get(f"/admin/memory/subject/{subject}/change/")
    assert answer.status_code == 200
    return str(answer.content.decode())


def test_what_is_on_hold_is_hatched_and_its_matter_named(doors: Doors, superuser: Any) -> None:
    doors.say("city", "Ulm", 1)
    assert 'class="held"' not in page_of(doors, superuser)
    officer = doors.organisation.person(MemberRole.PRIVACY_OFFICER).actor
    subject = superuser.execute("SELECT id FROM memory_subject WHERE tenant_id = %s", [doors.id]).fetchone()[0]
    now = datetime.now(UTC)
    with tenant_transaction(Role.STAFF, tenant=doors.id, actor=officer.id):
        matter, _ = matters.open_matter(officer, "2026/117", "litigation", now=now)
        matters.place(officer, matter.id, [Target(subject_id=subject)], now=now)
    page = page_of(doors, superuser)
    assert page.count('class="held"') == 1
    assert "2026/117" in page


def test_lineage_leads_from_what_was_said_to_what_was_derived(doors: Doors, superuser: Any) -> None:
    said = doors.episode("I live in Ulm.", subject="mira")
    fact = doors.say("city", "Ulm", 1, episode=said.id, quote="live in Ulm").fact
    with tenant_transaction(Role.AGENT, tenant=doors.id, clearance=3):
        derived.profile(doors.agent, "mira")
    while outbox.drain_tenant(doors.id):
        pass
    page = page_of(doors, superuser)
    drawing = page[page.index('<svg class="ancestry"') : page.index("</svg>", page.index('<svg class="ancestry"'))]
    assert re.findall(r"/admin/memory/(\w+)/([\w-]+)/change/", drawing) == [
        ("episode", str(said.id)),
        ("fact", str(fact)),
    ]
    assert "profile" in drawing
    assert drawing.count('class="rests"') == 2
    assert "Ulm" not in page


def test_nothing_is_drawn_of_nothing() -> None:
    assert ancestry.draw([], []) is None


def test_the_page_costs_the_same_statements_for_few_facts_and_for_many(doors: Doors, superuser: Any) -> None:
    doors.say("tags", "tag", 1)
    subject = superuser.execute("SELECT id FROM memory_subject WHERE tenant_id = %s", [doors.id]).fetchone()[0]
    client = doors.organisation.person(MemberRole.AUDITOR).signed_in()
    path = f"/admin/memory/subject/{subject}/change/"

    def cost() -> int:
        with CaptureQueriesContext(connection) as sent:
            assert client.get(path).status_code == 200
        return len(sent)

    cost()
    few = cost()
    for number in range(40):
        doors.say("tags", f"tag {number}", number)
    assert cost() == few
    assert few <= 30


def test_more_than_a_page_holds_is_counted_whole_and_led_to(doors: Doors, superuser: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(sight.stretches, "__kwdefaults__", {"known_at": None, "first": 0, "most": 3})
    monkeypatch.setattr(sight, "SHOWN", 3)
    for number in range(8):
        doors.say("tags", f"tag {number}", number)
    subject = superuser.execute("SELECT id FROM memory_subject WHERE tenant_id = %s", [doors.id]).fetchone()[0]
    client = doors.organisation.person(MemberRole.AUDITOR).signed_in()
    path, seen, ways = f"/admin/memory/subject/{subject}/change/", [], []
    for first in ("", "?first=3", "?first=6", "?first=x"):
        page = client.get(path + first).content.decode()
        assert "8 facts" in page
        seen += re.findall(r'<td><a href="/admin/memory/fact/([\w-]+)/change/"', page)
        ways.append(re.findall(r'href="\?first=(\d+)"', page))
    assert len(seen) == 3 + 3 + 2 + 3
    assert len(set(seen)) == 8
    assert ways == [["3"], ["0", "6"], ["3"], ["3"]]
