"""Words that people read, in the language that they chose; English where nobody chose one, as for every program.

Codes are kept and sent in English. A page shows a code by `in_words` (the filter `said` in templates), whose words stand in the catalogue under the context
`code`; what they are is listed in `config.terms`, where the extraction finds them.
"""

from collections.abc import Callable
from typing import Any, cast

from django.apps import AppConfig
from django.utils.translation import gettext, pgettext
from django.utils.translation import gettext_lazy as _gettext_lazy
from django.utils.translation import pgettext_lazy as _pgettext_lazy

# Typed as the text that they become: pages pass them on and never look inside. What is stored or sent is never made of them.
gettext_lazy = cast(Callable[[str], str], _gettext_lazy)
pgettext_lazy = cast(Callable[[str, str], str], _pgettext_lazy)


def in_words(value: Any, field: str = "") -> Any:
    """Return a code, or a marked text, as the reader's language says it; what the catalogue does not know comes back as it is.

    A code that means something of its own in one `field` stands there under the context `code of FIELD`. English shows codes
    as they are: the catalogue has no English words for them.
    """
    if not isinstance(value, str) or not value:
        return value
    words = str(value).replace("_", " ")
    if field:
        found = pgettext(f"code of {field}", words)
        if found != words:
            return found
    found = pgettext("code", words)
    if found != words:
        return found
    found = gettext(str(value))
    return value if found == str(value) else found


def head(name: str) -> str:
    """Return the head of a column or field by its name: `created_at` is `created at`, in the reader's language once shown."""
    return pgettext_lazy("field", name.replace("_", " "))


def name_models(app: AppConfig) -> None:
    """Let the pages name an app's models and their fields in the reader's language.

    At start, and not in the models: what a model is called on a page is nothing that a migration has to repeat.
    """
    for model in app.get_models(include_auto_created=True):
        meta = model._meta
        meta.verbose_name = pgettext_lazy("model", str(meta.verbose_name_raw))
        meta.verbose_name_plural = pgettext_lazy("model", str(meta.verbose_name_plural))
        for field in meta.get_fields():
            if hasattr(field, "verbose_name"):
                field.verbose_name = pgettext_lazy("field", str(field.verbose_name))
