"""Sayings about attributes that nobody has defined, where the tenant's policy asks about them."""

import json
import re
from functools import partial
from typing import Any
from uuid import UUID

import pytest

from memory import proposals
from memory.outcomes import Denied, Written
from memory.rows import fetch
from policies.approvals import Answer
from tenants.actors import MemberRole
from tenants.isolation import Role, tenant_transaction
from tests.memory.doors import Asked, Doors, assert_sound, day
from tests.organisation import Person
from tests.paths.ledger import CANARY, Ledger, at_once, publish, publish_policy, saying
from tests.policies.two_people import Two

NAME = "shoe_size"


@pytest.fixture
def ledger(tenant: Any) -> Ledger:
    publish(tenant)
    publish_policy(tenant, unknown_attribute="ask")
    return Ledger(tenant.agent())


@pytest.fixture
def doors(database: Any) -> Doors:
    made = Doors()
    made.policy(unknown_attribute="ask")
    return made


def define(doors: Doors, **given: Any) -> None:
    """Put the attribute in force, as an operator does."""
    doors.publish({"name": NAME, "schema": {"type": "integer"}, **given})


def test_where_the_policy_says_so_it_waits_sealed_with_its_name(ledger: Ledger, superuser: Any) -> None:
    answer = ledger.said("mira", NAME, f"{CANARY}-42", status=202)
    assert answer["reasons"] == ["unknown_attribute"]
    candidate = ledger.ok(f"/candidates/{answer['candidate']}/")
    assert (candidate["act"], candidate["state"]) == ("unknown_attribute", "asked")
    assert (candidate["attribute"], candidate["value"]) == (NAME, f"{CANARY}-42")
    assert candidate["sensitivity"] == "personal"
    assert candidate["retention"]["expires_at"] is not None
    row = superuser.execute(
        "SELECT to_jsonb(c)::text, p.clear, p.sealed IS NOT NULL FROM memory_candidate c"
        " JOIN memory_payload p ON p.id = c.payload_id WHERE c.id = %s", [candidate["id"]]
    ).fetchone()  # fmt: skip
    assert row[1:] == (None, True)
    assert NAME not in row[0]
    assert CANARY not in row[0]
    assert ledger.facts(subject="mira") == []


def test_otherwise_it_is_refused_as_before(tenant: Any) -> None:
    publish(tenant)
    assert Ledger(tenant.agent()).say("mira", NAME, "42").json()["code"] == "unknown_attribute"


@pytest.mark.parametrize(
    "given",
    [{"ended": True}, {"corrects": "01900000-0000-7000-8000-000000000000"}, {"recorded_at": "2026-01-01T00:00:00Z"}],
)
def test_ends_corrections_and_imports_of_it_are_refused(ledger: Ledger, given: dict[str, Any]) -> None:
    answer = ledger.say("mira", NAME, "42", **given)
    assert (answer.status_code, answer.json()["code"]) == (422, "unknown_attribute")


def test_what_is_kept_nowhere_is_not_kept_by_this_way_either(ledger: Ledger) -> None:
    assert ledger.say("mira", NAME, "AKIAIOSFODNN7EXAMPLE").json()["code"] == "credential"
    assert ledger.say("mira", NAME, "x" * 20_000).json()["code"] == "too_large"
    consent = saying("mira", NAME, "42", retention={"basis": "consent"})
    assert ledger.post("/facts/", consent).json()["code"] == "consent_ref_needed"
    assert ledger.ok("/candidates/")["results"] == []


def test_the_same_again_joins_it_and_another_value_does_not(ledger: Ledger) -> None:
    first = ledger.said("mira", NAME, "42", status=202)["candidate"]
    assert ledger.said("mira", NAME, "42", status=202)["candidate"] == first
    assert ledger.said("mira", NAME, "43", status=202)["candidate"] != first
    assert ledger.said("otto", NAME, "42", status=202)["candidate"] != first
    assert ledger.ok(f"/candidates/{first}/")["occurrences"] == 2
    same = {each["candidate"] for each in at_once([partial(ledger.said, "ida", NAME, "42", status=202)] * 4)}
    assert len(same) == 1


def test_in_a_batch_it_is_answered_in_its_place(ledger: Ledger) -> None:
    items = [saying("mira", "city", "Rome"), saying("mira", NAME, "42"), saying("mira", NAME, None, ended=True)]
    results = ledger.post("/facts/batch/", {"items": items}).json()["results"]
    assert [each["status"] for each in results] == [201, 202, 422]


def test_a_request_that_comes_twice_asks_once(ledger: Ledger) -> None:
    answers = [ledger.said("mira", NAME, "42", status=202, idempotency_key="k") for _ in range(2)]
    assert answers[0] == answers[1]
    assert ledger.ok(f"/candidates/{answers[0]['candidate']}/")["occurrences"] == 1


def test_a_writer_below_its_class_does_not_see_what_it_became(tenant: Any, ledger: Ledger) -> None:
    low = Ledger(tenant.agent(clearance="internal"))
    candidate = low.said("mira", NAME, "42", status=202)["candidate"]
    assert low.get(f"/candidates/{candidate}/").status_code == 404


def test_explaining_it_says_that_a_person_is_asked(ledger: Ledger) -> None:
    told = ledger.post("/policies/explain/", {"fact": saying("mira", NAME, "42")}).json()
    assert (told["verdict"], told["reasons"], told["rule"]) == (
        "ask",
        ["unknown_attribute"],
        "builtin.unknown_attribute",
    )
    assert ledger.ok("/candidates/")["results"] == []


def test_so_many_wait_at_once_and_no_more(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proposals, "UNDEFINED_AT_ONCE", 2)
    for value in ("1", "2", "1"):
        ledger.said("mira", NAME, value, status=202)
    assert ledger.say("mira", NAME, "3").json()["code"] == "unknown_attribute"


def test_it_is_confirmed_once_the_attribute_is_defined_and_by_its_schema(doors: Doors) -> None:
    asked = doors.say(NAME, 42.0, 1)
    assert isinstance(asked, Asked)
    doors.say(NAME, 42, 3)
    wrong = doors.say(NAME, "large", 2)
    assert doors.decide(asked.candidate).code == "attribute_not_defined"
    define(doors)
    assert doors.decide(wrong.candidate).code == "wrong_type"
    decided = doors.decide(asked.candidate)
    assert isinstance(decided, Written)
    assert doors.value(NAME, 2) == 42
    assert doors.fact(decided.fact or UUID(int=0))["confirmed"]
    # Said twice, and once more as confirmed.
    assert doors.sql("SELECT count(*) FROM memory_evidence WHERE fact_id = %s", decided.fact) == [(3,)]
    assert doors.decide(asked.candidate).code == "already_decided"
    doors.decide(wrong.candidate, accept=False)
    assert doors.decide(wrong.candidate).code == "already_decided"
    assert_sound(doors)


def test_its_class_and_life_follow_the_attribute_that_was_defined(doors: Doors) -> None:
    episode = doors.episode("my size is 42", subject="mira")
    asked = doors.say(
        NAME, 42, 1, provenance={"turn_id": "t", "source_episode": str(episode.id), "quote": "size is 42"}
    )
    define(doors, sensitivity="restricted")
    decided = doors.decide(asked.candidate)
    ((level, short),) = doors.sql(
        "SELECT sensitivity, expires_at < clock_timestamp() + interval '8 days' FROM memory_fact WHERE id = %s",
        decided.fact,
    )
    assert (level, short) == (3, True)
    assert_sound(doors)


def test_two_who_decide_at_once_are_one_decision(doors: Doors) -> None:
    for number in range(3):
        name = f"{NAME}_{number}"
        asked = doors.say(name, "x", 1)
        doors.publish({"name": name, "schema": {"type": "string"}})
        outcomes = at_once([partial(doors.decide, asked.candidate, accept=accept) for accept in (True, False)])
        assert [each.code for each in outcomes if isinstance(each, Denied)] == ["already_decided"]
        accepted = any(isinstance(each, Written) for each in outcomes)
        assert doors.value(name) == ("x" if accepted else None)
    assert_sound(doors)


def test_the_database_takes_no_candidate_that_names_no_attribute_but_of_this_kind(doors: Doors) -> None:
    from tests.database.test_ledger_constraints import CHECKED, refusal

    doors.say(NAME, 42, 1)
    doors.say("city", "Rome", day(1))
    doors.say("city", "Oslo", day(1))
    ((columns,),) = doors.sql(
        "SELECT string_agg(attname, ', ' ORDER BY attnum) FROM pg_attribute"
        " WHERE attrelid = 'memory_candidate'::regclass AND attnum > 0 AND NOT attisdropped AND attgenerated = ''"
    )
    copy = (
        f"INSERT INTO memory_candidate ({columns}) SELECT {columns} FROM (SELECT (jsonb_populate_record(c, %s::jsonb"
        " || jsonb_build_object('id', gen_random_uuid(), 'value_digest', '\\x' || md5(random()::text)))).*"
        " FROM memory_candidate c WHERE c.act = %s LIMIT 1) x"
    )
    for change, act in (
        ({"act": "fact"}, "unknown_attribute"),
        ({"attribute_id": None, "attribute_version_id": None}, "fact"),
        ({"payload_id": None}, "unknown_attribute"),
        ({"sensitivity": 1}, "unknown_attribute"),
    ):
        assert refusal(doors, Role.WRITER, copy, json.dumps(change), act) == CHECKED, change
    assert refusal(doors, Role.WRITER, copy, "{}", "unknown_attribute") is None


def waits(client: Any) -> str:
    page = client.get("/admin/memory/candidate/").content.decode()
    found = re.search(r"/admin/memory/candidate/[0-9a-f-]{36}/", page)
    assert found is not None
    return found[0]


def test_a_person_sees_it_has_it_defined_by_two_and_confirms_it(tenant: Any, ledger: Ledger) -> None:
    ledger.said("mira", NAME, f"{CANARY}-42", status=202)
    two = Two(tenant)
    reviewer: Person = tenant.person(MemberRole.REVIEWER, MemberRole.TENANT_ADMIN)
    client = reviewer.signed_in()
    candidate = waits(client)
    masked = client.get(f"{candidate}change/").content.decode()
    assert "An attribute that nobody has defined" in masked
    assert NAME not in masked
    assert CANARY not in masked
    decision = {"decision": "confirm", "reason": "evidence_supports", "occurrences": "1"}
    early = client.post(f"{candidate}decide/", decision)
    assert early.status_code == 409
    assert "Nobody has put an attribute of that name in force yet." in early.content.decode()
    shown = client.post(f"{candidate}show/").content.decode()
    assert f"x-ignore>{NAME}</b>" in shown
    assert f"{CANARY}-42" in shown
    assert "Draft this attribute" in shown
    assert (
        "Draft this attribute"
        not in tenant.person(MemberRole.REVIEWER).signed_in().post(f"{candidate}show/").content.decode()
    )
    form = client.post("/admin/policies/attribute/draft/", {"name": NAME}).content.decode()
    assert f"&quot;name&quot;: &quot;{NAME}&quot;" in form
    two.decide(two.asked(NAME), Answer.APPROVE)
    assert client.post(f"{candidate}decide/", decision).status_code == 302
    assert ledger.values("mira", NAME) == [f"{CANARY}-42"]


def test_a_person_rejects_it_without_having_it_defined(tenant: Any, ledger: Ledger) -> None:
    candidate = ledger.said("mira", NAME, "42", status=202)["candidate"]
    client = tenant.person(MemberRole.REVIEWER).signed_in()
    sent = {"decision": "reject", "reason": "not_to_be_kept", "occurrences": "1"}
    assert client.post(f"{waits(client)}decide/", sent).status_code == 302
    assert ledger.ok(f"/candidates/{candidate}/")["state"] == "rejected"
    with tenant_transaction(Role.STAFF, tenant=tenant.id):
        assert fetch("SELECT reason FROM tenants_auditevent WHERE action = 'candidate.decided'", []) == [
            ("not_to_be_kept",)
        ]
