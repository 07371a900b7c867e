"""Pages around the admin: picking the tenant to work in, and signing out."""

from django.contrib import admin
from django.contrib.admin.views.decorators import staff_member_required
from django.contrib.auth.views import PasswordChangeView
from django.http import HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods
from django.views.i18n import set_language

from tenants.audit import Action
from tenants.signing import SIGNED_IN_WITH, PasswordChange, record
from tenants.single_sign_on import sign_out_link
from tenants.standing import CHOSEN


@require_http_methods(["GET", "HEAD", "POST"])
@staff_member_required
def choose_tenant(request: HttpRequest) -> HttpResponse:
    """Show the tenants that the person is a member of; remember the one that is sent, if it is one of them."""
    choices = request.standing.choices  # type: ignore[attr-defined]
    if request.method == "POST":
        sent = request.POST.get("tenant", "")
        if any(str(choice.tenant) == sent for choice in choices):
            # A new session id: what was opened in one tenant is not carried into the other.
            request.session.cycle_key()
            request.session[CHOSEN] = sent
            return HttpResponseRedirect(reverse("admin:index"))
    context = {**admin.site.each_context(request), "title": _("Choose a tenant"), "choices": choices}
    return render(request, "admin/choose_tenant.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
def choose_language(request: HttpRequest) -> HttpResponse:
    """Show the languages that there are; remember in a cookie the one that is sent, if it is one of them."""
    if request.method == "POST":
        return set_language(request)
    context = {**admin.site.each_context(request), "title": _("Language")}
    return render(request, "admin/choose_language.html", context)


@require_http_methods(["POST"])
def sign_out(request: HttpRequest) -> HttpResponse:
    """End the session, and say so in the audit chain."""
    person = request.standing.person  # type: ignore[attr-defined]
    if person is not None:
        record(Action.SIGNED_OUT, person)
    elsewhere = sign_out_link(request.session.get(SIGNED_IN_WITH))
    return admin.site.logout(request, extra_context={"elsewhere": elsewhere})


@require_http_methods(["GET", "HEAD", "POST"])
@staff_member_required
def change_password(request: HttpRequest) -> HttpResponseBase:
    """Let a person replace their own password; the other sessions of theirs end with it."""
    view = PasswordChangeView.as_view(
        form_class=PasswordChange,
        success_url=reverse("admin:password_change_done"),
        template_name="registration/password_change_form.html",
        extra_context=admin.site.each_context(request),
    )
    return view(request)
