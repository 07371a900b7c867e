"""Sealed receipts: what is altered, removed or added afterwards is found."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from memory import context, receipts, remember
from memory.contracts import EpisodeBody, RecallBody, parse
from memory.receipts import Seals
from tenants.isolation import Role, tenant_transaction
from tests.memory.background import publish, say, worker_rows

pytestmark = pytest.mark.usefixtures("database")


def ask(agent: Any) -> None:
    """Ask a question that an episode answers."""
    actor = agent.actor
    episode = parse(
        EpisodeBody,
        {
            "kind": "message",
            "role": "user",
            "content": "The heron is back.",
            "session_id": "s",
            "turn_id": "t",
            "occurred_at": "2026-01-05T09:00:00Z",
        },
    )
    with tenant_transaction(Role.WRITER, tenant=actor.tenant, clearance=actor.clearance, actor=actor.id):
        remember.episode(actor, episode)
    with tenant_transaction(Role.AGENT, tenant=actor.tenant, clearance=actor.clearance, actor=actor.id):
        body = parse(RecallBody, {"question": "Where is the heron?", "purpose": "support", "budget_tokens": 500})
        assert context.recalled(actor, body, now=datetime.now(UTC))["context"]


def seal(tenant: Any) -> int:
    with tenant_transaction(Role.WORKER, tenant=tenant.id):
        return receipts.seal(tenant.id, older_than=timedelta())


def verified(tenant: Any) -> Seals:
    with tenant_transaction(Role.WORKER, tenant=tenant.id):
        return receipts.verify_receipts(tenant.id)


def test_receipts_are_sealed_in_batches_that_the_chain_counts(
    tenant: Any, agent: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(tenant)
    monkeypatch.setattr(receipts, "CHUNK", 3)
    for number in range(5):
        say(agent, value=f"city-{number}")
    assert [seal(tenant), seal(tenant), seal(tenant)] == [3, 2, 0]
    assert worker_rows(
        tenant,
        "SELECT e.actor_kind, e.numbers->>'count', (SELECT count(*) FROM memory_receipt r WHERE r.sealed_seq = e.seq)"
        " FROM tenants_auditevent e WHERE e.action = 'receipts.sealed' ORDER BY e.seq",
    ) == [("job", "3", 3), ("job", "2", 2)]
    assert verified(tenant) == Seals(batches=2, receipts=5, bad=None)


def test_a_receipt_of_just_now_waits(tenant: Any, agent: Any) -> None:
    publish(tenant)
    say(agent, value="Oslo")
    with tenant_transaction(Role.WORKER, tenant=tenant.id):
        assert receipts.seal(tenant.id) == 0


@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM memory_receipt WHERE tenant_id = %s",
        "DELETE FROM memory_receipt r WHERE r.tenant_id = %s AND r.id = (SELECT id FROM memory_receipt"
        " WHERE tenant_id = r.tenant_id ORDER BY id LIMIT 1)",
        "UPDATE memory_receipt SET fact_ids = '{}' WHERE tenant_id = %s",
        "UPDATE memory_receipt SET at = at + interval '1 microsecond' WHERE tenant_id = %s",
        "UPDATE memory_receipt SET withheld = '{\"expired\": 1}' WHERE tenant_id = %s",
        "UPDATE memory_receipt SET reasons = reasons || '{x}' WHERE tenant_id = %s",
        "UPDATE memory_receipt SET question_digest = NULL WHERE tenant_id = %s",
        "UPDATE memory_receipt SET question_digest = sha256(question_digest) WHERE tenant_id = %s",
        "UPDATE memory_receipt SET episode_ids = '{}' WHERE tenant_id = %s",
        "UPDATE memory_receipt SET episode_ids = NULL WHERE tenant_id = %s",
        "UPDATE memory_receipt SET sealed_seq = NULL WHERE tenant_id = %s",
        "UPDATE memory_receipt SET sealed_seq = 1 WHERE tenant_id = %s",
    ],
)
def test_a_damaged_receipt_is_found(tenant: Any, agent: Any, superuser: Any, damage: str) -> None:
    publish(tenant)
    for value in ("Oslo", "Rome"):
        say(agent, value=value)
    ask(agent)
    assert seal(tenant) == 4
    assert verified(tenant).bad is None
    superuser.execute(damage, [tenant.id])
    assert verified(tenant).bad is not None


def test_receipts_sealed_before_questions_were_in_the_line_still_hold(
    tenant: Any, agent: Any, superuser: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(tenant)
    say(agent, value="Oslo")
    ask(agent)
    with monkeypatch.context() as former:
        former.setattr(receipts, "_FORM", 1)
        taken = receipts._TAKE.replace(f" || {receipts._ASKED} || {receipts._PROCEDURES}", "")
        former.setattr(receipts, "_TAKE", taken)
        assert seal(tenant) == 3
    say(agent, value="Rome")
    assert seal(tenant) == 1
    assert verified(tenant) == Seals(batches=2, receipts=4, bad=None)
    superuser.execute("UPDATE memory_receipt SET fact_ids = '{}' WHERE tenant_id = %s", [tenant.id])
    assert verified(tenant).bad is not None
