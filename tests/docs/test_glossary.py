"""That the words of the glossary are the words of the code."""

import re

import pytest

from tests.docs.sources import ROOT, table_under, text_of, tree

GLOSSARY = ROOT / "docs" / "glossary.md"
ROWS = table_under(GLOSSARY, "Words")


def _names(path: str) -> set[str]:
    import ast

    found: set[str] = set()
    for node in ast.walk(tree(ROOT / path)):
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.add(node.target.id)
        elif isinstance(node, ast.Assign):
            found.update(each.id for each in node.targets if isinstance(each, ast.Name))
    return found


def test_words_stand_in_alphabetical_order_and_once() -> None:
    words = [re.sub(r"[*`]", "", row[0]).lower() for row in ROWS]
    assert len(words) > 30
    assert words == sorted(words)
    assert len(words) == len(set(words))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_word_stands_in_code_where_the_glossary_says(row: list[str]) -> None:
    """The third cell names `Thing` in a linked module, `name` as a column or text there, or says that it is to come."""
    where = row[2]
    if where == "to come":
        return
    found = re.findall(r"`([^`]+)` in \[[^\]]+\]\(\.\./([^)]+)\)", where)
    assert found, "says neither where it stands nor that it is to come"
    for name, path in found:
        if path.endswith(".py"):
            assert name in _names(path) or re.search(rf'[\'"]{re.escape(name)}[\'"]', text_of(ROOT / path)), (
                name,
                path,
            )
        else:
            assert re.search(rf"\b{re.escape(name)}\b", text_of(ROOT / path)), (name, path)
