"""Over HTTP: reads and writes as an agent sends them, against a bare view that does SELECT 1, all under gunicorn."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from benchmarks.bodies import said
from benchmarks.figures import Figure, Target, interleaved, ratio_at_most
from benchmarks.ground import Ground
from benchmarks.partner import ROOT
from benchmarks.size import Size

BARE = "a bare view that does SELECT 1"
CONNECTIONS = 4
_LOAD = Path(__file__).resolve().parent / "load.py"


def all_of_it(ground: Ground, size: Size) -> list[Figure]:
    """Latency of one connection, throughput of four."""
    subjects = 500
    with ground.doors() as mine:
        mine.do("fill", [0], size=subjects)
        mine.do("pile", range(40), count=100)
    ground.settle()
    key, fresh = ground.tenant["key"], count(100_000)

    def reads(number: int, requests: int) -> list[str]:
        paths = (
            f"/api/v1/facts/?subject=subject-{(number * 97 + each) % subjects}&attribute=passport_deadline"
            for each in range(requests)
        )
        return [_request("GET", path, key) for path in paths]

    def writes(requests: int, *, keyed: bool = False) -> list[str]:
        numbers = [next(fresh) for _ in range(requests)]
        return [
            _request(
                "POST",
                "/api/v1/facts/",
                key,
                said(f"subject-{each % subjects}", "passport_deadline", _day(each)),
                idempotency=f"bench-{each}" if keyed else None,
            )
            for each in numbers
        ]

    def piled(requests: int) -> list[str]:
        numbers = [next(fresh) for _ in range(requests)]
        bodies = (said(f"piled-{each % 40}", "passport_deadline", _day(each)) for each in numbers)
        return [_request("POST", "/api/v1/facts/", key, body) for body in bodies]

    with _served(ground, "config.wsgi", "/healthz") as ours, _served(ground, "benchmarks.bare", "/") as bare:
        one = size.requests // 5
        # Every thread of every worker has a connection of its own, on which each statement is planned once.
        _load(ours, 2 * CONNECTIONS, reads(0, 400))
        _load(ours, 2 * CONNECTIONS, writes(200, keyed=True) + piled(200))
        _load(bare, 2 * CONNECTIONS, [_request("GET", "/", "")] * 400)

        def waits(port: int, requests: Callable[[int], list[str]]) -> Callable[[int], list[float]]:
            return lambda number: _load(port, 1, requests(number))["seconds"]

        slow = interleaved(
            {
                "bare": waits(bare, lambda _: [_request("GET", "/", "")] * one),
                "read": waits(ours, lambda number: reads(number, one)),
                "write": waits(ours, lambda _: writes(one // 3)),
            },
            rounds=max(3, size.rounds // 2),
        )

        def rate(port: int, requests: Callable[[int], list[str]]) -> Callable[[int], list[float]]:
            def measured(number: int) -> list[float]:
                sent = requests(number)
                return [len(sent) / _load(port, CONNECTIONS, sent)["whole"]]

            return measured

        fast = interleaved(
            {
                "bare": rate(bare, lambda _: [_request("GET", "/", "")] * size.requests),
                "read": rate(ours, lambda number: reads(number, size.requests)),
                "write": rate(ours, lambda _: writes(size.requests // 3)),
                "keyed": rate(ours, lambda _: writes(size.requests // 3, keyed=True)),
                "piled": rate(ours, lambda _: piled(size.requests // 3)),
            },
            rounds=max(3, size.rounds // 3),
        )
    waited = f"against {BARE}"
    return [
        Figure(
            f"current read over HTTP, one connection, {waited}",
            slow["read"] * 1e3,
            "ms p50",
            slow["bare"] * 1e3,
            ratio_at_most(3),
        ),
        Figure(f"write over HTTP, one connection, {waited}", slow["write"] * 1e3, "ms p50", slow["bare"] * 1e3),
        Figure(
            f"current reads over HTTP at 4 connections, {waited}",
            fast["read"],
            "a second",
            fast["bare"],
            Target(at_least=1_000),
        ),
        Figure("writes over HTTP at 4 connections", fast["write"], "a second", target=Target(at_least=300)),
        Figure("writes over HTTP at 4 connections, with an Idempotency-Key", fast["keyed"], "a second"),
        Figure(
            "writes over HTTP at 4 connections, on keys with 100 pieces of evidence and more",
            fast["piled"],
            "a second",
            target=Target(at_least=300),
        ),
    ]


def _day(number: int) -> str:
    # Every number of a run gives another value: each write is an update.
    return f"{2000 + number // 28 // 12 % 8000:04d}-{number // 28 % 12 + 1:02d}-{number % 28 + 1:02d}"


def _request(method: str, path: str, key: str, body: Any = None, *, idempotency: str | None = None) -> str:
    content = "" if body is None else json.dumps(body)
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1"]
    if key:
        lines.append(f"Authorization: Api-Key {key}")
    if idempotency is not None:
        lines.append(f"Idempotency-Key: {idempotency}")
    if content:
        lines += ["Content-Type: application/json", f"Content-Length: {len(content)}"]
    return "\r\n".join(lines) + "\r\n\r\n" + content


def _load(port: int, connections: int, requests: Sequence[str]) -> dict[str, Any]:
    job = json.dumps({"port": port, "connections": connections, "requests": requests})
    done = subprocess.run([sys.executable, "-I", str(_LOAD)], input=job, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    if set(found["statuses"]) - {"200", "201"}:
        raise SystemExit(f"bench: answers with status {found['statuses']}")
    return found


@contextmanager
def _served(ground: Ground, application: str, probe: str) -> Iterator[int]:
    """Serve a WSGI application by our gunicorn, as it is in production, and give the port."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(64)
        port, fd = listener.getsockname()[1], listener.fileno()
        command = [
            sys.executable,
            "-m",
            "gunicorn",
            "--config",
            "python:config.gunicorn",
            "--bind",
            f"fd://{fd}",
            application,
        ]
        with (ground.log.parent / f"{application}.log").open("ab") as log:
            server = subprocess.Popen(
                command, cwd=ROOT, env=ground.environment(), pass_fds=(fd,), stdout=log, stderr=log
            )
        try:
            deadline = time.monotonic() + 30
            while True:
                try:
                    _load(port, 1, [_request("GET", probe, "")])
                    break
                except subprocess.CalledProcessError:
                    if server.poll() is not None or time.monotonic() > deadline:
                        raise SystemExit(f"bench: {application} does not answer; see {log.name}") from None
                    time.sleep(0.1)
            yield port
        finally:
            server.terminate()
            server.wait(10)
