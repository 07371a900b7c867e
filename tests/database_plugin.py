"""The database that the suite runs on: a PostgreSQL of its own, or the one of DATABASE_URL and MUNIMENT_OWNER_URL.

Loaded by `-p` before pytest-django reads the settings, which take the environment's word once and for all. The server
itself starts with the first test that asks for it, so that pure tests stay quick.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
_NAMED = ("DATABASE_URL", "MUNIMENT_OWNER_URL")
#: What is said to the tests themselves, and not to the application.
_OF_TESTS = frozenset(
    {
        "MUNIMENT_CI_SUPERUSER_URL",
        "MUNIMENT_COMPACTION_SECONDS",
        "MUNIMENT_CRASH_WRITES",
        "MUNIMENT_DATA",
        "MUNIMENT_PICTURES",
    }
)
_home: Path | None = None


@dataclass(frozen=True)
class Servers:
    """Connection URLs of the database under test.

    On a server that is not ours `superuser` is that of MUNIMENT_CI_SUPERUSER_URL, and empty without one.
    """

    app: str
    owner: str
    superuser: str


@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests() -> Any:
    global _home
    if not all(os.environ.get(name) for name in _NAMED):
        _home = Path(tempfile.mkdtemp(prefix="muniment-tests-"))
        for name in [name for name in os.environ if name.startswith(("MUNIMENT_", "PG")) and name not in _OF_TESTS]:
            del os.environ[name]
        os.environ["MUNIMENT_HOME"] = str(_home)
        # Replaced as soon as there is a server; until then it leads nowhere.
        os.environ["DATABASE_URL"] = f"postgresql://muniment_app@/muniment?host={_home}/none"
    os.environ["DJANGO_SETTINGS_MODULE"] = "config.settings"
    return (yield)


def pytest_unconfigure() -> None:
    if _home is not None:
        shutil.rmtree(_home, ignore_errors=True)


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    """The database, bootstrapped and migrated."""
    if _home is None:
        servers = Servers(
            os.environ["DATABASE_URL"],
            os.environ["MUNIMENT_OWNER_URL"],
            os.environ.get("MUNIMENT_CI_SUPERUSER_URL", ""),
        )
        _migrate(servers)
        yield servers
        return
    from config.embedded import Embedded

    embedded = Embedded(_home)
    urls = embedded.start()
    servers = Servers(urls.app, urls.owner, urls.superuser)
    os.environ.update({"DATABASE_URL": urls.app, "MUNIMENT_BROKER_DSN": urls.broker})
    try:
        _migrate(servers)
        yield servers
    finally:
        embedded.stop()


@pytest.fixture(scope="session")
def database(servers: Servers, django_db_blocker: Any) -> Iterator[Servers]:
    """The database, reached by Django as the application's own login role. Tests commit for real, and nothing is flushed."""
    from django.conf import settings
    from django.contrib.auth.hashers import PBKDF2PasswordHasher
    from django.db import connection, connections

    from config.environment import Environment

    PBKDF2PasswordHasher.iterations = 1_000  # passwords of tests protect nothing

    connection.close()
    settings.ENVIRONMENT = Environment()
    connections["default"].settings_dict.update(settings.ENVIRONMENT.database())
    with django_db_blocker.unblock():
        assert_role_is_bound()
        yield servers
        connection.close()


def assert_role_is_bound() -> None:
    """Fail unless row-level security binds the role of the tests: as a superuser they would prove nothing."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT current_user::text, session_user::text, rolsuper, rolbypassrls FROM pg_roles"
            " WHERE rolname = current_user"
        )
        assert cursor.fetchone() == ("muniment_app", "muniment_app", False, False)


def _migrate(servers: Servers) -> None:
    environment = {**os.environ, "MUNIMENT_OWNER_URL": servers.owner, "MUNIMENT_ROLE": "owner"}
    command = [sys.executable, "-W", "ignore", "manage.py", "migrate", "--noinput", "--verbosity", "0"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        pytest.exit(f"migrations failed:\n{done.stdout}{done.stderr}", returncode=3)
