"""Typed values in a text: dates, times, numbers, money, addresses, names, each with its span.

Pure: no clock, no network, no locale. Relative dates count from the `today` that is given. English grammar; ISO dates,
e-mail addresses, phone numbers and digits read the same in any language.

A grammar of our own and no date library, since where the date stands matters as much as which day it is, and no date
must be found where there is none. dateutil gives one date a text without its place, and reads "go with 4 people" as the
4th; dateparser's search takes "may" and "sat on" for dates and "Monday next week" for two, misses June 30th in a turn of
200 characters, costs 4 ms for it (this grammar 0.2 ms), and falls back on the machine's clock without its option.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date, timedelta
from decimal import Decimal
from typing import Literal

Kind = Literal["date", "time", "number", "money", "email", "phone", "url", "quoted", "name", "words"]


@dataclass(frozen=True, slots=True)
class Mention:
    """A value in a text. `value` is its plain form: ISO for dates and times, a Decimal for numbers and money, else text.

    `value` is None where a date is meant that cannot be told (3/4/2026). `exact` is False for a date that stands for a
    longer stretch, such as "last week", of which `value` is the first day. `complete` is True for a date with its year.
    """

    kind: Kind
    start: int
    end: int
    value: str | Decimal | None = field(repr=False)
    exact: bool = True
    complete: bool = False


def _listed(text: str) -> list[str]:
    return text.split()


# --- numbers ------------------------------------------------------------------------------------------------------

_UNITS = {
    word: number
    for number, word in enumerate(
        _listed(
            "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
            "seventeen eighteen nineteen"
        )
    )
}
_TENS = {
    word: 10 * tens for tens, word in enumerate(_listed("twenty thirty forty fifty sixty seventy eighty ninety"), 2)
}
_SCALES = {"hundred": 100, "thousand": 1_000, "million": 1_000_000}
_NUMBER_WORD = "|".join((*_UNITS, *_TENS, *_SCALES))
_WORDS = rf"(?:a (?=hundred|thousand|million))?(?:{_NUMBER_WORD})(?:(?:[ -]| and )(?:{_NUMBER_WORD}))*"
_DIGITS = r"\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?"
_NUMBER = re.compile(
    rf"(?<![\w.,:/@#$€£-])(?:(?P<digits>{_DIGITS})(?![\w:/@]|[.,-]\d)|(?P<words>{_WORDS})(?![\w'’]))", re.I
)
_CURRENCY = r"dollars?|bucks?|usd|euros?|eur|pounds?|gbp|quid|francs?|chf|zloty|pln|yen|rupees?|cents?"
_MONEY = re.compile(
    rf"(?<![\w.,])[$€£¥] ?(?P<amount>{_DIGITS})(?P<scale>[km](?!\w))?(?:(?= )|(?!\w))"
    rf"|(?<![\w.,:$])(?P<said>{_DIGITS}|{_WORDS})(?P<gap>[ -]?)(?:{_CURRENCY})(?!\w)",
    re.I,
)


def words_to_number(words: str) -> int:
    """Return the number that English number words say, such as "six hundred and ninety"."""
    total = part = 0
    for word in re.split(r"[ -]+", words.lower()):
        if word in _UNITS:
            part += _UNITS[word]
        elif word in _TENS:
            part += _TENS[word]
        elif word == "hundred":
            part = (part or 1) * 100
        elif word in _SCALES:
            total += (part or 1) * _SCALES[word]
            part = 0
    return total + part


def _amount(text: str) -> Decimal:
    plain = text.replace(",", "")
    return Decimal(plain) if plain[0].isdigit() else Decimal(words_to_number(plain))


def _numbers(text: str) -> Iterator[Mention]:
    for found in _NUMBER.finditer(text):
        yield Mention("number", *found.span(), _amount(found.group()))


def _money(text: str) -> Iterator[Mention]:
    for found in _MONEY.finditer(text):
        amount = _amount(found["amount"] or found["said"])
        if found["scale"]:
            amount *= 1_000 if found["scale"].lower() == "k" else 1_000_000
        yield Mention("money", *found.span(), amount)


# --- dates --------------------------------------------------------------------------------------------------------

MONTHS = _listed("january february march april may june july august september october november december")
WEEKDAYS = _listed("monday tuesday wednesday thursday friday saturday sunday")
_MONTH = (
    r"(?:(?:january|february|march|april|may|june|july|august|september|october|november|december)\b"
    r"|(?:jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec)\b\.?)"
)
_WEEKDAY = r"(?:mon|tues|wednes|thurs|fri|satur|sun)day|(?:mon|tue|wed|thu|thur|thurs|fri)(?=[.,]?\ \d)"
_ORDINAL_WORDS = {
    word: number
    for number, word in enumerate(
        _listed(
            "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth fourteenth "
            "fifteenth sixteenth seventeenth eighteenth nineteenth twentieth"
        ),
        1,
    )
}
_ORDINAL = r"\d{1,2}\ ?(?:st|nd|rd|th)\b"
_DATE = re.compile(
    rf"""(?<![\w/.-])(?:
      (?P<iso>\d{{4}}-\d{{2}}-\d{{2}})(?![\w-])
    | (?P<a>\d{{1,2}})(?P<sep>[./])(?P<b>\d{{1,2}})(?P=sep)(?P<y>\d{{4}})(?![\w/])
    | (?P<m1>{_MONTH})\ (?:the\ )?(?P<d1>{_ORDINAL}|\d{{1,2}}(?![\w:])|{"|".join(_ORDINAL_WORDS)})(?:,?\ (?P<y1>(?:19|20)\d\d)(?!\w))?
    | (?P<d2>{_ORDINAL}|\d{{1,2}}|{"|".join(_ORDINAL_WORDS)})\ (?:of\ )?(?P<m2>{_MONTH})(?:,?\ (?P<y2>(?:19|20)\d\d)(?!\w))?
    | (?P<m3>{_MONTH})\ (?P<y3>(?:19|20)\d\d)(?!\w)
    | (?P<d4>{_ORDINAL})\ of\ (?P<w4>this|next|the|last)\ month\b
    | the\ (?P<d5>{_ORDINAL})(?!\ (?:of|floor|street|avenue|century|time|one|place))
    | (?P<day>(?:the\ )?day\ after\ tomorrow|(?:later\ )?today|tomorrow|yesterday|tonight|this\ (?:morning|afternoon|evening))\b
    | (?P<wd1>{_WEEKDAY})\ (?P<ww>this|next|last)\ week\b
    | (?:(?P<wm>this|next|last|coming|this\ coming)\ )?(?P<wd2>{_WEEKDAY})\b
    | in\ (?P<n>\d{{1,3}}|{_NUMBER_WORD}|a)\ (?P<u>day|week|month|year)s?(?:'s?\ time)?\b
    | (?P<n2>\d{{1,3}}|{_NUMBER_WORD}|a)\ (?P<u2>day|week|month|year)s?\ ago\b
    | (?P<rel>this|next|last)\ (?P<stretch>weekend|week|month|year)\b
    | (?<=\bin\ )(?P<yy>(?:19|20)\d\d)(?!\w)
    | (?<=\bsince\ )(?P<yy2>(?:19|20)\d\d)(?!\w)
    )""",
    re.I | re.X,
)
_DATE_HINT = re.compile(
    r"\d|ago\b|today|tomorrow|yesterday|tonight|days?\b|week|month|year|this (?:m|a|e)|jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec",
    re.I,
)


def _month(text: str) -> int:
    return next(number for number, name in enumerate(MONTHS, 1) if name.startswith(text[:3].lower()))


def _day(text: str) -> int:
    return _ORDINAL_WORDS.get(text.lower()) or int(re.match(r"\d+", text).group())  # type: ignore[union-attr]


def _count(text: str) -> int:
    return 1 if text.lower() == "a" else int(text) if text.isdigit() else words_to_number(text)


def _made(year: int, month: int, day: int) -> date | None:
    try:
        return date(year, month, day)
    except ValueError:
        return None


def _months_on(today: date, months: int, day: int | None = None) -> date | None:
    index = today.year * 12 + today.month - 1 + months
    year, month = divmod(index, 12)
    if not 1 <= year <= 9998:
        return None
    if day is not None:
        return _made(year, month + 1, day)
    last = (date(year + (month == 11), (month + 1) % 12 + 1, 1) - timedelta(days=1)).day
    return date(year, month + 1, min(today.day, last))


def _nearest_year(today: date, month: int, day: int) -> date | None:
    # Without a year the nearest such day is meant: "March 3rd" on December 30th is two months ahead.
    near = [made for year in (today.year - 1, today.year, today.year + 1) if (made := _made(year, month, day))]
    return min(near, key=lambda each: (abs((each - today).days), each < today), default=None)


def _weekday(text: str) -> int:
    return next(number for number, name in enumerate(WEEKDAYS) if name.startswith(text[:3].lower()))


def _shifted(today: date, count: int, unit: str) -> date | None:
    try:
        if unit == "day":
            return today + timedelta(days=count)
        if unit == "week":
            return today + timedelta(weeks=count)
    except OverflowError:
        return None
    return _months_on(today, count * (12 if unit == "year" else 1))


def _resolved(found: re.Match[str], today: date) -> tuple[date | None, bool, bool]:
    """Return (the day or None, whether it is that day alone, whether the text names its year)."""
    part = found.groupdict()
    if part["iso"]:
        try:
            return date.fromisoformat(part["iso"]), True, True
        except ValueError:
            return None, True, True
    if part["a"]:
        first, second, year = int(part["a"]), int(part["b"]), int(part["y"])
        if part["sep"] == ".":
            return _made(year, second, first), True, True
        if first > 12:
            return _made(year, second, first), True, True
        # 3/4/2026 is one day to some and another to others.
        return (_made(year, first, second) if second > 12 or first == second else None), True, True
    for which in "12":
        if part["m" + which]:
            number, of_month = _month(part["m" + which]), _day(part["d" + which])
            if part["y" + which]:
                return _made(int(part["y" + which]), number, of_month), True, True
            return _nearest_year(today, number, of_month), True, False
    if part["m3"]:
        return _made(int(part["y3"]), _month(part["m3"]), 1), False, True
    if part["d4"]:
        return _months_on(today, {"next": 1, "last": -1}.get(part["w4"].lower(), 0), _day(part["d4"])), True, False
    if part["d5"]:
        of_month = _day(part["d5"])
        return _months_on(today, 0 if of_month >= today.day else 1, of_month), True, False
    if part["day"]:
        word = part["day"].lower()
        ahead = 2 if "after" in word else 1 if word == "tomorrow" else -1 if word == "yesterday" else 0
        return _shifted(today, ahead, "day"), True, False
    monday = today - timedelta(days=today.weekday())
    if part["wd1"]:
        weeks = {"this": 0, "next": 1, "last": -1}[part["ww"].lower()]
        return monday + timedelta(weeks=weeks, days=_weekday(part["wd1"])), True, False
    if part["wd2"]:
        ahead = (_weekday(part["wd2"]) - today.weekday()) % 7
        how = (part["wm"] or "").lower()
        if how == "last":
            return today + timedelta(days=ahead - 7), True, False
        if how == "next":
            return monday + timedelta(weeks=1, days=_weekday(part["wd2"])), True, False
        return today + timedelta(days=ahead), True, False
    if part["n"]:
        return _shifted(today, _count(part["n"]), part["u"].lower()), part["u"].lower() in ("day", "week"), False
    if part["n2"]:
        return _shifted(today, -_count(part["n2"]), part["u2"].lower()), part["u2"].lower() in ("day", "week"), False
    if part["stretch"]:
        by = {"this": 0, "next": 1, "last": -1}[part["rel"].lower()]
        stretch = part["stretch"].lower()
        if stretch == "year":
            return _made(today.year + by, 1, 1), False, False
        if stretch == "month":
            return _months_on(today, by, 1), False, False
        return monday + timedelta(weeks=by, days=5 if stretch == "weekend" else 0), False, False
    return _made(int(part["yy"] or part["yy2"]), 1, 1), False, True


def dates(text: str, today: date) -> Iterator[Mention]:
    """Yield the dates of a text, in its order; relative ones count from `today`."""
    if _DATE_HINT.search(text) is None:
        return
    for found in _DATE.finditer(text):
        if found["m2"] and not found["d2"][-1].isalpha() and found["m2"].lower() == "may" and found["m2"] != "May":
            continue
        try:
            day, exact, complete = _resolved(found, today)
        except OverflowError:
            day, exact, complete = None, True, False
        yield Mention("date", *found.span(), day.isoformat() if day else None, exact, complete)


# --- times --------------------------------------------------------------------------------------------------------

_HOUR_WORD = "|".join(word for word, number in _UNITS.items() if 1 <= number <= 12)
_PART = r"(?:(?:early|late)\ )?(?:in\ the\ (?:early\ |late\ )?(?P<part>morning|afternoon|evening)|at\ (?P<night>night))"
_MERIDIEM = r"(?P<ap>[ap])\.?\ ?m\b\.?"
_TIME = re.compile(
    rf"""(?<![\w:.,/$€£-])(?:
      (?P<h1>\d{{1,2}})(?::|\.(?=[0-5]\d\ ?[ap]\.?m\b))(?P<mi1>[0-5]\d)(?::[0-5]\d)?(?![\d:]|\.\d)(?:\ ?{_MERIDIEM}|\ {_PART})?
    | (?P<before>(?:(?:early|late)\ )?(?:morning|afternoon|evening))\ (?:at\ )?(?P<h2>\d{{1,2}})(?::(?P<mi2>[0-5]\d))?(?![\w:]|\ (?:people|of\ us))
    | (?P<q>quarter|half|five|ten|twenty|twenty-five)\ (?P<to>past|to|after|before|till)\ (?P<h3>\d{{1,2}}|{_HOUR_WORD})\b
        (?:\ ?{_MERIDIEM.replace("ap>", "ap3>")}|\ {_PART.replace("part>", "part3>").replace("night>", "night3>")})?
    | (?P<h4>\d{{1,2}}|{_HOUR_WORD})\ ?(?:
          (?:o['’"`]?\ ?clock)(?:\ {_PART.replace("part>", "part4>").replace("night>", "night4>")}|\ ?{_MERIDIEM.replace("ap>", "ap4>")})?
        | {_MERIDIEM.replace("ap>", "ap5>")}
        | (?<=\ ){_PART.replace("part>", "part6>").replace("night>", "night6>")}
      )
    | (?P<word>noon|midday|midnight)\b
    )""",
    re.I | re.X,
)
_TIME_HINT = re.compile(
    r"\d|o.?clock|quarter|half|noon|mid(?:day|night)|[ap]\.?m\b|morning|afternoon|evening|night", re.I
)


def _hour(text: str) -> int:
    return int(text) if text.isdigit() else _UNITS[text.lower()]


def _clock(hour: int, minute: int, half: str | None) -> str | None:
    """Return HH:MM; `half` is "am", "pm" or None where the text does not say. None where there is no such time."""
    if half == "pm" and hour < 12:
        hour += 12
    elif half == "am" and hour == 12:
        hour = 0
    if not 0 <= hour <= 24 or not 0 <= minute < 60:
        return None
    return f"{hour:02d}:{minute:02d}"


def times(text: str) -> Iterator[Mention]:
    """Yield the times of day of a text as HH:MM; `exact` is False where neither half of the day is said and both fit."""
    if _TIME_HINT.search(text) is None:
        return
    for found in _TIME.finditer(text):
        part = found.groupdict()
        if part["word"]:
            yield Mention("time", *found.span(), "00:00" if part["word"].lower() == "midnight" else "12:00")
            continue
        letter = next((part[name].lower() for name in ("ap", "ap3", "ap4", "ap5") if part[name]), None)
        half: str | None = {"a": "am", "p": "pm"}.get(letter or "")
        spell = next((part[name].lower() for name in ("part", "part3", "part4", "part6") if part[name]), None)
        if part["before"]:
            spell = part["before"].lower().split()[-1]
        if spell:
            half = "am" if spell == "morning" else "pm"
        hour = _hour(next(part[name] for name in ("h1", "h2", "h3", "h4") if part[name]))
        if any(part[name] for name in ("night", "night3", "night4", "night6")):
            half = "pm" if 5 <= hour < 12 else "am"
        minute = int(part["mi1"] or part["mi2"] or 0)
        if part["q"]:
            minute = {"quarter": 15, "half": 30, "five": 5, "ten": 10, "twenty": 20, "twenty-five": 25}[
                part["q"].lower()
            ]
            if part["to"].lower() in ("to", "before", "till"):
                hour, minute = (hour - 1) or 12, 60 - minute
        if hour > 12 and half == "pm":
            half = None
        yield Mention("time", *found.span(), _clock(hour, minute, half), exact=half is not None or hour > 12)


# --- addresses and names ------------------------------------------------------------------------------------------

_EMAIL = re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@(?:[A-Za-z0-9-]+\.)+[A-Za-z]{2,24}(?![\w-])")
_URL = re.compile(r"\bhttps?://[^\s<>\"']+[^\s<>\"'.,;:!?)\]]")
_PHONE = re.compile(r"(?<![\w+.:/-])(?:\+|00)?\(?\d[\d ()/.-]{5,18}\d(?![\w:/-])")
_QUOTED = re.compile(
    r"\"([^\"\n]{1,80})\"|“([^”\n]{1,80})”|„([^“”\n]{1,80})[“”]|«([^»\n]{1,80})»|(?<!\w)'([^'\n]{1,80})'(?!\w)|`([^`\n]{1,200})`"
)
_NAME = re.compile(
    r"(?<![\w@.'’-])"
    r"(?:[A-Z][\w’'-]*(?:\.(?=\ [A-Z])|(?:\.[A-Z])+\.?)?)"
    r"(?:(?:\ (?:(?:of|the|de|la|le|du|van|von|and|y|&)\ ){0,2}|-|\ ?&\ ?)(?:[A-Z][\w’'-]*(?:\.(?=\ [A-Z])|(?:\.[A-Z])+\.?)?|\#?\d+(?![\w:])))*"
)
_EMAIL_HINT, _URL_HINT = "@", "://"


def addresses(text: str) -> Iterator[Mention]:
    """Yield e-mail addresses, web addresses, and phone numbers of seven to fifteen digits."""
    if _EMAIL_HINT in text:
        for found in _EMAIL.finditer(text):
            yield Mention("email", *found.span(), found.group())
    if _URL_HINT in text:
        for found in _URL.finditer(text):
            yield Mention("url", *found.span(), found.group())
    for found in _PHONE.finditer(text):
        digits = sum(character.isdigit() for character in found.group())
        if 7 <= digits <= 15 and _DATE.fullmatch(found.group()) is None:
            yield Mention("phone", *found.span(), found.group())


def quoted(text: str) -> Iterator[Mention]:
    """Yield what stands in quotation marks, without them."""
    for found in _QUOTED.finditer(text):
        group = found.lastindex
        if group is not None and found.group(group).strip():
            yield Mention("quoted", *found.span(group), found.group(group))


def capitalised(text: str) -> Iterator[Mention]:
    """Yield runs of capitalised words, with the small words between them."""
    for found in _NAME.finditer(text):
        yield Mention("name", *found.span(), found.group())


def typed(text: str, today: date, kinds: frozenset[str]) -> list[Mention]:
    """Return the values of these kinds, in the text's order. Dates, times and money are not also numbers or phones."""
    found: list[Mention] = []
    digits = bool(kinds & {"number", "money", "phone", "date", "time"})
    if digits:
        found += dates(text, today)
        taken = [(each.start, each.end) for each in found]
        found += (each for each in times(text) if not _overlaps(each, taken))
        taken = [(each.start, each.end) for each in found]
        found += (each for each in _money(text) if not _overlaps(each, taken))
    taken = [(each.start, each.end) for each in found]
    if kinds & {"phone", "email", "url"}:
        fresh = [each for each in addresses(text) if not _overlaps(each, taken)]
        found += fresh
        taken += [(each.start, each.end) for each in fresh]
    if kinds & {"number", "money"}:
        found += (each for each in _numbers(text) if not _overlaps(each, taken))
    if "name" in kinds:
        found += quoted(text)
        found += (each for each in capitalised(text) if not _overlaps(each, taken))
    return sorted((each for each in found), key=lambda each: (each.start, -each.end))


def _overlaps(mention: Mention, taken: list[tuple[int, int]]) -> bool:
    return any(mention.start < end and start < mention.end for start, end in taken)
