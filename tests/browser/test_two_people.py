"""One member proposes a change and another decides on it, in a real browser, in light and dark."""

import json
from pathlib import Path
from typing import Any

import pytest

from tenants.actors import MemberRole
from tests.browser.organisation import ATTRIBUTES, Furnished, furnish
from tests.browser.serving import Site
from tests.browser.test_pages import _UNFIT, Desk, desk_of

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def rules(database: Any) -> Furnished:
    return furnish("rules")


def pictured(desk: Desk, folder: Path, name: str) -> None:
    for dark in (False, True):
        desk.in_dark(dark)
        desk.picture(folder, f"{name}-{'dark' if dark else 'light'}")
        unfit = desk.page.evaluate(_UNFIT)
        assert not unfit, (name, dark, unfit)
    desk.in_dark(False)


def test_a_change_is_drafted_by_one_and_approved_by_another(
    browser: Any, site: Site, rules: Furnished, pictures: Path
) -> None:
    drafter = desk_of(browser, site, rules.organisation.person(MemberRole.TENANT_ADMIN))
    approver = desk_of(browser, site, rules.people[MemberRole.APPROVER])
    page = drafter.page
    drafter.open("/admin/policies/attribute/")
    pictured(drafter, pictures, "rules-attributes")
    page.click("text=location")
    pictured(drafter, pictures, "rules-attribute")
    page.click("text=Draft a new version")
    wanted = next(each for each in ATTRIBUTES if each["name"] == "location")
    page.fill("textarea[name=document]", '{"name": "location", "schema": {"type": "strin"}, "basis": "for ever"}')
    page.click("text=Keep as a draft")
    assert page.locator("#errors li").count() == 2
    pictured(drafter, pictures, "rules-draft-wrong")
    drafter.complaints.clear()  # the browser says that the answer was a 400
    changed = {**wanted, "sensitivity": "restricted", "confirm": "always", "description": "Where they live now.",
               "schema": {"type": "string", "maxLength": 60}}  # fmt: skip
    page.fill("textarea[name=document]", json.dumps(changed, indent=2))
    page.click("text=Keep as a draft")
    pictured(drafter, pictures, "rules-version")
    page.click("text=Ask for approval")
    pictured(drafter, pictures, "rules-asked")
    assert page.locator("button:has-text('Approve')").count() == 0
    approver.open(page.url.removeprefix(site.url))
    pictured(approver, pictures, "rules-to-decide")
    approver.page.click("button:has-text('Approve')")
    assert approver.page.locator("text=Approved. It is in force.").count() == 1
    pictured(approver, pictures, "rules-decided")
    approver.open("/admin/policies/decisionrequest/")
    pictured(approver, pictures, "rules-requests")
    assert drafter.complaints + approver.complaints == []


def test_a_reviewer_reads_the_policy_and_asks_what_it_would_say(
    browser: Any, site: Site, rules: Furnished, pictures: Path
) -> None:
    desk = desk_of(browser, site, rules.people[MemberRole.REVIEWER])
    desk.open("/admin/policies/policy/")
    desk.page.click("text=starter")
    pictured(desk, pictures, "rules-policy")
    desk.page.click("text=What would become of a write?")
    desk.page.select_option("select[name=attribute]", "answer_style")
    desk.page.fill("input[name=confidence]", "0.3")
    desk.page.click("button:has-text('Explain')")
    assert desk.page.locator("text=It waits for a person").count() >= 1
    pictured(desk, pictures, "rules-explain")
    approver = desk_of(browser, site, rules.people[MemberRole.APPROVER])
    approver.open("/admin/policies/delegation/give/")
    pictured(approver, pictures, "rules-delegate")
    assert desk.complaints + approver.complaints == []
