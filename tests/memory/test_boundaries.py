"""What ended goes from a chain as soon as nothing kept stands before it, and no earlier."""

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from memory.boundaries import Span, unneeded
from memory.reconcile import Saying, stretches


def at(day: float) -> datetime:
    return datetime(2020, 1, 1, tzinfo=UTC) + timedelta(days=day)


def span(name: str, first: float | None, last: float | None = None, *, chain: Any = 1) -> Span:
    until = first if last is None else last
    return Span(name, "key", chain, None if first is None else at(first), None if until is None else at(until))


def test_what_lies_before_everything_that_is_kept_goes() -> None:
    assert unneeded([span("old", 0, 2), span("older", -3)], {("key", 1): at(3)}) == {"old", "older"}


def test_a_boundary_behind_something_kept_stays() -> None:
    assert unneeded([span("after", 5)], {("key", 1): at(3)}) == set()


def test_at_the_very_instant_of_something_kept_it_stays_since_it_may_decide_there() -> None:
    assert unneeded([span("beside", 3)], {("key", 1): at(3)}) == set()


def test_what_a_boundary_that_stays_stands_before_stays_too() -> None:
    # `long` was said before and after what is kept, so it stays, and then `between` stands behind it.
    spans = [span("long", 0, 9), span("between", 1), span("before", -1)]
    assert unneeded(spans, {("key", 1): at(5)}) == {"before"}


def test_where_nothing_is_kept_everything_goes() -> None:
    assert unneeded([span("one", 0, 9), span("two", 4), span("end", 5, chain=None)], {}) == {"one", "two", "end"}


def test_what_was_taken_back_decides_nothing_and_goes() -> None:
    assert unneeded([span("retracted", None)], {("key", 1): at(0)}) == {"retracted"}


def test_chains_of_one_key_do_not_keep_each_others_boundaries() -> None:
    assert unneeded([span("red", 5, chain=1), span("blue", 5, chain=2)], {("key", 1): at(3)}) == {"blue"}


def test_an_end_that_one_chain_needs_stays_in_every_chain() -> None:
    spans = [span("end", 5, chain=None), span("blue", 6, chain=2), span("green", 4, chain=3)]
    assert unneeded(spans, {("key", 1): at(3)}) == {"green"}


def test_an_end_whose_life_is_not_over_keeps_what_stands_behind_it() -> None:
    assert unneeded([span("after", 5), span("before", 1)], {("key", None): at(3)}) == {"before"}


_SAYINGS = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 8), st.one_of(st.none(), st.integers(1, 4))), max_size=9
)


@settings(deadline=None, max_examples=400)
@given(_SAYINGS, st.sets(st.integers(0, 3)))
def test_what_holds_of_the_rest_is_as_it_was(said: list[tuple[int, int, int | None]], ended: set[int]) -> None:
    """Without the rows that went, evidence gives every stretch of what stays exactly as before."""
    sayings = [
        Saying(number, value, at(day), None if lasts is None else at(day + lasts), 0, number)
        for number, (value, day, lasts) in enumerate(said)
    ]
    spans: list[Span] = []
    kept: dict[Any, datetime] = {}
    for value in {each.value for each in sayings}:
        days = [each.valid_from for each in sayings if each.value == value]
        if value in ended:
            spans.append(Span(value, "key", 1, min(days), max(days)))
        else:
            kept["key", 1] = min([*days, kept["key", 1]] if kept else days)
    gone = unneeded(spans, kept)
    before = [each for each in stretches(sayings) if each.value not in gone]
    assert stretches([each for each in sayings if each.value not in gone]) == before
