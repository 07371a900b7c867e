from pathlib import Path

import django.db.models.deletion
from django.db import migrations, models

SQL = Path(__file__).with_suffix(".sql").read_text(encoding="utf-8")
UNDO = """
DROP POLICY before_any_tenant ON memory_modelspending;
DROP POLICY own_tenant ON memory_modelspending;
DROP POLICY own_tenant ON memory_modelbudget;
"""
TENANT = models.ForeignKey(
    db_constraint=False,
    db_index=False,
    on_delete=django.db.models.deletion.DO_NOTHING,
    related_name="+",
    to="tenants.tenant",
)


class Migration(migrations.Migration):
    dependencies = [("memory", "0004_detection_checks"), ("tenants", "0002_isolation")]

    operations = [
        migrations.CreateModel(
            name="ModelBudget",
            fields=[
                ("id", models.UUIDField(editable=False, primary_key=True, serialize=False)),
                ("day", models.DateField()),
                ("day_tokens", models.BigIntegerField()),
                ("month", models.DateField()),
                ("month_tokens", models.BigIntegerField()),
                ("tenant", TENANT),
            ],
            options={"db_table": "memory_modelbudget"},
        ),
        migrations.CreateModel(
            name="ModelSpending",
            fields=[
                ("id", models.UUIDField(editable=False, primary_key=True, serialize=False)),
                ("day", models.DateField()),
                ("model", models.TextField()),
                ("outcome", models.TextField()),
                ("calls", models.BigIntegerField()),
                ("tokens_in", models.BigIntegerField()),
                ("tokens_out", models.BigIntegerField()),
                ("milliseconds", models.BigIntegerField()),
                ("cost", models.BigIntegerField()),
                ("tenant", TENANT.clone()),
            ],
            options={"db_table": "memory_modelspending"},
        ),
        migrations.RunSQL(SQL, UNDO),
    ]
