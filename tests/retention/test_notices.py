"""Notices to recipients: who read it is told, signed, of ids alone; and no address is asked that must not be."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from uuid import UUID

import pytest
from django.test import override_settings
from standardwebhooks.webhooks import Webhook

from memory import rows
from memory.outbox import Retry, Settled
from retention import notices
from tenants.isolation import Role, tenant_transaction
from tests.retention.test_erasing import Office, furnish

pytestmark = pytest.mark.usefixtures("database")


@dataclass
class Recipient:
    """A program that is told."""

    port: int = 0
    status: int = 204
    location: str = ""
    got: list[tuple[dict[str, str], bytes]] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"


@pytest.fixture
def recipient() -> Iterator[Recipient]:
    told = Recipient()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            told.got.append(({name.lower(): value for name, value in self.headers.items()}, body))
            self.send_response(told.status)
            if told.location:
                self.send_header("Location", told.location)
            self.end_headers()

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    told.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    with override_settings(NOTICE_HOSTS=frozenset({f"127.0.0.1:{told.port}"})):
        yield told
    server.shutdown()
    server.server_close()


def erased_after_a_read(url: str | None) -> tuple[Office, str, list[UUID], list[str]]:
    """Let an agent read of mira, then erase her; return the notices, the signing secret, and the facts it was given."""
    office = Office()
    furnish(office)
    reader = office.doors.organisation.agent()
    secret = ""
    if url is not None:
        with tenant_transaction(Role.STAFF, tenant=office.doors.id, actor=reader.actor.id):
            secret = notices.register(reader.actor, reader.actor.id, url, now=datetime.now(UTC))
    read = reader.api.get("/api/v1/facts/", {"subject": "mira"}).json()["results"]
    reader.api.get("/api/v1/facts/", {"subject": "bob"})
    office.erased()
    with tenant_transaction(Role.STAFF, tenant=office.doors.id):
        found = rows.fetch("SELECT n.id FROM retention_notice n WHERE n.agent_id = %s ORDER BY n.id", [reader.actor.id])
    return office, secret, [row[0] for row in found], [each["id"] for each in read]


def state(office: Office, notice: UUID) -> tuple[Any, ...]:
    with tenant_transaction(Role.STAFF, tenant=office.doors.id):
        return rows.fetch(
            "SELECT n.state, n.attempts, n.status, n.code FROM retention_notice n WHERE n.id = %s", [notice]
        )[0]


def test_who_read_it_is_told_by_a_signed_message_of_the_ids_that_it_was_given(recipient: Recipient) -> None:
    office, secret, (notice,), read = erased_after_a_read(recipient.url)
    assert notices.work(office.doors.id, notice) is Settled.DONE
    assert notices.work(office.doors.id, notice) is Settled.DONE
    ((headers, body),) = recipient.got
    told = Webhook(secret).verify(body, headers)
    assert told["type"] == "subject.erased"
    assert sorted(told["data"]["facts"]) == sorted(read)
    assert set(told["data"]) == {"erasure", "notice", "facts"}
    for word in ("mira", "Lisbon", "Okafor"):
        assert word not in body.decode()
    assert state(office, notice) == ("sent", 1, 204, None)


def test_a_recipient_that_fails_is_tried_again_later_and_given_up_at_last(recipient: Recipient) -> None:
    office, _, (notice,), _ = erased_after_a_read(recipient.url)
    recipient.status = 500
    waits = []
    for _ in range(notices.ATTEMPTS - 1):
        came = notices.work(office.doors.id, notice)
        assert isinstance(came, Retry)
        assert came.wait is not None
        waits.append(came.wait)
    assert waits == sorted(waits)
    assert (waits[0], waits[-1]) == (timedelta(seconds=30), timedelta(hours=6))
    assert notices.work(office.doors.id, notice) is Settled.DONE
    assert state(office, notice) == ("failed", notices.ATTEMPTS, 500, "refused")


def test_no_redirect_is_followed(recipient: Recipient) -> None:
    office, _, (notice,), _ = erased_after_a_read(recipient.url)
    recipient.status, recipient.location = 302, recipient.url
    assert isinstance(notices.work(office.doors.id, notice), Retry)
    assert len(recipient.got) == 1
    assert state(office, notice)[2:] == (302, "redirected")


def test_an_address_that_came_to_be_private_is_not_asked(recipient: Recipient) -> None:
    office, _, (notice,), _ = erased_after_a_read(recipient.url)
    with override_settings(NOTICE_HOSTS=frozenset()):
        assert isinstance(notices.work(office.doors.id, notice), Retry)
    assert recipient.got == []
    assert state(office, notice)[3] == "https_needed"


def test_a_recipient_without_an_address_is_recorded_as_one_that_nobody_could_tell() -> None:
    office, _, (notice,), _ = erased_after_a_read(None)
    assert notices.work(office.doors.id, notice) is Settled.DONE
    assert state(office, notice) == ("nobody", 1, None, "no_address")


@pytest.mark.parametrize(
    "address",
    ["10.0.0.1", "127.0.0.1", "169.254.169.254", "192.168.1.1", "::1", "fe80::1", "::ffff:10.0.0.1", "100.64.0.1",
     "0.0.0.0", "224.0.0.1", "fd00::1", "2002:a00:1::"],
)  # fmt: skip
def test_what_is_no_public_address_is_told_apart(address: str) -> None:
    assert not notices._is_public(address)
    assert notices._is_public("93.184.216.34")


def test_who_only_wrote_and_who_read_of_others_is_not_told() -> None:
    office, _, found, _ = erased_after_a_read(None)
    assert len(found) == 1
    with tenant_transaction(Role.STAFF, tenant=office.doors.id):
        agents = rows.fetch("SELECT DISTINCT n.agent_id FROM retention_notice n", [])
    assert len(agents) == 1
