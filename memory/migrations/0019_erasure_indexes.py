from django.db import migrations

#: What removing a row has to look for: what points at it; and what is overdue. Those that find by an id begin with it: a plan
#: that was made while a table was young takes any index that begins with the tenant for as good as the right one.
INDEXES = {
    "payload_overdue": "memory_payload (tenant_id, expires_at) WHERE ended_at IS NULL AND expires_at IS NOT NULL",
    "payload_by_key": "memory_payload (key_id, tenant_id) WHERE key_id IS NOT NULL",
    "fact_by_payload": "memory_fact (payload_id, tenant_id)",
    "fact_by_key": "memory_fact (key_id, tenant_id)",
    "episode_by_payload": "memory_episode (payload_id, tenant_id)",
    "evidence_by_quote": "memory_evidence (quote_id, tenant_id) WHERE quote_id IS NOT NULL",
    "evidence_by_correction": "memory_evidence (corrects_id, tenant_id) WHERE corrects_id IS NOT NULL",
    "evidence_ends_overdue": "memory_evidence (tenant_id, expires_at) WHERE fact_id IS NULL AND expires_at IS NOT NULL",
    "belief_by_evidence": "memory_belief (evidence_id, tenant_id)",
    "candidate_by_payload": "memory_candidate (payload_id, tenant_id) WHERE payload_id IS NOT NULL",
    "candidate_by_subject": "memory_candidate (subject_id, tenant_id)",
    "candidate_by_evidence": "memory_candidate (evidence_id, tenant_id) WHERE evidence_id IS NOT NULL",
    "candidate_overdue": "memory_candidate (tenant_id, expires_at) WHERE expires_at IS NOT NULL",
    "candidatesaying_by_quote": "memory_candidatesaying (quote_id, tenant_id) WHERE quote_id IS NOT NULL",
    "candidatesaying_by_episode": "memory_candidatesaying (episode_id, tenant_id) WHERE episode_id IS NOT NULL",
    "subject_by_payload": "memory_subject (payload_id, tenant_id)",
    "subject_by_datakey": "memory_subject (key_id, tenant_id)",
    "subjectidentifier_by_payload": "memory_subjectidentifier (payload_id, tenant_id)",
    "extraction_by_subject": "memory_extraction (subject_id, tenant_id) WHERE subject_id IS NOT NULL",
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
