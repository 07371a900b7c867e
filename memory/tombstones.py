"""What a redacted value reads as: a value that says that something stood here, of which type, and what of it is left.

Pure. A reader that knows nothing of redaction meets an object where it expects a date, and cannot take what is left for
what was said.
"""

from collections.abc import Sequence
from typing import Any

#: The state of a record whose content was taken out.
APPLIED = "applied"
#: What stands for a redacted value in texts.
WORDS = "(redacted)"


def tombstone(type_: str | None, fields: Sequence[str], left: Any = None) -> dict[str, Any]:
    """Return what stands for redacted content.

    `type` is the format, else the type, that the attribute's schema gives (`date`, `integer`, `object`), `text` for an
    episode and a quote, `any` where nothing is known. `fields` are the parts that were taken out (`value`, `value.street`,
    `content`, `quote`); `left` is what the strategy left of the whole, null for nothing.
    """
    return {"redacted": True, "type": type_ or "any", "fields": list(fields), "left": left}
