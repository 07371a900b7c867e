"""What differs between two documents, key by key, so that a person can read it.

Pure: imports no Django and reads no clock.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Change:
    """One place that differs. `before` or `after` is None where the place is not there; else it is JSON, or plain text."""

    path: str
    before: str | None
    after: str | None

    @property
    def kind(self) -> str:
        """Whether the place was `added`, `removed` or `changed`."""
        if self.before is None:
            return "added"
        return "removed" if self.after is None else "changed"


def compare(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Change]:
    """Return the places in which `after` differs from `before`, in the order in which `after` names them, then what is gone.

    Items of a list that carry an `id` are compared by it, and a place `….order` says where they moved.
    """
    old, new = dict(_places("", before)), dict(_places("", after))
    changes = [Change(path, old.get(path), text) for path, text in new.items() if old.get(path) != text]
    return [*changes, *(Change(path, text, None) for path, text in old.items() if path not in new)]


def _places(path: str, value: Any) -> Iterator[tuple[str, str]]:
    named = _by_id(value)
    if named is not None:
        yield f"{path}.order", ", ".join(named)
        value = named
    if isinstance(value, Mapping) and value:
        for name, inner in value.items():
            if named is not None:
                inner = {key: each for key, each in inner.items() if key != "id"}
            yield from _places(f"{path}.{name}" if path else str(name), inner)
    else:
        yield path, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _by_id(value: Any) -> dict[str, Any] | None:
    """Return the items of a list by their ids; None for anything else."""
    if not isinstance(value, list) or not value:
        return None
    if not all(isinstance(item, Mapping) and isinstance(item.get("id"), str) for item in value):
        return None
    found = {item["id"]: item for item in value}
    return found if len(found) == len(value) else None
