"""The first page of a tenant: what waits and for how long, what ends soon, what stood in the way, who writes, what is in order.

Every number opens the list behind it, and no number costs more the larger a tenant grows: counts stop at `COUNTED`, days are
read from the tally. Nothing here is content.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from typing import Any, TypeVar
from uuid import UUID

from django.utils.translation import gettext as _

from memory import rows
from retention import charts, escalating, tally
from retention.charts import Chart
from tenants.actors import ActorKind, MemberRole
from tenants.audit import Action
from tenants.models import User
from tenants.words import gettext_lazy

#: No count goes further: a page says "1,000 or more".
COUNTED = 1_000
#: Decisions are owed within so long.
OWED = timedelta(days=7)
#: So many decisions tell how many were made in time.
_LATEST = 2_000
#: Days that the charts and sums look back.
DAYS = 28
_AGENTS = 8

#: Until when a thing that waits is how old, the youngest first.
AGES = (
    (gettext_lazy("under 1 day"), timedelta(days=1)),
    (gettext_lazy("1 to 3 days"), timedelta(days=3)),
    (gettext_lazy("3 to 7 days"), timedelta(days=7)),
)
OLDER = gettext_lazy("over 7 days")

_WRITES = (Action.FACT_WRITTEN, Action.FACT_IMPORTED, Action.FACT_CORRECTED, Action.EPISODE_RECORDED)
_WATCHED = (
    (ActorKind.AGENT, "written", _WRITES),
    (ActorKind.AGENT, "refused", (Action.WRITE_REFUSED,)),
    (ActorKind.PERSON, "revealed", (Action.CONTENT_REVEALED,)),
)
#: By which act a list of the chain shows it.
_LEADS_TO = {
    "written": Action.FACT_WRITTEN.value,
    "refused": Action.WRITE_REFUSED.value,
    "revealed": Action.CONTENT_REVEALED.value,
}
_DECISIONS = (Action.CANDIDATE_DECIDED, Action.APPROVAL_DECIDED)


@dataclass(frozen=True, slots=True)
class Backlog:
    """What waits in one queue: how much (up to `COUNTED`), since when, and how much of it how long."""

    title: str
    link: str
    number: int
    oldest: datetime | None
    ages: list[tuple[str, int]]

    @property
    def shares(self) -> list[tuple[int, float, float]]:
        """Return the parts of a bar of 100, by age: which, from where, how wide."""
        parts, at = [], 0.0
        for place, (_words, number) in enumerate(self.ages, start=1):
            wide = 100 * number / self.number if self.number else 0.0
            if wide:
                parts.append((place, round(at, 2), round(wide, 2)))
            at += wide
        return parts


@dataclass(frozen=True, slots=True)
class Card:
    """One number with what it means and the list behind it. `tone`: empty, `warn` or `bad`."""

    title: str
    number: int | str
    link: str
    note: str = ""
    tone: str = ""


@dataclass(frozen=True, slots=True)
class AgentLine:
    """An agent by what it wrote and what was refused."""

    id: UUID
    name: str
    writes: int
    refusals: int


@dataclass(frozen=True, slots=True)
class Trend:
    """A chart with its numbers: what the table beneath it says too."""

    title: str
    link: str
    kinds: list[tuple[str, str]]
    chart: Chart
    days: list[tuple[Any, list[int]]]


@dataclass(frozen=True, slots=True)
class Alert:
    """An agent that writes or is refused, or a person that reveals, far above their own usual today. `link` may be empty."""

    name: str
    act: str
    number: int
    usual: int
    link: str


_Linked = TypeVar("_Linked", Alert, Backlog, Card, Trend)


@dataclass(frozen=True, slots=True)
class Overview:
    """All of the page."""

    #: What its reader was told of, and has to see to.
    alerts: list[Card]
    unusual: list[Alert]
    backlogs: list[Backlog]
    in_time: Card
    ends: list[Card]
    order: list[Card]
    agents: list[AgentLine]
    trends: list[Trend]


@dataclass(frozen=True, slots=True)
class Queue:
    """Where a queue's rows are: a statement that returns since when each waits, the oldest first, within a tenant; and its list."""

    title: str
    link: str
    since: str


#: In the order in which people are to look.
QUEUES: tuple[Queue, ...] = (
    Queue(
        gettext_lazy("Sensitive facts"),
        "memory/candidate/?state=asked",
        "SELECT c.created_at AS at FROM memory_candidate c WHERE c.tenant_id = t.id AND c.state = 'asked' ORDER BY c.id",
    ),
    Queue(
        gettext_lazy("Quarantined episodes"),
        "memory/episode/?quarantined=True",
        "SELECT e.recorded_at AS at FROM memory_episode e WHERE e.tenant_id = t.id AND e.quarantined"
        " AND e.redaction_state = 'none' ORDER BY e.id",
    ),
    Queue(
        gettext_lazy("Redactions"),
        "retention/redactionrequest/?state=required",
        "SELECT r.requested_at AS at FROM retention_redactionrequest r WHERE r.tenant_id = t.id AND r.state = 'required'"
        " ORDER BY r.id",
    ),
    Queue(
        gettext_lazy("Requests of data subjects"),
        "retention/subjectrequest/",
        "SELECT r.received_at AS at FROM retention_subjectrequest r WHERE r.tenant_id = t.id"
        " AND r.state IN ('received', 'in_progress') ORDER BY coalesce(r.extended_to, r.due_at), r.id",
    ),
    Queue(
        gettext_lazy("Left by erasures"),
        "retention/erasure/",
        "SELECT i.found_at AS at FROM retention_erasureitem i WHERE i.tenant_id = t.id AND i.state = 'open' ORDER BY i.id",
    ),
    Queue(
        gettext_lazy("Approvals"),
        "policies/decisionrequest/?state=pending",
        "SELECT r.requested_at AS at FROM policies_decisionrequest r WHERE r.tenant_id = t.id AND r.state = 'pending'"
        " AND r.expires_at > statement_timestamp() ORDER BY r.id",
    ),
)


def _backlogs(tenant: UUID, queues: Sequence[Queue]) -> list[Backlog]:
    bounds = [bound for _, bound in AGES]
    parts = [
        f"(SELECT {place}, count(*), min(w.at),"
        " count(*) FILTER (WHERE w.at > t.now - %(a)s::interval),"
        " count(*) FILTER (WHERE w.at <= t.now - %(a)s::interval AND w.at > t.now - %(b)s::interval),"
        " count(*) FILTER (WHERE w.at <= t.now - %(b)s::interval AND w.at > t.now - %(c)s::interval),"
        " count(*) FILTER (WHERE w.at <= t.now - %(c)s::interval)"
        f" FROM ({queue.since} LIMIT {COUNTED}) w)"
        for place, queue in enumerate(queues)
    ]
    found = rows.fetch(
        "SELECT q.* FROM (SELECT %(tenant)s::uuid AS id, statement_timestamp() AS now) t CROSS JOIN LATERAL ("
        + " UNION ALL ".join(parts)
        + ") q ORDER BY 1",
        {"tenant": tenant, "a": bounds[0], "b": bounds[1], "c": bounds[2]},
    )
    words = [*(name for name, _ in AGES), OLDER]
    return [
        Backlog(queues[place].title, queues[place].link, number, oldest, list(zip(words, ages, strict=True)))
        for place, number, oldest, *ages in found
    ]


_IN_TIME = f"""
SELECT count(*), count(*) FILTER (WHERE d.decided_at <= d.created_at + %(owed)s::interval) FROM (
  (SELECT c.created_at, c.decided_at FROM memory_candidate c
    WHERE c.tenant_id = %(tenant)s::uuid AND c.state = 'accepted' ORDER BY c.id DESC LIMIT {_LATEST // 2})
  UNION ALL
  (SELECT c.created_at, c.decided_at FROM memory_candidate c
    WHERE c.tenant_id = %(tenant)s::uuid AND c.state = 'rejected' ORDER BY c.id DESC LIMIT {_LATEST // 2})
) d WHERE d.decided_at > statement_timestamp() - %(back)s::interval
"""
_NUMBERS = f"""
SELECT
  (SELECT count(*) FROM (SELECT FROM memory_fact f WHERE f.tenant_id = t.id AND f.ended_at IS NULL
    AND f.expires_at > t.now AND f.expires_at <= t.now + interval '1 day' LIMIT {COUNTED}) x),
  (SELECT count(*) FROM (SELECT FROM memory_fact f WHERE f.tenant_id = t.id AND f.ended_at IS NULL
    AND f.expires_at > t.now AND f.expires_at <= t.now + interval '7 days' LIMIT {COUNTED}) x),
  (SELECT count(*) FROM (SELECT FROM retention_hold h WHERE h.tenant_id = t.id AND h.state = 'active' LIMIT {COUNTED}) x),
  (SELECT count(*) FROM (SELECT FROM memory_outboxentry o WHERE o.tenant_id = t.id AND o.state = 'pending' LIMIT {COUNTED}) x),
  (SELECT count(*) FROM (SELECT FROM memory_outboxentry o WHERE o.tenant_id = t.id AND o.state = 'failed' LIMIT {COUNTED}) x),
  (SELECT extract(epoch FROM t.now - min(o.due_at))::int FROM memory_outboxentry o WHERE o.tenant_id = t.id AND o.state = 'pending'
    AND o.due_at <= t.now),
  (SELECT coalesce(max(e.seq), 0) FROM tenants_auditevent e WHERE e.chain = t.id),
  (SELECT s.counted_to FROM retention_tallystate s WHERE s.tenant_id = t.id AND s.id = t.id),
  (SELECT max(y.day) FROM retention_tally y WHERE y.tenant_id = t.id AND y.action = 'audit.verified'),
  (SELECT count(*) FILTER (WHERE c.relrowsecurity AND c.relforcerowsecurity AND EXISTS (SELECT FROM pg_policy p
      WHERE p.polrelid = c.oid)) FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'tenant_id'
    WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p')),
  (SELECT count(*) FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'tenant_id'
    WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p'))
FROM (SELECT %(tenant)s::uuid AS id, statement_timestamp() AS now) t
"""
_OWED_TO_SUBJECTS = f"""
SELECT count(*) FILTER (WHERE r.due <= statement_timestamp()), count(*) FROM (
  SELECT coalesce(q.extended_to, q.due_at) AS due FROM retention_subjectrequest q
  WHERE q.tenant_id = %(tenant)s::uuid AND q.state IN ('received', 'in_progress')
    AND coalesce(q.extended_to, q.due_at) <= statement_timestamp() + interval '7 days' LIMIT {COUNTED}) r
"""
_PREVENTED = """
SELECT coalesce(sum(p.refused), 0)::bigint, coalesce(sum(p.asked), 0)::bigint FROM memory_preventedreturn p
WHERE p.tenant_id = %(tenant)s::uuid AND p.day BETWEEN %(since)s::date AND %(until)s::date
"""
_NAMES = "SELECT a.id, a.name FROM tenants_agent a WHERE a.tenant_id = %s::uuid AND a.id = ANY (%s::uuid[])"


def overview(
    tenant: UUID, *, now: datetime, lists: frozenset[str], roles: Collection[MemberRole] = frozenset()
) -> Overview:
    """Return the page of a tenant, in the open transaction of `Role.STAFF`. `now` is the request's instant, in UTC.

    `lists` are those that its reader may open, as `app/model/`: a number whose list is none of them links to nothing.
    `roles` are the reader's: what one of them was told of stands first.
    What has not been counted into the tally yet is not in its sums; `order` says how much that is.
    """

    def linked(cards: list[_Linked]) -> list[_Linked]:
        return [each if each.link.partition("?")[0] in lists else replace(each, link="") for each in cards]

    numbers = rows.fetch(_NUMBERS, {"tenant": tenant})[0]
    decided, timely = rows.fetch(_IN_TIME, {"tenant": tenant, "owed": OWED, "back": timedelta(days=DAYS)})[0]
    until = now.date()
    since = until - timedelta(days=DAYS - 1)
    return Overview(
        alerts=linked(_alerts(tenant, roles)),
        unusual=linked(_unusual(tenant, until)),
        backlogs=linked(_backlogs(tenant, QUEUES)),
        in_time=linked([_in_time(decided, timely)])[0],
        ends=linked(_ends(tenant, numbers, since, until)),
        order=linked(_order(numbers)),
        agents=_agents(tenant, since, until),
        trends=linked(_trends(tenant, since, until)),
    )


def _alerts(tenant: UUID, roles: Collection[MemberRole]) -> list[Card]:
    """Return what was escalated to one of `roles`. A privacy officer sees what went on to the admins too."""
    if not {*escalating.TOLD.values()} & {*roles}:
        return []
    near, past = escalating.open_alerts(tenant, most=COUNTED)
    found = []
    if past:
        found.append(
            Card(_("Requests past their day"), past, "retention/subjectrequest/",
                 _("escalated to the tenant's admins: the law's time is over"), "bad")
        )  # fmt: skip
    if near and MemberRole.PRIVACY_OFFICER in roles:
        found.append(
            Card(_("Requests near their day"), near, "retention/subjectrequest/",
                 _("escalated to the privacy officers: a week is left, or less"), "warn")
        )  # fmt: skip
    return found


def _in_time(decided: int, timely: int) -> Card:
    share = _("none yet") if not decided else f"{100 * timely // decided} %"
    late = decided - timely
    return Card(
        _("Decided within 7 days"),
        share,
        "memory/candidate/?state=accepted",
        _("of %(decided)s decided in %(days)s days") % {"decided": format(decided, ","), "days": DAYS}
        if decided
        else _("in %(days)s days") % {"days": DAYS},
        "" if not late else ("bad" if timely * 10 < decided * 9 else "warn"),
    )


def _ends(tenant: UUID, numbers: Sequence[Any], since: date, until: date) -> list[Card]:
    day, week, holds = numbers[:3]
    overdue, due = rows.fetch(_OWED_TO_SUBJECTS, {"tenant": tenant})[0]
    kept_out, asked = rows.fetch(_PREVENTED, {"tenant": tenant, "since": since, "until": until})[0]
    refused = tally.total(tenant, [Action.ENDING_REFUSED], since=since, until=until)
    return [
        Card(
            _("Requests due within 7 days"),
            due,
            "retention/subjectrequest/",
            _("%(overdue)s overdue") % {"overdue": overdue} if overdue else _("none overdue"),
            "bad" if overdue else "",
        ),
        Card(_("Facts that end within a day"), day, "memory/fact/?ends=day", _("reads stop at that instant")),
        Card(_("Facts that end within 7 days"), week, "memory/fact/?ends=week"),
        Card(_("Active holds"), holds, "retention/hold/?state=active", _("what they cover does not end")),
        Card(_("Endings that a hold refused in %(days)s days") % {"days": DAYS}, refused, "retention/refusedending/"),
        Card(
            _("Returns prevented in %(days)s days") % {"days": DAYS},
            kept_out,
            "memory/suppression/",
            _("%(asked)s more put before a person") % {"asked": format(asked, ",")}
            if asked
            else _("of what was erased, redacted or rejected"),
        ),
    ]


def _order(numbers: Sequence[Any]) -> list[Card]:
    pending, failed, lag, head, counted, verified, forced, tables = numbers[3:]
    behind = head - (counted or 0)
    return [
        Card(
            _("Work given up"),
            failed,
            "memory/outboxentry/?state=failed",
            _("an operator looks at the cause") if failed else "",
            "bad" if failed else "",
        ),
        Card(
            _("Work that waits"),
            pending,
            "memory/outboxentry/?state=pending",
            _("the oldest is %(lag)s overdue") % {"lag": _long(lag)} if lag else _("nothing is overdue"),
            "warn" if (lag or 0) > 300 else "",
        ),
        Card(
            _("Entries in the audit chain"),
            f"{head:,}",
            "tenants/auditevent/",
            _("verified on %(day)s") % {"day": f"{verified:%Y-%m-%d}"} if verified else _("not verified from here yet"),
            "" if verified else "warn",
        ),
        Card(
            _("Tables behind row-level security"),
            _("%(forced)s of %(tables)s") % {"forced": forced, "tables": tables},
            "",
            _("all of them") if forced == tables else _("an operator runs doctor"),
            "" if forced == tables else "bad",
        ),
        Card(_("Entries not counted yet"), f"{behind:,}", "", _("the sums on this page are as of the rest")),
    ]


def _long(seconds: int) -> str:
    if seconds < 120:
        return f"{seconds} s"
    return f"{seconds // 60} min" if seconds < 7_200 else f"{seconds // 3_600} h"


def _agents(tenant: UUID, since: date, until: date) -> list[AgentLine]:
    found = tally.agents(
        tenant, writes=_WRITES, refusals=[Action.WRITE_REFUSED], since=since, until=until, most=_AGENTS
    )
    names = dict(rows.fetch(_NAMES, [tenant, [agent for agent, _, _ in found]])) if found else {}
    return [AgentLine(agent, names.get(agent, str(agent)[-8:]), wrote, refused) for agent, wrote, refused in found]


def _unusual(tenant: UUID, today: date) -> list[Alert]:
    """Return who is far above their own usual today, as far as the chain is counted."""
    # The first day on which an agent writes is far above nothing: of that nobody is told.
    unusual = tally.unusual(tenant, _WATCHED, day=today, most=_AGENTS)
    found = [each for each in unusual if each.usual or each.act != "written"]
    ids = [each.actor for each in found]
    names = dict(rows.fetch(_NAMES, [tenant, ids])) if found else {}
    names |= dict(User.objects.filter(id__in=set(ids) - names.keys()).values_list("id", "username")) if found else {}
    return [
        Alert(
            names.get(each.actor, str(each.actor)[-8:]),
            each.act,
            each.number,
            each.usual,
            f"tenants/auditevent/?action={_LEADS_TO[each.act]}&actor_kind={each.kind.value}",
        )
        for each in found
    ]


def _trends(tenant: UUID, since: date, until: date) -> list[Trend]:
    def trend(title: str, link: str, *kinds: tuple[str, str, Sequence[Action]]) -> Trend:
        found = [tally.by_day(tenant, actions, since=since, until=until) for _, _, actions in kinds]
        days = found[0].days
        return Trend(
            title,
            link,
            [(style, words) for style, words, _ in kinds],
            charts.bars(days, [(style, each.numbers) for (style, _, _), each in zip(kinds, found, strict=True)]),
            [(day, [each.numbers[place] for each in found]) for place, day in enumerate(days)],
        )

    return [
        trend(
            _("Written and refused, a day"),
            "memory/receipt/",
            ("one", "written", _WRITES),
            ("bad", "refused", (Action.WRITE_REFUSED,)),
        ),
        trend(
            _("Asked and decided, a day"),
            "memory/candidate/",
            ("one", "asked", (Action.CANDIDATE_ASKED,)),
            ("good", "decided", _DECISIONS),
        ),
    ]
