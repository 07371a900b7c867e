"""Replays of recorded histories: a shipped sample, small made-up dialogues, and samples of public data where it is at hand."""

import gzip
import io
import json
import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

import pytest
from django.core.management import CommandError, call_command

from memory.evaluation.folders import END_OF_TIME, Folder, Selection

ROOT = Path(__file__).resolve().parent.parent.parent
SAMPLE = ROOT / "tests" / "data" / "endoflife_sample"
DATA = Path(os.environ.get("MUNIMENT_DATA") or ROOT.parent / "shared" / "data")

pytestmark = pytest.mark.usefixtures("database")


def replay(folder: Path, *options: str) -> tuple[dict[str, Any], int]:
    """Run the command; return what it printed and its exit code."""
    out, code = io.StringIO(), 0
    jobs = () if "--jobs" in options else ("--jobs", "1")
    try:
        call_command("replay", str(folder), *jobs, *options, "--json", stdout=out)
    except SystemExit as left:
        code = int(left.code or 0)
    return json.loads(out.getvalue()), code


def write(file: Path, rows: list[dict[str, Any]]) -> None:
    text = "".join(json.dumps(row) + "\n" for row in rows)
    if file.suffix == ".gz":
        file.write_bytes(gzip.compress(text.encode()))
    else:
        file.write_text(text, encoding="utf-8")


def rows(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def minute(number: int) -> str:
    return f"2024-03-01T10:{number:02}:00Z"


def event(number: int, at: int, attribute: str, value: str | None) -> dict[str, Any]:
    return {
        "id": f"e{number}",
        "t": minute(at),
        "ep": at,
        "attribute": attribute,
        "op": "set" if value is not None else "retract",
        "kind": "new" if value is not None else "removal",
        "value": value,
        "surface": [value] if value is not None else [],
    }


TURNS = [
    "A table for two in Lyon, please.",
    "Noted.",
    "No, make that Nice.",
    "Done.",
    "We are four.",
    "Done.",
    "Forget the town.",
]
EVENTS = [
    event(0, 0, "table.town", "Lyon"),
    event(1, 0, "table.seats", "two"),
    event(2, 2, "table.town", "Nice"),
    event(3, 4, "table.seats", "four"),
    event(4, 6, "table.town", None),
]
INTERVALS = {
    "table.town": [["Lyon", minute(0), minute(2)], ["Nice", minute(2), minute(6)]],
    "table.seats": [["two", minute(0), minute(4)], ["four", minute(4), None]],
}
QUERIES: list[dict[str, Any]] = [
    {"attribute": "table.town", "t": None, "expect": None, "stale": ["Lyon", "Nice"], "why": "current"},
    {"attribute": "table.town", "t": minute(2), "expect": "Nice", "stale": ["Lyon"], "why": "boundary_update"},
    {"attribute": "table.seats", "t": None, "expect": "four", "stale": ["two"], "why": "stale_trap_current"},
    {"attribute": "table.seats", "t": minute(3), "expect": "two", "stale": ["four"], "why": "instant_before_update"},
]
LATE: list[dict[str, Any]] = [
    {
        "mode": "dup",
        "deliveries": [
            [name, f"2024-03-01T11:00:{place:02}Z"]
            for place, name in enumerate(["e4", "e2", "e0", "e2", "e3", "e1", "e0"])
        ],
        "checks": [
            {"attribute": "table.town", "t": minute(3), "known_at": "2024-03-01T11:00:00Z", "expect": None},
            {"attribute": "table.town", "t": minute(3), "known_at": "2024-03-01T11:00:01Z", "expect": "Nice"},
            {"attribute": "table.town", "t": minute(1), "known_at": "2024-03-01T11:00:01Z", "expect": None},
            {"attribute": "table.town", "t": minute(1), "known_at": None, "expect": "Lyon"},
            {"attribute": "table.seats", "t": None, "known_at": "2024-03-01T11:00:04Z", "expect": "four"},
        ],
    }
]


@pytest.fixture
def dialogues(tmp_path: Path) -> Path:
    """Three short dialogues of one kind, with questions and a sequence out of order."""
    folder = tmp_path / "dialogues"
    folder.mkdir()
    names = [f"made-up/{number}" for number in range(3)]
    turns = [[minute(at), "user" if at % 2 == 0 else "assistant", text] for at, text in enumerate(TURNS)]
    told = {"split": "test", "services": ["table"], "episodes": turns, "events": EVENTS, "intervals": INTERVALS}
    write(folder / "dialogues.jsonl.gz", [{"subject": name, **told} for name in names])
    write(folder / "queries.jsonl", [{"subject": name, **query} for name in names for query in QUERIES])
    write(folder / "late.jsonl.gz", [{"subject": name, **late} for name in names for late in LATE])
    return folder


@pytest.fixture
def sample(tmp_path: Path) -> Path:
    """A copy of the shipped sample, to be tampered with."""
    return Path(shutil.copytree(SAMPLE, tmp_path / "sample"))


def test_the_shipped_sample_gives_every_expected_answer() -> None:
    outcome, code = replay(SAMPLE)
    assert (outcome["wrong"], code) == (0, 0), outcome["wrong_samples"]
    assert outcome["queries"] == outcome["right"] == len(rows(SAMPLE / "queries.jsonl"))
    assertions = [each for row in rows(SAMPLE / "subjects.jsonl") for each in row["assertions"]]
    assert outcome["writes"] + outcome["retractions"] == len(assertions)
    assert outcome["retractions"] == sum(each["op"] == "withdraw" for each in assertions)


def test_values_that_the_ledger_trims_are_told_and_names_that_differ_in_a_space_stay_apart() -> None:
    outcome, _ = replay(SAMPLE)
    named = [row["subject"] for row in rows(SAMPLE / "subjects.jsonl")]
    assert any(name != name.strip() for name in named)
    assert outcome["subjects_renamed"] == 0
    assert outcome["values_trimmed"] == 4


def test_a_tampered_expectation_is_found_and_named_without_content(sample: Path) -> None:
    questions = rows(sample / "queries.jsonl")
    place = next(number for number, each in enumerate(questions) if each["expect"] and each["stale"])
    right = questions[place]["expect"]
    questions[place] |= {"expect": "tampered-with", "stale": [right]}
    write(sample / "queries.jsonl", questions)
    outcome, code = replay(sample)
    assert (outcome["wrong"], outcome["right"], code) == (1, len(questions) - 1, 1)
    assert outcome["wrong_samples"] == [
        {"kind": "queries", "line": f"queries:{place + 1}", "attribute": questions[place]["attribute"], "why": "stale"}
    ]
    shown, _ = replay(sample, "--show")
    assert shown["wrong_samples"][0]["expected"] == "tampered-with"
    assert shown["wrong_samples"][0]["got"] == right


def test_an_act_that_the_door_refuses_is_wrong(sample: Path) -> None:
    stories = rows(sample / "subjects.jsonl")
    stories[0]["assertions"][-1]["recorded_at"] = "2999-01-01T00:00:00Z"
    write(sample / "subjects.jsonl", stories)
    outcome, code = replay(sample)
    assert code == 1
    found = [each for each in outcome["wrong_samples"] if each["kind"] == "writes"]
    assert {(each["line"], each["why"]) for each in found} == {("subjects:1", "recorded_in_the_future")}


def test_two_processes_come_to_what_one_does() -> None:
    one, _ = replay(SAMPLE)
    two, code = replay(SAMPLE, "--jobs", "2")
    for name in ("subjects", "writes", "retractions", "queries", "right", "wrong"):
        assert two[name] == one[name]
    assert code == 0


def test_dialogues_are_told_asked_and_delivered_in_other_orders(dialogues: Path) -> None:
    outcome, code = replay(dialogues, "--show")
    assert (outcome["wrong"], code) == (0, 0), outcome["wrong_samples"]
    assert (outcome["subjects"], outcome["episodes"], outcome["writes"]) == (3, 12, 15)
    assert (outcome["late_sequences"], outcome["late_writes"], outcome["late_repeats"]) == (3, 15, 6)
    assert {name: found["right"] for name, found in outcome["checks"].items()} == {
        "intervals": 6,
        "late_checks": 15,
        "late_evidence": 3,
        "late_intervals": 6,
        "queries": 12,
        "repeats": 6,
    }


def test_a_stretch_too_many_or_too_few_is_found(dialogues: Path) -> None:
    with gzip.open(dialogues / "dialogues.jsonl.gz", "rt") as file:
        told = [json.loads(line) for line in file]
    told[0]["intervals"] = {"table.seats": INTERVALS["table.seats"]}
    told[1]["intervals"] = {**INTERVALS, "table.day": [["Monday", minute(0), None]]}
    write(dialogues / "dialogues.jsonl.gz", told)
    outcome, code = replay(dialogues, "--only", "dialogues")
    assert code == 1
    assert [(each["kind"], each["line"], each["attribute"]) for each in outcome["wrong_samples"]] == [
        ("intervals", "dialogues:1", "table.town"),
        ("intervals", "dialogues:2", "table.day"),
    ]


def test_turns_are_written_as_far_as_is_asked(dialogues: Path) -> None:
    assert replay(dialogues, "--only", "dialogues", "--no-episodes")[0]["episodes"] == 0
    assert replay(dialogues, "--only", "dialogues", "--all-episodes")[0]["episodes"] == 3 * len(TURNS)


def test_only_one_part_is_done_where_one_is_named(dialogues: Path) -> None:
    late, _ = replay(dialogues, "--only", "late")
    assert (late["writes"], late["queries"], late["late_sequences"]) == (0, 0, 3)
    queries, _ = replay(dialogues, "--only", "queries", "--limit", "2")
    assert (queries["subjects"], queries["queries"], queries["late_sequences"]) == (2, 8, 0)
    assert set(queries["checks"]) == {"queries"}


def test_a_folder_without_questions_or_other_orders_is_replayed(dialogues: Path) -> None:
    (dialogues / "queries.jsonl").unlink()
    (dialogues / "late.jsonl.gz").unlink()
    outcome, code = replay(dialogues)
    assert (outcome["right"], outcome["wrong"], code) == (6, 0, 0)


def test_a_tenant_may_be_given_and_used_again(dialogues: Path, tenant: Any) -> None:
    for _ in range(2):
        outcome, code = replay(dialogues, "--tenant", tenant.slug)
        assert (outcome["tenant"], outcome["wrong"], code) == (tenant.slug, 0, 0), outcome["wrong_samples"]


class _Silent(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        return


@pytest.fixture
def served() -> Iterator[str]:
    """The application behind a plain HTTP server."""
    from config.wsgi import application

    server = make_server("127.0.0.1", 0, application, handler_class=_Silent)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join(5)


def test_the_api_gives_what_the_doors_give(served: str, dialogues: Path) -> None:
    for folder, right in ((dialogues, 45), (SAMPLE, len(rows(SAMPLE / "queries.jsonl")))):
        outcome, code = replay(folder, "--http", served, "--show")
        assert (outcome["through"], outcome["wrong"], code) == ("http", 0, 0), outcome["wrong_samples"]
        assert outcome["right"] == right


def test_a_folder_that_cannot_be_read_is_told_by_file_and_line(tmp_path: Path, sample: Path) -> None:
    with pytest.raises(CommandError, match=r"neither dialogues\.jsonl nor subjects\.jsonl"):
        call_command("replay", str(tmp_path))
    with (sample / "subjects.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"subject": "canary')
    with pytest.raises(CommandError, match="subjects, line 23: not JSON") as refused:
        call_command("replay", str(sample))
    assert "canary" not in str(refused.value)
    shutil.copy(SAMPLE / "subjects.jsonl", sample)
    write(sample / "queries.jsonl", [{"subject": "canary", "attribute": "eol", "t": "yesterday", "expect": None}])
    with pytest.raises(CommandError, match="queries, line 1: not of the documented form"):
        call_command("replay", str(sample), "--jobs", "1")


def test_a_sample_is_the_same_subjects_every_time_and_grows_with_its_share() -> None:
    names = [story.subject for story in Folder(SAMPLE).stories()]
    small, large = ({name for name in names if Selection(percent).has(name)} for percent in (20, 60))
    assert small < large < set(names)
    assert [story.subject for story in Folder(SAMPLE).stories(Selection(60))] == [
        name for name in names if name in large
    ]
    assert len(list(Folder(SAMPLE).stories(Selection(limit=3)))) == 3


def test_the_present_of_a_dialogue_is_now_and_that_of_a_table_is_what_never_ends(dialogues: Path) -> None:
    assert next(Folder(dialogues).questions()).valid_at is None
    present = [each for each in Folder(SAMPLE).questions() if each.valid_at == END_OF_TIME]
    assert len(present) == sum(row["t"] is None for row in rows(SAMPLE / "queries.jsonl"))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sgd_replay", "multiwoz_replay", "woz_replay", "endoflife_bitemporal"])
def test_a_fixed_twentieth_of_the_public_data_gives_every_expected_answer(name: str) -> None:
    folder = DATA / name
    if not folder.is_dir():
        pytest.skip(f"needs {name} in the folder that MUNIMENT_DATA names")
    outcome, code = replay(folder, "--sample", "5", "--jobs", "2")
    assert (outcome["wrong"], code) == (0, 0), outcome["wrong_samples"]
    assert outcome["right"] > 500
