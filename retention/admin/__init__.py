"""Pages of endings and of the whole tenant: what a face adds to the doors of this app."""

from datetime import UTC, datetime
from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.utils.translation import gettext as _

from retention import overview
from retention.admin import endings, erasures, holds, keeping, redactions, requests, restrictions, subject
from tenants.admin import standing

__all__ = ["endings", "erasures", "first_page", "holds", "keeping", "redactions", "requests", "restrictions", "subject"]


def first_page(request: HttpRequest, context: dict[str, Any]) -> dict[str, Any]:
    """Add to the first page how things stand in the tenant that its reader works in."""
    found = standing(request)
    if found.tenant is not None:
        context["title"] = _("Overview")
        lists = frozenset(
            f"{model._meta.label_lower.replace('.', '/')}/"
            for model, page in admin.site._registry.items()
            if page.has_view_permission(request)
        )
        context["page"] = overview.overview(found.tenant, now=datetime.now(UTC), lists=lists, roles=found.roles)
        context["sees_agents"] = "tenants/agent/" in lists
        context["most"] = overview.COUNTED
        context["days"] = overview.DAYS
        context["tenant_slug"] = found.slug
    return context
