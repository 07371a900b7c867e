"""A term may outlive the subject that it names: nothing that ended for good is kept from going by it."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("memory", "0024_procedures_guarded")]

    operations = [
        migrations.RunSQL(
            "ALTER TABLE memory_term DROP CONSTRAINT term_subject",
            "ALTER TABLE memory_term ADD CONSTRAINT term_subject FOREIGN KEY (tenant_id, subject_id)"
            " REFERENCES memory_subject (tenant_id, id) NOT VALID",
        )
    ]
