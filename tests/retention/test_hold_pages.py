"""The pages of matters and holds: what two privacy officers do on them, and what everybody else may not."""

from typing import Any
from uuid import UUID

import pytest

from policies.models import DecisionRequest
from retention.matters import Target
from retention.models import Hold, Matter
from tests.memory.doors import Doors
from tests.policies.two_people import acting
from tests.retention.legal import Officers, free, held, hold_of

pytestmark = pytest.mark.usefixtures("database")


@pytest.fixture
def doors(tenant: Any) -> Doors:
    return Doors(tenant)


@pytest.fixture
def officers(tenant: Any) -> Officers:
    return Officers(tenant)


def asked_about(officers: Officers, hold: UUID) -> DecisionRequest:
    with acting(officers.first):
        return DecisionRequest.objects.get(target_id=hold, state="pending")


def text_of(client: Any, path: str, status: int = 200) -> str:
    answer = client.get(path)
    assert answer.status_code == status, (path, answer.status_code)
    return str(answer.content.decode())


def test_two_officers_open_place_and_release_by_the_pages(officers: Officers, doors: Doors) -> None:
    mira = doors.name("mira").id
    said = doors.say("city", "Oslo")
    first, second = officers.first.signed_in(), officers.second.signed_in()
    assert "Open a matter" in text_of(first, "/admin/retention/matter/")
    sent = first.post("/admin/retention/matter/open/", {"reference": "2026/117", "reason": "litigation"})
    assert sent.status_code == 302
    matter = sent["Location"]
    counted = first.post(matter.replace("change", "place"), {"subject": "mira", "act": "count"})
    assert counted.status_code == 200
    assert "<dt>fact</dt><dd>1</dd>" in counted.content.decode()
    placed = first.post(matter.replace("change", "place"), {"subject": "mira", "act": "place"})
    assert placed.status_code == 302, placed.content.decode()
    hold = UUID(placed["Location"].split("/")[-3])
    assert held(doors.id, "fact", said.fact) == {said.fact: [hold]}

    # Everywhere the record is shown it says so.
    for page in (f"fact/{said.fact}", f"evidence/{said.evidence}", f"subject/{mira}"):
        assert "Kept by a legal hold" in text_of(second, f"/admin/memory/{page}/change/"), page
    free(doors.id, "fact", [said.fact], act="redaction", by=doors.person)
    page = text_of(first, f"/admin/retention/hold/{hold}/change/?count=1")
    assert "<td>redaction</td><td>1</td>" in page
    assert "<dt>fact</dt><dd>1</dd>" in page

    asked = first.post(f"/admin/retention/hold/{hold}/ask/", {"reason": "matter_ended"})
    assert asked.status_code == 302
    question = asked_about(officers, hold)
    decide = f"/admin/retention/hold/{hold}/decide/"
    answer = {"answer": "approve", "shown": bytes(question.digest).hex(), "reason": "checked"}
    assert "nobody approves what they asked for" in text_of(first, f"/admin/retention/hold/{hold}/change/")
    assert first.post(decide, answer).status_code == 403
    for person in (officers.reviewer, officers.approver):
        assert person.signed_in().post(decide, answer).status_code == 403
    assert "Release it" in text_of(second, f"/admin/retention/hold/{hold}/change/")
    # The list of approvals leads here, and decides nothing of it by itself.
    general = text_of(second, f"/admin/policies/decisionrequest/{question.id}/change/")
    assert f"/admin/retention/hold/{hold}/change/" in general
    assert second.post(f"/admin/policies/decisionrequest/{question.id}/decide/", answer).status_code == 404
    assert second.post(decide, {**answer, "shown": "00" * 32}).status_code == 409
    assert second.post(decide, answer).status_code == 302
    assert hold_of(doors.id, hold).state == "released"
    assert free(doors.id, "fact", [said.fact]) == [said.fact]
    assert first.post(matter.replace("change", "close"), {}).status_code == 302
    with acting(officers.first):
        assert Matter.objects.get(reference="2026/117").state == "closed"


def test_a_form_says_what_is_wrong_and_repeats_no_name_into_the_rows(officers: Officers, doors: Doors) -> None:
    first = officers.first.signed_in()
    refused = first.post("/admin/retention/matter/open/", {"reference": "4111111111111111", "reason": "litigation"})
    assert (refused.status_code, "looks like an e-mail" in refused.content.decode()) == (422, True)
    hold = officers.place(Target(session_id="s"))
    place = f"/admin/retention/matter/{hold_of(doors.id, hold).matter_id}/place/"
    for given in (
        {},
        {"subject": "nobody of that name"},
        {"records": "not-an-id", "kind": "fact"},
        {"records": str(hold), "kind": "fact"},
        {"recorded_from": "2026-02-01T00:00", "recorded_until": "2026-01-01T00:00"},
        {"recorded_from": "soon"},
    ):
        answer = first.post(place, {**given, "act": "place"})
        assert answer.status_code == 422, given
        assert 'role="alert"' in answer.content.decode()
    with acting(officers.first):
        assert Hold.objects.count() == 1


def test_hostile_words_in_a_scope_are_escaped(officers: Officers) -> None:
    hold = officers.place(Target(session_id="<script>alert(1)</script>"))
    page = text_of(officers.second.signed_in(), f"/admin/retention/hold/{hold}/change/")
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert" in page


def test_another_tenants_hold_is_not_there(officers: Officers, other_tenant: Any) -> None:
    theirs = Officers(other_tenant)
    hold = theirs.place(Target(session_id="s"))
    client = officers.first.signed_in()
    text_of(client, f"/admin/retention/hold/{hold}/change/", 404)
    assert client.post(f"/admin/retention/hold/{hold}/ask/", {"reason": "other"}).status_code == 404
    assert client.post(f"/admin/retention/hold/{hold}/decide/", {"answer": "approve"}).status_code == 404
