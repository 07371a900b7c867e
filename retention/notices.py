"""Telling recipients: whoever has read what was erased is sent a signed message of ids alone (GDPR, article 19).

Who read it is what the receipts say. A message goes to the address that is registered for the reading agent, signed as the
Standard Webhooks specification says, by the outbox, with retries. It names an erasure and facts that the recipient was
given under these ids, and nothing else. A recipient without an address is recorded as one that nobody could be told for.

An address is a program's on the outside: it is asked for by https, unless its host is allowed by a setting; no redirect
is followed; and an address that leads to a private network is refused, unless its host is allowed.
"""

from __future__ import annotations

import ipaddress
import json
import re
import secrets
import socket
from base64 import b64encode
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit
from uuid import UUID

import urllib3
from django.conf import settings
from standardwebhooks.webhooks import Webhook

from memory import rows
from memory.endings import worker
from memory.outbox import GivenUp, Retry, Settled
from memory.rows import SubjectKeyRow
from tenants.actors import Actor, ActorKind, MemberRole, Scope
from tenants.audit import Action, Event, append
from tenants.errors import FieldError, Forbidden, Missing, Refused
from tenants.identity import new_id
from tenants.isolation import Role, borrowed, tenant_transaction
from tenants.models import Membership
from tenants.secrets import keyring

#: How often a message is tried, and how long it then waits, the first time and at most.
ATTEMPTS = 8
FIRST_WAIT, LONGEST_WAIT = timedelta(seconds=30), timedelta(hours=6)
_TIMEOUT = urllib3.Timeout(connect=3.0, read=5.0)
_URL = re.compile(r"https?://[^/@?#\s]+(/[^?#\s]*)?")
_LONGEST_URL = 500
_CONTEXT = b"muniment:notice-secret"


class Unreachable(Exception):
    """An address that is not asked, by code."""

    def __init__(self, code: str) -> None:
        self.code = code
        super().__init__(code)


# addresses ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Place:
    """Where a request goes: the very address that was checked, so that a name cannot come to mean another in between."""

    scheme: str
    host: str
    port: int
    path: str
    address: str


def place_of(url: str) -> Place:
    """Return where `url` leads now. Raises `Unreachable` for what may not be asked.

    Every address of the name has to be a public one, unless the host is in `MUNIMENT_NOTICE_HOSTS`.
    """
    scheme, host, port, path, allowed = _checked(url)
    try:
        found = {str(info[4][0]) for info in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)}
    except (OSError, UnicodeError):
        raise Unreachable("unknown_host") from None
    if not allowed and not all(_is_public(each) for each in found):
        raise Unreachable("private_address")
    return Place(scheme, host, port, path, sorted(found)[0])


def _checked(url: str) -> tuple[str, str, int, str, bool]:
    """Return scheme, host, port and path of an address, and whether a setting allows its host; asks nobody."""
    if len(url) > _LONGEST_URL or not _URL.fullmatch(url):
        raise Unreachable("bad_address")
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").lower(), parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        raise Unreachable("bad_address") from None
    allowed = host in settings.NOTICE_HOSTS or f"{host}:{port}" in settings.NOTICE_HOSTS
    if parts.scheme != "https" and not allowed:
        raise Unreachable("https_needed")
    try:
        is_private = not _is_public(host)
    except ValueError:  # a name, which is looked up when it is asked
        is_private = False
    if is_private and not allowed:
        raise Unreachable("private_address")
    return parts.scheme, host, port, parts.path or "/", allowed


def _is_public(address: str) -> bool:
    number = ipaddress.ip_address(address.split("%", 1)[0])
    mapped = getattr(number, "ipv4_mapped", None) or getattr(number, "sixtofour", None)
    if mapped is not None:
        number = mapped
    return number.is_global and not number.is_multicast


_SET = """
INSERT INTO retention_noticeendpoint (tenant_id, id, agent_id, url, key_id, sealed, created_at)
VALUES (%s::uuid, %s::uuid, %s::uuid, %s, %s::uuid, %s::bytea, %s::timestamptz)
"""
_END = """
UPDATE retention_noticeendpoint SET ended_at = %s::timestamptz
WHERE tenant_id = %s::uuid AND agent_id = %s::uuid AND ended_at IS NULL RETURNING id
"""


def register(actor: Actor, agent: UUID, url: str, *, now: datetime) -> str:
    """Register where the people of an agent are told, in place of an earlier address; return the secret, shown this once.

    In the caller's transaction under `Role.STAFF`. Raises `Forbidden`, `Missing` for no such agent, `Refused` for an address
    that may not be asked.
    """
    _require_keeper(actor)
    try:
        _checked(url)
    except Unreachable as refused:
        raise Refused("notice_refused", errors=[FieldError("url", refused.code)]) from None
    if not rows.fetch(
        "SELECT 1 FROM tenants_agent WHERE tenant_id = %s::uuid AND id = %s::uuid", [actor.tenant, agent]
    ):
        raise Missing
    secret = secrets.token_bytes(32)
    endpoint, key_id = new_id(), new_id()
    data_key, wrapped, version = keyring().new_data_key(actor.tenant)
    sealed = keyring().seal(data_key, secret, _CONTEXT + endpoint.bytes)
    with borrowed(Role.WRITER, back_to=Role.STAFF):
        rows.SUBJECT_KEYS.insert(actor.tenant, [SubjectKeyRow(key_id, wrapped, version, now)])
    rows.fetch(_END, [now, actor.tenant, agent])
    rows.execute(_SET, [actor.tenant, endpoint, agent, url, key_id, sealed, now])
    append([Event(actor=actor, action=Action.ENDPOINT_SET, target_kind="agent", target_id=agent)])
    return f"whsec_{b64encode(secret).decode('ascii')}"


def _require_keeper(actor: Actor) -> None:
    if actor.kind is ActorKind.PERSON:
        roles = [MemberRole.PRIVACY_OFFICER.value, MemberRole.TENANT_ADMIN.value]
        allowed = Membership.objects.filter(tenant_id=actor.tenant, user_id=actor.id, role__in=roles).exists()
    else:
        allowed = actor.kind is ActorKind.OPERATOR or actor.may(Scope.ADMIN)
    if not allowed:
        raise Forbidden("role_missing")


# sending --------------------------------------------------------------------------------------------------------------

_TRIED = """
UPDATE retention_notice n SET state = %s, attempts = n.attempts + 1, status = %s, code = %s, tried_at = clock_timestamp(),
  sent_at = CASE WHEN %s = 'sent' THEN clock_timestamp() END
WHERE n.tenant_id = %s::uuid AND n.id = %s::uuid AND n.state = 'waiting' RETURNING n.attempts
"""


def work(tenant: UUID, target: UUID) -> Settled | GivenUp | Retry:
    """Send one message: the worker of `notice.send`. One that was cut off after sending is sent again, under the same id.

    Nothing is open while the recipient is asked.
    """
    with tenant_transaction(Role.WORKER, tenant=tenant):
        found = rows.fetch(_NOTICE, [tenant, target])
        if not found:
            return Settled.DONE
        erasure, agent, facts, attempts, created_at, endpoint, url, sealed, key_id, at = found[0]
        secret = b""
        if endpoint is not None:
            ((wrapped, version),) = rows.fetch(_KEY, [tenant, key_id])
            data_key = keyring().unwrap(tenant, bytes(wrapped), version)
            secret = keyring().open(data_key, bytes(sealed), _CONTEXT + endpoint.bytes)
    if endpoint is None:
        return _tell(tenant, target, agent, "nobody", None, "no_address", attempts)
    body = json.dumps(
        {
            "type": "subject.erased",
            "timestamp": created_at.astimezone(UTC).isoformat(),
            "data": {"erasure": str(erasure), "notice": str(target), "facts": [str(each) for each in facts]},
        },
        separators=(",", ":"),
    )
    status, code = send(url, secret, str(target), body, at=at)
    state = "sent" if code == "" else "failed" if attempts + 1 >= ATTEMPTS else "waiting"
    return _tell(tenant, target, agent, state, status, code or None, attempts)


_NOTICE = """
SELECT n.erasure_id, n.agent_id, n.fact_ids, n.attempts, n.created_at, p.id, p.url, p.sealed, p.key_id, clock_timestamp()
FROM retention_notice n
  LEFT JOIN retention_noticeendpoint p ON p.tenant_id = n.tenant_id AND p.agent_id = n.agent_id AND p.ended_at IS NULL
WHERE n.tenant_id = %s::uuid AND n.id = %s::uuid AND n.state = 'waiting'
"""
_KEY = "SELECT k.wrapped, k.version FROM tenants_subjectkey k WHERE k.tenant_id = %s::uuid AND k.id = %s::uuid"


def _tell(
    tenant: UUID, notice: UUID, agent: UUID, state: str, status: int | None, code: str | None, attempts: int
) -> Settled | GivenUp | Retry:
    """Write down what came of an attempt."""
    with tenant_transaction(Role.WORKER, tenant=tenant):
        if rows.fetch(_TRIED, [state, status, code, state, tenant, notice]) and state != "waiting":
            append(
                [
                    Event(
                        actor=worker(tenant),
                        action=Action.NOTICE_SENT if state == "sent" else Action.NOTICE_FAILED,
                        target_kind="notice",
                        target_id=notice,
                        reason=code or "sent",
                        numbers={"attempts": attempts + 1},
                    )
                ]
            )
    if state == "waiting":
        return Retry(code or "failed", min(FIRST_WAIT * 4**attempts, LONGEST_WAIT))
    return Settled.DONE


def send(url: str, secret: bytes, message: str, body: str, *, at: datetime) -> tuple[int | None, str]:
    """Post a signed message; return the status that came back, and a code of what went wrong, empty where nothing did.

    The certificate is checked against the name, while the connection goes to the address that was checked.
    """
    try:
        place = place_of(url)
    except Unreachable as refused:
        return None, refused.code
    signature = Webhook(b64encode(secret).decode("ascii")).sign(message, at, body)
    headers = {
        "content-type": "application/json",
        "webhook-id": message,
        "webhook-timestamp": str(int(at.timestamp())),
        "webhook-signature": signature,
        "host": place.host if place.port in (80, 443) else f"{place.host}:{place.port}",
        "user-agent": "muniment",
    }
    pool: urllib3.HTTPConnectionPool
    if place.scheme == "https":
        pool = urllib3.HTTPSConnectionPool(
            place.address, place.port, timeout=_TIMEOUT, retries=False, server_hostname=place.host,
            assert_hostname=place.host, cert_reqs="CERT_REQUIRED",
        )  # fmt: skip
    else:
        pool = urllib3.HTTPConnectionPool(place.address, place.port, timeout=_TIMEOUT, retries=False)
    try:
        with pool:
            answer = pool.urlopen(
                "POST", place.path, body=body.encode("utf-8"), headers=headers, redirect=False, preload_content=False
            )
            status = int(answer.status)
            answer.close()
    except urllib3.exceptions.HTTPError:
        return None, "no_answer"
    return status, "" if 200 <= status < 300 else "redirected" if 300 <= status < 400 else "refused"
