"""What is redacted is gone from every row, reads as a tombstone everywhere, and does not come back."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import DatabaseError

from memory import context, derived, extracting, recall, rows
from memory.contracts import RecallBody, parse
from memory.outcomes import Repeat
from retention import certificates, endings_log, redaction, runs
from retention.redaction import Kind, Pick
from retention.strategies import GONE, MASK, Strategy
from tenants.actors import MemberRole
from tenants.errors import Clash, Forbidden, Missing, Refused
from tenants.isolation import Role, tenant_transaction
from tenants.secrets import provider
from tests.memory.doors import assert_sound, day
from tests.retention.canary import found_in
from tests.retention.legal import place_raw
from tests.retention.redacting import Redacting, episode, fact

TEXT = "My name is Mira, I live in Berlin and my plan is gold"
QUOTE = "I live in Berlin"


@pytest.fixture
def doors(database: Any) -> Redacting:
    return Redacting()


def told(doors: Redacting, value: str = "Berlin") -> Any:
    said = doors.episode(TEXT, subject="mira", role="user", extract="no")
    return doors.say("city", value, 1, episode=said.id, quote=QUOTE), said


def tombstone(type_: str = "string", *fields: str, left: Any = None) -> dict[str, Any]:
    return {"redacted": True, "type": type_, "fields": list(fields) or ["value"], "left": left}


# reading ----------------------------------------------------------------------------------------------------------------


def test_every_read_of_a_redacted_fact_gives_a_tombstone_in_its_stretch(doors: Redacting) -> None:
    doors.say("city", "Paris", 0)
    written, _said = told(doors)
    doors.say("city", "Rome", 3)
    before = datetime.now(UTC)
    doors.redact(fact(written.fact))
    stone = tombstone()
    # As of then, as known before it was redacted, by its id, in the history and the lineage.
    assert [each["value"] for each in doors.page("city", valid_at=day(2)).results] == [stone]
    assert [each["value"] for each in doors.page("city", valid_at=day(2), known_at=before).results] == [stone]
    assert doors.fact(written.fact)["value"] == stone
    assert doors.fact(written.fact)["redaction"] == {"state": "applied", "fields": ["value"]}
    with doors.reading():
        history = recall.history(doors.agent, written.fact)
        lineage = recall.lineage(doors.agent, written.fact)
    assert {json.dumps(each["value"]) for each in history["stretches"]} == {'"Paris"', '"Rome"', json.dumps(stone)}
    said_of_it = [each for each in history["results"] if each["fact"] == written.fact] + lineage["sources"]
    for each in said_of_it:
        assert each["value"] == stone
        assert each["provenance"]["quote"] == tombstone("text", "quote")
        assert each["redaction"] == {"state": "applied", "fields": ["quote", "value"]}
    # What held before and after it is as it was.
    assert doors.value("city", 1 - 0.5) == "Paris"
    assert doors.value("city", 4) == "Rome"
    assert_sound(doors)


def test_c087_the_same_read_as_of_then_shows_no_more_than_may_be_kept_now(doors: Redacting) -> None:
    written, _ = told(doors)
    then = datetime.now(UTC)
    assert doors.values("city", 2, then) == ["Berlin"]
    doors.redact(fact(written.fact))
    assert [each["value"] for each in doors.page("city", valid_at=day(2), known_at=then).results] == [tombstone()]


def test_profile_context_and_text_say_that_something_was_redacted_and_not_what(doors: Redacting) -> None:
    written, said = told(doors)
    doors.redact(fact(written.fact), episode(said.id))
    with doors.reading():
        text = derived.profile(doors.agent, "mira")
        asked = parse(RecallBody, {"question": "city?", "subject": "mira", "attributes": ["city"], "purpose": "support",
                                   "budget_tokens": 500})  # fmt: skip
        answer = context.recalled(doors.agent, asked, now=datetime.now(UTC))
    assert "city = (redacted)" in text.text
    assert [item["value"] for item in answer["context"]] == [tombstone()]
    assert "city = (redacted)" in answer["text"]
    assert "Berlin" not in text.text + answer["text"]


def test_the_type_of_a_tombstone_is_the_schemas(doors: Redacting) -> None:
    born = doors.say("born", "2001-02-03", 1)
    doors.redact(fact(born.fact, Strategy.GENERALISE))
    assert doors.fact(born.fact)["value"] == tombstone("date", left="2001")


def test_fields_go_and_the_rest_is_left(doors: Redacting) -> None:
    contact = doors.say("contact", {"mail": "mira@example.com", "phone": "+49 30 901820"}, 1)
    doors.redact(fact(contact.fact, Strategy.NULL, "phone"))
    assert doors.fact(contact.fact)["value"] == tombstone(
        "object", "value.phone", left={"mail": "mira@example.com", "phone": None}
    )
    # And more of it, later.
    doors.redact(fact(contact.fact, Strategy.GENERALISE, "mail"))
    assert doors.fact(contact.fact)["value"] == tombstone(
        "object", "value.mail", "value.phone", left={"mail": "…@example.com", "phone": None}
    )


def test_no_empty_row_is_left_where_something_else_stands_in_its_place(doors: Redacting) -> None:
    written, said = told(doors)
    doors.redact(fact(written.fact, Strategy.MASK), episode(said.id, (0, 2)))
    assert (
        doors.sql(
            "SELECT p.purpose FROM memory_payload p WHERE NOT EXISTS (SELECT FROM memory_fact f WHERE f.payload_id = p.id)"
            " AND NOT EXISTS (SELECT FROM memory_episode e WHERE e.payload_id = p.id)"
            " AND NOT EXISTS (SELECT FROM memory_evidence e WHERE e.quote_id = p.id) AND p.purpose NOT IN ('subject', 'alias')"
        )
        == []
    )
    doors.redact(fact(written.fact))
    assert doors.fact(written.fact)["value"] == tombstone()
    assert_sound(doors)


def test_a_pseudonym_is_stable_for_a_subject_and_another_for_another(doors: Redacting) -> None:
    left = []
    for subject, attribute in (("mira", "city"), ("mira", "plan"), ("noor", "city")):
        said = doors.say(attribute, "Berlin", 1, subject=subject)
        doors.redact(fact(said.fact, Strategy.PSEUDONYM))
        left.append(doors.fact(said.fact)["value"]["left"])
    assert left[0] == left[1] != left[2]


def test_a_whole_episode_reads_as_a_tombstone_and_a_part_of_it_as_a_mark(doors: Redacting) -> None:
    _, said = told(doors)
    start = TEXT.index("Mira")
    doors.redact(episode(said.id, (start, start + 4)))
    with doors.reading():
        shown = recall.episode(doors.agent, said.id)
    assert shown["content"] == TEXT.replace("Mira", GONE)
    assert shown["redaction"] == {"state": "applied", "fields": ["content"]}
    doors.redact(episode(said.id))
    with doors.reading():
        assert recall.episode(doors.agent, said.id)["content"] == tombstone("text", "content")


def test_what_is_left_of_an_episode_is_found_by_its_words_and_what_went_is_not(doors: Redacting) -> None:
    _, said = told(doors)
    start = TEXT.index("Berlin")
    doors.redact(episode(said.id, (start, start + 6), strategy=Strategy.MASK))

    def found(word: str) -> list[str]:
        body = parse(RecallBody, {"question": word, "subject": "mira", "purpose": "support", "budget_tokens": 500})
        with doors.reading():
            answer = context.recalled(doors.agent, body, now=datetime.now(UTC))
        return [item["text"] for item in answer["context"] if item["type"] == "episode"]

    assert found("gold plan") == [TEXT.replace("Berlin", MASK)]
    assert found("Berlin") == []


def test_a_candidate_reads_as_a_tombstone_and_is_decided_no_more(doors: Redacting) -> None:
    asked = doors.say("checked", "yes", 1)
    doors.redact(Pick(kind=Kind.CANDIDATE, target=asked.candidate))
    with doors.reading():
        shown = recall.candidate(doors.agent, asked.candidate)
    assert shown["value"] == tombstone()
    assert shown["state"] == "expired"
    assert doors.decide(asked.candidate).code == "already_decided"


def test_only_the_quote_goes_where_the_quote_was_picked(doors: Redacting) -> None:
    written, _said = told(doors)
    doors.say("city", "Berlin", 2)
    doors.redact(Pick(kind=Kind.EVIDENCE, target=written.evidence))
    assert doors.value("city", 3) == "Berlin"
    with doors.reading():
        sources = recall.lineage(doors.agent, written.fact)["sources"]
    assert [each["provenance"]["quote"] for each in sources] == [tombstone("text", "quote"), None]


# what falls with it -----------------------------------------------------------------------------------------------------


def test_a_fact_whose_last_quote_fell_goes_to_a_person_hidden_until_then(doors: Redacting) -> None:
    _written, said = told(doors)
    start = TEXT.index("Berlin")
    outcome = doors.redact(episode(said.id, (start, start + 6)))
    assert doors.value("city", 2) is None
    with doors.acting(doors.officer):
        (waiting,) = redaction.queue(doors.id)
    assert (waiting.id, waiting.reason) == (outcome.asked[0], "quote_fell")
    assert waiting.requested_by == doors.reviewer.id
    doors.refuse(waiting)
    assert doors.value("city", 2) == "Berlin"


def test_a_fact_that_was_not_quoted_from_there_stays(doors: Redacting) -> None:
    written, said = told(doors)
    start = TEXT.index("gold")
    assert doors.redact(episode(said.id, (start, start + 4))).asked == ()
    assert doors.value("city", 2) == "Berlin"
    with doors.reading():
        assert recall.lineage(doors.agent, written.fact)["sources"][0]["provenance"]["quote"] == QUOTE


# nothing stays ------------------------------------------------------------------------------------------------------------


def test_nothing_of_it_stays_in_any_row(doors: Redacting, superuser: Any) -> None:
    canary = "canary7f3a"
    said = doors.episode(f"I live in {canary} now", subject="mira", role="user", extract="no", sensitivity="public")
    clear = doors.say("shade", canary, 1, episode=said.id, quote=f"I live in {canary}")
    asked = doors.say("checked", canary, 1)
    digest = doors.sql("SELECT value_digest FROM memory_fact WHERE id = %s", clear.fact)[0][0]
    content = doors.sql("SELECT content_digest FROM memory_episode WHERE id = %s", said.id)[0][0]
    with doors.reading():
        derived.profile(doors.agent, "mira")
    assert found_in(superuser, canary) != []
    doors.redact(fact(clear.fact), episode(said.id), Pick(kind=Kind.CANDIDATE, target=asked.candidate))
    assert found_in(superuser, canary) == []
    # The chain keeps the digest of what was written, which dies with its subject's key; no row that can change does.
    for kept in (bytes(digest), bytes(content)):
        assert set(found_in(superuser, kept.hex())) <= {"tenants_auditevent"}
    assert doors.sql("SELECT count(*) FROM memory_searchentry WHERE subject_id IS NOT NULL AND kind <> 'name'") == [
        (0,)
    ]


def test_a_redacted_value_does_not_come_back(doors: Redacting) -> None:
    written, said = told(doors)
    doors.redact(fact(written.fact), episode(said.id))
    assert doors.say("city", "Berlin", 1).code == "suppressed"
    # Dated after the decision it may be true again, and a person says so.
    assert doors.say("city", "Berlin", datetime.now(UTC)).verdict == "ask"
    assert doors.episode(TEXT, subject="mira", role="user", extract="no", turn_id="another").code == "suppressed"
    assert doors.say("city", "Paris", 1, episode=said.id, quote=QUOTE).code == "not_found"
    with doors.writing(doors.agent), pytest.raises(Missing):
        extracting.ask(doors.agent, said.id)
    assert [each["value"] for each in doors.page("city", valid_at=day(2)).results] == [tombstone()]


def test_a_repeated_request_is_answered_with_the_tombstone_or_anew_never_with_the_value(doors: Redacting) -> None:
    repeat = Repeat("key-1", "POST facts", b"{}")
    body = doors.body("city", "Berlin", 1, turn="turn-r")
    first = doors.write([body], repeat=repeat)[0]
    doors.redact(fact(first.fact))
    second = doors.write([body], repeat=repeat)[0]
    assert second.code == "suppressed"
    assert doors.sql(
        "SELECT count(*) FROM memory_idempotencyrecord WHERE outcome::text LIKE %s", f"%{first.fact}%"
    ) == [(0,)]


# deciding -----------------------------------------------------------------------------------------------------------------


def test_nobody_applies_their_own_and_only_an_officer_does(doors: Redacting) -> None:
    written, _ = told(doors)
    own = doors.propose(fact(written.fact), by=doors.officer)
    with pytest.raises(Forbidden, match="own_request"):
        doors.apply(own)
    with pytest.raises(Forbidden, match="role_missing"):
        doors.apply(own, by=doors.reviewer)
    assert doors.apply(own, by=doors.organisation.person(MemberRole.PRIVACY_OFFICER).actor).applied


def test_an_application_is_bound_to_what_was_shown(doors: Redacting) -> None:
    written, _ = told(doors)
    request = doors.propose(fact(written.fact))
    seen = doors.examine(request).digest
    doors.say("city", "Berlin", 4, by=doors.high)
    with pytest.raises(Clash, match="changed_since_shown"):
        doors.apply(request, shown=seen)
    assert doors.apply(request).applied
    with pytest.raises(Clash, match="already_decided"):
        doors.apply(request, shown=seen)


def test_a_hold_placed_after_the_preview_wins_and_the_attempt_is_recorded(doors: Redacting) -> None:
    written, said = told(doors)
    request = doors.propose(fact(written.fact))
    seen = doors.examine(request).digest
    hold = place_raw(doors.id, {"record_kind": "episode", "record_id": said.id})
    with pytest.raises(Clash, match="changed_since_shown"):
        doors.apply(request, shown=seen)
    outcome = doors.apply(request)
    assert not outcome.applied
    assert {each for found in outcome.held.values() for each in found} == {hold}
    with doors.acting(doors.officer):
        refused = rows.fetch("SELECT record_kind, act FROM retention_refusedending ORDER BY record_kind", [])
        assert refused == [("evidence", "redaction"), ("fact", "redaction")]
        assert rows.fetch("SELECT state FROM retention_redactionrequest", []) == [("required",)]
    assert doors.sql("SELECT count(*) FROM memory_payload WHERE clear IS NULL AND sealed IS NULL") == [(0,)]
    assert doors.value("city", 2) is None


def test_a_reason_that_is_none_is_refused(doors: Redacting) -> None:
    written, _ = told(doors)
    request = doors.propose(fact(written.fact))
    with pytest.raises(Refused), doors.acting(doors.officer):
        redaction.apply(doors.officer, request.id, shown=b"", reason="because", now=datetime.now(UTC))
    with pytest.raises(Missing):
        doors.examine(_foreign())


def test_raw_sql_of_no_role_takes_a_redaction_back(doors: Redacting) -> None:
    written, said = told(doors)
    doors.redact(fact(written.fact), episode(said.id))
    tries = [
        *(
            f"UPDATE {table} SET redaction_state = '{state}' WHERE redaction_state = 'applied' RETURNING id"
            for table in ("memory_fact", "memory_episode", "memory_evidence", "memory_payload")
            for state in ("none",)
        ),
        "UPDATE memory_fact SET redaction_fields = '{}' WHERE redaction_state = 'applied' RETURNING id",
        "UPDATE memory_fact SET ended_at = NULL, ended_by = NULL WHERE redaction_state = 'applied' RETURNING id",
        "UPDATE memory_payload SET clear = 'Berlin', ended_at = NULL WHERE redaction_state = 'applied' RETURNING id",
        "UPDATE memory_payload SET sealed = 'Berlin', ended_at = NULL WHERE redaction_state = 'applied' RETURNING id",
        "UPDATE retention_redactionrequest SET state = 'required' RETURNING id",
    ]
    for role in (Role.AGENT, Role.WRITER, Role.WORKER, Role.STAFF, Role.FRONT):
        for statement in tries:
            with (
                pytest.raises(DatabaseError),
                tenant_transaction(role, tenant=doors.id, clearance=3, actor=doors.officer.id),
            ):
                rows.fetch(statement, [])


def test_a_certificate_says_what_was_done_and_what_it_does_not_reach(doors: Redacting) -> None:
    written, said = told(doors)
    outcome = doors.redact(fact(written.fact, Strategy.MASK), episode(said.id))
    with doors.acting(doors.officer):
        assert outcome.proposal.certificate_id is not None
        assert outcome.proposal.run_id is not None
        certificate = certificates.find(doors.id, outcome.proposal.certificate_id)
        run = runs.find(doors.id, outcome.proposal.run_id)
    assert run is not None
    assert run.state == "done"
    verdict = certificates.verify(certificates.export(certificate), provider().public_key_pem())
    assert verdict.sound
    assert verdict.certificate is not None
    body = verdict.certificate["body"]
    assert body["redaction"] == str(outcome.proposal.id)
    assert body["items"] == [["episode", str(said.id), "null"], ["fact", str(written.fact), "mask"]]
    assert "backups_until_they_age_out" in body["not_reached"]
    assert "Berlin" not in str(verdict.certificate)


def test_the_log_of_endings_tells_it_outside_the_database(doors: Redacting) -> None:
    written, said = told(doors)
    outcome = doors.redact(fact(written.fact), episode(said.id))
    (entry,) = [each for each in endings_log.told(doors.id) if each.kind == "redaction"]
    assert entry.target == outcome.proposal.id
    assert {(kind, record) for kind, record, _ in entry.record["records"]} >= {
        ("fact", str(written.fact)),
        ("episode", str(said.id)),
    }


def test_however_many_records_they_are_all_told_outside(doors: Redacting, monkeypatch: pytest.MonkeyPatch) -> None:
    longest = json.dumps(["candidate", str(doors.id), str(doors.id)])
    assert redaction._TOLD_AT_ONCE * (len(longest) + 2) + 100 < endings_log._LONGEST_RECORD
    monkeypatch.setattr(redaction, "_TOLD_AT_ONCE", 2)
    written, _ = told(doors)
    for number in range(4):
        doors.say("city", "Berlin", 2 + number)
    doors.redact(fact(written.fact))
    entries = [each for each in endings_log.told(doors.id) if each.kind == "redaction"]
    assert [len(each.record["records"]) for each in entries] == [2, 2, 2]


def test_each_redacted_record_stands_in_the_chain(doors: Redacting) -> None:
    written, said = told(doors)
    request = doors.propose(fact(written.fact), episode(said.id))
    doors.apply(request)
    told_of = doors.sql("SELECT target_kind, target_id FROM tenants_auditevent WHERE action = 'content.redacted'")
    assert set(told_of) == {("fact", written.fact), ("episode", said.id), ("evidence", written.evidence)}
    entry = doors.sql("SELECT actor_id, reason, digest FROM tenants_auditevent WHERE action = 'redaction.applied'")
    assert entry[0][:2] == (doors.officer.id, "checked")
    assert entry[0][2] is not None


def _foreign() -> Any:
    other = Redacting()
    return other.propose(fact(told(other)[0].fact))
