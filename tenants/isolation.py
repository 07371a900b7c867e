"""The tenant transaction: the one way to touch tenant-owned rows.

The database decides what may be seen: every tenant-owned table has FORCE ROW LEVEL SECURITY, and its policies read
settings that are local to the transaction. The application logs in as a role that may read nothing, and takes a role
for the length of one transaction. Leaving the transaction, by whatever exit, takes role and tenant away again.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any
from uuid import UUID

from django.db import DatabaseError, connection, transaction

from tenants.trips import Question, Rows, trip


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
    "SELECT set_config('role', %(role)s, true), set_config('muniment.tenant', %(tenant)s, true),"
    " set_config('muniment.clearance', %(clearance)s, true), set_config('muniment.actor', %(actor)s, true),"
    " set_config('synchronous_commit', %(commit)s, true)"
)
# The doors' joins are written in execution order and go by full keys, whatever a young table's statistics say: a plan
# made while a table was empty would otherwise scan a whole tenant once it is not.
_AT_A_DOOR = (
    ", set_config('plan_cache_mode', 'force_generic_plan', true), set_config('join_collapse_limit', '1', true),"
    " set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true),"
    " set_config('enable_material', 'off', true), set_config('enable_seqscan', 'off', true)"
)
_TAKE_AT_A_DOOR = _TAKE + _AT_A_DOOR
# Tenant, clearance and actor are what the key's row says; the transaction may say nothing else.
_TAKE_WHEN_PROVEN = (
    "SELECT set_config('role', %(role)s, true), set_config('synchronous_commit', %(commit)s, true)" + _AT_A_DOOR
)
_TO_PROVE = "SELECT set_config('role', 'muniment_front', true)"
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
        cursor.execute(*_taking(role, tenant, clearance, actor, durable))


def _taking(role: Role, tenant: UUID | None, clearance: int, actor: UUID | None, durable: bool) -> Question:
    return _TAKE_AT_A_DOOR if role in _DOOR_ROLES else _TAKE, {
        "role": role.value,
        "tenant": "" if tenant is None else str(tenant),
        "clearance": str(clearance),
        "actor": "" if actor is None else str(actor),
        "commit": "on" if durable else "off",
    }


@contextmanager
def borrowed(role: Role, *, back_to: Role) -> Iterator[None]:
    """Act under `role` for the length of a block of the open transaction; tenant and settings stay as they are.

    Where the block fails, what it failed in is undone to a savepoint or altogether, and the role with it.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT set_config('role', %s, true)", [role.value])
    yield
    with connection.cursor() as cursor:
        cursor.execute("SELECT set_config('role', %s, true)", [back_to.value])


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
        with transaction.atomic(durable=True), _one_stream(role):
            assume(role, tenant=tenant, clearance=clearance, actor=actor, durable=durable)
            yield
    except Rollback:
        return


@contextmanager
def _one_stream(role: Role) -> Iterator[None]:
    """Send a door's statements without waiting for those that nobody asks a row of.

    Beginning, role, inserts and updates travel with the next question, or with the commit, which is sent from here: what
    Django does of its own at the edges of a transaction would wait for an answer each, were it done within the stream. An
    error surfaces where something is waited for, and nothing after it has been carried out. Pages and the front ask for
    nearly every row: they go without.
    """
    if role not in _DOOR_ROLES:
        yield
        return
    with connection.wrap_database_errors, connection.connection.pipeline():
        yield
        if not connection.needs_rollback:
            connection.connection.execute("COMMIT", prepare=False)


def _check_health() -> None:
    connection.close_if_health_check_failed()
    connection.ensure_connection()


@dataclass(slots=True)
class Proof:
    """A statement that takes tenant, clearance and actor from the row of the caller's key, where that is good still.

    It returns a row where it is, and otherwise neither a row nor a tenant. `proven` says that a transaction ran on it.
    """

    statement: str
    parameters: Mapping[str, Any] = field(repr=False)
    proven: bool = False


class Unproven(Exception):
    """The key is not what was remembered of it, or the database did not get as far as that; nothing was done."""


def alone(
    role: Role,
    statement: str,
    parameters: Mapping[str, Any],
    *,
    tenant: UUID,
    clearance: int = 0,
    actor: UUID | None = None,
    durable: bool = True,
    proof: Proof | None = None,
) -> Rows:
    """Run one statement as a whole tenant transaction, committed when this returns, and return its rows.

    One round trip. With `proof` the tenant, the clearance and the actor are the ones that it proves in this very
    transaction, and what keeps it from doing so raises `Unproven`. Parameters need types as `tenants.trips` says.
    Raises `NestedTransaction` inside a transaction.
    """
    if connection.in_atomic_block:
        raise NestedTransaction("a tenant transaction does not nest")
    if proof is None:
        _check_health()
        return asked_at_once([_taking(role, tenant, clearance, actor, durable), (statement, parameters)])[-1]
    connection.ensure_connection()
    taking = _TAKE_WHEN_PROVEN, {"role": role.value, "commit": "on" if durable else "off"}
    try:
        _, found, _, rows = asked_at_once(
            [(_TO_PROVE, {}), (proof.statement, proof.parameters), taking, (statement, parameters)]
        )
    except DatabaseError:
        # Without a tenant nothing can be written, a receipt neither: what was not proven ends here, or with no row.
        raise Unproven from None
    if not found:
        raise Unproven
    proof.proven = True
    return rows


def asked_at_once(questions: Sequence[Question]) -> list[Rows]:
    """Ask all of it in one round trip and one transaction, as whoever logged in until a question takes a role.

    What watches the statements of Django's connection sees these as well.
    """
    with connection.wrap_database_errors:
        for watch in connection.execute_wrappers:
            for statement, parameters in questions:
                watch(_not_here, statement, parameters, False, {"connection": connection})
        return trip(connection.connection, questions)


def _not_here(*_: Any) -> None:
    """Stands for the execution of a statement that goes with others."""


def current_tenant() -> UUID | None:
    """Return the tenant that the database has in force for this transaction, or None."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT nullif(current_setting('muniment.tenant', true), '')::uuid")
        row = cursor.fetchone()
    return row[0] if row else None
