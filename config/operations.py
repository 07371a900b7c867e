"""What operators' tools ask: alive, ready, numbers. No content, no key needed; not for the open network."""

from functools import cache

from django.db import Error, connection
from django.db.migrations.loader import MigrationLoader
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.http import require_safe

from config.metrics import exposition
from tenants.fitness import unfit
from tenants.isolation import Role, tenant_transaction


@require_safe
def healthz(request: HttpRequest) -> HttpResponse:
    """The process answers."""
    return JsonResponse({"status": "alive"})


@require_safe
def readyz(request: HttpRequest) -> HttpResponse:
    """The database answers, has every migration, and lets us in as a role that it can hold in bounds."""
    checks = {"database": False, "role": False, "migrations": False}
    try:
        checks["role"] = not unfit()
        checks["database"] = True
        with tenant_transaction(Role.FRONT, tenant=None), connection.cursor() as cursor:
            cursor.execute("SELECT app, name FROM django_migrations")
            checks["migrations"] = _migrations() <= set(cursor.fetchall())
    except Error:
        connection.close()
    ready = all(checks.values())
    return JsonResponse({"status": "ready" if ready else "not ready", "checks": checks}, status=200 if ready else 503)


@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    """Prometheus' text format."""
    return HttpResponse(exposition(), content_type="text/plain; version=0.0.4; charset=utf-8")


@cache
def _migrations() -> frozenset[tuple[str, str]]:
    return frozenset(MigrationLoader(None).disk_migrations)
