"""Who am I, and the description of the whole API."""

from functools import cache
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.views.generic import TemplateView, View
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.utils import extend_schema, inline_serializer
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from tenants.actors import Scope
from tenants.api.base import GovernedView
from tenants.jsontext import dumps
from tenants.registry import CLEARANCES


class WhoAmI(GovernedView):
    """What the key that comes with the request is, and what it may do. Any scope suffices."""

    scope = {"GET": None}

    @extend_schema(
        operation_id="whoami",
        responses=inline_serializer(
            "WhoAmI",
            {
                "tenant": serializers.CharField(),
                "agent": inline_serializer(
                    "WhoAmIAgent", {"id": serializers.UUIDField(), "name": serializers.CharField()}
                ),
                "clearance": serializers.ChoiceField(CLEARANCES),
                "trust": serializers.IntegerField(),
                "scopes": serializers.ListField(child=serializers.ChoiceField([scope.value for scope in Scope])),
                "purposes": serializers.ListField(child=serializers.CharField()),
                "key": inline_serializer(
                    "WhoAmIKey",
                    {"prefix": serializers.CharField(), "expires_at": serializers.DateTimeField(allow_null=True)},
                ),
            },
        ),
    )
    def get(self, request: Request) -> Response:
        caller, actor = self.caller, self.actor
        return Response(
            {
                "tenant": caller.tenant_slug,
                "agent": {"id": actor.id, "name": caller.agent_name},
                "clearance": CLEARANCES[actor.clearance],
                "trust": actor.trust,
                "scopes": sorted(actor.scopes),
                "purposes": sorted(actor.purposes),
                "key": {"prefix": caller.prefix, "expires_at": caller.expires_at},
            }
        )


class Schema(View):
    """The OpenAPI description of the API, the same for everyone. Public: it says nothing of any tenant."""

    http_method_names = ["get", "head"]

    def get(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse(description(), content_type="application/vnd.oai.openapi+json")


class Docs(TemplateView):
    """Swagger UI, from files of our own. Public."""

    http_method_names = ["get", "head"]
    template_name = "api/docs.html"


@cache
def description() -> bytes:
    """Return the description as JSON; made once a process, since it follows from the code alone."""
    generator: Any = SchemaGenerator()  # type: ignore[no-untyped-call]
    return dumps(generator.get_schema(request=None, public=True))
