import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.legible import Piece, changes, compared, marked, pieces, veiled


def shown(found: list[Piece]) -> str:
    return "".join(chr(int(piece.text[2:], 16)) if piece.unseen else piece.text for piece in found)


def test_the_quote_is_marked_where_it_first_stands() -> None:
    assert pieces("due 1 May, or 1 May", "1 May") == [
        Piece("due ", False, False),
        Piece("1 May", True, False),
        Piece(", or 1 May", False, False),
    ]


def test_what_does_not_show_is_named_also_inside_the_quote() -> None:
    assert pieces("a\u202eb\x00", "\u202eb") == [
        Piece("a", False, False),
        Piece("U+202E", True, True),
        Piece("b", True, False),
        Piece("U+0000", False, True),
    ]


def test_letters_that_do_not_show_are_named_and_what_spelling_needs_is_not() -> None:
    assert pieces("a\u3164b") == [Piece("a", False, False), Piece("U+3164", False, True), Piece("b", False, False)]
    assert pieces("a\ufe0fb")[1] == Piece("U+FE0F", False, True)
    assert pieces("\u2764\ufe0f") == [Piece("\u2764\ufe0f", False, False)]


def test_a_long_text_is_cut_around_its_quote() -> None:
    found = pieces("x" * 50 + "here" + "y" * 50, "here", around=5)
    assert "".join(piece.text for piece in found) == "… xxxxxhereyyyyy …"


def test_without_a_quote_the_beginning_is_shown() -> None:
    assert pieces("abcdef", "", around=3) == [Piece("abc", False, False), Piece(" …", False, False)]
    assert pieces("abc", "z") == [Piece("abc", False, False)]


@given(st.text(max_size=200), st.text(max_size=5))
def test_nothing_is_lost_and_nothing_is_added(text: str, quote: str) -> None:
    found = pieces(text, quote)
    assert shown(found) == text
    assert "".join(chr(int(p.text[2:], 16)) if p.unseen else p.text for p in found if p.quoted) in ("", quote)


def test_what_two_values_have_in_common_is_not_marked() -> None:
    before, after = compared("2031-07-15", "2031-06-30")
    assert [piece.text for piece in before if piece.changed] == ["07", "15"]
    assert [piece.text for piece in after if piece.changed] == ["06", "30"]
    assert shown(before) == "2031-07-15"


@given(st.text(max_size=80), st.text(max_size=80))
def test_comparing_loses_nothing_and_names_what_would_not_show(old: str, new: str) -> None:
    before, after = compared(old, new)
    assert (shown(before), shown(after)) == (old, new)
    if old == new:
        assert not [piece for piece in before + after if piece.changed]


def rebuilt(told: Any, without: str) -> str:
    return "".join(piece.text for change in told if change.kind != without for piece in change.pieces)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("", "new"),
        ("old", ""),
        ("Refund 50 euros.\nAsk first.\n", "Refund 40 euros.\nAsk first.\nThen write.\n"),
        ("a\nb\nc", "a\nB\nc\n"),
        ("same", "same"),
        ("x " * 5_000, "y " * 5_000),
    ],
)
def test_changes_read_without_what_went_are_the_new_text_and_without_what_came_the_old(old: str, new: str) -> None:
    told = changes(old, new)
    assert (rebuilt(told, "gone"), rebuilt(told, "new")) == (new, old)


def test_changes_name_the_words_that_changed_and_what_would_not_show() -> None:
    told = changes("Refund 50 euros.\n", "Refund 5\u200b0 euros.\n")
    assert [(each.kind, "".join(piece.text for piece in each.pieces)) for each in told] == [
        ("kept", "Refund "),
        ("gone", "50"),
        ("new", "5U+200B0"),
        ("kept", " euros.\n"),
    ]
    assert [piece.unseen for piece in told[2].pieces] == [False, True, False]


def test_changes_of_long_texts_are_found_in_time() -> None:
    lines = [f"Step {number}: ask for the number of order {number}, then wait.\n" for number in range(1_000)]
    began = time.monotonic()
    told = changes("".join(lines), "".join([*lines[:500], "One more step.\n", *lines[500:]]))
    assert [each.kind for each in told] == ["kept", "new", "kept"]
    assert time.monotonic() - began < 5


def test_beside_the_quote_what_names_a_person_is_masked_and_the_quote_is_not() -> None:
    text = "I am Mira, mira@example.com. Write to mira@example.com or call +44 20 7946 0958."
    found = veiled(text, "I am Mira, mira@example.com.", names=["Mira"])
    assert "".join(piece.text for piece in found if piece.quoted) == "I am Mira, mira@example.com."
    assert [piece.text for piece in found if piece.masked] == ["EMAIL", "PHONE"]
    assert "7946" not in "".join(piece.text for piece in found)


def test_of_a_line_without_end_a_part_is_read_around_the_quote() -> None:
    text = "x" * 500_000 + "the quote" + "y" * 500_000
    found = veiled(text, "the quote")
    assert sum(len(piece.text) for piece in found) < 4_000
    assert [piece.text for piece in found if piece.quoted] == ["the quote"]


def test_what_would_not_show_is_named_beside_a_mask_too() -> None:
    found = veiled("a\u202eb mira@example.com \u200bc", "")
    assert [piece.text for piece in found if piece.unseen] == ["U+202E", "U+200B"]
    assert [piece.text for piece in found if piece.masked] == ["EMAIL"]


def test_spans_are_marked_and_what_names_a_person_beside_them_is_masked() -> None:
    text = "Mira and a@example.com and mira"
    found = marked(text, [(0, 4), (27, 31)])
    assert [piece.text for piece in found if piece.quoted] == ["Mira", "mira"]
    assert [piece.text for piece in found if piece.masked] == ["EMAIL"]
    assert shown(marked(text, [(0, 4)], veil=False)) == text


@given(st.text(max_size=60), st.integers(0, 70), st.integers(0, 20), st.integers(0, 30))
def test_what_is_marked_stands_for_every_character_of_the_text(text: str, start: int, long: int, around: int) -> None:
    found = marked(text, [(start, start + long)], veil=False, around=around)
    assert sum(len(piece.text) if piece.covers is None else piece.covers for piece in found) == len(text)
    assert shown([piece for piece in found if piece.quoted]) == text[start : start + long]
