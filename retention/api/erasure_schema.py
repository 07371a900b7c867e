"""What the endpoints of erasures take and answer; their description is made from these very models."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from memory.api.queries import Cursor, Limit
from memory.contracts import Body, SubjectText
from tenants.api.describe import add_schemas, schemas_of

ReasonWord = Literal["subject_request", "consent_withdrawn", "no_longer_needed", "unlawful", "law", "other"]
StateWord = Literal["requested", "asked", "running", "held", "failed", "done", "refused", "withdrawn"]


class ErasureBody(Body):
    """Whose erasure is asked for, by any of the subject's names, and why. Nothing ends by it: people decide."""

    subject: SubjectText
    reason: ReasonWord


class ErasuresQuery(Body):
    """A page of erasures, newest first."""

    cursor: Cursor | None = None
    limit: Limit = 50


class NoticeEndpointBody(Body):
    """Where the people of this agent are told of erasures of what it has read."""

    url: str = Field(max_length=500)


class _Answer(BaseModel):
    model_config = ConfigDict(extra="forbid")


class ErasureAnswer(_Answer):
    """An erasure as it stands. `counts`: what it would take, by store, as it was when asked; `removed`: what it took."""

    id: UUID
    subject: UUID
    state: StateWord
    reason: ReasonWord
    counts: dict[str, int]
    step: str | None
    removed: dict[str, int]
    refused_by_hold: int
    with_a_person: int
    asked_at: datetime
    finished_at: datetime | None
    run: UUID | None
    certificate: UUID | None


class ErasuresPage(_Answer):
    """Erasures, newest first."""

    results: list[ErasureAnswer]
    next: str | None
    previous: None


class NoticeEndpointAnswer(_Answer):
    """The secret that signs what is sent there. It is shown this once."""

    agent: UUID
    url: str
    secret: str


#: One erasure, as the guide and Swagger UI show it.
EXAMPLES: Mapping[str, Any] = {
    "ErasureBody": {"subject": "mira", "reason": "subject_request"},
    "NoticeEndpointBody": {"url": "https://agent.example/hooks/muniment"},
}


def add_components(result: dict[str, Any], **_kwargs: Any) -> dict[str, Any]:
    """Put these schemas into the description (a postprocessing hook of drf-spectacular)."""
    schemas = schemas_of(
        bodies=[ErasureBody, NoticeEndpointBody], answers=[ErasureAnswer, ErasuresPage, NoticeEndpointAnswer]
    )
    for name, example in EXAMPLES.items():
        schemas[name]["examples"] = [example]
    return add_schemas(result, schemas)
