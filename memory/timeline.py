"""Where the bars of a timeline stand: pure geometry, drawn by a template as SVG without script.

Units are those of the drawing's own view box. Time runs linearly from the earliest start to a little past now or the
last known end, whichever is later; what has no end runs to the right edge.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby

WIDTH = 1160.0
LEFT = 190.0
TOP = 34.0
ROW = 34.0
BAR = 26.0
_TICKS = 6
#: A bar narrower than this carries no label.
_READABLE = 118.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One stretch to draw: in which lane, from when until just before when (None: no end known), and what it says.

    `recorded_at` is when we came to know of it, `kept_until` when it may no longer be kept; `held` says that it may not end.
    """

    lane: str
    label: str
    style: str
    valid_from: datetime
    valid_to: datetime | None
    link: str
    recorded_at: datetime | None = None
    kept_until: datetime | None = None
    held: bool = False


@dataclass(frozen=True, slots=True)
class Tick:
    """Something that happened to a lane at an instant: `confirmed`, `redacted`."""

    lane: str
    kind: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Mark:
    """Where a recording stands; `late` where a saying about a later time had been recorded before it."""

    x: float
    y: float
    late: bool
    at: datetime
    kind: str = "recorded"


@dataclass(frozen=True, slots=True)
class Bar:
    """A span in its place. `text` is empty where the bar is too narrow for its label.

    `kept` is where within the bar it may no longer be kept: what comes after is drawn as what will be gone.
    """

    span: Span
    x: float
    y: float
    width: float
    text: str
    kept: float | None = None

    @property
    def gone(self) -> float:
        """Return how much of the bar comes after that."""
        return 0.0 if self.kept is None else round(self.end - self.kept, 1)

    @property
    def end(self) -> float:
        """Return where the bar ends."""
        return self.x + self.width


@dataclass(frozen=True, slots=True)
class Lane:
    """A lane with its name and bars; rows within it keep bars apart that hold at the same time."""

    name: str
    y: float
    bars: tuple[Bar, ...]
    marks: tuple[Mark, ...] = ()


@dataclass(frozen=True, slots=True)
class Drawing:
    """Everything to draw. `now` is where the line for now stands, `known` that of the instant of belief, if asked for."""

    lanes: tuple[Lane, ...]
    ticks: tuple[tuple[float, str], ...]
    now: float
    height: float
    starts: datetime
    ends: datetime
    known: float | None = None


def draw(
    spans: Sequence[Span], *, now: datetime, known_at: datetime | None = None, happened: Sequence[Tick] = ()
) -> Drawing | None:
    """Return the drawing of `spans`, which are ordered by lane; None where there is nothing to draw.

    `happened` are ticks under the lanes that there are; one before the drawing begins stands at its edge.
    """
    if not spans:
        return None
    starts = min(now, *(span.valid_from for span in spans))
    known = [
        now,
        *([] if known_at is None else [known_at]),
        *(span.valid_from for span in spans),
        *(span.valid_to for span in spans if span.valid_to is not None),
    ]
    length = max(max(known) - starts, timedelta(seconds=1))
    # An end that is near is shown where it is; one far off would press everything else together.
    near = [
        span.kept_until for span in spans if span.kept_until is not None and span.kept_until - max(known) < length * 1.5
    ]
    known += near
    length = max(max(known) - starts, length)
    ends = max(known) + _share(length, 0.06, most=datetime.max.replace(tzinfo=now.tzinfo) - max(known))
    scale = (WIDTH - LEFT) / (ends - starts).total_seconds()

    def place(instant: datetime) -> float:
        return round(LEFT + (instant - starts).total_seconds() * scale, 1)

    lanes: list[Lane] = []
    y = TOP
    for name, group in groupby(spans, key=lambda span: span.lane):
        free: list[float] = []
        bars: list[Bar] = []
        for span in sorted(group, key=lambda each: each.valid_from):
            x = place(span.valid_from)
            end = WIDTH if span.valid_to is None else place(span.valid_to)
            width = max(round(end - x, 1), 3.0)
            row = next((row for row, until in enumerate(free) if until <= x), len(free))
            free[row : row + 1] = [x + width]
            text = span.label if width >= _READABLE else ""
            kept = None if span.kept_until is None else max(place(span.kept_until), x)
            bars.append(
                Bar(span, min(x, WIDTH - 3.0), y + row * ROW, width, text, kept if kept and kept < x + width else None)
            )
        below = y + len(free) * ROW - ROW + BAR + 7.0
        marks = [*_marks([bar.span for bar in bars], place, below)]
        marks += [
            Mark(min(max(place(each.at), LEFT), WIDTH - 5.0), below, False, each.at, each.kind)
            for each in happened
            if each.lane == name
        ]
        lanes.append(Lane(name, y, tuple(bars), tuple(marks)))
        y += len(free) * ROW + 16.0
    shape = "%Y-%m-%d %H:%M" if ends - starts < timedelta(days=4) else "%Y-%m-%d"
    ticks = tuple(
        (place(instant), instant.strftime(shape))
        for instant in (starts + (ends - starts) * step / _TICKS for step in range(_TICKS))
    )
    then = None if known_at is None else place(max(known_at, starts))
    return Drawing(tuple(lanes), ticks, place(now), y + 14.0, starts, ends, then)


def _marks(spans: Sequence[Span], place: Callable[[datetime], float], y: float) -> Iterator[Mark]:
    """Yield where the recordings of a lane's spans stand, each once; those before the drawing begins stand at its edge."""
    seen: set[datetime] = set()
    for number, span in enumerate(spans):
        at = span.recorded_at
        if at is None or at in seen:
            continue
        seen.add(at)
        # A saying that resumes after a portion of another was recorded before it, and makes it no late arrival.
        before = {other.recorded_at for other in spans[:number]}
        after = {other.recorded_at for other in spans[number + 1 :]} - before
        late = any(other is not None and other < at for other in after)
        yield Mark(min(max(place(at), LEFT), WIDTH - 5.0), y, late, at)


def _share(length: timedelta, share: float, *, most: timedelta) -> timedelta:
    return min(length * share, most)
