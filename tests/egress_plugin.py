"""The suite runs with egress blocked: in its own process, and in every Python process that a test starts.

Loaded by `-p` before anything else of ours. What was refused and not expected fails the run at its end, also where
whoever tried took the refusal in silence.
"""

import os
import runpy
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent / "egress"
_NOTED_IN = "EGRESS_NOTED_IN"


def _block() -> Path:
    handle, name = tempfile.mkstemp(prefix="muniment-egress-")
    os.close(handle)
    os.environ[_NOTED_IN] = name
    paths = [str(FOLDER), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))
    # Run here too, under another name: Python may have found a `sitecustomize` of the machine's own.
    runpy.run_path(str(FOLDER / "sitecustomize.py"), run_name="egress_guard")
    return Path(name)


_PARENT = os.environ.get(_NOTED_IN)
if _PARENT and "PYTEST_XDIST_WORKER" not in os.environ:
    # A suite that a suite starts notes where its parent does.
    NOTED = Path(_PARENT)
    _OWN = False
else:
    # Each worker of a suite has notes of its own: what a test of one expects is no fault of another's.
    NOTED = _block()
    _OWN = True


def attempts() -> list[str]:
    """Return what was refused so far, a line each."""
    return NOTED.read_text(encoding="utf-8").splitlines() if NOTED.exists() else []


@contextmanager
def expected() -> Iterator[list[str]]:
    """Let a test provoke refusals: they are put into the list at the end of the block, and do not fail the run."""
    before, seen = attempts(), list[str]()
    try:
        yield seen
    finally:
        seen += attempts()[len(before) :]
        NOTED.write_text("".join(f"{line}\n" for line in before), encoding="utf-8")


def pytest_sessionfinish(session: Any, exitstatus: int) -> None:
    refused = attempts()
    if refused and _OWN and _PARENT:
        with Path(_PARENT).open("a", encoding="utf-8") as notes:
            notes.writelines(f"{line}\n" for line in refused)
    if refused and _OWN:
        reporter = session.config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            reporter.write_line(f"egress: {len(refused)} attempts to reach beyond this machine", red=True)
            for line in refused[:20]:
                reporter.write_line(f"  {line}")
        session.exitstatus = 1


def pytest_unconfigure() -> None:
    if _OWN:
        NOTED.unlink(missing_ok=True)
