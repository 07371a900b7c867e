"""The canonical form of a value: what is stored, compared and digested.

Two values are equal exactly when `canonical_text` of their canonical forms is equal; likeness of text never counts.
Pure: imports no Django and reads no clock. No exception raised here holds the value, nor a name that only the value
knows: paths name fields that the schema declares, any other field is `*`.
"""

from __future__ import annotations

import datetime
import ipaddress
import json
import math
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from functools import lru_cache
from typing import Any, cast
from urllib.parse import unquote

from jsonschema import Draft202012Validator, FormatChecker, ValidationError
from jsonschema.validators import extend
from pydantic_core import SchemaError, SchemaValidator, core_schema
from referencing import Registry

MAX_VALUE_BYTES = 16 * 1024
MAX_VALUE_DEPTH = 8
MAX_SCHEMA_BYTES = 64 * 1024
MAX_SCHEMA_DEPTH = 32
MAX_PATTERN_LENGTH = 500

_MAX_RAW_CHARACTERS = 4 * MAX_VALUE_BYTES
_INT_MIN, _INT_MAX = -(2**63), 2**63 - 1


class ValueRefused(Exception):
    """A value (or text) that may not be kept. Holds where and why, never the value."""

    def __init__(self, path: str, code: str) -> None:
        super().__init__(f"{path}: {code}")
        self.path = path
        self.code = code


class SchemaRefused(Exception):
    """An attribute's schema that cannot be used. Holds where and why."""

    def __init__(self, path: str, code: str) -> None:
        super().__init__(f"{path}: {code}")
        self.path = path
        self.code = code


# --- text ---------------------------------------------------------------------------------------------------------

_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")


def clean_text(text: str, *, path: str = "value") -> str:
    """Return `text` in NFC with line ends as `\\n`.

    Raises ValueRefused with code `nul`, `surrogate` or `control` for NUL, lone surrogates and the other C0 and C1
    controls (and DEL), except newline and tab.
    """
    found = _FORBIDDEN.search(text)
    if found is not None:
        character = found.group()
        raise ValueRefused(
            path,
            "nul" if character == "\0" else "surrogate" if "\ud800" <= character <= "\udfff" else "control",
        )
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text if text.isascii() else unicodedata.normalize("NFC", text)


# --- canonical JSON -----------------------------------------------------------------------------------------------

# The standard library's encoder, since digests of this text are kept for ever: `float.__repr__` will not change.
_ENCODER = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False, check_circular=False
)


def canonical_text(value: Any) -> str:
    """Return the canonical JSON text of a canonical value: keys sorted, no spaces, characters unescaped.

    Raises ValueRefused for what `canonical` never returns and JSON cannot say.
    """
    try:
        return _ENCODER.encode(value)
    except (TypeError, ValueError, RecursionError):
        pass
    raise ValueRefused("value", "not_json")


# --- formats ------------------------------------------------------------------------------------------------------

_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_DATE_TIME = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt]([0-9]{2}:[0-9]{2}:[0-9]{2})(\.[0-9]{1,9})?([Zz]|[+-][0-9]{2}:[0-9]{2})"
)
_TIME = re.compile(r"([0-9]{2}:[0-9]{2}:[0-9]{2})(\.[0-9]{1,9})?([Zz]|[+-][0-9]{2}:[0-9]{2})")
_EMAIL = re.compile(r"[^@\s]{1,64}@[^@\s]{1,255}")
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:(?:[A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=]|%[0-9A-Fa-f]{2})+")
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_DURATION = re.compile(
    r"P(?:[0-9]+W|(?=[0-9T])(?:[0-9]+Y)?(?:[0-9]+M)?(?:[0-9]+D)?(?:T(?=[0-9])(?:[0-9]+H)?(?:[0-9]+M)?(?:[0-9]+S)?)?)"
)


def _is_date(text: str) -> bool:
    if _DATE.fullmatch(text) is None:
        return False
    try:
        datetime.date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _fraction(digits: str | None) -> str:
    stripped = (digits or "").rstrip("0")
    return "" if stripped in ("", ".") else stripped


def _date_time(text: str) -> str | None:
    """Return the instant in UTC with `Z` and without trailing zeros, or None where `text` is not RFC 3339.

    A leap second is None too: neither Python nor PostgreSQL can hold one.
    """
    found = _DATE_TIME.fullmatch(text)
    if found is None:
        return None
    day, clock, digits, offset = found.groups()
    if offset in ("z", "-00:00"):
        offset = "Z"
    try:
        instant = datetime.datetime.fromisoformat(f"{day}T{clock}{offset}").astimezone(datetime.UTC)
    except (ValueError, OverflowError):
        return None
    if offset[0] in "+-" and int(offset[4:]) > 59:
        return None
    return instant.replace(tzinfo=None).isoformat() + _fraction(digits) + "Z"


def _time(text: str) -> str | None:
    """Return the RFC 3339 time with its own offset (`Z` for zero), or None where `text` is not one.

    The offset stays: in UTC a time of day could fall on another day, and would no longer say the same.
    """
    found = _TIME.fullmatch(text)
    if found is None:
        return None
    clock, digits, offset = found.groups()
    if offset in ("z", "+00:00", "-00:00"):
        offset = "Z"
    try:
        datetime.time.fromisoformat(clock + offset)
    except ValueError:
        return None
    if offset[0] in "+-" and int(offset[4:]) > 59:
        return None
    return clock + _fraction(digits) + offset


def _is_address(parse: Callable[[str], object]) -> Callable[[str], bool]:
    def check(text: str) -> bool:
        try:
            parse(text)
        except ValueError:
            return False
        return "%" not in text

    return check


_FORMATS: dict[str, Callable[[str], bool]] = {
    "date": _is_date,
    "date-time": lambda text: _date_time(text) is not None,
    "time": lambda text: _time(text) is not None,
    "email": lambda text: _EMAIL.fullmatch(text) is not None,
    "uri": lambda text: _URI.fullmatch(text) is not None,
    "uuid": lambda text: _UUID.fullmatch(text) is not None,
    "duration": lambda text: _DURATION.fullmatch(text) is not None,
    "ipv4": _is_address(ipaddress.IPv4Address),
    "ipv6": _is_address(ipaddress.IPv6Address),
}
_REWRITES: dict[str, Callable[[str], str | None]] = {
    "date-time": _date_time,
    "time": _time,
    "uuid": str.lower,
}


def _format_checker() -> FormatChecker:
    checker = FormatChecker(formats=())

    def register(name: str, check: Callable[[str], bool]) -> None:
        checker.checks(name)(lambda instance: not isinstance(instance, str) or check(instance))

    for name, check in _FORMATS.items():
        register(name, check)
    return checker


# --- the validator ------------------------------------------------------------------------------------------------


def _unique_items(_: Any, wanted: Any, instance: Any, __: Any) -> Iterator[ValidationError]:
    # jsonschema compares item by item, which a hostile list makes quadratic.
    if wanted and isinstance(instance, list) and len({canonical_text(item) for item in instance}) != len(instance):
        yield ValidationError("")


def _multiple_of(_: Any, divisor: Any, instance: Any, __: Any) -> Iterator[ValidationError]:
    # jsonschema divides floats: 19.99 would not be a multiple of 0.01.
    if type(instance) in (int, float) and (Fraction(repr(instance)) / Fraction(repr(divisor))).denominator != 1:
        yield ValidationError("")


@lru_cache(maxsize=4096)
def _engine(pattern: str) -> SchemaValidator:
    # Python's own engine tries `^(a+)+$` in every way there is, and has no time-out: one value would hold a process for
    # as long as its writer likes. This one takes time in proportion to the text; it knows no look-around and no
    # back-references, and does not compile them. Raises SchemaError.
    return SchemaValidator(core_schema.str_schema(pattern=pattern, regex_engine="rust-regex"))


def _matches(pattern: str, text: str) -> bool:
    return _engine(pattern).isinstance_python(text)


def _pattern(_: Any, pattern: str, instance: Any, __: Any) -> Iterator[ValidationError]:
    if isinstance(instance, str) and not _matches(pattern, instance):
        yield ValidationError("")


def _pattern_properties(validator: Any, patterns: Any, instance: Any, _: Any) -> Iterator[ValidationError]:
    if isinstance(instance, dict):
        for pattern, subschema in patterns.items():
            for name, value in instance.items():
                if _matches(pattern, name):
                    yield from validator.descend(value, subschema, path=name, schema_path=pattern)


def _additional_properties(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if not isinstance(instance, dict):
        return
    named, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    for name, value in instance.items():
        if name in named or any(_matches(pattern, name) for pattern in patterns):
            continue
        if wanted is False:
            yield ValidationError("")
            return
        yield from validator.descend(value, wanted, path=name)


_Validator = extend(  # type: ignore[no-untyped-call]
    Draft202012Validator,
    {
        "uniqueItems": _unique_items,
        "multipleOf": _multiple_of,
        "pattern": _pattern,
        "patternProperties": _pattern_properties,
        "additionalProperties": _additional_properties,
    },
)
_FORMAT_CHECKER = _format_checker()
_META_VALIDATOR = Draft202012Validator(Draft202012Validator.META_SCHEMA)

_CODES = {
    "type": "wrong_type",
    "enum": "not_in_enum",
    "const": "not_in_enum",
    "format": "bad_format",
    "pattern": "bad_pattern",
    "minLength": "too_short",
    "maxLength": "too_long",
    "minimum": "too_small",
    "exclusiveMinimum": "too_small",
    "maximum": "too_big",
    "exclusiveMaximum": "too_big",
    "multipleOf": "not_a_multiple",
    "minItems": "too_few_items",
    "minContains": "too_few_items",
    "contains": "too_few_items",
    "maxItems": "too_many_items",
    "maxContains": "too_many_items",
    "uniqueItems": "not_unique",
    "required": "missing",
    "dependentRequired": "missing",
    "minProperties": "too_few_fields",
    "maxProperties": "too_many_fields",
    "additionalProperties": "unknown_field",
    "unevaluatedProperties": "unknown_field",
    "propertyNames": "bad_field_name",
    "anyOf": "no_alternative",
    "oneOf": "no_alternative",
    "not": "forbidden",
}

# --- walking a schema ---------------------------------------------------------------------------------------------

_Pointer = tuple[str, ...]

_IN_PLACE_ONE: _Pointer = ("not", "if", "then", "else")
_IN_PLACE_MANY: _Pointer = ("allOf", "anyOf", "oneOf")
_IN_PLACE_NAMED: _Pointer = ("dependentSchemas",)
_BELOW_ONE: _Pointer = (
    "additionalProperties",
    "unevaluatedProperties",
    "items",
    "unevaluatedItems",
    "contains",
    "propertyNames",
    "contentSchema",
)
_BELOW_MANY: _Pointer = ("prefixItems",)
_BELOW_NAMED: _Pointer = ("properties", "patternProperties", "$defs", "definitions")
_REFUSED_KEYWORDS = (
    "$dynamicRef",
    "$dynamicAnchor",
    "$anchor",
    "$vocabulary",
    "$recursiveRef",
    "$recursiveAnchor",
)
_DRAFT = "https://json-schema.org/draft/2020-12/schema"


def _children(schema: Mapping[str, Any]) -> Iterator[tuple[_Pointer, Any, bool]]:
    """Yield (steps, subschema, whether it is applied to the same instance) for each direct subschema."""
    for keywords, in_place in ((_IN_PLACE_ONE, True), (_BELOW_ONE, False)):
        for keyword in keywords:
            if keyword in schema:
                yield (keyword,), schema[keyword], in_place
    for keywords, in_place in ((_IN_PLACE_MANY, True), (_BELOW_MANY, False)):
        for keyword in keywords:
            for position, child in enumerate(schema.get(keyword, ())):
                yield (keyword, str(position)), child, in_place
    for keywords, in_place in ((_IN_PLACE_NAMED, True), (_BELOW_NAMED, False)):
        for keyword in keywords:
            for name, child in schema.get(keyword, {}).items():
                yield (keyword, name), child, in_place


def _walk(schema: Any, at: _Pointer = ()) -> Iterator[tuple[_Pointer, Any]]:
    yield at, schema
    if isinstance(schema, dict):
        for steps, child, _ in _children(schema):
            yield from _walk(child, at + steps)


def _reference(reference: str) -> _Pointer:
    """Return the pointer that a local `$ref` names. Raises ValueError for any other reference."""
    if reference == "#":
        return ()
    if not reference.startswith("#/"):
        raise ValueError("not a local reference")
    return tuple(step.replace("~1", "/").replace("~0", "~") for step in unquote(reference[2:]).split("/"))


_NAME = re.compile(r"[A-Za-z0-9_$.\-]{1,64}")


def _schema_path(steps: _Pointer) -> str:
    return ".".join(("schema", *(step if _NAME.fullmatch(step) else "*" for step in steps)))


def _check_json(schema: Any, at: _Pointer, depth: int) -> None:
    kind = type(schema)
    if kind is dict or kind is list:
        if depth >= MAX_SCHEMA_DEPTH:
            raise SchemaRefused(_schema_path(at[:4]), "too_deep")
        for key, item in schema.items() if kind is dict else enumerate(schema):
            if kind is dict and type(key) is not str:
                raise SchemaRefused(_schema_path(at), "not_json")
            _check_json(item, (*at, str(key)), depth + 1)
    elif not (
        schema is None
        or kind in (str, bool)
        or (kind is float and math.isfinite(schema))
        or (kind is int and _INT_MIN <= schema <= _INT_MAX)
    ):
        raise SchemaRefused(_schema_path(at), "not_json")


def check_schema(schema: dict[str, Any]) -> None:
    """Accept `schema` as the JSON Schema (draft 2020-12) of an attribute's value.

    Raises SchemaRefused unless it is valid, at most 64 KiB and 32 deep, refers only to its own parts (`#`, `#/…`)
    and never to itself for the same instance, has only patterns that compile (without look-around and back-references,
    so that matching takes time in proportion to the text), and names only constants and fields that a canonical value
    can have. Formats that are not checked here are annotations, as the standard has it.
    """
    if type(schema) is not dict:
        raise SchemaRefused("schema", "not_an_object")
    _check_json(schema, (), 0)
    if len(canonical_text(schema).encode("utf-8", "surrogatepass")) > MAX_SCHEMA_BYTES:
        raise SchemaRefused("schema", "too_large")
    if schema.get("$schema", _DRAFT) not in (_DRAFT, f"{_DRAFT}#"):
        raise SchemaRefused("schema.$schema", "not_draft_2020_12")
    for error in _META_VALIDATOR.iter_errors(schema):
        raise SchemaRefused(_schema_path(tuple(str(step) for step in error.absolute_path)), "invalid_schema")
    subschemas = dict(_walk(schema))
    for at, subschema in subschemas.items():
        if isinstance(subschema, dict):
            _check_subschema(at, subschema, subschemas)
    _check_recursion(subschemas)


def _check_subschema(at: _Pointer, schema: dict[str, Any], subschemas: Mapping[_Pointer, Any]) -> None:
    for keyword in _REFUSED_KEYWORDS:
        if keyword in schema:
            raise SchemaRefused(_schema_path((*at, keyword)), "unsupported_keyword")
    for keyword in ("$id", "$schema"):
        if at and keyword in schema:
            raise SchemaRefused(_schema_path((*at, keyword)), "only_at_the_root")
    if "$ref" in schema:
        try:
            target = _reference(schema["$ref"])
        except ValueError:
            target = None
        if target is None:
            raise SchemaRefused(_schema_path((*at, "$ref")), "not_a_local_reference")
        if target not in subschemas:
            raise SchemaRefused(_schema_path((*at, "$ref")), "unknown_reference")
    if "unevaluatedProperties" in schema and any("patternProperties" in each for each in _objects(subschemas)):
        # jsonschema matches names there by Python's engine.
        raise SchemaRefused(_schema_path((*at, "unevaluatedProperties")), "unsupported_keyword")
    patterns: list[tuple[_Pointer, str]] = [(("pattern",), schema["pattern"])] if "pattern" in schema else []
    patterns += [(("patternProperties", name), name) for name in schema.get("patternProperties", {})]
    for steps, pattern in patterns:
        if len(pattern) > MAX_PATTERN_LENGTH or not _compiles(pattern):
            raise SchemaRefused(_schema_path((*at, *steps)), "bad_pattern")
    constants: list[tuple[_Pointer, Any]] = [
        (("enum", str(n)), member) for n, member in enumerate(schema.get("enum", ()))
    ]
    constants += [(("const",), schema["const"])] if "const" in schema else []
    for steps, constant in constants:
        if not _is_clean(constant):
            raise SchemaRefused(_schema_path((*at, *steps)), "not_canonical")
    names = {*schema.get("properties", ()), *schema.get("required", ())}
    if not all(_is_clean({name: None}) for name in names):
        raise SchemaRefused(_schema_path((*at, "properties")), "not_canonical")


def _objects(subschemas: Mapping[_Pointer, Any]) -> Iterator[dict[str, Any]]:
    return (each for each in subschemas.values() if isinstance(each, dict))


def _compiles(pattern: str) -> bool:
    try:
        _engine(pattern)
    except SchemaError:
        return False
    return True


def _is_clean(value: Any) -> bool:
    try:
        return canonical_text(_Cleaner(frozenset()).clean(value)) == canonical_text(_plain_numbers(value))
    except ValueRefused:
        return False


def _plain_numbers(value: Any) -> Any:
    # 1.0 in a list of choices is no mistake: it means 1, which jsonschema knows.
    if isinstance(value, float) and value.is_integer() and _INT_MIN <= value <= _INT_MAX:
        return int(value)
    if isinstance(value, list):
        return [_plain_numbers(item) for item in value]
    if isinstance(value, dict):
        return {name: _plain_numbers(item) for name, item in value.items()}
    return value


def _check_recursion(subschemas: Mapping[_Pointer, Any]) -> None:
    """Refuse a schema that comes back to itself, or nests too far, without going down into the instance."""
    depths: dict[_Pointer, int | None] = {}

    def depth(at: _Pointer) -> int:
        if at in depths:
            known = depths[at]
            if known is None:
                raise SchemaRefused(_schema_path(at), "endless_reference")
            return known
        depths[at] = None
        schema = subschemas[at]
        below = 0
        if isinstance(schema, dict):
            targets = [at + steps for steps, _, in_place in _children(schema) if in_place]
            if "$ref" in schema:
                targets.append(_reference(schema["$ref"]))
            below = max((depth(target) + 1 for target in targets), default=0)
        if below > MAX_SCHEMA_DEPTH:
            raise SchemaRefused(_schema_path(at), "too_deep")
        depths[at] = below
        return below

    try:
        for at in subschemas:
            depth(at)
    except RecursionError:
        raise SchemaRefused("schema", "too_deep") from None


# --- numbers ------------------------------------------------------------------------------------------------------


def _number(value: float | Decimal, path: str) -> float:
    """Return the one form of a number: an int where it is whole and has at most 64 bits, else a float.

    A float stands for the shortest decimal that names it, as in JSON. Raises ValueRefused for NaN, infinities, and
    numbers that no form says as written.
    """
    if type(value) is int and _INT_MIN <= value <= _INT_MAX:
        return value
    try:
        nearest = float(value) if value == value else math.nan
    except (OverflowError, InvalidOperation):
        nearest = math.inf
    if isinstance(value, Decimal):
        if not value.is_finite():
            raise ValueRefused(path, "not_finite")
        # Without this bound a short text such as 1e99999999 would become an int of as many digits.
        if math.isfinite(nearest) and value.adjusted() < 20 and value == value.to_integral_value():
            whole = int(value)
            if _INT_MIN <= whole <= _INT_MAX:
                return whole
    elif type(value) is float and not math.isfinite(nearest):
        raise ValueRefused(path, "not_finite")
    if not math.isfinite(nearest) or (type(value) is not float and Decimal(repr(nearest)) != value):
        raise ValueRefused(path, "not_exact")
    if not nearest.is_integer() or abs(nearest) >= 2.0**64:
        return nearest
    whole = int(nearest) if abs(nearest) < 2.0**53 else int(Decimal(repr(nearest)))
    return whole if _INT_MIN <= whole <= _INT_MAX else nearest


# --- cleaning a value ---------------------------------------------------------------------------------------------


class _Cleaner:
    """Brings one JSON value into the form that is validated: NFC, trimmed, one spelling a number, bounded."""

    def __init__(self, known: frozenset[str]) -> None:
        self._known = known
        self._budget = _MAX_RAW_CHARACTERS

    def clean(self, value: Any, path: str = "value", depth: int = 0) -> Any:
        kind = type(value)
        if kind is str:
            self._spend(len(value), path)
            return clean_text(value, path=path).strip()
        self._spend(1, path)
        if value is None or kind is bool:
            return value
        if kind is int or kind is float or kind is Decimal:
            return _number(value, path)
        if kind is list:
            self._descend(depth, path)
            return [self.clean(item, f"{path}.{position}", depth + 1) for position, item in enumerate(value)]
        if kind is dict:
            self._descend(depth, path)
            return self._mapping(value, path, depth)
        raise ValueRefused(path, "not_json")

    def _mapping(self, value: dict[Any, Any], path: str, depth: int) -> dict[str, Any]:
        cleaned: dict[str, Any] = {}
        for key, item in value.items():
            if type(key) is not str:
                raise ValueRefused(path, "not_json")
            self._spend(len(key), path)
            name = clean_text(key, path=f"{path}.*")
            if name in cleaned:
                raise ValueRefused(f"{path}.{name if name in self._known else '*'}", "duplicate_field")
            cleaned[name] = self.clean(item, f"{path}.{name if name in self._known else '*'}", depth + 1)
        return {name: cleaned[name] for name in sorted(cleaned)}

    def _descend(self, depth: int, path: str) -> None:
        if depth >= MAX_VALUE_DEPTH:
            raise ValueRefused(path, "too_deep")

    def _spend(self, cost: int, path: str) -> None:
        self._budget -= cost
        if self._budget < 0:
            raise ValueRefused(path, "too_large")


# --- schemas, compiled --------------------------------------------------------------------------------------------

_ANNOTATIONS = frozenset(
    (
        "$schema",
        "$id",
        "$comment",
        "title",
        "description",
        "examples",
        "default",
        "deprecated",
        "readOnly",
        "writeOnly",
    )
)
_TEXT_KEYWORDS = frozenset(("type", "enum", "format", "minLength", "maxLength")) | _ANNOTATIONS
_NUMBER_KEYWORDS = frozenset(("type", "minimum", "maximum")) | _ANNOTATIONS


def _quick_check(schema: Mapping[str, Any]) -> Callable[[Any], bool] | None:
    """Return a test that is true only for cleaned values that are valid, or None where the schema is not simple.

    Where the test is false the full validator decides, so the two cannot disagree about a refusal.
    """
    declared = schema.get("type")
    keywords = schema.keys()
    if declared == "string" and keywords <= _TEXT_KEYWORDS:
        shortest, longest = schema.get("minLength", 0), schema.get("maxLength", math.inf)
        has_format = _FORMATS.get(schema.get("format", ""))
        members = None
        if "enum" in schema:
            members = frozenset(member for member in schema["enum"] if isinstance(member, str))

        def is_text(value: Any) -> bool:
            return (
                type(value) is str
                and (members is None or value in members)
                and shortest <= len(value) <= longest
                and (has_format is None or has_format(value))
            )

        return is_text
    if declared in ("number", "integer") and keywords <= _NUMBER_KEYWORDS:
        kinds = (int,) if declared == "integer" else (int, float)
        least, most = schema.get("minimum", -math.inf), schema.get("maximum", math.inf)
        return lambda value: type(value) in kinds and least <= value <= most
    if declared == "boolean" and keywords <= {"type"} | _ANNOTATIONS:
        return lambda value: type(value) is bool
    if keywords <= {"enum"} | _ANNOTATIONS and "enum" in schema:
        texts = frozenset(member for member in schema["enum"] if isinstance(member, str))
        return lambda value: type(value) is str and value in texts
    return None


class Compiled:
    """One attribute's schema, checked once and ready to make values canonical."""

    def __init__(self, schema: dict[str, Any]) -> None:
        """Raises SchemaRefused as `check_schema` does."""
        check_schema(schema)
        self._schema = schema
        self._subschemas = dict(_walk(schema))
        named = [item for item in self._subschemas.values() if isinstance(item, dict)]
        self._known = frozenset(
            name for item in named for name in (*item.get("properties", ()), *item.get("required", ()))
        )
        self._rewrites = any(item.get("format") in _REWRITES for item in named)
        self._quick = _quick_check(schema)
        # An empty registry: nothing is ever fetched, whatever a schema names.
        self._validator = cast(
            Draft202012Validator, _Validator(schema, format_checker=_FORMAT_CHECKER, registry=Registry())
        )

    def canonical(self, value: Any) -> Any:
        """Validate `value` and return its canonical form. Guarantees and errors are those of `canonical`."""
        cleaned = _Cleaner(self._known).clean(value)
        quick = self._quick
        if quick is None or not quick(cleaned):
            self._validate(cleaned)
        if self._rewrites:
            cleaned = self._rewritten(cleaned)
        # No character takes more than four bytes in canonical JSON, so short texts need no measuring.
        if type(cleaned) is str:
            if 4 * len(cleaned) + 2 > MAX_VALUE_BYTES:
                self._measure(cleaned)
        elif type(cleaned) in (list, dict):
            self._measure(cleaned)
        return cleaned

    def _measure(self, cleaned: Any) -> None:
        if len(canonical_text(cleaned).encode()) > MAX_VALUE_BYTES:
            raise ValueRefused("value", "too_large")

    def _validate(self, cleaned: Any) -> None:
        try:
            error = next(self._validator.iter_errors(cleaned), None)
            refusal = None if error is None else ValueRefused(*self._explain(error))
        except RecursionError:
            refusal = ValueRefused("value", "too_deep")
        if refusal is not None:
            # Raised out here, so that it has no context: jsonschema's errors hold the value.
            raise refusal

    def _explain(self, error: ValidationError) -> tuple[str, str]:
        steps = [step if isinstance(step, int) or step in self._known else "*" for step in error.absolute_path]
        if error.validator == "required":
            present = cast(dict[str, Any], error.instance)
            steps.append(next(name for name in cast(list[str], error.validator_value) if name not in present))
        elif error.validator in ("additionalProperties", "unevaluatedProperties", "propertyNames"):
            steps.append("*")
        return ".".join(("value", *map(str, steps))), _CODES.get(str(error.validator), "invalid")

    def _rewritten(self, cleaned: Any) -> Any:
        # The canonical spelling must be valid too, and its own canonical form: a pattern may want another spelling.
        rewritten = self._rewrite(self._schema, cleaned)
        if rewritten != cleaned:
            self._validate(rewritten)
            if self._rewrite(self._schema, rewritten) != rewritten:
                raise ValueRefused("value", "no_canonical_form")
        return rewritten

    def _rewrite(self, schema: Any, value: Any) -> Any:
        """Return the valid `value` with the formats that `schema` demands of it in their canonical spelling."""
        if not isinstance(schema, dict):
            return value
        if type(value) is str:
            rewrite = _REWRITES.get(schema.get("format", ""))
            if rewrite is not None:
                value = rewrite(value) or value
        for applied in self._applied(schema, value):
            value = self._rewrite(applied, value)
        if type(value) is list:
            leading = schema.get("prefixItems", [])
            rest = schema.get("items", True)
            return [
                self._rewrite(leading[position] if position < len(leading) else rest, item)
                for position, item in enumerate(value)
            ]
        if type(value) is dict:
            return {name: self._rewrite_field(schema, name, item) for name, item in value.items()}
        return value

    def _applied(self, schema: dict[str, Any], value: Any) -> Iterator[Any]:
        if "$ref" in schema:
            yield self._subschemas[_reference(schema["$ref"])]
        yield from schema.get("allOf", ())
        for keyword in ("anyOf", "oneOf"):
            yield from (branch for branch in schema.get(keyword, ()) if self._holds(branch, value))
        if "if" in schema:
            yield from (
                (schema["if"], schema.get("then", True))
                if self._holds(schema["if"], value)
                else (schema.get("else", True),)
            )
        if type(value) is dict:
            yield from (item for name, item in schema.get("dependentSchemas", {}).items() if name in value)

    def _holds(self, schema: Any, value: Any) -> bool:
        return bool(self._validator.evolve(schema=schema).is_valid(value))

    def _rewrite_field(self, schema: dict[str, Any], name: str, item: Any) -> Any:
        properties = schema.get("properties", {})
        named = [properties[name]] if name in properties else []
        named += [child for pattern, child in schema.get("patternProperties", {}).items() if _matches(pattern, name)]
        for child in named or [schema.get("additionalProperties", True)]:
            item = self._rewrite(child, item)
        return item


@lru_cache(maxsize=4096)
def _compiled(text: str) -> Compiled:
    return Compiled(json.loads(text))


# Keys in the order given: sorting costs, and another order only compiles a second time.
_KEY_ENCODER = json.JSONEncoder(separators=(",", ":"), check_circular=False)


def compiled(schema: dict[str, Any]) -> Compiled:
    """Return the compiled form of `schema`, cached by its text. Raises SchemaRefused as `check_schema` does."""
    if type(schema) is not dict:
        raise SchemaRefused("schema", "not_an_object")
    try:
        text = _KEY_ENCODER.encode(schema)
    except (TypeError, ValueError, RecursionError):
        text = None
    if text is None:
        raise SchemaRefused("schema", "not_json")
    return _compiled(text)


def canonical(schema: dict[str, Any], value: Any) -> Any:
    """Validate a JSON `value` against `schema` and return its canonical form.

    1. Text becomes NFC, with `\\n` line ends, trimmed; controls, NUL and lone surrogates are refused.
    2. Numbers get one form: whole ones (1.0, 1e2, Decimal) are ints, -0.0 is 0; NaN and infinities are refused, and
       so is a Decimal or big int that no 64-bit number says exactly.
    3. Fields are sorted by name, at every depth; lists keep their order.
    4. The result must be valid, formats included.
    5. Where the schema asks for `date-time` the instant is in UTC with `Z`; `time` keeps its offset; `uuid` is lower
       case. Dates are ISO already. The rewritten value must be valid too.

    Guarantees: canonical of a canonical value is that value. Raises ValueRefused for anything that is not JSON of at
    most 16 KiB (canonical, UTF-8) and 8 levels, or not valid; SchemaRefused where the schema is at fault.
    """
    return compiled(schema).canonical(value)
