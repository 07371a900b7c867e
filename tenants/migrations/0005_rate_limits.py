"""Rate limits: what a tenant lets each of its keys send within a minute, and what a key has sent in the minute counted last."""

from typing import ClassVar

from django.db import migrations, models

LIMITS = """
ALTER TABLE tenants_tenant
  ADD CONSTRAINT tenant_limits_positive CHECK (requests_a_minute > 0 AND writes_a_minute > 0) NOT VALID;
ALTER TABLE tenants_tenant VALIDATE CONSTRAINT tenant_limits_positive;
-- An operator's command sets them; looking up a key counts.
GRANT UPDATE (requests_a_minute, writes_a_minute) ON tenants_tenant TO muniment_front;
GRANT UPDATE (counted_minute, counted_requests, counted_writes) ON tenants_agentkey TO muniment_front;
"""
UNDO = """
REVOKE UPDATE (counted_minute, counted_requests, counted_writes) ON tenants_agentkey FROM muniment_front;
REVOKE UPDATE (requests_a_minute, writes_a_minute) ON tenants_tenant FROM muniment_front;
ALTER TABLE tenants_tenant DROP CONSTRAINT tenant_limits_positive;
"""


def _limit(model: str, name: str) -> migrations.AddField:
    return migrations.AddField(model_name=model, name=name, field=models.IntegerField(null=True))


def _count(name: str) -> migrations.AddField:
    return migrations.AddField(
        model_name="agentkey", name=name, field=models.IntegerField(default=0, db_default=0)
    )


class Migration(migrations.Migration):
    dependencies: ClassVar = [("tenants", "0004_roles_end")]
    operations: ClassVar = [
        *(
            _limit(model, name)
            for model in ("tenant", "historicaltenant")
            for name in ("requests_a_minute", "writes_a_minute")
        ),
        migrations.AddField(model_name="agentkey", name="counted_minute", field=models.DateTimeField(null=True)),
        _count("counted_requests"),
        _count("counted_writes"),
        migrations.RunSQL(LIMITS, UNDO),
    ]
