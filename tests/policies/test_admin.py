import json
import re
from typing import Any
from urllib.parse import urlencode
from uuid import uuid4

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from tenants.actors import MemberRole
from tests.memory.test_admin import fill, first_row, seen
from tests.organisation import STARTER
from tests.paths.ledger import CANARY, Ledger, publish
from tests.policies.two_people import Two

CITY = {"name": "city", "schema": {"type": "string"}, "sensitivity": "internal"}


@pytest.fixture
def two(tenant: Any) -> Two:
    return Two(tenant)


def drafted(client: Any, path: str, document: Any) -> str:
    """Keep a draft in the form and return the page that it leads to."""
    text = document if isinstance(document, str) else json.dumps(document)
    answer = client.post(path, {"document": text})
    assert answer.status_code == 302, answer.content.decode()
    return str(answer["Location"])


def asked(client: Any, version: str) -> str:
    """Ask for a draft on its page and return the page of the request."""
    answer = client.post(version.replace("/change/", "/ask/"), {"reason": "new_need"})
    assert answer.status_code == 302, answer.content.decode()
    return str(answer["Location"])


def decided(client: Any, request: str, answer: str, reason: str = "other") -> Any:
    """Decide with what stands on the page."""
    shown = re.search(r'name="shown" value="([0-9a-f]{64})"', seen(client, request))
    assert shown is not None
    sent = {"answer": answer, "shown": shown[1], "reason": reason}
    return client.post(request.replace("/change/", "/decide/"), sent)


def test_one_member_drafts_and_asks_and_another_approves_on_the_page(two: Two) -> None:
    drafter, approver = two.drafter.signed_in(), two.approver.signed_in()
    version = drafted(drafter, "/admin/policies/attribute/draft/", CITY)
    page = seen(drafter, version)
    assert "Ask for approval" in page
    assert "Nothing was in force before it." in page
    request = asked(drafter, version)
    listed = seen(approver, "/admin/policies/decisionrequest/")
    assert two.drafter.username in listed
    assert "city" in listed
    own = seen(drafter, request)
    assert "nobody approves what they asked for" in own
    assert "Take it back" in own
    assert 'value="approve"' not in own
    assert decided(approver, request, "approve", "checked").status_code == 302
    assert "Approved. It is in force." in seen(approver, request)
    assert two.drafter.username in seen(approver, request)
    Ledger(two.organisation.agent()).said("mira", "city", "Lisbon")
    # The next version, and what it would mean for what is stored.
    attribute = first_row(seen(drafter, "/admin/policies/attribute/"), "policies/attribute")
    form = seen(drafter, f"/admin/policies/attribute/{attribute}/draft/")
    assert "&quot;sensitivity&quot;: &quot;internal&quot;" in form
    changed = {**CITY, "sensitivity": "personal", "schema": {"type": "string", "maxLength": 10}}
    second = seen(drafter, drafted(drafter, f"/admin/policies/attribute/{attribute}/draft/", changed))
    assert "<code>schema.maxLength</code>" in second
    assert "<del>internal</del>" in second
    assert "<ins>personal</ins>" in second
    assert "none is checked again, changed or removed" in second
    assert re.search(r"version 1</th><td>1</td>", second)
    assert "Lisbon" not in second


@pytest.mark.parametrize(("answer", "told"), [("refuse", "Refused."), ("return", "Sent back.")])
def test_what_is_refused_or_sent_back_says_so_and_the_draft_stays(two: Two, answer: str, told: str) -> None:
    drafter, approver = two.drafter.signed_in(), two.approver.signed_in()
    version = drafted(drafter, "/admin/policies/attribute/draft/", CITY)
    request = asked(drafter, version)
    assert decided(approver, request, answer).status_code == 302
    page = seen(approver, request)
    assert told in page
    assert two.approver.username in page
    assert "Ask for approval" in seen(drafter, version)


def test_a_mistake_is_shown_at_its_place_and_what_was_written_is_kept(two: Two) -> None:
    client = two.drafter.signed_in()
    written = '{"name": "city", "schema": {"type": "strin"}, "colour": 1, "basis": "for ever"}'
    answer = client.post("/admin/policies/attribute/draft/", {"document": written})
    page = answer.content.decode()
    assert answer.status_code == 400
    assert "<code>attribute.basis</code> is not one of the known words" in page
    assert "<code>attribute.schema.type</code>" in page
    assert "<code>attribute.colour</code> is no known field" in page
    assert "&quot;for ever&quot;" in page
    for text, told in (
        ("{\n1", "is not JSON: line 2, column 1"),
        ('{"a": 1, "a": 2}', "names a field twice"),
        ("", "is not JSON"),
    ):
        answer = client.post("/admin/policies/attribute/draft/", {"document": text})
        assert (answer.status_code, told in answer.content.decode()) == (400, True)
    answer = client.post("/admin/policies/attribute/draft/", {"document": " " * 200_001})
    assert answer.status_code == 400
    assert "/admin/policies/attributeversion/0" not in seen(client, "/admin/policies/attributeversion/")


def test_what_somebody_wrote_is_shown_as_text_and_never_run(two: Two) -> None:
    client = two.drafter.signed_in()
    hostile = "</textarea><script>alert(1)</script>{{ 7 * 7 }}"
    page = client.post("/admin/policies/attribute/draft/", {"document": hostile}).content.decode()
    assert hostile not in page
    assert "&lt;/textarea&gt;&lt;script&gt;" in page
    version = drafted(client, "/admin/policies/attribute/draft/", {**CITY, "description": "<script>alert(1)</script>"})
    assert "<script>alert(1)" not in seen(client, version)


def test_the_name_of_an_attribute_stays_and_the_same_again_is_no_draft(two: Two) -> None:
    publish(two.organisation, [CITY])
    client = two.drafter.signed_in()
    attribute = first_row(seen(client, "/admin/policies/attribute/"), "policies/attribute")
    path = f"/admin/policies/attribute/{attribute}/draft/"
    answer = client.post(path, {"document": json.dumps({**CITY, "name": "town"})})
    assert answer.status_code == 400
    assert "<code>attribute.name</code> stays as it is" in answer.content.decode()
    answer = client.post(path, {"document": json.dumps(CITY)})
    assert answer.status_code == 409
    assert "This is what is in force already." in answer.content.decode()
    answer = client.post(path, {"document": json.dumps({**CITY, "cardinality": "multi"})})
    assert answer.status_code == 409


def test_a_policy_is_changed_by_two_and_an_earlier_one_comes_back_the_same_way(two: Two) -> None:
    drafter, approver = two.drafter.signed_in(), two.approver.signed_in()
    starter = json.loads(STARTER.read_text(encoding="utf-8"))
    rules = [rule for rule in starter["rules"] if rule["id"] != "weak-signal-needs-a-person"]
    version = drafted(drafter, "/admin/policies/policy/draft/", {**starter, "rules": rules, "review_after": "P2Y"})
    page = seen(drafter, version)
    assert "<code>review_after</code>" in page
    assert "<code>rules.weak-signal-needs-a-person.then</code>" in page
    assert "<code>rules.order</code>" in page
    again = re.search(r'href="(/admin/policies/policy/draft/\?from=[0-9a-f-]{36})"', page)
    assert again is not None
    assert "&quot;review_after&quot;: &quot;P2Y&quot;" in seen(drafter, again[1])
    assert decided(approver, asked(drafter, version), "approve").status_code == 302
    versions = seen(drafter, "/admin/policies/policyversion/?state=retired")
    first = f"/admin/policies/policyversion/{first_row(versions, 'policies/policyversion')}/"
    assert "Draft it again" in seen(drafter, f"{first}change/")
    answer = drafter.post(f"{first}again/")
    assert answer.status_code == 302
    assert decided(approver, asked(drafter, answer["Location"]), "approve").status_code == 302
    assert "version 3 · active" in seen(
        drafter,
        f"/admin/policies/policy/{first_row(seen(drafter, '/admin/policies/policy/'), 'policies/policy')}/change/",
    )


def test_what_changed_since_somebody_looked_is_not_decided_by_the_page(two: Two) -> None:
    drafter, approver = two.drafter.signed_in(), two.approver.signed_in()
    request = asked(drafter, drafted(drafter, "/admin/policies/attribute/draft/", CITY))
    decide = request.replace("/change/", "/decide/")
    sent = {"answer": "approve", "shown": "00" * 32, "reason": "checked"}
    answer = approver.post(decide, sent)
    assert answer.status_code == 409
    assert "It changed since you looked." in answer.content.decode()
    for wrong in ({"answer": "yes"}, {"shown": "x"}, {"reason": "too_wide"}, {}):
        answer = approver.post(decide, {**sent, **wrong} if wrong else {})
        assert answer.status_code in (400, 409, 422)
    # Another version comes into force while the page is open.
    shown = re.search(r'name="shown" value="([0-9a-f]{64})"', seen(approver, request))
    publish(two.organisation, [{**CITY, "sensitivity": "public"}])
    assert shown is not None
    answer = approver.post(decide, {"answer": "approve", "shown": shown[1], "reason": "checked"})
    assert answer.status_code == 409
    assert "Another version came into force since" in answer.content.decode()
    assert 'value="approve"' not in seen(approver, request)
    assert decided(approver, request, "return").status_code == 302
    assert approver.post(decide, sent).status_code == 409


def test_a_draft_is_dropped_and_a_request_taken_back(two: Two) -> None:
    client = two.drafter.signed_in()
    version = drafted(client, "/admin/policies/attribute/draft/", CITY)
    request = asked(client, version)
    assert client.post(version.replace("/change/", "/discard/")).status_code == 409
    assert two.other.signed_in().post(request.replace("/change/", "/withdraw/")).status_code == 403
    assert client.post(request.replace("/change/", "/withdraw/")).status_code == 302
    assert client.post(request.replace("/change/", "/withdraw/")).status_code == 409
    assert client.post(version.replace("/change/", "/discard/")).status_code == 302
    assert "discarded" in seen(client, version)


def test_a_role_is_handed_on_and_ended_on_the_page(two: Two) -> None:
    reviewer = two.organisation.person(MemberRole.REVIEWER)
    request = asked(two.drafter.signed_in(), drafted(two.drafter.signed_in(), "/admin/policies/attribute/draft/", CITY))
    giver, receiver = two.other.signed_in(), reviewer.signed_in()
    assert 'value="approve"' not in seen(receiver, request)
    for sent in ({"days": "32"}, {"days": "0"}, {"given_to": "nobody"}, {"role": "privacy_officer"}, {"days": "x"}):
        given = {"role": "approver", "given_to": reviewer.username, "days": "7", **sent}
        assert giver.post("/admin/policies/delegation/give/", given).status_code in (400, 422)
    given = {"role": "approver", "given_to": reviewer.username, "days": "7"}
    assert giver.post("/admin/policies/delegation/give/", given).status_code == 302
    page = seen(giver, "/admin/policies/delegation/")
    assert reviewer.username in page
    assert decided(receiver, request, "return").status_code == 302
    assert "by a role that was handed on" in seen(giver, request)
    row = first_row(page, "policies/delegation")
    assert receiver.post(f"/admin/policies/delegation/{row}/end/").status_code == 404
    assert giver.post(f"/admin/policies/delegation/{row}/end/").status_code == 302
    assert "ended" in seen(giver, f"/admin/policies/delegation/{row}/change/")


def test_the_page_explains_what_would_become_of_a_write_nobody_made(two: Two) -> None:
    publish(two.organisation)
    client = two.organisation.person(MemberRole.REVIEWER).signed_in()
    path = "/admin/policies/policy/explain/"

    def explained(**given: str) -> str:
        return seen(client, f"{path}?{urlencode({'attribute': 'city', **given})}")

    assert "Choose what is written" in seen(client, path)
    kept = explained(confidence="0.9")
    assert "It is kept." in kept
    assert "everything-else-is-kept" in kept
    assert "session×internal=P30D" in kept
    assert "the confidence is not below 0.5, or not given" in kept
    assert "It waits for a person: the reviewer decides." in explained(confidence="0.2")
    assert "It waits until it recurs." in explained(attribute="mood", confidence="0.2")
    assert "It is refused." in explained(basis="consent", consent="withdrawn")
    assert "needs a consent that stands" in explained(basis="consent", consent="withdrawn")
    assert "the privacy officer decides" in explained(basis="indefinite")
    assert "class_raised" in explained(detected="restricted")
    for wrong in (
        {"attribute": CANARY},
        {"basis": CANARY},
        {"confidence": "2"},
        {"confidence": CANARY},
        {"trust": "x"},
    ):
        answer = client.get(f"{path}?{urlencode({'attribute': 'city', **wrong})}")
        assert answer.status_code == 400, wrong


def test_the_first_page_says_how_many_wait_for_an_approval(two: Two) -> None:
    client = two.other.signed_in()
    none = re.search(
        r'<p class="m-figure">0</p>\s*<p><a href="/admin/policies/decisionrequest/', seen(client, "/admin/")
    )
    assert none is not None
    two.decide(two.asked("town"))
    two.asked()
    page = seen(client, "/admin/")
    assert re.search(r'<p class="m-figure">1</p>\s*<p><a href="/admin/policies/decisionrequest/\?state=pending">', page)


def test_pages_of_two_people_cost_the_same_statements_for_few_and_for_many_rows(tenant: Any) -> None:
    two = Two(tenant)
    client = two.approver.signed_in()
    # Once before, since the process remembers what kinds of rows there are.
    seen(client, f"/admin/policies/decisionrequest/{two.asked().id}/history/")
    counts = []
    for number in (2, 20):
        for _ in range(number):
            request = two.asked(f"a_{uuid4().hex[:8]}")
            two.hand_on()
        sent = []
        for path in ("", f"{request.id}/change/", f"{request.id}/history/"):
            with CaptureQueriesContext(connection) as statements:
                seen(client, f"/admin/policies/decisionrequest/{path}")
            sent.append(len(statements))
        with CaptureQueriesContext(connection) as statements:
            seen(client, "/admin/policies/delegation/")
        counts.append([*sent, len(statements)])
    assert counts[0] == counts[1]


def test_rules_and_definitions_are_shown_as_text_with_their_versions(tenant: Any) -> None:
    fill(tenant)
    client = tenant.person(MemberRole.APPROVER).signed_in()
    policies = seen(client, "/admin/policies/policy/")
    policy = seen(client, f"/admin/policies/policy/{first_row(policies, 'policies/policy')}/change/")
    assert "version 1 · active" in policy
    assert "If the confidence is below 0.5" in policy
    assert "it waits for a person: the privacy officer decides" in policy
    assert "<td>30 days</td>" in policy
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
        assert "drafted" in seen(client, path)
        assert client.post(path).status_code == 405


def test_versions_can_be_listed_by_state_and_by_nothing_else(tenant: Any) -> None:
    fill(tenant)
    client = tenant.person(MemberRole.APPROVER).signed_in()
    assert "/change/" in seen(client, "/admin/policies/policyversion/?state=active")
    assert "/admin/policies/policyversion/0" not in seen(client, "/admin/policies/policyversion/?state=retired")
    for query in ("rules__contains=a", "definition__has_key=x", "digest__gt=0", "state__startswith=a"):
        assert client.get(f"/admin/policies/policyversion/?{query}").status_code in (302, 400)
