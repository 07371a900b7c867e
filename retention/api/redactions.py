"""The endpoints of redaction: proposing for programs with the scope `admin`; deciding is for people."""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from memory.contracts import parse
from memory.outcomes import RowKept
from retention import holds, redaction
from retention.api.base import Governing
from retention.api.redaction_schema import (
    ApplyBody,
    RedactionAnswer,
    RedactionBody,
    RedactionPreview,
    RedactionsPage,
    RedactionsQuery,
    WithdrawRedactionBody,
)
from retention.models import RedactionRequest
from retention.redaction import Kind, Pick
from retention.strategies import Strategy
from tenants.actors import Scope
from tenants.api.describe import ID, described
from tenants.errors import Clash
from tenants.identity import uuid_or_missing


class Redactions(Governing):
    """Proposals to take content out."""

    asks = RedactionsQuery

    @described("read_redactions", RedactionsPage, query=RedactionsQuery)
    def get(self, request: Request) -> Response:
        asked: RedactionsQuery = self.asked()
        found = RedactionRequest.objects.all()
        if asked.state is not None:
            found = found.filter(state=asked.state)
        shown, following = self.page(found, asked.cursor, asked.limit)
        return Response({"results": redactions_json(shown), "next": following, "previous": None})

    @described(
        "propose_redaction", {201: RedactionAnswer, 200: (RedactionAnswer, RedactionPreview)}, body=RedactionBody
    )
    def post(self, request: Request) -> Response:
        """Propose to redact: what is named is hidden from agents at once. With `dry_run`, say what would follow."""
        body = parse(RedactionBody, request.data)
        picks = [
            Pick(
                kind=Kind(each.kind),
                target=each.id,
                strategy=Strategy(each.strategy),
                fields=tuple(each.fields),
                spans=tuple((first, after) for first, after in each.spans),
            )
            for each in body.items
        ]
        if body.dry_run:
            return Response(redaction.preview(self.actor, picks).as_json())
        # Before every other lock.
        holds.share(self.actor.tenant)
        kept = self.earlier()
        if kept is None:
            asked = redaction.propose(self.actor, picks, reason=body.reason, now=self.now)
            kept = self.keep(asked.id, created=True)
        return self.told(kept)

    def told(self, kept: RowKept) -> Response:  # type: ignore[override]
        return Response(redactions_json([RedactionRequest.objects.get(id=kept.id)])[0], status=kept.status)


class RedactionById(Governing):
    """One proposal."""

    scope = {"GET": Scope.ADMIN}

    @described("read_redaction", RedactionAnswer, path=ID)
    def get(self, request: Request, id: str) -> Response:
        return Response(redactions_json([self.one(RedactionRequest, id)])[0])


class AskToApply(Governing):
    """Asking for a proposal to be applied."""

    scope = {"POST": Scope.ADMIN}

    @described("apply_redaction", {202: RedactionAnswer}, body=ApplyBody, path=ID)
    def post(self, request: Request, id: str) -> Response:
        """Ask for a proposal to be applied. Nothing is taken out by it: it waits for a privacy officer, as it did before."""
        parse(ApplyBody, request.data)
        found = self.one(RedactionRequest, id)
        if found.state != "required":
            raise Clash("already_decided")
        return Response(redactions_json([found])[0], status=202)


class WithdrawRedaction(Governing):
    """Taking one's own proposal back."""

    scope = {"POST": Scope.ADMIN}

    @described("withdraw_redaction", RedactionAnswer, body=WithdrawRedactionBody, path=ID)
    def post(self, request: Request, id: str) -> Response:
        """Take one's own proposal back: what it hid shows again."""
        named = uuid_or_missing(id)
        parse(WithdrawRedactionBody, request.data)
        holds.share(self.actor.tenant)
        kept = self.earlier()
        if kept is None:
            kept = self.keep(redaction.withdraw(self.actor, named).id, created=False)
        return Response(redactions_json([RedactionRequest.objects.get(id=kept.id)])[0])


def redactions_json(found: Sequence[RedactionRequest]) -> list[dict[str, Any]]:
    """Return proposals as they stand, each with what was picked."""
    picks = redaction.picked(found)
    return [_json(each, picks) for each in found]


def _json(each: RedactionRequest, picks: Mapping[UUID, Sequence[Pick]]) -> dict[str, Any]:
    return {
        "id": each.id,
        "state": each.state,
        "reason": each.reason,
        "requested_at": each.requested_at,
        "cause": each.cause_id,
        "decided_at": each.decided_at,
        "decision_reason": each.decision_reason,
        "waits_for": "privacy_officer" if each.state == "required" else None,
        "items": [pick.as_json() for pick in picks.get(each.id, ())],
        "counts": each.counts,
        "certificate": each.certificate_id,
    }
