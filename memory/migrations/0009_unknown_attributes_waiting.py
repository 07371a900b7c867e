from django.db import migrations


class Migration(migrations.Migration):
    """How many wait is asked at each that comes. Built beside writers, so outside a transaction."""

    atomic = False
    dependencies = [("memory", "0008_unknown_attributes")]

    operations = [
        migrations.RunSQL(
            "CREATE INDEX CONCURRENTLY IF NOT EXISTS candidate_unknown_waiting ON memory_candidate (tenant_id, expires_at)"
            " WHERE act = 'unknown_attribute' AND state = 'asked'",
            "DROP INDEX CONCURRENTLY IF EXISTS candidate_unknown_waiting",
        )
    ]
