"""The pages of erasures, suppressions and notices, as two privacy officers use them."""

import re
from typing import Any
from uuid import UUID

import pytest

from retention import erasing
from tenants.actors import MemberRole
from tenants.isolation import Role, tenant_transaction
from tests.retention.test_erasing import Office, furnish


@pytest.fixture
def office(database: Any) -> Office:
    return Office()


def field(page: str, name: str) -> str:
    found = re.search(rf'name="{name}" value="([^"]+)"', page)
    assert found is not None
    return found.group(1)


def test_one_asks_another_decides_and_both_follow_it_to_its_certificate(office: Office) -> None:
    furnish(office)
    asker = office.doors.organisation.person(MemberRole.PRIVACY_OFFICER).signed_in()
    decider = office.doors.organisation.person(MemberRole.PRIVACY_OFFICER).signed_in()
    auditor = office.doors.organisation.person(MemberRole.AUDITOR).signed_in()
    asked = asker.post("/admin/retention/erasure/ask/", {"subject": "customer-7", "reason": "subject_request"})
    assert asked.status_code == 302, asked.content
    place = asked.headers["Location"]
    mine = asker.get(place).content.decode()
    assert "nobody approves what they asked for" in mine
    assert "mira" not in mine
    assert auditor.post(f"{place[:-7]}decide/", {"answer": "approve"}).status_code == 403
    page = decider.get(place).content.decode()
    given = {"answer": "approve", "shown": field(page, "shown"), "reason": "checked"}
    own = asker.post(place.replace("change", "decide"), given)
    assert own.status_code == 403
    decided = decider.post(place.replace("change", "decide"), given)
    assert decided.status_code == 302, decided.content
    erasure = UUID(place.split("/")[-3])
    assert "How far it is" in decider.get(place).content.decode()
    erasing.go_on(office.doors.id, erasure, seconds=60)
    done = decider.get(place).content.decode()
    assert "Certificate" in done
    assert "Left to a person" in done
    item = field(done, "item")
    told = decider.post(place.replace("change", "item"), {"item": item, "answer": "keep", "reason": "own_interest"})
    assert told.status_code == 302
    for path in ("memory/suppression", "retention/notice", "retention/erasure"):
        assert auditor.get(f"/admin/{path}/").status_code == 200, path


def test_a_suppression_is_lifted_from_its_page_with_a_reason(office: Office) -> None:
    furnish(office)
    office.erased()
    officer = office.doors.organisation.person(MemberRole.PRIVACY_OFFICER).signed_in()
    with tenant_transaction(Role.STAFF, tenant=office.doors.id):
        from memory.models import Suppression

        row = Suppression.objects.filter(key="subject").order_by("id").first()
    assert row is not None
    place = f"/admin/memory/suppression/{row.id}/"
    assert officer.get(f"{place}change/").status_code == 200
    assert officer.post(f"{place}lift/", {"reason": "because"}).status_code == 400
    assert officer.post(f"{place}lift/", {"reason": "other", "all": "1"}).status_code == 302
    assert "lifted" in officer.get(f"{place}change/").content.decode()
    assert officer.post(f"{place}lift/", {"reason": "other"}).status_code == 409
