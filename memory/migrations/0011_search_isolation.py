from pathlib import Path

from django.db import migrations

SQL = Path(__file__).with_suffix(".sql").read_text(encoding="utf-8")
UNDO = """
SET LOCAL ROLE muniment_counter;
DROP FUNCTION search_hits(bigint[], bigint[], bigint[], text[], int);
DROP FUNCTION search_extent(bigint, text[], int);
DROP FUNCTION search_waiting();
RESET ROLE;
REVOKE SELECT ON memory_outboxentry FROM muniment_counter;
DROP POLICY counts ON memory_outboxentry;
DROP TRIGGER payload_findable ON memory_payload;
DROP FUNCTION payload_findable();
DROP INDEX episode_in_session;
DROP POLICY finds ON memory_searchentry;
DROP POLICY own_tenant ON memory_searchentry;
DROP POLICY own_tenant ON memory_searchstate;
DROP POLICY agent_reads ON memory_searchstate;
"""


class Migration(migrations.Migration):
    dependencies = [("memory", "0010_search")]

    operations = [migrations.RunSQL(SQL, UNDO)]
