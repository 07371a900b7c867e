from pathlib import Path

import django.db.models.deletion
from django.db import migrations, models


SQL = Path(__file__).with_suffix(".sql").read_text(encoding="utf-8")
UNDO = """
DROP TRIGGER subjectrequest_moves ON retention_subjectrequest;
DROP FUNCTION subjectrequest_moves();
DROP POLICY own_tenant ON retention_subjectrequest;
"""


class Migration(migrations.Migration):
    dependencies = [
        ("retention", "0006_tally"),
        ("tenants", "0006_key_versions"),
    ]

    operations = [
        migrations.CreateModel(
            name="SubjectRequest",
            fields=[
                ("id", models.UUIDField(editable=False, primary_key=True, serialize=False)),
                ("kind", models.TextField()),
                ("state", models.TextField(default="received")),
                ("subject_id", models.UUIDField(null=True)),
                ("subject_digest", models.BinaryField()),
                ("reference", models.TextField(null=True)),
                ("received_at", models.DateTimeField()),
                ("due_at", models.DateTimeField()),
                ("extended_at", models.DateTimeField(null=True)),
                ("extended_to", models.DateTimeField(null=True)),
                ("extension_reason", models.TextField(null=True)),
                ("identity", models.TextField(default="unchecked")),
                ("identity_method", models.TextField(null=True)),
                ("identity_at", models.DateTimeField(null=True)),
                ("identity_by", models.UUIDField(null=True)),
                ("repeats", models.IntegerField(default=0)),
                ("refusal_ground", models.TextField(null=True)),
                ("outcome", models.TextField(null=True)),
                ("led_to_kind", models.TextField(null=True)),
                ("led_to_id", models.UUIDField(null=True)),
                ("lodged_by_kind", models.TextField()),
                ("lodged_by_id", models.UUIDField()),
                ("lodged_at", models.DateTimeField()),
                ("closed_at", models.DateTimeField(null=True)),
                ("closed_by", models.UUIDField(null=True)),
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
            options={
                "db_table": "retention_subjectrequest",
            },
        ),
        migrations.RunSQL(SQL, UNDO),
    ]
