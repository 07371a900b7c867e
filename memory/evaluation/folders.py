"""Folders of recorded histories: what was said and when, what may be asked of it, and what the answers must be.

Two kinds are read, told apart by their files: `dialogues.jsonl` (with `queries` and `late` beside it, both optional) and
`subjects.jsonl` (with `queries`). Every file may be gzipped. Pure: no Django, no clock. Content stays out of errors.
"""

import gzip
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import IO, Any, Literal

#: Asked about where a table's present value may begin only later: no stretch without an end is missed.
END_OF_TIME = datetime(9999, 12, 31, tzinfo=UTC)


class FolderUnreadable(Exception):
    """The folder is of neither kind, or a line of a file cannot be read; says which file and line, never what it says."""


@dataclass(frozen=True, slots=True)
class Act:
    """One thing that was said: a value, the end of one, or that `target` was a mistake."""

    id: str
    op: Literal["set", "end", "withdraw"]
    attribute: str
    value: Any = field(repr=False)
    valid_from: datetime
    recorded_at: datetime
    source: str
    turn: int | None = None
    forms: tuple[str, ...] = field(default=(), repr=False)
    target: str | None = None


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn of a dialogue."""

    at: datetime
    role: str
    text: str = field(repr=False)


#: A value and when it holds, half-open; None: without an end.
Interval = tuple[Any, datetime, datetime | None]


@dataclass(frozen=True, slots=True)
class Story:
    """All that was said of one subject, in the order of its recording; `intervals` is what must hold at the end."""

    place: str
    subject: str = field(repr=False)
    acts: Sequence[Act]
    turns: Sequence[Turn] = ()
    intervals: dict[str, list[Interval]] | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked, and the one right answer; `expect` None: no value. `stale` values are wrong in a known way."""

    place: str
    subject: str = field(repr=False)
    attribute: str
    valid_at: datetime | None
    known_at: datetime | None
    expect: Any = field(repr=False)
    stale: Sequence[Any] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class Late:
    """A story's acts in another order of arrival; an act that comes twice is the same request again."""

    place: str
    subject: str = field(repr=False)
    mode: str
    deliveries: Sequence[tuple[str, datetime]]
    questions: Sequence[Question]


@dataclass(frozen=True, slots=True)
class Selection:
    """Which subjects take part: a percentage by their digest (the same ones every time), at most `limit` of them."""

    percent: float = 100.0
    limit: int | None = None

    def has(self, subject: str) -> bool:
        """Whether the subject is in the percentage."""
        return self.percent >= 100 or number_of(subject) % 1_000_000 < self.percent * 10_000


def number_of(subject: str) -> int:
    """Return a number that is the subject's everywhere and always."""
    return int.from_bytes(sha256(subject.encode("utf-8", "surrogatepass")).digest()[:8])


class Folder:
    """One folder in either format. Raises `FolderUnreadable` for any other, and for lines that do not fit."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.kind: Literal["dialogues", "facts"]
        if self._file("dialogues") is not None:
            self.kind = "dialogues"
        elif self._file("subjects") is not None:
            self.kind = "facts"
        else:
            raise FolderUnreadable("neither dialogues.jsonl nor subjects.jsonl (.gz) is there")

    def _file(self, name: str) -> Path | None:
        for suffix in (".jsonl.gz", ".jsonl"):
            if (found := self.path / f"{name}{suffix}").is_file():
                return found
        return None

    def _rows(self, name: str) -> Iterator[tuple[str, dict[str, Any]]]:
        file = self._file(name)
        if file is None:
            return
        number = 0
        try:
            with _open(file) as lines:
                for number, line in enumerate(lines, 1):
                    if line.strip():
                        yield f"{name}:{number}", json.loads(line)
        except (ValueError, EOFError, gzip.BadGzipFile):
            raise FolderUnreadable(f"{name}, line {number + 1 if number == 0 else number}: not JSON") from None

    def attributes(self) -> list[str]:
        """Return the names of all attributes that the folder describes or uses, sorted."""
        names = {row["attribute"] for _, row in self._rows("schemas") if isinstance(row.get("attribute"), str)}
        for story in self.stories():
            names.update(act.attribute for act in story.acts)
        names.update(row["attribute"] for _, row in self._rows("queries") if isinstance(row.get("attribute"), str))
        return sorted(names)

    def stories(self, selection: Selection | None = None) -> Iterator[Story]:
        """Yield the chosen subjects' histories in the order of the file."""
        selection = selection or Selection()
        read = _dialogue if self.kind == "dialogues" else _assertions
        taken = 0
        for place, row in self._rows("dialogues" if self.kind == "dialogues" else "subjects"):
            if selection.limit is not None and taken >= selection.limit:
                return
            with _Fitting(place):
                if not selection.has(row["subject"]):
                    continue
                story = read(place, row)
            taken += 1
            yield story

    def questions(self) -> Iterator[Question]:
        """Yield what is asked after the stories were told in their own order."""
        for place, row in self._rows("queries"):
            with _Fitting(place):
                question = self._question(place, row["subject"], row)
            yield question

    def late(self) -> Iterator[Late]:
        """Yield the same stories in other orders of arrival, each with what is asked after it."""
        for place, row in self._rows("late"):
            with _Fitting(place):
                late = Late(
                    place=place,
                    subject=row["subject"],
                    mode=str(row["mode"]),
                    deliveries=[(str(act), _instant(at)) for act, at in row["deliveries"]],
                    questions=[self._question(place, row["subject"], check) for check in row.get("checks", ())],
                )
            yield late

    def _question(self, place: str, subject: str, row: dict[str, Any]) -> Question:
        # A dialogue lies in the past, so that without an instant the present is asked about. In a table of facts it is the
        # stretch without an end, which may begin only later.
        present = None if self.kind == "dialogues" else END_OF_TIME
        known_at = row.get("known_at")
        return Question(
            place=place,
            subject=subject,
            attribute=row["attribute"],
            valid_at=present if row["t"] is None else _instant(row["t"]),
            known_at=None if known_at is None else _instant(known_at),
            expect=row["expect"],
            stale=tuple(row.get("stale") or ()),
        )


class _Fitting:
    """Turns what a row lacks into `FolderUnreadable` with its place."""

    def __init__(self, place: str) -> None:
        self._place = place

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, *_error: object) -> None:
        if kind is not None and issubclass(kind, KeyError | TypeError | ValueError | AttributeError | IndexError):
            name, line = self._place.split(":")
            raise FolderUnreadable(f"{name}, line {line}: not of the documented form") from None


def _open(file: Path) -> IO[str]:
    return gzip.open(file, "rt", encoding="utf-8") if file.suffix == ".gz" else file.open(encoding="utf-8")


def _instant(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError("no offset")
    return moment.astimezone(UTC)


def _dialogue(place: str, row: dict[str, Any]) -> Story:
    acts = []
    for event in row["events"]:
        at = _instant(event["t"])
        turn = event.get("ep")
        acts.append(
            Act(
                id=str(event["id"]),
                op={"set": "set", "retract": "end"}[event["op"]],  # type: ignore[arg-type]
                attribute=event["attribute"],
                value=event["value"],
                valid_from=at,
                recorded_at=at,
                source=f"turn-{turn}" if turn is not None else "turn",
                turn=turn,
                forms=tuple(event.get("surface") or ()),
            )
        )
    return Story(
        place=place,
        subject=row["subject"],
        acts=acts,
        turns=[Turn(_instant(at), role, text) for at, role, text in row.get("episodes", ())],
        intervals={
            attribute: [
                (value, _instant(start), None if end is None else _instant(end)) for value, start, end in intervals
            ]
            for attribute, intervals in row["intervals"].items()
        }
        if row.get("intervals") is not None
        else None,
    )


def _assertions(place: str, row: dict[str, Any]) -> Story:
    return Story(
        place=place,
        subject=row["subject"],
        acts=[
            Act(
                id=str(each["id"]),
                op={"set": "set", "withdraw": "withdraw", "retract": "end"}[each["op"]],  # type: ignore[arg-type]
                attribute=each["attribute"],
                value=each.get("value"),
                valid_from=_instant(each["valid_from"]),
                recorded_at=_instant(each["recorded_at"]),
                source=str(each.get("source") or each["id"]),
                target=each.get("target"),
            )
            for each in row["assertions"]
        ],
    )
