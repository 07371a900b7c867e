"""Who sends this request: from the `Authorization` header to an `Actor`, before any tenant is known.

One round trip in a transaction of its own. Refusals are audited on the platform chain, a bounded number a minute: a flood
of wrong keys must not become a flood of locks on the chain's head.
"""

import hmac
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
from django.db import connection

from tenants.actors import Actor, ActorKind, Scope
from tenants.audit import PLATFORM, Action, Event, append
from tenants.errors import Unauthenticated
from tenants.isolation import Role, tenant_transaction
from tenants.registry import PREFIX_LENGTH, key_digest

SCHEME = "Api-Key"

#: Refusals written to the audit chain per process and minute; the others are counted, and told by the next one written.
AUDITED_A_MINUTE = 20
_MINUTE = timedelta(minutes=1)
_LONGEST_HEADER = 200

_TAKE = "SELECT set_config('role', 'muniment_front', true), set_config('synchronous_commit', 'off', true)"
_FIND = """
SELECT k.id, k.tenant_id, k.digest, k.scopes, k.expires_at, k.revoked_at, k.last_used_at,
       a.id, a.name, a.clearance, a.trust, a.purposes, a.state, t.slug, t.state
FROM tenants_agentkey k
JOIN tenants_agent a ON a.tenant_id = k.tenant_id AND a.id = k.agent_id
JOIN tenants_tenant t ON t.id = k.tenant_id
WHERE k.prefix = %s
"""
# SKIP LOCKED: of requests that come at once one notes the use, and none waits.
_TOUCH = """
UPDATE tenants_agentkey SET last_used_at = %s
WHERE (tenant_id, id) IN (
  SELECT tenant_id, id FROM tenants_agentkey
  WHERE tenant_id = %s AND id = %s AND (last_used_at IS NULL OR last_used_at < %s) FOR UPDATE SKIP LOCKED)
"""


@dataclass(frozen=True, slots=True)
class Caller:
    """An agent that proved itself with a key, and what may be told to it about itself."""

    actor: Actor
    key: UUID
    prefix: str
    expires_at: datetime | None
    agent_name: str
    tenant_slug: str


def authenticate(header: str | None, now: datetime) -> Actor:
    """Return the agent that `header` (`Api-Key <prefix>.<secret>`) proves, with its tenant, clearance and scopes.

    Must not run inside a transaction. Raises `Unauthenticated`: `key_missing` without such a header, `key_unknown` for
    any key that is not one of ours (an unknown prefix and a wrong secret look the same), and to the holder of the true
    secret `key_revoked`, `key_expired` or `key_suspended` (its agent or tenant).
    """
    return recognise(header, now).actor


def recognise(header: str | None, now: datetime) -> Caller:
    """As `authenticate`, and return what the caller may know of its key too."""
    text = _key_text(header)
    prefix = text[:PREFIX_LENGTH]
    row = _found(prefix) if text[PREFIX_LENGTH : PREFIX_LENGTH + 1] == "." else None
    # Compared with something in every case, so that a known prefix takes no longer than an unknown one.
    digest = bytes(row[2]) if row is not None else bytes(64)
    if not hmac.compare_digest(digest, key_digest(text)) or row is None:
        _refuse("key_unknown", row[0] if row is not None else PLATFORM, now)
        raise Unauthenticated("key_unknown")
    key, tenant, _, scopes, expires_at, revoked_at, last_used_at, agent, name, clearance, trust, purposes, *rest = row
    agent_state, slug, tenant_state = rest
    code = (
        "key_revoked"
        if revoked_at is not None
        else "key_expired"
        if expires_at is not None and expires_at <= now
        else "key_suspended"
        if agent_state != "active" or tenant_state != "active"
        else ""
    )
    if code:
        _refuse(code, key, now)
        raise Unauthenticated(code)
    if last_used_at is None or last_used_at < now - _MINUTE:
        _in_one_trip([(_TOUCH, [now, tenant, key, now - _MINUTE])])
    actor = Actor(
        kind=ActorKind.AGENT,
        id=agent,
        tenant=tenant,
        clearance=clearance,
        trust=trust,
        scopes=frozenset(Scope(scope) for scope in scopes),
        purposes=frozenset(purposes),
    )
    return Caller(actor, key, prefix, expires_at, name, slug)


def _key_text(header: str | None) -> str:
    scheme, _, text = (header or "").partition(" ")
    text = text.strip()
    if scheme.lower() != SCHEME.lower() or not text:
        raise Unauthenticated("key_missing")
    if len(text) > _LONGEST_HEADER or not text.isascii() or not text.isprintable():
        return ""
    return text


def _found(prefix: str) -> Sequence[Any] | None:
    return _in_one_trip([(_FIND, [prefix])])


def _in_one_trip(statements: Sequence[tuple[str, list[Any]]]) -> Sequence[Any] | None:
    """Run statements under `Role.FRONT` as one transaction in one round trip; return the last one's first row, if any.

    A pipeline in autocommit is one transaction up to its end, so that the role is gone when this returns. A connection
    that broke since its last use is opened anew, once: this also serves as the request's health check.
    """
    if connection.in_atomic_block:
        raise RuntimeError("keys are looked up in a transaction of their own")

    def run() -> Sequence[Any] | None:
        connection.ensure_connection()
        session: psycopg.Connection[Any] = connection.connection
        with connection.wrap_database_errors:
            with session.pipeline():
                session.execute(_TAKE, prepare=True)
                for text, parameters in statements:
                    cursor = session.execute(text, parameters, prepare=True)
            return cursor.fetchone() if cursor.description else None

    return _with_one_retry(run)


def _with_one_retry(run: Callable[[], Sequence[Any] | None]) -> Sequence[Any] | None:
    try:
        row = run()
    except Exception:
        session = connection.connection
        if session is None or not session.closed:
            raise
        connection.close()
        row = run()
    connection.health_check_done = True  # type: ignore[attr-defined]
    return row


class Bound:
    """How many refusals this process wrote to the chain in the current minute, and how many it kept back."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._since: datetime | None = None
        self._written = 0
        self._kept_back = 0

    def admit(self, now: datetime) -> int | None:
        """Return how many were kept back before this one, which is to be written; None to keep this one back too."""
        with self._lock:
            if self._since is None or not timedelta() <= now - self._since < _MINUTE:
                self._since, self._written = now, 0
            if self._written >= AUDITED_A_MINUTE:
                self._kept_back += 1
                return None
            self._written += 1
            kept, self._kept_back = self._kept_back, 0
            return kept


refusals = Bound()


def _refuse(code: str, key: UUID, now: datetime) -> None:
    kept_back = refusals.admit(now)
    if kept_back is None:
        return
    actor = Actor(kind=ActorKind.AGENT, id=PLATFORM, tenant=PLATFORM)
    event = Event(
        actor=actor,
        action=Action.KEY_REFUSED,
        target_kind="agent_key",
        target_id=key,
        reason=code,
        numbers={"not_written_before": kept_back},
    )
    with tenant_transaction(Role.FRONT, tenant=None):
        append([event], chain=PLATFORM)
