"""Special categories by small word lists, one file a language in `policies/words/`, each stating what it does not know.

A word says only what the text is about, not of whom: the class is raised, nothing else.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from policies.detection.identifiers import Raw
from policies.detection.reading import Reading, folded

FOLDER = Path(__file__).resolve().parent.parent / "words"

#: The types of finding, by the category's name in the files (which is the detector's name too).
CATEGORIES: dict[str, str] = {
    "health": "HEALTH",
    "religion": "RELIGION",
    "sexual_orientation": "SEXUAL_ORIENTATION",
    "ethnicity": "ETHNIC_ORIGIN",
    "politics": "POLITICS",
    "union": "TRADE_UNION",
    "genetics": "GENETICS",
    "criminal": "CRIMINAL",
}

_WORD = re.compile(r"\w+(?:[\-']\w+)*")
_STEM = 4


class _Lists:
    """All phrases by their first word, stems by their first four letters."""

    def __init__(self) -> None:
        self.phrases: dict[str, list[tuple[tuple[str, ...], str]]] = {}
        self.stems: dict[str, list[tuple[str, tuple[str, ...], str]]] = {}
        for path in sorted(FOLDER.glob("*.json")):
            for category, entries in json.loads(path.read_text(encoding="utf-8"))["categories"].items():
                if category not in CATEGORIES:
                    raise ValueError(f"{path.name}: no such category")
                for entry in entries:
                    self._add(path.name, category, folded(entry).split())
        for listed in self.phrases.values():
            listed.sort(key=lambda each: (-len(each[0]), each))
        for stems in self.stems.values():
            stems.sort(key=lambda each: (-len(each[1]), -len(each[0]), each))

    def _add(self, file: str, category: str, words: list[str]) -> None:
        first, rest = words[0], tuple(words[1:])
        if first.endswith("*"):
            stem = first[:-1]
            if len(stem) < _STEM:
                raise ValueError(f"{file}: a stem is too short")
            self.stems.setdefault(stem[:_STEM], []).append((stem, rest, category))
        else:
            self.phrases.setdefault(first, []).append((rest, category))


@lru_cache(maxsize=1)
def _lists() -> _Lists:
    return _Lists()


def _follow(rest: tuple[str, ...], words: list[re.Match[str]], position: int) -> bool:
    if len(words) - position - 1 < len(rest):
        return False
    for offset, wanted in enumerate(rest, position + 1):
        word = words[offset].group()
        if word != wanted and not (wanted.endswith("*") and word.startswith(wanted[:-1])):
            return False
    return True


def special_categories(reading: Reading) -> Iterator[Raw]:
    """Yield the words and phrases of the lists; `*` in a list stands for any ending."""
    lists = _lists()
    phrases, stems = lists.phrases, lists.stems
    text = reading.folded
    # Most texts end here: none of their words begins anything.
    if not any(word in phrases or word[:_STEM] in stems or not word.isalnum() for word in _WORD.findall(text)):
        return
    words = list(_WORD.finditer(text))
    for position, found in enumerate(words):
        word = found.group()
        listed = _listed(lists, word, words, position)
        if listed is None and not word.isalnum() and len(parts := _PART.findall(word)) > 1:
            # "diabetes-related", "l'asthme", "Catholic's": the parts are words too.
            for part in parts:
                listed = listed or _listed(lists, part, words, position)
        if listed is not None:
            length, category = listed
            yield found.start(), words[position + length].end(), CATEGORIES[category], category


_PART = re.compile(r"[^\W_]+")


def _listed(lists: _Lists, word: str, words: list[re.Match[str]], position: int) -> tuple[int, str] | None:
    """Return how many further words the longest phrase that begins here has, and its category."""
    for rest, category in lists.phrases.get(word, ()):
        if not rest or _follow(rest, words, position):
            return len(rest), category
    for stem, rest, category in lists.stems.get(word[:_STEM], ()):
        if word.startswith(stem) and (not rest or _follow(rest, words, position)):
            return len(rest), category
    return None
