"""The write door: the only way by which memory is written.

Everything here runs in the caller's tenant transaction under the writer's role, and in one order (design, 5.3):
idempotency, consents, subjects, fact keys, payloads, audit. What is read of a key is read after its lock. Nothing is
stored of a saying that is refused. The audit entries of the transaction are appended last, since the chain's lock is
held to the commit.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from memory import idempotency, outbox, rows
from memory.contracts import EpisodeBody, FactBody, SubjectBody
from memory.ledger import Chain, FactState, Grounds, KeyState, NotLoaded
from memory.outcomes import Asked, Denied, EpisodeKept, Outcome, Repeat, Retracted, Written
from memory.reconcile import Saying
from memory.subjects import SubjectState, add_aliases, known, payload_context, resolve
from policies.catalogue import AttributeInForce, Catalogue, of_number
from policies.decision import Question, Verdict, decide, rank
from policies.values import ValueRefused, canonical_text
from policies.vocabulary import Basis, Confirm, Conflict, Kind, Sensitivity, SourceKind
from policies.vocabulary import Outcome as Says
from tenants.actors import Actor, ActorKind, Scope
from tenants.audit import Action, Event, append
from tenants.errors import FieldError, Forbidden, Missing
from tenants.identity import new_id
from tenants.secrets import keyring

_OPENING = "SELECT catalogue_no, clock_timestamp() FROM tenants_tenant WHERE id = %s::uuid"
_CONSENTS = """
SELECT c.ref, c.id, c.subject_id, c.purposes, c.withdrawn_at IS NULL
FROM policies_consent c WHERE c.tenant_id = %s::uuid AND c.ref = ANY(%s::text[]) ORDER BY c.id FOR KEY SHARE
"""
_EPISODES = """
SELECT e.id, e.occurred_at, e.subject_id, p.id, p.clear, p.sealed, k.wrapped, k.version
FROM memory_episode e
  JOIN memory_payload p ON p.tenant_id = e.tenant_id AND p.id = e.payload_id
  LEFT JOIN tenants_subjectkey k ON k.tenant_id = p.tenant_id AND k.id = p.key_id
WHERE e.tenant_id = %s::uuid AND e.id = ANY(%s::uuid[]) AND e.redaction_state = 'none' AND NOT e.restricted
  AND (e.expires_at IS NULL OR e.expires_at > clock_timestamp()) AND e.sensitivity <= %s
  AND (e.consent_id IS NULL OR consent_stands(ARRAY[e.consent_id]))
"""
_TARGETS = """
SELECT e.id, e.key_id, e.fact_id, e.valid_from, e.stated_to, e.confirmed, e.trust, e.writer_id,
  CASE WHEN f.ended_at IS NULL AND (f.expires_at <= clock_timestamp()
    OR f.consent_ids IS NOT NULL AND NOT consent_stands(f.consent_ids)) THEN clock_timestamp() ELSE f.ended_at END,
  coalesce(f.sensitivity, e.sensitivity), k.subject_id, k.attribute_id, e.retracted_at, f.redaction_state = 'required' OR f.restricted
FROM memory_evidence e
  LEFT JOIN memory_fact f ON f.tenant_id = e.tenant_id AND f.id = e.fact_id
  JOIN memory_factkey k ON k.tenant_id = e.tenant_id AND k.id = e.key_id
WHERE e.tenant_id = %s::uuid AND (e.id = ANY(%s::uuid[]) OR e.fact_id = ANY(%s::uuid[]))
ORDER BY e.valid_from, e.act_no
"""
_STANDING = """
SELECT e.fact_id, e.sensitivity, e.basis, e.expires_at, e.consent_id, e.confirmed, e.confidence
FROM memory_evidence e
WHERE e.tenant_id = %s::uuid AND e.fact_id = ANY(%s::uuid[]) AND e.retracted_at IS NULL AND NOT e.is_end
  AND NOT (e.id = ANY(%s::uuid[]))
"""
_FACTS_BY_ID = """
SELECT f.key_id, f.id, f.chain_no, f.value_digest, f.payload_id, f.sensitivity, f.basis, f.expires_at, f.consent_ids,
  f.confirmed, f.confidence, f.evidence_count, f.review_at, p.clear
FROM memory_fact f JOIN memory_payload p ON p.tenant_id = f.tenant_id AND p.id = f.payload_id
WHERE f.tenant_id = %s::uuid AND f.id = ANY(%s::uuid[]) AND f.ended_at IS NULL
"""
_PENDING = """
SELECT c.id, c.state, c.occurrences, c.expires_at <= clock_timestamp()
FROM memory_candidate c
WHERE c.tenant_id = %s::uuid AND c.subject_id = %s::uuid AND c.attribute_id = %s::uuid AND c.act = %s AND c.is_end = %s
  AND c.value_digest IS NOT DISTINCT FROM %s::bytea AND c.target_id IS NOT DISTINCT FROM %s::uuid
  AND c.state IN ('asked', 'buffered')
"""
_PROPOSED_BELOW = """
SELECT p.id, p.clear FROM memory_candidate c JOIN memory_payload p ON p.tenant_id = c.tenant_id AND p.id = c.payload_id
WHERE c.tenant_id = %s::uuid AND c.id = %s::uuid AND p.sensitivity < %s
"""
_SAYINGS_OF = """
SELECT s.id, s.valid_from, s.stated_to, s.confidence, s.source, s.turn_id, s.tool_call_id, s.consent_id, s.episode_id, s.quote_id,
  s.sensitivity, s.basis, s.expires_at, s.writer_kind, s.writer_id, s.trust, s.said_at
FROM memory_candidatesaying s WHERE s.tenant_id = %s::uuid AND s.candidate_id = %s::uuid ORDER BY s.id
"""
_LIVING = """
SELECT f.id FROM memory_fact f
WHERE f.tenant_id = %s::uuid AND f.id = ANY(%s::uuid[]) AND f.ended_at IS NULL
  AND (f.expires_at IS NULL OR f.expires_at > clock_timestamp())
  AND (f.consent_ids IS NULL OR consent_stands(f.consent_ids))
"""
_QUOTES_BELOW = """
SELECT q.id, w.sensitivity, q.clear, f.subject_id
FROM unnest(%s::uuid[], %s::smallint[]) AS w (id, sensitivity)
  JOIN memory_fact f ON f.tenant_id = %s::uuid AND f.id = w.id
  JOIN memory_evidence e ON e.tenant_id = f.tenant_id AND e.fact_id = f.id
  JOIN memory_payload q ON q.tenant_id = e.tenant_id AND q.id = e.quote_id
WHERE q.sensitivity < w.sensitivity
"""

#: How long a proposal waits for a person before it lapses, whatever the life of what it proposes.
_ASKED_FOR = timedelta(days=90)


@dataclass(slots=True)
class _Prepared:
    """A saying that passed its checks, ready to stand or to wait."""

    place: int
    attribute: AttributeInForce
    subject: SubjectState
    value: str | None
    digest: bytes | None
    is_end: bool
    valid_from: datetime | None
    stated_to: datetime | None
    confidence: float | None
    source: SourceKind
    turn_id: str
    tool_call_id: str | None
    consent_id: UUID | None
    episode_id: UUID | None
    quote: str | None
    sensitivity: int
    basis: str
    expires_at: datetime | None
    review_at: datetime | None
    writer_kind: str
    writer_id: UUID
    trust: int
    recorded_at: datetime | None = None
    #: A person decided on this saying: it is not asked about again.
    decided: bool = False
    quote_id: UUID | None = None
    verdict: Verdict | None = None
    targets: list[tuple[Any, ...]] = field(default_factory=list)
    #: The evidence or fact that a correction names, and the evidence that it is recorded to correct.
    named: UUID | None = None
    corrects: UUID | None = None
    #: The rank to reach so that its act decides over what no longer competes.
    over: int = 0

    @property
    def act(self) -> str:
        return "correction" if self.targets else "fact"


@dataclass(frozen=True, slots=True)
class _Course:
    """What becomes of a saying: it stands, waits for a person, or waits for recurrence."""

    outcome: Says
    reasons: tuple[str, ...]
    rule: str
    confirm_by: str | None = None


def _said(verdict: Verdict, attribute: AttributeInForce) -> _Course:
    """Return the policy's verdict as a course; what has no recurrence to wait for goes to a person."""
    if verdict.outcome is Says.BUFFER and attribute.definition.recurrence is None:
        return _Course(Says.ASK, verdict.reasons, verdict.rule, "reviewer")
    return _Course(verdict.outcome, verdict.reasons, verdict.rule, verdict.confirm_by)


class _Refusal(Exception):
    def __init__(self, denied: Denied) -> None:
        self.denied = denied
        super().__init__(denied.code)


def _deny(
    code: str, path: str = "", *, status: int = 422, reasons: tuple[str, ...] = (), rule: str = "none"
) -> _Refusal:
    errors = (FieldError(path, code),) if path else ()
    return _Refusal(Denied(status=status, code=code, errors=errors, reasons=reasons, rule=rule))


@dataclass(slots=True)
class _Stored:
    """What the transaction is about to store, set by set."""

    payloads: list[tuple[Any, ...]] = field(default_factory=list)
    facts: list[tuple[FactState, _Prepared]] = field(default_factory=list)
    evidence: list[tuple[Any, ...]] = field(default_factory=list)
    candidates: list[tuple[Any, ...]] = field(default_factory=list)
    candidate_sayings: list[tuple[Any, ...]] = field(default_factory=list)
    retracted: list[tuple[UUID, datetime]] = field(default_factory=list)
    restate: dict[UUID, FactState] = field(default_factory=dict)
    #: What this transaction's own sayings give their facts: by fact, then by evidence.
    grounds: dict[UUID, dict[UUID, Grounds]] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    acted: set[UUID] = field(default_factory=set)


# the doors ------------------------------------------------------------------------------------------------------------


def facts(
    actor: Actor, bodies: Sequence[FactBody | Denied], *, repeat: Repeat | None = None, batch: bool = False
) -> list[Outcome]:
    """Write sayings, each answered in its place; one that is refused does not sink the others.

    A body that was refused at the boundary already comes as its `Denied` and keeps its place. All sayings of one call
    are written at once or not at all; within a key they act in the order given. With `repeat`, a request that was
    carried out before is answered with what it came to then, and nothing is written.
    """
    if repeat is not None:
        before = idempotency.earlier(actor, repeat)
        if before is not None:
            return before
    door = _Door.open(actor)
    outcomes = door.write(bodies, batch=batch)
    refused_alone = not batch and isinstance(outcomes[0], Denied)
    if not refused_alone:
        if repeat is not None:
            status = 200 if batch else outcomes[0].status
            idempotency.keep(actor, repeat, outcomes, status=status, now=door.now)
        door.finish()
    return outcomes


def retract(
    actor: Actor,
    *,
    fact: UUID | None = None,
    evidence: UUID | None = None,
    reason: str,
    recorded_at: datetime | None = None,
    repeat: Repeat | None = None,
) -> Outcome:
    """Take back one piece of evidence, or all evidence of a fact; what stands without it holds again.

    What another said needs trust at least equal (`Forbidden("trust_too_low")`); what a person confirmed goes to a
    person. Raises `Missing` for what the actor cannot see. A fact that ended, or evidence already taken back, is
    denied with 409.
    """
    if repeat is not None:
        before = idempotency.earlier(actor, repeat)
        if before is not None:
            return before[0]
    door = _Door.open(actor)
    outcome = door.retract(fact=fact, evidence=evidence, reason=reason, recorded_at=recorded_at)
    if not isinstance(outcome, Denied):
        if repeat is not None:
            idempotency.keep(actor, repeat, [outcome], status=outcome.status, now=door.now)
        door.finish()
    return outcome


def decide_candidate(actor: Actor, candidate: UUID, *, accept: bool, reason: str) -> Outcome:
    """Let a person confirm or reject a proposal. Confirming writes the proposed sayings and the person's own.

    Raises `Forbidden("a_person_decides")` for any actor that is not a person, `Missing` for no such candidate; denied
    with 409 where it was decided already.
    """
    if actor.kind is not ActorKind.PERSON:
        raise Forbidden("a_person_decides")
    door = _Door.open(actor)
    try:
        outcome = door.decide(candidate, accept=accept, reason=reason)
    except _Refusal as refusal:
        return refusal.denied
    if not isinstance(outcome, Denied):
        door.finish()
    return outcome


def episode(actor: Actor, body: EpisodeBody, *, repeat: Repeat | None = None) -> Outcome:
    """Keep an episode as received. The same source again is the same episode; with other content it is denied (409)."""
    if repeat is not None:
        before = idempotency.earlier(actor, repeat)
        if before is not None:
            return before[0]
    door = _Door.open(actor)
    outcome = door.keep_episode(body)
    if not isinstance(outcome, Denied):
        if repeat is not None:
            idempotency.keep(actor, repeat, [outcome], status=outcome.status, now=door.now)
        door.finish()
    return outcome


@dataclass(frozen=True, slots=True)
class SubjectNamed:
    """A subject's id, and how many of the given aliases name another subject already and were left there."""

    id: UUID
    taken: int


def subject(actor: Actor, body: SubjectBody) -> SubjectNamed:
    """Name a subject, and let further names find it. A name that another subject has stays where it is."""
    (_, now) = rows.fetch(_OPENING, [actor.tenant])[0]
    named = resolve(actor.tenant, [body.key], now=now, kind=body.kind or "entity")[body.key]
    taken = add_aliases(actor.tenant, named, [alias for alias in body.aliases if alias != body.key], now=now)
    append(
        [
            Event(
                actor=actor,
                action=Action.SUBJECT_NAMED,
                target_kind="subject",
                target_id=named.id,
                numbers={"aliases": len(body.aliases), "taken": len(taken)},
            )
        ]
    )
    return SubjectNamed(named.id, len(taken))


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """The verdict that a write would get, and what would follow from it. What is refused has no class and no end."""

    verdict: str
    reasons: tuple[str, ...]
    rule: str
    policy_version: str
    code: str | None = None
    errors: tuple[FieldError, ...] = ()
    sensitivity: Sensitivity | None = None
    basis: Basis | None = None
    expires_at: datetime | None = None
    expiry_rule: str | None = None
    review_at: datetime | None = None
    confirm_by: str | None = None


def explain(actor: Actor, body: FactBody) -> Explained:
    """Return the verdict that `facts` would come to with this body now. Stores nothing and creates no subject.

    An actor who may not know what the key holds is told what the policy says of the saying alone.
    """
    door = _Door.open(actor)
    version = door.catalogue.policy_version
    try:
        item, course = door.foresee(body)
    except _Refusal as refusal:
        denied = refusal.denied
        return Explained(
            verdict=Says.REJECT.value,
            reasons=denied.reasons or (denied.code,),
            rule=denied.rule,
            policy_version=version,
            code=denied.code,
            errors=denied.errors,
        )
    verdict = item.verdict
    assert verdict is not None
    return Explained(
        verdict=course.outcome.value,
        reasons=course.reasons,
        rule=course.rule,
        policy_version=version,
        sensitivity=verdict.sensitivity,
        basis=verdict.basis,
        expires_at=verdict.expires_at,
        expiry_rule=verdict.expiry_rule,
        review_at=verdict.review_at,
        confirm_by=course.confirm_by,
    )


def record_refusal(actor: Actor, denied: Denied) -> UUID:
    """Record that a write was refused, without what it said; to be called in a transaction of its own.

    Return the receipt: the one that `denied` names, where it does.
    """
    (number, now) = rows.fetch(_OPENING, [actor.tenant])[0]
    receipt = denied.receipt or new_id()
    rows.RECEIPTS.insert(
        actor.tenant,
        [
            (
                receipt,
                "write.refused",
                actor.kind.value,
                actor.id,
                now,
                "{}",
                "{}",
                "{}",
                of_number(actor.tenant, number).policy_version_id,
                "reject",
                rows.words(denied.reasons or (denied.code,)),
            )
        ],
    )
    append([_refusal_event(actor, receipt, denied)])
    return receipt


def _refusal_event(actor: Actor, receipt: UUID, denied: Denied) -> Event:
    return Event(
        actor=actor,
        action=Action.WRITE_REFUSED,
        target_kind="receipt",
        target_id=receipt,
        reason=(denied.reasons or (denied.code,))[0][:60],
        numbers={"status": denied.status},
    )


# behind the doors -----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Door:
    """One write transaction under way."""

    actor: Actor
    now: datetime
    catalogue: Catalogue
    receipt: UUID
    stored: _Stored = field(default_factory=_Stored)
    keys: dict[tuple[UUID, UUID], KeyState] = field(default_factory=dict)
    subjects: dict[UUID, SubjectState] = field(default_factory=dict)
    refused: list[Denied] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    verdicts: set[str] = field(default_factory=set)
    act: str = "fact.write"
    touched: set[UUID] = field(default_factory=set)

    @classmethod
    def open(cls, actor: Actor) -> "_Door":
        found = rows.fetch(_OPENING, [actor.tenant])
        if not found:
            raise Missing
        number, now = found[0]
        return cls(actor=actor, now=now, catalogue=of_number(actor.tenant, number), receipt=new_id())

    # checking ---------------------------------------------------------------------------------------------------------

    def write(self, bodies: Sequence[FactBody | Denied], *, batch: bool) -> list[Outcome]:
        outcomes: list[Outcome | None] = [each if isinstance(each, Denied) else None for each in bodies]
        asked = [(place, body) for place, body in enumerate(bodies) if not isinstance(body, Denied)]
        checked: list[tuple[int, FactBody, AttributeInForce, str | None]] = []
        for place, body in asked:
            try:
                checked.append((place, body, *self._value(body)))
            except _Refusal as refusal:
                outcomes[place] = refusal.denied
        consents = self._consents({body.provenance.consent_ref for _, body, _, _ in checked})
        named = resolve(self.actor.tenant, {body.subject for _, body, _, _ in checked}, now=self.now) if checked else {}
        self.subjects = {each.id: each for each in named.values()}
        episodes = self._episodes({body.provenance.source_episode for _, body, _, _ in checked})
        targets = self._targets({body.corrects for _, body, _, _ in checked})
        prepared: list[_Prepared] = []
        for place, body, attribute, value in checked:
            try:
                prepared.append(
                    self._prepare(place, body, attribute, value, named[body.subject], consents, episodes, targets)
                )
            except _Refusal as refusal:
                outcomes[place] = refusal.denied
        if prepared:
            self._lock(prepared)
            for item in prepared:
                try:
                    outcomes[item.place] = self._act(item)
                except _Refusal as refusal:
                    outcomes[item.place] = refusal.denied
        final = [outcome for outcome in outcomes if outcome is not None]
        assert len(final) == len(bodies)
        if batch:
            final = [replace(each, receipt=self.receipt) if isinstance(each, Denied) else each for each in final]
            self.refused = [each for each in final if isinstance(each, Denied)]
            self.act = "fact.batch"
        return final

    def _value(self, body: FactBody) -> tuple[AttributeInForce, str | None]:
        attribute = self.catalogue.attributes.get(body.attribute)
        if attribute is None:
            raise _deny("unknown_attribute", "attribute")
        if body.ended and body.has_value and not attribute.multi:
            raise _deny("ended_with_value_on_single", "value")
        if body.recorded_at is not None:
            if not self.actor.may(Scope.IMPORT):
                raise _deny("import_scope_needed", "recorded_at", status=403)
            if body.recorded_at > self.now:
                raise _deny("recorded_in_the_future", "recorded_at")
        source = body.provenance.kind
        if source is SourceKind.CONFIRMATION and self.actor.kind is not ActorKind.PERSON:
            raise _deny("a_person_confirms", "provenance.source")
        if not body.has_value:
            return attribute, None
        try:
            return attribute, canonical_text(attribute.values.canonical(body.value))
        except ValueRefused as refused:
            raise _deny(refused.code, refused.path) from None

    def _consents(self, refs: set[str | None]) -> dict[str, tuple[UUID, UUID, frozenset[str], bool]]:
        wanted = sorted(ref for ref in refs if ref is not None)
        if not wanted:
            return {}
        return {
            ref: (consent, subject_id, frozenset(purposes), stands)
            for ref, consent, subject_id, purposes, stands in rows.fetch(_CONSENTS, [self.actor.tenant, wanted])
        }

    def _episodes(self, ids: set[UUID | None]) -> dict[UUID, tuple[datetime, str]]:
        wanted = sorted(each for each in ids if each is not None)
        if not wanted:
            return {}
        ring, tenant = keyring(), self.actor.tenant
        found: dict[UUID, tuple[datetime, str]] = {}
        for row in rows.fetch(_EPISODES, [tenant, wanted, self.actor.clearance]):
            episode_id, occurred_at, _, payload, clear, sealed, wrapped, version = row
            if sealed is not None:
                key = ring.unwrap(tenant, bytes(wrapped), version)
                clear = ring.open(key, bytes(sealed), payload_context(tenant, payload, "episode")).decode("utf-8")
            found[episode_id] = (occurred_at, clear or "")
        return found

    def _targets(self, ids: set[UUID | None]) -> dict[UUID, list[tuple[Any, ...]]]:
        wanted = sorted(each for each in ids if each is not None)
        found: dict[UUID, list[tuple[Any, ...]]] = {each: [] for each in wanted}
        if wanted:
            for row in rows.fetch(_TARGETS, [self.actor.tenant, wanted, wanted]):
                for name in (row[0], row[2]):
                    if name in found:
                        found[name].append(row)
        return found

    def _question(
        self,
        *,
        act: Any,
        attribute: AttributeInForce | None,
        source: SourceKind,
        declared: Sensitivity | None,
        basis: Basis,
        consent: Any,
        purposes: frozenset[str] | None,
        confidence: float | None,
        expires_at: datetime | None,
    ) -> Question:
        definition = None if attribute is None else attribute.definition
        return Question(
            act=act,
            attribute=None if attribute is None else attribute.name,
            kind=Kind.EPISODIC if definition is None else definition.kind,
            source=source,
            confirmed=source is SourceKind.CONFIRMATION,
            inferred=source is SourceKind.STATEMENT and act != "episode",
            declared=declared,
            default=Sensitivity.PERSONAL if definition is None else definition.sensitivity,
            detected=Sensitivity.PUBLIC,
            basis=basis,
            consent=consent,
            consent_purposes=purposes,
            purposes=self.actor.purposes,
            confidence=confidence,
            trust=self.actor.trust,
            clearance=Sensitivity(self.actor.clearance),
            confirm=Confirm.NEVER if definition is None else definition.confirm,
            written_at=self.now,
            expires_at=expires_at,
            recurrence=definition is not None and definition.recurrence is not None,
        )

    def _prepare(
        self,
        place: int,
        body: FactBody,
        attribute: AttributeInForce,
        value: str | None,
        about: SubjectState,
        consents: dict[str, tuple[UUID, UUID, frozenset[str], bool]],
        episodes: dict[UUID, tuple[datetime, str]],
        targets: dict[UUID, list[tuple[Any, ...]]],
    ) -> _Prepared:
        given = body.provenance
        occurred_at = None
        if given.source_episode is not None:
            if given.source_episode not in episodes:
                raise _deny("not_found", "provenance.source_episode")
            occurred_at, content = episodes[given.source_episode]
            if given.quote is not None and given.quote not in content:
                raise _deny("quote_not_in_episode", "provenance.quote")
        basis = attribute.definition.basis if body.retention is None else body.retention.basis
        consent_id, state, purposes = self._consent(given.consent_ref, about, consents)
        if basis is Basis.CONSENT and given.consent_ref is None:
            raise _deny("consent_ref_needed", "provenance.consent_ref")
        verdict = decide(
            self._question(
                act="end" if value is None else "fact",
                attribute=attribute,
                source=given.kind,
                declared=body.sensitivity,
                basis=basis,
                consent=state,
                purposes=purposes,
                confidence=body.confidence,
                expires_at=None if body.retention is None else body.retention.expires_at,
            ),
            self.catalogue.policy,
            version=self.catalogue.policy_version,
        )
        if verdict.outcome is Says.REJECT:
            raise _deny("rejected", reasons=verdict.reasons, rule=verdict.rule)
        valid_from = body.valid_from or occurred_at
        if valid_from is not None and body.valid_to is not None and body.valid_to <= valid_from:
            raise _deny("valid_to_not_after_valid_from", "valid_to")
        item = _Prepared(
            place=place,
            attribute=attribute,
            subject=about,
            value=value,
            digest=None if value is None else keyring().digest(about.data_key, "value", value.encode("utf-8")),
            is_end=body.ended,
            valid_from=valid_from,
            stated_to=body.valid_to,
            confidence=body.confidence,
            source=given.kind,
            turn_id=given.turn_id,
            tool_call_id=given.tool_call_id,
            consent_id=consent_id,
            episode_id=given.source_episode,
            quote=given.quote,
            sensitivity=int(verdict.sensitivity),
            basis=verdict.basis.value,
            expires_at=verdict.expires_at,
            review_at=verdict.review_at,
            writer_kind=self.actor.kind.value,
            writer_id=self.actor.id,
            trust=self.actor.trust,
            recorded_at=body.recorded_at,
            decided=self.actor.kind is ActorKind.PERSON and given.kind is SourceKind.CONFIRMATION,
            verdict=verdict,
        )
        if body.corrects is not None:
            self._aim(item, body, targets[body.corrects])
        return item

    def _consent(
        self, ref: str | None, about: SubjectState | None, consents: dict[str, tuple[UUID, UUID, frozenset[str], bool]]
    ) -> tuple[UUID | None, str, frozenset[str] | None]:
        if ref is None:
            return None, "none", None
        found = consents.get(ref)
        # A consent of another subject says nothing about this one.
        if found is None or (about is not None and found[1] != about.id):
            raise _deny("rejected", "provenance.consent_ref", reasons=("consent_missing",), rule="builtin.consent")
        consent_id, _, purposes, stands = found
        if not stands:
            raise _deny("rejected", "provenance.consent_ref", reasons=("consent_withdrawn",), rule="builtin.consent")
        return consent_id, "standing", purposes

    def _aim(self, item: _Prepared, body: FactBody, found: list[tuple[Any, ...]]) -> None:
        """Point a correction at what it takes back: standing evidence of the same key that the writer may correct."""
        visible = [row for row in found if self._sees(row)]
        if not visible:
            raise _deny("not_found", "corrects")
        if any((row[10], row[11]) != (item.subject.id, item.attribute.id) for row in visible):
            raise _deny("other_key", "corrects")
        standing = [row for row in visible if row[12] is None]
        self._take_aim(item, standing)
        item.named = body.corrects
        if body.valid_from is None:
            item.valid_from = standing[0][3]
        if body.valid_to is None:
            item.stated_to = standing[0][4]
        if item.stated_to is not None and item.valid_from is not None and item.stated_to <= item.valid_from:
            raise _deny("valid_to_not_after_valid_from", "valid_to")

    def _sees(self, row: tuple[Any, ...]) -> bool:
        return (row[9] or 0) <= self.actor.clearance and not (row[13] and self.actor.kind is ActorKind.AGENT)

    def _take_aim(self, item: _Prepared, standing: list[tuple[Any, ...]]) -> None:
        if not standing:
            raise _deny("already_retracted", "corrects", status=409)
        if any(row[8] is not None for row in standing):
            raise _deny("fact_ended", "corrects", status=409)
        if not item.decided:
            self._may_take_back(standing)
        item.targets = standing
        item.corrects = standing[0][0]

    def _aim_again(self, item: _Prepared) -> None:
        """Take the targets again under the key's lock: what was said or taken back in the meantime, here too, counts."""
        if item.named is None:
            return
        gone = {each for each, _ in self.stored.retracted}
        rows_now = [row for row in self._targets({item.named})[item.named] if row[12] is None]
        key_of = (item.subject.id, item.attribute.id)
        rows_now += [
            (row[0], row[1], row[2], row[4], row[5], row[9], row[18], row[17], None, row[26], *key_of, None, False)
            for row in self.stored.evidence
            if item.named in (row[0], row[2])
        ]
        self._take_aim(item, [row for row in rows_now if row[0] not in gone])

    def _may_take_back(self, standing: Sequence[tuple[Any, ...]]) -> None:
        others = [row for row in standing if row[7] != self.actor.id]
        if self.actor.kind is ActorKind.AGENT and any(row[6] > self.actor.trust for row in others):
            raise _deny("trust_too_low", status=403)

    # locking ----------------------------------------------------------------------------------------------------------

    def _lock(self, prepared: Sequence[_Prepared]) -> None:
        """Lock the keys of `prepared`, and load of them what their acts need."""
        counts: dict[tuple[UUID, UUID], list[Any]] = {}
        for item in prepared:
            slot = counts.setdefault((item.subject.id, item.attribute.id), [0, False, item.attribute.multi, False])
            slot[0] += 1
            slot[1] = slot[1] or item.recorded_at is not None
            slot[3] = slot[3] or bool(item.targets)
        wanted = [
            (new_id(), subject_id, attribute_id, n, imports)
            for (subject_id, attribute_id), (n, imports, _, _) in counts.items()
        ]
        stale: list[KeyState] = []
        for row in rows.lock_keys(self.actor.tenant, wanted):
            key_id, subject_id, attribute_id, chain_no, act_no, newest, fresh, clock = row
            n, imports, multi, _ = counts[(subject_id, attribute_id)]
            # The statement moved newest_at past all acts of this transaction: they are recorded up to there.
            before = newest if imports or newest is None else newest - timedelta(microseconds=n)
            key = KeyState(
                id=key_id,
                subject_id=subject_id,
                attribute_id=attribute_id,
                chain_no=chain_no,
                multi=multi,
                act_no=act_no - n,
                newest_at=before,
                clock=clock if imports or before is None else before,
                reserved=act_no,
                imports=imports,
            )
            self.keys[(subject_id, attribute_id)] = key
            if not fresh:
                stale.append(key)
        if not stale:
            return
        by_id = {key.id: key for key in stale}
        pairs = {(self.keys[(item.subject.id, item.attribute.id)].id, item.digest or b"") for item in prepared}
        rows.load_facts(self.actor.tenant, by_id, sorted(pair for pair in pairs if pair[0] in by_id))
        rows.load_last(self.actor.tenant, stale)
        deep = [
            key
            for key in stale
            if key.multi
            or counts[(key.subject_id, key.attribute_id)][0] > 1
            or counts[(key.subject_id, key.attribute_id)][3]
        ]
        if deep:
            rows.load_chains(self.actor.tenant, deep)

    # acting -----------------------------------------------------------------------------------------------------------

    def _blind(self, item: _Prepared, key: KeyState) -> bool:
        return self.actor.clearance < max(int(item.attribute.definition.sensitivity), key.sensitivity)

    def _act(self, item: _Prepared) -> Outcome:
        key = self.keys[(item.subject.id, item.attribute.id)]
        blind = self._blind(item, key)
        self._aim_again(item)
        course = self._course(item, key, blind=blind)
        if course.outcome is Says.BUFFER:
            return self._buffer(item, key, course, blind=blind)
        if course.outcome is Says.ASK:
            return self._ask(item, key, course.reasons, course.rule, course.confirm_by, blind=blind)
        return self._stand(item, key, blind=blind, reasons=course.reasons)

    def _course(self, item: _Prepared, key: KeyState, *, blind: bool) -> _Course:
        """Return what becomes of a saying whose policy verdict is no reject, given what its key holds."""
        verdict = item.verdict
        assert verdict is not None
        if item.recorded_at is not None and key.newest_at is not None and item.recorded_at < key.newest_at:
            raise _deny("recorded_before_the_newest", "recorded_at")
        if verdict.outcome is not Says.ACCEPT and not self._holds_already(item, key):
            return _said(verdict, item.attribute)
        if any(row[5] for row in item.targets) and self.actor.kind is not ActorKind.PERSON:
            return _Course(Says.ASK, ("confirmed_by_a_person",), "builtin.confirmed", "reviewer")
        conflict = self._conflict(item, key)
        if conflict is not None:
            if self.catalogue.policy.on_conflict == "refuse" and not blind:
                raise _deny("conflict", status=409, reasons=(conflict,), rule="builtin.conflict")
            return _Course(Says.ASK, (conflict,), "builtin.conflict", "reviewer")
        return _Course(Says.ACCEPT, verdict.reasons, verdict.rule)

    def foresee(self, body: FactBody) -> tuple[_Prepared, _Course]:
        """Return the saying as it would be prepared, and what would become of it. Locks no key and makes nothing."""
        attribute, value = self._value(body)
        consents = self._consents({body.provenance.consent_ref})
        about = known(self.actor.tenant, [body.subject]).get(body.subject)
        if about is None:
            # Stands for the subject that the write would make: no consent, key or evidence is its own.
            about = SubjectState(new_id(), new_id(), bytes(32))
        episodes = self._episodes({body.provenance.source_episode})
        targets = self._targets({body.corrects})
        item = self._prepare(0, body, attribute, value, about, consents, episodes, targets)
        assert item.verdict is not None
        key = self._glance(item)
        if key is None or self._blind(item, key):
            return item, _said(item.verdict, attribute)
        return item, self._course(item, key, blind=False)

    def _glance(self, item: _Prepared) -> KeyState | None:
        """Return the saying's key as it stands, without a lock."""
        tenant, about, attribute = self.actor.tenant, item.subject, item.attribute
        found = rows.fetch(
            "SELECT k.id, k.chain_no, k.act_no, k.newest_at, clock_timestamp() FROM memory_factkey k"
            " WHERE k.tenant_id = %s::uuid AND k.subject_id = %s::uuid AND k.attribute_id = %s::uuid",
            [tenant, about.id, attribute.id],
        )
        if not found:
            return None
        key_id, chain_no, act_no, newest, clock = found[0]
        key = KeyState(
            id=key_id,
            subject_id=about.id,
            attribute_id=attribute.id,
            chain_no=chain_no,
            multi=attribute.multi,
            act_no=act_no,
            newest_at=newest,
            clock=clock,
            reserved=act_no,
            imports=True,
        )
        rows.load_facts(tenant, {key_id: key}, [(key_id, item.digest or b"")])
        rows.load_last(tenant, [key])
        if key.multi or item.targets:
            rows.load_chains(tenant, [key])
        return key

    def _holds_already(self, item: _Prepared, key: KeyState) -> bool:
        """Whether the proposed value is what holds at that instant: then it joins as evidence, and nobody is asked."""
        if item.is_end or item.targets:
            return False
        fact = key.facts.get(item.digest or b"")
        if fact is None:
            return False
        return self._loaded(key, lambda: key.chain(fact.chain_no).value_at(item.valid_from or self.now)) == fact.id

    def _loaded(self, key: KeyState, question: Any) -> Any:
        """Answer `question` of the key, loading its chains where the last stretches do not tell."""
        try:
            answer = question()
        except NotLoaded:
            answer = None
        chain = key.chains.get(key.chain_no)
        if answer is None and not key.multi and chain is not None and chain.sayings is None:
            rows.load_chains(self.actor.tenant, [key])
            answer = question()
        return answer

    def _rank(self, item: _Prepared) -> int:
        confirmed = item.source is SourceKind.CONFIRMATION
        return max(item.over, rank(item.attribute.definition.conflict, confirmed=confirmed, trust=item.trust))

    def _conflict(self, item: _Prepared, key: KeyState) -> str | None:
        """Return why a person must decide between this saying and another of the same instant, or None.

        What has ended does not compete: nobody is asked about it, and it does not outrank what is said now. Nor does
        anything outrank what a person confirms, who decides knowing what else was said.
        """
        policy = item.attribute.definition.conflict
        if policy is Conflict.LATEST or item.valid_from is None:
            return None
        rivals = self._rivals(item, key, item.valid_from)
        if not rivals:
            return None
        ended = self._ended(key, {rival.value for rival in rivals if rival.value is not None})
        settled = [
            rival.rank
            for rival in rivals
            if (rival.value in ended and not key.multi) or (item.decided and item.source is SourceKind.CONFIRMATION)
        ]
        item.over = max(settled, default=0)
        living = [rival for rival in rivals if rival.value not in ended]
        if item.decided or not living:
            return None
        if policy is Conflict.REVIEW:
            return "conflict_for_review"
        mine = self._rank(item)
        return "conflict_of_equals" if any(rival.rank == mine for rival in living) else None

    def _rivals(self, item: _Prepared, key: KeyState, valid_from: datetime) -> list[Saying]:
        """Return what stands of the same instant with another value and is not taken back by this saying."""
        gone = {row[0] for row in item.targets}
        pairs = self._sayings(item, key, new_id(), 0, valid_from)
        try:
            found = [rival for chain, saying in pairs for rival in chain.rivals(saying)]
        except NotLoaded:
            rows.load_chains(self.actor.tenant, [key])
            return self._rivals(item, key, valid_from)
        if not pairs and not item.is_end:
            # A value that is new to its key has no chain yet; the ends of the whole key belong to it all the same.
            found = [each for each in key.ends if each.valid_from == valid_from]
        return [rival for rival in found if rival.id not in gone]

    def _ended(self, key: KeyState, facts: set[Any]) -> set[Any]:
        unknown = facts - {fact.id for fact in key.facts.values()}
        if not unknown:
            return set()
        return unknown - {row[0] for row in rows.fetch(_LIVING, [self.actor.tenant, list(unknown)])}

    def _sayings(
        self, item: _Prepared, key: KeyState, evidence: UUID, act_no: int, valid_from: datetime
    ) -> list[tuple[Chain, Saying]]:
        """Return the saying as each chain that it belongs to sees it."""
        fact = None if item.digest is None else key.facts.get(item.digest)
        value = None if item.is_end or fact is None else fact.id
        if item.digest is not None and fact is None and not item.is_end:
            value = evidence  # a value that no fact has yet equals no other
        saying = Saying(evidence, value, valid_from, item.stated_to, self._rank(item), act_no)
        if not key.multi:
            return [(key.chain(key.chain_no), saying)]
        if item.digest is None:
            return [(chain, saying) for chain in key.chains.values()]
        return [] if fact is None else [(key.chain(fact.chain_no), saying)]

    def _fact(self, item: _Prepared, key: KeyState) -> tuple[FactState | None, bool]:
        """Return the fact of the saying's value, made where it is new, and whether it was made."""
        if item.digest is None or item.value is None:
            return None, False
        fact = key.facts.get(item.digest)
        if fact is not None:
            return fact, False
        chain_no = key.chain_no
        if key.multi:
            chain_no = rows.fetch("SELECT nextval('memory_chain_no')", [])[0][0]
        fact = FactState(
            id=new_id(),
            chain_no=chain_no,
            digest=item.digest,
            payload_id=new_id(),
            sensitivity=item.sensitivity,
            basis=item.basis,
            expires_at=item.expires_at,
            consent_ids=None if item.consent_id is None else frozenset([item.consent_id]),
            confirmed=False,
            confidence=None,
            evidence_count=0,
            review_at=item.review_at,
            fresh=True,
        )
        key.facts[item.digest] = fact
        self.stored.facts.append((fact, item))
        return fact, True

    def _stand(self, item: _Prepared, key: KeyState, *, blind: bool, reasons: tuple[str, ...]) -> Written:
        """Let the saying stand: evidence, fact, the beliefs that follow, and what is taken back by a correction."""
        recorded_at = key.recorded(item.recorded_at)
        act_no = key.next_act()
        valid_from = item.valid_from or recorded_at
        if item.stated_to is not None and item.stated_to <= valid_from:
            raise _deny("valid_to_not_after_valid_from", "valid_to")
        self._settle_into(item, key)
        fact, made = self._fact(item, key)
        evidence = new_id()
        gone = [row[0] for row in item.targets]
        change = self._reconcile(item, key, evidence, act_no, valid_from, recorded_at, gone, made=made)
        for row in item.targets:
            self.stored.retracted.append((row[0], recorded_at))
            if row[2] is not None:
                self._restate(row[2], key)
        if fact is not None and not item.is_end:
            grounds = Grounds(
                item.sensitivity,
                item.basis,
                item.expires_at,
                item.consent_id,
                item.source is SourceKind.CONFIRMATION,
                item.confidence,
                item.review_at,
            )
            fact.gain(grounds)
            self.stored.grounds.setdefault(fact.id, {})[evidence] = grounds
        self._evidence(item, key, fact, evidence, act_no, valid_from, recorded_at)
        self.touched.add(key.id)
        self.reasons.extend(reasons)
        self.verdicts.add("accept")
        action = (
            Action.FACT_CORRECTED
            if item.targets
            else Action.FACT_IMPORTED
            if item.recorded_at is not None
            else Action.FACT_WRITTEN
        )
        self.stored.events.append(
            Event(
                actor=self.actor,
                action=action,
                target_kind="evidence",
                target_id=evidence,
                reason=change,
                digest=item.digest,
                numbers={"act": act_no, "class": item.sensitivity},
            )
        )
        return Written(
            change=change,
            fact=None if fact is None else fact.id,
            evidence=evidence,
            receipt=self.receipt,
            blind=blind,
            reasons=reasons,
        )

    def _settle_into(self, item: _Prepared, key: KeyState) -> None:
        """Mark the overdue facts of the key as ended: they neither block nor swallow what is said now."""
        for fact_id, cause in key.overdue:
            self.stored.events.append(
                Event(
                    actor=self.actor,
                    action=Action.FACT_SETTLED,
                    target_kind="fact",
                    target_id=fact_id,
                    reason=cause,
                )
            )
        if key.overdue:
            rows.settle(self.actor.tenant, key.overdue)
            key.overdue = []

    def _reconcile(
        self,
        item: _Prepared,
        key: KeyState,
        evidence: UUID,
        act_no: int,
        valid_from: datetime,
        recorded_at: datetime,
        gone: list[UUID],
        *,
        made: bool,
    ) -> str:
        """Change the beliefs as the saying (and what it takes back) demands; return what kind of change that was."""
        pairs = self._sayings(item, key, evidence, act_no, valid_from)
        if key.multi and item.digest is None:
            key.ends.append(pairs[0][1] if pairs else self._bare_end(item, evidence, act_no, valid_from))
        if gone:
            taken = set(gone)
            standing = {id(chain): (chain, saying) for chain, saying in pairs}
            for chain in list(key.chains.values()):
                if id(chain) in standing or taken & set(chain.sayings or ()):
                    chain.replace(gone, standing.get(id(chain), (chain, None))[1], recorded_at)
            key.ends = [each for each in key.ends if each.id not in taken]
            return "corrected"
        first = last = True
        unchanged = True
        for chain, saying in pairs:
            first = first and chain.newest is None
            last = last and (chain.newest is None or chain.newest <= valid_from)
            try:
                change = chain.add(saying, recorded_at)
            except NotLoaded:
                rows.load_chains(self.actor.tenant, [key])
                chain = key.chain(chain.chain_no)
                change = chain.add(saying, recorded_at)
            unchanged = unchanged and not change.close and not change.open
        if item.is_end:
            return "ended"
        if unchanged and not made:
            return "no_change"
        if first or (key.multi and made):
            return "new"
        return "update" if last and not unchanged else "late"

    def _bare_end(self, item: _Prepared, evidence: UUID, act_no: int, valid_from: datetime) -> Saying:
        return Saying(evidence, None, valid_from, item.stated_to, self._rank(item), act_no)

    def _restate(self, fact_id: UUID, key: KeyState) -> None:
        """Have the fact's class, expiry and count follow what still stands for it, once the acts are done."""
        for fact in key.facts.values():
            if fact.id == fact_id:
                self.stored.restate[fact_id] = fact
                return
        found = rows.fetch(_FACTS_BY_ID, [self.actor.tenant, [fact_id]])
        for row in found:
            fact = _fact_state(row)
            key.facts[fact.digest] = fact
            self.stored.restate[fact_id] = fact

    def _evidence(
        self,
        item: _Prepared,
        key: KeyState,
        fact: FactState | None,
        evidence: UUID,
        act_no: int,
        valid_from: datetime,
        recorded_at: datetime,
    ) -> None:
        quote_id = item.quote_id
        if item.quote is not None and quote_id is None:
            level = item.sensitivity if fact is None else max(item.sensitivity, fact.sensitivity)
            quote_id = self._payload(item, "quote", item.quote, level)
        self.stored.evidence.append(
            (
                evidence,
                key.id,
                None if fact is None else fact.id,
                item.is_end,
                valid_from,
                item.stated_to,
                recorded_at,
                act_no,
                self._rank(item),
                item.source is SourceKind.CONFIRMATION,
                item.confidence,
                item.recorded_at is not None,
                item.source.value,
                item.turn_id,
                item.tool_call_id,
                item.consent_id,
                item.writer_kind,
                item.writer_id,
                item.trust,
                self.now,
                item.episode_id,
                quote_id,
                None,
                item.attribute.version_id,
                self.catalogue.policy_version_id,
                item.corrects,
                item.sensitivity,
                item.basis,
                item.expires_at,
            )
        )

    def _payload(self, item: _Prepared, purpose: str, text: str, sensitivity: int) -> UUID:
        """Put content in its place: sealed from `personal` up, else clear. Return the payload's id."""
        payload = new_id()
        consents = None if item.consent_id is None else [item.consent_id]
        self.stored.payloads.append(
            self._payload_row(payload, purpose, text, item.subject, sensitivity, item.basis, item.expires_at, consents)
        )
        return payload

    def _payload_row(
        self,
        payload: UUID,
        purpose: str,
        text: str,
        about: SubjectState,
        sensitivity: int,
        basis: str,
        expires_at: datetime | None,
        consents: Any,
    ) -> tuple[Any, ...]:
        sealed = key_id = None
        if sensitivity >= Sensitivity.PERSONAL:
            context = payload_context(self.actor.tenant, payload, purpose)
            sealed, key_id = keyring().seal(about.data_key, text.encode("utf-8"), context), about.key_id
        return (
            payload,
            purpose,
            key_id,
            None if sealed is not None else text,
            sealed,
            sensitivity,
            basis,
            expires_at,
            rows.uuids(consents),
            self.now,
        )

    # waiting ----------------------------------------------------------------------------------------------------------

    def _buffer(self, item: _Prepared, key: KeyState, verdict: _Course, *, blind: bool) -> Outcome:
        recurrence = item.attribute.definition.recurrence
        assert recurrence is not None
        until = self.now + timedelta(days=recurrence.days)
        candidate, state = self._propose(item, key, "buffered", verdict.reasons, verdict.rule, None, until)
        if state == "asked":
            # It waits for a person already, and no number of repetitions decides in that person's stead.
            return self._asked(candidate, verdict.reasons, blind=blind)
        since = self.now - timedelta(days=recurrence.days)
        told = self._consented([row for row in self._told(candidate) if row[16] >= since])
        sources = {row[8] or row[5] for row in told}
        if len(sources) >= recurrence.count:
            return self._promote(item, key, candidate, told, blind=blind)
        self.stored.events.append(self._candidate_event(Action.CANDIDATE_BUFFERED, candidate, verdict.reasons[0]))
        self.verdicts.add("buffer")
        self.reasons.extend(verdict.reasons)
        return Asked(candidate=candidate, verdict="buffer", reasons=verdict.reasons, receipt=self.receipt, blind=blind)

    def _ask(
        self,
        item: _Prepared,
        key: KeyState,
        reasons: tuple[str, ...],
        rule: str,
        confirm_by: str | None,
        *,
        blind: bool,
    ) -> Asked:
        until = self.now + _ASKED_FOR
        candidate, _ = self._propose(item, key, "asked", reasons, rule, confirm_by, until)
        return self._asked(candidate, reasons, blind=blind)

    def _asked(self, candidate: UUID, reasons: tuple[str, ...], *, blind: bool) -> Asked:
        self.stored.events.append(self._candidate_event(Action.CANDIDATE_ASKED, candidate, reasons[0]))
        self.verdicts.add("ask")
        self.reasons.extend(reasons)
        return Asked(candidate=candidate, verdict="ask", reasons=reasons, receipt=self.receipt, blind=blind)

    def _candidate_event(self, action: Action, candidate: UUID, reason: str) -> Event:
        return Event(actor=self.actor, action=action, target_kind="candidate", target_id=candidate, reason=reason[:60])

    def _propose(
        self,
        item: _Prepared,
        key: KeyState,
        state: str,
        reasons: tuple[str, ...],
        rule: str,
        confirm_by: str | None,
        until: datetime,
    ) -> tuple[UUID, str]:
        """Let the saying wait: join the equal proposal that waits already, or make one. Stored at once, under the key's
        lock, so that a later item of the same transaction finds it. Return the candidate and its state: what is asked
        about stays so, what was buffered is asked about when that is due."""
        tenant = self.actor.tenant
        until = until if item.expires_at is None else min(until, item.expires_at)
        basis, expires_at = item.basis, (None if item.basis == "indefinite" else until)
        # The class follows the highest saying; an end has no value and a correction names its target.
        found = rows.fetch(
            _PENDING, [tenant, key.subject_id, key.attribute_id, item.act, item.is_end, item.digest, item.named]
        )
        candidate = None
        for candidate_id, before, occurrences, lapsed in found:
            if lapsed:
                self._close_candidate(candidate_id, "expired", "lapsed", None)
                continue
            candidate = candidate_id
            state = "asked" if before == "asked" else state
            rows.fetch(
                "UPDATE memory_candidate SET occurrences = %s, state = %s, sensitivity = greatest(sensitivity, %s)"
                " WHERE tenant_id = %s AND id = %s RETURNING id",
                [occurrences + 1, state, item.sensitivity, tenant, candidate_id],
            )
            below = rows.fetch(_PROPOSED_BELOW, [tenant, candidate_id, item.sensitivity])
            self._raise([(payload, "candidate", item.sensitivity, clear, item.subject) for payload, clear in below])
        quote_id = None
        if item.quote is not None:
            quote_id = self._payload(item, "quote", item.quote, item.sensitivity)
        if candidate is None:
            candidate = new_id()
            payload = None if item.value is None else self._payload(item, "candidate", item.value, item.sensitivity)
            self._store_payloads()
            rows.CANDIDATES.insert(
                tenant,
                [
                    (
                        candidate,
                        key.subject_id,
                        key.attribute_id,
                        item.attribute.version_id,
                        self.catalogue.policy_version_id,
                        item.act,
                        item.named,
                        state,
                        rows.words(reasons),
                        rule,
                        confirm_by,
                        item.digest,
                        payload,
                        item.is_end,
                        item.writer_kind,
                        item.writer_id,
                        self.now,
                        item.sensitivity,
                        basis,
                        expires_at,
                    )
                ],
            )
        self._store_payloads()
        rows.CANDIDATE_SAYINGS.insert(
            tenant,
            [
                (
                    new_id(),
                    candidate,
                    item.valid_from or self.now,
                    item.stated_to,
                    item.confidence,
                    item.source.value,
                    item.turn_id,
                    item.tool_call_id,
                    item.consent_id,
                    item.episode_id,
                    quote_id,
                    item.sensitivity,
                    item.basis,
                    item.expires_at,
                    item.writer_kind,
                    item.writer_id,
                    item.trust,
                    self.now,
                )
            ],
        )
        return candidate, state

    def _store_payloads(self) -> None:
        rows.PAYLOADS.insert(self.actor.tenant, self.stored.payloads)
        self.stored.payloads = []

    def _told(self, candidate: UUID) -> list[tuple[Any, ...]]:
        return rows.fetch(_SAYINGS_OF, [self.actor.tenant, candidate])

    def _close_candidate(self, candidate: UUID, state: str, reason: str, evidence: UUID | None) -> None:
        rows.fetch(
            "UPDATE memory_candidate SET state = %s, decided_at = clock_timestamp(), decided_by = %s::uuid,"
            " decision_reason = %s, evidence_id = %s::uuid WHERE tenant_id = %s AND id = %s RETURNING id",
            [state, self.actor.id, reason, evidence, self.actor.tenant, candidate],
        )

    def _again(self, item: _Prepared, row: tuple[Any, ...]) -> _Prepared:
        """Return a waiting saying as it was said, to stand now."""
        return replace(
            item,
            valid_from=row[1],
            stated_to=row[2],
            confidence=row[3],
            source=SourceKind(row[4]),
            turn_id=row[5],
            tool_call_id=row[6],
            consent_id=row[7],
            episode_id=row[8],
            quote=None,
            quote_id=row[9],
            sensitivity=row[10],
            basis=row[11],
            expires_at=row[12],
            writer_kind=row[13],
            writer_id=row[14],
            trust=row[15],
            recorded_at=None,
            decided=True,
        )

    def _load_whole(self, key: KeyState) -> None:
        """Load the key's chains before several sayings stand one after another: loading later would forget the first."""
        if any(chain.sayings is None for chain in key.chains.values()):
            rows.load_chains(self.actor.tenant, [key])

    def _consented(self, told: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """Return the waiting sayings that rest on no consent or on one that stands.

        A consent that is being withdrawn is not waited for, since subjects and keys are locked already.
        """
        wanted = {row[7] for row in told if row[7] is not None}
        if not wanted:
            return told
        found = rows.fetch(
            "SELECT id FROM policies_consent WHERE tenant_id = %s::uuid AND id = ANY(%s::uuid[])"
            " AND withdrawn_at IS NULL FOR KEY SHARE SKIP LOCKED",
            [self.actor.tenant, list(wanted)],
        )
        standing = {row[0] for row in found}
        return [row for row in told if row[7] is None or row[7] in standing]

    def _promote(
        self, item: _Prepared, key: KeyState, candidate: UUID, told: Sequence[tuple[Any, ...]], *, blind: bool
    ) -> Outcome:
        """Let a buffered value stand that came from enough distinct sources: each of its sayings becomes evidence."""
        self._load_whole(key)
        sayings = [self._again(item, row) for row in told]
        for said in sayings:
            conflict = self._conflict(replace(said, decided=False), key)
            if conflict is not None:
                rows.fetch(
                    "UPDATE memory_candidate SET state = 'asked' WHERE tenant_id = %s AND id = %s RETURNING id",
                    [self.actor.tenant, candidate],
                )
                return self._asked(candidate, (conflict,), blind=blind)
        written: Written | None = None
        for said in sayings:
            self._conflict(said, key)
            outcome = self._stand(said, key, blind=blind, reasons=("recurred",))
            written = written or outcome
        assert written is not None
        self._close_candidate(candidate, "promoted", "recurred", written.evidence)
        self.stored.events.append(self._candidate_event(Action.CANDIDATE_PROMOTED, candidate, "recurred"))
        return written

    def decide(self, candidate: UUID, *, accept: bool, reason: str) -> Outcome:
        self.act = "candidate.decide"
        tenant = self.actor.tenant
        found = rows.fetch(
            "SELECT c.subject_id, c.attribute_id, c.act, c.target_id, c.is_end, p.id, p.purpose, p.clear, p.sealed,"
            " c.sensitivity, c.basis, c.expires_at FROM memory_candidate c"
            " LEFT JOIN memory_payload p ON p.tenant_id = c.tenant_id AND p.id = c.payload_id"
            " WHERE c.tenant_id = %s::uuid AND c.id = %s::uuid AND (c.expires_at IS NULL OR c.expires_at > clock_timestamp())",
            [tenant, candidate],
        )
        if not found:
            raise Missing
        subject_id, attribute_id, act, target, is_end, payload, purpose, clear, sealed, *_ = found[0]
        told = self._told(candidate)
        self._lock_consents([row[7] for row in told])
        about = self._subject_of(subject_id)
        attribute = self.catalogue.by_id.get(attribute_id)
        if attribute is None:
            return Denied(status=409, code="attribute_retired")
        if sealed is not None:
            context = payload_context(tenant, payload, purpose)
            clear = keyring().open(about.data_key, bytes(sealed), context).decode("utf-8")
        item = self._again(
            _Prepared(
                place=0,
                attribute=attribute,
                subject=about,
                value=clear,
                digest=None if clear is None else keyring().digest(about.data_key, "value", clear.encode("utf-8")),
                is_end=is_end,
                valid_from=None,
                stated_to=None,
                confidence=None,
                source=SourceKind.STATEMENT,
                turn_id="",
                tool_call_id=None,
                consent_id=None,
                episode_id=None,
                quote=None,
                sensitivity=0,
                basis="session",
                expires_at=None,
                review_at=None,
                writer_kind="agent",
                writer_id=self.actor.id,
                trust=0,
            ),
            told[-1],
        )
        if target is not None:
            item.targets = self._targets({target})[target]
        self._lock([item])
        key = self.keys[(subject_id, attribute_id)]
        # What joined while the lock was waited for is decided with the rest.
        told = self._told(candidate)
        # Read under the key's lock: of two people who decide at once, one is told that it was decided.
        if rows.fetch(
            "SELECT 1 FROM memory_candidate WHERE tenant_id = %s AND id = %s AND state NOT IN ('asked', 'buffered')",
            [tenant, candidate],
        ):
            return Denied(status=409, code="already_decided")
        if accept and target is not None:
            item.named = target
            self._aim_again(item)
        written: Outcome
        if not accept:
            written = Asked(candidate=candidate, verdict="rejected", reasons=(reason,), receipt=self.receipt)
            self._close_candidate(candidate, "rejected", reason, None)
        elif act == "retraction":
            written = self._take_back(key, item.targets, "other", None)
            self._close_candidate(candidate, "accepted", reason, None)
        else:
            written = self._confirm(item, key, told)
            self._close_candidate(candidate, "accepted", reason, written.evidence)
        self.verdicts.add("accept" if accept else "reject")
        self.stored.events.append(
            replace(self._candidate_event(Action.CANDIDATE_DECIDED, candidate, reason), numbers={"accepted": accept})
        )
        return written

    def _confirm(self, item: _Prepared, key: KeyState, told: Sequence[tuple[Any, ...]]) -> Written:
        told = self._consented(list(told))
        if not told:
            raise _deny("consent_withdrawn", status=409)
        self._load_whole(key)
        for row in told:
            said = self._again(item, row)
            self._conflict(said, key)
            self._stand(said, key, blind=False, reasons=("confirmed",))
            item.targets = []
        confirmation = replace(
            self._again(item, told[-1]),
            source=SourceKind.CONFIRMATION,
            quote_id=None,
            writer_kind=self.actor.kind.value,
            writer_id=self.actor.id,
            trust=self.actor.trust,
            confidence=None,
        )
        self._conflict(confirmation, key)
        return self._stand(confirmation, key, blind=False, reasons=("confirmed",))

    def _lock_consents(self, ids: Sequence[UUID | None]) -> None:
        wanted = sorted({each for each in ids if each is not None})
        if wanted:
            rows.fetch(
                "SELECT id FROM policies_consent WHERE tenant_id = %s::uuid AND id = ANY(%s::uuid[])"
                " ORDER BY id FOR KEY SHARE",
                [self.actor.tenant, wanted],
            )

    def _subject_of(self, subject_id: UUID) -> SubjectState:
        row = rows.fetch(
            "SELECT s.id, s.key_id, k.wrapped, k.version FROM memory_subject s"
            " JOIN tenants_subjectkey k ON k.tenant_id = s.tenant_id AND k.id = s.key_id"
            " WHERE s.tenant_id = %s::uuid AND s.id = %s::uuid FOR KEY SHARE OF s",
            [self.actor.tenant, subject_id],
        )[0]
        state = SubjectState(row[0], row[1], keyring().unwrap(self.actor.tenant, bytes(row[2]), row[3]))
        self.subjects[state.id] = state
        return state

    # taking back ------------------------------------------------------------------------------------------------------

    def retract(
        self, *, fact: UUID | None, evidence: UUID | None, reason: str, recorded_at: datetime | None
    ) -> Outcome:
        self.act = "evidence.retract"
        wanted = evidence if evidence is not None else fact
        if recorded_at is not None:
            if not self.actor.may(Scope.IMPORT):
                return Denied(
                    status=403,
                    code="import_scope_needed",
                    errors=(FieldError("recorded_at", "import_scope_needed"),),
                )
            if recorded_at > self.now:
                return Denied(
                    status=422,
                    code="recorded_in_the_future",
                    errors=(FieldError("recorded_at", "recorded_in_the_future"),),
                )
        found = [
            row
            for row in self._targets({wanted})[wanted]  # type: ignore[index]
            if self._sees(row) and (row[0] == evidence or (fact is not None and row[2] == fact))
        ]
        if not found:
            raise Missing
        subject_id, attribute_id = found[0][10], found[0][11]
        attribute = self.catalogue.by_id.get(attribute_id)
        if attribute is None:
            return Denied(status=409, code="attribute_retired")
        about = self._subject_of(subject_id)
        self.keys = {}
        item = _Prepared(
            place=0,
            attribute=attribute,
            subject=about,
            value=None,
            digest=None,
            is_end=True,
            valid_from=None,
            stated_to=None,
            confidence=None,
            source=SourceKind.STATEMENT,
            turn_id="retraction",
            tool_call_id=None,
            consent_id=None,
            episode_id=None,
            quote=None,
            sensitivity=found[0][9] or 0,
            basis="contract",
            expires_at=None,
            review_at=None,
            writer_kind=self.actor.kind.value,
            writer_id=self.actor.id,
            trust=self.actor.trust,
            recorded_at=recorded_at,
            targets=found,
        )
        self._lock([item])
        key = self.keys[(subject_id, attribute_id)]
        # Again, now under the lock: another transaction may have been first.
        found = [row for row in self._targets({wanted})[wanted] if row[0] == evidence or row[2] == fact]  # type: ignore[index]
        standing = [row for row in found if row[12] is None]
        if any(row[8] is not None for row in found):
            return Denied(status=409, code="fact_ended")
        if not standing:
            return Denied(status=409, code="already_retracted")
        try:
            self._may_take_back(standing)
            if recorded_at is not None and key.newest_at is not None and recorded_at < key.newest_at:
                raise _deny("recorded_before_the_newest", "recorded_at")
        except _Refusal as refusal:
            return refusal.denied
        if any(row[5] for row in standing) and self.actor.kind is not ActorKind.PERSON:
            return self._ask_to_take_back(item, key, wanted)
        return self._take_back(key, standing, reason, recorded_at)

    def _ask_to_take_back(self, item: _Prepared, key: KeyState, wanted: UUID | None) -> Asked:
        tenant, reasons = self.actor.tenant, ("confirmed_by_a_person",)
        found = rows.fetch(_PENDING, [tenant, key.subject_id, key.attribute_id, "retraction", False, None, wanted])
        for lapsed in [row for row in found if row[3]]:
            self._close_candidate(lapsed[0], "expired", "lapsed", None)
            found = []
        candidate = found[0][0] if found else new_id()
        until = self.now + _ASKED_FOR
        if not found:
            rows.CANDIDATES.insert(
                tenant,
                [
                    (
                        candidate,
                        key.subject_id,
                        key.attribute_id,
                        item.attribute.version_id,
                        self.catalogue.policy_version_id,
                        "retraction",
                        wanted,
                        "asked",
                        rows.words(reasons),
                        "builtin.confirmed",
                        "reviewer",
                        None,
                        None,
                        False,
                        item.writer_kind,
                        item.writer_id,
                        self.now,
                        item.sensitivity,
                        "session",
                        until,
                    )
                ],
            )
            rows.CANDIDATE_SAYINGS.insert(
                tenant,
                [
                    (
                        new_id(),
                        candidate,
                        self.now,
                        None,
                        None,
                        "statement",
                        item.turn_id,
                        None,
                        None,
                        None,
                        None,
                        item.sensitivity,
                        "session",
                        until,
                        item.writer_kind,
                        item.writer_id,
                        item.trust,
                        self.now,
                    )
                ],
            )
        self.stored.events.append(self._candidate_event(Action.CANDIDATE_ASKED, candidate, reasons[0]))
        self.verdicts.add("ask")
        return Asked(candidate=candidate, verdict="ask", reasons=reasons, receipt=self.receipt)

    def _take_back(
        self, key: KeyState, standing: Sequence[tuple[Any, ...]], reason: str, recorded_at: datetime | None
    ) -> Retracted:
        at = key.recorded(recorded_at)
        act_no = key.next_act()
        gone = [row[0] for row in standing]
        for chain in list(key.chains.values()):
            if set(gone) & set(chain.sayings or ()):
                chain.replace(gone, None, at)
        for row in standing:
            self.stored.retracted.append((row[0], at))
            if row[2] is not None:
                self._restate(row[2], key)
            self.stored.events.append(
                Event(
                    actor=self.actor,
                    action=Action.EVIDENCE_RETRACTED,
                    target_kind="evidence",
                    target_id=row[0],
                    reason=reason,
                    numbers={"act": act_no},
                )
            )
        self._retraction_reason = reason
        self.touched.add(key.id)
        self.verdicts.add("accept")
        return Retracted(evidence=tuple(gone), receipt=self.receipt)

    _retraction_reason: str = "corrected"

    # episodes ---------------------------------------------------------------------------------------------------------

    def keep_episode(self, body: EpisodeBody) -> Outcome:
        self.act = "episode.write"
        tenant, ring = self.actor.tenant, keyring()
        text = body.content if isinstance(body.content, str) else canonical_text(body.content)
        basis = Basis.SESSION if body.retention is None else body.retention.basis
        consents = self._consents({body.consent_ref})
        about = None if body.subject is None else resolve(tenant, [body.subject], now=self.now)[body.subject]
        try:
            consent_id, state, purposes = self._consent(body.consent_ref, about, consents)
            if basis is Basis.CONSENT and body.consent_ref is None:
                raise _deny("consent_ref_needed", "consent_ref")
        except _Refusal as refusal:
            return refusal.denied
        verdict = decide(
            self._question(
                act="episode",
                attribute=None,
                source=SourceKind.TOOL_RESULT if body.kind == "tool_result" else SourceKind.STATEMENT,
                declared=body.sensitivity,
                basis=basis,
                consent=state,
                purposes=purposes,
                confidence=None,
                expires_at=None if body.retention is None else body.retention.expires_at,
            ),
            self.catalogue.policy,
            version=self.catalogue.policy_version,
        )
        if verdict.outcome is not Says.ACCEPT:
            return Denied(status=422, code="rejected", reasons=verdict.reasons, rule=verdict.rule)
        # One source, one episode: its writer, session, turn, subject and tool call name it.
        rows.fetch(
            "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))",
            [f"{tenant}{self.actor.id}{body.session_id}\x1f{body.turn_id}"],
        )
        digest = ring.request_digest(tenant, "episode", text.encode("utf-8"))
        subject_id = None if about is None else about.id
        known = rows.fetch(
            "SELECT e.id, e.content_digest FROM memory_episode e WHERE e.tenant_id = %s::uuid AND e.writer_id = %s::uuid"
            " AND e.session_id = %s::text AND e.turn_id = %s::text AND e.subject_id IS NOT DISTINCT FROM %s::uuid"
            " AND e.tool_call_id IS NOT DISTINCT FROM %s::text AND e.kind = %s::text",
            [tenant, self.actor.id, body.session_id, body.turn_id, subject_id, body.tool_call_id, body.kind],
        )
        if known:
            if bytes(known[0][1]) != digest:
                return Denied(status=409, code="source_has_other_content")
            self.verdicts.add("accept")
            self.reasons.append("source_known")
            return EpisodeKept(id=known[0][0], receipt=self.receipt, repeated=True)
        if about is None:
            # Nobody's data key: the episode has one of its own, so that it too can be destroyed alone.
            data_key, wrapped, version = ring.new_data_key(tenant)
            key_id = new_id()
            rows.SUBJECT_KEYS.insert(tenant, [(key_id, wrapped, version, self.now)])
            about = SubjectState(new_id(), key_id, data_key)
        payload, episode_id = new_id(), new_id()
        sensitivity = int(verdict.sensitivity)
        consent_ids = None if consent_id is None else [consent_id]
        self.stored.payloads.append(
            self._payload_row(
                payload, "episode", text, about, sensitivity, verdict.basis.value, verdict.expires_at, consent_ids
            )
        )
        self._store_payloads()
        rows.EPISODES.insert(
            tenant,
            [
                (
                    episode_id,
                    body.kind,
                    body.role,
                    subject_id,
                    body.session_id,
                    body.turn_id,
                    body.tool_call_id,
                    body.occurred_at,
                    self.now,
                    self.actor.kind.value,
                    self.actor.id,
                    consent_id,
                    payload,
                    digest,
                    self.catalogue.policy_version_id,
                    sensitivity,
                    verdict.basis.value,
                    verdict.expires_at,
                )
            ],
        )
        self.stored.events.append(
            Event(
                actor=self.actor,
                action=Action.EPISODE_RECORDED,
                target_kind="episode",
                target_id=episode_id,
                reason=verdict.reasons[0][:60],
                numbers={"class": sensitivity},
            )
        )
        self.verdicts.add("accept")
        self.reasons.extend(verdict.reasons)
        if subject_id is not None:
            self.subjects = {subject_id: about}
        return EpisodeKept(id=episode_id, receipt=self.receipt)

    # storing ----------------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Store what the acts came to: each set in one statement, the audit entries last."""
        self._restate_facts()
        self._raise_quotes()
        # Nothing below asks for an answer: one round trip stores it all.
        with rows.pipelined():
            self._store()

    def _store(self) -> None:
        tenant, stored = self.actor.tenant, self.stored
        fresh = [(fact, item) for fact, item in stored.facts]
        for fact, item in fresh:
            consents = None if fact.consent_ids is None else sorted(fact.consent_ids)
            stored.payloads.append(
                self._payload_row(
                    fact.payload_id,
                    "value",
                    item.value or "",
                    item.subject,
                    fact.sensitivity,
                    fact.basis,
                    fact.expires_at,
                    consents,
                )
            )
        self._store_payloads()
        rows.FACTS.insert(tenant, [self._fact_row(fact, item) for fact, item in fresh])
        changed = [
            (fact, key) for key in self.keys.values() for fact in key.facts.values() if fact.changed and not fact.fresh
        ]
        rows.update_facts(tenant, [fact for fact, _ in changed])
        rows.update_payloads(
            tenant, [self._governed(fact, self.subjects[key.subject_id]) for fact, key in changed if fact.regoverned]
        )
        rows.EVIDENCE.insert(tenant, stored.evidence)
        rows.retract(tenant, stored.retracted, self.actor.id, self._retraction_reason)
        chains = [(key, chain) for key in self.keys.values() for chain in key.chains.values()]
        rows.close_beliefs(
            tenant,
            [each for _, chain in chains for each in chain.closed],
            [each for _, chain in chains for each in chain.deleted],
        )
        # After the beliefs: only what the key's newest stored act opened may be removed, and these acts may lie later.
        moved = [key for key in self.keys.values() if key.imports or key.act_no > key.reserved]
        rows.move_keys(tenant, moved)
        # Acts that were foreseen and did not happen (asked, refused, rejected) leave no trace in what an import must follow.
        rows.move_back(tenant, [key for key in self.keys.values() if not key.imports and key.act_no < key.reserved])
        rows.BELIEFS.insert(
            tenant,
            [
                (
                    belief.id,
                    key.id,
                    belief.chain_no,
                    belief.evidence_id,
                    belief.fact_id,
                    belief.valid_from,
                    belief.valid_to,
                    belief.believed_from,
                    belief.believed_to,
                )
                for key, chain in chains
                for belief in chain.fresh()
            ],
        )
        rows.OUTBOX.insert(
            tenant, [(new_id(), "ledger.check", key_id, self.now, self.now) for key_id in sorted(self.touched)]
        )
        if self.touched:
            outbox.nudge()
        self._receipt()
        append([*stored.events, *(_refusal_event(self.actor, self.receipt, each) for each in self.refused)])

    def _restate_facts(self) -> None:
        if not self.stored.restate:
            return
        gone = {each for each, _ in self.stored.retracted}
        standing: dict[UUID, list[Grounds]] = {fact_id: [] for fact_id in self.stored.restate}
        for fact_id, sensitivity, basis, expires_at, consent_id, confirmed, confidence in rows.fetch(
            _STANDING, [self.actor.tenant, list(standing), list(gone)]
        ):
            standing[fact_id].append(Grounds(sensitivity, basis, expires_at, consent_id, confirmed, confidence))
        for fact_id, fact in self.stored.restate.items():
            said = self.stored.grounds.get(fact_id, {})
            fact.restate([*standing[fact_id], *(grounds for each, grounds in said.items() if each not in gone)])

    def _raise_quotes(self) -> None:
        """Let the quotes of facts whose class was raised follow them: a quote says what its fact says."""
        raised = [fact for key in self.keys.values() for fact in key.facts.values() if fact.raised and not fact.fresh]
        if not raised:
            return
        found = rows.fetch(
            _QUOTES_BELOW, [[fact.id for fact in raised], [fact.sensitivity for fact in raised], self.actor.tenant]
        )
        self._raise([(payload, "quote", level, clear, self.subjects[about]) for payload, level, clear, about in found])

    def _raise(self, payloads: Sequence[tuple[UUID, str, int, str | None, SubjectState]]) -> None:
        """Raise payloads (id, purpose, class, what stands in clear, subject) to a class, sealing what may not stay clear."""
        raised: list[tuple[UUID, int, UUID | None, bytes | None]] = []
        for payload, purpose, level, clear, about in payloads:
            if clear is None or level < Sensitivity.PERSONAL:
                raised.append((payload, level, None, None))
                continue
            context = payload_context(self.actor.tenant, payload, purpose)
            raised.append(
                (payload, level, about.key_id, keyring().seal(about.data_key, clear.encode("utf-8"), context))
            )
        rows.raise_payloads(self.actor.tenant, raised)

    def _fact_row(self, fact: FactState, item: _Prepared) -> tuple[Any, ...]:
        key = self.keys[(item.subject.id, item.attribute.id)]
        return (
            fact.id,
            key.id,
            key.subject_id,
            fact.chain_no,
            fact.digest,
            fact.payload_id,
            item.attribute.version_id,
            self.catalogue.policy_version_id,
            fact.sensitivity,
            fact.basis,
            fact.expires_at,
            rows.uuids(None if fact.consent_ids is None else sorted(fact.consent_ids)),
            fact.confirmed,
            fact.confidence,
            fact.evidence_count,
            fact.review_at,
            self.now,
        )

    def _governed(self, fact: FactState, about: SubjectState) -> tuple[FactState, UUID | None, bytes | None]:
        if fact.clear is None or fact.sensitivity < Sensitivity.PERSONAL:
            return fact, None, None
        # The class was raised: what stood in clear is sealed now.
        context = payload_context(self.actor.tenant, fact.payload_id, "value")
        return fact, about.key_id, keyring().seal(about.data_key, fact.clear.encode("utf-8"), context)

    def _receipt(self) -> None:
        keys = self.keys.values()
        facts_touched = {fact.id for key in keys for fact in key.facts.values() if fact.changed}
        verdict = "accept" if "accept" in self.verdicts else next(iter(sorted(self.verdicts)), "reject")
        rows.RECEIPTS.insert(
            self.actor.tenant,
            [
                (
                    self.receipt,
                    self.act,
                    self.actor.kind.value,
                    self.actor.id,
                    self.now,
                    rows.uuids(sorted(self.subjects)),
                    rows.uuids(sorted({key.attribute_id for key in keys})),
                    rows.uuids(sorted(facts_touched)),
                    self.catalogue.policy_version_id,
                    verdict,
                    rows.words(sorted(set(self.reasons))),
                )
            ],
        )


def _fact_state(row: tuple[Any, ...]) -> FactState:
    return FactState(
        id=row[1],
        chain_no=row[2],
        digest=bytes(row[3]),
        payload_id=row[4],
        sensitivity=row[5],
        basis=row[6],
        expires_at=row[7],
        consent_ids=None if row[8] is None else frozenset(row[8]),
        confirmed=row[9],
        confidence=row[10],
        evidence_count=row[11],
        review_at=row[12],
        clear=row[13],
    )
