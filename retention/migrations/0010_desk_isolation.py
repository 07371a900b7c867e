from pathlib import Path

from django.db import migrations

SQL = Path(__file__).with_suffix(".sql").read_text(encoding="utf-8")
UNDO = """
DROP FUNCTION claim_first(uuid, text, uuid[]);
DROP TRIGGER claim_filled ON retention_claim;
DROP TRIGGER claim_moves ON retention_claim;
DROP TRIGGER reveal_filled ON retention_reveal;
DROP TRIGGER deskpreference_own ON retention_deskpreference;
DROP FUNCTION claim_filled(), claim_moves(), reveal_filled(), deskpreference_own();
"""


class Migration(migrations.Migration):
    dependencies = [("retention", "0009_desk"), ("tenants", "0005_rate_limits")]

    operations = [migrations.RunSQL(SQL, UNDO)]
