"""What the endpoints of endings share: they run as staff does, for a key with the scope `admin`, and may be repeated."""

from typing import Any
from uuid import UUID

from django.db.models import Model, QuerySet

from memory import idempotency
from memory.api.base import MemoryView
from memory.outcomes import RowKept
from tenants.actors import Scope
from tenants.errors import FieldError, Malformed, Missing
from tenants.identity import uuid_or_missing
from tenants.isolation import Role, borrowed


class Governing(MemoryView):
    """An endpoint in front of a door of `retention`: runs as staff does, for a key with the scope `admin`."""

    scope = {"GET": Scope.ADMIN, "POST": Scope.ADMIN}
    role = {"GET": Role.STAFF, "POST": Role.STAFF}

    def earlier(self) -> RowKept | None:
        """Return what this very request came to before, None where it is to be carried out."""
        repeat = self.repeat()
        if repeat is None:
            return None
        with borrowed(Role.WRITER, back_to=Role.STAFF):
            found = idempotency.earlier(self.actor, repeat)
        if found is None:
            return None
        (outcome,) = found
        assert isinstance(outcome, RowKept)
        return outcome

    def keep(self, row: UUID, *, created: bool) -> RowKept:
        """Remember what this request came to, should it come again."""
        outcome, repeat = RowKept(id=row, created=created), self.repeat()
        if repeat is not None:
            with borrowed(Role.WRITER, back_to=Role.STAFF):
                idempotency.keep(self.actor, repeat, [outcome], status=outcome.status, now=self.now)
        return outcome

    def page(self, found: QuerySet[Any], cursor: str | None, limit: int) -> tuple[list[Any], str | None]:
        """Return one page of rows, newest first, and where the next begins."""
        if cursor is not None:
            found = found.filter(id__lt=_id_of(cursor))
        shown = list(found.filter(tenant_id=self.actor.tenant).order_by("-id")[: limit + 1])
        return shown[:limit], shown[limit - 1].id.hex if len(shown) > limit else None

    def one(self, model: type[Model], id: str) -> Any:
        """Return a row of the tenant. Raises `Missing`."""
        found = model._default_manager.filter(tenant_id=self.actor.tenant, id=uuid_or_missing(id)).first()
        if found is None:
            raise Missing
        return found


def _id_of(cursor: str) -> UUID:
    try:
        return UUID(hex=cursor)
    except ValueError:
        raise Malformed(errors=[FieldError("cursor", "not_a_cursor")]) from None
