"""Background work by name, for Celery."""

from datetime import UTC, datetime

from celery import shared_task
from django.conf import settings

from retention import compaction, escalating, expiry, rotation, tally


@shared_task(name="retention.end_overdue")
def end_overdue() -> None:
    """Mark what has outlived its time as ended."""
    expiry.end_overdue()
    expiry.end_exports()


@shared_task(name="retention.compact")
def compact() -> None:
    """Remove what has outlived its time; go on with runs that were cut off."""
    compaction.compact_due()


@shared_task(name="retention.rotate_keys")
def rotate_keys() -> None:
    """Go on with rotations that were cut off, and begin those that are due where a setting says when that is."""
    rotation.rotate_due(now=datetime.now(UTC), every=settings.ROTATE_KEYS_EVERY)


@shared_task(name="retention.count_acts")
def count_acts() -> None:
    """Count what the audit chains have gained, for the first page of each tenant."""
    tally.count_all()


@shared_task(name="retention.escalate_requests")
def escalate_requests() -> None:
    """Tell of data subjects' requests that are near or past their day."""
    escalating.escalate_all(now=datetime.now(UTC))
