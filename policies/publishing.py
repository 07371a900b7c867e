"""Putting attributes and policies in force: a new immutable version, the former one retired, the act audited.

Both doors run in a tenant transaction under `Role.STAFF`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from django.db import connection
from django.db.models import F

from policies.definitions import AttributeDefinition, changed_fields, definition
from policies.documents import changed_fields as _changed_policy_fields
from policies.models import Attribute, AttributeVersion, Policy, PolicyVersion
from policies.rules import PolicyDocument, policy_document
from tenants.actors import Actor
from tenants.audit import Action, Event, append
from tenants.errors import Clash, FieldError
from tenants.models import Tenant


@dataclass(frozen=True, slots=True)
class Published:
    """What became of one definition: its name, its version's number, and which fields changed."""

    name: str
    number: int
    outcome: Literal["created", "changed", "unchanged"]
    fields: tuple[str, ...] = ()


def publish_attributes(actor: Actor, definitions: Sequence[AttributeDefinition], *, now: datetime) -> list[Published]:
    """Put `definitions` in force in the actor's tenant, all or none; what is unchanged makes no version.

    Attributes that are not named stay as they are. Raises `Clash("cardinality_changes")` where a stored attribute is
    published with the other cardinality, which would change what its stored facts mean.
    """
    # Publications of one tenant follow one another: the tenant's row is their lock.
    _lock_catalogue(actor)
    stored = {each.name: each for each in Attribute.objects.filter(tenant_id=actor.tenant)}
    active = {
        each.attribute_id: each for each in AttributeVersion.objects.filter(tenant_id=actor.tenant, state="active")
    }
    results: list[Published] = []
    events: list[Event] = []
    for place, wanted in enumerate(definitions):
        attribute = stored.get(wanted.name)
        if attribute is None:
            attribute = Attribute(
                tenant_id=actor.tenant, name=wanted.name, cardinality=wanted.cardinality.value, created_at=now
            )
            attribute._change_reason = "published"  # type: ignore[attr-defined]
            attribute.save(force_insert=True)
            stored[wanted.name] = attribute
        elif attribute.cardinality != wanted.cardinality.value:
            raise Clash("cardinality_changes", errors=[FieldError(f"attributes[{place}].cardinality", "fixed")])
        former = active.get(attribute.id)
        if former is not None and bytes(former.digest) == bytes.fromhex(wanted.digest()):
            results.append(Published(wanted.name, former.number, "unchanged"))
            continue
        number = 1 if former is None else former.number + 1
        if former is not None:
            AttributeVersion.objects.filter(id=former.id).update(state="retired")
        version = AttributeVersion(
            tenant_id=actor.tenant,
            attribute_id=attribute.id,
            number=number,
            definition=wanted.document(),
            digest=bytes.fromhex(wanted.digest()),
            state="active",
            created_at=now,
        )
        version.save(force_insert=True)
        active[attribute.id] = version
        changed = () if former is None else changed_fields(definition(former.definition), wanted)
        results.append(Published(wanted.name, number, "created" if former is None else "changed", changed))
        events.append(
            Event(
                actor=actor,
                action=Action.ATTRIBUTE_PUBLISHED,
                target_kind="attributeversion",
                target_id=version.id,
                digest=bytes(version.digest),
                numbers={"number": number},
            )
        )
    if events:
        _move_catalogue(actor)
        append(events)
    return results


def publish_policy(actor: Actor, document: PolicyDocument, *, now: datetime) -> Published:
    """Put `document` in force as the tenant's write policy; an unchanged one makes no version."""
    _lock_catalogue(actor)
    policy = Policy.objects.filter(tenant_id=actor.tenant, name=document.name).first()
    if policy is None:
        policy = Policy(tenant_id=actor.tenant, name=document.name, created_at=now)
        policy._change_reason = "published"  # type: ignore[attr-defined]
        policy.save(force_insert=True)
    in_force = PolicyVersion.objects.filter(tenant_id=actor.tenant, state="active").first()
    if in_force is not None and in_force.policy_id == policy.id and in_force.digest.hex() == document.digest():
        return Published(document.name, in_force.number, "unchanged")
    newest = PolicyVersion.objects.filter(tenant_id=actor.tenant, policy_id=policy.id).order_by("-number").first()
    if in_force is not None:
        PolicyVersion.objects.filter(id=in_force.id).update(state="retired")
    version = PolicyVersion(
        tenant_id=actor.tenant,
        policy_id=policy.id,
        number=1 if newest is None else newest.number + 1,
        rules=document.document(),
        digest=bytes.fromhex(document.digest()),
        state="active",
        created_at=now,
    )
    version.save(force_insert=True)
    _move_catalogue(actor)
    append(
        [
            Event(
                actor=actor,
                action=Action.POLICY_PUBLISHED,
                target_kind="policyversion",
                target_id=version.id,
                digest=bytes(version.digest),
                numbers={"number": version.number},
            )
        ]
    )
    changed = () if newest is None else _changed_policy_fields(policy_document(newest.rules), document)
    return Published(document.name, version.number, "created" if newest is None else "changed", changed)


def _lock_catalogue(actor: Actor) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1 FROM tenants_tenant WHERE id = %s FOR NO KEY UPDATE", [actor.tenant])


def _move_catalogue(actor: Actor) -> None:
    Tenant.objects.filter(id=actor.tenant).update(catalogue_no=F("catalogue_no") + 1)
