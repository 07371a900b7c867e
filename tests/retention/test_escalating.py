"""What is owed to data subjects and comes near its day is told once, to whom it belongs, where they look."""

from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any

import pytest
from django.db import Error

from config.celery import PERIODIC
from memory import rows
from retention import escalating, overview, requests
from retention.desk.listed import Requests
from retention.requests import Kind
from tenants.actors import MemberRole
from tenants.isolation import Role, tenant_transaction
from tests.policies.two_people import acting, now
from tests.retention.test_requests import DAY, Desk

pytestmark = pytest.mark.usefixtures("database")


@pytest.fixture
def desk(tenant: Any) -> Desk:
    return Desk(tenant)


def told(desk: Desk, request: Any) -> str | None:
    with acting(desk.reviewer):
        return escalating.told_of(desk.id, [request.id]).get(request.id)


def entries(superuser: Any, desk: Desk) -> list[str]:
    found = superuser.execute(
        "SELECT reason, actor_kind FROM tenants_auditevent WHERE chain = %s AND action = 'subject_request.escalated' ORDER BY seq",
        [desk.id],
    ).fetchall()
    assert {kind for _, kind in found} <= {"job"}
    return [reason for reason, _ in found]


def alerts(desk: Desk, role: MemberRole) -> list[tuple[str, Any]]:
    with tenant_transaction(Role.STAFF, tenant=desk.id):
        page = overview.overview(desk.id, now=now(), lists=frozenset(), roles={role})
    return [(each.tone, each.number) for each in page.alerts]


def test_a_week_before_its_day_the_officers_are_told_and_from_the_day_on_the_admins(desk: Desk, superuser: Any) -> None:
    request = desk.lodge()
    due = request.due_at
    assert escalating.escalate(desk.id, now=due - 8 * DAY) == 0
    assert (told(desk, request), entries(superuser, desk)) == (None, [])
    assert escalating.escalate(desk.id, now=due - 7 * DAY) == 1
    assert told(desk, request) == "privacy_officer"
    assert escalating.escalate(desk.id, now=due) == 1
    assert told(desk, request) == "tenant_admin"
    assert entries(superuser, desk) == ["due_soon", "overdue"]


def test_it_is_told_once_however_often_and_by_however_many_it_is_looked_for(desk: Desk, superuser: Any) -> None:
    for kind in Kind:
        desk.lodge(kind, received_at=now() - 40 * DAY)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: escalating.escalate(desk.id, now=now()), range(4)))
    while escalating.escalate(desk.id, now=now()):
        pass
    assert entries(superuser, desk) == ["overdue"] * len(Kind)


def test_what_was_extended_is_told_of_anew_when_its_new_day_comes_near(desk: Desk, superuser: Any) -> None:
    request = desk.lodge()
    near = request.due_at - DAY
    escalating.escalate(desk.id, now=near)
    extended = desk.does(requests.extend, request, "complex", at=near)
    assert told(desk, request) is None
    assert escalating.escalate(desk.id, now=near) == 0
    escalating.escalate(desk.id, now=requests.effective_due(extended) - DAY)
    assert told(desk, request) == "privacy_officer"
    assert entries(superuser, desk) == ["due_soon", "due_soon"]


def test_what_is_closed_is_told_of_no_more(desk: Desk) -> None:
    request = desk.lodge(received_at=now() - 40 * DAY)
    desk.does(requests.refuse, request, "excessive")
    assert escalating.escalate(desk.id, now=now()) == 0


def test_whoever_was_told_sees_it_first_on_their_page_and_nobody_else(desk: Desk) -> None:
    desk.lodge(received_at=now() - 40 * DAY)
    desk.lodge(Kind.ERASURE, received_at=now() - 26 * DAY)
    assert alerts(desk, MemberRole.PRIVACY_OFFICER) == []
    escalating.escalate(desk.id, now=now())
    assert alerts(desk, MemberRole.PRIVACY_OFFICER) == [("bad", 1), ("warn", 1)]
    assert alerts(desk, MemberRole.TENANT_ADMIN) == [("bad", 1)]
    assert alerts(desk, MemberRole.REVIEWER) == []
    seen = desk.admin.signed_in().get("/admin/").content.decode()
    assert "Requests past their day" in seen
    assert "Requests near their day" not in seen


def test_the_queue_and_the_page_say_who_was_told(desk: Desk) -> None:
    request = desk.lodge(received_at=now() - 40 * DAY)
    escalating.escalate(desk.id, now=now())
    assert [each.escalated_to for each in desk.queue()] == ["tenant_admin"]
    with acting(desk.officer):
        (row,) = Requests().page(desk.id, None)
    assert "escalated: tenant admin" in " ".join(row.words)
    page = desk.officer.signed_in().get(f"/admin/retention/subjectrequest/{request.id}/change/").content.decode()
    assert "Told of its day" in page


def test_a_row_of_it_is_true_and_never_changes(desk: Desk, superuser: Any) -> None:
    request = desk.lodge(received_at=now() - 40 * DAY)
    escalating.escalate(desk.id, now=now())

    def refused(statement: str, *given: Any) -> str:
        with pytest.raises(Error) as caught, tenant_transaction(Role.STAFF, tenant=desk.id):
            rows.execute(statement, list(given))
        return str(getattr(caught.value.__cause__, "sqlstate", ""))

    laid = (
        "INSERT INTO retention_escalation (tenant_id, id, request_id, level, told, due_at, at)"
        " VALUES (%s::uuid, gen_random_uuid(), %s::uuid, %s, %s, %s::timestamptz, %s::timestamptz)"
    )
    late: datetime = request.due_at
    assert refused(laid, desk.id, request.id, "overdue", "reviewer", late, late) == "23514"
    assert refused(laid, desk.id, request.id, "overdue", "tenant_admin", late, late - DAY) == "23514"
    assert refused(laid, desk.id, desk.id, "overdue", "tenant_admin", late, late) == "23503"
    assert refused("UPDATE retention_escalation SET told = told") == "42501"
    assert refused("DELETE FROM retention_escalation") == "42501"


def test_beat_asks_for_it() -> None:
    assert PERIODIC["retention.escalate_requests"] <= 3_600
