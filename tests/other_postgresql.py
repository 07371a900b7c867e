"""`python -m tests.other_postgresql SUPERUSER_URL -- PYTEST-ARGUMENTS`: run tests on a server that is not ours.

Makes the database `muniment_ci` anew and the roles of tenants/bootstrap.sql in it, as a DBA would, and hands the
application's, the owner's and the superuser's URL of that database to pytest. Nothing but that database and the
`muniment_*` roles is touched.
"""

import os
import subprocess
import sys
from pathlib import Path

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from config.embedded import install_queue

ROOT = Path(__file__).resolve().parent.parent
DATABASE = "muniment_ci"
# What `doctor` asks of a server's log, for this database alone: the machine's own settings stay.
QUIET = {"log_error_verbosity": "terse", "log_min_error_statement": "panic", "log_parameter_max_length_on_error": 0}


def main(arguments: list[str]) -> int:
    """Prepare the database and return pytest's exit code."""
    superuser, rest = arguments[0], [each for each in arguments[1:] if each != "--"]
    with psycopg.connect(superuser, autocommit=True) as session:
        session.execute("SET client_min_messages = warning")
        version = session.info.server_version
        if not session.execute("SELECT 1 FROM pg_roles WHERE rolname = 'muniment_owner'").fetchone():
            session.execute("CREATE ROLE muniment_owner LOGIN")
        session.execute(f"DROP DATABASE IF EXISTS {DATABASE} WITH (FORCE)")
        session.execute(f"CREATE DATABASE {DATABASE} OWNER muniment_owner TEMPLATE template0 ENCODING 'UTF8'")
    print(f"PostgreSQL {version // 10000}", flush=True)
    with psycopg.connect(make_conninfo(superuser, dbname=DATABASE), autocommit=True) as session:
        session.execute("SET client_min_messages = warning")
        session.execute((ROOT / "tenants" / "bootstrap.sql").read_text(encoding="utf-8"))
        for name, value in QUIET.items():
            session.execute(f"ALTER DATABASE {DATABASE} SET {name} = {value}")
    place = conninfo_to_dict(superuser)
    server = f"{place.get('host', '127.0.0.1')}:{place.get('port', 5432)}"
    broker = f"postgresql://muniment_broker@{server}/{DATABASE}"
    install_queue(broker)
    environment = {
        **os.environ,
        "DATABASE_URL": f"postgresql://muniment_app@{server}/{DATABASE}",
        "MUNIMENT_OWNER_URL": f"postgresql://muniment_owner@{server}/{DATABASE}",
        "MUNIMENT_BROKER_DSN": broker,
        "MUNIMENT_CI_SUPERUSER_URL": make_conninfo(superuser, dbname=DATABASE),
    }
    return subprocess.run([sys.executable, "-m", "pytest", *rest], env=environment, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
