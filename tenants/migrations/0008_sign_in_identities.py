"""As whom identity providers know people, and what the front, and nobody else, may do with it."""

from typing import ClassVar

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

GUARD = """
ALTER TABLE tenants_signinidentity
  ADD CONSTRAINT signinidentity_user FOREIGN KEY (user_id) REFERENCES tenants_user (id),
  ADD CONSTRAINT signinidentity_once UNIQUE (digest),
  ADD CONSTRAINT signinidentity_digest_length CHECK (octet_length(digest) = 32),
  ADD CONSTRAINT signinidentity_known_by CHECK (known_by IN ('subject', 'email')),
  ADD CONSTRAINT signinidentity_provider_shape CHECK (provider ~ '^[a-z][a-z0-9-]{0,39}$'),
  ADD CONSTRAINT signinidentity_subject_lasts CHECK (known_by = 'email' OR used_at IS NULL);
CREATE INDEX signinidentity_by_user ON tenants_signinidentity (user_id);
-- Looked up at sign-in, before any tenant is known. An address is used once; an operator takes identities away.
GRANT SELECT, INSERT, DELETE, UPDATE (used_at) ON tenants_signinidentity TO muniment_front;
"""
UNDO = """
REVOKE ALL ON tenants_signinidentity FROM muniment_front;
REVOKE UPDATE (used_at) ON tenants_signinidentity FROM muniment_front;
"""


class Migration(migrations.Migration):
    dependencies: ClassVar = [("tenants", "0007_keys_overwritten")]
    operations: ClassVar = [
        migrations.CreateModel(
            name="SignInIdentity",
            fields=[
                ("id", models.UUIDField(editable=False, primary_key=True, serialize=False)),
                ("provider", models.TextField()),
                ("known_by", models.TextField()),
                ("digest", models.BinaryField()),
                ("created_at", models.DateTimeField()),
                ("used_at", models.DateTimeField(null=True)),
                (
                    "user",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={"db_table": "tenants_signinidentity"},
        ),
        migrations.RunSQL(GUARD, UNDO),
    ]
