"""Compaction: what has outlived its time is overwritten, then removed. That no read returns it does not depend on this.

A run goes through what is overdue in chunks of one transaction each, the oldest first, and ends with a certificate. It
waits for no writer: a key or a row that somebody has is passed over, and met again by the next run. It takes the locks
under which writers let something live longer, and looks again under them; so nothing that was extended meanwhile goes, and
who comes later finds what it came for gone, or waits for the chunk that takes it. Holds are asked in each chunk, under
their lock.
"""

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum
from typing import Any
from uuid import UUID

from memory import erasure, rows
from memory.endings import worker
from memory.erasure import Erased, Removed, added
from memory.outbox import Retry, Settled
from memory.rounds import each_tenant
from retention import certificates, holds, runs
from retention.runs import Run
from tenants.actors import Actor
from tenants.audit import Action, Event, append
from tenants.isolation import Role, tenant_transaction
from tenants.secrets import provider

#: The topic under which a write that met something overdue asks for a run; its target is the tenant.
TOPIC = "compaction.asked"
#: What one transaction looks at.
CHUNK = 1_000
#: An episode may be cited by a write that read it while it could be read: it goes only when no such write can be under way.
EPISODES_AFTER = timedelta(minutes=10)
#: Where a run removed nothing, since all of it is held or locked, none is begun of itself for so long.
_PAUSE = timedelta(minutes=15)
_STEPS = ("payloads", "candidates", "ends")
_ACT = "compaction"


class Progress(Enum):
    """What a chunk came to: there may be more, all is done, or another worker is at it."""

    MORE = "more"
    DONE = "done"
    BUSY = "busy"


@dataclass(frozen=True, slots=True)
class Compacted:
    """What a call came to: the run, if there was one, and whether all of it is done."""

    run: UUID | None
    done: bool
    certificate: UUID | None = None
    counts: dict[str, int] = field(default_factory=dict)
    refused_by_hold: int = 0


# asking ---------------------------------------------------------------------------------------------------------------

_OVERDUE = """
SELECT EXISTS (SELECT FROM memory_payload p WHERE p.tenant_id = %(tenant)s::uuid AND p.ended_at IS NULL
    AND p.expires_at <= clock_timestamp() - CASE WHEN p.purpose = 'episode' THEN %(after)s::interval ELSE interval '0' END)
  OR EXISTS (SELECT FROM memory_candidate c WHERE c.tenant_id = %(tenant)s::uuid AND c.expires_at <= clock_timestamp())
"""
_LAST = """
SELECT r.counts = '{}'::jsonb, r.finished_at > clock_timestamp() - %s::interval FROM retention_run r
WHERE r.tenant_id = %s::uuid AND r.kind = 'compaction' AND r.finished_at IS NOT NULL ORDER BY r.id DESC LIMIT 1
"""


def due(tenant: UUID) -> bool:
    """Whether a run is open, or would find something. Where the last one could remove nothing, not for a while."""
    if runs.unfinished(tenant, "compaction"):
        return True
    if not rows.fetch(_OVERDUE, {"tenant": tenant, "after": EPISODES_AFTER})[0][0]:
        return False
    last = rows.fetch(_LAST, [_PAUSE, tenant])
    return not (last and last[0][0] and last[0][1])


def compact_due(*, seconds: float = 60.0) -> int:
    """Compact what is due in every tenant, for about `seconds`; return how many chunks that were. For beat.

    Opens its own transactions. A run that is not at its end then is gone on with by the next call.
    """
    return each_tenant(_chunk_if_due, seconds=seconds)


def _chunk_if_due(tenant: UUID) -> int:
    with tenant_transaction(Role.WORKER, tenant=tenant):
        if not due(tenant):
            return 0
    return int(chunk(worker(tenant), _open(worker(tenant))) is Progress.MORE)


#: Shorter than an outbox entry is taken for.
_ASKED_SECONDS = 20.0


def work(tenant: UUID, _target: UUID) -> Settled | Retry:
    """Compact what is due in a tenant where a write met something overdue: the worker of `compaction.asked`."""
    until = time.monotonic() + _ASKED_SECONDS
    while _chunk_if_due(tenant):
        if time.monotonic() > until:
            return Settled.MORE
    return Settled.DONE


def compact(actor: Actor, *, seconds: float = 3600.0) -> Compacted:
    """Compact the actor's tenant now, for about `seconds`; go on with the run that is open, if one is.

    Opens its own transactions. A run that is not at its end then is gone on with by whoever comes next.
    """
    until = time.monotonic() + seconds
    run = _open(actor)
    while True:
        progress = chunk(actor, run)
        if progress is Progress.DONE or time.monotonic() > until:
            break
        if progress is Progress.BUSY:
            time.sleep(0.05)
    with tenant_transaction(Role.WORKER, tenant=actor.tenant):
        found = runs.find(actor.tenant, run)
        assert found is not None
        issued = certificates.of_run(actor.tenant, run)
    return Compacted(run, not found.open, issued[0] if issued else None, found.counts, found.refused_by_hold)


def _open(actor: Actor) -> UUID:
    with tenant_transaction(Role.WORKER, tenant=actor.tenant):
        now: datetime = rows.fetch("SELECT clock_timestamp()", [])[0][0]
        run, _ = runs.begin(actor, "compaction", target_kind="tenant", target_id=actor.tenant, now=now)
    return run.id


# a chunk --------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Chunk:
    """One chunk under way: what it removed, and what it leaves to the audit."""

    actor: Actor
    run: Run
    now: datetime
    counts: dict[str, int] = field(default_factory=dict)
    refused: int = 0
    events: list[Event] = field(default_factory=list)
    keys: set[UUID] = field(default_factory=set)
    episodes: set[UUID] = field(default_factory=set)
    subjects: set[UUID] = field(default_factory=set)

    @property
    def tenant(self) -> UUID:
        return self.actor.tenant

    def free(self, kind: str, ids: Sequence[UUID]) -> list[UUID]:
        """Return what no hold covers; the rest is recorded as refused."""
        if not ids:
            return []
        return self.counted(ids, holds.free(self.tenant, kind, ids, actor=self.actor, act=_ACT, run=self.run.id))

    def free_facts(self, ids: Sequence[UUID]) -> list[UUID]:
        """Return those facts of which no hold covers anything that goes with them; the rest is recorded as refused."""
        if not ids:
            return []
        going = holds.free_facts(self.tenant, ids, "expired", actor=self.actor, act=_ACT, run=self.run.id)
        return self.counted(ids, going)

    def counted(self, ids: Sequence[UUID], going: list[UUID]) -> list[UUID]:
        """Return what is going, and count what was refused."""
        self.refused += len(ids) - len(going)
        return going

    def held(self, kind: str, ids: Sequence[UUID]) -> Collection[UUID]:
        """Return which rows are to stay for a hold. Not a refusal: what they said has ended already."""
        found: set[UUID] = set(holds.held(self.tenant, kind, ids))
        if kind == "subject" and ids:
            # Scopes of holds that were released name them still.
            found |= holds.named_by_scopes(self.tenant, ids)
        return found

    def ended(self, kind: str, done: Erased, cause: str) -> None:
        """Note what lost its content, for the sums and the audit."""
        self.counts = added(self.counts, {name: n for name, n in done.counts.items() if n})
        self.events += [
            Event(actor=self.actor, action=Action.CONTENT_REMOVED, target_kind=kind, target_id=each, reason=cause)
            for each in done.records
        ]

    def gone(self, done: Removed) -> None:
        """Note which rows went, and what to look at next."""
        self.counts = added(self.counts, {f"rows_{name}": n for name, n in done.counts.items()})
        self.episodes |= set(done.episodes)
        self.subjects |= set(done.subjects)


def chunk(actor: Actor, run: UUID, *, limit: int | None = None) -> Progress:
    """Do one chunk of a run in a transaction of its own, and move the run on with it."""
    with tenant_transaction(Role.WORKER, tenant=actor.tenant):
        holds.share(actor.tenant)
        held = runs.hold(actor.tenant, run)
        if held is None:
            found = runs.find(actor.tenant, run)
            return Progress.BUSY if found is not None and found.open else Progress.DONE
        now: datetime = rows.fetch(runs.PLANS, [])[0][2]
        part = _Chunk(actor, held, now)
        step = held.step if held.step in _STEPS else _STEPS[0]
        cursor = _DO[step](part, held.cursor if held.step == step else {}, limit or CHUNK)
        _remove_rows(part)
        if cursor is not None:
            runs.advance(actor.tenant, held, step=step, cursor=cursor, counts=part.counts, refused=part.refused)
            append(part.events)
            return Progress.MORE
        following = _STEPS[_STEPS.index(step) + 1 :]
        if following:
            runs.advance(actor.tenant, held, step=following[0], counts=part.counts, refused=part.refused)
            append(part.events)
            return Progress.MORE
        ended = runs.advance(actor.tenant, held, step="certified", counts=part.counts, refused=part.refused)
        append(part.events)
        ended = runs.finish(actor, ended)
        if ended.counts or ended.refused_by_hold:
            certificates.issue(actor, "compaction", ended, _body(ended), now)
        return Progress.DONE


# what is overdue ------------------------------------------------------------------------------------------------------

_NEXT_PAYLOADS = """
SELECT p.id, p.purpose, p.expires_at FROM memory_payload p
WHERE p.tenant_id = %(tenant)s::uuid AND p.ended_at IS NULL AND p.expires_at <= %(now)s::timestamptz
  AND (p.purpose <> 'episode' OR p.expires_at <= %(now)s::timestamptz - %(after)s::interval)
  AND (p.expires_at, p.id) > (%(at)s::timestamptz, %(id)s::uuid)
ORDER BY p.expires_at, p.id LIMIT %(limit)s::int
"""
_BEGINNING = {"at": "-infinity", "id": str(UUID(int=0))}


def _payloads(part: _Chunk, cursor: dict[str, Any], limit: int) -> dict[str, Any] | None:
    """End what the next overdue payloads belong to; return where it has come to, or None at the end."""
    place = {name: cursor.get(name, value) for name, value in _BEGINNING.items()}
    given = {"tenant": part.tenant, "now": part.now, "after": EPISODES_AFTER, "limit": limit, **place}
    found = rows.fetch(_NEXT_PAYLOADS, given)
    of = {
        purpose: [row[0] for row in found if row[1] == purpose] for purpose in ("value", "quote", "episode", "derived")
    }
    _facts(part, of["value"])
    _quotes(part, of["quote"])
    _episodes(part, of["episode"])
    if of["derived"]:
        part.ended("derived", erasure.erase_payloads(part.tenant, of["derived"]), "expired")
    if len(found) < limit:
        return None
    last, _, at = found[-1]
    return {"at": certificates.instant(at), "id": str(last)}


# Whoever lets a fact live longer holds its key. Nobody is waited for.
_LOCK_KEYS = """
SELECT k.id FROM memory_factkey k WHERE k.tenant_id = %s::uuid AND k.id = ANY (%s::uuid[])
ORDER BY k.subject_id, k.attribute_id FOR NO KEY UPDATE SKIP LOCKED
"""
_KEYS_OF_VALUES = "SELECT f.key_id FROM memory_fact f WHERE f.tenant_id = %s::uuid AND f.payload_id = ANY (%s::uuid[])"
# Statements of their own, after the lock: they see what a writer committed just before it was had. Each payload is looked for
# by its id: by what is overdue all of that would be gone through for each chunk.
_OVERDUE_FACTS = """
SELECT f.id, f.key_id, CASE WHEN f.ended_at IS NOT NULL THEN f.ended_by = 'consent_withdrawn'
  ELSE f.consent_ids IS NOT NULL AND NOT coalesce(consent_stands(f.consent_ids), false) END
FROM unnest(%(payloads)s::uuid[]) AS w (id)
  CROSS JOIN LATERAL (SELECT x.id, x.tenant_id FROM memory_payload x WHERE x.tenant_id = %(tenant)s::uuid AND x.id = w.id
    AND (x.ended_at IS NULL) IS TRUE AND x.expires_at <= clock_timestamp() OFFSET 0) p
  CROSS JOIN LATERAL (SELECT x.id, x.key_id, x.ended_at, x.ended_by, x.expires_at, x.consent_ids FROM memory_fact x
    WHERE x.tenant_id = p.tenant_id AND x.payload_id = p.id OFFSET 0) f
WHERE f.key_id IN (SELECT unnest(%(keys)s::uuid[])) AND (f.ended_at IS NOT NULL OR f.expires_at <= clock_timestamp())
"""


def _lock_keys(part: _Chunk, keys: Collection[UUID]) -> list[UUID]:
    return [row[0] for row in rows.fetch(_LOCK_KEYS, [part.tenant, list(keys)])] if keys else []


def _facts(part: _Chunk, values: Sequence[UUID]) -> None:
    if not values:
        return
    keys = _lock_keys(part, {row[0] for row in rows.fetch(_KEYS_OF_VALUES, [part.tenant, list(values)])})
    found = rows.fetch(_OVERDUE_FACTS, {"tenant": part.tenant, "payloads": list(values), "keys": keys}) if keys else []
    going = set(part.free_facts([row[0] for row in found]))
    for cause, unconsented in (("expired", False), ("consent_withdrawn", True)):
        facts = [fact for fact, _, is_unconsented in found if fact in going and is_unconsented is unconsented]
        if facts:
            done = erasure.end_facts(part.tenant, facts, cause, part.now)
            # Those that a writer marked as ended before lose their content only now.
            part.ended("fact", Erased(tuple(facts), done.counts), cause)
    part.keys |= {key for fact, key, _ in found if fact in going}


_KEYS_OF_QUOTES = (
    "SELECT e.key_id FROM memory_evidence e WHERE e.tenant_id = %s::uuid AND e.quote_id = ANY (%s::uuid[])"
)
_OVERDUE_QUOTES = """
SELECT e.id FROM unnest(%(payloads)s::uuid[]) AS w (id)
  CROSS JOIN LATERAL (SELECT x.id, x.tenant_id FROM memory_payload x WHERE x.tenant_id = %(tenant)s::uuid AND x.id = w.id
    AND (x.ended_at IS NULL) IS TRUE AND x.expires_at <= clock_timestamp() OFFSET 0) p
  CROSS JOIN LATERAL (SELECT x.id, x.key_id FROM memory_evidence x WHERE x.tenant_id = p.tenant_id AND x.quote_id = p.id OFFSET 0) e
WHERE e.key_id IN (SELECT unnest(%(keys)s::uuid[]))
"""
_PROPOSED_QUOTES = """
SELECT c.id, s.quote_id FROM memory_candidatesaying s
  CROSS JOIN LATERAL (SELECT x.id FROM memory_candidate x WHERE x.tenant_id = s.tenant_id AND x.id = s.candidate_id
    FOR UPDATE SKIP LOCKED) c
WHERE s.tenant_id = %s::uuid AND s.quote_id = ANY (%s::uuid[])
  AND NOT EXISTS (SELECT FROM memory_evidence e WHERE e.tenant_id = s.tenant_id AND e.quote_id = s.quote_id)
"""


def _quotes(part: _Chunk, quotes: Sequence[UUID]) -> None:
    """Quotes of evidence whose own life is over, while its fact may be kept by other evidence; and of proposals."""
    if not quotes:
        return
    keys = _lock_keys(part, {row[0] for row in rows.fetch(_KEYS_OF_QUOTES, [part.tenant, list(quotes)])})
    found = rows.fetch(_OVERDUE_QUOTES, {"tenant": part.tenant, "payloads": list(quotes), "keys": keys}) if keys else []
    said = [row[0] for row in found]
    going = part.counted(said, holds.free_quotes(part.tenant, said, actor=part.actor, act=_ACT, run=part.run.id))
    part.ended("evidence", erasure.end_quotes(part.tenant, going, "expired"), "expired")
    proposed = rows.fetch(_PROPOSED_QUOTES, [part.tenant, list(quotes)])
    free = set(part.free("candidate", sorted({row[0] for row in proposed})))
    of_free = [quote for candidate, quote in proposed if candidate in free]
    if of_free:
        done = erasure.erase_payloads(part.tenant, of_free)
        part.ended("candidate", Erased(tuple(sorted(free)), done.counts), "expired")


# Whoever draws from an episode holds the row of its extraction.
_OVERDUE_EPISODES = """
SELECT e.id, e.consent_id IS NOT NULL AND NOT coalesce(consent_stands(ARRAY[e.consent_id]), false)
FROM unnest(%(payloads)s::uuid[]) AS w (id)
  CROSS JOIN LATERAL (SELECT x.id, x.tenant_id FROM memory_payload x WHERE x.tenant_id = %(tenant)s::uuid AND x.id = w.id
    AND (x.ended_at IS NULL) IS TRUE AND x.expires_at <= clock_timestamp() OFFSET 0) p
  CROSS JOIN LATERAL (SELECT x.id, x.consent_id FROM memory_episode x WHERE x.tenant_id = p.tenant_id AND x.payload_id = p.id
    FOR UPDATE SKIP LOCKED) e
"""
_DRAWN_FROM = """
SELECT x.episode_id FROM memory_extraction x WHERE x.tenant_id = %s::uuid AND x.episode_id = ANY (%s::uuid[])
"""


def _episodes(part: _Chunk, texts: Sequence[UUID]) -> None:
    if not texts:
        return
    found = rows.fetch(_OVERDUE_EPISODES, {"tenant": part.tenant, "payloads": list(texts)})
    ids = [row[0] for row in found]
    drawn = {row[0] for row in rows.fetch(_DRAWN_FROM, [part.tenant, ids])}
    drawn -= {row[0] for row in rows.fetch(_DRAWN_FROM + " FOR UPDATE SKIP LOCKED", [part.tenant, ids])}
    going = set(part.free("episode", [each for each in ids if each not in drawn]))
    for cause, unconsented in (("expired", False), ("consent_withdrawn", True)):
        episodes = [each for each, is_unconsented in found if each in going and is_unconsented is unconsented]
        part.ended("episode", erasure.end_episodes(part.tenant, episodes, cause, part.now), cause)
    part.episodes |= going


_NEXT_CANDIDATES = """
SELECT c.id, c.expires_at FROM memory_candidate c
WHERE c.tenant_id = %(tenant)s::uuid AND c.expires_at <= %(now)s::timestamptz
  AND (c.expires_at, c.id) > (%(at)s::timestamptz, %(id)s::uuid)
ORDER BY c.expires_at, c.id LIMIT %(limit)s::int
"""
# Whoever decides on one, or lets another saying join it, holds it.
_LOCK_CANDIDATES = """
SELECT c.id FROM memory_candidate c WHERE c.tenant_id = %s::uuid AND c.id = ANY (%s::uuid[]) AND c.expires_at <= clock_timestamp()
ORDER BY c.id FOR UPDATE SKIP LOCKED
"""


def _candidates(part: _Chunk, cursor: dict[str, Any], limit: int) -> dict[str, Any] | None:
    place = {name: cursor.get(name, value) for name, value in _BEGINNING.items()}
    found = rows.fetch(_NEXT_CANDIDATES, {"tenant": part.tenant, "now": part.now, "limit": limit, **place})
    locked = [row[0] for row in rows.fetch(_LOCK_CANDIDATES, [part.tenant, [row[0] for row in found]])] if found else []
    going = part.free("candidate", locked)
    part.ended("candidate", erasure.end_candidates(part.tenant, going, "expired", part.now), "expired")
    gone = erasure.remove_candidates(part.tenant, going, part.held)
    part.gone(gone)
    # A key is made for what is proposed as well.
    part.keys |= set(_lock_keys(part, gone.keys))
    if len(found) < limit:
        return None
    last, at = found[-1]
    return {"at": certificates.instant(at), "id": str(last)}


_NEXT_ENDS = """
SELECT e.id, e.key_id FROM memory_evidence e
WHERE e.tenant_id = %(tenant)s::uuid AND e.fact_id IS NULL AND e.expires_at <= %(now)s::timestamptz AND e.id > %(id)s::uuid
ORDER BY e.id LIMIT %(limit)s::int
"""


def _ends(part: _Chunk, cursor: dict[str, Any], limit: int) -> dict[str, Any] | None:
    """Ends that named no value: they hold nothing, and go where nothing kept stands before them."""
    place = {"id": cursor.get("id", _BEGINNING["id"])}
    found = rows.fetch(_NEXT_ENDS, {"tenant": part.tenant, "now": part.now, "limit": limit, **place})
    part.keys |= set(_lock_keys(part, {row[1] for row in found}))
    return None if len(found) < limit else {"id": str(found[-1][0])}


_DO = {"payloads": _payloads, "candidates": _candidates, "ends": _ends}


def _remove_rows(part: _Chunk) -> None:
    """Remove the rows that nothing needs, of what this chunk touched: each kind after what points at it."""
    part.gone(erasure.remove_facts(part.tenant, sorted(part.keys), part.held))
    part.gone(erasure.remove_episodes(part.tenant, sorted(part.episodes), part.held))
    part.gone(erasure.remove_subjects(part.tenant, sorted(part.subjects), part.held))


# the certificate ------------------------------------------------------------------------------------------------------


def _body(run: Run) -> dict[str, Any]:
    """Return what the certificate of a run says: what ended, by which method, and what that does not reach."""
    return {
        "began_at": run.started_at,
        "ended_at": run.finished_at,
        "counts": run.counts,
        "refused_by_hold": run.refused_by_hold,
        "method": "overwritten_then_removed",
        # Sealed content was overwritten; the key that sealed it lives on with its subject, and reads older copies.
        "sealed": {"state": "key_living", "tenant_key_version": provider().tenant_key(_tenant_of(run))[0]},
        # What stood in clear stands in the files until the database has rewritten them.
        "clear": {"state": "maintenance_due"},
        "not_reached": [
            "backups_until_they_age_out",
            "write_ahead_log",
            "table_files_until_maintenance",
            "replicas_behind",
        ],
    }


def _tenant_of(run: Run) -> UUID:
    assert run.target_id is not None
    return run.target_id
