"""Finding by words: what payloads hold, as blind tokens, and which of them answer a question best.

A token is the HMAC of a lexeme under the tenant's key, whatever the class of the text: no text of anybody's stands in an
index. So one tenant's entries are never among another's, and how many others there are makes no difference. What is found
is what the actor may read, by the same conditions; of what is hidden no hit and no frequency tells.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Literal
from uuid import UUID

from django.conf import settings

from memory import lexemes, ranking, rows
from memory.ranking import Extent, Hit
from memory.rows import SearchEntryRow
from tenants.identity import new_id
from tenants.secrets import keyring

Kind = Literal["episode", "value", "name"]

#: Of what is found so much is weighed; whatever is more is the older.
MOST_WEIGHED = 20_000
#: A lexeme in more entries than this is common: it weighs what is found, and alone finds nothing in a large tenant.
COMMON_FROM = 400
#: Where the rarer lexemes found so much, the common ones only weigh it.
ENOUGH = 200
#: A scope of no more entries is looked at in whole.
SMALL = 3_000
#: A question has no more lexemes than this; the first count.
MOST_ASKED = 64
_MOST_COUNT = 32_000


@cache
def language() -> str:
    """Return the language of the index: `MUNIMENT_SEARCH_LANGUAGE`."""
    chosen: str = settings.SEARCH_LANGUAGE
    lexemes.stemmer(chosen)
    return chosen


def rules() -> str:
    """Return what an entry was made by: one made by other rules is made anew."""
    return f"{lexemes.FORMAT}.{language()}"


@dataclass(frozen=True, slots=True)
class Text:
    """A payload to be found: what it says, whose it is, and who may see it."""

    kind: Kind
    target: UUID
    subject: UUID | None
    payload: UUID
    at: datetime
    text: str
    sensitivity: int
    expires_at: datetime | None
    consent_ids: rows.Uuids | None


def entries_of(tenant: UUID, texts: Sequence[Text]) -> list[SearchEntryRow]:
    """Return the entries by which these texts are found. Raises `KeyUnavailable`."""
    ring, made = keyring(), []
    for text in texts:
        counted = lexemes.counted(text.text, language())
        scopes = _scopes(tenant, text.subject, text.kind)
        tokens, version = ring.blinded(tenant, [*scopes, *(word.encode() for word in counted)])
        # One count each: of two words with one token (never seen, at 64 bits) the first counts.
        pairs = dict(zip(tokens, [*(0 for _ in scopes), *counted.values()], strict=True))
        made.append(
            SearchEntryRow(
                id=new_id(),
                kind=text.kind,
                target_id=text.target,
                subject_id=text.subject,
                payload_id=text.payload,
                at=text.at,
                tokens=rows.longs(pairs),
                counts=rows.shorts(min(count, _MOST_COUNT) for count in pairs.values()),
                length=counted.total(),
                key_version=version,
                rules=rules(),
                sensitivity=text.sensitivity,
                expires_at=text.expires_at,
                consent_ids=text.consent_ids,
            )
        )
    return made


def store(tenant: UUID, texts: Sequence[Text]) -> None:
    """Make these texts findable, in the open transaction of the write door. None of them may be there already."""
    rows.SEARCH_ENTRIES.insert(tenant, entries_of(tenant, texts))


def _scopes(tenant: UUID, subject: UUID | None, kind: Kind) -> list[bytes]:
    # A NUL is in no lexeme.
    own = b"nobody" if subject is None else subject.bytes
    return [b"\0" + tenant.bytes, b"\0" + tenant.bytes + own, b"\0" + tenant.bytes + kind.encode()]


# finding --------------------------------------------------------------------------------------------------------------

_STATE = "SELECT s.entries, s.length, s.common, s.frequencies FROM memory_searchstate s WHERE s.tenant_id = %s::uuid AND s.id = s.tenant_id"
_EXTENT = "SELECT x.entries, x.length FROM search_extent(%s::bigint, %s::text[], %s::int) x"
_HITS = (
    "SELECT h.id, h.kind, h.target_id, h.subject_id, h.at, h.length, h.counts"
    " FROM search_hits(%s::bigint[], %s::bigint[], %s::bigint[], %s::text[], %s::int) h"
)


@dataclass(frozen=True, slots=True)
class Found:
    """What a question found, by kind, best first."""

    episodes: list[Hit]
    values: list[Hit]
    names: list[Hit]


def find(tenant: UUID, question: Sequence[str], *, subject: UUID | None, kinds: Sequence[Kind]) -> Found:
    """Return what holds the question's lexemes, of one subject or of the whole tenant, under the role of an agent.

    In a scope of at most `SMALL` entries everything that holds any of them is weighed. In a larger one lexemes that are
    common there find only together, the rarer ones alone; which are common is known as of the index's last count.
    """
    asked = list(dict.fromkeys(question))[:MOST_ASKED]
    if not asked or not kinds:
        return Found([], [], [])
    tokens, _ = keyring().blinded(tenant, [*_scopes(tenant, subject, kinds[0]), *(word.encode() for word in asked)])
    (whole, own, of_kind), tokens = tokens[:3], tokens[3:]
    # Names are few among all that is said: their list is looked at first. Else a list of a kind tells little apart.
    within = [of_kind] if kinds == ["name"] else []
    if subject is not None:
        within.append(own)
    wanted = list(kinds)
    state = rows.fetch(_STATE, [tenant])
    if not within and state and state[0][0] >= SMALL:
        # As of the last count: to look at so many again would cost more than it tells.
        entries, length = state[0][0], state[0][1]
    else:
        entries, length = rows.fetch(_EXTENT, [within[-1] if within else whole, wanted, SMALL])[0]
    frequencies: dict[int, int] = {}
    if entries >= SMALL and state:
        total, mean, common, counts = state[0]
        known = dict(zip(common, counts, strict=True))
        if subject is None:
            entries, length = max(entries, total), mean or length
            frequencies = {place: known[token] for place, token in enumerate(tokens) if token in known}
        else:
            frequencies = {place: 0 for place, token in enumerate(tokens) if token in known}
    found: dict[UUID, tuple[str, Hit]] = {}
    for any_of, all_of in _looks(tokens, frequencies, within):
        if len(found) >= ENOUGH:
            break
        for entry, kind, target, _, at, size, counts in rows.fetch(
            _HITS,
            [rows.longs(tokens), rows.longs(any_of), rows.longs(all_of), wanted, MOST_WEIGHED],
        ):
            found.setdefault(entry, (kind, Hit(entry, target, at, size, counts)))
    extent = Extent(entries, length, frequencies)
    by_kind: dict[str, list[Hit]] = {"episode": [], "value": [], "name": []}
    for kind, hit in found.values():
        by_kind[kind].append(hit)
    worth = lexemes.worth(asked, language())
    return Found(*(ranking.scored(by_kind[kind], extent, worth) for kind in ("episode", "value", "name")))


def _looks(tokens: Sequence[int], common: dict[int, int], within: list[int]) -> list[tuple[list[int], list[int]]]:
    """Return what to look up in turn, as (any of these, all of these)."""
    if not common:
        return [(list(tokens), within)]
    rare = [token for place, token in enumerate(tokens) if place not in common]
    often = [tokens[place] for place in sorted(common, key=lambda place: (common[place], place))]
    looks = []
    if rare:
        looks.append((rare, within))
    if len(often) > 1:
        # Together: the rarest of the common ones with any of the others.
        looks.append((often[1:], [*within, often[0]]))
    if not rare and len(often) == 1:
        looks.append((often, within))
    return looks


# how far the index is ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether what was said by `at` is findable: `rebuilding` while an index is made, and what waits for its turn."""

    state: str
    waiting: int
    at: datetime


_READY = """
SELECT (s.rules, s.key_version) IS NOT DISTINCT FROM (%s::text, %s::int) AND s.made_to IS NULL, search_waiting(),
  statement_timestamp()
FROM (SELECT %s::uuid AS tenant) t LEFT JOIN memory_searchstate s ON s.tenant_id = t.tenant AND s.id = t.tenant
"""


def readiness(tenant: UUID) -> Readiness:
    """Return how far the tenant's index is, under the role of an agent.

    From the moment that the tenant's key has a new version until all entries are made under it, it is not ready.
    """
    version = keyring().blinded(tenant, [])[1]
    ready, waiting, at = rows.fetch(_READY, [rules(), version, tenant])[0]
    return Readiness("ready" if ready else "rebuilding", waiting, at)
