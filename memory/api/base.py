"""What the endpoints of memory share: how a request may be repeated, and how an outcome is told."""

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Literal
from uuid import UUID

from rest_framework.response import Response

from memory import extracting, recall, remember
from memory.contracts import Body, RetractBody, parse
from memory.outcomes import (
    Asked,
    ConsentKept,
    Denied,
    EpisodeKept,
    Outcome,
    Repeat,
    Retracted,
    RowKept,
    TermEnded,
    Written,
)
from tenants.api.base import GovernedView
from tenants.errors import Clash, Forbidden, Malformed, Missing, Problem, Refused
from tenants.identity import new_id
from tenants.isolation import Role, assume, tenant_transaction

_PROBLEMS: dict[int, type[Problem]] = {400: Malformed, 403: Forbidden, 409: Clash, 422: Refused}


class MemoryView(GovernedView):
    """An endpoint in front of a door of memory."""

    #: The query of GET, parsed into `self.asked`.
    asks: ClassVar[type[Body]] = Body

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.query = frozenset(cls.asks.model_fields)

    def asked(self) -> Any:
        """Return the query as the endpoint's `asks`. Raises `Malformed`."""
        return parse(self.asks, self.parameters)

    def repeat(self) -> Repeat | None:
        """Return what identifies this request should it come again; None without an idempotency key."""
        key = self.idempotency_key()
        if key is None:
            return None
        # The route is a pattern: what the path fills in is part of what is asked.
        filled = "\n".join(str(value) for value in self.kwargs.values())
        # The same request in other spelling (order of fields, spaces) is the same request.
        body = json.dumps(self.request.data, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return Repeat(key, f"{self.route}\n{filled}", body.encode("utf-8"))

    def taken_back(self, kind: Literal["fact", "evidence"], target: UUID, body: RetractBody) -> Response:
        """Have a fact or a piece of evidence taken back; what is not there is answered so, and that it was asked recorded."""
        named = {kind: target}
        try:
            outcome = remember.retract(
                self.actor,
                fact=named.get("fact"),
                evidence=named.get("evidence"),
                reason=body.reason,
                recorded_at=body.recorded_at,
                repeat=self.repeat(),
            )
        except Missing as missing:
            response = self.handle_exception(missing)
        else:
            return self.told(outcome)
        response.refusal = partial(remember.record_absence, self.actor, kind, target)  # type: ignore[attr-defined]
        return response

    def told(self, outcome: Outcome) -> Response:
        """Answer with what one act came to, its fact as it stands now."""
        if isinstance(outcome, Denied):
            return self.refused(outcome)
        assert not isinstance(outcome, ConsentKept | RowKept | TermEnded)
        data = outcome_json(outcome, self._facts([outcome]))
        return Response({**data, "receipt": outcome.receipt}, status=outcome.status)

    def told_all(self, outcomes: Sequence[Outcome]) -> Response:
        """Answer with what each act of a batch came to, in its place."""
        facts = self._facts(outcomes)
        results = [
            {"index": place, "status": each.status, **outcome_json(each, facts, place=place)}
            for place, each in enumerate(outcomes)
        ]
        # One receipt for the whole call: every outcome names it.
        return Response({"results": results, "receipt": getattr(outcomes[0], "receipt", None)})

    def refused(self, denied: Denied) -> Response:
        """Answer with a problem document, and have the refusal recorded once this transaction is undone."""
        denied = replace(denied, receipt=new_id())
        kind = _PROBLEMS.get(denied.status, Refused)
        response = self.handle_exception(kind(denied.code, errors=denied.errors))
        response.data.update(reasons=list(denied.reasons), rule=denied.rule, receipt=denied.receipt)
        response.refusal = partial(remember.record_refusal, self.actor, denied)  # type: ignore[attr-defined]
        return response

    def drawn_afterwards(self, episode: UUID, *, status: int | None = None, **more: Any) -> Response:
        """Answer, once this transaction is committed, with what drawing from the episode came to.

        202 where it waits to be tried again, unless `status` says what the request itself came to.
        """

        def afterwards() -> Response:
            actor = self.actor
            extracting.draw(actor.tenant, episode)
            with tenant_transaction(
                Role.AGENT, tenant=actor.tenant, clearance=actor.clearance, actor=actor.id, durable=False
            ):
                drawn = extracting.told(actor, episode)
            waits = drawn["extraction"]["state"] == "pending"
            return Response({"id": episode, **drawn, **more}, status=status or (202 if waits else 200))

        response = Response({}, status=200)
        response.afterwards = afterwards  # type: ignore[attr-defined]
        return response

    def assume_reader(self) -> None:
        """Go on as the agent that reads: what a writer may see of what it wrote is that role's to say."""
        actor = self.actor
        assume(Role.AGENT, tenant=actor.tenant, clearance=actor.clearance, actor=actor.id)

    def _facts(self, outcomes: Sequence[Outcome]) -> dict[UUID, dict[str, Any]]:
        wanted = {each.fact for each in outcomes if isinstance(each, Written) and not each.blind and each.fact}
        if not wanted:
            return {}
        self.assume_reader()
        return recall.facts_by_id(self.actor, sorted(wanted))


def outcome_json(outcome: Outcome, facts: dict[UUID, dict[str, Any]], *, place: int | None = None) -> dict[str, Any]:
    """Return what one act came to, without its receipt. Nothing where the writer may not know (a blind receipt)."""
    if isinstance(outcome, Denied):
        prefix = "" if place is None else f"items[{place}]"
        return {
            "code": outcome.code,
            "errors": [{"path": _joined(prefix, each.path), "code": each.code} for each in outcome.errors],
            "reasons": list(outcome.reasons),
            "rule": outcome.rule,
        }
    if isinstance(outcome, Written):
        if outcome.blind:
            return {}
        fact = None if outcome.fact is None else facts.get(outcome.fact)
        reasons = list(outcome.reasons)
        return {"change": outcome.change, "fact": fact, "evidence": outcome.evidence, "reasons": reasons}
    if isinstance(outcome, Asked):
        if outcome.blind:
            return {}
        return {"candidate": outcome.candidate, "verdict": outcome.verdict, "reasons": list(outcome.reasons)}
    if isinstance(outcome, Retracted):
        return {"evidence": list(outcome.evidence)}
    assert isinstance(outcome, EpisodeKept)
    return {"id": outcome.id, **extracting.untouched(outcome.extraction, outcome.code), **screened(outcome)}


def screened(kept: EpisodeKept) -> dict[str, Any]:
    """Return what detection made of an episode."""
    return {"replaced": kept.replaced, "detected": list(kept.detected), "quarantined": kept.quarantined}


def explained_json(explained: remember.Explained) -> dict[str, Any]:
    """Return a verdict that was only asked about."""
    sensitivity = explained.sensitivity
    return {
        "verdict": explained.verdict,
        "reasons": list(explained.reasons),
        "rule": explained.rule,
        "policy_version": explained.policy_version,
        "code": explained.code,
        "errors": [{"path": each.path, "code": each.code} for each in explained.errors],
        "sensitivity": None if sensitivity is None else sensitivity.label,
        "basis": explained.basis,
        "expires_at": explained.expires_at,
        "expiry_rule": explained.expiry_rule,
        "review_at": explained.review_at,
        "confirm_by": explained.confirm_by,
    }


def _joined(prefix: str, path: str) -> str:
    if not prefix or path.startswith(prefix):
        return path
    return f"{prefix}.{path}" if path else prefix
