"""What was done, counted by day: who did what how often, taken from the audit chain and from nothing else.

Each entry of a chain is counted once: how far the count has come is moved in the transaction that counts. So the numbers can
be held against the chain, and pages need not read it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, timedelta
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
#: So many days before a day say what is usual.
USUAL_DAYS = 28
#: So often a day is nobody's unusual volume.
UNREMARKABLE = 20
#: So many times the usual is far more, as is so many where nothing was usual.
FAR_MORE = 5

# What is usual is the mean of the days on which there was any, so that days of rest do not make a day of work unusual.
_UNUSUAL = """
SELECT u.actor_kind, u.actor_id, u.act, u.today, u.usual FROM (
  SELECT t.actor_kind, t.actor_id, w.act,
    coalesce(sum(t.number) FILTER (WHERE t.day = %(day)s::date), 0)::bigint AS today,
    coalesce((sum(t.number) FILTER (WHERE t.day < %(day)s::date))
      / nullif(count(DISTINCT t.day) FILTER (WHERE t.day < %(day)s::date), 0), 0)::bigint AS usual
  FROM retention_tally t JOIN unnest(%(actions)s::text[], %(acts)s::text[], %(kinds)s::text[]) AS w (action, act, kind)
    ON w.action = t.action AND w.kind = t.actor_kind
  WHERE t.tenant_id = %(tenant)s::uuid AND t.day BETWEEN %(since)s::date AND %(day)s::date
  GROUP BY 1, 2, 3) u
WHERE u.today >= %(least)s::bigint AND u.today >= %(far)s::bigint * greatest(u.usual, 1)
ORDER BY u.today DESC, u.actor_id LIMIT %(most)s::int
"""


@dataclass(frozen=True, slots=True)
class Unusual:
    """Somebody who did something far more often on a day than they usually do on a day on which they do it."""

    kind: ActorKind
    actor: UUID
    act: str
    number: int
    usual: int


def unusual(
    tenant: UUID, watched: Iterable[tuple[ActorKind, str, Iterable[str]]], *, day: date, most: int
) -> list[Unusual]:
    """Return who did far more on `day` than usual, the most first; `watched` is by whom, what it is called, and its actions.

    At least `UNREMARKABLE` times and `FAR_MORE` times their own mean of the `USUAL_DAYS` before.
    """
    flat = [(str(action), act, kind.value) for kind, act, actions in watched for action in actions]
    asked = {
        "tenant": tenant,
        "day": day,
        "since": day - timedelta(days=USUAL_DAYS),
        "actions": [action for action, _, _ in flat],
        "acts": [act for _, act, _ in flat],
        "kinds": [kind for _, _, kind in flat],
        "least": UNREMARKABLE,
        "far": FAR_MORE,
        "most": most,
    }
    return [Unusual(ActorKind(kind), *rest) for kind, *rest in rows.fetch(_UNUSUAL, asked)]


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
