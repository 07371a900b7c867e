"""What a write came to. Ids and codes only, so that it may be kept for a repeat and told in any face."""

from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from tenants.errors import FieldError


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The saying stands as evidence. `blind`: the writer may not know what became of it, since the key is above it."""

    change: str
    fact: UUID | None
    evidence: UUID
    receipt: UUID
    blind: bool = False
    reasons: tuple[str, ...] = ()

    @property
    def status(self) -> int:
        """200 where nothing but the evidence is new, else 201."""
        return 200 if self.change == "no_change" and not self.blind else 201


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The saying waits: for a person (`ask`) or for recurrence (`buffer`)."""

    candidate: UUID
    verdict: str
    reasons: tuple[str, ...]
    receipt: UUID
    blind: bool = False

    @property
    def status(self) -> int:
        """202; 201 where even that is more than the writer may know."""
        return 201 if self.blind else 202


@dataclass(frozen=True, slots=True, kw_only=True)
class Denied:
    """The saying is not kept. `receipt`: the one that records the refusal."""

    status: int
    code: str
    errors: tuple[FieldError, ...] = ()
    reasons: tuple[str, ...] = ()
    rule: str = "none"
    receipt: UUID | None = None


class Refusal(Exception):
    """Raised where a saying may not be kept: `denied` is what it comes to. Names a path, never a value."""

    def __init__(
        self, code: str, path: str = "", *, status: int = 422, reasons: tuple[str, ...] = (), rule: str = "none"
    ) -> None:
        errors = (FieldError(path, code),) if path else ()
        self.denied = Denied(status=status, code=code, errors=errors, reasons=reasons, rule=rule)
        super().__init__(code)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retracted:
    """Evidence was taken back; what stands without it holds again."""

    evidence: tuple[UUID, ...]
    receipt: UUID

    @property
    def status(self) -> int:
        """Always 200."""
        return 200


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeKept:
    """The episode is stored, or was already (`repeated`).

    `replaced` counts the credentials that are not kept by the detector that found them, `detected` names what else found
    something, `quarantined` says that a person looks before anything drawn from it stands. `extraction`: how far drawing
    facts from it had come then, and its `code`. `again`: this request was answered before.
    """

    id: UUID
    receipt: UUID
    repeated: bool = False
    replaced: dict[str, int] = field(default_factory=dict)
    detected: tuple[str, ...] = ()
    quarantined: bool = False
    extraction: str = "none"
    code: str | None = None
    again: bool = False

    @property
    def status(self) -> int:
        """201, or 200 for a source that was there."""
        return 200 if self.repeated else 201


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsentKept:
    """The consent stands under its reference: recorded now (`created`), there already, or withdrawn."""

    id: UUID
    created: bool

    @property
    def status(self) -> int:
        """201 for one that is new, else 200."""
        return 201 if self.created else 200


@dataclass(frozen=True, slots=True, kw_only=True)
class RowKept:
    """A row of another app stands under its id: made now (`created`), or there already; which kind is the route's to say."""

    id: UUID
    created: bool

    @property
    def status(self) -> int:
        """201 for one that is new, else 200."""
        return 201 if self.created else 200


@dataclass(frozen=True, slots=True, kw_only=True)
class TermEnded:
    """A session is closed, or a contract has ended: what rests on it is kept no longer than the policy says after that."""

    id: UUID

    @property
    def status(self) -> int:
        """Always 200."""
        return 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposed:
    """A version of a procedure waits for a decision (`proposed`), one that already did has joined it, or is in force.

    `outcome`: `proposed`, `joined` or `unchanged`.
    """

    version: UUID
    outcome: str
    receipt: UUID

    @property
    def status(self) -> int:
        """201 for a version that is new, else 200."""
        return 201 if self.outcome == "proposed" else 200


Outcome = Written | Asked | Denied | Retracted | EpisodeKept | ConsentKept | TermEnded | RowKept | Proposed
_KINDS: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (Written, Asked, Denied, Retracted, EpisodeKept, ConsentKept, TermEnded, RowKept, Proposed)
}


def to_json(outcome: Outcome) -> dict[str, Any]:
    """Return an outcome as JSON data of ids and codes."""
    data: dict[str, Any] = {"kind": type(outcome).__name__}
    for name in outcome.__slots__:
        value = getattr(outcome, name)
        if isinstance(value, UUID):
            value = str(value)
        elif name == "errors":
            value = [[each.path, each.code] for each in value]
        elif name == "evidence" and isinstance(value, tuple):
            value = [str(each) for each in value]
        elif isinstance(value, tuple):
            value = list(value)
        data[name] = value
    return data


def from_json(data: dict[str, Any]) -> Outcome:
    """Return the outcome that `to_json` wrote."""
    kind = _KINDS[data["kind"]]
    given: dict[str, Any] = {name: value for name, value in data.items() if name != "kind"}
    for name in ("fact", "candidate", "receipt", "id", "version"):
        if given.get(name) is not None:
            given[name] = UUID(given[name])
    if "evidence" in given:
        value = given["evidence"]
        given["evidence"] = tuple(map(UUID, value)) if isinstance(value, list) else UUID(value)
    for name in ("reasons", "detected"):
        if name in given:
            given[name] = tuple(given[name])
    if "errors" in given:
        given["errors"] = tuple(FieldError(path, code) for path, code in given["errors"])
    outcome: Outcome = kind(**given)
    return outcome


@dataclass(frozen=True, slots=True)
class Seen:
    """What a person saw of a proposal when they decided: how often it was said, and which act on its key was the last."""

    occurrences: int
    act_no: int


@dataclass(frozen=True, slots=True)
class Instead:
    """The value that a person puts in the place of the proposed one."""

    value: Any = field(repr=False)


@dataclass(frozen=True, slots=True)
class Repeat:
    """What identifies a request that may come twice: the agent's key, the route and the body as sent."""

    key: str = field(repr=False)
    route: str
    body: bytes = field(repr=False)
