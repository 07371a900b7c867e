from pathlib import Path

from django.db import migrations

SQL = Path(__file__).with_suffix(".sql").read_text(encoding="utf-8")
UNDO = """
DROP TRIGGER auditevent_frozen ON tenants_auditevent;
DROP TRIGGER auditevent_not_emptied ON tenants_auditevent;
SET LOCAL ROLE muniment_chain;
DROP FUNCTION audit_append(uuid, jsonb);
RESET ROLE;
DROP FUNCTION audit_first_bad(uuid, bigint, bigint);
DROP FUNCTION audit_hash(bytea, uuid, bigint, timestamptz, text, uuid, text, text, uuid, text, bytea, jsonb);
DROP FUNCTION refuse_change();
DO $$ DECLARE p record; BEGIN
  FOR p IN SELECT tablename, policyname FROM pg_policies WHERE schemaname = 'public' AND tablename LIKE 'tenants\\_%' LOOP
    EXECUTE format('DROP POLICY %I ON %I', p.policyname, p.tablename);
  END LOOP;
END $$;
DROP FUNCTION muniment_tenant();
DROP FUNCTION muniment_clearance();
"""


class Migration(migrations.Migration):
    dependencies = [
        ("tenants", "0001_initial"),
        ("auth", "0012_alter_user_first_name_max_length"),
        ("sessions", "0001_initial"),
        ("contenttypes", "0002_remove_content_type_name"),
        ("admin", "0003_logentry_add_action_flag_choices"),
    ]

    operations = [migrations.RunSQL(SQL, UNDO)]
