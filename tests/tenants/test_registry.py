import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from tenants import secrets
from tenants.actors import Actor, ActorKind, MemberRole, Scope
from tenants.audit import PLATFORM
from tenants.errors import Clash, Missing, Problem, Refused
from tenants.isolation import Role, Rollback, tenant_transaction
from tenants.keyring import KeyUnavailable
from tenants.models import Agent, AgentKey, AuditEvent, Membership, Tenant, User
from tenants.registry import (
    OPERATOR,
    create_agent,
    create_member,
    create_tenant,
    issue_key,
    key_digest,
    key_of_prefix,
    revoke_key,
    rotate_key,
    tenant_named,
)
from tests.organisation import PASSWORD

pytestmark = pytest.mark.usefixtures("database")
NOW = datetime(2026, 6, 1, 9, tzinfo=UTC)


def slug() -> str:
    return f"r-{uuid4().hex[:12]}"


def made(name: str, by: Actor = OPERATOR) -> Tenant:
    with tenant_transaction(Role.FRONT, tenant=None):
        return create_tenant(name, by=by, now=NOW)


def entries(chain: Any) -> list[tuple[str, Any, str]]:
    with tenant_transaction(Role.FRONT, tenant=None):
        return list(AuditEvent.objects.filter(chain=chain).order_by("seq").values_list("action", "target_id", "reason"))


def refused(act: Callable[[], Any], tenant: Any = None) -> Problem:
    with pytest.raises(Problem) as found, tenant_transaction(Role.FRONT, tenant=tenant):
        act()
    return found.value


def test_a_tenant_is_created_with_keys_history_and_the_first_entry_of_its_chain() -> None:
    tenant = made(slug())
    assert entries(tenant.id) == [("tenant.created", tenant.id, "none")]
    assert entries(PLATFORM)[-1] == ("tenant.created", tenant.id, "none")
    assert secrets.provider().tenant_key(tenant.id)[0] == 1
    with tenant_transaction(Role.FRONT, tenant=None):
        past = Tenant.history.get(id=tenant.id)
        assert tenant_named(tenant.slug) == tenant
    assert (past.history_change_reason, past.history_date, past.history_user_id) == ("tenant.created", NOW, None)


def test_a_slug_is_taken_once() -> None:
    name = slug()
    made(name)
    assert refused(lambda: create_tenant(name, by=OPERATOR, now=NOW)).code == "slug_taken"


@pytest.mark.parametrize("name", ["", "A", "a b", "-a", "a-", "ä", "a" * 64, "a\n", "a;drop"])
def test_a_slug_out_of_shape_is_refused_without_being_repeated(name: str) -> None:
    problem = refused(lambda: create_tenant(name, by=OPERATOR, now=NOW))
    assert isinstance(problem, Refused)
    assert [(error.path, error.code) for error in problem.errors] == [("slug", "out_of_bounds")]
    assert len(name) < 3 or name not in repr(problem) + str(problem)


def test_a_tenant_whose_keys_cannot_be_kept_is_not_created(monkeypatch: pytest.MonkeyPatch) -> None:
    name = slug()

    def fails(_tenant: Any) -> None:
        raise KeyUnavailable("unreadable")

    monkeypatch.setattr(type(secrets.provider()), "create_tenant", lambda _self, tenant: fails(tenant))
    with pytest.raises(KeyUnavailable):
        made(name)
    assert isinstance(refused(lambda: tenant_named(name)), Missing)


def test_a_tenant_rolled_back_leaves_nothing() -> None:
    name = slug()
    before = entries(PLATFORM)
    with tenant_transaction(Role.FRONT, tenant=None):
        create_tenant(name, by=OPERATOR, now=NOW)
        raise Rollback
    assert isinstance(refused(lambda: tenant_named(name)), Missing)
    assert entries(PLATFORM) == before


def test_an_agent_is_registered_with_history_and_audit(tenant: Any) -> None:
    with tenant_transaction(Role.FRONT, tenant=tenant.id):
        agent = create_agent(tenant.id, "bot", clearance=2, trust=9, purposes=("b", "a", "b"), by=OPERATOR, now=NOW)
    with tenant_transaction(Role.STAFF, tenant=tenant.id):
        stored = Agent.objects.get(id=agent.id)
        past = Agent.history.get(id=agent.id)
    assert (stored.clearance, stored.trust, stored.purposes, stored.state) == (2, 9, ["a", "b"], "active")
    assert past.history_change_reason == "agent.created"
    assert entries(tenant.id)[-1] == ("agent.created", agent.id, "none")


@pytest.mark.parametrize(
    "odd", [{"clearance": 4}, {"clearance": -1}, {"trust": 101}, {"trust": 99999}, {"name": ""}, {"name": "x" * 101}]
)
def test_an_agent_out_of_bounds_is_refused(tenant: Any, odd: dict[str, Any]) -> None:
    fields = {"name": "bot", "clearance": 1, **odd}
    name = fields.pop("name")
    problem = refused(lambda: create_agent(tenant.id, name, by=OPERATOR, now=NOW, **fields), tenant.id)
    assert problem.code == "agent_refused"


def test_two_agents_of_a_tenant_have_different_names_and_of_two_tenants_need_not(
    tenant: Any, other_tenant: Any
) -> None:
    tenant.agent("bot")
    other_tenant.agent("bot")
    problem = refused(lambda: create_agent(tenant.id, "bot", clearance=1, by=OPERATOR, now=NOW), tenant.id)
    assert (type(problem), problem.code) == (Clash, "name_taken")


def test_staff_registers_agents_in_the_own_tenant_with_their_name_in_history(tenant: Any) -> None:
    person = tenant.person(MemberRole.TENANT_ADMIN).actor
    with tenant_transaction(Role.STAFF, tenant=tenant.id):
        agent = create_agent(tenant.id, "by-staff", clearance=1, by=person, now=NOW)
        issued = issue_key(agent, scopes=[Scope.READ], by=person, now=NOW)
        revoke_key(issued.key, by=person, now=NOW)
        past = Agent.history.get(id=agent.id)
    assert past.history_user_id == person.id


def test_staff_cannot_register_an_agent_in_another_tenant(tenant: Any, other_tenant: Any) -> None:
    person = tenant.person(MemberRole.TENANT_ADMIN).actor
    with pytest.raises(Exception, match="row-level security"), tenant_transaction(Role.STAFF, tenant=tenant.id):
        create_agent(other_tenant.id, "intruder", clearance=1, by=person, now=NOW)


def test_a_key_is_random_kept_as_a_digest_and_printed_never(tenant: Any) -> None:
    agent = tenant.agent()
    prefix, _, secret = agent.key.partition(".")
    assert re.fullmatch(r"[a-z2-9]{10}", prefix)
    assert len(secret) == 43
    with tenant_transaction(Role.FRONT, tenant=None):
        key = key_of_prefix(prefix)
    assert bytes(key.digest) == key_digest(agent.key)
    assert secret not in repr(vars(key)) + repr(key) + str(key)
    assert tenant.agent().key != agent.key


def test_a_key_needs_a_scope_and_a_future(agent: Any) -> None:
    row = Agent(id=agent.actor.id, tenant_id=agent.actor.tenant)
    nothing = refused(lambda: issue_key(row, scopes=[], by=OPERATOR, now=NOW), agent.actor.tenant)
    past = refused(
        lambda: issue_key(row, scopes=[Scope.READ], by=OPERATOR, now=NOW, expires_at=NOW), agent.actor.tenant
    )
    assert (nothing.code, past.code) == ("key_refused", "key_refused")


def test_rotating_keeps_scopes_and_lifetime_and_ends_the_old_key_after_the_overlap(tenant: Any) -> None:
    now = datetime.now(UTC)
    agent = tenant.agent(scopes=frozenset({Scope.READ}), expires_at=now + timedelta(days=90))
    later = now + timedelta(days=30)
    with tenant_transaction(Role.FRONT, tenant=tenant.id):
        issued = rotate_key(agent.row, overlap=timedelta(hours=2), by=OPERATOR, now=later)
        old = AgentKey.objects.get(id=agent.row.id)
    assert old.expires_at == later + timedelta(hours=2)
    assert issued.key.scopes == ["read"]
    assert issued.key.expires_at is not None
    assert abs(issued.key.expires_at - (later + timedelta(days=90))) < timedelta(seconds=5)
    assert [action for action, _, _ in entries(tenant.id)][-2:] == ["key.rotated", "key.issued"]


def test_an_overlap_never_lengthens_a_keys_life(tenant: Any) -> None:
    ends = datetime.now(UTC) + timedelta(minutes=5)
    agent = tenant.agent(expires_at=ends)
    with tenant_transaction(Role.FRONT, tenant=tenant.id):
        rotate_key(agent.row, overlap=timedelta(days=1), by=OPERATOR, now=datetime.now(UTC))
        assert AgentKey.objects.get(id=agent.row.id).expires_at == ends


def test_a_key_that_has_ended_is_not_rotated(tenant: Any) -> None:
    expired = tenant.agent(expires_at=datetime.now(UTC) + timedelta(seconds=5))
    later = datetime.now(UTC) + timedelta(seconds=10)
    late = refused(lambda: rotate_key(expired.row, overlap=timedelta(), by=OPERATOR, now=later), tenant.id)
    revoked = tenant.agent()
    with tenant_transaction(Role.FRONT, tenant=tenant.id):
        revoke_key(revoked.row, by=OPERATOR, now=NOW)
    gone = refused(lambda: rotate_key(revoked.row, overlap=timedelta(), by=OPERATOR, now=NOW), tenant.id)
    odd = refused(lambda: rotate_key(revoked.row, overlap=timedelta(hours=-1), by=OPERATOR, now=NOW), tenant.id)
    assert (late.code, gone.code, odd.code) == ("key_expired", "key_revoked", "key_refused")


def test_revoking_twice_keeps_the_first_instant_and_one_entry(agent: Any) -> None:
    for minute in (0, 5):
        with tenant_transaction(Role.FRONT, tenant=agent.actor.tenant):
            revoke_key(agent.row, by=OPERATOR, now=NOW + timedelta(minutes=minute))
            assert AgentKey.objects.get(id=agent.row.id).revoked_at == NOW
    assert [action for action, _, _ in entries(agent.actor.tenant)].count("key.revoked") == 1


def test_a_member_is_made_with_a_user_and_gets_further_roles_without_a_password(tenant: Any) -> None:
    name = f"rita-{uuid4().hex[:6]}"
    with tenant_transaction(Role.FRONT, tenant=tenant.id):
        first = create_member(tenant.id, name, MemberRole.REVIEWER, by=OPERATOR, now=NOW, password=PASSWORD)
        second = create_member(tenant.id, name, MemberRole.AUDITOR, by=OPERATOR, now=NOW)
        user = User.objects.get(username=name)
        past = Membership.history.filter(user_id=user.id).values_list("history_change_reason", flat=True)
        assert list(past) == ["member.added", "member.added"]
    assert (first.user_created, second.user_created) == (True, False)
    assert user.check_password(PASSWORD)
    assert (user.is_staff, user.is_superuser) == (True, False)
    assert [(action, reason) for action, _, reason in entries(tenant.id)][-2:] == [
        ("member.added", "reviewer"),
        ("member.added", "auditor"),
    ]


@pytest.mark.parametrize(
    ("name", "password", "code"),
    [
        (None, "short", "too_weak"),
        (None, None, "required"),
        ("no user name", PASSWORD, "not_a_username"),
        ("x" * 151, PASSWORD, "out_of_bounds"),
    ],
)
def test_a_user_needs_a_name_and_a_password_that_hold(tenant: Any, name: Any, password: Any, code: str) -> None:
    name = name or f"u-{uuid4().hex[:6]}"
    problem = refused(
        lambda: create_member(tenant.id, name, MemberRole.REVIEWER, by=OPERATOR, now=NOW, password=password), tenant.id
    )
    assert [error.code for error in problem.errors] == [code]


def test_the_password_of_somebody_who_exists_is_not_replaced(tenant: Any) -> None:
    person = tenant.person(MemberRole.REVIEWER)
    again = refused(
        lambda: create_member(
            tenant.id, person.username, MemberRole.AUDITOR, by=OPERATOR, now=NOW, password="another-pass-phrase"
        ),
        tenant.id,
    )
    twice = refused(
        lambda: create_member(tenant.id, person.username, MemberRole.REVIEWER, by=OPERATOR, now=NOW), tenant.id
    )
    assert (again.code, twice.code) == ("user_exists", "role_taken")


def test_an_act_without_its_audit_entry_does_not_happen(tenant: Any) -> None:
    stranger = Actor(kind=ActorKind.OPERATOR, id=PLATFORM, tenant=PLATFORM)
    with pytest.raises(Exception, match="another chain"), tenant_transaction(Role.FRONT, tenant=None):
        create_agent(tenant.id, "unaudited", clearance=1, by=stranger, now=NOW)
    with tenant_transaction(Role.STAFF, tenant=tenant.id):
        assert not Agent.objects.filter(name="unaudited").exists()
