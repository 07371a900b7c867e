"""How long memory lasts and how it ends. No row holds content."""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from simple_history.models import HistoricalRecords

from policies.models import Attribute
from tenants.models import Agent, Link, Named, SubjectKey, Tenant


class OwedEnding(Named):
    """An entry of the endings log as the act owed it; `line` says where in the log it stands once it does."""

    tenant = Link(Tenant)
    kind = models.TextField()
    target_id = models.UUIDField()
    #: Ids, instants, digests, codes and numbers: what a restore needs to apply the ending again.
    record = models.JSONField(default=dict)
    owed_at = models.DateTimeField()
    settled_at = models.DateTimeField(null=True)
    line = models.BigIntegerField(null=True)

    class Meta:
        db_table = "retention_owedending"


class SubjectRequest(Named):
    """What a data subject asked for, by when it is to be answered, and what came of it. Its words are kept elsewhere.

    Known by a digest of the name that it came under, so that it is found again when nobody of that name is kept any more.
    """

    tenant = Link(Tenant)
    kind = models.TextField()
    state = models.TextField(default="received")
    subject_id = models.UUIDField(null=True)
    subject_digest = models.BinaryField()
    #: The organisation's own reference, such as a ticket's number.
    reference = models.TextField(null=True)
    received_at = models.DateTimeField()
    #: From this instant on an answer is too late.
    due_at = models.DateTimeField()
    extended_at = models.DateTimeField(null=True)
    extended_to = models.DateTimeField(null=True)
    extension_reason = models.TextField(null=True)
    identity = models.TextField(default="unchecked")
    identity_method = models.TextField(null=True)
    identity_at = models.DateTimeField(null=True)
    identity_by = models.UUIDField(null=True)
    #: How often the same was asked while this one was open.
    repeats = models.IntegerField(default=0)
    refusal_ground = models.TextField(null=True)
    outcome = models.TextField(null=True)
    led_to_kind = models.TextField(null=True)
    led_to_id = models.UUIDField(null=True)
    lodged_by_kind = models.TextField()
    lodged_by_id = models.UUIDField()
    lodged_at = models.DateTimeField()
    closed_at = models.DateTimeField(null=True)
    closed_by = models.UUIDField(null=True)

    class Meta:
        db_table = "retention_subjectrequest"


class Escalation(Named):
    """That a request which is near its day, or past it, was told to whoever has to see to it. Once a level and day; frozen."""

    tenant = Link(Tenant)
    request = Link(SubjectRequest)
    level = models.TextField()
    #: The role that was told.
    told = models.TextField()
    #: The day for which it was told: an extension makes another.
    due_at = models.DateTimeField()
    at = models.DateTimeField()

    class Meta:
        db_table = "retention_escalation"


class AccessExport(Named):
    """What is kept about a subject, packed for the subject: when it was made, until when it may be fetched, how often it was.

    Its content is a payload, sealed under the subject's own key.
    """

    tenant = Link(Tenant)
    asked = Link(SubjectRequest)
    kind = models.TextField()
    state = models.TextField(default="pending")
    subject_id = models.UUIDField()
    payload_id = models.UUIDField(null=True)
    asked_by = models.UUIDField()
    asked_at = models.DateTimeField()
    made_at = models.DateTimeField(null=True)
    expires_at = models.DateTimeField(null=True)
    size = models.BigIntegerField(null=True)
    digest = models.BinaryField(null=True)
    downloads = models.IntegerField(default=0)

    class Meta:
        db_table = "retention_accessexport"


class LifetimeChange(Named):
    """That the life of one fact was changed by an act, or is asked to be: shortened, extended, kept after a review, ended by one."""

    tenant = Link(Tenant)
    fact_id = models.UUIDField()
    act = models.TextField()
    until = models.DateTimeField(null=True)
    review_at = models.DateTimeField(null=True)
    reason = models.TextField()
    actor_kind = models.TextField()
    actor_id = models.UUIDField()
    #: What another person decides, where that is needed.
    question_id = models.UUIDField(null=True)
    done_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "retention_lifetimechange"


class Matter(Named):
    """A legal matter for whose sake memory is kept: a reference under which the organisation knows it, and nothing told."""

    tenant = Link(Tenant)
    reference = models.TextField()
    #: A code of a closed list (`holds.REASONS`).
    reason = models.TextField()
    state = models.TextField(default="open")
    opened_by = models.UUIDField()
    opened_at = models.DateTimeField()
    closed_by = models.UUIDField(null=True)
    closed_at = models.DateTimeField(null=True)
    history = HistoricalRecords()

    class Meta:
        db_table = "retention_matter"


class Hold(Named):
    """Forbids ending what its scopes cover, from its placing to its release. A released one stays.

    The database fills who and when, and releases on an approval of exactly these scopes alone.
    """

    tenant = Link(Tenant)
    matter = Link(Matter)
    state = models.TextField(default="active")
    placed_by = models.UUIDField()
    placed_at = models.DateTimeField()
    #: An agent may propose to release; a person asks, another decides.
    proposed_by = models.UUIDField(null=True)
    proposed_at = models.DateTimeField(null=True)
    released_by = models.UUIDField(null=True)
    released_at = models.DateTimeField(null=True)
    history = HistoricalRecords()

    class Meta:
        db_table = "retention_hold"


class HoldScope(Named):
    """One target of a hold: all of what is not null must fit. What comes later and fits is covered as well. Frozen."""

    tenant = Link(Tenant)
    hold = Link(Hold)
    record_kind = models.TextField(null=True)
    record_id = models.UUIDField(null=True)
    subject_id = models.UUIDField(null=True)
    attribute = Link(Attribute, null=True)
    session_id = models.TextField(null=True)
    writer_id = models.UUIDField(null=True)
    #: When it was recorded: from, and until before.
    recorded_from = models.DateTimeField(null=True)
    recorded_until = models.DateTimeField(null=True)

    class Meta:
        db_table = "retention_holdscope"


class RefusedEnding(Named):
    """An ending that a hold refused: of which record, by which act, how often and when last. One row for all of these."""

    tenant = Link(Tenant)
    hold = Link(Hold)
    record_kind = models.TextField()
    record_id = models.UUIDField()
    act = models.TextField()
    run_id = models.UUIDField(null=True)
    actor_kind = models.TextField()
    actor_id = models.UUIDField()
    times = models.IntegerField(default=1)
    first_at = models.DateTimeField()
    last_at = models.DateTimeField()

    class Meta:
        db_table = "retention_refusedending"


class Run(Named):
    """One piece of work that ends memory, or proves that it ended: how far it has come, in codes, ids and numbers.

    Whoever works on it holds its row; what was done and that it was done are one transaction, so a run that was cut off
    goes on from where it stands.
    """

    tenant = Link(Tenant)
    kind = models.TextField()
    target_kind = models.TextField()
    target_id = models.UUIDField(null=True)
    state = models.TextField(default="pending")
    step = models.TextField(default="begun")
    #: Where in its step it stands: ids, instants and numbers.
    cursor = models.JSONField(default=dict)
    counts = models.JSONField(default=dict)
    refused_by_hold = models.IntegerField(default=0)
    requested_by = models.UUIDField()
    started_at = models.DateTimeField()
    advanced_at = models.DateTimeField()
    finished_at = models.DateTimeField(null=True)
    #: Why it failed or was stopped: a code.
    code = models.TextField(null=True)

    class Meta:
        db_table = "retention_run"


class Certificate(Named):
    """Content-free, signed proof of an ending. Never changes; a later fact makes a further one that names it."""

    tenant = Link(Tenant)
    kind = models.TextField()
    run = Link(Run, null=True)
    #: The certificate to which this one adds.
    follows = Link("self", null=True)
    #: What is signed, as data: ids, instants, digests, codes and numbers.
    document = models.JSONField()
    issued_by = models.UUIDField()
    issued_at = models.DateTimeField()
    #: The head of the tenant's audit chain when it was issued: the acts that it speaks of stand before it.
    chain_seq = models.BigIntegerField()
    chain_hash = models.BinaryField()
    #: Of the signed document, and by which key it was signed.
    digest = models.BinaryField()
    signature = models.BinaryField()
    key_digest = models.BinaryField()

    class Meta:
        db_table = "retention_certificate"


class Tally(Named):
    """How often somebody did something on one day (UTC), counted from the audit chain."""

    tenant = Link(Tenant)
    day = models.DateField()
    action = models.TextField()
    actor_kind = models.TextField()
    actor_id = models.UUIDField()
    number = models.BigIntegerField()

    class Meta:
        db_table = "retention_tally"


class TallyState(Named):
    """How far a tenant's chain is counted. One a tenant: its id is the tenant's."""

    tenant = Link(Tenant)
    counted_to = models.BigIntegerField(default=0)

    class Meta:
        db_table = "retention_tallystate"


class RedactionRequest(Named):
    """A proposal to take content out, from the moment at which it hides it. Decided once, by somebody else.

    The database fills who asked and who decided, and when.
    """

    tenant = Link(Tenant)
    state = models.TextField(default="required")
    #: A code of a closed list (`redaction.REASONS`).
    reason = models.TextField()
    requester_kind = models.TextField()
    requested_by = models.UUIDField()
    requested_at = models.DateTimeField()
    #: The redaction by which its fact lost its last quote.
    cause = Link("self", null=True)
    decided_by = models.UUIDField(null=True)
    decided_at = models.DateTimeField(null=True)
    decision_reason = models.TextField(null=True)
    #: Of what was shown to whoever applied it: of ids and codes.
    digest = models.BinaryField(null=True)
    counts = models.JSONField(default=dict)
    run_id = models.UUIDField(null=True)
    certificate_id = models.UUIDField(null=True)

    class Meta:
        db_table = "retention_redactionrequest"


class RedactionItem(Named):
    """One record of a proposal: picked, with what to take out of it and what to leave; or one that goes along with those."""

    tenant = Link(Tenant)
    request = Link(RedactionRequest)
    kind = models.TextField()
    target_id = models.UUIDField()
    payload_id = models.UUIDField(null=True)
    picked = models.BooleanField()
    strategy = models.TextField(default="null")
    #: Paths that the attribute's schema declares.
    fields = ArrayField(models.TextField(), default=list)
    #: Of an episode's text: first character and after the last, in turn.
    spans = ArrayField(models.IntegerField(), default=list)

    class Meta:
        db_table = "retention_redactionitem"


class Claim(Named):
    """A person's hold on one waiting item for a quarter of an hour, and what came of it. An item has one live claim.

    Person and times are the transaction's own. `digest` is of what was shown: a decision is bound to it.
    """

    tenant = Link(Tenant)
    queue = models.TextField()
    item_id = models.UUIDField()
    person_id = models.UUIDField()
    taken_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    digest = models.BinaryField(null=True)
    #: What was opened above the class that a claim shows: by a reveal, for as long as that lasts.
    revealed_until = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    #: `decided`, `released`, `lapsed`, or `deferred`: more was asked for, and nobody is offered it until `deferred_until`.
    ended_by = models.TextField(null=True)
    act = models.TextField(null=True)
    reason = models.TextField(null=True)
    #: The class that goes with what is to be done, and when that is carried out: until then it can be taken back.
    level = models.SmallIntegerField(null=True)
    commit_at = models.DateTimeField(null=True)
    deferred_until = models.DateTimeField(null=True)
    #: The act on several items of which this was one.
    bulk_id = models.UUIDField(null=True)

    class Meta:
        db_table = "retention_claim"


class Reveal(Named):
    """A person saw in clear what is masked for them: which of it, for which coded reason and case, until when."""

    tenant = Link(Tenant)
    person_id = models.UUIDField()
    target_kind = models.TextField()
    target_id = models.UUIDField()
    subject_id = models.UUIDField(null=True)
    fields = ArrayField(models.TextField())
    sensitivity = models.SmallIntegerField()
    reason = models.TextField()
    case_ref = models.TextField()
    at = models.DateTimeField()
    expires_at = models.DateTimeField()

    class Meta:
        db_table = "retention_reveal"


class DeskPreference(Named):
    """How a person wants the desk to be: whether single keys act."""

    tenant = Link(Tenant)
    person_id = models.UUIDField()
    single_keys = models.BooleanField()

    class Meta:
        db_table = "retention_deskpreference"


class Erasure(Named):
    """The erasure of one subject, from the question to the certificate. The subject is an id that names nobody any more."""

    tenant = Link(Tenant)
    subject_id = models.UUIDField()
    state = models.TextField(default="requested")
    #: A code of a closed list (`erasing.REASONS`).
    reason = models.TextField()
    #: The subject's own request, where there is one: their identity was checked there.
    request_id = models.UUIDField(null=True)
    #: What the preview counted, by code, and the digest by which an approval is bound to it.
    preview = models.JSONField(default=dict)
    digest = models.BinaryField()
    asked_kind = models.TextField()
    asked_by = models.UUIDField()
    asked_at = models.DateTimeField()
    #: What was put before a second person, and what they decided.
    question_id = models.UUIDField(null=True)
    approved_by = models.UUIDField(null=True)
    approved_at = models.DateTimeField(null=True)
    #: Where the subject's names are stored: they go last, since mentions are found by them.
    name_ids = ArrayField(models.UUIDField(), default=list)
    run_id = models.UUIDField(null=True)
    certificate_id = models.UUIDField(null=True)
    finished_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "retention_erasure"


class ErasureItem(Named):
    """What an erasure leaves to a person: a mention in another's episode, or another's fact that rests on what was erased."""

    tenant = Link(Tenant)
    erasure = Link(Erasure)
    kind = models.TextField()
    target_id = models.UUIDField()
    #: Of a mention, where the text names the subject: first and last place in turn.
    spans = ArrayField(models.IntegerField(), default=list)
    state = models.TextField(default="open")
    reason = models.TextField(null=True)
    found_at = models.DateTimeField()
    decided_by = models.UUIDField(null=True)
    decided_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "retention_erasureitem"


class NoticeEndpoint(Named):
    """Where an agent's people are told by webhook, and the secret that signs it, sealed under a data key of its own."""

    tenant = Link(Tenant)
    agent = Link(Agent)
    url = models.TextField()
    key = Link(SubjectKey)
    sealed = models.BinaryField()
    created_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "retention_noticeendpoint"


class Notice(Named):
    """One message to one recipient: of these facts, which it has read, nothing is kept any more. Ids alone."""

    tenant = Link(Tenant)
    erasure = Link(Erasure)
    agent = Link(Agent)
    fact_ids = ArrayField(models.UUIDField())
    state = models.TextField(default="waiting")
    attempts = models.IntegerField(default=0)
    #: What came of the last attempt: an HTTP status, or a code.
    status = models.SmallIntegerField(null=True)
    code = models.TextField(null=True)
    created_at = models.DateTimeField()
    tried_at = models.DateTimeField(null=True)
    sent_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "retention_notice"


class Restriction(Named):
    """Processing of a subject, a fact or an episode is restricted: staff see it, agents do not, until it is lifted."""

    tenant = Link(Tenant)
    target_kind = models.TextField()
    target_id = models.UUIDField()
    #: Why, and why no longer: codes of closed lists (`restricting.GROUNDS`, `restricting.LIFTED`).
    ground = models.TextField()
    state = models.TextField(default="active")
    request_id = models.UUIDField(null=True)
    restricted_by = models.UUIDField()
    restricted_at = models.DateTimeField()
    lifted_by = models.UUIDField(null=True)
    lifted_at = models.DateTimeField(null=True)
    lifted_because = models.TextField(null=True)
    #: Whoever asked for it is to be told before it is lifted (Art. 18(3)); when somebody said that they were.
    told_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "retention_restriction"
