"""The frame of every API endpoint: who asks, under which database role, and that a refusal leaves nothing behind."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from typing import Any, ClassVar
from urllib.parse import parse_qsl

from django.db import DatabaseError, connection
from django.http import HttpRequest, HttpResponseBase
from psycopg.pq import TransactionStatus
from rest_framework.exceptions import MethodNotAllowed
from rest_framework.response import Response
from rest_framework.views import APIView

from tenants.actors import Actor, Scope
from tenants.api.rendering import check_size
from tenants.authentication import Caller, recognise, remembered
from tenants.errors import FieldError, Forbidden, Malformed, Problem
from tenants.isolation import Proof, Role, Rollback, Unproven, tenant_transaction

MEGABYTE = 1024 * 1024
_MOST_PARAMETERS = 50
_LONGEST_IDEMPOTENCY_KEY = 200


class GovernedView(APIView):
    """An endpoint for agents.

    A method that is defined and has a `scope` is served; it runs inside one `tenant_transaction` under its `role`, with
    `self.actor`, `self.now` and `self.parameters` set. An answer of 400 or more rolls back, also where it is a `Problem`
    that was raised; the answer is rendered before the commit. A refusal that must be recorded is put on the answer as
    `response.refusal`, a callable that then runs in a second short transaction under `Role.WRITER`. What may only be
    done once the transaction is committed is `response.afterwards`, a callable that returns the answer in its place.
    """

    #: The scope that a method needs; None where any key suffices. HEAD is served as GET.
    scope: ClassVar[Mapping[str, Scope | None]] = {}
    #: The database role of a method; by default reads run as the agent and everything else as the writer.
    role: ClassVar[Mapping[str, Role]] = {}
    #: The query parameters of GET. Each is given at most once; other methods take none.
    query: ClassVar[frozenset[str]] = frozenset()
    #: The methods that change nothing: they run as the agent, and leave no more than a receipt.
    reads: ClassVar[frozenset[str]] = frozenset({"GET"})
    #: Whether the commit of a read waits for the disk.
    durable_reads: ClassVar[bool] = False
    #: The methods whose door is one statement and opens its own transaction for it. It passes `self.proof` to the door,
    #: and may be called twice for one request.
    opens_itself: ClassVar[frozenset[str]] = frozenset()
    body_limit: ClassVar[int] = MEGABYTE

    authentication_classes = ()
    permission_classes = ()
    throttle_classes = ()
    http_method_names = ["get", "head", "post", "put", "patch", "delete"]

    caller: Caller
    actor: Actor
    #: What the door's own transaction has to prove before anything else; None where the caller was recognised.
    proof: Proof | None = None
    now: datetime
    parameters: dict[str, str]

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Serve one request."""
        self.args, self.kwargs = args, kwargs
        self.headers = self.default_response_headers
        self.now = datetime.now(UTC)
        self.request = self.initialize_request(request, *args, **kwargs)
        try:
            response, refusal = self._governed(request, *args, **kwargs)
            if refusal is not None:
                with tenant_transaction(Role.WRITER, tenant=self.actor.tenant, actor=self.actor.id):
                    refusal()
            afterwards: Callable[[], Response] | None = getattr(response, "afterwards", None)
            if afterwards is not None and response.status_code < 400:
                response = self._rendered(afterwards())
        except Exception as error:
            response = self._rendered(self.handle_exception(error))
        return response

    def _governed(self, request: HttpRequest, *args: Any, **kwargs: Any) -> tuple[Response, Callable[[], None] | None]:
        method = "GET" if request.method == "HEAD" else str(request.method)
        handler = getattr(self, method.lower(), None)
        if handler is None or method not in self.scope:
            raise MethodNotAllowed(method)
        if method in self.opens_itself:
            answered = self._answered_at_once(method, handler, request, *args, **kwargs)
            if answered is not None:
                return answered, None
        scope = self.scope[method]
        writes = method != "GET" and scope is not Scope.READ
        self.caller = recognise(request.META.get("HTTP_AUTHORIZATION"), self.now, writes=writes)
        self.actor = self.caller.actor
        if scope is not None and not self.actor.may(scope):
            raise Forbidden("scope_missing")
        self.parameters = query_parameters(
            request.META.get("QUERY_STRING", ""), self.query if method == "GET" else frozenset()
        )
        if method != "GET":
            # Read and parsed before the transaction: a slow sender must not hold one open.
            check_size(request.META, self.body_limit)
            _ = self.request.data
        with self._transaction(method):
            try:
                response = handler(self.request, *args, **kwargs)
            except Problem as problem:
                response = self.handle_exception(problem)
            response = self._rendered(response)
            if response.status_code >= 400 and connection.in_atomic_block and _has_written():
                raise Rollback
        return response, getattr(response, "refusal", None) if response.status_code >= 400 else None

    def _answered_at_once(
        self, method: str, handler: Callable[..., Response], request: HttpRequest, *args: Any, **kwargs: Any
    ) -> Response | None:
        """Answer a read by a key that is remembered, which the read's own transaction proves: one round trip in all.

        Only an answer comes of it. Whatever else would, and whatever was not proven, is left to the long way (None),
        on which the key is recognised first.
        """
        held = remembered(request.META.get("HTTP_AUTHORIZATION"), self.now)
        scope = self.scope[method]
        if held is None or (scope is not None and not held.caller.actor.may(scope)):
            return None
        self.caller, self.actor, self.proof = held.caller, held.caller.actor, held.proof(self.now)
        try:
            self.parameters = query_parameters(request.META.get("QUERY_STRING", ""), self.query)
            response = handler(self.request, *args, **kwargs)
        except (Problem, Unproven):
            response = None
        proven, self.proof = self.proof.proven, None
        return self._rendered(response) if response is not None and proven and response.status_code < 400 else None

    def _transaction(self, method: str) -> AbstractContextManager[None]:
        if method in self.opens_itself:
            return nullcontext()
        return tenant_transaction(
            self.role.get(method, Role.AGENT if method in self.reads else Role.WRITER),
            tenant=self.actor.tenant,
            clearance=self.actor.clearance,
            actor=self.actor.id,
            durable=method not in self.reads or self.durable_reads,
        )

    def _rendered(self, response: Response) -> Response:
        self.response: Response = self.finalize_response(self.request, response, *self.args, **self.kwargs)
        self.response.render()
        return self.response

    def permission_denied(self, request: Any, message: str | None = None, code: str | None = None) -> Any:
        raise Forbidden()

    def idempotency_key(self) -> str | None:
        """Return the request's `Idempotency-Key`, None without one. Raises `Malformed`."""
        return idempotency_key(self.request.META.get("HTTP_IDEMPOTENCY_KEY"))

    @property
    def raw_body(self) -> bytes:
        """The body as it came."""
        return getattr(self.request, "raw_body", b"")

    @property
    def route(self) -> str:
        """The name of the endpoint as the log and the digest of a repeated request know it; never the path."""
        match = self.request._request.resolver_match
        return f"{self.request.method} {match.route if match else ''}"


def idempotency_key(header: str | None) -> str | None:
    """Return an idempotency key of 1 to 200 printable ASCII characters, None for none. Raises `Malformed`."""
    if header is None:
        return None
    if not 1 <= len(header) <= _LONGEST_IDEMPOTENCY_KEY or not header.isascii() or not header.isprintable():
        raise Malformed("idempotency_key_malformed")
    return header


def query_parameters(query: str, allowed: frozenset[str]) -> dict[str, str]:
    """Return the query's parameters. Raises `Malformed` for one that is unknown, repeated or not UTF-8.

    The unknown one is not named: its name is what was sent.
    """
    if not query:
        return {}
    try:
        pairs = parse_qsl(query, keep_blank_values=True, errors="strict", max_num_fields=_MOST_PARAMETERS)
    except ValueError:
        raise Malformed("query_malformed") from None
    found: dict[str, str] = {}
    for name, value in pairs:
        if name not in allowed:
            raise Malformed("unknown_parameter", errors=[FieldError("query", "unknown_parameter")])
        if name in found:
            raise Malformed("repeated_parameter", errors=[FieldError(name, "repeated_parameter")])
        found[name] = value
    return found


def _has_written() -> bool:
    """Whether the open transaction changed anything, or is broken.

    One that did not is committed rather than rolled back: psycopg forgets every prepared statement at a ROLLBACK, and a
    client that asks for what is not there would make all the others slow.
    """
    status = connection.connection.info.transaction_status
    if connection.needs_rollback or status not in (TransactionStatus.INTRANS, TransactionStatus.ACTIVE):
        return True
    # ACTIVE: statements are under way in the transaction's stream. Where one of them has failed, this one fails too.
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_current_xact_id_if_assigned() IS NOT NULL")
            row = cursor.fetchone()
    except DatabaseError:
        return True
    return row is None or bool(row[0])
