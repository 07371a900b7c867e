"""A model's server on this machine that speaks as OpenAI's chat completions do: the only double of a provider.

It answers by a script, one turn a question, and keeps the very bytes that it was sent.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

#: Of a question's body: (status, headers, body of the answer). None hangs until the test is over.
Turn = Callable[["Question"], tuple[int, dict[str, str], bytes] | None]


@dataclass(frozen=True)
class Question:
    """What the server was sent."""

    raw: bytes
    headers: dict[str, str]
    path: str

    @property
    def body(self) -> Any:
        return json.loads(self.raw)

    @property
    def prompt(self) -> str:
        """What the user's message says."""
        said = next(each["content"] for each in self.body["messages"] if each["role"] == "user")
        return said if isinstance(said, str) else "".join(part["text"] for part in said)

    @property
    def subject(self) -> str:
        """The id of the subject that is offered."""
        found = re.search(r"^subject: (\S+)$", self.prompt, re.MULTILINE)
        assert found is not None
        return found[1]

    @property
    def fences(self) -> list[str]:
        return re.findall(r"^=====FENCE [0-9a-f]{32}=====$", self.prompt, re.MULTILINE)

    @property
    def stored(self) -> list[dict[str, Any]]:
        """What is told to be stored now."""
        part = self.prompt.split(self.fences[0])[1]
        found: list[dict[str, Any]] = json.loads(part)
        return found

    @property
    def episode(self) -> str:
        """The episode's text as it was sent."""
        return self.prompt.split(self.fences[0])[3].strip("\n")


@dataclass
class ModelServer:
    """The server: its address, what it was asked, and what it will answer."""

    url: str
    script: list[Turn] = field(default_factory=list)
    asked: list[Question] = field(default_factory=list)
    #: What is answered once the script is over.
    otherwise: Turn | None = None
    over: threading.Event = field(default_factory=threading.Event)

    @property
    def received(self) -> bytes:
        """Every byte that came in bodies."""
        return b"\n".join(each.raw for each in self.asked)


def completion(
    *,
    arguments: str | None = None,
    text: str | None = None,
    refusal: str | None = None,
    finish: str = "",
    usage: tuple[int, int] | None = (120, 30),
) -> tuple[int, dict[str, str], bytes]:
    """A completion as the protocol writes it: by a call of the tool, in words, or a refusal."""
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if arguments is not None:
        call = {"id": "call_1", "type": "function", "function": {"name": "report", "arguments": arguments}}
        message["tool_calls"] = [call]
    if refusal is not None:
        message["refusal"] = refusal
    body: dict[str, Any] = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1_790_000_000,
        "model": "scripted",
        "choices": [
            {"index": 0, "message": message, "finish_reason": finish or ("stop" if arguments is None else "tool_calls")}
        ],
    }
    if usage is not None:
        body["usage"] = {"prompt_tokens": usage[0], "completion_tokens": usage[1], "total_tokens": sum(usage)}
    return 200, {}, json.dumps(body).encode()


def says(*proposals: dict[str, Any], **more: Any) -> Turn:
    """Answer with these proposals; what they leave out is filled in, the subject's id with the one that was offered."""

    def turn(question: Question) -> tuple[int, dict[str, str], bytes]:
        filled = [
            {"subject": question.subject, "current_value": None, "change": "new", "confidence": 0.9, **each}
            for each in proposals
        ]
        return completion(arguments=json.dumps({"proposals": filled}), **more)

    return turn


def answers(status: int, body: Any = None, **headers: str) -> Turn:
    """Answer with a status and a body of one's own."""
    raw = body if isinstance(body, bytes) else json.dumps(body or {"error": {"message": "no"}}).encode()
    return lambda question: (status, {name.replace("_", "-"): value for name, value in headers.items()}, raw)


@contextmanager
def model_server(*script: Turn, otherwise: Turn | None = None) -> Iterator[ModelServer]:
    """Serve on a free port of this machine until the block ends."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            question = Question(raw, {name.lower(): value for name, value in self.headers.items()}, self.path)
            with lock:
                served.asked.append(question)
                turn = served.script.pop(0) if served.script else served.otherwise
            answer = None if turn is None else turn(question)
            if answer is None:
                served.over.wait(30)
                self.close_connection = True
                return
            status, headers, body = answer
            self.send_response(status)
            for name, value in {"Content-Type": "application/json", **headers}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    lock = threading.Lock()
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        served = ModelServer(f"http://127.0.0.1:{server.server_port}/v1", list(script), otherwise=otherwise)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield served
        finally:
            served.over.set()
            server.shutdown()
            thread.join()
