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


#: A page shows so many stretches of a subject; the lists show all.
SHOWN = 300


@dataclass(frozen=True, slots=True)
class Stretch:
    """A stretch of a subject's attribute as believed now. `fact` is None where nothing is known to hold."""

    attribute: str
    belief: UUID
    fact: UUID | None
    valid_from: datetime
    valid_to: datetime | None
    believed_from: datetime
    sensitivity: int | None
    basis: str | None
    expires_at: datetime | None
    evidence: int | None
    confirmed: bool | None
    state: str


_STRETCHES = """
SELECT a.name, b.id, b.fact_id, b.valid_from, b.valid_to, b.believed_from, f.sensitivity, f.basis, f.expires_at,
  f.evidence_count, f.confirmed,
  CASE WHEN b.fact_id IS NULL THEN 'nothing'
    WHEN f.redaction_state <> 'none' THEN 'redacted'
    WHEN f.ended_at IS NOT NULL THEN f.ended_by
    WHEN f.expires_at <= statement_timestamp() THEN 'expired'
    WHEN b.valid_from > statement_timestamp() THEN 'later'
    WHEN b.valid_to <= statement_timestamp() THEN 'past'
    ELSE 'now' END
FROM memory_factkey k
  JOIN policies_attribute a ON a.tenant_id = k.tenant_id AND a.id = k.attribute_id
  JOIN memory_belief b ON b.tenant_id = k.tenant_id AND b.key_id = k.id AND b.believed_to IS NULL
  LEFT JOIN memory_fact f ON f.tenant_id = b.tenant_id AND f.id = b.fact_id
WHERE k.tenant_id = %s AND k.subject_id = %s
ORDER BY a.name, b.valid_from, b.id LIMIT %s
"""


def stretches(tenant: UUID, subject: UUID) -> list[Stretch]:
    """Return what is believed now of a subject, by attribute and start; one more than `SHOWN` where there are more."""
    return [Stretch(*row) for row in fetch(_STRETCHES, [tenant, subject, SHOWN + 1])]
