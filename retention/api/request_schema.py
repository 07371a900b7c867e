"""What the endpoints of subjects' requests take and answer; their description is made from these very models."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import BaseModel, BeforeValidator, ConfigDict
from pydantic_core import PydanticCustomError

from memory.api.queries import Cursor, Limit
from memory.contracts import Body, ChosenId, Instant, SubjectText
from tenants.api.describe import add_schemas, schemas_of

KindWord = Literal["access", "rectification", "erasure", "restriction", "portability", "objection"]
StateWord = Literal["received", "in_progress", "completed", "refused", "withdrawn"]


class SubjectRequestBody(Body):
    """What a data subject asked for, as it came in. The words of the request stay where they came in."""

    kind: KindWord
    subject: SubjectText
    received_at: Instant | None = None
    reference: ChosenId | None = None


def _state(value: Any) -> str:
    if value in StateWord.__args__:  # type: ignore[attr-defined]
        return str(value)
    raise PydanticCustomError("muniment", "{code}", {"code": "not_a_choice"})


class SubjectRequestsQuery(Body):
    """A page of requests, newest first, of one state or all."""

    state: Annotated[StateWord, BeforeValidator(_state)] | None = None
    cursor: Cursor | None = None
    limit: Limit = 50


class _Answer(BaseModel):
    model_config = ConfigDict(extra="forbid")


class LedTo(_Answer):
    """What a request led to."""

    kind: str
    id: UUID


class SubjectRequestAnswer(_Answer):
    """A request as it stands. From `due_at` on an answer is too late; `known` says whether the subject is, `escalated_to` who
    was told that the day is near, or past."""

    id: UUID
    kind: KindWord
    state: StateWord
    known: bool
    reference: str | None
    received_at: datetime
    due_at: datetime
    days_left: int
    overdue: bool
    extended: bool
    escalated_to: Literal["privacy_officer", "tenant_admin"] | None
    identity: Literal["unchecked", "confirmed", "failed"]
    repeats: int
    refusal_ground: str | None
    outcome: str | None
    led_to: LedTo | None
    closed_at: datetime | None


class SubjectRequestsPage(_Answer):
    """Requests, newest first."""

    results: list[SubjectRequestAnswer]
    next: str | None
    previous: None


#: One request, as the guide and Swagger UI show it.
EXAMPLES: Mapping[str, Any] = {
    "SubjectRequestBody": {"kind": "access", "subject": "mira", "reference": "ticket-4711"},
}


def add_components(result: dict[str, Any], **_kwargs: Any) -> dict[str, Any]:
    """Put these schemas into the description (a postprocessing hook of drf-spectacular)."""
    schemas = schemas_of(bodies=[SubjectRequestBody], answers=[SubjectRequestAnswer, SubjectRequestsPage])
    for name, example in EXAMPLES.items():
        schemas[name]["examples"] = [example]
    return add_schemas(result, schemas)
