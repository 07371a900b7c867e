from pathlib import Path

from django.db import migrations

SQL = Path(__file__).with_suffix(".sql").read_text(encoding="utf-8")
UNDO = """
SET LOCAL ROLE muniment_counter;
DROP FUNCTION held_records(text, uuid[]);
RESET ROLE;
DROP FUNCTION holds_on(hold_saying[]);
DROP TYPE hold_saying;
DO $$
DECLARE
  t text;
BEGIN
  FOREACH t IN ARRAY ARRAY['memory_factkey', 'memory_evidence', 'memory_episode', 'memory_candidate',
      'memory_candidatesaying'] LOOP
    EXECUTE format('DROP POLICY counts ON %I', t);
    EXECUTE format('REVOKE SELECT ON %I FROM muniment_counter', t);
  END LOOP;
END $$;
DROP TRIGGER refusedending_told ON retention_refusedending;
DROP TRIGGER refusedending_kept ON retention_refusedending;
DROP TRIGGER holdscope_frozen ON retention_holdscope;
DROP TRIGGER holdscope_placed ON retention_holdscope;
DROP TRIGGER hold_moves ON retention_hold;
DROP TRIGGER hold_of_an_open_matter ON retention_hold;
DROP TRIGGER hold_filled ON retention_hold;
DROP TRIGGER matter_filled ON retention_matter;
DROP FUNCTION refusedending_told(), refusedending_kept(), holdscope_placed(), hold_moves(), hold_of_an_open_matter(), hold_filled(),
  matter_filled(), hold_digest(uuid), hold_lock_no(uuid);
DROP INDEX candidate_by_subject, candidatesaying_by_episode;
ALTER TABLE retention_refusedending DROP CONSTRAINT refusedending_hold;
ALTER TABLE retention_holdscope DROP CONSTRAINT holdscope_hold, DROP CONSTRAINT holdscope_subject, DROP CONSTRAINT holdscope_attribute;
ALTER TABLE retention_hold DROP CONSTRAINT hold_matter;
"""


class Migration(migrations.Migration):
    dependencies = [("retention", "0002_holds"), ("memory", "0014_derived_isolation"), ("policies", "0003_approvals")]

    operations = [migrations.RunSQL(SQL, UNDO)]
