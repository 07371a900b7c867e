"""The ledger on a PostgreSQL that is not ours, and may be older: migrated there, and keeping what it promises."""

import os
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
SUPERUSER = os.environ.get("MUNIMENT_CI_SUPERUSER_URL", "postgresql://postgres@127.0.0.1:5432/postgres")


@pytest.mark.slow
def test_the_ledger_keeps_its_promises_on_the_postgresql_that_listens_here() -> None:
    try:
        psycopg.connect(SUPERUSER, connect_timeout=3).close()
    except psycopg.OperationalError:
        pytest.skip(
            "no PostgreSQL that a superuser may enter listens here; run one, or set MUNIMENT_CI_SUPERUSER_URL to one"
        )
    # More of it runs there in .ci/other-postgresql: this is what fits between other tests.
    asked = ["tests/memory/test_receipts.py", "tests/database/test_ledger_constraints.py"]
    done = subprocess.run(
        [sys.executable, "-m", "tests.other_postgresql", SUPERUSER, "--database", "muniment_ci_few", "--", *asked],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if not name.startswith(("MUNIMENT_", "PYTEST_"))},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert " skipped" not in done.stdout
