"""The endpoints of matters and holds: placing for programs with the scope `admin`; releasing is for people."""

from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from memory import subjects
from memory.contracts import parse
from policies.approvals import Act
from policies.models import Attribute, DecisionRequest
from retention import holds, matters
from retention.api.base import Governing
from retention.api.hold_schema import (
    CloseMatterBody,
    CoveredAnswer,
    HoldAnswer,
    HoldBody,
    HoldsPage,
    HoldsQuery,
    MatterAnswer,
    MatterBody,
    MattersPage,
    MattersQuery,
    RefusedPage,
    ReleaseBody,
    ScopeBody,
)
from retention.matters import Target
from retention.models import Hold, HoldScope, Matter, RefusedEnding
from tenants.actors import Scope
from tenants.api.describe import ID, described
from tenants.errors import FieldError, Refused
from tenants.identity import uuid_or_missing
from tenants.isolation import Role, borrowed


class Matters(Governing):
    """Legal matters."""

    asks = MattersQuery

    @described("read_matters", MattersPage, query=MattersQuery)
    def get(self, request: Request) -> Response:
        asked: MattersQuery = self.asked()
        shown, following = self.page(Matter.objects.all(), asked.cursor, asked.limit)
        return Response({"results": list(map(matter_json, shown)), "next": following, "previous": None})

    @described("open_matter", {201: MatterAnswer, 200: MatterAnswer}, body=MatterBody)
    def post(self, request: Request) -> Response:
        """Open a matter; the same reference and reason again is the same matter."""
        body = parse(MatterBody, request.data)
        kept = self.earlier()
        if kept is None:
            matter, new = matters.open_matter(self.actor, body.reference, body.reason, now=self.now)
            kept = self.keep(matter.id, created=new)
        return Response(matter_json(Matter.objects.get(id=kept.id)), status=kept.status)


class MatterById(Governing):
    """One matter."""

    scope = {"GET": Scope.ADMIN}

    @described("read_matter", MatterAnswer, path=ID)
    def get(self, request: Request, id: str) -> Response:
        return Response(matter_json(self.one(Matter, id)))


class CloseMatter(Governing):
    """Closing a matter whose holds are all released."""

    scope = {"POST": Scope.ADMIN}

    @described("close_matter", MatterAnswer, body=CloseMatterBody, path=ID)
    def post(self, request: Request, id: str) -> Response:
        matter = uuid_or_missing(id)
        parse(CloseMatterBody, request.data)
        kept = self.earlier()
        if kept is None:
            kept = self.keep(matters.close_matter(self.actor, matter, now=self.now).id, created=False)
        return Response(matter_json(Matter.objects.get(id=kept.id)))


class Holds(Governing):
    """Holds: what may not end."""

    asks = HoldsQuery

    @described("read_holds", HoldsPage, query=HoldsQuery)
    def get(self, request: Request) -> Response:
        asked: HoldsQuery = self.asked()
        found = Hold.objects.all()
        if asked.matter is not None:
            found = found.filter(matter_id=asked.matter)
        if asked.state is not None:
            found = found.filter(state=asked.state)
        shown, following = self.page(found, asked.cursor, asked.limit)
        return Response({"results": holds_json(shown), "next": following, "previous": None})

    @described("place_hold", {201: HoldAnswer, 200: (HoldAnswer, CoveredAnswer)}, body=HoldBody)
    def post(self, request: Request) -> Response:
        """Place a hold: nothing that fits one of its scopes ends from then on. With `dry_run`, count what it would cover."""
        body = parse(HoldBody, request.data)
        if body.dry_run:
            return Response({"covers": matters.covered(self.actor.tenant, self._targets(body.scopes))})
        # Before every other lock.
        holds.take(self.actor.tenant)
        kept = self.earlier()
        if kept is None:
            targets = self._targets(body.scopes)
            hold = matters.place(self.actor, body.matter, targets, now=self.now)
            kept = self.keep(hold.id, created=True)
        return Response(holds_json([Hold.objects.get(id=kept.id)])[0], status=kept.status)

    def _targets(self, scopes: Sequence[ScopeBody]) -> list[Target]:
        tenant = self.actor.tenant
        with borrowed(Role.WRITER, back_to=Role.STAFF):
            named = subjects.ids_of(tenant, {each.subject for each in scopes if each.subject is not None})
        attributes = dict(
            Attribute.objects.filter(
                tenant_id=tenant, name__in={each.attribute for each in scopes if each.attribute is not None}
            ).values_list("name", "id")
        )
        return [_target(place, each, named, attributes) for place, each in enumerate(scopes)]


class HoldById(Governing):
    """One hold."""

    scope = {"GET": Scope.ADMIN}

    @described("read_hold", HoldAnswer, path=ID)
    def get(self, request: Request, id: str) -> Response:
        return Response(holds_json([self.one(Hold, id)])[0])


class ProposeRelease(Governing):
    """Proposing to release a hold."""

    scope = {"POST": Scope.ADMIN}

    @described("propose_release", {202: HoldAnswer}, body=ReleaseBody, path=ID)
    def post(self, request: Request, id: str) -> Response:
        """Propose to release a hold. Nothing is released by it: a privacy officer asks, and another one decides."""
        hold = uuid_or_missing(id)
        parse(ReleaseBody, request.data)
        kept = self.earlier()
        if kept is None:
            kept = self.keep(matters.propose_release(self.actor, hold, now=self.now).id, created=False)
        return Response(holds_json([Hold.objects.get(id=kept.id)])[0], status=202)


class Refusals(Governing):
    """What a hold refused."""

    scope = {"GET": Scope.ADMIN}
    asks = MattersQuery

    @described("read_refused_endings", RefusedPage, query=MattersQuery, path=ID)
    def get(self, request: Request, id: str) -> Response:
        """Endings that the hold refused: of which record, by which act, how often."""
        asked: MattersQuery = self.asked()
        hold = self.one(Hold, id)
        shown, following = self.page(RefusedEnding.objects.filter(hold_id=hold.id), asked.cursor, asked.limit)
        return Response(
            {
                "results": [
                    {
                        "record": {"kind": each.record_kind, "id": each.record_id},
                        "act": each.act,
                        "times": each.times,
                        "first_at": each.first_at,
                        "last_at": each.last_at,
                    }
                    for each in shown
                ],
                "next": following,
                "previous": None,
            }
        )


def matter_json(matter: Matter) -> dict[str, Any]:
    """Return a matter as it stands."""
    return {
        "id": matter.id,
        "reference": matter.reference,
        "reason": matter.reason,
        "state": matter.state,
        "opened_at": matter.opened_at,
        "closed_at": matter.closed_at,
    }


def holds_json(found: Iterable[Hold]) -> list[dict[str, Any]]:
    """Return holds as they stand, with their scopes."""
    listed = list(found)
    ids = [each.id for each in listed]
    asked = set(
        DecisionRequest.objects.filter(
            target_id__in=ids, act=Act.RELEASE_HOLD.value, state__in=("pending", "approved")
        ).values_list("target_id", flat=True)
    )
    scopes: dict[UUID, list[dict[str, Any]]] = {each: [] for each in ids}
    for scope in HoldScope.objects.select_related("attribute").filter(hold_id__in=ids).order_by("id"):
        scopes[scope.hold_id].append(_scope_json(scope))
    return [
        {
            "id": hold.id,
            "matter": hold.matter_id,
            "state": hold.state,
            "release": "released"
            if hold.state == "released"
            else "asked"
            if hold.id in asked
            else "none"
            if hold.proposed_at is None
            else "proposed",
            "placed_at": hold.placed_at,
            "released_at": hold.released_at,
            "scopes": scopes[hold.id],
        }
        for hold in listed
    ]


def _scope_json(scope: HoldScope) -> dict[str, Any]:
    return {
        "record": None if scope.record_id is None else {"kind": scope.record_kind, "id": scope.record_id},
        "subject": scope.subject_id,
        "attribute": None if scope.attribute is None else scope.attribute.name,
        "session_id": scope.session_id,
        "writer": scope.writer_id,
        "recorded_from": scope.recorded_from,
        "recorded_until": scope.recorded_until,
    }


def _target(place: int, scope: ScopeBody, named: dict[str, UUID], attributes: dict[str, UUID]) -> Target:
    for name, known in (("subject", named), ("attribute", attributes)):
        wanted = getattr(scope, name)
        if wanted is not None and wanted not in known:
            raise Refused("hold_refused", errors=[FieldError(f"scopes[{place}].{name}", "unknown")])
    return Target(
        record_kind=None if scope.record is None else scope.record.kind,
        record_id=None if scope.record is None else scope.record.id,
        subject_id=None if scope.subject is None else named[scope.subject],
        attribute_id=None if scope.attribute is None else attributes[scope.attribute],
        session_id=scope.session_id,
        writer_id=scope.writer,
        recorded_from=scope.recorded_from,
        recorded_until=scope.recorded_until,
    )
