"""The audit chain: every act, in the transaction of the act, without content.

No role may write the rows; `audit_append` in the database locks the chain's head, appends and moves it. Because that
lock is held to the commit, a door appends all its events in one call, as its last statement.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from uuid import UUID

from django.db import connection

from tenants.actors import Actor
from tenants.identity import new_id
from tenants.models import PLATFORM


class Action(StrEnum):
    """Every act that is audited. A name is `what.happened`; the list is closed and tested."""

    TENANT_CREATED = "tenant.created"
    TENANT_LIMITED = "tenant.limited"
    MEMBER_ADDED = "member.added"
    MEMBER_REMOVED = "member.removed"
    AGENT_CREATED = "agent.created"
    KEY_ISSUED = "key.issued"
    KEY_ROTATED = "key.rotated"
    KEY_REVOKED = "key.revoked"
    KEY_REFUSED = "key.refused"
    SIGNED_IN = "session.signed_in"
    SIGN_IN_FAILED = "session.sign_in_failed"
    SIGN_IN_REFUSED = "session.sign_in_refused"
    SIGNED_OUT = "session.signed_out"
    PASSWORD_CHANGED = "session.password_changed"  # noqa: S105
    SECOND_FACTOR_ADDED = "second_factor.added"
    SECOND_FACTOR_REMOVED = "second_factor.removed"
    RECOVERY_CODES_MADE = "second_factor.recovery_codes_made"
    IDENTITY_NAMED = "identity.named"
    IDENTITIES_REMOVED = "identities.removed"
    CONFIRMED_AGAIN = "session.confirmed_again"
    CHAINS_VERIFIED = "audit.verified"
    ATTRIBUTE_PUBLISHED = "attribute.published"
    POLICY_PUBLISHED = "policy.published"
    ATTRIBUTE_DRAFTED = "attribute.drafted"
    POLICY_DRAFTED = "policy.drafted"
    DRAFT_DISCARDED = "draft.discarded"
    APPROVAL_ASKED = "approval.asked"
    APPROVAL_DECIDED = "approval.decided"
    APPROVAL_WITHDRAWN = "approval.withdrawn"
    APPROVAL_EXPIRED = "approval.expired"
    APPROVAL_USED = "approval.used"
    DELEGATION_GIVEN = "delegation.given"
    DELEGATION_ENDED = "delegation.ended"
    CONSENT_GRANTED = "consent.granted"
    CONSENT_WITHDRAWN = "consent.withdrawn"
    SESSION_CLOSED = "term.session_closed"
    CONTRACT_ENDED = "term.contract_ended"
    SUBJECT_REQUEST_LODGED = "subject_request.lodged"
    SUBJECT_REQUEST_REPEATED = "subject_request.repeated"
    SUBJECT_REQUEST_IDENTIFIED = "subject_request.identified"
    SUBJECT_REQUEST_EXTENDED = "subject_request.extended"
    SUBJECT_REQUEST_LED_TO = "subject_request.led_to"
    SUBJECT_REQUEST_ESCALATED = "subject_request.escalated"
    SUBJECT_REQUEST_CLOSED = "subject_request.closed"
    EXPORT_ASKED = "export.asked"
    EXPORT_MADE = "export.made"
    EXPORT_DOWNLOADED = "export.downloaded"
    EXPORT_ENDED = "export.ended"
    PROCESSING_EXPORTED = "processing.exported"
    LIFETIME_SHORTENED = "lifetime.shortened"
    LIFETIME_EXTENDED = "lifetime.extended"
    DISPOSITION_KEPT = "disposition.kept"
    DISPOSITION_ENDED = "disposition.ended"
    LIFETIMES_SHORTENED = "lifetimes.shortened"
    SUBJECT_NAMED = "subject.named"
    EPISODE_RECORDED = "episode.recorded"
    EPISODE_SENT = "episode.sent_to_model"
    EXTRACTION_ASKED = "episode.extraction_asked"
    EPISODE_EXTRACTED = "episode.extracted"
    FACT_WRITTEN = "fact.written"
    FACT_IMPORTED = "fact.imported"
    FACT_CORRECTED = "fact.corrected"
    EVIDENCE_RETRACTED = "evidence.retracted"
    FACT_SETTLED = "fact.settled"
    CANDIDATE_ASKED = "candidate.asked"
    CANDIDATE_BUFFERED = "candidate.buffered"
    CANDIDATE_PROMOTED = "candidate.promoted"
    CANDIDATE_DECIDED = "candidate.decided"
    ERASURE_ASKED = "erasure.asked"
    ERASURE_DECIDED = "erasure.decided"
    ERASURE_ITEM_DECIDED = "erasure.item_decided"
    NOTICE_SENT = "notice.sent"
    NOTICE_FAILED = "notice.failed"
    ENDPOINT_SET = "notice.endpoint_set"
    SUPPRESSION_LIFTED = "suppression.lifted"
    CONTENT_SHOWN = "content.shown"
    CONTENT_REVEALED = "content.revealed"
    EPISODE_RELEASED = "episode.released"
    MORE_ASKED = "item.more_asked"
    BULK_DECIDED = "items.decided"
    PROCEDURE_PROPOSED = "procedure.proposed"
    PROCEDURE_JOINED = "procedure.joined"
    PROCEDURE_APPROVED = "procedure.approved"
    PROCEDURE_REFUSED = "procedure.refused"
    PROCEDURE_RETURNED = "procedure.returned"
    PROCEDURE_SCHEDULED = "procedure.scheduled"
    PROCEDURE_UNSCHEDULED = "procedure.unscheduled"
    PROCEDURE_ACTIVATED = "procedure.activated"
    PROCEDURE_RETIRED = "procedure.retired"
    WRITE_REFUSED = "write.refused"
    WORK_RETRIED = "outbox.retried"
    RECEIPTS_SEALED = "receipts.sealed"
    MATTER_OPENED = "matter.opened"
    MATTER_CLOSED = "matter.closed"
    HOLD_PLACED = "hold.placed"
    HOLD_RELEASE_PROPOSED = "hold.release_proposed"
    HOLD_RELEASED = "hold.released"
    ENDING_REFUSED = "ending.refused"
    PROCESSING_RESTRICTED = "processing.restricted"
    RESTRICTION_LIFTED = "processing.restriction_lifted"
    ROTATION_BEGUN = "keys.rotation_begun"
    KEY_VERSION_DESTROYED = "keys.version_destroyed"
    BACKUP_MADE = "backup.made"
    MEMORY_EXPORTED = "memory.exported"
    MEMORY_IMPORTED = "memory.imported"
    BACKUP_RESTORED = "backup.restored"
    REDACTION_REQUIRED = "redaction.required"
    REDACTION_APPLIED = "redaction.applied"
    REDACTION_REFUSED = "redaction.refused"
    REDACTION_WITHDRAWN = "redaction.withdrawn"
    CONTENT_REDACTED = "content.redacted"
    ACCESS_REFUSED = "access.refused"
    CONTENT_REMOVED = "content.removed"
    RUN_BEGUN = "run.begun"
    RUN_FINISHED = "run.finished"
    CERTIFICATE_ISSUED = "certificate.issued"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One act to append: who did what to what, for which coded reason. `numbers` may hold numbers and booleans only."""

    actor: Actor
    action: Action
    target_kind: str
    target_id: UUID
    reason: str = "none"
    digest: bytes | None = None
    numbers: dict[str, int | float | bool] = field(default_factory=dict)


APPEND = "SELECT audit_append(%s, %s::jsonb)"


def parameters(chain: UUID, events: Sequence[Event]) -> list[UUID | str]:
    """Return the parameters of `APPEND` for `events`, for a door that sends it among other statements."""
    return [
        chain,
        json.dumps(
            [
                {
                    "id": str(new_id()),
                    "actor_kind": event.actor.kind.value,
                    "actor_id": str(event.actor.id),
                    "action": event.action.value,
                    "target_kind": event.target_kind,
                    "target_id": str(event.target_id),
                    "reason": event.reason,
                    "digest": None if event.digest is None else event.digest.hex(),
                    "numbers": event.numbers,
                }
                for event in events
            ]
        ),
    ]


def append(events: Sequence[Event], *, chain: UUID | None = None) -> None:
    """Append `events` to the chain of their tenant (or to `chain`; `PLATFORM` for acts without a tenant).

    To be called last in the act's transaction. Raises on anything that is no code or number: no audit, no act.
    """
    if not events:
        return
    with connection.cursor() as cursor:
        cursor.execute(APPEND, parameters(chain or events[0].actor.tenant, events))


__all__ = ["APPEND", "PLATFORM", "Action", "Event", "append", "parameters"]
