"""Restriction of processing (GDPR Art. 18): what is restricted is kept and shown to staff, and no agent sees it.

Every door runs in the caller's tenant transaction under `Role.STAFF`, for a privacy officer. The rows of memory are marked in the
same transaction (`memory.restriction`), so that row-level security hides them from its commit on; what is written about a
restricted subject later is kept and restricted too.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from memory import restriction
from retention import endings_log, requests
from retention.models import Restriction
from tenants.actors import Actor, ActorKind, MemberRole, Scope
from tenants.audit import Action, Event, append
from tenants.errors import Clash, FieldError, Forbidden, Missing, Refused
from tenants.isolation import Role, borrowed
from tenants.models import Membership

KINDS = ("subject", "fact", "episode")
#: Why, as Art. 18(1) has it. Codes, since words would be content.
GROUNDS = ("accuracy_contested", "unlawful", "needed_for_claims", "objection_pending", "other")
#: Why no longer.
LIFTED = ("accuracy_settled", "consented", "claims_settled", "objection_settled", "in_error", "other")


def restrict(
    actor: Actor, kind: str, target: UUID, *, ground: str, now: datetime, answers: UUID | None = None
) -> Restriction:
    """Restrict the processing of a subject, a fact or an episode. From the commit on no agent sees any of it.

    The commit returns once the endings log tells of it. `answers`: the data subject's request that asked for it. Raises
    `Missing`, `Forbidden` for whoever is no privacy officer nor a program with the scope `admin`, `Clash("restricted_already")`, `Refused` for a ground that is none.
    """
    if not (actor.kind is ActorKind.AGENT and actor.may(Scope.ADMIN)):
        _require_officer(actor)
    if kind not in KINDS:
        raise Refused("restriction_refused", errors=[FieldError("kind", "not_in_enum")])
    if ground not in GROUNDS:
        raise Refused("restriction_refused", errors=[FieldError("ground", "not_in_enum")])
    subject = _locked(actor.tenant, kind, target)
    if _active(actor.tenant).filter(target_id=target).exists():
        raise Clash("restricted_already")
    row = Restriction(
        tenant_id=actor.tenant,
        target_kind=kind,
        target_id=target,
        ground=ground,
        request_id=answers,
        restricted_by=actor.id,
        restricted_at=now,
    )
    row.save(force_insert=True)
    _mark(actor.tenant, kind, target, subject)
    if answers is not None:
        requests.link(actor, answers, "restriction", row.id)
    _tell(actor, Action.PROCESSING_RESTRICTED, row, ground)
    return row


def restrict_again(actor: Actor, target: UUID, record: Mapping[str, Any]) -> bool:
    """Restrict again what a restored backup shows, as the endings log tells; False where it is not there. Harmless to repeat."""
    row, kind = UUID(record["restriction"]), record["kind"]
    if Restriction.objects.filter(tenant_id=actor.tenant, id=row).exists():
        return True
    try:
        subject = _locked(actor.tenant, kind, target)
    except Missing:
        return False
    Restriction(
        id=row,
        tenant_id=actor.tenant,
        target_kind=kind,
        target_id=target,
        ground=record["reason"],
        restricted_by=actor.id,
        restricted_at=record["at"],
    ).save(force_insert=True)
    _mark(actor.tenant, kind, target, subject)
    event = Event(
        actor=actor, action=Action.PROCESSING_RESTRICTED, target_kind=kind, target_id=target, reason="restored"
    )
    append([event])
    return True


def lift(actor: Actor, row: UUID, *, because: str, now: datetime, told: bool = False) -> Restriction:
    """Lift a restriction: what nothing else restricts is seen by agents again from the commit on.

    Where it answered a data subject's request, whoever asked is to be told first: `told` says that they were. Raises `Missing`,
    `Forbidden`, `Clash("restriction_lifted")`, `Clash("notice_owed")`, `Refused` for a reason that is none.
    """
    _require_officer(actor)
    if because not in LIFTED:
        raise Refused("restriction_refused", errors=[FieldError("because", "not_in_enum")])
    found = Restriction.objects.filter(tenant_id=actor.tenant, id=row).first()
    if found is None:
        raise Missing
    subject = _locked(actor.tenant, found.target_kind, found.target_id)
    # Again, under the subject's lock.
    found = Restriction.objects.select_for_update().get(tenant_id=actor.tenant, id=row)
    if found.state != "active":
        raise Clash("restriction_lifted")
    if found.request_id is not None and not told:
        raise Clash("notice_owed")
    found.state, found.lifted_because, found.told_at = "lifted", because, now if told else None
    found.save(update_fields=["state", "lifted_because", "told_at"])
    found.refresh_from_db()
    _mark(actor.tenant, found.target_kind, found.target_id, subject)
    _tell(actor, Action.RESTRICTION_LIFTED, found, because)
    return found


def _locked(tenant: UUID, kind: str, target: UUID) -> UUID | None:
    """Lock whom it concerns, writers and endings waiting, and return their id; None for an episode about nobody."""
    with borrowed(Role.WRITER, back_to=Role.STAFF):
        subject: UUID | None = target
        if kind != "subject":
            there, subject = restriction.subject_of(tenant, kind, target)
            if not there:
                raise Missing
        if subject is not None and restriction.lock(tenant, subject) is None:
            raise Missing
    return subject


def _mark(tenant: UUID, kind: str, target: UUID, subject: UUID | None) -> None:
    """Let the rows say what the restrictions in force come to."""
    active = list(_active(tenant).filter(target_kind__in=KINDS).values_list("target_kind", "target_id"))
    own = [each for its_kind, each in active if its_kind != "subject"]
    with borrowed(Role.WRITER, back_to=Role.STAFF):
        if subject is None:
            restriction.mark_episode(tenant, target, on=target in own)
        else:
            restriction.mark(tenant, subject, on=("subject", subject) in active, own=own)


def _active(tenant: UUID) -> Any:
    return Restriction.objects.filter(tenant_id=tenant, state="active")


def _require_officer(actor: Actor) -> None:
    role = MemberRole.PRIVACY_OFFICER.value
    own = Membership.objects.filter(tenant_id=actor.tenant, user_id=actor.id, role=role)
    if actor.kind is not ActorKind.PERSON or not own.exists():
        raise Forbidden("role_missing")


def _tell(actor: Actor, action: Action, row: Restriction, reason: str) -> None:
    told = {"restriction": row.id, "kind": row.target_kind, "state": row.state, "reason": reason}
    endings_log.owe(actor.tenant, "restriction", row.target_id, told)
    append(
        [
            Event(
                actor=actor,
                action=action,
                target_kind=row.target_kind,
                target_id=row.target_id,
                reason=reason,
                numbers={"asked_for": row.request_id is not None},
            )
        ]
    )
