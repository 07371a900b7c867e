"""`python -m tests.replay_all HOME DATA [PERCENT]`: replay the histories under DATA on an embedded server in HOME.

Each folder goes through the doors in process, whole or so many per cent of its subjects, and a fixed share of it through
HTTP, as an agent sends it, against gunicorn as it serves in production. Prints one line a run and returns 1 when any answer
was wrong.
"""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from config.embedded import Embedded

ROOT = Path(__file__).resolve().parent.parent

# Per cent of the subjects that go through HTTP too: about as many requests for a small folder as for a large one.
SHARES = {"sgd_replay": "5", "multiwoz_replay": "5", "woz_replay": "20", "endoflife_bitemporal": "25"}
SHARE_OF_OTHERS = "5"


def main(home: Path, data: Path, per_cent: str = "100") -> int:
    """Run all replays and return the exit code."""
    server = Embedded(home)
    urls = server.start()
    environment = {
        **os.environ,
        "DATABASE_URL": urls.app,
        "MUNIMENT_OWNER_URL": urls.owner,
        "MUNIMENT_HOME": str(home),
        "PYTHONWARNINGS": "ignore",
    }
    wrong = 0
    try:
        _manage(environment, "migrate", "--noinput", "--verbosity", "0")
        folders = [folder for folder in sorted(data.iterdir()) if _replayable(folder)]
        for folder in folders:
            wrong += _replayed(environment, folder, "--sample", per_cent)
        with _served(environment, home / "web.log") as url:
            for folder in folders:
                share = SHARES.get(folder.name, SHARE_OF_OTHERS)
                wrong += _replayed(environment, folder, "--http", url, "--sample", share)
    finally:
        server.stop()
    return 1 if wrong else 0


def _replayable(folder: Path) -> bool:
    return any((folder / name).exists() for name in ("dialogues.jsonl.gz", "subjects.jsonl.gz"))


def _replayed(environment: dict[str, str], folder: Path, *arguments: str) -> int:
    told = _manage(environment, "replay", str(folder), *arguments, "--json", check=False)
    result = json.loads(told.stdout or "{}")
    right, wrong = result.get("right", 0), result.get("wrong", 1) or told.returncode
    way = f"{'through HTTP' if '--http' in arguments else 'through the doors'}, {arguments[-1]} % of the subjects"
    print(
        f"{folder.name} {way}: {right} right, {result.get('wrong', '?')} wrong, "
        f"{result.get('writes', '?')} writes in {result.get('seconds', '?')} s",
        flush=True,
    )
    if wrong or not right:
        print(told.stdout[-4000:], told.stderr[-4000:], flush=True)
        return 1
    return 0


@contextmanager
def _served(environment: dict[str, str], log: Path) -> Iterator[str]:
    with socket.socket() as listener, log.open("ab") as lines:
        listener.bind(("127.0.0.1", 0))
        listener.listen(64)
        url, fd = f"http://127.0.0.1:{listener.getsockname()[1]}", listener.fileno()
        command = [sys.executable, "-m", "gunicorn", "--config", "python:config.gunicorn", "--bind", f"fd://{fd}"]
        web = subprocess.Popen(
            [*command, "config.wsgi"], cwd=ROOT, env=environment, pass_fds=(fd,), stdout=lines, stderr=lines
        )
        try:
            deadline = time.monotonic() + 30
            while not _answers(f"{url}/healthz"):
                if web.poll() is not None or time.monotonic() > deadline:
                    raise SystemExit(f"replay: the web process does not answer: {log.read_text()[-2000:]}")
                time.sleep(0.1)
            yield url
        finally:
            web.terminate()
            web.wait(10)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, TimeoutError, ConnectionError):
        return False


def _manage(environment: dict[str, str], *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "manage.py", *arguments],
        cwd=ROOT,
        env=environment,
        check=check,
        capture_output=True,
        text=True,
    )


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:]))
