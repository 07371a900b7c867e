"""How our data is written as JSON, in answers and by commands alike.

Instants are `2026-06-01T09:00:00Z`, with six digits of microseconds where there are any; UUIDs and enums are text.
"""

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import orjson


def dumps(data: Any) -> bytes:
    """Return `data` as JSON in UTF-8."""
    try:
        return orjson.dumps(data, default=_plain, option=orjson.OPT_UTC_Z)
    except orjson.JSONEncodeError:
        # It bears no integer of more than 64 bits, which a fact may well have.
        return json.dumps(data, default=_plain, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def _plain(value: Any) -> Any:
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, frozenset | set):
        return sorted(value)
    if isinstance(value, bytes | memoryview):
        return bytes(value).hex()
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    raise TypeError(type(value).__name__)
