"""What users of such systems reported, as behaviours of the doors that other files do not test by name."""

from typing import Any
from uuid import uuid4

import pytest

from tests.paths.ledger import Ledger, publish, saying


def test_c028_a_new_fact_closes_only_facts_of_its_own_subject_and_attribute(ledger: Ledger, foreign: Ledger) -> None:
    for who in ("mira", "jonas"):
        ledger.said(who, "city", "Lisbon", valid_from="2026-01-01T00:00:00Z")
        ledger.said(who, "likes", "yes", valid_from="2026-01-01T00:00:00Z")
    foreign.said("mira", "city", "Oslo", valid_from="2026-01-01T00:00:00Z")
    ledger.said("mira", "city", "Porto", valid_from="2026-02-01T00:00:00Z")
    ends = {(each["subject"], each["attribute"]): each["valid_to"] for each in ledger.facts()}
    assert ends == {(who, name): None for who in ("mira", "jonas") for name in ("city", "likes")}
    assert foreign.values("mira", "city") == ["Oslo"]


@pytest.mark.parametrize("name", ["hates", "was_formerly", "is.no/longer-x"])
def test_c029_the_words_of_an_attributes_name_change_nothing(organisation: Any, ledger: Ledger, name: str) -> None:
    publish(organisation, [{"name": name, "schema": {"type": "string"}, "sensitivity": "internal"}])
    ledger.said("mira", name, "a", valid_from="2026-01-01T00:00:00Z")
    assert ledger.said("mira", name, "b", valid_from="2026-02-01T00:00:00Z")["change"] == "update"
    assert ledger.values("mira", name) == ["b"]


def test_c035_a_value_that_is_only_alike_is_another_value(ledger: Ledger) -> None:
    for value in ("prefers tea", "prefers  tea", "Prefers tea", "prefers teas"):
        assert ledger.said("mira", "tag", value)["change"] == "new"
    assert len(ledger.values("mira", "tag")) == 4


def test_c065_a_fact_is_as_visible_by_its_id_as_by_its_name(organisation: Any, ledger: Ledger) -> None:
    heard = {"turn_id": "t", "tool_call_id": "c"}
    fact = ledger.said("mira", "diagnosis", "asthma", provenance=heard)["fact"]
    low = Ledger(organisation.agent("low", clearance="internal"))
    assert low.values("mira", "diagnosis") == []
    assert low.get(f"/facts/{fact['id']}/").status_code == 404
    assert ledger.values("mira", "diagnosis") == ["asthma"]
    assert ledger.ok(f"/facts/{fact['id']}/")["value"] == "asthma"


def test_c075_what_a_tool_said_is_confirmed_by_no_agent(ledger: Ledger) -> None:
    provenance = {"turn_id": "t", "tool_call_id": "c", "source": "tool_result"}
    ledger.said("mira", "iban", "DE89370400440532013000", provenance=provenance, status=202)
    claimed = ledger.say("mira", "iban", "x", provenance={"turn_id": "t", "source": "confirmation"})
    assert (claimed.status_code, claimed.json()["code"]) == (422, "a_person_confirms")
    assert ledger.values("mira", "iban") == []


def test_c098_every_audit_entry_has_actor_action_target_time_and_reason(ledger: Ledger, owner: Any) -> None:
    columns = owner.execute(
        "SELECT column_name FROM information_schema.columns WHERE table_name = 'tenants_auditevent'"
        " AND is_nullable = 'NO' AND table_schema = 'public'"
    ).fetchall()
    assert {"actor_kind", "actor_id", "action", "target_kind", "target_id", "at", "reason"} <= {
        row[0] for row in columns
    }


def test_c054_taking_back_another_tenants_fact_is_404_leaves_it_and_is_audited(
    organisation: Any, ledger: Ledger, foreign: Ledger, superuser: Any
) -> None:
    theirs = foreign.said("mira", "city", "Oslo")
    for path in (f"/facts/{theirs['fact']['id']}/retract/", f"/evidence/{theirs['evidence']}/retract/"):
        assert ledger.post(path, {"reason": "other"}).status_code == 404
    absent = uuid4()
    assert ledger.post(f"/facts/{absent}/retract/", {"reason": "other"}).status_code == 404
    assert foreign.values("mira", "city") == ["Oslo"]
    entries = superuser.execute(
        "SELECT target_kind, target_id::text, reason FROM tenants_auditevent WHERE chain = %s"
        " AND action = 'access.refused' ORDER BY seq",
        [organisation.id],
    ).fetchall()
    assert entries == [
        ("fact", theirs["fact"]["id"], "not_found"),
        ("evidence", theirs["evidence"], "not_found"),
        ("fact", str(absent), "not_found"),
    ]


def test_c127_a_read_of_a_subject_goes_by_the_tenants_and_the_subjects_index(
    organisation: Any, ledger: Ledger, superuser: Any
) -> None:
    many = [saying(f"subject-{number}", "city", "Lisbon") for number in range(300)]
    assert ledger.post("/facts/batch/", {"items": many}).status_code == 200
    superuser.execute("ANALYZE memory_factkey")
    with superuser.transaction():
        superuser.execute(
            "SELECT set_config('role', 'muniment_agent', true), set_config('muniment.tenant', %s, true),"
            " set_config('muniment.clearance', '3', true), set_config('enable_seqscan', 'off', true)",
            [str(organisation.id)],
        )
        plan = "\n".join(
            row[0]
            for row in superuser.execute(
                "EXPLAIN SELECT k.id FROM memory_factkey k WHERE k.tenant_id = %s AND k.subject_id = %s",
                [organisation.id, uuid4()],
            ).fetchall()
        )
    assert "factkey_by_subject" in plan or "factkey_once" in plan, plan
    assert "Seq Scan" not in plan
