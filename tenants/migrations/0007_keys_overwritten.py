"""A data key that ends is overwritten, whichever version of the tenant's key had wrapped it: only a wrapping that comes new is judged."""

from typing import ClassVar

from django.db import migrations

SQL = """
DROP TRIGGER subjectkey_wrapped_by_a_living_version ON tenants_subjectkey;
CREATE TRIGGER subjectkey_wrapped_by_a_living_version BEFORE INSERT ON tenants_subjectkey
  FOR EACH ROW EXECUTE FUNCTION subjectkey_wrapped_by_a_living_version();
CREATE TRIGGER subjectkey_rewrapped_by_a_living_version BEFORE UPDATE OF version ON tenants_subjectkey
  FOR EACH ROW WHEN (NEW.version <> OLD.version) EXECUTE FUNCTION subjectkey_wrapped_by_a_living_version();
"""
UNDO = """
DROP TRIGGER subjectkey_rewrapped_by_a_living_version ON tenants_subjectkey;
DROP TRIGGER subjectkey_wrapped_by_a_living_version ON tenants_subjectkey;
CREATE TRIGGER subjectkey_wrapped_by_a_living_version BEFORE INSERT OR UPDATE ON tenants_subjectkey
  FOR EACH ROW EXECUTE FUNCTION subjectkey_wrapped_by_a_living_version();
"""


class Migration(migrations.Migration):
    dependencies: ClassVar = [("tenants", "0006_key_versions")]
    operations: ClassVar = [migrations.RunSQL(SQL, UNDO)]
