"""What a read may ask in its query: parsed as strictly as bodies are, refused by the parameter's name."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from memory.contracts import AttributeName, Body, Instant, ProcedureScope, SubjectText
from memory.recall import MAX_PAGE
from policies.vocabulary import Kind


def _number(value: Any) -> Any:
    # Digits only: what else `int` takes ("1_0", " 5", other scripts' digits) has one meaning too many.
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10:
        return int(value)
    raise PydanticCustomError("muniment", "{code}", {"code": "not_a_number"})


def _kind(value: Any) -> Kind:
    try:
        return Kind(value)
    except ValueError:
        raise PydanticCustomError("muniment", "{code}", {"code": "not_a_choice"}) from None


Limit = Annotated[int, Field(ge=1, le=MAX_PAGE), BeforeValidator(_number)]
Cursor = Annotated[str, Field(min_length=1, max_length=200)]


class Paged(Body):
    """A page of an answer: `cursor` is the former page's `next`."""

    cursor: Cursor | None = None
    limit: Limit = 50


class FactsQuery(Paged):
    """What holds at `valid_at`, as believed at `known_at`; each is now unless given."""

    subject: SubjectText | None = None
    attribute: AttributeName | None = None
    kind: Annotated[Kind, BeforeValidator(_kind)] | None = None
    valid_at: Instant | None = None
    known_at: Instant | None = None


class ProfileQuery(Paged):
    """Everything that holds about one subject."""

    subject: SubjectText
    valid_at: Instant | None = None
    known_at: Instant | None = None
    limit: Limit = MAX_PAGE


class ProfileTextQuery(Body):
    """Everything that holds about one subject now, as text."""

    subject: SubjectText


class HistoryQuery(Paged):
    """All evidence and stretches of a fact's key, as far as known at `known_at`."""

    known_at: Instant | None = None


class CandidatesQuery(Paged):
    """What was asked or buffered, of one state or all."""

    state: Literal["asked", "buffered", "accepted", "promoted", "rejected", "expired"] | None = None


class ActiveProcedureQuery(Body):
    """Which version an agent acts by: of the scopes that apply to it, the most specific up to `scope`."""

    scope: ProcedureScope | None = None
