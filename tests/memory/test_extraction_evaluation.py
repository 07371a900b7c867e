from __future__ import annotations

import gzip
import json
import os
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from memory.evaluation.extraction import DialoguesUnreadable, evaluate

ROOT = Path(__file__).resolve().parent.parent.parent
GOLD = Path(os.environ.get("MUNIMENT_DATA") or ROOT.parent / "shared" / "data") / "extraction_gold"


def turn(number: int, text: str, *gold: tuple[str, str | None, str], **more: Any) -> dict[str, Any]:
    return {
        "id": f"demo:{more.pop('dialogue', 'a')}#{number}",
        "t": f"2024-01-01T00:{number:02d}:00Z",
        "context": [],
        "services": ["Ferry"],
        "text": text,
        "gold": [
            {"attribute": name, "op": "set" if value else "retract", "kind": "new", "value": value, "accept": [value] if value else [], "where": where}
            for name, value, where in gold
        ],
        **more,
    }  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    schema = {
        "attribute": "Ferry.class", "service": "Ferry", "service_description": "Book ferries", "description": "Class of travel",
        "is_categorical": True, "possible_values": ["first", "standard"],
    }  # fmt: skip
    (tmp_path / "schemas.jsonl").write_text(json.dumps(schema) + "\n")
    rows = [
        turn(0, "I want a ferry in standard class.", ("Ferry.class", "standard", "text")),
        turn(2, "Yes, standard class it is."),
        turn(4, "Thank you, goodbye."),
        turn(6, "Forget the ferry.", ("Ferry.class", None, "inferred")),
        turn(0, "Hello", ("Ferry.class", "first", "inferred"), dialogue="b"),
        turn(2, "The class of the ferry is first.", dialogue="b"),
    ]
    with gzip.open(tmp_path / "turns.jsonl.gz", "wt") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    return tmp_path


def test_the_figures_are_those_of_the_documented_definitions(folder: Path):
    outcome = evaluate(folder)
    assert outcome["turns"] == 6
    assert (outcome["proposed"], outcome["right"], outcome["updates"]) == (2, 1, 3)
    assert outcome["precision"] == 0.5
    assert outcome["recall_text"] == 1.0
    assert outcome["recall"] == 0.3333
    # Three turns give nothing; what is said again changes nothing, so only dialogue b's last one is broken.
    assert (outcome["silent_turns"], outcome["silent_share"]) == (3, 0.3333)
    assert outcome["by_source"]["demo"]["precision"] == 0.5
    assert sum(bucket["proposed"] for bucket in outcome["confidence"]) == 2


def test_no_content_is_in_the_outcome_unless_asked_for(folder: Path):
    assert "samples" not in evaluate(folder)
    assert evaluate(folder, show=True)["samples"]


def test_the_command_prints_the_figures_at_the_top_level_and_needs_no_database(folder: Path):
    out = StringIO()
    call_command("evaluate", "extraction", str(folder), "--json", stdout=out)
    outcome = json.loads(out.getvalue())
    assert {"precision", "recall_text", "silent_share", "by_source"} <= outcome.keys()
    out = StringIO()
    call_command("evaluate", "extraction", str(folder), stdout=out)
    assert "precision 0.5" in out.getvalue()


def test_a_model_is_measured_by_the_same_figures_with_what_it_came_to(folder: Path, settings: Any):
    pytest.importorskip("pydantic_ai", reason="needs the extra llm: make .dev-packages")
    from memory.extraction.model import Configuration
    from tests.model_server import answers, model_server, says

    def reads(question: Any) -> Any:
        said = {"evidence": "standard class", "attribute": "Ferry.class", "value": "standard"}
        if "goodbye" in question.episode:
            return answers(400)(question)
        return says(*([said] if "standard class" in question.episode else []))(question)

    out = StringIO()
    with model_server(otherwise=reads) as server:
        settings.MODEL_EXTRACTOR = Configuration(f"{server.url}#scripted")
        call_command("evaluate", "extraction", str(folder), "--model", "--limit", "4", "--json", stdout=out)
        outcome = json.loads(out.getvalue())
        assert len(server.asked) == 4
    assert (outcome["turns"], outcome["proposed"], outcome["right"]) == (4, 1, 1)
    assert outcome["model"] == {
        "name": "model/1:compatible:scripted",
        "questions": {"answered": 3, "request_refused": 1},
        "tokens_in": 360,
        "tokens_out": 90,
        "dollars": 0.0,
    }


def test_without_a_model_that_is_named_the_command_says_so(folder: Path, settings: Any):
    settings.MODEL_EXTRACTOR = None
    with pytest.raises(CommandError, match="MUNIMENT_EXTRACTOR_MODEL"):
        call_command("evaluate", "extraction", str(folder), "--model")


@pytest.mark.parametrize(
    ("name", "text", "place"),
    [
        ("schemas.jsonl", '{"attribute": "canary"}', "schemas, line 1"),
        ("schemas.jsonl", "canary", "schemas, line 1"),
        ("turns.jsonl.gz", "canary", "turns"),
    ],
)
def test_a_folder_of_another_form_is_refused_with_its_place_and_no_content(
    folder: Path, name: str, text: str, place: str
):
    (folder / name).write_text(text)
    with pytest.raises(DialoguesUnreadable) as refused:
        evaluate(folder)
    assert place in str(refused.value)
    assert "canary" not in str(refused.value)


def test_a_missing_file_is_named(folder: Path):
    (folder / "turns.jsonl.gz").unlink()
    with pytest.raises(CommandError, match=r"turns\.jsonl"):
        call_command("evaluate", "extraction", str(folder))


@pytest.mark.skipif(
    not GOLD.is_dir(), reason="extraction_gold is not there: set MUNIMENT_DATA to the folder of public data"
)
def test_the_public_dialogues_of_extraction_gold_are_extracted_as_promised():
    outcome = evaluate(GOLD)
    for part in (outcome, *outcome["by_source"].values()):
        assert part["precision"] >= 0.80
        assert part["recall_text"] >= 0.45
        assert part["silent_share"] <= 0.08
    shares = [bucket["right"] for bucket in outcome["confidence"]]
    assert shares == sorted(shares)
