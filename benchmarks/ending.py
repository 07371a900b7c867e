"""Endings at volume: overdue facts compacted, and what current reads beside it wait."""

from __future__ import annotations

import statistics

from benchmarks.figures import Figure, Target, ratio_at_most
from benchmarks.ground import Ground
from benchmarks.size import Size

#: What is read beside the run: facts that are kept.
_KEPT_SUBJECTS = 500
#: Facts of a seeded subject.
EACH = 20


def compaction(ground: Ground, size: Size) -> list[Figure]:
    """Compact overdue facts, each with its evidence, stretch, value and key, beside a reader that never stops.

    A row is what has an expiry of its own that is over: a fact, its evidence, its payload.
    """
    subjects = size.overdue // EACH
    with ground.doors() as mine, ground.doors() as second:
        mine.do("seed", first=0, subjects=_KEPT_SUBJECTS, url=ground.urls.superuser)
        with ground.superuser() as session:
            ((last,),) = session.execute("SELECT max(id::text)::uuid FROM memory_fact").fetchall()
        half = subjects // 2
        mine.begin("seed", first=_KEPT_SUBJECTS, subjects=half, url=ground.urls.superuser)
        second.begin("seed", first=_KEPT_SUBJECTS + half, subjects=subjects - half, url=ground.urls.superuser)
        mine.answer("seed"), second.answer("seed")
    with ground.superuser() as session:
        session.execute("SET session_replication_role = replica")
        # All of a fact is over at one instant, as the write door leaves it.
        session.execute(
            "CREATE TEMP TABLE over AS SELECT id, payload_id, clock_timestamp() - interval '1 hour'"
            " - (random() * interval '30 days') AS at FROM memory_fact WHERE id > %s AND basis <> 'indefinite'",
            [last],
        )
        session.execute("UPDATE memory_fact f SET expires_at = o.at FROM over o WHERE f.id = o.id")
        session.execute("UPDATE memory_payload p SET expires_at = o.at FROM over o WHERE p.id = o.payload_id")
        session.execute("UPDATE memory_evidence e SET expires_at = o.at FROM over o WHERE e.fact_id = o.id")
    ground.settle()
    kept = _KEPT_SUBJECTS * EACH
    asked = [(number * 7_919) % kept for number in range(size.calls * 20)]
    with ground.doors() as reader, ground.doors() as worker:
        reader.seconds("read_seeded", asked)
        without = reader.seconds("read_seeded", asked)
        worker.begin("compact")
        beside: list[float] = []
        while not worker.answered():
            beside += reader.seconds("read_seeded", asked[:200])
        done = worker.answer("compact")
    assert done["counts"]["values"] >= subjects * EACH, done
    took, facts = done["seconds"], done["counts"]["values"]
    print(f"  {facts:,} facts in {took:.1f} s: {done['counts']}", flush=True)
    return [
        Figure(
            f"overdue rows compacted, of {facts:,} facts ({3 * facts:,} rows)",
            3 * facts / took,
            "rows/s",
            target=Target(at_least=5_000),
        ),
        Figure("facts compacted, each with evidence, stretch, value and key", facts / took, "facts/s"),
        Figure(
            "current read in process beside compaction, against without",
            _p99(beside),
            "ms p99",
            _p99(without),
            ratio_at_most(2),
        ),
    ]


#: Pieces of evidence of the redacted fact, and derived rows that rest on it.
PIECES, DERIVED = 1_000, 1_000
# Contexts kept of so many questions, each resting on the fact; what they say is no matter here.
_REST_ON = """
WITH f AS (SELECT f.tenant_id, f.id, f.subject_id, s.key_id, (SELECT b.id FROM memory_belief b WHERE b.tenant_id = f.tenant_id
    AND b.fact_id = f.id LIMIT 1) AS belief FROM memory_fact f
    JOIN memory_subject s ON s.tenant_id = f.tenant_id AND s.id = f.subject_id WHERE f.id = %(fact)s),
n AS (SELECT gen_random_uuid() AS payload, gen_random_uuid() AS derived, gen_random_uuid() AS source FROM generate_series(1, %(count)s)),
p AS (INSERT INTO memory_payload (tenant_id, id, purpose, key_id, sealed, sensitivity, basis, expires_at, written_at)
  SELECT f.tenant_id, n.payload, 'derived', f.key_id, decode(repeat('00', 400), 'hex'), 2, 'session', now() + interval '1 day', now()
  FROM f, n),
d AS (INSERT INTO memory_derived (tenant_id, id, kind, subject_id, clearance, state, asked_at, question_digest, payload_id, sensitivity,
    basis, expires_at, built_at, print, rules, sources)
  SELECT f.tenant_id, n.derived, 'context', f.subject_id, 3, 'built', now(), uuid_send(n.derived) || uuid_send(n.payload), n.payload, 2,
    'session', now() + interval '1 day', now(), uuid_send(n.derived), 'bench', 1 FROM f, n)
INSERT INTO memory_derivedsource (tenant_id, id, derived_id, fact_id, belief_id, state)
SELECT f.tenant_id, n.source, n.derived, f.id, f.belief, uuid_send(n.source) FROM f, n
"""


def redaction(ground: Ground, size: Size) -> list[Figure]:
    """Redact one fact with a thousand quotes, on which a thousand derived rows rest, as two people do it."""
    rounds = min(size.rounds, 5)
    took: list[dict[str, float]] = []
    with ground.doors() as doors, ground.superuser() as session:
        doors.do("redactable", range(rounds), pieces=PIECES)
        facts = session.execute(
            "SELECT id FROM memory_fact WHERE evidence_count >= %s ORDER BY id DESC LIMIT %s", [PIECES, rounds]
        ).fetchall()
        session.execute("SET session_replication_role = replica")
        for (fact,) in facts:
            session.execute(_REST_ON, {"fact": fact, "count": DERIVED})
        ground.settle()
        for (fact,) in facts:
            took.append(doors.do("redact", fact=str(fact)))
        left = session.execute("SELECT count(*) FROM memory_derived WHERE rules = 'bench'").fetchone()
    assert left == (0,), left
    assert len(took) == rounds
    steps = {step: statistics.median(each[step] for each in took) for step in took[0]}
    return [
        Figure(
            f"one fact redacted, with {PIECES:,} quotes and {DERIVED:,} derived rows: proposed (hidden, derived thrown away)",
            steps["propose"],
            "s",
            target=Target(at_most=1),
        ),
        Figure("the same: what follows, looked at", steps["preview"], "s"),
        Figure("the same: taken out, certified and told outside", steps["apply"], "s", target=Target(at_most=1)),
    ]


# Facts and episodes like those that the door wrote, in the same keys, each a chain of its own. What they say is no matter.
_MUCH = """
UPDATE memory_payload p SET clear = 'the first of many', sealed = NULL, key_id = NULL, sensitivity = 1
  FROM memory_episode e WHERE e.subject_id = %(subject)s AND p.id = e.payload_id;
CREATE TEMP TABLE probe AS SELECT row_number() OVER (ORDER BY f.id) - 1 AS place, f.id AS fact, f.payload_id AS payload, e.id AS evidence,
    b.id AS belief, s.id AS entry
  FROM memory_fact f JOIN memory_evidence e ON e.fact_id = f.id JOIN memory_belief b ON b.fact_id = f.id
  LEFT JOIN memory_searchentry s ON s.payload_id = f.payload_id WHERE f.subject_id = %(subject)s;
CREATE TEMP TABLE more AS SELECT g, p.*, gen_random_uuid() AS a, gen_random_uuid() AS b, gen_random_uuid() AS c, gen_random_uuid() AS d,
    nextval('memory_chain_no') AS chain
  FROM generate_series(1, %(facts)s) g JOIN probe p ON p.place = g %% (SELECT count(*) FROM probe);
INSERT INTO memory_payload SELECT (jsonb_populate_record(x, jsonb_build_object('id', m.b))).* FROM more m JOIN memory_payload x ON x.id = m.payload;
INSERT INTO memory_fact SELECT (jsonb_populate_record(x, jsonb_build_object('id', m.a, 'payload_id', m.b, 'chain_no', m.chain,
    'value_digest', '\\x' || md5(g::text) || md5(g::text)))).* FROM more m JOIN memory_fact x ON x.id = m.fact;
INSERT INTO memory_evidence SELECT (jsonb_populate_record(x, jsonb_build_object('id', m.c, 'fact_id', m.a, 'act_no', m.g + 10))).*
  FROM more m JOIN memory_evidence x ON x.id = m.evidence;
INSERT INTO memory_belief SELECT (jsonb_populate_record(x, jsonb_build_object('id', m.d, 'fact_id', m.a, 'evidence_id', m.c,
    'chain_no', m.chain))).* FROM more m JOIN memory_belief x ON x.id = m.belief;
INSERT INTO memory_searchentry SELECT (jsonb_populate_record(x, jsonb_build_object('id', gen_random_uuid(), 'payload_id', m.b,
    'target_id', m.a))).* FROM more m JOIN memory_searchentry x ON x.id = m.entry;
CREATE TEMP TABLE said AS SELECT g, e.id AS episode, e.payload_id AS payload, gen_random_uuid() AS a, gen_random_uuid() AS b
  FROM generate_series(1, %(episodes)s) g, memory_episode e WHERE e.subject_id = %(subject)s;
INSERT INTO memory_payload SELECT (jsonb_populate_record(x, jsonb_build_object('id', m.b, 'clear', 'something was said: ' || m.g))).*
  FROM said m JOIN memory_payload x ON x.id = m.payload;
INSERT INTO memory_episode SELECT (jsonb_populate_record(x, jsonb_build_object('id', m.a, 'payload_id', m.b, 'turn_id', 't' || m.g))).*
  FROM said m JOIN memory_episode x ON x.id = m.episode;
INSERT INTO memory_searchentry SELECT (jsonb_populate_record(x, jsonb_build_object('id', gen_random_uuid(), 'payload_id', m.b,
    'target_id', m.a))).* FROM said m JOIN memory_searchentry x ON x.payload_id = m.payload;
DROP TABLE probe; DROP TABLE more; DROP TABLE said
"""


def erasure(ground: Ground, size: Size) -> list[Figure]:
    """Erase a subject of whom much is known, as two people decide it: carried out, verified by search, certified."""
    with ground.doors() as doors, ground.superuser() as session:
        doors.do("erasable", [0], subject="much-is-known")
        found = session.execute("SELECT subject_id FROM memory_episode ORDER BY id DESC LIMIT 1").fetchone()
        assert found is not None
        session.execute("SET session_replication_role = replica")
        for statement in _MUCH.split(";\n"):
            session.execute(statement, {"subject": found[0], "facts": size.known, "episodes": size.said})
        ground.settle()
        took = doors.do("erase", subject="much-is-known")
    assert (took["state"], took["left"]) == ("done", 0), took
    of = f"a subject with {size.known:,} facts and {size.said:,} episodes"
    return [
        Figure(f"{of} erased, verified and certified", took["erase"], "s", target=Target(at_most=180)),
        Figure("the same: counted for its preview, and asked", took["ask"], "s"),
        Figure("the same: approved, no name resolves any more", took["approve"], "s"),
    ]


def _p99(seconds: list[float]) -> float:
    return statistics.quantiles(seconds, n=100)[98] * 1e3
