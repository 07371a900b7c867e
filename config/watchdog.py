"""A process that outlives its starter just long enough to end what the starter has left running.

Parent death signals are not enough: a worker that is asked to end while its database ends too may wait for ever, and
its own children do not notice when it is killed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable

_GRACE_SECONDS = 2.0


class Watchdog:
    """Made by fork, so before any thread is started. Keeps inherited files open, locks with them, until it ends.

    Knows process groups by the pid of their leader. When the process that made it ends, in whatever way, it ends the
    groups that are still on its list.
    """

    def __init__(self, *, close: Iterable[int] = ()) -> None:
        reading, self._writing = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            try:
                os.close(self._writing)
                for fd in close:
                    os.close(fd)
                _watch(reading)
            finally:
                os._exit(0)
        os.close(reading)

    def add(self, leader: int) -> None:
        """Put a group on the list."""
        self._tell(f"+{leader}\n")

    def remove(self, leader: int) -> None:
        """Take a group that has ended off the list, since its number may come again."""
        self._tell(f"-{leader}\n")

    def dismiss(self) -> None:
        """End it, and what is on its list; return when all that is gone."""
        os.close(self._writing)
        os.waitpid(self._pid, 0)

    def _tell(self, line: str) -> None:
        with contextlib.suppress(BrokenPipeError):  # somebody has killed it
            os.write(self._writing, line.encode())


def _watch(reading: int) -> None:
    os.setsid()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    leaders: set[int] = set()
    with open(reading, encoding="ascii") as lines:
        for line in lines:
            if line.startswith("+"):
                leaders.add(int(line[1:]))
            else:
                leaders.discard(int(line[1:]))
    for leader in leaders:
        with contextlib.suppress(OSError):
            os.kill(leader, signal.SIGTERM)
    deadline = time.monotonic() + _GRACE_SECONDS
    while time.monotonic() < deadline and any(_lives(leader) for leader in leaders):
        time.sleep(0.02)
    for leader in leaders:
        with contextlib.suppress(OSError):
            os.killpg(leader, signal.SIGKILL)
    while any(_lives(leader) for leader in leaders) and time.monotonic() < deadline + 1:
        time.sleep(0.02)


def _lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except OSError:
        return False
    return True
