"""What holds when, as a function of the sayings that stand.

At an instant t, of the standing sayings with valid_from <= t and stated_to null or later than t, the one
with the greatest valid_from decides; at equal valid_from the greater rank, then the greater act_no.

Everything here is pure. Periods are half-open, a null upper bound has no end, datetimes are aware (UTC).
Values are compared with ==, and only that: what must equal no other value (a fact that has ended) is
passed with a value of its own. Sayings that were retracted are simply not passed.
"""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from heapq import heappop, heappush
from operator import attrgetter


@dataclass(frozen=True, slots=True)
class Saying:
    """One standing piece of evidence of one chain. A saying with stated_to <= valid_from never decides."""

    id: Hashable
    value: Hashable | None = field(repr=False)  # None: an end, nothing is known to hold from here
    valid_from: datetime
    stated_to: datetime | None
    rank: int
    act_no: int


@dataclass(frozen=True, slots=True)
class Stretch:
    """A period over which one value holds, or over which it is said that nothing does (value None)."""

    saying: Hashable  # id of the earliest evidence of the value that decides where the stretch begins
    value: Hashable | None = field(repr=False)
    valid_from: datetime
    valid_to: datetime | None


@dataclass(frozen=True, slots=True)
class Held:
    """A stored belief that is believed now."""

    id: Hashable
    stretch: Stretch


@dataclass(frozen=True, slots=True)
class Plan:
    """The beliefs to close and the stretches to open, both at the same instant, the closing first."""

    close: tuple[Hashable, ...]
    open: tuple[Stretch, ...]


_strength = attrgetter("valid_from", "rank", "act_no")


def stretches(sayings: Iterable[Saying]) -> list[Stretch]:
    """Return what holds over all of time, in order of valid_from.

    Stretches do not overlap, and no two that touch have one value: a value that is said again while it
    holds makes no new stretch. An instant that no saying covers lies in no stretch; one that an end
    decides lies in a stretch with value None. A stretch is opened by the saying that decides at its
    start or, of the sayings that stand there with the same value and the same valid_from, by the one
    with the least act_no, so that a confirmation does not replace what it confirms.

    The order of the sayings does not matter. O(n log n).
    Raises ValueError if two sayings have one act_no, since then nothing could decide between them.
    """
    ordered: list[Saying] = sorted(sayings, key=_strength)
    if len({saying.act_no for saying in ordered}) < len(ordered):
        raise ValueError("two sayings have the same act_no")

    found: list[tuple[Hashable, Hashable | None, datetime, datetime | None]] = []
    # In ascending strength: what begins later is stronger than all that began before it, so the sayings
    # are a stack and the top decides. What ran out further down is dropped when it comes to the top.
    # What begins alone opens its own stretch, and is named in it.
    stack: list[tuple[datetime, datetime | None, Hashable | None, Hashable | None]] = []
    # Of the others by start and value, the least act_no first. The sweep only moves forward: what has run out is popped.
    openers: dict[tuple[datetime, Hashable | None], list[tuple[int, datetime | None, Hashable]]] = {}

    def sweep(start: datetime, until: datetime | None) -> None:
        while stack:
            began, ends, value, alone = stack[-1]
            if ends is not None and ends <= start:
                stack.pop()
                continue
            stop = until if ends is None or (until is not None and until < ends) else ends
            if found and found[-1][3] == start and found[-1][1] == value:
                opener, value, start, _ = found.pop()
            elif alone is not None:
                opener = alone
            else:
                same = openers[began, value]
                while (gone := same[0][1]) is not None and gone <= start:
                    heappop(same)
                opener = same[0][2]
            found.append((opener, value, start, stop))
            if stop is None or stop == until:
                return
            start = stop

    now: datetime | None = None
    for place, saying in enumerate(ordered, start=1):
        began, ends = saying.valid_from, saying.stated_to
        alone = began != now and (place == len(ordered) or ordered[place].valid_from != began)
        if now is not None and now < began:
            sweep(now, began)
        now = began
        if ends is None or began < ends:
            stack.append((began, ends, saying.value, saying.id if alone else None))
            if not alone:
                heappush(openers.setdefault((began, saying.value), []), (saying.act_no, ends, saying.id))
    if now is not None:
        sweep(now, None)
    return [Stretch(*each) for each in found]


def plan(held: Sequence[Held], wanted: Sequence[Stretch]) -> Plan:
    """Return what turns the beliefs that are held now into exactly the wanted stretches.

    A belief is kept only if a wanted stretch equals it in value, bounds and opening saying: one that is
    cut, extended, merged or opened by other evidence is closed, and what takes its place is opened. Of
    two equal beliefs one is kept. The order of both arguments is kept. No two wanted stretches may overlap.
    """
    missing = {stretch.valid_from: stretch for stretch in wanted}
    close = []
    for belief in held:
        if missing.get(belief.stretch.valid_from) == belief.stretch:
            del missing[belief.stretch.valid_from]
        else:
            close.append(belief.id)
    return Plan(tuple(close), tuple(missing.values()))


def appended(last: Held | None, saying: Saying) -> Plan | None:
    """Return the plan for one more saying from the last belief alone, or None: then sweep.

    The caller guarantees what cannot be seen from here:

    - the beliefs held are `stretches` of the chain's standing sayings, and `last` is the one of them
      with the greatest valid_from (an end counts; None only if there is no belief at all);
    - every standing saying has a valid_from before the new one's, ends and lapsed portions included. A
      restatement that was merged into `last` leaves no trace there, yet must reappear behind a cut.

    Then a plan is returned exactly if saying.stated_to is null and `last` is None or begins before
    saying.valid_from, and it equals `plan(held, stretches([*standing, saying]))`. Otherwise what the
    saying changes reaches back behind `last` (a portion that ends at or after saying.valid_from), or it
    does not run to the end of time.
    """
    if saying.stated_to is not None:
        return None
    new = Stretch(saying.id, saying.value, saying.valid_from, None)
    if last is None:
        return Plan((), (new,))
    old = last.stretch
    if saying.valid_from <= old.valid_from:
        return None
    if old.valid_to is not None and old.valid_to < saying.valid_from:
        return Plan((), (new,))
    if old.value == saying.value:
        if old.valid_to is None:
            return Plan((), ())
        return Plan((last.id,), (Stretch(old.saying, old.value, old.valid_from, None),))
    if old.valid_to == saying.valid_from:
        return Plan((), (new,))
    return Plan((last.id,), (Stretch(old.saying, old.value, old.valid_from, saying.valid_from), new))
