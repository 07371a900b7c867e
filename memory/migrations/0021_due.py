"""What waits for a person is due three days after it was asked, or when it lapses, whichever is earlier.

The table is written anew once, for a column that the database itself keeps true.
"""

from django.db import migrations, models

CONFLICTS = "reasons && '{conflict_of_equals,conflict_for_review,confirmed_by_a_person}'::text[]"
DO = f"""
-- Interval and zone by themselves: what follows from the session's own zone may not be stored.
ALTER TABLE memory_candidate ADD COLUMN due_at timestamptz GENERATED ALWAYS AS
  (least((created_at AT TIME ZONE 'UTC' + interval '72 hours') AT TIME ZONE 'UTC', expires_at)) STORED;
CREATE INDEX candidate_facts_due ON memory_candidate (tenant_id, due_at, id) WHERE state = 'asked' AND NOT ({CONFLICTS});
CREATE INDEX candidate_conflicts_due ON memory_candidate (tenant_id, due_at, id) WHERE state = 'asked' AND {CONFLICTS};
CREATE INDEX candidate_asked_by_attribute ON memory_candidate (tenant_id, attribute_id) WHERE state = 'asked';
CREATE INDEX episode_quarantined ON memory_episode (tenant_id, recorded_at, id) WHERE quarantined;
-- What would fall with a change, as counts: no content stands in these rows.
CREATE POLICY staff_reads ON memory_derived FOR SELECT TO muniment_staff USING (tenant_id = muniment_tenant());
CREATE POLICY staff_reads ON memory_derivedsource FOR SELECT TO muniment_staff USING (tenant_id = muniment_tenant());
GRANT SELECT ON memory_derived, memory_derivedsource TO muniment_staff;
"""
UNDO = """
REVOKE SELECT ON memory_derived, memory_derivedsource FROM muniment_staff;
DROP POLICY staff_reads ON memory_derivedsource;
DROP POLICY staff_reads ON memory_derived;
DROP INDEX episode_quarantined, candidate_asked_by_attribute, candidate_conflicts_due,
  candidate_facts_due;
ALTER TABLE memory_candidate DROP COLUMN due_at;
"""


class Migration(migrations.Migration):
    dependencies = [("memory", "0020_redaction")]

    operations = [
        migrations.SeparateDatabaseAndState(
            database_operations=[migrations.RunSQL(DO, UNDO)],
            state_operations=[
                migrations.AddField("candidate", "due_at", models.DateTimeField(editable=False, null=True))
            ],
        )
    ]
