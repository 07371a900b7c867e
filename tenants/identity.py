"""Row ids. Made by the application, since PostgreSQL 15 and Python 3.11 have no UUIDv7 of their own."""

from datetime import datetime
from uuid import UUID

from uuid_utils.compat import uuid7

from tenants.errors import Missing


def new_id() -> UUID:
    """Return a UUIDv7 (RFC 9562): unique, and growing with the time of making, so that indexes and cursors stay dense."""
    return uuid7()


def first_id(at: datetime) -> UUID:
    """Return what is no greater than any id of ours that was made at the instant or later, and than none made before."""
    return UUID(int=int(at.timestamp() * 1000) << 80)


def uuid_or_missing(text: str) -> UUID:
    """Return the id in a path. One that is malformed looks like one that is not there: raises `Missing`."""
    try:
        found = UUID(text)
    except ValueError:
        raise Missing() from None
    if str(found) != text.lower():
        raise Missing()
    return found
