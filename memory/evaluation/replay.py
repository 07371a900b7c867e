"""Replay of a recorded history: every act goes in by the write door, every question is asked at the read door.

The outcome counts right and wrong answers. What was wrong is named by file, line, attribute and kind; content is added only
when asked for. Values are compared as the ledger keeps them, in canonical form: text trimmed and in NFC.
"""

import json
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter
from typing import Any, Literal, TypeVar
from uuid import UUID

import django
from pydantic_core import PydanticCustomError

from memory.contracts import MAX_BATCH, subject_text
from memory.evaluation.folders import Act, Folder, Interval, Late, Question, Selection, Story, number_of
from memory.evaluation.reach import HIDDEN, Answer, Ask, InProcess, Ledger, OverHttp, Reach
from policies.catalogue import catalogue
from policies.definitions import definition
from policies.publishing import publish_attributes, publish_policy
from policies.rules import STARTER, load_policy
from policies.values import ValueRefused, canonical, canonical_text, clean_text
from tenants.actors import Actor, ActorKind, Scope
from tenants.errors import Clash, Missing
from tenants.identity import new_id
from tenants.isolation import Role, assume, tenant_transaction
from tenants.registry import OPERATOR, create_agent, create_tenant, issue_key, key_of_prefix, tenant_named

PARTS = ("dialogues", "queries", "late")
SAMPLES = 20
_SCHEMA = {"type": "string"}
_HASHED = "subject-"
_READS_TOGETHER = 50
_LATE_TOGETHER = 50

Episodes = Literal["cited", "all", "none"]
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What to replay and how. `url` leads to a running copy whose API is used instead of the doors in process."""

    folder: Path
    selection: Selection = field(default_factory=Selection)
    parts: frozenset[str] = frozenset(PARTS)
    episodes: Episodes = "cited"
    jobs: int = 1
    tenant: str | None = None
    url: str | None = None
    key: str | None = field(default=None, repr=False)
    show: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    """One process's share: its place among the jobs, and who writes where."""

    wanted: Wanted
    number: int
    actor: Actor
    #: Stands before every subject of this run where the tenant may have the same subject already.
    prefix: str


def _zeros() -> defaultdict[str, float]:
    return defaultdict(float)


@dataclass(slots=True)
class _Tally:
    """What one process did and found."""

    done: Counter[str] = field(default_factory=Counter)
    right: Counter[str] = field(default_factory=Counter)
    wrong: Counter[str] = field(default_factory=Counter)
    samples: list[dict[str, Any]] = field(default_factory=list)
    seconds: defaultdict[str, float] = field(default_factory=_zeros)


def replay(wanted: Wanted, *, now: datetime) -> dict[str, Any]:
    """Replay a folder into a tenant of its own, or a given one, and return what came of it.

    Raises `FolderUnreadable` for a folder that cannot be read, and whatever the registry and the doors raise where there
    is no tenant to write to.
    """
    began = perf_counter()
    folder = Folder(wanted.folder)
    slug, actor, wanted = _prepare(wanted, folder.attributes(), now)
    prefix = "" if wanted.tenant is None and wanted.key is None else f"replay-{new_id().hex[-8:]}/"
    jobs = [_Job(wanted=wanted, number=number, actor=actor, prefix=prefix) for number in range(wanted.jobs)]
    if wanted.jobs == 1:
        tallies = [_run(jobs[0])]
    else:
        # Spawned, not forked: a connection must not be shared.
        with ProcessPoolExecutor(wanted.jobs, get_context("spawn"), initializer=django.setup) as pool:
            tallies = list(pool.map(_run, jobs))
    return _told(wanted, folder.kind, slug, tallies, perf_counter() - began)


def _told(wanted: Wanted, kind: str, slug: str, tallies: Sequence[_Tally], seconds: float) -> dict[str, Any]:
    total = _Tally()
    for tally in tallies:
        total.done += tally.done
        total.right += tally.right
        total.wrong += tally.wrong
    samples = [sample for tally in tallies for sample in tally.samples][:SAMPLES]

    def rate(count: str, phase: str) -> float:
        # The processes work side by side: their rates add up.
        return round(sum(each.done[count] / each.seconds[phase] for each in tallies if each.seconds[phase]), 1)

    return {
        "folder": wanted.folder.name,
        "kind": kind,
        "tenant": slug,
        "through": "doors" if wanted.url is None else "http",
        **{
            name: total.done[name]
            for name in (
                "subjects",
                "subjects_renamed",
                "episodes",
                "episodes_refused",
                "writes",
                "retractions",
                "queries",
                "late_sequences",
                "late_writes",
                "late_repeats",
                "late_checks",
                "values_trimmed",
            )
        },
        "checks": {
            name: {"right": total.right[name], "wrong": total.wrong[name]}
            for name in sorted({*total.right, *total.wrong})
        },
        "right": sum(total.right.values()),
        "wrong": sum(total.wrong.values()),
        "wrong_samples": samples,
        "jobs": wanted.jobs,
        "seconds": round(seconds, 1),
        "episodes_per_second": rate("episodes", "episodes"),
        "writes_per_second": rate("writes", "writes"),
        "queries_per_second": rate("queries", "queries"),
        "late_writes_per_second": rate("late_writes", "late_writes"),
        "late_checks_per_second": rate("late_checks", "late_checks"),
    }


# where it is written --------------------------------------------------------------------------------------------------


def _prepare(wanted: Wanted, names: Sequence[str], now: datetime) -> tuple[str, Actor, Wanted]:
    """Return the tenant's slug, the agent that writes there, and `wanted` with a key where one is needed."""
    actor: Actor | None = None
    with tenant_transaction(Role.FRONT, tenant=None):
        if wanted.key is not None:
            key = key_of_prefix(wanted.key.partition(".")[0])
            actor = Actor(kind=ActorKind.AGENT, id=key.agent_id, tenant=key.tenant_id)
            slug, tenant = "", key.tenant_id
        else:
            slug, tenant = _tenant(wanted.tenant, now)
            assume(Role.FRONT, tenant=tenant)
            scopes = frozenset({Scope.READ, Scope.WRITE, Scope.IMPORT})
            agent = create_agent(tenant, f"replay-{new_id().hex[-12:]}", clearance=3, by=OPERATOR, now=now)
            actor = Actor(
                kind=ActorKind.AGENT,
                id=agent.id,
                tenant=tenant,
                clearance=agent.clearance,
                trust=agent.trust,
                scopes=scopes,
            )
            if wanted.url is not None:
                wanted = replace(wanted, key=issue_key(agent, scopes=scopes, by=OPERATOR, now=now).text)
    operator = Actor(kind=ActorKind.OPERATOR, id=OPERATOR.id, tenant=tenant)
    with tenant_transaction(Role.STAFF, tenant=tenant, actor=operator.id):
        try:
            catalogue(tenant)
        except Clash:
            publish_policy(operator, load_policy(STARTER.read_text(encoding="utf-8")), now=now)
    definitions = [
        definition(
            {"name": name, "schema": _SCHEMA, "sensitivity": "internal", "basis": "contract", "conflict": "latest"}
        )
        for name in names
    ]
    with tenant_transaction(Role.STAFF, tenant=tenant, actor=operator.id):
        publish_attributes(operator, definitions, now=now)
    return slug, actor, wanted


def _tenant(slug: str | None, now: datetime) -> tuple[str, UUID]:
    if slug is not None:
        try:
            return slug, tenant_named(slug).id
        except Missing:
            pass
    slug = slug or f"replay-{new_id().hex[-12:]}"
    return slug, create_tenant(slug, by=OPERATOR, now=now).id


# one process ----------------------------------------------------------------------------------------------------------


def _run(job: _Job) -> _Tally:
    wanted = job.wanted
    reach: Reach = InProcess(job.actor)
    if wanted.url is not None:
        reach = OverHttp(wanted.url, wanted.key or "")
    return _Replay(job, reach).run()


def _chunks(items: Iterable[T], size: int) -> Iterator[list[T]]:
    iterator = iter(items)
    while chunk := list(islice(iterator, size)):
        yield chunk


class _Replay:
    """One process's replay of its share of the subjects."""

    def __init__(self, job: _Job, reach: Reach) -> None:
        self._job = job
        self._wanted = job.wanted
        self._reach = reach
        self._tally = _Tally()
        self._folder = Folder(job.wanted.folder)

    def run(self) -> _Tally:
        """Do what is wanted and return what was done and found."""
        selection, parts = self._wanted.selection, self._wanted.parts
        told: set[str] = set()
        mine: dict[str, Story] = {}
        for story in self._folder.stories(selection):
            told.add(story.subject)
            if self._is_mine(story.subject):
                mine[story.subject] = story
        if parts & {"dialogues", "queries"}:
            for group in self._groups(mine.values()):
                self._tell(group)
        if "queries" in parts:
            asked = (
                each
                for each in self._folder.questions()
                if (each.subject in told if selection.limit is not None else selection.has(each.subject))
                and self._is_mine(each.subject)
            )
            for questions in _chunks(asked, _READS_TOGETHER):
                self._ask([(self._name(each.subject), each) for each in questions], "queries")
        if "late" in parts:
            for group_late in _chunks((each for each in self._folder.late() if each.subject in mine), _LATE_TOGETHER):
                self._deliver(group_late, mine)
        return self._tally

    def _is_mine(self, subject: str) -> bool:
        # Other digits of the number than those that sample: every job has its share of a sample.
        return (number_of(subject) >> 32) % self._wanted.jobs == self._job.number

    def _name(self, subject: str, mode: str = "") -> str:
        name = subject if _is_name(subject) else f"{_HASHED}{number_of(subject):016x}"
        return f"{self._job.prefix}{name}{f'#{mode}' if mode else ''}"

    def _groups(self, stories: Iterable[Story]) -> Iterator[list[Story]]:
        """Yield stories together whose acts fill a batch."""
        group: list[Story] = []
        acts = 0
        for story in stories:
            if group and acts + len(story.acts) > MAX_BATCH:
                yield group
                group, acts = [], 0
            group.append(story)
            acts += len(story.acts)
        if group:
            yield group

    # in the order of recording ----------------------------------------------------------------------------------------

    def _tell(self, stories: Sequence[Story]) -> None:
        tally = self._tally
        episodes = self._keep_episodes(stories)
        began = perf_counter()
        queues: dict[tuple[int, str], deque[Act]] = {}
        for place, story in enumerate(stories):
            for act in story.acts:
                queues.setdefault((place, act.attribute), deque()).append(act)
        evidence: dict[tuple[int, str], UUID] = {}
        facts: dict[str, dict[str, UUID]] = {self._name(story.subject): {} for story in stories}
        while queues:
            # What is said of one key keeps its order; a withdrawal waits for what it withdraws.
            items: list[tuple[int, Act]] = []
            for (place, _), queue in queues.items():
                while queue and queue[0].op != "withdraw":
                    items.append((place, queue.popleft()))
            for chunk in _chunks(items, MAX_BATCH):
                bodies = [self._fact(stories[place], act, episodes.get((place, act.turn))) for place, act in chunk]
                for (place, act), answer in zip(chunk, self._reach.write(bodies), strict=True):
                    tally.done["writes"] += 1
                    if self._stands(stories[place], act, answer):
                        if answer.evidence is not None:
                            evidence[place, act.id] = answer.evidence
                        if answer.fact is not None:
                            facts[self._name(stories[place].subject)][act.attribute] = answer.fact
            for (place, _), queue in queues.items():
                while queue and queue[0].op == "withdraw":
                    act = queue.popleft()
                    tally.done["retractions"] += 1
                    target = evidence.get((place, act.target or ""))
                    answer = (
                        Answer(code="target_unknown")
                        if target is None
                        else self._reach.take_back(target, act.recorded_at)
                    )
                    self._stands(stories[place], act, answer)
            queues = {key: queue for key, queue in queues.items() if queue}
        tally.done["subjects"] += len(stories)
        tally.done["subjects_renamed"] += sum(not _is_name(story.subject) for story in stories)
        tally.seconds["writes"] += perf_counter() - began
        if "dialogues" in self._wanted.parts and any(story.intervals is not None for story in stories):
            ledgers = self._reach.ledgers(facts)
            for story in stories:
                self._compare(story, story.place, ledgers[self._name(story.subject)], "intervals")

    def _keep_episodes(self, stories: Sequence[Story]) -> dict[tuple[int, int | None], tuple[UUID, str]]:
        kept: dict[tuple[int, int | None], tuple[UUID, str]] = {}
        if self._wanted.episodes == "none":
            return kept
        began = perf_counter()
        for place, story in enumerate(stories):
            turns: Iterable[int] = range(len(story.turns))
            if self._wanted.episodes == "cited":
                turns = sorted({act.turn for act in story.acts if act.turn is not None and act.turn < len(story.turns)})
            for number in turns:
                turn = story.turns[number]
                answer = self._reach.keep(
                    {
                        "kind": "message",
                        "role": turn.role,
                        "content": turn.text,
                        "session_id": f"{self._job.prefix}dialogue-{number_of(story.subject):016x}",
                        "turn_id": f"turn-{number}",
                        "subject": self._name(story.subject),
                        "occurred_at": turn.at.isoformat(),
                        "retention": {"basis": "contract"},
                        "extract": "no",
                    }
                )
                if answer.episode is None:
                    # A turn may be empty or hold what no text may: the sayings stand without it.
                    self._tally.done["episodes_refused"] += 1
                else:
                    self._tally.done["episodes"] += 1
                    kept[place, number] = answer.episode, clean_text(turn.text)
        self._tally.seconds["episodes"] += perf_counter() - began
        return kept

    def _fact(
        self,
        story: Story,
        act: Act,
        episode: tuple[UUID, str] | None,
        *,
        mode: str = "",
        recorded_at: datetime | None = None,
    ) -> dict[str, Any]:
        provenance: dict[str, Any] = {"turn_id": act.source}
        if self._folder.kind == "facts":
            provenance["source"] = "file"
        elif episode is not None:
            provenance["source_episode"] = str(episode[0])
            said = next((form for form in act.forms if form.strip() and form in episode[1]), None)
            if said is not None:
                provenance["quote"] = said
        body: dict[str, Any] = {
            "subject": self._name(story.subject, mode),
            "attribute": act.attribute,
            "valid_from": act.valid_from.isoformat(),
            "recorded_at": (recorded_at or act.recorded_at).isoformat(),
            "provenance": provenance,
        }
        if act.op == "end":
            return body | {"ended": True}
        if isinstance(act.value, str) and not mode and act.value != act.value.strip():
            self._tally.done["values_trimmed"] += 1
        return body | {"value": act.value}

    def _stands(self, story: Story, act: Act, answer: Answer) -> bool:
        if answer.code:
            self._miss("writes", story.place, act.attribute, why=answer.code, subject=story.subject)
        return not answer.code

    # out of order -----------------------------------------------------------------------------------------------------

    def _deliver(self, group: Sequence[Late], stories: Mapping[str, Story]) -> None:
        """Write each sequence act by act under a subject of its own, then ask, then compare what is stored."""
        tally, facts, expected = self._tally, {}, {}
        for late in group:
            story = stories[late.subject]
            name = self._name(late.subject, late.mode)
            began = perf_counter()
            facts[name], expected[name] = self._deliver_one(late, story)
            tally.seconds["late_writes"] += perf_counter() - began
            tally.done["late_sequences"] += 1
            self._ask([(name, question) for question in late.questions], "late_checks")
        ledgers = self._reach.ledgers(facts)
        for late in group:
            ledger = ledgers[self._name(late.subject, late.mode)]
            self._compare(stories[late.subject], late.place, ledger, "late_intervals")
            # Only the deliveries that were no repeat left evidence; an ended key without a fact has no history to count.
            if self._wanted.url is None or all(act.op == "set" for act in stories[late.subject].acts):
                kept = ledger.evidence == expected[self._name(late.subject, late.mode)]
                self._count(kept, "late_evidence", late.place, "", why=late.mode, subject=late.subject)

    def _deliver_one(self, late: Late, story: Story) -> tuple[dict[str, UUID], int]:
        acts = {act.id: act for act in story.acts}
        sent: dict[str, tuple[dict[str, Any], Answer]] = {}
        facts: dict[str, UUID] = {}
        for act_id, recorded_at in late.deliveries:
            act = acts.get(act_id)
            if act is None:
                self._miss("writes", late.place, "", why="act_unknown", subject=late.subject)
                continue
            key = f"{self._job.actor.tenant.hex}-{number_of(self._name(late.subject, late.mode)):016x}-{act_id}"
            if act_id in sent:
                # The same request again, as first sent: it is answered, and changes nothing.
                body, first = sent[act_id]
                answer = self._reach.write_once(body, key)
                self._tally.done["late_repeats"] += 1
                same = (answer.code, answer.evidence, answer.fact) == (first.code, first.evidence, first.fact)
                self._count(same, "repeats", late.place, act.attribute, why=late.mode, subject=late.subject)
                continue
            body = self._fact(story, act, None, mode=late.mode, recorded_at=recorded_at)
            answer = self._reach.write_once(body, key)
            sent[act_id] = body, answer
            self._tally.done["late_writes"] += 1
            if self._stands(story, act, answer) and answer.fact is not None:
                facts[act.attribute] = answer.fact
        return facts, len(sent)

    # judging ----------------------------------------------------------------------------------------------------------

    def _ask(self, asked: Sequence[tuple[str, Question]], kind: str) -> None:
        began = perf_counter()
        answers = self._reach.ask(
            [Ask(name, question.attribute, question.valid_at, question.known_at) for name, question in asked]
        )
        self._tally.seconds[kind] += perf_counter() - began
        self._tally.done[kind] += len(asked)
        for (_, question), values in zip(asked, answers, strict=True):
            expect = _kept(question.expect)
            got = values[0] if len(values) == 1 else None if not values else HIDDEN
            why = "right"
            if got != expect:
                stale = {canonical_text(_kept(each)) for each in question.stale}
                why = "several" if len(values) > 1 else "withheld" if got is HIDDEN else "wrong"
                if why == "wrong" and canonical_text(got) in stale:
                    why = "stale"
            self._count(
                why == "right",
                kind,
                question.place,
                question.attribute,
                why=why,
                subject=question.subject,
                expected=expect,
                got=got,
                at=(question.valid_at, question.known_at),
            )

    def _compare(self, story: Story, place: str, ledger: Ledger, kind: str) -> None:
        """Compare all stretches that are believed now with the intervals that must be."""
        if story.intervals is None:
            return
        for attribute in sorted({*story.intervals, *ledger.stretches}):
            wanted = _joined(story.intervals.get(attribute, ()))
            got = ledger.stretches.get(attribute, [])
            self._count(
                wanted == got, kind, place, attribute, why="stretches", subject=story.subject, expected=wanted, got=got
            )

    def _count(self, right: bool, kind: str, place: str, attribute: str, **about: Any) -> None:
        if right:
            self._tally.right[kind] += 1
        else:
            self._miss(kind, place, attribute, **about)

    def _miss(self, kind: str, place: str, attribute: str, *, why: str, **content: Any) -> None:
        self._tally.wrong[kind] += 1
        if len(self._tally.samples) >= SAMPLES:
            return
        sample: dict[str, Any] = {"kind": kind, "line": place, "attribute": attribute, "why": why}
        if self._wanted.show:
            sample |= {name: _shown(value) for name, value in content.items()}
        self._tally.samples.append(sample)


def _is_name(subject: str) -> bool:
    """Whether the ledger keeps this key to the letter. Two keys that it keeps as one would be one subject there."""
    try:
        return len(subject) <= 150 and subject_text(subject) == subject
    except PydanticCustomError:
        return False


def _kept(value: Any) -> Any:
    """Return a value as the ledger keeps it; one that no ledger may keep equals nothing that is read."""
    if value is None:
        return None
    try:
        return canonical(_SCHEMA, value)
    except ValueRefused:
        return HIDDEN


def _joined(intervals: Iterable[Interval]) -> list[Interval]:
    """Return intervals in canonical values, those of one value that touch as one."""
    joined: list[Interval] = []
    for value, start, end in sorted(intervals, key=lambda each: each[1]):
        kept = _kept(value)
        if joined and joined[-1][0] == kept and joined[-1][2] == start:
            joined[-1] = (kept, joined[-1][1], end)
        else:
            joined.append((kept, start, end))
    return joined


def _shown(value: Any) -> Any:
    if value is HIDDEN:
        return "(withheld)"
    return json.loads(json.dumps(value, default=lambda each: each.isoformat() if hasattr(each, "isoformat") else "?"))
