"""Signing in by an identity provider: who comes in, who does not, and what the audit chain says of it."""

import base64
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

import pytest
import time_machine
from django.conf import settings
from django.core.management import CommandError, call_command
from django.test import Client

from tenants import oidc, saml
from tenants.actors import MemberRole
from tenants.identities import Known, KnownBy, name_identity
from tenants.isolation import Role, tenant_transaction
from tenants.models import PLATFORM, AuditEvent, Membership, SignInIdentity, User
from tenants.providers import described
from tenants.registry import OPERATOR
from tests.identity_provider import (
    ADDRESS,
    CLIENT,
    SECRET,
    OidcProvider,
    SamlProvider,
    key,
    oidc_provider,
    saml_metadata,
)
from tests.organisation import Person
from tests.tenants.test_second_factor import Enrolled, entries

pytestmark = pytest.mark.skipif(
    find_spec("jwt") is None or find_spec("onelogin") is None,
    reason="needs pyjwt and python3-saml: make .dev-packages, or make run EXTRAS=sso",
)

LOGIN = "/admin/login/"


@pytest.fixture(scope="module")
def served() -> Iterator[OidcProvider]:
    with oidc_provider() as provider:
        yield provider


@dataclass
class World:
    """Both providers, and what is configured of them."""

    oidc: OidcProvider
    saml: SamlProvider
    configure: Callable[..., None]


@pytest.fixture
def world(served: OidcProvider, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, database: Any) -> World:
    for name, value in vars(OidcProvider(url=served.url)).items():
        setattr(served, name, value)
    metadata = tmp_path / "metadata.xml"
    metadata.write_text(saml_metadata())
    oidc.forget()
    saml.forget()

    def configure(**more: Any) -> None:
        first = {
            "kind": "oidc",
            "name": "company",
            "title": "Company account",
            "discovery": f"{served.url}/.well-known/openid-configuration",
            "client_id": CLIENT,
        }
        second = {
            "kind": "saml",
            "name": "campus",
            "title": "Campus",
            "entity_id": "https://idp.example/saml",
            "metadata": str(metadata),
            "email_attribute": "mail",
            "email_is_verified": True,
        }
        document = {
            "address": ADDRESS,
            "providers": [{**first, **more.get("oidc", {})}, {**second, **more.get("saml", {})}],
        }
        known = described(json.dumps(document), secret_of=lambda name: SECRET if name == "company" else None)
        monkeypatch.setattr(settings, "SINGLE_SIGN_ON", known)

    configure()
    return World(served, SamlProvider(), configure)


def bind(username: str, known_by: KnownBy, value: str, provider: str = "company") -> None:
    with tenant_transaction(Role.FRONT, tenant=None):
        name_identity(username, Known(provider, known_by, value), by=OPERATOR, now=datetime.now(UTC))


def identities(person: Person) -> list[SignInIdentity]:
    with tenant_transaction(Role.FRONT, tenant=None):
        return list(SignInIdentity.objects.filter(user_id=person.actor.id).order_by("id"))


def refusals() -> list[str]:
    with tenant_transaction(Role.FRONT, tenant=None):
        found = AuditEvent.objects.filter(chain=PLATFORM, action="session.sign_in_refused").order_by("seq")
        return [each.reason for each in found]


@pytest.fixture(autouse=True)
def _refusals_are_not_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    from tenants import signing
    from tenants.authentication import Bound

    monkeypatch.setattr(signing, "failures", Bound())


@pytest.fixture
def person(tenant: Any) -> Person:
    """A member whom the provider of OIDC knows by a subject of their own."""
    made: Person = tenant.person(MemberRole.TENANT_ADMIN)
    bind(made.username, KnownBy.SUBJECT, subject_of(made))
    return made


def subject_of(person: Person) -> str:
    return f"s-{person.username}"


def begun(client: Client, path: str = "/admin/login/with/company/") -> str:
    """Begin at the provider, and return where the browser was sent."""
    answer = client.get(path)
    assert answer.status_code == 302, answer.content
    return str(answer["Location"])


def at_provider(world: World, where: str) -> str:
    """Be let in by the provider of OIDC, and return the path of ours that it leads back to."""
    assert where.startswith(f"{world.oidc.url}/authorize?")
    query = {name: values[0] for name, values in parse_qs(urlsplit(where).query).items()}
    back = world.oidc.authorize(query)
    assert back.startswith(f"{ADDRESS}/admin/login/with/company/back/?")
    return back.removeprefix(ADDRESS)


def signed_in(
    world: World, client: Client | None = None, path: str = "/admin/login/with/company/"
) -> tuple[Client, Any]:
    client = client or Client()
    return client, client.get(at_provider(world, begun(client, path)))


def is_in(client: Client) -> bool:
    return client.get("/admin/").status_code == 200


def assert_kept_out(client: Client, answer: Any, reason: str) -> None:
    """Nobody is in, it is told in a line on the page of signing in, once, and the chain has the code."""
    assert (answer.status_code, answer["Location"]) == (302, LOGIN)
    assert refusals()[-1] == reason
    page = client.get(LOGIN).content.decode()
    assert 'role="alert"' in page
    assert 'role="alert"' not in client.get(LOGIN).content.decode()
    assert not is_in(client)


# OpenID Connect --------------------------------------------------------------------------------------------------------


def test_a_person_whom_an_operator_named_by_subject_signs_in(world: World, person: Person) -> None:
    world.oidc.person = {"sub": subject_of(person)}
    client, answer = signed_in(world, path="/admin/login/with/company/?next=/admin/memory/fact/")
    assert (answer.status_code, answer["Location"]) == (302, "/admin/memory/fact/")
    assert is_in(client)
    (entry,) = entries(person, "session.signed_in")
    assert (entry.reason, entry.numbers) == ("oidc", {"second_factor": 0})
    asked = world.oidc.asked[-1]
    assert (asked["response_type"], asked["code_challenge_method"]) == ("code", "S256")
    assert len({asked["state"], asked["nonce"], asked["code_challenge"]}) == 3
    assert "prompt" not in asked


def test_a_verified_address_is_worth_one_sign_in_and_then_the_subject_counts(world: World, tenant: Any) -> None:
    person = tenant.person(MemberRole.REVIEWER)
    address = f"{person.username}@example.org"
    bind(person.username, KnownBy.EMAIL, address)
    world.oidc.person = {"sub": subject_of(person), "email": address.upper(), "email_verified": True}
    client, answer = signed_in(world)
    assert answer["Location"] == "/admin/"
    by_email, by_subject = sorted(identities(person), key=lambda row: row.known_by)
    assert by_email.used_at is not None
    assert by_subject.used_at is None
    # The address was given to somebody else: it opens nothing. The person's own has changed: nothing follows it.
    world.oidc.person["sub"] = "another"
    client, answer = signed_in(world)
    assert_kept_out(client, answer, "oidc.unknown_person")
    world.oidc.person = {"sub": subject_of(person), "email": "new@example.org", "email_verified": True}
    client, answer = signed_in(world)
    assert is_in(client)
    assert len(identities(person)) == 2
    with tenant_transaction(Role.FRONT, tenant=None):
        assert User.objects.get(id=person.actor.id).email == ""


@pytest.mark.parametrize("verified", [False, None, "true", 1])
def test_an_address_that_is_not_verified_links_nobody(world: World, tenant: Any, verified: object) -> None:
    person = tenant.person(MemberRole.REVIEWER)
    address = f"{person.username}@example.org"
    bind(person.username, KnownBy.EMAIL, address)
    world.oidc.person = {"sub": subject_of(person), "email": address, "email_verified": verified}
    client, answer = signed_in(world)
    assert_kept_out(client, answer, "oidc.unknown_person")
    assert [row.used_at for row in identities(person)] == [None]


def test_a_name_that_is_the_providers_address_links_nobody_by_itself(world: World, tenant: Any) -> None:
    person = tenant.person(MemberRole.REVIEWER, username=f"{uuid4().hex[:8]}@example.org")
    world.oidc.person = {"sub": "s", "email": person.username, "email_verified": True}
    client, answer = signed_in(world)
    assert_kept_out(client, answer, "oidc.unknown_person")


CROOKED: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("wrong_signature", {"signed_by": "stranger"}, {}),
    ("wrong_signature", {"algorithm": "HS256"}, {}),
    ("wrong_signature", {"algorithm": "none"}, {}),
    ("wrong_audience", {}, {"aud": "somebody-else"}),
    ("wrong_audience", {}, {"aud": [CLIENT, "somebody-else"]}),
    ("wrong_audience", {}, {"azp": "somebody-else"}),
    ("wrong_issuer", {}, {"iss": "https://elsewhere.example"}),
    ("expired", {}, {"exp": 1_700_000_000}),
    ("expired", {}, {"iat": 1_700_000_000}),
    ("not_yet", {}, {"iat": 1_900_000_000, "exp": 1_900_000_300}),
    ("not_yet", {}, {"nbf": 1_900_000_000}),
    ("replayed", {}, {"nonce": "of another sign-in"}),
    ("replayed", {}, {"nonce": None}),
    ("malformed", {}, {"exp": None}),
    ("malformed", {}, {"sub": None}),
    ("malformed", {}, {"sub": 7}),
    ("malformed", {}, {"sub": ""}),
]


@pytest.mark.parametrize(("why", "provider", "said"), CROOKED)
def test_a_token_that_does_not_fit_signs_nobody_in(
    world: World, person: Person, why: str, provider: dict[str, Any], said: dict[str, Any]
) -> None:
    world.oidc.person = {"sub": subject_of(person)}
    for name, value in provider.items():
        setattr(world.oidc, name, value)
    world.oidc.said = said
    before = [(row.id, row.used_at) for row in identities(person)]
    client, answer = signed_in(world)
    assert_kept_out(client, answer, f"oidc.{why}")
    assert [(row.id, row.used_at) for row in identities(person)] == before
    assert entries(person, "session.signed_in") == []


def test_clocks_may_differ_by_a_minute_and_no_more(world: World, person: Person) -> None:
    world.oidc.person = {"sub": subject_of(person)}
    now = int(datetime.now(UTC).timestamp())
    world.oidc.said = {"iat": now - 40, "exp": now - 30}
    client, _ = signed_in(world)
    assert is_in(client)
    world.oidc.said = {"iat": now - 40, "exp": now - 70}
    client, answer = signed_in(world)
    assert_kept_out(client, answer, "oidc.expired")


def test_an_answer_fits_the_request_of_its_session_alone_and_once(world: World, person: Person) -> None:
    world.oidc.person = {"sub": subject_of(person)}
    client = Client()
    back = at_provider(world, begun(client))
    # Somebody else's browser, which never asked.
    stranger = Client()
    assert_kept_out(stranger, stranger.get(back), "oidc.unsolicited")
    # The state of another request of this browser.
    other = at_provider(world, begun(client))
    assert_kept_out(client, client.get(back), "oidc.unsolicited")
    # Which spent the one that was open.
    assert_kept_out(client, client.get(other), "oidc.unsolicited")
    client, _ = signed_in(world)
    assert is_in(client)


def test_an_answer_sent_again_after_it_was_used_is_refused(world: World, person: Person) -> None:
    world.oidc.person = {"sub": subject_of(person)}
    client = Client()
    back = at_provider(world, begun(client))
    assert client.get(back)["Location"] == "/admin/"
    cookies, client = client.cookies, Client()
    client.cookies = cookies
    assert client.post("/admin/logout/").status_code in (200, 302)
    assert_kept_out(client, client.get(back), "oidc.unsolicited")


def test_pkce_binds_a_code_to_whoever_asked(world: World, person: Person) -> None:
    world.oidc.person = {"sub": subject_of(person)}
    client = Client()
    stolen = at_provider(world, begun(Client()))
    back = at_provider(world, begun(client))
    code = parse_qs(urlsplit(stolen).query)["code"][0]
    mixed = back.replace(parse_qs(urlsplit(back).query)["code"][0], code)
    assert_kept_out(client, client.get(mixed), "oidc.provider_refused")


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ("&iss=https://elsewhere.example", "oidc.wrong_issuer"),
        ("&error=access_denied", "oidc.provider_refused"),
        ("&code=twice", "oidc.malformed"),
        ("&state=twice", "oidc.unsolicited"),
    ],
)
def test_an_answer_that_was_changed_on_its_way_is_refused(world: World, person: Person, changed: str, why: str) -> None:
    world.oidc.person = {"sub": subject_of(person)}
    client = Client()
    assert_kept_out(client, client.get(at_provider(world, begun(client)) + changed), why)


def test_a_sign_in_that_lies_open_too_long_is_refused(world: World, person: Person) -> None:
    world.oidc.person = {"sub": subject_of(person)}
    client = Client()
    with time_machine.travel(datetime.now(UTC), tick=False) as clock:
        where = begun(client)
        clock.shift(16 * 60)
        assert_kept_out(client, client.get(at_provider(world, where)), "oidc.expired")


@pytest.mark.parametrize(
    "elsewhere", ["https://example.org/", "//example.org", "/\\example.org", "javascript:alert(1)", "/api/v1/"]
)
def test_no_sign_in_leads_to_another_site(world: World, person: Person, elsewhere: str) -> None:
    world.oidc.person = {"sub": subject_of(person)}
    _, answer = signed_in(world, path=f"/admin/login/with/company/?next={elsewhere}")
    assert answer["Location"] == "/admin/"


def test_another_sites_page_begins_no_sign_in(world: World) -> None:
    client = Client(headers={"Sec-Fetch-Site": "cross-site"})
    answer = client.get("/admin/login/with/company/")
    assert (answer.status_code, answer["Location"]) == (302, LOGIN)
    assert refusals()[-1] == "oidc.unsolicited"


def test_addresses_are_made_of_the_setting_and_not_of_what_a_request_says(world: World) -> None:
    where = begun(Client(headers={"Host": "127.0.0.1"}))
    assert parse_qs(urlsplit(where).query)["redirect_uri"] == [f"{ADDRESS}/admin/login/with/company/back/"]


def test_a_provider_that_does_not_answer_is_told_in_a_line(world: World) -> None:
    world.oidc.answers = False
    client = Client()
    assert_kept_out(client, client.get("/admin/login/with/company/"), "oidc.no_answer")


def test_a_provider_that_says_it_is_another_is_not_asked(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    said = {**world.oidc.discovery(), "issuer": "https://elsewhere.example"}
    monkeypatch.setattr(world.oidc, "discovery", lambda: said, raising=False)
    client = Client()
    assert_kept_out(client, client.get("/admin/login/with/company/"), "oidc.wrong_issuer")


# who it is -------------------------------------------------------------------------------------------------------------


def test_a_person_who_has_no_role_any_more_is_kept_out_and_the_chain_says_who(
    world: World, person: Person, tenant: Any, owner: Any
) -> None:
    world.oidc.person = {"sub": subject_of(person)}
    with tenant_transaction(Role.FRONT, tenant=tenant.id):
        Membership.objects.filter(user_id=person.actor.id).delete()
    client, answer = signed_in(world)
    assert_kept_out(client, answer, "oidc.person_ended")
    assert [each.reason for each in entries(person, "session.sign_in_refused")] == ["oidc.person_ended"]


def test_a_person_who_was_put_out_is_kept_out(world: World, person: Person, owner: Any) -> None:
    world.oidc.person = {"sub": subject_of(person)}
    owner.execute("UPDATE tenants_user SET is_active = false WHERE id = %s", [person.actor.id])
    client, answer = signed_in(world)
    assert_kept_out(client, answer, "oidc.person_ended")


def test_no_account_is_made_unless_a_setting_says_so_and_then_without_a_role(world: World) -> None:
    world.oidc.person = {"sub": uuid4().hex, "email": "new@example.org", "email_verified": True, "name": "New Person"}
    client, answer = signed_in(world)
    assert_kept_out(client, answer, "oidc.unknown_person")
    world.configure(oidc={"creates_accounts": True})
    client, answer = signed_in(world)
    assert answer["Location"] == "/admin/"
    assert client.get("/admin/")["Location"] == "/admin/tenant/"
    assert client.get("/admin/memory/fact/")["Location"] == "/admin/tenant/"
    with tenant_transaction(Role.FRONT, tenant=None):
        named = SignInIdentity.objects.order_by("-id").first()
        assert named is not None
        made = User.objects.get(id=named.user_id)
        assert not Membership.objects.filter(user_id=made.id).exists()
    assert (made.email, made.first_name, made.last_name, made.is_superuser) == ("", "", "", False)
    assert made.username.startswith("company-")
    assert not made.has_usable_password()
    signed_in(world)
    with tenant_transaction(Role.FRONT, tenant=None):
        assert SignInIdentity.objects.filter(user_id=made.id).count() == 1


def test_a_tenants_admin_adds_a_member_who_signs_in_by_a_provider_and_has_no_password(
    world: World, tenant: Any
) -> None:
    admin = tenant.person(MemberRole.TENANT_ADMIN).signed_in()
    name = f"ada-{uuid4().hex[:8]}"
    sent = {"username": name, "role": "reviewer", "way": "company:subject", "known_as": f"s-{name}"}
    assert admin.post("/admin/tenants/membership/invite/", sent).status_code == 302
    world.oidc.person = {"sub": f"s-{name}"}
    client, _ = signed_in(world)
    assert client.get("/admin/memory/candidate/").status_code == 200
    with tenant_transaction(Role.FRONT, tenant=None):
        assert not User.objects.get(username=name).has_usable_password()
    for problem in ({"known_as": ""}, {"way": "company:email", "known_as": "no address"}, {"way": "elsewhere:subject"}):
        again = {**sent, "username": f"{name}-2", **problem}
        assert admin.post("/admin/tenants/membership/invite/", again).status_code in (400, 422), problem
    taken = admin.post("/admin/tenants/membership/invite/", {**sent, "username": f"{name}-3"})
    assert taken.status_code == 409
    with tenant_transaction(Role.FRONT, tenant=None):
        assert not User.objects.filter(username__startswith=f"{name}-").exists()


def test_nobody_who_exists_is_tied_to_a_provider_by_a_tenants_admin(
    world: World, tenant: Any, other_tenant: Any
) -> None:
    """Neither somebody of another tenant, as whom an admin could then sign in, nor an approver of their own."""
    admin = tenant.person(MemberRole.TENANT_ADMIN).signed_in()
    for theirs in (other_tenant.person(MemberRole.PRIVACY_OFFICER), tenant.person(MemberRole.APPROVER)):
        sent = {"username": theirs.username, "role": "auditor", "way": "company:subject", "known_as": uuid4().hex}
        assert admin.post("/admin/tenants/membership/invite/", sent).status_code == 409
        assert identities(theirs) == []
        world.oidc.person = {"sub": sent["known_as"]}
        client, answer = signed_in(world)
        assert_kept_out(client, answer, "oidc.unknown_person")


def test_an_operator_ties_and_unties_a_person_and_that_is_audited(world: World, tenant: Any) -> None:
    person = tenant.person(MemberRole.REVIEWER)
    call_command("sign_in_by", person.username, "company", "--subject", subject_of(person), "--json")
    world.oidc.person = {"sub": subject_of(person)}
    client, _ = signed_in(world)
    assert is_in(client)
    call_command("sign_in_by", person.username, "--none", "--json")
    client, answer = signed_in(world)
    assert_kept_out(client, answer, "oidc.unknown_person")
    with tenant_transaction(Role.FRONT, tenant=None):
        found = AuditEvent.objects.filter(chain=PLATFORM, target_id=person.actor.id, actor_kind="operator")
        told = {each.action: each.numbers for each in found}
    assert told["identities.removed"] == {"removed": 1}
    assert "identity.named" in told
    for wrong in (["nobody", "company", "--subject", "x"], [person.username, "elsewhere", "--subject", "x"]):
        with pytest.raises((CommandError, SystemExit)):
            call_command("sign_in_by", *wrong)


def test_no_name_address_subject_or_secret_is_kept_or_logged(
    world: World, tenant: Any, caplog: Any, owner: Any
) -> None:
    person = tenant.person(MemberRole.REVIEWER)
    address, subject = f"canary-{uuid4().hex}@example.org", f"canary-{uuid4().hex}"
    bind(person.username, KnownBy.EMAIL, address)
    world.oidc.person = {"sub": subject, "email": address, "email_verified": True, "name": "Canary Name"}
    with caplog.at_level("DEBUG"):
        client, _ = signed_in(world)
        world.oidc.said = {"aud": "wrong"}
        signed_in(world)
    assert is_in(client)
    written = " ".join(str(vars(record)) for record in caplog.records)
    assert "admin/login/with/" in written
    stored = str(owner.execute("SELECT * FROM tenants_signinidentity").fetchall())
    stored += str(owner.execute("SELECT * FROM tenants_user").fetchall())
    with tenant_transaction(Role.FRONT, tenant=None):
        stored += str([vars(each) for each in AuditEvent.objects.filter(chain=PLATFORM)])
        sessions = [each[0] for each in owner.execute("SELECT session_data FROM django_session").fetchall()]
    from django.contrib.sessions.backends.db import SessionStore

    stored += str([SessionStore().decode(each) for each in sessions])
    for text in (subject, "Canary Name", SECRET, str(world.oidc.fetched[-1]["code"])):
        assert text not in written
        assert text not in stored
    assert address not in written
    assert address not in stored
    assert SECRET not in repr(settings.SINGLE_SIGN_ON)


# the second factor, and showing again who one is -------------------------------------------------------------------------


@pytest.fixture
def clock() -> Iterator[Any]:
    with time_machine.travel(datetime.now(UTC).replace(microsecond=0), tick=False) as clock:
        yield clock


def test_the_second_factor_is_asked_for_all_the_same(world: World, person: Person, clock: Any) -> None:
    enrolled = Enrolled(person, person.signed_in(), clock)
    clock.shift(60)
    world.oidc.person = {"sub": subject_of(person), "amr": ["mfa"]}
    client, answer = signed_in(world)
    assert answer["Location"] == "/admin/login/code/"
    assert not is_in(client)
    assert client.post("/admin/login/code/", {"code": enrolled.code()}).status_code == 302
    assert is_in(client)
    assert entries(person, "session.signed_in")[-1].reason == "oidc"
    assert entries(person, "session.signed_in")[-1].numbers == {"second_factor": 1}


def test_a_providers_second_factor_is_trusted_by_a_setting_and_only_where_it_was_shown(
    world: World, person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "ENVIRONMENT", settings.ENVIRONMENT.model_copy(update={"require_mfa": True}))
    world.configure(oidc={"trusted_second_factor": {"amr": ["mfa", "hwk"]}})
    world.oidc.person = {"sub": subject_of(person), "amr": ["pwd"]}
    client, _ = signed_in(world)
    assert client.get("/admin/")["Location"] == "/admin/second-factor/app/"
    world.oidc.person["amr"] = ["pwd", "hwk"]
    client, _ = signed_in(world)
    assert is_in(client)
    assert entries(person, "session.signed_in")[-1].numbers == {"second_factor": 1}
    # A password afterwards is not what the provider vouched for.
    client.post("/admin/logout/")
    client.post(LOGIN, {"username": person.username, "password": person.password})
    assert client.get("/admin/")["Location"] == "/admin/second-factor/app/"


@pytest.fixture
def without_password(person: Person, owner: Any) -> Person:
    owner.execute("UPDATE tenants_user SET password = '!' WHERE id = %s", [person.actor.id])
    return person


ASKS = "/admin/tenants/agent/register/"


def test_whoever_has_no_password_shows_again_who_they_are_at_the_provider(
    world: World, without_password: Person, clock: Any
) -> None:
    world.oidc.person = {"sub": subject_of(without_password)}
    client, _ = signed_in(world)
    assert client.get(ASKS).status_code == 200
    clock.shift(11 * 60)
    asked = client.get(ASKS)
    assert (asked.status_code, asked["Location"]) == (302, f"/admin/again/with/?next={ASKS.replace('/', '%2F')}")
    assert "Go to Company account" in client.get(asked["Location"]).content.decode()
    _, answer = signed_in(world, client, f"/admin/again/with/company/?next={ASKS}")
    assert (world.oidc.asked[-1]["prompt"], world.oidc.asked[-1]["max_age"]) == ("login", "0")
    assert answer["Location"] == ASKS
    assert client.get(ASKS).status_code == 200
    assert [each.reason for each in entries(without_password, "session.confirmed_again")] == ["oidc"]


def test_a_provider_that_did_not_ask_anew_does_not_count(world: World, without_password: Person, clock: Any) -> None:
    world.oidc.person = {"sub": subject_of(without_password)}
    client, _ = signed_in(world)
    clock.shift(11 * 60)
    stale = int((datetime.now(UTC) - timedelta(minutes=11)).timestamp())
    for said in ({"auth_time": stale}, {"auth_time": None}):
        world.oidc.said = said
        _, answer = signed_in(world, client, f"/admin/again/with/company/?next={ASKS}")
        assert answer["Location"] == "/admin/again/with/"
        assert refusals()[-1] == "oidc.not_fresh"
        assert 'role="alert"' in client.get("/admin/again/with/").content.decode()
        assert client.get(ASKS)["Location"].startswith("/admin/again/with/")


def test_somebody_else_at_the_provider_does_not_count(
    world: World, without_password: Person, tenant: Any, clock: Any
) -> None:
    colleague = tenant.person(MemberRole.TENANT_ADMIN)
    bind(colleague.username, KnownBy.SUBJECT, subject_of(colleague))
    world.oidc.person = {"sub": subject_of(without_password)}
    client, _ = signed_in(world)
    clock.shift(11 * 60)
    for stranger in (subject_of(colleague), "nobody-here"):
        world.oidc.person = {"sub": stranger}
        _, answer = signed_in(world, client, f"/admin/again/with/company/?next={ASKS}")
        assert answer["Location"] == "/admin/again/with/"
        assert refusals()[-1] == "oidc.other_person"
        assert client.get(ASKS)["Location"].startswith("/admin/again/with/")


def test_a_session_at_the_provider_that_is_hours_old_is_not_recent_here(
    world: World, without_password: Person, clock: Any
) -> None:
    world.oidc.person = {"sub": subject_of(without_password)}
    world.oidc.proved_at = datetime.now(UTC) - timedelta(hours=3)
    client, _ = signed_in(world)
    assert is_in(client)
    assert client.get(ASKS)["Location"].startswith("/admin/again/with/")


def test_whoever_has_neither_password_factor_nor_provider_is_told_that_they_may_not(
    world: World, without_password: Person, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.oidc.person = {"sub": subject_of(without_password)}
    client, _ = signed_in(world)
    clock.shift(11 * 60)
    monkeypatch.setattr(settings, "SINGLE_SIGN_ON", None)
    assert client.get(ASKS).status_code == 403


def test_an_answer_that_nobody_here_asked_for_changes_no_session(world: World, person: Person, tenant: Any) -> None:
    """Nobody is made somebody else by a link to an answer of another's."""
    world.oidc.person = {"sub": subject_of(person)}
    planted = at_provider(world, begun(Client()))
    victim = tenant.person(MemberRole.REVIEWER).signed_in()
    assert victim.get(planted)["Location"] == "/admin/again/with/"
    assert victim.get(ASKS).status_code == 403
    assert victim.get("/admin/memory/fact/").status_code == 200


def test_signing_out_ends_the_session_and_offers_to_end_the_providers(world: World, person: Person) -> None:
    world.oidc.person = {"sub": subject_of(person)}
    client, _ = signed_in(world)
    page = client.post("/admin/logout/").content.decode()
    assert f"{world.oidc.url}/end?client_id={CLIENT}" in page
    assert not is_in(client)
    assert len(entries(person, "session.signed_out")) == 1
    by_password = Client()
    by_password.post(LOGIN, {"username": person.username, "password": person.password})
    assert f"{world.oidc.url}/end" not in by_password.post("/admin/logout/").content.decode()


# SAML ------------------------------------------------------------------------------------------------------------------


class _Fields(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: dict[str, str] = {}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        given = dict(attrs)
        if tag == "input" and given.get("name"):
            self.found[given["name"]] = given.get("value") or ""


BACK, FINISH = "/admin/login/with/campus/back/", "/admin/login/with/campus/finish/"
OURS = f"{ADDRESS}/admin/login/with/campus/metadata/"


@dataclass
class Saml:
    client: Client
    state: str
    request: str
    xml: str


def saml_begun(client: Client | None = None, path: str = "/admin/login/with/campus/") -> Saml:
    import zlib

    client = client or Client()
    where = begun(client, path)
    assert where.startswith("https://idp.example/sso?")
    query = {name: values[0] for name, values in parse_qs(urlsplit(where).query).items()}
    xml = zlib.decompress(base64.b64decode(query["SAMLRequest"]), -15).decode()
    number = xml.partition('ID="')[2].partition('"')[0]
    return Saml(client, query["RelayState"], number, xml)


def posted(began: Saml, response: str, state: str | None = None) -> Any:
    """Post a response as the provider's page does, without cookies, and as our page does then, with them."""
    state = began.state if state is None else state
    page = Client().post(BACK, {"SAMLResponse": response, "RelayState": state})
    assert page.status_code == 200
    fields = _Fields(page.content.decode()).found
    assert fields == {"SAMLResponse": response, "RelayState": state}
    return began.client.post(FINISH, fields)


def answered(world: World, began: Saml | None = None) -> tuple[Client, Any]:
    began = began or saml_begun()
    return began.client, posted(began, world.saml.response(began.request, OURS, ADDRESS + BACK))


@pytest.fixture
def scholar(world: World, tenant: Any) -> Person:
    """A member whom the provider of SAML knows by a NameID of their own."""
    made: Person = tenant.person(MemberRole.TENANT_ADMIN)
    bind(made.username, KnownBy.SUBJECT, subject_of(made), "campus")
    world.saml.name = subject_of(made)
    return made


def test_a_person_signs_in_by_a_signed_assertion(world: World, scholar: Person) -> None:
    began = saml_begun(path="/admin/login/with/campus/?next=/admin/memory/fact/")
    assert f'AssertionConsumerServiceURL="{ADDRESS}{BACK}"' in began.xml
    client, answer = answered(world, began)
    assert (answer.status_code, answer["Location"]) == (302, "/admin/memory/fact/")
    assert is_in(client)
    assert [each.reason for each in entries(scholar, "session.signed_in")] == ["saml"]


def test_the_page_that_sends_a_response_on_runs_no_script_but_a_file_of_ours(world: World) -> None:
    page = Client().post(BACK, {"SAMLResponse": '"><script>alert(1)</script>', "RelayState": "x"})
    text = page.content.decode()
    assert "<script>alert" not in text
    assert "muniment/continue.js" in text
    assert "script-src 'self'" in page["Content-Security-Policy"]
    assert "sessionid" not in page.cookies


def test_an_address_that_the_operator_vouches_for_ties_once_by_saml(world: World, tenant: Any) -> None:
    person = tenant.person(MemberRole.REVIEWER)
    bind(person.username, KnownBy.EMAIL, f"{person.username}@example.org", "campus")
    world.saml.name, world.saml.attributes = uuid4().hex, {"mail": f"{person.username}@example.org"}
    world.configure(saml={"email_is_verified": False})
    client, answer = answered(world)
    assert_kept_out(client, answer, "saml.unknown_person")
    world.configure()
    client, _ = answered(world)
    assert is_in(client)
    world.saml.name = uuid4().hex
    client, answer = answered(world)
    assert_kept_out(client, answer, "saml.unknown_person")


FALSE: list[tuple[str, dict[str, Any]]] = [
    ("wrong_signature", {"signed_by": "stranger"}),
    ("wrong_signature", {"signs": ""}),
    ("wrong_signature", {"signs": "envelope"}),
    ("wrong_audience", {"audience": "https://another.example"}),
    ("wrong_audience", {"audience": ""}),
    ("wrong_issuer", {"issuer": "https://another.example"}),
    ("unsolicited", {"recipient": "https://another.example/acs"}),
    ("unsolicited", {"answers_to": "_another", "envelope_answers_to": "_another"}),
    # An assertion for another request in an envelope that was rewritten to name ours.
    ("unsolicited", {"answers_to": "_another"}),
    ("unsolicited", {"answers_to": ""}),
    ("expired", {"issued": datetime(2025, 1, 1, tzinfo=UTC)}),
    ("not_yet", {"issued": datetime(2035, 1, 1, tzinfo=UTC)}),
    ("malformed", {"format": "urn:oasis:names:tc:SAML:2.0:nameid-format:transient"}),
]


@pytest.mark.parametrize(("why", "said"), FALSE)
def test_a_response_that_does_not_fit_signs_nobody_in(
    world: World, scholar: Person, why: str, said: dict[str, Any]
) -> None:
    for name, value in said.items():
        setattr(world.saml, name, value)
    client, answer = answered(world)
    assert_kept_out(client, answer, f"saml.{why}")
    assert entries(scholar, "session.signed_in") == []


def test_an_assertion_is_used_once(world: World, scholar: Person) -> None:
    began = saml_begun()
    response = world.saml.response(began.request, OURS, ADDRESS + BACK)
    assert posted(began, response)["Location"] == "/admin/"
    began.client.post("/admin/logout/")
    # Sent again: nothing is open. Sent to a request that is: it answers another.
    assert_kept_out(began.client, posted(began, response), "saml.unsolicited")
    other = saml_begun()
    assert_kept_out(other.client, posted(other, response), "saml.unsolicited")


def test_a_signed_assertion_cannot_be_given_another_name(world: World, scholar: Person, tenant: Any) -> None:
    began = saml_begun()
    victim = tenant.person(MemberRole.APPROVER)
    bind(victim.username, KnownBy.SUBJECT, subject_of(victim), "campus")
    response = base64.b64decode(world.saml.response(began.request, OURS, ADDRESS + BACK)).decode()
    forged = response.replace(subject_of(scholar), subject_of(victim))
    assert forged != response
    answer = posted(began, base64.b64encode(forged.encode()).decode())
    assert_kept_out(began.client, answer, "saml.wrong_signature")
    # A second, unsigned assertion beside the signed one.
    began = saml_begun()
    response = base64.b64decode(world.saml.response(began.request, OURS, ADDRESS + BACK)).decode()
    start, end = response.index("<saml:Assertion"), response.index("</saml:Assertion>") + len("</saml:Assertion>")
    extra = response[start:end].replace(subject_of(scholar), subject_of(victim)).replace(' ID="_', ' ID="_x', 1)
    answer = posted(began, base64.b64encode((response[:start] + extra + response[start:]).encode()).decode())
    assert_kept_out(began.client, answer, "saml.malformed")


@pytest.mark.parametrize(
    "response",
    [
        "",
        "no base64!",
        base64.b64encode(b"<not-closed").decode(),
        base64.b64encode(b'<!DOCTYPE x [<!ENTITY a "b">]><x>&a;</x>').decode(),
        "A" * 300_000,
    ],
)
def test_what_is_no_response_is_refused(world: World, response: str) -> None:
    began = saml_begun()
    answer = began.client.post(FINISH, {"SAMLResponse": response, "RelayState": began.state})
    assert_kept_out(began.client, answer, "saml.malformed")


@pytest.mark.parametrize("state", ["", "https://example.org/", "of-another-request"])
def test_the_relay_state_names_the_request_and_leads_nowhere(world: World, scholar: Person, state: str) -> None:
    began = saml_begun()
    answer = posted(began, world.saml.response(began.request, OURS, ADDRESS + BACK), state)
    assert_kept_out(began.client, answer, "saml.unsolicited")


def test_a_response_that_nobody_asked_for_is_refused(world: World, scholar: Person) -> None:
    client = Client()
    response = world.saml.response("_never", OURS, ADDRESS + BACK)
    assert_kept_out(client, client.post(FINISH, {"SAMLResponse": response, "RelayState": ""}), "saml.unsolicited")


def test_an_unknown_or_ended_person_is_kept_out_by_saml(world: World, scholar: Person, tenant: Any) -> None:
    with tenant_transaction(Role.FRONT, tenant=tenant.id):
        Membership.objects.filter(user_id=scholar.actor.id).delete()
    client, answer = answered(world)
    assert_kept_out(client, answer, "saml.person_ended")
    world.saml.name = "nobody"
    client, answer = answered(world)
    assert_kept_out(client, answer, "saml.unknown_person")


def test_saml_shows_again_who_it_is_when_the_provider_asked_anew(
    world: World, scholar: Person, owner: Any, clock: Any
) -> None:
    owner.execute("UPDATE tenants_user SET password = '!' WHERE id = %s", [scholar.actor.id])
    client, _ = answered(world)
    clock.shift(11 * 60)
    assert client.get(ASKS)["Location"].startswith("/admin/again/with/")
    again = f"/admin/again/with/campus/?next={ASKS}"
    began = saml_begun(client, again)
    assert 'ForceAuthn="true"' in began.xml
    world.saml.proved_at = datetime.now(UTC) - timedelta(minutes=11)
    assert answered(world, began)[1]["Location"] == "/admin/again/with/"
    assert refusals()[-1] == "saml.not_fresh"
    world.saml.proved_at = None
    assert answered(world, saml_begun(client, again))[1]["Location"] == ASKS
    assert client.get(ASKS).status_code == 200


def test_a_trusted_context_of_saml_stands_for_the_second_factor(
    world: World, scholar: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    strong = "https://refeds.org/profile/mfa"
    monkeypatch.setattr(settings, "ENVIRONMENT", settings.ENVIRONMENT.model_copy(update={"require_mfa": True}))
    world.configure(saml={"trusted_second_factor": {"acr": [strong]}})
    client, _ = answered(world)
    assert client.get("/admin/")["Location"] == "/admin/second-factor/app/"
    world.saml.context = strong
    client, _ = answered(world)
    assert is_in(client)


def test_a_provider_reads_who_we_are_and_learns_no_secret(world: World) -> None:
    page = Client().get("/admin/login/with/campus/metadata/")
    assert page.status_code == 200
    assert f'entityID="{OURS}"' in page.content.decode()
    assert f'Location="{ADDRESS}{BACK}"' in page.content.decode()
    assert Client().get("/admin/login/with/company/metadata/").status_code == 404


# settings --------------------------------------------------------------------------------------------------------------


def test_without_providers_there_is_no_page_and_no_button(tenant: Any) -> None:
    assert settings.SINGLE_SIGN_ON is None
    page = Client().get(LOGIN).content.decode()
    assert "/admin/login/with/" not in page
    for path in ("login/with/company/", "login/with/company/back/", "login/with/company/metadata/"):
        assert Client().get(f"/admin/{path}").status_code == 404, path
    client = tenant.person(MemberRole.TENANT_ADMIN).signed_in()
    for path in ("again/with/", "again/with/company/"):
        assert client.get(f"/admin/{path}").status_code == 404, path
    assert 'name="way"' not in client.get("/admin/tenants/membership/invite/").content.decode()


def test_buttons_stand_where_providers_are_configured(world: World, tenant: Any) -> None:
    page = Client().get(f"{LOGIN}?next=/admin/memory/fact/").content.decode()
    assert 'href="/admin/login/with/company/?next=/admin/memory/fact/"' in page
    assert "Sign in with Campus" in page
    admin = tenant.person(MemberRole.TENANT_ADMIN).signed_in()
    assert "Company account, by subject id" in admin.get("/admin/tenants/membership/invite/").content.decode()


def test_doctor_says_whether_providers_answer(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    from tenants.single_sign_on import checks

    assert [(each.ok, each.found) for each in checks()] == [(True, "company answers"), (True, "campus answers")]
    world.oidc.answers = False
    oidc.forget()
    assert [each.ok for each in checks()] == [False, True]
    monkeypatch.setattr(settings, "SINGLE_SIGN_ON", None)
    assert [each.ok for each in checks()] == [None]


def test_a_person_of_no_tenant_sees_no_more_by_a_provider_than_by_a_password(
    world: World, person: Person, other_tenant: Any
) -> None:
    theirs = other_tenant.person(MemberRole.TENANT_ADMIN)
    with tenant_transaction(Role.STAFF, tenant=other_tenant.id):
        (row,) = Membership.objects.filter(user_id=theirs.actor.id)
    world.oidc.person = {"sub": subject_of(person)}
    client, _ = signed_in(world)
    assert client.get(f"/admin/tenants/membership/{row.id}/change/").status_code in (302, 404)
    assert client.get("/admin/tenants/membership/").status_code == 200


def test_the_provider_of_the_tests_checks_what_ours_must_send(world: World) -> None:
    """Or a client without its secret or its verifier would pass unnoticed."""
    asked = {"redirect_uri": "x", "code_challenge": "y", "nonce": "z"}
    world.oidc.codes["c"] = asked
    assert world.oidc.token({"code": "c", "redirect_uri": "x", "code_verifier": "v"}, "") is None
    assert key("own").key_size == 2048
