"""What has outlived its time is marked as ended. That no read returns it does not depend on this."""

from uuid import UUID

from memory import endings
from memory.rounds import each_tenant
from retention import access
from tenants.isolation import Role, tenant_transaction


def end_overdue(*, seconds: float = 60.0) -> int:
    """Mark the overdue facts of every tenant as ended, for about `seconds`; return how many. Opens its own transactions."""
    return each_tenant(end_overdue_of, seconds=seconds)


def end_exports(*, seconds: float = 20.0) -> int:
    """Remove the content of access exports whose life is over, in every tenant; return how many."""
    return each_tenant(end_exports_of, seconds=seconds)


def end_exports_of(tenant: UUID) -> int:
    """Remove a chunk of one tenant's access exports whose life is over; return how many."""
    with tenant_transaction(Role.WORKER, tenant=tenant):
        return access.end_overdue(tenant)


def end_overdue_of(tenant: UUID) -> int:
    """Mark a chunk of one tenant's overdue facts as ended; return how many."""
    with tenant_transaction(Role.WORKER, tenant=tenant):
        return endings.end_overdue(tenant)
