"""Signing in and out, audited on the platform's chain by user id alone: a name that was typed may be a password.

The second factor is django-allauth's. Its secrets are sealed under a key that is made of the key which signs sessions, and
so stands outside the database and its backups.
"""

import base64
import hashlib
from collections.abc import MutableMapping
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from allauth.account.adapter import DefaultAccountAdapter
from allauth.account.forms import ReauthenticateForm
from allauth.core import context, ratelimit
from allauth.core.exceptions import ReauthenticationRequired
from allauth.mfa.adapter import DefaultMFAAdapter
from allauth.mfa.base.forms import AuthenticateForm
from allauth.mfa.base.forms import ReauthenticateForm as CodeAgainForm
from allauth.mfa.models import Authenticator
from allauth.mfa.stages import AuthenticateStage
from allauth.mfa.webauthn.forms import AddWebAuthnForm, AuthenticateWebAuthnForm
from cryptography.fernet import Fernet, InvalidToken
from django.conf import settings
from django.core.exceptions import ValidationError
from django.urls import reverse
from django.utils.translation import gettext as _
from unfold.forms import AdminOwnPasswordChangeForm, AuthenticationForm
from unfold.widgets import UnfoldAdminPasswordWidget, UnfoldAdminTextInputWidget

from tenants.actors import Actor, ActorKind
from tenants.audit import PLATFORM, Action, Event, append
from tenants.authentication import Bound
from tenants.errors import Missing
from tenants.identities import providers_of
from tenants.models import User
from tenants.providers import Told, Why
from tenants.registry import OPERATOR

failures = Bound()


def record(action: Action, user: UUID, *, reason: str = "none", **numbers: int) -> None:
    """Append a sign-in, a failed one or a sign-out to the platform's chain. Needs `Role.FRONT` or `Role.STAFF`.

    `reason` is a code: the way somebody signed in, or why they did not.
    """
    person = Actor(kind=ActorKind.PERSON, id=user, tenant=PLATFORM)
    event = Event(actor=person, action=action, target_kind="user", target_id=user, reason=reason, numbers={**numbers})
    append([event], chain=PLATFORM)


def remove_second_factor(username: str) -> tuple[UUID, int]:
    """Take away what a person proves themselves by beside the password; return who it is, and how much there was.

    The operator's act. Needs `Role.FRONT`. Raises `Missing` where nobody has that name.
    """
    person = User.objects.filter(username=username).only("id").first()
    if person is None:
        raise Missing("user_unknown")
    removed, _ = Authenticator.objects.filter(user_id=person.id).delete()
    event = Event(
        actor=OPERATOR,
        action=Action.SECOND_FACTOR_REMOVED,
        target_kind="user",
        target_id=person.id,
        numbers={"removed": removed},
    )
    append([event], chain=PLATFORM)
    return person.id, removed


def record_failure(now: datetime) -> None:
    """Append a failed sign-in, up to a bound a minute, as refused keys are. Needs `Role.FRONT` or `Role.STAFF`."""
    kept_back = failures.admit(now)
    if kept_back is not None:
        record(Action.SIGN_IN_FAILED, PLATFORM, not_written_before=kept_back)


def record_refusal(kind: str, why: Why, now: datetime, user: UUID = PLATFORM) -> None:
    """Append a sign-in by a provider that was refused, with why, bounded as failures are. Needs `Role.FRONT`."""
    kept_back = failures.admit(now)
    if kept_back is not None:
        record(Action.SIGN_IN_REFUSED, user, reason=f"{kind}.{why.value}", not_written_before=kept_back)


#: The session's key for how a sign-in that is under way began: by a password, or by what a provider proved.
_UNDER_WAY = "signing_in_by"
#: The session's keys for by which provider its person signed in, and whether that asked a second factor that is trusted.
SIGNED_IN_WITH = "signed_in_with"
TRUSTED_SECOND_FACTOR = "trusted_second_factor"
PASSWORD = "password"  # noqa: S105


def begin_with_password(session: MutableMapping[str, Any]) -> None:
    """Note that a sign-in begins with a password, whatever was begun before."""
    session.pop(_UNDER_WAY, None)


def begin_with_provider(session: MutableMapping[str, Any], kind: str, name: str, user: UUID, told: Told) -> None:
    """Note that a sign-in begins with what a provider proved of `user`."""
    session[_UNDER_WAY] = {
        "kind": kind,
        "provider": name,
        "user": str(user),
        "proved_at": None if told.proved_at is None else told.proved_at.timestamp(),
        "second_factor": told.second_factor,
    }


def _under_way(session: MutableMapping[str, Any], user: Any) -> dict[str, Any]:
    """Return how the sign-in of `user` began; what was noted for somebody else counts for nothing."""
    found = session.get(_UNDER_WAY)
    if isinstance(found, dict) and found.get("user") == str(user.id):
        return found
    return {}


class SecondStage(AuthenticateStage):
    """The second step, left out where a provider asked for a second factor that an operator's setting trusts."""

    def _should_handle(self, request: Any) -> bool:
        if self.login.user is not None and _under_way(request.session, self.login.user).get("second_factor"):
            return False
        return bool(super()._should_handle(request))


#: The session's key for when its person last gave a password or a code, as seconds since 1970.
_CONFIRMED = "confirmed_at"
#: What is recent: acts that hand out access ask for a password or a code that is not older.
RECENT = timedelta(minutes=10)


def confirm(session: MutableMapping[str, Any], now: datetime) -> None:
    """Remember that whoever holds the session has just shown who they are."""
    session[_CONFIRMED] = now.timestamp()


def confirmed_recently(session: MutableMapping[str, Any], now: datetime) -> bool:
    """Whether whoever holds the session showed who they are within `RECENT` before `now`."""
    since = now.timestamp() - float(session.get(_CONFIRMED, 0.0))
    return 0 <= since < RECENT.total_seconds()


def require_recent(session: MutableMapping[str, Any], now: datetime) -> None:
    """Guard an act that hands out access: raise where its person has not shown recently who they are.

    The page that asks them is answered in its stead (`config.requests.Accounts`); afterwards they are back where they were.
    """
    if not confirmed_recently(session, now):
        raise ReauthenticationRequired


class SignIn(AuthenticationForm):
    """The first step: name and password. Failures are audited; a sign-in is audited when its last step is done.

    After ten failures in five minutes a name is not looked at until they have passed, whether anybody has it or not.
    """

    def clean(self) -> dict[str, Any]:
        # A digest: what was typed as a name may be a password, and is kept nowhere.
        tried = hashlib.sha256(str(self.cleaned_data.get("username", "")).casefold().encode()).hexdigest()
        try:
            if not ratelimit.consume(self.request, action="login_failed", key=tried):
                raise ValidationError(_("Too many failed sign-ins. Try again in a few minutes."))
            cleaned: dict[str, Any] = super().clean()
        except ValidationError:
            record_failure(datetime.now(UTC))
            raise
        ratelimit.clear(self.request, action="login_failed", key=tried)
        return cleaned


class SecondStep(AuthenticateForm):
    """The second step: a code of the authenticator app, or a recovery code. Failures are audited as those of the first."""

    code_widget = UnfoldAdminTextInputWidget(
        attrs={"autocomplete": "one-time-code", "inputmode": "numeric", "autofocus": True}
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["code"].widget = self.code_widget

    def clean_code(self) -> str:
        try:
            code: str = super().clean_code()
        except ValidationError:
            record_failure(datetime.now(UTC))
            raise
        return code


class CodeAgain(CodeAgainForm):
    """A code once more, before an act that hands out access."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["code"].widget = SecondStep.code_widget

    def clean_code(self) -> str:
        try:
            code: str = super().clean_code()
        except ValidationError:
            record_failure(datetime.now(UTC))
            raise
        return code

    def spend(self) -> None:
        """Note that the code was used: a recovery code works once."""
        self.save()


class NewKey(AddWebAuthnForm):
    """A security key that a person sets up. What it is called is ours to say: a name that is typed may be anything."""

    def clean_name(self) -> str:
        return "key"


class KeyStep(AuthenticateWebAuthnForm):
    """A security key at the second step; what does not fit is a failure that is told, as a wrong code is."""

    def clean_credential(self) -> Any:
        try:
            return super().clean_credential()
        except (ValidationError, ValueError):
            # Nor is more said: a key of another's and one that answered wrongly are the same to whoever tries.
            record_failure(datetime.now(UTC))
            raise SecondFactors().validation_error("incorrect_code") from None


class KeyAgain(KeyStep):
    """A security key, shown once more."""

    def spend(self) -> None:
        """Note that the key was used."""
        self.cleaned_data["credential"].record_usage()


class PasswordAgain(ReauthenticateForm):
    """The password once more, before an act that hands out access."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["password"].widget = UnfoldAdminPasswordWidget(attrs={"autocomplete": "current-password"})
        self.fields["password"].help_text = ""

    def clean_password(self) -> str:
        try:
            password: str = super().clean_password()
        except ValidationError:
            record_failure(datetime.now(UTC))
            raise
        return password


class Accounts(DefaultAccountAdapter):
    """How allauth ends a sign-in here: audited, and never by making an account."""

    def is_open_for_signup(self, request: Any) -> bool:
        return False

    def login(self, request: Any, user: Any) -> None:
        began = _under_way(request.session, user)
        super().login(request, user)
        session, now = request.session, datetime.now(UTC)
        begin_with_password(session)
        has_factor = SecondFactors().is_mfa_enabled(user)
        trusted = bool(began.get("second_factor"))
        for key, value in ((SIGNED_IN_WITH, began.get("provider")), (TRUSTED_SECOND_FACTOR, trusted or None)):
            session.pop(key, None)
            if value is not None:
                session[key] = value
        if not began or (has_factor and not trusted):
            confirm(session, now)
        elif began.get("proved_at") is not None:
            # At the provider a session may be hours old: what is recent is when they showed it who they are.
            confirm(session, min(now, datetime.fromtimestamp(began["proved_at"], UTC)))
        record(
            Action.SIGNED_IN,
            user.id,
            reason=began.get("kind", PASSWORD),
            second_factor=int(has_factor or trusted),
        )

    def get_login_stages(self) -> list[str]:
        ours = {"allauth.mfa.stages.AuthenticateStage": f"{__name__}.SecondStage"}
        return [ours.get(each, each) for each in super().get_login_stages()]

    def reauthenticate(self, user: Any, password: str) -> bool:
        # allauth's looks among e-mail addresses, which no role of ours may.
        return bool(user.check_password(password))

    def is_reauthentication_required(self, *, app: str, **kwargs: Any) -> bool:
        return not confirmed_recently(context.request.session, datetime.now(UTC))

    def get_reauthentication_methods(self, user: Any) -> list[dict[str, Any]]:
        # Whoever has a second factor shows that: a password alone may be somebody else's by now.
        methods: list[dict[str, Any]] = super().get_reauthentication_methods(user)
        second = [each for each in methods if each["id"].startswith("mfa_")]
        if second or methods or not user.is_authenticated:
            return second or methods
        # Who has neither goes back to where they sign in.
        known = settings.SINGLE_SIGN_ON
        if known is None or not any(known.named(each) for each in providers_of(user.id)):
            return []
        return [{"id": "provider", "description": "", "url": reverse("sso_again")}]


class SecondFactors(DefaultMFAAdapter):
    """How allauth keeps what proves a second factor: sealed."""

    def get_totp_issuer(self) -> str:
        return "Muniment"

    def get_public_key_credential_rp_entity(self) -> dict[str, str]:
        return {**super().get_public_key_credential_rp_entity(), "name": self.get_totp_issuer()}

    def encrypt(self, text: str) -> str:
        return _sealer().encrypt(text.encode()).decode()

    def decrypt(self, encrypted_text: str) -> str:
        try:
            return _sealer().decrypt(encrypted_text.encode()).decode()
        except InvalidToken:
            # Another signing key than it was sealed with: it opens nothing, and an operator takes it away.
            raise self.validation_error("incorrect_code") from None


def _sealer() -> Fernet:
    return Fernet(base64.urlsafe_b64encode(hashlib.sha256(b"second factor\0" + settings.SECRET_KEY.encode()).digest()))


class PasswordChange(AdminOwnPasswordChangeForm):
    """A person's own new password: that column alone is written, which is all that the roles may write, and audited."""

    def set_password_and_save(self, user: Any, password_field_name: str = "password1", commit: bool = True) -> Any:  # noqa: S107
        user.set_password(self.cleaned_data[password_field_name])
        if commit:
            user.save(update_fields=["password"])
            record(Action.PASSWORD_CHANGED, user.id)
        return user
