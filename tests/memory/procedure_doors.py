"""Procedures as tests use them: an agent and people who propose, decide and take back, each act in a transaction of its own."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from django.db import DatabaseError, connection

from memory import promotion
from memory.contracts import ProcedureVersionBody, parse
from memory.models import ProcedureVersion
from memory.outcomes import Proposed, Repeat
from policies.approvals import Answer
from policies.models import DecisionRequest
from tenants.actors import Actor, MemberRole
from tenants.isolation import Role, tenant_transaction
from tenants.models import AuditEvent
from tests.organisation import Organisation, Person, Registered

TEST = {"reference": "run-17", "result": "passed", "cases": 12, "passed": 12}


def now() -> datetime:
    return datetime.now(UTC)


class Procedures:
    """A tenant with an agent that proposes, two approvers, and somebody who only reviews."""

    def __init__(self, organisation: Organisation) -> None:
        self.organisation = organisation
        self.id = organisation.id
        self.agent = organisation.agent("concierge")
        self.approver = organisation.person(MemberRole.APPROVER)
        self.other = organisation.person(MemberRole.APPROVER)
        self.reviewer = organisation.person(MemberRole.REVIEWER)

    def actor(self, who: Person | Registered | Actor) -> Actor:
        return who if isinstance(who, Actor) else who.actor

    @contextmanager
    def writing(self, who: Person | Registered | Actor) -> Iterator[Actor]:
        actor = self.actor(who)
        with tenant_transaction(Role.WRITER, tenant=self.id, clearance=actor.clearance, actor=actor.id):
            yield actor

    @contextmanager
    def acting(self, who: Person | Registered | Actor) -> Iterator[Actor]:
        actor = self.actor(who)
        with tenant_transaction(Role.STAFF, tenant=self.id, clearance=3, actor=actor.id):
            yield actor

    def body(self, text: str = "Ask for the order number first.", **more: Any) -> ProcedureVersionBody:
        return parse(ProcedureVersionBody, {"body": text, "test": TEST, **more})

    def propose(
        self,
        text: str = "Ask for the order number first.",
        *,
        name: str = "refunds",
        by: Any = None,
        repeat: Repeat | None = None,
        **more: Any,
    ) -> Proposed:
        with self.writing(by or self.agent) as actor:
            return promotion.propose(actor, name, self.body(text, **more), now=now(), repeat=repeat)

    def version(self, version: UUID) -> ProcedureVersion:
        with self.acting(self.other):
            return ProcedureVersion.objects.get(id=version)

    def state(self, version: UUID) -> str:
        return str(self.version(version).state)

    def request(self, version: UUID) -> DecisionRequest:
        with self.acting(self.other):
            return DecisionRequest.objects.filter(target_id=version).order_by("-requested_at").get()

    def decide(
        self, version: UUID, answer: Answer = Answer.APPROVE, *, by: Any = None, shown: bytes | None = None
    ) -> ProcedureVersion:
        shown = shown or bytes(self.version(version).digest)
        with self.acting(by or self.approver) as actor:
            return promotion.decide(actor, version, answer, shown=shown, reason="other", now=now())[0]

    def activate(self, version: UUID, *, by: Any = None) -> ProcedureVersion:
        shown = bytes(self.version(version).digest)
        with self.acting(by or self.approver) as actor:
            return promotion.activate(actor, version, shown=shown, now=now())

    def activate_at(self, version: UUID, at: datetime | None, *, by: Any = None) -> ProcedureVersion:
        shown = bytes(self.version(version).digest)
        with self.acting(by or self.approver) as actor:
            return promotion.activate_at(actor, version, at, shown=shown, now=now())

    def roll_back(self, version: UUID, *, by: Any = None) -> ProcedureVersion:
        shown = bytes(self.version(version).digest)
        with self.acting(by or self.approver) as actor:
            return promotion.roll_back(actor, version, shown=shown, reason="harmful", now=now())

    def promoted(self, text: str = "Ask for the order number first.", **more: Any) -> UUID:
        """Propose a version, approve it and make it active; return it."""
        version = self.propose(text, **more).version
        self.decide(version)
        self.activate(version)
        return version

    def read(self, name: str = "refunds", *, by: Registered | None = None, scope: str | None = None) -> dict[str, Any]:
        return promotion.active((by or self.agent).actor, name, scope=scope)

    def audited(self, *actions: str) -> list[AuditEvent]:
        with self.acting(self.other) as actor:
            return list(AuditEvent.objects.filter(chain=actor.tenant, action__in=actions).order_by("seq"))


class _Undone(Exception):
    pass


def refused(role: Role, tenant: UUID, actor: UUID | None, *statements: tuple[str, tuple[Any, ...]]) -> str | None:
    """Return the SQLSTATE with which raw SQL of a role is refused, at once or at the commit; None, and undone, else."""
    try:
        with tenant_transaction(role, tenant=tenant, clearance=3, actor=actor):
            with connection.cursor() as cursor:
                for statement, parameters in statements:
                    cursor.execute(statement, parameters)
                cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
                # Waited for: a door's statements travel without waiting for each.
                cursor.execute("SELECT 1")
                cursor.fetchone()
            raise _Undone
    except DatabaseError as error:
        return str(getattr(error.__cause__, "sqlstate", None))
    except _Undone:
        return None
