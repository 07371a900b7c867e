"""Who there is: tenants, members, agents and their keys, created and ended.

Every door here runs inside an open transaction under `Role.FRONT` (operators' commands) or `Role.STAFF` (the admin, for
its own tenant), writes history and audit in it, and is told the time. Nothing is ever removed but a role, whose
history stays.
"""

import hashlib
import secrets as randomness
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.db import DataError, IntegrityError, models

from tenants import secrets
from tenants.actors import Actor, ActorKind, MemberRole, Scope
from tenants.audit import PLATFORM, Action, Event, append
from tenants.errors import Clash, FieldError, Forbidden, Missing, Refused
from tenants.identities import Known, tie
from tenants.identity import new_id
from tenants.isolation import Role, assume
from tenants.models import Agent, AgentKey, Membership, Tenant, User

#: Whoever runs `manage.py` on the machine: it has the operator's authority and belongs to no tenant.
OPERATOR = Actor(kind=ActorKind.OPERATOR, id=PLATFORM, tenant=PLATFORM)

#: What an agent's clearance is called outside, by its number.
CLEARANCES = ("public", "internal", "personal", "restricted")

PREFIX_LENGTH = 10
MOST_A_MINUTE = 1_000_000
_PREFIX_LETTERS = "abcdefghijkmnpqrstuvwxyz23456789"
_SECRET_BYTES = 32
_PASSWORD_BYTES = 12


@dataclass(frozen=True, slots=True)
class Issued:
    """A key as it is handed out, once: `text` is what goes after `Api-Key ` and is kept nowhere."""

    key: AgentKey
    text: str

    def __repr__(self) -> str:
        return f"Issued({self.key.prefix})"


@dataclass(frozen=True, slots=True)
class Joined:
    """A membership, and whether its user was made with it."""

    membership: Membership
    user_created: bool


def key_digest(text: str) -> bytes:
    """Return the SHA-512 digest by which a key is known; the key is 256 random bits, so that no slow hash is needed."""
    return hashlib.sha512(text.encode()).digest()


def tenant_named(slug: str) -> Tenant:
    """Return the tenant of that slug. Needs `Role.FRONT`. Raises `Missing`."""
    found = Tenant.objects.filter(slug=slug).first()
    if found is None:
        raise Missing("tenant_unknown")
    return found


def key_of_prefix(prefix: str) -> AgentKey:
    """Return the key of that prefix, whatever its state. Needs `Role.FRONT`. Raises `Missing`."""
    found = AgentKey.objects.filter(prefix=prefix).first()
    if found is None:
        raise Missing("key_unknown")
    return found


def create_tenant(slug: str, *, by: Actor, now: datetime) -> Tenant:
    """Create a tenant, its keys in the provider, and the first entry of its chain; leave the transaction in its name.

    Needs `Role.FRONT`. Raises `Refused` for a slug that is not `[a-z0-9-]{1,63}`, `Clash` for one that is taken, and
    `KeyUnavailable` where the provider cannot keep its keys: then nothing is created.
    """
    tenant = Tenant(id=new_id(), slug=slug, created_at=now)
    assume(Role.FRONT, tenant=tenant.id, actor=by.id)
    _save(tenant, by=by, code=Action.TENANT_CREATED, now=now, field="slug", taken="slug_taken")
    # Before the commit: a tenant without keys must not exist. Keys without a tenant, left by a rollback, open nothing.
    secrets.provider().create_tenant(tenant.id)
    created = Event(actor=by, action=Action.TENANT_CREATED, target_kind="tenant", target_id=tenant.id)
    append([created], chain=tenant.id)
    append([created], chain=PLATFORM)
    return tenant


def limit_rates(tenant: Tenant, *, requests: int | None, writes: int | None, by: Actor, now: datetime) -> None:
    """Set how many requests, and of these how many writes, each key of the tenant may send within a minute.

    None lifts a limit. It holds from the next request on. Needs `Role.FRONT`. Raises `Refused` below 1 or above a million.
    """
    for name, limit in (("requests", requests), ("writes", writes)):
        if limit is not None and not 1 <= limit <= MOST_A_MINUTE:
            raise Refused("limit_refused", errors=[FieldError(name, "out_of_bounds")])
    tenant.requests_a_minute, tenant.writes_a_minute = requests, writes
    _with_history(tenant, by=by, code=Action.TENANT_LIMITED, now=now)
    tenant.save(update_fields=["requests_a_minute", "writes_a_minute"])
    # 0 says that there is none: an entry holds numbers.
    numbers: dict[str, int | float | bool] = {"requests": requests or 0, "writes": writes or 0}
    limited = Event(actor=by, action=Action.TENANT_LIMITED, target_kind="tenant", target_id=tenant.id, numbers=numbers)
    append([limited], chain=tenant.id)


def create_agent(
    tenant: UUID,
    name: str,
    *,
    clearance: int,
    by: Actor,
    now: datetime,
    trust: int = 50,
    purposes: Iterable[str] = (),
) -> Agent:
    """Register a program. `clearance` is 0 (public) to 3 (restricted), `trust` 0 to 100.

    Raises `Clash` for a name that the tenant already has, `Refused` for a field out of its bounds.
    """
    wanted = sorted(set(purposes))
    for name_of, number, highest in (("clearance", clearance, len(CLEARANCES) - 1), ("trust", trust, 100)):
        if not 0 <= number <= highest:
            raise Refused("agent_refused", errors=[FieldError(name_of, "out_of_bounds")])
    if any(not 1 <= len(purpose) <= 100 for purpose in wanted) or len(wanted) > 50:
        raise Refused("agent_refused", errors=[FieldError("purposes", "out_of_bounds")])
    agent = Agent(
        id=new_id(),
        tenant_id=tenant,
        name=name,
        clearance=clearance,
        trust=trust,
        purposes=wanted,
        created_at=now,
    )
    _save(agent, by=by, code=Action.AGENT_CREATED, now=now, field="name", taken="name_taken")
    append(
        [
            Event(
                actor=by,
                action=Action.AGENT_CREATED,
                target_kind="agent",
                target_id=agent.id,
                numbers={"clearance": clearance, "trust": trust, "purposes": len(wanted)},
            )
        ],
        chain=tenant,
    )
    return agent


def issue_key(
    agent: Agent,
    *,
    scopes: Iterable[Scope],
    by: Actor,
    now: datetime,
    expires_at: datetime | None = None,
    number: UUID | None = None,
) -> Issued:
    """Give an agent a further key. Raises `Refused` without a scope or with an expiry that has passed.

    `number` is the id of the key to be, where whoever asks may ask twice: raises `Clash` (`key_issued_already`) then.
    """
    wanted = sorted({scope.value for scope in scopes})
    if not wanted:
        raise Refused("key_refused", errors=[FieldError("scopes", "required")])
    if expires_at is not None and expires_at <= now:
        raise Refused("key_refused", errors=[FieldError("expires_at", "in_the_past")])
    issued = _new_key(agent.tenant_id, agent.id, wanted, expires_at, now, number)
    append([_key_event(by, Action.KEY_ISSUED, issued.key, scopes=len(wanted))], chain=agent.tenant_id)
    return issued


def rotate_key(key: AgentKey, *, overlap: timedelta, by: Actor, now: datetime, number: UUID | None = None) -> Issued:
    """Issue a key like this one, and let this one end after `overlap` (or earlier, where it would have).

    The new key lives as long from now as the old one was given. Raises `Clash` for a key that has ended, `Refused` for a
    negative overlap. `number` as for `issue_key`.
    """
    if overlap < timedelta():
        raise Refused("key_refused", errors=[FieldError("overlap", "negative")])
    old = _locked(key)
    if old.revoked_at is not None:
        raise Clash("key_revoked")
    if old.expires_at is not None and old.expires_at <= now:
        raise Clash("key_expired")
    lifetime = None if old.expires_at is None else old.expires_at - old.created_at
    issued = _new_key(
        old.tenant_id, old.agent_id, old.scopes, None if lifetime is None else now + lifetime, now, number
    )
    ends = now + overlap
    old.expires_at = ends if old.expires_at is None else min(old.expires_at, ends)
    old.save(update_fields=["expires_at"])
    append(
        [
            _key_event(by, Action.KEY_ROTATED, old, overlap_seconds=int(overlap.total_seconds())),
            _key_event(by, Action.KEY_ISSUED, issued.key, scopes=len(old.scopes)),
        ],
        chain=old.tenant_id,
    )
    return issued


def revoke_key(key: AgentKey, *, by: Actor, now: datetime, reason: str = "none") -> None:
    """End a key at once; from the commit on every request with it is refused. Harmless for one that was revoked.

    `reason` is a code.
    """
    old = _locked(key)
    if old.revoked_at is not None:
        return
    old.revoked_at = now
    old.save(update_fields=["revoked_at"])
    append([_key_event(by, Action.KEY_REVOKED, old, reason=reason)], chain=old.tenant_id)


def create_member(
    tenant: UUID,
    username: str,
    role: MemberRole,
    *,
    by: Actor,
    now: datetime,
    password: str | None = None,
    known_as: Known | None = None,
) -> Joined:
    """Give a person a role in a tenant, and make their user where there is none. Needs `Role.FRONT`.

    A new user needs a password, or to be known to an identity provider; a user who exists keeps theirs, and giving one is
    refused: whoever ties somebody to a provider could sign in as them. Raises `Clash` (`role_taken`, `user_exists`,
    `identity_taken`) and `Refused` (a password that is missing or too weak, a username that is no username).
    """
    user = User.objects.filter(username=username).first()
    created = user is None
    if user is None:
        user = _new_user(username, password, now, known_as)
    elif password is not None or known_as is not None:
        raise Clash("user_exists")
    membership = Membership(id=new_id(), tenant_id=tenant, user_id=user.id, role=role.value, created_at=now)
    _save(membership, by=by, code=Action.MEMBER_ADDED, now=now, field="role", taken="role_taken")
    append(
        [
            Event(
                actor=by,
                action=Action.MEMBER_ADDED,
                target_kind="user",
                target_id=user.id,
                reason=role.value,
                numbers={"user_created": created, "by_provider": known_as is not None},
            )
        ],
        chain=tenant,
    )
    return Joined(membership, created)


def join(
    tenant: UUID, username: str, role: MemberRole, *, by: Actor, now: datetime, known_as: Known | None = None
) -> tuple[Joined, str | None]:
    """Give a person a role as a tenant's admin does; return the password too where their user was made for it.

    A new person who is known to an identity provider signs in there, and has no password. Needs `Role.FRONT`. As `create_member`; and raises `Forbidden` (`own_role`): nobody gives a role to themselves.
    """
    known = User.objects.filter(username=username).only("id").first()
    if known is not None and known.id == by.id:
        raise Forbidden("own_role")
    if known is not None and Membership.objects.filter(tenant_id=tenant, user_id=known.id, role=role.value).exists():
        raise Clash("role_taken")
    password = None if known is not None or known_as is not None else randomness.token_urlsafe(_PASSWORD_BYTES)
    joined = create_member(tenant, username, role, by=by, now=now, password=password, known_as=known_as)
    return joined, password


def remove_member(membership: Membership, *, by: Actor, now: datetime, reason: str) -> None:
    """End a person's role in a tenant; its history stays. `reason` is a code. Needs `Role.FRONT`.

    Raises `Forbidden` (`own_role`) for one of the actor's own, `Clash` (`last_admin`) for the last tenant admin's, and
    `Missing` for one that has ended.
    """
    if membership.user_id == by.id:
        raise Forbidden("own_role")
    # Every admin's row is locked, in order: two who remove each other must not both succeed.
    admins = list(
        Membership.objects.select_for_update()
        .filter(tenant_id=membership.tenant_id, role=MemberRole.TENANT_ADMIN.value)
        .order_by("id")
        .values_list("id", flat=True)
    )
    found = Membership.objects.select_for_update().filter(tenant_id=membership.tenant_id, id=membership.id).first()
    if found is None:
        raise Missing("member_unknown")
    if found.role == MemberRole.TENANT_ADMIN.value and len(admins) == 1:
        raise Clash("last_admin")
    found._change_reason = Action.MEMBER_REMOVED.value  # type: ignore[attr-defined]
    found._history_date = now  # type: ignore[attr-defined]
    found._history_user = User(id=by.id) if by.kind is ActorKind.PERSON else None  # type: ignore[attr-defined]
    user = found.user_id
    found.delete()
    removed = Event(actor=by, action=Action.MEMBER_REMOVED, target_kind="user", target_id=user, reason=reason)
    append([removed], chain=membership.tenant_id)


def _new_user(username: str, password: str | None, now: datetime, known_as: Known | None) -> User:
    user = User(id=new_id(), username=username, is_staff=True, date_joined=now)
    try:
        user.username_validator(username)
    except ValidationError:
        raise Refused("member_refused", errors=[FieldError("username", "not_a_username")]) from None
    if known_as is not None:
        user.set_unusable_password()
    elif password is None:
        raise Refused("member_refused", errors=[FieldError("password", "required")])
    else:
        try:
            validate_password(password, user)
        except ValidationError:
            raise Refused("member_refused", errors=[FieldError("password", "too_weak")]) from None
        user.set_password(password)
    try:
        user.save(force_insert=True)
    except IntegrityError:
        raise Clash("user_exists") from None
    except DataError:
        raise Refused("member_refused", errors=[FieldError("username", "out_of_bounds")]) from None
    if known_as is not None:
        tie(user.id, known_as, now)
    return user


def _new_key(
    tenant: UUID, agent: UUID, scopes: list[str], expires_at: datetime | None, now: datetime, number: UUID | None
) -> Issued:
    if number is not None and AgentKey.objects.filter(id=number).exists():
        raise Clash("key_issued_already")
    prefix = "".join(randomness.choice(_PREFIX_LETTERS) for _ in range(PREFIX_LENGTH))
    text = f"{prefix}.{randomness.token_urlsafe(_SECRET_BYTES)}"
    key = AgentKey(
        id=number or new_id(),
        tenant_id=tenant,
        agent_id=agent,
        prefix=prefix,
        digest=key_digest(text),
        scopes=scopes,
        expires_at=expires_at,
        created_at=now,
    )
    key.save(force_insert=True)
    return Issued(key, text)


def _locked(key: AgentKey) -> AgentKey:
    # Read again under the lock: two rotations at once must not both take the key for a living one.
    found = AgentKey.objects.select_for_update().filter(tenant_id=key.tenant_id, id=key.id).first()
    if found is None:
        raise Missing("key_unknown")
    return found


def _key_event(by: Actor, action: Action, key: AgentKey, reason: str = "none", **numbers: int) -> Event:
    return Event(actor=by, action=action, target_kind="agent_key", target_id=key.id, reason=reason, numbers={**numbers})


def _save(row: models.Model, *, by: Actor, code: Action, now: datetime, field: str, taken: str) -> None:
    """Insert a row with its history: who, when, and a code as the reason."""
    _with_history(row, by=by, code=code, now=now)
    word = row._meta.model_name or "row"
    try:
        row.save(force_insert=True)
    except IntegrityError as error:
        # The database's text may quote the row: only which kind of constraint it was is told.
        if getattr(error.__cause__, "sqlstate", None) == "23505":
            raise Clash(taken) from None
        raise Refused(f"{word}_refused", errors=[FieldError(field, "out_of_bounds")]) from None
    except DataError:
        raise Refused(f"{word}_refused", errors=[FieldError(field, "out_of_bounds")]) from None


def _with_history(row: models.Model, *, by: Actor, code: Action, now: datetime) -> None:
    row._change_reason = code.value  # type: ignore[attr-defined]
    row._history_date = now  # type: ignore[attr-defined]
    row._history_user = User(id=by.id) if by.kind is ActorKind.PERSON else None  # type: ignore[attr-defined]
