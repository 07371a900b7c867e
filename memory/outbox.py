"""The outbox: work that a committed act has left to do, done exactly once.

An entry is written in the transaction of its act. A worker takes entries by row lock, lets the handler of their topic
work and marks them in one transaction, so that what a handler did and that it was done are kept or lost together. The
broker only rings: an entry whose message was lost is found by the next sweep.
"""

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from functools import cache
from importlib import import_module
from typing import Any, Protocol, cast
from uuid import UUID

from django.conf import settings
from django.db import Error, connection, transaction
from django.utils.module_loading import import_string

from memory import rows
from tenants.actors import Actor
from tenants.audit import Action, Event, append
from tenants.identity import new_id
from tenants.isolation import Role, tenant_transaction

_log = logging.getLogger("muniment.outbox")

#: Entries that one transaction takes.
CHUNK = 200
#: Entries of topics with transactions of their own that are taken at once, and for how long they are.
APART = 10
TAKEN_FOR = timedelta(minutes=3)
#: No further one is begun after this: with a drain's own time and the longest of them it stays below a task's limit.
_APART_SECONDS = 12.0
ATTEMPTS = 8
_LONGEST_WAIT_SECONDS = 600
KEPT_AFTER_DONE = timedelta(days=1)
#: What one transaction deletes.
_DELETED_AT_ONCE = 1_000
_STATEMENT_LIMIT = "20s"


class Settled(Enum):
    """What became of a target: done, to be looked at again in a second, or more of the same remains to be done."""

    DONE = "done"
    AGAIN = "again"
    MORE = "more"


@dataclass(frozen=True, slots=True)
class GivenUp:
    """A target that no further attempt would mend; `code` says why."""

    code: str


@dataclass(frozen=True, slots=True)
class Retry:
    """A target whose work failed and may succeed another time; `code` says why.

    With `wait` it is due again then, within a day; who does the work counts those attempts, the outbox does not.
    """

    code: str
    wait: timedelta | None = None


#: What became of each target; one that is not named is done.
Outcomes = dict[UUID, Settled | GivenUp]
#: Works on distinct targets of one topic in the open worker's transaction of their tenant. Must be harmless to repeat.
Handler = Callable[[UUID, Sequence[UUID]], Outcomes]
#: Works on one target in transactions of its own, while none is open. Must be harmless to repeat, and to be cut off.
Worker = Callable[[UUID, UUID], Settled | GivenUp | Retry]


@dataclass(frozen=True, slots=True)
class State:
    """The outbox at a glance. `lag_seconds` is how long the oldest due entry waits."""

    pending: int
    failed: int
    lag_seconds: float


@cache
def handlers() -> dict[str, Handler]:
    """Return who does the work of each topic, those that audit last: the settings' `OUTBOX_HANDLERS`."""
    return {topic: import_string(path) for topic, path in settings.OUTBOX_HANDLERS.items()}


@cache
def workers() -> dict[str, Worker]:
    """Return who does the work of each topic that needs transactions of its own: the settings' `OUTBOX_WORKERS`."""
    return {topic: import_string(path) for topic, path in settings.OUTBOX_WORKERS.items()}


# the bell -------------------------------------------------------------------------------------------------------------


@cache
def _bell() -> Callable[[], None]:
    ring: Callable[[], None] = import_string(settings.DOORBELL)
    return ring


def nudge() -> None:
    """Ring once the open transaction has committed. Cheap; a broker that is away never fails the act."""
    transaction.on_commit(lambda: _bell()(), robust=True)


def put(tenant: UUID, topic: str, targets: Sequence[UUID]) -> None:
    """Leave work in the open transaction, due at once, and ring after its commit."""
    if not targets:
        return
    _put(tenant, topic, [(new_id(), target) for target in targets], timedelta())
    nudge()


def put_off(tenant: UUID, topic: str, target: UUID, *, after: timedelta) -> None:
    """Leave work in the open transaction that is due `after`; the sweep finds it then."""
    _put(tenant, topic, [(new_id(), target)], after)


def put_aside(tenant: UUID, topic: str, target: UUID, *, after: timedelta) -> None:
    """Leave work in the open transaction that its act does itself after the commit, and says so by `done`.

    One at a time for a target. Where the act is cut off before that, the work is found `after`.
    """
    _put(tenant, topic, [(target, target)], after)


def done(tenant: UUID, targets: Sequence[UUID]) -> None:
    """Mark work done that was put aside for its act. Needs `Role.WORKER`."""
    rows.execute(_DONE, [tenant, list(targets)])


def _put(tenant: UUID, topic: str, entries: Sequence[tuple[UUID, UUID]], after: timedelta) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO memory_outboxentry (tenant_id, id, topic, target_id, due_at, created_at)"
            " SELECT %s::uuid, w.id, %s, w.target, clock_timestamp() + make_interval(secs => %s), clock_timestamp()"
            " FROM unnest(%s::uuid[], %s::uuid[]) AS w (id, target)",
            [tenant, topic, after.total_seconds(), [entry for entry, _ in entries], [target for _, target in entries]],
        )


# what has ended is told outside of the database ------------------------------------------------------------------------


class EndingsLog(Protocol):
    """The module named by the settings' `ENDINGS_LOG`; what its functions guarantee stands there."""

    def owe(self, tenant: UUID, kind: str, target_id: UUID, record: Mapping[str, Any]) -> None:
        """Owe an entry in the act's transaction; its commit returns once the entry is on disk."""

    def confirm(self, tenant: UUID) -> None:
        """Have the commit of the open transaction wait for whatever the tenant owes."""


@cache
def endings_log() -> EndingsLog:
    """Return who tells of an ending outside of the database, in the transaction of the act."""
    return cast(EndingsLog, import_module(settings.ENDINGS_LOG))


# draining -------------------------------------------------------------------------------------------------------------


def drain(*, seconds: float = 30.0) -> int:
    """Do everything that is due in every tenant, for at most about `seconds`; return how many entries were settled.

    Any number of processes may drain at once. Opens its own transactions.
    """
    deadline = time.monotonic() + seconds
    total = 0
    while time.monotonic() < deadline:
        found = _due_tenants()
        settled = 0
        for tenant in found:
            if time.monotonic() > deadline:
                break
            settled += drain_tenant(tenant)
        total += settled
        if not settled:
            break  # nothing is due, or others are at it
    return total


def _due_tenants() -> list[UUID]:
    with tenant_transaction(Role.FRONT, tenant=None):
        return [
            row[0]
            for row in rows.fetch(
                "SELECT DISTINCT o.tenant_id FROM memory_outboxentry o"
                " WHERE o.state = 'pending' AND o.due_at <= clock_timestamp()",
                [],
            )
        ]


# Row locks are taken without waiting: entries that another worker has are passed over.
_CLAIM = """
SELECT o.id, o.topic, o.target_id, o.attempts FROM memory_outboxentry o
WHERE o.tenant_id = %s::uuid AND o.state = 'pending' AND o.due_at <= clock_timestamp()
  AND NOT (o.topic = ANY(%s::text[])) ORDER BY o.due_at LIMIT %s FOR UPDATE SKIP LOCKED
"""
# Taken for a while: whoever is cut off leaves them to be taken again once that is over. As an array they are looked for
# once; as a table to join they would be, in some plans, for each entry anew, and all of them be taken.
_TAKE = """
UPDATE memory_outboxentry o SET due_at = clock_timestamp() + %s
WHERE o.tenant_id = %s::uuid AND o.id = ANY (ARRAY(SELECT w.id FROM memory_outboxentry w
  WHERE w.tenant_id = %s::uuid AND w.state = 'pending' AND w.due_at <= clock_timestamp() AND w.topic = ANY(%s::text[])
  ORDER BY w.due_at LIMIT %s FOR UPDATE SKIP LOCKED))
RETURNING o.id, o.topic, o.target_id, o.attempts
"""
_AFTER = """
UPDATE memory_outboxentry o SET failure = w.code, due_at = clock_timestamp() + least(w.wait, interval '1 day')
FROM unnest(%s::uuid[], %s::text[], %s::interval[]) AS w (id, code, wait)
WHERE o.tenant_id = %s::uuid AND o.id = w.id
"""
_GIVE_BACK = """
UPDATE memory_outboxentry o SET due_at = clock_timestamp() WHERE o.tenant_id = %s::uuid AND o.id = ANY(%s::uuid[])
"""
_DONE = """
UPDATE memory_outboxentry o SET state = 'done', done_at = clock_timestamp(), failure = NULL
WHERE o.tenant_id = %s::uuid AND o.id = ANY(%s::uuid[])
"""
_LATER = """
UPDATE memory_outboxentry o SET due_at = clock_timestamp() + interval '1 second'
WHERE o.tenant_id = %s::uuid AND o.id = ANY(%s::uuid[])
"""
_FAILED = """
UPDATE memory_outboxentry o SET state = 'failed', attempts = least(o.attempts + 1, 100), failure = w.code
FROM unnest(%s::uuid[], %s::text[]) AS w (id, code)
WHERE o.tenant_id = %s::uuid AND o.id = w.id
"""
_RETRIED = """
UPDATE memory_outboxentry o SET attempts = o.attempts + 1, failure = w.code,
  due_at = clock_timestamp() + interval '1 second' * least(power(2, o.attempts), %s)
FROM unnest(%s::uuid[], %s::text[]) AS w (id, code)
WHERE o.tenant_id = %s::uuid AND o.id = w.id
"""


@dataclass(frozen=True, slots=True)
class _Entry:
    id: UUID
    topic: str
    target: UUID
    attempts: int


def drain_tenant(tenant: UUID, *, limit: int = CHUNK) -> int:
    """Do what is due in one tenant, at most `limit` entries, and return how many it took.

    In one transaction, apart from the topics whose work opens transactions of its own.
    """
    return _drain_together(tenant, limit) + _drain_apart(tenant, min(limit, APART))


def _drain_apart(tenant: UUID, limit: int) -> int:
    """Take entries for a while, do the work of each outside of a transaction, and settle them."""
    if not workers():
        return 0
    with tenant_transaction(Role.WORKER, tenant=tenant):
        taken = rows.fetch(_TAKE, [TAKEN_FOR, tenant, tenant, sorted(workers()), limit])
    if not taken:
        return 0
    deadline = time.monotonic() + _APART_SECONDS
    entries = [_Entry(*row) for row in taken]
    by_topic: dict[str, list[_Entry]] = defaultdict(list)
    results: dict[str, dict[UUID, Settled | GivenUp | Retry]] = defaultdict(dict)
    untouched: list[UUID] = []
    for entry in entries:
        if time.monotonic() > deadline:
            untouched.append(entry.id)
            continue
        by_topic[entry.topic].append(entry)
        if entry.target in results[entry.topic]:
            continue
        try:
            results[entry.topic][entry.target] = workers()[entry.topic](tenant, entry.target)
        except Exception as error:
            _give_way(error)
            results[entry.topic][entry.target] = Retry(type(error).__name__)
    with tenant_transaction(Role.WORKER, tenant=tenant):
        for topic, done in by_topic.items():
            late = [
                (entry, each)
                for entry in done
                if isinstance(each := results[topic][entry.target], Retry) and each.wait is not None
            ]
            if late:
                ids, codes = [entry.id for entry, _ in late], [each.code for _, each in late]
                rows.execute(_AFTER, [ids, codes, [each.wait for _, each in late], tenant])
                done = [entry for entry in done if entry.id not in ids]
            failures = {target: each.code for target, each in results[topic].items() if isinstance(each, Retry)}
            outcomes = {target: each for target, each in results[topic].items() if not isinstance(each, Retry)}
            _settle(tenant, topic, done, outcomes, failures)
        if untouched:
            rows.execute(_GIVE_BACK, [tenant, untouched])
    return len(entries)


def _drain_together(tenant: UUID, limit: int) -> int:
    with tenant_transaction(Role.WORKER, tenant=tenant):
        with connection.cursor() as cursor:
            # What takes for ever must fail and be counted, not end with the process and be tried for ever. And a plan
            # that was made while a table was empty must not outlive that.
            cursor.execute(
                "SELECT set_config('statement_timeout', %s, true), set_config('plan_cache_mode', 'force_custom_plan', true)",
                [_STATEMENT_LIMIT],
            )
        entries = [_Entry(*row) for row in rows.fetch(_CLAIM, [tenant, sorted(workers()), limit])]
        by_topic: dict[str, list[_Entry]] = defaultdict(list)
        for entry in entries:
            by_topic[entry.topic].append(entry)
        # In the order of the handlers: those that append to the audit chain, and so hold its lock to the commit, last.
        order = {topic: place for place, topic in enumerate(handlers())}
        for topic in sorted(by_topic, key=lambda topic: order.get(topic, -1)):
            _work(tenant, topic, by_topic[topic])
    return len(entries)


def _work(tenant: UUID, topic: str, entries: list[_Entry]) -> None:
    """Let the topic's handler do the targets of `entries`, each target once, and settle the entries."""
    handler = handlers().get(topic)
    if handler is None:
        _log.error("outbox entries of an unknown topic", extra={"topic": topic, "count": len(entries)})
        _fail(tenant, [(entry, "unknown_topic") for entry in entries])
        return
    targets = list(dict.fromkeys(entry.target for entry in entries))
    failures: dict[UUID, str] = {}
    try:
        with transaction.atomic():
            outcomes = handler(tenant, targets)
    except Exception as error:
        _give_way(error)
        if len(targets) == 1:
            outcomes, failures = {}, {targets[0]: type(error).__name__}
        else:
            outcomes, failures = _one_by_one(tenant, handler, targets)
    _settle(tenant, topic, entries, outcomes, failures)


def _one_by_one(tenant: UUID, handler: Handler, targets: Sequence[UUID]) -> tuple[Outcomes, dict[UUID, str]]:
    # Some target is bad: the others must not go down with it.
    outcomes: Outcomes = {}
    failures: dict[UUID, str] = {}
    for target in targets:
        try:
            with transaction.atomic():
                outcomes |= handler(tenant, [target])
        except Exception as error:
            _give_way(error)
            failures[target] = type(error).__name__
    return outcomes, failures


def _give_way(error: Exception) -> None:
    """Raise `error` again where the connection is gone with it: nothing can be marked, all of it comes again."""
    if isinstance(error, Error) and (connection.connection is None or connection.connection.closed):
        raise error


def _settle(tenant: UUID, topic: str, entries: Sequence[_Entry], outcomes: Outcomes, failures: dict[UUID, str]) -> None:
    done: list[UUID] = []
    again: list[UUID] = []
    more: set[UUID] = set()
    given_up: list[tuple[_Entry, str]] = []
    retried: list[tuple[_Entry, str]] = []
    for entry in entries:
        if entry.target in failures:
            code = failures[entry.target]
            (given_up if entry.attempts + 1 >= ATTEMPTS else retried).append((entry, code))
            _log.error(
                "an outbox entry failed",
                extra={"topic": topic, "entry": str(entry.id), "attempt": entry.attempts + 1, "code": code},
            )
            continue
        outcome = outcomes.get(entry.target, Settled.DONE)
        if isinstance(outcome, GivenUp):
            given_up.append((entry, outcome.code))
        elif outcome is Settled.AGAIN:
            again.append(entry.id)
        else:
            done.append(entry.id)
            if outcome is Settled.MORE:
                more.add(entry.target)
    with connection.cursor() as cursor:
        if done:
            cursor.execute(_DONE, [tenant, done])
        if again:
            cursor.execute(_LATER, [tenant, again])
        if retried:
            ids, codes = [entry.id for entry, _ in retried], [code for _, code in retried]
            cursor.execute(_RETRIED, [_LONGEST_WAIT_SECONDS, ids, codes, tenant])
    _fail(tenant, given_up)
    if more:
        put(tenant, topic, sorted(more))


def _fail(tenant: UUID, given_up: Sequence[tuple[_Entry, str]]) -> None:
    if given_up:
        with connection.cursor() as cursor:
            cursor.execute(_FAILED, [[entry.id for entry, _ in given_up], [code for _, code in given_up], tenant])


# looking after it -----------------------------------------------------------------------------------------------------


_RETRY = """
UPDATE memory_outboxentry SET state = 'pending', attempts = 0, due_at = statement_timestamp(), failure = NULL
WHERE tenant_id = %s AND id = %s AND state = 'failed' RETURNING topic
"""


def retry(actor: Actor, entry: UUID) -> bool:
    """Let work that was given up be tried again from the start; return whether there was any. Audited.

    Needs `Role.WORKER` for the actor's tenant. The bell rings after the commit.
    """
    if not rows.fetch(_RETRY, [actor.tenant, entry]):
        return False
    append([Event(actor=actor, action=Action.WORK_RETRIED, target_kind="outbox_entry", target_id=entry)])
    transaction.on_commit(_bell())
    return True


def state() -> State:
    """Return how much waits and how much was given up, over all tenants. Needs `Role.FRONT`."""
    pending, lag = rows.fetch(
        "SELECT count(*), greatest(coalesce(extract(epoch FROM clock_timestamp() - min(o.due_at)), 0), 0)::float8"
        " FROM memory_outboxentry o WHERE o.state = 'pending'",
        [],
    )[0]
    failed = rows.fetch("SELECT count(*) FROM memory_outboxentry o WHERE o.state = 'failed'", [])[0][0]
    return State(pending, failed, lag)


def forget_done(tenant: UUID) -> int:
    """Delete a chunk of the entries that were done a day ago; return how many. Opens its own transaction."""
    with tenant_transaction(Role.WORKER, tenant=tenant), connection.cursor() as cursor:
        cursor.execute(
            "DELETE FROM memory_outboxentry WHERE tenant_id = %s::uuid AND id = ANY (ARRAY("
            "SELECT o.id FROM memory_outboxentry o WHERE o.tenant_id = %s::uuid AND o.state = 'done'"
            " AND o.done_at < clock_timestamp() - make_interval(secs => %s) ORDER BY o.done_at LIMIT %s FOR UPDATE SKIP LOCKED))",
            [tenant, tenant, KEPT_AFTER_DONE.total_seconds(), _DELETED_AT_ONCE],
        )
        return int(cursor.rowcount)
