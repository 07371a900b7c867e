"""Rotation of tenant keys: which versions are still needed, and that none that is not wraps a data key any more."""

from typing import ClassVar

from django.db import migrations, models

SQL = """
ALTER TABLE tenants_tenant
  ADD CONSTRAINT tenant_key_versions CHECK (oldest_key_version > 0 AND destroyed_key_version >= 0
    AND destroyed_key_version < oldest_key_version) NOT VALID;
ALTER TABLE tenants_tenant VALIDATE CONSTRAINT tenant_key_versions;
CREATE INDEX subjectkey_by_version ON tenants_subjectkey (tenant_id, version, id);

-- Whoever wrapped a data key before a rotation and comes with it after the old version has been retired is turned away:
-- the key would be lost with that version. Retiring takes the lock exclusively, so that it meets everybody before it or
-- is seen by everybody after it.
CREATE FUNCTION subjectkey_wrapped_by_a_living_version() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_advisory_xact_lock_shared(hashtextextended('muniment.keys.' || NEW.tenant_id::text, 0));
  IF EXISTS (SELECT FROM tenants_tenant t WHERE t.id = NEW.tenant_id AND t.oldest_key_version > NEW.version) THEN
    RAISE EXCEPTION 'muniment: the key version has been rotated away' USING ERRCODE = 'serialization_failure';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER subjectkey_wrapped_by_a_living_version BEFORE INSERT OR UPDATE ON tenants_subjectkey
  FOR EACH ROW EXECUTE FUNCTION subjectkey_wrapped_by_a_living_version();

-- Background work re-wraps: of a key nothing changes but what it is wrapped by.
CREATE POLICY rewraps ON tenants_subjectkey TO muniment_worker
  USING (tenant_id = muniment_tenant()) WITH CHECK (tenant_id = muniment_tenant());
GRANT SELECT, UPDATE (wrapped, version) ON tenants_subjectkey TO muniment_worker;
CREATE POLICY rotates ON tenants_tenant TO muniment_worker USING (id = muniment_tenant()) WITH CHECK (id = muniment_tenant());
GRANT SELECT, UPDATE (oldest_key_version, destroyed_key_version) ON tenants_tenant TO muniment_worker;
"""
UNDO = """
REVOKE ALL ON tenants_tenant FROM muniment_worker;
REVOKE UPDATE (oldest_key_version, destroyed_key_version) ON tenants_tenant FROM muniment_worker;
DROP POLICY rotates ON tenants_tenant;
REVOKE ALL ON tenants_subjectkey FROM muniment_worker;
REVOKE UPDATE (wrapped, version) ON tenants_subjectkey FROM muniment_worker;
DROP POLICY rewraps ON tenants_subjectkey;
DROP TRIGGER subjectkey_wrapped_by_a_living_version ON tenants_subjectkey;
DROP FUNCTION subjectkey_wrapped_by_a_living_version();
DROP INDEX subjectkey_by_version;
ALTER TABLE tenants_tenant DROP CONSTRAINT tenant_key_versions;
"""


class Migration(migrations.Migration):
    dependencies: ClassVar = [("tenants", "0005_rate_limits")]
    operations: ClassVar = [
        migrations.AddField("tenant", "oldest_key_version", models.IntegerField(default=1, db_default=1)),
        migrations.AddField("tenant", "destroyed_key_version", models.IntegerField(default=0, db_default=0)),
        migrations.RunSQL(SQL, UNDO),
    ]
