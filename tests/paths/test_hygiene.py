"""What agents say stands in payloads and in answers to those who may see it, and nowhere else.

Every field that takes text is sent a canary, by requests that are carried out and by requests that are refused. Then the
canaries are searched for: in every column of every table, history and queue included, in the server's log, our own log,
exceptions, answers, headers, and what rows print of themselves. A second pass asks a real web server and a real worker.
"""

import copy
import http.client
import io
import json
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode
from uuid import uuid4

import psycopg
import pytest
from django.apps import apps
from django.contrib.sessions.backends.db import SessionStore
from django.db import connection
from django.test import Client
from django.urls import get_resolver
from psycopg import sql
from rest_framework.views import APIView

from memory import outbox, receipts
from tenants.actors import MemberRole
from tenants.isolation import Role, tenant_transaction
from tests.paths.ledger import publish

ROOT = Path(__file__).resolve().parent.parent.parent

#: Said under a class that is stored in clear, under one that is sealed, and a subject's name, which always is.
CLEAR, SEALED, NAME = "qzclearcanary", "qzsealedcanary", "qznamecanary"
#: An id that an agent or an organisation chose: pseudonymous, it stands in its own columns.
CHOSEN = "qzchosencanary"
#: Whatever is refused, and every header.
REFUSED, HEADER = "qzrefusedcanary", "qzheadercanary"
#: A password that an agent sends where it should not: it is kept nowhere, sealed or not.
SECRET = "qzsecretcanary"
ANY = re.compile(r"qz(clear|sealed|name|chosen|refused|header|secret)canary", re.IGNORECASE)

#: Where an id that somebody chose may stand.
CHOSEN_COLUMNS = {
    ("memory_episode", "session_id"),
    ("memory_episode", "turn_id"),
    ("memory_episode", "tool_call_id"),
    ("memory_evidence", "turn_id"),
    ("memory_evidence", "session_id"),
    ("memory_evidence", "contract_ref"),
    ("memory_candidatesaying", "contract_ref"),
    ("memory_episode", "contract_ref"),
    ("memory_candidatesaying", "session_id"),
    ("memory_evidence", "tool_call_id"),
    ("memory_candidatesaying", "turn_id"),
    ("memory_candidatesaying", "tool_call_id"),
    ("policies_consent", "ref"),
    ("memory_procedureversion", "test_reference"),
    ("memory_historicalprocedureversion", "test_reference"),
    ("memory_term", "ref"),
    ("retention_holdscope", "session_id"),
    ("retention_matter", "reference"),
    ("retention_noticeendpoint", "url"),
    ("retention_historicalmatter", "reference"),
    ("retention_subjectrequest", "reference"),
}


@dataclass
class Answer:
    """What came back, as the sender sees it."""

    status: int
    text: str
    headers: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)


Send = Callable[[str, str, Any, dict[str, str]], Answer]


@dataclass
class Correspondence:
    """Everything that was sent, and what every answer was."""

    send: Send
    key: str
    answers: list[tuple[str, str, str, Answer]] = field(default_factory=list)

    def ask(self, method: str, path: str, body: Any = None, kind: str = "valid", **headers: str) -> Answer:
        named = {"Authorization": f"Api-Key {self.key}", "User-Agent": HEADER, "X-Request-Id": HEADER, "Referer": HEADER,
                 "Accept-Language": HEADER, **{name.replace("_", "-"): value for name, value in headers.items()}}  # fmt: skip
        answer = self.send(method, path, body, named)
        self.answers.append((kind, method, path, answer))
        return answer


def in_process() -> Send:
    client = Client(raise_request_exception=False)

    def send(method: str, path: str, body: Any, headers: dict[str, str]) -> Answer:
        raw = body if isinstance(body, bytes | str) else b"" if body is None else json.dumps(body)
        content_type = headers.pop("Content-Type", "application/json")
        response = client.generic(method, path, raw, content_type=content_type, headers=headers)
        return Answer(response.status_code, response.content.decode("utf-8", "replace"), repr(response.headers.items()))

    return send


def over_http(port: int) -> Send:
    def send(method: str, path: str, body: Any, headers: dict[str, str]) -> Answer:
        raw = (
            body
            if isinstance(body, bytes)
            else body.encode()
            if isinstance(body, str)
            else b""
            if body is None
            else json.dumps(body).encode()
        )
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        try:
            connection.request(method, path, raw, {"Content-Type": "application/json", **headers})
            response = connection.getresponse()
            return Answer(response.status, response.read().decode("utf-8", "replace"), repr(response.getheaders()))
        finally:
            connection.close()

    return send


# what is sent ---------------------------------------------------------------------------------------------------------


def chosen() -> str:
    """A new id that carries the canary."""
    return f"{CHOSEN}-{uuid4().hex[:12].translate(str.maketrans('0123456789', 'ghijklmnop'))}"


def fact(attribute: str, value: Any, subject: str, **more: Any) -> dict[str, Any]:
    provenance = {"turn_id": chosen(), "tool_call_id": chosen(), **more.pop("provenance", {})}
    return {"subject": subject, "attribute": attribute, "value": value, "provenance": provenance, **more}


def valid_bodies(ids: dict[str, str]) -> list[tuple[str, str, dict[str, Any]]]:
    """Requests that are carried out, with a canary in every text."""
    subject = f"{NAME} {uuid4().hex}"
    quoted = {"turn_id": chosen(), "source_episode": ids.get("episode", str(uuid4())), "quote": f"the {CLEAR} text"}
    bodies: list[tuple[str, str, dict[str, Any]]] = [
        ("PUT", "subjects/", {"key": subject, "kind": "person", "aliases": [f"{subject} alias"]}),
        ("POST", "consents/", {"subject": subject, "ref": chosen(), "purposes": ["support"]}),
        ("POST", "episodes/", {"kind": "message", "role": "user", "content": f"the {CLEAR} text", "session_id": chosen(),
                               "turn_id": chosen(), "tool_call_id": chosen(), "subject": subject, "sensitivity": "internal",
                               "occurred_at": "2026-01-05T09:00:00Z"}),
        ("POST", "episodes/", {"kind": "event", "content": {"field": [f"{SEALED} text"]}, "session_id": chosen(), "turn_id": chosen(),
                               "subject": subject, "occurred_at": "2026-01-05T09:00:00Z"}),
        ("POST", "episodes/", {"kind": "message", "content": f"the password is {SECRET}-9!x, and {CLEAR}", "session_id": chosen(),
                               "turn_id": chosen(), "subject": subject, "sensitivity": "internal",
                               "occurred_at": "2026-01-05T09:00:00Z"}),
        ("POST", "facts/", fact("city", f"{CLEAR} city", subject, valid_from="2026-01-05T09:00:00Z", confidence=0.9)),
        ("POST", "facts/", fact("diagnosis", f"{SEALED} diagnosis", subject, retention={"basis": "contract"})),
        ("POST", "facts/", fact("iban", f"{SEALED} iban", subject)),
        ("POST", "facts/", fact("mood", f"{SEALED} mood", subject, confidence=0.1)),
        ("POST", "facts/batch/", {"items": [fact("tag", f"{CLEAR} item", subject), fact("diagnosis", f"{SEALED} item", subject)]}),
        ("POST", "recall/", {"question": f"which {CLEAR} city, and what of {SEALED}?", "subject": subject, "purpose": "support",
                             "budget_tokens": 500}),
        ("POST", "procedures/refunds/versions/", {"body": f"{SEALED} first", "scope": "tenant", "sensitivity": "internal",
                                                  "test": {"kind": "test", "reference": chosen(), "result": "passed"}}),
        ("POST", "policies/explain/", {"fact": fact("diagnosis", f"{SEALED} explained", subject)}),
    ]  # fmt: skip
    if "episode" in ids:
        bodies.append(("POST", "facts/", fact("tag", f"{CLEAR} tag", subject, provenance=quoted)))
    return bodies


def reads(ids: dict[str, str], subject: str) -> list[str]:
    """Paths that show what was said to somebody who may see it."""
    named = urlencode({"subject": subject})
    return [
        "whoami/", "attributes/", "facts/", f"facts/?{named}", f"facts/?{named}&attribute=city", f"profile/?{named}", f"profile/text/?{named}",
        "candidates/", "procedures/", "procedures/refunds/versions/",
        f"facts/?{urlencode({'subject': f'{NAME} nobody'})}",
        *(f"facts/{ids['fact']}/{tail}" for tail in ("", "history/", "lineage/")),
        f"episodes/{ids['episode']}/", f"candidates/{ids['candidate']}/",
    ]  # fmt: skip


def leaves(body: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a body where something could be put instead."""
    if path:
        yield path
    if isinstance(body, dict | list):
        for name, inner in body.items() if isinstance(body, dict) else enumerate(body):
            yield from leaves(inner, (*path, name))


def put(body: Any, path: tuple[Any, ...], value: Any) -> Any:
    made = copy.deepcopy(body)
    target = made
    for step in path[:-1]:
        target = target[step]
    target[path[-1]] = value
    return made


#: What no field takes: a text with a NUL in it, one that is too long for all but an episode, other types.
BAD = [
    f"{REFUSED}\x00",
    f"{REFUSED} " * 3000,
    [REFUSED, {REFUSED: REFUSED}],
    {REFUSED: {"x": REFUSED}},
    f"{REFUSED}\ud800",
]


def invalid(method: str, path: str, body: dict[str, Any]) -> Iterator[tuple[str, str, Any, dict[str, str]]]:
    """Requests like a valid one, each with the canary where it cannot be taken."""
    for place in leaves(body):
        for bad in BAD:
            # An episode takes long texts and any JSON as its content; a fact's value is for its schema to judge.
            if "content" in place and (not isinstance(bad, str) or len(bad) > 100):
                continue
            if place == ("body",) and isinstance(bad, str) and len(bad) > 100:
                continue  # so does a procedure
            yield method, path, put(body, place, bad), {}
        if isinstance(place[-1], str):
            inner = put(body, (*place[:-1], REFUSED), REFUSED)
            if "content" not in place:
                yield method, path, inner, {}
    yield method, path, {**body, REFUSED: REFUSED}, {}
    yield method, path, {REFUSED: REFUSED}, {}
    yield method, path, f'{{"x": "{REFUSED}"', {}
    yield method, path, f'{{"{REFUSED}": 1, "{REFUSED}": 2}}', {}
    yield method, path, f'["{REFUSED}"]', {}
    yield method, path, f'{{"x": NaN, "y": "{REFUSED}"}}', {}
    yield method, path, b'{"x": "' + REFUSED.encode() + b'\xff"}', {}
    yield method, path, body, {"Content-Type": f"text/{REFUSED}"}
    yield method, path, body, {"Content-Encoding": REFUSED}
    yield method, path, body, {"Idempotency-Key": f"{HEADER}\x7f"}
    yield method, path, body, {"Authorization": f"Api-Key {HEADER}.{HEADER}"}
    yield method, path, body, {"Authorization": f"Bearer {HEADER}"}
    yield method, f"{path}?{REFUSED}={REFUSED}", body, {}
    yield "PATCH", path, {REFUSED: REFUSED}, {}


def refused_reads() -> Iterator[tuple[str, str]]:
    """Reads that cannot be answered: a canary in each parameter, in the path, as a parameter's name."""
    bad = quote(f"{REFUSED}\x00")
    for path in (
        "facts/",
        "profile/",
        "profile/text/",
        "candidates/",
        "attributes/",
        "whoami/",
        f"facts/{uuid4()}/history/",
        "procedures/",
        "procedures/refunds/active/",
    ):
        for name in ("subject", "attribute", "kind", "valid_at", "known_at", "cursor", "limit", "state", "scope"):
            yield "GET", f"{path}?{name}={bad}"
        yield "GET", f"{path}?{REFUSED}=1"
        yield "GET", f"{path}?subject={REFUSED}&subject={REFUSED}"
        yield "GET", f"{path}?subject=%ff{REFUSED}"
    for path in (
        "facts/{}/",
        "facts/{}/history/",
        "facts/{}/lineage/",
        "episodes/{}/",
        "candidates/{}/",
        "procedures/{}/active/",
        "procedures/{}/versions/",
        "{}/",
        "facts/{}",
    ):
        yield "GET", path.format(REFUSED)
    for path in ("facts/{}/retract/", "evidence/{}/retract/", "consents/{}/withdraw/"):
        yield "POST", path.format(REFUSED)
    # Taken as a name that nobody has: an empty answer, and no trace.
    yield "GET", f"facts/?subject={REFUSED}"
    yield "GET", f"profile/?subject={REFUSED}"
    yield "GET", f"facts/?attribute={REFUSED}"


#: What ends memory, and keeps it from ending, by the routes that `end` asks.
ENDINGS = (
    *("matters/", "matters/<str:id>/close/", "holds/", "holds/<str:id>/release/", "facts/<str:id>/shorten/"),
    *("redactions/", "redactions/<str:id>/apply/", "redactions/<str:id>/withdraw/", "subject-requests/", "erasures/"),
    "restrictions/",
    *("notice-endpoints/", "sessions/<path:id>/close/", "contracts/<path:ref>/end/"),
)


def end(mail: Correspondence, ids: dict[str, str]) -> None:
    """Ask for every ending, with a canary in every text, and the same where it cannot be taken."""
    subject = f"{NAME} {uuid4().hex}"
    sent: list[tuple[str, dict[str, Any]]] = []

    def asked(path: str, body: dict[str, Any], *, refused: bool = False) -> Any:
        answer = mail.ask("POST", f"/api/v1/{path}", body, "refused" if refused else "valid")
        assert (answer.status >= 400) is refused, (path, answer.status, answer.text)
        sent.append((path, body))
        return answer.json

    def said() -> str:
        told: str = asked("facts/", fact("diagnosis", f"{SEALED} diagnosis", subject))["fact"]["id"]
        return told

    soon = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    asked(f"facts/{said()}/shorten/", {"expires_at": soon, "reason": "other"})
    matter = asked("matters/", {"reference": chosen(), "reason": "audit"})["id"]
    hold = asked("holds/", {"matter": matter, "scopes": [{"session_id": chosen()}, {"subject": subject}]})["id"]
    asked(f"holds/{hold}/release/", {})
    asked(f"matters/{matter}/close/", {}, refused=True)
    proposal = asked("redactions/", {"items": [{"kind": "fact", "id": said()}], "reason": "other"})["id"]
    asked(f"redactions/{proposal}/apply/", {})
    asked(f"redactions/{proposal}/withdraw/", {})
    asked("subject-requests/", {"kind": "access", "subject": subject, "reference": chosen()})
    asked("erasures/", {"subject": subject, "reason": "law"})
    asked("restrictions/", {"fact": said(), "ground": "other"})
    asked("notice-endpoints/", {"url": f"https://agent.invalid/{chosen()}"})
    session, contract = chosen(), chosen()
    for basis, source in (("session", {"session_id": session}), ("contract", {"contract_ref": contract})):
        asked(
            "facts/",
            fact("diagnosis", f"{SEALED} {basis}", subject, provenance=source, retention={"basis": basis}),
        )
    asked(f"sessions/{session}/close/", {"subject": subject})
    asked(f"contracts/{contract}/end/", {})
    for path, body in sent:
        for attempt in invalid("POST", path, body):
            mail.ask(attempt[0], f"/api/v1/{attempt[1]}", attempt[2], "refused", **attempt[3])


def correspond(mail: Correspondence) -> None:
    """Send everything, valid and invalid."""
    ids: dict[str, str] = {}
    subject = ""
    for number in range(2):
        for method, path, body in valid_bodies(ids):
            headers = {"Idempotency_Key": f"{HEADER}-{uuid4().hex}"}
            for _ in range(2 if number else 1):
                answer = mail.ask(method, f"/api/v1/{path}", body, **headers)
                assert answer.status < 300, (path, answer.status, answer.text)
            told = answer.json
            if path == "episodes/" and body.get("role") == "user":
                ids["episode"] = told["id"]
            if path == "facts/" and answer.status < 202:
                ids["fact"], ids["evidence"] = told["fact"]["id"], told["evidence"]
            if "candidate" in told:
                ids["candidate"] = told["candidate"]
            if path == "consents/":
                ids["consent"] = body["ref"]
            subject = body.get("subject", subject) if path != "policies/explain/" else subject
    for path in reads(ids, subject):
        assert mail.ask("GET", f"/api/v1/{path}").status == 200, path
    for method, path, body in valid_bodies(ids):
        for attempt in invalid(method, path, body):
            mail.ask(attempt[0], f"/api/v1/{attempt[1]}", attempt[2], "refused", **attempt[3])
    # The key is known, the body is another: refused too.
    for method, path, body in valid_bodies(ids)[5:6]:
        reused = f"{HEADER}-{uuid4().hex}"
        assert mail.ask(method, f"/api/v1/{path}", body, Idempotency_Key=reused).status < 300
        clash = {**body, "value": f"{REFUSED} city"}
        assert mail.ask(method, f"/api/v1/{path}", clash, "refused", Idempotency_Key=reused).status == 409
        unknown = {**body, "attribute": REFUSED}
        assert mail.ask(method, f"/api/v1/{path}", unknown, "refused").status == 422
        sourceless = {**body, "provenance": {"turn_id": chosen(), "source_episode": str(uuid4()), "quote": REFUSED}}
        assert mail.ask(method, f"/api/v1/{path}", sourceless, "refused").status >= 400
        misquoted = {**body, "provenance": {"turn_id": chosen(), "source_episode": ids["episode"], "quote": REFUSED}}
        assert mail.ask(method, f"/api/v1/{path}", misquoted, "refused").status == 422
        secret = {**body, "value": f"the password is {SECRET}-9!x"}
        assert mail.ask(method, f"/api/v1/{path}", secret, "refused").status == 422
        mistaken = {**body, "attribute": "likes", "value": REFUSED}
        assert mail.ask(method, f"/api/v1/{path}", mistaken, "refused").status == 422
        consentless = {
            **body,
            "retention": {"basis": "consent"},
            "provenance": {"turn_id": chosen(), "consent_ref": REFUSED},
        }
        assert mail.ask(method, f"/api/v1/{path}", consentless, "refused").status == 422
    end(mail, ids)
    mail.ask("POST", f"/api/v1/episodes/{ids['episode']}/extract/", {})
    mail.ask("POST", f"/api/v1/facts/{ids['fact']}/retract/", {"reason": REFUSED}, "refused")
    for path in (f"facts/{ids['fact']}/retract/", f"evidence/{uuid4()}/retract/"):
        mail.ask("POST", f"/api/v1/{path}", {"reason": "other"}, "valid")
    mail.ask("POST", f"/api/v1/consents/{ids['consent']}/withdraw/", {})
    for method, path in refused_reads():
        mail.ask(method, f"/api/v1/{path}", {} if method == "POST" else None, "refused")
    for path in ("healthz", "readyz", "metrics", "nowhere/", f"{REFUSED}/"):
        mail.ask("GET", f"/{path}?{REFUSED}={REFUSED}", None, "refused")


def test_every_endpoint_that_takes_a_body_is_asked() -> None:
    asked = {f"api/v1/{path}".replace("procedures/refunds", "procedures/<str:name>") for _, path, _ in valid_bodies({})}
    asked |= {
        f"api/v1/{path}"
        for path in (
            "episodes/<str:id>/extract/",
            "facts/<str:id>/retract/",
            "evidence/<str:id>/retract/",
            "consents/<path:ref>/withdraw/",
        )
    }
    taking = set()
    for prefix in get_resolver().url_patterns:
        for pattern in getattr(prefix, "url_patterns", []):
            view = getattr(pattern.callback, "cls", None)
            if view is not None and {"POST", "PUT", "PATCH", "DELETE"} & set(getattr(view, "scope", {})):
                taking.add(f"{prefix.pattern}{pattern.pattern}")
    assert taking
    asked |= {f"api/v1/{path}" for path in ENDINGS}
    assert taking - asked == set()


# where it is searched for ---------------------------------------------------------------------------------------------


def columns_with(session: psycopg.Connection[Any], marker: str) -> set[tuple[str, str]]:
    """Every column, of every table of ours and of the queue, in which `marker` stands, as text, bytes, JSON or array."""
    found = set()
    for schema, table, column, kind in session.execute(
        "SELECT table_schema::text, table_name::text, column_name::text, data_type::text FROM information_schema.columns"
        " WHERE table_schema IN ('public', 'pgmq') AND data_type IN ('text', 'character varying', 'character', 'bytea', 'json',"
        " 'jsonb', 'ARRAY', 'name', 'xml', 'tsvector', 'USER-DEFINED')"
    ).fetchall():
        where, name = sql.Identifier(schema, table), sql.Identifier(column)
        if kind == "bytea":
            test = sql.SQL("position({needle}::bytea in {name}) > 0").format(
                needle=sql.Literal(marker.encode()), name=name
            )
        else:
            test = sql.SQL("{name}::text ILIKE {needle}").format(needle=sql.Literal(f"%{marker}%"), name=name)
        if session.execute(sql.SQL("SELECT EXISTS (SELECT FROM {} WHERE {})").format(where, test)).fetchone() == (
            True,
        ):
            found.add((table, column))
    return found


def statistics_with(session: psycopg.Connection[Any], marker: str) -> list[Any]:
    """Samples of columns that the planner keeps."""
    session.execute("ANALYZE memory_payload")
    return session.execute(
        "SELECT tablename, attname FROM pg_stats WHERE schemaname = 'public'"
        " AND (most_common_vals::text ILIKE %(it)s OR histogram_bounds::text ILIKE %(it)s)",
        {"it": f"%{marker}%"},
    ).fetchall()


def assert_nothing_strayed(session: psycopg.Connection[Any]) -> None:
    """Fail where a canary stands in the database and should not."""
    assert columns_with(session, CLEAR) == {("memory_payload", "clear")}
    open_classes = session.execute(
        "SELECT max(sensitivity) FROM memory_payload WHERE clear ILIKE %s", [f"%{CLEAR}%"]
    ).fetchone()
    assert open_classes is not None
    assert open_classes[0] <= 1
    for marker in (SEALED, NAME, REFUSED, HEADER, SECRET):
        assert columns_with(session, marker) == set(), marker
    assert columns_with(session, CHOSEN) <= CHOSEN_COLUMNS
    assert {("memory_evidence", "turn_id"), ("policies_consent", "ref")} <= columns_with(session, CHOSEN)
    for marker in (CLEAR, SEALED, NAME, REFUSED, HEADER, CHOSEN):
        assert set(statistics_with(session, marker)) <= (CHOSEN_COLUMNS if marker == CHOSEN else set()), marker
    for (data,) in session.execute("SELECT session_data FROM django_session").fetchall():
        assert not ANY.search(repr(SessionStore().decode(data)))


def assert_answers_are_clean(mail: Correspondence) -> None:
    """Fail where an answer shows what its reader may not see, or an error repeats anything at all."""
    assert len(mail.answers) > 500
    for kind, method, path, answer in mail.answers:
        where = (kind, method, path, answer.status)
        assert not ANY.search(answer.headers), where
        assert answer.status < 500, (*where, answer.text)
        if answer.status >= 400:
            assert not ANY.search(answer.text), where
        else:
            assert not re.search(f"{REFUSED}|{HEADER}|{SECRET}", answer.text), where
        if path.startswith("/metrics"):
            assert not ANY.search(answer.text), where
        if kind == "refused":
            # A batch answers each item on its own, a verdict is an answer. Naming a subject heeds no idempotency key, and nor does
            # an address, whose secret is shown once.
            answers_anyway = path.endswith(("/batch/", "/subjects/", "/explain/", "/recall/", "/notice-endpoints/"))
            assert answer.status >= 300 or method == "GET" or answers_anyway, where


def assert_no_secret_is_sealed(tenant: Any) -> None:
    """Fail where what is sealed holds a password: replaced means gone, also for whoever has the keys."""
    from memory.subjects import payload_context
    from tenants.secrets import keyring

    with tenant_transaction(Role.WRITER, tenant=tenant), connection.cursor() as cursor:
        cursor.execute(
            "SELECT p.id, p.purpose, p.sealed, k.wrapped, k.version FROM memory_payload p"
            " JOIN tenants_subjectkey k ON k.tenant_id = p.tenant_id AND k.id = p.key_id WHERE p.tenant_id = %s",
            [tenant],
        )
        rows = cursor.fetchall()
    assert len(rows) > 10
    for payload, purpose, sealed, wrapped, version in rows:
        key = keyring().unwrap(tenant, bytes(wrapped), version)
        assert SECRET.encode() not in keyring().open(key, bytes(sealed), payload_context(tenant, payload, purpose))


def assert_rows_print_nothing(tenant: Any) -> None:
    """Fail where a row shows more of itself than its type and its id."""
    for model in apps.get_models():
        if model._meta.app_label != "memory":
            continue
        workers = ("Receipt", "OutboxEntry", "ModelBudget", "ModelSpending")
        role = Role.WORKER if model.__name__ in workers else Role.WRITER
        if model.__name__.startswith(("Historical", "Procedure")):
            role = Role.STAFF
        with tenant_transaction(role, tenant=tenant):
            for row in model._default_manager.all()[:200]:
                assert not ANY.search(f"{row}{row!r}")


@pytest.fixture
def overheard(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[io.StringIO, list[str]]]:
    """Our log at its most talkative, in the form that it has in production, and every exception that a view met."""
    stream, met = io.StringIO(), list[str]()
    ours = next(each for each in logging.getLogger().handlers if type(each.formatter).__name__ == "ProcessorFormatter")
    handler = logging.StreamHandler(stream)
    handler.setFormatter(ours.formatter)
    talkative = [
        logging.getLogger(name)
        for name in ("", "django", "django.request", "django.db.backends", "muniment", "celery", "psycopg")
    ]
    levels = [each.level for each in talkative]
    # Never as talkative as this in production: it would print whole pages' contexts.
    logging.getLogger("django.template").setLevel(logging.INFO)
    for logger in talkative:
        logger.setLevel(logging.DEBUG)
    # The runner's own handlers would print every argument, and of a query set fetch the rows.
    root = logging.getLogger()
    others, root.handlers = root.handlers, [handler]
    handle = APIView.handle_exception

    def note(self: APIView, error: Exception) -> Any:
        met.append("".join(traceback.format_exception(error)) + repr(error) + repr(error.args) + str(vars(error)))
        return handle(self, error)

    monkeypatch.setattr(APIView, "handle_exception", note)
    yield stream, met
    root.handlers = others
    for logger, level in zip(talkative, levels, strict=True):
        logger.setLevel(level)


def server_log() -> str:
    log = Path(os.environ["MUNIMENT_HOME"]) / "log" / "postgres.log"
    return log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""


def test_c114_a_canary_in_every_field_is_found_in_payloads_and_rightful_answers_only(
    tenant: Any, superuser: Any, overheard: tuple[io.StringIO, list[str]]
) -> None:
    publish(tenant)
    mail = Correspondence(in_process(), tenant.agent("writer").key)
    correspond(mail)
    outbox.drain(seconds=30)
    with tenant_transaction(Role.WORKER, tenant=tenant.id):
        receipts.seal(tenant.id)
    stream, met = overheard
    assert_answers_are_clean(mail)
    assert_nothing_strayed(superuser)
    assert len(met) > 300
    assert [text for text in met if ANY.search(text)] == []
    log = stream.getvalue()
    assert log.count("\n") > 500
    assert [line for line in log.splitlines() if ANY.search(line)] == []
    assert not ANY.search(server_log())
    assert_rows_print_nothing(tenant.id)
    assert_no_secret_is_sealed(tenant.id)


def test_what_people_type_into_the_admin_leaves_no_trace(
    tenant: Any, superuser: Any, overheard: tuple[io.StringIO, list[str]]
) -> None:
    stream, _ = overheard
    person = tenant.person(MemberRole.AUDITOR)
    stranger = Client(raise_request_exception=False)
    for name, password in ((REFUSED, REFUSED), (person.username, REFUSED), (f"{REFUSED}\x00", REFUSED)):
        answer = stranger.post(
            "/admin/login/", {"username": name, "password": password}, headers={"User-Agent": HEADER}
        )
        assert answer.status_code < 500
        # The form shows the name again to whoever typed it; the password never.
        assert answer.content.decode().count(REFUSED) <= (1 if name != person.username else 0)
    client = person.signed_in()
    for path in (
        "tenants/agent/",
        "tenants/membership/",
        "tenants/auditevent/",
        f"tenants/agent/{REFUSED}/change/",
        "tenant/",
    ):
        for query in (
            f"?{REFUSED}={REFUSED}",
            f"?name__startswith={REFUSED}",
            f"?q={REFUSED}",
            f"?o={REFUSED}",
            f"?e={REFUSED}",
        ):
            assert client.get(f"/admin/{path}{query}", headers={"User-Agent": HEADER}).status_code < 500
            assert (
                client.post(f"/admin/{path}{query}", {REFUSED: REFUSED}, headers={"User-Agent": HEADER}).status_code
                < 500
            )
    for marker in (REFUSED, HEADER):
        assert columns_with(superuser, marker) == set()
    for (data,) in superuser.execute("SELECT session_data FROM django_session").fetchall():
        assert not ANY.search(repr(SessionStore().decode(data)))
    assert [line for line in stream.getvalue().splitlines() if ANY.search(line)] == []
    assert not ANY.search(server_log())


def test_an_error_of_the_database_tells_nothing_of_the_row(
    tenant: Any, superuser: Any, overheard: tuple[io.StringIO, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A constraint that refuses a row which holds content: neither log nor answer quotes it."""
    from memory import rows

    publish(tenant)
    stream, met = overheard
    parameters = rows.parameters

    def spoil(sets: Any) -> dict[str, str]:
        return parameters(
            (table, [row._replace(purpose="no_such_purpose") for row in given] if table is rows.PAYLOADS else given)
            for table, given in sets
        )

    monkeypatch.setattr(rows, "parameters", spoil)
    mail = Correspondence(in_process(), tenant.agent("writer").key)
    answer = mail.ask("POST", "/api/v1/facts/", fact("city", f"{REFUSED} city", f"{REFUSED} subject"))
    assert answer.status == 500
    assert not ANY.search(answer.text + answer.headers)
    assert [line for line in stream.getvalue().splitlines() if ANY.search(line)] == []
    assert not ANY.search(server_log())
    assert columns_with(superuser, REFUSED) == set()
    assert met


# a real server and a real worker --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_real_web_server_and_a_real_worker_say_no_more(tenant: Any, superuser: Any, tmp_path: Path) -> None:
    publish(tenant)
    key = tenant.agent("writer").key
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "MUNIMENT_LOG_LEVEL": "DEBUG"}
    commands = {
        "web": ["gunicorn", "--config", "python:config.gunicorn", "--bind", f"127.0.0.1:{port}", "config.wsgi"],
        "worker": [
            "celery",
            "--quiet",
            "-A",
            "config",
            "worker",
            "--concurrency=1",
            "--loglevel=DEBUG",
            "-Q",
            f"hygiene_{uuid4().hex[:8]}",
        ],
    }
    started = []
    try:
        for name, arguments in commands.items():
            with open(tmp_path / f"{name}.log", "wb") as output:
                started.append(
                    subprocess.Popen(
                        [sys.executable, "-W", "ignore", "-m", *arguments], cwd=ROOT, env=environment,
                        stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
                    )
                )  # fmt: skip
        wait_for(port, tmp_path / "web.log")
        mail = Correspondence(over_http(port), key)
        correspond(mail)
    finally:
        for process in started:
            process.send_signal(signal.SIGTERM)
        for process in started:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(5)
    assert_answers_are_clean(mail)
    assert_nothing_strayed(superuser)
    for name in commands:
        said = (tmp_path / f"{name}.log").read_text(encoding="utf-8", errors="replace")
        assert [line for line in said.splitlines() if ANY.search(line)] == [], name
    assert '"route"' in (tmp_path / "web.log").read_text(encoding="utf-8", errors="replace")
    assert not ANY.search(server_log())


def wait_for(port: int, log: Path) -> None:
    deadline = time.monotonic() + 40
    while True:
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
            connection.request("GET", "/healthz")
            if connection.getresponse().status == 200:
                return
        except OSError:
            pass
        assert time.monotonic() < deadline, log.read_text(encoding="utf-8", errors="replace")
        time.sleep(0.2)
