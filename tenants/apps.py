from allauth.account.apps import AccountConfig
from django.apps import AppConfig
from django.utils.translation import gettext_lazy


class TenantsConfig(AppConfig):
    name = "tenants"
    verbose_name = gettext_lazy("Organisation")
    # Of the two of this file: that of allauth's accounts is named in the settings.
    default = True
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from tenants.words import name_models

        name_models(self)


class AccountsConfig(AccountConfig):
    """allauth's accounts, behind a middleware of ours that leaves API requests alone."""

    def ready(self) -> None:
        from allauth.account import checks  # noqa: F401  Its checks of settings; it would insist on its own middleware.
