"""What HTTP itself costs: a REST framework view that does SELECT 1, with settings, URL and WSGI application in one.

No authentication, next to no middleware; the same database options and the same gunicorn as ours.
"""

import os
import sys
from typing import Any

os.environ["DJANGO_SETTINGS_MODULE"] = __name__
SECRET_KEY = "signs nothing"
ALLOWED_HOSTS = ["127.0.0.1"]
INSTALLED_APPS = ["rest_framework"]
# For the Content-Length of the answer.
MIDDLEWARE = ["django.middleware.common.CommonMiddleware"]
ROOT_URLCONF = __name__
USE_TZ = True
REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [],
    "DEFAULT_PERMISSION_CLASSES": [],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "UNAUTHENTICATED_USER": None,
}


def _settings() -> dict[str, Any]:
    from config.environment import Environment

    return {"default": Environment().database()}


DATABASES = _settings()

# Django reads the settings above from this very module, once it is whole; the view comes with the application.
if "gunicorn" in sys.modules:
    import django
    from django.core.wsgi import get_wsgi_application
    from django.db import connection
    from django.urls import path

    django.setup(set_prefix=False)
    from rest_framework.request import Request
    from rest_framework.response import Response
    from rest_framework.views import APIView

    class SelectOne(APIView):
        """SELECT 1."""

        def get(self, request: Request) -> Response:
            with connection.cursor() as cursor:
                cursor.execute("SELECT 1")
                row = cursor.fetchone()
            return Response({"found": row[0] if row else None})

    urlpatterns = [path("", SelectOne.as_view())]
    application = get_wsgi_application()
