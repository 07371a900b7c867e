"""Signing in by identity providers in a real browser: where it leads, what it looks like, and that the cookies are there."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.conf import settings

from tenants import oidc, saml
from tenants.actors import MemberRole
from tenants.identities import Known, KnownBy, name_identity
from tenants.isolation import Role, tenant_transaction
from tenants.models import User
from tenants.providers import described
from tenants.registry import OPERATOR
from tests.browser.serving import Site
from tests.browser.test_pages import _UNFIT, SIZE, Desk, look
from tests.identity_provider import CLIENT, SECRET, OidcProvider, SamlProvider, oidc_provider, saml_metadata
from tests.organisation import Person, new_organisation

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(
        find_spec("jwt") is None or find_spec("onelogin") is None,
        reason="needs pyjwt and python3-saml: make .dev-packages, or make run EXTRAS=sso",
    ),
]


@pytest.fixture
def provider() -> Iterator[OidcProvider]:
    with oidc_provider() as provider:
        yield provider


@pytest.fixture
def campus(site: Site) -> Iterator[tuple[SamlProvider, str]]:
    """A SAML provider's own page, on another site than ours, which posts its response by a form."""
    provider = SamlProvider()

    class Answer(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            pass

        def do_GET(self) -> None:
            import base64
            import zlib

            query = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
            if "SAMLRequest" not in query:
                self.send_response(204)
                self.end_headers()
                return
            asked = zlib.decompress(base64.b64decode(query["SAMLRequest"]), -15).decode()
            number = asked.partition('ID="')[2].partition('"')[0]
            at = f"{site.url}/admin/login/with/campus/"
            response = provider.response(number, f"{at}metadata/", f"{at}back/")
            body = (
                f'<!doctype html><title>Campus</title><form method="post" action="{at}back/">'
                f'<input type="hidden" name="SAMLResponse" value="{response}">'
                f'<input type="hidden" name="RelayState" value="{query["RelayState"]}"><button>Let me in</button></form>'
            ).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    # `localhost` is another site than 127.0.0.1: what it posts comes without our cookies.
    yield provider, f"http://localhost:{server.server_port}/sso"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def person(
    database: Any,
    site: Site,
    provider: OidcProvider,
    campus: tuple[SamlProvider, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Person:
    """A member without a password whom both providers know."""
    oidc.forget()
    saml.forget()
    metadata = tmp_path / "campus.xml"
    metadata.write_text(saml_metadata().replace("https://idp.example/sso", campus[1]))
    document = {
        "address": site.url,
        "providers": [
            {
                "kind": "oidc",
                "name": "company",
                "title": "Company account",
                "discovery": f"{provider.url}/.well-known/openid-configuration",
                "client_id": CLIENT,
            },
            {
                "kind": "saml",
                "name": "campus",
                "title": "Campus",
                "entity_id": "https://idp.example/saml",
                "metadata": str(metadata),
            },
        ],
    }
    monkeypatch.setattr(settings, "SINGLE_SIGN_ON", described(json.dumps(document), secret_of=lambda _: SECRET))
    made: Person = new_organisation().person(MemberRole.TENANT_ADMIN)
    with tenant_transaction(Role.FRONT, tenant=None):
        for name in ("company", "campus"):
            known = Known(name, KnownBy.SUBJECT, made.username)
            name_identity(made.username, known, by=OPERATOR, now=datetime.now(UTC))
        user = User.objects.get(id=made.actor.id)
        user.set_unusable_password()
        user.save(update_fields=["password"])
    provider.person = {"sub": made.username}
    campus[0].name = made.username
    return made


def desk_at(browser: Any, site: Site) -> Desk:
    page = browser.new_context(viewport=SIZE, color_scheme="light", reduced_motion="reduce").new_page()
    desk = Desk(page, site)
    page.on("console", desk.hear)
    page.on("pageerror", lambda error: desk.complain(str(error)))
    return desk


def test_a_person_signs_in_shows_again_who_they_are_and_signs_out_by_openid_connect(
    browser: Any, site: Site, person: Person, provider: OidcProvider, pictures: Path
) -> None:
    desk = desk_at(browser, site)
    page = desk.page
    look(desk, pictures, "/admin/login/", "sign-in-by-provider")
    desk.open("/admin/login/?next=/admin/tenants/agent/")
    page.click("text=Sign in with Company account")
    page.wait_for_url(f"{site.url}/admin/tenants/agent/")
    # Neither a code nor a state stays in the address, and a step back leads to no second use.
    assert "code=" not in page.url
    look(desk, pictures, "/admin/again/with/?next=/admin/tenants/agent/register/", "again-by-provider")
    page.click("text=Go to Company account")
    page.wait_for_url(f"{site.url}/admin/tenants/agent/register/")
    assert provider.asked[-1]["prompt"] == "login"
    look(desk, pictures, "/admin/tenants/membership/invite/", "member-invite-by-provider")
    desk.open("/admin/")
    page.eval_on_selector("form[action='/admin/logout/']", "form => form.submit()")
    page.wait_for_selector("text=Sign out there too")
    for dark in (False, True):
        desk.in_dark(dark)
        desk.picture(pictures, f"signed-out-by-provider-{'dark' if dark else 'light'}")
        assert not page.evaluate(_UNFIT)
    page.click("text=Sign out there too")
    page.wait_for_url(f"{provider.url}/end?*")
    assert not desk.complaints, desk.complaints
    page.context.close()


def test_a_refusal_is_told_in_a_line_on_the_page_of_signing_in(
    browser: Any, site: Site, person: Person, provider: OidcProvider, pictures: Path
) -> None:
    desk = desk_at(browser, site)
    provider.signed_by = "stranger"
    desk.open("/admin/login/")
    desk.page.click("text=Sign in with Company account")
    desk.page.wait_for_url(f"{site.url}/admin/login/")
    assert "cannot be used" in desk.page.inner_text("[role=alert]")
    for dark in (False, True):
        desk.in_dark(dark)
        desk.picture(pictures, f"sign-in-refused-{'dark' if dark else 'light'}")
        assert not desk.page.evaluate(_UNFIT)
    assert not desk.complaints, desk.complaints
    desk.page.context.close()


def test_a_response_of_saml_from_another_site_finds_the_session_that_asked(
    browser: Any, site: Site, person: Person
) -> None:
    desk = desk_at(browser, site)
    page = desk.page
    desk.open("/admin/login/")
    page.click("text=Sign in with Campus")
    page.click("text=Let me in")
    page.wait_for_url(f"{site.url}/admin/")
    assert not desk.complaints, desk.complaints
    page.context.close()
