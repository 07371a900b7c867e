"""What the project is built with may be used as it is used: no licence that would bind the project's own code."""

import re
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
LOCKS = sorted(ROOT.glob("requirements*.lock"))
#: What may be imported without its terms reaching what imports it.
FINE = re.compile(
    r"\b(MIT|MIT-0|BSD|Apache|ISC|PSF|CNRI|MPL|Mozilla Public License|LGPL|Lesser General Public License|Unlicense|Zlib)\b",
    re.IGNORECASE,
)
#: What would reach it. The lesser licences are named apart.
BINDING = re.compile(
    r"(?<!L)(?<!Lesser )\b(A?GPL|(Affero )?General Public License|SSPL|BUSL|Commons Clause)\b", re.IGNORECASE
)
#: Whose metadata name none; read in what the package brings along.
READ = {"axe-playwright-python": "MIT"}


def locked() -> set[str]:
    return {name for lock in LOCKS for name in re.findall(r"^([A-Za-z0-9._-]+)==", lock.read_text(), re.MULTILINE)}


def licence(name: str) -> str:
    """What a package that is installed says of its licence."""
    said = metadata.metadata(name)
    classified = [each for each in said.get_all("Classifier", []) if each.startswith("License ::")]
    stated = ["; ".join(said.get_all(field, [])) for field in ("License-Expression", "License")]
    return stated[0] or "; ".join(classified) or stated[1] or READ.get(name, "")


def installed() -> dict[str, str]:
    found = {}
    for name in sorted(locked()):
        try:
            found[name] = licence(name)
        except metadata.PackageNotFoundError:
            continue  # of an extra, or of another platform: looked at where it is installed
    return found


def test_every_package_that_is_locked_and_installed_has_a_licence_that_does_not_bind_ours() -> None:
    found = installed()
    assert {"django", "psycopg", "celery", "pydantic"} <= set(found)
    assert {name: said for name, said in found.items() if not FINE.search(said) or BINDING.search(said)} == {}


@pytest.mark.parametrize(
    "said", ["GPL-3.0-or-later", "AGPL-3.0", "GNU General Public License v3 (GPLv3)", "", "Proprietary"]
)
def test_a_licence_that_binds_or_is_unknown_is_found(said: str) -> None:
    assert not FINE.search(said) or BINDING.search(said)


@pytest.mark.parametrize(
    "said", ["LGPL-3.0-only", "GNU Lesser General Public License v2 or later (LGPLv2+)", "MIT OR Apache-2.0"]
)
def test_a_licence_of_a_library_that_stays_one_is_fine(said: str) -> None:
    assert FINE.search(said)
    assert not BINDING.search(said)
