"""Names of people and places, by a language model of spaCy's through presidio-analyzer: the extra `pii`.

Both are imported with the first text, and neither fetches anything: the model is one that an operator installed, and of
presidio's recognisers only the model's own is made (the one for e-mail would ask the network for a list). What it finds
is a guess: it raises a class, and decides nothing.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from policies.detection.spans import RAISES, Finding, Findings, Group

#: What the model calls a finding, and which detector that is.
DETECTORS = {"PERSON": "person", "LOCATION": "place"}

_NOT_INSTALLED = "presidio-analyzer is not installed (make run EXTRAS=pii)"
_NO_MODEL = "no spaCy model is named (MUNIMENT_NAMES_MODEL)"
_MODEL_MISSING = "the spaCy model that is named is not installed; it is not fetched"


class NamesUnavailable(Exception):
    """Names cannot be looked for; says in one line why."""


def missing(model: str) -> str | None:
    """Return in one line what is missing to look for names with that model (a package's name or a folder), or None."""
    if find_spec("presidio_analyzer") is None or find_spec("spacy") is None:
        return _NOT_INSTALLED
    if not model:
        return _NO_MODEL
    if not Path(model).is_dir() and (not model.isidentifier() or find_spec(model) is None):
        return _MODEL_MISSING
    return None


def names(text: str, model: str, *, omit: Collection[str] = frozenset()) -> Findings:
    """Return the people and places that the model finds in `text`, in its order. Raises NamesUnavailable."""
    if Group.NAME in omit or not text.strip():
        return ()
    analyzer, language = _analyzer(model)
    return tuple(
        Finding(found.start, found.end, found.entity_type, DETECTORS[found.entity_type], Group.NAME, RAISES[Group.NAME])
        for found in sorted(
            analyzer.analyze(text=text, language=language, entities=list(DETECTORS)), key=lambda each: each.start
        )
        if DETECTORS[found.entity_type] not in omit
    )


@lru_cache(maxsize=4)
def _analyzer(model: str) -> tuple[Any, str]:
    why = missing(model)
    if why is not None:
        raise NamesUnavailable(why)
    import spacy.util
    from presidio_analyzer import AnalyzerEngine, RecognizerRegistry
    from presidio_analyzer.nlp_engine import SpacyNlpEngine
    from presidio_analyzer.predefined_recognizers import SpacyRecognizer

    folder = Path(model) if Path(model).is_dir() else spacy.util.get_package_path(model)
    language = str(spacy.util.get_model_meta(folder)["lang"])
    engine = SpacyNlpEngine(models=[{"lang_code": language, "model_name": model}])
    recognizer = SpacyRecognizer(supported_language=language, supported_entities=list(DETECTORS))
    registry = RecognizerRegistry(recognizers=[recognizer], supported_languages=[language])
    return AnalyzerEngine(registry=registry, nlp_engine=engine, supported_languages=[language]), language
