from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection

from tenants import authentication
from tenants.authentication import authenticate, recognise
from tenants.errors import Unauthenticated
from tenants.isolation import Role, tenant_transaction
from tenants.models import PLATFORM, AgentKey, AuditEvent
from tenants.registry import OPERATOR, revoke_key, rotate_key


def now() -> datetime:
    return datetime.now(UTC)


def code_of(header: str | None, at: datetime | None = None) -> str:
    with pytest.raises(Unauthenticated) as refused:
        authenticate(header, at or now())
    return refused.value.code


@pytest.fixture
def audited(database: Any) -> Any:
    """Entries of refused keys since the test began; the bound starts afresh."""
    authentication.refusals.__init__()  # type: ignore[misc]

    def entries() -> list[AuditEvent]:
        with tenant_transaction(Role.FRONT, tenant=None):
            return list(AuditEvent.objects.filter(chain=PLATFORM, action="key.refused", seq__gt=start).order_by("seq"))

    start = 0
    start = max((entry.seq for entry in entries()), default=0)
    return entries


def test_a_key_proves_its_agent_with_tenant_clearance_trust_scopes_and_purposes(tenant: Any) -> None:
    agent = tenant.agent(clearance="personal", trust=70, purposes=("support", "billing"))
    assert authenticate(f"Api-Key {agent.key}", now()) == agent.actor


def test_the_scheme_is_read_in_any_case(agent: Any) -> None:
    assert authenticate(f"api-key  {agent.key} ", now()).id == agent.actor.id


@pytest.mark.parametrize("header", [None, "", "Api-Key", "Api-Key ", "Bearer abc", "Basic YTpi"])
def test_a_missing_key_is_told_apart_and_not_audited(audited: Any, header: str | None) -> None:
    assert code_of(header) == "key_missing"
    assert audited() == []


@pytest.mark.parametrize("text", ["x", "abc.def", "é" * 20, "a" * 500, "aaaaaaaaaa." + "b" * 43, "\x00" * 20, "a" * 10])
def test_what_is_no_key_of_ours_is_unknown(audited: Any, text: str) -> None:
    assert code_of(f"Api-Key {text}") == "key_unknown"
    assert [entry.reason for entry in audited()] == ["key_unknown"]


def test_an_unknown_prefix_and_a_wrong_secret_look_the_same(agent: Any, audited: Any) -> None:
    wrong_secret = agent.key[:-1] + ("A" if agent.key[-1] != "A" else "B")
    unknown = "0000000000." + agent.key.split(".")[1]
    assert code_of(f"Api-Key {wrong_secret}") == code_of(f"Api-Key {unknown}") == "key_unknown"
    assert [entry.target_id for entry in audited()] == [agent.row.id, PLATFORM]


def test_an_expired_key_is_refused_from_that_very_instant(tenant: Any) -> None:
    ends = now() + timedelta(hours=1)
    agent = tenant.agent(expires_at=ends)
    assert authenticate(f"Api-Key {agent.key}", ends - timedelta(microseconds=1)).id == agent.actor.id
    assert code_of(f"Api-Key {agent.key}", ends) == "key_expired"


def test_a_revoked_key_is_refused_at_the_next_request(agent: Any) -> None:
    assert authenticate(f"Api-Key {agent.key}", now())
    with tenant_transaction(Role.FRONT, tenant=agent.actor.tenant):
        revoke_key(agent.row, by=OPERATOR, now=now())
    assert code_of(f"Api-Key {agent.key}") == "key_revoked"


def test_a_suspended_agent_is_refused(agent: Any, superuser: Any) -> None:
    superuser.execute("UPDATE tenants_agent SET state = 'suspended' WHERE id = %s", [agent.actor.id])
    assert code_of(f"Api-Key {agent.key}") == "key_suspended"


def test_a_suspended_tenant_is_refused(agent: Any, superuser: Any) -> None:
    superuser.execute("UPDATE tenants_tenant SET state = 'suspended' WHERE id = %s", [agent.actor.tenant])
    assert code_of(f"Api-Key {agent.key}") == "key_suspended"


def test_both_keys_work_during_the_overlap_of_a_rotation_and_the_new_one_after(agent: Any) -> None:
    began = now()
    with tenant_transaction(Role.FRONT, tenant=agent.actor.tenant):
        issued = rotate_key(agent.row, overlap=timedelta(hours=1), by=OPERATOR, now=began)
    for at in (began, began + timedelta(minutes=59)):
        assert authenticate(f"Api-Key {agent.key}", at) == authenticate(f"Api-Key {issued.text}", at)
    assert code_of(f"Api-Key {agent.key}", began + timedelta(hours=1)) == "key_expired"
    assert authenticate(f"Api-Key {issued.text}", began + timedelta(hours=1)) == agent.actor


def test_the_last_use_is_noted_at_most_once_a_minute(agent: Any) -> None:
    def noted() -> datetime | None:
        with tenant_transaction(Role.FRONT, tenant=None):
            return AgentKey.objects.get(prefix=agent.row.prefix).last_used_at

    first = now()
    assert noted() is None
    authenticate(f"Api-Key {agent.key}", first)
    authenticate(f"Api-Key {agent.key}", first + timedelta(seconds=59))
    assert noted() == first
    authenticate(f"Api-Key {agent.key}", first + timedelta(seconds=61))
    assert noted() == first + timedelta(seconds=61)


def test_a_flood_of_wrong_keys_is_audited_up_to_a_bound_and_the_rest_is_counted(audited: Any) -> None:
    began = now()
    for _ in range(authentication.AUDITED_A_MINUTE + 7):
        assert code_of("Api-Key aaaaaaaaaa.b", began) == "key_unknown"
    assert len(audited()) == authentication.AUDITED_A_MINUTE
    code_of("Api-Key aaaaaaaaaa.b", began + timedelta(minutes=1))
    assert audited()[-1].numbers == {"not_written_before": 7}


def test_a_connection_that_broke_is_opened_anew_without_an_error(agent: Any, superuser: Any) -> None:
    authenticate(f"Api-Key {agent.key}", now())
    superuser.execute("SELECT pg_terminate_backend(%s)", [connection.connection.info.backend_pid])
    assert authenticate(f"Api-Key {agent.key}", now()) == agent.actor


def test_a_key_is_looked_up_outside_every_transaction(agent: Any) -> None:
    with (
        tenant_transaction(Role.AGENT, tenant=agent.actor.tenant),
        pytest.raises(RuntimeError),
    ):
        authenticate(f"Api-Key {agent.key}", now())


def test_a_key_of_one_tenant_never_proves_another(agent: Any, other_tenant: Any) -> None:
    theirs = other_tenant.agent()
    assert authenticate(f"Api-Key {theirs.key}", now()).tenant == other_tenant.id
    mixed = f"{agent.key.split('.')[0]}.{theirs.key.split('.')[1]}"
    assert code_of(f"Api-Key {mixed}") == "key_unknown"


def test_neither_a_caller_nor_an_issued_key_prints_the_secret(agent: Any) -> None:
    secret = agent.key.split(".")[1]
    assert secret not in repr(recognise(f"Api-Key {agent.key}", now()))
