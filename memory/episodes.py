"""Keeping episodes: input as received, once for each source."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from memory import admission, detecting, drawing, rows, search, subjects, suppression
from memory.admission import References
from memory.contracts import EpisodeBody
from memory.detecting import Screened
from memory.outcomes import EpisodeKept, Refusal
from memory.rows import EpisodeRow, SubjectKeyRow
from memory.subjects import SubjectState
from memory.writing import Writing
from policies.vocabulary import Basis, Outcome, Sensitivity, SourceKind
from tenants.audit import Action
from tenants.identity import new_id
from tenants.secrets import keyring

_LOCK_SOURCE = "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))"
_SAME_SOURCE = """
SELECT e.id, e.content_digest, e.replaced::text, e.detected, e.quarantined, k.wrapped, k.version FROM memory_episode e
  CROSS JOIN LATERAL (SELECT * FROM memory_payload x WHERE x.tenant_id = e.tenant_id AND x.id = e.payload_id OFFSET 0) p
  LEFT JOIN LATERAL (SELECT * FROM tenants_subjectkey x WHERE x.tenant_id = p.tenant_id AND x.id = p.key_id OFFSET 0) k ON true
WHERE e.tenant_id = %s::uuid AND e.writer_id = %s::uuid AND e.session_id = %s::text AND e.turn_id = %s::text
  AND e.subject_id IS NOT DISTINCT FROM %s::uuid AND e.tool_call_id IS NOT DISTINCT FROM %s::text AND e.kind = %s::text
"""
# Who of the tenant is named in it. Each step goes by a full key, whatever a plan made of young tables.
_MENTIONED = """
SELECT DISTINCT i.subject_id FROM unnest(%s::bytea[]) AS w (digest)
  CROSS JOIN LATERAL (SELECT i.subject_id FROM memory_subjectidentifier i
    WHERE i.tenant_id = %s::uuid AND i.digest = w.digest OFFSET 0) i
LIMIT %s
"""
#: So many subjects are recorded as named in one episode.
MOST_MENTIONED = 100


def keep(
    writing: Writing, references: References, body: EpisodeBody
) -> tuple[EpisodeKept, drawing.Source, SubjectState | None]:
    """Keep an episode that the policy accepts; return it as a source, as it is stored, and whom it is about.

    Raises `Refusal`, also for a known source with other content (409). Its credentials are replaced before anything is
    stored; what else is found in it raises its class and is recorded as codes. One that speaks to the agent is
    quarantined, as the policy says.
    """
    actor, tenant = writing.actor, writing.actor.tenant
    if body.subject is not None and body.subject not in references.subjects and detecting.is_credential(body.subject):
        raise Refusal("credential", "subject")
    screened = detecting.in_episode(body.content, name=body.subject, more=admission.names_finder())
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
        detected=screened.detected,
        over=admission.is_over(
            references, basis, body.session_id, body.contract_ref, None if about is None else about.id
        ),
    )
    if verdict.outcome is not Outcome.ACCEPT:
        raise Refusal("rejected", reasons=verdict.reasons, rule=verdict.rule)
    subject_id = None if about is None else about.id
    quarantined = screened.detected.instructs and writing.catalogue.policy.on_instruction != "accept"

    def source(episode: UUID) -> drawing.Source:
        return drawing.source_of(
            actor,
            body,
            id=episode,
            text=screened.text,
            subject_id=subject_id,
            recorded_at=writing.now,
            sensitivity=int(verdict.sensitivity),
            stated=int(Sensitivity.PERSONAL if body.sensitivity is None else body.sensitivity),
            quarantined=quarantined,
        )

    known, mentioned, mentioned_as = _known(writing, body, subject_id, screened)
    if known is not None:
        if known.digest != _digest(tenant, known.data_key, screened.original):
            raise Refusal("source_has_other_content", status=409)
        writing.came_to("accept", ["source_known"])
        kept = EpisodeKept(
            id=known.id,
            receipt=writing.receipt,
            repeated=True,
            replaced=known.replaced,
            detected=known.detected,
            quarantined=known.quarantined,
        )
        return kept, source(known.id), about
    if _returns(writing, body, screened, mentioned_as):
        raise suppression.refusal()
    consent_id = None if consent is None else consent.id
    sensitivity = int(verdict.sensitivity)
    owner = about or _nobody(writing)
    payload = writing.add_payload(
        "episode",
        screened.text,
        owner,
        sensitivity=sensitivity,
        basis=verdict.basis.value,
        expires_at=verdict.expires_at,
        consent_ids=rows.uuids(None if consent_id is None else [consent_id]),
    )
    writing.store_payloads()
    episode = new_id()
    detected = screened.detected.codes
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
                contract_ref=body.contract_ref,
                payload_id=payload,
                content_digest=_digest(
                    tenant, owner.data_key if verdict.sensitivity.encrypted else None, screened.original
                ),
                extraction="none" if body.extract == "no" else body.extract,
                policy_version_id=writing.catalogue.policy_version_id,
                sensitivity=sensitivity,
                basis=verdict.basis.value,
                expires_at=verdict.expires_at,
                detected=rows.words(detected),
                replaced=rows.Json(screened.replaced),
                quarantined=quarantined,
                mentioned_ids=rows.Uuids(mentioned),
            )
        ],
    )
    search.store(
        tenant,
        [
            search.Text(
                kind="episode",
                target=episode,
                subject=subject_id,
                payload=payload,
                at=body.occurred_at,
                text=screened.text,
                sensitivity=sensitivity,
                expires_at=verdict.expires_at,
                consent_ids=rows.uuids(None if consent_id is None else [consent_id]),
            )
        ],
    )
    numbers = {"class": sensitivity, **detecting.counted(detected)}
    if screened.replaced:
        numbers["replaced"] = sum(screened.replaced.values())
    writing.note(Action.EPISODE_RECORDED, "episode", episode, reason=verdict.reasons[0], numbers=numbers)
    writing.came_to("accept", verdict.reasons)
    if screened.replaced:
        writing.came_to("accept", reasons=("credentials_replaced",))
    if quarantined:
        writing.came_to("accept", reasons=("quarantined",))
    if about is not None:
        writing.subjects = {about.id: about}
    kept = EpisodeKept(
        id=episode,
        receipt=writing.receipt,
        replaced=screened.replaced,
        detected=detected,
        quarantined=quarantined,
    )
    return kept, source(episode), about


@dataclass(frozen=True, slots=True)
class _Known:
    """An episode that is kept already: its content's digest, and the key that its content is sealed under, if it is."""

    id: UUID
    digest: bytes
    data_key: bytes | None
    replaced: dict[str, int]
    detected: tuple[str, ...]
    quarantined: bool


def _known(
    writing: Writing, body: EpisodeBody, subject_id: UUID | None, screened: Screened
) -> tuple[_Known | None, list[UUID], list[bytes]]:
    """Return the episode of that source (its writer, session, turn, subject, tool call and kind), who is named in it, and
    what names it may hold, as look-up digests. Holds it against what was redacted or erased."""
    tenant, writer = writing.actor.tenant, writing.actor.id
    names = detecting.names_in(screened.text, screened.identifiers)
    digests = sorted({keyring().identifier(tenant, name) for name in names})
    held = _suppressible(tenant, body, screened, digests) if writing.suppressed.any else []
    # Its twin waits here, and then finds it: the look is a statement of its own, with a snapshot from after the lock.
    _, found, named, suppressed = rows.fetch_all(
        [
            (_LOCK_SOURCE, [f"{tenant}{writer}{body.session_id}\x1f{body.turn_id}"]),
            (
                _SAME_SOURCE,
                [tenant, writer, body.session_id, body.turn_id, subject_id, body.tool_call_id, body.kind],
            ),
            (_MENTIONED, [digests, tenant, MOST_MENTIONED]) if digests else None,
            suppression.query(tenant, held),
        ]
    )
    for (each,) in suppressed:
        writing.suppressed.take(each)
    mentioned = sorted(row[0] for row in named if row[0] != subject_id)
    if not found:
        return None, mentioned, digests
    episode, digest, replaced, detected, quarantined, wrapped, version = found[0]
    data_key = None if wrapped is None else keyring().unwrap(tenant, bytes(wrapped), version)
    kept = _Known(episode, bytes(digest), data_key, json.loads(replaced), tuple(detected), quarantined)
    return kept, mentioned, digests


def _suppressible(tenant: UUID, body: EpisodeBody, screened: Screened, names: Sequence[bytes]) -> list[bytes]:
    text = screened.text
    return [
        suppression.of_source(tenant, body.turn_id, text),
        suppression.of_text(tenant, text),
        *(suppression.of_subject(tenant, name) for name in names),
    ]


def _returns(writing: Writing, body: EpisodeBody, screened: Screened, names: Sequence[bytes]) -> bool:
    """Whether it is a source that was redacted or erased; or is no newer than such a decision, and has the text of one,
    is about a subject that was erased, or names one."""
    if not writing.suppressed.any:
        return False
    tenant = writing.actor.tenant
    source, *dated = _suppressible(tenant, body, screened, names)
    if body.subject is not None:
        dated += suppression.named(tenant, [body.subject])
    decided = writing.suppressed.since(dated)
    return writing.suppressed.since([source]) is not None or (decided is not None and body.occurred_at <= decided)


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
