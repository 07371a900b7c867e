"""Pages in German in a real browser: chosen by keyboard, in light and dark, at 1280 px and on a phone."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tenants.actors import MemberRole
from tests.browser.organisation import Furnished, furnish
from tests.browser.serving import Site
from tests.browser.test_desk import furnished, sound
from tests.browser.test_pages import _UNFIT, SIZE, Desk, desk_of
from tests.organisation import Organisation, Person

pytestmark = pytest.mark.browser

PHONE = {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def acme(database: Any) -> Furnished:
    return furnish("deutsch")


@pytest.fixture(scope="module")
def waiting(database: Any) -> Organisation:
    return furnished("deutsch-desk")


def in_german(browser: Any, site: Site, person: Person) -> Desk:
    """Sign in, and choose German by keyboard alone."""
    desk = desk_of(browser, site, person)
    desk.open("/admin/language/")
    desk.page.locator("button[name=language][value=en]").focus()
    desk.page.keyboard.press("Tab")
    desk.page.keyboard.press("Enter")
    desk.page.wait_for_selector("html[lang=de]")
    assert desk.page.inner_text("h1") == "Sprache"
    return desk


@pytest.fixture
def german(browser: Any, site: Site, acme: Furnished) -> Iterator[Desk]:
    made = in_german(browser, site, acme.people[MemberRole.TENANT_ADMIN])
    yield made
    made.page.context.close()


def test_the_first_page_and_a_subject_in_german_fit_in_light_and_dark_and_on_a_phone(
    german: Desk, acme: Furnished, pictures: Path
) -> None:
    pages = {
        "first": "/admin/",
        "subject": f"/admin/memory/subject/{acme.subject}/change/",
        "candidate": f"/admin/memory/candidate/{acme.candidate}/change/",
        "list": "/admin/memory/candidate/",
    }
    for name, path in pages.items():
        for size, where in ((SIZE, ""), (PHONE, "-phone")):
            german.page.set_viewport_size(size)
            german.open(path)
            assert german.page.get_attribute("html", "lang") == "de"
            for dark in (False, True):
                german.in_dark(dark)
                german.picture(pictures, f"german-{name}{where}-{'dark' if dark else 'light'}")
                unfit = german.page.evaluate(_UNFIT)
                # A table is wider than a phone in every language; it scrolls, and the drawing too.
                assert not [each for each in unfit if not (where and each.startswith("wider"))], (path, where, unfit)
            german.in_dark(False)
    assert not german.complaints, "\n".join(german.complaints)


def test_the_desk_in_german_is_worked_by_keyboard_and_fits_in_light_and_dark_and_on_a_phone(
    browser: Any, site: Site, waiting: Organisation, pictures: Path
) -> None:
    desk = in_german(browser, site, waiting.person(MemberRole.REVIEWER))
    page = desk.page
    desk.open("/admin/desk/facts/")
    page.wait_for_selector("#rows [role=option]")
    seen_in(desk, pictures, "german-desk")
    page.keyboard.press("m")
    page.wait_for_selector("#pane .clear")
    assert "von Ihnen übernommen" in page.inner_text("#rows")
    seen_in(desk, pictures, "german-desk-item")
    page.keyboard.press("a")
    page.wait_for_selector("form.act[data-act=confirm]:not([hidden])")
    assert "Der Beleg trägt es" in page.inner_text("form.act[data-act=confirm]")
    seen_in(desk, pictures, "german-desk-confirm")
    page.keyboard.press("Control+Enter")
    page.wait_for_selector("#undo .what:has-text('Bestätigt')")
    assert "Zehn Sekunden" in page.text_content("#told")
    page.set_viewport_size(PHONE)
    page.wait_for_selector("#pane .clear")
    seen_in(desk, pictures, "german-desk-phone")
    assert not desk.complaints, "\n".join(desk.complaints)
    page.context.close()


def seen_in(desk: Desk, pictures: Path, name: str) -> None:
    """Take a picture in both themes; nothing may be wider than the window, or hard to read."""
    for theme in ("light", "dark"):
        desk.page.evaluate(f"document.documentElement.dataset.theme = '{theme}'")
        desk.picture(pictures, f"{name}-{theme}", whole=False)
        assert desk.page.evaluate("document.documentElement.scrollWidth <= innerWidth + 1"), name
        sound(desk)
    desk.page.evaluate("document.documentElement.dataset.theme = 'light'")
