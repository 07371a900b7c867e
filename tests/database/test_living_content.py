"""Content of what has not ended is emptied, let go of or made unreadable by no statement: raw SQL as every role, guard by guard."""

from typing import Any
from uuid import UUID

import psycopg
import pytest

from tests.database.test_holds import ENDINGS, FORBIDDEN, FROZEN, ROLES, Kept, attempt

pytestmark = pytest.mark.usefixtures("database")

REFUSED = f"{FROZEN} living_content"
_EMPTIED = "UPDATE memory_payload SET clear = NULL, sealed = NULL, key_id = NULL, redaction_state = 'applied', ended_at = clock_timestamp()"
#: Statements of the worker's role that its grants allow, and that only this guard refuses.
LOSSES = {
    name: statement
    for name, statement in {
        **ENDINGS,
        "a text let go of": "UPDATE memory_episode SET payload_id = (SELECT payload_id FROM memory_fact WHERE id = %(shade)s)"
        " WHERE id = %(episode)s",
    }.items()
    if name.endswith((" overwritten", " let go of", " written over", "saying deleted"))
}
#: What makes each of them an ending: the record has ended, by what the same role may say of it.
ENDED = {
    "a value overwritten": "UPDATE memory_fact SET ended_at = clock_timestamp(), ended_by = 'expired' WHERE id = %(fact)s",
    "a quote overwritten": "UPDATE memory_evidence SET expires_at = now() - interval '1 second' WHERE id = %(evidence)s",
    "an episode overwritten": "UPDATE memory_episode SET redaction_state = 'applied' WHERE id = %(episode)s",
    "a proposal overwritten": "UPDATE memory_candidate SET expires_at = now() - interval '1 second' WHERE id = %(candidate)s",
    "a proposal's quote overwritten": "UPDATE memory_candidatesaying SET expires_at = now() - interval '1 second'"
    " WHERE candidate_id = %(candidate)s",
    "a name overwritten": "UPDATE memory_subject SET ended_at = now() WHERE id = %(subject)s",
    "an alias overwritten": "UPDATE memory_subject SET ended_at = now() WHERE id = %(subject)s",
    "a quote let go of": "UPDATE memory_evidence SET expires_at = now() - interval '1 second' WHERE id = %(evidence)s",
    "a value let go of": "UPDATE memory_fact SET ended_at = clock_timestamp(), ended_by = 'expired' WHERE id = %(fact)s",
    "a text let go of": "UPDATE memory_episode SET redaction_state = 'applied' WHERE id = %(episode)s",
}


@pytest.fixture
def kept(tenant: Any) -> Kept:
    return Kept(tenant)


@pytest.mark.parametrize("name", LOSSES)
def test_the_worker_loses_nothing_that_has_not_ended(kept: Kept, login: Any, name: str) -> None:
    assert attempt(login, kept, LOSSES[name], "muniment_worker") in (REFUSED, FORBIDDEN)


@pytest.mark.parametrize("role", ROLES)
def test_no_role_empties_replaces_or_lets_go_of_living_content(kept: Kept, login: Any, role: str) -> None:
    refusals = {name: attempt(login, kept, statement, role) for name, statement in {**ENDINGS, **LOSSES}.items()}
    if role == "muniment_writer":
        # What the newest act opened, an act of the same instant may undo: that is writing.
        refusals.pop("a stretch deleted")
    assert {name: code for name, code in refusals.items() if code is None} == {}


@pytest.mark.parametrize("name", ENDED)
def test_once_it_has_ended_the_same_statement_is_let_through(kept: Kept, login: Any, name: str) -> None:
    ids = ids_of(kept)
    with login.transaction(force_rollback=True):
        acting(login, kept, "muniment_worker")
        login.execute(ENDED[name], ids)
        assert login.execute(LOSSES[name], ids).rowcount


GUARDS = {
    "payload_living ON memory_payload": "a value overwritten",
    "evidence_link_living ON memory_evidence": "a quote let go of",
    "fact_link_living ON memory_fact": "a value let go of",
    "episode_link_living ON memory_episode": "a text let go of",
    "subjectkey_living ON tenants_subjectkey": "a data key written over",
    "candidatesaying_living ON memory_candidatesaying": "a candidate's saying deleted",
}


@pytest.mark.parametrize("guard", GUARDS)
def test_each_guard_is_what_refuses_it(kept: Kept, superuser: Any, guard: str) -> None:
    """Without the guard the statement goes through: it is this guard, and nothing beside it, that keeps the content."""
    ids = ids_of(kept)
    with superuser.transaction(force_rollback=True):
        superuser.execute(f"DROP TRIGGER {guard}")
        acting(superuser, kept, "muniment_worker")
        assert superuser.execute(LOSSES[GUARDS[guard]], ids).rowcount == 1


def test_a_writer_replaces_no_content(kept: Kept, login: Any) -> None:
    """By raw SQL of its own role too: what was said stays as it was said."""
    assert attempt(login, kept, ENDINGS["a value sealed as another"], "muniment_writer") == REFUSED
    assert attempt(login, kept, ENDINGS["a value in clear replaced"], "muniment_writer") == REFUSED


def ids_of(kept: Kept) -> dict[str, UUID]:
    return {"fact": kept.said.fact, "evidence": kept.said.evidence, "shade": kept.shade.fact, "episode": kept.episode,
            "candidate": kept.asked, "subject": kept.mira}  # fmt: skip


def acting(session: psycopg.Connection[Any], kept: Kept, role: str) -> None:
    session.execute("SELECT set_config('muniment.tenant', %s, true)", [str(kept.doors.id)])
    session.execute(f"SET LOCAL ROLE {role}".encode())
