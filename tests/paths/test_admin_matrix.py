"""Who gets what from every page of the admin, by every method."""

from typing import Any
from uuid import uuid4

import pytest
from django.contrib import admin
from django.test import Client

from tenants.actors import MemberRole
from tenants.isolation import Role, tenant_transaction
from tenants.models import User
from tests.memory.test_admin import MODELS, fill, first_row, seen
from tests.organisation import PASSWORD
from tests.policies.two_people import Two

KEEPERS = {MemberRole.TENANT_ADMIN, MemberRole.AUDITOR}
#: Pages that not everybody sees: the roles that do.
SEEN_BY: dict[str, set[MemberRole]] = {
    "tenants/tenant": KEEPERS,
    "tenants/agent": KEEPERS,
    "tenants/agentkey": KEEPERS,
    "tenants/membership": KEEPERS,
    "tenants/auditevent": {*KEEPERS, MemberRole.PRIVACY_OFFICER},
    "tenants/user": set(),
    "retention/redactionrequest": {MemberRole.REVIEWER, MemberRole.PRIVACY_OFFICER, MemberRole.AUDITOR},
}
LISTS = (*MODELS, *SEEN_BY)
METHODS = ("POST", "PUT", "PATCH", "DELETE")


#: Acts of two people, by path: what each method answers to the roles that may, with a body that asks for nothing.
DRAFTERS = {MemberRole.APPROVER, MemberRole.TENANT_ADMIN, MemberRole.PRIVACY_OFFICER}
EVERYBODY = set(MemberRole)
ACTS: dict[str, dict[str, tuple[set[MemberRole], int]]] = {
    "policies/attribute/draft/": {"GET": (DRAFTERS, 200), "POST": (DRAFTERS, 200)},
    "policies/attribute/{attribute}/draft/": {"GET": (DRAFTERS, 200), "POST": (DRAFTERS, 400)},
    "policies/attributeversion/{attributeversion}/ask/": {"POST": (DRAFTERS, 422)},
    "policies/attributeversion/{attributeversion}/discard/": {"POST": (DRAFTERS, 409)},
    "policies/attributeversion/{attributeversion}/again/": {"POST": (DRAFTERS, 302)},
    "policies/policyversion/{policyversion}/ask/": {"POST": (DRAFTERS, 409)},
    "policies/policyversion/{policyversion}/discard/": {"POST": (DRAFTERS, 409)},
    "policies/policyversion/{policyversion}/again/": {"POST": (DRAFTERS, 409)},
    "policies/policy/draft/": {"GET": (DRAFTERS, 200), "POST": (DRAFTERS, 400)},
    "policies/policy/explain/": {"GET": (EVERYBODY, 200)},
    "policies/decisionrequest/{decisionrequest}/decide/": {"POST": (EVERYBODY, 400)},
    "policies/decisionrequest/{decisionrequest}/withdraw/": {"POST": (set(), 302)},
    "policies/delegation/give/": {
        "GET": ({MemberRole.APPROVER, MemberRole.PRIVACY_OFFICER}, 200),
        "POST": ({MemberRole.APPROVER, MemberRole.PRIVACY_OFFICER}, 400),
    },
}


KEEPER = {MemberRole.PRIVACY_OFFICER}
ACTS |= {
    "retention/matter/open/": {"GET": (KEEPER, 200), "POST": (KEEPER, 422)},
    "retention/matter/{matter}/place/": {"POST": (KEEPER, 422)},
    "retention/matter/{matter}/close/": {"POST": (KEEPER, 409)},
    "retention/hold/{hold}/ask/": {"POST": (KEEPER, 422)},
    "retention/hold/{hold}/decide/": {"POST": (EVERYBODY, 409)},
    "retention/restriction/restrict/": {"GET": (KEEPER, 200), "POST": (KEEPER, 422)},
    "retention/restriction/{restriction}/lift/": {"POST": (KEEPER, 422)},
}
PROPOSERS = {MemberRole.REVIEWER, MemberRole.PRIVACY_OFFICER}
ACTS |= {"retention/redactionrequest/propose/": {"GET": (PROPOSERS, 404), "POST": (PROPOSERS, 404)}}


#: Everybody but auditors works on procedures; what an approver alone may do is refused to the others by the door.
WORKERS = EVERYBODY - {MemberRole.AUDITOR}
OF_VERSIONS: dict[str, dict[str, tuple[set[MemberRole], int]]] = {
    "memory/procedure/propose/": {"GET": (WORKERS, 200), "POST": (WORKERS, 400)},
    "memory/procedureversion/{version}/show/": {"POST": (WORKERS, 200)},
    "memory/procedureversion/{version}/decide/": {"POST": (WORKERS, 400)},
    "memory/procedureversion/{version}/activate/": {"POST": ({MemberRole.APPROVER}, 409)},
    "memory/procedureversion/{version}/schedule/": {"POST": ({MemberRole.APPROVER}, 409)},
    "memory/procedureversion/{version}/end/": {"POST": (WORKERS, 400)},
    "memory/procedureversion/{version}/take_back/": {"POST": (set(), 302)},
    "memory/procedureversion/{version}/again/": {"POST": (WORKERS, 409)},
}


@pytest.mark.parametrize("role", list(MemberRole))
def test_acts_on_procedures_are_open_to_their_roles_and_methods_alone(tenant: Any, role: MemberRole) -> None:
    fill(tenant)
    client = tenant.person(role).signed_in()
    version = first_row(seen(client, "/admin/memory/procedureversion/"), "memory/procedureversion")
    for path, methods in OF_VERSIONS.items():
        for method in ("GET", *METHODS):
            answer = client.generic(method, f"/admin/{path.format(version=version)}")
            roles, status = methods.get(method, (EVERYBODY, 405))
            assert answer.status_code == (status if role in roles else 403), (path, method)
    outside = superuser_outside_every_tenant()
    for path in OF_VERSIONS:
        assert outside.post(f"/admin/{path.format(version=version)}").status_code == 403, path


@pytest.mark.parametrize("role", list(MemberRole))
def test_acts_of_two_people_are_open_to_their_roles_and_methods_alone(tenant: Any, role: MemberRole) -> None:
    fill(tenant)
    client = tenant.person(role).signed_in()
    ids = {
        name: first_row(seen(client, f"/admin/policies/{name}/"), f"policies/{name}")
        for name in ("attribute", "attributeversion", "policyversion", "decisionrequest")
    }
    ids |= {
        name: first_row(seen(client, f"/admin/retention/{name}/"), f"retention/{name}")
        for name in ("matter", "hold", "restriction")
    }
    for path, methods in ACTS.items():
        for method in ("GET", *METHODS):
            answer = client.generic(method, f"/admin/{path.format(**ids)}")
            roles, status = methods.get(method, (EVERYBODY, 405))
            assert answer.status_code == (status if role in roles else 403), (path, method)


def test_only_an_approver_who_did_not_ask_decides_by_the_page(tenant: Any) -> None:
    two = Two(tenant)
    request = two.asked()
    path = f"/admin/policies/decisionrequest/{request.id}/decide/"
    sent = {"answer": "approve", "shown": bytes(request.digest).hex(), "reason": "checked"}
    for role in MemberRole:
        if role is not MemberRole.APPROVER:
            assert tenant.person(role).signed_in().post(path, sent).status_code == 403, role
    assert two.drafter.signed_in().post(path, sent).status_code == 403
    assert superuser_outside_every_tenant().post(path, sent).status_code == 403
    assert two.approver.signed_in().post(path, sent).status_code == 302
    assert two.request(request).state == "done"


def superuser_outside_every_tenant() -> Client:
    user = User(username=f"operator-{uuid4().hex[:8]}", is_staff=True, is_superuser=True)
    user.set_password(PASSWORD)
    with tenant_transaction(Role.FRONT, tenant=None):
        user.save(force_insert=True)
    client = Client()
    assert client.post("/admin/login/", {"username": user.username, "password": PASSWORD}).status_code == 302
    return client


def test_the_matrix_names_every_page() -> None:
    pages = {model._meta.label_lower.replace(".", "/") for model in admin.site._registry}
    assert pages == set(LISTS)


@pytest.mark.parametrize("role", list(MemberRole))
def test_each_role_sees_its_pages_and_writes_by_no_method(tenant: Any, role: MemberRole) -> None:
    fill(tenant)
    client = tenant.person(role).signed_in()
    for page in LISTS:
        allowed = role in SEEN_BY.get(page, set(MemberRole))
        assert client.get(f"/admin/{page}/").status_code == (200 if allowed else 403), page
        paths = [f"/admin/{page}/", f"/admin/{page}/add/"]
        if allowed:
            row = first_row(seen(client, f"/admin/{page}/"), page)
            assert client.get(f"/admin/{page}/{row}/change/").status_code == 200, page
            paths += [f"/admin/{page}/{row}/{view}/" for view in ("change", "delete", "history")]
        for path in paths:
            for method in METHODS:
                assert client.generic(method, path).status_code in (403, 404, 405), (method, path)


def test_a_superuser_outside_every_tenant_sees_no_page_of_memory(tenant: Any) -> None:
    fill(tenant)
    reviewer = tenant.person(MemberRole.REVIEWER).signed_in()
    client = superuser_outside_every_tenant()
    assert client.get("/admin/").status_code == 200
    for page in MODELS:
        row = first_row(seen(reviewer, f"/admin/{page}/"), page)
        assert client.get(f"/admin/{page}/").status_code == 403, page
        assert client.get(f"/admin/{page}/{row}/change/").status_code in (403, 404), page
    row = first_row(seen(reviewer, "/admin/memory/candidate/"), "memory/candidate")
    for act in ("show", "decide"):
        sent = {"decision": "confirm", "reason": "other", "occurrences": "1"}
        assert client.post(f"/admin/memory/candidate/{row}/{act}/", sent).status_code == 403


def test_whoever_has_not_signed_in_is_sent_to_do_so(tenant: Any) -> None:
    for page in LISTS:
        for path in (f"/admin/{page}/", f"/admin/{page}/{uuid4()}/change/", f"/admin/{page}/{uuid4()}/show/"):
            for method in ("GET", *METHODS):
                answer = Client().generic(method, path)
                assert answer.status_code == 302, (method, path)
                assert answer["Location"].startswith("/admin/login/"), (method, path)
