"""Text that somebody sent, cut into pieces that a page can show safely: what is quoted, and what is meant not to be seen.

Pure. Nothing is removed: a character that would not show, or would turn the line around, is named instead.
"""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher

from policies.detection import detect
from policies.detection.hostile import hidden
from policies.detection.known import Known
from policies.detection.spans import Group

#: Categories of characters that do not show by themselves: controls, formats (bidi, joiners, tags), separators, unassigned.
_UNSEEN = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"})


@dataclass(frozen=True, slots=True)
class Piece:
    """A run of text.

    `quoted`: part of the evidence; `unseen`: the name of one character that would not show; `changed`: it stands on one
    side of a comparison only; `masked`: the name of what stands here and is not shown. `covers` is how many characters of
    the text it stands for, where these are not its own: of a mask those beneath it, of an ellipsis
    those that are left out.
    """

    text: str
    quoted: bool
    unseen: bool
    changed: bool = False
    masked: bool = False
    covers: int | None = field(default=None, compare=False)


def pieces(text: str, quote: str = "", *, around: int = 1_500) -> list[Piece]:
    """Cut `text` into pieces with the first `quote` in it marked, at most `around` characters before and after it."""
    # Letters and marks that do not show either: fillers, selectors where no symbol takes one.
    unseen = {place for start, end, *_ in hidden(text) for place in range(start, end)}
    at = text.find(quote) if quote else -1
    first, last = (at, at + len(quote)) if at >= 0 else (0, 0)
    begin, end = max(0, first - around), min(len(text), last + around)
    found: list[Piece] = [Piece("… ", False, False, covers=begin)] if begin else []
    for start, stop, quoted in ((begin, first, False), (first, last, True), (last, end, False)):
        run = ""
        for place in range(start, stop):
            letter = text[place]
            if letter in "\n\t" or (unicodedata.category(letter) not in _UNSEEN and place not in unseen):
                run += letter
                continue
            if run:
                found.append(Piece(run, quoted, False))
                run = ""
            found.append(Piece(f"U+{ord(letter):04X}", quoted, True, covers=1))
        if run:
            found.append(Piece(run, quoted, False))
    if end < len(text):
        found.append(Piece(" …", False, False, covers=len(text) - end))
    return found


#: What names a person, or opens something: not needed to judge a quote that stands beside it.
_VEILED = frozenset({Group.IDENTIFIER, Group.KNOWN, Group.CREDENTIAL, Group.NAME})
#: What a mask says stands there.
_NAMED = {
    "EMAIL_ADDRESS": "EMAIL",
    "PHONE_NUMBER": "PHONE",
    "CREDIT_CARD": "CARD",
    "IBAN_CODE": "IBAN",
    "IP_ADDRESS": "IP",
}


def veiled(text: str, quote: str = "", *, names: Sequence[str] = (), around: int = 1_500) -> list[Piece]:
    """Cut `text` into pieces with the first `quote` in it in clear, and what names a person beside it masked by its type.

    `names` are what its subject is called. Where there is no quote, all of it is beside.
    """
    at = text.find(quote) if quote else -1
    first, last = (at, at + len(quote)) if at >= 0 else (0, 0)
    begin, end = max(0, first - around), min(len(text), last + around)
    known = Known(tuple(names))
    found: list[Piece] = [Piece("… ", False, False, covers=begin)] if begin else []
    for start, stop in ((begin, first), (last, end)):
        if start == last and at >= 0:
            found += [replace(piece, quoted=True) for piece in pieces(quote, around=len(quote))]
        side, at_side = text[start:stop], 0
        for each in detect(side, known=known):
            if each.group not in _VEILED or each.start < at_side:
                continue
            found += pieces(side[at_side : each.start], around=stop)
            covers = each.end - each.start
            found.append(Piece(_NAMED.get(each.type, each.type), False, False, masked=True, covers=covers))
            at_side = each.end
        found += pieces(side[at_side:], around=stop)
    if end < len(text):
        found.append(Piece(" …", False, False, covers=len(text) - end))
    return found


def marked(text: str, spans: Sequence[tuple[int, int]], *, veil: bool = True, around: int = 1_500) -> list[Piece]:
    """Cut `text` into pieces with each of the `spans` marked, and (`veil`) what names a person beside them masked.

    `spans` go up and do not overlap; what reaches past the text is cut off. Shown is `around` before the first and after the last.
    """
    within = [(start, min(end, len(text))) for start, end in spans if start < len(text)]
    first, last = (within[0][0], within[-1][1]) if within else (0, 0)
    begin, end = max(0, first - around), min(len(text), last + around)
    side = veiled if veil else pieces
    found: list[Piece] = [Piece("… ", False, False, covers=begin)] if begin else []
    at = begin
    for start, stop in within:
        found += side(text[at:start], around=start)
        found += [replace(piece, quoted=True) for piece in pieces(text[start:stop], around=stop)]
        at = stop
    found += side(text[at:end], around=end)
    if end < len(text):
        found.append(Piece(" …", False, False, covers=len(text) - end))
    return found


#: Longer values are set side by side without saying where they differ.
_COMPARED = 2_000
_WORDS = re.compile(r"\w+|\W")


def compared(old: str, new: str) -> tuple[list[Piece], list[Piece]]:
    """Cut two values into pieces, each word that stands on one side only marked as changed."""
    if max(len(old), len(new)) > _COMPARED:
        return pieces(old), pieces(new)
    before, after = _WORDS.findall(old), _WORDS.findall(new)
    sides: tuple[list[Piece], list[Piece]] = ([], [])
    for what, a, b, c, d in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        for side, run in ((sides[0], "".join(before[a:b])), (sides[1], "".join(after[c:d]))):
            side += [replace(piece, changed=what != "equal") for piece in pieces(run)]
    return sides


@dataclass(frozen=True, slots=True)
class Change:
    """A run of a text that became another: `kept`, `gone` from the old one, or `new` in the other."""

    kind: str
    pieces: list[Piece]


#: Of longer runs of lines it is said that they changed, not which words of them did.
_MOST_WORDS = 3_000
#: Lines that have less in common than this are another text: told word by word they would be read by nobody.
_ALIKE = 0.6


def changes(old: str, new: str) -> list[Change]:
    """Tell word by word how one text became another, as one text: what stands in both, what went, what came.

    Lines are held against lines first, and words against words only where lines differ, so that a long text takes no more than
    its changes. Read without what went it is the new text, without what came the old one.
    """
    found: list[Change] = []
    before, after = old.splitlines(keepends=True), new.splitlines(keepends=True)
    for what, a, b, c, d in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        gone, came = "".join(before[a:b]), "".join(after[c:d])
        if what == "equal":
            _run(found, "kept", gone)
            continue
        words, others = _WORDS.findall(gone), _WORDS.findall(came)
        if not words or not others or max(len(words), len(others)) > _MOST_WORDS:
            _run(found, "gone", gone)
            _run(found, "new", came)
            continue
        matched = SequenceMatcher(None, words, others, autojunk=False)
        if matched.ratio() < _ALIKE:
            _run(found, "gone", gone)
            _run(found, "new", came)
            continue
        for how, i, j, k, m in matched.get_opcodes():
            if how == "equal":
                _run(found, "kept", "".join(words[i:j]))
            else:
                _run(found, "gone", "".join(words[i:j]))
                _run(found, "new", "".join(others[k:m]))
    return found


def _run(found: list[Change], kind: str, text: str) -> None:
    if text:
        found.append(Change(kind, pieces(text, around=len(text))))
