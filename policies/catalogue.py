"""What is in force in a tenant: its attributes and its write policy, compiled once a publication.

The cache is keyed by the tenant's `catalogue_no`, which every publication moves in its own transaction, so a process
never decides by rules older than the number it was asked for.
"""

import json
from collections import OrderedDict
from dataclasses import dataclass
from threading import Lock
from uuid import UUID

from django.db import connection

from policies.definitions import AttributeDefinition, definition
from policies.rules import PolicyDocument, policy_document
from policies.values import Compiled, compiled
from policies.vocabulary import Cardinality
from tenants.errors import Clash

_KEPT = 256


@dataclass(frozen=True, slots=True)
class AttributeInForce:
    """One attribute with the version in force; `values` makes its values canonical."""

    id: UUID
    version_id: UUID
    number: int
    definition: AttributeDefinition
    values: Compiled

    @property
    def name(self) -> str:
        """The attribute's name."""
        return self.definition.name

    @property
    def multi(self) -> bool:
        """Whether each of its values is a chain of its own."""
        return self.definition.cardinality is Cardinality.MULTI


@dataclass(frozen=True, slots=True)
class Catalogue:
    """A tenant's attributes by name and by id, and its policy, as of one publication."""

    number: int
    attributes: dict[str, AttributeInForce]
    by_id: dict[UUID, AttributeInForce]
    policy: PolicyDocument
    policy_version_id: UUID
    policy_version: str


_cache: OrderedDict[UUID, Catalogue] = OrderedDict()
_lock = Lock()


def catalogue(tenant: UUID) -> Catalogue:
    """Return what is in force in `tenant`, to be called in a transaction of that tenant.

    Raises `Clash("no_policy")` where no policy has been published: undecided means no.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT catalogue_no FROM tenants_tenant WHERE id = %s", [tenant])
        row = cursor.fetchone()
    if row is None:
        raise Clash("no_policy")
    return of_number(tenant, row[0])


def of_number(tenant: UUID, number: int) -> Catalogue:
    """Return what publication `number` of `tenant` put in force; as `catalogue`, with the number already read."""
    with _lock:
        held = _cache.get(tenant)
        if held is not None and held.number == number:
            _cache.move_to_end(tenant)
            return held
    loaded = _load(tenant, number)
    with _lock:
        _cache[tenant] = loaded
        _cache.move_to_end(tenant)
        while len(_cache) > _KEPT:
            _cache.popitem(last=False)
    return loaded


def _load(tenant: UUID, number: int) -> Catalogue:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT a.id, v.id, v.number, v.definition::text FROM policies_attributeversion v"
            " JOIN policies_attribute a ON a.tenant_id = v.tenant_id AND a.id = v.attribute_id"
            " WHERE v.tenant_id = %s AND v.state = 'active'",
            [tenant],
        )
        attributes = [_in_force(row) for row in cursor.fetchall()]
        cursor.execute(
            "SELECT v.id, p.name, v.number, v.rules::text FROM policies_policyversion v"
            " JOIN policies_policy p ON p.tenant_id = v.tenant_id AND p.id = v.policy_id"
            " WHERE v.tenant_id = %s AND v.state = 'active'",
            [tenant],
        )
        row = cursor.fetchone()
    if row is None:
        raise Clash("no_policy")
    version_id, name, version, rules = row
    return Catalogue(
        number=number,
        attributes={each.name: each for each in attributes},
        by_id={each.id: each for each in attributes},
        policy=policy_document(json.loads(rules)),
        policy_version_id=version_id,
        policy_version=f"{name}@{version}",
    )


def _in_force(row: tuple[UUID, UUID, int, str]) -> AttributeInForce:
    attribute_id, version_id, number, text = row
    parsed = definition(json.loads(text))
    return AttributeInForce(attribute_id, version_id, number, parsed, compiled(parsed.value_schema))
