"""Our doors at work, in a process of their own: jobs come as lines of JSON, answers go as lines of JSON.

Everything goes the way that a face goes: the boundary's model, a tenant transaction under the real role, the door.
"""

import json
import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from statistics import median
from time import perf_counter
from typing import Any
from uuid import UUID

import django

django.setup()

from django.db import connection  # noqa: E402  after the settings

from benchmarks.bodies import said, value  # noqa: E402
from memory import recall, remember  # noqa: E402
from memory.contracts import EpisodeBody, FactBody, parse  # noqa: E402
from memory.outbox import Settled  # noqa: E402
from memory.outcomes import Written  # noqa: E402
from policies.approvals import Answer  # noqa: E402
from policies.definitions import load_definitions  # noqa: E402
from policies.publishing import publish_attributes, publish_policy  # noqa: E402
from policies.rules import STARTER, load_policy  # noqa: E402
from retention import compaction, erasing, redaction  # noqa: E402
from tenants.actors import Actor, ActorKind, MemberRole, Scope  # noqa: E402
from tenants.isolation import Role, tenant_transaction  # noqa: E402
from tenants.models import PLATFORM  # noqa: E402
from tenants.registry import OPERATOR, create_agent, create_member, create_tenant, issue_key  # noqa: E402

DEADLINE = "passport_deadline"
#: Attributes of the tenant: the deadline, and as many more as a batch about one subject needs.
NUMBERED = 1_000
_START = datetime(2026, 1, 1, tzinfo=UTC)


def found_tenant(slug: str) -> dict[str, str]:
    """Make a tenant with the starter policy, its attributes, and an agent; return how to act in it."""
    now = datetime.now(UTC)
    with tenant_transaction(Role.FRONT, tenant=None):
        tenant = create_tenant(slug, by=OPERATOR, now=now)
    operator = Actor(kind=ActorKind.OPERATOR, id=OPERATOR.id, tenant=tenant.id)
    date = {"type": "string", "format": "date"}
    names = [DEADLINE, *(f"attribute_{number}" for number in range(NUMBERED))]
    definitions = load_definitions(json.dumps([{"name": name, "schema": date} for name in names]))
    with tenant_transaction(Role.STAFF, tenant=tenant.id, actor=operator.id):
        publish_policy(operator, load_policy(STARTER.read_text(encoding="utf-8")), now=now)
    with tenant_transaction(Role.STAFF, tenant=tenant.id, actor=operator.id):
        publish_attributes(operator, definitions, now=now)
    with tenant_transaction(Role.FRONT, tenant=tenant.id):
        agent = create_agent(tenant.id, "bench", clearance=3, trust=50, purposes=("support",), by=OPERATOR, now=now)
        issued = issue_key(agent, scopes=frozenset(Scope), by=OPERATOR, now=now)
    return {"tenant": str(tenant.id), "agent": str(agent.id), "key": issued.text}


class Doors:
    """The jobs, each about the subject or the batch of a number."""

    def __init__(self, tenant: UUID, agent: UUID) -> None:
        self.actor = Actor(
            kind=ActorKind.AGENT,
            id=agent,
            tenant=tenant,
            clearance=3,
            trust=50,
            scopes=frozenset(Scope),
            purposes=frozenset({"support"}),
        )
        self.reviewer: Any = None

    def read(self, number: int) -> None:
        """Read what is current, and leave a receipt."""
        page = recall.facts(self.actor, subject=f"subject-{number}", attribute=DEADLINE)
        assert len(page.results) == 1

    def answer(self, number: int) -> None:
        """Find the same answer, without the receipt."""
        found = recall.answer(self.actor, subject=f"subject-{number}", attribute=DEADLINE)
        assert len(found.results) == 1

    def read_seeded(self, number: int) -> None:
        """Read one of the facts that were seeded in bulk, and leave a receipt."""
        page = recall.facts(self.actor, subject=f"seeded-{number // 20}", attribute=f"attribute_{number % 20}")
        assert len(page.results) == 1

    def ask(self, number: int, episodes: int, of_one: bool) -> None:
        """Recall by question."""
        from benchmarks import talk

        talk.ask(self.actor, number, episodes=episodes, of_one=of_one)

    def _write(self, bodies: Sequence[dict[str, Any]], *, batch: bool = False) -> None:
        parsed = [parse(FactBody, body) for body in bodies]
        with tenant_transaction(Role.WRITER, tenant=self.actor.tenant, clearance=3, actor=self.actor.id):
            outcomes = remember.facts(self.actor, parsed, batch=batch)
        assert all(isinstance(outcome, Written) for outcome in outcomes)

    def write(self, number: int) -> None:
        """Say the first thing of a subject that nobody knew, or the next value of one that is known."""
        self._write([said(f"subject-{number}", DEADLINE, value(number))])

    def write_next(self, number: int) -> None:
        """Say a further value: a number of its own each time gives one that was never said of that subject."""
        day = _START.date() + timedelta(days=number)
        self._write([said(f"subject-{number % 500}", DEADLINE, day.isoformat())])

    def write_other(self, number: int) -> None:
        """Say something of a known subject that was never said of it."""
        self._write([said(f"subject-{number % 500}", f"attribute_{number // 500}", value(number))])

    def write_piled(self, number: int) -> None:
        """Say the next value on one of 40 keys that have a pile of evidence."""
        self._write([said(f"piled-{number % 40}", DEADLINE, value(number // 40))])

    def pile(self, number: int, count: int) -> None:
        """Make a key with `count` pieces of evidence an hour apart, its values changing."""
        subject = f"piled-{number}"
        for first in range(0, count, 1_000):
            bodies = [
                said(subject, DEADLINE, value(each), valid_from=(_START + timedelta(hours=each)).isoformat())
                for each in range(first, min(first + 1_000, count))
            ]
            self._write(bodies, batch=True)

    def late(self, number: int, on: int, count: int) -> None:
        """Let a saying arrive late: it holds from half an hour after an earlier one of the pile on `on`."""
        at = _START + timedelta(hours=number * 37 % count, minutes=30)
        self._write([said(f"piled-{on}", DEADLINE, value(number + 13), valid_from=at.isoformat())])

    def fill(self, number: int, size: int) -> None:
        """Make `size` subjects from `number` on."""
        self._write(
            [said(f"subject-{number + each}", DEADLINE, value(number + each)) for each in range(size)], batch=True
        )

    def batch_one(self, number: int, size: int) -> None:
        """Say as much as a batch holds about one new subject."""
        subject = f"batch-one-{number}"
        self._write([said(subject, f"attribute_{each}", value(each)) for each in range(size)], batch=True)

    def batch_many(self, number: int, size: int) -> None:
        """Say one thing each of as many new subjects as a batch holds."""
        self._write([said(f"batch-{number}-{each}", DEADLINE, value(each)) for each in range(size)], batch=True)

    def batch_next(self, number: int, size: int) -> None:
        """Say the next value of as many known subjects as a batch holds."""
        self._write([said(f"batch-0-{each}", DEADLINE, value(each + number + 1)) for each in range(size)], batch=True)

    def desk_open(self, number: int) -> None:
        """Open the review desk."""
        self._reviewer().open(number)

    def desk_next(self, number: int) -> None:
        """Decide on what is claimed at the desk, and take the next."""
        self._reviewer().next(number)

    def subject_page(self, number: int) -> None:
        """Open the page of a subject that has many facts."""
        self._reviewer().subject(number)

    def _reviewer(self) -> Any:
        from benchmarks.reviewing import Reviewer

        if self.reviewer is None:
            self.reviewer = Reviewer(self.actor.tenant)
        return self.reviewer

    def compact_chunk(self, number: int) -> None:
        """Do one chunk of compaction."""
        worker = Actor(kind=ActorKind.JOB, id=PLATFORM, tenant=self.actor.tenant)
        compaction.chunk(worker, compaction._open(worker))

    def compact(self) -> dict[str, Any]:
        """Compact all that is overdue; return how long that took, and what it removed."""
        began = perf_counter()
        done = compaction.compact(Actor(kind=ActorKind.JOB, id=PLATFORM, tenant=self.actor.tenant))
        return {"seconds": perf_counter() - began, "counts": done.counts}

    def redactable(self, number: int, pieces: int) -> None:
        """Say one thing of a subject `pieces` times, by a quote each."""
        subject, at = f"redactable-{number}", _START.isoformat()
        with tenant_transaction(Role.WRITER, tenant=self.actor.tenant, clearance=3, actor=self.actor.id):
            sent = {"kind": "message", "role": "user", "content": f"it is {value(number)}, I said", "session_id": "s",
                    "turn_id": f"redactable-{number}", "subject": subject, "occurred_at": at, "extract": "no"}  # fmt: skip
            kept: Any = remember.episode(self.actor, parse(EpisodeBody, sent))
        bodies = [said(subject, DEADLINE, value(number), valid_from=at) for _ in range(pieces)]
        for body in bodies:
            body["provenance"] |= {"source_episode": str(kept.id), "quote": value(number)}
        self._write(bodies, batch=True)

    def redact(self, fact: UUID) -> dict[str, float]:
        """Propose to redact a fact, look at what follows as somebody else, apply; return how long each took (seconds)."""
        tenant, took = self.actor.tenant, {}
        with tenant_transaction(Role.FRONT, tenant=tenant):
            people = [
                create_member(
                    tenant,
                    f"{role.value}-{fact.hex}",
                    role,
                    password=f"bench {fact.hex}",
                    by=OPERATOR,
                    now=datetime.now(UTC),
                )
                for role in (MemberRole.REVIEWER, MemberRole.PRIVACY_OFFICER)
            ]
        first, second = (
            Actor(kind=ActorKind.PERSON, id=each.membership.user_id, tenant=tenant, clearance=3) for each in people
        )
        began = perf_counter()
        with tenant_transaction(Role.STAFF, tenant=tenant, clearance=3, actor=first.id):
            pick = redaction.Pick(kind=redaction.Kind.FACT, target=fact)
            asked = redaction.propose(first, [pick], reason="other", now=datetime.now(UTC))
        took["propose"] = perf_counter() - began
        began = perf_counter()
        with tenant_transaction(Role.STAFF, tenant=tenant, clearance=3, actor=second.id):
            shown = redaction.examine(second, asked.id)
        took["preview"] = perf_counter() - began
        began = perf_counter()
        with tenant_transaction(Role.STAFF, tenant=tenant, clearance=3, actor=second.id):
            done = redaction.apply(second, asked.id, shown=shown.digest, reason="checked", now=datetime.now(UTC))
        took["apply"] = perf_counter() - began
        assert done.applied
        return took

    def erasable(self, number: int, subject: str) -> None:
        """Say one thing by each of twenty attributes, and send one episode, of a subject."""
        with tenant_transaction(Role.WRITER, tenant=self.actor.tenant, clearance=3, actor=self.actor.id):
            sent = {"kind": "message", "role": "user", "content": "the first of many", "session_id": "s", "turn_id": "first",
                    "subject": subject, "occurred_at": _START.isoformat(), "extract": "no"}  # fmt: skip
            kept: Any = remember.episode(self.actor, parse(EpisodeBody, sent))
        assert hasattr(kept, "id"), kept
        self._write([said(subject, f"attribute_{each}", value(each)) for each in range(20)], batch=True)

    def erase(self, subject: str) -> dict[str, Any]:
        """Ask for the erasure of a subject, approve it as another, carry it out; return how long each took (seconds)."""
        tenant, took = self.actor.tenant, {}
        first, second = self._people(subject, MemberRole.PRIVACY_OFFICER, MemberRole.PRIVACY_OFFICER)
        began = perf_counter()
        with tenant_transaction(Role.STAFF, tenant=tenant, clearance=3, actor=first.id):
            about = erasing.subject_of(tenant, subject)
            asked = erasing.ask(first, about, reason="subject_request", now=datetime.now(UTC))
        took["ask"] = perf_counter() - began
        began = perf_counter()
        with tenant_transaction(Role.STAFF, tenant=tenant, clearance=3, actor=second.id):
            shown = asked.digest
            erasing.decide(second, asked.id, Answer.APPROVE, shown=shown, reason="checked", now=datetime.now(UTC))
        took["approve"] = perf_counter() - began
        began = perf_counter()
        while erasing.go_on(tenant, asked.id, seconds=3_600) is not Settled.DONE:
            pass
        took["erase"] = perf_counter() - began
        with tenant_transaction(Role.WORKER, tenant=tenant):
            found, left = erasing.find(tenant, asked.id), erasing.left(tenant, about)
        return {**took, "state": found.state, "left": sum(left.values())}

    def _people(self, name: str, *roles: MemberRole) -> list[Actor]:
        tenant = self.actor.tenant
        with tenant_transaction(Role.FRONT, tenant=tenant):
            people = [
                create_member(
                    tenant, f"{place}-{name}", role, password=f"bench {name}", by=OPERATOR, now=datetime.now(UTC)
                )
                for place, role in enumerate(roles)
            ]
        return [Actor(kind=ActorKind.PERSON, id=each.membership.user_id, tenant=tenant, clearance=3) for each in people]


def statements(job: Callable[[int], None], numbers: Sequence[int]) -> list[dict[str, Any]]:
    """Run a job and return of each of its statements how often it runs in one, and how long that takes (seconds, median).

    What begins the transaction is sent along with the first statement, and is in its time. A statement that is
    pipelined takes its time at the end of its pipeline, which is in the time of what is no statement.
    """
    runs: list[dict[str, float]] = []
    counts: dict[str, int] = defaultdict(int)
    wholes: list[float] = []

    def timed(execute: Any, sql: Any, parameters: Any, many: Any, context: Any) -> Any:
        name = " ".join(str(sql).split())[:70]
        began = perf_counter()
        try:
            return execute(sql, parameters, many, context)
        finally:
            runs[-1][name] = runs[-1].get(name, 0.0) + perf_counter() - began
            counts[name] += 1

    with connection.execute_wrapper(timed):
        for number in numbers:
            runs.append({})
            began = perf_counter()
            job(number)
            wholes.append(perf_counter() - began)
    each = [
        {"statement": name, "count": count / len(runs), "seconds": median(run.get(name, 0.0) for run in runs)}
        for name, count in counts.items()
    ]
    rest = [whole - sum(run.values()) for whole, run in zip(wholes, runs, strict=True)]
    return [*each, {"statement": "(Python, pipelines, and the commit)", "count": 0, "seconds": median(rest)}]


def main() -> None:
    """Answer jobs until there are no more."""
    answers, sys.stdout = sys.stdout, sys.stderr
    given = json.loads(sys.argv[1])
    doors = Doors(UUID(given["tenant"]), UUID(given["agent"])) if given else None
    for line in sys.stdin:
        asked = json.loads(line)
        name, numbers = asked.pop("job"), asked.pop("numbers")
        answer: Any
        if name == "found":
            answer = found_tenant(asked.get("slug", "bench"))
        elif name == "seed":
            from benchmarks.seeding import seed

            assert doors is not None
            answer = seed(doors.actor, **asked)
        elif name == "seed_talk":
            from benchmarks import talk

            assert doors is not None
            answer = talk.seed(doors.actor, **asked)
        elif name == "desk_seed":
            from benchmarks import reviewing

            assert doors is not None
            reviewing.seed(doors.actor, **asked)
            answer = {}
        elif name == "subject_seed":
            from benchmarks import reviewing

            assert doors is not None
            reviewing.seed_subject(doors.actor, **asked)
            answer = {}
        elif name == "compact":
            assert doors is not None
            answer = doors.compact()
        elif name == "redact":
            assert doors is not None
            answer = doors.redact(UUID(asked["fact"]))
        elif name == "erase":
            assert doors is not None
            answer = doors.erase(asked["subject"])
        elif name == "statements":
            answer = statements(getattr(doors, asked["of"]), numbers)
        else:
            job, took = getattr(doors, name), []
            for number in numbers:
                began = perf_counter()
                job(number, **asked)
                took.append(perf_counter() - began)
            answer = {"seconds": took}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
