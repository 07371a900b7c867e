"""What happens around every request: its id, its line in the log, its headers, and for staff pages its transaction.

API endpoints open their own transaction and know no session, so that everything about sessions, forms and signed-in
people runs for pages under /admin/ alone.
"""

import logging
from collections.abc import Callable
from time import perf_counter
from typing import Any
from urllib.parse import urlencode

from allauth.account.adapter import get_adapter
from allauth.account.middleware import AccountMiddleware
from allauth.core.exceptions import ReauthenticationRequired
from allauth.mfa.utils import is_mfa_enabled
from csp.middleware import CSPMiddleware
from django.conf import settings
from django.contrib.auth.middleware import AuthenticationMiddleware
from django.contrib.auth.views import redirect_to_login
from django.contrib.messages.middleware import MessageMiddleware
from django.contrib.sessions.middleware import SessionMiddleware
from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponseBase, HttpResponseRedirect
from django.middleware.clickjacking import XFrameOptionsMiddleware
from django.middleware.common import CommonMiddleware
from django.middleware.csrf import CsrfViewMiddleware
from django.urls import Resolver404, resolve, reverse
from django.utils import translation
from django.utils.functional import cached_property

from config.metrics import observe
from config.problems import answer
from tenants.identity import new_id
from tenants.isolation import Role, Rollback, assume, tenant_transaction
from tenants.signing import TRUSTED_SECOND_FACTOR
from tenants.standing import CHOSEN, standing_of

log = logging.getLogger("muniment.request")

Handler = Callable[[HttpRequest], HttpResponseBase]

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})

_COMMON = "base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"
#: Nothing at all: JSON is no page.
_NOTHING = "default-src 'none'; frame-ancestors 'none'"
#: Our own pages: our own files, no inline script. Swagger UI sets style attributes.
_OWN = f"default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; connect-src 'self'; {_COMMON}"


def is_staff_page(request: HttpRequest) -> bool:
    """Whether a request is for the pages of people who sign in."""
    path = request.path_info
    return path.startswith("/admin/") or path == "/admin"


class RequestIdentity:
    """Gives every request an id (`X-Request-Id`), one line in the log, a count, and the headers of its answer.

    The line names the route, never the path or the query, either of which may hold what somebody typed.
    """

    def __init__(self, get_response: Handler) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        began = perf_counter()
        request.request_id = new_id()  # type: ignore[attr-defined]
        response = self.get_response(request)
        headers = response.headers
        headers["X-Request-Id"] = str(request.request_id)  # type: ignore[attr-defined]
        if not response.streaming and response.status_code not in (204, 304):
            headers.setdefault("Content-Length", str(len(response.content)))  # type: ignore[attr-defined]
        static = request.path_info.startswith(settings.STATIC_URL)
        if not static:
            headers.setdefault("Content-Security-Policy", _policy(request, headers.get("Content-Type", "")))
            headers.setdefault("Cache-Control", "no-store")
        match = request.resolver_match
        route = "static" if static else match.route if match is not None else "unmatched"
        method = request.method if request.method in _METHODS else "OTHER"
        seconds = perf_counter() - began
        observe(route, str(method), response.status_code, seconds)
        extra: dict[str, Any] = {
            "request_id": str(request.request_id),  # type: ignore[attr-defined]
            "route": route,
            "method": method,
            "status": response.status_code,
            "duration_ms": round(seconds * 1000, 2),
        }
        code = getattr(response, "problem_code", None)
        if code is not None:
            extra["code"] = code
        log.log(logging.DEBUG if static else logging.INFO, "request", extra=extra)
        return response


def _policy(request: HttpRequest, content_type: str) -> str:
    if not content_type.startswith("text/html"):
        return _NOTHING
    return _OWN


class _StaffPages:
    """Lets a middleware of Django run for staff pages only; an API request passes it by."""

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        if is_staff_page(request):
            return super().__call__(request)  # type: ignore[misc, no-any-return]
        return self.get_response(request)  # type: ignore[attr-defined, no-any-return]


class Sessions(_StaffPages, SessionMiddleware):
    """Sessions of people."""


class Common(_StaffPages, CommonMiddleware):
    """Hosts and slashes of pages. An API path without its slash is simply not there: a redirect would repeat the query."""


class Csrf(_StaffPages, CsrfViewMiddleware):
    """Forms come from our own pages."""

    def process_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        return super().process_view(request, *args, **kwargs) if is_staff_page(request) else None


class SignedIn(_StaffPages, AuthenticationMiddleware):
    """Who has signed in."""


class Accounts:
    """Sign-ins of several steps, and acts that first ask who it is once more."""

    def __init__(self, get_response: Handler) -> None:
        self.get_response = get_response
        self.inner = AccountMiddleware(get_response)

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        answer: HttpResponseBase = (self.inner if is_staff_page(request) else self.get_response)(request)
        return answer

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponseBase | None:
        if not isinstance(error, ReauthenticationRequired):
            return None
        if not request.user.is_authenticated:
            # Nobody yet, or somebody between the first step and the second.
            return redirect_to_login(request.path, reverse("admin:login"))
        # allauth would keep a form that was sent in the session and send it again past every middleware. Here whoever
        # sent it comes back to the form.
        assume(Role.FRONT, tenant=None)
        methods = get_adapter().get_reauthentication_methods(request.user)
        if not methods:
            # Neither a password nor a factor, and the provider is not configured any more.
            return answer(request, 403, "permission_denied")
        return HttpResponseRedirect(f"{methods[0]['url']}?{urlencode({'next': request.path})}")


class Language:
    """Staff pages in the language that their reader chose, or their browser asks for; everything else in English.

    Nothing outlives the request: the thread that answers a program next speaks English again.
    """

    def __init__(self, get_response: Handler) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        if not is_staff_page(request):
            return self.get_response(request)
        with translation.override(translation.get_language_from_request(request)):
            language = translation.get_language()
            request.LANGUAGE_CODE = language  # type: ignore[attr-defined]
            response = self.get_response(request)
        response.headers.setdefault("Content-Language", str(language))
        return response


class Messages(_StaffPages, MessageMiddleware):
    """What a page tells its reader once."""


class PagePolicy(_StaffPages, CSPMiddleware):
    """What a staff page may load and run: `CONTENT_SECURITY_POLICY` in the settings."""


class Frames(_StaffPages, XFrameOptionsMiddleware):
    """No page in another's frame."""


class StaffTransaction:
    """Opens the transaction of a staff page, session and sign-in included; an answer of 400 or more rolls it back."""

    def __init__(self, get_response: Handler) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        if not is_staff_page(request):
            return self.get_response(request)
        try:
            with tenant_transaction(Role.FRONT, tenant=None):
                response = self.get_response(request)
                if response.streaming:
                    # Its rest would be made after the transaction, without role and tenant.
                    raise RuntimeError("a staff page does not stream")
                if response.status_code >= 400:
                    raise Rollback
        except (OperationalError, InterfaceError):
            # The database was not there to begin with, or was lost before the commit.
            return answer(request, 503, "unavailable")
        return response


class StaffScope:
    """Takes the staff role for the tenant that the person works in, and hands `request.standing` to the pages.

    Without a tenant an operator (a superuser) keeps the front role and sees operators' pages; anybody else gets no
    further than the page on which a tenant is chosen.
    """

    def __init__(self, get_response: Handler) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        if not is_staff_page(request):
            return self.get_response(request)
        standing = standing_of(request.user, request.session.get(CHOSEN))
        request.standing = standing  # type: ignore[attr-defined]
        choosing = _named(request.path_info) in self._before_a_tenant
        if self._owes_a_second_factor(request, standing.person is not None and not choosing):
            return HttpResponseRedirect(reverse("mfa_activate_totp"))
        if standing.tenant is not None and not choosing:
            assume(Role.STAFF, tenant=standing.tenant, clearance=3, actor=standing.person)
        elif standing.person is not None and not standing.operator and not choosing:
            return HttpResponseRedirect(reverse("choose_tenant"))
        return self.get_response(request)

    @cached_property
    def _before_a_tenant(self) -> frozenset[str]:
        from tenants.second_factor import urlpatterns as signing_in
        from tenants.single_sign_on import urlpatterns as by_providers

        names = ("choose_tenant", "choose_language", "admin:login", "admin:logout", "admin:jsi18n")
        return frozenset({*names, *(str(page.name) for page in (*signing_in, *by_providers))})

    def _owes_a_second_factor(self, request: HttpRequest, inside: bool) -> bool:
        if not inside or not settings.ENVIRONMENT.require_mfa or request.session.get(TRUSTED_SECOND_FACTOR):
            return False
        return not is_mfa_enabled(request.user)


def _named(path: str) -> str | None:
    try:
        return resolve(path).view_name
    except Resolver404:
        return None
