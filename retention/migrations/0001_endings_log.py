from pathlib import Path

import django.db.models.deletion
from django.db import migrations, models

SQL = Path(__file__).with_suffix(".sql").read_text(encoding="utf-8")
UNDO = """
DROP TRIGGER owedending_frozen ON retention_owedending;
DROP FUNCTION owedending_frozen();
DROP POLICY own_tenant ON retention_owedending;
"""


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('tenants', '0005_rate_limits'),
    ]

    operations = [
        migrations.CreateModel(
            name='OwedEnding',
            fields=[
                ('id', models.UUIDField(editable=False, primary_key=True, serialize=False)),
                ('kind', models.TextField()),
                ('target_id', models.UUIDField()),
                ('record', models.JSONField(default=dict)),
                ('owed_at', models.DateTimeField()),
                ('settled_at', models.DateTimeField(null=True)),
                ('line', models.BigIntegerField(null=True)),
                ('tenant', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='tenants.tenant')),
            ],
            options={
                'db_table': 'retention_owedending',
            },
        ),
        migrations.RunSQL(SQL, UNDO),
    ]
