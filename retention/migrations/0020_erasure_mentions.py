import django.contrib.postgres.fields
from django.db import migrations, models

# A span is a first and a last place: an even number of them.
SQL = """
ALTER TABLE retention_erasureitem ALTER spans SET DEFAULT '{}',
  ADD CONSTRAINT erasureitem_spans CHECK (cardinality(spans) % 2 = 0 AND (kind = 'mention' OR spans = '{}'));
"""
UNDO = "ALTER TABLE retention_erasureitem DROP CONSTRAINT erasureitem_spans;"


class Migration(migrations.Migration):
    dependencies = [("retention", "0019_living_content")]
    operations = [
        migrations.AddField(
            "erasureitem",
            "spans",
            django.contrib.postgres.fields.ArrayField(base_field=models.IntegerField(), default=list, size=None),
        ),
        migrations.RunSQL(SQL, UNDO),
    ]
