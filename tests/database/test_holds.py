"""What a hold covers is not removed by any statement: raw SQL as every role, and as one that no grant binds."""

from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from tests.memory.doors import Doors
from tests.retention.legal import place_raw

pytestmark = pytest.mark.usefixtures("database")

ROLES = ["muniment_agent", "muniment_writer", "muniment_staff", "muniment_worker", "muniment_front"]
FORBIDDEN, FROZEN = "42501", "23001"
#: What a row is kept by that another still points at. A link's refusal has had a state of its own since PostgreSQL 18.
LINKS = {
    f"{state} {link}"
    for state in ("23001", "23503")
    for link in ("belief_evidence", "evidence_fact", "evidence_episode", "candidatesaying_candidate")
}


class Kept:
    """A tenant with one of everything about Mira, all of it drawn from one episode."""

    def __init__(self, tenant: Any) -> None:
        self.doors = doors = Doors(tenant)
        self.mira = doors.name("mira", "mimi").id
        self.episode = doors.episode("Mira lives in Oslo", subject="mira").id
        self.said = doors.say("city", "Oslo", episode=self.episode, quote="lives in Oslo")
        # Said later: what the newest act opened, an act of the same instant may undo.
        doors.say("city", "Rome", 40)
        self.shade = doors.say("shade", "green")
        self.asked = doors.say("checked", "yes", episode=self.episode, quote="Mira").candidate

    def hold(self) -> UUID:
        return place_raw(self.doors.id, {"subject_id": self.mira})


#: Statements that would end something of hers; `%(x)s` are ids.
ENDINGS = {
    "a value overwritten": "UPDATE memory_payload SET clear = NULL, sealed = NULL, redaction_state = 'applied', ended_at = clock_timestamp()"
    " WHERE id = (SELECT payload_id FROM memory_fact WHERE id = %(fact)s)",
    "a value in clear replaced": "UPDATE memory_payload SET clear = '\"red\"' WHERE id = (SELECT payload_id FROM memory_fact"
    " WHERE id = %(shade)s)",
    "a value sealed as another": "UPDATE memory_payload SET sealed = '\\x00'"
    " WHERE id = (SELECT payload_id FROM memory_fact WHERE id = %(fact)s)",
    "a quote overwritten": "UPDATE memory_payload SET sealed = NULL, redaction_state = 'applied', ended_at = clock_timestamp()"
    " WHERE id = (SELECT quote_id FROM memory_evidence WHERE id = %(evidence)s)",
    "an episode overwritten": "UPDATE memory_payload SET sealed = NULL, redaction_state = 'applied', ended_at = clock_timestamp()"
    " WHERE id = (SELECT payload_id FROM memory_episode WHERE id = %(episode)s)",
    "a proposal overwritten": "UPDATE memory_payload SET sealed = NULL, redaction_state = 'applied', ended_at = clock_timestamp()"
    " WHERE id = (SELECT payload_id FROM memory_candidate WHERE id = %(candidate)s)",
    "a proposal's quote overwritten": "UPDATE memory_payload SET sealed = NULL, redaction_state = 'applied', ended_at = clock_timestamp()"
    " WHERE id = (SELECT quote_id FROM memory_candidatesaying WHERE candidate_id = %(candidate)s)",
    "a name overwritten": "UPDATE memory_payload SET sealed = NULL, redaction_state = 'applied', ended_at = clock_timestamp()"
    " WHERE id = (SELECT payload_id FROM memory_subject WHERE id = %(subject)s)",
    "an alias overwritten": "UPDATE memory_payload SET sealed = NULL, redaction_state = 'applied', ended_at = clock_timestamp()"
    " WHERE id IN (SELECT payload_id FROM memory_subjectidentifier WHERE subject_id = %(subject)s AND NOT is_key)",
    "a data key written over": "UPDATE tenants_subjectkey SET wrapped = '\\x00'"
    " WHERE id = (SELECT key_id FROM memory_subject WHERE id = %(subject)s)",
    "a quote let go of": "UPDATE memory_evidence SET quote_id = NULL WHERE id = %(evidence)s",
    "a value let go of": "UPDATE memory_fact SET payload_id = (SELECT payload_id FROM memory_fact WHERE id = %(shade)s)"
    " WHERE id = %(fact)s",
    "a fact deleted": "DELETE FROM memory_fact WHERE id = %(fact)s",
    "evidence deleted": "DELETE FROM memory_evidence WHERE id = %(evidence)s",
    "an episode deleted": "DELETE FROM memory_episode WHERE id = %(episode)s",
    "a candidate deleted": "DELETE FROM memory_candidate WHERE id = %(candidate)s",
    "a candidate's saying deleted": "DELETE FROM memory_candidatesaying WHERE candidate_id = %(candidate)s",
    "an alias deleted": "DELETE FROM memory_subjectidentifier WHERE subject_id = %(subject)s AND NOT is_key",
    "a stretch deleted": "DELETE FROM memory_belief WHERE fact_id = %(fact)s",
}  # fmt: skip


_OTHER_GUARDS_OFF = """
DO $$
DECLARE
  g record;
BEGIN
  FOR g IN SELECT t.tgname, t.tgrelid::regclass AS "table" FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid
      WHERE NOT t.tgisinternal AND t.tgrelid::regclass::text LIKE 'memory\\_%' AND p.proname NOT LIKE 'hold\\_keeps\\_%' LOOP
    EXECUTE format('ALTER TABLE %s DISABLE TRIGGER %I', g."table", g.tgname);
  END LOOP;
END $$
"""


@pytest.fixture
def kept(tenant: Any) -> Kept:
    return Kept(tenant)


def attempt(session: psycopg.Connection[Any], kept: Kept, statement: str, role: str | None) -> str | None:
    """Return the SQLSTATE with which a statement is refused (`none touched` where it found nothing), None where it is not."""
    ids = {"fact": kept.said.fact, "evidence": kept.said.evidence, "shade": kept.shade.fact, "episode": kept.episode,
           "candidate": kept.asked, "subject": kept.mira}  # fmt: skip
    try:
        with session.transaction(force_rollback=True):
            session.execute("SELECT set_config('muniment.tenant', %s, true), set_config('muniment.actor', %s, true)",
                            [str(kept.doors.id), str(uuid4())])  # fmt: skip
            if role is None:
                # Other guards aside, and foreign keys: what is asked here is what the hold itself refuses.
                session.execute(_OTHER_GUARDS_OFF)
                session.execute("SET CONSTRAINTS ALL DEFERRED")
            else:
                session.execute(f"SET LOCAL ROLE {role}")
            found = session.execute(statement, ids)
            return None if found.rowcount else "none touched"
    except psycopg.Error as error:
        return f"{error.sqlstate} {error.diag.constraint_name or ''}".strip()


@pytest.mark.parametrize("name", ENDINGS)
def test_whoever_no_grant_binds_ends_nothing_that_is_held(kept: Kept, superuser: Any, name: str) -> None:
    statement = ENDINGS[name]
    before = attempt(superuser, kept, statement, None)
    # It works, or a foreign key alone is in its way.
    assert before in (None, *LINKS), before
    kept.hold()
    refused = f"{FROZEN} legal_hold"
    assert attempt(superuser, kept, statement, None) in ([refused] if before is None else [refused, before])


@pytest.mark.parametrize("role", ROLES)
def test_no_role_ends_what_is_held_by_raw_sql(kept: Kept, login: Any, role: str) -> None:
    kept.hold()
    refusals = {name: attempt(login, kept, statement, role) for name, statement in ENDINGS.items()}
    assert [name for name, code in refusals.items() if code is None] == []
    assert set(refusals.values()) <= {
        FORBIDDEN, FROZEN, f"{FROZEN} legal_hold", f"{FROZEN} living_content", "none touched", *LINKS,
    }  # fmt: skip


def test_what_no_hold_covers_may_go_beside_what_one_does(kept: Kept, superuser: Any) -> None:
    other = kept.doors.say("shade", "blue", subject="jon").fact
    kept.hold()
    ids = {"fact": other}
    with superuser.transaction(force_rollback=True):
        superuser.execute("SELECT set_config('muniment.tenant', %s, true)", [str(kept.doors.id)])
        superuser.execute(_OTHER_GUARDS_OFF)
        superuser.execute(
            "UPDATE memory_payload SET clear = NULL, redaction_state = 'applied', ended_at = clock_timestamp()"
            " WHERE id = (SELECT payload_id FROM memory_fact WHERE id = %(fact)s)", ids
        )  # fmt: skip
        superuser.execute("DELETE FROM memory_belief WHERE fact_id = %(fact)s", ids)
        superuser.execute("DELETE FROM memory_evidence WHERE fact_id = %(fact)s", ids)
        superuser.execute("DELETE FROM memory_fact WHERE id = %(fact)s", ids)


def test_writing_goes_on_under_a_hold(kept: Kept) -> None:
    kept.hold()
    doors = kept.doors
    instant = "2026-02-01T09:00:00Z"
    # Two imports of one instant take a stretch out again; a higher class seals what was clear.
    for value, start in (("gold", 1), ("iron", 2)):
        assert doors.say("plan", value, start, recorded_at=instant).change
    assert doors.say("shade", "green", sensitivity="personal").change == "no_change"
    assert doors.say("city", "Pisa", 80).change == "update"
    assert doors.retract(fact=kept.said.fact, reason="duplicate").receipt
