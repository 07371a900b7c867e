"""Content that ends is gone from everywhere at once, and rows go as soon as nothing needs them as a boundary."""

from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from django.db import Error

from memory import derived, erasure, outbox, rows
from memory.erasure import Erased, Removed
from memory.outcomes import Repeat
from tenants.isolation import Role, tenant_transaction
from tests.memory.doors import Doors, assert_sound, day

pytestmark = pytest.mark.usefixtures("database")


@pytest.fixture
def doors(tenant: Any) -> Doors:
    return Doors(tenant)


def ending(doors: Doors, act: Callable[[], Any]) -> Any:
    with tenant_transaction(Role.WORKER, tenant=doors.id):
        return act()


def end(doors: Doors, *facts: UUID, cause: str = "expired") -> Erased:
    for fact in facts if cause == "expired" else ():
        doors.expire(fact)
    done: Erased = ending(doors, lambda: erasure.end_facts(doors.id, facts, cause, datetime.now(UTC)))
    return done


def over(doors: Doors, kind: str, record: UUID) -> None:
    """Let the life of an episode, a candidate or a piece of evidence be over; no clock is moved."""
    past = "expires_at = clock_timestamp() - interval '1 microsecond'"
    doors.sql(f"UPDATE memory_{kind} SET {past} WHERE id = %s RETURNING id", record, role=Role.WORKER)


def nothing_held(kind: str, ids: Sequence[UUID]) -> Collection[UUID]:
    return ()


def keys(doors: Doors) -> list[UUID]:
    return [row[0] for row in doors.sql("SELECT id FROM memory_factkey")]


def remove(doors: Doors, held: erasure.Held = nothing_held) -> Removed:
    found = keys(doors)
    done: Removed = ending(doors, lambda: erasure.remove_facts(doors.id, found, held))
    return done


def content(doors: Doors) -> int:
    """How many payloads hold anything but names."""
    return doors.sql(  # type: ignore[no-any-return]
        "SELECT count(*) FROM memory_payload WHERE num_nonnulls(clear, sealed) > 0 AND purpose NOT IN ('subject', 'alias')"
    )[0][0]


def states(doors: Doors) -> list[tuple[Any, ...]]:
    return doors.sql("SELECT ended_by, count(*) FROM memory_fact GROUP BY 1 ORDER BY 1 NULLS FIRST")


# content --------------------------------------------------------------------------------------------------------------


def test_a_fact_that_ends_leaves_neither_value_nor_quote_nor_anything_it_is_found_by(doors: Doors) -> None:
    episode = doors.episode("I live in Oslo now", subject="mira")
    said = doors.say("city", "Oslo", 1, episode=episode.id, quote="live in Oslo")
    while outbox.drain_tenant(doors.id):
        pass
    assert doors.sql("SELECT count(*) FROM memory_searchentry WHERE kind = 'value'") == [(1,)]
    done = end(doors, said.fact)
    assert done.records == (said.fact,)
    assert done.counts["values"] == done.counts["quotes"] == done.counts["facts"] == 1
    assert doors.sql("SELECT count(*) FROM memory_searchentry WHERE kind = 'value'") == [(0,)]
    assert content(doors) == 1, "the episode has a life of its own"
    assert doors.values("city", 2) == []
    assert_sound(doors)


def test_to_end_it_again_changes_nothing(doors: Doors) -> None:
    said = doors.say("city", "Oslo", 1)
    end(doors, said.fact)
    again = end(doors, said.fact)
    assert again.records == ()
    assert again.counts.get("values", 0) == 0


def test_what_expired_may_still_be_erased(doors: Doors) -> None:
    said = doors.say("city", "Oslo", 1)
    end(doors, said.fact)
    assert end(doors, said.fact, cause="erased").records == (said.fact,)
    assert states(doors) == [("erased", 1)]


def test_the_former_value_does_not_come_back_where_a_value_ended(doors: Doors) -> None:
    doors.say("city", "Oslo", 1)
    later = doors.say("city", "Rome", 5)
    end(doors, later.fact)
    assert doors.values("city", 6) == []
    assert doors.values("city", 2) == ["Oslo"]
    remove(doors)
    assert states(doors) == [(None, 1), ("expired", 1)], "needed as a boundary"
    assert doors.values("city", 6) == []
    doors.say("city", "Bonn", 3)
    assert doors.values("city", 6) == [], "nor when the stretches are made anew"
    assert_sound(doors)


def test_derived_text_that_rests_on_it_goes_in_the_same_transaction(doors: Doors) -> None:
    said = doors.say("city", "Oslo", 1)
    with doors.reading():
        derived.profile(doors.agent, "mira")
    while outbox.drain_tenant(doors.id):
        pass
    assert doors.sql("SELECT count(*) FROM memory_payload WHERE purpose = 'derived'") == [(1,)]
    assert end(doors, said.fact).counts["derived"] == 1
    assert doors.sql("SELECT count(*) FROM memory_payload WHERE purpose = 'derived'") == [(0,)]
    assert doors.sql("SELECT count(*) FROM memory_derivedsource") == [(0,)]


def test_what_remembered_the_request_goes_too(doors: Doors) -> None:
    said = doors.say("city", "Oslo", 1, repeat=Repeat("k-1", "POST /facts/", b"{}"))
    doors.say("city", "Rome", 5, repeat=Repeat("k-2", "POST /facts/", b"{}"))
    assert end(doors, said.fact).counts["requests"] == 1
    assert doors.sql("SELECT count(*) FROM memory_idempotencyrecord") == [(1,)]


def test_a_proposal_that_became_the_fact_loses_its_value_with_it(doors: Doors) -> None:
    asked = doors.say("checked", "yes", 1)
    accepted = doors.decide(asked.candidate)
    assert content(doors) == 2
    done = end(doors, accepted.fact)
    assert done.counts["proposals"] == 1
    assert content(doors) == 0


@pytest.mark.parametrize("cause", ["redacted", "erased"])
def test_a_proposal_of_the_very_value_falls_with_a_redaction_and_an_erasure(doors: Doors, cause: str) -> None:
    said = doors.say("grade", "A", 1)
    asked = doors.say("grade", "B", 1)
    assert asked.verdict == "ask"
    end(doors, said.fact, cause=cause)
    assert doors.sql("SELECT state FROM memory_candidate") == [("asked",)], "another value is not concerned"
    again = doors.say("grade", "B", 9)
    end(doors, again.fact, cause=cause)
    assert doors.sql("SELECT state, redaction_state FROM memory_candidate") == [("expired", "applied")]
    assert content(doors) == 0


def test_only_a_redacted_fact_shows_as_a_tombstone(doors: Doors) -> None:
    redacted, erased = doors.say("city", "Oslo", 1), doors.say("city", "Rome", 1, subject="jon")
    end(doors, redacted.fact, cause="redacted")
    end(doors, erased.fact, cause="erased")
    shown = doors.page("city", valid_at=day(2)).results
    stone = {"redacted": True, "type": "string", "fields": [], "left": None}
    assert [(each["value"], each["redaction"]["state"]) for each in shown] == [(stone, "applied")]
    assert doors.page("city", subject="jon", valid_at=day(2)).results == []


def test_evidence_whose_own_life_is_over_loses_its_quote_and_still_marks_its_stretch(doors: Doors) -> None:
    episode = doors.episode("I live in Oslo now", subject="mira")
    said = doors.say("city", "Oslo", 1, episode=episode.id, quote="live in Oslo")
    doors.say("city", "Oslo", 4)
    over(doors, "evidence", said.evidence)
    done = ending(doors, lambda: erasure.end_quotes(doors.id, [said.evidence], "expired"))
    assert (done.records, done.counts) == ((said.evidence,), {"quotes": 1, "sealed": 1})
    assert doors.sql("SELECT count(*) FROM memory_payload WHERE purpose = 'quote'") == [(0,)]
    assert doors.values("city", 2) == ["Oslo"]
    assert_sound(doors)


# rows -----------------------------------------------------------------------------------------------------------------


def test_where_nothing_is_kept_no_row_is_left_but_the_name(doors: Doors) -> None:
    first, second = doors.say("city", "Oslo", 1), doors.say("city", "Rome", 5)
    doors.say("city", "Oslo", 1.5)
    end(doors, first.fact, second.fact)
    gone = remove(doors)
    assert gone.counts == {"facts": 2, "evidence": 3, "stretches": 3, "payloads": 2, "keys": 1}
    left = {table: n for table, n in doors.counts().items() if n and table.startswith("memory_")}
    assert set(left) == {
        "memory_payload",
        "memory_subject",
        "memory_subjectidentifier",
        "memory_receipt",
        "memory_outboxentry",
    }
    again = doors.say("city", "Oslo", 1)
    assert again.change == "new"
    assert doors.values("city", 2) == ["Oslo"]
    assert_sound(doors)


def test_a_subject_of_whom_nothing_is_left_goes_with_names_and_key(doors: Doors) -> None:
    said = doors.say("city", "Oslo", 1)
    doors.name("mira", "Mira L.")
    end(doors, said.fact)
    gone = remove(doors)
    done = ending(doors, lambda: erasure.remove_subjects(doors.id, gone.subjects, nothing_held))
    assert done.counts == {"names": 2, "subjects": 1, "payloads": 2, "data_keys": 1}
    assert doors.sql("SELECT count(*) FROM memory_payload") == [(0,)]
    doors.say("city", "Rome", 1)
    assert doors.values("city", 2) == ["Rome"]


def test_a_subject_with_a_consent_on_record_stays(doors: Doors) -> None:
    doors.grant("form-1")
    said = doors.say("city", "Oslo", 1)
    end(doors, said.fact)
    gone = remove(doors)
    assert ending(doors, lambda: erasure.remove_subjects(doors.id, gone.subjects, nothing_held)).counts == {}


def test_an_episode_stays_without_text_while_something_cites_it(doors: Doors) -> None:
    episode = doors.episode("I live in Oslo now", subject="mira")
    said = doors.say("city", "Oslo", 1, episode=episode.id, quote="live in Oslo")
    now = datetime.now(UTC)
    over(doors, "episode", episode.id)
    done = ending(doors, lambda: erasure.end_episodes(doors.id, [episode.id], "expired", now))
    assert done.records == (episode.id,)
    assert done.counts["texts"] == 1
    assert ending(doors, lambda: erasure.remove_episodes(doors.id, [episode.id], nothing_held)).counts == {}
    end(doors, said.fact)
    gone = remove(doors)
    assert gone.episodes == (episode.id,)
    done = ending(doors, lambda: erasure.remove_episodes(doors.id, gone.episodes, nothing_held))
    assert done.counts == {"episodes": 1, "payloads": 1}
    assert doors.sql("SELECT count(*) FROM memory_episode") == [(0,)]


def test_an_episode_about_nobody_takes_its_own_key_along(doors: Doors) -> None:
    episode = doors.episode("the lift is out of order")
    assert doors.sql("SELECT count(*) FROM tenants_subjectkey") == [(1,)]
    over(doors, "episode", episode.id)
    ending(doors, lambda: erasure.end_episodes(doors.id, [episode.id], "expired", datetime.now(UTC)))
    assert doors.sql("SELECT count(*) FROM tenants_subjectkey") == [(0,)]


def test_a_candidate_that_lapsed_goes_with_its_sayings(doors: Doors) -> None:
    episode = doors.episode("I say yes", subject="mira")
    asked = doors.say("checked", "yes", 1, episode=episode.id, quote="say yes")
    now = datetime.now(UTC)
    over(doors, "candidate", asked.candidate)
    done = ending(doors, lambda: erasure.end_candidates(doors.id, [asked.candidate], "expired", now))
    assert done.counts["proposals"] == done.counts["quotes"] == 1
    gone = ending(doors, lambda: erasure.remove_candidates(doors.id, [asked.candidate], nothing_held))
    assert gone.counts == {"candidates": 1, "sayings": 1, "payloads": 2}
    assert gone.episodes == (episode.id,)


def test_what_is_held_stays_and_keeps_what_stands_behind_it(doors: Doors) -> None:
    first, second, third = (doors.say("city", name, at) for name, at in (("Oslo", 1), ("Rome", 3), ("Bonn", 5)))
    end(doors, first.fact, second.fact, third.fact)
    remove(doors, lambda kind, ids: {second.fact} if kind == "fact" else ())
    assert {row[0] for row in doors.sql("SELECT id FROM memory_fact")} == {second.fact, third.fact}
    assert_sound(doors)


def test_a_correction_outlives_what_it_corrected(doors: Doors) -> None:
    wrong = doors.say("city", "Oslo", 1)
    right = doors.say("city", "Rome", corrects=wrong.evidence)
    end(doors, wrong.fact)
    remove(doors)
    assert doors.sql("SELECT id, corrects_id FROM memory_evidence") == [(right.evidence, None)]
    assert doors.values("city", 2) == ["Rome"]
    assert_sound(doors)


def test_a_redacted_fact_keeps_its_tombstone_for_the_rest_of_its_life(doors: Doors) -> None:
    said = doors.say("city", "Oslo", 1)
    end(doors, said.fact, cause="redacted")
    assert remove(doors).counts == {}
    doors.expire(said.fact)
    assert remove(doors).counts["facts"] == 1


def test_an_end_is_kept_for_its_life_and_goes_then(doors: Doors, superuser: Any) -> None:
    said = doors.say("city", "Oslo", 1)
    doors.end("city", None, 5)
    end(doors, said.fact)
    assert remove(doors).counts["facts"] == 1
    assert doors.sql("SELECT count(*) FROM memory_evidence") == [(1,)], "it says still that nothing held after that day"
    superuser.execute(
        "UPDATE memory_evidence SET expires_at = clock_timestamp() - interval '1 second' WHERE tenant_id = %s",
        [doors.id],
    )
    assert remove(doors).counts == {"evidence": 1, "stretches": 1, "keys": 1}


def test_of_a_multi_valued_attribute_each_value_goes_for_itself(doors: Doors) -> None:
    kept, gone = doors.say("tags", "red", 1), doors.say("tags", "blue", 5)
    end(doors, gone.fact)
    assert remove(doors).counts["facts"] == 1
    assert doors.values("tags", 6) == ["red"]
    assert kept.fact
    assert_sound(doors)


# what the database refuses --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM memory_fact",
        "DELETE FROM memory_evidence",
        "DELETE FROM memory_belief",
        "DELETE FROM memory_episode",
        "DELETE FROM memory_candidate",
        "DELETE FROM memory_payload",
        "DELETE FROM memory_subject",
        "DELETE FROM memory_subjectidentifier",
        "DELETE FROM tenants_subjectkey",
        "UPDATE memory_payload SET clear = 'other words', sealed = NULL",
        "UPDATE memory_payload SET clear = NULL, sealed = NULL",
        "SELECT clear FROM memory_payload",
        "SELECT sealed FROM memory_payload",
    ],
)
def test_the_worker_removes_nothing_that_has_not_ended_and_reads_no_content(doors: Doors, statement: str) -> None:
    episode = doors.episode("I live in Oslo now", subject="mira")
    doors.say("city", "Oslo", 1, episode=episode.id, quote="live in Oslo")
    doors.say("checked", "yes", 1)
    with pytest.raises(Error), tenant_transaction(Role.WORKER, tenant=doors.id):
        rows.execute(statement, [])


def test_content_that_was_removed_does_not_come_back(doors: Doors) -> None:
    said = doors.say("shade", "red", 1)
    end(doors, said.fact)
    for role in (Role.WRITER, Role.WORKER):
        with pytest.raises(Error), tenant_transaction(role, tenant=doors.id, clearance=3):
            rows.fetch("UPDATE memory_payload SET clear = 'red again' WHERE purpose = 'value' RETURNING id", [])


def test_no_role_but_the_worker_removes_what_was_said(doors: Doors) -> None:
    said = doors.say("shade", "red", 1)
    end(doors, said.fact)
    for role in (Role.WRITER, Role.AGENT, Role.STAFF, Role.FRONT):
        for table in ("payload", "fact", "evidence", "belief", "episode", "candidate", "subject"):
            if (role, table) == (Role.WRITER, "belief"):
                continue  # what its own newest act opened, and a trigger keeps the rest
            with pytest.raises(Error), tenant_transaction(role, tenant=doors.id, clearance=3):
                rows.fetch(f"DELETE FROM memory_{table} RETURNING id", [])
