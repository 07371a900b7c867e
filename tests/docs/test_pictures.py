"""Pictures are few, small, shown somewhere, and taken by `make pictures`."""

import re

from tests.docs.sources import ROOT

PICTURES = sorted((ROOT / "docs" / "pictures").glob("*"))
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def shown() -> set[str]:
    """Return the names of all pictures that a page shows."""
    return {
        name for page in PAGES for name in re.findall(r"!\[[^\]]+\]\([^)]*pictures/([^)]+)\)", page.read_text("utf-8"))
    }


def test_every_picture_is_shown_and_every_picture_that_is_shown_is_there() -> None:
    assert shown() == {picture.name for picture in PICTURES}


def test_pictures_are_small() -> None:
    assert PICTURES
    assert [picture.name for picture in PICTURES if picture.stat().st_size > 150_000] == []
    assert {picture.suffix for picture in PICTURES} == {".png"}


def test_every_picture_is_taken_by_make() -> None:
    recipe = (ROOT / "Makefile").read_text("utf-8").partition("\npictures:")[2].partition("\n\n")[0]
    taken = re.search(r"for name in ([a-z0-9 -]+); do", recipe)
    assert taken is not None
    assert {f"{name}.png" for name in taken[1].split()} == {picture.name for picture in PICTURES}
