"""One question to a provider's model, through pydantic-ai, which is imported with the first question and not before.

Nothing of a provider's error but its kind comes out of here: its text may repeat what was sent.
"""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from memory.extraction.model.prompt import INSTRUCTIONS, Answer

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelResponse
    from pydantic_ai.models import Model

_TOOL = "report"
_OPENAI = "https://api.openai.com/v1"
_ANTHROPIC = "https://api.anthropic.com"
#: They would write what they send into a log of level DEBUG.
_TALKATIVE = ("openai", "anthropic", "httpx", "httpx2", "httpcore", "httpcore2")


class NotInstalled(Exception):
    """The libraries that speak with a provider are not installed."""


class NotConfigured(ValueError):
    """A model is named in no form that is known."""


@dataclass(frozen=True, slots=True)
class Named:
    """Which model, and where. `label` names it in provenance and metrics: no address, no secret."""

    family: Literal["openai", "anthropic"]
    url: str
    model: str
    label: str

    @property
    def is_here(self) -> bool:
        """Whether the provider runs on this machine."""
        return urlsplit(self.url).hostname in ("127.0.0.1", "::1", "localhost")

    @property
    def is_installed(self) -> bool:
        """Whether the libraries that speak with it are there. Imports none of them."""
        return find_spec("pydantic_ai") is not None and find_spec(self.family) is not None


def named(setting: str) -> Named:
    """Return the model of a setting: `openai:NAME`, `anthropic:NAME`, or the base URL of a server that speaks as
    OpenAI's does, with `#NAME` where it serves several.

    Raises NotConfigured, without the setting, for any other text, and for a URL with a user or password in it.
    """
    if setting.startswith(("http://", "https://")):
        url, _, model = setting.partition("#")
        parts = urlsplit(url)
        if parts.hostname and "@" not in parts.netloc and not parts.query:
            return Named("openai", url.rstrip("/"), model or "default", f"compatible:{model or 'default'}")
    family, _, model = setting.partition(":")
    if model.strip() and family == "openai":
        return Named("openai", _OPENAI, model, setting)
    if model.strip() and family == "anthropic":
        return Named("anthropic", _ANTHROPIC, model, setting)
    raise NotConfigured("a model is named openai:NAME, anthropic:NAME or http(s)://HOST/v1#NAME")


@dataclass(frozen=True, slots=True)
class Reply:
    """How a question ended: `code` is `answered`, or why there is no answer.

    `tokens_in` and `tokens_out` are None where the provider did not say; `cost` is an estimate in millionths of a
    US dollar, 0 where the price is not known. `wait` is how many seconds the provider asked for.
    """

    code: str
    answer: str = field(default="", repr=False)
    tokens_in: int | None = None
    tokens_out: int | None = None
    cost: int = 0
    wait: float | None = None
    was_sent: bool = True


def ask(
    model: Named, key: str, prompt: str, *, seconds: float, tokens: int, output: Literal["tool", "schema"]
) -> Reply:
    """Ask once, for at most `seconds` in all, for an answer of at most `tokens`; never tries again, never follows a redirect.

    Raises NotInstalled. Every other failure is a reply with its code.
    """
    if not model.is_installed:
        raise NotInstalled
    return asyncio.run(_asked(model, key, prompt, seconds, tokens, output))


async def _asked(model: Named, key: str, prompt: str, seconds: float, tokens: int, output: str) -> Reply:
    from pydantic_ai.direct import model_request
    from pydantic_ai.messages import ModelRequest, UserPromptPart
    from pydantic_ai.models import ModelRequestParameters
    from pydantic_ai.output import OutputObjectDefinition
    from pydantic_ai.tools import ToolDefinition

    schema = Answer.model_json_schema()
    about = "Reports what the episode says about the subject"
    if output == "tool":
        asked = ModelRequestParameters(
            output_mode="tool",
            output_tools=[ToolDefinition(name=_TOOL, parameters_json_schema=schema, description=about, kind="output")],
            allow_text_output=False,
        )
    else:
        asked = ModelRequestParameters(
            output_mode="native", output_object=OutputObjectDefinition(schema, _TOOL, about), allow_text_output=True
        )
    request = ModelRequest(parts=[UserPromptPart(prompt)], instructions=INSTRUCTIONS)
    try:
        async with asyncio.timeout(seconds), AsyncExitStack() as stack:
            spoken = await _model(model, key, seconds, stack)
            response = await model_request(
                spoken,
                [request],
                model_settings={"max_tokens": tokens, "temperature": 0.0, "timeout": seconds},
                model_request_parameters=asked,
                instrument=False,
            )
    except Exception as error:
        return _failed(error)
    return _replied(response)


async def _model(named: Named, key: str, seconds: float, stack: AsyncExitStack) -> Model:
    """Return the model with a connection of its own, which ends with the question: loops are not shared by threads."""
    import httpx2

    for name in _TALKATIVE:
        logging.getLogger(name).setLevel(logging.WARNING)
    # What is asked of a server on this machine goes through no proxy.
    client = await stack.enter_async_context(
        httpx2.AsyncClient(timeout=seconds, follow_redirects=False, trust_env=not named.is_here)
    )
    if named.family == "openai":
        from openai import AsyncOpenAI
        from pydantic_ai.models.openai import OpenAIChatModel
        from pydantic_ai.providers.openai import OpenAIProvider

        speaks = AsyncOpenAI(base_url=named.url, api_key=key or "none", max_retries=0, http_client=client)
        return OpenAIChatModel(named.model, provider=OpenAIProvider(openai_client=speaks))
    from anthropic import AsyncAnthropic
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.providers.anthropic import AnthropicProvider

    talks = AsyncAnthropic(base_url=named.url, api_key=key or "none", max_retries=0, http_client=client)
    return AnthropicModel(named.model, provider=AnthropicProvider(anthropic_client=talks))


_FINISHED = {"length": "truncated", "content_filter": "refused", "error": "provider_unavailable"}


def _replied(response: ModelResponse) -> Reply:
    from pydantic_ai.messages import TextPart, ToolCallPart

    usage = response.usage
    is_measured = bool(usage.input_tokens or usage.output_tokens)
    code = _FINISHED.get(response.finish_reason or "", "answered")
    calls = [part for part in response.parts if isinstance(part, ToolCallPart) and part.tool_name == _TOOL]
    # Some servers answer in the text what they were asked to answer by a call.
    answer = calls[0].args_as_json_str() if calls else _unfenced("".join(
        part.content for part in response.parts if isinstance(part, TextPart)
    ))  # fmt: skip
    if code == "answered" and len(calls) > 1:
        code = "invalid_output"
    return Reply(
        code,
        answer,
        tokens_in=usage.input_tokens if is_measured else None,
        tokens_out=usage.output_tokens if is_measured else None,
        cost=_cost(response),
    )


def _unfenced(text: str) -> str:
    text = text.strip()
    if text.startswith("```"):
        text = text.partition("\n")[2].rpartition("```")[0]
    return text


def _cost(response: ModelResponse) -> int:
    try:
        return round(response.cost().total_price * 1_000_000)
    except Exception:
        # A model that nobody listed a price for: a server of one's own, as a rule.
        return 0


def _failed(error: Exception) -> Reply:
    from pydantic_ai import exceptions

    by_kind: tuple[tuple[type[BaseException], str], ...] = (
        (exceptions.ModelTimeoutError, "timeout"),
        (exceptions.ModelRequestTimeout, "timeout"),
        (TimeoutError, "timeout"),
        (exceptions.ModelRateLimitError, "rate_limited"),
        (exceptions.ModelQuotaExceededError, "quota_exceeded"),
        (exceptions.ModelUnavailableError, "provider_unavailable"),
        (exceptions.ModelServerError, "provider_unavailable"),
        (exceptions.ModelConnectionError, "provider_unavailable"),
        (exceptions.ModelAuthenticationError, "key_refused"),
        (exceptions.ModelNotFoundError, "model_unknown"),
        (exceptions.ModelContextWindowExceededError, "too_long"),
        (exceptions.ModelRequestRejectedError, "request_refused"),
        (exceptions.ModelHTTPError, "request_refused"),
        (exceptions.ContentFilterError, "refused"),
        (exceptions.UnexpectedModelBehavior, "invalid_output"),
    )
    code = next((code for kind, code in by_kind if isinstance(error, kind)), "provider_failed")
    if code == "provider_failed" and isinstance(error.__cause__, json.JSONDecodeError):
        code = "invalid_output"
    elif code == "provider_failed" and getattr(error.__cause__, "status_code", None) is not None:
        # Sent elsewhere: what may be told here may not be told there.
        code = "request_refused"
    wait: Any = getattr(error, "retry_after", None)
    return Reply(
        code,
        wait=float(wait) if isinstance(wait, int | float) else None,
        # What was turned away costs nothing; of what broke off nobody knows.
        was_sent=code in ("timeout", "invalid_output", "provider_failed", "refused")
        or getattr(error, "phase", None) == "read",
    )
