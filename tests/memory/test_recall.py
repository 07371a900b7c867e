"""What the read door answers: both times, evidence, what is hidden, and the receipts it leaves."""

import json
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest

from memory import recall
from tenants.errors import Malformed, Missing, Refused
from tenants.isolation import Role
from tests.memory.doors import MICROSECOND, Doors, day


@pytest.fixture
def doors(database: Any) -> Doors:
    return Doors()


def recorded(doors: Doors, written: Any) -> datetime:
    at: datetime = doors.sql("SELECT recorded_at FROM memory_evidence WHERE id = %s", written.evidence)[0][0]
    return at


def test_the_articles_trace_of_a_late_arrival_is_answered_for_every_instant(doors: Doors) -> None:
    instants = [
        datetime(2026, 6, 1, 9, tzinfo=UTC),
        datetime(2026, 6, 3, 10, tzinfo=UTC),
        datetime(2026, 5, 30, 8, tzinfo=UTC),
    ]
    said = [
        doors.say("city", value, instant)
        for value, instant in zip(("2026-07-15", "2026-06-30", "2026-08-01"), instants, strict=True)
    ]
    answers = {}
    for asked in ("2026-06-04", "2026-06-02", "2026-05-31"):
        (answers[asked],) = doors.page(valid_at=datetime.fromisoformat(f"{asked}T00:00:00Z")).results
    assert [each["value"] for each in answers.values()] == ["2026-06-30", "2026-07-15", "2026-08-01"]
    assert [each["evidence"] for each in answers.values()] == [[said[n].evidence] for n in (1, 0, 2)]
    bounds = [(each["valid_from"], each["valid_to"]) for each in answers.values()]
    assert bounds == [(instants[1], None), (instants[0], instants[1]), (instants[2], instants[0])]
    assert answers["2026-06-04"]["supersedes"] == said[0].fact


def test_valid_at_and_known_at_each_default_to_now_and_neither_follows_the_other(doors: Doors) -> None:
    first = doors.say("city", "Rome", 1)
    second = doors.say("city", "Oslo", 1, corrects=first.evidence)
    then = recorded(doors, second) - MICROSECOND
    assert [doors.value("city", 5), doors.value("city", 5, then), doors.value("city", None, then)] == [
        "Oslo",
        "Rome",
        "Rome",
    ]
    assert doors.value("city", 0, then) is None
    page = doors.page(valid_at=day(5))
    assert (page.valid_at, page.known_at > day(5)) == (day(5), True)


def test_what_was_believed_is_answered_with_its_stretch_as_it_was_then(doors: Doors) -> None:
    doors.say("city", "Rome", 1)
    second = doors.say("city", "Oslo", 5)
    (found,) = doors.page(valid_at=day(9), known_at=recorded(doors, second) - MICROSECOND).results
    assert (found["value"], found["valid_to"], found["superseded_at"]) == ("Rome", None, recorded(doors, second))


def test_an_interval_is_half_open_to_the_microsecond_in_both_times(doors: Doors) -> None:
    said = doors.say("city", "Rome", 1, 2)
    at = recorded(doors, said)
    for instant, expected in (
        (day(1) - MICROSECOND, None),
        (day(1), "Rome"),
        (day(2) - MICROSECOND, "Rome"),
        (day(2), None),
    ):
        assert doors.value("city", instant) == expected
    assert [doors.value("city", 1, at - MICROSECOND), doors.value("city", 1, at)] == [None, "Rome"]


# what is hidden ---------------------------------------------------------------------------------------------------------


def hide(doors: Doors, fact: UUID, how: str) -> None:
    """Hide a fact in one of the ways there are, its payload with it."""
    if how == "expired":
        return doors.expire(fact)
    if how == "consent":
        doors.withdraw("c-1")
        return None
    if how == "above_clearance":
        doors.say("shade", "crimson", 3, sensitivity="restricted", tool="t")
        return None
    changes = {
        "redaction": "redaction_state = 'required'",
        "restricted_processing": "restricted = true",
    }
    assert _SUPERUSER is not None
    _SUPERUSER.execute(f"UPDATE memory_fact SET {changes[how]} WHERE id = %s", [fact])
    _SUPERUSER.execute(
        f"UPDATE memory_payload SET {changes[how]} WHERE id = (SELECT payload_id FROM memory_fact WHERE id = %s)",
        [fact],
    )
    return None


_SUPERUSER: Any = None


@pytest.fixture
def beyond(superuser: Any) -> Any:
    """Lets `hide` do what later doors will: redaction and restriction of processing."""
    global _SUPERUSER
    _SUPERUSER = superuser
    yield
    _SUPERUSER = None


WAYS = ["expired", "consent", "redaction", "restricted_processing", "above_clearance"]


@pytest.mark.usefixtures("beyond")
@pytest.mark.parametrize("how", WAYS)
def test_what_is_hidden_gives_nothing_never_its_predecessor_and_is_counted_by_reason(doors: Doors, how: str) -> None:
    doors.grant("c-1")
    doors.say("shade", "blue", 1)
    second = doors.say("shade", "crimson", 3, consent="c-1")
    third = doors.say("shade", "green", 5)
    at = recorded(doors, third)
    reader = doors.actor(clearance=2)
    hide(doors, second.fact, how)
    for known in (None, at, at - MICROSECOND):
        page = doors.page("shade", by=reader, valid_at=day(4), known_at=known)
        assert (page.results, page.withheld) == ([], {how: 1})
    (after,) = doors.page("shade", by=reader, valid_at=day(6)).results
    assert (after["value"], after["supersedes"]) == ("green", None)
    assert doors.value("shade", 2, by=reader) == "blue"
    with pytest.raises(Missing):
        doors.fact(second.fact, by=reader)
    with doors.reading(reader):
        history = recall.history(reader, third.fact)
    assert "crimson" not in json.dumps(history, default=str)
    hidden = [each for each in history["stretches"] if each["valid_from"] == day(3)]
    assert hidden
    assert all((each["value"], each["state"], each["fact"]) == (None, "withheld", None) for each in hidden)


@pytest.mark.usefixtures("beyond")
@pytest.mark.parametrize("how", WAYS)
def test_raw_sql_as_the_agent_sees_no_hidden_row_and_no_predecessor_at_any_instant(doors: Doors, how: str) -> None:
    doors.grant("c-1")
    doors.say("shade", "blue", 1)
    second = doors.say("shade", "crimson", 3, consent="c-1", tool="t")
    hide(doors, second.fact, how)
    reader = doors.actor(clearance=2)
    with doors.reading(reader):
        from memory.rows import fetch

        for instant in (day(3), day(4), day(4000)):
            joined = fetch(
                "SELECT f.id FROM memory_belief b JOIN memory_fact f ON f.tenant_id = b.tenant_id AND f.id = b.fact_id"
                " WHERE tstzrange(b.valid_from, b.valid_to) @> %s::timestamptz AND b.believed_to IS NULL",
                [instant],
            )
            assert joined == []
        assert fetch("SELECT id FROM memory_fact WHERE id = %s", [second.fact]) == []
        payload = "SELECT p.id FROM memory_payload p WHERE p.purpose = 'value'"
        assert len(fetch(payload, [])) == 1


def test_a_reader_below_a_class_sees_as_if_nothing_were_there_but_a_count(doors: Doors) -> None:
    doors.say("secret", "x", 1, tool="t")
    page = doors.page("secret", by=doors.uncleared)
    assert (page.results, page.withheld) == ([], {"above_clearance": 1})
    assert doors.value("secret") == "x"


def test_a_restricted_subject_gives_nothing(doors: Doors, superuser: Any) -> None:
    said = doors.say("city", "Rome", 1)
    superuser.execute("UPDATE memory_subject SET restricted = true WHERE tenant_id = %s", [doors.id])
    assert doors.values("city") == []
    with pytest.raises(Missing):
        doors.fact(said.fact)


def test_another_tenants_subject_fact_and_key_look_like_none(doors: Doors) -> None:
    other = Doors()
    theirs = other.say("city", "Rome", 1)
    doors.say("city", "Oslo", 1, subject="theo")
    assert doors.values("city") == []
    for door in (recall.fact, recall.history, recall.lineage):
        with doors.reading(), pytest.raises(Missing):
            door(doors.agent, theirs.fact)
    with doors.reading(), pytest.raises(Missing):
        recall.fact(doors.agent, uuid4())


# lists, profile, history, lineage ---------------------------------------------------------------------------------------


def test_pages_go_through_everything_once_in_a_stable_order(doors: Doors) -> None:
    bodies = [doors.body("tags", f"tag-{n}", 1, subject=f"subject-{n % 5}") for n in range(23)]
    doors.write(bodies, batch=True)
    found, cursor = [], None
    while True:
        with doors.reading():
            page = recall.facts(doors.agent, cursor=cursor, limit=5)
        assert len(page.results) <= 5
        found += [each["value"] for each in page.results]
        cursor = page.next
        if cursor is None:
            break
    assert sorted(found) == sorted(f"tag-{n}" for n in range(23))
    with doors.reading(), pytest.raises(Malformed):
        recall.facts(doors.agent, cursor="nonsense")


def test_pages_go_on_behind_what_is_withheld(doors: Doors) -> None:
    said = doors.write([doors.body("tags", f"tag-{n}", 1) for n in range(8)], batch=True)
    for each in said[:6]:
        doors.expire(each.fact)
    found, withheld, cursor = [], 0, None
    while True:
        with doors.reading():
            page = recall.facts(doors.agent, subject="mira", attribute="tags", cursor=cursor, limit=2)
        found += [each["value"] for each in page.results]
        withheld += sum(page.withheld.values())
        cursor = page.next
        if cursor is None:
            break
    assert (sorted(found), withheld) == (["tag-6", "tag-7"], 6)


def test_a_profile_is_everything_that_holds_about_one_subject_then_or_now(doors: Doors) -> None:
    doors.say("city", "Rome", 1)
    doors.say("plan", "gold", 3)
    doors.say("tags", "a", 1)
    doors.say("city", "Oslo", 1, subject="theo")
    with doors.reading():
        now = recall.profile(doors.agent, "mira")
        then = recall.profile(doors.agent, "mira", valid_at=day(2))
    assert sorted(each["value"] for each in now.results) == ["Rome", "a", "gold"]
    assert sorted(each["value"] for each in then.results) == ["Rome", "a"]


def test_facts_are_found_by_kind_attribute_and_alias(doors: Doors) -> None:
    doors.publish({"name": "habit", "schema": {"type": "string"}, "kind": "procedural"})
    doors.say("habit", "tea", 1)
    doors.say("city", "Rome", 1)
    doors.name("mira", "Mira M.")
    with doors.reading():
        by_kind = recall.facts(doors.agent, subject="Mira M.", kind="procedural")
        by_attribute = recall.facts(doors.agent, attribute="city")
        by_nobody = recall.facts(doors.agent, subject="nobody")
    assert [each["value"] for each in by_kind.results] == ["tea"]
    assert [(each["value"], each["subject"]) for each in by_attribute.results] == [("Rome", "mira")]
    assert (by_nobody.results, by_nobody.withheld) == ([], {})


def test_what_is_hidden_is_counted_under_the_kind_that_its_attribute_is_of(doors: Doors) -> None:
    doors.publish({"name": "habit", "schema": {"type": "string"}, "kind": "procedural"})
    doors.expire(doors.say("habit", "tea", 1).fact)
    with doors.reading():
        of_its_kind = recall.facts(doors.agent, kind="procedural")
        of_another = recall.facts(doors.agent, kind="semantic")
    assert (of_its_kind.results, of_its_kind.withheld) == ([], {"expired": 1})
    assert (of_another.results, of_another.withheld) == ([], {})


@pytest.mark.parametrize(
    "more", [{}, {"subject": "mira"}, {"subject": "nobody", "known_at": day(9)}, {"kind": "semantic"}]
)
def test_an_attribute_that_the_tenant_does_not_have_is_refused_and_leaves_no_receipt(
    doors: Doors, more: dict[str, Any]
) -> None:
    doors.say("city", "Rome", 1)
    (before,) = doors.sql("SELECT count(*) FROM memory_receipt")
    for read in (recall.facts, recall.answer):
        with doors.reading(), pytest.raises(Refused) as refused:
            read(doors.agent, attribute="citty", **more)
        assert (refused.value.code, refused.value.errors[0].path) == ("unknown_attribute", "attribute")
    assert doors.sql("SELECT count(*) FROM memory_receipt") == [before]
    with doors.reading():
        assert recall.facts(doors.agent, subject="nobody", attribute="city").results == []


def test_history_tells_all_evidence_and_all_stretches_and_as_known_then_only_those(doors: Doors) -> None:
    first = doors.say("city", "Rome", 1)
    second = doors.say("city", "Oslo", 3)
    doors.retract(evidence=second.evidence)
    at = recorded(doors, first)
    with doors.reading():
        now = recall.history(doors.agent, first.fact)
        then = recall.history(doors.agent, first.fact, known_at=at)
    assert [(each["value"], each["retracted_at"] is None) for each in now["results"]] == [
        ("Rome", True),
        ("Oslo", False),
    ]
    assert sorted(
        (each["value"], each["valid_to"], each["superseded_at"] is None)
        for each in now["stretches"]
        if each["value"] == "Oslo"
    ) == [("Oslo", None, False)]
    assert [each["value"] for each in then["results"]] == ["Rome"]
    assert [(each["value"], each["valid_to"]) for each in then["stretches"]] == [("Rome", None)]


def test_lineage_names_episodes_quotes_and_writers(doors: Doors) -> None:
    told = doors.episode("I live in Rome")
    said = doors.say("city", "Rome", 1, episode=told.id, quote="in Rome")
    with doors.reading():
        (source,) = recall.lineage(doors.agent, said.fact)["sources"]
        episode = recall.episode(doors.agent, told.id)
    assert source["provenance"]["quote"] == "in Rome"
    assert source["provenance"]["source_episode"] == told.id
    assert source["provenance"]["writer"] == {"kind": "agent", "id": doors.agent.id}
    assert (episode["content"], episode["facts"]) == ("I live in Rome", [said.fact])


def test_candidates_tell_what_became_of_them(doors: Doors) -> None:
    asked = doors.say("checked", "yes", 1)
    other = doors.say("checked", "no", 1)
    written = doors.decide(asked.candidate)
    with doors.reading():
        found = recall.candidates(doors.agent)
        waiting = recall.candidates(doors.agent, state="asked")
        one = recall.candidate(doors.agent, asked.candidate)
    assert [(each["value"], each["state"]) for each in found["results"]] == [("yes", "accepted"), ("no", "asked")]
    assert [each["id"] for each in waiting["results"]] == [other.candidate]
    assert (one["subject"], one["evidence"]) == ("mira", written.evidence)
    with doors.reading(doors.uncleared), pytest.raises(Missing):
        recall.candidate(doors.uncleared, asked.candidate)


# receipts ---------------------------------------------------------------------------------------------------------------


def test_every_read_leaves_a_receipt_of_who_saw_which_fact(doors: Doors) -> None:
    said = doors.say("city", "Rome", 1)
    page = doors.page(valid_at=day(2))
    found = doors.sql(
        "SELECT id, act, actor_id, valid_at, fact_ids FROM memory_receipt WHERE fact_ids @> ARRAY[%s::uuid] AND act LIKE '%%read'",
        said.fact,
    )
    assert found == [(page.receipt, "facts.read", doors.agent.id, day(2), [said.fact])]


def test_the_receipt_counts_what_was_withheld_and_names_it_not(doors: Doors) -> None:
    said = doors.say("city", "Rome", 1)
    doors.expire(said.fact)
    page = doors.page()
    ((withheld, facts),) = doors.sql("SELECT withheld, fact_ids FROM memory_receipt WHERE id = %s", page.receipt)
    assert (json.loads(withheld) if isinstance(withheld, str) else withheld) == {"expired": 1}
    assert facts == []


@pytest.mark.parametrize("door", ["fact", "history", "lineage", "episode", "candidates", "profile"])
def test_each_read_door_leaves_exactly_one_receipt(doors: Doors, door: str) -> None:
    said = doors.say("city", "Rome", 1)
    told = doors.episode("hello")
    before = doors.counts()["memory_receipt"]
    place: dict[str, tuple[Any, ...]] = {"episode": (told.id,), "candidates": (), "profile": ("mira",)}
    with doors.reading():
        getattr(recall, door)(doors.agent, *place.get(door, (said.fact,)))
    assert doors.counts()["memory_receipt"] == before + 1


def test_values_of_every_type_come_back_as_they_were_said_C135(doors: Doors) -> None:
    values: dict[str, tuple[dict[str, Any], Any]] = {
        "t_text": ({"type": "string"}, "déjà vu “x”"),
        "t_number": ({"type": "number"}, 12.5),
        "t_integer": ({"type": "integer"}, 10**12),
        "t_date": ({"type": "string", "format": "date"}, "2026-06-30"),
        "t_choice": ({"enum": ["crimson", "green"]}, "crimson"),
        "t_list": ({"type": "array", "items": {"type": "integer"}}, [3, 1, 2]),
        "t_nested": ({"type": "object", "properties": {"a": {"type": "object"}}}, {"a": {"b": [True, None]}}),
        "t_truth": ({"type": "boolean"}, False),
    }
    doors.publish(*({"name": name, "schema": schema} for name, (schema, _) in values.items()))
    for name, (_, value) in values.items():
        doors.say(name, value, 1)
        assert [each["value"] for each in doors.page(name).results] == [value]


def test_what_ended_is_hidden_from_the_microsecond_of_its_expiry(doors: Doors) -> None:
    said = doors.say("city", "Rome", 1)
    doors.sql(
        "UPDATE memory_fact SET expires_at = clock_timestamp() + interval '250 ms' WHERE id = %s RETURNING id",
        said.fact,
        role=Role.WRITER,
    )
    with doors.reading():
        seen = [recall.facts(doors.agent, subject="mira", attribute="city") for _ in range(400)]
    ((expires_at,),) = doors.sql("SELECT expires_at FROM memory_fact")
    late = [page for page in seen if page.known_at >= expires_at]
    early = [page for page in seen if page.known_at < expires_at]
    assert early
    assert all(page.results for page in early)
    assert all(not page.results for page in late)
