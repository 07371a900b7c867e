"""What detection finds in a folder of labelled texts: recall, precision, false alarms, and what it costs.

A folder holds `rows.jsonl` (may be gzipped); a row is {id, text, spans [[start, end, type]], source, complete_for}.
`complete_for` lists the types that are labelled completely: a false alarm counts only for those. Pure: no Django, no
clock but the stopwatch. Content stays out of errors and, unless asked for, out of the outcome.
"""

import gzip
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter
from typing import Any

from policies.detection import DETECTORS, STRUCTURED, Finding, Group, detect
from policies.detection import names as by_model

SAMPLES = 20


class RowsUnreadable(Exception):
    """The folder or a line of it is not of the documented form; says where, never what stands there."""


@dataclass(frozen=True, slots=True)
class Row:
    """One labelled text."""

    place: str
    text: str = field(repr=False)
    spans: tuple[tuple[int, int, str], ...]
    source: str
    complete_for: frozenset[str]


def rows(folder: Path) -> Iterator[Row]:
    """Yield the labelled texts of a folder. Raises RowsUnreadable."""
    for name in ("rows.jsonl.gz", "rows.jsonl"):
        if (path := folder / name).is_file():
            break
    else:
        raise RowsUnreadable("rows.jsonl (.gz) is not there")
    number = 0
    try:
        with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    row = json.loads(line)
                    yield Row(
                        place=f"rows:{number}",
                        text=str(row["text"]),
                        spans=tuple((int(start), int(end), str(kind)) for start, end, kind in row["spans"]),
                        source=str(row.get("source", "")),
                        complete_for=frozenset(row.get("complete_for", ())),
                    )
    except (ValueError, KeyError, TypeError, AttributeError, EOFError, gzip.BadGzipFile):
        raise RowsUnreadable(f"rows, line {max(number, 1)}: not of the documented form") from None


def _overlap(a: tuple[int, int], b: tuple[int, int]) -> bool:
    return a[0] < b[1] and b[0] < a[1]


def _share(part: int, whole: int) -> float | None:
    return round(part / whole, 4) if whole else None


def evaluate(folder: Path, *, show: bool = False, names_model: str = "") -> dict[str, Any]:
    """Run every detector over the folder and compare.

    - recall: the share of labelled spans that a finding of their type overlaps; `exact` where the span is the same.
    - precision: the share of findings of a type, in rows that are complete for it, that overlap a label of it.
    - `precision` and `recall` at the top are over the six structured types together.
    - `clean_flagged`: the share of rows without any label in which one of the six is found; `clean_flagged_by_any`
      counts every finding that raises a class, so credentials and words too.
    - `sensitive_flagged`: the share of rows with a label of the six in which anything raising is found.
    - types that nobody looks for are listed under `not_looked_for` with their number of labels.
    - `names`: the same figures for people and places, by the spaCy model of that name; or why they were not looked for.
      They are no part of the figures above, which are those of an installation without the extra.
    """
    missing = by_model.missing(names_model)
    named = None if missing else partial(by_model.names, model=names_model)
    said: list[float] = []
    gold: Counter[str] = Counter()
    hit: Counter[str] = Counter()
    exact: Counter[str] = Counter()
    right: Counter[str] = Counter()
    wrong: Counter[str] = Counter()
    alarms: Counter[str] = Counter()
    clean = clean_flagged = clean_any = sensitive = sensitive_flagged = count = 0
    times: list[float] = []
    samples: list[dict[str, Any]] = []
    detect("warm 1")  # compiled and loaded once, outside the stopwatch
    for row in rows(folder):
        count += 1
        begun = perf_counter()
        findings = detect(row.text)
        times.append(perf_counter() - begun)
        if named is not None:
            begun = perf_counter()
            guesses = named(row.text)
            said.append(perf_counter() - begun)
            _count_hits(row, guesses, Counter(), hit, exact, None)
            _count_right(row, guesses, right, wrong)
        raising = [each for each in findings if each.raises > 0]
        structured = [each for each in findings if each.type in STRUCTURED]
        _count_hits(row, findings, gold, hit, exact, samples if show else None)
        for finding in _count_right(row, findings, right, wrong):
            if show and len(samples) < SAMPLES:
                samples.append(_sample(row, "false alarm", finding.type, *_of(finding)))
        if not row.spans:
            clean += 1
            clean_flagged += bool(structured)
            clean_any += bool(raising)
            alarms.update({each.detector for each in raising})
        if any(kind in STRUCTURED for *_, kind in row.spans):
            sensitive += 1
            sensitive_flagged += bool(raising)
    types = {kind: _type(kind, gold, hit, exact, right, wrong) for kind in STRUCTURED}
    outcome: dict[str, Any] = {
        "folder": folder.name,
        "rows": count,
        "precision": _share(
            sum(right[kind] for kind in STRUCTURED), sum(right[kind] + wrong[kind] for kind in STRUCTURED)
        ),
        "recall": _share(sum(hit[kind] for kind in STRUCTURED), sum(gold[kind] for kind in STRUCTURED)),
        "clean_flagged": _share(clean_flagged, clean),
        "clean_flagged_by_any": _share(clean_any, clean),
        "clean_rows": clean,
        "sensitive_flagged": _share(sensitive_flagged, sensitive),
        "by_type": types,
        "alarms_in_clean_rows": dict(sorted(alarms.items())),
        "names": {"missing": missing}
        if missing
        else {
            "by_type": {kind: _type(kind, gold, hit, exact, right, wrong) for kind in by_model.DETECTORS},
            "milliseconds": {"median": round(median(said) * 1e3, 2) if said else None},
        },
        "not_looked_for": {
            kind: number
            for kind, number in sorted(gold.items())
            if kind not in STRUCTURED and (missing or kind not in by_model.DETECTORS)
        },
        "microseconds": {
            "median": round(median(times) * 1e6, 1) if times else None,
            "p95": round(quantiles(times, n=20)[-1] * 1e6, 1) if len(times) > 1 else None,
        },
        "detectors": sum(group not in (Group.KNOWN, Group.NAME) for group in DETECTORS.values()),
    }
    if show:
        outcome["samples"] = samples
    return outcome


def _of(finding: Finding) -> tuple[int, int]:
    return finding.start, finding.end


def _count_right(row: Row, findings: tuple[Finding, ...], right: Counter[str], wrong: Counter[str]) -> list[Finding]:
    """Count findings of the types for which the row is complete; return those that no label of theirs overlaps."""
    alarms = []
    for finding in findings:
        if finding.type in row.complete_for:
            if any(kind == finding.type and _overlap((start, end), _of(finding)) for start, end, kind in row.spans):
                right[finding.type] += 1
            else:
                wrong[finding.type] += 1
                alarms.append(finding)
    return alarms


def _count_hits(
    row: Row,
    findings: tuple[Finding, ...],
    gold: Counter[str],
    hit: Counter[str],
    exact: Counter[str],
    samples: list[dict[str, Any]] | None,
) -> None:
    for start, end, kind in row.spans:
        gold[kind] += 1
        same = [each for each in findings if each.type == kind and _overlap((start, end), _of(each))]
        hit[kind] += bool(same)
        exact[kind] += any(_of(each) == (start, end) for each in same)
        if samples is not None and not same and kind in STRUCTURED and len(samples) < SAMPLES:
            samples.append(_sample(row, "missed", kind, start, end))


def _sample(row: Row, what: str, kind: str, start: int, end: int) -> dict[str, Any]:
    return {
        "place": row.place,
        "what": what,
        "type": kind,
        "text": row.text[start:end],
        "before": row.text[max(0, start - 40) : start],
        "after": row.text[end : end + 20],
    }


def _type(
    kind: str,
    gold: Counter[str],
    hit: Counter[str],
    exact: Counter[str],
    right: Counter[str],
    wrong: Counter[str],
) -> dict[str, Any]:
    return {
        "labels": gold[kind],
        "recall": _share(hit[kind], gold[kind]),
        "exact": _share(exact[kind], gold[kind]),
        "found": right[kind] + wrong[kind],
        "precision": _share(right[kind], right[kind] + wrong[kind]),
    }
