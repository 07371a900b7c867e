"""Requests of data subjects by the API: recorded, repeated, looked at; never by a key without the scope."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from retention import escalating
from tenants.actors import Scope

pytestmark = pytest.mark.usefixtures("database")


def test_a_request_is_recorded_once_and_looked_at(api: Any) -> None:
    received = (datetime.now(UTC) - timedelta(days=40)).isoformat()
    body = {"kind": "access", "subject": "mira", "received_at": received, "reference": "ticket-1"}
    first = api.send("POST", "/api/v1/subject-requests/", body)
    assert (first.status_code, first.json()["overdue"], first.json()["known"]) == (201, True, False)
    assert first.json()["escalated_to"] is None
    again = api.send("POST", "/api/v1/subject-requests/", body)
    assert (again.status_code, again.json()["id"], again.json()["repeats"]) == (200, first.json()["id"], 1)
    shown = api.send("GET", f"/api/v1/subject-requests/{first.json()['id']}/").json()
    assert (shown["state"], shown["identity"], shown["reference"]) == ("received", "unchecked", "ticket-1")
    listed = api.send("GET", "/api/v1/subject-requests/?state=received").json()
    assert [each["id"] for each in listed["results"]] == [shown["id"]]
    assert api.send("GET", "/api/v1/subject-requests/?state=completed").json()["results"] == []


def test_of_what_is_past_its_day_it_says_who_was_told(api: Any, tenant: Any) -> None:
    received = (datetime.now(UTC) - timedelta(days=40)).isoformat()
    made = api.send("POST", "/api/v1/subject-requests/", {"kind": "access", "subject": "mira", "received_at": received})
    assert escalating.escalate(tenant.id, now=datetime.now(UTC)) == 1
    assert api.send("GET", f"/api/v1/subject-requests/{made.json()['id']}/").json()["escalated_to"] == "tenant_admin"


def test_a_repeated_request_with_its_key_counts_once(api: Any) -> None:
    body = {"kind": "erasure", "subject": "mira"}
    answers = [api.send("POST", "/api/v1/subject-requests/", body, idempotency_key="k") for _ in range(2)]
    assert [each.status_code for each in answers] == [201, 201]
    assert answers[1].json()["repeats"] == 0


def test_pages_reach_every_request_once(api: Any) -> None:
    kinds = ["access", "rectification", "erasure", "restriction", "portability", "objection"]
    made = [
        api.send("POST", "/api/v1/subject-requests/", {"kind": kind, "subject": "mira"}).json()["id"] for kind in kinds
    ]
    found, cursor = [], ""
    while True:
        page = api.send("GET", f"/api/v1/subject-requests/?limit=2{cursor}").json()
        found += [each["id"] for each in page["results"]]
        if page["next"] is None:
            break
        cursor = f"&cursor={page['next']}"
    assert found == made[::-1]


def test_a_key_without_the_scope_and_a_bad_body_get_nowhere(api: Any, make_agent: Any) -> None:
    plain = make_agent("plain", scopes=frozenset({Scope.READ, Scope.WRITE})).api
    assert plain.send("POST", "/api/v1/subject-requests/", {"kind": "access", "subject": "mira"}).status_code == 403
    assert plain.send("GET", "/api/v1/subject-requests/").status_code == 403
    for body in (
        {"kind": "curiosity", "subject": "mira"},
        {"kind": "access"},
        {"kind": "access", "subject": "mira", "reference": "mira@example.org"},
        {"kind": "access", "subject": "mira", "received_at": "2026-01-01T00:00:00"},
    ):
        assert api.send("POST", "/api/v1/subject-requests/", body).status_code == 400, body
    late = {"kind": "access", "subject": "mira", "received_at": "2999-01-01T00:00:00Z"}
    assert api.send("POST", "/api/v1/subject-requests/", late).status_code == 422
    assert api.send("GET", "/api/v1/subject-requests/?state=odd").status_code == 400
