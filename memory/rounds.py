"""Going round the tenants: bounded, in no fixed order, and past a tenant in which it fails."""

import logging
import random
import time
from collections.abc import Callable
from uuid import UUID

from tenants.isolation import Role, tenant_transaction
from tenants.models import Tenant

_log = logging.getLogger("muniment.work")


def each_tenant(work: Callable[[UUID], int], *, seconds: float = 60.0) -> int:
    """Call `work` for every tenant until it returns 0 there, for about `seconds` in all; return the sum.

    `work` does one chunk in a transaction of its own and returns how much that was. Where it raises, the tenant is left
    for the next round; the last error is raised at the end.
    """
    with tenant_transaction(Role.FRONT, tenant=None):
        tenants = list(Tenant.objects.values_list("id", flat=True))
    # Whoever is last when the time is up is not last the next time.
    random.shuffle(tenants)
    deadline = time.monotonic() + seconds
    total = 0
    failure: Exception | None = None
    for tenant in tenants:
        try:
            while time.monotonic() < deadline and (done := work(tenant)):
                total += done
        except Exception as error:
            _log.error("a round failed in a tenant", extra={"tenant": str(tenant), "exception": type(error).__name__})
            failure = error
    if failure is not None:
        raise failure
    return total
