"""How long memory lasts and how it ends. No row holds content."""

from django.db import models

from tenants.models import Link, Named, Tenant


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
