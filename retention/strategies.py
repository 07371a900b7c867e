"""What takes the place of content that is redacted: five strategies, from nothing at all to a name that stays the same.

Pure. None can be turned back: what is left says less than what stood there, whoever has it, and says it alike for many
values. A pseudonym is keyed by the caller, under a key that ends with its subject.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from hashlib import sha256
from hmac import new as hmac
from typing import Any

from policies.values import canonical_text


class Strategy(StrEnum):
    """What is left in place of content. The list is closed in the database too."""

    NULL = "null"
    MASK = "mask"
    MASK_TAIL = "mask_tail"
    GENERALISE = "generalise"
    PSEUDONYM = "pseudonym"


#: What stands for masked content. Always as long, so that it does not say how long that was.
MASK = "•••••"
#: What stands in a text where something was taken out and nothing is left.
GONE = "‹redacted›"
#: A tail is at most this long, and at most a quarter of what it is the tail of.
_LONGEST_TAIL = 4

#: Where in a value: names of fields and places in lists.
Path = tuple[str | int, ...]


def null(value: Any) -> None:
    """Leave nothing."""


def mask(value: Any) -> str:
    """Leave a mark that is the same for every value."""
    return MASK


def mask_tail(value: Any) -> str:
    """Leave the last characters: four, and never more than a quarter of what was there; of a short value none."""
    text = _as_text(value)
    tail = text[len(text) - min(_LONGEST_TAIL, len(text) // 4) :]
    return f"{MASK}{tail}"


def generalise(value: Any) -> Any:
    """Leave the coarse part: of a date its year, of a number its order, of an address where it belongs; else a mark.

    `2026-07-15` is left as `2026`, `37` as `30 to 39`, `4711` as `4000 to 4999`, `10115` (a text of digits) as `10…`,
    `mira@example.com` as `…@example.com`, `+49 30 901820` as `+49…`, `192.0.2.7` as `192.0.…`. A mark stands for whatever
    has no coarse part that would say less: words, truth values, lists.
    """
    if isinstance(value, bool) or value is None:
        return MASK
    if isinstance(value, int | float | Decimal):
        return _order(Decimal(str(value)))
    if isinstance(value, datetime | date):
        return str(value.year)
    if not isinstance(value, str):
        return MASK
    text = value.strip()
    for form, coarse in _FORMS:
        found = form.fullmatch(text)
        if found is not None:
            return coarse(found)
    return MASK


def pseudonym(value: Any, key: bytes) -> str:
    """Leave a name that equal values share under `key`, and by which none can be told without that key."""
    digest = hmac(key, b"muniment pseudonym\x00" + canonical_text(value).encode("utf-8"), sha256).digest()
    return f"p-{digest[:10].hex()}"


def redacted(value: Any, strategy: Strategy, key: bytes) -> Any:
    """Return what is left of `value`. What stands inside lists and objects is not left: pick fields for that."""
    if strategy is Strategy.PSEUDONYM:
        return pseudonym(value, key)
    return _PLAIN[strategy](value)


# parts of a value -----------------------------------------------------------------------------------------------------


def declared(schema: Mapping[str, Any], path: str) -> Path | None:
    """Return the way that `path` (`address.street`, `phones.0`) names in values of `schema`; None for one it does not declare.

    A name that the schema does not declare may itself be content: it cannot be told apart from the others in a record.
    """
    steps: list[str | int] = []
    inner: Any = schema
    for step in path.split("."):
        if not isinstance(inner, Mapping):
            return None
        properties, items = inner.get("properties"), inner.get("items")
        if isinstance(properties, Mapping) and step in properties:
            steps.append(step)
            inner = properties[step]
        elif isinstance(items, Mapping | bool) and re.fullmatch(r"0|[1-9][0-9]{0,5}", step):
            steps.append(int(step))
            inner = items
        else:
            return None
    return tuple(steps)


def leaves(schema: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Return the fields of objects of `schema` that may be picked, by their paths, in the order of their declaration."""
    found: list[str] = []
    properties = schema.get("properties")
    if isinstance(properties, Mapping):
        for name, inner in properties.items():
            path = f"{prefix}{name}"
            found.append(path)
            if isinstance(inner, Mapping):
                found += leaves(inner, f"{path}.")
    return found


def without(value: Any, paths: Sequence[Path], strategy: Strategy, key: bytes) -> Any:
    """Return `value` with what stands at `paths` redacted; the rest is as it was. A path that leads nowhere changes nothing."""
    for path in sorted(paths, key=len, reverse=True):
        value = _replaced(value, path, strategy, key)
    return value


def _replaced(value: Any, path: Path, strategy: Strategy, key: bytes) -> Any:
    if not path:
        return redacted(value, strategy, key)
    step, rest = path[0], path[1:]
    if isinstance(value, dict) and step in value:
        return {name: _replaced(each, rest, strategy, key) if name == step else each for name, each in value.items()}
    if isinstance(value, list) and isinstance(step, int) and step < len(value):
        return [_replaced(each, rest, strategy, key) if place == step else each for place, each in enumerate(value)]
    return value


# parts of a text ------------------------------------------------------------------------------------------------------

#: Where in a text: first character, and after the last.
Span = tuple[int, int]


def joined(spans: Sequence[Span]) -> list[Span]:
    """Return spans in the order of the text, those that touch or overlap as one."""
    found: list[Span] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


def cut(text: str, spans: Sequence[Span], strategy: Strategy, key: bytes) -> str:
    """Return `text` with each span replaced by what the strategy leaves of it. Nothing outside of the spans changes."""
    pieces: list[str] = []
    at = 0
    for start, end in joined(spans):
        left = redacted(text[start:end], strategy, key)
        pieces += (text[at:start], GONE if left is None else str(left))
        at = end
    return "".join((*pieces, text[at:]))


def touched(text: str, quote: str, spans: Sequence[Span]) -> bool:
    """Whether a quote of `text` says anything of what the spans hold: where it stands in them, or says the same elsewhere."""
    if not quote:
        return False
    at = text.find(quote)
    while at >= 0:
        if any(at < end and start < at + len(quote) for start, end in spans):
            return True
        at = text.find(quote, at + 1)
    said = quote.casefold()
    return any(text[start:end].strip().casefold() in said for start, end in spans if text[start:end].strip())


# how it is done -------------------------------------------------------------------------------------------------------


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else canonical_text(value)


def _order(number: Decimal) -> str:
    """Return the range of numbers that begin with the same digit and are as long; ten of those below ten."""
    if not number.is_finite():
        return MASK
    sign, size = ("-" if number < 0 else ""), abs(number)
    if size < 10:
        return f"{sign}0 to {sign}9"
    step = Decimal(10) ** size.adjusted()
    low = int(size // step * step)
    return f"{sign}{low} to {sign}{low + int(step) - 1}"


def _number(found: re.Match[str]) -> str:
    try:
        return _order(Decimal(found["number"]))
    except InvalidOperation:
        return MASK


@dataclass(frozen=True, slots=True)
class _Kept:
    """Leaves what a group of the form found, between what says that more stood there."""

    name: str
    before: str = ""
    after: str = ""

    def __call__(self, found: re.Match[str]) -> str:
        return f"{self.before}{found[self.name]}{self.after}"


# What is more particular comes first. Each leaves strictly less than it matches.
_FORMS: Sequence[tuple[re.Pattern[str], Callable[[re.Match[str]], str]]] = (
    (re.compile(r"(?P<year>[0-9]{4})-[0-9]{2}(-[0-9]{2}([Tt ].*)?)?", re.DOTALL), _Kept("year")),
    (re.compile(r"[^\s@]+@(?P<domain>[^\s@]+\.[^\s@]+)"), _Kept("domain", before="…@")),
    (re.compile(r"(?P<net>[0-9]{1,3}\.[0-9]{1,3})\.[0-9]{1,3}\.[0-9]{1,3}"), _Kept("net", after=".…")),
    (re.compile(r"(?P<code>\+[1-9][0-9]{0,2})[ ()./-][0-9 ()./-]{5,}"), _Kept("code", after="…")),
    (re.compile(r"(?P<code>\+[1-9][0-9])[0-9]{6,13}"), _Kept("code", after="…")),
    # Postal codes: of digits, with or without a country's letter before them, and British ones.
    (re.compile(r"(?P<area>([A-Z]{1,2}-)?[0-9]{2})[0-9]{2,3}(-[0-9]{3,4})?"), _Kept("area", after="…")),
    (re.compile(r"(?P<area>[A-Z]{1,2})[0-9][0-9A-Z]? ?[0-9][A-Z]{2}"), _Kept("area", after="…")),
    (re.compile(r"(?P<number>-?[0-9]{1,15}(\.[0-9]{1,15})?)( ?[A-Z]{3})?"), _number),
    (re.compile(r"(?P<host>https?://[^/\s?#@:]+)[/?#:]\S*"), _Kept("host", after="/…")),
)

_PLAIN: Mapping[Strategy, Callable[[Any], Any]] = {
    Strategy.NULL: null,
    Strategy.MASK: mask,
    Strategy.MASK_TAIL: mask_tail,
    Strategy.GENERALISE: generalise,
}
