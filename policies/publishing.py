"""Putting attributes and policies in force: a new immutable version, the former one retired, the act audited.

An operator's command publishes at once. A member drafts a version and asks for a second person's approval; the version is
put in force when that person approves it, in the same transaction. Every door runs in a tenant transaction under
`Role.STAFF`.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal
from uuid import UUID

from django.db import connection
from django.db.models import F, Max

from policies import approvals
from policies.approvals import Act, Answer, Asked
from policies.definitions import AttributeDefinition, changed_fields, definition
from policies.documents import changed_fields as _changed_policy_fields
from policies.models import Attribute, AttributeVersion, Decision, DecisionRequest, Policy, PolicyVersion
from policies.rules import PolicyDocument, policy_document
from tenants.actors import Actor, ActorKind
from tenants.audit import Action, Event, append
from tenants.errors import Clash, FieldError, Missing
from tenants.models import Tenant, User

#: A version of either kind: both have a number, a digest, a state and a base.
Version = AttributeVersion | PolicyVersion


@dataclass(frozen=True, slots=True)
class Published:
    """What became of one definition: its name, its version's number, and which fields changed."""

    name: str
    number: int
    outcome: Literal["created", "changed", "unchanged"]
    fields: tuple[str, ...] = ()


# an operator's command ------------------------------------------------------------------------------------------------


def publish_attributes(actor: Actor, definitions: Sequence[AttributeDefinition], *, now: datetime) -> list[Published]:
    """Put `definitions` in force in the actor's tenant, all or none; what is unchanged makes no version.

    The operator's authority: the database refuses it to a person. Attributes that are not named stay as they are. Raises
    `Clash("cardinality_changes")` where a published attribute comes with the other cardinality, which would change what
    its stored facts mean.
    """
    # Publications of one tenant follow one another: the tenant's row is their lock.
    _lock_catalogue(actor)
    stored = {each.name: each for each in Attribute.objects.filter(tenant_id=actor.tenant)}
    newest = dict(
        AttributeVersion.objects.filter(tenant_id=actor.tenant).values_list("attribute_id").annotate(Max("number"))
    )
    active = {
        each.attribute_id: each for each in AttributeVersion.objects.filter(tenant_id=actor.tenant, state="active")
    }
    results: list[Published] = []
    events: list[Event] = []
    for place, wanted in enumerate(definitions):
        attribute = _attribute(actor, wanted, stored, place=f"attributes[{place}].cardinality", now=now)
        former = active.get(attribute.id)
        if former is not None and bytes(former.digest) == bytes.fromhex(wanted.digest()):
            results.append(Published(wanted.name, former.number, "unchanged"))
            continue
        if former is not None:
            AttributeVersion.objects.filter(id=former.id).update(state="retired")
        version = _attribute_version(actor, attribute, wanted, newest.get(attribute.id, 0) + 1, now=now)
        version.state = "active"
        version.save(force_insert=True)
        active[attribute.id], newest[attribute.id] = version, version.number
        changed = () if former is None else changed_fields(definition(former.definition), wanted)
        results.append(Published(wanted.name, version.number, "created" if former is None else "changed", changed))
        events.append(_event(actor, Action.ATTRIBUTE_PUBLISHED, version))
    if events:
        _move_catalogue(actor)
        append(events)
    return results


def publish_policy(actor: Actor, document: PolicyDocument, *, now: datetime) -> Published:
    """Put `document` in force as the tenant's write policy; an unchanged one makes no version. The operator's authority."""
    _lock_catalogue(actor)
    policy = _policy(actor, document.name, now=now)
    in_force = _policy_in_force(actor.tenant)
    if in_force is not None and in_force.policy_id == policy.id and in_force.digest.hex() == document.digest():
        return Published(document.name, in_force.number, "unchanged")
    newest = PolicyVersion.objects.filter(tenant_id=actor.tenant, policy_id=policy.id).order_by("-number").first()
    if in_force is not None:
        PolicyVersion.objects.filter(id=in_force.id).update(state="retired")
    version = _policy_version(actor, policy, document, 1 if newest is None else newest.number + 1, now=now)
    version.state = "active"
    version.save(force_insert=True)
    _move_catalogue(actor)
    append([_event(actor, Action.POLICY_PUBLISHED, version)])
    changed = () if newest is None else _changed_policy_fields(policy_document(newest.rules), document)
    return Published(document.name, version.number, "created" if newest is None else "changed", changed)


# two persons ----------------------------------------------------------------------------------------------------------


def draft_attribute(actor: Actor, wanted: AttributeDefinition, *, now: datetime) -> AttributeVersion:
    """Keep `wanted` as a draft of its attribute's next version; an earlier version drafted again is a roll-back.

    Nothing is in force by it. A name that is new makes its attribute, of which nothing can be stored before a version is in
    force. Raises `Clash("unchanged")` where it is what is in force, and `Clash("cardinality_changes")`.
    """
    _lock_catalogue(actor)
    stored = {each.name: each for each in Attribute.objects.filter(tenant_id=actor.tenant, name=wanted.name)}
    attribute = _attribute(actor, wanted, stored, place="attribute.cardinality", now=now)
    versions = AttributeVersion.objects.filter(tenant_id=actor.tenant, attribute_id=attribute.id)
    base = versions.filter(state="active").first()
    if base is not None and base.digest.hex() == wanted.digest():
        raise Clash("unchanged")
    newest = versions.aggregate(newest=Max("number"))["newest"] or 0
    version = _attribute_version(actor, attribute, wanted, newest + 1, now=now)
    version.base, version.drafted_by = base, actor.id
    version.save(force_insert=True)
    append([_event(actor, Action.ATTRIBUTE_DRAFTED, version)])
    return version


def draft_policy(actor: Actor, document: PolicyDocument, *, now: datetime) -> PolicyVersion:
    """Keep `document` as a draft of the tenant's next write policy. Raises `Clash("unchanged")` where it is in force."""
    _lock_catalogue(actor)
    base = _policy_in_force(actor.tenant)
    policy = _policy(actor, document.name, now=now)
    if base is not None and base.policy_id == policy.id and base.digest.hex() == document.digest():
        raise Clash("unchanged")
    versions = PolicyVersion.objects.filter(tenant_id=actor.tenant, policy_id=policy.id)
    newest = versions.aggregate(newest=Max("number"))["newest"] or 0
    version = _policy_version(actor, policy, document, newest + 1, now=now)
    version.base, version.drafted_by = base, actor.id
    version.save(force_insert=True)
    append([_event(actor, Action.POLICY_DRAFTED, version)])
    return version


def discard(actor: Actor, act: Act, draft: UUID) -> Version:
    """Drop a draft for good; what is asked about it must be withdrawn or decided first (`Clash("already_asked")`)."""
    _lock_catalogue(actor)
    version = _draft(actor.tenant, act, draft)
    if open_request(actor.tenant, act, draft) is not None:
        raise Clash("already_asked")
    version.state = "discarded"
    version.save(update_fields=["state"])
    append([_event(actor, Action.DRAFT_DISCARDED, version)])
    return version


def ask(actor: Actor, act: Act, draft: UUID, *, reason: str, now: datetime) -> DecisionRequest:
    """Ask for a draft to be put in force, on the base on which it was drafted.

    Raises `Clash("base_moved")` where another version is in force by now, `Clash("not_a_draft")`, and what
    `approvals.ask` raises.
    """
    _lock_catalogue(actor)
    version = _draft(actor.tenant, act, draft)
    _require_base(actor.tenant, version)
    return approvals.ask(actor, _asked(act, version), reason=reason, now=now)


def decide(
    actor: Actor, question: UUID, answer: Answer, *, shown: bytes, reason: str, now: datetime
) -> tuple[DecisionRequest, Decision]:
    """Decide on a draft; approved, it is in force at once, and the version before it retired, in one transaction.

    Raises what `approvals.decide` raises, and `Clash("base_moved")` where another version came into force since: what was
    compared on the page is not what would change.
    """
    _lock_catalogue(actor)
    found = approvals.locked(actor.tenant, question)
    act = Act(found.act)
    if act not in (Act.PUBLISH_ATTRIBUTE, Act.PUBLISH_POLICY):
        raise Missing
    settled, decision = approvals.decide(actor, question, answer, shown=shown, reason=reason, now=now)
    if answer is Answer.APPROVE:
        version = _draft(actor.tenant, act, found.target_id)
        _require_base(actor.tenant, version)
        _put_in_force(actor, version)
        settled = approvals.carry_out(actor, _asked(act, version))
        append([_event(actor, _PUBLISHED[act], version)])
    return settled, decision


def shown_digest(version: Version) -> bytes:
    """Return the digest that binds an approval: of the draft, and of the version that was in force when it was drafted."""
    base = b"" if version.base is None else bytes(version.base.digest)
    return hashlib.sha256(bytes(version.digest) + base).digest()


def in_force(version: Version) -> Version | None:
    """Return what a version would replace: the attribute's version in force, or the tenant's policy in force."""
    if isinstance(version, AttributeVersion):
        return AttributeVersion.objects.filter(
            tenant_id=version.tenant_id, attribute_id=version.attribute_id, state="active"
        ).first()
    return _policy_in_force(version.tenant_id)


def open_request(tenant: UUID, act: Act, target: UUID) -> DecisionRequest | None:
    """Return the question about a version that waits, or whose approval has not been used."""
    return DecisionRequest.objects.filter(
        tenant_id=tenant, act=act.value, target_id=target, state__in=("pending", "approved")
    ).first()


def version_of(tenant: UUID, act: Act, target: UUID) -> Version:
    """Return the version that a request to publish is about. Raises `Missing`."""
    found: Version | None
    if act is Act.PUBLISH_ATTRIBUTE:
        found = AttributeVersion.objects.select_related("base").filter(tenant_id=tenant, id=target).first()
    else:
        found = PolicyVersion.objects.select_related("base").filter(tenant_id=tenant, id=target).first()
    if found is None:
        raise Missing
    return found


_PUBLISHED = {Act.PUBLISH_ATTRIBUTE: Action.ATTRIBUTE_PUBLISHED, Act.PUBLISH_POLICY: Action.POLICY_PUBLISHED}


def _asked(act: Act, version: Version) -> Asked:
    return Asked(act, str(version._meta.model_name), version.id, shown_digest(version))


def _draft(tenant: UUID, act: Act, draft: UUID) -> Version:
    version = version_of(tenant, act, draft)
    if version.state != "draft":
        raise Clash("not_a_draft")
    return version


def _require_base(tenant: UUID, version: Version) -> None:
    found = in_force(version)
    if (None if found is None else found.id) != version.base_id:
        raise Clash("base_moved")


def _put_in_force(actor: Actor, version: Version) -> None:
    former = in_force(version)
    if former is not None:
        former.state = "retired"
        former.save(update_fields=["state"])
    version.state = "active"
    version.save(update_fields=["state"])
    _move_catalogue(actor)


# rows -----------------------------------------------------------------------------------------------------------------


def _attribute(
    actor: Actor, wanted: AttributeDefinition, stored: dict[str, Attribute], *, place: str, now: datetime
) -> Attribute:
    """Return the attribute of a definition, made where it is new; before its first publication a draft may choose anew."""
    attribute = stored.get(wanted.name)
    if attribute is None:
        attribute = Attribute(
            tenant_id=actor.tenant, name=wanted.name, cardinality=wanted.cardinality.value, created_at=now
        )
        _remember(attribute, actor)
        attribute.save(force_insert=True)
        stored[wanted.name] = attribute
    elif attribute.cardinality != wanted.cardinality.value:
        published = AttributeVersion.objects.filter(
            tenant_id=actor.tenant, attribute_id=attribute.id, state__in=("active", "retired")
        )
        if published.exists():
            raise Clash("cardinality_changes", errors=[FieldError(place, "fixed")])
        attribute.cardinality = wanted.cardinality.value
        _remember(attribute, actor)
        attribute.save(update_fields=["cardinality"])
    return attribute


def _policy(actor: Actor, name: str, *, now: datetime) -> Policy:
    policy = Policy.objects.filter(tenant_id=actor.tenant, name=name).first()
    if policy is None:
        policy = Policy(tenant_id=actor.tenant, name=name, created_at=now)
        _remember(policy, actor)
        policy.save(force_insert=True)
    return policy


def _policy_in_force(tenant: UUID) -> PolicyVersion | None:
    return PolicyVersion.objects.filter(tenant_id=tenant, state="active").first()


def _attribute_version(
    actor: Actor, attribute: Attribute, wanted: AttributeDefinition, number: int, *, now: datetime
) -> AttributeVersion:
    return AttributeVersion(
        tenant_id=actor.tenant,
        attribute_id=attribute.id,
        number=number,
        definition=wanted.document(),
        digest=bytes.fromhex(wanted.digest()),
        state="draft",
        created_at=now,
    )


def _policy_version(
    actor: Actor, policy: Policy, document: PolicyDocument, number: int, *, now: datetime
) -> PolicyVersion:
    return PolicyVersion(
        tenant_id=actor.tenant,
        policy_id=policy.id,
        number=number,
        rules=document.document(),
        digest=bytes.fromhex(document.digest()),
        state="draft",
        created_at=now,
    )


def _remember(row: Attribute | Policy, actor: Actor) -> None:
    person = actor.kind is ActorKind.PERSON
    row._change_reason = "drafted" if person else "published"  # type: ignore[union-attr]
    row._history_user = User(id=actor.id) if person else None  # type: ignore[union-attr]


def _event(actor: Actor, action: Action, version: Version) -> Event:
    return Event(
        actor=actor,
        action=action,
        target_kind=str(version._meta.model_name),
        target_id=version.id,
        digest=bytes(version.digest),
        numbers={"number": version.number},
    )


def _lock_catalogue(actor: Actor) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1 FROM tenants_tenant WHERE id = %s FOR NO KEY UPDATE", [actor.tenant])


def _move_catalogue(actor: Actor) -> None:
    Tenant.objects.filter(id=actor.tenant).update(catalogue_no=F("catalogue_no") + 1)
