from pathlib import Path

import django.contrib.postgres.fields
import django.db.models.deletion
from django.db import migrations, models


SQL = Path(__file__).with_suffix(".sql").read_text(encoding="utf-8")
UNDO = """
DO $$ DECLARE t text; BEGIN
  FOREACH t IN ARRAY ARRAY['memory_payload', 'memory_episode', 'memory_fact', 'memory_candidate'] LOOP
    EXECUTE format('DROP TRIGGER %I ON %I', substr(t, 8) || '_redaction_asked', t);
  END LOOP;
END $$;
DROP TRIGGER redactionrequest_filled ON retention_redactionrequest;
DROP TRIGGER redactionrequest_allowed ON retention_redactionrequest;
DROP TRIGGER redactionrequest_moves ON retention_redactionrequest;
DROP TRIGGER redactionitem_asked ON retention_redactionitem;
DROP TRIGGER redactionitem_frozen ON retention_redactionitem;
DROP FUNCTION redactionrequest_filled(), redactionrequest_allowed(), redactionrequest_moves(), redactionitem_asked(), redaction_asked();
"""


class Migration(migrations.Migration):

    dependencies = [
        ('memory', '0020_redaction'),
        ('retention', '0007_subject_requests'),
        ('tenants', '0005_rate_limits'),
    ]

    operations = [
        migrations.CreateModel(
            name='RedactionRequest',
            fields=[
                ('id', models.UUIDField(editable=False, primary_key=True, serialize=False)),
                ('state', models.TextField(default='required')),
                ('reason', models.TextField()),
                ('requester_kind', models.TextField()),
                ('requested_by', models.UUIDField()),
                ('requested_at', models.DateTimeField()),
                ('decided_by', models.UUIDField(null=True)),
                ('decided_at', models.DateTimeField(null=True)),
                ('decision_reason', models.TextField(null=True)),
                ('digest', models.BinaryField(null=True)),
                ('counts', models.JSONField(default=dict)),
                ('run_id', models.UUIDField(null=True)),
                ('certificate_id', models.UUIDField(null=True)),
                ('cause', models.ForeignKey(db_constraint=False, db_index=False, null=True, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='retention.redactionrequest')),
                ('tenant', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='tenants.tenant')),
            ],
            options={
                'db_table': 'retention_redactionrequest',
            },
        ),
        migrations.CreateModel(
            name='RedactionItem',
            fields=[
                ('id', models.UUIDField(editable=False, primary_key=True, serialize=False)),
                ('kind', models.TextField()),
                ('target_id', models.UUIDField()),
                ('payload_id', models.UUIDField(null=True)),
                ('picked', models.BooleanField()),
                ('strategy', models.TextField(default='null')),
                ('fields', django.contrib.postgres.fields.ArrayField(base_field=models.TextField(), default=list, size=None)),
                ('spans', django.contrib.postgres.fields.ArrayField(base_field=models.IntegerField(), default=list, size=None)),
                ('tenant', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='tenants.tenant')),
                ('request', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='retention.redactionrequest')),
            ],
            options={
                'db_table': 'retention_redactionitem',
            },
        ),
        migrations.RunSQL(SQL, UNDO),
    ]
