"""Matters and holds over HTTP: what a program with the scope `admin` may do, and that it releases nothing."""

from typing import Any
from uuid import uuid4

import pytest

from tenants.actors import Scope
from tests.paths.ledger import Ledger


def opened(ledger: Ledger, reference: str = "2026/117") -> str:
    answer = ledger.post("/matters/", {"reference": reference, "reason": "litigation"})
    assert answer.status_code in (200, 201), answer.content
    return str(answer.json()["id"])


def place(ledger: Ledger, *scopes: dict[str, Any], **more: Any) -> Any:
    return ledger.post("/holds/", {"matter": opened(ledger), "scopes": list(scopes), **more})


def test_a_matter_is_opened_listed_read_and_closed(ledger: Ledger) -> None:
    matter = opened(ledger)
    assert opened(ledger) == matter
    assert [each["id"] for each in ledger.ok("/matters/")["results"]] == [matter]
    assert ledger.ok(f"/matters/{matter}/")["state"] == "open"
    closed = ledger.post(f"/matters/{matter}/close/", {})
    assert (closed.status_code, closed.json()["state"]) == (200, "closed")
    again = ledger.post("/matters/", {"reference": "2026/117", "reason": "litigation"})
    assert (again.status_code, again.json()["code"]) == (409, "matter_exists")


def test_a_hold_is_counted_dry_then_placed_and_says_what_it_covers(ledger: Ledger) -> None:
    fact = ledger.said("mira", "city", "Oslo")["fact"]["id"]
    scope = {"subject": "mira", "attribute": "city", "recorded_from": "2020-01-01T00:00:00Z"}
    dry = place(ledger, scope, dry_run=True)
    assert (dry.status_code, dry.json()) == (
        200,
        {"covers": {"fact": 1, "evidence": 1, "episode": 0, "candidate": 0, "subject": 1}},
    )
    assert ledger.ok("/holds/")["results"] == []
    placed = place(ledger, scope, {"record": {"kind": "fact", "id": fact}}, {"session_id": "session-1"})
    assert placed.status_code == 201, placed.content
    hold = placed.json()
    assert (hold["state"], hold["release"], len(hold["scopes"])) == ("active", "none", 3)
    assert hold["scopes"][0]["attribute"] == "city"
    assert ledger.ok(f"/holds/{hold['id']}/") == hold
    assert [each["id"] for each in ledger.ok("/holds/", state="active", matter=hold["matter"])["results"]] == [
        hold["id"]
    ]
    assert ledger.ok("/holds/", state="released")["results"] == []
    assert ledger.ok(f"/holds/{hold['id']}/refused/")["results"] == []


def test_a_release_is_only_proposed(ledger: Ledger) -> None:
    hold = place(ledger, {"session_id": "s"}).json()
    proposed = ledger.post(f"/holds/{hold['id']}/release/", {})
    assert (proposed.status_code, proposed.json()["state"], proposed.json()["release"]) == (202, "active", "proposed")
    assert ledger.post(f"/matters/{hold['matter']}/close/", {}).json()["code"] == "hold_in_force"


def test_the_same_request_again_places_one_hold(ledger: Ledger) -> None:
    body = {"matter": opened(ledger), "scopes": [{"session_id": "s"}]}
    first, second = (ledger.post("/holds/", body, idempotency_key="k-1") for _ in range(2))
    assert first.json() == second.json()
    assert len(ledger.ok("/holds/")["results"]) == 1
    other = ledger.post("/holds/", {**body, "scopes": [{"session_id": "t"}]}, idempotency_key="k-1")
    assert (other.status_code, other.json()["code"]) == (409, "idempotency_key_reused")


@pytest.mark.parametrize(
    ("scope", "path", "code"),
    [
        ({}, "scopes[0]", "empty"),
        ({"subject": "nobody"}, "scopes[0].subject", "unknown"),
        ({"attribute": "nothing"}, "scopes[0].attribute", "unknown"),
        ({"session_id": "s", "record": {"kind": "fact", "id": str(uuid4())}}, "scopes[0].record", "stands_alone"),
        ({"recorded_from": "2026-02-01T00:00:00Z", "recorded_until": "2026-01-01T00:00:00Z"},
         "scopes[0].recorded_until", "out_of_range"),
        ({"session_id": "mira@example.org"}, "scopes[0].session_id", "personal_identifier"),
    ],
)  # fmt: skip
def test_a_scope_that_is_none_is_refused_by_its_place(
    ledger: Ledger, scope: dict[str, Any], path: str, code: str
) -> None:
    refused = place(ledger, scope)
    assert refused.status_code in (400, 422)
    assert refused.json()["errors"] == [{"path": path, "code": code}]


def test_without_the_scope_admin_nothing_of_it_is_open(ledger: Ledger, organisation: Any) -> None:
    hold = place(ledger, {"session_id": "s"}).json()
    others = Ledger(organisation.agent("weak", scopes=frozenset(Scope) - {Scope.ADMIN}))
    for path in (
        "/matters/",
        "/holds/",
        f"/holds/{hold['id']}/",
        f"/holds/{hold['id']}/refused/",
        f"/matters/{hold['matter']}/",
    ):
        assert others.get(path).json()["code"] == "scope_missing"
    for path, body in (
        ("/matters/", {"reference": "x", "reason": "other"}),
        ("/holds/", {"matter": hold["matter"], "scopes": [{"session_id": "s"}]}),
        (f"/holds/{hold['id']}/release/", {}),
        (f"/matters/{hold['matter']}/close/", {}),
    ):
        assert others.post(path, body).json()["code"] == "scope_missing"


def test_writing_and_reading_go_on_under_a_hold(ledger: Ledger) -> None:
    ledger.said("mira", "city", "Oslo")
    place(ledger, {"subject": "mira"})
    ledger.said("mira", "city", "Rome")
    assert ledger.values() == ["Rome"]


def test_another_tenants_matter_and_hold_look_like_missing_ones(ledger: Ledger, foreign: Ledger) -> None:
    theirs = place(foreign, {"session_id": "s"}).json()
    for hold, matter in ((theirs["id"], theirs["matter"]), (str(uuid4()), str(uuid4())), ("x", "%00")):
        for path in (f"/matters/{matter}/close/", f"/holds/{hold}/release/"):
            assert ledger.post(path, {}).status_code == 404
    body = {"matter": theirs["matter"], "scopes": [{"session_id": "s"}]}
    assert ledger.post("/holds/", body).status_code == 404
    assert foreign.ok(f"/holds/{theirs['id']}/") == theirs
