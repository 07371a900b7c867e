"""The words of a text as search knows them: in lower case, by their stem, without those that every text has.

Pure: no Django, no clock. What is found depends on the language that is given, on nothing else; `FORMAT` names the rules,
so that an index made by others is known and made anew.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache, lru_cache

import Stemmer

#: Moves with every change of the rules below.
FORMAT = 2
SIMPLE = "simple"
LONGEST = 40
#: Of one text no more distinct words are kept, the most frequent first: a book is found by what it speaks of.
MOST = 2_000

_WORD = re.compile(r"[^\W_]+")
_POSSESSIVE = re.compile(r"(?<=\w)['’]s\b", re.IGNORECASE)
#: Words that tell a question from no other. Of English only: in other languages how often a word occurs weighs it.
_COMMON_WORDS = """a about above after again against all am an and any are as at be because been before being below between both but
    by can could d did do does doing don down during each few for from further had has have having he her here hers
    herself him himself his how i if in into is it its itself just ll m me more most my myself no nor not now of off on
    once only or other our ours ourselves out over own please re s same she should so some such t tell than that the
    their theirs them themselves then there these they this those through to too under until up us ve very was we were
    what when where which while who whom whose why will with would you your yours yourself yourselves"""
_COMMON = frozenset(_COMMON_WORDS.split())
#: Words that say how something is asked for rather than what. They may matter, so they find; but they weigh half.
_ASKING_WORDS = """base consider current currently describe explain get give go help know latest like long make many much
    need recent recently recommend regard relate suggest summarize summary thing use want way"""
_HALF = 0.5


def languages() -> list[str]:
    """Return the languages that there are stems for, and `simple`, which keeps words as they are."""
    return sorted([*Stemmer.algorithms(), SIMPLE])


def words(text: str) -> list[str]:
    """Return the words of a text in their order, in lower case and compatible form, none longer than `LONGEST`."""
    plain = unicodedata.normalize("NFKC", text)
    return [word[:LONGEST] for word in _WORD.findall(_POSSESSIVE.sub("", plain).casefold())]


def counted(text: str, language: str) -> Counter[str]:
    """Return how often each lexeme occurs in a text, at most `MOST` of them. What every text has is left out."""
    found = Counter(lexemes(text, language))
    return (
        found
        if len(found) <= MOST
        else Counter(dict(sorted(found.items(), key=lambda each: (-each[1], each[0]))[:MOST]))
    )


def lexemes(text: str, language: str) -> list[str]:
    """Return the lexemes of a text in their order; of a text of common words alone, these."""
    found = words(text)
    if language == "english":
        found = [word for word in found if word not in _COMMON] or found
    stem = stemmer(language)
    return [stem(word) for word in found]


def worth(asked: Sequence[str], language: str) -> list[float]:
    """Return what each lexeme of a question is worth beside the others, in their order."""
    asking = _asking(language)
    return [_HALF if lexeme in asking else 1.0 for lexeme in asked]


@cache
def _asking(language: str) -> frozenset[str]:
    return frozenset(map(stemmer(language), _ASKING_WORDS.split())) if language == "english" else frozenset()


@cache
def stemmer(language: str) -> Callable[[str], str]:
    """Return what makes a stem of a word of that language. Raises `ValueError` for a language that is not there."""
    if language == SIMPLE:
        return str
    if language not in Stemmer.algorithms():
        raise ValueError("no stems for that language")
    return lru_cache(maxsize=50_000)(Stemmer.Stemmer(language, 0).stemWord)


def spans(text: str, wanted: Sequence[str], language: str) -> list[tuple[int, int, str]]:
    """Return where in a text the wanted lexemes stand, as (start, end, lexeme), in the text's order."""
    if not wanted:
        return []
    stem, among = stemmer(language), set(wanted)
    found = []
    for match in _WORD.finditer(text):
        word = unicodedata.normalize("NFKC", match.group()).casefold()[:LONGEST]
        lexeme = stem(word)
        if lexeme in among:
            found.append((match.start(), match.end(), lexeme))
    return found
