"""Who may import whom: the contracts of pyproject.toml hold, and leave no module of ours out."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
APPS = ("tenants", "policies", "memory", "retention")


@pytest.fixture(scope="module")
def contracts() -> list[dict]:
    document = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    found: list[dict] = document["tool"]["importlinter"]["contracts"]
    return found


def named(contracts: list[dict], beginning: str) -> dict:
    return next(each for each in contracts if each["name"].startswith(beginning))


def test_the_import_contracts_hold() -> None:
    pytest.importorskip("importlinter", reason="needs import-linter: install requirements-dev.lock")
    command = "from importlinter.cli import lint_imports_command as lint; lint(['--no-cache'])"
    done = subprocess.run([sys.executable, "-c", command], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_arrow_goes_from_retention_to_tenants(contracts: list[dict]) -> None:
    assert named(contracts, "tenants <- policies")["layers"] == ["retention", "memory", "policies", "tenants"]


@pytest.mark.parametrize("app", ["tenants", "policies", "memory"])
def test_the_layers_of_an_app_name_all_its_modules(contracts: list[dict], app: str) -> None:
    layered = named(contracts, f"Inside {app}")
    assert layered["exhaustive"] is True
    assert layered["exhaustive_ignores"] == ["apps", "migrations"]
    # What makes a layer's modules strangers to each other is the bar; a colon would let them be friends.
    assert not any(":" in layer for layer in layered["layers"])
    faces = {name.strip(" ()") for name in layered["layers"][0].split("|")}
    assert {"api", "admin", "management"} <= faces


def test_no_contract_is_excused(contracts: list[dict]) -> None:
    assert [each["name"] for each in contracts if each.get("ignore_imports")] == []


def test_purity_is_asked_of_every_module_that_claims_it(contracts: list[dict]) -> None:
    asked = set(named(contracts, "Deciding is pure")["source_modules"])
    claims = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for app in APPS
        for path in (ROOT / app).glob("*.py")
        if any(
            word in path.read_text(encoding="utf-8")[:600]
            for word in ("Pure: ", "Pure data", "without Django", "Imports no Django")
        )
    }
    assert claims
    assert claims <= asked
