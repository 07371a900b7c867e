"""`python -m tests.replay_all HOME DATA`: replay every history under DATA on an embedded server in HOME.

Prints one line a folder and returns 1 when any answer was wrong.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

from config.embedded import Embedded

ROOT = Path(__file__).resolve().parent.parent


def main(home: Path, data: Path) -> int:
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
        for folder in sorted(data.iterdir()):
            if not any((folder / name).exists() for name in ("dialogues.jsonl.gz", "subjects.jsonl.gz")):
                continue
            told = _manage(environment, "replay", str(folder), "--json", check=False)
            result = json.loads(told.stdout or "{}")
            right, failed = result.get("right", 0), result.get("wrong", 1) or told.returncode
            print(
                f"{folder.name}: {right} right, {result.get('wrong', '?')} wrong, "
                f"{result.get('writes', '?')} writes in {result.get('seconds', '?')} s",
                flush=True,
            )
            if failed:
                print(told.stdout[-4000:], told.stderr[-4000:], flush=True)
                wrong += 1
    finally:
        server.stop()
    return 1 if wrong else 0


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
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
