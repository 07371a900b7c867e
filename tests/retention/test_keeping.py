"""How long a fact is kept: which rule gave which date; shorter for free, longer by two persons, looked at again."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.approvals import Answer
from policies.rules import policy_document
from policies.vocabulary import Basis, Occasion, Sensitivity
from retention import disposition, keeping
from retention.keeping import why
from tenants.actors import MemberRole
from tenants.errors import Clash, Forbidden, Missing, Refused
from tests.memory.background import publish, say, settle_all, worker_rows
from tests.paths.ledger import publish_policy
from tests.policies.test_rules import DATA
from tests.policies.two_people import acting, now
from tests.retention.test_requests import Desk

pytestmark = pytest.mark.usefixtures("database")
DAY = timedelta(days=1)
POLICY = policy_document(
    {
        **DATA,
        "lifetimes": {
            "session": {"personal": "P1M", "restricted": "P7D"},
            "contract": {"personal": "P1Y"},
            "consent": {"personal": "P2Y"},
        },
        "after": {"session_closed": {"personal": "P3D"}, "contract_ended": {"personal": "P1M"}},
    }
)
INSTANTS = st.datetimes(datetime(2000, 1, 1), datetime(2090, 1, 1), timezones=st.just(UTC))


# why ------------------------------------------------------------------------------------------------------------------


@given(written=INSTANTS)
def test_a_lifetime_from_the_writing_is_told_as_such_whatever_the_calendar(written: datetime) -> None:
    life = POLICY.lifetime(Basis.SESSION, Sensitivity.PERSONAL)
    assert life is not None
    found = why(Basis.SESSION, Sensitivity.PERSONAL, written, life.after(written), policy=POLICY)
    assert found == ("session×personal=P1M", None)
    assert 28 * DAY <= life.after(written) - written <= 31 * DAY


@given(written=INSTANTS, later=st.timedeltas(timedelta(0), timedelta(days=27)))
def test_an_occasion_is_told_with_its_instant(written: datetime, later: timedelta) -> None:
    closed = written + later
    due: Sequence[datetime | None] = [None, None, closed + 3 * DAY, None]
    occasions = [(Occasion.SESSION_CLOSED, closed, due, POLICY)]
    kept = min(closed + 3 * DAY, why_life(written))
    rule, since = why(Basis.SESSION, Sensitivity.PERSONAL, written, kept, policy=POLICY, occasions=occasions)
    if kept == closed + 3 * DAY:
        assert (rule, since) == ("session_closed×personal=P3D", closed)
    else:
        assert rule == "session×personal=P1M"


def why_life(written: datetime) -> datetime:
    life = POLICY.lifetime(Basis.SESSION, Sensitivity.PERSONAL)
    assert life is not None
    return life.after(written)


@given(written=INSTANTS, seconds=st.integers(1, 26 * 86_400))
def test_an_earlier_end_that_no_rule_gives_was_asked_for(written: datetime, seconds: int) -> None:
    kept = written + timedelta(seconds=seconds)
    rule, _ = why(Basis.CONTRACT, Sensitivity.PERSONAL, written, kept, policy=POLICY)
    assert rule == "asked"


def test_what_has_no_end_an_act_and_a_withdrawal_are_told_first() -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    assert why(Basis.INDEFINITE, Sensitivity.PERSONAL, at, None, policy=POLICY) == ("indefinite", None)
    moved = {at + DAY: ("shortened", at)}
    assert why(Basis.SESSION, Sensitivity.PERSONAL, at, at + DAY, policy=POLICY, moved=moved) == ("shortened", at)
    rule = why(Basis.CONSENT, Sensitivity.PERSONAL, at, at + DAY, policy=POLICY, withdrawn_at=at + DAY)
    assert rule == ("consent_withdrawn", at + DAY)


# doors ----------------------------------------------------------------------------------------------------------------


class Keeper(Desk):
    def __init__(self, organisation: Any, agent: Any) -> None:
        super().__init__(organisation)
        self.other = organisation.person(MemberRole.PRIVACY_OFFICER)
        self.agent = agent
        publish(organisation)
        publish_policy(organisation, after={"session_closed": {"personal": "P3D", "internal": "P3D"}})

    def fact(self, value: str = "Lisbon", **more: Any) -> UUID:
        found = say(self.agent, "mira", "city", value, **more).fact
        assert found is not None
        return found

    def kept(self, fact: UUID) -> keeping.Kept:
        with acting(self.officer) as actor:
            return keeping.explain(actor.tenant, fact)

    def dates(self, fact: UUID) -> set[datetime]:
        """Every date of a fact: its own, its evidence's, its value's and what finds it."""
        return {
            row[0]
            for row in worker_rows(
                self.organisation,
                "SELECT f.expires_at FROM memory_fact f WHERE f.id = %s UNION SELECT e.expires_at FROM memory_evidence e"
                " WHERE e.fact_id = %s UNION SELECT p.expires_at FROM memory_payload p JOIN memory_fact f"
                " ON f.payload_id = p.id WHERE f.id = %s",
                fact, fact, fact,
            )
        }  # fmt: skip


@pytest.fixture
def keeper(tenant: Any, agent: Any) -> Keeper:
    return Keeper(tenant, agent)


def test_the_rule_of_a_stored_fact_is_told_before_and_after_its_session(keeper: Keeper) -> None:
    fact = keeper.fact(provenance={"turn_id": "t", "session_id": "s1"})
    assert keeper.kept(fact).rule == "session×internal=P30D"
    assert keeper.agent.api.send("POST", "/api/v1/sessions/s1/close/", {}).status_code == 200
    settle_all(keeper.organisation)
    kept = keeper.kept(fact)
    assert kept.rule == "session_closed×internal=P3D"
    assert kept.because[0].since is not None
    assert kept.because[0].since + 3 * DAY == kept.expires_at


def test_shortening_is_free_moves_everything_and_is_told(keeper: Keeper) -> None:
    fact, until = keeper.fact(), now() + 2 * DAY
    with acting(keeper.reviewer) as actor:
        keeping.shorten(actor, fact, until, reason="no_longer_needed", now=now())
    assert keeper.dates(fact) == {until}
    assert keeper.kept(fact).rule == "shortened"
    with acting(keeper.reviewer) as actor:
        with pytest.raises(Clash, match="not_shorter"):
            keeping.shorten(actor, fact, until + DAY, reason="other", now=now())
        with pytest.raises(Refused):
            keeping.shorten(actor, fact, until - DAY, reason="because", now=now())
    with acting(keeper.admin) as actor, pytest.raises(Forbidden):
        keeping.shorten(actor, fact, until - DAY, reason="other", now=now())


def ask(keeper: Keeper, fact: UUID, until: datetime, review_at: datetime) -> Any:
    with acting(keeper.officer) as actor:
        return keeping.ask_extension(actor, fact, until, review_at=review_at, reason="still_needed", now=now())


def decide(keeper: Keeper, question: Any, by: Any, answer: Answer = Answer.APPROVE) -> Any:
    with acting(by) as actor:
        return keeping.decide_extension(
            actor, question.id, answer, shown=bytes(question.digest), reason="other", now=now()
        )


def test_extending_needs_another_person_and_a_review(keeper: Keeper) -> None:
    soon = (now() + 2 * DAY).isoformat()
    fact = keeper.fact(retention={"basis": "session", "expires_at": soon})
    until, review = now() + 20 * DAY, now() + 10 * DAY
    question = ask(keeper, fact, until, review)
    assert keeper.kept(fact).expires_at == datetime.fromisoformat(soon)
    with pytest.raises(Forbidden, match="own_request"):
        decide(keeper, question, keeper.officer)
    with pytest.raises(Forbidden, match="role_missing"):
        decide(keeper, question, keeper.reviewer)
    decide(keeper, question, keeper.other)
    kept = keeper.kept(fact)
    assert (kept.expires_at, kept.review_at, kept.rule) == (until, review, "extended")
    assert keeper.dates(fact) == {until}


def test_no_longer_than_what_is_written_now_and_never_without_a_review(keeper: Keeper) -> None:
    fact = keeper.fact()
    for until, review in (
        (now() + 40 * DAY, now() + DAY),
        (now() + 31 * DAY, now() + 32 * DAY),
        (now() + 30 * DAY, now() - DAY),
    ):
        with pytest.raises((Refused, Clash)):
            ask(keeper, fact, until, review)
    with pytest.raises(Clash, match="not_longer"):
        ask(keeper, fact, now() + DAY, now() + DAY)


def test_what_was_approved_is_what_was_shown(keeper: Keeper) -> None:
    soon = (now() + 5 * DAY).isoformat()
    fact = keeper.fact(retention={"basis": "session", "expires_at": soon})
    question = ask(keeper, fact, now() + 20 * DAY, now() + 10 * DAY)
    with acting(keeper.reviewer) as actor:
        keeping.shorten(actor, fact, now() + DAY, reason="other", now=now())
    with pytest.raises(Clash, match="changed_since_shown"):
        decide(keeper, question, keeper.other)
    assert decide(keeper, question, keeper.other, Answer.REFUSE)[0].state == "refused"


def test_what_has_no_end_comes_before_a_person_and_is_kept_or_ended(keeper: Keeper, superuser: Any) -> None:
    facts = [keeper.fact(f"city {number}", valid_from=f"2026-01-0{number + 1}T00:00:00Z") for number in range(2)]
    superuser.execute("UPDATE memory_fact SET review_at = now() - interval '1 day' WHERE tenant_id = %s", [keeper.id])
    with acting(keeper.reviewer) as actor:
        due = disposition.queue(keeper.id, now=now())
        assert {each.fact for each in due} == set(facts)
        assert {each.attribute for each in due} == {"city"}
        with pytest.raises(Refused):
            disposition.keep(actor, facts[0], now() + 400 * DAY, reason="still_needed", now=now())
        disposition.keep(actor, facts[0], now() + 100 * DAY, reason="still_needed", now=now())
        with pytest.raises(Forbidden):
            disposition.end(actor, facts[1], reason="no_longer_needed", now=now())
    with acting(keeper.officer) as actor:
        assert disposition.end(actor, facts[1], reason="no_longer_needed", now=now())
        assert disposition.queue(keeper.id, now=now()) == []
        with pytest.raises(Missing):
            disposition.end(actor, facts[1], reason="no_longer_needed", now=now())
    assert keeper.kept(facts[1]).ended_by == "expired"
    assert keeper.agent.api.send("GET", f"/api/v1/facts/{facts[1]}/").status_code == 404


def test_the_api_explains_what_the_agent_sees_and_shortens_what_it_wrote(keeper: Keeper, make_agent: Any) -> None:
    fact = keeper.fact()
    api = keeper.agent.api
    told = api.send("GET", f"/api/v1/facts/{fact}/lifetime/").json()
    assert told["rule"] == "session×internal=P30D"
    body = {"expires_at": (now() + DAY).isoformat(), "reason": "no_longer_needed"}
    stranger = make_agent("stranger").api
    assert stranger.send("POST", f"/api/v1/facts/{fact}/shorten/", body).status_code == 403
    low = make_agent("low", clearance="public").api
    assert low.send("GET", f"/api/v1/facts/{fact}/lifetime/").status_code == 404
    answer = api.send("POST", f"/api/v1/facts/{fact}/shorten/", body)
    assert (answer.status_code, answer.json()["rule"]) == (200, "shortened")
    assert api.send("POST", f"/api/v1/facts/{fact}/shorten/", {**body, "reason": "x"}).status_code == 400


def test_the_page_tells_why_and_does_the_acts_by_two_people(keeper: Keeper) -> None:
    soon = (now() + 2 * DAY).isoformat()
    fact = keeper.fact(retention={"basis": "session", "expires_at": soon})
    here = f"/admin/retention/lifetimechange/of/{fact}/"
    officer, other = keeper.officer.signed_in(), keeper.other.signed_in()
    assert "asked" in officer.get(here).content.decode()
    day = (now() + 20 * DAY).date().isoformat()
    review = (now() + 10 * DAY).date().isoformat()
    sent = {"act": "extend", "until": day, "review_at": review, "reason": "still_needed"}
    assert officer.post(here, sent).status_code == 302
    with acting(keeper.other):
        waits = keeping.pending(keeper.id, fact)
    assert waits is not None
    decided = {
        "act": "decide", "question": str(waits[1].id), "answer": "approve", "shown": bytes(waits[1].digest).hex(),
        "reason": "checked",
    }  # fmt: skip
    assert officer.post(here, decided).status_code == 403
    assert other.post(here, decided).status_code == 302
    assert keeper.kept(fact).rule == "extended"
    assert keeper.reviewer.signed_in().post(here, {"act": "shorten", "until": "", "reason": "other"}).status_code == 400
    assert keeper.admin.signed_in().post(here, sent).status_code == 403
    assert officer.get("/admin/retention/lifetimechange/due/").status_code == 200
