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


def _p99(seconds: list[float]) -> float:
    return statistics.quantiles(seconds, n=100)[98] * 1e3
