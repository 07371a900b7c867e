from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from policies.definitions import AttributeDefinition, DefinitionRefused, changed_fields, definition, load_definitions
from policies.vocabulary import Basis, Cardinality, Confirm, Conflict, Kind, Sensitivity

SMALLEST: dict[str, Any] = {"name": "passport_deadline", "schema": {"type": "string", "format": "date"}}
FULLEST: dict[str, Any] = {
    "name": "Restaurants_2.number_of_seats",
    "description": "Seats to reserve",
    "cardinality": "multi",
    "kind": "episodic",
    "schema": {"type": "integer", "minimum": 1},
    "sensitivity": "restricted",
    "basis": "consent",
    "conflict": "latest",
    "confirm": "inferred",
    "cues": ["table for"],
    "aliases": ["seats"],
    "path": "$.booking.seats",
    "recurrence": {"count": 3, "days": 30},
    "not_detected": ["phone"],
}


def errors(data: Any) -> list[tuple[str, str]]:
    with pytest.raises(DefinitionRefused) as refusal:
        definition(data)
    return refusal.value.errors


def test_only_a_name_and_a_schema_are_required() -> None:
    read = definition(SMALLEST)
    assert (read.sensitivity, read.basis, read.cardinality) == (Sensitivity.PERSONAL, Basis.SESSION, Cardinality.SINGLE)
    assert (read.kind, read.conflict, read.confirm) == (Kind.SEMANTIC, Conflict.CONFIRMED_THEN_TRUST, Confirm.NEVER)
    assert (read.cues, read.aliases, read.path, read.recurrence, read.not_detected) == ((), (), None, None, ())
    assert errors({}) == [("attribute.name", "missing"), ("attribute.schema", "missing")]


def test_everything_that_is_written_is_read_and_written_again() -> None:
    assert definition(FULLEST).document() == FULLEST
    assert definition(definition(FULLEST).document()) == definition(FULLEST)


def test_a_definition_cannot_be_changed() -> None:
    with pytest.raises(ValidationError):
        definition(SMALLEST).name = "other"  # type: ignore[misc]


@pytest.mark.parametrize("name", ["a", "Restaurants_2.number_of_seats", "hotel.book-day", "crm/plan", "a" * 200])
def test_names_have_letters_digits_and_four_signs(name: str) -> None:
    assert definition({**SMALLEST, "name": name}).name == name


@pytest.mark.parametrize("name", ["", "1a", "_a", ".a", "a b", "a\n", "\u00e9t\u00e9", "a" * 201])
def test_any_other_name_is_refused(name: str) -> None:
    assert errors({**SMALLEST, "name": name}) == [("attribute.name", "bad_pattern")]


@pytest.mark.parametrize(
    ("field", "value", "error"),
    [
        ("sensitivty", "public", ("attribute.sensitivty", "unknown_field")),
        ("sensitivity", "secret", ("attribute.sensitivity", "not_in_enum")),
        ("sensitivity", 2, ("attribute.sensitivity", "wrong_type")),
        ("basis", "whim", ("attribute.basis", "not_in_enum")),
        ("cardinality", None, ("attribute.cardinality", "not_in_enum")),
        ("recurrence", {"count": 1, "days": 30}, ("attribute.recurrence.count", "too_small")),
        ("recurrence", {"count": 21, "days": 30}, ("attribute.recurrence.count", "too_big")),
        ("recurrence", {"count": 2, "days": 366}, ("attribute.recurrence.days", "too_big")),
        ("recurrence", {"count": 2.0, "days": 0}, ("attribute.recurrence.days", "too_small")),
        ("recurrence", {"count": 2}, ("attribute.recurrence.days", "missing")),
        ("cues", ["a", " a "], ("attribute.cues", "not_unique")),
        ("cues", ["  "], ("attribute.cues.0", "too_short")),
        ("cues", ["a\0"], ("attribute.cues.0", "nul")),
        ("cues", "a", ("attribute.cues", "wrong_type")),
        ("path", "json.path", ("attribute.path", "bad_pattern")),
        ("not_detected", ["a phone"], ("attribute.not_detected.0", "not_in_enum")),
        ("not_detected", ["identifier", "telephone"], ("attribute.not_detected.1", "not_in_enum")),
        ("schema", {"type": "strng"}, ("attribute.schema.type", "invalid_schema")),
        ("schema", {"$ref": "https://example.org/x"}, ("attribute.schema.$ref", "not_a_local_reference")),
        ("schema", True, ("attribute.schema", "wrong_type")),
    ],
)
def test_a_mistake_is_refused_with_its_place_and_code(field: str, value: Any, error: tuple[str, str]) -> None:
    assert error in errors({**SMALLEST, field: value})


def test_a_file_is_a_list_or_an_object_with_attributes() -> None:
    assert load_definitions(json.dumps([SMALLEST, FULLEST])) == load_definitions(
        json.dumps({"attributes": [SMALLEST, FULLEST]})
    )


def test_the_order_of_a_file_is_kept() -> None:
    names = [read.name for read in load_definitions(json.dumps([FULLEST, SMALLEST]))]
    assert names == [FULLEST["name"], SMALLEST["name"]]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("{", ("attributes", "not_json")),
        ("[" * 100_000, ("attributes", "not_json")),
        ("3", ("attributes", "not_a_list")),
        ("{}", ("attributes", "not_a_list")),
        ('{"attributes": [], "other": 1}', ("*", "unknown_field")),
        ("[NaN]", ("attributes", "not_finite")),
        ('[{"name": "a", "name": "b", "schema": {}}]', ("attributes", "duplicate_field")),
        ("[3]", ("attributes.0", "wrong_type")),
        (json.dumps([SMALLEST, FULLEST, SMALLEST]), ("attributes.2.name", "duplicate_name")),
    ],
)
def test_a_file_that_is_not_one_is_refused(text: str, error: tuple[str, str]) -> None:
    with pytest.raises(DefinitionRefused) as refusal:
        load_definitions(text)
    assert refusal.value.errors == [error]


def test_all_mistakes_of_a_file_are_reported_at_once() -> None:
    with pytest.raises(DefinitionRefused) as refusal:
        load_definitions(json.dumps([{"name": "a"}, SMALLEST, {**SMALLEST, "basis": "whim"}]))
    assert refusal.value.errors == [("attributes.0.schema", "missing"), ("attributes.2.basis", "not_in_enum")]


def test_the_digest_depends_on_what_is_said_and_not_on_how_it_is_spelled() -> None:
    spelled_out = {**SMALLEST, "sensitivity": "personal", "cues": []}
    assert definition(SMALLEST).digest() == definition(dict(reversed(spelled_out.items()))).digest()
    assert definition(SMALLEST).digest() != definition({**SMALLEST, "basis": "contract"}).digest()
    assert len(definition(SMALLEST).digest()) == 64


def test_what_changed_is_named() -> None:
    old = definition(SMALLEST)
    assert changed_fields(old, old) == ()
    changed = definition({**SMALLEST, "basis": "contract", "schema": {"type": "string"}})
    assert changed_fields(old, changed) == ("basis", "schema")


def test_one_and_true_are_not_the_same_choice() -> None:
    old, new = (definition({"name": "a", "schema": {"enum": [choice]}}) for choice in (1, True))
    assert changed_fields(old, new) == ("schema",)
    assert old.digest() != new.digest()


MARK = "Qx7z Canary!"


@given(
    st.dictionaries(
        st.sampled_from([*FULLEST, MARK]),
        st.just(MARK)
        | st.none()
        | st.integers()
        | st.lists(st.just(MARK))
        | st.dictionaries(st.just(MARK), st.just(MARK)),
    )
)
def test_a_refusal_never_repeats_what_was_written(data: dict[str, Any]) -> None:
    text = json.dumps([{**SMALLEST, **data}])
    try:
        load_definitions(text)
    except DefinitionRefused as refusal:
        said = str(refusal) + repr(refusal.errors)
        assert MARK not in said


def test_a_definition_may_be_built_in_code() -> None:
    built = AttributeDefinition(name="a", schema={}, sensitivity=Sensitivity.PUBLIC)
    assert built == definition({"name": "a", "schema": {}, "sensitivity": "public"})
