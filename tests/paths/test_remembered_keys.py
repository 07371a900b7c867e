"""A key that a process remembers proves itself again in the transaction of every read: nothing that changed is overlooked."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection

from tenants import authentication, isolation
from tenants.isolation import Role, tenant_transaction
from tenants.registry import OPERATOR, revoke_key

READ = "/api/v1/facts/?subject=mira&attribute=city"


@pytest.fixture
def reader(ledger: Any) -> Any:
    """An agent whose key has just read something, and is remembered."""
    ledger.post("/facts/", {"subject": "mira", "attribute": "city", "value": "Lisbon", "provenance": {"turn_id": "t1"}})
    assert len(ledger.api.get(READ).json()["results"]) == 1
    assert authentication.remembered(f"Api-Key {ledger.agent.key}", datetime.now(UTC)) is not None
    return ledger.agent


@pytest.fixture
def trips(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many statements went in each round trip that was made of several."""
    made: list[int] = []
    sent = isolation.trip  # type: ignore[attr-defined]

    def noted(session: Any, questions: Any) -> Any:
        made.append(len(questions))
        return sent(session, questions)

    monkeypatch.setattr(isolation, "trip", noted)
    return made


def receipts(agent: Any) -> int:
    with tenant_transaction(Role.WORKER, tenant=agent.actor.tenant), connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM memory_receipt WHERE act = 'facts.read'")
        return int(cursor.fetchone()[0])


def test_a_read_by_a_remembered_key_is_one_round_trip(reader: Any, trips: list[int]) -> None:
    assert reader.api.get(READ).status_code == 200
    assert trips == [4]


def test_a_key_is_remembered_by_its_digest_and_never_by_its_text(reader: Any) -> None:
    secret = reader.key.split(".")[1]
    assert secret not in repr(authentication._remembered)
    assert all(secret.encode() not in digest for digest in authentication._remembered)


def test_a_key_that_was_revoked_is_refused_at_the_next_read_and_leaves_no_receipt(reader: Any) -> None:
    with tenant_transaction(Role.FRONT, tenant=reader.actor.tenant):
        revoke_key(reader.row, by=OPERATOR, now=datetime.now(UTC))
    before = receipts(reader)
    answer = reader.api.get(READ)
    assert (answer.status_code, answer.json()["code"]) == (401, "key_revoked")
    assert receipts(reader) == before
    # What is wrong with the query is no answer to somebody who is not let in.
    assert reader.api.get(READ + "&unknown=1").status_code == 401


CHANGES: dict[str, tuple[str, Callable[[Any], tuple[int, str | None]]]] = {
    "the key expired": (
        "UPDATE tenants_agentkey SET expires_at = now() - interval '1 second' WHERE id = %(key)s",
        lambda _: (401, "key_expired"),
    ),
    "the agent was suspended": (
        "UPDATE tenants_agent SET state = 'suspended' WHERE id = %(agent)s",
        lambda _: (401, "key_suspended"),
    ),
    "the tenant was suspended": (
        "UPDATE tenants_tenant SET state = 'suspended' WHERE id = %(tenant)s",
        lambda _: (401, "key_suspended"),
    ),
    "the scope was taken": (
        "UPDATE tenants_agentkey SET scopes = '{write}' WHERE id = %(key)s",
        lambda _: (403, "scope_missing"),
    ),
    "the secret was changed": (
        "UPDATE tenants_agentkey SET digest = sha512('another') WHERE id = %(key)s",
        lambda _: (401, "key_unknown"),
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_changed_of_a_key_counts_at_the_next_read(reader: Any, superuser: Any, change: str) -> None:
    statement, expected = CHANGES[change]
    superuser.execute(statement, {"key": reader.row.id, "agent": reader.actor.id, "tenant": reader.actor.tenant})
    answer = reader.api.get(READ)
    assert (answer.status_code, answer.json()["code"]) == expected(answer)


def test_a_clearance_that_was_lowered_counts_at_the_next_read(reader: Any, superuser: Any) -> None:
    superuser.execute("UPDATE tenants_agent SET clearance = 0 WHERE id = %s", [reader.actor.id])
    assert reader.api.get(READ).json()["results"] == []


def test_tenant_and_clearance_are_what_the_keys_row_says(reader: Any, superuser: Any) -> None:
    """Even a memory that is wrong in every other way cannot make a read see more than the key's row gives."""
    held = authentication.remembered(f"Api-Key {reader.key}", datetime.now(UTC))
    assert held is not None
    proof = held.proof(datetime.now(UTC))
    who = "SELECT current_setting('muniment.tenant'), current_setting('muniment.clearance'), current_setting('muniment.actor')"
    seen = isolation.alone(Role.AGENT, who, {}, tenant=reader.actor.tenant, clearance=0, proof=proof)
    assert seen == [(str(reader.actor.tenant), str(reader.actor.clearance), str(reader.actor.id))]
    assert proof.proven
    changed = isolation.Proof(proof.statement, {**proof.parameters, "clearance": 0})
    with pytest.raises(isolation.Unproven):
        isolation.alone(Role.AGENT, who, {}, tenant=reader.actor.tenant, proof=changed)
    assert not changed.proven


def test_an_unknown_attribute_is_named_as_a_write_names_it_and_leaves_no_receipt(reader: Any) -> None:
    before = receipts(reader)
    answer = reader.api.get("/api/v1/facts/?subject=mira&attribute=citty")
    assert (answer.status_code, answer.json()["code"]) == (422, "unknown_attribute")
    assert answer.json()["errors"] == [{"path": "attribute", "code": "unknown_attribute"}]
    assert "citty" not in answer.content.decode()
    assert receipts(reader) == before


def test_the_last_use_is_noted_although_a_key_is_remembered(reader: Any) -> None:
    header, now = f"Api-Key {reader.key}", datetime.now(UTC)
    assert authentication.remembered(header, now + timedelta(seconds=30)) is not None
    assert authentication.remembered(header, now + timedelta(seconds=61)) is None


def test_a_connection_that_broke_is_opened_anew_for_a_remembered_key(reader: Any, superuser: Any) -> None:
    superuser.execute("SELECT pg_terminate_backend(%s)", [connection.connection.info.backend_pid])
    assert reader.api.get(READ).status_code == 200


def test_what_is_remembered_is_bounded(reader: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authentication, "REMEMBERED", 1)
    monkeypatch.setattr(authentication, "_remembered", {b"other": next(iter(authentication._remembered.values()))})
    authentication.recognise(f"Api-Key {reader.key}", datetime.now(UTC))
    assert len(authentication._remembered) == 1
