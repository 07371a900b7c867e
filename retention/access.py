"""The access export: everything that is kept about a subject, for the subject, as a ZIP that says what it is and proves it.

Asked for by a person for a request whose subject is known to be the one who asks, made in the background, kept sealed under
the subject's own key as a payload with a short life, and handed out by an act that is audited before a byte leaves. What
has ended is not in it: a value that may no longer be shown stands there as a tombstone that says why. Names of others, as
far as they are known, are masked in what was said.
"""

import base64
import csv
import io
import json
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any
from uuid import UUID

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from django.template.loader import render_to_string

from memory import erasure, outbox, rows, subjects
from memory.endings import worker
from memory.legible import Piece, pieces
from memory.outbox import GivenUp, Settled
from memory.subjects import opened, payload_context
from policies.detection import Group, detect
from policies.detection.known import Known
from policies.detection.spans import masked
from policies.vocabulary import Sensitivity
from retention import certificates, requests
from retention.certificates import canonical, fingerprint
from retention.models import AccessExport
from tenants.actors import Actor
from tenants.audit import Action, Event, append
from tenants.errors import Clash, FieldError, Missing, Refused
from tenants.identity import new_id
from tenants.isolation import Role, borrowed, tenant_transaction
from tenants.secrets import keyring, provider

#: The topic of the work that asking for an export leaves.
TOPIC = "access.export"
#: How long an export may be fetched.
LIFE = timedelta(days=7)
#: Larger ones are given up: whoever is told of so much needs another way.
MOST_BYTES = 200 * 1024 * 1024
FORMAT = "muniment-access/1"
_SIGNED = b"muniment access export\n"
_PURPOSE = "export"
#: To whom an export is handed over (Art. 20(1) and (2)).
HANDED_TO = ("subject", "representative", "other_controller")
#: What a spreadsheet would take for a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


# asking ---------------------------------------------------------------------------------------------------------------


def ask(actor: Actor, asked: UUID, *, now: datetime) -> AccessExport:
    """Have an export made for a request of access or portability. Needs `Role.STAFF`; the bell rings after the commit.

    Raises `Missing`, `Forbidden` for whoever works on no requests, `Clash` where the request is closed
    (`subject_request_closed`), nobody knows who asks (`identity_not_confirmed`), it is of another kind
    (`not_about_access`), nothing is kept under that name (`subject_not_known`), or one is being made (`export_pending`).
    """
    found = requests.open_for(actor, asked, requests.HANDLERS)
    if found.kind not in (requests.Kind.ACCESS, requests.Kind.PORTABILITY):
        raise Clash("not_about_access")
    if found.identity != "confirmed":
        raise Clash("identity_not_confirmed")
    if found.subject_id is None:
        raise Clash("subject_not_known")
    if AccessExport.objects.filter(tenant_id=actor.tenant, asked_id=found.id, state="pending").exists():
        raise Clash("export_pending")
    export = AccessExport(
        id=new_id(),
        tenant_id=actor.tenant,
        asked_id=found.id,
        kind=found.kind,
        subject_id=found.subject_id,
        asked_by=actor.id,
        asked_at=now,
    )
    export.save(force_insert=True)
    with borrowed(Role.WORKER, back_to=Role.STAFF):
        outbox.put(actor.tenant, TOPIC, [export.id])
    requests.link(actor, found.id, "access_export", export.id)
    append([_event(actor, Action.EXPORT_ASKED, export.id, found.kind)])
    return export


# making ---------------------------------------------------------------------------------------------------------------

_PENDING = """
SELECT x.kind, x.subject_id, x.asked_id, t.slug FROM retention_accessexport x JOIN tenants_tenant t ON t.id = x.tenant_id
WHERE x.tenant_id = %s::uuid AND x.id = %s::uuid AND x.state = 'pending' FOR UPDATE OF x
"""
_MADE = """
UPDATE retention_accessexport x SET state = 'done', payload_id = %s::uuid, made_at = %s::timestamptz,
  expires_at = %s::timestamptz, size = %s, digest = %s::bytea WHERE x.tenant_id = %s::uuid AND x.id = %s::uuid
"""
_FAILED = """
UPDATE retention_accessexport x SET state = 'failed' WHERE x.tenant_id = %s::uuid AND x.id = %s::uuid AND x.state = 'pending'
"""
_SUBJECT_THERE = "SELECT s.id FROM memory_subject s WHERE s.tenant_id = %s::uuid AND s.id = %s::uuid FOR KEY SHARE"


def work(tenant: UUID, export: UUID) -> Settled | GivenUp:
    """Make an export that was asked for, in one transaction: cut off, it is made anew; done already, nothing is made.

    The worker of `access.export`. The subject is held against its erasure meanwhile.
    """
    with tenant_transaction(Role.WRITER, tenant=tenant, clearance=int(Sensitivity.RESTRICTED)):
        found = rows.fetch(_PENDING, [tenant, export])
        if not found:
            return Settled.DONE
        kind, subject, asked, slug = found[0]
        if not rows.fetch(_SUBJECT_THERE, [tenant, subject]):
            rows.execute(_FAILED, [tenant, export])
            append([_event(worker(tenant), Action.EXPORT_ENDED, export, "subject_gone")])
            return GivenUp("subject_gone")
        now: datetime = rows.fetch("SELECT statement_timestamp()", [])[0][0]
        about = subjects.of_id(tenant, subject)
        gathered = gather(tenant, subject, now=now)
        whole = pack(gathered, kind=kind, organisation=slug, asked=asked, export=export, now=now)
        if len(whole) > MOST_BYTES:
            rows.execute(_FAILED, [tenant, export])
            append([_event(worker(tenant), Action.EXPORT_ENDED, export, "too_large")])
            return GivenUp("too_large")
        payload, until = new_id(), now + LIFE
        sealed = keyring().seal(about.data_key, whole, payload_context(tenant, payload, _PURPOSE))
        rows.PAYLOADS.insert(
            tenant,
            [
                rows.PayloadRow(
                    id=payload,
                    purpose=_PURPOSE,
                    key_id=about.key_id,
                    clear=None,
                    sealed=sealed,
                    sensitivity=int(Sensitivity.RESTRICTED),
                    basis="session",
                    expires_at=until,
                    consent_ids=None,
                    written_at=now,
                )
            ],
        )
        rows.execute(_MADE, [payload, now, until, len(whole), sha256(whole).digest(), tenant, export])
        append(
            [
                Event(
                    actor=worker(tenant),
                    action=Action.EXPORT_MADE,
                    target_kind="access_export",
                    target_id=export,
                    reason=kind,
                    numbers=gathered.numbers(),
                )
            ]
        )
    return Settled.DONE


# handing out ----------------------------------------------------------------------------------------------------------

_CONTENT = """
SELECT x.payload_id, x.digest, p.sealed, k.wrapped, k.version
FROM retention_accessexport x
  JOIN memory_payload p ON p.tenant_id = x.tenant_id AND p.id = x.payload_id
  JOIN tenants_subjectkey k ON k.tenant_id = p.tenant_id AND k.id = p.key_id
WHERE x.tenant_id = %s::uuid AND x.id = %s::uuid AND x.state = 'done' AND p.sealed IS NOT NULL
  AND x.expires_at > statement_timestamp() AND p.expires_at > statement_timestamp()
"""


def download(actor: Actor, export: UUID, *, now: datetime) -> bytes:
    """Return the ZIP, which may leave once this transaction has committed: that it was handed out is in the chain then.

    Needs `Role.STAFF`. Raises `Forbidden` for whoever is no privacy officer, `Missing`, `Clash("export_not_there")` where it
    is not made yet, or has ended.
    """
    requests.require(actor, requests.CLOSERS)
    found = AccessExport.objects.select_for_update().filter(tenant_id=actor.tenant, id=export).first()
    if found is None:
        raise Missing
    with borrowed(Role.WRITER, back_to=Role.STAFF):
        content = rows.fetch(_CONTENT, [actor.tenant, export])
    if not content or found.expires_at is None or found.expires_at <= now:
        raise Clash("export_not_there")
    payload, digest, sealed, wrapped, version = content[0]
    found.downloads += 1
    found.save(update_fields=["downloads"])
    key = keyring().unwrap(actor.tenant, bytes(wrapped), version)
    whole = keyring().open(key, bytes(sealed), payload_context(actor.tenant, payload, _PURPOSE))
    append([_event(actor, Action.EXPORT_DOWNLOADED, export, found.kind, digest=bytes(digest))])
    return whole


def hand_over(actor: Actor, asked: UUID, to: str, *, now: datetime, outcome: str = "done") -> certificates.Certificate:
    """Close a request of portability: what was fetched last went to `to`. Return the certificate of it, which is signed.

    The certificate says which export by id and digest, to whom by kind, when and by whom, and holds nothing of it. Needs
    `Role.STAFF`. Raises `Missing`, `Forbidden` for whoever is no privacy officer, `Refused` for a recipient or an outcome
    that is none, `Clash` where the request is closed (`subject_request_closed`), of another kind (`not_about_access`), or
    no export was fetched (`not_handed_over`), and KeyUnavailable where nothing can be signed.
    """
    found = requests.open_for(actor, asked, requests.CLOSERS)
    if found.kind != requests.Kind.PORTABILITY:
        raise Clash("not_about_access")
    wrong = [("to", to, HANDED_TO), ("outcome", outcome, ("done", "done_in_part"))]
    errors = [FieldError(name, "not_in_enum") for name, word, words in wrong if word not in words]
    if errors:
        raise Refused("subject_request_refused", errors=errors)
    fetched = AccessExport.objects.filter(tenant_id=actor.tenant, asked_id=found.id, downloads__gt=0)
    export = fetched.order_by("-id").first()
    if export is None or export.digest is None or export.made_at is None:
        raise Clash("not_handed_over")
    body = {
        "request": found.id,
        "export": export.id,
        "export_digest": bytes(export.digest).hex(),
        "export_bytes": export.size,
        "export_made_at": export.made_at,
        "handed_over_to": to,
        "handed_over_at": now,
        "handed_over_by": actor.id,
        "outcome": outcome,
    }
    with borrowed(Role.WORKER, back_to=Role.STAFF):
        issued = certificates.issue(actor, "portability", None, body, now)
    requests.link(actor, found.id, "certificate", issued.id)
    requests.complete(actor, found.id, outcome, now=now)
    return issued


# ending ---------------------------------------------------------------------------------------------------------------

_OVERDUE = """
SELECT x.id, x.payload_id FROM retention_accessexport x
WHERE x.tenant_id = %s::uuid AND x.state = 'done' AND x.expires_at <= clock_timestamp()
ORDER BY x.expires_at LIMIT 50 FOR UPDATE SKIP LOCKED
"""
_OF_SUBJECT = """
SELECT x.id, x.payload_id FROM retention_accessexport x
WHERE x.tenant_id = %s::uuid AND x.subject_id = %s::uuid AND x.state IN ('pending', 'done') FOR UPDATE
"""
_END = """
UPDATE retention_accessexport x SET state = 'ended', payload_id = NULL
WHERE x.tenant_id = %s::uuid AND x.id = ANY (%s::uuid[])
"""


def end_overdue(tenant: UUID) -> int:
    """Remove the content of exports whose life is over, a chunk, in the worker's open transaction; return how many."""
    return _ended(tenant, rows.fetch(_OVERDUE, [tenant]), "expired")


def end_of_subject(tenant: UUID, subject: UUID) -> int:
    """Remove every export about a subject, in the worker's open transaction; return how many. For its erasure."""
    return _ended(tenant, rows.fetch(_OF_SUBJECT, [tenant, subject]), "erased")


def _ended(tenant: UUID, found: Sequence[tuple[Any, ...]], reason: str) -> int:
    if not found:
        return 0
    rows.execute(_END, [tenant, [export for export, _ in found]])
    held = [payload for _, payload in found if payload is not None]
    erasure.erase_payloads(tenant, held)
    rows.throw_away(tenant, held)
    append([_event(worker(tenant), Action.EXPORT_ENDED, export, reason) for export, _ in found])
    return len(found)


def _event(actor: Actor, action: Action, export: UUID, reason: str, *, digest: bytes | None = None) -> Event:
    return Event(
        actor=actor, action=action, target_kind="access_export", target_id=export, reason=reason, digest=digest
    )


# gathering ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Gathered:
    """Everything about a subject, as the export says it; nothing in it may be shown any more than the export itself."""

    subject: dict[str, Any] = field(repr=False)
    facts: list[dict[str, Any]] = field(repr=False)
    episodes: list[dict[str, Any]] = field(repr=False)
    proposals: list[dict[str, Any]] = field(repr=False)
    consents: list[dict[str, Any]] = field(repr=False)
    recipients: list[dict[str, Any]] = field(repr=False)
    named_in: list[dict[str, Any]] = field(repr=False)
    policies: list[str] = field(repr=False)

    def numbers(self) -> dict[str, int | float | bool]:
        """Return how much there is of each, for the audit and the manifest."""
        return {
            "facts": len(self.facts),
            "episodes": len(self.episodes),
            "proposals": len(self.proposals),
            "consents": len(self.consents),
            "recipients": len(self.recipients),
            "named_in": len(self.named_in),
        }


#: Why content is not shown, as a code; null where it is. What is restricted, of class or in processing, is its subject's own.
_WITHHELD = """CASE WHEN {p}.redaction_state = 'required' OR {p}.clear IS NULL AND {p}.sealed IS NULL AND {p}.redaction_state = 'applied'
    THEN 'redacted'
  WHEN {p}.expires_at <= statement_timestamp() THEN 'expired'
  WHEN {p}.consent_ids IS NOT NULL AND NOT coalesce(consent_stands({p}.consent_ids), false) THEN 'consent_withdrawn'
  WHEN {p}.clear IS NULL AND {p}.sealed IS NULL THEN 'ended' END"""
_PAYLOAD = "{p}.id, {p}.purpose, {p}.clear, {p}.sealed, {k}.wrapped, {k}.version"


def _with_payload(link: str, p: str = "p", k: str = "k", *, outer: bool = True) -> str:
    return rows.look_up(p, "memory_payload", f"x.id = {link}", outer=outer) + rows.look_up(
        k, "tenants_subjectkey", f"x.id = {p}.key_id", outer=True
    )


_T = "FROM (SELECT %(tenant)s::uuid AS tenant) t"
_NAMES = f"""
SELECT i.subject_id, i.is_key, {_PAYLOAD.format(p="p", k="k")}
{_T}{rows.look_up("i", "memory_subjectidentifier", "x.subject_id = ANY (%(subjects)s::uuid[])")}{_with_payload("i.payload_id")}
ORDER BY i.is_key DESC, i.id
"""
_SUBJECT = f"""
SELECT s.kind, s.created_at, s.restricted {_T}{rows.look_up("s", "memory_subject", "x.id = %(subject)s::uuid")}
"""
_FACTS = f"""
SELECT f.id, a.name, f.sensitivity, f.basis, f.expires_at, f.review_at, f.confirmed, f.restricted, f.redaction_state,
  f.redaction_fields, f.ended_by, CASE WHEN f.ended_by IS NOT NULL AND f.redaction_state <> 'applied' THEN f.ended_by
    WHEN f.redaction_state = 'required' THEN 'redacted' ELSE {_WITHHELD.format(p="p")} END,
  {_PAYLOAD.format(p="p", k="k")}
{_T}{rows.look_up("f", "memory_fact", "x.subject_id = %(subject)s::uuid")}{
    rows.look_up("y", "memory_factkey", "x.id = f.key_id")
}{rows.look_up("a", "policies_attribute", "x.id = y.attribute_id")}{_with_payload("f.payload_id")}
ORDER BY a.name, f.id
"""
_STRETCHES = f"""
SELECT b.fact_id, b.valid_from, b.valid_to, b.believed_from, b.believed_to
{_T}{rows.look_up("y", "memory_factkey", "x.subject_id = %(subject)s::uuid")}{
    rows.look_up("b", "memory_belief", "x.key_id = y.id AND x.fact_id IS NOT NULL")
}
ORDER BY b.valid_from, b.id
"""
_EVIDENCE = f"""
SELECT e.fact_id, e.id, e.source, e.turn_id, e.tool_call_id, e.session_id, e.contract_ref,
  (SELECT c.ref FROM policies_consent c WHERE c.tenant_id = e.tenant_id AND c.id = e.consent_id),
  e.writer_kind, e.writer_id, e.written_at, e.recorded_at, e.valid_from, e.stated_to, e.episode_id, e.extractor,
  e.expires_at, e.retracted_at, e.retraction_reason, o.name || '@' || v.number, r.role,
  CASE WHEN p.id IS NULL THEN NULL ELSE {_WITHHELD.format(p="p")} END, {_PAYLOAD.format(p="p", k="k")}
{_T}{rows.look_up("y", "memory_factkey", "x.subject_id = %(subject)s::uuid")}{
    rows.look_up("e", "memory_evidence", "x.key_id = y.id")
}{rows.look_up("v", "policies_policyversion", "x.id = e.policy_version_id", outer=True)}{
    rows.look_up("o", "policies_policy", "x.id = v.policy_id", outer=True)
}{rows.look_up("r", "memory_episode", "x.id = e.episode_id", outer=True)}{_with_payload("e.quote_id")}
ORDER BY e.written_at, e.id
"""
_EPISODES = f"""
SELECT e.id, e.kind, e.role, e.session_id, e.turn_id, e.tool_call_id, e.contract_ref,
  (SELECT c.ref FROM policies_consent c WHERE c.tenant_id = e.tenant_id AND c.id = e.consent_id),
  e.occurred_at, e.recorded_at, e.writer_kind, e.writer_id, e.sensitivity, e.basis, e.expires_at, e.mentioned_ids,
  o.name || '@' || v.number,
  CASE WHEN e.redaction_state = 'required' THEN 'redacted' ELSE {_WITHHELD.format(p="p")} END, {
    _PAYLOAD.format(p="p", k="k")
}
{_T}{rows.look_up("e", "memory_episode", "x.subject_id = %(subject)s::uuid")}{
    rows.look_up("v", "policies_policyversion", "x.id = e.policy_version_id", outer=True)
}{rows.look_up("o", "policies_policy", "x.id = v.policy_id", outer=True)}{_with_payload("e.payload_id")}
ORDER BY e.occurred_at, e.id
"""
_PROPOSALS = f"""
SELECT c.id, c.act, c.state, coalesce(a.name, ''), c.reasons, c.sensitivity, c.basis, c.expires_at, c.created_at,
  CASE WHEN p.id IS NULL THEN NULL ELSE {_WITHHELD.format(p="p")} END, {_PAYLOAD.format(p="p", k="k")}
{_T}{rows.look_up("c", "memory_candidate", "x.subject_id = %(subject)s::uuid")}{
    rows.look_up("a", "policies_attribute", "x.id = c.attribute_id", outer=True)
}{_with_payload("c.payload_id")}
ORDER BY c.created_at, c.id
"""
_AGENTS = "SELECT a.id, a.name, a.purposes FROM tenants_agent a WHERE a.tenant_id = %s::uuid"
_CONSENTS = """
SELECT c.ref, c.purposes, c.granted_at, c.withdrawn_at FROM policies_consent c
WHERE c.tenant_id = %(tenant)s::uuid AND c.subject_id = %(subject)s::uuid ORDER BY c.granted_at, c.id
"""
_NAMED_IN = """
SELECT e.id, e.kind, e.occurred_at FROM memory_episode e
WHERE e.tenant_id = %(tenant)s::uuid AND e.mentioned_ids @> ARRAY[%(subject)s::uuid]
  AND (e.expires_at IS NULL OR e.expires_at > statement_timestamp()) ORDER BY e.occurred_at, e.id
"""
_RECIPIENTS = """
SELECT r.actor_kind, r.actor_id, count(*), min(r.at), max(r.at) FROM memory_receipt r
WHERE r.tenant_id = %(tenant)s::uuid AND r.fact_ids && %(facts)s::uuid[] AND r.act LIKE '%%.read'
GROUP BY r.actor_kind, r.actor_id ORDER BY 4, 2
"""


def gather(tenant: UUID, subject: UUID, *, now: datetime) -> Gathered:
    """Return everything about a subject. Needs `Role.WRITER`; what ended, or is hidden for good, comes as a tombstone."""
    asked = {"tenant": tenant, "subject": subject}
    ((kind, since, restricted),) = rows.fetch(_SUBJECT, asked)
    with borrowed(Role.STAFF, back_to=Role.WRITER):
        agents = {agent: (name, purposes) for agent, name, purposes in rows.fetch(_AGENTS, [tenant])}
    own = _names(tenant, [subject]).get(subject, [])
    episodes = rows.fetch(_EPISODES, asked)
    others = {each for row in episodes for each in row[15]} - {subject}
    mask = _Mask(name for names in _names(tenant, sorted(others)).values() for name in names if name not in own)
    stretches: dict[UUID, list[dict[str, Any]]] = {}
    for fact, valid_from, valid_to, believed_from, believed_to in rows.fetch(_STRETCHES, asked):
        stretches.setdefault(fact, []).append(
            {"valid_from": valid_from, "valid_to": valid_to, "believed_from": believed_from, "believed_to": believed_to}
        )
    evidence: dict[UUID, list[dict[str, Any]]] = {}
    policies: set[str] = set()
    for row in rows.fetch(_EVIDENCE, asked):
        policies.add(row[19] or "")
        quote = None if row[22] is None else mask(_shown(tenant, row[21], row[22:]))
        evidence.setdefault(row[0], []).append(_evidence_json(row, quote, agents))
    facts = [
        _fact_json(tenant, row, stretches.get(row[0], []), evidence.get(row[0], []))
        for row in rows.fetch(_FACTS, asked)
    ]
    shown = []
    for row in episodes:
        policies.add(row[16] or "")
        shown.append(_episode_json(row, mask(_shown(tenant, row[17], row[18:])), agents))
    recipients = rows.fetch(_RECIPIENTS, {**asked, "facts": [each["id"] for each in facts]}) if facts else []
    return Gathered(
        subject={"id": subject, "kind": kind, "names": own, "since": since, "processing_restricted": restricted},
        facts=facts,
        episodes=shown,
        proposals=[_proposal_json(tenant, row) for row in rows.fetch(_PROPOSALS, asked)],
        consents=[
            {"ref": ref, "purposes": purposes, "granted_at": granted_at, "withdrawn_at": withdrawn_at}
            for ref, purposes, granted_at, withdrawn_at in rows.fetch(_CONSENTS, asked)
        ],
        recipients=[
            {
                "kind": kind_,
                "id": id_,
                "name": agents.get(id_, ("", []))[0],
                "purposes": agents.get(id_, ("", []))[1],
                "reads": reads,
                "first": first,
                "last": last,
            }
            for kind_, id_, reads, first, last in recipients
        ],
        named_in=[
            {"id": id_, "kind": kind_, "occurred_at": occurred_at}
            for id_, kind_, occurred_at in rows.fetch(_NAMED_IN, asked)
        ],
        policies=sorted(policies - {""}),
    )


#: What agents are called and what they serve, by id.
Agents = Mapping[UUID, tuple[str, list[str]]]


class _Mask:
    """Masks the known names of others in a text."""

    _OMIT = frozenset(group for group in Group if group is not Group.KNOWN)

    def __init__(self, names: Iterable[str]) -> None:
        self._known = Known(names)

    def __call__(self, text: str | None) -> str | None:
        if text is None or not self._known:
            return text
        found = detect(text, known=self._known, omit=self._OMIT)
        return masked(text, [each for each in found if each.type == "KNOWN_IDENTIFIER"])


def _names(tenant: UUID, of: Sequence[UUID]) -> dict[UUID, list[str]]:
    found: dict[UUID, list[str]] = {}
    if of:
        for subject, _, *content in rows.fetch(_NAMES, {"tenant": tenant, "subjects": list(of)}):
            if content[2] is not None or content[3] is not None:
                found.setdefault(subject, []).append(opened(tenant, *content))
    return found


def _shown(tenant: UUID, withheld: str | None, content: Sequence[Any]) -> str | None:
    return None if withheld is not None or content[0] is None else opened(tenant, *content)


def _value(text: str | None) -> Any:
    return None if text is None else json.loads(text)


def _fact_json(
    tenant: UUID, row: Sequence[Any], stretches: list[dict[str, Any]], evidence: list[dict[str, Any]]
) -> dict[str, Any]:
    return {
        "id": row[0],
        "attribute": row[1],
        "value": _value(_shown(tenant, row[11], row[12:])),
        "withheld": row[11],
        "sensitivity": Sensitivity(row[2]).label,
        "retention": {"basis": row[3], "expires_at": row[4], "review_at": row[5]},
        "confirmed": row[6],
        "processing_restricted": row[7],
        "redaction": {"state": row[8], "fields": row[9]},
        "held": stretches,
        "evidence": evidence,
    }


def _evidence_json(row: Sequence[Any], quote: str | None, agents: Agents) -> dict[str, Any]:
    return {
        "id": row[1],
        "source": row[2],
        "turn_id": row[3],
        "tool_call_id": row[4],
        "session_id": row[5],
        "contract_ref": row[6],
        "consent_ref": row[7],
        "writer": {"kind": row[8], "name": agents.get(row[9], ("", []))[0]},
        "written_at": row[10],
        "recorded_at": row[11],
        "valid_from": row[12],
        "valid_to": row[13],
        "episode": row[14],
        "extractor": row[15],
        "expires_at": row[16],
        "retracted_at": row[17],
        "retraction_reason": row[18],
        "policy_version": row[19],
        "said_by_subject": row[20] == "user",
        "quote": quote,
        "withheld": row[21],
    }


def _episode_json(row: Sequence[Any], content: str | None, agents: Agents) -> dict[str, Any]:
    return {
        "id": row[0],
        "kind": row[1],
        "role": row[2],
        "session_id": row[3],
        "turn_id": row[4],
        "tool_call_id": row[5],
        "contract_ref": row[6],
        "consent_ref": row[7],
        "occurred_at": row[8],
        "recorded_at": row[9],
        "writer": {"kind": row[10], "name": agents.get(row[11], ("", []))[0]},
        "sensitivity": Sensitivity(row[12]).label,
        "retention": {"basis": row[13], "expires_at": row[14]},
        "policy_version": row[16],
        "content": content,
        "withheld": row[17],
    }


def _proposal_json(tenant: UUID, row: Sequence[Any]) -> dict[str, Any]:
    return {
        "id": row[0],
        "act": row[1],
        "state": row[2],
        "attribute": row[3] or None,
        "reasons": row[4],
        "sensitivity": Sensitivity(row[5]).label,
        "retention": {"basis": row[6], "expires_at": row[7]},
        "created_at": row[8],
        "value": _value(_shown(tenant, row[9], row[10:])),
        "withheld": row[9],
    }


# packing --------------------------------------------------------------------------------------------------------------


def provided(gathered: Gathered) -> dict[str, Any]:
    """Return the part that the subject provided (Art. 20): what they said themselves, and what was drawn from that."""
    return {
        "subject": gathered.subject,
        "episodes": [each for each in gathered.episodes if each["role"] == "user"],
        "facts": [
            each
            for each in gathered.facts
            if any(said["said_by_subject"] and said["retracted_at"] is None for said in each["evidence"])
        ],
    }


def pack(gathered: Gathered, *, kind: str, organisation: str, asked: UUID, export: UUID, now: datetime) -> bytes:
    """Return the ZIP: what is kept as JSON, as a page and as a table, and a signed manifest that names and digests them.

    For portability only what the subject provided is in it.
    """
    part = provided(gathered)
    head = {"format": FORMAT, "made_at": now, "organisation": organisation, "request": asked}
    files: dict[str, bytes] = {"provided.json": _json({**head, **part})}
    if kind == requests.Kind.ACCESS:
        everything = {
            "subject": gathered.subject,
            "facts": gathered.facts,
            "episodes": gathered.episodes,
            "proposals": gathered.proposals,
            "consents": gathered.consents,
            "recipients": gathered.recipients,
            "named_in_episodes_of_others": gathered.named_in,
            "policies": gathered.policies,
        }
        files["everything.json"] = _json({**head, **everything})
        files["page.html"] = page(gathered, organisation=organisation, now=now).encode("utf-8")
    files["facts.csv"] = facts_csv(part["facts"] if kind == requests.Kind.PORTABILITY else gathered.facts)
    manifest = {
        "format": FORMAT,
        "export": str(export),
        "request": str(asked),
        "kind": kind,
        "organisation": organisation,
        "subject": str(gathered.subject["id"]),
        "made_at": now.astimezone(UTC).isoformat(),
        "files": {name: sha256(content).hexdigest() for name, content in sorted(files.items())},
        "counts": gathered.numbers(),
        "withheld": _withheld(gathered),
        "sources": sorted({said["source"] for fact in gathered.facts for said in fact["evidence"]}),
        "purposes": sorted({word for each in (*gathered.consents, *gathered.recipients) for word in each["purposes"]}),
        "recipients": [
            {"kind": each["kind"], "id": str(each["id"]), "name": each["name"]} for each in gathered.recipients
        ],
        "policies": gathered.policies,
    }
    signer = provider().signing_key()
    signature = signer.sign(_SIGNED + canonical(manifest))
    files["manifest.json"] = _json(
        {
            "manifest": manifest,
            "signature": base64.b64encode(signature).decode("ascii"),
            "key": fingerprint(signer.public_key()).hex(),
        }
    )
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in sorted(files.items()):
            entry = zipfile.ZipInfo(name, date_time=now.astimezone(UTC).timetuple()[:6])
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o600 << 16
            archive.writestr(entry, content)
    return whole.getvalue()


def verify(whole: bytes, public_pem: bytes) -> list[str]:
    """Return what is wrong with an export, as codes, none where it is what was signed. Needs nothing but these two."""
    try:
        with zipfile.ZipFile(io.BytesIO(whole)) as archive:
            files = {name: archive.read(name) for name in archive.namelist()}
        signed = json.loads(files.pop("manifest.json"))
        manifest, signature = signed["manifest"], base64.b64decode(signed["signature"], validate=True)
        public = serialization.load_pem_public_key(public_pem)
        if not isinstance(public, Ed25519PublicKey):
            return ["other_key"]
        public.verify(signature, _SIGNED + canonical(manifest))
        named = dict(manifest["files"])
    except InvalidSignature:
        return ["bad_signature"]
    except (zipfile.BadZipFile, KeyError, TypeError, ValueError):
        return ["malformed"]
    wrong = [f"changed {name}" for name, digest in named.items() if sha256(files.get(name, b"")).hexdigest() != digest]
    return wrong + [f"added {name}" for name in sorted(set(files) - set(named))]


def _withheld(gathered: Gathered) -> dict[str, int]:
    counts: dict[str, int] = {}
    for each in (*gathered.facts, *gathered.episodes, *gathered.proposals):
        if each["withheld"] is not None:
            counts[each["withheld"]] = counts.get(each["withheld"], 0) + 1
    return dict(sorted(counts.items()))


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, UUID):
        return str(value)
    raise TypeError


def _json(data: Mapping[str, Any]) -> bytes:
    return json.dumps(data, indent=1, ensure_ascii=False, default=_plain).encode("utf-8")


def safe_cell(text: str) -> str:
    """Return a cell that no spreadsheet takes for a formula: one that begins like one is quoted by an apostrophe."""
    return f"'{text}" if text.startswith(_FORMULA) else text


_COLUMNS = (
    "attribute",
    "value",
    "withheld",
    "valid_from",
    "valid_to",
    "class",
    "basis",
    "expires_at",
    "confirmed",
    "sources",
)


def facts_csv(facts: Sequence[Mapping[str, Any]]) -> bytes:
    """Return facts as a table, one row a stretch as it is believed now."""
    out = io.StringIO()
    table = csv.writer(out, lineterminator="\r\n")
    table.writerow(_COLUMNS)
    for fact in facts:
        sources = ", ".join(sorted({said["source"] for said in fact["evidence"]}))
        for held in [each for each in fact["held"] if each["believed_to"] is None] or [{}]:
            cells = (
                fact["attribute"],
                "" if fact["value"] is None else _words(fact["value"]),
                fact["withheld"] or "",
                _instant(held.get("valid_from")),
                _instant(held.get("valid_to")),
                fact["sensitivity"],
                fact["retention"]["basis"],
                _instant(fact["retention"]["expires_at"]),
                "yes" if fact["confirmed"] else "",
                sources,
            )
            table.writerow([safe_cell(each) for each in cells])
    return out.getvalue().encode("utf-8")


def _instant(at: datetime | None) -> str:
    return "" if at is None else f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z"


def _words(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)


def page(gathered: Gathered, *, organisation: str, now: datetime) -> str:
    """Return what is kept as a page that needs nothing else and does nothing: no script, no link that leads out."""

    def legible(text: str | None) -> list[Piece]:
        return [] if text is None else pieces(text, around=MOST_BYTES)

    return render_to_string(
        "retention/access.html",
        {
            "organisation": organisation,
            "now": now,
            "names": [legible(name) for name in gathered.subject["names"]],
            "subject": gathered.subject,
            "facts": [
                {**each, "shown": legible(None if each["value"] is None else _words(each["value"]))}
                for each in gathered.facts
            ],
            "episodes": [{**each, "shown": legible(each["content"])} for each in gathered.episodes],
            "proposals": [
                {**each, "shown": legible(None if each["value"] is None else _words(each["value"]))}
                for each in gathered.proposals
            ],
            "consents": gathered.consents,
            "recipients": gathered.recipients,
            "named_in": len(gathered.named_in),
            "counts": gathered.numbers(),
        },
    )
