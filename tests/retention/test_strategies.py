"""What redaction leaves: less than there was, alike for many, and nothing that leads back."""

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retention.strategies import (
    GONE,
    MASK,
    Strategy,
    cut,
    declared,
    generalise,
    joined,
    leaves,
    mask,
    mask_tail,
    pseudonym,
    redacted,
    touched,
    without,
)

KEY, OTHER_KEY = b"k" * 32, b"o" * 32
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8)
EVERY = st.sampled_from(list(Strategy))


def test_null_leaves_nothing() -> None:
    assert redacted("anything", Strategy.NULL, KEY) is None


@given(VALUES)
def test_a_mask_is_the_same_for_every_value_and_does_not_tell_its_length(value: Any) -> None:
    assert mask(value) == MASK


@given(st.text(min_size=1))
def test_a_tail_is_at_most_four_characters_and_a_quarter(text: str) -> None:
    left = mask_tail(text)
    assert left.startswith(MASK)
    tail = left[len(MASK) :]
    assert text.endswith(tail)
    assert len(tail) <= min(4, len(text) // 4)


def test_a_card_keeps_its_last_four_and_a_pin_nothing() -> None:
    assert mask_tail("4111111111111111") == f"{MASK}1111"
    assert mask_tail("123") == MASK


@pytest.mark.parametrize(
    ("value", "left"),
    [
        ("2026-07-15", "2026"),
        ("2026-07-15T09:30:00.000000Z", "2026"),
        ("2026-07", "2026"),
        (37, "30 to 39"),
        (4711, "4000 to 4999"),
        (0, "0 to 9"),
        (7.5, "0 to 9"),
        (-52340, "-50000 to -59999"),
        (Decimal("119.90"), "100 to 199"),
        ("119.90 EUR", "100 to 199"),
        ("10115", "10…"),
        ("D-10115", "D-10…"),
        ("SW1A 1AA", "SW…"),
        ("mira@example.com", "…@example.com"),
        ("+49 30 901820", "+49…"),
        ("192.0.2.7", "192.0.…"),
        ("https://example.com/patients/7", "https://example.com/…"),
        ("Berlin", MASK),
        (True, MASK),
        (None, MASK),
        (["2026-07-15"], MASK),
        ({"born": "2026-07-15"}, MASK),
    ],
)
def test_the_coarse_part_is_left(value: Any, left: Any) -> None:
    assert generalise(value) == left


@given(st.integers(min_value=-(10**12), max_value=10**12))
def test_a_range_holds_its_number_and_at_least_ten(number: int) -> None:
    low, high = (int(each) for each in generalise(number).split(" to "))
    assert min(low, high) <= number <= max(low, high)
    assert abs(high - low) >= 9


@given(st.text(), st.text())
def test_what_is_generalised_is_never_the_value_itself(text: str, other: str) -> None:
    left = generalise(text)
    assert left != text or text in (MASK, "")
    assert generalise(left) == generalise(left)


@given(VALUES)
def test_a_pseudonym_is_stable_under_its_key_and_another_under_another(value: Any) -> None:
    assert pseudonym(value, KEY) == pseudonym(value, KEY)
    assert pseudonym(value, KEY) != pseudonym(value, OTHER_KEY)


@given(st.text(min_size=4), st.text(min_size=4))
def test_two_values_have_two_pseudonyms_that_hold_neither(one: str, other: str) -> None:
    assert (pseudonym(one, KEY) == pseudonym(other, KEY)) == (one == other)
    assert len(pseudonym(one, KEY)) == 22


@given(VALUES, EVERY)
def test_every_strategy_leaves_something_that_json_can_say(value: Any, strategy: Strategy) -> None:
    left = redacted(value, strategy, KEY)
    assert left is None or isinstance(left, str)


# fields ---------------------------------------------------------------------------------------------------------------

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "address": {"type": "object", "properties": {"street": {"type": "string"}, "city": {"type": "string"}}},
        "phones": {"type": "array", "items": {"type": "string"}},
    },
}
VALUE = {"name": "Mira", "address": {"street": "Weg 1", "city": "Berlin"}, "phones": ["1", "2"]}


def test_fields_are_named_by_the_schema_alone() -> None:
    assert declared(SCHEMA, "address.street") == ("address", "street")
    assert declared(SCHEMA, "phones.1") == ("phones", 1)
    for path in ("", "nickname", "address.zip", "phones.x", "phones.-1", "name.first", "address.street.0"):
        assert declared(SCHEMA, path) is None, path
    assert leaves(SCHEMA) == ["name", "address", "address.street", "address.city", "phones"]
    assert declared({"type": "object"}, "anything") is None


def test_a_field_goes_and_the_others_stay() -> None:
    left = without(VALUE, [("address", "street"), ("phones", 0)], Strategy.NULL, KEY)
    assert left == {"name": "Mira", "address": {"street": None, "city": "Berlin"}, "phones": [None, "2"]}
    assert without(VALUE, [("address",), ("address", "street")], Strategy.MASK, KEY)["address"] == MASK
    assert VALUE["address"] == {"street": "Weg 1", "city": "Berlin"}


def test_a_field_that_a_value_does_not_have_changes_nothing() -> None:
    assert without({"name": "Mira"}, [("address", "street"), ("phones", 3)], Strategy.NULL, KEY) == {"name": "Mira"}


# spans ----------------------------------------------------------------------------------------------------------------

TEXTS = st.text(alphabet="abcdefghij ", min_size=1, max_size=60)


@given(TEXTS, st.lists(st.tuples(st.integers(0, 59), st.integers(1, 20)), min_size=1, max_size=5), EVERY)
def test_outside_of_the_spans_nothing_changes_and_inside_nothing_stays(
    text: str, places: list[tuple[int, int]], strategy: Strategy
) -> None:
    spans = [(start, min(len(text), start + length)) for start, length in places if start < len(text)]
    if not spans:
        return
    left = cut(text, spans, strategy, KEY)
    whole = joined(spans)
    kept = []
    at = 0
    for start, end in whole:
        kept.append(text[at:start])
        at = end
    kept.append(text[at:])
    for piece in kept:
        assert piece in left
    if strategy in (Strategy.NULL, Strategy.MASK):
        assert left == (GONE if strategy is Strategy.NULL else MASK).join(kept)


def test_spans_that_touch_are_one() -> None:
    assert joined([(5, 9), (0, 3), (3, 5), (12, 14)]) == [(0, 9), (12, 14)]
    assert cut("call mira now", [(5, 9)], Strategy.NULL, KEY) == f"call {GONE} now"


def test_a_quote_is_touched_where_it_stands_in_a_span_and_where_it_says_the_same() -> None:
    text = "my name is Mira and I live in Berlin; Mira is what they call me"
    mira = [(11, 15)]
    assert touched(text, "my name is Mira", mira)
    assert touched(text, "MIRA", mira)
    assert touched(text, "Mira is what they call me", mira)
    assert not touched(text, "I live in Berlin", mira)
    assert not touched(text, "", mira)
