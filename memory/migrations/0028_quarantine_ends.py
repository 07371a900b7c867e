"""An episode may be let out of quarantine, and never goes back into it."""

from django.db import migrations

FORWARDS = """
CREATE FUNCTION quarantine_ends() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'muniment: an episode is quarantined when it comes, and not later' USING ERRCODE = 'restrict_violation';
END $$;
CREATE TRIGGER episode_quarantine_ends BEFORE UPDATE ON memory_episode FOR EACH ROW
  WHEN (NEW.quarantined AND NOT OLD.quarantined) EXECUTE FUNCTION quarantine_ends();
GRANT UPDATE (quarantined) ON memory_episode TO muniment_worker;
"""
BACKWARDS = """
REVOKE UPDATE (quarantined) ON memory_episode FROM muniment_worker;
DROP TRIGGER episode_quarantine_ends ON memory_episode;
DROP FUNCTION quarantine_ends();
"""


class Migration(migrations.Migration):
    dependencies = [("memory", "0027_links_restrict")]

    operations = [migrations.RunSQL(FORWARDS, BACKWARDS)]
