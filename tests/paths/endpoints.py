"""Endpoints that behave as no endpoint of ours should, to test the frame around all of them."""

from datetime import UTC, datetime
from typing import Any

from django.db import DataError, IntegrityError, OperationalError, connection
from django.http import HttpRequest, HttpResponse
from django.urls import path
from rest_framework.request import Request
from rest_framework.response import Response

from config import urls
from tenants.actors import Scope
from tenants.api.base import GovernedView
from tenants.audit import Action, Event, append
from tenants.errors import Clash, FieldError, Refused
from tenants.identity import uuid_or_missing
from tenants.isolation import Role

SECRET = "canary-4111-1111-1111-1111"


class Echo(GovernedView):
    scope = {"GET": Scope.READ, "POST": Scope.WRITE}
    query = frozenset({"subject", "at"})
    body_limit = 2000

    def get(self, request: Request) -> Response:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT current_user::text, current_setting('muniment.tenant'), current_setting('muniment.clearance'),"
                " current_setting('muniment.actor'), current_setting('synchronous_commit')"
            )
            row = cursor.fetchone()
        return Response({"parameters": self.parameters, "database": row, "now": self.now, "id": self.actor.id})

    def post(self, request: Request) -> Response:
        with connection.cursor() as cursor:
            cursor.execute("SELECT current_user::text, current_setting('synchronous_commit')")
            row = cursor.fetchone()
        return Response(
            {"body": request.data, "raw": len(self.raw_body), "key": self.idempotency_key(), "database": row},
            status=201,
        )


class Acts(GovernedView):
    """Writes an audit entry, then does what `kind` says."""

    scope = {"POST": Scope.WRITE}

    def post(self, request: Request, kind: str) -> Response:
        self.act("duplicate")
        if kind == "created":
            return Response({}, status=201)
        if kind == "status":
            return Response({}, status=409)
        if kind == "problem":
            raise Refused("not_kept", errors=[FieldError("value", "not_in_enum")])
        if kind == "recorded":
            response = Response({}, status=422)
            response.refusal = lambda: self.act("other")  # type: ignore[attr-defined]
            return response
        if kind == "unrecorded":
            response = Response({}, status=422)
            response.refusal = lambda: self.raises(OperationalError(SECRET))  # type: ignore[attr-defined]
            return response
        if kind == "unrenderable":
            return Response({"x": object()}, status=201)
        if kind == "statement":
            with connection.cursor() as cursor:
                cursor.execute(f"SELECT '{SECRET}'::int")
        raise {
            "crash": RuntimeError(SECRET),
            "operational": OperationalError(SECRET),
            "integrity": IntegrityError(SECRET),
            "data": DataError(SECRET),
            "clash": Clash("in_progress"),
        }[kind]

    def act(self, reason: str) -> None:
        append(
            [
                Event(
                    actor=self.actor,
                    action=Action.WRITE_REFUSED,
                    target_kind="test",
                    target_id=self.actor.id,
                    reason=reason,
                )
            ]
        )

    def raises(self, error: Exception) -> None:
        raise error


class Finds(GovernedView):
    scope = {"GET": Scope.READ}

    def get(self, request: Request, identity: str) -> Response:
        return Response({"id": uuid_or_missing(identity), "at": datetime(2026, 6, 1, 9, tzinfo=UTC)})


class Reads(GovernedView):
    """A POST that reads, under the agent's role."""

    scope = {"POST": Scope.READ}
    role = {"POST": Role.AGENT}

    def post(self, request: Request) -> Response:
        with connection.cursor() as cursor:
            cursor.execute("SELECT current_user::text")
            return Response({"role": cursor.fetchone()[0]})


def crashes(request: HttpRequest, **_kwargs: Any) -> HttpResponse:
    raise RuntimeError(SECRET)


urlpatterns = [
    path("api/v1/echo/", Echo.as_view()),
    path("api/v1/acts/<str:kind>/", Acts.as_view()),
    path("api/v1/finds/<str:identity>/", Finds.as_view()),
    path("api/v1/reads/", Reads.as_view()),
    path("api/v1/crashes/", crashes),
    path("admin/crashes/", crashes),
    *urls.urlpatterns,
]
handler400, handler403, handler404, handler500 = urls.handler400, urls.handler403, urls.handler404, urls.handler500
