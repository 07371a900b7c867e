"""Small charts as geometry: bars a day with their axes, drawn by a template as SVG without script."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from math import ceil, floor, log10

from django.utils.formats import date_format

WIDTH, HEIGHT = 560.0, 150.0
LEFT, RIGHT, TOP, BOTTOM = 46.0, 8.0, 10.0, 24.0
#: Days between two dates on the axis.
_EVERY = 7


@dataclass(frozen=True, slots=True)
class Bar:
    """One number of one day, in its place."""

    x: float
    y: float
    width: float
    height: float
    number: int
    day: date
    kind: str


@dataclass(frozen=True, slots=True)
class Mark:
    """A place on an axis, with its words."""

    at: float
    words: str


@dataclass(frozen=True, slots=True)
class Chart:
    """Bars of one or two kinds, side by side a day, over a scale that begins at nothing."""

    width: float
    height: float
    left: float
    bottom: float
    bars: list[Bar]
    scale: list[Mark]
    days: list[Mark]


def bars(days: Sequence[date], series: Sequence[tuple[str, Sequence[int]]]) -> Chart:
    """Return the bars of `series` (kind, a number a day) over `days`.

    The scale ends at a round number that no bar exceeds; a number that is not nothing has a bar that can be seen.
    """
    top = _round_up(max((number for _, numbers in series for number in numbers), default=0))
    inner_width, inner_height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    step = inner_width / max(1, len(days))
    wide = step * 0.72 / max(1, len(series))
    found = []
    for place, (kind, numbers) in enumerate(series):
        for at, (day, number) in enumerate(zip(days, numbers, strict=True)):
            if not number:
                continue
            height = max(1.5, inner_height * number / top)
            x = LEFT + at * step + step * 0.14 + place * wide
            found.append(
                Bar(
                    round(x, 1),
                    round(TOP + inner_height - height, 1),
                    round(wide, 1),
                    round(height, 1),
                    number,
                    day,
                    kind,
                )
            )
    return Chart(
        WIDTH,
        HEIGHT,
        LEFT,
        HEIGHT - BOTTOM,
        found,
        [Mark(round(TOP + inner_height * (1 - share), 1), _short(top * share)) for share in (0, 0.5, 1)],
        [
            Mark(round(LEFT + at * step + step / 2, 1), date_format(day, "d M"))
            for at, day in enumerate(days)
            if (len(days) - 1 - at) % _EVERY == 0
        ],
    )


def _round_up(number: int) -> int:
    """Return the next of 2, 4, 10, 20, 40, 100 and so on: halves of it are whole."""
    if number <= 2:
        return 2
    size: int = 10 ** floor(log10(number))
    return next(top for top in (2 * size, 4 * size, 10 * size) if number <= top)


def _short(number: float) -> str:
    if number >= 1_000_000:
        return f"{number / 1_000_000:g}M"
    return f"{number / 1_000:g}k" if number >= 1_000 else str(ceil(number))
