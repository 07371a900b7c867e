"""Which rows of what ended are still needed as boundaries. Pure: imports no Django.

What a value ceased to hold by must stay as long as anything kept stands before it in its chain: without it the former
value would hold again. So of a chain goes only what lies, whole, before everything that is kept.
"""

from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Span:
    """From the first to the last instant from which a fact that ended, or an end, was said to hold.

    `chain` is None for an end that names no value: it belongs to every chain of its key. `first` is None where nothing of
    it stands any more: then it decides nothing.
    """

    id: Hashable
    key: Hashable
    chain: Hashable | None
    first: datetime | None
    last: datetime | None


def unneeded(spans: Iterable[Span], kept: Mapping[tuple[Hashable, Hashable | None], datetime]) -> set[Hashable]:
    """Return the ids of those spans that may go.

    `kept` tells of each (key, chain) the earliest instant from which anything that stays was said to hold; under
    (key, None) that of the ends which stay and belong to every chain. What touches or overlaps something that stays, or
    something that has to stay for its sake, stays.
    """
    spans = list(spans)
    # Where nothing of a key stays, nothing of it has to.
    bounded = {key for key, _ in kept}
    free = {span.id for span in spans if span.key not in bounded}
    spans = [span for span in spans if span.key in bounded]
    staying: dict[tuple[Hashable, Hashable | None], datetime] = dict(kept)
    while True:
        gone = _before(spans, staying)
        # An end that one chain needs stands in every other chain of its key as well.
        needed = [s for s in spans if s.chain is None and s.id not in gone and s.first is not None]
        grown = False
        for span in needed:
            assert span.first is not None
            place = (span.key, None)
            if place not in staying or span.first < staying[place]:
                staying[place] = span.first
                grown = True
        if not grown:
            return gone | free


def _before(spans: Collection[Span], staying: Mapping[tuple[Hashable, Hashable | None], datetime]) -> set[Hashable]:
    """Return what may go where nothing but `staying` and its consequences in each chain stays."""
    chains: dict[Hashable, set[Hashable | None]] = {}
    by_chain: dict[tuple[Hashable, Hashable | None], list[Span]] = {}
    ends: dict[Hashable, list[Span]] = {}
    for key, chain in staying:
        if chain is not None:
            chains.setdefault(key, set()).add(chain)
    for span in spans:
        if span.chain is None:
            ends.setdefault(span.key, []).append(span)
        else:
            chains.setdefault(span.key, set()).add(span.chain)
            by_chain.setdefault((span.key, span.chain), []).append(span)
    gone = {span.id for span in spans}
    for key in chains.keys() | ends.keys():
        for chain in chains.get(key, set()) or {None}:
            limits = [staying[place] for place in ((key, chain), (key, None)) if place in staying]
            items = [*by_chain.get((key, chain), []), *ends.get(key, [])]
            gone -= _reached(items, min(limits) if limits else None)
    return gone


def _reached(items: Collection[Span], limit: datetime | None) -> set[Hashable]:
    """Return the items of one chain that have to stay: those that reach `limit`, and those that overlap such ones."""
    if limit is None:
        return set()
    standing = sorted(
        (item.first, item.last, item.id) for item in items if item.first is not None and item.last is not None
    )
    # From the last to the first: whatever reaches the earliest instant that stays becomes one that stays itself.
    changed = True
    while changed:
        changed = False
        for first, last, _ in standing:
            if last >= limit and first < limit:
                limit, changed = first, True
    return {item for _, last, item in standing if last >= limit}
