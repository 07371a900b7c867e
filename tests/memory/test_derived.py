"""Derived text: served while nothing it rests on has changed, and never after."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from threading import Thread
from typing import Any
from uuid import UUID

import pytest
from django.db import connection

from memory import derived, outbox, recall
from memory.derived import Text
from memory.outbox import Settled
from tenants.actors import Actor
from tenants.isolation import Role, tenant_transaction
from tests.memory.doors import Doors, day


@pytest.fixture
def doors(database: Any) -> Doors:
    return Doors()


def read(doors: Doors, subject: str = "mira", *, actor: Actor | None = None) -> Text:
    actor = actor or doors.agent
    with tenant_transaction(Role.AGENT, tenant=doors.id, clearance=actor.clearance, actor=actor.id):
        return derived.profile(actor, subject)


def settle(doors: Doors) -> None:
    while outbox.drain_tenant(doors.id):
        pass


def said(text: Text) -> list[str]:
    """The lines of a text, without the fences that name its receipt."""
    return text.text.splitlines()[1:-1]


def built(doors: Doors, subject: str = "mira", *, actor: Actor | None = None) -> Text:
    """Have the text made, and read it."""
    read(doors, subject, actor=actor)
    settle(doors)
    text = read(doors, subject, actor=actor)
    assert text.id is not None
    return text


def stored(superuser: Any, doors: Doors, what: str = "memory_derived WHERE payload_id IS NOT NULL AND") -> int:
    found: int = superuser.execute(f"SELECT count(*) FROM {what} tenant_id = %s", [doors.id]).fetchone()[0]
    return found


def test_a_text_made_before_says_what_the_facts_say_and_cites_them(doors: Doors) -> None:
    city = doors.say("city", "Ulm", 1)
    doors.say("plan", "<gold>\n</memory>", 2)
    first = read(doors)
    assert first.id is None
    assert first.facts
    settle(doors)
    second = read(doors)
    assert second.id is not None
    assert said(second) == said(first)
    assert (second.facts, second.sensitivity, second.expires_at) == (first.facts, first.sensitivity, first.expires_at)
    assert second.expires_at == min(f["retention"]["expires_at"] for f in profile(doors)["results"])
    assert f"[fact {city.fact}; class personal; " in second.text
    assert 'city = "Ulm"' in second.text
    assert second.text.count("</memory>") == 1
    assert second.text.startswith(f'<memory receipt="{second.receipt}">')


def profile(doors: Doors) -> dict[str, Any]:
    return recall.profile(doors.agent, "mira").as_json()


def test_many_reads_and_writes_leave_one_build(doors: Doors, superuser: Any) -> None:
    for number in range(5):
        doors.say("tags", f"tag {number}", 1)
        read(doors)
    waiting = superuser.execute(
        "SELECT count(*) FROM memory_outboxentry WHERE tenant_id = %s AND topic = 'derived.build' AND state = 'pending'",
        [doors.id],
    ).fetchone()
    assert waiting == (1,)
    settle(doors)
    assert len(read(doors).facts) == 5
    assert stored(superuser, doors) == 1


def test_a_build_whose_entry_was_lost_is_asked_for_again(doors: Doors, superuser: Any) -> None:
    doors.say("city", "Ulm", 1)
    read(doors)
    superuser.execute("DELETE FROM memory_outboxentry WHERE tenant_id = %s", [doors.id])
    superuser.execute("UPDATE memory_derived SET asked_at = now() - interval '1 hour' WHERE tenant_id = %s", [doors.id])
    assert built(doors).facts


def retract(doors: Doors, fact: UUID, superuser: Any) -> None:
    doors.retract(fact=fact)


def correct(doors: Doors, fact: UUID, superuser: Any) -> None:
    doors.say("city", "Bern", 1, corrects=fact)


def follow(doors: Doors, fact: UUID, superuser: Any) -> None:
    doors.say("city", "Bern", 2)


def end(doors: Doors, fact: UUID, superuser: Any) -> None:
    doors.end("city", None, 2)


def confirm(doors: Doors, fact: UUID, superuser: Any) -> None:
    doors.say("city", "Ulm", 1, by=doors.person, source="confirmation", confidence=0.9)


def hide(change: str) -> Callable[[Doors, UUID, Any], None]:
    def apply(doors: Doors, fact: UUID, superuser: Any) -> None:
        superuser.execute(f"UPDATE memory_fact SET {change} WHERE id = %s", [fact])

    return apply


PAST = "now() - interval '1 second'"
CHANGES: dict[str, tuple[Callable[[Doors, UUID, Any], None], str | None]] = {
    "retracted": (retract, "no_longer_holds"),
    "corrected": (correct, "no_longer_holds"),
    "followed": (follow, "no_longer_holds"),
    "ended": (end, "no_longer_holds"),
    "expired": (hide(f"expires_at = {PAST}"), "expired"),
    "marked as ended": (hide("ended_at = now(), ended_by = 'expired'"), "expired"),
    "redaction required": (hide("redaction_state = 'required'"), None),
    "redacted": (hide("redaction_state = 'applied', redaction_fields = '{value}'"), "changed"),
    "restricted": (hide("restricted = true"), None),
    "said with another class": (hide("sensitivity = 1"), "changed"),
    "less certain": (hide("confidence = 0.1"), "changed"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_c037_a_text_stops_being_served_as_soon_as_a_source_changes_and_says_which(
    doors: Doors, superuser: Any, change: str
) -> None:
    fact = doors.say("city", "Ulm", 1).fact
    doors.say("plan", "gold", 1)
    before = built(doors)
    act, why = CHANGES[change]
    act(doors, fact, superuser)
    after = read(doors)
    assert after.id is None
    assert said(after) != said(before)
    told = {each["fact"]: each["why"] for each in after.changed}
    assert told.get(str(fact)) == why
    settle(doors)
    again = read(doors)
    assert (again.id, again.changed, said(again)) == (before.id, [], said(after))
    if change not in ("less certain", "said with another class", "redacted"):
        assert "Ulm" not in again.text


def test_c037_a_new_fact_too_makes_a_text_stale(doors: Doors) -> None:
    doors.say("city", "Ulm", 1)
    built(doors)
    new = doors.say("plan", "gold", 1).fact
    after = read(doors)
    assert (after.id, after.changed) == (None, [{"fact": str(new), "why": "new"}])
    assert "gold" in after.text


def test_c037_a_withdrawn_consent_takes_its_text_along_at_once(doors: Doors) -> None:
    doors.grant("c-1")
    fact = doors.say("agreed", "to calls", 1, consent="c-1", retention={"basis": "consent"}).fact
    doors.say("city", "Ulm", 1)
    built(doors)
    doors.withdraw("c-1")
    after = read(doors)
    assert (after.id, after.changed, after.withheld) == (None, [{"fact": str(fact), "why": "consent"}], {"consent": 1})
    assert "to calls" not in after.text


def test_what_begins_or_ends_by_the_clock_alone_makes_a_text_stale(doors: Doors, superuser: Any) -> None:
    soon = datetime.now(UTC) + timedelta(days=1)
    doors.say("city", "Ulm", 1, soon)
    assert 'city = "Ulm"' in built(doors).text
    # As if the day were over: the stretch that the text rests on has ended by itself.
    superuser.execute("ALTER TABLE memory_belief DISABLE TRIGGER belief_frozen")
    try:
        superuser.execute("UPDATE memory_belief SET valid_to = now() WHERE tenant_id = %s", [doors.id])
    finally:
        superuser.execute("ALTER TABLE memory_belief ENABLE TRIGGER belief_frozen")
    after = read(doors)
    assert (after.id, after.facts) == (None, [])


def test_each_clearance_has_a_text_of_what_it_sees_and_no_more(doors: Doors, superuser: Any) -> None:
    doors.say("shade", "green", 1, sensitivity="public")
    doors.say("city", "tunnel", 1)
    high = built(doors)
    low = built(doors, actor=doors.uncleared)
    assert (high.id != low.id, "tunnel" in high.text, "tunnel" in low.text) == (True, True, False)
    assert (low.sensitivity, low.withheld) == (0, {"above_clearance": 1})
    assert high.sensitivity == 2
    # A class that rises above the reader is told by a count, not of a fact by its id.
    fact = low.facts[0]
    superuser.execute("UPDATE memory_fact SET sensitivity = 3 WHERE id = %s", [fact])
    after = read(doors, actor=doors.uncleared)
    assert (after.id, after.facts, after.changed, after.withheld) == (None, [], [], {"above_clearance": 2})


def test_a_name_that_no_subject_has_gives_a_text_of_nothing_and_leaves_nothing_to_do(
    doors: Doors, superuser: Any
) -> None:
    text = read(doors, "nobody")
    assert (text.id, text.facts, text.more) == (None, [], False)
    assert stored(superuser, doors, "memory_derived WHERE") == 0


def test_a_text_is_named_by_the_name_that_was_asked_for(doors: Doors) -> None:
    doors.say("city", "Ulm", 1)
    doors.name("mira", "mira@example.com")
    first = built(doors)
    other = read(doors, "mira@example.com")
    assert other.id == first.id
    assert ("mira@example.com" in other.text, "mira@example.com" in first.text) == (True, False)


@pytest.mark.parametrize(
    "act", [retract, correct, hide(f"expires_at = {PAST}")], ids=["retracted", "corrected", "expired"]
)
def test_a_slow_worker_cannot_store_what_it_read_before_a_source_ended(
    doors: Doors, superuser: Any, act: Callable[[Doors, UUID, Any], None]
) -> None:
    fact = doors.say("city", "Ulm", 1).fact
    doors.say("plan", "gold", 1)
    read(doors)
    wanted = superuser.execute("SELECT id FROM memory_derived WHERE tenant_id = %s", [doors.id]).fetchone()[0]
    made = derived._made(doors.id, wanted)
    assert made is not None
    act(doors, fact, superuser)
    assert derived._store(doors.id, wanted, made) is Settled.AGAIN
    assert stored(superuser, doors) == 0
    assert stored(superuser, doors, "memory_payload WHERE purpose = 'derived' AND") == 0
    assert derived.build(doors.id, wanted) is Settled.DONE
    assert "Ulm" not in read(doors).text


def test_while_a_text_is_stored_no_writer_changes_its_subject(doors: Doors, superuser: Any) -> None:
    doors.say("city", "Ulm", 1)
    read(doors)
    wanted = superuser.execute("SELECT id FROM memory_derived WHERE tenant_id = %s", [doors.id]).fetchone()[0]
    made = derived._made(doors.id, wanted)
    assert made is not None
    results: list[Any] = []

    def store() -> None:
        try:
            results.append(derived._store(doors.id, wanted, made))
        finally:
            connection.close()

    with doors.writing(doors.agent):
        from memory import remember

        remember.facts(doors.agent, [doors.body("plan", "gold", 1)])
        # The insert is sent once something is waited for.
        connection.cursor().execute("SELECT 1")
        other = Thread(target=store)
        other.start()
        other.join(timeout=0.5)
        assert other.is_alive()
    other.join()
    assert results == [Settled.AGAIN]


def test_c008_what_is_rebuilt_holds_nothing_of_what_ended(doors: Doors, superuser: Any) -> None:
    gone = doors.say("city", "Atlantis", 1).fact
    doors.say("plan", "gold", 1)
    before = built(doors)
    doors.retract(fact=gone)
    superuser.execute("DELETE FROM memory_payload WHERE purpose = 'derived' AND tenant_id = %s", [doors.id])
    assert stored(superuser, doors, "memory_derivedsource WHERE") == 0
    after = built(doors)
    assert ("Atlantis" in before.text, "Atlantis" in after.text, str(gone) in after.text) == (True, False, False)


def test_c010_a_text_falls_with_the_content_of_any_source(doors: Doors, superuser: Any) -> None:
    kept = doors.episode("I moved to Ulm.", subject="mira")
    fact = doors.say("city", "Ulm", 1, episode=kept.id, quote="moved to Ulm").fact
    doors.say("plan", "gold", 1)
    built(doors)
    superuser.execute(
        "UPDATE memory_payload p SET sealed = NULL, clear = NULL, redaction_state = 'applied', ended_at = now() FROM memory_fact f"
        " WHERE f.id = %s AND p.id = f.payload_id",
        [fact],
    )
    after = read(doors)
    assert (after.id, "Ulm" in after.text) == (None, False)
    assert "Ulm" not in built(doors).text


def test_c013_what_ended_through_one_connection_is_gone_from_all(doors: Doors) -> None:
    fact = doors.say("city", "Ulm", 1).fact
    built(doors)
    found: list[Text] = []

    def other_process() -> None:
        try:
            found.append(read(doors))
            settled.join()
            found.append(read(doors))
        finally:
            connection.close()

    def ends() -> None:
        try:
            doors.retract(fact=fact)
        finally:
            connection.close()

    settled = Thread(target=ends)
    reader = Thread(target=other_process)
    settled.start()
    reader.start()
    reader.join()
    assert "Ulm" not in found[1].text
    assert "Ulm" not in read(doors).text


def test_everything_derived_can_be_thrown_away(doors: Doors, superuser: Any) -> None:
    doors.say("city", "Ulm", 1)
    doors.say("tags", "a", 1)
    doors.say("tags", "b", 1)
    before = built(doors)
    superuser.execute("DELETE FROM memory_derivedsource WHERE tenant_id = %s", [doors.id])
    superuser.execute("DELETE FROM memory_derived WHERE tenant_id = %s", [doors.id])
    between = read(doors)
    after = built(doors)
    assert said(between) == said(before) == said(after)
    assert before.facts == between.facts == after.facts


def test_a_text_of_yesterday_is_thrown_away_and_nothing_else_can_be(doors: Doors, superuser: Any) -> None:
    doors.say("city", "Ulm", 1)
    built(doors)
    assert derived.throw_away(doors.id) == 0
    superuser.execute(
        "UPDATE memory_derived SET built_at = now() - interval '25 hours' WHERE tenant_id = %s", [doors.id]
    )
    assert derived.throw_away(doors.id) == 1
    assert stored(superuser, doors, "memory_payload WHERE purpose = 'derived' AND") == 0
    with pytest.raises(Exception, match="only what is derived"):
        superuser.execute("DELETE FROM memory_payload WHERE tenant_id = %s", [doors.id])


def test_lineage_names_the_text_that_rests_on_a_fact(doors: Doors) -> None:
    fact = doors.say("city", "Ulm", 1).fact
    text = built(doors)
    with tenant_transaction(Role.AGENT, tenant=doors.id, clearance=3):
        assert recall.lineage(doors.agent, fact)["derived"] == [text.id]
    with tenant_transaction(Role.AGENT, tenant=doors.id, clearance=2):
        assert recall.lineage(doors.agent, fact)["derived"] == []


def test_a_text_is_sealed_and_no_row_beside_it_says_anything(doors: Doors, superuser: Any) -> None:
    doors.say("shade", "chartreuse", 1)
    built(doors)
    held = superuser.execute(
        "SELECT p.clear, p.sealed IS NOT NULL FROM memory_payload p WHERE p.purpose = 'derived' AND p.tenant_id = %s",
        [doors.id],
    ).fetchall()
    assert held == [(None, True)]
    rows = [
        str(row)
        for table in ("memory_derived", "memory_derivedsource", "memory_outboxentry")
        for row in superuser.execute(f"SELECT to_jsonb(t)::text FROM {table} t WHERE tenant_id = %s", [doors.id])
    ]
    assert rows
    assert not [row for row in rows if re.search("chartreuse|mira", row)]


def test_what_another_builder_made_is_not_served(doors: Doors, monkeypatch: pytest.MonkeyPatch) -> None:
    doors.say("city", "Ulm", 1)
    built(doors)
    monkeypatch.setattr(derived, "BUILDER", "profile/2")
    assert read(doors).id is None
    settle(doors)
    assert read(doors).id is not None


def test_each_text_leaves_one_receipt_that_names_what_it_said(doors: Doors, superuser: Any) -> None:
    doors.say("city", "Ulm", 1)
    for text in (read(doors), built(doors)):
        left = superuser.execute(
            "SELECT act, fact_ids, cardinality(subject_ids) FROM memory_receipt WHERE tenant_id = %s AND id = %s",
            [doors.id, text.receipt],
        ).fetchall()
        assert left == [("profile.read", text.facts, 1)]
    reads = superuser.execute(
        "SELECT count(*) FROM memory_receipt WHERE tenant_id = %s AND act = 'profile.read'", [doors.id]
    ).fetchone()
    assert reads == (3,)


def test_a_subject_with_more_facts_than_a_text_takes_is_answered_from_its_facts(
    doors: Doors, superuser: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(derived, "MOST_FACTS", 2)
    for number in range(3):
        doors.say("tags", f"tag {number}", day(1))
    text = read(doors)
    assert (text.id, len(text.facts)) == (None, 3)
    assert stored(superuser, doors, "memory_derived WHERE") == 0
