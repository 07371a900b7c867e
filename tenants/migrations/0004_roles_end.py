"""A role of a person ends at the hands of a tenant's admin; its history stays."""

from typing import ClassVar

from django.db import migrations


class Migration(migrations.Migration):
    dependencies: ClassVar = [("tenants", "0003_second_factor")]
    operations: ClassVar = [
        migrations.RunSQL(
            # FOR UPDATE on the admins' rows, so that two who remove each other do not both succeed, needs one column; no door changes it.
            "GRANT DELETE, UPDATE (created_at) ON tenants_membership TO muniment_front",
            "REVOKE DELETE, UPDATE (created_at) ON tenants_membership FROM muniment_front",
        )
    ]
