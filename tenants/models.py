"""Who acts, what they may touch, what was done.

Every tenant-owned table has `PRIMARY KEY (tenant_id, id)`, composite foreign keys and row-level security in the
database (see the migrations); Django's models keep `id` as their key. Nothing here holds content.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any
from uuid import UUID

from django.contrib.auth.models import AbstractUser
from django.contrib.postgres.fields import ArrayField
from django.db import models
from simple_history.models import HistoricalRecords

from tenants.identity import new_id
from tenants.words import in_words

#: A link whose integrity the database keeps by a composite foreign key; Django makes neither constraint nor index.
Link = partial(models.ForeignKey, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="+")

#: The chain of acts that belong to no tenant: sign-ins, failed keys, new tenants.
PLATFORM = UUID(int=0)


class RowId(models.UUIDField):
    """A UUIDv7 key made by the application. Migrations see a plain UUID column: they import nothing of ours."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{"editable": False, **kwargs, "default": new_id})

    def deconstruct(self) -> tuple[str, str, Sequence[Any], dict[str, Any]]:
        name, _, args, kwargs = super().deconstruct()
        kwargs.pop("default", None)
        return name, "django.db.models.UUIDField", args, kwargs


class User(AbstractUser):
    """A person who signs in to the admin. What they may do in a tenant stands in `Membership`."""

    id = RowId(primary_key=True)

    def __str__(self) -> str:
        return f"{in_words(self._meta.model_name)} {str(self.id)[-8:]}"


class SignInIdentity(models.Model):
    """As whom an identity provider knows a person: the digest of a subject, or of an address that is worth one sign-in."""

    id = RowId(primary_key=True)
    user = Link(User)
    provider = models.TextField()
    known_by = models.TextField()
    digest = models.BinaryField()
    created_at = models.DateTimeField()
    #: When an address was used; a subject is used for good.
    used_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "tenants_signinidentity"

    def __str__(self) -> str:
        return f"signinidentity {str(self.id)[-8:]}"


class Named(models.Model):
    """Rows that are shown as their type and short id, so that no list, log or history prints what they hold."""

    id = RowId(primary_key=True)

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return f"{in_words(self._meta.model_name)} {str(self.id)[-8:]}"


class Tenant(Named):
    """An organisation: the wall that no row crosses."""

    slug = models.SlugField(max_length=63, unique=True)
    state = models.TextField(default="active")
    #: Grows with every publication of an attribute or a policy; what is cached of them is keyed by it.
    catalogue_no = models.BigIntegerField(default=0)
    #: How many requests, and of these how many writes, each key may send within a minute; null for as many as it likes.
    requests_a_minute = models.IntegerField(null=True)
    writes_a_minute = models.IntegerField(null=True)
    #: No data key is wrapped by an older version of the tenant's key, and up to which version all are known destroyed.
    oldest_key_version = models.IntegerField(default=1, db_default=1)
    destroyed_key_version = models.IntegerField(default=0, db_default=0)
    created_at = models.DateTimeField()
    history = HistoricalRecords(excluded_fields=["oldest_key_version", "destroyed_key_version"])

    class Meta:
        db_table = "tenants_tenant"


class Membership(Named):
    """A person's role in one tenant."""

    tenant = Link(Tenant)
    user = Link(User)
    role = models.TextField()
    created_at = models.DateTimeField()
    history = HistoricalRecords()

    class Meta:
        db_table = "tenants_membership"


class Agent(Named):
    """A registered program that writes and reads memory."""

    tenant = Link(Tenant)
    name = models.TextField()
    clearance = models.SmallIntegerField(default=1)
    trust = models.SmallIntegerField(default=50)
    purposes = ArrayField(models.TextField(), default=list)
    state = models.TextField(default="active")
    created_at = models.DateTimeField()
    history = HistoricalRecords()

    class Meta:
        db_table = "tenants_agent"


class AgentKey(Named):
    """A key of an agent: only the SHA-512 digest of its secret is kept, and a prefix that may be shown."""

    tenant = Link(Tenant)
    agent = Link(Agent)
    prefix = models.TextField()
    digest = models.BinaryField()
    scopes = ArrayField(models.TextField(), default=list)
    expires_at = models.DateTimeField(null=True)
    revoked_at = models.DateTimeField(null=True)
    last_used_at = models.DateTimeField(null=True)
    #: The minute that was counted last, and what was let through in it; counted only where the tenant sets a limit.
    counted_minute = models.DateTimeField(null=True)
    counted_requests = models.IntegerField(default=0, db_default=0)
    counted_writes = models.IntegerField(default=0, db_default=0)
    created_at = models.DateTimeField()

    class Meta:
        db_table = "tenants_agentkey"


class SubjectKey(Named):
    """A data key, wrapped under a version of the tenant's key, which lives outside the database."""

    tenant = Link(Tenant)
    wrapped = models.BinaryField()
    version = models.IntegerField()
    created_at = models.DateTimeField()

    class Meta:
        db_table = "tenants_subjectkey"


class AuditChain(models.Model):
    """The head of one chain: what the next entry follows. Locked by `audit_append` while it appends."""

    chain = models.UUIDField(primary_key=True)
    seq = models.BigIntegerField()
    hash = models.BinaryField()

    class Meta:
        db_table = "tenants_auditchain"

    def __str__(self) -> str:
        return f"auditchain {str(self.chain)[-8:]}"


class AuditEvent(models.Model):
    """One act: who, what, on what, why, when. Written by `audit_append` only, and never changed."""

    id = models.UUIDField(primary_key=True)
    chain = models.UUIDField()
    seq = models.BigIntegerField()
    prev = models.BinaryField()
    hash = models.BinaryField()
    at = models.DateTimeField()
    actor_kind = models.TextField()
    actor_id = models.UUIDField()
    action = models.TextField()
    target_kind = models.TextField()
    target_id = models.UUIDField()
    reason = models.TextField()
    digest = models.BinaryField(null=True)
    numbers = models.JSONField(default=dict)

    class Meta:
        db_table = "tenants_auditevent"

    def __str__(self) -> str:
        return f"{in_words(self._meta.model_name)} {self.seq}"
