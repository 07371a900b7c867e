"""What is allowed, as data: attributes and policies in immutable versions, and consents.

None of these rows holds content: they speak of kinds of facts, never of a fact.
"""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from simple_history.models import HistoricalRecords

from tenants.models import Link, Named, Tenant


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
    """The rules of an attribute, as published once and never changed."""

    tenant = Link(Tenant)
    attribute = Link(Attribute)
    number = models.IntegerField()
    #: The definition as it stood in the file (`policies.definitions.AttributeDefinition`).
    definition = models.JSONField()
    digest = models.BinaryField()
    state = models.TextField()
    created_at = models.DateTimeField()

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
    """The rules of a policy, as published once and never changed. One version of one policy is active in a tenant."""

    tenant = Link(Tenant)
    policy = Link(Policy)
    number = models.IntegerField()
    rules = models.JSONField()
    digest = models.BinaryField()
    state = models.TextField()
    created_at = models.DateTimeField()

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
