"""The endpoints of this app, under `/api/v1/`."""

from django.urls import path

from retention.api import endings, erasures, holds, keeping, redactions, requests, restrictions

urlpatterns = [
    path("runs/", endings.Runs.as_view(), name="runs"),
    path("runs/<str:id>/", endings.RunById.as_view(), name="run"),
    path("certificates/", endings.Certificates.as_view(), name="certificates"),
    path("certificates/<str:id>/", endings.CertificateById.as_view(), name="certificate"),
    path("facts/<str:id>/lifetime/", keeping.Lifetime.as_view(), name="lifetime"),
    path("facts/<str:id>/shorten/", keeping.Shorten.as_view(), name="shorten_lifetime"),
    path("erasures/", erasures.Erasures.as_view(), name="erasures"),
    path("erasures/<str:id>/", erasures.ErasureById.as_view(), name="erasure"),
    path("notice-endpoints/", erasures.NoticeEndpoints.as_view(), name="notice_endpoints"),
    path("subject-requests/", requests.SubjectRequests.as_view(), name="subject_requests"),
    path("subject-requests/<str:id>/", requests.SubjectRequestById.as_view(), name="subject_request"),
    path("matters/", holds.Matters.as_view(), name="matters"),
    path("matters/<str:id>/", holds.MatterById.as_view(), name="matter"),
    path("matters/<str:id>/close/", holds.CloseMatter.as_view(), name="close_matter"),
    path("holds/", holds.Holds.as_view(), name="holds"),
    path("holds/<str:id>/", holds.HoldById.as_view(), name="hold"),
    path("holds/<str:id>/release/", holds.ProposeRelease.as_view(), name="propose_release"),
    path("holds/<str:id>/refused/", holds.Refusals.as_view(), name="refused_endings"),
    path("restrictions/", restrictions.Restrictions.as_view(), name="restrictions"),
    path("restrictions/<str:id>/", restrictions.RestrictionById.as_view(), name="restriction"),
    path("redactions/", redactions.Redactions.as_view(), name="redactions"),
    path("redactions/<str:id>/", redactions.RedactionById.as_view(), name="redaction"),
    path("redactions/<str:id>/apply/", redactions.AskToApply.as_view(), name="apply_redaction"),
    path("redactions/<str:id>/withdraw/", redactions.WithdrawRedaction.as_view(), name="withdraw_redaction"),
]
