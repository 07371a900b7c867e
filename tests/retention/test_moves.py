"""Behaviours that users of such systems reported of moved data: exports, imports, rotations, restores, changed models."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from memory import remember
from memory.contracts import FactBody, parse
from retention import rotation, transfer
from tenants.actors import Actor, ActorKind
from tenants.isolation import Role, tenant_transaction
from tests.memory.background import settle_all, worker_rows
from tests.organisation import Organisation, new_organisation
from tests.paths.ledger import Ledger, publish, saying

pytestmark = pytest.mark.usefixtures("database")


def exported(tenant: Organisation, folder: Path, name: str = "export.jsonl") -> Path:
    file = folder / name
    with open(file, "w", encoding="utf-8") as out:
        transfer.write_out(operator(tenant), out, now=datetime.now(UTC))
    return file


def operator(tenant: Organisation) -> Actor:
    return Actor(kind=ActorKind.OPERATOR, id=UUID(int=0), tenant=tenant.id)


@pytest.mark.parametrize("phase", ["_rewrap", "_reindex", "_retire", "_write_down", "_destroy"])
def test_c022_a_delete_in_any_phase_of_a_move_is_visible_where_it_is_read(
    tenant: Any, agent: Any, monkeypatch: pytest.MonkeyPatch, phase: str
) -> None:
    monkeypatch.setattr(rotation, "GRACE", timedelta())
    publish(tenant)
    ledger = Ledger(agent)
    gone = ledger.said("mira", "tag", "zanzibar")
    kept = ledger.said("mira", "tag", "lisbon")
    settle_all(tenant)
    step: Callable[..., Any] = getattr(rotation, phase)
    seen: list[Any] = []

    def meanwhile(*given: Any, **more: Any) -> Any:
        if not seen:
            taken = ledger.post(f"/facts/{gone['fact']['id']}/retract/", {"reason": "recorded_wrongly"})
            assert taken.status_code == 200, taken.content
            asked = {"question": "zanzibar lisbon", "subject": "mira", "purpose": "support", "budget_tokens": 500}
            seen.append((ledger.values("mira", "tag"), ledger.post("/recall/", asked).json()["text"]))
        return step(*given, **more)

    monkeypatch.setattr(rotation, phase, meanwhile)
    done = rotation.rotate(operator(tenant))
    assert (done.waits_for, kept["change"]) == ("", "new")
    ((values, text),) = seen
    assert values == ["lisbon"]
    assert "zanzibar" not in text
    assert ledger.values("mira", "tag") == ["lisbon"]


def test_c039_what_any_client_wrote_under_a_tenant_every_client_reads_there_alone(
    tenant: Any, other_tenant: Any, agent: Any, tmp_path: Path
) -> None:
    for each in (tenant, other_tenant):
        publish(each)
    ledger, foreign = Ledger(agent), Ledger(other_tenant.agent("stranger"))
    ledger.said("mira", "tag", "by one")
    ledger.post("/facts/batch/", {"items": [saying("mira", "tag", "by batch")]})
    with tenant_transaction(Role.WRITER, tenant=tenant.id, clearance=3, actor=agent.actor.id):
        remember.facts(agent.actor, [parse(FactBody, saying("mira", "tag", "in process"))])
    foreign.said("mira", "tag", "of another")
    transfer.read_in(tenant.id, exported(other_tenant, tmp_path), now=datetime.now(UTC))
    every = ["by batch", "by one", "in process", "of another"]
    assert sorted(ledger.values("mira", "tag")) == every
    assert sorted(Ledger(tenant.agent("second")).values("mira", "tag")) == every
    assert foreign.values("mira", "tag") == ["of another"]
    told = [
        json.loads(line) for line in exported(tenant, tmp_path, "all.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    assert sorted(each["value"] for each in told if each["line"] == "evidence") == every


def test_c062_every_tool_keeps_to_the_tenant_that_it_is_given(
    tenant: Any, other_tenant: Any, agent: Any, tmp_path: Path
) -> None:
    for each in (tenant, other_tenant):
        publish(each)
    Ledger(agent).said("mira", "city", "Lisbon")
    foreign = Ledger(other_tenant.agent("stranger"))
    foreign.said("nora", "city", "Oslo")
    counted = (
        "SELECT (SELECT count(*) FROM memory_evidence), (SELECT count(*) FROM memory_subject),"
        " (SELECT count(*) FROM tenants_auditevent)"
    )
    before = worker_rows(other_tenant, counted)
    file = exported(tenant, tmp_path)
    assert "nora" not in file.read_text(encoding="utf-8")
    assert "Oslo" not in file.read_text(encoding="utf-8")
    rotation.rotate(operator(tenant))
    transfer.read_in(tenant.id, file, now=datetime.now(UTC))
    assert worker_rows(other_tenant, counted) == before
    assert foreign.values("nora", "city") == ["Oslo"]
    assert Ledger(agent).values("nora", "city") == []


def test_c093_naming_one_thing_of_a_subject_leaves_the_others_as_they_are(tenant: Any, agent: Any) -> None:
    publish(tenant)
    ledger = Ledger(agent)
    whole = "SELECT to_jsonb(s)::text FROM memory_subject s"
    names = "SELECT i.id, encode(i.digest, 'hex'), i.is_key FROM memory_subjectidentifier i ORDER BY i.id"
    assert (
        agent.api.put(
            "/api/v1/subjects/", {"key": "mira", "kind": "person"}, content_type="application/json"
        ).status_code
        < 300
    )
    before, named = worker_rows(tenant, whole), worker_rows(tenant, names)
    for body in ({"key": "mira", "aliases": ["customer 7"]}, {"key": "mira"}):
        assert agent.api.put("/api/v1/subjects/", body, content_type="application/json").status_code < 300
    assert worker_rows(tenant, whole) == before
    assert worker_rows(tenant, names)[: len(named)] == named
    # A correction of when a fact began leaves what it says.
    said = ledger.said("mira", "city", "Oslo", valid_from="2026-02-01T00:00:00Z")
    ledger.said("mira", "city", "Oslo", valid_from="2026-01-01T00:00:00Z", corrects=said["evidence"])
    (fact,) = ledger.facts(subject="mira", attribute="city")
    assert (fact["value"], fact["valid_from"][:10]) == ("Oslo", "2026-01-01")


def test_c132_after_a_change_of_the_model_every_write_path_works(tenant: Any, agent: Any, tmp_path: Path) -> None:
    publish(tenant)
    ledger = Ledger(agent)
    old = ledger.said("mira", "city", "Lisbon", valid_from="2026-01-01T00:00:00Z")
    kept = ledger.said("mira", "tag", "before", valid_from="2026-01-01T00:00:00Z")
    publish(
        tenant,
        [
            {"name": "city", "schema": {"type": "string", "maxLength": 300}, "sensitivity": "internal", "conflict": "latest",
             "description": "Where somebody lives."},
            {"name": "tag", "schema": {"type": "string", "maxLength": 300}, "cardinality": "multi", "sensitivity": "internal",
             "description": "A word about somebody."},
            {"name": "street", "schema": {"type": "string"}, "sensitivity": "internal"},
        ],
    )  # fmt: skip
    # Write, batch, correct, end, take back, name, keep an episode.
    ledger.said("mira", "city", "Porto", valid_from="2026-02-01T00:00:00Z")
    ledger.said("mira", "city", "Braga", valid_from="2026-01-01T00:00:00Z", corrects=old["evidence"])
    batch = ledger.post("/facts/batch/", {"items": [saying("mira", "street", "Main"), saying("mira", "tag", "after")]})
    assert [each["status"] for each in batch.json()["results"]] == [201, 201]
    assert ledger.say("mira", "tag", "after", ended=True, valid_from="2030-01-01T00:00:00Z").status_code == 201
    assert ledger.post(f"/facts/{kept['fact']['id']}/retract/", {"reason": "recorded_wrongly"}).status_code == 200
    episode = {"kind": "message", "role": "user", "content": "I live in Braga.", "session_id": "s", "turn_id": "t9",
               "subject": "mira", "occurred_at": "2026-02-02T00:00:00Z", "extract": "now"}  # fmt: skip
    assert ledger.post("/episodes/", episode).status_code == 201
    settle_all(tenant)
    rotation.rotate(operator(tenant))
    asked = [
        {"subject": "mira", "valid_at": at}
        for at in ("2026-01-15T00:00:00Z", "2026-03-01T00:00:00Z", "2031-01-01T00:00:00Z")
    ]
    target = new_organisation()
    for definitions in ([], [{"name": "street", "schema": {"type": "string"}, "sensitivity": "internal"}]):
        publish(target, definitions) if definitions else publish(target)
    done = transfer.read_in(target.id, exported(tenant, tmp_path), now=datetime.now(UTC))
    assert done.refused == []
    there = Ledger(target.agent("reader"))

    def told(each: Ledger) -> list[Any]:
        return [sorted((fact["attribute"], fact["value"]) for fact in each.facts(**query)) for query in asked]

    assert told(there) == told(ledger)
    assert ("city", "Braga") in told(ledger)[0]
