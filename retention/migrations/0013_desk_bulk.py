from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("retention", "0012_access_exports")]

    operations = [
        migrations.AddField("claim", "bulk_id", models.UUIDField(null=True)),
        migrations.RunSQL(
            "GRANT UPDATE (bulk_id) ON retention_claim TO muniment_staff",
            "REVOKE UPDATE (bulk_id) ON retention_claim FROM muniment_staff",
        ),
    ]
