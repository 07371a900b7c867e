"""Which entries of the index answer a question best: BM25 over what was found, and what surrounds it.

Pure: no Django, no clock, no content. The same entries in any order give the same ranking. Weights were set on public
dialogues and meetings (`manage.py evaluate retrieval`), the same for every kind of text.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

_SATURATION = 1.0
_LENGTH = 0.75
#: How much it counts that a text holds many of the question's words rather than one of them often.
_COVERAGE = 0.5
#: What was said by the person weighs more than what an assistant answered: the answer repeats, explains and supposes.
_SAID_BY_USER = 2.5
#: An answer that fits speaks for what it answers.
_ANSWERED = 0.2
#: Of what tells nearly the same, the newer comes first.
_NEWER = 0.6


@dataclass(frozen=True, slots=True)
class Hit:
    """An entry that holds at least one of the question's lexemes: how often each, in the question's order."""

    entry: UUID
    target: UUID
    at: datetime
    length: int
    counts: Sequence[int]
    score: float = 0.0


@dataclass(frozen=True, slots=True)
class Extent:
    """What is searched: how many entries, how long on average, and in how many a common lexeme stands."""

    entries: int
    length: float
    frequencies: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Place:
    """Where an episode stands in its conversation: who spoke, and what follows it, nearest first."""

    role: str | None
    next: Sequence[UUID] = ()


def scored(hits: Sequence[Hit], extent: Extent) -> list[Hit]:
    """Return the hits with their scores, best first; equal ones newest first.

    How rare a lexeme is, is counted among the hits themselves, unless the extent knows it to be more common.
    """
    if not hits:
        return []
    width = len(hits[0].counts)
    found = [
        max(sum(hit.counts[place] > 0 for hit in hits), extent.frequencies.get(place, 0)) for place in range(width)
    ]
    entries = max(extent.entries, len(hits), *found)
    weights = [math.log(1 + (entries - number + 0.5) / (number + 0.5)) if number else 0.0 for number in found]
    whole = sum(weights) or 1.0
    average = extent.length or 1.0
    made = []
    for hit in hits:
        score = covered = 0.0
        damp = _SATURATION * (1 - _LENGTH + _LENGTH * hit.length / average)
        for weight, count in zip(weights, hit.counts, strict=True):
            if count:
                score += weight * count * (_SATURATION + 1) / (count + damp)
                covered += weight
        made.append(replace(hit, score=round(score * (1 + _COVERAGE * covered / whole), 9)))
    return sorted(made, key=_order)


def placed(hits: Sequence[Hit], places: Mapping[UUID, Place]) -> list[Hit]:
    """Return the hits that have a place, ranked by what surrounds them too: who spoke, and what came next."""
    own = {hit.target: hit.score for hit in hits}
    several = len({place.role for place in places.values()}) > 1
    made = []
    for hit in hits:
        place = places.get(hit.target)
        if place is None:
            continue
        score = hit.score
        if place.next:
            score += _ANSWERED * own.get(place.next[0], 0.0)
        if several and place.role == "user":
            score *= _SAID_BY_USER
        made.append(replace(hit, score=round(score, 9)))
    return sorted(made, key=_order)


def spread(hits: Sequence[Hit], places: Mapping[UUID, Place]) -> list[Hit]:
    """Return the hits with those put off that stand right beside a better one of the same talk.

    Only where nobody's role is known: of transcribed speech, turns are short and what is beside a turn is read with it.
    """
    taken: set[UUID] = set()
    first, later = [], []
    for hit in hits:
        place = places.get(hit.target)
        if place is None or place.role is not None:
            first.append(hit)
            continue
        beside = taken & set(place.next) or any(hit.target in places[each].next for each in taken if each in places)
        if beside:
            later.append(hit)
        else:
            taken.add(hit.target)
            first.append(hit)
    return first + later


def newest_first(hits: Sequence[Hit]) -> list[Hit]:
    """Return the same hits with newer ones before older ones that score little more: for what is asked as of now."""
    if len(hits) < 2:
        return list(hits)
    order = sorted(hits, key=lambda hit: (hit.at, hit.entry))
    share = {hit.entry: place / (len(order) - 1) for place, hit in enumerate(order)}
    return sorted(hits, key=lambda hit: (-round(hit.score * (1 + _NEWER * share[hit.entry]), 9), -hit.entry.int))


def _order(hit: Hit) -> tuple[float, float, int]:
    return (-hit.score, -hit.at.timestamp(), -hit.entry.int)
