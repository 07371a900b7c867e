"""Restriction of processing on the rows of memory: staff see them, agents do not, from the commit on.

What is restricted says so on every row, payload and search entry, and row-level security asks for it: no read has to think
of it. Writes about a restricted subject are kept, as storing is not barred, and are restricted too (`follow`). Everything runs
in the caller's transaction under `Role.WRITER`.
"""

from collections.abc import Collection, Sequence
from uuid import UUID

from memory import rows

_LOCK_SUBJECT = "SELECT s.restricted FROM memory_subject s WHERE s.tenant_id = %s::uuid AND s.id = %s::uuid FOR UPDATE"
_LOCK_KEYS = """
SELECT 1 FROM memory_factkey k WHERE k.tenant_id = %s::uuid AND k.subject_id = %s::uuid
ORDER BY k.subject_id, k.attribute_id FOR NO KEY UPDATE
"""
_MARK_SUBJECT = "UPDATE memory_subject s SET restricted = %(on)s::boolean WHERE s.tenant_id = %(tenant)s::uuid AND s.id = ANY (%(subjects)s::uuid[])"
# `own` are facts and episodes that are restricted by themselves, whatever their subject is.
_MARK = (
    """
UPDATE memory_fact f SET restricted = w.want
FROM (SELECT x.id, %(on)s::boolean OR x.id = ANY (%(own)s::uuid[]) AS want FROM memory_fact x
      WHERE x.tenant_id = %(tenant)s::uuid AND x.subject_id = ANY (%(subjects)s::uuid[])) w
WHERE f.tenant_id = %(tenant)s::uuid AND f.id = w.id AND f.restricted <> w.want
""",
    """
UPDATE memory_evidence e SET restricted = w.want
FROM (SELECT x.id, %(on)s::boolean OR coalesce(x.fact_id = ANY (%(own)s::uuid[]), false) AS want FROM memory_factkey k
        CROSS JOIN LATERAL (SELECT v.id, v.fact_id FROM memory_evidence v WHERE v.tenant_id = k.tenant_id AND v.key_id = k.id OFFSET 0) x
      WHERE k.tenant_id = %(tenant)s::uuid AND k.subject_id = ANY (%(subjects)s::uuid[])) w
WHERE e.tenant_id = %(tenant)s::uuid AND e.id = w.id AND e.restricted <> w.want
""",
    """
UPDATE memory_episode e SET restricted = w.want
FROM (SELECT x.id, %(on)s::boolean OR x.id = ANY (%(own)s::uuid[]) AS want FROM memory_episode x
      WHERE x.tenant_id = %(tenant)s::uuid AND x.subject_id = ANY (%(subjects)s::uuid[])) w
WHERE e.tenant_id = %(tenant)s::uuid AND e.id = w.id AND e.restricted <> w.want
""",
    """
UPDATE memory_candidate c SET restricted = %(on)s::boolean
WHERE c.tenant_id = %(tenant)s::uuid AND c.subject_id = ANY (%(subjects)s::uuid[]) AND c.restricted <> %(on)s::boolean
""",
    """
UPDATE memory_payload p SET restricted = w.want
FROM (SELECT x.id, bool_or(x.want) AS want FROM (
    SELECT f.payload_id AS id, %(on)s::boolean OR f.id = ANY (%(own)s::uuid[]) AS want FROM memory_fact f
      WHERE f.tenant_id = %(tenant)s::uuid AND f.subject_id = ANY (%(subjects)s::uuid[])
    UNION ALL
    SELECT v.quote_id, %(on)s::boolean OR coalesce(v.fact_id = ANY (%(own)s::uuid[]), false)
        OR coalesce(v.episode_id = ANY (%(own)s::uuid[]), false) FROM memory_factkey k
      CROSS JOIN LATERAL (SELECT y.quote_id, y.fact_id, y.episode_id FROM memory_evidence y
        WHERE y.tenant_id = k.tenant_id AND y.key_id = k.id AND y.quote_id IS NOT NULL OFFSET 0) v
      WHERE k.tenant_id = %(tenant)s::uuid AND k.subject_id = ANY (%(subjects)s::uuid[])
    UNION ALL
    SELECT e.payload_id, %(on)s::boolean OR e.id = ANY (%(own)s::uuid[]) FROM memory_episode e
      WHERE e.tenant_id = %(tenant)s::uuid AND e.subject_id = ANY (%(subjects)s::uuid[])
    UNION ALL
    SELECT c.payload_id, %(on)s::boolean FROM memory_candidate c
      WHERE c.tenant_id = %(tenant)s::uuid AND c.subject_id = ANY (%(subjects)s::uuid[]) AND c.payload_id IS NOT NULL
    UNION ALL
    SELECT y.quote_id, %(on)s::boolean OR coalesce(y.episode_id = ANY (%(own)s::uuid[]), false) FROM memory_candidate c
      CROSS JOIN LATERAL (SELECT z.quote_id, z.episode_id FROM memory_candidatesaying z
        WHERE z.tenant_id = c.tenant_id AND z.candidate_id = c.id AND z.quote_id IS NOT NULL OFFSET 0) y
      WHERE c.tenant_id = %(tenant)s::uuid AND c.subject_id = ANY (%(subjects)s::uuid[])
    UNION ALL
    SELECT s.payload_id, %(on)s::boolean FROM memory_subject s
      WHERE s.tenant_id = %(tenant)s::uuid AND s.id = ANY (%(subjects)s::uuid[])
    UNION ALL
    SELECT i.payload_id, %(on)s::boolean FROM memory_subjectidentifier i
      WHERE i.tenant_id = %(tenant)s::uuid AND i.subject_id = ANY (%(subjects)s::uuid[])) x GROUP BY x.id) w
WHERE p.tenant_id = %(tenant)s::uuid AND p.id = w.id AND p.restricted <> w.want
""",
)
_SUBJECT_OF = {
    "fact": "SELECT x.subject_id FROM memory_fact x WHERE x.tenant_id = %s::uuid AND x.id = %s::uuid",
    "episode": "SELECT x.subject_id FROM memory_episode x WHERE x.tenant_id = %s::uuid AND x.id = %s::uuid",
}
_MARK_EPISODE = """
WITH marked AS (UPDATE memory_episode e SET restricted = %(on)s::boolean
  WHERE e.tenant_id = %(tenant)s::uuid AND e.id = %(episode)s::uuid RETURNING e.payload_id)
UPDATE memory_payload p SET restricted = %(on)s::boolean FROM marked m WHERE p.tenant_id = %(tenant)s::uuid AND p.id = m.payload_id
"""


def subject_of(tenant: UUID, kind: str, record: UUID) -> tuple[bool, UUID | None]:
    """Return whether a fact or an episode is there, and whose it is."""
    found = rows.fetch(_SUBJECT_OF[kind], [tenant, record])
    return bool(found), found[0][0] if found else None


def lock(tenant: UUID, subject: UUID) -> bool | None:
    """Lock a subject and its keys against writers and endings; return whether it is restricted, None where it is not there."""
    found = rows.fetch(_LOCK_SUBJECT, [tenant, subject])
    rows.fetch(_LOCK_KEYS, [tenant, subject])
    return bool(found[0][0]) if found else None


def mark(tenant: UUID, subject: UUID, *, on: bool, own: Collection[UUID]) -> None:
    """Let everything of a subject, which is locked, be restricted or not; its facts and episodes in `own` are in any case."""
    parameters = {"tenant": tenant, "subjects": [subject], "on": on, "own": list(own)}
    for statement in (_MARK_SUBJECT, *_MARK):
        rows.execute(statement, parameters)


def mark_episode(tenant: UUID, episode: UUID, *, on: bool) -> None:
    """Let an episode about nobody be restricted or not."""
    rows.execute(_MARK_EPISODE, {"tenant": tenant, "episode": episode, "on": on})


def follow(tenant: UUID, subjects: Sequence[UUID]) -> None:
    """Restrict what a write has just stored about restricted subjects, in the write's own transaction."""
    if subjects:
        parameters = {"tenant": tenant, "subjects": list(subjects), "on": True, "own": []}
        for statement in _MARK:
            rows.execute(statement, parameters)
