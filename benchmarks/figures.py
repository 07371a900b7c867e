"""What was measured, and against what. Imports no Django."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Target:
    """What the figure, or its ratio to what it is measured against, must not pass."""

    at_most: float | None = None
    at_least: float | None = None
    of_ratio: bool = False

    def __str__(self) -> str:
        word = "ratio " if self.of_ratio else ""
        return f"{word}<= {self.at_most:g}" if self.at_most is not None else f"{word}>= {self.at_least:g}"

    def met_by(self, value: float) -> bool:
        """Whether `value` is within it."""
        return value <= self.at_most if self.at_most is not None else value >= (self.at_least or 0.0)


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured value. `against` is the rival's value in the same unit, None where there is no rival."""

    name: str
    value: float | None
    unit: str
    against: float | None = None
    target: Target | None = None

    @property
    def ratio(self) -> float | None:
        """How many times the rival's value; None without one."""
        return None if self.value is None or not self.against else self.value / self.against

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None where there is none, or nothing was measured."""
        measured = self.ratio if self.target is not None and self.target.of_ratio else self.value
        return None if self.target is None or measured is None else self.target.met_by(measured)

    def as_json(self) -> dict[str, Any]:
        """Return the entry of results.json."""
        return {
            "name": self.name,
            "value": _rounded(self.value),
            "unit": self.unit,
            "against": _rounded(self.against),
            "ratio": _rounded(self.ratio),
            "target": None if self.target is None else str(self.target),
            "met": self.met,
        }

    def __str__(self) -> str:
        shown = "not measured" if self.value is None else f"{_rounded(self.value):>9} {self.unit}"
        against = "" if self.against is None else f"  against {_rounded(self.against)}, ratio {_rounded(self.ratio)}"
        mark = {None: "    ", True: "met ", False: "MISS"}[self.met]
        return f"{mark} {self.name:<74} {shown:<20}{against}" + (f"  ({self.target})" if self.target else "")


def ratio_at_most(limit: float) -> Target:
    """A target for the ratio."""
    return Target(at_most=limit, of_ratio=True)


def _rounded(value: float | None) -> float | None:
    if value is None:
        return None
    return round(value) if abs(value) >= 1000 else float(f"{value:.3g}")


def interleaved(
    jobs: Mapping[str, Callable[[int], Sequence[float]]], *, rounds: int, warm_up: int = 1
) -> dict[str, float]:
    """Run every job once a round, in turn, and return of each the median over rounds of its median within a round.

    A job is given the number of the round and returns seconds, or anything else that is counted. Turns change
    direction every round, so that whatever slows the machine for a while slows all of them.
    """
    found: dict[str, list[float]] = {name: [] for name in jobs}
    for number in range(-warm_up, rounds):
        for name in list(jobs)[:: 1 if number % 2 else -1]:
            measured = jobs[name](number + warm_up)
            if number >= 0:
                found[name].append(statistics.median(measured))
    return {name: statistics.median(each) for name, each in found.items()}


def write(figures: Sequence[Figure], file: Path, *, keep: bool = False) -> None:
    """Write results.json. With `keep`, figures of other names that stand in it stay, and those of the same name are replaced."""
    found = [figure.as_json() for figure in figures]
    if keep and file.exists():
        fresh = {each["name"]: each for each in found}
        kept = [fresh.pop(each["name"], each) for each in json.loads(file.read_text(encoding="utf-8"))]
        found = [*kept, *fresh.values()]
    file.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
