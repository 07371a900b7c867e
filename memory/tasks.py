"""Background work by name, for Celery. No task takes an argument: what is to be done stands in the database."""

from uuid import UUID

from celery import shared_task

from memory import derived, idempotency, indexing, outbox, receipts
from memory.rounds import each_tenant
from tenants.isolation import Role, tenant_transaction


@shared_task(name="memory.drain")
def drain() -> None:
    """Do what is due in the outbox."""
    outbox.drain()


@shared_task(name="memory.seal_receipts")
def seal_receipts() -> None:
    """Seal receipts into the audit chains."""
    each_tenant(_seal)


@shared_task(name="memory.index")
def index() -> None:
    """Make what is missing of the search indexes, and count what is common in them."""
    each_tenant(indexing.make_up)


@shared_task(name="memory.tidy")
def tidy() -> None:
    """Delete what has served: outbox entries done a day ago, idempotency records a week old, derived texts a day old."""
    each_tenant(outbox.forget_done)
    each_tenant(_forget_requests)
    each_tenant(derived.throw_away)


def _seal(tenant: UUID) -> int:
    with tenant_transaction(Role.WORKER, tenant=tenant):
        return receipts.seal(tenant)


def _forget_requests(tenant: UUID) -> int:
    with tenant_transaction(Role.WORKER, tenant=tenant):
        return idempotency.forget(tenant)
