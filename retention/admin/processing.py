"""The records of processing as a page and as a table to keep."""

from datetime import UTC, datetime

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.template.response import TemplateResponse
from django.utils import translation
from django.utils.translation import gettext as _

from retention import processing
from tenants.actors import MemberRole
from tenants.admin import standing
from tenants.audit import Action, Event, append
from tenants.errors import Clash

#: Who sees them: they speak of nobody.
_SEEN_BY = frozenset(MemberRole)


def page(request: HttpRequest) -> HttpResponse:
    """Show what the organisation processes, as it is in force now."""
    return _answered(request, as_table=False)


def table(request: HttpRequest) -> HttpResponse:
    """Hand the records out as CSV; that is an act."""
    # A file is for programs too: it says the same whoever fetches it.
    with translation.override("en"):
        return _answered(request, as_table=True)


def _answered(request: HttpRequest, *, as_table: bool) -> HttpResponse:
    here = standing(request)
    if here.tenant is None or not here.is_one_of(*_SEEN_BY):
        raise PermissionDenied
    allowed = ["POST"] if as_table else ["GET", "HEAD"]
    if request.method not in allowed:
        return HttpResponseNotAllowed(allowed)
    context = {**admin.site.each_context(request), "title": _("Records of processing"), "measures": processing.MEASURES}
    try:
        found = processing.records(here.tenant, now=datetime.now(UTC))
    except Clash:
        return TemplateResponse(request, "admin/retention/processing.html", {**context, "found": None}, status=409)
    if not as_table:
        return TemplateResponse(request, "admin/retention/processing.html", {**context, "found": found})
    answer = HttpResponse("".join(processing.table(found)), content_type="text/csv; charset=utf-8")
    answer["Content-Disposition"] = f'attachment; filename="records-of-processing-{found.made_at:%Y-%m-%d}.csv"'
    append(
        [
            Event(
                actor=here.actor,
                action=Action.PROCESSING_EXPORTED,
                target_kind="tenant",
                target_id=here.tenant,
                numbers={"activities": len(found.activities)},
            )
        ]
    )
    return answer
