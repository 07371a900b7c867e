"""Handing out access and taking it away by the pages of a tenant's admins."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
import time_machine
from django.test import Client

from tenants.actors import MemberRole
from tenants.authentication import authenticate
from tenants.errors import Problem
from tenants.isolation import Role, tenant_transaction
from tenants.models import Agent, AgentKey, AuditEvent, Membership
from tests.organisation import Person

ACTS = ("agent/register", "agent/{agent}/key", "agentkey/{key}/rotate", "agentkey/{key}/revoke", "membership/invite")


def audited(organisation: Any, action: str) -> list[AuditEvent]:
    with tenant_transaction(Role.STAFF, tenant=organisation.id):
        return list(AuditEvent.objects.filter(chain=organisation.id, action=action).order_by("seq"))


def rows(organisation: Any, model: Any, **named: Any) -> list[Any]:
    with tenant_transaction(Role.STAFF, tenant=organisation.id):
        return list(model.objects.filter(**named))


def number_of(page: Any) -> str:
    found = re.search(r'name="number" value="([0-9a-f-]{36})"', page.content.decode())
    assert found is not None
    return found[1]


def secret_of(page: Any) -> str:
    found = re.search(r'id="secret">([^<]+)</code>', page.content.decode())
    assert found is not None, page.content
    return found[1]


def works(key: str) -> bool:
    try:
        return authenticate(f"Api-Key {key}", now=datetime.now(UTC)) is not None
    except Problem:
        return False


@pytest.fixture
def admin(tenant: Any) -> Person:
    return tenant.person(MemberRole.TENANT_ADMIN)  # type: ignore[no-any-return]


@pytest.fixture
def client(admin: Person) -> Client:
    return admin.signed_in()


def test_an_agent_is_registered_and_its_key_is_shown_once(tenant: Any, admin: Person, client: Client) -> None:
    sent = {"name": "helper", "clearance": "2", "trust": "60", "purposes": "support, travel"}
    answer = client.post("/admin/tenants/agent/register/", sent)
    (agent,) = rows(tenant, Agent, name="helper")
    assert (agent.clearance, agent.trust, agent.purposes) == (2, 60, ["support", "travel"])
    assert answer["Location"] == f"/admin/tenants/agent/{agent.id}/key/"
    asked = client.get(answer["Location"])
    form = {"number": number_of(asked), "scopes": ["read", "write"], "lives": "30"}
    shown = client.post(answer["Location"], form)
    assert shown.status_code == 200
    assert "no-store" in shown["Cache-Control"]
    key = secret_of(shown)
    assert works(key)
    (row,) = rows(tenant, AgentKey, agent_id=agent.id)
    assert row.scopes == ["read", "write"]
    assert timedelta(days=29) < row.expires_at - datetime.now(UTC) <= timedelta(days=30)
    # The same form once more issues nothing and shows nothing.
    again = client.post(answer["Location"], form)
    assert again.status_code == 409
    assert key not in again.content.decode()
    assert len(rows(tenant, AgentKey, agent_id=agent.id)) == 1
    for path in (f"/admin/tenants/agentkey/{row.id}/change/", f"/admin/tenants/agent/{agent.id}/history/", "/admin/"):
        assert key.partition(".")[2] not in client.get(path).content.decode()
    with tenant_transaction(Role.FRONT, tenant=None):
        kept = str(dict(client.session.items()))
    assert key.partition(".")[2] not in kept
    assert client.post("/admin/tenants/agent/register/", sent).status_code == 409
    assert [each.actor_id for each in audited(tenant, "agent.created") + audited(tenant, "key.issued")] == [
        admin.actor.id
    ] * 2


def test_a_key_is_rotated_with_an_overlap_and_ended_with_a_reason(tenant: Any, admin: Person, client: Client) -> None:
    agent = tenant.agent("helper")
    path = f"/admin/tenants/agentkey/{agent.row.id}"
    shown = client.post(f"{path}/rotate/", {"number": number_of(client.get(f"{path}/rotate/")), "overlap": "24"})
    new = secret_of(shown)
    assert works(new)
    assert works(agent.key)
    assert client.post(f"{path}/revoke/", {"reason": "leaked"}).status_code == 302
    assert not works(agent.key)
    assert works(new)
    (entry,) = audited(tenant, "key.revoked")
    assert (entry.actor_kind, entry.actor_id, entry.reason) == ("person", admin.actor.id, "leaked")
    assert client.post(f"{path}/revoke/", {"reason": "because I say so"}).status_code == 400
    assert client.post(f"{path}/rotate/", {"number": str(uuid4()), "overlap": "24"}).status_code == 409


@pytest.mark.parametrize(
    ("act", "sent"),
    [
        ("agent/register", {"name": "", "clearance": "2", "trust": "60"}),
        ("agent/register", {"name": "x", "clearance": "9", "trust": "60"}),
        ("agent/register", {"name": "x", "clearance": "1", "trust": "101"}),
        ("agent/register", {"name": "x", "clearance": "1", "trust": "1", "purposes": "p" * 101}),
        ("agent/{agent}/key", {"scopes": ["read"]}),
        ("agent/{agent}/key", {"number": str(uuid4()), "scopes": ["everything"]}),
        ("agent/{agent}/key", {"number": str(uuid4()), "scopes": ["read"], "lives": "9999"}),
        ("agentkey/{key}/rotate", {"number": str(uuid4()), "overlap": "-1"}),
        ("membership/invite", {"username": "no such name!", "role": "reviewer"}),
        ("membership/invite", {"username": "ada", "role": "king"}),
    ],
)
def test_what_is_not_whole_changes_nothing(tenant: Any, client: Client, act: str, sent: dict[str, Any]) -> None:
    agent = tenant.agent("helper")
    before = len(audited(tenant, "agent.created")), len(rows(tenant, AgentKey)), len(rows(tenant, Membership))
    answer = client.post(f"/admin/tenants/{act.format(agent=agent.actor.id, key=agent.row.id)}/", sent)
    assert answer.status_code in (400, 422), answer.status_code
    after = len(audited(tenant, "agent.created")), len(rows(tenant, AgentKey)), len(rows(tenant, Membership))
    assert before == after


def test_a_new_member_gets_a_password_that_is_shown_once_and_a_known_one_none(
    tenant: Any, other_tenant: Any, client: Client
) -> None:
    name = f"ada-{uuid4().hex[:8]}"
    shown = client.post("/admin/tenants/membership/invite/", {"username": name, "role": "reviewer"})
    password = secret_of(shown)
    ada = Client()
    assert ada.post("/admin/login/", {"username": name, "password": password}).status_code == 302
    assert ada.get("/admin/memory/candidate/").status_code == 200
    assert ada.get("/admin/tenants/agent/").status_code == 403
    assert client.post("/admin/tenants/membership/invite/", {"username": name, "role": "auditor"}).status_code == 302
    again = client.post("/admin/tenants/membership/invite/", {"username": name, "role": "auditor"})
    assert again.status_code == 409
    assert [each.reason for each in audited(tenant, "member.added")][-2:] == ["reviewer", "auditor"]


def test_a_role_ends_with_a_reason_and_its_history_stays(tenant: Any, admin: Person, client: Client) -> None:
    person = tenant.person(MemberRole.REVIEWER)
    (membership,) = rows(tenant, Membership, user_id=person.actor.id)
    theirs = person.signed_in()
    assert theirs.get("/admin/").status_code == 200
    path = f"/admin/tenants/membership/{membership.id}/remove/"
    assert client.post(path, {"reason": "left"}).status_code == 302
    assert theirs.get("/admin/")["Location"] == "/admin/tenant/"
    assert client.post(path, {"reason": "left"}).status_code == 404
    (entry,) = audited(tenant, "member.removed")
    assert (entry.actor_id, entry.target_id, entry.reason) == (admin.actor.id, person.actor.id, "left")
    with tenant_transaction(Role.STAFF, tenant=tenant.id):
        told = list(Membership.history.filter(id=membership.id).order_by("history_id"))
    assert [(each.history_type, each.history_change_reason) for each in told] == [
        ("+", "member.added"),
        ("-", "member.removed"),
    ]


def test_nobody_gives_a_role_to_themselves_or_ends_one_of_their_own(tenant: Any, admin: Person, client: Client) -> None:
    sent = {"username": admin.username, "role": "reviewer"}
    assert client.post("/admin/tenants/membership/invite/", sent).status_code == 403
    (own,) = rows(tenant, Membership, user_id=admin.actor.id)
    assert client.post(f"/admin/tenants/membership/{own.id}/remove/", {"reason": "left"}).status_code == 403
    assert len(rows(tenant, Membership, user_id=admin.actor.id)) == 1


def test_a_tenant_keeps_an_admin(tenant: Any, admin: Person) -> None:
    from tenants.errors import Clash
    from tenants.registry import OPERATOR, remove_member

    (own,) = rows(tenant, Membership, user_id=admin.actor.id)
    with pytest.raises(Clash, match="last_admin"), tenant_transaction(Role.FRONT, tenant=tenant.id):
        remove_member(own, by=OPERATOR, now=datetime.now(UTC), reason="left")


@pytest.mark.parametrize("role", [role for role in MemberRole if role is not MemberRole.TENANT_ADMIN])
def test_no_other_role_hands_out_anything(tenant: Any, role: MemberRole) -> None:
    agent = tenant.agent("helper")
    client = tenant.person(role).signed_in()
    (membership, *_) = rows(tenant, Membership)
    for act in (*ACTS, f"membership/{membership.id}/remove"):
        path = f"/admin/tenants/{act.format(agent=agent.actor.id, key=agent.row.id)}/"
        assert client.get(path).status_code == 403, path
        assert client.post(path, {"reason": "left"}).status_code == 403, path
    page = client.get("/admin/tenants/agent/")
    assert page.status_code == 403 or "Register an agent" not in page.content.decode()


def test_nothing_of_another_tenant_is_reached(tenant: Any, other_tenant: Any, client: Client) -> None:
    theirs = other_tenant.agent("helper")
    other_tenant.person(MemberRole.REVIEWER)
    (membership,) = rows(other_tenant, Membership)
    for act in (*ACTS[1:4], f"membership/{membership.id}/remove"):
        path = f"/admin/tenants/{act.format(agent=theirs.actor.id, key=theirs.row.id)}/"
        assert client.get(path).status_code == 404, path
        assert client.post(path, {"reason": "left"}).status_code == 404, path
    assert works(theirs.key)
    assert len(rows(other_tenant, Membership)) == 1


def test_whoever_signed_in_a_while_ago_shows_first_that_it_is_them(tenant: Any, admin: Person) -> None:
    agent = tenant.agent("helper")
    path = f"/admin/tenants/agentkey/{agent.row.id}/revoke/"
    with time_machine.travel(datetime.now(UTC), tick=False) as clock:
        client = admin.signed_in()
        clock.shift(11 * 60)
        asked = client.post(path, {"reason": "leaked"})
        assert (asked.status_code, asked["Location"].partition("?")[0]) == (302, "/admin/again/")
        assert not audited(tenant, "key.revoked")
        assert client.post(asked["Location"], {"password": "wrong-wrong-wrong"}).status_code == 200
        back = client.post(asked["Location"], {"password": admin.password})
        assert (back.status_code, back["Location"]) == (302, path)
        # Nothing was sent by itself.
        assert not audited(tenant, "key.revoked")
        assert client.post(path, {"reason": "leaked"}).status_code == 302
        assert [each.reason for each in audited(tenant, "key.revoked")] == ["leaked"]
        assert client.get(path).status_code == 200
    assert not works(agent.key)
