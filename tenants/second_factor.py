"""Pages of signing in: the first step, the second, and what a person may do about their own second factor.

The acts are django-allauth's; here they get our look and their entries in the audit chain. They run as `Role.FRONT`: no
other role reads what proves a second factor.
"""

from datetime import UTC, datetime
from ipaddress import ip_address
from typing import Any

from allauth.account.utils import get_next_redirect_url, perform_login
from allauth.account.views import ReauthenticateView
from allauth.mfa.base.views import AuthenticateView, IndexView
from allauth.mfa.base.views import ReauthenticateView as CodeAgainView
from allauth.mfa.models import Authenticator
from allauth.mfa.recovery_codes.views import GenerateRecoveryCodesView, ViewRecoveryCodesView
from allauth.mfa.totp.views import ActivateTOTPView, DeactivateTOTPView
from allauth.mfa.webauthn.views import AddWebAuthnView, ReauthenticateWebAuthnView, RemoveWebAuthnView
from django.conf import settings
from django.contrib import admin
from django.contrib.auth.views import LoginView
from django.http import HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.urls import path, reverse, reverse_lazy
from django.utils.translation import gettext as _
from unfold.widgets import UnfoldAdminTextInputWidget

from tenants.audit import Action
from tenants.signing import (
    CodeAgain,
    KeyAgain,
    KeyStep,
    NewKey,
    PasswordAgain,
    SecondStep,
    SignIn,
    begin_with_password,
    confirm,
    record,
)
from tenants.standing import REFUSED
from tenants.words import gettext_lazy


class _Ours:
    """A page of allauth's in the admin's frame."""

    title = ""

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        given: dict[str, Any] = super().get_context_data(**kwargs)  # type: ignore[misc]
        return {**admin.site.each_context(self.request), "title": self.title, **given}  # type: ignore[attr-defined]


class FirstStep(LoginView):
    """Name and password; then the second step where the person has one."""

    form_class = SignIn
    authentication_form = SignIn
    template_name = "admin/login.html"

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if request.method in ("GET", "HEAD") and admin.site.has_permission(request):
            return HttpResponseRedirect(reverse("admin:index"))
        return super().dispatch(request, *args, **kwargs)

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        given = super().get_context_data(**kwargs)
        known = settings.SINGLE_SIGN_ON
        ours = {
            "title": _("Sign in"),
            "app_path": self.request.get_full_path(),
            "providers": known.providers if known is not None else (),
            "refused": self.request.session.pop(REFUSED, "") if REFUSED in self.request.session else "",
        }
        return {**admin.site.each_context(self.request), **given, **ours}

    def form_valid(self, form: Any) -> HttpResponse:
        begin_with_password(self.request.session)
        answer: HttpResponse = perform_login(
            self.request, form.get_user(), email_verification="none", redirect_url=self.get_success_url()
        )
        return answer


class SecondStepPage(_Ours, AuthenticateView):
    """A code of the app, a recovery code or a security key, before the sign-in is done."""

    title = gettext_lazy("Sign in: second step")
    form_class = SecondStep
    webauthn_form_class = KeyStep

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        given = super().get_context_data(**kwargs)
        held = Authenticator.objects.filter(user_id=self.stage.login.user.pk).values_list("type", flat=True)
        return {**given, "has_key": "webauthn" in held, "has_app": "totp" in held}


class _Again(_Ours):
    """Shows who they are once more, and goes back to what they wanted to do."""

    code_wanted = False

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        return super().get_context_data(code_wanted=self.code_wanted, **kwargs)

    def form_valid(self, form: Any) -> HttpResponse:
        # Not what allauth does: it would run the form that was interrupted by itself, past every middleware.
        request: HttpRequest = self.request  # type: ignore[attr-defined]
        if self.code_wanted:
            form.spend()
        confirm(request.session, datetime.now(UTC))
        record(Action.CONFIRMED_AGAIN, request.user.id)  # type: ignore[arg-type]
        return HttpResponseRedirect(get_next_redirect_url(request) or reverse("admin:index"))


class PasswordAgainPage(_Again, ReauthenticateView):
    """By the password: for whoever has no second factor."""

    title = gettext_lazy("Show that it is you")
    form_class = PasswordAgain


class CodeAgainPage(_Again, CodeAgainView):
    """By a code."""

    title = gettext_lazy("Show that it is you")
    form_class = CodeAgain
    code_wanted = True


class KeyAgainPage(_Again, ReauthenticateWebAuthnView):
    """By a security key."""

    title = gettext_lazy("Show that it is you")
    form_class = KeyAgain
    template_name = "mfa/webauthn/reauthenticate.html"
    code_wanted = True

    def form_invalid(self, form: Any) -> HttpResponse:
        # allauth's begins the sign-in anew, as whom it does not know.
        answer: HttpResponse = self.render_to_response(self.get_context_data(form=form))
        return answer


class Overview(_Ours, IndexView):
    """What a person has, and what they may do about it."""

    title = gettext_lazy("Second factor")


class Enrol(_Ours, ActivateTOTPView):
    """An authenticator app: scan, type the code, done."""

    title = gettext_lazy("Set up an authenticator app")

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        return super().get_context_data(required=settings.ENVIRONMENT.require_mfa, **kwargs)

    def get_form(self, form_class: Any = None) -> Any:
        form = super().get_form(form_class)
        form.fields["code"].widget = UnfoldAdminTextInputWidget(
            attrs={"autocomplete": "one-time-code", "inputmode": "numeric"}
        )
        return form

    def form_valid(self, form: Any) -> HttpResponse:
        answer: HttpResponse = super().form_valid(form)
        record(Action.SECOND_FACTOR_ADDED, self.request.user.id)  # type: ignore[union-attr]
        return answer


class Remove(_Ours, DeactivateTOTPView):
    """Takes the app away, and the recovery codes with it."""

    title = gettext_lazy("Remove the authenticator app")

    def form_valid(self, form: Any) -> HttpResponse:
        answer: HttpResponse = super().form_valid(form)
        record(Action.SECOND_FACTOR_REMOVED, self.request.user.id)  # type: ignore[union-attr]
        return answer


class AddKey(_Ours, AddWebAuthnView):
    """A security key: of the browser, the phone, or one that is plugged in."""

    title = gettext_lazy("Set up a security key")
    form_class = NewKey

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        given = super().get_context_data(**kwargs)
        # Where the page is reached by an address instead of a name no browser offers a key.
        return {**given, "form": kwargs.get("form") or self.get_form(), "by_name": _has_a_name(self.request)}

    def form_valid(self, form: Any) -> HttpResponse:
        answer: HttpResponse = super().form_valid(form)
        record(Action.SECOND_FACTOR_ADDED, self.request.user.id)  # type: ignore[union-attr]
        return answer


class RemoveKey(_Ours, RemoveWebAuthnView):
    """Takes one security key away; with the last factor go the recovery codes."""

    title = gettext_lazy("Remove a security key")
    success_url = reverse_lazy("mfa_index")

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        given = super().get_context_data(**kwargs)
        # The theme would take it for a row with a list of its own.
        return {name: each for name, each in given.items() if name not in ("object", "authenticator")}

    def form_valid(self, form: Any) -> HttpResponse:
        answer: HttpResponse = super().form_valid(form)
        record(Action.SECOND_FACTOR_REMOVED, self.request.user.id)  # type: ignore[union-attr]
        return answer


def _has_a_name(request: HttpRequest) -> bool:
    host = request.get_host().rpartition(":")[0] or request.get_host()
    try:
        ip_address(host.strip("[]"))
    except ValueError:
        return True
    return False


class RecoveryCodes(_Ours, ViewRecoveryCodesView):
    """The recovery codes: shown once."""

    title = gettext_lazy("Recovery codes")


class NewRecoveryCodes(_Ours, GenerateRecoveryCodesView):
    """New recovery codes; the former ones end."""

    title = gettext_lazy("New recovery codes")

    def form_valid(self, form: Any) -> HttpResponse:
        answer: HttpResponse = super().form_valid(form)
        record(Action.RECOVERY_CODES_MADE, self.request.user.id)  # type: ignore[union-attr]
        return answer


#: By the names under which allauth looks for them.
urlpatterns = [
    path("login/", FirstStep.as_view(), name="account_login"),
    path("login/code/", SecondStepPage.as_view(), name="mfa_authenticate"),
    path("again/", PasswordAgainPage.as_view(), name="account_reauthenticate"),
    path("again/code/", CodeAgainPage.as_view(), name="mfa_reauthenticate"),
    path("again/key/", KeyAgainPage.as_view(), name="mfa_reauthenticate_webauthn"),
    path("second-factor/keys/new/", AddKey.as_view(), name="mfa_add_webauthn"),
    path("second-factor/keys/<int:pk>/remove/", RemoveKey.as_view(), name="mfa_remove_webauthn"),
    path("second-factor/", Overview.as_view(), name="mfa_index"),
    path("second-factor/app/", Enrol.as_view(), name="mfa_activate_totp"),
    path("second-factor/app/remove/", Remove.as_view(), name="mfa_deactivate_totp"),
    path("second-factor/codes/", RecoveryCodes.as_view(), name="mfa_view_recovery_codes"),
    path("second-factor/codes/new/", NewRecoveryCodes.as_view(), name="mfa_generate_recovery_codes"),
]
