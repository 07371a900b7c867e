"""Recall by question over many episodes of one tenant: what a question takes, of everybody and of one subject."""

from __future__ import annotations

from benchmarks.figures import Figure, Target, interleaved
from benchmarks.ground import Ground, named
from benchmarks.size import Size


def recall(ground: Ground, size: Size) -> list[Figure]:
    """Questions of five words over all episodes, and over those of one of 200 speakers, in process."""
    episodes = size.many // 10
    with ground.doors() as mine:
        mine.do("seed_talk", episodes=episodes, url=named(ground.urls.superuser, "muniment"))
        ground.settle()
        calls = max(10, size.calls // 4)

        def job(of_one: bool):  # type: ignore[no-untyped-def]
            return lambda number: mine.seconds(
                "ask", range(number * calls, (number + 1) * calls), episodes=episodes, of_one=of_one
            )

        found = interleaved({"all": job(False), "one": job(True)}, rounds=size.rounds)
    return [
        Figure(
            f"recall by question over {episodes:,} episodes", found["all"] * 1000, "ms p50", None, Target(at_most=25)
        ),
        Figure(
            f"recall by question of one subject among {episodes:,} episodes",
            found["one"] * 1000,
            "ms p50",
            None,
            Target(at_most=25),
        ),
    ]
