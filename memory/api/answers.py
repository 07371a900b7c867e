"""The shapes of answers, for the description of the API alone: the doors make the answers, and tests hold both together."""

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from policies.vocabulary import Basis, Kind, SourceKind
from tenants.actors import ActorKind

ClassName = Literal["public", "internal", "personal", "restricted"]
Count = Annotated[int, Field(ge=0)]
Next = Annotated[str | None, Field(description="The `cursor` of the following page; null on the last.")]


class Answer(BaseModel):
    """An answer: every member is always there, and there is no other."""

    model_config = ConfigDict(extra="forbid")


class Writer(Answer):
    """Who said it."""

    kind: ActorKind
    id: UUID


class Kept(Answer):
    """Why it is kept and until when; never ends only where the basis is `indefinite`."""

    basis: Basis
    expires_at: datetime | None


class Redaction(Answer):
    """Whether content was taken out, and of which fields."""

    state: Literal["none", "required", "applied"]
    fields: list[str]


class Tombstone(Answer):
    """What stands where redacted content stood. It is told by `redaction.state`, not by its shape alone."""

    redacted: Literal[True]
    type: Annotated[str, Field(description="Of what type it was: the format or type of its schema, `text`, or `any`.")]
    fields: Annotated[list[str], Field(description="What was taken out: `value`, `value.street`, `content`, `quote`.")]
    left: Annotated[Any, Field(description="What the strategy left of the whole; null for nothing.")]


class FactProvenance(Answer):
    """Where the stretch's deciding evidence comes from."""

    source: SourceKind
    turn_id: str
    tool_call_id: str | None
    consent_ref: str | None
    writer: Writer
    written_at: datetime
    source_episode: UUID | None
    detected: Annotated[
        list[str], Field(description="Detectors that found something in what was said, and why to be wary.")
    ]


class FactAnswer(Answer):
    """A fact over the stretch that was asked about. `value` is a `Tombstone` where `redaction.state` is `applied`."""

    id: UUID
    subject: str | None
    attribute: str
    value: Any
    kind: Kind
    valid_from: datetime
    valid_to: Annotated[datetime | None, Field(description="Exclusive; null while it holds.")]
    recorded_at: Annotated[datetime, Field(description="Since when this stretch is believed.")]
    superseded_at: Annotated[datetime | None, Field(description="Until when it was; null while it is believed.")]
    supersedes: Annotated[UUID | None, Field(description="The fact that held before it, where it may be seen.")]
    confidence: Annotated[float | None, Field(ge=0, le=1)]
    confirmed: bool
    schema_version: int
    sensitivity: ClassName
    retention: Kept
    redaction: Redaction
    provenance: FactProvenance | None
    evidence: Annotated[list[UUID], Field(description="The newest standing evidence, at most 20.")]
    evidence_count: Count


class FactRead(FactAnswer):
    """One fact, with the receipt of its read."""

    receipt: UUID


class FactsPage(Answer):
    """What held at `valid_at` as believed at `known_at`, and how much was withheld, by reason."""

    results: list[FactAnswer]
    next: Next
    previous: None
    valid_at: datetime
    known_at: datetime
    withheld: dict[str, Count]
    receipt: UUID


class SourceChanged(Answer):
    """A fact that an earlier text rested on, or did not know, and what became of it."""

    fact: UUID
    why: Literal["changed", "no_longer_holds", "new", "expired", "consent", "ended"]


class ProfileTextAnswer(Answer):
    """What holds about a subject as text, fenced as data, with the facts that it rests on."""

    subject: str
    text: str
    facts: Annotated[list[UUID], Field(description="What the text rests on: all that it says, and no more.")]
    sensitivity: Annotated[ClassName | None, Field(description="The highest class of these; null for no fact.")]
    expires_at: Annotated[datetime | None, Field(description="The earliest expiry of these.")]
    built_at: datetime
    derived: Annotated[UUID | None, Field(description="The text made before; null where it was made for this answer.")]
    fresh: Annotated[Literal[True], Field(description="Nothing that it rests on had changed at this read.")]
    changed: Annotated[
        list[SourceChanged], Field(description="Why a text made before was not served, as far as that may be told.")
    ]
    more: Annotated[bool, Field(description="There are more facts than a text takes (200): see the profile's pages.")]
    withheld: dict[str, Count]
    receipt: UUID


class Citation(Answer):
    """What a recalled fact rests on: its newest evidence that quotes, else its newest."""

    fact: UUID
    evidence: UUID | None
    episode: UUID | None
    quote: str | None
    span: Annotated[
        list[int] | None, Field(description="Where the quote stands in the episode: first, and after last.")
    ]
    trust: int | None


class Rival(Answer):
    """A value that contradicts the fact and has not been decided on."""

    candidate: UUID
    value: Any
    confirm_by: str | None
    created_at: datetime


class RecalledFact(FactAnswer):
    """A fact that holds at the instants asked about, found by name or by its value, with what it rests on."""

    type: Literal["fact"]
    why: Literal["named", "value"]
    cite: Citation
    conflicts: list[Rival]


class RecalledEpisode(Answer):
    """A part of an episode that speaks of what was asked. Evidence of what was said, not of what holds."""

    type: Literal["episode"]
    why: Literal["words"]
    id: UUID
    kind: Literal["message", "tool_result", "event"]
    role: Literal["user", "assistant", "system", "tool"] | None
    session_id: str
    turn_id: str
    occurred_at: datetime
    recorded_at: datetime
    sensitivity: ClassName
    retention: Kept
    writer: Writer
    text: str
    span: Annotated[list[int], Field(description="Where the text stands in the episode: first, and after last.")]


class Waiting(Answer):
    """What has been said and is not in the answer yet: turns to be drawn from, writes whose words are to be indexed."""

    turns: Count
    index: Count


class RecallAnswer(Answer):
    """The smallest cited context that answers; `text` is the same for a model, fenced as data."""

    mode: Literal["current", "as_of"]
    valid_at: datetime
    known_at: datetime
    context: list[RecalledFact | RecalledEpisode]
    text: str
    tokens: Annotated[int, Field(ge=0, description="What `text` is taken for: a token for every four characters.")]
    omitted: Annotated[int, Field(ge=0, description="Items that the budget had no room for.")]
    withheld: dict[str, Count]
    waiting: Waiting
    index: Literal["ready", "rebuilding"]
    derived: Annotated[
        UUID | None, Field(description="The kept context that this is, where the same was asked before.")
    ]
    receipt: UUID


class Blind(Answer):
    """All that a writer may know whose clearance is below what is kept there."""

    receipt: UUID


class WrittenAnswer(Answer):
    """The saying stands as evidence; `fact` is null for an end, and for what has ended since."""

    change: Literal["new", "update", "late", "ended", "corrected", "no_change"]
    fact: FactAnswer | None
    evidence: UUID
    reasons: list[str]
    receipt: UUID


class AskedAnswer(Answer):
    """The saying waits: `ask` for a person, `buffer` for recurrence."""

    candidate: UUID
    verdict: Literal["ask", "buffer"]
    reasons: list[str]
    receipt: UUID


class Wrong(Answer):
    """One field that is wrong, by its place and a stable code."""

    path: str
    code: str


class _Placed(Answer):
    index: Count


class BatchWritten(_Placed):
    """This item stands as evidence."""

    status: Literal[200, 201]
    change: Literal["new", "update", "late", "ended", "corrected", "no_change"]
    fact: FactAnswer | None
    evidence: UUID
    reasons: list[str]


class BatchAsked(_Placed):
    """This item waits."""

    status: Literal[202]
    candidate: UUID
    verdict: Literal["ask", "buffer"]
    reasons: list[str]


class BatchBlind(_Placed):
    """This item was taken; the writer may not know more."""

    status: Literal[201]


class BatchDenied(_Placed):
    """This item was not kept."""

    status: Literal[400, 403, 409, 422]
    code: str
    errors: list[Wrong]
    reasons: list[str]
    rule: str


class BatchAnswer(Answer):
    """What became of each item, in order; the receipt is of them all."""

    results: list[BatchWritten | BatchAsked | BatchDenied | BatchBlind]
    receipt: UUID


class EvidenceProvenance(FactProvenance):
    """Where one saying comes from."""

    extractor: str | None
    quote: str | Tombstone | None


class EvidenceAnswer(Answer):
    """One saying, as it was said; only its retraction may have been added, and content taken out."""

    id: UUID
    fact: UUID | None
    value: Any
    ended: bool
    valid_from: datetime
    valid_to: Annotated[datetime | None, Field(description="The end that was stated, if any.")]
    recorded_at: datetime
    retracted_at: datetime | None
    retraction_reason: str | None
    confidence: Annotated[float | None, Field(ge=0, le=1)]
    confirmed: bool
    imported: bool
    corrects: UUID | None
    sensitivity: ClassName
    retention: Kept
    redaction: Redaction
    provenance: EvidenceProvenance


class StretchAnswer(Answer):
    """A stretch of validity over a stretch of belief. `withheld` and `ended` ones are boundaries without a value."""

    fact: UUID | None
    value: Any
    state: Literal["held", "ended", "withheld"]
    valid_from: datetime
    valid_to: datetime | None
    recorded_at: datetime
    superseded_at: datetime | None
    evidence: UUID | None


class HistoryPage(Answer):
    """All evidence of the fact's key by pages; all its stretches on the first."""

    results: list[EvidenceAnswer]
    next: Next
    previous: None
    stretches: list[StretchAnswer]
    more_stretches: bool
    receipt: UUID


class LineagePage(Answer):
    """What a fact rests on, and what was derived from it."""

    fact: UUID
    sources: list[EvidenceAnswer]
    derived: list[UUID]
    next: Next
    previous: None
    receipt: UUID


class RetractedAnswer(Answer):
    """The evidence that was taken back."""

    evidence: list[UUID]
    receipt: UUID


class ExtractionAnswer(Answer):
    """How far drawing facts from an episode has come.

    `none`: not asked for; `pending`: waits, or waits to be tried again, which `code` then tells; `failed`: given up;
    `skipped`: nothing in it can be a saying of its subject, or it may not be read any more, as `code` says.
    """

    state: Literal["none", "pending", "done", "failed", "skipped"]
    code: str | None
    attempts: Count
    extractors: Annotated[list[str], Field(description="Who drew, by name and version.")]


class DrawnFact(Answer):
    """A fact that was drawn, as it stands now, and what changed by it."""

    attribute: str
    change: Literal["new", "update", "late", "ended", "corrected", "no_change"]
    fact: FactAnswer
    evidence: UUID
    reasons: list[str]


class DrawnWaiting(Answer):
    """A saying that was drawn and waits: for a person, or for recurrence."""

    attribute: str
    candidate: UUID
    reasons: list[str]


class DrawnRejected(Answer):
    """A proposal that was not taken; the attribute is null where it was none of those offered."""

    attribute: str | None
    reasons: list[str]


class EpisodeDrawn(Answer):
    """What was drawn from an episode, as far as the reader may see it."""

    id: UUID
    extraction: ExtractionAnswer
    facts: list[DrawnFact]
    asked: list[DrawnWaiting]
    buffered: list[DrawnWaiting]
    rejected: list[DrawnRejected]


class EpisodeWritten(EpisodeDrawn):
    """The episode is kept; what was drawn from it so far stands in the lists."""

    replaced: Annotated[dict[str, Count], Field(description="Credentials that were replaced, by their detector.")]
    detected: Annotated[list[str], Field(description="Detectors that found something else.")]
    quarantined: bool
    receipt: UUID


class EpisodeAnswer(Answer):
    """An episode as it was received."""

    id: UUID
    kind: Literal["message", "tool_result", "event"]
    role: Literal["user", "assistant", "system", "tool"] | None
    content: Annotated[
        str | Tombstone | None,
        Field(description="A tombstone where all was redacted; of parts a mark stands in the text."),
    ]
    session_id: str
    turn_id: str
    tool_call_id: str | None
    occurred_at: datetime
    recorded_at: datetime
    consent_ref: str | None
    writer: Writer
    extraction: ExtractionAnswer
    replaced: Annotated[dict[str, Count], Field(description="Credentials that were replaced, by their detector.")]
    detected: Annotated[list[str], Field(description="Detectors that found something else.")]
    quarantined: Annotated[bool, Field(description="It speaks to the agent: a person looks at what is drawn from it.")]
    sensitivity: ClassName
    retention: Kept
    redaction: Redaction
    facts: Annotated[list[UUID], Field(description="Facts that rest on it, at most 200.")]
    asked: list[DrawnWaiting]
    buffered: list[DrawnWaiting]
    rejected: list[DrawnRejected]
    receipt: UUID


class CandidateAnswer(Answer):
    """A proposed saying and what became of it."""

    id: UUID
    act: Literal["fact", "correction", "retraction", "unknown_attribute"]
    state: Literal["asked", "buffered", "accepted", "promoted", "rejected", "expired"]
    reasons: list[str]
    rule: str
    confirm_by: str | None
    subject: str | None
    attribute: Annotated[str | None, Field(description="Null where nobody has defined it and the value is hidden.")]
    value: Any
    ended: bool
    target: UUID | None
    occurrences: Count
    created_at: datetime
    decided_at: datetime | None
    decision_reason: str | None
    evidence: UUID | None
    sensitivity: ClassName
    retention: Kept
    redaction: Redaction


class CandidateRead(CandidateAnswer):
    """One candidate, with the receipt of its read."""

    receipt: UUID


class CandidatesPage(Answer):
    """Candidates, oldest first."""

    results: list[CandidateAnswer]
    next: Next
    previous: None
    receipt: UUID


class SubjectAnswer(Answer):
    """A subject's id; `taken` counts the aliases that name another subject already and were left there."""

    id: UUID
    taken: Count


class ConsentAnswer(Answer):
    """A consent as it stands."""

    id: UUID
    ref: str
    purposes: list[str]
    granted_at: datetime
    withdrawn_at: datetime | None


class KeptUntil(Answer):
    """Until when each class stays at most; null where the policy lets it stay as it was."""

    public: datetime | None
    internal: datetime | None
    personal: datetime | None
    restricted: datetime | None


class TermAnswer(Answer):
    """A session that is closed, or a contract that has ended. What was written later counts from its writing."""

    id: UUID
    kind: Literal["session", "contract"]
    ref: str
    ended_at: datetime
    kept_until: KeptUntil


class ExplainAnswer(Answer):
    """The verdict that the write would get now. What would be refused has a code, and neither class nor end."""

    verdict: Literal["accept", "ask", "buffer", "reject"]
    reasons: list[str]
    rule: str
    policy_version: str
    code: str | None
    errors: list[Wrong]
    sensitivity: ClassName | None
    basis: Basis | None
    expires_at: datetime | None
    expiry_rule: str | None
    review_at: datetime | None
    confirm_by: str | None


ProcedureState = Literal["draft", "proposed", "approved", "active", "retired", "refused"]


class ProcedureTestAnswer(Answer):
    """By what a version was tried, as its proposer says."""

    kind: Literal["test", "evaluation"]
    reference: str
    result: Literal["passed", "failed"]
    cases: int | None
    passed: int | None


class ListedProcedure(Answer):
    """A version that is active."""

    procedure: str
    scope: str
    number: int
    id: UUID
    sensitivity: ClassName
    activated_at: datetime


class ProceduresPage(Answer):
    """Procedures that are active for the reader."""

    results: list[ListedProcedure]
    next: Next
    previous: None


class ActiveProcedureAnswer(Answer):
    """The version that agents act by. `body` is null where its text was redacted: then there is nothing to act by."""

    id: UUID
    procedure: str
    number: int
    scope: Annotated[str, Field(description="The scope that answered: the most specific that applies.")]
    body: str | None
    sensitivity: ClassName
    digest: Annotated[str, Field(description="What its approval was bound to, in hexadecimal.")]
    base: Annotated[UUID | None, Field(description="The version that it replaced.")]
    detected: Annotated[list[str], Field(description="Detectors that found something in the text.")]
    activated_at: datetime
    activated_by: UUID
    proposed_by: Writer
    test: ProcedureTestAnswer | None
    redaction: Redaction
    receipt: UUID


class ProposalAnswer(Answer):
    """What became of a proposal, without its text."""

    id: UUID
    procedure: str
    number: int
    scope: str
    state: ProcedureState
    sensitivity: ClassName
    digest: str
    base: UUID | None
    rollback: Annotated[UUID | None, Field(description="What comes back if it is rolled back; null: nothing.")]
    detected: list[str]
    proposed_at: datetime
    activate_at: datetime | None
    activated_at: datetime | None
    retired_at: datetime | None
    test: ProcedureTestAnswer | None


class ProposalsPage(Answer):
    """The agent's own proposals, newest first."""

    results: list[ProposalAnswer]
    next: Next
    previous: None


class ProposedAnswer(Answer):
    """`joined`: the same text waits already; `unchanged`: it is active already."""

    outcome: Literal["proposed", "joined", "unchanged"]
    version: ProposalAnswer
    receipt: UUID
