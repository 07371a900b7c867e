"""Keeping episodes: input as received, once for each source."""

from uuid import UUID

from memory import admission, rows, subjects
from memory.admission import References
from memory.contracts import EpisodeBody
from memory.outcomes import EpisodeKept, Refusal
from memory.rows import EpisodeRow, SubjectKeyRow
from memory.subjects import SubjectState
from memory.writing import Writing
from policies.values import canonical_text
from policies.vocabulary import Basis, Outcome, SourceKind
from tenants.audit import Action
from tenants.identity import new_id
from tenants.secrets import keyring

_LOCK_SOURCE = "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))"
_SAME_SOURCE = """
SELECT e.id, e.content_digest FROM memory_episode e
WHERE e.tenant_id = %s::uuid AND e.writer_id = %s::uuid AND e.session_id = %s::text AND e.turn_id = %s::text
  AND e.subject_id IS NOT DISTINCT FROM %s::uuid AND e.tool_call_id IS NOT DISTINCT FROM %s::text AND e.kind = %s::text
"""


def keep(writing: Writing, references: References, body: EpisodeBody) -> EpisodeKept:
    """Keep an episode that the policy accepts. Raises `Refusal`, also for a known source with other content (409)."""
    actor, tenant = writing.actor, writing.actor.tenant
    about = None
    if body.subject is not None:
        about = subjects.resolve(tenant, [body.subject], now=writing.now, found=references.subjects)[body.subject]
    basis = Basis.SESSION if body.retention is None else body.retention.basis
    consent = admission.consent_of(references, body.consent_ref, about, basis, path="consent_ref")
    verdict = admission.judge(
        writing,
        act="episode",
        attribute=None,
        source=SourceKind.TOOL_RESULT if body.kind == "tool_result" else SourceKind.STATEMENT,
        declared=body.sensitivity,
        basis=basis,
        consent=consent,
        confidence=None,
        retention=body.retention,
    )
    if verdict.outcome is not Outcome.ACCEPT:
        raise Refusal("rejected", reasons=verdict.reasons, rule=verdict.rule)
    text = body.content if isinstance(body.content, str) else canonical_text(body.content)
    digest = keyring().request_digest(tenant, "episode", text.encode("utf-8"))
    subject_id = None if about is None else about.id
    known = _known(writing, body, subject_id)
    if known is not None:
        episode, content = known
        if content != digest:
            raise Refusal("source_has_other_content", status=409)
        writing.came_to("accept", ["source_known"])
        return EpisodeKept(id=episode, receipt=writing.receipt, repeated=True)
    consent_id = None if consent is None else consent.id
    sensitivity = int(verdict.sensitivity)
    payload = writing.add_payload(
        "episode",
        text,
        about or _nobody(writing),
        sensitivity=sensitivity,
        basis=verdict.basis.value,
        expires_at=verdict.expires_at,
        consent_ids=rows.uuids(None if consent_id is None else [consent_id]),
    )
    writing.store_payloads()
    episode = new_id()
    rows.EPISODES.insert(
        tenant,
        [
            EpisodeRow(
                id=episode,
                kind=body.kind,
                role=body.role,
                subject_id=subject_id,
                session_id=body.session_id,
                turn_id=body.turn_id,
                tool_call_id=body.tool_call_id,
                occurred_at=body.occurred_at,
                recorded_at=writing.now,
                writer_kind=actor.kind.value,
                writer_id=actor.id,
                consent_id=consent_id,
                payload_id=payload,
                content_digest=digest,
                policy_version_id=writing.catalogue.policy_version_id,
                sensitivity=sensitivity,
                basis=verdict.basis.value,
                expires_at=verdict.expires_at,
            )
        ],
    )
    writing.note(Action.EPISODE_RECORDED, "episode", episode, reason=verdict.reasons[0], numbers={"class": sensitivity})
    writing.came_to("accept", verdict.reasons)
    if about is not None:
        writing.subjects = {about.id: about}
    return EpisodeKept(id=episode, receipt=writing.receipt)


def _known(writing: Writing, body: EpisodeBody, subject_id: UUID | None) -> tuple[UUID, bytes] | None:
    """Return the episode of that source and its content's digest: its writer, session, turn, subject and tool call name it."""
    tenant, writer = writing.actor.tenant, writing.actor.id
    # Its twin waits here, and then finds it: the look is a statement of its own, with a snapshot from after the lock.
    _, found = rows.fetch_all(
        [
            (_LOCK_SOURCE, [f"{tenant}{writer}{body.session_id}\x1f{body.turn_id}"]),
            (
                _SAME_SOURCE,
                [tenant, writer, body.session_id, body.turn_id, subject_id, body.tool_call_id, body.kind],
            ),
        ]
    )
    return (found[0][0], bytes(found[0][1])) if found else None


def _nobody(writing: Writing) -> SubjectState:
    """Return a data key for an episode about nobody: its own, so that it too can be destroyed alone."""
    data_key, wrapped, version = keyring().new_data_key(writing.actor.tenant)
    key_id = new_id()
    rows.SUBJECT_KEYS.insert(writing.actor.tenant, [SubjectKeyRow(key_id, wrapped, version, writing.now)])
    return SubjectState(new_id(), key_id, data_key)
