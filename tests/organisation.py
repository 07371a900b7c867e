"""A tenant of a test's own, made through the doors: its agents with their keys, its people."""

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from django.test import Client

from tenants.actors import Actor, ActorKind, MemberRole, Scope
from tenants.isolation import Role, tenant_transaction
from tenants.models import AgentKey
from tenants.registry import CLEARANCES, OPERATOR, create_agent, create_member, create_tenant, issue_key

STARTER = Path(__file__).resolve().parent.parent / "policies" / "starter.json"
PASSWORD = "correct-horse-battery"


class Api(Client):
    """A client that sends and expects JSON, with an agent's key."""

    def __init__(self, key: str = "") -> None:
        super().__init__(headers={"Authorization": f"Api-Key {key}"} if key else {})

    def send(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        """Send `body` as JSON (bytes and text as they are); `idempotency_key="k"` becomes `Idempotency-Key: k`."""
        raw = body if isinstance(body, bytes | str) else b"" if body is None else json.dumps(body)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.generic(method, path, raw, content_type="application/json", headers=named)


@dataclass(frozen=True)
class Registered:
    """An agent, as an actor and by its key."""

    actor: Actor
    key: str
    row: AgentKey
    name: str

    @property
    def api(self) -> Api:
        return Api(self.key)


@dataclass(frozen=True)
class Person:
    """A member, as an actor and by the name and password to sign in with."""

    actor: Actor
    username: str
    password: str

    def signed_in(self) -> Client:
        client = Client()
        answer = client.post("/admin/login/", {"username": self.username, "password": self.password})
        assert answer.status_code == 302, answer.content
        return client


@dataclass
class Organisation:
    """A tenant, and whoever a test lets into it."""

    id: UUID
    slug: str
    agents: dict[str, Registered] = field(default_factory=dict)

    def agent(
        self,
        name: str = "",
        *,
        clearance: str = "restricted",
        trust: int = 50,
        scopes: frozenset[Scope] = frozenset(Scope),
        purposes: tuple[str, ...] = ("support",),
        expires_at: datetime | None = None,
    ) -> Registered:
        """Register an agent with a key."""
        name = name or f"agent-{uuid4().hex[:8]}"
        now = datetime.now(UTC)
        level = CLEARANCES.index(clearance)
        with tenant_transaction(Role.FRONT, tenant=self.id):
            agent = create_agent(self.id, name, clearance=level, trust=trust, purposes=purposes, by=OPERATOR, now=now)
            issued = issue_key(agent, scopes=scopes, expires_at=expires_at, by=OPERATOR, now=now)
        actor = Actor(
            kind=ActorKind.AGENT,
            id=agent.id,
            tenant=self.id,
            clearance=level,
            trust=trust,
            scopes=scopes,
            purposes=frozenset(purposes),
        )
        self.agents[name] = Registered(actor, issued.text, issued.key, name)
        return self.agents[name]

    def person(self, *roles: MemberRole, username: str = "") -> Person:
        """Make a member with `roles`, under a name that nobody has where none is given."""
        username = username or f"person-{uuid4().hex[:8]}"
        with tenant_transaction(Role.FRONT, tenant=self.id):
            for number, role in enumerate(roles):
                joined = create_member(
                    self.id,
                    username,
                    role,
                    password=None if number else PASSWORD,
                    by=OPERATOR,
                    now=datetime.now(UTC),
                )
        actor = Actor(kind=ActorKind.PERSON, id=joined.membership.user_id, tenant=self.id, clearance=3)
        return Person(actor, username, PASSWORD)


def new_organisation(*, with_policy: bool = True) -> Organisation:
    """Create a tenant, with the starter policy in force unless told otherwise."""
    now = datetime.now(UTC)
    with tenant_transaction(Role.FRONT, tenant=None):
        tenant = create_tenant(f"t-{uuid4().hex[:16]}", by=OPERATOR, now=now)
    if with_policy:
        from policies.publishing import publish_policy
        from policies.rules import policy_document

        actor = Actor(kind=ActorKind.OPERATOR, id=OPERATOR.id, tenant=tenant.id)
        with tenant_transaction(Role.STAFF, tenant=tenant.id, actor=actor.id):
            publish_policy(actor, policy_document(json.loads(STARTER.read_text(encoding="utf-8"))), now=now)
    return Organisation(tenant.id, tenant.slug)
