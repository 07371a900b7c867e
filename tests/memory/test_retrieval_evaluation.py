"""What `evaluate retrieval` measures: a folder through the doors, its questions asked, a plain baseline beside it."""

import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    turns = [
        [0, "2024-01-01T09:00:00Z", "user", "My sprint ends on 5 March."],
        [1, "2024-01-01T09:01:00Z", "assistant", "Noted: the sprint ends on 5 March, the sprint, the sprint."],
        [2, "2024-01-02T09:00:00Z", "user", "The weather is fine."],
        [3, "2024-01-03T09:00:00Z", "user", "My sprint now ends on 9 March."],
    ]
    (tmp_path / "turns.jsonl").write_text(json.dumps({"conversation": "c", "turns": turns}) + "\n")
    question = {"id": "1", "conversation": "c", "category": "knowledge_update", "question": "When do my sprints end?",
                "answer": "9 March", "evidence": [0, 3], "stale_evidence": [0], "fresh_evidence": [3]}  # fmt: skip
    (tmp_path / "questions.jsonl").write_text(
        json.dumps(question)
        + "\n"
        + json.dumps({**question, "id": "2", "category": "abstention", "evidence": []})
        + "\n"
    )
    return tmp_path


def run(folder: Path) -> Any:
    out = StringIO()
    call_command("evaluate", "retrieval", str(folder), "--json", stdout=out)
    return json.loads(out.getvalue())


def test_both_rankings_are_told_by_category(database: Any, folder: Path) -> None:
    (corpus,) = run(folder)["corpora"]
    assert (corpus["turns"], corpus["conversations"]) == (4, 1)
    assert corpus["recall"] == {
        "by_category": {"knowledge_update": {"questions": 1, "recall_at_10": 1.0, "hit_at_10": 1.0}},
        "fresh_before_stale": 1.0,
    }


def test_a_folder_of_another_form_is_refused_without_its_content(database: Any, tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="is not there"):
        run(tmp_path)
    (tmp_path / "turns.jsonl").write_text('{"secret": canary}\n')
    (tmp_path / "questions.jsonl").write_text("")
    with pytest.raises(CommandError) as refused:
        run(tmp_path)
    assert "canary" not in str(refused.value)
