"""What the OpenAPI description says of every endpoint alike: the key, the problem document, the idempotency key."""

from typing import Any

#: For drf-spectacular's APPEND_COMPONENTS.
COMPONENTS: dict[str, Any] = {
    "securitySchemes": {
        "ApiKey": {
            "type": "apiKey",
            "in": "header",
            "name": "Authorization",
            "description": "`Api-Key <prefix>.<secret>`, as `create_agent` prints it.",
        }
    },
    "schemas": {
        "Problem": {
            "type": "object",
            "description": "RFC 9457. Nothing in it repeats what was sent; `code` is stable.",
            "required": ["type", "title", "status", "code", "detail", "errors", "request_id"],
            "properties": {
                "type": {"type": "string"},
                "title": {"type": "string"},
                "status": {"type": "integer"},
                "code": {"type": "string"},
                "detail": {"type": "string"},
                "errors": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "required": ["path", "code"],
                        "properties": {"path": {"type": "string"}, "code": {"type": "string"}},
                    },
                },
                "request_id": {"type": "string"},
            },
        }
    },
}

_PROBLEM = {
    "description": "A problem document",
    "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
}
_IDEMPOTENCY_KEY = {
    "in": "header",
    "name": "Idempotency-Key",
    "required": False,
    "description": "Kept 7 days: the same key with the same body is answered again and done once.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 200},
}


def say_of_every_operation(result: dict[str, Any], **_kwargs: Any) -> dict[str, Any]:
    """Give every operation its `default` answer, and every POST its idempotency key (a postprocessing hook)."""
    for path in result.get("paths", {}).values():
        for method, operation in path.items():
            if not isinstance(operation, dict):
                continue
            operation.setdefault("responses", {}).setdefault("default", _PROBLEM)
            if method == "post":
                operation.setdefault("parameters", []).append(_IDEMPOTENCY_KEY)
    return result
