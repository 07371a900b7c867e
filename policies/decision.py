"""The verdict on one act of writing: a pure function of what is asked and of the tenant's policy.

Imports no Django and reads no clock. The same question and policy always give the same verdict.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from policies.rules import PolicyDocument, Rule, When
from policies.vocabulary import Basis, Confirm, Conflict, Kind, Occasion, Outcome, Sensitivity, SourceKind

UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is to be decided. Made by the write door; nothing in it is content.

    `confirmed` is true only where a person decided on this saying: it is never taken from a request. `expires_at`
    is what the writer asked for. `purposes` are the agent's: an agent without any is not limited to any.
    """

    act: Literal["fact", "episode", "end"]
    attribute: str | None
    kind: Kind
    source: SourceKind
    confirmed: bool
    inferred: bool
    declared: Sensitivity | None
    default: Sensitivity
    detected: Sensitivity
    basis: Basis
    consent: Literal["none", "standing", "withdrawn", "unknown"]
    consent_purposes: frozenset[str] | None
    purposes: frozenset[str]
    confidence: float | None
    trust: int
    clearance: Sensitivity
    confirm: Confirm
    written_at: datetime
    expires_at: datetime | None
    recurrence: bool
    #: The basis that the attribute's definition names; None where there is no attribute.
    expected: Basis | None = None
    #: What is said, or the episode that it is drawn from, speaks to the agent that will read it.
    quarantined: bool = False
    #: The session or the contract that it is kept for is over already: its clock runs from the writing.
    over: bool = False

    @property
    def loosened(self) -> bool:
        """Whether the writer stated a basis under which the attribute's own rule no longer binds.

        That is keeping without end what was not defined so, and keeping without consent what was defined to need it.
        """
        if self.basis is self.expected:
            return False
        return self.basis is Basis.INDEFINITE or self.expected is Basis.CONSENT

    @property
    def stated(self) -> Sensitivity:
        """The class before detection: the higher of what was declared and the attribute's default."""
        return self.default if self.declared is None else max(self.declared, self.default)

    @property
    def sensitivity(self) -> Sensitivity:
        """The class that counts: the highest of declared, default and detected."""
        return max(self.stated, self.detected)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was decided, by which rule, and what follows for whoever stores it.

    `rule` is the id of the policy's decisive rule, or a step of `decide` written `builtin.<step>`. A reject carries
    no obligations. `errors` names what could not be evaluated, as `<rule>: <type of error>`.
    """

    outcome: Outcome
    reasons: tuple[str, ...]
    rule: str
    policy_version: str
    sensitivity: Sensitivity
    basis: Basis
    expires_at: datetime | None
    expiry_rule: str
    review_at: datetime | None
    encrypt: bool
    confirm_by: str | None
    errors: tuple[str, ...]


class _Rejected(Exception):
    """Ends the walk; names the step and the reason."""

    def __init__(self, step: str, reason: str) -> None:
        super().__init__(reason)
        self.step = step
        self.reason = reason


def decide(question: Question, policy: PolicyDocument, *, version: str) -> Verdict:
    """Return the verdict on `question` under `policy`, whose version is `version`. Never raises.

    1. Class. The highest of declared, default and detected. Where detection raised it, `class_raised` is among the
       reasons, and nothing below asks or refuses for that alone unless a rule of the policy tests it.
    2. Consent. With basis `consent`, a consent that is not standing rejects (`consent_missing`, `consent_withdrawn`).
    3. Purpose. So does a consent whose purposes have none in common with the agent's (`purpose_not_consented`).
    4. Lifetime. Class and basis give it, counted from `written_at`; a pair that the policy leaves out rejects
       (`no_lifetime`). `indefinite` has none: what was stated to be restricted is rejected (`restricted_indefinite`),
       other encrypted classes get a date of review.
       What is written when its session is closed or its contract has ended already stays no longer than the policy
       says after that, counted from `written_at`.
    5. Expiry asked for. It may shorten the lifetime of the stated class, never extend it (`expiry_too_late`), must
       lie after `written_at` (`expiry_in_past`) and has no place with `indefinite` (`expiry_with_indefinite`). Where
       a raised class has a shorter life, that life counts.
    6. Instruction. Where what is said, or its episode, speaks to the agent, `on_instruction` of the policy rejects or
       asks (`quarantined`). An episode that would be asked about is kept: it is what people look at. What a person
       confirmed passes.
    7. Person. An attribute that is always confirmed asks (`confirmation_required`), as does one that is confirmed
       when inferred and was inferred or merely stated by the agent (`inferred`). What a person confirmed passes.
    8. Rules, in the policy's order; the first that matches is decisive. What a person confirmed passes those that
       ask or buffer. A rule that cannot be evaluated ends the walk: rejected (`rule_failed`), and reported.
    9. Nothing matched: rejected (`undecided`).
    """
    sensitivity = Sensitivity.RESTRICTED
    try:
        sensitivity = question.sensitivity
        return _walk(question, policy, version)
    except _Rejected as rejected:
        return _reject(question, version, sensitivity, rejected.reason, f"builtin.{rejected.step}")
    except Exception as error:
        # Undecided means no: whatever a malformed question does, the answer is a reported reject. The name of the
        # type only, since an error's text may hold what was asked.
        return _reject(question, version, sensitivity, UNDECIDED, "builtin.error", (f"decide: {type(error).__name__}",))


def _reject(
    question: Question,
    version: str,
    sensitivity: Sensitivity,
    reason: str,
    rule: str,
    errors: tuple[str, ...] = (),
) -> Verdict:
    return Verdict(
        outcome=Outcome.REJECT,
        reasons=(reason,),
        rule=rule,
        policy_version=version,
        sensitivity=sensitivity,
        basis=getattr(question, "basis", Basis.SESSION),
        expires_at=None,
        expiry_rule="",
        review_at=None,
        encrypt=sensitivity.encrypted,
        confirm_by=None,
        errors=errors,
    )


def _walk(question: Question, policy: PolicyDocument, version: str) -> Verdict:
    sensitivity = question.sensitivity
    _check_consent(question)
    expires_at, expiry_rule = _expiry(question, policy)
    reviewed = question.basis is Basis.INDEFINITE and sensitivity.encrypted
    review_at = policy.review_after.after(question.written_at) if reviewed else None

    def verdict(outcome: Outcome, reason: str, rule: str, confirm_by: str | None) -> Verdict:
        return Verdict(
            outcome=outcome,
            reasons=(reason, "class_raised") if question.detected > question.stated else (reason,),
            rule=rule,
            policy_version=version,
            sensitivity=sensitivity,
            basis=question.basis,
            expires_at=expires_at,
            expiry_rule=expiry_rule,
            review_at=review_at,
            encrypt=sensitivity.encrypted,
            confirm_by=confirm_by,
            errors=(),
        )

    if question.quarantined and not question.confirmed:
        if policy.on_instruction == "reject":
            raise _Rejected("instruction", "quarantined")
        if policy.on_instruction == "ask" and question.act != "episode":
            return verdict(Outcome.ASK, "quarantined", "builtin.instruction", "reviewer")
    person = _needs_a_person(question)
    if person is not None:
        return verdict(Outcome.ASK, person, "builtin.confirm", "reviewer")
    for rule in policy.rules:
        if question.confirmed and rule.then in (Outcome.ASK, Outcome.BUFFER):
            continue
        try:
            decisive = _matches(rule.when, question)
        except Exception as error:
            failed = f"{rule.id}: {type(error).__name__}"
            return _reject(question, version, sensitivity, "rule_failed", rule.id, (failed,))
        if decisive:
            if rule.then is Outcome.REJECT:
                return _reject(question, version, sensitivity, rule.reason, rule.id)
            return verdict(rule.then, rule.reason, rule.id, _confirmer(rule))
    raise _Rejected(UNDECIDED, UNDECIDED)


def _check_consent(question: Question) -> None:
    if question.basis is not Basis.CONSENT:
        return
    if question.consent == "withdrawn":
        raise _Rejected("consent", "consent_withdrawn")
    if question.consent != "standing":
        raise _Rejected("consent", "consent_missing")
    if question.consent_purposes and question.purposes and not question.consent_purposes & question.purposes:
        raise _Rejected("purpose", "purpose_not_consented")


def _expiry(question: Question, policy: PolicyDocument) -> tuple[datetime | None, str]:
    """Return when the life of what is written is over, and the rule that said so."""
    asked = question.expires_at
    if question.basis is Basis.INDEFINITE:
        if question.stated is Sensitivity.RESTRICTED:
            raise _Rejected("lifetime", "restricted_indefinite")
        if asked is not None:
            raise _Rejected("expiry", "expiry_with_indefinite")
        return None, "indefinite"
    lifetime = policy.lifetime(question.basis, question.sensitivity)
    if lifetime is None:
        raise _Rejected("lifetime", "no_lifetime")
    latest = lifetime.after(question.written_at)
    rule = f"{question.basis.value}×{question.sensitivity.label}={lifetime.text}"
    occasion = Occasion.of(question.basis)
    afterwards = policy.life_after(occasion, question.sensitivity) if question.over and occasion else None
    if afterwards is not None and occasion and afterwards.after(question.written_at) < latest:
        lifetime, latest = afterwards, afterwards.after(question.written_at)
        rule = f"{occasion.value}×{question.sensitivity.label}={lifetime.text}"
    if asked is None:
        return latest, rule
    if asked <= question.written_at:
        raise _Rejected("expiry", "expiry_in_past")
    # What the writer could know is the stated class. Where the policy says nothing for it, the class that counts.
    known = policy.lifetime(question.basis, question.stated) or lifetime
    if asked > max(latest, known.after(question.written_at)):
        raise _Rejected("expiry", "expiry_too_late")
    return (asked, "asked") if asked <= latest else (latest, rule)


def _needs_a_person(question: Question) -> str | None:
    if question.confirmed:
        return None
    if question.confirm is Confirm.ALWAYS:
        return "confirmation_required"
    if question.confirm is Confirm.INFERRED and (question.inferred or question.source is SourceKind.STATEMENT):
        return "inferred"
    return None


def _confirmer(rule: Rule) -> str | None:
    return (rule.confirm_by or "reviewer") if rule.then is Outcome.ASK else None


def _bounded(given: float | None, holds: Callable[[Any, Any], bool], bound: float) -> bool:
    if given is None:
        return False
    if given != given:
        raise ArithmeticError("not a number")
    return holds(given, bound)


# One test a field of `When`: (question, what the rule allows) -> whether it matches.
_TESTS: dict[str, Callable[[Question, Any], bool]] = {
    "act": lambda question, allowed: question.act in allowed,
    "attribute": lambda question, allowed: question.attribute in allowed,
    "kind": lambda question, allowed: question.kind in allowed,
    "source": lambda question, allowed: question.source in allowed,
    "confirmed": lambda question, wanted: question.confirmed is wanted,
    "inferred": lambda question, wanted: question.inferred is wanted,
    "declared": lambda question, allowed: question.declared in allowed,
    "default": lambda question, allowed: question.default in allowed,
    "detected": lambda question, allowed: question.detected in allowed,
    "stated": lambda question, allowed: question.stated in allowed,
    "sensitivity": lambda question, allowed: question.sensitivity in allowed,
    "clearance": lambda question, allowed: question.clearance in allowed,
    "basis": lambda question, allowed: question.basis in allowed,
    "confirm": lambda question, allowed: question.confirm in allowed,
    "recurrence": lambda question, wanted: question.recurrence is wanted,
    "loosened": lambda question, wanted: question.loosened is wanted,
    "quarantined": lambda question, wanted: question.quarantined is wanted,
    "purposes": lambda question, allowed: not question.purposes.isdisjoint(allowed),
    "min_confidence": lambda question, bound: _bounded(question.confidence, operator.ge, bound),
    "max_confidence": lambda question, bound: _bounded(question.confidence, operator.le, bound),
    "below_confidence": lambda question, bound: _bounded(question.confidence, operator.lt, bound),
    "min_trust": lambda question, bound: _bounded(question.trust, operator.ge, bound),
    "max_trust": lambda question, bound: _bounded(question.trust, operator.le, bound),
    "below_trust": lambda question, bound: _bounded(question.trust, operator.lt, bound),
}


def _matches(when: When, question: Question) -> bool:
    return all(_TESTS[field](question, getattr(when, field)) for field in when.given)


def misses(when: When, question: Question) -> tuple[str, ...]:
    """Return the names of the fields of a condition that do not hold; none where it holds, or cannot be evaluated."""
    try:
        return tuple(field for field in when.given if not _TESTS[field](question, getattr(when, field)))
    except ArithmeticError:
        return ()


def rank(conflict: Conflict, *, confirmed: bool, trust: int) -> int:
    """Return what decides between sayings of one instant: the greater rank wins, and equal ranks are not decided here.

    Under `confirmed_then_trust` any confirmed saying outranks any other, for trust from 0 to 999; under `latest` and
    `review` all rank alike.
    """
    return confirmed * 1000 + trust if conflict is Conflict.CONFIRMED_THEN_TRUST else 0
