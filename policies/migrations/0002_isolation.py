from pathlib import Path

from django.db import migrations

SQL = Path(__file__).with_suffix(".sql").read_text(encoding="utf-8")
UNDO = """
DROP TRIGGER consent_frozen ON policies_consent;
DROP TRIGGER policyversion_frozen ON policies_policyversion;
DROP TRIGGER attributeversion_frozen ON policies_attributeversion;
DROP FUNCTION consent_frozen();
DROP FUNCTION version_frozen();
DO $$ DECLARE p record; BEGIN
  FOR p IN SELECT tablename, policyname FROM pg_policies WHERE schemaname = 'public' AND tablename LIKE 'policies\\_%' LOOP
    EXECUTE format('DROP POLICY %I ON %I', p.policyname, p.tablename);
  END LOOP;
END $$;
"""


class Migration(migrations.Migration):
    dependencies = [("policies", "0001_initial"), ("tenants", "0002_isolation")]

    operations = [migrations.RunSQL(SQL, UNDO)]
