"""The tenant transaction: the one way to touch tenant-owned rows.

The database decides what may be seen: every tenant-owned table has FORCE ROW LEVEL SECURITY, and its policies read
settings that are local to the transaction. The application logs in as a role that may read nothing, and takes a role
for the length of one transaction. Leaving the transaction, by whatever exit, takes role and tenant away again.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from typing import Any
from uuid import UUID

from django.db import connection, transaction


class Role(StrEnum):
    """The database roles that the application may take; what each may do stands in `tenants/bootstrap.sql`."""

    AGENT = "muniment_agent"
    WRITER = "muniment_writer"
    STAFF = "muniment_staff"
    WORKER = "muniment_worker"
    FRONT = "muniment_front"


class NestedTransaction(RuntimeError):
    """A tenant transaction was opened inside another transaction: its role would outlive it or hide the outer one."""


_TAKE = (
    "SELECT set_config('role', %s, true), set_config('muniment.tenant', %s, true),"
    " set_config('muniment.clearance', %s, true), set_config('muniment.actor', %s, true),"
    " set_config('synchronous_commit', %s, true)"
)
# The doors' joins are written in execution order and go by full keys, whatever a young table's statistics say: a plan
# made while a table was empty would otherwise scan a whole tenant once it is not.
_TAKE_AT_A_DOOR = (
    f"{_TAKE}, set_config('plan_cache_mode', 'force_generic_plan', true), set_config('join_collapse_limit', '1', true),"
    " set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true),"
    " set_config('enable_material', 'off', true), set_config('enable_seqscan', 'off', true)"
)
_DOOR_ROLES = frozenset({Role.AGENT, Role.WRITER})


class Rollback(Exception):
    """Raised inside a tenant transaction to undo it without an error for the outside; carries nothing."""


def assume(
    role: Role, *, tenant: UUID | None, clearance: int = 0, actor: UUID | None = None, durable: bool = True
) -> None:
    """Take `role` and `tenant` for the rest of the open transaction.

    `durable=False` lets the commit return before its WAL is on disk: only for transactions that write nothing but a
    read receipt. Settings are transaction-local, and planner settings suit the doors' joins, which are written in
    execution order. Raises `RuntimeError` outside a transaction, where the settings would not stay.
    """
    if not connection.in_atomic_block:
        raise RuntimeError("assume() needs an open transaction")
    _take(role, tenant, clearance, actor, durable)


def _take(role: Role, tenant: UUID | None, clearance: int, actor: UUID | None, durable: bool) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            _TAKE_AT_A_DOOR if role in _DOOR_ROLES else _TAKE,
            [
                role.value,
                "" if tenant is None else str(tenant),
                str(clearance),
                "" if actor is None else str(actor),
                "on" if durable else "off",
            ],
        )


@contextmanager
def tenant_transaction(
    role: Role, *, tenant: UUID | None, clearance: int = 0, actor: UUID | None = None, durable: bool = True
) -> Iterator[None]:
    """Open a transaction under `role` for `tenant`; commit at the end, roll back on any exception.

    Raises `NestedTransaction` inside another transaction. `Rollback` rolls back and is swallowed.
    """
    if connection.in_atomic_block:
        raise NestedTransaction("a tenant transaction does not nest")
    try:
        with _one_stream(role), transaction.atomic(durable=True):
            assume(role, tenant=tenant, clearance=clearance, actor=actor, durable=durable)
            yield
    except Rollback:
        return


@contextmanager
def _one_stream(role: Role) -> Iterator[None]:
    """Send a door's statements without waiting for those that nobody asks a row of.

    Beginning, role, inserts and updates travel with the next question, or with the commit. An error of theirs surfaces
    there, and nothing after it has been carried out. Pages and the front ask for nearly every row: they go without.
    """
    if role not in _DOOR_ROLES:
        yield
        return
    _check_health()
    with connection.wrap_database_errors, connection.connection.pipeline():
        yield


def _check_health() -> None:
    # Before the stream: Django's own check would otherwise be its first statement, and the transaction could not begin.
    connection.close_if_health_check_failed()
    connection.ensure_connection()


def alone(
    role: Role,
    statement: str,
    parameters: Mapping[str, Any],
    *,
    tenant: UUID,
    clearance: int = 0,
    actor: UUID | None = None,
    durable: bool = True,
) -> list[tuple[Any, ...]]:
    """Run one statement as a whole tenant transaction, committed when this returns, and return its rows.

    One round trip: a pipeline in autocommit is one transaction up to its end, so that role and tenant are gone with it.
    Raises `NestedTransaction` inside a transaction.
    """
    if connection.in_atomic_block:
        raise NestedTransaction("a tenant transaction does not nest")
    _check_health()
    with connection.cursor() as cursor:
        with connection.wrap_database_errors, connection.connection.pipeline():
            _take(role, tenant, clearance, actor, durable)
            cursor.execute(statement, parameters)  # type: ignore[arg-type]
        rows: list[tuple[Any, ...]] = cursor.fetchall()
    return rows


def current_tenant() -> UUID | None:
    """Return the tenant that the database has in force for this transaction, or None."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT nullif(current_setting('muniment.tenant', true), '')::uuid")
        row = cursor.fetchone()
    return row[0] if row else None
