import django.db.models.deletion
from django.db import migrations, models

SQL = """
ALTER TABLE memory_candidate
  DROP CONSTRAINT candidate_act_known,
  ADD CONSTRAINT candidate_act_known CHECK (act IN ('fact', 'correction', 'retraction', 'unknown_attribute')) NOT VALID,
  -- What is asked about an attribute that nobody has defined holds its name with the value, in the payload.
  ADD CONSTRAINT candidate_attribute_named CHECK ((act = 'unknown_attribute') = (attribute_id IS NULL)
    AND (attribute_id IS NULL) = (attribute_version_id IS NULL)
    AND (act <> 'unknown_attribute' OR payload_id IS NOT NULL AND sensitivity >= 2)) NOT VALID;
ALTER TABLE memory_candidate VALIDATE CONSTRAINT candidate_act_known;
ALTER TABLE memory_candidate VALIDATE CONSTRAINT candidate_attribute_named;
"""
UNDO = """
-- What waits for an attribute to be defined has no place in the tables as they were; its sealed payloads expire.
ALTER TABLE memory_candidate NO FORCE ROW LEVEL SECURITY;
ALTER TABLE memory_candidatesaying NO FORCE ROW LEVEL SECURITY;
DELETE FROM memory_candidatesaying s USING memory_candidate c
  WHERE c.tenant_id = s.tenant_id AND c.id = s.candidate_id AND c.act = 'unknown_attribute';
DELETE FROM memory_candidate WHERE act = 'unknown_attribute';
ALTER TABLE memory_candidate FORCE ROW LEVEL SECURITY;
ALTER TABLE memory_candidatesaying FORCE ROW LEVEL SECURITY;
ALTER TABLE memory_candidate
  DROP CONSTRAINT candidate_attribute_named,
  DROP CONSTRAINT candidate_act_known,
  ADD CONSTRAINT candidate_act_known CHECK (act IN ('fact', 'correction', 'retraction'));
"""


def _link(model):
    return models.ForeignKey(
        db_constraint=False,
        db_index=False,
        null=True,
        on_delete=django.db.models.deletion.DO_NOTHING,
        related_name="+",
        to=model,
    )


class Migration(migrations.Migration):
    """A proposal may be about an attribute that is still to be defined."""

    dependencies = [("memory", "0007_extraction"), ("policies", "0003_approvals")]

    operations = [
        migrations.AlterField("candidate", "attribute", _link("policies.attribute")),
        migrations.AlterField("candidate", "attribute_version", _link("policies.attributeversion")),
        migrations.RunSQL(SQL, UNDO),
    ]
