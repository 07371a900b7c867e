from pathlib import Path

import django.db.models.deletion
from django.db import migrations, models


SQL = Path(__file__).with_suffix(".sql").read_text(encoding="utf-8")
UNDO = """
REVOKE SELECT (tenant_id, act, target_id, state, expires_at) ON policies_decisionrequest FROM muniment_worker;
DROP POLICY worker_checks ON policies_decisionrequest;
DROP TRIGGER evidence_expires_earlier ON memory_evidence;
DROP FUNCTION evidence_kept_longer();
CREATE TRIGGER evidence_expires_earlier BEFORE UPDATE OF expires_at ON memory_evidence
  FOR EACH ROW WHEN (OLD.expires_at IS NOT NULL) EXECUTE FUNCTION expires_earlier();
DROP INDEX fact_to_review;
DROP POLICY own_tenant ON retention_lifetimechange;
"""


class Migration(migrations.Migration):
    dependencies = [
        ("retention", "0015_restriction_isolation"),
        ("tenants", "0006_key_versions"),
    ]

    operations = [
        migrations.CreateModel(
            name="LifetimeChange",
            fields=[
                ("id", models.UUIDField(editable=False, primary_key=True, serialize=False)),
                ("fact_id", models.UUIDField()),
                ("act", models.TextField()),
                ("until", models.DateTimeField(null=True)),
                ("review_at", models.DateTimeField(null=True)),
                ("reason", models.TextField()),
                ("actor_kind", models.TextField()),
                ("actor_id", models.UUIDField()),
                ("question_id", models.UUIDField(null=True)),
                ("done_at", models.DateTimeField(null=True)),
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
                "db_table": "retention_lifetimechange",
            },
        ),
        migrations.RunSQL(SQL, UNDO),
    ]
