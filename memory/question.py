"""Reading a question: whom and what it asks about, and as of when. Pure: no Django, no clock, no network.

Reading decides where to look and never what holds. Dates are read by the grammar of extraction, relative to the instant
of the request; what is not understood leaves the question one about now.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from itertools import islice
from typing import Literal

from memory.extraction import cues
from memory.extraction.typed_values import MONTHS, Mention, dates
from policies.definitions import AttributeDefinition

Mode = Literal["current", "as_of"]

#: Names are looked for in the first so many words of a question, each at most so many words long.
_WORDS_READ = 200
_LONGEST_NAME = 4
MOST_NAMES = 48
#: How well the words of an attribute must fit, and how many may be in play.
_FITS = 0.5
_MOST_ATTRIBUTES = 8
_DESCRIPTION = 0.6

#: So many dates of a question are read, each with so many characters before it.
_MOST_DATES = 20
_AHEAD = 60

_DAY = timedelta(days=1)
_INSTANT = timedelta(microseconds=1)

_TOKEN = re.compile(r"[^\s,;:!?()\[\]{}\"“”«»]+")
_POSSESSIVE = re.compile(r"['’]s?$", re.IGNORECASE)
_PAST = re.compile(
    r"\b(?:was|were|did|had|used to|been|back then|at the time|lived|worked|held|stood|knew|believed|thought)\b", re.I
)
_AS_OF = re.compile(r"\b(?:as of|as at|as on|as it stood on|as it was on|back on|back in|at the time of)\s*$", re.I)
_BEFORE = re.compile(r"\b(?:before|prior to|until|till|up to|earlier than|ahead of)\s*(?:the\s*)?$", re.I)
_ON = re.compile(r"\b(?:on|in|during|at|by)\s*(?:the\s*)?$", re.I)
_AFTER = re.compile(r"\b(?:after|since|from|later than)\s*(?:the\s*)?$", re.I)
_MONTH_ALONE = re.compile(
    rf"(?<=[ (])({'|'.join(MONTHS)})\b(?!,? *\d)(?! (?:first|the \d))",
    re.I,
)
_BELIEVED = re.compile(r"\b(?:believ\w*|knew|know|known|thought|think|assum\w*|record\w*)\b", re.I)


@dataclass(frozen=True, slots=True)
class Moment:
    """As of when a question asks: `current`, or `as_of` with the instants it names (UTC), else None."""

    mode: Mode
    valid_at: datetime | None = None
    known_at: datetime | None = None


def moment(question: str, now: datetime) -> Moment:
    """Return as of when the question asks. `now` is the request's instant, aware.

    "before 3 June" is the last instant before that day, "on 3 June" and "as of 3 June" the day's last; a day without
    its year is the nearest. A month without its year ("before June", "in May") is the last one that has begun. A date that
    lies ahead, or that the question does not look back to, leaves it one about now: "is it due on 15 July?" asks about now.
    "what did we believe on 5 June about 2 June" names both instants.
    """
    today = now.astimezone(UTC).date()
    back: list[tuple[Mention, datetime]] = []
    past = _PAST.search(question) is not None
    found = list(_stretches(question, today, past=past))
    for mention, first, following in found:
        ahead = question[max(0, mention.start - _AHEAD) : mention.start]
        if _AFTER.search(ahead):
            continue
        if _BEFORE.search(ahead) and (past or first <= today):
            at = _midnight(first) - _INSTANT
        elif _AS_OF.search(ahead) or (
            past and (_ON.search(ahead) or _is_relative(question, mention) or not question[: mention.start].strip())
        ):
            at = _midnight(following) - _INSTANT
        else:
            continue
        if _midnight(first) > now:
            continue
        back.append((mention, min(at, now)))
    if not back:
        return Moment("current")
    verb = _BELIEVED.search(question)
    if verb is not None:
        believed = next((each for each in back if each[0].start > verb.end()), None)
        if believed is not None:
            about = next(
                (
                    min(_midnight(following) - _INSTANT, now)
                    for mention, _, following in found
                    if mention.start != believed[0].start
                ),
                None,
            )
            return Moment("as_of", about or believed[1], believed[1])
    return Moment("as_of", back[0][1])


def _stretches(question: str, today: date, *, past: bool) -> Iterable[tuple[Mention, date, date]]:
    """Yield the first dates of a question, each with the first day of what is meant and the day after its last.

    A date at either end of the calendar is none: nothing comes before the first day, or after the last.
    """
    for mention in _mentioned(question, today, past=past):
        if not isinstance(mention.value, str):
            continue
        try:
            first, following = _stretch(mention, question, date.fromisoformat(mention.value))
        except (OverflowError, ValueError):
            continue
        if first > date.min:
            yield mention, first, following


def _mentioned(question: str, today: date, *, past: bool) -> list[Mention]:
    """Return the dates of a question in its order, and where it looks back the months that it names alone."""
    found = list(islice(dates(question, today), _MOST_DATES))
    if past:
        for match in islice(_MONTH_ALONE.finditer(question), _MOST_DATES):
            if any(each.start < match.end() and match.start() < each.end for each in found):
                continue
            month = MONTHS.index(match[1].lower()) + 1
            first = date(today.year - (month > today.month), month, 1)
            found.append(Mention("date", *match.span(), first.isoformat(), exact=False))
        found.sort(key=lambda each: each.start)
    return found[:_MOST_DATES]


def _midnight(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


def _stretch(mention: Mention, question: str, first: date) -> tuple[date, date]:
    """Return the first day of what is meant, and the day after its last."""
    if mention.exact:
        return first, first + _DAY
    said = question[mention.start : mention.end].lower()
    if "week" in said:
        return first, first + timedelta(days=2 if "weekend" in said else 7)
    if "year" in said or said.strip().isdigit():
        return first, date(first.year + 1, 1, 1)
    return first, date(first.year + first.month // 12, first.month % 12 + 1, 1)


def _is_relative(question: str, mention: Mention) -> bool:
    return (
        re.match(
            r"(?:yesterday|last|the day before|\w+ \w+ ago|\d+ \w+ ago)", question[mention.start : mention.end], re.I
        )
        is not None
    )


# whom it names --------------------------------------------------------------------------------------------------------


def names(question: str) -> list[str]:
    """Return what in a question may be a subject's key or alias, to the letter and in lower case, the longest first."""
    tokens = [match.group() for match in _TOKEN.finditer(question)][:_WORDS_READ]
    found: dict[str, None] = {}
    for length in range(min(_LONGEST_NAME, len(tokens)), 0, -1):
        for start in range(len(tokens) - length + 1):
            part = tokens[start : start + length]
            # What begins or ends with a word of grammar is no name.
            if part[0].lower() in cues.STOP or part[-1].lower() in cues.STOP:
                continue
            text = " ".join(part)
            for form in (text.rstrip("."), _POSSESSIVE.sub("", text.rstrip("."))):
                for spelled in (form, form.lower()):
                    if spelled:
                        found.setdefault(spelled)
    # Short ones weigh as much as long ones once the room is short: a name of one word is the rule.
    ordered = sorted(found, key=lambda name: (name.count(" ") > 1, -name.count(" "), not name[:1].isupper()))
    kept = set(ordered[:MOST_NAMES])
    return [name for name in found if name in kept]


# what it asks for -----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Vocabulary:
    """The words by which a tenant's attributes are spoken of, each weighed by how few attributes it speaks of."""

    phrases: dict[str, list[tuple[frozenset[str], float]]] = field(default_factory=dict)
    by_word: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    weights: dict[str, float] = field(default_factory=dict)

    def named(self, question: str) -> list[str]:
        """Return the attributes that the question speaks of, best first; equal ones by name."""
        asked = {cues.stem(word) for word in cues.words(question)}
        plain = question.casefold()
        scores: dict[str, float] = {}
        for name in {name for word in asked for name in self.by_word.get(word, ())}:
            best = 0.0
            for words, worth in self.phrases[name]:
                whole = sum(self.weights[word] for word in words)
                share = sum(self.weights[word] for word in words & asked) / whole if whole else 0.0
                best = max(best, share * worth)
            # Written out, it is meant.
            if name.casefold() in plain:
                best = 2.0
            if best >= _FITS:
                scores[name] = best
        if not scores:
            return []
        top = max(scores.values())
        return sorted(
            (name for name, score in scores.items() if score >= 0.7 * top), key=lambda name: (-scores[name], name)
        )[:_MOST_ATTRIBUTES]


def vocabulary(definitions: Sequence[AttributeDefinition]) -> Vocabulary:
    """Return the vocabulary of attributes: their names, aliases and cues, and less their descriptions."""
    made = Vocabulary()
    for each in definitions:
        last = each.name.rsplit("/", 1)[-1].rsplit(".", 1)[-1]
        said = [(last, 1.0), *((phrase, 1.0) for phrase in (*each.aliases, *each.cues))]
        phrases = [(_stems(text), worth) for text, worth in said]
        if each.description:
            phrases.append((_stems(each.description.split(". ", 1)[0]), _DESCRIPTION))
        made.phrases[each.name] = [(words, worth) for words, worth in phrases if words]
        for words, _ in phrases:
            for word in words:
                made.by_word[word].add(each.name)
    total = len(made.phrases)
    spoken = Counter({word: len(names) for word, names in made.by_word.items()})
    made.weights = {word: math.log(1 + total / number) for word, number in spoken.items()}
    return made


def _stems(text: str) -> frozenset[str]:
    found = cues.words(text)
    telling = [word for word in found if word not in cues.STOP] or found
    return frozenset(cues.stem(word) for word in telling)
