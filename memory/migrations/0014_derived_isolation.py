from pathlib import Path

from django.db import migrations

SQL = Path(__file__).with_suffix(".sql").read_text(encoding="utf-8")
UNDO = """
REVOKE DELETE ON memory_payload FROM muniment_writer;
DROP TRIGGER payload_kept ON memory_payload;
DROP FUNCTION payload_kept();
DROP POLICY own_tenant ON memory_derived;
DROP POLICY own_tenant ON memory_derivedsource;
DROP POLICY agent_reads ON memory_derived;
DROP POLICY agent_reads ON memory_derivedsource;
-- What is derived can be thrown away: the tables as they were have no place for it.
ALTER TABLE memory_derivedsource DROP CONSTRAINT derivedsource_derived;
ALTER TABLE memory_derived DROP CONSTRAINT derived_payload;
ALTER TABLE memory_payload NO FORCE ROW LEVEL SECURITY;
DELETE FROM memory_payload WHERE purpose = 'derived';
SET CONSTRAINTS ALL IMMEDIATE;
ALTER TABLE memory_payload FORCE ROW LEVEL SECURITY;
ALTER TABLE memory_payload
  DROP CONSTRAINT payload_purpose_known,
  ADD CONSTRAINT payload_purpose_known CHECK (purpose IN ('subject', 'alias', 'episode', 'value', 'quote', 'candidate'));
"""


class Migration(migrations.Migration):
    dependencies = [("memory", "0013_derived")]

    operations = [migrations.RunSQL(SQL, UNDO)]
