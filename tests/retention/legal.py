"""A tenant under legal hold: who opens matters, who places holds, who asks for release and who decides."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from uuid import UUID, uuid4

from memory import rows
from retention import holds
from retention.models import Hold
from tenants.actors import Actor, ActorKind
from tenants.isolation import Role, tenant_transaction
from tenants.models import PLATFORM


def place_raw(tenant: UUID, *scopes: dict[str, Any], by: UUID | None = None) -> UUID:
    """Place a hold by raw SQL of the staff role, as a page would; return its id."""
    matter, hold = uuid4(), uuid4()
    with tenant_transaction(Role.STAFF, tenant=tenant, clearance=3, actor=by or uuid4()):
        rows.execute(
            "INSERT INTO retention_matter (tenant_id, id, reference, reason, opened_by, opened_at)"
            " VALUES (%s, %s, %s, 'litigation', %s, now())",
            [tenant, matter, f"case-{matter.hex[:12]}", uuid4()],
        )
        rows.execute(
            "INSERT INTO retention_hold (tenant_id, id, matter_id, placed_by, placed_at) VALUES (%s, %s, %s, %s, now())",
            [tenant, hold, matter, uuid4()],
        )
        for scope in scopes:
            names = list(scope)
            rows.execute(
                f"INSERT INTO retention_holdscope (tenant_id, id, hold_id, {', '.join(names)})"
                f" VALUES (%s, %s, %s, {', '.join('%s' for _ in names)})",
                [tenant, uuid4(), hold, *scope.values()],
            )
    return hold


def job(tenant: UUID) -> Actor:
    """A job of the background."""
    return Actor(kind=ActorKind.JOB, id=PLATFORM, tenant=tenant)


@contextmanager
def ending(tenant: UUID) -> Iterator[None]:
    """An ending's transaction, with the lock that endings share."""
    with tenant_transaction(Role.WORKER, tenant=tenant):
        holds.share(tenant)
        yield


def held(tenant: UUID, kind: str, *ids: UUID) -> dict[UUID, list[UUID]]:
    """What is held of these."""
    with ending(tenant):
        return holds.held(tenant, kind, ids)


def free(
    tenant: UUID, kind: str, ids: Sequence[UUID], *, act: str = "compaction", by: Actor | None = None
) -> list[UUID]:
    """What may end of these."""
    with ending(tenant):
        return holds.free(tenant, kind, ids, actor=by or job(tenant), act=act)


def hold_of(tenant: UUID, hold: UUID) -> Hold:
    """One hold as it stands."""
    with tenant_transaction(Role.STAFF, tenant=tenant):
        return Hold.objects.get(id=hold)
