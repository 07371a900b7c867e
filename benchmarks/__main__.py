"""Measure everything and write results.json: `python -m benchmarks [--only NAME] [--quick]`."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks import desk, ending, figures, in_process, over_http, recalling, volume
from benchmarks.figures import Figure
from benchmarks.ground import Ground, ground
from benchmarks.partner import PartnerFailed
from benchmarks.size import FULL, QUICK, Size
from config.embedded import PlatformMissing, ServerFailed

RESULTS = Path(__file__).resolve().parent / "results.json"

#: In the order of running: what fills the database most comes last.
MEASURES: dict[str, Callable[[Ground, Size], list[Figure]]] = {
    "reads": in_process.reads,
    "writes": in_process.writes,
    "time": in_process.where_the_time_goes,
    "http": over_http.all_of_it,
    "recall": recalling.recall,
    "desk": desk.desk,
    "subject": desk.subject,
    "late": volume.late,
    "batches": volume.batches,
    "large": volume.large,
    "redaction": ending.redaction,
    "erasure": ending.erasure,
    "compaction": ending.compaction,
}


def main(arguments: list[str]) -> int:
    """Run the measures; return 0 however the figures turn out, 2 where nothing could be measured."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure the doors, side by side.")
    parser.add_argument("--only", choices=list(MEASURES), action="append", help="measure this alone (repeatable)")
    parser.add_argument("--quick", action="store_true", help="small sizes: a look, not a figure to quote")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where to write them (default: %(default)s)")
    chosen = parser.parse_args(arguments)
    size = QUICK if chosen.quick else FULL
    found: list[Figure] = []
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    print(f"bench: {cores} cores, load {load:.1f}", flush=True)
    if load > cores / 4:
        print("bench: the machine is busy: these are not figures to quote", flush=True)
    try:
        with ground() as made:
            for name in chosen.only or MEASURES:
                began = time.monotonic()
                print(f"bench: {name}", flush=True)
                for figure in MEASURES[name](made, size):
                    found.append(figure)
                    print(f"  {figure}", flush=True)
                print(f"bench: {name} took {time.monotonic() - began:.0f} s", flush=True)
    except (PlatformMissing, ServerFailed, PartnerFailed) as failure:
        print(f"bench: {failure}", file=sys.stderr)
        return 2
    # Figures of other measures stay; small sizes are nobody's figures to keep beside full ones.
    figures.write(found, chosen.results, keep=bool(chosen.only) and not chosen.quick)
    missed = sum(figure.met is False for figure in found)
    print(f"bench: {len(found)} figures in {chosen.results}, {missed} missed")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
