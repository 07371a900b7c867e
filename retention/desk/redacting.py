"""Taking out at the desk: the record, the whole message, or words of it that a person marked; looked at first, then proposed.

What is marked comes as places in the text, never as its words. An item says by `OFFERED` what of it may be taken out.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from retention import redaction
from retention.desk.queues import Choice, Item
from retention.redaction import Kind, Pick, Preview
from retention.strategies import Span, Strategy
from tenants.actors import Actor
from tenants.errors import FieldError, Missing, Refused
from tenants.identity import uuid_or_missing
from tenants.words import gettext_lazy

#: Under which name an item's facts say what may be taken out.
OFFERED = "offered"
#: What stays where words are taken out.
STRATEGIES = {
    Strategy.NULL.value: gettext_lazy("leave nothing"),
    Strategy.MASK.value: gettext_lazy("leave a mark"),
    Strategy.MASK_TAIL.value: gettext_lazy("leave the last characters"),
    Strategy.GENERALISE.value: gettext_lazy("leave the coarse part (the year, the range, the domain)"),
    Strategy.PSEUDONYM.value: gettext_lazy("leave a pseudonym"),
}
_PLACE = re.compile(r"([0-9a-f-]{36}):(\d{1,9})-(\d{1,9})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Offered:
    """What of an item may be taken out: a record with what rests on it, and episodes as a whole or by words."""

    record: Pick | None
    episodes: Sequence[UUID]


def choice(reasons: Mapping[str, str], *, bulk: bool = False, withdraw: bool = True) -> Choice:
    """Return the act of proposing a redaction, for the reasons that go with the queue."""
    return Choice(
        *("redact", "r", gettext_lazy("Redact"), reasons),
        form="scope",
        ends=True,
        bulk=bulk,
        withdraw=withdraw,
        hint=gettext_lazy(
            "It is hidden from agents at once. A privacy officer looks at what follows, and takes it out for good or gives it back."
        ),
    )


def picks(item: Item, given: Mapping[str, str]) -> list[Pick]:
    """Return what a person picked. Raises `Refused` naming `scope`, `marked` or `strategy`."""
    offered: Offered = item.facts[OFFERED]
    scope = given.get("scope", "record")
    if scope == "words":
        return _marked(offered, given)
    whole = [Pick(kind=Kind.EPISODE, target=each) for each in offered.episodes] if scope == "episode" else []
    found = [*([] if offered.record is None else [offered.record]), *whole]
    if scope not in ("record", "episode") or not found:
        raise Refused("request_refused", errors=[FieldError("scope", "not_in_enum")])
    return found


def _marked(offered: Offered, given: Mapping[str, str]) -> list[Pick]:
    try:
        strategy = Strategy(given.get("strategy", Strategy.NULL.value))
    except ValueError:
        raise Refused("request_refused", errors=[FieldError("strategy", "not_in_enum")]) from None
    spans: dict[UUID, list[Span]] = {}
    for place in given.get("marked", "").split()[: redaction.MOST_SPANS + 1]:
        found = _PLACE.fullmatch(place)
        try:
            episode = uuid_or_missing("" if found is None else found[1])
        except Missing:
            raise Refused("request_refused", errors=[FieldError("marked", "bad_shape")]) from None
        if found is None or episode not in offered.episodes:
            raise Refused("request_refused", errors=[FieldError("marked", "not_in_enum")])
        spans.setdefault(episode, []).append((int(found[2]), int(found[3])))
    if not spans:
        raise Refused("nothing_marked", errors=[FieldError("marked", "required")])
    return [
        Pick(kind=Kind.EPISODE, target=episode, strategy=strategy, spans=tuple(places))
        for episode, places in sorted(spans.items())
    ]


def foresee(actor: Actor, item: Item, given: Mapping[str, str]) -> Preview:
    """Return what would follow from taking that out. Nothing changes. Raises as `picks` and `redaction.preview`."""
    return redaction.preview(actor, picks(item, given))


def propose(actor: Actor, item: Item, reason: str, given: Mapping[str, str], *, now: datetime) -> None:
    """Propose it, bound to what was foreseen where that is given. Raises as `foresee` and `redaction.propose`."""
    try:
        shown = bytes.fromhex(given.get("shown", "")) or None
    except ValueError:
        raise Refused("request_refused", errors=[FieldError("shown", "bad_shape")]) from None
    wanted = picks(item, given)
    if given.get("scope") == "words" and shown is None:
        raise Refused("look_first", errors=[FieldError("shown", "required")])
    redaction.propose(actor, wanted, reason=reason, now=now, shown=shown)


def told(foreseen: Preview) -> Mapping[str, Any]:
    """Return a preview for its template: numbers with what they count, and what stands in the way."""
    return {
        "told": foreseen.told,
        "unsupported": len(foreseen.unsupported),
        "elsewhere": len(foreseen.elsewhere),
        "stopped": len(foreseen.stopped),
    }
