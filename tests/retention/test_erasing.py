"""Erasing a subject: asked, approved by another, carried out in steps that may be cut off, verified, certified."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import DatabaseError

from memory import recall, rows
from memory.outbox import Settled
from memory.outcomes import Denied, EpisodeKept, Written
from policies.approvals import Answer
from retention import certificates, erasing, matters, redaction, runs
from retention.erasing import Erasure
from retention.matters import Target
from tenants.actors import Actor, ActorKind, MemberRole
from tenants.errors import Clash, Forbidden, Missing
from tenants.isolation import Role, tenant_transaction
from tenants.secrets import provider
from tests.memory.background import settle_all
from tests.memory.doors import Doors, day


def now() -> datetime:
    return datetime.now(UTC)


class CutOff(Exception):
    """A process that ends in the middle of a step, before its commit."""


class Office:
    """A tenant with two privacy officers and what they do."""

    def __init__(self) -> None:
        self.doors = Doors()
        people = [self.doors.organisation.person(MemberRole.PRIVACY_OFFICER) for _ in range(2)]
        self.first, self.second = (each.actor for each in people)

    def subject(self, name: str = "mira") -> UUID:
        with tenant_transaction(Role.STAFF, tenant=self.doors.id):
            return erasing.subject_of(self.doors.id, name)

    def ask(self, by: Actor | None = None, name: str = "mira") -> Erasure:
        actor, subject = by or self.first, self.subject(name)
        with tenant_transaction(Role.STAFF, tenant=self.doors.id, actor=actor.id):
            return erasing.ask(actor, subject, reason="no_longer_needed", now=now())

    def decide(self, erasure: Erasure, by: Actor | None = None, answer: Answer = Answer.APPROVE) -> Erasure:
        actor = by or self.second
        reason = {"approve": "checked", "refuse": "not_needed", "return": "unclear"}[answer.value]
        with tenant_transaction(Role.STAFF, tenant=self.doors.id, actor=actor.id):
            return erasing.decide(actor, erasure.id, answer, shown=erasure.digest, reason=reason, now=now())

    def ask_again(self, erasure: Erasure) -> Erasure:
        with tenant_transaction(Role.STAFF, tenant=self.doors.id, actor=self.first.id):
            return erasing.ask_again(self.first, erasure.id, now=now())

    def approved(self, name: str = "mira") -> Erasure:
        return self.decide(self.ask(name=name))

    def erased(self, name: str = "mira") -> Erasure:
        erasure = self.approved(name)
        assert erasing.go_on(self.doors.id, erasure.id, seconds=60) is Settled.DONE
        return self.now(erasure)

    def now(self, erasure: Erasure) -> Erasure:
        with tenant_transaction(Role.STAFF, tenant=self.doors.id):
            return erasing.find(self.doors.id, erasure.id)

    def left(self, subject: UUID) -> dict[str, int]:
        with tenant_transaction(Role.WORKER, tenant=self.doors.id):
            return {name: count for name, count in erasing.left(self.doors.id, subject).items() if count}

    def certificate(self, erasure: Erasure) -> dict[str, Any]:
        assert erasure.certificate is not None
        with tenant_transaction(Role.STAFF, tenant=self.doors.id):
            found = certificates.find(self.doors.id, erasure.certificate)
        verdict = certificates.verify(certificates.export(found), provider().public_key_pem())
        assert verdict.sound
        assert verdict.certificate is not None
        body: dict[str, Any] = verdict.certificate["body"]
        return body


@pytest.fixture
def office(database: Any) -> Office:
    return Office()


def furnish(office: Office) -> None:
    """Let something be known of mira by every entrance, and of bob from her episode."""
    doors = office.doors
    doors.name("mira", "Mira Okafor", "customer-7")
    kept = doors.episode("I live in Lisbon, and Bob lives in Porto.", subject="mira", turn_id="e-1", extract="no")
    assert isinstance(kept, EpisodeKept)
    doors.say("city", "Lisbon", 1, episode=kept.id, quote="Lisbon")
    doors.say("city", "Faro", 2)
    doors.say("tags", "red", 1)
    doors.say("secret", "illness", 1)
    doors.say("shade", "blue", 1)
    doors.say("checked", "gold", 1)
    doors.end("plan", None, 3)
    doors.say("city", "Porto", 1, subject="bob", episode=kept.id, quote="Porto")
    doors.say("city", "Turin", 1, subject="carl", episode=kept.id, quote="Bob")
    doors.say("city", "Turin", 1, subject="carl")
    doors.episode("Mira Okafor called about her move.", subject="bob", turn_id="e-2", extract="no")


def test_what_two_people_decided_leaves_nothing_in_any_store(office: Office) -> None:
    furnish(office)
    subject = office.subject()
    erasure = office.erased()
    assert erasure.state == "done"
    # The empty row of the episode that facts of others cite.
    assert office.left(subject) == {"episodes": 1}
    body = office.certificate(erasure)
    assert body["outcome"] == "done"
    assert body["key"]["state"] == "pending_rotation"
    assert body["with_a_person"] == {"mention": 1, "fact": 1}
    assert {name for name, count in body["left"].items() if count} == {"episodes"}


# what is answered afterwards --------------------------------------------------------------------------------------------


def test_every_read_answers_as_if_nothing_had_been_said(office: Office) -> None:
    furnish(office)
    doors = office.doors
    fact = doors.page("city").results[0]["id"]
    before = now()
    with doors.reading():
        episode = recall.history(doors.agent, UUID(str(fact)))["results"][0]["provenance"]["source_episode"]
    office.erased()
    for name in ("mira", "Mira Okafor", "customer-7"):
        assert doors.page(None, subject=name).results == []
        assert doors.page("city", subject=name, valid_at=day(1.5)).results == []
        assert doors.page("city", subject=name, valid_at=day(1.5), known_at=before).results == []
    for ask in (recall.fact, recall.history, recall.lineage):
        with pytest.raises(Missing), doors.reading():
            ask(doors.agent, UUID(str(fact)))
    with doors.reading():
        assert "Lisbon" not in str(recall.episode(doors.agent, UUID(str(episode))))
    with doors.reading():
        assert recall.profile(doors.agent, subject="mira").results == []
    # Of others everything is as it was.
    assert doors.value("city", 1.5, subject="bob") == "Porto"
    assert doors.value("city", 1.5, subject="carl") == "Turin"


def test_the_canary_is_in_no_column_of_any_table(office: Office, superuser: Any) -> None:
    canary = "zebra7qx"
    doors = office.doors
    doors.name(f"mira {canary}", f"alias {canary}")
    kept = doors.episode(
        f"I live in {canary}.", subject=f"mira {canary}", turn_id="e-1", extract="no", sensitivity="internal"
    )
    about: dict[str, Any] = {"subject": f"mira {canary}"}
    doors.say("labels", f"label {canary}", 1, **about)
    doors.say("shade", canary, 1, episode=kept.id, quote=canary, sensitivity="public", **about)
    doors.say("checked", canary, 1, **about)
    office.erased(f"mira {canary}")
    tables = superuser.execute(
        "SELECT c.relname::text FROM pg_class c WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p')"
    ).fetchall()
    found = [
        table
        for (table,) in tables
        if superuser.execute(f'SELECT 1 FROM "{table}" t WHERE strpos(t::text, %s) > 0 LIMIT 1', [canary]).fetchone()
    ]
    assert found == []


# two people -------------------------------------------------------------------------------------------------------------


def test_nobody_approves_their_own_question(office: Office) -> None:
    furnish(office)
    erasure = office.ask()
    with pytest.raises(Forbidden):
        office.decide(erasure, by=office.first)
    with pytest.raises(DatabaseError), tenant_transaction(Role.STAFF, tenant=office.doors.id, actor=office.first.id):
        rows.execute(
            "UPDATE retention_erasure SET state = 'running', approved_by = %s, approved_at = now() WHERE id = %s",
            [office.first.id, erasure.id],
        )
    assert office.now(erasure).state == "asked"
    assert office.doors.value("city", 1.5) == "Lisbon"


def test_what_was_written_since_it_was_shown_is_looked_at_again(office: Office) -> None:
    furnish(office)
    erasure = office.ask()
    office.doors.say("city", "Braga", 9)
    with pytest.raises(Clash) as refused:
        office.decide(erasure)
    assert refused.value.code == "changed_since_shown"
    again = office.ask_again(erasure)
    assert office.decide(again).state == "running"


def test_a_refusal_leaves_everything_as_it_was(office: Office) -> None:
    furnish(office)
    assert office.decide(office.ask(), answer=Answer.REFUSE).state == "refused"
    assert office.doors.value("city", 1.5) == "Lisbon"
    office.approved()


def test_a_program_asks_and_a_person_puts_it_before_another(office: Office) -> None:
    furnish(office)
    erasure = office.ask(by=office.doors.agent)
    assert (erasure.state, erasure.question) == ("requested", None)
    with pytest.raises(Missing):
        office.decide(erasure)
    assert office.ask().id == erasure.id
    assert office.decide(office.now(erasure)).state == "running"


# beside writers -----------------------------------------------------------------------------------------------------------


def test_from_the_approval_on_no_name_resolves_and_old_things_stay_out(office: Office) -> None:
    furnish(office)
    doors = office.doors
    office.approved()
    assert doors.page(None).results == []
    assert isinstance(doors.say("city", "Lisbon", 1), Denied)
    assert isinstance(doors.episode("I live in Lisbon.", subject="Mira Okafor", turn_id="e-9"), Denied)


def test_what_is_newer_is_of_another_subject_that_the_erasure_leaves_alone(office: Office) -> None:
    furnish(office)
    doors, former = office.doors, office.subject()
    erasure = office.approved()
    later = now() + timedelta(seconds=1)
    kept = doors.episode("I am back.", subject="mira", turn_id="e-new", occurred_at=later, extract="no")
    assert isinstance(kept, EpisodeKept)
    assert isinstance(doors.say("city", "Evora", later, episode=kept.id, quote="back"), Written)
    erasing.go_on(doors.id, erasure.id, seconds=60)
    assert office.subject() != former
    assert office.left(former) == {"episodes": 1}
    assert doors.value("city", later) == "Evora"


# cut off ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", erasing.STEPS)
def test_cut_off_in_any_step_it_is_finished_once(office: Office, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    furnish(office)
    subject = office.subject()
    erasure = office.approved()
    steps = dict(erasing._STEPS)

    def dies(at: Any, after: Any) -> Any:
        steps[step](at, after)
        raise CutOff

    with monkeypatch.context() as patched:
        broken = tuple((name, dies if name == step else act) for name, act in erasing._STEPS)
        patched.setattr(erasing, "_STEPS", broken)
        with pytest.raises(CutOff):
            erasing.go_on(office.doors.id, erasure.id, seconds=60)
    assert office.now(erasure).state == "running"
    assert erasing.work(office.doors.id, erasure.id) is Settled.DONE
    assert erasing.work(office.doors.id, erasure.id) is Settled.DONE
    assert office.now(erasure).state == "done"
    assert office.left(subject) == {"episodes": 1}
    run = office.now(erasure).run
    assert run is not None
    with tenant_transaction(Role.STAFF, tenant=office.doors.id):
        assert len(certificates.of_run(office.doors.id, run)) == 1
        found = runs.find(office.doors.id, run)
        assert found is not None
        assert (found.state, found.counts["texts"]) == ("done", 1)


# holds ------------------------------------------------------------------------------------------------------------------


def place_hold(office: Office, target: Target) -> UUID:
    with tenant_transaction(Role.STAFF, tenant=office.doors.id, actor=office.first.id):
        matter, _ = matters.open_matter(office.first, f"case-{uuid4().hex[:8]}", "litigation", now=now())
        return UUID(str(matters.place(office.first, matter.id, [target], now=now()).id))


def release(office: Office, hold: UUID) -> None:
    with tenant_transaction(Role.STAFF, tenant=office.doors.id, actor=office.first.id):
        question = matters.ask_release(office.first, hold, reason="matter_ended", now=now())
    with tenant_transaction(Role.STAFF, tenant=office.doors.id, actor=office.second.id):
        shown = bytes(question.digest)
        matters.decide_release(office.second, question.id, Answer.APPROVE, shown=shown, reason="checked", now=now())


def test_what_a_hold_covers_stays_and_the_erasure_is_not_called_done(office: Office) -> None:
    furnish(office)
    subject = office.subject()
    with tenant_transaction(Role.WRITER, tenant=office.doors.id):
        ((fact,),) = rows.fetch(
            "SELECT f.id FROM memory_fact f JOIN memory_factkey k ON k.id = f.key_id JOIN policies_attribute a"
            " ON a.id = k.attribute_id WHERE f.subject_id = %s AND a.name = 'shade'",
            [subject],
        )
    hold = place_hold(office, Target(record_kind="fact", record_id=fact))
    erasure = office.erased()
    assert erasure.state == "held"
    # With the fact its subject is kept, by name and key.
    assert (office.left(subject)["facts"], office.doors.values("shade", 2)) == (1, ["blue"])
    body = office.certificate(erasure)
    assert (body["outcome"], body["kept"]["held"] > 0, body["key"]["state"]) == ("held", True, "in_use")
    release(office, hold)
    with tenant_transaction(Role.STAFF, tenant=office.doors.id, actor=office.first.id):
        erasing.go_on_after_holds(office.first, erasure.id, now=now())
    erasing.go_on(office.doors.id, erasure.id, seconds=60)
    assert office.now(erasure).state == "done"
    assert office.left(subject) == {"episodes": 1}


def test_a_fact_stays_whose_proposal_alone_is_held_and_the_rest_is_erased(office: Office) -> None:
    doors = office.doors
    asked = doors.say("checked", "gold", 1)
    until = now()
    kept = doors.decide(asked.candidate)
    doors.say("city", "Lisbon", 1)
    # What was recorded before the decision: the proposal, and nothing that came of it.
    place_hold(office, Target(recorded_from=until - timedelta(days=1), recorded_until=until))
    subject, erasure = office.subject(), office.erased()
    assert erasure.state == "held"
    with tenant_transaction(Role.WRITER, tenant=doors.id):
        assert rows.fetch("SELECT f.id FROM memory_fact f WHERE f.subject_id = %s", [subject]) == [(kept.fact,)]
        refused = rows.fetch("SELECT ended_at FROM memory_fact WHERE id = %s", [kept.fact])
    assert refused == [(None,)]
    with tenant_transaction(Role.WORKER, tenant=doors.id):
        recorded = rows.fetch("SELECT record_kind, record_id FROM retention_refusedending", [])
    assert ("candidate", asked.candidate) in recorded


def test_a_hold_that_is_placed_after_the_approval_wins(office: Office) -> None:
    furnish(office)
    subject = office.subject()
    before = office.left(subject)
    erasure = office.approved()
    place_hold(office, Target(subject_id=subject))
    erasing.go_on(office.doors.id, erasure.id, seconds=60)
    assert office.now(erasure).state == "held"
    left = office.left(subject)
    assert {name: left[name] for name in ("facts", "texts", "evidence")} == {
        name: before[name] for name in ("facts", "texts", "evidence")
    }


# what a person decides --------------------------------------------------------------------------------------------------


def items(office: Office, erasure: Erasure) -> dict[str, UUID]:
    with tenant_transaction(Role.STAFF, tenant=office.doors.id):
        return dict(
            rows.fetch("SELECT i.kind, i.id FROM retention_erasureitem i WHERE i.erasure_id = %s", [erasure.id])
        )


def decide_item(office: Office, item: UUID, *, keep: bool) -> None:
    with tenant_transaction(Role.STAFF, tenant=office.doors.id, actor=office.second.id):
        erasing.decide_item(office.second, item, keep=keep, reason="other", now=now())


def test_anothers_fact_that_has_lost_its_only_source_is_ended_or_kept_by_a_person(office: Office) -> None:
    furnish(office)
    erasure = office.erased()
    left = items(office, erasure)
    assert sorted(left) == ["fact", "mention"]
    decide_item(office, left["fact"], keep=False)
    assert office.doors.value("city", 1.5, subject="bob") is None
    assert office.doors.value("city", 1.5, subject="carl") == "Turin"
    decide_item(office, left["mention"], keep=True)
    with pytest.raises(Missing):
        decide_item(office, left["mention"], keep=False)


def test_what_waits_to_be_decided_about_another_loses_its_quote_from_the_erased(office: Office) -> None:
    doors = office.doors
    kept = doors.episode("My neighbour Bob moved to Porto.", subject="mira", turn_id="e-1", extract="no")
    asked = doors.say("checked", "Porto", 1, subject="bob", episode=kept.id, quote="Bob moved to Porto")

    def quotes() -> int:
        with tenant_transaction(Role.WRITER, tenant=doors.id, clearance=3):
            found = rows.fetch(
                "SELECT count(s.quote_id) FROM memory_candidatesaying s WHERE s.candidate_id = %s", [asked.candidate]
            )
        return int(found[0][0])

    assert quotes() == 1
    erasure = office.erased()
    assert quotes() == 0
    assert erasure.state == "done"
    decided = doors.decide(asked.candidate)
    assert isinstance(decided, Written), decided
    assert doors.value("checked", 1.5, subject="bob") == "Porto"


def test_a_mention_is_proposed_for_redaction_with_its_spans_and_another_person_takes_it_out(office: Office) -> None:
    doors = office.doors
    furnish(office)
    kept = doors.episode("Then mira  okafor and MIRA OKAFOR called.", subject="bob", turn_id="e-3", extract="no")
    settle_all(doors.organisation)
    erasure = office.erased()
    with tenant_transaction(Role.STAFF, tenant=doors.id):
        left = dict(
            rows.fetch(
                "SELECT target_id, id FROM retention_erasureitem WHERE kind = 'mention' AND erasure_id = %s",
                [erasure.id],
            )
        )
    with tenant_transaction(Role.STAFF, tenant=doors.id, actor=office.first.id):
        proposal = erasing.decide_item(office.first, left[kept.id], keep=False, reason="other", now=now())
        assert proposal is not None
        (picks,) = redaction.picked(redaction.queue(doors.id)).values()
    assert [(each.target, each.spans) for each in picks] == [(kept.id, ((5, 17), (22, 33)))]
    # Hidden from the proposal on.
    with pytest.raises(Missing), doors.reading():
        recall.episode(doors.agent, kept.id)
    with tenant_transaction(Role.STAFF, tenant=doors.id, actor=office.first.id):
        shown = redaction.examine(office.first, proposal).digest
    with pytest.raises(Forbidden), tenant_transaction(Role.STAFF, tenant=doors.id, actor=office.first.id):
        redaction.apply(office.first, proposal, shown=shown, reason="checked", now=now())
    with tenant_transaction(Role.STAFF, tenant=doors.id, actor=office.second.id):
        assert redaction.apply(office.second, proposal, shown=shown, reason="checked", now=now()).applied
    with doors.reading():
        told = str(recall.episode(doors.agent, kept.id)).casefold()
    assert "called" in told
    assert "okafor" not in told


# again ------------------------------------------------------------------------------------------------------------------


def test_it_is_asked_about_once_at_a_time_and_never_of_one_that_is_gone(office: Office) -> None:
    furnish(office)
    subject = office.subject()
    office.ask()
    with pytest.raises(Clash):
        office.ask(by=office.second)
    with pytest.raises(Forbidden), tenant_transaction(Role.STAFF, tenant=office.doors.id):
        erasing.ask(office.doors.person, subject, reason="other", now=now())


def test_a_subject_that_a_backup_brought_back_is_erased_again(office: Office) -> None:
    furnish(office)
    subject = office.subject()
    actor = Actor(kind=ActorKind.OPERATOR, id=uuid4(), tenant=office.doors.id)
    with tenant_transaction(Role.WORKER, tenant=office.doors.id):
        run = erasing.erase_again(actor, subject, uuid4(), now=now())
    assert run is not None
    erasing.finish_again(office.doors.id, run.id)
    assert office.left(subject) == {"episodes": 1}
    with tenant_transaction(Role.WORKER, tenant=office.doors.id):
        assert erasing.erase_again(actor, uuid4(), uuid4(), now=now()) is None


# what users of such systems reported ------------------------------------------------------------------------------------


def test_c002_however_much_is_known_zero_rows_remain_and_the_count_is_what_was_removed(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("FACTS", "EPISODES", "RECEIPTS", "CANDIDATES", "ROWS"):
        monkeypatch.setattr(erasing, name, 2)
    doors = office.doors
    for number in range(7):
        doors.say("city", f"place {number}", number)
        doors.say("tags", f"tag {number}", number)
        doors.episode(f"turn {number}", subject="mira", turn_id=f"e-{number}", extract="no")
    subject = office.subject()
    erasure = office.erased()
    assert (erasure.state, office.left(subject)) == ("done", {})
    removed = office.certificate(erasure)["removed"]
    assert (removed["facts"], removed["rows_facts"], removed["texts"], removed["rows_episodes"]) == (14, 14, 7, 7)


def test_c013_c024_it_is_gone_from_every_connection_and_no_history_or_audit_holds_a_value(
    office: Office, superuser: Any
) -> None:
    doors = office.doors
    doors.say("city", "Lisboa-zebra", 1)
    assert doors.value("city", 1.5) == "Lisboa-zebra"
    office.erased()
    assert doors.value("city", 1.5) is None
    kept = superuser.execute(
        "SELECT count(*) FROM tenants_auditevent e WHERE strpos(e::text, 'zebra') > 0 OR strpos(e::text, 'mira') > 0"
    ).fetchone()
    assert kept == (0,)


def test_a_subject_that_a_released_hold_named_is_erased_and_its_empty_row_stays(office: Office) -> None:
    furnish(office)
    subject = office.subject()
    with tenant_transaction(Role.STAFF, tenant=office.doors.id, actor=office.first.id):
        matter, _ = matters.open_matter(office.first, "2026/118", "litigation", now=now())
        hold = matters.place(office.first, matter.id, [Target(subject_id=subject)], now=now())
    with tenant_transaction(Role.STAFF, tenant=office.doors.id, actor=office.first.id):
        asked = matters.ask_release(office.first, hold.id, reason="other", now=now())
    with tenant_transaction(Role.STAFF, tenant=office.doors.id, actor=office.second.id):
        matters.decide_release(
            office.second, asked.id, Answer.APPROVE, shown=bytes(asked.digest), reason="checked", now=now()
        )
    erasure = office.erased()
    assert erasure.state == "done"
    # Only what another's evidence cites is left, and it is empty.
    assert office.left(subject) == {"episodes": 1}
