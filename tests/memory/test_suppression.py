"""What was rejected, redacted or erased does not come back, by whichever entrance; what is newer may."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from django.db import DatabaseError

from memory import consent, remember, rows, suppression
from memory.contracts import ConsentBody, SubjectBody, parse
from memory.outcomes import Asked, Denied, EpisodeKept, Outcome, Written
from tenants import audit
from tenants.actors import Actor, MemberRole
from tenants.errors import Missing, Refused
from tenants.isolation import Role, tenant_transaction
from tenants.secrets import keyring
from tests.memory.doors import Doors, assert_sound


@pytest.fixture
def doors(database: Any) -> Doors:
    return Doors()


def now() -> datetime:
    return datetime.now(UTC)


LATER = timedelta(seconds=1)


def erased(doors: Doors, *names: str, at: datetime | None = None) -> list[UUID]:
    """Suppress subjects as an erasure does."""
    with tenant_transaction(Role.WORKER, tenant=doors.id):
        digests = [keyring().identifier(doors.id, name) for name in names]
        return suppression.add_subject(
            doors.id, digests, cause="erased", target_kind="subject", target=uuid4(), now=at or now()
        )


def redacted(doors: Doors, value: str, attribute: str = "city", subject: str = "mira") -> list[UUID]:
    """Suppress a saying as a redaction does."""
    with tenant_transaction(Role.WRITER, tenant=doors.id):
        return suppression.add_saying(
            doors.id,
            [keyring().identifier(doors.id, subject)],
            attribute,
            f'"{value}"',
            attribute_id=None,
            cause="redacted",
            target_kind="fact",
            target=uuid4(),
            now=now(),
        )


def is_suppressed(outcome: Any) -> bool:
    return isinstance(outcome, Denied) and (outcome.code, outcome.reasons) == ("suppressed", ("suppressed",))


def prevented(doors: Doors) -> dict[str, int]:
    with tenant_transaction(Role.STAFF, tenant=doors.id):
        return dict(suppression.prevented(doors.id, now() - timedelta(days=1)))


# direct facts ---------------------------------------------------------------------------------------------------------


def test_a_fact_that_began_before_the_decision_is_refused(doors: Doors) -> None:
    redacted(doors, "Lisbon")
    assert is_suppressed(doors.say("city", "Lisbon", 1))
    assert isinstance(doors.say("city", "Porto", 1), Written)


def test_one_without_a_date_is_put_before_a_person_who_may_let_it_in(doors: Doors) -> None:
    redacted(doors, "Lisbon")
    asked = doors.say("city", "Lisbon")
    assert isinstance(asked, Asked)
    assert asked.reasons == ("suppressed",)
    assert isinstance(doors.decide(asked.candidate, accept=True), Written)
    assert prevented(doors) == {"refused": 0, "asked": 1}
    assert_sound(doors)


def test_one_dated_after_the_decision_is_put_before_a_person_too(doors: Doors) -> None:
    redacted(doors, "Lisbon")
    asked = doors.say("city", "Lisbon", now() + LATER)
    assert isinstance(asked, Asked)


def test_another_subject_and_another_attribute_are_not_meant(doors: Doors) -> None:
    redacted(doors, "Lisbon")
    assert isinstance(doors.say("city", "Lisbon", 1, subject="bob"), Written)
    assert isinstance(doors.say("plan", "Lisbon", 1), Written)


def test_an_alias_is_no_way_round(doors: Doors) -> None:
    with doors.writing(doors.agent):
        remember.subject(doors.agent, parse(SubjectBody, {"key": "mira", "aliases": ["customer-7"]}))
    redacted(doors, "Lisbon")
    assert is_suppressed(doors.say("city", "Lisbon", 1, subject="customer-7"))


def test_in_a_batch_only_what_returns_is_refused_and_not_even_a_name_is_made(doors: Doors) -> None:
    erased(doors, "mira")
    outcomes = doors.write([doors.body("city", "Lisbon", 1), doors.body("city", "Porto", 1, subject="bob")], batch=True)
    assert is_suppressed(outcomes[0])
    assert isinstance(outcomes[1], Written)
    with doors.writing(doors.agent):
        found = rows.fetch(
            "SELECT 1 FROM memory_subjectidentifier WHERE tenant_id = %s AND digest = %s",
            [doors.id, keyring().identifier(doors.id, "mira")],
        )
    assert found == []
    assert prevented(doors) == {"refused": 1, "asked": 0}


def test_an_import_of_what_was_recorded_before_is_refused(doors: Doors) -> None:
    erased(doors, "mira")
    assert is_suppressed(doors.say("city", "Lisbon", recorded_at=now() - timedelta(days=9)))


def test_explain_says_so_and_stores_nothing(doors: Doors) -> None:
    redacted(doors, "Lisbon")
    with doors.writing(doors.agent):
        old = remember.explain(doors.agent, doors.body("city", "Lisbon", 1))
        bare = remember.explain(doors.agent, doors.body("city", "Lisbon"))
    assert (old.verdict, old.code, old.rule) == ("reject", "suppressed", "builtin.suppression")
    assert (bare.verdict, bare.reasons) == ("ask", ("suppressed",))
    assert prevented(doors) == {"refused": 0, "asked": 0}


# episodes and what is drawn from them ---------------------------------------------------------------------------------


def episode(doors: Doors, text: str, at: datetime, turn: str = "t-1", subject: str | None = "mira") -> Outcome:
    about: dict[str, Any] = {} if subject is None else {"subject": subject}
    outcome: Outcome = doors.episode(text, turn_id=turn, occurred_at=at, extract="no", **about)
    return outcome


def test_an_old_transcript_sent_for_the_first_time_is_refused(doors: Doors) -> None:
    erased(doors, "mira")
    assert is_suppressed(episode(doors, "I live in Lisbon.", now() - timedelta(days=400)))


def test_nor_does_it_come_in_under_nobody_when_it_names_the_erased(doors: Doors) -> None:
    erased(doors, "Mira Okafor")
    old = now() - timedelta(days=400)
    assert is_suppressed(episode(doors, "A call from Mira Okafor about her move.", old, subject=None))
    assert is_suppressed(episode(doors, "A call from Mira Okafor about her move.", old, subject="bob"))
    assert isinstance(episode(doors, "A call about a move.", old, subject="bob"), EpisodeKept)


def test_a_source_that_was_erased_is_refused_at_any_time_its_text_while_it_is_old(doors: Doors) -> None:
    text = "I live in Lisbon."
    with tenant_transaction(Role.WRITER, tenant=doors.id):
        suppression.add_source(
            doors.id, "t-1", text, cause="redacted", target_kind="episode", target=uuid4(), now=now()
        )
    assert is_suppressed(episode(doors, text, now() + LATER))
    assert is_suppressed(episode(doors, f"  {text.upper()} ", now() - timedelta(days=3), turn="t-2"))
    assert isinstance(episode(doors, text, now() + LATER, turn="t-3"), EpisodeKept)


def test_evidence_newer_than_the_decision_comes_in(doors: Doors) -> None:
    erased(doors, "mira")
    kept = episode(doors, "I live in Lisbon again.", now() + LATER)
    assert isinstance(kept, EpisodeKept)
    fact = doors.say("city", "Lisbon", 1, episode=kept.id, quote="Lisbon")
    assert isinstance(fact, Written)
    assert_sound(doors)


def test_what_is_drawn_again_from_an_old_episode_is_refused(doors: Doors) -> None:
    kept = episode(doors, "I live in Lisbon.", now() - timedelta(days=3))
    assert isinstance(kept, EpisodeKept)
    redacted(doors, "Lisbon")
    assert is_suppressed(doors.say("city", "Lisbon", episode=kept.id, quote="Lisbon"))
    assert isinstance(doors.say("plan", "Lisbon", episode=kept.id, quote="Lisbon"), Written)


# candidates -----------------------------------------------------------------------------------------------------------


def test_what_a_person_rejected_is_not_proposed_again_from_the_same_source(doors: Doors) -> None:
    kept = episode(doors, "I am a gold member.", now() - timedelta(days=3))
    assert isinstance(kept, EpisodeKept)
    body = doors.body("checked", "gold", episode=kept.id, quote="gold")
    asked = doors.write([body])[0]
    assert isinstance(asked, Asked)
    doors.decide(asked.candidate, accept=False)
    assert is_suppressed(doors.write([body])[0])


def test_a_rejected_duplicate_was_not_wrong(doors: Doors) -> None:
    asked = doors.say("checked", "gold", 1)
    assert isinstance(asked, Asked)
    with doors.writing(doors.person):
        remember.decide_candidate(doors.person, asked.candidate, accept=False, reason="duplicate")
    again = doors.say("checked", "gold", 1)
    assert isinstance(again, Asked)
    assert again.reasons != ("suppressed",)


def test_a_candidate_from_before_the_decision_is_not_confirmed_any_more(doors: Doors) -> None:
    asked = doors.say("checked", "gold", 1)
    assert isinstance(asked, Asked)
    redacted(doors, "gold", "checked")
    denied = doors.decide(asked.candidate, accept=True)
    assert isinstance(denied, Denied)
    assert (denied.status, denied.code) == (409, "suppressed")


def test_recurrence_does_not_count_what_was_said_before_the_decision(doors: Doors) -> None:
    for turn in ("a", "b"):
        assert isinstance(doors.say("mood", "calm", turn=turn, confidence=0.3), Asked)
    redacted(doors, "calm", "mood")
    said: list[Outcome] = []
    for turn in ("c", "d", "e"):
        kept = episode(doors, f"I feel calm, {turn}.", now() + LATER, turn=turn)
        assert isinstance(kept, EpisodeKept)
        said.append(doors.say("mood", "calm", episode=kept.id, quote="calm", turn=turn, confidence=0.3))
    assert [type(each) for each in said] == [Asked, Asked, Written]


# consents and names ---------------------------------------------------------------------------------------------------


def grant(doors: Doors, ref: str, **given: Any) -> None:
    body = parse(ConsentBody, {"subject": "mira", "ref": ref, "purposes": ["support"], **given})
    with doors.writing(doors.agent):
        consent.grant(doors.agent, body)


def test_a_consent_from_before_the_erasure_is_refused_one_given_since_is_not(doors: Doors) -> None:
    erased(doors, "mira")
    with pytest.raises(Refused) as refused:
        grant(doors, "c-1", granted_at=(now() - timedelta(days=9)).isoformat())
    assert refused.value.code == "suppressed"
    grant(doors, "c-2")


def test_an_erased_name_is_not_named_again_until_newer_evidence_has_let_it_in(doors: Doors) -> None:
    erased(doors, "mira", "customer-7")

    def name(key: str, *aliases: str) -> None:
        with doors.writing(doors.agent):
            remember.subject(doors.agent, parse(SubjectBody, {"key": key, "aliases": list(aliases)}))

    for key, aliases in (("mira", ()), ("bob", ("customer-7",))):
        with pytest.raises(Refused) as refused:
            name(key, *aliases)
        assert refused.value.code == "suppressed"
    assert isinstance(episode(doors, "Hello again.", now() + LATER), EpisodeKept)
    name("mira")


# lifting --------------------------------------------------------------------------------------------------------------


def lift(doors: Doors, actor: Actor, ids: Sequence[UUID]) -> None:
    with tenant_transaction(Role.STAFF, tenant=doors.id, actor=actor.id):
        _, events = suppression.lift(actor, ids, reason="recorded_wrongly")
        audit.append(events)


def officer(doors: Doors) -> Actor:
    return doors.organisation.person(MemberRole.PRIVACY_OFFICER).actor


def test_a_privacy_officer_lifts_it_and_its_row_stays(doors: Doors) -> None:
    ids = redacted(doors, "Lisbon")
    assert is_suppressed(doors.say("city", "Lisbon", 1))
    lift(doors, officer(doors), ids)
    assert isinstance(doors.say("city", "Lisbon", 1), Written)
    with tenant_transaction(Role.STAFF, tenant=doors.id):
        assert rows.fetch("SELECT lift_reason FROM memory_suppression WHERE id = %s", [ids[0]]) == [
            ("recorded_wrongly",)
        ]
    with pytest.raises(Missing):
        lift(doors, officer(doors), ids)


def test_nobody_else_lifts_it_whatever_the_role(doors: Doors) -> None:
    ids = redacted(doors, "Lisbon")
    with pytest.raises(DatabaseError) as refused:
        lift(doors, doors.agent, ids)
    assert isinstance(refused.value.__cause__, psycopg.errors.InsufficientPrivilege)
    for role in (Role.WRITER, Role.WORKER, Role.AGENT):
        for act in ("UPDATE memory_suppression SET lifted_at = now()", "DELETE FROM memory_suppression"):
            with pytest.raises(DatabaseError), tenant_transaction(role, tenant=doors.id):
                rows.execute(act, [])


def test_a_decision_of_the_same_renews_it_and_never_dates_it_back(doors: Doors) -> None:
    first = redacted(doors, "Lisbon")
    second = redacted(doors, "Lisbon")
    assert first == second
    erased(doors, "mira", at=now())
    erased(doors, "mira", at=now() - timedelta(days=1000))
    assert is_suppressed(doors.say("plan", "anything", now() - timedelta(days=2)))


def test_of_another_tenant_nothing_is_known(doors: Doors) -> None:
    redacted(doors, "Lisbon")
    other = Doors()
    assert isinstance(other.say("city", "Lisbon", 1), Written)


def test_without_suppressions_nothing_more_is_asked(doors: Doors) -> None:
    standing = suppression.Standing()
    with doors.writing(doors.agent):
        suppression.look_up(doors.id, standing, [bytes(32)])
    assert standing.decided == {}
