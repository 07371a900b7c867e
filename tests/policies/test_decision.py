from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.decision import Question, Verdict, decide, rank
from policies.rules import STARTER, PolicyDocument, load_policy, policy_document
from policies.vocabulary import Basis, Confirm, Conflict, Kind, Outcome, Sensitivity, SourceKind

NOW = datetime(2026, 6, 1, 9, 0, tzinfo=UTC)
STARTER_POLICY = load_policy(STARTER.read_text())

ORDINARY = Question(
    act="fact",
    attribute="passport_deadline",
    kind=Kind.SEMANTIC,
    source=SourceKind.QUOTE,
    confirmed=False,
    inferred=False,
    declared=None,
    default=Sensitivity.PERSONAL,
    detected=Sensitivity.PUBLIC,
    basis=Basis.SESSION,
    consent="none",
    consent_purposes=None,
    purposes=frozenset({"support"}),
    confidence=None,
    trust=10,
    clearance=Sensitivity.RESTRICTED,
    confirm=Confirm.NEVER,
    written_at=NOW,
    expires_at=None,
    recurrence=False,
)


def verdict(policy: PolicyDocument = STARTER_POLICY, **changes: Any) -> Verdict:
    # Unless a test says otherwise the basis is the one that the attribute names.
    changes.setdefault("expected", changes.get("basis", ORDINARY.basis))
    return decide(replace(ORDINARY, **changes), policy, version="7")


def policy_of(*rules: dict[str, Any], **fields: Any) -> PolicyDocument:
    data = json.loads(STARTER.read_text())
    return policy_document({**data, **fields, "rules": list(rules)})


def rule(name: str, then: str, when: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    return {"id": name, "when": when or {}, "then": then, "reason": name.replace("-", "_"), **fields}


KEEP = rule("keep", "accept")


# --- the starter policy ---


def test_an_ordinary_write_is_kept_for_its_lifetime_and_encrypted() -> None:
    assert verdict() == Verdict(
        outcome=Outcome.ACCEPT,
        reasons=("ordinary",),
        rule="everything-else-is-kept",
        policy_version="7",
        sensitivity=Sensitivity.PERSONAL,
        basis=Basis.SESSION,
        expires_at=NOW + timedelta(days=30),
        expiry_rule="session×personal=P30D",
        review_at=None,
        encrypt=True,
        confirm_by=None,
        errors=(),
    )


@pytest.mark.parametrize("act", ["fact", "episode", "end"])
def test_facts_episodes_and_ends_are_ordinary_writes(act: str) -> None:
    assert verdict(act=act).outcome is Outcome.ACCEPT


def test_what_was_inferred_and_is_stated_to_be_restricted_is_asked_about() -> None:
    found = verdict(inferred=True, declared=Sensitivity.RESTRICTED)
    assert (found.outcome, found.reasons, found.confirm_by) == (Outcome.ASK, ("inferred_restricted",), "reviewer")
    assert found.expires_at == NOW + timedelta(days=7)


def test_a_weak_signal_waits_where_the_attribute_counts_recurrence() -> None:
    assert verdict(confidence=0.49, recurrence=True).outcome is Outcome.BUFFER


def test_a_weak_signal_goes_to_a_person_where_nothing_would_recur() -> None:
    assert verdict(confidence=0.49).outcome is Outcome.ASK


def test_half_confidence_is_enough_and_no_confidence_says_nothing() -> None:
    assert verdict(confidence=0.5).outcome is Outcome.ACCEPT
    assert verdict(confidence=None, recurrence=True).outcome is Outcome.ACCEPT


# --- class ---


def test_the_highest_of_declared_default_and_detected_counts() -> None:
    assert verdict(declared=Sensitivity.PUBLIC).sensitivity is Sensitivity.PERSONAL
    assert verdict(declared=Sensitivity.RESTRICTED).sensitivity is Sensitivity.RESTRICTED
    assert verdict(default=Sensitivity.PUBLIC, detected=Sensitivity.RESTRICTED).sensitivity is Sensitivity.RESTRICTED


def test_a_raised_class_is_stored_higher_and_said_so() -> None:
    found = verdict(default=Sensitivity.PUBLIC, detected=Sensitivity.RESTRICTED)
    assert (found.outcome, found.reasons, found.encrypt) == (Outcome.ACCEPT, ("ordinary", "class_raised"), True)
    assert found.expires_at == NOW + timedelta(days=7)


def test_public_and_internal_content_is_not_encrypted() -> None:
    assert not verdict(default=Sensitivity.INTERNAL).encrypt


# --- consent and purpose ---


@pytest.mark.parametrize(
    ("consent", "reason"),
    [("none", "consent_missing"), ("unknown", "consent_missing"), ("withdrawn", "consent_withdrawn")],
)
def test_a_basis_of_consent_needs_a_standing_consent(consent: str, reason: str) -> None:
    found = verdict(basis=Basis.CONSENT, consent=consent)
    assert (found.outcome, found.reasons, found.rule) == (Outcome.REJECT, (reason,), "builtin.consent")


def test_a_withdrawn_consent_is_no_matter_for_another_basis() -> None:
    assert verdict(basis=Basis.CONTRACT, consent="withdrawn").outcome is Outcome.ACCEPT


def test_a_consent_for_other_purposes_is_not_enough() -> None:
    found = verdict(basis=Basis.CONSENT, consent="standing", consent_purposes=frozenset({"marketing"}))
    assert (found.reasons, found.rule) == (("purpose_not_consented",), "builtin.purpose")


@pytest.mark.parametrize(
    ("consented", "purposes"),
    [
        (frozenset({"support", "billing"}), frozenset({"support", "marketing"})),
        (frozenset({"marketing"}), frozenset()),
        (frozenset(), frozenset({"support"})),
        (None, frozenset({"support"})),
    ],
)
def test_one_purpose_in_common_is_enough_and_who_names_none_is_not_limited(consented: Any, purposes: Any) -> None:
    found = verdict(basis=Basis.CONSENT, consent="standing", consent_purposes=consented, purposes=purposes)
    assert found.outcome is Outcome.ACCEPT


# --- lifetime and expiry ---


def test_a_pair_without_a_lifetime_is_rejected() -> None:
    policy = policy_of(KEEP, lifetimes={"session": {"public": "P1D"}})
    found = verdict(policy)
    assert (found.outcome, found.reasons, found.rule) == (Outcome.REJECT, ("no_lifetime",), "builtin.lifetime")


def test_a_reject_carries_no_obligation() -> None:
    found = verdict(basis=Basis.CONSENT)
    assert (found.expires_at, found.expiry_rule, found.review_at, found.confirm_by) == (None, "", None, None)


def test_what_is_kept_indefinitely_gets_a_date_of_review_when_it_is_personal() -> None:
    found = verdict(basis=Basis.INDEFINITE)
    assert (found.expires_at, found.expiry_rule, found.review_at) == (None, "indefinite", NOW.replace(year=2027))
    assert verdict(basis=Basis.INDEFINITE, default=Sensitivity.INTERNAL).review_at is None


def test_what_is_stated_to_be_restricted_is_not_kept_indefinitely() -> None:
    assert verdict(basis=Basis.INDEFINITE, declared=Sensitivity.RESTRICTED).reasons == ("restricted_indefinite",)


def test_a_basis_that_frees_a_saying_from_its_attributes_own_goes_to_a_person() -> None:
    looser: list[tuple[Basis, Basis | None]] = [
        (Basis.INDEFINITE, Basis.SESSION),
        (Basis.INDEFINITE, None),
        (Basis.CONTRACT, Basis.CONSENT),
        (Basis.SESSION, Basis.CONSENT),
    ]
    for basis, expected in looser:
        given = verdict(basis=basis, expected=expected)
        assert (given.outcome, given.reasons, given.confirm_by) == (Outcome.ASK, ("basis_loosened",), "privacy_officer")
    for basis, named in (
        (Basis.CONTRACT, Basis.SESSION),
        (Basis.SESSION, Basis.CONTRACT),
        (Basis.INDEFINITE, Basis.INDEFINITE),
    ):
        assert verdict(basis=basis, expected=named).outcome is Outcome.ACCEPT


def test_what_detection_raised_to_restricted_is_kept_indefinitely_under_review() -> None:
    found = verdict(basis=Basis.INDEFINITE, detected=Sensitivity.RESTRICTED)
    assert (found.outcome, found.sensitivity) == (Outcome.ACCEPT, Sensitivity.RESTRICTED)
    assert found.review_at is not None


def test_a_writer_may_shorten_a_life() -> None:
    found = verdict(expires_at=NOW + timedelta(days=3))
    assert (found.expires_at, found.expiry_rule) == (NOW + timedelta(days=3), "asked")


def test_a_writer_may_ask_for_the_whole_life_and_not_for_a_microsecond_more() -> None:
    whole = NOW + timedelta(days=30)
    assert verdict(expires_at=whole).expires_at == whole
    assert verdict(expires_at=whole + timedelta(microseconds=1)).reasons == ("expiry_too_late",)


@pytest.mark.parametrize("moment", [NOW, NOW - timedelta(days=1)])
def test_a_life_cannot_be_over_before_it_begins(moment: datetime) -> None:
    assert verdict(expires_at=moment).reasons == ("expiry_in_past",)


def test_an_expiry_has_no_place_with_indefinite() -> None:
    found = verdict(basis=Basis.INDEFINITE, expires_at=NOW + timedelta(days=1))
    assert found.reasons == ("expiry_with_indefinite",)


def test_a_raised_class_cuts_the_expiry_that_was_asked_for_and_does_not_refuse_it() -> None:
    found = verdict(detected=Sensitivity.RESTRICTED, expires_at=NOW + timedelta(days=20))
    assert found.outcome is Outcome.ACCEPT
    assert (found.expires_at, found.expiry_rule) == (NOW + timedelta(days=7), "session×restricted=P7D")


# --- a person ---


def test_an_attribute_that_is_always_confirmed_is_asked_about() -> None:
    found = verdict(confirm=Confirm.ALWAYS)
    assert (found.outcome, found.reasons) == (Outcome.ASK, ("confirmation_required",))
    assert (found.rule, found.confirm_by) == ("builtin.confirm", "reviewer")


@pytest.mark.parametrize("changes", [{"inferred": True}, {"source": SourceKind.STATEMENT}])
def test_an_attribute_that_is_confirmed_when_inferred_asks_about_an_agents_own_conclusion(changes: Any) -> None:
    assert verdict(confirm=Confirm.INFERRED, **changes).reasons == ("inferred",)


def test_an_attribute_that_is_confirmed_when_inferred_keeps_a_quote() -> None:
    assert verdict(confirm=Confirm.INFERRED).outcome is Outcome.ACCEPT


@pytest.mark.parametrize(
    "changes",
    [
        {"confirm": Confirm.ALWAYS},
        {"confirm": Confirm.INFERRED, "inferred": True},
        {"inferred": True, "declared": Sensitivity.RESTRICTED},
        {"confidence": 0.1},
        {"confidence": 0.1, "recurrence": True},
    ],
)
def test_what_a_person_confirmed_is_not_asked_about_again(changes: Any) -> None:
    found = verdict(confirmed=True, source=SourceKind.CONFIRMATION, **changes)
    assert (found.outcome, found.reasons) == (Outcome.ACCEPT, ("ordinary",))


def test_a_confirmation_does_not_lift_a_rule_that_rejects() -> None:
    policy = policy_of(rule("never", "reject"), KEEP)
    assert verdict(policy, confirmed=True).rule == "never"


def test_a_confirmation_does_not_stand_in_for_consent() -> None:
    assert verdict(basis=Basis.CONSENT, confirmed=True).outcome is Outcome.REJECT


# --- instruction ---


@pytest.mark.parametrize(
    ("says", "act", "outcome"),
    [
        ("accept", "fact", Outcome.ACCEPT),
        ("accept", "episode", Outcome.ACCEPT),
        ("ask", "fact", Outcome.ASK),
        ("ask", "end", Outcome.ASK),
        ("ask", "episode", Outcome.ACCEPT),
        ("reject", "fact", Outcome.REJECT),
        ("reject", "end", Outcome.REJECT),
        ("reject", "episode", Outcome.REJECT),
    ],
)
def test_the_policy_says_what_becomes_of_what_speaks_to_the_agent(says: str, act: Any, outcome: Outcome) -> None:
    policy = policy_of(KEEP, on_instruction=says)
    found = verdict(policy, act=act, quarantined=True)
    assert found.outcome is outcome
    if outcome is not Outcome.ACCEPT:
        assert (found.reasons, found.rule) == (("quarantined",), "builtin.instruction")
    assert verdict(policy, act=act).outcome is Outcome.ACCEPT
    assert verdict(policy, act=act, quarantined=True, confirmed=True).outcome is Outcome.ACCEPT


def test_a_policy_that_says_nothing_of_instructions_lets_a_person_look() -> None:
    silent = policy_document(
        {name: said for name, said in policy_of(KEEP).document().items() if name != "on_instruction"}
    )
    assert verdict(silent, quarantined=True).outcome is Outcome.ASK


# --- rules ---


def test_the_first_rule_that_matches_is_decisive() -> None:
    assert verdict(policy_of(rule("first", "buffer"), rule("second", "reject"))).rule == "first"


def test_a_rule_that_does_not_match_is_passed_over() -> None:
    assert verdict(policy_of(rule("other", "reject", {"kind": "working"}), KEEP)).rule == "keep"


def test_an_empty_condition_matches_everything() -> None:
    assert verdict(policy_of(KEEP), act="episode", attribute=None).rule == "keep"


def test_every_field_of_a_condition_must_match() -> None:
    policy = policy_of(rule("both", "reject", {"kind": "semantic", "source": "file"}), KEEP)
    assert verdict(policy).rule == "keep"
    assert verdict(policy, source=SourceKind.FILE).rule == "both"


def test_any_member_of_a_list_matches() -> None:
    policy = policy_of(rule("either", "reject", {"source": ["file", "quote"]}), KEEP)
    assert verdict(policy).rule == "either"


@pytest.mark.parametrize(
    ("when", "matching", "other"),
    [
        ({"act": "end"}, {"act": "end"}, {"act": "fact"}),
        ({"attribute": "city"}, {"attribute": "city"}, {"attribute": None}),
        ({"kind": "episodic"}, {"kind": Kind.EPISODIC}, {}),
        ({"source": "ticket"}, {"source": SourceKind.TICKET}, {}),
        ({"confirmed": True}, {"confirmed": True}, {}),
        ({"inferred": True}, {"inferred": True}, {}),
        ({"declared": "public"}, {"declared": Sensitivity.PUBLIC}, {"declared": None}),
        ({"default": "internal"}, {"default": Sensitivity.INTERNAL}, {}),
        ({"detected": "personal"}, {"detected": Sensitivity.PERSONAL}, {}),
        ({"stated": "restricted"}, {"declared": Sensitivity.RESTRICTED}, {"detected": Sensitivity.RESTRICTED}),
        ({"sensitivity": "restricted"}, {"detected": Sensitivity.RESTRICTED}, {}),
        ({"clearance": "public"}, {"clearance": Sensitivity.PUBLIC}, {}),
        ({"basis": "contract"}, {"basis": Basis.CONTRACT}, {}),
        ({"confirm": "inferred"}, {"confirm": Confirm.INFERRED}, {}),
        ({"recurrence": True}, {"recurrence": True}, {}),
        ({"quarantined": True}, {"quarantined": True, "act": "episode"}, {}),
        ({"purposes": ["billing", "support"]}, {}, {"purposes": frozenset({"marketing"})}),
        ({"min_confidence": 0.5}, {"confidence": 0.5}, {"confidence": 0.4}),
        ({"max_confidence": 0.5}, {"confidence": 0.5}, {"confidence": 0.6}),
        ({"below_confidence": 0.5}, {"confidence": 0.4}, {"confidence": 0.5}),
        ({"max_confidence": 1.0}, {"confidence": 1.0}, {"confidence": None}),
        ({"min_trust": 10}, {}, {"trust": 9}),
        ({"max_trust": 10}, {}, {"trust": 11}),
        ({"below_trust": 11}, {}, {"trust": 11}),
    ],
)
def test_each_field_of_a_condition_tests_what_it_says(when: Any, matching: Any, other: Any) -> None:
    policy = policy_of(rule("tested", "reject", when), KEEP)
    assert verdict(policy, **matching).rule == "tested"
    assert verdict(policy, **other).rule == "keep"


def test_undecided_means_no() -> None:
    found = verdict(policy_of())
    assert (found.outcome, found.reasons, found.rule) == (Outcome.REJECT, ("undecided",), "builtin.undecided")


def test_a_rule_that_asks_names_a_reviewer_unless_it_names_another() -> None:
    assert verdict(policy_of(rule("who", "ask"))).confirm_by == "reviewer"
    assert verdict(policy_of(rule("who", "ask", confirm_by="privacy_officer"))).confirm_by == "privacy_officer"
    assert verdict(policy_of(rule("who", "buffer"))).confirm_by is None


def test_a_rule_that_cannot_be_evaluated_rejects_and_is_reported() -> None:
    policy = policy_of(rule("weak", "ask", {"below_confidence": 0.5}), KEEP)
    for confidence, error in ((float("nan"), "weak: ArithmeticError"), ("high", "weak: TypeError")):
        found = verdict(policy, confidence=confidence)
        assert (found.outcome, found.reasons, found.rule) == (Outcome.REJECT, ("rule_failed",), "weak")
        assert found.errors == (error,)


def test_a_question_that_makes_no_sense_is_rejected_and_reported() -> None:
    found = verdict(expires_at=datetime(2026, 6, 2))
    assert (found.outcome, found.reasons, found.errors) == (Outcome.REJECT, ("undecided",), ("decide: TypeError",))
    assert verdict(written_at=datetime.max.replace(tzinfo=UTC)).errors == ("decide: OverflowError",)


# --- properties ---

moments = st.datetimes(timezones=st.just(UTC))
questions = st.builds(
    Question,
    act=st.sampled_from(["fact", "episode", "end"]),
    attribute=st.none() | st.text(max_size=5),
    kind=st.sampled_from(Kind),
    source=st.sampled_from(SourceKind),
    confirmed=st.booleans(),
    inferred=st.booleans(),
    declared=st.none() | st.sampled_from(Sensitivity),
    default=st.sampled_from(Sensitivity),
    detected=st.sampled_from(Sensitivity),
    basis=st.sampled_from(Basis),
    consent=st.sampled_from(["none", "standing", "withdrawn", "unknown"]),
    consent_purposes=st.none() | st.frozensets(st.sampled_from(["a", "b"])),
    purposes=st.frozensets(st.sampled_from(["a", "b"])),
    confidence=st.none() | st.floats(),
    trust=st.integers(0, 100),
    clearance=st.sampled_from(Sensitivity),
    confirm=st.sampled_from(Confirm),
    written_at=moments,
    expires_at=st.none() | moments | st.datetimes(),
    recurrence=st.booleans(),
    quarantined=st.booleans(),
)
conditions = st.fixed_dictionaries(
    {},
    optional={
        "kind": st.sampled_from([kind.value for kind in Kind]),
        "sensitivity": st.lists(st.sampled_from([member.label for member in Sensitivity]), min_size=1),
        "inferred": st.booleans(),
        "below_confidence": st.floats(0, 1),
        "min_trust": st.integers(0, 100),
        "source": st.sampled_from([source.value for source in SourceKind]),
    },
)
durations = st.sampled_from(["P1D", "P7D", "P1M", "P1Y6M", "P10Y"])
by_class = st.dictionaries(st.sampled_from([member.label for member in Sensitivity]), durations)


@st.composite
def policies(draw: st.DrawFn) -> PolicyDocument:
    outcomes = [outcome.value for outcome in Outcome]
    count = draw(st.integers(0, 3))
    rules = [rule(f"r{n}", draw(st.sampled_from(outcomes)), draw(conditions)) for n in range(count)]
    lifetimes = {basis: draw(by_class) for basis in ("session", "consent", "contract")}
    return policy_of(*rules, lifetimes=lifetimes, review_after=draw(durations))


@given(questions, policies() | st.just(STARTER_POLICY))
def test_whatever_is_asked_there_is_one_verdict_and_it_binds(question: Question, policy: PolicyDocument) -> None:
    found = decide(question, policy, version="1")
    assert found == decide(question, policy, version="1")
    assert found.reasons
    assert found.sensitivity >= max(question.default, question.detected, question.declared or Sensitivity.PUBLIC)
    assert found.encrypt == (found.sensitivity >= Sensitivity.PERSONAL)
    assert found.basis is question.basis
    if found.outcome is Outcome.REJECT:
        assert (found.expires_at, found.review_at, found.confirm_by) == (None, None, None)
        return
    assert not found.errors
    assert (found.expires_at is None) == (found.basis is Basis.INDEFINITE)
    assert (found.confirm_by is not None) == (found.outcome is Outcome.ASK)
    if found.expires_at is not None:
        lifetime = policy.lifetime(found.basis, found.sensitivity)
        assert lifetime is not None
        assert question.written_at < found.expires_at <= lifetime.after(question.written_at)
        assert question.expires_at is None or found.expires_at <= question.expires_at
    else:
        assert (found.review_at is not None) == found.encrypt
    if question.confirmed:
        assert found.outcome is Outcome.ACCEPT


@given(questions, policies())
def test_without_a_rule_that_matches_nothing_is_kept(question: Question, policy: PolicyDocument) -> None:
    bare = policy_document({**policy.document(), "rules": []})
    assert decide(question, bare, version="1").outcome in (Outcome.REJECT, Outcome.ASK)
    assert decide(replace(question, confirmed=True), bare, version="1").outcome is Outcome.REJECT


@given(questions, st.sampled_from(Sensitivity))
def test_the_starter_policy_neither_asks_nor_refuses_for_a_class_that_was_raised(
    question: Question, detected: Sensitivity
) -> None:
    plain = decide(replace(question, detected=Sensitivity.PUBLIC), STARTER_POLICY, version="1")
    raised = decide(replace(question, detected=detected), STARTER_POLICY, version="1")
    if not plain.errors and not raised.errors:
        assert (raised.outcome, raised.reasons[0], raised.rule) == (plain.outcome, plain.reasons[0], plain.rule)


# --- rank ---


def test_a_confirmed_saying_outranks_any_trust() -> None:
    default = Conflict.CONFIRMED_THEN_TRUST
    assert rank(default, confirmed=True, trust=0) > rank(default, confirmed=False, trust=999)


def test_the_higher_trust_outranks_the_lower() -> None:
    default = Conflict.CONFIRMED_THEN_TRUST
    assert rank(default, confirmed=False, trust=2) > rank(default, confirmed=False, trust=1)


@pytest.mark.parametrize("conflict", [Conflict.LATEST, Conflict.REVIEW])
def test_all_sayings_rank_alike_where_trust_does_not_decide(conflict: Conflict) -> None:
    assert rank(conflict, confirmed=True, trust=9) == rank(conflict, confirmed=False, trust=0) == 0
