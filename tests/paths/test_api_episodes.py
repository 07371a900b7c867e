"""Episodes, subjects and consents over HTTP."""

from typing import Any

import pytest

from tests.paths.ledger import CANARY, Ledger, saying


def episode(**rest: Any) -> dict[str, Any]:
    return {
        "kind": "message",
        "content": "I moved to Turin.",
        "session_id": "session-1",
        "turn_id": "turn-1",
        "occurred_at": "2026-06-01T09:00:00Z",
        **rest,
    }


def test_an_episode_comes_back_as_it_was_received(ledger: Ledger) -> None:
    content = "Ciao – «Torino»\n\tline two 🦊"
    kept = ledger.post("/episodes/", episode(content=content, role="user", subject="mira"))
    assert kept.status_code == 201
    assert {name: kept.json()[name] for name in ("facts", "asked", "buffered", "rejected")} == {
        "facts": [],
        "asked": [],
        "buffered": [],
        "rejected": [],
    }
    read = ledger.ok(f"/episodes/{kept.json()['id']}/")
    assert (read["content"], read["role"], read["session_id"]) == (content, "user", "session-1")
    assert read["occurred_at"] == "2026-06-01T09:00:00Z"
    assert read["retention"]["basis"] == "session"


def test_a_tool_result_may_be_json_and_needs_its_call(ledger: Ledger) -> None:
    body = episode(kind="tool_result", content={"b": [1, "é"], "a": None}, tool_call_id="call-1")
    kept = ledger.post("/episodes/", body).json()
    assert ledger.ok(f"/episodes/{kept['id']}/")["content"] == '{"a":null,"b":[1,"é"]}'
    body.pop("tool_call_id")
    assert ledger.post("/episodes/", body).status_code == 400


def test_c047_the_same_source_twice_is_one_episode_and_a_second_source_a_second(ledger: Ledger) -> None:
    first = ledger.post("/episodes/", episode(subject="mira"))
    again = ledger.post("/episodes/", episode(subject="mira"))
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json()["id"] == again.json()["id"]
    other = ledger.post("/episodes/", episode(subject="mira", turn_id="turn-2"))
    assert (other.status_code, other.json()["id"] != first.json()["id"]) == (201, True)
    changed = ledger.post("/episodes/", episode(subject="mira", content=CANARY))
    assert (changed.status_code, changed.json()["code"]) == (409, "source_has_other_content")
    quote = {"quote": "moved to Turin", "turn_id": "turn-1"}
    for source, status in ((first, 201), (other, 200)):
        ledger.said("mira", "city", "Turin", provenance={**quote, "source_episode": source.json()["id"]}, status=status)
    (fact,) = ledger.facts(subject="mira")
    assert fact["evidence_count"] == 2


def test_c067_equal_session_and_turn_ids_under_two_subjects_are_two_episodes(ledger: Ledger) -> None:
    mira = ledger.post("/episodes/", episode(subject="mira", content="I am Mira."))
    nora = ledger.post("/episodes/", episode(subject="nora", content="I am Nora."))
    assert (mira.status_code, nora.status_code) == (201, 201)
    assert ledger.ok(f"/episodes/{mira.json()['id']}/")["content"] == "I am Mira."
    assert ledger.ok(f"/episodes/{nora.json()['id']}/")["content"] == "I am Nora."


def test_c099_a_quote_that_is_not_in_the_episode_to_the_letter_is_refused(ledger: Ledger) -> None:
    kept = ledger.post("/episodes/", episode()).json()["id"]
    refused = ledger.say(
        "mira",
        "city",
        "Turin",
        provenance={"turn_id": "t", "source_episode": kept, "quote": f"moved to turin {CANARY}"},
    )
    assert (refused.status_code, refused.json()["code"]) == (422, "quote_not_in_episode")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("content", episode(content="a\0b")),
        ("content", episode(content={"a": ["\0"]})),
        ("content", episode(content="\ud800")),
        ("content", episode(content=5)),
        ("content", episode(content="")),
        ("content", episode(content="x" * 1_048_577)),
        ("session_id", episode(session_id="a\0b")),
        ("session_id", episode(session_id="someone@example.org")),
        ("turn_id", episode(turn_id="4111 1111 1111 1111")),
        ("subject", episode(subject="a\nb")),
        ("subject", episode(subject="x" * 201)),
        ("occurred_at", episode(occurred_at="2026-06-01T09:00:00")),
        ("kind", episode(kind=CANARY)),
        ("extract", episode(extract="soon")),
        ("", episode(**{CANARY: 1})),
    ],
)
def test_c115_what_no_episode_may_hold_is_a_400_naming_the_field(ledger: Ledger, path: str, body: Any) -> None:
    refused = ledger.post("/episodes/", body)
    assert refused.status_code == 400
    if body["content"] == "\ud800":
        assert refused.json()["code"] == "json_malformed"  # no JSON text can hold it
    else:
        assert [each["path"] for each in refused.json()["errors"]] == [path]


@pytest.mark.parametrize("field", ["subject", "attribute", "value", "turn_id", "tool_call_id", "consent_ref"])
def test_c115_a_nul_in_any_text_of_a_fact_is_refused_at_its_place(ledger: Ledger, field: str) -> None:
    body = saying("mira", "city", "Rome")
    where = body if field in body else body["provenance"]
    where[field] = f"{CANARY}\0"
    refused = ledger.post("/facts/", body)
    assert refused.status_code == (422 if field == "value" else 400)
    assert [each["path"] for each in refused.json()["errors"]] == [field if where is body else f"provenance.{field}"]


def test_equal_names_in_different_unicode_forms_are_one_subject(ledger: Ledger) -> None:
    ledger.said("Zoe\u0308", "city", "Rome")
    assert ledger.values("Zo\u00eb") == ["Rome"]
    assert ledger.values(" Zo\u00eb") == []  # otherwise to the letter


def test_c119_a_subject_is_found_by_its_exact_key_and_by_each_alias(ledger: Ledger) -> None:
    named = ledger.send("PUT", "/subjects/", {"key": "mira", "kind": "person", "aliases": ["mira@example.org", "M."]})
    assert (named.status_code, named.json()["taken"]) == (200, 0)
    ledger.said("mira@example.org", "city", "Rome")
    for name in ("mira", "mira@example.org", "M."):
        (fact,) = ledger.facts(subject=name)
        assert fact["value"] == "Rome"
    assert ledger.facts(subject="m.") == []
    again = ledger.send("PUT", "/subjects/", {"key": "mira", "aliases": ["M."]})
    assert again.json() == {"id": named.json()["id"], "taken": 0}
    taken = ledger.send("PUT", "/subjects/", {"key": "nora", "aliases": ["M."]})
    assert taken.json()["taken"] == 1
    assert ledger.values("M.") == ["Rome"]


def test_c120_equal_subject_keys_of_two_tenants_are_two_subjects(ledger: Ledger, foreign: Ledger) -> None:
    ours, theirs = (each.send("PUT", "/subjects/", {"key": "mira"}).json()["id"] for each in (ledger, foreign))
    assert ours != theirs


def test_a_withdrawn_consent_hides_at_once_what_depends_on_it(ledger: Ledger, superuser: Any) -> None:
    granted = ledger.post("/consents/", {"subject": "mira", "ref": "consent/1", "purposes": ["support"]})
    assert (granted.status_code, granted.json()["withdrawn_at"]) == (201, None)
    provenance = {"turn_id": "t", "consent_ref": "consent/1"}
    fact = ledger.said("mira", "newsletter", True, provenance=provenance)["fact"]
    assert fact["provenance"]["consent_ref"] == "consent/1"
    assert fact["retention"]["basis"] == "consent"
    before = fact["recorded_at"]
    withdrawn = ledger.post("/consents/consent/1/withdraw/", {})
    assert withdrawn.status_code == 200
    assert withdrawn.json()["withdrawn_at"] is not None
    assert ledger.post("/consents/consent/1/withdraw/", None).json() == withdrawn.json()
    for query in ({"subject": "mira"}, {"subject": "mira", "valid_at": before, "known_at": before}, {}):
        page = ledger.ok("/facts/", **query)
        assert (page["results"], page["withheld"]) == ([], {"consent": 1})
    assert ledger.get(f"/facts/{fact['id']}/").status_code == 404
    refused = ledger.say("mira", "newsletter", False, provenance=provenance)
    assert (refused.status_code, refused.json()["reasons"]) == (422, ["consent_withdrawn"])
    consent = granted.json()["id"]
    entries = superuser.execute("SELECT action FROM tenants_auditevent WHERE target_id = %s ORDER BY seq", [consent])
    assert [row[0] for row in entries] == ["consent.granted", "consent.withdrawn"]
    work = superuser.execute("SELECT topic FROM memory_outboxentry WHERE target_id = %s", [consent]).fetchall()
    assert work == [("consent.withdrawn",)]


def test_a_consent_is_of_one_subject_and_one_set_of_purposes(ledger: Ledger) -> None:
    body = {"subject": "mira", "ref": "c-1", "purposes": ["support"]}
    first = ledger.post("/consents/", body)
    again = ledger.post("/consents/", body)
    assert (first.status_code, again.status_code, first.json()) == (201, 200, again.json())
    for other in ({**body, "subject": "nora"}, {**body, "purposes": []}):
        refused = ledger.post("/consents/", other)
        assert (refused.status_code, refused.json()["code"]) == (409, "consent_ref_taken")
    assert ledger.facts(subject="nora") == []
    other = ledger.say("nora", "newsletter", True, provenance={"turn_id": "t", "consent_ref": "c-1"})
    assert (other.status_code, other.json()["reasons"]) == (422, ["consent_missing"])
    future = ledger.post("/consents/", {**body, "ref": "c-2", "granted_at": "2999-01-01T00:00:00Z"})
    assert (future.status_code, future.json()["code"]) == (422, "granted_in_the_future")


def test_a_consent_for_other_purposes_than_the_agents_does_not_serve(ledger: Ledger) -> None:
    ledger.post("/consents/", {"subject": "mira", "ref": "c-1", "purposes": ["marketing"]})
    refused = ledger.say("mira", "newsletter", True, provenance={"turn_id": "t", "consent_ref": "c-1"})
    assert (refused.status_code, refused.json()["reasons"]) == (422, ["purpose_not_consented"])
