"""A tenant in which content is taken out: who proposes, who applies, and what agents are answered meanwhile."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from retention import redaction
from retention.models import RedactionRequest
from retention.redaction import Kind, Pick
from retention.strategies import Strategy
from tenants.actors import Actor, MemberRole
from tenants.isolation import Role, tenant_transaction
from tests.memory.doors import Doors


class Redacting(Doors):
    """The doors of one tenant, with a reviewer who proposes and an officer who applies."""

    def __init__(self) -> None:
        super().__init__()
        self.reviewer = self.organisation.person(MemberRole.REVIEWER).actor
        self.officer = self.organisation.person(MemberRole.PRIVACY_OFFICER).actor
        self.publish(
            {
                "name": "contact",
                "schema": {
                    "type": "object",
                    "properties": {"mail": {"type": "string"}, "phone": {"type": "string"}},
                },
            },
            {"name": "born", "schema": {"type": "string", "format": "date"}},
        )

    def acting(self, actor: Actor) -> Any:
        """The transaction of a page."""
        return tenant_transaction(Role.STAFF, tenant=self.id, clearance=actor.clearance, actor=actor.id)

    def preview(self, *picks: Pick, by: Actor | None = None) -> redaction.Preview:
        """What redacting would change."""
        actor = by or self.reviewer
        with self.acting(actor):
            return redaction.preview(actor, picks)

    def propose(
        self, *picks: Pick, by: Actor | None = None, reason: str = "not_to_be_kept", shown: bytes | None = None
    ) -> RedactionRequest:
        """Propose, as a reviewer unless told."""
        actor = by or self.reviewer
        with self.acting(actor):
            return redaction.propose(actor, picks, reason=reason, now=datetime.now(UTC), shown=shown)

    def examine(self, request: RedactionRequest, *, by: Actor | None = None) -> redaction.Preview:
        """What applying would change now."""
        actor = by or self.officer
        with self.acting(actor):
            return redaction.examine(actor, request.id)

    def take_back(self, request: RedactionRequest, *, by: Actor | None = None) -> RedactionRequest:
        """Take a proposal back."""
        actor = by or self.reviewer
        with self.acting(actor):
            return redaction.withdraw(actor, request.id)

    def refuse(self, request: RedactionRequest, *, by: Actor | None = None) -> RedactionRequest:
        """Refuse a proposal."""
        actor = by or self.officer
        with self.acting(actor):
            return redaction.refuse(actor, request.id, reason="needed", now=datetime.now(UTC))

    def apply(
        self, request: RedactionRequest, *, by: Actor | None = None, shown: bytes | None = None
    ) -> redaction.Outcome:
        """Apply a proposal as it stands."""
        actor = by or self.officer
        digest = self.examine(request, by=actor).digest if shown is None else shown
        with self.acting(actor):
            return redaction.apply(actor, request.id, shown=digest, reason="checked", now=datetime.now(UTC))

    def redact(self, *picks: Pick) -> redaction.Outcome:
        """Propose and apply."""
        outcome = self.apply(self.propose(*picks))
        assert outcome.applied
        return outcome

    def evidence_of(self, fact: UUID) -> list[UUID]:
        """The evidence of a fact, oldest first."""
        return [row[0] for row in self.sql("SELECT id FROM memory_evidence WHERE fact_id = %s ORDER BY id", fact)]


def fact(target: UUID, strategy: Strategy = Strategy.NULL, *fields: str) -> Pick:
    """A fact, or fields of its value."""
    return Pick(kind=Kind.FACT, target=target, strategy=strategy, fields=fields)


def episode(target: UUID, *spans: tuple[int, int], strategy: Strategy = Strategy.NULL) -> Pick:
    """An episode, or spans of its text."""
    return Pick(kind=Kind.EPISODE, target=target, strategy=strategy, spans=spans)
