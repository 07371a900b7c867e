"""Compaction: what has outlived its time is removed beside whoever reads and writes, once, and told."""

import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from django.db import connection

from memory import outbox, rows
from retention import certificates, compaction, runs
from retention.compaction import Progress
from tenants.actors import Actor, ActorKind
from tenants.isolation import Role, tenant_transaction
from tenants.registry import OPERATOR
from tenants.secrets import provider
from tests.memory.doors import Doors, assert_sound, day
from tests.retention.legal import place_raw

pytestmark = pytest.mark.usefixtures("database")


@pytest.fixture
def doors(tenant: Any) -> Doors:
    return Doors(tenant)


def operator(doors: Doors) -> Actor:
    return Actor(kind=ActorKind.OPERATOR, id=OPERATOR.id, tenant=doors.id)


def compact(doors: Doors) -> compaction.Compacted:
    return compaction.compact(operator(doors), seconds=60)


def age(superuser: Any, doors: Doors, *tables: str, where: str = "basis <> 'indefinite'") -> None:
    """Let the time of rows be over since an hour."""
    for table in tables or ("payload", "fact", "evidence", "episode", "candidate"):
        superuser.execute(
            f"UPDATE memory_{table} SET expires_at = clock_timestamp() - interval '1 hour' WHERE tenant_id = %s AND {where}",
            [doors.id],
        )


def left(doors: Doors) -> dict[str, int]:
    """How many rows of what was said are left."""
    kept = {table.removeprefix("memory_"): n for table, n in doors.counts().items() if table.startswith("memory_")}
    return {table: n for table, n in kept.items() if n and table not in ("receipt", "outboxentry")}


def events(doors: Doors, action: str) -> list[tuple[Any, ...]]:
    return doors.sql(
        "SELECT target_kind, reason, count(*), count(DISTINCT target_id) FROM tenants_auditevent WHERE action = %s"
        " GROUP BY 1, 2 ORDER BY 1, 2",
        action,
    )


# what goes ------------------------------------------------------------------------------------------------------------


def test_everything_about_a_subject_that_outlived_its_time_leaves_no_row(doors: Doors, superuser: Any) -> None:
    episode = doors.episode("I live in Oslo now", subject="mira")
    doors.say("city", "Oslo", 1, episode=episode.id, quote="live in Oslo")
    doors.say("city", "Rome", 5)
    doors.end("plan", None, 3)
    doors.say("checked", "yes", 1, episode=episode.id, quote="now")
    age(superuser, doors)
    done = compact(doors)
    assert done.done
    assert left(doors) == {}
    assert doors.sql("SELECT count(*) FROM tenants_subjectkey") == [(0,)]
    assert done.counts["values"] == 2
    assert done.counts["texts"] == done.counts["proposals"] == 1
    assert done.counts["quotes"] == 2
    assert events(doors, "content.removed") == [
        ("candidate", "expired", 2, 1),  # its quote, then itself
        ("episode", "expired", 1, 1),
        ("fact", "expired", 2, 2),
    ]


def test_what_is_kept_stays_as_it_was(doors: Doors, superuser: Any) -> None:
    doors.say("city", "Oslo", 1)
    later = doors.say("city", "Rome", 5)
    doors.say("plan", "basic", 1, subject="jon")
    doors.expire(later.fact)
    done = compact(doors)
    assert done.counts["values"] == 1
    assert doors.values("city", 2) == ["Oslo"]
    assert doors.values("city", 6) == []
    assert doors.values("plan", 2, subject="jon") == ["basic"]
    assert_sound(doors)


def test_the_boundary_goes_with_the_last_that_stood_before_it(doors: Doors) -> None:
    first, later = doors.say("city", "Oslo", 1), doors.say("city", "Rome", 5)
    doors.expire(later.fact)
    compact(doors)
    assert left(doors)["fact"] == 2
    doors.expire(first.fact)
    compact(doors)
    assert left(doors) == {}


def test_evidence_whose_own_life_is_over_loses_its_quote_and_the_fact_is_kept(doors: Doors, superuser: Any) -> None:
    episode = doors.episode("I live in Oslo now", subject="mira")
    said = doors.say("city", "Oslo", 1, episode=episode.id, quote="live in Oslo")
    doors.say("city", "Oslo", 4)
    age(superuser, doors, "evidence", where=f"id = '{said.evidence}'")
    age(superuser, doors, "payload", where="purpose = 'quote'")
    done = compact(doors)
    assert done.counts == {"quotes": 1, "sealed": 1}
    assert doors.values("city", 2) == ["Oslo"]
    assert events(doors, "content.removed") == [("evidence", "expired", 1, 1)]
    assert_sound(doors)


def test_a_cited_episode_keeps_its_row_until_what_cites_it_goes(doors: Doors, superuser: Any) -> None:
    episode = doors.episode("I live in Oslo now", subject="mira")
    said = doors.say("city", "Oslo", 1, episode=episode.id, quote="live in Oslo")
    age(superuser, doors, "episode")
    age(superuser, doors, "payload", where="purpose = 'episode'")
    assert compact(doors).counts == {"episodes": 1, "texts": 1, "sealed": 1}
    assert left(doors)["episode"] == 1
    with doors.reading():
        from memory import recall

        assert recall.lineage(doors.agent, said.fact)["sources"][0]["provenance"]["quote"] == "live in Oslo"
    doors.expire(said.fact)
    age(superuser, doors, "payload", where="purpose = 'quote'")
    compact(doors)
    assert left(doors) == {}


def test_what_rested_on_a_withdrawn_consent_goes_for_that_reason(doors: Doors) -> None:
    doors.grant("form-1")
    doors.say("agreed", "yes", 1, consent="form-1")
    doors.episode("I agree", subject="mira", consent_ref="form-1", retention={"basis": "consent"})
    with doors.writing(doors.agent):
        from memory import consent

        consent.withdraw(doors.agent, "form-1")
    while outbox.drain_tenant(doors.id):
        pass
    compact(doors)
    assert doors.sql("SELECT count(*) FROM memory_payload WHERE purpose = 'value' AND ended_at IS NULL") == [(0,)]
    assert ("fact", "consent_withdrawn", 1, 1) in events(doors, "content.removed")


def test_a_write_that_meets_what_is_overdue_asks_for_a_run(doors: Doors) -> None:
    said = doors.say("city", "Oslo", 1)
    doors.expire(said.fact)
    doors.say("city", "Rome", 5)
    asked = doors.sql("SELECT target_id, state FROM memory_outboxentry WHERE topic = 'compaction.asked'")
    assert asked == [(doors.id, "pending")]
    while outbox.drain_tenant(doors.id):
        pass
    assert doors.sql("SELECT id FROM memory_fact WHERE ended_at IS NOT NULL") == []
    assert doors.sql("SELECT state FROM memory_outboxentry WHERE topic = 'compaction.asked'") == [("done",)]
    assert doors.values("city", 6) == ["Rome"]
    assert_sound(doors)


def test_where_nothing_is_overdue_beat_begins_no_run(doors: Doors) -> None:
    doors.say("city", "Oslo", 1)
    compaction.compact_due(seconds=5)
    assert doors.sql("SELECT count(*) FROM retention_run", role=Role.WORKER) == [(0,)]


def test_c018_c131_what_a_run_removed_is_what_the_audit_names_with_job_reason_and_time(
    doors: Doors, superuser: Any
) -> None:
    facts = {doors.say("city", f"place {number}", number).fact for number in range(6)}
    kept = doors.say("city", "Rome", 20).fact
    for fact in facts:
        doors.expire(fact)
    compaction.compact_due(seconds=20)
    removed = facts - {row[0] for row in doors.sql("SELECT id FROM memory_fact")}
    audited = doors.sql(
        "SELECT target_id, actor_kind, reason, at IS NOT NULL FROM tenants_auditevent WHERE action = 'content.removed'"
    )
    assert {row[0] for row in audited} == removed == facts
    assert {row[1:] for row in audited} == {("job", "expired", True)}
    assert kept not in removed


def test_c128_a_removal_costs_what_it_removes_and_is_complete_past_any_chunk(
    doors: Doors, superuser: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def statements(size: int) -> int:
        monkeypatch.setattr(compaction, "CHUNK", size)
        sent = 0

        def counted(*given: Any) -> Any:
            nonlocal sent
            sent += 1
            return real(*given)

        real = rows._sent
        monkeypatch.setattr(rows, "_sent", counted)
        compact(doors)
        monkeypatch.setattr(rows, "_sent", real)
        return sent

    def overdue(number: int) -> None:
        for each in range(number):
            doors.expire(doors.say("city", f"place {each}", each, subject="gone").fact)

    for number in range(40):
        doors.say("tags", f"kept {number}", subject="kept")
    counts = []
    for number in (5, 20):
        overdue(number)
        counts.append(statements(1_000))
        assert left(doors)["fact"] == 40
    assert counts[0] == counts[1], "as many statements for twenty as for five"
    overdue(9)
    statements(2)
    assert left(doors)["fact"] == 40


# chunks ---------------------------------------------------------------------------------------------------------------


def test_a_run_goes_in_bounded_chunks_and_its_sums_are_those_of_one(
    doors: Doors, superuser: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(7):
        doors.say("city", f"place {number}", number, subject=f"subject-{number % 3}")
    age(superuser, doors)
    monkeypatch.setattr(compaction, "CHUNK", 2)
    done = compact(doors)
    assert (done.counts["values"], done.counts["rows_facts"], done.counts["rows_subjects"]) == (7, 7, 3)
    assert left(doors) == {}
    assert events(doors, "content.removed") == [("fact", "expired", 7, 7)]


def test_a_run_that_was_left_is_gone_on_with_from_where_it_stands(doors: Doors, superuser: Any) -> None:
    for number in range(5):
        doors.say("city", f"place {number}", subject=f"subject-{number}")
    age(superuser, doors)
    run = compaction._open(operator(doors))
    assert compaction.chunk(operator(doors), run, limit=2) is Progress.MORE
    assert left(doors)["fact"] == 3
    compaction.compact_due(seconds=20)
    with tenant_transaction(Role.WORKER, tenant=doors.id):
        found = runs.find(doors.id, run)
    assert found is not None
    assert (found.state, found.counts["values"]) == ("done", 5)
    assert doors.sql("SELECT count(*) FROM retention_run", role=Role.WORKER) == [(1,)]


def test_two_workers_have_one_run_and_one_of_them_at_a_time(doors: Doors, superuser: Any) -> None:
    doors.say("city", "Oslo", 1)
    age(superuser, doors)
    run = compaction._open(operator(doors))
    assert compaction._open(operator(doors)) == run
    with superuser.transaction():
        superuser.execute("SELECT FROM retention_run WHERE id = %s FOR UPDATE", [run])
        assert compaction.chunk(operator(doors), run) is Progress.BUSY
    assert compaction.compact(operator(doors)).done
    assert compaction.chunk(operator(doors), run) is Progress.DONE


def test_a_key_that_a_writer_holds_is_passed_over_without_waiting(doors: Doors, superuser: Any) -> None:
    said = doors.say("city", "Oslo", 1)
    other = doors.say("city", "Rome", 1, subject="jon")
    age(superuser, doors)
    with superuser.transaction():
        superuser.execute(
            "SELECT FROM memory_factkey WHERE id = (SELECT key_id FROM memory_fact WHERE id = %s) FOR UPDATE",
            [said.fact],
        )
        began = time.monotonic()
        compact(doors)
        assert time.monotonic() - began < 30
    assert [row[0] for row in doors.sql("SELECT id FROM memory_fact")] == [said.fact]
    compact(doors)
    assert left(doors) == {}
    assert other.fact


def test_what_a_writer_extends_meanwhile_is_not_removed(doors: Doors, superuser: Any, database: Any) -> None:
    said = doors.say("city", "Oslo", 1)
    age(superuser, doors)
    with psycopg.connect(database.superuser) as writer:
        # The writer has the key and has given the fact more life; neither is committed while the run looks.
        writer.execute("SELECT FROM memory_factkey WHERE tenant_id = %s FOR NO KEY UPDATE", [doors.id])
        for table in ("fact", "payload"):
            writer.execute(
                f"UPDATE memory_{table} SET expires_at = clock_timestamp() + interval '1 day'"
                " WHERE tenant_id = %s AND basis <> 'indefinite'",
                [doors.id],
            )
        ran = threading.Thread(target=_run_beside, args=(doors,))
        ran.start()
        time.sleep(0.5)
        writer.commit()
        ran.join(60)
    compact(doors)
    assert [row[0] for row in doors.sql("SELECT id FROM memory_fact WHERE ended_at IS NULL")] == [said.fact]
    assert doors.values("city", 2) == ["Oslo"]


def _run_beside(doors: Doors) -> None:
    try:
        compact(doors)
    finally:
        connection.close()


def test_an_episode_that_somebody_draws_from_is_left_for_the_next_run(doors: Doors, superuser: Any) -> None:
    doors.episode("I live in Oslo now", subject="mira", extract="later")
    age(superuser, doors)
    with superuser.transaction():
        superuser.execute("SELECT FROM memory_extraction WHERE tenant_id = %s FOR UPDATE", [doors.id])
        compact(doors)
        assert left(doors)["episode"] == 1
    compact(doors)
    assert left(doors) == {}


def test_an_episode_goes_only_when_no_write_that_read_it_can_be_under_way(doors: Doors, superuser: Any) -> None:
    doors.episode("I live in Oslo now", subject="mira")
    for table in ("episode", "payload"):
        superuser.execute(
            f"UPDATE memory_{table} SET expires_at = clock_timestamp() - interval '1 minute'"
            " WHERE tenant_id = %s AND basis <> 'indefinite'",
            [doors.id],
        )
    compact(doors)
    assert left(doors)["episode"] == 1


# holds ----------------------------------------------------------------------------------------------------------------


def test_what_is_held_stays_with_its_content_and_the_refusal_is_recorded(doors: Doors, superuser: Any) -> None:
    held, free = doors.say("city", "Oslo", 1), doors.say("city", "Rome", 1, subject="jon")
    place_raw(doors.id, {"record_kind": "fact", "record_id": held.fact})
    age(superuser, doors)
    done = compact(doors)
    assert (done.refused_by_hold, done.counts["values"]) == (1, 1)
    assert [row[0] for row in doors.sql("SELECT id FROM memory_fact")] == [held.fact]
    assert doors.sql("SELECT record_id, act, run_id FROM retention_refusedending", role=Role.WORKER) == [
        (held.fact, "compaction", done.run)
    ]
    assert events(doors, "ending.refused") == [("fact", "compaction", 1, 1)]
    assert free.fact


def while_it_waited(doors: Doors, subject: str = "mira") -> tuple[Any, Any, dict[str, Any]]:
    """Let a proposal with a quote be accepted; return it, the fact, and what covers the time before the decision alone."""
    episode = doors.episode("I have checked it", subject=subject)
    asked = doors.say("checked", "yes", 1, episode=episode.id, quote="checked it", subject=subject)
    time.sleep(0.01)
    until = datetime.now(UTC)
    time.sleep(0.01)
    return asked, doors.decide(asked.candidate), {"recorded_from": until - timedelta(days=1), "recorded_until": until}


def test_a_fact_stays_whose_proposal_alone_is_held_and_the_rest_of_the_chunk_goes(doors: Doors, superuser: Any) -> None:
    asked, kept, before = while_it_waited(doors)
    for number in range(3):
        doors.say("city", f"place {number}", 1, subject=f"subject-{number}")
    place_raw(doors.id, before)
    age(superuser, doors)
    for _ in range(2):
        assert compact(doors).done
    assert doors.sql("SELECT id FROM memory_fact") == [(kept.fact,)]
    # With the content of all of them: the fact's, the quote, the proposal's, the episode's.
    assert doors.sql("SELECT purpose FROM memory_payload WHERE ended_at IS NULL AND expires_at < now() ORDER BY 1") == [
        ("candidate",), ("episode",), ("quote",), ("value",),
    ]  # fmt: skip
    refused = doors.sql("SELECT record_kind, record_id, act FROM retention_refusedending", role=Role.WORKER)
    assert ("candidate", asked.candidate, "compaction") in refused


def test_an_empty_row_that_a_held_proposal_shares_stays_and_the_rest_goes(doors: Doors, superuser: Any) -> None:
    """The fact had ended, content and all, before anybody held what it was accepted from."""
    _, kept, before = while_it_waited(doors)
    # Said to hold before it: while that is kept, the row of what ended stays as a boundary.
    doors.decide(doors.say("checked", "no", 0).candidate)
    of_kept = f"id IN ('{kept.fact}', (SELECT payload_id FROM memory_fact WHERE id = '{kept.fact}'))"
    age(superuser, doors, "payload", "fact", where=of_kept)
    compact(doors)
    assert doors.sql("SELECT ended_at IS NULL FROM memory_fact WHERE id = %s", kept.fact) == [(False,)]
    place_raw(doors.id, before)
    age(superuser, doors)
    assert compact(doors).done
    assert doors.sql("SELECT id FROM memory_fact") == [(kept.fact,)]


def test_a_hold_that_is_placed_between_two_chunks_wins(doors: Doors, superuser: Any) -> None:
    said = [doors.say("city", f"place {number}", subject=f"subject-{number}") for number in range(4)]
    age(superuser, doors)
    run = compaction._open(operator(doors))
    compaction.chunk(operator(doors), run, limit=2)
    gone = {each.fact for each in said} - {row[0] for row in doors.sql("SELECT id FROM memory_fact")}
    assert len(gone) == 2
    place_raw(doors.id, {"recorded_from": datetime(2020, 1, 1, tzinfo=UTC)})
    done = compact(doors)
    assert (done.run, done.refused_by_hold) == (run, 2)
    assert doors.sql("SELECT count(*) FROM memory_payload WHERE purpose = 'value' AND ended_at IS NULL") == [(2,)]


def test_where_everything_left_is_held_beat_does_not_begin_a_run_each_minute(doors: Doors, superuser: Any) -> None:
    said = doors.say("city", "Oslo", 1)
    place_raw(doors.id, {"record_kind": "fact", "record_id": said.fact})
    age(superuser, doors)
    for _ in range(3):
        compaction.compact_due(seconds=5)
    assert doors.sql("SELECT count(*) FROM retention_run", role=Role.WORKER) == [(1,)]


# what is told ---------------------------------------------------------------------------------------------------------


def test_a_run_leaves_a_certificate_that_says_what_it_does_not_reach(doors: Doors, superuser: Any) -> None:
    doors.say("city", "Oslo", 1)
    doors.say("shade", "red", 1)
    age(superuser, doors)
    done = compact(doors)
    assert done.certificate is not None
    with tenant_transaction(Role.WORKER, tenant=doors.id):
        issued = certificates.find(doors.id, done.certificate)
    verdict = certificates.verify(certificates.export(issued), provider().public_key_pem())
    assert verdict.sound
    assert verdict.certificate is not None
    body = verdict.certificate["body"]
    assert (body["counts"]["sealed"], body["counts"]["clear"]) == (1, 1)
    assert body["sealed"] == {"state": "key_living", "tenant_key_version": 1}
    assert body["clear"] == {"state": "maintenance_due"}
    assert "backups_until_they_age_out" in body["not_reached"]
    head = doors.sql("SELECT hash FROM tenants_auditevent WHERE seq = %s", verdict.certificate["chain"]["seq"])
    assert bytes(head[0][0]).hex() == verdict.certificate["chain"]["hash"]


def test_a_run_that_found_nothing_issues_no_certificate(doors: Doors) -> None:
    doors.say("city", "Oslo", 1)
    done = compact(doors)
    assert (done.done, done.certificate, done.counts) == (True, None, {})


# reading --------------------------------------------------------------------------------------------------------------


def test_answers_are_the_same_before_and_after_a_run(doors: Doors, superuser: Any) -> None:
    """What is over is hidden by its date alone; the run changes no answer that anybody gets."""
    kept = doors.say("city", "Oslo", 1)
    gone = doors.say("city", "Rome", 5)
    back = doors.say("city", "Bonn", 9)
    before_ending = datetime.now(UTC)
    doors.expire(gone.fact)

    def answers() -> list[Any]:
        from memory import recall

        found: list[Any] = []
        for at in (2, 6, 10):
            for known in (None, before_ending):
                page = doors.page("city", valid_at=day(at), known_at=known)
                found.append([(each["id"], each["valid_from"], each["valid_to"]) for each in page.results])
                found.append(page.withheld)
        with doors.reading():
            found.append([each["id"] for each in recall.profile(doors.agent, "mira").results])
            found.append(recall.lineage(doors.agent, kept.fact)["sources"][0]["id"])
        return found

    before = answers()
    compact(doors)
    assert answers() == before
    assert back.fact


def test_an_expired_value_is_said_anew_after_the_run(doors: Doors) -> None:
    said = doors.say("city", "Oslo", 1)
    doors.expire(said.fact)
    compact(doors)
    again = doors.say("city", "Oslo", 1)
    assert again.change == "new"
    assert doors.values("city", 2) == ["Oslo"]
    assert_sound(doors)


def test_c130_retention_applies_to_the_history_of_a_fact_too(doors: Doors, superuser: Any) -> None:
    for number in range(30):
        doors.say("city", f"place {number}", number)
    old = doors.sql("SELECT id FROM memory_fact ORDER BY id LIMIT 20")
    for (fact,) in old:
        doors.expire(fact)
    assert compact(doors).counts["rows_facts"] == 20
    assert doors.sql("SELECT count(*) FROM memory_evidence") == [(10,)]
    assert doors.values("city", 40) == ["place 29"]
    assert_sound(doors)
