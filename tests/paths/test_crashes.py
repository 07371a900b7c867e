"""A running copy whose processes are killed at random while agents write: nothing is lost, nothing is doubled.

The real launcher, web server, worker, beat and embedded PostgreSQL run; each is sent SIGKILL while four clients write
2,000 facts and try again with the same idempotency key until they are answered.
"""

import contextlib
import http.client
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
import psycopg
import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
WRITES = int(os.environ.get("MUNIMENT_CRASH_WRITES", "2000"))
CLIENTS = 4
SUBJECTS = 25

pytestmark = pytest.mark.slow


class Running:
    """A copy under the real launcher, in a data folder of its own."""

    def __init__(self, home: Path) -> None:
        self.home = home
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        environment = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": os.environ.get("HOME", str(home)),
            "MUNIMENT_HOME": str(home),
            "MUNIMENT_PORT": str(self.port),
        }
        self.output = home.parent / "output.log"
        with open(self.output, "wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "config.launch", "run"],
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._wait_until_it_serves()
        self.key: str = json.loads((home / "demo.json").read_text(encoding="utf-8"))["key"]
        server = json.loads((home / "server.json").read_text(encoding="utf-8"))["environment"]
        self.superuser = server["DATABASE_URL"].replace("muniment_app@", "postgres@")
        self.environment = environment

    def _wait_until_it_serves(self) -> None:
        deadline = time.monotonic() + 60
        while "serving http" not in self.output.read_text(encoding="utf-8"):
            assert self.process.poll() is None, self.output.read_text(encoding="utf-8")
            assert time.monotonic() < deadline, "the copy did not come up in a minute"
            time.sleep(0.2)

    def victims(self, kind: str) -> list[psutil.Process]:
        """The processes of one kind: `web` and `worker` with what they forked, `postgres` the server itself."""
        if kind == "postgres":
            pid = (self.home / "pg" / "postmaster.pid").read_text(encoding="utf-8").splitlines()[0]
            return [psutil.Process(int(pid))]
        mark = {"web": "gunicorn", "worker": "worker"}[kind]
        found = []
        for child in psutil.Process(self.process.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                if mark in child.cmdline():
                    found.append(child)
        return found

    def is_ready(self) -> bool:
        """Whether the copy says of itself that it can serve."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=2)
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def stop(self) -> None:
        """End the copy and everything it started."""
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    """A copy that serves, stopped afterwards."""
    tmp_path.chmod(0o755)
    copy = Running(tmp_path / "home")
    try:
        yield copy
    finally:
        copy.stop()


def write_until_answered(copy: Running, numbers: range, answered: dict[int, str], faults: Counter[str]) -> None:
    """Write one fact a number, each until it is acknowledged; an answer that can never come right is a fault."""
    connection = None
    for number in numbers:
        body = json.dumps(
            {
                "subject": f"person {number % SUBJECTS}",
                "attribute": "account_plan" if number % 3 else "language",
                "value": ["free", "team", "enterprise"][number % 3] if number % 3 else f"language {number}",
                "provenance": {"turn_id": f"crash-{number}"},
            }
        )
        headers = {
            "Authorization": f"Api-Key {copy.key}",
            "Content-Type": "application/json",
            "Idempotency-Key": f"crash-{number}",
        }
        deadline = time.monotonic() + 90
        while True:
            try:
                if connection is None:
                    connection = http.client.HTTPConnection("127.0.0.1", copy.port, timeout=15)
                connection.request("POST", "/api/v1/facts/", body, headers)
                response = connection.getresponse()
                content = response.read()
                if response.status in (200, 201):
                    answered[number] = json.loads(content)["evidence"]
                    break
                faults[f"answer {response.status}"] += 1
                if response.status < 500 and response.status != 409:
                    return
            except (OSError, http.client.HTTPException):
                faults["no answer"] += 1
                if connection is not None:
                    connection.close()
                connection = None
            if time.monotonic() > deadline:
                return
            time.sleep(0.05)


def kill_at_random(copy: Running, over: threading.Event, killed: Counter[str], seed: int) -> None:
    """Kill one process after another, of every kind at least once; the server no more often than it is started again."""
    chance = random.Random(seed)
    order = ["web", "worker", "postgres", "web", "worker", "web", "postgres", "worker"]
    while not over.wait(chance.uniform(0.4, 1.2)):
        kind = order[sum(killed.values()) % len(order)]
        if killed[kind] >= 4 or (kind == "postgres" and not copy.is_ready()):
            killed["spared"] += 1
            continue
        with contextlib.suppress(psutil.NoSuchProcess, OSError, IndexError):
            chosen = chance.choice(copy.victims(kind))
            chosen.send_signal(signal.SIGKILL)
            killed[kind] += 1


def test_every_acknowledged_write_is_there_once_though_processes_are_killed_at_random(running: Running) -> None:
    answered: dict[int, str] = {}
    faults: Counter[str] = Counter()
    killed: Counter[str] = Counter()
    over = threading.Event()
    share = WRITES // CLIENTS
    clients = [
        threading.Thread(
            target=write_until_answered, args=(running, range(place * share, (place + 1) * share), answered, faults)
        )
        for place in range(CLIENTS)
    ]
    killer = threading.Thread(target=kill_at_random, args=(running, over, killed, 20260601))
    for thread in [*clients, killer]:
        thread.start()
    for thread in clients:
        thread.join()
    over.set()
    killer.join()

    output = running.output.read_text(encoding="utf-8")
    assert running.process.poll() is None, output
    assert len(answered) == CLIENTS * share, (faults, output)
    assert all(killed[kind] for kind in ("web", "worker", "postgres")), killed
    assert not any(key.startswith("answer 4") and key != "answer 409" for key in faults), faults

    with _session(running) as session:
        stored: dict[str, int] = dict(
            session.execute(
                "SELECT turn_id, count(*) FROM memory_evidence WHERE turn_id LIKE 'crash-%' GROUP BY 1"
            ).fetchall()
        )
        assert stored == {f"crash-{number}": 1 for number in answered}
        ids = {
            turn: str(evidence)
            for turn, evidence in session.execute(
                "SELECT turn_id, id FROM memory_evidence WHERE turn_id LIKE 'crash-%'"
            ).fetchall()
        }
        assert ids == {f"crash-{number}": evidence for number, evidence in answered.items()}
        audited = session.execute(
            "SELECT count(*), count(DISTINCT target_id) FROM tenants_auditevent"
            " WHERE target_kind = 'evidence' AND target_id IN (SELECT id FROM memory_evidence WHERE turn_id LIKE 'crash-%')"
        ).fetchone()
        assert audited == (len(answered), len(answered))
        _until(lambda: _outbox_is_done(session), 60)
        # By the acts that stand: an act that was foreseen and then waited for a person leaves a number behind, and no work.
        unchecked = session.execute(
            "SELECT count(*) FROM memory_factkey k WHERE EXISTS (SELECT FROM memory_evidence e"
            " WHERE e.tenant_id = k.tenant_id AND e.key_id = k.id AND e.act_no > k.checked_act_no)"
        ).fetchone()
        assert unchecked == (0,)
    verified = subprocess.run(
        [sys.executable, "-W", "ignore", "manage.py", "audit", "verify", "--json"],
        cwd=ROOT,
        env=running.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert verified.returncode == 0, verified.stdout + verified.stderr


def _session(copy: Running) -> psycopg.Connection[Any]:
    deadline = time.monotonic() + 30
    while True:
        try:
            return psycopg.connect(copy.superuser, autocommit=True)
        except psycopg.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.3)


def _outbox_is_done(session: psycopg.Connection[Any]) -> bool:
    states = dict(session.execute("SELECT state, count(*) FROM memory_outboxentry GROUP BY 1").fetchall())
    assert "failed" not in states, states
    return set(states) <= {"done"}


def _until(holds: Any, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it did not come to hold in time"
        time.sleep(0.3)
