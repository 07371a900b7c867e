"""Signing in and out, audited on the platform's chain by user id alone: a name that was typed may be a password."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from django.core.exceptions import ValidationError
from unfold.forms import AdminOwnPasswordChangeForm, AuthenticationForm

from tenants.actors import Actor, ActorKind
from tenants.audit import PLATFORM, Action, Event, append
from tenants.authentication import Bound

failures = Bound()


def record(action: Action, user: UUID, **numbers: int) -> None:
    """Append a sign-in, a failed one or a sign-out to the platform's chain. Needs `Role.FRONT` or `Role.STAFF`."""
    person = Actor(kind=ActorKind.PERSON, id=user, tenant=PLATFORM)
    append(
        [Event(actor=person, action=action, target_kind="user", target_id=user, numbers={**numbers})], chain=PLATFORM
    )


class SignIn(AuthenticationForm):
    """The admin's sign-in form. Failures are audited up to a bound a minute, as refused keys are."""

    def clean(self) -> dict[str, Any]:
        try:
            cleaned: dict[str, Any] = super().clean()
        except ValidationError:
            kept_back = failures.admit(datetime.now(UTC))
            if kept_back is not None:
                record(Action.SIGN_IN_FAILED, PLATFORM, not_written_before=kept_back)
            raise
        user = self.get_user()
        if user is not None:
            record(Action.SIGNED_IN, user.id)
        return cleaned


class PasswordChange(AdminOwnPasswordChangeForm):
    """A person's own new password: that column alone is written, which is all that the roles may write, and audited."""

    def set_password_and_save(self, user: Any, password_field_name: str = "password1", commit: bool = True) -> Any:  # noqa: S107
        user.set_password(self.cleaned_data[password_field_name])
        if commit:
            user.save(update_fields=["password"])
            record(Action.PASSWORD_CHANGED, user.id)
        return user
