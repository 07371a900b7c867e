"""`evaluate PART FOLDER`: how well a part of the system does on a folder of labelled data.

Detection and extraction need no database; retrieval loads a tenant of its own, and leaves it.
"""

from argparse import ArgumentParser
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError

from memory.evaluation import detection, extraction, retrieval
from memory.extraction.model import HOW_TO_INSTALL, Configuration
from tenants.management.command import OperatorCommand


class Command(OperatorCommand):
    help = "Measure a part of the system on a folder of labelled data."

    def arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("part", choices=["detection", "extraction", "retrieval"])
        parser.add_argument(
            "folder",
            type=Path,
            help="detection: holds rows.jsonl; extraction: schemas.jsonl and turns.jsonl; retrieval: turns and questions (.gz)",
        )
        parser.add_argument(
            "--show", action="store_true", help="show what was missed or a false alarm, which is content"
        )

        parser.add_argument(
            "--names-model",
            default=None,
            help="detection: an installed spaCy model that looks for names and places (by default MUNIMENT_NAMES_MODEL)",
        )

        parser.add_argument(
            "--model",
            action="store_true",
            help="extraction: by the model of MUNIMENT_EXTRACTOR_MODEL, to which the folder's text is sent",
        )
        parser.add_argument(
            "--limit",
            type=int,
            metavar="N",
            help="retrieval: the first N conversations of each corpus; extraction: the first N turns",
        )

    def act(self, now: datetime, options: Mapping[str, Any]) -> Mapping[str, Any]:
        folder, show = options["folder"], options["show"]
        named = settings.NAMES_MODEL if options["names_model"] is None else options["names_model"]
        try:
            if options["part"] == "retrieval":
                return retrieval.evaluate(folder, now=now, limit=options["limit"])
            if options["part"] == "extraction":
                configuration = _model() if options["model"] else None
                return extraction.evaluate(folder, show=show, configuration=configuration, limit=options["limit"])
            return detection.evaluate(folder, show=show, names_model=named)
        except (
            detection.RowsUnreadable,
            extraction.DialoguesUnreadable,
            retrieval.ConversationsUnreadable,
        ) as unreadable:
            raise CommandError(f"the folder cannot be evaluated: {unreadable}") from None

    def lines(self, outcome: Mapping[str, Any]) -> list[str]:
        if "corpora" in outcome:
            return _retrieval(outcome)
        lines = _extraction(outcome) if "by_source" in outcome else _detection(outcome)
        for sample in outcome.get("samples", ()):
            lines.append("  " + ", ".join(f"{name} {value!r}" for name, value in sample.items()))
        return lines


def _retrieval(outcome: Mapping[str, Any]) -> list[str]:
    lines = [f"{outcome['folder']}: recall@10 and hit@10, each beside the plain baseline's"]
    for corpus in outcome["corpora"]:
        found, plain, milliseconds = corpus["recall"], corpus["baseline"], corpus["milliseconds"]
        lines.append(
            f"{corpus['corpus']}: {corpus['turns']} turns of {corpus['conversations']} conversations; "
            f"milliseconds a turn {milliseconds['turn']}, a question {milliseconds['question']}"
        )
        for category, of in found["by_category"].items():
            beside = plain["by_category"][category]
            lines.append(
                f"  {category} ({of['questions']}): recall {of['recall_at_10']} / {beside['recall_at_10']}, "
                f"hit {of['hit_at_10']} / {beside['hit_at_10']}"
            )
        if found["fresh_before_stale"] is not None:
            lines.append(f"  fresh before stale: {found['fresh_before_stale']} / {plain['fresh_before_stale']}")
    return lines


def _model() -> Configuration:
    configuration: Configuration | None = settings.MODEL_EXTRACTOR
    if configuration is None:
        raise CommandError("no model is named: set MUNIMENT_EXTRACTOR_MODEL")
    if not configuration.named.is_installed:
        raise CommandError(HOW_TO_INSTALL)
    return configuration


def _detection(outcome: Mapping[str, Any]) -> list[str]:
    return [
        f"{outcome['folder']}: {outcome['rows']} rows, precision {outcome['precision']}, recall {outcome['recall']}, "
        f"clean rows flagged {outcome['clean_flagged']} (by words and credentials too: {outcome['clean_flagged_by_any']})",
        *(
            f"  {kind}: recall {found['recall']} (exact {found['exact']}) of {found['labels']}, "
            f"precision {found['precision']} of {found['found']}"
            for kind, found in outcome["by_type"].items()
        ),
        f"  rows with one of these flagged: {outcome['sensitive_flagged']}",
        *_names(outcome["names"]),
        f"  not looked for: {', '.join(f'{kind} {number}' for kind, number in outcome['not_looked_for'].items())}",
        f"  microseconds a text: median {outcome['microseconds']['median']}, p95 {outcome['microseconds']['p95']}",
    ]


def _names(of: Mapping[str, Any]) -> list[str]:
    if "missing" in of:
        return [f"  names and places: not looked for: {of['missing']}"]
    return [
        *(
            f"  {kind}: recall {found['recall']} (exact {found['exact']}) of {found['labels']}, "
            f"precision {found['precision']} of {found['found']}"
            for kind, found in of["by_type"].items()
        ),
        f"  milliseconds a text for names and places: median {of['milliseconds']['median']}",
    ]


def _extraction(outcome: Mapping[str, Any]) -> list[str]:
    def figures(of: Mapping[str, Any]) -> str:
        return (
            f"precision {of['precision']} of {of['proposed']}, recall in the text {of['recall_text']}, "
            f"recall {of['recall']} of {of['updates']}, silent turns broken {of['silent_share']} of {of['silent_turns']}"
        )

    return [
        f"{outcome['folder']}: {outcome['turns']} turns, {outcome['attributes']} attributes: {figures(outcome)}",
        *(f"  {source}: {figures(of)}" for source, of in outcome["by_source"].items()),
        f"  recall by where: {', '.join(f'{where} {share}' for where, share in outcome['recall_by_where'].items())}",
        "  right by confidence: "
        + ", ".join(
            f"{each['from']} and more: {each['right']} of {each['proposed']}" for each in outcome["confidence"]
        ),
        f"  rejected: {', '.join(f'{reason} {number}' for reason, number in outcome['rejected'].items()) or 'none'}",
        f"  milliseconds a turn: median {outcome['milliseconds']['median']}, p95 {outcome['milliseconds']['p95']}",
        *_spent(outcome.get("model")),
    ]


def _spent(model: Mapping[str, Any] | None) -> list[str]:
    if model is None:
        return []
    questions = ", ".join(f"{outcome} {number}" for outcome, number in model["questions"].items())
    tokens = f"{model['tokens_in']} tokens in, {model['tokens_out']} out"
    return [f"  {model['name']}: {questions or 'nothing asked'}; {tokens}, about {model['dollars']} dollars"]
