"""Kept contexts: what a question about one subject was answered with, for whoever asks the same of the same state again.

One context a question, subject and clearance. It is never trusted. It is kept with a print of everything about its subject
that a reader of that clearance can see and that an answer could rest on: what holds now, the evidence of it, what the
subject's episodes say, what waits to be decided, which consents stand, and the rules in force. Every read takes that print
anew, in the statement that finds the context and under the reader's own row-level security, and serves nothing where it is
not the same to the bit. So nothing has to tell a context that it has become wrong, and all of them can be thrown away.
"""

import json
from collections import OrderedDict
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from threading import Lock
from typing import Any
from uuid import UUID

from memory import outbox, recall, rows, search
from memory.contracts import RecallBody
from memory.rows import look_up
from memory.subjects import of_id, opened, payload_context
from tenants.actors import Actor
from tenants.identity import new_id
from tenants.isolation import Role, borrowed
from tenants.jsontext import dumps
from tenants.secrets import keyring

#: Who makes them. What another made is never served.
BUILDER = "context/1"
#: A subject about whom more is there than this, of any one sort, has none: to look at all of it would cost what answering does.
MOST_ROWS = 300
#: So many are kept of a subject for one clearance.
MOST_CONTEXTS = 20
#: For so long, whatever is asked.
LASTS = timedelta(days=1)
_PURPOSE = "derived"
#: Questions of which this process remembers that they were asked before.
_REMEMBERED = 2_000

_HOLDS = "x.believed_to IS NULL AND coalesce(x.valid_to, 'infinity'::timestamptz) > t.valid_at AND x.valid_from <= t.valid_at"
# `xmin` is the transaction that wrote the row as it is: it changes with every change of a row, whatever changed. A key's
# changes with every saying, and when its values become findable by words.
_PRINT = f"""
SELECT sha256(convert_to(string_agg(z.line, ';' ORDER BY z.line), 'UTF8')) AS print, coalesce(max(z.n), 0) AS most FROM (
  (SELECT concat_ws(' ', 'b', b.id, b.fact_id, f.xmin, p.id, p.xmin, k.xmin, CASE WHEN f.id IS NULL THEN withheld_reason(b.fact_id) END,
    (SELECT string_agg(c.id || ' ' || c.xmin, ' ' ORDER BY c.id) FROM policies_consent c
      WHERE c.tenant_id = t.tenant AND c.id = ANY (f.consent_ids))) AS line, count(*) OVER () AS n
  FROM t CROSS JOIN s{look_up("k", "memory_factkey", "x.subject_id = s.id", columns="x.id, x.xmin")}{
    look_up("b", "memory_belief", "x.key_id = k.id AND " + _HOLDS, columns="x.id, x.fact_id")
}{look_up("f", "memory_fact", "x.id = b.fact_id", columns="x.id, x.xmin, x.payload_id, x.consent_ids", outer=True)}{
    look_up("p", "memory_payload", "x.id = f.payload_id", columns="x.id, x.xmin", outer=True)
} LIMIT {MOST_ROWS + 1})
  UNION ALL
  (SELECT concat_ws(' ', 'e', e.id, e.xmin, q.id, q.xmin), count(*) OVER ()
  FROM t CROSS JOIN s{look_up("k", "memory_factkey", "x.subject_id = s.id", columns="x.id")}{
    look_up("b", "memory_belief", "x.key_id = k.id AND " + _HOLDS, columns="x.fact_id")
}{look_up("e", "memory_evidence", "x.fact_id = b.fact_id", columns="x.id, x.xmin, x.quote_id")}{
    look_up("q", "memory_payload", "x.id = e.quote_id", columns="x.id, x.xmin", outer=True)
} LIMIT {MOST_ROWS + 1})
  UNION ALL
  (SELECT concat_ws(' ', 'm', e.id, e.xmin, p.id, p.xmin, n.id), count(*) OVER ()
  FROM t CROSS JOIN s{
    look_up("e", "memory_episode", "x.subject_id = s.id", columns="x.id, x.xmin, x.payload_id, x.consent_id")
}{look_up("p", "memory_payload", "x.id = e.payload_id", columns="x.id, x.xmin", outer=True)}{
    look_up("n", "policies_consent", "x.id = e.consent_id AND x.withdrawn_at IS NULL", columns="x.id", outer=True)
} LIMIT {MOST_ROWS + 1})
  UNION ALL
  (SELECT concat_ws(' ', 'c', c.id, c.xmin, p.id, p.xmin), count(*) OVER ()
  FROM t CROSS JOIN s{
    look_up("c", "memory_candidate", "x.subject_id = s.id AND x.state = 'asked'", columns="x.id, x.xmin, x.payload_id")
}{look_up("p", "memory_payload", "x.id = c.payload_id", columns="x.id, x.xmin", outer=True)} LIMIT {MOST_ROWS + 1})
) z"""
_T = """
WITH t AS MATERIALIZED (SELECT %(tenant)s::uuid AS tenant, statement_timestamp() AS valid_at)
, found AS MATERIALIZED ({found})
, s AS MATERIALIZED (SELECT found.subject_id AS id FROM found)
"""
_OF_QUESTION = f"""SELECT d.* FROM t{
    look_up(
        "d",
        "memory_derived",
        "x.subject_id = %(subject)s::uuid AND x.kind = 'context' AND x.clearance = muniment_clearance()"
        " AND x.question_digest = %(question)s::bytea",
    )
}"""
_OF_SUBJECT = f"""SELECT s.id AS subject_id FROM t{
    look_up("s", "memory_subject", "x.id = %(subject)s::uuid AND NOT x.restricted", columns="x.id")
}"""
_READ = recall.in_one_line(
    _T.format(found=_OF_QUESTION)
    + f"""
SELECT d.id, d.state, d.builder = %(builder)s::text AND d.rules = %(rules)s::text AND d.print = w.print AND w.most <= {
        MOST_ROWS
    },
  d.asked_at > t.valid_at - interval '10 minutes', p.id, p.sealed, k.wrapped, k.version
FROM t CROSS JOIN found d CROSS JOIN LATERAL ({_PRINT} OFFSET 0) w{
        look_up("p", "memory_payload", "x.id = d.payload_id", outer=True)
    }{look_up("k", "tenants_subjectkey", "x.id = p.key_id", outer=True)}"""
)
_TAKE = recall.in_one_line(_T.format(found=_OF_SUBJECT) + _PRINT)


@dataclass(frozen=True, slots=True)
class Gathered:
    """What answers a question before a budget is laid on it: items as JSON has them, each with its line of text."""

    items: list[dict[str, Any]] = field(repr=False)
    lines: list[str] = field(repr=False)
    withheld: dict[str, int]


@dataclass(frozen=True, slots=True)
class Found:
    """A kept context, and whether it is still wanted to be made (anew)."""

    id: UUID
    gathered: Gathered | None
    wanted: bool


# reading --------------------------------------------------------------------------------------------------------------


def find(actor: Actor, body: RecallBody, subject: UUID, *, catalogue_no: int) -> Found | None:
    """Return what was kept of this question; `gathered` only where it is what would be found now. Under `Role.AGENT`."""
    found = rows.fetch(
        _READ,
        {
            "tenant": actor.tenant,
            "subject": subject,
            "question": _digest(actor.tenant, body),
            "builder": BUILDER,
            "rules": _rules(actor.tenant, catalogue_no),
        },
    )
    if not found:
        return None
    derived, state, same, asked, payload, sealed, wrapped, version = found[0]
    wanted = state == "wanted" and bool(asked)
    if state != "built" or not same or payload is None:
        return Found(derived, None, wanted)
    kept = json.loads(opened(actor.tenant, payload, _PURPOSE, None, sealed, wrapped, version))
    return Found(derived, Gathered(kept["items"], kept["lines"], kept["withheld"]), wanted)


def _rules(tenant: UUID, catalogue_no: int) -> str:
    return f"{catalogue_no} {search.rules()}"


def _digest(tenant: UUID, body: RecallBody) -> bytes:
    """Return what a question is known by: all that was asked but for the budget, which is laid on what was found."""
    asked = body.model_dump(mode="json", exclude={"budget_tokens"})
    return keyring().request_digest(tenant, "kept context", dumps(dict(sorted(asked.items()))))


# asking ---------------------------------------------------------------------------------------------------------------

_asked_before: OrderedDict[tuple[UUID, UUID, int, bytes], None] = OrderedDict()
_lock = Lock()
_WISH = f"""
INSERT INTO memory_derived AS d (tenant_id, id, kind, subject_id, clearance, state, asked_at, question_digest, payload_id,
  sensitivity, basis, expires_at, built_at)
SELECT %(tenant)s::uuid, %(id)s::uuid, 'context', %(subject)s::uuid, %(clearance)s::smallint, 'wanted', clock_timestamp(),
  %(question)s::bytea, %(payload)s::uuid, %(clearance)s::smallint, 'session', %(until)s::timestamptz, %(now)s::timestamptz
WHERE (SELECT count(*) FROM (SELECT 1 FROM memory_derived x WHERE x.tenant_id = %(tenant)s::uuid
  AND x.subject_id = %(subject)s::uuid AND x.kind = 'context' AND x.clearance = %(clearance)s::smallint LIMIT {MOST_CONTEXTS}) y)
  < {MOST_CONTEXTS}
ON CONFLICT (tenant_id, subject_id, kind, clearance, question_digest) DO NOTHING RETURNING d.id
"""
_WISH_AGAIN = """
UPDATE memory_derived d SET state = 'wanted', asked_at = clock_timestamp() WHERE d.tenant_id = %s::uuid AND d.id = %s::uuid
RETURNING d.id
"""


def wish(actor: Actor, body: RecallBody, subject: UUID, found: Found | None, *, now: datetime) -> None:
    """Have this question's context made, where it is worth it: it was asked before, and is not being made already.

    Under `Role.AGENT`, last in the read's transaction. The question waits for its builder sealed as what is made will be.
    """
    if found is not None and found.wanted:
        return
    if found is None and not _second(actor, body, subject):
        return
    with borrowed(Role.WRITER, back_to=Role.AGENT):
        if found is not None:
            made = rows.fetch(_WISH_AGAIN, [actor.tenant, found.id])
        else:
            payload, until = new_id(), now + LASTS
            question = dumps(body.model_dump(mode="json")).decode()
            put(actor.tenant, subject, payload, question, actor.clearance, "session", until, now)
            made = rows.fetch(
                _WISH,
                {
                    "tenant": actor.tenant,
                    "id": new_id(),
                    "subject": subject,
                    "clearance": actor.clearance,
                    "question": _digest(actor.tenant, body),
                    "payload": payload,
                    "until": until,
                    "now": now,
                },
            )
            if not made:
                rows.throw_away(actor.tenant, [payload])
        outbox.put(actor.tenant, "context.build", [row[0] for row in made])


def _second(actor: Actor, body: RecallBody, subject: UUID) -> bool:
    """Whether this process was asked the same before: what is asked once is not worth keeping."""
    name = (actor.tenant, subject, actor.clearance, _digest(actor.tenant, body))
    with _lock:
        before = name in _asked_before
        _asked_before[name] = None
        _asked_before.move_to_end(name)
        while len(_asked_before) > _REMEMBERED:
            _asked_before.popitem(last=False)
    return before


# making ---------------------------------------------------------------------------------------------------------------

_WANTED = """
SELECT d.subject_id, d.clearance, p.id, p.sealed, k.wrapped, k.version
FROM memory_derived d
  JOIN memory_payload p ON p.tenant_id = d.tenant_id AND p.id = d.payload_id
  JOIN tenants_subjectkey k ON k.tenant_id = p.tenant_id AND k.id = p.key_id
WHERE d.tenant_id = %s::uuid AND d.id = %s::uuid AND d.kind = 'context' AND d.state = 'wanted'
"""
LOCK_SUBJECT = "SELECT 1 FROM memory_subject s WHERE s.tenant_id = %s::uuid AND s.id = %s::uuid FOR UPDATE"
_LOCK = (
    "SELECT d.payload_id, clock_timestamp() FROM memory_derived d WHERE d.tenant_id = %s::uuid AND d.id = %s::uuid"
    " AND d.state = 'wanted' FOR UPDATE"
)
_STORE = """
UPDATE memory_derived d SET state = 'built', payload_id = %(payload)s::uuid, sensitivity = %(sensitivity)s::smallint,
  basis = %(basis)s::text, expires_at = %(expires_at)s::timestamptz, origin = %(origin)s::text, sources = %(sources)s::int,
  builder = %(builder)s::text, built_at = %(now)s::timestamptz, print = %(print)s::bytea, rules = %(rules)s::text
WHERE d.tenant_id = %(tenant)s::uuid AND d.id = %(id)s::uuid
"""


FORGET_SOURCES = "DELETE FROM memory_derivedsource w WHERE w.tenant_id = %s::uuid AND w.derived_id = %s::uuid"
_FIND_SOURCES = """
SELECT f.id, b.id FROM unnest(%s::uuid[]) AS f (id)
  CROSS JOIN LATERAL (SELECT x.id FROM memory_belief x WHERE x.tenant_id = %s::uuid AND x.fact_id = f.id
    AND x.believed_to IS NULL ORDER BY x.valid_from DESC LIMIT 1) b
"""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A question whose context is to be made: about whom, for readers of which clearance, and what was asked."""

    subject: UUID
    clearance: int
    body: RecallBody = field(repr=False)


def wanted(tenant: UUID, derived: UUID) -> Wanted | None:
    """Return what is to be made under this id, under `Role.WRITER`; None where it is wanted no more."""
    found = rows.fetch(_WANTED, [tenant, derived])
    if not found:
        return None
    subject, clearance, payload, sealed, wrapped, version = found[0]
    kept = json.loads(opened(tenant, payload, _PURPOSE, None, sealed, wrapped, version))
    return Wanted(subject, clearance, RecallBody.model_validate_json(dumps(kept.get("asked", kept))))


def taken(tenant: UUID, subject: UUID) -> bytes | None:
    """Return the print of what a reader sees about a subject now, under `Role.AGENT`; None where that is too much, or nothing."""
    mark, most = rows.fetch(_TAKE, {"tenant": tenant, "subject": subject})[0]
    return None if mark is None or most > MOST_ROWS else bytes(mark)


def store(
    tenant: UUID, derived: UUID, made: Wanted, gathered: Gathered, mark: bytes | None, *, catalogue_no: int
) -> bool:
    """Keep what was gathered where the print is the same still, under the locks that endings and writers take.

    Under `Role.WRITER`. Returns whether that is settled: False asks for another attempt. What cannot be kept (too much is
    known of the subject, or it is gone) is thrown away with its question.
    """
    rows.fetch(LOCK_SUBJECT, [tenant, made.subject])
    locked = rows.fetch(_LOCK, [tenant, derived])
    if not locked:
        return True
    former, now = locked[0]
    with borrowed(Role.AGENT, back_to=Role.WRITER):
        standing = taken(tenant, made.subject)
    if standing is None or mark is None:
        rows.throw_away(tenant, [former])
        return True
    if standing != mark:
        return False
    governed = [item["retention"] | {"class": item["sensitivity"]} for item in gathered.items]
    until = now + LASTS
    ends = [
        at for each in governed if each["expires_at"] and (at := datetime.fromisoformat(each["expires_at"])) < until
    ]
    payload, expires_at = new_id(), min(ends, default=until)
    body = {
        "asked": made.body.model_dump(mode="json"),
        "items": gathered.items,
        "lines": gathered.lines,
        "withheld": gathered.withheld,
    }
    # The question stands in it as well, and may say as much as its reader may read.
    put(tenant, made.subject, payload, dumps(body).decode(), made.clearance, "session", expires_at, now)
    rows.execute(
        _STORE,
        {
            "tenant": tenant,
            "id": derived,
            "payload": payload,
            "sensitivity": made.clearance,
            "basis": "session",
            "expires_at": expires_at,
            "origin": _weakest(gathered.items),
            "sources": len(gathered.items),
            "builder": BUILDER,
            "now": now,
            "print": mark,
            "rules": _rules(tenant, catalogue_no),
        },
    )
    rows.execute(FORGET_SOURCES, [tenant, derived])
    facts = [UUID(item["id"]) for item in gathered.items if item["type"] == "fact"]
    sources = rows.fetch(_FIND_SOURCES, [facts, tenant]) if facts else []
    rows.DERIVED_SOURCES.insert(
        tenant, [rows.DerivedSourceRow(new_id(), derived, fact, belief, mark) for fact, belief in sources]
    )
    rows.throw_away(tenant, [former])
    return True


def _weakest(items: list[dict[str, Any]]) -> str | None:
    """Return the source kind of the least trusted item; an episode's own kind where no fact has one."""
    told = [
        (item["cite"]["trust"], item["provenance"]["source"])
        for item in items
        if item["type"] == "fact" and item["cite"]["trust"] is not None and item["provenance"]
    ]
    return min(told)[1] if told else None


def put(
    tenant: UUID, subject: UUID, payload: UUID, text: str, level: int, basis: str, until: datetime | None, now: datetime
) -> None:
    """Put what was made of memory in its place, sealed whatever its class, so that it falls with its subject's key."""
    about = of_id(tenant, subject)
    sealed = keyring().seal(about.data_key, text.encode("utf-8"), payload_context(tenant, payload, _PURPOSE))
    row = rows.PayloadRow(payload, _PURPOSE, about.key_id, None, sealed, level, basis, until, None, now)
    rows.PAYLOADS.insert(tenant, [row])


def plain(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return items as JSON has them, so that what is kept and what is answered at once are the same."""
    found: list[dict[str, Any]] = json.loads(dumps(items))
    return found
