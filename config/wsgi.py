"""The WSGI application that gunicorn serves."""

import os

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
application = get_wsgi_application()

from django.conf import settings  # noqa: E402  after they were read

from tenants.fitness import refuse_to_start, refuse_unfit_role  # noqa: E402
from tenants.providers import missing_libraries  # noqa: E402

refuse_to_start(missing_libraries(settings.SINGLE_SIGN_ON))
refuse_unfit_role()
