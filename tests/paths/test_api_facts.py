"""Facts over HTTP: writing, reading, both times, corrections, retractions, batches."""

import re
import time
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from django.db import connection

from tenants.actors import Scope
from tests.paths.ledger import CANARY, Ledger, at_once, publish, publish_policy, saying


def trace(ledger: Ledger) -> dict[str, Any]:
    written = {}
    for name, value, valid_from in (
        ("e1", "2026-07-15", "2026-06-01T09:00:00Z"),
        ("e2", "2026-06-30", "2026-06-03T10:00:00Z"),
        ("e0", "2026-08-01", "2026-05-30T08:00:00Z"),
    ):
        written[name] = ledger.said("mira", "passport_deadline", value, valid_from=valid_from)
    return written


def test_the_stale_fact_trace_comes_out_exactly(ledger: Ledger) -> None:
    written = trace(ledger)
    assert [written[name]["change"] for name in ("e1", "e2", "e0")] == ["new", "update", "late"]
    for instant, value, name in (
        ("2026-06-04T00:00:00Z", "2026-06-30", "e2"),
        ("2026-06-02T00:00:00Z", "2026-07-15", "e1"),
        ("2026-05-31T00:00:00Z", "2026-08-01", "e0"),
    ):
        (fact,) = ledger.facts(subject="mira", attribute="passport_deadline", valid_at=instant)
        assert fact["value"] == value
        assert fact["evidence"] == [written[name]["evidence"]]
    assert ledger.facts(subject="mira", attribute="passport_deadline", valid_at="2026-05-30T07:59:59Z") == []
    (current,) = ledger.facts(subject="mira", attribute="passport_deadline")
    assert current["value"] == "2026-06-30"
    assert current["supersedes"] == written["e1"]["fact"]["id"]
    history = ledger.ok(f"/facts/{current['id']}/history/")
    held = [each for each in history["stretches"] if each["superseded_at"] is None]
    assert [(each["value"], each["valid_from"], each["valid_to"]) for each in held] == [
        ("2026-08-01", "2026-05-30T08:00:00Z", "2026-06-01T09:00:00Z"),
        ("2026-07-15", "2026-06-01T09:00:00Z", "2026-06-03T10:00:00Z"),
        ("2026-06-30", "2026-06-03T10:00:00Z", None),
    ]


def test_a_fact_comes_back_with_everything_the_design_names(ledger: Ledger) -> None:
    episode = ledger.post(
        "/episodes/",
        {
            "kind": "message",
            "content": "I moved to Turin.",
            "session_id": "s",
            "turn_id": "t",
            "occurred_at": "2026-06-01T09:00:00Z",
        },
    ).json()["id"]
    provenance = {"turn_id": "turn-7", "tool_call_id": "call-1", "source_episode": episode, "quote": "moved to Turin"}
    fact = ledger.said("mira", "city", "Turin", confidence=0.9, provenance=provenance)["fact"]
    assert fact["provenance"] == {
        "source": "tool_result",
        "turn_id": "turn-7",
        "tool_call_id": "call-1",
        "consent_ref": None,
        "writer": {"kind": "agent", "id": str(ledger.agent.actor.id)},
        "written_at": fact["provenance"]["written_at"],
        "source_episode": episode,
        "detected": [],
    }
    assert (fact["subject"], fact["attribute"], fact["value"], fact["kind"]) == ("mira", "city", "Turin", "semantic")
    assert (fact["confidence"], fact["confirmed"], fact["sensitivity"]) == (0.9, False, "internal")
    assert fact["valid_from"] == "2026-06-01T09:00:00Z"  # the episode's, since none was given
    (read,) = ledger.facts(subject="mira")
    assert read == fact
    (source,) = ledger.ok(f"/facts/{fact['id']}/lineage/")["sources"]
    assert source["provenance"]["quote"] == "moved to Turin"
    assert ledger.ok(f"/episodes/{episode}/")["facts"] == [fact["id"]]


def test_c026_a_default_read_of_a_single_valued_attribute_returns_one_row(ledger: Ledger) -> None:
    for value in ("Rome", "Turin", "Pisa"):
        ledger.said("mira", "city", value)
    (fact,) = ledger.facts(subject="mira")
    assert fact["value"] == "Pisa"
    history = ledger.ok(f"/facts/{fact['id']}/history/")
    assert [each["value"] for each in history["results"]] == ["Rome", "Turin", "Pisa"]


def test_c031_a_late_value_ends_where_the_known_one_begins(ledger: Ledger) -> None:
    ledger.said("mira", "city", "March", valid_from="2026-03-01T00:00:00Z")
    assert ledger.said("mira", "city", "January", valid_from="2026-01-01T00:00:00Z")["change"] == "late"
    assert ledger.values() == ["March"]
    (january,) = ledger.facts(subject="mira", valid_at="2026-02-01T00:00:00Z")
    assert (january["value"], january["valid_to"]) == ("January", "2026-03-01T00:00:00Z")


def test_c033_dislike_then_like_leaves_like_current_and_dislike_in_history(ledger: Ledger) -> None:
    ledger.said("mira", "likes", "no", valid_from="2026-01-01T00:00:00Z")
    fact = ledger.said("mira", "likes", "yes", valid_from="2026-02-01T00:00:00Z")["fact"]
    assert ledger.values(attribute="likes") == ["yes"]
    assert [each["value"] for each in ledger.ok(f"/facts/{fact['id']}/history/")["results"]] == ["no", "yes"]


def test_c034_saying_a_value_again_adds_evidence_and_changes_no_value(ledger: Ledger) -> None:
    first = ledger.said("mira", "city", "Rome")
    for _ in range(4):
        again = ledger.said("mira", "city", "Rome", status=200)
        assert again["change"] == "no_change"
        assert again["fact"]["id"] == first["fact"]["id"]
    (fact,) = ledger.facts(subject="mira")
    assert (fact["value"], fact["evidence_count"], len(fact["evidence"])) == ("Rome", 5, 5)


def test_saying_a_value_again_makes_nobody_surer_of_it(ledger: Ledger) -> None:
    for confidence in (0.6, 0.8, 0.8, 0.7):
        assert ledger.say("mira", "city", "Rome", confidence=confidence).status_code in {200, 201}
    (fact,) = ledger.facts(subject="mira")
    assert (fact["confidence"], fact["evidence_count"]) == (0.8, 4)


def test_c040_two_identical_sayings_at_once_are_one_fact_with_two_pieces_of_evidence(ledger: Ledger) -> None:
    answers = at_once([lambda: ledger.agent.api.send("POST", "/api/v1/facts/", saying(value="Rome"))] * 2)
    assert sorted(each.status_code for each in answers) == [200, 201]
    (fact,) = ledger.facts(subject="mira")
    assert fact["evidence_count"] == 2
    assert sorted(fact["evidence"]) == sorted(each.json()["evidence"] for each in answers)


def test_c041_many_values_at_once_leave_one_current_and_lose_none(ledger: Ledger) -> None:
    def write(number: int) -> Any:
        return ledger.agent.api.send("POST", "/api/v1/facts/", saying(value=f"city {number}"))

    answers = at_once(partial(write, number) for number in range(12))
    assert {each.status_code for each in answers} == {201}
    (fact,) = ledger.facts(subject="mira")
    history = ledger.ok(f"/facts/{fact['id']}/history/")
    assert sorted(each["value"] for each in history["results"]) == sorted(f"city {number}" for number in range(12))
    assert len([each for each in history["stretches"] if each["valid_to"] is None and not each["superseded_at"]]) == 1


def test_c043_a_correction_of_what_was_corrected_already_is_a_409_without_content(
    ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    first = ledger.said("mira", "city", "Rome")
    ledger.said("mira", "city", "Turin", corrects=first["evidence"])
    caplog.clear()
    refused = ledger.say("mira", "city", CANARY, corrects=first["evidence"])
    assert (refused.status_code, refused.json()["code"]) == (409, "already_retracted")
    assert CANARY not in caplog.text
    assert not [record for record in caplog.records if record.levelname in ("ERROR", "CRITICAL")]
    assert ledger.values() == ["Turin"]


def test_c058_the_tenant_is_that_of_each_request_and_never_of_an_earlier_one(ledger: Ledger, foreign: Ledger) -> None:
    for _ in range(5):
        ledger.said("mira", "tag", "ours", status=200 if ledger.facts(subject="mira") else 201)
        foreign.said("mira", "tag", "theirs", status=200 if foreign.facts(subject="mira") else 201)
        assert ledger.values(attribute="tag") == ["ours"]
        assert foreign.values(attribute="tag") == ["theirs"]


def test_c060_a_subject_never_answers_for_one_whose_name_it_begins(ledger: Ledger) -> None:
    ledger.said("acme", "city", "Rome")
    ledger.said("acme-corp", "city", "Turin")
    assert ledger.values("acme") == ["Rome"]
    assert ledger.values("acme-corp") == ["Turin"]
    for name in ("acm", "acme%", "ACME", "acme-", "acme_corp"):
        assert ledger.values(name) == []


def test_c070_a_batch_with_one_foreign_id_acts_on_its_own_and_reports_that_one_as_not_found(
    ledger: Ledger, foreign: Ledger
) -> None:
    ours, theirs = ledger.said("mira", "city", "Rome"), foreign.said("mira", "city", "Oslo")
    items = [
        saying(value="Turin", corrects=theirs["evidence"]),
        saying(value="Pisa", corrects=theirs["fact"]["id"]),
        saying(value="Milan", corrects=ours["evidence"]),
    ]
    results = ledger.post("/facts/batch/", {"items": items}).json()["results"]
    assert [each["status"] for each in results] == [422, 422, 201]
    assert [each["path"] for each in results[0]["errors"]] == ["items[0].corrects"]
    missing = ledger.post("/facts/batch/", {"items": [saying(value="x", corrects=str(ledger.agent.actor.id))]})
    assert missing.json()["results"][0]["errors"][0]["code"] == results[0]["errors"][0]["code"] == "not_found"
    assert ledger.values() == ["Milan"]
    assert foreign.values() == ["Oslo"]


@pytest.mark.parametrize("text", ["' or true --", 'mira" or "1"="1', "mira'; DROP TABLE memory_fact; --", "%", "\\"])
def test_c071_a_name_with_quotes_is_matched_as_plain_text(ledger: Ledger, text: str) -> None:
    ledger.said("mira", "city", "Rome")
    assert ledger.facts(subject=text) == []
    ledger.said(text, "city", "Turin")
    assert ledger.values(text) == ["Turin"]
    assert ledger.values("mira") == ["Rome"]


@pytest.mark.parametrize("path", ["valid_from", "valid_to", "recorded_at", "retention.expires_at"])
def test_c076_a_time_without_an_offset_in_a_body_is_a_400_naming_the_field(ledger: Ledger, path: str) -> None:
    naive = "2026-06-01T09:00:00"
    body = (
        saying(value="Rome", retention={"basis": "session", "expires_at": naive})
        if "." in path
        else saying(value="Rome", **{path: naive})
    )
    refused = ledger.post("/facts/", body)
    assert refused.status_code == 400
    assert refused.json()["errors"] == [{"path": path, "code": "offset_missing"}]


@pytest.mark.parametrize("name", ["valid_at", "known_at"])
@pytest.mark.parametrize("path", ["/facts/", "/profile/"])
def test_c076_a_time_without_an_offset_in_a_query_is_a_400_naming_the_parameter(
    ledger: Ledger, path: str, name: str
) -> None:
    refused = ledger.get(path, subject="mira", **{name: "2026-06-01T09:00:00"})
    assert refused.status_code == 400
    assert refused.json()["errors"] == [{"path": name, "code": "offset_missing"}]


@pytest.mark.parametrize(
    "when", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "now", "2026-13-01T00:00:00Z"]
)
def test_c076_a_time_that_is_none_or_outside_the_calendar_is_a_400(ledger: Ledger, when: str) -> None:
    assert ledger.say("mira", "city", "Rome", valid_from=when).status_code == 400
    assert ledger.get("/facts/", valid_at=when).status_code == 400


@pytest.mark.parametrize("when", ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z"])
def test_the_first_and_the_last_instant_of_the_calendar_may_be_said(ledger: Ledger, when: str) -> None:
    assert ledger.said("mira", "city", "Rome", valid_from=when)["fact"]["valid_from"] == when
    assert ledger.values(valid_at=when) == ["Rome"]


@pytest.mark.parametrize("zone", ["UTC", "Pacific/Auckland", "America/St_Johns"])
def test_c077_c079_the_zone_of_the_server_and_of_the_process_change_nothing(
    ledger: Ledger, superuser: Any, monkeypatch: pytest.MonkeyPatch, zone: str
) -> None:
    superuser.execute(f"ALTER ROLE muniment_app SET timezone = '{zone}'")
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    connection.close()
    try:
        ledger.said("mira", "city", "Rome", valid_from="2026-06-01T02:00:00Z")
        fact = ledger.said("mira", "city", "Turin", valid_from="2026-06-02T01:00:00+02:00")["fact"]
        assert fact["valid_from"] == "2026-06-01T23:00:00Z"
        assert ledger.values(valid_at="2026-06-01T23:00:00Z") == ["Turin"]
        assert ledger.values(valid_at="2026-06-01T02:00:00Z") == ["Rome"]
        assert ledger.values(valid_at="2026-06-01T01:59:59.999999Z") == []
        for stretch in ledger.ok(f"/facts/{fact['id']}/history/")["stretches"]:
            assert stretch["superseded_at"] is None or stretch["superseded_at"] > stretch["recorded_at"]
        assert abs(datetime.fromisoformat(fact["recorded_at"]) - datetime.now(UTC)) < timedelta(minutes=1)
    finally:
        superuser.execute("ALTER ROLE muniment_app RESET timezone")
        monkeypatch.undo()
        time.tzset()
        connection.close()


def test_c078_each_instant_has_one_form_on_every_endpoint(ledger: Ledger) -> None:
    ledger.said("mira", "city", "Rome", valid_from="2026-06-01T11:00:00.120+02:00")
    fact = ledger.said("mira", "city", "Turin", valid_from="2026-06-03 10:00:00Z")["fact"]
    answers = [
        ledger.ok("/facts/", subject="mira", valid_at="2026-06-02T00:00:00+00:00"),
        ledger.ok("/profile/", subject="mira"),
        ledger.ok(f"/facts/{fact['id']}/"),
        ledger.ok(f"/facts/{fact['id']}/history/"),
        ledger.ok(f"/facts/{fact['id']}/lineage/"),
    ]
    found = re.findall(r"'(\d{4}-\d\d-\d\d[T ][^']*)'", str(answers))
    assert len(found) > 20
    assert [each for each in found if not re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{6})?Z", each)] == []
    assert answers[0]["valid_at"] == "2026-06-02T00:00:00Z"
    assert answers[0]["results"][0]["valid_from"] == "2026-06-01T09:00:00.120000Z"


def test_c079_recording_never_goes_backwards_on_a_key(ledger: Ledger) -> None:
    recorded = [ledger.said("mira", "city", f"city {number}")["fact"]["recorded_at"] for number in range(10)]
    assert recorded == sorted(set(recorded))


def test_c082_valid_time_is_the_sources_and_recorded_time_the_servers_own(ledger: Ledger) -> None:
    before = datetime.now(UTC)
    fact = ledger.said("mira", "city", "Rome", valid_from="2020-01-01T00:00:00Z")["fact"]
    assert fact["valid_from"] == "2020-01-01T00:00:00Z"
    assert datetime.fromisoformat(fact["recorded_at"]) > before - timedelta(seconds=1)
    imported = ledger.said(
        "nora", "city", "Rome", valid_from="2020-01-01T00:00:00Z", recorded_at="2021-01-01T00:00:00Z"
    )
    assert imported["fact"]["recorded_at"] == "2021-01-01T00:00:00Z"
    assert datetime.fromisoformat(imported["fact"]["provenance"]["written_at"]) > before - timedelta(seconds=1)


def test_an_import_needs_its_scope_and_an_instant_that_is_past_and_not_before_the_newest(
    ledger: Ledger, organisation: Any
) -> None:
    plain = Ledger(organisation.agent("plain", scopes=frozenset({Scope.READ, Scope.WRITE})))
    refused = plain.say("mira", "city", "Rome", recorded_at="2021-01-01T00:00:00Z")
    assert (refused.status_code, refused.json()["code"]) == (403, "import_scope_needed")
    later = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    assert ledger.say("mira", "city", "Rome", recorded_at=later).json()["code"] == "recorded_in_the_future"
    ledger.said("mira", "city", "Rome", recorded_at="2021-01-01T00:00:00Z")
    ledger.said("mira", "city", "Pisa", recorded_at="2021-01-01T00:00:00Z", valid_from="2021-01-02T00:00:00Z")
    early = ledger.say("mira", "city", "Turin", recorded_at="2020-12-31T23:59:59Z")
    assert (early.status_code, early.json()["code"]) == (422, "recorded_before_the_newest")


def test_c083_as_of_an_instant_nothing_is_valid_from_later(ledger: Ledger) -> None:
    trace(ledger)
    ledger.said("mira", "tag", "x", valid_from="2026-06-05T00:00:00Z")
    for day in range(28, 32):
        instant = f"2026-05-{day}T12:00:00Z"
        assert all(each["valid_from"] <= instant for each in ledger.facts(subject="mira", valid_at=instant))


@pytest.mark.parametrize("boundary", ["2026-06-01T00:00:00Z", "2026-06-01T09:00:00.000001Z"])
def test_c084_as_of_the_boundary_only_the_successor_holds(ledger: Ledger, boundary: str) -> None:
    ledger.said("mira", "city", "Rome", valid_from="2026-01-01T00:00:00Z")
    ledger.said("mira", "city", "Turin", valid_from=boundary)
    just_before = datetime.fromisoformat(boundary) - timedelta(microseconds=1)
    assert ledger.values(valid_at=boundary) == ["Turin"]
    assert ledger.values(valid_at=just_before.isoformat()) == ["Rome"]


def test_both_times_are_asked_independently(ledger: Ledger) -> None:
    ledger.said("mira", "city", "Rome", valid_from="2026-01-01T00:00:00Z", recorded_at="2026-01-05T00:00:00Z")
    ledger.said("mira", "city", "Turin", valid_from="2026-01-03T00:00:00Z", recorded_at="2026-01-10T00:00:00Z")
    fourth = "2026-01-04T00:00:00Z"
    assert ledger.values(valid_at=fourth, known_at="2026-01-06T00:00:00Z") == ["Rome"]
    assert ledger.values(valid_at=fourth) == ["Turin"]
    assert ledger.values(valid_at=fourth, known_at=fourth) == []
    (then,) = ledger.facts(subject="mira", known_at="2026-01-06T00:00:00Z")
    assert (then["value"], then["valid_to"], then["superseded_at"]) == ("Rome", None, "2026-01-10T00:00:00Z")


def short_lived(seconds: float = 1.2) -> dict[str, Any]:
    return {"basis": "session", "expires_at": (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()}


def test_c087_c088_what_expired_is_absent_from_every_read_and_hides_what_held_before(ledger: Ledger) -> None:
    ledger.said("mira", "city", "Rome", valid_from="2026-01-01T00:00:00Z")
    written = ledger.say("mira", "city", "Turin", retention=short_lived(), valid_from="2026-02-01T00:00:00Z").json()
    fact = written["fact"]["id"]
    as_of = {"subject": "mira", "attribute": "city", "valid_at": "2026-03-01T00:00:00Z"}
    assert [each["value"] for each in ledger.facts(**as_of)] == ["Turin"]
    known_at = written["fact"]["recorded_at"]
    time.sleep(1.3)
    for query in (
        {"subject": "mira"},
        {"subject": "mira", "attribute": "city"},
        {"attribute": "city"},
        {},
        as_of,
        {**as_of, "known_at": known_at},
        {"subject": "mira", "kind": "semantic"},
    ):
        page = ledger.ok("/facts/", **query)
        assert page["results"] == []
        assert page["withheld"] == {"expired": 1}
    assert ledger.ok("/facts/", subject="mira", kind="procedural")["withheld"] == {}
    assert ledger.ok("/profile/", subject="mira")["results"] == []
    for path in (f"/facts/{fact}/", f"/facts/{fact}/history/", f"/facts/{fact}/lineage/"):
        assert ledger.get(path).status_code == 404
    (before,) = ledger.facts(subject="mira", valid_at="2026-01-15T00:00:00Z")
    history = ledger.send("GET", f"/facts/{before['id']}/history/")
    assert "Turin" not in history.content.decode()
    assert ledger.values() == []
    assert ledger.said("mira", "city", "Turin", valid_from="2026-02-01T00:00:00Z")["fact"]["id"] != fact
    assert ledger.values() == ["Turin"]


def test_c089_a_fact_without_an_expiry_cannot_be_stored_unless_it_is_kept_for_ever(
    ledger: Ledger, superuser: Any
) -> None:
    fact = ledger.said("mira", "city", "Rome")["fact"]["id"]
    for table in ("memory_fact", "memory_evidence", "memory_payload"):
        with pytest.raises(Exception, match=r"check constraint|kept longer than was said"):
            superuser.execute(
                f"UPDATE {table} SET expires_at = NULL WHERE tenant_id = %s AND basis = 'session'",
                [ledger.agent.actor.tenant],
            )
    assert ledger.ok(f"/facts/{fact}/")["retention"]["expires_at"] is not None


def test_c094_an_updated_fact_is_found_by_the_same_query_as_before(ledger: Ledger) -> None:
    queries: list[dict[str, Any]] = [
        {"subject": "mira"},
        {"attribute": "city"},
        {"subject": "mira", "kind": "semantic"},
    ]
    ledger.said("mira", "city", "Rome")
    assert [ledger.facts(**query)[0]["value"] for query in queries] == ["Rome"] * 3
    ledger.said("mira", "city", "Turin")
    assert [ledger.facts(**query)[0]["value"] for query in queries] == ["Turin"] * 3


@pytest.mark.parametrize("provenance", [None, {}, {"tool_call_id": "c"}, {"turn_id": ""}, {"turn_id": None}])
def test_c096_a_fact_without_its_turn_is_not_stored(ledger: Ledger, provenance: Any) -> None:
    body = saying(value="Rome")
    body.pop("provenance") if provenance is None else body.update(provenance=provenance)
    refused = ledger.post("/facts/", body)
    assert refused.status_code == 400
    assert refused.json()["errors"][0]["path"].startswith("provenance")
    assert ledger.facts(subject="mira") == []


def test_c109_an_exact_read_sees_a_write_as_soon_as_it_is_answered(ledger: Ledger, organisation: Any) -> None:
    reader = Ledger(organisation.agent("reader", scopes=frozenset({Scope.READ})))
    for number in range(10):
        ledger.said("mira", "city", f"city {number}")
        assert reader.values() == [f"city {number}"]


def test_c123_walking_all_pages_yields_every_row_once_while_others_are_written(ledger: Ledger) -> None:
    wanted = {f"tag {number}" for number in range(25)}
    items = [saying(attribute="tag", value=value) for value in sorted(wanted)]
    assert ledger.post("/facts/batch/", {"items": items}).status_code == 200
    found: list[str] = []
    query: dict[str, Any] = {"subject": "mira", "limit": 4}
    for number in range(100):
        page = ledger.ok("/facts/", **query)
        found += [each["value"] for each in page["results"]]
        if page["next"] is None:
            break
        query["cursor"] = page["next"]
        ledger.said("mira", "tag", f"late {number}")
        ledger.said("nora", "tag", f"other {number}")
    assert len(found) == len(set(found))
    assert wanted <= set(found)
    assert not any(each.startswith("other") for each in found)


@pytest.mark.slow
def test_c124_a_cursor_reaches_the_last_row_of_a_large_subject(ledger: Ledger, organisation: Any) -> None:
    names = [f"list_{number}" for number in range(10)]
    schema = {"type": "string"}
    publish(
        organisation,
        [{"name": name, "schema": schema, "cardinality": "multi", "sensitivity": "internal"} for name in names],
    )
    for name in names:
        items = [saying(attribute=name, value=f"{name} {number}") for number in range(1000)]
        assert ledger.send("POST", "/facts/batch/", {"items": items}, sound=False).status_code == 200
    ids: list[str] = []
    query: dict[str, Any] = {"subject": "mira", "limit": 200}
    while True:
        response = ledger.send("GET", "/facts/?" + "&".join(f"{k}={v}" for k, v in query.items()), sound=False)
        assert len(response.content) < 1_000_000
        page = response.json()
        ids += [each["id"] for each in page["results"]]
        if page["next"] is None:
            break
        query["cursor"] = page["next"]
    assert len(ids) == len(set(ids)) == 10_000


@pytest.mark.slow
def test_c130_thousands_of_versions_of_one_fact_are_a_row_each_and_writes_stay_quick(ledger: Ledger) -> None:
    for start in range(0, 10_000, 1000):
        items = [saying(value=f"city {number}") for number in range(start, start + 1000)]
        assert ledger.send("POST", "/facts/batch/", {"items": items}, sound=False).status_code == 200
    (fact,) = ledger.facts(subject="mira")
    assert fact["value"] == "city 9999"
    began = time.perf_counter()
    for number in range(20):
        ledger.said("mira", "city", f"further {number}")
    assert (time.perf_counter() - began) / 20 < 0.2
    current = ledger.facts(subject="mira")[0]["id"]
    seen, cursor = 0, ""
    while cursor is not None:
        path = f"/facts/{current}/history/?limit=200" + (f"&cursor={cursor}" if cursor else "")
        page = ledger.send("GET", path, sound=False).json()
        seen, cursor = seen + len(page["results"]), page["next"]
    assert seen == 10_020


TYPES: list[tuple[str, dict[str, Any], list[tuple[Any, Any]], list[Any]]] = [
    ("text", {"type": "string", "maxLength": 10}, [("  café ", "café"), ("", "")], [5, "x" * 11, None]),
    ("number", {"type": "number", "minimum": 0}, [(1.0, 1), (0.5, 0.5), (10**15, 10**15)], [-1, "1", True]),
    ("integer", {"type": "integer"}, [(7, 7), (7.0, 7)], [7.5, "7"]),
    ("date", {"type": "string", "format": "date"}, [("2024-02-29", "2024-02-29")], ["2023-02-29", "29.02.2024"]),
    (
        "instant",
        {"type": "string", "format": "date-time"},
        [("2026-06-01T11:00:00+02:00", "2026-06-01T09:00:00Z")],
        ["2026-06-01T11:00:00", "yesterday"],
    ),
    ("choice", {"enum": ["red", "green"]}, [("red", "red")], ["blue", "RED"]),
    ("flag", {"type": "boolean"}, [(True, True), (False, False)], [0, "true"]),
    ("list", {"type": "array", "items": {"type": "string"}, "maxItems": 3}, [(["b", "a"], ["b", "a"])], [["a"] * 4]),
    (
        "nested",
        {
            "type": "object",
            "properties": {"street": {"type": "string"}, "rooms": {"type": "array", "items": {"type": "integer"}}},
            "required": ["street"],
            "additionalProperties": False,
        },
        [({"street": "Via Po", "rooms": [1, 2]}, {"rooms": [1, 2], "street": "Via Po"})],
        [{"rooms": [1]}, {"street": 5}, {"street": "x", CANARY: 1}],
    ),
]


@pytest.mark.parametrize(("name", "schema", "good", "bad"), TYPES, ids=[each[0] for each in TYPES])
def test_c135_every_declared_type_round_trips_and_a_bad_value_is_a_422_at_its_place(
    ledger: Ledger, organisation: Any, name: str, schema: dict[str, Any], good: list[Any], bad: list[Any]
) -> None:
    publish(organisation, [{"name": name, "schema": schema}])
    for place, (sent, kept) in enumerate(good):
        fact = ledger.said(f"s{place}", name, sent)["fact"]
        assert fact["value"] == kept
        assert type(fact["value"]) is type(kept)
        assert ledger.values(f"s{place}", name) == [kept]
    for value in bad:
        refused = ledger.say("bad", name, value)
        if value is None:
            assert refused.status_code == 400  # null is no value
            continue
        assert refused.status_code == 422
        assert refused.json()["errors"][0]["path"].startswith("value")
    assert ledger.facts(subject="bad") == []


def test_an_end_leaves_nothing_known_to_hold(ledger: Ledger) -> None:
    ledger.said("mira", "city", "Rome", valid_from="2026-01-01T00:00:00Z")
    ended = ledger.said("mira", "city", ended=True, valid_from="2026-02-01T00:00:00Z")
    assert (ended["change"], ended["fact"]) == ("ended", None)
    assert ledger.values() == []
    assert ledger.values(valid_at="2026-01-15T00:00:00Z") == ["Rome"]
    assert ledger.say("mira", "city", "Rome", ended=True).json()["code"] == "ended_with_value_on_single"
    ledger.said("mira", "tag", "a")
    ledger.said("mira", "tag", "b")
    assert ledger.said("mira", "tag", "a", ended=True)["change"] == "ended"
    assert ledger.values(attribute="tag") == ["b"]


def test_a_portion_holds_for_its_length_and_then_what_stands_without_it(ledger: Ledger) -> None:
    ledger.said("mira", "city", "Rome", valid_from="2026-01-01T00:00:00Z")
    ledger.said("mira", "city", "Nice", valid_from="2026-02-01T00:00:00Z", valid_to="2026-02-10T00:00:00Z")
    assert ledger.values(valid_at="2026-02-05T00:00:00Z") == ["Nice"]
    assert ledger.values(valid_at="2026-02-10T00:00:00Z") == ["Rome"]
    assert (
        ledger.say("mira", "city", "x", valid_from="2026-02-02T00:00:00Z", valid_to="2026-02-01T00:00:00Z").status_code
        == 400
    )


def test_a_correction_takes_the_wrong_saying_back_and_stands_in_its_place(ledger: Ledger) -> None:
    wrong = ledger.said("mira", "city", "Rom", valid_from="2026-01-01T00:00:00Z")
    right = ledger.said("mira", "city", "Rome", corrects=wrong["evidence"])
    assert right["change"] == "corrected"
    assert right["fact"]["valid_from"] == "2026-01-01T00:00:00Z"
    assert ledger.values(valid_at="2026-01-02T00:00:00Z") == ["Rome"]
    assert ledger.values(known_at=wrong["fact"]["recorded_at"]) == ["Rom"]


def test_retracting_a_fact_or_a_piece_of_evidence_lets_stand_what_is_left(ledger: Ledger) -> None:
    ledger.said("mira", "city", "Rome", valid_from="2026-01-01T00:00:00Z")
    turin = ledger.said("mira", "city", "Turin", valid_from="2026-02-01T00:00:00Z")
    again = ledger.said("mira", "city", "Turin", valid_from="2026-03-01T00:00:00Z", status=200)
    answer = ledger.post(f"/evidence/{again['evidence']}/retract/", {"reason": "duplicate"})
    assert (answer.status_code, answer.json()["evidence"]) == (200, [again["evidence"]])
    assert ledger.values() == ["Turin"]
    assert ledger.post(f"/facts/{turin['fact']['id']}/retract/", {"reason": "recorded_wrongly"}).status_code == 200
    assert ledger.values() == ["Rome"]
    repeated = ledger.post(f"/facts/{turin['fact']['id']}/retract/", {"reason": "recorded_wrongly"})
    assert (repeated.status_code, repeated.json()["code"]) == (409, "already_retracted")
    assert ledger.post(f"/facts/{turin['fact']['id']}/retract/", {"reason": CANARY}).status_code == 400


def test_what_a_more_trusted_writer_said_is_not_taken_back_by_a_less_trusted_one(
    ledger: Ledger, organisation: Any
) -> None:
    low = Ledger(organisation.agent("low", trust=10))
    written = ledger.said("mira", "city", "Rome")
    for answer in (
        low.post(f"/facts/{written['fact']['id']}/retract/", {"reason": "other"}),
        low.say("mira", "city", "Turin", corrects=written["evidence"]),
    ):
        assert (answer.status_code, answer.json()["code"]) == (403, "trust_too_low")
        assert answer.json()["receipt"]
    assert ledger.values() == ["Rome"]


def test_what_is_above_a_writers_clearance_is_not_there_to_be_taken_back(ledger: Ledger, organisation: Any) -> None:
    low = Ledger(organisation.agent("low", clearance="internal"))
    sure: dict[str, Any] = {"provenance": {"turn_id": "t", "tool_call_id": "c"}}
    written = ledger.said("mira", "diagnosis", "flu", valid_from="2026-01-01T00:00:00Z", **sure)
    ended = ledger.said("mira", "diagnosis", ended=True, valid_from="2026-02-01T00:00:00Z", **sure)
    for path in (
        f"/facts/{written['fact']['id']}/retract/",
        f"/evidence/{written['evidence']}/retract/",
        f"/evidence/{ended['evidence']}/retract/",
    ):
        assert low.post(path, {"reason": "other"}).status_code == 404
    for wanted in (written["evidence"], ended["evidence"]):
        refused = low.say("mira", "diagnosis", "cold", corrects=wanted, **sure)
        assert (refused.status_code, refused.json()["code"]) == (422, "not_found")
    assert ledger.values(attribute="diagnosis", valid_at="2026-01-15T00:00:00Z") == ["flu"]
    assert ledger.values(attribute="diagnosis") == []


def test_what_expired_cannot_be_taken_back_to_let_what_held_before_hold_again(ledger: Ledger) -> None:
    ledger.said("mira", "city", "Rome", valid_from="2026-01-01T00:00:00Z")
    brief = ledger.said("mira", "city", "Turin", valid_from="2026-02-01T00:00:00Z", retention=short_lived())
    time.sleep(1.3)
    for path in (f"/facts/{brief['fact']['id']}/retract/", f"/evidence/{brief['evidence']}/retract/"):
        refused = ledger.post(path, {"reason": "other"})
        assert (refused.status_code, refused.json()["code"]) == (409, "fact_ended")
    assert ledger.values() == []


def test_a_conflict_of_equals_is_asked_about_or_refused_as_the_policy_says(ledger: Ledger, organisation: Any) -> None:
    ledger.said("mira", "likes", "no", valid_from="2026-01-01T00:00:00Z")
    asked = ledger.said("mira", "likes", "yes", valid_from="2026-01-01T00:00:00Z", status=202)
    assert (asked["verdict"], asked["reasons"]) == ("ask", ["conflict_of_equals"])
    candidate = ledger.ok(f"/candidates/{asked['candidate']}/")
    assert (candidate["value"], candidate["state"]) == ("yes", "asked")
    publish_policy(organisation, on_conflict="refuse")
    refused = ledger.say("mira", "likes", "yes", valid_from="2026-01-01T00:00:00Z")
    assert (refused.status_code, refused.json()["code"], refused.json()["rule"]) == (
        409,
        "conflict",
        "builtin.conflict",
    )
    assert ledger.values(attribute="likes") == ["no"]


def test_a_weak_signal_waits_until_it_recurs(ledger: Ledger) -> None:
    weak: dict[str, Any] = {"confidence": 0.3}
    first = ledger.said("mira", "mood", "glad", provenance={"turn_id": "turn-1"}, status=202, **weak)
    assert first["verdict"] == "buffer"
    assert ledger.values(attribute="mood") == []
    again = ledger.said("mira", "mood", "glad", provenance={"turn_id": "turn-2"}, **weak)
    assert again["fact"]["value"] == "glad"
    assert ledger.ok(f"/candidates/{first['candidate']}/")["state"] == "promoted"


def test_what_is_always_confirmed_waits_for_a_person(ledger: Ledger) -> None:
    asked = ledger.said("mira", "iban", "IT60X0542811101000000123456", status=202)
    assert (asked["verdict"], asked["reasons"]) == ("ask", ["confirmation_required"])
    claimed = ledger.say("mira", "iban", "x", provenance={"turn_id": "t", "source": "confirmation"})
    assert (claimed.status_code, claimed.json()["code"]) == (422, "a_person_confirms")
    assert [each["id"] for each in ledger.walk("/candidates/", state="asked", limit=1)] == [asked["candidate"]]
    assert ledger.walk("/candidates/", state="buffered") == []


def test_a_refused_write_leaves_a_receipt_an_audit_entry_and_nothing_else(ledger: Ledger, superuser: Any) -> None:
    def counts() -> dict[str, int]:
        tables = ("subject", "subjectidentifier", "factkey", "fact", "evidence", "payload", "belief", "candidate")
        return {
            table: superuser.execute(
                f"SELECT count(*) FROM memory_{table} WHERE tenant_id = %s", [ledger.agent.actor.tenant]
            ).fetchone()[0]
            for table in tables
        }

    before = counts()
    for body in (
        saying("new", "city", "x", provenance={"turn_id": "t", "consent_ref": "none"}),
        saying("new", "newsletter", True),
        saying("new", "unknown_attribute", CANARY),
        saying("new", "likes", CANARY),
        saying("new", "city", "x", retention={"basis": "session", "expires_at": "2020-01-01T00:00:00Z"}),
    ):
        refused = ledger.post("/facts/", body)
        assert refused.status_code == 422
        receipt = refused.json()["receipt"]
        row = superuser.execute("SELECT act, verdict FROM memory_receipt WHERE id = %s", [receipt]).fetchone()
        assert row == ("write.refused", "reject")
        entry = superuser.execute(
            "SELECT action, actor_id FROM tenants_auditevent WHERE target_id = %s", [receipt]
        ).fetchone()
        assert entry == ("write.refused", ledger.agent.actor.id)
    assert counts() == before


def test_a_batch_answers_each_item_in_its_place_and_keeps_what_is_good(ledger: Ledger) -> None:
    items: list[Any] = [
        saying(value="Rome"),
        saying(value="Rome", valid_from="2026-01-01"),
        "no object",
        saying(attribute="unknown", value="x"),
        saying(attribute="iban", value="x"),
        saying(value="Turin"),
        saying(attribute="tag", value="a", surprise=CANARY),
    ]
    answer = ledger.post("/facts/batch/", {"items": items})
    assert answer.status_code == 200
    results = answer.json()["results"]
    assert [each["index"] for each in results] == list(range(7))
    assert [each["status"] for each in results] == [201, 400, 400, 422, 202, 201, 400]
    assert results[1]["errors"] == [{"path": "items[1].valid_from", "code": "not_an_instant"}]
    assert results[2]["errors"] == [{"path": "items[2]", "code": "not_an_object"}]
    assert results[3]["errors"] == [{"path": "items[3].attribute", "code": "unknown_attribute"}]
    assert results[6]["errors"] == [{"path": "items[6]", "code": "unknown_field"}]
    assert CANARY not in answer.content.decode()
    assert results[0]["fact"]["value"] == "Rome"
    assert results[5]["fact"]["value"] == "Turin"
    assert ledger.values() == ["Turin"]


@pytest.mark.parametrize("items", [[], [saying(value="x")] * 1001, "x", None])
def test_a_batch_holds_one_to_a_thousand_items(ledger: Ledger, items: Any) -> None:
    refused = ledger.post("/facts/batch/", {"items": items})
    assert refused.status_code == 400
    assert refused.json()["errors"][0]["path"] == "items"


def test_a_writer_below_the_keys_class_gets_a_blind_receipt_whatever_became_of_it(
    ledger: Ledger, organisation: Any
) -> None:
    blind = Ledger(organisation.agent("blind", clearance="internal"))
    when = "2026-01-01T00:00:00Z"
    answers = [blind.say("mira", "passport_deadline", "2026-07-15", valid_from=when) for _ in range(2)]
    answers.append(blind.say("mira", "passport_deadline", "2026-08-15", valid_from=when))  # a conflict of equals
    for answer in answers:
        assert answer.status_code == 201
        assert set(answer.json()) == {"receipt"}
    items = [saying(attribute="passport_deadline", value="2026-09-15", valid_from=when), saying(value="Rome")]
    first, second = blind.post("/facts/batch/", {"items": items}).json()["results"]
    assert first == {"index": 0, "status": 201}
    assert second["fact"]["value"] == "Rome"
    page = blind.ok("/facts/", subject="mira", attribute="passport_deadline")
    assert (page["results"], page["withheld"]) == ([], {"above_clearance": 1})
    assert ledger.values(attribute="passport_deadline") == ["2026-07-15"]
    explained = blind.post("/policies/explain/", {"fact": items[0]}).json()
    assert (explained["verdict"], explained["rule"]) == ("accept", "everything-else-is-kept")


def test_explain_tells_the_verdict_that_the_write_gets_and_stores_nothing(
    ledger: Ledger, organisation: Any, superuser: Any
) -> None:
    ledger.said("mira", "likes", "no", valid_from="2026-01-01T00:00:00Z")
    bodies = [
        (saying(value="Rome"), "accept"),
        (saying("mira", "likes", "yes", valid_from="2026-01-01T00:00:00Z"), "ask"),
        (saying("mira", "iban", "x"), "ask"),
        (saying("mira", "mood", "glad", confidence=0.2), "buffer"),
        (saying("mira", "city", "x", confidence=0.2), "ask"),
        (saying("mira", "unknown", "x"), "reject"),
        (saying("mira", "newsletter", True), "reject"),
        (saying("stranger", "passport_deadline", "2026-07-15"), "accept"),
    ]
    tables = [
        "memory_subject",
        "memory_factkey",
        "memory_evidence",
        "memory_receipt",
        "memory_candidate",
        "tenants_auditevent",
    ]

    def rows() -> list[int]:
        return [superuser.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in tables]

    before = rows()
    explained = [ledger.post("/policies/explain/", {"fact": body}).json() for body, _ in bodies]
    assert rows() == before
    assert [each["verdict"] for each in explained] == [verdict for _, verdict in bodies]
    for (body, verdict), told in zip(bodies, explained, strict=True):
        answer = ledger.post("/facts/", body)
        assert answer.status_code == {"accept": 201, "ask": 202, "buffer": 202, "reject": 422}[verdict]
        if verdict in ("ask", "buffer"):
            assert (answer.json()["verdict"], answer.json()["reasons"]) == (verdict, told["reasons"])
        if verdict == "reject":
            assert (answer.json()["code"], answer.json()["rule"]) == (told["code"], told["rule"])
        if verdict == "accept":
            written, foreseen = (
                datetime.fromisoformat(each)
                for each in (answer.json()["fact"]["retention"]["expires_at"], told["expires_at"])
            )
            assert timedelta() <= written - foreseen < timedelta(minutes=1)
            assert told["sensitivity"] == answer.json()["fact"]["sensitivity"]
            assert told["policy_version"] == "starter@1"
    assert explained[0]["expiry_rule"] == "session×internal=P30D"


def test_the_attributes_in_force_are_listed_by_pages(ledger: Ledger) -> None:
    listed = ledger.walk("/attributes/", limit=3)
    assert [each["name"] for each in listed] == [
        "passport_deadline",
        "likes",
        "city",
        "tag",
        "diagnosis",
        "newsletter",
        "mood",
        "iban",
    ]
    assert listed[1]["schema"] == {"enum": ["yes", "no"]}
    assert {each["version"] for each in listed} == {1}
    for query in ({"cursor": "x"}, {"limit": "0"}, {"limit": "201"}, {"limit": "x"}, {"limit": "1_0"}):
        assert ledger.get("/attributes/", **query).status_code == 400
