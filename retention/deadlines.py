"""By when a request of a data subject is to be answered. Pure: the calendar, a zone, and no clock.

GDPR Art. 12(3): within one month of receipt, extended by two further months where necessary, of which the subject is told
within the first. Months count as Regulation (EEC, Euratom) No 1182/71, Art. 3, has them: from the day after receipt, to the
end of the day of the same number, or of the last one where that month is shorter. What that rule adds for weekends and
holidays is left out: the date here is never later than the law's.
"""

from calendar import monthrange
from datetime import UTC, date, datetime, timedelta, tzinfo
from datetime import time as clock

#: Months from receipt, and from receipt when extended.
FIRST, EXTENDED = 1, 3


def months_after(day: date, months: int) -> date:
    """Return the day of the same number so many months later, or the last day of a month that has none."""
    year, month = divmod(day.year * 12 + day.month - 1 + months, 12)
    return date(year, month + 1, min(day.day, monthrange(year, month + 1)[1]))


def last_day(received_at: datetime, *, months: int, zone: tzinfo) -> date:
    """Return the last day on which an answer is in time, in the calendar of `zone`."""
    return months_after(received_at.astimezone(zone).date(), months)


def due(received_at: datetime, *, months: int, zone: tzinfo) -> datetime:
    """Return the instant from which on it is too late: the beginning of the day after the last one, there.

    Where that midnight does not exist, since clocks are put forward over it, the day begins when they have been.
    """
    following = last_day(received_at, months=months, zone=zone) + timedelta(days=1)
    midnight = datetime.combine(following, clock(), tzinfo=zone)
    # Through UTC and back an hour that the clocks leave out becomes the one that they show.
    return midnight.astimezone(UTC)


def days_left(due_at: datetime, now: datetime) -> int:
    """Return how many whole days are left; below zero, how many have been begun since it was due."""
    return (due_at - now) // timedelta(days=1)
