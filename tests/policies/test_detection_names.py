"""Names of people and places: by the extra where it is there, and one clear line where it is not."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from config.environment import Environment
from memory.evaluation.detection import evaluate
from policies.detection import Group
from policies.detection.names import NamesUnavailable, missing, names
from tests import egress_plugin

needs_the_extra = pytest.mark.skipif(
    find_spec("presidio_analyzer") is None, reason="needs presidio-analyzer: make .dev-packages EXTRAS=pii"
)


@pytest.fixture
def model(tmp_path: Path) -> str:
    """A model that an operator might have installed: it knows one person and one place."""
    import spacy  # type: ignore[import-not-found, unused-ignore]

    language = spacy.blank("en")
    ruler = language.add_pipe("entity_ruler")
    ruler.add_patterns([{"label": "PERSON", "pattern": "Mira Nowak"}, {"label": "GPE", "pattern": "Turin"}])
    language.to_disk(tmp_path / "model")
    return str(tmp_path / "model")


def test_what_is_missing_is_said_in_one_line_and_nothing_is_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    with egress_plugin.expected() as reached:
        for named in ("", "no_such_model", "/no/such/folder"):
            why = missing(named)
            assert why is not None
            assert "\n" not in why
            with pytest.raises(NamesUnavailable):
                names("Mira Nowak moved to Turin.", named)
    assert reached == []
    monkeypatch.setenv("MUNIMENT_NAMES_MODEL", "no_such_model")
    with pytest.raises(ValueError, match=r"^MUNIMENT_NAMES_MODEL: [^\n]+$"):
        Environment().names()
    monkeypatch.setenv("MUNIMENT_NAMES_MODEL", "")
    assert Environment().names() == ""


def _folder(tmp_path: Path) -> Path:
    row = '{"id": 1, "text": "Mira Nowak moved.", "spans": [[0, 10, "PERSON"]], "complete_for": ["PERSON"], "source": "x"}'
    (tmp_path / "rows.jsonl").write_text(row, encoding="utf-8")
    return tmp_path


def test_the_evaluation_says_why_names_were_not_looked_for(tmp_path: Path) -> None:
    outcome = evaluate(_folder(tmp_path), names_model="no_such_model")
    assert outcome["names"] == {"missing": missing("no_such_model")}
    assert outcome["not_looked_for"] == {"PERSON": 1}


@needs_the_extra
def test_people_and_places_are_found_and_nothing_is_fetched(model: str) -> None:
    with egress_plugin.expected() as reached:
        found = names("Mira Nowak moved to Turin, write to mira@example.co.uk.", model)
    assert [(each.start, each.end, each.detector, each.group) for each in found] == [
        (0, 10, "person", Group.NAME),
        (20, 25, "place", Group.NAME),
    ]
    assert [each.detector for each in names("Mira Nowak moved to Turin", model, omit={"person"})] == ["place"]
    assert names("Mira Nowak", model, omit={"name"}) == ()
    assert reached == []


@needs_the_extra
def test_the_evaluation_reports_names_beside_the_other_figures(tmp_path: Path, model: str) -> None:
    outcome = evaluate(_folder(tmp_path), names_model=model)
    figures: dict[str, Any] = outcome["names"]["by_type"]["PERSON"]
    assert (figures["recall"], figures["precision"]) == (1.0, 1.0)
    assert "PERSON" not in outcome["not_looked_for"]
