"""In process: a governed read against a store's get, a governed write against an add, and where their time goes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from benchmarks.figures import Figure, interleaved, ratio_at_most
from benchmarks.ground import Ground, RivalsMissing
from benchmarks.partner import Partner
from benchmarks.size import Size

STORE = "PostgresStore.get of langgraph-checkpoint-postgres"
MEM0 = "Memory.add of mem0ai, infer=False, pgvector"


@contextmanager
def _both(ground: Ground) -> Iterator[tuple[Partner, Partner | None]]:
    """Open a process of ours and, where they are installed, one of the rivals."""
    with ExitStack() as stack:
        mine = stack.enter_context(ground.doors())
        try:
            rivals = stack.enter_context(ground.rivals())
        except RivalsMissing as missing:
            print(f"bench: {missing}", flush=True)
            rivals = None
        yield mine, rivals


def reads(ground: Ground, size: Size) -> list[Figure]:
    """A current read by subject and attribute, without and with its receipt."""
    subjects = 1_000
    with _both(ground) as (mine, rivals):
        for start in range(0, subjects, 500):
            mine.do("fill", [start], size=500)
        if rivals is not None:
            rivals.do("put", range(subjects))
        ground.settle()

        def job(partner: Partner, name: str) -> Callable[[int], list[float]]:
            return lambda number: partner.seconds(name, [(number * 97 + each) % subjects for each in range(size.calls)])

        jobs = {"answer": job(mine, "answer"), "read": job(mine, "read")}
        if rivals is not None:
            jobs["get"] = job(rivals, "get")
        found = interleaved(jobs, rounds=size.rounds)
    get = _milliseconds(found.get("get"))
    return [
        Figure(
            f"current read in process, without a receipt, against {STORE}",
            _milliseconds(found["answer"]),
            "ms p50",
            get,
            ratio_at_most(2.5),
        ),
        Figure(
            f"current read in process, with its receipt, against {STORE}",
            _milliseconds(found["read"]),
            "ms p50",
            get,
            ratio_at_most(4),
        ),
    ]


def writes(ground: Ground, size: Size) -> list[Figure]:
    """One saying of each kind, committed to the disk, against one memory added, committed to the disk."""
    kinds = {
        "write_next": "the next value of a known key",
        "write_other": "a first value of a known subject",
        "write": "a first value of a new subject",
    }
    with _both(ground) as (mine, rivals):
        mine.do("fill", [0], size=500)
        ground.settle()
        # Each number is used once, so that every saying is one that was not said before.
        fresh = {name: itertools.count(10_000) for name in (*kinds, "add")}

        def job(partner: Partner, name: str) -> Callable[[int], list[float]]:
            return lambda _: partner.seconds(name, [next(fresh[name]) for _ in range(size.calls // 2)])

        jobs = {name: job(mine, name) for name in kinds}
        if rivals is not None:
            jobs["add"] = job(rivals, "add")
        found = interleaved(jobs, rounds=size.rounds)
    add = _milliseconds(found.get("add"))
    return [
        Figure(
            f"write in process, {words}, against {MEM0}", _milliseconds(found[name]), "ms p50", add, ratio_at_most(1.25)
        )
        for name, words in kinds.items()
    ]


def where_the_time_goes(ground: Ground, size: Size) -> list[Figure]:
    """Print what the statements of a read and of writes take, and return how many each sends."""
    shown = {
        "read": ("read", 0, "statements of a current read"),
        "write_next": ("write_next", 50_000, "statements of a write, the next value of a known key"),
        "write_other": ("write_other", 60_000, "statements of a write, a first value of a known subject"),
        "write": ("write", 70_000, "statements of a write, a first value of a new subject"),
    }
    figures = []
    with ground.doors() as mine:
        mine.do("fill", [0], size=500)
        ground.settle()
        for job, first, name in shown.values():
            mine.do(job, range(first + 300, first + 330) if first else range(30))
            numbers = range(first, first + size.calls)
            found = mine.do("statements", [each % 500 for each in numbers] if not first else numbers, of=job)
            print(f"\n  {name.removeprefix('statements of ')}: {sum(each['seconds'] for each in found) * 1e3:.2f} ms")
            for each in sorted(found, key=lambda entry: -entry["seconds"]):
                print(f"    {each['seconds'] * 1e6:7.0f} us  x{each['count']:<4.3g} {each['statement']}")
            figures.append(Figure(name, sum(each["count"] for each in found), "statements"))
    print(flush=True)
    return figures


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1e3
