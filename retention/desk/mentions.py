"""What an erasure left to a person: mentions in others' messages, and others' facts that rest on what was erased.

A mention is shown in its place, the words marked by which it was found. It is kept on a ground, or proposed for redaction, which
another privacy officer decides; a fact is kept or ended. Each is decided once and recorded with its erasure
(`retention.erasing.decide_item`), whichever page it is decided on.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.utils.translation import gettext as _

from memory import sight
from memory.legible import marked
from memory.models import Episode, Fact
from memory.rows import fetch
from policies.vocabulary import Sensitivity
from retention import erasing, redaction
from retention.desk import redacting
from retention.desk.claims import digest_of
from retention.desk.queues import COUNTED, PAGE, REACH, Backlog, Choice, Item, Place, Row, holds_on
from retention.models import ErasureItem
from tenants.actors import Actor, MemberRole
from tenants.words import gettext_lazy, in_words

#: How soon somebody decides: until then whoever was erased can still be read of there.
WITHIN = timedelta(hours=72)
#: So many characters are shown around what is marked.
_READ = 20_000

_THOSE = "FROM retention_erasureitem i WHERE i.tenant_id = %(tenant)s AND i.state = 'open'"
_AFTER = " AND i.id > %(id)s::uuid"
_IN_ORDER = " ORDER BY i.id LIMIT %(limit)s"
_BACKLOG = f"SELECT count(*), min(x.found_at), count(*) FILTER (WHERE x.found_at <= %(overdue)s) FROM (SELECT i.found_at {_THOSE}{_IN_ORDER}) x"
_PAGE = f"""
SELECT i.id, i.found_at, i.kind, i.erasure_id, cardinality(i.spans) / 2, k.person_id
FROM (SELECT i.* {_THOSE}{{after}}{_IN_ORDER}) i
  LEFT JOIN retention_claim k ON k.tenant_id = i.tenant_id AND k.item_id = i.id AND k.ended_at IS NULL
    AND k.expires_at > statement_timestamp()
ORDER BY i.id
"""
_FOLLOWING = f"""
SELECT i.id {_THOSE}{{after}} AND NOT EXISTS (SELECT FROM retention_claim k WHERE k.tenant_id = i.tenant_id AND k.item_id = i.id
    AND (k.ended_at IS NULL AND k.expires_at > statement_timestamp() OR k.deferred_until > statement_timestamp()))
{_IN_ORDER}
"""
_GROUNDS = {each: each.replace("_", " ") for each in erasing.ITEM_REASONS}
_KEEP = Choice(
    *("keep", "a", gettext_lazy("Keep it")),
    _GROUNDS,
    undo=gettext_lazy("Kept"),
    hint=gettext_lazy("It stays, on the ground that you give. The erasure's page says so."),
)
_WHY_NOT = {"other": gettext_lazy("it names who was erased"), "law": "law"}
_REDACT = Choice(
    *("redact_found", "d", gettext_lazy("Redact what is marked")),
    _WHY_NOT,
    ends=True,
    hint=gettext_lazy(
        "It is hidden from agents at once. Another privacy officer takes the marked words out for good, or gives it back."
    ),
)
_OTHERWISE = redacting.choice(
    {"third_party": gettext_lazy("about somebody else"), "subject_request": "subject request", "other": "other"},
    withdraw=False,
)
_SETTLED = Choice(
    *("settle", "a", gettext_lazy("It was taken out")),
    _WHY_NOT,
    undo=gettext_lazy("Settled"),
    hint=gettext_lazy("The message was redacted meanwhile, or waits for it. Nothing else is done."),
)
_END = Choice(
    *("end", "d", gettext_lazy("End it")),
    _GROUNDS,
    ends=True,
    hint=gettext_lazy("Its value and quotes are removed for good."),
)


def _called(kind: str) -> str:
    return _("Mention in another's message") if kind == "mention" else _("Another's fact that rests on it")


@dataclass(frozen=True)
class Mentions:
    """The queue of what erasures left to a privacy officer."""

    name: str = "mentions"
    title: str = gettext_lazy("Mentions")
    template: str = "plain"
    roles: frozenset[MemberRole] = frozenset({MemberRole.PRIVACY_OFFICER})
    several: tuple[Choice, ...] = ()

    def backlog(self, tenant: UUID, *, now: datetime) -> Backlog:
        """Return how much waits."""
        count, first, overdue = fetch(_BACKLOG, {"tenant": tenant, "overdue": now - WITHIN, "limit": COUNTED})[0]
        return Backlog(count, None if first is None else first + WITHIN, overdue)

    def page(self, tenant: UUID, after: Place | None) -> Sequence[Row]:
        """Return the next rows, oldest first."""
        asked = {"tenant": tenant, "limit": PAGE + 1, **_from(after)}
        return [
            Row(id, _called(kind), "", None, _said(erasure, kind, places), at + WITHIN, claimed)
            for id, at, kind, erasure, places, claimed in fetch(
                _PAGE.format(after="" if after is None else _AFTER), asked
            )
        ]

    def following(self, tenant: UUID, roles: Sequence[MemberRole], after: Place | None) -> Sequence[UUID]:
        """Return the next that nobody holds."""
        asked = {"tenant": tenant, "limit": REACH, **_from(after)}
        return [row[0] for row in fetch(_FOLLOWING.format(after="" if after is None else _AFTER), asked)]

    def item(self, actor: Actor, roles: Sequence[MemberRole], item: UUID) -> Item | None:
        """Return what was left, without content."""
        found = ErasureItem.objects.filter(tenant_id=actor.tenant, id=item, state="open").first()
        if found is None:
            return None
        is_mention = found.kind == "mention"
        model: type[Any] = Episode if is_mention else Fact
        record = model.objects.filter(tenant_id=actor.tenant, id=found.target_id).first()
        gone = record is None or record.redaction_state != "none"
        level = Sensitivity.PUBLIC if record is None else Sensitivity(record.sensitivity)
        kind = "episode" if is_mention else "fact"
        covered = holds_on(actor.tenant, {kind: found.target_id})
        spans = tuple(zip(found.spans[::2], found.spans[1::2], strict=True))
        return Item(
            id=item,
            digest=digest_of(["erasure_item", item, found.kind, found.target_id, found.spans, int(level), gone, covered]),
            title=_called(found.kind),
            level=level,
            subject=None if record is None else record.subject_id,
            due_at=found.found_at + WITHIN,
            choices=_choices(is_mention, gone=gone, found=bool(spans)),
            reveal=is_mention and not gone and level > Sensitivity.PERSONAL,
            facts={
                **(_text(found.target_id) if is_mention and not gone else {}),
                "target": found.target_id,
                "spans": spans,
                "why": [
                    _("Somebody was erased, and another's message names them. Nobody but a person can say whether it may stay.")
                    if is_mention
                    else _("It rests on what was erased of somebody else, and on nothing besides.")
                ],
                "pairs": [
                    (_("Erasure"), str(found.erasure_id)[-8:]),
                    (_("Record"), f"{in_words(kind)} {str(found.target_id)[-8:]}"),
                    (_("Found"), f"{found.found_at:%Y-%m-%d %H:%M} UTC"),
                    *([(_("Found by"), _("%(places)s places that say a name") % {"places": len(spans)} if spans
                       else _("what was recognised when it came; the text says none of the names now"))] if is_mention else []),
                    (_("State"), _("waits for a redaction, or was redacted") if gone else _("stands")),
                ],
                "effects": _effects(is_mention, gone=gone, found=bool(spans)),
                "holds": covered,
                "page": (f"admin:memory_{kind}_change", found.target_id),
            },
        )  # fmt: skip

    def show(self, actor: Actor, item: Item, *, up_to: Sensitivity) -> Mapping[str, Any] | None:
        """Return what the message says, with what was found marked in it, and record that it was shown; of a fact nothing.

        What names a person beside it is masked, unless it is revealed.
        """
        if redacting.OFFERED not in item.facts:
            return {}
        text = sight.show_episode(actor, item.facts["target"], up_to=up_to)
        if text is None:
            return None
        veil = up_to <= Sensitivity.PERSONAL
        return {
            "text": marked(text, item.facts["spans"], veil=veil, around=_READ),
            "marks": item.facts["target"],
        }

    def check(self, item: Item, act: str, given: Mapping[str, str]) -> None:
        """Nothing goes with an act that could be wrong."""

    def decide(
        self, actor: Actor, item: Item, act: str, reason: str, given: Mapping[str, str], *, now: datetime
    ) -> str:
        """Keep it on a ground, propose to redact the mention, or end the fact; recorded with the erasure."""
        if act == "redact":
            redacting.propose(actor, item, reason, given, now=now)
            erasing.decide_item(actor, item.id, keep=False, reason="other", now=now, proposed=True)
            return _("Hidden, and proposed for redaction: %(title)s.") % {"title": item.title}
        if act == "settle":
            erasing.decide_item(actor, item.id, keep=False, reason=reason, now=now, proposed=True)
            return _("Settled: %(title)s.") % {"title": item.title}
        erasing.decide_item(actor, item.id, keep=act == "keep", reason=reason, now=now)
        told = {
            "keep": _("Kept: %(title)s."),
            "redact_found": _("Hidden, and proposed for redaction: %(title)s."),
            "end": _("Ended: %(title)s."),
        }
        return told[act] % {"title": item.title}


def _text(episode: UUID) -> dict[str, Any]:
    offered = redacting.Offered(redaction.Pick(kind=redaction.Kind.EPISODE, target=episode), [episode])
    return {
        redacting.OFFERED: offered,
        "strategies": redacting.STRATEGIES,
        "record_words": _("All of the message"),
        "text_title": _("What it says"),
        "has_text": True,
    }


def _choices(is_mention: bool, *, gone: bool, found: bool) -> tuple[Choice, ...]:
    if not is_mention:
        return (_KEEP, _END)
    if gone:
        return (_SETTLED,)
    return (_KEEP, _REDACT, _OTHERWISE) if found else (_KEEP, _OTHERWISE)


def _effects(is_mention: bool, *, gone: bool, found: bool) -> list[tuple[str, list[tuple[str, str]]]]:
    kept = (
        _("If you keep it"),
        [("", _("It is read as before, and the erasure says on what ground it was kept."))],
    )
    if not is_mention:
        return [kept, (_("If you end it"), [("bad", _("Its value and quotes are removed for good."))])]
    if gone:
        return [(_("If you settle it"), [("", _("The erasure says that it was taken out."))])]
    what = _("Only the marked words go; the rest of the message stays.") if found else _("What goes is what you mark.")
    hidden = _("It is hidden from agents at once. Another privacy officer takes it out for good, or gives it back.")
    return [kept, (_("If you redact it"), [("", what), ("bad", hidden)])]


def _from(after: Place | None) -> dict[str, Any]:
    return {} if after is None else {"id": after[1]}


def _said(erasure: UUID, kind: str, places: int) -> tuple[str, ...]:
    of = _("erasure %(id)s") % {"id": str(erasure)[-8:]}
    return (of, _("%(places)s places") % {"places": places}) if kind == "mention" and places else (of,)


MENTIONS = Mentions()
