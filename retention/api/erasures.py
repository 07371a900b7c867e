"""The endpoints of erasures: asking and looking, for programs with the scope `admin`; deciding is for people."""

from collections.abc import Iterable
from typing import Any

from django.db.models import Count, Q
from rest_framework.request import Request
from rest_framework.response import Response

from memory.contracts import parse
from retention import erasing, notices
from retention.api.base import Governing
from retention.api.erasure_schema import (
    ErasureAnswer,
    ErasureBody,
    ErasuresPage,
    ErasuresQuery,
    NoticeEndpointAnswer,
    NoticeEndpointBody,
)
from retention.models import Erasure, ErasureItem, Run
from tenants.actors import Scope
from tenants.api.describe import ID, described
from tenants.errors import Missing
from tenants.identity import uuid_or_missing
from tenants.isolation import Role


class _OfErasures(Governing):
    """An endpoint in front of `retention.erasing`."""

    def told_of(self, found: Iterable[Erasure]) -> list[dict[str, Any]]:
        """Return erasures as the API shows them, in their order."""
        shown = list(found)
        tenant = self.actor.tenant
        runs = {
            each.id: each
            for each in Run.objects.filter(tenant_id=tenant, id__in=[row.run_id for row in shown if row.run_id])
        }
        left = dict(
            ErasureItem.objects.filter(tenant_id=tenant, erasure_id__in=[each.id for each in shown])
            .values_list("erasure_id")
            .annotate(number=Count("id", filter=Q(state="open")))
        )
        return [
            _erasure_json(each, runs.get(each.run_id) if each.run_id else None, left.get(each.id, 0)) for each in shown
        ]


def _erasure_json(found: Erasure, run: Run | None, left: int) -> dict[str, Any]:
    return {
        "id": found.id,
        "subject": found.subject_id,
        "state": found.state,
        "reason": found.reason,
        "counts": found.preview,
        "step": None if run is None else run.step,
        "removed": {} if run is None else run.counts,
        "refused_by_hold": 0 if run is None else run.refused_by_hold,
        "with_a_person": left,
        "asked_at": found.asked_at,
        "finished_at": found.finished_at,
        "run": found.run_id,
        "certificate": found.certificate_id,
    }


class Erasures(_OfErasures):
    """Erasures of subjects."""

    scope = {"GET": Scope.ADMIN, "POST": Scope.ADMIN}
    asks = ErasuresQuery

    @described("read_erasures", ErasuresPage, query=ErasuresQuery)
    def get(self, request: Request) -> Response:
        asked: ErasuresQuery = self.asked()
        found = Erasure.objects.filter(tenant_id=self.actor.tenant)
        shown, following = self.page(found, asked.cursor, asked.limit)
        return Response({"results": self.told_of(shown), "next": following, "previous": None})

    @described("ask_erasure", {201: ErasureAnswer}, body=ErasureBody)
    def post(self, request: Request) -> Response:
        """Ask for the erasure of a subject. Nothing ends by it: a privacy officer puts it before another, who decides."""
        body = parse(ErasureBody, request.data)
        kept = self.earlier()
        if kept is None:
            subject = erasing.subject_of(self.actor.tenant, body.subject)
            kept = self.keep(erasing.ask(self.actor, subject, reason=body.reason, now=self.now).id, created=True)
        return Response(self.told_of(Erasure.objects.filter(tenant_id=self.actor.tenant, id=kept.id))[0], status=201)


class ErasureById(_OfErasures):
    """One erasure."""

    scope = {"GET": Scope.ADMIN}

    @described("read_erasure", ErasureAnswer, path=ID)
    def get(self, request: Request, id: str) -> Response:
        found = self.told_of(Erasure.objects.filter(tenant_id=self.actor.tenant, id=uuid_or_missing(id)))
        if not found:
            raise Missing
        return Response(found[0])


class NoticeEndpoints(_OfErasures):
    """Where the people of an agent are told."""

    scope = {"POST": Scope.ADMIN}
    role = {"POST": Role.STAFF}

    @described("set_notice_endpoint", {201: NoticeEndpointAnswer}, body=NoticeEndpointBody)
    def post(self, request: Request) -> Response:
        """Register the address of this agent, in place of an earlier one. The secret is shown this once."""
        body = parse(NoticeEndpointBody, request.data)
        secret = notices.register(self.actor, self.actor.id, body.url, now=self.now)
        return Response({"agent": self.actor.id, "url": body.url, "secret": secret}, status=201)
