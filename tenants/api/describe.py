"""How an app describes its endpoints: OpenAPI from the very pydantic models that check requests.

Not to be imported by the settings: REST framework reads them while this module loads.
"""

from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from typing import Any

from drf_spectacular.utils import OpenApiParameter, extend_schema
from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, models_json_schema

REF = "#/components/schemas/{model}"

Answers = type[BaseModel] | tuple[type[BaseModel], ...]


class _Generator(GenerateJsonSchema):
    # A default may be a mark that says "not sent" and is no JSON.
    ignored_warning_kinds = {"non-serializable-default"}


def schemas_of(*, bodies: Iterable[type[BaseModel]] = (), answers: Iterable[type[BaseModel]] = ()) -> dict[str, Any]:
    """Return the schemas of models and of what they are made of, by name. In an answer every member is always there."""
    wanted = [(bodies, "validation"), (answers, "serialization")]
    found: dict[str, Any] = {}
    for models, mode in wanted:
        _, schema = models_json_schema(
            [(model, mode) for model in models],  # type: ignore[misc]
            ref_template=REF,
            schema_generator=_Generator,
        )
        found |= schema.get("$defs", {})
    return found


def add_schemas(result: dict[str, Any], schemas: Mapping[str, Any]) -> dict[str, Any]:
    """Put `schemas` into a description that drf-spectacular made, and say of each operation what it left out."""
    result.setdefault("components", {}).setdefault("schemas", {}).update(schemas)
    for path in result.get("paths", {}).values():
        for operation in path.values():
            for status, response in operation.get("responses", {}).items():
                if not response.get("description") and status.isdigit():
                    response["description"] = HTTPStatus(int(status)).phrase
            if "requestBody" in operation:
                schema = operation["requestBody"]["content"]["application/json"]["schema"]
                named = schemas.get(schema.get("$ref", "").rpartition("/")[2])
                if named is not None and named.get("required"):
                    operation["requestBody"]["required"] = True
    return result


def described(
    operation: str,
    answer: type[BaseModel] | Mapping[int, Answers],
    *,
    body: type[BaseModel] | None = None,
    query: type[BaseModel] | None = None,
    path: Mapping[str, Any] | None = None,
    refusal: str | None = None,
) -> Callable[[Any], Any]:
    """Describe one method of an endpoint: its answers by status (200 alone where one is given), body, query and path.

    `refusal` names the schema of a refusal that was recorded, where the method has such.
    """
    by_status = answer if isinstance(answer, Mapping) else {200: answer}
    responses: dict[Any, Any] = {
        (status, "application/json"): _answered(models) for status, models in by_status.items()
    }
    if refusal is not None:
        responses |= {
            (status, "application/problem+json"): {"$ref": REF.format(model=refusal)} for status in (403, 409, 422)
        }
    return extend_schema(
        operation_id=operation,
        request=None if body is None else {"application/json": {"$ref": REF.format(model=body.__name__)}},
        responses=responses,
        parameters=[
            *([] if query is None else _parameters(query)),
            *(
                OpenApiParameter(name, schema, OpenApiParameter.PATH, required=True)
                for name, schema in (path or {}).items()
            ),
        ],
    )


def _answered(models: Answers) -> dict[str, Any]:
    if isinstance(models, tuple):
        return {"anyOf": [_answered(model) for model in models]}
    return {"$ref": REF.format(model=models.__name__)}


def _parameters(query: type[BaseModel]) -> list[OpenApiParameter]:
    schema = query.model_json_schema(schema_generator=_Generator)
    required = set(schema.get("required", ()))
    return [
        OpenApiParameter(name, _plain(member, schema), OpenApiParameter.QUERY, required=name in required)
        for name, member in schema["properties"].items()
    ]


def _plain(member: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    """Return a parameter's schema by itself: not sent is how a query says null."""
    choices = [each for each in member.get("anyOf", [member]) if each.get("type") != "null"]
    found = dict(choices[0])
    reference = found.pop("$ref", None)
    if reference is not None:
        found |= schema["$defs"][reference.rpartition("/")[2]]
    if member.get("default") is not None:
        found["default"] = member["default"]
    found.pop("title", None)
    return found


#: The id in a path.
ID: Mapping[str, Any] = {"id": {"type": "string", "format": "uuid"}}
