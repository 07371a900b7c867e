"""Mentions at the desk: what an erasure found of somebody in others' messages, seen in its place, decided once, recorded."""

from typing import Any
from uuid import UUID

import pytest

from memory.models import Episode, Fact
from retention import redaction
from retention.models import ErasureItem, RedactionItem
from tenants.actors import MemberRole
from tenants.isolation import Role, tenant_transaction
from tests.memory.background import settle_all
from tests.retention.test_desk import Desk, audited
from tests.retention.test_erasing import Office, furnish, now

SAID = "Then mira  okafor and MIRA OKAFOR called dora@example.com about it."


@pytest.fixture
def office(database: Any) -> Office:
    return Office()


def mentioned(office: Office) -> UUID:
    """Let an erasure find Mira in a message of Bob's; return the message."""
    office.doors.name("mira", "Mira Okafor")
    kept: UUID = office.doors.episode(SAID, subject="bob", turn_id="e-3", extract="no", sensitivity="internal").id
    settle_all(office.doors.organisation)
    office.erased()
    return kept


def item_of(office: Office) -> ErasureItem:
    with tenant_transaction(Role.STAFF, tenant=office.doors.id):
        return ErasureItem.objects.get(tenant_id=office.doors.id, kind="mention")


def desk_of(office: Office) -> Desk:
    return Desk(office.doors.organisation, MemberRole.PRIVACY_OFFICER, queue="mentions")


def test_a_mention_is_seen_in_its_place_once_it_is_claimed_and_the_rest_is_masked(office: Office) -> None:
    mentioned(office)
    desk = desk_of(office)
    listed = desk.get().content.decode()
    assert listed.count('role="option"') == 1
    assert "2 places" in listed
    assert "okafor" not in listed.casefold()
    assert "okafor" not in str(desk.get(f"{item_of(office).id}/").json()).casefold()
    claimed = desk.claim()
    assert "Then <mark>mira  okafor</mark> and <mark>MIRA OKAFOR</mark> called" in claimed["pane"]
    assert "dora@example.com" not in claimed["pane"]
    assert audited(office.doors.organisation, "content.shown") == 1


def test_the_marked_words_are_proposed_for_redaction_and_nothing_beside_them(office: Office) -> None:
    kept = mentioned(office)
    desk = desk_of(office)
    told = desk.decide(desk.claim(), "redact_found", "other")
    assert told["told"].startswith("Hidden, and proposed")
    assert desk.claim().get("empty") is True
    with tenant_transaction(Role.STAFF, tenant=office.doors.id):
        (picked,) = RedactionItem.objects.filter(tenant_id=office.doors.id, picked=True)
        assert (picked.target_id, list(picked.spans)) == (kept, [5, 17, 22, 33])
        assert Episode.objects.get(id=kept).redaction_state == "required"
    assert item_of(office).state == "ended"
    assert item_of(office).decided_by == desk.person.actor.id


def test_other_words_are_marked_and_proposed_in_place_of_what_was_found(office: Office) -> None:
    kept = mentioned(office)
    desk = desk_of(office)
    claimed = desk.claim()
    wanted: dict[str, Any] = {"scope": "words", "marked": f"{kept}:0-40", "strategy": "mask"}
    seen = desk.post(f"{claimed['item']}/foresee/", **wanted).json()
    told = desk.decide(claimed, "redact", "third_party", shown=seen["shown"], **wanted)
    assert "undo" not in told
    with tenant_transaction(Role.STAFF, tenant=office.doors.id):
        (waiting,) = redaction.queue(office.doors.id)
        (picked,) = RedactionItem.objects.filter(tenant_id=office.doors.id, request_id=waiting.id, picked=True)
        assert list(picked.spans) == [0, 40]
    assert item_of(office).state == "ended"


def test_it_is_left_with_a_reason_that_the_erasure_keeps(office: Office) -> None:
    kept = mentioned(office)
    desk = desk_of(office)
    desk.decide(desk.claim(), "keep", "not_meant")
    left = item_of(office)
    assert (left.state, left.reason) == ("kept", "not_meant")
    with tenant_transaction(Role.STAFF, tenant=office.doors.id):
        assert Episode.objects.get(id=kept).redaction_state == "none"
    assert audited(office.doors.organisation, "erasure.item_decided") == 1


def test_what_is_decided_on_the_erasures_page_is_decided_at_the_desk_too(office: Office) -> None:
    mentioned(office)
    one, other = desk_of(office), desk_of(office)
    claimed = one.claim()
    page = f"/admin/retention/erasure/{item_of(office).erasure_id}/item/"
    answer = other.client.post(page, {"item": claimed["item"], "answer": "keep", "reason": "law"})
    assert answer.status_code == 302
    assert one.decide(claimed, "redact_found", "other", status=409)["code"] == "already_decided"


def test_a_message_that_was_redacted_meanwhile_is_settled_and_not_proposed_again(office: Office) -> None:
    kept = mentioned(office)
    with tenant_transaction(Role.STAFF, tenant=office.doors.id, actor=office.first.id):
        pick = redaction.Pick(kind=redaction.Kind.EPISODE, target=kept)
        redaction.propose(office.first, [pick], reason="third_party", now=now())
    desk = desk_of(office)
    claimed = desk.claim()
    assert "okafor" not in claimed["pane"].casefold()
    desk.decide(claimed, "settle", "other")
    assert item_of(office).state == "ended"
    with tenant_transaction(Role.STAFF, tenant=office.doors.id):
        assert len(redaction.queue(office.doors.id)) == 1


def test_anothers_fact_without_a_source_is_ended_at_the_desk(office: Office) -> None:
    furnish(office)
    office.erased()
    desk = desk_of(office)
    claimed = desk.claim()
    while "It rests on what was erased" not in claimed["pane"]:
        desk.decide(claimed, "keep", "law")
        claimed = desk.claim()
    desk.decide(claimed, "end", "other")
    with tenant_transaction(Role.STAFF, tenant=office.doors.id):
        left = ErasureItem.objects.get(tenant_id=office.doors.id, kind="fact")
        assert left.state == "ended"
        assert Fact.objects.get(id=left.target_id).ended_by == "erased"


def test_a_reviewer_has_no_such_queue(office: Office) -> None:
    desk = Desk(office.doors.organisation, MemberRole.REVIEWER, queue="mentions")
    assert desk.get().status_code == 403
