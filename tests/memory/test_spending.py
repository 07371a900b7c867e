"""What a tenant may ask of a model: set aside exactly, counted afterwards, audited, and without content."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from django.db import connection

from config.metrics import exposition
from memory.extraction.model import Use
from memory.extraction.protocol import ExtractionFailed
from memory.spending import EpisodeMeter, lower
from policies.vocabulary import Sensitivity
from tests.memory.background import worker_rows
from tests.organisation import Organisation, new_organisation

pytestmark = pytest.mark.usefixtures("database")
MODEL = "compatible:Scripted/7b"


@pytest.fixture
def tenant() -> Organisation:
    return new_organisation()


@pytest.fixture
def superuser(database: Any) -> Iterator[psycopg.Connection[Any]]:
    if not database.superuser:
        pytest.skip("needs a superuser's session: unset DATABASE_URL to run on the embedded PostgreSQL")
    with psycopg.connect(database.superuser, autocommit=True) as session:
        yield session


def meter(
    tenant: Organisation, *, day: int | None = None, month: int | None = None, episode: UUID | None = None
) -> Any:
    agent = next(iter(tenant.agents.values()), None) or tenant.agent()
    return EpisodeMeter(
        agent.actor,
        episode or uuid4(),
        model=MODEL,
        ceiling=Sensitivity.INTERNAL,
        per_day=day,
        per_month=month,
    )


def use(tokens: int, outcome: str = "answered") -> Use:
    return Use(MODEL, outcome, tokens, 0, 0.25, 3)


def spent(tenant: Organisation) -> tuple[int, int]:
    ((day, month),) = worker_rows(tenant, "SELECT day_tokens, month_tokens FROM memory_modelbudget")
    return day, month


def test_what_is_set_aside_is_replaced_by_what_was_spent(tenant: Organisation) -> None:
    asked = meter(tenant, day=1_000)
    asked.reserve(600, masked=0)
    assert spent(tenant) == (600, 600)
    asked.settle(600, use(150))
    assert spent(tenant) == (150, 150)
    asked.reserve(850, masked=0)
    # An answer that was larger than anybody thought counts in full.
    asked.settle(850, use(2_000))
    assert spent(tenant) == (2_150, 2_150)


def test_at_once_no_more_is_set_aside_than_there_is(tenant: Organisation) -> None:
    """Forty questions of 100 tokens race for 1,000: exactly ten are asked."""
    meters = [meter(tenant, day=1_000) for _ in range(40)]
    taken: list[str] = []
    start = threading.Barrier(8)

    def race(mine: list[Any]) -> None:
        start.wait()
        try:
            for each in mine:
                try:
                    each.reserve(100, masked=0)
                    taken.append("asked")
                except ExtractionFailed as failed:
                    taken.append(failed.code)
        finally:
            connection.close()

    threads = [threading.Thread(target=race, args=(meters[number::8],)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (taken.count("asked"), taken.count("budget_spent")) == (10, 30)
    assert spent(tenant) == (1_000, 1_000)


def test_at_once_what_was_spent_is_counted_once_each(tenant: Organisation) -> None:
    meters = [meter(tenant) for _ in range(24)]

    def ask(mine: list[Any]) -> None:
        try:
            for each in mine:
                each.reserve(500, masked=0)
                each.settle(500, use(7))
        finally:
            connection.close()

    threads = [threading.Thread(target=ask, args=(meters[number::6],)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert spent(tenant) == (24 * 7, 24 * 7)
    assert worker_rows(tenant, "SELECT calls, tokens_in, milliseconds, cost FROM memory_modelspending") == [
        (24, 24 * 7, 24 * 250, 24 * 3)
    ]


def test_a_day_that_is_spent_says_when_there_is_more_and_the_next_one_has_it(
    tenant: Organisation, superuser: psycopg.Connection[Any]
) -> None:
    asked = meter(tenant, day=1_000, month=5_000)
    asked.reserve(900, masked=0)
    with pytest.raises(ExtractionFailed, match="budget_spent") as refused:
        asked.reserve(200, masked=0)
    assert refused.value.final is False
    assert refused.value.wait is not None
    assert timedelta() <= refused.value.wait <= timedelta(days=1)
    superuser.execute("UPDATE memory_modelbudget SET day = day - 1 WHERE tenant_id = %s", [tenant.id])
    asked.reserve(200, masked=0)
    assert spent(tenant) == (200, 1_100)


def test_a_month_that_is_spent_says_so_and_the_next_one_begins_anew(
    tenant: Organisation, superuser: psycopg.Connection[Any]
) -> None:
    asked = meter(tenant, month=1_000)
    asked.reserve(900, masked=0)
    superuser.execute("UPDATE memory_modelbudget SET day = day - 1 WHERE tenant_id = %s", [tenant.id])
    with pytest.raises(ExtractionFailed, match="budget_spent") as refused:
        asked.reserve(200, masked=0)
    assert refused.value.wait is not None
    assert refused.value.wait <= timedelta(days=31)
    superuser.execute(
        "UPDATE memory_modelbudget SET day = day - 40, month = (month - interval '1 month')::date WHERE tenant_id = %s",
        [tenant.id],
    )
    asked.reserve(200, masked=0)
    assert spent(tenant) == (200, 200)


def test_what_is_counted_on_another_day_than_it_was_set_aside_leaves_that_day_alone(
    tenant: Organisation, superuser: psycopg.Connection[Any]
) -> None:
    early, late = meter(tenant), meter(tenant)
    early.reserve(900, masked=0)
    superuser.execute("UPDATE memory_modelbudget SET day = day - 1 WHERE tenant_id = %s", [tenant.id])
    # The one before midnight knows its day from the row.
    late.reserve(100, masked=0)
    early._period = (early._period[0] - timedelta(days=1), early._period[1])
    early.settle(900, use(10))
    assert spent(tenant) == (100, 110)


def test_a_question_larger_than_the_bound_is_never_asked(tenant: Organisation) -> None:
    with pytest.raises(ExtractionFailed, match="budget_too_small") as refused:
        meter(tenant, day=100).reserve(101, masked=0)
    assert refused.value.final is True
    assert worker_rows(tenant, "SELECT 1 FROM memory_modelbudget") == []


def test_one_tenants_spending_is_not_anothers(tenant: Organisation) -> None:
    other = new_organisation()
    meter(tenant, day=100).reserve(100, masked=0)
    meter(other, day=100).reserve(100, masked=0)
    assert spent(tenant) == spent(other) == (100, 100)


def test_what_a_process_set_aside_before_it_ended_stays_counted(tenant: Organisation) -> None:
    meter(tenant, day=100).reserve(60, masked=0)
    with pytest.raises(ExtractionFailed, match="budget_spent"):
        meter(tenant, day=100).reserve(60, masked=0)


def test_every_sending_is_audited_by_numbers_and_refused_ones_are_not(tenant: Organisation) -> None:
    episode = uuid4()
    asked = meter(tenant, day=100, episode=episode)
    asked.reserve(60, masked=2)
    with pytest.raises(ExtractionFailed):
        asked.reserve(60, masked=2)
    ((kind, target, reason, numbers),) = worker_rows(
        tenant,
        "SELECT target_kind, target_id, reason, numbers::text FROM tenants_auditevent WHERE action = 'episode.sent_to_model'",
    )
    assert (kind, target, reason) == ("episode", episode, "compatible_scripted_7b")
    assert json.loads(numbers) == {"up_to": 1, "masked": 2, "tokens": 60}


def test_metrics_tell_calls_tokens_seconds_and_cost_by_model_and_outcome(tenant: Organisation) -> None:
    model = f"compatible:m-{uuid4().hex[:8]}"
    for outcome in ("answered", "answered", "timeout"):
        asked = meter(tenant)
        asked.reserve(100, masked=0)
        asked.settle(100, Use(model, outcome, 40, 2, 0.5, 1_000_000))
    lines = [line for line in exposition().decode().splitlines() if model in line]
    assert f'muniment_model_calls_total{{model="{model}",outcome="answered"}} 2.0' in lines
    assert f'muniment_model_tokens_total{{direction="out",model="{model}",outcome="answered"}} 4.0' in lines
    assert f'muniment_model_seconds_total{{model="{model}",outcome="timeout"}} 0.5' in lines
    assert f'muniment_model_dollars_total{{model="{model}",outcome="answered"}} 2.0' in lines
    assert not any(str(tenant.id) in line or tenant.slug in line for line in lines)


def test_the_lowest_bound_that_is_set_counts() -> None:
    assert (lower(None, 5, 3), lower(None, None), lower(4)) == (3, None, 4)
