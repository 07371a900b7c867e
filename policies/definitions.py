"""Attributes as people write them in a file: what may be stored under a name, and by which rules.

Pure: imports no Django and reads no clock. A refusal says where and why, never what was written there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer
from pydantic_core import PydanticCustomError

from policies.detection import DETECTORS, Group
from policies.documents import NESTED, Document, DocumentRefused, changed_fields, read_document, read_json
from policies.values import SchemaRefused, ValueRefused, check_schema, clean_text
from policies.vocabulary import Basis, Cardinality, Confirm, Conflict, Kind, Sensitivity

__all__ = [
    "AttributeDefinition",
    "DefinitionRefused",
    "Recurrence",
    "changed_fields",
    "definition",
    "load_definitions",
    "starters",
]

#: Sets of attributes to begin with, one a file.
STARTERS = Path(__file__).parent / "starters"
NAME_PATTERN = r"^[A-Za-z][A-Za-z0-9_.\-/]{0,199}$"
MAX_DEFINITIONS = 10_000


class DefinitionRefused(DocumentRefused):
    """A file of attributes, or one attribute, that cannot be used."""


def _sensitivity(word: Any) -> Sensitivity:
    if isinstance(word, Sensitivity):
        return word
    if not isinstance(word, str):
        raise PydanticCustomError("wrong_type", "not a word")
    try:
        return Sensitivity.of(word)
    except KeyError:
        pass
    raise PydanticCustomError("not_in_enum", "not a class")


SensitivityWord = Annotated[
    Sensitivity,
    BeforeValidator(_sensitivity),
    PlainSerializer(lambda member: member.label, return_type=str),
]


def _clean(text: str) -> str:
    try:
        return clean_text(text).strip()
    except ValueRefused as refusal:
        code = refusal.code
    raise PydanticCustomError(NESTED, "{code}", {"code": code})


def _filled(text: str) -> str:
    if not text:
        raise PydanticCustomError("too_short", "empty")
    return text


def _distinct(items: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(items)) != len(items):
        raise PydanticCustomError("not_unique", "an item is there twice")
    return items


def _schema(schema: dict[str, Any]) -> dict[str, Any]:
    try:
        check_schema(schema)
    except SchemaRefused as refusal:
        path, code = refusal.path.removeprefix("schema").removeprefix("."), refusal.code
    else:
        return schema
    raise PydanticCustomError(NESTED, "{code}", {"path": path, "code": code})


_Phrase = Annotated[str, Field(max_length=200), AfterValidator(_clean), AfterValidator(_filled)]
_Phrases = Annotated[tuple[_Phrase, ...], Field(max_length=100), AfterValidator(_distinct)]


def _detector(name: str) -> str:
    # A name that nothing has would silence nothing, and nobody would notice.
    if name not in DETECTORS and name not in _GROUPS:
        raise PydanticCustomError("not_in_enum", "no such detector")
    return name


_GROUPS = frozenset(Group)
_Detector = Annotated[str, Field(max_length=64), AfterValidator(_detector)]


class Recurrence(Document):
    """A weak signal is believed once it came from `count` distinct episodes within `days`."""

    count: int = Field(ge=2, le=20)
    days: int = Field(ge=1, le=365)


class AttributeDefinition(Document):
    """One attribute. Only its name and its value's schema must be said."""

    name: str = Field(pattern=NAME_PATTERN)
    description: Annotated[str, Field(max_length=2000), AfterValidator(_clean)] = ""
    cardinality: Cardinality = Cardinality.SINGLE
    kind: Kind = Kind.SEMANTIC
    value_schema: Annotated[dict[str, Any], AfterValidator(_schema)] = Field(alias="schema")
    sensitivity: SensitivityWord = Sensitivity.PERSONAL
    basis: Basis = Basis.SESSION
    conflict: Conflict = Conflict.CONFIRMED_THEN_TRUST
    confirm: Confirm = Confirm.NEVER
    cues: _Phrases = ()
    aliases: _Phrases = ()
    path: Annotated[str, Field(max_length=500, pattern=r"^\$"), AfterValidator(_clean)] | None = None
    recurrence: Recurrence | None = None
    not_detected: Annotated[tuple[_Detector, ...], Field(max_length=100), AfterValidator(_distinct)] = ()


def definition(data: Any, *, name: str = "attribute") -> AttributeDefinition:
    """Return JSON `data` as a definition. Raises DefinitionRefused, each path starting with `name`."""
    errors: list[tuple[str, str]]
    try:
        return read_document(AttributeDefinition, data, name)
    except DocumentRefused as refusal:
        errors = refusal.errors
    raise DefinitionRefused(errors)


def starters() -> dict[str, Path]:
    """Return the sets of attributes to begin with, by name."""
    return {path.stem: path for path in sorted(STARTERS.glob("*.json"))}


def load_definitions(text: str) -> list[AttributeDefinition]:
    """Return the definitions of a file: a JSON list of them, or `{"attributes": [...]}`, in the file's order.

    Raises DefinitionRefused with the errors of all of them (path such as `attributes.2.schema.type`), and
    `duplicate_name` where a name was there before.
    """
    errors: list[tuple[str, str]] = []
    try:
        data = read_json(text, "attributes")
    except DocumentRefused as refusal:
        errors = refusal.errors
    if errors:
        raise DefinitionRefused(errors)
    if isinstance(data, dict):
        if data.keys() - {"attributes"}:
            raise DefinitionRefused([("*", "unknown_field")])
        data = data.get("attributes")
    if not isinstance(data, list):
        raise DefinitionRefused([("attributes", "not_a_list")])
    if len(data) > MAX_DEFINITIONS:
        raise DefinitionRefused([("attributes", "too_many_items")])
    found: dict[str, AttributeDefinition] = {}
    for position, item in enumerate(data):
        try:
            read = definition(item, name=f"attributes.{position}")
        except DefinitionRefused as refusal:
            errors += refusal.errors
            continue
        if read.name in found:
            errors.append((f"attributes.{position}.name", "duplicate_name"))
        found[read.name] = read
    if errors:
        raise DefinitionRefused(errors)
    return list(found.values())
