"""The rule language: a policy is a document of lifetimes and of rules that are read from top to bottom.

Pure: imports no Django and reads no clock. A refusal says where and why, never what was written there.
"""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

import isodate  # type: ignore[import-untyped]
from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainSerializer,
    PlainValidator,
    PrivateAttr,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)
from pydantic_core import PydanticCustomError

from policies.definitions import SensitivityWord
from policies.documents import NESTED, Document, DocumentRefused, read_document, read_json
from policies.vocabulary import Basis, Confirm, Kind, Occasion, Outcome, Sensitivity, SourceKind

STARTER = Path(__file__).with_name("starter.json")
"""The policy that a new tenant starts with."""

MAX_YEARS = 100


class PolicyRefused(DocumentRefused):
    """A policy that cannot be used."""


class Lifetime:
    """An ISO 8601 duration such as `P30D`, `P1Y6M` or `PT12H`: whole, positive, at most 100 years.

    Years and months are calendar ones: a month after 31 January is the last of February.
    """

    __slots__ = ("_duration", "text")

    def __init__(self, text: str) -> None:
        """Raises ValueError, without the text, for any other text."""
        duration: Any = None
        start = datetime(2000, 1, 1, tzinfo=UTC)
        try:
            duration = isodate.parse_duration(text)
            good = text[0] == "P" and start < start + duration <= start.replace(year=start.year + MAX_YEARS)
        except (isodate.ISO8601Error, ValueError, OverflowError, TypeError, ArithmeticError):
            good = False
        if not good:
            raise ValueError("not a duration")
        self._duration = duration
        self.text = text

    def after(self, instant: datetime) -> datetime:
        """Return the instant at which a life that began at `instant` is over. Raises OverflowError past year 9999."""
        try:
            over: datetime = instant + self._duration
        except ValueError:
            over = instant
        if over <= instant:
            raise OverflowError("past the last year")
        return over

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Lifetime) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"Lifetime({self.text!r})"


def _lifetime(text: Any) -> Lifetime:
    if isinstance(text, Lifetime):
        return text
    if isinstance(text, str) and len(text) <= 40:
        try:
            return Lifetime(text)
        except ValueError:
            pass
    raise PydanticCustomError("not_a_duration", "not a duration")


LifetimeText = Annotated[
    Lifetime,
    PlainValidator(_lifetime),
    PlainSerializer(lambda lifetime: lifetime.text, return_type=str),
]


def _listed(value: Any) -> Any:
    return tuple(value) if isinstance(value, (list, tuple)) else (value,)


def _word_of(words: type[StrEnum]) -> BeforeValidator:
    # What a validator has touched is no longer JSON to pydantic, so strict models want the member, not its word.
    def read(word: Any) -> Any:
        if not isinstance(word, str):
            raise PydanticCustomError("wrong_type", "not a word")
        try:
            return words(word)
        except ValueError:
            pass
        raise PydanticCustomError("not_in_enum", "not one of the words")

    return BeforeValidator(read)


def _unlisted(value: tuple[Any, ...] | None) -> Any:
    if value is None:
        return None
    words = [item.label if isinstance(item, Sensitivity) else item for item in value]
    return words[0] if len(words) == 1 else words


_Any = (BeforeValidator(_listed), Field(min_length=1, max_length=200), PlainSerializer(_unlisted))
_Fraction = Annotated[float, Field(ge=0, le=1)]
_Word = Annotated[str, Field(min_length=1, max_length=200)]


class When(Document):
    """A condition. Every field that is given must match; a list matches where any of its members does.

    `stated` is the class before detection (the higher of what was declared and the attribute's default), and
    `sensitivity` the class that counts. `purposes` matches where the agent has any of them,
    `loosened` where the writer stated a basis that frees the saying from the attribute's own, `quarantined` where what is
    said, or the episode that it is drawn from, speaks to the agent. A bound on confidence
    never matches where no confidence was given. Empty, it matches everything.
    """

    act: Annotated[tuple[Literal["fact", "episode", "end"], ...], *_Any] | None = None
    attribute: Annotated[tuple[_Word, ...], *_Any] | None = None
    kind: Annotated[tuple[Annotated[Kind, _word_of(Kind)], ...], *_Any] | None = None
    source: Annotated[tuple[Annotated[SourceKind, _word_of(SourceKind)], ...], *_Any] | None = None
    confirmed: bool | None = None
    inferred: bool | None = None
    declared: Annotated[tuple[SensitivityWord, ...], *_Any] | None = None
    default: Annotated[tuple[SensitivityWord, ...], *_Any] | None = None
    detected: Annotated[tuple[SensitivityWord, ...], *_Any] | None = None
    stated: Annotated[tuple[SensitivityWord, ...], *_Any] | None = None
    sensitivity: Annotated[tuple[SensitivityWord, ...], *_Any] | None = None
    clearance: Annotated[tuple[SensitivityWord, ...], *_Any] | None = None
    basis: Annotated[tuple[Annotated[Basis, _word_of(Basis)], ...], *_Any] | None = None
    confirm: Annotated[tuple[Annotated[Confirm, _word_of(Confirm)], ...], *_Any] | None = None
    recurrence: bool | None = None
    loosened: bool | None = None
    quarantined: bool | None = None
    purposes: Annotated[tuple[_Word, ...], *_Any] | None = None
    min_confidence: _Fraction | None = None
    max_confidence: _Fraction | None = None
    below_confidence: _Fraction | None = None
    min_trust: int | None = None
    max_trust: int | None = None
    below_trust: int | None = None

    _given: tuple[str, ...] = PrivateAttr(())

    def model_post_init(self, _: Any, /) -> None:
        self._given = tuple(name for name in type(self).model_fields if getattr(self, name) is not None)

    @property
    def given(self) -> tuple[str, ...]:
        """The names of the fields that the condition tests."""
        return self._given

    def document(self) -> dict[str, Any]:
        """Return what the condition says, and no more."""
        return self.model_dump(mode="json", exclude_none=True)


class Rule(Document):
    """One rule: where its condition holds, its outcome is the verdict."""

    id: str = Field(pattern=r"^[a-z][a-z0-9\-]{0,63}$")
    when: Annotated[When, PlainSerializer(lambda when: when.document())]
    then: Outcome
    reason: str = Field(pattern=r"^[a-z][a-z0-9_]{0,63}$")
    confirm_by: Literal["reviewer", "privacy_officer", "approver", "tenant_admin"] | None = None

    @model_serializer(mode="wrap")
    def _said(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in write(self).items() if value is not None}

    @model_validator(mode="after")
    def _somebody_is_asked(self) -> Rule:
        if self.confirm_by is not None and self.then is not Outcome.ASK:
            raise PydanticCustomError(NESTED, "nobody is asked", {"path": "confirm_by", "code": "only_with_ask"})
        return self


def _distinct(rules: tuple[Rule, ...]) -> tuple[Rule, ...]:
    if len({rule.id for rule in rules}) != len(rules):
        raise PydanticCustomError("duplicate_id", "two rules of one id")
    return rules


_ByClass = dict[SensitivityWord, LifetimeText]


class Lifetimes(Document):
    """How long what is kept on a basis may be kept, by class. A pair that is absent is refused."""

    session: _ByClass = Field(default_factory=dict)
    consent: _ByClass = Field(default_factory=dict)
    contract: _ByClass = Field(default_factory=dict)


class After(Document):
    """How long content stays at most once what it was kept for is over, by class. A class that is absent keeps its lifetime.

    The lifetime from the writing still bounds it: an occasion brings an end nearer and never puts one off.
    """

    session_closed: _ByClass = Field(default_factory=dict)
    contract_ended: _ByClass = Field(default_factory=dict)


_Tokens = Annotated[int, Field(ge=1, le=10**12)]


class ModelUse(Document):
    """What may be sent to a model that reads episodes, where the operator has set one up: content up to a class.

    The tokens of a day and of a month (of UTC) bound it further; the operator's own bounds hold besides.
    """

    up_to: SensitivityWord
    tokens_per_day: _Tokens | None = None
    tokens_per_month: _Tokens | None = None


class PolicyDocument(Document):
    """A tenant's policy. Everything in it is checked when it is built; `decide` only walks it."""

    name: str = Field(pattern=r"^[a-z][a-z0-9_\-]{0,63}$")
    #: What becomes of a saying about an attribute that nobody has defined: refused, or kept sealed until a person decides.
    unknown_attribute: Literal["refuse", "ask"] = "refuse"
    on_conflict: Literal["ask", "refuse"] = "ask"
    #: What becomes of content that speaks to the agent: marked only, a person looks first, or not kept.
    on_instruction: Literal["accept", "ask", "reject"] = "ask"
    lifetimes: Lifetimes
    #: A policy that says nothing of it lets no occasion shorten a life.
    after: After | None = None
    review_after: LifetimeText = Lifetime("P1Y")
    receipts: Literal["relaxed", "strict"] = "relaxed"
    #: A policy that says nothing of a model lets nothing be sent to one.
    model: ModelUse | None = None
    rules: Annotated[tuple[Rule, ...], Field(max_length=500), AfterValidator(_distinct)]

    _by_pair: dict[tuple[Basis, Sensitivity], Lifetime] = PrivateAttr(default_factory=dict)

    def model_post_init(self, _: Any, /) -> None:
        for basis, by_class in (
            (Basis.SESSION, self.lifetimes.session),
            (Basis.CONSENT, self.lifetimes.consent),
            (Basis.CONTRACT, self.lifetimes.contract),
        ):
            for sensitivity, lifetime in by_class.items():
                self._by_pair[basis, sensitivity] = lifetime

    @model_serializer(mode="wrap")
    def _said(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # What is not said leaves the digests of policies as they were.
        return {name: value for name, value in write(self).items() if name not in _OPTIONAL or value is not None}

    def lifetime(self, basis: Basis, sensitivity: Sensitivity) -> Lifetime | None:
        """Return how long this class may be kept on this basis, or None where the policy does not say."""
        return self._by_pair.get((basis, sensitivity))

    def life_after(self, occasion: Occasion, sensitivity: Sensitivity) -> Lifetime | None:
        """Return how long this class stays at most after the occasion, or None where the policy does not say."""
        return None if self.after is None else getattr(self.after, occasion.value).get(sensitivity)


_OPTIONAL = frozenset({"model", "after"})


def policy_document(data: Any) -> PolicyDocument:
    """Return JSON `data` as a policy. Raises PolicyRefused with every error, each path starting with `policy`."""
    errors: list[tuple[str, str]]
    try:
        return read_document(PolicyDocument, data, "policy")
    except DocumentRefused as refusal:
        errors = refusal.errors
    raise PolicyRefused(errors)


def load_policy(text: str) -> PolicyDocument:
    """Return the policy of a file. Raises PolicyRefused as `policy_document` does, and for what is not JSON."""
    errors: list[tuple[str, str]]
    try:
        return policy_document(read_json(text, "policy"))
    except DocumentRefused as refusal:
        errors = refusal.errors
    raise PolicyRefused(errors)
