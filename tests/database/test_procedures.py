"""Procedures against raw SQL: what no role may do, whoever is in the transaction."""

from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import connection

from memory.models import ProcedureVersion
from policies.approvals import Answer
from tenants.actors import MemberRole
from tenants.isolation import Role, tenant_transaction
from tests.memory.procedure_doors import Procedures, now, refused

CHECKED, UNIQUE, FOREIGN = "23514", "23505", "23503"
FROZEN, FORBIDDEN = "23001", "42501"

DECIDE = (
    "INSERT INTO policies_decision (tenant_id, id, request_id, requested_by, digest, verdict, reason, decided_by, decided_at)"
    " VALUES (%s, %s, %s, %s, %s, 'approve', 'other', %s, now())"
)
MOVE = "UPDATE memory_procedureversion SET state = %s WHERE id = %s"
READ = (
    "SELECT v.state, v.id FROM memory_procedureversion v",
    "SELECT p.id FROM memory_payload p WHERE p.purpose = 'procedure'",
    "SELECT q.id FROM memory_procedure q",
)


@pytest.fixture
def procedures(tenant: Any) -> Procedures:
    return Procedures(tenant)


def staff(procedures: Procedures, who: Any, *statements: tuple[str, tuple[Any, ...]]) -> str | None:
    return refused(Role.STAFF, procedures.id, None if who is None else procedures.actor(who).id, *statements)


def decided(procedures: Procedures, version: UUID, who: Any, *, named: UUID | None = None) -> str | None:
    """Try to decide with raw SQL of the staff role; return how that is refused."""
    request = procedures.request(version)
    actor = procedures.actor(who).id
    given = (procedures.id, uuid4(), request.id, request.requested_by, bytes(request.digest), named or actor)
    return staff(
        procedures,
        who,
        (DECIDE, given),
        ("UPDATE policies_decisionrequest SET state = 'approved' WHERE id = %s", (request.id,)),
    )


# what an agent sees ---------------------------------------------------------------------------------------------------


def test_an_agent_sees_no_row_and_no_text_of_what_is_not_active(procedures: Procedures) -> None:
    """By raw SQL of the agent's role, in every state that is not `active`."""
    versions = {"draft": procedures.propose("1").version, "refused": procedures.propose("2").version}
    procedures.decide(versions["draft"], Answer.RETURN)
    procedures.decide(versions["refused"], Answer.REFUSE)
    versions["proposed"] = procedures.propose("3").version
    versions["approved"] = procedures.propose("4").version
    procedures.decide(versions["approved"])
    assert {name: procedures.state(version) for name, version in versions.items()} == {name: name for name in versions}
    assert seen(procedures) == [[], [], []]
    retired = procedures.promoted("5")
    active = procedures.promoted("6")
    assert procedures.state(retired) == "retired"
    rows, payloads, names = seen(procedures)
    assert rows == [("active", active)]
    assert payloads == [(procedures.version(active).payload_id,)]
    assert len(names) == 1
    with pytest.raises(Exception, match="permission denied"), reading(procedures), connection.cursor() as cursor:
        cursor.execute("SELECT * FROM memory_historicalprocedureversion")
    with pytest.raises(Exception, match="permission denied"), reading(procedures), connection.cursor() as cursor:
        cursor.execute("SELECT * FROM memory_procedureevidence")


def test_an_agent_sees_nothing_that_is_for_another_agent(procedures: Procedures) -> None:
    procedures.promoted("Mine.", scope="agent:concierge")
    other = procedures.organisation.agent("other")
    assert [len(each) for each in seen(procedures)] == [1, 1, 1]
    assert seen(procedures, other) == [[], [], []]


def test_another_tenants_agent_sees_nothing(procedures: Procedures, other_tenant: Any) -> None:
    procedures.promoted()
    with tenant_transaction(Role.AGENT, tenant=other_tenant.id, clearance=3), connection.cursor() as cursor:
        for statement in READ:
            cursor.execute(statement)
            assert cursor.fetchall() == []


def reading(procedures: Procedures, agent: Any = None) -> Any:
    actor = (agent or procedures.agent).actor
    return tenant_transaction(Role.AGENT, tenant=procedures.id, clearance=3, actor=actor.id)


def seen(procedures: Procedures, agent: Any = None) -> list[list[tuple[Any, ...]]]:
    found = []
    with reading(procedures, agent), connection.cursor() as cursor:
        for statement in READ:
            cursor.execute(statement)
            found.append(cursor.fetchall())
    return found


@pytest.mark.parametrize("role", [Role.AGENT, Role.WRITER, Role.WORKER, Role.FRONT])
def test_no_role_but_the_members_moves_a_version(procedures: Procedures, role: Role) -> None:
    version = procedures.propose().version
    procedures.decide(version)
    for actor in (procedures.agent.actor.id, procedures.approver.actor.id, None):
        assert refused(role, procedures.id, actor, (MOVE, ("active", version))) == FORBIDDEN
    insert = "INSERT INTO memory_procedureversion SELECT (v).* FROM (SELECT v FROM memory_procedureversion v) x"
    assert refused(role, procedures.id, procedures.agent.actor.id, (insert, ())) == FORBIDDEN


def test_the_background_work_marks_what_became_of_a_text_and_moves_nothing(procedures: Procedures) -> None:
    version = procedures.promoted()
    mark = "UPDATE memory_procedureversion SET redaction_state = 'required' WHERE id = %s"
    assert refused(Role.WORKER, procedures.id, None, (mark, (version,))) is None
    assert refused(Role.WORKER, procedures.id, None, (MOVE, ("retired", version))) == FORBIDDEN


# who decides ----------------------------------------------------------------------------------------------------------


def test_the_proposer_approves_nothing_under_any_name(procedures: Procedures) -> None:
    version = procedures.propose(by=procedures.approver).version
    assert decided(procedures, version, procedures.approver) == CHECKED
    assert decided(procedures, version, procedures.approver, named=procedures.other.actor.id) == CHECKED
    assert decided(procedures, version, procedures.other) is None


def test_an_agent_decides_on_nothing(procedures: Procedures) -> None:
    version = procedures.propose(by=procedures.reviewer).version
    assert decided(procedures, version, procedures.agent) == FORBIDDEN
    assert decided(procedures, procedures.propose("Own.").version, procedures.agent) == CHECKED


def test_whoever_answers_for_an_agent_decides_on_nothing_that_it_proposes(procedures: Procedures) -> None:
    from tenants.actors import Actor, ActorKind, Scope
    from tenants.registry import create_agent, issue_key

    with procedures.acting(procedures.approver) as actor:
        agent = create_agent(procedures.id, "mine", clearance=1, by=actor, now=now())
    with procedures.acting(procedures.other) as actor:
        issue_key(agent, scopes=[Scope.PROPOSE], expires_at=None, by=actor, now=now())
    mine = Actor(
        kind=ActorKind.AGENT, id=agent.id, tenant=procedures.id, clearance=1, scopes=frozenset({Scope.PROPOSE})
    )
    version = procedures.propose(by=mine).version
    assert decided(procedures, version, procedures.approver) == FORBIDDEN
    assert decided(procedures, version, procedures.other) == FORBIDDEN
    assert decided(procedures, version, procedures.organisation.person(MemberRole.APPROVER)) is None


def test_a_superuser_without_membership_decides_on_nothing(procedures: Procedures) -> None:
    version = procedures.propose().version
    request = procedures.request(version)
    nobody = uuid4()
    given = (procedures.id, uuid4(), request.id, request.requested_by, bytes(request.digest), nobody)
    assert refused(Role.STAFF, procedures.id, nobody, (DECIDE, given)) == FORBIDDEN


def test_an_agent_asks_for_nothing_but_a_procedure_and_only_with_a_key_for_it(procedures: Procedures) -> None:
    ask = (
        "INSERT INTO policies_decisionrequest (tenant_id, id, act, target_kind, target_id, digest, reason, requested_by,"
        " requested_at, expires_at) VALUES (%s, %s, %s, 'subject', %s, sha256('x'), 'other', %s, now(), now() + interval '1 day')"
    )
    from tenants.actors import Scope

    weak = procedures.organisation.agent(scopes=frozenset({Scope.READ, Scope.WRITE}))

    def asked(agent: Any, act: str) -> str | None:
        given = (procedures.id, uuid4(), act, uuid4(), agent.actor.id)
        return staff(procedures, agent, (ask, given))

    assert asked(procedures.agent, "procedure.promote") is None
    assert asked(weak, "procedure.promote") == FORBIDDEN
    for act in ("attribute.publish", "policy.publish", "class.lower", "hold.release", "subject.erase"):
        assert asked(procedures.agent, act) == FORBIDDEN


# the way of a version -------------------------------------------------------------------------------------------------


def test_no_step_is_taken_without_what_carries_it(procedures: Procedures) -> None:
    """An approver, by raw SQL, moves no version to where nothing has led it."""
    steps = {
        "proposed": ("approved", "active", "retired", "refused", "draft"),
        "approved": ("active", "retired", "refused", "draft", "proposed"),
        "refused": ("draft", "proposed", "approved", "active", "retired"),
        "draft": ("proposed", "approved", "active", "retired", "refused"),
        "retired": ("draft", "proposed", "approved", "active", "refused"),
        "active": ("draft", "proposed", "approved", "refused"),
    }
    versions = {"retired": procedures.promoted("0"), "active": procedures.promoted("1")}
    for name, answer in (
        ("proposed", None),
        ("approved", Answer.APPROVE),
        ("refused", Answer.REFUSE),
        ("draft", Answer.RETURN),
    ):
        versions[name] = procedures.propose(name).version
        if answer is not None:
            procedures.decide(versions[name], answer)
    for name, others in steps.items():
        assert procedures.state(versions[name]) == name
        for state in others:
            got = staff(procedures, procedures.other, (MOVE, (state, versions[name])))
            assert got in (FROZEN, CHECKED, UNIQUE), (name, state, got)


def test_a_version_is_taken_back_only_with_what_comes_in_its_place(procedures: Procedures) -> None:
    procedures.promoted("First.")
    second = procedures.promoted("Second.")
    retire = "UPDATE memory_procedureversion SET state = 'retired', retired_because = %s WHERE id = %s"
    assert staff(procedures, procedures.other, (retire, ("replaced", second))) == FROZEN
    assert staff(procedures, procedures.other, (retire, ("rolled_back", second))) == FROZEN
    assert staff(procedures, procedures.other, (retire, ("deactivated", second))) is None
    assert staff(procedures, procedures.reviewer, (retire, ("deactivated", second))) == FORBIDDEN
    assert staff(procedures, procedures.agent, (retire, ("deactivated", second))) == FORBIDDEN
    assert staff(procedures, None, (retire, ("deactivated", second))) == FORBIDDEN


def test_one_version_is_active_in_a_scope(procedures: Procedures, database: Any) -> None:
    import psycopg

    if not database.superuser:
        pytest.skip("needs a superuser's session")
    procedures.promoted("First.")
    second = procedures.propose("Second.").version
    force = "UPDATE memory_procedureversion SET state = 'active', activated_at = now(), activated_by = proposed_by WHERE id = %s"
    with psycopg.connect(database.superuser, autocommit=True) as session:
        session.execute("SET session_replication_role = replica")
        with pytest.raises(psycopg.errors.UniqueViolation):
            session.execute(force, [second])


def test_a_version_never_changes_and_is_never_removed(procedures: Procedures) -> None:
    version = procedures.promoted()
    for column, value in (
        ("scope", "'tenant'"),
        ("digest", "sha256('y')"),
        ("number", "7"),
        ("test_result", "'failed'"),
    ):
        statement = f"UPDATE memory_procedureversion SET {column} = {value} WHERE id = %s"
        assert staff(procedures, procedures.other, (statement, (version,))) == FORBIDDEN, column
    for table in ("memory_procedureversion", "memory_procedure", "memory_procedureevidence"):
        assert staff(procedures, procedures.other, (f"DELETE FROM {table}", ())) == FORBIDDEN
    with procedures.acting(procedures.other):
        assert ProcedureVersion.objects.count() == 1


def test_who_proposed_is_the_transactions_own(procedures: Procedures) -> None:
    version = procedures.propose().version
    copy = (
        "INSERT INTO memory_procedureversion (tenant_id, id, sensitivity, basis, number, scope, scope_rank, body_digest, digest,"
        " state, proposed_by_kind, proposed_by, created_at, procedure_id, payload_id, test_kind, test_reference, test_result)"
        " SELECT tenant_id, %s, sensitivity, basis, 99 + (SELECT count(*) FROM memory_procedureversion), scope, scope_rank, body_digest, digest, 'approved', 'person', %s, now(),"
        " procedure_id, payload_id, test_kind, test_reference, test_result FROM memory_procedureversion WHERE id = %s"
    )
    made = uuid4()
    with procedures.acting(procedures.reviewer), connection.cursor() as cursor:
        cursor.execute(copy, [made, procedures.other.actor.id, version])
    stored = procedures.version(made)
    assert (stored.state, stored.proposed_by, stored.proposed_by_kind) == (
        "draft",
        procedures.reviewer.actor.id,
        "person",
    )
    auditor = procedures.organisation.person(MemberRole.AUDITOR)
    assert staff(procedures, auditor, (copy, (uuid4(), auditor.actor.id, version))) == FORBIDDEN


def test_what_is_restricted_or_in_clear_or_without_a_way_back_is_no_procedure(
    procedures: Procedures, owner: Any
) -> None:
    version = procedures.promoted()
    insert = (
        "INSERT INTO memory_procedureversion (tenant_id, id, sensitivity, basis, number, scope, scope_rank, body_digest, digest,"
        " proposed_by_kind, proposed_by, created_at, procedure_id, payload_id, base_id)"
        " SELECT tenant_id, %s, {sensitivity}, basis, 98, {scope}, 0, body_digest, digest, 'person', proposed_by, now(),"
        " procedure_id, payload_id, {base} FROM memory_procedureversion WHERE id = %s"
    )
    given = {"sensitivity": "sensitivity", "scope": "scope", "base": "NULL"}
    for changed, state in (
        ({"sensitivity": "3"}, CHECKED),
        ({"scope": "'agent:concierge'"}, CHECKED),
        ({"base": "id"}, CHECKED),
    ):
        statement = insert.format(**{**given, **changed})
        assert staff(procedures, procedures.reviewer, (statement, (uuid4(), version))) == state, changed
    clear = (
        "INSERT INTO memory_payload (tenant_id, id, purpose, clear, sensitivity, basis, written_at)"
        " VALUES (%s, %s, 'procedure', 'x', 1, 'indefinite', now())"
    )
    assert refused(Role.WRITER, procedures.id, None, (clear, (procedures.id, uuid4()))) == CHECKED
