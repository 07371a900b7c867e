"""Attributes and policies in plain words, for people who decide on them and never saw their JSON.

Pure: imports no Django and reads no clock. Every sentence is made of the document's own codes and of ours.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from policies.decision import Question, misses
from policies.definitions import AttributeDefinition
from policies.rules import Lifetime, PolicyDocument, Rule, When
from policies.vocabulary import Basis, Confirm, Conflict, Occasion, Outcome, Sensitivity

# lifetimes ------------------------------------------------------------------------------------------------------------

_UNITS = {"Y": "year", "M": "month", "W": "week", "D": "day"}
_CLOCK = {"H": "hour", "M": "minute", "S": "second"}


def lifetime(life: Lifetime) -> str:
    """Return a lifetime in words: `P1Y6M` is `1 year 6 months`."""
    days, _, clock = life.text.removeprefix("P").partition("T")
    parts = [(number, _UNITS[unit]) for number, unit in re.findall(r"([\d.,]+)([YMWD])", days)]
    parts += [(number, _CLOCK[unit]) for number, unit in re.findall(r"([\d.,]+)([HMS])", clock)]
    return " ".join(f"{number} {unit}" if number == "1" else f"{number} {unit}s" for number, unit in parts)


@dataclass(frozen=True, slots=True)
class Kept:
    """How long what is kept on a basis may be kept, by class in the order of `Sensitivity`; a dash is never."""

    basis: str
    why: str
    lives: tuple[str, ...]


_WHY = {
    Basis.SESSION: "the session in which it came up",
    Basis.CONSENT: "a consent of the subject",
    Basis.CONTRACT: "a contract with the subject",
    Basis.INDEFINITE: "no end",
}


_OVER = {
    Occasion.SESSION_CLOSED: "that session once it is closed; a dash leaves the life as it was",
    Occasion.CONTRACT_ENDED: "that contract once it has ended; a dash leaves the life as it was",
}


def lifetimes(policy: PolicyDocument) -> list[Kept]:
    """Return the policy's lifetimes as a table, the basis without an end last."""
    rows = []
    for basis in (Basis.SESSION, Basis.CONSENT, Basis.CONTRACT):
        found = [policy.lifetime(basis, level) for level in Sensitivity]
        rows.append(Kept(basis.value, _WHY[basis], tuple("–" if each is None else lifetime(each) for each in found)))
    for occasion in Occasion if policy.after is not None else ():
        found = [policy.life_after(occasion, level) for level in Sensitivity]
        lives = tuple("–" if each is None else f"at most {lifetime(each)} more" for each in found)
        rows.append(Kept(f"{occasion.basis.value}, over", _OVER[occasion], lives))
    review = f"no end, reviewed after {lifetime(policy.review_after)}"
    rows.append(Kept(Basis.INDEFINITE.value, _WHY[Basis.INDEFINITE], ("no end", "no end", review, "–")))
    return rows


# rules ----------------------------------------------------------------------------------------------------------------

_SAYS: dict[str, tuple[str, str]] = {
    "act": ("what is written is {}", "what is written is not {}"),
    "attribute": ("the attribute is {}", "the attribute is not {}"),
    "kind": ("the kind of memory is {}", "the kind of memory is not {}"),
    "source": ("it comes from {}", "it does not come from {}"),
    "declared": ("the writer declares {}", "the writer does not declare {}"),
    "default": ("the attribute's own class is {}", "the attribute's own class is not {}"),
    "detected": ("detection finds {}", "detection does not find {}"),
    "stated": ("the class before detection is {}", "the class before detection is not {}"),
    "sensitivity": ("the class is {}", "the class is not {}"),
    "clearance": ("the writer is cleared up to {}", "the writer is not cleared up to {}"),
    "basis": ("the basis is {}", "the basis is not {}"),
    "confirm": ("the attribute is confirmed {}", "the attribute is not confirmed {}"),
    "purposes": ("the agent serves {}", "the agent does not serve {}"),
    "min_confidence": ("the confidence is at least {}", "the confidence is below {}, or not given"),
    "max_confidence": ("the confidence is at most {}", "the confidence is above {}, or not given"),
    "below_confidence": ("the confidence is below {}", "the confidence is not below {}, or not given"),
    "min_trust": ("the writer's trust is at least {}", "the writer's trust is below {}"),
    "max_trust": ("the writer's trust is at most {}", "the writer's trust is above {}"),
    "below_trust": ("the writer's trust is below {}", "the writer's trust is not below {}"),
}
_EITHER: dict[str, tuple[str, str]] = {
    "confirmed": ("a person confirmed it", "no person confirmed it"),
    "inferred": ("the agent inferred it", "the agent did not infer it"),
    "recurrence": ("the attribute can wait for recurrence", "the attribute does not wait for recurrence"),
    "loosened": ("the writer asks for a looser basis than the attribute's", "the writer asks for no looser basis"),
}


def _words(value: Any) -> str:
    if isinstance(value, tuple):
        return " or ".join(_words(each) for each in value)
    return value.label.replace("_", " ") if isinstance(value, Sensitivity) else str(value).replace("_", " ")


def _clause(name: str, value: Any, *, holds: bool = True) -> str:
    if name in _EITHER:
        return _EITHER[name][0 if value is holds else 1]
    return _SAYS[name][0 if holds else 1].format(_words(value))


def condition(when: When) -> str:
    """Return a rule's condition as a clause; one that tests nothing holds where `nothing above holds`."""
    return " and ".join(_clause(name, getattr(when, name)) for name in when.given) or "nothing above holds"


def outcome(then: Outcome, confirm_by: str | None) -> str:
    """Return what becomes of a write, as a clause."""
    if then is Outcome.ASK:
        return f"it waits for a person: the {(confirm_by or 'reviewer').replace('_', ' ')} decides"
    return {
        Outcome.ACCEPT: "it is kept",
        Outcome.BUFFER: "it waits until it recurs",
        Outcome.REJECT: "it is refused",
    }[then]


@dataclass(frozen=True, slots=True)
class RuleRead:
    """A rule in words."""

    id: str
    condition: str
    outcome: str
    reason: str


def rules(policy: PolicyDocument) -> list[RuleRead]:
    """Return the policy's rules in words, in the order in which they are read; the first that holds decides."""
    return [_read(rule) for rule in policy.rules]


def _read(rule: Rule) -> RuleRead:
    return RuleRead(rule.id, condition(rule.when), outcome(rule.then, rule.confirm_by), rule.reason)


def passed_over(policy: PolicyDocument, question: Question, decisive: str) -> list[tuple[str, str]]:
    """Return the rules that were read before the decisive one, each with why it did not decide."""
    found: list[tuple[str, str]] = []
    for rule in policy.rules:
        if rule.id == decisive:
            break
        missed = misses(rule.when, question)
        if missed:
            why = " and ".join(_clause(name, getattr(rule.when, name), holds=False) for name in missed)
        else:
            why = "a person confirmed it, so nobody is asked"
        found.append((rule.id, why))
    return found


_BUILT_IN = {
    "builtin.consent": "Built in: content on the basis of consent needs a consent that stands.",
    "builtin.purpose": "Built in: the consent was given for other purposes than the agent's.",
    "builtin.lifetime": "Built in: the policy gives this class no life on this basis.",
    "builtin.expiry": "Built in: the end that was asked for is not one that may be asked for.",
    "builtin.confirm": "Built in: the attribute asks for a person.",
    "builtin.undecided": "Built in: no rule held, and undecided means no.",
    "builtin.error": "Built in: it could not be evaluated, and undecided means no.",
}


def decisive(rule: str) -> str:
    """Return what a decisive step that is built in says; nothing for a rule of the policy."""
    return _BUILT_IN.get(rule, "")


# proposals ------------------------------------------------------------------------------------------------------------

_ASKED = {
    "confirmation_required": "This attribute is always confirmed by a person.",
    "inferred": "It was inferred, and this attribute is confirmed when it is inferred.",
    "conflict_of_equals": "Another value starts at the same instant and weighs the same.",
    "conflict_for_review": "Another value starts at the same instant; conflicts of this attribute go to a person.",
    "confirmed_by_a_person": "It would take back what a person confirmed.",
    "class_raised": "Detection raised its class.",
    "quarantined": "What is said, or the episode that it is drawn from, speaks to the agent.",
    "weak_signal": "The agent was less than half sure.",
    "unknown_attribute": "Nobody has defined an attribute of the name that it gives.",
    "inferred_restricted": "It was inferred, and it is of the class restricted.",
}


def asked(reason: str) -> str:
    """Return why a proposal waits for a person, as a sentence; a reason of the tenant's own policy is shown as it is."""
    if reason.startswith("detected."):
        return f"Detection found in it: {reason.removeprefix('detected.').replace('_', ' ')}."
    return _ASKED.get(reason, reason)


#: Why a person decides on a proposal as they do, by whether they confirm.
DECIDING: dict[str, dict[str, str]] = {
    "confirm": {
        "evidence_supports": "evidence supports",
        "subject_confirmed": "subject confirmed",
        "other": "other",
    },
    "reject": {
        "recorded_wrongly": "recorded wrongly",
        "duplicate": "duplicate",
        "source_withdrawn": "source withdrawn",
        "not_to_be_kept": "not to be kept",
        "other": "other",
    },
}

# attributes -----------------------------------------------------------------------------------------------------------

_CONFLICTS = {
    Conflict.CONFIRMED_THEN_TRUST: "what a person confirmed wins, then the more trusted writer; between equals a person decides",
    Conflict.LATEST: "what was recorded last wins",
    Conflict.REVIEW: "a person decides",
}
_CONFIRMS = {
    Confirm.NEVER: "nobody is asked for this attribute's sake",
    Confirm.INFERRED: "a person confirms what was inferred or merely stated",
    Confirm.ALWAYS: "a person confirms every value",
}


def attribute(definition: AttributeDefinition) -> list[tuple[str, str]]:
    """Return an attribute's rules as pairs of a short term and a sentence."""
    said = [
        ("One answer", "one value at a time" if definition.cardinality == "single" else "several values side by side"),
        ("Value", value(definition.value_schema)),
        ("Class", f"{definition.sensitivity.label}, unless the writer or detection say higher"),
        ("Basis", f"{definition.basis.value}: {_WHY[definition.basis]}"),
        ("Asking", _CONFIRMS[definition.confirm]),
        ("Two at one instant", _CONFLICTS[definition.conflict]),
    ]
    if definition.recurrence is not None:
        seen = definition.recurrence
        said.append(("Weak signals", f"are kept once they came from {seen.count} episodes within {seen.days} days"))
    if definition.cues:
        said.append(("Spoken of as", ", ".join(definition.cues)))
    if definition.not_detected:
        said.append(("Not looked for", ", ".join(definition.not_detected)))
    return said


_TYPES = {
    "string": "a text", "integer": "a whole number", "number": "a number", "boolean": "yes or no", "object": "an object",
    "array": "a list", "null": "nothing",
}  # fmt: skip


def value(schema: dict[str, Any]) -> str:
    """Return what a JSON Schema lets a value be, as far as a line can say it."""
    if "const" in schema or isinstance(schema.get("enum"), list):
        listed = [schema["const"]] if "const" in schema else schema["enum"]
        return "one of " + ", ".join(map(str, listed[:12])) + (" …" if len(listed) > 12 else "")
    kind = schema.get("type")
    said = " or ".join(_TYPES.get(str(each), "a value") for each in (kind if isinstance(kind, list) else [kind]))
    if isinstance(schema.get("format"), str):
        said += f" of the form {schema['format']}"
    bounds = [words.format(schema[name]) for name, words in _BOUNDS.items() if name in schema]
    return ", ".join([said, *bounds])


_BOUNDS = {
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minimum": "at least {}",
    "maximum": "at most {}",
    "minItems": "at least {} items",
    "maxItems": "at most {} items",
}


def effects(before: AttributeDefinition | None, after: AttributeDefinition) -> list[str]:
    """Return what putting `after` in force in the place of `before` means, for what is stored and for what will be."""
    if before is None:
        return ["From then on values of it can be written. Nothing is stored of it yet."]
    said = []
    if after.value_schema != before.value_schema:
        said.append(
            "New values are checked by the new schema. Values that stand keep the version under which they were written: "
            "none is checked again, changed or removed, and a reader may meet both shapes."
        )
    if after.sensitivity != before.sensitivity:
        way = "more" if after.sensitivity > before.sensitivity else "less"
        said.append(
            f"New values are {after.sensitivity.label}, which protects {way} than {before.sensitivity.label}. Values that "
            "stand keep their class."
        )
    if after.basis != before.basis:
        said.append(
            f"New values are kept on the basis {after.basis.value} unless the writer names another. Values that stand keep "
            "their basis and their end."
        )
    if after.confirm != before.confirm:
        said.append(f"From then on {_CONFIRMS[after.confirm]}. What is stored is not asked about.")
    if after.conflict != before.conflict:
        said.append(f"Where two values start at one instant, from then on {_CONFLICTS[after.conflict]}.")
    if after.not_detected != before.not_detected:
        said.append("Detection looks for other things in new values.")
    if (after.cues, after.aliases, after.path) != (before.cues, before.aliases, before.path):
        said.append("Extraction recognises it by other words or paths in new episodes.")
    if after.recurrence != before.recurrence:
        said.append("Weak signals wait by other numbers; those that wait already keep theirs until they lapse.")
    return said or ["Nothing changes for what is stored or written: only how it is described."]


def policy_effects(changed: Iterable[str]) -> list[str]:
    """Return what a policy means for what is stored, given the fields that changed."""
    fields = {path.partition(".")[0] for path in changed}
    said = ["Every write from then on is decided by the new version. What is stored keeps its end and its class."]
    if "lifetimes" in fields:
        said.append(
            "Lifetimes count for new evidence only: a shorter one ends nothing early, a longer one extends nothing."
        )
    if "rules" in fields:
        said.append("What waits for a person stays with the rule that asked, and is decided as before.")
    if "model" in fields:
        said.append(
            "What a model may read, and how much, is decided anew for each episode from then on. What was sent stays sent."
        )
    if "on_conflict" in fields:
        said.append("Conflicts that wait already are decided as before.")
    return said
