"""Disposition review: what is kept without an end, or was kept longer, comes before a person again on its date.

A person lets it be kept until a new date of review, or ends it. Nothing ends by itself here. Every door runs in the caller's
tenant transaction under `Role.STAFF`.
"""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from memory import erasure, lifetimes, rows
from policies.catalogue import catalogue
from policies.vocabulary import Sensitivity
from retention import holds, keeping
from retention.requests import CLOSERS, HANDLERS, require
from tenants.actors import Actor
from tenants.audit import Action, Event, append
from tenants.errors import Clash, FieldError, Missing, Refused
from tenants.isolation import Role, borrowed


@dataclass(frozen=True, slots=True)
class Due:
    """A fact whose date of review has come, without its value."""

    fact: UUID
    subject: UUID
    attribute: str
    sensitivity: str
    basis: str
    expires_at: datetime | None
    review_at: datetime
    created_at: datetime
    evidence: int
    confirmed: bool


_QUEUE = """
SELECT f.id, f.subject_id, a.name, f.sensitivity, f.basis, f.expires_at, f.review_at, f.created_at, f.evidence_count, f.confirmed
FROM memory_fact f
  JOIN memory_factkey k ON k.tenant_id = f.tenant_id AND k.id = f.key_id
  JOIN policies_attribute a ON a.tenant_id = k.tenant_id AND a.id = k.attribute_id
WHERE f.tenant_id = %s::uuid AND f.review_at <= %s::timestamptz AND f.ended_at IS NULL AND f.redaction_state <> 'required'
  AND (f.expires_at IS NULL OR f.expires_at > statement_timestamp())
ORDER BY f.review_at, f.id LIMIT %s
"""
_REVIEW = """
SELECT f.review_at, f.key_id FROM memory_fact f WHERE f.tenant_id = %s::uuid AND f.id = %s::uuid AND f.ended_at IS NULL
  AND f.review_at IS NOT NULL
"""


def queue(tenant: UUID, *, now: datetime, limit: int = 50) -> list[Due]:
    """Return what is to be looked at, the longest overdue first; at most `limit`. Needs `Role.STAFF`."""
    found = rows.fetch(_QUEUE, [tenant, now, limit])
    return [Due(*(*row[:3], Sensitivity(row[3]).label, *row[4:])) for row in found]


def keep(actor: Actor, fact: UUID, review_at: datetime, *, reason: str, now: datetime) -> None:
    """Keep a fact, and look again on a later date: at most as far ahead as the policy's `review_after`.

    No end is put off by it. Raises `Missing` for what has no date of review, `Forbidden`, `Refused` for a reason or a date that
    is none, `Clash("in_progress")` while somebody writes on its key.
    """
    require(actor, HANDLERS)
    key = _reviewed(actor.tenant, fact)
    latest = catalogue(actor.tenant).policy.review_after.after(now)
    if not now < review_at <= latest:
        raise Refused("lifetime_refused", errors=[FieldError("review_at", "out_of_range")])
    if reason not in keeping.REASONS:
        raise Refused("lifetime_refused", errors=[FieldError("reason", "not_in_enum")])
    with borrowed(Role.WORKER, back_to=Role.STAFF):
        if key not in lifetimes.locked_keys(actor.tenant, [key]):
            raise Clash("in_progress")
        lifetimes.review(actor.tenant, fact, review_at)
    keeping.note(actor, fact, "kept", review_at=review_at, reason=reason, now=now)
    append([_event(actor, Action.DISPOSITION_KEPT, fact, reason)])


def end(actor: Actor, fact: UUID, *, reason: str, now: datetime) -> bool:
    """End a fact whose review is due, content and all; return whether that was done: not where a hold keeps it.

    A hold that keeps it is recorded as a refused ending. Raises `Missing` for what has no date of review, `Forbidden` for
    whoever is no privacy officer, `Refused` for a reason that is none.
    """
    require(actor, CLOSERS)
    if reason not in keeping.REASONS:
        raise Refused("lifetime_refused", errors=[FieldError("reason", "not_in_enum")])
    with borrowed(Role.WORKER, back_to=Role.STAFF):
        # Before any other lock: what is free of holds stays so until the commit.
        holds.share(actor.tenant)
    _reviewed(actor.tenant, fact)
    with borrowed(Role.WORKER, back_to=Role.STAFF):
        if not holds.free_facts(actor.tenant, [fact], "expired", actor=actor, act="disposition"):
            return False
        erasure.end_facts(actor.tenant, [fact], "expired", now)
    keeping.note(actor, fact, "ended", reason=reason, now=now)
    append([_event(actor, Action.DISPOSITION_ENDED, fact, reason)])
    return True


def _reviewed(tenant: UUID, fact: UUID) -> UUID:
    found = rows.fetch(_REVIEW, [tenant, fact])
    if not found:
        raise Missing
    key: UUID = found[0][1]
    return key


def _event(actor: Actor, action: Action, fact: UUID, reason: str) -> Event:
    return Event(actor=actor, action=action, target_kind="fact", target_id=fact, reason=reason)
