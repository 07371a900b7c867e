"""JSON in and out. Out: `tenants.jsontext`. In: I-JSON only (RFC 7493): what is ambiguous is refused."""

import json
import re
from collections.abc import Mapping
from math import isinf
from typing import Any, NoReturn

from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.parsers import BaseParser
from rest_framework.renderers import BaseRenderer

from tenants.errors import Malformed, Problem
from tenants.jsontext import dumps

#: How deep a body may nest; far above what any documented body needs, far below what recursion bears.
DEEPEST = 32
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


class TooLarge(Problem):
    """The body is larger than the endpoint takes."""

    status = 413
    code = "body_too_large"
    title = "The body is too large"


class LengthRequired(Problem):
    """The body came without its length."""

    status = 411
    code = "length_required"
    title = "The request must say how long its body is"


class WrongType(Problem):
    """The body is not JSON, or is packed in a way that is not read."""

    status = 415
    code = "content_type_not_json"
    title = "The body must be application/json"


class Json(BaseRenderer):
    """Answers as `tenants.jsontext` writes them."""

    media_type = "application/json"
    format = "json"
    charset = None

    def render(self, data: Any, accepted_media_type: str | None = None, renderer_context: Any = None) -> bytes:
        return b"" if data is None else dumps(data)


class JsonBody(BaseParser):
    """Reads an object; leaves the bytes as they came in `request.raw_body`, for the digest of a repeated request."""

    media_type = "application/json"

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Mapping[str, Any] | None = None) -> Any:
        request = (parser_context or {})["request"]
        raw: bytes = stream.read()
        if len(raw) < int(request.META["CONTENT_LENGTH"]):
            raise Malformed("body_incomplete")
        request.raw_body = raw
        return loads(raw)


def check_size(meta: Mapping[str, Any], limit: int) -> None:
    """Refuse a body by its headers, before it is read: raises `TooLarge`, `LengthRequired`, `WrongType`, `Malformed`."""
    if meta.get("HTTP_CONTENT_ENCODING", "identity") != "identity":
        raise WrongType("content_encoding_refused")
    stated = meta.get("CONTENT_LENGTH") or ""
    if not stated and meta.get("HTTP_TRANSFER_ENCODING"):
        raise LengthRequired()
    if stated and not (stated.isascii() and stated.isdigit() and len(stated) < 20):
        raise Malformed("content_length_malformed")
    if int(stated or 0) > limit:
        raise TooLarge()


def loads(raw: bytes) -> dict[str, Any]:
    """Return the object in a body.

    Raises `Malformed`: `json_malformed` (no JSON, NaN, infinite or lone surrogates included), `json_duplicate_key`,
    `json_too_deep`, `json_not_object`.
    """
    try:
        text = raw.decode()
        found = json.loads(text, object_pairs_hook=_object, parse_constant=_refuse_constant, parse_float=_finite)
    except Malformed:
        raise
    except RecursionError:
        raise Malformed("json_too_deep") from None
    except ValueError:
        # Its text shows where, and sometimes what.
        raise Malformed("json_malformed") from None
    if not isinstance(found, dict):
        raise Malformed("json_not_object")
    if raw.count(b"{") + raw.count(b"[") > DEEPEST:
        _check_depth(found)
    if _SURROGATE.search(raw):
        try:
            json.dumps(found, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise Malformed("json_malformed") from None
    return found


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise Malformed("json_duplicate_key")
    return found


def _refuse_constant(_word: str) -> NoReturn:
    raise Malformed("json_malformed")


def _finite(text: str) -> float:
    number = float(text)
    if isinf(number):
        raise Malformed("json_malformed")
    return number


def _check_depth(found: Any) -> None:
    level: list[Any] = [found]
    for _ in range(DEEPEST):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return
    raise Malformed("json_too_deep")


class JsonOnly(BaseContentNegotiation):
    """The answer is JSON whatever `Accept` says; a body is read as JSON or not at all."""

    def select_parser(self, request: Any, parsers: Any) -> Any:
        if (request.content_type or "").split(";")[0].strip().lower() != "application/json":
            raise WrongType()
        return parsers[0]

    def select_renderer(self, request: Any, renderers: Any, format_suffix: Any = None) -> Any:
        return renderers[0], renderers[0].media_type
