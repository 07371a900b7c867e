"""Ranking what was found: by the words themselves, and by what stands around them. Pure, so without a database."""

import itertools
from datetime import UTC, datetime, timedelta
from uuid import UUID

from memory import lexemes
from memory.ranking import Extent, Hit, Place, newest_first, placed, scored, spread

EXTENT = Extent(entries=100, length=10.0, frequencies={})
BEGAN = datetime(2026, 1, 5, tzinfo=UTC)


def hit(number: int, *counts: int, length: int = 10, score: float = 0.0) -> Hit:
    each = UUID(int=number)
    return Hit(each, each, BEGAN + timedelta(minutes=number), length, counts, score)


def talk(role: str | None, *numbers: int) -> dict[UUID, Place]:
    """Turns of one talk, one right after the other."""
    return {UUID(int=each): Place(role, [UUID(int=each + step) for step in (1, 2, 3)]) for each in numbers}


def numbers(hits: list[Hit]) -> list[int]:
    return [each.target.int for each in hits]


def test_the_order_in_which_entries_were_found_does_not_matter() -> None:
    hits = [hit(1, 1, 0), hit(2, 0, 1), hit(3, 1, 1), hit(4, 1, 0)]
    ranked = [scored(each, EXTENT) for each in itertools.permutations(hits)]
    assert all(each == ranked[0] for each in ranked)
    # Of equal ones the newest first.
    assert numbers(ranked[0]) == [3, 2, 4, 1]


def test_how_something_is_asked_for_weighs_less_than_what() -> None:
    asked = lexemes.lexemes("How should I consider the heron?", "english")
    worth = lexemes.worth(asked, "english")
    assert asked == ["consid", "heron"]
    assert worth == [0.5, 1.0]
    assert lexemes.worth(asked, "simple") == [1.0, 1.0]
    assert numbers(scored([hit(1, 0, 1), hit(2, 1, 0)], EXTENT, worth)) == [1, 2]


def test_turns_around_it_speak_for_a_turn_of_transcribed_speech() -> None:
    hits = [hit(20, 1, score=1.0), hit(10, 1, score=0.9), hit(12, 1, score=0.6)]
    assert numbers(placed(hits, talk(None, 10, 12, 20))) == [10, 20, 12]


def test_a_turn_of_another_talk_or_out_of_sight_speaks_for_nothing() -> None:
    hits = [hit(20, 1, score=1.0), hit(10, 1, score=0.9), hit(11, 1, score=0.8)]
    assert placed(hits, talk(None, 10, 20)) == [hits[0], hits[1]]
    alone = {each: Place(None) for each in talk(None, 10, 11, 20)}
    assert placed(hits, alone) == hits


def test_what_a_person_said_goes_before_what_was_answered() -> None:
    hits = [hit(2, 1, score=1.0), hit(1, 1, score=0.5)]
    assert numbers(placed(hits, {**talk("user", 1), **talk("assistant", 2)})) == [1, 2]
    assert numbers(placed(hits, talk("user", 1, 2))) == [2, 1]


def test_what_is_read_with_a_better_turn_is_put_off() -> None:
    hits = [hit(10, 1, score=3.0), hit(12, 1, score=2.0), hit(13, 1, score=1.0)]
    assert numbers(spread(hits, talk(None, 10, 12, 13))) == [10, 13, 12]
    assert numbers(spread(hits, talk("user", 10, 12, 13))) == [10, 12, 13]


def test_the_newer_goes_first_of_what_a_person_said_and_not_of_a_meeting() -> None:
    hits = [hit(1, 1, score=1.0), hit(9, 1, score=0.9)]
    assert numbers(newest_first(hits, talk("user", 1, 9))) == [9, 1]
    assert numbers(newest_first(hits, talk(None, 1, 9))) == [1, 9]
