"""What recall finds in a folder of labelled conversations, beside a plain full-text baseline of the same run.

A folder holds `turns*.jsonl` ({conversation, turns [[id, t, speaker, text], ...]}) and `questions*.jsonl` ({id, conversation,
category, question, evidence [ids]} or {evidence_spans [[first, last], ...]}, for an update also `stale_evidence` and
`fresh_evidence`); both may be gzipped. Every turn goes in by the write door as an episode of its conversation's subject,
and is found as a recall finds it. The baseline is SQLite's FTS5: bm25, any of the question's words, nothing tuned.
"""

import gzip
import json
import re
import sqlite3
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from statistics import mean, median
from time import perf_counter
from typing import Any
from uuid import UUID

from memory import context, remember
from memory.contracts import EpisodeBody, parse
from memory.outcomes import EpisodeKept
from policies.publishing import publish_policy
from policies.rules import STARTER, load_policy
from tenants.actors import Actor, ActorKind, Scope
from tenants.identity import new_id
from tenants.isolation import Role, tenant_transaction
from tenants.registry import OPERATOR, create_tenant

FIRST = 10
_TOGETHER = 50
_WORD = re.compile(r"\w+")


class ConversationsUnreadable(Exception):
    """The folder or a line of it is not of the documented form; says where, never what stands there."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn: the speaker is a role (user, assistant), or else a name that belongs to what was said."""

    number: int
    at: str
    role: str | None
    text: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Question:
    """A question and the turns that answer it, as single ones or as stretches of which any turn will do."""

    conversation: str
    category: str
    text: str = field(repr=False)
    evidence: frozenset[int]
    spans: tuple[tuple[int, int], ...]
    stale: frozenset[int]
    fresh: frozenset[int]


def _lines(path: Path) -> Iterator[Any]:
    try:
        with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as lines:
            yield from (json.loads(line) for line in lines if line.strip())
    except (OSError, ValueError, EOFError):
        raise ConversationsUnreadable(f"{path.name}: not lines of JSON") from None


def conversations(path: Path) -> dict[str, list[Turn]]:
    """Return the conversations of a file of turns. Raises ConversationsUnreadable."""
    found: dict[str, list[Turn]] = {}
    try:
        for row in _lines(path):
            found[str(row["conversation"])] = [
                Turn(int(number), str(at), speaker, text)
                if speaker in ("user", "assistant")
                else Turn(int(number), str(at), None, f"{speaker}: {text}")
                for number, at, speaker, text in row["turns"]
            ]
    except (KeyError, TypeError, ValueError):
        raise ConversationsUnreadable(f"{path.name}: not of the documented form") from None
    return found


def questions(path: Path) -> list[Question]:
    """Return the questions that have evidence. Raises ConversationsUnreadable."""
    try:
        found = [
            Question(
                conversation=str(row["conversation"]),
                category=str(row["category"]),
                text=str(row["question"]),
                evidence=frozenset(row.get("evidence") or ()),
                spans=tuple((int(first), int(last)) for first, last in row.get("evidence_spans") or ()),
                stale=frozenset(row.get("stale_evidence") or ()),
                fresh=frozenset(row.get("fresh_evidence") or ()),
            )
            for row in _lines(path)
        ]
    except (KeyError, TypeError, ValueError):
        raise ConversationsUnreadable(f"{path.name}: not of the documented form") from None
    return [each for each in found if each.evidence or each.spans]


def evaluate(folder: Path, *, now: datetime, limit: int | None = None) -> dict[str, Any]:
    """Load every corpus of a folder into a tenant of its own and ask its questions; return both rankings' figures.

    `limit` keeps the first conversations of each corpus. Opens its own transactions. Raises ConversationsUnreadable.
    """
    corpora = sorted(path for path in folder.glob("turns*.jsonl*") if path.suffix in (".gz", ".jsonl"))
    if not corpora:
        raise ConversationsUnreadable("turns.jsonl (.gz) is not there")
    found = []
    for path in corpora:
        asked = folder / path.name.replace("turns", "questions", 1)
        if not asked.is_file():
            raise ConversationsUnreadable(f"{asked.name} is not there")
        found.append(_corpus(path, asked, now, limit))
    return {"folder": str(folder), "corpora": found}


def _corpus(path: Path, asked: Path, now: datetime, limit: int | None) -> dict[str, Any]:
    kept = dict(list(conversations(path).items())[:limit])
    actor = _tenant(now)
    numbers: dict[str, dict[UUID, int]] = {}
    began = perf_counter()
    for place, (name, turns) in enumerate(kept.items()):
        numbers[name] = _load(actor, f"conversation {place}", turns)
    loaded = perf_counter() - began
    by_conversation: dict[str, list[Question]] = defaultdict(list)
    for question in questions(asked):
        by_conversation[question.conversation].append(question)
    tally, plain, times = _Tally(), _Tally(), []
    for place, (name, turns) in enumerate(kept.items()):
        baseline = _baseline(turns)
        last = datetime.fromisoformat(turns[-1].at)
        for question in by_conversation[name]:
            with tenant_transaction(
                Role.AGENT, tenant=actor.tenant, clearance=actor.clearance, actor=actor.id, durable=False
            ):
                started = perf_counter()
                ranked = context.ranked_episodes(actor, question.text, subject=f"conversation {place}", now=last)
                times.append(perf_counter() - started)
            tally.add(question, [numbers[name][each] for each in ranked[:FIRST]])
            plain.add(question, _plainly(baseline, question.text))
        baseline.close()
    return {
        "corpus": path.name.partition(".")[0],
        "conversations": len(kept),
        "turns": sum(len(turns) for turns in kept.values()),
        "recall": tally.figures(),
        "baseline": plain.figures(),
        "milliseconds": {"turn": round(1000 * loaded / max(1, sum(map(len, kept.values()))), 2),
                         "question": round(1000 * median(times), 2) if times else 0.0},
    }  # fmt: skip


def _tenant(now: datetime) -> Actor:
    with tenant_transaction(Role.FRONT, tenant=None):
        tenant = create_tenant(f"retrieval-{new_id().hex[-12:]}", by=OPERATOR, now=now).id
    operator = Actor(kind=ActorKind.OPERATOR, id=OPERATOR.id, tenant=tenant)
    with tenant_transaction(Role.STAFF, tenant=tenant, actor=operator.id):
        publish_policy(operator, load_policy(STARTER.read_text(encoding="utf-8")), now=now)
    return Actor(
        kind=ActorKind.AGENT, id=new_id(), tenant=tenant, clearance=3, trust=50, scopes=frozenset({Scope.READ, Scope.WRITE})
    )  # fmt: skip


def _load(actor: Actor, subject: str, turns: Sequence[Turn]) -> dict[UUID, int]:
    found: dict[UUID, int] = {}
    for start in range(0, len(turns), _TOGETHER):
        with tenant_transaction(Role.WRITER, tenant=actor.tenant, clearance=actor.clearance, actor=actor.id):
            for turn in turns[start : start + _TOGETHER]:
                if not turn.text.strip():
                    continue
                body = {
                    "kind": "message",
                    "role": turn.role,
                    "content": turn.text,
                    "session_id": subject,
                    "turn_id": f"turn {turn.number}",
                    "subject": subject,
                    "occurred_at": turn.at,
                    "extract": "no",
                }
                outcome = remember.episode(actor, parse(EpisodeBody, body))
                if isinstance(outcome, EpisodeKept):
                    found[outcome.id] = turn.number
    return found


class _Tally:
    """What a ranking found, by category."""

    def __init__(self) -> None:
        self._recall: dict[str, list[float]] = defaultdict(list)
        self._hit: dict[str, list[bool]] = defaultdict(list)
        self._fresh: list[bool] = []

    def add(self, question: Question, ranked: Sequence[int]) -> None:
        among = set(ranked)
        if question.spans:
            found = [any(first <= turn <= last for turn in among) for first, last in question.spans]
            self._recall[question.category].append(sum(found) / len(found))
            self._hit[question.category].append(any(found))
            return
        self._recall[question.category].append(len(among & question.evidence) / len(question.evidence))
        self._hit[question.category].append(bool(among & question.evidence))
        if question.fresh and question.stale and min(question.fresh) > min(question.stale):
            places = {turn: place for place, turn in enumerate(ranked)}
            fresh, stale = (min(places.get(turn, FIRST) for turn in of) for of in (question.fresh, question.stale))
            self._fresh.append(fresh < stale)

    def figures(self) -> dict[str, Any]:
        by_category = {
            category: {
                "questions": len(self._recall[category]),
                "recall_at_10": round(mean(self._recall[category]), 3),
                "hit_at_10": round(mean(self._hit[category]), 3),
            }
            for category in sorted(self._recall)
        }
        return {"by_category": by_category, "fresh_before_stale": round(mean(self._fresh), 3) if self._fresh else None}


def _baseline(turns: Sequence[Turn]) -> sqlite3.Connection:
    made = sqlite3.connect(":memory:")
    made.execute("CREATE VIRTUAL TABLE turn USING fts5 (text)")
    made.executemany("INSERT INTO turn (rowid, text) VALUES (?, ?)", [(turn.number + 1, turn.text) for turn in turns])
    return made


def _plainly(made: sqlite3.Connection, text: str) -> list[int]:
    found = dict.fromkeys(_WORD.findall(text.lower()))
    if not found:
        return []
    match = " OR ".join(f'"{word}"' for word in found)
    answer = made.execute(
        "SELECT rowid FROM turn WHERE turn MATCH ? ORDER BY bm25(turn), rowid LIMIT ?", (match, FIRST)
    )
    return [row[0] - 1 for row in answer]
