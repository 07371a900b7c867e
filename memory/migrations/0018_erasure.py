from pathlib import Path

from django.db import migrations, models

SQL = Path(__file__).with_suffix(".sql").read_text(encoding="utf-8")
UNDO = """
DO $$
BEGIN
  RAISE EXCEPTION 'muniment: what was removed does not come back: restore a backup instead';
END $$;
"""


class Migration(migrations.Migration):

    dependencies = [
        ('memory', '0017_terms'),
        ('tenants', '0006_key_versions'),
    ]

    operations = [
        migrations.AddField(
            model_name='payload',
            name='ended_at',
            field=models.DateTimeField(null=True),
        ),
        migrations.RunSQL(SQL, UNDO),
    ]
