"""Four eyes, by the doors and against raw SQL: what one person asks for, another decides on."""

from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import uuid4

import pytest
from django.db import IntegrityError

from policies import approvals, catalogue, publishing
from policies.approvals import Act, Answer
from policies.models import AttributeVersion, Decision, DecisionRequest
from tenants.actors import ActorKind, MemberRole
from tenants.errors import Clash, Forbidden, Missing, Problem, Refused
from tenants.isolation import Role, tenant_transaction
from tests.organisation import Person
from tests.paths.ledger import at_once
from tests.policies.two_people import (
    CHECKED,
    EMPTY,
    FORBIDDEN,
    FOREIGN,
    FROZEN,
    UNIQUE,
    Two,
    acting,
    now,
    refusal,
    refused,
)

DECIDE = (
    "INSERT INTO policies_decision (tenant_id, id, request_id, requested_by, digest, verdict, reason, decided_by, decided_at)"
    " VALUES (%s, %s, %s, %s, %s, %s, 'other', %s, now())"
)


@pytest.fixture
def two(tenant: Any) -> Two:
    return Two(tenant)


def decided_by_sql(
    two: Two, request: Any, by: Person, *, verdict: str = "approve", digest: bytes | None = None, named: Any = None
) -> str | None:
    """Try to decide with raw SQL as the staff role; return how that is refused."""
    state = {"approve": "approved", "refuse": "refused", "return": "returned"}[verdict]
    given = (two.organisation.id, uuid4(), request.id, request.requested_by, digest or bytes(request.digest), verdict)
    return refused(
        by,
        (DECIDE, (*given, named or by.actor.id)),
        ("UPDATE policies_decisionrequest SET state = %s WHERE id = %s", (state, request.id)),
    )


# the way it is meant --------------------------------------------------------------------------------------------------


def test_what_another_approves_is_in_force_at_once_and_the_former_version_retired(two: Two) -> None:
    first = two.draft()
    two.decide(two.ask(first))
    assert two.state(first) == "active"
    second = two.draft(description="where they live")
    request = two.ask(second)
    with acting(two.other) as actor:
        assert catalogue.catalogue(actor.tenant).attributes["city"].number == 1
    settled, decision = two.decide(request, reason="checked")
    assert (settled.state, settled.carried_out_by) == ("done", two.approver.actor.id)
    assert (decision.decided_by, decision.requested_by) == (two.approver.actor.id, two.drafter.actor.id)
    assert (two.state(first), two.state(second)) == ("retired", "active")
    with acting(two.other) as actor:
        assert catalogue.catalogue(actor.tenant).attributes["city"].definition.description == "where they live"


def test_a_policy_is_drafted_asked_for_and_put_in_force_by_another(two: Two) -> None:
    version = two.draft_policy(review_after="P2Y")
    two.decide(two.ask(version))
    with acting(two.other) as actor:
        found = catalogue.catalogue(actor.tenant)
    assert found.policy_version == "starter@2"
    assert found.policy.review_after.text == "P2Y"


@pytest.mark.parametrize(("answer", "state"), [(Answer.REFUSE, "refused"), (Answer.RETURN, "returned")])
def test_what_is_refused_or_sent_back_changes_nothing_and_may_be_asked_anew(
    two: Two, answer: Answer, state: str
) -> None:
    version = two.draft()
    settled, _ = two.decide(two.ask(version), answer)
    assert (settled.state, two.state(version)) == (state, "draft")
    two.decide(two.ask(version))
    assert two.state(version) == "active"


def test_every_step_is_in_the_chain_with_its_actor_and_in_the_history(two: Two) -> None:
    request = two.asked()
    two.decide(request)
    told = [
        (each.action, each.actor_id, each.reason)
        for each in two.audited(
            "attribute.drafted", "approval.asked", "approval.decided", "approval.used", "attribute.published"
        )
    ]
    drafter, approver = two.drafter.actor.id, two.approver.actor.id
    assert told == [
        ("attribute.drafted", drafter, "none"),
        ("approval.asked", drafter, "new_need"),
        ("approval.decided", approver, "other"),
        ("approval.used", approver, "carried_out"),
        ("attribute.published", approver, "none"),
    ]
    with acting(two.other):
        rows = list(
            DecisionRequest.history.filter(id=request.id).order_by("history_id").values_list("state", "history_user_id")
        )
    assert rows == [("pending", drafter), ("approved", approver), ("done", approver)]


def test_an_earlier_version_comes_back_by_being_drafted_anew(two: Two) -> None:
    first = two.draft()
    two.decide(two.ask(first))
    two.decide(two.asked(description="other"))
    again = two.draft()
    assert (again.number, bytes(again.digest)) == (3, bytes(first.digest))
    two.decide(two.ask(again))
    with acting(two.other) as actor:
        assert catalogue.catalogue(actor.tenant).attributes["city"].number == 3


def test_an_operators_command_goes_on_by_itself_and_drafts_do_not_take_its_numbers(two: Two) -> None:
    from tests.paths.ledger import publish

    draft = two.draft()
    publish(two.organisation, [{"name": "city", "schema": {"type": "string"}, "sensitivity": "public"}])
    with acting(two.other) as actor:
        found = catalogue.catalogue(actor.tenant).attributes["city"]
    assert (found.number, two.state(draft)) == (2, "draft")
    with pytest.raises(Clash, match="base_moved"):
        two.ask(draft)


def test_the_cardinality_may_change_until_a_version_was_in_force(two: Two) -> None:
    first = two.draft(cardinality="multi")
    second = two.draft()
    with acting(two.drafter) as actor:
        publishing.discard(actor, Act.PUBLISH_ATTRIBUTE, first.id)
    two.decide(two.ask(second))
    with pytest.raises(Clash, match="cardinality_changes"):
        two.draft(cardinality="multi")
    change = "UPDATE policies_attribute SET cardinality = 'multi' WHERE name = 'city'"
    assert refusal(two.drafter, change) == FROZEN


# what the doors refuse ------------------------------------------------------------------------------------------------


def test_nobody_decides_on_their_own_request(two: Two) -> None:
    with pytest.raises(Forbidden, match="own_request"):
        two.decide(two.asked(), by=two.drafter)


@pytest.mark.parametrize("role", [role for role in MemberRole if role is not MemberRole.APPROVER])
def test_another_role_does_not_decide(two: Two, role: MemberRole) -> None:
    request = two.asked()
    somebody = two.organisation.person(role)
    with pytest.raises(Forbidden, match="role_missing"):
        two.decide(request, by=somebody)
    assert decided_by_sql(two, request, somebody) == FORBIDDEN


def test_an_auditor_asks_for_nothing(two: Two) -> None:
    with pytest.raises(Forbidden, match="role_missing"):
        two.ask(two.draft(), by=two.organisation.person(MemberRole.AUDITOR))


def test_what_changed_since_it_was_shown_is_not_decided(two: Two) -> None:
    request = two.asked()
    with pytest.raises(Clash, match="changed_since_shown"):
        two.decide(request, shown=bytes(32))
    assert two.request(request).state == "pending"


def test_what_was_asked_on_another_base_is_not_put_in_force(two: Two) -> None:
    requests = [two.asked(), two.asked(description="another")]
    two.decide(requests[0])
    with pytest.raises(Clash, match="base_moved"):
        two.decide(requests[1])
    assert two.request(requests[1]).state == "pending"
    two.decide(requests[1], Answer.RETURN)


def test_one_question_about_one_thing_is_open_at_a_time(two: Two) -> None:
    version = two.draft()
    request = two.ask(version)
    with pytest.raises(Clash, match="already_asked"):
        two.ask(version, by=two.other)
    with acting(two.drafter) as actor, pytest.raises(Clash, match="already_asked"):
        publishing.discard(actor, Act.PUBLISH_ATTRIBUTE, version.id)
    with acting(two.other) as actor, pytest.raises(Forbidden, match="not_the_requester"):
        approvals.withdraw(actor, request.id, now=now())
    with acting(two.drafter) as actor:
        assert approvals.withdraw(actor, request.id, now=now()).state == "withdrawn"
    with pytest.raises(Clash, match="already_decided"):
        two.decide(request)
    two.ask(version, by=two.other)


def test_a_reason_goes_with_its_answer(two: Two) -> None:
    request = two.asked()
    for answer, reason in ((Answer.APPROVE, "too_wide"), (Answer.REFUSE, "checked"), (Answer.RETURN, "x")):
        with pytest.raises(Refused, match="decision_refused"):
            two.decide(request, answer, reason=reason)


def test_an_unused_question_lapses_and_is_not_decided_afterwards(two: Two) -> None:
    version = two.draft()
    with acting(two.drafter) as actor:
        wanted = approvals.Asked(
            Act.PUBLISH_ATTRIBUTE, "attributeversion", version.id, publishing.shown_digest(version)
        )
        request = approvals.ask(actor, wanted, reason="other", now=now(), lasts=timedelta(milliseconds=300))
    wait_past(two, request)
    with pytest.raises(Clash, match="request_expired"):
        two.decide(request)
    assert decided_by_sql(two, request, two.approver) == FROZEN
    # Asking anew puts the lapsed one away.
    two.ask(version)
    assert two.request(request).state == "expired"
    (entry,) = two.audited("approval.expired")
    assert entry.target_id == version.id


def wait_past(two: Two, request: Any) -> None:
    from django.db import connection

    with acting(two.other), connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_sleep(greatest(0, extract(epoch FROM %s - clock_timestamp())) + 0.01)", [request.expires_at]
        )


def test_an_approval_serves_once_for_exactly_what_was_approved(two: Two) -> None:
    officers = [two.organisation.person(MemberRole.PRIVACY_OFFICER) for _ in range(2)]
    subject, digest = uuid4(), bytes([7]) * 32
    request = two.ask_for(Act.ERASE_SUBJECT, subject, digest, by=officers[0])
    wanted = approvals.Asked(Act.ERASE_SUBJECT, "subject", subject, digest)
    with acting(officers[0]) as actor, pytest.raises(Clash, match="not_approved"):
        approvals.carry_out(actor, wanted)
    with pytest.raises(Missing):
        two.decide(request, by=officers[1])
    with acting(two.approver) as actor, pytest.raises(Forbidden, match="role_missing"):
        approvals.decide(actor, request.id, Answer.APPROVE, shown=digest, reason="other", now=now())
    with acting(officers[1]) as actor:
        approvals.decide(actor, request.id, Answer.APPROVE, shown=digest, reason="other", now=now())
    for other in (
        replace(wanted, digest=bytes(32)),
        replace(wanted, target=uuid4()),
        replace(wanted, act=Act.RELEASE_HOLD),
    ):
        with acting(officers[0]) as actor, pytest.raises(Clash, match="not_approved"):
            approvals.carry_out(actor, other)
    with acting(officers[0]) as actor:
        assert approvals.carry_out(actor, wanted).state == "done"
    with acting(officers[0]) as actor, pytest.raises(Clash, match="not_approved"):
        approvals.carry_out(actor, wanted)


@pytest.mark.parametrize("act", list(Act))
def test_every_act_has_one_role_that_decides_and_the_database_agrees(two: Two, act: Act) -> None:
    request = two.ask_for(act, uuid4(), bytes(32))
    for role in (MemberRole.APPROVER, MemberRole.PRIVACY_OFFICER):
        person = two.organisation.person(role)
        expected = None if role is act.decided_by else FORBIDDEN
        assert decided_by_sql(two, request, person) == expected, role


# handing a role on ----------------------------------------------------------------------------------------------------


def hand(two: Two, giver: Person, receiver: Person, *, starts: timedelta = timedelta(), days: int = 7) -> Any:
    with acting(giver) as actor:
        starts_at = now() + starts
        return approvals.delegate(
            actor,
            receiver.username,
            MemberRole.APPROVER,
            starts_at=starts_at,
            ends_at=starts_at + timedelta(days=days),
            now=now(),
        )


def test_a_role_that_was_handed_on_decides_until_it_is_ended(two: Two) -> None:
    reviewer = two.organisation.person(MemberRole.REVIEWER)
    handed = hand(two, two.other, reviewer)
    _, decision = two.decide(two.asked(), by=reviewer)
    assert decision.delegation_id == handed.id
    with acting(two.other) as actor:
        approvals.end_delegation(actor, handed.id, now=now())
    request = two.asked("town")
    with pytest.raises(Forbidden, match="role_missing"):
        two.decide(request, by=reviewer)
    assert decided_by_sql(two, request, reviewer) == FORBIDDEN
    assert [each.action for each in two.audited("delegation.given", "delegation.ended")] == [
        "delegation.given",
        "delegation.ended",
    ]


def test_what_the_requester_handed_on_does_not_decide_for_the_requester(two: Two) -> None:
    reviewer = two.organisation.person(MemberRole.REVIEWER)
    hand(two, two.drafter, reviewer)
    request = two.asked()
    with pytest.raises(Forbidden, match="role_missing"):
        two.decide(request, by=reviewer)
    assert decided_by_sql(two, request, reviewer) == FORBIDDEN
    two.decide(two.ask(two.draft("town", by=two.other), by=two.other), by=reviewer)


def test_a_delegation_that_is_still_to_come_decides_nothing_yet(two: Two) -> None:
    reviewer = two.organisation.person(MemberRole.REVIEWER)
    hand(two, two.other, reviewer, starts=timedelta(hours=1))
    request = two.asked()
    with pytest.raises(Forbidden, match="role_missing"):
        two.decide(request, by=reviewer)
    assert decided_by_sql(two, request, reviewer) == FORBIDDEN


def test_only_a_role_of_ones_own_is_handed_on_to_another_member_for_a_bounded_time(two: Two, other_tenant: Any) -> None:
    reviewer = two.organisation.person(MemberRole.REVIEWER)
    hand(two, two.other, reviewer)
    stranger = other_tenant.person(MemberRole.APPROVER)
    with pytest.raises(Forbidden, match="role_missing"):
        hand(two, reviewer, two.organisation.person(MemberRole.REVIEWER))
    for receiver, days in ((stranger, 7), (two.other, 7), (reviewer, 32), (reviewer, -1)):
        with pytest.raises(Refused, match="delegation_refused"):
            hand(two, two.other, receiver, days=days)
    give = (
        "INSERT INTO policies_delegation (tenant_id, id, role, given_by, given_to_id, starts_at, ends_at, created_at)"
        " VALUES (%s, %s, 'approver', %s, %s, now(), now() + %s::interval, now())"
    )

    def given(by: Person, to: Person, long: str = "1 day", named: Any = None) -> str | None:
        return refusal(by, give, two.organisation.id, uuid4(), named or by.actor.id, to.actor.id, long)

    assert given(two.other, reviewer) is None
    assert given(reviewer, two.organisation.person(MemberRole.REVIEWER)) == FORBIDDEN
    # The giver is whoever acts, whatever the row says.
    assert given(reviewer, two.drafter, named=two.other.actor.id) == FORBIDDEN
    assert given(two.other, stranger) == FORBIDDEN
    assert given(two.other, two.other) == CHECKED
    assert given(two.other, reviewer, "32 days") == CHECKED
    assert given(two.other, reviewer, "-1 day") == CHECKED


def test_a_delegation_changes_only_by_its_end(two: Two) -> None:
    reviewer = two.organisation.person(MemberRole.REVIEWER)
    handed = hand(two, two.other, reviewer)
    with acting(reviewer) as actor, pytest.raises(Missing):
        approvals.end_delegation(actor, handed.id, now=now())
    for change in ("ends_at = ends_at + interval '1 day'", "given_to_id = given_by", "role = 'privacy_officer'"):
        assert refusal(two.other, f"UPDATE policies_delegation SET {change}") == FORBIDDEN
    with acting(two.other) as actor:
        approvals.end_delegation(actor, handed.id, now=now())
    assert refusal(two.other, "UPDATE policies_delegation SET ended_at = NULL") == FROZEN


# the database, attacked -----------------------------------------------------------------------------------------------


def test_raw_sql_of_the_requester_approves_nothing_under_any_name(two: Two) -> None:
    request = two.asked()
    assert decided_by_sql(two, request, two.drafter) == CHECKED
    assert decided_by_sql(two, request, two.drafter, named=two.approver.actor.id) == CHECKED
    assert decided_by_sql(two, request, two.approver) is None


def test_rows_saved_past_the_door_approve_nothing_either(two: Two) -> None:
    request = two.asked()
    decision = Decision(
        tenant_id=two.organisation.id,
        request_id=request.id,
        requested_by=two.other.actor.id,
        digest=bytes(request.digest),
        verdict="approve",
        reason="other",
        decided_by=two.approver.actor.id,
        decided_at=now(),
    )
    with pytest.raises(IntegrityError), acting(two.drafter):
        decision.save(force_insert=True)
    request.state = "approved"
    with pytest.raises(IntegrityError), acting(two.drafter):
        request.save(update_fields=["state"])
    assert two.request(request).state == "pending"


def test_raw_sql_decides_nothing_but_what_was_asked(two: Two) -> None:
    request = two.asked()
    assert decided_by_sql(two, request, two.approver, digest=bytes(32)) == FOREIGN
    forged = replace_attributes(request, requested_by=two.other.actor.id)
    # Whoever asked is read from the request, whatever the row says.
    assert decided_by_sql(two, forged, two.approver) is None
    assert decided_by_sql(two, replace_attributes(request, id=uuid4()), two.approver) == FOREIGN


def replace_attributes(request: Any, **changes: Any) -> Any:
    from types import SimpleNamespace

    given = {name: getattr(request, name) for name in ("id", "requested_by", "digest")}
    return SimpleNamespace(**{**given, **changes})


def test_a_second_decision_is_refused_whoever_gives_it(two: Two) -> None:
    request = two.asked()
    two.decide(request, Answer.REFUSE)
    for person in (two.approver, two.other):
        assert decided_by_sql(two, request, person) in (UNIQUE, FROZEN)


def test_a_request_moves_one_way_and_by_a_decision(two: Two) -> None:
    request = two.asked()
    for state in ("approved", "refused", "returned", "done", "expired"):
        for person in (two.drafter, two.approver):
            move = "UPDATE policies_decisionrequest SET state = %s WHERE id = %s"
            assert refusal(person, move, state, request.id) in (FROZEN, CHECKED), state
    assert refusal(two.approver, "UPDATE policies_decisionrequest SET state = 'withdrawn'") == FROZEN
    # A decision alone, which leaves its request open, fails at the commit.
    given = (two.organisation.id, uuid4(), request.id, request.requested_by, bytes(request.digest), "approve", uuid4())
    assert refusal(two.approver, DECIDE, *given) == FROZEN
    two.decide(request, Answer.REFUSE)
    for state in ("pending", "approved", "returned", "withdrawn", "expired", "done"):
        move = "UPDATE policies_decisionrequest SET state = %s WHERE id = %s"
        assert refusal(two.drafter, move, state, request.id) in (FROZEN, CHECKED), state


@pytest.mark.parametrize(
    "change",
    ["digest = '\\x00'", "target_id = gen_random_uuid()", "act = 'policy.publish'", "requested_by = gen_random_uuid()",
     "expires_at = expires_at + interval '1 day'", "reason = 'x'", "requested_at = now()"],
)  # fmt: skip
def test_nothing_else_of_a_request_changes_for_staff_nor_for_a_superuser(two: Two, superuser: Any, change: str) -> None:
    request = two.asked()
    statement = f"UPDATE policies_decisionrequest SET {change}"
    assert refusal(two.drafter, statement) == FORBIDDEN
    with pytest.raises(Exception, match="a request does not change"):
        superuser.execute(f"{statement} WHERE id = %s", [request.id])


def test_a_decision_never_changes_and_nothing_of_it_is_removed(two: Two, superuser: Any) -> None:
    request = two.asked()
    two.decide(request)
    for table in ("policies_decision", "policies_decisionrequest", "policies_delegation"):
        for statement in (f"DELETE FROM {table}", f"TRUNCATE {table} CASCADE"):
            assert refusal(two.approver, statement) == FORBIDDEN
    assert refusal(two.approver, "UPDATE policies_decision SET verdict = 'refuse'") == FORBIDDEN
    for statement in ("UPDATE policies_decision SET verdict = 'refuse'", "DELETE FROM policies_decision"):
        with pytest.raises(Exception, match="policies_decision is refused"):
            superuser.execute(f"{statement} WHERE request_id = %s", [request.id])


def test_who_and_when_come_from_the_transaction_whatever_the_row_says(two: Two) -> None:
    from django.db import connection

    statement = (
        "INSERT INTO policies_decisionrequest (tenant_id, id, act, target_kind, target_id, digest, reason, state,"
        " requested_by, requested_at, expires_at) VALUES (%s, %s, 'hold.release', 'matter', %s, %s, 'other', 'approved', %s,"
        " '2020-01-01Z', now() + interval '1 day') RETURNING requested_by, state, requested_at > now() - interval '1 hour'"
    )
    given: list[Any] = [two.organisation.id, uuid4(), uuid4(), bytes(32), two.other.actor.id]
    with acting(two.drafter), connection.cursor() as cursor:
        cursor.execute(statement, given)
        assert cursor.fetchone() == (two.drafter.actor.id, "pending", True)
    assert refusal(None, statement, *given, tenant=two.organisation.id) == EMPTY


def test_a_superuser_without_membership_neither_asks_nor_decides(two: Two, other_tenant: Any, owner: Any) -> None:
    request = two.asked()
    stranger = other_tenant.person(*MemberRole)
    owner.execute("UPDATE tenants_user SET is_superuser = true WHERE id = %s", [stranger.actor.id])
    here = replace(stranger.actor, tenant=two.organisation.id)
    with pytest.raises(Forbidden, match="role_missing"), acting(here) as actor:
        publishing.decide(actor, request.id, Answer.APPROVE, shown=bytes(request.digest), reason="other", now=now())
    assert decided_by_sql(two, request, Person(here, "", "")) == FORBIDDEN
    with pytest.raises(Forbidden, match="role_missing"), acting(here) as actor:
        publishing.ask(actor, Act.PUBLISH_ATTRIBUTE, two_draft().id, reason="other", now=now())


def two_draft() -> AttributeVersion:
    with_draft: AttributeVersion = AttributeVersion.objects.filter(state="draft").first()  # type: ignore[assignment]
    return with_draft


def test_an_agent_neither_asks_nor_decides(two: Two) -> None:
    request = two.asked()
    agent = two.organisation.agent("a").actor
    assert agent.kind is ActorKind.AGENT
    with pytest.raises(Forbidden), acting(agent) as actor:
        publishing.decide(actor, request.id, Answer.APPROVE, shown=bytes(request.digest), reason="other", now=now())
    assert decided_by_sql(two, request, Person(agent, "", "")) == FORBIDDEN
    with (
        pytest.raises(Exception, match="permission denied"),
        tenant_transaction(Role.WRITER, tenant=agent.tenant, actor=agent.id),
    ):
        Decision.objects.count()


def test_raw_sql_of_a_person_puts_no_version_in_force_without_an_approval(two: Two) -> None:
    version = two.draft()
    force = "UPDATE policies_attributeversion SET state = 'active' WHERE id = %s"
    for person in (two.drafter, two.approver):
        assert refusal(person, force, version.id) == FROZEN
    request = two.ask(version)
    assert refusal(two.approver, force, version.id) == FROZEN
    two.decide(request, Answer.REFUSE)
    assert refusal(two.approver, force, version.id) == FROZEN
    copy = (
        "INSERT INTO policies_attributeversion (tenant_id, id, attribute_id, number, definition, digest, state, created_at)"
        " SELECT tenant_id, %s, attribute_id, 99, definition, digest, 'active', created_at FROM policies_attributeversion"
        " WHERE id = %s"
    )
    assert refusal(two.approver, copy, uuid4(), version.id) == FROZEN
    policy = two.draft_policy(review_after="P3Y")
    force = (
        "WITH former AS (UPDATE policies_policyversion SET state = 'retired' WHERE state = 'active')"
        " UPDATE policies_policyversion SET state = 'active' WHERE id = %s"
    )
    assert refusal(two.approver, force, policy.id) in (FROZEN, UNIQUE)


def test_a_used_approval_puts_nothing_in_force_again(two: Two) -> None:
    first = two.draft()
    two.decide(two.ask(first))
    two.decide(two.asked(description="second"))
    assert (
        refusal(two.approver, "UPDATE policies_attributeversion SET state = 'active' WHERE id = %s", first.id) == FROZEN
    )


def test_nothing_of_it_is_seen_in_another_tenant(two: Two, other_tenant: Any) -> None:
    request = two.asked()
    stranger = other_tenant.person(MemberRole.APPROVER)
    with pytest.raises(Missing), acting(stranger) as actor:
        publishing.decide(actor, request.id, Answer.APPROVE, shown=bytes(request.digest), reason="other", now=now())
    with acting(stranger):
        assert not DecisionRequest.objects.exists()


# at once --------------------------------------------------------------------------------------------------------------


def test_two_approvals_at_once_are_one_decision_and_both_see_it_C144(two: Two) -> None:
    for number in range(4):
        version = two.draft(f"attribute_{number}")
        request = two.ask(version)

        def tried(answer: Answer, by: Person, request: Any = request) -> str:
            try:
                two.decide(request, answer, by=by)
            except Problem as problem:
                return problem.code
            return answer.value

        answers = (Answer.APPROVE, Answer.APPROVE if number % 2 else Answer.REFUSE)
        outcomes = at_once([partial(tried, *pair) for pair in zip(answers, (two.approver, two.other), strict=True)])
        (decided,) = [each for each in outcomes if each != "already_decided"]
        assert len(outcomes) == 2
        with acting(two.other):
            (decision,) = Decision.objects.filter(request_id=request.id)
        assert decision.verdict == decided
        assert two.request(request).state == ("done" if decided == "approve" else "refused")
        assert two.state(version) == ("active" if decided == "approve" else "draft")


def test_two_who_ask_at_once_make_one_question(two: Two) -> None:
    version = two.draft()

    def tried(by: Person) -> str:
        try:
            two.ask(version, by=by)
        except Problem as problem:
            return problem.code
        return "asked"

    assert sorted(at_once([partial(tried, person) for person in (two.drafter, two.other)])) == [
        "already_asked",
        "asked",
    ]
