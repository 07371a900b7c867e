"""Signing in with a second factor, and showing once more who one is."""

import re
import time
from typing import Any

import pytest
import time_machine
from allauth.mfa.models import Authenticator
from allauth.mfa.totp.internal.auth import format_hotp_value, hotp_value
from django.conf import settings
from django.test import Client

from tenants.actors import MemberRole
from tenants.isolation import Role, tenant_transaction
from tenants.models import PLATFORM, AuditEvent
from tests.organisation import Person

APP, CODES, LOGIN = "/admin/second-factor/app/", "/admin/second-factor/codes/", "/admin/login/"


def code(secret: str, moment: float) -> str:
    return str(format_hotp_value(hotp_value(secret, int(moment) // 30)))


def entries(person: Person, *actions: str) -> list[AuditEvent]:
    """Return what the platform's chain says of a person, the oldest first."""
    with tenant_transaction(Role.FRONT, tenant=None):
        found = AuditEvent.objects.filter(chain=PLATFORM, actor_id=person.actor.id, action__in=actions)
        return list(found.order_by("seq"))


@pytest.fixture
def person(tenant: Any) -> Person:
    return tenant.person(MemberRole.REVIEWER)  # type: ignore[no-any-return]


@pytest.fixture
def clock() -> Any:
    with time_machine.travel("2031-03-01T10:00:00Z", tick=False) as clock:
        yield clock


class Enrolled:
    def __init__(self, person: Person, client: Client, clock: Any) -> None:
        page = client.get(APP).content.decode()
        found = re.search(r'<code class="m-secret">([A-Z2-7]{32})</code>', page)
        assert found is not None
        self.secret, self.person, self.client, self.clock = found[1], person, client, clock
        answer = client.post(APP, {"code": self.code()})
        assert (answer.status_code, answer["Location"]) == (302, CODES), answer.content
        shown = client.get(CODES).content.decode()
        self.recovery = re.findall(r"<li>(\d{8})</li>", shown)

    def code(self) -> str:
        return code(self.secret, time.time())

    def first_step(self) -> Client:
        client = Client()
        answer = client.post(LOGIN, {"username": self.person.username, "password": self.person.password})
        assert (answer.status_code, answer["Location"]) == (302, "/admin/login/code/")
        return client


@pytest.fixture
def enrolled(person: Person, clock: Any) -> Enrolled:
    made = Enrolled(person, person.signed_in(), clock)
    clock.shift(60)  # a code is taken once
    return made


def test_without_a_second_factor_a_password_signs_in_as_it_always_did(person: Person) -> None:
    client = Client()
    answer = client.post(
        f"{LOGIN}?next=/admin/memory/fact/", {"username": person.username, "password": person.password}
    )
    assert (answer.status_code, answer["Location"]) == (302, "/admin/memory/fact/")
    assert client.get("/admin/").status_code == 200
    (entry,) = entries(person, "session.signed_in")
    assert entry.numbers == {"second_factor": 0}


@pytest.mark.parametrize("elsewhere", ["https://example.org/", "//example.org", "javascript:alert(1)"])
def test_a_sign_in_leads_to_no_other_site(person: Person, elsewhere: str) -> None:
    answer = Client().post(f"{LOGIN}?next={elsewhere}", {"username": person.username, "password": person.password})
    assert answer["Location"] == "/admin/"


def test_whoever_has_one_is_asked_for_it_and_is_nobody_until_then(enrolled: Enrolled) -> None:
    signed_in = entries(enrolled.person, "session.signed_in")
    client = enrolled.first_step()
    assert client.get("/admin/")["Location"].startswith(LOGIN)
    assert entries(enrolled.person, "session.signed_in") == signed_in
    assert client.post("/admin/login/code/", {"code": "000000"}).status_code == 200
    assert client.get("/admin/")["Location"].startswith(LOGIN)
    answer = client.post("/admin/login/code/", {"code": enrolled.code()})
    assert (answer.status_code, answer["Location"]) == (302, "/admin/")
    assert client.get("/admin/").status_code == 200
    assert entries(enrolled.person, "session.signed_in")[-1].numbers == {"second_factor": 1}
    assert len(entries(enrolled.person, "second_factor.added")) == 1


@pytest.mark.parametrize("page", ["app/", "app/remove/", "codes/", "codes/new/", ""])
def test_pages_of_the_second_factor_lead_whoever_has_not_signed_in_to_signing_in(enrolled: Enrolled, page: str) -> None:
    for client in (Client(), enrolled.first_step()):
        answer = client.get(f"/admin/second-factor/{page}")
        assert (answer.status_code, answer["Location"].startswith(LOGIN)) == (302, True)


def test_a_code_is_taken_once(enrolled: Enrolled) -> None:
    assert enrolled.first_step().post("/admin/login/code/", {"code": enrolled.code()}).status_code == 302
    assert enrolled.first_step().post("/admin/login/code/", {"code": enrolled.code()}).status_code == 200


def test_a_recovery_code_signs_in_once_and_is_shown_once(enrolled: Enrolled) -> None:
    assert len(enrolled.recovery) == 10
    assert not re.search(r"<li>\d{8}</li>", enrolled.client.get(CODES).content.decode())
    sent = {"code": enrolled.recovery[0]}
    assert enrolled.first_step().post("/admin/login/code/", sent).status_code == 302
    assert enrolled.first_step().post("/admin/login/code/", sent).status_code == 200


def test_guessing_codes_is_stopped_and_audited(enrolled: Enrolled) -> None:
    client = enrolled.first_step()
    for _ in range(12):
        page = client.post("/admin/login/code/", {"code": "000000"})
    assert "Too many" in page.content.decode()
    # Not even the right one is looked at while the limit stands.
    assert client.post("/admin/login/code/", {"code": enrolled.code()}).status_code == 200


def test_guessing_passwords_is_stopped_for_a_name_and_for_no_other(person: Person, tenant: Any, clock: Any) -> None:
    for _ in range(10):
        Client().post(LOGIN, {"username": person.username, "password": "wrong-wrong-wrong"})
    right = {"username": person.username, "password": person.password}
    page = Client().post(LOGIN, right)
    assert page.status_code == 200
    assert "Too many failed sign-ins" in page.content.decode()
    tenant.person(MemberRole.AUDITOR).signed_in()
    clock.shift(6 * 60)
    assert Client().post(LOGIN, right).status_code == 302


def test_what_proves_it_is_sealed_and_no_other_role_reads_it(enrolled: Enrolled, owner: Any) -> None:
    with tenant_transaction(Role.FRONT, tenant=None):
        rows = list(Authenticator.objects.filter(user_id=enrolled.person.actor.id))
    assert {row.type for row in rows} == {"totp", "recovery_codes"}
    stored = " ".join(str(row.data) for row in rows)
    assert enrolled.secret not in stored
    assert not any(each in stored for each in enrolled.recovery)
    for role in Role:
        reads = owner.execute("SELECT has_table_privilege(%s, 'mfa_authenticator', 'SELECT')", [role.value]).fetchone()
        assert reads == (role is Role.FRONT,)


def test_another_signing_key_opens_none_of_it(enrolled: Enrolled, monkeypatch: pytest.MonkeyPatch) -> None:
    client = enrolled.first_step()
    wanted = enrolled.code()
    from tenants import signing

    with monkeypatch.context() as patched:
        patched.setattr(settings, "SECRET_KEY", settings.SECRET_KEY)
        sealer = signing._sealer
        patched.setattr(signing, "_sealer", lambda: type(sealer())(type(sealer()).generate_key()))
        assert client.post("/admin/login/code/", {"code": wanted}).status_code == 200


def test_changing_it_asks_who_it_is_once_more_when_that_is_not_recent(enrolled: Enrolled) -> None:
    enrolled.clock.shift(11 * 60)
    client = enrolled.client
    asked = client.get("/admin/second-factor/app/remove/")
    assert asked.status_code == 302
    assert asked["Location"].startswith("/admin/again/code/")
    # A password is not enough of somebody who has more.
    assert client.get("/admin/again/")["Location"].startswith("/admin/again/code/")
    assert client.post(asked["Location"], {"code": "000000"}).status_code == 200
    enrolled.clock.shift(60)
    done = client.post(asked["Location"], {"code": enrolled.code()})
    assert (done.status_code, done["Location"]) == (302, "/admin/second-factor/app/remove/")
    assert client.post("/admin/second-factor/app/remove/").status_code == 302
    assert [each.action for each in entries(enrolled.person, "session.confirmed_again", "second_factor.removed")] == [
        "session.confirmed_again",
        "second_factor.removed",
    ]
    again = Client().post(LOGIN, {"username": enrolled.person.username, "password": enrolled.person.password})
    assert again["Location"] == "/admin/"


def test_new_recovery_codes_end_the_old_ones(enrolled: Enrolled) -> None:
    assert enrolled.client.post("/admin/second-factor/codes/new/").status_code == 302
    shown = re.findall(r"<li>(\d{8})</li>", enrolled.client.get(CODES).content.decode())
    assert len(shown) == 10
    assert not set(shown) & set(enrolled.recovery)
    assert enrolled.first_step().post("/admin/login/code/", {"code": enrolled.recovery[1]}).status_code == 200
    assert len(entries(enrolled.person, "second_factor.recovery_codes_made")) == 1


def test_by_the_setting_everybody_sets_one_up_before_anything_else(
    person: Person, monkeypatch: pytest.MonkeyPatch, clock: Any
) -> None:
    client = person.signed_in()
    monkeypatch.setattr(settings, "ENVIRONMENT", settings.ENVIRONMENT.model_copy(update={"require_mfa": True}))
    for path in ("/admin/", "/admin/memory/fact/", "/admin/password_change/"):
        assert client.get(path)["Location"] == APP
    made = Enrolled(person, client, clock)
    assert made.client.get("/admin/").status_code == 200
    assert client.post("/admin/logout/").status_code in (200, 302)


def test_no_page_makes_an_account_or_sends_mail(person: Person) -> None:
    client = person.signed_in()
    for path in ("signup", "password/reset", "email", "login/code/request", "confirm-email"):
        assert client.get(f"/admin/{path}/").status_code == 404


def test_a_code_that_was_typed_stands_in_no_log_line(enrolled: Enrolled, caplog: Any) -> None:
    wanted = enrolled.code()
    with caplog.at_level("DEBUG"):
        enrolled.first_step().post("/admin/login/code/", {"code": wanted})
    assert caplog.records
    written = " ".join(str(vars(record)) for record in caplog.records)
    assert "admin/login/code/" in written
    for secret in (f"'{wanted}'", enrolled.secret, enrolled.person.password, enrolled.person.username):
        assert secret not in written


def test_an_operator_takes_it_away_and_that_is_audited(enrolled: Enrolled) -> None:
    from django.core.management import CommandError, call_command

    call_command("remove_second_factor", enrolled.person.username, "--json")
    answer = Client().post(LOGIN, {"username": enrolled.person.username, "password": enrolled.person.password})
    assert answer["Location"] == "/admin/"
    with tenant_transaction(Role.FRONT, tenant=None):
        (entry,) = AuditEvent.objects.filter(
            chain=PLATFORM, action="second_factor.removed", target_id=enrolled.person.actor.id
        )
    assert (entry.actor_kind, entry.numbers) == ("operator", {"removed": 2})
    with pytest.raises((CommandError, SystemExit)):
        call_command("remove_second_factor", "nobody-of-that-name")


def test_doctor_says_whether_everybody_is_asked_for_one(enrolled: Enrolled, monkeypatch: pytest.MonkeyPatch) -> None:
    from tenants.examination import second_factor

    found = second_factor(required=False)
    assert (found.ok, found.name) == (None, "second factor")
    assert "MUNIMENT_REQUIRE_MFA" in found.mend
    assert second_factor(required=True).ok is True


def test_used_codes_and_tries_are_known_to_every_process_of_the_host() -> None:
    from django.core.cache import cache

    assert "filebased" in settings.CACHES["default"]["BACKEND"]
    assert cache.add("once", "y", timeout=5)
    assert not cache.add("once", "y", timeout=5)
    cache.delete("once")
