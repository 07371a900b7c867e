"""A proposed redaction hides at once what it names and what falls with it, and gives it back where it is not wanted."""

from typing import Any

import pytest
from django.db import DatabaseError

from memory import context, derived, recall, rows
from memory.contracts import RecallBody, parse
from retention.redaction import Kind, Pick
from retention.strategies import Strategy
from tenants.errors import Clash, Forbidden, Missing, Refused
from tenants.isolation import Role, tenant_transaction
from tests.memory.doors import day
from tests.retention.legal import place_raw
from tests.retention.redacting import Redacting, episode, fact

TEXT = "I live in Berlin and my plan is gold"


@pytest.fixture
def doors(database: Any) -> Redacting:
    return Redacting()


def told(doors: Redacting, value: str = "Berlin") -> Any:
    """Say where mira lives, by a quote from an episode."""
    said = doors.episode(TEXT, subject="mira", role="user", extract="no")
    return doors.say("city", value, 1, episode=said.id, quote="I live in Berlin"), said


def test_a_proposal_hides_a_fact_from_every_read_in_its_own_transaction(doors: Redacting) -> None:
    written, _said = told(doors)
    doors.propose(fact(written.fact))
    page = doors.page("city")
    assert page.results == []
    assert page.withheld == {"redaction": 1}
    for read in (recall.fact, recall.history, recall.lineage):
        with doors.reading(), pytest.raises(Missing):
            read(doors.agent, written.fact)
    with doors.reading():
        assert derived.profile(doors.agent, "mira").facts == []
    body = parse(RecallBody, {"question": "where does mira live?", "subject": "mira", "attributes": ["city"],
                              "purpose": "support", "budget_tokens": 500})  # fmt: skip
    with doors.reading():
        answer = context.recalled(doors.agent, body, now=day(5))
    assert "Berlin" not in answer["text"].replace(TEXT, "")
    assert all(item["type"] != "fact" for item in answer["context"])


def test_a_proposal_hides_an_episode_and_what_it_was_quoted_in(doors: Redacting) -> None:
    written, said = told(doors)
    doors.propose(episode(said.id))
    with doors.reading(), pytest.raises(Missing):
        recall.episode(doors.agent, said.id)
    with doors.reading():
        told_of = recall.lineage(doors.agent, written.fact)["sources"][0]
    assert told_of["provenance"]["quote"] is None
    assert told_of["value"] == "Berlin"
    refused = doors.say("city", "Paris", 2, episode=said.id, quote="I live in Berlin")
    assert refused.code == "not_found"


def test_a_proposal_hides_what_proposes_the_same_value(doors: Redacting) -> None:
    _written, _ = told(doors)
    asked = doors.say("checked", "yes", 1)
    doors.propose(Pick(kind=Kind.CANDIDATE, target=asked.candidate))
    with doors.reading(), pytest.raises(Missing):
        recall.candidate(doors.agent, asked.candidate)
    with doors.reading():
        assert recall.candidates(doors.agent)["results"] == []


@pytest.mark.parametrize("end", ["take_back", "refuse"])
def test_what_is_not_redacted_shows_again(doors: Redacting, end: str) -> None:
    written, said = told(doors)
    request = doors.propose(fact(written.fact), episode(said.id))
    getattr(doors, end)(request)
    assert doors.value("city", 3) == "Berlin"
    with doors.reading():
        assert recall.episode(doors.agent, said.id)["content"] == TEXT
        assert recall.lineage(doors.agent, written.fact)["sources"][0]["provenance"]["quote"] == "I live in Berlin"
    assert doors.sql("SELECT count(*) FROM memory_payload WHERE redaction_state <> 'none'") == [(0,)]


def test_what_two_proposals_hide_shows_when_neither_waits(doors: Redacting) -> None:
    written, said = told(doors)
    first, second = doors.propose(fact(written.fact)), doors.propose(episode(said.id))
    doors.take_back(first)
    with doors.reading():
        assert recall.lineage(doors.agent, written.fact)["sources"][0]["provenance"]["quote"] is None
    doors.take_back(second)
    with doors.reading():
        assert recall.lineage(doors.agent, written.fact)["sources"][0]["provenance"]["quote"] is not None


def test_a_preview_tells_what_falls_and_what_stays_and_no_content(doors: Redacting) -> None:
    written, said = told(doors)
    other = doors.episode("They told me Berlin is where I live", subject="mira", role="user", extract="no")
    with doors.reading():
        derived.profile(doors.agent, "mira")
    whole = doors.preview(fact(written.fact))
    assert [(line.kind, line.target) for line in whole.follows] == [("evidence", doors.evidence_of(written.fact)[0])]
    assert whole.counts == {"facts": 1, "quotes": 1}
    assert dict(whole.elsewhere) == {"episode": other.id} or {each for _, each in whole.elsewhere} == {
        other.id,
        said.id,
    }
    spans = doors.preview(episode(said.id, (10, 16)))
    assert spans.unsupported == (written.fact,)
    assert spans.counts["unsupported"] == 1
    assert doors.preview(episode(said.id, (21, 36))).unsupported == ()
    for told_of in (whole, spans):
        assert "Berlin" not in str(told_of.as_json())
        assert "mira" not in str(told_of.as_json())


def test_a_fact_that_stands_on_something_else_is_not_put_before_a_person(doors: Redacting) -> None:
    _written, said = told(doors)
    doors.say("city", "Berlin", 2)
    assert doors.preview(episode(said.id)).unsupported == ()


def test_the_preview_changes_with_what_it_is_about_and_stands_otherwise(doors: Redacting) -> None:
    written, _said = told(doors)
    seen = doors.preview(fact(written.fact))
    assert doors.preview(fact(written.fact)).digest == seen.digest
    assert doors.preview(fact(written.fact, Strategy.MASK)).digest != seen.digest
    doors.say("city", "Berlin", 4)
    with pytest.raises(Clash, match="changed_since_shown"):
        doors.propose(fact(written.fact), shown=seen.digest)
    assert doors.value("city", 5) == "Berlin"
    place_raw(doors.id, {"record_kind": "fact", "record_id": written.fact})
    now = doors.preview(fact(written.fact))
    assert set(now.held) == {("fact", written.fact), *(("evidence", each) for each in doors.evidence_of(written.fact))}


def test_what_makes_no_sense_is_refused_by_its_place(doors: Redacting) -> None:
    written, said = told(doors)
    contact = doors.say("contact", {"mail": "a@example.com"}, 1)
    wrong: list[tuple[Pick, str]] = [
        (fact(contact.fact, Strategy.NULL, "nickname"), "items[0].fields[0]"),
        (episode(said.id, (5, 500)), "items[0].spans[0]"),
        (episode(said.id, (5, 5)), "items[0].spans[0]"),
        (Pick(kind=Kind.FACT, target=written.fact, spans=((0, 1),)), "items[0].spans"),
        (Pick(kind=Kind.EPISODE, target=said.id, fields=("a",)), "items[0].fields"),
        (Pick(kind=Kind.EVIDENCE, target=written.evidence, strategy=Strategy.MASK), "items[0].strategy"),
    ]
    for pick, path in wrong:
        with pytest.raises(Refused) as refused:
            doors.propose(pick)
        assert [each.path for each in refused.value.errors] == [path]
    with pytest.raises(Refused):
        doors.propose()
    with pytest.raises(Refused):
        doors.propose(fact(written.fact), reason="because")
    with pytest.raises(Missing):
        doors.propose(fact(said.id))
    doors.propose(fact(written.fact))
    with pytest.raises(Clash, match="already_required"):
        doors.propose(fact(written.fact))


def test_another_tenants_record_looks_like_none(doors: Redacting) -> None:
    written, _ = told(Redacting())
    with pytest.raises(Missing):
        doors.propose(fact(written.fact))


def test_only_who_may_proposes_and_only_who_asked_takes_back(doors: Redacting) -> None:
    written, _ = told(doors)
    with pytest.raises(Forbidden, match="role_missing"):
        doors.propose(fact(written.fact), by=doors.person)
    request = doors.propose(fact(written.fact))
    with pytest.raises(Forbidden, match="not_the_requester"):
        doors.take_back(request, by=doors.officer)
    with pytest.raises(Forbidden, match="role_missing"):
        doors.refuse(request, by=doors.person)
    doors.take_back(request)
    with pytest.raises(Clash, match="already_decided"):
        doors.take_back(request)


def test_raw_sql_of_no_role_shows_what_waits(doors: Redacting) -> None:
    written, said = told(doors)
    request = doors.propose(fact(written.fact), episode(said.id))
    tables = ("memory_fact", "memory_episode", "memory_payload")
    tries = [
        *(
            f"UPDATE {table} SET redaction_state = 'none' WHERE redaction_state = 'required' RETURNING id"
            for table in tables
        ),
        "UPDATE memory_payload SET redaction_state = 'applied' WHERE redaction_state = 'required' RETURNING id",
        "UPDATE retention_redactionrequest SET state = 'withdrawn', decision_reason = 'x' RETURNING id",
        "UPDATE retention_redactionrequest SET state = 'applied', decision_reason = 'x', digest = sha256('') RETURNING id",
        "UPDATE retention_redactionrequest SET requested_by = gen_random_uuid() RETURNING id",
        "DELETE FROM retention_redactionrequest RETURNING id",
        "DELETE FROM retention_redactionitem RETURNING id",
        "UPDATE retention_redactionitem SET target_id = gen_random_uuid() RETURNING id",
    ]
    for role in (Role.AGENT, Role.WRITER, Role.WORKER, Role.FRONT):
        for statement in tries:
            with (
                pytest.raises(DatabaseError),
                tenant_transaction(role, tenant=doors.id, clearance=3, actor=doors.officer.id),
            ):
                rows.fetch(statement, [])
    # The staff's role moves a proposal, and only as the person in the transaction may.
    for actor in (doors.reviewer, doors.person, doors.officer):
        for statement in tries[4:]:
            if (actor is doors.reviewer and "'withdrawn'" in statement) or (
                actor is doors.officer and "'applied'" in statement
            ):
                continue
            with pytest.raises(DatabaseError), doors.acting(actor):
                rows.fetch(statement, [])
    with doors.acting(doors.officer):
        assert rows.fetch("SELECT state FROM retention_redactionrequest WHERE id = %s", [request.id]) == [("required",)]
    assert doors.value("city", 3) is None


def test_each_act_stands_in_the_chain_without_content(doors: Redacting) -> None:
    written, _ = told(doors)
    request = doors.propose(fact(written.fact))
    doors.refuse(request)
    told_of = doors.sql(
        "SELECT action, reason, actor_id FROM tenants_auditevent WHERE target_id = %s ORDER BY seq", request.id
    )
    assert told_of == [
        ("redaction.required", "not_to_be_kept", doors.reviewer.id),
        ("redaction.refused", "needed", doors.officer.id),
    ]
