"""Which entries of the index answer a question best: BM25 over what was found, and what surrounds it.

Pure: no Django, no clock, no content. The same entries in any order give the same ranking. Weights were set on public
dialogues and meetings (`manage.py evaluate retrieval`), the same for every kind of text.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import itemgetter
from typing import NamedTuple
from uuid import UUID

_SATURATION = 1.0
_LENGTH = 0.75
#: How much it counts that a text holds many of the question's words rather than one of them often.
_COVERAGE = 0.5
#: What was said by the person weighs more than what an assistant answered: the answer repeats, explains and supposes.
_SAID_BY_USER = 2.5
#: What follows and fits speaks for what it follows: an answer, or more of the same by the same speaker, who also had it
#: in mind before.
_FOLLOWED = 0.2
#: In transcribed speech one matter is spoken of over many short turns: those around a turn speak for it, half as much
#: with every turn that lies between.
_AROUND = (0.5, 0.25, 0.125)
#: So many turns on either side are read with a turn of transcribed speech.
_BESIDE = 2
#: Of what tells nearly the same, the newer comes first.
_NEWER = 0.6


class Hit(NamedTuple):
    """An entry that holds at least one of the question's lexemes: how often each, in the question's order."""

    entry: UUID
    target: UUID
    at: datetime
    length: int
    counts: Sequence[int]
    score: float = 0.0


#: The best first; of equal ones the newest. So it is the same in whatever order they were found.
_order = itemgetter(Hit._fields.index("score"), Hit._fields.index("at"), Hit._fields.index("entry"))


@dataclass(frozen=True, slots=True)
class Extent:
    """What is searched: how many entries, how long on average, and in how many a common lexeme stands."""

    entries: int
    length: float
    frequencies: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Place:
    """Where an episode stands in its conversation: who spoke, and what follows it there, nearest first."""

    role: str | None
    next: Sequence[UUID] = ()


def scored(hits: Iterable[Hit], extent: Extent, worth: Sequence[float] = ()) -> list[Hit]:
    """Return the hits with their scores, best first; equal ones newest first.

    How rare a lexeme is, is counted among the hits themselves, unless the extent knows it to be more common. `worth` says
    by place what a lexeme is worth beside the others; without it all are worth the same.
    """
    hits = list(hits)
    if not hits:
        return []
    found = [
        max(len(hits) - column.count(0), extent.frequencies.get(place, 0))
        for place, column in enumerate(zip(*(hit.counts for hit in hits), strict=True))
    ]
    entries = max(extent.entries, len(hits), *found)
    weights = [
        math.log(1 + (entries - number + 0.5) / (number + 0.5)) * (worth[place] if worth else 1.0) if number else 0.0
        for place, number in enumerate(found)
    ]
    whole = sum(weights) or 1.0
    average = extent.length or 1.0
    # Many are alike: one of the words, once, in a text of that length.
    known: dict[tuple[int, ...], float] = {}
    made = []
    for entry, target, at, length, counts, _ in hits:
        alike = (length, *counts)
        score = known.get(alike)
        if score is None:
            score = covered = 0.0
            damp = _SATURATION * (1 - _LENGTH + _LENGTH * length / average)
            for weight, count in zip(weights, counts, strict=True):
                if count:
                    score += weight * count * (_SATURATION + 1) / (count + damp)
                    covered += weight
            score = known[alike] = round(score * (1 + _COVERAGE * covered / whole), 9)
        made.append(Hit(entry, target, at, length, counts, score))
    made.sort(key=_order, reverse=True)
    return made


def placed(hits: Sequence[Hit], places: Mapping[UUID, Place]) -> list[Hit]:
    """Return the hits that have a place, ranked by what surrounds them too: who spoke, and what stands around it."""
    own = {hit.target: hit.score for hit in hits if hit.target in places}
    several = len({place.role for place in places.values()}) > 1
    around = dict.fromkeys(own, 0.0)
    for target, score in own.items():
        place = places[target]
        if place.role is not None:
            for each in place.next[:1]:
                if each in own:
                    around[target] += _FOLLOWED * own[each]
                    if places[each].role == place.role:
                        around[each] += _FOLLOWED * score
            continue
        for weight, each in zip(_AROUND, place.next, strict=False):
            if each in own and places[each].role is None:
                around[target] += weight * own[each]
                around[each] += weight * score
    made = []
    for hit in hits:
        if hit.target in places:
            score = hit.score + around[hit.target]
            if several and places[hit.target].role == "user":
                score *= _SAID_BY_USER
            made.append(hit._replace(score=round(score, 9)))
    made.sort(key=_order, reverse=True)
    return made


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
        beside = taken & set(place.next[:_BESIDE]) or any(hit.target in places[each].next[:_BESIDE] for each in taken)
        if beside:
            later.append(hit)
        else:
            taken.add(hit.target)
            first.append(hit)
    return first + later


def newest_first(hits: Sequence[Hit], places: Mapping[UUID, Place]) -> list[Hit]:
    """Return the same hits with newer ones before older ones that score little more: for what is asked as of now.

    Not of transcribed speech: what was said last at a meeting does not take back what was said before.
    """
    if len(hits) < 2:
        return list(hits)
    order = sorted(hits, key=lambda hit: (hit.at, hit.entry))
    share = {hit.entry: place / (len(order) - 1) for place, hit in enumerate(order)}

    def lifted(hit: Hit) -> float:
        newer = 0.0 if places[hit.target].role is None else _NEWER * share[hit.entry]
        return round(hit.score * (1 + newer), 9)

    return sorted(hits, key=lambda hit: (lifted(hit), hit.entry), reverse=True)
