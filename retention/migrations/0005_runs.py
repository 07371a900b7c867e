from pathlib import Path

import django.db.models.deletion
from django.db import migrations, models

SQL = Path(__file__).with_suffix(".sql").read_text(encoding="utf-8")
UNDO = """
DROP TRIGGER run_moves ON retention_run;
DROP TRIGGER certificate_frozen ON retention_certificate;
DROP TRIGGER certificate_not_emptied ON retention_certificate;
DROP FUNCTION run_moves();
ALTER TABLE retention_run DROP CONSTRAINT run_numbers, DROP CONSTRAINT run_cursor_codes;
ALTER TABLE retention_certificate DROP CONSTRAINT certificate_codes, DROP CONSTRAINT certificate_run, DROP CONSTRAINT certificate_follows;
DROP FUNCTION only_numbers(jsonb);
DROP FUNCTION only_codes(jsonb);
"""

LINK = {"db_constraint": False, "db_index": False, "on_delete": django.db.models.deletion.DO_NOTHING, "related_name": "+"}


class Migration(migrations.Migration):

    dependencies = [
        ('retention', '0004_holds_guard'),
        ('tenants', '0005_rate_limits'),
    ]

    operations = [
        migrations.CreateModel(
            name='Run',
            fields=[
                ('id', models.UUIDField(editable=False, primary_key=True, serialize=False)),
                ('kind', models.TextField()),
                ('target_kind', models.TextField()),
                ('target_id', models.UUIDField(null=True)),
                ('state', models.TextField(default='pending')),
                ('step', models.TextField(default='begun')),
                ('cursor', models.JSONField(default=dict)),
                ('counts', models.JSONField(default=dict)),
                ('refused_by_hold', models.IntegerField(default=0)),
                ('requested_by', models.UUIDField()),
                ('started_at', models.DateTimeField()),
                ('advanced_at', models.DateTimeField()),
                ('finished_at', models.DateTimeField(null=True)),
                ('code', models.TextField(null=True)),
                ('tenant', models.ForeignKey(to='tenants.tenant', **LINK)),
            ],
            options={
                'db_table': 'retention_run',
            },
        ),
        migrations.CreateModel(
            name='Certificate',
            fields=[
                ('id', models.UUIDField(editable=False, primary_key=True, serialize=False)),
                ('kind', models.TextField()),
                ('document', models.JSONField()),
                ('issued_by', models.UUIDField()),
                ('issued_at', models.DateTimeField()),
                ('chain_seq', models.BigIntegerField()),
                ('chain_hash', models.BinaryField()),
                ('digest', models.BinaryField()),
                ('signature', models.BinaryField()),
                ('key_digest', models.BinaryField()),
                ('follows', models.ForeignKey(null=True, to='retention.certificate', **LINK)),
                ('run', models.ForeignKey(null=True, to='retention.run', **LINK)),
                ('tenant', models.ForeignKey(to='tenants.tenant', **LINK)),
            ],
            options={
                'db_table': 'retention_certificate',
            },
        ),
        migrations.RunSQL(SQL, UNDO),
    ]
