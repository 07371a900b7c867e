"""What is known. `Payload` is the only model that holds content; every other row is metadata about it.

Written by `memory.remember` only, read by `memory.recall`; row-level security, composite keys, the exclusion
constraint on beliefs and the freezing of evidence stand in the migrations.
"""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from simple_history.models import HistoricalRecords

from policies.models import Attribute, AttributeVersion, Consent, PolicyVersion
from tenants.models import Agent, Link, Named, SubjectKey, Tenant


class Governed(Named):
    """What decides whether a row may be shown, and until when. `expires_at` is null exactly when basis is indefinite."""

    tenant = Link(Tenant)
    sensitivity = models.SmallIntegerField()
    basis = models.TextField()
    expires_at = models.DateTimeField(null=True)
    redaction_state = models.TextField(default="none")
    redaction_fields = ArrayField(models.TextField(), default=list)
    restricted = models.BooleanField(default=False)

    class Meta:
        abstract = True


class Payload(Governed):
    """Content, once: a value, a text, a quote, a subject's key. Sealed under its subject's data key from `personal` up.

    Exactly one of `clear` and `sealed` is set until the content is removed at `ended_at`, then neither.
    """

    purpose = models.TextField()
    key = Link(SubjectKey, null=True)
    clear = models.TextField(null=True)
    sealed = models.BinaryField(null=True)
    consent_ids = ArrayField(models.UUIDField(), null=True)
    written_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "memory_payload"


class Subject(Named):
    """The entity that facts are about. Its key and aliases are content and stand in payloads."""

    tenant = Link(Tenant)
    kind = models.TextField(default="entity")
    payload = Link(Payload)
    key = Link(SubjectKey)
    restricted = models.BooleanField(default=False)
    #: Never written with another value: writers hold a right on it so that they may lock the row.
    lock_no = models.SmallIntegerField(default=0)
    created_at = models.DateTimeField()
    #: When its erasure was decided: no name finds it any more, and nothing more is written about it.
    ended_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "memory_subject"


class SubjectIdentifier(Named):
    """How a subject is found without its key in clear: an HMAC of the key or of an alias under the tenant's pepper."""

    tenant = Link(Tenant)
    subject = Link(Subject)
    digest = models.BinaryField()
    payload = Link(Payload)
    is_key = models.BooleanField(default=False)
    created_at = models.DateTimeField()

    class Meta:
        db_table = "memory_subjectidentifier"


class Episode(Governed):
    """Raw input as received: a message, a tool result, a business event. Never edited."""

    kind = models.TextField()
    role = models.TextField(null=True)
    subject = Link(Subject, null=True)
    session_id = models.TextField()
    turn_id = models.TextField()
    tool_call_id = models.TextField(null=True)
    occurred_at = models.DateTimeField()
    recorded_at = models.DateTimeField()
    writer_kind = models.TextField()
    writer_id = models.UUIDField()
    consent = Link(Consent, null=True)
    #: The contract on which it is kept, by the organisation's own reference.
    contract_ref = models.TextField(null=True)
    payload = Link(Payload)
    content_digest = models.BinaryField()
    #: What its writer asked for: `now`, `later` or `none`. What became of it stands in `Extraction`.
    extraction = models.TextField(default="none")
    policy_version = Link(PolicyVersion)
    #: What detection found, as names of detectors; how many credentials of which it replaced before anything was stored.
    detected = ArrayField(models.TextField(), default=list)
    replaced = models.JSONField(default=dict)
    #: It holds an instruction to the agent, and the policy in force wants a person to look.
    quarantined = models.BooleanField(default=False)
    #: Other subjects of the tenant that its text names.
    mentioned_ids = ArrayField(models.UUIDField(), default=list)

    class Meta:
        db_table = "memory_episode"


class Extraction(Named):
    """What became of drawing facts from an episode, as ids and codes. One row an episode, and the lock of that work."""

    tenant = Link(Tenant)
    episode = Link(Episode)
    subject = Link(Subject, null=True)
    state = models.TextField()
    code = models.TextField(null=True)
    attempts = models.SmallIntegerField(default=0)
    extractors = ArrayField(models.TextField(), default=list)
    #: One entry a proposal: the attribute's name, what it came to, ids and reason codes.
    results = models.JSONField(default=list)
    #: The episode's class apart from what detection raised it to.
    stated = models.SmallIntegerField()
    #: The writer's standing when the episode was sent: what is drawn from it is said with no more and no less.
    clearance = models.SmallIntegerField()
    trust = models.SmallIntegerField()
    purposes = ArrayField(models.TextField(), default=list)
    asked_at = models.DateTimeField()
    finished_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "memory_extraction"


class FactKey(Named):
    """(tenant, subject, attribute): the question that has one answer at a time, and the lock under which it is written."""

    tenant = Link(Tenant)
    subject = Link(Subject)
    attribute = Link(Attribute)
    chain_no = models.BigIntegerField()
    act_no = models.BigIntegerField(default=0)
    newest_at = models.DateTimeField(null=True)
    checked_act_no = models.BigIntegerField(default=0)

    class Meta:
        db_table = "memory_factkey"


class Fact(Governed):
    """One value of one chain: what one or more pieces of evidence say."""

    key = Link(FactKey)
    subject = Link(Subject)
    chain_no = models.BigIntegerField()
    value_digest = models.BinaryField()
    payload = Link(Payload)
    attribute_version = Link(AttributeVersion)
    policy_version = Link(PolicyVersion)
    confirmed = models.BooleanField(default=False)
    confidence = models.FloatField(null=True)
    evidence_count = models.IntegerField(default=0)
    #: Null when some standing evidence needs no consent; else all consents of which one must stand.
    consent_ids = ArrayField(models.UUIDField(), null=True)
    review_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    ended_by = models.TextField(null=True)
    created_at = models.DateTimeField()

    class Meta:
        db_table = "memory_fact"


class Evidence(Governed):
    """One saying, frozen: a value or an end, its times, its provenance. Only its retraction is ever added."""

    key = Link(FactKey)
    fact = Link(Fact, null=True)
    is_end = models.BooleanField(default=False)
    valid_from = models.DateTimeField()
    stated_to = models.DateTimeField(null=True)
    recorded_at = models.DateTimeField()
    act_no = models.BigIntegerField()
    rank = models.IntegerField()
    confirmed = models.BooleanField(default=False)
    confidence = models.FloatField(null=True)
    imported = models.BooleanField(default=False)
    source = models.TextField()
    turn_id = models.TextField()
    tool_call_id = models.TextField(null=True)
    consent = Link(Consent, null=True)
    #: The session and the contract that it came from, where it named one, or its episode did.
    session_id = models.TextField(null=True)
    contract_ref = models.TextField(null=True)
    writer_kind = models.TextField()
    writer_id = models.UUIDField()
    trust = models.SmallIntegerField()
    written_at = models.DateTimeField()
    episode = Link(Episode, null=True)
    quote = Link(Payload, null=True)
    extractor = models.TextField(null=True)
    attribute_version = Link(AttributeVersion)
    policy_version = Link(PolicyVersion)
    corrects = Link("self", null=True)
    retracted_at = models.DateTimeField(null=True)
    retracted_by = models.UUIDField(null=True)
    retraction_reason = models.TextField(null=True)
    #: Names of the detectors that found something in its value or quote, and whether its episode was quarantined.
    detected = ArrayField(models.TextField(), default=list)

    class Meta:
        db_table = "memory_evidence"
        verbose_name_plural = "evidence"


class Belief(Named):
    """A stretch over which a fact (or an end) holds, as believed over a stretch of belief. Both half-open."""

    tenant = Link(Tenant)
    key = Link(FactKey)
    chain_no = models.BigIntegerField()
    evidence = Link(Evidence)
    fact = Link(Fact, null=True)
    valid_from = models.DateTimeField()
    valid_to = models.DateTimeField(null=True)
    believed_from = models.DateTimeField()
    believed_to = models.DateTimeField(null=True)

    class Meta:
        db_table = "memory_belief"


class Candidate(Governed):
    """A proposed saying, not yet decided: asked of a person, or buffered until it recurs."""

    subject = Link(Subject)
    #: Null where nobody has defined the attribute yet: its name stands in the payload then, beside the value.
    attribute = Link(Attribute, null=True)
    attribute_version = Link(AttributeVersion, null=True)
    policy_version = Link(PolicyVersion)
    act = models.TextField()
    target_id = models.UUIDField(null=True)
    state = models.TextField()
    reasons = ArrayField(models.TextField(), default=list)
    rule = models.TextField()
    confirm_by = models.TextField(null=True)
    value_digest = models.BinaryField(null=True)
    payload = Link(Payload, null=True)
    is_end = models.BooleanField(default=False)
    writer_kind = models.TextField()
    writer_id = models.UUIDField()
    occurrences = models.IntegerField(default=1)
    created_at = models.DateTimeField()
    #: Kept by the database: three days after it was asked, or when it lapses, whichever is earlier.
    due_at = models.DateTimeField(null=True, editable=False)
    decided_at = models.DateTimeField(null=True)
    decided_by = models.UUIDField(null=True)
    decision_reason = models.TextField(null=True)
    evidence_id = models.UUIDField(null=True)

    class Meta:
        db_table = "memory_candidate"


class CandidateSaying(Named):
    """One saying that a candidate stands for; becomes evidence when the candidate is accepted."""

    tenant = Link(Tenant)
    candidate = Link(Candidate)
    valid_from = models.DateTimeField()
    stated_to = models.DateTimeField(null=True)
    confidence = models.FloatField(null=True)
    source = models.TextField()
    turn_id = models.TextField()
    tool_call_id = models.TextField(null=True)
    consent = Link(Consent, null=True)
    session_id = models.TextField(null=True)
    contract_ref = models.TextField(null=True)
    episode = Link(Episode, null=True)
    quote = Link(Payload, null=True)
    extractor = models.TextField(null=True)
    sensitivity = models.SmallIntegerField()
    basis = models.TextField()
    expires_at = models.DateTimeField(null=True)
    writer_kind = models.TextField()
    writer_id = models.UUIDField()
    trust = models.SmallIntegerField()
    said_at = models.DateTimeField()
    detected = ArrayField(models.TextField(), default=list)

    class Meta:
        db_table = "memory_candidatesaying"


class Term(Named):
    """A session that was closed, or a contract that ended: what rests on it is kept until `due_at` of its class, at most.

    A session is known by its id and the agent that chose it, of one subject or of all; a contract by its reference alone.
    """

    tenant = Link(Tenant)
    kind = models.TextField()
    ref = models.TextField()
    writer_id = models.UUIDField(null=True)
    subject = Link(Subject, null=True)
    ended_at = models.DateTimeField()
    #: By class, from public to restricted; null where the policy of that moment says nothing of it.
    due_at = ArrayField(models.DateTimeField(null=True))
    policy_version = Link(PolicyVersion)
    ended_by_kind = models.TextField()
    ended_by_id = models.UUIDField()

    class Meta:
        db_table = "memory_term"


class Receipt(Named):
    """Content-free record of a write or a read: who, when, about whom, what was returned, what was withheld."""

    tenant = Link(Tenant)
    act = models.TextField()
    actor_kind = models.TextField()
    actor_id = models.UUIDField()
    at = models.DateTimeField()
    valid_at = models.DateTimeField(null=True)
    known_at = models.DateTimeField(null=True)
    subject_ids = ArrayField(models.UUIDField(), default=list)
    attribute_ids = ArrayField(models.UUIDField(), default=list)
    fact_ids = ArrayField(models.UUIDField(), default=list)
    withheld = models.JSONField(default=dict)
    policy_version_id = models.UUIDField(null=True)
    verdict = models.TextField(null=True)
    reasons = ArrayField(models.TextField(), default=list)
    #: Of a question only a digest, under a key of this receipt alone.
    question_digest = models.BinaryField(null=True)
    episode_ids = ArrayField(models.UUIDField(), null=True)
    #: Versions of procedures that were handed out.
    procedure_ids = ArrayField(models.UUIDField(), null=True)
    sealed_seq = models.BigIntegerField(null=True)

    class Meta:
        db_table = "memory_receipt"


class Procedure(Named):
    """How something is done, by name. What agents do of it stands in its active versions."""

    tenant = Link(Tenant)
    name = models.TextField()
    #: Never written with another value: it is the lock under which versions are promoted.
    lock_no = models.SmallIntegerField(default=0)
    created_at = models.DateTimeField()

    class Meta:
        db_table = "memory_procedure"


class ProcedureVersion(Governed):
    """One text of a procedure for one scope. Only its state moves; who moved it and when is filled by the database.

    The text is a payload under a data key of its own, `body_digest` an HMAC under that key; `digest` binds an approval to
    text, scope, base, test and way back.
    """

    procedure = Link(Procedure)
    number = models.IntegerField()
    scope = models.TextField()
    #: How narrow the scope is: of those that apply to a reader, the highest answers.
    scope_rank = models.SmallIntegerField()
    agent = Link(Agent, null=True)
    payload = Link(Payload)
    body_digest = models.BinaryField()
    digest = models.BinaryField()
    #: What was active for the scope when it was proposed; null where nothing was.
    base = Link("self", null=True)
    #: What becomes active again should it be rolled back; null: nothing, it is deactivated.
    rollback = Link("self", null=True)
    test_kind = models.TextField(null=True)
    test_reference = models.TextField(null=True)
    test_result = models.TextField(null=True)
    test_cases = models.IntegerField(null=True)
    test_passed = models.IntegerField(null=True)
    #: Names of the detectors that found something in the text.
    detected = ArrayField(models.TextField(), default=list)
    state = models.TextField(default="draft")
    proposed_by_kind = models.TextField()
    proposed_by = models.UUIDField()
    created_at = models.DateTimeField()
    #: When it is to become active, where somebody has set a time, and who.
    activate_at = models.DateTimeField(null=True)
    scheduled_by = models.UUIDField(null=True)
    activated_at = models.DateTimeField(null=True)
    activated_by = models.UUIDField(null=True)
    retired_at = models.DateTimeField(null=True)
    retired_by = models.UUIDField(null=True)
    retired_because = models.TextField(null=True)
    history = HistoricalRecords()

    class Meta:
        db_table = "memory_procedureversion"


class ProcedureEvidence(Named):
    """An episode or a fact that somebody named for a version: why it is proposed, or proposed again."""

    tenant = Link(Tenant)
    version = Link(ProcedureVersion)
    episode = Link(Episode, null=True)
    fact = Link(Fact, null=True)
    named_by = models.UUIDField()
    named_at = models.DateTimeField()

    class Meta:
        db_table = "memory_procedureevidence"
        verbose_name_plural = "procedure evidence"


class SearchEntry(Named):
    """What a payload is found by: its lexemes as HMACs under the tenant's key. Falls with its payload; can be made again.

    `tokens` also holds those that stand for tenant, subject and kind, with a count of 0: a look-up within them is one of the same
    index. Whether it may be shown follows its payload.
    """

    tenant = Link(Tenant)
    sensitivity = models.SmallIntegerField()
    expires_at = models.DateTimeField(null=True)
    restricted = models.BooleanField(default=False)
    redaction_state = models.TextField(default="none")
    consent_ids = ArrayField(models.UUIDField(), null=True)
    kind = models.TextField()
    target_id = models.UUIDField()
    subject_id = models.UUIDField(null=True)
    payload = Link(Payload)
    at = models.DateTimeField()
    tokens = ArrayField(models.BigIntegerField())
    counts = ArrayField(models.SmallIntegerField())
    length = models.IntegerField()
    key_version = models.IntegerField()
    rules = models.TextField()

    class Meta:
        db_table = "memory_searchentry"
        verbose_name_plural = "search entries"


class SearchState(Named):
    """How far a tenant's index is made, and what stands in so many entries that it tells few apart.

    One a tenant: its id is the tenant's.
    """

    tenant = Link(Tenant)
    rules = models.TextField()
    key_version = models.IntegerField()
    #: Where the making has come to, by payload; null once it has been through all.
    made_to = models.UUIDField(null=True)
    entries = models.BigIntegerField(default=0)
    length = models.FloatField(default=0)
    common = ArrayField(models.BigIntegerField(), default=list)
    frequencies = ArrayField(models.BigIntegerField(), default=list)
    counted_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "memory_searchstate"


class Derived(Named):
    """A text made before anybody asks, or a context kept of a question, of one subject as one clearance sees it.

    Until it is made, a text has no payload and a context has its question in it. It governs nothing: whether it may be
    served is found at every read, by holding its sources against what the reader sees then. Can be thrown away.
    """

    tenant = Link(Tenant)
    kind = models.TextField()
    subject = Link(Subject)
    clearance = models.SmallIntegerField()
    state = models.TextField(default="wanted")
    asked_at = models.DateTimeField()
    payload = Link(Payload, null=True)
    #: The highest class, the earliest expiry, the least trusted origin of its sources.
    sensitivity = models.SmallIntegerField(null=True)
    basis = models.TextField(null=True)
    expires_at = models.DateTimeField(null=True)
    origin = models.TextField(null=True)
    sources = models.IntegerField(default=0)
    builder = models.TextField(null=True)
    built_at = models.DateTimeField(null=True)
    #: Of a context: what its question is known by, and of all that it could rest on a digest, under which rules.
    question_digest = models.BinaryField(null=True)
    print = models.BinaryField(null=True)
    rules = models.TextField(null=True)

    class Meta:
        db_table = "memory_derived"
        verbose_name_plural = "derived"


class DerivedSource(Named):
    """One fact that a derived text rests on, over one stretch; `state` is a digest of all that the text says of it."""

    tenant = Link(Tenant)
    derived = Link(Derived)
    fact = Link(Fact)
    belief = Link(Belief)
    state = models.BinaryField()

    class Meta:
        db_table = "memory_derivedsource"


class Suppression(Named):
    """What was rejected, redacted or erased, remembered as a digest under the tenant's pepper so that it does not return.

    It stands until a person lifts it, and stays as a row then too. `decided_at` is the latest decision of its kind.
    """

    tenant = Link(Tenant)
    #: What it recognises: a `source`, a `text`, a `saying` or a `subject`.
    key = models.TextField()
    digest = models.BinaryField()
    decided_at = models.DateTimeField()
    #: Why: `rejected`, `redacted` or `erased`; and the decision that it came of.
    cause = models.TextField()
    target_kind = models.TextField()
    target_id = models.UUIDField()
    attribute = Link(Attribute, null=True)
    created_at = models.DateTimeField()
    lifted_at = models.DateTimeField(null=True)
    lifted_by = models.UUIDField(null=True)
    lift_reason = models.TextField(null=True)

    class Meta:
        db_table = "memory_suppression"


class PreventedReturn(Named):
    """How often suppressions kept something from coming back on one day (of UTC): refused, or put before a person."""

    tenant = Link(Tenant)
    day = models.DateField()
    refused = models.BigIntegerField(default=0)
    asked = models.BigIntegerField(default=0)

    class Meta:
        db_table = "memory_preventedreturn"


class IdempotencyRecord(Named):
    """What a request with this key did, as ids: its answer is rendered anew from rows, so ended content stays ended."""

    tenant = Link(Tenant)
    agent_id = models.UUIDField()
    key_digest = models.BinaryField()
    request_digest = models.BinaryField()
    status = models.SmallIntegerField()
    outcome = models.JSONField()
    created_at = models.DateTimeField()

    class Meta:
        db_table = "memory_idempotencyrecord"


class OutboxEntry(Named):
    """Work that a committed act has left to do. The broker only rings; this row is the truth."""

    tenant = Link(Tenant)
    topic = models.TextField()
    target_id = models.UUIDField()
    state = models.TextField(default="pending")
    attempts = models.SmallIntegerField(default=0)
    due_at = models.DateTimeField()
    created_at = models.DateTimeField()
    done_at = models.DateTimeField(null=True)
    failure = models.TextField(null=True)

    class Meta:
        db_table = "memory_outboxentry"
        verbose_name_plural = "outbox entries"


class ModelBudget(Named):
    """What a tenant has spent, or set aside, of a model's tokens: of the day and the month (of UTC) that it names."""

    tenant = Link(Tenant)
    day = models.DateField()
    day_tokens = models.BigIntegerField()
    month = models.DateField()
    month_tokens = models.BigIntegerField()

    class Meta:
        db_table = "memory_modelbudget"


class ModelSpending(Named):
    """What questions to a model came to on one day (of UTC), by model and outcome. `cost` in millionths of a US dollar."""

    tenant = Link(Tenant)
    day = models.DateField()
    model = models.TextField()
    outcome = models.TextField()
    calls = models.BigIntegerField()
    tokens_in = models.BigIntegerField()
    tokens_out = models.BigIntegerField()
    milliseconds = models.BigIntegerField()
    cost = models.BigIntegerField()

    class Meta:
        db_table = "memory_modelspending"
