"""The closed lists of words that policies, facts and verdicts are written in.

Pure: imports no Django and reads no clock. Sensitivity is stored as its number, every other word as its text.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum


class Sensitivity(IntEnum):
    """How harmful a disclosure would be; ordered, so that `max` gives the class that protects more."""

    PUBLIC = 0
    INTERNAL = 1
    PERSONAL = 2
    RESTRICTED = 3

    @property
    def label(self) -> str:
        """Return the word that the API and files use, such as `personal`."""
        return self.name.lower()

    @classmethod
    def of(cls, label: str) -> Sensitivity:
        """Return the class that `label` names exactly. Raises KeyError, without the label, for any other text."""
        found = _SENSITIVITY_BY_LABEL.get(label)
        if found is None:
            raise KeyError("unknown sensitivity")
        return found

    @property
    def encrypted(self) -> bool:
        """Whether content of this class is stored encrypted with its subject's data key."""
        return self >= Sensitivity.PERSONAL


_SENSITIVITY_BY_LABEL = {member.label: member for member in Sensitivity}


class Basis(StrEnum):
    """Why content may be kept."""

    SESSION = "session"
    CONSENT = "consent"
    CONTRACT = "contract"
    INDEFINITE = "indefinite"


class Occasion(StrEnum):
    """What starts the clock of what was kept for as long as something went on."""

    SESSION_CLOSED = "session_closed"
    CONTRACT_ENDED = "contract_ended"

    @property
    def basis(self) -> Basis:
        """The basis that is over with it: nothing kept on another one is concerned."""
        return Basis.SESSION if self is Occasion.SESSION_CLOSED else Basis.CONTRACT

    @classmethod
    def of(cls, basis: Basis) -> Occasion | None:
        """Return the occasion on which content of that basis starts to run out; None where there is no such."""
        return next((each for each in cls if each.basis is basis), None)


class Conflict(StrEnum):
    """What decides between two sayings that start at the same instant."""

    CONFIRMED_THEN_TRUST = "confirmed_then_trust"
    LATEST = "latest"
    REVIEW = "review"


class Cardinality(StrEnum):
    """Whether an attribute has one answer at a time, or each of its values is a chain of its own."""

    SINGLE = "single"
    MULTI = "multi"


class Kind(StrEnum):
    """The kinds of memory."""

    WORKING = "working"
    SEMANTIC = "semantic"
    EPISODIC = "episodic"
    PROCEDURAL = "procedural"


class Confirm(StrEnum):
    """When a person must confirm a saying before it is believed."""

    NEVER = "never"
    INFERRED = "inferred"
    ALWAYS = "always"


class SourceKind(StrEnum):
    """Where a saying comes from."""

    QUOTE = "quote"
    TOOL_RESULT = "tool_result"
    FILE = "file"
    TICKET = "ticket"
    CONFIRMATION = "confirmation"
    STATEMENT = "statement"


class Outcome(StrEnum):
    """What a verdict can say."""

    ACCEPT = "accept"
    ASK = "ask"
    BUFFER = "buffer"
    REJECT = "reject"
