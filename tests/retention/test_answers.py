"""Whatever is asked after an ending, however it ended: the value is in no answer, and what it hid is not given in its place."""

import io
import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from memory import context, outbox, recall
from memory.contracts import RecallBody, parse
from memory.outbox import Settled
from policies.approvals import Answer
from retention import compaction, erasing, restricting, transfer
from retention.strategies import Strategy
from tenants.actors import Actor, ActorKind, MemberRole
from tenants.errors import Problem
from tenants.registry import OPERATOR
from tests.memory.doors import day
from tests.retention.redacting import Redacting, episode, fact

pytestmark = pytest.mark.usefixtures("database")
WORD = "zqendedword"
HIDDEN = "zqhiddenbefore"


class Told(Redacting):
    """Three values of one key, one after the other; the second rests on an episode and a consent, and is the one that ends."""

    def __init__(self) -> None:
        super().__init__()
        self.grant("c-1", "mira")
        self.before = self.say("contact", {"mail": HIDDEN, "phone": "1"}, 1, subject="mira").fact
        self.episode_id = self.episode(
            f"My mail is {WORD} now.", subject="mira", extract="no", consent_ref="c-1", retention={"basis": "consent"}
        ).id
        self.ended = self.say(
            "contact", {"mail": WORD, "phone": "2"}, 5, subject="mira", episode=self.episode_id,
            quote=f"mail is {WORD}", consent="c-1", retention={"basis": "consent"},
        ).fact  # fmt: skip
        self.after = self.say("contact", {"mail": "zqafter", "phone": "3"}, 9, subject="mira").fact
        self.known = datetime.now(UTC)
        while outbox.drain_tenant(self.id):
            pass

    def asked(self) -> dict[str, str]:
        """Every kind of question about the key, each with its answer as text; a refusal as its code."""
        actor, at, known = self.agent, day(6), self.known
        body = {
            "question": f"What is the mail {WORD}?",
            "subject": "mira",
            "purpose": "support",
            "budget_tokens": 2_000,
        }

        def direct(which: UUID) -> Any:
            return recall.fact(actor, which)

        questions: dict[str, Callable[[], Any]] = {
            "direct": lambda: direct(self.ended),
            "history": lambda: recall.history(actor, self.after),
            "history of it": lambda: recall.history(actor, self.ended),
            "history as known before": lambda: recall.history(actor, self.after, known_at=known),
            "as of then": lambda: recall.facts(actor, subject="mira", attribute="contact", valid_at=at).results,
            "known before": lambda: recall.facts(actor, subject="mira", attribute="contact", known_at=known).results,
            "as of then, known before": lambda: recall.facts(actor, subject="mira", valid_at=at, known_at=known).results,
            "recall": lambda: [context.recalled(actor, parse(RecallBody, body), now=datetime.now(UTC))[name]
                               for name in ("context", "text")],
            "recall as of then": lambda: [
                context.recalled(actor, parse(RecallBody, {**body, "valid_at": at.isoformat()}), now=datetime.now(UTC))[name]
                for name in ("context", "text")],
            "profile": lambda: recall.profile(actor, "mira").results,
            "profile as of then": lambda: recall.profile(actor, "mira", valid_at=at, known_at=known).results,
            "lineage": lambda: recall.lineage(actor, self.ended),
        }  # fmt: skip
        found = {}
        for name, question in questions.items():
            with self.reading():
                try:
                    found[name] = json.dumps(question(), default=str)
                except Problem as problem:
                    found[name] = problem.code
        return found

    def exported(self) -> str:
        """The tenant's memory as it would leave it."""
        out = io.StringIO()
        transfer.write_out(Actor(kind=ActorKind.OPERATOR, id=OPERATOR.id, tenant=self.id), out, now=datetime.now(UTC))
        return out.getvalue()


@pytest.fixture
def told(database: Any) -> Told:
    return Told()


def _expires(told: Told, superuser: Any) -> None:
    for statement in (
        "UPDATE memory_fact SET expires_at = clock_timestamp() - interval '1 hour' WHERE id = %(fact)s",
        "UPDATE memory_evidence SET expires_at = clock_timestamp() - interval '1 hour' WHERE fact_id = %(fact)s",
        "UPDATE memory_episode SET expires_at = clock_timestamp() - interval '1 hour' WHERE id = %(episode)s",
        "UPDATE memory_payload SET expires_at = clock_timestamp() - interval '1 hour' WHERE id IN (SELECT payload_id FROM"
        " memory_fact WHERE id = %(fact)s UNION SELECT quote_id FROM memory_evidence WHERE fact_id = %(fact)s UNION"
        " SELECT payload_id FROM memory_episode WHERE id = %(episode)s)",
    ):
        superuser.execute(statement, {"fact": told.ended, "episode": told.episode_id})


def _is_compacted(told: Told, superuser: Any) -> None:
    _expires(told, superuser)
    assert compaction.compact(Actor(kind=ActorKind.OPERATOR, id=OPERATOR.id, tenant=told.id), seconds=60).done


def _loses_a_field(told: Told, superuser: Any) -> None:
    told.redact(fact(told.ended, Strategy.NULL, "mail"), episode(told.episode_id))


def _loses_a_span(told: Told, superuser: Any) -> None:
    start = len("My mail is ")
    told.redact(episode(told.episode_id, (start, start + len(WORD))))


def _is_redacted_whole(told: Told, superuser: Any) -> None:
    told.redact(fact(told.ended), episode(told.episode_id))


def _waits_for_its_redaction(told: Told, superuser: Any) -> None:
    told.propose(fact(told.ended), episode(told.episode_id))


def _is_erased(told: Told, superuser: Any) -> None:
    second, now = told.organisation.person(MemberRole.PRIVACY_OFFICER).actor, datetime.now(UTC)
    with told.acting(told.officer):
        erasure = erasing.ask(told.officer, erasing.subject_of(told.id, "mira"), reason="no_longer_needed", now=now)
    with told.acting(second):
        erasing.decide(second, erasure.id, Answer.APPROVE, shown=erasure.digest, reason="checked", now=now)
    assert erasing.go_on(told.id, erasure.id, seconds=60) is Settled.DONE


def _loses_its_consent(told: Told, superuser: Any) -> None:
    told.withdraw("c-1")


def _is_restricted(told: Told, superuser: Any) -> None:
    for kind, which in (("fact", told.ended), ("episode", told.episode_id)):
        with told.acting(told.officer):
            restricting.restrict(told.officer, kind, which, ground="unlawful", now=datetime.now(UTC))


WAYS = (
    _expires, _is_compacted, _loses_a_field, _loses_a_span, _waits_for_its_redaction, _is_redacted_whole, _is_erased,
    _loses_its_consent, _is_restricted,
)  # fmt: skip
#: Of what is as of then, or of the ended fact itself: what held before is no answer.
_THEN = ("direct", "as of then", "as of then, known before", "recall as of then", "profile as of then")


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__.strip("_"))
def test_after_an_ending_no_question_is_answered_by_it_nor_by_what_it_hid(
    told: Told, superuser: Any, way: Callable[[Told, Any], None]
) -> None:
    before = told.asked()
    assert WORD in before["as of then, known before"]
    assert WORD in before["lineage"]
    way(told, superuser)
    answers = told.asked()
    assert [name for name, answer in answers.items() if WORD in answer] == []
    assert [name for name in _THEN if HIDDEN in answers[name]] == []
    # What stands beside it stands on, but where all about its subject was to end.
    assert ("zqafter" in answers["profile"]) == (way is not _is_erased)
    if way is not _is_restricted:
        # What is restricted is kept, and goes along with its restriction.
        assert WORD not in told.exported()
    while outbox.drain_tenant(told.id):
        pass
    assert [name for name, answer in told.asked().items() if WORD in answer] == []
