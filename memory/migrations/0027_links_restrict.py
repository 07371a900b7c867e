"""A row to which something points is not removed: said to the database by the one rule that costs a look less for each row.

Under the rule that stood by default it also looks, before it looks for what points, whether the row came back in the same
statement under the same id. None does here.
"""

from django.db import migrations

#: Which links to what goes in masses, by table.
LINKS = {
    "memory_payload": {
        "candidate": ("candidate_payload", "payload_id"),
        "episode": ("episode_payload", "payload_id"),
        "fact": ("fact_payload", "payload_id"),
        "evidence": ("evidence_quote", "quote_id"),
        "candidatesaying": ("candidatesaying_quote", "quote_id"),
        "subject": ("subject_payload", "payload_id"),
        "subjectidentifier": ("subjectidentifier_payload", "payload_id"),
        "procedureversion": ("procedureversion_payload", "payload_id"),
    },
    "memory_fact": {"evidence": ("evidence_fact", "fact_id"), "belief": ("belief_fact", "fact_id")},
    "memory_evidence": {"belief": ("belief_evidence", "evidence_id")},
    "memory_factkey": {
        "fact": ("fact_key", "key_id"),
        "evidence": ("evidence_key", "key_id"),
        "belief": ("belief_key", "key_id"),
    },
    "memory_episode": {
        "evidence": ("evidence_episode", "episode_id"),
        "candidatesaying": ("candidatesaying_episode", "episode_id"),
        "extraction": ("extraction_episode", "episode_id"),
    },
}
#: A name and what it says are stored in either order; that a name goes first is asked at once.
_LATER = {"subjectidentifier_payload": " DEFERRABLE INITIALLY DEFERRED"}


def replaced(rule: str) -> list[str]:
    """Return the statements that give each link `rule`: a new one beside the old, held against what is there, then alone."""
    return [
        statement
        for to, links in LINKS.items()
        for table, (name, column) in links.items()
        for statement in (
            # Where this was broken off.
            f"ALTER TABLE memory_{table} DROP CONSTRAINT IF EXISTS {name}_new",
            f"ALTER TABLE memory_{table} ADD CONSTRAINT {name}_new FOREIGN KEY (tenant_id, {column})"
            f" REFERENCES {to} (tenant_id, id){rule}{_LATER.get(name, '')} NOT VALID",
            f"ALTER TABLE memory_{table} VALIDATE CONSTRAINT {name}_new",
            f"ALTER TABLE memory_{table} DROP CONSTRAINT IF EXISTS {name}",
            f"ALTER TABLE memory_{table} RENAME CONSTRAINT {name}_new TO {name}",
        )
    ]


class Migration(migrations.Migration):
    """Held against what is there beside writers, so outside a transaction."""

    atomic = False
    dependencies = [("memory", "0026_kept_by_set")]

    operations = [migrations.RunSQL(replaced(" ON DELETE RESTRICT"), replaced(""))]
