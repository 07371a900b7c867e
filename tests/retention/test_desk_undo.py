"""A decision at the desk can be taken back for ten seconds; then it is carried out, whoever is still there."""

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db import DatabaseError, transaction

from memory import outbox, rows
from retention.desk import claims, pending
from retention.models import Claim, RedactionRequest
from tenants.actors import MemberRole
from tenants.isolation import Role, tenant_transaction
from tests.paths.ledger import Ledger, publish
from tests.retention.test_desk import ATTRIBUTES, Desk, audited, state, waiting

pytestmark = pytest.mark.usefixtures("database")


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing can be taken back for any time: what is put off is due."""
    monkeypatch.setattr(claims, "UNDO", timedelta())


def claim_of(tenant: Any, item: str) -> Claim:
    with tenant_transaction(Role.STAFF, tenant=tenant.id):
        return Claim.objects.filter(tenant_id=tenant.id, item_id=item).latest("id")


def put_off(desk: Desk, claimed: Any, act: str = "confirm", reason: str = "evidence_supports", **more: Any) -> Any:
    told = desk.decide(claimed, act, reason, later="1", **more)
    assert told["undo"]["seconds"] == claims.UNDO.total_seconds()
    return told


def test_until_it_is_carried_out_nothing_has_happened_but_that_the_claim_says_so(tenant: Any) -> None:
    (candidate,) = waiting(tenant)
    desk = Desk(tenant)
    told = put_off(desk, desk.claim())
    assert told["told"] == "Confirmed: home."
    assert "1 done today" in told["progress"]
    assert state(tenant, candidate).state == "asked"
    assert audited(tenant, "candidate.decided") == 0
    # Nobody else gets it meanwhile, and to give it back does not lose it.
    assert Desk(tenant).claim().get("empty") is True
    desk.post(f"{candidate}/release/")
    assert claim_of(tenant, candidate).ended_at is None


def test_what_is_taken_back_was_never_decided_and_its_claim_goes_on(tenant: Any) -> None:
    (candidate,) = waiting(tenant)
    desk = Desk(tenant)
    put_off(desk, desk.claim(), "reject", "duplicate")
    assert desk.post(f"{candidate}/undo/").status_code == 200
    assert state(tenant, candidate).state == "asked"
    assert pending.work(tenant.id, claim_of(tenant, candidate).id) is outbox.Settled.DONE
    assert state(tenant, candidate).state == "asked"
    desk.decide(desk.claim(candidate))
    assert state(tenant, candidate).state == "accepted"
    assert desk.post(f"{candidate}/undo/").json()["code"] == "undo_over"


def test_the_next_decision_carries_out_the_one_before(tenant: Any) -> None:
    first, second = waiting(tenant, 2)
    desk = Desk(tenant)
    put_off(desk, desk.claim())
    put_off(desk, desk.claim())
    assert state(tenant, first).state == "accepted"
    assert state(tenant, first).decided_by == desk.person.actor.id
    assert state(tenant, second).state == "asked"
    assert desk.post(f"{first}/undo/").json()["code"] == "undo_over"
    assert desk.post(f"{second}/undo/").status_code == 200


def test_the_next_about_the_same_question_is_shown_after_what_was_decided_before(tenant: Any) -> None:
    publish(tenant, ATTRIBUTES)
    ledger, desk = Ledger(tenant.agent()), Desk(tenant)
    first, second = (ledger.said("mira", "home", town, status=202)["candidate"] for town in ("Oslo", "Bergen"))
    put_off(desk, desk.claim(first))
    claimed = desk.claim(second)
    assert claimed["carried"] is True
    assert "Oslo" in claimed["pane"]
    assert state(tenant, first).state == "accepted"
    desk.decide(claimed)
    assert state(tenant, second).state == "accepted"


def test_a_decision_that_is_refused_leaves_the_one_before_carried_out(tenant: Any) -> None:
    publish(tenant, ATTRIBUTES)
    ledger, desk = Ledger(tenant.agent()), Desk(tenant)
    first, second = (ledger.said(name, "home", "Oslo", status=202)["candidate"] for name in ("mira", "tom"))
    claimed = desk.claim(second)
    put_off(desk, desk.claim(first))
    ledger.said("tom", "home", "Oslo", provenance={"turn_id": "again"}, status=202)
    told = desk.decide(claimed)
    assert told["code"] == "changed_since"
    assert state(tenant, first).state == "accepted"
    assert state(tenant, second).state == "asked"


@pytest.mark.usefixtures("at_once")
def test_the_page_carries_it_out_when_the_time_is_over(tenant: Any) -> None:
    publish(tenant, ATTRIBUTES)
    ledger, desk = Ledger(tenant.agent()), Desk(tenant)
    candidate = ledger.said("mira", "home", "Oslo", status=202)["candidate"]
    put_off(desk, desk.claim(), level="3")
    assert desk.post("settle/").json()["carried"] == [candidate]
    assert claim_of(tenant, candidate).ended_by == "decided"
    (fact,) = ledger.facts(subject="mira", attribute="home")
    assert (fact["sensitivity"], fact["confirmed"]) == ("restricted", True)


def test_before_its_time_the_page_carries_nothing_out(tenant: Any) -> None:
    (candidate,) = waiting(tenant)
    desk = Desk(tenant)
    put_off(desk, desk.claim())
    assert desk.post("settle/").json()["carried"] == []
    assert pending.work(tenant.id, claim_of(tenant, candidate).id) is outbox.Settled.AGAIN
    assert state(tenant, candidate).state == "asked"


@pytest.mark.usefixtures("at_once")
def test_a_closed_browser_loses_nothing(tenant: Any) -> None:
    (candidate,) = waiting(tenant)
    desk = Desk(tenant)
    put_off(desk, desk.claim())
    with tenant_transaction(Role.WORKER, tenant=tenant.id):
        (target,) = rows.fetch(
            "SELECT target_id FROM memory_outboxentry WHERE tenant_id = %s AND topic = %s", [tenant.id, pending.TOPIC]
        )[0]
    outbox.drain_tenant(tenant.id)
    found = state(tenant, candidate)
    assert (found.state, found.decided_by) == ("accepted", desk.person.actor.id)
    # Done again it does nothing.
    assert pending.work(tenant.id, target) is outbox.Settled.DONE
    assert audited(tenant, "candidate.decided") == 1


@pytest.mark.usefixtures("at_once")
def test_what_changed_meanwhile_is_not_decided_and_waits_again(tenant: Any) -> None:
    publish(tenant, ATTRIBUTES)
    ledger, desk = Ledger(tenant.agent()), Desk(tenant)
    candidate = ledger.said("mira", "home", "Oslo", status=202)["candidate"]
    put_off(desk, desk.claim())
    ledger.said("mira", "home", "Oslo", provenance={"turn_id": "again"}, status=202)
    told = desk.post("settle/").json()
    assert told["carried"] == []
    assert "waits again" in told["earlier"]
    assert state(tenant, candidate).state == "asked"
    assert Desk(tenant).claim()["item"] == candidate


@pytest.mark.usefixtures("at_once")
def test_whoever_lost_the_role_meanwhile_decides_nothing(tenant: Any, superuser: Any) -> None:
    (candidate,) = waiting(tenant)
    desk = Desk(tenant)
    put_off(desk, desk.claim())
    superuser.execute(
        "DELETE FROM tenants_membership WHERE tenant_id = %s AND user_id = %s", [tenant.id, desk.person.actor.id]
    )
    assert isinstance(pending.work(tenant.id, claim_of(tenant, candidate).id), outbox.GivenUp)
    assert state(tenant, candidate).state == "asked"
    assert Desk(tenant).claim()["item"] == candidate


@pytest.mark.usefixtures("at_once")
def test_more_that_is_asked_for_can_be_taken_back_too(tenant: Any) -> None:
    (candidate,) = waiting(tenant)
    desk = Desk(tenant)
    put_off(desk, desk.claim(), "ask_more", "needs_source")
    assert audited(tenant, "item.more_asked") == 0
    desk.post("settle/")
    assert audited(tenant, "item.more_asked") == 1
    assert claim_of(tenant, candidate).ended_by == "deferred"


def test_a_class_that_is_too_low_is_refused_at_once(tenant: Any) -> None:
    waiting(tenant)
    desk = Desk(tenant)
    claimed = desk.claim()
    assert desk.decide(claimed, level="0", later="1", status=403)["code"] == "needs_second_person"
    assert desk.decide(claimed, level="9", later="1", status=422)["code"] == "request_refused"


def test_what_somebody_typed_is_never_put_off(tenant: Any) -> None:
    (candidate,) = waiting(tenant)
    desk = Desk(tenant)
    told = desk.decide(desk.claim(), "edit", value="Bergen", later="1")
    assert "undo" not in told
    assert state(tenant, candidate).state == "accepted"


def test_a_proposed_redaction_is_taken_back_by_an_act_of_its_own(tenant: Any) -> None:
    (candidate,) = waiting(tenant)
    desk, other = Desk(tenant), Desk(tenant)
    told = desk.decide(desk.claim(), "redact", "third_party", later="1")
    assert state(tenant, candidate).redaction_state == "required"
    proposal = told["undo"]["proposal"]
    assert other.post(f"{candidate}/undo/", proposal=proposal).json()["code"] == "not_the_requester"
    assert desk.post(f"{candidate}/undo/", proposal=proposal).status_code == 200
    assert state(tenant, candidate).redaction_state == "none"
    with tenant_transaction(Role.STAFF, tenant=tenant.id):
        assert RedactionRequest.objects.get(id=UUID(proposal)).state == "withdrawn"


def test_nobody_puts_off_or_takes_back_for_another_not_by_raw_sql_either(tenant: Any) -> None:
    (candidate,) = waiting(tenant)
    desk, other = Desk(tenant), Desk(tenant)
    put_off(desk, desk.claim())
    assert other.post(f"{candidate}/undo/").json()["code"] == "undo_over"
    with (
        tenant_transaction(Role.STAFF, tenant=tenant.id, actor=other.person.actor.id),
        pytest.raises(DatabaseError, match="ended by whoever holds it"),
        transaction.atomic(),
    ):
        rows.execute("UPDATE retention_claim SET commit_at = NULL WHERE tenant_id = %s", [tenant.id])
    assert Desk(tenant, MemberRole.AUDITOR).post(f"{candidate}/undo/").status_code == 403
