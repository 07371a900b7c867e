"""Nobody releases a hold or erases a subject alone: tried by API, by pages, by the mapper and by raw SQL as every role."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import DatabaseError

from policies import approvals
from policies.approvals import Answer
from policies.models import Decision, DecisionRequest
from retention import erasing, matters
from retention.matters import Target
from retention.models import Hold
from tenants.actors import MemberRole
from tenants.errors import Problem
from tenants.isolation import Role
from tests.memory.doors import Doors
from tests.organisation import Person
from tests.paths.ledger import Ledger, description
from tests.policies.two_people import CHECKED, FORBIDDEN, FROZEN, acting, refused
from tests.retention.legal import Officers
from tests.retention.test_matters import by_role

pytestmark = pytest.mark.usefixtures("database")


def now() -> datetime:
    return datetime.now(UTC)


@dataclass
class Asked:
    """What one privacy officer asks for and another has to approve: the question, and how it would be carried out raw."""

    officers: Officers
    doors: Doors
    question: UUID
    digest: bytes
    carry_out: str
    target: UUID
    decide: Callable[[Person], Any]
    untouched: Callable[[], bool]


def a_release(tenant: Any) -> Asked:
    officers, doors = Officers(tenant), Doors(tenant)
    hold = officers.place(Target(session_id="s"))
    asked = officers.ask(hold)

    def untouched() -> bool:
        with acting(officers.first):
            return Hold.objects.get(id=hold).state == "active"

    statement = "UPDATE retention_hold SET state = 'released' WHERE id = %s"
    decide: Callable[[Person], Any] = lambda person: officers.decide(asked, by=person)  # noqa: E731
    return Asked(officers, doors, asked.id, bytes(asked.digest), statement, hold, decide, untouched)


def an_erasure(tenant: Any) -> Asked:
    officers, doors = Officers(tenant), Doors(tenant)
    doors.say("city", "Oslo")
    mira = doors.name("mira").id
    with acting(officers.first) as actor:
        erasure = erasing.ask(actor, mira, reason="no_longer_needed", now=now())
        question = DecisionRequest.objects.get(target_id=mira, state="pending")

    def decide(person: Person) -> Any:
        with acting(person) as actor:
            return erasing.decide(actor, erasure.id, Answer.APPROVE, shown=erasure.digest, reason="checked", now=now())

    statement = "UPDATE retention_erasure SET state = 'running', approved_at = now(), approved_by = gen_random_uuid() WHERE id = %s"
    return Asked(
        officers,
        doors,
        question.id,
        bytes(question.digest),
        statement,
        erasure.id,
        decide,
        lambda: doors.values("city") == ["Oslo"],
    )


@pytest.fixture(params=[a_release, an_erasure], ids=["release", "erasure"])
def asked(request: Any, tenant: Any) -> Asked:
    found: Asked = request.param(tenant)
    return found


def code(act: Callable[[], Any]) -> str | None:
    try:
        act()
    except Problem as problem:
        return problem.code
    return None


def test_by_the_doors_another_privacy_officer_alone_approves(asked: Asked) -> None:
    office = asked.officers
    assert code(lambda: asked.decide(office.first)) == "own_request"
    for person in (office.reviewer, office.approver):
        assert code(lambda person=person: asked.decide(person)) == "role_missing"  # type: ignore[misc]
    assert asked.untouched()


def test_by_the_api_no_key_approves_anything(asked: Asked, tenant: Any) -> None:
    # A key with every scope, in the hand of whoever asked.
    key = Ledger(tenant.agent())
    for path, methods in description()["paths"].items():
        for method, operation in methods.items():
            if any(word in path + operation["operationId"] for word in ("decide", "approve")):
                pytest.fail(f"{method} {path} lets a program decide")
    if asked.carry_out.startswith("UPDATE retention_hold"):
        for _ in range(2):
            answer = key.post(f"/holds/{asked.target}/release/", {})
            assert (answer.status_code, answer.json()["state"], answer.json()["release"]) == (202, "active", "asked")
    assert asked.untouched()


def test_by_the_pages_neither_the_requester_nor_a_superuser_nor_another_role_approves(asked: Asked) -> None:
    from tests.paths.test_admin_matrix import superuser_outside_every_tenant

    office = asked.officers
    sent = {"answer": "approve", "shown": asked.digest.hex(), "reason": "checked"}
    pages = [f"/admin/policies/decisionrequest/{asked.question}/decide/"]
    if asked.carry_out.startswith("UPDATE retention_hold"):
        pages.append(f"/admin/retention/hold/{asked.target}/decide/")
    clients = [each.signed_in() for each in (office.first, office.reviewer, office.approver)]
    for client in (*clients, superuser_outside_every_tenant()):
        for page in pages:
            assert client.post(page, sent).status_code in (403, 404), page
    assert asked.untouched()


def test_by_the_mapper_the_database_says_no(asked: Asked) -> None:
    first = asked.officers.first
    attempts: list[Callable[[], Any]] = [
        lambda: DecisionRequest.objects.filter(id=asked.question).update(state="approved"),
        lambda: DecisionRequest.objects.filter(id=asked.question).update(state="done"),
        lambda: DecisionRequest.objects.filter(id=asked.question).update(requested_by=asked.officers.second.actor.id),
        lambda: DecisionRequest.objects.filter(id=asked.question).delete(),
        lambda: Hold.objects.filter(tenant_id=first.actor.tenant).update(state="released"),
        lambda: Hold.objects.filter(tenant_id=first.actor.tenant).delete(),
        lambda: Decision(
            tenant_id=first.actor.tenant,
            request_id=asked.question,
            requested_by=uuid4(),
            digest=asked.digest,
            verdict="approve",
            reason="checked",
            decided_by=asked.officers.second.actor.id,
            decided_at=now(),
        ).save(force_insert=True),
    ]
    for place, attempt in enumerate(attempts):
        touched: Any = None
        try:
            with acting(first):
                touched = attempt()
        except DatabaseError:
            continue
        # Only where there is no such row is nothing refused.
        assert touched in (0, (0, {})), place
    assert asked.untouched()


@pytest.mark.parametrize("role", list(Role))
def test_by_raw_sql_as_any_role_nothing_is_approved_or_carried_out(asked: Asked, login: Any, role: Role) -> None:
    office = asked.officers
    decide = (
        "INSERT INTO policies_decision (tenant_id, id, request_id, requested_by, digest, verdict, reason, decided_by, decided_at)"
        " SELECT tenant_id, %s, id, %s, digest, 'approve', 'other', %s, now() FROM policies_decisionrequest WHERE id = %s"
    )
    for who in (office.first, office.reviewer, office.approver):
        for statement, parameters in (
            (decide, (uuid4(), uuid4(), office.second.actor.id, asked.question)),
            ("UPDATE policies_decisionrequest SET state = 'approved' WHERE id = %s", (asked.question,)),
            ("DELETE FROM policies_decisionrequest WHERE id = %s", (asked.question,)),
            ("UPDATE policies_decisionrequest SET requested_by = gen_random_uuid() WHERE id = %s", (asked.question,)),
            (asked.carry_out, (asked.target,)),
        ):
            found = by_role(login, role, who.actor, statement, *parameters)
            assert found in (FORBIDDEN, FROZEN, CHECKED), (who, statement, found)
    assert asked.untouched()


def test_what_one_handed_to_a_colleague_does_not_come_back_as_the_second_eye(asked: Asked) -> None:
    office = asked.officers
    with acting(office.first) as actor:
        begins = now()
        approvals.delegate(
            actor, office.reviewer.username, MemberRole.PRIVACY_OFFICER, starts_at=begins,
            ends_at=begins.replace(year=begins.year + (begins.month == 12), month=begins.month % 12 + 1, day=1), now=begins,
        )  # fmt: skip
    assert code(lambda: asked.decide(office.reviewer)) == "role_missing"
    assert asked.untouched()


def test_two_statements_of_one_transaction_are_still_one_person(asked: Asked) -> None:
    decide = (
        "INSERT INTO policies_decision (tenant_id, id, request_id, requested_by, digest, verdict, reason, decided_by, decided_at)"
        " SELECT tenant_id, %s, id, requested_by, digest, 'approve', 'other', %s, now() FROM policies_decisionrequest WHERE id = %s",
        (uuid4(), asked.officers.second.actor.id, asked.question),
    )
    approve = ("UPDATE policies_decisionrequest SET state = 'approved' WHERE id = %s", (asked.question,))
    assert refused(asked.officers.first, decide, approve, (asked.carry_out, (asked.target,))) == CHECKED
    assert asked.untouched()


def test_a_question_that_another_answered_is_carried_out_and_only_then(asked: Asked) -> None:
    asked.decide(asked.officers.second)
    with acting(asked.officers.first):
        assert DecisionRequest.objects.get(id=asked.question).state == "done"


def test_an_approval_of_another_hold_releases_nothing(tenant: Any) -> None:
    officers = Officers(tenant)
    one, other = (officers.place(Target(session_id=each)) for each in ("s", "t"))
    question = officers.ask(one)
    with acting(officers.second) as actor:
        approvals.decide(actor, question.id, Answer.APPROVE, shown=bytes(question.digest), reason="other", now=now())
    statement = ("UPDATE retention_hold SET state = 'released' WHERE id = %s", (other,))
    assert refused(officers.second, statement) == FROZEN
    with acting(officers.second) as actor:
        assert matters.covered(actor.tenant, [Target(session_id="s")])["fact"] == 0
