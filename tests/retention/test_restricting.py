"""Restriction of processing: kept, seen by staff, seen by no agent, lifted with a reason."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest

from memory import derived, recall
from retention import endings_log, restricting
from tenants.actors import Actor, ActorKind, MemberRole, Scope
from tenants.errors import Missing, Problem
from tenants.isolation import Role, tenant_transaction
from tenants.models import AuditEvent
from tests.memory.doors import Doors
from tests.organisation import Person
from tests.policies.two_people import FORBIDDEN, FROZEN, acting, refusal

pytestmark = pytest.mark.usefixtures("database")


@pytest.fixture
def doors(tenant: Any) -> Doors:
    return Doors(tenant)


@pytest.fixture
def officer(tenant: Any) -> Person:
    person: Person = tenant.person(MemberRole.PRIVACY_OFFICER)
    return person


def now() -> datetime:
    return datetime.now(UTC)


def restrict(officer: Person, kind: str, target: UUID, ground: str = "accuracy_contested") -> UUID:
    with acting(officer) as actor:
        made: UUID = restricting.restrict(actor, kind, target, ground=ground, now=now()).id
    return made


def lift(officer: Person, row: UUID, because: str = "accuracy_settled", *, told: bool = False) -> None:
    with acting(officer) as actor:
        restricting.lift(actor, row, because=because, now=now(), told=told)


def code(act: Any) -> str | None:
    try:
        act()
    except Problem as problem:
        return problem.code
    return None


def flagged(doors: Doors) -> dict[str, int]:
    """How many rows of each governed table say that they are restricted."""
    tables = ("fact", "evidence", "episode", "candidate", "payload", "searchentry")
    return {t: doors.sql(f"SELECT count(*) FROM memory_{t} WHERE restricted")[0][0] for t in tables}


def told_of_everything(doors: Doors) -> Any:
    """Say something of every kind about Mira."""
    episode = doors.episode("Mira lives in Oslo", subject="mira")
    said = doors.say("city", "Oslo", episode=episode.id, quote="lives in Oslo")
    doors.say("checked", "yes", episode=episode.id, quote="Mira")
    return said, episode


def test_what_is_restricted_is_seen_by_no_agent_by_any_read_and_is_kept(doors: Doors, officer: Person) -> None:
    said, episode = told_of_everything(doors)
    doors.say("city", "Rome", subject="jon")
    mira = doors.name("mira").id
    row = restrict(officer, "subject", mira)
    assert doors.values("city") == []
    assert doors.values("city", subject="jon") == ["Rome"]
    with doors.reading():
        for read in (
            lambda: recall.fact(doors.agent, said.fact),
            lambda: recall.episode(doors.agent, episode.id),
            lambda: recall.history(doors.agent, said.fact),
            lambda: recall.lineage(doors.agent, said.fact),
        ):
            with pytest.raises(Missing):
                read()
    with doors.reading():
        assert recall.profile(doors.agent, "mira").results == []
        assert recall.candidates(doors.agent, state="asked")["results"] == []
    with doors.reading():
        assert "Oslo" not in str(derived.profile(doors.agent, "mira"))
    # By raw SQL neither, and the past tells no more.
    for table in ("fact", "evidence", "episode", "candidate", "payload"):
        of_mira = doors.sql(f"SELECT count(*) FROM memory_{table} WHERE restricted", role=Role.AGENT)
        assert of_mira == [(0,)], table
    assert doors.values("city", at=now(), known=now()) == []
    # Staff see it, and nothing is gone.
    with acting(officer):
        assert AuditEvent.objects.filter(action="processing.restricted", target_id=mira).count() == 1
    assert [entry.kind for entry in endings_log.told(doors.id)] == ["restriction"]
    lift(officer, row)
    assert doors.values("city") == ["Oslo"]
    assert set(flagged(doors).values()) == {0}


def test_what_is_written_later_about_a_restricted_subject_is_kept_and_restricted(doors: Doors, officer: Person) -> None:
    told_of_everything(doors)
    mira = doors.name("mira").id
    row = restrict(officer, "subject", mira)
    before = flagged(doors)
    late = doors.say("plan", "gold")
    assert late.change == "new"
    doors.say("city", "Rome", 40)
    doors.say("checked", "no")
    doors.episode("Mira moved to Rome", subject="mira")
    doors.name("mira", "mimi")
    after = flagged(doors)
    assert all(after[table] > before[table] for table in ("fact", "evidence", "episode", "candidate", "payload")), after
    for table in ("fact", "evidence", "episode", "candidate"):
        assert doors.sql(f"SELECT count(*) FROM memory_{table} WHERE NOT restricted") == [(0,)], table
    assert doors.sql("SELECT count(*) FROM memory_payload WHERE NOT restricted AND purpose <> 'derived'") == [(0,)]
    assert doors.values("plan") == []
    assert doors.values("plan", subject="mimi") == []
    lift(officer, row)
    assert doors.values("plan") == ["gold"]


def test_an_episode_of_a_restricted_subject_is_not_drawn_from(doors: Doors, officer: Person, tenant: Any) -> None:
    from memory import extracting

    kept = doors.episode("I live in Oslo", subject="mira", role="user", extract="later")
    restrict(officer, "subject", doors.name("mira").id)
    extracting.draw(doors.id, kept.id)
    assert doors.sql("SELECT state, code FROM memory_extraction WHERE episode_id = %s", kept.id) == [
        ("skipped", "restricted_processing")
    ]


def test_one_fact_or_one_episode_is_restricted_alone(doors: Doors, officer: Person) -> None:
    said, episode = told_of_everything(doors)
    plan = doors.say("plan", "gold")
    fact = restrict(officer, "fact", plan.fact)
    assert (doors.values("plan"), doors.values("city")) == ([], ["Oslo"])
    of_episode = restrict(officer, "episode", episode.id)
    with doors.reading(), pytest.raises(Missing):
        recall.episode(doors.agent, episode.id)
    assert doors.values("city") == ["Oslo"]
    # Lifting that of the subject leaves those of its records.
    whole = restrict(officer, "subject", doors.name("mira").id)
    lift(officer, whole)
    assert (doors.values("plan"), doors.values("city")) == ([], ["Oslo"])
    lift(officer, fact)
    lift(officer, of_episode)
    assert doors.values("plan") == ["gold"]
    assert set(flagged(doors).values()) == {0}
    assert said.fact


def test_an_episode_about_nobody_is_restricted_too(doors: Doors, officer: Person) -> None:
    episode = doors.episode("hello")
    row = restrict(officer, "episode", episode.id)
    assert (flagged(doors)["episode"], flagged(doors)["payload"]) == (1, 1)
    lift(officer, row)
    assert (flagged(doors)["episode"], flagged(doors)["payload"]) == (0, 0)


def test_only_a_privacy_officer_restricts_and_lifts_and_with_a_code(doors: Doors, officer: Person, tenant: Any) -> None:
    mira = doors.name("mira").id
    for role in set(MemberRole) - {MemberRole.PRIVACY_OFFICER}:
        person = tenant.person(role)
        assert code(lambda person=person: restrict(person, "subject", mira)) == "role_missing"  # type: ignore[misc]
    # A program with the scope `admin` may restrict, none may lift.
    scopes = frozenset(Scope) - {Scope.ADMIN}
    with acting(Actor(kind=ActorKind.AGENT, id=uuid4(), tenant=doors.id, scopes=scopes)) as actor:
        assert code(lambda: restricting.restrict(actor, "subject", mira, ground="other", now=now())) == "role_missing"
    assert code(lambda: restrict(officer, "subject", mira, "because I say so")) == "restriction_refused"
    assert code(lambda: restrict(officer, "payload", mira)) == "restriction_refused"
    assert code(lambda: restrict(officer, "subject", uuid4())) == "not_found"
    assert code(lambda: restrict(officer, "fact", mira)) == "not_found"
    row = restrict(officer, "subject", mira)
    assert code(lambda: restrict(officer, "subject", mira)) == "restricted_already"
    assert code(lambda: lift(officer, row, "enough")) == "restriction_refused"
    with acting(Actor(kind=ActorKind.AGENT, id=uuid4(), tenant=doors.id, scopes=frozenset(Scope))) as actor:
        assert code(lambda: restricting.lift(actor, row, because="other", now=now())) == "role_missing"
    lift(officer, row)
    assert code(lambda: lift(officer, row)) == "restriction_lifted"
    restrict(officer, "subject", mira)


def test_whoever_asked_is_told_before_it_is_lifted(doors: Doors, officer: Person) -> None:
    from retention import requests

    mira = doors.name("mira").id
    with acting(officer) as actor:
        asked = requests.lodge(actor, requests.Kind.RESTRICTION, "mira", now=now())[0].id
        requests.confirm_identity(actor, asked, requests.METHODS[0], now=now())
    with acting(officer) as actor:
        row = restricting.restrict(actor, "subject", mira, ground="accuracy_contested", now=now(), answers=asked).id
    assert code(lambda: lift(officer, row)) == "notice_owed"
    statement = "UPDATE retention_restriction SET state = 'lifted', lifted_because = 'other' WHERE id = %s"
    assert refusal(officer, statement, row) == "23514"
    lift(officer, row, told=True)


def test_raw_sql_changes_no_restriction_but_by_lifting_it(doors: Doors, officer: Person, login: Any) -> None:
    from tests.retention.test_matters import by_role

    row = restrict(officer, "subject", doors.name("mira").id)
    for statement in (
        "DELETE FROM retention_restriction WHERE id = %s",
        "UPDATE retention_restriction SET told_at = now() WHERE id = %s",
        "UPDATE retention_restriction SET ground = 'other' WHERE id = %s",
    ):
        for role in Role:
            assert by_role(login, role, officer.actor, statement, row) in (FORBIDDEN, FROZEN), (role, statement)
    for role in (Role.AGENT, Role.STAFF, Role.WORKER, Role.FRONT):
        wipe = "UPDATE memory_subject SET restricted = false WHERE id = %s"
        assert by_role(login, role, officer.actor, wipe, row) == FORBIDDEN


def test_no_writer_takes_the_mark_from_what_is_restricted(doors: Doors, officer: Person, login: Any) -> None:
    from tests.retention.test_matters import by_role

    said = doors.episode("I live in Oslo.", subject="mira")
    doors.say("city", "Oslo", 1, episode=said.id, quote="live in Oslo")
    doors.say("checked", "yes", 1)
    row = restrict(officer, "subject", doors.name("mira").id)
    for table in ("subject", "fact", "evidence", "episode", "candidate", "payload"):
        marked = "SELECT count(*) FROM memory_{} WHERE restricted"
        assert doors.sql(marked.format(table))[0][0] >= 1, table
        wipe = f"UPDATE memory_{table} SET restricted = false WHERE %s::uuid IS NOT NULL AND restricted"
        assert by_role(login, Role.WRITER, officer.actor, wipe, row) == FROZEN, table
    lift(officer, row)
    for table in ("subject", "fact", "evidence", "episode", "candidate", "payload"):
        assert doors.sql(f"SELECT count(*) FROM memory_{table} WHERE restricted") == [(0,)], table


def test_a_writer_who_began_before_a_restriction_leaves_nothing_unrestricted(doors: Doors, officer: Person) -> None:
    import threading

    from django.db import connection

    from memory import remember

    doors.say("city", "Oslo")
    mira = doors.name("mira").id
    done = threading.Event()

    def act() -> None:
        restrict(officer, "subject", mira)
        done.set()
        connection.close()

    acts = threading.Thread(target=act)
    with tenant_transaction(Role.WRITER, tenant=doors.id, clearance=3, actor=doors.agent.id):
        remember.facts(doors.agent, [doors.body("plan", "gold")], batch=False)
        acts.start()
        assert not done.wait(0.5)
    acts.join(10)
    assert done.is_set()
    assert doors.sql("SELECT count(*) FROM memory_fact WHERE NOT restricted") == [(0,)]


def test_an_officer_restricts_by_name_and_lifts_by_the_pages(doors: Doors, officer: Person, tenant: Any) -> None:
    doors.say("city", "Oslo")
    client = officer.signed_in()
    page = "/admin/retention/restriction/restrict/"
    assert client.get(page).status_code == 200
    given = {"kind": "subject", "target": "mira", "ground": "unlawful"}
    assert client.post(page, {**given, "target": "nobody"}).status_code == 422
    assert tenant.person(MemberRole.REVIEWER).signed_in().post(page, given).status_code == 403
    made = client.post(page, given)
    assert made.status_code == 302
    assert doors.values("city") == []
    assert client.post(page, given).status_code == 409
    shown = client.get(made["Location"]).content.decode()
    assert "in force" in shown
    assert (
        "processing restricted" in client.get(f"/admin/memory/subject/{doors.name('mira').id}/change/").content.decode()
    )
    lifted = client.post(made["Location"].replace("change", "lift"), {"because": "in_error"})
    assert lifted.status_code == 302
    assert doors.values("city") == ["Oslo"]
