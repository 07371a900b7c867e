"""Where every page and endpoint stands."""

from importlib.util import find_spec

from django.contrib import admin
from django.urls import include, path
from django.views.generic import RedirectView

from config.operations import healthz, metrics, readyz
from retention.admin import processing
from retention.desk import pages as desk
from tenants import access, second_factor, single_sign_on
from tenants.pages import change_password, choose_language, choose_tenant, sign_out

_API = [
    include(name)
    for name in ("tenants.api.urls", "policies.api.urls", "memory.api.urls", "retention.api.urls")
    if find_spec(name.rsplit(".", 1)[0])
]

urlpatterns = [
    path("", RedirectView.as_view(pattern_name="admin:index")),
    path("healthz", healthz),
    path("readyz", readyz),
    path("metrics", metrics),
    *[path("api/v1/", urls) for urls in _API],
    path("admin/tenant/", choose_tenant, name="choose_tenant"),
    path("admin/language/", choose_language, name="choose_language"),
    path("admin/", include(second_factor.urlpatterns)),
    path("admin/", include(single_sign_on.urlpatterns)),
    path("admin/tenants/", include(access.urls())),
    path("admin/desk/", include(desk.urls())),
    path("admin/processing/", admin.site.admin_view(processing.page), name="records_of_processing"),
    path("admin/processing/table/", admin.site.admin_view(processing.table), name="records_of_processing_table"),
    path("admin/logout/", sign_out),
    path("admin/password_change/", change_password),
    path("admin/", admin.site.urls),
]

handler400 = "config.problems.bad_request"
handler403 = "config.problems.permission_denied"
handler404 = "config.problems.page_not_found"
handler500 = "config.problems.server_error"
