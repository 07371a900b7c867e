"""One write transaction under way: what it knows, what its acts are about to store, and the storing, set by set.

Acts only note what they come to. `store` then writes all new rows in one statement, waits for no answer, and appends the
audit entries last, since the chain's lock is held to the commit.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from memory import factkeys, outbox, restriction, rows, suppression
from memory.ledger import Chain, FactState, Grounds, KeyState
from memory.outcomes import Denied
from memory.rows import BeliefRow, EvidenceRow, FactRow, IdempotencyRow, OutboxRow, PayloadRaise, PayloadRow, ReceiptRow
from memory.sayings import Prepared
from memory.subjects import SubjectState, payload_context
from memory.suppression import SUPPRESSED, Standing
from policies.catalogue import Catalogue, of_number
from policies.vocabulary import Sensitivity
from tenants import audit
from tenants.actors import Actor
from tenants.audit import Action, Event
from tenants.errors import Missing
from tenants.identity import new_id
from tenants.secrets import keyring

_OPENING = (
    f"SELECT catalogue_no, clock_timestamp(), {suppression.OPENING} FROM tenants_tenant WHERE id = %(tenant)s::uuid"
)


@dataclass(slots=True, kw_only=True)
class Writing:
    """What one write knows and what it is about to store."""

    actor: Actor
    #: The act by which its receipt is known.
    act: str
    now: datetime
    catalogue: Catalogue
    receipt: UUID
    #: The suppressions that it was held against.
    suppressed: Standing = field(default_factory=Standing)
    keys: factkeys.Keys = field(default_factory=dict)
    subjects: dict[UUID, SubjectState] = field(default_factory=dict)

    payloads: list[PayloadRow] = field(default_factory=list)
    facts: list[tuple[FactState, Prepared]] = field(default_factory=list)
    evidence: list[EvidenceRow] = field(default_factory=list)
    #: Evidence that is taken back, each at its instant, and the code why.
    retracted: dict[UUID, datetime] = field(default_factory=dict)
    retraction_reason: str = "corrected"
    #: Facts that lost evidence, to follow what still stands for them.
    restated: dict[UUID, FactState] = field(default_factory=dict)
    #: What this transaction's own sayings give their facts: by fact, then by evidence.
    grounds: dict[UUID, dict[UUID, Grounds]] = field(default_factory=dict)
    #: Keys whose beliefs are to be checked afterwards.
    touched: set[UUID] = field(default_factory=set)
    refused: list[Denied] = field(default_factory=list)
    #: Sayings that a suppression refused, or put before a person.
    prevented: int = 0
    questioned: int = 0
    verdicts: set[str] = field(default_factory=set)
    reasons: set[str] = field(default_factory=set)
    events: list[Event] = field(default_factory=list)
    #: It marked something as ended, whose content is to be removed by whoever does.
    met_overdue: bool = False
    #: What its request is remembered by, where it came with a key.
    kept: list[IdempotencyRow] = field(default_factory=list)

    def came_to(self, verdict: str, reasons: Sequence[str] = ()) -> None:
        """Note a verdict and its reasons for the receipt."""
        self.verdicts.add(verdict)
        self.reasons.update(reasons)

    def note(
        self,
        action: Action,
        kind: str,
        target: UUID,
        *,
        reason: str = "none",
        digest: bytes | None = None,
        numbers: dict[str, int] | None = None,
    ) -> None:
        """Note what happened, for the audit."""
        self.events.append(
            Event(
                actor=self.actor,
                action=action,
                target_kind=kind,
                target_id=target,
                reason=reason[:60],
                digest=digest,
                numbers={**(numbers or {})},
            )
        )

    def add_payload(
        self,
        purpose: str,
        text: str,
        about: SubjectState,
        *,
        sensitivity: int,
        basis: str,
        expires_at: datetime | None,
        consent_ids: rows.Uuids | None,
        payload: UUID | None = None,
    ) -> UUID:
        """Put content in its place, sealed from `personal` up, else clear. Return the payload's id."""
        payload = payload or new_id()
        key_id = sealed = None
        if sensitivity >= Sensitivity.PERSONAL:
            key_id, sealed = self.seal(payload, purpose, text, about)
        self.payloads.append(
            PayloadRow(
                id=payload,
                purpose=purpose,
                key_id=key_id,
                clear=text if sealed is None else None,
                sealed=sealed,
                sensitivity=sensitivity,
                basis=basis,
                expires_at=expires_at,
                consent_ids=consent_ids,
                written_at=self.now,
            )
        )
        return payload

    def add_payload_of(self, item: Prepared, purpose: str, text: str, *, sensitivity: int) -> UUID:
        """Put content of a saying in its place, governed as the saying is. Return the payload's id."""
        return self.add_payload(
            purpose,
            text,
            item.subject,
            sensitivity=sensitivity,
            basis=item.basis,
            expires_at=item.expires_at,
            consent_ids=rows.uuids(None if item.consent_id is None else [item.consent_id]),
        )

    def seal(self, payload: UUID, purpose: str, text: str, about: SubjectState) -> tuple[UUID, bytes]:
        """Return the subject's key and the text sealed with it for that payload."""
        context = payload_context(self.actor.tenant, payload, purpose)
        return about.key_id, keyring().seal(about.data_key, text.encode("utf-8"), context)

    def store_payloads(self) -> None:
        """Store the payloads noted so far, before a row that points at one of them."""
        rows.PAYLOADS.insert(self.actor.tenant, self.payloads)
        self.payloads = []

    def seal_raised(
        self, payload: UUID, purpose: str, clear: str | None, sensitivity: int, about: SubjectState
    ) -> tuple[UUID, bytes] | tuple[None, None]:
        """Seal what stands in `clear` where its class, which rose, forbids that; else nothing is to be changed of it."""
        if clear is None or sensitivity < Sensitivity.PERSONAL:
            return None, None
        return self.seal(payload, purpose, clear, about)

    def raise_payloads(self, payloads: Sequence["Raised"]) -> None:
        """Raise stored payloads to a class."""
        rows.raise_payloads(
            self.actor.tenant,
            [
                PayloadRaise(
                    each.payload,
                    each.sensitivity,
                    *self.seal_raised(each.payload, each.purpose, each.clear, each.sensitivity, each.about),
                )
                for each in payloads
            ],
        )


class Raised(NamedTuple):
    """A payload whose class rises, with what stands in it in clear."""

    payload: UUID
    purpose: str
    sensitivity: int
    clear: str | None
    about: SubjectState


def begin(
    actor: Actor, act: str, *, beside: Sequence[rows.Query | None] = (), suppressible: Sequence[bytes] = ()
) -> tuple[Writing, list[list[tuple[Any, ...]]]]:
    """Begin a write; what it asks `beside` goes in the same round trip, and its answers are returned in their order.

    What is in force, and which digests of `suppressible` are suppressed, is read after what `beside` locks: a decision
    that the locks waited for is seen. Raises `Missing` for a tenant that is not there, `Clash("no_policy")` for one in which nothing is in force.
    """
    given = {"tenant": actor.tenant, "suppressible": list(suppressible)}
    *answers, opening = rows.fetch_all([*beside, (_OPENING, given)])
    if not opening:
        raise Missing
    number, now, suppressed = opening[0]
    catalogue = of_number(actor.tenant, number)
    writing = Writing(actor=actor, act=act, now=now, catalogue=catalogue, receipt=new_id())
    writing.suppressed.take(suppressed)
    return writing, answers


# storing --------------------------------------------------------------------------------------------------------------

_STANDING = """
SELECT e.fact_id, e.sensitivity, e.basis, e.expires_at, e.consent_id, e.confirmed, e.confidence
FROM memory_evidence e
WHERE e.tenant_id = %s::uuid AND e.fact_id = ANY(%s::uuid[]) AND e.retracted_at IS NULL AND NOT e.is_end
  AND NOT (e.id = ANY(%s::uuid[]))
"""
_QUOTES_BELOW = """
SELECT q.id, w.sensitivity, q.clear, f.subject_id
FROM unnest(%s::uuid[], %s::smallint[]) AS w (id, sensitivity)
  CROSS JOIN LATERAL (SELECT * FROM memory_fact x WHERE x.tenant_id = %s::uuid AND x.id = w.id OFFSET 0) f
  CROSS JOIN LATERAL (SELECT * FROM memory_evidence x WHERE x.tenant_id = f.tenant_id AND x.fact_id = f.id OFFSET 0) e
  CROSS JOIN LATERAL (SELECT * FROM memory_payload x WHERE x.tenant_id = e.tenant_id AND x.id = e.quote_id OFFSET 0) q
WHERE q.sensitivity < w.sensitivity
"""


def store(writing: Writing) -> None:
    """Store what the acts came to: all new rows in one statement, the audit entries last."""
    _restate_facts(writing)
    _raise_quotes(writing)
    tenant, keys = writing.actor.tenant, writing.keys.values()
    facts = _facts(writing)
    chains = [(key, chain) for key in keys for chain in key.chains.values()]
    # Before the keys move on: only what the newest stored act opened may be removed, and these acts may lie later.
    rows.delete_beliefs(tenant, [each for _, chain in chains for each in chain.deleted])
    now = writing.now
    outbox_rows = [OutboxRow(new_id(), "ledger.check", key, now, now) for key in sorted(writing.touched)]
    if writing.met_overdue:
        outbox_rows.append(OutboxRow(new_id(), "compaction.asked", tenant, now, now))
    rows.store(
        tenant,
        [
            (rows.PAYLOADS, writing.payloads),
            (rows.FACTS, facts),
            (rows.EVIDENCE, writing.evidence),
            (rows.BELIEFS, _opened(chains)),
            (rows.OUTBOX, outbox_rows),
            (rows.IDEMPOTENCY, writing.kept),
            (rows.RECEIPTS, [_receipt(writing)]),
        ],
        closed=[each for _, chain in chains for each in chain.closed],
    )
    rows.retract(tenant, list(writing.retracted.items()), writing.actor.id, writing.retraction_reason)
    factkeys.store_acts(tenant, keys)
    if writing.touched:
        outbox.nudge()
    for denied in writing.refused:
        writing.note(
            Action.WRITE_REFUSED,
            "receipt",
            writing.receipt,
            reason=(denied.reasons or (denied.code,))[0],
            numbers={"status": denied.status},
        )
    restriction.follow(tenant, [about.id for about in writing.subjects.values() if about.restricted])
    refused = writing.prevented + sum(denied.code == SUPPRESSED for denied in writing.refused)
    suppression.count(tenant, refused=refused, asked=writing.questioned)
    audit.append(writing.events)


def _restate_facts(writing: Writing) -> None:
    """Let class, expiry and count of the facts that lost evidence follow what still stands for them."""
    if not writing.restated:
        return
    standing: dict[UUID, list[Grounds]] = {fact_id: [] for fact_id in writing.restated}
    for fact_id, *grounds in rows.fetch(_STANDING, [writing.actor.tenant, list(standing), list(writing.retracted)]):
        standing[fact_id].append(Grounds(*grounds))
    for fact_id, fact in writing.restated.items():
        said = writing.grounds.get(fact_id, {})
        fact.restate([*standing[fact_id], *(each for key, each in said.items() if key not in writing.retracted)])


def _raise_quotes(writing: Writing) -> None:
    """Let the quotes of facts whose class was raised follow them: a quote says what its fact says."""
    raised = [fact for key in writing.keys.values() for fact in key.facts.values() if fact.raised and not fact.fresh]
    if not raised:
        return
    found = rows.fetch(
        _QUOTES_BELOW, [[fact.id for fact in raised], [fact.sensitivity for fact in raised], writing.actor.tenant]
    )
    writing.raise_payloads(
        [Raised(payload, "quote", level, clear, writing.subjects[about]) for payload, level, clear, about in found]
    )


def _facts(writing: Writing) -> list[FactRow]:
    """Return the facts that are new, their payloads noted; store what changed of the others, each with its payload."""
    tenant = writing.actor.tenant
    fresh: list[FactRow] = []
    for fact, item in writing.facts:
        consent_ids = rows.consents_of(fact)
        writing.add_payload(
            "value",
            item.value or "",
            item.subject,
            sensitivity=fact.sensitivity,
            basis=fact.basis,
            expires_at=fact.expires_at,
            consent_ids=consent_ids,
            payload=fact.payload_id,
        )
        fresh.append(
            FactRow(
                id=fact.id,
                key_id=writing.keys[item.key].id,
                subject_id=item.subject.id,
                chain_no=fact.chain_no,
                value_digest=fact.digest,
                payload_id=fact.payload_id,
                attribute_version_id=item.attribute.version_id,
                policy_version_id=writing.catalogue.policy_version_id,
                sensitivity=fact.sensitivity,
                basis=fact.basis,
                expires_at=fact.expires_at,
                consent_ids=consent_ids,
                confirmed=fact.confirmed,
                confidence=fact.confidence,
                evidence_count=fact.evidence_count,
                review_at=fact.review_at,
                created_at=writing.now,
            )
        )
    changed = [
        (fact, key.subject_id)
        for key in writing.keys.values()
        for fact in key.facts.values()
        if fact.changed and not fact.fresh
    ]
    rows.update_facts(tenant, [fact for fact, _ in changed])
    rows.update_payloads(
        tenant,
        [
            (
                fact,
                *writing.seal_raised(fact.payload_id, "value", fact.clear, fact.sensitivity, writing.subjects[about]),
            )
            for fact, about in changed
            if fact.regoverned
        ],
    )
    return fresh


def _opened(chains: Iterable[tuple[KeyState, Chain]]) -> list[BeliefRow]:
    return [
        BeliefRow(
            id=belief.id,
            key_id=key.id,
            chain_no=belief.chain_no,
            evidence_id=belief.evidence_id,
            fact_id=belief.fact_id,
            valid_from=belief.valid_from,
            valid_to=belief.valid_to,
            believed_from=belief.believed_from,
            believed_to=belief.believed_to,
        )
        for key, chain in chains
        for belief in chain.fresh()
    ]


def _receipt(writing: Writing) -> ReceiptRow:
    keys = writing.keys.values()
    changed = {fact.id for key in keys for fact in key.facts.values() if fact.changed}
    verdict = "accept" if "accept" in writing.verdicts else min(writing.verdicts, default="reject")
    return ReceiptRow(
        id=writing.receipt,
        act=writing.act,
        actor_kind=writing.actor.kind.value,
        actor_id=writing.actor.id,
        at=writing.now,
        subject_ids=rows.uuids(sorted(writing.subjects)),
        attribute_ids=rows.uuids(sorted({key.attribute_id for key in keys})),
        fact_ids=rows.uuids(sorted(changed)),
        policy_version_id=writing.catalogue.policy_version_id,
        verdict=verdict,
        reasons=rows.words(sorted(writing.reasons)),
    )
