from django.apps import AppConfig
from django.utils.translation import gettext_lazy


class MemoryConfig(AppConfig):
    name = "memory"
    verbose_name = gettext_lazy("Memory")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from tenants.words import name_models

        name_models(self)
