"""A process that does jobs and says how long each took: one line of JSON a job, one an answer. Imports no Django."""

from __future__ import annotations

import contextlib
import json
import select
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


class PartnerFailed(Exception):
    """The process ended in the middle of a job; its last words are the message."""


class Partner:
    """One such process, ended with the block that opened it."""

    def __init__(self, command: list[str], environment: Mapping[str, str], log: Path) -> None:
        self._log = log
        with log.open("ab") as said:
            self._process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=dict(environment),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
                text=True,
            )

    def __enter__(self) -> Partner:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def begin(self, job: str, numbers: Iterable[int] = (), **given: Any) -> None:
        """Send a job, without waiting for its end."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"job": job, "numbers": list(numbers), **given}) + "\n")
            self._process.stdin.flush()
        except OSError:
            raise self._failure(job) from None

    def answer(self, job: str = "") -> Any:
        """Wait for the end of the job that was begun."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise self._failure(job)
        return json.loads(line)

    def answered(self) -> bool:
        """Whether the job that was begun has come to its end."""
        assert self._process.stdout is not None
        return bool(select.select([self._process.stdout], [], [], 0)[0])

    def do(self, job: str, numbers: Iterable[int] = (), **given: Any) -> Any:
        """Have one job done and return its answer. Raises `PartnerFailed`."""
        self.begin(job, numbers, **given)
        return self.answer(job)

    def seconds(self, job: str, numbers: Iterable[int] = (), **given: Any) -> list[float]:
        """Have a job done for each number, and return how long each took."""
        found: list[float] = self.do(job, numbers, **given)["seconds"]
        return found

    def _failure(self, job: str) -> PartnerFailed:
        self._process.wait()
        words = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return PartnerFailed(f"{job}: {words[-1] if words else 'ended without a word'}")


def ours(environment: Mapping[str, str], log: Path, ground: Mapping[str, str] | None = None) -> Partner:
    """Start a process that works the doors."""
    return Partner(
        [sys.executable, "-W", "ignore", "-m", "benchmarks.doors", json.dumps(ground or {})], environment, log
    )
