from django.db import migrations

FORWARD = """
-- A subject whom a scope names stays, though its hold was released: what was held, of whom, is not forgotten.
CREATE POLICY worker_reads ON retention_holdscope FOR SELECT TO muniment_worker USING (tenant_id = muniment_tenant());
GRANT SELECT (tenant_id, subject_id) ON retention_holdscope TO muniment_worker;
"""
BACKWARD = """
REVOKE SELECT (tenant_id, subject_id) ON retention_holdscope FROM muniment_worker;
DROP POLICY worker_reads ON retention_holdscope;
"""


class Migration(migrations.Migration):
    dependencies = [("retention", "0010_desk_isolation")]

    operations = [migrations.RunSQL(FORWARD, BACKWARD)]
