"""That the status page says `done` only where a test that runs shows it."""

import re

import pytest

from tests.docs.sources import ROOT, skipped_always, suite_by_id, table_under, text_of

STATUS = ROOT / "docs" / "status.md"
_STATES = {"done", "partly", "not"}
_TESTS = re.compile(r"`(tests/[\w/]+\.py::[\w:]+)`")


def _rows() -> list[list[str]]:
    headings = re.findall(r"^## (.+)$", text_of(STATUS), re.MULTILINE)
    return [row for heading in headings if heading != "How to read this" for row in table_under(STATUS, heading)]


ROWS = _rows()


def test_the_page_has_rows_of_three_cells() -> None:
    assert len(ROWS) > 100
    assert [row for row in ROWS if len(row) != 3] == []


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0][:60])
def test_a_row_names_a_state_and_done_names_a_test(row: list[str]) -> None:
    what, state, shown = row
    assert what
    assert state in _STATES
    named = _TESTS.findall(shown)
    if state == "done":
        assert named, "done, and no test is named"
    if state == "not":
        assert not named
    known = suite_by_id()
    for name in named:
        assert name in known, name
        assert not skipped_always(known[name], ROOT / name.split("::")[0]), f"{name} is skipped"


def test_every_reported_behaviour_stands_once() -> None:
    ids = [row[0].split()[0] for row in ROWS if re.match(r"C\d{3}\b", row[0])]
    assert len(ids) == len(set(ids))
    assert len(ids) >= 95


def test_no_row_stands_twice() -> None:
    names = [row[0] for row in ROWS]
    assert sorted(name for name in set(names) if names.count(name) > 1) == []


def test_a_test_in_another_document_exists_too() -> None:
    known = suite_by_id()
    dead = [
        (path.name, name)
        for path in (ROOT / "docs").rglob("*.md")
        for name in _TESTS.findall(text_of(path))
        if name not in known
    ]
    assert dead == []
