"""Makes `.venv` as the locks say: `python -I config/install.py run|dev [EXTRA …]`. Standard library only.

A stamp holds the checksum of the lock that was installed, so that the next start skips it. An extra that was installed
once is kept as its lock says, whether it is named again or not.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
EXTRAS = ("llm", "pii", "sso")
LOCKS = {
    "run": ROOT / "requirements.lock",
    "dev": ROOT / "requirements-dev.lock",
    **{extra: ROOT / f"requirements-{extra}.lock" for extra in EXTRAS},
}
#: They would send an installation somewhere else than into .venv.
ELSEWHERE = frozenset(
    {"PYTHONHOME", "PYTHONPATH", "VIRTUAL_ENV"}
    | {f"PIP_{name}" for name in ("USER", "TARGET", "PREFIX", "ROOT", "REQUIRE_VIRTUALENV", "DRY_RUN", "PYTHON")}
)


def main(which: str, *extras: str) -> int:
    """Install what `which` and the extras need unless it is there; return the exit code."""
    unknown = [extra for extra in extras if extra not in EXTRAS]
    if unknown:
        return _refuse(f"no such extra: {' '.join(unknown)}; there are {', '.join(EXTRAS[:-1])} and {EXTRAS[-1]}")
    with open(__file__, "rb") as ourselves:
        # Two first starts at once would install into each other.
        fcntl.flock(ourselves, fcntl.LOCK_EX)
        if not _works():
            shutil.rmtree(VENV, ignore_errors=True)
            print(f"muniment: making .venv with Python {sys.version_info[0]}.{sys.version_info[1]}", flush=True)
            if _call(sys.executable, "-m", "venv", str(VENV)) != 0:
                shutil.rmtree(VENV, ignore_errors=True)
                return _refuse("python3 -m venv failed; your system may keep it in a package of its own (python3-venv)")
        wanted = [which, *(extra for extra in EXTRAS if extra in extras or _stamp(extra).is_file())]
        for name in wanted:
            if not _is_stamped(name) and not _installed(name):
                return _refuse(f"pip could not install the packages of {LOCKS[name].name}")
    return 0


def _installed(name: str) -> bool:
    print(f"muniment: installing the packages of {LOCKS[name].name}", flush=True)
    options = [
        "-qq",
        "--disable-pip-version-check",
        "--no-input",
        "--require-hashes",
        "--requirement",
        str(LOCKS[name]),
    ]
    if _call(str(PYTHON), "-m", "pip", "install", *options) != 0:
        return False
    # The development lock holds that of a run.
    for each in ("run", "dev") if name == "dev" else (name,):
        _stamp(each).write_text(_checksum(each))
    return True


def _is_stamped(which: str) -> bool:
    return _stamp(which).is_file() and _stamp(which).read_text() == _checksum(which)


def _stamp(which: str) -> Path:
    return VENV / f".installed-{which}"


def _checksum(which: str) -> str:
    return hashlib.sha256(LOCKS[which].read_bytes()).hexdigest()


def _works() -> bool:
    check = "import sys, pip; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))"
    try:
        return _call(str(PYTHON), "-c", check, stderr=subprocess.DEVNULL) == 0
    except OSError:
        return False


def _call(*command: str, stderr: int | None = None) -> int:
    environment = {name: value for name, value in os.environ.items() if name not in ELSEWHERE}
    return subprocess.call(command, stdout=subprocess.DEVNULL, stderr=stderr, env=environment, cwd=ROOT)


def _refuse(line: str) -> int:
    print(f"muniment: {line}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
