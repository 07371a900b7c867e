from __future__ import annotations

import copy
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies import decision
from policies.rules import STARTER, Lifetime, PolicyRefused, When, load_policy, policy_document
from policies.vocabulary import Basis, Outcome, Sensitivity

DATA: dict[str, Any] = {
    "name": "house",
    "lifetimes": {"session": {"public": "P30D"}, "contract": {"personal": "P1Y6M"}},
    "rules": [{"id": "all", "when": {}, "then": "accept", "reason": "ordinary"}],
}


def changed(**fields: Any) -> dict[str, Any]:
    return {**copy.deepcopy(DATA), **fields}


def with_rule(**fields: Any) -> dict[str, Any]:
    return changed(rules=[{**DATA["rules"][0], **fields}])


def errors(data: Any) -> list[tuple[str, str]]:
    with pytest.raises(PolicyRefused) as refusal:
        policy_document(data)
    return refusal.value.errors


def test_the_starter_policy_is_one_and_is_written_as_it_is_read() -> None:
    starter = load_policy(STARTER.read_text())
    assert starter.document() == json.loads(STARTER.read_text())


def test_the_starter_policy_says_a_lifetime_for_every_basis_that_has_one_and_every_class() -> None:
    starter = load_policy(STARTER.read_text())
    for basis in (Basis.SESSION, Basis.CONSENT, Basis.CONTRACT):
        assert all(starter.lifetime(basis, sensitivity) for sensitivity in Sensitivity)


def test_the_starter_policy_fits_on_a_screen() -> None:
    assert len(STARTER.read_text().splitlines()) <= 44


def test_what_is_not_said_is_the_careful_choice() -> None:
    policy = policy_document(DATA)
    assert (policy.unknown_attribute, policy.on_conflict, policy.receipts) == ("refuse", "ask", "relaxed")
    assert policy.review_after == Lifetime("P1Y")


def test_a_policy_that_says_nothing_of_a_model_lets_nothing_be_sent_to_one() -> None:
    silent, said = policy_document(DATA), policy_document(changed(model={"up_to": "internal", "tokens_per_day": 9_000}))
    assert silent.model is None
    # Versions that were published before there was such a field keep their digest.
    assert "model" not in silent.document()
    assert said.model is not None
    assert (said.model.up_to, said.model.tokens_per_day, said.model.tokens_per_month) == (
        Sensitivity.INTERNAL,
        9_000,
        None,
    )
    assert policy_document(said.document()) == said


@pytest.mark.parametrize(
    ("model", "error"),
    [
        ({}, ("policy.model.up_to", "missing")),
        ({"up_to": "secret"}, ("policy.model.up_to", "not_in_enum")),
        ({"up_to": "public", "tokens_per_day": 0}, ("policy.model.tokens_per_day", "too_small")),
        ({"up_to": "public", "url": "x"}, ("policy.model.url", "unknown_field")),
    ],
)
def test_what_a_policy_says_of_a_model_is_checked(model: Any, error: tuple[str, str]) -> None:
    assert errors(changed(model=model)) == [error]


def test_a_pair_that_is_left_out_has_no_lifetime() -> None:
    policy = policy_document(DATA)
    assert policy.lifetime(Basis.SESSION, Sensitivity.PUBLIC) == Lifetime("P30D")
    assert policy.lifetime(Basis.SESSION, Sensitivity.PERSONAL) is None
    assert policy.lifetime(Basis.INDEFINITE, Sensitivity.PUBLIC) is None


def test_a_policy_that_is_written_reads_as_the_same_policy() -> None:
    policy = policy_document(with_rule(when={"stated": ["personal", "restricted"], "act": "fact", "min_trust": 3}))
    assert policy_document(policy.document()) == policy
    assert policy_document(policy.document()).digest() == policy.digest()


def test_a_single_word_and_a_list_of_one_are_the_same_condition() -> None:
    one, other = (policy_document(with_rule(when={"source": word})) for word in ("quote", ["quote"]))
    assert one == other
    assert one.digest() == other.digest()


@pytest.mark.parametrize(
    ("data", "error"),
    [
        ([], ("policy", "wrong_type")),
        (changed(name="House Rules"), ("policy.name", "bad_pattern")),
        (changed(unknown_attribute="keep"), ("policy.unknown_attribute", "not_in_enum")),
        (changed(extra=1), ("policy.extra", "unknown_field")),
        (changed(lifetimes={"indefinite": {}}), ("policy.lifetimes.indefinite", "unknown_field")),
        (changed(lifetimes={"session": {"secret": "P1D"}}), ("policy.lifetimes.session.secret", "not_in_enum")),
        (changed(review_after="yearly"), ("policy.review_after", "not_a_duration")),
        (changed(rules=[*DATA["rules"], *DATA["rules"]]), ("policy.rules", "duplicate_id")),
        (with_rule(id="All of them"), ("policy.rules.0.id", "bad_pattern")),
        (with_rule(then="perhaps"), ("policy.rules.0.then", "not_in_enum")),
        (with_rule(reason="It depends."), ("policy.rules.0.reason", "bad_pattern")),
        (with_rule(confirm_by="anybody", then="ask"), ("policy.rules.0.confirm_by", "not_in_enum")),
        (with_rule(confirm_by="reviewer"), ("policy.rules.0.confirm_by", "only_with_ask")),
        (with_rule(when={"mood": "good"}), ("policy.rules.0.when.mood", "unknown_field")),
        (with_rule(when={"sensitivity": "secret"}), ("policy.rules.0.when.sensitivity.0", "not_in_enum")),
        (with_rule(when={"sensitivity": 3}), ("policy.rules.0.when.sensitivity.0", "wrong_type")),
        (with_rule(when={"kind": []}), ("policy.rules.0.when.kind", "too_short")),
        (with_rule(when={"inferred": "yes"}), ("policy.rules.0.when.inferred", "wrong_type")),
        (with_rule(when={"below_confidence": 1.5}), ("policy.rules.0.when.below_confidence", "too_big")),
        (with_rule(when={"min_trust": 1.5}), ("policy.rules.0.when.min_trust", "wrong_type")),
        (with_rule(when={"confidence": 0.5}), ("policy.rules.0.when.confidence", "unknown_field")),
    ],
)
def test_a_mistake_is_refused_when_the_policy_is_built(data: Any, error: tuple[str, str]) -> None:
    assert errors(data) == [error]


@pytest.mark.parametrize(
    "text", ["", "P", "30D", "P0D", "-P1D", "+P1D", "P101Y", "P0.5Y", "P30", "PT", "P1D\n2", "P99999999999D"]
)
def test_what_is_not_a_positive_duration_of_at_most_a_century_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^not a duration$"):
        Lifetime(text)


def test_a_month_is_a_month_of_the_calendar() -> None:
    assert Lifetime("P1M").after(datetime(2026, 1, 31, 8, tzinfo=UTC)) == datetime(2026, 2, 28, 8, tzinfo=UTC)
    assert Lifetime("P1Y").after(datetime(2024, 2, 29, tzinfo=UTC)) == datetime(2025, 2, 28, tzinfo=UTC)
    assert Lifetime("PT36H").after(datetime(2026, 1, 1, tzinfo=UTC)) == datetime(2026, 1, 2, 12, tzinfo=UTC)


@pytest.mark.parametrize("text", ["P1Y", "P1D"])
def test_a_life_past_the_last_year_is_an_error(text: str) -> None:
    with pytest.raises(OverflowError):
        Lifetime(text).after(datetime.max.replace(tzinfo=UTC))


def test_every_field_of_a_condition_is_tested_and_is_one_of_the_question() -> None:
    assert set(When.model_fields) == set(decision._TESTS)
    bare = {name.split("_", 1)[-1] if name.startswith(("min_", "max_", "below_")) else name for name in decision._TESTS}
    assert all(hasattr(decision.Question, name) for name in bare)


def test_a_file_that_is_not_json_is_refused() -> None:
    with pytest.raises(PolicyRefused) as refusal:
        load_policy("{")
    assert refusal.value.errors == [("policy", "not_json")]


MARK = "Qx7z Canary!"
junk = (
    st.just(MARK) | st.none() | st.lists(st.just(MARK)) | st.dictionaries(st.just(MARK), st.just(MARK)) | st.integers()
)


@given(st.sampled_from([*DATA, "review_after", MARK]), junk, st.sampled_from([*When.model_fields, MARK]), junk)
def test_a_refusal_never_repeats_what_was_written(field: str, value: Any, condition: str, other: Any) -> None:
    try:
        policy_document({**with_rule(when={condition: other}), field: value})
    except PolicyRefused as refusal:
        said = str(refusal) + repr(refusal.errors)
        assert MARK not in said


def test_a_rule_has_one_of_the_four_outcomes() -> None:
    assert {policy_document(with_rule(then=word)).rules[0].then for word in Outcome} == set(Outcome)
