"""No row crosses a tenant, and none that is hidden is shown, whatever is asked and however a transaction ends."""

import random
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from django.db import DatabaseError, connection
from psycopg import sql
from psycopg.types.json import Jsonb

from memory import recall, remember
from memory.contracts import EpisodeBody, SubjectBody, parse
from memory.outcomes import Asked, Written
from tenants.errors import Missing, Problem
from tenants.isolation import NestedTransaction, Role, Rollback, assume, tenant_transaction
from tests.database.checks import (
    GOVERNED,
    ROLES,
    TENANT_COLUMN,
    World,
    as_role,
    attempt,
    body,
    expire,
    exposure,
    leak,
    named,
    new_world,
    tenant_tables,
    write,
)
from tests.organisation import Registered

SETTINGS = ("muniment.tenant", "muniment.clearance", "muniment.actor")


@pytest.fixture(scope="module")
def world(database: Any) -> Iterator[World]:
    if not database.superuser:
        pytest.skip("needs a superuser's session: unset DATABASE_URL to run on the embedded PostgreSQL")
    with psycopg.connect(database.superuser, autocommit=True) as session:
        yield new_world(session)


def standing() -> tuple[Any, ...]:
    """What the connection would let the next one do."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT current_user::text, current_setting('synchronous_commit'), current_setting('plan_cache_mode'),"
            " current_setting('join_collapse_limit'), current_setting('lock_timeout'), current_setting('enable_hashjoin'),"
            + ", ".join(f"coalesce(current_setting('{name}', true), '')" for name in SETTINGS)
        )
        row = cursor.fetchone()
    assert row is not None
    return tuple(row)


@pytest.fixture
def untouched() -> Iterator[tuple[Any, ...]]:
    """After the test the connection stands as before, as nobody."""
    before = standing()
    assert before[0] == "muniment_app"
    assert before[-3:] == ("", "", "")
    yield before
    assert standing() == before


# one connection, two tenants ------------------------------------------------------------------------------------------


def test_two_tenants_that_take_turns_on_one_connection_see_only_their_own(world: World, untouched: Any) -> None:
    dice = random.Random(7)
    sides: list[tuple[UUID, Registered, str]] = [
        (world.here.id, world.agent, "here"),
        (world.there.id, world.stranger, "there"),
    ]
    # The same subjects, attributes and sources on both sides; only the values say whose they are.
    subjects = [named() for _ in range(3)]
    facts: dict[str, list[UUID]] = {"here": [], "there": []}
    kept: dict[str, list[UUID]] = {"here": [], "there": []}
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        process = cursor.fetchone()
    seen = 0
    for turn in range(300):
        tenant, agent, side = dice.choice(sides)
        other = "there" if side == "here" else "here"
        subject, attribute = dice.choice(subjects), dice.choice(["colour", "tag", "plan"])
        act = dice.choice(
            ["write", "write", "read", "read", "profile", "history", "foreign", "episode", "retract", "undone"]
        )
        if act in ("write", "undone", "episode", "retract"):
            with tenant_transaction(Role.WRITER, tenant=tenant, clearance=3, actor=agent.actor.id):
                if act == "episode":
                    sent = {"kind": "message", "content": f"of {side}", "session_id": "s", "turn_id": str(turn % 20),
                            "subject": subject, "occurred_at": "2026-01-05T09:00:00Z"}  # fmt: skip
                    outcome: Any = remember.episode(agent.actor, parse(EpisodeBody, sent))
                    kept[side].append(outcome.id)
                elif act == "retract":
                    for fact in facts[other][-1:]:
                        with pytest.raises(Missing):
                            remember.retract(agent.actor, fact=fact, reason="other")
                else:
                    outcome = remember.facts(agent.actor, [body(attribute, f"{side} {turn % 5}", subject=subject)])[0]
                    if act == "undone":
                        raise_quietly = Rollback
                    elif isinstance(outcome, Written) and outcome.fact is not None:
                        facts[side].append(outcome.fact)
                        raise_quietly = None
                    else:
                        raise_quietly = None
                    if raise_quietly is not None:
                        raise raise_quietly
            continue
        with tenant_transaction(Role.AGENT, tenant=tenant, clearance=3, actor=agent.actor.id, durable=False):
            if act == "read":
                values = [
                    each["value"] for each in recall.facts(agent.actor, subject=subject, attribute=attribute).results
                ]
            elif act == "profile":
                values = [each["value"] for each in recall.profile(agent.actor, subject).results]
            elif act == "history" and facts[side]:
                told = recall.history(agent.actor, dice.choice(facts[side]), limit=200)
                values = [each["value"] for each in [*told["results"], *told["stretches"]] if each["value"] is not None]
            else:
                values = []
                for fact in facts[other][-1:]:
                    for door in (recall.fact, recall.history, recall.lineage):
                        with pytest.raises(Missing):
                            door(agent.actor, fact)
                for episode in kept[other][-1:]:
                    with pytest.raises(Missing):
                        recall.episode(agent.actor, episode)
            seen += len(values)
            assert all(str(value).startswith(side) for value in values), (side, act)
    assert seen > 100
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        assert cursor.fetchone() == process


# every kind of exit ---------------------------------------------------------------------------------------------------


class Odd(Exception):
    """Something that nobody expects."""


def raises(error: BaseException) -> None:
    raise error


def fails_in_sql() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1/0")


def is_refused_by_the_database() -> None:
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM memory_evidence")


EXITS = {
    "commit": lambda: None,
    "exception": lambda: raises(Odd()),
    "rollback": lambda: raises(Rollback()),
    "problem": lambda: raises(Missing()),
    "error in SQL": fails_in_sql,
    "permission denied": is_refused_by_the_database,
    "end of the process": lambda: raises(SystemExit(1)),
    "interrupt": lambda: raises(KeyboardInterrupt()),
}


@pytest.mark.parametrize("role", list(Role))
@pytest.mark.parametrize("way", EXITS)
def test_role_and_tenant_end_with_the_transaction_however_it_ends(
    world: World, untouched: Any, role: Role, way: str
) -> None:
    with (
        suppress(BaseException),
        tenant_transaction(role, tenant=world.tenant, clearance=2, actor=uuid4(), durable=False),
    ):
        assert standing()[0] == role.value
        EXITS[way]()


def test_a_lost_connection_comes_back_as_nobody(world: World, untouched: Any) -> None:
    def is_cut_off() -> None:
        with tenant_transaction(Role.WRITER, tenant=world.tenant), connection.cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()")
            world.superuser.execute("SELECT pg_terminate_backend(%s)", cursor.fetchone())
            cursor.execute("SELECT 1")

    with pytest.raises(DatabaseError):
        is_cut_off()
    connection.close()


@pytest.mark.parametrize("role", list(Role))
def test_a_transaction_opens_on_a_connection_whose_health_is_in_doubt(world: World, untouched: Any, role: Role) -> None:
    """As at the begin of every request and task: the connection is asked whether it lives before it is used."""
    connection.close_if_unusable_or_obsolete()
    with tenant_transaction(role, tenant=world.tenant, clearance=3, actor=uuid4()):
        assert standing()[0] == role.value


def test_a_transaction_opens_anew_where_the_connection_was_lost_meanwhile(world: World) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        world.superuser.execute("SELECT pg_terminate_backend(%s)", cursor.fetchone())
    connection.close_if_unusable_or_obsolete()
    with tenant_transaction(Role.AGENT, tenant=world.tenant):
        assert standing()[0] == "muniment_agent"


def test_a_tenant_transaction_does_not_nest_and_a_role_is_not_taken_outside_one(world: World, untouched: Any) -> None:
    with tenant_transaction(Role.AGENT, tenant=world.tenant):
        with pytest.raises(NestedTransaction), tenant_transaction(Role.WRITER, tenant=world.there.id):
            pass
        assert standing()[0] == "muniment_agent"
    with pytest.raises(RuntimeError):
        assume(Role.AGENT, tenant=world.tenant)


REQUESTS: list[tuple[str, str, Any, int]] = [
    ("GET", "/api/v1/whoami/", None, 200),
    ("GET", "/api/v1/facts/", None, 200),
    ("GET", "/api/v1/facts/?nonsense=1", None, 400),
    ("GET", f"/api/v1/facts/{UUID(int=5)}/", None, 404),
    ("POST", "/api/v1/facts/", {}, 400),
    ("POST", "/api/v1/facts/", {"subject": "s", "attribute": "nothing", "value": 1, "provenance": {"turn_id": "t"}}, 422),
    ("POST", "/api/v1/facts/", {"subject": "s", "attribute": "tag", "value": "x", "provenance": {"turn_id": "t"}}, 201),
    ("DELETE", "/api/v1/facts/", None, 405),
    ("POST", "/api/v1/facts/", "not json", 400),
    ("GET", "/healthz", None, 200),
    ("GET", "/readyz", None, 200),
    ("GET", "/metrics", None, 200),
    ("GET", "/admin/", None, 302),
    ("GET", "/nowhere/", None, 404),
]  # fmt: skip


@pytest.mark.parametrize(("method", "path", "sent", "status"), REQUESTS)
def test_after_every_answer_the_connection_is_nobodys(
    world: World, untouched: Any, method: str, path: str, sent: Any, status: int
) -> None:
    assert world.agent.api.send(method, path, sent).status_code == status


def test_after_a_server_error_the_connection_is_nobodys(
    world: World, untouched: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for error in (Odd(), psycopg.errors.DiskFull(), RecursionError()):
        monkeypatch.setattr(recall, "facts", lambda *_, error=error, **__: raises(error))
        assert world.agent.api.send("GET", "/api/v1/facts/").status_code >= 500


# raw SQL --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", ROLES[:-1])
def test_raw_sql_of_a_bound_role_neither_sees_nor_touches_another_tenants_row(world: World, role: str) -> None:
    assert [found for table in tenant_tables(world.superuser) if (found := leak(world, table, role))] == []


def test_the_front_role_sees_no_memory_of_anybody(world: World) -> None:
    with as_role(world.superuser, "muniment_front", None):
        seen = [
            table
            for table in tenant_tables(world.superuser)
            if table.startswith(("memory_", "policies_"))
            and world.superuser.execute("SELECT has_any_column_privilege(%s, 'SELECT')", [table]).fetchone() == (True,)
        ]
    # Counts of tokens and kinds of work: what is due for whom, and what /metrics adds up. No word of anybody.
    assert seen == ["memory_modelspending", "memory_outboxentry"]


@pytest.mark.parametrize("table", GOVERNED)
def test_raw_sql_of_an_agent_sees_no_hidden_row(world: World, table: str) -> None:
    assert exposure(world, table) == ""


def test_an_agent_without_a_clearance_sees_nothing_governed(world: World) -> None:
    session = world.superuser
    with session.transaction(force_rollback=True):
        session.execute(
            "SELECT set_config('role', 'muniment_agent', true), set_config('muniment.tenant', %s, true)",
            [str(world.tenant)],
        )
        for table in GOVERNED:
            assert attempt(session, sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(table)))[1] == [(0,)]


def test_an_expiry_is_obeyed_to_the_instant(world: World) -> None:
    said = write(world, body("colour", "green"))[0]
    world.age("UPDATE memory_fact SET expires_at = now() + interval '150 milliseconds' WHERE id = %s", said.fact)
    seen = []
    for _ in range(40):
        with as_role(world.superuser, "muniment_agent", world.tenant):
            row = world.superuser.execute(
                "SELECT count(*), max(expires_at) > statement_timestamp() FROM memory_fact WHERE id = %s", [said.fact]
            ).fetchone()
        assert row is not None
        assert row[0] == 0 or row[1] is True
        seen.append(row[0])
        world.superuser.execute("SELECT pg_sleep(0.01)")
    assert seen[0] == 1
    assert seen[-1] == 0
    assert sorted(seen, reverse=True) == seen


# through beliefs ------------------------------------------------------------------------------------------------------

HIDING = {
    "expired": "expires_at = now() - interval '1 second'",
    "above clearance": "sensitivity = 3",
    "restricted processing": "restricted = true",
    "redaction required": "redaction_state = 'required'",
    "ended": "ended_at = now(), ended_by = 'erased'",
}


@pytest.mark.parametrize("why", HIDING)
def test_joined_through_beliefs_no_predecessor_stands_in_for_a_hidden_fact(world: World, why: str) -> None:
    subject = named()
    before, hidden, after = (
        write(world, body("colour", colour, subject=subject, valid_from=f"2026-0{month}-01T00:00:00Z"))[0]
        for colour, month in (("red", 1), ("green", 3), ("blue", 5))
    )
    world.age(f"UPDATE memory_fact SET {HIDING[why]} WHERE id = %s", hidden.fact)
    joined = (
        "SELECT b.fact_id, f.id FROM memory_belief b LEFT JOIN memory_fact f ON f.tenant_id = b.tenant_id AND f.id = b.fact_id"
        " WHERE b.key_id = (SELECT key_id FROM memory_evidence e WHERE e.id = %s) AND b.valid_from <= %s"
        " AND coalesce(b.valid_to, 'infinity') > %s AND b.believed_from <= %s AND coalesce(b.believed_to, 'infinity') > %s"
    )
    known = [datetime.now(UTC)]
    for month in range(1, 13):
        for day in (1, 15):
            at = datetime(2026, month, day, tzinfo=UTC)
            for knew in known:
                with as_role(world.superuser, "muniment_agent", world.tenant, clearance=1):
                    found = world.superuser.execute(joined, [before.evidence, at, at, knew, knew]).fetchall()
                expected = before.fact if month < 3 else hidden.fact if month < 5 else after.fact
                assert found == [(expected, None if expected == hidden.fact else expected)]
    agent = world.agent.actor
    with tenant_transaction(Role.AGENT, tenant=world.tenant, clearance=1, actor=agent.id):
        for month, value in ((2, ["red"]), (3, []), (4, []), (5, ["blue"])):
            page = recall.facts(
                agent, subject=subject, attribute="colour", valid_at=datetime(2026, month, 2, tzinfo=UTC)
            )
            assert [each["value"] for each in page.results] == value
        page = recall.facts(agent, subject=subject, attribute="colour", valid_at=datetime(2026, 6, 1, tzinfo=UTC))
        # What came before is hidden: that there was something may be told, which fact it was may not.
        assert page.results[0]["supersedes"] is None
        told = recall.history(agent, after.fact)
        assert {each["value"] for each in told["stretches"]} == {"red", None, "blue"}
        assert hidden.fact not in {each["fact"] for each in [*told["results"], *told["stretches"]]}


def test_the_past_is_not_shown_in_place_of_what_expired_now(world: World) -> None:
    subject = named()
    write(world, body("colour", "red", subject=subject, valid_from="2026-01-01T00:00:00Z"))
    second = write(world, body("colour", "green", subject=subject, valid_from="2026-02-01T00:00:00Z"))[0]
    expire(world, second.fact)
    agent = world.agent.actor
    for known_at in (None, datetime.now(UTC) + timedelta(seconds=1), datetime.now(UTC)):
        with tenant_transaction(Role.AGENT, tenant=world.tenant, clearance=3, actor=agent.id):
            assert recall.facts(agent, subject=subject, attribute="colour", known_at=known_at).results == []


# links and names ------------------------------------------------------------------------------------------------------


def foreign_keys(session: psycopg.Connection[Any]) -> list[tuple[str, str, str]]:
    """Every column, of those that carry a foreign key to another tenant's table beside `tenant_id`."""
    return session.execute(
        "SELECT k.conrelid::regclass::text, a.attname::text, k.confrelid::regclass::text FROM pg_constraint k,"
        " unnest(k.conkey) n JOIN pg_attribute a ON a.attnum = n WHERE a.attrelid = k.conrelid AND k.contype = 'f'"
        " AND a.attname <> 'tenant_id' AND array_length(k.conkey, 1) = 2 ORDER BY 1, 2"
    ).fetchall()


def _insert(table: str, row: dict[str, Any]) -> sql.Composed:
    """Return the INSERT of a row given as JSON, but for what the database computes."""
    columns = sql.SQL(", ").join(
        sql.Identifier(each) for each in row if (table, each) != ("memory_candidate", "due_at")
    )
    made = "INSERT INTO {0} ({1}) SELECT {1} FROM jsonb_populate_record(NULL::{0}, %s)"
    return sql.SQL(made).format(sql.Identifier(table), columns)


#: In the open transaction: of a table nothing but its keys and links is left to refuse a row.
_LINKS_ALONE = """
DO $$
DECLARE
  c text;
BEGIN
  EXECUTE 'ALTER TABLE {table} DISABLE TRIGGER USER';
  FOR c IN SELECT conname FROM pg_constraint WHERE conrelid = '{table}'::regclass AND contype = 'c' LOOP
    EXECUTE format('ALTER TABLE {table} DROP CONSTRAINT %I', c);
  END LOOP;
END $$
"""


def test_every_link_to_another_tenants_row_is_refused_by_the_database(world: World) -> None:
    """Even without row-level security: as a superuser, with the constraints alone in the way."""
    session = world.superuser
    links = foreign_keys(session)
    assert len(links) > 25
    # Set by the database itself, whatever the row says.
    links = [link for link in links if link[:2] != ("policies_decision", "delegation_id")]
    for table, column, target in links:
        name = sql.Identifier(table)
        foreign = session.execute(
            sql.SQL("SELECT id FROM {} WHERE tenant_id = %s LIMIT 1").format(sql.Identifier(target)), [world.there.id]
        ).fetchone()
        row = session.execute(
            sql.SQL("SELECT to_jsonb(t) FROM {} t WHERE tenant_id = %s LIMIT 1").format(name), [world.tenant]
        ).fetchone()
        assert foreign is not None
        assert row is not None, table
        made = {**row[0], "id": str(uuid4()), column: str(foreign[0])}
        for unique in ("value_digest", "content_digest", "digest"):
            if unique in made and table != "tenants_agentkey":
                made[unique] = "\\x" + uuid4().hex * 2
        if table == "tenants_agentkey":
            made["prefix"] = uuid4().hex[:8]
        if table == "memory_evidence":
            made["act_no"] = -(uuid4().int % 10**12)
        for unique in ("turn_id", "ref"):
            if unique in made:
                made[unique] = uuid4().hex
        if "is_key" in made:
            made["is_key"] = False
        if table == "memory_belief":
            made["chain_no"] = -(uuid4().int % 10**12)
        if "number" in made:
            made.update(number=uuid4().int % 10**9, state="retired")
        with session.transaction(force_rollback=True):
            session.execute("SET CONSTRAINTS ALL IMMEDIATE")
            # Guards of acts and checks would look at a copy before its links are looked at: they are set aside until the end.
            session.execute(_LINKS_ALONE.format(table=table))
            if table in ("memory_extraction", "memory_derived", "memory_derivedsource"):
                session.execute(sql.SQL("DELETE FROM {} WHERE id = %s").format(name), [row[0]["id"]])
            state, message = attempt(
                session,
                _insert(table, made),
                [Jsonb(made)],
            )
        assert state == "23503", (table, column, state, message)


def test_what_is_unique_in_one_tenant_says_nothing_of_another(world: World, untouched: Any) -> None:
    subject, ref, turn = named(), f"c-{uuid4().hex}", uuid4().hex
    from memory import consent
    from memory.contracts import ConsentBody

    for agent in (world.agent, world.stranger):
        actor = agent.actor
        with tenant_transaction(Role.WRITER, tenant=actor.tenant, clearance=3, actor=actor.id):
            assert remember.subject(actor, parse(SubjectBody, {"key": subject, "aliases": [f"{subject}!"]})).taken == 0
        with tenant_transaction(Role.WRITER, tenant=actor.tenant, clearance=3, actor=actor.id):
            assert consent.grant(actor, parse(ConsentBody, {"subject": subject, "ref": ref})).created
        with tenant_transaction(Role.WRITER, tenant=actor.tenant, clearance=3, actor=actor.id):
            sent = {"kind": "message", "content": "x", "session_id": "s", "turn_id": turn, "subject": subject,
                    "occurred_at": "2026-01-05T09:00:00Z"}  # fmt: skip
            outcome: Any = remember.episode(actor, parse(EpisodeBody, sent))
            assert not outcome.repeated
        with tenant_transaction(Role.WRITER, tenant=actor.tenant, clearance=3, actor=actor.id):
            said = remember.facts(actor, [body("colour", "red", subject=subject, valid_from="2026-01-01T00:00:00Z")])[0]
            assert isinstance(said, Written)
            assert said.change == "new"
        with tenant_transaction(Role.WRITER, tenant=actor.tenant, clearance=3, actor=actor.id):
            rival = remember.facts(actor, [body("colour", "blue", subject=subject, valid_from="2026-01-01T00:00:00Z")])[
                0
            ]
            assert isinstance(rival, Asked)


def test_an_id_of_another_tenant_may_be_taken_and_tells_nothing(world: World) -> None:
    """The same id as another tenant's row is no clash: keys begin with the tenant."""
    session = world.superuser
    for table in tenant_tables(session):
        if table in TENANT_COLUMN or "historical" in table:
            continue
        name = sql.Identifier(table)
        foreign = session.execute(
            sql.SQL("SELECT to_jsonb(t) FROM {} t WHERE tenant_id = %s LIMIT 1").format(name), [world.there.id]
        ).fetchone()
        assert foreign is not None, table
        made = {**foreign[0], "tenant_id": str(world.tenant)}
        if table == "memory_belief":
            # Chains are numbered by one sequence for all, which nobody outside chooses from or is told.
            made["chain_no"] = -1
        if table == "memory_preventedreturn":
            # One row a day of the tenant's own.
            made["day"] = "2000-01-01"
        with as_role(session, "muniment_writer", world.tenant):
            if session.execute("SELECT has_table_privilege(%s, 'INSERT')", [table]).fetchone() != (True,):
                continue
            state, _ = attempt(
                session,
                _insert(table, made),
                [Jsonb(made)],
            )
        # It goes in, or its links lead nowhere; what it never says is that the id, the digest or the name is taken.
        assert state in ("00000", "23503"), (table, state)


def test_a_digest_of_the_same_words_differs_between_tenants(world: World) -> None:
    subject = named()
    for agent in (world.agent, world.stranger):
        actor = agent.actor
        with tenant_transaction(Role.WRITER, tenant=actor.tenant, clearance=3, actor=actor.id):
            remember.facts(actor, [body("colour", "one and the same", subject=subject)])
    for table, column in (("memory_fact", "value_digest"), ("memory_subjectidentifier", "digest"),
                          ("memory_episode", "content_digest"), ("memory_idempotencyrecord", "request_digest")):  # fmt: skip
        shared = world.superuser.execute(
            f"SELECT count(*) FROM (SELECT {column} FROM {table} GROUP BY 1 HAVING count(DISTINCT tenant_id) > 1) d"
        ).fetchone()
        assert shared == (0,), table


def test_a_problem_that_a_foreign_id_meets_is_that_of_a_missing_one(world: World, untouched: Any) -> None:
    foreign = world.superuser.execute(
        "SELECT id FROM memory_fact WHERE tenant_id = %s LIMIT 1", [world.there.id]
    ).fetchone()
    assert foreign is not None
    actor = world.agent.actor
    said = []
    for fact in (foreign[0], uuid4()):
        with (
            pytest.raises(Problem) as caught,
            tenant_transaction(Role.AGENT, tenant=world.tenant, clearance=3, actor=actor.id),
        ):
            recall.fact(actor, fact)
        said.append((caught.value.code, caught.value.status, caught.value.errors))
    assert said[0] == said[1]
