"""Row ids. Made by the application, since PostgreSQL 15 and Python 3.11 have no UUIDv7 of their own."""

from uuid import UUID

from uuid_utils.compat import uuid7


def new_id() -> UUID:
    """Return a UUIDv7 (RFC 9562): unique, and growing with the time of making, so that indexes and cursors stay dense."""
    return uuid7()
