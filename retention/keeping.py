"""How long a stored fact is kept: why so long, for a shorter time, for longer by a second person, and looked at again.

`explain` says which rule gave which date. Shortening is free, with a reason. Extending needs another person's approval, bound
to exactly the dates, and a day on which somebody looks again. Every door but `explain` runs in the caller's tenant
transaction under `Role.STAFF`; what moves dates is `memory.lifetimes`, and the database lets evidence be kept longer by an
approval that stands alone (`retention/migrations/0016_keeping.sql`).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Any
from uuid import UUID

from memory import lifetimes, rows
from policies import approvals
from policies.approvals import Act, Answer, Asked
from policies.catalogue import catalogue
from policies.models import Decision, DecisionRequest
from policies.rules import PolicyDocument, policy_document
from policies.vocabulary import Basis, Occasion, Sensitivity
from retention.certificates import canonical
from retention.models import LifetimeChange
from retention.requests import HANDLERS, require
from tenants.actors import Actor, ActorKind, Scope
from tenants.audit import Action, Event, append
from tenants.errors import Clash, FieldError, Forbidden, Missing, Refused
from tenants.identity import new_id
from tenants.isolation import Role, borrowed

#: Why something is kept for a shorter or a longer time. Codes, since words would be content.
REASONS = ("no_longer_needed", "subject_request", "policy_changed", "law", "still_needed", "other")

# why ------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Because:
    """Why one piece of evidence is kept until when: the rule and, where an occasion or an act gave the date, when that was."""

    evidence: UUID
    basis: str
    sensitivity: str
    written_at: datetime
    expires_at: datetime | None
    policy_version: str
    rule: str
    since: datetime | None
    standing: bool


@dataclass(frozen=True, slots=True)
class Kept:
    """Until when a fact is kept, and by which of its evidence."""

    fact: UUID
    basis: str
    expires_at: datetime | None
    review_at: datetime | None
    ended_by: str | None
    rule: str
    because: tuple[Because, ...]


_FACT = """
SELECT f.basis, f.expires_at, f.review_at, f.ended_by, f.subject_id FROM memory_fact f
WHERE f.tenant_id = %s::uuid AND f.id = %s::uuid
"""
_EVIDENCE = """
SELECT e.id, e.basis, e.sensitivity, e.written_at, e.expires_at, e.session_id, e.contract_ref, e.writer_id,
  e.retracted_at IS NULL, o.name || '@' || v.number, v.rules::text, c.withdrawn_at
FROM memory_evidence e
  JOIN policies_policyversion v ON v.tenant_id = e.tenant_id AND v.id = e.policy_version_id
  JOIN policies_policy o ON o.tenant_id = v.tenant_id AND o.id = v.policy_id
  LEFT JOIN policies_consent c ON c.tenant_id = e.tenant_id AND c.id = e.consent_id
WHERE e.tenant_id = %s::uuid AND e.fact_id = %s::uuid AND NOT e.is_end ORDER BY e.written_at, e.id
"""
_TERMS = """
SELECT t.kind, t.ref, t.ended_at, t.due_at, v.rules::text FROM memory_term t
  JOIN policies_policyversion v ON v.tenant_id = t.tenant_id AND v.id = t.policy_version_id
WHERE t.tenant_id = %s::uuid AND t.ref = ANY (%s::text[]) AND (t.subject_id IS NULL OR t.subject_id = %s::uuid)
"""


def explain(tenant: UUID, fact: UUID) -> Kept:
    """Return which rule gave a fact its date, evidence by evidence. Needs `Role.STAFF`. Raises `Missing`.

    Nothing of it was written down for this: what rules, occasions and acts say is worked out again and held against the
    date that is stored.
    """
    found = rows.fetch(_FACT, [tenant, fact])
    if not found:
        raise Missing
    basis, expires_at, review_at, ended_by, subject = found[0]
    said = rows.fetch(_EVIDENCE, [tenant, fact])
    refs = sorted({ref for row in said for ref in (row[5], row[6]) if ref is not None})
    terms = rows.fetch(_TERMS, [tenant, refs, subject]) if refs else []
    changes = LifetimeChange.objects.filter(tenant_id=tenant, fact_id=fact).exclude(done_at=None).order_by("-done_at")
    moved = {each.until: (each.act, each.done_at) for each in reversed(list(changes)) if each.until is not None}
    because = tuple(_because(row, terms, moved) for row in said)
    decisive = next((each for each in because if each.standing and each.expires_at == expires_at), None)
    rule = decisive.rule if decisive is not None else "indefinite" if expires_at is None else "kept_as_it_was"
    return Kept(fact, basis, expires_at, review_at, ended_by, rule, because)


def _because(
    row: Sequence[Any], terms: Sequence[Sequence[Any]], moved: Mapping[datetime, tuple[str, datetime | None]]
) -> Because:
    evidence, basis, level, written_at, expires_at, session, contract, _, standing, version, rules, withdrawn_at = row
    rule, since = why(
        Basis(basis),
        Sensitivity(level),
        written_at,
        expires_at,
        policy=policy_document(json.loads(rules)),
        occasions=[
            (
                Occasion.SESSION_CLOSED if kind == "session" else Occasion.CONTRACT_ENDED,
                ended_at,
                due,
                policy_document(json.loads(then)),
            )
            for kind, ref, ended_at, due, then in terms
            if ref == (session if kind == "session" else contract)
        ],
        moved=moved,
        withdrawn_at=withdrawn_at,
    )
    label = Sensitivity(level).label
    return Because(evidence, basis, label, written_at, expires_at, version, rule, since, standing)


def why(
    basis: Basis,
    level: Sensitivity,
    written_at: datetime,
    expires_at: datetime | None,
    *,
    policy: PolicyDocument,
    occasions: Sequence[tuple[Occasion, datetime, Sequence[datetime | None], PolicyDocument]] = (),
    moved: Mapping[datetime, tuple[str, datetime | None]] | None = None,
    withdrawn_at: datetime | None = None,
) -> tuple[str, datetime | None]:
    """Return the rule that gave a date, and when the occasion or the act was that did, where one did. Pure.

    In this order: no end at all; an act of a person or of the writer; a withdrawn consent; an occasion; the lifetime of the
    class on the basis; what counts from a writing after the occasion; else an earlier end that the writer asked for.
    """
    if expires_at is None:
        return "indefinite", None
    if moved and expires_at in moved:
        return moved[expires_at]
    if basis is Basis.CONSENT and withdrawn_at is not None and expires_at == withdrawn_at:
        return "consent_withdrawn", withdrawn_at
    for occasion, ended_at, due, then in occasions:
        if occasion.basis is basis and due[level] == expires_at:
            life = then.life_after(occasion, level)
            return f"{occasion.value}×{level.label}={'' if life is None else life.text}", ended_at
    life = policy.lifetime(basis, level)
    if life is not None and life.after(written_at) == expires_at:
        return f"{basis.value}×{level.label}={life.text}", None
    late = Occasion.of(basis)
    afterwards = None if late is None else policy.life_after(late, level)
    if late is not None and afterwards is not None and afterwards.after(written_at) == expires_at:
        return f"{late.value}×{level.label}={afterwards.text}", None
    return "asked", None


# shorter --------------------------------------------------------------------------------------------------------------

_LOCKED = """
SELECT f.key_id, f.expires_at, f.basis, f.sensitivity, f.review_at FROM memory_fact f
WHERE f.tenant_id = %s::uuid AND f.id = %s::uuid AND f.ended_at IS NULL
  AND (f.expires_at IS NULL OR f.expires_at > statement_timestamp())
"""
_SAID = """
SELECT e.id, e.expires_at, e.writer_id, e.quote_id, e.retracted_at IS NULL FROM memory_evidence e
WHERE e.tenant_id = %s::uuid AND e.fact_id = %s::uuid AND NOT e.is_end ORDER BY e.expires_at DESC NULLS FIRST, e.id
"""


@dataclass(frozen=True, slots=True)
class _Fact:
    key: UUID
    expires_at: datetime | None
    basis: str
    sensitivity: int
    review_at: datetime | None


def _fact(tenant: UUID, fact: UUID) -> _Fact:
    found = rows.fetch(_LOCKED, [tenant, fact])
    if not found:
        raise Missing
    return _Fact(*found[0])


def shorten(actor: Actor, fact: UUID, until: datetime, *, reason: str, now: datetime) -> None:
    """Let a fact be kept until an earlier instant, with everything that it rests on.

    A reviewer or a privacy officer may, and a program whose own sayings are all that stand for it. Raises `Missing`,
    `Forbidden`, `Refused` for a reason or an instant that is none, `Clash("not_shorter")`, `Clash("kept_without_end")` for what
    has no end (disposition ends it), and `Clash("in_progress")` while somebody writes on its key.
    """
    _require_reason(reason)
    with borrowed(Role.WORKER, back_to=Role.STAFF):
        held = _fact(actor.tenant, fact)
        said = rows.fetch(_SAID, [actor.tenant, fact])
    if actor.kind is ActorKind.AGENT:
        if not actor.may(Scope.WRITE) or any(standing and writer != actor.id for _, _, writer, _, standing in said):
            raise Forbidden("not_the_writer")
    else:
        require(actor, HANDLERS)
    if held.expires_at is None:
        raise Clash("kept_without_end")
    if until < now:
        raise Refused("lifetime_refused", errors=[FieldError("expires_at", "out_of_range")])
    if until >= held.expires_at:
        raise Clash("not_shorter")
    with borrowed(Role.WORKER, back_to=Role.STAFF):
        if held.key not in lifetimes.locked_keys(actor.tenant, [held.key]):
            raise Clash("in_progress")
        lifetimes.shorten_evidence(
            actor.tenant, [(evidence, until) for evidence, ends, *_ in said if ends and ends > until]
        )
    note(actor, fact, "shortened", until=until, reason=reason, now=now)
    append([_event(actor, Action.LIFETIME_SHORTENED, fact, reason)])


# longer ---------------------------------------------------------------------------------------------------------------


def ask_extension(
    actor: Actor, fact: UUID, until: datetime, *, review_at: datetime, reason: str, now: datetime
) -> DecisionRequest:
    """Ask for another person's approval to keep a fact until a later instant, and to look again before that.

    At most as long as the same would be kept if it were written now. Raises `Missing`, `Forbidden`, `Refused` for a reason or
    a date that is none, `Clash("not_longer")`, `Clash("kept_without_end")`, and what `approvals.ask` raises.
    """
    require(actor, HANDLERS)
    _require_reason(reason)
    held = _living(actor.tenant, fact)
    if held.expires_at is None:
        raise Clash("kept_without_end")
    if until <= held.expires_at:
        raise Clash("not_longer")
    life = catalogue(actor.tenant).policy.lifetime(Basis(held.basis), Sensitivity(held.sensitivity))
    if life is None or until > life.after(now):
        raise Refused("lifetime_refused", errors=[FieldError("expires_at", "out_of_range")])
    if not now < review_at <= until:
        raise Refused("lifetime_refused", errors=[FieldError("review_at", "out_of_range")])
    asked = _asked(fact, held.expires_at, until, review_at)
    question = approvals.ask(actor, asked, reason="other", now=now)
    note(actor, fact, "extended", until=until, review_at=review_at, reason=reason, question=question.id)
    return question


def decide_extension(
    actor: Actor, question: UUID, answer: Answer, *, shown: bytes, reason: str, now: datetime
) -> tuple[DecisionRequest, Decision]:
    """Decide on keeping a fact longer; approved, it is kept until then at once.

    Raises what `approvals.decide` raises, `Missing` for a question about anything else or a fact that has ended meanwhile, and
    `Clash("changed_since_shown")` where the fact has another end than the one that was asked about.
    """
    found = approvals.locked(actor.tenant, question)
    change = LifetimeChange.objects.filter(tenant_id=actor.tenant, question_id=question).first()
    if Act(found.act) is not Act.EXTEND_LIFETIME or change is None or change.until is None or change.review_at is None:
        raise Missing
    settled, decision = approvals.decide(actor, question, answer, shown=shown, reason=reason, now=now)
    if answer is not Answer.APPROVE:
        return settled, decision
    fact: UUID = change.fact_id
    held = _living(actor.tenant, fact)
    if held.expires_at is None:
        raise Clash("changed_since_shown")
    asked = _asked(fact, held.expires_at, change.until, change.review_at)
    if asked.digest != bytes(found.digest):
        raise Clash("changed_since_shown")
    with borrowed(Role.WORKER, back_to=Role.STAFF):
        if held.key not in lifetimes.locked_keys(actor.tenant, [held.key]):
            raise Clash("in_progress")
        lifetimes.extend_fact(actor.tenant, fact, change.until, change.review_at)
    settled = approvals.carry_out(actor, asked)
    change.done_at = now
    change.save(update_fields=["done_at"])
    append([_event(actor, Action.LIFETIME_EXTENDED, fact, change.reason, digest=asked.digest)])
    return settled, decision


def _living(tenant: UUID, fact: UUID) -> _Fact:
    with borrowed(Role.WORKER, back_to=Role.STAFF):
        return _fact(tenant, fact)


def _asked(fact: UUID, held_until: datetime, until: datetime, review_at: datetime) -> Asked:
    told = {
        "fact": str(fact),
        "from": held_until.timestamp().hex(),
        "until": until.timestamp().hex(),
        "review_at": review_at.timestamp().hex(),
    }
    return Asked(Act.EXTEND_LIFETIME, "fact", fact, sha256(canonical(told)).digest())


def pending(tenant: UUID, fact: UUID) -> tuple[LifetimeChange, DecisionRequest] | None:
    """Return what is asked about keeping a fact longer, where a question waits."""
    change = (
        LifetimeChange.objects.filter(tenant_id=tenant, fact_id=fact, act="extended", done_at=None)
        .order_by("-id")
        .first()
    )
    if change is None or change.question_id is None:
        return None
    question = DecisionRequest.objects.filter(tenant_id=tenant, id=change.question_id, state="pending").first()
    return None if question is None else (change, question)


# what the doors share -------------------------------------------------------------------------------------------------


def _require_reason(reason: str) -> None:
    if reason not in REASONS:
        raise Refused("lifetime_refused", errors=[FieldError("reason", "not_in_enum")])


def note(
    actor: Actor,
    fact: UUID,
    act: str,
    *,
    reason: str,
    until: datetime | None = None,
    review_at: datetime | None = None,
    question: UUID | None = None,
    now: datetime | None = None,
) -> None:
    """Record that the life of a fact was changed, or asked to be (`now` None), by whom and why."""
    LifetimeChange(
        id=new_id(),
        tenant_id=actor.tenant,
        fact_id=fact,
        act=act,
        until=until,
        review_at=review_at,
        reason=reason,
        actor_kind=actor.kind.value,
        actor_id=actor.id,
        question_id=question,
        done_at=now,
    ).save(force_insert=True)


def _event(actor: Actor, action: Action, fact: UUID, reason: str, *, digest: bytes | None = None) -> Event:
    return Event(actor=actor, action=action, target_kind="fact", target_id=fact, reason=reason, digest=digest)
