"""What the endpoints of runs and certificates answer; their description is made from these very models."""

from datetime import datetime
from typing import Annotated, Any, Literal, get_args
from uuid import UUID

from pydantic import BaseModel, BeforeValidator, ConfigDict
from pydantic_core import PydanticCustomError

from memory.api.queries import Cursor, Limit
from memory.contracts import Body, Id
from retention.runs import Kind
from tenants.api.describe import add_schemas, schemas_of


def _kind(value: Any) -> str:
    if value in get_args(Kind):
        return str(value)
    raise PydanticCustomError("muniment", "{code}", {"code": "not_a_choice"})


class RunsQuery(Body):
    """A page of runs, newest first: those of a kind."""

    cursor: Cursor | None = None
    limit: Limit = 50
    kind: Annotated[Kind, BeforeValidator(_kind)] | None = None


class CertificatesQuery(Body):
    """A page of certificates, newest first: those of a run."""

    cursor: Cursor | None = None
    limit: Limit = 50
    run: Id | None = None


class _Answer(BaseModel):
    model_config = ConfigDict(extra="forbid")


class RunAnswer(_Answer):
    """A run as it stands: how far it has come, in sums by code. `code` says why it failed or was stopped."""

    id: UUID
    kind: Kind
    state: Literal["pending", "running", "done", "failed", "stopped"]
    step: str
    counts: dict[str, int]
    refused_by_hold: int
    started_at: datetime
    advanced_at: datetime
    finished_at: datetime | None
    code: str | None
    certificates: list[UUID]


class RunsPage(_Answer):
    """Runs, newest first."""

    results: list[RunAnswer]
    next: str | None
    previous: None


class CertificateListed(_Answer):
    """A certificate by what it is about. `follows` is the one to which it adds."""

    id: UUID
    kind: str
    run: UUID | None
    follows: UUID | None
    issued_at: datetime


class CertificatesPage(_Answer):
    """Certificates, newest first."""

    results: list[CertificateListed]
    next: str | None
    previous: None


class CertificateAnswer(_Answer):
    """A certificate as it was signed: kept as a file, `manage.py verify_certificate` checks it with the public key alone."""

    certificate: dict[str, Any]
    key: str
    signature: str


def add_components(result: dict[str, Any], **_kwargs: Any) -> dict[str, Any]:
    """Put these schemas into the description (a postprocessing hook of drf-spectacular)."""
    return add_schemas(
        result, schemas_of(bodies=[], answers=[RunAnswer, RunsPage, CertificatesPage, CertificateAnswer])
    )
