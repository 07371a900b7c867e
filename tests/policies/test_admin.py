from typing import Any

from tenants.actors import MemberRole
from tests.memory.test_admin import fill, first_row, seen


def test_rules_and_definitions_are_shown_as_text_with_their_versions(tenant: Any) -> None:
    fill(tenant)
    client = tenant.person(MemberRole.APPROVER).signed_in()
    policies = seen(client, "/admin/policies/policy/")
    policy = seen(client, f"/admin/policies/policy/{first_row(policies, 'policies/policy')}/change/")
    assert "version 1 · active" in policy
    version = first_row(policy, "policies/policyversion")
    page = seen(client, f"/admin/policies/policyversion/{version}/change/")
    assert "&quot;unknown_attribute&quot;: &quot;refuse&quot;" in page
    versions = seen(client, "/admin/policies/attributeversion/")
    version = first_row(versions, "policies/attributeversion")
    assert "&quot;schema&quot;" in seen(client, f"/admin/policies/attributeversion/{version}/change/")


def test_the_history_of_an_attribute_is_shown_to_every_role_by_get_alone(tenant: Any) -> None:
    fill(tenant)
    for role in MemberRole:
        client = tenant.person(role).signed_in()
        row = first_row(seen(client, "/admin/policies/attribute/"), "policies/attribute")
        path = f"/admin/policies/attribute/{row}/history/"
        assert "published" in seen(client, path)
        assert client.post(path).status_code == 405


def test_versions_can_be_listed_by_state_and_by_nothing_else(tenant: Any) -> None:
    fill(tenant)
    client = tenant.person(MemberRole.APPROVER).signed_in()
    assert "/change/" in seen(client, "/admin/policies/policyversion/?state=active")
    assert "/admin/policies/policyversion/0" not in seen(client, "/admin/policies/policyversion/?state=retired")
    for query in ("rules__contains=a", "definition__has_key=x", "digest__gt=0", "state__startswith=a"):
        assert client.get(f"/admin/policies/policyversion/?{query}").status_code in (302, 400)
