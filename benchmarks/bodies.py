"""Bodies as agents send them. Imports no Django."""

from __future__ import annotations

from typing import Any


def said(subject: str, attribute: str, said: str, **given: Any) -> dict[str, Any]:
    """Return the body of a fact."""
    return {"subject": subject, "attribute": attribute, "value": said, "provenance": {"turn_id": "t1"}, **given}


def value(number: int) -> str:
    """Return a date; the next number gives another one."""
    return f"2026-07-{number % 28 + 1:02d}"
