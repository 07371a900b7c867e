"""Restriction of processing over the API: a program restricts and looks; people lift."""

from typing import Any

import pytest

from tests.paths.ledger import Ledger, publish


def test_a_program_restricts_and_no_agent_sees_it_from_then_on(tenant: Any) -> None:
    publish(tenant)
    agent = tenant.agent()
    ledger, api = Ledger(agent), agent.api
    fact = ledger.said("mira", "city", "Lisbon")["fact"]["id"]
    ledger.said("otto", "city", "Oslo")
    body = {"subject": "mira", "ground": "accuracy_contested"}
    told = api.send("POST", "/api/v1/restrictions/", body, idempotency_key="k")
    assert told.status_code == 201, told.json()
    made = told.json()
    assert (made["kind"], made["state"], made["ground"]) == ("subject", "active", "accuracy_contested")
    assert ledger.facts(subject="mira") == []
    assert api.get(f"/api/v1/facts/{fact}/").status_code == 404
    assert [each["value"] for each in ledger.facts(subject="otto")] == ["Oslo"]
    # What is said of it later is kept, and seen as little.
    ledger.said("mira", "city", "Porto")
    assert ledger.facts(subject="mira") == []
    assert api.send("POST", "/api/v1/restrictions/", body, idempotency_key="k").json() == made
    again = api.send("POST", "/api/v1/restrictions/", body)
    assert (again.status_code, again.json()["code"]) == (409, "restricted_already")
    assert api.get(f"/api/v1/restrictions/{made['id']}/").json() == made
    assert [each["id"] for each in api.get("/api/v1/restrictions/").json()["results"]] == [made["id"]]


@pytest.mark.parametrize("scope", ["read", "write"])
def test_without_the_scope_nothing_is_restricted_or_told(tenant: Any, scope: str) -> None:
    from tenants.actors import Scope

    publish(tenant)
    Ledger(tenant.agent()).said("mira", "city", "Lisbon")
    api = tenant.agent("other", scopes=frozenset({Scope(scope)})).api
    assert api.send("POST", "/api/v1/restrictions/", {"subject": "mira", "ground": "other"}).status_code == 403
    assert api.get("/api/v1/restrictions/").status_code == 403


def test_what_is_no_restriction_is_refused_at_its_place(tenant: Any) -> None:
    publish(tenant)
    api = tenant.agent().api
    nobody = api.send("POST", "/api/v1/restrictions/", {"subject": "nobody", "ground": "other"})
    assert nobody.status_code == 404
    for body in ({"ground": "other"}, {"subject": "mira", "fact": "01a22c8f-be82-7597-bc0b-565da7e6e8cc", "ground": "other"},
                 {"subject": "mira", "ground": "because"}):  # fmt: skip
        assert api.send("POST", "/api/v1/restrictions/", body).status_code in (400, 422), body
