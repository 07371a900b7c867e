"""The frame around every request: who asks, what is read of it, what stays after a refusal, and what is said of it."""

import io
import json
import logging
import re
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import connection

from tenants.actors import Scope
from tenants.isolation import Role, tenant_transaction
from tenants.models import AuditEvent
from tests.organisation import Api
from tests.paths.endpoints import SECRET

FIELDS = {"type", "title", "status", "code", "detail", "errors", "request_id"}


@pytest.fixture(autouse=True)
def endpoints(settings: Any) -> None:
    settings.ROOT_URLCONF = "tests.paths.endpoints"


@pytest.fixture
def client(api: Any) -> Any:
    api.raise_request_exception = False
    return api


def problem(answer: Any, status: int, code: str) -> dict[str, Any]:
    assert (answer.status_code, answer.headers["Content-Type"]) == (status, "application/problem+json"), answer.content
    found: dict[str, Any] = answer.json()
    assert set(found) == FIELDS
    assert (found["status"], found["code"]) == (status, code)
    assert found["request_id"] == answer.headers["X-Request-Id"]
    return found


def reasons(tenant: Any) -> list[str]:
    with tenant_transaction(Role.FRONT, tenant=None):
        found = AuditEvent.objects.filter(chain=tenant.id, action="write.refused").order_by("seq")
        return list(found.values_list("reason", flat=True))


# who asks


def test_a_read_runs_as_the_agent_in_its_tenant_and_need_not_wait_for_the_disk(tenant: Any, settings: Any) -> None:
    agent = tenant.agent(clearance="internal")
    found = agent.api.get("/api/v1/echo/").json()
    assert found["database"] == ["muniment_agent", str(tenant.id), "1", str(agent.actor.id), "off"]


def test_a_write_runs_as_the_writer_and_waits_for_the_disk(client: Any) -> None:
    assert client.send("POST", "/api/v1/echo/", {}).json()["database"] == ["muniment_writer", "on"]


def test_a_view_may_name_another_role(client: Any) -> None:
    assert client.send("POST", "/api/v1/reads/", {}).json() == {"role": "muniment_agent"}


def test_a_request_without_a_usable_key_is_told_how_to_bring_one(client: Any) -> None:
    answer = Api().get("/api/v1/echo/")
    problem(answer, 401, "key_missing")
    assert answer["WWW-Authenticate"] == "Api-Key"
    problem(Api("aaaaaaaaaa.bbb").get("/api/v1/echo/"), 401, "key_unknown")


def test_a_scope_implies_no_other(tenant: Any) -> None:
    reader = tenant.agent(scopes=frozenset({Scope.READ})).api
    writer = tenant.agent(scopes=frozenset({Scope.WRITE, Scope.ADMIN})).api
    assert reader.get("/api/v1/echo/").status_code == 200
    problem(reader.send("POST", "/api/v1/echo/", {}), 403, "scope_missing")
    problem(writer.get("/api/v1/echo/"), 403, "scope_missing")


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW"])
def test_a_method_that_is_not_served_is_named_as_such(client: Any, method: str) -> None:
    answer = client.send(method, "/api/v1/echo/", {})
    problem(answer, 405, "method_not_allowed")
    assert answer["Allow"] == "GET, HEAD, POST"


def test_head_is_get_without_the_body(client: Any) -> None:
    answer = client.head("/api/v1/echo/?subject=x")
    assert (answer.status_code, answer.content) == (200, b"")


def test_two_tenants_interleaved_on_one_connection_never_mix(agent: Any, other_tenant: Any) -> None:
    theirs = other_tenant.agent()
    pids = set()
    for _ in range(3):
        for each in (agent, theirs):
            assert each.api.get("/api/v1/echo/").json()["database"][1] == str(each.actor.tenant)
            pids.add(connection.connection.info.backend_pid)
    assert len(pids) == 1


# the query


def test_known_parameters_are_read(client: Any) -> None:
    found = client.get("/api/v1/echo/?subject=mi%C5%82a+x&at=").json()
    assert found["parameters"] == {"subject": "miła x", "at": ""}


@pytest.mark.parametrize(
    ("query", "code"),
    [
        (f"{SECRET}=1", "unknown_parameter"),
        ("format=xml", "unknown_parameter"),
        ("subject=a&subject=b", "repeated_parameter"),
        ("subject=%FF", "query_malformed"),
        ("&".join(f"a{n}=1" for n in range(60)), "query_malformed"),
    ],
)
def test_a_query_that_is_not_understood_is_refused_without_an_echo(client: Any, query: str, code: str) -> None:
    answer = client.get(f"/api/v1/echo/?{query}")
    problem(answer, 400, code)
    assert SECRET not in answer.content.decode() + str(answer.headers)


def test_a_post_takes_no_parameters(client: Any) -> None:
    problem(client.send("POST", "/api/v1/echo/?subject=a", {}), 400, "unknown_parameter")


# the body


def test_a_body_is_read_and_kept_as_it_came(client: Any) -> None:
    raw = '{ "a": [1, 2.5, true, null, "ł", 10000000000000000000000] }'
    found = client.send("POST", "/api/v1/echo/", raw, idempotency_key="k 1")
    assert found.status_code == 201
    assert found.json()["raw"] == len(raw.encode())
    assert found.json()["key"] == "k 1"


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b"{", "json_malformed"),
        (b"\xff\xfe{}", "json_malformed"),
        (b"\xef\xbb\xbf{}", "json_malformed"),
        (b"{}{}", "json_malformed"),
        (b"{'a': 1}", "json_malformed"),
        (b'{"a": NaN}', "json_malformed"),
        (b'{"a": -Infinity}', "json_malformed"),
        (b'{"a": 1e999}', "json_malformed"),
        (b'{"a": ' + b"9" * 1990 + b"}", ""),
        (b'{"a": "\\ud800"}', "json_malformed"),
        (b'{"\\udfff": 1}', "json_malformed"),
        (b'{"a": "\\ud83d\\ude00"}', ""),
        (b'{"a": 1, "a": 2}', "json_duplicate_key"),
        (b'{"b": [{"a": 1, "a": 1}]}', "json_duplicate_key"),
        (b"[]", "json_not_object"),
        (b'"x"', "json_not_object"),
        (b"null", "json_not_object"),
        (b'{"a":' * 40 + b"1" + b"}" * 40, "json_too_deep"),
        (b'{"a":' + b"[" * 900 + b"]" * 900 + b"}", "json_too_deep"),
        (b'{"a": [' + b"[]," * 200 + b"[]]}", ""),
    ],
)
def test_a_body_that_is_not_one_plain_json_object_is_refused(client: Any, raw: bytes, code: str) -> None:
    answer = client.send("POST", "/api/v1/echo/", raw)
    if code:
        problem(answer, 400, code)
    else:
        assert answer.status_code == 201


def test_a_very_deep_body_is_refused_rather_than_recursed_into(client: Any) -> None:
    from tenants.api.rendering import loads
    from tenants.errors import Malformed

    with pytest.raises(Malformed, match="json_too_deep"):
        loads(b'{"a":' + b"[" * 200_000 + b"]" * 200_000 + b"}")


def test_a_body_over_the_bound_is_refused_before_it_is_read(client: Any) -> None:
    problem(client.send("POST", "/api/v1/echo/", b'{"a": "' + b"x" * 2000 + b'"}'), 413, "body_too_large")


def test_a_body_without_its_length_is_refused(client: Any) -> None:
    answer = client.generic(
        "POST",
        "/api/v1/echo/",
        b"",
        content_type="application/json",
        CONTENT_LENGTH="",
        HTTP_TRANSFER_ENCODING="chunked",
    )
    problem(answer, 411, "length_required")


@pytest.mark.parametrize("length", ["-1", "abc", "1e3", "٣", "9" * 30])
def test_a_length_that_is_no_number_is_refused(client: Any, length: str) -> None:
    answer = client.generic("POST", "/api/v1/echo/", b"{}", content_type="application/json", CONTENT_LENGTH=length)
    problem(answer, 400, "content_length_malformed")


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""]
)
def test_a_body_of_another_type_is_refused(client: Any, kind: str) -> None:
    answer = client.generic("POST", "/api/v1/echo/", b'{"a": 1}', content_type=kind)
    problem(answer, 415, "content_type_not_json")


def test_a_compressed_body_is_refused(client: Any) -> None:
    answer = client.send("POST", "/api/v1/echo/", b'{"a": 1}', content_encoding="gzip")
    problem(answer, 415, "content_encoding_refused")


def test_json_is_served_whatever_is_asked_for(client: Any) -> None:
    answer = client.get("/api/v1/echo/", headers={"Accept": "text/html;q=1, application/xml"})
    assert answer["Content-Type"] == "application/json"


@pytest.mark.parametrize("key", ["", "x" * 201, "a\tb", "é", "a\x7f"])
def test_an_idempotency_key_is_short_printable_ascii(client: Any, key: str) -> None:
    problem(client.send("POST", "/api/v1/echo/", {}, idempotency_key=key), 400, "idempotency_key_malformed")


# ids in paths


SOME_ID = UUID("0192f3a4-5b6c-7d8e-9fa0-b1c2d3e4f506")


@pytest.mark.parametrize(
    "text", ["x", "1", str(SOME_ID)[:-1], f"{{{SOME_ID}}}", SOME_ID.hex, f"urn:uuid:{SOME_ID}", "%00"]
)
def test_a_malformed_id_looks_like_a_missing_row(client: Any, text: str) -> None:
    problem(client.get(f"/api/v1/finds/{text}/"), 404, "not_found")


def test_instants_are_written_in_utc_with_z(client: Any) -> None:
    found = client.get(f"/api/v1/finds/{uuid4()}/").content
    assert b'"at":"2026-06-01T09:00:00Z"' in found
    from tenants.jsontext import dumps

    assert dumps(datetime(2026, 6, 1, 9, 0, 0, 20, tzinfo=UTC)) == b'"2026-06-01T09:00:00.000020Z"'


# what stays


def test_an_answer_below_400_commits(client: Any, tenant: Any) -> None:
    assert client.send("POST", "/api/v1/acts/created/", {}).status_code == 201
    assert reasons(tenant) == ["duplicate"]


@pytest.mark.parametrize(
    ("kind", "status", "code"),
    [
        ("problem", 422, "not_kept"),
        ("clash", 409, "in_progress"),
        ("crash", 500, "internal"),
        ("integrity", 500, "internal"),
        ("data", 500, "internal"),
        ("statement", 500, "internal"),
        ("operational", 503, "unavailable"),
        ("unrenderable", 500, "internal"),
    ],
)
def test_a_refusal_or_failure_leaves_nothing_and_says_nothing_of_what_was_sent(
    client: Any, tenant: Any, capfd: Any, kind: str, status: int, code: str
) -> None:
    answer = client.send("POST", f"/api/v1/acts/{kind}/", {})
    problem(answer, status, code)
    assert reasons(tenant) == []
    assert ("Retry-After" in answer) == (status == 503)
    captured = capfd.readouterr()
    assert SECRET not in answer.content.decode() + captured.out + captured.err


def test_a_status_of_400_or_more_rolls_back_although_nothing_was_raised(client: Any, tenant: Any) -> None:
    assert client.send("POST", "/api/v1/acts/status/", {}).status_code == 409
    assert reasons(tenant) == []


def test_errors_name_field_and_code(client: Any) -> None:
    found = problem(client.send("POST", "/api/v1/acts/problem/", {}), 422, "not_kept")
    assert found["errors"] == [{"path": "value", "code": "not_in_enum"}]


def test_a_refusal_to_be_recorded_commits_after_the_act_was_undone(client: Any, tenant: Any) -> None:
    assert client.send("POST", "/api/v1/acts/recorded/", {}).status_code == 422
    assert reasons(tenant) == ["other"]


def test_a_refusal_that_cannot_be_recorded_is_not_told_as_done(client: Any, tenant: Any) -> None:
    problem(client.send("POST", "/api/v1/acts/unrecorded/", {}), 503, "unavailable")
    assert reasons(tenant) == []


def test_a_refused_read_keeps_the_prepared_statements_of_the_connection(client: Any) -> None:
    client.get("/api/v1/echo/")
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_prepared_statements")
        before = cursor.fetchone()[0]
        client.get("/api/v1/finds/x/")
        cursor.execute("SELECT count(*) FROM pg_prepared_statements")
        assert cursor.fetchone()[0] >= before > 0


def test_a_lost_connection_is_said_to_pass_and_the_next_request_is_served(
    client: Any, superuser: Any, monkeypatch: Any
) -> None:
    from tests.paths import endpoints

    def lost(self: Any, request: Any) -> Any:
        superuser.execute("SELECT pg_terminate_backend(%s)", [connection.connection.info.backend_pid])
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
            cursor.fetchone()

    with monkeypatch.context() as patched:
        patched.setattr(endpoints.Echo, "get", lost)
        problem(client.get("/api/v1/echo/"), 503, "unavailable")
    assert client.get("/api/v1/echo/").status_code == 200


def test_without_a_database_the_api_the_pages_and_readiness_say_so_and_health_does_not_ask(
    client: Any, monkeypatch: Any
) -> None:
    with monkeypatch.context() as patched:
        connection.close()
        patched.setitem(connection.settings_dict, "HOST", "/nonexistent")
        answer = client.get("/api/v1/echo/")
        problem(answer, 503, "unavailable")
        assert answer["Retry-After"] == "1"
        assert client.get("/admin/login/").status_code == 503
        assert client.get("/readyz").status_code == 503
        assert client.get("/readyz").json()["checks"]["database"] is False
        assert client.get("/healthz").status_code == 200
        assert client.get("/metrics").status_code == 200
    assert client.get("/api/v1/echo/").status_code == 200


# unknown paths and failures outside the API


@pytest.mark.parametrize(
    "path", [f"/{SECRET}", f"/api/v1/{SECRET}/", f"/api/v2/?{SECRET}", "/api/v1/echo", "/%00", "/%FF"]
)
def test_an_unknown_path_is_a_problem_that_does_not_repeat_it(client: Any, path: str) -> None:
    answer = client.get(path)
    problem(answer, 404, "not_found")
    assert SECRET not in answer.content.decode() + str(answer.headers)


def test_a_crash_outside_the_frame_is_a_problem_too(client: Any, capfd: Any) -> None:
    problem(client.get("/api/v1/crashes/"), 500, "internal")
    page = client.get("/admin/crashes/")
    assert (page.status_code, page["Content-Type"]) == (500, "text/html; charset=utf-8")
    captured = capfd.readouterr()
    assert SECRET not in page.content.decode() + captured.out + captured.err


def test_a_form_from_elsewhere_is_refused_as_a_page(database: Any) -> None:
    from django.test import Client

    answer = Client(enforce_csrf_checks=True).post("/admin/login/", {"username": SECRET, "password": SECRET})
    assert answer.status_code == 403
    assert SECRET not in answer.content.decode()


# what is said of it


def test_every_answer_names_its_request_and_may_be_kept_nowhere(client: Any) -> None:
    answers = [client.get(path) for path in ("/api/v1/echo/", "/healthz", "/nowhere", "/admin/login/")]
    ids = {UUID(answer.headers["X-Request-Id"]) for answer in answers}
    assert len(ids) == 4
    assert {found.version for found in ids} == {7}
    assert all("no-store" in answer.headers["Cache-Control"] for answer in answers)
    assert all(answer.headers["X-Content-Type-Options"] == "nosniff" for answer in answers)
    assert all("frame-ancestors 'none'" in answer.headers["Content-Security-Policy"] for answer in answers)


def test_the_log_names_routes_and_codes_and_never_what_was_sent(client: Any) -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.getLogger().handlers[0].formatter if logging.getLogger().handlers else None)
    from logging import root

    ours = next(each for each in root.handlers if type(each.formatter).__name__ == "ProcessorFormatter")
    handler.setFormatter(ours.formatter)
    logger = logging.getLogger("muniment.request")
    logger.addHandler(handler)
    try:
        client.get(f"/api/v1/finds/{SECRET}/?{SECRET}={SECRET}")
        client.generic(SECRET.replace("-", ""), "/api/v1/echo/", headers={"User-Agent": SECRET})
        client.get(f"/{SECRET}")
    finally:
        logger.removeHandler(handler)
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [(line["route"], line["method"], line["status"], line["code"]) for line in lines] == [
        ("api/v1/finds/<str:identity>/", "GET", 400, "unknown_parameter"),
        ("api/v1/echo/", "OTHER", 405, "method_not_allowed"),
        ("unmatched", "GET", 404, "not_found"),
    ]
    assert all(re.fullmatch(r"[0-9a-f-]{36}", line["request_id"]) for line in lines)
    assert SECRET not in stream.getvalue()


def test_an_api_request_touches_no_session(client: Any, agent: Any) -> None:
    answer = client.get("/api/v1/echo/")
    assert not answer.cookies
    assert "Vary" not in answer.headers
