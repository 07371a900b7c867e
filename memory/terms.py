"""The door of occasions: a session is closed, a contract has ended, and what was kept for it starts to run out.

Both run in the caller's tenant transaction under `Role.WRITER`. The policy in force says how long each class stays after
that (`after`); the dates are fixed here, and rows get them in the background, in bounded chunks. No date is put off.
"""

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from memory import idempotency, outbox, rows
from memory.outcomes import Repeat, TermEnded
from memory.subjects import known
from policies.catalogue import catalogue
from policies.rules import PolicyDocument
from policies.vocabulary import Occasion, Sensitivity
from tenants.actors import Actor
from tenants.audit import Action, Event, append
from tenants.errors import Missing
from tenants.identity import new_id

#: What a transaction that was under way did not see yet is looked for again after this.
LOOKED_FOR_AGAIN = timedelta(minutes=10)

_END = """
INSERT INTO memory_term (tenant_id, id, kind, ref, writer_id, subject_id, ended_at, due_at, policy_version_id, ended_by_kind,
  ended_by_id)
VALUES (%s::uuid, %s::uuid, %s::text, %s::text, %s::uuid, %s::uuid, %s::timestamptz, %s::timestamptz[], %s::uuid, %s::text, %s::uuid)
ON CONFLICT (tenant_id, ref, kind, writer_id, subject_id) DO NOTHING RETURNING id
"""
_KNOWN = """
SELECT t.id FROM memory_term t WHERE t.tenant_id = %s::uuid AND t.ref = %s::text AND t.kind = %s::text
  AND t.writer_id IS NOT DISTINCT FROM %s::uuid AND t.subject_id IS NOT DISTINCT FROM %s::uuid
"""
_IN_SESSION = """
SELECT EXISTS (SELECT FROM memory_episode e WHERE e.tenant_id = %(tenant)s::uuid AND e.session_id = %(ref)s::text
    AND e.writer_id = %(writer)s::uuid AND (%(subject)s::uuid IS NULL OR e.subject_id = %(subject)s::uuid))
  OR EXISTS (SELECT FROM memory_evidence e WHERE e.tenant_id = %(tenant)s::uuid AND e.session_id = %(ref)s::text
    AND e.writer_id = %(writer)s::uuid)
  OR EXISTS (SELECT FROM memory_candidatesaying e WHERE e.tenant_id = %(tenant)s::uuid AND e.session_id = %(ref)s::text
    AND e.writer_id = %(writer)s::uuid)
"""
_ON_CONTRACT = """
SELECT EXISTS (SELECT FROM memory_episode e WHERE e.tenant_id = %(tenant)s::uuid AND e.contract_ref = %(ref)s::text)
  OR EXISTS (SELECT FROM memory_evidence e WHERE e.tenant_id = %(tenant)s::uuid AND e.contract_ref = %(ref)s::text)
  OR EXISTS (SELECT FROM memory_candidatesaying e WHERE e.tenant_id = %(tenant)s::uuid AND e.contract_ref = %(ref)s::text)
"""
_SHOWN = """
SELECT t.id, t.kind, t.ref, t.ended_at, t.due_at FROM memory_term t WHERE t.tenant_id = %s::uuid AND t.id = %s::uuid
"""


def close_session(actor: Actor, session: str, *, subject: str | None, repeat: Repeat | None = None) -> TermEnded:
    """Close a session of the actor's own, of one subject or of all; closing it again changes nothing.

    What the actor wrote in it on the basis `session` is kept no longer than the policy says after that. Ids of sessions are
    an agent's own: what another wrote under an equal one is not concerned. Raises `Missing` where nothing of the actor's
    names the session, and for a subject that is not known.
    """
    earlier = None if repeat is None else idempotency.earlier(actor, repeat)
    if earlier is not None:
        return _ended(earlier[0])
    about = None
    if subject is not None:
        found = known(actor.tenant, [subject])
        if subject not in found:
            raise Missing
        about = found[subject].id
    return _end(actor, Occasion.SESSION_CLOSED, session, writer=actor.id, subject=about, repeat=repeat)


def end_contract(actor: Actor, ref: str, *, repeat: Repeat | None = None) -> TermEnded:
    """Record that a contract has ended, for everything that was written on it by whomever; ending it again changes nothing.

    Raises `Missing` where nothing names the contract.
    """
    earlier = None if repeat is None else idempotency.earlier(actor, repeat)
    if earlier is not None:
        return _ended(earlier[0])
    return _end(actor, Occasion.CONTRACT_ENDED, ref, writer=None, subject=None, repeat=repeat)


def _end(
    actor: Actor, occasion: Occasion, ref: str, *, writer: UUID | None, subject: UUID | None, repeat: Repeat | None
) -> TermEnded:
    tenant, kind = actor.tenant, occasion.basis.value
    in_force = catalogue(tenant)
    named = {"tenant": tenant, "ref": ref, "writer": writer, "subject": subject}
    known_already, ((there,),), ((now,),) = rows.fetch_all(
        [
            (_KNOWN, [tenant, ref, kind, writer, subject]),
            (_IN_SESSION if writer is not None else _ON_CONTRACT, named),
            ("SELECT clock_timestamp()", []),
        ]
    )
    if not known_already and not there:
        raise Missing
    term = new_id()
    due = dues(in_force.policy, occasion, now)
    made = rows.fetch(
        _END,
        [tenant, term, kind, ref, writer, subject, now, due, in_force.policy_version_id, actor.kind.value, actor.id],
    )
    if made:
        looks = [now, now + LOOKED_FOR_AGAIN]
        rows.OUTBOX.insert(tenant, [rows.OutboxRow(new_id(), "term.ended", term, at, now) for at in looks])
        outbox.nudge()
    else:
        term = rows.fetch(_KNOWN, [tenant, ref, kind, writer, subject])[0][0]
    outcome = TermEnded(id=term)
    if repeat is not None:
        idempotency.keep(actor, repeat, [outcome], status=outcome.status, now=now)
    if made:
        action = Action.SESSION_CLOSED if occasion is Occasion.SESSION_CLOSED else Action.CONTRACT_ENDED
        append([Event(actor=actor, action=action, target_kind="term", target_id=term)])
    return outcome


def dues(policy: PolicyDocument, occasion: Occasion, ended_at: datetime) -> list[datetime | None]:
    """Return until when each class stays after an occasion at that instant, from public to restricted; None: as it was."""
    lives = [policy.life_after(occasion, level) for level in Sensitivity]
    return [None if life is None else life.after(ended_at) for life in lives]


def shown(actor: Actor, term: UUID) -> dict[str, Any]:
    """Return an occasion as the API shows it. Raises `Missing`."""
    found = rows.fetch(_SHOWN, [actor.tenant, term])
    if not found:
        raise Missing
    identity, kind, ref, ended_at, due = found[0]
    dates = {level.label: until for level, until in zip(Sensitivity, due, strict=True)}
    return {"id": identity, "kind": kind, "ref": ref, "ended_at": ended_at, "kept_until": dates}


def _ended(outcome: Any) -> TermEnded:
    assert isinstance(outcome, TermEnded)
    return outcome
