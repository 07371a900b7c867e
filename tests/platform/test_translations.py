"""The catalogues of translations hold every string of the sources, translated whole, and the compiled ones are theirs."""

import ast
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import polib
import pytest
import unfold
from django.apps import apps
from django.conf import settings
from django.contrib import admin
from django.contrib.admin.utils import flatten_fieldsets
from django.utils import translation
from django.utils.translation.template import templatize

from memory import promotion
from policies import approvals, vocabulary
from retention import erasing, keeping, matters, redaction, requests, restricting
from tenants.actors import ActorKind, MemberRole
from tenants.words import in_words

ROOT = Path(__file__).resolve().parent.parent.parent
LANGUAGES = [code for code, _ in settings.LANGUAGES if code != settings.LANGUAGE_CODE]
Message = tuple[str, str, str]
"""Context, the string, and its plural."""


def sources(pattern: str) -> list[Path]:
    listed = subprocess.run(["git", "ls-files", pattern], cwd=ROOT, capture_output=True, text=True, check=True)
    left_out = ("tests/", "benchmarks/", "docs/")
    return [ROOT / name for name in listed.stdout.split() if not name.startswith(left_out)]


# extraction -----------------------------------------------------------------------------------------------------------

_ARGUMENTS = {
    **dict.fromkeys(["_", "gettext", "gettext_lazy", "gettext_noop"], ("one",)),
    **dict.fromkeys(["ngettext", "ngettext_lazy"], ("one", "many")),
    **dict.fromkeys(["pgettext", "pgettext_lazy"], ("context", "one")),
    **dict.fromkeys(["npgettext", "npgettext_lazy"], ("context", "one", "many")),
}
_STRING = r"""u?'(?:[^'\\]|\\.)*'|u?"(?:[^"\\]|\\.)*\""""
_CALL = re.compile(rf"(?<![a-z.])(_|n?p?gettext)\(\s*((?:{_STRING})(?:\s*,\s*(?:{_STRING}))*)", re.DOTALL)


def message(name: str, given: list[str]) -> Message:
    found = dict(zip(_ARGUMENTS[name], given, strict=False))
    return found.get("context", ""), found["one"], found.get("many", "")


def marked_in(path: Path) -> Iterator[Message]:
    """Yield what a file marks, as GNU gettext finds it, without GNU gettext."""
    text = path.read_text()
    if path.suffix == ".html":
        for name, given in _CALL.findall(templatize(text)):
            yield message(name, list(ast.literal_eval(f"[{given}]")))
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _ARGUMENTS:
            wanted = len(_ARGUMENTS[node.func.id])
            texts = [each.value for each in node.args[:wanted] if isinstance(each, ast.Constant)]
            if len(texts) == wanted and all(isinstance(each, str) for each in texts):
                yield message(node.func.id, [str(each) for each in texts])


@cache
def marked() -> dict[Message, Path]:
    return {each: path for path in [*sources("*.py"), *sources("*.html")] for each in marked_in(path)}


@cache
def catalogue(language: str) -> polib.POFile:
    return polib.pofile(str(ROOT / "locale" / language / "LC_MESSAGES" / "django.po"))


def key(entry: polib.POEntry) -> Message:
    return entry.msgctxt or "", entry.msgid, entry.msgid_plural or ""


def texts(entry: polib.POEntry) -> list[str]:
    return list(entry.msgstr_plural.values()) if entry.msgid_plural else [entry.msgstr]


# the catalogues -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_catalogue_holds_what_the_sources_mark_and_no_more(language: str) -> None:
    held = {key(entry) for entry in catalogue(language) if not entry.obsolete}
    assert len(held) > 2_000
    missing = {each: str(path.relative_to(ROOT)) for each, path in marked().items() if each not in held}
    assert missing == {}, "run `make translations`, and translate what is new; mark nothing inside an f-string"
    assert held - set(marked()) == set(), "run `make translations`: these are marked nowhere any more"


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_string_is_translated_and_none_is_a_guess(language: str) -> None:
    left = [entry.msgid for entry in catalogue(language) if not all(texts(entry)) or entry.fuzzy or entry.obsolete]
    assert left == []


_HOLES = re.compile(r"%\(\w+\)s|%%|\{\w*\}")


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_translation_has_the_same_holes_as_its_string(language: str) -> None:
    for entry in catalogue(language):
        for said, original in zip(texts(entry), [entry.msgid, entry.msgid_plural or entry.msgid], strict=False):
            assert Counter(_HOLES.findall(said)) == Counter(_HOLES.findall(original)), entry.msgid
            for edge in (0, -1):
                assert said[edge].isspace() == original[edge].isspace(), entry.msgid
            assert not re.search("[<>&]", said.replace(" & ", "")), entry.msgid


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_compiled_catalogue_is_made_of_the_written_one(language: str) -> None:
    compiled = polib.mofile(str(ROOT / "locale" / language / "LC_MESSAGES" / "django.mo"))
    assert {key(each): texts(each) for each in compiled if each.msgid} == {
        key(each): texts(each) for each in catalogue(language)
    }


# what is to be in them ------------------------------------------------------------------------------------------------


class Bare(HTMLParser):
    """Finds words of a template that no tag of translation holds."""

    _NO_WORDS = frozenset({"script", "style", "code"})
    _SAID = ("aria-label", "placeholder", "title", "alt", "label")
    _SAME = re.compile(r"\b(Muniment|UTC|s)\b")

    def __init__(self) -> None:
        super().__init__()
        self.inside: list[str] = []
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.inside.append(tag)
        for name, value in attrs:
            if name in self._SAID and value:
                self._look(value)

    def handle_endtag(self, tag: str) -> None:
        while self.inside and self.inside.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        if not self._NO_WORDS & set(self.inside[-1:]):
            self._look(data)

    def _look(self, text: str) -> None:
        if re.search(r"[A-Za-z]{2,}", self._SAME.sub("", text)):
            self.found.append(" ".join(text.split()))


#: English for everybody: what a data subject is handed beside signed files, and the page of the API's reference.
ENGLISH = {"templates/retention/access.html", "templates/retention/legible.html", "templates/api/docs.html"}
_BLOCK = re.compile(r"\{%\s*(blocktranslate|comment)\b.*?%\}.*?\{%\s*end\1\s*%\}", re.DOTALL)
_TAG = re.compile(r"\{%.*?%\}|\{\{.*?\}\}|\{#.*?#\}", re.DOTALL)


def bare_words(template: str) -> list[str]:
    found = Bare()
    found.feed(_TAG.sub(" ", _BLOCK.sub(" ", template)))
    return found.found


def test_no_template_has_a_word_that_is_not_marked() -> None:
    left = {
        name: words
        for path in sources("templates/*.html")
        if (name := str(path.relative_to(ROOT))) not in ENGLISH and (words := bare_words(path.read_text()))
    }
    assert left == {}


def test_a_word_that_is_not_marked_would_be_found() -> None:
    said = '<p>{% translate "Held" %} {{ name }}</p><input placeholder="{% translate "Name" %}">'
    assert bare_words(said) == []
    assert bare_words(f"{said}<p>since {{{{ day }}}}</p>") == ["since"]
    assert bare_words('<button aria-label="Close it">×</button>') == ["Close it"]


def heads() -> Iterator[str]:
    """Yield the heads of every column and field of every page of rows."""
    for model, page in admin.site._registry.items():
        if model._meta.app_label not in ("tenants", "policies", "memory", "retention"):
            continue
        listed: list[Any] = [*page.list_display, *(page.fields or ())]
        listed += flatten_fieldsets(page.fieldsets) if page.fieldsets else []
        for each in listed:
            if callable(each):
                yield str(each.short_description)  # type: ignore[attr-defined]
            elif each != "__str__" and not hasattr(page, str(each)):
                yield str(getattr(model._meta.get_field(str(each)), "verbose_name", each))


def in_catalogue(context: str, words: str, language: str) -> bool:
    return any(entry.msgid == words and entry.msgctxt in (context, None) for entry in catalogue(language))


@pytest.mark.parametrize("language", LANGUAGES)
def test_heads_of_columns_and_names_of_models_are_in_the_catalogue(language: str) -> None:
    with translation.override("en"):
        named = {
            str(name)
            for model in admin.site._registry
            if apps.get_app_config(model._meta.app_label).verbose_name and model.__module__.split(".")[0] != "django"
            for name in (model._meta.verbose_name, model._meta.verbose_name_plural)
        }
        said = set(heads())
    assert len(said) > 100
    assert [each for each in sorted(said) if not in_catalogue("field", each, language)] == []
    assert [each for each in sorted(named) if not in_catalogue("model", each, language)] == []


CODES: dict[str, list[str]] = {
    "roles": [role.value for role in MemberRole],
    "actors": [kind.value for kind in ActorKind],
    "classes": [level.label for level in vocabulary.Sensitivity],
    "bases": [each.value for each in vocabulary.Basis],
    "sources": [each.value for each in vocabulary.SourceKind],
    "kinds": [each.value for each in vocabulary.Kind],
    "confirming": [each.value for each in vocabulary.Confirm],
    "outcomes": [each.value for each in vocabulary.Outcome],
    "asking": list(approvals.REASONS),
    "answering": [code for codes in approvals.ANSWER_REASONS.values() for code in codes],
    "ending procedures": list(promotion.ENDING_REASONS),
    "matters": list(matters.REASONS),
    "keeping": list(keeping.REASONS),
    "redacting": [*redaction.REASONS, *redaction.APPLY_REASONS, *redaction.REFUSE_REASONS, redaction.QUOTE_FELL],
    "erasing": [*erasing.REASONS, *erasing.ITEM_REASONS, *erasing.STEPS],
    "requests": [
        *(kind.value for kind in requests.Kind),
        *requests.METHODS,
        *requests.EXTENSION_REASONS,
        *requests.GROUNDS,
        *requests.OUTCOMES,
    ],
    "restricting": [*restricting.GROUNDS, *restricting.LIFTED, *restricting.KINDS],
}


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("codes", list(CODES.values()), ids=list(CODES))
def test_codes_that_pages_show_are_in_the_catalogue(codes: list[str], language: str) -> None:
    assert codes
    assert [code for code in codes if not in_catalogue("code", code.replace("_", " "), language)] == []


@pytest.mark.parametrize("language", LANGUAGES)
def test_filters_of_lists_offer_their_words_in_the_catalogue(language: str) -> None:
    offered = set()
    for page in admin.site._registry.values():
        for found in page.list_filter:
            if isinstance(found, type) and found.__name__ == "OneOf":
                with translation.override("en"):
                    lookups = found.lookups(found, None, None)  # type: ignore[attr-defined]
                offered |= {str(words) for _, words in lookups if "." not in str(words)}
    assert len(offered) > 30
    assert [each for each in sorted(offered) if not in_catalogue("code", each, language)] == []


@pytest.mark.parametrize("language", LANGUAGES)
def test_what_the_theme_says_is_translated_by_us_where_it_brings_no_translation(language: str) -> None:
    theme = Path(unfold.__file__).parent
    said = set()
    for folder in (theme / "templates", theme / "contrib" / "simple_history"):
        for path in folder.rglob("*.html"):
            said |= {each for each in marked_in(path) if not each[0] and not each[2]}
    assert len(said) > 50
    with translation.override(language):
        left = [words for _, words, _ in said if translation.gettext(words) == words]
    assert left == []


def test_a_code_is_said_in_the_language_of_the_reader_and_as_it_is_where_nobody_chose_one() -> None:
    assert in_words("not_to_be_kept") == "not_to_be_kept"
    with translation.override("de"):
        assert in_words("not_to_be_kept") == "nicht aufzubewahren"
        assert in_words("a_name_of_the_tenant's_own") == "a_name_of_the_tenant's_own"
        assert in_words(7) == 7
    assert in_words("restricted") == "restricted"
