"""The endpoints of runs and certificates: what ended, how far it has come, and the proof of it."""

import json
from typing import Any
from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from retention import certificates
from retention.api.base import Governing
from retention.api.ending_schema import (
    CertificateAnswer,
    CertificatesPage,
    CertificatesQuery,
    RunAnswer,
    RunsPage,
    RunsQuery,
)
from retention.models import Certificate, Run
from tenants.actors import Scope
from tenants.api.describe import ID, described
from tenants.errors import Missing
from tenants.identity import uuid_or_missing
from tenants.isolation import Role


class _Looking(Governing):
    """Only looked at, so as the role that looks; no row of these holds content."""

    scope = {"GET": Scope.ADMIN}
    role = {"GET": Role.AGENT}


class Runs(_Looking):
    """Runs: work that ends memory, or proves that it ended."""

    asks = RunsQuery

    @described("read_runs", RunsPage, query=RunsQuery)
    def get(self, request: Request) -> Response:
        asked: RunsQuery = self.asked()
        found = Run.objects.all()
        if asked.kind is not None:
            found = found.filter(kind=asked.kind)
        shown, following = self.page(found, asked.cursor, asked.limit)
        return Response({"results": _runs(self.actor.tenant, shown), "next": following, "previous": None})


class RunById(_Looking):
    """One run."""

    @described("read_run", RunAnswer, path=ID)
    def get(self, request: Request, id: str) -> Response:
        found = Run.objects.filter(tenant_id=self.actor.tenant, id=uuid_or_missing(id)).first()
        if found is None:
            raise Missing
        return Response(_runs(self.actor.tenant, [found])[0])


class Certificates(_Looking):
    """Certificates: signed proof of endings, without content."""

    asks = CertificatesQuery

    @described("read_certificates", CertificatesPage, query=CertificatesQuery)
    def get(self, request: Request) -> Response:
        asked: CertificatesQuery = self.asked()
        found = Certificate.objects.all()
        if asked.run is not None:
            found = found.filter(run_id=asked.run)
        shown, following = self.page(found, asked.cursor, asked.limit)
        listed = [
            {
                "id": each.id,
                "kind": each.kind,
                "run": each.run_id,
                "follows": each.follows_id,
                "issued_at": each.issued_at,
            }
            for each in shown
        ]
        return Response({"results": listed, "next": following, "previous": None})


class CertificateById(_Looking):
    """One certificate, as it was signed."""

    @described("read_certificate", CertificateAnswer, path=ID)
    def get(self, request: Request, id: str) -> Response:
        found = certificates.find(self.actor.tenant, uuid_or_missing(id))
        return Response(json.loads(certificates.export(found)))


def _runs(tenant: UUID, shown: list[Run]) -> list[dict[str, Any]]:
    """Return runs as they stand, with the certificates that they came to."""
    issued: dict[UUID | None, list[UUID]] = {}
    named = Certificate.objects.filter(tenant_id=tenant, run_id__in=[each.id for each in shown]).order_by("id")
    for run, certificate in named.values_list("run_id", "id"):
        issued.setdefault(run, []).append(certificate)
    return [
        {
            "id": each.id,
            "kind": each.kind,
            "state": each.state,
            "step": each.step,
            "counts": each.counts,
            "refused_by_hold": each.refused_by_hold,
            "started_at": each.started_at,
            "advanced_at": each.advanced_at,
            "finished_at": each.finished_at,
            "code": each.code,
            "certificates": issued.get(each.id, []),
        }
        for each in shown
    ]
