"""What every endpoint has in common: keys, tenants, ids, parameters, canaries, and the description."""

import json
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.urls import get_resolver

from tenants.actors import Scope
from tests.organisation import Api
from tests.paths.ledger import CANARY, Ledger, description, saying
from tests.paths.test_api_episodes import episode

BY_ID = [
    ("GET", "/facts/{fact}/", None),
    ("GET", "/facts/{fact}/history/", None),
    ("GET", "/facts/{fact}/lineage/", None),
    ("POST", "/facts/{fact}/retract/", {"reason": "other"}),
    ("POST", "/evidence/{evidence}/retract/", {"reason": "other"}),
    ("GET", "/candidates/{candidate}/", None),
    ("GET", "/episodes/{episode}/", None),
    ("POST", "/consents/{consent}/withdraw/", {}),
    ("GET", "/subject-requests/{asked}/", None),
    ("GET", "/facts/{fact}/lifetime/", None),
    ("GET", "/erasures/{erasure}/", None),
    ("GET", "/restrictions/{restriction}/", None),
    ("GET", "/matters/{matter}/", None),
    ("GET", "/holds/{hold}/", None),
    ("GET", "/holds/{hold}/refused/", None),
    ("GET", "/redactions/{redaction}/", None),
    ("POST", "/redactions/{redaction}/withdraw/", {}),
]
READS = [
    "/facts/",
    "/profile/",
    "/candidates/",
    "/attributes/",
    "/matters/",
    "/holds/",
    "/redactions/",
    "/subject-requests/",
    "/erasures/",
    "/restrictions/",
    "/procedures/",
    "/whoami/",
]
WRITES: list[tuple[str, str, Any]] = [
    ("POST", "/facts/", saying(value="Rome")),
    ("POST", "/facts/batch/", {"items": [saying(value="Rome")]}),
    ("POST", "/episodes/", episode()),
    ("PUT", "/subjects/", {"key": "mira"}),
    ("POST", "/consents/", {"subject": "mira", "ref": "c"}),
    ("POST", "/policies/explain/", {"fact": saying(value="Rome")}),
    ("POST", "/subject-requests/", {"kind": "access", "subject": "mira"}),
    ("POST", "/erasures/", {"subject": "mira", "reason": "law"}),
    ("POST", "/restrictions/", {"subject": "mira", "ground": "unlawful"}),
    ("POST", "/notice-endpoints/", {"url": "https://agent.invalid/hook"}),
    ("POST", "/matters/", {"reference": "case-1", "reason": "audit"}),
    ("POST", "/holds/", {"matter": str(UUID(int=1)), "scopes": [{"session_id": "s"}]}),
    ("POST", "/procedures/refunds/versions/", {"body": "Ask.", "test": {"reference": "run-1", "result": "passed"}}),
    ("POST", "/redactions/", {"items": [{"kind": "fact", "id": str(UUID(int=1))}], "reason": "other"}),
]


def written(ledger: Ledger) -> dict[str, str]:
    """Write one of everything and return the ids."""
    fact = ledger.said("mira", "city", f"secret {CANARY}")
    ledger.post("/consents/", {"subject": "mira", "ref": "consent-of-this-tenant"})
    matter = ledger.post("/matters/", {"reference": "case-of-this-tenant", "reason": "audit"}).json()["id"]
    scopes = [{"session_id": "a-session-of-nobody"}]
    restricted = ledger.said("a third", "tag", "to be restricted")["fact"]["id"]
    hidden = {"kind": "fact", "id": ledger.said("another", "tag", "to be redacted")["fact"]["id"]}
    return {
        "redaction": ledger.post("/redactions/", {"items": [hidden], "reason": "other"}).json()["id"],
        "restriction": ledger.post("/restrictions/", {"fact": restricted, "ground": "other"}).json()["id"],
        "matter": matter,
        "hold": ledger.post("/holds/", {"matter": matter, "scopes": scopes}).json()["id"],
        "fact": fact["fact"]["id"],
        "evidence": fact["evidence"],
        "candidate": ledger.said("mira", "iban", "x", status=202)["candidate"],
        "episode": ledger.post("/episodes/", episode()).json()["id"],
        "consent": "consent-of-this-tenant",
        "session": "session-of-this-tenant",
        "erasure": ledger.post("/erasures/", {"subject": "mira", "reason": "law"}).json()["id"],
        "asked": ledger.post("/subject-requests/", {"kind": "access", "subject": "mira"}).json()["id"],
    }


def without_request_id(response: Any) -> dict[str, Any]:
    return {name: value for name, value in response.json().items() if name != "request_id"}


@pytest.mark.parametrize(("method", "path", "body"), BY_ID, ids=[each[1] for each in BY_ID])
def test_c052_c121_another_tenants_id_looks_like_a_missing_and_a_malformed_one(
    ledger: Ledger, foreign: Ledger, method: str, path: str, body: Any
) -> None:
    theirs = written(foreign)
    names = (
        "fact",
        "evidence",
        "candidate",
        "episode",
        "consent",
        "matter",
        "hold",
        "asked",
        "redaction",
        "erasure",
        "restriction",
    )
    wanted = [path.format(**theirs)]
    wanted += [path.format(**dict.fromkeys(names, text)) for text in (str(uuid4()), "x", "0", CANARY, "%00", "a%2Fb")]
    wanted += [path.format(**dict.fromkeys(names, str(uuid4()).replace("-", "")))]
    answers = [ledger.send(method, each, body) for each in wanted]
    assert {each.status_code for each in answers} == {404}
    assert len({json.dumps(without_request_id(each)) for each in answers}) == 1
    after = [foreign.send(method, path.format(**theirs), body)]
    assert after[0].status_code == 200
    if method == "POST":
        assert foreign.values() == ([] if "retract" in path else [f"secret {CANARY}"])


def test_c052_no_read_and_no_write_reaches_another_tenants_memory(ledger: Ledger, foreign: Ledger) -> None:
    theirs = written(foreign)
    for path in ("/facts/", "/candidates/"):
        assert ledger.walk(path) == []
    assert ledger.facts(subject="mira") == []
    assert ledger.ok("/profile/", subject="mira")["results"] == []
    for provenance in (
        {"turn_id": "t", "source_episode": theirs["episode"]},
        {"turn_id": "t", "consent_ref": theirs["consent"]},
    ):
        assert ledger.say("mira", "city", "x", provenance=provenance).status_code == 422
    assert ledger.post("/consents/", {"subject": "mira", "ref": theirs["consent"]}).status_code == 201


def test_c052_a_cursor_of_another_tenant_reaches_nothing_of_it(ledger: Ledger, foreign: Ledger) -> None:
    for number in range(3):
        foreign.said("mira", "tag", f"theirs {number}")
    cursor = foreign.ok("/facts/", limit=1)["next"]
    ledger.said("mira", "tag", "ours")
    assert {each["value"] for each in ledger.walk("/facts/", cursor=cursor)} <= {"ours"}


def test_c052_no_endpoint_answers_without_a_key(ledger: Ledger) -> None:
    nobody = Api()
    found = 0
    for path, operations in description()["paths"].items():
        for method in operations:
            answer = nobody.send(
                method.upper(), path.replace("{id}", str(uuid4())).replace("{ref}", "c").replace("{name}", "n"), {}
            )
            assert (answer.status_code, answer.json()["code"]) == (401, "key_missing")
            found += 1
    assert found >= 23


def test_a_key_without_the_scope_is_refused_everywhere(organisation: Any, ledger: Ledger) -> None:
    ids = written(ledger)
    reader = Ledger(organisation.agent("reader", scopes=frozenset({Scope.READ})))
    writer = Ledger(organisation.agent("scribe", scopes=frozenset({Scope.WRITE})))
    reads = [("GET", path, None) for path in READS[:-1]]
    for method, path, body in [*BY_ID, *WRITES, *reads]:
        agent = writer if method == "GET" else reader
        answer = agent.send(method, path.format(**ids), body)
        assert (answer.status_code, answer.json()["code"]) == (403, "scope_missing")


@pytest.mark.parametrize("path", [*READS, *(each[1] for each in BY_ID if each[0] == "GET")])
def test_c066_c072_an_unknown_parameter_is_a_400_and_never_a_wider_answer(ledger: Ledger, path: str) -> None:
    ids = written(ledger)
    for name in ("subjects", "Subject", "subject[]", "subject__contains", CANARY, "tenant", "user_id", ""):
        answer = ledger.get(path.format(**ids), **{name: "mira"})
        assert (answer.status_code, answer.json()["code"]) == (400, "unknown_parameter")


@pytest.mark.parametrize(("method", "path", "body"), WRITES, ids=[each[1] for each in WRITES])
def test_c066_a_write_takes_no_parameter_and_no_unknown_field(
    ledger: Ledger, method: str, path: str, body: Any
) -> None:
    assert ledger.send(method, f"{path}?subject=mira", body).status_code == 400
    refused = ledger.send(method, path, {**body, CANARY: CANARY})
    assert refused.status_code == 400
    assert refused.json()["errors"] == [{"path": "", "code": "unknown_field"}]


@pytest.mark.parametrize(
    "query",
    [
        {"limit": "0"},
        {"limit": "201"},
        {"limit": "-1"},
        {"limit": CANARY},
        {"limit": "1e2"},
        {"limit": "٣"},
        {"cursor": CANARY},
        {"cursor": ""},
        {"cursor": "g" * 32 + "." + "g" * 32},
        {"kind": CANARY},
        {"attribute": CANARY + "'"},
        {"attribute": ""},
        {"subject": ""},
        {"subject": "x" * 201},
        {"subject": "a\0b"},
        {"valid_at": CANARY},
        {"known_at": "2026-06-01"},
    ],
)
def test_a_parameter_that_is_wrong_is_a_400_naming_it(ledger: Ledger, query: dict[str, str]) -> None:
    answer = ledger.get("/facts/", **query)
    assert answer.status_code == 400
    assert [each["path"] for each in answer.json()["errors"]] == list(query)


def test_a_parameter_given_twice_or_not_utf8_is_a_400(ledger: Ledger) -> None:
    assert ledger.get("/facts/?subject=a&subject=b").status_code == 400
    assert ledger.get("/facts/?subject=%ff").status_code == 400
    assert ledger.get("/profile/").json()["errors"] == [{"path": "subject", "code": "required"}]


@pytest.mark.parametrize(("method", "path", "body"), WRITES, ids=[each[1] for each in WRITES])
def test_a_refused_body_never_comes_back_wherever_the_canary_stood(
    ledger: Ledger, caplog: pytest.LogCaptureFixture, method: str, path: str, body: Any
) -> None:
    def spoilt(found: Any) -> Any:
        """Yield copies of `found`, each with the canary in one more place."""
        if isinstance(found, dict):
            for name, inner in found.items():
                yield {**found, name: f"{CANARY}\0"}
                yield {**{other: found[other] for other in found if other != name}, f"{name}{CANARY}": inner}
                yield from ({**found, name: each} for each in spoilt(inner))
        if isinstance(found, list):
            yield from ([each] for inner in found for each in spoilt(inner))

    for each in spoilt(body):
        answer = ledger.send(method, path, each)
        assert answer.status_code >= 400 or path in ("/facts/batch/", "/policies/explain/")
        assert CANARY not in answer.content.decode()
    for raw in (f'{{"{CANARY}', f'["{CANARY}"]', f'{{"a": "{CANARY}", "a": 1}}', CANARY, '{"a": NaN}'):
        assert ledger.send(method, path, raw).status_code == 400
    assert CANARY not in caplog.text


def test_methods_that_an_endpoint_lacks_are_405_and_paths_without_their_slash_404(ledger: Ledger) -> None:
    assert ledger.send("DELETE", "/facts/", sound=False).status_code == 405
    assert ledger.send("GET", "/facts/batch/", sound=False).status_code == 405
    assert ledger.send("PATCH", f"/facts/{uuid4()}/", {}, sound=False).status_code == 405
    assert ledger.send("GET", "/facts", sound=False).status_code == 404


# the description ------------------------------------------------------------------------------------------------------


def test_the_description_is_openapi_3_1_and_every_endpoint_and_method_is_in_it() -> None:
    from drf_spectacular.validation import validate_schema

    document = description()
    assert document["openapi"].startswith("3.1")
    validate_schema(document)
    described = {(path, method.upper()) for path, operations in document["paths"].items() for method in operations}
    served = set()
    for pattern, view in _api_views():
        path = "/" + pattern.replace("<str:", "{").replace("<path:", "{").replace(">", "}")
        served |= {(path, method) for method in view.scope}
    assert described == served


def _api_views() -> Any:
    outers: Any = get_resolver().url_patterns
    for outer in outers:
        if str(outer.pattern) == "api/v1/":
            for inner in outer.url_patterns:
                view = getattr(inner.callback, "cls", None)
                if view is not None:
                    yield f"{outer.pattern}{inner.pattern}", view


def test_every_operation_says_what_it_is_and_every_body_is_required_and_bounded() -> None:
    document = description()
    names = set()
    for path, operations in document["paths"].items():
        for operation in operations.values():
            names.add(operation["operationId"])
            assert operation["description"]
            for status, response in operation["responses"].items():
                assert response["description"], (path, status)
                assert response["content"], (path, status)
    assert len(names) == sum(map(len, document["paths"].values()))


def test_the_examples_of_the_description_are_taken(ledger: Ledger) -> None:
    from memory import contracts
    from memory.api.schema import EXAMPLES
    from memory.contracts import parse

    for name, example in EXAMPLES.items():
        parse(getattr(contracts, name), example)
    assert ledger.post("/facts/", EXAMPLES["FactBody"]).status_code == 201
    assert ledger.post("/facts/batch/", EXAMPLES["BatchBody"]).status_code == 200
    assert ledger.post("/episodes/", EXAMPLES["EpisodeBody"]).status_code == 201
    assert ledger.send("PUT", "/subjects/", EXAMPLES["SubjectBody"]).status_code == 200
    assert ledger.post("/consents/", EXAMPLES["ConsentBody"]).status_code == 201
