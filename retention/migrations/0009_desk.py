
import django.contrib.postgres.fields
import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ("retention", "0008_redaction"),
        ('tenants', '0005_rate_limits'),
    ]

    operations = [
        migrations.CreateModel(
            name='Claim',
            fields=[
                ('id', models.UUIDField(editable=False, primary_key=True, serialize=False)),
                ('queue', models.TextField()),
                ('item_id', models.UUIDField()),
                ('person_id', models.UUIDField()),
                ('taken_at', models.DateTimeField()),
                ('expires_at', models.DateTimeField()),
                ('digest', models.BinaryField(null=True)),
                ('revealed_until', models.DateTimeField(null=True)),
                ('ended_at', models.DateTimeField(null=True)),
                ('ended_by', models.TextField(null=True)),
                ('act', models.TextField(null=True)),
                ('reason', models.TextField(null=True)),
                ('deferred_until', models.DateTimeField(null=True)),
                ('tenant', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='tenants.tenant')),
            ],
            options={
                'db_table': 'retention_claim',
            },
        ),
        migrations.CreateModel(
            name='DeskPreference',
            fields=[
                ('id', models.UUIDField(editable=False, primary_key=True, serialize=False)),
                ('person_id', models.UUIDField()),
                ('single_keys', models.BooleanField()),
                ('tenant', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='tenants.tenant')),
            ],
            options={
                'db_table': 'retention_deskpreference',
            },
        ),
        migrations.CreateModel(
            name='Reveal',
            fields=[
                ('id', models.UUIDField(editable=False, primary_key=True, serialize=False)),
                ('person_id', models.UUIDField()),
                ('target_kind', models.TextField()),
                ('target_id', models.UUIDField()),
                ('subject_id', models.UUIDField(null=True)),
                ('fields', django.contrib.postgres.fields.ArrayField(base_field=models.TextField(), size=None)),
                ('sensitivity', models.SmallIntegerField()),
                ('reason', models.TextField()),
                ('case_ref', models.TextField()),
                ('at', models.DateTimeField()),
                ('expires_at', models.DateTimeField()),
                ('tenant', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='tenants.tenant')),
            ],
            options={
                'db_table': 'retention_reveal',
            },
        ),
    ]
