"""Validate what `0003_detection` added, and index who is mentioned where; nobody waits for it, so not in one transaction."""

from django.db import migrations

CHECKS = (
    ("memory_episode", "episode_detected_codes"),
    ("memory_episode", "episode_replaced_counts"),
    ("memory_evidence", "evidence_detected_codes"),
    ("memory_candidatesaying", "candidatesaying_detected_codes"),
)


class Migration(migrations.Migration):
    atomic = False

    dependencies = [("memory", "0003_detection")]

    operations = [
        *(
            migrations.RunSQL(f"ALTER TABLE {table} VALIDATE CONSTRAINT {name}", migrations.RunSQL.noop)
            for table, name in CHECKS
        ),
        migrations.RunSQL(
            "CREATE INDEX CONCURRENTLY IF NOT EXISTS episode_by_mention ON memory_episode USING gin (mentioned_ids)"
            " WHERE mentioned_ids <> '{}'",
            "DROP INDEX CONCURRENTLY IF EXISTS episode_by_mention",
        ),
    ]
