"""What everything is measured on: one embedded PostgreSQL of the run's own, with real durability. Imports no Django."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psycopg

from benchmarks.partner import ROOT, Partner, ours
from config.embedded import SUPERUSER, Embedded, Urls
from config.launch import home_folder

REQUIREMENTS = Path(__file__).resolve().parent / "rivals" / "requirements.txt"
RIVALS = "rivals"


@dataclass(frozen=True)
class Ground:
    """The server of a run, the database `muniment` on it, and in it a tenant with an agent and its key."""

    home: Path
    urls: Urls
    tenant: dict[str, str] = field(default_factory=dict)

    def environment(self, database: str = "muniment") -> dict[str, str]:
        """Return the environment of a process that works on `database` as the application does."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("MUNIMENT_", "PG", "PYTHON"))}
        return kept | {
            "DATABASE_URL": named(self.urls.app, database),
            "MUNIMENT_HOME": str(self.home),
            "MUNIMENT_BROKER_DSN": self.urls.broker,
            "DJANGO_SETTINGS_MODULE": "config.settings",
            "PYTHONUNBUFFERED": "1",
        }

    @property
    def log(self) -> Path:
        """Where the processes of the run leave their words."""
        return self.home / "log" / "bench.log"

    def doors(self, database: str = "muniment", tenant: dict[str, str] | None = None) -> Partner:
        """Start a process that works our doors in `tenant` (by default the run's)."""
        return ours(self.environment(database), self.log, self.tenant if tenant is None else tenant)

    def superuser(self, database: str = "muniment") -> psycopg.Connection:
        """Open a session for what no application role may do: databases, extensions, seeding in bulk, ANALYZE."""
        return psycopg.connect(named(self.urls.superuser, database), autocommit=True)

    def settle(self, database: str = "muniment") -> None:
        """Give the planner figures of what was just written, and leave no dirty pages to be written meanwhile."""
        with self.superuser(database) as session:
            session.execute("VACUUM (ANALYZE)")
            session.execute("CHECKPOINT")

    def copy(self, name: str) -> None:
        """Make a database `name` that is what `muniment` is now. Nobody may be connected to that."""
        with self.superuser(SUPERUSER) as session:
            session.execute(f"CREATE DATABASE {name} TEMPLATE muniment")

    @contextmanager
    def rivals(self) -> Iterator[Partner]:
        """Start the process of the rivals, on a database of their own with pgvector. Raises `RivalsMissing`."""
        python = rivals_python()
        with self.superuser(SUPERUSER) as session:
            session.execute(f"DROP DATABASE IF EXISTS {RIVALS}")
            session.execute(f"CREATE DATABASE {RIVALS}")
        with self.superuser(RIVALS) as session:
            session.execute("CREATE EXTENSION vector")
        folder = self.home / "mem0"
        folder.mkdir(exist_ok=True)
        script = Path(__file__).resolve().parent / "rivals" / "serve.py"
        command = [str(python), str(script), named(self.urls.superuser, RIVALS), str(folder)]
        with Partner(command, self.environment(), self.log) as partner:
            yield partner


class RivalsMissing(Exception):
    """What we measure against is not installed and could not be; the message is one line."""


def rivals_folder() -> Path:
    """The virtual environment of the rivals, kept from run to run in the data folder."""
    return home_folder() / "bench-rivals"


def rivals_python() -> Path:
    """Return the Python of the rivals, installing them when their requirements have changed. Raises `RivalsMissing`."""
    folder = rivals_folder()
    python = folder / "bin" / "python"
    stamp = folder / "installed.txt"
    wanted = REQUIREMENTS.read_text(encoding="utf-8")
    if python.exists() and stamp.exists() and stamp.read_text(encoding="utf-8") == wanted:
        return python
    print("bench: installing what we measure against", flush=True)
    try:
        venv.create(folder, clear=True, with_pip=True)
        command = [
            str(python),
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "-r",
            str(REQUIREMENTS),
        ]
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        shutil.rmtree(folder, ignore_errors=True)
        raise RivalsMissing("the rivals could not be installed (is a package index within reach?)") from None
    stamp.write_text(wanted, encoding="utf-8")
    return python


def named(url: str, database: str) -> str:
    """Return the connection URL `url` with another database in it."""
    before, _, after = url.partition("?")
    return f"{before.rpartition('/')[0]}/{database}?{after}"


@contextmanager
def ground() -> Iterator[Ground]:
    """Make the server and the tenant; leave nothing of them."""
    home = home_folder() / "bench"
    embedded = Embedded(home)
    # A run that was killed leaves its server and its data.
    embedded.stop()
    shutil.rmtree(home, ignore_errors=True)
    home.parent.mkdir(parents=True, exist_ok=True)
    urls = embedded.start()
    try:
        made = Ground(home, urls)
        migration = [sys.executable, "-W", "ignore", "manage.py", "migrate", "--noinput", "--verbosity", "0"]
        owner = {"MUNIMENT_OWNER_URL": urls.owner, "MUNIMENT_ROLE": "owner"}
        subprocess.run(migration, cwd=ROOT, env=made.environment() | owner, check=True)
        with made.doors(tenant={}) as partner:
            tenant = partner.do("found")
        yield Ground(home, urls, tenant)
    finally:
        embedded.stop()
        shutil.rmtree(home, ignore_errors=True)
