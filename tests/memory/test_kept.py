"""Kept contexts: served while nothing that they could rest on has changed, and never after."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from memory import context, indexing, kept, outbox
from memory.contracts import RecallBody, parse
from memory.outbox import Settled
from tenants.actors import Actor
from tenants.isolation import Role, tenant_transaction
from tests.memory.doors import Doors

QUESTION = "Which city does she live in, and what did she say of the harbour?"


@pytest.fixture
def doors(database: Any) -> Doors:
    kept._asked_before.clear()
    made = Doors()
    while indexing.make_up(made.id):
        pass
    return made


def ask(doors: Doors, question: str | None = QUESTION, *, actor: Actor | None = None, **more: Any) -> dict[str, Any]:
    actor = actor or doors.agent
    body = {"question": question, "subject": "mira", "purpose": "support", "budget_tokens": 2_000, **more}
    with tenant_transaction(Role.AGENT, tenant=doors.id, clearance=actor.clearance, actor=actor.id):
        return context.recalled(actor, parse(RecallBody, {k: v for k, v in body.items() if v}), now=datetime.now(UTC))


def settle(doors: Doors) -> None:
    while outbox.drain_tenant(doors.id):
        pass


def served(doors: Doors, question: str | None = QUESTION, **more: Any) -> dict[str, Any]:
    """Ask often enough that the answer is a kept one."""
    settle(doors)
    ask(doors, question, **more)
    ask(doors, question, **more)
    settle(doors)
    answer = ask(doors, question, **more)
    assert answer["derived"] is not None
    return answer


def told(answer: dict[str, Any]) -> Any:
    """All of an answer but what is its own: receipt, instants, whether it was kept, what waited then."""
    own = {"receipt", "valid_at", "known_at", "derived", "text", "waiting"}
    return {key: value for key, value in answer.items() if key not in own} | {"text": answer["text"].splitlines()[1:-1]}


def known(doors: Doors) -> UUID:
    """Let something be known of Mira; return the fact of her city."""
    said = doors.episode("I live in Ulm, by the harbour of the old town.", subject="mira")
    doors.say("plan", "gold", 1)
    found: UUID = doors.say("city", "Ulm", 1, episode=said.id, quote="live in Ulm").fact
    settle(doors)
    return found


def test_what_was_asked_before_is_answered_by_what_was_kept_word_for_word(doors: Doors, superuser: Any) -> None:
    known(doors)
    first = ask(doors)
    assert (first["derived"], "Ulm" in first["text"], "harbour" in first["text"]) == (None, True, True)
    again = served(doors)
    assert told(again) == told(first)
    assert again["receipt"] != first["receipt"]
    receipts = superuser.execute(
        "SELECT fact_ids, episode_ids FROM memory_receipt WHERE tenant_id = %s AND act = 'recall.read'", [doors.id]
    ).fetchall()
    assert len(receipts) == 4
    assert all(each == receipts[0] for each in receipts)


def test_what_is_asked_once_is_not_kept(doors: Doors, superuser: Any) -> None:
    known(doors)
    ask(doors)
    ask(doors, "What plan?")
    assert superuser.execute("SELECT count(*) FROM memory_derived WHERE tenant_id = %s", [doors.id]).fetchone() == (0,)


def test_the_budget_is_laid_on_what_was_kept(doors: Doors) -> None:
    known(doors)
    whole = served(doors)
    small = ask(doors, budget_tokens=120)
    assert small["derived"] == whole["derived"]
    assert small["tokens"] <= 120
    assert small["omitted"] > whole["omitted"]


Change = Callable[[Doors, UUID, Any], Any]


def by_sql(statement: str) -> Change:
    def apply(doors: Doors, fact: UUID, superuser: Any) -> None:
        changed = superuser.execute(statement, {"fact": fact, "tenant": doors.id}).rowcount
        assert changed > 0

    return apply


PAST = "now() - interval '1 second'"
OF_EPISODE = "memory_payload SET {} WHERE tenant_id = %(tenant)s AND purpose = 'episode'"
CHANGES: dict[str, Change] = {
    "a fact retracted": lambda doors, fact, _: doors.retract(fact=fact),
    "a fact corrected": lambda doors, fact, _: doors.say("city", "Bern", 1, corrects=fact),
    "a fact followed": lambda doors, fact, _: doors.say("city", "Bern", 2),
    "a fact confirmed": lambda doors, fact, _: doors.say("city", "Ulm", 1, by=doors.person, source="confirmation"),
    "a fact of another attribute": lambda doors, fact, _: doors.say("shade", "green", 1),
    "an episode said": lambda doors, fact, _: doors.episode("The harbour is loud.", subject="mira"),
    "a conflict asked about": lambda doors, fact, _: doors.say("city", "Bern", 1),
    "an attribute published": lambda doors, fact, _: doors.publish({"name": "harbour", "schema": {"type": "string"}}),
    "a fact expired": by_sql(f"UPDATE memory_fact SET expires_at = {PAST} WHERE id = %(fact)s"),
    "a fact redacted": by_sql("UPDATE memory_fact SET redaction_state = 'required' WHERE id = %(fact)s"),
    "a fact restricted": by_sql("UPDATE memory_fact SET restricted = true WHERE id = %(fact)s"),
    "a value's content ended": by_sql(
        "UPDATE memory_payload p SET sealed = NULL, redaction_state = 'applied', ended_at = now() FROM memory_fact f"
        " WHERE f.id = %(fact)s AND p.id = f.payload_id"
    ),
    "a quote expired": by_sql(
        f"WITH said AS (UPDATE memory_evidence SET expires_at = {PAST} WHERE tenant_id = %(tenant)s)"
        f" UPDATE memory_payload SET expires_at = {PAST} WHERE tenant_id = %(tenant)s AND purpose = 'quote'"
    ),
    "an episode expired": by_sql(
        f"WITH said AS (UPDATE memory_episode SET expires_at = {PAST} WHERE tenant_id = %(tenant)s)"
        " UPDATE " + OF_EPISODE.format(f"expires_at = {PAST}")
    ),
    "an episode redacted": by_sql(
        "UPDATE " + OF_EPISODE.format("sealed = NULL, redaction_state = 'applied', ended_at = now()")
    ),
    "an episode raised": by_sql("UPDATE memory_episode SET sensitivity = 3 WHERE tenant_id = %(tenant)s"),
    "the subject restricted": by_sql("UPDATE memory_subject SET restricted = true WHERE tenant_id = %(tenant)s"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_c037_a_context_stops_being_served_as_soon_as_anything_it_could_rest_on_changes(
    doors: Doors, superuser: Any, change: str
) -> None:
    fact = known(doors)
    served(doors)
    CHANGES[change](doors, fact, superuser)
    after = ask(doors)
    assert after["derived"] is None
    kept._asked_before.clear()
    settle(doors)
    again = ask(doors)
    # Made anew where a subject may be spoken of at all, and then it says what is found now.
    assert (again["derived"] is None) == (change == "the subject restricted")
    assert told(again) == told(after)


def test_c037_a_withdrawn_consent_takes_a_context_along_at_once(doors: Doors) -> None:
    doors.grant("c-1")
    doors.say("agreed", "to the harbour", 1, consent="c-1", retention={"basis": "consent"})
    assert "to the harbour" in served(doors, "What is agreed?")["text"]
    doors.withdraw("c-1")
    after = ask(doors, "What is agreed?")
    assert (after["derived"], "to the harbour" in after["text"]) == (None, False)


def test_each_clearance_and_each_purpose_has_a_context_of_its_own(doors: Doors) -> None:
    doors.say("shade", "green", 1, sensitivity="public")
    doors.say("city", "tunnel", 1)
    high = served(doors, "mira?")
    low = served(doors, "mira?", actor=doors.uncleared)
    other = served(doors, "mira?", purpose="billing")
    assert len({high["derived"], low["derived"], other["derived"]}) == 3
    assert ("tunnel" in high["text"], "tunnel" in low["text"]) == (True, False)
    assert (high["withheld"], low["withheld"]) == ({}, {"above_clearance": 1})


def test_a_question_about_the_past_is_found_anew_each_time(doors: Doors) -> None:
    known(doors)
    for _ in range(3):
        assert ask(doors, "Where did she live before June 2024?")["derived"] is None
        settle(doors)


def test_a_slow_worker_cannot_keep_what_it_found_before_a_source_ended(doors: Doors, superuser: Any) -> None:
    fact = known(doors)
    ask(doors)
    ask(doors)
    wanted_id = superuser.execute("SELECT id FROM memory_derived WHERE tenant_id = %s", [doors.id]).fetchone()[0]
    with tenant_transaction(Role.WRITER, tenant=doors.id):
        wanted = kept.wanted(doors.id, wanted_id)
        assert wanted is not None
    with tenant_transaction(Role.AGENT, tenant=doors.id, clearance=wanted.clearance):
        mark = kept.taken(doors.id, wanted.subject)
    gathered = kept.Gathered([], [], {})
    doors.retract(fact=fact)
    with tenant_transaction(Role.WRITER, tenant=doors.id, clearance=wanted.clearance):
        assert kept.store(doors.id, wanted_id, wanted, gathered, mark, catalogue_no=1) is False
    assert context.build(doors.id, wanted_id) is Settled.DONE
    assert context.build(doors.id, wanted_id) is Settled.DONE
    answer = ask(doors)
    assert answer["derived"] == wanted_id
    assert all(item["type"] == "episode" or item["value"] != "Ulm" for item in answer["context"])


def test_question_and_answer_are_kept_sealed_and_fall_with_everything_derived(doors: Doors, superuser: Any) -> None:
    known(doors)
    ask(doors, "Is the zanzibar harbour hers?")
    ask(doors, "Is the zanzibar harbour hers?")

    def content() -> list[Any]:
        found: list[Any] = superuser.execute(
            "SELECT clear, sealed FROM memory_payload WHERE tenant_id = %s AND purpose = 'derived'", [doors.id]
        ).fetchall()
        return found

    assert [(clear, b"zanzibar" in bytes(sealed)) for clear, sealed in content()] == [(None, False)]
    settle(doors)
    assert [(clear, b"Ulm" in bytes(sealed)) for clear, sealed in content()] == [(None, False)]
    superuser.execute("DELETE FROM memory_payload WHERE tenant_id = %s AND purpose = 'derived'", [doors.id])
    assert ask(doors, "Is the zanzibar harbour hers?")["derived"] is None


def test_no_more_than_a_few_are_kept_of_a_subject(doors: Doors, superuser: Any) -> None:
    known(doors)
    for number in range(kept.MOST_CONTEXTS + 3):
        ask(doors, f"harbour {number}?")
        ask(doors, f"harbour {number}?")
    found = superuser.execute(
        "SELECT count(*), (SELECT count(*) FROM memory_payload WHERE tenant_id = %(tenant)s AND purpose = 'derived')"
        " FROM memory_derived WHERE tenant_id = %(tenant)s",
        {"tenant": doors.id},
    ).fetchone()
    assert found == (kept.MOST_CONTEXTS, kept.MOST_CONTEXTS)
