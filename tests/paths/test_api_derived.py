"""A profile as text over the API: made by the background work, and never served once anything under it has changed."""

from typing import Any

from memory import outbox
from tenants.actors import Scope
from tests.organisation import Organisation
from tests.paths.ledger import CANARY, Ledger
from tests.paths.test_statements import beside_the_key, counted


def text(ledger: Ledger, subject: str = "mira") -> Any:
    return ledger.ok("/profile/text/", subject=subject)


def settle(ledger: Ledger) -> None:
    while outbox.drain_tenant(ledger.agent.actor.tenant):
        pass


def test_a_profile_is_made_into_text_and_served_until_a_source_changes(ledger: Ledger) -> None:
    fact = ledger.said("mira", "city", "Ulm")["fact"]["id"]
    first = text(ledger)
    assert (first["derived"], first["fresh"], first["facts"]) == (None, True, [fact])
    settle(ledger)
    second = text(ledger)
    assert second["derived"] is not None
    assert second["text"].splitlines()[1:] == first["text"].splitlines()[1:]
    assert ledger.post(f"/facts/{fact}/retract/", {"reason": "recorded_wrongly"}).status_code == 200
    third = text(ledger)
    assert (third["derived"], third["changed"]) == (None, [{"fact": fact, "why": "no_longer_holds"}])
    assert (third["facts"], third["sensitivity"], third["expires_at"]) == ([], None, None)
    assert "Ulm" not in third["text"]


def test_what_a_text_takes_does_not_grow_with_its_facts(ledger: Ledger) -> None:
    def statements() -> int:
        with counted() as sent:
            text(ledger)
        return len(beside_the_key(sent))

    ledger.said("mira", "tag", "0")
    few = [statements(), statements()]
    settle(ledger)
    few.append(statements())
    for number in range(1, 20):
        ledger.said("mira", "tag", str(number))
    many = [statements(), statements()]
    settle(ledger)
    many.append(statements())
    # The agent's role, the look, the facts, and for the first that asks: the writer's role and back, the wish, its entry.
    # Once it is made: the role, and the look, which leaves the receipt.
    assert few == many == [7, 3, 2]


def test_no_other_tenant_and_no_key_without_the_scope_reads_a_text(
    ledger: Ledger, foreign: Ledger, organisation: Organisation
) -> None:
    foreign.said("mira", "city", f"in {CANARY}")
    text(foreign)
    settle(foreign)
    assert text(foreign)["derived"] is not None
    answer = text(ledger)
    assert (answer["facts"], answer["withheld"], CANARY in answer["text"]) == ([], {}, False)
    writer = Ledger(organisation.agent("mute", scopes=frozenset({Scope.WRITE})))
    assert writer.get("/profile/text/", subject="mira").status_code == 403
    refused = ledger.get("/profile/text/", subject="mira", valid_at="2026-01-01T00:00:00Z")
    assert (refused.status_code, refused.json()["errors"]) == (400, [{"path": "query", "code": "unknown_parameter"}])
