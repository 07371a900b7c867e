"""The endpoints of this app, under `/api/v1/`."""

from django.urls import path

from memory.api import views

urlpatterns = [
    path("episodes/", views.Episodes.as_view(), name="episodes"),
    path("episodes/<str:id>/", views.Episode.as_view(), name="episode"),
    path("episodes/<str:id>/extract/", views.ExtractEpisode.as_view(), name="extract_episode"),
    path("facts/", views.Facts.as_view(), name="facts"),
    path("facts/batch/", views.FactsBatch.as_view(), name="facts_batch"),
    path("facts/<str:id>/", views.Fact.as_view(), name="fact"),
    path("facts/<str:id>/history/", views.History.as_view(), name="history"),
    path("facts/<str:id>/lineage/", views.Lineage.as_view(), name="lineage"),
    path("facts/<str:id>/retract/", views.RetractFact.as_view(), name="retract_fact"),
    path("evidence/<str:id>/retract/", views.RetractEvidence.as_view(), name="retract_evidence"),
    path("candidates/", views.Candidates.as_view(), name="candidates"),
    path("candidates/<str:id>/", views.Candidate.as_view(), name="candidate"),
    path("profile/", views.Profile.as_view(), name="profile"),
    path("profile/text/", views.ProfileText.as_view(), name="profile_text"),
    path("recall/", views.Recall.as_view(), name="recall"),
    path("subjects/", views.Subjects.as_view(), name="subjects"),
    path("consents/", views.Consents.as_view(), name="consents"),
    # A reference may hold slashes: it is the organisation's own.
    path("consents/<path:ref>/withdraw/", views.WithdrawConsent.as_view(), name="withdraw_consent"),
    path("sessions/<path:id>/close/", views.CloseSession.as_view(), name="close_session"),
    path("contracts/<path:ref>/end/", views.EndContract.as_view(), name="end_contract"),
    path("procedures/", views.Procedures.as_view(), name="procedures"),
    path("procedures/<str:name>/active/", views.ActiveProcedure.as_view(), name="active_procedure"),
    path("procedures/<str:name>/versions/", views.ProcedureVersions.as_view(), name="procedure_versions"),
    # Here and not with the policies: the verdict is the write door's.
    path("policies/explain/", views.Explain.as_view(), name="explain"),
]
