from pathlib import Path

from django.db import migrations

SQL = Path(__file__).with_suffix(".sql").read_text(encoding="utf-8")
UNDO = """
DO $$
DECLARE
  t record;
BEGIN
  FOR t IN SELECT g.tgname, g.tgrelid::regclass AS "table" FROM pg_trigger g JOIN pg_proc p ON p.oid = g.tgfoid
      WHERE p.proname IN ('living_content_kept', 'living_link_kept', 'living_key_kept', 'living_saying_kept') LOOP
    EXECUTE format('DROP TRIGGER %I ON %s', t.tgname, t."table");
  END LOOP;
END $$;
SET LOCAL ROLE muniment_counter;
DROP FUNCTION living_content_kept(), living_saying_kept(), content_stands(uuid[]);
RESET ROLE;
DROP FUNCTION living_link_kept(), living_key_kept();
DROP FUNCTION candidate_is_over(timestamptz, text, uuid), fact_is_over(timestamptz, timestamptz, uuid[]), content_refused();
DROP POLICY counts ON memory_procedureversion;
DROP POLICY counts ON retention_accessexport;
REVOKE SELECT (tenant_id, payload_id, redaction_state) ON memory_procedureversion FROM muniment_counter;
REVOKE SELECT (tenant_id, payload_id, expires_at) ON retention_accessexport FROM muniment_counter;
"""


class Migration(migrations.Migration):
    dependencies = [("retention", "0018_desk_undo"), ("memory", "0025_terms_outlive_subjects")]
    operations = [migrations.RunSQL(SQL, UNDO)]
