"""One fact key in memory: its facts, its chains, and what the acts of one transaction change in them.

Pure: imports no Django. The write door loads a key under its lock, lets acts happen here one after another, and writes
what is left over: beliefs that closed, beliefs that opened, facts that are new or changed.
"""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

from memory.reconcile import Held, Plan, Saying, Stretch, appended, plan, stretches
from tenants.identity import new_id

MICROSECOND = timedelta(microseconds=1)


class NotLoaded(Exception):
    """The act is more than an append: the chain's standing evidence must be loaded first."""


@dataclass(slots=True)
class BeliefState:
    """A belief of one chain; `fresh` ones are not in the database yet."""

    id: UUID
    chain_no: int
    evidence_id: UUID
    fact_id: UUID | None
    valid_from: datetime
    valid_to: datetime | None
    believed_from: datetime
    believed_to: datetime | None = None
    fresh: bool = False

    def held(self) -> Held:
        """The belief as `reconcile` sees it."""
        return Held(self.id, Stretch(self.evidence_id, self.fact_id, self.valid_from, self.valid_to))


@dataclass(slots=True)
class FactState:
    """A fact that has not ended, with what decides how long and to whom it may be shown."""

    id: UUID
    chain_no: int
    digest: bytes
    payload_id: UUID
    sensitivity: int
    basis: str
    expires_at: datetime | None
    consent_ids: frozenset[UUID] | None
    confirmed: bool
    confidence: float | None
    evidence_count: int
    review_at: datetime | None
    clear: str | None = None
    fresh: bool = False
    changed: bool = False

    def gain(self, grounds: "Grounds") -> None:
        """Let a further piece of evidence stand for this fact: the highest class, the latest expiry, one more count."""
        before = (self.sensitivity, self.basis, self.expires_at, self.consent_ids, self.review_at)
        if self.evidence_count == 0:
            # Nothing else stands for it: what was taken back gives it no class either.
            self.sensitivity = grounds.sensitivity
            self.basis, self.expires_at = grounds.basis, grounds.expires_at
            self.consent_ids = None if grounds.consent_id is None else frozenset([grounds.consent_id])
        else:
            self.sensitivity = max(self.sensitivity, grounds.sensitivity)
            if self.expires_at is not None and (grounds.expires_at is None or grounds.expires_at > self.expires_at):
                self.basis, self.expires_at = grounds.basis, grounds.expires_at
            if self.consent_ids is not None:
                self.consent_ids = None if grounds.consent_id is None else self.consent_ids | {grounds.consent_id}
        if grounds.review_at is not None and (self.review_at is None or grounds.review_at < self.review_at):
            self.review_at = grounds.review_at
        self.confirmed = self.confirmed or grounds.confirmed
        self.confidence = together(self.confidence, grounds.confidence)
        self.evidence_count += 1
        self.changed = True
        self.raised = self.raised or self.sensitivity > before[0]
        if (self.sensitivity, self.basis, self.expires_at, self.consent_ids, self.review_at) != before:
            self.regoverned = True

    def restate(self, standing: Iterable["Grounds"]) -> None:
        """Recompute everything from the evidence that still stands; with none left the last grounds stay in force."""
        self.evidence_count, self.confirmed, self.confidence = 0, False, None
        review_at, sensitivity = self.review_at, self.sensitivity
        for grounds in standing:
            self.gain(grounds)
        # Evidence does not keep the date of review; what is kept without an end keeps being reviewed.
        self.review_at = review_at if self.basis == "indefinite" else None
        self.raised = self.sensitivity > sensitivity
        self.changed = self.regoverned = True

    regoverned: bool = False
    #: The class is higher than what is stored of the fact.
    raised: bool = False


@dataclass(frozen=True, slots=True)
class Grounds:
    """What one piece of evidence gives its fact."""

    sensitivity: int
    basis: str
    expires_at: datetime | None
    consent_id: UUID | None
    confirmed: bool
    confidence: float | None
    review_at: datetime | None = None


def together(first: float | None, second: float | None) -> float | None:
    """Return the greater of two confidences; None says nothing.

    A fact is as certain as its most certain saying. Sayings are not taken for independent witnesses: an agent that
    repeats itself would talk itself into certainty. How often a value was said is its count of evidence.
    """
    if first is None or second is None:
        return second if first is None else first
    return max(first, second)


@dataclass(slots=True)
class Chain:
    """One line of stretches. `sayings` is None while only the last stretch is known."""

    chain_no: int
    held: dict[Hashable, BeliefState] = field(default_factory=dict)
    sayings: dict[Hashable, Saying] | None = None
    #: The greatest valid_from among standing evidence; None: there is none.
    newest: datetime | None = None
    closed: list[tuple[UUID, datetime]] = field(default_factory=list)
    deleted: list[UUID] = field(default_factory=list)
    finished: list[BeliefState] = field(default_factory=list)
    #: What `last` found, while it stands: a thousand appends to a long chain look through it once.
    _last: BeliefState | None = None

    def last(self) -> BeliefState | None:
        """The believed stretch that begins last."""
        if self._last is None:
            self._last = max(self.held.values(), key=lambda belief: belief.valid_from, default=None)
        return self._last

    def rivals(self, saying: Saying) -> list[Saying]:
        """Return the standing sayings of the same instant with another value. Raises `NotLoaded` where they matter."""
        if self.newest is None or self.newest < saying.valid_from:
            return []
        if self.sayings is None:
            raise NotLoaded
        return [
            other
            for other in self.sayings.values()
            if other.valid_from == saying.valid_from and other.value != saying.value
        ]

    def add(self, saying: Saying, at: datetime) -> Plan:
        """Let `saying` stand as known from `at`; return what that changed. Raises `NotLoaded` when it is no append."""
        change = None
        appending = False
        # A chain with ends and no belief is one that begins now: the ends open its first stretches.
        begins = bool(self.sayings) and not self.held
        if not begins and (self.newest is None or self.newest < saying.valid_from):
            last = self.last()
            change = appended(None if last is None else last.held(), saying)
            appending = change is not None
        if change is None:
            if self.sayings is None:
                raise NotLoaded
            change = self._swept([*self.sayings.values(), saying])
        if self.sayings is not None:
            self.sayings[saying.id] = saying
        if self.newest is None or saying.valid_from > self.newest:
            self.newest = saying.valid_from
        opened = self._apply(change, at)
        if appending and opened:
            # Nothing that stayed begins later than what an append opens.
            self._last = max(opened, key=lambda belief: belief.valid_from)
        return change

    def replace(self, gone: Iterable[Hashable], saying: Saying | None, at: datetime) -> Plan:
        """Take sayings back and, in the same act, let another stand. The chain must be loaded."""
        if self.sayings is None:
            raise NotLoaded
        for each in gone:
            self.sayings.pop(each, None)
        if saying is not None:
            self.sayings[saying.id] = saying
        self.newest = max((each.valid_from for each in self.sayings.values()), default=None)
        change = self._swept(self.sayings.values())
        self._apply(change, at)
        return change

    def _swept(self, sayings: Iterable[Saying]) -> Plan:
        return plan([belief.held() for belief in self.held.values()], stretches(sayings))

    def _apply(self, change: Plan, at: datetime) -> list[BeliefState]:
        if change.close or change.open:
            self._last = None
        for each in change.close:
            belief = self.held.pop(each)
            if belief.believed_from == at:
                # Opened and closed at one instant: it was never believed.
                if not belief.fresh:
                    self.deleted.append(belief.id)
            elif belief.fresh:
                belief.believed_to = at
                self.finished.append(belief)
            else:
                self.closed.append((belief.id, at))
        opened = []
        for stretch in change.open:
            belief = BeliefState(
                id=new_id(),
                chain_no=self.chain_no,
                evidence_id=stretch.saying,  # type: ignore[arg-type]
                fact_id=stretch.value,  # type: ignore[arg-type]
                valid_from=stretch.valid_from,
                valid_to=stretch.valid_to,
                believed_from=at,
                fresh=True,
            )
            self.held[belief.id] = belief
            opened.append(belief)
        return opened

    def fresh(self) -> list[BeliefState]:
        """Return the beliefs that the database does not have yet."""
        return self.finished + [belief for belief in self.held.values() if belief.fresh]

    def value_at(self, instant: datetime) -> UUID | None:
        """Return the fact believed to hold at `instant`, or None. Right for the last stretch even when not loaded."""
        for belief in self.held.values():
            if belief.valid_from <= instant and (belief.valid_to is None or instant < belief.valid_to):
                return belief.fact_id
        return None


@dataclass(slots=True)
class KeyState:
    """A locked fact key. `act_no` and `newest_at` are those of the acts still to come in this transaction."""

    id: UUID
    subject_id: UUID
    attribute_id: UUID
    chain_no: int
    multi: bool
    act_no: int
    newest_at: datetime | None
    clock: datetime
    #: Act numbers up to here, and this newest_at, are stored already.
    reserved: int = 0
    imports: bool = False
    sensitivity: int = 0
    facts: dict[bytes, FactState] = field(default_factory=dict)
    chains: dict[int, Chain] = field(default_factory=dict)
    overdue: list[tuple[UUID, str]] = field(default_factory=list)
    #: Standing ends without a value: they belong to every chain of a multi-valued key, later ones too.
    ends: list[Saying] = field(default_factory=list)

    def recorded(self, imported: datetime | None) -> datetime:
        """Return the instant at which the next act is recorded, and move the key to it.

        The later of the clock and the newest act plus a microsecond; an import gives its own, which may equal the newest.
        """
        if imported is not None:
            self.newest_at = imported
        elif self.newest_at is None or self.clock > self.newest_at:
            self.newest_at = self.clock
        else:
            self.newest_at += MICROSECOND
        return self.newest_at

    def next_act(self) -> int:
        """Return the number of the next act on this key."""
        self.act_no += 1
        return self.act_no

    def chain(self, chain_no: int) -> Chain:
        """Return the chain of that number; one that is not known has nothing in it but the key's ends."""
        chain = self.chains.get(chain_no)
        if chain is None:
            chain = self.chains[chain_no] = Chain(chain_no, sayings={each.id: each for each in self.ends})
            chain.newest = max((each.valid_from for each in self.ends), default=None)
        return chain
