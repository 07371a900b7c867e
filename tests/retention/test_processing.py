"""Records of processing: made from what is in force, without content, as a page and as a table."""

import csv
import io
from datetime import UTC, datetime
from typing import Any

import pytest
from django.test import Client

from retention import processing
from tenants.actors import MemberRole
from tenants.isolation import Role, tenant_transaction
from tests.memory.background import publish, say
from tests.organisation import new_organisation
from tests.paths.ledger import CANARY, publish_policy

pytestmark = pytest.mark.usefixtures("database")


def records(tenant: Any) -> processing.Records:
    with tenant_transaction(Role.STAFF, tenant=tenant.id):
        return processing.records(tenant.id, now=datetime.now(UTC))


def test_records_say_what_is_in_force_and_change_with_it(tenant: Any, make_agent: Any) -> None:
    publish(tenant)
    make_agent("open-desk", clearance="internal", purposes=("catering",))
    make_agent("clinic", clearance="restricted", purposes=("care",))
    found = {each.attribute: each for each in records(tenant).activities}
    assert found["city"].kept == "at most 30 days from the writing"
    assert found["city"].recipients == ("clinic", "open-desk")
    assert found["diagnosis"].recipients == ("clinic",)
    assert found["diagnosis"].afterwards == "at most 90 days once the contract is over"
    assert found["newsletter"].legal.startswith("Art. 6(1)(a)")
    publish_policy(tenant, after=None, lifetimes={"session": {"internal": "P1D"}})
    assert {each.attribute: each for each in records(tenant).activities}[
        "city"
    ].kept == "at most 1 day from the writing"


def test_nothing_that_was_said_is_in_them(tenant: Any, agent: Any) -> None:
    publish(tenant)
    say(agent, f"{CANARY} subject", "city", f"{CANARY}-town")
    client = tenant.person(MemberRole.AUDITOR).signed_in()
    page = client.get("/admin/processing/").content.decode()
    assert "city" in page
    assert CANARY not in page + "".join(processing.table(records(tenant)))


def test_the_table_is_handed_out_by_an_audited_act_and_no_cell_is_a_formula(tenant: Any, superuser: Any) -> None:
    publish(tenant, [{"name": "odd", "description": "=cmd|'/c calc'!A1", "schema": {"type": "string"}}])
    client = tenant.person(MemberRole.PRIVACY_OFFICER).signed_in()
    answer = client.post("/admin/processing/table/")
    assert (answer.status_code, answer["Content-Type"]) == (200, "text/csv; charset=utf-8")
    table = list(csv.reader(io.StringIO(answer.content.decode())))
    assert table[0] == list(processing.COLUMNS)
    assert table[1][1] == "'=cmd|'/c calc'!A1"
    acts = superuser.execute(
        "SELECT count(*) FROM tenants_auditevent WHERE chain = %s AND action = 'processing.exported'", [tenant.id]
    ).fetchone()
    assert acts == (1,)


def test_they_are_read_by_members_and_by_their_methods_alone(tenant: Any) -> None:
    client = tenant.person(MemberRole.REVIEWER).signed_in()
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        assert client.generic(method, "/admin/processing/").status_code == 405
    for method in ("GET", "PUT", "PATCH", "DELETE"):
        assert client.generic(method, "/admin/processing/table/").status_code == 405
    assert Client().get("/admin/processing/").status_code == 302


def test_without_a_policy_nothing_is_processed() -> None:
    bare = new_organisation(with_policy=False)
    answer = bare.person(MemberRole.REVIEWER).signed_in().get("/admin/processing/")
    assert answer.status_code == 409
