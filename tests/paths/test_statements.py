"""How many statements a request sends, pinned: a change that asks the database more often is seen, and decided on."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import connection

from policies.definitions import load_definitions
from policies.publishing import publish_attributes
from tenants import isolation
from tenants.actors import Actor, ActorKind
from tenants.isolation import Role, tenant_transaction
from tenants.registry import OPERATOR

ATTRIBUTES = """[
  {"name": "city", "schema": {"type": "string"}, "sensitivity": "internal", "basis": "contract", "conflict": "latest",
   "description": "The city where a person lives", "cues": ["live in"]},
  {"name": "team", "schema": {"type": "string"}, "sensitivity": "internal", "basis": "contract", "cardinality": "multi"}
]"""


@contextmanager
def counted() -> Iterator[list[str]]:
    """Collect the statements that Django's connection sends."""
    sent: list[str] = []

    def note(execute: Callable[..., Any], sql: str, parameters: Any, many: bool, context: Any) -> Any:
        sent.append(" ".join(sql.split())[:400])
        return execute(sql, parameters, many, context)

    with connection.execute_wrapper(note):
        yield sent


def beside_the_key(sent: list[str]) -> list[str]:
    """What is sent beside the recognition of the key, which is two statements in one round trip."""
    return [each for each in sent if "muniment_front" not in each and "FROM tenants_agentkey" not in each]


def saying(value: str, **more: Any) -> dict[str, Any]:
    """A body for POST /facts/."""
    return {"subject": "mira", "attribute": "city", "value": value, "provenance": {"turn_id": "t1"}, **more}


@pytest.fixture
def posts(tenant: Any, api: Any) -> Callable[..., int]:
    """Send a fact and return how many statements that took, the key's recognition apart."""
    operator = Actor(kind=ActorKind.OPERATOR, id=OPERATOR.id, tenant=tenant.id)
    with tenant_transaction(Role.STAFF, tenant=tenant.id):
        publish_attributes(operator, load_definitions(ATTRIBUTES), now=datetime.now(UTC))

    def post(body: dict[str, Any], path: str = "/api/v1/facts/", **headers: str) -> int:
        with counted() as sent:
            answer = api.send("POST", path, body, **headers)
        assert answer.status_code in (200, 201), answer.json()
        return len(beside_the_key(sent))

    post(saying("warm-up", subject="somebody else"))
    return post


def test_a_write_takes_a_fixed_number_of_statements(posts: Any) -> None:
    first = posts(saying("Lisbon", valid_from="2026-06-01T00:00:00Z"))
    update = posts(saying("Porto", valid_from="2026-06-02T00:00:00Z"))
    restated = posts(saying("Porto", valid_from="2026-06-03T00:00:00Z"))
    late = posts(saying("Faro", valid_from="2026-05-01T00:00:00Z"))
    assert {"first": first, "update": update, "restated": restated, "late": late} == PINNED_WRITES


def test_a_long_history_takes_no_more_statements_than_a_short_one(posts: Any) -> None:
    for place in range(30):
        posts(saying(f"city {place}", valid_from=f"2026-01-01T00:{place:02}:00Z"))
    assert posts(saying("one more", valid_from="2026-02-01T00:00:00Z")) == PINNED_WRITES["update"]


def test_a_batch_takes_as_many_statements_for_a_thousand_facts_as_for_two(posts: Any) -> None:
    def batch(size: int, who: str) -> int:
        items = [saying(f"v{place}", subject=f"{who} {place}") for place in range(size)]
        return int(posts({"items": items}, "/api/v1/facts/batch/"))

    assert batch(2, "few") == batch(1000, "many")


def test_a_read_takes_four_statements_in_one_round_trip_however_much_it_returns(
    posts: Any, api: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    trips: list[int] = []
    sent_at_once = isolation.trip  # type: ignore[attr-defined]

    def noted(session: Any, questions: Any) -> Any:
        trips.append(len(questions))
        return sent_at_once(session, questions)

    monkeypatch.setattr(isolation, "trip", noted)
    for place in range(20):
        posts(saying(f"team {place}", attribute="team"))
    for query in ({"subject": "mira", "attribute": "city"}, {"subject": "mira"}, {}):
        trips.clear()
        with counted() as sent:
            assert api.get("/api/v1/facts/", query).status_code == 200
        # The front's role, the key proven, the agent's role, and the read with its receipt.
        assert (len(sent), trips) == (PINNED_READ, [PINNED_READ]), sent


def test_reading_a_procedure_is_one_statement_in_one_round_trip(
    tenant: Any, api: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.memory.procedure_doors import Procedures

    trips: list[int] = []
    sent_at_once = isolation.trip  # type: ignore[attr-defined]

    def noted(session: Any, questions: Any) -> Any:
        trips.append(len(questions))
        return sent_at_once(session, questions)

    procedures = Procedures(tenant)
    for number in range(5):
        procedures.promoted(f"Version {number}.")
    monkeypatch.setattr(isolation, "trip", noted)
    for _ in range(2):
        trips.clear()
        with counted() as sent:
            answer = api.send("GET", "/api/v1/procedures/refunds/active/?scope=purpose:support")
        assert (answer.status_code, answer.json()["body"]) == (200, "Version 4.")
    assert (len(sent), trips) == (PINNED_READ, [PINNED_READ]), sent


def test_an_episode_takes_a_fixed_number_of_statements_however_it_is_drawn_from(posts: Any) -> None:
    def episode(turn: str, content: str = "I live in Turin.", **more: Any) -> int:
        body = {
            "kind": "message",
            "role": "user",
            "content": content,
            "session_id": "s",
            "turn_id": turn,
            "subject": "mira",
            "occurred_at": "2026-06-01T09:00:00Z",
            **more,
        }
        return int(posts(body, "/api/v1/episodes/"))

    episode("warm-up")
    found = {
        "no": episode("no", extract="no"),
        "later": episode("later"),
        "now, nothing said": episode("hello", "Hello!", extract="now"),
        "now, one fact": episode("now", extract="now"),
        "now, said again": episode("again", extract="now"),
    }
    assert found == PINNED_EPISODES


#: With the answer: of each, two take the fact back as the agent may read it. "first" makes the subject as well.
PINNED_WRITES = {"first": 10, "update": 9, "restated": 11, "late": 11}
PINNED_READ = 4
#: "later" leaves a row and an entry of the outbox; "now" takes what was drawn back as the agent may read it.
PINNED_EPISODES = {"no": 12, "later": 14, "now, nothing said": 17, "now, one fact": 20, "now, said again": 24}
