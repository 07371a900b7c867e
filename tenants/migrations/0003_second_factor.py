"""What the front, and nobody else, may do with what proves a second factor."""

from typing import ClassVar

from django.db import migrations


class Migration(migrations.Migration):
    dependencies: ClassVar = [("tenants", "0002_isolation"), ("mfa", "0003_authenticator_type_uniq")]
    operations: ClassVar = [
        migrations.RunSQL(
            # A code is held against it at sign-in, before any tenant is known; its owner makes it and takes it away.
            "GRANT SELECT, INSERT, UPDATE, DELETE ON mfa_authenticator TO muniment_front",
            "REVOKE ALL ON mfa_authenticator FROM muniment_front",
        )
    ]
