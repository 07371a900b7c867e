"""Attributes and policies in plain words, for people who decide on them and never saw their JSON.

Decides nothing and reads no clock. Every sentence is made of the document's own codes and of ours, in the reader's language.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from policies.decision import Question, misses
from policies.definitions import AttributeDefinition
from policies.rules import Lifetime, PolicyDocument, Rule, When
from policies.vocabulary import Basis, Confirm, Conflict, Occasion, Outcome, Sensitivity
from tenants.words import gettext_lazy, in_words

# lifetimes ------------------------------------------------------------------------------------------------------------


def _of(unit: str, number: str) -> str:
    # One part of a lifetime; a fraction counts as many.
    count = int(number) if number.isdigit() else 2
    words = {
        "Y": ngettext("%(number)s year", "%(number)s years", count),
        "M": ngettext("%(number)s month", "%(number)s months", count),
        "W": ngettext("%(number)s week", "%(number)s weeks", count),
        "D": ngettext("%(number)s day", "%(number)s days", count),
        "h": ngettext("%(number)s hour", "%(number)s hours", count),
        "m": ngettext("%(number)s minute", "%(number)s minutes", count),
        "s": ngettext("%(number)s second", "%(number)s seconds", count),
    }
    return words[unit] % {"number": number}


def lifetime(life: Lifetime) -> str:
    """Return a lifetime in words: `P1Y6M` is `1 year 6 months`."""
    days, _sign, clock = life.text.removeprefix("P").partition("T")
    parts = [_of(unit, number) for number, unit in re.findall(r"([\d.,]+)([YMWD])", days)]
    parts += [_of(unit.lower(), number) for number, unit in re.findall(r"([\d.,]+)([HMS])", clock)]
    return " ".join(parts)


@dataclass(frozen=True, slots=True)
class Kept:
    """How long what is kept on a basis may be kept, by class in the order of `Sensitivity`; a dash is never."""

    basis: str
    why: str
    lives: tuple[str, ...]


_WHY = {
    Basis.SESSION: gettext_lazy("the session in which it came up"),
    Basis.CONSENT: gettext_lazy("a consent of the subject"),
    Basis.CONTRACT: gettext_lazy("a contract with the subject"),
    Basis.INDEFINITE: gettext_lazy("no end"),
}


_OVER = {
    Occasion.SESSION_CLOSED: gettext_lazy("that session once it is closed; a dash leaves the life as it was"),
    Occasion.CONTRACT_ENDED: gettext_lazy("that contract once it has ended; a dash leaves the life as it was"),
}


def lifetimes(policy: PolicyDocument) -> list[Kept]:
    """Return the policy's lifetimes as a table, the basis without an end last."""
    rows = []
    for basis in (Basis.SESSION, Basis.CONSENT, Basis.CONTRACT):
        found = [policy.lifetime(basis, level) for level in Sensitivity]
        rows.append(Kept(basis.value, _WHY[basis], tuple("–" if each is None else lifetime(each) for each in found)))
    for occasion in Occasion if policy.after is not None else ():
        found = [policy.life_after(occasion, level) for level in Sensitivity]
        lives = tuple("–" if each is None else _("at most %(life)s more") % {"life": lifetime(each)} for each in found)
        rows.append(Kept(_("%(basis)s, over") % {"basis": in_words(occasion.basis.value)}, _OVER[occasion], lives))
    review = _("no end, reviewed after %(life)s") % {"life": lifetime(policy.review_after)}
    rows.append(Kept(Basis.INDEFINITE.value, _WHY[Basis.INDEFINITE], (_("no end"), _("no end"), review, "–")))
    return rows


# rules ----------------------------------------------------------------------------------------------------------------

_SAYS: dict[str, tuple[str, str]] = {
    "act": (gettext_lazy("what is written is {}"), gettext_lazy("what is written is not {}")),
    "attribute": (gettext_lazy("the attribute is {}"), gettext_lazy("the attribute is not {}")),
    "kind": (gettext_lazy("the kind of memory is {}"), gettext_lazy("the kind of memory is not {}")),
    "source": (gettext_lazy("it comes from {}"), gettext_lazy("it does not come from {}")),
    "declared": (gettext_lazy("the writer declares {}"), gettext_lazy("the writer does not declare {}")),
    "default": (gettext_lazy("the attribute's own class is {}"), gettext_lazy("the attribute's own class is not {}")),
    "detected": (gettext_lazy("detection finds {}"), gettext_lazy("detection does not find {}")),
    "stated": (gettext_lazy("the class before detection is {}"), gettext_lazy("the class before detection is not {}")),
    "sensitivity": (gettext_lazy("the class is {}"), gettext_lazy("the class is not {}")),
    "clearance": (gettext_lazy("the writer is cleared up to {}"), gettext_lazy("the writer is not cleared up to {}")),
    "basis": (gettext_lazy("the basis is {}"), gettext_lazy("the basis is not {}")),
    "confirm": (gettext_lazy("the attribute is confirmed {}"), gettext_lazy("the attribute is not confirmed {}")),
    "purposes": (gettext_lazy("the agent serves {}"), gettext_lazy("the agent does not serve {}")),
    "min_confidence": (
        gettext_lazy("the confidence is at least {}"),
        gettext_lazy("the confidence is below {}, or not given"),
    ),
    "max_confidence": (
        gettext_lazy("the confidence is at most {}"),
        gettext_lazy("the confidence is above {}, or not given"),
    ),
    "below_confidence": (
        gettext_lazy("the confidence is below {}"),
        gettext_lazy("the confidence is not below {}, or not given"),
    ),
    "min_trust": (gettext_lazy("the writer's trust is at least {}"), gettext_lazy("the writer's trust is below {}")),
    "max_trust": (gettext_lazy("the writer's trust is at most {}"), gettext_lazy("the writer's trust is above {}")),
    "below_trust": (gettext_lazy("the writer's trust is below {}"), gettext_lazy("the writer's trust is not below {}")),
}
_EITHER: dict[str, tuple[str, str]] = {
    "confirmed": (gettext_lazy("a person confirmed it"), gettext_lazy("no person confirmed it")),
    "inferred": (gettext_lazy("the agent inferred it"), gettext_lazy("the agent did not infer it")),
    "recurrence": (
        gettext_lazy("the attribute can wait for recurrence"),
        gettext_lazy("the attribute does not wait for recurrence"),
    ),
    "loosened": (
        gettext_lazy("the writer asks for a looser basis than the attribute's"),
        gettext_lazy("the writer asks for no looser basis"),
    ),
}


def _words(value: Any) -> str:
    if isinstance(value, tuple):
        return _(" or ").join(_words(each) for each in value)
    found: str = in_words((value.label if isinstance(value, Sensitivity) else str(value)).replace("_", " "))
    return found


def _clause(name: str, value: Any, *, holds: bool = True) -> str:
    if name in _EITHER:
        return str(_EITHER[name][0 if value is holds else 1])
    return _SAYS[name][0 if holds else 1].format(_words(value))


def condition(when: When) -> str:
    """Return a rule's condition as a clause; one that tests nothing holds where `nothing above holds`."""
    return _(" and ").join(_clause(name, getattr(when, name)) for name in when.given) or _("nothing above holds")


def outcome(then: Outcome, confirm_by: str | None) -> str:
    """Return what becomes of a write, as a clause."""
    if then is Outcome.ASK:
        return _("it waits for a person: the %(role)s decides") % {
            "role": in_words((confirm_by or "reviewer").replace("_", " "))
        }
    return {
        Outcome.ACCEPT: _("it is kept"),
        Outcome.BUFFER: _("it waits until it recurs"),
        Outcome.REJECT: _("it is refused"),
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
            why = _(" and ").join(_clause(name, getattr(rule.when, name), holds=False) for name in missed)
        else:
            why = _("a person confirmed it, so nobody is asked")
        found.append((rule.id, why))
    return found


_BUILT_IN = {
    "builtin.consent": gettext_lazy("Built in: content on the basis of consent needs a consent that stands."),
    "builtin.purpose": gettext_lazy("Built in: the consent was given for other purposes than the agent's."),
    "builtin.lifetime": gettext_lazy("Built in: the policy gives this class no life on this basis."),
    "builtin.expiry": gettext_lazy("Built in: the end that was asked for is not one that may be asked for."),
    "builtin.confirm": gettext_lazy("Built in: the attribute asks for a person."),
    "builtin.undecided": gettext_lazy("Built in: no rule held, and undecided means no."),
    "builtin.error": gettext_lazy("Built in: it could not be evaluated, and undecided means no."),
}


def decisive(rule: str) -> str:
    """Return what a decisive step that is built in says; nothing for a rule of the policy."""
    return _BUILT_IN.get(rule, "")


# proposals ------------------------------------------------------------------------------------------------------------

_ASKED = {
    "confirmation_required": gettext_lazy("This attribute is always confirmed by a person."),
    "inferred": gettext_lazy("It was inferred, and this attribute is confirmed when it is inferred."),
    "conflict_of_equals": gettext_lazy("Another value starts at the same instant and weighs the same."),
    "conflict_for_review": gettext_lazy(
        "Another value starts at the same instant; conflicts of this attribute go to a person."
    ),
    "confirmed_by_a_person": gettext_lazy("It would take back what a person confirmed."),
    "class_raised": gettext_lazy("Detection raised its class."),
    "quarantined": gettext_lazy("What is said, or the episode that it is drawn from, speaks to the agent."),
    "weak_signal": gettext_lazy("The agent was less than half sure."),
    "unknown_attribute": gettext_lazy("Nobody has defined an attribute of the name that it gives."),
    "inferred_restricted": gettext_lazy("It was inferred, and it is of the class restricted."),
}


def asked(reason: str) -> str:
    """Return why a proposal waits for a person, as a sentence; a reason of the tenant's own policy is shown as it is."""
    if reason.startswith("detected."):
        return _("Detection found in it: %(reason)s.") % {
            "reason": in_words(reason.removeprefix("detected.").replace("_", " "))
        }
    return _ASKED.get(reason, reason)


#: Why a person decides on a proposal as they do, by whether they confirm.
DECIDING: dict[str, dict[str, str]] = {
    "confirm": {
        "evidence_supports": gettext_lazy("evidence supports"),
        "subject_confirmed": gettext_lazy("subject confirmed"),
        "other": "other",
    },
    "reject": {
        "recorded_wrongly": gettext_lazy("recorded wrongly"),
        "duplicate": "duplicate",
        "source_withdrawn": gettext_lazy("source withdrawn"),
        "not_to_be_kept": gettext_lazy("not to be kept"),
        "other": "other",
    },
}

# attributes -----------------------------------------------------------------------------------------------------------

_CONFLICTS = {
    Conflict.CONFIRMED_THEN_TRUST: gettext_lazy(
        "what a person confirmed wins, then the more trusted writer; between equals a person decides"
    ),
    Conflict.LATEST: gettext_lazy("what was recorded last wins"),
    Conflict.REVIEW: gettext_lazy("a person decides"),
}
_CONFIRMS = {
    Confirm.NEVER: gettext_lazy("nobody is asked for this attribute's sake"),
    Confirm.INFERRED: gettext_lazy("a person confirms what was inferred or merely stated"),
    Confirm.ALWAYS: gettext_lazy("a person confirms every value"),
}


def attribute(definition: AttributeDefinition) -> list[tuple[str, str]]:
    """Return an attribute's rules as pairs of a short term and a sentence."""
    said = [
        (
            _("One answer"),
            _("one value at a time") if definition.cardinality == "single" else _("several values side by side"),
        ),
        (_("Value"), value(definition.value_schema)),
        (
            _("Class"),
            _("%(label)s, unless the writer or detection say higher")
            % {"label": in_words(definition.sensitivity.label)},
        ),
        (_("Basis"), f"{in_words(definition.basis.value)}: {_WHY[definition.basis]}"),
        (_("Asking"), _CONFIRMS[definition.confirm]),
        (_("Two at one instant"), _CONFLICTS[definition.conflict]),
    ]
    if definition.recurrence is not None:
        seen = definition.recurrence
        said.append(
            (
                _("Weak signals"),
                _("are kept once they came from %(count)s episodes within %(days)s days")
                % {"count": seen.count, "days": seen.days},
            )
        )
    if definition.cues:
        said.append((_("Spoken of as"), ", ".join(definition.cues)))
    if definition.not_detected:
        said.append((_("Not looked for"), ", ".join(definition.not_detected)))
    return said


_TYPES = {
    "string": gettext_lazy("a text"), "integer": gettext_lazy("a whole number"), "number": gettext_lazy("a number"), "boolean": gettext_lazy("yes or no"), "object": gettext_lazy("an object"),
    "array": gettext_lazy("a list"), "null": "nothing",
}  # fmt: skip


def value(schema: dict[str, Any]) -> str:
    """Return what a JSON Schema lets a value be, as far as a line can say it."""
    if "const" in schema or isinstance(schema.get("enum"), list):
        listed = [schema["const"]] if "const" in schema else schema["enum"]
        return _("one of %(values)s") % {
            "values": ", ".join(map(str, listed[:12])) + (" …" if len(listed) > 12 else "")
        }
    kind = schema.get("type")
    said = _(" or ").join(
        str(_TYPES.get(str(each), _("a value"))) for each in (kind if isinstance(kind, list) else [kind])
    )
    if isinstance(schema.get("format"), str):
        said = _("%(value)s of the form %(form)s") % {"value": said, "form": schema["format"]}
    bounds = [words.format(schema[name]) for name, words in _BOUNDS.items() if name in schema]
    return ", ".join([said, *bounds])


_BOUNDS = {
    "minLength": gettext_lazy("at least {} characters"),
    "maxLength": gettext_lazy("at most {} characters"),
    "minimum": gettext_lazy("at least {}"),
    "maximum": gettext_lazy("at most {}"),
    "minItems": gettext_lazy("at least {} items"),
    "maxItems": gettext_lazy("at most {} items"),
}


def effects(before: AttributeDefinition | None, after: AttributeDefinition) -> list[str]:
    """Return what putting `after` in force in the place of `before` means, for what is stored and for what will be."""
    if before is None:
        return [_("From then on values of it can be written. Nothing is stored of it yet.")]
    said = []
    if after.value_schema != before.value_schema:
        said.append(
            _(
                "New values are checked by the new schema. Values that stand keep the version under which they were written: "
                "none is checked again, changed or removed, and a reader may meet both shapes."
            )
        )
    if after.sensitivity != before.sensitivity:
        said.append(
            (
                _("New values are %(after)s, which protects more than %(before)s. Values that stand keep their class.")
                if after.sensitivity > before.sensitivity
                else _(
                    "New values are %(after)s, which protects less than %(before)s. Values that stand keep their class."
                )
            )
            % {"after": in_words(after.sensitivity.label), "before": in_words(before.sensitivity.label)}
        )
    if after.basis != before.basis:
        said.append(
            _(
                "New values are kept on the basis %(basis)s unless the writer names another. Values that stand keep their basis and their end."
            )
            % {"basis": in_words(after.basis.value)}
        )
    if after.confirm != before.confirm:
        said.append(
            _("From then on %(confirms)s. What is stored is not asked about.") % {"confirms": _CONFIRMS[after.confirm]}
        )
    if after.conflict != before.conflict:
        said.append(
            _("Where two values start at one instant, from then on %(conflicts)s.")
            % {"conflicts": _CONFLICTS[after.conflict]}
        )
    if after.not_detected != before.not_detected:
        said.append(_("Detection looks for other things in new values."))
    if (after.cues, after.aliases, after.path) != (before.cues, before.aliases, before.path):
        said.append(_("Extraction recognises it by other words or paths in new episodes."))
    if after.recurrence != before.recurrence:
        said.append(_("Weak signals wait by other numbers; those that wait already keep theirs until they lapse."))
    return said or [_("Nothing changes for what is stored or written: only how it is described.")]


def policy_effects(changed: Iterable[str]) -> list[str]:
    """Return what a policy means for what is stored, given the fields that changed."""
    fields = {path.partition(".")[0] for path in changed}
    said = [_("Every write from then on is decided by the new version. What is stored keeps its end and its class.")]
    if "lifetimes" in fields:
        said.append(
            _("Lifetimes count for new evidence only: a shorter one ends nothing early, a longer one extends nothing.")
        )
    if "rules" in fields:
        said.append(_("What waits for a person stays with the rule that asked, and is decided as before."))
    if "model" in fields:
        said.append(
            _(
                "What a model may read, and how much, is decided anew for each episode from then on. What was sent stays sent."
            )
        )
    if "on_conflict" in fields:
        said.append(_("Conflicts that wait already are decided as before."))
    return said
