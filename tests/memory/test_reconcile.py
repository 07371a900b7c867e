"""The table of reconciliation, row by row, and the sweep against a model that has no sweep.

Two rows are the write door's own and are tested there: which valid_from a saying gets when none is given,
and whether a tie is accepted, asked about or refused. Here a tie already has the rank that was fixed.
"""

import random
import time
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise, zip_longest

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from memory.reconcile import Held, Plan, Saying, Stretch, appended, plan, stretches

ORIGIN = datetime(2026, 6, 1, tzinfo=UTC)
UNCONFIRMED, CONFIRMED = 50, 1050


def day(number: float) -> datetime:
    return ORIGIN + timedelta(days=number)


def said(act_no: int, value: Hashable, start: float, until: float | None = None, rank: int = 0) -> Saying:
    """A saying whose id shows its act: 3 is "e3"."""
    return Saying(f"e{act_no}", value, day(start), None if until is None else day(until), rank, act_no)


def ended(act_no: int, start: float, until: float | None = None) -> Saying:
    return said(act_no, None, start, until)


Row = tuple[str, Hashable, float, float | None]


def rows(found: Sequence[Stretch]) -> list[Row]:
    """Stretches as (saying, value, first day, last day), for short expectations."""

    def number(instant: datetime) -> float:
        return (instant - ORIGIN) / timedelta(days=1)

    return [
        (str(s.saying), s.value, number(s.valid_from), None if s.valid_to is None else number(s.valid_to))
        for s in found
    ]


def believed(found: Sequence[Stretch]) -> list[Held]:
    return [Held(f"b{place}", stretch) for place, stretch in enumerate(found)]


# The table


def test_nothing_said_is_nothing_held() -> None:
    assert stretches([]) == []


def test_with_no_evidence_yet_a_value_holds_from_its_start_and_stays_open() -> None:
    assert rows(stretches([said(1, "a", 5)])) == [("e1", "a", 5, None)]


def test_a_later_other_value_ends_the_former_where_it_starts() -> None:
    assert rows(stretches([said(1, "a", 1), said(2, "b", 3)])) == [("e1", "a", 1, 3), ("e2", "b", 3, None)]


def test_the_value_that_already_holds_changes_nothing() -> None:
    first, again = said(1, "a", 1), said(2, "a", 4)
    assert rows(stretches([first, again])) == [("e1", "a", 1, None)]
    assert plan(believed(stretches([first])), stretches([first, again])) == Plan((), ())


def test_a_late_arrival_before_everything_ends_where_the_first_begins_and_leaves_the_current_one() -> None:
    first, late = said(1, "a", 5), said(2, "b", 1)
    wanted = stretches([first, late])
    assert rows(wanted) == [("e2", "b", 1, 5), ("e1", "a", 5, None)]
    assert plan(believed(stretches([first])), wanted) == Plan((), (wanted[0],))


def test_a_late_arrival_of_the_same_value_before_everything_joins_it() -> None:
    assert rows(stretches([said(1, "a", 5), said(2, "a", 1)])) == [("e2", "a", 1, None)]


def test_a_late_arrival_inside_a_past_stretch_cuts_it() -> None:
    acts = [said(1, "a", 1), said(2, "c", 9), said(3, "b", 4)]
    assert rows(stretches(acts)) == [("e1", "a", 1, 4), ("e3", "b", 4, 9), ("e2", "c", 9, None)]


def test_what_was_said_again_later_stands_again_behind_a_cut() -> None:
    acts = [said(1, "a", 1), said(2, "a", 6)]
    before = stretches(acts)
    after = stretches([*acts, said(3, "b", 4)])
    assert rows(after) == [("e1", "a", 1, 4), ("e3", "b", 4, 6), ("e2", "a", 6, None)]
    assert plan(believed(before), after) == Plan(("b0",), tuple(after))


def test_a_stated_end_holds_for_its_portion_and_then_what_stands_without_it_returns() -> None:
    acts = [said(1, "a", 1), said(2, "b", 3, 7)]
    assert rows(stretches(acts)) == [("e1", "a", 1, 3), ("e2", "b", 3, 7), ("e1", "a", 7, None)]


def test_behind_a_stated_end_with_nothing_under_it_there_is_no_stretch() -> None:
    acts = [said(1, "a", 1, 3), said(2, "b", 5)]
    assert rows(stretches(acts)) == [("e1", "a", 1, 3), ("e2", "b", 5, None)]


def test_portions_may_nest_and_overlap() -> None:
    acts = [said(1, "a", 0), said(2, "b", 1, 9), said(3, "c", 2, 4), said(4, "d", 3, 6)]
    assert rows(stretches(acts)) == [
        ("e1", "a", 0, 1),
        ("e2", "b", 1, 2),
        ("e3", "c", 2, 3),
        ("e4", "d", 3, 6),
        ("e2", "b", 6, 9),
        ("e1", "a", 9, None),
    ]


def test_a_portion_that_touches_the_next_saying_of_its_value_is_one_stretch_with_it() -> None:
    assert rows(stretches([said(1, "a", 1, 3), said(2, "a", 3)])) == [("e1", "a", 1, None)]


def test_a_portion_of_the_value_that_holds_anyway_makes_no_stretch_of_its_own() -> None:
    assert rows(stretches([said(1, "a", 1), said(2, "a", 3, 5)])) == [("e1", "a", 1, None)]


def test_a_portion_without_length_holds_nowhere() -> None:
    assert rows(stretches([said(1, "a", 1), said(2, "b", 3, 3), said(3, "c", 4, 2)])) == [("e1", "a", 1, None)]
    assert stretches([said(1, "b", 3, 3)]) == []


def test_an_end_is_a_stretch_in_which_nothing_is_known_to_hold() -> None:
    assert rows(stretches([said(1, "a", 1), ended(2, 5)])) == [("e1", "a", 1, 5), ("e2", None, 5, None)]


def test_an_end_said_twice_is_one_end() -> None:
    assert rows(stretches([said(1, "a", 1), ended(2, 5), ended(3, 8)])) == [
        ("e1", "a", 1, 5),
        ("e2", None, 5, None),
    ]


def test_after_an_end_a_value_may_begin_again() -> None:
    assert rows(stretches([said(1, "a", 1), ended(2, 5), said(3, "a", 8)])) == [
        ("e1", "a", 1, 5),
        ("e2", None, 5, 8),
        ("e3", "a", 8, None),
    ]


def test_an_end_for_a_portion_suspends_a_value() -> None:
    assert rows(stretches([said(1, "a", 1), ended(2, 5, 7)])) == [
        ("e1", "a", 1, 5),
        ("e2", None, 5, 7),
        ("e1", "a", 7, None),
    ]


def test_an_end_of_one_of_several_values_leaves_the_others() -> None:
    red, blue = said(1, "red", 1), said(2, "blue", 2)
    end_of_red = ended(3, 5)
    assert rows(stretches([red, end_of_red])) == [("e1", "red", 1, 5), ("e3", None, 5, None)]
    assert rows(stretches([blue])) == [("e2", "blue", 2, None)]


def test_an_end_without_value_ends_every_chain_even_one_that_is_said_later() -> None:
    end = ended(3, 5)
    red, late_green = said(1, "red", 1), said(4, "green", 2)
    assert rows(stretches([red, end]))[0] == ("e1", "red", 1, 5)
    assert rows(stretches([end, late_green])) == [("e4", "green", 2, 5), ("e3", None, 5, None)]


def test_at_equal_start_the_confirmed_value_beats_the_unconfirmed_whichever_came_first() -> None:
    early = [said(1, "a", 1, rank=CONFIRMED), said(2, "b", 1, rank=UNCONFIRMED)]
    late = [said(1, "b", 1, rank=UNCONFIRMED), said(2, "a", 1, rank=CONFIRMED)]
    assert rows(stretches(early)) == [("e1", "a", 1, None)]
    assert rows(stretches(late)) == [("e2", "a", 1, None)]


def test_at_equal_start_and_rank_the_latest_act_decides() -> None:
    assert rows(stretches([said(2, "b", 1), said(1, "a", 1)])) == [("e2", "b", 1, None)]


def test_a_greater_rank_never_beats_a_later_start() -> None:
    acts = [said(1, "a", 1, rank=CONFIRMED), said(2, "b", 2, rank=UNCONFIRMED)]
    assert rows(stretches(acts)) == [("e1", "a", 1, 2), ("e2", "b", 2, None)]


def test_the_loser_of_a_tie_decides_again_when_the_winner_is_retracted() -> None:
    loser, winner = said(1, "a", 1), said(2, "b", 1, rank=CONFIRMED)
    before = stretches([loser, winner])
    after = stretches([loser])
    assert rows(before) == [("e2", "b", 1, None)]
    assert plan(believed(before), after) == Plan(("b0",), tuple(after))
    assert rows(after) == [("e1", "a", 1, None)]


def test_the_loser_of_a_tie_decides_again_when_the_winners_portion_is_over() -> None:
    acts = [said(1, "a", 1), said(2, "b", 1, 4, rank=CONFIRMED)]
    assert rows(stretches(acts)) == [("e2", "b", 1, 4), ("e1", "a", 4, None)]


def test_a_confirmation_does_not_replace_the_belief_that_it_confirms() -> None:
    acts = [said(1, "a", 1, rank=UNCONFIRMED)]
    confirmed = [*acts, said(2, "a", 1, rank=CONFIRMED)]
    assert rows(stretches(confirmed)) == [("e1", "a", 1, None)]
    assert plan(believed(stretches(acts)), stretches(confirmed)) == Plan((), ())


def test_a_confirmation_lets_a_value_win_a_tie_and_its_earliest_saying_opens_it() -> None:
    acts = [said(1, "a", 1, rank=40), said(2, "b", 1, rank=60), said(3, "a", 1, rank=CONFIRMED)]
    assert rows(stretches(acts)) == [("e1", "a", 1, None)]


@pytest.mark.parametrize("over", [5, 6])
def test_a_saying_whose_portion_is_over_opens_no_later_stretch(over: int) -> None:
    acts = [said(1, "a", 1, over), said(2, "a", 1), said(3, "b", 3, 6)]
    assert rows(stretches(acts)) == [("e1", "a", 1, 3), ("e3", "b", 3, 6), ("e2", "a", 6, None)]


def test_a_correction_takes_the_place_of_what_was_wrong() -> None:
    kept, wrong, later = said(1, "a", 1), said(2, "b", 3), said(3, "c", 6)
    corrected = replace(wrong, id="e4", value="d", act_no=4)
    before = stretches([kept, wrong, later])
    after = stretches([kept, corrected, later])
    assert rows(after) == [("e1", "a", 1, 3), ("e4", "d", 3, 6), ("e3", "c", 6, None)]
    assert plan(believed(before), after) == Plan(("b1",), (after[1],))


def test_a_retraction_lets_what_stands_without_it_hold_again() -> None:
    first, again, middle = said(1, "a", 1), said(2, "a", 6), said(3, "b", 4)
    before = stretches([first, again, middle])
    after = stretches([first, again])
    assert rows(after) == [("e1", "a", 1, None)]
    assert plan(believed(before), after) == Plan(("b0", "b1", "b2"), tuple(after))


def test_retracting_all_evidence_leaves_nothing() -> None:
    assert plan(believed(stretches([said(1, "a", 1)])), []) == Plan(("b0",), ())


def test_retracting_the_opening_evidence_opens_the_stretch_anew_from_the_next() -> None:
    first, again = said(1, "a", 1), said(2, "a", 6)
    after = stretches([again])
    assert rows(after) == [("e2", "a", 6, None)]
    assert plan(believed(stretches([first, again])), after) == Plan(("b0",), tuple(after))


def test_a_fact_that_ended_stays_a_boundary_and_joins_no_value() -> None:
    gone = object()
    acts = [said(1, "a", 1), said(2, gone, 3), said(3, "a", 5)]
    assert rows(stretches(acts)) == [("e1", "a", 1, 3), ("e2", gone, 3, 5), ("e3", "a", 5, None)]


def test_two_facts_that_ended_do_not_join_each_other() -> None:
    assert len(stretches([said(1, object(), 1), said(2, object(), 3)])) == 2


def test_the_trace_of_a_deadline_that_moved_twice_and_was_known_late() -> None:
    e1 = Saying("e1", "2026-07-15", datetime(2026, 6, 1, 9, tzinfo=UTC), None, 0, 1)
    e2 = Saying("e2", "2026-06-30", datetime(2026, 6, 3, 10, tzinfo=UTC), None, 0, 2)
    e0 = Saying("e0", "2026-08-01", datetime(2026, 5, 30, 8, tzinfo=UTC), None, 0, 3)
    assert [(s.saying, s.valid_from, s.valid_to) for s in stretches([e1, e2, e0])] == [
        ("e0", e0.valid_from, e1.valid_from),
        ("e1", e1.valid_from, e2.valid_from),
        ("e2", e2.valid_from, None),
    ]


# Edges


def test_two_sayings_with_one_act_number_are_refused_without_their_content() -> None:
    with pytest.raises(ValueError, match="act_no") as refused:
        stretches([said(1, "hidden-a", 1), said(1, "hidden-b", 2)])
    assert "hidden" not in str(refused.value)


def test_one_instant_in_two_time_zones_is_one_instant() -> None:
    east = timezone(timedelta(hours=3))
    moved = replace(said(2, "b", 1, rank=1), valid_from=day(1).astimezone(east))
    assert rows(stretches([said(1, "a", 1), moved])) == [("e2", "b", 1, None)]


def test_no_repr_shows_a_value() -> None:
    found = stretches([said(1, "hidden", 1)])
    assert "hidden" not in repr((said(1, "hidden", 1), found, believed(found), Plan((), tuple(found))))


def test_of_two_equal_beliefs_one_is_closed() -> None:
    wanted = stretches([said(1, "a", 1)])
    assert plan([Held("b0", wanted[0]), Held("b1", wanted[0])], wanted) == Plan(("b1",), ())


def test_a_belief_opened_by_other_evidence_is_another_belief() -> None:
    (wanted,) = stretches([said(1, "a", 1)])
    assert plan([Held("b0", replace(wanted, saying="e9"))], [wanted]) == Plan(("b0",), (wanted,))


@pytest.mark.parametrize("shape", ["random", "one start", "nested", "one value"])
def test_a_thousand_sayings_take_a_few_milliseconds_at_worst(shape: str) -> None:
    chance = random.Random(7)
    acts = {
        "random": [said(n, chance.randrange(9), chance.random() * 99) for n in range(1000)],
        "one start": [said(n, n % 2, 0, 2000 - n, rank=n) for n in range(1000)],
        "nested": [said(n, n % 2, n, 3000 - n) for n in range(1000)],
        "one value": [said(n, "a", 0, n + 1, rank=1000 - n) for n in range(1000)],
    }[shape]
    chance.shuffle(acts)
    best = float("inf")
    for _ in range(20):
        began = time.perf_counter()
        stretches(acts)
        best = min(best, time.perf_counter() - began)
    # A quadratic sweep takes well over 50 ms; the margin is for slow and busy machines.
    assert best < 0.025


# The model: no sweep, only the one sentence


def decides(sayings: Sequence[Saying], instant: datetime) -> Saying | None:
    standing = [s for s in sayings if s.valid_from <= instant and (s.stated_to is None or instant < s.stated_to)]
    return max(standing, key=lambda s: (s.valid_from, s.rank, s.act_no), default=None)


def opens(sayings: Sequence[Saying], instant: datetime) -> Hashable:
    decisive = decides(sayings, instant)
    assert decisive is not None
    same = [
        s
        for s in sayings
        if s.value == decisive.value
        and s.valid_from == decisive.valid_from
        and (s.stated_to is None or instant < s.stated_to)
    ]
    return min(same, key=lambda s: s.act_no).id


def boundaries(sayings: Sequence[Saying]) -> list[datetime]:
    return sorted({s.valid_from for s in sayings} | {s.stated_to for s in sayings if s.stated_to is not None})


def instants(sayings: Sequence[Saying]) -> list[datetime]:
    """Every boundary, every midpoint, the last microsecond before each boundary, and beyond both ends."""
    marks = boundaries(sayings) or [ORIGIN]
    midpoints = [a + (b - a) / 2 for a, b in pairwise(marks)]
    before = [mark - timedelta(microseconds=1) for mark in marks]
    return sorted({*marks, *midpoints, *before, marks[0] - timedelta(days=9), marks[-1] + timedelta(days=9)})


def modelled(sayings: Sequence[Saying]) -> list[Stretch]:
    """The stretches, by asking anew at every boundary. Quadratic."""
    marks = boundaries(sayings)
    found: list[Stretch] = []
    for start, end in zip_longest(marks, marks[1:]):
        decisive = decides(sayings, start)
        if decisive is None:
            continue
        if found and found[-1].valid_to == start and found[-1].value == decisive.value:
            found[-1] = replace(found[-1], valid_to=end)
        else:
            found.append(Stretch(opens(sayings, start), decisive.value, start, end))
    return found


values = st.sampled_from(["a", "b", "c", None])
days = st.integers(0, 8)
lengths = st.one_of(st.none(), st.integers(0, 5))


@st.composite
def evidence(draw: st.DrawFn, max_size: int = 12) -> list[Saying]:
    """Sayings in order of arrival, on few days, values and ranks, so that all of them collide."""
    drawn = draw(st.lists(st.tuples(values, days, lengths, st.sampled_from([0, 0, 50, 1050])), max_size=max_size))
    return [
        said(n, value, start, None if length is None else start + length, rank)
        for n, (value, start, length, rank) in enumerate(drawn, start=1)
    ]


@given(evidence())
@settings(max_examples=400, deadline=None)
def test_at_every_instant_the_stretch_found_says_what_the_model_says(acts: list[Saying]) -> None:
    found = stretches(acts)
    for instant in instants(acts):
        covering = [s for s in found if s.valid_from <= instant and (s.valid_to is None or instant < s.valid_to)]
        decisive = decides(acts, instant)
        if decisive is None:
            assert covering == []
        else:
            assert [s.value for s in covering] == [decisive.value]


@given(evidence())
@settings(max_examples=400, deadline=None)
def test_the_stretches_and_what_opens_them_are_those_of_the_model(acts: list[Saying]) -> None:
    assert stretches(acts) == modelled(acts)


@given(evidence(), st.randoms(use_true_random=False))
@settings(max_examples=200, deadline=None)
def test_the_order_of_arrival_does_not_matter(acts: list[Saying], chance: random.Random) -> None:
    shuffled = list(acts)
    chance.shuffle(shuffled)
    assert stretches(shuffled) == stretches(iter(acts))


@given(evidence())
@settings(max_examples=200, deadline=None)
def test_stretches_are_half_open_never_overlap_and_touch_only_with_another_value(acts: list[Saying]) -> None:
    found = stretches(acts)
    for stretch in found:
        assert stretch.valid_to is None or stretch.valid_from < stretch.valid_to
    for former, latter in pairwise(found):
        assert former.valid_to is not None
        assert former.valid_to <= latter.valid_from
        assert former.valid_to < latter.valid_from or former.value != latter.value


@given(evidence(), evidence())
@settings(max_examples=200, deadline=None)
def test_a_plan_turns_what_is_held_into_what_is_wanted_and_touches_nothing_equal(
    before: list[Saying], after: list[Saying]
) -> None:
    held, wanted = believed(stretches(before)), stretches(after)
    planned = plan(held, wanted)
    kept = [belief.stretch for belief in held if belief.id not in planned.close]
    assert sorted([*kept, *planned.open], key=lambda s: s.valid_from) == wanted
    closed = {belief.stretch for belief in held if belief.id in planned.close}
    assert closed.isdisjoint(planned.open)
    assert plan(believed(wanted), wanted) == Plan((), ())


@given(evidence(max_size=20), st.booleans())
@settings(max_examples=400, deadline=None)
def test_an_append_is_the_full_sweep_wherever_it_gives_a_plan(acts: list[Saying], in_order: bool) -> None:
    if in_order:
        acts = [
            replace(s, id=f"e{n}", act_no=n) for n, s in enumerate(sorted(acts, key=lambda s: s.valid_from), start=1)
        ]
    standing: list[Saying] = []
    for saying in acts:
        held = believed(stretches(standing))
        last = held[-1] if held else None
        swept = plan(held, stretches([*standing, saying]))
        if all(former.valid_from < saying.valid_from for former in standing):
            quick = appended(last, saying)
            applies = saying.stated_to is None and (last is None or last.stretch.valid_from < saying.valid_from)
            assert (quick is not None) == applies
            assert quick is None or quick == swept
        standing.append(saying)


def test_an_append_behind_an_open_value_closes_it_and_opens_two() -> None:
    held = Held("b0", *stretches([said(1, "a", 1)]))
    planned = appended(held, said(2, "b", 4))
    assert planned is not None
    assert planned.close == ("b0",)
    assert rows(planned.open) == [("e1", "a", 1, 4), ("e2", "b", 4, None)]


def test_an_append_of_the_last_value_inside_its_future_portion_prolongs_it() -> None:
    held = Held("b0", *stretches([said(1, "a", 1, 9)]))
    planned = appended(held, said(2, "a", 4))
    assert planned is not None
    assert planned.close == ("b0",)
    assert rows(planned.open) == [("e1", "a", 1, None)]


def test_an_append_of_an_end_behind_the_same_end_changes_nothing() -> None:
    held = Held("b0", *stretches([ended(1, 1)]))
    assert appended(held, ended(2, 4)) == Plan((), ())


def test_an_append_inside_a_portion_that_something_follows_asks_for_the_sweep() -> None:
    held = stretches([said(1, "a", 1), said(2, "b", 3, 9)])
    assert appended(Held("b2", held[-1]), said(3, "c", 5)) is None


def test_an_append_where_a_portion_ends_asks_for_the_sweep() -> None:
    held = stretches([said(1, "a", 1), said(2, "b", 3, 9)])
    assert appended(Held("b2", held[-1]), said(3, "b", 9)) is None


def test_an_append_with_a_stated_end_asks_for_the_sweep() -> None:
    assert appended(None, said(1, "a", 1, 3)) is None


# Two times


@dataclass
class Belief:
    stretch: Stretch
    believed_from: int
    believed_to: int | None = None

    def known(self, known_at: float) -> bool:
        return self.believed_from <= known_at and (self.believed_to is None or known_at < self.believed_to)


@dataclass
class Act:
    saying: Saying
    recorded_at: int
    retracted_at: int | None = None

    def known(self, known_at: float) -> bool:
        return self.recorded_at <= known_at and (self.retracted_at is None or known_at < self.retracted_at)


class Ledger(RuleBasedStateMachine):
    """Acts one after another; the beliefs are kept only through plans, as the write door keeps them."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = 0
        self.acts: list[Act] = []
        self.beliefs: dict[int, Belief] = {}
        self.opened = 0

    def standing(self) -> list[Saying]:
        return [act.saying for act in self.acts if act.retracted_at is None]

    def held(self) -> list[Held]:
        now = [Held(n, b.stretch) for n, b in self.beliefs.items() if b.believed_to is None]
        return sorted(now, key=lambda belief: belief.stretch.valid_from)

    def carry_out(self, planned: Plan) -> None:
        for closed in planned.close:
            assert isinstance(closed, int)
            belief = self.beliefs[closed]
            if belief.believed_from == self.clock:
                del self.beliefs[closed]  # opened and closed at one instant: not stored
            else:
                belief.believed_to = self.clock
        for stretch in planned.open:
            self.opened += 1
            self.beliefs[self.opened] = Belief(stretch, self.clock)

    def saying(self, value: Hashable, start: float, until: float | None, rank: int) -> Saying:
        return said(len(self.acts) + 1, value, start, until, rank)

    # A step of 0 is an import that gives the newest instant again.
    @rule(step=st.integers(0, 2), value=values, start=days, length=lengths, rank=st.sampled_from([0, 50, 1050]))
    def say(self, step: int, value: Hashable, start: int, length: int | None, rank: int) -> None:
        self.clock += step
        saying = self.saying(value, start, None if length is None else start + length, rank)
        standing, held = self.standing(), self.held()
        planned = None
        if all(former.valid_from < saying.valid_from for former in standing):
            planned = appended(held[-1] if held else None, saying)
        if planned is None:
            planned = plan(held, stretches([*standing, saying]))
        self.acts.append(Act(saying, self.clock))
        self.carry_out(planned)

    @rule(step=st.integers(0, 2), value=values)
    def append(self, step: int, value: Hashable) -> None:
        newest = max((s.valid_from for s in self.standing()), default=ORIGIN)
        self.say(step, value, int((newest - ORIGIN) / timedelta(days=1)) + 1, None, 0)

    @precondition(lambda self: bool(self.standing()))
    @rule(step=st.integers(0, 2), data=st.data())
    def retract(self, step: int, data: st.DataObject) -> None:
        self.clock += step
        act = data.draw(st.sampled_from([act for act in self.acts if act.retracted_at is None]))
        act.retracted_at = self.clock
        self.carry_out(plan(self.held(), stretches(self.standing())))

    @precondition(lambda self: bool(self.standing()))
    @rule(step=st.integers(0, 2), value=values, data=st.data())
    def correct(self, step: int, value: Hashable, data: st.DataObject) -> None:
        self.clock += step
        act = data.draw(st.sampled_from([act for act in self.acts if act.retracted_at is None]))
        act.retracted_at = self.clock
        number = len(self.acts) + 1
        corrected = replace(act.saying, id=f"e{number}", value=value, act_no=number)
        self.acts.append(Act(corrected, self.clock))
        self.carry_out(plan(self.held(), stretches(self.standing())))

    @invariant()
    def at_every_known_at_the_beliefs_are_what_was_known_then(self) -> None:
        for known_at in [x / 2 for x in range(-1, 2 * self.clock + 2)]:
            stored = [belief.stretch for belief in self.beliefs.values() if belief.known(known_at)]
            known = [act.saying for act in self.acts if act.known(known_at)]
            assert sorted(stored, key=lambda s: s.valid_from) == modelled(known)

    @invariant()
    def no_belief_is_empty_in_belief_time(self) -> None:
        assert all(b.believed_to is None or b.believed_from < b.believed_to for b in self.beliefs.values())


Ledger.TestCase.settings = settings(max_examples=100, stateful_step_count=20, deadline=None)
TestLedger = Ledger.TestCase
