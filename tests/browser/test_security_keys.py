"""A security key as a second factor, in a real browser with an authenticator that Chromium plays."""

from pathlib import Path
from typing import Any

import pytest

from tenants.actors import MemberRole
from tenants.isolation import Role, tenant_transaction
from tenants.models import PLATFORM, AuditEvent
from tests.browser.serving import Site
from tests.browser.test_pages import _UNFIT, SIZE, Desk, look
from tests.organisation import Person, new_organisation

pytestmark = pytest.mark.browser


def by_name(site: Site) -> Site:
    """The same site by its name: browsers offer no key to an address."""
    return Site(site.url.replace("127.0.0.1", "localhost"))


def desk_with_key(browser: Any, site: Site) -> tuple[Desk, Any, str]:
    """A browser with a key plugged in, and how to take the key out."""
    context = browser.new_context(viewport=SIZE)
    page = context.new_page()
    devices = context.new_cdp_session(page)
    devices.send("WebAuthn.enable")
    plugged = devices.send(
        "WebAuthn.addVirtualAuthenticator",
        {
            "options": {
                "protocol": "ctap2",
                "transport": "usb",
                "hasResidentKey": False,
                "hasUserVerification": False,
                "automaticPresenceSimulation": True,
            }
        },
    )
    desk = Desk(page, by_name(site))
    page.on("console", desk.hear)
    page.on("pageerror", lambda error: desk.complain(str(error)))
    page.on("request", desk.watch)
    return desk, devices, plugged["authenticatorId"]


@pytest.fixture
def person(database: Any) -> Person:
    return new_organisation().person(MemberRole.PRIVACY_OFFICER)


def told(person: Person) -> list[str]:
    with tenant_transaction(Role.FRONT, tenant=None):
        found = AuditEvent.objects.filter(chain=PLATFORM, actor_id=person.actor.id).order_by("seq")
        return [each.action for each in found]


def test_a_key_is_set_up_asked_for_at_sign_in_and_again_and_taken_away(
    browser: Any, site: Site, person: Person, pictures: Path
) -> None:
    desk, _, _ = desk_with_key(browser, site)
    page = desk.page
    desk.sign_in(person)
    look(desk, pictures, "/admin/second-factor/keys/new/", "security-key-set-up")
    desk.open("/admin/second-factor/keys/new/")
    page.click("#add-key")
    page.wait_for_selector(".m-codes")
    page.click("text=I have kept them")
    look(desk, pictures, "/admin/second-factor/", "security-key")
    page.context.clear_cookies()
    desk.sign_in(person, lands="/admin/login/code/")
    look(desk, pictures, "/admin/login/code/", "second-step-key")
    page.click("#use-key")
    page.wait_for_url(f"{desk.site.url}/admin/")
    desk.open("/admin/again/key/")
    assert not page.evaluate(_UNFIT)
    page.click("#use-key")
    page.wait_for_url(f"{desk.site.url}/admin/")
    desk.open("/admin/second-factor/")
    page.click("text=Remove it…")
    page.click("button.stop")
    page.wait_for_url(f"{desk.site.url}/admin/second-factor/")
    assert page.locator("#keys + p .m-state").inner_text().lower() == "none"
    assert not desk.complaints, desk.complaints
    assert told(person) == [
        "session.signed_in",
        "second_factor.added",
        "session.signed_in",
        "session.confirmed_again",
        "second_factor.removed",
    ]
    page.context.close()


def test_another_key_does_not_fit_and_the_page_says_so(browser: Any, site: Site, person: Person) -> None:
    desk, devices, key = desk_with_key(browser, site)
    page = desk.page
    desk.sign_in(person)
    desk.open("/admin/second-factor/keys/new/")
    page.click("#add-key")
    page.wait_for_selector(".m-codes")
    devices.send("WebAuthn.clearCredentials", {"authenticatorId": key})
    page.context.clear_cookies()
    desk.sign_in(person, lands="/admin/login/code/")
    page.click("#use-key")
    page.wait_for_selector("#key-problem:visible")
    # What an answer of the wrong shape brings is no error of ours.
    page.eval_on_selector("#key-form [name=credential]", "field => { field.value = '{}'; field.form.submit() }")
    page.wait_for_selector("text=That key did not fit")
    assert page.url == f"{desk.site.url}/admin/login/code/"
    page.context.close()


def test_by_an_address_the_page_says_why_there_is_no_key(browser: Any, site: Site, person: Person) -> None:
    context = browser.new_context(viewport=SIZE)
    desk = Desk(context.new_page(), site)
    desk.sign_in(person)
    desk.open("/admin/second-factor/keys/new/")
    assert desk.page.locator("#add-key").count() == 0
    assert "localhost" in desk.page.inner_text("main, #content")
    context.close()
