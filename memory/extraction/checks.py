"""What a proposal must withstand before it is anything more than a proposal.

Pure. Made for extractors that are not to be trusted: models above all.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from memory.extraction.protocol import AttributeSlice, Change, EpisodeText, Evidence, Proposal, Rejection
from policies.values import SchemaRefused, ValueRefused, canonical, canonical_text
from policies.vocabulary import Cardinality

#: Longer quotes are no evidence for one value, and the door refuses them.
MAX_QUOTE = 8_000


@dataclass(frozen=True, slots=True)
class Checked:
    """What goes through, with canonical values; and what does not, by name."""

    accepted: tuple[Proposal, ...]
    rejected: tuple[Rejection, ...]

    def reasons(self) -> dict[str, int]:
        """Return how many were rejected, by reason."""
        return dict(sorted(Counter(each.reason for each in self.rejected).items()))


def check(
    episode: EpisodeText,
    attributes: Sequence[AttributeSlice],
    proposals: Iterable[Proposal],
    *,
    subjects: Collection[str] | None = None,
) -> Checked:
    """Sort proposals into accepted and rejected; one that is rejected does not sink the others.

    In this order, the first failure names the rejection:

    1. `attribute_not_offered`: it is not among `attributes`.
    2. `subject_not_offered`: it is not among `subjects` (the episode's own where none are given).
    3. The fault that the extractor itself names.
    4. `quote_missing`, `quote_too_long`, `quote_not_in_episode`: the quote stands in `content` to the letter. A span
       that does not hold the quote is corrected to the first place where it stands.
    5. `value_invalid`: the value is valid against the attribute's schema. It becomes canonical.
    6. `confidence_invalid`, `valid_from_invalid`: a number from 0 to 1; an aware instant.
    7. `repeated`: an earlier proposal says the same of the same attribute.
    8. `contradicted`: an earlier proposal gives an attribute with one value another value in this episode.

    What is now stored is read from `attributes`, never from the proposal: `change` and `current_value` are set anew.
    """
    offered = {each.definition.name: each for each in attributes}
    allowed = {episode.subject} if subjects is None else subjects
    accepted: list[Proposal] = []
    rejected: list[Rejection] = []
    said: dict[tuple[str, str], set[str]] = {}
    for proposal in proposals:
        reason, sound = _examined(episode, offered, allowed, proposal)
        if sound is not None:
            key = (sound.subject, sound.attribute)
            text = canonical_text(sound.value)
            single = offered[sound.attribute].definition.cardinality is Cardinality.SINGLE
            before = said.setdefault(key, set())
            if text in before:
                reason = "repeated"
            elif before and single:
                reason = "contradicted"
            else:
                before.add(text)
                accepted.append(sound)
                continue
        rejected.append(Rejection(reason, proposal.attribute if proposal.attribute in offered else None))
    return Checked(tuple(accepted), tuple(rejected))


def _examined(
    episode: EpisodeText,
    offered: dict[str, AttributeSlice],
    subjects: Collection[str],
    proposal: Proposal,
) -> tuple[str, Proposal | None]:
    attribute = offered.get(proposal.attribute)
    if attribute is None:
        return "attribute_not_offered", None
    if proposal.subject not in subjects:
        return "subject_not_offered", None
    if proposal.fault:
        return proposal.fault, None
    evidence = proposal.evidence
    if not evidence.quote.strip():
        return "quote_missing", None
    if len(evidence.quote) > MAX_QUOTE:
        return "quote_too_long", None
    if evidence.start < 0 or episode.content[evidence.start : evidence.end] != evidence.quote:
        start = episode.content.find(evidence.quote)
        if start < 0:
            return "quote_not_in_episode", None
        evidence = Evidence(evidence.quote, start, start + len(evidence.quote))
    try:
        value = canonical(attribute.definition.value_schema, proposal.value)
    except (ValueRefused, SchemaRefused):
        return "value_invalid", None
    confidence = proposal.confidence
    if isinstance(confidence, bool) or not isinstance(confidence, int | float) or not math.isfinite(confidence):
        return "confidence_invalid", None
    if not 0 <= confidence <= 1:
        return "confidence_invalid", None
    if not isinstance(proposal.valid_from, datetime) or proposal.valid_from.tzinfo is None:
        return "valid_from_invalid", None
    change, current = compared(attribute, value, same_subject=proposal.subject == episode.subject)
    return "", replace(
        proposal, evidence=evidence, value=value, confidence=float(confidence), change=change, current_value=current
    )


def compared(attribute: AttributeSlice, value: Any, *, same_subject: bool = True) -> tuple[Change, Any]:
    """Return what a canonical value changes, and the stored value that it repeats or would replace.

    Values are equal when their canonical texts are. A further value of a `multi` attribute replaces none: it is new.
    What is stored belongs to the episode's subject; of another subject nothing is known here.
    """
    stored = [each.value for each in attribute.current] if same_subject else []
    text = canonical_text(value)
    for each in stored:
        if canonical_text(each) == text:
            return "no_change", each
    if stored and attribute.definition.cardinality is Cardinality.SINGLE:
        return "update", stored[0]
    return "new", None
