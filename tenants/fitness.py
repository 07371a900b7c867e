"""Whether the role that we log in as is one that the database can hold in bounds.

Row-level security does not bind a superuser, a role with BYPASSRLS or a table's owner: as one of these, every promise
about tenants would be empty. Web and worker refuse to start as one.
"""

import sys
import time
from typing import NoReturn

from django.db import OperationalError, connection

_ASK = """
SELECT CASE WHEN to_regnamespace('restore_under_way') IS NOT NULL THEN 'restore_unfinished' WHEN r.rolsuper THEN 'superuser' WHEN r.rolbypassrls THEN 'bypasses_row_security'
            WHEN r.rolinherit AND EXISTS (SELECT FROM pg_auth_members m WHERE m.member = r.oid) THEN 'inherits'
            WHEN EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
                         WHERE c.relowner = r.oid AND n.nspname = 'public') THEN 'owns_tables'
            ELSE '' END
FROM pg_roles r WHERE r.rolname = session_user
"""
_PATIENCE_SECONDS = 30.0


def unfit() -> str:
    """Return why nobody may be served by this login, or nothing.

    The role is unfit (`superuser`, `bypasses_row_security`, `inherits`, `owns_tables`), or the database is being restored
    and may hold what has ended (`restore_unfinished`).
    """
    with connection.cursor() as cursor:
        cursor.execute(_ASK)
        row = cursor.fetchone()
    return row[0] if row else "unknown"


def refuse_unfit_role() -> None:
    """End this process with one line unless its database role is fit. Waits half a minute for a database to come up."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            reason = unfit()
            break
        except OperationalError:
            if time.monotonic() > deadline:
                _end("the database of DATABASE_URL does not answer")
            time.sleep(0.5)
    connection.close()
    if reason == "restore_unfinished":
        _end("refusing to start: a restore of this database is not finished; run `manage.py restore` again")
    if reason:
        _end(f"refusing to start: the database role of DATABASE_URL is unfit ({reason}); use muniment_app")


def refuse_to_start(because: str) -> None:
    """End this process with that line; nothing where there is none."""
    if because:
        _end(f"refusing to start: {because}")


def _end(line: str) -> NoReturn:
    sys.stderr.write(f"muniment: {line}\n")
    # By this code gunicorn knows that starting further workers is of no use.
    raise SystemExit(3)
