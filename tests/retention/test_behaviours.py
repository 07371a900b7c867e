"""What users of such systems reported of endings, each as a test named after it (the list is in docs/status.md)."""

from typing import Any
from uuid import UUID, uuid4

import pytest

from memory import outbox, recall, rows
from memory.outcomes import EpisodeKept
from retention import compaction, erasing
from tenants.errors import Missing
from tenants.isolation import Role, tenant_transaction
from tests.memory.background import settle_all
from tests.memory.doors import day
from tests.retention.canary import found_in
from tests.retention.legal import job
from tests.retention.test_erasing import Office, furnish, now

pytestmark = pytest.mark.usefixtures("database")


@pytest.fixture
def office(database: Any) -> Office:
    return Office()


def settled(office: Office) -> None:
    """Let whatever is derived be made: indexes, profiles, contexts."""
    with office.doors.reading():
        for subject in ("mira", "bob"):
            recall.profile(office.doors.agent, subject)
    settle_all(office.doors.organisation)


def by_door(office: Office) -> None:
    office.erased()


def by_program(office: Office) -> None:
    """A key with the scope `admin` asks; a person puts it there, another approves, a worker does it."""
    asked = office.ask(by=office.doors.agent)
    office.ask_again(asked)
    office.decide(office.now(asked))
    settle_all(office.doors.organisation)


def by_restore(office: Office) -> None:
    """The log of endings tells of it to a database that a backup brought back."""
    subject, actor = office.subject(), job(office.doors.id)
    with tenant_transaction(Role.WORKER, tenant=office.doors.id):
        run = erasing.erase_again(actor, subject, uuid4(), now=now())
    assert run is not None
    erasing.finish_again(office.doors.id, run.id)


#: Where an erased subject is still named, by id alone, and why: what was done, by whom, and who had read it.
_MAY_NAME = {
    "memory_receipt", "retention_notice", "retention_erasure", "retention_historicalerasure", "retention_run", "retention_certificate",
    "retention_owedending", "tenants_auditevent", "policies_decisionrequest", "policies_historicaldecisionrequest",
}  # fmt: skip


@pytest.mark.parametrize("by", [by_door, by_program, by_restore])
def test_c006_a_reset_of_a_subject_by_any_entrance_leaves_every_store_empty_table_by_table(
    office: Office, superuser: Any, by: Any
) -> None:
    doors = office.doors
    doors.name("mira", "Mira Okafor")
    kept = doors.episode("I live in Lisbon.", subject="mira", turn_id="e-1", extract="no")
    said = [
        doors.say("city", "Lisbon", 1, episode=kept.id, quote="Lisbon").fact,
        doors.say("tags", "red", 1).fact,
        doors.say("shade", "blue", 1).fact,
    ]
    asked = doors.say("checked", "gold", 1)
    doors.end("plan", None, 3)
    settled(office)
    subject = office.subject()
    by(office)
    tables = superuser.execute(
        "SELECT c.relname::text FROM pg_class c WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p')"
    ).fetchall()
    names = [str(each) for each in (subject, kept.id, asked.candidate, *said)]
    found = {
        table: superuser.execute(
            f'SELECT count(*) FROM "{table}" t WHERE EXISTS (SELECT FROM unnest(%s::text[]) n WHERE strpos(t::text, n) > 0)',
            [names],
        ).fetchone()[0]
        for (table,) in tables
        if table not in _MAY_NAME
    }
    # What waits to be done about ids that are gone finds nothing.
    found.pop("memory_outboxentry")
    assert {table: number for table, number in found.items() if number} == {}
    assert office.left(subject) == {}


def test_c007_after_every_step_what_was_found_or_made_of_content_is_gone_with_it(
    office: Office, superuser: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two steps, too, there is no link, entry, made text or remembered answer of content that is gone."""
    for name in ("FACTS", "EPISODES", "CANDIDATES", "ROWS"):
        monkeypatch.setattr(erasing, name, 2)
    furnish(office)
    settled(office)
    erasure = office.approved()
    assert erasure.run is not None
    steps = 0
    while erasing.advance(office.doors.id, erasure.run, erasure.id):
        steps += 1
        for what, query in {
            "an entry of an index": "SELECT count(*) FROM memory_searchentry s JOIN memory_payload p ON p.id = s.payload_id"
            " WHERE p.ended_at IS NOT NULL AND s.tenant_id = %s",
            "a made text": "SELECT count(*) FROM memory_derivedsource s JOIN memory_fact f ON f.id = s.fact_id"
            " JOIN memory_derived d ON d.id = s.derived_id WHERE d.payload_id IS NOT NULL AND f.ended_at IS NOT NULL AND s.tenant_id = %s",
            "a quote": "SELECT count(*) FROM memory_evidence e JOIN memory_fact f ON f.id = e.fact_id"
            " JOIN memory_payload p ON p.id = e.quote_id WHERE p.ended_at IS NULL AND f.ended_at IS NOT NULL AND e.tenant_id = %s",
            "a value": "SELECT count(*) FROM memory_fact f JOIN memory_payload p ON p.id = f.payload_id"
            " WHERE p.ended_at IS NULL AND f.ended_at IS NOT NULL AND f.tenant_id = %s",
        }.items():
            assert superuser.execute(query, [office.doors.id]).fetchone() == (0,), (steps, what)
    assert steps > 14
    assert office.now(erasure).state == "done"


def test_c008_after_an_erasure_what_is_derived_anew_holds_nothing_of_it(office: Office, superuser: Any) -> None:
    canary = "zebra7qx"
    doors = office.doors
    kept = doors.episode(
        f"I live in {canary} with Bob.", subject="mira", turn_id="e-1", extract="no", sensitivity="internal"
    )
    doors.say("shade", canary, 1, episode=kept.id, quote=canary, sensitivity="public")
    doors.say("city", "Porto", 1, subject="bob", episode=kept.id, quote=f"{canary} with Bob")
    doors.say("city", "Porto", 2, subject="bob")
    settled(office)
    assert found_in(superuser, canary)
    office.erased()
    for _ in range(2):
        settled(office)
    assert found_in(superuser, canary) == []
    with doors.reading():
        assert canary not in str(recall.profile(doors.agent, "mira"))
        assert canary not in str(recall.profile(doors.agent, "bob"))
    assert doors.value("city", 3, subject="bob") == "Porto"


def test_c012_of_an_erased_session_nothing_is_cited_listed_or_read_by_a_later_job(
    office: Office, superuser: Any
) -> None:
    doors = office.doors
    kept = doors.episode("I live in Lisbon.", subject="mira", turn_id="e-1", session_id="s-1", extract="later")
    assert isinstance(kept, EpisodeKept)
    said = doors.say("city", "Lisbon", 1, episode=kept.id, quote="Lisbon")
    erasure = office.approved()
    # The job that would draw from it is told after the approval, and again when all is over.
    outbox.drain_tenant(doors.id)
    erasing.go_on(doors.id, erasure.id, seconds=60)
    settle_all(doors.organisation)
    for table, column in (("evidence", "episode_id"), ("candidatesaying", "episode_id"), ("searchentry", "target_id"),
                          ("extraction", "episode_id")):  # fmt: skip
        found = superuser.execute(f"SELECT count(*) FROM memory_{table} WHERE {column} = %s", [kept.id]).fetchone()
        assert found == (0,), table
    for read in (lambda: recall.episode(doors.agent, kept.id), lambda: recall.lineage(doors.agent, said.fact)):
        with pytest.raises(Missing), doors.reading():
            read()


def test_c014_a_purge_that_matched_nothing_says_so(office: Office) -> None:
    doors = office.doors
    doors.say("city", "Lisbon", 1)
    with pytest.raises(Missing):
        office.subject("nobody")
    nothing = compaction.compact(job(doors.id))
    assert (nothing.counts, nothing.certificate, nothing.refused_by_hold) == ({}, None, 0)
    assert doors.value("city", 1.5) == "Lisbon"
    # An erasure of a subject of whom nothing but a name is known counts nothing else.
    doors.name("empty")
    body = office.certificate(office.erased("empty"))
    assert {name for name in body["removed"] if name.startswith("rows_") or name in ("facts", "texts")} == set()


def test_c014_no_way_of_reading_reads_outside_the_live_set(office: Office) -> None:
    doors = office.doors
    gone, stays = doors.say("city", "Lisbon", 1), doors.say("city", "Porto", 1, subject="bob")
    settled(office)
    office.erased()
    for attribute in (None, "city"):
        assert doors.page(attribute).results == []
        assert doors.page(attribute, valid_at=day(2)).results == []
        assert doors.page(attribute, valid_at=day(2), known_at=now()).results == []
    for read in (recall.fact, recall.history, recall.lineage):
        with doors.reading():
            assert read(doors.agent, stays.fact)
        with pytest.raises(Missing), doors.reading():
            read(doors.agent, UUID(str(gone.fact)))
    with tenant_transaction(Role.WORKER, tenant=doors.id):
        assert rows.fetch("SELECT id FROM memory_fact", []) == [(stays.fact,)]
