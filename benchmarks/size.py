"""How much is measured."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Size:
    """Rounds and calls of one measure, and how many facts the large database has."""

    #: Rounds; a figure is the median over them.
    rounds: int
    #: Calls of one job in a round.
    calls: int
    #: Requests of one round over HTTP.
    requests: int
    #: Facts of the large and of the small database.
    many: int
    few: int
    #: Facts that compaction finds overdue: three rows each, so a million rows.
    overdue: int
    #: Facts and episodes of the subject that is erased.
    known: int
    said: int


FULL = Size(
    rounds=15, calls=100, requests=1_500, many=1_000_000, few=10_000, overdue=333_340, known=100_000, said=10_000
)
QUICK = Size(rounds=3, calls=30, requests=200, many=20_000, few=2_000, overdue=20_000, known=5_000, said=500)
