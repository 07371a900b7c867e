"""Many writers at once, each on a connection of its own: nothing lost, nothing doubled, no deadlock."""

import random
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
from django.db import connection

from memory import recall
from memory.outcomes import Asked, Denied, EpisodeKept, Repeat, Retracted, Written
from tests.memory.doors import Doors, assert_sound, day

WRITERS = 16


@pytest.fixture
def doors(database: Any) -> Any:
    doors = Doors()
    yield doors
    assert_sound(doors)


def at_once(acts: Sequence[Callable[[], Any]]) -> list[Any]:
    """Run every act in a thread with a connection of its own, all started together; fail if any fails or hangs."""
    gate = threading.Barrier(len(acts))
    results: list[Any] = [None] * len(acts)
    failures: list[BaseException] = []

    def run(place: int, act: Callable[[], Any]) -> None:
        try:
            connection.ensure_connection()
            gate.wait(30)
            results[place] = act()
        except BaseException as failure:
            failures.append(failure)
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=each, daemon=True) for each in enumerate(acts)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(90)
    assert not any(thread.is_alive() for thread in threads), "a writer hangs"
    if failures:
        raise failures[0]
    return results


def count(doors: Doors, table: str) -> int:
    return int(doors.sql(f"SELECT count(*) FROM {table}")[0][0])


def test_sixteen_writers_on_one_key_leave_one_current_value_and_every_saying(doors: Doors) -> None:
    def writer(number: int) -> Callable[[], list[Any]]:
        return lambda: [doors.say("plan", f"v{(number + n) % 5}", (number * 7 + n * 3) % 11) for n in range(6)]

    outcomes = [each for some in at_once([writer(number) for number in range(WRITERS)]) for each in some]
    assert {type(each) for each in outcomes} == {Written}
    assert count(doors, "memory_evidence") == len({each.evidence for each in outcomes}) == WRITERS * 6
    assert count(doors, "memory_factkey") == 1
    assert len(doors.values("plan")) == 1
    acts = doors.sql("SELECT count(DISTINCT act_no), count(DISTINCT recorded_at) FROM memory_evidence")
    assert acts == [(WRITERS * 6, WRITERS * 6)]


def test_ties_of_writers_at_once_are_decided_once_and_the_others_asked_about(doors: Doors) -> None:
    outcomes = at_once([partial(doors.say, "city", f"v{number}", 1) for number in range(WRITERS)])
    assert sorted(type(each).__name__ for each in outcomes) == ["Asked"] * (WRITERS - 1) + ["Written"]
    assert count(doors, "memory_candidate") == WRITERS - 1


def test_equal_proposals_at_once_are_one_candidate(doors: Doors) -> None:
    outcomes = at_once([lambda: doors.say("checked", "yes", 1) for _ in range(WRITERS)])
    assert len({each.candidate for each in outcomes}) == 1
    assert doors.sql("SELECT occurrences FROM memory_candidate") == [(WRITERS,)]
    assert count(doors, "memory_candidatesaying") == WRITERS


def test_batches_on_overlapping_keys_in_different_orders_neither_deadlock_nor_lose(doors: Doors) -> None:
    def writer(number: int) -> Callable[[], list[Any]]:
        def act() -> list[Any]:
            chance = random.Random(number)
            found = []
            for turn in range(3):
                places = [(f"subject-{n}", name) for n in range(6) for name in ("plan", "labels")]
                chance.shuffle(places)
                bodies = [
                    doors.body(name, f"v{number % 3}", number + turn, subject=subject) for subject, name in places[:9]
                ]
                found += doors.write(bodies, batch=True)
            return found

        return act

    outcomes = [each for some in at_once([writer(number) for number in range(WRITERS)]) for each in some]
    assert {type(each) for each in outcomes} == {Written}
    assert count(doors, "memory_evidence") == WRITERS * 27
    assert count(doors, "memory_subject") == 6
    assert count(doors, "memory_factkey") == 12


def test_one_new_subject_met_by_eight_writers_is_one_subject(doors: Doors) -> None:
    acts: list[Callable[[], Any]] = [partial(doors.say, "plan", f"v{number}", number) for number in range(4)]
    acts += [lambda: doors.episode("hello", subject="mira"), lambda: doors.name("mira", "m. r.")]
    acts += [
        lambda: doors.write([doors.body("plan", "x", 50, subject=name) for name in ("zoe", "mira", "abe")], batch=True),
        lambda: doors.write([doors.body("plan", "x", 51, subject=name) for name in ("abe", "zoe", "mira")], batch=True),
    ]
    at_once(acts)
    assert count(doors, "memory_subject") == 3
    assert doors.sql("SELECT count(*) FROM memory_subjectidentifier WHERE is_key") == [(3,)]
    assert count(doors, "memory_evidence") == 10
    assert doors.value("plan", 51) == "x"


def test_one_source_sent_at_once_is_one_episode(doors: Doors) -> None:
    outcomes = at_once([lambda: doors.episode("hello", turn_id="one", subject="mira") for _ in range(8)])
    assert {type(each) for each in outcomes} == {EpisodeKept}
    assert len({each.id for each in outcomes}) == 1
    assert [each.repeated for each in outcomes].count(False) == 1


def test_a_request_repeated_at_once_is_carried_out_once(doors: Doors) -> None:
    body = doors.body("plan", "gold", 1)
    repeat = Repeat("key", "facts", b"{}")
    outcomes = at_once([lambda: doors.write([body], repeat=repeat)[0] for _ in range(8)])
    assert len({each.evidence for each in outcomes}) == 1
    assert count(doors, "memory_evidence") == 1


def test_two_decisions_at_once_are_one_decision_and_both_see_it_C144(doors: Doors) -> None:
    for number in range(4):
        asked = doors.say("checked", "yes", 1, subject=f"subject-{number}")
        outcomes = at_once([partial(doors.decide, asked.candidate, accept=accept) for accept in (True, False)])
        denied = [each for each in outcomes if isinstance(each, Denied)]
        assert [each.code for each in denied] == ["already_decided"]
        (state,) = doors.sql("SELECT state FROM memory_candidate WHERE id = %s", asked.candidate)[0]
        accepted = any(isinstance(each, Written) for each in outcomes)
        assert state == ("accepted" if accepted else "rejected")
        assert doors.value("checked", subject=f"subject-{number}") == ("yes" if accepted else None)


def test_a_saying_that_joins_while_a_person_decides_is_in_the_decision_or_waits_anew(doors: Doors) -> None:
    for number in range(4):
        subject = f"subject-{number}"
        asked = doors.say("checked", "yes", 1, subject=subject)
        acts = [
            partial(doors.decide, asked.candidate),
            *(partial(doors.say, "checked", "yes", 2, subject=subject),) * 3,
        ]
        outcomes = at_once(acts)
        waiting = sum(isinstance(each, Asked) and each.candidate != asked.candidate for each in outcomes)
        stored = doors.sql(
            "SELECT count(*) FROM memory_evidence e JOIN memory_factkey k ON k.id = e.key_id WHERE k.subject_id = %s",
            doors.name(subject).id,
        )
        assert stored == [(5 - waiting,)]


def test_one_correction_of_many_at_once_takes_its_target_back(doors: Doors) -> None:
    wrong = doors.say("plan", "basic", 1)
    acts: list[Callable[[], Any]] = [
        partial(doors.say, "plan", f"v{number}", corrects=wrong.evidence) for number in range(6)
    ]
    acts += [lambda: doors.retract(evidence=wrong.evidence), lambda: doors.retract(fact=wrong.fact)]
    outcomes = at_once(acts)
    assert sum(isinstance(each, Written | Retracted) for each in outcomes) == 1
    assert {each.status for each in outcomes if isinstance(each, Denied)} == {409}


def test_episodes_with_facts_single_writes_and_withdrawals_at_once_leave_a_sound_ledger(doors: Doors) -> None:
    names = [f"subject-{number}" for number in range(4)]
    doors.publish(
        {"name": "agreed_mood", "schema": {"type": "string"}, "basis": "consent", "recurrence": {"count": 2, "days": 9}}
    )
    refs = {name: [f"{name}-consent-{n}" for n in range(3)] for name in names}
    for name in names:
        for ref in refs[name]:
            doors.grant(ref, subject=name)

    def talker(number: int) -> Callable[[], list[Any]]:
        def act() -> list[Any]:
            found = []
            for turn in range(4):
                name = names[(number + turn) % 4]
                told = doors.episode(
                    "Rome and Oslo", subject=name, consent_ref=refs[name][turn % 3], turn_id=f"{number}-{turn}"
                )
                if isinstance(told, Denied):
                    continue
                bodies = [
                    doors.body(
                        "agreed",
                        "Rome",
                        number,
                        subject=name,
                        consent=refs[name][turn % 3],
                        episode=told.id,
                        quote="Rome",
                    ),
                    doors.body("plan", "Oslo", number, subject=names[turn], episode=told.id, quote="Oslo"),
                    doors.body(
                        "agreed_mood",
                        "merry",
                        number,
                        subject=name,
                        consent=refs[name][(turn + number) % 3],
                        episode=told.id,
                        confidence=0.2,
                    ),
                ]
                chance = random.Random(number * 10 + turn)
                chance.shuffle(bodies)
                found += doors.write(bodies, batch=True)
            return found

        return act

    def single(number: int) -> Callable[[], list[Any]]:
        return lambda: [
            doors.say("agreed", "Rome", number + n, subject=names[n % 4], consent=refs[names[n % 4]][n % 3])
            for n in range(8)
        ]

    def reader() -> list[Any]:
        found = []
        for _ in range(10):
            with doors.reading():
                found.append(recall.profile(doors.agent, names[0]))
        return found

    def withdraw(name: str) -> list[Any]:
        return [doors.withdraw(ref) for ref in refs[name][:2]]

    acts = [talker(number) for number in range(7)] + [single(number) for number in range(5)] + [reader]
    acts += [partial(withdraw, name) for name in names[:3]]
    results = at_once(acts)
    outcomes = [each for some in results[:12] for each in some]
    written = [each for each in outcomes if isinstance(each, Written)]
    refused = {each.reasons for each in outcomes if isinstance(each, Denied)}
    assert refused <= {("consent_withdrawn",), ("not_found",), ()}
    stored = {row[0] for row in doors.sql("SELECT id FROM memory_evidence")}
    assert {each.evidence for each in written} <= stored
    promoted = doors.sql(
        "SELECT count(*) FROM memory_evidence e JOIN memory_factkey k ON k.id = e.key_id"
        " JOIN policies_attribute a ON a.id = k.attribute_id WHERE a.name = 'agreed_mood'"
    )[0][0]
    others = sum(1 for each in written) - sum(1 for each in written if each.reasons == ("recurred",))
    assert len(stored) - promoted <= others <= len(stored)
    # The evidence that opened a stretch may rest on a withdrawn consent while another keeps the fact: then it is not told.
    told = [each["provenance"] for each in doors.page("agreed", subject=names[0], valid_at=day(30)).results]
    assert not {each["consent_ref"] for each in told if each is not None} & set(refs[names[0]][:2])


def test_no_reader_sees_half_a_batch(doors: Doors) -> None:
    stop = threading.Event()

    def write() -> None:
        for number in range(12):
            doors.write([doors.body(name, f"v{number}", number) for name in ("plan", "shade", "city")], batch=True)
        stop.set()

    def read() -> set[int]:
        found = set()
        while not stop.is_set():
            with doors.reading():
                page = recall.profile(doors.agent, "mira", valid_at=day(100))
            found.add(len({each["value"] for each in page.results}))
        return found

    results = at_once([write, read, read])
    assert results[1] | results[2] <= {0, 1}
