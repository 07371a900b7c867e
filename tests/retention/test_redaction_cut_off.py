"""Redaction that is cut off, raced, restored or outlived: it happened whole or not at all, and it stays."""

import os
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from memory import recall
from memory.outcomes import Denied
from retention import endings_log, redaction
from retention.redaction import Kind, Pick
from retention.strategies import Strategy
from tenants.isolation import Role, tenant_transaction
from tests.database_plugin import Servers
from tests.memory.doors import assert_sound, day
from tests.retention.canary import found_in
from tests.retention.legal import job
from tests.retention.redacting import Redacting, episode, fact

TEXT = "I live in Berlin and my plan is gold"


@pytest.fixture
def doors(database: Any) -> Redacting:
    return Redacting()


def told(doors: Redacting) -> Any:
    said = doors.episode(TEXT, subject="mira", role="user", extract="no")
    return doors.say("city", "Berlin", 1, episode=said.id, quote="I live in Berlin"), said


_KILLED = """
import os, django
django.setup()
from datetime import UTC, datetime
from uuid import UUID
from memory import erasure, rows, search, suppression
from memory import redacted as marks
from retention import certificates, endings_log, redaction, runs
from tenants.actors import Actor, ActorKind
from tenants.isolation import Role, tenant_transaction
module, _, name = os.environ["BEFORE"].rpartition(":")
target = {"redaction": redaction, "erasure": erasure, "marks": marks, "suppression": suppression, "runs": runs,
          "certificates": certificates, "endings_log": endings_log, "search": search}[module]
kept = getattr(target, name)
def maybe(*args, **more):
    os.kill(os.getpid(), 9)
setattr(target, name, maybe)
tenant, actor = UUID(os.environ["TENANT"]), UUID(os.environ["ACTOR"])
who = Actor(kind=ActorKind.PERSON, id=actor, tenant=tenant, clearance=3)
with tenant_transaction(Role.STAFF, tenant=tenant, clearance=3, actor=actor):
    redaction.apply(who, UUID(os.environ["PROPOSAL"]), shown=bytes.fromhex(os.environ["SHOWN"]), reason="checked", now=datetime.now(UTC))
"""
STEPS = [
    "redaction:_lock",
    "redaction:_keep_items",
    "suppression:add",
    "runs:finish",
    "certificates:issue",
    "erasure:end_facts",
    "erasure:end_episodes",
    "marks:mark",
    "search:store",
    "redaction:_ask_about",
    "endings_log:owe",
    "redaction:append",
]


@pytest.mark.parametrize("before", [*STEPS, "endings_log:settle"])
def test_killed_in_any_step_it_happened_whole_or_not_at_all(doors: Redacting, before: str) -> None:
    written, said = told(doors)
    request = doors.propose(fact(written.fact, Strategy.MASK), episode(said.id))
    environment = {
        **os.environ,
        "TENANT": str(doors.id),
        "ACTOR": str(doors.officer.id),
        "PROPOSAL": str(request.id),
        "SHOWN": doors.examine(request).digest.hex(),
        "BEFORE": before,
        "DJANGO_SETTINGS_MODULE": "config.settings",
    }
    killed = subprocess.run([sys.executable, "-c", _KILLED], env=environment, check=False)
    assert killed.returncode == -9
    time.sleep(0.2)  # the server notices that the other process is gone
    with doors.acting(doors.officer):
        waits = [each.id for each in redaction.queue(doors.id)]
    if before == "endings_log:settle":
        # Committed, and not yet told outside: the next who asks tells it.
        assert waits == []
        assert endings_log.settle(doors.id) > 0
    else:
        # Nothing of it happened: it waits, hidden, as it did before.
        assert waits == [request.id]
        assert doors.sql("SELECT count(*) FROM memory_payload WHERE ended_at IS NOT NULL") == [(0,)]
        assert doors.sql("SELECT count(*) FROM memory_suppression") == [(0,)]
        assert doors.value("city", 2) is None
        assert doors.apply(request).applied
    assert doors.fact(written.fact)["value"]["redacted"] is True
    assert doors.sql("SELECT count(*) FROM tenants_auditevent WHERE action = 'redaction.applied'") == [(1,)]
    with doors.acting(doors.officer):
        from retention.models import Certificate, Run

        assert (Certificate.objects.filter(kind="redaction").count(), Run.objects.filter(kind="redaction").count()) == (
            1,
            1,
        )
    assert len({each.id for each in endings_log.told(doors.id) if each.kind == "redaction"}) == 1
    assert_sound(doors)


def test_who_writes_at_the_same_time_adds_to_what_goes_or_comes_after_it(doors: Redacting, database: Servers) -> None:
    """While an application is under way nobody adds a quote to what it takes out; what waits for it finds it done."""
    written, _said = told(doors)
    request = doors.propose(fact(written.fact))
    shown = doors.examine(request).digest
    outcomes: list[Any] = []

    def write() -> None:
        outcomes.append(doors.say("city", "Berlin", 5))

    with doors.acting(doors.officer):
        redaction.apply(doors.officer, request.id, shown=shown, reason="checked", now=datetime.now(UTC))
        writer = threading.Thread(target=write)
        writer.start()
        time.sleep(0.5)
        assert outcomes == []
    writer.join(20)
    assert isinstance(outcomes[0], Denied)
    assert outcomes[0].code == "suppressed"
    assert_sound(doors)


def test_of_two_who_apply_at_once_one_does(doors: Redacting) -> None:
    written, _ = told(doors)
    request = doors.propose(fact(written.fact))
    shown = doors.examine(request).digest
    found: list[str] = []

    def apply() -> None:
        try:
            found.append(str(doors.apply(request, shown=shown).applied))
        except Exception as error:
            found.append(str(error))

    both = [threading.Thread(target=apply) for _ in range(2)]
    for each in both:
        each.start()
    for each in both:
        each.join(30)
    assert sorted(found) == ["True", "already_decided"]


def test_a_restored_backup_from_before_is_rid_of_it_again(doors: Redacting) -> None:
    written, said = told(doors)
    asked = doors.say("checked", "yes", 1)
    # What the log would tell of a redaction that this database has not seen.
    payloads = {
        kind: doors.sql(f"SELECT {column} FROM memory_{kind} WHERE id = %s", record)[0][0]
        for kind, column, record in (
            ("fact", "payload_id", written.fact),
            ("evidence", "quote_id", written.evidence),
            ("episode", "payload_id", said.id),
            ("candidate", "payload_id", asked.candidate),
        )
    }
    ids = {"fact": written.fact, "evidence": written.evidence, "episode": said.id, "candidate": asked.candidate}
    records = [[kind, str(ids[kind]), str(payload)] for kind, payload in payloads.items()]
    for _ in range(2):
        with tenant_transaction(Role.WORKER, tenant=doors.id):
            assert redaction.end_again(doors.id, [*records, ["fact", str(uuid4()), None]], now=datetime.now(UTC))
    assert [each["value"]["redacted"] for each in doors.page("city", valid_at=day(2)).results] == [True]
    with doors.reading():
        assert recall.episode(doors.agent, said.id)["content"]["redacted"] is True
        assert recall.candidate(doors.agent, asked.candidate)["value"]["redacted"] is True
    assert doors.sql("SELECT count(*) FROM memory_payload WHERE purpose <> 'subject' AND ended_at IS NULL") == [(0,)]
    with tenant_transaction(Role.WORKER, tenant=doors.id):
        assert not redaction.end_again(doors.id, [["fact", str(uuid4()), None]], now=datetime.now(UTC))


def test_what_was_left_ends_with_the_life_of_its_record(doors: Redacting, superuser: psycopg.Connection[Any]) -> None:
    from retention import compaction

    shade = doors.say("shade", "canary-left-1234", 1)
    doors.redact(fact(shade.fact, Strategy.MASK_TAIL))
    assert doors.fact(shade.fact)["value"]["left"].endswith("1234")
    doors.expire(shade.fact)
    assert doors.page("shade", valid_at=day(2)).results == []
    compaction.compact(job(doors.id))
    assert found_in(superuser, "1234") == [] or doors.sql(
        "SELECT count(*) FROM memory_payload WHERE purpose = 'value' AND ended_at IS NULL"
    ) == [(0,)]


def test_c001_c007_c024_a_canary_that_came_in_everywhere_is_gone_from_everywhere(
    doors: Redacting, superuser: psycopg.Connection[Any], caplog: pytest.LogCaptureFixture
) -> None:
    canary = f"canary{uuid4().hex[:10]}"
    message = doors.episode(f"{canary} was here", subject="mira", role="user", extract="no", sensitivity="public")
    result = doors.episode(
        f'{{"where": "{canary}"}}', subject="mira", kind="tool_result", tool_call_id="call-1", extract="no", sensitivity="public"
    )  # fmt: skip
    one = doors.say("shade", canary, 1, episode=message.id, quote=f"{canary} was")
    many = doors.write([doors.body("labels", canary, 1), doors.body("labels", f"{canary} too", 1)], batch=True)
    imported = doors.say("shade", f"imported {canary}", 0, recorded_at=day(0), subject="noor")
    asked = doors.say("checked", canary, 1)
    with doors.reading():
        recall.profile(doors.agent, "mira")
    before = found_in(superuser, canary)
    assert "memory_payload" in before
    picks = [
        episode(message.id),
        episode(result.id),
        *(fact(each.fact) for each in (one, *many, imported)),
        Pick(kind=Kind.CANDIDATE, target=asked.candidate),
    ]
    doors.redact(*picks)
    assert found_in(superuser, canary) == []
    # Of a class that is sealed the words were never there; its content is.
    assert doors.sql("SELECT count(*) FROM memory_payload WHERE purpose <> 'subject' AND ended_at IS NULL") == [(0,)]
    assert canary not in caplog.text
    assert canary not in "".join(str(dict(each.record)) for each in endings_log.told(doors.id))
