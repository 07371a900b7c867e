"""What is allowed, as data: attributes and policies in immutable versions, consents, and decisions of two people.

None of these rows holds content: they speak of kinds of facts, never of a fact.
"""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from simple_history.models import HistoricalRecords

from tenants.models import Link, Named, Tenant, User


class Attribute(Named):
    """A named property of subjects. Its rules stand in its versions; the one in force is `state = 'active'`."""

    tenant = Link(Tenant)
    name = models.TextField()
    cardinality = models.TextField()
    created_at = models.DateTimeField()
    history = HistoricalRecords()

    class Meta:
        db_table = "policies_attribute"


class AttributeVersion(Named):
    """The rules of an attribute: drafted, then published once, and never changed."""

    tenant = Link(Tenant)
    attribute = Link(Attribute)
    number = models.IntegerField()
    #: The definition as it stood in the file (`policies.definitions.AttributeDefinition`).
    definition = models.JSONField()
    digest = models.BinaryField()
    state = models.TextField()
    created_at = models.DateTimeField()
    #: The version in force when this one was drafted, and who drafted it; null for what a command published.
    base = Link("self", null=True)
    drafted_by = models.UUIDField(null=True)

    class Meta:
        db_table = "policies_attributeversion"


class Policy(Named):
    """A tenant's write policy; its rules stand in its versions."""

    tenant = Link(Tenant)
    name = models.TextField()
    created_at = models.DateTimeField()
    history = HistoricalRecords()

    class Meta:
        db_table = "policies_policy"
        verbose_name_plural = "policies"


class PolicyVersion(Named):
    """The rules of a policy, never changed. One version of one policy is active in a tenant."""

    tenant = Link(Tenant)
    policy = Link(Policy)
    number = models.IntegerField()
    rules = models.JSONField()
    digest = models.BinaryField()
    state = models.TextField()
    created_at = models.DateTimeField()
    #: As of an attribute's version; the base may be a version of another policy.
    base = Link("self", null=True)
    drafted_by = models.UUIDField(null=True)

    class Meta:
        db_table = "policies_policyversion"


class Consent(Named):
    """A subject's consent, known by the reference under which the organisation keeps it."""

    tenant = Link(Tenant)
    subject_id = models.UUIDField()
    ref = models.TextField()
    purposes = ArrayField(models.TextField(), default=list)
    granted_at = models.DateTimeField()
    withdrawn_at = models.DateTimeField(null=True)
    #: Never written with another value: writers hold a right on it so that they may lock the row.
    lock_no = models.SmallIntegerField(default=0)
    created_at = models.DateTimeField()

    class Meta:
        db_table = "policies_consent"


class DecisionRequest(Named):
    """An act that somebody asks for and somebody else decides on, bound to the digest of what is to happen.

    The database fills who asked and when, and lets the state move one way only.
    """

    tenant = Link(Tenant)
    act = models.TextField()
    target_kind = models.TextField()
    target_id = models.UUIDField()
    digest = models.BinaryField()
    reason = models.TextField()
    state = models.TextField(default="pending")
    requested_by = models.UUIDField()
    requested_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    carried_out_by = models.UUIDField(null=True)
    carried_out_at = models.DateTimeField(null=True)
    history = HistoricalRecords()

    class Meta:
        db_table = "policies_decisionrequest"


class Delegation(Named):
    """A role that one member hands to another, by name, from an instant until before another."""

    tenant = Link(Tenant)
    role = models.TextField()
    given_by = models.UUIDField()
    given_to = Link(User)
    starts_at = models.DateTimeField()
    ends_at = models.DateTimeField()
    created_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "policies_delegation"


class Decision(Named):
    """What one person decided on a request. The database fills who and when; a decision is never changed."""

    tenant = Link(Tenant)
    request = Link(DecisionRequest)
    #: As in the request: a constraint holds the two people apart, and a foreign key holds both to the request.
    requested_by = models.UUIDField()
    digest = models.BinaryField()
    verdict = models.TextField()
    reason = models.TextField()
    decided_by = models.UUIDField()
    decided_at = models.DateTimeField()
    #: The delegation by which the decider held the role; null where it is their own.
    delegation = Link(Delegation, null=True)

    class Meta:
        db_table = "policies_decision"
