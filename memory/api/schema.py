"""The OpenAPI description of these endpoints, made from the very models that check requests.

Bodies and queries come from `memory.contracts` and `memory.api.queries`, so that the description cannot fall behind;
answers from `memory.api.answers`.
"""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from memory.api import answers
from memory.contracts import (
    BatchBody,
    CloseBody,
    ConsentBody,
    EndBody,
    EpisodeBody,
    ExplainBody,
    FactBody,
    ProcedureVersionBody,
    RecallBody,
    RetractBody,
    SubjectBody,
    WithdrawBody,
)
from tenants.api.describe import REF, add_schemas, schemas_of

_BODIES: tuple[type[BaseModel], ...] = (
    FactBody,
    BatchBody,
    EpisodeBody,
    RetractBody,
    SubjectBody,
    RecallBody,
    ConsentBody,
    WithdrawBody,
    ExplainBody,
    CloseBody,
    EndBody,
    ProcedureVersionBody,
)
_ANSWERS: tuple[type[BaseModel], ...] = (
    answers.FactsPage,
    answers.FactRead,
    answers.ProfileTextAnswer,
    answers.RecallAnswer,
    answers.Blind,
    answers.WrittenAnswer,
    answers.AskedAnswer,
    answers.BatchAnswer,
    answers.HistoryPage,
    answers.LineagePage,
    answers.RetractedAnswer,
    answers.EpisodeWritten,
    answers.EpisodeAnswer,
    answers.EpisodeDrawn,
    answers.CandidatesPage,
    answers.CandidateRead,
    answers.SubjectAnswer,
    answers.ConsentAnswer,
    answers.TermAnswer,
    answers.ExplainAnswer,
    answers.ProceduresPage,
    answers.ActiveProcedureAnswer,
    answers.ProposalsPage,
    answers.ProposedAnswer,
)

_FACT = {
    "subject": "mira",
    "attribute": "passport_deadline",
    "value": "2026-07-15",
    "valid_from": "2026-06-01T09:00:00Z",
    "provenance": {"turn_id": "turn-1"},
}
#: One request of each kind, as the guide and Swagger UI show it.
EXAMPLES: Mapping[str, Any] = {
    "FactBody": _FACT,
    "BatchBody": {"items": [_FACT, {**_FACT, "value": "2026-06-30", "valid_from": "2026-06-03T10:00:00Z"}]},
    "EpisodeBody": {
        "kind": "message",
        "role": "user",
        "content": "My passport must be renewed by 15 July 2026.",
        "session_id": "session-1",
        "turn_id": "turn-1",
        "subject": "mira",
        "occurred_at": "2026-06-01T09:00:00Z",
        "extract": "now",
    },
    "RetractBody": {"reason": "recorded_wrongly"},
    "SubjectBody": {"key": "mira", "kind": "person", "aliases": ["mira@example.org"]},
    "RecallBody": {
        "question": "When is Mira's passport deadline?",
        "subject": "mira",
        "purpose": "support",
        "budget_tokens": 800,
    },
    "ConsentBody": {"subject": "mira", "ref": "consent-2026-17", "purposes": ["support"]},
    "WithdrawBody": {},
    "CloseBody": {"subject": "mira"},
    "EndBody": {},
    "ExplainBody": {"fact": _FACT},
    "ProcedureVersionBody": {
        "body": "Ask for the order number before anything else. Refund at most 50 euros without asking a person.",
        "scope": "tenant",
        "test": {"kind": "evaluation", "reference": "refunds-2026-11", "result": "passed", "cases": 40, "passed": 40},
    },
}

_REFUSAL = {
    "description": "A refusal that the write door recorded: a problem document that says why, and by which rule.",
    "allOf": [
        {"$ref": REF.format(model="Problem")},
        {
            "type": "object",
            "properties": {
                "reasons": {"type": "array", "items": {"type": "string"}},
                "rule": {"type": "string"},
                "receipt": {"type": "string", "format": "uuid"},
            },
        },
    ],
}


def components() -> dict[str, Any]:
    """Return the schemas of every body and answer by name."""
    schemas = {**schemas_of(bodies=_BODIES, answers=_ANSWERS), "Refusal": _REFUSAL}
    schemas["BatchBody"]["properties"]["items"]["items"] = {"$ref": REF.format(model="FactBody")}
    for name, example in EXAMPLES.items():
        schemas[name]["examples"] = [example]
    return schemas


def add_components(result: dict[str, Any], **_kwargs: Any) -> dict[str, Any]:
    """Put `components()` into the description (a postprocessing hook of drf-spectacular)."""
    return add_schemas(result, components())


#: The name of a procedure in a path.
PROCEDURE_NAME: Mapping[str, Any] = {"name": {"type": "string", "pattern": "^[a-z][a-z0-9_-]{0,79}$"}}
#: The reference of a consent in a path.
CONSENT_REF: Mapping[str, Any] = {"ref": {"type": "string", "minLength": 1, "maxLength": 200}}
#: The id of a session in a path.
SESSION_ID: Mapping[str, Any] = {"id": CONSENT_REF["ref"]}
