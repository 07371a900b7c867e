"""Every policy and every grant is needed, and noticed: each is taken away, or made lax, in turn."""

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest
from psycopg import sql

from tests.database.checks import (
    ACTS,
    BARRED,
    GOVERNED,
    TENANT_COLUMN,
    World,
    exposure,
    finished_work_shows,
    hide_rows,
    leak,
    new_world,
    statements_of,
    tenant_tables,
)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def world(database: Any) -> Iterator[World]:
    if not database.superuser:
        pytest.skip("needs a superuser's session: unset DATABASE_URL to run on the embedded PostgreSQL")
    with psycopg.connect(database.superuser, autocommit=True) as session:
        yield new_world(session)


@pytest.fixture(scope="module")
def owner_session(database: Any) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(database.superuser, autocommit=True) as session:
        yield session


@dataclass(frozen=True)
class Sent:
    """What an act sends, and how long that takes."""

    statements: str
    seconds: float


@pytest.fixture(scope="module")
def sent(world: World) -> dict[str, Sent]:
    """What each act sends."""
    found = {}
    for name, act in ACTS.items():
        began = time.perf_counter()
        found[name] = Sent(statements_of(act, world), time.perf_counter() - began)
    return found


def first_refused(world: World, order: list[str]) -> str:
    """Do the acts in `order` until one fails; return its name, or nothing when all succeed."""
    for name in order:
        try:
            ACTS[name](world)
        except Exception:
            world.settle()
            return name
    return ""


def assert_mended(world: World, name: str, what: str) -> None:
    """The act that failed succeeds again: it was what had been taken away, and nothing else, that it missed."""
    try:
        ACTS[name](world)
    except Exception as error:
        raise AssertionError(f"{name} fails after {what} is back") from error


#: How often an act noticed that something was taken from a role.
_noticed: Counter[tuple[str, str]] = Counter()
#: It acts for others within functions: no statement speaks of it.
_UNSPOKEN = "muniment_counter"


def ordered(sent: dict[str, Sent], role: str, *words: str) -> list[str]:
    """The acts in the order in which they are likely to notice: by what they speak of, what they noticed before, and cost."""

    def key(name: str) -> tuple[int, int, float]:
        speaks = sum(word in sent[name].statements for word in (role, *words))
        before = _noticed[role, name]
        return (-before, -speaks, sent[name].seconds) if role == _UNSPOKEN else (-speaks, -before, sent[name].seconds)

    return sorted(sent, key=key)


@contextmanager
def changed(session: psycopg.Connection[Any], change: str, back: str) -> Iterator[None]:
    session.execute("SET lock_timeout = '10s'")
    session.execute(change)
    try:
        yield
    finally:
        session.execute(back)


# row-level security ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Policy:
    table: str
    name: str
    command: str
    roles: tuple[str, ...]
    using: str | None
    check: str | None

    @property
    def create(self) -> str:
        return (
            f"CREATE POLICY {self.name} ON {self.table} FOR {self.command} TO {', '.join(self.roles)}"
            + (f" USING ({self.using})" if self.using else "")
            + (f" WITH CHECK ({self.check})" if self.check else "")
        )

    @property
    def drop(self) -> str:
        return f"DROP POLICY {self.name} ON {self.table}"

    def with_using(self, expression: str) -> str:
        return f"ALTER POLICY {self.name} ON {self.table} USING ({expression})"

    def with_check(self, expression: str) -> str:
        return f"ALTER POLICY {self.name} ON {self.table} WITH CHECK ({expression})"


def policies(session: psycopg.Connection[Any]) -> list[Policy]:
    rows = session.execute(
        "SELECT tablename::text, policyname::text, cmd, roles::text[], qual, with_check FROM pg_policies"
        " WHERE schemaname = 'public' ORDER BY 1, 2"
    ).fetchall()
    return [
        Policy(table, name, command, tuple(roles), using, check) for table, name, command, roles, using, check in rows
    ]


def conjuncts(expression: str) -> list[str]:
    """Split `((a) AND (b))` into its parts, as PostgreSQL prints them."""
    inner, depth, parts, start = expression.strip()[1:-1], 0, [], 0
    for place, letter in enumerate(inner):
        depth += (letter == "(") - (letter == ")")
        if depth == 0 and inner.startswith(" AND ", place):
            parts.append(inner[start:place])
            start = place + 5
    return [*parts, inner[start:]]


def test_unchanged_everything_legitimate_succeeds_and_nothing_leaks(world: World) -> None:
    assert first_refused(world, list(ACTS)) == ""
    for policy in policies(world.superuser):
        for role in policy.roles:
            if "front" not in role and role in (
                "muniment_agent",
                "muniment_writer",
                "muniment_staff",
                "muniment_worker",
            ):
                assert leak(world, policy.table, role) == ""
    assert [exposure(world, table) for table in GOVERNED] == [""] * len(GOVERNED)
    assert finished_work_shows(world) == ""


def test_each_policy_that_is_dropped_turns_a_check_red(
    world: World, owner_session: psycopg.Connection[Any], sent: dict[str, Sent]
) -> None:
    unnoticed = []
    for policy in policies(world.superuser):
        with changed(owner_session, policy.drop, policy.create):
            name = first_refused(world, ordered(sent, policy.roles[0], policy.table, *policy.roles[1:]))
            _noticed[policy.roles[0], name] += 1
        if name:
            assert_mended(world, name, policy.drop)
        else:
            unnoticed.append(f"{policy.name} on {policy.table} for {policy.roles}")
    assert not unnoticed, "\n".join(unnoticed)


def test_each_policy_that_is_made_lax_turns_a_check_red(world: World, owner_session: psycopg.Connection[Any]) -> None:
    unnoticed = []
    for policy in policies(world.superuser):
        bound = [role for role in policy.roles if role not in ("muniment_chain", "muniment_front", "muniment_counter")]
        if policy.using and policy.using != "true":
            with changed(owner_session, policy.with_using("true"), policy.with_using(policy.using)):
                if not noticed(world, policy, bound):
                    unnoticed.append(f"{policy.name} on {policy.table} USING (true)")
        if policy.check and policy.check != "true" and policy.table not in BARRED and can_place(world, policy, bound):
            with changed(owner_session, policy.with_check("true"), policy.with_check(policy.check)):
                if not any(leak(world, policy.table, role) for role in bound):
                    unnoticed.append(f"{policy.name} on {policy.table} WITH CHECK (true)")
    assert not unnoticed, "\n".join(unnoticed)


def noticed(world: World, policy: Policy, bound: list[str]) -> bool:
    if policy.name == "dispatch":
        return bool(finished_work_shows(world))
    if policy.roles == ("muniment_counter",):
        # Not a role of anybody's: what it may read comes out through its function alone.
        return bool(counted_abroad(world))
    return any(leak(world, policy.table, role) for role in bound)


def counted_abroad(world: World) -> str:
    from tests.database.checks import as_role, attempt

    tables = [policy.table for policy in policies(world.superuser) if policy.name == "counts"]
    with as_role(world.superuser, "muniment_counter", world.tenant):
        for table in tables:
            found = attempt(
                world.superuser,
                sql.SQL("SELECT count(*) FROM {} WHERE tenant_id = %s").format(sql.Identifier(table)),
                [world.there.id],
            )
            if found[1] != [(0,)]:
                return f"muniment_counter reads foreign rows of {table}"
    return ""


def can_place(world: World, policy: Policy, bound: list[str]) -> bool:
    """Whether any role under the policy could place a row of another tenant at all, were it not for the policy."""
    column = TENANT_COLUMN.get(policy.table, "tenant_id")
    return any(
        world.superuser.execute(
            "SELECT has_table_privilege(%(role)s, %(table)s, 'INSERT')"
            " OR has_column_privilege(%(role)s, %(table)s, %(column)s, 'UPDATE')",
            {"role": role, "table": policy.table, "column": column},
        ).fetchone() == (True,)
        for role in bound
    )  # fmt: skip


@pytest.mark.parametrize("table", GOVERNED)
def test_each_condition_under_which_an_agent_reads_is_needed(
    world: World, owner_session: psycopg.Connection[Any], table: str
) -> None:
    if table == "memory_candidate":
        # What is overdue of them may have been compacted since.
        hide_rows(world, [table])
    policy = next(each for each in policies(world.superuser) if (each.table, each.name) == (table, "agent_reads"))
    assert policy.using is not None
    parts = conjuncts(policy.using)
    assert len(parts) >= 5
    unnoticed = []
    for place, part in enumerate(parts):
        rest = " AND ".join([*parts[:place], *parts[place + 1 :]])
        with changed(owner_session, policy.with_using(rest), policy.with_using(policy.using)):
            if not exposure(world, table) and not leak(world, table, "muniment_agent"):
                unnoticed.append(part)
    assert not unnoticed, "\n".join(unnoticed)


@pytest.mark.parametrize("word", ["ENABLE", "FORCE"])
def test_row_level_security_that_is_switched_off_turns_a_check_red(
    world: World, owner_session: psycopg.Connection[Any], word: str
) -> None:
    from tenants.examination import uncovered_tables

    for table in tenant_tables(world.superuser):
        off = "DISABLE" if word == "ENABLE" else "NO FORCE"
        with changed(
            owner_session,
            f"ALTER TABLE {table} {off} ROW LEVEL SECURITY",
            f"ALTER TABLE {table} {word} ROW LEVEL SECURITY",
        ):
            assert uncovered_tables() == [table]


# grants ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Grant:
    privilege: str
    target: str
    role: str
    words: tuple[str, ...]

    @property
    def revoke(self) -> str:
        return f"REVOKE {self.privilege} ON {self.target} FROM {self.role}"

    @property
    def give(self) -> str:
        return f"GRANT {self.privilege} ON {self.target} TO {self.role}"


_GRANTS = """
SELECT a.privilege_type, 'TABLE ' || c.relname, pg_get_userbyid(a.grantee), ARRAY[c.relname::text]
FROM pg_class c, aclexplode(c.relacl) a
WHERE c.relnamespace = 'public'::regnamespace AND a.grantee <> c.relowner AND c.relkind IN ('r', 'p', 'v')
UNION ALL
SELECT a.privilege_type, 'SEQUENCE ' || c.relname, pg_get_userbyid(a.grantee), ARRAY['memory_factkey']
FROM pg_class c, aclexplode(c.relacl) a
WHERE c.relnamespace = 'public'::regnamespace AND a.grantee <> c.relowner AND c.relkind = 'S'
UNION ALL
SELECT a.privilege_type || ' (' || t.attname || ')', 'TABLE ' || c.relname, pg_get_userbyid(a.grantee),
  ARRAY[c.relname::text, t.attname::text]
FROM pg_class c JOIN pg_attribute t ON t.attrelid = c.oid, aclexplode(t.attacl) a
WHERE c.relnamespace = 'public'::regnamespace AND a.grantee <> c.relowner
UNION ALL
SELECT a.privilege_type, 'FUNCTION ' || p.oid::regprocedure, CASE WHEN a.grantee = 0 THEN 'PUBLIC' ELSE pg_get_userbyid(a.grantee) END,
  ARRAY[p.proname::text]
FROM pg_proc p, aclexplode(p.proacl) a
WHERE p.pronamespace = 'public'::regnamespace AND a.grantee <> p.proowner
UNION ALL
SELECT a.privilege_type, 'SCHEMA ' || n.nspname, pg_get_userbyid(a.grantee), '{}'
FROM pg_namespace n, aclexplode(n.nspacl) a
WHERE n.nspname = 'public' AND a.grantee NOT IN (n.nspowner, 'muniment_owner'::regrole)
ORDER BY 2, 1, 3
"""


def grants(session: psycopg.Connection[Any]) -> list[Grant]:
    return [Grant(privilege, target, role, tuple(words)) for privilege, target, role, words in session.execute(_GRANTS)]


_VERBS = {"SELECT": "SELECT", "INSERT": "INSERT INTO", "UPDATE": "UPDATE", "DELETE": "DELETE FROM"}


def test_each_grant_that_is_revoked_turns_a_check_red(
    world: World, owner_session: psycopg.Connection[Any], sent: dict[str, Sent]
) -> None:
    unnoticed = []
    found = grants(world.superuser)
    assert len(found) > 100
    for grant in found:
        verb = _VERBS.get(grant.privilege.split(" ")[0], "")
        words = [*grant.words, *([f"{verb} {grant.words[0]}"] if verb not in ("", "SELECT") else [])]
        with changed(owner_session, grant.revoke, grant.give):
            name = first_refused(world, ordered(sent, grant.role, *words))
            _noticed[grant.role, name] += 1
        if name:
            assert_mended(world, name, grant.revoke)
        else:
            unnoticed.append(grant.revoke)
    assert sorted(grants(world.superuser), key=str) == sorted(found, key=str)
    assert not unnoticed, "\n".join(unnoticed)
