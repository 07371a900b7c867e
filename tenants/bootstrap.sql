-- The roles of Muniment. Run once by a superuser (a DBA) inside the application's database; safe to run again.
-- `manage.py doctor --bootstrap-sql` prints this file. The database must belong to muniment_owner.
--
--   muniment_owner    owns and migrates; under FORCE ROW LEVEL SECURITY it reads no tenant's row
--   muniment_app      what web and worker log in as; owns nothing and may read nothing until it takes a role below
--   muniment_agent    what an agent may read            muniment_writer   the write door, one tenant, expired rows included
--   muniment_staff    the admin, one tenant             muniment_worker   endings and derived rows, one tenant
--   muniment_front    what comes before any tenant: keys, sessions, memberships, the list of tenants, dispatch
--   muniment_chain    owns the functions that append to the audit chain
--   muniment_counter  owns the functions that look past what their caller may read, and answer with counts or ids
--   muniment_broker   logs in for the queue and owns only its schema
DO $$
DECLARE
  name text;
BEGIN
  FOREACH name IN ARRAY ARRAY['muniment_owner', 'muniment_app', 'muniment_broker'] LOOP
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = name) THEN
      EXECUTE format('CREATE ROLE %I LOGIN', name);
    END IF;
    EXECUTE format('ALTER ROLE %I NOSUPERUSER NOBYPASSRLS NOINHERIT NOCREATEROLE NOCREATEDB NOREPLICATION', name);
  END LOOP;
  FOREACH name IN ARRAY ARRAY['muniment_agent', 'muniment_writer', 'muniment_staff', 'muniment_worker',
                              'muniment_front', 'muniment_chain', 'muniment_counter'] LOOP
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = name) THEN
      EXECUTE format('CREATE ROLE %I NOLOGIN', name);
    END IF;
    EXECUTE format('ALTER ROLE %I NOLOGIN NOSUPERUSER NOBYPASSRLS NOINHERIT NOCREATEROLE NOCREATEDB NOREPLICATION', name);
  END LOOP;
END $$;

GRANT muniment_agent, muniment_writer, muniment_staff, muniment_worker, muniment_front TO muniment_app;
-- Only so that migrations may hand functions over; the owner inherits nothing from them.
GRANT muniment_chain, muniment_counter TO muniment_owner;

DO $$
BEGIN
  EXECUTE format('REVOKE ALL ON DATABASE %I FROM PUBLIC', current_database());
  EXECUTE format('GRANT CONNECT ON DATABASE %I TO muniment_owner, muniment_broker', current_database());
  -- While a backup is being restored, what has ended may stand in it: `manage.py restore` lets the application in again.
  IF to_regnamespace('restore_under_way') IS NULL THEN
    EXECUTE format('GRANT CONNECT ON DATABASE %I TO muniment_app', current_database());
  END IF;
END $$;

REVOKE ALL ON SCHEMA public FROM PUBLIC;
GRANT USAGE ON SCHEMA public TO muniment_agent, muniment_writer, muniment_staff, muniment_worker,
  muniment_front, muniment_chain, muniment_counter;
GRANT USAGE, CREATE ON SCHEMA public TO muniment_owner WITH GRANT OPTION;

CREATE SCHEMA IF NOT EXISTS pgmq AUTHORIZATION muniment_broker;
