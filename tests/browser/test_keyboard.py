"""A day by keyboard alone, in a real browser, in light and dark: no mouse, no script, nothing that a person could not press.

Every step is a key. What the tests read of the page they read as it is shown; what has the focus must show that it has.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from memory.models import Candidate
from retention.models import Hold
from tenants.actors import MemberRole
from tenants.isolation import Role, tenant_transaction
from tests.browser.serving import Site
from tests.browser.test_desk import carried_out, furnished, required, sound
from tests.browser.test_pages import Desk, desk_of
from tests.browser.test_procedures import FIRST, SECOND
from tests.memory.procedure_doors import Procedures
from tests.organisation import Organisation, Person, new_organisation

pytestmark = pytest.mark.browser

#: By what a person tells what has the focus: its label, its words, what it is called.
_NAME = """
at => [at.getAttribute('aria-label'), ...[...(at.labels ?? [])].map(each => each.innerText),
  at.matches('a, button, summary') ? at.innerText : '', at.title, at.querySelector('img')?.alt,
  at.getAttribute('type') === 'submit' ? at.value : '', at.getAttribute('name'), at.id].filter(Boolean).join(' | ')
"""
#: An outline or a ring, drawn by the page or by the browser, where the element can be seen.
_SHOWS = """
at => { const style = getComputedStyle(at), box = at.getBoundingClientRect();
  const drawn = style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) > 0 || style.boxShadow !== 'none';
  return drawn && box.right > 0 && box.bottom > 0 && box.left < innerWidth && box.top < innerHeight; }
"""


@dataclass
class Keys:
    """Somebody who has a keyboard and nothing else."""

    desk: Desk

    @property
    def page(self) -> Any:
        return self.desk.page

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)

    def type(self, text: str) -> None:
        self.page.keyboard.type(text)

    def wait(self, selector: str) -> None:
        self.page.wait_for_selector(selector)

    def at(self) -> str:
        """Return what has the focus, by name."""
        focus = self.page.locator(":focus")
        return str(focus.first.evaluate(_NAME)) if focus.count() else ""

    def to(self, name: str, *, back: bool = False, most: int = 150) -> None:
        """Press Tab until what is called `name` has the focus. Whatever has it on the way must show so."""
        passed: list[str] = []
        for _ in range(most):
            self.press("Shift+Tab" if back else "Tab")
            focus = self.page.locator(":focus")
            if not focus.count():
                continue
            assert focus.first.evaluate(_SHOWS), f"nobody sees that it has the focus: {self.at()!r} on {self.page.url}"
            passed.append(self.at())
            if name in passed[-1]:
                return
        raise AssertionError(f"no Tab leads to {name!r} on {self.page.url}, only to {passed}")

    def follow(self, name: str, *, back: bool = False) -> None:
        """Go to a link or a button and press it: it leads to another page."""
        self.to(name, back=back)
        with self.page.expect_navigation():
            self.press("Enter")
        self.page.wait_for_load_state("load")

    def choose(self, name: str, letters: str) -> None:
        """Go to a list and choose in it by the first letters of what is wanted."""
        self.to(name)
        self.type(letters)

    def sign_in(self, person: Person) -> None:
        self.desk.open("/admin/login/")
        self.to("username")
        self.type(person.username)
        self.to("password")
        self.type(person.password)
        with self.page.expect_navigation():
            self.press("Enter")
        self.page.wait_for_load_state("load")

    def seen(self, folder: Path, name: str) -> None:
        """Take a picture in light and one in dark."""
        for theme in ("light", "dark", "light"):
            if "/admin/desk/" in self.page.url:
                self.page.evaluate(f"document.documentElement.dataset.theme = '{theme}'")
            else:
                self.desk.in_dark(theme == "dark")
            self.desk.picture(folder, f"keyboard-{name}-{theme}", whole=False)
            sound(self.desk)

    def leave(self) -> None:
        assert not self.desk.complaints, self.desk.complaints
        self.page.context.close()


def keys_of(browser: Any, site: Site, person: Person) -> Keys:
    keys = Keys(desk_of(browser, site))
    keys.page.set_default_timeout(10_000)
    keys.page.set_viewport_size({"width": 1280, "height": 900})
    keys.sign_in(person)
    return keys


@pytest.fixture(scope="module")
def acme(database: Any) -> Organisation:
    return furnished("keyboard")


def test_a_reviewer_confirms_ten_facts_settles_a_conflict_and_marks_words_that_go(
    browser: Any, site: Site, acme: Organisation, pictures: Path
) -> None:
    keys = keys_of(browser, site, acme.person(MemberRole.REVIEWER))
    keys.follow("Review desk")
    keys.press("?")
    keys.wait("#sheet[open]")
    keys.seen(pictures, "sheet")
    keys.press("Escape")
    keys.press("m")
    keys.wait("body.claimed #pane .change")
    for _ in range(10):
        item = keys.page.get_attribute("#pane", "data-item")
        keys.press("a", "Control+Enter")
        keys.wait(f"body.claimed #pane:not([data-item='{item}'])")
    assert keys.page.inner_text("#progress").startswith("10 done today")
    keys.seen(pictures, "ten-confirmed")

    # What is left rests on a message of which some words are nobody's to keep.
    keys.wait("body.claimed pre[data-marks]")
    keys.press("w")
    keys.wait("pre.marks:focus .word.at")
    keys.press("End")
    while keys.page.inner_text(".word.at") != "second":
        keys.press("ArrowLeft")
    keys.press("Shift+ArrowRight")
    assert keys.page.locator(".word[aria-selected=true]").all_inner_texts() == ["second", "floor"]
    keys.press("Enter")
    assert "reason" in keys.at()
    keys.press("ArrowDown")
    keys.wait(".foreseen li")
    keys.seen(pictures, "words")
    keys.press("Control+Enter")
    keys.wait("#told:has-text('proposed for redaction')")
    ((left, spans),) = required(acme)
    assert (left, spans[1] - spans[0]) == ("null", len("second floor"))
    carried_out(keys.desk)

    keys.follow("Conflicts", back=True)
    keys.press("m")
    keys.wait("body.claimed #pane del")
    keys.press("a")
    keys.seen(pictures, "conflict")
    keys.press("Control+Enter")
    keys.wait("#undo:not([hidden])")
    carried_out(keys.desk)
    # The page asks for what is put off to be carried out once its ten seconds are over.
    for _ in range(40):
        with tenant_transaction(Role.STAFF, tenant=acme.id):
            settled = list(Candidate.objects.filter(tenant_id=acme.id, state="accepted").select_related("attribute"))
        if len(settled) == 11:
            break
        keys.page.wait_for_timeout(250)
    assert len(settled) == 11
    assert sum(str(each.attribute and each.attribute.name) == "home_airport" for each in settled) == 1
    keys.leave()


def test_a_privacy_officer_opens_a_matter_places_a_hold_and_answers_a_redaction(
    browser: Any, site: Site, acme: Organisation, pictures: Path
) -> None:
    keys = keys_of(browser, site, acme.person(MemberRole.PRIVACY_OFFICER))
    keys.follow("Matters")
    keys.follow("Open a matter")
    keys.to("Case number")
    keys.type("2031/118")
    keys.choose("Because of", "lit")
    keys.follow("Open it")
    keys.to("Subject, by name or id")
    keys.type("guest-1")
    keys.follow("Count what it covers")
    keys.to("Subject, by name or id")
    assert keys.page.locator(":focus").input_value() == "guest-1"
    keys.seen(pictures, "hold-foreseen")
    keys.follow("Place the hold")
    keys.seen(pictures, "hold-placed")
    with tenant_transaction(Role.STAFF, tenant=acme.id):
        assert Hold.objects.filter(tenant_id=acme.id, state="active").count() == 1

    keys.follow("Review desk")
    keys.follow("Redactions")
    keys.press("m")
    keys.wait("body.claimed")
    keys.press("a")
    keys.seen(pictures, "redaction")
    keys.press("Control+Enter")
    keys.page.wait_for_load_state("networkidle")
    carried_out(keys.desk)
    keys.leave()


def test_an_approver_makes_a_version_active_and_takes_it_back(browser: Any, site: Site, pictures: Path) -> None:
    procedures = Procedures(new_organisation())
    procedures.promoted(FIRST)
    procedures.propose(SECOND)
    keys = keys_of(browser, site, procedures.organisation.person(MemberRole.APPROVER))
    keys.follow("Versions of procedures")
    keys.follow("procedureversion ")
    keys.press("v")
    keys.wait("pre ins")
    keys.press("a")
    assert "Reason" in keys.at() or "reason" in keys.at()
    keys.seen(pictures, "version")
    with keys.page.expect_navigation():
        keys.press("Control+Enter")
    assert procedures.read()["body"] == SECOND
    keys.press("d")
    keys.seen(pictures, "version-active")
    with keys.page.expect_navigation():
        keys.press("Control+Enter")
    assert procedures.read()["body"] == FIRST
    keys.seen(pictures, "version-taken-back")
    keys.leave()


def test_with_single_keys_off_no_letter_acts_on_any_page_and_tab_leads_to_every_act(browser: Any, site: Site) -> None:
    keys = keys_of(browser, site, furnished("letters").person(MemberRole.REVIEWER))
    keys.follow("Review desk")
    keys.press("?")
    keys.wait("#sheet[open]")
    keys.to("single")
    keys.press("Space")
    keys.wait("#told:has-text('Single keys are off')")
    keys.press("Escape")
    keys.press("m", "a", "d")
    assert keys.page.locator("body.claimed").count() == 0
    keys.follow("Muniment", back=True)
    keys.follow("Candidates")
    keys.follow("candidate ")
    shown = keys.page.url
    keys.press("v", "j")
    keys.page.wait_for_timeout(300)
    assert keys.page.url == shown
    assert keys.page.locator("mark").count() == 0
    keys.follow("Show what this is about")
    keys.wait("mark")
    keys.leave()


def test_the_first_tab_of_every_page_leads_past_what_stands_on_all_of_them(
    browser: Any, site: Site, acme: Organisation
) -> None:
    keys = keys_of(browser, site, acme.person(MemberRole.REVIEWER))
    for path in ("/admin/", "/admin/memory/candidate/", "/admin/desk/facts/"):
        keys.desk.open(path)
        keys.press("Tab")
        assert keys.at().startswith("To the "), (path, keys.at())
        keys.press("Enter", "Tab")
        assert keys.page.locator("main :focus, #content :focus").count() == 1, (path, keys.at())
    keys.leave()
