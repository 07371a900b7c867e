"""The ledger through its doors against the model of one sentence: every verb, both times."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, ClassVar
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from memory import recall
from tests.memory.doors import MICROSECOND, Asked, Denied, Doors, Retracted, Written, assert_sound, day
from tests.memory.ledger_model import Key, Life, Said

KEYS = {
    "city": Key(False, "confirmed_then_trust"),
    "plan": Key(False, "latest"),
    "grade": Key(False, "review"),
    "tags": Key(True, "confirmed_then_trust"),
    "labels": Key(True, "latest"),
}
RUNS = [("city", "city"), ("city", "plan"), ("city", "grade"), ("tags", "tags"), ("tags", "labels")]
#: Which of the run's attributes; a run has few, so that much is said of each.
NAMES = st.sampled_from([0, 1])
# Few values and instants, so that what is said meets what was said.
VALUES = st.sampled_from("aabbc")
STARTS = st.integers(0, 4)
UNTIL = st.one_of(st.none(), st.none(), st.integers(1, 4))
WHO = st.sampled_from(["low", "middle", "high", "person"])
TRUST = {"low": 30, "middle": 50, "high": 70, "person": 0}


def _pick(data: Any, options: Any) -> Any:
    """Draw one of `options`, from Hypothesis or from a random number generator."""
    return data.choice(list(options)) if isinstance(data, random.Random) else data.draw(st.sampled_from(list(options)))


@dataclass(eq=False)
class Proposal:
    """A candidate that waits, as the model keeps it."""

    name: str
    act: str
    value: str | None
    is_end: bool
    target: Any
    told: list[dict[str, Any]] = field(default_factory=list)


class Ledger(RuleBasedStateMachine):
    doors: ClassVar[Doors]

    @initialize(names=st.sampled_from(RUNS), today=st.sampled_from([True, False, False]))
    def begin(self, names: tuple[str, str], today: bool) -> None:
        self.names = names
        # After one saying of today everything else comes late: most runs have none.
        self.today = today
        self.subject = f"subject-{uuid4().hex}"
        self.keys = {name: Key(KEYS[name].multi, KEYS[name].policy) for name in names}
        self.pending: dict[Any, Proposal] = {}
        self.known: set[Any] = set()
        # What a person rejected, with how many sayings waited until then.
        self.rejected: dict[tuple[str, str], int] = {}
        self.asked = 0

    def actor(self, who: str) -> Any:
        return {"low": self.doors.low, "middle": self.doors.agent, "high": self.doors.high}.get(who, self.doors.person)

    # saying -------------------------------------------------------------------------------------------------------

    @rule(
        which=NAMES,
        value=VALUES,
        start=STARTS,
        lasts=UNTIL,
        who=WHO,
        level=st.sampled_from([None, None, "internal", "restricted"]),
        basis=st.sampled_from(["session", "contract"]),
    )
    def say(self, which: int, value: str, start: int, lasts: int | None, who: str, level: Any, basis: str) -> None:
        name = self.names[which]
        self._say(name, value, day(start), lasts, who, sensitivity=level, retention={"basis": basis}, tool="t")

    @precondition(lambda self: self.today)
    @rule(which=NAMES, value=VALUES, who=st.sampled_from(["low", "high"]))
    def say_as_of_now(self, which: int, value: str, who: str) -> None:
        name = self.names[which]
        self._say(name, value, None, None, who)

    @rule(which=NAMES, value=st.one_of(st.none(), VALUES), start=STARTS, lasts=UNTIL, who=WHO)
    def end(self, which: int, value: str | None, start: int, lasts: int | None, who: str) -> None:
        name = self.names[which]
        self._say(name, value if self.keys[name].multi else None, day(start), lasts, who, ended=True)

    @rule(which=NAMES, value=VALUES, start=STARTS, lasts=UNTIL, who=WHO, step=st.sampled_from([0, 0, 1]))
    def bring_in(self, which: int, value: str, start: int, lasts: int | None, who: str, step: int) -> None:
        """An import: at the key's newest instant again, or later where that is not yet to come."""
        name = self.names[which]
        moments = self.keys[name].moments()
        at = max(moments, default=day(100)) + timedelta(hours=step if max(moments, default=day(0)) < day(1000) else 0)
        if who != "person":
            self._say(name, value, day(start), lasts, who, recorded_at=at)

    def _say(
        self, name: str, value: str | None, start: datetime | None, lasts: int | None, who: str, **given: Any
    ) -> None:
        until = None if lasts is None or start is None else start + timedelta(days=lasts)
        if who == "person" and start is not None:
            given["source"] = "confirmation"
            given.pop("tool", None)
        body = self.doors.body(name, value, start, until, subject=self.subject, **given)
        outcome = self.doors.write([body], by=self.actor(who))[0]
        self._judge(name, value, start, until, who, outcome, is_end=bool(given.get("ended")), dated=start is not None)

    def _judge(
        self,
        name: str,
        value: str | None,
        start: datetime | None,
        until: datetime | None,
        who: str,
        outcome: Any,
        *,
        is_end: bool,
        targets: tuple[Said, ...] = (),
        named: Any = None,
        dated: bool = True,
        rows: Iterator[tuple[Any, ...]] | None = None,
    ) -> None:
        key = self.keys[name]
        # An instant of before the decision; `named` begins when what it corrects did, and says no instant of its own.
        returns = value is not None and (name, value) in self.rejected
        if returns and dated:
            assert isinstance(outcome, Denied), outcome
            assert outcome.code == "suppressed"
            return
        confirmed = who == "person" and start is not None and named is None
        rivals = [] if start is None else key.rivals(value, is_end=is_end, valid_from=start, gone=targets)
        rank = key.rank(rivals, confirmed=confirmed, trust=TRUST[who])
        saying = {
            "value": value,
            "is_end": is_end,
            "valid_from": start,
            "until": until,
            "trust": TRUST[who],
            "writer": who,
            "confirmed": confirmed,
        }
        asks = any(each.confirmed for each in targets) and who != "person"
        returns = returns and (bool(targets) or is_end or not key.says_now(value))
        if returns or asks or (not confirmed and key.asks(rank, rivals)):
            assert isinstance(outcome, Asked), outcome
            self._wait(outcome, Proposal(name, "correction" if targets else "fact", value, is_end, named), saying)
            return
        assert isinstance(outcome, Written), outcome
        row = next(iter(self._news(name)) if rows is None else rows)
        assert row[0] == outcome.evidence
        self._take_back(targets, row[1])
        self._stand(key, saying, rank, row)

    def _news(self, name: str) -> list[tuple[Any, ...]]:
        """The evidence that the database has and the model has not."""
        found = self.doors.sql(
            "SELECT e.id, e.recorded_at, e.valid_from, e.fact_id FROM memory_evidence e"
            " JOIN memory_factkey k ON k.id = e.key_id JOIN policies_attribute a ON a.id = k.attribute_id"
            " JOIN memory_subject s ON s.id = k.subject_id"
            " WHERE a.name = %s AND s.id = %s AND NOT (e.id = ANY(%s::uuid[])) ORDER BY e.act_no",
            *(name, self.subject_id, list(self.known)),
        )
        self.known |= {row[0] for row in found}
        return found

    @property
    def subject_id(self) -> Any:
        if not hasattr(self, "_subject_id"):
            self._subject_id = self.doors.name(self.subject).id
        return self._subject_id

    def _stand(self, key: Key, saying: dict[str, Any], rank: int, row: tuple[Any, ...]) -> None:
        said = key.say(row[0], **{**saying, "valid_from": row[2]}, rank=rank, recorded_at=row[1])
        assert saying["valid_from"] in (None, row[2])
        if said.life is not None:
            assert said.life.fact in (None, row[3]), "the same value that has not ended is the same fact"
            said.life.fact = row[3]
        else:
            assert row[3] is None

    def _take_back(self, targets: Any, at: datetime) -> None:
        for each in targets:
            each.retracted_at = at

    # correcting and taking back -----------------------------------------------------------------------------------

    def _named(self, data: Any, *, whole: bool) -> tuple[str, Any, list[Said]] | None:
        """Draw a piece of evidence, or a fact with all its evidence."""
        everything = [(name, each) for name, key in self.keys.items() for each in key.said]
        if not everything:
            return None
        name, said = _pick(data, everything)
        if whole and said.life is not None:
            return name, said.life.fact, [each for each in self.keys[name].said if each.life is said.life]
        return name, said.name, [said]

    def _refusal(self, targets: list[Said], who: str) -> int | None:
        standing = [each for each in targets if each.retracted_at is None]
        if any(each.life is not None and each.life.ended for each in targets) or not standing:
            return 409
        if who != "person" and any(each.writer != who and each.trust > TRUST[who] for each in standing):
            return 403
        return None

    @rule(data=st.data(), who=WHO, whole=st.booleans(), imported=st.booleans())
    def retract(self, data: Any, who: str, whole: bool, imported: bool) -> None:
        drawn = self._named(data, whole=whole)
        if drawn is None:
            return
        name, named, targets = drawn
        fact = named if named != targets[0].name else None
        at = max(self.keys[name].moments()) if imported and who != "person" else None
        outcome = self.doors.retract(
            by=self.actor(who), fact=fact, evidence=None if fact is not None else named, recorded_at=at
        )
        refused = self._refusal(targets, who)
        standing = [each for each in targets if each.retracted_at is None]
        if refused is not None:
            assert isinstance(outcome, Denied), outcome
            assert outcome.status == refused
        elif who != "person" and any(each.confirmed for each in standing):
            assert isinstance(outcome, Asked), outcome
            self._wait(outcome, Proposal(name, "retraction", None, False, named), {})
        else:
            assert isinstance(outcome, Retracted), outcome
            assert set(outcome.evidence) == {each.name for each in standing}
            self._take_back(standing, self._retracted_at(standing[0].name))

    def _retracted_at(self, evidence: Any) -> datetime:
        at: datetime = self.doors.sql("SELECT retracted_at FROM memory_evidence WHERE id = %s", evidence)[0][0]
        return at

    @rule(
        data=st.data(),
        who=WHO,
        whole=st.booleans(),
        value=st.one_of(VALUES, VALUES, st.none()),
        start=st.one_of(st.none(), STARTS),
    )
    def correct(self, data: Any, who: str, whole: bool, value: str | None, start: int | None) -> None:
        drawn = self._named(data, whole=whole)
        if drawn is None:
            return
        name, named, targets = drawn
        standing = sorted(
            (each for each in targets if each.retracted_at is None), key=lambda each: (each.valid_from, each.act)
        )
        body = self.doors.body(name, value, start, None, subject=self.subject, corrects=named, ended=value is None)
        outcome = self.doors.write([body], by=self.actor(who))[0]
        refused = self._refusal(targets, who)
        if start is not None and (name, value) in self.rejected:
            refused = 422
        if refused is not None:
            assert isinstance(outcome, Denied), outcome
            assert outcome.status == refused
            return
        begins = standing[0].valid_from if start is None else day(start)
        until = standing[0].until
        if until is not None and until <= begins:
            assert isinstance(outcome, Denied), outcome
            assert outcome.status == 422
            return
        self._judge(
            name,
            value,
            begins,
            until,
            who,
            outcome,
            is_end=value is None,
            targets=tuple(standing),
            named=named,
            dated=start is not None,
        )

    @rule(which=NAMES, items=st.lists(st.tuples(VALUES, STARTS, UNTIL, st.booleans()), min_size=2, max_size=5), who=WHO)
    def say_several(self, which: int, items: list[tuple[str, int, int | None, bool]], who: str) -> None:
        """A batch on one key: its items act in their order."""
        name = self.names[which]
        if who == "person":
            return
        said = [
            (value if self.keys[name].multi or not ended else None, day(start), lasts, ended)
            for value, start, lasts, ended in items
        ]
        bodies = [
            self.doors.body(
                name,
                value,
                start,
                None if lasts is None else start + timedelta(days=lasts),
                subject=self.subject,
                ended=ended,
            )
            for value, start, lasts, ended in said
        ]
        outcomes = self.doors.write(bodies, by=self.actor(who), batch=True)
        rows = iter(self._news(name))
        for (value, start, lasts, ended), outcome in zip(said, outcomes, strict=True):
            until = None if lasts is None else start + timedelta(days=lasts)
            self._judge(name, value, start, until, who, outcome, is_end=ended, rows=rows)
        assert not list(rows)

    # what waits ---------------------------------------------------------------------------------------------------

    def _wait(self, outcome: Asked, proposal: Proposal, saying: dict[str, Any]) -> None:
        same = [
            name
            for name, each in self.pending.items()
            if (each.name, each.act, each.value, each.is_end, each.target)
            == (proposal.name, proposal.act, proposal.value, proposal.is_end, proposal.target)
        ]
        assert same in ([], [outcome.candidate]), "an equal proposal joins the one that waits"
        self.asked += 1
        self.pending.setdefault(outcome.candidate, proposal).told.append({**saying, "place": self.asked})

    @precondition(lambda self: self.pending)
    @rule(data=st.data(), accept=st.sampled_from([True, True, False]))
    def decide(self, data: Any, accept: bool) -> None:
        candidate = _pick(data, self.pending)
        proposal = self.pending[candidate]
        key = self.keys[proposal.name]
        outcome = self.doors.decide(candidate, accept=accept)
        rows = self._news(proposal.name)
        if not accept:
            del self.pending[candidate]
            assert not rows
            if proposal.act != "retraction" and proposal.value is not None:
                self.rejected[proposal.name, proposal.value] = self.asked
            return
        targets: list[Said] = []
        if proposal.target is not None:
            named = [
                each
                for each in key.said
                if proposal.target == each.name or (each.life is not None and each.life.fact == proposal.target)
            ]
            if self._refusal(named, "person") is not None:
                assert isinstance(outcome, Denied), outcome
                assert outcome.status == 409
                return
            targets = [each for each in named if each.retracted_at is None]
        told = proposal.told
        if proposal.act != "retraction" and proposal.value is not None:
            decided = self.rejected.get((proposal.name, proposal.value), 0)
            told = [each for each in told if each["place"] > decided]
            if not told:
                assert isinstance(outcome, Denied), outcome
                assert (outcome.status, outcome.code) == (409, "suppressed")
                return
        told = [{name: each for name, each in saying.items() if name != "place"} for saying in told]
        del self.pending[candidate]
        if proposal.act == "retraction":
            assert isinstance(outcome, Retracted), outcome
            self._take_back(targets, self._retracted_at(targets[0].name))
            return
        assert isinstance(outcome, Written), outcome
        assert len(rows) == len(told) + 1, "what was said, and the person's word"
        self._take_back(targets, rows[0][1])
        confirmation = {**told[-1], "trust": 0, "writer": "person", "confirmed": True}
        for saying, row in zip([*told, confirmation], rows, strict=True):
            rivals = key.rivals(saying["value"], is_end=saying["is_end"], valid_from=saying["valid_from"])
            rank = key.rank(rivals, confirmed=saying["confirmed"], trust=saying["trust"])
            self._stand(key, saying, rank, row)

    # endings ------------------------------------------------------------------------------------------------------

    @rule(data=st.data())
    def expire(self, data: Any) -> None:
        lives = [life for key in self.keys.values() for life in key.lives if not life.ended and key.count(life)]
        if lives:
            life = _pick(data, lives)
            self.doors.expire(life.fact)
            life.ended = True

    # reading ------------------------------------------------------------------------------------------------------

    @rule(data=st.data())
    def look_back(self, data: Any) -> None:
        name = _pick(data, self.names)
        moments = sorted(self.keys[name].moments())
        if moments:
            known = _pick(data, moments) - _pick(data, [timedelta(0), MICROSECOND])
            self._compare(name, known)

    def teardown(self) -> None:
        if hasattr(self, "keys"):
            for name in self.keys:
                self._compare(name, None)

    def _compare(self, name: str, known: datetime | None) -> None:
        key = self.keys[name]
        bounds = key.bounds()
        instants = sorted(bounds | {each - MICROSECOND for each in bounds} | {each + MICROSECOND for each in bounds})
        actor = self.doors.agent
        with self.doors.reading():
            for instant in instants:
                page = recall.facts(actor, subject=self.subject, attribute=name, valid_at=instant, known_at=known)
                found = sorted(each["value"] for each in page.results)
                assert found == key.values(instant, known), (name, instant, known)
                lives: dict[Any, Life] = {life.fact: life for life in key.holds(instant, known)}
                assert len(page.results) + sum(page.withheld.values()) == len(lives)
                for each in page.results:
                    former = key.before(lives[each["id"]], instant, known)
                    assert each["supersedes"] == (None if former is None else former.fact), (name, instant, known)
                    assert each["evidence_count"] == key.count(lives[each["id"]])


@pytest.fixture(scope="module")
def doors(database: Any) -> Doors:
    return Doors()


def test_the_ledger_obeys_its_one_sentence_whatever_is_said_in_whatever_order(doors: Doors) -> None:
    Ledger.doors = doors
    run_state_machine_as_test(
        Ledger,
        settings=settings(
            max_examples=60,
            stateful_step_count=30,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
            print_blob=True,
            # Shrinking a run of commits takes minutes; a failure tells its steps as they were.
            phases=[Phase.generate],
        ),
    )
    assert_sound(doors)


@pytest.mark.parametrize("seed", range(50))
def test_the_ledger_obeys_its_one_sentence_on_a_random_walk(doors: Doors, seed: int) -> None:
    """Even chances for every step, where Hypothesis likes to repeat itself."""
    chance = random.Random(seed)
    Ledger.doors = doors
    ledger = Ledger()
    ledger.begin(chance.choice(RUNS), chance.random() < 0.2)

    def saying() -> dict[str, Any]:
        return {
            "which": chance.randint(0, 1),
            "start": chance.randint(0, 4),
            "lasts": chance.choice([None, None, 1, 3]),
        }

    def who() -> str:
        return chance.choice(["low", "middle", "high", "person"])

    def value() -> str:
        return chance.choice("aabbc")

    steps: list[Callable[[], None]] = [
        *[lambda: ledger.say(value=value(), who=who(), level=None, basis="session", **saying())] * 6,
        lambda: ledger.say(value=value(), who=who(), level="restricted", basis="contract", **saying()),
        lambda: ledger.end(value=chance.choice([None, value()]), who=who(), **saying()),
        lambda: ledger.bring_in(value=value(), who=who(), step=chance.randint(0, 1), **saying()),
        lambda: ledger.retract(data=chance, who=who(), whole=chance.random() < 0.5, imported=chance.random() < 0.5),
        lambda: ledger.correct(
            data=chance,
            who=who(),
            whole=chance.random() < 0.5,
            value=chance.choice([None, *"aabbc"]),
            start=chance.choice([None, 0, 2, 4]),
        ),
        lambda: ledger.decide(data=chance, accept=chance.random() < 0.7) if ledger.pending else None,
        lambda: ledger.say_as_of_now(which=0, value=value(), who="high") if ledger.today else None,
        lambda: ledger.look_back(data=chance),
    ]
    for _ in range(30):
        chance.choice(steps)()
        if chance.random() < 0.05:
            ledger.expire(data=chance)
    ledger.teardown()


def test_any_order_of_arrival_of_the_same_evidence_of_one_instant_gives_the_same_beliefs(doors: Doors) -> None:
    at = day(1000)
    for seed in range(10):
        chance = random.Random(seed)
        name = chance.choice(["city", "plan", "tags", "labels"])
        said: dict[Any, tuple[Any, ...]] = {}
        for _ in range(chance.randint(3, 7)):
            value, start, lasts = chance.choice("abc"), chance.randint(0, 9), chance.choice([None, None, 1, 3])
            ended = chance.random() < 0.2
            if ended and not KEYS[name].multi:
                value = ""
            # One value an instant: who comes first where two differ is the one thing that their order does decide.
            said.setdefault(start, (value or None, start, None if lasts is None else start + lasts, ended))
        if name == "city":
            # With trust to decide, not even that depends on the order.
            value, start, until, ended = chance.choice(list(said.values()))
            said["rival"] = (None if value is None else f"{value}!", start, until, ended)
        found = []
        for number in range(4):
            order = sorted(said.items(), key=lambda each: str(each[0]))
            chance.shuffle(order)
            subject = f"order-{seed}-{number}"
            told = [
                (
                    doors.high if which == "rival" else doors.low,
                    doors.body(name, value, start, until, subject=subject, ended=ended, recorded_at=at),
                )
                for which, (value, start, until, ended) in order
            ]
            if number == 3 and "rival" not in said:
                outcomes = doors.write([body for _, body in told], by=doors.low, batch=True)
            else:
                outcomes = [doors.write([body], by=actor)[0] for actor, body in told]
            assert {type(each) for each in outcomes} == {Written}
            instants = [day(n) + nudge for n in range(14) for nudge in (-MICROSECOND, timedelta(0))]
            answers = []
            for instant in instants:
                page = doors.page(name, subject=subject, valid_at=instant, known_at=at)
                answers.append(sorted((each["value"], each["valid_from"], each["valid_to"]) for each in page.results))
            found.append(answers)
        assert found[1:] == found[:-1], (seed, name, said)
    assert_sound(doors)
