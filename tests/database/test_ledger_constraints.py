"""The ledger attacked with raw SQL under each role: what the database itself refuses, whatever Python would say."""

from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import DatabaseError, connection

from memory.rows import fetch
from tenants.isolation import Role, tenant_transaction
from tests.memory.doors import MICROSECOND, Doors, day

EXCLUDED, CHECKED, UNIQUE, FOREIGN = "23P01", "23514", "23505", "23503"
FROZEN, FORBIDDEN = "23001", "42501"

LEDGER = ["payload", "subject", "subjectidentifier", "episode", "factkey", "fact", "evidence", "belief", "candidate"]


@pytest.fixture
def doors(database: Any) -> Doors:
    return Doors()


@pytest.fixture(scope="module")
def attacked(database: Any) -> Doors:
    """A ledger that every attack leaves as it was."""
    doors = Doors()
    doors.episode("hello", subject="mira")
    doors.say("city", "Rome", 1)
    doors.say("city", "Oslo", 1)
    return doors


@pytest.fixture(scope="module")
def strangers(database: Any) -> Doors:
    """A tenant that has nothing."""
    return Doors()


class _Undone(Exception):
    pass


def changed(doors: Doors, role: Role, statement: str, *parameters: Any) -> int | str:
    """Return the SQLSTATE with which `statement` is refused, or how many rows it would have touched; it is undone."""
    count = -1
    try:
        with tenant_transaction(role, tenant=doors.id, clearance=3):
            with connection.cursor() as cursor:
                # A door's statements go as one stream: leaving a stream inside it, each has been answered for.
                with connection.wrap_database_errors, connection.connection.pipeline():
                    cursor.execute(statement, parameters)
                count = cursor.rowcount
                with connection.wrap_database_errors, connection.connection.pipeline():
                    cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
            raise _Undone
    except DatabaseError as error:
        return str(getattr(error.__cause__, "sqlstate", None))
    except _Undone:
        return count


def refusal(doors: Doors, role: Role, statement: str, *parameters: Any) -> str | None:
    """Return the SQLSTATE with which `statement` is refused, or None where it went through (and is undone)."""
    outcome = changed(doors, role, statement, *parameters)
    return outcome if isinstance(outcome, str) else None


_COPY_BELIEF = """
INSERT INTO memory_belief (tenant_id, id, key_id, chain_no, evidence_id, fact_id, valid_from, valid_to, believed_from, believed_to)
SELECT tenant_id, %s, key_id, {chain}, {evidence}, fact_id, %s, %s, %s, %s FROM memory_belief WHERE fact_id = %s LIMIT 1"""


def test_a_second_value_at_one_instant_is_refused_at_every_known_at(doors: Doors) -> None:
    first = doors.say("city", "Rome", 1, recorded_at=day(100))
    doors.say("city", "Oslo", 5, recorded_at=day(200))

    def another(start: Any, until: Any, since: Any, upto: Any) -> str | None:
        statement = _COPY_BELIEF.format(chain="chain_no", evidence="evidence_id")
        return refusal(doors, Role.WRITER, statement, uuid4(), start, until, since, upto, first.fact)

    assert another(day(9), None, day(300), None) == EXCLUDED
    assert another(day(2), day(3), day(300), None) == EXCLUDED
    assert another(day(9), day(10), day(150), day(160)) == EXCLUDED
    assert another(day(5) - MICROSECOND, day(5), day(999), None) == EXCLUDED
    assert another(day(0), day(1), day(300), None) is None


def test_another_chain_may_hold_at_the_same_instants(doors: Doors) -> None:
    doors.say("tags", "a", 1)
    doors.say("tags", "b", 1)
    assert doors.values("tags", 2) == ["a", "b"]


@pytest.mark.parametrize(
    "column",
    [
        "valid_from = valid_from + interval '1 s'",
        "stated_to = '2090-01-01Z'",
        "recorded_at = now()",
        "act_no = 99",
        "rank = 5",
        "confirmed = true",
        "is_end = true",
        "turn_id = 'x'",
        "trust = 99",
        "writer_id = gen_random_uuid()",
        "written_at = now()",
        "fact_id = NULL",
        "sensitivity = 0",
        "confidence = 1",
        # Endings may bring it nearer, and nobody may put it off.
        "expires_at = now() + interval '100 years'",
        "retracted_at = now()",
    ],
)
@pytest.mark.parametrize("role", list(Role))
def test_evidence_is_frozen_for_every_role(attacked: Doors, role: Role, column: str) -> None:
    assert refusal(attacked, role, f"UPDATE memory_evidence SET {column}") in (FORBIDDEN, FROZEN, CHECKED)


def test_evidence_is_frozen_for_a_superuser_too_and_retracted_once(doors: Doors, superuser: Any) -> None:
    said = doors.say("city", "Rome", 1)
    for change in ("valid_from = now()", "fact_id = NULL, is_end = true", "rank = 9", "confirmed = true", "act_no = 7"):
        with pytest.raises(Exception, match="what was said never changes"):
            superuser.execute(f"UPDATE memory_evidence SET {change} WHERE id = %s", [said.evidence])
    doors.retract(evidence=said.evidence)
    with pytest.raises(Exception, match="retracted once"):
        superuser.execute(
            "UPDATE memory_evidence SET retracted_at = NULL, retracted_by = NULL, retraction_reason = NULL WHERE id = %s",
            [said.evidence],
        )


@pytest.mark.parametrize("role", list(Role))
@pytest.mark.parametrize("table", LEDGER)
def test_no_role_deletes_from_the_ledger_or_empties_it(attacked: Doors, role: Role, table: str) -> None:
    assert refusal(attacked, role, f"TRUNCATE memory_{table} CASCADE") == FORBIDDEN
    if (role, table) != (Role.WRITER, "belief"):
        # Of payloads the writer throws away what is derived, and the worker what has ended; triggers keep all others. A key
        # goes with the last of its rows.
        bound = role is Role.WORKER or (role, table) == (Role.WRITER, "payload")
        # What a link refuses has the same state as what a guard does, since PostgreSQL 18.
        linked = table in ("factkey", "evidence")
        refused = (FORBIDDEN,) if not bound else (FOREIGN, FROZEN) if linked else (FROZEN,)
        assert refusal(attacked, role, f"DELETE FROM memory_{table}") in refused


def test_the_writer_removes_no_belief_but_one_of_the_keys_newest_instant(doors: Doors) -> None:
    doors.say("city", "Rome", 1, recorded_at=day(100))
    doors.say("city", "Oslo", 5, recorded_at=day(200))
    older = "DELETE FROM memory_belief WHERE believed_from = %s"
    assert refusal(doors, Role.WRITER, older, day(100)) == FROZEN
    assert changed(doors, Role.WRITER, older, day(200)) == 2


def test_what_was_believed_never_changes_and_is_closed_once(doors: Doors) -> None:
    doors.say("city", "Rome", 1, recorded_at=day(100))
    doors.say("city", "Oslo", 5, recorded_at=day(200))
    assert refusal(doors, Role.WRITER, "UPDATE memory_belief SET valid_to = NULL") == FORBIDDEN
    assert refusal(doors, Role.WRITER, "UPDATE memory_belief SET fact_id = NULL") == FORBIDDEN
    reopened = "UPDATE memory_belief SET believed_to = NULL WHERE believed_to IS NOT NULL"
    assert refusal(doors, Role.WRITER, reopened) == FROZEN
    backwards = "UPDATE memory_belief SET believed_to = believed_from WHERE believed_to IS NULL"
    assert refusal(doors, Role.WRITER, backwards) == CHECKED


@pytest.mark.parametrize("role", list(Role))
def test_no_role_writes_changes_or_removes_audit_rows(attacked: Doors, role: Role) -> None:
    copied = (
        "INSERT INTO tenants_auditevent (id, chain, seq, prev, hash, at, actor_kind, actor_id, action, target_kind, target_id,"
        " reason, numbers) VALUES (gen_random_uuid(), %s, 999, sha256('a'), sha256('b'), now(), 'agent', gen_random_uuid(),"
        " 'fact.written', 'fact', gen_random_uuid(), 'x', '{}')"
    )
    assert refusal(attacked, role, copied, attacked.id) == FORBIDDEN
    for statement in (
        "UPDATE tenants_auditevent SET reason = 'y'",
        "DELETE FROM tenants_auditevent",
        "TRUNCATE tenants_auditevent",
        "UPDATE tenants_auditchain SET seq = 0",
        "DELETE FROM tenants_auditchain",
    ):
        assert refusal(attacked, role, statement) in (FORBIDDEN, FROZEN)


@pytest.mark.parametrize("table", ["policies_attributeversion", "policies_policyversion"])
def test_a_published_version_never_changes(doors: Doors, superuser: Any, table: str) -> None:
    column = "definition" if table.endswith("attributeversion") else "digest"
    for role in Role:
        assert refusal(doors, role, f"DELETE FROM {table}") == FORBIDDEN
        assert refusal(doors, role, f"UPDATE {table} SET {column} = {column}") == FORBIDDEN
    assert refusal(doors, Role.STAFF, f"UPDATE {table} SET state = 'draft' WHERE state = 'active'") == FROZEN
    with pytest.raises(Exception, match="does not change"):
        superuser.execute(f"UPDATE {table} SET number = number + 100 WHERE tenant_id = %s", [doors.id])


_FACT_COPY = """
INSERT INTO memory_fact (tenant_id, id, key_id, subject_id, chain_no, value_digest, payload_id, attribute_version_id,
  policy_version_id, sensitivity, basis, expires_at, created_at)
SELECT tenant_id, gen_random_uuid(), {key}, subject_id, chain_no, {digest}, {payload}, attribute_version_id, policy_version_id,
  {sensitivity}, {basis}, {expires_at}, created_at FROM memory_fact"""


def fact_copy(**changes: str) -> str:
    """A statement that copies the fact with some columns changed."""
    columns = {
        "key": "key_id",
        "digest": "sha256('other')",
        "payload": "payload_id",
        "sensitivity": "sensitivity",
        "basis": "basis",
        "expires_at": "expires_at",
    }
    return _FACT_COPY.format(**{**columns, **changes})


def test_a_fact_is_unique_by_value_among_those_that_have_not_ended_and_governed_by_checks(doors: Doors) -> None:
    doors.say("city", "Rome", 1)
    assert refusal(doors, Role.WRITER, fact_copy()) is None
    assert refusal(doors, Role.WRITER, fact_copy(digest="value_digest")) == UNIQUE
    assert refusal(doors, Role.WRITER, fact_copy(expires_at="NULL")) == CHECKED
    assert refusal(doors, Role.WRITER, fact_copy(basis="'indefinite'")) == CHECKED
    assert refusal(doors, Role.WRITER, fact_copy(basis="'because'")) == CHECKED
    assert refusal(doors, Role.WRITER, fact_copy(sensitivity="4")) == CHECKED


def test_no_row_points_at_another_tenants_row_even_when_its_id_is_known(doors: Doors) -> None:
    doors.say("city", "Rome", 1)
    other = Doors()
    theirs = other.say("city", "Rome", 1)
    ((key, payload),) = other.sql("SELECT key_id, payload_id FROM memory_fact")
    ((subject,),) = other.sql("SELECT id FROM memory_subject")
    assert refusal(doors, Role.WRITER, fact_copy(key=f"'{key}'::uuid")) == FOREIGN
    assert refusal(doors, Role.WRITER, fact_copy(payload=f"'{payload}'::uuid")) == FOREIGN
    belief = _COPY_BELIEF.format(chain="nextval('memory_chain_no')", evidence=f"'{theirs.evidence}'::uuid")
    ((fact,),) = doors.sql("SELECT id FROM memory_fact")
    assert refusal(doors, Role.WRITER, belief, uuid4(), day(1), None, day(3), None, fact) == FOREIGN
    identifier = (
        "INSERT INTO memory_subjectidentifier (tenant_id, id, subject_id, digest, payload_id, is_key, created_at)"
        " SELECT tenant_id, gen_random_uuid(), %s, sha256('x'), payload_id, false, now() FROM memory_subjectidentifier"
    )
    assert refusal(doors, Role.WRITER, identifier, subject) == FOREIGN


@pytest.mark.parametrize("table", [*LEDGER, "receipt", "outboxentry", "candidatesaying"])
def test_no_role_sees_changes_or_adds_rows_of_another_tenant(strangers: Doors, attacked: Doors, table: str) -> None:
    assert attacked.sql(f"SELECT count(*) > 0 FROM memory_{table}") == [(True,)]
    for role in (Role.AGENT, Role.WRITER, Role.STAFF, Role.WORKER):
        seen = changed(strangers, role, f"SELECT 1 FROM memory_{table} WHERE tenant_id = %s", attacked.id)
        assert seen in (0, FORBIDDEN)
    moved = f"INSERT INTO memory_{table} (tenant_id, id) VALUES (%s, gen_random_uuid())"
    for role in (Role.AGENT, Role.WRITER, Role.STAFF, Role.WORKER):
        assert refusal(strangers, role, moved, attacked.id) == FORBIDDEN


@pytest.mark.parametrize("table", LEDGER)
def test_without_a_tenant_or_a_role_nothing_is_seen(attacked: Doors, login: Any, table: str) -> None:
    with pytest.raises(Exception, match=r"permission denied|does not exist"):
        login.execute(f"SELECT 1 FROM memory_{table}")
    with tenant_transaction(Role.AGENT, tenant=None, clearance=3):
        assert fetch(f"SELECT 1 FROM memory_{table}", []) == []


_UPDATES = [
    (Role.AGENT, "UPDATE memory_fact SET sensitivity = 0"),
    (Role.AGENT, "UPDATE memory_payload SET sensitivity = 0"),
    (Role.AGENT, "UPDATE memory_belief SET believed_to = now()"),
    (Role.AGENT, "INSERT INTO memory_belief (tenant_id, id) VALUES (muniment_tenant(), gen_random_uuid())"),
    (Role.AGENT, "SELECT 1 FROM memory_candidatesaying"),
    (Role.AGENT, "SELECT 1 FROM memory_receipt"),
    (Role.AGENT, "SELECT 1 FROM memory_idempotencyrecord"),
    (Role.AGENT, "SELECT 1 FROM memory_outboxentry"),
    (Role.WRITER, "UPDATE memory_fact SET value_digest = sha256('x')"),
    (Role.WRITER, "UPDATE memory_fact SET key_id = gen_random_uuid()"),
    (Role.WRITER, "UPDATE memory_fact SET redaction_state = 'none'"),
    (Role.WRITER, "UPDATE memory_payload SET purpose = 'quote'"),
    (Role.WRITER, "UPDATE policies_consent SET withdrawn_at = NULL"),
    (Role.WRITER, "UPDATE memory_receipt SET verdict = 'accept'"),
    (Role.WRITER, "UPDATE tenants_agent SET clearance = 3"),
    (Role.STAFF, "UPDATE memory_fact SET sensitivity = 0"),
    (Role.STAFF, "INSERT INTO memory_evidence (tenant_id, id) VALUES (muniment_tenant(), gen_random_uuid())"),
    (Role.WORKER, "INSERT INTO memory_evidence (tenant_id, id) VALUES (muniment_tenant(), gen_random_uuid())"),
    (Role.WORKER, "UPDATE memory_belief SET believed_to = now()"),
    (Role.FRONT, "SELECT 1 FROM memory_fact"),
    (Role.FRONT, "SELECT 1 FROM memory_payload"),
]


@pytest.mark.parametrize(("role", "statement"), _UPDATES, ids=[f"{role.name}: {text[:50]}" for role, text in _UPDATES])
def test_each_role_may_do_its_own_and_nothing_else(attacked: Doors, role: Role, statement: str) -> None:
    assert refusal(attacked, role, statement) == FORBIDDEN


def test_personal_content_is_never_stored_in_clear(doors: Doors) -> None:
    doors.say("city", "Rome", 1)
    assert doors.sql("SELECT count(*) FROM memory_payload WHERE clear IS NOT NULL") == [(0,)]
    opened = "UPDATE memory_payload SET clear = 'Rome', sealed = NULL WHERE purpose = 'value'"
    assert refusal(doors, Role.WRITER, opened) == CHECKED
    emptied = "UPDATE memory_payload SET sealed = NULL WHERE purpose = 'value'"
    assert refusal(doors, Role.WRITER, emptied) == CHECKED


def test_a_withdrawal_is_for_good_and_a_consent_is_otherwise_frozen(doors: Doors) -> None:
    doors.grant("c-1")
    doors.withdraw("c-1")
    assert refusal(doors, Role.WORKER, "UPDATE policies_consent SET withdrawn_at = NULL") == FROZEN
    assert refusal(doors, Role.WORKER, "UPDATE policies_consent SET purposes = '{}'") == FORBIDDEN
    assert refusal(doors, Role.WRITER, "UPDATE policies_consent SET lock_no = 1") == FROZEN
    assert refusal(doors, Role.WRITER, "UPDATE memory_subject SET lock_no = 1") == FORBIDDEN


def test_a_decided_candidate_needs_its_decision_and_an_equal_one_waits_once(doors: Doors) -> None:
    asked = doors.say("checked", "yes", 1)
    undecided = "UPDATE memory_candidate SET state = 'accepted' WHERE id = %s"
    assert refusal(doors, Role.WRITER, undecided, asked.candidate) == CHECKED
    again = (
        "INSERT INTO memory_candidate (tenant_id, id, subject_id, attribute_id, attribute_version_id, policy_version_id, act,"
        " target_id, state, reasons, rule, value_digest, payload_id, is_end, writer_kind, writer_id, created_at, sensitivity,"
        " basis, expires_at) SELECT tenant_id, gen_random_uuid(), subject_id, attribute_id, attribute_version_id,"
        " policy_version_id, act, target_id, state, reasons, rule, value_digest, payload_id, is_end, writer_kind, writer_id,"
        " created_at, sensitivity, basis, expires_at FROM memory_candidate"
    )
    assert refusal(doors, Role.WRITER, again) == UNIQUE


def test_evidence_keeps_its_provenance_by_checks(doors: Doors) -> None:
    doors.say("city", "Rome", 1)
    ((columns,),) = doors.sql(
        "SELECT string_agg(column_name, ', ') FROM information_schema.columns WHERE table_name = 'memory_evidence'"
        " AND column_name NOT IN ('id', 'act_no')"
    )

    def copy(**changes: str) -> str | None:
        names = columns.split(", ")
        picked = ", ".join(f"{changes[name]} AS {name}" if name in changes else name for name in names)
        return refusal(
            doors,
            Role.WRITER,
            f"INSERT INTO memory_evidence (id, act_no, {columns}) SELECT gen_random_uuid(), act_no + 1, {picked}"
            " FROM memory_evidence",
        )

    assert copy() is None
    assert copy(turn_id="NULL") == "23502"
    assert copy(source="'tool_result'") == CHECKED
    assert copy(source="'hearsay'") == CHECKED
    assert copy(basis="'consent'") == CHECKED
    assert copy(fact_id="NULL::uuid") == CHECKED
    assert copy(stated_to="valid_from") == CHECKED
    assert copy(retracted_at="now()") == CHECKED
    assert copy(fact_id=f"'{UUID(int=1)}'::uuid") == FOREIGN
