"""What was done, counted by day: who did what how often, taken from the audit chain and from nothing else.

Each entry of a chain is counted once: how far the count has come is moved in the transaction that counts. So the numbers can
be held against the chain, and pages need not read it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from uuid import UUID

from memory import rows
from memory.rounds import each_tenant
from tenants.actors import ActorKind
from tenants.identity import new_id
from tenants.isolation import Role, tenant_transaction

#: Entries that one transaction counts.
CHUNK = 20_000

_BEGIN = """
INSERT INTO retention_tallystate (tenant_id, id, counted_to) VALUES (%(tenant)s::uuid, %(tenant)s::uuid, 0)
ON CONFLICT (tenant_id, id) DO NOTHING
"""
_LOCK = """
SELECT s.counted_to FROM retention_tallystate s WHERE s.tenant_id = %(tenant)s::uuid AND s.id = %(tenant)s::uuid
FOR UPDATE SKIP LOCKED
"""
_COUNT = """
WITH part AS MATERIALIZED (
  SELECT e.seq, (e.at AT TIME ZONE 'UTC')::date AS day, e.action, e.actor_kind, e.actor_id FROM tenants_auditevent e
  WHERE e.chain = %(tenant)s::uuid AND e.seq > %(after)s::bigint ORDER BY e.seq LIMIT %(most)s::int
), counted AS (
  SELECT p.day, p.action, p.actor_kind, p.actor_id, count(*) AS number FROM part p GROUP BY 1, 2, 3, 4
), kept AS (
  INSERT INTO retention_tally AS t (tenant_id, id, day, action, actor_kind, actor_id, number)
  SELECT %(tenant)s::uuid, w.id, w.day, w.action, w.actor_kind, w.actor_id, w.number
  FROM (SELECT c.*, (%(ids)s::uuid[])[row_number() OVER (ORDER BY c.day, c.action, c.actor_kind, c.actor_id)] AS id
    FROM counted c) w WHERE w.id IS NOT NULL
  ON CONFLICT (tenant_id, day, action, actor_kind, actor_id) DO UPDATE SET number = t.number + excluded.number
  RETURNING 1
), moved AS (
  UPDATE retention_tallystate s SET counted_to = (SELECT max(p.seq) FROM part p)
  WHERE s.tenant_id = %(tenant)s::uuid AND EXISTS (SELECT FROM part) RETURNING 1
)
SELECT (SELECT count(*) FROM part), (SELECT count(*) FROM counted), (SELECT count(*) FROM kept)
"""
#: Different counters that one chunk may need; a chunk that needs more is taken smaller.
_COUNTERS = 2_000


def count_all(*, seconds: float = 20.0) -> int:
    """Count what the chains of all tenants have gained, for about `seconds`; return how many entries. Opens its own transactions."""
    return each_tenant(count, seconds=seconds)


def count(tenant: UUID, *, limit: int = CHUNK) -> int:
    """Count the next entries of a tenant's chain, at most `limit`; return how many. 0 where another is counting.

    Opens its own transaction. An entry is counted once, however often this is cut off or called at once.
    """
    with tenant_transaction(Role.WORKER, tenant=tenant):
        rows.execute(_BEGIN, {"tenant": tenant})
        found = rows.fetch(_LOCK, {"tenant": tenant})
        if not found:
            return 0
        ids = [new_id() for _ in range(_COUNTERS)]
        seen, counters, kept = rows.fetch(
            _COUNT, {"tenant": tenant, "after": found[0][0], "most": min(limit, _COUNTERS), "ids": ids}
        )[0]
        assert counters == kept
        return int(seen)


# reading --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Series:
    """How often something was done on each of consecutive days (UTC), the oldest first."""

    days: list[date]
    numbers: list[int]


_BY_DAY = """
SELECT d.day::date, coalesce(sum(t.number), 0)::bigint
FROM generate_series(%(since)s::date, %(until)s::date, interval '1 day') AS d (day)
  LEFT JOIN retention_tally t ON t.tenant_id = %(tenant)s::uuid AND t.day = d.day::date AND t.action = ANY (%(actions)s::text[])
GROUP BY 1 ORDER BY 1
"""
_BY_ACTOR = """
SELECT t.actor_id, sum(t.number) FILTER (WHERE t.action = ANY (%(writes)s::text[]))::bigint,
  sum(t.number) FILTER (WHERE t.action = ANY (%(refusals)s::text[]))::bigint
FROM retention_tally t
WHERE t.tenant_id = %(tenant)s::uuid AND t.day BETWEEN %(since)s::date AND %(until)s::date AND t.actor_kind = %(kind)s::text
  AND t.action = ANY (%(writes)s::text[] || %(refusals)s::text[])
GROUP BY 1 ORDER BY 2 DESC NULLS LAST, 3 DESC NULLS LAST, 1 LIMIT %(most)s::int
"""
_SUM = """
SELECT coalesce(sum(t.number), 0)::bigint FROM retention_tally t
WHERE t.tenant_id = %(tenant)s::uuid AND t.day BETWEEN %(since)s::date AND %(until)s::date AND t.action = ANY (%(actions)s::text[])
"""


def by_day(tenant: UUID, actions: Iterable[str], *, since: date, until: date) -> Series:
    """Return how often any of `actions` was done on each day from `since` to `until`, both included."""
    found = rows.fetch(
        _BY_DAY, {"tenant": tenant, "since": since, "until": until, "actions": [str(each) for each in actions]}
    )
    return Series([day for day, _ in found], [number for _, number in found])


def total(tenant: UUID, actions: Iterable[str], *, since: date, until: date) -> int:
    """Return how often any of `actions` was done from `since` to `until`, both included."""
    number: int = rows.fetch(
        _SUM, {"tenant": tenant, "since": since, "until": until, "actions": [str(each) for each in actions]}
    )[0][0]
    return number


def agents(
    tenant: UUID, *, writes: Iterable[str], refusals: Iterable[str], since: date, until: date, most: int
) -> list[tuple[UUID, int, int]]:
    """Return the agents that wrote most, each with how often it wrote and how often it was refused."""
    found = rows.fetch(
        _BY_ACTOR,
        {
            "tenant": tenant,
            "since": since,
            "until": until,
            "kind": ActorKind.AGENT.value,
            "writes": [str(each) for each in writes],
            "refusals": [str(each) for each in refusals],
            "most": most,
        },
    )
    return [(agent, wrote or 0, refused or 0) for agent, wrote, refused in found]
