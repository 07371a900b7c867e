"""Text that Muniment itself served, recognised when it comes back in an episode: it is no evidence of anything.

Pure. What is served as text stands between fences (`fenced`), and every answer names ids that only its reader can know.
Both are blanked before an extractor sees the text: as many spaces, so that every place stays where it was.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable
from typing import Any
from uuid import UUID

_FENCE = re.compile(r"<memory\b[^>]*>.*?(?:</memory\s*>|\Z)", re.DOTALL | re.IGNORECASE)
_CLOSING = re.compile(r"</(?=memory)", re.IGNORECASE)
_ID = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\b", re.IGNORECASE)
_INK = re.compile(r"[^\n]")

#: More ids than this in one text are not looked up.
MAX_IDS = 500


def fenced(text: str, receipt: UUID) -> str:
    """Return `text` between the fences of served memory, with the receipt of its read; nothing in it can close them."""
    return f'<memory receipt="{receipt}">\n{_CLOSING.sub("&lt;/", text)}\n</memory>'


#: What could end a line, open a tag or turn the direction of a text, and is not escaped by JSON itself.
_ESCAPED = {code: f"\\u{code:04x}" for code in (*range(0x7F, 0xA0), 0x2028, 0x2029, 0x3C, 0x3E, *range(0x200B, 0x2010), *range(0x202A, 0x202F), *range(0x2060, 0x2070), 0xFEFF)}  # fmt: skip


def quoted(value: Any) -> str:
    """Return a value as JSON in one line that can close neither its line nor a fence, nor turn the direction of a text."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":")).translate(_ESCAPED)


def ids(text: str) -> list[UUID]:
    """Return the ids of our kind (UUIDv7) that the text names, each once, at most `MAX_IDS`."""
    found = dict.fromkeys(match.group().lower() for match in _ID.finditer(text))
    return [UUID(each) for each in list(found)[:MAX_IDS]]


def without_fences(text: str) -> str:
    """Return the text with everything between fences blanked; a fence that is never closed reaches to the end."""
    return _blanked(text, (match.span() for match in _FENCE.finditer(text)))


def without_lines(text: str, ours: Collection[UUID]) -> str:
    """Return the text with every line blanked that names one of the ids."""
    named = {str(each) for each in ours}
    spans = []
    for match in _ID.finditer(text):
        if match.group().lower() in named:
            start, end = text.rfind("\n", 0, match.start()) + 1, text.find("\n", match.end())
            spans.append((start, len(text) if end < 0 else end))
    return _blanked(text, spans)


def _blanked(text: str, spans: Iterable[tuple[int, int]]) -> str:
    for start, end in spans:
        text = text[:start] + _INK.sub(" ", text[start:end]) + text[end:]
    return text
