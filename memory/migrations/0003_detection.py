"""What detection found of an episode, of a piece of evidence and of a saying that waits: codes, counts and a flag.

Constant defaults and checks that are not yet validated: no row of a big table is rewritten or read under the lock.
`0004_detection_checks` reads them, and builds the index, without one.
"""

from django.contrib.postgres.fields import ArrayField
from django.db import migrations, models

SQL = """
ALTER TABLE memory_episode
  ADD COLUMN detected text[] NOT NULL DEFAULT '{}',
  ADD COLUMN replaced jsonb NOT NULL DEFAULT '{}',
  ADD COLUMN quarantined boolean NOT NULL DEFAULT false,
  ADD COLUMN mentioned_ids uuid[] NOT NULL DEFAULT '{}';
ALTER TABLE memory_evidence ADD COLUMN detected text[] NOT NULL DEFAULT '{}';
ALTER TABLE memory_candidatesaying ADD COLUMN detected text[] NOT NULL DEFAULT '{}';
-- Codes and counts, never words of what was found.
ALTER TABLE memory_episode
  ADD CONSTRAINT episode_detected_codes CHECK (array_to_string(detected, ',', 'NULL') ~ '^[a-z0-9_,]*$') NOT VALID,
  ADD CONSTRAINT episode_replaced_counts CHECK (
    jsonb_typeof(replaced) = 'object' AND NOT jsonb_path_exists(replaced, '$.* ? (@.type() != "number")')) NOT VALID;
ALTER TABLE memory_evidence
  ADD CONSTRAINT evidence_detected_codes CHECK (array_to_string(detected, ',', 'NULL') ~ '^[a-z0-9_,]*$') NOT VALID;
ALTER TABLE memory_candidatesaying
  ADD CONSTRAINT candidatesaying_detected_codes CHECK (array_to_string(detected, ',', 'NULL') ~ '^[a-z0-9_,]*$') NOT VALID;
"""
UNDO = """
ALTER TABLE memory_episode DROP COLUMN detected, DROP COLUMN replaced, DROP COLUMN quarantined, DROP COLUMN mentioned_ids;
ALTER TABLE memory_evidence DROP COLUMN detected;
ALTER TABLE memory_candidatesaying DROP COLUMN detected;
"""


def _codes() -> ArrayField:
    return ArrayField(models.TextField(), default=list)


class Migration(migrations.Migration):
    dependencies = [("memory", "0002_isolation")]

    operations = [
        migrations.RunSQL(
            SQL,
            UNDO,
            state_operations=[
                migrations.AddField("episode", "detected", _codes()),
                migrations.AddField("episode", "replaced", models.JSONField(default=dict)),
                migrations.AddField("episode", "quarantined", models.BooleanField(default=False)),
                migrations.AddField("episode", "mentioned_ids", ArrayField(models.UUIDField(), default=list)),
                migrations.AddField("evidence", "detected", _codes()),
                migrations.AddField("candidatesaying", "detected", _codes()),
            ],
        )
    ]
