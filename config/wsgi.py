"""The WSGI application that gunicorn serves."""

import os

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
application = get_wsgi_application()

from tenants.fitness import refuse_unfit_role  # noqa: E402  after the settings

refuse_unfit_role()
