"""The endpoints of restrictions of processing: restricting and looking, for programs with the scope `admin`; lifting is for people."""

from typing import Any
from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from memory.contracts import parse
from retention import erasing, restricting
from retention.api.base import Governing
from retention.api.restriction_schema import RestrictionAnswer, RestrictionBody, RestrictionsPage, RestrictionsQuery
from retention.models import Restriction
from tenants.actors import Scope
from tenants.api.describe import ID, described


def restriction_json(found: Restriction) -> dict[str, Any]:
    """Return a restriction as the API shows it."""
    return {
        "id": found.id,
        "kind": found.target_kind,
        "target": found.target_id,
        "ground": found.ground,
        "state": found.state,
        "request": found.request_id,
        "restricted_by": found.restricted_by,
        "restricted_at": found.restricted_at,
        "lifted_at": found.lifted_at,
        "lifted_because": found.lifted_because,
    }


class Restrictions(Governing):
    """Restrictions of processing."""

    asks = RestrictionsQuery

    @described("read_restrictions", RestrictionsPage, query=RestrictionsQuery)
    def get(self, request: Request) -> Response:
        asked: RestrictionsQuery = self.asked()
        shown, following = self.page(Restriction.objects.all(), asked.cursor, asked.limit)
        return Response({"results": list(map(restriction_json, shown)), "next": following, "previous": None})

    @described("restrict_processing", {201: RestrictionAnswer}, body=RestrictionBody)
    def post(self, request: Request) -> Response:
        """Restrict the processing of a subject, a fact or an episode: from then on no agent sees any of it. People lift it."""
        body = parse(RestrictionBody, request.data)
        kept = self.earlier()
        if kept is None:
            kind, target = self._target(body)
            row = restricting.restrict(self.actor, kind, target, ground=body.ground, now=self.now)
            kept = self.keep(row.id, created=True)
        return Response(restriction_json(Restriction.objects.get(id=kept.id)), status=201)

    def _target(self, body: RestrictionBody) -> tuple[str, UUID]:
        if body.subject is not None:
            return "subject", erasing.subject_of(self.actor.tenant, body.subject)
        kind, named = ("fact", body.fact) if body.fact is not None else ("episode", body.episode)
        assert named is not None
        return kind, named


class RestrictionById(Governing):
    """One restriction."""

    scope = {"GET": Scope.ADMIN}

    @described("read_restriction", RestrictionAnswer, path=ID)
    def get(self, request: Request, id: str) -> Response:
        return Response(restriction_json(self.one(Restriction, id)))
