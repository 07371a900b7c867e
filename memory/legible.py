"""Text that somebody sent, cut into pieces that a page can show safely: what is quoted, and what is meant not to be seen.

Pure. Nothing is removed: a character that would not show, or would turn the line around, is named instead.
"""

import unicodedata
from dataclasses import dataclass

#: Categories of characters that do not show by themselves: controls, formats (bidi, joiners, tags), separators, unassigned.
_UNSEEN = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"})


@dataclass(frozen=True, slots=True)
class Piece:
    """A run of text. `quoted`: part of the evidence; `unseen`: the name of one character that would not show."""

    text: str
    quoted: bool
    unseen: bool


def pieces(text: str, quote: str = "", *, around: int = 1_500) -> list[Piece]:
    """Cut `text` into pieces with the first `quote` in it marked, at most `around` characters before and after it."""
    at = text.find(quote) if quote else -1
    first, last = (at, at + len(quote)) if at >= 0 else (0, 0)
    begin, end = max(0, first - around), min(len(text), last + around)
    found: list[Piece] = [Piece("… ", False, False)] if begin else []
    for part, quoted in ((text[begin:first], False), (text[first:last], True), (text[last:end], False)):
        run = ""
        for letter in part:
            if letter in "\n\t" or unicodedata.category(letter) not in _UNSEEN:
                run += letter
                continue
            if run:
                found.append(Piece(run, quoted, False))
                run = ""
            found.append(Piece(f"U+{ord(letter):04X}", quoted, True))
        if run:
            found.append(Piece(run, quoted, False))
    if end < len(text):
        found.append(Piece(" …", False, False))
    return found
