"""The benchmarks run and say what they found in the documented shape. What they find is not judged here."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.figures import Figure, Target, interleaved, ratio_at_most, write

ROOT = Path(__file__).resolve().parent.parent.parent
FIELDS = {"name", "value", "unit", "against", "ratio", "target", "met"}


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.defpath, "HOME": str(folder), "MUNIMENT_HOME": str(folder / "home")}
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-m",
        "benchmarks",
        "--results",
        str(folder / "results.json"),
        *arguments,
    ]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)


def test_a_quick_run_of_one_measure_writes_its_figures_and_leaves_nothing_else(tmp_path: Path) -> None:
    done = run(tmp_path, "--quick", "--only", "late")
    assert done.returncode == 0, done.stderr
    [figure] = json.loads((tmp_path / "results.json").read_text())
    assert set(figure) == FIELDS
    assert figure["unit"] == "ms p50"
    assert figure["value"] > 0
    assert figure["target"] == "<= 25"
    assert figure["met"] is (figure["value"] <= 25)
    assert list((tmp_path / "home").iterdir()) == []


def test_an_unknown_measure_is_refused_with_the_names_of_those_there_are(tmp_path: Path) -> None:
    done = run(tmp_path, "--only", "everything")
    assert done.returncode == 2
    assert "reads" in done.stderr
    assert not (tmp_path / "results.json").exists()


@pytest.mark.parametrize(
    ("figure", "ratio", "met"),
    [
        (Figure("a", 3.0, "ms", 2.0, ratio_at_most(1.5)), 1.5, True),
        (Figure("a", 3.1, "ms", 2.0, ratio_at_most(1.5)), 1.55, False),
        (Figure("a", 3.0, "ms", None, ratio_at_most(1.5)), None, None),
        (Figure("a", 900.0, "a second", 1800.0, Target(at_least=1000)), 0.5, False),
        (Figure("a", None, "ms", None, Target(at_most=25)), None, None),
        (Figure("a", 3.0, "ms", 2.0), 1.5, None),
    ],
)
def test_a_figure_says_its_ratio_and_whether_its_target_is_met(
    figure: Figure, ratio: float | None, met: bool | None
) -> None:
    told = figure.as_json()
    assert set(told) == FIELDS
    assert told["ratio"] == ratio
    assert told["met"] is met


def test_rounds_alternate_so_that_what_slows_one_slows_all() -> None:
    order: list[tuple[str, int]] = []

    def job(name: str, seconds: float) -> Callable[[int], list[float]]:
        def run(number: int) -> list[float]:
            order.append((name, number))
            return [seconds, seconds + 2, seconds + 1]

        return run

    found = interleaved({"ours": job("ours", 1.0), "theirs": job("theirs", 5.0)}, rounds=2)
    assert found == {"ours": 2.0, "theirs": 6.0}
    assert [name for name, _ in order] == ["ours", "theirs", "theirs", "ours", "ours", "theirs"]
    assert [number for _, number in order] == [0, 0, 1, 1, 2, 2]


def test_what_another_measure_found_stays_where_some_are_measured_alone(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    write([Figure("first", 1.0, "ms"), Figure("second", 2.0, "ms")], file)
    write([Figure("second", 3.0, "ms"), Figure("third", 4.0, "ms")], file, keep=True)
    assert [(each["name"], each["value"]) for each in json.loads(file.read_text())] == [
        ("first", 1.0),
        ("second", 3.0),
        ("third", 4.0),
    ]
