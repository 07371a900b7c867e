from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from memory.timeline import LEFT, ROW, WIDTH, Bar, Drawing, Span, Tick, draw

NOW = datetime(2026, 6, 20, tzinfo=UTC)


def span(lane: str, first: int, last: int | None) -> Span:
    return Span(
        lane=lane,
        label="‹value: personal›",
        style="past",
        valid_from=NOW - timedelta(days=first),
        valid_to=None if last is None else NOW - timedelta(days=last),
        link="/",
    )


def drawn(*spans: Span) -> Drawing:
    found = draw(spans, now=NOW)
    assert found is not None
    return found


def bars(drawing: Drawing) -> list[Bar]:
    return [bar for lane in drawing.lanes for bar in lane.bars]


def test_nothing_is_drawn_of_nothing() -> None:
    assert draw([], now=NOW) is None


def test_one_stretch_ends_where_the_next_begins_and_the_open_one_runs_to_the_edge() -> None:
    (first, second) = bars(drawn(span("deadline", 20, 10), span("deadline", 10, None)))
    assert first.x == LEFT
    assert abs(first.end - second.x) < 0.2
    assert first.y == second.y
    assert abs(second.end - WIDTH) < 0.2


def test_what_holds_at_the_same_time_stands_in_rows_of_one_lane() -> None:
    drawing = drawn(span("tag", 20, None), span("tag", 15, None), span("topic", 5, None))
    assert [lane.name for lane in drawing.lanes] == ["tag", "topic"]
    first, second, other = bars(drawing)
    assert second.y == first.y + ROW
    assert other.y > second.y


def test_now_stands_in_the_drawing_also_where_everything_is_past_or_to_come() -> None:
    assert LEFT < drawn(span("topic", 20, 10)).now < WIDTH
    assert drawn(span("topic", -20, -30)).now == LEFT


def test_a_bar_too_narrow_for_its_label_carries_none() -> None:
    short, long = bars(drawn(span("topic", 400, 399), span("topic", 399, None)))
    assert (short.text, long.text) == ("", "‹value: personal›")


@given(st.lists(st.tuples(st.integers(-4000, 700_000), st.none() | st.integers(1, 9000)), min_size=1, max_size=30))
def test_every_bar_stands_inside_and_none_lies_on_another(stretches: list[tuple[int, int | None]]) -> None:
    drawing = drawn(*(span("tag", first, None if long is None else first - long) for first, long in stretches))
    found = bars(drawing)
    assert len(found) == len(stretches)
    for bar in found:
        assert LEFT <= bar.x <= WIDTH
        assert bar.y + ROW <= drawing.height
    for row in {bar.y for bar in found}:
        there = sorted((bar for bar in found if bar.y == row), key=lambda bar: bar.x)
        assert all(one.x + one.width <= other.x + 0.2 or other.x >= WIDTH - 3 for one, other in pairwise(there))


def test_what_may_no_longer_be_kept_is_told_within_the_bar_where_that_is_near() -> None:
    kept = replace(span("topic", 20, None), kept_until=NOW + timedelta(days=10))
    (bar,) = bars(drawn(kept))
    assert bar.kept is not None
    assert bar.x < bar.kept < bar.end
    assert bar.gone == round(bar.end - bar.kept, 1)
    (far,) = bars(drawn(replace(kept, kept_until=NOW + timedelta(days=4_000))))
    assert (far.kept, far.gone) == (None, 0.0)


def test_what_people_did_stands_under_its_lane_and_nowhere_else() -> None:
    found = draw(
        [span("topic", 20, None), span("tag", 5, None)],
        now=NOW,
        happened=[Tick("topic", "confirmed", NOW - timedelta(days=3)), Tick("gone", "redacted", NOW)],
    )
    assert found is not None
    assert [[mark.kind for mark in lane.marks] for lane in found.lanes] == [["confirmed"], []]
