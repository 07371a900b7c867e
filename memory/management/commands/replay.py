"""`replay FOLDER`: a recorded history through the doors, and every question with a known answer asked of it."""

import os
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError

from memory.evaluation.folders import FolderUnreadable, Selection
from memory.evaluation.replay import PARTS, Wanted, replay
from tenants.management.command import OperatorCommand


def _percent(text: str) -> float:
    if not 0 < (number := float(text)) <= 100:
        raise ArgumentTypeError("more than 0, at most 100")
    return number


def _positive(text: str) -> int:
    if (number := int(text)) < 1:
        raise ArgumentTypeError("at least 1")
    return number


class Command(OperatorCommand):
    help = "Replay a folder of recorded histories and compare every answer with the one that is right."

    def arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("folder", type=Path, help="holds dialogues.jsonl or subjects.jsonl (may be .gz)")
        parser.add_argument("--tenant", help="write into the tenant of this slug; by default one is made for the run")
        parser.add_argument(
            "--sample", type=_percent, default=100.0, metavar="PERCENT", help="the same subjects each time"
        )
        parser.add_argument("--limit", type=_positive, metavar="N", help="at most N subjects")
        parser.add_argument("--only", choices=PARTS, help="dialogues: final stretches; queries; late: other orders")
        episodes = parser.add_mutually_exclusive_group()
        episodes.add_argument("--no-episodes", action="store_true", help="write no turns of dialogues")
        episodes.add_argument(
            "--all-episodes", action="store_true", help="write all turns, not only those that are cited"
        )
        parser.add_argument(
            "--jobs", type=_positive, default=min(os.cpu_count() or 1, 4), metavar="N", help="processes"
        )
        parser.add_argument("--http", metavar="URL", help="through the API of a running copy of this database")
        parser.add_argument("--key", help="with --http: this agent's key; by default one is issued")
        parser.add_argument(
            "--show", action="store_true", help="show what was expected and what came, which is content"
        )

    def act(self, now: datetime, options: Mapping[str, Any]) -> Mapping[str, Any]:
        if options["key"] and not options["http"]:
            raise CommandError("--key needs --http")
        wanted = Wanted(
            folder=options["folder"],
            selection=Selection(options["sample"], options["limit"]),
            parts=frozenset(PARTS if options["only"] is None else [options["only"]]),
            episodes="none" if options["no_episodes"] else "all" if options["all_episodes"] else "cited",
            jobs=options["jobs"],
            tenant=options["tenant"],
            url=options["http"],
            key=options["key"],
            show=options["show"],
        )
        try:
            return replay(wanted, now=now)
        except FolderUnreadable as unreadable:
            raise CommandError(f"the folder cannot be replayed: {unreadable}") from None

    def lines(self, outcome: Mapping[str, Any]) -> list[str]:
        lines = [
            f"{outcome['folder']}: {outcome['right']} right, {outcome['wrong']} wrong, {outcome['seconds']} s",
            *(f"  {name}: {found['right']} right, {found['wrong']} wrong" for name, found in outcome["checks"].items()),
            f"  {outcome['writes']} writes of {outcome['subjects']} subjects, {outcome['writes_per_second']} a second",
        ]
        for sample in outcome["wrong_samples"]:
            lines.append("  WRONG " + ", ".join(f"{name} {value}" for name, value in sample.items()))
        if outcome["subjects_renamed"]:
            lines.append(
                f"  {outcome['subjects_renamed']} subjects go by a number: no key is kept that way to the letter"
            )
        if outcome["values_trimmed"]:
            lines.append(f"  {outcome['values_trimmed']} values were trimmed; they are compared as they are kept")
        return lines

    def failed(self, outcome: Mapping[str, Any]) -> bool:
        return bool(outcome["wrong"])
