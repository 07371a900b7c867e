from __future__ import annotations

import enum

import pytest

from policies import vocabulary
from policies.vocabulary import Sensitivity


def test_sensitivity_is_ordered_from_public_to_restricted() -> None:
    assert sorted(Sensitivity) == [
        Sensitivity.PUBLIC,
        Sensitivity.INTERNAL,
        Sensitivity.PERSONAL,
        Sensitivity.RESTRICTED,
    ]
    assert [int(member) for member in Sensitivity] == [0, 1, 2, 3]


def test_a_sensitivity_is_found_again_by_its_label() -> None:
    assert all(Sensitivity.of(member.label) is member for member in Sensitivity)


@pytest.mark.parametrize("label", ["PUBLIC", "secret", "", " public", "2"])
def test_an_unknown_label_is_refused_without_being_repeated(label: str) -> None:
    with pytest.raises(KeyError) as refusal:
        Sensitivity.of(label)
    assert str(refusal.value) == "'unknown sensitivity'"


def test_personal_and_restricted_content_is_encrypted_and_the_rest_is_not() -> None:
    assert [member for member in Sensitivity if member.encrypted] == [
        Sensitivity.PERSONAL,
        Sensitivity.RESTRICTED,
    ]


def test_every_textual_word_is_its_own_lower_case_name() -> None:
    lists = [
        item
        for item in vars(vocabulary).values()
        if isinstance(item, type) and issubclass(item, enum.StrEnum) and item is not enum.StrEnum
    ]
    assert len(lists) == 8
    assert all(member.value == member.name.lower() for words in lists for member in words)
