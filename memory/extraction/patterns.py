"""Facts from what people write, by the attributes' cues and kinds of value. No model, no network, no clock.

1. Only a user's message speaks for its subject: other roles, and sentences that instruct the agent, give nothing.
2. Typed values are found (`typed_values`), choices by their spellings, open values by the words around them.
3. Each value is held against each attribute that may have it. What speaks for or against the pair becomes a handful of
   features; their weights give the confidence.
4. The best pairs are taken, each value and each attribute once; what is below the threshold is left.

Same arguments, same answer.
"""

from __future__ import annotations

import math
import re
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from memory.extraction.checks import compared
from memory.extraction.cues import Sheet, senses, shared, sheet, spellings, word_set, words
from memory.extraction.protocol import AttributeSlice, EpisodeText, Evidence, Proposal
from memory.extraction.typed_values import WEEKDAYS, Mention, typed
from memory.extraction.weights import SETTLED, THRESHOLD, WEIGHTS
from policies.detection.hostile import instructions
from policies.detection.reading import Reading
from policies.values import SchemaRefused, ValueRefused, canonical
from policies.vocabulary import Cardinality

#: A longer text is no message: only its first part is read.
MAX_CHARACTERS = 20_000
#: A longer sentence is none: it is passed over.
MAX_SENTENCE = 2_000
#: Of an attribute that waits for recurrence weaker signals are heard too, and told as no more than this.
WEAKEST, WEAK = 0.3, 0.49
_AGAINST_BARE = frozenset(("bare_alone", "cover_alone"))
_QUESTIONS = frozenset(("asks_self", "asks", "asks_if", "question"))
_MAX_CACHED = 256

_WORD = re.compile(r"\d+(?=-[^\W\d])|[^\W_]+(?:['’.-][^\W_]+)*|n't|'[a-z]+|[^\w\s]")
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=\S)|\n+")
_ABBREVIATED = re.compile(r"(?:\b(?:st|dr|mr|mrs|ms|no|vs|mt|ft|ave|jr|sr|[a-z])|[ap]\.m)\.$", re.I)
_BREAKS = frozenset((",", ";", ":", "but", "if", "although", "though", "because", "unless", "since"))
_NOT = frozenset(
    (
        "not",
        "n't",
        "no",
        "never",
        "without",
        "except",
        "cannot",
        "don't",
        "doesn't",
        "isn't",
        "won't",
        "didn't",
        "can't",
        "neither",
        "nor",
    )
)
_NOT_PAIRS = frozenset(
    (("instead", "of"), ("rather", "than"), ("other", "than"), ("anything", "but"), ("no", "longer"), ("used", "to"))
)
_CORRECTS = re.compile(
    r"\b(?:actually|instead|rather|correction|sorry|i meant|change|changed|switch|make (?:it|that)|it(?: i|')s now|update|no longer|now)\b"
)
_WISHES = re.compile(
    r"\b(?:want|wanna|need|look(?:ing)?|find|search|book|reserve|like|prefer|make|get|give|would|love|try|set|check|remember|note|should|has to|how about|what about|please|for|going|leav\w+|arriv\w+)\b"
)
_ASKS = re.compile(
    r"^(?:(?:and|so|ok|okay|great|thanks|also|well|but|yes|,|\.)\s+)*(?:what|which|where|when|who|how (?!about)|why|is (?:it|that|this|the|he|she)|was|does|do (?:they|you)|did|are (?:they|the)|can (?:you|i) (?:get|have|tell)|may i|could (?:you|i) (?:tell|have|get))"
)
_ASKS_SELF = re.compile(
    r"^(?:\W|and |so |but |or )*(?:do|am|did|was|were|have|are|what|where|when|which|who|how)\b[^?.!]*\b(?:i|we|my|our|mine|ours)\b[^?]*\?\s*$"
)
_ASKS_IF = re.compile(
    r"^(?:\W|and |so |but |ok |okay |great |also )*(?:is|are|was|were|does|do|did|has|have|will)\b (?!there\b|you have\b|you know\b|they have\b)[^?]*\?"
)
_OTHERS = re.compile(
    r"\b(?:my|our|his|her|their|the|a)(?: \w+)? (?P<who>colleague|friend|boss|manager|wife|husband|partner|spouse|mother|father|mom|mum|dad|"
    r"parents?|brother|sister|son|daughter|child|kid|cousin|uncle|aunt|neighbou?r|roommate|girlfriend|boyfriend|client|customer|teammate|"
    r"coworker|co-worker|grandmother|grandfather)s?\b(?!['’]s? \w+ (?:is|are)\b)|^(?:\W|and |but |so )*(?P<pronoun>he|she|they)\b"
)
_WANTS_INFO = re.compile(
    r"\b(?:address|phone number|postcode|what is|what's|what are|tell me|give me the|is it|does it|do they|does the|how much|how long|what time|what kind|what type|which)\b"
)
_FIRST = frozenset(("i", "i'm", "my", "me", "we", "our", "i've", "i’m", "mine", "us", "i'd", "i'll"))
_GREETING = re.compile(
    r"^\W*(?:hi|hello|hey|thanks|thank you|thx|bye|goodbye|good (?:morning|afternoon|evening|night|day|bye)|cheers|welcome|ok(?:ay)?|great|perfect)?(?:[\s,.!]+(?:there|all|you|very much|so much|again|a lot|everyone))*\W*$"
)
_CLOSES = re.compile(
    r"\b(?:that|this|it|thats|it's|that's)\b ?(?:'s|is|was|will be|'ll be|would be|should be|does|do)? ?(?:all?|it|everything|do it)\b(?! right)"
)
_YES = re.compile(r"^\W*(?:yes|yeah|yep|yup|sure|correct|right|of course|absolutely|definitely|please do)\b")
_NO = re.compile(r"^\W*(?:no|nope|not really|nah)\b")
_FROM = frozenset(("from", "leaving", "departing", "depart", "leave", "out"))
_TO = frozenset(("to", "into", "towards", "toward", "reach", "heading", "going", "visit", "arriving", "for"))
_IN = frozenset(("in", "at", "near", "around", "within", "outside", "close"))
_BY = frozenset(("by", "before", "until"))
_AFTER = frozenset(("after", "at", "from", "around", "leaving", "past"))
_LED = re.compile(
    r"\b(?P<cue>called|named|titled|name is|name's|name|at|from|to|in|by|with|of|is|for|near|the|about|see|starring|directed by)\s+(?=\w)",
    re.I,
)
_COMES = frozenset(("am", "'m", "i'm", "i’m", "are", "come", "comes", "came"))
# Where a run of open words ends.
_STOPS = word_set("""and or but on at by in to from for with that which who please thanks thank , . ; : ! ? ( ) - i we you it is are was will
    would can could should leaving arriving departing going as than then if so instead be after before around have has do does need
    want today tomorrow tonight this next of n't 'd 's 'll 'm about some any when because""")
_SHALLOW = word_set("""the a an my your our his her its their there here i'm i i'd i'll i've we you it that this what where when which how who why
    yes no ok okay please thanks thank great hi hello hey sure could can would will do does is are find book also and but so make
    need let looking actually search any some perfect sounds good well yeah yep right hmm nope no. it's that's what's where's
    how's let's are there's unfortunately may um oh cool awesome nice alright wow in on at for to from if reserve play show get
    give tell for not set add just change try confirm correct want have am go depart leave travel see eat be arrive visit stay come return""")
# What stands before a noun without telling its kind.
_PLAIN = word_set("""good nice great best better new old other another same different more many few several next last first second local nearby
    cheap cheaper expensive moderate affordable interesting fun special specific particular certain popular real whole total
    big small large little long short free online single double live such every each both own favorite favourite rental
    public available decent fancy upscale romantic cool latest recent upcoming suitable preferred top two three four five
    table hotel dinner room ticket tickets book booking watch rent see play find reserve cancel listen listening hear attend""")
_SORTING = frozenset(
    sense
    for word in sorted(word_set("category genre type kind cuisine sport subcategory style"))
    for sense in senses(word)
)
_CHANGED = re.compile(
    r"\b(?:since|as of|starting|effective|moved|changed|switched|became|joined|started|relocated)\b[^.;,!?]{0,40}$"
)


# Where one thing said ends and another begins: "I moved last week, and we are on the large plan" dates the move alone,
# while the comma of "since May, I live in Rome" ends nothing.
_CLAUSE = re.compile(
    r";|,\s+(?:and|but|so|while)\b|\b(?:and|but)\s+(?=(?:i|we|my|our|it|they|he|she|now)\b)", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class _Word:
    text: str
    start: int
    end: int
    senses: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Sentence:
    text: str = field(repr=False)
    start: int
    words: tuple[_Word, ...] = field(repr=False)
    places: dict[str, list[int]] = field(repr=False)
    does: dict[str, float]
    other: str | None


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A value for one attribute, at the words first..last of a sentence."""

    sheet: int
    value: Any = field(repr=False)
    kind: str
    start: int
    end: int
    first: int
    last: int
    sentence: int
    form: str
    said: tuple[int, int] | None = None


class _Table:
    """The slice of attributes, read once: their sheets, and every spelling of every choice by its first word."""

    def __init__(self, attributes: Sequence[AttributeSlice]) -> None:
        self.definitions = [each.definition for each in attributes]
        self.sheets: list[Sheet] = [sheet(definition) for definition in self.definitions]
        self.spelled: dict[str, list[tuple[tuple[str, ...], int, str, bool]]] = {}
        names = {" ".join(words(each.name.rpartition(".")[2])) for each in self.sheets}
        self.kinds: set[str] = set()
        for number, each in enumerate(self.sheets):
            self.kinds.add(each.kind)
            if each.kind != "choice":
                continue
            for choice in each.choices:
                if " ".join(words(choice)) in names and len(each.choices) > 1:
                    # What names another attribute is spoken of, not chosen: "the address, please".
                    continue
                for place, form in enumerate(spellings(choice)):
                    self.spelled.setdefault(form[0], []).append((form, number, choice, place == 0))
        for forms in self.spelled.values():
            forms.sort(key=lambda item: -len(item[0]))
        counts = shared(self.sheets)
        everywhere: dict[str, int] = {}
        for each in self.sheets:
            for cue in each.cues:
                everywhere[cue] = everywhere.get(cue, 0) + 1
        self.own: list[dict[str, float]] = []
        self.topic: dict[str, frozenset[str]] = {}
        sizes: dict[str, int] = {}
        for each in self.sheets:
            sizes[each.group] = sizes.get(each.group, 0) + 1
        for group, size in sizes.items():
            common = {cue for cue, count in counts[group].items() if count >= max(3, size * 0.4)}
            about = {cue for each in self.sheets if each.group == group for cue in each.about}
            self.topic[group] = frozenset(common | about)
        for each in self.sheets:
            count = counts[each.group]
            head = {sense for word in words(each.group) for sense in senses(word)}
            self.own.append(
                {
                    cue: weight / math.sqrt(count[cue])
                    for cue, weight in each.cues.items()
                    if cue not in head or cue in each.own
                }
            )
        # A yes or no is told by the name's own telling words, not by what else the description speaks of.
        self.flags: list[dict[str, float]] = [
            {
                cue: weight
                for cue, weight in own.items()
                if cue in each.own
                and cue not in self.topic[each.group]
                and not cue.startswith("#")
                and cue not in _FLAT
            }
            for each, own in zip(self.sheets, self.own, strict=True)
        ]
        self.rivals: dict[str, int] = {}
        self.in_group: dict[tuple[str, str], int] = {}
        for each in self.sheets:
            self.rivals[each.kind] = self.rivals.get(each.kind, 0) + 1
            self.in_group[each.group, each.kind] = self.in_group.get((each.group, each.kind), 0) + 1
        groups = set(sizes)
        self.telling: dict[str, dict[str, float]] = {}
        for group in groups:
            self.telling[group] = {
                cue: 1.0 / sum(cue in self.topic[other] for other in groups) for cue in self.topic[group]
            }
        self.wanted = frozenset(name for name, kinds in _FINDS.items() if any(kind in self.kinds for kind in kinds))


_FLAT = frozenset(
    sense
    for word in sorted(
        word_set(
            "allowed available options option offers offered includes included good serves has with next online possible"
        )
    )
    for sense in senses(word)
)
_FINDS = {
    "date": ("date", "date-time"),
    "time": ("time", "date-time"),
    "number": ("number", "money"),
    "money": ("money",),
    "email": ("email",),
    "phone": ("phone",),
    "url": ("url",),
    "name": ("name", "place", "words"),
}
_TAKES = {
    "date": ("date",),
    "time": ("time",),
    "number": ("number", "money"),
    "money": ("money",),
    "email": ("email",),
    "phone": ("phone",),
    "url": ("url",),
    "quoted": ("name", "words"),
    "name": ("name", "place", "words"),
    "run": ("name", "place"),
}


class PatternExtractor:
    """Reads messages by cues and typed values. Keeps what it read of definitions, bounded; holds no content."""

    name = "patterns/1"
    remote = False

    def __init__(self, *, threshold: float = THRESHOLD) -> None:
        self._threshold = threshold
        self._tables: OrderedDict[tuple[int, ...], _Table] = OrderedDict()

    def extract(self, episode: EpisodeText, attributes: Sequence[AttributeSlice]) -> list[Proposal]:
        """Return what the user says here of these attributes, in the order of the text.

        What an attribute that waits for recurrence may be told by is proposed as a weak signal, below one half.
        """
        return [proposal for proposal, _ in self.explained(episode, attributes)]

    def explained(
        self, episode: EpisodeText, attributes: Sequence[AttributeSlice], *, threshold: float | None = None
    ) -> list[tuple[Proposal, dict[str, float]]]:
        """Return the proposals with the features that decided them; for tests and for fitting the weights."""
        if episode.kind != "message" or episode.role != "user" or not attributes:
            return []
        text = episode.content[:MAX_CHARACTERS]
        if _GREETING.match(text.lower()):
            return []
        table = self._table(attributes)
        reading = _Read(episode, text, attributes, table)
        least = self._threshold if threshold is None else threshold
        return reading.proposals(least)

    def _table(self, attributes: Sequence[AttributeSlice]) -> _Table:
        key = tuple(id(each.definition) for each in attributes)
        table = self._tables.get(key)
        # An id may be used again for another definition once the first is gone; the table keeps its own alive.
        if table is None:
            table = self._tables[key] = _Table(attributes)
            while len(self._tables) > _MAX_CACHED:
                self._tables.popitem(last=False)
        return table


def _sentences(text: str) -> Iterator[tuple[int, str]]:
    start = 0
    for gap in _SENTENCE.finditer(text):
        if "\n" not in gap.group() and _ABBREVIATED.search(text, max(start, gap.start() - 6), gap.start()):
            continue
        if text[start : gap.start()].strip():
            yield start, text[start : gap.start()]
        start = gap.end()
    if text[start:].strip():
        yield start, text[start:]


def _read_sentence(text: str, start: int) -> _Sentence:
    found: list[_Word] = []
    places: dict[str, list[int]] = {}
    if len(text) > MAX_SENTENCE:
        return _Sentence(text, start, (), places, {}, None)
    for match in _WORD.finditer(text):
        word = match.group().lower()
        of = senses(word) if word[0].isalnum() else frozenset((word,))
        for sense in of:
            places.setdefault(sense, []).append(len(found))
        found.append(_Word(word, start + match.start(), start + match.end(), of))
    low = text.lower()
    does = {
        "asks_self": _ASKS_SELF.match(low) is not None,
        "asks": _ASKS.match(low) is not None,
        "closes": _CLOSES.search(low) is not None,
        "wants_info": _WANTS_INFO.search(low) is not None,
        "wish": _WISHES.search(low) is not None,
        "first_person": any(word.text in _FIRST for word in found),
    }
    does["asks_if"] = not does["asks_self"] and _ASKS_IF.match(low) is not None
    does["question"] = not does["asks"] and low.rstrip().endswith("?")
    other = _OTHERS.search(low)
    return _Sentence(
        text,
        start,
        tuple(found),
        places,
        {name: 1.0 for name, holds in does.items() if holds},
        None if other is None else other["who"] or "",
    )


def _said_role(said: Sequence[_Word], first: int, reach: int) -> str:
    """Return the role that the nearest verb before a value gives it."""
    for place in range(first - 1, max(-1, first - 1 - reach), -1):
        for role in ("#back", "#depart", "#arrive"):
            if role in said[place].senses:
                return role
    return ""


class _Read:
    """One episode, being read."""

    def __init__(self, episode: EpisodeText, text: str, attributes: Sequence[AttributeSlice], table: _Table) -> None:
        self.episode, self.text, self.attributes, self.table = episode, text, attributes, table
        self.sentences = [_read_sentence(part, start) for start, part in _sentences(text)]
        commands = [(start, end) for start, end, *_ in instructions(Reading(text))]
        self.silent = {
            number
            for number, each in enumerate(self.sentences)
            if any(start < each.start + len(each.text) and each.start < end for start, end in commands)
        }
        self.lower = text.lower()
        self.corrects = _CORRECTS.search(self.lower) is not None
        self.count = sum(word.text[0].isalnum() for each in self.sentences for word in each.words)
        self.last = next((turn.content for turn in reversed(episode.before) if turn.role == "assistant"), "")
        if episode.before and episode.before[-1].role != "assistant":
            self.last = ""
        self.last_lower = self.last.lower()
        self.asked_flags: set[int] = set()
        self.asked = self._asked()
        self.activity = self._activity()

    # What is being talked about

    def _asked(self) -> dict[int, float]:
        """Return how much the assistant's last question asks for each attribute."""
        if not self.last:
            return {}
        parts = [part for _, part in _sentences(self.last[-600:])]
        question = next((part for part in reversed(parts) if "?" in part), parts[-1] if parts else "")
        of = {sense for word in _WORD.findall(question.lower()) for sense in senses(word)}
        lowered = question.lower()
        kinds = set()
        if re.search(r"\bwhat time|\bwhen\b|time\b", lowered):
            kinds.add("time")
        if re.search(r"\bwhat (?:day|date)|\bwhich (?:day|date)|\bwhen\b|\bday\b|\bdate\b", lowered):
            kinds.add("date")
        if re.search(r"\bhow many\b|\bhow long\b|\bnumber of\b", lowered):
            kinds.add("number")
        if re.search(r"\bhow much\b|\bamount\b", lowered):
            kinds.add("money")
        if re.search(r"\bwhere\b|\b(?:what|which) (?:city|town|area|location|place)\b|\bcity\b|\blocation\b", lowered):
            kinds.add("place")
        found: dict[int, float] = {}
        for number, own in enumerate(self.table.own):
            each = self.table.sheets[number]
            if each.kind == "boolean" and "?" in question and not of.isdisjoint(self.table.flags[number]):
                self.asked_flags.add(number)
            score = sum(weight for cue, weight in own.items() if cue in of)
            kind = each.kind if each.kind != "choice" or not each.cues.keys() & {"day", "dat"} else "date"
            if kind in kinds:
                score += 0.7
            if score:
                found[number] = score
        return found

    def _activity(self) -> dict[str, float]:
        """Return how much each group of attributes is being talked about."""
        scores = dict.fromkeys(self.table.topic, 0.0)
        if len(scores) < 2:
            return scores
        texts = [(self.lower, 3.0)]
        weight = 1.5
        for turn in list(reversed(self.episode.before))[:3]:
            texts.append((turn.content[-1_000:].lower(), weight))
            weight *= 0.6
        for text, weight in texts:
            of = {sense for word in _WORD.findall(text) for sense in senses(word)}
            for group, telling in self.table.telling.items():
                hits = sorted((telling[sense] for sense in of if sense in telling), reverse=True)[:3]
                scores[group] += weight * sum(hits)
        newest: tuple[datetime, str] | None = None
        for number, each in enumerate(self.attributes):
            for stored in each.current:
                if stored.since is not None and (newest is None or stored.since > newest[0]):
                    newest = (stored.since, self.table.sheets[number].group)
        if newest is not None:
            scores[newest[1]] += 2.0
        return scores

    # Values

    def _candidates(self) -> Iterator[_Candidate]:
        today = self.episode.occurred_at.date()
        for number, sentence in enumerate(self.sentences):
            if number in self.silent or not sentence.words:
                continue
            taken: list[tuple[int, int]] = []
            chosen = list(self._choices(number, sentence))
            yield from chosen
            for mention in typed(sentence.text, today, self.table.wanted):
                for one in self._typed(number, sentence, mention):
                    taken.append((one.start, one.end))
                    yield one
            taken += [(each.start, each.end) for each in chosen]
            if {"name", "place"} & self.table.kinds:
                yield from self._runs(number, sentence, taken)
            if "words" in self.table.kinds:
                yield from self._modifiers(number, sentence, taken)
            if "boolean" in self.table.kinds:
                yield from self._booleans(number, sentence)

    def _choices(self, number: int, sentence: _Sentence) -> Iterator[_Candidate]:
        said = sentence.words
        covered = -1
        for place, word in enumerate(said):
            forms = self.table.spelled.get(word.text)
            if not forms or place <= covered:
                continue
            longest = 0
            for form, of, choice, exact in forms:
                size = len(form)
                if size < longest or place + size > len(said):
                    continue
                if all(said[place + step].text == form[step] for step in range(1, size)):
                    longest = size
                    covered = place + size - 1
                    yield _Candidate(
                        of, choice, "choice", word.start, said[covered].end, place, covered, number,
                        "exact" if exact else "spelled",
                    )  # fmt: skip

    def _span(self, sentence: _Sentence, start: int, end: int) -> tuple[int, int] | None:
        first = next((place for place, word in enumerate(sentence.words) if word.end > start), None)
        if first is None:
            return None
        last = first
        while last + 1 < len(sentence.words) and sentence.words[last + 1].start < end:
            last += 1
        return first, last

    def _typed(self, number: int, sentence: _Sentence, mention: Mention) -> Iterator[_Candidate]:
        start, end = sentence.start + mention.start, sentence.start + mention.end
        if mention.kind == "name":
            trimmed = self._trimmed(sentence, start, end)
            if trimmed is None:
                return
            start, end = trimmed
        span = self._span(sentence, start, end)
        if span is None:
            return
        takes = _TAKES[mention.kind]
        for of, each in enumerate(self.table.sheets):
            if each.kind in takes or (each.kind == "date-time" and mention.kind == "date"):
                value = self._value(each, mention, start, end)
                if value is not None:
                    yield _Candidate(of, value, mention.kind, start, end, *span, number, mention.kind)

    def _trimmed(self, sentence: _Sentence, start: int, end: int) -> tuple[int, int] | None:
        """Cut words off a capitalised run that are capitalised only because they begin a sentence."""
        inside = [word for word in sentence.words if word.start < end and word.end > start]
        while inside and inside[0].text in _SHALLOW:
            inside.pop(0)
        while inside and (inside[-1].text in _SHALLOW or not inside[-1].text[0].isalnum()):
            if inside[-1].text == "." and len(inside) > 1 and len(inside[-2].text) <= 4:
                break
            inside.pop()
        if not inside or inside[0].text in WEEKDAYS:
            return None
        first = inside[0]
        if first.start == sentence.words[0].start and len(inside) == 1 and len(sentence.words) > 2:
            return None
        before = [word for word in sentence.words if word.end <= first.start]
        if before and before[-1].text.isdigit() and before[-1].end + 1 == first.start and len(inside) > 1:
            first = before[-1]
        return first.start, max(
            inside[-1].end,
            min(end, inside[-1].end + 1)
            if self.text[inside[-1].end : inside[-1].end + 1] == "." and end > inside[-1].end
            else inside[-1].end,
        )

    def _value(self, each: Sheet, mention: Mention, start: int, end: int) -> Any:
        literal = self.text[start:end]
        schema = each.definition.value_schema
        if schema.get("type") == "array" and isinstance(schema.get("items"), dict):
            schema = schema["items"]
        types = schema.get("type")
        numeric = types in ("integer", "number") or (
            isinstance(types, list) and not {"integer", "number"}.isdisjoint(types)
        )
        if mention.kind in ("number", "money"):
            amount = mention.value
            if not isinstance(amount, Decimal) or len(amount.as_tuple().digits) > 15:
                return None
            whole = amount == amount.to_integral_value()
            if each.choices:
                return next((choice for choice in each.choices if str(choice) == format(amount.normalize(), "f")), None)
            if numeric:
                return int(amount) if whole else None if types == "integer" else float(amount)
            return format(amount.quantize(Decimal(1)) if whole else amount, "f")
        if mention.kind == "date":
            if schema.get("format") == "date":
                return mention.value
            if schema.get("format") == "date-time":
                return None if mention.value is None else f"{mention.value}T00:00:00Z"
            # Free text keeps the words: they lose nothing. `format: date` asks for the day that is meant.
            return literal
        if mention.kind == "time":
            if schema.get("format") == "time":
                return None if mention.value is None else f"{mention.value}:00Z"
            return mention.value
        if numeric:
            return None
        return literal

    def _runs(self, number: int, sentence: _Sentence, taken: list[tuple[int, int]]) -> Iterator[_Candidate]:
        """Yield runs of words that follow a word such as "called", "from" or "at", where none is capitalised."""
        said = sentence.words
        for found in _LED.finditer(sentence.text):
            cue = found["cue"].lower()
            start = sentence.start + found.end()
            first = next((place for place, word in enumerate(said) if word.start >= start), None)
            if first is None:
                continue
            if said[first].text in ("the", "a", "an"):
                first += 1
            last = first
            while (
                last < len(said)
                and last - first < 6
                and (said[last].text not in _STOPS or (said[last].text == "of" and last > first))
            ):
                last += 1
            last -= 1
            if last < first or said[first].text in _SHALLOW:
                continue
            start, end = said[first].start, said[last].end
            if any(start < there and here < end for here, there in taken) or any(
                word.text.isdigit() for word in said[first : last + 1]
            ):
                continue
            for of, each in enumerate(self.table.sheets):
                if each.kind not in ("name", "place"):
                    continue
                if each.definition.value_schema.get("type") == "array":
                    continue
                yield _Candidate(of, self.text[start:end], "run", start, end, first, last, number, f"run_{cue}")

    def _modifiers(self, number: int, sentence: _Sentence, taken: list[tuple[int, int]]) -> Iterator[_Candidate]:
        """Yield the word before what a group of attributes is about: "a jazz concert" for the kind of an event."""
        said = sentence.words
        for of, each in enumerate(self.table.sheets):
            if each.kind != "words" or not each.own & _SORTING:
                continue
            heads = self.table.topic[each.group] | self.table.own[of].keys()
            for place in range(1, len(said)):
                word, before = said[place], said[place - 1]
                if heads.isdisjoint(word.senses) or not before.text.isalpha() or len(before.text) < 3:
                    continue
                if before.text in _PLAIN or before.text in _STOPS or before.text in _SHALLOW or heads & before.senses:
                    continue
                if any(before.start < end and start < before.end for start, end in taken):
                    continue
                value = self.text[before.start : before.end]
                yield _Candidate(
                    of, value, "modifier", before.start, before.end, place - 1, place - 1, number, "modifier"
                )

    def _booleans(self, number: int, sentence: _Sentence) -> Iterator[_Candidate]:
        answer = None
        if number == 0 and self.last:
            head = self.sentences[0].text.lower()
            answer = True if _YES.match(head) else False if _NO.match(head) else None
        for of, each in enumerate(self.table.sheets):
            if each.kind != "boolean":
                continue
            best = max(
                ((cue, place) for cue in self.table.flags[of] for place in sentence.places.get(cue, ())),
                key=lambda item: self.table.flags[of][item[0]],
                default=None,
            )
            if best is not None:
                place = best[1]
                word = sentence.words[place]
                value = self._flag(each, not self._negated(sentence, place, place))
                if value is not None:
                    yield _Candidate(of, value, "boolean", word.start, word.end, place, place, number, "flag")
            elif answer is not None and of in self.asked_flags:
                word = sentence.words[0]
                value = self._flag(each, answer)
                if value is not None:
                    yield _Candidate(of, value, "boolean", word.start, word.end, 0, 0, number, "answer")

    @staticmethod
    def _flag(each: Sheet, yes: bool) -> Any:
        wanted = ("true", "yes", "y") if yes else ("false", "no", "n")
        return next((choice for choice in each.choices if str(choice).lower() in wanted), None)

    # Features

    def _negated(self, sentence: _Sentence, first: int, last: int) -> bool:
        said = sentence.words
        for place in range(first - 1, max(-1, first - 6), -1):
            word = said[place].text
            if word in _BREAKS and word != ":":
                break
            if word in _NOT and not (word == "no" and place == 0):
                return True
            if place and (said[place - 1].text, word) in _NOT_PAIRS:
                return True
        return False

    def _features(self, one: _Candidate) -> dict[str, float]:
        table, sentence = self.table, self.sentences[one.sentence]
        each, own, said = table.sheets[one.sheet], table.own[one.sheet], self.sentences[one.sentence].words
        found: dict[str, float] = {"bias": 1.0, f"kind_{one.kind}": 1.0}
        # Cues near the value
        best, total = 0.0, 0.0
        unit = False
        for cue, weight in own.items():
            for place in sentence.places.get(cue, ()):
                if one.first <= place <= one.last:
                    continue
                gap = place - one.last if place > one.last else one.first - place
                if place == one.last + 1 and weight >= 0.4:
                    unit = True
                near = weight / (1.0 + max(0, gap - 1) / 3.0)
                if near > best:
                    best = near
                total += near
        found["near"] = min(best, 1.0)
        found["total"] = min(total, 2.0)
        if unit:
            found["next"] = 1.0
            if one.kind == "number":
                found["unit"] = 1.0
        phrase = self._phrase(each, sentence, one)
        if phrase:
            found["phrase"] = 1.0
        asked = self.asked.get(one.sheet, 0.0)
        top = max(self.asked.values(), default=0.0)
        if asked:
            found["asked"] = min(asked, 1.5)
            if asked == top and top >= 0.4:
                found["asked_most"] = 1.0
        # The only one that it can be
        kin = table.rivals[each.kind]
        if kin == 1:
            found["only"] = 1.0
        elif table.in_group[each.group, each.kind] == 1:
            found["only_in_group"] = 1.0
        activity = self.activity[each.group]
        most = max(self.activity.values(), default=0.0)
        if len(self.activity) > 1:
            if activity == most:
                found["topic"] = 1.0
            found["off_topic"] = min((most - activity) / 3.0, 1.5)
        # Roles
        lead = self._lead(said, one.first)
        role = self._role(each, said, one, lead)
        if role:
            found["role" if role > 0 else "other_role"] = 1.0
            if role > 0 and each.roles and one.kind == "name":
                found["role_of_name"] = 1.0
        if each.sort:
            literal = self.text[one.start : one.end].lower()
            if each.sort == "street":
                found["street" if any(character.isdigit() for character in literal) else "no_street"] = 1.0
            elif each.sort == "city":
                found["city"] = 1.0
                if lead == "at":
                    found["city_at"] = 1.0
            else:
                found["sort" if each.sort in literal else "other_sort"] = 1.0
        if one.kind in ("name", "run"):
            found[f"open_{each.kind}"] = 1.0
            if lead in _IN | _FROM | _TO:
                found[f"placed_{each.kind}"] = 1.0
            if lead in ("called", "named", "titled"):
                found["called"] = 1.0
            if each.kind == "name" and lead in ("in", "at", "by", "with", "watch", "see", "try", "play", "for"):
                found[f"name_{lead}"] = 1.0
            if each.kind == "name" and lead and not each.own.isdisjoint(senses(lead)):
                found["name_after_cue"] = 1.0
            size = one.last - one.first + 1
            found["long_run"] = min(size, 4) / 4.0
            if one.form == "run_the" or one.form == "run_is" or one.form == "run_for":
                found["weak_run"] = 1.0
            literal = self.text[one.start : one.end].lower()
            inside = words(literal)
            known = own.keys() | table.topic[each.group]
            if len(inside) > 1 and senses(inside[-1]) & known:
                found["cue_at_end"] = 1.0
            elif any(senses(word) & known for word in inside):
                found["cue_inside"] = 1.0
        if one.form == "spelled":
            found["spelled"] = 1.0
        if one.kind == "choice":
            literal = self.text[one.start : one.end].lower()
            if len(literal) <= 4:
                found["short_choice"] = 1.0
            if any(
                sense in own or sense in table.topic[each.group]
                for word in said[one.first : one.last + 1]
                for sense in word.senses
            ):
                found["choice_is_cue"] = 1.0
            if one.first != one.last:
                found["many_words"] = 1.0
        if one.kind == "number":
            if each.kind == "money":
                found["bare_money"] = 1.0
            if "unit" not in found and one.last + 1 < len(said):
                after = said[one.last + 1].senses
                if said[one.last + 1].text == "-" and one.last + 2 < len(said):
                    after = said[one.last + 2].senses
                    if any(own.get(sense, 0.0) >= 0.4 for sense in after):
                        found["unit"] = 1.0
                if "unit" not in found and any(
                    other != one.sheet
                    and table.sheets[other].kind == "number"
                    and table.own[other].get(sense, 0.0) >= 0.4
                    for other in range(len(table.sheets))
                    for sense in after
                ):
                    found["other_unit"] = 1.0
            if not self.text[one.start].isdigit():
                found["number_word"] = 1.0
                if self.text[one.start : one.end].lower() == "one":
                    found["one"] = 1.0
            if (
                lead == "for"
                and one.last + 1 < len(said)
                and said[one.last + 1].text in (".", "?", "at", "on", ",", "please")
            ):
                found["for_number"] = 1.0
        if lead == "from" and "#depart" in each.roles and one.first >= 2 and said[one.first - 2].text in _COMES:
            found["comes_from"] = 1.0
        bare = not best and not asked and not phrase and "comes_from" not in found and one.kind != "boolean"
        if bare:
            found["bare"] = 1.0
            # Nothing says that this group is spoken of at all.
            if not each.group:
                found["bare_alone"] = 1.0
            elif not activity:
                found["bare_unknown"] = 1.0
        if each.own:
            named = [cue for cue in each.own if cue in own]
            covered = sum(own[cue] for cue in named if cue in sentence.places)
            found["own_cover"] = covered / sum(own[cue] for cue in named) if named else 0.0
            if not each.group and found["own_cover"] < 0.34 and not asked and not phrase and "comes_from" not in found:
                found["cover_alone"] = 1.0
        if asked and "asked_most" in found and one.last - one.first + 1 >= 0.34 * self.count:
            found["open_answer" if one.kind in ("name", "run") else "answer"] = 1.0
        # What the sentence does
        found.update(sentence.does)
        other = sentence.other
        if other is not None and (other == "" or each.cues.keys().isdisjoint(senses(other))):
            found["another_person"] = 1.0
        if self._assigned(each, own, said, one):
            found["assigned"] = 1.0
        current = self.attributes[one.sheet].current
        if current:
            found["held"] = 1.0
            if self.corrects:
                found["corrects"] = 1.0
        share = (one.last - one.first + 1) / max(1, self.count)
        if share >= 0.34:
            found["most_of_it"] = 1.0
        literal = self.text[one.start : one.end].lower()
        if (
            self.last_lower
            and len(literal) > 2
            and literal in self.last_lower
            and one.kind not in ("boolean", "number")
        ):
            found["echo"] = 1.0
        if one.kind == "boolean":
            found[f"bool_{one.form}"] = 1.0
            if "asks" in found or "question" in found:
                found["bool_asked"] = 1.0
            of = table.flags[one.sheet]
            if of and one.form == "flag":
                found["bool_cover"] = sum(of[cue] for cue in of if cue in sentence.places) / sum(of.values())
        return found

    @staticmethod
    def _phrase(each: Sheet, sentence: _Sentence, one: _Candidate) -> bool:
        for phrase in each.phrases:
            for place in sentence.places.get(phrase[0], ()):
                if (
                    all(
                        place + step < len(sentence.words) and phrase[step] in sentence.words[place + step].senses
                        for step in range(len(phrase))
                    )
                    and not (one.first <= place <= one.last)
                    and abs(place - one.first) <= 8
                ):
                    return True
        return False

    @staticmethod
    def _lead(said: Sequence[_Word], first: int) -> str:
        """Return the preposition or verb that leads a value, past articles."""
        place = first - 1
        while place >= 0 and said[place].text in ("the", "a", "an", "my", "about", "exactly", ":", "city", "town"):
            place -= 1
        if place < 0:
            return ""
        return said[place].text

    @staticmethod
    def _role(each: Sheet, said: Sequence[_Word], one: _Candidate, lead: str) -> int:
        """Return 1 where the words before a value give it the attribute's role (from, to, back), -1 for another one."""
        of = each.kind
        if one.kind in ("name", "run", "choice"):
            if of not in ("place", "choice", "name"):
                return 0
            role = "#depart" if lead in _FROM else "#arrive" if lead in _TO else ""
            if not role:
                if of == "place" and not each.roles and lead in _IN:
                    return 1
                if not each.roles or lead not in _IN:
                    return 0
                role = _said_role(said, one.first, 3)
                return 0 if not role else 1 if role in each.roles else -1
            if each.roles & {"#depart", "#arrive"}:
                return 1 if role in each.roles else -1
            return -1 if of == "place" or (of == "name" and lead in ("from", "in")) else 0
        if one.kind in ("time", "date"):
            role = ""
            if one.kind == "time" and lead in _BY:
                role = "#arrive" if _said_role(said, one.first, 6) != "#depart" else "#depart"
            elif lead in ("until", "till", "through"):
                role = "#back"
            elif lead in ("after", "leaving"):
                role = "#depart"
            if not role:
                role = _said_role(said, one.first, 7)
            if not role or not each.roles:
                return 0
            return 1 if role in each.roles else -1
        return 0

    @staticmethod
    def _assigned(each: Sheet, own: dict[str, float], said: Sequence[_Word], one: _Candidate) -> bool:
        """Whether the sentence says outright that the attribute is the value: "my favourite colour is now green"."""
        place = one.first - 1
        while place >= 0 and said[place].text in (
            "now",
            "the",
            "a",
            "an",
            "actually",
            "called",
            "on",
            "at",
            "in",
            "just",
            "by",
        ):
            place -= 1
        if place < 1 or said[place].text not in ("is", "are", ":", "=", "'s", "be", "to", "as", "was"):
            return False
        for back in range(place - 1, max(-1, place - 7), -1):
            if any(own.get(sense, 0.0) >= 0.35 for sense in said[back].senses):
                return said[place].text not in ("to", "was") or any(
                    word.text in ("change", "changed", "switch", "set", "update", "moved", "move")
                    for word in said[:place]
                )
            if said[back].text in _BREAKS:
                return False
        return False

    # Deciding

    def _mentioned(self, one: _Candidate, features: dict[str, float]) -> bool:
        """Whether a choice of an attribute that waits for recurrence is merely mentioned, and not asked about."""
        return (
            self.table.definitions[one.sheet].recurrence is not None
            and one.kind == "choice"
            and not _AGAINST_BARE.isdisjoint(features)
            and _QUESTIONS.isdisjoint(features)
            and "another_person" not in features
        )

    def proposals(self, least: float) -> list[tuple[Proposal, dict[str, float]]]:
        scored: list[tuple[float, int, _Candidate, dict[str, float]]] = []
        for order, one in enumerate(self._candidates()):
            if one.kind != "boolean" and self._negated(self.sentences[one.sentence], one.first, one.last):
                continue
            features = self._features(one)
            if self._mentioned(one, features):
                # What would count against a value that nothing leads to: here its coming again is what counts.
                features = {name: amount for name, amount in features.items() if name not in _AGAINST_BARE}
                features["mentioned"] = 1.0
            score = sum(WEIGHTS.get(name, 0.0) * amount for name, amount in features.items())
            scored.append((score, -order, one, features))
        rivals: dict[tuple[int, int], list[float]] = {}
        for score, _, one, _ in scored:
            rivals.setdefault((one.start, one.end), []).append(score)
        settled = []
        for score, order, one, features in scored:
            others = sorted(rivals[one.start, one.end], reverse=True)
            margin = score - others[0] if score < others[0] else score - others[1] if len(others) > 1 else 4.0
            features["margin"] = max(-4.0, min(4.0, margin)) / 4.0
            if len(others) > 1:
                features["rivalled"] = 1.0
            final = SETTLED["bias"] + SETTLED["score"] * score + SETTLED["margin"] * features["margin"]
            final += SETTLED["rivalled"] * features.get("rivalled", 0.0)
            settled.append((final, order, one, features))
        settled.sort(key=lambda item: (-item[0], -item[1]))
        taken: list[tuple[int, int]] = []
        filled: set[int] = set()
        found = []
        weakest = min(least, WEAKEST) if any(each.recurrence for each in self.table.definitions) else least
        for score, _, one, features in settled:
            confidence = 1.0 / (1.0 + math.exp(-max(-30.0, min(30.0, score))))
            if confidence < weakest:
                break
            if confidence < least and self.table.definitions[one.sheet].recurrence is None:
                continue
            if confidence < least or "mentioned" in features:
                confidence = min(confidence, WEAK)
            several = self.table.definitions[one.sheet].cardinality is Cardinality.MULTI
            if (one.sheet in filled and not several) or any(
                one.start < end and start < one.end for start, end in taken
            ):
                continue
            proposal = self._proposal(one, confidence)
            if proposal is None:
                continue
            filled.add(one.sheet)
            if one.kind != "boolean":
                taken.append((one.start, one.end))
            found.append((proposal, features))
        found.sort(key=lambda item: (item[0].evidence.start, item[0].attribute))
        return found

    def _proposal(self, one: _Candidate, confidence: float) -> Proposal | None:
        attribute = self.attributes[one.sheet]
        schema = attribute.definition.value_schema
        value = [one.value] if schema.get("type") == "array" else one.value
        try:
            value = canonical(schema, value)
        except (ValueRefused, SchemaRefused):
            return None
        change, current = compared(attribute, value)
        return Proposal(
            evidence=Evidence(self.text[one.start : one.end], one.start, one.end),
            subject=self.episode.subject,
            attribute=attribute.definition.name,
            value=value,
            change=change,
            valid_from=self._valid_from(one),
            confidence=round(confidence, 3),
            current_value=current,
        )

    def _valid_from(self, one: _Candidate) -> datetime:
        """Return since when it holds: a past day that its clause names ("since May", "moved last week"), else now."""
        at = self.episode.occurred_at
        if one.kind in ("date", "time"):
            return at
        sentence = self.sentences[one.sentence]
        begin, end = 0, len(sentence.text)
        for between in _CLAUSE.finditer(sentence.text):
            if between.end() <= one.start - sentence.start:
                begin = between.end()
            else:
                end = between.start()
                break
        for mention in typed(sentence.text, at.date(), frozenset({"date"})):
            if mention.kind != "date" or not isinstance(mention.value, str) or not begin <= mention.start < end:
                continue
            if _CHANGED.search(sentence.text[begin : mention.start].lower()) is None:
                continue
            day = datetime.fromisoformat(mention.value).replace(tzinfo=at.tzinfo)
            if day <= at - timedelta(days=1):
                return day
        return at
