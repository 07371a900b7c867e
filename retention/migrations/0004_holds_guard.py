from pathlib import Path

from django.db import migrations

SQL = Path(__file__).with_suffix(".sql").read_text(encoding="utf-8")
UNDO = """
DO $$
DECLARE
  t record;
BEGIN
  FOR t IN SELECT g.tgname, g.tgrelid::regclass AS "table" FROM pg_trigger g JOIN pg_proc p ON p.oid = g.tgfoid
      WHERE p.proname IN ('hold_keeps_content', 'hold_keeps_rows', 'hold_keeps_links', 'hold_keeps_keys') LOOP
    EXECUTE format('DROP TRIGGER %I ON %s', t.tgname, t."table");
  END LOOP;
END $$;
SET LOCAL ROLE muniment_counter;
DROP FUNCTION hold_keeps_content(), hold_keeps_rows(), hold_keeps_links(), hold_keeps_keys();
RESET ROLE;
DROP FUNCTION hold_in_force(), hold_refuses(text);
DROP POLICY counts ON memory_subject;
DROP POLICY counts ON memory_subjectidentifier;
REVOKE SELECT ON memory_subject, memory_subjectidentifier FROM muniment_counter;
"""


class Migration(migrations.Migration):
    dependencies = [("retention", "0003_hold_isolation"), ("tenants", "0005_rate_limits")]

    operations = [migrations.RunSQL(SQL, UNDO)]
