"""Every field that is stored stands in the content register, once, and what it says of the models is true."""

from collections import Counter
from typing import Any
from uuid import uuid4

import pytest
from django.apps import apps
from django.contrib.postgres.fields import ArrayField
from django.db import models

from retention.register import EXCEPTIONS, OTHER_TABLES, REASONS, Holds, register

CANARY = "canary-5f3c"
REGISTER = dict(register())
MODELS = sorted(apps.get_models(include_auto_created=True), key=lambda model: model._meta.label)
FIELDS = {f"{model._meta.label}.{field.name}": field for model in MODELS for field in model._meta.local_concrete_fields}
APPS = ("tenants", "policies", "memory", "retention")
OURS = [model for model in MODELS if model._meta.app_label in APPS and not model._meta.auto_created]


def is_historical(label: str) -> bool:
    return label.split(".")[1].startswith("Historical")


def is_open(field: models.Field) -> bool:
    """Whether the type alone would let a field hold anything."""
    if isinstance(field, ArrayField):
        return is_open(field.base_field)
    return isinstance(field, models.CharField | models.TextField | models.BinaryField | models.JSONField)


def test_every_field_of_every_model_is_registered_and_nothing_else_is() -> None:
    assert sorted(set(FIELDS) - set(REGISTER)) == [], "not in the content register"
    assert sorted(set(REGISTER) - set(FIELDS)) == [], "registered, but no field of any model"


def test_no_field_is_registered_twice() -> None:
    assert [name for name, times in Counter(name for name, _ in register()).items() if times > 1] == []


def test_only_payloads_hold_content_but_for_the_named_exceptions() -> None:
    content = {name for name, holds in REGISTER.items() if holds is Holds.CONTENT}
    assert {"memory.Payload.clear", "memory.Payload.sealed"} | set(EXCEPTIONS) == content
    assert all(EXCEPTIONS.values())


def test_no_history_keeps_content() -> None:
    historical = {name: holds for name, holds in REGISTER.items() if is_historical(name)}
    assert historical
    assert Holds.CONTENT not in historical.values()
    tracked = {name.replace("Historical", "") for name in historical}
    assert tracked.isdisjoint(name for name, holds in REGISTER.items() if holds is Holds.CONTENT)


def test_a_field_in_history_holds_what_the_living_one_holds() -> None:
    for name, holds in REGISTER.items():
        living = name.replace(".Historical", ".")
        if is_historical(name) and living in REGISTER:
            assert REGISTER[living] is holds, name


def test_digests_and_ids_that_people_could_be_found_by_are_pseudonymous() -> None:
    for name in (
        "memory.SubjectIdentifier.digest",
        "memory.Fact.value_digest",
        "memory.Candidate.value_digest",
        "memory.Episode.content_digest",
        "memory.Episode.session_id",
        "memory.Evidence.turn_id",
        "policies.Consent.ref",
        "policies.Consent.subject_id",
    ):
        assert REGISTER[name] is Holds.PSEUDONYMOUS, name


_CODES = frozenset(
    [
        "state",
        "role",
        "kind",
        "cardinality",
        "basis",
        "redaction_state",
        "redaction_fields",
        "writer_kind",
        "actor_kind",
        "source",
        "act",
        "purpose",
        "verdict",
        "ended_by",
        "retraction_reason",
        "topic",
        "extraction",
        "confirm_by",
        "history_change_reason",
        "history_type",
        "action",
    ]
)


def test_whatever_could_hold_anything_says_why_it_does_not() -> None:
    silent = [
        name
        for name, field in FIELDS.items()
        if REGISTER.get(name) is not Holds.CONTENT
        and is_open(field)
        and name not in REASONS
        and name.rsplit(".", 1)[1] not in _CODES
        and not is_historical(name)
        and name.split(".")[0] in APPS
    ]
    assert silent == []
    assert sorted(set(REASONS) - set(FIELDS)) == []


@pytest.mark.parametrize("model", OURS, ids=lambda model: model._meta.label)
def test_a_row_shows_its_type_and_short_id_only(model: type[models.Model]) -> None:
    row = model()
    for field in model._meta.local_concrete_fields:
        if is_open(field):
            setattr(row, field.attname, _canary(field))
    if model._meta.pk is not None and not is_open(model._meta.pk):
        setattr(row, model._meta.pk.attname, uuid4() if isinstance(model._meta.pk, models.UUIDField) else 7)
    for shown in (str(row), repr(row), f"{row}"):
        assert CANARY not in shown
        assert len(shown) < 80


def _canary(field: models.Field) -> Any:
    if isinstance(field, ArrayField):
        return [_canary(field.base_field)]
    if isinstance(field, models.BinaryField):
        return CANARY.encode()
    return {"x": CANARY} if isinstance(field, models.JSONField) else CANARY


def test_every_table_of_the_database_is_registered(owner: Any) -> None:
    tables = {
        row[0]
        for row in owner.execute(
            "SELECT relname::text FROM pg_class WHERE relkind IN ('r', 'p', 'm', 'v', 'f')"
            " AND relnamespace = 'public'::regnamespace"
        ).fetchall()
    }
    described = {model._meta.db_table for model in MODELS}
    assert tables == described | set(OTHER_TABLES)


def test_every_column_of_the_database_is_a_registered_field(owner: Any) -> None:
    columns = set(
        owner.execute(
            "SELECT table_name::text, column_name::text FROM information_schema.columns WHERE table_schema = 'public'"
            " AND table_name <> ALL (%s)",
            [list(OTHER_TABLES)],
        ).fetchall()
    )
    assert columns == {
        (model._meta.db_table, field.column) for model in MODELS for field in model._meta.local_concrete_fields
    }
