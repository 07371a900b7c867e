"""Work in a process of its own that is killed before any statement of it, and what stands in the database after that."""

import os
import signal
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any
from uuid import UUID

import psycopg
from django.db import connection

_TABLES = """
SELECT c.relname::text FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'tenant_id'
WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') ORDER BY 1
"""


@dataclass(frozen=True, slots=True)
class Came:
    """How far a process came: whether it was killed before it was done, and how many transactions it had committed."""

    killed: bool
    commits: int
    began_at: datetime


def killed_at(statement: int, work: Callable[[], Any]) -> Came:
    """Do `work` in a process of its own that kills itself (SIGKILL) before that statement.

    A commit counts as a statement. What the work raises is an error of the test.
    """
    began_at = datetime.now(UTC)
    told, tells = os.pipe()
    child = os.fork()
    if child:
        os.close(tells)
        with os.fdopen(told, "rb") as pipe:
            commits = len(pipe.read())
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            assert os.WTERMSIG(status) == signal.SIGKILL
            return Came(True, commits, began_at)
        assert os.WEXITSTATUS(status) == 0, "the work failed, see what it wrote"
        return Came(False, commits, began_at)
    code = 1
    try:
        connection.connection = None  # the parent's
        connection.run_on_commit = []
        sent = 0

        def count() -> None:
            nonlocal sent
            sent += 1
            if sent == statement:
                os.kill(os.getpid(), signal.SIGKILL)

        def watch(execute: Any, sql: Any, parameters: Any, many: bool, context: Any) -> Any:
            count()
            return execute(sql, parameters, many, context)

        watched: Any = connection
        commit = watched._commit

        def counted() -> Any:
            count()
            done = commit()
            os.write(tells, b".")
            return done

        watched._commit = counted
        watched.execute_wrappers.append(watch)
        work()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


# Who began since the process did that was killed: all that is left of it.
_UNDER_WAY = """
SELECT count(*) FROM pg_stat_activity a WHERE a.datname = current_database() AND a.backend_type = 'client backend'
  AND a.pid <> pg_backend_pid() AND a.backend_start >= %s::timestamptz
"""


def wait_until_noticed(superuser: psycopg.Connection[Any], came: Came) -> None:
    """Wait until the server has noticed that a process is gone."""
    until = time.monotonic() + 10
    while superuser.execute(_UNDER_WAY, [came.began_at]).fetchone() != (0,):
        assert time.monotonic() < until, "a session of somebody who is gone stays open"
        time.sleep(0.005)


def print_of(superuser: psycopg.Connection[Any], tenant: UUID) -> str:
    """Return a digest of every row of a tenant: two are equal where nothing at all has happened in between."""
    tables = [row[0] for row in superuser.execute(_TABLES)]
    whole = " UNION ALL ".join(
        f"SELECT '{table}', md5(string_agg(md5(t::text), '' ORDER BY md5(t::text))) FROM \"{table}\" t"
        f" WHERE tenant_id = '{tenant}'"
        for table in tables
    )
    return sha256(str(superuser.execute(whole.encode()).fetchall()).encode()).hexdigest()
