"""What the catalogue must say, whoever writes the next migration: who is bound by what, and who may do what at all."""

from typing import Any

import psycopg
import pytest

from tests.database.checks import TENANT_COLUMN, tenant_tables

ROLES = ["muniment_agent", "muniment_writer", "muniment_staff", "muniment_worker", "muniment_front"]
INNER = ["muniment_chain", "muniment_counter"]

#: Who may delete what. Everything else ends by another way, or not at all.
MAY_DELETE = {
    ("muniment_writer", "memory_belief"),  # what an act of the same instant undid unseen; a trigger holds it to that
    ("muniment_writer", "memory_searchentry"),  # an index is thrown away and made again
    ("muniment_writer", "memory_derivedsource"),  # what is derived can be thrown away
    ("muniment_writer", "memory_payload"),  # of what is derived; a trigger refuses any other
    ("muniment_worker", "memory_outboxentry"),
    ("muniment_worker", "memory_idempotencyrecord"),
    # What ended, once it is empty and nothing needs it: triggers hold endings to that.
    *(
        ("muniment_worker", f"memory_{table}")
        for table in [
            "payload",
            "subject",
            "subjectidentifier",
            "episode",
            "extraction",
            "factkey",
            "fact",
            "evidence",
            "belief",
            "candidate",
            "candidatesaying",
            "searchentry",
            "derived",
        ]
    ),
    ("muniment_worker", "tenants_subjectkey"),
    ("muniment_worker", "policies_consent"),
    ("muniment_front", "django_session"),
    ("muniment_staff", "django_session"),
    ("muniment_front", "mfa_authenticator"),  # a person's own second factor, taken away
    ("muniment_front", "tenants_signinidentity"),  # as whom a provider knows somebody, taken away by an operator
    ("muniment_front", "tenants_membership"),  # a role that a tenant's admin ended; its history stays
}
#: Who may change any column of what.
MAY_UPDATE_WHOLE = {
    ("muniment_front", "django_session"),
    ("muniment_staff", "django_session"),
    ("muniment_front", "mfa_authenticator"),
    ("muniment_chain", "tenants_auditchain"),
}


def test_every_tenants_table_has_row_level_security_enabled_and_forced(owner: Any) -> None:
    found = owner.execute(
        "SELECT relname::text, relrowsecurity, relforcerowsecurity FROM pg_class WHERE relname = ANY(%s)",
        [tenant_tables(owner)],
    ).fetchall()
    assert len(found) > 25
    assert [row for row in found if row[1:] != (True, True)] == []


def test_tables_without_a_tenant_are_few_and_named(owner: Any) -> None:
    every = {row[0] for row in owner.execute("SELECT tablename::text FROM pg_tables WHERE schemaname = 'public'")}
    assert every - set(tenant_tables(owner)) == {
        "auth_group",
        "auth_group_permissions",
        "auth_permission",
        "account_emailaddress",
        "account_emailconfirmation",
        "mfa_authenticator",
        "django_admin_log",
        "django_content_type",
        "django_migrations",
        "django_session",
        "tenants_signinidentity",
        "tenants_user",
        "tenants_user_groups",
        "tenants_user_user_permissions",
    }


def test_every_role_that_holds_a_grant_on_a_tenants_table_has_a_policy_for_it(owner: Any) -> None:
    uncovered = owner.execute(
        """
        WITH held AS (
          SELECT c.oid, c.relname::text AS name, a.grantee, a.privilege_type FROM pg_class c, aclexplode(c.relacl) a
          WHERE c.relname = ANY(%(tables)s)
          UNION
          SELECT c.oid, c.relname::text, a.grantee, a.privilege_type FROM pg_class c JOIN pg_attribute t ON t.attrelid = c.oid,
            aclexplode(t.attacl) a WHERE c.relname = ANY(%(tables)s))
        SELECT h.name, pg_get_userbyid(h.grantee), h.privilege_type FROM held h JOIN pg_class c ON c.oid = h.oid
        WHERE h.grantee <> c.relowner AND NOT EXISTS (
          SELECT FROM pg_policy p WHERE p.polrelid = h.oid AND h.grantee = ANY (p.polroles)
            AND p.polcmd IN ('*', CASE h.privilege_type WHEN 'SELECT' THEN 'r' WHEN 'INSERT' THEN 'a' WHEN 'UPDATE' THEN 'w'
                                  WHEN 'DELETE' THEN 'd' END))
        """,
        {"tables": tenant_tables(owner)},
    ).fetchall()
    assert uncovered == []


def test_no_policy_names_a_role_that_holds_nothing_there(owner: Any) -> None:
    idle = owner.execute(
        "SELECT c.relname::text, p.polname::text, r.rolname::text FROM pg_policy p JOIN pg_class c ON c.oid = p.polrelid"
        " JOIN pg_roles r ON r.oid = ANY (p.polroles)"
        " WHERE NOT has_any_column_privilege(r.oid, c.oid, 'SELECT, INSERT, UPDATE') ORDER BY 1, 2, 3"
    ).fetchall()
    assert idle == []


def test_no_policy_is_for_everybody_and_all_are_permissive(owner: Any) -> None:
    found = owner.execute(
        "SELECT tablename, policyname FROM pg_policies WHERE schemaname = 'public'"
        " AND (permissive <> 'PERMISSIVE' OR 'public' = ANY (roles))"
    ).fetchall()
    assert found == []


def test_every_policy_of_a_bound_role_asks_for_the_tenant(owner: Any) -> None:
    unbound = {"before_any_tenant", "appends", "verifies", "dispatch"}
    for table, name, roles, using, check in owner.execute(
        "SELECT tablename::text, policyname::text, roles::text[], qual, with_check FROM pg_policies WHERE schemaname = 'public'"
    ):
        if (table, name) == ("memory_searchentry", "finds"):
            # Its functions keep to the tenant themselves: test_search shows it, and why it has to be so.
            assert roles == ["muniment_counter"]
        elif name in unbound:
            assert set(roles) <= {"muniment_front", "muniment_chain"}, (table, name)
        else:
            column = TENANT_COLUMN.get(table, "tenant_id")
            for expression in (using, check):
                assert expression is None or f"({column} = muniment_tenant())" in expression, (table, name)


def test_nobody_may_truncate_reference_or_hang_triggers_and_few_may_delete(owner: Any) -> None:
    found = owner.execute(
        "SELECT pg_get_userbyid(a.grantee)::text, c.relname::text, a.privilege_type, a.is_grantable FROM pg_class c,"
        " aclexplode(c.relacl) a WHERE c.relnamespace = 'public'::regnamespace AND a.grantee <> c.relowner AND c.relkind <> 'S'"
    ).fetchall()
    assert {row[2] for row in found} <= {"SELECT", "INSERT", "UPDATE", "DELETE"}
    assert {(role, table) for role, table, privilege, _ in found if privilege == "DELETE"} == MAY_DELETE
    assert {(role, table) for role, table, privilege, _ in found if privilege == "UPDATE"} == MAY_UPDATE_WHOLE
    assert not any(grantable for *_, grantable in found)
    assert {role for role, *_ in found} <= {*ROLES, *INNER}


def test_no_role_may_change_what_rows_are_known_by(owner: Any) -> None:
    found = owner.execute(
        "SELECT r.rolname::text, c.relname::text, a.attname::text FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid,"
        " pg_roles r WHERE c.relname = ANY(%s) AND a.attname IN ('id', 'tenant_id') AND r.rolname = ANY(%s)"
        " AND has_column_privilege(r.oid, c.oid, a.attnum, 'UPDATE')",
        [tenant_tables(owner), [*ROLES, *INNER]],
    ).fetchall()
    assert found == []


def test_functions_that_act_for_others_belong_to_roles_that_cannot_log_in(owner: Any) -> None:
    found = owner.execute(
        "SELECT p.proname::text, r.rolname::text, r.rolcanlogin, p.proconfig FROM pg_proc p JOIN pg_roles r ON r.oid = p.proowner"
        " WHERE p.pronamespace = 'public'::regnamespace AND p.prosecdef ORDER BY 1"
    ).fetchall()
    assert found == [
        ("audit_append", "muniment_chain", False, ["search_path=pg_catalog, public, pg_temp"]),
        ("content_stands", "muniment_counter", False, ["search_path=pg_catalog, public, pg_temp"]),
        ("held_records", "muniment_counter", False, ["search_path=pg_catalog, public, pg_temp"]),
        ("hold_keeps_content", "muniment_counter", False, ["search_path=pg_catalog, public, pg_temp"]),
        ("hold_keeps_keys", "muniment_counter", False, ["search_path=pg_catalog, public, pg_temp"]),
        ("hold_keeps_links", "muniment_counter", False, ["search_path=pg_catalog, public, pg_temp"]),
        ("hold_keeps_rows", "muniment_counter", False, ["search_path=pg_catalog, public, pg_temp"]),
        ("living_content_kept", "muniment_counter", False, ["search_path=pg_catalog, public, pg_temp"]),
        ("living_saying_kept", "muniment_counter", False, ["search_path=pg_catalog, public, pg_temp"]),
        ("procedureversion_told", "muniment_counter", False, ["search_path=pg_catalog, public, pg_temp"]),
        ("search_extent", "muniment_counter", False, ["search_path=pg_catalog, public, pg_temp"]),
        ("search_hits", "muniment_counter", False, ["search_path=pg_catalog, public, pg_temp"]),
        ("search_waiting", "muniment_counter", False, ["search_path=pg_catalog, public, pg_temp"]),
        ("under_restriction", "muniment_counter", False, ["search_path=pg_catalog, public, pg_temp"]),
        ("withheld_reason", "muniment_counter", False, ["search_path=pg_catalog, public, pg_temp"]),
    ]


def test_no_function_of_ours_may_be_called_by_everybody(owner: Any) -> None:
    found = owner.execute(
        "SELECT p.proname::text FROM pg_proc p WHERE p.pronamespace = 'public'::regnamespace AND p.prorettype <> 'trigger'::regtype"
        " AND (p.proacl IS NULL OR EXISTS (SELECT FROM aclexplode(p.proacl) a WHERE a.grantee = 0))"
    ).fetchall()
    assert found == []


def test_roles_are_as_weak_as_they_can_be(owner: Any) -> None:
    found = owner.execute(
        "SELECT rolname::text, rolcanlogin FROM pg_roles WHERE rolname LIKE 'muniment\\_%' AND (rolsuper OR rolbypassrls"
        " OR rolinherit OR rolcreaterole OR rolcreatedb OR rolreplication)"
    ).fetchall()
    assert found == []
    logins = {
        row[0]
        for row in owner.execute("SELECT rolname::text FROM pg_roles WHERE rolname LIKE 'muniment\\_%' AND rolcanlogin")
    }
    assert logins == {"muniment_app", "muniment_broker", "muniment_owner"}


def test_the_login_role_owns_nothing_and_holds_nothing_but_its_roles(owner: Any) -> None:
    owned = owner.execute("SELECT count(*) FROM pg_class WHERE relowner = 'muniment_app'::regrole").fetchone()
    held = owner.execute(
        "SELECT c.relname FROM pg_class c, aclexplode(c.relacl) a WHERE a.grantee = 'muniment_app'::regrole"
    ).fetchall()
    roles = {
        row[0]
        for row in owner.execute(
            "SELECT roleid::regrole::text FROM pg_auth_members WHERE member = 'muniment_app'::regrole"
        )
    }
    assert owned == (0,)
    assert held == []
    assert roles == set(ROLES)


def test_the_login_role_itself_reads_nothing(login: Any, owner: Any) -> None:
    tables = [row[0] for row in owner.execute("SELECT tablename::text FROM pg_tables WHERE schemaname = 'public'")]
    for table in tables:
        # It does not even see that there is such a table.
        with pytest.raises(psycopg.errors.UndefinedTable):
            login.execute(f"SELECT 1 FROM {table} LIMIT 1")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            login.execute(f"SELECT 1 FROM public.{table} LIMIT 1")


def test_the_login_role_may_not_take_the_roles_that_functions_act_as(login: Any) -> None:
    for role in (*INNER, "muniment_owner", "muniment_broker"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            login.execute(f"SET ROLE {role}")


def test_no_role_may_make_anything_in_the_schema_or_read_the_queue(owner: Any) -> None:
    for role in (*ROLES, *INNER, "muniment_app"):
        found = owner.execute(
            "SELECT has_schema_privilege(%(role)s, 'public', 'CREATE'), has_schema_privilege(%(role)s, 'pgmq', 'USAGE'),"
            " has_database_privilege(%(role)s, current_database(), 'CREATE')",
            {"role": role},
        ).fetchone()
        assert found == (False, False, False), role
    assert owner.execute("SELECT has_schema_privilege('muniment_broker', 'public', 'USAGE')").fetchone() == (False,)


def test_the_owner_reads_no_tenants_row(tenant: Any, owner: Any) -> None:
    tenant.agent()
    for table in tenant_tables(owner):
        assert owner.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,), table


def test_without_a_tenant_no_bound_role_sees_a_row(tenant: Any, login: Any, owner: Any) -> None:
    tenant.agent()
    for role in ROLES[:-1]:
        for value in ("", None):
            with login.transaction(force_rollback=True):
                login.execute(f"SET LOCAL ROLE {role}")
                if value is not None:
                    login.execute("SELECT set_config('muniment.tenant', %s, true)", [value])
                for table in tenant_tables(owner):
                    may = login.execute("SELECT has_table_privilege(%s, 'SELECT')", [table]).fetchone()
                    if may == (True,):
                        assert login.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,), (role, table)


def test_every_foreign_key_between_tenants_tables_carries_the_tenant(owner: Any) -> None:
    tables = set(tenant_tables(owner)) - {"tenants_tenant"}
    found = owner.execute(
        "SELECT k.conname::text, k.conrelid::regclass::text, k.confrelid::regclass::text,"
        " EXISTS (SELECT FROM generate_subscripts(k.conkey, 1) n"
        " JOIN pg_attribute a ON a.attrelid = k.conrelid AND a.attnum = k.conkey[n] AND a.attname = 'tenant_id'"
        " JOIN pg_attribute b ON b.attrelid = k.confrelid AND b.attnum = k.confkey[n] AND b.attname = 'tenant_id')"
        " FROM pg_constraint k WHERE k.contype = 'f' AND k.connamespace = 'public'::regnamespace"
    ).fetchall()
    between = [row for row in found if row[1] in tables and row[2] in tables]
    assert len(between) > 25
    assert [row for row in between if not row[3]] == []


def test_every_primary_key_of_a_tenants_table_begins_with_the_tenant(owner: Any) -> None:
    found = owner.execute(
        "SELECT k.conrelid::regclass::text, (SELECT a.attname::text FROM pg_attribute a WHERE a.attrelid = k.conrelid"
        " AND a.attnum = k.conkey[1]) FROM pg_constraint k WHERE k.contype = 'p' AND k.conrelid::regclass::text = ANY(%s)",
        [tenant_tables(owner)],
    ).fetchall()
    # History rows are numbered by a counter of their own, which says nothing and is no key of anything.
    wrong = [
        (table, column)
        for table, column in found
        if "historical" not in table and column != TENANT_COLUMN.get(table, "tenant_id")
    ]
    assert wrong == []


def test_every_unique_constraint_of_a_tenants_table_includes_the_tenant(owner: Any) -> None:
    #: What must be unique among all tenants: secrets' names that no one chooses, and slugs, which operators choose.
    everywhere = {"agentkey_prefix_once", "tenants_tenant_slug_key"}
    found = owner.execute(
        "SELECT i.indexrelid::regclass::text, c.relname::text, ARRAY(SELECT a.attname::text FROM unnest(i.indkey::int2[]) n"
        " JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = n) FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid"
        " WHERE i.indisunique AND c.relname = ANY(%s)",
        [tenant_tables(owner)],
    ).fetchall()
    wrong = [
        name
        for name, table, columns in found
        if TENANT_COLUMN.get(table, "tenant_id") not in columns and name not in everywhere and "historical" not in table
    ]
    assert wrong == []
