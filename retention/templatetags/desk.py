"""What the desk's templates ask besides: a value by its key."""

from collections.abc import Mapping
from typing import Any

from django import template

register = template.Library()


@register.filter
def at(found: Mapping[Any, Any] | str | None, key: Any) -> Any:
    """Return what stands under `key`; None where nothing does."""
    return found.get(key) if isinstance(found, Mapping) else None
