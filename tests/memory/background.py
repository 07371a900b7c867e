"""What the tests of background work share: writing through the door in process, and looking at rows as they are."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from memory import consent, outbox, remember
from memory.contracts import ConsentBody, FactBody, parse
from memory.outcomes import Written
from tenants.isolation import Role, tenant_transaction
from tests.organisation import Organisation, Registered
from tests.paths.ledger import publish

__all__ = ["entries", "grant", "make_due", "publish", "put", "say", "settle_all", "withdraw", "worker_rows"]


def say(agent: Registered, subject: str = "mira", attribute: str = "city", value: Any = None, **rest: Any) -> Written:
    """Write one fact, in a transaction of its own; it must be written."""
    body = {"subject": subject, "attribute": attribute, "provenance": {"turn_id": "turn-1"}, **rest}
    if value is not None:
        body["value"] = value
    actor = agent.actor
    with tenant_transaction(Role.WRITER, tenant=actor.tenant, clearance=actor.clearance, actor=actor.id):
        (outcome,) = remember.facts(actor, [parse(FactBody, body)])
    assert isinstance(outcome, Written), outcome
    return outcome


def grant(agent: Registered, ref: str, subject: str = "mira") -> UUID:
    """Record a consent of the subject for support."""
    body = parse(ConsentBody, {"subject": subject, "ref": ref, "purposes": ["support"]})
    with tenant_transaction(Role.WRITER, tenant=agent.actor.tenant, clearance=3, actor=agent.actor.id):
        return consent.grant(agent.actor, body).id


def withdraw(agent: Registered, ref: str) -> None:
    """Withdraw it."""
    with tenant_transaction(Role.WRITER, tenant=agent.actor.tenant, clearance=3, actor=agent.actor.id):
        consent.withdraw(agent.actor, ref)


def settle_all(tenant: Organisation) -> int:
    """Do what is due in the tenant until nothing is; return how many entries that was."""
    total = 0
    while done := outbox.drain_tenant(tenant.id):
        total += done
    return total


def worker_rows(tenant: Organisation, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
    """Run one statement as the worker of the tenant and return its rows."""
    from memory import rows

    with tenant_transaction(Role.WORKER, tenant=tenant.id):
        return rows.fetch(sql, list(parameters))


def entries(tenant: Organisation, topic: str | None = None) -> list[tuple[Any, ...]]:
    """Return (target, state, attempts, failure) of the tenant's entries, the oldest first."""
    return worker_rows(
        tenant,
        "SELECT target_id, state, attempts, failure FROM memory_outboxentry"
        " WHERE topic = coalesce(%s, topic) ORDER BY created_at, id",
        topic,
    )


def put(tenant: Organisation, topic: str, targets: Sequence[UUID]) -> None:
    """Leave work in a transaction of its own."""
    with tenant_transaction(Role.WORKER, tenant=tenant.id):
        outbox.put(tenant.id, topic, targets)


def make_due(superuser: Any, tenant: Organisation) -> None:
    """Let everything that waits for its time be due."""
    superuser.execute(
        "UPDATE memory_outboxentry SET due_at = clock_timestamp() WHERE tenant_id = %s AND state = 'pending'",
        [tenant.id],
    )
