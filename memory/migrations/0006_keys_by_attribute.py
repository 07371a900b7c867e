from django.db import migrations


class Migration(migrations.Migration):
    """The keys of one attribute, for what pages say of its versions. Built beside writers, so outside a transaction."""

    atomic = False
    dependencies = [("memory", "0005_model_spending")]

    operations = [
        migrations.RunSQL(
            "CREATE INDEX CONCURRENTLY IF NOT EXISTS factkey_by_attribute ON memory_factkey (tenant_id, attribute_id)",
            "DROP INDEX CONCURRENTLY IF EXISTS factkey_by_attribute",
        )
    ]
