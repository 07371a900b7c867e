"""What an extractor is given, and what it may answer.

Pure: no Django, no clock. An extractor chooses neither tenant, nor source episode, nor sensitivity, nor retention; what
it proposes is checked (`memory.extraction.checks`) and then goes through the door of every write.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal, Protocol

from policies.definitions import AttributeDefinition
from policies.vocabulary import Sensitivity

Role = Literal["user", "assistant", "system", "tool"]
Change = Literal["new", "update", "no_change"]


@dataclass(frozen=True, slots=True)
class Turn:
    """Something said before the episode. It may explain the episode, and is never evidence."""

    role: Role
    content: str = field(repr=False)
    occurred_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class EpisodeText:
    """One episode as extractors read it. `content` is its text to the letter: for JSON, the text that is stored.

    `occurred_at` is aware; relative dates count from it, in its own offset. `before` holds earlier turns, oldest first,
    where the caller has them. `sensitivity` is the episode's class apart from what detection raised it to (the higher of
    declared and default): what no mask can lower. Nothing said, it is the highest. `names` are further names of the
    subject, so that they can be masked where the text may not go as it is.
    """

    role: Role | None
    content: str = field(repr=False)
    occurred_at: datetime
    subject: str = field(repr=False)
    kind: Literal["message", "tool_result", "event"] = "message"
    before: Sequence[Turn] = ()
    sensitivity: Sensitivity = Sensitivity.RESTRICTED
    names: Sequence[str] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class Stored:
    """A value that is now held for the subject, since when it is known, and the fact's class (the highest if not said)."""

    value: Any = field(repr=False)
    since: datetime | None = None
    sensitivity: Sensitivity = Sensitivity.RESTRICTED


@dataclass(frozen=True, slots=True)
class AttributeSlice:
    """One attribute in play: its definition, and what is stored now (several values where it is `multi`)."""

    definition: AttributeDefinition
    current: Sequence[Stored] = ()


@dataclass(frozen=True, slots=True)
class Evidence:
    """A quote, and where it stands: `content[start:end] == quote`."""

    quote: str = field(repr=False)
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Proposal:
    """One value that the episode gives for a subject's attribute. `confidence` is between 0 and 1.

    `fault` names what the extractor itself found wrong with it; `checks` rejects it by that name.
    """

    evidence: Evidence
    subject: str = field(repr=False)
    attribute: str
    value: Any = field(repr=False)
    change: Change
    valid_from: datetime
    confidence: float
    current_value: Any = field(default=None, repr=False)
    fault: str = ""


@dataclass(frozen=True, slots=True)
class Rejection:
    """A proposal that was not taken, by name: the code says why. `attribute` is None where it was none of those offered."""

    reason: str
    attribute: str | None


class ExtractionFailed(Exception):
    """Raised by an extractor that could not do its work. Nothing of it is stored; `code` says why, without content.

    `final`: trying again would come to the same, so nobody does unless somebody asks for it. Where it is not, `wait` is
    how long it takes until that is worth trying, as far as it is known.
    """

    def __init__(self, code: str, *, final: bool = False, wait: timedelta | None = None) -> None:
        self.code = code
        self.final = final
        self.wait = wait
        super().__init__(code)


class Extractor(Protocol):
    """Reads an episode. `name` stands in the provenance of what it proposes."""

    @property
    def name(self) -> str:
        """What names this extractor, and its version, in provenance."""
        ...

    @property
    def remote(self) -> bool:
        """Whether it calls something over a network: then no transaction is open while it works."""
        ...

    def extract(self, episode: EpisodeText, attributes: Sequence[AttributeSlice]) -> Sequence[Proposal]:
        """Return what the episode gives for these attributes; nothing is a good answer. Raises `ExtractionFailed`."""
        ...
