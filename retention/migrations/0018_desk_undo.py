from django.db import migrations, models

FORWARDS = """
ALTER TABLE retention_claim
  ADD CONSTRAINT claim_class_known CHECK (level BETWEEN 0 AND 3),
  ADD CONSTRAINT claim_pending CHECK (commit_at IS NULL OR act IS NOT NULL AND reason IS NOT NULL);
GRANT UPDATE (level, commit_at) ON retention_claim TO muniment_staff;
CREATE INDEX claim_pending ON retention_claim (tenant_id, person_id, id) WHERE ended_at IS NULL AND commit_at IS NOT NULL;
"""
BACKWARDS = """
DROP INDEX claim_pending;
REVOKE UPDATE (level, commit_at) ON retention_claim FROM muniment_staff;
ALTER TABLE retention_claim DROP CONSTRAINT claim_pending, DROP CONSTRAINT claim_class_known;
"""


class Migration(migrations.Migration):
    dependencies = [("retention", "0017_restriction_kept")]

    operations = [
        migrations.AddField("claim", "level", models.SmallIntegerField(null=True)),
        migrations.AddField("claim", "commit_at", models.DateTimeField(null=True)),
        migrations.RunSQL(FORWARDS, BACKWARDS),
    ]
