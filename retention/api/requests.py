"""The endpoints of subjects' requests: lodging and looking, for programs with the scope `admin`; working on one is for people."""

from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from memory.contracts import parse
from retention import escalating, requests
from retention.api.base import Governing
from retention.api.request_schema import (
    SubjectRequestAnswer,
    SubjectRequestBody,
    SubjectRequestsPage,
    SubjectRequestsQuery,
)
from retention.models import SubjectRequest
from tenants.actors import Scope
from tenants.api.describe import ID, described
from tenants.identity import uuid_or_missing


class _OfRequests(Governing):
    """An endpoint in front of `retention.requests`."""

    def told_of(self, found: SubjectRequest) -> dict[str, Any]:
        """Return a request as the API shows it, as of now."""
        told = escalating.told_of(self.actor.tenant, [found.id])
        shown = requests.waiting(found, now=self.now, escalated_to=told.get(found.id))
        return {
            "id": found.id,
            "kind": found.kind,
            "state": found.state,
            "known": found.subject_id is not None,
            "reference": found.reference,
            "received_at": found.received_at,
            "due_at": shown.due_at,
            "days_left": shown.days_left,
            "overdue": shown.overdue,
            "extended": shown.extended,
            "escalated_to": shown.escalated_to,
            "identity": found.identity,
            "repeats": found.repeats,
            "refusal_ground": found.refusal_ground,
            "outcome": found.outcome,
            "led_to": None if found.led_to_id is None else {"kind": found.led_to_kind, "id": found.led_to_id},
            "closed_at": found.closed_at,
        }


class SubjectRequests(_OfRequests):
    """What data subjects asked for."""

    scope = {"GET": Scope.ADMIN, "POST": Scope.ADMIN}
    asks = SubjectRequestsQuery

    @described("read_subject_requests", SubjectRequestsPage, query=SubjectRequestsQuery)
    def get(self, request: Request) -> Response:
        asked: SubjectRequestsQuery = self.asked()
        found = SubjectRequest.objects.filter(tenant_id=self.actor.tenant)
        if asked.state is not None:
            found = found.filter(state=asked.state)
        shown, following = self.page(found, asked.cursor, asked.limit)
        return Response({"results": [self.told_of(each) for each in shown], "next": following, "previous": None})

    @described("lodge_subject_request", {201: SubjectRequestAnswer, 200: SubjectRequestAnswer}, body=SubjectRequestBody)
    def post(self, request: Request) -> Response:
        """Record a request as it came in. The same subject's of the same kind joins the one that is open."""
        body = parse(SubjectRequestBody, request.data)
        kept = self.earlier()
        if kept is None:
            found, new = requests.lodge(
                self.actor,
                requests.Kind(body.kind),
                body.subject,
                now=self.now,
                received_at=body.received_at,
                reference=body.reference,
            )
            kept = self.keep(found.id, created=new)
        return Response(self.told_of(requests.get(self.actor.tenant, kept.id)), status=kept.status)


class SubjectRequestById(_OfRequests):
    """One request."""

    scope = {"GET": Scope.ADMIN}

    @described("read_subject_request", SubjectRequestAnswer, path=ID)
    def get(self, request: Request, id: str) -> Response:
        return Response(self.told_of(requests.get(self.actor.tenant, uuid_or_missing(id))))
