"""The content register: what every stored field may hold. Pure data; a test walks all models and finds it complete.

`content` is what somebody said, or what names a person in the words of the world: it stands in payloads, where it can be
sealed and ended. `pseudonymous` points at a person or at what was said without telling it: ids, references that agents
and organisations chose, digests under keys. `content_free` tells nothing of anybody: classes, instants, counts, codes.
"""

from collections.abc import Iterator
from enum import StrEnum
from types import MappingProxyType


class Holds(StrEnum):
    """What a field may hold, from the most to the least protected."""

    CONTENT = "content"
    PSEUDONYMOUS = "pseudonymous"
    CONTENT_FREE = "content_free"


Fields = dict[Holds, str]


def _fields(*, content: str = "", pseudonymous: str = "", content_free: str = "") -> Fields:
    return {Holds.CONTENT: content, Holds.PSEUDONYMOUS: pseudonymous, Holds.CONTENT_FREE: content_free}


_GOVERNED = "sensitivity basis expires_at redaction_state redaction_fields restricted"
_WRITER = "writer_kind trust"
_HISTORY = "history_id history_date history_change_reason history_type"

_REQUEST = (
    "id target_id digest requested_by carried_out_by",
    "tenant act target_kind reason state requested_at expires_at carried_out_at",
)

_MATTER = ("opened_by closed_by", "tenant reference reason state opened_at closed_at")
_HOLD = ("placed_by proposed_by released_by", "tenant matter state placed_at proposed_at released_at")

_VERSION_OF_A_PROCEDURE = (
    "agent payload body_digest digest proposed_by scheduled_by activated_by retired_by test_reference",
    f"id tenant procedure number scope scope_rank base rollback test_kind test_result test_cases test_passed detected state"
    f" proposed_by_kind created_at activate_at activated_at retired_at retired_because {_GOVERNED}",
)

_MODELS: dict[str, Fields] = {
    # tenants ----------------------------------------------------------------------------------------------------------
    "tenants.Tenant": _fields(
        content_free="id slug state catalogue_no requests_a_minute writes_a_minute oldest_key_version"
        " destroyed_key_version created_at"
    ),
    "tenants.HistoricalTenant": _fields(
        pseudonymous="history_user",
        content_free=f"id slug state catalogue_no requests_a_minute writes_a_minute created_at {_HISTORY}",
    ),
    "tenants.User": _fields(
        content="first_name last_name email",
        pseudonymous="id username password",
        content_free="last_login is_superuser is_staff is_active date_joined",
    ),
    "tenants.User_groups": _fields(pseudonymous="user", content_free="id group"),
    "tenants.User_user_permissions": _fields(pseudonymous="user", content_free="id permission"),
    "tenants.Membership": _fields(pseudonymous="id user", content_free="tenant role created_at"),
    "tenants.HistoricalMembership": _fields(
        pseudonymous="id user history_user", content_free=f"tenant role created_at {_HISTORY}"
    ),
    "tenants.Agent": _fields(pseudonymous="id", content_free="tenant name clearance trust purposes state created_at"),
    "tenants.HistoricalAgent": _fields(
        pseudonymous="id history_user",
        content_free=f"tenant name clearance trust purposes state created_at {_HISTORY}",
    ),
    "tenants.AgentKey": _fields(
        pseudonymous="id agent prefix digest",
        content_free="tenant scopes expires_at revoked_at last_used_at counted_minute counted_requests counted_writes created_at",
    ),
    "tenants.SubjectKey": _fields(pseudonymous="id wrapped", content_free="tenant version created_at"),
    "tenants.AuditChain": _fields(pseudonymous="hash", content_free="chain seq"),
    "tenants.AuditEvent": _fields(
        pseudonymous="id prev hash actor_id target_id digest",
        content_free="chain seq at actor_kind action target_kind reason numbers",
    ),
    # policies ---------------------------------------------------------------------------------------------------------
    "policies.Attribute": _fields(content_free="id tenant name cardinality created_at"),
    "policies.HistoricalAttribute": _fields(
        pseudonymous="history_user", content_free=f"id tenant name cardinality created_at {_HISTORY}"
    ),
    "policies.AttributeVersion": _fields(
        pseudonymous="drafted_by", content_free="id tenant attribute number definition digest state created_at base"
    ),
    "policies.Policy": _fields(content_free="id tenant name created_at"),
    "policies.HistoricalPolicy": _fields(
        pseudonymous="history_user", content_free=f"id tenant name created_at {_HISTORY}"
    ),
    "policies.PolicyVersion": _fields(
        pseudonymous="drafted_by", content_free="id tenant policy number rules digest state created_at base"
    ),
    "policies.DecisionRequest": _fields(pseudonymous=_REQUEST[0], content_free=_REQUEST[1]),
    "policies.HistoricalDecisionRequest": _fields(
        pseudonymous=f"{_REQUEST[0]} history_user", content_free=f"{_REQUEST[1]} {_HISTORY}"
    ),
    "policies.Decision": _fields(
        pseudonymous="id request requested_by digest decided_by delegation",
        content_free="tenant verdict reason decided_at",
    ),
    "policies.Delegation": _fields(
        pseudonymous="id given_by given_to", content_free="tenant role starts_at ends_at created_at ended_at"
    ),
    "policies.Consent": _fields(
        pseudonymous="id subject_id ref", content_free="tenant purposes granted_at withdrawn_at lock_no created_at"
    ),
    # memory -----------------------------------------------------------------------------------------------------------
    "memory.Payload": _fields(
        content="clear sealed",
        pseudonymous="id key consent_ids",
        content_free=f"tenant purpose written_at ended_at {_GOVERNED}",
    ),
    "memory.Subject": _fields(
        pseudonymous="id payload key", content_free="tenant kind restricted lock_no created_at ended_at"
    ),
    "memory.SubjectIdentifier": _fields(
        pseudonymous="id subject digest payload", content_free="tenant is_key created_at"
    ),
    "memory.Episode": _fields(
        pseudonymous="id subject session_id turn_id tool_call_id writer_id consent contract_ref payload content_digest"
        " mentioned_ids",
        content_free="tenant kind role occurred_at recorded_at writer_kind extraction policy_version detected replaced"
        f" quarantined {_GOVERNED}",
    ),
    "memory.Extraction": _fields(
        pseudonymous="id episode subject results",
        content_free="tenant state code attempts extractors stated clearance trust purposes asked_at finished_at",
    ),
    "memory.FactKey": _fields(
        pseudonymous="id subject chain_no", content_free="tenant attribute act_no newest_at checked_act_no"
    ),
    "memory.Fact": _fields(
        pseudonymous="id key subject chain_no value_digest payload consent_ids",
        content_free="tenant attribute_version policy_version confirmed confidence evidence_count review_at ended_at"
        f" ended_by created_at {_GOVERNED}",
    ),
    "memory.Evidence": _fields(
        pseudonymous="id key fact turn_id tool_call_id consent session_id contract_ref writer_id episode quote corrects"
        " retracted_by",
        content_free="tenant is_end valid_from stated_to recorded_at act_no rank confirmed confidence imported source"
        " written_at extractor attribute_version policy_version retracted_at retraction_reason detected"
        f" {_WRITER} {_GOVERNED}",
    ),
    "memory.Belief": _fields(
        pseudonymous="id key chain_no evidence fact",
        content_free="tenant valid_from valid_to believed_from believed_to",
    ),
    "memory.Candidate": _fields(
        pseudonymous="id subject target_id value_digest payload writer_id decided_by evidence_id",
        content_free="tenant attribute attribute_version policy_version act state reasons rule confirm_by is_end"
        f" writer_kind occurrences created_at due_at decided_at decision_reason {_GOVERNED}",
    ),
    "memory.CandidateSaying": _fields(
        pseudonymous="id candidate turn_id tool_call_id consent session_id contract_ref episode quote writer_id",
        content_free=f"tenant valid_from stated_to confidence source extractor sensitivity basis expires_at said_at"
        f" detected {_WRITER}",
    ),
    "memory.Term": _fields(
        pseudonymous="id ref writer_id subject ended_by_id",
        content_free="tenant kind ended_at due_at policy_version ended_by_kind",
    ),
    "memory.Receipt": _fields(
        pseudonymous="id actor_id subject_ids fact_ids episode_ids procedure_ids question_digest",
        content_free="tenant act actor_kind at valid_at known_at attribute_ids withheld policy_version_id verdict"
        " reasons sealed_seq",
    ),
    "memory.Procedure": _fields(content_free="id tenant name lock_no created_at"),
    "memory.ProcedureVersion": _fields(
        pseudonymous=_VERSION_OF_A_PROCEDURE[0], content_free=_VERSION_OF_A_PROCEDURE[1]
    ),
    "memory.HistoricalProcedureVersion": _fields(
        pseudonymous=f"{_VERSION_OF_A_PROCEDURE[0]} history_user",
        content_free=f"{_VERSION_OF_A_PROCEDURE[1]} {_HISTORY}",
    ),
    "memory.ProcedureEvidence": _fields(
        pseudonymous="episode fact named_by", content_free="id tenant version named_at"
    ),
    "memory.SearchEntry": _fields(
        pseudonymous="id subject_id target_id payload consent_ids tokens counts length",
        content_free="tenant sensitivity expires_at restricted redaction_state kind at key_version rules",
    ),
    "memory.SearchState": _fields(
        pseudonymous="made_to common",
        content_free="id tenant rules key_version entries length frequencies counted_at",
    ),
    "memory.Derived": _fields(
        pseudonymous="id subject payload question_digest print",
        content_free="tenant kind clearance state asked_at sensitivity basis expires_at origin sources builder built_at rules",
    ),
    "memory.DerivedSource": _fields(pseudonymous="id derived fact belief state", content_free="tenant"),
    "memory.Suppression": _fields(
        pseudonymous="id digest target_id lifted_by",
        content_free="tenant key decided_at cause target_kind attribute created_at lifted_at lift_reason",
    ),
    "memory.PreventedReturn": _fields(content_free="id tenant day refused asked"),
    "memory.IdempotencyRecord": _fields(
        pseudonymous="id agent_id key_digest request_digest outcome", content_free="tenant status created_at"
    ),
    "memory.OutboxEntry": _fields(
        pseudonymous="id target_id",
        content_free="tenant topic state attempts due_at created_at done_at failure",
    ),
    "memory.ModelBudget": _fields(content_free="id tenant day day_tokens month month_tokens"),
    "memory.ModelSpending": _fields(
        content_free="id tenant day model outcome calls tokens_in tokens_out milliseconds cost"
    ),
    # retention --------------------------------------------------------------------------------------------------------
    "retention.OwedEnding": _fields(
        pseudonymous="id target_id record", content_free="tenant kind owed_at settled_at line"
    ),
    "retention.Matter": _fields(pseudonymous=f"id {_MATTER[0]}", content_free=_MATTER[1]),
    "retention.HistoricalMatter": _fields(
        pseudonymous=f"id {_MATTER[0]} history_user", content_free=f"{_MATTER[1]} {_HISTORY}"
    ),
    "retention.Hold": _fields(pseudonymous=f"id {_HOLD[0]}", content_free=_HOLD[1]),
    "retention.HistoricalHold": _fields(
        pseudonymous=f"id {_HOLD[0]} history_user", content_free=f"{_HOLD[1]} {_HISTORY}"
    ),
    "retention.HoldScope": _fields(
        pseudonymous="id hold record_id subject_id session_id writer_id",
        content_free="tenant record_kind attribute recorded_from recorded_until",
    ),
    "retention.Run": _fields(
        pseudonymous="id target_id cursor requested_by",
        content_free="tenant kind target_kind state step counts refused_by_hold started_at advanced_at finished_at code",
    ),
    "retention.Certificate": _fields(
        pseudonymous="id run follows document issued_by chain_hash digest signature",
        content_free="tenant kind issued_at chain_seq key_digest",
    ),
    "retention.RefusedEnding": _fields(
        pseudonymous="id hold record_id run_id actor_id",
        content_free="tenant record_kind act actor_kind times first_at last_at",
    ),
    "retention.Tally": _fields(pseudonymous="id actor_id", content_free="tenant day action actor_kind number"),
    "retention.TallyState": _fields(content_free="id tenant counted_to"),
    "retention.SubjectRequest": _fields(
        pseudonymous="id subject_id subject_digest reference identity_by led_to_id lodged_by_id closed_by",
        content_free="tenant kind state received_at due_at extended_at extended_to extension_reason identity identity_method"
        " identity_at repeats refusal_ground outcome led_to_kind lodged_by_kind lodged_at closed_at",
    ),
    "retention.Escalation": _fields(pseudonymous="id request", content_free="tenant level told due_at at"),
    "retention.RedactionRequest": _fields(
        pseudonymous="id requested_by decided_by digest",
        content_free="tenant state reason requester_kind requested_at cause decided_at decision_reason counts run_id"
        " certificate_id",
    ),
    "retention.RedactionItem": _fields(
        pseudonymous="id request target_id payload_id", content_free="tenant kind picked strategy fields spans"
    ),
    "retention.Claim": _fields(
        pseudonymous="id item_id person_id digest bulk_id",
        content_free="tenant queue taken_at expires_at revealed_until ended_at ended_by act reason level commit_at"
        " deferred_until",
    ),
    "retention.Reveal": _fields(
        pseudonymous="id person_id target_id subject_id case_ref",
        content_free="tenant target_kind fields sensitivity reason at expires_at",
    ),
    "retention.DeskPreference": _fields(pseudonymous="id person_id", content_free="tenant single_keys"),
    "retention.Erasure": _fields(
        pseudonymous="id subject_id request_id digest asked_by question_id approved_by name_ids run_id certificate_id",
        content_free="tenant state reason preview asked_kind asked_at approved_at finished_at",
    ),
    "retention.ErasureItem": _fields(
        pseudonymous="id erasure target_id decided_by",
        content_free="tenant kind spans state reason found_at decided_at",
    ),
    "retention.NoticeEndpoint": _fields(
        pseudonymous="id agent key sealed", content_free="tenant url created_at ended_at"
    ),
    "retention.Notice": _fields(
        pseudonymous="id erasure agent fact_ids",
        content_free="tenant state attempts status code created_at tried_at sent_at",
    ),
    "retention.AccessExport": _fields(
        pseudonymous="id asked subject_id payload_id asked_by digest",
        content_free="tenant kind state asked_at made_at expires_at size downloads",
    ),
    "retention.Restriction": _fields(
        pseudonymous="id target_id request_id restricted_by lifted_by",
        content_free="tenant target_kind ground state restricted_at lifted_at lifted_because told_at",
    ),
    "retention.LifetimeChange": _fields(
        pseudonymous="id fact_id actor_id question_id",
        content_free="tenant act until review_at reason actor_kind done_at",
    ),
    # the platform's ---------------------------------------------------------------------------------------------------
    "admin.LogEntry": _fields(
        pseudonymous="user object_id object_repr",
        content_free="id action_time content_type action_flag change_message",
    ),
    "auth.Group": _fields(content_free="id name"),
    "auth.Group_permissions": _fields(content_free="id group permission"),
    "auth.Permission": _fields(content_free="id name content_type codename"),
    "contenttypes.ContentType": _fields(content_free="id app_label model"),
    "sessions.Session": _fields(pseudonymous="session_key session_data", content_free="expire_date"),
    "account.EmailAddress": _fields(content="email", pseudonymous="user", content_free="id verified primary"),
    "account.EmailConfirmation": _fields(pseudonymous="key", content_free="id email_address created sent"),
    "tenants.SignInIdentity": _fields(
        pseudonymous="id user digest", content_free="provider known_by created_at used_at"
    ),
    "mfa.Authenticator": _fields(pseudonymous="user data", content_free="id type created_at last_used_at"),
}

#: Content that stands outside payloads, and why it may.
EXCEPTIONS = MappingProxyType(
    {
        "tenants.User.first_name": "a name of our own staff; no door fills it, it comes with Django's user",
        "tenants.User.last_name": "as first_name",
        "tenants.User.email": "as first_name",
        "account.EmailAddress.email": "no role may read or write here: the table comes with the library, mail is never sent",
    }
)

#: Why a field whose type could hold anything does not hold content.
REASONS = MappingProxyType(
    {
        "tenants.Tenant.slug": "an organisation's short name, of the shape that a check allows",
        "tenants.User.username": "what a person of our own staff signs in with; never a data subject's",
        "tenants.User.password": "a salted hash",
        "tenants.Agent.name": "a program's name, given by an operator",
        "tenants.Agent.purposes": "codes, given by an operator",
        "tenants.AgentKey.prefix": "random letters",
        "tenants.AgentKey.digest": "SHA-512 of a random secret",
        "tenants.AgentKey.scopes": "words of a closed list",
        "tenants.SignInIdentity.provider": "a name of the operator's choice, of the shape that a check allows",
        "tenants.SignInIdentity.known_by": "a word of a closed list",
        "tenants.SignInIdentity.digest": "SHA-256 of what a provider calls a person of our own staff; never a data subject's",
        "tenants.SubjectKey.wrapped": "a data key, sealed under a tenant key that is not in the database",
        "tenants.AuditChain.hash": "the hash of content-free entries",
        "tenants.AuditEvent.prev": "as hash",
        "tenants.AuditEvent.hash": "of content-free columns",
        "tenants.AuditEvent.reason": "a code, of the shape that a check allows",
        "tenants.AuditEvent.action": "a word of a closed list",
        "tenants.AuditEvent.target_kind": "a model's name, of the shape that a check allows",
        "tenants.AuditEvent.digest": "of a published document, or an HMAC under a key that dies with its subject",
        "tenants.AuditEvent.numbers": "numbers and booleans only, by a check",
        "policies.Attribute.name": "the name of a kind of fact, published by the organisation",
        "policies.AttributeVersion.definition": "rules about a kind of fact, published by the organisation",
        "policies.AttributeVersion.digest": "of the definition",
        "policies.Policy.name": "published by the organisation",
        "policies.PolicyVersion.rules": "published by the organisation",
        "policies.PolicyVersion.digest": "of the rules",
        "policies.DecisionRequest.digest": "of a published document, or of ids and counts; an act never signs content",
        "policies.DecisionRequest.target_kind": "a model's name, of the shape that a check allows",
        "policies.DecisionRequest.reason": "a code, of the shape that a check allows",
        "policies.Decision.digest": "as the request's",
        "policies.Decision.reason": "a code, of the shape that a check allows",
        "memory.Procedure.name": "a name of the organisation's or its agents' choice, of the shape that a check allows;"
        " one that is a phone, a card or the like is refused",
        "memory.ProcedureVersion.scope": "a word of a closed list with a purpose or an agent's name, by a check",
        "memory.ProcedureVersion.body_digest": "an HMAC under the text's own key, which dies with it",
        "memory.ProcedureVersion.digest": "of the digest of the text, of ids and of codes",
        "memory.ProcedureVersion.test_kind": "a word of a closed list",
        "memory.ProcedureVersion.test_reference": "an id that the proposer chose; one that is an e-mail or the like is refused",
        "memory.ProcedureVersion.test_result": "a word of a closed list",
        "memory.ProcedureVersion.detected": "names of detectors",
        "memory.ProcedureVersion.proposed_by_kind": "a word of a closed list",
        "memory.ProcedureVersion.retired_because": "a word of a closed list",
        "policies.Consent.ref": "an organisation's reference; one that is an e-mail, a phone or a card is refused",
        "policies.Consent.purposes": "codes, of the shape that the boundary allows",
        "memory.Subject.kind": "a word, of the shape that a check allows",
        "memory.SubjectIdentifier.digest": "an HMAC under the tenant's pepper, which is not in the database",
        "memory.Episode.session_id": "chosen by an agent; one that is an e-mail, a phone or a card is refused",
        "memory.Episode.turn_id": "as session_id",
        "memory.Episode.tool_call_id": "as session_id",
        "memory.Episode.contract_ref": "as Consent.ref",
        "memory.Episode.content_digest": "an HMAC under the tenant's idempotency key, which is not in the database",
        "memory.Episode.detected": "names of detectors, of the shape that a check allows",
        "memory.Episode.replaced": "counts by names of detectors, by a check",
        "memory.Extraction.code": "a code, of the shape that a check allows",
        "memory.Extraction.extractors": "programs' names and versions",
        "memory.Extraction.results": "names of attributes, ids and codes, made by the write door",
        "memory.Extraction.purposes": "codes, given by an operator",
        "memory.Fact.value_digest": "an HMAC under a key derived from the subject's data key",
        "memory.Evidence.turn_id": "chosen by an agent; one that is an e-mail, a phone or a card is refused",
        "memory.Evidence.tool_call_id": "as turn_id",
        "memory.Evidence.session_id": "as Episode.session_id",
        "memory.Evidence.contract_ref": "as Consent.ref",
        "memory.Evidence.extractor": "a program's name and version",
        "memory.Evidence.detected": "names of detectors, of the shape that a check allows",
        "memory.Candidate.value_digest": "an HMAC under a key derived from the subject's data key",
        "memory.Candidate.reasons": "codes",
        "memory.Candidate.rule": "the id of a rule in a published policy",
        "memory.Candidate.decision_reason": "a code",
        "memory.CandidateSaying.extractor": "a program's name and version",
        "memory.CandidateSaying.session_id": "as Episode.session_id",
        "memory.CandidateSaying.contract_ref": "as Consent.ref",
        "memory.Term.kind": "a word of a closed list",
        "memory.Term.ref": "as Episode.session_id, or as Consent.ref",
        "memory.Term.ended_by_kind": "a word of a closed list",
        "memory.CandidateSaying.turn_id": "chosen by an agent; one that is an e-mail, a phone or a card is refused",
        "memory.CandidateSaying.tool_call_id": "as turn_id",
        "memory.CandidateSaying.detected": "names of detectors, of the shape that a check allows",
        "memory.Receipt.withheld": "counts by reason",
        "memory.Receipt.reasons": "codes",
        "memory.Receipt.question_digest": "an HMAC under a key of the tenant and this receipt alone",
        "memory.SearchEntry.kind": "a word of a closed list",
        "memory.SearchEntry.rules": "the number of the rules and the language by which it was made",
        "memory.SearchState.rules": "as SearchEntry.rules",
        "memory.Derived.kind": "a word of a closed list",
        "memory.Derived.origin": "a word of a closed list",
        "memory.Derived.builder": "a program's name and version",
        "memory.Derived.question_digest": "an HMAC under the tenant's idempotency key, which is not in the database",
        "memory.Derived.print": "of ids and numbers of transactions",
        "memory.Derived.rules": "numbers of the catalogue and of the index's rules, and a language",
        "memory.DerivedSource.state": "of ids, numbers and codes of a fact's row; no value",
        "retention.Erasure.asked_kind": "a word of a closed list",
        "retention.Erasure.reason": "a code of a closed list",
        "retention.Erasure.preview": "numbers by codes, by a check",
        "retention.Erasure.digest": "of ids and counts",
        "retention.ErasureItem.reason": "a code, of the shape that a check allows",
        "retention.Notice.code": "a code, of the shape that a check allows",
        "retention.NoticeEndpoint.url": "an address of a recipient's program, given by an operator or a person of the organisation",
        "retention.NoticeEndpoint.sealed": "a signing secret, sealed under a data key of its own",
        "memory.Suppression.key": "a word of a closed list",
        "memory.Suppression.digest": "an HMAC under the tenant's pepper, which is not in the database",
        "memory.Suppression.cause": "a word of a closed list",
        "memory.Suppression.target_kind": "a model's name, of the shape that a check allows",
        "memory.Suppression.lift_reason": "a code, of the shape that a check allows",
        "memory.IdempotencyRecord.key_digest": "an HMAC under the tenant's idempotency key",
        "memory.IdempotencyRecord.request_digest": "an HMAC under the tenant's idempotency key",
        "memory.IdempotencyRecord.outcome": "ids and codes; the answer is rendered anew from rows",
        "memory.OutboxEntry.failure": "the type of an error, never its text",
        "memory.ModelSpending.model": "the operator's name of a model",
        "memory.ModelSpending.outcome": "a code",
        "retention.Run.target_kind": "a model's name, of the shape that a check allows",
        "retention.Run.step": "a code, of the shape that a check allows",
        "retention.Run.cursor": "ids, instants and numbers, by a check",
        "retention.Run.counts": "numbers, by a check",
        "retention.Run.code": "a code, of the shape that a check allows",
        "retention.Certificate.kind": "a code, of the shape that a check allows",
        "retention.Certificate.document": "ids, instants, digests, codes and numbers, by a check",
        "retention.Certificate.digest": "of the document",
        "retention.Certificate.signature": "of the document",
        "retention.Certificate.chain_hash": "of content-free entries",
        "retention.Certificate.key_digest": "of a public key",
        "retention.OwedEnding.kind": "a word of a closed list",
        "retention.OwedEnding.record": "ids, instants, digests, codes and numbers, of the shape that the log allows",
        "retention.Matter.reference": "an organisation's case number, of the shape that a check allows; no e-mail, phone or card",
        "retention.Matter.reason": "a code of a closed list",
        "retention.HoldScope.record_kind": "a word of a closed list",
        "retention.HoldScope.session_id": "chosen by an agent; one that is an e-mail, a phone or a card is refused",
        "retention.RefusedEnding.record_kind": "a word of a closed list",
        "retention.RefusedEnding.act": "a code, of the shape that a check allows",
        "retention.Tally.action": "a word of a closed list",
        "retention.SubjectRequest.kind": "a word of a closed list",
        "retention.SubjectRequest.state": "a word of a closed list",
        "retention.SubjectRequest.subject_digest": "an HMAC under the tenant's pepper, which is not in the database",
        "retention.SubjectRequest.reference": "an organisation's reference; one that is an e-mail, a phone or a card is refused",
        "retention.SubjectRequest.extension_reason": "a word of a closed list",
        "retention.SubjectRequest.identity": "a word of a closed list",
        "retention.SubjectRequest.identity_method": "a word of a closed list",
        "retention.SubjectRequest.refusal_ground": "a word of a closed list",
        "retention.SubjectRequest.outcome": "a word of a closed list",
        "retention.SubjectRequest.led_to_kind": "a word of a closed list",
        "retention.SubjectRequest.lodged_by_kind": "a word of a closed list",
        "retention.Escalation.level": "a word of a closed list",
        "retention.Escalation.told": "a word of a closed list",
        "retention.RedactionRequest.reason": "a code of a closed list",
        "retention.RedactionRequest.requester_kind": "a word of a closed list",
        "retention.RedactionRequest.decision_reason": "a code, of the shape that a check allows",
        "retention.RedactionRequest.digest": "of ids, codes and counts",
        "retention.RedactionRequest.counts": "numbers, by a check",
        "retention.RedactionItem.strategy": "a word of a closed list",
        "retention.RedactionItem.fields": "paths that the attribute's published schema declares; no other is taken",
        "retention.Claim.queue": "a word, of the shape that a check allows",
        "retention.Claim.digest": "of ids, counts and other digests; no value",
        "retention.Claim.ended_by": "a word of a closed list",
        "retention.Claim.act": "a code, of the shape that a check allows",
        "retention.Claim.reason": "a code, of the shape that a check allows",
        "retention.Reveal.target_kind": "a model's name, of the shape that a check allows",
        "retention.Reveal.fields": "words of a closed list",
        "retention.Reveal.reason": "a code, of the shape that a check allows",
        "retention.Reveal.case_ref": "an organisation's reference, of the shape that a check allows; one that is an e-mail, a"
        " phone or a card is refused",
        "retention.AccessExport.kind": "a word of a closed list",
        "retention.AccessExport.state": "a word of a closed list",
        "retention.AccessExport.digest": "of sealed content that a person may fetch for a week",
        "retention.Restriction.target_kind": "a word of a closed list",
        "retention.Restriction.ground": "a code of a closed list",
        "retention.Restriction.lifted_because": "a code of a closed list",
        "retention.LifetimeChange.act": "a word of a closed list",
        "retention.LifetimeChange.reason": "a word of a closed list",
        "retention.LifetimeChange.actor_kind": "a word of a closed list",
        "admin.LogEntry.object_repr": "type and short id, as every model shows itself; no role may write here",
        "admin.LogEntry.change_message": "no form of ours changes anything; no role may write here",
        "sessions.Session.session_data": "a person's id, the tenant that they chose; how far a sign-in has come",
    }
)

#: Tables that no model describes.
OTHER_TABLES = MappingProxyType({"django_migrations": "names of migrations and when they ran"})


def register() -> Iterator[tuple[str, Holds]]:
    """Yield every registered field as `app.Model.field` with what it may hold; one that stands twice comes twice."""
    for label, groups in _MODELS.items():
        for holds, names in groups.items():
            for name in names.split():
                yield f"{label}.{name}", holds
