from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.extraction.checks import check
from memory.extraction.protocol import AttributeSlice, EpisodeText, Proposal, Stored
from memory.extraction.structured import PathRefused, StructuredExtractor, located, steps
from policies.definitions import definition

AT = datetime(2026, 3, 4, 9, tzinfo=UTC)


def attribute(path: str, schema: dict[str, Any] | None = None, **more: Any) -> AttributeSlice:
    return AttributeSlice(
        definition(
            {"name": more.pop("name", "attribute"), "schema": schema or {"type": "string"}, "path": path, **more}
        )
    )


def extracted(content: str, *attributes: AttributeSlice, kind: Any = "tool_result") -> list[Proposal]:
    episode = EpisodeText("tool", content, AT, "order:1", kind)
    found = StructuredExtractor().extract(episode, attributes)
    for each in found:
        assert content[each.evidence.start : each.evidence.end] == each.evidence.quote
    return found


def said(found: list[Proposal]) -> list[tuple[Any, str]]:
    return [(each.value, each.evidence.quote) for each in found]


RESULT = '{"order": {"id": 7, "lines": [{"sku": "A-1", "price": 12.50}, {"sku": "B-2", "price": 3}], "late": false},\n "x y": "é"}'


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("$.order.id", [(7, "7")]),
        ("$.order.late", [(False, "false")]),
        ("$.order.lines[0].sku", [("A-1", "A-1")]),
        ("$.order.lines[-1].price", [(3, "3")]),
        ("$.order.lines[0].price", [(12.5, "12.50")]),
        ("$.order.lines[*].sku", [("A-1", "A-1"), ("B-2", "B-2")]),
        ("$['x y']", [("é", "é")]),
        ('$["order"]["id"]', [(7, "7")]),
        ("$.order.lines[2].sku", []),
        ("$.order.sku", []),
        ("$.order.id.deeper", []),
        ("$.lines[0]", []),
    ],
)
def test_a_path_leads_to_its_value_and_the_quote_is_its_literal_text(path: str, expected: list[tuple[Any, str]]):
    assert said(extracted(RESULT, attribute(path, {}))) == expected


@pytest.mark.parametrize("path", ["$.", "$..id", "$.a[?(@.b)]", "$.a[1:2]", "$.*", "$a", "$.a b", "$[", "$['']"])
def test_other_paths_are_refused_and_map_nothing(path: str):
    with pytest.raises(PathRefused):
        steps(path)
    assert extracted('{"a": [1]}', attribute(path, {})) == []


def test_a_message_gives_nothing_even_where_it_is_json():
    assert extracted(RESULT, attribute("$.order.id", {}), kind="message") == []


def test_an_event_is_read_as_a_tool_result_is():
    assert said(extracted(RESULT, attribute("$.order.id", {}), kind="event")) == [(7, "7")]


@pytest.mark.parametrize(
    "content", ["", "no json", "{", '{"a": ', '{"a" 1}', "[" * 100_000, '{"a": 1' + "0" * 6_000 + "}"]
)
def test_content_that_is_not_json_gives_nothing(content: str):
    assert extracted(content, attribute("$.a", {})) == []


def test_null_says_nothing():
    assert extracted('{"a": null, "b": [null, "x"]}', attribute("$.a", {}), attribute("$.b[*]", {})) == [
        *extracted('{"a": null, "b": [null, "x"]}', attribute("$.b[*]", {}))
    ]


def test_an_invalid_value_is_proposed_and_rejected_by_name_and_the_others_go_through():
    content = '{"due": "soon", "n": 4}'
    attributes = [
        attribute("$.due", {"type": "string", "format": "date"}, name="due"),
        attribute("$.n", {"type": "integer"}, name="n"),
    ]
    episode = EpisodeText("tool", content, AT, "order:1", "tool_result")
    checked = check(episode, attributes, StructuredExtractor().extract(episode, attributes))
    assert [each.attribute for each in checked.accepted] == ["n"]
    assert checked.reasons() == {"value_invalid": 1}


def test_a_list_gives_its_items_to_a_multi_attribute_and_itself_to_one_that_wants_a_list():
    content = '{"tags": ["a", "b"]}'
    assert said(extracted(content, attribute("$.tags", cardinality="multi"))) == [("a", "a"), ("b", "b")]
    wants = attribute("$.tags", {"type": "array", "items": {"type": "string"}}, cardinality="multi")
    assert said(extracted(content, wants)) == [(["a", "b"], '["a", "b"]')]


def test_the_last_of_two_fields_of_one_name_counts_as_for_every_reader():
    assert said(extracted('{"a": 1, "a": 2}', attribute("$.a", {}))) == [(2, "2")]


def test_an_escaped_text_is_quoted_as_it_is_written():
    assert said(extracted('{"a": "x\\u0041"}', attribute("$.a"))) == [("xA", "x\\u0041")]


def test_what_is_stored_already_changes_nothing():
    held = AttributeSlice(attribute("$.a").definition, (Stored("x"),))
    assert [each.change for each in extracted('{"a": "x"}', held)] == ["no_change"]
    assert [each.change for each in extracted('{"a": "y"}', held)] == ["update"]


NAMES = st.text(st.characters(codec="ascii", categories=["L"]), min_size=1, max_size=3)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=12,
)


def leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[tuple[Any, ...], Any]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [(path, value), *(leaf for key, item in inner for leaf in leaves(item, (*path, key)))]


@given(JSON, st.sampled_from([None, 1]), st.booleans())
def test_every_value_of_any_json_is_found_where_it_stands(value: Any, indent: int | None, ascii_only: bool):
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    for path, expected in leaves(value):
        ((start, end),) = located(text, path)
        assert json.loads(text[start:end]) == expected
