"""A text as detectors read it: without hidden characters, in plain characters, with the way back to the original."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

#: Characters that a reader does not see: zero width, bidi controls, fillers, variation selectors, tags.
HIDDEN = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\U0001d173-\U0001d17a\U000e0000-\U000e0fff]+"
)

# Letters that stand for two, and the ones that decomposition does not take apart.
_PAIRS = {"ß": "ss", "ẞ": "SS", "æ": "ae", "Æ": "AE", "œ": "oe", "Œ": "OE", "ﬀ": "ff", "ﬁ": "fi", "ﬂ": "fl"}
_STROKES = {"ł": "l", "Ł": "L", "ø": "o", "Ø": "O", "đ": "d", "Đ": "D", "ħ": "h", "ı": "i", "ŧ": "t"}
_DASHES = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe58\ufe63\uff0d"
# Quotes as ASCII, so that what detectors expect around a value is one character each.
_QUOTES = {"\u2018": "'", "\u2019": "'", "\u201a": "'", "\u201c": '"', "\u201d": '"', "\u201e": '"', "«": '"', "»": '"'}

# Where one of these stands, the plain text has another length than the original.
_UNEVEN = re.compile(f"[\u0300-\u036f{''.join(_PAIRS)}]|{HIDDEN.pattern}")


def _plain(character: str) -> str:
    if character in _DASHES:
        return "-"
    if character in _QUOTES:
        return _QUOTES[character]
    compatible = unicodedata.normalize("NFKC", character)
    if len(compatible) != 1:
        return character
    if compatible.isdecimal() and not compatible.isascii():
        return str(unicodedata.decimal(compatible))
    return " " if compatible != "\n" and compatible.isspace() else compatible


def _folded(character: str) -> str:
    bare = unicodedata.normalize("NFD", _STROKES.get(character, character))[0]
    if bare >= "\u0400":
        # Beyond Latin and Greek a mark makes another letter.
        bare = character
    lower = bare.lower()
    return lower if len(lower) == 1 else bare


class _Table(dict[int, str]):
    """A translation table that is filled as characters come; bounded by the characters there are."""

    def __init__(self, of: object) -> None:
        self._of = of

    def __missing__(self, code: int) -> str:
        made: str = self._of(chr(code))  # type: ignore[operator]
        self[code] = made
        return made


_TO_PLAIN = _Table(_plain)
_TO_FOLDED = _Table(_folded)


class Reading:
    """`plain`: compatibility forms, dashes, spaces and digits as ASCII; `folded`: also lower case, no diacritics.

    Both have one length; `span` gives the place of a part of them in the original text.
    """

    __slots__ = ("_places", "folded", "plain", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._places: list[int] | None = None
        if text.isascii():
            self.plain = text
            self.folded = text.lower()
            return
        if _UNEVEN.search(text) is not None:
            text = self._evened(text)
        self.plain = text.translate(_TO_PLAIN)
        self.folded = self.plain.translate(_TO_FOLDED)

    def _evened(self, text: str) -> str:
        kept: list[str] = []
        places: list[int] = []
        for place, character in enumerate(text):
            if "\u0300" <= character <= "\u036f" or HIDDEN.match(character):
                continue
            written = _PAIRS.get(character, character)
            kept.append(written)
            places.extend([place] * len(written))
        self._places = places
        return "".join(kept)

    def span(self, start: int, end: int) -> tuple[int, int]:
        """Return where the (not empty) part from `start` to `end` stands in the original text."""
        places = self._places
        if places is None:
            return start, end
        end = places[end - 1] + 1
        # A mark that belongs to the last character goes with it.
        while end < len(self.text) and "\u0300" <= self.text[end] <= "\u036f":
            end += 1
        return places[start], end


@lru_cache(maxsize=4096)
def folded(text: str) -> str:
    """Return a short text as `Reading` folds it."""
    return Reading(text).folded
