"""Members who draft, ask and decide, each act in a transaction of its own with the person in it."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import DatabaseError, connection

from policies import approvals, publishing
from policies.approvals import Act, Answer
from policies.definitions import definition
from policies.models import AttributeVersion, Decision, DecisionRequest, Delegation
from policies.rules import policy_document
from tenants.actors import Actor, MemberRole
from tenants.isolation import Role, tenant_transaction
from tenants.models import AuditEvent
from tests.organisation import STARTER, Organisation, Person

CHECKED, UNIQUE, FOREIGN, EMPTY = "23514", "23505", "23503", "23502"
FROZEN, FORBIDDEN = "23001", "42501"


def now() -> datetime:
    return datetime.now(UTC)


@contextmanager
def acting(person: Person | Actor) -> Iterator[Actor]:
    """A staff transaction with the person in it."""
    actor = person.actor if isinstance(person, Person) else person
    with tenant_transaction(Role.STAFF, tenant=actor.tenant, clearance=3, actor=actor.id):
        yield actor


class Two:
    """A tenant with one who drafts and two who may approve."""

    def __init__(self, organisation: Organisation) -> None:
        self.organisation = organisation
        self.drafter = organisation.person(MemberRole.APPROVER)
        self.approver = organisation.person(MemberRole.APPROVER)
        self.other = organisation.person(MemberRole.APPROVER)

    def draft(self, name: str = "city", by: Person | None = None, **given: Any) -> AttributeVersion:
        wanted = definition({"name": name, "schema": {"type": "string"}, **given})
        with acting(by or self.drafter) as actor:
            return publishing.draft_attribute(actor, wanted, now=now())

    def draft_policy(self, by: Person | None = None, **changes: Any) -> Any:
        document = policy_document({**json.loads(STARTER.read_text(encoding="utf-8")), **changes})
        with acting(by or self.drafter) as actor:
            return publishing.draft_policy(actor, document, now=now())

    def ask(self, version: Any, by: Person | None = None) -> DecisionRequest:
        act = Act.PUBLISH_ATTRIBUTE if isinstance(version, AttributeVersion) else Act.PUBLISH_POLICY
        with acting(by or self.drafter) as actor:
            return publishing.ask(actor, act, version.id, reason="new_need", now=now())

    def asked(self, name: str = "city", **given: Any) -> DecisionRequest:
        return self.ask(self.draft(name, **given))

    def ask_for(
        self, act: Act, target: UUID, digest: bytes, *, lasts: timedelta = approvals.LASTS, by: Any = None
    ) -> Any:
        with acting(by or self.drafter) as actor:
            wanted = approvals.Asked(act, "subject", target, digest)
            return approvals.ask(actor, wanted, reason="other", now=now(), lasts=lasts)

    def decide(
        self,
        request: DecisionRequest,
        answer: Answer = Answer.APPROVE,
        *,
        by: Person | None = None,
        shown: bytes | None = None,
        reason: str = "other",
    ) -> tuple[DecisionRequest, Decision]:
        with acting(by or self.approver) as actor:
            return publishing.decide(
                actor, request.id, answer, shown=shown or bytes(request.digest), reason=reason, now=now()
            )

    def hand_on(self, *, days: int = 7) -> Delegation:
        """Let the third hand the role to the second."""
        with acting(self.other) as actor:
            begins = now()
            return approvals.delegate(
                actor,
                self.approver.username,
                MemberRole.APPROVER,
                starts_at=begins,
                ends_at=begins + timedelta(days=days),
                now=begins,
            )

    def request(self, request: DecisionRequest) -> DecisionRequest:
        with acting(self.other):
            return DecisionRequest.objects.get(id=request.id)

    def state(self, version: Any) -> str:
        with acting(self.other):
            return str(type(version).objects.get(id=version.id).state)

    def audited(self, *actions: str) -> list[AuditEvent]:
        with acting(self.other) as actor:
            found = AuditEvent.objects.filter(chain=actor.tenant, action__in=actions)
            return list(found.order_by("seq"))


class _Undone(Exception):
    pass


def refused(
    person: Person | Actor | None, *statements: tuple[str, tuple[Any, ...]], tenant: UUID | None = None
) -> str | None:
    """Return the SQLSTATE with which raw SQL of the staff role is refused, at once or at the commit; None, and undone, else."""
    actor = person.actor if isinstance(person, Person) else person
    chosen = tenant if actor is None else actor.tenant
    try:
        with tenant_transaction(Role.STAFF, tenant=chosen, clearance=3, actor=None if actor is None else actor.id):
            with connection.cursor() as cursor:
                for statement, parameters in statements:
                    cursor.execute(statement, parameters)
                cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
            raise _Undone
    except DatabaseError as error:
        return str(getattr(error.__cause__, "sqlstate", None))
    except _Undone:
        return None


def refusal(person: Person | Actor | None, statement: str, *parameters: Any, tenant: UUID | None = None) -> str | None:
    """The same of one statement."""
    return refused(person, (statement, parameters), tenant=tenant)
