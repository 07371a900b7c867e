"""Contexts kept of questions, beside the texts made of subjects."""

from django.db import migrations, models

FORWARD = """
ALTER TABLE memory_derived
  DROP CONSTRAINT derived_once,
  DROP CONSTRAINT derived_kind_known,
  DROP CONSTRAINT derived_whole,
  ADD CONSTRAINT derived_once UNIQUE NULLS NOT DISTINCT (tenant_id, subject_id, kind, clearance, question_digest),
  ADD CONSTRAINT derived_kind_known CHECK (kind IN ('profile', 'context')) NOT VALID,
  ADD CONSTRAINT derived_question CHECK ((kind = 'context') = (question_digest IS NOT NULL)) NOT VALID,
  ADD CONSTRAINT derived_print CHECK ((kind = 'context' AND state = 'built') <= (print IS NOT NULL AND rules IS NOT NULL)) NOT VALID,
  -- Whoever asked has its question kept until it is answered, sealed: a context is never without a payload.
  ADD CONSTRAINT derived_whole CHECK ((payload_id IS NULL) = (sensitivity IS NULL) AND (payload_id IS NULL) = (basis IS NULL)
    AND (payload_id IS NULL) = (built_at IS NULL) AND CASE kind WHEN 'context' THEN payload_id IS NOT NULL
      ELSE (payload_id IS NULL) = (sources = 0) END) NOT VALID;
ALTER TABLE memory_derived
  VALIDATE CONSTRAINT derived_kind_known, VALIDATE CONSTRAINT derived_question, VALIDATE CONSTRAINT derived_print,
  VALIDATE CONSTRAINT derived_whole;
GRANT UPDATE (print, rules) ON memory_derived TO muniment_writer;
"""
BACKWARD = """
DELETE FROM memory_derived WHERE kind = 'context';
REVOKE UPDATE (print, rules) ON memory_derived FROM muniment_writer;
ALTER TABLE memory_derived
  DROP CONSTRAINT derived_once, DROP CONSTRAINT derived_kind_known, DROP CONSTRAINT derived_question,
  DROP CONSTRAINT derived_print, DROP CONSTRAINT derived_whole,
  ADD CONSTRAINT derived_once UNIQUE (tenant_id, subject_id, kind, clearance),
  ADD CONSTRAINT derived_kind_known CHECK (kind = 'profile'),
  ADD CONSTRAINT derived_whole CHECK ((payload_id IS NULL) = (sensitivity IS NULL) AND (payload_id IS NULL) = (basis IS NULL)
    AND (payload_id IS NULL) = (built_at IS NULL) AND (payload_id IS NULL) = (sources = 0));
"""


class Migration(migrations.Migration):
    dependencies = [("memory", "0014_derived_isolation")]
    operations = [
        migrations.AddField("derived", "question_digest", models.BinaryField(null=True)),
        migrations.AddField("derived", "print", models.BinaryField(null=True)),
        migrations.AddField("derived", "rules", models.TextField(null=True)),
        migrations.RunSQL(FORWARD, BACKWARD),
    ]
