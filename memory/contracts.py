"""The boundary: what a request may look like, checked before anything is looked up, stored or logged.

Strict pydantic models without Django. A refusal is a list of (path, code); the value that was sent is in none of them.
"""

import re
import unicodedata
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, TypeVar
from uuid import UUID

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import PydanticCustomError

from policies.detection import Group, detect
from policies.identifiers import looks_like_identifier
from policies.values import ValueRefused, canonical_text, clean_text
from policies.vocabulary import Basis, Kind, Sensitivity, SourceKind
from tenants.errors import FieldError, Malformed, Missing

MAX_SUBJECT = 200
MAX_ID = 200
MAX_QUOTE = 8_000
MAX_EPISODE = 1_048_576
MAX_BATCH = 1_000
MAX_PROCEDURE = 65_536
MAX_QUESTION = 20_000
LEAST_BUDGET, MOST_BUDGET = 50, 32_000

#: Marks a field that was not sent, where null would mean something.
UNSET: Any = object()


def _refuse(code: str, field: str = "") -> PydanticCustomError:
    # Code and field must be literals of ours: a template would let a value in.
    return PydanticCustomError("muniment", "{code}", {"code": code, "field": field})


def instant(value: Any) -> datetime:
    """Read an instant with an offset (RFC 3339) and return it in UTC. Naive, out-of-range and other forms are refused."""
    if isinstance(value, datetime):
        moment = value
    elif isinstance(value, str) and 10 < len(value) <= 40:
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            raise _refuse("not_an_instant") from None
    else:
        raise _refuse("not_an_instant")
    if moment.tzinfo is None:
        raise _refuse("offset_missing")
    try:
        return moment.astimezone(UTC)
    except (OverflowError, ValueError):
        raise _refuse("out_of_range") from None


def _uuid(value: Any) -> UUID:
    if isinstance(value, UUID):
        return value
    if isinstance(value, str) and len(value) in (32, 36):
        try:
            return UUID(value)
        except ValueError:
            pass
    raise _refuse("not_an_id")


def _text(limit: int, *, empty: bool = False) -> Callable[[Any], str]:
    def check(value: Any) -> str:
        if not isinstance(value, str):
            raise _refuse("not_text")
        if len(value) > limit:
            raise _refuse("too_long")
        try:
            cleaned = clean_text(value)
        except ValueRefused as refused:
            raise _refuse(refused.code) from None
        if not cleaned.strip() and not empty:
            raise _refuse("empty")
        return cleaned

    return check


def subject_text(value: Any) -> str:
    """Return a subject's key or alias in NFC, to the letter: 1 to 200 characters without controls or line breaks."""
    text = _text(MAX_SUBJECT)(value)
    if any(unicodedata.category(character) in ("Cc", "Zl", "Zp") for character in text):
        raise _refuse("control_character")
    return text


def chosen_id(value: Any) -> str:
    """Return an id that a writer or an organisation chose, as it is kept: not somebody's address, number, card or key."""
    text = _text(MAX_ID)(value)
    if text != text.strip() or any(
        unicodedata.category(character)[0] in "CZ" and character != " " for character in text
    ):
        raise _refuse("not_an_id")
    # Ids that agents choose stand in metadata, so they may not be somebody's address, number or card.
    if looks_like_identifier(text) is not None:
        raise _refuse("personal_identifier")
    if detect(text, omit=_NO_KEY):
        raise _refuse("credential")
    return text


#: Of an id only the keys and tokens that their issuers' shapes tell are refused: `pin1234` is an ordinary id.
_NO_KEY = frozenset(
    {*(group for group in Group if group is not Group.CREDENTIAL), "password", "secret", "pin", "authorization"}
)


def reference(text: str) -> str:
    """Return the reference of a consent or a contract, or a session's id, from a path; `Missing` for what can be none."""
    try:
        return chosen_id(text)
    except PydanticCustomError:
        raise Missing from None


def _content(value: Any) -> Any:
    """Return an episode's content: text in NFC, or a JSON object or list whose texts are; at most `MAX_EPISODE` long."""
    if isinstance(value, str):
        return _text(MAX_EPISODE)(value)
    if not isinstance(value, dict | list):
        raise _refuse("not_text_or_json")
    try:
        cleaned = _cleaned(value)
        length = len(canonical_text(cleaned))
    except ValueRefused as refused:
        raise _refuse(refused.code) from None
    except RecursionError:
        raise _refuse("too_deep") from None
    if length > MAX_EPISODE:
        raise _refuse("too_long")
    return cleaned


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, list):
        return [_cleaned(each) for each in value]
    if isinstance(value, dict):
        cleaned = {_cleaned(name): _cleaned(each) for name, each in value.items()}
        if len(cleaned) != len(value):
            raise _refuse("duplicate_field")
        return cleaned
    return value


def _label(value: Any) -> Sensitivity:
    if isinstance(value, Sensitivity):
        return value
    if isinstance(value, str):
        try:
            return Sensitivity.of(value)
        except (KeyError, ValueError):
            pass
    raise _refuse("not_a_class")


def _word(kind: type) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        try:
            return kind(value) if isinstance(value, str) else _never()
        except ValueError:
            raise _refuse("not_a_choice") from None

    return check


def _never() -> Any:
    raise _refuse("not_text")


Instant = Annotated[datetime, BeforeValidator(instant)]
Id = Annotated[UUID, BeforeValidator(_uuid)]
SubjectText = Annotated[
    str,
    BeforeValidator(subject_text),
    WithJsonSchema(
        {
            "type": "string",
            "minLength": 1,
            "maxLength": MAX_SUBJECT,
            "pattern": r"^[^\u0000-\u001f\u007f-\u009f\u2028\u2029]*$",
            "description": "The subject's key or an alias, in NFC; spaces count.",
        }
    ),
]
ChosenId = Annotated[
    str,
    BeforeValidator(chosen_id),
    WithJsonSchema(
        {
            "type": "string",
            "minLength": 1,
            "maxLength": MAX_ID,
            "pattern": r"^[^\s\u0000-\u001f\u007f-\u00a0]([^\u0000-\u001f\u007f-\u00a0]*[^\s\u0000-\u001f\u007f-\u00a0])?$",
            "description": "An id of the writer's own. Not somebody's e-mail, phone or card number.",
        }
    ),
]
ClassLabel = Annotated[
    Sensitivity,
    BeforeValidator(_label),
    WithJsonSchema({"type": "string", "enum": [each.label for each in Sensitivity]}),
]
Quote = Annotated[
    str,
    BeforeValidator(_text(MAX_QUOTE)),
    WithJsonSchema({"type": "string", "minLength": 1, "maxLength": MAX_QUOTE}),
]
Content = Annotated[
    Any,
    BeforeValidator(_content),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "minLength": 1, "maxLength": MAX_EPISODE},
                {"type": "object"},
                {"type": "array"},
            ],
            "description": "Text, or JSON, which is kept as its canonical text.",
        }
    ),
]
AttributeName = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[A-Za-z][A-Za-z0-9_./-]*$")]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


class Body(BaseModel):
    """A request body: unknown fields refused, types strict, and no value in its errors."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, hide_input_in_errors=True)


class Retention(Body):
    """Why the saying may be kept, and optionally an earlier end than the policy's."""

    basis: Annotated[Basis, BeforeValidator(_word(Basis))]
    expires_at: Instant | None = None


class Provenance(Body):
    """Where a saying comes from. `turn_id` always; the rest as the class and the basis require."""

    turn_id: ChosenId
    tool_call_id: ChosenId | None = None
    consent_ref: ChosenId | None = None
    contract_ref: ChosenId | None = None
    session_id: ChosenId | None = None
    source_episode: Id | None = None
    quote: Quote | None = None
    source: Annotated[SourceKind, BeforeValidator(_word(SourceKind))] | None = None

    @model_validator(mode="after")
    def _complete(self) -> "Provenance":
        if self.quote is not None and self.source_episode is None:
            raise _refuse("quote_needs_source_episode", "source_episode")
        if self.source is SourceKind.TOOL_RESULT and self.tool_call_id is None:
            raise _refuse("tool_result_needs_tool_call_id", "tool_call_id")
        if self.source is SourceKind.QUOTE and self.quote is None:
            raise _refuse("quote_missing", "quote")
        return self

    @property
    def kind(self) -> SourceKind:
        """The stated source, else what the given parts make it."""
        if self.source is not None:
            return self.source
        if self.tool_call_id is not None:
            return SourceKind.TOOL_RESULT
        return SourceKind.QUOTE if self.quote is not None else SourceKind.STATEMENT


class FactBody(Body):
    """One saying about one fact key: a value, an end, or both."""

    subject: SubjectText
    attribute: AttributeName
    value: Any = UNSET
    ended: bool = False
    valid_from: Instant | None = None
    valid_to: Instant | None = None
    corrects: Id | None = None
    confidence: Share | None = None
    provenance: Provenance
    sensitivity: ClassLabel | None = None
    retention: Retention | None = None
    recorded_at: Instant | None = None

    @property
    def has_value(self) -> bool:
        """Whether the saying names a value. JSON null is no value."""
        return self.value is not UNSET and self.value is not None

    @model_validator(mode="after")
    def _coherent(self) -> "FactBody":
        if not self.has_value and not self.ended:
            raise _refuse("value_or_ended_needed", "value")
        if self.valid_from is not None and self.valid_to is not None and self.valid_to <= self.valid_from:
            raise _refuse("valid_to_not_after_valid_from", "valid_to")
        return self


class DrawnBody(FactBody):
    """A saying that an extractor drew from an episode. Never parsed from a request: nobody may claim an extractor."""

    extractor: str


class BatchBody(Body):
    """Up to 1,000 sayings, each checked and answered on its own; the list itself is all that is checked here."""

    items: Annotated[list[Any], Field(min_length=1, max_length=MAX_BATCH)]


class EpisodeBody(Body):
    """Raw input as received."""

    kind: Literal["message", "tool_result", "event"]
    role: Literal["user", "assistant", "system", "tool"] | None = None
    content: Content
    session_id: ChosenId
    turn_id: ChosenId
    tool_call_id: ChosenId | None = None
    subject: SubjectText | None = None
    occurred_at: Instant
    consent_ref: ChosenId | None = None
    contract_ref: ChosenId | None = None
    sensitivity: ClassLabel | None = None
    retention: Retention | None = None
    extract: Literal["now", "later", "no"] = "later"

    @model_validator(mode="after")
    def _coherent(self) -> "EpisodeBody":
        if self.kind == "tool_result" and self.tool_call_id is None:
            raise _refuse("tool_result_needs_tool_call_id", "tool_call_id")
        return self


class RetractBody(Body):
    """Why a saying is taken back."""

    reason: Literal["recorded_wrongly", "duplicate", "source_withdrawn", "other"]
    recorded_at: Instant | None = None


class SubjectBody(Body):
    """A subject named before its first fact, or its further names."""

    key: SubjectText
    kind: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,39}$")] | None = None
    aliases: Annotated[list[SubjectText], Field(max_length=50)] = []


class ConsentBody(Body):
    """A consent that the organisation holds, by its reference."""

    subject: SubjectText
    ref: ChosenId
    purposes: Annotated[list[Annotated[str, Field(pattern=r"^[a-z][a-z0-9_.-]{0,59}$")]], Field(max_length=50)] = []
    granted_at: Instant | None = None


class WithdrawBody(Body):
    """A withdrawal; from when on is the database's clock."""


class CloseBody(Body):
    """That a session is over, as this agent wrote in it: of one subject, or of all. Since when is the database's clock."""

    subject: SubjectText | None = None


class EndBody(Body):
    """That a contract has ended; since when is the database's clock."""


class ExplainBody(Body):
    """Which verdict would this write get? Nothing is stored."""

    fact: FactBody


class RecallBody(Body):
    """A question, or what to recall about. Any text is a question."""

    question: (
        Annotated[
            str,
            BeforeValidator(_text(MAX_QUESTION, empty=True)),
            WithJsonSchema({"type": "string", "maxLength": MAX_QUESTION}),
        ]
        | None
    ) = None
    subject: SubjectText | None = None
    attributes: Annotated[list[AttributeName], Field(min_length=1, max_length=50)] | None = None
    kinds: Annotated[list[Annotated[Kind, BeforeValidator(_word(Kind))]], Field(min_length=1, max_length=4)] | None = (
        None
    )
    valid_at: Instant | None = None
    known_at: Instant | None = None
    purpose: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_.-]{0,59}$")]
    budget_tokens: Annotated[int, Field(ge=LEAST_BUDGET, le=MOST_BUDGET)]

    @model_validator(mode="after")
    def _about_something(self) -> "RecallBody":
        if self.question is None and self.subject is None and self.attributes is None:
            raise _refuse("question_or_subject_needed", "question")
        return self


_SCOPE = re.compile(r"tenant|purpose:[a-z][a-z0-9_.-]{0,59}|agent:.{1,100}")


def procedure_scope(value: Any) -> str:
    """Return for whom a version of a procedure is: `tenant`, `purpose:…` or `agent:…`, by its name to the letter."""
    text = _text(110)(value)
    if _SCOPE.fullmatch(text) is None:
        raise _refuse("not_a_scope")
    return text


ProcedureScope = Annotated[
    str,
    BeforeValidator(procedure_scope),
    WithJsonSchema(
        {
            "type": "string",
            "pattern": r"^(tenant|purpose:[a-z][a-z0-9_.-]{0,59}|agent:[^\u0000-\u001f]{1,100})$",
            "maxLength": 110,
            "description": "For whom: everybody in the tenant, whoever acts for a purpose, or one agent.",
        }
    ),
]


class ProcedureTest(Body):
    """By what a version was tried, where that can be looked up, and what came of it."""

    kind: Literal["test", "evaluation"] = "test"
    reference: ChosenId
    result: Literal["passed", "failed"]
    cases: Annotated[int, Field(ge=0, le=1_000_000)] | None = None
    passed: Annotated[int, Field(ge=0, le=1_000_000)] | None = None

    @model_validator(mode="after")
    def _counted(self) -> "ProcedureTest":
        if (self.cases is None) != (self.passed is None) or (self.passed or 0) > (self.cases or 0):
            raise _refuse("out_of_range", "passed")
        return self


class ProcedureEvidenceBody(Body):
    """What was seen that speaks for a version."""

    episodes: Annotated[list[Id], Field(max_length=50)] = []
    facts: Annotated[list[Id], Field(max_length=50)] = []


class ProcedureVersionBody(Body):
    """A version of a procedure that is proposed. Nobody acts by it before a person approved it.

    `base`: the version that the proposal was made against, null for none; where it is not sent, what is active now.
    """

    body: Annotated[
        str,
        BeforeValidator(_text(MAX_PROCEDURE)),
        WithJsonSchema({"type": "string", "minLength": 1, "maxLength": MAX_PROCEDURE}),
    ]
    scope: ProcedureScope = "tenant"
    base: Annotated[Id | None, WithJsonSchema({"type": ["string", "null"], "format": "uuid"})] = UNSET
    test: ProcedureTest
    rollback: Id | None = None
    evidence: ProcedureEvidenceBody = ProcedureEvidenceBody()
    sensitivity: ClassLabel | None = None


_PROCEDURE_NAME = re.compile(r"[a-z][a-z0-9_-]{0,79}")


def procedure_name(text: str) -> str:
    """Return the name of a procedure from a path. One that no procedure can have raises `Missing`."""
    if _PROCEDURE_NAME.fullmatch(text) is None:
        raise Missing
    return text


M = TypeVar("M", bound=BaseModel)

_CODES = {
    "missing": "required",
    "extra_forbidden": "unknown_field",
    "string_too_long": "too_long",
    "string_too_short": "empty",
    "string_pattern_mismatch": "bad_shape",
    "too_long": "too_many",
    "too_short": "empty",
    "literal_error": "not_a_choice",
    "string_type": "not_text",
    "bool_type": "not_a_boolean",
    "float_type": "not_a_number",
    "int_type": "not_a_number",
    "int_from_float": "not_a_number",
    "list_type": "not_a_list",
    "model_type": "not_an_object",
    "dict_type": "not_an_object",
    "greater_than_equal": "out_of_range",
    "less_than_equal": "out_of_range",
    "finite_number": "out_of_range",
}


def parse(model: type[M], data: Any, *, prefix: str = "") -> M:
    """Return `data` as `model`. Raises `Malformed` with every field that is wrong, by path and stable code.

    A field that the model does not know is named by its place only, since its name may itself be content.
    """
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise Malformed(errors=[_field_error(each, prefix) for each in error.errors(**_WITHOUT_INPUT)]) from None


_WITHOUT_INPUT: dict[str, Any] = {"include_input": False, "include_url": False, "include_context": True}


def _field_error(each: Any, prefix: str) -> FieldError:
    kind = each["type"]
    code = each["ctx"]["code"] if kind == "muniment" else _CODES.get(kind, "malformed")
    place = each["loc"][:-1] if kind == "extra_forbidden" else each["loc"]
    if kind == "muniment" and each["ctx"].get("field"):
        # What two fields say of each other is told at the one that is to be changed.
        place = (*place, each["ctx"]["field"])
    path = ""
    for part in place:
        path += f"[{part}]" if isinstance(part, int) else (f".{part}" if path else str(part))
    return FieldError(prefix + ("." if prefix and path else "") + path, code)
