from pathlib import Path

import django.db.models.deletion
import simple_history.models
from django.conf import settings
from django.db import migrations, models

SQL = Path(__file__).with_suffix(".sql").read_text(encoding="utf-8")
UNDO = """
DROP TRIGGER attributeversion_approved ON policies_attributeversion;
DROP TRIGGER policyversion_approved ON policies_policyversion;
DROP FUNCTION version_approved();
DROP TRIGGER attribute_cardinality_fixed ON policies_attribute;
DROP FUNCTION attribute_cardinality_fixed();
REVOKE UPDATE (cardinality) ON policies_attribute FROM muniment_staff;
DROP TRIGGER decision_filled ON policies_decision;
DROP TRIGGER decision_allowed ON policies_decision;
DROP TRIGGER decision_told ON policies_decision;
DROP TRIGGER decision_frozen ON policies_decision;
DROP TRIGGER decisionrequest_filled ON policies_decisionrequest;
DROP TRIGGER decisionrequest_by_a_member ON policies_decisionrequest;
DROP TRIGGER decisionrequest_moves ON policies_decisionrequest;
DROP TRIGGER delegation_filled ON policies_delegation;
DROP TRIGGER delegation_allowed ON policies_delegation;
DROP TRIGGER delegation_frozen ON policies_delegation;
DROP FUNCTION decision_filled(), decision_allowed(), decision_told(), decisionrequest_filled(), decisionrequest_by_a_member(),
  decisionrequest_moves(), delegation_filled(), delegation_allowed(), delegation_frozen();
ALTER TABLE policies_decision DROP CONSTRAINT decision_bound, DROP CONSTRAINT decision_delegation;
ALTER TABLE policies_attributeversion DROP CONSTRAINT attributeversion_base;
ALTER TABLE policies_policyversion DROP CONSTRAINT policyversion_base;
-- Drafts and what became of them end with what knows of them.
ALTER TABLE policies_attributeversion DISABLE TRIGGER attributeversion_frozen, NO FORCE ROW LEVEL SECURITY;
ALTER TABLE policies_policyversion DISABLE TRIGGER policyversion_frozen, NO FORCE ROW LEVEL SECURITY;
DELETE FROM policies_attributeversion WHERE state IN ('draft', 'discarded');
DELETE FROM policies_policyversion WHERE state IN ('draft', 'discarded');
ALTER TABLE policies_attributeversion ENABLE TRIGGER attributeversion_frozen, FORCE ROW LEVEL SECURITY,
  DROP CONSTRAINT attributeversion_state_known,
  ADD CONSTRAINT attributeversion_state_known CHECK (state IN ('draft', 'active', 'retired'));
ALTER TABLE policies_policyversion ENABLE TRIGGER policyversion_frozen, FORCE ROW LEVEL SECURITY,
  DROP CONSTRAINT policyversion_state_known,
  ADD CONSTRAINT policyversion_state_known CHECK (state IN ('draft', 'active', 'retired'));
CREATE OR REPLACE FUNCTION version_frozen() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP = 'DELETE' OR to_jsonb(NEW) - 'state' IS DISTINCT FROM to_jsonb(OLD) - 'state'
     OR (OLD.state, NEW.state) NOT IN (('draft', 'active'), ('active', 'retired'), ('draft', 'retired'), ('active', 'active')) THEN
    RAISE EXCEPTION 'muniment: a published version of % does not change', TG_TABLE_NAME USING ERRCODE = 'restrict_violation';
  END IF;
  RETURN NEW;
END $$;
"""


class Migration(migrations.Migration):

    dependencies = [
        ('policies', '0002_isolation'),
        ('tenants', '0002_isolation'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddField(
            model_name='attributeversion',
            name='base',
            field=models.ForeignKey(db_constraint=False, db_index=False, null=True, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='policies.attributeversion'),
        ),
        migrations.AddField(
            model_name='attributeversion',
            name='drafted_by',
            field=models.UUIDField(null=True),
        ),
        migrations.AddField(
            model_name='policyversion',
            name='base',
            field=models.ForeignKey(db_constraint=False, db_index=False, null=True, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='policies.policyversion'),
        ),
        migrations.AddField(
            model_name='policyversion',
            name='drafted_by',
            field=models.UUIDField(null=True),
        ),
        migrations.CreateModel(
            name='DecisionRequest',
            fields=[
                ('id', models.UUIDField(editable=False, primary_key=True, serialize=False)),
                ('act', models.TextField()),
                ('target_kind', models.TextField()),
                ('target_id', models.UUIDField()),
                ('digest', models.BinaryField()),
                ('reason', models.TextField()),
                ('state', models.TextField(default='pending')),
                ('requested_by', models.UUIDField()),
                ('requested_at', models.DateTimeField()),
                ('expires_at', models.DateTimeField()),
                ('carried_out_by', models.UUIDField(null=True)),
                ('carried_out_at', models.DateTimeField(null=True)),
                ('tenant', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='tenants.tenant')),
            ],
            options={
                'db_table': 'policies_decisionrequest',
            },
        ),
        migrations.CreateModel(
            name='Delegation',
            fields=[
                ('id', models.UUIDField(editable=False, primary_key=True, serialize=False)),
                ('role', models.TextField()),
                ('given_by', models.UUIDField()),
                ('starts_at', models.DateTimeField()),
                ('ends_at', models.DateTimeField()),
                ('created_at', models.DateTimeField()),
                ('ended_at', models.DateTimeField(null=True)),
                ('given_to', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('tenant', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='tenants.tenant')),
            ],
            options={
                'db_table': 'policies_delegation',
            },
        ),
        migrations.CreateModel(
            name='Decision',
            fields=[
                ('id', models.UUIDField(editable=False, primary_key=True, serialize=False)),
                ('requested_by', models.UUIDField()),
                ('digest', models.BinaryField()),
                ('verdict', models.TextField()),
                ('reason', models.TextField()),
                ('decided_by', models.UUIDField()),
                ('decided_at', models.DateTimeField()),
                ('tenant', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='tenants.tenant')),
                ('request', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='policies.decisionrequest')),
                ('delegation', models.ForeignKey(db_constraint=False, db_index=False, null=True, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='policies.delegation')),
            ],
            options={
                'db_table': 'policies_decision',
            },
        ),
        migrations.CreateModel(
            name='HistoricalDecisionRequest',
            fields=[
                ('id', models.UUIDField(db_index=True, editable=False)),
                ('act', models.TextField()),
                ('target_kind', models.TextField()),
                ('target_id', models.UUIDField()),
                ('digest', models.BinaryField()),
                ('reason', models.TextField()),
                ('state', models.TextField(default='pending')),
                ('requested_by', models.UUIDField()),
                ('requested_at', models.DateTimeField()),
                ('expires_at', models.DateTimeField()),
                ('carried_out_by', models.UUIDField(null=True)),
                ('carried_out_at', models.DateTimeField(null=True)),
                ('history_id', models.AutoField(primary_key=True, serialize=False)),
                ('history_date', models.DateTimeField(db_index=True)),
                ('history_change_reason', models.CharField(max_length=100, null=True)),
                ('history_type', models.CharField(choices=[('+', 'Created'), ('~', 'Changed'), ('-', 'Deleted')], max_length=1)),
                ('history_user', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('tenant', models.ForeignKey(blank=True, db_constraint=False, null=True, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='tenants.tenant')),
            ],
            options={
                'verbose_name': 'historical decision request',
                'verbose_name_plural': 'historical decision requests',
                'ordering': ('-history_date', '-history_id'),
                'get_latest_by': ('history_date', 'history_id'),
            },
            bases=(simple_history.models.HistoricalChanges, models.Model),
        ),
        migrations.RunSQL(SQL, UNDO),
    ]
