"""The endpoints of lifetimes: why a fact is kept until when, and keeping one's own for a shorter time."""

from typing import Any
from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from memory import rows
from memory.contracts import parse
from retention import keeping
from retention.api.base import Governing
from retention.api.keeping_schema import LifetimeAnswer, ShortenBody
from tenants.actors import Scope
from tenants.api.describe import ID, described
from tenants.errors import Missing
from tenants.identity import uuid_or_missing
from tenants.isolation import Role, borrowed

_SEEN = "SELECT f.id FROM memory_fact f WHERE f.tenant_id = %s::uuid AND f.id = %s::uuid"


class _OfLifetimes(Governing):
    """An endpoint in front of `retention.keeping`: of facts that the agent sees, and of no other."""

    def seen(self, id: str) -> UUID:
        """Return the id of a fact that this agent may read. Raises `Missing` for any other."""
        fact = uuid_or_missing(id)
        with borrowed(Role.AGENT, back_to=Role.STAFF):
            found = rows.fetch(_SEEN, [self.actor.tenant, fact])
        if not found:
            raise Missing
        return fact

    def told_of(self, fact: UUID) -> dict[str, Any]:
        """Return why a fact is kept until when, as the API shows it."""
        kept = keeping.explain(self.actor.tenant, fact)
        return {
            "fact": kept.fact,
            "basis": kept.basis,
            "expires_at": kept.expires_at,
            "review_at": kept.review_at,
            "rule": kept.rule,
            "evidence": [
                {
                    "id": each.evidence,
                    "basis": each.basis,
                    "sensitivity": each.sensitivity,
                    "written_at": each.written_at,
                    "expires_at": each.expires_at,
                    "policy_version": each.policy_version,
                    "rule": each.rule,
                    "since": each.since,
                    "standing": each.standing,
                }
                for each in kept.because
            ],
        }


class Lifetime(_OfLifetimes):
    """Why a fact is kept until when."""

    scope = {"GET": Scope.READ}

    @described("explain_lifetime", LifetimeAnswer, path=ID)
    def get(self, request: Request, id: str) -> Response:
        """Which rule gave which date, evidence by evidence; the latest end of what stands decides."""
        return Response(self.told_of(self.seen(id)))


class Shorten(_OfLifetimes):
    """Keeping a fact of one's own for a shorter time."""

    scope = {"POST": Scope.WRITE}

    @described("shorten_lifetime", LifetimeAnswer, body=ShortenBody, path=ID)
    def post(self, request: Request, id: str) -> Response:
        """Bring the end of a fact nearer, where all that stands for it is the agent's own."""
        fact = self.seen(id)
        body = parse(ShortenBody, request.data)
        if self.earlier() is None:
            keeping.shorten(self.actor, fact, body.expires_at, reason=body.reason, now=self.now)
            self.keep(fact, created=False)
        return Response(self.told_of(fact))
