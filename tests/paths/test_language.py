"""In which language pages and programs are answered, and that no word of a page escapes the catalogue."""

import re
from collections.abc import Iterator
from gettext import NullTranslations
from html.parser import HTMLParser
from typing import Any

import pytest
from django.conf import settings as in_force
from django.test import Client
from django.urls import reverse
from django.utils import translation
from django.utils.translation import trans_real

from tenants.actors import MemberRole, Scope
from tests.memory.test_admin import MODELS, fill, first_row, seen
from tests.organisation import Api
from tests.paths.ledger import CANARY, publish

# programs -------------------------------------------------------------------------------------------------------------


def test_programs_are_answered_in_english_whatever_they_accept(tenant: Any, api: Api) -> None:
    wrong = {"subject": "ada", "attribute": 7}
    for path, body in (("/api/v1/facts/", wrong), ("/api/v1/facts/", b"{"), ("/api/v1/nothing/", {})):
        plain = api.send("POST", path, body).json()
        german = api.send("POST", path, body, accept_language="de", cookie="django_language=de").json()
        assert {**plain, "request_id": ""} == {**german, "request_id": ""}
        assert plain["detail"].isascii()


def test_a_page_in_german_leaves_the_thread_english_for_the_program_after_it(tenant: Any, api: Api) -> None:
    client = tenant.person(MemberRole.REVIEWER).signed_in()
    before = api.send("POST", "/api/v1/facts/", {}).json()
    assert 'lang="de"' in client.get("/admin/", headers={"Accept-Language": "de"}).content.decode()
    assert translation.get_language() == "en"
    after = api.send("POST", "/api/v1/facts/", {}).json()
    assert {**before, "request_id": ""} == {**after, "request_id": ""}


# people ---------------------------------------------------------------------------------------------------------------


def test_a_reader_chooses_the_language_by_a_form_and_it_is_kept(tenant: Any) -> None:
    client = tenant.person(MemberRole.REVIEWER).signed_in()
    assert 'lang="en"' in seen(client, "/admin/")
    page = seen(client, "/admin/language/")
    assert all(f'name="language" value="{code}"' in page for code, _ in in_force.LANGUAGES)
    answer = client.post("/admin/language/", {"language": "de", "next": "/admin/desk/"})
    assert (answer.status_code, answer["Location"]) == (302, "/admin/desk/")
    cookie = client.cookies["django_language"]
    assert (cookie.value, cookie["samesite"], bool(cookie["httponly"])) == ("de", "Lax", True)
    german = client.get("/admin/")
    assert german["Content-Language"] == "de"
    assert 'lang="de"' in german.content.decode()
    assert "Was in " in german.content.decode()
    assert 'lang="de"' in seen(client, "/admin/desk/facts/")


def test_looking_at_a_page_chooses_no_language_and_no_other_site_is_led_to(tenant: Any) -> None:
    client = tenant.person(MemberRole.REVIEWER).signed_in()
    client.get("/admin/language/?language=de")
    assert "django_language" not in client.cookies
    assert client.post("/admin/language/", {"language": "de", "next": "https://elsewhere.example/"})["Location"] == "/"
    client.post("/admin/language/", {"language": "xx", "next": "/admin/"})
    assert client.cookies["django_language"].value == "de"
    strict = Client(enforce_csrf_checks=True)
    assert strict.post("/admin/language/", {"language": "de"}).status_code == 403


def test_whoever_has_not_signed_in_is_met_in_the_language_of_their_browser() -> None:
    page = Client().get("/admin/login/", headers={"Accept-Language": "de-AT,de;q=0.9"}).content.decode()
    assert 'lang="de"' in page
    assert "Anmelden" in page
    missing = Client().get("/admin/nothing/here/", headers={"Accept-Language": "de"}, follow=True)
    assert 'lang="de"' in missing.content.decode()


_MADE = r"\d{4}-\d\d-\d\dT[\d:]{8}Z"


def test_records_of_processing_are_a_page_in_german_and_a_file_in_english(tenant: Any) -> None:
    publish(tenant)
    client = tenant.person(MemberRole.AUDITOR).signed_in()
    client.cookies["django_language"] = "de"
    assert "Verarbeitungsverzeichnis" in seen(client, "/admin/processing/")
    table = client.post("/admin/processing/table/").content.decode()
    client.cookies["django_language"] = "en"
    again = client.post("/admin/processing/table/").content.decode()
    assert re.sub(_MADE, "", again) == re.sub(_MADE, "", table)
    assert "legal ground" in table
    assert "Art. 6(1)" in table


# no word escapes ------------------------------------------------------------------------------------------------------


class Bracketed(NullTranslations):
    """A language in which every string of a catalogue stands in brackets: what stands in none was never looked up."""

    domain = "django"

    def language(self) -> str:
        return "eo"

    to_language = language

    def gettext(self, message: str) -> str:
        return f"⟦{message.rpartition(chr(4))[2]}⟧" if message.strip() else message

    def ngettext(self, one: str, many: str, number: int) -> str:
        return self.gettext(one if number == 1 else many)


@pytest.fixture
def bracketed(settings: Any) -> Iterator[None]:
    settings.LANGUAGES = [*in_force.LANGUAGES, ("eo", "Bracketed")]
    trans_real._translations["eo"] = Bracketed()  # type: ignore[attr-defined]
    yield
    del trans_real._translations["eo"]  # type: ignore[attr-defined]


class Words(HTMLParser):
    """Collects what a page says in clear: texts, and attributes that are read out or shown."""

    #: Of these elements: what programs, other people or PostgreSQL say, ids, and signs.
    _NOT_OURS = frozenset({"script", "style", "code", "pre", "time", "textarea"})
    _SAID = ("aria-label", "placeholder", "title", "alt")
    _EMPTY = frozenset({"br", "img", "input", "link", "meta", "hr", "wbr", "source", "path", "rect", "line", "circle"})

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.open: list[bool] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        english = tag != "html" and given.get("lang", "eo") != "eo"
        self.found += [value for name, value in attrs if name in self._SAID and value]
        classes = (given.get("class") or "").split()
        if tag not in self._EMPTY:
            self.open.append(tag in self._NOT_OURS or english or "material-symbols-outlined" in classes)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value for name, value in attrs if name in self._SAID and value]

    def handle_endtag(self, tag: str) -> None:
        if tag not in self._EMPTY and self.open:
            self.open.pop()

    def handle_data(self, data: str) -> None:
        if not any(self.open) and data.strip():
            self.found.append(" ".join(data.split()))


#: An instant as Esperanto writes it.
_INSTANT = re.compile(r"\d+-a de ⟦\w+⟧ \d{4}, je [\d:]+")
_INNERMOST = re.compile(r"⟦[^⟦⟧]*⟧")
#: Ours in every language, and forms that no language changes.
_SAME = re.compile(r"\b(Muniment|UTC|SHA|English|Deutsch|Esperanto|en|de|eo|JSON|CSV|esc|min|h|d|s)\b")
#: Ids and names of rows, codes of the audit chain, addresses, rules: they name things, and are the same for everybody.
_NAMES = re.compile(r"\w*[\d_@.:/=×-][\w.@:/=×-]*")


def unmarked(page: str, data: set[str]) -> list[str]:
    """Return what a bracketed page says outside every bracket, without what is data."""
    words = Words()
    words.feed(page)
    found = []
    for each in words.found:
        left = _INSTANT.sub(" ", each)
        while _INNERMOST.search(left):
            left = _INNERMOST.sub(" ", left)
        for known in sorted(data, key=len, reverse=True):
            left = left.replace(known, " ")
        left = _SAME.sub(" ", _NAMES.sub(" ", left))
        if re.search(r"[A-Za-z]{2,}", left):
            found.append(each)
    return found


OTHER_PAGES = (
    *("/admin/", "/admin/desk/facts/", "/admin/desk/conflicts/", "/admin/desk/quarantine/", "/admin/desk/requests/"),
    *("/admin/desk/redactions/", "/admin/desk/procedures/", "/admin/desk/disposition/", "/admin/language/"),
    *("/admin/second-factor/", "/admin/second-factor/app/", "/admin/second-factor/keys/new/", "/admin/processing/"),
    *("/admin/policies/attribute/draft/", "/admin/policies/policy/draft/", "/admin/policies/policy/explain/"),
    *("/admin/policies/delegation/give/", "/admin/retention/matter/open/", "/admin/retention/restriction/restrict/"),
    *("/admin/memory/procedure/propose/", "/admin/retention/erasure/ask/", "/admin/tenants/agent/register/"),
    *("/admin/tenants/membership/invite/", "/admin/password_change/", "/admin/nothing/"),
    *("/admin/retention/subjectrequest/lodge/", "/admin/retention/lifetimechange/due/"),
)
WITH_HISTORY = (
    *("policies/attribute", "policies/policy", "policies/decisionrequest", "retention/matter", "retention/hold"),
    *("tenants/tenant", "tenants/agent", "tenants/membership", "memory/procedureversion"),
)
ADMINS = ("tenants/tenant", "tenants/agent", "tenants/agentkey", "tenants/membership", "tenants/auditevent")


def test_no_page_says_a_word_that_a_translator_never_saw(tenant: Any, bracketed: None) -> None:
    ledger = fill(tenant)
    person = tenant.person(*MemberRole)
    client = person.signed_in()
    client.cookies["django_language"] = "eo"
    data = names_of(client, tenant, person, ledger)
    left: dict[str, str] = {}
    paths = list(OTHER_PAGES)
    rows = {}
    for model in (*MODELS, *ADMINS, "retention/redactionrequest"):
        rows[model] = first_row(seen(client, f"/admin/{model}/"), model)
        paths += [f"/admin/{model}/", f"/admin/{model}/{rows[model]}/change/"]
    paths += [f"/admin/{model}/{rows[model]}/history/" for model in WITH_HISTORY]
    episode, fact, agent = rows["memory/episode"], rows["memory/fact"], rows["tenants/agent"]
    paths += [
        f"/admin/retention/redactionrequest/propose/?kind=episode&id={episode}",
        reverse("admin:retention_lifetimechange_of", args=[fact]),
        *(f"/admin/tenants/agent/{agent}/key/", f"/admin/tenants/agentkey/{rows['tenants/agentkey']}/rotate/"),
        *(
            f"/admin/tenants/agentkey/{rows['tenants/agentkey']}/revoke/",
            "/admin/policies/policy/explain/?attribute=city",
        ),
        f"/admin/tenants/membership/{rows['tenants/membership']}/remove/",
    ]
    shown = [f"/admin/memory/{model}/{rows[f'memory/{model}']}/show/" for model in ("candidate", "procedureversion")]
    for path in (*paths, *shown):
        answer = client.post(path) if path in shown else client.get(path, follow=True)
        assert answer.status_code in (200, 404), path
        left |= dict.fromkeys(unmarked(answer.content.decode(), data), path)
    assert not left, "\n".join(f"{path}: {words}" for words, path in left.items())


def names_of(client: Client, tenant: Any, person: Any, ledger: Any) -> set[str]:
    """Return what people and programs of the test called things."""
    defined = {"iban", "city", "diagnosis", "likes", "mood", "newsletter", "tag"}
    return {
        tenant.slug,
        person.username,
        ledger.agent.name,
        # A prefix is random, and may be letters alone.
        *(registered.key.split(".")[0] for registered in tenant.agents.values()),
        "starter",
        "ordinary",
        "support",
        "entity",
        *defined,
        *Scope,
    }


def test_no_item_of_the_desk_says_a_word_that_a_translator_never_saw(tenant: Any, bracketed: None) -> None:
    ledger = fill(tenant)
    person = tenant.person(*MemberRole)
    client = person.signed_in()
    client.cookies["django_language"] = "eo"
    data = {*names_of(client, tenant, person, ledger), CANARY, "message", "user"}
    left: dict[str, str] = {}
    for queue in ("facts", "procedures", "redactions", "requests"):
        taken = client.post(f"/admin/desk/{queue}/claim/").json()
        assert taken["claimed"], queue
        for pane in ("pane", "consequences", "acts"):
            left |= dict.fromkeys(unmarked(taken[pane], data), f"{queue} {pane}")
        refused = client.post(f"/admin/desk/{queue}/{taken['item']}/decide/", {"digest": taken["digest"]})
        left |= dict.fromkeys(unmarked(refused.json()["problem"], data), queue)
    assert not left, "\n".join(f"{path}: {words}" for words, path in left.items())
