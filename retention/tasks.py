"""Background work by name, for Celery."""

from celery import shared_task

from retention import expiry


@shared_task(name="retention.end_overdue")
def end_overdue() -> None:
    """Mark what has outlived its time as ended."""
    expiry.end_overdue()
