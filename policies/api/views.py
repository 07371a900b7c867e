"""What may be stored: the attributes in force, as they were published."""

from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from policies.api.schema import MAX_PAGE, PAGE, AttributesPage, AttributesQuery
from policies.catalogue import catalogue
from tenants.actors import Scope
from tenants.api.base import GovernedView
from tenants.api.describe import described
from tenants.errors import FieldError, Malformed


class Attributes(GovernedView):
    """The attributes in force, in the order in which they were first published."""

    scope = {"GET": Scope.READ}
    query = frozenset(AttributesQuery.model_fields)

    @described("read_attributes", AttributesPage, query=AttributesQuery)
    def get(self, request: Request) -> Response:
        after, limit = self._after(), self._limit()
        in_force = sorted(catalogue(self.actor.tenant).by_id.values(), key=lambda each: each.id)
        wanted = [each for each in in_force if after is None or each.id > after]
        page = wanted[:limit]
        return Response(
            {
                "results": [{**each.definition.document(), "version": each.number} for each in page],
                "next": page[-1].id.hex if len(wanted) > limit else None,
                "previous": None,
            }
        )

    def _after(self) -> UUID | None:
        text = self.parameters.get("cursor")
        if text is None:
            return None
        try:
            if len(text) == 32:
                return UUID(hex=text)
        except ValueError:
            pass
        raise Malformed(errors=[FieldError("cursor", "not_a_cursor")])

    def _limit(self) -> int:
        text = self.parameters.get("limit", str(PAGE))
        if not (text.isascii() and text.isdigit() and len(text) < 10):
            raise Malformed(errors=[FieldError("limit", "not_a_number")])
        if not 1 <= int(text) <= MAX_PAGE:
            raise Malformed(errors=[FieldError("limit", "out_of_range")])
        return int(text)
