"""Episodes in bulk, as the write door would have left them, straight into the tables by a superuser; and questions of them.

Payloads are sealed and entries of the index are real. Words are made up, as often as words are: a few stand in most texts,
most in a few. Left out: receipts, the audit chain and the outbox.
"""

import random
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from typing import Any
from uuid import UUID

import psycopg

from memory import context, indexing, remember, search
from memory.contracts import EpisodeBody, RecallBody, parse
from memory.search import Text
from memory.subjects import payload_context
from tenants.actors import Actor
from tenants.identity import new_id
from tenants.isolation import Role, tenant_transaction
from tenants.secrets import keyring

SPEAKERS = 200
_WORDS = [f"{a}{b}{c}" for a in "bdfgklmnprstvz" for b in ("a", "ei", "o", "u") for c in "dfgklmnprstvbz" for _ in (1,)]
_VOCABULARY = [f"{first}{second}" for first in _WORDS[:150] for second in _WORDS[:130]]
_WEIGHTS = list(accumulate(1 / (place + 3) for place in range(len(_VOCABULARY))))
_START = datetime(2024, 1, 1, tzinfo=UTC)
_TOGETHER = 2_000


def text(number: int) -> str:
    """Return what was said in the episode of a number: 20 to 60 words."""
    chosen = random.Random(number)
    return " ".join(chosen.choices(_VOCABULARY, cum_weights=_WEIGHTS, k=chosen.randint(20, 60)))


def question(number: int, episodes: int) -> tuple[str, str]:
    """Return a question that one of the episodes answers, five words of it as they come, and who said it."""
    chosen = random.Random(-number - 1)
    episode = chosen.randrange(episodes)
    return "What about " + " ".join(chosen.sample(text(episode).split(), 5)) + "?", f"speaker-{episode % SPEAKERS}"


def seed(actor: Actor, *, episodes: int, url: str) -> dict[str, int]:
    """Seed episodes of 200 speakers in turn, index them and count the index."""
    keys: list[tuple[UUID, UUID, bytes]] = []
    for speaker in range(SPEAKERS):
        body = {"kind": "message", "role": "user", "content": "hello", "session_id": f"s{speaker}", "turn_id": "first",
                "subject": f"speaker-{speaker}", "occurred_at": _START.isoformat(), "extract": "no"}  # fmt: skip
        with tenant_transaction(Role.WRITER, tenant=actor.tenant, clearance=3, actor=actor.id):
            remember.episode(actor, parse(EpisodeBody, body))
    with psycopg.connect(url) as session:
        session.execute("SET session_replication_role = replica; SET synchronous_commit = off")
        for speaker in range(SPEAKERS):
            found = session.execute(
                "SELECT s.id, s.key_id, k.wrapped, k.version FROM memory_subjectidentifier i"
                " JOIN memory_subject s ON s.id = i.subject_id JOIN tenants_subjectkey k ON k.id = s.key_id"
                " WHERE i.tenant_id = %s AND i.digest = %s",
                [actor.tenant, keyring().identifier(actor.tenant, f"speaker-{speaker}")],
            ).fetchone()
            assert found is not None
            keys.append((found[0], found[1], keyring().unwrap(actor.tenant, bytes(found[2]), found[3])))
        probe = session.execute(
            "SELECT to_jsonb(e)::text, to_jsonb(p)::text FROM memory_episode e JOIN memory_payload p ON p.id = e.payload_id"
            " WHERE e.tenant_id = %s LIMIT 1",
            [actor.tenant],
        ).fetchone()
        assert probe is not None
        for first in range(0, episodes, _TOGETHER):
            _chunk(session, actor, keys, probe, range(first, min(first + _TOGETHER, episodes)))
    while indexing.make_up(actor.tenant):
        pass
    indexing.make_up(actor.tenant)
    return {"episodes": episodes}


_EPISODES = """
INSERT INTO memory_episode SELECT (jsonb_populate_record(NULL::memory_episode, %s::jsonb || jsonb_build_object('id', w.id,
  'payload_id', w.payload, 'subject_id', w.subject, 'session_id', w.session, 'turn_id', w.turn, 'occurred_at', w.at))).*
FROM unnest(%s::uuid[], %s::uuid[], %s::uuid[], %s::text[], %s::text[], %s::timestamptz[])
  AS w (id, payload, subject, session, turn, at)
"""
_PAYLOADS = """
INSERT INTO memory_payload SELECT (jsonb_populate_record(NULL::memory_payload, %s::jsonb || jsonb_build_object('id', w.id,
  'key_id', w.key, 'sealed', w.sealed))).*
FROM unnest(%s::uuid[], %s::uuid[], %s::bytea[]) AS w (id, key, sealed)
"""


def _chunk(
    session: psycopg.Connection[Any],
    actor: Actor,
    keys: list[tuple[UUID, UUID, bytes]],
    probe: tuple[str, str],
    numbers: range,
) -> None:
    ring, tenant = keyring(), actor.tenant
    episodes, payloads, texts = [], [], []
    for number in numbers:
        subject, key_id, key = keys[number % SPEAKERS]
        episode, payload, said = new_id(), new_id(), text(number)
        at = _START + timedelta(minutes=number)
        sealed = ring.seal(key, said.encode(), payload_context(tenant, payload, "episode"))
        payloads.append((payload, key_id, sealed))
        episodes.append((episode, payload, subject, f"s{number % SPEAKERS}", f"turn {number}", at))
        texts.append(Text("episode", episode, subject, payload, at, said, 2, at + timedelta(days=36_500), None))
    session.execute(_PAYLOADS, [probe[1], *(list(column) for column in zip(*payloads, strict=True))])
    session.execute(_EPISODES, [probe[0], *(list(column) for column in zip(*episodes, strict=True))])
    session.commit()
    with tenant_transaction(Role.WRITER, tenant=tenant):
        search.store(tenant, texts)


def ask(actor: Actor, number: int, *, episodes: int, of_one: bool) -> None:
    """Recall what answers a question, of one speaker or of everybody, as a face does."""
    asked, speaker = question(number, episodes)
    body: dict[str, Any] = {"question": asked, "purpose": "support", "budget_tokens": 1_000}
    if of_one:
        body["subject"] = speaker
    now = datetime.now(UTC)
    with tenant_transaction(Role.AGENT, tenant=actor.tenant, clearance=3, actor=actor.id, durable=False):
        answer = context.recalled(actor, parse(RecallBody, body), now=now)
    assert answer["context"]
