"""A tenant as an organisation would have it after a week, made through the doors: what the pages are shown with."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

from memory import rows, subjects
from memory.models import Candidate
from policies.approvals import Answer
from retention import erasing, holds, keeping, matters, redaction, requests, restricting, tally
from retention.matters import Target
from retention.redaction import Kind, Pick
from tenants.actors import Actor, ActorKind, MemberRole, Scope
from tenants.errors import Clash
from tenants.isolation import Role, tenant_transaction
from tenants.registry import OPERATOR, create_tenant
from tests.organisation import Organisation, Person
from tests.paths.ledger import Ledger, publish, publish_policy
from tests.policies.two_people import Two

ATTRIBUTES: list[dict[str, Any]] = [
    {"name": "passport_deadline", "schema": {"type": "string", "format": "date"},
     "description": "When the passport has to be renewed."},
    {"name": "answer_style", "schema": {"enum": ["concise", "detailed"]}, "sensitivity": "internal"},
    {"name": "location", "schema": {"type": "string", "maxLength": 100}},
    {"name": "session_topic", "schema": {"type": "string"}, "sensitivity": "internal", "basis": "session"},
    {"name": "dietary_restriction", "schema": {"type": "string"}, "sensitivity": "restricted", "basis": "contract",
     "confirm": "always"},
    {"name": "emergency_contact", "schema": {"type": "string"}, "confirm": "always"},
    {"name": "travel_note", "schema": {"type": "string"}, "recurrence": {"count": 3, "days": 30}},
]  # fmt: skip

#: What was said. None of it may stand on a page, but where a reviewer asked to see it.
CONTENT = (
    "mira.sousa",
    "Lisbon",
    "Coimbra",
    "2031-07-15",
    "2031-06-30",
    "2031-08-01",
    "2031-09-09",
    "coeliac",
    "Ines Prata",
    "visa renewal",
)
#: Stands in what is shown in clear: a page names what would not show.
HOSTILE = "<script>document.title='taken'</script> \u202egnp.exe\u202c {{ 7 * 7 }} x-on:click"


_NAMES = {
    MemberRole.REVIEWER: "rhea",
    MemberRole.PRIVACY_OFFICER: "priya",
    MemberRole.APPROVER: "abel",
    MemberRole.TENANT_ADMIN: "tove",
    MemberRole.AUDITOR: "ossian",
}


@dataclass(frozen=True)
class Furnished:
    """The tenant, its people by role, and what the pictures are of."""

    organisation: Organisation
    people: dict[MemberRole, Person]
    candidate: str
    subject: str


def furnish(slug: str = "acme") -> Furnished:
    """Make it, under `slug` or, where that is taken, under a name of its own."""
    organisation = _tenant(slug)
    publish_policy(organisation)
    publish(organisation, ATTRIBUTES)
    bot = organisation.agent(
        "support-bot", clearance="restricted", trust=40, scopes=frozenset({Scope.READ, Scope.WRITE})
    )
    feed = organisation.agent(
        "crm-feed", clearance="personal", trust=70, scopes=frozenset(Scope), purposes=("support", "travel")
    )
    ledger = Ledger(bot)
    now = datetime.now(UTC).replace(microsecond=0)

    def ago(**since: float) -> str:
        return (now - timedelta(**since)).isoformat()

    def heard(turn: int, text: str, said: str) -> str:
        answer = ledger.post("/episodes/", {
            "kind": "message", "role": "user", "session_id": "2231", "turn_id": f"turn-{turn}", "subject": "mira.sousa",
            "content": text, "occurred_at": said})  # fmt: skip
        assert answer.status_code == 201, answer.content
        return str(answer.json()["id"])

    def told(attribute: str, value: Any, *, status: int = 201, **more: Any) -> Any:
        return ledger.said("mira.sousa", attribute, value, status=status, **more)

    def learnt(attribute: str, value: Any, days: float, *, told_days_ago: float, **more: Any) -> None:
        """Let the feed bring what it learnt before, with the time at which it did."""
        past = {"valid_from": ago(days=days), "recorded_at": ago(days=told_days_ago), **more}
        Ledger(feed).said("mira.sousa", attribute, value, provenance={"turn_id": f"import-{int(days)}"}, **past)

    ledger.post("/consents/", {"subject": "mira.sousa", "ref": "c-118", "purposes": ["support", "travel"]})
    learnt("location", "Lisbon", 27, told_days_ago=26.5)
    learnt("location", "Coimbra", 9, told_days_ago=10, valid_to=ago(days=4))
    learnt("passport_deadline", "2031-08-01", 24, told_days_ago=20)
    learnt("session_topic", "visa renewal", 16, told_days_ago=16)
    learnt("session_topic", None, 12, told_days_ago=11.5, ended=True)
    first = heard(4, "My passport deadline is 2031-07-15, and keep it short, please.", ago(days=23))
    quoted = {"turn_id": "turn-4", "source_episode": first, "source": "quote"}
    told("answer_style", "concise", valid_from=ago(days=23), provenance={**quoted, "quote": "keep it short, please"})
    learnt("passport_deadline", "2031-07-15", 14, told_days_ago=13)
    learnt("passport_deadline", "2031-09-09", 19, told_days_ago=6)
    text = f"Hi, it is me again, about the trip. I corrected the deadline. It is now 2031-06-30. {HOSTILE}"
    second = heard(18, text, ago(days=2))
    quoted = {"turn_id": "turn-18", "source_episode": second, "source": "quote"}
    told("emergency_contact", "Ines Prata", status=202, provenance={"turn_id": "turn-19"})
    told("dietary_restriction", "coeliac", status=202, provenance={"turn_id": "turn-20"})
    told("travel_note", "Lisbon", status=202, confidence=0.4, provenance={"turn_id": "turn-21"})
    Ledger(feed).said("desk-7", "location", "Lisbon")
    asked = told("passport_deadline", "2031-06-30", status=202, valid_from=ago(days=2), confidence=0.4,
                 provenance={**quoted, "quote": "I corrected the deadline. It is now 2031-06-30."})  # fmt: skip
    for _ in range(3):
        ledger.get("/facts/", subject="mira.sousa")
    Ledger(feed).get("/profile/", subject="mira.sousa")
    tested = {"reference": "run-17", "result": "passed", "cases": 12, "passed": 12}
    steps = {"body": "Ask for the booking number first.", "test": tested}
    proposed = Ledger(feed).post("/procedures/refunds/versions/", steps)
    assert proposed.status_code in (201, 202), proposed.content
    two = Two(organisation)
    two.asked("location", schema={"type": "string", "maxLength": 60}, description="Where they live.")
    two.hand_on()
    # Where the tenant's name was taken, its people's names are.
    mark = organisation.slug.removeprefix("acme")
    people = {role: organisation.person(role, username=f"{_NAMES[role]}{mark}") for role in MemberRole}
    people[MemberRole.TENANT_ADMIN] = organisation.person(*MemberRole, username=f"ada{mark}")
    with tenant_transaction(Role.STAFF, tenant=organisation.id):
        subject = Candidate.objects.get(id=asked["candidate"]).subject_id
    _endings(organisation, Ledger(feed))
    while tally.count(organisation.id):
        pass
    return Furnished(organisation, people, str(asked["candidate"]), str(subject))


def _endings(organisation: Organisation, feed: Ledger) -> None:
    """Let something be held, refused, asked for, hidden and erased, each about somebody of its own."""
    tenant, now = organisation.id, datetime.now(UTC)
    officer, second = (organisation.person(MemberRole.PRIVACY_OFFICER).actor for _ in range(2))
    reviewer = organisation.person(MemberRole.REVIEWER).actor
    for name in ("desk-8", "desk-9", "desk-10", "desk-11"):
        feed.said(name, "location", "Braga")
    # Who read of somebody is told of their erasure.
    feed.get("/facts/", subject="desk-10")
    with tenant_transaction(Role.WRITER, tenant=tenant, clearance=3):
        facts = dict(rows.fetch("SELECT f.subject_id, f.id FROM memory_fact f WHERE f.tenant_id = %s", [tenant]))
        about = {
            name: each.id for name, each in subjects.known(tenant, ["desk-8", "desk-9", "desk-10", "desk-11"]).items()
        }

    def acting(actor: Actor) -> Any:
        return tenant_transaction(Role.STAFF, tenant=tenant, clearance=3, actor=actor.id)

    with acting(officer):
        matter, _ = matters.open_matter(officer, "2031/117", "litigation", now=now)
        matters.place(officer, matter.id, [Target(subject_id=about["desk-8"])], now=now)
    with acting(officer):
        requests.lodge(officer, requests.Kind.ACCESS, "desk-9", now=now)
    with tenant_transaction(Role.WORKER, tenant=tenant):
        holds.share(tenant)
        holds.free(tenant, holds.Kind.FACT, [facts[about["desk-8"]]], actor=officer, act="redaction")
    with acting(officer):
        keeping.shorten(officer, facts[about["desk-11"]], now + timedelta(days=3), reason="no_longer_needed", now=now)
    with acting(officer):
        restricting.restrict(officer, "subject", about["desk-11"], ground="accuracy_contested", now=now)
    with acting(reviewer):
        redaction.propose(
            reviewer, [Pick(kind=Kind.FACT, target=facts[about["desk-9"]])], reason="not_to_be_kept", now=now
        )
    with acting(officer):
        erasure = erasing.ask(officer, about["desk-10"], reason="no_longer_needed", now=now)
    with acting(second):
        erasing.decide(second, erasure.id, Answer.APPROVE, shown=erasure.digest, reason="checked", now=now)
    erasing.go_on(tenant, erasure.id, seconds=60)


def _tenant(slug: str) -> Organisation:
    for name in (slug, f"{slug}-{uuid4().hex[:6]}"):
        try:
            with tenant_transaction(Role.FRONT, tenant=None):
                made = create_tenant(name, by=OPERATOR, now=datetime.now(UTC))
        except Clash:
            continue
        return Organisation(made.id, made.slug)
    raise AssertionError("no name is free")


__all__ = ["ATTRIBUTES", "CONTENT", "HOSTILE", "Actor", "ActorKind", "Furnished", "furnish"]
