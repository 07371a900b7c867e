"""What the endpoints of restrictions take and answer; their description is made from these very models."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, model_validator
from pydantic_core import PydanticCustomError

from memory.api.queries import Cursor, Limit
from memory.contracts import Body, Id, SubjectText
from tenants.api.describe import add_schemas, schemas_of

GroundWord = Literal["accuracy_contested", "unlawful", "needed_for_claims", "objection_pending", "other"]


class RestrictionBody(Body):
    """What is to be restricted: a subject by any of its names, a fact, or an episode; and on which ground (Art. 18(1))."""

    subject: SubjectText | None = None
    fact: Id | None = None
    episode: Id | None = None
    ground: GroundWord

    @model_validator(mode="after")
    def _one(self) -> "RestrictionBody":
        if sum(each is not None for each in (self.subject, self.fact, self.episode)) != 1:
            raise PydanticCustomError("one_target", "a restriction names one subject, fact or episode")
        return self


class RestrictionsQuery(Body):
    """A page of restrictions, newest first."""

    cursor: Cursor | None = None
    limit: Limit = 50


class _Answer(BaseModel):
    model_config = ConfigDict(extra="forbid")


class RestrictionAnswer(_Answer):
    """A restriction as it stands. People lift it, with a reason; whoever asked for it is told first."""

    id: UUID
    kind: Literal["subject", "fact", "episode"]
    target: UUID
    ground: GroundWord
    state: Literal["active", "lifted"]
    request: UUID | None
    restricted_by: UUID
    restricted_at: datetime
    lifted_at: datetime | None
    lifted_because: str | None


class RestrictionsPage(_Answer):
    """Restrictions, newest first."""

    results: list[RestrictionAnswer]
    next: str | None
    previous: None


#: One restriction, as the guide and Swagger UI show it.
EXAMPLES: Mapping[str, Any] = {"RestrictionBody": {"subject": "mira", "ground": "accuracy_contested"}}


def add_components(result: dict[str, Any], **_kwargs: Any) -> dict[str, Any]:
    """Put these schemas into the description (a postprocessing hook of drf-spectacular)."""
    schemas = schemas_of(bodies=[RestrictionBody], answers=[RestrictionAnswer, RestrictionsPage])
    for name, example in EXAMPLES.items():
        schemas[name]["examples"] = [example]
    return add_schemas(result, schemas)
