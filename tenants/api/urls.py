"""The endpoints of this app, under `/api/v1/`."""

from django.urls import path

from tenants.api.views import Docs, Schema, WhoAmI

urlpatterns = [
    path("whoami/", WhoAmI.as_view(), name="whoami"),
    path("schema/", Schema.as_view(), name="schema"),
    path("docs/", Docs.as_view(), name="docs"),
]
