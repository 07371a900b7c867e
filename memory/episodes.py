"""Keeping episodes: input as received, once for each source."""

from dataclasses import dataclass
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
SELECT e.id, e.content_digest, k.wrapped, k.version FROM memory_episode e
  JOIN memory_payload p ON p.tenant_id = e.tenant_id AND p.id = e.payload_id
  LEFT JOIN tenants_subjectkey k ON k.tenant_id = p.tenant_id AND k.id = p.key_id
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
    subject_id = None if about is None else about.id
    known = _known(writing, body, subject_id)
    if known is not None:
        if known.digest != _digest(tenant, known.data_key, text):
            raise Refusal("source_has_other_content", status=409)
        writing.came_to("accept", ["source_known"])
        return EpisodeKept(id=known.id, receipt=writing.receipt, repeated=True)
    consent_id = None if consent is None else consent.id
    sensitivity = int(verdict.sensitivity)
    owner = about or _nobody(writing)
    payload = writing.add_payload(
        "episode",
        text,
        owner,
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
                content_digest=_digest(tenant, owner.data_key if verdict.sensitivity.encrypted else None, text),
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


@dataclass(frozen=True, slots=True)
class _Known:
    """An episode that is kept already: its content's digest, and the key that its content is sealed under, if it is."""

    id: UUID
    digest: bytes
    data_key: bytes | None


def _known(writing: Writing, body: EpisodeBody, subject_id: UUID | None) -> _Known | None:
    """Return the episode of that source: its writer, session, turn, subject, tool call and kind name it."""
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
    if not found:
        return None
    episode, digest, wrapped, version = found[0]
    data_key = None if wrapped is None else keyring().unwrap(tenant, bytes(wrapped), version)
    return _Known(episode, bytes(digest), data_key)


def _digest(tenant: UUID, data_key: bytes | None, text: str) -> bytes:
    """Return what equal content is known by: under the key that seals it, so that it dies with the key.

    Content that stands in clear has no such key; it is known under one of its tenant's.
    """
    if data_key is None:
        return keyring().request_digest(tenant, "episode", text.encode("utf-8"))
    return keyring().digest(data_key, "episode", text.encode("utf-8"))


def _nobody(writing: Writing) -> SubjectState:
    """Return a data key for an episode about nobody: its own, so that it too can be destroyed alone."""
    data_key, wrapped, version = keyring().new_data_key(writing.actor.tenant)
    key_id = new_id()
    rows.SUBJECT_KEYS.insert(writing.actor.tenant, [SubjectKeyRow(key_id, wrapped, version, writing.now)])
    return SubjectState(new_id(), key_id, data_key)
