"""The OpenAPI description of these endpoints, made from the definition of attributes itself."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from policies.definitions import AttributeDefinition
from tenants.api.describe import add_schemas, schemas_of

PAGE = 50
MAX_PAGE = 200


class AttributesQuery(BaseModel):
    """A page of the attributes in force."""

    cursor: Annotated[str, Field(min_length=32, max_length=32, pattern="^[0-9a-f]{32}$")] | None = None
    limit: Annotated[int, Field(ge=1, le=MAX_PAGE)] = PAGE


class AttributeInForce(AttributeDefinition):
    """An attribute as it was published, with the number of its version."""

    version: int


class AttributesPage(BaseModel):
    """The attributes in force, in the order in which they were first published."""

    model_config = ConfigDict(extra="forbid")

    results: list[AttributeInForce]
    next: str | None
    previous: None


def add_components(result: dict[str, Any], **_kwargs: Any) -> dict[str, Any]:
    """Put these schemas into the description (a postprocessing hook of drf-spectacular)."""
    return add_schemas(result, schemas_of(answers=[AttributesPage]))
