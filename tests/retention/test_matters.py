"""Matters, placing and releasing: who may, by how many, and that an ending and a hold never pass each other."""

import threading
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from django.db import connection

from memory import rows
from policies import approvals
from policies.approvals import Answer
from policies.models import DecisionRequest
from retention import endings_log, holds, matters
from retention.matters import Target
from retention.models import Hold, HoldScope, Matter
from tenants.actors import Actor, ActorKind, MemberRole, Scope
from tenants.errors import Missing, Problem, Refused
from tenants.isolation import Role
from tenants.models import AuditEvent
from tests.memory.doors import Doors
from tests.policies.two_people import FORBIDDEN, FROZEN, acting, refusal, refused
from tests.retention.legal import Officers, ending, free, held, hold_of, job, now

pytestmark = pytest.mark.usefixtures("database")


@pytest.fixture
def doors(tenant: Any) -> Doors:
    return Doors(tenant)


@pytest.fixture
def officers(tenant: Any) -> Officers:
    return Officers(tenant)


def code(act: Callable[[], Any]) -> str | None:
    """Return the code with which a door refuses an act."""
    try:
        act()
    except Problem as problem:
        return problem.code
    return None


def audited(officers: Officers, *actions: str) -> list[tuple[str, UUID]]:
    with acting(officers.first) as actor:
        found = AuditEvent.objects.filter(chain=actor.tenant, action__in=actions).order_by("seq")
        return list(found.values_list("action", "target_id"))


# matters --------------------------------------------------------------------------------------------------------------


def test_a_matter_is_opened_once_under_its_reference(officers: Officers) -> None:
    with acting(officers.first) as actor:
        matter, new = matters.open_matter(actor, "2026/117", "litigation", now=now())
        again, known = matters.open_matter(actor, "2026/117", "litigation", now=now())
        assert (again.id, new, known) == (matter.id, True, False)
        assert code(lambda: matters.open_matter(actor, "2026/117", "audit", now=now())) == "matter_exists"
    assert audited(officers, "matter.opened") == [("matter.opened", matter.id)]


@pytest.mark.parametrize(
    "reference",
    ["", "Mira's divorce", "mira@example.com", "+48 601 234 567", "4111111111111111", "x" * 61, "a\nb", "-1"],
)
def test_a_reference_is_a_case_number_and_tells_of_nobody(officers: Officers, reference: str) -> None:
    with acting(officers.first) as actor, pytest.raises(Refused) as refused:
        matters.open_matter(actor, reference, "litigation", now=now())
    assert [each.path for each in refused.value.errors] == ["reference"]


def test_a_matter_closes_once_its_holds_are_released_and_takes_no_hold_after(officers: Officers) -> None:
    hold = officers.place(Target(session_id="s1"))
    matter = hold_of(officers.organisation.id, hold).matter_id
    with acting(officers.first) as actor:
        assert code(lambda: matters.close_matter(actor, matter, now=now())) == "hold_in_force"
    officers.release(hold)
    with acting(officers.first) as actor:
        assert matters.close_matter(actor, matter, now=now()).state == "closed"
        assert code(lambda: matters.place(actor, matter, [Target(session_id="s1")], now=now())) == "matter_closed"
        assert [each.state for each in Matter.history.filter(id=matter).order_by("history_id")] == ["open", "closed"]


# placing --------------------------------------------------------------------------------------------------------------


def test_a_hold_that_is_placed_covers_is_told_outside_and_audited(officers: Officers, doors: Doors) -> None:
    said = doors.say("city", "Oslo")
    hold = officers.place(Target(record_kind="fact", record_id=said.fact), Target(session_id="s/1 ą"), reference="c/1")
    assert held(doors.id, "fact", said.fact) == {said.fact: [hold]}
    assert audited(officers, "hold.placed") == [("hold.placed", hold)]
    (entry,) = list(endings_log.told(doors.id))
    assert (entry.kind, entry.target) == ("hold_placed", hold)
    assert len(entry.record["scopes"]) == 2
    row = hold_of(doors.id, hold)
    assert (row.placed_by, row.state) == (officers.first.actor.id, "active")


@pytest.mark.parametrize(
    ("targets", "path"),
    [
        ([], "scopes"),
        ([Target()], "scopes[0]"),
        ([Target(session_id="s")] * 101, "scopes"),
        ([Target(record_kind="fact", record_id=uuid4(), session_id="s")], "scopes[0].record"),
        ([Target(record_kind="payload", record_id=uuid4())], "scopes[0].record.kind"),
        (
            [Target(recorded_from=datetime(2026, 2, 1, tzinfo=UTC), recorded_until=datetime(2026, 1, 1, tzinfo=UTC))],
            "scopes[0].recorded_until",
        ),
    ],
)
def test_a_hold_that_says_nothing_or_too_much_is_refused(officers: Officers, targets: list[Target], path: str) -> None:
    with pytest.raises(Refused) as refused:
        officers.place(*targets)
    assert [each.path for each in refused.value.errors] == [path]


def test_what_is_not_there_is_not_held(officers: Officers, other_tenant: Any) -> None:
    theirs = Doors(other_tenant).say("city", "Oslo").fact
    for target in (
        Target(subject_id=uuid4()),
        Target(attribute_id=uuid4()),
        Target(record_kind="fact", record_id=theirs),
        Target(record_kind="episode", record_id=uuid4()),
    ):
        with pytest.raises(Missing):
            officers.place(target)


def test_only_a_privacy_officer_or_a_program_with_the_scope_places_a_hold(officers: Officers) -> None:
    program = Actor(kind=ActorKind.AGENT, id=uuid4(), tenant=officers.organisation.id, scopes=frozenset({Scope.ADMIN}))
    assert officers.place(Target(session_id="s"), by=program)
    weak = Actor(kind=ActorKind.AGENT, id=uuid4(), tenant=officers.organisation.id, scopes=frozenset({Scope.WRITE}))
    assert code(lambda: officers.place(Target(session_id="s"), by=weak)) == "scope_missing"
    for person in (officers.reviewer, officers.approver):
        assert code(partial(officers.place, Target(session_id="s"), by=person)) == "role_missing"


def test_a_dry_run_counts_what_is_there(officers: Officers, doors: Doors) -> None:
    mira = doors.name("mira").id
    episode = doors.episode("Mira lives in Oslo", subject="mira")
    named = doors.episode("I met mira", subject="jon")
    said = doors.say("city", "Oslo", episode=episode.id, quote="lives in Oslo")
    doors.say("city", "Oslo", episode=episode.id, quote="Oslo")
    doors.say("plan", "gold", subject="jon")
    doors.say("checked", "yes")
    with acting(officers.first):
        assert matters.covered(doors.id, [Target(subject_id=mira)]) == {
            "fact": 1, "evidence": 2, "episode": 2, "candidate": 1, "subject": 1
        }  # fmt: skip
        assert matters.covered(doors.id, [Target(writer_id=doors.agent.id)])["fact"] == 2
        assert matters.covered(doors.id, [Target(record_kind="fact", record_id=said.fact)])["episode"] == 1
        assert matters.covered(doors.id, [Target(record_kind="episode", record_id=named.id)]) == {
            "fact": 0, "evidence": 0, "episode": 1, "candidate": 0, "subject": 1
        }  # fmt: skip
        assert set(matters.covered(doors.id, [Target(session_id="nobody's")]).values()) == {0}


def test_a_dry_run_counts_what_the_hold_then_covers(officers: Officers, doors: Doors) -> None:
    """The two are written apart: one asks from the scopes, the other from the records."""
    episode = doors.episode("Mira lives in Oslo", subject="mira", session_id="s7")
    doors.say("city", "Oslo", episode=episode.id, quote="lives in Oslo")
    doors.say("checked", "yes", episode=episode.id, quote="Mira")
    doors.say("plan", "gold", subject="jon")
    doors.episode("I met mira", subject="jon")
    mira = doors.name("mira").id
    city = doors.sql("SELECT id FROM policies_attribute WHERE name = 'city'")[0][0]
    tables = {
        "fact": "fact",
        "evidence": "evidence",
        "episode": "episode",
        "candidate": "candidate",
        "subject": "subject",
    }
    ids = {kind: [row[0] for row in doors.sql(f"SELECT id FROM memory_{table}")] for kind, table in tables.items()}
    for target in (
        Target(subject_id=mira),
        Target(attribute_id=city),
        Target(session_id="s7"),
        Target(session_id="session-1", writer_id=doors.agent.id),
        Target(writer_id=doors.agent.id),
        Target(recorded_from=datetime(2000, 1, 1, tzinfo=UTC)),
        Target(subject_id=mira, attribute_id=city),
        Target(record_kind="episode", record_id=episode.id),
    ):
        with acting(officers.first):
            counted = matters.covered(doors.id, [target])
        hold = officers.place(target)
        assert {kind: len(held(doors.id, kind, *each)) for kind, each in ids.items()} == counted, target
        officers.release(hold)


# releasing ------------------------------------------------------------------------------------------------------------


def test_a_hold_is_released_by_two_privacy_officers_and_its_row_stays(officers: Officers, doors: Doors) -> None:
    said = doors.say("city", "Oslo")
    hold = officers.place(Target(record_kind="fact", record_id=said.fact))
    officers.release(hold)
    assert free(doors.id, "fact", [said.fact]) == [said.fact]
    row = hold_of(doors.id, hold)
    assert (row.state, row.released_by) == ("released", officers.second.actor.id)
    with acting(officers.first):
        assert HoldScope.objects.filter(hold_id=hold).count() == 1
        assert [each.state for each in Hold.history.filter(id=hold).order_by("history_id")] == ["active", "released"]
    assert [entry.kind for entry in endings_log.told(doors.id)] == ["hold_placed", "hold_released"]
    assert audited(officers, "hold.placed", "approval.used", "hold.released")[-1] == ("hold.released", hold)


def test_c_nobody_releases_what_they_asked_to_release(officers: Officers) -> None:
    hold = officers.place(Target(session_id="s"))
    asked = officers.ask(hold)
    assert code(lambda: officers.decide(asked, by=officers.first)) == "own_request"
    for person in (officers.reviewer, officers.approver):
        assert code(partial(officers.decide, asked, by=person)) == "role_missing"
        assert code(partial(officers.ask, hold, by=person)) == "role_missing"
    assert hold_of(officers.organisation.id, hold).state == "active"
    assert officers.decide(asked, Answer.REFUSE).state == "refused"
    assert hold_of(officers.organisation.id, hold).state == "active"


def test_a_release_is_bound_to_the_scopes_that_were_shown(officers: Officers) -> None:
    hold = officers.place(Target(session_id="s"))
    asked = officers.ask(hold)
    assert code(lambda: officers.decide(asked, shown=bytes(32))) == "changed_since_shown"
    with acting(officers.first) as actor:
        rows.execute(
            "INSERT INTO retention_holdscope (tenant_id, id, hold_id, session_id) VALUES (%s, %s, %s, 's2')",
            [actor.tenant, uuid4(), hold],
        )
    assert code(lambda: officers.decide(asked)) == "changed_since_shown"
    assert hold_of(officers.organisation.id, hold).state == "active"


def test_a_program_only_proposes_to_release(officers: Officers) -> None:
    hold = officers.place(Target(session_id="s"))
    program = Actor(kind=ActorKind.AGENT, id=uuid4(), tenant=officers.organisation.id, scopes=frozenset({Scope.ADMIN}))
    assert code(lambda: officers.ask(hold, by=program)) == "role_missing"
    for _ in range(2):
        with acting(program) as actor:
            assert matters.propose_release(actor, hold, now=now()).proposed_by == program.id
    assert audited(officers, "hold.release_proposed") == [("hold.release_proposed", hold)]
    with acting(officers.first):
        assert not DecisionRequest.objects.filter(target_id=hold).exists()
    assert hold_of(officers.organisation.id, hold).state == "active"


# the two-person rule, attacked ----------------------------------------------------------------------------------------

_RELEASE = "UPDATE retention_hold SET state = 'released' WHERE id = %s"


@pytest.mark.parametrize("how", ["unasked", "asked", "refused", "decided_by_oneself", "nobody", "another_digest"])
def test_raw_sql_releases_no_hold_without_a_second_persons_approval(officers: Officers, login: Any, how: str) -> None:
    hold = officers.place(Target(session_id="s"))
    if how != "unasked":
        asked = officers.ask(hold)
    if how == "refused":
        officers.decide(asked, Answer.REFUSE)
    if how == "decided_by_oneself":
        statement = (
            "INSERT INTO policies_decision (tenant_id, id, request_id, requested_by, digest, verdict, reason, decided_by, decided_at)"
            " SELECT tenant_id, %s, id, %s, digest, 'approve', 'other', %s, now() FROM policies_decisionrequest WHERE id = %s",
            (uuid4(), uuid4(), uuid4(), asked.id),
        )
        assert refused(officers.first, statement, (_RELEASE, (hold,))) == "23514"
    if how == "nobody":
        assert refusal(None, _RELEASE, hold, tenant=officers.organisation.id) == FROZEN
    if how == "another_digest":
        # An approval of what the hold no longer is.
        with acting(officers.second) as actor:
            approvals.decide(actor, asked.id, Answer.APPROVE, shown=bytes(asked.digest), reason="other", now=now())
        scope = (
            "INSERT INTO retention_holdscope (tenant_id, id, hold_id, session_id) VALUES (%s, %s, %s, 's2')",
            (officers.organisation.id, uuid4(), hold),
        )
        assert refused(officers.second, scope, (_RELEASE, (hold,))) == FROZEN
        assert refused(officers.second, (_RELEASE, (hold,))) is None
    else:
        for person in (officers.first, officers.second, officers.reviewer):
            assert refusal(person, _RELEASE, hold) == FROZEN
    for role in (Role.AGENT, Role.WRITER, Role.WORKER, Role.FRONT):
        assert by_role(login, role, officers.second.actor, _RELEASE, hold) == FORBIDDEN


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM retention_hold WHERE id = %s",
        "DELETE FROM retention_holdscope WHERE hold_id = %s",
        "UPDATE retention_holdscope SET session_id = 'other' WHERE hold_id = %s",
        "UPDATE retention_hold SET placed_by = gen_random_uuid() WHERE id = %s",
        "UPDATE retention_hold SET matter_id = gen_random_uuid() WHERE id = %s",
        "UPDATE retention_hold SET state = 'released', released_by = gen_random_uuid(), released_at = now() WHERE id = %s",
        "DELETE FROM retention_matter WHERE id = (SELECT matter_id FROM retention_hold WHERE id = %s)",
        "UPDATE retention_matter SET state = 'closed', closed_by = gen_random_uuid(), closed_at = now()"
        " WHERE id = (SELECT matter_id FROM retention_hold WHERE id = %s)",
        "INSERT INTO retention_refusedending (tenant_id, id, hold_id, record_kind, record_id, act, actor_kind, actor_id, times,"
        " first_at, last_at) SELECT tenant_id, id, id, 'fact', id, 'compaction', 'job', id, 1, now(), now() FROM retention_hold"
        " WHERE id = %s",
    ],
)  # fmt: skip
def test_no_role_takes_a_hold_away_by_the_side(officers: Officers, superuser: Any, login: Any, statement: str) -> None:
    hold = officers.place(Target(session_id="s"))
    for role in Role:
        found = by_role(login, role, officers.second.actor, statement, hold)
        assert found in (FORBIDDEN, FROZEN), (role, found)
    if "INSERT" not in statement:
        with pytest.raises(psycopg.errors.RestrictViolation):
            superuser.execute(statement, [hold])


def by_role(session: Any, role: Role, actor: Actor, statement: str, *parameters: Any) -> str | None:
    """Return the SQLSTATE with which raw SQL of a role is refused, at once or at the commit; None, and undone, else."""
    try:
        with session.transaction(force_rollback=True):
            session.execute(
                "SELECT set_config('muniment.tenant', %s, true), set_config('muniment.actor', %s, true),"
                " set_config('role', %s, true)",
                [str(actor.tenant), str(actor.id), role.value],
            )
            session.execute(statement, parameters)
            session.execute("SET CONSTRAINTS ALL IMMEDIATE")
            return None
    except psycopg.Error as error:
        return error.sqlstate


# races ----------------------------------------------------------------------------------------------------------------


def test_an_ending_that_began_makes_a_hold_wait_and_one_that_begins_after_it_is_refused(
    officers: Officers, doors: Doors
) -> None:
    said = doors.say("city", "Oslo")
    placed = threading.Event()

    def place() -> None:
        officers.place(Target(record_kind="fact", record_id=said.fact))
        placed.set()
        connection.close()

    placing = threading.Thread(target=place)
    with ending(doors.id):
        assert holds.free(doors.id, "fact", [said.fact], actor=job(doors.id), act="compaction") == [said.fact]
        placing.start()
        # While the ending is under way there is no hold; what it was told stays true until it commits.
        assert not placed.wait(0.5)
        assert holds.held(doors.id, "fact", [said.fact]) == {}
    placing.join(10)
    assert placed.is_set()
    assert free(doors.id, "fact", [said.fact]) == []


def test_an_ending_that_finds_a_hold_being_placed_waits_and_then_sees_it(officers: Officers, doors: Doors) -> None:
    said = doors.say("city", "Oslo")
    with acting(officers.first) as actor:
        matter, _ = matters.open_matter(actor, "race-1", "litigation", now=now())
    outcome: list[list[UUID]] = []

    def end() -> None:
        outcome.append(free(doors.id, "fact", [said.fact]))
        connection.close()

    ends = threading.Thread(target=end)
    with acting(officers.first) as actor:
        matters.place(actor, matter.id, [Target(subject_id=doors_subject(doors))], now=now())
        ends.start()
        ends.join(0.5)
        assert ends.is_alive()
    ends.join(10)
    assert outcome == [[]]


def doors_subject(doors: Doors) -> UUID:
    found: UUID = doors_sql_one(doors, "SELECT id FROM memory_subject")
    return found


def doors_sql_one(doors: Doors, statement: str) -> Any:
    # Beside an open transaction of this thread: a connection of its own.
    found: list[Any] = []

    def ask() -> None:
        found.append(doors.sql(statement)[0][0])
        connection.close()

    asking = threading.Thread(target=ask)
    asking.start()
    asking.join(10)
    return found[0]


def test_raw_sql_that_began_before_a_hold_is_waited_for_and_after_it_refused(
    officers: Officers, doors: Doors, superuser: Any
) -> None:
    """Even a statement that asked nobody cannot slip in beside a hold that is being placed."""
    first, second = doors.say("shade", "green"), doors.say("shade", "blue", subject="jon")
    wipe = (
        "UPDATE memory_payload SET clear = NULL, redaction_state = 'applied', ended_at = clock_timestamp()"
        " WHERE id = (SELECT payload_id FROM memory_fact WHERE id = %s)"
    )
    placed = threading.Event()

    def place() -> None:
        officers.place(
            Target(record_kind="fact", record_id=first.fact), Target(record_kind="fact", record_id=second.fact)
        )
        placed.set()
        connection.close()

    with superuser.transaction():
        superuser.execute("SELECT set_config('muniment.tenant', %s, true)", [str(doors.id)])
        superuser.execute(wipe, [first.fact])
        placing = threading.Thread(target=place)
        placing.start()
        assert not placed.wait(0.5)
    placing.join(10)
    superuser.execute("SELECT set_config('muniment.tenant', %s, false)", [str(doors.id)])
    with pytest.raises(psycopg.errors.RestrictViolation, match="legal hold"):
        superuser.execute(wipe, [second.fact])


def test_two_who_decide_at_once_release_once(officers: Officers) -> None:
    from tests.paths.ledger import at_once

    third = officers.organisation.person(MemberRole.PRIVACY_OFFICER)
    hold = officers.place(Target(session_id="s"))
    asked = officers.ask(hold)

    def decide(person: Any) -> str:
        return code(lambda: officers.decide(asked, by=person)) or "released"

    found = at_once([lambda: decide(officers.second), lambda: decide(third)])
    assert sorted(found) in (["already_decided", "released"], ["hold_released", "released"])
    assert audited(officers, "hold.released") == [("hold.released", hold)]


# after a restore ------------------------------------------------------------------------------------------------------


def test_a_hold_that_a_restore_has_lost_is_placed_again_as_the_log_tells(officers: Officers, doors: Doors) -> None:
    said = doors.say("city", "Oslo")
    hold = officers.place(
        Target(record_kind="fact", record_id=said.fact),
        Target(session_id="s/1 ą", recorded_from=datetime(2026, 1, 1, tzinfo=UTC)),
        reference="c/1",
    )
    (entry,) = list(endings_log.told(doors.id))
    operator = Actor(kind=ActorKind.OPERATOR, id=uuid4(), tenant=doors.id)
    with acting(operator) as actor:
        assert matters.place_again(actor, hold, entry.record, now=now()) is False
    # As if it were not there yet: the same log in a database of before.
    other = uuid4()
    record = {**entry.record, "matter": str(uuid4()), "reference": matters._hexed("c/2"),
              "scopes": [{**each, "id": str(uuid4())} for each in entry.record["scopes"]]}  # fmt: skip
    with acting(operator) as actor:
        assert matters.place_again(actor, other, record, now=now()) is True
        scopes = list(HoldScope.objects.filter(hold_id=other).order_by("id").values_list("record_id", "session_id"))
    assert set(scopes) == {(said.fact, None), (None, "s/1 ą")}
    assert set(held(doors.id, "fact", said.fact)[said.fact]) == {hold, other}
