"""What detection makes of content at the write door, without a door: properties of the pure part."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory.detecting import MOST_NAMES, counted, in_episode, in_saying, is_credential, names_in
from memory.outcomes import Refusal
from policies.values import canonical_text
from policies.vocabulary import Sensitivity

#: Of shapes that issuers give out; nobody's.
SECRETS = (
    "AKIA" + "QZ7WERTYUIOPLKJH",
    "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8",
    "glpat-" + "x9Y8z7W6v5U4t3S2r1Q0",
)
PLAIN = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=60)
SECRET = st.sampled_from(SECRETS)


def shape(value: Any) -> Any:
    if isinstance(value, dict):
        return [shape(inner) for inner in value.values()]
    return [shape(inner) for inner in value] if isinstance(value, list) else None


@given(PLAIN, SECRET, PLAIN)
def test_no_credential_is_left_in_a_text_and_the_rest_is(before: str, secret: str, after: str) -> None:
    screened = in_episode(f"{before} {secret} {after}")
    assert secret not in screened.text
    assert sum(screened.replaced.values()) >= 1
    assert secret in screened.original
    again = in_episode(screened.text)
    assert (again.text, again.replaced) == (screened.text, {})


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | PLAIN
    | SECRET
    | st.builds("{} {}".format, PLAIN, SECRET),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(PLAIN | SECRET, inner, max_size=4),
    max_leaves=12,
).filter(lambda value: isinstance(value, list | dict))


@settings(max_examples=150)
@given(VALUES, st.booleans())
def test_json_stays_json_of_the_same_shape_without_its_credentials(value: Any, as_text: bool) -> None:
    sent = json.dumps(value, ensure_ascii=as_text) if as_text else value
    screened = in_episode(sent)
    read = json.loads(screened.text)
    assert not any(secret in screened.text for secret in SECRETS)
    if not screened.replaced:
        assert screened.text == screened.original
    elif not isinstance(value, dict):
        assert len(read) == len(value)
    if as_text or not screened.replaced:
        assert shape(read) == shape(value)


def test_a_name_that_is_a_secret_keeps_its_place_beside_an_equal_one() -> None:
    screened = in_episode({SECRETS[0]: 1, "‹CREDENTIAL›": 2, "deep": {SECRETS[1]: {SECRETS[0]: SECRETS[2]}}})
    read = json.loads(screened.text)
    assert sorted(read.values(), key=str) == [1, 2, {"‹CREDENTIAL›": {"‹CREDENTIAL›": "‹CREDENTIAL›"}}]
    assert screened.replaced == {"aws_key": 2, "github_token": 1, "gitlab_token": 1}


def test_what_was_replaced_raises_nothing_and_what_is_left_does() -> None:
    assert in_episode(f"use {SECRETS[0]}").detected.raises is Sensitivity.PUBLIC
    assert in_episode(f"use {SECRETS[0]}, says a@example.org").detected.codes == ("email",)


@given(PLAIN, PLAIN)
def test_a_saying_is_refused_or_told_of_and_never_changed(value: str, quote: str) -> None:
    for secret in SECRETS:
        with pytest.raises(Refusal) as refused:
            in_saying({"note": [value, f"x {secret}"]}, quote, attribute="a", omit=(), fields=("note",))
        assert refused.value.denied.code == "credential"
        assert secret not in repr(refused.value.denied)
    assert in_saying(None, None, attribute="a", omit=()).codes == ()


def test_a_mark_is_told_whatever_the_class_and_what_raised_nothing_is_not() -> None:
    found = in_saying("write to a@example.org\u202e", None, attribute="a", omit=())
    assert found.reasons(Sensitivity.PUBLIC) == ("detected.bidi_controls", "detected.email")
    assert found.reasons(Sensitivity.RESTRICTED) == ("detected.bidi_controls",)
    assert found.codes == ("bidi_controls", "email")


def test_an_audit_entry_counts_what_is_too_much_to_name() -> None:
    assert counted(()) == {}
    many = [f"detector_{number}" for number in range(40)]
    assert counted(many)["detected"] == 40
    assert len(json.dumps(counted(many))) < 500


@given(st.lists(st.sampled_from(["Mira", "Nowak", "ACME-17", "x", "walks", "42"]), max_size=2000))
def test_so_many_names_are_looked_up_and_no_more(words: list[str]) -> None:
    found = names_in(" ".join(words))
    assert len(found) <= MOST_NAMES
    assert len(found) == len(set(found))


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("yesterday Mira called", "Mira"),
        ("yesterday Mira called", "mira"),
        ("Mira Anna Nowak called", "Mira Anna Nowak"),
        ("about customer-4711.", "customer-4711"),
        ("about jonas, again", "jonas"),
        ("to (jonas@example.org)", "jonas@example.org"),
        ('{"who":"ACME-17"}', "ACME-17"),
        ("O’Brien came", "O’Brien"),
    ],
)
def test_what_may_be_a_name_is_looked_up(text: str, name: str) -> None:
    assert name in names_in(text)


def test_an_identifier_is_looked_up_as_written_and_as_a_number() -> None:
    assert {"+48 601 234 567", "+48601234567"} <= set(names_in("call", in_episode("call +48 601 234 567").identifiers))


def test_only_a_credential_is_no_name() -> None:
    assert [is_credential(name) for name in ("mira", "a@example.org", "+48 601 234 567", "kidney clinic", SECRETS[0])] == [
        False, False, False, False, True
    ]  # fmt: skip


def test_the_canonical_text_of_json_is_what_is_kept() -> None:
    value = {"b": [1, "é"], "a": None}
    assert in_episode(value).text == canonical_text(value)
