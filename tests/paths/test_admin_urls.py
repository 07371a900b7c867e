"""Every address of the admin, for every person, looking and sending: as the table says, and no address is left out.

The addresses come from the resolver itself. One that is new stands in no table, and fails the first test here until somebody
has said who may what there. What a body has to hold is asked elsewhere: here most are empty, and refused for that by whoever
may send at all.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Any
from uuid import uuid4

import pytest
from django.contrib import admin
from django.test import Client
from django.urls import URLPattern, get_resolver

from retention.desk.tabs import QUEUES
from tenants.actors import MemberRole
from tenants.admin import HistoryAdmin
from tenants.isolation import Role, tenant_transaction
from tenants.models import Membership
from tenants.registry import OPERATOR, remove_member
from tests.memory.test_admin import fill
from tests.organisation import new_organisation
from tests.paths.test_admin_matrix import DRAFTERS, EVERYBODY, KEEPER, KEEPERS, PROPOSERS, SEEN_BY, WORKERS
from tests.paths.test_admin_matrix import superuser_outside_every_tenant as an_operator

pytestmark = pytest.mark.slow

Roles = set[MemberRole]
REVIEWER, OFFICER = MemberRole.REVIEWER, MemberRole.PRIVACY_OFFICER
APPROVER, ADMIN, AUDITOR = MemberRole.APPROVER, MemberRole.TENANT_ADMIN, MemberRole.AUDITOR
NOBODY: Roles = set()
#: Who looks (GET) and who sends (POST); None: there is no such thing at the address.
May = tuple[Roles | None, Roles | None]

#: Before anybody has signed in. What they do is asked in tests of signing in.
BEFORE = {
    "admin/login/",
    "admin/login/code/",
    "admin/login/with/<str:name>/",
    "admin/login/with/<str:name>/back/",
    "admin/login/with/<str:name>/finish/",
    "admin/login/with/<str:name>/metadata/",
    "admin/language/",
    "admin/jsi18n/",
}
#: Everybody's own, in a tenant or outside all of them.
OWN = {
    "admin/tenant/",
    "admin/again/",
    "admin/again/code/",
    "admin/again/key/",
    "admin/again/with/",
    "admin/again/with/<str:name>/",
    "admin/second-factor/",
    "admin/second-factor/keys/new/",
    "admin/second-factor/keys/<int:pk>/remove/",
    "admin/second-factor/app/",
    "admin/second-factor/app/remove/",
    "admin/second-factor/codes/",
    "admin/second-factor/codes/new/",
}
#: Everybody's in a tenant, and an operator's. What they hold goes by who looks.
SHARED = {
    "admin/",
    "admin/search/",
    "admin/password_change/",
    "admin/password_change/done/",
    "admin/^(?P<app_label>tenants|policies|memory|retention)/$",
}
#: The theme's, which serve nobody here: no list is searched, no row is somebody's site, no page of ours is elsewhere.
CLOSED = {"admin/autocomplete/", "admin/r/<path:content_type_id>/<path:object_id>/", "admin/(?P<url>.*)$"}
#: Ends the session that sends it, and is asked with one of its own.
LEAVING = {"admin/logout/"}

DECIDERS: Roles = {REVIEWER, OFFICER, APPROVER}
#: Pages of our own in a tenant.
PAGES: dict[str, May] = {
    "processing/": (EVERYBODY, None),
    "processing/table/": (None, EVERYBODY),
    "tenants/agent/register/": ({ADMIN}, {ADMIN}),
    "tenants/agent/<str:agent>/key/": ({ADMIN}, {ADMIN}),
    "tenants/agentkey/<str:key>/rotate/": ({ADMIN}, {ADMIN}),
    "tenants/agentkey/<str:key>/revoke/": ({ADMIN}, {ADMIN}),
    "tenants/membership/invite/": ({ADMIN}, {ADMIN}),
    "tenants/membership/<str:membership>/remove/": ({ADMIN}, {ADMIN}),
    "tenants/auditevent/verify/": (None, {*KEEPERS, OFFICER}),
    "policies/attribute/draft/": (DRAFTERS, DRAFTERS),
    "policies/attribute/<path:object_id>/draft/": (DRAFTERS, DRAFTERS),
    "policies/attributeversion/<path:object_id>/ask/": (None, DRAFTERS),
    "policies/attributeversion/<path:object_id>/discard/": (None, DRAFTERS),
    "policies/attributeversion/<path:object_id>/again/": (None, DRAFTERS),
    "policies/policy/explain/": (EVERYBODY, None),
    "policies/policy/draft/": (DRAFTERS, DRAFTERS),
    "policies/policyversion/<path:object_id>/ask/": (None, DRAFTERS),
    "policies/policyversion/<path:object_id>/discard/": (None, DRAFTERS),
    "policies/policyversion/<path:object_id>/again/": (None, DRAFTERS),
    # A role may be handed on to anybody by name: the door knows who decides, and the body is read before it is asked.
    "policies/decisionrequest/<path:object_id>/decide/": (None, EVERYBODY),
    "policies/decisionrequest/<path:object_id>/withdraw/": (None, NOBODY),
    "policies/delegation/give/": ({APPROVER, OFFICER}, {APPROVER, OFFICER}),
    "policies/delegation/<path:object_id>/end/": (None, NOBODY),
    "memory/candidate/<path:object_id>/show/": (None, {REVIEWER}),
    "memory/candidate/<path:object_id>/decide/": (None, {REVIEWER}),
    "memory/outboxentry/<path:object_id>/retry/": (None, {OFFICER, ADMIN}),
    "memory/procedure/propose/": (WORKERS, WORKERS),
    "memory/procedureversion/<path:object_id>/show/": (None, WORKERS),
    "memory/procedureversion/<path:object_id>/decide/": (None, WORKERS),
    "memory/procedureversion/<path:object_id>/activate/": (None, {APPROVER}),
    "memory/procedureversion/<path:object_id>/schedule/": (None, {APPROVER}),
    "memory/procedureversion/<path:object_id>/end/": (None, WORKERS),
    "memory/procedureversion/<path:object_id>/take_back/": (None, NOBODY),
    "memory/procedureversion/<path:object_id>/again/": (None, WORKERS),
    "memory/suppression/<path:object_id>/lift/": (None, KEEPER),
    "retention/certificate/<path:object_id>/download/": (EVERYBODY, None),
    "retention/erasure/ask/": (KEEPER, KEEPER),
    "retention/erasure/of/<path:subject>/": (EVERYBODY, None),
    "retention/erasure/<path:object_id>/put/": (None, KEEPER),
    "retention/erasure/<path:object_id>/withdraw/": (None, KEEPER),
    "retention/erasure/<path:object_id>/decide/": (None, KEEPER),
    "retention/erasure/<path:object_id>/go-on/": (None, KEEPER),
    "retention/erasure/<path:object_id>/item/": (None, KEEPER),
    "retention/matter/open/": (KEEPER, KEEPER),
    "retention/matter/<path:object_id>/close/": (None, KEEPER),
    "retention/matter/<path:object_id>/place/": (None, KEEPER),
    "retention/hold/<path:object_id>/ask/": (None, KEEPER),
    # As for a request: the role may have been handed on.
    "retention/hold/<path:object_id>/decide/": (None, EVERYBODY),
    "retention/lifetimechange/due/": (EVERYBODY, None),
    "retention/lifetimechange/of/<path:fact>/": (EVERYBODY, {REVIEWER, OFFICER}),
    "retention/redactionrequest/propose/": (PROPOSERS, PROPOSERS),
    "retention/redactionrequest/<path:object_id>/show/": (None, PROPOSERS),
    # As for a request, of those who see the page.
    "retention/redactionrequest/<path:object_id>/apply/": (None, {*PROPOSERS, AUDITOR}),
    "retention/redactionrequest/<path:object_id>/refuse/": (None, {*PROPOSERS, AUDITOR}),
    "retention/redactionrequest/<path:object_id>/withdraw/": (None, NOBODY),
    "retention/subjectrequest/lodge/": (PROPOSERS, PROPOSERS),
    **{
        f"retention/subjectrequest/<path:object_id>/{act}/": (None, PROPOSERS)
        for act in ("identity", "fail", "extend", "withdraw", "export", "led")
    },
    **{
        f"retention/subjectrequest/<path:object_id>/{act}/": (None, KEEPER)
        for act in ("complete", "refuse", "erase", "download", "handover")
    },
    "retention/restriction/restrict/": (KEEPER, KEEPER),
    "retention/restriction/<path:object_id>/lift/": (None, KEEPER),
    "desk/": (DECIDERS, None),
    "desk/keys/": (None, DECIDERS),
}

#: Who works which queue, and what there is at the addresses of each.
WORKED_BY: dict[str, Roles] = {
    "facts": {REVIEWER},
    "conflicts": {REVIEWER},
    "procedures": {APPROVER},
    "redactions": {OFFICER},
    "disposition": {REVIEWER, OFFICER},
    "requests": {REVIEWER, OFFICER},
    "mentions": {OFFICER},
    "quarantine": {REVIEWER, OFFICER},
}
_LOOKS = ("", "rows/", "counts/", "find/", "<str:item>/", "<str:item>/again/")
_SENDS = (
    "claim/",
    "settle/",
    "several/",
    *(f"<str:item>/{act}/" for act in ("renew", "release", "decide", "undo", "foresee", "reveal")),
)
DESK = {f"admin/desk/<slug:queue>/{each}" for each in (*_LOOKS, *_SENDS)}
#: Where whoever may gets 404, since what they would have to name is not there.
ABSENT = {
    "retention/redactionrequest/propose/",
    "retention/subjectrequest/<path:object_id>/led/",
    "retention/redactionrequest/<path:object_id>/show/",
}


@cache
def routes() -> tuple[str, ...]:
    """Every address under /admin/, as the resolver has it; where two are the same, the first one answers."""

    def walk(resolver: Any, before: str = "") -> Iterator[str]:
        for each in resolver.url_patterns:
            route = before + str(each.pattern)
            if isinstance(each, URLPattern):
                yield route
            else:
                yield from walk(each, route)

    return tuple(dict.fromkeys(each for each in walk(get_resolver()) if each.startswith("admin/")))


def of_models() -> dict[str, May]:
    """What the admin itself has for each kind of row: to be looked at, and never added, changed or deleted."""
    found: dict[str, May] = {}
    for model, page in admin.site._registry.items():
        name = model._meta.label_lower.replace(".", "/")
        seen = SEEN_BY.get(name, EVERYBODY)
        found[f"admin/{name}/"] = found[f"admin/{name}/<path:object_id>/change/"] = (seen, None)
        found[f"admin/{name}/add/"] = found[f"admin/{name}/<path:object_id>/delete/"] = (None, None)
        has_history = isinstance(page, HistoryAdmin)
        found[f"admin/{name}/<path:object_id>/history/"] = (seen if has_history else None, None)
        if has_history:
            found[f"admin/{name}/^([^/]+)/history/([^/]+)/$"] = (seen, None)
    return found


def leading_on() -> set[str]:
    """Addresses that lead to the page of a row, whoever asks: what is there says who may."""
    return {f"admin/{model._meta.label_lower.replace('.', '/')}/<path:object_id>/" for model in admin.site._registry}


def table() -> dict[str, May]:
    return {**of_models(), **{f"admin/{route}": may for route, may in PAGES.items()}}


def test_no_address_is_left_out_and_none_is_made_up() -> None:
    named = BEFORE | OWN | SHARED | CLOSED | LEAVING | DESK | leading_on() | set(table())
    assert set(routes()) - named == set(), "say who may what there"
    assert named - set(routes()) == set(), "nothing is there any more"


def test_an_address_that_is_new_would_be_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.paths.test_admin_urls.routes", lambda: ("admin/memory/fact/<path:object_id>/new/",))
    with pytest.raises(AssertionError, match="say who may what there"):
        test_no_address_is_left_out_and_none_is_made_up()


def test_queues_are_worked_by_whom_the_table_says() -> None:
    assert {name: set(queue.roles) for name, queue in QUEUES.items()} == WORKED_BY


@dataclass
class Place:
    """A tenant with a row of every kind, and where each is."""

    tenant: Any
    rows: dict[str, str]

    def path(self, route: str) -> str:
        """Return an address of this tenant for a route."""
        model = "/".join(route.split("/")[1:3])
        row = self.rows.get(model, str(uuid4()))
        others = {
            "subject": "memory/subject",
            "fact": "memory/fact",
            "agent": "tenants/agent",
            "key": "tenants/agentkey",
        }
        named = {"object_id": row, "item": self.rows["memory/candidate"], "name": "company", "pk": "1"}
        named |= {
            "queue": "facts",
            "membership": self.rows["tenants/membership"],
            "content_type_id": "1",
            "url": "none/",
        }
        named |= {name: self.rows[where] for name, where in others.items()}
        path = route.replace("^([^/]+)/history/([^/]+)/$", f"{row}/history/1/")
        path = path.replace("^(?P<app_label>tenants|policies|memory|retention)/$", "memory/").replace(
            "(?P<url>.*)$", "none/"
        )
        return "/" + re.sub(r"<\w+:(\w+)>", lambda found: named[found[1]], path)


def _any(model: Any) -> Any:
    return model


def placed(tenant: Any) -> Place:
    fill(tenant)
    tenant.person(AUDITOR)
    rows = {}
    with tenant_transaction(Role.STAFF, tenant=tenant.id, clearance=3):
        for model in map(_any, admin.site._registry):
            if any(field.name == "tenant" for field in model._meta.fields):
                newest = model.objects.filter(tenant_id=tenant.id).order_by("-id").values_list("id", flat=True).first()
                rows[model._meta.label_lower.replace(".", "/")] = str(newest)
        events = next(model for model in map(_any, admin.site._registry) if model.__name__ == "AuditEvent")
        rows["tenants/auditevent"] = str(events.objects.filter(chain=tenant.id).values_list("id", flat=True).first())
    rows["tenants/tenant"] = str(tenant.id)
    assert "None" not in rows.values()
    return Place(tenant, rows)


@pytest.fixture(scope="module")
def place(database: Any) -> Place:
    """One for all: nobody's sending changes who may."""
    return placed(new_organisation())


def sent(client: Client, method: str, path: str) -> tuple[int, str]:
    client.raise_request_exception = False
    answer = client.generic(method, path)
    return answer.status_code, str(answer.headers.get("Location", ""))


REFUSED, NOT_THERE = (403, 404), (403, 404, 405)


def assert_as_said(client: Client, role: MemberRole, route: str, path: str, may: May) -> None:
    for method, roles in zip(("GET", "POST"), may, strict=True):
        status, where = sent(client, method, path)
        assert status < 500, (method, path)
        if roles is None:
            assert status in NOT_THERE, (method, path, status)
        elif role not in roles:
            assert status in REFUSED, (method, path, status)
        else:
            absent = status == 404 and route.removeprefix("admin/") in ABSENT
            assert absent or status in (200, 302, 400, 409, 422), (method, path, status)
            assert not where.startswith(("/admin/login/", "/admin/tenant/")), (method, path)


@pytest.mark.parametrize("role", list(MemberRole))
def test_a_member_may_at_every_address_what_the_table_says(place: Place, role: MemberRole) -> None:
    client = place.tenant.person(role).signed_in()
    for route, may in table().items():
        if "history/([^/]+)" not in route:
            assert_as_said(client, role, route, place.path(route), may)
    for queue, roles in WORKED_BY.items():
        for each in (*_LOOKS, *_SENDS):
            path = place.path(f"admin/desk/<slug:queue>/{each}".replace("<slug:queue>", queue))
            looks = each in _LOOKS
            for method in ("GET", "POST"):
                status, _ = sent(client, method, path)
                if role not in roles:
                    assert status in NOT_THERE, (method, path, status)
                elif (method == "GET") != looks:
                    assert status == 405, (method, path, status)
                else:
                    # 404 and 409: another queue's item, or one that was not claimed.
                    assert status in (200, 302, 400, 404, 409, 422), (method, path, status)
    for route in OWN | SHARED | leading_on():
        for method in ("GET", "POST"):
            status, where = sent(client, method, place.path(route))
            assert status in (200, 302, 404, 405), (method, route, status)
            assert not where.startswith("/admin/login/"), (method, route)
    for route in CLOSED:
        for method in ("GET", "POST"):
            assert sent(client, method, place.path(route))[0] in NOT_THERE, (method, route)
    assert sent(client, "GET", "/admin/logout/")[0] == 405
    assert sent(client, "POST", "/admin/logout/")[0] in (200, 302)
    assert sent(client, "GET", "/admin/")[1].startswith("/admin/login/")


def test_pages_of_the_past_are_seen_by_whoever_sees_the_row(place: Place) -> None:
    for role in MemberRole:
        client = place.tenant.person(role).signed_in()
        for route, may in table().items():
            if "history/([^/]+)" not in route or may[0] is None:
                continue
            row = place.path(route).partition("/history/")[0]
            status, _ = sent(client, "GET", f"{row}/history/")
            assert status == (200 if role in may[0] else 403), (role, route, status)
            if role in may[0]:
                page = client.get(f"{row}/history/").content.decode()
                versions = re.findall(rf"{re.escape(row)}/history/(\d+)/", page)
                for version in versions[:1]:
                    assert sent(client, "GET", f"{row}/history/{version}/")[0] == 200, (role, route)
                    assert sent(client, "POST", f"{row}/history/{version}/")[0] == 405, (role, route)


def test_whoever_has_not_signed_in_gets_no_further_than_signing_in(place: Place) -> None:
    for route in set(routes()) - BEFORE - LEAVING:
        for method in ("GET", "POST"):
            status, where = sent(Client(), method, place.path(route))
            hidden = route in OWN and status == 404
            assert hidden or status in (302, 405), (method, route, status)
            # An address without its last page leads to it, and that one to signing in.
            assert hidden or status == 405 or where.startswith(("/admin/login/", "/admin/")), (method, route, where)
            if where and not where.startswith("/admin/login/"):
                assert sent(Client(), "GET", where)[1].startswith("/admin/login/"), (method, route, where)


def test_somebody_without_a_role_gets_no_further_than_choosing_a_tenant(place: Place) -> None:
    person = place.tenant.person(REVIEWER)
    with tenant_transaction(Role.FRONT, tenant=place.tenant.id):
        (membership,) = Membership.objects.filter(user_id=person.actor.id)
        remove_member(membership, by=OPERATOR, now=datetime.now(UTC), reason="left")
    client = person.signed_in()
    for route in set(routes()) - BEFORE - OWN - LEAVING:
        for method in ("GET", "POST"):
            status, where = sent(client, method, place.path(route))
            assert (status, where) == (302, "/admin/tenant/"), (method, route, status)


#: What an operator outside every tenant looks at besides what is everybody's.
OPERATORS = {
    "admin/tenants/tenant/",
    "admin/tenants/user/",
    "admin/tenants/auditevent/",
    "admin/tenants/tenant/<path:object_id>/change/",
    "admin/tenants/tenant/<path:object_id>/history/",
    "admin/tenants/tenant/^([^/]+)/history/([^/]+)/$",
    "admin/tenants/auditevent/verify/",
    # Of an id that is not there it leads back to the first page.
    "admin/tenants/user/<path:object_id>/change/",
    "admin/tenants/auditevent/<path:object_id>/change/",
}


def test_a_superuser_outside_every_tenant_sees_operators_pages_alone(place: Place) -> None:
    client = an_operator()
    for route in set(table()) | DESK:
        for method in ("GET", "POST"):
            status, _ = sent(client, method, place.path(route))
            if route in OPERATORS:
                assert status in (200, 302, 403, 404, 405), (method, route, status)
            else:
                assert status in NOT_THERE, (method, route, status)
    for route in ("admin/tenants/tenant/", "admin/tenants/user/", "admin/tenants/auditevent/"):
        assert sent(client, "GET", f"/{route}")[0] == 200


def test_a_member_of_another_tenant_reaches_no_row_by_any_address(place: Place, other_tenant: Any) -> None:
    client = other_tenant.person(*MemberRole).signed_in()
    for route in set(table()) | DESK:
        if not re.search(r"<|\(", route):
            continue
        for method in ("GET", "POST"):
            status, where = sent(client, method, place.path(route))
            if route.startswith("admin/desk/"):
                # The queue is that of the reader's own tenant: in it, the item is what one is that there never was.
                never = place.path(route).replace(place.rows["memory/candidate"], str(uuid4()))
                assert (status, len(where)) == (sent(client, method, never)[0], len(sent(client, method, never)[1]))
                continue
            # An entry of another chain is one that is not there: the admin leads back to the first page.
            assert status in NOT_THERE or (status, where) == (302, "/admin/"), (method, route, status, where)
