"""What was done, counted by day from the audit chain."""

from pathlib import Path

import django.db.models.deletion
from django.db import migrations, models

SQL = Path(__file__).with_suffix(".sql").read_text(encoding="utf-8")
UNDO = """
DROP POLICY own_tenant ON retention_tally;
DROP POLICY own_tenant ON retention_tallystate;
"""


def _tenant():
    return models.ForeignKey(
        db_constraint=False,
        db_index=False,
        on_delete=django.db.models.deletion.DO_NOTHING,
        related_name="+",
        to="tenants.tenant",
    )


class Migration(migrations.Migration):
    dependencies = [("retention", "0005_runs")]
    operations = [
        migrations.CreateModel(
            name="Tally",
            fields=[
                ("id", models.UUIDField(editable=False, primary_key=True, serialize=False)),
                ("day", models.DateField()),
                ("action", models.TextField()),
                ("actor_kind", models.TextField()),
                ("actor_id", models.UUIDField()),
                ("number", models.BigIntegerField()),
                ("tenant", _tenant()),
            ],
            options={"db_table": "retention_tally"},
        ),
        migrations.CreateModel(
            name="TallyState",
            fields=[
                ("id", models.UUIDField(editable=False, primary_key=True, serialize=False)),
                ("counted_to", models.BigIntegerField(default=0)),
                ("tenant", _tenant()),
            ],
            options={"db_table": "retention_tallystate"},
        ),
        migrations.RunSQL(SQL, UNDO),
    ]
