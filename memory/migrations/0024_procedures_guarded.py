from pathlib import Path

from django.db import migrations

SQL = Path(__file__).with_suffix(".sql").read_text(encoding="utf-8")
UNDO = """
-- What agents may read of texts is said anew without procedures; their texts end with what knows of them.
DO $$
DECLARE
  using_now text;
BEGIN
  SELECT qual INTO using_now FROM pg_policies WHERE schemaname = 'public' AND tablename = 'memory_payload'
    AND policyname = 'agent_reads';
  EXECUTE format('ALTER POLICY agent_reads ON memory_payload USING (%s)',
    regexp_replace(using_now, '^\\((.*) AND \\(\\(purpose <> ''procedure''::text\\) OR .*$', '\\1'));
END $$;
DROP POLICY agent_reads ON memory_procedure;
DROP POLICY agent_reads ON memory_procedureversion;
DROP TRIGGER procedure_frozen ON memory_procedure;
DROP TRIGGER procedureevidence_filled ON memory_procedureevidence;
DROP TRIGGER procedureevidence_frozen ON memory_procedureevidence;
DROP TRIGGER procedureversion_told ON memory_procedureversion;
DROP TRIGGER procedureversion_moves ON memory_procedureversion;
DROP TRIGGER procedureversion_by_somebody ON memory_procedureversion;
DROP TRIGGER procedureversion_filled ON memory_procedureversion;
DROP FUNCTION procedureevidence_filled(), procedureversion_told(), procedureversion_moves(), procedureversion_by_somebody(),
  procedureversion_filled();
ALTER TABLE memory_procedureevidence DROP CONSTRAINT procedureevidence_version, DROP CONSTRAINT procedureevidence_episode,
  DROP CONSTRAINT procedureevidence_fact;
ALTER TABLE memory_procedureversion DROP CONSTRAINT procedureversion_base, DROP CONSTRAINT procedureversion_rollback,
  DROP CONSTRAINT procedureversion_procedure, DROP CONSTRAINT procedureversion_payload;
ALTER TABLE memory_payload NO FORCE ROW LEVEL SECURITY;
ALTER TABLE memory_payload DISABLE TRIGGER USER;
DELETE FROM memory_payload WHERE purpose = 'procedure';
SET CONSTRAINTS ALL IMMEDIATE;
ALTER TABLE memory_payload ENABLE TRIGGER USER;
ALTER TABLE memory_payload FORCE ROW LEVEL SECURITY;
ALTER TABLE memory_payload
  DROP CONSTRAINT payload_procedure_is_sealed,
  DROP CONSTRAINT payload_purpose_known,
  ADD CONSTRAINT payload_purpose_known
    CHECK (purpose IN ('subject', 'alias', 'episode', 'value', 'quote', 'candidate', 'derived'));
"""


class Migration(migrations.Migration):
    dependencies = [("memory", "0023_procedures"), ("policies", "0004_agents_ask")]

    operations = [migrations.RunSQL(SQL, UNDO)]
