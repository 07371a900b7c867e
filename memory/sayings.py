"""A saying on its way through the write door, and the evidence that it takes back."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from memory import rows
from memory.contracts import FactBody
from memory.outcomes import Refusal
from memory.subjects import SubjectState
from policies.catalogue import AttributeInForce
from policies.decision import Verdict, rank
from policies.vocabulary import SourceKind
from tenants.actors import Actor, ActorKind

#: Stands for the id of an attribute that nobody has defined.
UNDEFINED = UUID(int=0)


class Target(NamedTuple):
    """A piece of evidence that a correction or a retraction may take back."""

    evidence: UUID
    fact: UUID | None
    valid_from: datetime
    stated_to: datetime | None
    confirmed: bool
    trust: int
    writer: UUID
    #: Its fact has ended, or is overdue to be.
    ended: bool
    sensitivity: int
    subject: UUID
    attribute: UUID
    retracted: bool
    #: No agent sees it: a redaction of it is required, or its processing restricted.
    hidden: bool


@dataclass(slots=True, kw_only=True)
class Prepared:
    """A saying that passed its checks, ready to stand or to wait. Retractions and decisions come to their key as one too."""

    #: Its place among the sayings of the request.
    place: int = 0
    attribute: AttributeInForce
    subject: SubjectState
    #: Canonical, and its digest under the subject's key; None for an end without a value.
    value: str | None = None
    digest: bytes | None = None
    is_end: bool = False
    valid_from: datetime | None = None
    stated_to: datetime | None = None
    confidence: float | None = None
    source: SourceKind = SourceKind.STATEMENT
    turn_id: str
    tool_call_id: str | None = None
    consent_id: UUID | None = None
    session_id: str | None = None
    contract_ref: str | None = None
    episode_id: UUID | None = None
    #: A quote that is still to be stored, or the one that is.
    quote: str | None = None
    quote_id: UUID | None = None
    #: What drew it from its episode, by name and version; None where its writer said it.
    extractor: str | None = None
    sensitivity: int
    #: Codes of what detection found in it.
    detected: Sequence[str] = ()
    basis: str
    expires_at: datetime | None = None
    review_at: datetime | None = None
    writer_kind: str
    writer_id: UUID
    trust: int
    #: Only an import gives it.
    recorded_at: datetime | None = None
    #: What the policy said; None for what is not put to it again.
    verdict: Verdict | None = None
    #: A person decided on this saying: it is not asked about again.
    decided: bool = False
    #: The latest decision by which something like it was rejected, redacted or erased, where it may come in or be asked
    #: about all the same.
    suppressed: datetime | None = None
    #: What it takes back; the evidence or fact that it names; the evidence that it is recorded to correct.
    targets: Sequence[Target] = ()
    named: UUID | None = None
    corrects: UUID | None = None
    #: The rank to reach so that its act decides over what no longer competes.
    over: int = 0
    #: What its rank settled between it and others of the same instant, as a reason to be told.
    settled: str | None = None

    @property
    def returns(self) -> bool:
        """Whether it says again what a suppression stands on, with nothing newer to show for it and nobody's decision."""
        return self.suppressed is not None and self.episode_id is None and not self.decided

    @property
    def confirmation(self) -> bool:
        """Whether a person confirms by it."""
        return self.source is SourceKind.CONFIRMATION

    @property
    def rank(self) -> int:
        """What decides between it and another value of the same instant."""
        policy = self.attribute.definition.conflict
        return max(self.over, rank(policy, confirmed=self.confirmation, trust=self.trust))

    @property
    def undefined(self) -> bool:
        """Whether nobody has defined its attribute: it has no key, and can only wait."""
        return self.attribute.id == UNDEFINED

    @property
    def key(self) -> tuple[UUID, UUID]:
        """The subject and attribute that it is about."""
        return self.subject.id, self.attribute.id


# what is taken back ---------------------------------------------------------------------------------------------------

_TARGETS = """
SELECT e.id, e.fact_id, e.valid_from, e.stated_to, e.confirmed, e.trust, e.writer_id,
  coalesce(f.ended_at IS NOT NULL OR f.expires_at <= clock_timestamp()
    OR f.consent_ids IS NOT NULL AND NOT consent_stands(f.consent_ids), false),
  coalesce(f.sensitivity, e.sensitivity, 0), k.subject_id, k.attribute_id, e.retracted_at IS NOT NULL,
  coalesce(f.redaction_state = 'required' OR f.restricted, false)
FROM memory_evidence e
  LEFT JOIN LATERAL (SELECT * FROM memory_fact x WHERE x.tenant_id = e.tenant_id AND x.id = e.fact_id OFFSET 0) f ON true
  CROSS JOIN LATERAL (SELECT * FROM memory_factkey x WHERE x.tenant_id = e.tenant_id AND x.id = e.key_id OFFSET 0) k
WHERE e.tenant_id = %s::uuid AND (e.id = ANY(%s::uuid[]) OR e.fact_id = ANY(%s::uuid[]))
ORDER BY e.valid_from, e.act_no
"""


def targets_query(tenant: UUID, names: Collection[UUID]) -> rows.Query | None:
    """Return what asks for the evidence that `names` (of evidence and facts) stand for; None where there are none."""
    wanted = sorted(names)
    return (_TARGETS, [tenant, wanted, wanted]) if wanted else None


def targets_by_name(names: Iterable[UUID], answer: Sequence[tuple[object, ...]]) -> dict[UUID, list[Target]]:
    """Read the answer to `targets_query`: all evidence of each name, taken back or not."""
    found: dict[UUID, list[Target]] = {name: [] for name in names}
    for row in answer:
        target = Target(*row)  # type: ignore[arg-type]
        for name in (target.evidence, target.fact):
            if name in found:
                found[name].append(target)
    return found


def targets_of(tenant: UUID, name: UUID) -> list[Target]:
    """Return all evidence that `name`, of a piece of evidence or a fact, stands for, taken back or not."""
    return targets_by_name([name], rows.fetch(_TARGETS, [tenant, [name], [name]]))[name]


def sees(actor: Actor, target: Target) -> bool:
    """Whether the actor may know of the evidence at all."""
    return target.sensitivity <= actor.clearance and not (target.hidden and actor.kind is ActorKind.AGENT)


def check_may_take_back(actor: Actor, targets: Iterable[Target]) -> None:
    """Refuse an agent who would take back what another, more trusted one said (403)."""
    if actor.kind is ActorKind.AGENT and any(
        target.trust > actor.trust for target in targets if target.writer != actor.id
    ):
        raise Refusal("trust_too_low", status=403)


def aim(actor: Actor, item: Prepared, body: FactBody, found: Sequence[Target]) -> None:
    """Point a correction at what it takes back: standing evidence of the same key that the writer may correct.

    Its times default to those of what it corrects.
    """
    visible = [target for target in found if sees(actor, target)]
    if not visible:
        raise Refusal("not_found", "corrects")
    if any((target.subject, target.attribute) != item.key for target in visible):
        raise Refusal("other_key", "corrects")
    take(actor, item, [target for target in visible if not target.retracted])
    item.named = body.corrects
    if body.valid_from is None:
        item.valid_from = item.targets[0].valid_from
    if body.valid_to is None:
        item.stated_to = item.targets[0].stated_to
    check_times(item.valid_from, item.stated_to)


def take(actor: Actor, item: Prepared, standing: Sequence[Target]) -> None:
    """Let `item` take back `standing`, where it stands, its fact has not ended and the actor may."""
    if not standing:
        raise Refusal("already_retracted", "corrects", status=409)
    if any(target.ended for target in standing):
        raise Refusal("fact_ended", "corrects", status=409)
    if not item.decided:
        check_may_take_back(actor, standing)
    item.targets = standing
    item.corrects = standing[0].evidence


def check_times(valid_from: datetime | None, stated_to: datetime | None) -> None:
    """Refuse a saying that ends before it begins."""
    if valid_from is not None and stated_to is not None and stated_to <= valid_from:
        raise Refusal("valid_to_not_after_valid_from", "valid_to")
