"""Procedures: proposing a version, deciding on it, making it the active one, taking it back; and reading the active one.

A version never changes. Two persons stand behind every one that agents act by: whoever proposes it (or the agent that
does), and an approver who is somebody else. What is refused here with a code the database refuses as well
(`memory/migrations/0024_procedures_guarded.sql`); what an agent's role may see at all is said there too.

`propose` and `show` need `Role.WRITER`, `active` and `listed` the agent's role or no open transaction, everything else
`Role.STAFF` with the person in the transaction.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import connection

from memory import idempotency, outbox, rows
from memory.contracts import ProcedureVersionBody
from memory.detecting import counted
from memory.models import Procedure, ProcedureVersion
from memory.outcomes import Proposed, Repeat
from memory.rows import fetch, look_up
from memory.subjects import opened, payload_context
from policies import approvals
from policies.approvals import Act, Answer, Asked
from policies.detection import Group, detect
from policies.identifiers import looks_like_identifier
from policies.models import Decision, DecisionRequest
from policies.vocabulary import Sensitivity
from tenants.actors import Actor, ActorKind, MemberRole
from tenants.audit import Action, Event, append
from tenants.errors import Clash, FieldError, Forbidden, Malformed, Missing, Problem, Refused
from tenants.identity import new_id
from tenants.isolation import Proof, Role, alone, borrowed, tenant_transaction
from tenants.models import Agent, User
from tenants.secrets import keyring

#: The purpose of the payload that holds a version's text.
PURPOSE = "procedure"
#: The outbox's topic of a version that is to become active at a time.
TOPIC = "procedure.activate"
#: Why an active version is taken back or deactivated. Codes, since words would be content.
ENDING_REASONS = ("harmful", "wrong", "not_needed", "under_review", "other")

_RANKS = {"tenant": 0, "purpose": 1, "agent": 2}
# A word of illness or belief says something of a person only beside a person: an instruction may hold it.
_NOT_LOOKED_FOR = frozenset({Group.SPECIAL})
_TARGET = "procedureversion"


class BaseMoved(Clash):
    """Another version is active by now than the one that a proposal was made against: `active`, or none."""

    code = "base_moved"

    def __init__(self, active: UUID | None) -> None:
        super().__init__(errors=[FieldError("base", "base_moved")])
        self.active = active


# proposing ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Text:
    """A proposed text as detection read it."""

    body: str
    sensitivity: int
    detected: tuple[str, ...]


def propose(
    actor: Actor, name: str, body: ProcedureVersionBody, *, now: datetime, repeat: Repeat | None = None
) -> Proposed:
    """Propose a version of a procedure, and ask for its approval; a name that is new makes its procedure.

    Nothing is active by it, and no agent reads it. A text that already waits for the same scope is joined, with the new
    evidence; one that is active already changes nothing. Needs `Role.WRITER`, and leaves it as it was. Raises `Refused`
    for a text that holds a credential or is restricted, a scope or a piece of evidence that the actor may not name, and
    for a way back that is none; `BaseMoved` where `body.base` is not what is active for the scope.
    """
    earlier = None if repeat is None else idempotency.earlier(actor, repeat)
    if earlier is not None:
        assert isinstance(earlier[0], Proposed)
        return earlier[0]
    if looks_like_identifier(name) is not None:
        raise Malformed(errors=[FieldError("name", "personal_identifier")])
    text = _read(body)
    with borrowed(Role.STAFF, back_to=Role.WRITER):
        agent = _scope(actor, body.scope)
        procedure = _procedure(actor, name, now=now)
        _lock(actor.tenant, procedure.id)
        versions = list(
            ProcedureVersion.objects.filter(
                tenant_id=actor.tenant, procedure_id=procedure.id, scope=body.scope, state__in=("proposed", "active")
            ).order_by("number")
        )
    base = next((each for each in versions if each.state == "active"), None)
    _require_named_base(body, base)
    _require_evidence(actor, body)
    same = next((each for each in versions if _texts(actor.tenant, [each.id]).get(each.id) == text.body), None)
    number = new_id() if same is None else same.id
    sealed = _seal(actor.tenant, text, now=now) if same is None else None
    outcome = "proposed" if same is None else "joined" if same.state == "proposed" else "unchanged"
    proposed = Proposed(version=number, outcome=outcome, receipt=_leave(actor, number))
    if repeat is not None:
        idempotency.keep(actor, repeat, [proposed], status=proposed.status, now=now)
    with borrowed(Role.STAFF, back_to=Role.WRITER):
        if sealed is not None:
            version = _insert(actor, _row(actor, number, procedure, body, text, sealed, agent, base, now=now))
            _name_evidence(actor, version, body)
            _ask(actor, version, reason="new_need", now=now)
        elif same is not None and outcome == "joined":
            _name_evidence(actor, same, body)
            _tell(actor, Action.PROCEDURE_JOINED, same, "same_text")
    return proposed


def _read(body: ProcedureVersionBody) -> _Text:
    """Return the text with the class that it has. What is hidden or speaks to the agent is marked, and kept as it is."""
    findings = detect(body.body, omit=_NOT_LOOKED_FOR)
    if any(each.group is Group.CREDENTIAL for each in findings):
        raise Refused("credential", errors=[FieldError("body", "credential")])
    raised = max((each.raises for each in findings), default=Sensitivity.PUBLIC)
    level = max(body.sensitivity or Sensitivity.INTERNAL, raised)
    if level > Sensitivity.PERSONAL:
        raise Refused("class_too_high", errors=[FieldError("sensitivity", "class_too_high")])
    return _Text(body.body, int(level), tuple(sorted({each.detector for each in findings})))


def _scope(actor: Actor, scope: str) -> UUID | None:
    """Return the agent that a scope names. An agent proposes for everybody, for its own purposes, and for itself."""
    kind, _, name = scope.partition(":")
    refused = Refused("scope_refused", errors=[FieldError("scope", "scope_refused")])
    if kind == "agent":
        found = Agent.objects.filter(tenant_id=actor.tenant, name=name).first()
        if found is None or (actor.kind is ActorKind.AGENT and found.id != actor.id):
            raise refused
        agent: UUID = found.id
        return agent
    if kind == "purpose" and actor.kind is ActorKind.AGENT and actor.purposes and name not in actor.purposes:
        raise refused
    return None


def _procedure(actor: Actor, name: str, *, now: datetime) -> Procedure:
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO memory_procedure (tenant_id, id, name, created_at) VALUES (%s::uuid, %s::uuid, %s, %s)"
            " ON CONFLICT (tenant_id, name) DO NOTHING",
            [actor.tenant, new_id(), name, now],
        )
    # A statement of its own: what another transaction has just made is not in the snapshot of the one that gave way to it.
    return Procedure.objects.get(tenant_id=actor.tenant, name=name)


def _lock(tenant: UUID, procedure: UUID) -> None:
    """Whoever promotes versions of a procedure does so one after the other."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT 1 FROM memory_procedure WHERE tenant_id = %s::uuid AND id = %s::uuid FOR NO KEY UPDATE",
            [tenant, procedure],
        )
        cursor.fetchone()


def _require_named_base(body: ProcedureVersionBody, base: ProcedureVersion | None) -> None:
    active = None if base is None else base.id
    if "base" in body.model_fields_set and body.base != active:
        raise BaseMoved(active)


def _require_evidence(actor: Actor, body: ProcedureVersionBody) -> None:
    """Whoever names an episode or a fact must be able to see it: otherwise naming it would tell that it is there."""
    asked = (("episodes", "memory_episode", body.evidence.episodes), ("facts", "memory_fact", body.evidence.facts))
    role = Role.AGENT if actor.kind is ActorKind.AGENT else Role.STAFF
    with borrowed(role, back_to=Role.WRITER):
        for field, table, ids in asked:
            if not ids:
                continue
            found = fetch(
                f"SELECT x.id FROM {table} x WHERE x.tenant_id = %s::uuid AND x.id = ANY (%s::uuid[])",
                [actor.tenant, list(ids)],
            )
            if len(found) != len(set(ids)):
                raise Refused("unknown_evidence", errors=[FieldError(f"evidence.{field}", "unknown_evidence")])


def _seal(tenant: UUID, text: _Text, *, now: datetime) -> tuple[UUID, bytes]:
    """Keep a text, sealed under a key of its own; return its payload, and its digest under that key."""
    data_key, wrapped, version = keyring().new_data_key(tenant)
    key, payload, plain = new_id(), new_id(), text.body.encode("utf-8")
    row = rows.PayloadRow(
        id=payload,
        purpose=PURPOSE,
        key_id=key,
        clear=None,
        sealed=keyring().seal(data_key, plain, payload_context(tenant, payload, PURPOSE)),
        sensitivity=text.sensitivity,
        basis="indefinite",
        expires_at=None,
        consent_ids=None,
        written_at=now,
    )
    kept: list[rows.Rows] = [
        (rows.SUBJECT_KEYS, [rows.SubjectKeyRow(key, wrapped, version, now)]),
        (rows.PAYLOADS, [row]),
    ]
    rows.store(tenant, kept)
    return payload, keyring().digest(data_key, PURPOSE, plain)


def _row(
    actor: Actor,
    number: UUID,
    procedure: Procedure,
    body: ProcedureVersionBody,
    text: _Text,
    sealed: tuple[UUID, bytes],
    agent: UUID | None,
    base: ProcedureVersion | None,
    *,
    now: datetime,
) -> rows.ProcedureVersionRow:
    numbers = ProcedureVersion.objects.filter(tenant_id=actor.tenant, procedure_id=procedure.id)
    base_id = None if base is None else base.id
    row = rows.ProcedureVersionRow(
        id=number,
        procedure_id=procedure.id,
        number=(numbers.order_by("-number").values_list("number", flat=True).first() or 0) + 1,
        scope=body.scope,
        scope_rank=_RANKS[body.scope.partition(":")[0]],
        agent_id=agent,
        payload_id=sealed[0],
        body_digest=sealed[1],
        digest=b"",
        base_id=base_id,
        rollback_id=base_id if body.rollback is None else body.rollback,
        test_kind=body.test.kind,
        test_reference=body.test.reference,
        test_result=body.test.result,
        test_cases=body.test.cases,
        test_passed=body.test.passed,
        detected=rows.words(text.detected),
        sensitivity=text.sensitivity,
        basis="indefinite",
        proposed_by_kind=actor.kind.value,
        proposed_by=actor.id,
        created_at=now,
    )
    return row._replace(digest=_digest(row))


def _insert(actor: Actor, row: rows.ProcedureVersionRow) -> ProcedureVersion:
    _require_way_back(actor.tenant, row)
    rows.PROCEDURE_VERSIONS.insert(actor.tenant, [row])
    version = ProcedureVersion.objects.select_related("procedure").get(tenant_id=actor.tenant, id=row.id)
    _remember(actor, version, "proposed", created=True)
    return version


def _require_way_back(tenant: UUID, row: rows.ProcedureVersionRow) -> None:
    """A way back is a version of the same scope that was active once, and nothing where nothing was active before."""
    if row.rollback_id is None or row.rollback_id == row.base_id:
        return
    found = ProcedureVersion.objects.filter(
        tenant_id=tenant,
        procedure_id=row.procedure_id,
        scope=row.scope,
        id=row.rollback_id,
        state__in=("active", "retired"),
    )
    if row.base_id is None or not found.exists():
        raise Refused("rollback_refused", errors=[FieldError("rollback", "rollback_refused")])


def _digest(row: rows.ProcedureVersionRow) -> bytes:
    """Return what binds an approval: text, scope, what it replaces, by what it was tried, and the way back."""
    bound = {
        "procedure": str(row.procedure_id),
        "number": row.number,
        "scope": row.scope,
        "body": row.body_digest.hex(),
        "sensitivity": row.sensitivity,
        "base": None if row.base_id is None else str(row.base_id),
        "rollback": None if row.rollback_id is None else str(row.rollback_id),
        "test": [row.test_kind, row.test_reference, row.test_result, row.test_cases, row.test_passed],
    }
    return hashlib.sha256(json.dumps(bound, sort_keys=True, separators=(",", ":")).encode("utf-8")).digest()


_NAME = """
INSERT INTO memory_procedureevidence (tenant_id, id, version_id, episode_id, fact_id, named_by, named_at)
SELECT %s::uuid, w.id, %s::uuid, w.episode, w.fact, %s::uuid, clock_timestamp()
FROM unnest(%s::uuid[], %s::uuid[], %s::uuid[]) AS w (id, episode, fact) ON CONFLICT DO NOTHING
"""


def _name_evidence(actor: Actor, version: ProcedureVersion, body: ProcedureVersionBody) -> None:
    named: list[tuple[UUID | None, UUID | None]] = [(each, None) for each in dict.fromkeys(body.evidence.episodes)]
    named += [(None, each) for each in dict.fromkeys(body.evidence.facts)]
    if named:
        episodes, facts = [each for each, _ in named], [each for _, each in named]
        rows.execute(_NAME, [actor.tenant, version.id, actor.id, [new_id() for _ in named], episodes, facts])


def _ask(actor: Actor, version: ProcedureVersion, *, reason: str, now: datetime) -> DecisionRequest:
    asked = approvals.ask(actor, _asked(version), reason=reason, now=now)
    _move(actor, version, "proposed", reason)
    _tell(actor, Action.PROCEDURE_PROPOSED, version, reason, **counted(version.detected))
    return asked


_LEAVE = """
INSERT INTO memory_receipt (tenant_id, id, act, actor_kind, actor_id, at, policy_version_id, verdict, procedure_ids)
VALUES (%s::uuid, %s::uuid, 'procedure.propose', %s, %s::uuid, statement_timestamp(),
  (SELECT v.id FROM policies_policyversion v WHERE v.tenant_id = %s::uuid AND v.state = 'active'), 'ask', ARRAY[%s::uuid])
"""


def _leave(actor: Actor, version: UUID) -> UUID:
    receipt = new_id()
    rows.execute(_LEAVE, [actor.tenant, receipt, actor.kind.value, actor.id, actor.tenant, version])
    return receipt


def propose_again(actor: Actor, version: UUID, *, reason: str, now: datetime) -> ProcedureVersion:
    """Ask anew for a version that was sent back, taken back or never decided, on the base that it was made against.

    Raises `Clash("not_a_draft")`, `Clash("base_moved")`, and what `approvals.ask` raises.
    """
    found = _held(actor, version)
    if found.state != "draft":
        raise Clash("not_a_draft")
    _require_base(found)
    _ask(actor, found, reason=reason, now=now)
    return found


def take_back(actor: Actor, version: UUID, *, now: datetime) -> ProcedureVersion:
    """Take back one's own proposal, or let one go whose time is over: it is a draft again.

    Raises what `approvals.withdraw` raises, `Clash("not_proposed")` where nothing waits.
    """
    found = _held(actor, version)
    if found.state not in ("proposed", "approved"):
        raise Clash("not_proposed")
    question = _question(found)
    if question is not None and not approvals.lapse(actor, question.id, now=now):
        if found.state == "approved":
            raise Clash("already_decided")
        approvals.withdraw(actor, question.id, now=now)
    _move(actor, found, "draft", "withdrawn")
    _tell(actor, Action.PROCEDURE_RETURNED, found, "withdrawn")
    return found


# deciding -------------------------------------------------------------------------------------------------------------


def decide(
    actor: Actor, version: UUID, answer: Answer, *, shown: bytes, reason: str, now: datetime
) -> tuple[ProcedureVersion, Decision]:
    """Decide on another's proposal as it was shown: `shown` is the digest that stood on the page.

    Approved, it may be made active while the approval lasts; nothing is active by it. Of two who decide at once one does,
    and the other gets `Clash("already_decided")`. Raises what `approvals.decide` raises, and for an approval what stands
    against the promotion: `Clash("base_moved")`, `Clash("test_not_passed")`, `Clash("text_ended")`,
    `Clash("rollback_gone")`.
    """
    found = _held(actor, version)
    question = DecisionRequest.objects.filter(
        tenant_id=actor.tenant, act=Act.PROMOTE_PROCEDURE.value, target_id=found.id
    ).order_by("-requested_at", "-id")
    newest = question.first()
    if newest is None:
        raise Clash("not_proposed")
    if bytes(found.digest) != shown:
        raise Clash("changed_since_shown")
    _, decision = approvals.decide(actor, newest.id, answer, shown=shown, reason=reason, now=now)
    if answer is Answer.APPROVE:
        _require_conditions(found)
    state, action = _ANSWERED[answer]
    _move(actor, found, state, reason)
    _tell(actor, action, found, reason, delegated=decision.delegation_id is not None)
    return found, decision


_ANSWERED = {
    Answer.APPROVE: ("approved", Action.PROCEDURE_APPROVED),
    Answer.REFUSE: ("refused", Action.PROCEDURE_REFUSED),
    Answer.RETURN: ("draft", Action.PROCEDURE_RETURNED),
}


def activate(actor: Actor, version: UUID, *, shown: bytes, now: datetime) -> ProcedureVersion:
    """Make an approved version the active one of its scope, and retire the one before it, in one act.

    The approval is used up. Every condition is looked at again: raises what `decide` raises for an approval,
    `Clash("not_approved")`, `Forbidden("role_missing")` for whoever is no approver.
    """
    found = _held(actor, version)
    _require_approver(actor)
    if bytes(found.digest) != shown:
        raise Clash("changed_since_shown")
    return _activate(actor, found)


def activate_at(actor: Actor, version: UUID, at: datetime | None, *, shown: bytes, now: datetime) -> ProcedureVersion:
    """Have an approved version become active at an instant, while its approval lasts; None takes the time away again.

    It happens in the name of whoever set the time, and every condition is looked at then. Raises `Clash("not_approved")`,
    `Refused` for an instant that is past or after the approval, `Forbidden("role_missing")`.
    """
    found = _held(actor, version)
    _require_approver(actor)
    if bytes(found.digest) != shown:
        raise Clash("changed_since_shown")
    if found.state != "approved":
        raise Clash("not_approved")
    question = _question(found)
    if at is not None and (question is None or not now < at < question.expires_at):
        raise Refused("time_refused", errors=[FieldError("activate_at", "out_of_range")])
    _schedule(actor, found, at)
    if at is None:
        _tell(actor, Action.PROCEDURE_UNSCHEDULED, found, "none")
        return found
    with borrowed(Role.WRITER, back_to=Role.STAFF):
        rows.OUTBOX.insert(actor.tenant, [rows.OutboxRow(new_id(), TOPIC, found.id, at, now)])
    _tell(actor, Action.PROCEDURE_SCHEDULED, found, "none", seconds=int((at - now).total_seconds()))
    return found


def activate_due(tenant: UUID, version: UUID) -> outbox.Settled | outbox.GivenUp:
    """Make a version active whose time has come (the outbox's work). Opens its own transactions; harmless when repeated.

    A condition that no longer holds takes the time away and is audited as such; the version stays approved.
    """
    with tenant_transaction(Role.STAFF, tenant=tenant):
        found = ProcedureVersion.objects.filter(tenant_id=tenant, id=version).first()
        if found is None or found.activate_at is None or found.state != "approved" or not _past(found.activate_at):
            return outbox.Settled.DONE
        by = found.scheduled_by
        assert by is not None
    actor = Actor(kind=ActorKind.PERSON, id=by, tenant=tenant)
    try:
        with tenant_transaction(Role.STAFF, tenant=tenant, actor=by):
            held = _held(actor, version)
            if held.activate_at is None or held.scheduled_by != by or not _past(held.activate_at):
                return outbox.Settled.DONE
            _require_approver(actor)
            _activate(actor, held, scheduled=True)
    except Problem as problem:
        with tenant_transaction(Role.STAFF, tenant=tenant, actor=by):
            held = _held(actor, version)
            if held.activate_at is not None:
                _schedule(actor, held, None)
                _tell(actor, Action.PROCEDURE_UNSCHEDULED, held, problem.code)
        return outbox.GivenUp(problem.code)
    return outbox.Settled.DONE


def roll_back(actor: Actor, version: UUID, *, shown: bytes, reason: str, now: datetime) -> ProcedureVersion:
    """Take an active version back: what its way back names is active again, to the letter, in the same act.

    A first version is deactivated. One approver suffices: two stood behind what comes back. Returns what is active then,
    or the deactivated version. Raises `Clash("not_active")`, `Clash("rollback_gone")` where the text of the way back may
    no longer be kept (deactivate it instead), `Forbidden("role_missing")`.
    """
    found = _held(actor, version)
    _require_approver(actor)
    _require_ending(found, shown, reason)
    if found.rollback_id is None:
        return _retire(actor, found, "deactivated", reason)
    if not _intact(found.tenant_id, found.rollback_id):
        raise Clash("rollback_gone")
    _retire(actor, found, "rolled_back", reason)
    former = ProcedureVersion.objects.select_related("procedure").get(tenant_id=actor.tenant, id=found.rollback_id)
    _move(actor, former, "active", "roll_back")
    _tell(actor, Action.PROCEDURE_ACTIVATED, former, "roll_back", number=former.number)
    return former


def deactivate(actor: Actor, version: UUID, *, shown: bytes, reason: str, now: datetime) -> ProcedureVersion:
    """Have nothing active in a version's scope any more. Raises as `roll_back` does."""
    found = _held(actor, version)
    _require_approver(actor)
    _require_ending(found, shown, reason)
    return _retire(actor, found, "deactivated", reason)


def _activate(actor: Actor, found: ProcedureVersion, *, scheduled: bool = False) -> ProcedureVersion:
    if found.state != "approved":
        raise Clash("not_approved")
    _require_conditions(found)
    approvals.carry_out(actor, _asked(found))
    if found.base_id is not None:
        former = ProcedureVersion.objects.select_related("procedure").get(tenant_id=actor.tenant, id=found.base_id)
        _retire(actor, former, "replaced", "replaced")
    _move(actor, found, "active", "activated")
    _tell(actor, Action.PROCEDURE_ACTIVATED, found, "none", number=found.number, scheduled=scheduled)
    return found


def _retire(actor: Actor, version: ProcedureVersion, because: str, reason: str) -> ProcedureVersion:
    _move(actor, version, "retired", reason, because=because)
    _tell(actor, Action.PROCEDURE_RETIRED, version, reason, **{because: True})
    return version


# what stands against it -----------------------------------------------------------------------------------------------


def _require_conditions(version: ProcedureVersion) -> None:
    """What a promotion needs, at the approval and again at the activation."""
    _require_base(version)
    if version.test_reference is None or version.test_result != "passed":
        raise Clash("test_not_passed")
    if not _intact(version.tenant_id, version.id):
        raise Clash("text_ended")
    if version.rollback_id is not None and not _intact(version.tenant_id, version.rollback_id):
        raise Clash("rollback_gone")


def _require_base(version: ProcedureVersion) -> None:
    in_force = in_force_for(version)
    if (None if in_force is None else in_force.id) != version.base_id:
        raise Clash("base_moved")


def _intact(tenant: UUID, version: UUID) -> bool:
    """Whether a text is there and may be kept: nobody acts by what has ended, or is about to."""
    with borrowed(Role.WRITER, back_to=Role.STAFF):
        return bool(fetch(_INTACT, [tenant, version]))


_INTACT = """
SELECT v.id FROM memory_procedureversion v JOIN memory_payload p ON p.tenant_id = v.tenant_id AND p.id = v.payload_id
WHERE v.tenant_id = %s::uuid AND v.id = %s::uuid AND v.redaction_state = 'none' AND p.redaction_state = 'none'
  AND p.sealed IS NOT NULL
"""


def _require_approver(actor: Actor) -> None:
    if not approvals.holds_role(actor, MemberRole.APPROVER):
        raise Forbidden("role_missing")


def _require_ending(version: ProcedureVersion, shown: bytes, reason: str) -> None:
    if reason not in ENDING_REASONS:
        raise Refused("decision_refused", errors=[FieldError("reason", "not_in_enum")])
    if version.state != "active":
        raise Clash("not_active")
    if bytes(version.digest) != shown:
        raise Clash("changed_since_shown")


def _past(instant: datetime) -> bool:
    # By the database's clock, which is the one that decides.
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp() >= %s", [instant])
        row = cursor.fetchone()
    return bool(row and row[0])


# rows -----------------------------------------------------------------------------------------------------------------


def _held(actor: Actor, version: UUID) -> ProcedureVersion:
    """Return a version as it stands under the lock of its procedure. Raises `Missing`."""
    named = ProcedureVersion.objects.filter(tenant_id=actor.tenant, id=version)
    procedure = named.values_list("procedure_id", flat=True).first()
    if procedure is None:
        raise Missing
    _lock(actor.tenant, procedure)
    # A statement after the lock: what the former holder did is in its snapshot.
    return named.select_related("procedure").get()


def _asked(version: ProcedureVersion) -> Asked:
    return Asked(Act.PROMOTE_PROCEDURE, _TARGET, version.id, bytes(version.digest))


def _question(version: ProcedureVersion) -> DecisionRequest | None:
    return DecisionRequest.objects.filter(
        tenant_id=version.tenant_id,
        act=Act.PROMOTE_PROCEDURE.value,
        target_id=version.id,
        state__in=("pending", "approved"),
    ).first()


_MOVING = ("activate_at", "scheduled_by", "activated_at", "activated_by", "retired_at", "retired_by", "retired_because")
_MOVE = f"""
UPDATE memory_procedureversion v SET state = %s, activate_at = %s, retired_because = %s
WHERE v.tenant_id = %s::uuid AND v.id = %s::uuid RETURNING v.state, {", ".join(_MOVING)}
"""


def _schedule(actor: Actor, version: ProcedureVersion, at: datetime | None) -> None:
    _moved(version, version.state, at, version.retired_because)
    _remember(actor, version, "scheduled" if at is not None else "unscheduled")


def _move(actor: Actor, version: ProcedureVersion, state: str, reason: str, *, because: str | None = None) -> None:
    _moved(version, state, None, because)
    _remember(actor, version, reason)


def _moved(version: ProcedureVersion, state: str, at: datetime | None, because: str | None) -> None:
    # Who moved it and when is filled by the database.
    found = fetch(_MOVE, [state, at, because, version.tenant_id, version.id])
    for name, value in zip(("state", *_MOVING), found[0], strict=True):
        setattr(version, name, value)


def _remember(actor: Actor, version: ProcedureVersion, reason: str, *, created: bool = False) -> None:
    version._history_user = User(id=actor.id) if actor.kind is ActorKind.PERSON else None  # type: ignore[attr-defined]
    version._change_reason = reason  # type: ignore[attr-defined]
    ProcedureVersion.history.bulk_history_create([version], update=not created)


def _tell(actor: Actor, action: Action, version: ProcedureVersion, reason: str, **numbers: int | float | bool) -> None:
    append(
        [
            Event(
                actor=actor,
                action=action,
                target_kind=_TARGET,
                target_id=version.id,
                reason=reason,
                digest=bytes(version.digest),
                numbers=dict(numbers),
            )
        ]
    )


# reading the active one -----------------------------------------------------------------------------------------------

_NAMED = look_up("q", "memory_procedure", "x.name = %(name)s::text", columns="x.id")
# The most specific scope that applies is found first, its text joined under row-level security after it: of a text that is
# hidden nothing comes, and nothing of a wider scope in its place.
_VERSION = (
    " CROSS JOIN LATERAL (SELECT x.id, x.number, x.scope, x.scope_rank, x.sensitivity, x.digest, x.payload_id, x.base_id,"
    " x.detected, x.activated_at, x.activated_by, x.proposed_by_kind, x.proposed_by, x.redaction_state, x.redaction_fields,"
    " x.test_kind, x.test_reference, x.test_result, x.test_cases, x.test_passed FROM memory_procedureversion x"
    " WHERE x.tenant_id = t.tenant AND x.procedure_id = q.id AND x.state = 'active'"
    " AND (x.scope = ANY (%(scopes)s::text[]) OR %(own)s::boolean AND x.agent_id = %(reader)s::uuid)"
    " ORDER BY x.scope_rank DESC LIMIT 1) v"
)
_TEXT = look_up(
    "p",
    "memory_payload",
    "x.id = v.payload_id AND v.redaction_state = 'none'",
    columns="x.id, x.sealed, x.key_id",
    outer=True,
) + look_up("k", "tenants_subjectkey", "x.id = p.key_id", columns="x.wrapped, x.version", outer=True)
_ACTIVE = " ".join(
    f"""
WITH t AS MATERIALIZED (SELECT %(tenant)s::uuid AS tenant), answer AS MATERIALIZED (
  SELECT v.id, v.number, v.scope, v.sensitivity, v.digest, v.base_id, v.detected, v.activated_at, v.activated_by,
    v.proposed_by_kind, v.proposed_by, v.redaction_state, v.redaction_fields, v.test_kind, v.test_reference, v.test_result,
    v.test_cases, v.test_passed, p.id AS payload, p.sealed, k.wrapped, k.version
  FROM t{_NAMED}{_VERSION}{_TEXT} WHERE p.id IS NOT NULL OR v.redaction_state = 'applied'
), left_behind AS (
  INSERT INTO memory_receipt (tenant_id, id, act, actor_kind, actor_id, at, procedure_ids, policy_version_id)
  SELECT %(tenant)s::uuid, %(receipt)s::uuid, 'procedure.read', %(actor_kind)s::text, %(reader)s::uuid, statement_timestamp(),
    ARRAY[answer.id], (SELECT y.id FROM policies_policyversion y WHERE y.tenant_id = %(tenant)s::uuid AND y.state = 'active')
  FROM answer
) SELECT * FROM answer""".split()
)


def active(actor: Actor, name: str, *, scope: str | None = None, proof: Proof | None = None) -> dict[str, Any]:
    """Return the version of a procedure that an agent acts by, with its text, and leave a receipt.

    Of the scopes that apply to the reader the most specific answers: itself, the purpose that `scope` names, the tenant.
    `scope` of `tenant` asks for that alone. What is hidden gives `Missing`, as does what is not approved and what is not
    there; what was redacted a tombstone. One statement, in a transaction of its own where none is open. Raises
    `Forbidden("purpose_not_allowed")` for a purpose that the agent does not have.
    """
    named = scope or "tenant"
    if named.startswith("purpose:") and actor.purposes and named.partition(":")[2] not in actor.purposes:
        raise Forbidden("purpose_not_allowed")
    receipt = new_id()
    asked = {
        "tenant": actor.tenant,
        "name": name,
        "scopes": list(dict.fromkeys(("tenant", named))),
        "own": scope is None or named.startswith("purpose:"),
        "reader": actor.id,
        "actor_kind": actor.kind.value,
        "receipt": receipt,
    }
    found = _asked_once(actor, _ACTIVE, asked, proof)
    if not found:
        raise Missing
    row = found[0]
    body = None if row[18] is None else opened(actor.tenant, row[18], PURPOSE, None, *row[19:22])
    return {
        "id": row[0],
        "procedure": name,
        "number": row[1],
        "scope": row[2],
        "body": body,
        "sensitivity": Sensitivity(row[3]).label,
        "digest": bytes(row[4]).hex(),
        "base": row[5],
        "detected": row[6],
        "activated_at": row[7],
        "activated_by": row[8],
        "proposed_by": {"kind": row[9], "id": row[10]},
        "test": _test(row[13:18]),
        "redaction": {"state": row[11], "fields": row[12]},
        "receipt": receipt,
    }


def _asked_once(actor: Actor, sql: str, asked: Mapping[str, Any], proof: Proof | None) -> list[tuple[Any, ...]]:
    if connection.in_atomic_block and proof is None:
        return fetch(sql, asked)
    whose = {"tenant": actor.tenant, "clearance": actor.clearance, "actor": actor.id}
    return alone(Role.AGENT, sql, asked, **whose, durable=False, proof=proof)  # type: ignore[arg-type]


def _test(row: Sequence[Any]) -> dict[str, Any] | None:
    kind, reference, result, cases, passed = row
    if reference is None:
        return None
    return {"kind": kind, "reference": reference, "result": result, "cases": cases, "passed": passed}


#: What a page of a list holds.
PAGE = 200
_LISTED = """
SELECT q.name, v.scope, v.number, v.id, v.sensitivity, v.activated_at
FROM memory_procedureversion v JOIN memory_procedure q ON q.tenant_id = v.tenant_id AND q.id = v.procedure_id
WHERE v.tenant_id = %(tenant)s::uuid AND v.state = 'active' AND v.sensitivity <= %(clearance)s AND v.redaction_state = 'none'
  AND (%(after)s::uuid IS NULL OR v.id > %(after)s::uuid)
ORDER BY v.id LIMIT %(limit)s
"""


def listed(actor: Actor, *, cursor: str | None, limit: int) -> dict[str, Any]:
    """Return which procedures are active for the reader, without their texts. Needs the agent's role."""
    given = {"tenant": actor.tenant, "clearance": actor.clearance, "after": _after(cursor), "limit": limit + 1}
    found = fetch(_LISTED, given)
    names = ("procedure", "scope", "number", "id", "sensitivity", "activated_at")
    results = [dict(zip(names, row, strict=True)) for row in found[:limit]]
    for each in results:
        each["sensitivity"] = Sensitivity(each["sensitivity"]).label
    following = str(results[-1]["id"]) if len(found) > limit else None
    return {"results": results, "next": following, "previous": None}


_PROPOSALS = """
SELECT v.id, v.number, v.scope, v.state, v.sensitivity, v.digest, v.base_id, v.rollback_id, v.detected, v.created_at,
  v.activate_at, v.activated_at, v.retired_at, v.test_kind, v.test_reference, v.test_result, v.test_cases, v.test_passed
FROM memory_procedure q CROSS JOIN LATERAL (SELECT x.* FROM memory_procedureversion x
  WHERE x.tenant_id = q.tenant_id AND x.procedure_id = q.id AND {whose} OFFSET 0) v
WHERE q.tenant_id = %(tenant)s::uuid AND q.name = %(name)s
ORDER BY v.id DESC LIMIT %(limit)s
"""
_OWN = _PROPOSALS.format(
    whose="x.proposed_by = %(actor)s::uuid AND (%(after)s::uuid IS NULL OR x.id < %(after)s::uuid)"
)
_ONE = _PROPOSALS.format(whose="x.id = %(version)s::uuid")


def own(actor: Actor, name: str, *, cursor: str | None, limit: int) -> dict[str, Any]:
    """Return what became of the actor's own proposals for a procedure, newest first, without their texts.

    A procedure that is not there has none. Needs `Role.WRITER`.
    """
    given = {"tenant": actor.tenant, "name": name, "actor": actor.id, "after": _after(cursor), "limit": limit + 1}
    results = [_proposal(name, row) for row in fetch(_OWN, given)]
    following = str(results[limit - 1]["id"]) if len(results) > limit else None
    return {"results": results[:limit], "next": following, "previous": None}


def proposal(actor: Actor, name: str, version: UUID) -> dict[str, Any]:
    """Return a version without its text, as it stands now. Needs `Role.WRITER`. Raises `Missing`."""
    found = fetch(_ONE, {"tenant": actor.tenant, "name": name, "version": version, "limit": 1})
    if not found:
        raise Missing
    return _proposal(name, found[0])


def _proposal(name: str, row: Sequence[Any]) -> dict[str, Any]:
    return {
        "id": row[0],
        "procedure": name,
        "number": row[1],
        "scope": row[2],
        "state": row[3],
        "sensitivity": Sensitivity(row[4]).label,
        "digest": bytes(row[5]).hex(),
        "base": row[6],
        "rollback": row[7],
        "detected": row[8],
        "proposed_at": row[9],
        "activate_at": row[10],
        "activated_at": row[11],
        "retired_at": row[12],
        "test": _test(row[13:18]),
    }


def _after(cursor: str | None) -> UUID | None:
    if cursor is None:
        return None
    try:
        return UUID(cursor)
    except ValueError:
        raise Malformed(errors=[FieldError("cursor", "not_a_cursor")]) from None


# what members see -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ShownProcedure:
    """A version's text and that of the one it would replace. None: there is none, or it has ended."""

    body: str | None
    base: str | None


_BODIES = """
SELECT v.id, p.id, p.sealed, k.wrapped, k.version FROM memory_procedureversion v
  JOIN memory_payload p ON p.tenant_id = v.tenant_id AND p.id = v.payload_id AND p.redaction_state = 'none' AND NOT p.restricted
  JOIN tenants_subjectkey k ON k.tenant_id = p.tenant_id AND k.id = p.key_id
WHERE v.tenant_id = %s::uuid AND v.id = ANY (%s::uuid[]) AND p.sealed IS NOT NULL
"""


def _texts(tenant: UUID, versions: Sequence[UUID]) -> dict[UUID, str]:
    return {
        version: opened(tenant, payload, PURPOSE, None, sealed, wrapped, key_version)
        for version, payload, sealed, wrapped, key_version in fetch(_BODIES, [tenant, list(versions)])
    }


def show(actor: Actor, version: UUID) -> ShownProcedure:
    """Return in clear what a decision is about: the text, and what is active for its scope (or what it replaced).

    The audit chain says that it was shown. Needs `Role.WRITER`. Raises `Forbidden("a_person_decides")` for any actor that
    is not a person, `Missing`.
    """
    if actor.kind is not ActorKind.PERSON:
        raise Forbidden("a_person_decides")
    found = fetch(
        "SELECT v.digest, v.base_id FROM memory_procedureversion v WHERE v.tenant_id = %s::uuid AND v.id = %s::uuid",
        [actor.tenant, version],
    )
    if not found:
        raise Missing
    digest, base = found[0]
    texts = _texts(actor.tenant, [version, *([] if base is None else [base])])
    append(
        [
            Event(
                actor=actor,
                action=Action.CONTENT_SHOWN,
                target_kind=_TARGET,
                target_id=version,
                digest=bytes(digest),
                numbers={"texts": len(texts)},
            )
        ]
    )
    return ShownProcedure(texts.get(version), None if base is None else texts.get(base))


def in_force_for(version: ProcedureVersion) -> ProcedureVersion | None:
    """Return what is active for a version's scope. Needs `Role.STAFF`."""
    return ProcedureVersion.objects.filter(
        tenant_id=version.tenant_id, procedure_id=version.procedure_id, scope=version.scope, state="active"
    ).first()


@dataclass(frozen=True, slots=True)
class About:
    """What stands around a version: what it would replace or gave way to, the question about it, and what it rests on."""

    in_force: ProcedureVersion | None
    base: ProcedureVersion | None
    rollback: ProcedureVersion | None
    #: The newest question about it, its decision where there is one, and whether it is open, or an approval to be used.
    question: DecisionRequest | None
    decision: Decision | None
    stands: bool
    #: Another version is active by now than the one that it was made against.
    moved: bool
    episodes: list[UUID]
    facts: list[UUID]
    #: The other versions of the scope, newest first, at most `VERSIONS_SHOWN`.
    others: list[ProcedureVersion]
    readers: list["Reader"]
    names: dict[UUID | None, str]
    #: The version to decide on after this one.
    following: UUID | None


VERSIONS_SHOWN = 30


def about(version: ProcedureVersion, *, now: datetime) -> About:
    """Return what a page shows of a version beside its text. Needs `Role.STAFF`."""
    of_scope = ProcedureVersion.objects.filter(
        tenant_id=version.tenant_id, procedure_id=version.procedure_id, scope=version.scope
    )
    others = list(of_scope.exclude(id=version.id).order_by("-number")[:VERSIONS_SHOWN])
    by_id = {each.id: each for each in others}
    named = [each for each in (version.base_id, version.rollback_id) if each is not None and each not in by_id]
    by_id |= {each.id: each for each in of_scope.filter(id__in=named)}
    question = (
        DecisionRequest.objects.filter(
            tenant_id=version.tenant_id, act=Act.PROMOTE_PROCEDURE.value, target_id=version.id
        )
        .order_by("-requested_at", "-id")
        .first()
    )
    decision = None if question is None else Decision.objects.filter(request_id=question.id).first()
    open_states = {"proposed": ("pending",), "approved": ("approved",)}.get(version.state, ())
    in_force = next((each for each in (version, *others) if each.state == "active"), None) or in_force_for(version)
    evidence = fetch(
        "SELECT episode_id, fact_id FROM memory_procedureevidence WHERE tenant_id = %s AND version_id = %s"
        " ORDER BY id LIMIT 100",
        [version.tenant_id, version.id],
    )
    acted = [version.proposed_by, version.activated_by, version.retired_by, version.scheduled_by]
    people = [each for each in acted if each is not None] + ([] if decision is None else [decision.decided_by])
    names: dict[UUID | None, str] = dict(User.objects.filter(id__in=people).values_list("id", "username"))
    if version.proposed_by_kind == "agent":
        names |= dict(
            Agent.objects.filter(tenant_id=version.tenant_id, id=version.proposed_by).values_list("id", "name")
        )
    waiting = [each.version for each in queue(version.tenant_id, now=now, limit=20) if each.version != version.id]
    return About(
        in_force=in_force,
        base=None if version.base_id is None else by_id.get(version.base_id),
        rollback=None if version.rollback_id is None else by_id.get(version.rollback_id),
        question=question,
        decision=decision,
        stands=question is not None and question.state in open_states and now < question.expires_at,
        moved=version.state in ("draft", "proposed", "approved")
        and (None if in_force is None else in_force.id) != version.base_id,
        episodes=[row[0] for row in evidence if row[0] is not None],
        facts=[row[1] for row in evidence if row[1] is not None],
        others=others,
        readers=readers(version.tenant_id, version.id),
        names=names,
        following=waiting[0] if waiting else None,
    )


@dataclass(frozen=True, slots=True)
class Queued:
    """A version that waits for a decision, as a queue shows it."""

    version: UUID
    procedure: str
    number: int
    scope: str
    sensitivity: int
    detected: tuple[str, ...]
    proposed_by_kind: str
    proposed_by: UUID
    proposed_at: datetime
    #: Until when it may be decided.
    due: datetime
    request: UUID
    digest: bytes
    tested: str
    first: bool


_QUEUE = """
SELECT v.id, q.name, v.number, v.scope, v.sensitivity, v.detected, r.requested_by, r.requested_at, r.expires_at, r.id, v.digest,
  v.test_result, v.base_id IS NULL, v.proposed_by_kind
FROM policies_decisionrequest r
  JOIN memory_procedureversion v ON v.tenant_id = r.tenant_id AND v.id = r.target_id AND v.state = 'proposed'
  JOIN memory_procedure q ON q.tenant_id = v.tenant_id AND q.id = v.procedure_id
WHERE r.tenant_id = %s::uuid AND r.act = 'procedure.promote' AND r.state = 'pending' AND r.expires_at > %s
ORDER BY r.expires_at, r.id LIMIT %s
"""


def queue(tenant: UUID, *, now: datetime, limit: int = 200) -> list[Queued]:
    """Return the versions that wait for a decision, those first that may be decided the shortest. Needs `Role.STAFF`."""
    return [
        Queued(
            version=row[0],
            procedure=row[1],
            number=row[2],
            scope=row[3],
            sensitivity=row[4],
            detected=tuple(row[5]),
            proposed_by_kind=row[13],
            proposed_by=row[6],
            proposed_at=row[7],
            due=row[8],
            request=row[9],
            digest=bytes(row[10]),
            tested=row[11],
            first=row[12],
        )
        for row in fetch(_QUEUE, [tenant, now, limit])
    ]


@dataclass(frozen=True, slots=True)
class Reader:
    """An agent that was handed a version: how often, and when last."""

    name: str
    reads: int
    last: datetime


_READERS = """
SELECT coalesce(max(a.name), ''), count(*), max(r.at)
FROM (SELECT actor_id, at FROM memory_receipt WHERE tenant_id = %s AND procedure_ids @> ARRAY[%s::uuid]
      AND act = 'procedure.read' LIMIT 1000) r
  LEFT JOIN tenants_agent a ON a.tenant_id = %s AND a.id = r.actor_id
GROUP BY r.actor_id ORDER BY 3 DESC LIMIT 20
"""


def readers(tenant: UUID, version: UUID) -> list[Reader]:
    """Return which agents read a version, the newest reader first. Needs `Role.STAFF`."""
    return [Reader(*row) for row in fetch(_READERS, [tenant, version, tenant])]
