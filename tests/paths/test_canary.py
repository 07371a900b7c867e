"""What ended is gone from everywhere: a word is written through every entrance, ended each way, and looked for.

Looked for in every table as text, bytes and hex (history, admin log, audit, receipts, outbox and broker tables among them),
in everything that is sealed, opened with today's keys, in what agents are answered, and in logs.
"""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from django.conf import settings

from memory import context, derived, kept, outbox, recall
from memory.contracts import RecallBody, parse
from memory.outbox import Settled
from memory.subjects import payload_context
from policies.approvals import Answer
from retention import compaction, erasing
from tenants.actors import Actor, ActorKind, MemberRole
from tenants.isolation import Role, tenant_transaction
from tenants.keyring import KeyUnavailable, Unsealable
from tenants.registry import OPERATOR
from tenants.secrets import keyring
from tests.memory.doors import Doors, day
from tests.paths.test_hygiene import server_log
from tests.retention.canary import found_in

WORD = "zqcanaryword"
SUBJECT = f"mira.{WORD}"
CONSENT = {"consent": "c-118", "retention": {"basis": "consent"}}


@pytest.fixture
def doors(database: Any) -> Doors:
    kept._asked_before.clear()
    return Doors()


def written(doors: Doors, *, consented: bool = False) -> None:
    """Write the word through every entrance, about one subject."""
    more: dict[str, Any] = CONSENT if consented else {}
    of_episode: dict[str, Any] = {"consent_ref": "c-118", "retention": {"basis": "consent"}} if consented else {}
    doors.name(SUBJECT, f"alias {WORD}")
    if consented:
        doors.grant("c-118", SUBJECT)
    said = doors.episode(f"I moved to {WORD} last week.", subject=SUBJECT, extract="no", **of_episode)
    doors.episode(
        {"note": WORD},
        subject=SUBJECT,
        kind="tool_result",
        role="tool",
        tool_call_id="call-1",
        extract="no",
        **of_episode,
    )
    doors.episode({"happened": f"to {WORD}"}, subject=SUBJECT, kind="event", extract="no", **of_episode)
    doors.say("city", WORD, 1, subject=SUBJECT, episode=said.id, quote=f"moved to {WORD}", **more)
    doors.say("city", f"{WORD} upon sea", 3, subject=SUBJECT, **more)
    doors.say("shade", WORD, 1, subject=SUBJECT, sensitivity="public", **more)
    doors.say("secret", WORD, 1, subject=SUBJECT, **more)
    doors.write([doors.body("tags", f"{WORD} {number}", 1, subject=SUBJECT, **more) for number in range(3)], batch=True)
    doors.say("plan", WORD, 1, subject=SUBJECT, recorded_at=day(40), **more)
    wrong = doors.say(
        "lasting" if not consented else "mood", f"{WORD} wrongly", 1, subject=SUBJECT, confidence=0.9, **more
    )
    if hasattr(wrong, "fact") and wrong.fact is not None:
        doors.retract(fact=wrong.fact)
    doors.say("checked", f"{WORD} to confirm", 1, subject=SUBJECT, **more)
    doors.say("mood", f"{WORD} mood", 1, subject=SUBJECT, confidence=0.2, **more)
    doors.say("city", f"{WORD} in conflict", 3, subject=SUBJECT, **more)
    settled(doors)
    for _ in range(3):
        with tenant_transaction(Role.AGENT, tenant=doors.id, clearance=3, actor=doors.agent.id):
            derived.profile(doors.agent, SUBJECT)
            context.recalled(doors.agent, asked(), now=datetime.now(UTC))
        settled(doors)


def asked() -> RecallBody:
    return parse(
        RecallBody, {"question": f"Where is {WORD}?", "subject": SUBJECT, "purpose": "support", "budget_tokens": 2_000}
    )


def settled(doors: Doors) -> None:
    while outbox.drain_tenant(doors.id):
        pass


def opened(superuser: psycopg.Connection[Any], doors: Doors) -> list[str]:
    """The purposes of all that is sealed in a tenant and holds the word, opened with today's keys."""
    found = []
    for payload, purpose, sealed, wrapped, version in superuser.execute(
        "SELECT p.id, p.purpose, p.sealed, k.wrapped, k.version FROM memory_payload p JOIN tenants_subjectkey k"
        " ON k.tenant_id = p.tenant_id AND k.id = p.key_id WHERE p.tenant_id = %s AND p.sealed IS NOT NULL",
        [doors.id],
    ).fetchall():
        try:
            key = keyring().unwrap(doors.id, bytes(wrapped), version)
            text = keyring().open(key, bytes(sealed), payload_context(doors.id, payload, purpose))
        except (KeyUnavailable, Unsealable):
            continue
        if WORD.encode() in text:
            found.append(purpose)
    return sorted(found)


def answers(doors: Doors) -> str:
    """All that an agent of the highest clearance is answered about the subject and what it knew."""
    found: list[Any] = []
    with tenant_transaction(Role.AGENT, tenant=doors.id, clearance=3, actor=doors.agent.id):
        moments: list[dict[str, Any]] = [{}, {"valid_at": day(2)}, {"known_at": day(60)}]
        for when in (*moments, {"valid_at": day(2), "known_at": day(60)}):
            page = recall.profile(doors.agent, SUBJECT, **when)
            found += [page.results, page.withheld]
            found.append(recall.facts(doors.agent, subject=SUBJECT, attribute="city", **when).results)
        answer = context.recalled(doors.agent, asked(), now=datetime.now(UTC))
        found.append([answer["context"], answer["text"]])
        text = derived.profile(doors.agent, SUBJECT)
        found.append([text.facts, text.text.replace(SUBJECT, "")])
    return json.dumps(found, default=str).replace(SUBJECT, "")


def by_expiry(doors: Doors, superuser: psycopg.Connection[Any]) -> None:
    for table in ("payload", "fact", "evidence", "episode", "candidate", "candidatesaying"):
        superuser.execute(
            f"UPDATE memory_{table} SET expires_at = clock_timestamp() - interval '1 hour',"
            " basis = CASE basis WHEN 'indefinite' THEN 'contract' ELSE basis END WHERE tenant_id = %s"
            + (" AND purpose NOT IN ('subject', 'alias')" if table == "payload" else ""),
            [doors.id],
        )
    compacted(doors)


def by_withdrawal(doors: Doors, superuser: psycopg.Connection[Any]) -> None:
    consent = doors.withdraw("c-118")
    with tenant_transaction(Role.WORKER, tenant=doors.id):
        outbox.put(doors.id, "consent.withdrawn", [consent])
    settled(doors)
    # What was said waits a little for writers that began before; no test waits for that.
    superuser.execute(
        "UPDATE memory_payload SET expires_at = expires_at - interval '1 hour' WHERE tenant_id = %s AND purpose = 'episode'",
        [doors.id],
    )
    compacted(doors)


def compacted(doors: Doors) -> None:
    operator = Actor(kind=ActorKind.OPERATOR, id=OPERATOR.id, tenant=doors.id)
    done = compaction.compact(operator, seconds=120)
    assert done.done
    settled(doors)


def by_erasure(doors: Doors, superuser: psycopg.Connection[Any]) -> None:
    first, second = (doors.organisation.person(MemberRole.PRIVACY_OFFICER).actor for _ in range(2))
    now = datetime.now(UTC)
    with tenant_transaction(Role.STAFF, tenant=doors.id, actor=first.id):
        subject = erasing.subject_of(doors.id, SUBJECT)
        erasure = erasing.ask(first, subject, reason="no_longer_needed", now=now)
    with tenant_transaction(Role.STAFF, tenant=doors.id, actor=second.id):
        erasing.decide(second, erasure.id, Answer.APPROVE, shown=erasure.digest, reason="checked", now=now)
    assert erasing.go_on(doors.id, erasure.id, seconds=120) is Settled.DONE
    settled(doors)


Ending = Callable[[Doors, psycopg.Connection[Any]], None]


@pytest.mark.parametrize(("ending", "consented"), [(by_expiry, False), (by_erasure, False), (by_withdrawal, True)])
def test_what_ended_is_found_nowhere(
    doors: Doors, superuser: psycopg.Connection[Any], caplog: Any, ending: Ending, consented: bool
) -> None:
    caplog.set_level(0)
    written(doors, consented=consented)
    before = opened(superuser, doors)
    assert {"value", "episode", "quote", "candidate", "derived", "subject", "alias"} <= set(before)
    assert found_in(superuser, WORD) == ["memory_payload"]
    assert WORD in answers(doors)
    ending(doors, superuser)
    left = opened(superuser, doors)
    # A consent that was withdrawn is kept as proof of itself, and whose it was with it.
    assert [each for each in left if not (consented and each in ("subject", "alias"))] == []
    assert found_in(superuser, WORD) == []
    assert WORD not in answers(doors)
    assert WORD not in caplog.text
    assert WORD not in server_log()
    # Files of the database are another matter: what is clear is gone from them once they were maintained.
    home = Path(settings.ENVIRONMENT.home)
    for file in home.rglob("*"):
        if file.is_file() and file.relative_to(home).parts[0] != "pg":
            assert WORD.encode() not in file.read_bytes(), file


def test_what_ended_does_not_come_back_with_what_is_said_anew_of_others(
    doors: Doors, superuser: psycopg.Connection[Any]
) -> None:
    written(doors)
    by_erasure(doors, superuser)
    doors.say("city", "Ulm", 1, subject=f"someone-{uuid4().hex[:6]}")
    settled(doors)
    compacted(doors)
    assert (opened(superuser, doors), found_in(superuser, WORD)) == ([], [])
