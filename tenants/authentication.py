"""Who sends this request: from the `Authorization` header to an `Actor`, before any tenant is known.

One round trip in a transaction of its own. Refusals are audited on the platform chain, a bounded number a minute: a flood
of wrong keys must not become a flood of locks on the chain's head.
"""

import hmac
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import connection

from tenants.actors import Actor, ActorKind, Scope
from tenants.audit import PLATFORM, Action, Event, append
from tenants.errors import TooMany, Unauthenticated
from tenants.isolation import Proof, Role, asked_at_once, tenant_transaction
from tenants.registry import PREFIX_LENGTH, key_digest
from tenants.trips import Rows

SCHEME = "Api-Key"

#: Refusals written to the audit chain per process and minute; the others are counted, and told by the next one written.
AUDITED_A_MINUTE = 20
_MINUTE = timedelta(minutes=1)
_LONGEST_HEADER = 200

_TAKE = "SELECT set_config('role', 'muniment_front', true), set_config('synchronous_commit', 'off', true)"
_FOUND = """
SELECT k.id, k.tenant_id, k.digest, k.scopes, k.expires_at, k.revoked_at, k.last_used_at,
       a.id AS agent_id, a.name, a.clearance, a.trust, a.purposes, a.state, t.slug, t.state AS tenant_state,
       t.requests_a_minute, t.writes_a_minute
FROM tenants_agentkey k
JOIN tenants_agent a ON a.tenant_id = k.tenant_id AND a.id = k.agent_id
JOIN tenants_tenant t ON t.id = k.tenant_id
WHERE k.prefix = %(prefix)s::text
"""
_FIND = f"SELECT f.*, NULL::boolean AS let_in, 0 AS seconds_left FROM ({_FOUND}) f"
# Requests at once wait for the key's row, and each sees what those before it have counted: none is let in too many.
# A refused one changes nothing, nor does one with a wrong secret. A minute that a later one has begun is never reopened.
_FIND_AND_COUNT = f"""
WITH f AS MATERIALIZED ({_FOUND}), m AS MATERIALIZED (SELECT date_trunc('minute', statement_timestamp()) AS minute),
counted AS (
  UPDATE tenants_agentkey u
  SET counted_minute = greatest(u.counted_minute, m.minute),
      counted_requests = CASE WHEN u.counted_minute >= m.minute THEN u.counted_requests ELSE 0 END + 1,
      counted_writes = CASE WHEN u.counted_minute >= m.minute THEN u.counted_writes ELSE 0 END + %(writes)s::int
  FROM f, m
  WHERE u.tenant_id = f.tenant_id AND u.id = f.id AND f.digest = %(digest)s::bytea
    AND (u.counted_minute IS NULL OR u.counted_minute < m.minute
      OR (u.counted_requests < coalesce(f.requests_a_minute, 2147483647)
        AND u.counted_writes + %(writes)s::int <= coalesce(f.writes_a_minute, 2147483647)))
  RETURNING u.counted_requests
)
SELECT f.*, EXISTS (SELECT FROM counted) AS let_in,
  ceil(extract(epoch FROM (SELECT minute FROM m) + interval '1 minute' - statement_timestamp()))::int AS seconds_left
FROM f
"""
# SKIP LOCKED: of requests that come at once one notes the use, and none waits.
_TOUCH = """
UPDATE tenants_agentkey SET last_used_at = %(now)s::timestamptz
WHERE (tenant_id, id) IN (
  SELECT tenant_id, id FROM tenants_agentkey
  WHERE tenant_id = %(tenant)s::uuid AND id = %(key)s::uuid
    AND (last_used_at IS NULL OR last_used_at < %(before)s::timestamptz) FOR UPDATE SKIP LOCKED)
"""
# Everything that was remembered of the key and its agent, that both may be used now, and that nothing is counted.
_PROVE = """
SELECT set_config('muniment.tenant', k.tenant_id::text, true), set_config('muniment.clearance', a.clearance::text, true),
       set_config('muniment.actor', a.id::text, true)
FROM tenants_agentkey k
JOIN tenants_agent a ON a.tenant_id = k.tenant_id AND a.id = k.agent_id
JOIN tenants_tenant t ON t.id = k.tenant_id
WHERE k.prefix = %(prefix)s::text AND k.digest = %(digest)s::bytea AND k.revoked_at IS NULL
  AND (k.expires_at IS NULL OR k.expires_at > %(now)s::timestamptz) AND a.state = 'active' AND t.state = 'active'
  AND k.tenant_id = %(tenant)s::uuid AND a.id = %(agent)s::uuid AND k.scopes = %(scopes)s::text[]
  AND a.clearance = %(clearance)s::smallint AND a.trust = %(trust)s::smallint AND a.purposes = %(purposes)s::text[]
  AND t.requests_a_minute IS NULL AND t.writes_a_minute IS NULL
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


def recognise(header: str | None, now: datetime, *, writes: bool = False) -> Caller:
    """As `authenticate`, and return what the caller may know of its key too.

    Where the tenant limits its keys the request is counted, as a write too with `writes`, by the database's minute;
    raises `TooMany` for one over a limit, which is not counted.
    """
    text = _key_text(header)
    prefix = text[:PREFIX_LENGTH]
    row = _found(text, writes=writes) if text[PREFIX_LENGTH : PREFIX_LENGTH + 1] == "." else None
    # Compared with something in every case, so that a known prefix takes no longer than an unknown one.
    digest = bytes(row[2]) if row is not None else bytes(64)
    if not hmac.compare_digest(digest, key_digest(text)) or row is None:
        _refuse("key_unknown", row[0] if row is not None else PLATFORM, now)
        raise Unauthenticated("key_unknown")
    key, tenant, _, scopes, expires_at, revoked_at, last_used_at, agent, name, clearance, trust, purposes, *rest = row
    agent_state, slug, tenant_state, requests_a_minute, writes_a_minute, let_in, seconds_left = rest
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
    if let_in is False:
        raise TooMany(retry_after=max(1, seconds_left))
    if last_used_at is None or last_used_at < now - _MINUTE:
        _in_one_trip(_TOUCH, {"now": now, "tenant": tenant, "key": key, "before": now - _MINUTE})
        last_used_at = now
    actor = Actor(
        kind=ActorKind.AGENT,
        id=agent,
        tenant=tenant,
        clearance=clearance,
        trust=trust,
        scopes=frozenset(Scope(scope) for scope in scopes),
        purposes=frozenset(purposes),
    )
    caller = Caller(actor, key, prefix, expires_at, name, slug)
    limited = (requests_a_minute, writes_a_minute) != (None, None)
    known = {"prefix": prefix, "digest": digest, "tenant": tenant, "agent": agent, "scopes": scopes}
    known |= {"clearance": clearance, "trust": trust, "purposes": purposes}
    _remember(digest, Remembered(caller, known, last_used_at, limited))
    return caller


@dataclass(frozen=True, slots=True)
class Remembered:
    """What a key was when it was last looked up here: good for nothing until the database has proven it again."""

    caller: Caller
    known: Mapping[str, Any] = field(repr=False)
    noted: datetime
    limited: bool

    def proof(self, now: datetime) -> Proof:
        """Return what proves it in a transaction at `now`."""
        return Proof(_PROVE, {**self.known, "now": now})


#: Keys that this process remembers, by digest.
REMEMBERED = 1_000
_remembered: dict[bytes, Remembered] = {}


def _remember(digest: bytes, what: Remembered) -> None:
    if len(_remembered) >= REMEMBERED:
        _remembered.clear()
    _remembered[digest] = what


def remembered(header: str | None, now: datetime) -> Remembered | None:
    """Return what this process remembers of the key in `header`; None where it is to be recognised.

    Recognise it too wherever anything but an answer comes of what is remembered, and where its use has to be noted.
    """
    try:
        found = _remembered.get(key_digest(_key_text(header)))
    except Unauthenticated:
        return None
    fresh = found is not None and not found.limited and timedelta() <= now - found.noted < _MINUTE
    return found if fresh else None


def _key_text(header: str | None) -> str:
    scheme, _, text = (header or "").partition(" ")
    text = text.strip()
    if scheme.lower() != SCHEME.lower() or not text:
        raise Unauthenticated("key_missing")
    if len(text) > _LONGEST_HEADER or not text.isascii() or not text.isprintable():
        return ""
    return text


def _found(text: str, *, writes: bool) -> Sequence[Any] | None:
    """Return the row of a key, its request counted where the tenant sets a limit: by the look-up itself once that is known."""
    digest = key_digest(text)
    asked = {"prefix": text[:PREFIX_LENGTH], "digest": digest, "writes": int(writes)}
    held = _remembered.get(digest)
    row = None
    if held is None or not held.limited:
        row = next(iter(_in_one_trip(_FIND, asked)), None)
        if row is None or row[-4:-2] == (None, None):
            return row
    return next(iter(_in_one_trip(_FIND_AND_COUNT, asked)), None)


def _in_one_trip(statement: str, parameters: Mapping[str, Any]) -> Rows:
    """Run a statement under `Role.FRONT` as one transaction in one round trip, and return its rows.

    A connection that broke since its last use is opened anew, once: this also serves as the request's health check.
    """
    if connection.in_atomic_block:
        raise RuntimeError("keys are looked up in a transaction of their own")

    def run() -> Rows:
        connection.ensure_connection()
        return asked_at_once([(_TAKE, {}), (statement, parameters)])[-1]

    return _with_one_retry(run)


def _with_one_retry(run: Callable[[], Rows]) -> Rows:
    try:
        rows = run()
    except Exception:
        session = connection.connection
        if session is None or not session.closed:
            raise
        connection.close()
        rows = run()
    connection.health_check_done = True  # type: ignore[attr-defined]
    return rows


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
