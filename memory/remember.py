"""The write door: the only way by which memory is written.

Every door runs in the caller's tenant transaction under the writer's role, and locks in one order: idempotency,
consents, subjects, fact keys, audit. What is read of a key is read after its lock. Nothing is stored of a saying that
is refused.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from uuid import UUID

from memory import (
    acts,
    admission,
    detecting,
    drawing,
    episodes,
    factkeys,
    idempotency,
    outbox,
    proposals,
    restriction,
    rows,
    sayings,
    subjects,
    suppression,
)
from memory.admission import Cited, References
from memory.contracts import EpisodeBody, FactBody, SubjectBody
from memory.drawing import Draw, Drawn, Source
from memory.outcomes import Denied, EpisodeKept, Instead, Outcome, Refusal, Repeat, Seen
from memory.sayings import Prepared, Target
from memory.subjects import SubjectState
from memory.suppression import SUPPRESSED
from memory.writing import Writing, begin, store
from policies.vocabulary import Basis, Sensitivity
from policies.vocabulary import Outcome as Verdict
from tenants import audit
from tenants.actors import Actor, ActorKind
from tenants.audit import Action, Event
from tenants.errors import FieldError, Forbidden, Missing, Refused
from tenants.secrets import keyring


def facts(
    actor: Actor,
    bodies: Sequence[FactBody | Denied],
    *,
    repeat: Repeat | None = None,
    batch: bool = False,
    waits: Verdict | None = None,
) -> list[Outcome]:
    """Write sayings, each answered in its place; one that is refused does not sink the others.

    A body that was refused at the boundary already comes as its `Denied` and keeps its place. All sayings of one call
    are written at once or not at all; within a key they act in the order given. With `repeat`, a request that was
    carried out before is answered with what it came to then, and nothing is written. `waits`: they are proposals that
    waited elsewhere, for a person or for recurrence; none of them stands by being brought here.
    """
    before = _earlier(actor, repeat)
    if before is not None:
        return before
    asked = {place: body for place, body in enumerate(bodies) if not isinstance(body, Denied)}
    writing, references = admission.open_for(actor, asked.values(), act="fact.batch" if batch else "fact.write")
    outcomes: dict[int, Outcome] = {place: body for place, body in enumerate(bodies) if isinstance(body, Denied)}
    outcomes.update(_write(writing, references, asked, waits=waits))
    answers = [outcomes[place] for place in range(len(bodies))]
    if batch:
        # One receipt records all of them, what was refused too.
        answers = [replace(each, receipt=writing.receipt) if isinstance(each, Denied) else each for each in answers]
        writing.refused = [each for each in answers if isinstance(each, Denied)]
        return _finish(writing, answers, repeat, status=200)
    if isinstance(answers[0], Denied):
        return answers
    return _finish(writing, answers, repeat)


def _write(
    writing: Writing, references: References, asked: Mapping[int, FactBody], *, waits: Verdict | None = None
) -> dict[int, Outcome]:
    """Let what is asked (by place) stand or wait where it may; return what each came to."""
    admitted, denied = admission.admit(writing, references, asked)
    outcomes: dict[int, Outcome] = {**denied}
    acts.lock(writing, [item for item in admitted if not item.undefined])
    for item in admitted:
        try:
            outcomes[item.place] = _carry_out(writing, item, waits=waits)
        except Refusal as refusal:
            outcomes[item.place] = refusal.denied
    return outcomes


def _carry_out(writing: Writing, item: Prepared, *, waits: Verdict | None = None) -> Outcome:
    """Let an admitted saying stand, or wait for a person or for recurrence. Its key is locked. Raises `Refusal`."""
    if item.undefined:
        return proposals.ask_to_define(writing, item)
    key = writing.keys[item.key]
    blind = acts.is_blind(writing.actor, item, key)
    acts.aim_again(writing, item)
    course = acts.course(writing, item, key, blind=blind)
    writing.questioned += course is acts.SUPPRESSED
    if waits is not None and course.outcome not in (Verdict.ASK, waits):
        course = acts.WAITED
    if course.outcome is Verdict.BUFFER:
        return proposals.buffer(writing, item, key, course, blind=blind)
    if course.outcome is Verdict.ASK:
        return proposals.ask(writing, item, key, course, blind=blind)
    return acts.stand(writing, item, key, blind=blind, reasons=course.reasons)


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

    What another said needs trust at least equal; what a person confirmed goes to a person. Raises `Missing` for what
    the actor cannot see. A fact that ended, or evidence already taken back, is denied with 409.
    """
    before = _earlier(actor, repeat)
    if before is not None:
        return before[0]
    name = evidence or fact
    if name is None:
        raise Missing
    writing, references = admission.open_with(actor, act="evidence.retract", targets={name})
    whole = evidence is None
    try:
        admission.check_import(writing, recorded_at)
        item = _retraction(writing, _meant(references.targets[name], name, whole=whole), recorded_at)
        acts.lock(writing, [item])
        # Again, now under the lock: another transaction may have been first.
        found = _meant(sayings.targets_of(actor.tenant, name), name, whole=whole)
        outcome = _take_back(writing, item, name, found, reason=reason)
    except Refusal as refusal:
        return refusal.denied
    return _finish(writing, [outcome], repeat)[0]


def _meant(targets: Sequence[Target], name: UUID, *, whole: bool) -> list[Target]:
    """Return the evidence that a retraction means: all of the fact of that name, or the piece of that name."""
    return [target for target in targets if name == (target.fact if whole else target.evidence)]


def _retraction(writing: Writing, targets: Sequence[Target], recorded_at: datetime | None) -> Prepared:
    actor = writing.actor
    visible = [target for target in targets if sayings.sees(actor, target)]
    if not visible:
        raise Missing
    attribute = writing.catalogue.by_id.get(visible[0].attribute)
    if attribute is None:
        raise Refusal("attribute_retired", status=409)
    about = subjects.of_id(actor.tenant, visible[0].subject)
    writing.subjects[about.id] = about
    return Prepared(
        attribute=attribute,
        subject=about,
        is_end=True,
        turn_id="retraction",
        sensitivity=visible[0].sensitivity,
        basis="contract",
        writer_kind=actor.kind.value,
        writer_id=actor.id,
        trust=actor.trust,
        recorded_at=recorded_at,
        targets=visible,
    )


def _take_back(writing: Writing, item: Prepared, name: UUID, found: Sequence[Target], *, reason: str) -> Outcome:
    actor, key = writing.actor, writing.keys[item.key]
    standing = [target for target in found if not target.retracted]
    if any(target.ended for target in found):
        raise Refusal("fact_ended", status=409)
    if not standing:
        raise Refusal("already_retracted", status=409)
    sayings.check_may_take_back(actor, standing)
    acts.check_newest(key, item.recorded_at)
    if any(target.confirmed for target in standing) and actor.kind is not ActorKind.PERSON:
        return proposals.ask_to_take_back(writing, item, key, name)
    return acts.take_back(writing, key, standing, reason=reason, recorded_at=item.recorded_at)


def decide_candidate(
    actor: Actor,
    candidate: UUID,
    *,
    accept: bool,
    reason: str,
    seen: Seen | None = None,
    instead: Instead | None = None,
    at_least: Sensitivity = Sensitivity.PUBLIC,
) -> Outcome:
    """Let a person confirm or reject a proposal. Confirming writes the proposed sayings and the person's own.

    With `instead`, that value is written in place of the proposed one, as the person's own saying alone. What is confirmed
    is `at_least` of that class; no decision lowers one. Raises
    `Forbidden("a_person_decides")` for any actor that is not a person, `Missing` for no such candidate; denied with 409
    where it was decided already, or with `changed_since` where anything was said or done since it was `seen`.
    """
    if actor.kind is not ActorKind.PERSON:
        raise Forbidden("a_person_decides")
    writing, _ = begin(actor, "candidate.decide")
    try:
        outcome = proposals.decide(
            writing, candidate, accept=accept, reason=reason, seen=seen, instead=instead, at_least=at_least
        )
    except Refusal as refusal:
        return refusal.denied
    return _finish(writing, [outcome])[0]


def episode(
    actor: Actor, body: EpisodeBody, *, repeat: Repeat | None = None, draw: Draw | None = None
) -> EpisodeKept | Denied:
    """Keep an episode as received. The same source again is the same episode; with other content it is denied (409).

    With `draw` facts are drawn from it at once, in this transaction; without, the background does so later, unless the
    writer wants nothing drawn.
    """
    before = _earlier(actor, repeat)
    if before is not None:
        assert isinstance(before[0], EpisodeKept)
        return replace(before[0], again=True)
    writing, references = admission.open_with(
        actor,
        act="episode.write",
        consents={body.consent_ref},
        names={body.subject},
        terms={body.session_id, body.contract_ref},
    )
    try:
        kept, source, about = episodes.keep(writing, references, body)
    except Refusal as refusal:
        return refusal.denied
    if not kept.repeated and body.extract != "no":
        if about is not None and source.subject is not None:
            references.subjects[source.subject] = about
        state, code = _draw_from_new(writing, references, source, draw, wait=body.extract == "now")
        kept = replace(kept, extraction=state, code=code)
    _finish(writing, [kept], repeat)
    return kept


#: How long the background leaves an episode to the request that wants it drawn from at once.
_LEFT_TO_THE_REQUEST = timedelta(minutes=2)


def _draw_from_new(
    writing: Writing, references: References, source: Source, draw: Draw | None, *, wait: bool
) -> tuple[str, str | None]:
    """Draw from an episode of this transaction, or leave that to the background; return the state, and its code."""
    silent = drawing.silence(source.kind, source.role, source.subject)
    if silent is not None:
        drawing.record(source, "skipped", code=silent)
        return "skipped", silent
    drawn = None if draw is None else draw(writing, source)
    if drawn is not None and not drawn.failed:
        return _take(writing, references, source, drawn, attempts=1), drawn.code
    code = None if drawn is None else drawn.code
    drawing.record(source, "pending", code=code, attempts=int(drawn is not None))
    drawing.leave(source, writing.now, after=_LEFT_TO_THE_REQUEST if wait and drawn is None else timedelta(0))
    outbox.nudge()
    return "pending", code


def extraction(source: Source, drawn: Drawn, *, attempts: int) -> None:
    """Write what was drawn from a stored episode, each saying in its place in the row of the extraction, which is held.

    Acts for the episode's writer, as they stood when they sent it. Where the episode or its subject has ended since it
    was read, nothing is written but that.
    """
    writing, references = admission.open_with(
        source.writer,
        act="episode.extract",
        consents={source.consent_ref},
        names={source.subject},
        terms={source.session_id, source.contract_ref},
    )
    # Read under the subject's lock: an ending that was first is seen now, and one that comes later waits.
    now = drawing.load(source.writer.tenant, source.id)
    about = None if source.subject is None else references.subjects.get(source.subject)
    if now is None or now.ended is not None or about is None or about.id != source.subject_id:
        code = "episode_ended" if now is None or now.ended is None else now.ended
        drawing.record(source, "skipped", code=code, attempts=attempts)
        drawing.note(writing, source, code, attempts=attempts)
        writing.came_to("reject", [code])
    else:
        _take(writing, references, source, drawn, attempts=attempts)
    store(writing)


def _take(writing: Writing, references: References, source: Source, drawn: Drawn, *, attempts: int) -> str:
    """Let what was drawn stand or wait where it may, and record what each proposal came to. Return the state."""
    references.episodes[source.id] = Cited(
        source.occurred_at, source.text or "", source.quarantined, source.session_id, source.contract_ref
    )
    outcomes = _write(writing, references, dict(enumerate(drawn.sayings))) if drawn.sayings else {}
    writing.prevented += sum(isinstance(each, Denied) and each.code == SUPPRESSED for each in outcomes.values())
    results = [drawing.result(body.attribute, outcomes[place]) for place, body in enumerate(drawn.sayings)]
    results += [drawing.left_out(attribute, code) for attribute, code in drawn.left]
    state = "done" if drawn.code is None else "skipped"
    drawing.record(source, state, code=drawn.code, attempts=attempts, extractors=drawn.extractors, results=results)
    drawing.note(writing, source, drawn.code or "drawn", results, attempts=attempts)
    writing.came_to("accept", ["drawn"])
    return state


def extraction_failed(source: Source, code: str, *, attempts: int, final: bool) -> None:
    """Record that drawing from an episode failed, by code: it waits to be tried again, unless this was `final`."""
    drawing.record(source, "failed" if final else "pending", code=code, attempts=attempts)
    if final:
        writing, _ = begin(source.writer, "episode.extract")
        drawing.note(writing, source, code, attempts=attempts)
        writing.came_to("reject", [code])
        store(writing)


def extraction_ended(source: Source, code: str, *, attempts: int) -> None:
    """Record that there is nothing to draw from an episode, by code."""
    writing, _ = begin(source.writer, "episode.extract")
    drawing.record(source, "skipped", code=code, attempts=attempts)
    drawing.note(writing, source, code, attempts=attempts)
    writing.came_to("reject", [code])
    store(writing)


def ask_extraction(actor: Actor, source: Source) -> None:
    """Let an episode be drawn from again, or for the first time, by whoever may see it; the row is held."""
    drawing.record(source, "pending")
    writing, _ = begin(actor, "episode.extract")
    drawing.leave(source, writing.now, after=_LEFT_TO_THE_REQUEST)
    outbox.nudge()
    writing.note(Action.EXTRACTION_ASKED, "episode", source.id)
    writing.came_to("accept", ["asked"])
    store(writing)


@dataclass(frozen=True, slots=True)
class SubjectNamed:
    """A subject's id, and how many of the given aliases name another subject already and were left there."""

    id: UUID
    taken: int


def subject(actor: Actor, body: SubjectBody) -> SubjectNamed:
    """Name a subject, and let further names find it. A name that another subject has stays where it is.

    Raises `Refused` for a name that holds a credential, and for one under which a subject was erased, unless newer
    evidence has let it in again.
    """
    names = [("key", body.key), *((f"aliases[{place}]", alias) for place, alias in enumerate(body.aliases))]
    secret = [FieldError(path, "credential") for path, name in names if detecting.is_credential(name)]
    if secret:
        raise Refused("credential", errors=secret)
    now: datetime = rows.fetch("SELECT clock_timestamp()", [])[0][0]
    found = subjects.known(actor.tenant, [body.key])
    named = subjects.resolve(actor.tenant, [body.key], now=now, kind=body.kind or "entity", found=found)[body.key]
    aliases = [alias for alias in body.aliases if alias != body.key]
    _check_names(actor.tenant, body, named, made=not found)
    taken = subjects.add_aliases(actor.tenant, named, aliases, now=now)
    outbox.put(actor.tenant, "search.names", [named.id])
    restriction.follow(actor.tenant, [named.id] if named.restricted else [])
    audit.append(
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


def _check_names(tenant: UUID, body: SubjectBody, named: SubjectState, *, made: bool) -> None:
    """Refuse names of erased subjects, asked for under the lock of the subject that is to bear them."""
    names = [("key", body.key), *((f"aliases[{place}]", alias) for place, alias in enumerate(body.aliases))]
    standing = suppression.standing(tenant, [name for _, name in names])
    ring = keyring()
    returning = [
        FieldError(path, "suppressed")
        for path, name in names
        if standing.since(suppression.named(tenant, [name]))
        and (made if path == "key" else ring.identifier(tenant, name) not in named.names)
    ]
    if returning:
        raise Refused("suppressed", errors=returning)


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
    writing, references = admission.open_for(actor, [body], act="fact.write")
    version = writing.catalogue.policy_version
    try:
        item = admission.foresee(writing, references, body)
        key = None if item.undefined else factkeys.glance(actor.tenant, item)
        if item.undefined:
            course = proposals.UNKNOWN_ATTRIBUTE
        elif key is None or acts.is_blind(actor, item, key):
            course = acts.policy_course(item)
        else:
            course = acts.course(writing, item, key, blind=False)
    except Refusal as refusal:
        denied = refusal.denied
        return Explained(
            verdict=Verdict.REJECT.value,
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
    writing, _ = begin(actor, "write.refused")
    writing.receipt = denied.receipt or writing.receipt
    writing.refused = [denied]
    writing.came_to("reject", denied.reasons or (denied.code,))
    store(writing)
    return writing.receipt


def record_absence(actor: Actor, kind: str, target: UUID) -> None:
    """Record that something was to be taken back which the actor cannot see: absent, hidden or another tenant's.

    To be called in a transaction of its own. The three look alike here too: the entry holds the id that was asked for.
    """
    audit.append(
        [Event(actor=actor, action=Action.ACCESS_REFUSED, target_kind=kind, target_id=target, reason="not_found")]
    )


# what the doors share -------------------------------------------------------------------------------------------------


def _earlier(actor: Actor, repeat: Repeat | None) -> list[Outcome] | None:
    """Return what the same request came to before; None where it is to be carried out."""
    return None if repeat is None else idempotency.earlier(actor, repeat)


def _finish(
    writing: Writing, outcomes: list[Outcome], repeat: Repeat | None = None, *, status: int | None = None
) -> list[Outcome]:
    """Remember what the request came to, and store it all."""
    if repeat is not None:
        status = status or outcomes[0].status
        writing.kept = [idempotency.record(writing.actor, repeat, outcomes, status=status, now=writing.now)]
    store(writing)
    return outcomes
