from pathlib import Path

from django.db import migrations

SQL = Path(__file__).with_suffix(".sql").read_text(encoding="utf-8")
UNDO = """
REVOKE UPDATE (restricted) ON memory_subject, memory_fact, memory_evidence, memory_episode, memory_candidate, memory_payload
  FROM muniment_writer;
GRANT UPDATE (lock_no) ON memory_subject TO muniment_writer;
DROP TRIGGER restriction_moves ON retention_restriction;
DROP FUNCTION restriction_moves();
"""

# A saying and the proposal that it came from share their content: a hold on one covers the other. The rest of the function
# is as it was.
_HOLDS = (Path(__file__).parent / "0003_hold_isolation.sql").read_text(encoding="utf-8")
_BEFORE = _HOLDS[_HOLDS.index("CREATE FUNCTION held_records") : _HOLDS.index("REVOKE ALL ON FUNCTION holds_on")]
_OF = "ARRAY(SELECT x.id FROM memory_candidate x WHERE x.tenant_id = tenant AND x.evidence_id = v.id)"
_CHANGES = (
    ("ARRAY[i.id, v.id, v.episode_id], ARRAY[f.subject_id]", f"ARRAY[i.id, v.id, v.episode_id] || {_OF}, ARRAY[f.subject_id]"),
    (
        "ARRAY[i.id, v.fact_id, v.episode_id], ARRAY[k.subject_id]",
        f"ARRAY[i.id, v.fact_id, v.episode_id] || {_OF.replace('v.id', 'i.id')}, ARRAY[k.subject_id]",
    ),
    (
        "ARRAY[i.id, y.episode_id], ARRAY[c.subject_id]",
        "ARRAY[i.id, y.episode_id, c.evidence_id,"
        " (SELECT x.fact_id FROM memory_evidence x WHERE x.tenant_id = tenant AND x.id = c.evidence_id)], ARRAY[c.subject_id]",
    ),
)


def _replaced(function: str) -> str:
    return f"""
GRANT CREATE ON SCHEMA public TO muniment_counter;
SET LOCAL ROLE muniment_counter;
{function.replace("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION", 1)}
RESET ROLE;
REVOKE CREATE ON SCHEMA public FROM muniment_counter;
"""


_AFTER = _BEFORE
for _old, _new in _CHANGES:
    assert _old in _AFTER
    _AFTER = _AFTER.replace(_old, _new)


class Migration(migrations.Migration):
    dependencies = [("retention", "0014_restrictions"), ("memory", "0019_erasure_indexes")]

    operations = [
        migrations.RunSQL(SQL, UNDO),
        migrations.RunSQL(_replaced(_AFTER), _replaced(_BEFORE)),
    ]
