"""The page of a subject, with what other apps know of it."""

from collections.abc import Collection
from typing import Any
from uuid import UUID

from django.contrib import admin
from django.http import HttpRequest

from memory import sight
from memory.admin import SubjectAdmin
from memory.models import Subject
from retention import ancestry, holds
from retention.models import Hold, Reveal, SubjectRequest
from tenants.models import User

_MOST = 20

admin.site.unregister(Subject)


@admin.register(Subject)
class WholeSubjectAdmin(SubjectAdmin):
    """The page of a subject with what other apps know of it: holds, and what its facts came from and led to."""

    page_template = "admin/retention/subject.html"

    def held(self, tenant: UUID, facts: Collection[UUID]) -> Collection[UUID]:
        """Return which of these facts a hold covers."""
        return holds.held(tenant, holds.Kind.FACT, facts)

    def beside(self, request: HttpRequest, subject: Any, facts: Collection[UUID]) -> dict[str, Any]:
        """Return holds, lineage, and who was shown what of the subject."""
        origins, results = sight.lineage(subject.tenant_id, sorted(facts))
        stopping = holds.held(subject.tenant_id, holds.Kind.SUBJECT, [subject.id]).get(subject.id, [])
        return {
            "holds": Hold.objects.filter(tenant_id=subject.tenant_id, id__in=stopping).select_related("matter")[:_MOST],
            "ancestry": ancestry.draw(origins, results),
            "origins": origins,
            "results": results,
            "drawn": sight.DRAWN,
            "sees_holds": _sees(request, Hold),
            "requests": SubjectRequest.objects.filter(tenant_id=subject.tenant_id, subject_id=subject.id).order_by(
                "-id"
            )[:_MOST],
            "sees_requests": _sees(request, SubjectRequest),
            "reveals": _reveals(subject.tenant_id, subject.id),
        }


def _sees(request: HttpRequest, model: type[Any]) -> bool:
    page = admin.site._registry.get(model)
    return page is not None and page.has_view_permission(request)


def _reveals(tenant: UUID, subject: UUID) -> list[tuple[Reveal, str]]:
    """Return the latest reveals about a subject, each with the name of whoever saw it."""
    found = list(Reveal.objects.filter(tenant_id=tenant, subject_id=subject).order_by("-id")[:_MOST])
    names = dict(User.objects.filter(id__in={each.person_id for each in found}).values_list("id", "username"))
    return [(each, names.get(each.person_id, str(each.person_id)[-8:])) for each in found]
