"""Finding by words: blind tokens, within a tenant, within what the reader may see."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID, uuid4

import pytest

from memory import indexing, lexemes, outbox, remember, rows, search
from memory.contracts import EpisodeBody, parse
from memory.outcomes import EpisodeKept
from tenants.actors import Actor
from tenants.isolation import Role, tenant_transaction
from tenants.secrets import provider
from tests.memory.doors import Doors


@pytest.fixture
def doors(database: Any) -> Doors:
    return Doors()


def say(doors: Doors, text: str, *, subject: str | None = "mira", actor: Actor | None = None, **more: Any) -> UUID:
    """Keep an episode; return its id."""
    actor = actor or doors.agent
    sent = {
        "kind": "message",
        "role": "user",
        "content": text,
        "session_id": "s1",
        "turn_id": uuid4().hex,
        "occurred_at": "2026-01-05T09:00:00Z",
        **({} if subject is None else {"subject": subject}),
        **more,
    }
    with doors.writing(actor):
        kept = remember.episode(actor, parse(EpisodeBody, sent))
    assert isinstance(kept, EpisodeKept)
    return kept.id


@contextmanager
def reading(doors: Doors, actor: Actor | None = None) -> Iterator[None]:
    actor = actor or doors.agent
    with tenant_transaction(Role.AGENT, tenant=doors.id, clearance=actor.clearance, actor=actor.id):
        yield


def found(doors: Doors, question: str, *, actor: Actor | None = None, subject: UUID | None = None) -> list[UUID]:
    with reading(doors, actor):
        hits = search.find(doors.id, lexemes.lexemes(question, "english"), subject=subject, kinds=["episode"])
    return [hit.target for hit in hits.episodes]


def test_an_episode_is_found_by_its_words_in_any_inflection_as_soon_as_it_is_kept(doors: Doors) -> None:
    passport = say(doors, "My passport must be renewed in July.")
    say(doors, "The weather is fine.")
    assert found(doors, "When am I renewing the passports?") == [passport]


def test_no_word_of_a_text_stands_in_the_index(doors: Doors, superuser: Any) -> None:
    say(doors, "zyzzyva zyzzyva zyzzyva")
    stored = superuser.execute(
        "SELECT to_jsonb(e)::text FROM memory_searchentry e WHERE e.tenant_id = %s", [doors.id]
    ).fetchall()
    assert len(stored) == 1
    assert "zyzzyva" not in stored[0][0]


def test_what_a_reader_may_not_read_is_not_found_and_weighs_nothing(doors: Doors, superuser: Any) -> None:
    open_, closed = (
        say(doors, "a heron on the river", turn_id=f"t{level}", sensitivity=level)
        for level in ("personal", "restricted")
    )
    assert set(found(doors, "heron")) == {open_, closed}
    # As if nothing else were there: neither a hit nor a frequency tells of it.
    with reading(doors, doors.actor(clearance=2)):
        (hit,) = search.find(doors.id, ["heron"], subject=None, kinds=["episode"]).episodes
    alone = Doors()
    say(alone, "a heron on the river")
    with reading(alone):
        (other,) = search.find(alone.id, ["heron"], subject=None, kinds=["episode"]).episodes
    assert (hit.target, hit.score) == (open_, other.score)


@pytest.mark.parametrize(
    "change",
    ["expires_at = now() - interval '1 second'", "restricted = true", "redaction_state = 'required'"],
    ids=["expired", "restricted", "redacted"],
)
def test_an_entry_is_as_visible_as_its_payload(doors: Doors, superuser: Any, change: str) -> None:
    episode = say(doors, "a heron on the river")
    superuser.execute(
        f"UPDATE memory_payload p SET {change} FROM memory_episode e WHERE e.id = %s AND p.id = e.payload_id", [episode]
    )
    assert found(doors, "heron") == []


def test_an_entry_falls_with_the_content_of_its_payload(doors: Doors, superuser: Any) -> None:
    kept = [say(doors, "a heron on the river") for _ in range(2)]
    superuser.execute(
        "UPDATE memory_payload p SET sealed = NULL, ended_at = now(), redaction_state = 'applied' FROM memory_episode e"
        " WHERE e.id = %s AND p.id = e.payload_id",
        [kept[0]],
    )
    left = superuser.execute("SELECT target_id FROM memory_searchentry WHERE tenant_id = %s", [doors.id]).fetchall()
    assert [row[0] for row in left] == [kept[1]]


def test_a_small_tenant_loses_nothing_to_the_others(doors: Doors, superuser: Any) -> None:
    """One entry in a hundred: the same words stand in everybody else's too."""
    large = Doors()
    for place in range(99):
        say(large, f"the heron of the river, for the {place}th time")
    mine = say(doors, "one heron by the river")
    assert found(doors, "Where was the heron by the river?") == [mine]
    superuser.execute("ANALYZE memory_searchentry")
    assert found(doors, "Where was the heron by the river?") == [mine]


def test_the_tokens_of_another_tenant_find_nothing_here(doors: Doors, superuser: Any) -> None:
    other = Doors()
    say(other, "a heron on the river")
    ((tokens,),) = superuser.execute(
        "SELECT tokens FROM memory_searchentry WHERE tenant_id = %s", [other.id]
    ).fetchall()
    with reading(doors):
        sql = "SELECT count(*) FROM search_hits(%s::bigint[], %s::bigint[], '{}'::bigint[], '{episode}'::text[], 10)"
        assert rows.fetch(sql, [rows.longs(tokens), rows.longs(tokens)]) == [(0,)]
        assert rows.fetch("SELECT entries FROM search_extent(%s::bigint, '{episode}'::text[], 10)", [tokens[0]]) == [
            (0,)
        ]


def test_a_search_goes_by_the_index_of_tokens_whatever_is_known_of_the_table(doors: Doors, superuser: Any) -> None:
    say(doors, "a heron on the river")
    body = superuser.execute("SELECT prosrc FROM pg_proc WHERE proname = 'search_hits'").fetchone()[0]
    with superuser.transaction(force_rollback=True):
        superuser.execute("SET LOCAL plan_cache_mode = 'force_generic_plan'")
        superuser.execute("SET LOCAL enable_seqscan = off")
        superuser.execute("SELECT set_config('muniment.tenant', %s, true)", [str(doors.id)])
        for name, kind in (
            ("any", "bigint[]"),
            ("all", "bigint[]"),
            ("tokens", "bigint[]"),
            ("kinds", "text[]"),
            ("most", "int"),
        ):
            place = {"tokens": 1, "any": 2, "all": 3, "kinds": 4, "most": 5}[name]
            body = body.replace(f"p_{name}", f"${place}::{kind}")
        superuser.execute(f"PREPARE look (bigint[], bigint[], bigint[], text[], int) AS {body}")
        plan = superuser.execute("EXPLAIN EXECUTE look ('{1}', '{1}', '{}', '{episode}', 10)").fetchall()
    text = "\n".join(row[0] for row in plan)
    assert "searchentry_tokens" in text, text
    assert "_pkey" not in text, text


def test_values_and_names_are_found_once_their_work_is_done(doors: Doors) -> None:
    doors.write([doors.body("city", "Porto Alegre", subject="mira lopez")])
    with reading(doors):
        assert search.readiness(doors.id).waiting >= 1
    outbox.drain_tenant(doors.id)
    with reading(doors):
        hits = search.find(doors.id, ["porto", "lopez"], subject=None, kinds=["value", "name"])
        assert search.readiness(doors.id).waiting == 0
    assert (len(hits.values), len(hits.names)) == (1, 1)


def test_c134_an_index_that_is_made_anew_says_so_and_loses_nothing(doors: Doors, superuser: Any) -> None:
    episode = say(doors, "a heron on the river")
    doors.write([doors.body("city", "Porto")])
    outbox.drain_tenant(doors.id)
    superuser.execute("DELETE FROM memory_searchentry WHERE tenant_id = %s", [doors.id])
    with reading(doors):
        assert search.readiness(doors.id).state == "rebuilding"
    while indexing.make_up(doors.id):
        pass
    with reading(doors):
        assert search.readiness(doors.id).state == "ready"
        hits = search.find(doors.id, ["heron", "porto", "mira"], subject=None, kinds=["episode", "value", "name"])
    assert ([hit.target for hit in hits.episodes], len(hits.values), len(hits.names)) == ([episode], 1, 1)
    # Entries of other rules are made again; those that are right stay.
    superuser.execute("UPDATE memory_searchstate SET rules = 'older' WHERE tenant_id = %s", [doors.id])
    superuser.execute(
        "UPDATE memory_searchentry SET rules = 'older' WHERE tenant_id = %s AND kind = 'episode'", [doors.id]
    )
    with reading(doors):
        assert search.readiness(doors.id).state == "rebuilding"
    while indexing.make_up(doors.id):
        pass
    made = superuser.execute(
        "SELECT DISTINCT rules FROM memory_searchentry WHERE tenant_id = %s", [doors.id]
    ).fetchall()
    assert made == [(search.rules(),)]


def test_after_a_new_version_of_the_tenants_key_the_index_is_made_anew_and_says_so(
    doors: Doors, superuser: Any
) -> None:
    before = say(doors, "a heron on the river")
    while indexing.make_up(doors.id):
        pass
    with reading(doors):
        assert search.readiness(doors.id).state == "ready"
    version = provider().new_version(doors.id)
    # What is said now is found at once, what was said before cannot be until it is made anew: the answer says so.
    after = say(doors, "the heron is gone")
    assert found(doors, "heron") == [after]
    with reading(doors):
        assert search.readiness(doors.id).state == "rebuilding"
    while indexing.make_up(doors.id):
        pass
    with reading(doors):
        assert search.readiness(doors.id).state == "ready"
    assert set(found(doors, "heron")) == {before, after}
    made = superuser.execute("SELECT DISTINCT key_version FROM memory_searchentry WHERE tenant_id = %s", [doors.id])
    assert made.fetchall() == [(version,)]


def test_in_a_large_scope_rare_words_find_and_common_ones_weigh(doors: Doors, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "SMALL", 5)
    monkeypatch.setattr(search, "COMMON_FROM", 4)
    for place in range(8):
        say(doors, f"the river and the boat, day {place}")
    rare = say(doors, "a heron by the river, and no boat")
    both = say(doors, "river, river, boat")
    while indexing.make_up(doors.id):
        pass
    indexing.make_up(doors.id)
    assert found(doors, "heron river") == [rare]
    assert found(doors, "the river and the boat")[0] == both
    assert len(found(doors, "river boat")) == 10
    assert found(doors, "river") != []


def test_a_question_of_nothing_finds_nothing(doors: Doors) -> None:
    say(doors, "a heron on the river")
    for question in ("", "   ", "?!", "\\ \" ' : * %% _", "the of and"):
        assert found(doors, question) == []
