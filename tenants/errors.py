"""What the application refuses, as data: every error has a stable code and a status, and never a value that was sent.

One place (`config.problems`) turns a `Problem` into a problem document; faces raise nothing else on purpose.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class FieldError:
    """One field that is wrong: where it stands (`items[3].provenance.turn_id`) and a stable code."""

    path: str
    code: str


class Problem(Exception):
    """A refusal that a caller can act upon.

    `code` is stable and documented, `status` is the HTTP status, `title` is fixed prose per class. None of them, nor
    `str()`, ever holds anything that the caller sent.
    """

    status: ClassVar[int] = 400
    code: str = "bad_request"
    title: ClassVar[str] = "The request cannot be carried out"

    def __init__(self, code: str | None = None, *, errors: Sequence[FieldError] = ()) -> None:
        if code is not None:
            self.code = code
        self.errors = tuple(errors)
        super().__init__(self.code)


class Malformed(Problem):
    """The request is not of the documented form: unknown field, wrong type, naive time, bad id."""

    status = 400
    code = "malformed"
    title = "The request is not of the documented form"


class Unauthenticated(Problem):
    """No usable key came with the request."""

    status = 401
    code = "unauthenticated"
    title = "A valid key is needed"


class Forbidden(Problem):
    """The key is good, and may not do this."""

    status = 403
    code = "forbidden"
    title = "This key may not do that"


class Missing(Problem):
    """Nothing by that id is visible to the caller: absent, another tenant's and hidden look the same."""

    status = 404
    code = "not_found"
    title = "There is nothing here by that id"


class Clash(Problem):
    """The state of things does not allow it now."""

    status = 409
    code = "conflict"
    title = "The present state does not allow this"


class Refused(Problem):
    """Well formed, understood and not admitted."""

    status = 422
    code = "refused"
    title = "This may not be kept as sent"


class TooMany(Problem):
    """More came within the minute than the tenant lets a key send; `retry_after` is in how many seconds that ends."""

    status = 429
    code = "too_many_requests"
    title = "Too many requests"

    def __init__(self, *, retry_after: int) -> None:
        super().__init__()
        self.retry_after = retry_after


class Unavailable(Problem):
    """A part that this act needs is not there now; trying again later is right."""

    status = 503
    code = "unavailable"
    title = "A needed part is not available now"
