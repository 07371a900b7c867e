from __future__ import annotations

import json
import math
import string
import unicodedata
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from policies import values
from policies.values import (
    SchemaRefused,
    ValueRefused,
    canonical,
    canonical_text,
    check_schema,
    clean_text,
    compiled,
)

TEXT: dict[str, Any] = {"type": "string"}
NUMBER: dict[str, Any] = {"type": "number"}
INSTANT: dict[str, Any] = {"type": "string", "format": "date-time"}
ANYTHING: dict[str, Any] = {}


def refused(schema: dict[str, Any], value: Any) -> tuple[str, str]:
    with pytest.raises(ValueRefused) as refusal:
        canonical(schema, value)
    return refusal.value.path, refusal.value.code


# --- round trips ---


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (TEXT, "1900 jfk boulevard"),
        (NUMBER, 12.5),
        ({"type": "integer"}, 3),
        ({"type": "boolean"}, False),
        ({"type": "string", "format": "date"}, "2026-07-15"),
        (INSTANT, "2026-06-01T09:00:00Z"),
        ({"type": "string", "enum": ["cheap", "moderate", "expensive"]}, "cheap"),
        ({"type": "array", "items": TEXT}, ["b", "a"]),
        (
            {
                "type": "object",
                "properties": {"street": TEXT, "no": {"type": "integer"}},
                "required": ["street"],
            },
            {"no": 5, "street": "High St"},
        ),
        ({"anyOf": [{"type": "string", "format": "date"}, {"type": "boolean"}]}, True),
        ({"type": ["string", "null"]}, None),
    ],
)
def test_every_declared_type_round_trips(schema: dict[str, Any], value: Any) -> None:
    kept = canonical(schema, value)
    assert kept == value
    assert json.loads(canonical_text(kept)) == value


# --- text ---


def test_text_is_trimmed_and_composed() -> None:
    assert canonical(TEXT, "  Zoe\u0308 \n") == "Zo\u00eb"


def test_line_ends_are_one_newline_whatever_was_sent() -> None:
    assert canonical(TEXT, "a\r\nb\rc") == "a\nb\nc"


@pytest.mark.parametrize(
    ("text", "code"),
    [("a\0b", "nul"), ("a\ud800", "surrogate"), ("\x1b[31m", "control"), ("a\x85", "control")],
)
def test_controls_nul_and_lone_surrogates_are_refused(text: str, code: str) -> None:
    assert refused(TEXT, text) == ("value", code)


def test_newline_and_tab_are_text() -> None:
    assert clean_text("a\n\tb") == "a\n\tb"


def test_clean_text_does_not_trim() -> None:
    assert clean_text(" a ") == " a "


def test_a_length_is_measured_after_trimming() -> None:
    assert canonical({"type": "string", "maxLength": 3}, "  abc  ") == "abc"
    assert refused({"type": "string", "minLength": 1}, "   ") == ("value", "too_short")


def test_a_choice_is_matched_exactly_and_never_by_case() -> None:
    assert refused({"type": "string", "enum": ["cheap"]}, "Cheap") == ("value", "not_in_enum")


# --- numbers ---


@pytest.mark.parametrize("spelling", [1, 1.0, Decimal("1.00"), Decimal("1E0")])
def test_one_whole_number_has_one_form(spelling: Any) -> None:
    kept = canonical(NUMBER, spelling)
    assert kept == 1
    assert type(kept) is int


def test_zero_has_no_sign() -> None:
    assert canonical_text(canonical(NUMBER, -0.0)) == "0"


def test_a_decimal_that_a_float_says_exactly_is_that_float() -> None:
    assert canonical_text(canonical(NUMBER, Decimal("19.990"))) == "19.99"


@pytest.mark.parametrize("number", [Decimal("0.10000000000000000001"), Decimal("1E-4000"), 2**70, 10**400])
def test_a_number_that_would_be_rounded_is_refused(number: Any) -> None:
    assert refused(NUMBER, number) == ("value", "not_exact")


@pytest.mark.parametrize(
    "number", [math.nan, math.inf, -math.inf, Decimal("NaN"), Decimal("sNaN"), Decimal("-Infinity")]
)
def test_what_is_not_a_finite_number_is_refused(number: Any) -> None:
    assert refused(ANYTHING, number) == ("value", "not_finite")


def test_a_big_number_is_the_decimal_that_was_written() -> None:
    assert canonical_text(canonical(NUMBER, 1234567890123456700.0)) == "1234567890123456800"
    assert canonical_text(canonical(NUMBER, 10**22)) == canonical_text(canonical(NUMBER, 1e22)) == "1e+22"
    assert canonical(NUMBER, -(2.0**63)) == canonical(NUMBER, Decimal("-9223372036854776000"))


def test_true_is_not_one() -> None:
    assert refused(NUMBER, True) == ("value", "wrong_type")
    assert canonical_text(canonical(ANYTHING, True)) != canonical_text(canonical(ANYTHING, 1))


def test_a_price_is_a_multiple_of_a_cent() -> None:
    cents = {"type": "number", "multipleOf": 0.01}
    assert canonical(cents, 19.99) == 19.99
    assert refused(cents, 19.995) == ("value", "not_a_multiple")


# --- formats ---


@pytest.mark.parametrize(
    ("spelling", "instant"),
    [
        ("2026-06-01T11:00:00+02:00", "2026-06-01T09:00:00Z"),
        ("2026-06-01t09:00:00z", "2026-06-01T09:00:00Z"),
        ("2026-06-01T09:00:00.500000Z", "2026-06-01T09:00:00.5Z"),
        ("2026-06-01T09:00:00.000-00:00", "2026-06-01T09:00:00Z"),
        ("2025-12-31T23:30:00-01:00", "2026-01-01T00:30:00Z"),
        ("0999-06-01T09:00:00Z", "0999-06-01T09:00:00Z"),
    ],
)
def test_an_instant_is_kept_in_utc(spelling: str, instant: str) -> None:
    assert canonical(INSTANT, spelling) == instant


@pytest.mark.parametrize(
    "text",
    [
        "2026-06-01T09:00:00",
        "2026-06-01",
        "2026-02-30T09:00:00Z",
        "2026-06-01T25:00:00Z",
        "2026-12-31T23:59:60Z",
        "9999-12-31T23:59:59-01:00",
        "2026-06-01T09:00:00+02:99",
        "\u0662026-06-01T09:00:00Z",
    ],
)
def test_what_is_not_an_instant_with_an_offset_is_refused(text: str) -> None:
    assert refused(INSTANT, text) == ("value", "bad_format")


@pytest.mark.parametrize("text", ["15.07.2026", "2026-7-15", "2026-02-30", "20260715", "2026-W29-3"])
def test_a_date_is_an_iso_calendar_date(text: str) -> None:
    assert refused({"type": "string", "format": "date"}, text) == ("value", "bad_format")


def test_a_time_keeps_its_offset() -> None:
    time = {"type": "string", "format": "time"}
    assert canonical(time, "23:30:00.50-05:00") == "23:30:00.5-05:00"
    assert canonical(time, "09:00:00+00:00") == "09:00:00Z"
    assert refused(time, "23:30") == ("value", "bad_format")


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("email", "mira@example.org", "mira at example.org"),
        ("uri", "https://example.org/a?b=c#d", "no scheme/here"),
        ("uuid", "0190a8a4-7c4b-7000-8000-000000000000", "0190a8a4"),
        ("ipv4", "192.0.2.1", "192.0.2.256"),
        ("ipv6", "2001:db8::1", "2001:db8::1%eth0"),
        ("duration", "P1Y2M3DT4H", "P"),
    ],
)
def test_formats_are_checked(name: str, good: str, bad: str) -> None:
    schema = {"type": "string", "format": name}
    assert canonical(schema, good) == good
    assert refused(schema, bad) == ("value", "bad_format")


def test_an_unknown_format_is_an_annotation() -> None:
    assert canonical({"type": "string", "format": "city"}, "Oslo") == "Oslo"


@given(st.text(alphabet="0123456789-", max_size=12) | st.dates().map(str))
def test_dates_are_judged_as_jsonschema_judges_them(text: str) -> None:
    assert values._FORMATS["date"](text) == Draft202012Validator.FORMAT_CHECKER.conforms(text, "date")


@given(st.datetimes(timezones=st.timezones()).map(lambda instant: instant.isoformat()))
def test_an_instant_that_we_take_jsonschema_takes_too(text: str) -> None:
    if values._FORMATS["date-time"](text):
        assert Draft202012Validator.FORMAT_CHECKER.conforms(text, "date-time")


def test_a_format_inside_a_structure_is_made_canonical_too() -> None:
    schema = {
        "type": "object",
        "properties": {"at": {"$ref": "#/$defs/instant"}, "log": {"type": "array", "items": INSTANT}},
        "additionalProperties": INSTANT,
        "$defs": {"instant": INSTANT},
    }
    sent = "2026-06-01T11:00:00+02:00"
    assert canonical(schema, {"at": sent, "log": [sent], "z": sent}) == {
        "at": "2026-06-01T09:00:00Z",
        "log": ["2026-06-01T09:00:00Z"],
        "z": "2026-06-01T09:00:00Z",
    }


def test_only_the_alternative_that_holds_decides_the_spelling() -> None:
    schema = {"oneOf": [INSTANT, {"type": "string", "pattern": "^about "}]}
    assert canonical(schema, "about 2026-06-01T11:00:00+02:00") == "about 2026-06-01T11:00:00+02:00"
    assert canonical(schema, "2026-06-01T11:00:00+02:00") == "2026-06-01T09:00:00Z"


def test_a_value_whose_canonical_spelling_is_not_valid_is_refused() -> None:
    assert refused({**INSTANT, "pattern": r"\+02:00$"}, "2026-06-01T11:00:00+02:00") == (
        "value",
        "bad_pattern",
    )


# --- structures, bounds, paths ---


def test_fields_are_sorted_and_lists_keep_their_order() -> None:
    assert canonical_text(canonical(ANYTHING, {"b": [2, 1], "a": {"d": 1, "c": 2}})) == '{"a":{"c":2,"d":1},"b":[2,1]}'


def test_two_fields_of_one_composed_name_are_refused() -> None:
    assert refused(ANYTHING, {"e\u0301": 1, "\u00e9": 2}) == ("value.*", "duplicate_field")


def test_a_path_names_declared_fields_and_hides_all_others() -> None:
    schema = {
        "type": "object",
        "properties": {"stops": {"type": "array", "items": {"type": "object", "required": ["city"]}}},
        "additionalProperties": False,
    }
    assert refused(schema, {"stops": [{"city": 1}, {}]}) == ("value.stops.1.city", "missing")
    assert refused(schema, {"Mira has asthma": 1}) == ("value.*", "unknown_field")
    assert refused({"additionalProperties": NUMBER}, {"Mira has asthma": "x"}) == ("value.*", "wrong_type")


def test_a_value_may_have_sixteen_kibibytes_of_canonical_json_and_no_more() -> None:
    assert canonical(TEXT, "a" * (16 * 1024 - 2))
    assert refused(TEXT, "a" * (16 * 1024 - 1)) == ("value", "too_large")
    assert refused(TEXT, "\u20ac" * 6000) == ("value", "too_large")
    assert refused(ANYTHING, ["a" * 5000] * 4) == ("value", "too_large")
    assert refused(ANYTHING, list(range(100_000))) == ("value.65535", "too_large")


def test_a_value_may_be_eight_levels_deep_and_no_more() -> None:
    nested: Any = 1
    for _ in range(8):
        nested = [nested]
    assert canonical(ANYTHING, nested) == nested
    assert refused(ANYTHING, [nested])[1] == "too_deep"


def test_a_list_that_contains_itself_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    assert refused(ANYTHING, endless)[1] == "too_deep"


@pytest.mark.parametrize("value", [b"x", (1,), {1}, object(), {1: 2}, 1j])
def test_what_json_cannot_say_is_refused(value: Any) -> None:
    assert refused(ANYTHING, value)[1] == "not_json"


def test_unique_items_tell_true_from_one_and_see_other_spellings() -> None:
    schema = {"type": "array", "uniqueItems": True}
    assert canonical(schema, [1, True, "1"]) == [1, True, "1"]
    assert refused(schema, [1, 1.0]) == ("value", "not_unique")


def test_a_refusal_has_no_context_that_holds_the_value() -> None:
    with pytest.raises(ValueRefused) as refusal:
        canonical({"type": "object", "properties": {"a": {"type": "number"}}}, {"a": "asthma"})
    assert refusal.value.__context__ is None
    assert refusal.value.__cause__ is None


# --- schemas ---


@pytest.mark.parametrize(
    ("schema", "value", "code"),
    [
        ({"type": "string", "pattern": "^(a+)+$"}, "a" * 8_000 + "!", "bad_pattern"),
        ({"patternProperties": {"^(a+)+$": False}, "additionalProperties": {"type": "integer"}},
         {"a" * 4_000 + "!": "x"}, "wrong_type"),
        ({"patternProperties": {"^(a+)+$": True}, "additionalProperties": False}, {"a" * 4_000 + "!": 1},
         "unknown_field"),
    ],
)  # fmt: skip
def test_no_pattern_takes_longer_than_its_text_is_long(schema: dict[str, Any], value: Any, code: str) -> None:
    """Python's engine would try each of these in more ways than there is time for."""
    with pytest.raises(ValueRefused) as refused:
        canonical(schema, value)
    assert refused.value.code == code


def test_fields_are_told_apart_by_patterns_of_their_names() -> None:
    schema = {
        "type": "object",
        "properties": {"id": {"type": "integer"}},
        "patternProperties": {"^x-": {"type": "string"}},
        "additionalProperties": {"type": "boolean"},
    }
    kept = {"id": 1, "x-a": "text", "other": True}
    assert canonical(schema, kept) == kept
    for wrong in ({"x-a": 1}, {"other": "text"}, {"id": "x"}):
        with pytest.raises(ValueRefused):
            canonical(schema, wrong)


@pytest.mark.parametrize(
    ("schema", "path", "code"),
    [
        ({"type": "strng"}, "schema.type", "invalid_schema"),
        ({"type": "string", "minLength": -1}, "schema.minLength", "invalid_schema"),
        ({"$ref": "https://example.org/other.json"}, "schema.$ref", "not_a_local_reference"),
        ({"$ref": "other.json#/a"}, "schema.$ref", "not_a_local_reference"),
        ({"$ref": "#/$defs/absent"}, "schema.$ref", "unknown_reference"),
        ({"$ref": "#"}, "schema", "endless_reference"),
        (
            {"allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"anyOf": [{"$ref": "#"}]}}},
            "schema",
            "endless_reference",
        ),
        ({"pattern": "("}, "schema.pattern", "bad_pattern"),
        ({"pattern": "^(?!x)"}, "schema.pattern", "bad_pattern"),
        ({"pattern": r"^(a)\1$"}, "schema.pattern", "bad_pattern"),
        ({"pattern": "(a{999}){999}{999}"}, "schema.pattern", "bad_pattern"),
        ({"patternProperties": {"(?<=a)b": {}}}, "schema.patternProperties.*", "bad_pattern"),
        (
            {"patternProperties": {"^a": {}}, "unevaluatedProperties": False},
            "schema.unevaluatedProperties",
            "unsupported_keyword",
        ),
        ({"enum": [" a"]}, "schema.enum.0", "not_canonical"),
        ({"const": "e\u0301"}, "schema.const", "not_canonical"),
        ({"properties": {"e\u0301": {}}}, "schema.properties", "not_canonical"),
        ({"$schema": "http://json-schema.org/draft-07/schema#"}, "schema.$schema", "not_draft_2020_12"),
        ({"$dynamicRef": "#x"}, "schema.$dynamicRef", "unsupported_keyword"),
        (
            {"properties": {"a": {"$id": "https://example.org/"}}},
            "schema.properties.a.$id",
            "only_at_the_root",
        ),
        ({"minimum": math.inf}, "schema.minimum", "not_json"),
        ({"default": object()}, "schema.default", "not_json"),
        ({"description": "a" * 70_000}, "schema", "too_large"),
    ],
)
def test_a_schema_that_cannot_be_used_is_refused_with_its_place(schema: dict[str, Any], path: str, code: str) -> None:
    with pytest.raises(SchemaRefused) as refusal:
        check_schema(schema)
    assert (refusal.value.path, refusal.value.code) == (path, code)


def test_a_schema_nested_too_deeply_is_refused() -> None:
    schema: dict[str, Any] = {}
    for _ in range(2000):
        schema = {"not": schema}
    with pytest.raises(SchemaRefused):
        check_schema(schema)
    with pytest.raises(SchemaRefused):
        canonical(schema, 1)


def test_a_schema_may_refer_to_itself_for_what_lies_deeper() -> None:
    tree = {"type": "object", "properties": {"child": {"$ref": "#"}}, "additionalProperties": False}
    assert canonical(tree, {"child": {"child": {}}}) == {"child": {"child": {}}}
    assert refused(tree, {"child": {"other": 1}}) == ("value.child.*", "unknown_field")


def test_a_choice_of_a_whole_number_may_be_written_with_a_point() -> None:
    assert canonical({"enum": [1.0, "a"]}, 1) == 1


def test_one_schema_is_compiled_once() -> None:
    assert compiled({"type": "string", "maxLength": 77}) is compiled({"type": "string", "maxLength": 77})


# --- properties ---

plain_text = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=20)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | plain_text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(plain_text, inner, max_size=4),
    max_leaves=8,
)


@given(json_values)
def test_the_canonical_form_of_a_canonical_value_is_itself(value: Any) -> None:
    try:
        kept = canonical(ANYTHING, value)
    except ValueRefused:
        assume(False)
    again = canonical(ANYTHING, kept)
    assert canonical_text(again) == canonical_text(kept)
    assert canonical_text(canonical(ANYTHING, json.loads(canonical_text(kept)))) == canonical_text(kept)


@given(st.datetimes(timezones=st.timezones()), st.sampled_from(["T", "t"]))
def test_the_canonical_form_of_an_instant_is_itself(instant: Any, letter: str) -> None:
    try:
        kept = canonical(INSTANT, instant.isoformat().replace("T", letter))
    except ValueRefused:
        assume(False)
    assert canonical(INSTANT, kept) == kept


def respelled(value: Any) -> Any:
    if isinstance(value, str):
        return f" \t{unicodedata.normalize('NFD', value)}\n "
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return Decimal(value)
    if isinstance(value, float):
        return Decimal(repr(value))
    if isinstance(value, list):
        return [respelled(item) for item in value]
    return {unicodedata.normalize("NFD", name): respelled(item) for name, item in reversed(list(value.items()))}


@given(json_values)
def test_equal_values_in_other_spellings_are_equal(value: Any) -> None:
    try:
        kept = canonical(ANYTHING, value)
    except ValueRefused:
        assume(False)
    assert canonical_text(canonical(ANYTHING, respelled(kept))) == canonical_text(kept)


MARK = "Qx7zCanaryPf"
hostile_leaves = (
    st.text(st.characters(), max_size=10).map(lambda text: text + MARK)
    | st.floats()
    | st.integers()
    | st.decimals()
    | st.binary(max_size=4)
    | st.sampled_from([MARK + "\0", MARK + "\ud800", 10**4000, Decimal("1e99999999"), object(), MARK * 9000, {MARK}])
)
hostile = st.recursive(
    hostile_leaves,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=4).map(lambda text: MARK + text) | st.integers(), inner, max_size=4)
        | inner.map(lambda value: [[[[[value]]]]])
    ),
    max_leaves=6,
)
schemas: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [
        ANYTHING,
        TEXT,
        NUMBER,
        INSTANT,
        {"type": "string", "enum": ["a", "b"]},
        {"type": "string", "format": "email", "pattern": "^.+@.+$"},
        {"type": "string", "format": "uri"},
        {"type": "integer", "minimum": 0, "maximum": 10},
        {"type": "number", "multipleOf": 0.01},
        {"type": "array", "items": TEXT, "uniqueItems": True},
        {"type": "array", "contains": NUMBER},
        {"type": "object", "properties": {"a": NUMBER}, "additionalProperties": False, "required": ["a"]},
        {"type": "object", "propertyNames": {"maxLength": 3}, "additionalProperties": INSTANT},
        {"anyOf": [TEXT, NUMBER, {"type": "array", "items": {"$ref": "#"}}], "not": {"const": 0}},
        {"if": TEXT, "then": {"maxLength": 15}, "else": NUMBER},
        {"unevaluatedProperties": False, "unevaluatedItems": False},
    ]
)


@given(schemas, hostile)
def test_hostile_input_is_refused_without_its_content_or_kept_whole(schema: dict[str, Any], value: Any) -> None:
    refusal: ValueRefused | None = None
    try:
        kept = canonical(schema, value)
    except ValueRefused as caught:
        refusal = caught
    if refusal is None:
        assert canonical_text(canonical(schema, kept)) == canonical_text(kept)
    else:
        assert MARK not in "".join((str(refusal), repr(refusal), refusal.path, refusal.code))
        assert refusal.__context__ is None


simple_schemas = st.one_of(
    st.fixed_dictionaries(
        {"type": st.just("string")},
        optional={
            "minLength": st.integers(0, 3),
            "maxLength": st.integers(0, 6),
            "enum": st.lists(st.sampled_from(["a", "bb", 1, None, "2026-01-01"]), min_size=1),
            "format": st.sampled_from(["date", "date-time", "email", "uri", "time", "nonsense"]),
            "title": st.just("t"),
        },
    ),
    st.fixed_dictionaries(
        {"type": st.sampled_from(["number", "integer"])},
        optional={"minimum": st.integers(-3, 3) | st.floats(-3, 3), "maximum": st.integers(-3, 3)},
    ),
    st.just({"type": "boolean"}),
    st.fixed_dictionaries({"enum": st.lists(st.sampled_from(["a", 1, 1.0, True, None]), min_size=1)}),
)
simple_values = st.one_of(
    st.sampled_from(
        [
            "a",
            "bb",
            "",
            "2026-01-01",
            "2026-01-01T00:00:00Z",
            "a@b",
            "x:y",
            "00:00:00Z",
            True,
            None,
            1,
            1.0,
            [1],
        ]
    ),
    st.text(string.ascii_letters, max_size=7),
    st.integers(-5, 5),
    st.floats(-5, 5),
    st.just(1e300),
)


@given(simple_schemas, simple_values)
def test_the_quick_check_of_simple_schemas_says_what_jsonschema_says(schema: dict[str, Any], value: Any) -> None:
    ready = compiled(schema)
    cleaned = values._Cleaner(frozenset()).clean(value)
    assert ready._quick is not None
    try:
        canonical(schema, value)
        accepted = True
    except ValueRefused:
        accepted = False
    assert accepted == ready._validator.is_valid(cleaned)
    if ready._quick(cleaned):
        assert ready._validator.is_valid(cleaned)
