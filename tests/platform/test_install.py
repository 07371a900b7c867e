"""Extras are installed by name from locks of their own, and kept."""

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The installer with a `.venv` of its own that works, and pip watched instead of run."""
    spec = importlib.util.spec_from_file_location("install", ROOT / "config" / "install.py")
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "VENV", tmp_path)
    monkeypatch.setattr(module, "_works", lambda: True)
    module.called = []

    def call(*command: str, **_: Any) -> int:
        module.called.append(Path(command[-1]).name)
        return 0

    monkeypatch.setattr(module, "_call", call)
    return module


def test_an_extra_is_installed_once_and_then_kept_as_its_lock_says(install: Any) -> None:
    assert install.main("run", "llm") == 0
    assert install.called == ["requirements.lock", "requirements-llm.lock"]
    assert install.main("run") == 0
    assert len(install.called) == 2
    (install.VENV / ".installed-llm").write_text("an older lock")
    assert install.main("run") == 0
    assert install.called[2:] == ["requirements-llm.lock"]


def test_what_developers_need_holds_what_a_run_needs(install: Any) -> None:
    assert install.main("dev") == 0
    assert install.main("run") == 0
    assert install.called == ["requirements-dev.lock"]


def test_an_extra_that_there_is_not_is_refused_in_one_line(install: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert install.main("run", "lmm") == 2
    assert capsys.readouterr().err == "muniment: no such extra: lmm; there are llm, pii and sso\n"
    assert install.called == []


@pytest.mark.parametrize("extra", ["llm", "pii", "sso"])
def test_the_lock_of_an_extra_agrees_with_that_of_a_run_and_names_no_index(extra: str) -> None:
    pinned = re.compile(r"^([a-z0-9_.-]+)(?:\[[a-z,]+\])?==([^ ;\\]+)", re.MULTILINE)
    run = dict(pinned.findall((ROOT / "requirements.lock").read_text()))
    text = (ROOT / f"requirements-{extra}.lock").read_text()
    assert {name: version for name, version in pinned.findall(text) if name in run} == run
    assert "index-url" not in text
    assert "://" not in text
