"""Requests of data subjects: when they are due, who works on them, which way they move; by the doors, pages and raw SQL."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import connection

from retention import requests
from retention.models import SubjectRequest
from retention.requests import Kind
from tenants.actors import MemberRole
from tenants.errors import Clash, Forbidden, Missing, Refused
from tenants.isolation import Role, tenant_transaction
from tests.memory.background import publish, say
from tests.policies.two_people import CHECKED, FROZEN, acting, now, refusal

pytestmark = pytest.mark.usefixtures("database")
DAY = timedelta(days=1)


class Desk:
    """A tenant with a reviewer, a privacy officer and somebody who is neither."""

    def __init__(self, organisation: Any) -> None:
        self.id = organisation.id
        self.organisation = organisation
        self.reviewer = organisation.person(MemberRole.REVIEWER)
        self.officer = organisation.person(MemberRole.PRIVACY_OFFICER)
        self.admin = organisation.person(MemberRole.TENANT_ADMIN)

    def lodge(self, kind: Kind = Kind.ACCESS, subject: str = "mira", by: Any = None, **given: Any) -> SubjectRequest:
        with acting(by or self.reviewer) as actor:
            return requests.lodge(actor, kind, subject, **{"now": now(), **given})[0]

    def does(self, door: Any, request: SubjectRequest, *given: Any, by: Any = None, at: datetime | None = None) -> Any:
        with acting(by or self.officer) as actor:
            return door(actor, request.id, *given, now=at or now())

    def queue(self, at: datetime | None = None) -> list[requests.Waiting]:
        with acting(self.reviewer):
            return requests.queue(self.id, now=at or now())

    def identified(self, **given: Any) -> SubjectRequest:
        request = self.lodge(**given)
        self.does(requests.confirm_identity, request, "account", by=self.reviewer)
        return request


@pytest.fixture
def desk(tenant: Any) -> Desk:
    return Desk(tenant)


def test_a_request_is_due_a_month_after_its_receipt_and_the_queue_says_what_is_left(desk: Desk, agent: Any) -> None:
    publish(desk.organisation)
    say(agent, "mira", "city", "Lisbon")
    late = desk.lodge(received_at=now() - 40 * DAY)
    soon = desk.lodge(Kind.ERASURE, received_at=now() - 25 * DAY)
    fresh = desk.lodge(Kind.ACCESS, "nobody we know")
    found = desk.queue()
    assert [each.id for each in found] == [late.id, soon.id, fresh.id]
    assert [each.overdue for each in found] == [True, False, False]
    assert found[0].days_left < 0 <= found[1].days_left < 7 < found[2].days_left
    assert (late.subject_id is None, fresh.subject_id) == (False, None)
    with acting(desk.reviewer):
        assert requests.figures(desk.id, now=now()) == requests.Figures(open=3, overdue=1, due_soon=1)


def test_who_asks_the_same_again_joins_what_is_open_and_keeps_its_date(desk: Desk) -> None:
    first = desk.lodge(received_at=now() - 5 * DAY)
    again = desk.lodge()
    other = desk.lodge(Kind.ERASURE)
    assert (again.id, again.due_at, again.repeats) == (first.id, first.due_at, 1)
    assert other.id != first.id
    desk.does(requests.withdraw, first)
    assert desk.lodge().id != first.id


def test_of_two_who_enter_it_at_once_one_does(desk: Desk) -> None:
    with ThreadPoolExecutor(2) as pool:
        ids = {each.id for each in pool.map(lambda _: desk.lodge(), range(2))}
    assert len(ids) == 1


def test_nothing_is_done_for_whom_nobody_knows_to_be_the_subject(desk: Desk) -> None:
    request = desk.lodge()
    with pytest.raises(Clash, match="identity_not_confirmed"):
        desk.does(requests.complete, request, "nothing_held")
    desk.does(requests.fail_identity, request, "account", by=desk.reviewer)
    found = desk.does(requests.confirm_identity, request, "call_back", by=desk.reviewer)
    assert (found.identity, found.identity_method, found.state) == ("confirmed", "call_back", "in_progress")
    with pytest.raises(Clash, match="identity_confirmed"):
        desk.does(requests.fail_identity, request, "account")
    assert desk.does(requests.complete, request, "nothing_held").outcome == "nothing_held"


def test_what_is_said_to_be_done_led_to_something(desk: Desk) -> None:
    request = desk.identified()
    with pytest.raises(Clash, match="led_to_nothing"):
        desk.does(requests.complete, request, "done")
    with acting(desk.officer) as actor:
        requests.link(actor, request.id, "access_export", uuid4())
    assert desk.does(requests.complete, request, "done").state == "completed"


def test_it_is_extended_once_within_the_first_month_by_two_more(desk: Desk) -> None:
    received = datetime(2026, 1, 31, 12, tzinfo=UTC)
    at = received + 10 * DAY
    request = desk.lodge(received_at=received, now=at)
    assert request.due_at == datetime(2026, 3, 1, tzinfo=UTC)
    with pytest.raises(Refused):
        desk.does(requests.extend, request, "we forgot", at=at)
    found = desk.does(requests.extend, request, "complex", at=at)
    assert requests.effective_due(found) == datetime(2026, 5, 1, tzinfo=UTC)
    with pytest.raises(Clash, match="extended_already"):
        desk.does(requests.extend, request, "complex", at=at)
    late = desk.lodge(Kind.ERASURE, received_at=received, now=at)
    with pytest.raises(Clash, match="extension_too_late"):
        desk.does(requests.extend, late, "complex", at=late.due_at)


def test_a_refusal_names_its_ground_and_a_privacy_officer(desk: Desk) -> None:
    request = desk.lodge()
    with pytest.raises(Forbidden, match="role_missing"):
        desk.does(requests.refuse, request, "excessive", by=desk.reviewer)
    with pytest.raises(Refused):
        desk.does(requests.refuse, request, "because")
    assert desk.does(requests.refuse, request, "excessive").refusal_ground == "excessive"
    with pytest.raises(Clash, match="subject_request_closed"):
        desk.does(requests.withdraw, request)


def test_whoever_is_neither_reviewer_nor_privacy_officer_may_do_nothing(desk: Desk) -> None:
    with pytest.raises(Forbidden):
        desk.lodge(by=desk.admin)
    request = desk.lodge()
    for door, given in (
        (requests.confirm_identity, "account"),
        (requests.extend, "complex"),
        (requests.refuse, "excessive"),
    ):
        with pytest.raises(Forbidden):
            desk.does(door, request, given, by=desk.admin)


def test_another_tenants_request_is_not_there(desk: Desk, other_tenant: Any) -> None:
    request, elsewhere = desk.lodge(), Desk(other_tenant)
    with pytest.raises(Missing):
        elsewhere.does(requests.withdraw, request)
    assert elsewhere.queue() == []


def test_a_receipt_lies_neither_ahead_nor_years_back(desk: Desk) -> None:
    for received in (now() + DAY, now() - 400 * DAY):
        with pytest.raises(Refused):
            desk.lodge(received_at=received)


def test_the_database_lets_a_request_move_one_way_whoever_asks(desk: Desk) -> None:
    request = desk.identified()
    change = "UPDATE retention_subjectrequest SET {} WHERE id = %s"
    by = desk.officer
    for what, code in (
        ("state = 'received'", FROZEN),
        ("due_at = due_at + interval '1 day'", "42501"),
        ("identity = 'unchecked', identity_method = NULL, identity_at = NULL, identity_by = NULL", FROZEN),
        ("state = 'completed'", CHECKED),
        ("state = 'refused', closed_at = now(), closed_by = id", CHECKED),
        ("extended_at = now(), extended_to = due_at + interval '100 days', extension_reason = 'complex'", CHECKED),
        ("repeats = -1", FROZEN),
    ):
        assert refusal(by, change.format(what), request.id) == code, what
    desk.does(requests.withdraw, request)
    assert refusal(by, change.format("state = 'in_progress', closed_at = NULL, closed_by = NULL"), request.id) == FROZEN
    assert refusal(by, "DELETE FROM retention_subjectrequest WHERE id = %s", request.id) == "42501"


def test_every_act_is_in_the_chain_without_a_word_of_what_was_asked(desk: Desk) -> None:
    request = desk.identified(subject="mira canary", reference="ticket-7")
    desk.does(requests.extend, request, "complex")
    desk.does(requests.refuse, request, "excessive")
    with acting(desk.officer) as actor, connection.cursor() as cursor:
        cursor.execute(
            "SELECT action, reason FROM tenants_auditevent WHERE chain = %s AND target_id = %s ORDER BY seq",
            [actor.tenant, request.id],
        )
        assert cursor.fetchall() == [
            ("subject_request.lodged", "access"),
            ("subject_request.identified", "account"),
            ("subject_request.extended", "complex"),
            ("subject_request.closed", "excessive"),
        ]


# pages ----------------------------------------------------------------------------------------------------------------


@contextmanager
def looking(desk: Desk) -> Any:
    with tenant_transaction(Role.STAFF, tenant=desk.id):
        yield


def newest(desk: Desk) -> SubjectRequest:
    with looking(desk):
        return SubjectRequest.objects.filter(tenant_id=desk.id).order_by("-id")[0]


def test_a_request_is_entered_worked_on_and_closed_by_pages(desk: Desk) -> None:
    reviewer, officer = desk.reviewer.signed_in(), desk.officer.signed_in()
    page = "/admin/retention/subjectrequest/"
    assert "Enter a request" in reviewer.get(page).content.decode()
    sent = {"kind": "access", "subject": "mira canary", "received_at": "", "reference": "ticket-7"}
    answer = reviewer.post(f"{page}lodge/", sent)
    assert answer.status_code == 302, answer.content
    request = newest(desk)
    here = f"{page}{request.id}/"
    shown = reviewer.get(f"{here}change/").content.decode()
    assert "days left" in shown
    assert "canary" not in shown
    assert ">Refuse</button>" not in shown
    assert reviewer.post(f"{here}identity/", {"method": "account"}).status_code == 302
    assert reviewer.post(f"{here}extend/", {"reason": "complex"}).status_code == 302
    assert reviewer.post(f"{here}complete/", {"outcome": "nothing_held"}).status_code == 403
    assert officer.post(f"{here}complete/", {"outcome": "done"}).status_code == 409
    assert officer.post(f"{here}complete/", {"outcome": "nothing_held"}).status_code == 302
    assert newest(desk).state == "completed"


def test_what_is_entered_badly_is_said_and_not_repeated(desk: Desk) -> None:
    client = desk.reviewer.signed_in()
    for sent in (
        {"kind": "curiosity", "subject": "mira"},
        {"kind": "access", "subject": ""},
        {"kind": "access", "subject": "mira", "received_at": "2999-01-01T00:00"},
        {"kind": "access", "subject": "mira", "reference": "mira@example.org"},
    ):
        answer = client.post("/admin/retention/subjectrequest/lodge/", sent)
        assert answer.status_code == 400, sent
        assert "mira@example.org" not in answer.content.decode()


@pytest.mark.parametrize("role", list(MemberRole))
def test_acts_are_open_to_their_roles_and_to_POST_alone(desk: Desk, role: MemberRole) -> None:
    request: UUID = desk.lodge().id
    client = desk.organisation.person(role).signed_in()
    handles = role in (MemberRole.REVIEWER, MemberRole.PRIVACY_OFFICER)
    here = f"/admin/retention/subjectrequest/{request}/"
    for act in ("identity", "fail", "extend", "complete", "refuse", "withdraw"):
        for method in ("GET", "PUT", "PATCH", "DELETE"):
            assert client.generic(method, f"{here}{act}/").status_code == 405, act
        if not handles:
            assert client.post(f"{here}{act}/", {}).status_code == 403, act
    assert client.get("/admin/retention/subjectrequest/lodge/").status_code == (200 if handles else 403)


def test_what_was_corrected_elsewhere_is_recorded_and_closes_the_request(desk: Desk, agent: Any) -> None:
    publish(desk.organisation)
    said = say(agent, "mira", "city", "Porto")
    request = desk.identified(kind=Kind.RECTIFICATION)
    here = f"/admin/retention/subjectrequest/{request.id}/"
    officer = desk.officer.signed_in()
    for kind, target in (("evidence", uuid4()), ("evidence", "x"), ("odd", said.evidence)):
        assert officer.post(f"{here}led/", {"kind": kind, "id": str(target)}).status_code == 404
    assert officer.post(f"{here}led/", {"kind": "evidence", "id": str(said.evidence)}).status_code == 302
    assert officer.post(f"{here}complete/", {"outcome": "done"}).status_code == 302
