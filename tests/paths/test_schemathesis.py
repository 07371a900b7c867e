"""Every described operation under generated requests, good and bad: no crash, answers as described, nothing echoed."""

from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import CHECKS, load_all_checks

from tests.paths.ledger import ATTRIBUTES, CANARY, Ledger, description
from tests.paths.test_api_isolation import written

OPERATIONS = [
    (method.upper(), path) for path, operations in sorted(description()["paths"].items()) for method in operations
]
EXAMPLES = 25

load_all_checks()
CHECKED = [
    check
    for check in CHECKS.get_all()
    if check.__name__ in ("not_a_server_error", "content_type_conformance", "response_schema_conformance")
]


@pytest.fixture(scope="module")
def schema() -> Any:
    from config.wsgi import application

    loaded = schemathesis.openapi.from_dict(description())
    loaded.app = application
    return loaded


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
@pytest.mark.parametrize(("method", "path"), OPERATIONS, ids=[f"{method} {path}" for method, path in OPERATIONS])
def test_generated_requests_never_crash_nor_come_back_in_a_refusal(
    schema: Any, ledger: Ledger, mode: GenerationMode, method: str, path: str
) -> None:
    operation = schema[path][method]
    ids = written(ledger)

    # Kept apart from the request's own draws, so that what fails can still be made smaller.
    @given(case=operation.as_strategy(generation_mode=mode), known=st.booleans(), marked=st.booleans())
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    def run(case: Any, known: bool, marked: bool) -> None:
        if known:
            make_known(case, path, ids)
        if marked:
            mark(case)
        headers = {"Authorization": f"Api-Key {ledger.agent.key}"}
        response = case.call(headers=headers)
        case.validate_response(response, checks=CHECKED, headers=headers)
        told = response.content.decode() if response.status_code >= 400 else ""
        assert CANARY not in told + str(response.headers)

    run()


def make_known(case: Any, path: str, ids: dict[str, str]) -> None:
    """Name what is there, so that a request gets further than "not found" and "unknown attribute"."""
    kind = path.split("/")[3]
    names = {"facts": "fact", "evidence": "evidence", "candidates": "candidate", "episodes": "episode",
             "matters": "matter", "holds": "hold", "sessions": "session", "subject-requests": "asked", "erasures": "erasure",
             "redactions": "redaction", "restrictions": "restriction"}  # fmt: skip
    if isinstance(case.path_parameters, dict) and "id" in case.path_parameters:
        # Of runs and certificates there is none: any id gets as far as theirs would.
        case.path_parameters["id"] = ids[names.get(kind, "fact")]
    if isinstance(case.path_parameters, dict) and "ref" in case.path_parameters:
        case.path_parameters["ref"] = ids["consent"]
    number = 0

    def rename(found: Any) -> Any:
        nonlocal number
        if isinstance(found, list):
            return [rename(each) for each in found]
        if not isinstance(found, dict):
            return found
        renamed = {name: rename(inner) for name, inner in found.items()}
        if isinstance(renamed.get("attribute"), str):
            number += 1
            renamed["attribute"] = ATTRIBUTES[number % len(ATTRIBUTES)]["name"]
        if isinstance(renamed.get("subject"), str):
            renamed["subject"] = "mira"
        if isinstance(renamed.get("source_episode"), str):
            renamed["source_episode"] = ids["episode"]
        if isinstance(renamed.get("corrects"), str):
            renamed["corrects"] = ids["evidence"]
        return renamed

    case.body = rename(case.body)


def mark(case: Any) -> None:
    """Put the canary into every text that is sent."""

    def marked(found: Any) -> Any:
        if isinstance(found, str):
            return CANARY + found
        if isinstance(found, list):
            return [marked(each) for each in found]
        if isinstance(found, dict):
            return {name: marked(inner) for name, inner in found.items()}
        return found

    case.body = marked(case.body)
    case.query = marked(case.query)
    if case.headers:
        for name in case.headers:
            case.headers[name] = CANARY + str(case.headers[name])


def test_the_canary_is_put_everywhere() -> None:
    class Case:
        body: Any = {"a": ["x", {"b": "y"}], "c": 1}
        query: Any = {"q": "z"}
        headers: Any = {"Idempotency-Key": "k"}

    case = Case()
    mark(case)
    assert case.body == {"a": [f"{CANARY}x", {"b": f"{CANARY}y"}], "c": 1}
    assert (case.query, case.headers) == ({"q": f"{CANARY}z"}, {"Idempotency-Key": f"{CANARY}k"})
