"""Redaction over HTTP: what a program with the scope `admin` may propose, and that it takes nothing out."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest

from memory import rows
from retention import redaction
from tenants.actors import MemberRole, Scope
from tenants.isolation import Role, tenant_transaction
from tests.paths.ledger import CANARY, Ledger
from tests.paths.test_api_episodes import episode


def item(kind: str, record: str, **more: Any) -> dict[str, Any]:
    return {"kind": kind, "id": record, **more}


def propose(ledger: Ledger, *items: dict[str, Any], **more: Any) -> Any:
    headers = {name: more.pop(name) for name in list(more) if name == "idempotency_key"}
    return ledger.post("/redactions/", {"items": list(items), "reason": "not_to_be_kept", **more}, **headers)


def decide(organisation: Any, proposal: str) -> None:
    """Apply it as an officer does."""
    officer = organisation.person(MemberRole.PRIVACY_OFFICER).actor
    with tenant_transaction(Role.STAFF, tenant=organisation.id, clearance=3, actor=officer.id):
        shown = redaction.examine(officer, UUID(proposal)).digest
        assert redaction.apply(officer, UUID(proposal), shown=shown, reason="checked", now=datetime.now(UTC)).applied


def test_a_proposal_is_foreseen_made_and_hides_its_fact_at_once(ledger: Ledger) -> None:
    fact = ledger.said("mira", "city", f"secret {CANARY}")["fact"]["id"]
    foreseen = propose(ledger, item("fact", fact), dry_run=True)
    assert foreseen.status_code == 200
    assert foreseen.json()["counts"] == {"facts": 1}
    assert CANARY not in foreseen.content.decode()
    assert ledger.values() == [f"secret {CANARY}"]
    made = propose(ledger, item("fact", fact))
    assert made.status_code == 201, made.content
    assert (made.json()["state"], made.json()["waits_for"]) == ("required", "privacy_officer")
    assert ledger.values() == []
    assert ledger.get(f"/facts/{fact}/").status_code == 404
    assert ledger.ok(f"/redactions/{made.json()['id']}/") == made.json()
    assert [each["id"] for each in ledger.ok("/redactions/", state="required")["results"]] == [made.json()["id"]]
    assert ledger.ok("/redactions/", state="applied")["results"] == []


def test_a_program_asks_for_it_and_takes_nothing_out(ledger: Ledger) -> None:
    fact = ledger.said("mira", "city", "Oslo")["fact"]["id"]
    proposal = propose(ledger, item("fact", fact)).json()["id"]
    asked = ledger.post(f"/redactions/{proposal}/apply/", {})
    assert (asked.status_code, asked.json()["state"]) == (202, "required")
    back = ledger.post(f"/redactions/{proposal}/withdraw/", {})
    assert (back.status_code, back.json()["state"]) == (200, "withdrawn")
    assert ledger.values() == ["Oslo"]
    for act in ("apply", "withdraw"):
        again = ledger.post(f"/redactions/{proposal}/{act}/", {})
        assert (again.status_code, again.json()["code"]) == (409, "already_decided")


def test_after_the_decision_every_answer_is_a_tombstone(organisation: Any, ledger: Ledger) -> None:
    sent = episode(content=f"I live in {CANARY}", extract="no")
    kept = ledger.post("/episodes/", sent).json()["id"]
    provenance = {"turn_id": "turn-9", "source_episode": kept, "quote": f"in {CANARY}"}
    said = ledger.say("mira", "city", CANARY, provenance=provenance, idempotency_key="once").json()
    fact = said["fact"]["id"]
    proposal = propose(ledger, item("fact", fact), item("episode", kept, spans=[[10, 10 + len(CANARY)]])).json()
    decide(organisation, proposal["id"])
    answers = [
        ledger.get("/facts/", subject="mira"),
        ledger.get("/facts/", subject="mira", valid_at=datetime.now(UTC).isoformat()),
        ledger.get(f"/facts/{fact}/"),
        ledger.get(f"/facts/{fact}/history/"),
        ledger.get(f"/facts/{fact}/lineage/"),
        ledger.get("/profile/", subject="mira"),
        ledger.get("/profile/text/", subject="mira"),
        ledger.get("/candidates/"),
        ledger.get(f"/episodes/{kept}/"),
        ledger.get(f"/redactions/{proposal['id']}/"),
        ledger.post("/recall/", {"question": f"city {CANARY}", "subject": "mira", "purpose": "support", "budget_tokens": 900}),
    ]  # fmt: skip
    for answer in answers:
        assert answer.status_code == 200, answer.content
        assert CANARY not in answer.content.decode()
    stone = {"redacted": True, "type": "string", "fields": ["value"], "left": None}
    assert answers[2].json()["value"] == stone
    assert [each["value"] for each in answers[0].json()["results"]] == [stone]
    assert answers[3].json()["stretches"][0]["value"] == stone
    assert answers[8].json()["content"] == "I live in ‹redacted›"
    assert ledger.ok(f"/redactions/{proposal['id']}/")["certificate"] is not None


def test_the_same_proposal_sent_again_is_answered_again(ledger: Ledger) -> None:
    fact = ledger.said("mira", "city", "Oslo")["fact"]["id"]
    first = propose(ledger, item("fact", fact), idempotency_key="redact-1")
    again = propose(ledger, item("fact", fact), idempotency_key="redact-1")
    assert (first.status_code, again.status_code) == (201, 201)
    assert first.json()["id"] == again.json()["id"]
    other = propose(ledger, item("fact", fact), reason="excessive", idempotency_key="redact-1")
    assert (other.status_code, other.json()["code"]) == (409, "idempotency_key_reused")
    assert (propose(ledger, item("fact", fact)).status_code) == 409


def test_c011_whoever_proposes_it_the_end_state_is_the_same(organisation: Any, ledger: Ledger) -> None:
    ends = []
    for by in ("program", "person"):
        kept = ledger.post(
            "/episodes/", episode(content=f"I live in {by}", extract="no", turn_id=by, subject=by)
        ).json()["id"]
        provenance = {"turn_id": by, "source_episode": kept, "quote": f"in {by}"}
        fact = ledger.say(by, "city", "Oslo", provenance=provenance).json()["fact"]["id"]
        if by == "program":
            proposal = propose(ledger, item("fact", fact), item("episode", kept)).json()["id"]
        else:
            reviewer = organisation.person(MemberRole.REVIEWER).actor
            picks = [
                redaction.Pick(kind=redaction.Kind.FACT, target=UUID(fact)),
                redaction.Pick(kind=redaction.Kind.EPISODE, target=UUID(kept)),
            ]
            with tenant_transaction(Role.STAFF, tenant=organisation.id, clearance=3, actor=reviewer.id):
                proposal = str(redaction.propose(reviewer, picks, reason="other", now=datetime.now(UTC)).id)
        decide(organisation, proposal)
        with tenant_transaction(Role.WRITER, tenant=organisation.id, clearance=3):
            ends.append(
                rows.fetch(
                    "SELECT f.redaction_state, f.redaction_fields, f.ended_by, e.redaction_state, e.redaction_fields, p.clear, p.sealed,"
                    " p.redaction_state, q.clear, q.sealed, m.redaction_state, m.redaction_fields, t.clear, t.sealed, t.key_id"
                    " FROM memory_fact f JOIN memory_evidence e ON e.fact_id = f.id JOIN memory_payload p ON p.id = f.payload_id"
                    " LEFT JOIN memory_payload q ON q.id = e.quote_id JOIN memory_episode m ON m.id = e.episode_id"
                    " JOIN memory_payload t ON t.id = m.payload_id WHERE f.id = %s",
                    [fact],
                )
            )
    assert ends[0] == ends[1] != []


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"items": [], "reason": "other"}, "items"),
        ({"items": [{"kind": "fact", "id": "x"}], "reason": "other"}, "items[0].id"),
        ({"items": [{"kind": "subject", "id": str(uuid4())}], "reason": "other"}, "items[0].kind"),
        ({"items": [{"kind": "fact", "id": str(uuid4()), "strategy": "burn"}], "reason": "other"}, "items[0].strategy"),
        ({"items": [{"kind": "episode", "id": str(uuid4()), "spans": [[1]]}], "reason": "other"}, "items[0].spans[0]"),
        ({"items": [{"kind": "fact", "id": str(uuid4())}], "reason": CANARY}, "reason"),
    ],
)
def test_what_is_malformed_is_named_by_its_place(ledger: Ledger, body: Any, path: str) -> None:
    refused = ledger.post("/redactions/", body)
    assert refused.status_code == 400
    assert [each["path"] for each in refused.json()["errors"]] == [path]
    assert CANARY not in refused.content.decode()


def test_c054_another_tenants_record_is_not_there(ledger: Ledger, foreign: Ledger) -> None:
    theirs = foreign.said("mira", "city", "Oslo")["fact"]["id"]
    for dry in (True, False):
        assert propose(ledger, item("fact", theirs), dry_run=dry).status_code == 404
    assert foreign.values() == ["Oslo"]


def test_a_key_without_the_scope_proposes_nothing(organisation: Any, ledger: Ledger) -> None:
    fact = ledger.said("mira", "city", "Oslo")["fact"]["id"]
    scribe = Ledger(organisation.agent("scribe", scopes=frozenset({Scope.READ, Scope.WRITE})))
    assert propose(scribe, item("fact", fact)).status_code == 403
    assert ledger.values() == ["Oslo"]
