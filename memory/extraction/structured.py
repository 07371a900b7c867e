"""Facts from tool results and events: JSON, read by the attributes' paths. Pure.

A path is a small part of JSONPath: `$` is the whole, `.name` or `['name']` a field, `[2]` or `[-1]` an item, `[*]` every
item. Nothing else: no filters, slices, wildcards for fields or `..`. A path of another form maps nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any

from memory.extraction.checks import compared
from memory.extraction.protocol import AttributeSlice, EpisodeText, Evidence, Proposal
from policies.values import SchemaRefused, ValueRefused, canonical
from policies.vocabulary import Cardinality

#: More values than this at one path are no facts about one subject.
MAX_VALUES = 100

Step = str | int | None  # a field, an item, every item

_STEP = re.compile(
    r"\.(?P<name>[^\W\d][\w-]*)|\[(?P<index>-?\d{1,6})\]|\[(?P<all>\*)\]|\['(?P<single>[^']+)'\]|\[\"(?P<double>[^\"]+)\"\]"
)
_SPACE = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder()


class PathRefused(ValueError):
    """A path that is not of the documented form."""


@lru_cache(maxsize=10_000)
def steps(path: str) -> tuple[Step, ...]:
    """Return the steps of a path. Raises PathRefused."""
    if not path.startswith("$"):
        raise PathRefused("a path starts with $")
    found: list[Step] = []
    at = 1
    while at < len(path):
        step = _STEP.match(path, at)
        if step is None:
            raise PathRefused(f"not understood at character {at}")
        at = step.end()
        if step["index"] is not None:
            found.append(int(step["index"]))
        elif step["all"]:
            found.append(None)
        else:
            found.append(step["name"] or step["single"] or step["double"])
    return tuple(found)


def located(text: str, path: tuple[Step, ...]) -> Iterator[tuple[int, int]]:
    """Yield where in the JSON `text` the values at `path` stand. Raises ValueError or RecursionError for other text.

    Of a field that is there twice the last counts, as for every reader of JSON.
    """
    yield from _below(text, _skip(text, 0), path)


def _skip(text: str, at: int) -> int:
    return _SPACE.match(text, at).end()  # type: ignore[union-attr]


def _end(text: str, at: int) -> int:
    end: int = _DECODER.raw_decode(text, at)[1]
    return end


def _below(text: str, at: int, path: tuple[Step, ...]) -> Iterator[tuple[int, int]]:
    if not path:
        yield at, _end(text, at)
        return
    step, rest = path[0], path[1:]
    if isinstance(step, str):
        if text[at] != "{":
            return
        place = None
        for name, start in _fields(text, at):
            if name == step:
                place = start
        if place is not None:
            yield from _below(text, place, rest)
        return
    if text[at] != "[":
        return
    items = list(_items(text, at))
    if step is None:
        for start in items:
            yield from _below(text, start, rest)
    elif -len(items) <= step < len(items):
        yield from _below(text, items[step], rest)


def _fields(text: str, at: int) -> Iterator[tuple[str, int]]:
    at = _skip(text, at + 1)
    while text[at] == '"':
        name, at = scanstring(text, at + 1)
        at = _skip(text, at)
        if text[at] != ":":
            raise ValueError("not JSON")
        at = _skip(text, at + 1)
        yield name, at
        at = _skip(text, _end(text, at))
        if text[at] != ",":
            break
        at = _skip(text, at + 1)


def _items(text: str, at: int) -> Iterator[int]:
    at = _skip(text, at + 1)
    while text[at] != "]":
        yield at
        at = _skip(text, _end(text, at))
        if text[at] != ",":
            break
        at = _skip(text, at + 1)


class StructuredExtractor:
    """Maps the JSON of tool results and events to attributes that have a path. Messages give nothing."""

    name = "structured/1"
    remote = False

    def extract(self, episode: EpisodeText, attributes: Sequence[AttributeSlice]) -> list[Proposal]:
        """Return a proposal for every value that stands at an attribute's path, in the attributes' order.

        The quote is the value's literal text in the episode; of a text without its quotation marks. null says nothing.
        A list at the path of a `multi` attribute whose schema wants no list gives its items. Values are proposed as
        they stand, also those that the schema will refuse: `checks` names them. Content that is not JSON gives nothing.
        """
        if episode.kind == "message":
            return []
        found: list[Proposal] = []
        for attribute in attributes:
            path = attribute.definition.path
            if path is None:
                continue
            try:
                spans = list(located(episode.content, steps(path)))[:MAX_VALUES]
                for start, end in spans:
                    found += self._proposals(episode, attribute, start, end)
            except PathRefused:
                continue
            except (ValueError, IndexError, RecursionError):
                return []
        return found

    def _proposals(self, episode: EpisodeText, attribute: AttributeSlice, start: int, end: int) -> Iterator[Proposal]:
        text = episode.content
        value = json.loads(text[start:end])
        if value is None:
            return
        definition = attribute.definition
        if (
            isinstance(value, list)
            and definition.cardinality is Cardinality.MULTI
            and not _valid(definition.value_schema, value)
        ):
            for place in list(_items(text, start))[:MAX_VALUES]:
                item_end = _end(text, place)
                yield from self._one(episode, attribute, json.loads(text[place:item_end]), place, item_end)
            return
        yield from self._one(episode, attribute, value, start, end)

    @staticmethod
    def _one(episode: EpisodeText, attribute: AttributeSlice, value: Any, start: int, end: int) -> Iterator[Proposal]:
        if value is None:
            return
        if isinstance(value, str) and end - start > 2:
            start, end = start + 1, end - 1
        try:
            change, current = compared(attribute, canonical(attribute.definition.value_schema, value))
        except (ValueRefused, SchemaRefused):
            change, current = "new", None
        yield Proposal(
            evidence=Evidence(episode.content[start:end], start, end),
            subject=episode.subject,
            attribute=attribute.definition.name,
            value=value,
            change=change,
            valid_from=episode.occurred_at,
            confidence=1.0,
            current_value=current,
        )


def _valid(schema: dict[str, Any], value: Any) -> bool:
    try:
        canonical(schema, value)
    except (ValueRefused, SchemaRefused):
        return False
    return True
