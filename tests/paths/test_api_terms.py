"""What starts clocks, by the API: a session is closed, a contract has ended, a consent is withdrawn."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from memory import lifetimes
from tests.memory.background import make_due, settle_all, worker_rows
from tests.paths.ledger import publish, publish_policy

pytestmark = pytest.mark.usefixtures("database")

AFTER = {
    "session_closed": {"public": "P2D", "internal": "P1D", "personal": "P1D", "restricted": "PT1H"},
    "contract_ended": {"internal": "P30D"},
}
DAY = timedelta(days=1)


@pytest.fixture
def governed(tenant: Any) -> Any:
    publish(tenant)
    publish_policy(tenant, after=AFTER)
    return tenant


def said(api: Any, value: str, *, basis: str = "session", **provenance: str) -> dict[str, Any]:
    """Say one tag of mira's; return the fact."""
    body = {
        "subject": "mira",
        "attribute": "tag",
        "value": value,
        "provenance": {"turn_id": "t1", **provenance},
        "retention": {"basis": basis},
    }
    answer = api.send("POST", "/api/v1/facts/", body)
    assert answer.status_code == 201, answer.json()
    found: dict[str, Any] = answer.json()["fact"]
    return found


def heard(api: Any, session: str, turn: str, **more: Any) -> str:
    body = {
        "kind": "message",
        "content": f"nothing much {turn}",
        "session_id": session,
        "turn_id": turn,
        "occurred_at": "2026-06-01T09:00:00Z",
        "extract": "no",
        **more,
    }
    answer = api.send("POST", "/api/v1/episodes/", body)
    assert answer.status_code == 201, answer.json()
    found: str = answer.json()["id"]
    return found


def close(api: Any, session: str, **body: Any) -> Any:
    return api.send("POST", f"/api/v1/sessions/{session}/close/", body)


def until(api: Any, kind: str, identity: str) -> datetime:
    found = api.send("GET", f"/api/v1/{kind}/{identity}/").json()
    return datetime.fromisoformat(found["retention"]["expires_at"])


def test_a_closed_session_lets_what_was_kept_for_it_run_out_and_nothing_else(governed: Any, api: Any) -> None:
    kept = said(api, "of the session", session_id="s1")
    other = said(api, "of another", session_id="s2")
    contract = said(api, "of a contract", session_id="s1", basis="contract")
    episode = heard(api, "s1", "t1", subject="mira")
    answer = close(api, "s1")
    assert answer.status_code == 200, answer.json()
    closed = answer.json()
    ended = datetime.fromisoformat(closed["ended_at"])
    assert (closed["kind"], closed["ref"]) == ("session", "s1")
    assert datetime.fromisoformat(closed["kept_until"]["personal"]) == ended + DAY
    settle_all(governed)
    assert until(api, "facts", kept["id"]) == ended + DAY
    assert until(api, "episodes", episode) == ended + DAY
    assert until(api, "facts", other["id"]) > ended + 20 * DAY
    assert until(api, "facts", contract["id"]) > ended + 300 * DAY


def test_what_finds_an_episode_and_holds_its_text_ends_with_it(governed: Any, api: Any, superuser: Any) -> None:
    episode = heard(api, "s1", "t1", subject="mira")
    close(api, "s1")
    settle_all(governed)
    found = superuser.execute(
        "SELECT e.expires_at, p.expires_at, s.expires_at FROM memory_episode e"
        " JOIN memory_payload p ON p.tenant_id = e.tenant_id AND p.id = e.payload_id"
        " JOIN memory_searchentry s ON s.tenant_id = p.tenant_id AND s.payload_id = p.id WHERE e.id = %s",
        [episode],
    ).fetchone()
    assert len(set(found)) == 1


def test_a_fact_that_rests_on_more_than_the_session_keeps_its_date(governed: Any, api: Any) -> None:
    kept = said(api, "both", session_id="s1")
    answer = api.send(
        "POST",
        "/api/v1/facts/",
        {
            "subject": "mira", "attribute": "tag", "value": "both",
            "provenance": {"turn_id": "t2", "contract_ref": "c-1"}, "retention": {"basis": "contract"},
        },
    )  # fmt: skip
    before = until(api, "facts", kept["id"])
    assert answer.json()["change"] == "no_change"
    close(api, "s1")
    settle_all(governed)
    assert until(api, "facts", kept["id"]) == before
    assert api.send("POST", "/api/v1/contracts/c-1/end/", {}).status_code == 200
    settle_all(governed)
    now = datetime.now(UTC)
    assert now + 29 * DAY < until(api, "facts", kept["id"]) < now + 31 * DAY


def test_equal_ids_of_two_agents_and_of_two_subjects_are_two_sessions_C067(
    governed: Any, api: Any, make_agent: Any
) -> None:
    stranger = make_agent("stranger").api
    mine, theirs = said(api, "mine", session_id="1"), said(stranger, "theirs", session_id="1")
    of_mira, of_jonas = heard(api, "1", "t1", subject="mira"), heard(api, "1", "t2", subject="jonas")
    assert close(api, "1", subject="jonas").status_code == 200
    settle_all(governed)
    now = datetime.now(UTC)
    assert until(api, "episodes", of_jonas) < now + 2 * DAY
    for kind, identity in (("facts", mine["id"]), ("facts", theirs["id"]), ("episodes", of_mira)):
        assert until(api, kind, identity) > now + 20 * DAY
    assert close(api, "1").status_code == 200
    settle_all(governed)
    assert until(api, "facts", mine["id"]) < now + 2 * DAY
    assert until(api, "facts", theirs["id"]) > now + 20 * DAY


def test_an_end_is_brought_nearer_and_never_put_off(governed: Any, api: Any, tenant: Any) -> None:
    soon = (datetime.now(UTC) + timedelta(hours=2)).isoformat()
    body = {
        "subject": "mira", "attribute": "tag", "value": "short", "provenance": {"turn_id": "t1", "session_id": "s1"},
        "retention": {"basis": "session", "expires_at": soon},
    }  # fmt: skip
    fact = api.send("POST", "/api/v1/facts/", body).json()["fact"]
    close(api, "s1")
    settle_all(governed)
    assert until(api, "facts", fact["id"]) == datetime.fromisoformat(soon)


def test_what_is_written_after_the_end_counts_from_its_writing(governed: Any, api: Any) -> None:
    said(api, "first", session_id="s1")
    close(api, "s1")
    late = said(api, "late", session_id="s1")
    now = datetime.now(UTC)
    assert now + DAY - timedelta(minutes=1) < until(api, "facts", late["id"]) <= now + DAY
    episode = heard(api, "s1", "late")
    assert until(api, "episodes", episode) <= now + DAY + timedelta(minutes=1)
    body = {
        "subject": "mira", "attribute": "tag", "value": "asked", "provenance": {"turn_id": "t9", "session_id": "s1"},
        "retention": {"basis": "session"},
    }  # fmt: skip
    explained = api.send("POST", "/api/v1/policies/explain/", {"fact": body}).json()
    assert explained["expiry_rule"] == "session_closed×internal=P1D"


def test_what_is_drawn_from_an_episode_is_of_its_session(governed: Any, api: Any) -> None:
    episode = heard(api, "s1", "t1", subject="mira")
    body = {
        "subject": "mira", "attribute": "tag", "value": "much", "retention": {"basis": "session"},
        "provenance": {"turn_id": "t1", "source_episode": episode, "quote": "nothing much"},
    }  # fmt: skip
    fact = api.send("POST", "/api/v1/facts/", body).json()["fact"]
    close(api, "s1")
    settle_all(governed)
    assert until(api, "facts", fact["id"]) < datetime.now(UTC) + 2 * DAY


def test_closing_again_changes_nothing_and_what_nobody_named_is_not_there_C014(governed: Any, api: Any) -> None:
    said(api, "first", session_id="s1", contract_ref="c-1")
    assert close(api, "nobody-wrote-in-it").status_code == 404
    assert api.send("POST", "/api/v1/contracts/none/end/", {}).status_code == 404
    first = close(api, "s1").json()
    assert close(api, "s1").json() == first
    again = api.send("POST", "/api/v1/sessions/s1/close/", {}, idempotency_key="k1").json()
    assert api.send("POST", "/api/v1/sessions/s1/close/", {}, idempotency_key="k1").json() == again == first
    assert close(api, "s1", subject="somebody else").status_code == 404
    assert len(worker_rows(governed, "SELECT id FROM memory_term")) == 1


def test_a_long_session_runs_out_in_chunks(governed: Any, api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifetimes, "CHUNK", 2)
    for number in range(5):
        said(api, f"tag {number}", session_id="s1")
        heard(api, "s1", f"t{number}")
    close(api, "s1")
    settle_all(governed)
    far = "SELECT count(*) FROM {} WHERE expires_at > clock_timestamp() + interval '2 days'"
    for table in ("memory_fact", "memory_evidence", "memory_episode"):
        assert worker_rows(governed, far.format(table)) == [(0,)], table


def test_what_was_under_way_is_found_by_the_second_look(governed: Any, api: Any, superuser: Any) -> None:
    fact = said(api, "first", session_id="s1")
    close(api, "s1")
    settle_all(governed)
    # As if its transaction had begun before the close and not seen it.
    superuser.execute("ALTER TABLE memory_evidence DISABLE TRIGGER evidence_expires_earlier")
    superuser.execute(
        "UPDATE memory_evidence SET expires_at = expires_at + interval '20 days' WHERE fact_id = %s", [fact["id"]]
    )
    superuser.execute("ALTER TABLE memory_evidence ENABLE TRIGGER evidence_expires_earlier")
    superuser.execute("UPDATE memory_fact SET expires_at = expires_at + interval '20 days' WHERE id = %s", [fact["id"]])
    make_due(superuser, governed)
    settle_all(governed)
    assert until(api, "facts", fact["id"]) < datetime.now(UTC) + 2 * DAY


def test_a_proposal_that_waits_runs_out_with_its_session(governed: Any, api: Any) -> None:
    body = {
        "subject": "mira", "attribute": "tag", "value": "perhaps", "confidence": 0.2,
        "provenance": {"turn_id": "t1", "session_id": "s1"}, "retention": {"basis": "session"},
    }  # fmt: skip
    assert api.send("POST", "/api/v1/facts/", body).status_code == 202
    close(api, "s1")
    settle_all(governed)
    soon = "SELECT count(*) FROM {} WHERE expires_at < clock_timestamp() + interval '2 days'"
    for table in ("memory_candidate", "memory_candidatesaying"):
        assert worker_rows(governed, soon.format(table)) == [(1,)], table


def test_every_shortening_is_in_the_audit_chain_with_its_counts_C018(governed: Any, api: Any) -> None:
    said(api, "first", session_id="s1")
    close(api, "s1")
    settle_all(governed)
    found = worker_rows(
        governed,
        "SELECT actor_kind, action, reason, (numbers->>'evidence')::int FROM tenants_auditevent"
        " WHERE target_kind = 'term' ORDER BY seq",
    )
    assert found == [
        ("agent", "term.session_closed", "none", None),
        ("job", "lifetimes.shortened", "session_over", 1),
    ]


def test_evidence_is_given_a_later_end_by_nobody(governed: Any, api: Any) -> None:
    import psycopg

    from memory import rows
    from tenants.isolation import Role, tenant_transaction

    said(api, "first")
    with pytest.raises(Exception) as refused, tenant_transaction(Role.WORKER, tenant=governed.id):
        rows.execute("UPDATE memory_evidence SET expires_at = expires_at + interval '1 day'", [])
    assert isinstance(refused.value.__cause__, psycopg.errors.RestrictViolation)


def test_what_rests_on_a_withdrawn_consent_is_overdue_and_what_rests_on_more_stays(governed: Any, api: Any) -> None:
    api.send("POST", "/api/v1/consents/", {"subject": "mira", "ref": "form-1", "purposes": ["support"]})
    consented = said(api, "agreed", basis="consent", consent_ref="form-1")
    both = said(api, "both", basis="consent", consent_ref="form-1")
    said_again = {
        "subject": "mira", "attribute": "tag", "value": "both", "provenance": {"turn_id": "t2"},
        "retention": {"basis": "contract"},
    }  # fmt: skip
    assert api.send("POST", "/api/v1/facts/", said_again).status_code == 200
    episode = heard(api, "s1", "t1", subject="mira", consent_ref="form-1", retention={"basis": "consent"})
    assert api.send("POST", "/api/v1/consents/form-1/withdraw/", {}).status_code == 200
    assert api.send("GET", f"/api/v1/facts/{consented['id']}/").status_code == 404
    assert api.send("GET", f"/api/v1/episodes/{episode}/").status_code == 404
    settle_all(governed)
    overdue = "SELECT count(*) FROM {} WHERE expires_at <= clock_timestamp()"
    assert worker_rows(governed, overdue.format("memory_evidence")) == [(2,)]
    assert worker_rows(governed, overdue.format("memory_episode")) == [(1,)]
    assert api.send("GET", f"/api/v1/facts/{both['id']}/").status_code == 200
    ended = worker_rows(governed, "SELECT ended_by FROM memory_fact WHERE id = %s", consented["id"])
    assert ended == [("consent_withdrawn",)]
