"""`load_attributes` and `load_policy`: what a file says comes into force, and the command says what changed."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from tests.organisation import Organisation, new_organisation
from tests.paths.ledger import CANARY


@pytest.fixture
def bare(database: Any) -> Organisation:
    """A tenant without a policy."""
    return new_organisation(with_policy=False)


def run(command: str, organisation: Organisation, file: Any, *, as_json: bool = True) -> Any:
    out = io.StringIO()
    call_command(command, organisation.slug, str(file), json=as_json, stdout=out)
    return json.loads(out.getvalue()) if as_json else out.getvalue()


def stored(path: Path, data: Any) -> Path:
    path.write_text(data if isinstance(data, str) else json.dumps(data), encoding="utf-8")
    return path


def test_attributes_come_into_force_and_the_command_says_what_changed(tenant: Any, tmp_path: Path) -> None:
    city = {"name": "city", "schema": {"type": "string"}}
    age = {"name": "age", "schema": {"type": "integer"}}
    assert run("load_attributes", tenant, stored(tmp_path / "a.json", [city]))["attributes"] == [
        {"name": "city", "version": 1, "outcome": "created", "fields": []}
    ]
    changed = stored(tmp_path / "b.json", {"attributes": [{**city, "sensitivity": "internal"}, age]})
    assert run("load_attributes", tenant, changed, as_json=False).splitlines() == [
        "city: changed, version 2 (sensitivity)",
        "age: created, version 1",
    ]
    again = run("load_attributes", tenant, changed)["attributes"]
    assert [each["outcome"] for each in again] == ["unchanged", "unchanged"]
    listed = tenant.agent().api.send("GET", "/api/v1/attributes/").json()["results"]
    assert [(each["name"], each["version"], each["sensitivity"]) for each in listed] == [
        ("city", 2, "internal"),
        ("age", 1, "personal"),
    ]


def test_the_shipped_policy_is_loaded_by_its_name(bare: Organisation) -> None:
    api = bare.agent().api
    body = {"subject": "mira", "attribute": "city", "value": "x", "provenance": {"turn_id": "t"}}
    without = api.send("POST", "/api/v1/facts/", body)
    assert (without.status_code, without.json()["code"]) == (409, "no_policy")
    loaded = run("load_policy", bare, "starter")
    assert (loaded["policy"], loaded["version"], loaded["outcome"]) == ("starter", 1, "created")
    assert run("load_policy", bare, "starter")["outcome"] == "unchanged"
    assert api.send("POST", "/api/v1/facts/", body).json()["code"] == "unknown_attribute"


def test_a_changed_policy_is_a_new_version_with_its_changes_named(tenant: Any, tmp_path: Path) -> None:
    from policies.rules import STARTER

    starter = json.loads(STARTER.read_text(encoding="utf-8"))
    told = run("load_policy", tenant, stored(tmp_path / "p.json", {**starter, "on_conflict": "refuse"}), as_json=False)
    assert told == "starter: changed, version 2 (on_conflict)\n"


@pytest.mark.parametrize(
    ("command", "content", "where"),
    [
        ("load_attributes", f"{CANARY}", "attributes: not_json"),
        ("load_attributes", [{"name": CANARY}], "attributes.0.schema: missing"),
        ("load_attributes", [{"name": "x", "schema": {"type": CANARY}}], "attributes.0.schema.type"),
        ("load_policy", {"name": "p", f"{CANARY} of a person": 1}, "unknown_field"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_by_place_and_changes_nothing(
    tenant: Any, tmp_path: Path, command: str, content: Any, where: str
) -> None:
    with pytest.raises(CommandError, match=where) as refused:
        run(command, tenant, stored(tmp_path / "f.json", content))
    assert CANARY not in str(refused.value)
    assert tenant.agent().api.send("GET", "/api/v1/attributes/").json()["results"] == []


def test_an_unknown_tenant_a_missing_file_and_other_text_are_one_line_each(tenant: Any, tmp_path: Path) -> None:
    for slug, file in (
        ("nobody-here", stored(tmp_path / "a.json", [])),
        (tenant.slug, tmp_path / "missing.json"),
    ):
        with pytest.raises(CommandError) as refused:
            call_command("load_attributes", slug, str(file))
        assert "\n" not in str(refused.value)
    (tmp_path / "latin.json").write_bytes(b"\xff\xfe")
    with pytest.raises(CommandError, match="not_utf8"):
        call_command("load_policy", tenant.slug, str(tmp_path / "latin.json"))
