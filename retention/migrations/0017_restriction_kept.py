from pathlib import Path

from django.db import migrations

SQL = Path(__file__).with_suffix(".sql").read_text(encoding="utf-8")
TABLES = ("subject", "fact", "evidence", "episode", "candidate", "payload")
UNDO = (
    "\n".join(f"DROP TRIGGER restriction_kept ON memory_{table};" for table in TABLES)
    + """
DROP FUNCTION restriction_kept();
DROP FUNCTION under_restriction(uuid, uuid);
REVOKE SELECT ON retention_restriction FROM muniment_counter;
DROP POLICY counts ON retention_restriction;
"""
)


class Migration(migrations.Migration):
    dependencies = [("retention", "0016_keeping")]
    operations = [migrations.RunSQL(SQL, UNDO)]
