"""Statements that go to the database together are one transaction, stay prepared, and end as one."""

from contextlib import suppress
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg import errors

from tenants.trips import Question, trip

WHO: Question = ("SELECT current_user::text", {})
TAKE: Question = ("SELECT set_config('role', 'muniment_front', true)", {})


def test_answers_come_back_by_question_and_the_role_ends_with_the_trip(login: Any) -> None:
    here = UUID(int=7)
    answers = trip(
        login, [WHO, TAKE, WHO, ("SELECT %(a)s::uuid, %(b)s::text[], %(a)s::uuid", {"a": here, "b": ["x", "y"]})]
    )
    assert [answers[0], answers[2], answers[3]] == [
        [("muniment_app",)],
        [("muniment_front",)],
        [(here, ["x", "y"], here)],
    ]
    assert trip(login, [WHO]) == [[("muniment_app",)]]


def test_an_error_undoes_all_of_it_and_the_session_goes_on(login: Any) -> None:
    taken: Question = ("SELECT pg_advisory_xact_lock(4711)", {})
    with pytest.raises(errors.DivisionByZero):
        trip(login, [taken, ("SELECT 1 / %(n)s::int", {"n": 0}), WHO])
    assert trip(login, [("SELECT count(*)::int FROM pg_locks WHERE locktype = 'advisory' AND objid = 4711", {})]) == [
        [(0,)]
    ]
    assert trip(login, [("SELECT 1 / %(n)s::int", {"n": 1})]) == [[(1,)]]


def test_a_statement_is_prepared_once_also_where_it_failed(login: Any) -> None:
    for n in (0, 0, 1):
        with suppress(errors.DivisionByZero):
            trip(login, [("SELECT 6 / %(n)s::int", {"n": n})])
    prepared = "SELECT count(*)::int FROM pg_prepared_statements WHERE statement LIKE 'SELECT 6 /%%'"
    assert trip(login, [(prepared, {})]) == [[(1,)]]


def test_statements_that_the_session_lost_are_prepared_anew(login: Any) -> None:
    trip(login, [WHO, TAKE])
    login.execute("DEALLOCATE ALL")
    assert trip(login, [TAKE, WHO])[1] == [("muniment_front",)]


def test_a_trip_does_not_start_inside_a_transaction(login: Any) -> None:
    with login.transaction(), pytest.raises(errors.ActiveSqlTransaction):
        trip(login, [WHO])


def test_a_lost_session_is_an_error_and_not_a_hang(login: Any, superuser: Any) -> None:
    superuser.execute("SELECT pg_terminate_backend(%s)", [login.info.backend_pid])
    with pytest.raises(psycopg.OperationalError):
        trip(login, [WHO])
    assert login.closed


def test_more_than_a_socket_holds_goes_there_and_back(login: Any) -> None:
    large = "x" * 5_000_000
    echo: Question = ("SELECT %(text)s::text", {"text": large})
    assert trip(login, [echo, echo, echo]) == [[(large,)]] * 3
