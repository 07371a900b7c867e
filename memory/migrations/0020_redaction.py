from pathlib import Path

from django.db import migrations

SQL = Path(__file__).with_suffix(".sql").read_text(encoding="utf-8")
UNDO = """
DO $$ DECLARE t text; BEGIN
  FOREACH t IN ARRAY ARRAY['memory_payload', 'memory_episode', 'memory_fact', 'memory_evidence', 'memory_candidate'] LOOP
    EXECUTE format('DROP TRIGGER %I ON %I', substr(t, 8) || '_redaction_stays', t);
  END LOOP;
END $$;
DROP TRIGGER fact_redacted ON memory_fact;
DROP FUNCTION redaction_stays(), fact_redacted(), value_type(jsonb);
REVOKE UPDATE (payload_id, value_digest) ON memory_fact FROM muniment_worker;
REVOKE UPDATE (payload_id, content_digest) ON memory_episode FROM muniment_worker;
REVOKE UPDATE (value_digest) ON memory_candidate FROM muniment_worker;
REVOKE UPDATE (redaction_fields) ON memory_episode, memory_fact, memory_evidence, memory_candidate FROM muniment_worker;
REVOKE UPDATE (sensitivity, expires_at, restricted, redaction_state, consent_ids) ON memory_searchentry FROM muniment_worker;
"""


class Migration(migrations.Migration):
    dependencies = [("memory", "0019_erasure_indexes")]

    operations = [migrations.RunSQL(SQL, UNDO)]
