"""What should not have been said is picked by one person and taken out by another, in a real browser, in light and dark."""

from pathlib import Path
from typing import Any

import pytest

from tenants.actors import MemberRole
from tests.browser.organisation import HOSTILE, Furnished, furnish
from tests.browser.serving import Site
from tests.browser.test_pages import desk_of
from tests.browser.test_two_people import pictured

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def redacting(database: Any) -> Furnished:
    return furnish("redacting")


def test_one_picks_what_goes_and_another_takes_it_out(
    browser: Any, site: Site, redacting: Furnished, pictures: Path
) -> None:
    reviewer = desk_of(browser, site, redacting.people[MemberRole.REVIEWER])
    officer = desk_of(browser, site, redacting.people[MemberRole.PRIVACY_OFFICER])
    page = reviewer.page
    reviewer.open("/admin/memory/episode/")
    page.click("#result_list tbody tr:first-child a")
    page.click(".m-actbar a:has-text('Redact')")
    assert "2031-06-30" not in page.content()
    pictured(reviewer, pictures, "redact-masked")
    page.click("button:has-text('Show what it says')")
    assert "I corrected the deadline" in page.content()
    # What was sent to do harm is shown and does none.
    assert HOSTILE.split()[0] not in page.content().replace("&lt;", "(").replace("<script src", "(")
    assert page.title() != "taken"
    pictured(reviewer, pictures, "redact-shown")
    page.fill("input[name=words]", "It is now 2031-06-30")
    page.click("button:has-text('See what follows')")
    pictured(reviewer, pictures, "redact-foreseen")
    page.click("button:has-text('Propose')")
    pictured(reviewer, pictures, "redaction-proposed")
    assert page.locator("button:has-text('Take it out for good')").count() == 0
    officer.open(page.url.removeprefix(site.url))
    officer.page.click("button:has-text('Show what it says')")
    assert officer.page.locator("mark").all_inner_texts() == ["It is now 2031-06-30"]
    officer.open(page.url.removeprefix(site.url))
    pictured(officer, pictures, "redaction-to-decide")
    officer.page.click("button:has-text('Take it out for good')")
    pictured(officer, pictures, "redaction-applied")
    officer.open("/admin/retention/redactionrequest/")
    pictured(officer, pictures, "redactions")
    assert reviewer.complaints == []
    assert officer.complaints == []
