"""How an attribute is spoken of: the words, the kind of value and the role that its definition gives away.

Pure. Where a definition names no cues they come from its name, its description (the first sentence says what the value
is, further ones what it is about), its aliases and its enum. The word lists hold plain English; none was written for a
data set.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal

from policies.definitions import AttributeDefinition

ValueKind = Literal[
    "choice",
    "number",
    "money",
    "boolean",
    "date",
    "date-time",
    "time",
    "email",
    "phone",
    "url",
    "place",
    "name",
    "words",
]

_SPLIT = re.compile(r"[^\W\d_]+|\d+")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def word_set(text: str) -> frozenset[str]:
    """Return the words of a list that is written as text."""
    return frozenset(text.split())


STOP = word_set("""a an the of to for in on at by with from and or is are was were be been being it its this that these those which
    who whom whose what when where how whether if as so do does did done has have had you your user users subject i me
    my we us our they their them he she his her there here not no yes any some each other than into per about via can
    could will would should may might must shall want wants wanted need needs needed like use used using give given
    get gets make made set take taken go goes one ones also only very just please value field indicating flag boolean
    id identifier code current currently preferred favourite favorite find search""")

# Words that tell a kind of value but not whose it is.
_KIND_WORDS = word_set("""name date day time number count amount type kind category city town place location address area string text
    list title person language""")

# Families of words that mean the same as a cue. The first names the family.
_FAMILIES = tuple(
    tuple(line.split())
    for line in """
    #people people person persons guest guests traveler travelers traveller travellers passenger passengers rider riders
      seat seats ticket tickets attendee attendees adults party diners
    #nights stay stays night nights
    #days days day duration length long
    #price price prices priced pricing budget cost costs fare fee range rate pricerange
    #depart departure depart departs departing departed leave leaves leaving left origin originate originates start
      starts starting pickup pick collect outbound leaveat
    #arrive arrival arrive arrives arriving arriveby destination reach end ends going go heading
    #back return returns returning returned inbound dropoff drop
    #food food cuisine cuisines dish dishes eat serves serve serving
    #area area part side region district neighbourhood neighborhood
    #star star stars rating ratings rated
    #live live lives living reside resides home residence moved
    #born born birthday birthdate birth
    #due due deadline
    #work work works working job employer occupation profession company
    #mail mail email emails
    #phone phone phones telephone tel mobile cell number
    #wifi wifi internet wireless wi-fi wlan
    #parking parking park car
    #call called named name titled title
    #language language languages speak speaks spoken
    #room room rooms
    #bed bed beds bedroom bedrooms
    #bath bath baths bathroom bathrooms
    #bag bag bags luggage suitcase suitcases baggage
    #film movie movies film films
    #song song songs track tracks
    #car car cars vehicle
    #taxi taxi taxis cab cabs
    #ride ride rides
    #bus bus buses coach
    #flight flight flights fly flying plane
    #train train trains rail
    #hotel hotel hotels accommodation lodging
    #restaurant restaurant restaurants dine dining table
    #apartment apartment apartments flat property house
    #doctor therapist doctor
    #attraction attraction attractions sights
    #event event events
    #book reservation reserve reserved booking book booked
    #transfer transfer transfers send transferred
    #weather weather forecast
    #alarm alarm alarms
    #play play played playback
    #release released release year
    #actor actor actors actress starring star acted acts
    #direct director directors directed directs
    #artist artist artists singer band sung sings
    #genre genre genres
    #check check checked
    #subtitle subtitle subtitles
    #class class classes
    """.replace("\n      ", " ")
    .strip()
    .splitlines()
)


_SPELLINGS = (("centre", "center"), ("theatre", "theater"), ("colour", "color"), ("favour", "favor"), ("grey", "gray"),
              ("metre", "meter"), ("licence", "license"), ("programme", "program"), ("jewellery", "jewelry"))  # fmt: skip
_AMERICAN = dict(_SPELLINGS)


@lru_cache(maxsize=20_000)
def stem(word: str) -> str:
    """Return a crude English stem, the same for the common inflections of a word."""
    word = word.lower()
    if word.endswith(("'s", "’s")):
        word = word[:-2]
    word = _AMERICAN.get(word, word)
    if len(word) > 4:
        for ending in ("ations", "ation", "ings", "ing", "ies", "ied", "ers", "er", "est", "ed", "es", "ly", "s", "e"):
            if word.endswith(ending) and len(word) - len(ending) >= 3:
                word = word[: -len(ending)]
                break
    elif len(word) > 3 and word.endswith("s") and not word.endswith("ss"):
        word = word[:-1]
    if len(word) > 3 and word[-1] in "ey":
        word = word[:-1]
    if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "lse":
        word = word[:-1]
    return word


_FAMILY: dict[str, frozenset[str]] = {}
for _family in _FAMILIES:
    for _word in _family[1:]:
        _FAMILY[stem(_word)] = _FAMILY.get(stem(_word), frozenset()) | {_family[0]}


@lru_cache(maxsize=20_000)
def senses(word: str) -> frozenset[str]:
    """Return what a word of a text can match among cues: its stem, and the families that it belongs to."""
    of = stem(word)
    return _FAMILY.get(of, frozenset()) | {of}


def words(text: str) -> list[str]:
    """Return the words of a name or description in lower case: `pickupCity_name` is pickup, city, name."""
    return [word.lower() for word in _SPLIT.findall(_CAMEL.sub(" ", text))]


# --- kinds --------------------------------------------------------------------------------------------------------

_PLACE = word_set("""city town place location area country village street address origin destination departure venue region airport
    station home residence hometown birthplace office""")
_MONEY = word_set("price cost fare fee amount budget salary income rent money")
_DATE = word_set("date day birthday deadline birthdate anniversary")
_TIME = word_set("time hour")
_NAME = word_set("""name title artist director actor author singer album song movie film actors starring employer company manager
    contact friend nickname spouse partner airline doctor""")
_BOOLEAN = ({"true", "false"}, {"yes", "no"}, {"yes", "no", "free"}, {"y", "n"})


def _enum(schema: dict[str, Any]) -> tuple[Any, ...]:
    if "const" in schema:
        return (schema["const"],)
    if isinstance(schema.get("enum"), list):
        return tuple(value for value in schema["enum"] if value is not None)
    for word in ("anyOf", "oneOf"):
        if isinstance(schema.get(word), list):
            found = [_enum(each) for each in schema[word] if isinstance(each, dict) and each.get("type") != "null"]
            if found and all(found):
                return tuple(value for each in found for value in each)
    return ()


def kind_of(definition: AttributeDefinition) -> tuple[ValueKind, tuple[Any, ...]]:
    """Return what kind of value to look for, and the values to choose from (texts, or numbers)."""
    schema = definition.value_schema
    if schema.get("type") == "array" and isinstance(schema.get("items"), dict):
        schema = schema["items"]
    types = schema.get("type")
    types = [each for each in types if each != "null"] if isinstance(types, list) else [types]
    choices = _enum(schema)
    own = words(definition.name.rsplit("/", 1)[-1].rsplit(".", 1)[-1])
    said = [*own, *words(_first_sentence(definition.description))]
    if choices:
        texts = {str(value).lower() for value in choices}
        if texts in _BOOLEAN or all(isinstance(value, bool) for value in choices):
            return "boolean", choices
        if all(re.fullmatch(r"\d+(?:\.\d+)?", text) for text in texts):
            return "number", choices
        return "choice", tuple(value for value in choices if isinstance(value, str))
    if types == ["boolean"]:
        return "boolean", (True, False)
    if types in (["integer"], ["number"]) or set(types) == {"integer", "number"}:
        return ("money" if set(said) & _MONEY else "number"), ()
    if types not in ([None], ["string"]):
        return "words", ()
    given = schema.get("format")
    if given in ("date", "time", "email"):
        return given, ()
    if given == "date-time":
        return "date-time", ()
    if given == "uri":
        return "url", ()
    return _guessed(own, said), ()


def _guessed(own: Sequence[str], said: Sequence[str]) -> ValueKind:
    # The description's first telling word says what it is; the name helps where there is no description.
    joined = " ".join(said)
    if re.search(r"\b(e ?mail)\b", joined):
        return "email"
    if re.search(r"\b(phone|telephone|mobile number)\b", joined):
        return "phone"
    if re.search(r"\b(url|website|web site|homepage)\b", joined):
        return "url"
    if re.search(r"\b(number of|how many|length of|count of|age|quantity)\b", joined):
        return "number"
    if re.search(r"\b(reference|postal|postcode|zip|duration|description|category|genre|type|kind)\b", joined):
        return "words"
    for word in (*said[len(own) :], *own) if len(said) > len(own) else own:
        for kind, telling in (("time", _TIME), ("date", _DATE), ("money", _MONEY), ("name", _NAME), ("place", _PLACE)):
            if word in telling:
                if kind == "name" and re.search(r"\bname of (?:the )?(?:city|town|country|place)\b", joined):
                    return "place"
                return kind  # type: ignore[return-value]
    return "words"


def _first_sentence(text: str) -> str:
    return re.split(r"(?<=\w)[.;:]\s", text, maxsplit=1)[0]


# --- an attribute, read -------------------------------------------------------------------------------------------

_FROM = frozenset({"#depart"})
_TO = frozenset({"#arrive"})


@dataclass(frozen=True, slots=True)
class Sheet:
    """One attribute as the patterns know it. `cues` are senses with a weight: 1 for its own words, less for kind words."""

    definition: AttributeDefinition
    kind: ValueKind
    choices: tuple[Any, ...]
    group: str
    cues: dict[str, float] = field(repr=False)
    phrases: tuple[tuple[str, ...], ...]
    about: frozenset[str]
    roles: frozenset[str]
    own: frozenset[str]
    sort: str

    @property
    def name(self) -> str:
        """The attribute's name."""
        return self.definition.name


def sheet(definition: AttributeDefinition) -> Sheet:
    """Read a definition."""
    kind, choices = kind_of(definition)
    name = definition.name.replace("/", ".")
    group, _, last = name.rpartition(".")
    own = words(last)
    first = words(_first_sentence(definition.description))
    cues: dict[str, float] = {}
    for word in (*own, *first):
        if word in STOP or word.isdigit():
            continue
        weight = 0.5 if word in _KIND_WORDS else 1.0
        for sense in senses(word):
            if not (weight < 1 and sense.startswith("#")):
                cues[sense] = max(cues.get(sense, 0.0), weight)
    phrases = []
    for phrase in (*definition.cues, *definition.aliases):
        stems = tuple(stem(word) for word in words(phrase))
        if stems:
            phrases.append(stems)
            if len(stems) == 1:
                cues[stems[0]] = 1.5
    lead = [word for word in words(last + " " + _first_sentence(definition.description)) if word not in STOP]
    roles = set()
    for word in lead:
        for sense in senses(word):
            if sense in ("#depart", "#arrive", "#back"):
                roles.add(sense)
    if "#back" in roles:
        roles.discard("#arrive")
    if roles >= {"#depart", "#arrive"}:
        roles -= {"#depart", "#arrive"} if not set(own) & {"departure", "arrival", "leaving"} else {"#arrive"}
    rest = definition.description[len(_first_sentence(definition.description)) :]
    about = frozenset(
        sense
        for word in (*words(group), *words(rest))
        if word not in STOP and not word.isdigit()
        for sense in senses(word)
    )
    return Sheet(
        definition,
        kind,
        choices,
        group,
        cues,
        tuple(phrases),
        about,
        frozenset(roles),
        frozenset(sense for word in own if word not in STOP for sense in senses(word)),
        _sort(own, first) if kind == "place" else "",
    )


_SORTS = ("station", "airport", "venue", "hotel", "restaurant", "theater", "museum", "office", "school", "hospital")
_CITIES = word_set("city town country village region hometown state port island")


def _sort(own: Sequence[str], first: Sequence[str]) -> str:
    """Return what sort of place is meant: "street", "city", one of `_SORTS`, or none in particular."""
    if {"address", "street"} & {*own, *first}:
        return "street"
    if _CITIES & {*own, *first[:3]}:
        return "city"
    return next((word for word in _SORTS if word in own), "")


# --- spellings of a choice ------------------------------------------------------------------------------------------


def spellings(choice: str) -> Iterable[tuple[str, ...]]:
    """Yield the forms by which a text may name a choice, as tuples of lower-case words; its own spelling first."""
    base = tuple(word.lower() for word in re.findall(r"[\w’']+", choice.replace("_", " ")))
    if not base:
        return
    seen = {base}
    yield base
    forms = [base]
    for one, other in _SPELLINGS:
        for form in list(forms):
            for here, there in ((one, other), (other, one)):
                if here in form:
                    forms.append(tuple(there if word == here else word for word in form))
    for form in list(forms):
        last = form[-1]
        if len(last) >= 3 and not last[-1].isdigit():
            forms.append((*form[:-1], last[:-1] if last.endswith("s") and not last.endswith("ss") else last + "s"))
            if last.endswith("y"):
                forms.append((*form[:-1], last[:-1] + "ies"))
            if last.endswith(("sh", "ch", "x", "ss")):
                forms.append((*form[:-1], last + "es"))
        if len(form) == 1 and len(last) >= 4:
            forms += [(last + "ly",), (last + "er",), (last + "ern",), (last[:-1] + "ly",)] if last[-1] != "y" else []
        if len(form) >= 2:
            forms.append(("".join(form),))
    if len(base) == 1 and "-" not in choice and len(base[0]) >= 8:
        # "guesthouse" is also written "guest house".
        forms += [(base[0][:cut], base[0][cut:]) for cut in range(4, len(base[0]) - 3)]
    for form in forms:
        if form not in seen:
            seen.add(form)
            yield form


def shared(sheets: Sequence[Sheet]) -> dict[str, Counter[str]]:
    """Return, by group, how many of its attributes know each cue."""
    found: dict[str, Counter[str]] = {}
    for each in sheets:
        found.setdefault(each.group, Counter()).update(each.cues.keys())
    return found
