"""The identifiers of a subject that are known already, found wherever a text says them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from policies.detection.identifiers import Raw
from policies.detection.reading import Reading, folded

_NUMBER = re.compile(r"\+?[\d ().\-/]{7,}", re.ASCII)
_DIGIT = re.compile(r"\d")
_GAP = r"[ ().\-/]{0,3}"


class Known:
    """Identifiers to look for: keys and aliases of subjects, as given. Made once, used for many texts.

    Found without regard to case, diacritics, hidden characters and the width of spaces, never inside a word; a number
    of seven digits and more however its digits are grouped. One of a single character is not looked for. Says nothing
    of what it holds.
    """

    __slots__ = ("_pattern", "_said")

    def __init__(self, identifiers: Iterable[str] = ()) -> None:
        said = {" ".join(folded(each).split()) for each in identifiers}
        # The longest first: a name is found whole where a shorter one begins it.
        self._said = sorted((each for each in said if len(each) > 1), key=lambda each: (-len(each), each))
        self._pattern: re.Pattern[str] | None = None

    def __repr__(self) -> str:
        return f"<Known: {len(self._said)} identifiers>"

    def __bool__(self) -> bool:
        return bool(self._said)

    def found(self, reading: Reading) -> Iterator[Raw]:
        """Yield where the text says one of the identifiers."""
        if self._pattern is None:
            # Most texts name nobody, and a pattern costs more to make than most texts to read.
            if not any(_may_stand_in(reading.folded, each) for each in self._said):
                return
            self._pattern = re.compile("|".join(_part(each) for each in self._said))
        for found in self._pattern.finditer(reading.folded):
            yield found.start(), found.end(), "KNOWN_IDENTIFIER", "known"


def _may_stand_in(text: str, said: str) -> bool:
    return said.split(" ", 1)[0] in text or (_NUMBER.fullmatch(said) is not None and _DIGIT.search(text) is not None)


def _part(text: str) -> str:
    if _NUMBER.fullmatch(text) is not None:
        digits = [character for character in text if character.isdigit()]
        if len(digits) >= 7:
            return rf"(?<![\w+])(?:\+|00)?\(?{_GAP.join(digits)}(?!\d)"
    words = r"\s+".join(re.escape(word) for word in text.split(" "))
    start = r"(?<!\w)" if text[0].isalnum() or text[0] == "_" else ""
    end = r"(?!\w)" if text[-1].isalnum() or text[-1] == "_" else ""
    return f"{start}{words}{end}"


NOBODY = Known()
