"""Every page of the admin in a real browser, in light and dark: it works, it is quiet, and it shows no content."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from allauth.mfa.totp.internal.auth import format_hotp_value, hotp_value, yield_hotp_counters_from_time
from django.contrib import admin

from tenants.actors import MemberRole
from tenants.isolation import Role, tenant_transaction
from tenants.models import AgentKey, Membership
from tests.browser.organisation import CONTENT, Furnished, furnish
from tests.browser.serving import Site
from tests.organisation import Person

pytestmark = pytest.mark.browser

SIZE = {"width": 1280, "height": 900}


@pytest.fixture(scope="module")
def acme(database: Any) -> Furnished:
    return furnish()


@dataclass
class Desk:
    """A signed-in person's browser, and everything it complained about."""

    page: Any
    site: Site
    complaints: list[str] = field(default_factory=list)

    def complain(self, words: str) -> None:
        self.complaints.append(f"{self.page.url}: {words}")

    def hear(self, said: Any) -> None:
        if said.type in ("error", "warning"):
            self.complain(said.text)

    def watch(self, sent: Any) -> None:
        if not sent.url.startswith((self.site.url, "data:", "blob:")):
            self.complain(f"asked another machine: {sent.url}")

    def sign_in(self, person: Person, *, lands: str = "/admin/") -> None:
        self.open("/admin/login/")
        self.page.fill("input[name=username]", person.username)
        self.page.fill("input[name=password]", person.password)
        self.page.click("button[type=submit]")
        self.page.wait_for_url(f"{self.site.url}{lands}")

    def open(self, path: str, *, status: int = 200) -> str:
        """Open a page and return its source as it was sent."""
        answer = self.page.goto(self.site.url + path, wait_until="load")
        assert answer.status == status, (path, answer.status)
        return str(answer.text())

    def links(self, pattern: str) -> list[str]:
        found = self.page.eval_on_selector_all("a[href]", "links => links.map(link => link.getAttribute('href'))")
        return list(dict.fromkeys(each for each in found if re.search(pattern, each)))

    def miss(self, sent: Any) -> None:
        """Complain of what did not arrive; a page that is left before its icon came did nothing wrong."""
        if not (sent.failure == "net::ERR_ABORTED" and sent.url.endswith("/icon.svg")):
            self.complain(f"failed: {sent.url}")

    def in_dark(self, dark: bool = True) -> None:
        theme = "dark" if dark else "light"
        # After a click that leads to another page its scripts may still be on their way.
        self.page.wait_for_function("window.Alpine !== undefined")
        self.page.evaluate(f"Alpine.$data(document.documentElement).adminTheme = '{theme}'")
        self.page.wait_for_selector(f"html.{theme}")

    def picture(self, folder: Path, name: str, *, whole: bool = True) -> None:
        self.page.screenshot(path=folder / f"{name}.png", full_page=whole, animations="disabled")


def desk_of(browser: Any, site: Site, person: Person | None = None) -> Desk:
    context = browser.new_context(viewport=SIZE, color_scheme="light", reduced_motion="reduce")
    # What the browser itself says of a policy that was broken, as the page would be told.
    context.add_init_script(
        "document.addEventListener('securitypolicyviolation', event =>"
        " console.error(`policy: ${event.violatedDirective} ${event.sourceFile}:${event.lineNumber} ${event.sample}`))"
    )
    page = context.new_page()
    desk = Desk(page, site)
    page.on("console", desk.hear)
    page.on("pageerror", lambda error: desk.complain(str(error)))
    page.on("requestfailed", desk.miss)
    page.on("request", desk.watch)
    if person is not None:
        desk.sign_in(person)
    return desk


@pytest.fixture
def desk(browser: Any, site: Site, acme: Furnished) -> Iterator[Desk]:
    """Of somebody who holds every role."""
    made = desk_of(browser, site, acme.people[MemberRole.TENANT_ADMIN])
    yield made
    made.page.context.close()


def assert_holds_no_content(desk: Desk, source: str, path: str) -> None:
    typed = desk.page.eval_on_selector_all(
        "input, select, option, textarea", "fields => fields.map(field => field.value)"
    )
    for text in CONTENT:
        assert text not in source, path
        assert text not in unquote(desk.page.url), path
        assert not [value for value in typed if text in value], path


#: Of every picture: what is measured in both themes. Text has to be read: 4.5 to 1, 3 to 1 where it is large.
_UNFIT = """
() => {
  const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const parse = text => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = text; canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data; return [r, g, b, a / 255]; };
  const luminance = rgb => { const [r, g, b] = rgb.map(v => v / 255).map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
    return .2126 * r + .7152 * g + .0722 * b; };
  const over = (top, under) => [0, 1, 2].map(i => top[i] * top[3] + under[i] * (1 - top[3]));
  const ground = element => { const layers = [];
    for (let at = element; at; at = at.parentElement) layers.push(parse(getComputedStyle(at).backgroundColor));
    return layers.reverse().reduce((under, layer) => over(layer, under), [255, 255, 255]); };
  const found = [];
  for (const field of document.querySelectorAll('input:not([type=hidden]), select, textarea'))
    if (!field.labels?.length && !field.getAttribute('aria-label') && !field.getAttribute('aria-labelledby') && field.checkVisibility())
      found.push('no label: ' + (field.name || field.id));
  for (const act of document.querySelectorAll('.m-page button, .m-page a[href]'))
    if (!act.textContent.trim() && !act.getAttribute('aria-label') && !act.querySelector('title')) found.push('no name: ' + act.outerHTML.slice(0, 80));
  for (const box of document.querySelectorAll('.m-page')) {
    const walk = document.createTreeWalker(box, NodeFilter.SHOW_TEXT);
    while (walk.nextNode()) {
      const element = walk.currentNode.parentElement;
      if (!walk.currentNode.data.trim() || element.closest('svg, option, .material-symbols-outlined, [aria-hidden]') || !element.checkVisibility()) continue;
      const style = getComputedStyle(element), size = parseFloat(style.fontSize);
      const behind = ground(element), front = over(parse(style.color), behind);
      const [high, low] = [luminance(front), luminance(behind)].sort((a, b) => b - a), ratio = (high + .05) / (low + .05);
      const large = size >= 24 || (size >= 18.6 && +style.fontWeight >= 700);
      if (ratio < (large ? 3 : 4.5)) found.push(`contrast ${ratio.toFixed(2)}: ${walk.currentNode.data.trim().slice(0, 40)}`);
    }
  }
  if (document.documentElement.scrollWidth > innerWidth + 1) found.push(`wider than the window: ${document.documentElement.scrollWidth}`);
  return [...new Set(found)];
}
"""


def unsound(desk: Desk, *, contrast_alone: bool = False) -> list[str]:
    """Return what axe calls serious or critical on the page as it is now, by rule and by what breaks it."""
    from axe_playwright_python.sync_playwright import Axe

    options = {"runOnly": ["color-contrast"]} if contrast_alone else {}
    found = Axe().run(desk.page, options=options).response["violations"]
    return [
        f"{each['id']}: {node['html'][:140]}"
        for each in found
        if each["impact"] in ("serious", "critical")
        for node in each["nodes"]
    ]


def look(desk: Desk, pictures: Path, path: str, name: str) -> None:
    """See a page in both themes; it must be quiet, hold no content, and be fit to be read, by whatever means."""
    source = desk.open(path)
    assert_holds_no_content(desk, source, path)
    for dark in (False, True):
        desk.in_dark(dark)
        desk.picture(pictures, f"{name}-{'dark' if dark else 'light'}")
        unfit = desk.page.evaluate(_UNFIT)
        assert not unfit, (path, dark, unfit)
        # A theme changes colours and nothing else.
        serious = unsound(desk, contrast_alone=dark)
        assert not serious, (path, dark, serious)
    desk.in_dark(False)


def name_of(path: str) -> str:
    plain = re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}", "row", path.partition("?")[0])
    return plain.removeprefix("/admin/").strip("/").replace("/", "-") or "overview"


def test_every_page_is_seen_in_light_and_dark_without_a_complaint_and_without_content(
    desk: Desk, pictures: Path, acme: Furnished
) -> None:
    look(desk, pictures, "/admin/", "overview")
    look(desk, pictures, f"/admin/memory/subject/{acme.subject}/change/", "subject")
    then = (datetime.now(UTC) - timedelta(days=8)).strftime("%Y-%m-%dT%H:%M:%S")
    look(desk, pictures, f"/admin/memory/subject/{acme.subject}/change/?known_at={then}", "subject-then")
    look(desk, pictures, f"/admin/memory/candidate/{acme.candidate}/change/", "candidate")
    models = sorted(model._meta.label_lower.replace(".", "/") for model in admin.site._registry)
    empty = []
    for model in models:
        if model == "tenants/user":
            continue
        path = f"/admin/{model}/"
        look(desk, pictures, path, name_of(path))
        rows = desk.links(rf"^/admin/{model}/[0-9a-f-]{{36}}/change/$")
        if not rows:
            empty.append(model)
            continue
        look(desk, pictures, rows[0], name_of(rows[0]))
        history = desk.links(r"history/$")
        if history:
            look(desk, pictures, history[0], name_of(history[0]))
    assert not empty
    assert not desk.complaints, "\n".join(desk.complaints)


def test_handing_out_access_is_seen_in_light_and_dark_and_a_secret_is_shown_once(
    desk: Desk, pictures: Path, acme: Furnished
) -> None:
    page, tenant = desk.page, acme.organisation
    agent = tenant.agents["support-bot"]
    with tenant_transaction(Role.STAFF, tenant=tenant.id):
        reviewer = acme.people[MemberRole.REVIEWER].actor.id
        membership = Membership.objects.get(user_id=reviewer).id
        history = AgentKey.objects.get(agent_id=agent.actor.id).id
    look(desk, pictures, f"/admin/tenants/agent/{agent.actor.id}/history/", "agent-history")
    for path, name in (
        ("agent/register", "agent-register"),
        (f"agent/{agent.actor.id}/key", "agent-key"),
        (f"agentkey/{history}/rotate", "agentkey-rotate"),
        (f"agentkey/{history}/revoke", "agentkey-revoke"),
        ("membership/invite", "member-invite"),
        (f"membership/{membership}/remove", "member-remove"),
    ):
        look(desk, pictures, f"/admin/tenants/{path}/", name)
    desk.open(f"/admin/tenants/agent/{agent.actor.id}/key/")
    page.click("text=Issue the key")
    page.wait_for_selector("#secret")
    secret = page.inner_text("#secret")
    for dark in (False, True):
        desk.in_dark(dark)
        desk.picture(pictures, f"key-shown-{'dark' if dark else 'light'}")
        assert not page.evaluate(_UNFIT)
    desk.in_dark(False)
    assert secret not in page.url
    page.click("text=I have kept it")
    assert secret.partition(".")[2] not in page.content()
    assert not desk.complaints, desk.complaints


def test_a_second_factor_is_set_up_and_asked_for_in_light_and_dark(
    browser: Any, site: Site, acme: Furnished, pictures: Path
) -> None:
    person = acme.organisation.person(MemberRole.AUDITOR)
    desk = desk_of(browser, site)
    look(desk, pictures, "/admin/login/", "sign-in")
    desk.sign_in(person)
    page = desk.page
    look(desk, pictures, "/admin/second-factor/", "second-factor-none")
    look(desk, pictures, "/admin/password_change/", "password-change")
    look(desk, pictures, "/admin/second-factor/app/", "second-factor-set-up")
    # Each look at the page makes a new key.
    desk.open("/admin/second-factor/app/")
    secret = page.inner_text(".m-secret")
    now = list(yield_hotp_counters_from_time())[1]
    page.fill("input[name=code]", format_hotp_value(hotp_value(secret, now)))
    page.click("text=Turn it on")
    page.wait_for_selector(".m-codes")
    for dark in (False, True):
        desk.in_dark(dark)
        desk.picture(pictures, f"recovery-codes-{'dark' if dark else 'light'}")
        assert not page.evaluate(_UNFIT)
    desk.in_dark(False)
    recovery = page.inner_text(".m-codes li:first-child")
    page.click("text=I have kept them")
    look(desk, pictures, "/admin/second-factor/", "second-factor")
    look(desk, pictures, "/admin/second-factor/app/remove/", "second-factor-remove")
    page.context.clear_cookies()
    desk.sign_in(person, lands="/admin/login/code/")
    look(desk, pictures, "/admin/login/code/", "second-step")
    page.fill("input[name=code]", recovery)
    page.click("button[type=submit]")
    page.wait_for_url(f"{site.url}/admin/")
    look(desk, pictures, "/admin/again/code/", "again")
    assert not desk.complaints, desk.complaints
    page.context.close()


def test_a_reviewer_sees_hostile_text_made_visible_and_decides_with_the_keyboard(
    browser: Any, site: Site, acme: Furnished, pictures: Path
) -> None:
    desk = desk_of(browser, site, acme.people[MemberRole.REVIEWER])
    page = desk.page
    source = desk.open(f"/admin/memory/candidate/{acme.candidate}/change/")
    assert_holds_no_content(desk, source, "candidate")
    page.keyboard.press("v")
    page.wait_for_selector("mark")
    assert page.inner_text("mark") == "I corrected the deadline. It is now 2031-06-30."
    assert page.locator(".m-value ins").all_inner_texts() == ["06", "30"]
    assert page.locator(".m-value del").all_inner_texts() == ["07", "15"]
    text = page.inner_text(".m-text")
    assert "<script>document.title='taken'</script>" in text
    assert "{{ 7 * 7 }}" in text
    assert page.locator(".m-unseen").all_inner_texts() == ["U+202E", "U+202C"]
    assert page.title() != "taken"
    assert page.locator(".m-text a").count() == 0
    for dark in (False, True):
        desk.in_dark(dark)
        desk.picture(pictures, f"candidate-shown-{'dark' if dark else 'light'}")
        assert not page.evaluate(_UNFIT)
    desk.in_dark(False)
    page.keyboard.press("a")
    page.keyboard.press("Control+Enter")
    page.wait_for_selector("text=was confirmed")
    # The next one that waits came by itself.
    assert re.search(r"/admin/memory/candidate/[0-9a-f-]{36}/change/$", page.url)
    assert not desk.complaints, desk.complaints
    page.context.close()


@pytest.mark.parametrize("model", ["policies/decisionrequest", "memory/procedureversion", "retention/redactionrequest"])
def test_what_waits_for_a_second_person_is_decided_on_a_phone(desk: Desk, pictures: Path, model: str) -> None:
    desk.open(f"/admin/{model}/")
    (row, *_) = desk.links(rf"^/admin/{model}/[0-9a-f-]{{36}}/change/$")
    desk.page.set_viewport_size({"width": 390, "height": 844})
    desk.open(row)
    desk.picture(pictures, f"{name_of(row)}-phone")
    assert not desk.page.evaluate(_UNFIT), row
    assert not unsound(desk), row
    assert not desk.complaints, desk.complaints
