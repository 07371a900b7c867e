"""Words that are marked at the desk: looked at first, bound to what was foreseen, and never of another's text."""

from typing import Any
from uuid import uuid4

import pytest

from retention.models import RedactionItem
from tenants.actors import MemberRole
from tenants.isolation import Role, tenant_transaction
from tests.paths.ledger import CANARY, Ledger
from tests.retention.test_desk import Desk, audited, state, waiting

pytestmark = pytest.mark.usefixtures("database")


def marked(claimed: Any, *places: tuple[int, int]) -> str:
    """Return the places as a page sends them, of the message that the item shows."""
    episode = claimed["pane"].partition('data-marks="')[2].partition('"')[0]
    assert len(episode) == 36, claimed["pane"]
    return " ".join(f"{episode}:{start}-{end}" for start, end in places)


def foreseen(desk: Desk, claimed: Any, *, status: int = 200, **more: Any) -> Any:
    answer = desk.post(f"{claimed['item']}/foresee/", **more)
    assert answer.status_code == status, answer.content
    return answer.json()


def test_words_beside_the_evidence_go_and_the_proposal_waits_on_under_its_claim(tenant: Any) -> None:
    (candidate,) = waiting(tenant)
    desk = Desk(tenant)
    claimed = desk.claim()
    wanted: dict[str, Any] = {"scope": "words", "marked": marked(claimed, (0, 5)), "strategy": "mask"}
    seen = foreseen(desk, claimed, **wanted)
    assert "episode changes" in seen["foreseen"]
    assert CANARY not in str(seen)
    told = desk.decide(claimed, "redact", "third_party", shown=seen["shown"], **wanted)
    assert told["stays"] is True
    assert state(tenant, candidate).redaction_state == "none"
    again = desk.claim(candidate)
    desk.decide(again)
    assert state(tenant, candidate).state == "accepted"
    with tenant_transaction(Role.STAFF, tenant=tenant.id):
        (item,) = RedactionItem.objects.filter(tenant_id=tenant.id, picked=True)
        assert (item.kind, item.strategy, list(item.spans)) == ("episode", "mask", [0, 5])


def test_words_of_the_evidence_take_the_proposal_with_them(tenant: Any) -> None:
    (candidate,) = waiting(tenant)
    desk = Desk(tenant)
    claimed = desk.claim()
    text = f"Write to {CANARY}.0@example.com. I live in {CANARY}-town 0 now."
    start = text.index("live")
    wanted: dict[str, Any] = {"scope": "words", "marked": marked(claimed, (start, start + 4))}
    seen = foreseen(desk, claimed, **wanted)
    told = desk.decide(claimed, "redact", "third_party", shown=seen["shown"], **wanted)
    assert "stays" not in told
    assert state(tenant, candidate).redaction_state == "required"


def test_what_was_marked_is_looked_at_before_it_is_proposed(tenant: Any) -> None:
    waiting(tenant)
    desk = Desk(tenant)
    claimed = desk.claim()
    wanted: dict[str, Any] = {"scope": "words", "marked": marked(claimed, (0, 5))}
    assert desk.decide(claimed, "redact", "third_party", status=422, **wanted)["code"] == "look_first"
    seen = foreseen(desk, claimed, **wanted)
    more: dict[str, Any] = {**wanted, "marked": marked(claimed, (0, 8)), "shown": seen["shown"]}
    assert desk.decide(claimed, "redact", "third_party", status=409, **more)["code"] == "changed_since_shown"
    assert audited(tenant, "redaction.required") == 0


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"scope": "words"}, "nothing_marked"),
        ({"scope": "words", "marked": "all of it"}, "request_refused"),
        ({"scope": "words", "marked": f"{uuid4()}:0-3"}, "request_refused"),
        ({"scope": "words", "marked": "{own}:0-999999"}, "redaction_refused"),
        ({"scope": "words", "marked": "{own}:0-3", "strategy": "burn"}, "request_refused"),
        ({"scope": "everything"}, "request_refused"),
    ],
)
def test_what_cannot_be_marked_is_refused_and_nothing_of_the_text_is_told(
    tenant: Any, given: dict[str, str], code: str
) -> None:
    waiting(tenant)
    desk = Desk(tenant)
    claimed = desk.claim()
    own = marked(claimed, (0, 1)).partition(":")[0]
    answer = foreseen(desk, claimed, status=422, **{name: value.replace("{own}", own) for name, value in given.items()})
    assert answer["code"] == code
    assert CANARY not in str(answer)


def test_the_words_of_an_item_that_is_not_claimed_are_nobodys_to_mark(tenant: Any) -> None:
    first, second = waiting(tenant, 2)
    one, other = Desk(tenant), Desk(tenant)
    claimed = one.claim(first)
    given = {"scope": "words", "marked": marked(claimed, (0, 5))}
    assert other.post(f"{first}/foresee/", **given).json()["code"] == "claim_lapsed"
    # Nor are those of another item's message, under one's own claim.
    other.claim(second)
    assert other.post(f"{second}/foresee/", **given).json()["code"] == "request_refused"
    assert Desk(tenant, MemberRole.AUDITOR).post(f"{first}/foresee/", **given).status_code == 403


def test_places_are_those_of_the_text_as_it_is_stored(tenant: Any) -> None:
    """What is left out, masked or named counts as the characters that it stands for."""
    waiting(tenant, 0)
    ledger, name = Ledger(tenant.agent()), f"{CANARY} {uuid4().hex}"
    text = f"\n\U0001f600 a\u200bb {'x ' * 2000}mail {CANARY}@example.com: home is {CANARY}-town"
    kept = ledger.post("/episodes/", {
        "kind": "message", "role": "user", "session_id": "s1", "turn_id": "t1", "subject": name, "content": text,
        "occurred_at": "2026-06-01T09:00:00Z"})  # fmt: skip
    quote = f"home is {CANARY}-town"
    ledger.said(name, "home", f"{CANARY}-town", status=202, provenance={
        "turn_id": "t1", "source_episode": kept.json()["id"], "source": "quote", "quote": quote})  # fmt: skip
    pane = Desk(tenant).claim()["pane"]
    shown = pane.partition("data-marks=")[2].partition("</pre>")[0]
    left_out = int(shown.partition('class="left-out" data-covers="')[2].partition('"')[0])
    masked = int(shown.partition('class="masked" data-covers="')[2].partition('"')[0])
    assert left_out == text.index(quote) - 1500
    assert masked == len(f"{CANARY}@example.com")
