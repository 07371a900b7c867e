"""What a text holds that raises its class, must be masked, or speaks to the agent.

Pure: no Django, no clock, no network, no state but compiled patterns. A detector only raises; it never lowers a class
and takes nothing out. What it does not find is not thereby absent: names and places are looked for by the extra of
`policies.detection.names` alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from policies.detection.credentials import assigned, secrets
from policies.detection.hostile import hidden, instructions
from policies.detection.identifiers import Raw, structured
from policies.detection.known import NOBODY, Known
from policies.detection.reading import Reading
from policies.detection.spans import RAISES, Finding, Findings, Group, masked, masks, raised, settled
from policies.detection.words import CATEGORIES, special_categories

__all__ = [
    "DETECTORS",
    "STRUCTURED",
    "Finding",
    "Findings",
    "Group",
    "Known",
    "Leaf",
    "detect",
    "findings_in",
    "masked",
    "masks",
    "raised",
]

#: The structured types whose quality is measured against public data.
STRUCTURED = ("EMAIL_ADDRESS", "CREDIT_CARD", "IBAN_CODE", "US_SSN", "PHONE_NUMBER", "IP_ADDRESS")

#: Every detector and its group; an attribute's `not_detected` may name either, so that no name is ever taken away.
DETECTORS: dict[str, Group] = {
    **dict.fromkeys(("email", "card", "iban", "us_ssn", "phone", "ip", "national_id"), Group.IDENTIFIER),
    "known": Group.KNOWN,
    **dict.fromkeys(CATEGORIES, Group.SPECIAL),
    **dict.fromkeys(
        (
            "aws_key",
            "github_token",
            "gitlab_token",
            "slack_token",
            "stripe_key",
            "model_key",
            "google_key",
            "package_token",
            "sendgrid_key",
            "jwt",
            "private_key",
            "url_password",
            "authorization",
            "password",
            "secret",
            "pin",
        ),
        Group.CREDENTIAL,
    ),
    # By a model, where one is installed and named (`policies.detection.names`).
    **dict.fromkeys(("person", "place"), Group.NAME),
    **dict.fromkeys(("invisible_characters", "bidi_controls", "tag_characters"), Group.HIDDEN),
    **dict.fromkeys(("override", "persona", "disclosure", "secrecy", "addressed", "control_words"), Group.INSTRUCTION),
}


def detect(text: str, *, known: Known = NOBODY, omit: Collection[str] = frozenset(), name: str = "") -> Findings:
    """Return what `text` holds, in its order and without overlap; never raises, whatever the text.

    1. Identifiers that are known of the subject, exactly.
    2. Structured identifiers, with their check digits.
    3. Credentials.
    4. Words of special categories.
    5. Marks: hidden characters, and instructions aimed at the agent. They may lie over the others.

    `name` is what the text is called, of an attribute or a field: a number named `phone` is a phone. Detectors and
    groups that `omit` names do not run. All but the hidden characters are looked for in the text as a reader sees it,
    so that a zero-width space hides nothing. Same arguments, same findings.
    """
    if not text:
        return ()
    lead = f"{name.translate(_SPACED)}: " if name else ""
    reading = Reading(lead + text)
    found: list[Finding] = []
    for start, end, kind, detector in _raw(reading, known, omit):
        if start < end and detector not in omit:
            start, end = reading.span(start, end)
            found.append(_finding(start - len(lead), end - len(lead), kind, detector))
    if lead and Group.CREDENTIAL not in omit:
        found.extend(_finding(*each) for each in assigned(name, text) if each[3] not in omit)
    if lead:
        # What the name itself says is no part of the text.
        found = [each for each in found if each.start >= 0]
    if Group.HIDDEN not in omit:
        for start, end, kind, detector, said in hidden(text):
            if detector not in omit:
                found.append(_finding(start, end, kind, detector, said))
    return settled(found)


_SPACED = str.maketrans("_-.", "   ")


def _finding(start: int, end: int, kind: str, detector: str, said: str = "") -> Finding:
    group = DETECTORS[detector]
    return Finding(start, end, kind, detector, group, RAISES[group], said)


def _raw(reading: Reading, known: Known, omit: Collection[str]) -> Iterator[Raw]:
    if known and Group.KNOWN not in omit:
        yield from known.found(reading)
    if Group.IDENTIFIER not in omit:
        yield from structured(reading)
    if Group.CREDENTIAL not in omit:
        yield from secrets(reading)
    if Group.SPECIAL not in omit:
        yield from special_categories(reading)
    if Group.INSTRUCTION not in omit:
        yield from instructions(reading)


@dataclass(frozen=True, slots=True)
class Leaf:
    """Findings in one text of a JSON value: `path` leads to it, `is_name` where it is the field's name itself.

    The spans are those of the text, of a number's decimal text for a number.
    """

    path: tuple[str | int, ...]
    is_name: bool
    findings: Findings


_SMALL = 1_000_000


def findings_in(
    value: Any, *, known: Known = NOBODY, omit: Collection[str] = frozenset(), name: str = ""
) -> tuple[Leaf, ...]:
    """Return the findings of every text in a JSON value, in its order; leaves without findings are left out.

    Texts, names of fields, and whole numbers of seven digits and more count. A field's name tells what its text is,
    `name` what the value is: `{"password": "..."}` holds a credential. Depth is no matter.
    """
    leaves: list[Leaf] = []
    waiting: list[tuple[tuple[str | int, ...], Any, str, bool]] = [((), value, name, False)]
    while waiting:
        path, item, called, is_name = waiting.pop()
        if isinstance(item, dict):
            for key, inner in reversed(item.items()):
                waiting.append(((*path, key), inner, key, False))
                waiting.append(((*path, key), key, "", True))
            continue
        if isinstance(item, list | tuple):
            waiting.extend(((*path, index), inner, called, False) for index, inner in reversed(list(enumerate(item))))
            continue
        if isinstance(item, int) and not isinstance(item, bool) and _SMALL <= item < 10**40:
            item = str(item)
        if isinstance(item, str):
            findings = detect(item, known=known, omit=omit, name=called)
            if findings:
                leaves.append(Leaf(path, is_name, findings))
    return tuple(leaves)
