"""The door of consents: granting one to a subject, and withdrawing it, which hides at once what depends on it.

Both run in the caller's tenant transaction under `Role.WRITER`; what a restore applies again opens its own.
"""

from dataclasses import replace
from datetime import datetime
from typing import Any
from uuid import UUID

from memory import detecting, endings, idempotency, outbox, rows, suppression
from memory.contracts import ConsentBody
from memory.outcomes import ConsentKept, Repeat
from memory.subjects import resolve
from tenants.actors import Actor
from tenants.audit import Action, Event, append
from tenants.errors import Clash, FieldError, Missing, Refused
from tenants.identity import new_id
from tenants.isolation import Role, assume, tenant_transaction

_GRANT = """
INSERT INTO policies_consent (tenant_id, id, subject_id, ref, purposes, granted_at, created_at)
VALUES (%s::uuid, %s::uuid, %s::uuid, %s::text, %s::text[], %s::timestamptz, %s::timestamptz)
ON CONFLICT (tenant_id, ref) DO NOTHING RETURNING id
"""
_KNOWN = (
    "SELECT id, subject_id, purposes, granted_at FROM policies_consent WHERE tenant_id = %s::uuid AND ref = %s::text"
)
_LOCK = (
    "SELECT id, subject_id, withdrawn_at FROM policies_consent WHERE tenant_id = %s::uuid AND ref = %s::text FOR UPDATE"
)
_LOCK_SUBJECT = "SELECT 1 FROM memory_subject WHERE tenant_id = %s::uuid AND id = %s::uuid FOR UPDATE"
_WITHDRAW = (
    "UPDATE policies_consent SET withdrawn_at = greatest(clock_timestamp(), granted_at)"
    " WHERE tenant_id = %s::uuid AND id = %s::uuid RETURNING withdrawn_at"
)
_SHOWN = (
    "SELECT id, ref, purposes, granted_at, withdrawn_at FROM policies_consent"
    " WHERE tenant_id = %s::uuid AND id = %s::uuid"
)


def grant(actor: Actor, body: ConsentBody, *, repeat: Repeat | None = None) -> ConsentKept:
    """Record a consent under its reference; an unknown subject becomes one. The same consent again is the same row.

    Raises `Clash("consent_ref_taken")` where the reference names another consent (another subject, other purposes,
    another start), `Refused` for one that starts in the future, for a subject's name that holds a credential, and for a
    consent of a subject that was erased since.
    """
    earlier = None if repeat is None else idempotency.earlier(actor, repeat)
    if earlier is not None:
        return _kept(earlier[0])
    now = _now()
    if body.granted_at is not None and body.granted_at > now:
        raise Refused("granted_in_the_future", errors=[FieldError("granted_at", "granted_in_the_future")])
    if detecting.is_credential(body.subject):
        raise Refused("credential", errors=[FieldError("subject", "credential")])
    subject = resolve(actor.tenant, [body.subject], now=now)[body.subject]
    # Under the subject's lock: an erasure that it waited for is seen. A consent given since is new, and may come in.
    held = suppression.standing(actor.tenant, [body.subject])
    decided = held.since(suppression.named(actor.tenant, [body.subject]))
    if decided is not None and body.granted_at is not None and body.granted_at <= decided:
        raise Refused("suppressed", errors=[FieldError("subject", "suppressed")])
    purposes = sorted(set(body.purposes))
    consent = new_id()
    made = rows.fetch(_GRANT, [actor.tenant, consent, subject.id, body.ref, purposes, body.granted_at or now, now])
    if not made:
        known, owner, held, granted_at = rows.fetch(_KNOWN, [actor.tenant, body.ref])[0]
        if owner != subject.id or held != purposes or body.granted_at not in (None, granted_at):
            raise Clash("consent_ref_taken")
        outcome = ConsentKept(id=known, created=False)
    else:
        outcome = ConsentKept(id=consent, created=True)
    if repeat is not None:
        idempotency.keep(actor, repeat, [outcome], status=outcome.status, now=now)
    if outcome.created:
        append([_event(actor, Action.CONSENT_GRANTED, consent, purposes=len(purposes))])
    return outcome


def withdraw(actor: Actor, ref: str, *, repeat: Repeat | None = None) -> ConsentKept:
    """Withdraw a consent for good; from the commit on, no read returns what depends on it alone.

    The commit returns once the endings log outside the database tells of it. Withdrawing it again changes nothing. Takes
    `Role.WORKER` for the act. Raises `Missing` for an unknown reference, `Unavailable` where that log cannot be written.
    """
    earlier = None if repeat is None else idempotency.earlier(actor, repeat)
    if earlier is not None:
        # The first time may have been cut off between its commit and the log.
        outbox.endings_log().confirm(actor.tenant)
        return _kept(earlier[0])
    now = _now()
    _take(actor, Role.WORKER)
    found = rows.fetch(_LOCK, [actor.tenant, ref])
    if not found:
        raise Missing
    consent, subject_id, withdrawn_at = found[0]
    if withdrawn_at is None:
        # Writers hold the subject for the length of their transaction: none of them misses the withdrawal.
        rows.fetch(_LOCK_SUBJECT, [actor.tenant, subject_id])
        ended_at = rows.fetch(_WITHDRAW, [actor.tenant, consent])[0][0]
        outbox.endings_log().owe(actor.tenant, "consent_withdrawn", consent, {"withdrawn_at": ended_at})
        rows.OUTBOX.insert(actor.tenant, [rows.OutboxRow(new_id(), "consent.withdrawn", consent, now, now)])
        outbox.nudge()
    else:
        outbox.endings_log().confirm(actor.tenant)
    outcome = ConsentKept(id=consent, created=False)
    _take(actor, Role.WRITER)
    if repeat is not None:
        idempotency.keep(actor, repeat, [outcome], status=outcome.status, now=now)
    if withdrawn_at is None:
        append([_event(actor, Action.CONSENT_WITHDRAWN, consent)])
    return outcome


_WITHDRAW_AGAIN = """
UPDATE policies_consent c SET withdrawn_at = greatest(%s::timestamptz, c.granted_at)
WHERE c.tenant_id = %s::uuid AND c.id = %s::uuid AND c.withdrawn_at IS NULL RETURNING c.id
"""
_IS_THERE = "SELECT 1 FROM policies_consent WHERE tenant_id = %s::uuid AND id = %s::uuid"


def withdraw_again(tenant: UUID, consent: UUID, at: datetime) -> bool:
    """Withdraw, as of then, a consent whose withdrawal a restored backup does not know of; False where it is not there.

    Opens its own transaction, before anybody is let in. A consent that is withdrawn stays as it is.
    """
    actor = endings.worker(tenant)
    with tenant_transaction(Role.WORKER, tenant=tenant):
        if not rows.fetch(_IS_THERE, [tenant, consent]):
            return False
        if rows.fetch(_WITHDRAW_AGAIN, [at, tenant, consent]):
            outbox.put(tenant, "consent.withdrawn", [consent])
            event = _event(actor, Action.CONSENT_WITHDRAWN, consent)
            append([replace(event, reason="restored")])
    return True


def shown(actor: Actor, consent: UUID) -> dict[str, Any]:
    """Return a consent as it stands now, without its subject. Raises `Missing`."""
    found = rows.fetch(_SHOWN, [actor.tenant, consent])
    if not found:
        raise Missing
    return dict(zip(("id", "ref", "purposes", "granted_at", "withdrawn_at"), found[0], strict=True))


def _kept(outcome: Any) -> ConsentKept:
    assert isinstance(outcome, ConsentKept)
    return outcome


def _now() -> datetime:
    now: datetime = rows.fetch("SELECT clock_timestamp()", [])[0][0]
    return now


def _take(actor: Actor, role: Role) -> None:
    assume(role, tenant=actor.tenant, clearance=actor.clearance, actor=actor.id)


def _event(actor: Actor, action: Action, consent: UUID, **numbers: int) -> Event:
    return Event(actor=actor, action=action, target_kind="consent", target_id=consent, numbers={**numbers})
