"""What an extractor finds in a folder of labelled dialogues: precision, recall, silence, and what it costs.

A folder holds `schemas.jsonl` (attribute, service, service_description, description, is_categorical, possible_values) and
`turns.jsonl` (id "subject#turn", t, context, text, services, gold [{attribute, op, value, accept, where}]); both may be
gzipped. Pure: no Django, no clock but the stopwatch. Content stays out of errors and, unless asked for, out of the outcome.
"""

import gzip
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter
from typing import Any

from memory.extraction.checks import check
from memory.extraction.model import Configuration, ModelExtractor, Use
from memory.extraction.patterns import PatternExtractor
from memory.extraction.protocol import (
    AttributeSlice,
    EpisodeText,
    ExtractionFailed,
    Extractor,
    Proposal,
    Stored,
    Turn,
)
from policies.definitions import AttributeDefinition, DefinitionRefused, definition
from policies.vocabulary import Sensitivity

SAMPLES = 40


class DialoguesUnreadable(Exception):
    """The folder or a line of it is not of the documented form; says where, never what stands there."""


@dataclass(frozen=True, slots=True)
class Gold:
    """A value that a turn gives, in the forms that count as right; without forms, the end of one."""

    attribute: str
    forms: frozenset[str] = field(repr=False)
    where: str


@dataclass(frozen=True, slots=True)
class Labelled:
    """One turn of a user, with what it gives."""

    dialogue: str = field(repr=False)
    source: str
    at: datetime
    text: str = field(repr=False)
    before: tuple[Turn, ...]
    services: frozenset[str]
    gold: tuple[Gold, ...]


def _lines(folder: Path, name: str) -> Iterator[tuple[int, Any]]:
    for suffix in (".jsonl.gz", ".jsonl"):
        if (path := folder / f"{name}{suffix}").is_file():
            break
    else:
        raise DialoguesUnreadable(f"{name}.jsonl (.gz) is not there")
    number = 0
    try:
        with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    yield number, json.loads(line)
    except (ValueError, EOFError, gzip.BadGzipFile):
        raise DialoguesUnreadable(f"{name}, line {max(number, 1)}: not JSON") from None


def attributes(folder: Path) -> list[tuple[str, AttributeDefinition]]:
    """Return (service, definition) of every attribute. What a service is about follows the attribute's own description.

    A closed list becomes an enum; every other value is plain text, since the folder says no more. Raises
    DialoguesUnreadable.
    """
    found: dict[str, tuple[str, AttributeDefinition]] = {}
    for number, row in _lines(folder, "schemas"):
        try:
            choices = [str(value) for value in row.get("possible_values") or ()] if row.get("is_categorical") else []
            about = [str(row.get(part) or "").strip().rstrip(".") for part in ("description", "service_description")]
            read = definition(
                {
                    "name": row["attribute"],
                    "description": ". ".join(part for part in about if part),
                    "schema": {"enum": list(dict.fromkeys(choices))} if choices else {"type": "string"},
                }
            )
            found[read.name] = (str(row["service"]), read)
        except (KeyError, TypeError, AttributeError, DefinitionRefused):
            raise DialoguesUnreadable(f"schemas, line {number}: not of the documented form") from None
    return list(found.values())


def turns(folder: Path) -> Iterator[Labelled]:
    """Yield the labelled turns in the file's order. Raises DialoguesUnreadable."""
    for number, row in _lines(folder, "turns"):
        try:
            at = datetime.fromisoformat(row["t"])
            if at.tzinfo is None:
                raise ValueError
            turn = Labelled(
                dialogue=str(row["id"]).rpartition("#")[0],
                source=str(row["id"]).partition(":")[0],
                at=at,
                text=str(row["text"]),
                before=tuple(
                    Turn("user" if actor == "user" else "assistant", str(text))
                    for actor, text in row.get("context", ())
                ),
                services=frozenset(row["services"]),
                gold=tuple(
                    Gold(
                        str(each["attribute"]),
                        frozenset(str(form).casefold() for form in (each.get("accept") or [each["value"]]))
                        if each["op"] == "set"
                        else frozenset(),
                        str(each.get("where", "")),
                    )
                    for each in row["gold"]
                ),
            )
        except (KeyError, TypeError, ValueError, AttributeError):
            raise DialoguesUnreadable(f"turns, line {number}: not of the documented form") from None
        yield turn


class _Tally:
    def __init__(self) -> None:
        self.proposed = self.right = self.gold = self.hit = self.silent = self.broken = self.turns = 0
        self.of: Counter[str] = Counter()
        self.found: Counter[str] = Counter()

    def add(self, turn: Labelled, proposed: int, right: int, hit: set[str]) -> None:
        self.turns += 1
        self.proposed += proposed
        self.right += right
        for each in turn.gold:
            self.gold += 1
            self.of[each.where] += 1
            if each.forms and each.attribute in hit:
                self.hit += 1
                self.found[each.where] += 1
        if not turn.gold:
            self.silent += 1
            self.broken += proposed > 0

    def outcome(self) -> dict[str, Any]:
        precision, recall = _share(self.right, self.proposed), _share(self.hit, self.gold)
        return {
            "turns": self.turns,
            "precision": precision,
            "recall_text": _share(self.found["text"], self.of["text"]),
            "silent_share": _share(self.broken, self.silent),
            "recall": recall,
            "f1": round(2 * precision * recall / (precision + recall), 4) if precision and recall else None,
            "proposed": self.proposed,
            "right": self.right,
            "updates": self.gold,
            "silent_turns": self.silent,
            "recall_by_where": {where: _share(self.found[where], number) for where, number in sorted(self.of.items())},
        }


def _share(part: int, whole: int) -> float | None:
    return round(part / whole, 4) if whole else None


@dataclass
class Spending:
    """A meter without bounds: what a model's questions about a folder came to."""

    questions: Counter[str] = field(default_factory=Counter)
    tokens_in: int = 0
    tokens_out: int = 0
    cost: int = 0

    def reserve(self, tokens: int, *, masked: int) -> None:
        """Nothing is set aside."""

    def settle(self, reserved: int, use: Use) -> None:
        """Count one question."""
        self.questions[use.outcome] += 1
        self.tokens_in += use.tokens_in
        self.tokens_out += use.tokens_out
        self.cost += use.cost

    def outcome(self) -> dict[str, Any]:
        """Return what it came to: questions by outcome, tokens, and an estimate in US dollars (0: no price is known)."""
        return {
            "questions": dict(sorted(self.questions.items())),
            "tokens_in": self.tokens_in,
            "tokens_out": self.tokens_out,
            "dollars": round(self.cost / 1_000_000, 6),
        }


def evaluate(
    folder: Path, *, show: bool = False, configuration: Configuration | None = None, limit: int | None = None
) -> dict[str, Any]:
    """Run an extractor over the turns (the first `limit` of them), with the attributes of their services, and compare.

    Patterns, or the model of a configuration: to that, all of the folder's text is sent, credentials excepted.

    Each dialogue is read in its order. What the extractor proposed before counts as stored, as it would be in use, so
    that a value said again changes nothing; only `new` and `update` are compared.

    - `precision`: the share of proposals whose attribute and value (ignoring case) the turn's gold accepts.
    - `recall_text`: the share of gold values standing in the turn that were found; `recall`: of all gold, ends included.
    - `silent_share`: the share of turns without gold in which something was proposed.
    - `by_source`: the same for each source, the part of an id before its colon.
    - `confidence`: for each bucket, how many were proposed and the share that was right.
    - `model`, where one read: what it came to. Turns that it could not read count as turns without a proposal.
    """
    offered = attributes(folder)
    spending = Spending()
    extractor: Extractor = (
        PatternExtractor()
        if configuration is None
        else ModelExtractor(configuration, spending, ceiling=Sensitivity.RESTRICTED)
    )
    whole = _Tally()
    sources: dict[str, _Tally] = {}
    buckets: Counter[int] = Counter()
    good: Counter[int] = Counter()
    rejected: Counter[str] = Counter()
    times: list[float] = []
    samples: list[dict[str, Any]] = []
    stored: dict[str, Stored] = {}
    dialogue = None
    for turn in islice(turns(folder), limit):
        if turn.dialogue != dialogue:
            dialogue, stored = turn.dialogue, {}
        slices = [
            AttributeSlice(each, (stored[each.name],) if each.name in stored else ())
            for service, each in offered
            if service in turn.services
        ]
        episode = EpisodeText("user", turn.text, turn.at, "subject", before=turn.before, sensitivity=Sensitivity.PUBLIC)
        begun = perf_counter()
        try:
            proposals = extractor.extract(episode, slices)
        except ExtractionFailed:
            proposals = []
        checked = check(episode, slices, proposals)
        times.append(perf_counter() - begun)
        rejected.update(checked.reasons())
        changes = [each for each in checked.accepted if each.change != "no_change"]
        hit: set[str] = set()
        right = 0
        for proposal in changes:
            stored[proposal.attribute] = Stored(proposal.value, turn.at, Sensitivity.PUBLIC)
            sound = _right(proposal, turn.gold)
            right += sound
            bucket = min(int(proposal.confidence * 10), 9)
            buckets[bucket] += 1
            good[bucket] += sound
            if sound:
                hit.add(proposal.attribute)
            elif show and len(samples) < SAMPLES:
                samples.append(_sample(turn, "not in gold", proposal.attribute, proposal.value))
        if show:
            for gold in turn.gold:
                if gold.where == "text" and gold.attribute not in hit and len(samples) < SAMPLES:
                    samples.append(_sample(turn, "missed", gold.attribute, sorted(gold.forms)))
        for tally in (whole, sources.setdefault(turn.source, _Tally())):
            tally.add(turn, len(changes), right, hit)
    outcome = {
        "folder": folder.name,
        **whole.outcome(),
        "by_source": {source: tally.outcome() for source, tally in sorted(sources.items())},
        "confidence": [
            {"from": bucket / 10, "proposed": number, "right": _share(good[bucket], number)}
            for bucket, number in sorted(buckets.items())
        ],
        "rejected": dict(sorted(rejected.items())),
        "attributes": len(offered),
        "milliseconds": {
            "median": round(median(times) * 1e3, 3) if times else None,
            "p95": round(quantiles(times, n=20)[-1] * 1e3, 3) if len(times) > 1 else None,
        },
    }
    if configuration is not None:
        outcome["model"] = {"name": extractor.name, **spending.outcome()}
    if show:
        outcome["samples"] = samples
    return outcome


def _right(proposal: Proposal, gold: tuple[Gold, ...]) -> bool:
    value = proposal.value if isinstance(proposal.value, str) else json.dumps(proposal.value)
    return any(each.attribute == proposal.attribute and value.casefold() in each.forms for each in gold)


def _sample(turn: Labelled, what: str, attribute: str, value: Any) -> dict[str, Any]:
    return {"what": what, "attribute": attribute, "value": value, "text": turn.text}
