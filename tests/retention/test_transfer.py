"""Memory taken out of one tenant and brought into another answers every question as before, and nothing ended comes along."""

import json
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import connection

from memory import endings, recall, rows, suppression
from memory.subjects import opened
from retention import holds, matters, restricting, transfer
from retention.matters import Target
from tenants.actors import Actor, ActorKind, MemberRole
from tenants.errors import Malformed
from tenants.isolation import Role, tenant_transaction
from tests.memory.background import publish, say, worker_rows
from tests.organisation import Organisation, new_organisation
from tests.paths.ledger import Ledger

pytestmark = pytest.mark.usefixtures("database")

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
SUBJECTS = ("mira", "nora")


def day(number: int) -> datetime:
    return EPOCH + timedelta(days=number)


def exported(tenant: Organisation, folder: Path) -> Path:
    file = folder / f"{uuid4().hex}.jsonl"
    actor = Actor(kind=ActorKind.OPERATOR, id=UUID(int=0), tenant=tenant.id)
    with open(file, "w", encoding="utf-8") as out:
        transfer.write_out(actor, out, now=datetime.now(UTC))
    return file


def lines(file: Path, kind: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return [each for each in found if each["line"] == kind]


def another(slug_of: Organisation | None = None) -> Organisation:
    made = new_organisation()
    publish(made)
    return made


def answers(agent: Any, known: list[datetime | None]) -> list[Any]:
    """Everything that may be asked of the two subjects at days and as known then."""
    found = []
    with tenant_transaction(Role.AGENT, tenant=agent.actor.tenant, clearance=3, actor=agent.actor.id):
        for subject in SUBJECTS:
            for valid_at in [None, *(day(number) for number in range(0, 40, 3))]:
                for known_at in known:
                    results = recall.facts(agent.actor, subject=subject, valid_at=valid_at, known_at=known_at).results
                    found.append(
                        sorted(
                            json.dumps(
                                [fact["attribute"], fact["value"], fact["valid_from"], fact["valid_to"]], default=str
                            )
                            for fact in results
                        )
                    )
    return found


def history_of(tenant: Organisation, agent: Any) -> None:
    """Updates, a late arrival, a portion, an end, a correction, a retraction, several values, and a restatement."""
    ledger = Ledger(agent)

    def said(subject: str, attribute: str, value: Any, valid: int, known: int, **more: Any) -> Any:
        return say(
            agent,
            subject,
            attribute,
            value,
            valid_from=day(valid).isoformat(),
            recorded_at=day(known).isoformat(),
            **more,
        )

    said("mira", "passport_deadline", "2026-07-15", 10, 10)
    said("mira", "passport_deadline", "2026-06-30", 20, 20)
    said("mira", "passport_deadline", "2026-08-01", 5, 25)
    said("mira", "city", "Oslo", 1, 1)
    wrong = said("mira", "city", "Turin", 8, 8)
    said("mira", "city", "Bergen", 8, 12, corrects=str(wrong.evidence))
    said("mira", "city", "Lima", 15, 16, valid_to=day(18).isoformat())
    taken = said("mira", "city", "Rome", 22, 22)
    ledger.post(
        f"/evidence/{taken.evidence}/retract/", {"reason": "recorded_wrongly", "recorded_at": day(24).isoformat()}
    )
    say(agent, "mira", "city", None, ended=True, valid_from=day(30).isoformat(), recorded_at=day(30).isoformat())
    for number, value in enumerate(("one", "two", "three")):
        said("nora", "tag", value, number, number + 1)
    files = {"provenance": {"turn_id": "t", "source": "file"}, "retention": {"basis": "contract"}}
    said("nora", "diagnosis", "asthma", 4, 4, **files)
    said("nora", "passport_deadline", "2027-01-01", 3, 3)
    said("nora", "passport_deadline", "2027-01-01", 9, 9)


def test_a_round_trip_answers_everything_as_before(tenant: Any, agent: Any, tmp_path: Path) -> None:
    publish(tenant)
    history_of(tenant, agent)
    file = exported(tenant, tmp_path)
    target = another()
    done = transfer.read_in(target.id, file, now=datetime.now(UTC))
    assert done.refused == []
    assert done.counts["evidence"] == len(lines(file, "evidence")) > 10
    known: list[datetime | None] = [None, *(day(number) for number in range(1, 35, 2))]
    assert answers(target.agent("reader"), known) == answers(agent, known)
    (event,) = worker_rows(target, "SELECT numbers FROM tenants_auditevent WHERE action = 'memory.imported'")
    assert event[0]["evidence"] == done.counts["evidence"]


def test_brought_in_twice_it_is_there_once(tenant: Any, agent: Any, tmp_path: Path) -> None:
    publish(tenant)
    history_of(tenant, agent)
    file = exported(tenant, tmp_path)
    target = another()
    counted = "SELECT (SELECT count(*) FROM memory_evidence), (SELECT count(*) FROM memory_belief)"
    transfer.read_in(target.id, file, now=datetime.now(UTC))
    before = worker_rows(target, counted)
    done = transfer.read_in(target.id, file, now=datetime.now(UTC))
    assert (done.refused, worker_rows(target, counted)) == ([], before)


def test_what_has_ended_is_a_tombstone_that_hides_what_it_hid(
    tenant: Any, agent: Any, superuser: Any, tmp_path: Path
) -> None:
    publish(tenant)
    for value, number in (("Oslo", 1), ("Secret-Turin", 5), ("Bergen", 9)):
        say(agent, "mira", "city", value, valid_from=day(number).isoformat(), recorded_at=day(number).isoformat())
    superuser.execute(
        "UPDATE memory_fact f SET expires_at = now() - interval '1 second' FROM memory_payload p"
        " WHERE p.id = f.payload_id AND p.clear = '\"Secret-Turin\"' AND f.tenant_id = %s",
        [tenant.id],
    )
    with tenant_transaction(Role.WORKER, tenant=tenant.id):
        endings.end_overdue(tenant.id)
    file = exported(tenant, tmp_path)
    assert "Secret-Turin" not in file.read_text(encoding="utf-8")
    assert [each["state"] for each in lines(file, "tombstone")] == ["expired"]
    target = another()
    done = transfer.read_in(target.id, file, now=datetime.now(UTC))
    assert (done.refused, done.counts["tombstones"]) == ([], 1)
    reader = target.agent("reader")
    with tenant_transaction(Role.AGENT, tenant=target.id, clearance=3, actor=reader.actor.id):
        held = [
            [fact["value"] for fact in recall.facts(reader.actor, subject="mira", valid_at=day(number)).results]
            for number in (2, 6, 10)
        ]
    assert held == [["Oslo"], [], ["Bergen"]]


def test_episodes_quotes_and_consents_travel_along(tenant: Any, agent: Any, tmp_path: Path) -> None:
    publish(tenant)
    ledger = Ledger(agent)
    ledger.post("/consents/", {"subject": "mira", "ref": "form-1", "purposes": ["support"]})
    ledger.post("/consents/", {"subject": "mira", "ref": "form-2", "purposes": ["support"]})
    kept = ledger.post(
        "/episodes/",
        {"kind": "message", "role": "user", "content": "I moved to Oslo.", "session_id": "s", "turn_id": "t1",
         "subject": "mira", "occurred_at": day(1).isoformat(), "extract": "no"},
    ).json()  # fmt: skip
    say(
        agent, "mira", "city", "Oslo", valid_from=day(1).isoformat(),
        provenance={"turn_id": "t1", "source_episode": kept["id"], "quote": "moved to Oslo"},
    )  # fmt: skip
    consented = {"provenance": {"turn_id": "t", "consent_ref": "form-1"}, "retention": {"basis": "consent"}}
    say(agent, "mira", "newsletter", True, **consented)
    ledger.post("/consents/form-2/withdraw/", {})
    file = exported(tenant, tmp_path)
    target = another()
    done = transfer.read_in(target.id, file, now=datetime.now(UTC))
    assert (done.refused, done.counts["episodes"], done.counts["consents"]) == ([], 1, 2)
    reader = Ledger(target.agent("reader"))
    (city,) = reader.facts(subject="mira", attribute="city")
    lineage = reader.ok(f"/facts/{city['id']}/lineage/")
    assert [each["provenance"]["quote"] for each in lineage["sources"]] == ["moved to Oslo"]
    assert [fact["value"] for fact in reader.facts(subject="mira", attribute="newsletter")] == [True]
    withdrawn = worker_rows(target, "SELECT ref FROM policies_consent WHERE withdrawn_at IS NOT NULL")
    assert withdrawn == [("form-2",)]


def waiting(of: Organisation) -> list[Any]:
    """What waits in a tenant: by attribute, state, kind and value, each with its sayings."""
    with tenant_transaction(Role.WRITER, tenant=of.id, clearance=3):
        found = rows.fetch(
            "SELECT a.name, c.state, c.act, c.is_end, s.valid_from, s.confidence, s.source, s.turn_id, p.id, p.purpose, p.clear,"
            " p.sealed, k.wrapped, k.version FROM memory_candidate c JOIN memory_candidatesaying s ON s.candidate_id = c.id"
            " JOIN policies_attribute a ON a.id = c.attribute_id JOIN memory_payload p ON p.id = c.payload_id"
            " LEFT JOIN tenants_subjectkey k ON k.id = p.key_id WHERE c.state IN ('asked', 'buffered')"
            " AND c.tenant_id = %s::uuid ORDER BY a.name, s.turn_id, s.valid_from",
            [of.id],
        )
    return [[*row[:8], opened(of.id, *row[8:])] for row in found]


def test_what_waits_waits_there_as_well_whatever_the_policy_says(
    tenant: Any, agent: Any, superuser: Any, tmp_path: Path
) -> None:
    publish(tenant)
    first = day(1).isoformat()
    held = say(agent, "mira", "passport_deadline", "2026-07-15", valid_from=first)
    assert held.fact is not None
    say(agent, "mira", "city", "Rome", valid_from=first, confidence=0.9)

    def proposed(attribute: str, value: Any, turn: str, **more: Any) -> Any:
        body = {
            "subject": "mira", "attribute": attribute, "value": value, "valid_from": first, "provenance": {"turn_id": turn}, **more,
        }  # fmt: skip
        answer = Ledger(agent).post("/facts/", body)
        assert answer.status_code == 202, answer.json()
        return answer.json()

    proposed("city", "Oslo", "t1", confidence=0.2)
    proposed("iban", "DE-waits", "t1")
    proposed("iban", "DE-waits", "t2", valid_from=day(2).isoformat())
    proposed("iban", "DE-gone", "t3")
    superuser.execute(
        "UPDATE memory_candidate SET expires_at = now() - interval '1 second', basis = 'session' WHERE id ="
        " (SELECT id FROM memory_candidate WHERE tenant_id = %s ORDER BY id DESC LIMIT 1)",
        [tenant.id],
    )
    before = [each for each in waiting(tenant) if "DE-gone" not in each[-1]]
    assert {each[1] for each in before} >= {"asked"}
    assert len(before) >= 3
    file = exported(tenant, tmp_path)
    assert "DE-gone" not in file.read_text(encoding="utf-8")
    target = another()
    done = transfer.read_in(target.id, file, now=datetime.now(UTC))
    assert (done.refused, done.counts["proposals"]) == ([], len(before))
    assert waiting(target) == before
    assert answers(target.agent("reader"), [None]) == answers(agent, [None])
    transfer.read_in(target.id, file, now=datetime.now(UTC))
    assert waiting(target) == before
    # What would stand by itself there, since it waited by another policy, waits.
    text = file.read_text(encoding="utf-8").replace('"attribute": "iban"', '"attribute": "tag"')
    lax = another()
    file.write_text(text, encoding="utf-8")
    assert transfer.read_in(lax.id, file, now=datetime.now(UTC)).refused == []
    assert {each[1] for each in waiting(lax) if each[0] == "tag"} == {"asked"}
    assert Ledger(lax.agent("reader")).facts(subject="mira", attribute="tag") == []


def test_what_is_restricted_of_processing_is_restricted_there(tenant: Any, agent: Any, tmp_path: Path) -> None:
    publish(tenant)
    say(agent, "mira", "city", "Oslo")
    fact = say(agent, "nora", "city", "Turin").fact
    say(agent, "nora", "tag", "seen")
    officer = tenant.person(MemberRole.PRIVACY_OFFICER).actor
    with tenant_transaction(Role.WRITER, tenant=tenant.id):
        found = rows.fetch(
            "SELECT k.subject_id FROM memory_factkey k WHERE k.subject_id <> (SELECT f.subject_id FROM memory_fact f WHERE f.id = %s)",
            [fact],
        )
        subject = found[0][0]
    assert fact is not None
    for kind, which in (("subject", subject), ("fact", fact)):
        with tenant_transaction(Role.STAFF, tenant=tenant.id, clearance=3, actor=officer.id):
            restricting.restrict(officer, kind, which, ground="unlawful", now=datetime.now(UTC))
    file = exported(tenant, tmp_path)
    target = another()
    for _ in range(2):
        assert transfer.read_in(target.id, file, now=datetime.now(UTC)).refused == []
    reader = Ledger(target.agent("reader"))
    assert reader.facts(subject="mira") == []
    assert [each["value"] for each in reader.facts(subject="nora")] == ["seen"]
    with tenant_transaction(Role.STAFF, tenant=target.id):
        assert rows.fetch("SELECT target_kind FROM retention_restriction ORDER BY 1", []) == [("fact",), ("subject",)]


def test_holds_travel_along_and_cover_what_came(tenant: Any, agent: Any, tmp_path: Path) -> None:
    publish(tenant)
    said = say(agent, "mira", "city", "Oslo")
    operator = Actor(kind=ActorKind.OPERATOR, id=uuid4(), tenant=tenant.id)
    with tenant_transaction(Role.WORKER, tenant=tenant.id):
        subject = rows.fetch("SELECT id FROM memory_subject", [])[0][0]
    with tenant_transaction(Role.STAFF, tenant=tenant.id, actor=operator.id):
        matter, _ = matters.open_matter(operator, "2026/1", "litigation", now=datetime.now(UTC))
        matters.place(operator, matter.id, [Target(subject_id=subject)], now=datetime.now(UTC))
    assert said.fact is not None
    file = exported(tenant, tmp_path)
    target = another()
    done = transfer.read_in(target.id, file, now=datetime.now(UTC))
    assert (done.refused, done.counts["holds"]) == ([], 1)
    with tenant_transaction(Role.WORKER, tenant=target.id):
        facts = [row[0] for row in rows.fetch("SELECT id FROM memory_fact", [])]
        assert set(holds.held(target.id, "fact", facts)) == set(facts) != set()
    transfer.read_in(target.id, file, now=datetime.now(UTC))
    with tenant_transaction(Role.STAFF, tenant=target.id):
        assert rows.fetch("SELECT count(*) FROM retention_hold", []) == [(1,)]


def test_what_is_suppressed_does_not_come_back_by_an_import(tenant: Any, agent: Any, tmp_path: Path) -> None:
    publish(tenant)
    say(agent, "mira", "city", "Oslo", valid_from=day(1).isoformat(), recorded_at=day(1).isoformat())
    file = exported(tenant, tmp_path)
    with tenant_transaction(Role.WRITER, tenant=tenant.id):
        names = [bytes(row[0]) for row in rows.fetch("SELECT digest FROM memory_subjectidentifier", [])]
        suppression.add_subject(
            tenant.id, names, cause="erased", target_kind="run", target=uuid4(), now=datetime.now(UTC)
        )
    done = transfer.read_in(tenant.id, file, now=datetime.now(UTC))
    assert [code for _, code in done.refused] == ["suppressed", "suppressed"] or "suppressed" in {
        code for _, code in done.refused
    }
    # What an export tells of suppressions stands in the same tenant, and says nothing in another.
    told = exported(tenant, tmp_path)
    assert len(lines(told, "suppression")) == 1
    assert transfer.read_in(another().id, told, now=datetime.now(UTC)).left["suppression_of_another_tenant"] == 1


@pytest.mark.parametrize(
    ("spoil", "code"),
    [
        (lambda text: "", "not_an_export"),
        (lambda text: "{}\n", "not_an_export"),
        (lambda text: "\n".join(text.splitlines()[:-1]) + "\n", "export_cut"),
        (lambda text: "\n".join(text.splitlines()[:2] + text.splitlines()[3:]) + "\n", "export_cut"),
    ],
)
def test_a_file_that_is_no_whole_export_is_refused_before_anything_is_written(
    tenant: Any, agent: Any, tmp_path: Path, spoil: Any, code: str
) -> None:
    publish(tenant)
    say(agent, "mira", "city", "Oslo")
    say(agent, "nora", "city", "Turin")
    file = exported(tenant, tmp_path)
    file.write_text(spoil(file.read_text(encoding="utf-8")), encoding="utf-8")
    target = another()
    with pytest.raises(Malformed) as refused:
        transfer.read_in(target.id, file, now=datetime.now(UTC))
    assert refused.value.code == code
    assert worker_rows(target, "SELECT count(*) FROM memory_subject") == [(0,)]


def test_a_bad_line_is_told_by_number_and_code_and_sinks_no_other(tenant: Any, agent: Any, tmp_path: Path) -> None:
    publish(tenant)
    say(agent, "mira", "city", "Oslo")
    say(agent, "nora", "city", "Turin")
    file = exported(tenant, tmp_path)
    text = file.read_text(encoding="utf-8").replace('"value": "Oslo"', '"value": ["not a city"]')
    file.write_text(text, encoding="utf-8")
    target = another()
    done = transfer.read_in(target.id, file, now=datetime.now(UTC))
    assert len(done.refused) == 1
    assert "not a city" not in str(done.refused)
    assert done.counts["evidence"] == 1


# what users of such systems reported ------------------------------------------------------------------------------------


def test_c138_counts_before_and_after_match_and_what_is_left_out_is_listed(
    tenant: Any, agent: Any, superuser: Any, tmp_path: Path
) -> None:
    publish(tenant)
    history_of(tenant, agent)
    # A weak signal waits.
    for city in ("Oslo", "Rome"):
        Ledger(agent).post(
            "/facts/",
            {"subject": "otto", "attribute": "city", "value": city, "valid_from": day(1).isoformat(),
             "provenance": {"turn_id": f"t-{city}"}, "confidence": 0.2},
        )  # fmt: skip

    def count(of: Organisation, table: str) -> int:
        return int(superuser.execute(f"SELECT count(*) FROM {table} WHERE tenant_id = %s", [of.id]).fetchone()[0])

    file = exported(tenant, tmp_path)
    carried = {
        "memory_subject": len(lines(file, "subject")),
        "memory_subjectidentifier": sum(1 + len(each["aliases"]) for each in lines(file, "subject")),
        "memory_episode": len(lines(file, "episode")),
        "memory_evidence": len(lines(file, "evidence")) + len(lines(file, "tombstone")),
        "policies_consent": len(lines(file, "consent")),
    }
    assert {table: count(tenant, table) for table in carried} == carried
    (left,) = lines(file, "left_out")
    assert left.pop("line") == "left_out"
    reasons = left.pop("reasons")
    assert set(reasons) == set(left)
    assert left["receipts"] == count(tenant, "memory_receipt")
    assert len(lines(file, "proposal")) == count(tenant, "memory_candidatesaying") > 0
    target = another()
    assert transfer.read_in(target.id, file, now=datetime.now(UTC)).refused == []
    # What is derived of what came is the same as well.
    for table in (*carried, "memory_fact", "memory_belief", "memory_candidate", "memory_candidatesaying"):
        assert count(target, table) == count(tenant, table), table
    assert count(target, "memory_fact") > 5


def test_an_export_is_of_one_instant_whatever_is_written_meanwhile(
    tenant: Any, agent: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(tenant)
    say(agent, "mira", "city", "Oslo")
    written: list[Any] = []
    subjects = transfer._SUBJECTS

    def write() -> None:
        written.append(say(agent, "mira", "city", "Rome").fact)
        connection.close()

    def paged(of: UUID, statement: str) -> Any:
        yield from real(of, statement)
        if statement is subjects:
            # Another session writes when the names are out and the facts are not.
            writer = threading.Thread(target=write)
            writer.start()
            writer.join()

    real = transfer._pages
    monkeypatch.setattr(transfer, "_pages", paged)
    file = exported(tenant, tmp_path)
    assert written
    assert [each["value"] for each in lines(file, "evidence")] == ["Oslo"]
    monkeypatch.undo()
    assert sorted(each["value"] for each in lines(exported(tenant, tmp_path), "evidence")) == ["Oslo", "Rome"]
