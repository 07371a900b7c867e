"""The ledger as one sentence says it, evaluated naively: at an instant, of the evidence that stands, the greatest
valid_from decides, then rank, then act. Shares no code with what it judges.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any


@dataclass(eq=False)
class Life:
    """One value of one chain from its first saying to its end. The same value said after that is another life."""

    value: str
    ended: bool = False
    fact: Any = None


@dataclass(eq=False)
class Said:
    """One piece of evidence."""

    name: Any
    life: Life | None  # None: an end that names no value
    is_end: bool
    valid_from: datetime
    until: datetime | None
    rank: int
    act: int
    recorded_at: datetime
    trust: int
    writer: Any
    confirmed: bool = False
    retracted_at: datetime | None = None

    def says(self) -> Life | None:
        """What is said to hold; None: nothing."""
        return None if self.is_end else self.life

    def stands(self, known: datetime | None) -> bool:
        """Whether it is evidence as of `known` (None: now)."""
        if known is None:
            return self.retracted_at is None
        return self.recorded_at <= known and (self.retracted_at is None or self.retracted_at > known)

    def covers(self, instant: datetime) -> bool:
        """Whether it speaks about `instant`."""
        return self.valid_from <= instant and (self.until is None or instant < self.until)


@dataclass
class Key:
    """One subject's attribute."""

    multi: bool
    policy: str
    said: list[Said] = field(default_factory=list)
    lives: list[Life] = field(default_factory=list)
    acts: int = 0

    # what holds ---------------------------------------------------------------------------------------------------

    def holds(self, instant: datetime, known: datetime | None = None) -> list[Life]:
        """What holds at `instant` as believed at `known`, ended lives included."""
        if not self.multi:
            winner = self._decides(self.said, instant, known)
            return [] if winner is None else [winner]
        chains = [self._decides(self._chain(life), instant, known) for life in self.lives]
        return [winner for winner in chains if winner is not None]

    def values(self, instant: datetime, known: datetime | None = None) -> list[str]:
        """What a reader is answered, sorted: what has ended is not there, whichever instants are asked about."""
        return sorted(life.value for life in self.holds(instant, known) if not life.ended)

    def says_now(self, value: str | None) -> bool:
        """Whether `value` holds now."""
        return any(life.value == value and not life.ended for life in self.holds(datetime.now(UTC)))

    def before(self, life: Life, instant: datetime, known: datetime | None = None) -> Life | None:
        """What held until `life`, which holds at `instant`, began to; None where nothing that is shown did."""
        said = self._chain(life) if self.multi else self.said
        for bound in sorted((each for each in self.bounds() if each <= instant), reverse=True):
            former = self._decides(said, bound, known)
            if former is not life:
                return None if former is None or former.ended else former
        return None

    def count(self, life: Life) -> int:
        """How many pieces of evidence say it now."""
        return sum(1 for each in self.said if each.life is life and not each.is_end and each.retracted_at is None)

    def bounds(self) -> set[datetime]:
        """Every instant at which something may begin or cease to hold."""
        return {each.valid_from for each in self.said} | {each.until for each in self.said if each.until is not None}

    def moments(self) -> set[datetime]:
        """Every instant at which something was recorded or taken back."""
        return {each.recorded_at for each in self.said} | {
            each.retracted_at for each in self.said if each.retracted_at is not None
        }

    def _chain(self, life: Life) -> list[Said]:
        return [each for each in self.said if each.life is life or each.life is None]

    @staticmethod
    def _decides(said: Iterable[Said], instant: datetime, known: datetime | None) -> Life | None:
        speaking = [each for each in said if each.stands(known) and each.covers(instant)]
        best = max(speaking, key=lambda each: (each.valid_from, each.rank, each.act), default=None)
        return None if best is None else best.says()

    # what may be said ---------------------------------------------------------------------------------------------

    def living(self, value: str) -> Life | None:
        """The life of `value` that has not ended."""
        return next((life for life in self.lives if life.value == value and not life.ended), None)

    def rivals(self, value: str | None, *, is_end: bool, valid_from: datetime, gone: Iterable[Said] = ()) -> list[Said]:
        """What stands of the same instant and says otherwise, what has ended included."""
        mine = None if value is None else self.living(value)
        said = self.said
        if self.multi and value is not None:
            said = [each for each in said if each.life is None or (mine is not None and each.life is mine)]
        return [
            each
            for each in said
            if each.stands(None)
            and not any(each is other for other in gone)
            and each.valid_from == valid_from
            and each.says() is not (None if is_end else mine or _NEW)
        ]

    def asks(self, rank: int, rivals: Iterable[Said]) -> bool:
        """Whether a person must decide. What has ended does not compete."""
        if self.policy == "latest":
            return False
        return any(self.policy == "review" or each.rank == rank for each in rivals if not _over(each))

    def rank(self, rivals: Iterable[Said], *, confirmed: bool, trust: int) -> int:
        """The rank that the policy gives: above what has ended, and for a person's word above everything."""
        if self.policy != "confirmed_then_trust":
            return 0
        beaten = [each.rank for each in rivals if confirmed or (_over(each) and not self.multi)]
        return max([confirmed * 1000 + trust, *beaten])

    def say(
        self,
        name: Any,
        value: str | None,
        *,
        is_end: bool,
        valid_from: datetime,
        until: datetime | None,
        rank: int,
        recorded_at: datetime,
        trust: int,
        writer: Any,
        confirmed: bool = False,
    ) -> Said:
        """Let a saying stand."""
        life = None
        if value is not None:
            life = self.living(value)
            if life is None:
                life = Life(value)
                self.lives.append(life)
        self.acts += 1
        said = Said(
            name, life, is_end, valid_from, until, rank, self.acts, recorded_at, trust, writer, confirmed=confirmed
        )
        self.said.append(said)
        return said


def _over(said: Said) -> bool:
    life = said.says()
    return life is not None and life.ended


_NEW = Life("")
