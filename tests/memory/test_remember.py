"""What the write door does with a saying, row by row of the table, and with what waits, ends or is taken back."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from memory.outcomes import Asked, Denied, EpisodeKept, Repeat, Retracted, Written
from tenants import audit
from tenants.actors import Scope
from tenants.errors import Clash, Forbidden, Missing
from tests.memory.doors import MICROSECOND, Doors, assert_sound, day


@pytest.fixture
def doors(database: Any) -> Any:
    doors = Doors()
    yield doors
    assert_sound(doors)


# the table ------------------------------------------------------------------------------------------------------------


def test_the_first_saying_holds_from_its_valid_from_and_open(doors: Doors) -> None:
    said = doors.say("city", "Rome", 1)
    assert (said.change, said.status) == ("new", 201)
    assert [doors.value("city", at) for at in (0.99, 1, 4000)] == [None, "Rome", "Rome"]
    assert doors.page(valid_at=day(2)).results[0]["valid_to"] is None


def test_a_later_other_value_ends_the_former_and_supersedes_it(doors: Doors) -> None:
    first, second = doors.say("city", "Rome", 1), doors.say("city", "Oslo", 3)
    assert second.change == "update"
    (found,) = doors.page(valid_at=day(3)).results
    assert (found["value"], found["supersedes"], found["valid_from"]) == ("Oslo", first.fact, day(3))
    (former,) = doors.page(valid_at=day(3) - MICROSECOND).results
    assert (former["value"], former["valid_to"], former["supersedes"]) == ("Rome", day(3), None)


def test_the_value_that_already_holds_is_one_more_piece_of_evidence(doors: Doors) -> None:
    first = doors.say("city", "Rome", 1, confidence=0.6)
    again = doors.say("city", "Rome", 2, confidence=0.5)
    assert (again.change, again.status, again.fact) == ("no_change", 200, first.fact)
    (found,) = doors.page().results
    assert (found["evidence_count"], found["confidence"], found["valid_from"]) == (2, 0.6, day(1))


def test_what_comes_late_and_earlier_than_everything_leaves_the_current_value_alone(doors: Doors) -> None:
    doors.say("city", "Oslo", 3)
    late = doors.say("city", "Rome", 1)
    assert late.change == "late"
    assert [doors.value("city", at) for at in (0, 1, 3, 9)] == [None, "Rome", "Oslo", "Oslo"]


def test_the_same_value_that_comes_late_joins_and_holds_from_earlier(doors: Doors) -> None:
    first = doors.say("city", "Rome", 3)
    late = doors.say("city", "Rome", 1)
    assert (late.change, late.fact) == ("late", first.fact)
    (found,) = doors.page().results
    assert (found["valid_from"], found["evidence_count"]) == (day(1), 2)


def test_inside_a_past_stretch_it_is_cut_and_what_was_said_again_later_stands_again(doors: Doors) -> None:
    doors.say("city", "Rome", 1)
    doors.say("city", "Rome", 5)
    assert doors.say("city", "Oslo", 3).change == "late"
    assert [doors.value("city", at) for at in (1, 3, 4.99, 5)] == ["Rome", "Oslo", "Oslo", "Rome"]


def test_a_stated_end_holds_for_that_portion_and_afterwards_what_stands_without_it(doors: Doors) -> None:
    doors.say("city", "Rome", 1)
    doors.say("city", "Oslo", 3, 5)
    assert [doors.value("city", at) for at in (2, 3, 4.99, 5, 9)] == ["Rome", "Oslo", "Oslo", "Rome", "Rome"]
    doors.say("city", "Kyiv", 7, 8)
    assert [doors.value("city", at) for at in (6, 7, 8)] == ["Rome", "Kyiv", "Rome"]


def test_a_portion_alone_leaves_nothing_afterwards(doors: Doors) -> None:
    doors.say("city", "Rome", 1, 2)
    assert [doors.value("city", at) for at in (1, 2)] == ["Rome", None]
    doors.say("city", "Oslo", 4)
    assert [doors.value("city", at) for at in (1, 3, 4)] == ["Rome", None, "Oslo"]


def test_after_an_end_nothing_is_known_to_hold(doors: Doors) -> None:
    doors.say("city", "Rome", 1)
    ended = doors.end("city", None, 4)
    assert (ended.change, ended.fact) == ("ended", None)
    assert [doors.value("city", at) for at in (3, 4, 9)] == ["Rome", None, None]
    doors.say("city", "Rome", 6)
    assert [doors.value("city", at) for at in (4, 6)] == [None, "Rome"]
    assert doors.page(valid_at=day(6)).results[0]["supersedes"] is None


def test_on_a_multi_valued_attribute_values_stand_side_by_side_and_an_end_with_a_value_ends_that_one(
    doors: Doors,
) -> None:
    doors.say("tags", "a", 1)
    doors.say("tags", "b", 2)
    doors.end("tags", "b", 4)
    assert [doors.values("tags", at) for at in (1, 2, 4)] == [["a"], ["a", "b"], ["a"]]


def test_an_end_without_a_value_ends_every_chain_also_those_that_come_later(doors: Doors) -> None:
    doors.say("tags", "a", 1)
    doors.end("tags", None, 5)
    doors.say("tags", "c", 3)
    doors.say("tags", "a", 7)
    assert [doors.values("tags", at) for at in (1, 3, 5, 6, 7)] == [["a"], ["a", "c"], [], [], ["a"]]


def test_an_end_with_a_value_that_was_never_said_waits_for_it(doors: Doors) -> None:
    doors.end("tags", "z", 3)
    assert doors.values("tags", 4) == []
    doors.say("tags", "z", 1)
    assert [doors.values("tags", at) for at in (1, 3)] == [["z"], []]


def test_ended_with_a_value_on_a_single_valued_attribute_is_refused(doors: Doors) -> None:
    denied = doors.end("city", "Rome", 4)
    assert (denied.status, denied.code, denied.errors[0].path) == (422, "ended_with_value_on_single", "value")


def test_equals_of_one_instant_are_asked_about_and_nothing_changes(doors: Doors) -> None:
    doors.say("city", "Rome", 1)
    before = doors.counts()
    asked = doors.say("city", "Oslo", 1)
    assert (asked.status, asked.verdict, asked.reasons) == (202, "ask", ("conflict_of_equals",))
    assert doors.value("city", 2) == "Rome"
    after = doors.counts()
    assert [after[name] - before[name] for name in ("memory_evidence", "memory_belief", "memory_fact")] == [0, 0, 0]
    assert after["memory_candidate"] == 1


def test_of_one_instant_the_more_trusted_wins_and_the_loser_decides_again_once_the_winner_is_gone(doors: Doors) -> None:
    doors.say("city", "Rome", 1)
    high = doors.say("city", "Oslo", 1, by=doors.high)
    assert isinstance(doors.say("city", "Kyiv", 1, by=doors.low), Written)
    assert doors.value("city", 2) == "Oslo"
    doors.retract(evidence=high.evidence, by=doors.high)
    assert doors.value("city", 2) == "Rome"


def test_what_a_person_confirmed_beats_any_trust(doors: Doors) -> None:
    doors.say("city", "Oslo", 1, by=doors.high)
    doors.say("city", "Rome", 1, by=doors.person, source="confirmation")
    doors.say("city", "Kyiv", 1, by=doors.high)
    assert doors.value("city", 2) == "Rome" or pytest.fail("a person's word was outranked")


def test_under_latest_the_later_act_wins_a_tie(doors: Doors) -> None:
    doors.say("plan", "basic", 1, by=doors.high)
    doors.say("plan", "gold", 1, by=doors.low)
    assert doors.value("plan", 2) == "gold"


def test_under_review_every_tie_goes_to_a_person_whatever_the_trust(doors: Doors) -> None:
    doors.say("grade", "b", 1, by=doors.low)
    assert doors.say("grade", "a", 1, by=doors.high).reasons == ("conflict_for_review",)
    assert doors.value("grade", 2) == "b"


def test_where_the_policy_refuses_conflicts_a_tie_stores_nothing(doors: Doors) -> None:
    doors.policy(on_conflict="refuse")
    doors.say("city", "Rome", 1)
    before = doors.counts()
    denied = doors.say("city", "Oslo", 1)
    assert (denied.status, denied.code) == (409, "conflict")
    assert doors.counts() == before


def test_an_end_and_a_value_of_one_instant_are_a_conflict_also_for_a_value_that_is_new_to_the_key(doors: Doors) -> None:
    doors.end("tags", None, 5)
    assert isinstance(doors.say("tags", "a", 5), Asked)
    doors.say("city", "Rome", 5)
    assert isinstance(doors.end("city", None, 5), Asked)


def test_a_correction_takes_back_the_old_and_stands_in_its_place_and_time(doors: Doors) -> None:
    wrong = doors.say("city", "Rome", 1, 9)
    right = doors.say("city", "Oslo", corrects=wrong.evidence)
    assert right.change == "corrected"
    assert [doors.value("city", at) for at in (1, 8, 9)] == ["Oslo", "Oslo", None]
    before = doors.sql("SELECT recorded_at FROM memory_evidence WHERE id = %s", right.evidence)[0][0] - MICROSECOND
    assert doors.value("city", 5, before) == "Rome"
    assert doors.sql("SELECT corrects_id FROM memory_evidence WHERE id = %s", right.evidence) == [(wrong.evidence,)]


def test_a_correction_of_a_fact_takes_back_all_its_evidence(doors: Doors) -> None:
    wrong = doors.say("city", "Rome", 1)
    doors.say("city", "Rome", 3)
    doors.say("city", "Oslo", corrects=wrong.fact)
    assert [doors.value("city", at) for at in (1, 3, 9)] == ["Oslo"] * 3


def test_a_correction_of_the_time_alone_keeps_the_fact(doors: Doors) -> None:
    wrong = doors.say("city", "Rome", 1)
    right = doors.say("city", "Rome", 3, corrects=wrong.evidence)
    assert right.fact == wrong.fact
    assert [doors.value("city", at) for at in (2, 3)] == [None, "Rome"]
    assert doors.page().results[0]["evidence_count"] == 1


def test_a_correction_across_the_values_of_a_multi_valued_attribute_moves_from_chain_to_chain(doors: Doors) -> None:
    wrong = doors.say("tags", "a", 1)
    doors.say("tags", "b", corrects=wrong.evidence)
    assert doors.values("tags", 2) == ["b"]
    ended = doors.end("tags", None, 5)
    doors.say("tags", "c", corrects=ended.evidence)
    assert doors.values("tags", 6) == ["b", "c"]


def test_what_was_corrected_once_is_not_corrected_again_in_one_batch_either(doors: Doors) -> None:
    wrong = doors.say("plan", "basic", 1)
    bodies = [doors.body("plan", value, corrects=wrong.evidence) for value in ("silver", "gold")]
    first, second = doors.write(bodies, batch=True)
    assert isinstance(first, Written)
    assert (second.status, second.code) == (409, "already_retracted")
    assert doors.value("plan", 2) == "silver"


def test_a_correction_of_a_fact_in_a_batch_takes_back_what_the_same_batch_said_before(doors: Doors) -> None:
    wrong = doors.say("plan", "basic", 1)
    doors.write([doors.body("plan", "basic", 2), doors.body("plan", "gold", corrects=wrong.fact)], batch=True)
    assert [doors.value("plan", at) for at in (1, 3)] == ["gold", "gold"]


def test_a_correction_of_another_key_or_of_nothing_is_refused(doors: Doors) -> None:
    said = doors.say("city", "Rome", 1)
    assert doors.say("plan", "gold", corrects=said.evidence).code == "other_key"
    assert doors.say("city", "Oslo", corrects=uuid4()).code == "not_found"


def test_what_stands_without_retracted_evidence_holds_again(doors: Doors) -> None:
    doors.say("city", "Rome", 1)
    second = doors.say("city", "Oslo", 3)
    taken = doors.retract(evidence=second.evidence)
    assert taken.evidence == (second.evidence,)
    assert doors.value("city", 4) == "Rome"
    assert doors.retract(evidence=second.evidence).code == "already_retracted"


def test_a_retracted_fact_loses_all_its_evidence_and_may_be_said_again(doors: Doors) -> None:
    first = doors.say("city", "Rome", 1)
    doors.say("city", "Rome", 3)
    assert len(doors.retract(fact=first.fact).evidence) == 2
    assert doors.value("city", 4) is None
    again = doors.say("city", "Rome", 2)
    assert again.fact == first.fact
    assert [doors.value("city", at) for at in (1, 2)] == [None, "Rome"]


def test_a_retracted_end_lets_hold_what_it_ended(doors: Doors) -> None:
    doors.say("tags", "a", 1)
    doors.say("tags", "b", 1)
    ended = doors.end("tags", None, 3)
    assert doors.values("tags", 4) == []
    doors.retract(evidence=ended.evidence)
    assert doors.values("tags", 4) == ["a", "b"]


def test_evidence_of_nobody_here_is_missing(doors: Doors) -> None:
    with pytest.raises(Missing):
        doors.retract(evidence=uuid4())


def test_without_valid_from_the_episode_tells_when_and_else_the_recording(doors: Doors) -> None:
    told = doors.episode("moved to Rome", occurred_at=day(7))
    doors.say("city", "Rome", episode=told.id, quote="Rome")
    assert doors.page(valid_at=day(7)).results[0]["valid_from"] == day(7)
    said = doors.say("city", "Oslo")
    rows_found = doors.sql("SELECT valid_from = recorded_at FROM memory_evidence WHERE id = %s", said.evidence)
    assert rows_found == [(True,)]


# endings by expiry ------------------------------------------------------------------------------------------------------


def test_a_fact_that_ended_stays_as_a_boundary_and_what_held_before_does_not_come_back(doors: Doors) -> None:
    doors.say("city", "Rome", 1)
    second = doors.say("city", "Oslo", 3)
    doors.expire(second.fact)
    page = doors.page(valid_at=day(4))
    assert (page.results, page.withheld) == ([], {"expired": 1})
    assert doors.value("city", 2) == "Rome"


def test_the_same_value_said_after_its_fact_expired_is_a_new_fact(doors: Doors) -> None:
    old = doors.say("city", "Rome", 1)
    doors.expire(old.fact)
    new = doors.say("city", "Rome", 5)
    assert new.fact != old.fact
    assert [doors.value("city", at) for at in (2, 5)] == [None, "Rome"]
    assert doors.page(valid_at=day(5)).results[0]["supersedes"] is None
    assert doors.sql("SELECT ended_by FROM memory_fact WHERE id = %s", old.fact) == [("expired",)]


@pytest.mark.parametrize("value", ["Rome", "Oslo"])
def test_an_expired_fact_neither_blocks_nor_swallows_what_is_said_of_the_same_instant(doors: Doors, value: str) -> None:
    old = doors.say("city", "Rome", 1, by=doors.high)
    doors.expire(old.fact)
    new = doors.say("city", value, 1, by=doors.low)
    assert isinstance(new, Written)
    assert doors.value("city", 2) == value


def test_what_is_overdue_can_neither_be_retracted_nor_corrected_whether_or_not_it_is_settled(doors: Doors) -> None:
    doors.say("city", "Rome", 1)
    over = doors.say("city", "Oslo", 3)
    doors.expire(over.fact)
    for _ in range(2):
        assert doors.retract(evidence=over.evidence).code == "fact_ended"
        assert doors.retract(fact=over.fact).code == "fact_ended"
        assert doors.say("city", "Kyiv", corrects=over.evidence).code == "fact_ended"
        assert doors.value("city", 4) is None
        doors.say("city", "Riga", 9)


def test_the_boundary_goes_when_nothing_kept_stands_before_it_in_belief_only_by_its_own_evidence(doors: Doors) -> None:
    over = doors.say("city", "Oslo", 3)
    doors.expire(over.fact)
    doors.say("city", "Rome", 1)
    assert [doors.value("city", at) for at in (1, 2.99, 3)] == ["Rome", "Rome", None]


# class and expiry -------------------------------------------------------------------------------------------------------


def test_class_and_expiry_are_the_highest_and_the_latest_of_what_stands_also_after_a_retraction(doors: Doors) -> None:
    doors.say("shade", "blue", 1)
    strict = doors.say("shade", "blue", 1, sensitivity="restricted", tool="t", retention={"basis": "contract"})
    (found,) = doors.page("shade").results
    assert (found["sensitivity"], found["retention"]["basis"]) == ("restricted", "contract")
    doors.retract(evidence=strict.evidence)
    (found,) = doors.page("shade").results
    assert (found["sensitivity"], found["retention"]["basis"]) == ("public", "session")


def test_class_raised_by_a_later_saying_seals_what_stood_in_clear_quotes_included(doors: Doors) -> None:
    told = doors.episode("the shade is blue", sensitivity="public")
    doors.say("shade", "blue", 1, episode=told.id, quote="blue")
    assert doors.sql(
        "SELECT count(*) FROM memory_payload WHERE purpose IN ('value', 'quote') AND clear IS NOT NULL"
    ) == [(2,)]
    doors.say("shade", "blue", 1, sensitivity="personal")
    doors.say("shade", "blue", 1, episode=told.id, quote="blue")
    assert doors.sql(
        "SELECT count(*) FROM memory_payload WHERE purpose IN ('value', 'quote') AND clear IS NOT NULL"
    ) == [(0,)]
    assert doors.value("shade") == "blue"
    assert doors.value("shade", by=doors.uncleared) is None


def test_what_was_taken_back_leaves_its_class_behind_when_the_value_is_said_anew(doors: Doors) -> None:
    strict = doors.say("shade", "blue", 1, sensitivity="restricted", tool="t")
    doors.retract(evidence=strict.evidence)
    doors.say("shade", "blue", 1)
    assert doors.value("shade", by=doors.uncleared) == "blue"


def test_what_is_kept_without_an_end_keeps_its_date_of_review_through_a_retraction(doors: Doors) -> None:
    doors.say("lasting", "Rome", 1)
    second = doors.say("lasting", "Rome", 2)
    doors.retract(evidence=second.evidence)
    assert doors.sql("SELECT review_at IS NOT NULL, expires_at IS NULL FROM memory_fact") == [(True, True)]


def test_a_person_is_asked_before_a_saying_is_freed_from_its_attributes_own_basis(doors: Doors) -> None:
    asked = doors.say("city", "Rome", 1, retention={"basis": "indefinite"})
    assert (asked.verdict, asked.reasons) == ("ask", ("basis_loosened",))
    assert doors.say("lasting", "Rome", 1, retention={"basis": "indefinite"}).change == "new"
    assert doors.say("lasting", "Oslo", 2, retention={"basis": "session"}).change == "update"


def test_an_end_counts_as_no_evidence_of_its_value(doors: Doors) -> None:
    doors.say("tags", "a", 1)
    second = doors.say("tags", "a", 2)
    doors.end("tags", "a", 5)
    doors.retract(evidence=second.evidence)
    assert doors.page("tags", valid_at=day(3)).results[0]["evidence_count"] == 1


def test_a_writer_may_shorten_a_life_but_never_extend_it(doors: Doors) -> None:
    soon = datetime.now(UTC) + timedelta(days=1)
    doors.say("city", "Rome", 1, retention={"basis": "session", "expires_at": soon})
    assert doors.page().results[0]["retention"]["expires_at"] == soon
    late = datetime.now(UTC) + timedelta(days=4000)
    denied = doors.say("city", "Oslo", 2, retention={"basis": "session", "expires_at": late})
    assert (denied.status, denied.reasons) == (422, ("expiry_too_late",))


# trust, people, clearance -----------------------------------------------------------------------------------------------


def test_taking_back_what_another_said_needs_trust_at_least_equal(doors: Doors) -> None:
    said = doors.say("city", "Rome", 1)
    assert doors.retract(evidence=said.evidence, by=doors.low).code == "trust_too_low"
    assert doors.say("city", "Oslo", corrects=said.evidence, by=doors.low).status == 403
    assert doors.value("city") == "Rome"
    assert isinstance(doors.retract(evidence=said.evidence, by=doors.high), Retracted)


def test_what_a_person_confirmed_is_taken_back_by_a_person_only(doors: Doors) -> None:
    said = doors.say("city", "Rome", 1, by=doors.person, source="confirmation")
    asked = doors.retract(evidence=said.evidence, by=doors.high)
    assert asked.reasons == ("confirmed_by_a_person",)
    assert doors.value("city") == "Rome"
    assert isinstance(doors.decide(asked.candidate), Retracted)
    assert doors.value("city") is None


def test_an_agent_cannot_confirm_nor_decide(doors: Doors) -> None:
    assert doors.say("city", "Rome", 1, source="confirmation").code == "a_person_confirms"
    asked = doors.say("checked", "yes", 1)
    with pytest.raises(Forbidden):
        doors.decide(asked.candidate, by=doors.high)


def test_a_writer_below_the_keys_class_gets_a_blind_receipt(doors: Doors) -> None:
    doors.say("shade", "blue", 1, sensitivity="restricted", tool="t")
    same = doors.say("shade", "blue", 1, by=doors.uncleared)
    other = doors.say("shade", "red", 1, by=doors.uncleared)
    later = doors.say("shade", "red", 2, by=doors.uncleared)
    assert [each.blind for each in (same, other, later)] == [True, True, True]
    assert {each.status for each in (same, other, later)} == {201}


# what waits -------------------------------------------------------------------------------------------------------------


def test_an_equal_proposal_joins_the_one_that_waits_and_the_queue_does_not_grow_C149(doors: Doors) -> None:
    first = doors.say("checked", "yes", 1)
    again = doors.say("checked", "yes", 2, by=doors.high)
    assert (first.status, again.candidate) == (202, first.candidate)
    assert doors.sql("SELECT state, occurrences FROM memory_candidate") == [("asked", 2)]


def test_a_proposal_of_what_holds_already_joins_it_as_evidence_C149(doors: Doors) -> None:
    asked = doors.say("checked", "yes", 1)
    doors.decide(asked.candidate)
    again = doors.say("checked", "yes", 3)
    assert again.change == "no_change"
    assert doors.page("checked").results[0]["evidence_count"] == 3


def test_accepting_makes_it_hold_with_the_sayings_and_the_persons_own(doors: Doors) -> None:
    asked = doors.say("checked", "yes", 1)
    doors.say("checked", "yes", 2)
    written = doors.decide(asked.candidate)
    (found,) = doors.page("checked", valid_at=day(1)).results
    assert (found["id"], found["evidence_count"], found["confirmed"]) == (written.fact, 3, True)


def test_rejecting_leaves_everything_as_it_was(doors: Doors) -> None:
    asked = doors.say("checked", "yes", 1)
    doors.decide(asked.candidate, accept=False)
    assert doors.values("checked") == []
    assert doors.sql("SELECT state FROM memory_candidate") == [("rejected",)]


def test_what_was_decided_is_not_decided_again_C144(doors: Doors) -> None:
    asked = doors.say("checked", "yes", 1)
    doors.decide(asked.candidate)
    for accept in (True, False):
        assert doors.decide(asked.candidate, accept=accept).code == "already_decided"
    assert doors.value("checked") == "yes"


def test_an_accepted_conflict_candidate_holds(doors: Doors) -> None:
    doors.say("city", "Rome", 1, by=doors.high)
    asked = doors.say("city", "Oslo", 1, by=doors.high)
    doors.decide(asked.candidate)
    assert doors.value("city", 2) == "Oslo"
    other = doors.say("grade", "a", 1)
    asked = doors.say("grade", "b", 1)
    doors.decide(asked.candidate)
    assert (doors.value("grade", 2), other.change) == ("b", "new")


def test_an_accepted_correction_of_a_confirmed_fact_takes_back_all_of_it(doors: Doors) -> None:
    confirmed = doors.decide(doors.say("checked", "yes", 1).candidate)
    asked = doors.say("checked", "no", corrects=confirmed.fact)
    assert isinstance(asked, Asked)
    doors.decide(asked.candidate)
    assert doors.value("checked", 2) == "no"
    standing = "SELECT count(*) FROM memory_evidence WHERE fact_id = %s AND retracted_at IS NULL"
    assert doors.sql(standing, confirmed.fact) == [(0,)]


def test_sayings_that_stand_at_once_are_reconciled_in_any_order_of_their_instants(doors: Doors) -> None:
    doors.say("mood", "sad", 0.5)
    doors.say("mood", "bored", 2.6)
    for start in (3, 2, 1):
        said = doors.say("mood", "merry", start, confidence=0.3)
    assert isinstance(said, Written)
    found = [doors.value("mood", at) for at in (0.7, 1, 2.5, 2.7, 3)]
    assert found == ["sad", "merry", "merry", "bored", "merry"]


def test_a_lapsed_proposal_to_take_back_makes_way_for_a_new_one(doors: Doors, superuser: Any) -> None:
    confirmed = doors.decide(doors.say("checked", "yes", 1).candidate)
    asked = doors.retract(fact=confirmed.fact)
    assert doors.retract(fact=confirmed.fact).candidate == asked.candidate
    _lapse(superuser, asked.candidate)
    again = doors.retract(fact=confirmed.fact)
    assert again.candidate != asked.candidate
    doors.decide(again.candidate)
    assert doors.values("checked") == []


def test_confirming_what_rests_on_a_withdrawn_consent_is_denied(doors: Doors) -> None:
    doors.publish({"name": "asked_of", "schema": {"type": "string"}, "basis": "consent", "confirm": "always"})
    doors.grant("c-1")
    asked = doors.say("asked_of", "yes", 1, consent="c-1")
    doors.withdraw("c-1")
    assert doors.decide(asked.candidate).code == "consent_withdrawn"


def test_a_proposed_value_follows_the_class_of_its_highest_saying(doors: Doors) -> None:
    doors.say("shade", "blue", 1)
    doors.say("shade", "red", 1)
    doors.say("shade", "red", 1, sensitivity="restricted", tool="t")
    found = doors.sql(
        "SELECT c.sensitivity, p.sensitivity, p.clear FROM memory_candidate c JOIN memory_payload p ON p.id = c.payload_id"
    )
    assert found == [(3, 3, None)]


def _lapse(superuser: Any, candidate: Any) -> None:
    superuser.execute(
        "UPDATE memory_candidate SET expires_at = clock_timestamp() - interval '1 s' WHERE id = %s", [candidate]
    )


# recurrence -------------------------------------------------------------------------------------------------------------


def test_a_weak_signal_waits_until_it_came_from_enough_distinct_episodes(doors: Doors) -> None:
    told = [doors.episode(f"merry {number}", occurred_at=day(number)).id for number in range(3)]
    first = doors.say("mood", "merry", episode=told[0], confidence=0.3)
    assert (first.status, first.verdict) == (202, "buffer")
    same = doors.say("mood", "merry", episode=told[0], confidence=0.3)
    second = doors.say("mood", "merry", episode=told[1], confidence=0.3)
    assert {same.candidate, second.candidate} == {first.candidate}
    assert doors.values("mood") == []
    third = doors.say("mood", "merry", episode=told[2], confidence=0.3)
    assert isinstance(third, Written)
    (found,) = doors.page("mood").results
    assert (found["valid_from"], found["evidence_count"]) == (day(0), 4)
    assert doors.sql("SELECT state FROM memory_candidate") == [("promoted",)]


def test_a_buffered_proposal_expires_and_does_not_count_afterwards(doors: Doors, superuser: Any) -> None:
    first = doors.say("mood", "merry", 1, confidence=0.3)
    doors.say("mood", "merry", 1, confidence=0.3)
    _lapse(superuser, first.candidate)
    again = doors.say("mood", "merry", 1, confidence=0.3)
    assert isinstance(again, Asked)
    assert again.candidate != first.candidate
    assert sorted(doors.sql("SELECT state FROM memory_candidate")) == [("buffered",), ("expired",)]


def test_recurrence_does_not_pass_over_a_conflict(doors: Doors) -> None:
    doors.say("mood", "sad", 1)
    for _ in range(3):
        said = doors.say("mood", "merry", 1, confidence=0.3)
    assert (said.verdict, said.reasons) == ("ask", ("conflict_of_equals",))
    assert doors.value("mood", 2) == "sad"
    doors.decide(said.candidate)
    assert doors.value("mood", 2) == "merry"


def test_what_a_person_is_asked_about_is_not_decided_by_repetition_C140(doors: Doors) -> None:
    doors.say("mood", "sad", 1)
    doors.say("mood", "merry", 1)
    for _ in range(4):
        assert isinstance(doors.say("mood", "merry", 1, confidence=0.3), Asked)
    assert doors.value("mood", 2) == "sad"


def test_a_strong_saying_turns_what_was_buffered_into_what_is_asked_about(doors: Doors) -> None:
    doors.say("mood", "merry", 1, confidence=0.3)
    doors.say("mood", "sad", 1)
    assert isinstance(doors.say("mood", "merry", 1), Asked)
    assert doors.sql("SELECT state, occurrences FROM memory_candidate") == [("asked", 2)]


# consents ---------------------------------------------------------------------------------------------------------------


def test_a_withdrawn_consent_hides_at_once_and_another_or_none_keeps_the_fact(doors: Doors) -> None:
    for ref in ("c-1", "c-2"):
        doors.grant(ref)
    doors.say("agreed", "one", 1, subject="mira", consent="c-1")
    doors.say("agreed", "one", 1, subject="mira", consent="c-2")
    doors.withdraw("c-1")
    assert doors.value("agreed") == "one"
    doors.withdraw("c-2")
    page = doors.page("agreed")
    assert (page.results, page.withheld) == ([], {"consent": 1})


def test_evidence_without_a_consent_keeps_the_fact_when_the_consent_goes(doors: Doors) -> None:
    doors.grant("c-1")
    doors.say("city", "Rome", 1, consent="c-1", retention={"basis": "consent"})
    free = doors.say("city", "Rome", 1)
    doors.withdraw("c-1")
    assert doors.value("city") == "Rome"
    doors.retract(evidence=free.evidence)
    assert doors.value("city") is None


def test_a_write_on_a_withdrawn_a_foreign_or_no_consent_is_refused(doors: Doors) -> None:
    doors.grant("c-1")
    doors.grant("c-2", subject="theo")
    doors.withdraw("c-1")
    assert doors.say("agreed", "one", 1, consent="c-1").reasons == ("consent_withdrawn",)
    assert doors.say("agreed", "one", 1, consent="c-2").reasons == ("consent_missing",)
    assert doors.say("agreed", "one", 1, consent="c-3").reasons == ("consent_missing",)
    assert doors.say("agreed", "one", 1).code == "consent_ref_needed"


def test_the_fact_of_a_withdrawn_consent_is_settled_and_lets_a_new_one_in(doors: Doors) -> None:
    doors.grant("c-1")
    old = doors.say("agreed", "one", 1, consent="c-1")
    doors.withdraw("c-1")
    doors.grant("c-2")
    new = doors.say("agreed", "one", 1, consent="c-2")
    assert new.fact != old.fact
    assert doors.value("agreed") == "one"
    assert doors.sql("SELECT ended_by FROM memory_fact WHERE id = %s", old.fact) == [("consent_withdrawn",)]


# quotes and episodes ----------------------------------------------------------------------------------------------------


def test_a_quote_must_occur_in_its_episode_to_the_letter(doors: Doors) -> None:
    told = doors.episode("I live in Rome now")
    assert doors.say("city", "Rome", 1, episode=told.id, quote="in rome").code == "quote_not_in_episode"
    assert doors.say("city", "Rome", 1, episode=uuid4(), quote="Rome").code == "not_found"
    assert isinstance(doors.say("city", "Rome", 1, episode=told.id, quote="in Rome"), Written)


def test_an_episode_above_the_writers_clearance_is_as_missing(doors: Doors) -> None:
    told = doors.episode("the shade is blue", sensitivity="restricted", kind="tool_result", tool_call_id="t")
    assert doors.say("shade", "blue", 1, episode=told.id, by=doors.uncleared).code == "not_found"


def test_the_same_source_is_the_same_episode_and_with_other_content_refused(doors: Doors) -> None:
    first = doors.episode("hello", turn_id="one")
    again = doors.episode("hello", turn_id="one")
    assert isinstance(again, EpisodeKept)
    assert (again.id, again.repeated, again.status) == (first.id, True, 200)
    assert doors.episode("good bye", turn_id="one").status == 409


# imports ----------------------------------------------------------------------------------------------------------------


def test_an_import_may_equal_the_newest_act_but_not_precede_it(doors: Doors) -> None:
    at = day(100)
    doors.say("city", "Rome", 1, recorded_at=at)
    assert isinstance(doors.say("city", "Oslo", 2, recorded_at=at), Written)
    assert doors.say("city", "Kyiv", 3, recorded_at=at - MICROSECOND).code == "recorded_before_the_newest"
    assert doors.value("city", 3, at) == "Oslo"
    assert doors.value("city", 3, at - MICROSECOND) is None
    assert doors.sql("SELECT count(*) FROM memory_belief WHERE believed_to IS NOT NULL") == [(0,)]


def test_an_import_needs_its_scope_and_lies_not_in_the_future(doors: Doors) -> None:
    plain = doors.actor(trust=50, scopes=frozenset({Scope.READ, Scope.WRITE}))
    assert doors.say("city", "Rome", 1, recorded_at=day(1), by=plain).status == 403
    ahead = datetime.now(UTC) + timedelta(hours=1)
    assert doors.say("city", "Rome", 1, recorded_at=ahead).code == "recorded_in_the_future"


def test_an_imported_saying_counts_its_life_from_now(doors: Doors) -> None:
    doors.say("city", "Rome", 1, recorded_at=day(100))
    assert doors.value("city") == "Rome"
    assert doors.sql("SELECT imported, written_at > recorded_at FROM memory_evidence") == [(True, True)]


def test_a_batch_may_import_at_the_newest_instant_and_go_on_from_there(doors: Doors) -> None:
    doors.say("city", "Rome", 1, recorded_at=day(100))
    bodies = [
        doors.body("city", "Oslo", 2, recorded_at=day(100)),
        doors.body("city", "Kyiv", 3, recorded_at=day(101)),
        doors.body("city", "Riga", 4),
    ]
    assert [type(each) for each in doors.write(bodies, batch=True)] == [Written] * 3
    assert [doors.value("city", 5, known) for known in (day(100), day(101), None)] == ["Oslo", "Kyiv", "Riga"]


def test_what_was_only_asked_about_does_not_stand_in_the_way_of_an_import(doors: Doors) -> None:
    doors.say("checked", "yes", 1)
    doors.say("mood", "merry", 1, confidence=0.3)
    assert isinstance(doors.say("mood", "sad", 1, recorded_at=day(100)), Written)


def test_a_retraction_may_be_imported_too(doors: Doors) -> None:
    said = doors.say("city", "Rome", 1, recorded_at=day(100))
    doors.retract(evidence=said.evidence, recorded_at=day(200))
    assert [doors.value("city", 2, known) for known in (day(150), day(200))] == ["Rome", None]
    other = doors.say("city", "Oslo", 1, recorded_at=day(300))
    assert doors.retract(evidence=other.evidence, recorded_at=day(299)).code == "recorded_before_the_newest"


# batches and repeats ----------------------------------------------------------------------------------------------------


def test_items_of_a_batch_keep_their_order_within_a_key_and_a_refused_one_does_not_sink_the_others(
    doors: Doors,
) -> None:
    bodies = [
        doors.body("plan", "a", 1),
        doors.body("nothing", "a", 1),
        doors.body("plan", "b", 1),
        doors.body("city", "Rome", 1),
        doors.body("city", "Oslo", 1),
        doors.body("city", 7, 1),
        doors.body("city", "Rome", 2),
    ]
    outcomes = doors.write(bodies, batch=True)
    kinds = [type(each) for each in outcomes]
    assert kinds == [Written, Denied, Written, Written, Asked, Denied, Written]
    assert (doors.value("plan", 2), doors.value("city", 3)) == ("b", "Rome")
    assert outcomes[6].change == "no_change"


def test_a_batch_of_a_thousand_is_one_transaction_and_one_receipt(doors: Doors) -> None:
    bodies = [
        doors.body("city", f"city-{number}", number // 100, subject=f"subject-{number % 100}") for number in range(1000)
    ]
    before = doors.counts()
    outcomes = doors.write(bodies, batch=True)
    assert {type(each) for each in outcomes} == {Written}
    after = doors.counts()
    assert after["memory_evidence"] - before["memory_evidence"] == 1000
    assert after["memory_receipt"] - before["memory_receipt"] == 1
    assert doors.value("city", 99, subject="subject-7") == "city-907"


def test_a_repeat_is_answered_as_before_and_writes_nothing(doors: Doors) -> None:
    repeat = Repeat("key-1", "facts", b"body")
    first = doors.say("city", "Rome", 1, repeat=repeat)
    before = doors.counts()
    assert doors.say("city", "Rome", 1, repeat=repeat) == first
    assert doors.counts() == before
    with pytest.raises(Clash) as clash:
        doors.say("city", "Rome", 1, repeat=Repeat("key-1", "facts", b"other body"))
    assert clash.value.code == "idempotency_key_reused"
    assert isinstance(doors.say("city", "Oslo", 2, by=doors.high, repeat=repeat), Written)


def test_a_repeated_batch_answers_every_item_as_before(doors: Doors) -> None:
    repeat = Repeat("key-1", "batch", b"body")
    bodies = [doors.body("city", "Rome", 1), doors.body("city", 7, 1), doors.body("city", "Oslo", 1)]
    first = doors.write(bodies, batch=True, repeat=repeat)
    assert doors.write(bodies, batch=True, repeat=repeat) == first
    assert doors.counts()["memory_evidence"] == 1


def test_a_refusal_is_not_remembered(doors: Doors) -> None:
    repeat = Repeat("key-1", "facts", b"body")
    assert isinstance(doors.say("city", 7, 1, repeat=repeat), Denied)
    assert isinstance(doors.say("city", "Rome", 1, repeat=repeat), Written)


# halfway failures -------------------------------------------------------------------------------------------------------


class _Broken(RuntimeError):
    pass


@pytest.mark.parametrize(
    "act", ["say", "batch", "correct", "retract", "decide", "episode", "subject", "buffer", "promote"]
)
def test_a_door_that_fails_in_its_last_step_has_stored_nothing(
    doors: Doors, monkeypatch: pytest.MonkeyPatch, act: str
) -> None:
    said = doors.say("city", "Rome", 1)
    asked = doors.say("checked", "yes", 1)
    for _ in range(2 if act == "promote" else 0):
        doors.say("mood", "merry", 1, confidence=0.3)
    before = doors.counts()
    keys = doors.sql("SELECT id, act_no, newest_at FROM memory_factkey ORDER BY id")

    def broken(*_: Any, **__: Any) -> None:
        raise _Broken

    monkeypatch.setattr(audit, "append", broken)
    acts = {
        "say": lambda: doors.say("city", "Oslo", 2, subject="new"),
        "batch": lambda: doors.write([doors.body("city", "Oslo", 2), doors.body("plan", "gold", 2)], batch=True),
        "correct": lambda: doors.say("city", "Oslo", corrects=said.evidence),
        "retract": lambda: doors.retract(fact=said.fact),
        "decide": lambda: doors.decide(asked.candidate),
        "episode": lambda: doors.episode("hello", subject="new"),
        "subject": lambda: doors.name("new", "newer"),
        "buffer": lambda: doors.say("mood", "sad", 1, confidence=0.3),
        "promote": lambda: doors.say("mood", "merry", 1, confidence=0.3),
    }
    with pytest.raises(_Broken):
        acts[act]()
    monkeypatch.undo()
    assert doors.counts() == before
    assert doors.sql("SELECT id, act_no, newest_at FROM memory_factkey ORDER BY id") == keys
    acts[act]()
    assert doors.counts() != before


def test_every_write_leaves_its_audit_and_its_receipt(doors: Doors) -> None:
    before = doors.counts()
    said = doors.say("city", "Rome", 1)
    doors.retract(fact=said.fact)
    after = doors.counts()
    assert after["memory_receipt"] - before["memory_receipt"] == 2
    assert after["tenants_auditevent"] - before["tenants_auditevent"] == 2
