"""What a tenant may ask of a model and has asked: tokens set aside before each question and counted after it.

A question is asked outside every transaction, so both are short transactions of their own. What was set aside by a
process that ended before it counted stays counted: nobody knows whether its question was answered.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any
from uuid import UUID

from django.db import connection

from memory import rows
from memory.extraction.model import Use
from memory.extraction.protocol import ExtractionFailed
from policies.vocabulary import Sensitivity
from tenants.actors import Actor
from tenants.audit import Action, Event, append
from tenants.identity import new_id
from tenants.isolation import Role, tenant_transaction

#: Where nobody set a bound.
_BOUNDLESS = 2**62

# One row a tenant, taken by whoever sets tokens aside: its condition is tested on what the one before left. A day or a
# month that is over counts for nothing; a clock that lags behind another's counts on in the newer one.
_RESERVE = """
INSERT INTO memory_modelbudget AS b (tenant_id, id, day, day_tokens, month, month_tokens)
SELECT %(tenant)s::uuid, %(id)s::uuid, n.day, %(tokens)s::bigint, date_trunc('month', n.day)::date, %(tokens)s::bigint
FROM (SELECT (clock_timestamp() AT TIME ZONE 'UTC')::date AS day) AS n
ON CONFLICT (tenant_id) DO UPDATE SET
  day = greatest(b.day, excluded.day),
  day_tokens = excluded.day_tokens + CASE WHEN b.day >= excluded.day THEN b.day_tokens ELSE 0 END,
  month = greatest(b.month, excluded.month),
  month_tokens = excluded.month_tokens + CASE WHEN b.month >= excluded.month THEN b.month_tokens ELSE 0 END
WHERE excluded.day_tokens + CASE WHEN b.day >= excluded.day THEN b.day_tokens ELSE 0 END <= %(day_limit)s::bigint
  AND excluded.month_tokens + CASE WHEN b.month >= excluded.month THEN b.month_tokens ELSE 0 END <= %(month_limit)s::bigint
RETURNING b.day, b.month
"""
# How long until the period is over that has nothing left.
_UNTIL = """
SELECT (CASE WHEN b.month_tokens + %(tokens)s::bigint > %(month_limit)s::bigint
    THEN (b.month + interval '1 month') AT TIME ZONE 'UTC' ELSE (b.day + interval '1 day') AT TIME ZONE 'UTC' END)
  - clock_timestamp()
FROM memory_modelbudget b WHERE b.tenant_id = %(tenant)s::uuid
"""
_SETTLE = """
UPDATE memory_modelbudget b SET
  day_tokens = CASE WHEN b.day = %(day)s THEN greatest(b.day_tokens + %(more)s::bigint, 0) ELSE b.day_tokens END,
  month_tokens = CASE WHEN b.month = %(month)s THEN greatest(b.month_tokens + %(more)s::bigint, 0) ELSE b.month_tokens END
WHERE b.tenant_id = %(tenant)s::uuid
"""
_COUNT = """
INSERT INTO memory_modelspending AS s
  (tenant_id, id, day, model, outcome, calls, tokens_in, tokens_out, milliseconds, cost)
VALUES (%(tenant)s::uuid, %(id)s::uuid, %(day)s, %(model)s, %(outcome)s, 1, %(tokens_in)s, %(tokens_out)s,
  %(milliseconds)s, %(cost)s)
ON CONFLICT (tenant_id, day, model, outcome) DO UPDATE SET calls = s.calls + 1,
  tokens_in = s.tokens_in + excluded.tokens_in, tokens_out = s.tokens_out + excluded.tokens_out,
  milliseconds = s.milliseconds + excluded.milliseconds, cost = s.cost + excluded.cost
"""


def lower(*bounds: int | None) -> int | None:
    """Return the lowest of the bounds that are set; None where none is."""
    return min((each for each in bounds if each is not None), default=None)


class EpisodeMeter:
    """Counts the questions about one episode, in transactions of their own; the sending is audited with the setting aside.

    `per_day` and `per_month` bound the tenant's tokens of a day and a month of UTC. Not for use by several threads.
    """

    def __init__(
        self,
        actor: Actor,
        episode: UUID,
        *,
        model: str,
        ceiling: Sensitivity,
        per_day: int | None,
        per_month: int | None,
    ) -> None:
        self._actor = actor
        self._episode = episode
        self._model = model
        self._ceiling = ceiling
        self._per_day = _BOUNDLESS if per_day is None else per_day
        self._per_month = _BOUNDLESS if per_month is None else per_month
        self._period: tuple[date, date] | None = None

    def reserve(self, tokens: int, *, masked: int) -> None:
        """Set tokens aside, and audit that the episode is sent. Exact, however many do so at once.

        Raises ExtractionFailed: `budget_too_small` where the question alone is larger than the bound, `budget_spent`
        where too little is left, with how long until there is more.
        """
        if tokens > min(self._per_day, self._per_month):
            raise ExtractionFailed("budget_too_small", final=True)
        asked = {
            "tenant": self._actor.tenant,
            "id": new_id(),
            "tokens": tokens,
            "day_limit": self._per_day,
            "month_limit": self._per_month,
        }
        with tenant_transaction(Role.WORKER, tenant=self._actor.tenant):
            found = rows.fetch(_RESERVE, asked)
            if found:
                self._period = found[0]
                append([self._sent(tokens, masked)])
                return
            (wait,) = rows.fetch(_UNTIL, asked)[0]
        raise ExtractionFailed("budget_spent", wait=max(wait, timedelta()))

    def settle(self, reserved: int, use: Use) -> None:
        """Count what was spent in the place of what was set aside last; of an answer that is larger, all of it."""
        if self._period is None:
            raise RuntimeError("nothing was set aside")
        day, month = self._period
        self._period = None
        counted: dict[str, UUID | date | str | int] = {
            "tenant": self._actor.tenant,
            "id": new_id(),
            "day": day,
            "month": month,
            "more": use.tokens_in + use.tokens_out - reserved,
            "model": use.model,
            "outcome": use.outcome,
            "tokens_in": use.tokens_in,
            "tokens_out": use.tokens_out,
            "milliseconds": round(use.seconds * 1_000),
            "cost": use.cost,
        }
        with tenant_transaction(Role.WORKER, tenant=self._actor.tenant), connection.cursor() as cursor:
            cursor.execute(_SETTLE, counted)
            cursor.execute(_COUNT, counted)

    def _sent(self, tokens: int, masked: int) -> Event:
        return Event(
            actor=self._actor,
            action=Action.EPISODE_SENT,
            target_kind="episode",
            target_id=self._episode,
            reason=re.sub(r"[^a-z0-9_.-]+", "_", self._model.lower())[:60],
            numbers={"up_to": int(self._ceiling), "masked": masked, "tokens": tokens},
        )


@dataclass(frozen=True, slots=True)
class Spent:
    """What all tenants together asked of a model today, by outcome. `cost` in millionths of a US dollar."""

    model: str
    outcome: str
    calls: int
    tokens_in: int
    tokens_out: int
    milliseconds: int
    cost: int


_TODAY = """
SELECT s.model, s.outcome, sum(s.calls)::bigint, sum(s.tokens_in)::bigint, sum(s.tokens_out)::bigint,
  sum(s.milliseconds)::bigint, sum(s.cost)::bigint
FROM memory_modelspending s WHERE s.day = (clock_timestamp() AT TIME ZONE 'UTC')::date
GROUP BY s.model, s.outcome ORDER BY s.model, s.outcome
"""


def today() -> Sequence[Spent]:
    """Return what was asked of models since midnight UTC. Needs `Role.FRONT`."""
    found: list[tuple[Any, ...]] = rows.fetch(_TODAY, [])
    return [Spent(*row) for row in found]
