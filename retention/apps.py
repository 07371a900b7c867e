from django.apps import AppConfig
from django.utils.translation import gettext_lazy


class RetentionConfig(AppConfig):
    name = "retention"
    verbose_name = gettext_lazy("Keeping and ending")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from tenants.words import name_models

        name_models(self)
