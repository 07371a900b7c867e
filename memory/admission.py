"""What a saying must pass before anything is locked for it but what it refers to: admitted is what may stand or wait.

In order: attribute and value; consents, subjects, cited episodes and what is corrected, all looked up at once; the
quote; the consent; the policy's verdict; the target of a correction.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Literal, NamedTuple
from uuid import UUID

from django.conf import settings

from memory import detecting, sayings, subjects, suppression
from memory.contracts import DrawnBody, FactBody, Retention
from memory.detecting import NOTHING, QUARANTINED_SOURCE, Detected
from memory.outcomes import Denied, Refusal
from memory.sayings import UNDEFINED, Prepared, Target
from memory.subjects import SubjectState, payload_context
from memory.writing import Writing, begin
from policies.catalogue import AttributeInForce
from policies.decision import Question, Verdict, decide
from policies.definitions import definition
from policies.detection import Group
from policies.detection.names import names
from policies.values import ValueRefused, canonical_text, compiled
from policies.vocabulary import Basis, Confirm, Kind, Outcome, Sensitivity, SourceKind
from tenants.actors import Actor, ActorKind, Scope
from tenants.identity import new_id
from tenants.secrets import keyring

# what sayings refer to ------------------------------------------------------------------------------------------------


class ConsentFound(NamedTuple):
    """A consent, locked: of which subject, for which purposes, and whether it stands."""

    id: UUID
    subject_id: UUID
    purposes: list[str]
    stands: bool


class Cited(NamedTuple):
    """An episode that the writer may see. Its session is the writer's own, or None."""

    occurred_at: datetime
    content: str
    quarantined: bool
    session_id: str | None = None
    contract_ref: str | None = None
    #: Which of the two is over: `session`, `contract`.
    over: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class References:
    """What sayings refer to, as far as it is there."""

    consents: dict[str, ConsentFound]
    subjects: dict[str, SubjectState]
    episodes: dict[UUID, Cited]
    targets: dict[UUID, list[Target]]
    #: Sessions of the writer's that are closed and contracts that have ended: (kind, id or reference, subject or None).
    over: frozenset[tuple[str, str, UUID | None]] = frozenset()

    def is_over(self, kind: str, ref: str | None, subject: UUID | None) -> bool:
        """Whether the session or the contract of that reference is over, for that subject or for all."""
        return ref is not None and not self.over.isdisjoint({(kind, ref, None), (kind, ref, subject)})


_CONSENTS = """
SELECT c.ref, c.id, c.subject_id, c.purposes, c.withdrawn_at IS NULL
FROM policies_consent c WHERE c.tenant_id = %s::uuid AND c.ref = ANY(%s::text[]) ORDER BY c.id FOR KEY SHARE
"""
_TERMS = """
SELECT t.kind, t.ref, t.subject_id FROM memory_term t
WHERE t.tenant_id = %s::uuid AND t.ref = ANY(%s::text[]) AND (t.kind = 'contract' OR t.writer_id = %s::uuid)
"""
# Locked as the link that is written later locks it: whoever redacts an episode waits for its quotes, and hides it from others.
_EPISODES = """
SELECT e.id, e.occurred_at, e.quarantined, CASE WHEN e.writer_id = %s::uuid THEN e.session_id END, e.contract_ref,
  ARRAY(SELECT t.kind FROM memory_term t WHERE t.tenant_id = e.tenant_id
    AND (t.kind = 'session' AND t.ref = e.session_id AND t.writer_id = e.writer_id
      AND (t.subject_id IS NULL OR t.subject_id = e.subject_id)
      OR t.kind = 'contract' AND t.ref = e.contract_ref)),
  p.id, p.clear, p.sealed, k.wrapped, k.version
FROM memory_episode e
  CROSS JOIN LATERAL (SELECT * FROM memory_payload x WHERE x.tenant_id = e.tenant_id AND x.id = e.payload_id OFFSET 0) p
  LEFT JOIN LATERAL (SELECT * FROM tenants_subjectkey x WHERE x.tenant_id = p.tenant_id AND x.id = p.key_id OFFSET 0) k ON true
WHERE e.tenant_id = %s::uuid AND e.id = ANY(%s::uuid[]) AND e.redaction_state = 'none' AND NOT e.restricted
  AND (e.expires_at IS NULL OR e.expires_at > clock_timestamp()) AND e.sensitivity <= %s
  AND (e.consent_id IS NULL OR consent_stands(ARRAY[e.consent_id]))
FOR KEY SHARE OF e
"""


def open_for(actor: Actor, bodies: Iterable[FactBody], *, act: str) -> tuple[Writing, References]:
    """Begin a write of `bodies`, and look up what they refer to."""
    bodies = list(bodies)
    return open_with(
        actor,
        act=act,
        consents={body.provenance.consent_ref for body in bodies},
        names={body.subject for body in bodies},
        episodes={body.provenance.source_episode for body in bodies},
        targets={body.corrects for body in bodies},
        terms={ref for body in bodies for ref in (body.provenance.session_id, body.provenance.contract_ref)},
    )


def open_with(
    actor: Actor,
    *,
    act: str,
    consents: Iterable[str | None] = (),
    names: Iterable[str | None] = (),
    episodes: Iterable[UUID | None] = (),
    targets: Iterable[UUID | None] = (),
    terms: Iterable[str | None] = (),
) -> tuple[Writing, References]:
    """Begin a write and look up what it refers to, in one round trip: consents and subjects locked, in this order."""
    tenant = actor.tenant
    refs, cited = sorted(filter(None, consents)), sorted(filter(None, episodes))
    about, corrected = set(filter(None, names)), set(filter(None, targets))
    named = sorted(set(filter(None, terms)))
    writing, (of_consents, of_subjects, of_episodes, of_targets, of_terms) = begin(
        actor,
        act,
        beside=[
            (_CONSENTS, [tenant, refs]) if refs else None,
            subjects.query(tenant, about),
            (_EPISODES, [actor.id, tenant, cited, actor.clearance]) if cited else None,
            sayings.targets_query(tenant, corrected),
            (_TERMS, [tenant, named, actor.id]) if named else None,
        ],
        suppressible=suppression.named(tenant, about),
    )
    return writing, References(
        {ref: ConsentFound(*consent) for ref, *consent in of_consents},
        subjects.by_name(tenant, about, of_subjects),
        dict(_opened(tenant, *row) for row in of_episodes),
        sayings.targets_by_name(corrected, of_targets),
        frozenset((kind, ref, subject) for kind, ref, subject in of_terms),
    )


def _opened(
    tenant: UUID,
    episode: UUID,
    occurred_at: datetime,
    quarantined: bool,
    session_id: str | None,
    contract_ref: str | None,
    over: list[str],
    payload: UUID,
    clear: str | None,
    sealed: bytes | None,
    wrapped: bytes | None,
    version: int | None,
) -> tuple[UUID, Cited]:
    if sealed is not None and wrapped is not None and version is not None:
        key = keyring().unwrap(tenant, bytes(wrapped), version)
        clear = keyring().open(key, bytes(sealed), payload_context(tenant, payload, "episode")).decode("utf-8")
    return episode, Cited(occurred_at, clear or "", quarantined, session_id, contract_ref, frozenset(over))


# checking -------------------------------------------------------------------------------------------------------------


def admit(
    writing: Writing, references: References, bodies: Mapping[int, FactBody]
) -> tuple[list[Prepared], dict[int, Denied]]:
    """Return what of `bodies` (by place) may stand or wait, in their order, and what may not; new subjects are made."""
    denied: dict[int, Denied] = {}
    valued: list[_Valued] = []
    for place, body in bodies.items():
        try:
            valued.append((place, body, *_valued(writing, references, body)))
        except Refusal as refusal:
            denied[place] = refusal.denied
    # Before subjects are made: what may not return leaves not even a name.
    suppressed, returning = _held_against(writing, references, valued)
    denied |= returning
    valued = [each for each in valued if each[0] not in returning]
    about = subjects.resolve(
        writing.actor.tenant,
        {body.subject for _, body, *_ in valued},
        now=writing.now,
        found=references.subjects,
    )
    writing.subjects = {each.id: each for each in about.values()}
    admitted: list[Prepared] = []
    for place, body, attribute, value, detected in valued:
        try:
            item = _prepared(writing, references, place, body, attribute, value, detected, about[body.subject])
            item.suppressed = suppressed.get(place)
            admitted.append(item)
        except Refusal as refusal:
            denied[place] = refusal.denied
    return admitted, denied


def foresee(writing: Writing, references: References, body: FactBody) -> Prepared:
    """Return the saying as `admit` would, making nothing. Raises `Refusal`."""
    attribute, value, detected = _valued(writing, references, body)
    suppressed, returning = _held_against(writing, references, [(0, body, attribute, value, detected)])
    if returning:
        raise suppression.refusal()
    about = references.subjects.get(body.subject)
    if about is None:
        # Stands for the subject that the write would make: no consent, key or evidence is its own.
        about = SubjectState(new_id(), new_id(), bytes(32))
    item = _prepared(writing, references, 0, body, attribute, value, detected, about)
    item.suppressed = suppressed.get(0)
    return item


_Valued = tuple[int, FactBody, AttributeInForce, str | None, Detected]


def _held_against(
    writing: Writing, references: References, valued: Sequence[_Valued]
) -> tuple[dict[int, datetime], dict[int, Denied]]:
    """Hold sayings against what was rejected, redacted or erased: return by place the decision that stands on each that
    may come in or be asked about, and what may not return.

    What cites an episode is dated by it. A direct fact is dated by what it says of itself: when it began to hold, or when
    another system recorded it.
    """
    if not writing.suppressed.any:
        return {}, {}
    tenant, ring = writing.actor.tenant, keyring()
    known: dict[str, list[bytes]] = {}
    digests: dict[int, list[bytes]] = {}
    for place, body, attribute, value, _ in valued:
        names = known.get(body.subject)
        if names is None:
            about = references.subjects.get(body.subject)
            names = [ring.identifier(tenant, body.subject)] if about is None else sorted(about.names)
            known[body.subject] = names
        digests[place] = suppression.named(tenant, [body.subject])
        if value is not None:
            digests[place] += [suppression.of_saying(tenant, name, attribute.name, value) for name in names]
    suppression.look_up(tenant, writing.suppressed, {each for found in digests.values() for each in found})
    suppressed: dict[int, datetime] = {}
    returning: dict[int, Denied] = {}
    for place, body, *_ in valued:
        decided = writing.suppressed.since(digests[place])
        if decided is None:
            continue
        episode = body.provenance.source_episode
        cited = None if episode is None else references.episodes.get(episode)
        if cited is not None:
            dated: datetime | None = cited.occurred_at
        else:
            dated = min(filter(None, (body.valid_from, body.recorded_at)), default=None)
        if dated is not None and dated <= decided:
            returning[place] = suppression.refusal().denied
        else:
            suppressed[place] = decided
    return suppressed, returning


def check_import(writing: Writing, recorded_at: datetime | None) -> None:
    """Refuse an instant of recording from whoever may not import, and one that is still to come."""
    if recorded_at is None:
        return
    if not writing.actor.may(Scope.IMPORT):
        raise Refusal("import_scope_needed", "recorded_at", status=403)
    if recorded_at > writing.now:
        raise Refusal("recorded_in_the_future", "recorded_at")


def _valued(writing: Writing, references: References, body: FactBody) -> tuple[AttributeInForce, str | None, Detected]:
    """Return the attribute, the canonical value and what detection finds in value and quote."""
    attribute = writing.catalogue.attributes.get(body.attribute) or _undefined(writing, body)
    if body.ended and body.has_value and not attribute.multi:
        raise Refusal("ended_with_value_on_single", "value")
    check_import(writing, body.recorded_at)
    if body.provenance.kind is SourceKind.CONFIRMATION and writing.actor.kind is not ActorKind.PERSON:
        raise Refusal("a_person_confirms", "provenance.source")
    if body.subject not in references.subjects and detecting.is_credential(body.subject):
        raise Refusal("credential", "subject")
    value = text = None
    if body.has_value:
        try:
            value = attribute.values.canonical(body.value)
            text = canonical_text(value)
        except ValueRefused as refused:
            raise Refusal(refused.code, refused.path) from None
    return attribute, text, _detected(writing, references, body, attribute, value)


def _undefined(writing: Writing, body: FactBody) -> AttributeInForce:
    """Return what stands for an attribute that nobody has defined, where the policy asks about one. Raises `Refusal`."""
    plain = body.has_value and not body.ended and body.corrects is None and body.recorded_at is None
    if not plain or writing.catalogue.policy.unknown_attribute != "ask":
        raise Refusal("unknown_attribute", "attribute")
    if detecting.is_credential(body.attribute):
        raise Refusal("credential", "attribute")
    defined = definition({"name": body.attribute, "schema": {}})
    return AttributeInForce(UNDEFINED, UNDEFINED, 0, defined, compiled(defined.value_schema))


def names_finder() -> detecting.Finder | None:
    """Return what looks for names of people and places, where the operator has named a model for it."""
    return partial(names, model=settings.NAMES_MODEL) if settings.NAMES_MODEL else None


def _detected(
    writing: Writing, references: References, body: FactBody, attribute: AttributeInForce, value: object
) -> Detected:
    quote = body.provenance.quote
    if value is None and quote is None:
        return NOTHING
    definition = attribute.definition
    # That a value names its subject makes it personal; of what is so anyway it need not be found out.
    stated = max(definition.sensitivity, body.sensitivity or Sensitivity.PUBLIC)
    is_open = stated < Sensitivity.PERSONAL
    named = is_open and Group.KNOWN not in definition.not_detected
    detected = detecting.in_saying(
        value,
        quote,
        attribute=definition.name,
        omit=definition.not_detected,
        fields=definition.value_schema.get("properties", ()),
        name=body.subject if named else None,
        more=names_finder() if is_open and Group.NAME not in definition.not_detected else None,
    )
    about = references.subjects.get(body.subject)
    if named and about is not None and len(about.names) > 1 and detected.raises < Sensitivity.PERSONAL:
        # Its other names are known as digests only: what may be a name in value and quote is held against them.
        said = f"{value} {quote or ''}"
        digest = partial(keyring().identifier, writing.actor.tenant)
        if not about.names.isdisjoint(map(digest, detecting.names_in(said)[:_MOST_NAMES])):
            return detected.naming_its_subject()
    return detected


#: So much of a value and its quote is held against the names of their subject.
_MOST_NAMES = 64


def _prepared(
    writing: Writing,
    references: References,
    place: int,
    body: FactBody,
    attribute: AttributeInForce,
    value: str | None,
    detected: Detected,
    about: SubjectState,
) -> Prepared:
    actor, given = writing.actor, body.provenance
    cited = _cited(references, given.source_episode, given.quote)
    quarantined = cited is not None and cited.quarantined
    basis = attribute.definition.basis if body.retention is None else body.retention.basis
    consent = consent_of(references, given.consent_ref, about, basis, path="provenance.consent_ref")
    session_id = given.session_id or (None if cited is None else cited.session_id)
    contract_ref = given.contract_ref or (None if cited is None else cited.contract_ref)
    verdict = judge(
        writing,
        act="end" if value is None else "fact",
        attribute=attribute,
        source=given.kind,
        declared=body.sensitivity,
        basis=basis,
        consent=consent,
        confidence=body.confidence,
        retention=body.retention,
        detected=detected,
        quarantined=quarantined,
        over=is_over(references, basis, session_id, contract_ref, about.id, cited),
    )
    if verdict.outcome is Outcome.REJECT:
        raise Refusal("rejected", reasons=verdict.reasons, rule=verdict.rule)
    valid_from = body.valid_from or (None if cited is None else cited.occurred_at)
    sayings.check_times(valid_from, body.valid_to)
    item = Prepared(
        place=place,
        attribute=attribute,
        subject=about,
        value=value,
        digest=None if value is None else about.digest(value),
        is_end=body.ended,
        valid_from=valid_from,
        stated_to=body.valid_to,
        confidence=body.confidence,
        source=given.kind,
        turn_id=given.turn_id,
        tool_call_id=given.tool_call_id,
        consent_id=None if consent is None else consent.id,
        session_id=session_id,
        contract_ref=contract_ref,
        episode_id=given.source_episode,
        quote=given.quote,
        extractor=body.extractor if isinstance(body, DrawnBody) else None,
        sensitivity=int(verdict.sensitivity),
        detected=(*detected.codes, QUARANTINED_SOURCE) if quarantined else detected.codes,
        basis=verdict.basis.value,
        expires_at=verdict.expires_at,
        review_at=verdict.review_at,
        writer_kind=actor.kind.value,
        writer_id=actor.id,
        trust=actor.trust,
        recorded_at=body.recorded_at,
        verdict=verdict,
        decided=actor.kind is ActorKind.PERSON and given.kind is SourceKind.CONFIRMATION,
    )
    if body.corrects is not None:
        sayings.aim(actor, item, body, references.targets[body.corrects])
    return item


def _cited(references: References, episode: UUID | None, quote: str | None) -> Cited | None:
    """Return the cited episode; refuse one that the writer does not see, and words that are not in it as it is kept."""
    if episode is None:
        return None
    cited = references.episodes.get(episode)
    if cited is None:
        raise Refusal("not_found", "provenance.source_episode")
    if quote is not None and quote not in cited.content:
        raise Refusal("quote_not_in_episode", "provenance.quote")
    return cited


def is_over(
    references: References,
    basis: Basis,
    session_id: str | None,
    contract_ref: str | None,
    subject: UUID | None,
    cited: Cited | None = None,
) -> bool:
    """Whether what a saying on that basis is kept for is over: its session or its contract, named or the episode's."""
    if basis not in (Basis.SESSION, Basis.CONTRACT):
        return False
    kind, ref = (basis.value, session_id if basis is Basis.SESSION else contract_ref)
    if references.is_over(kind, ref, subject):
        return True
    if cited is None or kind not in cited.over:
        return False
    return ref == (cited.session_id if basis is Basis.SESSION else cited.contract_ref)


def consent_of(
    references: References, ref: str | None, about: SubjectState | None, basis: Basis, *, path: str
) -> ConsentFound | None:
    """Return the standing consent that is referred to; refuse where it is missing, another's or withdrawn."""
    if ref is None:
        if basis is Basis.CONSENT:
            raise Refusal("consent_ref_needed", path)
        return None
    found = references.consents.get(ref)
    # A consent of another subject says nothing about this one.
    if found is None or (about is not None and found.subject_id != about.id):
        raise Refusal("rejected", path, reasons=("consent_missing",), rule="builtin.consent")
    if not found.stands:
        raise Refusal("rejected", path, reasons=("consent_withdrawn",), rule="builtin.consent")
    return found


def judge(
    writing: Writing,
    *,
    act: Literal["fact", "episode", "end"],
    attribute: AttributeInForce | None,
    source: SourceKind,
    declared: Sensitivity | None,
    basis: Basis,
    consent: ConsentFound | None,
    confidence: float | None,
    retention: Retention | None,
    detected: Detected = NOTHING,
    quarantined: bool = False,
    over: bool = False,
) -> Verdict:
    """Return what the policy in force says of an act; the reasons name the detectors that raised its class or marked it."""
    definition = None if attribute is None else attribute.definition
    actor, catalogue = writing.actor, writing.catalogue
    # Of an episode no attribute says a least class: what its writer says holds, and where nothing is said it is personal.
    least = (Sensitivity.PERSONAL if declared is None else declared) if definition is None else definition.sensitivity
    question = Question(
        act=act,
        attribute=None if attribute is None else attribute.name,
        kind=Kind.EPISODIC if definition is None else definition.kind,
        source=source,
        confirmed=source is SourceKind.CONFIRMATION,
        inferred=source is SourceKind.STATEMENT and act != "episode",
        declared=declared,
        default=least,
        detected=detected.raises,
        basis=basis,
        consent="none" if consent is None else "standing",
        consent_purposes=None if consent is None else frozenset(consent.purposes),
        purposes=actor.purposes,
        confidence=confidence,
        trust=actor.trust,
        clearance=Sensitivity(actor.clearance),
        confirm=Confirm.NEVER if definition is None else definition.confirm,
        written_at=writing.now,
        expires_at=None if retention is None else retention.expires_at,
        recurrence=definition is not None and definition.recurrence is not None,
        expected=None if definition is None else definition.basis,
        quarantined=quarantined or detected.instructs,
        over=over,
    )
    verdict = decide(question, catalogue.policy, version=catalogue.policy_version)
    told = detected.reasons(question.stated) if detected.found else ()
    return replace(verdict, reasons=(*verdict.reasons, *told)) if told else verdict
