"""What the desk's templates ask besides: a value by its key."""

from collections.abc import Mapping
from typing import Any

from django import template
from django.template import Context

from retention.desk import claims
from tenants.standing import NOBODY

register = template.Library()


@register.filter
def at(found: Mapping[Any, Any] | str | None, key: Any) -> Any:
    """Return what stands under `key`; None where nothing does."""
    return found.get(key) if isinstance(found, Mapping) else None


@register.simple_tag(takes_context=True)
def single_keys(context: Context) -> str:
    """Return `on` or `off`: whether single keys act for whoever reads the page."""
    found = getattr(context["request"], "standing", NOBODY)
    return "on" if found.person is None or claims.single_keys(found.actor) else "off"
