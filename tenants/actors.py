"""Who acts. Every door takes an `Actor`; nothing below a face looks for one in the air."""

from dataclasses import dataclass, field
from enum import StrEnum
from uuid import UUID


class ActorKind(StrEnum):
    """The four kinds of actor that audit entries and rows name."""

    AGENT = "agent"
    PERSON = "person"
    JOB = "job"
    OPERATOR = "operator"


class Scope(StrEnum):
    """What an agent's key may do."""

    READ = "read"
    WRITE = "write"
    IMPORT = "import"
    PROPOSE = "propose"
    ADMIN = "admin"


class MemberRole(StrEnum):
    """What a person may do inside one tenant (design, section 9)."""

    REVIEWER = "reviewer"
    PRIVACY_OFFICER = "privacy_officer"
    APPROVER = "approver"
    TENANT_ADMIN = "tenant_admin"
    AUDITOR = "auditor"


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """Whoever acts now, within one tenant.

    `clearance` is the highest class (0 public to 3 restricted) that the actor may see; `trust` orders the sayings of
    different writers; `purposes` are what the actor may use memory for.
    """

    kind: ActorKind
    id: UUID
    tenant: UUID
    clearance: int = 0
    trust: int = 0
    scopes: frozenset[Scope] = field(default_factory=frozenset)
    purposes: frozenset[str] = field(default_factory=frozenset)

    def may(self, scope: Scope) -> bool:
        """Whether the actor holds `scope`. A scope implies no other."""
        return scope in self.scopes
