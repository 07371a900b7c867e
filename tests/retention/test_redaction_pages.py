"""A reviewer picks what is to go on a page and proposes it; a privacy officer looks at what follows and applies it."""

import re
from typing import Any

import pytest
from django.test import Client

from retention.strategies import GONE
from tenants.actors import MemberRole
from tests.memory.doors import Doors
from tests.organisation import Person
from tests.retention.legal import place_raw

TEXT = "Write to mira@example.com, I live in Berlin"
PROPOSE = "/admin/retention/redactionrequest/propose/"


class Office:
    """A tenant's doors, and two people who are signed in."""

    def __init__(self) -> None:
        self.doors = Doors()
        self.reviewer: Person = self.doors.organisation.person(MemberRole.REVIEWER)
        self.officer: Person = self.doors.organisation.person(MemberRole.PRIVACY_OFFICER)
        self.first, self.second = self.reviewer.signed_in(), self.officer.signed_in()
        self.said = self.doors.episode(TEXT, subject="mira", role="user", extract="no")
        self.fact = self.doors.say("city", "Berlin", 1, episode=self.said.id, quote="I live in Berlin").fact

    def propose(self, kind: str, target: Any, **picked: Any) -> str:
        """Go the reviewer's way through the page; return the address of the proposal."""
        given = {"kind": kind, "id": str(target), **picked}
        seen = self.first.post(PROPOSE, {**given, "step": "preview"})
        assert seen.status_code == 200, seen.content
        page = seen.content.decode()
        sent = {name: hidden(page, name) for name in ("spans", "fields", "strategy", "shown")}
        made = self.first.post(PROPOSE, {**given, **sent, "words": "", "step": "propose", "reason": "third_party"})
        assert made.status_code == 302, made.content.decode()
        return str(made["Location"])


def hidden(page: str, name: str) -> str:
    """What a page would send along under a name, of its last form that does."""
    found: list[str] = re.findall(rf'<input type="hidden" name="{name}" value="([^"]*)"', page)
    return found[-1]


@pytest.fixture
def office(database: Any) -> Office:
    return Office()


def test_everything_stays_masked_until_somebody_asks_and_the_chain_says_that_they_did(office: Office) -> None:
    page = office.first.get(PROPOSE, {"kind": "episode", "id": office.said.id})
    assert page.status_code == 200
    assert "Berlin" not in page.content.decode()
    shown = office.first.post(PROPOSE, {"kind": "episode", "id": office.said.id, "step": "show"}).content.decode()
    assert "I live in Berlin" in shown
    assert re.search(r'name="spans" value="9-25".*?mira@example.com.*?email', shown, re.DOTALL)
    told = office.doors.sql("SELECT actor_id, target_id, reason FROM tenants_auditevent WHERE action = 'content.shown'")
    assert told == [(office.reviewer.actor.id, office.said.id, "redaction")]


def test_words_are_picked_proposed_and_taken_out_by_another(office: Office) -> None:
    address = office.propose("episode", office.said.id, words="mira@example.com", strategy="null")
    mine = office.first.get(address).content.decode()
    assert "nobody applies what they proposed" in mine
    assert "Take it out for good" not in mine
    page = office.second.get(address).content.decode()
    assert "Berlin" not in page
    shown = office.second.post(f"{address.removesuffix('change/')}show/", {}).content.decode()
    assert "<mark>mira@example.com</mark>" in shown
    done = office.second.post(
        f"{address.removesuffix('change/')}apply/", {"shown": hidden(page, "shown"), "reason": "checked"}
    )
    assert done.status_code == 302, done.content.decode()
    with office.doors.reading():
        from memory import recall

        assert recall.episode(office.doors.agent, office.said.id)["content"] == TEXT.replace("mira@example.com", GONE)


def test_a_box_that_was_ticked_is_a_span_and_words_that_are_not_there_are_no_whole(office: Office) -> None:
    assert office.propose("episode", office.said.id, spans="9-25").endswith("/change/")
    refused = office.first.post(
        PROPOSE, {"kind": "episode", "id": office.said.id, "step": "preview", "words": "nowhere"}
    )
    assert refused.status_code == 422
    assert "What follows" not in refused.content.decode()


def test_what_changed_since_it_was_shown_is_looked_at_again(office: Office) -> None:
    address = office.propose("fact", office.fact, strategy="mask")
    seen = hidden(office.second.get(address).content.decode(), "shown")
    office.doors.say("city", "Berlin", 4)
    stale = office.second.post(f"{address.removesuffix('change/')}apply/", {"shown": seen, "reason": "checked"})
    assert stale.status_code == 409
    assert "It changed since you looked" in stale.content.decode()


def test_a_hold_is_shown_stops_it_and_the_attempt_stays_recorded(office: Office) -> None:
    address = office.propose("fact", office.fact)
    place_raw(office.doors.id, {"record_kind": "fact", "record_id": office.fact})
    page = office.second.get(address).content.decode()
    assert "A hold is in the way of fact" in page
    tried = office.second.post(
        f"{address.removesuffix('change/')}apply/", {"shown": hidden(page, "shown"), "reason": "checked"}
    )
    assert tried.status_code == 200
    assert "A hold is in the way. Nothing was taken out" in tried.content.decode()
    assert office.doors.sql("SELECT count(*) > 0 FROM tenants_auditevent WHERE action = 'ending.refused'") == [(True,)]


def test_what_is_refused_or_taken_back_shows_again(office: Office) -> None:
    address = office.propose("fact", office.fact)
    assert office.doors.value("city", 2) is None
    assert office.first.post(f"{address.removesuffix('change/')}withdraw/", {}).status_code == 302
    assert office.doors.value("city", 2) == "Berlin"
    address = office.propose("fact", office.fact)
    refused = office.second.post(f"{address.removesuffix('change/')}refuse/", {"reason": "needed"})
    assert refused.status_code == 302
    assert office.doors.value("city", 2) == "Berlin"


def test_pages_are_open_to_their_roles_and_methods_alone(office: Office) -> None:
    address = office.propose("fact", office.fact)
    acts = [f"{address.removesuffix('change/')}{act}/" for act in ("show", "apply", "refuse", "withdraw")]
    for each in acts:
        assert office.second.get(each).status_code == 405
    auditor = office.doors.organisation.person(MemberRole.AUDITOR).signed_in()
    assert auditor.get(address).status_code == 200
    assert auditor.get(PROPOSE, {"kind": "fact", "id": office.fact}).status_code == 403
    assert [auditor.post(each, {"reason": "checked"}).status_code for each in acts] == [403, 403, 422, 403]
    stranger = Doors().organisation.person(MemberRole.PRIVACY_OFFICER).signed_in()
    assert stranger.get(address).status_code == 404
    assert stranger.get(PROPOSE, {"kind": "fact", "id": office.fact}).status_code == 404
    assert Client().get(address).status_code == 302
    assert office.first.get(PROPOSE, {"kind": "fact", "id": "x"}).status_code == 404
    assert office.first.get(PROPOSE, {"kind": "burnt", "id": office.fact}).status_code == 404


def test_a_redacted_record_reads_as_one_on_every_page(office: Office) -> None:
    address = office.propose("fact", office.fact)
    page = office.second.get(address).content.decode()
    office.second.post(
        f"{address.removesuffix('change/')}apply/", {"shown": hidden(page, "shown"), "reason": "checked"}
    )
    pages = [
        f"/admin/memory/fact/{office.fact}/change/",
        "/admin/memory/fact/",
        "/admin/memory/evidence/",
        address,
        "/admin/retention/redactionrequest/",
        *(f"/admin/memory/subject/{row[0]}/change/" for row in office.doors.sql("SELECT id FROM memory_subject")),
    ]
    for each in pages:
        answer = office.first.get(each)
        assert answer.status_code == 200, each
        assert "Berlin" not in answer.content.decode()
    assert "redacted" in office.first.get(pages[-1]).content.decode()
