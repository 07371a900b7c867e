"""The identifiers of a subject that are known already, found wherever a text says them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from policies.detection.identifiers import Raw
from policies.detection.reading import Reading, folded

_NUMBER = re.compile(r"\+?[\d ().\-/]{7,}", re.ASCII)
_GAP = r"[ ().\-/]{0,3}"


class Known:
    """Identifiers to look for: keys and aliases of subjects, as given. Made once, used for many texts.

    Found without regard to case, diacritics, hidden characters and the width of spaces, never inside a word; a number
    of seven digits and more however its digits are grouped. One of a single character is not looked for. Says nothing
    of what it holds.
    """

    __slots__ = ("_pattern", "_size")

    def __init__(self, identifiers: Iterable[str] = ()) -> None:
        parts = {part for part in (_part(each) for each in identifiers) if part}
        self._size = len(parts)
        # The longest first: a name is found whole where a shorter one begins it.
        ordered = sorted(parts, key=lambda part: (-len(part), part))
        self._pattern = re.compile("|".join(ordered)) if ordered else None

    def __repr__(self) -> str:
        return f"<Known: {self._size} identifiers>"

    def __bool__(self) -> bool:
        return self._pattern is not None

    def found(self, reading: Reading) -> Iterator[Raw]:
        """Yield where the text says one of the identifiers."""
        if self._pattern is not None:
            for found in self._pattern.finditer(reading.folded):
                yield found.start(), found.end(), "KNOWN_IDENTIFIER", "known"


def _part(identifier: str) -> str:
    text = " ".join(folded(identifier).split())
    if len(text) < 2:
        return ""
    if _NUMBER.fullmatch(text) is not None:
        digits = [character for character in text if character.isdigit()]
        if len(digits) >= 7:
            return rf"(?<![\w+])(?:\+|00)?\(?{_GAP.join(digits)}(?!\d)"
    words = r"\s+".join(re.escape(word) for word in text.split(" "))
    start = r"(?<!\w)" if text[0].isalnum() or text[0] == "_" else ""
    end = r"(?!\w)" if text[-1].isalnum() or text[-1] == "_" else ""
    return f"{start}{words}{end}"


NOBODY = Known()
