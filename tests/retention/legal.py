"""A tenant under legal hold: who opens matters, who places holds, who asks for release and who decides."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

from memory import rows
from policies.approvals import Answer
from policies.models import DecisionRequest
from retention import holds, matters
from retention.matters import Target
from retention.models import Hold
from tenants.actors import Actor, ActorKind, MemberRole
from tenants.isolation import Role, tenant_transaction
from tenants.models import PLATFORM
from tests.organisation import Organisation, Person
from tests.policies.two_people import acting


def place_raw(tenant: UUID, *scopes: dict[str, Any], by: UUID | None = None) -> UUID:
    """Place a hold by raw SQL of the staff role, as a page would; return its id."""
    matter, hold = uuid4(), uuid4()
    with tenant_transaction(Role.STAFF, tenant=tenant, clearance=3, actor=by or uuid4()):
        rows.execute(
            "INSERT INTO retention_matter (tenant_id, id, reference, reason, opened_by, opened_at)"
            " VALUES (%s, %s, %s, 'litigation', %s, now())",
            [tenant, matter, f"case-{matter.hex[:12]}", uuid4()],
        )
        rows.execute(
            "INSERT INTO retention_hold (tenant_id, id, matter_id, placed_by, placed_at) VALUES (%s, %s, %s, %s, now())",
            [tenant, hold, matter, uuid4()],
        )
        for scope in scopes:
            names = list(scope)
            rows.execute(
                f"INSERT INTO retention_holdscope (tenant_id, id, hold_id, {', '.join(names)})"
                f" VALUES (%s, %s, %s, {', '.join('%s' for _ in names)})",
                [tenant, uuid4(), hold, *scope.values()],
            )
    return hold


def job(tenant: UUID) -> Actor:
    """A job of the background."""
    return Actor(kind=ActorKind.JOB, id=PLATFORM, tenant=tenant)


@contextmanager
def ending(tenant: UUID) -> Iterator[None]:
    """An ending's transaction, with the lock that endings share."""
    with tenant_transaction(Role.WORKER, tenant=tenant):
        holds.share(tenant)
        yield


def held(tenant: UUID, kind: str, *ids: UUID) -> dict[UUID, list[UUID]]:
    """What is held of these."""
    with ending(tenant):
        return holds.held(tenant, kind, ids)


def free(
    tenant: UUID, kind: str, ids: Sequence[UUID], *, act: str = "compaction", by: Actor | None = None
) -> list[UUID]:
    """What may end of these."""
    with ending(tenant):
        return holds.free(tenant, kind, ids, actor=by or job(tenant), act=act)


def hold_of(tenant: UUID, hold: UUID) -> Hold:
    """One hold as it stands."""
    with tenant_transaction(Role.STAFF, tenant=tenant):
        return Hold.objects.get(id=hold)


class Officers:
    """A tenant with two privacy officers, a reviewer and an approver, acting through the doors of matters and holds."""

    def __init__(self, organisation: Organisation) -> None:
        self.organisation = organisation
        self.first, self.second = (organisation.person(MemberRole.PRIVACY_OFFICER) for _ in range(2))
        self.reviewer = organisation.person(MemberRole.REVIEWER)
        self.approver = organisation.person(MemberRole.APPROVER)

    def place(self, *targets: Target, by: Person | Actor | None = None, reference: str = "") -> UUID:
        """Open a matter and place a hold for it; return the hold's id."""
        with acting(by or self.first) as actor:
            matter, _ = matters.open_matter(actor, reference or f"case-{uuid4().hex[:12]}", "litigation", now=now())
        with acting(by or self.first) as actor:
            placed: UUID = matters.place(actor, matter.id, targets, now=now()).id
        return placed

    def ask(self, hold: UUID, *, by: Person | Actor | None = None) -> DecisionRequest:
        """Ask for its release."""
        with acting(by or self.first) as actor:
            return matters.ask_release(actor, hold, reason="matter_ended", now=now())

    def decide(
        self,
        asked: DecisionRequest,
        answer: Answer = Answer.APPROVE,
        *,
        by: Person | Actor | None = None,
        shown: bytes | None = None,
    ) -> DecisionRequest:
        """Decide on its release."""
        with acting(by or self.second) as actor:
            return matters.decide_release(
                actor, asked.id, answer, shown=shown or bytes(asked.digest), reason="other", now=now()
            )[0]

    def release(self, hold: UUID) -> None:
        """Release it, by two persons."""
        assert self.decide(self.ask(hold)).state == "done"


def now() -> datetime:
    """The instant of an act."""
    return datetime.now(UTC)
