"""Erasing a subject: asked for, foreseen, approved by a second person, carried out step by step, verified, certified, told.

From the approval on no name of the subject resolves, what is said of it anew is held against its suppression, and the
rest is done by a run in bounded steps: who has read it · facts · proposals · episodes · mentions by others · rows ·
consents · names · the data key · the search for what is left · the certificate. Each step is a transaction that shares
the hold lock, asks what is held, does its part and moves the run on; a process that is cut off anywhere is gone on with
by the outbox. A step that finds its part done does nothing.

What a hold covers stays, is counted, and keeps the erasure from being called done. What others said of the subject, and
what is known of others by its episodes alone, a person decides on.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from typing import Any
from uuid import UUID

from django.db import connection

from memory import erasure as removal
from memory import lexemes, outbox, rows, search, suppression
from memory.endings import worker
from memory.erasure import Erased
from memory.outbox import Settled
from memory.subjects import opened
from policies import approvals
from policies.approvals import Act, Answer, Asked
from policies.models import DecisionRequest
from retention import access, certificates, endings_log, holds, redaction, runs
from retention.runs import Run
from retention.strategies import Span, joined
from tenants.actors import Actor, ActorKind, MemberRole, Scope
from tenants.audit import Action, Event, append
from tenants.errors import Clash, FieldError, Forbidden, Missing, Refused
from tenants.identity import new_id
from tenants.isolation import Role, borrowed, tenant_transaction
from tenants.models import Membership

#: Why somebody is erased. Codes, since words would be content.
REASONS = ("subject_request", "consent_withdrawn", "no_longer_needed", "unlawful", "law", "other")
#: Why a person keeps or ends what was left to them.
ITEM_REASONS = ("own_interest", "not_meant", "law", "legal_claim", "other")
#: The topic under which an approved erasure waits for its next steps.
TOPIC = "erasure.run"
_QUESTION_REASON = "other"
#: What one transaction takes of each kind.
FACTS, EPISODES, RECEIPTS, CANDIDATES, ROWS = 1_000, 200, 5_000, 500, 4_000
#: So many facts are named in one message to a recipient.
TOLD_AT_ONCE = 1_000
#: The outbox gives a worker so long at once.
SLICE_SECONDS = 8.0
_NOBODY = UUID(int=0)


# what it would do -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Preview:
    """What an erasure would remove, by store, what would stay by holds, and what it would leave to a person.

    `digest` is what an approval is bound to: whatever is written about the subject since makes another.
    """

    subject: UUID
    counts: Mapping[str, int]
    digest: bytes = field(repr=False)


_COUNTS = """
SELECT
  (SELECT count(*) FROM memory_fact f WHERE f.tenant_id = %(t)s::uuid AND f.subject_id = %(s)s::uuid AND f.ended_at IS NULL),
  (SELECT count(*) FROM memory_fact f WHERE f.tenant_id = %(t)s::uuid AND f.subject_id = %(s)s::uuid AND f.ended_at IS NOT NULL),
  (SELECT count(*) FROM memory_factkey k JOIN memory_evidence e ON e.tenant_id = k.tenant_id AND e.key_id = k.id
    WHERE k.tenant_id = %(t)s::uuid AND k.subject_id = %(s)s::uuid),
  (SELECT count(*) FROM memory_candidate c WHERE c.tenant_id = %(t)s::uuid AND c.subject_id = %(s)s::uuid),
  (SELECT count(*) FROM memory_episode e WHERE e.tenant_id = %(t)s::uuid AND e.subject_id = %(s)s::uuid),
  (SELECT count(*) FROM memory_subjectidentifier i WHERE i.tenant_id = %(t)s::uuid AND i.subject_id = %(s)s::uuid),
  (SELECT count(*) FROM policies_consent c WHERE c.tenant_id = %(t)s::uuid AND c.subject_id = %(s)s::uuid),
  (SELECT count(*) FROM memory_derived d WHERE d.tenant_id = %(t)s::uuid AND d.subject_id = %(s)s::uuid AND d.payload_id IS NOT NULL),
  (SELECT count(*) FROM memory_episode e WHERE e.tenant_id = %(t)s::uuid AND e.subject_id IS DISTINCT FROM %(s)s::uuid
    AND %(s)s::uuid = ANY (e.mentioned_ids)),
  (SELECT e.id FROM memory_fact e WHERE e.tenant_id = %(t)s::uuid AND e.subject_id = %(s)s::uuid ORDER BY e.id DESC LIMIT 1),
  (SELECT e.id FROM memory_episode e WHERE e.tenant_id = %(t)s::uuid AND e.subject_id = %(s)s::uuid ORDER BY e.id DESC LIMIT 1),
  (SELECT e.id FROM memory_candidate e WHERE e.tenant_id = %(t)s::uuid AND e.subject_id = %(s)s::uuid ORDER BY e.id DESC LIMIT 1)
"""
_COUNTED = ("facts", "ended_facts", "evidence", "candidates", "episodes", "names", "consents", "derived", "mentions")
# Facts of others that rest on the subject's episodes; whether anything else that stands keeps each.
_OF_OTHERS = """
SELECT f.id, bool_or(o.id IS NOT NULL) FROM memory_episode e
  JOIN memory_evidence v ON v.tenant_id = e.tenant_id AND v.episode_id = e.id AND v.retracted_at IS NULL AND v.fact_id IS NOT NULL
  JOIN memory_fact f ON f.tenant_id = v.tenant_id AND f.id = v.fact_id AND f.subject_id <> %(s)s::uuid AND f.ended_at IS NULL
  LEFT JOIN LATERAL (SELECT x.id FROM memory_evidence x
    LEFT JOIN memory_episode xe ON xe.tenant_id = x.tenant_id AND xe.id = x.episode_id
    WHERE x.tenant_id = f.tenant_id AND x.fact_id = f.id AND x.retracted_at IS NULL AND NOT x.is_end
      AND xe.subject_id IS DISTINCT FROM %(s)s::uuid LIMIT 1) o ON true
WHERE e.tenant_id = %(t)s::uuid AND e.subject_id = %(s)s::uuid {among}
GROUP BY f.id
"""
_IDS = {
    "fact": "SELECT f.id FROM memory_fact f WHERE f.tenant_id = %s::uuid AND f.subject_id = %s::uuid",
    "episode": "SELECT e.id FROM memory_episode e WHERE e.tenant_id = %s::uuid AND e.subject_id = %s::uuid",
    "candidate": "SELECT c.id FROM memory_candidate c WHERE c.tenant_id = %s::uuid AND c.subject_id = %s::uuid",
}
_SUBJECT = "SELECT s.ended_at FROM memory_subject s WHERE s.tenant_id = %s::uuid AND s.id = %s::uuid"


def preview(tenant: UUID, subject: UUID) -> Preview:
    """Return what erasing a subject would come to now. Under `Role.WORKER`; changes nothing. Raises `Missing`."""
    if not rows.fetch(_SUBJECT, [tenant, subject]):
        raise Missing
    given = {"t": tenant, "s": subject}
    (row,) = rows.fetch(_COUNTS, given)
    counts = dict(zip(_COUNTED, row, strict=False))
    others = rows.fetch(_OF_OTHERS.format(among=""), given)
    counts["facts_of_others"] = len(others)
    counts["facts_of_others_alone"] = sum(not kept for _, kept in others)
    for kind, statement in _IDS.items():
        ids = [found[0] for found in rows.fetch(statement, [tenant, subject])]
        counts[f"held_{kind}s"] = len(holds.held(tenant, kind, ids))
    counts["held_subject"] = len(holds.held(tenant, "subject", [subject]))
    newest = [str(each) for each in row[len(_COUNTED) :]]
    told = json.dumps([str(subject), sorted(counts.items()), newest], separators=(",", ":"))
    return Preview(subject, counts, sha256(b"muniment:erasure:1\n" + told.encode("ascii")).digest())


# asking and deciding --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Erasure:
    """An erasure as it stands."""

    id: UUID
    subject: UUID
    state: str
    reason: str
    counts: dict[str, int]
    digest: bytes = field(repr=False)
    asked_by: UUID
    asked_at: datetime
    question: UUID | None
    run: UUID | None
    certificate: UUID | None
    finished_at: datetime | None
    names: tuple[UUID, ...] = ()


_COLUMNS = (
    "e.id, e.subject_id, e.state, e.reason, e.preview::text, e.digest, e.asked_by, e.asked_at, e.question_id, e.run_id,"
    " e.certificate_id, e.finished_at, e.name_ids"
)
_ONE = f"SELECT {_COLUMNS} FROM retention_erasure e WHERE e.tenant_id = %s::uuid AND e.id = %s::uuid"
_OPEN = f"""
SELECT {_COLUMNS} FROM retention_erasure e WHERE e.tenant_id = %s::uuid AND e.subject_id = %s::uuid
  AND e.state IN ('requested', 'asked', 'running', 'held', 'failed') FOR UPDATE
"""
_ASK = f"""
INSERT INTO retention_erasure AS e (tenant_id, id, subject_id, state, reason, request_id, preview, digest, asked_kind, asked_by, asked_at)
VALUES (%s::uuid, %s::uuid, %s::uuid, 'requested', %s, %s::uuid, %s::jsonb, %s::bytea, %s, %s::uuid, %s::timestamptz)
ON CONFLICT DO NOTHING RETURNING {_COLUMNS}
"""
_PUT = f"""
UPDATE retention_erasure e SET state = 'asked', question_id = %s::uuid, digest = %s::bytea, preview = %s::jsonb
WHERE e.tenant_id = %s::uuid AND e.id = %s::uuid RETURNING {_COLUMNS}
"""


def _erasure(row: tuple[Any, ...]) -> Erasure:
    found, subject, state, reason, counts, digest, by, at, question, run, certificate, finished, names = row
    return Erasure(
        found, subject, state, reason, json.loads(counts), bytes(digest), by, at, question, run, certificate, finished,
        tuple(names),
    )  # fmt: skip


def find(tenant: UUID, erasure: UUID) -> Erasure:
    """Return an erasure. Under staff or worker. Raises `Missing`."""
    found = rows.fetch(_ONE, [tenant, erasure])
    if not found:
        raise Missing
    return _erasure(found[0])


def subject_of(tenant: UUID, name: str) -> UUID:
    """Return the subject of a key or an alias, under `Role.STAFF`. Raises `Missing`."""
    from tenants.secrets import keyring

    digest = keyring().identifier(tenant, name)
    with borrowed(Role.WORKER, back_to=Role.STAFF):
        found = rows.fetch(
            "SELECT i.subject_id FROM memory_subjectidentifier i WHERE i.tenant_id = %s::uuid AND i.digest = %s::bytea",
            [tenant, digest],
        )
    if not found:
        raise Missing
    subject: UUID = found[0][0]
    return subject


def ask(actor: Actor, subject: UUID, *, reason: str, now: datetime, subject_request: UUID | None = None) -> Erasure:
    """Ask for the erasure of a subject; nothing ends by it. A privacy officer's question goes before a second person at once.

    What a program asks for (scope `admin`) waits until a privacy officer puts it there: a program's question would need
    one person only. `subject_request` names the subject's own request: whoever passes it has checked who they are. In the
    caller's transaction under `Role.STAFF`. Raises `Missing`, `Forbidden`, `Refused`, `Clash("erasure_open")`.
    """
    _require_officer(actor)
    if reason not in REASONS:
        raise Refused("erasure_refused", errors=[FieldError("reason", "not_in_enum")])
    with borrowed(Role.WORKER, back_to=Role.STAFF):
        foreseen = preview(actor.tenant, subject)
        ended = rows.fetch(_SUBJECT, [actor.tenant, subject])[0][0]
    if ended is not None:
        raise Clash("erasure_open" if rows.fetch(_OPEN, [actor.tenant, subject]) else "subject_erased")
    given = [
        actor.tenant,
        new_id(),
        subject,
        reason,
        subject_request,
        json.dumps(dict(foreseen.counts)),
        foreseen.digest,
    ]
    made = rows.fetch(_ASK, [*given, actor.kind.value, actor.id, now])
    if made:
        found = _erasure(made[0])
        append([_event(actor, Action.ERASURE_ASKED, found.id, reason)])
    else:
        found = _erasure(rows.fetch(_OPEN, [actor.tenant, subject])[0])
        if found.state != "requested" or actor.kind is not ActorKind.PERSON:
            raise Clash("erasure_open")
    return _put(actor, found, foreseen, now=now) if actor.kind is ActorKind.PERSON else found


def ask_again(actor: Actor, erasure: UUID, *, now: datetime) -> Erasure:
    """Put an erasure before a second person as it would be now: one that a program asked for, or that changed, or lapsed.

    Raises `Missing`, `Forbidden`, `Clash("erasure_open")` for one that was approved, and what `approvals.ask` raises.
    """
    _require_officer(actor)
    found = _locked(actor.tenant, erasure)
    if found.state not in ("requested", "asked"):
        raise Clash("erasure_open")
    with borrowed(Role.WORKER, back_to=Role.STAFF):
        foreseen = preview(actor.tenant, found.subject)
    return _put(actor, found, foreseen, now=now)


def _put(actor: Actor, erasure: Erasure, foreseen: Preview, *, now: datetime) -> Erasure:
    asked = Asked(Act.ERASE_SUBJECT, "subject", erasure.subject, foreseen.digest)
    open_one = DecisionRequest.objects.filter(
        tenant_id=actor.tenant, act=Act.ERASE_SUBJECT.value, target_id=erasure.subject, state="pending"
    ).first()
    if open_one is not None and bytes(open_one.digest) != foreseen.digest and open_one.requested_by == actor.id:
        # What was asked about is not what would happen any more.
        approvals.withdraw(actor, open_one.id, now=now)
    question = approvals.ask(actor, asked, reason=_QUESTION_REASON, now=now)
    counts = json.dumps(dict(foreseen.counts))
    return _erasure(rows.fetch(_PUT, [question.id, foreseen.digest, counts, actor.tenant, erasure.id])[0])


def withdraw(actor: Actor, erasure: UUID, *, now: datetime) -> Erasure:
    """Take an erasure back that nobody has approved. Raises `Missing`, `Forbidden`, `Clash("erasure_open")`."""
    _require_officer(actor)
    found = _locked(actor.tenant, erasure)
    if found.state not in ("requested", "asked"):
        raise Clash("erasure_open")
    if found.question is not None:
        approvals.withdraw(actor, found.question, now=now)
    append([_event(actor, Action.ERASURE_DECIDED, found.id, "withdrawn")])
    return _moved(actor.tenant, found.id, "withdrawn")


_MOVED = (
    f"UPDATE retention_erasure e SET state = %s WHERE e.tenant_id = %s::uuid AND e.id = %s::uuid RETURNING {_COLUMNS}"
)
_APPROVED = f"""
UPDATE retention_erasure e SET state = 'running', approved_by = %s::uuid, approved_at = clock_timestamp(), name_ids = %s::uuid[],
  run_id = %s::uuid
WHERE e.tenant_id = %s::uuid AND e.id = %s::uuid RETURNING {_COLUMNS}
"""
_LOCK_SUBJECT = "SELECT 1 FROM memory_subject s WHERE s.tenant_id = %s::uuid AND s.id = %s::uuid FOR UPDATE"
_NAMES = "SELECT i.digest, i.payload_id FROM memory_subjectidentifier i WHERE i.tenant_id = %s::uuid AND i.subject_id = %s::uuid"


def _moved(tenant: UUID, erasure: UUID, state: str) -> Erasure:
    return _erasure(rows.fetch(_MOVED, [state, tenant, erasure])[0])


def decide(actor: Actor, erasure: UUID, answer: Answer, *, shown: bytes, reason: str, now: datetime) -> Erasure:
    """Decide on another's question. Approved, the subject's names resolve no more once this commits, and the run begins.

    The commit returns once the endings log tells of it. Raises what `approvals.decide` raises, `Missing`, and
    `Clash("changed_since_shown")` where something about the subject is not as it was shown: look again.
    """
    # Before every other lock; then the subject, which writers hold for the length of their transactions.
    holds.share(actor.tenant)
    found = find(actor.tenant, erasure)
    if found.question is None:
        raise Missing
    with borrowed(Role.WORKER, back_to=Role.STAFF):
        rows.fetch(_LOCK_SUBJECT, [actor.tenant, found.subject])
        foreseen = preview(actor.tenant, found.subject)
    found = _locked(actor.tenant, erasure)
    if found.state != "asked" or found.question is None:
        raise Clash("already_decided")
    approvals.decide(actor, found.question, answer, shown=shown, reason=reason, now=now)
    append([_event(actor, Action.ERASURE_DECIDED, found.id, answer.value)])
    if answer is not Answer.APPROVE:
        return _moved(actor.tenant, found.id, "refused" if answer is Answer.REFUSE else "requested")
    if foreseen.digest != found.digest:
        raise Clash("changed_since_shown")
    approvals.carry_out(actor, Asked(Act.ERASE_SUBJECT, "subject", found.subject, found.digest))
    with borrowed(Role.WORKER, back_to=Role.STAFF):
        names = rows.fetch(_NAMES, [actor.tenant, found.subject])
        run = _begin(actor, found.subject, [bytes(digest) for digest, _ in names], found.id, now=now)
    approved = _erasure(
        rows.fetch(_APPROVED, [actor.id, [payload for _, payload in names], run.id, actor.tenant, found.id])[0]
    )
    outbox_put(actor.tenant, found.id)
    return approved


def outbox_put(tenant: UUID, erasure: UUID) -> None:
    """Leave the run's next steps to the background."""
    with borrowed(Role.WORKER, back_to=Role.STAFF):
        outbox.put(tenant, TOPIC, [erasure])


def _begin(actor: Actor, subject: UUID, names: Sequence[bytes], decision: UUID, *, now: datetime) -> Run:
    """Let go of a subject's names for good, suppress it, and begin the run. The subject is locked."""
    tenant = actor.tenant
    suppression.add_subject(tenant, names, cause="erased", target_kind="erasure", target=decision, now=now)
    if not holds.held(tenant, "subject", [subject]):
        removal.release_names(tenant, subject, now)
    endings_log.owe(tenant, "erasure", subject, {"erasure": decision, "decided_at": now})
    return runs.begin(actor, "erasure", target_kind="subject", target_id=subject, now=now)[0]


def go_on_after_holds(actor: Actor, erasure: UUID, *, now: datetime) -> Erasure:
    """Go on with an erasure that a hold or a failure stopped, on the approval that it had. Raises `Missing`, `Forbidden`,
    `Clash("erasure_open")` for one that is not stopped."""
    _require_officer(actor)
    holds.share(actor.tenant)
    found = _locked(actor.tenant, erasure)
    if found.state not in ("held", "failed") or actor.kind is not ActorKind.PERSON:
        raise Clash("erasure_open")
    with borrowed(Role.WORKER, back_to=Role.STAFF):
        rows.fetch(_LOCK_SUBJECT, [actor.tenant, found.subject])
        if not holds.held(actor.tenant, "subject", [found.subject]):
            removal.release_names(actor.tenant, found.subject, now)
        run, _ = runs.begin(actor, "erasure", target_kind="subject", target_id=found.subject, now=now)
    rows.execute(
        "UPDATE retention_erasure SET state = 'running', run_id = %s::uuid WHERE tenant_id = %s::uuid AND id = %s::uuid",
        [run.id, actor.tenant, found.id],
    )
    outbox_put(actor.tenant, found.id)
    return find(actor.tenant, found.id)


def erase_again(actor: Actor, subject: UUID, decision: UUID, *, now: datetime) -> Run | None:
    """Erase a subject that a restored backup brought back, as the endings log tells; None where it is not there.

    In the caller's transaction under `Role.WORKER`; `finish_again` carries it out. Harmless to repeat.
    """
    holds.share(actor.tenant)
    if not rows.fetch(_LOCK_SUBJECT, [actor.tenant, subject]):
        return None
    names = [bytes(digest) for digest, _ in rows.fetch(_NAMES, [actor.tenant, subject])]
    suppression.add_subject(actor.tenant, names, cause="erased", target_kind="erasure", target=decision, now=now)
    if not holds.held(actor.tenant, "subject", [subject]):
        removal.release_names(actor.tenant, subject, now)
    return runs.begin(actor, "erasure", target_kind="subject", target_id=subject, now=now)[0]


def _locked(tenant: UUID, erasure: UUID) -> Erasure:
    found = rows.fetch(_ONE + " FOR UPDATE", [tenant, erasure])
    if not found:
        raise Missing
    return _erasure(found[0])


def _require_officer(actor: Actor) -> None:
    if actor.kind is ActorKind.PERSON:
        held = Membership.objects.filter(
            tenant_id=actor.tenant, user_id=actor.id, role=MemberRole.PRIVACY_OFFICER.value
        )
        allowed = held.exists()
    else:
        allowed = actor.kind is ActorKind.AGENT and actor.may(Scope.ADMIN)
    if not allowed:
        raise Forbidden("role_missing")


def _event(actor: Actor, action: Action, erasure: UUID, reason: str, **numbers: int) -> Event:
    return Event(
        actor=actor, action=action, target_kind="erasure", target_id=erasure, reason=reason, numbers=dict(numbers)
    )


# the run --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Work:
    """What a step works on: a subject, its run, and the erasure where it is one (a restore has none)."""

    tenant: UUID
    subject: UUID
    run: Run
    erasure: Erasure | None
    actor: Actor
    now: datetime


@dataclass(frozen=True, slots=True)
class _Came:
    """What a step came to: how far it is (None: to its end), what it removed, what a hold refused."""

    to: str | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    refused: int = 0


def work(tenant: UUID, target: UUID) -> Settled:
    """Do the next steps of an approved erasure, for a few seconds: the worker of `erasure.run`."""
    return go_on(tenant, target, seconds=SLICE_SECONDS)


def go_on(tenant: UUID, erasure: UUID, *, seconds: float) -> Settled:
    """Do the next steps of an erasure for about `seconds`; done where nothing is left to do. Opens its own transactions."""
    with tenant_transaction(Role.WORKER, tenant=tenant):
        found = find(tenant, erasure)
    if found.run is None or found.state != "running":
        return Settled.DONE
    return _run_on(tenant, found.run, erasure, until=time.monotonic() + seconds)


def finish_again(tenant: UUID, run: UUID) -> None:
    """Carry a run of `erase_again` out to its end. Opens its own transactions."""
    while _run_on(tenant, run, None, until=time.monotonic() + SLICE_SECONDS) is not Settled.DONE:
        pass


def _run_on(tenant: UUID, run: UUID, erasure: UUID | None, *, until: float) -> Settled:
    while True:
        if not advance(tenant, run, erasure):
            return Settled.DONE
        if time.monotonic() >= until:
            return Settled.AGAIN


def advance(tenant: UUID, run: UUID, erasure: UUID | None) -> bool:
    """Do one chunk of the step that a run stands at, and move it on, in one transaction; return whether there is more."""
    with tenant_transaction(Role.WORKER, tenant=tenant):
        holds.share(tenant)
        held = runs.hold(tenant, run)
        if held is None or held.target_id is None:
            # Another has it; the outbox comes again where it is cut off.
            return False
        now: datetime = rows.fetch(runs.PLANS, [])[0][2]
        found = None if erasure is None else find(tenant, erasure)
        at = _Work(tenant, held.target_id, held, found, worker(tenant), now)
        place = _PLACES.get(held.step, 0)
        name, step = _STEPS[place]
        came = step(at, held.cursor.get("after"))
        if name == "certify":
            return False
        if came.to is None:
            name = _STEPS[place + 1][0]
        cursor_now = {} if came.to is None else {"after": came.to}
        runs.advance(tenant, held, step=name, cursor=cursor_now, counts=came.counts, refused=came.refused)
    return True


_SEEN = """
SELECT r.id, r.actor_id, r.fact_ids FROM memory_receipt r
WHERE r.tenant_id = %s::uuid AND r.id > %s::uuid ORDER BY r.id LIMIT %s
"""
_READERS = """
WITH seen AS MATERIALIZED (
  SELECT r.id, r.actor_id, r.actor_kind, r.act, r.fact_ids FROM memory_receipt r
  WHERE r.tenant_id = %(t)s::uuid AND r.id > %(after)s::uuid ORDER BY r.id LIMIT %(limit)s)
SELECT (SELECT s.id FROM seen s ORDER BY s.id DESC LIMIT 1), x.actor_id, x.facts FROM (SELECT 1) one
LEFT JOIN LATERAL (
  SELECT s.actor_id, array_agg(DISTINCT f.id) AS facts FROM seen s CROSS JOIN unnest(s.fact_ids) w (id)
    JOIN memory_fact f ON f.tenant_id = %(t)s::uuid AND f.id = w.id AND f.subject_id = %(s)s::uuid
  WHERE s.actor_kind = 'agent' AND s.act <> ALL (%(writes)s)
  GROUP BY s.actor_id) x ON true
"""
#: Receipts of acts by which nobody was told anything.
_WRITES = [
    "fact.write",
    "fact.batch",
    "episode.write",
    "episode.extract",
    "evidence.retract",
    "write.refused",
    "candidate.decide",
]
_TOLD = "SELECT DISTINCT unnest(n.fact_ids) FROM retention_notice n WHERE n.tenant_id = %s::uuid AND n.erasure_id = %s::uuid AND n.agent_id = %s::uuid"
_NOTE = """
INSERT INTO retention_notice (tenant_id, id, erasure_id, agent_id, fact_ids, created_at)
SELECT %s::uuid, w.id, %s::uuid, %s::uuid, w.facts::uuid[], clock_timestamp()
FROM json_to_recordset(%s::json) AS w (id uuid, facts text)
"""


def _recipients(at: _Work, after: str | None) -> _Came:
    """Note who has read what, by the receipts, before the facts that they name are gone."""
    if at.erasure is None:
        return _Came()
    given = {"t": at.tenant, "s": at.subject, "after": after or str(_NOBODY), "limit": RECEIPTS, "writes": _WRITES}
    found, count = rows.fetch(_READERS, given), 0
    for _, agent, facts in found:
        if agent is None:
            continue
        known = {row[0] for row in rows.fetch(_TOLD, [at.tenant, at.erasure.id, agent])}
        fresh = sorted(set(facts) - known)
        parts = [fresh[start : start + TOLD_AT_ONCE] for start in range(0, len(fresh), TOLD_AT_ONCE)]
        told = [{"id": str(new_id()), "facts": "{" + ",".join(map(str, part)) + "}"} for part in parts]
        if told:
            rows.execute(_NOTE, [at.tenant, at.erasure.id, agent, json.dumps(told)])
        count += len(told)
    last = found[0][0]
    return _Came(None if last is None else str(last), {"notices": count} if count else {})


_SOME = {
    "fact": "SELECT f.id FROM memory_fact f WHERE f.tenant_id = %s::uuid AND f.subject_id = %s::uuid AND f.id > %s::uuid ORDER BY f.id LIMIT %s",
    "episode": "SELECT e.id FROM memory_episode e WHERE e.tenant_id = %s::uuid AND e.subject_id = %s::uuid AND e.id > %s::uuid ORDER BY e.id LIMIT %s",
    "candidate": "SELECT c.id FROM memory_candidate c WHERE c.tenant_id = %s::uuid AND c.subject_id = %s::uuid AND c.id > %s::uuid ORDER BY c.id LIMIT %s",
}


def _some(at: _Work, kind: str, after: str | None, limit: int) -> list[UUID]:
    return [row[0] for row in rows.fetch(_SOME[kind], [at.tenant, at.subject, after or str(_NOBODY), limit])]


def _free(at: _Work, kind: str, ids: Sequence[UUID]) -> list[UUID]:
    return holds.free(at.tenant, kind, ids, actor=at.actor, act="erasure", run=at.run.id)


def _facts(at: _Work, after: str | None) -> _Came:
    """End a chunk of the facts, whatever their evidence; one of which anything that goes along is held stays."""
    found = _some(at, "fact", after, FACTS)
    if not found:
        return _Came()
    free = holds.free_facts(at.tenant, found, "erased", actor=at.actor, act="erasure", run=at.run.id)
    ended = removal.end_facts(at.tenant, free, "erased", at.now)
    return _Came(str(found[-1]), _counted(ended), len(found) - len(free))


def _counted(erased: Erased) -> dict[str, int]:
    return {name: count for name, count in erased.counts.items() if count}


def _candidates(at: _Work, after: str | None) -> _Came:
    found = _some(at, "candidate", after, CANDIDATES)
    if not found:
        return _Came()
    free = _free(at, "candidate", found)
    return _Came(
        str(found[-1]), _counted(removal.end_candidates(at.tenant, free, "erased", at.now)), len(found) - len(free)
    )


_TEXTS = """
SELECT e.turn_id, p.id, p.clear, p.sealed, k.wrapped, k.version FROM memory_episode e
  JOIN memory_payload p ON p.tenant_id = e.tenant_id AND p.id = e.payload_id AND p.ended_at IS NULL
  LEFT JOIN tenants_subjectkey k ON k.tenant_id = p.tenant_id AND k.id = p.key_id
WHERE e.tenant_id = %s::uuid AND e.id = ANY (%s::uuid[])
"""
_LEAVE = """
INSERT INTO retention_erasureitem (tenant_id, id, erasure_id, kind, target_id, spans, found_at)
SELECT %s::uuid, w.id, %s::uuid, %s, w.target, w.spans::integer[], clock_timestamp()
FROM unnest(%s::uuid[], %s::uuid[], %s::text[]) AS w (id, target, spans)
ON CONFLICT DO NOTHING
"""


def _leave(at: _Work, kind: str, targets: Sequence[UUID], spans: Mapping[UUID, Sequence[Span]] | None = None) -> None:
    """Leave to a person what the erasure must not decide by itself; of a text, with where it names the subject."""
    if targets and at.erasure is not None:
        places = [
            "{" + ",".join(str(place) for span in (spans or {}).get(each, ()) for place in span) + "}"
            for each in targets
        ]
        ids = [new_id() for _ in targets]
        rows.execute(_LEAVE, [at.tenant, at.erasure.id, kind, ids, list(targets), places])


def _episodes(at: _Work, after: str | None) -> _Came:
    """End a chunk of the episodes, their sources suppressed and every quote from them taken along, others' facts' too."""
    found = _some(at, "episode", after, EPISODES)
    if not found:
        return _Came()
    free = _free(at, "episode", found)
    if not free:
        return _Came(str(found[-1]), {}, len(found))
    with borrowed(Role.WRITER, back_to=Role.WORKER):
        texts = [
            (row[0], opened(at.tenant, row[1], "episode", *row[2:])) for row in rows.fetch(_TEXTS, [at.tenant, free])
        ]
    suppression.add_sources(
        at.tenant, texts, cause="erased", target_kind="erasure",
        target=at.run.id if at.erasure is None else at.erasure.id, now=at.now,
    )  # fmt: skip
    given = {"t": at.tenant, "s": at.subject, "episodes": free}
    others = rows.fetch(_OF_OTHERS.format(among="AND e.id = ANY (%(episodes)s::uuid[])"), given)
    alone = [fact for fact, kept in others if not kept]
    _leave(at, "fact", alone)
    quotes = removal.quotes_of_episodes(at.tenant, free)
    loose = holds.free_quotes(at.tenant, quotes, actor=at.actor, act="erasure", run=at.run.id) if quotes else []
    waiting = removal.waiting_quotes(at.tenant, free)
    going = set(_free(at, "candidate", sorted({candidate for candidate, _ in waiting}))) if waiting else set()
    # The episodes first: by their end the quotes from them are over.
    ended = removal.end_episodes(at.tenant, free, "erased", at.now) + removal.end_quotes(at.tenant, loose, "erased")
    ended += removal.end_waiting_quotes(at.tenant, [quote for candidate, quote in waiting if candidate in going])
    counts = _counted(ended)
    if alone:
        counts["facts_of_others_left"] = len(alone)
    return _Came(str(found[-1]), counts, len(found) - len(free))


_MENTIONED = """
SELECT e.id FROM memory_episode e WHERE e.tenant_id = %(t)s::uuid AND e.subject_id IS DISTINCT FROM %(s)s::uuid
  AND %(s)s::uuid = ANY (e.mentioned_ids) AND e.redaction_state <> 'applied'
"""
_NAMES_SAID = """
SELECT p.id, p.purpose, p.clear, p.sealed, k.wrapped, k.version FROM memory_payload p
  LEFT JOIN tenants_subjectkey k ON k.tenant_id = p.tenant_id AND k.id = p.key_id
WHERE p.tenant_id = %s::uuid AND p.id = ANY (%s::uuid[]) AND p.ended_at IS NULL
"""
_SAID_IN = """
SELECT e.id, p.id, p.clear, p.sealed, k.wrapped, k.version FROM memory_episode e
  JOIN memory_payload p ON p.tenant_id = e.tenant_id AND p.id = e.payload_id AND p.ended_at IS NULL
  LEFT JOIN tenants_subjectkey k ON k.tenant_id = p.tenant_id AND k.id = p.key_id
WHERE e.tenant_id = %s::uuid AND e.id = ANY (%s::uuid[]) AND e.subject_id IS DISTINCT FROM %s::uuid
"""
#: Of a name so many episodes are looked into, the likeliest first.
_LOOKED_INTO = 500


def _pattern(name: str) -> re.Pattern[str]:
    return re.compile(r"\s+".join(map(re.escape, name.split())), re.IGNORECASE)


def _mentions(at: _Work, after: str | None) -> _Came:
    """Find where others' episodes name the subject: by what was recognised when they came, and by the names' words."""
    if at.erasure is None:
        return _Came()
    found = {row[0] for row in rows.fetch(_MENTIONED, {"t": at.tenant, "s": at.subject})}
    with borrowed(Role.WRITER, back_to=Role.WORKER):
        names = [
            opened(at.tenant, row[0], row[1], *row[2:])
            for row in rows.fetch(_NAMES_SAID, [at.tenant, list(at.erasure.names)])
        ]
    said = [_pattern(name) for name in names if name.strip()]
    places: dict[UUID, list[Span]] = {}

    def look(episodes: Sequence[UUID]) -> None:
        """Note where these texts say any of the names."""
        for start in range(0, len(episodes), EPISODES):
            with borrowed(Role.WRITER, back_to=Role.WORKER):
                for episode, *content in rows.fetch(
                    _SAID_IN, [at.tenant, list(episodes[start : start + EPISODES]), at.subject]
                ):
                    text = opened(at.tenant, content[0], "episode", *content[1:])
                    spans = joined([each.span() for pattern in said for each in pattern.finditer(text)])
                    if spans:
                        places[episode] = spans[: redaction.MOST_SPANS]

    look(sorted(found))
    for name in names:
        words = lexemes.lexemes(name, search.language())
        with connection.cursor() as cursor:
            cursor.execute("SELECT set_config('muniment.clearance', '3', true)")
        with borrowed(Role.AGENT, back_to=Role.WORKER):
            hits = (
                search.find(at.tenant, words, subject=None, kinds=["episode"]).episodes[:_LOOKED_INTO] if words else []
            )
        look([hit.target for hit in hits if hit.target not in found and hit.target not in places])
    found |= set(places)
    _leave(at, "mention", sorted(found), places)
    return _Came(None, {"mentions_left": len(found)} if found else {})


_KEYS = """
SELECT k.id, (SELECT count(*) FROM memory_fact f WHERE f.tenant_id = k.tenant_id AND f.key_id = k.id)
FROM memory_factkey k WHERE k.tenant_id = %s::uuid AND k.subject_id = %s::uuid AND k.id > %s::uuid ORDER BY k.id LIMIT 200
"""


def _held(at: _Work) -> Callable[[str, Sequence[UUID]], Collection[UUID]]:
    return lambda kind, ids: holds.held(at.tenant, kind, ids)


def _rows_of_facts(at: _Work, after: str | None) -> _Came:
    """Remove the rows of what ended, key by key."""
    keys: list[UUID] = []
    size = 0
    for key, count in rows.fetch(_KEYS, [at.tenant, at.subject, after or str(_NOBODY)]):
        if keys and size + count > ROWS:
            break
        keys.append(key)
        size += count
    if not keys:
        return _Came()
    # What was said to have ended, without a value, is the subject's too.
    removal.end_ends(at.tenant, keys)
    gone = removal.remove_facts(at.tenant, keys, _held(at))
    return _Came(str(keys[-1]), {f"rows_{name}": count for name, count in gone.counts.items()})


def _rows_of_candidates(at: _Work, after: str | None) -> _Came:
    found = _some(at, "candidate", after, CANDIDATES)
    if not found:
        return _Came()
    gone = removal.remove_candidates(at.tenant, found, _held(at))
    return _Came(str(found[-1]), {f"rows_{name}": count for name, count in gone.counts.items()})


def _rows_of_episodes(at: _Work, after: str | None) -> _Came:
    found = _some(at, "episode", after, ROWS)
    if not found:
        return _Came()
    gone = removal.remove_episodes(at.tenant, found, _held(at), tombstones=True)
    return _Came(str(found[-1]), {f"rows_{name}": count for name, count in gone.counts.items()})


def _consents(at: _Work, after: str | None) -> _Came:
    if holds.held(at.tenant, "subject", [at.subject]):
        return _Came()
    gone = removal.remove_consents(at.tenant, at.subject)
    return _Came(None, {"rows_consents": gone} if gone else {})


_PAYLOADS_OF_NAMES = """
SELECT p.id FROM memory_payload p
  JOIN memory_subject s ON s.tenant_id = p.tenant_id AND s.id = %s::uuid AND p.key_id = s.key_id
WHERE p.tenant_id = %s::uuid AND p.purpose IN ('subject', 'alias')
"""


def _names(at: _Work, after: str | None) -> _Came:
    """Overwrite the names; nothing is found by them any more since the approval."""
    if not _free(at, "subject", [at.subject]):
        return _Came(None, {}, 1)
    removal.release_names(at.tenant, at.subject, at.now)
    known = () if at.erasure is None else at.erasure.names
    names = {*known, *(row[0] for row in rows.fetch(_PAYLOADS_OF_NAMES, [at.subject, at.tenant]))}
    removal.throw_away_derived(at.tenant, subjects=[at.subject])
    return _Came(None, _counted(removal.end_names(at.tenant, at.subject, sorted(names))))


_LEFT_OF = """
SELECT
  (SELECT count(*) FROM memory_fact x WHERE x.tenant_id = %(t)s::uuid AND x.subject_id = %(s)s::uuid),
  (SELECT count(*) FROM memory_factkey x JOIN memory_evidence v ON v.tenant_id = x.tenant_id AND v.key_id = x.id
    WHERE x.tenant_id = %(t)s::uuid AND x.subject_id = %(s)s::uuid),
  (SELECT count(*) FROM memory_factkey x JOIN memory_belief b ON b.tenant_id = x.tenant_id AND b.key_id = x.id
    WHERE x.tenant_id = %(t)s::uuid AND x.subject_id = %(s)s::uuid),
  (SELECT count(*) FROM memory_candidate x WHERE x.tenant_id = %(t)s::uuid AND x.subject_id = %(s)s::uuid),
  (SELECT count(*) FROM memory_episode x WHERE x.tenant_id = %(t)s::uuid AND x.subject_id = %(s)s::uuid),
  (SELECT count(*) FROM memory_episode x JOIN memory_payload p ON p.tenant_id = x.tenant_id AND p.id = x.payload_id AND p.ended_at IS NULL
    WHERE x.tenant_id = %(t)s::uuid AND x.subject_id = %(s)s::uuid),
  (SELECT count(*) FROM memory_subjectidentifier x WHERE x.tenant_id = %(t)s::uuid AND x.subject_id = %(s)s::uuid),
  (SELECT count(*) FROM policies_consent x WHERE x.tenant_id = %(t)s::uuid AND x.subject_id = %(s)s::uuid),
  (SELECT count(*) FROM memory_searchentry x WHERE x.tenant_id = %(t)s::uuid AND x.subject_id = %(s)s::uuid),
  (SELECT count(*) FROM memory_derived x WHERE x.tenant_id = %(t)s::uuid AND x.subject_id = %(s)s::uuid AND x.payload_id IS NOT NULL),
  (SELECT count(*) FROM memory_payload x JOIN memory_subject s ON s.tenant_id = x.tenant_id AND s.id = %(s)s::uuid
    WHERE x.tenant_id = %(t)s::uuid AND x.key_id = s.key_id AND x.ended_at IS NULL)
"""
STORES = (
    "facts", "evidence", "stretches", "candidates", "episodes", "texts", "names", "consents", "search_entries", "derived", "content",
)  # fmt: skip
#: What may be left without content and without anybody's name: rows that others' evidence cites.
_MAY_BE_STUBS = frozenset({"episodes", "consents"})


def left(tenant: UUID, subject: UUID) -> dict[str, int]:
    """Search every store for what is left of a subject. Under `Role.WORKER`."""
    (row,) = rows.fetch(_LEFT_OF, {"t": tenant, "s": subject})
    return dict(zip(STORES, row, strict=True))


def _key(at: _Work, after: str | None) -> _Came:
    """Destroy the data key, where nothing that it seals is kept; remove the subject's row where nothing points at it."""
    found = left(at.tenant, at.subject)
    if found["content"]:
        return _Came()
    if not rows.fetch(_SUBJECT, [at.tenant, at.subject]):
        return _Came(None, {"data_keys": 1})
    overwritten = removal.overwrite_data_key(at.tenant, at.subject)
    removal.remove_subject(at.tenant, at.subject, lambda kind, ids: holds.named_by_scopes(at.tenant, ids))
    return _Came(None, {"data_keys": overwritten} if overwritten else {})


def _verify(at: _Work, after: str | None) -> _Came:
    """Search once more, in a snapshot of its own; what is found is counted, and keeps the run from being called done."""
    found = left(at.tenant, at.subject)
    return _Came(None, {f"left_{name}": count for name, count in found.items() if count})


def _certify(at: _Work, after: str | None) -> _Came:
    """Sign what was done, by which method, and what it does not reach; end the run; have the recipients told."""
    found = left(at.tenant, at.subject)
    content = {name: count for name, count in found.items() if count and name not in _MAY_BE_STUBS}
    is_held = at.run.refused_by_hold > 0
    state = "done" if not content else "held" if is_held else "failed"
    open_items = _open_items(at)
    destroyed = bool(at.run.counts.get("data_keys")) and not found["content"]
    body = {
        "subject": at.subject,
        "erasure": None if at.erasure is None else at.erasure.id,
        "outcome": state,
        "decided_at": None if at.erasure is None else at.run.started_at,
        "removed": {name: count for name, count in sorted(at.run.counts.items()) if not name.startswith("left_")},
        "left": found,
        "kept": {"held": at.run.refused_by_hold},
        "methods": {
            "content": "overwritten_then_row_removed",
            "derived": "deleted",
            "names": "overwritten_then_row_removed",
            "data_key": "overwritten_then_row_removed" if destroyed else "kept",
        },
        "key": {
            "state": "pending_rotation" if destroyed else "in_use",
            "version": _key_version(at.tenant),
        },
        # What is in the database's own files until they are written over, in its log, replicas and backups.
        "not_reached": [
            *(["sealed_content_in_backups_until_rotation"] if destroyed else []),
            "clear_content_in_files_until_maintenance",
            "clear_content_in_backups_until_they_age_out",
        ],
        "with_a_person": open_items,
        "recipients": _count_recipients(at),
        "verified_at": at.now,
    }
    certificate = certificates.issue(at.actor, "erasure", at.run, body, at.now)
    if at.erasure is not None:
        rows.execute(
            "UPDATE retention_erasure SET state = %s, certificate_id = %s::uuid, finished_at = %s::timestamptz"
            " WHERE tenant_id = %s::uuid AND id = %s::uuid",
            [state, certificate.id, at.now if state == "done" else None, at.tenant, at.erasure.id],
        )
        waiting = rows.fetch(
            "SELECT n.id FROM retention_notice n WHERE n.tenant_id = %s::uuid AND n.erasure_id = %s::uuid AND n.state = 'waiting'",
            [at.tenant, at.erasure.id],
        )
        outbox.put(at.tenant, "notice.send", [row[0] for row in waiting])
    if state == "done":
        runs.finish(at.actor, at.run)
    else:
        runs.finish(at.actor, at.run, "stopped" if is_held else "failed", code="held" if is_held else "left_over")
    return _Came()


def _key_version(tenant: UUID) -> int:
    from tenants.secrets import provider

    return provider().tenant_key(tenant)[0]


def _open_items(at: _Work) -> dict[str, int]:
    if at.erasure is None:
        return {"mention": 0, "fact": 0}
    found = rows.fetch(
        "SELECT i.kind, count(*) FROM retention_erasureitem i WHERE i.tenant_id = %s::uuid AND i.erasure_id = %s::uuid"
        " AND i.state = 'open' GROUP BY 1",
        [at.tenant, at.erasure.id],
    )
    return {"mention": 0, "fact": 0, **dict(found)}


def _count_recipients(at: _Work) -> int:
    if at.erasure is None:
        return 0
    count: int = rows.fetch(
        "SELECT count(DISTINCT n.agent_id) FROM retention_notice n WHERE n.tenant_id = %s::uuid AND n.erasure_id = %s::uuid",
        [at.tenant, at.erasure.id],
    )[0][0]
    return count


def _exports(at: _Work, after: str | None) -> _Came:
    """End what was packed for the subject: it holds everything that ends here."""
    count = access.end_of_subject(at.tenant, at.subject)
    return _Came(None, {"exports": count} if count else {})


#: The steps in their order; each is entered again where a process was cut off in it.
_STEPS: tuple[tuple[str, Callable[[_Work, str | None], _Came]], ...] = (
    ("recipients", _recipients),
    ("mentions", _mentions),
    ("facts", _facts),
    ("candidates", _candidates),
    ("episodes", _episodes),
    ("rows_of_candidates", _rows_of_candidates),
    ("rows_of_facts", _rows_of_facts),
    ("rows_of_episodes", _rows_of_episodes),
    ("exports", _exports),
    ("consents", _consents),
    ("names", _names),
    ("key", _key),
    ("verify", _verify),
    ("certify", _certify),
)
_PLACES = {name: place for place, (name, _) in enumerate(_STEPS)}
STEPS = tuple(name for name, _ in _STEPS)


# what was left to a person --------------------------------------------------------------------------------------------


_ITEM = """
SELECT i.erasure_id, i.kind, i.target_id, i.spans FROM retention_erasureitem i
WHERE i.tenant_id = %s::uuid AND i.id = %s::uuid AND i.state = 'open' FOR UPDATE
"""
_ITEM_DECIDED = """
UPDATE retention_erasureitem SET state = %s, reason = %s, decided_by = %s::uuid, decided_at = %s::timestamptz
WHERE tenant_id = %s::uuid AND id = %s::uuid
"""


def decide_item(
    actor: Actor, item: UUID, *, keep: bool, reason: str, now: datetime, proposed: bool = False
) -> UUID | None:
    """Decide on what an erasure left: another's fact is kept on a ground, or ended; a mention is kept, or is to be redacted.

    A mention that is to be redacted is proposed for it by this act, with the spans in which the text names the subject, and
    hidden from then on; another person decides on that. Returns the proposal; None where there is none, also where the text
    says none of the names any more, or where the caller has `proposed` a redaction of it already. In the caller's transaction under `Role.STAFF`. Raises `Missing`, `Forbidden`, `Refused`,
    `Clash("held")`, and what `redaction.propose` raises.
    """
    if actor.kind is not ActorKind.PERSON:
        raise Forbidden("a_person_decides")
    _require_officer(actor)
    if reason not in ITEM_REASONS:
        raise Refused("erasure_refused", errors=[FieldError("reason", "not_in_enum")])
    holds.share(actor.tenant)
    found = rows.fetch(_ITEM, [actor.tenant, item])
    if not found:
        raise Missing
    erasure, kind, target, places = found[0]
    proposal: UUID | None = None
    if kind == "mention" and not keep and places and not proposed:
        spans = tuple(zip(places[::2], places[1::2], strict=True))
        pick = redaction.Pick(kind=redaction.Kind.EPISODE, target=target, spans=spans)
        proposal = redaction.propose(actor, [pick], reason="third_party", now=now).id
    if kind == "fact" and not keep:
        with borrowed(Role.WORKER, back_to=Role.STAFF):
            if not holds.free_facts(actor.tenant, [target], "erased", actor=actor, act="erasure"):
                raise Clash("held")
            removal.end_facts(actor.tenant, [target], "erased", now)
    rows.execute(_ITEM_DECIDED, ["kept" if keep else "ended", reason, actor.id, now, actor.tenant, item])
    append(
        [
            _event(
                actor,
                Action.ERASURE_ITEM_DECIDED,
                erasure,
                reason,
                kept=int(keep),
                proposed=int(proposed or proposal is not None),
            )
        ]
    )
    return proposal
