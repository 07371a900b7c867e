"""Speaking to the memory API as an agent does; every answer is held against the OpenAPI description."""

import json
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import cache
from typing import Any
from urllib.parse import urlencode

from django.db import connection
from django.urls import Resolver404
from jsonschema import Draft202012Validator, FormatChecker

from tenants.actors import Actor, ActorKind
from tenants.isolation import Role, tenant_transaction
from tenants.registry import OPERATOR
from tests.organisation import Organisation, Registered

#: Sent wherever a test sends something that must not come back.
CANARY = "canary-Zx9Qk"

ATTRIBUTES: list[dict[str, Any]] = [
    {"name": "passport_deadline", "schema": {"type": "string", "format": "date"}},
    {"name": "likes", "schema": {"enum": ["yes", "no"]}, "sensitivity": "internal"},
    {"name": "city", "schema": {"type": "string", "maxLength": 100}, "sensitivity": "internal", "conflict": "latest"},
    {"name": "tag", "schema": {"type": "string", "maxLength": 200}, "cardinality": "multi", "sensitivity": "internal"},
    {"name": "diagnosis", "schema": {"type": "string"}, "sensitivity": "restricted", "basis": "contract"},
    {"name": "newsletter", "schema": {"type": "boolean"}, "basis": "consent"},
    {"name": "mood", "schema": {"type": "string"}, "recurrence": {"count": 2, "days": 30}},
    {"name": "iban", "schema": {"type": "string"}, "confirm": "always"},
]


def publish(organisation: Organisation, attributes: Iterable[dict[str, Any]] = ATTRIBUTES) -> None:
    """Put attributes in force."""
    from policies.definitions import load_definitions
    from policies.publishing import publish_attributes

    actor = Actor(kind=ActorKind.OPERATOR, id=OPERATOR.id, tenant=organisation.id)
    with tenant_transaction(Role.STAFF, tenant=organisation.id, actor=actor.id):
        publish_attributes(actor, load_definitions(json.dumps(list(attributes))), now=datetime.now(UTC))


def publish_policy(organisation: Organisation, **changes: Any) -> None:
    """Put the starter policy in force with some fields changed."""
    from policies.publishing import publish_policy as publish_it
    from policies.rules import STARTER, policy_document

    actor = Actor(kind=ActorKind.OPERATOR, id=OPERATOR.id, tenant=organisation.id)
    document = policy_document({**json.loads(STARTER.read_text(encoding="utf-8")), **changes})
    with tenant_transaction(Role.STAFF, tenant=organisation.id, actor=actor.id):
        publish_it(actor, document, now=datetime.now(UTC))


class Ledger:
    """One agent's view of its tenant's memory, over HTTP."""

    def __init__(self, agent: Registered) -> None:
        self.agent = agent
        self.api = agent.api

    def send(self, method: str, path: str, body: Any = None, *, sound: bool = True, **headers: str) -> Any:
        """Send a request. `sound`: the answer must be as described, and a refusal must not hold the canary."""
        response = self.api.send(method, f"/api/v1{path}", body, **headers)
        if sound:
            check(method, response)
        return response

    def get(self, path: str, **query: Any) -> Any:
        return self.send("GET", f"{path}?{urlencode(query)}" if query else path)

    def ok(self, path: str, **query: Any) -> Any:
        response = self.get(path, **query)
        assert response.status_code == 200, response.content
        return response.json()

    def post(self, path: str, body: Any, **headers: Any) -> Any:
        return self.send("POST", path, body, **headers)

    def say(self, subject: str = "mira", attribute: str = "city", value: Any = None, **rest: Any) -> Any:
        """Write one fact and return the response."""
        headers: dict[str, Any] = {name: rest.pop(name) for name in ("idempotency_key",) if name in rest}
        return self.post("/facts/", saying(subject, attribute, value, **rest), **headers)

    def said(self, *arguments: Any, status: int = 201, **rest: Any) -> Any:
        response = self.say(*arguments, **rest)
        assert response.status_code == status, response.content
        return response.json()

    def facts(self, **query: Any) -> list[Any]:
        return self.ok("/facts/", **query)["results"]  # type: ignore[no-any-return]

    def values(self, subject: str = "mira", attribute: str = "city", **query: Any) -> list[Any]:
        return [each["value"] for each in self.facts(subject=subject, attribute=attribute, **query)]

    def walk(self, path: str, **query: Any) -> list[Any]:
        """Return the results of all pages."""
        found: list[Any] = []
        while True:
            page = self.ok(path, **query)
            found += page["results"]
            if page["next"] is None:
                return found
            query["cursor"] = page["next"]


def saying(subject: str = "mira", attribute: str = "city", value: Any = None, **rest: Any) -> dict[str, Any]:
    """Return the body of one fact; `None` as the value sends none."""
    body = {"subject": subject, "attribute": attribute, "provenance": {"turn_id": "turn-1"}, **rest}
    return body if value is None else {**body, "value": value}


def at_once(calls: Iterable[Callable[[], Any]]) -> list[Any]:
    """Make all calls at the same time, each on a database connection of its own; return what they returned."""
    calls = list(calls)

    def run(call: Callable[[], Any]) -> Any:
        try:
            return call()
        finally:
            connection.close()

    with ThreadPoolExecutor(len(calls)) as pool:
        return [each.result() for each in [pool.submit(run, call) for call in calls]]


# the description ------------------------------------------------------------------------------------------------------


@cache
def description() -> dict[str, Any]:
    from tenants.api.views import description as described

    return json.loads(described())  # type: ignore[no-any-return]


@cache
def _validator(template: str, method: str, status: int) -> Draft202012Validator:
    responses = description()["paths"][template][method.lower()]["responses"]
    content = responses.get(str(status), responses["default"])["content"]
    (schema,) = [each["schema"] for each in content.values()]
    return Draft202012Validator(
        {"components": description()["components"], **schema}, format_checker=FormatChecker(["date-time", "uuid"])
    )


def check(method: str, response: Any) -> None:
    """Hold an answer against the description; a refusal must not hold the canary, in body or headers."""
    assert response.status_code < 500, response.content
    problem = response.status_code >= 400
    assert response["Content-Type"] == ("application/problem+json" if problem else "application/json")
    if problem:
        assert CANARY not in response.content.decode() + str(response.headers)
    try:
        route = response.resolver_match.route
    except Resolver404:
        assert response.status_code == 404
        return
    template = "/" + route.replace("<str:", "{").replace("<path:", "{").replace(">", "}")
    if method.lower() not in description()["paths"].get(template, {}):
        assert response.status_code == 405
        return
    errors = [
        error.message for error in _validator(template, method, response.status_code).iter_errors(response.json())
    ]
    assert not errors, errors
