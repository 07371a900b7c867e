"""How much the desk asks of the database: a bound that does not grow with what waits."""

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from tests.retention.test_desk import Desk, waiting

pytestmark = pytest.mark.usefixtures("database")


def counted(call: Any) -> tuple[Any, int]:
    with CaptureQueriesContext(connection) as sent:
        answer = call()
    return answer, len(sent)


def test_opening_a_claim_and_a_decision_send_so_many_statements(tenant: Any) -> None:
    waiting(tenant, 8)
    desk = Desk(tenant)
    desk.get()
    _, opening = counted(desk.get)
    claimed, claiming = counted(desk.claim)
    _, looking = counted(lambda: desk.get(f"{claimed['item']}/"))
    _, deciding = counted(lambda: desk.decide(claimed))
    assert opening <= 17
    assert claiming <= 29
    assert looking <= 18
    assert deciding <= 35
    claimed = desk.claim()
    _, putting_off = counted(lambda: desk.decide(claimed, later="1"))
    claimed = desk.claim()
    _, with_the_one_before = counted(lambda: desk.decide(claimed, later="1"))
    assert putting_off <= 27
    assert with_the_one_before <= 59
