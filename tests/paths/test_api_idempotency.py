"""A request that comes twice: done once, answered twice."""

import time
from typing import Any

import pytest
from django.db import connection

from tests.paths.ledger import Ledger, at_once, saying
from tests.paths.test_api_episodes import episode
from tests.paths.test_api_facts import short_lived


def test_c044_the_same_idempotency_key_and_body_give_the_first_answer_and_one_row(ledger: Ledger) -> None:
    first = ledger.say("mira", "city", "Rome", idempotency_key="k-1")
    again = ledger.say("mira", "city", "Rome", idempotency_key="k-1")
    assert (first.status_code, again.status_code) == (201, 201)
    assert first.json() == again.json()
    (fact,) = ledger.facts(subject="mira")
    assert fact["evidence_count"] == 1


def test_c044_the_same_key_with_another_body_or_route_is_refused(ledger: Ledger) -> None:
    first = ledger.said("mira", "city", "Rome", idempotency_key="k-1")
    reused = [
        ledger.say("mira", "city", "Turin", idempotency_key="k-1"),
        ledger.post("/facts/batch/", {"items": [saying(value="Rome")]}, idempotency_key="k-1"),
        ledger.post(f"/facts/{first['fact']['id']}/retract/", {"reason": "other"}, idempotency_key="k-1"),
        ledger.post("/consents/", {"subject": "mira", "ref": "c"}, idempotency_key="k-1"),
        ledger.post("/episodes/", episode(), idempotency_key="k-1"),
    ]
    assert {(each.status_code, each.json()["code"]) for each in reused} == {(409, "idempotency_key_reused")}
    assert ledger.values() == ["Rome"]


def test_the_same_key_for_another_id_in_the_path_is_another_request(ledger: Ledger) -> None:
    first, second = ledger.said("mira", "tag", "a"), ledger.said("mira", "tag", "b")
    done = ledger.post(f"/facts/{first['fact']['id']}/retract/", {"reason": "other"}, idempotency_key="k-1")
    assert done.status_code == 200
    other = ledger.post(f"/facts/{second['fact']['id']}/retract/", {"reason": "other"}, idempotency_key="k-1")
    assert (other.status_code, other.json()["code"]) == (409, "idempotency_key_reused")
    assert ledger.values(attribute="tag") == ["b"]


def test_each_agent_and_each_tenant_has_keys_of_its_own(ledger: Ledger, foreign: Ledger, organisation: Any) -> None:
    colleague = Ledger(organisation.agent("colleague"))
    for each, status in ((ledger, 201), (colleague, 200), (foreign, 201)):
        each.said("mira", "city", "Rome", idempotency_key="k-1", status=status)
    (fact,) = ledger.facts(subject="mira")
    assert fact["evidence_count"] == 2


def test_every_post_that_writes_is_answered_again_and_done_once(ledger: Ledger, superuser: Any) -> None:
    written = ledger.said("mira", "tag", "a")
    kept = ledger.said("mira", "tag", "b")
    requests: list[tuple[str, Any]] = [
        ("/episodes/", episode()),
        ("/facts/", saying(attribute="iban", value="x")),
        ("/facts/batch/", {"items": [saying(value="Rome"), saying(value="Rome"), {"wrong": 1}, saying(value="Pisa")]}),
        (f"/facts/{written['fact']['id']}/retract/", {"reason": "other"}),
        (f"/evidence/{kept['evidence']}/retract/", {"reason": "other"}),
        ("/consents/", {"subject": "mira", "ref": "c-1"}),
        ("/consents/c-1/withdraw/", {}),
    ]
    tables = ("episode", "evidence", "candidatesaying", "receipt", "outboxentry", "idempotencyrecord")
    for number, (path, body) in enumerate(requests):
        first = ledger.post(path, body, idempotency_key=f"k-{number}")
        assert first.status_code < 300, first.content
        before = [superuser.execute(f"SELECT count(*) FROM memory_{table}").fetchone() for table in tables]
        again = ledger.post(path, body, idempotency_key=f"k-{number}")
        after = [superuser.execute(f"SELECT count(*) FROM memory_{table}").fetchone() for table in tables]
        assert (again.status_code, again.json()) == (first.status_code, first.json())
        assert after == before


def test_a_concurrent_twin_waits_and_gets_the_same_answer(ledger: Ledger) -> None:
    def write() -> Any:
        return ledger.agent.api.send("POST", "/api/v1/facts/", saying(value="Rome"), idempotency_key="twin")

    answers = at_once([write] * 6)
    assert {each.status_code for each in answers} == {201}
    assert len({each.content for each in answers}) == 1
    (fact,) = ledger.facts(subject="mira")
    assert fact["evidence_count"] == 1


def test_a_twin_that_takes_too_long_is_told_that_it_is_in_progress(ledger: Ledger, login: Any) -> None:
    from hashlib import sha256

    from tenants.secrets import keyring

    actor = ledger.agent.actor
    key = keyring().request_digest(actor.tenant, "key", b"slow")
    digest = sha256(b"idempotency" + actor.tenant.bytes + actor.id.bytes + key).digest()
    number = int.from_bytes(digest[:8], signed=True)
    with login.transaction():
        login.execute("SELECT pg_advisory_xact_lock(%s)", [number])
        began = time.monotonic()
        answer = ledger.say("mira", "city", "Rome", idempotency_key="slow")
        assert 4 < time.monotonic() - began < 8
    assert (answer.status_code, answer.json()["code"]) == (409, "in_progress")
    assert ledger.facts(subject="mira") == []
    ledger.said("mira", "city", "Rome", idempotency_key="slow")


def test_a_repeat_after_the_fact_has_ended_shows_no_value(ledger: Ledger) -> None:
    body = saying(value="Turin", retention=short_lived())
    batch = {"items": [saying(attribute="tag", value="secret-tag", retention=body["retention"])]}
    first = ledger.post("/facts/", body, idempotency_key="k-1")
    many = ledger.post("/facts/batch/", batch, idempotency_key="k-2")
    assert first.json()["fact"]["value"] == "Turin"
    time.sleep(1.3)
    again = ledger.post("/facts/", body, idempotency_key="k-1")
    assert again.status_code == 201
    assert again.json() == {**first.json(), "fact": None}
    assert ledger.post("/facts/batch/", batch, idempotency_key="k-2").json()["results"][0]["fact"] is None
    assert "secret-tag" in many.content.decode()


def test_a_repeat_shows_the_fact_as_it_stands_now(ledger: Ledger) -> None:
    first = ledger.said("mira", "city", "Rome", valid_from="2026-01-01T00:00:00Z", idempotency_key="k-1")
    assert first["fact"]["valid_to"] is None
    ledger.said("mira", "city", "Turin", valid_from="2026-02-01T00:00:00Z")
    again = ledger.said("mira", "city", "Rome", valid_from="2026-01-01T00:00:00Z", idempotency_key="k-1")
    assert again["fact"]["valid_to"] == "2026-02-01T00:00:00Z"


def test_a_refusal_is_not_kept_and_the_request_may_come_again(ledger: Ledger) -> None:
    body = saying("mira", "newsletter", True, provenance={"turn_id": "t", "consent_ref": "c-1"})
    assert ledger.post("/facts/", body, idempotency_key="k-1").status_code == 422
    ledger.post("/consents/", {"subject": "mira", "ref": "c-1"})
    assert ledger.post("/facts/", body, idempotency_key="k-1").status_code == 201


@pytest.mark.parametrize("key", ["", "x" * 201, "schlüssel", "tab\there"])
def test_a_key_that_is_none_is_refused(ledger: Ledger, key: str) -> None:
    answer = ledger.say("mira", "city", "Rome", idempotency_key=key)
    assert (answer.status_code, answer.json()["code"]) == (400, "idempotency_key_malformed")


def test_no_content_is_kept_of_a_repeatable_request(ledger: Ledger, superuser: Any) -> None:
    ledger.said("mira", "city", "canary-city", idempotency_key="canary-key")
    rows = superuser.execute(
        "SELECT outcome::text, encode(request_digest, 'escape'), encode(key_digest, 'escape')"
        " FROM memory_idempotencyrecord WHERE tenant_id = %s",
        [ledger.agent.actor.tenant],
    ).fetchall()
    assert len(rows) == 1
    assert "canary" not in str(rows)
    assert connection.connection is not None
