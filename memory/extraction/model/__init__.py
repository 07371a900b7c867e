"""Extraction by a model, behind the protocol of every extractor. Off unless a model is configured.

Imports no provider's library until an episode is read, and knows no database: what a reading may cost is asked of a
`Meter`. A model is not trusted: what it answers is held against what it was asked, and then goes through `checks`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from types import MappingProxyType
from typing import Literal, Protocol

from memory.extraction.model import provider
from memory.extraction.model.prompt import INSTRUCTIONS, AnswerInvalid, Finder, Prompt
from memory.extraction.model.provider import Named, NotConfigured, NotInstalled, Reply, named
from memory.extraction.protocol import AttributeSlice, EpisodeText, ExtractionFailed, Proposal
from policies.vocabulary import Sensitivity

__all__ = [
    "FAILURES",
    "HOW_TO_INSTALL",
    "Configuration",
    "Meter",
    "ModelExtractor",
    "NotConfigured",
    "Use",
]

#: Changes with the prompt and with how answers are read: it stands in the provenance of what is extracted.
VERSION = "1"
HOW_TO_INSTALL = "extraction by a model needs its libraries: make run EXTRAS=llm (see docs/runbook.md)"

#: Why an episode was not read, and whether reading it again may go better.
FAILURES = MappingProxyType(
    {
        "not_allowed": False,
        "not_installed": False,
        "too_long": False,
        "budget_spent": True,
        "budget_too_small": False,
        "timeout": True,
        "rate_limited": True,
        "provider_unavailable": True,
        "provider_failed": True,
        "quota_exceeded": False,
        "key_refused": False,
        "model_unknown": False,
        "request_refused": False,
        "refused": False,
        "truncated": True,
        "invalid_output": True,
    }
)

#: Worth another question within the same reading; the others are worth one later, if at all.
_AT_ONCE = frozenset({"rate_limited", "provider_unavailable"})
_FIRST_PAUSE_SECONDS = 0.5
_LONGEST_PAUSE_SECONDS = 8.0
#: Attributes of one question; more are asked about in further ones.
ATTRIBUTES_AT_ONCE = 100
#: Estimated low, so that a reservation is rather too large: no tokenizer of ours knows every model's.
_BYTES_A_TOKEN = 3
#: What the form of the answer and the roles take besides.
_FRAME_TOKENS = 1_000


@dataclass(frozen=True, slots=True)
class Configuration:
    """Which model reads, and within which bounds. Raises NotConfigured where `model` names none.

    `seconds` bounds one reading, all its attempts and pauses together. `output` is how the answer is asked for: by a
    call of a tool, or by a JSON schema of the whole answer. Tokens a day and a month (of UTC) are each tenant's; None
    is no bound.
    """

    model: str
    key: str = field(default="", repr=False)
    seconds: float = 40.0
    attempts: int = 3
    output: Literal["tool", "schema"] = "tool"
    output_tokens: int = 4_000
    characters: int = 60_000
    tokens_per_day: int | None = None
    tokens_per_month: int | None = None
    named: Named = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "named", named(self.model))


@dataclass(frozen=True, slots=True)
class Use:
    """What one question came to: how it ended, what it took. Tokens that the provider did not tell are estimated."""

    model: str
    outcome: str
    tokens_in: int
    tokens_out: int
    seconds: float
    cost: int


class Meter(Protocol):
    """Counts what is asked of a model. One meter counts one episode's questions."""

    def reserve(self, tokens: int, *, masked: int) -> None:
        """Set tokens aside before they are spent. Raises ExtractionFailed where the tenant has none left."""
        ...

    def settle(self, reserved: int, use: Use) -> None:
        """Count what was spent in the place of what was set aside."""
        ...


class ModelExtractor:
    """Reads episodes with a model, up to the class that the tenant's policy allows.

    `more` looks for what detection does not know by itself; what it finds above the class is masked too.
    """

    remote = True

    def __init__(
        self,
        configuration: Configuration,
        meter: Meter,
        *,
        ceiling: Sensitivity,
        more: Finder | None = None,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._configuration = configuration
        self._meter = meter
        self._ceiling = ceiling
        self._more = more
        self._pause = pause

    @property
    def name(self) -> str:
        """What names this extractor, its version and its model in provenance."""
        return f"model/{VERSION}:{self._configuration.named.label}"

    def may_read(self, episode: EpisodeText) -> bool:
        """Whether the policy lets this episode be sent: what no mask can lower is not above the ceiling."""
        return episode.sensitivity <= self._ceiling

    def extract(self, episode: EpisodeText, attributes: Sequence[AttributeSlice]) -> list[Proposal]:
        """Return what the model reads in the episode, still to be held against `checks`. Takes network and time.

        Only a user's message speaks for its subject: other roles give nothing, and are not sent. Raises
        ExtractionFailed with one of the codes of `FAILURES`; nothing of a part that was read is then returned.
        """
        if not attributes or not episode.content.strip():
            return []
        if episode.kind == "message" and episode.role not in (None, "user"):
            return []
        if not self.may_read(episode):
            raise _failure("not_allowed")
        if len(episode.content) > self._configuration.characters:
            raise _failure("too_long")
        if not self._configuration.named.is_installed:
            raise _failure("not_installed")
        ends = time.monotonic() + self._configuration.seconds
        return [
            proposal
            for start in range(0, len(attributes), ATTRIBUTES_AT_ONCE)
            for proposal in self._read(episode, attributes[start : start + ATTRIBUTES_AT_ONCE], ends)
        ]

    def _read(self, episode: EpisodeText, attributes: Sequence[AttributeSlice], ends: float) -> list[Proposal]:
        prompt = Prompt(episode, attributes, self._ceiling, self._more)
        for pause in self._pauses():
            found, reply = self._asked(prompt, ends)
            if found is not None:
                return found
            wait = max(pause, reply.wait or 0.0)
            if pause < 0 or reply.code not in _AT_ONCE or time.monotonic() + wait >= ends:
                break
            self._pause(wait)
        raise _failure(reply.code, None if reply.wait is None else timedelta(seconds=min(reply.wait, 86_400.0)))

    def _pauses(self) -> Iterator[float]:
        """Yield what to wait after each attempt that failed; below 0 after the last."""
        for number in range(self._configuration.attempts - 1):
            yield min(_FIRST_PAUSE_SECONDS * 2**number, _LONGEST_PAUSE_SECONDS)
        yield -1.0

    def _asked(self, prompt: Prompt, ends: float) -> tuple[list[Proposal] | None, Reply]:
        """Ask once, counted; return the proposals, or None and why there are none."""
        configuration = self._configuration
        asked = len((prompt.text + INSTRUCTIONS).encode()) // _BYTES_A_TOKEN + _FRAME_TOKENS
        reserved = asked + configuration.output_tokens
        self._meter.reserve(reserved, masked=prompt.masked)
        began = time.monotonic()
        proposals = None
        reply = Reply("provider_failed")
        try:
            reply = provider.ask(
                configuration.named,
                configuration.key,
                prompt.text,
                seconds=max(ends - began, 0.1),
                tokens=configuration.output_tokens,
                output=configuration.output,
            )
            if reply.code == "answered":
                try:
                    proposals = prompt.read(reply.answer)
                except AnswerInvalid:
                    reply = Reply("invalid_output", "", reply.tokens_in, reply.tokens_out, reply.cost)
        except NotInstalled:
            reply = Reply("not_installed", was_sent=False)
        finally:
            unknown = (asked, configuration.output_tokens) if reply.was_sent else (0, 0)
            self._meter.settle(
                reserved,
                Use(
                    model=configuration.named.label,
                    outcome=reply.code,
                    tokens_in=unknown[0] if reply.tokens_in is None else reply.tokens_in,
                    tokens_out=unknown[1] if reply.tokens_out is None else reply.tokens_out,
                    seconds=time.monotonic() - began,
                    cost=reply.cost,
                ),
            )
        return proposals, reply


def _failure(code: str, wait: timedelta | None = None) -> ExtractionFailed:
    return ExtractionFailed(code, final=not FAILURES[code], wait=wait)
