"""The endpoints of this app, under `/api/v1/`."""

from django.urls import path

from retention.api import holds

urlpatterns = [
    path("matters/", holds.Matters.as_view(), name="matters"),
    path("matters/<str:id>/", holds.MatterById.as_view(), name="matter"),
    path("matters/<str:id>/close/", holds.CloseMatter.as_view(), name="close_matter"),
    path("holds/", holds.Holds.as_view(), name="holds"),
    path("holds/<str:id>/", holds.HoldById.as_view(), name="hold"),
    path("holds/<str:id>/release/", holds.ProposeRelease.as_view(), name="propose_release"),
    path("holds/<str:id>/refused/", holds.Refusals.as_view(), name="refused_endings"),
]
