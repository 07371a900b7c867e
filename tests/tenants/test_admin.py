import re
from typing import Any
from uuid import uuid4

import pytest
from django.contrib import admin
from django.test import Client
from django.urls import reverse

from tenants.actors import MemberRole
from tenants.isolation import Role, tenant_transaction
from tenants.models import PLATFORM, Agent, AgentKey, AuditEvent, Membership, User
from tests.organisation import PASSWORD

MODELS = ["tenant", "agent", "agentkey", "membership", "user", "auditevent"]


def platform_entries(action: str) -> list[AuditEvent]:
    with tenant_transaction(Role.FRONT, tenant=None):
        return list(AuditEvent.objects.filter(chain=PLATFORM, action=action).order_by("-seq")[:5])


@pytest.fixture
def operator(database: Any, owner: Any) -> Client:
    """A superuser who is a member of no tenant."""
    user = User(username=f"operator-{uuid4().hex[:8]}", is_staff=True, is_superuser=True)
    user.set_password(PASSWORD)
    with tenant_transaction(Role.FRONT, tenant=None):
        user.save(force_insert=True)
    client = Client()
    assert client.post("/admin/login/", {"username": user.username, "password": PASSWORD}).status_code == 302
    return client


def test_a_member_signs_in_and_out_and_both_are_audited_by_id(tenant: Any) -> None:
    person = tenant.person(MemberRole.AUDITOR)
    client = person.signed_in()
    assert platform_entries("session.signed_in")[0].actor_id == person.actor.id
    assert client.get("/admin/").status_code == 200
    assert client.post("/admin/logout/").status_code in (200, 302)
    assert platform_entries("session.signed_out")[0].actor_id == person.actor.id
    assert client.get("/admin/").status_code == 302


def test_a_failed_sign_in_is_audited_without_a_name(tenant: Any) -> None:
    person = tenant.person(MemberRole.AUDITOR)
    before = platform_entries("session.sign_in_failed")
    answer = Client().post("/admin/login/", {"username": person.username, "password": "wrong-wrong-wrong"})
    assert answer.status_code == 200
    newest = platform_entries("session.sign_in_failed")[0]
    assert [newest.seq] != [entry.seq for entry in before[:1]]
    assert newest.actor_id == newest.target_id == PLATFORM


@pytest.mark.parametrize("model", MODELS)
def test_an_auditor_sees_lists_and_rows_of_the_own_tenant_only(tenant: Any, other_tenant: Any, model: str) -> None:
    tenant.agent("ours")
    other_tenant.agent("theirs")
    client = tenant.person(MemberRole.AUDITOR).signed_in()
    answer = client.get(f"/admin/tenants/{model}/")
    if model == "user":
        assert answer.status_code == 403
        return
    assert answer.status_code == 200
    text = answer.content.decode()
    assert "theirs" not in text
    assert other_tenant.slug not in text
    assert not any(re.search(rf"\b{row}\b", text) for row in _ids_of(other_tenant))
    row = re.search(rf"/admin/tenants/{model}/([0-9a-f-]{{36}})/change/", text)
    assert row is not None
    assert client.get(row[0]).status_code == 200


def _ids_of(organisation: Any) -> list[str]:
    with tenant_transaction(Role.STAFF, tenant=organisation.id):
        rows = [*AgentKey.objects.values_list("prefix", flat=True), *Membership.objects.values_list("id", flat=True)]
    return [str(row) for row in rows]


def test_a_row_of_another_tenant_looks_like_one_that_is_not_there(tenant: Any, other_tenant: Any) -> None:
    client = tenant.person(MemberRole.AUDITOR).signed_in()
    theirs = client.get(f"/admin/tenants/agent/{other_tenant.agent().actor.id}/change/")
    nobodys = client.get(f"/admin/tenants/agent/{uuid4()}/change/")
    assert theirs.status_code == nobodys.status_code == 302


def test_a_reviewer_sees_neither_keys_nor_the_chain(tenant: Any) -> None:
    client = tenant.person(MemberRole.REVIEWER).signed_in()
    assert {client.get(f"/admin/tenants/{model}/").status_code for model in MODELS} == {403}


def test_an_operator_sees_tenants_users_and_the_platform_chain_and_no_tenants_rows(
    tenant: Any, operator: Client
) -> None:
    tenant.agent()
    seen = {model: operator.get(f"/admin/tenants/{model}/").status_code for model in MODELS}
    assert {model for model, status in seen.items() if status == 200} == {"tenant", "user", "auditevent"}
    assert set(seen.values()) == {200, 403}
    with tenant_transaction(Role.STAFF, tenant=tenant.id):
        entry = AuditEvent.objects.filter(chain=tenant.id).first()
    assert entry is not None
    assert operator.get(f"/admin/tenants/auditevent/{entry.id}/change/").status_code == 302


def test_somebody_without_a_tenant_gets_no_further_than_the_choice(database: Any) -> None:
    user = User(username=f"lost-{uuid4().hex[:8]}", is_staff=True)
    user.set_password(PASSWORD)
    with tenant_transaction(Role.FRONT, tenant=None):
        user.save(force_insert=True)
    client = Client()
    client.post("/admin/login/", {"username": user.username, "password": PASSWORD})
    for path in ("/admin/", "/admin/tenants/tenant/", "/admin/tenants/user/", "/admin/password_change/"):
        answer = client.get(path)
        assert (answer.status_code, answer["Location"]) == (302, "/admin/tenant/")
    assert client.get("/admin/tenant/").status_code == 200


def test_a_member_of_two_tenants_sees_one_after_choosing_it(tenant: Any, other_tenant: Any) -> None:
    from datetime import UTC, datetime

    from tenants.registry import OPERATOR, create_member

    tenant.agent("ours")
    other_tenant.agent("theirs")
    person = tenant.person(MemberRole.AUDITOR)
    with tenant_transaction(Role.FRONT, tenant=other_tenant.id):
        create_member(other_tenant.id, person.username, MemberRole.AUDITOR, by=OPERATOR, now=datetime.now(UTC))
    client = person.signed_in()
    assert client.get("/admin/tenants/agent/")["Location"] == "/admin/tenant/"
    assert client.post("/admin/tenant/", {"tenant": str(uuid4())}).status_code == 200
    assert client.get("/admin/tenants/agent/")["Location"] == "/admin/tenant/"
    for chosen, seen, unseen in ((tenant, "ours", "theirs"), (other_tenant, "theirs", "ours")):
        assert client.post("/admin/tenant/", {"tenant": str(chosen.id)}).status_code == 302
        text = client.get("/admin/tenants/agent/").content.decode()
        assert f">{seen}<" in text.replace("\n", "").replace(" ", "")
        assert f">{unseen}<" not in text.replace("\n", "").replace(" ", "")


def test_nobody_adds_changes_or_deletes_by_any_url_of_the_admin(tenant: Any, operator: Client) -> None:
    agent = tenant.agent()
    everyone = tenant.person(*MemberRole).signed_in()
    for client in (everyone, operator):
        for model in MODELS:
            for path in (
                "add/",
                f"{agent.actor.id}/change/",
                f"{agent.actor.id}/delete/",
                f"{agent.actor.id}/history/",
                f"{agent.actor.id}/history/1/",
                "",
            ):
                answer = client.post(
                    f"/admin/tenants/{model}/{path}",
                    {"action": "delete_selected", "_selected_action": str(agent.actor.id), "name": "x"},
                )
                assert answer.status_code in (302, 403, 404, 405), (model, path, answer.status_code)
                if answer.status_code == 302:
                    assert answer["Location"] == "/admin/" or answer["Location"].endswith("/change/")
            for path in ("add/", f"{agent.actor.id}/delete/"):
                assert client.get(f"/admin/tenants/{model}/{path}").status_code in (302, 403, 404), (model, path)
    with tenant_transaction(Role.STAFF, tenant=tenant.id):
        assert AgentKey.objects.filter(id=agent.row.id).exists()


def test_the_history_of_a_row_is_shown(tenant: Any) -> None:
    agent = tenant.agent()
    client = tenant.person(MemberRole.AUDITOR).signed_in()
    answer = client.get(f"/admin/tenants/agent/{agent.actor.id}/history/")
    assert answer.status_code == 200
    assert b"agent.created" in answer.content
    with tenant_transaction(Role.STAFF, tenant=tenant.id):
        version = Agent.history.get(id=agent.actor.id).history_id
    past = client.get(f"/admin/tenants/agent/{agent.actor.id}/history/{version}/")
    assert past.status_code == 200
    assert agent.name in past.content.decode()
    for odd in ("x", "%00", str(uuid4()) + "x"):
        assert client.get(f"/admin/tenants/agent/{odd}/history/").status_code in (302, 404)
        assert client.get(f"/admin/tenants/agent/{odd}/change/").status_code in (302, 404)


def test_a_filter_that_no_text_can_match_is_refused(tenant: Any) -> None:
    client = tenant.person(MemberRole.AUDITOR).signed_in()
    for query in ("state=%00", "state=a%00", "q=%00", "%00=1"):
        assert client.get(f"/admin/tenants/agent/?{query}").status_code in (302, 400)


@pytest.mark.parametrize("lookup", ["digest__startswith", "agent__name__startswith", "tenant__slug", "prefix__gt"])
def test_lists_cannot_be_filtered_by_what_is_not_named(tenant: Any, lookup: str) -> None:
    tenant.agent()
    client = tenant.person(MemberRole.AUDITOR).signed_in()
    assert client.get(f"/admin/tenants/agentkey/?{lookup}=a").status_code in (302, 400)


def test_no_page_prints_a_digest_of_a_key(tenant: Any) -> None:
    agent = tenant.agent()
    client = tenant.person(MemberRole.TENANT_ADMIN).signed_in()
    page = client.get(f"/admin/tenants/agentkey/{agent.row.id}/change/")
    assert page.status_code == 200
    assert agent.row.prefix.encode() in page.content
    assert agent.row.digest.hex().encode() not in page.content


def test_every_model_in_the_admin_is_read_only() -> None:
    from tenants.admin import ReadOnlyAdmin

    ours = [found for model, found in admin.site._registry.items() if model._meta.app_label == "tenants"]
    assert ours
    assert all(isinstance(found, ReadOnlyAdmin) for found in ours)


def test_pages_carry_a_strict_policy_and_are_kept_nowhere(database: Any) -> None:
    answer = Client().get(reverse("admin:login"))
    assert "frame-ancestors 'none'" in answer["Content-Security-Policy"]
    assert "script-src 'self'" in answer["Content-Security-Policy"]
    assert "no-store" in answer["Cache-Control"]
    assert answer["X-Frame-Options"] == "DENY"
    assert answer["X-Content-Type-Options"] == "nosniff"
    assert answer["Referrer-Policy"] == "same-origin"
    policy = dict(each.strip().partition(" ")[::2] for each in answer["Content-Security-Policy"].split(";"))
    assert policy["default-src"] == policy["script-src-attr"] == policy["object-src"] == policy["base-uri"] == "'none'"
    assert "'unsafe-inline'" not in policy["script-src"]
    assert "http" not in answer["Content-Security-Policy"]


def verified(organisation: Any) -> list[AuditEvent]:
    with tenant_transaction(Role.STAFF, tenant=organisation.id):
        return list(AuditEvent.objects.filter(chain=organisation.id, action="audit.verified").order_by("seq"))


def test_an_auditor_verifies_the_chain_and_the_chain_says_so(tenant: Any) -> None:
    tenant.agent()
    auditor = tenant.person(MemberRole.AUDITOR)
    client = auditor.signed_in()
    assert "Verify the chain" in client.get("/admin/tenants/auditevent/").content.decode()
    assert client.get("/admin/tenants/auditevent/verify/").status_code == 405
    assert client.post("/admin/tenants/auditevent/verify/").status_code == 302
    assert "The chain is sound" in client.get("/admin/tenants/auditevent/").content.decode()
    (entry,) = verified(tenant)
    assert (entry.actor_id, entry.reason, entry.numbers["bad"]) == (auditor.actor.id, "sound", 0)
    assert entry.numbers["entries"] == entry.seq - 1


def test_a_damaged_chain_is_named_at_its_first_bad_entry(tenant: Any, superuser: Any) -> None:
    tenant.agent()
    client = tenant.person(MemberRole.AUDITOR).signed_in()
    with superuser.transaction():
        superuser.execute("SET LOCAL session_replication_role = replica")
        superuser.execute("UPDATE tenants_auditevent SET reason = 'changed' WHERE chain = %s AND seq = 2", [tenant.id])
    client.post("/admin/tenants/auditevent/verify/")
    assert "does not hold from entry 2 on: altered" in client.get("/admin/tenants/auditevent/").content.decode()
    assert verified(tenant)[0].reason == "altered"


def test_whoever_does_not_see_the_chain_does_not_verify_it(tenant: Any, operator: Client) -> None:
    client = tenant.person(MemberRole.REVIEWER, MemberRole.APPROVER).signed_in()
    assert client.post("/admin/tenants/auditevent/verify/").status_code == 403
    assert not verified(tenant)
    # An operator verifies the platform's.
    assert operator.post("/admin/tenants/auditevent/verify/").status_code == 302
    assert platform_entries("audit.verified")


def test_the_chain_is_listed_by_number_without_counting(tenant: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    from tenants.admin import AuditEventAdmin

    monkeypatch.setattr(AuditEventAdmin, "list_per_page", 2)
    for _ in range(3):
        tenant.agent()
    client = tenant.person(MemberRole.AUDITOR).signed_in()
    path, seen = "/admin/tenants/auditevent/", []
    while path:
        with CaptureQueriesContext(connection) as statements:
            page = client.get(path).content.decode()
        assert not [each["sql"] for each in statements if "COUNT(" in each["sql"].upper()]
        rows = re.findall(r"/admin/tenants/auditevent/([0-9a-f-]{36})/change/", page)
        seen += list(dict.fromkeys(rows))
        older = re.search(r'href="(\?before=\d+)" rel="next"', page)
        path = f"/admin/tenants/auditevent/{older[1]}" if older else ""
    with tenant_transaction(Role.STAFF, tenant=tenant.id):
        whole = [str(each) for each in AuditEvent.objects.order_by("-seq").values_list("id", flat=True)]
    assert seen == whole
    assert client.get("/admin/tenants/auditevent/?before=x").status_code == 302


def test_a_list_without_rows_offers_nothing_that_cannot_be_done(tenant: Any) -> None:
    client = tenant.person(MemberRole.AUDITOR).signed_in()
    text = client.get("/admin/tenants/agentkey/").content.decode()
    assert "There is nothing here." in text
    assert "Create a new item" not in text
    filtered = client.get("/admin/tenants/agent/?state=ended").content.decode()
    assert "Nothing fits these filters." in filtered


def test_a_key_is_listed_by_its_agents_name_and_its_instants_as_everywhere(tenant: Any) -> None:
    tenant.agent("billing bot")
    client = tenant.person(MemberRole.AUDITOR).signed_in()
    assert "billing bot" in client.get("/admin/tenants/agentkey/").content.decode()
    for model in ("agent", "agentkey", "membership", "tenant"):
        text = client.get(f"/admin/tenants/{model}/").content.decode()
        row = re.search(rf"/admin/tenants/{model}/[0-9a-f-]{{36}}/change/", text)
        assert row is not None
        for page in (text, client.get(row[0]).content.decode()):
            assert not re.search(r"\d [ap]\.m\.", page), model
            assert model == "agentkey" or re.search(r"<time [^>]*>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d</time>", page), model
