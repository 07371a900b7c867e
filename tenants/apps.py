from allauth.account.apps import AccountConfig
from django.apps import AppConfig


class TenantsConfig(AppConfig):
    name = "tenants"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from tenants.words import name_models

        name_models(self)


class AccountsConfig(AccountConfig):
    """allauth's accounts, behind a middleware of ours that leaves API requests alone."""

    def ready(self) -> None:
        from allauth.account import checks  # noqa: F401  Its checks of settings; it would insist on its own middleware.
