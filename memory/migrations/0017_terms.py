from pathlib import Path

import django.contrib.postgres.fields
import django.db.models.deletion
from django.db import migrations, models


SQL = Path(__file__).with_suffix(".sql").read_text(encoding="utf-8")
UNDO = """
REVOKE UPDATE (expires_at, basis) ON memory_fact, memory_payload FROM muniment_worker;
REVOKE UPDATE (expires_at) ON memory_evidence, memory_episode, memory_candidate, memory_candidatesaying FROM muniment_worker;
DROP TRIGGER candidatesaying_expires_earlier ON memory_candidatesaying;
DROP TRIGGER episode_expires_earlier ON memory_episode;
DROP TRIGGER evidence_expires_earlier ON memory_evidence;
DROP FUNCTION expires_earlier();
DROP POLICY staff_reads ON memory_term;
DROP POLICY own_tenant ON memory_term;
"""


class Migration(migrations.Migration):
    dependencies = [
        ("memory", "0016_suppression"),
        ("policies", "0003_approvals"),
        ("tenants", "0005_rate_limits"),
    ]

    operations = [
        migrations.AddField(
            model_name="candidatesaying",
            name="contract_ref",
            field=models.TextField(null=True),
        ),
        migrations.AddField(
            model_name="candidatesaying",
            name="session_id",
            field=models.TextField(null=True),
        ),
        migrations.AddField(
            model_name="episode",
            name="contract_ref",
            field=models.TextField(null=True),
        ),
        migrations.AddField(
            model_name="evidence",
            name="contract_ref",
            field=models.TextField(null=True),
        ),
        migrations.AddField(
            model_name="evidence",
            name="session_id",
            field=models.TextField(null=True),
        ),
        migrations.CreateModel(
            name="Term",
            fields=[
                ("id", models.UUIDField(editable=False, primary_key=True, serialize=False)),
                ("kind", models.TextField()),
                ("ref", models.TextField()),
                ("writer_id", models.UUIDField(null=True)),
                ("ended_at", models.DateTimeField()),
                (
                    "due_at",
                    django.contrib.postgres.fields.ArrayField(base_field=models.DateTimeField(null=True), size=None),
                ),
                ("ended_by_kind", models.TextField()),
                ("ended_by_id", models.UUIDField()),
                (
                    "policy_version",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="+",
                        to="policies.policyversion",
                    ),
                ),
                (
                    "subject",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="+",
                        to="memory.subject",
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
                "db_table": "memory_term",
            },
        ),
        migrations.RunSQL(SQL, UNDO),
    ]
