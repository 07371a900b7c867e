"""`evaluate PART FOLDER`: how well a part of the system does on a folder of labelled data. Needs no database."""

from argparse import ArgumentParser
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError

from memory.evaluation import detection
from tenants.management.command import OperatorCommand


class Command(OperatorCommand):
    help = "Measure a part of the system on a folder of labelled data."

    def arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("part", choices=["detection"])
        parser.add_argument("folder", type=Path, help="detection: holds rows.jsonl (may be .gz)")
        parser.add_argument(
            "--show", action="store_true", help="show what was missed or a false alarm, which is content"
        )

    def act(self, now: datetime, options: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            return detection.evaluate(options["folder"], show=options["show"])
        except detection.RowsUnreadable as unreadable:
            raise CommandError(f"the folder cannot be evaluated: {unreadable}") from None

    def lines(self, outcome: Mapping[str, Any]) -> list[str]:
        lines = [
            f"{outcome['folder']}: {outcome['rows']} rows, precision {outcome['precision']}, recall {outcome['recall']}, "
            f"clean rows flagged {outcome['clean_flagged']} (by words and credentials too: {outcome['clean_flagged_by_any']})",
            *(
                f"  {kind}: recall {found['recall']} (exact {found['exact']}) of {found['labels']}, "
                f"precision {found['precision']} of {found['found']}"
                for kind, found in outcome["by_type"].items()
            ),
            f"  rows with one of these flagged: {outcome['sensitive_flagged']}",
            f"  not looked for: {', '.join(f'{kind} {number}' for kind, number in outcome['not_looked_for'].items())}",
            f"  microseconds a text: median {outcome['microseconds']['median']}, p95 {outcome['microseconds']['p95']}",
        ]
        for sample in outcome.get("samples", ()):
            lines.append("  " + ", ".join(f"{name} {value!r}" for name, value in sample.items()))
        return lines
