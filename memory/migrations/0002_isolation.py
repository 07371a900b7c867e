from pathlib import Path

from django.db import migrations

SQL = Path(__file__).with_suffix(".sql").read_text(encoding="utf-8")
UNDO = """
DO $$ DECLARE p record; BEGIN
  FOR p IN SELECT tablename, policyname FROM pg_policies WHERE schemaname = 'public'
      AND (tablename LIKE 'memory\\_%' OR policyname = 'counts') LOOP
    EXECUTE format('DROP POLICY %I ON %I', p.policyname, p.tablename);
  END LOOP;
END $$;
SET LOCAL ROLE muniment_counter;
DROP FUNCTION withheld_reason(uuid);
RESET ROLE;
DROP FUNCTION consent_stands(uuid[]);
DROP TRIGGER belief_kept ON memory_belief;
DROP FUNCTION belief_kept();
DROP TRIGGER belief_frozen ON memory_belief;
DROP TRIGGER evidence_frozen ON memory_evidence;
DROP FUNCTION belief_frozen();
DROP FUNCTION evidence_frozen();
ALTER TABLE policies_consent DROP CONSTRAINT consent_subject;
"""


class Migration(migrations.Migration):
    dependencies = [("memory", "0001_initial"), ("policies", "0002_isolation")]

    operations = [migrations.RunSQL(SQL, UNDO)]
