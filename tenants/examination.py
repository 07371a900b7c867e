"""Whether an installation is as it must be: roles, row-level security, server settings, migrations, clock, keys.

Reads catalogues and counts, never content. What is wrong comes with how to mend it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from typing import Any
from uuid import UUID

from django.db import Error, OperationalError, connection
from django.db.migrations.loader import MigrationLoader

from tenants.beat import beat_is_alive
from tenants.fitness import unfit
from tenants.isolation import Role, tenant_transaction
from tenants.keyring import KeyProvider, KeyUnavailable
from tenants.models import Tenant

_BOOTSTRAP = "run the output of `manage.py doctor --bootstrap-sql` as a superuser in this database"
_START = "see that worker and beat run; their logs say why not"
_LOGINS = ("muniment_app", "muniment_broker", "muniment_owner")
_NOT_LOGINS = (*(role.value for role in Role), "muniment_chain", "muniment_counter")

#: Tables that belong to tenants without a column of that name.
_TENANT_TABLES = ("tenants_tenant", "tenants_historicaltenant", "tenants_auditevent", "tenants_auditchain")
_QUIET = {
    "log_error_verbosity": "terse",
    "log_min_error_statement": "panic",
    "log_min_duration_statement": "-1",
    "log_statement": "none",
    "log_parameter_max_length_on_error": "0",
}
_OLDEST_SERVER = 150000
_MOST_SKEW_SECONDS = 2.0
_MOST_LAG_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Check:
    """One question about the installation: its answer, and how to mend it where that is not as it must be.

    `ok` is None where nothing is wrong but something is not there (`found` says what).
    """

    name: str
    ok: bool | None
    found: str
    mend: str = field(default="")


def examine(provider: KeyProvider, *, broker: Callable[[], str], second_factor_required: bool) -> Iterator[Check]:
    """Yield every check. `broker` returns what is wrong with the queue's broker, or nothing."""
    try:
        reason = unfit()
    except OperationalError:
        yield Check("database", False, "does not answer", "start it, or correct DATABASE_URL")
        return
    yield Check("login role", not reason, reason or "bound by row-level security", "let DATABASE_URL name muniment_app")
    for check in (
        _roles,
        _tables_owner,
        _row_security,
        _server,
        _server_log,
        _statistics,
        _extensions,
        _migrations,
        _clock,
    ):
        try:
            yield check()
        except Error as error:
            yield Check(check.__name__.strip("_").replace("_", " "), False, type(error).__name__, _BOOTSTRAP)
    missing = broker()
    yield Check(
        "broker",
        not missing,
        missing or "answers",
        "see MUNIMENT_BROKER_URL and MUNIMENT_BROKER_DSN in docs/runbook.md",
    )
    try:
        yield _beat()
        yield from _outbox()
        yield _keys(provider)
        yield second_factor(required=second_factor_required)
    except Error as error:
        yield Check("tables", False, type(error).__name__, "run `manage.py migrate`, then doctor again")


def second_factor(*, required: bool) -> Check:
    """Return whether everybody who signs in is asked for a second factor, and how many have one."""
    with tenant_transaction(Role.FRONT, tenant=None):
        people, having = _rows(
            "SELECT (SELECT count(*) FROM tenants_user WHERE is_active),"
            " (SELECT count(DISTINCT user_id) FROM mfa_authenticator WHERE type <> 'recovery_codes')"
        )[0]
    asked = "asked of everybody" if required else "asked only of those who set one up"
    return Check(
        "second factor",
        True if required else None,
        f"{asked}; {having} of {people} people have one",
        "set MUNIMENT_REQUIRE_MFA=true where real people sign in",
    )


def model(label: str, *, installed: bool) -> Check:
    """Return which model reads episodes, if any (no label: none), and whether what it is asked with is installed."""
    if not label:
        return Check("model", None, "none reads episodes", "see Extraction by a model in docs/runbook.md, if one is to")
    return Check("model", installed, label if installed else f"{label}, without its libraries", "make run EXTRAS=llm")


def uncovered_tables() -> list[str]:
    """Return the tables of tenants' rows, history included, that lack FORCE ROW LEVEL SECURITY or any policy."""
    return [
        row[0]
        for row in _rows(
            """
            SELECT c.relname::text FROM pg_class c
            WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p')
              AND (c.relname = ANY(%s) OR EXISTS (SELECT FROM pg_attribute a
                   WHERE a.attrelid = c.oid AND a.attname = 'tenant_id' AND NOT a.attisdropped))
              AND NOT (c.relrowsecurity AND c.relforcerowsecurity
                       AND EXISTS (SELECT FROM pg_policy p WHERE p.polrelid = c.oid))
            ORDER BY 1
            """,
            [list(_TENANT_TABLES)],
        )
    ]


def missing_migrations() -> list[tuple[str, str]]:
    """Return the migrations on disk that the database does not have. Needs no transaction."""
    with tenant_transaction(Role.FRONT, tenant=None):
        applied = set(_rows("SELECT app, name FROM django_migrations"))
    return sorted(_on_disk() - applied)


@cache
def _on_disk() -> frozenset[tuple[str, str]]:
    return frozenset(MigrationLoader(None).disk_migrations)


def _rows(sql: str, parameters: list[Any] | None = None) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        found: list[Any] = cursor.fetchall()
    return found


def _roles() -> Check:
    found = {
        row[0]: row[1:]
        for row in _rows(
            "SELECT rolname::text, rolcanlogin, rolsuper OR rolbypassrls OR rolinherit OR rolcreaterole OR rolcreatedb"
            " OR rolreplication FROM pg_roles WHERE rolname LIKE 'muniment\\_%%'",
            [],
        )
    }
    wrong = [name for name in _LOGINS if found.get(name) != (True, False)]
    wrong += [name for name in _NOT_LOGINS if found.get(name) != (False, False)]
    return Check(
        "roles", not wrong, f"not as they must be: {', '.join(wrong)}" if wrong else "as they must be", _BOOTSTRAP
    )


def _tables_owner() -> Check:
    wrong = _rows(
        "SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p', 'v', 'm')"
        " AND relowner <> 'muniment_owner'::regrole"
    )[0][0]
    return Check(
        "owner",
        not wrong,
        f"{wrong} tables of others" if wrong else "muniment_owner owns every table",
        "let MUNIMENT_OWNER_URL name muniment_owner, and hand the tables over (ALTER TABLE … OWNER TO)",
    )


def _row_security() -> Check:
    wrong = uncovered_tables()
    return Check(
        "row-level security",
        not wrong,
        f"uncovered: {', '.join(wrong)}" if wrong else "on every tenant's table",
        "run `manage.py migrate`; a migration that makes such a table must cover it",
    )


def _server() -> Check:
    number, version = _rows("SELECT current_setting('server_version_num')::int, current_setting('server_version')")[0]
    return Check("server", number >= _OLDEST_SERVER, f"PostgreSQL {version.split()[0]}", "use PostgreSQL 15 or newer")


def _statistics() -> Check:
    found = dict(_rows("SELECT name, setting FROM pg_settings WHERE name IN ('autovacuum', 'track_counts')"))
    wrong = [name for name, setting in sorted(found.items()) if setting != "on"]
    return Check(
        "statistics",
        not wrong,
        # Plans are made once a connection; those of young tables stay until figures of grown ones come.
        f"off: {', '.join(wrong)}; plans made of small tables stay" if wrong else "kept up by autovacuum",
        "".join(f"ALTER SYSTEM SET {name} = on; " for name in wrong) + "SELECT pg_reload_conf()",
    )


def _server_log() -> Check:
    found = dict(_rows("SELECT name, setting FROM pg_settings WHERE name = ANY(%s)", [list(_QUIET)]))
    wrong = [name for name, wanted in _QUIET.items() if found.get(name) != wanted]
    return Check(
        "server log",
        not wrong,
        f"may show values: {', '.join(wrong)}" if wrong else "shows no values",
        "".join(f"ALTER SYSTEM SET {name} = {_QUIET[name]}; " for name in wrong) + "SELECT pg_reload_conf()",
    )


def _extensions() -> Check:
    found = {row[0] for row in _rows("SELECT name::text FROM pg_available_extensions WHERE name IN ('vector')")}
    return Check(
        "extensions",
        True if found else None,
        "pgvector is there" if found else "no pgvector: search without vectors",
        "install pgvector on the server",
    )


def _migrations() -> Check:
    wrong = missing_migrations()
    return Check(
        "migrations", not wrong, f"{len(wrong)} not applied" if wrong else "all applied", "run `manage.py migrate`"
    )


def _clock() -> Check:
    began = datetime.now(UTC)
    theirs = _rows("SELECT clock_timestamp()")[0][0]
    ended = datetime.now(UTC)
    skew = max((began - theirs).total_seconds(), (theirs - ended).total_seconds(), 0.0)
    return Check("clock", skew < _MOST_SKEW_SECONDS, f"{skew:.1f} s apart", "let both machines keep time by NTP")


def _beat() -> Check:
    alive = beat_is_alive()
    return Check("beat", alive, "one runs" if alive else "none runs", _START)


def _outbox() -> Iterator[Check]:
    with tenant_transaction(Role.FRONT, tenant=None):
        # Counted apart: each has an index of its own, and those that are done may be very many.
        pending, lag = _rows(
            "SELECT count(*), greatest(coalesce(extract(epoch FROM clock_timestamp() - min(due_at)), 0), 0)::float8"
            " FROM memory_outboxentry WHERE state = 'pending'"
        )[0]
        given_up = _rows(
            "SELECT failure, count(*) FROM memory_outboxentry WHERE state = 'failed' GROUP BY 1 ORDER BY 1"
        )
    yield Check("worker", lag < _MOST_LAG_SECONDS, f"{pending} waiting, oldest due {lag:.0f} s ago", _START)
    yield Check(
        "work given up",
        None if given_up else True,
        ", ".join(f"{number} {code}" for code, number in given_up) or "none",
        "the worker's log says where it failed; `ledger_differs` means that beliefs were changed behind the ledger's back",
    )


def _keys(provider: KeyProvider) -> Check:
    with tenant_transaction(Role.FRONT, tenant=None):
        tenants = list(Tenant.objects.values_list("id", flat=True))
    wrong = [tenant for tenant in tenants if not _has_keys(provider, tenant)]
    return Check(
        "keys",
        not wrong,
        f"missing or damaged for {len(wrong)} of {len(tenants)} tenants"
        if wrong
        else f"there for {len(tenants)} tenants",
        "point MUNIMENT_KEYS at the folder of keys, or restore it",
    )


def _has_keys(provider: KeyProvider, tenant: UUID) -> bool:
    try:
        provider.tenant_key(tenant)
        provider.pepper(tenant)
        provider.idempotency_key(tenant)
    except KeyUnavailable:
        return False
    return True
