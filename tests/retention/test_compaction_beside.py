"""Compaction beside writers and readers, and cut off anywhere: nothing that is kept goes, nothing that is over is read.

`MUNIMENT_COMPACTION_SECONDS` says for how long writers and workers run beside each other (by default twenty).
"""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db import connection

from memory import recall, rows
from memory.endings import worker
from memory.outcomes import Denied
from retention import compaction
from retention.compaction import Progress
from tests.memory.doors import Doors, assert_sound, day
from tests.retention.test_compaction import age, compact, events, left

pytestmark = [pytest.mark.usefixtures("database"), pytest.mark.slow]

SECONDS = float(os.environ.get("MUNIMENT_COMPACTION_SECONDS", "20"))
EACH = 8


@pytest.fixture
def doors(tenant: Any) -> Doors:
    return Doors(tenant)


class Beside:
    """Threads that work until the time is up; the first failure of any is raised at the end."""

    def __init__(self) -> None:
        self.until = time.monotonic() + SECONDS
        self.failures: list[BaseException] = []
        self._threads: list[threading.Thread] = []

    def start(self, work: Callable[[], Any], pause: float = 0.0) -> None:
        def run() -> None:
            try:
                while time.monotonic() < self.until and not self.failures:
                    work()
                    time.sleep(pause)
            except BaseException as failure:
                self.failures.append(failure)
            finally:
                connection.close()

        self._threads.append(threading.Thread(target=run))
        self._threads[-1].start()

    def join(self) -> None:
        for thread in self._threads:
            thread.join(SECONDS + 120)
            assert not thread.is_alive(), "somebody waits for ever"
        if self.failures:
            raise self.failures[0]


class Writer:
    """Says of its own subject a lasting value, then short-lived ones over it; and lasting ones on a key that all share."""

    def __init__(self, doors: Doors, number: int) -> None:
        self.doors, self.subject, self.number = doors, f"subject-{number}", 1
        self.first = doors.say("city", "lasting", 0, subject=self.subject).fact
        #: What was acknowledged and is kept: (fact, evidence).
        self.kept: list[tuple[UUID, UUID]] = []
        self.covered = False

    def __call__(self) -> None:
        self.number += 1
        soon = datetime.now(UTC) + timedelta(milliseconds=150)
        short = {"basis": "session", "expires_at": soon}
        said = self.doors.say("city", f"short {self.number % 3}", self.number, subject=self.subject, retention=short)
        if isinstance(said, Denied):
            assert "expiry_in_past" in {said.code, *said.reasons, *(each.code for each in said.errors)}, said
            return  # the machine was slower than that value was to last
        self.covered = True
        # Of these nothing lasts: the subjects themselves are removed, and named again by whoever comes next.
        self.doors.say(
            "city", f"place {self.number}", self.number, subject=f"fleeting-{self.number % 3}", retention=short
        )
        shared = self.doors.say("tags", f"{self.subject} {self.number % 40}", self.number, subject="everybody")
        self.kept.append((shared.fact, shared.evidence))


def reader(doors: Doors, writers: list[Writer]) -> Iterator[int]:
    """Read what holds about each writer's subject: never what is over, never what it hid."""
    looked = 0
    while True:
        for each in writers:
            covered = each.covered
            with doors.reading():
                began: datetime = rows.fetch("SELECT clock_timestamp()", [])[0][0]
                page = recall.facts(doors.agent, subject=each.subject, attribute="city")
            for fact in page.results:
                assert fact["retention"]["expires_at"] > began, "a read returned what was over"
                assert not (covered and fact["value"] == "lasting"), "a read returned what an expired value hid"
            looked += 1
        yield looked


def test_eight_workers_beside_eight_writers(doors: Doors) -> None:
    writers = [Writer(doors, number) for number in range(EACH)]
    beside = Beside()
    for writer in writers:
        beside.start(writer)
    for _ in range(EACH):
        beside.start(lambda: compaction._chunk_if_due(doors.id), pause=0.01)
    looks = [reader(doors, writers) for _ in range(2)]
    for look in looks:
        beside.start(lambda look=look: next(look))  # type: ignore[misc]
    beside.join()
    kept = [pair for writer in writers for pair in writer.kept]
    assert kept
    assert all(next(look) for look in looks), "nobody read"
    # No lost write, and no row that lives was removed.
    stands = {row[0] for row in doors.sql("SELECT id FROM memory_evidence")}
    assert {evidence for _, evidence in kept} <= stands
    living = {
        row[0]
        for row in doors.sql(
            "SELECT f.id FROM memory_fact f JOIN memory_payload p ON p.id = f.payload_id"
            " WHERE f.ended_at IS NULL AND p.ended_at IS NULL AND f.expires_at > clock_timestamp()"
        )
    }
    assert {fact for fact, _ in kept} | {writer.first for writer in writers} <= living
    assert_sound(doors)
    time.sleep(0.2)
    compact(doors)  # what was passed over is met by the next run
    compact(doors)
    assert doors.sql(
        "SELECT count(*) FROM memory_payload WHERE purpose = 'value' AND ended_at IS NULL AND expires_at <= clock_timestamp()"
    ) == [(0,)]
    assert doors.values("tags", subject="everybody")
    assert_sound(doors)


# cut off --------------------------------------------------------------------------------------------------------------


def killed_at(doors: Doors, run: UUID, statement: int) -> bool:
    """Do a chunk in a process of its own that is killed before that statement; return whether it was."""
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        return os.WIFSIGNALED(status)
    try:
        connection.connection = None  # the parent's
        sent, real = 0, rows._sent

        def counted(*given: Any) -> Any:
            nonlocal sent
            sent += 1
            if sent == statement:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*given)

        rows._sent = counted  # type: ignore[assignment]
        compaction.chunk(worker(doors.id), run, limit=4)
        if statement == _AFTER:
            os.kill(os.getpid(), signal.SIGKILL)
    finally:
        os._exit(0)
    return False


_AFTER = -1


def test_killed_before_any_statement_of_a_chunk_it_completes_once(doors: Doors, superuser: Any) -> None:
    episode = doors.episode("I live in Oslo now", subject="mira")
    doors.say("city", "Oslo", 1, episode=episode.id, quote="live in Oslo")
    for number in range(10):
        doors.say("city", f"place {number}", number, subject=f"subject-{number % 3}")
    doors.say("checked", "yes", 1, subject="jon", episode=episode.id, quote="now")
    kept = doors.say("city", "Rome", 1, subject="kept")
    age(superuser, doors, where=f"basis <> 'indefinite' AND id NOT IN (SELECT '{kept.fact}'::uuid UNION ALL"
        f" SELECT payload_id FROM memory_fact WHERE id = '{kept.fact}' UNION ALL SELECT '{kept.evidence}'::uuid)")  # fmt: skip
    run = compaction._open(worker(doors.id))
    statement, kills, progress = 1, 0, Progress.MORE
    while progress is Progress.MORE:
        before = left(doors)
        if killed_at(doors, run, statement):
            assert left(doors) == before, "a chunk that was cut off left something half done"
            kills += 1
            statement += 1
            continue
        # It has no more statements than that: this time it was done. Killed after its commit, the next goes on.
        statement = 1
        killed_at(doors, run, _AFTER)
        progress = Progress.MORE if _is_open(doors, run) else Progress.DONE
    assert kills > 60, kills
    assert events(doors, "content.removed") == [
        ("candidate", "expired", 2, 1),
        ("episode", "expired", 1, 1),
        ("fact", "expired", 11, 11),
    ]
    counts = doors.sql("SELECT counts->'values', counts->'rows_facts', state FROM retention_run", role=_worker())
    assert counts == [(11, 11, "done")]
    assert doors.sql("SELECT count(*) FROM retention_certificate", role=_worker()) == [(1,)]
    assert [row[0] for row in doors.sql("SELECT id FROM memory_fact")] == [kept.fact]
    assert doors.values("city", day(2), subject="kept") == ["Rome"]
    assert_sound(doors)


def _is_open(doors: Doors, run: UUID) -> bool:
    found = doors.sql("SELECT finished_at IS NULL FROM retention_run WHERE id = %s", run, role=_worker())
    return bool(found[0][0])


def _worker() -> Any:
    from tenants.isolation import Role

    return Role.WORKER
