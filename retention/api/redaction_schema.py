"""What the endpoints of redaction take and answer; their description is made from these very models."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from memory.api.queries import Cursor, Limit
from memory.contracts import Body, Id
from retention.redaction import MOST_PICKS, MOST_SPANS
from tenants.api.describe import add_schemas, schemas_of

KindWord = Literal["fact", "evidence", "episode", "candidate"]
StrategyWord = Literal["null", "mask", "mask_tail", "generalise", "pseudonym"]
Position = Annotated[int, Field(ge=0, le=2_000_000)]


class RedactionItemBody(Body):
    """One record, and what to take out of it: the whole, fields of a fact's value, or spans of an episode's text."""

    kind: KindWord
    id: Id
    strategy: StrategyWord = "null"
    fields: Annotated[list[Annotated[str, Field(min_length=1, max_length=400)]], Field(max_length=100)] = []
    spans: Annotated[
        list[Annotated[list[Position], Field(min_length=2, max_length=2)]],
        Field(max_length=MOST_SPANS, description="Where in the text: first character, and after the last."),
    ] = []


class RedactionBody(Body):
    """A proposal to redact. With `dry_run` nothing is hidden: the answer says what would follow."""

    items: Annotated[list[RedactionItemBody], Field(min_length=1, max_length=MOST_PICKS)]
    reason: Literal[
        "not_to_be_kept", "third_party", "excessive", "wrong_subject", "subject_request", "credential", "other"
    ]
    dry_run: bool = False


class ApplyBody(Body):
    """Asking for a proposal to be applied. A privacy officer decides, never a program."""


class WithdrawRedactionBody(Body):
    """Taking one's own proposal back."""


class RedactionsQuery(Body):
    """A page of proposals, newest first, in a state where one is given."""

    cursor: Cursor | None = None
    limit: Limit = 50
    state: Annotated[Literal["required", "applied", "refused", "withdrawn"], Field()] | None = None


class _Answer(BaseModel):
    model_config = ConfigDict(extra="forbid")


class RecordNamedAnswer(_Answer):
    """One record, by its kind and id."""

    kind: str
    id: UUID


class RedactionItemAnswer(RecordNamedAnswer):
    """One record, and what is taken out of it."""

    strategy: StrategyWord
    fields: list[str]
    spans: list[list[int]]


class StoppedRecord(RecordNamedAnswer):
    """A record that holds keep as it is."""

    holds: list[UUID]


class RedactionPreview(_Answer):
    """All that follows from a redaction, as ids and counts; of each list at most 50."""

    items: list[RedactionItemAnswer]
    follows: Annotated[
        list[RecordNamedAnswer], Field(description="What falls with them: quotes, and what proposes the same.")
    ]
    unsupported: Annotated[list[UUID], Field(description="Facts that lose their last quote and go to a person.")]
    elsewhere: Annotated[
        list[RecordNamedAnswer], Field(description="Records of the same subject that say the same, and stay.")
    ]
    held: list[StoppedRecord]
    counts: dict[str, int]
    digest: Annotated[str, Field(description="What an application of exactly this is bound to.")]


class RedactionAnswer(_Answer):
    """A proposal as it stands."""

    id: UUID
    state: Literal["required", "applied", "refused", "withdrawn"]
    reason: str
    requested_at: datetime
    cause: Annotated[UUID | None, Field(description="The redaction by which its fact lost its last quote.")]
    decided_at: datetime | None
    decision_reason: str | None
    waits_for: Annotated[Literal["privacy_officer"] | None, Field(description="Who decides, while it waits.")]
    items: list[RedactionItemAnswer]
    counts: dict[str, int]
    certificate: UUID | None


class RedactionsPage(_Answer):
    """Proposals, newest first."""

    results: list[RedactionAnswer]
    next: str | None
    previous: None


#: One request of each kind, as the guide and Swagger UI show it.
EXAMPLES: Mapping[str, Any] = {
    "RedactionBody": {
        "items": [{"kind": "fact", "id": "01931b2c-5d6e-7f80-9a1b-2c3d4e5f6071", "strategy": "generalise"}],
        "reason": "not_to_be_kept",
        "dry_run": True,
    },
}


def add_components(result: dict[str, Any], **_kwargs: Any) -> dict[str, Any]:
    """Put these schemas into the description (a postprocessing hook of drf-spectacular)."""
    schemas = schemas_of(
        bodies=[RedactionBody, ApplyBody, WithdrawRedactionBody],
        answers=[RedactionAnswer, RedactionsPage, RedactionPreview],
    )
    for name, example in EXAMPLES.items():
        schemas[name]["examples"] = [example]
    return add_schemas(result, schemas)
