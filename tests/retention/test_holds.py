"""Legal holds: what they cover, that nothing passes them, and who lets go of them."""

from typing import Any
from uuid import UUID, uuid4

import pytest

from memory import rows
from retention import holds
from retention.models import RefusedEnding
from tenants.isolation import Role, tenant_transaction
from tenants.models import AuditEvent
from tests.memory.doors import Doors
from tests.retention.legal import free, held, hold_of, place_raw

pytestmark = pytest.mark.usefixtures("database")


@pytest.fixture
def doors(tenant: Any) -> Doors:
    return Doors(tenant)


def subject_of(doors: Doors, key: str = "mira") -> UUID:
    found: UUID = doors.name(key).id
    return found


def attribute_of(doors: Doors, name: str) -> UUID:
    return doors.sql("SELECT id FROM policies_attribute WHERE name = %s", name)[0][0]  # type: ignore[no-any-return]


# what a hold covers ---------------------------------------------------------------------------------------------------


def test_without_a_hold_everything_may_end(doors: Doors) -> None:
    said = doors.say("city", "Oslo")
    assert held(doors.id, "fact", said.fact) == {}
    assert free(doors.id, "fact", [said.fact]) == [said.fact]


def test_a_hold_on_a_fact_covers_its_evidence_and_the_episode_it_was_drawn_from_and_whose_they_are(
    doors: Doors,
) -> None:
    episode = doors.episode("Mira lives in Oslo", subject="mira")
    said = doors.say("city", "Oslo", episode=episode.id, quote="lives in Oslo")
    other = doors.say("city", "Rome", subject="jon")
    hold = place_raw(doors.id, {"record_kind": "fact", "record_id": said.fact})
    assert held(doors.id, "fact", said.fact, other.fact) == {said.fact: [hold]}
    assert held(doors.id, "evidence", said.evidence, other.evidence) == {said.evidence: [hold]}
    assert held(doors.id, "episode", episode.id) == {episode.id: [hold]}
    mira, jon = subject_of(doors), subject_of(doors, "jon")
    assert held(doors.id, "subject", mira, jon) == {mira: [hold]}


def test_a_hold_on_an_episode_covers_what_was_drawn_from_it(doors: Doors) -> None:
    episode = doors.episode("Mira lives in Oslo", subject="mira")
    said = doors.say("city", "Oslo", episode=episode.id, quote="lives in Oslo")
    asked = doors.say("checked", "yes", episode=episode.id, quote="Mira")
    hold = place_raw(doors.id, {"record_kind": "episode", "record_id": episode.id})
    assert held(doors.id, "fact", said.fact) == {said.fact: [hold]}
    assert held(doors.id, "evidence", said.evidence) == {said.evidence: [hold]}
    assert held(doors.id, "candidate", asked.candidate) == {asked.candidate: [hold]}


def test_a_hold_on_a_subject_covers_what_is_said_of_it_and_the_episodes_that_name_it(doors: Doors) -> None:
    mira = subject_of(doors)
    about, named = doors.episode("hello", subject="mira"), doors.episode("I met mira today", subject="jon")
    said, other = doors.say("city", "Oslo"), doors.say("city", "Rome", subject="jon")
    asked = doors.say("checked", "yes")
    hold = place_raw(doors.id, {"subject_id": mira})
    assert held(doors.id, "fact", said.fact, other.fact) == {said.fact: [hold]}
    assert held(doors.id, "episode", about.id, named.id) == {about.id: [hold], named.id: [hold]}
    assert held(doors.id, "candidate", asked.candidate) == {asked.candidate: [hold]}
    assert held(doors.id, "subject", mira, subject_of(doors, "jon")) == {mira: [hold]}


@pytest.mark.parametrize("narrower", ["attribute", "session", "writer", "from", "until", "subject"])
def test_a_query_covers_only_what_fits_all_of_it(doors: Doors, narrower: str) -> None:
    episode = doors.episode("Mira lives in Oslo", subject="mira", session_id="s7")
    said = doors.say("city", "Oslo", episode=episode.id, quote="lives in Oslo")
    (recorded,) = doors.sql(
        "SELECT recorded_at, recorded_at + interval '1 microsecond' FROM memory_evidence WHERE id = %s", said.evidence
    )
    fits = {"subject_id": subject_of(doors), "attribute_id": attribute_of(doors, "city"), "session_id": "s7",
            "writer_id": doors.agent.id, "recorded_from": recorded[0], "recorded_until": recorded[1]}  # fmt: skip
    misses: dict[str, dict[str, Any]] = {
        "attribute": {"attribute_id": attribute_of(doors, "plan")},
        "session": {"session_id": "s8"},
        "writer": {"writer_id": uuid4()},
        "from": {"recorded_from": recorded[1], "recorded_until": None},
        "until": {"recorded_from": None, "recorded_until": recorded[0]},
        "subject": {"subject_id": subject_of(doors, "jon")},
    }
    place_raw(doors.id, {**fits, **misses[narrower]})
    ids = {"fact": said.fact, "evidence": said.evidence, "episode": episode.id}
    assert [held(doors.id, kind, each) for kind, each in ids.items()] == [{}, {}, {}]
    hold = place_raw(doors.id, fits)
    assert [held(doors.id, kind, each) for kind, each in ids.items()] == [{each: [hold]} for each in ids.values()]
    assert hold in held(doors.id, "subject", subject_of(doors))[subject_of(doors)]


def test_a_query_covers_what_is_said_later(doors: Doors) -> None:
    hold = place_raw(doors.id, {"attribute_id": attribute_of(doors, "city")})
    said, other = doors.say("city", "Oslo"), doors.say("plan", "gold")
    assert held(doors.id, "fact", said.fact, other.fact) == {said.fact: [hold]}
    assert held(doors.id, "subject", subject_of(doors)) == {subject_of(doors): [hold]}


def test_many_matters_may_hold_one_record_and_one_hold_many(doors: Doors) -> None:
    first, second = doors.say("city", "Oslo"), doors.say("plan", "gold")
    wide = place_raw(
        doors.id, {"record_kind": "fact", "record_id": first.fact}, {"record_kind": "fact", "record_id": second.fact}
    )
    narrow = place_raw(doors.id, {"record_kind": "fact", "record_id": first.fact})
    found = held(doors.id, "fact", first.fact, second.fact)
    assert {record: set(each) for record, each in found.items()} == {first.fact: {wide, narrow}, second.fact: {wide}}


def test_a_hold_of_another_tenant_covers_nothing_here(doors: Doors, other_tenant: Any) -> None:
    said = doors.say("city", "Oslo")
    place_raw(other_tenant.id, {"record_kind": "fact", "record_id": said.fact}, {"session_id": "session-1"})
    place_raw(other_tenant.id, {"writer_id": doors.agent.id})
    assert held(doors.id, "fact", said.fact) == {}


# what was refused -----------------------------------------------------------------------------------------------------


def refused(doors: Doors) -> list[tuple[Any, ...]]:
    with tenant_transaction(Role.STAFF, tenant=doors.id):
        return list(RefusedEnding.objects.order_by("record_id").values_list("record_kind", "record_id", "act", "times"))


def told(doors: Doors) -> list[tuple[Any, ...]]:
    with tenant_transaction(Role.STAFF, tenant=doors.id):
        events = AuditEvent.objects.filter(chain=doors.id, action="ending.refused").order_by("seq")
        return list(events.values_list("target_kind", "target_id", "reason", "actor_kind"))


def test_what_may_not_end_is_recorded_and_audited(doors: Doors) -> None:
    kept, gone = doors.say("city", "Oslo"), doors.say("plan", "gold")
    place_raw(doors.id, {"attribute_id": attribute_of(doors, "city")})
    assert free(doors.id, "fact", [gone.fact, kept.fact], act="redaction", by=doors.person) == [gone.fact]
    assert refused(doors) == [("fact", kept.fact, "redaction", 1)]
    assert told(doors) == [("fact", kept.fact, "redaction", "person")]


def test_a_person_is_counted_each_time_and_a_job_once_a_day(doors: Doors) -> None:
    said = doors.say("city", "Oslo")
    place_raw(doors.id, {"subject_id": subject_of(doors)})
    for _ in range(3):
        free(doors.id, "fact", [said.fact], act="redaction", by=doors.person)
        free(doors.id, "fact", [said.fact])
    assert sorted(each[2:] for each in refused(doors)) == [("compaction", 1), ("redaction", 3)]
    assert len(told(doors)) == 4


def test_the_digest_of_a_hold_is_that_of_its_scopes(doors: Doors) -> None:
    hold = place_raw(doors.id, {"session_id": "s1"})
    assert hold_of(doors.id, hold).state == "active"
    with tenant_transaction(Role.STAFF, tenant=doors.id):
        before = holds.digest(hold)
    with tenant_transaction(Role.STAFF, tenant=doors.id):
        rows.execute(
            "INSERT INTO retention_holdscope (tenant_id, id, hold_id, session_id) VALUES (%s, %s, %s, 's2')",
            [doors.id, uuid4(), hold],
        )
        assert holds.digest(hold) != before


# what it costs --------------------------------------------------------------------------------------------------------


def test_a_thousand_records_against_fifty_holds_are_index_look_ups(doors: Doors, superuser: Any) -> None:
    """By the plan and by what is read, not by the clock: no table of memory is scanned, whatever it holds."""
    facts = [outcome.fact for outcome in doors.write([doors.body("tags", f"t{n}") for n in range(1_000)], batch=True)]
    mira = subject_of(doors)
    targets: list[dict[str, Any]] = [{"record_kind": "fact", "record_id": facts[n]} for n in range(20)]
    targets += [{"session_id": f"nobody's {n}", "writer_id": uuid4()} for n in range(20)]
    targets += [{"attribute_id": attribute_of(doors, "city"), "subject_id": mira} for _ in range(10)]
    for target in targets:
        place_raw(doors.id, target)
    for table in ("fact", "factkey", "evidence", "episode"):
        superuser.execute(f"ANALYZE memory_{table}")
    for table in ("hold", "holdscope"):
        superuser.execute(f"ANALYZE retention_{table}")
    scanned = (
        "SELECT coalesce(sum(seq_tup_read), 0) FROM pg_stat_xact_user_tables"
        " WHERE relname IN ('memory_fact', 'memory_factkey', 'memory_evidence', 'memory_episode', 'memory_candidate')"
    )
    with tenant_transaction(Role.WORKER, tenant=doors.id):
        before = rows.fetch(scanned, [])[0][0]
        assert len(holds.held(doors.id, "fact", facts)) == 20
        # A table of a single row may be read whole.
        assert rows.fetch(scanned, [])[0][0] - before <= 10


def test_a_tenant_without_a_hold_in_force_is_answered_at_once(doors: Doors) -> None:
    facts = [outcome.fact for outcome in doors.write([doors.body("tags", f"t{n}") for n in range(50)], batch=True)]
    read = (
        "SELECT coalesce(sum(seq_scan + idx_scan), 0) FROM pg_stat_xact_user_tables"
        " WHERE relname IN ('memory_fact', 'memory_factkey', 'memory_evidence', 'memory_episode')"
    )
    with tenant_transaction(Role.WORKER, tenant=doors.id):
        before = rows.fetch(read, [])[0][0]
        assert holds.held(doors.id, "fact", facts) == {}
        assert rows.fetch(read, [])[0][0] == before
