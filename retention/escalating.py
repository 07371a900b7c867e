"""What is owed to data subjects and comes near its day, or is past it: told once to whoever has to see to it.

A week before an answer is due the privacy officers are told, and from the day on the tenant's admins. That this was said is
a row and an entry of the audit chain, one for each request, level and day, however often and by however many it is looked
for: a request that was extended is told of anew when its new day comes near. People see it on their first page, in the
queue, and on the request's page.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from memory import rows
from memory.endings import worker
from memory.rounds import each_tenant
from tenants.actors import MemberRole
from tenants.audit import Action, Event, append
from tenants.identity import new_id
from tenants.isolation import Role, tenant_transaction

#: So long before an answer is due it is told that it will be.
NEAR = timedelta(days=7)
#: Who is told, by level.
TOLD = {"due_soon": MemberRole.PRIVACY_OFFICER, "overdue": MemberRole.TENANT_ADMIN}
#: Requests that one transaction tells of.
CHUNK = 100

# A request that another round is about, or a person, is left to the next round.
_NOT_TOLD = """
SELECT r.id, coalesce(r.extended_to, r.due_at), w.level
FROM retention_subjectrequest r
  CROSS JOIN LATERAL (SELECT CASE WHEN coalesce(r.extended_to, r.due_at) <= %(now)s::timestamptz
    THEN 'overdue' ELSE 'due_soon' END AS level) w
WHERE r.tenant_id = %(tenant)s::uuid AND r.state IN ('received', 'in_progress')
  AND coalesce(r.extended_to, r.due_at) <= %(now)s::timestamptz + %(near)s::interval
  AND NOT EXISTS (SELECT FROM retention_escalation e WHERE e.tenant_id = r.tenant_id AND e.request_id = r.id
    AND e.level = w.level AND e.due_at = coalesce(r.extended_to, r.due_at))
ORDER BY 2, 1 LIMIT %(most)s FOR NO KEY UPDATE OF r SKIP LOCKED
"""
_TELL = """
INSERT INTO retention_escalation (tenant_id, id, request_id, level, told, due_at, at)
SELECT %(tenant)s::uuid, w.id, w.request_id, w.level, w.told, w.due_at, %(now)s::timestamptz
FROM unnest(%(ids)s::uuid[], %(requests)s::uuid[], %(levels)s::text[], %(told)s::text[], %(dues)s::timestamptz[])
  AS w (id, request_id, level, told, due_at)
ON CONFLICT (tenant_id, request_id, level, due_at) DO NOTHING RETURNING request_id, level
"""
_LATEST = """
SELECT DISTINCT ON (e.request_id) e.request_id, e.told FROM retention_escalation e
  JOIN retention_subjectrequest r ON r.tenant_id = e.tenant_id AND r.id = e.request_id
    AND coalesce(r.extended_to, r.due_at) = e.due_at
WHERE e.tenant_id = %(tenant)s::uuid AND e.request_id = ANY (%(requests)s::uuid[])
ORDER BY e.request_id, e.at DESC, e.level DESC
"""
_OPEN = """
SELECT count(*) FILTER (WHERE e.level = 'due_soon'), count(*) FILTER (WHERE e.level = 'overdue')
FROM (SELECT DISTINCT ON (r.id) e.level FROM retention_subjectrequest r
    JOIN retention_escalation e ON e.tenant_id = r.tenant_id AND e.request_id = r.id
      AND e.due_at = coalesce(r.extended_to, r.due_at)
  WHERE r.tenant_id = %(tenant)s::uuid AND r.state IN ('received', 'in_progress')
  ORDER BY r.id, e.level DESC LIMIT %(most)s) e
"""


def escalate_all(*, now: datetime, seconds: float = 20.0) -> int:
    """Tell of what is near or past its day in every tenant; return of how many. Opens its own transactions."""
    return each_tenant(lambda tenant: escalate(tenant, now=now), seconds=seconds)


def escalate(tenant: UUID, *, now: datetime) -> int:
    """Tell of a tenant's requests that are near or past their day and were not told of; return of how many.

    At most `CHUNK`, in a transaction of its own, each with its entry in the chain. Two at once tell once.
    """
    with tenant_transaction(Role.STAFF, tenant=tenant):
        found = rows.fetch(_NOT_TOLD, {"tenant": tenant, "now": now, "near": NEAR, "most": CHUNK})
        if not found:
            return 0
        told = rows.fetch(
            _TELL,
            {
                "tenant": tenant,
                "now": now,
                "ids": [new_id() for _ in found],
                "requests": [request for request, _, _ in found],
                "dues": [due for _, due, _ in found],
                "levels": [level for _, _, level in found],
                "told": [TOLD[level].value for _, _, level in found],
            },
        )
        append(
            [
                Event(
                    actor=worker(tenant),
                    action=Action.SUBJECT_REQUEST_ESCALATED,
                    target_kind="subject_request",
                    target_id=request,
                    reason=level,
                )
                for request, level in told
            ]
        )
        return len(told)


def told_of(tenant: UUID, requests: Sequence[UUID]) -> Mapping[UUID, str]:
    """Return which role was told last of each request, of those that are told of for the day on which they are due now."""
    return dict(rows.fetch(_LATEST, {"tenant": tenant, "requests": list(requests)})) if requests else {}


def open_alerts(tenant: UUID, *, most: int = 1_000) -> tuple[int, int]:
    """Return how many open requests are told of as near their day, and how many as past it; at most `most` are counted."""
    near, past = rows.fetch(_OPEN, {"tenant": tenant, "most": most})[0]
    return near, past
