"""That the examples of the API guide are requests which the API understands, and answers which it gives."""

import json
import re
import shlex
from functools import cache
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import jsonschema
import pytest

from tests.docs.sources import ROOT, blocks, text_of

GUIDE = ROOT / "docs" / "api.md"
_BASE = "$MUNIMENT"


@cache
def described() -> dict[str, Any]:
    """Return the API's own description."""
    from tenants.api.views import description

    found: dict[str, Any] = json.loads(description())
    return found


def _examples() -> list[list[str]]:
    found = []
    for block in blocks(GUIDE, "sh"):
        held = ""
        for line in re.sub(r"\\\n\s*", " ", block).splitlines():
            held += line + "\n"
            try:
                words = shlex.split(held)
            except ValueError:  # a quotation that goes on in the next line
                continue
            held = ""
            if words[:1] == ["api"]:
                found.append(words)
    return found


def _request(words: list[str]) -> tuple[str, str, dict[str, str], Any]:
    method, body, url = "", None, ""
    rest = iter(words[1:])
    for word in rest:
        if word == "-X":
            method = next(rest)
        elif word == "-d":
            body = json.loads(next(rest))
        elif word == "-H":
            assert next(rest).startswith("Idempotency-Key: ")
        elif word.startswith(_BASE):
            url = word.removeprefix(_BASE)
        else:
            assert word == "-i", f"an option that the guide does not explain: {word}"
    parts = urlsplit(url)
    return method or ("GET" if body is None else "POST"), parts.path, dict(parse_qsl(parts.query)), body


def _operation(method: str, path: str) -> dict[str, Any] | None:
    for template, methods in described()["paths"].items():
        pattern = re.sub(r"\\\{ref\\\}", ".+", re.escape(template))
        pattern = re.sub(r"\\\{\w+\\\}", "[^/]+", pattern)
        # A fixed word in a path is not an id.
        if re.fullmatch(pattern, path) and not ("{id}" in template and path in described()["paths"]):
            found: dict[str, Any] | None = methods.get(method.lower())
            return found
    return None


EXAMPLES = _examples()


def test_the_guide_has_examples() -> None:
    assert len(EXAMPLES) >= 15


@pytest.mark.parametrize("words", EXAMPLES, ids=lambda words: " ".join(words)[:80])
def test_an_example_is_a_request_that_the_api_describes(words: list[str]) -> None:
    method, path, query, body = _request(words)
    if path == "/api/v1/schema/":
        return  # it describes all others
    operation = _operation(method, path)
    assert operation is not None, f"{method} {path}"
    known = {each["name"] for each in operation.get("parameters", []) if each["in"] == "query"}
    assert set(query) <= known
    if body is not None:
        schema = operation["requestBody"]["content"]["application/json"]["schema"]
        jsonschema.validate(body, {**schema, "components": described()["components"]})


def test_every_endpoint_is_in_the_guide() -> None:
    text = text_of(GUIDE)
    missing = []
    for template, methods in described()["paths"].items():
        short = template.removeprefix("/api/v1")
        for method in methods:
            if f"`{method.upper()} {short}`" not in text:
                missing.append(f"{method.upper()} {short}")
    assert missing == []


def test_no_endpoint_is_in_the_guide_that_is_not_there() -> None:
    told = re.findall(r"`(GET|POST|PUT|PATCH|DELETE) (/[^`]*)`", text_of(GUIDE))
    paths = described()["paths"]
    known = {(method.upper(), template.removeprefix("/api/v1")) for template, each in paths.items() for method in each}
    known |= {("GET", "/schema/"), ("GET", "/docs/")}
    assert sorted(set(told) - known) == []


def test_every_member_of_every_body_is_in_the_guide() -> None:
    said = set(re.findall(r"[a-z_]+", " ".join(re.findall(r"`[^`\n]+`|\"[a-z_]+\"", text_of(GUIDE)))))
    schemas = described()["components"]["schemas"]
    bodies = [name for name in schemas if name.endswith("Body")] + ["Provenance", "Retention"]
    missing = [
        f"{name}.{field}" for name in bodies for field in schemas[name].get("properties", {}) if field not in said
    ]
    assert missing == []


def _shapes(text: str) -> Any:
    return json.loads(text)


@pytest.mark.parametrize("place", range(len(blocks(GUIDE, "json"))))
def test_an_answer_in_the_guide_is_an_answer_that_the_api_describes(place: int) -> None:
    """Each has the members of some described answer, no other, and none is missing."""
    shown = _shapes(blocks(GUIDE, "json")[place])
    errors = []
    for name, schema in described()["components"]["schemas"].items():
        if "properties" not in schema or not set(shown) <= set(schema["properties"]):
            continue
        try:
            jsonschema.validate(shown, {**schema, "components": described()["components"]})
        except jsonschema.ValidationError as error:
            errors.append(f"{name}: {error.json_path}: {error.message[:120]}")
        else:
            return
    pytest.fail("; ".join(errors) or f"no described answer has the members {sorted(shown)}")
