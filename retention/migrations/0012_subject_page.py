"""Members see of what is derived that it is there, and what it rests on."""

from django.db import migrations

FORWARD = """
CREATE POLICY staff_reads ON memory_derived FOR SELECT TO muniment_staff USING (tenant_id = muniment_tenant());
CREATE POLICY staff_reads ON memory_derivedsource FOR SELECT TO muniment_staff USING (tenant_id = muniment_tenant());
GRANT SELECT (tenant_id, id, kind, subject_id, clearance, state, sensitivity, basis, expires_at, origin, sources, builder, built_at)
  ON memory_derived TO muniment_staff;
GRANT SELECT (tenant_id, id, derived_id, fact_id, belief_id) ON memory_derivedsource TO muniment_staff;
"""
BACKWARD = """
REVOKE ALL ON memory_derived, memory_derivedsource FROM muniment_staff;
DROP POLICY staff_reads ON memory_derived;
DROP POLICY staff_reads ON memory_derivedsource;
"""


class Migration(migrations.Migration):
    dependencies = [("retention", "0011_erasures"), ("memory", "0015_kept_contexts")]
    operations = [migrations.RunSQL(FORWARD, BACKWARD)]
