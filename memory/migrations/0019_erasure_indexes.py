from django.db import migrations

#: What removing a row has to look for: what points at it; and what is overdue.
INDEXES = {
    "payload_overdue": "memory_payload (tenant_id, expires_at) WHERE ended_at IS NULL AND expires_at IS NOT NULL",
    "payload_by_key": "memory_payload (tenant_id, key_id) WHERE key_id IS NOT NULL",
    "fact_by_payload": "memory_fact (tenant_id, payload_id)",
    "fact_by_key": "memory_fact (tenant_id, key_id)",
    "episode_by_payload": "memory_episode (tenant_id, payload_id)",
    "evidence_by_quote": "memory_evidence (tenant_id, quote_id) WHERE quote_id IS NOT NULL",
    "evidence_by_correction": "memory_evidence (tenant_id, corrects_id) WHERE corrects_id IS NOT NULL",
    "evidence_ends_overdue": "memory_evidence (tenant_id, expires_at) WHERE fact_id IS NULL AND expires_at IS NOT NULL",
    "belief_by_evidence": "memory_belief (tenant_id, evidence_id)",
    "candidate_by_payload": "memory_candidate (tenant_id, payload_id) WHERE payload_id IS NOT NULL",
    "candidate_by_subject": "memory_candidate (tenant_id, subject_id)",
    "candidate_by_evidence": "memory_candidate (tenant_id, evidence_id) WHERE evidence_id IS NOT NULL",
    "candidate_overdue": "memory_candidate (tenant_id, expires_at) WHERE expires_at IS NOT NULL",
    "candidatesaying_by_quote": "memory_candidatesaying (tenant_id, quote_id) WHERE quote_id IS NOT NULL",
    "candidatesaying_by_episode": "memory_candidatesaying (tenant_id, episode_id) WHERE episode_id IS NOT NULL",
    "subject_by_payload": "memory_subject (tenant_id, payload_id)",
    "subject_by_datakey": "memory_subject (tenant_id, key_id)",
    "subjectidentifier_by_payload": "memory_subjectidentifier (tenant_id, payload_id)",
    "extraction_by_subject": "memory_extraction (tenant_id, subject_id) WHERE subject_id IS NOT NULL",
}


class Migration(migrations.Migration):
    """Without these each removal would look through whole tables. Built beside writers, so outside a transaction."""

    atomic = False
    dependencies = [("memory", "0018_erasure")]

    operations = [
        migrations.RunSQL(
            f"CREATE INDEX CONCURRENTLY IF NOT EXISTS {name} ON {what}", f"DROP INDEX CONCURRENTLY IF EXISTS {name}"
        )
        for name, what in INDEXES.items()
    ]
