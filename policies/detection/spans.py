"""What a detector found: findings, how overlapping ones are settled, and how their spans are masked."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from policies.vocabulary import Sensitivity


class Group(StrEnum):
    """What kind of thing a detector looks for; an attribute may name a group where it may name a detector."""

    IDENTIFIER = "identifier"
    KNOWN = "known"
    SPECIAL = "special"
    CREDENTIAL = "credential"
    NAME = "name"
    HIDDEN = "hidden"
    INSTRUCTION = "instruction"


#: The class that a finding raises its text to. Hidden characters and instructions are marks: they raise nothing.
RAISES: dict[Group, Sensitivity] = {
    Group.IDENTIFIER: Sensitivity.PERSONAL,
    Group.KNOWN: Sensitivity.PERSONAL,
    Group.SPECIAL: Sensitivity.RESTRICTED,
    Group.NAME: Sensitivity.PERSONAL,
    Group.CREDENTIAL: Sensitivity.RESTRICTED,
    Group.HIDDEN: Sensitivity.PUBLIC,
    Group.INSTRUCTION: Sensitivity.PUBLIC,
}

_MARKS = frozenset((Group.HIDDEN, Group.INSTRUCTION))

# A credential is masked whole, whatever stands in it; after that the longer span says more.
_FIRST = {Group.CREDENTIAL: 0, Group.KNOWN: 1, Group.IDENTIFIER: 2, Group.SPECIAL: 3, Group.NAME: 4}


@dataclass(frozen=True, slots=True)
class Finding:
    """One span of a text (characters, end exclusive) and why it matters. It holds no content.

    `type` is what is found (`EMAIL_ADDRESS`), `detector` who found it (`email`), `name` the Unicode name of a hidden
    character and otherwise empty. `raises` is at least the class of the group: a finding takes over the class of what
    it covers.
    """

    start: int
    end: int
    type: str
    detector: str
    group: Group
    raises: Sensitivity
    name: str = ""


Findings = tuple[Finding, ...]


def settled(found: Iterable[Finding]) -> Findings:
    """Return findings without overlap, in the order of the text, so that no identifier or credential is left uncovered.

    Credentials come before everything, then the longer span, then known identifiers, identifiers and words, then the
    earlier span, then the detector's name. What loses keeps the part of its span that is not taken (a phrase
    keeps nothing), and raises the winner to its class. Marks lie over the rest: they are settled among themselves.
    """
    found = list(found)
    if len(found) < 2:
        return tuple(found)
    content = [finding for finding in found if finding.group not in _MARKS]
    marks = [finding for finding in found if finding.group in _MARKS]
    settled_all = _without_overlap(content) + _without_overlap(marks)
    settled_all.sort(key=lambda each: (each.start, each.end, each.group, each.detector))
    return tuple(settled_all)


def _without_overlap(found: list[Finding]) -> list[Finding]:
    found.sort(key=lambda each: (each.start, each.end))
    taken: list[Finding] = []
    cluster: list[Finding] = []
    reach = -1
    for finding in found:
        if finding.start >= reach and cluster:
            taken.extend(_winners(cluster))
            cluster = []
        cluster.append(finding)
        reach = max(reach, finding.end)
    taken.extend(_winners(cluster))
    return taken


def _winners(cluster: list[Finding]) -> list[Finding]:
    """Settle findings that hang together by overlap."""
    if len(cluster) < 2:
        return cluster
    cluster.sort(
        key=lambda each: (
            each.group is not Group.CREDENTIAL,
            each.start - each.end,
            _FIRST.get(each.group, 9),
            each.start,
            each.detector,
        )
    )
    taken: list[Finding] = []
    for finding in cluster:
        left = [(finding.start, finding.end)]
        for position, winner in enumerate(taken):
            if winner.start < finding.end and finding.start < winner.end:
                if finding.raises > winner.raises:
                    taken[position] = replace(winner, raises=finding.raises)
                left = [
                    piece
                    for start, end in left
                    for piece in ((start, min(end, winner.start)), (max(start, winner.end), end))
                    if piece[0] < piece[1]
                ]
        whole = left == [(finding.start, finding.end)]
        # What is left of a phrase says nothing.
        if whole or finding.group is not Group.SPECIAL:
            taken.extend(replace(finding, start=start, end=end) for start, end in left)
    return taken


def raised(findings: Iterable[Finding], omit: Collection[str] = ()) -> Sensitivity:
    """Return the highest class that the findings raise to; PUBLIC where nothing does.

    `omit` names detectors or groups that do not count. A finding that took over a higher class keeps it, so that what
    is to be left out altogether belongs into the `omit` of `detect`.
    """
    return max(
        (finding.raises for finding in findings if finding.detector not in omit and finding.group not in omit),
        default=Sensitivity.PUBLIC,
    )


#: What stands in the placeholder of a type; any other type stands for itself.
_LABELS = {
    "EMAIL_ADDRESS": "EMAIL",
    "CREDIT_CARD": "CARD",
    "IBAN_CODE": "IBAN",
    "US_SSN": "SSN",
    "PHONE_NUMBER": "PHONE",
    "IP_ADDRESS": "IP",
    "KNOWN_IDENTIFIER": "KNOWN",
}


def masks(
    text: str, findings: Sequence[Finding], types: Collection[str] | None = None, *, numbered: bool = False
) -> list[tuple[int, int, str]]:
    """Return the spans that `masked` replaces, each with what it puts there, in the order of the text."""
    found: list[tuple[int, int, str]] = []
    position = 0
    numbers: dict[tuple[str, str], int] = {}
    counts: dict[str, int] = {}
    for finding in sorted(findings, key=lambda each: (each.start, -each.end)):
        if types is not None and finding.type not in types:
            continue
        start = max(finding.start, position)
        if start >= finding.end:
            continue
        label = _LABELS.get(finding.type, finding.type)
        if numbered:
            key = (label, text[start : finding.end])
            if key not in numbers:
                counts[label] = numbers[key] = counts.get(label, 0) + 1
            label = f"{label} {numbers[key]}"
        found.append((start, finding.end, f"‹{label}›"))
        position = finding.end
    return found


def masked(
    text: str, findings: Sequence[Finding], types: Collection[str] | None = None, *, numbered: bool = False
) -> str:
    """Return `text` with the spans of the given types (None: all) replaced by placeholders such as `‹EMAIL›`.

    With `numbered` each distinct spelling of a type has a number of its own, in the order of the text: `‹EMAIL 1›`.
    Nothing of a chosen span is left, overlapping spans included.
    """  # noqa: RUF002
    pieces: list[str] = []
    position = 0
    for start, end, placeholder in masks(text, findings, types, numbered=numbered):
        pieces += (text[position:start], placeholder)
        position = end
    pieces.append(text[position:])
    return "".join(pieces)
