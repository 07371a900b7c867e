"""The review desk in a real browser: by keyboard alone, in light and dark, and with nothing masked in what it was sent."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from memory.models import Candidate
from retention.models import RedactionItem
from tenants.actors import MemberRole, Scope
from tenants.isolation import Role, tenant_transaction
from tests.browser.organisation import HOSTILE
from tests.browser.serving import Site
from tests.browser.test_pages import Desk, desk_of
from tests.organisation import Organisation, new_organisation
from tests.paths.ledger import Ledger, publish, publish_policy

pytestmark = pytest.mark.browser

ATTRIBUTES: list[dict[str, Any]] = [
    {"name": "passport_deadline", "schema": {"type": "string", "format": "date"}, "confirm": "always", "basis": "contract"},
    {"name": "shipping_address", "schema": {"type": "string", "maxLength": 2000}, "confirm": "always", "basis": "contract"},
    {"name": "emergency_contact", "schema": {"type": "string"}, "confirm": "always"},
    {"name": "travel_dates", "schema": {"type": "string"}, "confirm": "always", "basis": "contract"},
    {"name": "dietary_restriction", "schema": {"type": "string"}, "confirm": "always", "sensitivity": "restricted",
     "basis": "contract"},
    {"name": "home_airport", "schema": {"type": "string"}, "conflict": "review", "basis": "contract"},
]  # fmt: skip

#: What was said. None of it may reach a browser before its claim or its reveal.
SECRETS = ("canary-alameda", "canary-coeliac", "2031-06-30", "2031-07-15", "canary-porto", "canary.mira@example.com")


def furnished(name: str) -> Organisation:
    """A tenant whose people have things to decide."""
    organisation = new_organisation()
    publish_policy(organisation)
    publish(organisation, ATTRIBUTES)
    bot = Ledger(organisation.agent("support-bot", trust=40, scopes=frozenset(Scope)))
    now = datetime.now(UTC).replace(microsecond=0)

    def said(
        subject: str, attribute: str, value: Any, text: str, quote: str, days: float, turn: int, status: int = 202
    ) -> None:
        at = (now - timedelta(days=days)).isoformat()
        kept = bot.post("/episodes/", {"kind": "message", "role": "user", "session_id": "2231", "turn_id": f"turn-{turn}",
                        "subject": subject, "content": text, "occurred_at": at, "extract": "no"})  # fmt: skip
        assert kept.status_code == 201, kept.content
        bot.said(subject, attribute, value, status=status, valid_from=at, provenance={
            "turn_id": f"turn-{turn}", "source_episode": kept.json()["id"], "source": "quote", "quote": quote})  # fmt: skip

    bot.said("mira.sousa", "passport_deadline", "2031-07-15", status=202, valid_from=(now - timedelta(days=20)).isoformat(),
             provenance={"turn_id": "turn-1"})  # fmt: skip
    organisation.held = _first(organisation)  # type: ignore[attr-defined]
    said("mira.sousa", "passport_deadline", "2031-06-30", "Hi, this is Mira again, about the trip. Mira corrected the "
         "deadline. It is now 2031-06-30. You can reach me on +351 912 345 678 or canary.mira@example.com. " + HOSTILE,
         "Mira corrected the deadline. It is now 2031-06-30.", 2, 18)  # fmt: skip
    for place in range(10):
        said(f"guest-{place}", ("shipping_address", "emergency_contact", "travel_dates")[place % 3],
             f"{place} Rua canary-alameda", f"Please note: {place} Rua canary-alameda, second floor. Thank you!",
             f"{place} Rua canary-alameda", 1, 30 + place)  # fmt: skip
    said("guest-3", "dietary_restriction", "canary-coeliac", "I am canary-coeliac, so no gluten please.",
         "I am canary-coeliac", 1, 50)  # fmt: skip
    said("mira.sousa", "home_airport", "canary-lisbon", "I fly from canary-lisbon, most of the time.",
         "I fly from canary-lisbon", 9, 60, status=201)  # fmt: skip
    said("mira.sousa", "home_airport", "canary-porto", "These days I fly from canary-porto. Call +351 912 345 678.",
         "I fly from canary-porto", 9, 61)  # fmt: skip
    return organisation


def _first(organisation: Organisation) -> str:
    with tenant_transaction(Role.STAFF, tenant=organisation.id):
        return str(Candidate.objects.filter(state="asked").order_by("id").first().id)  # type: ignore[union-attr]


@pytest.fixture(scope="module")
def acme(database: Any) -> Organisation:
    return furnished("desk")


@pytest.fixture
def desk(browser: Any, site: Site, acme: Organisation) -> Iterator[Desk]:
    made = desk_of(browser, site, acme.person(MemberRole.REVIEWER))
    yield made
    made.page.context.close()


def pictured(desk: Desk, folder: Path, name: str, *, whole: bool = False) -> None:
    for theme in ("light", "dark"):
        desk.page.evaluate(f"document.documentElement.dataset.theme = '{theme}'")
        desk.picture(folder, f"{name}-{theme}", whole=whole)
        sound(desk)
    desk.page.evaluate("document.documentElement.dataset.theme = 'light'")


def carried_out(desk: Desk) -> None:
    """What was decided last can no longer be taken back."""
    desk.page.wait_for_selector("#undo", state="hidden", timeout=15_000)
    desk.page.wait_for_load_state("networkidle")


def sound(desk: Desk) -> None:
    """Nothing that axe calls serious."""
    from axe_playwright_python.sync_playwright import Axe

    found = [
        f"{each['id']}: {each['nodes'][0]['html'][:160]} {each['nodes'][0].get('failureSummary', '')[:200]}"
        for each in Axe().run(desk.page).response["violations"]
        if each["impact"] in ("serious", "critical")
    ]
    assert not found, "\n".join(found)


def test_ten_facts_are_confirmed_by_keyboard_alone(desk: Desk, pictures: Path, acme: Organisation) -> None:
    page, sent = desk.page, []
    page.set_viewport_size({"width": 1440, "height": 900})
    page.on("response", lambda answer: sent.append(answer))
    source = desk.open("/admin/desk/facts/")
    assert not [each for each in SECRETS if each in source]
    pictured(desk, pictures, "desk-open")
    page.keyboard.press("j")
    page.wait_for_selector(".notice")
    assert not [each for each in SECRETS if each in page.content()]
    pictured(desk, pictures, "desk-masked")
    page.keyboard.press("k")
    page.keyboard.press("m")
    page.wait_for_selector("body.claimed")
    for place in range(10):
        item = page.get_attribute("#pane", "data-item")
        page.keyboard.press("a")
        page.wait_for_selector("form.act[data-act=confirm]:not([hidden])")
        if place == 1:
            pictured(desk, pictures, "desk-item")
        page.keyboard.press("Control+Enter")
        page.wait_for_selector(f"body.claimed #pane:not([data-item='{item}'])")
    assert page.inner_text("#progress").startswith("10 done today")
    carried_out(desk)
    with tenant_transaction(Role.STAFF, tenant=acme.id):
        assert Candidate.objects.filter(tenant_id=acme.id, state="accepted").count() == 10
    assert not desk.complaints, desk.complaints


def test_nothing_masked_reaches_a_browser_before_its_claim_and_the_rest_stays_masked(
    browser: Any, site: Site, pictures: Path
) -> None:
    organisation = furnished("masked")
    desk = desk_of(browser, site, organisation.person(MemberRole.REVIEWER))
    page, sent = desk.page, []
    page.on("response", lambda answer: sent.append(answer) if "/admin/" in answer.url else None)
    desk.open("/admin/desk/facts/")
    for _ in range(12):
        page.keyboard.press("j")
        page.wait_for_timeout(60)
    page.wait_for_selector(".notice")
    said = [answer.text() for answer in sent] + [page.content(), page.url, page.title()]
    assert not [(secret, text[:80]) for secret in SECRETS for text in said if secret in text]
    # The last is restricted: a claim does not show it either.
    page.keyboard.press("m")
    page.wait_for_selector("body.claimed")
    assert page.locator("#pane .badge.restricted").count() == 1
    said = [answer.text() for answer in sent] + [page.content()]
    assert not [secret for secret in SECRETS for text in said if secret in text]
    page.keyboard.press("a")
    assert "reveal it first" in page.inner_text("#told")
    page.keyboard.press("v")
    page.fill("form.act[data-act=reveal] input[name=case]", "CASE-7")
    page.keyboard.press("Control+Enter")
    page.wait_for_selector(".revealed")
    assert "canary-coeliac" in page.inner_text("#pane")
    pictured(desk, pictures, "desk-revealed")
    page.evaluate("document.querySelectorAll('.clear').length")
    assert not desk.complaints, desk.complaints
    page.context.close()


def test_two_reviewers_in_two_browsers_decide_nothing_twice_and_lose_nothing(browser: Any, site: Site) -> None:
    organisation = furnished("two")
    desks = [desk_of(browser, site, organisation.person(MemberRole.REVIEWER)) for _ in range(2)]
    for desk in desks:
        desk.open("/admin/desk/facts/")
        desk.page.keyboard.press("m")
        desk.page.wait_for_selector("body.claimed")
    assert len({desk.page.get_attribute("#pane", "data-item") for desk in desks}) == 2
    for _ in range(30):
        for desk in desks:
            page = desk.page
            if (
                page.locator("body.claimed #pane .change").count()
                and not page.locator("#pane .badge.restricted").count()
            ):
                page.keyboard.press("a")
                page.keyboard.press("Control+Enter")
        for desk in desks:
            desk.page.wait_for_load_state("networkidle")
            desk.page.wait_for_timeout(150)
    for desk in desks:
        carried_out(desk)
    # Each page asks for its last decision to be carried out once the ten seconds are over.
    for _ in range(40):
        with tenant_transaction(Role.STAFF, tenant=organisation.id):
            accepted = Candidate.objects.filter(tenant_id=organisation.id, state="accepted").count()
        if accepted == 12:
            break
        desks[0].page.wait_for_timeout(250)
    assert accepted == 12
    with tenant_transaction(Role.STAFF, tenant=organisation.id):
        those = Candidate.objects.filter(tenant_id=organisation.id, state="accepted")
        assert those.values("decided_by").distinct().count() == 2
        left = Candidate.objects.filter(tenant_id=organisation.id, state="asked").count()
    assert left == 2
    for desk in desks:
        # That an item changed since it was shown is an answer of 409, which the browser notes.
        assert not [each for each in desk.complaints if "409" not in each], desk.complaints
        desk.page.context.close()


def test_a_conflict_several_at_once_and_the_key_sheet_are_seen_in_light_and_dark_and_on_a_phone(
    browser: Any, site: Site, pictures: Path
) -> None:
    organisation = furnished("seen")
    desk = desk_of(browser, site, organisation.person(MemberRole.REVIEWER))
    page = desk.page
    page.set_viewport_size({"width": 1440, "height": 900})
    desk.open("/admin/desk/conflicts/")
    page.keyboard.press("m")
    page.wait_for_selector("body.claimed")
    assert page.inner_text("#pane del") == "lisbon"
    pictured(desk, pictures, "desk-conflict")
    page.keyboard.press("Shift+?")
    page.wait_for_selector("#sheet[open]")
    pictured(desk, pictures, "desk-keys")
    page.keyboard.press("Escape")
    desk.open("/admin/desk/facts/")
    page.keyboard.press("j")
    page.keyboard.press(" ")
    page.keyboard.press("Shift+J")
    page.keyboard.press("Shift+J")
    page.wait_for_selector("#picked")
    page.keyboard.press("b")
    page.check("#several input[value=reject]")
    page.click("#several [data-step=look]")
    page.wait_for_selector("#several [data-step=do]:not([hidden])")
    assert "3 will change" in page.inner_text("#several-outcome")
    pictured(desk, pictures, "desk-several")
    page.click("#several [data-step=do]")
    page.wait_for_selector("#several-outcome:has-text('3 done')")
    page.click("#several [data-close]")
    # What was open is gone, and the next has come by itself.
    page.wait_for_selector("body.claimed #pane .change")
    page.wait_for_load_state("networkidle")
    page.set_viewport_size({"width": 390, "height": 800})
    page.keyboard.press("a")
    pictured(desk, pictures, "desk-phone", whole=True)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth + 1")
    page.click("form.act[data-act=confirm] button[type=submit]")
    page.wait_for_selector("#told:has-text('Confirmed')")
    page.wait_for_load_state("networkidle")
    assert not desk.complaints, desk.complaints
    page.context.close()


def test_with_single_keys_off_no_letter_acts_and_every_button_does(browser: Any, site: Site) -> None:
    organisation = furnished("off")
    desk = desk_of(browser, site, organisation.person(MemberRole.REVIEWER))
    page = desk.page
    desk.open("/admin/desk/facts/")
    page.click("#help")
    page.uncheck("#single")
    page.wait_for_selector("#told:has-text('Single keys are off')")
    page.click("#sheet [data-close]")
    for key in ("m", "j", "a", "d"):
        page.keyboard.press(key)
    assert page.locator("body.claimed").count() == 0
    page.click("[data-do=claim]")
    page.wait_for_selector("body.claimed")
    page.click("#acts [data-act=confirm]")
    page.click("form.act[data-act=confirm] button[type=submit]")
    page.wait_for_selector("#told:has-text('Confirmed')")
    page.wait_for_selector("body.claimed #pane .change")
    page.wait_for_load_state("networkidle")
    desk.open("/admin/desk/facts/")
    assert page.get_attribute("body", "data-single") == "off"
    assert not desk.complaints, desk.complaints
    page.context.close()


def opened_second(desk: Desk) -> None:
    """Claim the proposal that rests on a message, by keyboard."""
    page = desk.page
    desk.open("/admin/desk/facts/")
    page.keyboard.press("j")
    page.wait_for_selector(".notice")
    page.keyboard.press("m")
    page.wait_for_selector("body.claimed pre[data-marks]")


def required(organisation: Organisation) -> list[tuple[str, list[int]]]:
    """Return what was picked of episodes: what stays, and which places."""
    with tenant_transaction(Role.STAFF, tenant=organisation.id):
        found = RedactionItem.objects.filter(tenant_id=organisation.id, picked=True, kind="episode").order_by("id")
        return [(each.strategy, list(each.spans)) for each in found]


TEXT = "Hi, this is Mira again, about the trip. Mira corrected the deadline. It is now 2031-06-30. You can reach me on "


def test_words_beside_the_evidence_are_redacted_by_keyboard_alone_and_the_item_waits_on(
    browser: Any, site: Site, pictures: Path
) -> None:
    organisation = furnished("words")
    desk = desk_of(browser, site, organisation.person(MemberRole.REVIEWER))
    page = desk.page
    page.set_viewport_size({"width": 1280, "height": 900})
    opened_second(desk)
    item = page.get_attribute("#pane", "data-item")
    page.keyboard.press("w")
    page.wait_for_selector("pre.marks:focus .word.at")
    page.keyboard.press("Home")
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    assert page.inner_text(".word.at") == "is"
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Shift+ArrowRight")
    page.keyboard.press("Shift+ArrowRight")
    page.keyboard.press("Shift+ArrowLeft")
    assert page.locator(".word[aria-selected=true]").all_inner_texts() == ["Mira", "again"]
    # What is masked can go as well, unseen.
    page.keyboard.press("ArrowDown")
    page.evaluate("document.activeElement.querySelector('.word.at').textContent")
    for _ in range(80):
        if page.inner_text(".word.at") == "PHONE":
            break
        page.keyboard.press("ArrowRight")
    page.keyboard.press(" ")
    assert "3 words are marked" in page.inner_text("output.marked")
    page.wait_for_selector(".foreseen li")
    assert "episode changes" in page.inner_text(".foreseen")
    assert "quote" not in page.inner_text(".foreseen")
    pictured(desk, pictures, "desk-words")
    page.keyboard.press("Enter")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Control+Enter")
    page.wait_for_selector("#told:has-text('proposed for redaction')")
    begin, phone = TEXT.index("Mira"), len(TEXT)
    assert required(organisation) == [
        ("null", [begin, begin + len("Mira again"), phone, phone + len("+351 912 345 678")])
    ]
    # The evidence stands without it: the same item is there to be decided, under the same claim.
    page.wait_for_selector(f"body.claimed #pane[data-item='{item}'] .change")
    page.wait_for_load_state("networkidle")
    assert page.get_attribute("#pane", "data-item") == item
    assert not desk.complaints, desk.complaints
    page.context.close()


def test_words_of_the_evidence_are_marked_by_mouse_and_the_proposal_goes_with_them(
    browser: Any, site: Site, pictures: Path
) -> None:
    organisation = furnished("mouse")
    desk = desk_of(browser, site, organisation.person(MemberRole.REVIEWER))
    page = desk.page
    page.set_viewport_size({"width": 1440, "height": 900})
    opened_second(desk)
    item = page.get_attribute("#pane", "data-item")
    page.click("#acts [data-act=redact]")
    page.check("form.act[data-act=redact] input[value=words]")
    assert page.locator("form.act[data-act=redact] button[type=submit]").is_visible()
    page.click("form.act[data-act=redact] button[type=submit]")
    page.check("form.act[data-act=redact] input[value=third_party]")
    page.click("form.act[data-act=redact] button[type=submit]")
    page.wait_for_selector(".foreseen:has-text('Mark the words')")
    first, last = page.locator("mark .word").nth(0), page.locator("mark .word").nth(3)
    first.hover()
    page.mouse.down()
    last.hover()
    page.mouse.up()
    assert page.locator(".word[aria-selected=true]").all_inner_texts() == ["Mira", "corrected", "the", "deadline"]
    page.select_option("form.act[data-act=redact] select[name=strategy]", "mask")
    page.wait_for_selector(".foreseen:has-text('quote')")
    pictured(desk, pictures, "desk-words-mouse")
    page.click("form.act[data-act=redact] button[type=submit]")
    page.wait_for_selector(f"body.claimed #pane:not([data-item='{item}'])")
    begin = TEXT.index("Mira corrected")
    assert required(organisation) == [("mask", [begin, begin + len("Mira corrected the deadline")])]
    with tenant_transaction(Role.STAFF, tenant=organisation.id):
        assert Candidate.objects.get(id=item).redaction_state == "required"
    # That nothing was marked is an answer of 422, which the browser notes.
    assert not [each for each in desk.complaints if "422" not in each], desk.complaints
    page.context.close()


def test_the_last_decision_is_taken_back_by_a_key_within_ten_seconds_and_not_after(
    browser: Any, site: Site, pictures: Path
) -> None:
    organisation = furnished("undo")
    desk = desk_of(browser, site, organisation.person(MemberRole.REVIEWER))
    page = desk.page
    page.set_viewport_size({"width": 1280, "height": 800})
    page.emulate_media(reduced_motion="reduce")
    desk.open("/admin/desk/facts/")
    # Not the first two: the second asks the same question, and is shown as it stands after the first.
    for _ in range(3):
        page.keyboard.press("j")
        page.wait_for_timeout(150)
    page.wait_for_selector(".notice")
    page.keyboard.press("m")
    page.wait_for_selector("body.claimed")
    item = page.get_attribute("#pane", "data-item")
    first = page.locator("#rows [role=option]").count()
    page.keyboard.press("d")
    page.keyboard.press(" ")
    page.keyboard.press("Control+Enter")
    page.wait_for_selector(f"body.claimed #pane:not([data-item='{item}'])")
    assert page.inner_text("#undo .what") == "Rejected: emergency_contact."
    assert page.evaluate("getComputedStyle(document.getElementById('undo'), '::after').animationName") == "none"
    # The number runs down in sight, and is not read out each second.
    assert page.get_attribute("#undo .left", "aria-hidden") == "true"
    assert "ten seconds" in page.inner_text("#told")
    pictured(desk, pictures, "desk-undo")
    page.keyboard.press("z")
    page.wait_for_selector(f"body.claimed #pane[data-item='{item}'] .change")
    assert page.locator("#undo").is_hidden()
    page.wait_for_load_state("networkidle")
    assert page.locator("#rows [role=option]").count() == first
    page.wait_for_selector("#progress:has-text('0 done today')")
    page.keyboard.press("a")
    page.keyboard.press("Control+Enter")
    page.wait_for_selector("#undo:not([hidden])")
    carried_out(desk)
    with tenant_transaction(Role.STAFF, tenant=organisation.id):
        assert Candidate.objects.get(id=item).state == "accepted"
    page.keyboard.press("z")
    page.wait_for_selector("#told:has-text('Nothing can be taken back')")
    assert not desk.complaints, desk.complaints
    page.context.close()
