"""By when a request is to be answered: months as the calendar has them, days as the zone has them."""

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retention.deadlines import EXTENDED, FIRST, days_left, due, last_day, months_after

ZONES = [
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "America/Sao_Paulo",
    "Pacific/Apia",
    "Asia/Kathmandu",
    "Africa/Cairo",
]
INSTANTS = st.datetimes(datetime(1990, 1, 1), datetime(2090, 1, 1), timezones=st.just(UTC))


@pytest.mark.parametrize(
    ("received", "months", "last"),
    [
        ("2026-01-31", 1, "2026-02-28"),
        ("2028-01-31", 1, "2028-02-29"),
        ("2026-02-28", 1, "2026-03-28"),
        ("2026-03-31", 1, "2026-04-30"),
        ("2026-11-30", 3, "2027-02-28"),
        ("2027-11-30", 3, "2028-02-29"),
        ("2028-02-29", 1, "2028-03-29"),
        ("2026-12-15", 1, "2027-01-15"),
    ],
)
def test_a_month_ends_on_the_day_of_the_same_number_or_on_its_last(received: str, months: int, last: str) -> None:
    assert months_after(date.fromisoformat(received), months) == date.fromisoformat(last)


def test_the_last_day_counts_whole_where_the_organisation_is() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    # Half past eleven in the evening of the first of March in UTC is the second there, already.
    received = datetime(2026, 3, 1, 23, 30, tzinfo=UTC)
    assert last_day(received, months=1, zone=berlin) == date(2026, 4, 2)
    # Summer time began in between: midnight is an hour earlier in UTC.
    assert due(received, months=1, zone=berlin) == datetime(2026, 4, 2, 22, 0, tzinfo=UTC)
    assert due(received, months=1, zone=UTC) == datetime(2026, 4, 2, 0, 0, tzinfo=UTC)


def test_a_midnight_that_clocks_leave_out_is_when_that_day_begins() -> None:
    # On 4 November 2018 clocks in São Paulo went from midnight to one.
    zone = ZoneInfo("America/Sao_Paulo")
    at = due(datetime(2018, 10, 3, 12, tzinfo=UTC), months=1, zone=zone)
    assert at.astimezone(zone).isoformat() == "2018-11-04T01:00:00-02:00"


@given(received=INSTANTS, months=st.sampled_from([FIRST, EXTENDED]), name=st.sampled_from(ZONES))
def test_due_is_the_end_of_the_last_day_there(received: datetime, months: int, name: str) -> None:
    zone = ZoneInfo(name)
    at = due(received, months=months, zone=zone)
    last = last_day(received, months=months, zone=zone)
    before, after = (at - timedelta(microseconds=1)).astimezone(zone).date(), at.astimezone(zone).date()
    assert before <= last < after
    assert before == last or name == "Pacific/Apia"  # which left a whole day out once
    assert 28 * months <= (last - received.astimezone(zone).date()).days <= 31 * months


@given(first=INSTANTS, second=INSTANTS, name=st.sampled_from(ZONES))
def test_what_came_in_later_is_never_due_earlier(first: datetime, second: datetime, name: str) -> None:
    first, second = sorted([first, second])
    assert due(first, months=FIRST, zone=ZoneInfo(name)) <= due(second, months=FIRST, zone=ZoneInfo(name))


@given(received=INSTANTS, name=st.sampled_from(ZONES))
def test_an_extension_gives_two_months_more(received: datetime, name: str) -> None:
    zone = ZoneInfo(name)
    more = due(received, months=EXTENDED, zone=zone) - due(received, months=FIRST, zone=zone)
    assert timedelta(days=58) <= more <= timedelta(days=63)


@given(at=INSTANTS, seconds=st.integers(-10_000_000, 10_000_000))
def test_days_left_fall_below_zero_exactly_when_it_is_too_late(at: datetime, seconds: int) -> None:
    now = at - timedelta(seconds=seconds)
    assert (days_left(at, now) < 0) == (now > at)
