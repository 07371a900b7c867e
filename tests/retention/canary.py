"""Looking for a word in everything that a database stores."""

from typing import Any


def found_in(session: Any, word: str) -> list[str]:
    """The tables of which some row, as text, holds the word; bytes count as they are and as hex."""
    tables = session.execute(
        "SELECT c.oid::regclass::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE c.relkind IN ('r', 'p') AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast') ORDER BY 1"
    ).fetchall()
    hexed = word.encode().hex()
    return [
        table
        for (table,) in tables
        if session.execute(
            f"SELECT 1 FROM {table} t WHERE position(%(word)s IN lower(t::text)) > 0 OR position(%(hex)s IN t::text) > 0 LIMIT 1",
            {"word": word.lower(), "hex": hexed},
        ).fetchone()
    ]
