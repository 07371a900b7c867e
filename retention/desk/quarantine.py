"""Episodes that speak to the agent: kept apart from what agents are given, until a person has looked.

Whoever looks says that it stays apart, lets it out for good, or proposes to take it out. It is due a day after it was recorded.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.utils.translation import gettext as _

from memory import quarantine, sight
from memory.legible import pieces, veiled
from memory.models import Episode
from memory.rows import fetch
from policies.vocabulary import Sensitivity
from retention import redaction
from retention.desk import redacting
from retention.desk.claims import digest_of
from retention.desk.queues import COUNTED, PAGE, REACH, Backlog, Choice, Item, Place, Row, holds_on
from tenants.actors import Actor, MemberRole
from tenants.words import gettext_lazy, in_words

#: How soon somebody looks.
WITHIN = timedelta(hours=24)

#: So many characters are shown: what speaks to the agent may stand far down.
_READ = 20_000

_THOSE = """
FROM memory_episode e
WHERE e.tenant_id = %(tenant)s AND e.quarantined AND e.redaction_state = 'none'
  AND (e.expires_at IS NULL OR e.expires_at > statement_timestamp())
  AND NOT EXISTS (SELECT FROM retention_claim d WHERE d.tenant_id = e.tenant_id AND d.item_id = e.id AND d.ended_by = 'decided')
"""
_AFTER = " AND (e.recorded_at, e.id) > (%(at)s::timestamptz, %(id)s::uuid)"
_IN_ORDER = " ORDER BY e.recorded_at, e.id LIMIT %(limit)s"
_BACKLOG = f"SELECT count(*), min(x.recorded_at), count(*) FILTER (WHERE x.recorded_at <= %(overdue)s) FROM (SELECT e.recorded_at {_THOSE}{_IN_ORDER}) x"
_PAGE = f"""
SELECT e.id, e.recorded_at, e.kind, e.role, e.sensitivity, e.subject_id, e.detected, k.person_id, d.deferred_until
FROM (SELECT e.* {_THOSE}{{after}}{_IN_ORDER}) e
  LEFT JOIN retention_claim k ON k.tenant_id = e.tenant_id AND k.item_id = e.id AND k.ended_at IS NULL
    AND k.expires_at > statement_timestamp()
  LEFT JOIN LATERAL (SELECT x.deferred_until FROM retention_claim x WHERE x.tenant_id = e.tenant_id AND x.item_id = e.id
    AND x.deferred_until > statement_timestamp() ORDER BY x.id DESC LIMIT 1) d ON true
ORDER BY e.recorded_at, e.id
"""
_FOLLOWING = f"""
SELECT e.id {_THOSE}{{after}} AND NOT EXISTS (SELECT FROM retention_claim k WHERE k.tenant_id = e.tenant_id AND k.item_id = e.id
    AND (k.ended_at IS NULL AND k.expires_at > statement_timestamp() OR k.deferred_until > statement_timestamp()))
{_IN_ORDER}
"""
_FROM_IT = """
SELECT (SELECT count(*) FROM (SELECT FROM memory_evidence v WHERE v.tenant_id = e.tenant_id AND v.episode_id = e.id LIMIT 100) x),
  (SELECT count(*) FROM (SELECT FROM memory_candidatesaying s WHERE s.tenant_id = e.tenant_id AND s.episode_id = e.id LIMIT 100) x)
FROM memory_episode e WHERE e.tenant_id = %s AND e.id = %s
"""

_KEEP = Choice(
    *("keep_apart", "a", gettext_lazy("Keep apart")),
    {"instructs": gettext_lazy("it instructs the agent"), "harmless": gettext_lazy("harmless, and not needed"), "unclear": "unclear", "other": "other"},
    bulk=True,
    undo=gettext_lazy("Kept apart"),
    hint=gettext_lazy("Agents are not given it as context, now or later. What was drawn from it waits for a person as it did."),
)  # fmt: skip
_RELEASE = Choice(
    *("release", "e", gettext_lazy("Release")),
    {"harmless": gettext_lazy("it instructs nobody"), "quoted": gettext_lazy("it quotes or reports"), "other": "other"},
    undo=gettext_lazy("Released"),
    hint=gettext_lazy("Agents are given it as context like any other. It is not quarantined again."),
)  # fmt: skip
_REDACT = redacting.choice(
    {"not_to_be_kept": gettext_lazy("not to be kept"), "credential": gettext_lazy("a credential"), "third_party": gettext_lazy("about somebody else"), "other": "other"},
)  # fmt: skip


def _called(kind: str, role: str | None) -> str:
    words: str = in_words(kind.replace("_", " "))
    return _("%(kind)s by %(role)s") % {"kind": words, "role": in_words(role)} if role else words


@dataclass(frozen=True)
class Quarantine:
    """The queue of episodes that were quarantined and that nobody has looked at."""

    name: str = "quarantine"
    title: str = gettext_lazy("Quarantine")
    template: str = "plain"
    roles: frozenset[MemberRole] = frozenset({MemberRole.REVIEWER, MemberRole.PRIVACY_OFFICER})
    several: tuple[Choice, ...] = (_KEEP,)

    def backlog(self, tenant: UUID, *, now: datetime) -> Backlog:
        """Return how much waits."""
        asked = {"tenant": tenant, "overdue": now - WITHIN, "limit": COUNTED}
        count, first, overdue = fetch(_BACKLOG, asked)[0]
        return Backlog(count, None if first is None else first + WITHIN, overdue)

    def page(self, tenant: UUID, after: Place | None) -> Sequence[Row]:
        """Return the next rows, oldest first."""
        asked = {"tenant": tenant, **_from(after), "limit": PAGE + 1}
        return [
            Row(id, _called(kind, role), Sensitivity(level).label, subject,
                _said(detected), at + WITHIN, claimed, deferred)
            for id, at, kind, role, level, subject, detected, claimed, deferred in fetch(
                _PAGE.format(after="" if after is None else _AFTER), asked)
        ]  # fmt: skip

    def following(self, tenant: UUID, roles: Sequence[MemberRole], after: Place | None) -> Sequence[UUID]:
        """Return the next that nobody holds."""
        asked = {"tenant": tenant, **_from(after), "limit": REACH}
        return [row[0] for row in fetch(_FOLLOWING.format(after="" if after is None else _AFTER), asked)]

    def item(self, actor: Actor, roles: Sequence[MemberRole], item: UUID) -> Item | None:
        """Return an episode that waits, without its content."""
        episode = Episode.objects.filter(
            tenant_id=actor.tenant, id=item, quarantined=True, redaction_state="none"
        ).first()
        if episode is None:
            return None
        level = Sensitivity(episode.sensitivity)
        facts, proposals = fetch(_FROM_IT, [actor.tenant, item])[0]
        covered = holds_on(actor.tenant, {"episode": item})
        return Item(
            id=item,
            digest=digest_of(["episode", item, episode.sensitivity, facts, proposals, covered]),
            title=_called(episode.kind, episode.role),
            level=level,
            subject=episode.subject_id,
            due_at=episode.recorded_at + WITHIN,
            choices=(_KEEP, _RELEASE, _REDACT),
            reveal=level > Sensitivity.PERSONAL,
            facts={
                "text_title": _("What it says"),
                "has_text": True,
                redacting.OFFERED: redacting.Offered(redaction.Pick(kind=redaction.Kind.EPISODE, target=item), [item]),
                "strategies": redacting.STRATEGIES,
                "record_words": gettext_lazy("All of the message"),
                "why": [_("It speaks to the agent: an instruction, a persona, or something that is meant not to be seen.")],
                "pairs": [
                    (_("Detection"), ", ".join(in_words(code.replace("_", " ")) for code in episode.detected) or _("nothing named")),
                    (_("Turn"), _("%(turn_id)s of session %(session_id)s") % {"turn_id": episode.turn_id, "session_id": episode.session_id}),
                    (_("Tool call"), episode.tool_call_id or _("none")),
                    (_("Occurred"), f"{episode.occurred_at:%Y-%m-%d %H:%M} UTC"),
                    (_("Basis"), episode.basis),
                ],
                "effects": [
                    (_("If you keep it apart"), [
                        ("ok", _("Agents are not given it as context. It stays readable by its id, and says that it is quarantined.")),
                        ("", _("%(facts)s pieces of evidence and %(proposals)s proposals were drawn from it; they stay as they are.") % {"facts": facts, "proposals": proposals}),
                    ]),
                    (_("If you release it"), [
                        ("warn", _("Agents are given its text as context again, from now on. Nobody puts it back into quarantine.")),
                        ("", _("What was drawn from it meanwhile waits for a person as it did.")),
                    ]),
                    (_("If you redact it"), [
                        ("bad", _("It is hidden from agents at once, with the quotes that are taken from it, until a privacy officer"
                                " decides.")),
                    ]),
                ],
                "holds": covered,
            },
        )  # fmt: skip

    def show(self, actor: Actor, item: Item, *, up_to: Sensitivity) -> Mapping[str, Any] | None:
        """Return what the episode says, what names a person masked, and record that it was shown."""
        text = sight.show_episode(actor, item.id, up_to=up_to)
        if text is None:
            return None
        whole = up_to > Sensitivity.PERSONAL
        return {"text": pieces(text, around=_READ) if whole else veiled(text, around=_READ), "marks": item.id}

    def check(self, item: Item, act: str, given: Mapping[str, str]) -> None:
        """Nothing goes with an act that could be wrong."""

    def decide(
        self, actor: Actor, item: Item, act: str, reason: str, given: Mapping[str, str], *, now: datetime
    ) -> str:
        """Leave it apart, which its claim remembers, let it out, or propose to redact it."""
        if act == "redact":
            redacting.propose(actor, item, reason, given, now=now)
            return _("Hidden, and proposed for redaction.")
        if act == "release":
            quarantine.release(actor, item.id, reason=reason)
            return _("Released: agents are given it as context.")
        return _("It stays apart.")


def _from(after: Place | None) -> dict[str, Any]:
    return {} if after is None else {"at": after[0] - WITHIN, "id": after[1]}


def _said(detected: Sequence[str]) -> list[str]:
    return [in_words(code.replace("_", " ")) for code in detected[:2]] or [_("speaks to the agent")]


QUARANTINE = Quarantine()
