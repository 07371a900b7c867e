"""JSON documents that people write (policies, attributes), read strictly and refused by place.

Pure: imports no Django and reads no clock. A refusal says where and why, never what was written there.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

MAX_DOCUMENT_CHARACTERS = 4 * 1024 * 1024


class DocumentRefused(Exception):
    """A document that cannot be used. `errors` lists (path, code) in the order of the document."""

    def __init__(self, errors: Iterable[tuple[str, str]]) -> None:
        self.errors = list(errors)
        super().__init__("; ".join(f"{path}: {code}" for path, code in self.errors))


class Document(BaseModel):
    """Base of what is read from such documents: frozen, strict, and silent about its input."""

    model_config = ConfigDict(
        strict=True, frozen=True, extra="forbid", hide_input_in_errors=True, allow_inf_nan=False, populate_by_name=True
    )

    def document(self) -> dict[str, Any]:
        """Return this as JSON data, defaults included. Reading it again gives an equal document."""
        return self.model_dump(mode="json", by_alias=True)

    def digest(self) -> str:
        """Return the hexadecimal SHA-256 of the canonical JSON of `document()`."""
        text = json.dumps(self.document(), sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
        return hashlib.sha256(text.encode("ascii")).hexdigest()


def changed_fields(old: Document, new: Document) -> tuple[str, ...]:
    """Return the names of the fields in which two documents differ, as a file writes them, sorted."""
    before, after = old.document(), new.document()
    names = sorted(before.keys() | after.keys())
    return tuple(name for name in names if _text(before.get(name)) != _text(after.get(name)))


def _text(value: Any) -> str:
    # Python holds 1, 1.0 and True to be equal; a schema does not.
    return json.dumps(value, sort_keys=True)


class _Unusable(Exception):
    """Stops the reader; its text is a code."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    read = dict(pairs)
    if len(read) != len(pairs):
        raise _Unusable("duplicate_field")
    return read


def _constant(_: str) -> Any:
    raise _Unusable("not_finite")


def read_json(text: str, name: str) -> Any:
    """Return the JSON data of `text`.

    Raises DocumentRefused, with `name` as the path, for text that is not JSON, for NaN and infinities, for an object
    that names a field twice, and beyond 4 Mi characters.
    """
    code: str
    if len(text) > MAX_DOCUMENT_CHARACTERS:
        raise DocumentRefused([(name, "too_large")])
    try:
        return json.loads(text, object_pairs_hook=_object, parse_constant=_constant)
    except _Unusable as stop:
        code = str(stop)
    except (ValueError, RecursionError):
        code = "not_json"
    raise DocumentRefused([(name, code)])


Model = TypeVar("Model", bound=Document)


def read_document(model: type[Model], data: Any, name: str) -> Model:
    """Return JSON `data` as a `model`. Raises DocumentRefused with every error, each path starting with `name`."""
    errors: list[tuple[str, str]]
    try:
        # Through text, since strict models take words for enumerations and lists for tuples only from JSON.
        return model.model_validate_json(json.dumps(data, allow_nan=False))
    except ValidationError as refusal:
        errors = errors_of(refusal, name)
    except (TypeError, ValueError, RecursionError):
        errors = [(name, "not_json")]
    raise DocumentRefused(errors)


_CODES = {
    "missing": "missing",
    "extra_forbidden": "unknown_field",
    "enum": "not_in_enum",
    "literal_error": "not_in_enum",
    "string_too_short": "too_short",
    "too_short": "too_short",
    "string_too_long": "too_long",
    "too_long": "too_long",
    "string_pattern_mismatch": "bad_pattern",
    "greater_than_equal": "too_small",
    "less_than_equal": "too_big",
    "finite_number": "not_finite",
    "json_invalid": "not_json",
}
NESTED = "nested"
_NAME = re.compile(r"[A-Za-z0-9_$.\-]{1,64}")


def errors_of(refusal: ValidationError, name: str) -> list[tuple[str, str]]:
    """Return a pydantic refusal as (path, code), each path once and starting with `name`."""
    errors: dict[str, str] = {}
    for error in refusal.errors(include_url=False, include_context=True, include_input=False):
        kind = error["type"]
        steps = [str(step) if _NAME.fullmatch(str(step)) else "*" for step in error["loc"] if step != "[key]"]
        # A validator of ours may say a deeper place and a closer code; no other context is looked at.
        context = error.get("ctx", {}) if kind == NESTED else {}
        path = ".".join((name, *steps, *([context["path"]] if context.get("path") else [])))
        code = context.get("code") or _CODES.get(kind, "wrong_type" if kind.endswith(("_type", "_parsing")) else kind)
        errors.setdefault(path, code)
    return list(errors.items())
