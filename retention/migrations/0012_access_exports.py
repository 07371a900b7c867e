from pathlib import Path

import django.db.models.deletion
from django.db import migrations, models


SQL = Path(__file__).with_suffix(".sql").read_text(encoding="utf-8")
UNDO = """
DROP POLICY own_tenant ON retention_accessexport;
-- The payloads of exports have no place before; they are keyed and short-lived, and left to end.
"""


class Migration(migrations.Migration):
    dependencies = [
        ("retention", "0011_erasures"),
        ("tenants", "0006_key_versions"),
    ]

    operations = [
        migrations.CreateModel(
            name="AccessExport",
            fields=[
                ("id", models.UUIDField(editable=False, primary_key=True, serialize=False)),
                ("kind", models.TextField()),
                ("state", models.TextField(default="pending")),
                ("subject_id", models.UUIDField()),
                ("payload_id", models.UUIDField(null=True)),
                ("asked_by", models.UUIDField()),
                ("asked_at", models.DateTimeField()),
                ("made_at", models.DateTimeField(null=True)),
                ("expires_at", models.DateTimeField(null=True)),
                ("size", models.BigIntegerField(null=True)),
                ("digest", models.BinaryField(null=True)),
                ("downloads", models.IntegerField(default=0)),
                (
                    "asked",
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
            options={
                "db_table": "retention_accessexport",
            },
        ),
        migrations.RunSQL(SQL, UNDO),
    ]
