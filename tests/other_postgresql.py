"""`python -m tests.other_postgresql SUPERUSER_URL [--database NAME] -- PYTEST-ARGUMENTS`: run tests on a server that is not ours.

Makes the database `muniment_ci`, or the one that is named, anew and the roles of tenants/bootstrap.sql in it, as a DBA
would, and hands the application's, the owner's and the superuser's URL of that database to pytest. Nothing but that
database and the `muniment_*` roles is touched.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from config.embedded import install_queue

ROOT = Path(__file__).resolve().parent.parent
# What `doctor` asks of a server's log, for this database alone: the machine's own settings stay.
QUIET = {"log_error_verbosity": "terse", "log_min_error_statement": "panic", "log_parameter_max_length_on_error": 0}


def main(arguments: list[str]) -> int:
    """Prepare the database and return pytest's exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.other_postgresql")
    parser.add_argument("superuser")
    parser.add_argument("--database", default="muniment_ci")
    ours = arguments.index("--")
    given, rest = parser.parse_args(arguments[:ours]), arguments[ours + 1 :]
    superuser, database = given.superuser, given.database
    with psycopg.connect(superuser, autocommit=True) as session:
        session.execute("SET client_min_messages = warning")
        version = session.info.server_version
        # The roles are the server's: of several that begin at once, one makes them.
        session.execute("SELECT pg_advisory_lock(hashtext('muniment_ci'))")
        if not session.execute("SELECT 1 FROM pg_roles WHERE rolname = 'muniment_owner'").fetchone():
            session.execute("CREATE ROLE muniment_owner LOGIN")
        session.execute(f"DROP DATABASE IF EXISTS {database} WITH (FORCE)")
        session.execute(f"CREATE DATABASE {database} OWNER muniment_owner TEMPLATE template0 ENCODING 'UTF8'")
        with psycopg.connect(make_conninfo(superuser, dbname=database), autocommit=True) as made:
            made.execute("SET client_min_messages = warning")
            made.execute((ROOT / "tenants" / "bootstrap.sql").read_text(encoding="utf-8"))
            for name, value in QUIET.items():
                made.execute(f"ALTER DATABASE {database} SET {name} = {value}")
    print(f"PostgreSQL {version // 10000}", flush=True)
    place = conninfo_to_dict(superuser)
    server = f"{place.get('host', '127.0.0.1')}:{place.get('port', 5432)}"
    broker = f"postgresql://muniment_broker@{server}/{database}"
    install_queue(broker)
    environment = {
        **os.environ,
        "DATABASE_URL": f"postgresql://muniment_app@{server}/{database}",
        "MUNIMENT_OWNER_URL": f"postgresql://muniment_owner@{server}/{database}",
        "MUNIMENT_BROKER_DSN": broker,
        "MUNIMENT_CI_SUPERUSER_URL": make_conninfo(superuser, dbname=database),
    }
    return subprocess.run([sys.executable, "-m", "pytest", *rest], env=environment, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
