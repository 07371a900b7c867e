"""Candidates: sayings that wait, for a person who decides or for recurrence, and what becomes of them.

A candidate is stored at once, under its key's lock, so that a later saying of the same transaction finds it and joins.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from memory import acts, detecting, factkeys, rows, sayings, subjects, suppression
from memory.acts import CONFIRMED_BY_A_PERSON, Course
from memory.ledger import KeyState
from memory.outcomes import Asked, Instead, Outcome, Refusal, Seen, Written
from memory.rows import CandidateRow, CandidateSayingRow
from memory.sayings import Prepared
from memory.subjects import SubjectState, payload_context
from memory.writing import Raised, Writing
from policies.catalogue import AttributeInForce
from policies.values import ValueRefused, canonical_text
from policies.vocabulary import Basis, Sensitivity, SourceKind
from policies.vocabulary import Outcome as Verdict
from tenants.audit import Action
from tenants.errors import Missing
from tenants.identity import new_id
from tenants.secrets import keyring

#: How long a proposal waits for a person before it lapses, whatever the life of what it proposes.
ASKED_FOR = timedelta(days=90)


class Waiting(NamedTuple):
    """One saying of a candidate, as it was said."""

    valid_from: datetime
    stated_to: datetime | None
    confidence: float | None
    source: str
    turn_id: str
    tool_call_id: str | None
    consent_id: UUID | None
    session_id: str | None
    contract_ref: str | None
    episode_id: UUID | None
    quote_id: UUID | None
    extractor: str | None
    sensitivity: int
    basis: str
    expires_at: datetime | None
    writer_kind: str
    writer_id: UUID
    trust: int
    said_at: datetime
    detected: list[str]

    def again(self, item: Prepared) -> Prepared:
        """Return it as `item`, the proposal that it belongs to, to stand now."""
        return replace(
            item,
            valid_from=self.valid_from,
            stated_to=self.stated_to,
            confidence=self.confidence,
            source=SourceKind(self.source),
            turn_id=self.turn_id,
            tool_call_id=self.tool_call_id,
            consent_id=self.consent_id,
            session_id=self.session_id,
            contract_ref=self.contract_ref,
            episode_id=self.episode_id,
            quote=None,
            quote_id=self.quote_id,
            extractor=self.extractor,
            sensitivity=self.sensitivity,
            basis=self.basis,
            expires_at=self.expires_at,
            writer_kind=self.writer_kind,
            writer_id=self.writer_id,
            trust=self.trust,
            detected=self.detected,
            recorded_at=None,
            decided=True,
        )


_WAITING = """
SELECT s.valid_from, s.stated_to, s.confidence, s.source, s.turn_id, s.tool_call_id, s.consent_id, s.session_id,
  s.contract_ref, s.episode_id, s.quote_id,
  s.extractor, s.sensitivity, s.basis, s.expires_at, s.writer_kind, s.writer_id, s.trust, s.said_at,
  s.detected
FROM memory_candidatesaying s WHERE s.tenant_id = %s::uuid AND s.candidate_id = %s::uuid ORDER BY s.id
"""


def _waiting(tenant: UUID, candidate: UUID) -> list[Waiting]:
    return [Waiting(*row) for row in rows.fetch(_WAITING, [tenant, candidate])]


# asking and buffering -------------------------------------------------------------------------------------------------


def ask(writing: Writing, item: Prepared, key: KeyState, course: Course, *, blind: bool) -> Asked:
    """Let the saying wait for a person."""
    until = writing.now + ASKED_FOR
    candidate, _ = _propose(writing, item, key, course, state="asked", until=until)
    return _asked(writing, candidate, course.reasons, blind=blind)


def buffer(writing: Writing, item: Prepared, key: KeyState, course: Course, *, blind: bool) -> Written | Asked:
    """Let the saying wait until its value came from enough distinct sources; if these were the last, let them all stand."""
    recurrence = item.attribute.definition.recurrence
    assert recurrence is not None
    window = timedelta(days=recurrence.days)
    candidate, state = _propose(writing, item, key, course, state="buffered", until=writing.now + window)
    if state == "asked":
        # It waits for a person already, and no number of repetitions decides in that person's stead.
        return _asked(writing, candidate, course.reasons, blind=blind)
    tenant = writing.actor.tenant
    told = [each for each in _waiting(tenant, candidate) if each.said_at >= writing.now - window]
    if item.suppressed is not None:
        # What was said before a decision against it does not help it to come back.
        told = [each for each in told if each.said_at > item.suppressed]
    told = _consented(tenant, told)
    if len({each.episode_id or each.turn_id for each in told}) >= recurrence.count:
        return _promote(writing, item, key, candidate, told, blind=blind)
    _note(writing, Action.CANDIDATE_BUFFERED, candidate, course.reasons[0])
    writing.came_to("buffer", course.reasons)
    return Asked(candidate=candidate, verdict="buffer", reasons=course.reasons, receipt=writing.receipt, blind=blind)


def ask_to_take_back(writing: Writing, item: Prepared, key: KeyState, name: UUID) -> Asked:
    """Let a person decide whether the evidence or fact of that name is taken back."""
    course = CONFIRMED_BY_A_PERSON
    pending = _pending(writing, key, "retraction", is_end=False, digest=None, target=name)
    if pending is not None:
        return _asked(writing, pending.id, course.reasons)
    until = writing.now + ASKED_FOR
    item = replace(item, basis="session", expires_at=until)
    candidate = _store(writing, item, course, act="retraction", target=name, state="asked", expires_at=until)
    _store_saying(writing, item, candidate, quote_id=None)
    return _asked(writing, candidate, course.reasons)


#: What is asked about an attribute that nobody has defined waits so long, and so many of a tenant's wait at once.
UNDEFINED_FOR = timedelta(days=30)
UNDEFINED_AT_ONCE = 1_000
UNKNOWN_ATTRIBUTE = Course(Verdict.ASK, ("unknown_attribute",), "builtin.unknown_attribute", "reviewer")

# One of a tenant's at a time, from here to the commit, since no key stands for them: after fact keys in the order of locks.
_LOCK_UNDEFINED = "SELECT pg_advisory_xact_lock(hashtextextended('unknown_attribute ' || %s::text, 0))"
_UNDEFINED = """
SELECT count(*) FROM (SELECT FROM memory_candidate c WHERE c.tenant_id = %s::uuid AND c.act = 'unknown_attribute'
  AND c.state = 'asked' AND c.expires_at > clock_timestamp() LIMIT %s) x
"""
_PENDING_UNDEFINED = """
SELECT c.id, c.state, c.occurrences, c.expires_at <= clock_timestamp()
FROM memory_candidate c
WHERE c.tenant_id = %s::uuid AND c.subject_id = %s::uuid AND c.attribute_id IS NULL AND c.act = 'unknown_attribute'
  AND c.value_digest = %s::bytea AND c.state IN ('asked', 'buffered')
"""


def ask_to_define(writing: Writing, item: Prepared) -> Asked:
    """Let a saying about an attribute that nobody has defined wait, name and value sealed together.

    A person rejects it, or has the attribute defined and then confirms it. Raises `Refusal` where too many wait.
    """
    tenant = writing.actor.tenant
    rows.execute(_LOCK_UNDEFINED, [tenant])
    item = replace(item, sensitivity=max(item.sensitivity, int(Sensitivity.PERSONAL)))
    text = canonical_text({"attribute": item.attribute.name, "value": json.loads(item.value or "null")})
    digest = item.subject.digest(text)
    equal = (_PENDING_UNDEFINED, [tenant, item.subject.id, digest])
    found, ((waiting,),) = rows.fetch_all([equal, (_UNDEFINED, [tenant, UNDEFINED_AT_ONCE])])
    pending = _living(writing, found)
    if pending is not None:
        candidate = pending.id
        _join(writing, item, pending, "asked")
    elif waiting >= UNDEFINED_AT_ONCE:
        raise Refusal("unknown_attribute", "attribute")
    else:
        until = writing.now + UNDEFINED_FOR
        until = until if item.expires_at is None else min(until, item.expires_at)
        # Whatever it would be kept for, it does not wait without an end.
        basis = "session" if item.basis == "indefinite" else item.basis
        held = replace(item, value=text, digest=digest, basis=basis, expires_at=until)
        candidate = _store(
            writing, held, UNKNOWN_ATTRIBUTE, act="unknown_attribute", target=None, state="asked", expires_at=until
        )
    quote_id = None
    if item.quote is not None:
        quote_id = writing.add_payload_of(item, "quote", item.quote, sensitivity=item.sensitivity)
    _store_saying(writing, item, candidate, quote_id=quote_id)
    return _asked(writing, candidate, UNKNOWN_ATTRIBUTE.reasons)


def _asked(writing: Writing, candidate: UUID, reasons: tuple[str, ...], *, blind: bool = False) -> Asked:
    _note(writing, Action.CANDIDATE_ASKED, candidate, reasons[0])
    writing.came_to("ask", reasons)
    return Asked(candidate=candidate, verdict="ask", reasons=reasons, receipt=writing.receipt, blind=blind)


def _note(writing: Writing, action: Action, candidate: UUID, reason: str, **numbers: bool) -> None:
    writing.note(action, "candidate", candidate, reason=reason, numbers=dict(numbers))


class _Pending(NamedTuple):
    id: UUID
    state: str
    occurrences: int
    lapsed: bool


_PENDING = """
SELECT c.id, c.state, c.occurrences, c.expires_at <= clock_timestamp()
FROM memory_candidate c
WHERE c.tenant_id = %s::uuid AND c.subject_id = %s::uuid AND c.attribute_id = %s::uuid AND c.act = %s AND c.is_end = %s
  AND c.value_digest IS NOT DISTINCT FROM %s::bytea AND c.target_id IS NOT DISTINCT FROM %s::uuid
  AND c.state IN ('asked', 'buffered')
"""
_JOIN = """
UPDATE memory_candidate SET occurrences = %s, state = %s, sensitivity = greatest(sensitivity, %s)
WHERE tenant_id = %s AND id = %s
"""
_PROPOSED_BELOW = """
SELECT p.id, p.clear FROM memory_candidate c CROSS JOIN LATERAL (SELECT * FROM memory_payload x WHERE x.tenant_id = c.tenant_id AND x.id = c.payload_id OFFSET 0) p
WHERE c.tenant_id = %s::uuid AND c.id = %s::uuid AND p.sensitivity < %s
"""
_CLOSE = """
UPDATE memory_candidate SET state = %s, decided_at = clock_timestamp(), decided_by = %s::uuid, decision_reason = %s,
  evidence_id = %s::uuid
WHERE tenant_id = %s AND id = %s
"""


def _pending(
    writing: Writing, key: KeyState, act: str, *, is_end: bool, digest: bytes | None, target: UUID | None
) -> _Pending | None:
    """Return the equal proposal that waits already, if any; one whose time is over is closed."""
    equal = [writing.actor.tenant, key.subject_id, key.attribute_id, act, is_end, digest, target]
    return _living(writing, rows.fetch(_PENDING, equal))


def _living(writing: Writing, answer: Sequence[tuple[Any, ...]]) -> _Pending | None:
    pending = None
    for row in answer:
        found = _Pending(*row)
        if found.lapsed:
            _close(writing, found.id, "expired", "lapsed")
        else:
            pending = found
    return pending


def _close(writing: Writing, candidate: UUID, state: str, reason: str, evidence: UUID | None = None) -> None:
    rows.execute(_CLOSE, [state, writing.actor.id, reason, evidence, writing.actor.tenant, candidate])


def _propose(
    writing: Writing, item: Prepared, key: KeyState, course: Course, *, state: str, until: datetime
) -> tuple[UUID, str]:
    """Let the saying join the equal proposal that waits already, or make one. Return the candidate and its state.

    What is asked about stays so; what was buffered is asked about when that is due.
    """
    act = "correction" if item.targets else "fact"
    pending = _pending(writing, key, act, is_end=item.is_end, digest=item.digest, target=item.named)
    if pending is not None:
        candidate = pending.id
        state = "asked" if pending.state == "asked" else state
        _join(writing, item, pending, state)
    else:
        until = until if item.expires_at is None else min(until, item.expires_at)
        expires_at = None if item.basis == "indefinite" else until
        candidate = _store(writing, item, course, act=act, target=item.named, state=state, expires_at=expires_at)
    quote_id = None
    if item.quote is not None:
        quote_id = writing.add_payload_of(item, "quote", item.quote, sensitivity=item.sensitivity)
    _store_saying(writing, item, candidate, quote_id=quote_id)
    return candidate, state


def _join(writing: Writing, item: Prepared, pending: _Pending, state: str) -> None:
    tenant = writing.actor.tenant
    rows.execute(_JOIN, [pending.occurrences + 1, state, item.sensitivity, tenant, pending.id])
    # The class of what is proposed follows the highest saying.
    below = rows.fetch(_PROPOSED_BELOW, [tenant, pending.id, item.sensitivity])
    writing.raise_payloads(
        [Raised(payload, "candidate", item.sensitivity, clear, item.subject) for payload, clear in below]
    )


def _store(
    writing: Writing,
    item: Prepared,
    course: Course,
    *,
    act: str,
    target: UUID | None,
    state: str,
    expires_at: datetime | None,
) -> UUID:
    payload = None
    if item.value is not None:
        payload = writing.add_payload_of(item, "candidate", item.value, sensitivity=item.sensitivity)
        writing.store_payloads()
    candidate = CandidateRow(
        id=new_id(),
        subject_id=item.subject.id,
        attribute_id=None if item.undefined else item.attribute.id,
        attribute_version_id=None if item.undefined else item.attribute.version_id,
        policy_version_id=writing.catalogue.policy_version_id,
        act=act,
        target_id=target,
        state=state,
        reasons=rows.words(course.reasons),
        rule=course.rule,
        confirm_by=course.confirm_by,
        value_digest=item.digest,
        payload_id=payload,
        # A retraction ends nothing by itself: it lets hold again what stands without it.
        is_end=item.is_end and act != "retraction",
        writer_kind=item.writer_kind,
        writer_id=item.writer_id,
        created_at=writing.now,
        sensitivity=item.sensitivity,
        basis=item.basis,
        expires_at=expires_at,
    )
    rows.CANDIDATES.insert(writing.actor.tenant, [candidate])
    return candidate.id


def _store_saying(writing: Writing, item: Prepared, candidate: UUID, *, quote_id: UUID | None) -> None:
    writing.store_payloads()
    saying = CandidateSayingRow(
        id=new_id(),
        candidate_id=candidate,
        valid_from=item.valid_from or writing.now,
        stated_to=item.stated_to,
        confidence=item.confidence,
        source=item.source.value,
        turn_id=item.turn_id,
        tool_call_id=item.tool_call_id,
        consent_id=item.consent_id,
        session_id=item.session_id,
        contract_ref=item.contract_ref,
        episode_id=item.episode_id,
        quote_id=quote_id,
        extractor=item.extractor,
        sensitivity=item.sensitivity,
        basis=item.basis,
        expires_at=item.expires_at,
        writer_kind=item.writer_kind,
        writer_id=item.writer_id,
        trust=item.trust,
        said_at=writing.now,
        detected=rows.words(item.detected),
    )
    rows.CANDIDATE_SAYINGS.insert(writing.actor.tenant, [saying])


# letting what waited stand --------------------------------------------------------------------------------------------

_STANDING_CONSENTS = """
SELECT id FROM policies_consent WHERE tenant_id = %s::uuid AND id = ANY(%s::uuid[]) AND withdrawn_at IS NULL
FOR KEY SHARE SKIP LOCKED
"""


def _consented(tenant: UUID, told: Sequence[Waiting]) -> list[Waiting]:
    """Return the waiting sayings that rest on no consent or on one that stands.

    A consent that is being withdrawn is not waited for, since subjects and keys are locked already.
    """
    wanted = _consents(told)
    standing = {row[0] for row in rows.fetch(_STANDING_CONSENTS, [tenant, wanted])} if wanted else set()
    return [each for each in told if each.consent_id is None or each.consent_id in standing]


def _consents(told: Iterable[Waiting]) -> list[UUID]:
    return sorted({each.consent_id for each in told if each.consent_id is not None})


def _load_whole(writing: Writing, key: KeyState) -> None:
    """Load the key's chains before several sayings stand one after another: loading later would forget the first."""
    if any(chain.sayings is None for chain in key.chains.values()):
        factkeys.load_whole(writing.actor.tenant, [key])


def _promote(
    writing: Writing, item: Prepared, key: KeyState, candidate: UUID, told: Sequence[Waiting], *, blind: bool
) -> Written | Asked:
    """Let a buffered value stand: each of its sayings becomes evidence, unless a person must decide about one."""
    _load_whole(writing, key)
    said = [each.again(item) for each in told]
    for each in said:
        reason = acts.conflict(writing, replace(each, decided=False), key)
        if reason is not None:
            rows.execute(
                "UPDATE memory_candidate SET state = 'asked' WHERE tenant_id = %s AND id = %s",
                [writing.actor.tenant, candidate],
            )
            return _asked(writing, candidate, (reason,), blind=blind)
    written = [_stand(writing, each, key, reasons=("recurred",), blind=blind) for each in said]
    _close(writing, candidate, "promoted", "recurred", written[0].evidence)
    _note(writing, Action.CANDIDATE_PROMOTED, candidate, "recurred")
    return written[0]


def _stand(
    writing: Writing, item: Prepared, key: KeyState, *, reasons: tuple[str, ...], blind: bool = False
) -> Written:
    # Nobody is asked again; what no longer competes is outranked.
    acts.conflict(writing, item, key)
    return acts.stand(writing, item, key, blind=blind, reasons=reasons)


# deciding -------------------------------------------------------------------------------------------------------------


class _Candidate(NamedTuple):
    subject_id: UUID
    attribute_id: UUID | None
    act: str
    target: UUID | None
    is_end: bool
    payload: UUID | None
    clear: str | None
    sealed: bytes | None
    waits: bool


_CANDIDATE = """
SELECT c.subject_id, c.attribute_id, c.act, c.target_id, c.is_end, p.id, p.clear, p.sealed, c.state IN ('asked', 'buffered')
FROM memory_candidate c LEFT JOIN LATERAL (SELECT * FROM memory_payload x WHERE x.tenant_id = c.tenant_id AND x.id = c.payload_id OFFSET 0) p ON true
WHERE c.tenant_id = %s::uuid AND c.id = %s::uuid AND (c.expires_at IS NULL OR c.expires_at > clock_timestamp())
"""
_LOCK_CONSENTS = """
SELECT id FROM policies_consent WHERE tenant_id = %s::uuid AND id = ANY(%s::uuid[]) ORDER BY id FOR KEY SHARE
"""
_STILL_WAITS = """
SELECT c.occurrences FROM memory_candidate c
WHERE c.tenant_id = %s::uuid AND c.id = %s::uuid AND c.state IN ('asked', 'buffered')
"""


def _check_waits(found: Sequence[tuple[Any, ...]], seen: Seen | None, key: KeyState | None) -> None:
    """Refuse what was decided already, and what is no longer as it was seen."""
    if not found:
        raise Refusal("already_decided", status=409)
    if seen is not None and seen != Seen(found[0][0], 0 if key is None else key.act_no):
        raise Refusal("changed_since", status=409)


def decide(
    writing: Writing,
    candidate: UUID,
    *,
    accept: bool,
    reason: str,
    seen: Seen | None = None,
    instead: Instead | None = None,
    at_least: Sensitivity = Sensitivity.PUBLIC,
) -> Outcome:
    """Confirm or reject a proposal in a person's name. Raises `Missing` for no such candidate, and `Refusal`.

    With `seen` it is refused where something was said or done since; with `instead` that value is confirmed in its place;
    what is confirmed is `at_least` of that class, with the life that it has.
    """
    tenant = writing.actor.tenant
    found, told = rows.fetch_all([(_CANDIDATE, [tenant, candidate]), (_WAITING, [tenant, candidate])])
    if not found:
        raise Missing
    proposed, waiting = _Candidate(*found[0]), [Waiting(*row) for row in told]
    consents = _consents(waiting)
    if consents:
        rows.execute(_LOCK_CONSENTS, [tenant, consents])
    about = subjects.of_id(tenant, proposed.subject_id)
    writing.subjects[about.id] = about
    value = _opened(tenant, proposed, about)
    if proposed.attribute_id is None:
        if not proposed.waits:
            raise Refusal("already_decided", status=409)
        if not accept:
            return _reject_undefined(writing, candidate, about, value, reason, seen)
        attribute, value = _defined(writing, value)
    else:
        found_attribute = writing.catalogue.by_id.get(proposed.attribute_id)
        if found_attribute is None:
            raise Refusal("attribute_retired", status=409)
        attribute = found_attribute
    last = waiting[-1]
    item = last.again(
        Prepared(
            attribute=attribute,
            subject=about,
            value=value,
            digest=None if value is None else about.digest(value),
            is_end=proposed.is_end,
            turn_id=last.turn_id,
            sensitivity=last.sensitivity,
            basis=last.basis,
            writer_kind=last.writer_kind,
            writer_id=last.writer_id,
            trust=last.trust,
        )
    )
    if proposed.target is not None:
        item.targets = sayings.targets_of(tenant, proposed.target)
    acts.lock(writing, [item])
    key = writing.keys[item.key]
    if proposed.attribute_id is None:
        rows.execute(_LOCK_UNDEFINED, [tenant])
    # Read under the key's lock: what joined in the meantime is decided with the rest, and of two people who decide at
    # once, one is told that it was decided.
    still, told = rows.fetch_all([(_STILL_WAITS, [tenant, candidate]), (_WAITING, [tenant, candidate])])
    _check_waits(still, seen, None if proposed.attribute_id is None else key)
    outcome: Outcome
    if not accept:
        outcome = Asked(candidate=candidate, verdict="rejected", reasons=(reason,), receipt=writing.receipt)
        _close(writing, candidate, "rejected", reason)
        if proposed.act != "retraction" and value is not None:
            _suppress(writing, candidate, about, attribute.name, value, attribute.id, reason)
    else:
        if proposed.target is not None:
            item.named = proposed.target
            acts.aim_again(writing, item)
        if proposed.act == "retraction":
            outcome = acts.take_back(writing, key, item.targets, reason="other")
            _close(writing, candidate, "accepted", reason)
        else:
            sayings_told = _unsuppressed(writing, about, attribute.name, value, [Waiting(*row) for row in told])
            if proposed.attribute_id is None or at_least > Sensitivity.PUBLIC:
                sayings_told = [_governed(writing, item, each, at_least) for each in sayings_told]
            if instead is None:
                outcome = _confirm(writing, item, key, sayings_told)
            else:
                outcome = _confirm_instead(writing, item, key, sayings_told, instead)
            _close(writing, candidate, "accepted", reason, outcome.evidence)
    writing.came_to("accept" if accept else "reject")
    _note(writing, Action.CANDIDATE_DECIDED, candidate, reason, accepted=accept)
    return outcome


def _suppress(
    writing: Writing,
    candidate: UUID,
    about: SubjectState,
    attribute: str,
    value: str,
    attribute_id: UUID | None,
    reason: str,
) -> None:
    """Remember what a person rejected, so that they are not asked again by whatever drew it; a duplicate was not wrong."""
    if reason == "duplicate":
        return
    suppression.add_saying(
        writing.actor.tenant,
        about.names,
        attribute,
        value,
        attribute_id=attribute_id,
        cause="rejected",
        target_kind="candidate",
        target=candidate,
        now=writing.now,
    )


def _unsuppressed(
    writing: Writing, about: SubjectState, attribute: str, value: str | None, told: list[Waiting]
) -> list[Waiting]:
    """Return the waiting sayings that no later decision is against. Raises `Refusal` where none are left (409)."""
    if not writing.suppressed.any:
        return told
    tenant = writing.actor.tenant
    digests = [suppression.of_subject(tenant, name) for name in about.names]
    if value is not None:
        digests += [suppression.of_saying(tenant, name, attribute, value) for name in about.names]
    suppression.look_up(tenant, writing.suppressed, digests)
    decided = writing.suppressed.since(digests)
    left = [each for each in told if decided is None or each.said_at > decided]
    if told and not left:
        raise suppression.refusal(status=409)
    return left


def _reject_undefined(
    writing: Writing, candidate: UUID, about: SubjectState, sealed: str | None, reason: str, seen: Seen | None
) -> Asked:
    tenant = writing.actor.tenant
    rows.execute(_LOCK_UNDEFINED, [tenant])
    _check_waits(rows.fetch(_STILL_WAITS, [tenant, candidate]), seen, None)
    _close(writing, candidate, "rejected", reason)
    said = json.loads(sealed or "{}")
    if "value" in said:
        _suppress(writing, candidate, about, said["attribute"], canonical_text(said["value"]), None, reason)
    writing.came_to("reject")
    _note(writing, Action.CANDIDATE_DECIDED, candidate, reason, accepted=False)
    return Asked(candidate=candidate, verdict="rejected", reasons=(reason,), receipt=writing.receipt)


def _defined(writing: Writing, sealed: str | None) -> tuple[AttributeInForce, str]:
    """Return the attribute that has been defined since, and the value as it makes it canonical. Raises `Refusal`."""
    said = json.loads(sealed or "{}")
    attribute = writing.catalogue.attributes.get(said.get("attribute", ""))
    if attribute is None:
        raise Refusal("attribute_not_defined", status=409)
    try:
        return attribute, canonical_text(attribute.values.canonical(said["value"]))
    except ValueRefused as refused:
        raise Refusal(refused.code, refused.path) from None


_QUOTE = "SELECT p.clear FROM memory_payload p WHERE p.tenant_id = %s::uuid AND p.id = %s::uuid"


def _governed(writing: Writing, item: Prepared, said: Waiting, at_least: Sensitivity) -> Waiting:
    """Return a saying under the class that it is of by now, and under the life that this class has.

    That of the attribute that was defined since, or of the person who decides. Raises `Refusal` where the policy gives it
    none.
    """
    level = max(said.sensitivity, int(item.attribute.definition.sensitivity), int(at_least))
    if level == said.sensitivity:
        return said
    if said.quote_id is not None:
        ((clear,),) = rows.fetch(_QUOTE, [writing.actor.tenant, said.quote_id])
        writing.raise_payloads([Raised(said.quote_id, "quote", level, clear, item.subject)])
    if said.expires_at is None:
        raise Refusal("rejected", reasons=("restricted_indefinite",), rule="builtin.lifetime")
    lifetime = writing.catalogue.policy.lifetime(Basis(said.basis), Sensitivity(level))
    if lifetime is None:
        raise Refusal("rejected", reasons=("no_lifetime",), rule="builtin.lifetime")
    return said._replace(sensitivity=level, expires_at=min(said.expires_at, lifetime.after(said.said_at)))


def _opened(tenant: UUID, proposed: _Candidate, about: SubjectState) -> str | None:
    if proposed.sealed is None or proposed.payload is None:
        return proposed.clear
    context = payload_context(tenant, proposed.payload, "candidate")
    return keyring().open(about.data_key, bytes(proposed.sealed), context).decode("utf-8")


def _confirm(writing: Writing, item: Prepared, key: KeyState, told: Sequence[Waiting]) -> Written:
    """Let the proposed sayings stand, and then the person's own, which confirms the last of them."""
    told = _consented(writing.actor.tenant, told)
    if not told:
        raise Refusal("consent_withdrawn", status=409)
    _load_whole(writing, key)
    for each in told:
        _stand(writing, each.again(item), key, reasons=("confirmed",))
        # What a correction takes back is gone with its first saying.
        item.targets = ()
    return _stand(writing, _in_person(writing, told[-1].again(item)), key, reasons=("confirmed",))


def _confirm_instead(
    writing: Writing, item: Prepared, key: KeyState, told: Sequence[Waiting], instead: Instead
) -> Written:
    """Let another value stand than the proposed one, as the person's own saying, from when the proposed one was said.

    Its class is no lower than the proposed one's. Raises `Refusal` as a write does: for a value that is none, a credential,
    a class without a life.
    """
    if item.is_end:
        raise Refusal("nothing_to_edit", "value")
    told = _consented(writing.actor.tenant, told)
    if not told:
        raise Refusal("consent_withdrawn", status=409)
    definition = item.attribute.definition
    try:
        value = item.attribute.values.canonical(instead.value)
        text = canonical_text(value)
    except ValueRefused as refused:
        raise Refusal(refused.code, refused.path) from None
    detected = detecting.in_saying(
        value,
        None,
        attribute=definition.name,
        omit=definition.not_detected,
        fields=definition.value_schema.get("properties", ()),
    )
    level = max(*(each.sensitivity for each in told), int(definition.sensitivity), int(detected.raises))
    last = told[-1]
    if level > last.sensitivity and last.expires_at is not None:
        lifetime = writing.catalogue.policy.lifetime(Basis(last.basis), Sensitivity(level))
        if lifetime is None:
            raise Refusal("rejected", reasons=("no_lifetime",), rule="builtin.lifetime")
        last = last._replace(expires_at=min(last.expires_at, lifetime.after(last.said_at)))
    said = replace(
        _in_person(writing, last.again(item)),
        value=text,
        digest=item.subject.digest(text),
        sensitivity=level,
        detected=detected.codes,
    )
    _load_whole(writing, key)
    return _stand(writing, said, key, reasons=("confirmed",))


def _in_person(writing: Writing, item: Prepared) -> Prepared:
    """Return a saying as the person's own, who confirms by it."""
    actor = writing.actor
    return replace(
        item,
        source=SourceKind.CONFIRMATION,
        confidence=None,
        quote_id=None,
        extractor=None,
        writer_kind=actor.kind.value,
        writer_id=actor.id,
        trust=actor.trust,
    )
