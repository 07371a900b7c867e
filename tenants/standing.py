"""Where a person stands: in which tenant they work now, and what they may do there."""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from tenants.actors import Actor, ActorKind, MemberRole
from tenants.models import PLATFORM, Membership, Tenant

#: The session's key for the tenant that was chosen.
CHOSEN = "tenant"
#: The session's key for why a provider's sign-in was refused, said once on the page of signing in.
REFUSED = "sso_refused"


@dataclass(frozen=True, slots=True)
class Choice:
    """A tenant that a person may work in."""

    tenant: UUID
    slug: str
    roles: frozenset[MemberRole]


@dataclass(frozen=True, slots=True)
class Standing:
    """A signed-in person in a tenant; `person` is None for somebody who has not signed in.

    `operator`: a superuser outside every tenant, who sees operators' pages and no tenant's rows.
    """

    person: UUID | None
    tenant: UUID | None
    slug: str
    roles: frozenset[MemberRole]
    choices: tuple[Choice, ...]
    operator: bool

    @property
    def actor(self) -> Actor:
        """The person as the actor of a door. Raises `LookupError` for somebody who has not signed in."""
        if self.person is None:
            raise LookupError("nobody has signed in")
        return Actor(kind=ActorKind.PERSON, id=self.person, tenant=self.tenant or PLATFORM, clearance=3)

    def is_one_of(self, *roles: MemberRole) -> bool:
        """Whether the person holds one of `roles` in the tenant."""
        return not self.roles.isdisjoint(roles)


NOBODY = Standing(None, None, "", frozenset(), (), False)


def standing_of(user: Any, chosen: str | None) -> Standing:
    """Return where `user` stands, given the tenant that the session remembers. Needs `Role.FRONT`.

    The only tenant there is needs no choosing; a choice that is no longer theirs is forgotten.
    """
    if not user.is_authenticated or not user.is_active or not user.is_staff:
        return NOBODY
    roles: dict[UUID, set[MemberRole]] = {}
    for tenant, role in Membership.objects.filter(user_id=user.id).values_list("tenant_id", "role"):
        roles.setdefault(tenant, set()).add(MemberRole(role))
    slugs = dict(Tenant.objects.filter(id__in=list(roles), state="active").order_by("slug").values_list("id", "slug"))
    choices = tuple(Choice(tenant, slug, frozenset(roles[tenant])) for tenant, slug in slugs.items())
    taken = next((choice for choice in choices if str(choice.tenant) == chosen), None)
    if taken is None and len(choices) == 1:
        taken = choices[0]
    operator = bool(user.is_superuser) and not choices
    if taken is None:
        return Standing(user.id, None, "", frozenset(), choices, operator)
    return Standing(user.id, taken.tenant, taken.slug, taken.roles, choices, operator)
