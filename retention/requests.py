"""Requests of data subjects: access, rectification, erasure, restriction, portability, objection.

What somebody asked for, by when an answer is due (`retention.deadlines`), who they are, and what came of it. Every door
runs in the caller's tenant transaction under `Role.STAFF`; a request itself may also be lodged by a program with the scope
`admin`. What is refused here with a code is refused by the database as well
(`retention/migrations/0007_subject_requests.sql`). No word of a request is kept, and no document that proved an identity.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from enum import StrEnum
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from django.conf import settings
from django.db.models import F
from django.db.models.functions import Coalesce

from memory import rows, subjects
from retention import deadlines, escalating
from retention.models import SubjectRequest
from tenants.actors import Actor, ActorKind, MemberRole, Scope
from tenants.audit import Action, Event, append
from tenants.errors import Clash, FieldError, Forbidden, Missing, Refused
from tenants.identity import new_id
from tenants.isolation import Role, borrowed
from tenants.models import Membership
from tenants.secrets import keyring


class Kind(StrEnum):
    """What a data subject may ask for (GDPR Art. 15 to 21)."""

    ACCESS = "access"
    RECTIFICATION = "rectification"
    ERASURE = "erasure"
    RESTRICTION = "restriction"
    PORTABILITY = "portability"
    OBJECTION = "objection"

    @property
    def article(self) -> str:
        """The article of the GDPR by which it is asked for."""
        return _ARTICLES[self]


_ARTICLES = {
    Kind.ACCESS: "Art. 15",
    Kind.RECTIFICATION: "Art. 16",
    Kind.ERASURE: "Art. 17",
    Kind.RESTRICTION: "Art. 18",
    Kind.PORTABILITY: "Art. 20",
    Kind.OBJECTION: "Art. 21",
}
OPEN = ("received", "in_progress")
#: How somebody was known to be who they say. The document itself is never kept.
METHODS = ("account", "known_contact", "call_back", "document_seen", "in_person", "representative")
EXTENSION_REASONS = ("complex", "many_requests")
#: Why a request is refused (Art. 12(5), 15(4), 17(3), 21(1)).
GROUNDS = (
    "manifestly_unfounded",
    "excessive",
    "identity_not_established",
    "not_the_controller",
    "exempt_by_law",
    "rights_of_others",
    "legal_claims",
    "overriding_interest",
)
OUTCOMES = ("done", "done_in_part", "nothing_held")
#: A request may be entered so long after it came in.
EARLIEST = timedelta(days=366)
#: Who works on requests; closing one is a privacy officer's.
HANDLERS = frozenset({MemberRole.REVIEWER, MemberRole.PRIVACY_OFFICER})
CLOSERS = frozenset({MemberRole.PRIVACY_OFFICER})


def zone() -> tzinfo:
    """Return the zone in whose calendar days count: the organisation's, as the operator set it."""
    return ZoneInfo(settings.CALENDAR_ZONE)


# lodging --------------------------------------------------------------------------------------------------------------


def lodge(
    actor: Actor,
    kind: Kind,
    subject: str,
    *,
    now: datetime,
    received_at: datetime | None = None,
    reference: str | None = None,
) -> tuple[SubjectRequest, bool]:
    """Record a request as it came in; return it, and whether it is new.

    The same subject's request of the same kind joins the one that is open, which keeps its date; of two at once one is
    recorded. `subject` is a key or an alias, and need not be known: then nothing is kept of it but a digest. Raises
    `Forbidden`, and `Refused` for a receipt that lies ahead or more than a year back.
    """
    require(actor, HANDLERS, scope=Scope.ADMIN)
    received_at = received_at or now
    if not now - EARLIEST <= received_at <= now:
        raise Refused("subject_request_refused", errors=[FieldError("received_at", "out_of_range")])
    digest = keyring().identifier(actor.tenant, subject)
    rows.fetch(
        "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))",
        [f"muniment.subject_request {actor.tenant} {kind} {digest.hex()}"],
    )
    known = SubjectRequest.objects.filter(
        tenant_id=actor.tenant, kind=kind.value, subject_digest=digest, state__in=OPEN
    ).first()
    if known is not None:
        SubjectRequest.objects.filter(tenant_id=actor.tenant, id=known.id).update(repeats=F("repeats") + 1)
        append([_event(actor, Action.SUBJECT_REQUEST_REPEATED, known, kind.value)])
        return _locked(actor.tenant, known.id), False
    with borrowed(Role.WRITER, back_to=Role.STAFF):
        about = subjects.known(actor.tenant, [subject]).get(subject)
    asked = SubjectRequest(
        id=new_id(),
        tenant_id=actor.tenant,
        kind=kind.value,
        subject_id=None if about is None else about.id,
        subject_digest=digest,
        reference=reference,
        received_at=received_at,
        due_at=deadlines.due(received_at, months=deadlines.FIRST, zone=zone()),
        lodged_by_kind=actor.kind.value,
        lodged_by_id=actor.id,
        lodged_at=now,
    )
    asked.save(force_insert=True)
    append([_event(actor, Action.SUBJECT_REQUEST_LODGED, asked, kind.value, known=about is not None)])
    return asked, True


# working on it --------------------------------------------------------------------------------------------------------


def confirm_identity(actor: Actor, asked: UUID, method: str, *, now: datetime) -> SubjectRequest:
    """Record that the person who asks is the subject, and how that was found out; the request is then in progress.

    Raises `Missing`, `Forbidden`, `Refused` for a method that is none, `Clash("subject_request_closed")`, and
    `Clash("identity_confirmed")` where it is already.
    """
    found = open_for(actor, asked, HANDLERS)
    _require_word("method", method, METHODS)
    if found.identity == "confirmed":
        raise Clash("identity_confirmed")
    return _changed(
        actor,
        found,
        Action.SUBJECT_REQUEST_IDENTIFIED,
        method,
        identity="confirmed",
        identity_method=method,
        identity_at=now,
        identity_by=actor.id,
        state="in_progress",
    )


def fail_identity(actor: Actor, asked: UUID, method: str, *, now: datetime) -> SubjectRequest:
    """Record that it was tried to find out who asks, and failed. It may be tried again. Raises as `confirm_identity`."""
    found = open_for(actor, asked, HANDLERS)
    _require_word("method", method, METHODS)
    if found.identity == "confirmed":
        raise Clash("identity_confirmed")
    return _changed(
        actor,
        found,
        Action.SUBJECT_REQUEST_IDENTIFIED,
        "failed",
        identity="failed",
        identity_method=method,
        identity_at=now,
        identity_by=actor.id,
    )


def extend(actor: Actor, asked: UUID, reason: str, *, now: datetime) -> SubjectRequest:
    """Extend the time by two further months, once, while the first still runs (Art. 12(3)).

    Raises `Missing`, `Forbidden`, `Refused` for a reason that is none, `Clash("subject_request_closed")`,
    `Clash("extended_already")`, and `Clash("extension_too_late")` once the first month is over.
    """
    found = open_for(actor, asked, HANDLERS)
    _require_word("reason", reason, EXTENSION_REASONS)
    if found.extended_at is not None:
        raise Clash("extended_already")
    if now >= found.due_at:
        raise Clash("extension_too_late")
    until = deadlines.due(found.received_at, months=deadlines.EXTENDED, zone=zone())
    return _changed(
        actor,
        found,
        Action.SUBJECT_REQUEST_EXTENDED,
        reason,
        extended_at=now,
        extended_to=until,
        extension_reason=reason,
    )


def link(actor: Actor, asked: UUID, kind: str, target: UUID) -> SubjectRequest:
    """Record what a request led to: `access_export`, `erasure`, `run`, `restriction`, `evidence`, `certificate` or
    `decision_request`, by id.

    For the doors that carry it out, in their own transaction. Raises `Missing`, `Clash` for one that is closed or whose
    subject is not known to be the one who asks.
    """
    found = _locked(actor.tenant, asked)
    _require_open(found)
    if found.identity != "confirmed":
        raise Clash("identity_not_confirmed")
    return _changed(actor, found, Action.SUBJECT_REQUEST_LED_TO, kind, led_to_kind=kind, led_to_id=target)


def complete(actor: Actor, asked: UUID, outcome: str, *, now: datetime) -> SubjectRequest:
    """Close a request that was carried out, in whole or in part, or where nothing is held.

    Raises `Missing`, `Forbidden` for whoever is no privacy officer, `Refused` for an outcome that is none,
    `Clash("subject_request_closed")`, `Clash("identity_not_confirmed")`, `Clash("led_to_nothing")` where it is said to be
    done and nothing is recorded that it led to, and `Clash("not_handed_over")` for portability, which is done by handing
    over alone (`access.hand_over`).
    """
    found = open_for(actor, asked, CLOSERS)
    _require_word("outcome", outcome, OUTCOMES)
    if found.identity != "confirmed":
        raise Clash("identity_not_confirmed")
    if outcome != "nothing_held" and found.kind != Kind.OBJECTION and found.led_to_id is None:
        raise Clash("led_to_nothing")
    if outcome != "nothing_held" and found.kind == Kind.PORTABILITY and found.led_to_kind != "certificate":
        raise Clash("not_handed_over")
    return _changed(
        actor,
        found,
        Action.SUBJECT_REQUEST_CLOSED,
        outcome,
        state="completed",
        outcome=outcome,
        closed_at=now,
        closed_by=actor.id,
    )


def refuse(actor: Actor, asked: UUID, ground: str, *, now: datetime) -> SubjectRequest:
    """Refuse a request, on a ground that the subject is told. Raises as `complete`; an identity need not be known."""
    found = open_for(actor, asked, CLOSERS)
    _require_word("ground", ground, GROUNDS)
    return _changed(
        actor,
        found,
        Action.SUBJECT_REQUEST_CLOSED,
        ground,
        state="refused",
        refusal_ground=ground,
        closed_at=now,
        closed_by=actor.id,
    )


def withdraw(actor: Actor, asked: UUID, *, now: datetime) -> SubjectRequest:
    """Close a request that its subject took back. Raises `Missing`, `Forbidden`, `Clash("subject_request_closed")`."""
    found = open_for(actor, asked, HANDLERS)
    return _changed(
        actor, found, Action.SUBJECT_REQUEST_CLOSED, "withdrawn", state="withdrawn", closed_at=now, closed_by=actor.id
    )


# looking --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Waiting:
    """A request that is open, as a queue shows it. `days_left` is below zero once it is overdue."""

    id: UUID
    kind: str
    state: str
    identity: str
    subject_id: UUID | None
    received_at: datetime
    due_at: datetime
    days_left: int
    overdue: bool
    extended: bool
    repeats: int
    led_to_kind: str | None
    led_to_id: UUID | None
    #: The role that was told that its day is near, or past; null while nobody was.
    escalated_to: str | None = None


def effective_due(asked: SubjectRequest) -> datetime:
    """Return the instant from which on an answer is too late, extended or not."""
    due: datetime = asked.extended_to or asked.due_at
    return due


def waiting(asked: SubjectRequest, *, now: datetime, escalated_to: str | None = None) -> Waiting:
    """Return a request as a queue shows it."""
    due = effective_due(asked)
    return Waiting(
        id=asked.id,
        kind=asked.kind,
        state=asked.state,
        identity=asked.identity,
        subject_id=asked.subject_id,
        received_at=asked.received_at,
        due_at=due,
        days_left=deadlines.days_left(due, now),
        overdue=asked.closed_at is None and now >= due,
        extended=asked.extended_at is not None,
        repeats=asked.repeats,
        led_to_kind=asked.led_to_kind,
        led_to_id=asked.led_to_id,
        escalated_to=escalated_to,
    )


def queue(tenant: UUID, *, now: datetime, limit: int = 50) -> list[Waiting]:
    """Return the open requests of a tenant, those that are due first before others; at most `limit`."""
    found = SubjectRequest.objects.filter(tenant_id=tenant, state__in=OPEN)
    ordered = list(found.annotate(due=Coalesce("extended_to", "due_at")).order_by("due", "id")[:limit])
    told = escalating.told_of(tenant, [each.id for each in ordered])
    return [waiting(each, now=now, escalated_to=told.get(each.id)) for each in ordered]


@dataclass(frozen=True, slots=True)
class Figures:
    """How many requests are open, overdue, and due within a week; no count goes further than 1,000."""

    open: int
    overdue: int
    due_soon: int


def figures(tenant: UUID, *, now: datetime) -> Figures:
    """Return how the requests of a tenant stand, for a first page."""
    dues = list(
        SubjectRequest.objects.filter(tenant_id=tenant, state__in=OPEN)
        .annotate(due=Coalesce("extended_to", "due_at"))
        .order_by("due")
        .values_list("due", flat=True)[:1_000]
    )
    overdue = sum(due <= now for due in dues)
    return Figures(len(dues), overdue, sum(now < due <= now + timedelta(days=7) for due in dues))


def get(tenant: UUID, asked: UUID) -> SubjectRequest:
    """Return a request. Raises `Missing`."""
    found = SubjectRequest.objects.filter(tenant_id=tenant, id=asked).first()
    if found is None:
        raise Missing
    return found


# what the doors share -------------------------------------------------------------------------------------------------


def _locked(tenant: UUID, asked: UUID) -> SubjectRequest:
    found = SubjectRequest.objects.select_for_update().filter(tenant_id=tenant, id=asked).first()
    if found is None:
        raise Missing
    return found


def open_for(actor: Actor, asked: UUID, roles: frozenset[MemberRole]) -> SubjectRequest:
    """Return an open request, locked, for a person with one of the roles. Raises `Missing`, `Forbidden`, `Clash`."""
    require(actor, roles)
    found = _locked(actor.tenant, asked)
    _require_open(found)
    return found


def _require_open(asked: SubjectRequest) -> None:
    if asked.closed_at is not None:
        raise Clash("subject_request_closed")


def require(actor: Actor, roles: frozenset[MemberRole], *, scope: Scope | None = None) -> None:
    """Raise `Forbidden` for whoever is no person with one of the roles, nor a program with the scope."""
    if actor.kind is ActorKind.AGENT and scope is not None and actor.may(scope):
        return
    held = Membership.objects.filter(tenant_id=actor.tenant, user_id=actor.id, role__in=[role.value for role in roles])
    if actor.kind is not ActorKind.PERSON or not held.exists():
        raise Forbidden("role_missing")


def _require_word(field: str, word: str, words: tuple[str, ...]) -> None:
    if word not in words:
        raise Refused("subject_request_refused", errors=[FieldError(field, "not_in_enum")])


def _changed(actor: Actor, asked: SubjectRequest, action: Action, reason: str, **changes: Any) -> SubjectRequest:
    for name, value in changes.items():
        setattr(asked, name, value)
    asked.save(update_fields=list(changes))
    append([_event(actor, action, asked, reason)])
    return asked


def _event(actor: Actor, action: Action, asked: SubjectRequest, reason: str, **numbers: bool) -> Event:
    return Event(
        actor=actor,
        action=action,
        target_kind="subject_request",
        target_id=asked.id,
        reason=reason,
        numbers={**numbers},
    )
