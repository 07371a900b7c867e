"""That one beat runs on a database, wherever its hosts are: a lock that lives exactly as long as its session."""

from typing import Any

from django.db import DEFAULT_DB_ALIAS, Error, connection, connections

_CLASS, _OBJECT = 0x4D554E49, 1  # "MUNI"


class BeatLock:
    """The lock, held on a connection of its own."""

    def __init__(self) -> None:
        self._session: Any = connections.create_connection(DEFAULT_DB_ALIAS)

    def claim(self) -> bool:
        """Take the lock if it is free; False where another holds it or the database does not answer."""
        try:
            self._session.close()
            with self._session.cursor() as cursor:
                cursor.execute("SELECT pg_try_advisory_lock(%s, %s)", [_CLASS, _OBJECT])
                claimed: bool = cursor.fetchone()[0]
        except Error:
            return False
        if not claimed:
            self._session.close()
        return claimed

    def is_held(self) -> bool:
        """Whether the session that took it still lives."""
        # Django would open a new session, without the lock, in place of one that is closed.
        if self._session.connection is None or self._session.connection.closed:
            return False
        try:
            with self._session.cursor() as cursor:
                cursor.execute("SELECT 1")
        except Error:
            return False
        return True

    def release(self) -> None:
        """Let another have it."""
        self._session.close()


def beat_is_alive() -> bool:
    """Whether some beat holds the lock of this database now."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT EXISTS (SELECT FROM pg_locks l JOIN pg_database d ON d.oid = l.database"
            " WHERE d.datname = current_database() AND l.locktype = 'advisory' AND l.granted"
            " AND l.classid = %s::bigint::oid AND l.objid = %s::bigint::oid AND l.objsubid = 2)",
            [_CLASS, _OBJECT],
        )
        row = cursor.fetchone()
    return bool(row and row[0])
