"""What members see of a tenant's memory: what waits, and what is known of a subject, without content.

Needs `Role.STAFF`, which may not read payloads.
"""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from memory.rows import fetch

#: No count goes further: a page says "1,000 or more".
COUNTED = 1_000


@dataclass(frozen=True, slots=True)
class Waiting:
    """What waits in a tenant. Counts stop at `COUNTED`; `oldest` is when the oldest question was asked."""

    asked: int
    oldest: datetime | None
    buffered: int
    pending: int
    failed: int
    entries: int


_WAITING = """
SELECT
  (SELECT count(*) FROM (SELECT FROM memory_candidate WHERE tenant_id = t.id AND state = 'asked' LIMIT %s) x),
  (SELECT created_at FROM memory_candidate WHERE tenant_id = t.id AND state = 'asked' ORDER BY id LIMIT 1),
  (SELECT count(*) FROM (SELECT FROM memory_candidate WHERE tenant_id = t.id AND state = 'buffered' LIMIT %s) x),
  (SELECT count(*) FROM (SELECT FROM memory_outboxentry WHERE tenant_id = t.id AND state = 'pending' LIMIT %s) x),
  (SELECT count(*) FROM (SELECT FROM memory_outboxentry WHERE tenant_id = t.id AND state = 'failed' LIMIT %s) x),
  (SELECT coalesce(max(seq), 0) FROM tenants_auditevent WHERE chain = t.id)
FROM (SELECT %s::uuid AS id) t
"""


def waiting(tenant: UUID) -> Waiting:
    """Return what waits in `tenant`, in one statement whose cost does not grow with the tenant."""
    return Waiting(*fetch(_WAITING, [COUNTED, COUNTED, COUNTED, COUNTED, tenant])[0])
