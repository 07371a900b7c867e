"""Every refusal and failure as a problem document (RFC 9457), which never repeats anything that was sent.

The one place that knows statuses, titles and codes of what is not a `tenants.errors.Problem` already.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from django import db
from django.core.exceptions import PermissionDenied, RequestDataTooBig, SuspiciousOperation
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, UnreadablePostError
from django.shortcuts import render
from django.utils.translation import gettext_noop
from rest_framework import exceptions
from rest_framework.response import Response

from tenants.errors import FieldError, Problem
from tenants.jsontext import dumps
from tenants.keyring import KeyUnavailable

log = logging.getLogger("muniment.problem")

CONTENT_TYPE = "application/problem+json"
RETRY_SECONDS = 1

#: Titles of codes that the frame itself answers with; the doors' own codes stand in docs/api.md.
TITLES: dict[str, str] = {
    "malformed": gettext_noop("The request is not of the documented form"),
    "body_incomplete": gettext_noop("The body ended before its stated length"),
    "content_length_malformed": gettext_noop("The stated length of the body is no number"),
    "content_encoding_refused": gettext_noop("The body must not be compressed"),
    "idempotency_key_malformed": gettext_noop("An Idempotency-Key has 1 to 200 printable ASCII characters"),
    "json_malformed": gettext_noop("The body is not JSON"),
    "json_duplicate_key": gettext_noop("An object in the body names a key twice"),
    "json_too_deep": gettext_noop("The body is nested too deeply"),
    "json_not_object": gettext_noop("The body must be one JSON object"),
    "query_malformed": gettext_noop("The query is not UTF-8 or has too many parameters"),
    "unknown_parameter": gettext_noop("The query has a parameter that this endpoint does not take"),
    "repeated_parameter": gettext_noop("The query gives a parameter twice"),
    "key_missing": gettext_noop("An Authorization header with an Api-Key is needed"),
    "key_unknown": gettext_noop("This key is not known"),
    "user_unknown": gettext_noop("Nobody signs in under this name"),
    "key_expired": gettext_noop("This key has expired"),
    "key_revoked": gettext_noop("This key has been revoked"),
    "key_suspended": gettext_noop("The agent or the tenant of this key is suspended"),
    "scope_missing": gettext_noop("This key lacks the scope that is needed"),
    "forbidden": gettext_noop("This is not allowed"),
    "csrf_refused": gettext_noop("The form did not come from a page of this session"),
    "not_found": gettext_noop("There is nothing here by that id"),
    "method_not_allowed": gettext_noop("This endpoint does not take this method"),
    "not_acceptable": gettext_noop("Only JSON is served"),
    "length_required": gettext_noop("The request must say how long its body is"),
    "body_too_large": gettext_noop("The body is too large"),
    "content_type_not_json": gettext_noop("The body must be application/json"),
    "too_many_requests": gettext_noop("This key has sent as many requests, or writes, as it may within a minute"),
    "internal": gettext_noop("Something went wrong here; it has been logged under this request id"),
    "unavailable": gettext_noop("A needed part is not available now; trying again later is right"),
    "keys_unavailable": gettext_noop("The keys that this needs are not available now"),
}

_BY_KIND: tuple[tuple[type[BaseException], int, str], ...] = (
    (Http404, 404, "not_found"),
    (exceptions.NotFound, 404, "not_found"),
    (exceptions.MethodNotAllowed, 405, "method_not_allowed"),
    (exceptions.NotAcceptable, 406, "not_acceptable"),
    (exceptions.UnsupportedMediaType, 415, "content_type_not_json"),
    (exceptions.Throttled, 429, "too_many_requests"),
    (exceptions.NotAuthenticated, 401, "key_missing"),
    (exceptions.AuthenticationFailed, 401, "key_unknown"),
    (exceptions.PermissionDenied, 403, "forbidden"),
    (exceptions.ParseError, 400, "json_malformed"),
    (exceptions.ValidationError, 400, "malformed"),
    (PermissionDenied, 403, "forbidden"),
    (RequestDataTooBig, 413, "body_too_large"),
    (SuspiciousOperation, 400, "malformed"),
    (UnreadablePostError, 400, "body_incomplete"),
    (KeyUnavailable, 503, "keys_unavailable"),
    # Lost connections, deadlocks, serialization failures, lock timeouts, a server that is full or shutting down.
    (db.OperationalError, 503, "unavailable"),
    (db.InterfaceError, 503, "unavailable"),
)


def handle(error: Exception, context: Mapping[str, Any]) -> Response:
    """Answer an exception of an API view (REST framework's EXCEPTION_HANDLER)."""
    request = context.get("request")
    headers: dict[str, str] = {}
    if isinstance(error, Problem):
        status, code, errors, title = error.status, error.code, error.errors, error.title
    else:
        status, code, errors, title = *_known(error), (), ""
        if status >= 500:
            # `from None`: only the type and SQLSTATE of a database's error, whose text may quote rows.
            cause = getattr(error.__cause__, "sqlstate", None)
            log.error("answered as %s", code, exc_info=error, extra={"code": cause or code, **_named(request)})
    if status == 401:
        headers["WWW-Authenticate"] = "Api-Key"
    if status in (429, 503):
        headers["Retry-After"] = str(getattr(error, "retry_after", RETRY_SECONDS))
    response = Response(
        document(status, code, request, errors=errors, title=title),
        status=status,
        headers=headers,
        content_type=CONTENT_TYPE,
    )
    response.problem_code = code  # type: ignore[attr-defined]
    return response


def _known(error: Exception) -> tuple[int, str]:
    return next(((status, code) for kind, status, code in _BY_KIND if isinstance(error, kind)), (500, "internal"))


def document(
    status: int, code: str, request: Any, *, errors: Sequence[FieldError] = (), title: str = ""
) -> dict[str, Any]:
    """Return a problem document. `detail` is the code's fixed prose, `title` that of its class."""
    detail = TITLES.get(code, title)
    return {
        "type": f"urn:muniment:problem:{code}",
        "title": title or detail,
        "status": status,
        "code": code,
        "detail": detail,
        "errors": [{"path": error.path, "code": error.code} for error in errors],
        "request_id": _named(request).get("request_id", ""),
    }


def _named(request: Any) -> dict[str, str]:
    plain = getattr(request, "_request", request)
    found = getattr(plain, "request_id", None)
    return {} if found is None else {"request_id": str(found)}


def answer(request: HttpRequest, status: int, code: str) -> HttpResponse:
    """Return a problem as a plain response: a page for people under /admin/, a problem document everywhere else."""
    if request.path_info.startswith("/admin"):
        response = render(request, "problem.html", document(status, code, request), status=status)
    else:
        response = HttpResponse(dumps(document(status, code, request)), status=status, content_type=CONTENT_TYPE)
    response.problem_code = code  # type: ignore[attr-defined]
    return response


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    """Django's handler400."""
    status, code = _known(exception)
    return answer(request, *((status, code) if status < 500 else (400, "malformed")))


def permission_denied(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    """Django's handler403."""
    return answer(request, 403, "forbidden")


def page_not_found(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    """Django's handler404."""
    return answer(request, 404, "not_found")


def server_error(request: HttpRequest) -> HttpResponseBase:
    """Django's handler500."""
    return answer(request, 500, "internal")


def csrf_refused(request: HttpRequest, reason: str = "") -> HttpResponseBase:
    """Django's CSRF_FAILURE_VIEW."""
    return answer(request, 403, "csrf_refused")
