"""That a request of a data subject is near or past its day is told once; a request of portability ends with a certificate."""

from pathlib import Path

import django.db.models.deletion
from django.db import migrations, models

SQL = Path(__file__).with_suffix(".sql").read_text(encoding="utf-8")
UNDO = """
ALTER TABLE retention_subjectrequest DROP CONSTRAINT subjectrequest_handed_over, DROP CONSTRAINT subjectrequest_led_to_known,
  ADD CONSTRAINT subjectrequest_led_to_known
    CHECK (led_to_kind IN ('access_export', 'erasure', 'run', 'restriction', 'evidence', 'decision_request')) NOT VALID;
"""


class Migration(migrations.Migration):
    dependencies = [("retention", "0021_promotion_told"), ("tenants", "0009_audit_by_set")]

    operations = [
        migrations.CreateModel(
            name="Escalation",
            fields=[
                ("id", models.UUIDField(editable=False, primary_key=True, serialize=False)),
                ("level", models.TextField()),
                ("told", models.TextField()),
                ("due_at", models.DateTimeField()),
                ("at", models.DateTimeField()),
                (
                    "request",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="+",
                        to="retention.subjectrequest",
                    ),
                ),
                (
                    "tenant",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="+",
                        to="tenants.tenant",
                    ),
                ),
            ],
            options={"db_table": "retention_escalation"},
        ),
        migrations.RunSQL(SQL, UNDO),
    ]
