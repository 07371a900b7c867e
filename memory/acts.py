"""What an act does to its fact key, under the key's lock: whether a saying stands or waits, and what follows if it stands.

Everything happens in memory, on the keys of one `Writing`; `writing.store` writes what is left over.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TypeVar
from uuid import UUID

from memory import detecting, factkeys, rows, sayings
from memory.ledger import Chain, FactState, Grounds, KeyState, NotLoaded
from memory.outcomes import Refusal, Retracted, Written
from memory.reconcile import Plan, Saying
from memory.rows import EvidenceRow
from memory.sayings import Prepared, Target
from memory.writing import Writing
from policies.vocabulary import Conflict, Outcome
from tenants.actors import Actor, ActorKind
from tenants.audit import Action
from tenants.identity import new_id

_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class Course:
    """What becomes of a saying: it stands, waits for a person, or waits for recurrence."""

    outcome: Outcome
    reasons: tuple[str, ...]
    rule: str
    confirm_by: str | None = None


#: What was rejected, redacted or erased is put before a person when it is said again without a source that is newer.
SUPPRESSED = Course(Outcome.ASK, ("suppressed",), "builtin.suppression", "reviewer")
#: What waited where it came from waits here too: that it moved is no reason to let it stand.
WAITED = Course(Outcome.ASK, ("waited_elsewhere",), "builtin.waiting", "reviewer")
#: What a person confirmed is taken back by a person only.
CONFIRMED_BY_A_PERSON = Course(Outcome.ASK, ("confirmed_by_a_person",), "builtin.confirmed", "reviewer")


def lock(writing: Writing, items: Sequence[Prepared]) -> None:
    """Lock the keys of `items`; what is read of them from here on nobody else changes."""
    if items:
        writing.keys = factkeys.lock(writing.actor.tenant, items)


def is_blind(actor: Actor, item: Prepared, key: KeyState) -> bool:
    """Whether the actor may not know what becomes of the saying, since the key is above their clearance."""
    return actor.clearance < max(int(item.attribute.definition.sensitivity), key.sensitivity)


# the course of a saying -----------------------------------------------------------------------------------------------


def policy_course(item: Prepared) -> Course:
    """Return the policy's verdict as a course; what has no recurrence to wait for goes to a person, and so does what a
    suppression stands on."""
    verdict = item.verdict
    assert verdict is not None
    if item.returns:
        return SUPPRESSED
    if verdict.outcome is Outcome.BUFFER and item.attribute.definition.recurrence is None:
        return Course(Outcome.ASK, verdict.reasons, verdict.rule, "reviewer")
    return Course(verdict.outcome, verdict.reasons, verdict.rule, verdict.confirm_by)


def course(writing: Writing, item: Prepared, key: KeyState, *, blind: bool) -> Course:
    """Return what becomes of a saying whose policy verdict is no reject, given what its key holds. Raises `Refusal`."""
    verdict = item.verdict
    assert verdict is not None
    check_newest(key, item.recorded_at)
    # What holds already does not come back by being said again.
    if (item.returns or verdict.outcome is not Outcome.ACCEPT) and not _holds_already(writing, item, key):
        return policy_course(item)
    if any(target.confirmed for target in item.targets) and writing.actor.kind is not ActorKind.PERSON:
        return CONFIRMED_BY_A_PERSON
    reason = conflict(writing, item, key)
    if reason is None:
        settled = () if item.settled is None else (item.settled,)
        return Course(Outcome.ACCEPT, (*verdict.reasons, *settled), verdict.rule)
    if writing.catalogue.policy.on_conflict == "refuse" and not blind:
        raise Refusal("conflict", status=409, reasons=(reason,), rule="builtin.conflict")
    return Course(Outcome.ASK, (reason,), "builtin.conflict", "reviewer")


def check_newest(key: KeyState, recorded_at: datetime | None) -> None:
    """Refuse an import that was recorded before the key's newest act."""
    if recorded_at is not None and key.newest_at is not None and recorded_at < key.newest_at:
        raise Refusal("recorded_before_the_newest", "recorded_at")


def aim_again(writing: Writing, item: Prepared) -> None:
    """Take the targets again under the key's lock: what was said or taken back in the meantime, here too, counts."""
    if item.named is None:
        return
    found = [target for target in sayings.targets_of(writing.actor.tenant, item.named) if not target.retracted]
    found += [
        Target(
            evidence=each.id,
            fact=each.fact_id,
            valid_from=each.valid_from,
            stated_to=each.stated_to,
            confirmed=each.confirmed,
            trust=each.trust,
            writer=each.writer_id,
            ended=False,
            sensitivity=each.sensitivity,
            subject=item.subject.id,
            attribute=item.attribute.id,
            retracted=False,
            hidden=False,
        )
        for each in writing.evidence
        if item.named in (each.id, each.fact_id)
    ]
    sayings.take(writing.actor, item, [target for target in found if target.evidence not in writing.retracted])


def _holds_already(writing: Writing, item: Prepared, key: KeyState) -> bool:
    """Whether the proposed value is what holds at that instant: then it joins as evidence, and nobody is asked."""
    if item.is_end or item.targets:
        return False
    fact = key.facts.get(item.digest or b"")
    if fact is None:
        return False
    at, chain_no = item.valid_from or writing.now, fact.chain_no
    held = key.chain(chain_no).value_at(at)
    if held is None and not key.multi and key.chain(chain_no).sayings is None:
        # Nothing of what is loaded covers the instant: it may lie before the last stretch.
        factkeys.load_whole(writing.actor.tenant, [key])
        held = key.chain(chain_no).value_at(at)
    return held == fact.id


# conflicts ------------------------------------------------------------------------------------------------------------

_LIVING = """
SELECT f.id FROM memory_fact f
WHERE f.tenant_id = %s::uuid AND f.id = ANY(%s::uuid[]) AND f.ended_at IS NULL
  AND (f.expires_at IS NULL OR f.expires_at > clock_timestamp())
  AND (f.consent_ids IS NULL OR consent_stands(f.consent_ids))
"""


def conflict(writing: Writing, item: Prepared, key: KeyState) -> str | None:
    """Return why a person must decide between this saying and another of the same instant, or None.

    What has ended does not compete: nobody is asked about it, and it does not outrank what is said now. Nor does
    anything outrank what a person confirms, who decides knowing what else was said. Sets the rank that `item` must reach.
    """
    policy = item.attribute.definition.conflict
    if policy is Conflict.LATEST or item.valid_from is None:
        return None
    rivals = _rivals(writing, item, key, item.valid_from)
    if not rivals:
        return None
    ended = _ended(writing.actor.tenant, key, {rival.value for rival in rivals if isinstance(rival.value, UUID)})
    settled = [
        rival.rank
        for rival in rivals
        if (rival.value in ended and not key.multi) or (item.decided and item.confirmation)
    ]
    item.over = max(settled, default=0)
    living = [rival for rival in rivals if rival.value not in ended]
    if item.decided or not living:
        return None
    if policy is Conflict.REVIEW:
        return "conflict_for_review"
    mine = item.rank
    if any(rival.rank == mine for rival in living):
        return "conflict_of_equals"
    item.settled = "outranks" if all(rival.rank < mine for rival in living) else "outranked"
    return None


def _rivals(writing: Writing, item: Prepared, key: KeyState, valid_from: datetime) -> list[Saying]:
    """Return what stands of the same instant with another value and is not taken back by this saying."""
    gone = {target.evidence for target in item.targets}

    def found() -> list[Saying]:
        pairs = _on_chains(item, key, new_id(), 0, valid_from)
        if not pairs and not item.is_end:
            # A value that is new to its key has no chain yet; the ends of the whole key belong to it all the same.
            return [each for each in key.ends if each.valid_from == valid_from]
        return [rival for chain, saying in pairs for rival in chain.rivals(saying)]

    return [rival for rival in _loading(writing, key, found) if rival.id not in gone]


def _loading(writing: Writing, key: KeyState, question: Callable[[], _Answer]) -> _Answer:
    """Answer a question of the key, loading all that stands where the last stretch does not tell."""
    try:
        return question()
    except NotLoaded:
        factkeys.load_whole(writing.actor.tenant, [key])
        return question()


def _ended(tenant: UUID, key: KeyState, facts: set[UUID]) -> set[UUID]:
    unknown = facts - {fact.id for fact in key.facts.values()}
    if not unknown:
        return set()
    return unknown - {row[0] for row in rows.fetch(_LIVING, [tenant, list(unknown)])}


def _on_chains(
    item: Prepared, key: KeyState, evidence: UUID, act_no: int, valid_from: datetime
) -> list[tuple[Chain, Saying]]:
    """Return the saying as each chain that it belongs to sees it."""
    fact = None if item.digest is None else key.facts.get(item.digest)
    value = None if item.is_end or fact is None else fact.id
    if item.digest is not None and fact is None and not item.is_end:
        value = evidence  # a value that no fact has yet equals no other
    saying = Saying(evidence, value, valid_from, item.stated_to, item.rank, act_no)
    if not key.multi:
        return [(key.chain(key.chain_no), saying)]
    if item.digest is None:
        return [(chain, saying) for chain in key.chains.values()]
    return [] if fact is None else [(key.chain(fact.chain_no), saying)]


# letting it stand -----------------------------------------------------------------------------------------------------


def stand(writing: Writing, item: Prepared, key: KeyState, *, blind: bool, reasons: tuple[str, ...]) -> Written:
    """Let the saying stand: evidence, fact, the beliefs that follow, and what is taken back by a correction."""
    recorded_at = key.recorded(item.recorded_at)
    act_no = key.next_act()
    valid_from = item.valid_from or recorded_at
    sayings.check_times(valid_from, item.stated_to)
    _settle_overdue(writing, key)
    fact, made = _fact(writing, item, key)
    evidence = new_id()
    pairs = _on_chains(item, key, evidence, act_no, valid_from)
    if key.multi and item.digest is None:
        # It belongs to chains too that are not there yet.
        key.ends.append(Saying(evidence, None, valid_from, item.stated_to, item.rank, act_no))
    if item.targets:
        _replace(key, item.targets, pairs, recorded_at)
        change = "corrected"
    else:
        change = _add(writing, item, key, pairs, recorded_at, made=made)
    _retract(writing, key, item.targets, recorded_at)
    if fact is not None and not item.is_end:
        grounds = Grounds(
            sensitivity=item.sensitivity,
            basis=item.basis,
            expires_at=item.expires_at,
            consent_id=item.consent_id,
            confirmed=item.confirmation,
            confidence=item.confidence,
            review_at=item.review_at,
        )
        fact.gain(grounds)
        writing.grounds.setdefault(fact.id, {})[evidence] = grounds
    _note_evidence(writing, item, key, fact, evidence, act_no, valid_from, recorded_at)
    imported = Action.FACT_WRITTEN if item.recorded_at is None else Action.FACT_IMPORTED
    writing.note(
        Action.FACT_CORRECTED if item.targets else imported,
        "evidence",
        evidence,
        reason=change,
        digest=item.digest,
        numbers={"act": act_no, "class": item.sensitivity, **detecting.counted(item.detected)},
    )
    writing.touched.add(key.id)
    writing.came_to("accept", reasons)
    return Written(
        change=change,
        fact=None if fact is None else fact.id,
        evidence=evidence,
        receipt=writing.receipt,
        blind=blind,
        reasons=reasons,
    )


def _settle_overdue(writing: Writing, key: KeyState) -> None:
    """Mark the overdue facts of the key as ended: they neither block nor swallow what is said now."""
    rows.settle(writing.actor.tenant, key.overdue)
    for fact_id, cause in key.overdue:
        writing.note(Action.FACT_SETTLED, "fact", fact_id, reason=cause)
        writing.met_overdue = True
    key.overdue = []


def _fact(writing: Writing, item: Prepared, key: KeyState) -> tuple[FactState | None, bool]:
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
    writing.facts.append((fact, item))
    return fact, True


def _add(
    writing: Writing,
    item: Prepared,
    key: KeyState,
    pairs: Sequence[tuple[Chain, Saying]],
    recorded_at: datetime,
    *,
    made: bool,
) -> str:
    """Change the beliefs as the saying demands; return what kind of change that was."""
    first = last = unchanged = True
    for chain, saying in pairs:
        first = first and chain.newest is None
        last = last and (chain.newest is None or chain.newest <= saying.valid_from)
        change = _loading(writing, key, partial(_let_stand, key, chain.chain_no, saying, recorded_at))
        unchanged = unchanged and not change.close and not change.open
    if item.is_end:
        return "ended"
    if unchanged and not made:
        return "no_change"
    if first or (key.multi and made):
        return "new"
    return "update" if last and not unchanged else "late"


def _let_stand(key: KeyState, chain_no: int, saying: Saying, at: datetime) -> Plan:
    # By number: loading puts another chain in the place of the one that was asked.
    return key.chain(chain_no).add(saying, at)


def _note_evidence(
    writing: Writing,
    item: Prepared,
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
        quote_id = writing.add_payload_of(item, "quote", item.quote, sensitivity=level)
    writing.evidence.append(
        EvidenceRow(
            id=evidence,
            key_id=key.id,
            fact_id=None if fact is None else fact.id,
            is_end=item.is_end,
            valid_from=valid_from,
            stated_to=item.stated_to,
            recorded_at=recorded_at,
            act_no=act_no,
            rank=item.rank,
            confirmed=item.confirmation,
            confidence=item.confidence,
            imported=item.recorded_at is not None,
            source=item.source.value,
            turn_id=item.turn_id,
            tool_call_id=item.tool_call_id,
            consent_id=item.consent_id,
            session_id=item.session_id,
            contract_ref=item.contract_ref,
            writer_kind=item.writer_kind,
            writer_id=item.writer_id,
            trust=item.trust,
            written_at=writing.now,
            episode_id=item.episode_id,
            quote_id=quote_id,
            extractor=item.extractor,
            attribute_version_id=item.attribute.version_id,
            policy_version_id=writing.catalogue.policy_version_id,
            corrects_id=item.corrects,
            sensitivity=item.sensitivity,
            basis=item.basis,
            expires_at=item.expires_at,
            detected=rows.words(item.detected),
        )
    )


# taking back ----------------------------------------------------------------------------------------------------------


def take_back(
    writing: Writing, key: KeyState, targets: Sequence[Target], *, reason: str, recorded_at: datetime | None = None
) -> Retracted:
    """Take evidence of the key back, in one act; what stands without it holds again. The key must be loaded whole."""
    at = key.recorded(recorded_at)
    act_no = key.next_act()
    _replace(key, targets, [], at)
    _retract(writing, key, targets, at)
    for target in targets:
        writing.note(Action.EVIDENCE_RETRACTED, "evidence", target.evidence, reason=reason, numbers={"act": act_no})
    writing.retraction_reason = reason
    writing.touched.add(key.id)
    writing.came_to("accept")
    return Retracted(evidence=tuple(target.evidence for target in targets), receipt=writing.receipt)


def _replace(
    key: KeyState, targets: Collection[Target], pairs: Sequence[tuple[Chain, Saying]], recorded_at: datetime
) -> None:
    """Take the targets back from every chain that they stand on and, in the same act, let the saying of `pairs` stand."""
    gone = {target.evidence for target in targets}
    standing = {chain.chain_no: saying for chain, saying in pairs}
    for chain in list(key.chains.values()):
        if chain.chain_no in standing or gone & set(chain.sayings or ()):
            chain.replace(gone, standing.get(chain.chain_no), recorded_at)
    key.ends = [each for each in key.ends if each.id not in gone]


def _retract(writing: Writing, key: KeyState, targets: Collection[Target], at: datetime) -> None:
    """Note the targets as taken back; their facts follow what still stands for them once all acts are done."""
    for target in targets:
        writing.retracted[target.evidence] = at
        if target.fact is not None and target.fact not in writing.restated:
            fact = factkeys.load_fact(writing.actor.tenant, key, target.fact)
            if fact is not None:
                writing.restated[target.fact] = fact
