"""The review desk with 100,000 proposals waiting: how soon it opens, and how soon the next item stands after a decision;
and the page of a subject of whom much is known."""

from __future__ import annotations

import statistics

from benchmarks.figures import Figure, Target
from benchmarks.ground import Ground
from benchmarks.size import Size


def desk(ground: Ground, size: Size) -> list[Figure]:
    """Opening, and a decision with the claim and sight of the next, through the pages in process."""
    waiting = 100_000 if size.many >= 1_000_000 else 2_000
    decided = size.calls
    with ground.doors() as mine:
        mine.do("desk_seed", real=decided * 2, copies=waiting - decided * 2, url=ground.urls.superuser)
        ground.settle()
        mine.do("desk_open", range(3))
        opened = mine.seconds("desk_open", range(max(10, size.rounds)))
        mine.do("desk_next", range(5))
        following = mine.seconds("desk_next", range(decided))
    words = f"{waiting:,} proposals waiting"
    return [
        Figure(f"desk opened, {words}", statistics.median(opened) * 1e3, "ms p50", target=Target(at_most=500)),
        Figure(
            f"next item in clear after a decision, {words}",
            statistics.median(following) * 1e3,
            "ms p50",
            target=Target(at_most=150),
        ),
    ]


def subject(ground: Ground, size: Size) -> list[Figure]:
    """The page of a subject with 5,000 facts, through the page in process: timeline, table, lineage and all that is beside."""
    changes = 5
    attributes = 1_000 if size.many >= 1_000_000 else 100
    with ground.doors() as mine:
        mine.do("subject_seed", attributes=attributes, changes=changes)
        ground.settle()
        mine.do("subject_page", range(3))
        opened = mine.seconds("subject_page", range(max(10, size.rounds)))
    return [
        Figure(
            f"page of a subject with {attributes * changes:,} facts",
            statistics.median(opened) * 1e3,
            "ms p50",
            target=Target(at_most=800),
        )
    ]
