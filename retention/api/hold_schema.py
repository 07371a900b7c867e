"""What the endpoints of matters and holds take and answer; their description is made from these very models."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from memory.api.queries import Cursor, Limit
from memory.contracts import AttributeName, Body, ChosenId, Id, Instant, SubjectText
from retention.matters import MAX_SCOPES
from tenants.api.describe import add_schemas, schemas_of


class MatterBody(Body):
    """A legal matter, under the organisation's own reference: a case number, never a name."""

    reference: Annotated[str, Field(min_length=1, max_length=60, pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]*$")]
    reason: Literal["litigation", "investigation", "audit", "regulator", "claim", "other"]


class CloseMatterBody(Body):
    """Closing a matter; from when on is the database's clock."""


class RecordNamed(Body):
    """One record, by its kind and id."""

    kind: Literal["fact", "evidence", "episode", "candidate", "procedure"]
    id: Id


class ScopeBody(Body):
    """One target of a hold: a record alone, or whatever fits all that is given here, also when it comes later."""

    record: RecordNamed | None = None
    subject: SubjectText | None = None
    attribute: AttributeName | None = None
    session_id: ChosenId | None = None
    writer: Id | None = None
    recorded_from: Instant | None = None
    recorded_until: Instant | None = None


class HoldBody(Body):
    """A hold for a matter. With `dry_run` nothing is placed: the answer says how much it would cover."""

    matter: Id
    scopes: Annotated[list[ScopeBody], Field(min_length=1, max_length=MAX_SCOPES)]
    dry_run: bool = False


class ReleaseBody(Body):
    """A proposal to release a hold. A person asks for it, and another one decides."""


def _state(value: Any) -> str:
    if value in ("active", "released"):
        return str(value)
    raise PydanticCustomError("muniment", "{code}", {"code": "not_a_choice"})


class MattersQuery(Body):
    """A page of matters, newest first."""

    cursor: Cursor | None = None
    limit: Limit = 50


class HoldsQuery(MattersQuery):
    """A page of holds, newest first: those of a matter, or in a state."""

    matter: Id | None = None
    state: Annotated[Literal["active", "released"], BeforeValidator(_state)] | None = None


class _Answer(BaseModel):
    model_config = ConfigDict(extra="forbid")


class MatterAnswer(_Answer):
    """A matter as it stands."""

    id: UUID
    reference: str
    reason: str
    state: Literal["open", "closed"]
    opened_at: datetime
    closed_at: datetime | None


class MattersPage(_Answer):
    """Matters, newest first."""

    results: list[MatterAnswer]
    next: str | None
    previous: None


class RecordAnswer(_Answer):
    """One record, by its kind and id."""

    kind: str
    id: UUID


class ScopeAnswer(_Answer):
    """One target of a hold; the subject by its id."""

    record: RecordAnswer | None
    subject: UUID | None
    attribute: str | None
    session_id: str | None
    writer: UUID | None
    recorded_from: datetime | None
    recorded_until: datetime | None


class HoldAnswer(_Answer):
    """A hold as it stands. `release`: whether a program proposed its release, or a person asked for it."""

    id: UUID
    matter: UUID
    state: Literal["active", "released"]
    release: Literal["none", "proposed", "asked", "released"]
    placed_at: datetime
    released_at: datetime | None
    scopes: list[ScopeAnswer]


class HoldsPage(_Answer):
    """Holds, newest first."""

    results: list[HoldAnswer]
    next: str | None
    previous: None


class CoveredAnswer(_Answer):
    """How much of what is there now a hold would cover, by kind; 10,000 stands for that many and more."""

    covers: dict[str, int]


class RefusedAnswer(_Answer):
    """An ending that the hold refused."""

    record: RecordAnswer
    act: str
    times: int
    first_at: datetime
    last_at: datetime


class RefusedPage(_Answer):
    """Endings that a hold refused, newest first."""

    results: list[RefusedAnswer]
    next: str | None
    previous: None


#: One request of each kind, as the guide and Swagger UI show it.
EXAMPLES: Mapping[str, Any] = {
    "MatterBody": {"reference": "2026/117", "reason": "litigation"},
    "HoldBody": {
        "matter": "01931b2c-5d6e-7f80-9a1b-2c3d4e5f6071",
        "scopes": [{"subject": "mira", "recorded_from": "2026-01-01T00:00:00Z"}],
        "dry_run": True,
    },
}


def add_components(result: dict[str, Any], **_kwargs: Any) -> dict[str, Any]:
    """Put these schemas into the description (a postprocessing hook of drf-spectacular)."""
    schemas = schemas_of(
        bodies=[MatterBody, CloseMatterBody, HoldBody, ReleaseBody],
        answers=[MatterAnswer, MattersPage, HoldAnswer, HoldsPage, CoveredAnswer, RefusedPage],
    )
    for name, example in EXAMPLES.items():
        schemas[name]["examples"] = [example]
    return add_schemas(result, schemas)
