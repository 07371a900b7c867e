"""What detection makes of content at the write door: the class that it raises, the secrets that are not kept, the marks.

Pure. Only codes leave: names of detectors, classes and counts. A credential is refused in a saying and replaced in an
episode, before anything is stored, extracted or sent to a model.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from memory.outcomes import Refusal
from policies.detection import Finding, Findings, Group, Known, detect, findings_in, masked
from policies.detection.known import NOBODY
from policies.values import canonical_text
from policies.vocabulary import Sensitivity

#: Of evidence from an episode that was quarantined.
QUARANTINED_SOURCE = "quarantined_source"
#: What is looked for in a name: all but credentials may be one.
_NOT_IN_NAMES = frozenset(set(Group) - {Group.CREDENTIAL})
_CREDENTIAL = frozenset({"CREDENTIAL"})

#: Looks for more in a text: names of people and places, where an operator has set that up.
Finder = Callable[[str], Findings]


@dataclass(frozen=True, slots=True)
class Detected:
    """What was found: names of detectors, each with the class that it raises to, and whether it speaks to the agent."""

    found: tuple[tuple[str, Sensitivity], ...] = ()
    instructs: bool = False

    @property
    def codes(self) -> tuple[str, ...]:
        """The detectors' names, sorted."""
        return tuple(code for code, _ in self.found)

    @property
    def raises(self) -> Sensitivity:
        """The highest class that is raised to."""
        return max((level for _, level in self.found), default=Sensitivity.PUBLIC)

    def naming_its_subject(self) -> "Detected":
        """Return the same, with a name of its subject found too."""
        found = {**dict(self.found), "known": Sensitivity.PERSONAL}
        return Detected(tuple(sorted(found.items())), self.instructs)

    def reasons(self, stated: Sensitivity) -> tuple[str, ...]:
        """Return what explains a verdict: which detectors raised the class above `stated`, and which marked something."""
        return tuple(f"detected.{code}" for code, level in self.found if level > stated or not level)


NOTHING = Detected()


def counted(codes: Sequence[str]) -> dict[str, int]:
    """Return codes as numbers for the audit, whose entries are bounded: how many, and which where they are few."""
    if not codes:
        return {}
    return {"detected": len(codes), **{f"detected.{code}": 1 for code in codes[:12]}}


def _summed(findings: Iterable[Finding]) -> Detected:
    found: dict[str, Sensitivity] = {}
    instructs = False
    for each in findings:
        found[each.detector] = max(each.raises, found.get(each.detector, Sensitivity.PUBLIC))
        instructs = instructs or each.group is Group.INSTRUCTION
    return Detected(tuple(sorted(found.items())), instructs) if found else NOTHING


# sayings --------------------------------------------------------------------------------------------------------------


def in_saying(
    value: Any,
    quote: str | None,
    *,
    attribute: str,
    omit: Collection[str],
    fields: Collection[str] = (),
    name: str | None = None,
    more: Finder | None = None,
) -> Detected:
    """Return what a saying's value (None: an end) and quote hold. Raises `Refusal("credential")` naming the field.

    `omit` are the detectors that do not apply to the attribute, `fields` the names that its schema declares (no other
    is told), `name` the subject's where it matters that the value says it.
    """
    known = Known((name,)) if name is not None else NOBODY
    found: list[Finding] = []
    if value is not None:
        for leaf in findings_in(value, known=known, omit=omit, name=attribute):
            if _credentials(leaf.findings):
                raise Refusal("credential", _place(leaf.path, fields))
            found.extend(leaf.findings)
    if quote is not None:
        findings = detect(quote, known=known, omit=omit)
        if _credentials(findings):
            raise Refusal("credential", "provenance.quote")
        found.extend(findings)
    if more is not None:
        said = "" if value is None else value if isinstance(value, str) else canonical_text(value)
        found.extend(each for text in (said, quote or "") for each in more(text) if each.detector not in omit)
    return _summed(found) if found else NOTHING


def _place(path: Sequence[str | int], fields: Collection[str]) -> str:
    """Return where in a value it stands; a field's name that the schema does not declare may itself be content."""
    steps = (str(step) if isinstance(step, int) or step in fields else "*" for step in path)
    return ".".join(("value", *steps))


def is_credential(name: str) -> bool:
    """Return whether a subject's key or alias holds a credential."""
    return bool(detect(name, omit=_NOT_IN_NAMES))


# episodes -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Screened:
    """An episode's content as it may be kept. `original` is what was sent, for its digest alone."""

    text: str
    original: str
    detected: Detected
    #: How many credentials were replaced, by the detector that found them.
    replaced: dict[str, int]
    #: What in it has the shape of an identifier, as it is written.
    identifiers: tuple[str, ...]


def in_episode(content: Any, *, name: str | None = None, more: Finder | None = None) -> Screened:
    """Return the content with its credentials replaced, and what else it holds; JSON stays JSON.

    Text that is itself JSON is read both as JSON and as text. `name` is the name of the episode's own subject.
    """
    known = Known((name,)) if name is not None else NOBODY
    original = content if isinstance(content, str) else canonical_text(content)
    replaced: Counter[str] = Counter()
    if not isinstance(content, str):
        leaves = list(_leaves(content, known))
        text = original
        if any(_credentials(findings) for _, _, findings in leaves):
            text = canonical_text(_without(json.loads(original), leaves, replaced))
        findings = [each for _, _, found in leaves for each in found]
        identifiers = [said for _, leaf, found in leaves for said in _identifiers(leaf, found)]
    else:
        text = original
        parsed = _parsed(text)
        if parsed is not None:
            leaves = [each for each in _leaves(parsed, known) if _credentials(each[2])]
            if leaves:
                text = json.dumps(_without(parsed, leaves, replaced), ensure_ascii=False)
        findings = list(detect(text, known=known))
        identifiers = _identifiers(text, findings)
        text = _masked(text, findings, replaced)
    if more is not None:
        findings.extend(more(text))
    kept = [each for each in findings if each.group is not Group.CREDENTIAL]
    return Screened(text, original, _summed(kept), dict(sorted(replaced.items())), tuple(identifiers))


_Leaf = tuple[tuple[tuple[str | int, ...], bool], str, Findings]


def _leaves(value: Any, known: Known) -> Iterator[_Leaf]:
    """Yield (where, text, findings) of every text in a JSON value that holds something."""
    for leaf in findings_in(value, known=known):
        target = value
        for step in leaf.path[:-1] if leaf.is_name else leaf.path:
            target = target[step]
        yield (leaf.path, leaf.is_name), str(leaf.path[-1] if leaf.is_name else target), leaf.findings


def _credentials(findings: Iterable[Finding]) -> list[Finding]:
    return [each for each in findings if each.group is Group.CREDENTIAL]


def _masked(text: str, findings: Sequence[Finding], replaced: Counter[str]) -> str:
    secrets = _credentials(findings)
    if not secrets:
        return text
    replaced.update(each.detector for each in secrets)
    return masked(text, secrets, _CREDENTIAL)


def _without(value: Any, leaves: Sequence[_Leaf], replaced: Counter[str]) -> Any:
    """Replace the credentials in a JSON value of our own, in place: in texts first, then in names, the deepest first."""
    for (path, is_name), text, findings in sorted(leaves, key=lambda each: (each[0][1], -len(each[0][0]))):
        if not _credentials(findings):
            continue
        said = _masked(text, findings, replaced)
        if not path:
            return said
        holder = value
        for step in path[:-1]:
            holder = holder[step]
        if not is_name:
            holder[path[-1]] = said
            continue
        while said in holder:
            said += "·"
        items = [(said if name == path[-1] else name, inner) for name, inner in holder.items()]
        holder.clear()
        holder.update(items)
    return value


def _parsed(text: str) -> Any:
    """Return the JSON object or list that a text is, or None."""
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _identifiers(text: str, findings: Iterable[Finding]) -> list[str]:
    return [text[each.start : each.end] for each in findings if each.group is Group.IDENTIFIER]


# who is named ---------------------------------------------------------------------------------------------------------

#: So many names are looked up for one episode, and so much of its text is read for them.
MOST_NAMES = 400
_READ = 65_536
_WORD = re.compile(r"[^\W_](?:[\w.@+'\u2019\-]*[^\W_])?")


def names_in(text: str, identifiers: Iterable[str] = ()) -> list[str]:
    """Return what in a text may be a subject's name, the likeliest first, at most `MOST_NAMES`.

    Identifiers as written and as bare numbers; then up to three words in a row that begin with a capital or hold a digit
    or a sign, also in small letters; then single words.
    """
    names: dict[str, None] = {}
    for each in identifiers:
        names[each] = None
        names[re.sub(r"[ ().\-/]", "", each)] = None
    words = [(found.start(), found.end()) for found in _WORD.finditer(text, 0, _READ)]
    plain: dict[str, None] = {}
    run: list[tuple[int, int]] = []
    for start, end in words:
        word = text[start:end]
        if word[0].islower() and word.isalpha():
            run = []
            if len(word) > 2:
                plain[word] = None
            continue
        if run and text[run[-1][1] : start] != " ":
            run = []
        run = [*run[-2:], (start, end)]
        for begin, _ in run:
            said = text[begin:end]
            names[said] = None
            names[said.lower()] = None
    return [*names, *(word for word in plain if word not in names)][:MOST_NAMES]
