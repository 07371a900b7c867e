from django.db import migrations


class Migration(migrations.Migration):
    """What is overdue, in the one order in which compaction goes through it. Built beside writers, so outside a transaction."""

    atomic = False
    dependencies = [("memory", "0021_due")]

    operations = [
        # For a row lock: whoever draws from an episode holds the row that says how far that has come.
        migrations.RunSQL(
            "GRANT UPDATE (attempts) ON memory_extraction TO muniment_worker",
            "REVOKE UPDATE (attempts) ON memory_extraction FROM muniment_worker",
        ),
        migrations.RunSQL(
            "CREATE INDEX CONCURRENTLY IF NOT EXISTS payload_due ON memory_payload (tenant_id, expires_at, id)"
            " WHERE ended_at IS NULL AND expires_at IS NOT NULL",
            "DROP INDEX CONCURRENTLY IF EXISTS payload_due",
        ),
        migrations.RunSQL(
            "DROP INDEX CONCURRENTLY IF EXISTS payload_overdue",
            "CREATE INDEX CONCURRENTLY IF NOT EXISTS payload_overdue ON memory_payload (tenant_id, expires_at)"
            " WHERE ended_at IS NULL AND expires_at IS NOT NULL",
        ),
    ]
