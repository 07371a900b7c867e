"""Counts of requests, for Prometheus. Labels are route names, methods and statuses: nothing that anybody sent.

With several web processes `PROMETHEUS_MULTIPROC_DIR` names the folder in which each keeps its counts; the one that is
asked adds them up. Depths and lengths are asked of the database at every scrape.
"""

import os
from collections.abc import Iterator, Sequence

from django.db import connection
from prometheus_client import CollectorRegistry, Histogram, generate_latest, multiprocess
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from memory import outbox, spending
from memory.spending import Spent
from tenants.isolation import Role, tenant_transaction

BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)

_own = CollectorRegistry()
_requests = Histogram(
    "muniment_request_seconds",
    "Requests by route, method and status, and how long they took.",
    ("route", "method", "status"),
    buckets=BUCKETS,
    registry=_own,
)


def observe(route: str, method: str, status: int, seconds: float) -> None:
    """Count one request."""
    _requests.labels(route, method, str(status)).observe(seconds)


class _Database:
    """Numbers that only the database knows, the same whichever process is asked."""

    def collect(self) -> Iterator[Metric]:
        with tenant_transaction(Role.FRONT, tenant=None), connection.cursor() as cursor:
            work = outbox.state()
            cursor.execute("SELECT count(*), coalesce(sum(seq), 0)::bigint FROM tenants_auditchain")
            chains, entries = cursor.fetchone()
            cursor.execute("SELECT count(*) FROM tenants_tenant")
            (tenants,) = cursor.fetchone()
            spent = spending.today()
        yield GaugeMetricFamily("muniment_outbox_pending", "Work that waits to be done.", work.pending)
        yield GaugeMetricFamily("muniment_outbox_failed", "Work that was given up.", work.failed)
        yield GaugeMetricFamily("muniment_outbox_lag_seconds", "How long the oldest due work waits.", work.lag_seconds)
        yield GaugeMetricFamily("muniment_audit_entries", "Entries of all audit chains.", entries)
        yield GaugeMetricFamily("muniment_audit_chains", "Audit chains.", chains)
        yield GaugeMetricFamily("muniment_tenants", "Tenants.", tenants)
        yield from _models(spent)


def _models(spent: Sequence[Spent]) -> Iterator[Metric]:
    """What was asked of models, counted since midnight UTC, by model and outcome."""
    labels = ("model", "outcome")
    calls = CounterMetricFamily("muniment_model_calls", "Questions to models.", labels=labels)
    tokens = CounterMetricFamily("muniment_model_tokens", "Tokens of models.", labels=(*labels, "direction"))
    seconds = CounterMetricFamily("muniment_model_seconds", "How long models took.", labels=labels)
    dollars = CounterMetricFamily("muniment_model_dollars", "What models cost, estimated.", labels=labels)
    for each in spent:
        named = (each.model, each.outcome)
        calls.add_metric(named, each.calls)
        tokens.add_metric((*named, "in"), each.tokens_in)
        tokens.add_metric((*named, "out"), each.tokens_out)
        seconds.add_metric(named, each.milliseconds / 1_000)
        dollars.add_metric(named, each.cost / 1_000_000)
    yield from (calls, tokens, seconds, dollars)


def exposition() -> bytes:
    """Return all of it in Prometheus' text format. Without the database the counts of requests alone."""
    registry = CollectorRegistry()
    text = b""
    try:
        registry.register(_Database())
        text = generate_latest(registry)
    except Exception:
        connection.close()
        text = b"# the database did not answer\n"
    if os.environ.get("PROMETHEUS_MULTIPROC_DIR"):
        counts = CollectorRegistry()
        multiprocess.MultiProcessCollector(counts)  # type: ignore[no-untyped-call]
        return text + generate_latest(counts)
    return text + generate_latest(_own)
