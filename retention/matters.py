"""Matters and their holds: opening one, placing a hold on what it concerns, and letting go of it by two people.

Every door runs in the caller's tenant transaction under `Role.STAFF`. Whoever places or asks is a privacy officer, or a
program whose key has the scope `admin`; a release is asked for by a person and approved by another
(`policies.approvals`), bound to the digest of the hold's scopes. What is refused here with a code is refused by the
database as well (`retention/migrations/0003_hold_isolation.sql`).
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any
from uuid import UUID

from memory import rows
from policies import approvals
from policies.approvals import Act, Answer, Asked
from policies.identifiers import looks_like_identifier
from policies.models import Decision, DecisionRequest
from retention import endings_log, holds
from retention.holds import Kind
from retention.models import Hold, HoldScope, Matter
from tenants.actors import Actor, ActorKind, MemberRole, Scope
from tenants.audit import Action, Event, append
from tenants.errors import Clash, FieldError, Forbidden, Missing, Refused
from tenants.models import Membership, User

#: Why a matter keeps memory. Codes, since words would tell of it.
REASONS = ("litigation", "investigation", "audit", "regulator", "claim", "other")
#: Targets of one hold; a matter may have many holds. So many fit into one entry of the endings log.
MAX_SCOPES = 100
_REFERENCE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,59}")
#: Beyond so many of a kind a dry run stops counting.
COUNTED = 10_000


@dataclass(frozen=True, slots=True)
class Target:
    """One scope of a hold: a record alone, or whatever fits all that is named here. Later records that fit are covered too."""

    record_kind: str | None = None
    record_id: UUID | None = None
    subject_id: UUID | None = None
    attribute_id: UUID | None = None
    session_id: str | None = None
    writer_id: UUID | None = None
    recorded_from: datetime | None = None
    recorded_until: datetime | None = None

    def named(self) -> dict[str, Any]:
        """Return what the target says, without what it leaves open."""
        given = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: value for name, value in given.items() if value is not None}


# matters --------------------------------------------------------------------------------------------------------------


def open_matter(actor: Actor, reference: str, reason: str, *, now: datetime) -> tuple[Matter, bool]:
    """Open a matter under the organisation's reference; return it, and whether it is new. The same again changes nothing.

    Raises `Forbidden`, `Refused` for a reference that is no code of at most 60 letters, digits and `. _ / -` or looks like
    somebody's e-mail, phone or card, and `Clash("matter_exists")` where one of that reference has another reason or is closed.
    """
    _require_keeper(actor)
    if not _REFERENCE.fullmatch(reference):
        raise Refused("matter_refused", errors=[FieldError("reference", "bad_shape")])
    if looks_like_identifier(reference) is not None:
        raise Refused("matter_refused", errors=[FieldError("reference", "personal_identifier")])
    if reason not in REASONS:
        raise Refused("matter_refused", errors=[FieldError("reason", "not_in_enum")])
    # Of two who open it at once one does.
    rows.fetch("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"muniment.matter {actor.tenant} {reference}"])
    known = Matter.objects.filter(tenant_id=actor.tenant, reference=reference).first()
    if known is not None:
        if known.reason != reason or known.state != "open":
            raise Clash("matter_exists")
        return known, False
    matter = Matter(tenant_id=actor.tenant, reference=reference, reason=reason, opened_by=actor.id, opened_at=now)
    _remember(matter, actor, reason)
    matter.save(force_insert=True)
    append([_event(actor, Action.MATTER_OPENED, "matter", matter.id, reason)])
    return matter, True


def close_matter(actor: Actor, matter: UUID, *, now: datetime) -> Matter:
    """Close a matter whose holds are all released. Raises `Missing`, `Forbidden`, `Clash("matter_closed")`, `Clash("hold_in_force")`."""
    _require_keeper(actor)
    found = Matter.objects.select_for_update().filter(tenant_id=actor.tenant, id=matter).first()
    if found is None:
        raise Missing
    if found.state != "open":
        raise Clash("matter_closed")
    if Hold.objects.filter(tenant_id=actor.tenant, matter_id=matter, state="active").exists():
        raise Clash("hold_in_force")
    found.state, found.closed_by, found.closed_at = "closed", actor.id, now
    _remember(found, actor, "closed")
    found.save(update_fields=["state"])
    append([_event(actor, Action.MATTER_CLOSED, "matter", found.id, "closed")])
    return found


# placing --------------------------------------------------------------------------------------------------------------


def place(actor: Actor, matter: UUID, targets: Sequence[Target], *, now: datetime) -> Hold:
    """Place a hold for a matter. Once this commits, nothing that fits a target ends, by whatever way.

    Waits for the endings that are under way, and bars every other one until the commit, which returns once the endings
    log outside the database tells of it. Raises `Missing` for a matter, a subject, an attribute or a record that is not
    there, `Clash("matter_closed")`, `Forbidden`, and `Refused` for no target, too many, or one that says nothing.
    """
    _require_keeper(actor)
    _check(targets)
    holds.take(actor.tenant)
    found = Matter.objects.filter(tenant_id=actor.tenant, id=matter).first()
    if found is None:
        raise Missing
    if found.state != "open":
        raise Clash("matter_closed")
    _require_targets(actor.tenant, targets)
    hold = Hold(tenant_id=actor.tenant, matter_id=matter, placed_by=actor.id, placed_at=now)
    _remember(hold, actor, found.reason)
    hold.save(force_insert=True)
    scopes = [HoldScope(tenant_id=actor.tenant, hold=hold, **target.named()) for target in targets]
    HoldScope.objects.bulk_create(scopes)
    endings_log.owe(actor.tenant, "hold_placed", hold.id, _told(found, scopes))
    numbers = {"scopes": len(scopes)}
    append([_event(actor, Action.HOLD_PLACED, "hold", hold.id, found.reason, holds.digest(hold.id), numbers)])
    return hold


def place_again(actor: Actor, hold: UUID, record: Mapping[str, Any], *, now: datetime) -> bool:
    """Place a hold as the endings log tells of it, after a restore; return whether it was not there. Harmless when repeated.

    A target that is not in the restored database covers nothing and is left out, except where it is named by words.
    """
    holds.take(actor.tenant)
    if Hold.objects.filter(tenant_id=actor.tenant, id=hold).exists():
        return False
    matter, reference = UUID(record["matter"]), _unhexed(record["reference"])
    if not Matter.objects.filter(tenant_id=actor.tenant, id=matter).exists():
        Matter(
            id=matter, tenant_id=actor.tenant, reference=reference, reason=record["reason"],
            opened_by=actor.id, opened_at=now,
        ).save(force_insert=True)  # fmt: skip
    Hold(id=hold, tenant_id=actor.tenant, matter_id=matter, placed_by=actor.id, placed_at=now).save(force_insert=True)
    for told in record["scopes"]:
        target = _target(told["target"])
        try:
            _require_targets(actor.tenant, [target])
        except Missing:
            continue
        HoldScope(id=UUID(told["id"]), tenant_id=actor.tenant, hold_id=hold, **target.named()).save(force_insert=True)
    append([_event(actor, Action.HOLD_PLACED, "hold", hold, "restored")])
    return True


# letting go -----------------------------------------------------------------------------------------------------------


def propose_release(actor: Actor, hold: UUID, *, now: datetime) -> Hold:
    """Note that a program thinks a hold is no longer needed. Nothing is released, and nothing asked: a person does that.

    A program's question would need one person only, and whoever runs the program may be that person. Proposing again
    changes nothing. Raises `Missing`, `Forbidden`, `Clash("hold_released")`.
    """
    _require_keeper(actor)
    found = _locked(actor.tenant, hold)
    if found.proposed_at is None:
        found.proposed_by, found.proposed_at = actor.id, now
        _remember(found, actor, "proposed")
        found.save(update_fields=["proposed_at"])
        append([_event(actor, Action.HOLD_RELEASE_PROPOSED, "hold", found.id, "proposed")])
    return found


def ask_release(actor: Actor, hold: UUID, *, reason: str, now: datetime) -> DecisionRequest:
    """Ask for another privacy officer's approval to release a hold, as its scopes are now.

    Raises `Missing`, `Forbidden` for whoever is no privacy officer, `Clash("hold_released")`, and what `approvals.ask` raises.
    """
    if actor.kind is not ActorKind.PERSON:
        raise Forbidden("role_missing")
    _require_keeper(actor)
    found = _locked(actor.tenant, hold)
    return approvals.ask(actor, _asked(found), reason=reason, now=now)


def decide_release(
    actor: Actor, question: UUID, answer: Answer, *, shown: bytes, reason: str, now: datetime
) -> tuple[DecisionRequest, Decision]:
    """Decide on the release of a hold; approved, it is released at once, in one transaction, and its row stays.

    The commit returns once the endings log tells of it. Raises what `approvals.decide` raises, `Missing` for a question
    about anything else, and `Clash("changed_since_shown")` where the hold's scopes are not those that were asked about.
    """
    found = approvals.locked(actor.tenant, question)
    if Act(found.act) is not Act.RELEASE_HOLD:
        raise Missing
    hold = _locked(actor.tenant, found.target_id)
    settled, decision = approvals.decide(actor, question, answer, shown=shown, reason=reason, now=now)
    if answer is Answer.APPROVE:
        asked = _asked(hold)
        if asked.digest != bytes(found.digest):
            raise Clash("changed_since_shown")
        hold.state, hold.released_by, hold.released_at = "released", actor.id, now
        _remember(hold, actor, reason)
        hold.save(update_fields=["state"])
        settled = approvals.carry_out(actor, asked)
        endings_log.owe(actor.tenant, "hold_released", hold.id, {"digest": asked.digest})
        append([_event(actor, Action.HOLD_RELEASED, "hold", hold.id, reason, asked.digest)])
    return settled, decision


# dry runs -------------------------------------------------------------------------------------------------------------

_SAID = """
SELECT DISTINCT v.fact_id, v.id, v.episode_id, k.subject_id FROM memory_evidence v
  JOIN memory_factkey k ON k.tenant_id = v.tenant_id AND k.id = v.key_id
  LEFT JOIN memory_episode e ON e.tenant_id = v.tenant_id AND e.id = v.episode_id
WHERE v.tenant_id = %(tenant)s::uuid {conditions} LIMIT %(most)s
"""
_EPISODES = """
SELECT e.id, e.subject_id FROM memory_episode e WHERE e.tenant_id = %(tenant)s::uuid {conditions} LIMIT %(most)s
"""
_CANDIDATES = """
SELECT DISTINCT c.id, c.subject_id FROM memory_candidate c
  LEFT JOIN memory_candidatesaying y ON y.tenant_id = c.tenant_id AND y.candidate_id = c.id
  LEFT JOIN memory_episode e ON e.tenant_id = c.tenant_id AND e.id = y.episode_id
WHERE c.tenant_id = %(tenant)s::uuid {conditions} LIMIT %(most)s
"""
_CONDITIONS: dict[str, tuple[str, str | None, str]] = {
    "subject_id": (
        "k.subject_id = %(subject_id)s::uuid",
        "(e.subject_id = %(subject_id)s::uuid OR e.mentioned_ids @> ARRAY[%(subject_id)s::uuid])",
        "c.subject_id = %(subject_id)s::uuid",
    ),
    "attribute_id": ("k.attribute_id = %(attribute_id)s::uuid", None, "c.attribute_id = %(attribute_id)s::uuid"),
    "session_id": ("e.session_id = %(session_id)s", "e.session_id = %(session_id)s", "e.session_id = %(session_id)s"),
    "writer_id": (
        "v.writer_id = %(writer_id)s::uuid",
        "e.writer_id = %(writer_id)s::uuid",
        "coalesce(y.writer_id, c.writer_id) = %(writer_id)s::uuid",
    ),
    "recorded_from": (
        "v.recorded_at >= %(recorded_from)s",
        "e.recorded_at >= %(recorded_from)s",
        "coalesce(y.said_at, c.created_at) >= %(recorded_from)s",
    ),
    "recorded_until": (
        "v.recorded_at < %(recorded_until)s",
        "e.recorded_at < %(recorded_until)s",
        "coalesce(y.said_at, c.created_at) < %(recorded_until)s",
    ),
}
_RECORD: dict[str, tuple[str | None, str | None, str | None]] = {
    "fact": ("v.fact_id = %(record_id)s::uuid", None, None),
    "evidence": ("v.id = %(record_id)s::uuid", None, None),
    "episode": (
        "v.episode_id = %(record_id)s::uuid",
        "e.id = %(record_id)s::uuid",
        "y.episode_id = %(record_id)s::uuid",
    ),
    "candidate": (None, None, "c.id = %(record_id)s::uuid"),
}


def covered(tenant: UUID, targets: Sequence[Target]) -> dict[str, int]:
    """Return how much of what is there a hold on `targets` would cover, by kind; beyond `COUNTED` it is not counted on.

    Under `Role.STAFF`; changes nothing. What comes later is covered too, and is in no number.
    """
    found: dict[str, set[UUID]] = {
        each.value: set() for each in (Kind.FACT, Kind.EVIDENCE, Kind.EPISODE, Kind.CANDIDATE, Kind.SUBJECT)
    }
    for target in targets:
        said, episodes, candidates = _conditions(target)
        parameters = {"tenant": tenant, "most": COUNTED, **target.named()}
        if target.subject_id is not None:
            found[Kind.SUBJECT].add(target.subject_id)
        if said is not None:
            for fact, evidence, episode, subject in rows.fetch(_SAID.format(conditions=said), parameters):
                found[Kind.FACT].update([fact] if fact else [])
                found[Kind.EVIDENCE].add(evidence)
                found[Kind.EPISODE].update([episode] if episode else [])
                found[Kind.SUBJECT].add(subject)
        for kind, statement, conditions in (
            (Kind.EPISODE, _EPISODES, episodes),
            (Kind.CANDIDATE, _CANDIDATES, candidates),
        ):
            if conditions is not None:
                for record, subject in rows.fetch(statement.format(conditions=conditions), parameters):
                    found[kind].add(record)
                    # Whom an episode only names is not covered by it.
                    found[Kind.SUBJECT].update([subject] if subject and target.subject_id is None else [])
        if target.record_kind == Kind.PROCEDURE:
            found.setdefault(Kind.PROCEDURE, set()).add(target.record_id or UUID(int=0))
    return {kind: min(len(ids), COUNTED) for kind, ids in found.items()}


def _conditions(target: Target) -> tuple[str | None, str | None, str | None]:
    if target.record_kind is not None:
        said, episode, candidate = _RECORD.get(target.record_kind, (None, None, None))
        return _joined([said]), _joined([episode]), _joined([candidate])
    chosen = [_CONDITIONS[name] for name in target.named()]
    return (
        _joined([each[0] for each in chosen]),
        _joined([each[1] for each in chosen]),
        _joined([each[2] for each in chosen]),
    )


def _joined(conditions: Sequence[str | None]) -> str | None:
    known = [each for each in conditions if each is not None]
    return None if len(known) < len(conditions) else "".join(f" AND {each}" for each in known)


# what the doors share -------------------------------------------------------------------------------------------------

_TABLES = {
    Kind.FACT: "memory_fact",
    Kind.EVIDENCE: "memory_evidence",
    Kind.EPISODE: "memory_episode",
    Kind.CANDIDATE: "memory_candidate",
}


def _check(targets: Sequence[Target]) -> None:
    if not 1 <= len(targets) <= MAX_SCOPES:
        raise Refused("hold_refused", errors=[FieldError("scopes", "empty" if not targets else "too_many")])
    for place, target in enumerate(targets):
        named, where = target.named(), f"scopes[{place}]"
        if not named:
            raise Refused("hold_refused", errors=[FieldError(where, "empty")])
        if ("record_id" in named) != ("record_kind" in named) or ("record_id" in named and len(named) > 2):
            raise Refused("hold_refused", errors=[FieldError(f"{where}.record", "stands_alone")])
        if target.record_kind is not None and target.record_kind not in [*_TABLES, Kind.PROCEDURE]:
            raise Refused("hold_refused", errors=[FieldError(f"{where}.record.kind", "not_in_enum")])
        begins, ends = target.recorded_from, target.recorded_until
        if begins is not None and ends is not None and ends <= begins:
            raise Refused("hold_refused", errors=[FieldError(f"{where}.recorded_until", "out_of_range")])


def _require_targets(tenant: UUID, targets: Sequence[Target]) -> None:
    for table, ids in (
        ("memory_subject", {each.subject_id for each in targets if each.subject_id}),
        ("policies_attribute", {each.attribute_id for each in targets if each.attribute_id}),
        *(
            (table, {each.record_id for each in targets if each.record_kind == kind and each.record_id})
            for kind, table in _TABLES.items()
        ),
    ):
        if ids:
            there = rows.fetch(
                f"SELECT x.id FROM {table} x WHERE x.tenant_id = %s::uuid AND x.id = ANY (%s::uuid[])",
                [tenant, list(ids)],
            )
            if len(there) < len(ids):
                raise Missing


def _require_keeper(actor: Actor) -> None:
    if actor.kind is ActorKind.AGENT:
        if not actor.may(Scope.ADMIN):
            raise Forbidden("scope_missing")
    elif actor.kind is ActorKind.PERSON:
        own = Membership.objects.filter(tenant_id=actor.tenant, user_id=actor.id, role=MemberRole.PRIVACY_OFFICER.value)
        if not own.exists():
            raise Forbidden("role_missing")


def _locked(tenant: UUID, hold: UUID) -> Hold:
    found = Hold.objects.select_for_update().filter(tenant_id=tenant, id=hold).first()
    if found is None:
        raise Missing
    if found.state != "active":
        raise Clash("hold_released")
    return found


def _asked(hold: Hold) -> Asked:
    return Asked(Act.RELEASE_HOLD, "hold", hold.id, holds.digest(hold.id))


def _told(matter: Matter, scopes: Sequence[HoldScope]) -> dict[str, Any]:
    """Return what a restore needs to place the hold again. Words that somebody chose go as hex: the log holds none."""
    return {
        "matter": matter.id,
        "reference": _hexed(matter.reference),
        "reason": matter.reason,
        "scopes": [
            {
                "id": scope.id,
                "target": {
                    each.name: _hexed(value) if each.name == "session_id" else value
                    for each in fields(Target)
                    if (value := getattr(scope, each.name)) is not None
                },
            }
            for scope in scopes
        ],
    }


def _target(told: Mapping[str, Any]) -> Target:
    given: dict[str, Any] = {}
    for name, value in told.items():
        if name == "session_id":
            given[name] = _unhexed(value)
        elif name.startswith("recorded_"):
            given[name] = datetime.fromisoformat(value)
        else:
            given[name] = value if name == "record_kind" else UUID(value)
    return Target(**given)


def _hexed(text: str) -> list[str]:
    code = text.encode("utf-8").hex()
    return [code[place : place + 128] for place in range(0, len(code), 128)]


def _unhexed(parts: Sequence[str]) -> str:
    return bytes.fromhex("".join(parts)).decode("utf-8")


def _remember(row: Matter | Hold, actor: Actor, reason: str) -> None:
    row._change_reason = reason  # type: ignore[union-attr]
    row._history_user = User(id=actor.id) if actor.kind is ActorKind.PERSON else None  # type: ignore[union-attr]


def _event(
    actor: Actor,
    action: Action,
    kind: str,
    target: UUID,
    reason: str,
    digest: bytes | None = None,
    numbers: dict[str, Any] | None = None,
) -> Event:
    return Event(
        actor=actor,
        action=action,
        target_kind=kind,
        target_id=target,
        reason=reason,
        digest=digest,
        numbers=numbers or {},
    )
