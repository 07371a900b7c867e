"""That documents lead somewhere, name every module, and speak of nothing but the project."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.docs.sources import ROOT, anchors, documents, links, modules, text_of

ARCHITECTURE = ROOT / "ARCHITECTURE.md"


def _named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("document", documents(), ids=_named)
def test_every_link_leads_to_something_that_is_there(document: Path) -> None:
    dead = []
    for target in links(document):
        if re.match(r"https?://", target):
            continue
        place, _, anchor = target.partition("#")
        path = (document.parent / place).resolve() if place else document
        if not path.exists() or not path.is_relative_to(ROOT) or (anchor and anchor not in anchors(path)):
            dead.append(target)
    assert dead == []


def test_links_to_files_are_to_files_that_are_kept() -> None:
    """A link to a file that is ignored works here and nowhere else."""
    targets = sorted(
        {
            (document.parent / target.partition("#")[0]).resolve().relative_to(ROOT).as_posix()
            for document in documents()
            for target in links(document)
            if not target.startswith(("http:", "https:", "#"))
        }
    )
    if not (ROOT / ".git").exists():
        pytest.skip("needs a checkout with git")
    ignored = subprocess.run(["git", "check-ignore", *targets], cwd=ROOT, capture_output=True, text=True)
    assert ignored.stdout.split() == []


def test_the_architecture_links_every_module() -> None:
    linked = {target.partition("#")[0] for target in links(ARCHITECTURE)}
    assert [_named(path) for path in modules() if _named(path) not in linked] == []


def test_the_readme_leads_to_every_document() -> None:
    seen: set[Path] = set()
    waiting = [ROOT / "README.md"]
    while waiting:
        document = waiting.pop()
        if document in seen or document.suffix != ".md":
            continue
        seen.add(document)
        for target in links(document):
            place = target.partition("#")[0]
            if place and not target.startswith(("http:", "https:")):
                waiting.append((document.parent / place).resolve())
    assert [_named(document) for document in documents() if document not in seen] == []


#: A reader elsewhere has none of these: folders of one machine, hosts of package registries, who or what wrote a page.
_FORBIDDEN = {
    "a folder of one machine": r"(?<![\w.])/(?:work|tmp|root|home/\w+|mnt|Users)/",
    "a package registry": r"(?i)pypi\.org|pythonhosted|artifactory|\bnexus\b|index-url|registry\.npmjs",
    "who wrote it": r"(?i)\bsub-?agents?\b|\bearlier session\b|\blanguage model wrote\b|\bclaude\b|\bcopilot\b",
    "private notes": r"(?i)\bDESIGN\.md\b|\bPITFALLS\.md\b|\bEXPECTATIONS\.md\b|\bcontract\.md\b",
}


@pytest.mark.parametrize("what", _FORBIDDEN)
@pytest.mark.parametrize("document", documents(), ids=_named)
def test_documents_do_not_speak_of(document: Path, what: str) -> None:
    assert re.findall(_FORBIDDEN[what], text_of(document)) == []


def test_the_changelog_keeps_a_section_for_what_is_not_released() -> None:
    titles = re.findall(r"^## (.+)$", text_of(ROOT / "CHANGELOG.md"), re.MULTILINE)
    assert titles[0] == "Unreleased"


def test_the_readme_is_one_screen() -> None:
    assert len(text_of(ROOT / "README.md").splitlines()) <= 100


def test_every_target_that_a_document_tells_to_make_exists() -> None:
    targets = set(re.findall(r"^([a-z][a-z-]*):", text_of(ROOT / "Makefile"), re.MULTILINE))
    told = {
        (_named(document), name)
        for document in documents()
        for name in re.findall(r"(?:`|^|&& |[A-Z_]+=\S+ )make ([a-z][a-z-]*)", text_of(document), re.MULTILINE)
    }
    assert {(where, name) for where, name in told if name not in targets} == set()
