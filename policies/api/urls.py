"""The endpoints of this app, under `/api/v1/`."""

from django.urls import path

from policies.api.views import Attributes

urlpatterns = [path("attributes/", Attributes.as_view(), name="attributes")]
