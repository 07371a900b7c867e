"""What the endpoints of lifetimes take and answer; their description is made from these very models."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict

from memory.contracts import Body, Instant
from tenants.api.describe import add_schemas, schemas_of


class ShortenBody(Body):
    """An earlier end for a fact, and why."""

    expires_at: Instant
    reason: Literal["no_longer_needed", "subject_request", "policy_changed", "law", "still_needed", "other"]


class _Answer(BaseModel):
    model_config = ConfigDict(extra="forbid")


class EvidenceKept(_Answer):
    """Why one piece of evidence is kept until when. `since`: when the occasion or the act was that gave the date."""

    id: UUID
    basis: str
    sensitivity: Literal["public", "internal", "personal", "restricted"]
    written_at: datetime
    expires_at: datetime | None
    policy_version: str
    rule: str
    since: datetime | None
    standing: bool


class LifetimeAnswer(_Answer):
    """Until when a fact is kept, by which rule, and by which of its evidence."""

    fact: UUID
    basis: str
    expires_at: datetime | None
    review_at: datetime | None
    rule: str
    evidence: list[EvidenceKept]


#: One request, as the guide and Swagger UI show it.
EXAMPLES: Mapping[str, Any] = {
    "ShortenBody": {"expires_at": "2126-01-01T00:00:00Z", "reason": "no_longer_needed"},
}


def add_components(result: dict[str, Any], **_kwargs: Any) -> dict[str, Any]:
    """Put these schemas into the description (a postprocessing hook of drf-spectacular)."""
    schemas = schemas_of(bodies=[ShortenBody], answers=[LifetimeAnswer])
    for name, example in EXAMPLES.items():
        schemas[name]["examples"] = [example]
    return add_schemas(result, schemas)
