"""Volume: batches, late arrivals on a key with much evidence, and a read among few facts and among very many."""

from __future__ import annotations

import statistics
from collections.abc import Callable

from benchmarks.figures import Figure, Target, interleaved, ratio_at_most
from benchmarks.ground import Ground, named
from benchmarks.partner import Partner
from benchmarks.size import Size

BATCH = 1_000
PILE = 1_000
LARGE = "muniment_large"


def batches(ground: Ground, size: Size) -> list[Figure]:
    """Batches of 1,000: about one new subject, about as many new subjects, and of next values."""
    kinds = {
        "batch_one": "all of one new subject",
        "batch_many": "each of another new subject",
        "batch_next": "the next values of known keys",
    }
    with ground.doors() as mine:

        def job(name: str) -> Callable[[int], list[float]]:
            return lambda number: mine.seconds(name, [number], size=BATCH)

        mine.do("batch_many", [0], size=BATCH)
        jobs = {name: job(name) for name in ("batch_one", "batch_next")} | {
            "batch_many": lambda number: mine.seconds("batch_many", [number + 1], size=BATCH)
        }
        found = interleaved(jobs, rounds=max(3, size.rounds // 3))
    return [
        Figure(f"batch of 1,000 facts, {words}", BATCH / found[name], "facts/s", target=Target(at_least=1_500))
        for name, words in kinds.items()
    ]


def late(ground: Ground, size: Size) -> list[Figure]:
    """A saying that arrives late on a key with 1,000 pieces of evidence."""
    with ground.doors() as mine:
        mine.do("pile", [1_000], count=PILE)
        ground.settle()
        mine.do("late", range(5), on=1_000, count=PILE)
        took = mine.seconds("late", range(5, 5 + size.calls), on=1_000, count=PILE)
    name = "late arrival on a key with 1,000 pieces of evidence, in process"
    return [Figure(name, statistics.median(took) * 1e3, "ms p50", target=Target(at_most=25))]


def large(ground: Ground, size: Size) -> list[Figure]:
    """A current read in a database of 1,000,000 facts against one in a database of 10,000, on the same server.

    The large one is a copy of the small one with the other facts put in, so that both can be read in turn.
    """
    with ground.doors(tenant={}) as mine:
        other = mine.do("found", slug="other")
    few = size.few // 20
    with ground.doors() as first:
        first.do("seed", first=0, subjects=few, url=ground.urls.superuser)
    ground.settle()
    ground.copy(LARGE)
    url = named(ground.urls.superuser, LARGE)
    half = (size.many - size.few) // 40
    with ground.doors(LARGE) as first, ground.doors(LARGE) as second, ground.doors(LARGE, other) as third:
        first.begin("seed", first=few, subjects=half, url=url)
        second.begin("seed", first=few + half, subjects=half, url=url)
        first.answer("seed"), second.answer("seed")
        third.do("seed", first=few + 2 * half, subjects=few, url=url)
    ground.settle(LARGE)
    with ground.doors() as small, ground.doors(LARGE) as same, ground.doors(LARGE, other) as foreign:
        # As many facts are asked for in either, those of the large one from all over it: what is compared is the size
        # of the database, not that of the memory. They are read once before, then in another order.
        asked = {
            "small": (small, list(range(size.few))),
            "same": (same, [each * (size.many // size.few) for each in range(size.few)]),
            "foreign": (foreign, [size.many + each for each in range(size.few)]),
        }

        def job(partner: Partner, facts: list[int]) -> Callable[[int], list[float]]:
            return lambda number: partner.seconds(
                "read_seeded", [facts[(number * 7919 + each * 4_729) % len(facts)] for each in range(size.calls)]
            )

        first_time = {
            name: statistics.median(partner.seconds("read_seeded", facts)) for name, (partner, facts) in asked.items()
        }
        found = interleaved({name: job(*each) for name, each in asked.items()}, rounds=size.rounds)
    with ground.superuser("postgres") as session:
        session.execute(f"DROP DATABASE {LARGE}")
    figures = [
        Figure(
            f"current read in process at {size.many:,} facts, {words}, against one at {size.few:,}",
            found[name] * 1e3,
            "ms p50",
            found["small"] * 1e3,
            ratio_at_most(1.2),
        )
        for name, words in (("same", "in the tenant that has them"), ("foreign", "in another tenant"))
    ]
    first_name = f"the first time that a fact is read, at {size.many:,} facts, against {size.few:,}"
    return [*figures, Figure(first_name, first_time["same"] * 1e3, "ms p50", first_time["small"] * 1e3)]
