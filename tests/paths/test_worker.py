"""Worker and beat as processes, over each broker: what a write left is done, once, whoever is killed."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import pytest
from kombu import Exchange, Queue

from config.celery import RING_EVERY_SECONDS, Doorbell, new_app
from config.environment import Environment
from memory import outbox
from tenants.beat import beat_is_alive
from tests.memory.background import entries, grant, publish, say, settle_all, withdraw, worker_rows

ROOT = Path(__file__).resolve().parent.parent.parent
BROKERS = {
    "pgmq": "pgmq://",
    "redis": "redis://127.0.0.1:6379/0",
    "rabbitmq": "amqp://guest:guest@127.0.0.1:5672//",
}
HOW = {
    "redis": "needs Redis on 127.0.0.1:6379: run `redis-server` (and install the extra `redis`)",
    "rabbitmq": "needs RabbitMQ on 127.0.0.1:5672: run `rabbitmq-server`",
    "pgmq": "needs MUNIMENT_BROKER_DSN beside DATABASE_URL, or neither for the embedded PostgreSQL",
}


def until(condition: Callable[[], Any], seconds: float = 20.0) -> Any:
    """Wait for a condition; fail when it does not come."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)
    return found


class Process:
    """A celery process in a group of its own."""

    def __init__(self, log: Path, environment: dict[str, str], *arguments: str) -> None:
        self.log = log
        with open(log, "ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-W", "ignore", "-m", "celery", "--quiet", "-A", "config", *arguments],
                cwd=ROOT,
                env={**os.environ, "PYTHONUNBUFFERED": "1", **environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def said(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def code(self, seconds: float = 20.0) -> int:
        return self._process.wait(seconds)

    def kill(self) -> None:
        """Kill it and its children, as if the machine had lost power."""
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        self._process.wait()


class Copy:
    """Workers and beats on one broker, with a queue of their own."""

    def __init__(self, broker: str, folder: Path) -> None:
        self.queue = f"test_{uuid4().hex[:12]}"
        self.broker = broker
        self.folder = folder
        self._environment = {"MUNIMENT_BROKER_URL": BROKERS[broker], "MUNIMENT_HOME": os.environ["MUNIMENT_HOME"]}
        self._started: list[Process] = []
        self.app = new_app(Environment(broker_url=BROKERS[broker]))
        self.app.conf.task_default_queue = self.queue
        self.bell = Doorbell(self.app)

    def _start(self, *arguments: str, **environment: str) -> Process:
        log = self.folder / f"{len(self._started)}.log"
        self._started.append(Process(log, {**self._environment, **environment}, *arguments))
        return self._started[-1]

    def worker(self, **environment: str) -> Process:
        bare = ("--without-gossip", "--without-mingle", "--without-heartbeat")
        return self._start("worker", "--concurrency=1", "--loglevel=WARNING", "-Q", self.queue, *bare, **environment)

    def beat(self) -> Process:
        schedule = self.folder / f"beat-{len(self._started)}"
        return self._start("beat", f"--schedule={schedule}", "--pidfile=", "--loglevel=WARNING")

    def ring_until(self, condition: Callable[[], Any]) -> None:
        """Ring as the writes of a busy application would, until something has happened."""

        def rung() -> Any:
            self.bell.ring()
            return condition()

        until(rung, 40)

    def end(self) -> None:
        for process in self._started:
            process.kill()
        time.sleep(2 * RING_EVERY_SECONDS)  # the last ring would make the queue anew
        with self.app.connection_for_write() as connection, connection.channel() as channel:
            # Declared once more, since a connection deletes only what it knows to be bound.
            queue = Queue(self.queue, Exchange(self.queue), routing_key=self.queue)(channel)
            queue.declare()
            queue.delete()
            if self.broker == "redis":
                for binding in (f"_kombu.binding.{self.queue}", f"_kombu.binding_permanent.{self.queue}"):
                    channel.client.delete(binding)  # type: ignore[attr-defined]


@pytest.fixture
def copy(database: Any, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Copy]:
    broker = getattr(request, "param", "pgmq")
    if broker == "pgmq" and not os.environ.get("MUNIMENT_BROKER_DSN"):
        pytest.skip(HOW["pgmq"])
    if broker != "pgmq":
        place = urlsplit(BROKERS[broker])
        try:
            socket.create_connection((place.hostname, place.port), 1).close()
        except OSError:
            pytest.skip(HOW[broker])
        if broker == "redis":
            pytest.importorskip("redis", reason=HOW["redis"])
    made = Copy(broker, tmp_path)
    yield made
    made.end()


@pytest.fixture
def mute(monkeypatch: pytest.MonkeyPatch) -> None:
    """No ring reaches the broker."""
    monkeypatch.setattr(outbox, "_bell", lambda: lambda: None)


def states(tenant: Any) -> list[tuple[Any, ...]]:
    return [row[1:3] for row in entries(tenant)]


def waits_for_the_chain(superuser: Any) -> bool:
    superuser.execute("SELECT pg_stat_clear_snapshot()")
    waiting = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE 'SELECT audit_append%'"
    return bool(superuser.execute(waiting).rowcount)


@pytest.mark.parametrize("copy", BROKERS, indirect=True)
def test_what_a_write_left_is_done_by_a_worker_at_once(
    copy: Copy, tenant: Any, agent: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "_bell", lambda: copy.bell.ring)
    publish(tenant)
    say(agent, value="canary-Oslo")
    worker = copy.worker()
    copy.ring_until(lambda: states(tenant) == [("done", 0)])
    # No beat runs: from here on it is the write's own ring that is heard.
    for number in range(3):
        before = time.monotonic()
        say(agent, value=f"canary-{number}")
        until(lambda: {state for state, _ in states(tenant)} == {"done"})
        assert time.monotonic() - before < 2.5
    assert worker_rows(tenant, "SELECT act_no - checked_act_no FROM memory_factkey") == [(0,)]
    worker.send(signal.SIGUSR1)
    until(lambda: "File" in worker.said)
    assert "canary" not in worker.said
    assert "LOCAL" not in worker.said
    worker.send(signal.SIGTERM)
    assert worker.code() == 0


def test_a_message_carries_no_argument(copy: Copy, superuser: Any) -> None:
    copy.bell.ring()

    def queued() -> Any:
        if superuser.execute("SELECT to_regclass(%s) IS NULL", [f"pgmq.q_{copy.queue}"]).fetchone()[0]:
            return []
        return superuser.execute(f"SELECT message FROM pgmq.q_{copy.queue}").fetchall()

    ((message,),) = until(queued)
    assert (message["headers"]["argsrepr"], message["headers"]["kwargsrepr"]) == ("()", "{}")
    assert message["headers"]["task"] == "memory.drain"
    assert message["headers"]["eta"] is None


@pytest.mark.usefixtures("mute")
def test_a_worker_killed_in_the_middle_leaves_work_that_is_done_once(
    copy: Copy, tenant: Any, agent: Any, superuser: Any
) -> None:
    publish(tenant)
    grant(agent, "form-1")
    consented = {"provenance": {"turn_id": "t", "consent_ref": "form-1"}, "retention": {"basis": "consent"}}
    for number in range(20):
        say(agent, "mira", "tag", f"tag-{number}", **consented)
    settle_all(tenant)
    withdraw(agent, "form-1")
    settled = (
        "SELECT count(*), count(DISTINCT target_id) FROM tenants_auditevent"
        " WHERE action = 'fact.settled' AND reason = 'consent_withdrawn'"
    )
    first = copy.worker()
    with superuser.transaction():
        # The worker can claim, read and end, but not append to the chain, which it does last.
        superuser.execute("SELECT FROM tenants_auditchain WHERE chain = %s FOR UPDATE", [tenant.id])
        copy.ring_until(lambda: waits_for_the_chain(superuser))
        first.kill()
    assert [row[1:3] for row in entries(tenant, "consent.withdrawn")] == [("pending", 0)]
    assert worker_rows(tenant, settled) == [(0, 0)]
    # Its message comes to another only after minutes; the next one, a sweep's or a write's, finds what it left.
    copy.worker()
    copy.ring_until(lambda: [row[1:3] for row in entries(tenant, "consent.withdrawn")] == [("done", 0)])
    assert worker_rows(tenant, settled) == [(20, 20)]


@pytest.mark.usefixtures("mute")
def test_beat_finds_what_no_ring_told_of_and_runs_alone(copy: Copy, tenant: Any, agent: Any) -> None:
    assert not beat_is_alive()
    # The periodic tasks go to the default queue.
    copy.queue = "muniment"
    worker, beat = copy.worker(), copy.beat()
    until(beat_is_alive)
    second = copy.beat()
    publish(tenant)
    say(agent, value="Oslo")
    until(lambda: states(tenant) == [("done", 0)], 40)
    assert second.code() == 3
    assert second.said == "muniment: another beat runs on this database; this beat ends\n"
    beat.kill()
    until(lambda: not beat_is_alive())
    third = copy.beat()
    until(beat_is_alive)
    third.send(signal.SIGTERM)
    assert third.code() == 0
    until(lambda: not beat_is_alive())
    assert "canary" not in worker.said


def test_worker_and_beat_refuse_to_run_as_the_owner(copy: Copy, database: Any) -> None:
    worker = copy.worker(DATABASE_URL=database.owner)
    assert worker.code() == 3
    assert worker.said.startswith("muniment: refusing to start")
    assert len(worker.said.splitlines()) == 1
