"""What operators' tools ask: alive, ready, numbers. No content, no key needed; not for the open network."""

from django.db import Error, connection
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.http import require_safe

from config.metrics import exposition
from tenants.examination import missing_migrations
from tenants.fitness import unfit


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
        checks["migrations"] = not missing_migrations()
    except Error:
        connection.close()
    ready = all(checks.values())
    return JsonResponse({"status": "ready" if ready else "not ready", "checks": checks}, status=200 if ready else 503)


@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    """Prometheus' text format."""
    return HttpResponse(exposition(), content_type="text/plain; version=0.0.4; charset=utf-8")
