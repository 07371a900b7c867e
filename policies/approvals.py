"""Four eyes: what one person asks for, another decides on, bound to exactly what was shown.

The door of every act that needs a second person. Each runs in the caller's tenant transaction under `Role.STAFF`, with
the person in it: the database takes both persons and all times from the transaction, holds them apart, and bars whoever
holds no role in the tenant, superusers too (`policies/migrations/0003_approvals.sql`). What is refused here with a code
is refused there as well.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from uuid import UUID

from django.db import connection

from policies.models import Decision, DecisionRequest, Delegation
from tenants.actors import Actor, ActorKind, MemberRole, Scope
from tenants.audit import Action, Event, append
from tenants.errors import Clash, FieldError, Forbidden, Missing, Refused
from tenants.models import Membership, User


class Act(StrEnum):
    """The acts that need a second person. The list is closed in the database too."""

    PUBLISH_ATTRIBUTE = "attribute.publish"
    PUBLISH_POLICY = "policy.publish"
    PROMOTE_PROCEDURE = "procedure.promote"
    LOWER_CLASS = "class.lower"
    EXTEND_LIFETIME = "lifetime.extend"
    RELEASE_HOLD = "hold.release"
    ERASE_SUBJECT = "subject.erase"

    @property
    def decided_by(self) -> MemberRole:
        """The role of whoever decides: what is allowed is an approver's, how things end a privacy officer's."""
        return MemberRole.APPROVER if self in _OF_APPROVERS else MemberRole.PRIVACY_OFFICER


_OF_APPROVERS = frozenset({Act.PUBLISH_ATTRIBUTE, Act.PUBLISH_POLICY, Act.PROMOTE_PROCEDURE})
#: What an agent may ask for, by a key with the scope `propose`; everything else is asked for by a person.
_OF_AGENTS = frozenset({Act.PROMOTE_PROCEDURE})


class Answer(StrEnum):
    """What may be decided: yes, no, or not like this."""

    APPROVE = "approve"
    REFUSE = "refuse"
    RETURN = "return"


#: What a question becomes by each answer.
_STATES = {Answer.APPROVE: "approved", Answer.REFUSE: "refused", Answer.RETURN: "returned"}

#: Why something is asked for. Codes, since words would be content.
REASONS = ("new_need", "correction", "policy_changed", "law_changed", "roll_back", "matter_ended", "other")
#: Why it is decided as it is.
ANSWER_REASONS: dict[Answer, tuple[str, ...]] = {
    Answer.APPROVE: ("checked", "tested", "other"),
    Answer.REFUSE: ("not_needed", "too_wide", "against_policy", "other"),
    Answer.RETURN: ("incomplete", "unclear", "too_wide", "other"),
}

#: How long a question waits, and an approval may be used, unless the act says otherwise; never longer than 31 days.
LASTS = timedelta(days=14)
LONGEST = timedelta(days=31)


@dataclass(frozen=True, slots=True)
class Asked:
    """What somebody asks for: the act, on what, and the digest of what will happen."""

    act: Act
    target_kind: str
    target: UUID
    digest: bytes


# asking ---------------------------------------------------------------------------------------------------------------


def ask(actor: Actor, asked: Asked, *, reason: str, now: datetime, lasts: timedelta = LASTS) -> DecisionRequest:
    """Ask for a second person's decision, which is bound to `asked.digest` and may be given for `lasts`.

    Raises `Forbidden` for whoever is no person with a role in the tenant (for a procedure an agent may ask, with the scope
    `propose`), `Clash("already_asked")` where a question about the same act on the same target is open, `Refused` for a
    reason or a time that is not one.
    """
    if actor.kind is not ActorKind.AGENT or asked.act not in _OF_AGENTS or not actor.may(Scope.PROPOSE):
        _require_a_member(actor)
    if reason not in REASONS:
        raise Refused("request_refused", errors=[FieldError("reason", "not_in_enum")])
    if not timedelta() < lasts <= LONGEST:
        raise Refused("request_refused", errors=[FieldError("lasts", "out_of_range")])
    for open_one in _open(actor.tenant, asked.act, asked.target):
        if not _lapse(actor, open_one, now=now):
            raise Clash("already_asked")
    question = DecisionRequest(
        tenant_id=actor.tenant,
        act=asked.act.value,
        target_kind=asked.target_kind,
        target_id=asked.target,
        digest=asked.digest,
        reason=reason,
        requested_by=actor.id,
        requested_at=now,
        expires_at=now + lasts,
    )
    _remember(question, actor, reason)
    question.save(force_insert=True)
    _tell(actor, Action.APPROVAL_ASKED, question, reason)
    return question


def withdraw(actor: Actor, question: UUID, *, now: datetime) -> DecisionRequest:
    """Take one's own question back. Raises `Missing`, `Forbidden` for another's, `Clash` where it is decided."""
    found = locked(actor.tenant, question)
    if found.requested_by != actor.id:
        raise Forbidden("not_the_requester")
    _require_pending(actor, found, now=now)
    _move(actor, found, "withdrawn", "withdrawn")
    _tell(actor, Action.APPROVAL_WITHDRAWN, found, "withdrawn")
    return found


def lapse(actor: Actor, question: UUID, *, now: datetime) -> bool:
    """Mark a question or an unused approval whose time is over; return whether it was. Harmless when repeated."""
    return _lapse(actor, locked(actor.tenant, question), now=now)


# deciding -------------------------------------------------------------------------------------------------------------


def decide(
    actor: Actor, question: UUID, answer: Answer, *, shown: bytes, reason: str, now: datetime
) -> tuple[DecisionRequest, Decision]:
    """Decide on another's question, as it was shown: `shown` is the digest that stood on the page.

    Of two who decide at once one decides, and the other gets `Clash("already_decided")` and finds it decided. Raises
    `Forbidden("own_request")`, `Forbidden("own_agent")` (the actor registered the agent that asks, or was handed a key of
    it) and `Forbidden("role_missing")`, `Clash("changed_since_shown")` where the question is bound
    to something else, `Clash("request_expired")`, `Refused` for a reason that does not go with the answer, `Missing`.
    An approval does nothing by itself: `carry_out` uses it up in the transaction of the act.
    """
    if reason not in ANSWER_REASONS[answer]:
        raise Refused("decision_refused", errors=[FieldError("reason", "not_in_enum")])
    found = locked(actor.tenant, question)
    _require_pending(actor, found, now=now)
    if found.requested_by == actor.id:
        raise Forbidden("own_request")
    if answers_for(actor.tenant, found.requested_by, actor.id):
        raise Forbidden("own_agent")
    if not may_decide(actor, found, now=now):
        raise Forbidden("role_missing")
    if bytes(found.digest) != shown:
        raise Clash("changed_since_shown")
    decision = Decision(
        tenant_id=actor.tenant,
        request_id=found.id,
        requested_by=found.requested_by,
        digest=shown,
        verdict=answer.value,
        reason=reason,
        decided_by=actor.id,
        decided_at=now,
    )
    decision.save(force_insert=True)
    decision.refresh_from_db()
    _move(actor, found, _STATES[answer], reason)
    _tell(actor, Action.APPROVAL_DECIDED, found, reason, approved=answer is Answer.APPROVE,
          delegated=decision.delegation_id is not None)  # fmt: skip
    return found, decision


def carry_out(actor: Actor, asked: Asked) -> DecisionRequest:
    """Use up the approval of exactly this act on exactly this, in the act's own transaction; an approval serves once.

    Raises `Clash("not_approved")` where none stands: not asked, refused, used up, lapsed, or approved as something else.
    """
    found = next(
        (
            each
            for each in _open(actor.tenant, asked.act, asked.target)
            if each.state == "approved" and bytes(each.digest) == asked.digest
        ),
        None,
    )
    if found is None or _past(found):
        raise Clash("not_approved")
    _move(actor, found, "done", "carried_out")
    _tell(actor, Action.APPROVAL_USED, found, "carried_out")
    return found


def may_decide(actor: Actor, question: DecisionRequest, *, now: datetime) -> bool:
    """Whether the actor could decide on this question: another's, with the role for it, their own or handed to them."""
    role = Act(question.act).decided_by
    if actor.kind is not ActorKind.PERSON or question.requested_by == actor.id:
        return False
    if answers_for(actor.tenant, question.requested_by, actor.id):
        return False
    if Membership.objects.filter(tenant_id=actor.tenant, user_id=actor.id, role=role.value).exists():
        return True
    handed = standing_delegations(actor.tenant, actor.id, now=now)
    givers = [
        each.given_by
        for each in handed
        if each.role == role.value
        and each.given_by != question.requested_by
        and not answers_for(actor.tenant, question.requested_by, each.given_by)
    ]
    return Membership.objects.filter(tenant_id=actor.tenant, user_id__in=givers, role=role.value).exists()


def answers_for(tenant: UUID, agent: UUID, person: UUID) -> bool:
    """Whether a person registered an agent or was handed a key of it: what it asks for is then not theirs to decide on."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT answers_for_agent(%s::uuid, %s::uuid, %s::uuid)", [tenant, agent, person])
        row = cursor.fetchone()
    return bool(row and row[0])


def holds_role(actor: Actor, role: MemberRole) -> bool:
    """Whether a person holds a role in the tenant, their own or one that was handed to them and stands."""
    if actor.kind is not ActorKind.PERSON:
        return False
    with connection.cursor() as cursor:
        cursor.execute("SELECT holds_role(%s::uuid, %s::uuid, %s)", [actor.tenant, actor.id, role.value])
        row = cursor.fetchone()
    return bool(row and row[0])


def roles_of(actor: Actor, *, now: datetime) -> frozenset[MemberRole]:
    """Return the roles that were handed to a person and stand now; their own stand in their memberships."""
    return frozenset(MemberRole(each.role) for each in standing_delegations(actor.tenant, actor.id, now=now))


# handing a role on ----------------------------------------------------------------------------------------------------


def delegate(
    actor: Actor, username: str, role: MemberRole, *, starts_at: datetime, ends_at: datetime, now: datetime
) -> Delegation:
    """Hand a role of one's own to a member, by name, from an instant until before another, at most 31 days.

    It is not handed on in turn, and never serves to decide what the giver asked for. Raises `Forbidden` for a role that
    is not the actor's own, `Refused` for a name that is no other member's or a time that is none.
    """
    if role not in (MemberRole.APPROVER, MemberRole.PRIVACY_OFFICER):
        raise Refused("delegation_refused", errors=[FieldError("role", "not_in_enum")])
    if not Membership.objects.filter(tenant_id=actor.tenant, user_id=actor.id, role=role.value).exists():
        raise Forbidden("role_missing")
    receiver = User.objects.filter(
        username=username, id__in=Membership.objects.filter(tenant_id=actor.tenant).values("user_id")
    ).first()
    if receiver is None or receiver.id == actor.id:
        raise Refused("delegation_refused", errors=[FieldError("given_to", "not_a_member")])
    if not starts_at < ends_at <= starts_at + LONGEST or ends_at <= now or starts_at > now + 2 * LONGEST:
        raise Refused("delegation_refused", errors=[FieldError("ends_at", "out_of_range")])
    delegation = Delegation(
        tenant_id=actor.tenant,
        role=role.value,
        given_by=actor.id,
        given_to_id=receiver.id,
        starts_at=starts_at,
        ends_at=ends_at,
        created_at=now,
    )
    delegation.save(force_insert=True)
    _tell_of_delegation(actor, Action.DELEGATION_GIVEN, delegation)
    return delegation


def end_delegation(actor: Actor, delegation: UUID, *, now: datetime) -> None:
    """End a delegation that one gave, at once. Raises `Missing` where there is none, `Clash` where it has ended."""
    found = (
        Delegation.objects.select_for_update().filter(tenant_id=actor.tenant, id=delegation, given_by=actor.id).first()
    )
    if found is None:
        raise Missing
    if found.ended_at is not None:
        raise Clash("delegation_ended")
    found.ended_at = now
    found.save(update_fields=["ended_at"])
    _tell_of_delegation(actor, Action.DELEGATION_ENDED, found)


def standing_delegations(tenant: UUID, receiver: UUID, *, now: datetime) -> list[Delegation]:
    """Return what was handed to a person and stands now; who gave it may have lost it since."""
    return list(
        Delegation.objects.filter(
            tenant_id=tenant, given_to_id=receiver, ended_at=None, starts_at__lte=now, ends_at__gt=now
        )
    )


# what the doors share -------------------------------------------------------------------------------------------------


def locked(tenant: UUID, question: UUID) -> DecisionRequest:
    """Return a question, locked, so that of two who act at once the second sees what the first did. Raises `Missing`."""
    found = DecisionRequest.objects.select_for_update().filter(tenant_id=tenant, id=question).first()
    if found is None:
        raise Missing
    return found


def _open(tenant: UUID, act: Act, target: UUID) -> list[DecisionRequest]:
    return list(
        DecisionRequest.objects.select_for_update().filter(
            tenant_id=tenant, act=act.value, target_id=target, state__in=("pending", "approved")
        )
    )


def _require_a_member(actor: Actor) -> None:
    roles = Membership.objects.filter(tenant_id=actor.tenant, user_id=actor.id).exclude(role=MemberRole.AUDITOR.value)
    if actor.kind is not ActorKind.PERSON or not roles.exists():
        raise Forbidden("role_missing")


def _require_pending(actor: Actor, question: DecisionRequest, *, now: datetime) -> None:
    if question.state != "pending":
        raise Clash("request_expired" if question.state == "expired" else "already_decided")
    if now >= question.expires_at or _past(question):
        raise Clash("request_expired")


def _past(question: DecisionRequest) -> bool:
    # By the database's clock, which is the one that decides.
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp() >= %s", [question.expires_at])
        row = cursor.fetchone()
    return bool(row and row[0])


def _lapse(actor: Actor, question: DecisionRequest, *, now: datetime) -> bool:
    if question.state not in ("pending", "approved") or now < question.expires_at or not _past(question):
        return False
    _move(actor, question, "expired", "lapsed")
    _tell(actor, Action.APPROVAL_EXPIRED, question, "lapsed")
    return True


def _move(actor: Actor, question: DecisionRequest, state: str, reason: str) -> None:
    question.state = state
    _remember(question, actor, reason)
    # Who carried it out and when is filled by the database.
    question.save(update_fields=["state"])
    question.refresh_from_db()


def _remember(question: DecisionRequest, actor: Actor, reason: str) -> None:
    question._change_reason = reason  # type: ignore[attr-defined]
    person = actor.kind is ActorKind.PERSON
    question._history_user = User(id=actor.id) if person else None  # type: ignore[attr-defined]


def _tell(actor: Actor, action: Action, question: DecisionRequest, reason: str, **numbers: bool) -> None:
    append(
        [
            Event(
                actor=actor,
                action=action,
                target_kind=question.target_kind,
                target_id=question.target_id,
                reason=reason,
                digest=bytes(question.digest),
                numbers=dict(numbers),
            )
        ]
    )


def _tell_of_delegation(actor: Actor, action: Action, delegation: Delegation) -> None:
    append(
        [
            Event(
                actor=actor,
                action=action,
                target_kind="user",
                target_id=delegation.given_to_id,
                reason=delegation.role,
                numbers={"seconds": int((delegation.ends_at - delegation.starts_at).total_seconds())},
            )
        ]
    )
