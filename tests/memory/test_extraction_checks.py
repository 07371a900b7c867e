from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from memory.extraction.checks import check
from memory.extraction.protocol import AttributeSlice, EpisodeText, Evidence, Proposal, Rejection, Stored
from policies.definitions import definition

AT = datetime(2026, 3, 4, 9, tzinfo=UTC)
EPISODE = EpisodeText("user", "The deadline is 2026-06-30, in Berlin.", AT, "customer:7")
DEADLINE = definition({"name": "deadline", "schema": {"type": "string", "format": "date"}})
CITIES = definition({"name": "cities", "cardinality": "multi", "schema": {"type": "string"}})
OFFERED = [AttributeSlice(DEADLINE), AttributeSlice(CITIES)]


def proposal(**changes: Any) -> Proposal:
    sound = Proposal(
        evidence=Evidence("2026-06-30", 16, 26),
        subject="customer:7",
        attribute="deadline",
        value="2026-06-30",
        change="new",
        valid_from=AT,
        confidence=0.9,
    )
    return replace(sound, **changes)


def test_a_sound_proposal_goes_through_as_it_is():
    assert check(EPISODE, OFFERED, [proposal()]).accepted == (proposal(),)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"attribute": "shoe_size"}, "attribute_not_offered"),
        ({"subject": "customer:8"}, "subject_not_offered"),
        ({"evidence": Evidence(" ", 3, 4)}, "quote_missing"),
        ({"evidence": Evidence("", 0, 0)}, "quote_missing"),
        ({"evidence": Evidence("2026-07-01", 16, 26)}, "quote_not_in_episode"),
        ({"evidence": Evidence("the deadline", 0, 12)}, "quote_not_in_episode"),
        ({"evidence": Evidence("x" * 8_001, 0, 8_001)}, "quote_too_long"),
        ({"value": "next June"}, "value_invalid"),
        ({"value": {"a": float("nan")}}, "value_invalid"),
        ({"confidence": 1.2}, "confidence_invalid"),
        ({"confidence": float("nan")}, "confidence_invalid"),
        ({"confidence": True}, "confidence_invalid"),
        ({"valid_from": datetime(2026, 1, 1)}, "valid_from_invalid"),
        ({"fault": "current_value_not_offered"}, "current_value_not_offered"),
    ],
)
def test_what_the_episode_or_the_attributes_do_not_bear_out_is_rejected_by_name(changes: dict[str, Any], reason: str):
    checked = check(EPISODE, OFFERED, [proposal(**changes)])
    assert checked.accepted == ()
    assert checked.reasons() == {reason: 1}


def test_one_rejection_does_not_sink_the_others_and_each_is_counted():
    city = proposal(attribute="cities", value="Berlin", evidence=Evidence("Berlin", 31, 37))
    checked = check(EPISODE, OFFERED, [proposal(value="never"), city, proposal(attribute="x"), proposal()])
    assert [each.attribute for each in checked.accepted] == ["cities", "deadline"]
    assert checked.rejected == (
        Rejection("value_invalid", "deadline"),
        Rejection("attribute_not_offered", None),
    )


def test_an_attribute_that_was_made_up_is_not_repeated_in_the_rejection():
    assert "canary" not in repr(check(EPISODE, OFFERED, [proposal(attribute="canary")]).rejected)


def test_a_wrong_span_is_put_right_where_the_quote_stands_to_the_letter():
    (accepted,) = check(EPISODE, OFFERED, [proposal(evidence=Evidence("2026-06-30", 0, 10))]).accepted
    assert EPISODE.content[accepted.evidence.start : accepted.evidence.end] == "2026-06-30"


def test_the_same_value_twice_is_one_and_a_second_value_of_a_single_attribute_is_a_contradiction():
    other = proposal(value="2026-07-01")
    assert check(EPISODE, OFFERED, [proposal(), proposal(), other]).reasons() == {"repeated": 1, "contradicted": 1}


def test_a_multi_attribute_takes_several_values():
    cities = [
        proposal(attribute="cities", value=name, evidence=Evidence("Berlin", 31, 37)) for name in ("Berlin", "Bonn")
    ]
    assert len(check(EPISODE, OFFERED, cities).accepted) == 2


def test_what_is_stored_decides_the_change_whatever_the_proposal_claims():
    held = [AttributeSlice(DEADLINE, (Stored("2026-06-30"),))]
    claimed = proposal(change="new", current_value="2020-01-01")
    (same,) = check(EPISODE, held, [claimed]).accepted
    assert (same.change, same.current_value) == ("no_change", "2026-06-30")
    held = [AttributeSlice(DEADLINE, (Stored("2026-06-01"),))]
    (other,) = check(EPISODE, held, [claimed]).accepted
    assert (other.change, other.current_value) == ("update", "2026-06-01")


def test_a_value_becomes_canonical():
    size = definition({"name": "size", "schema": {"type": "number"}})
    episode = EpisodeText("user", "size 4.0", AT, "customer:7")
    (accepted,) = check(
        episode, [AttributeSlice(size)], [proposal(attribute="size", value=4.0, evidence=Evidence("4.0", 5, 8))]
    ).accepted
    assert type(accepted.value) is int


def test_other_subjects_count_only_where_they_are_offered():
    other = proposal(subject="customer:8", change="update")
    checked = check(EPISODE, OFFERED, [other], subjects={"customer:7", "customer:8"})
    assert [each.change for each in checked.accepted] == ["new"]


def test_no_content_stands_in_what_is_printed_of_a_proposal():
    assert "2026-06-30" not in repr(proposal())
    assert "customer:7" not in repr(proposal())
    assert "Berlin" not in repr(EPISODE)
