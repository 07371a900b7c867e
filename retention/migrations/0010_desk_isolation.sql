-- Claims, reveals and preferences of people at the desk: keys, row-level security, grants, and what never changes.

DO $$
DECLARE
  t text;
BEGIN
  FOREACH t IN ARRAY ARRAY['retention_claim', 'retention_reveal', 'retention_deskpreference'] LOOP
    EXECUTE format('ALTER TABLE %I DROP CONSTRAINT %I', t, t || '_pkey');
    EXECUTE format('ALTER TABLE %I ADD CONSTRAINT %I PRIMARY KEY (tenant_id, id)', t, t || '_pkey');
    EXECUTE format('ALTER TABLE %I ADD CONSTRAINT %I FOREIGN KEY (tenant_id) REFERENCES tenants_tenant (id)',
                   t, substr(t, 11) || '_tenant');
    EXECUTE format('ALTER TABLE %I ADD CONSTRAINT %I FOREIGN KEY (person_id) REFERENCES tenants_user (id)',
                   t, substr(t, 11) || '_person');
    EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', t);
    EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', t);
    EXECUTE format('CREATE POLICY own_tenant ON %I TO muniment_staff'
                   ' USING (tenant_id = muniment_tenant()) WITH CHECK (tenant_id = muniment_tenant())', t);
  END LOOP;
END $$;

ALTER TABLE retention_claim
  ADD CONSTRAINT claim_words CHECK (queue ~ '^[a-z_]{1,40}$' AND act ~ '^[a-z0-9_]{1,60}$' AND reason ~ '^[a-z0-9_]{1,60}$'),
  ADD CONSTRAINT claim_digest_length CHECK (octet_length(digest) = 32),
  ADD CONSTRAINT claim_ends CHECK (expires_at > taken_at AND expires_at <= taken_at + interval '12 hours'),
  ADD CONSTRAINT claim_end_known CHECK (ended_by IN ('decided', 'released', 'lapsed', 'deferred')),
  ADD CONSTRAINT claim_ended CHECK ((ended_at IS NULL) = (ended_by IS NULL)),
  ADD CONSTRAINT claim_deferred CHECK ((deferred_until IS NOT NULL) = (ended_by IS NOT DISTINCT FROM 'deferred')),
  ADD CONSTRAINT claim_decided CHECK (ended_by IS DISTINCT FROM 'decided' OR act IS NOT NULL);
-- However many reach for it at once, an item is one person's.
CREATE UNIQUE INDEX claim_one_live ON retention_claim (tenant_id, item_id) WHERE ended_at IS NULL;
CREATE INDEX claim_by_item ON retention_claim (tenant_id, item_id, id);
CREATE INDEX claim_by_person ON retention_claim (tenant_id, person_id, ended_at);

ALTER TABLE retention_reveal
  ADD CONSTRAINT reveal_words CHECK (target_kind ~ '^[a-z_]{1,40}$' AND reason ~ '^[a-z0-9_]{1,60}$'),
  ADD CONSTRAINT reveal_case CHECK (case_ref ~ '^[A-Za-z0-9][A-Za-z0-9._/-]{0,39}$'),
  ADD CONSTRAINT reveal_class_known CHECK (sensitivity BETWEEN 0 AND 3),
  ADD CONSTRAINT reveal_lasts CHECK (expires_at > at AND expires_at <= at + interval '60 seconds');
CREATE INDEX reveal_by_person ON retention_reveal (tenant_id, person_id, at);
CREATE INDEX reveal_by_subject ON retention_reveal (tenant_id, subject_id, id);

ALTER TABLE retention_deskpreference ADD CONSTRAINT deskpreference_once UNIQUE (tenant_id, person_id);

-- who ----------------------------------------------------------------------------------------------------------------
-- Persons and times are the transaction's own, whatever the row says.
CREATE FUNCTION claim_filled() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  NEW.person_id := nullif(current_setting('muniment.actor', true), '')::uuid;
  NEW.taken_at := clock_timestamp();
  NEW.expires_at := NEW.taken_at + interval '15 minutes';
  RETURN NEW;
END $$;
CREATE TRIGGER claim_filled BEFORE INSERT ON retention_claim FOR EACH ROW EXECUTE FUNCTION claim_filled();

-- Whose it is never changes; who holds it may renew and end it, and anybody ends what has lapsed.
CREATE FUNCTION claim_moves() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  mine boolean := OLD.person_id IS NOT DISTINCT FROM nullif(current_setting('muniment.actor', true), '')::uuid;
BEGIN
  IF (NEW.tenant_id, NEW.id, NEW.queue, NEW.item_id, NEW.person_id, NEW.taken_at)
     IS DISTINCT FROM (OLD.tenant_id, OLD.id, OLD.queue, OLD.item_id, OLD.person_id, OLD.taken_at)
     OR OLD.ended_at IS NOT NULL THEN
    RAISE EXCEPTION 'muniment: a claim does not change' USING ERRCODE = 'restrict_violation';
  END IF;
  IF NOT mine AND NOT (OLD.expires_at <= clock_timestamp() AND NEW.ended_by = 'lapsed') THEN
    RAISE EXCEPTION 'muniment: a claim is ended by whoever holds it' USING ERRCODE = 'insufficient_privilege';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER claim_moves BEFORE UPDATE ON retention_claim FOR EACH ROW EXECUTE FUNCTION claim_moves();

CREATE FUNCTION reveal_filled() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  NEW.person_id := nullif(current_setting('muniment.actor', true), '')::uuid;
  NEW.at := clock_timestamp();
  NEW.expires_at := NEW.at + interval '60 seconds';
  RETURN NEW;
END $$;
CREATE TRIGGER reveal_filled BEFORE INSERT ON retention_reveal FOR EACH ROW EXECUTE FUNCTION reveal_filled();

CREATE FUNCTION deskpreference_own() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  NEW.person_id := nullif(current_setting('muniment.actor', true), '')::uuid;
  IF TG_OP = 'UPDATE' AND OLD.person_id IS DISTINCT FROM NEW.person_id THEN
    RAISE EXCEPTION 'muniment: a preference is its person''s own' USING ERRCODE = 'insufficient_privilege';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER deskpreference_own BEFORE INSERT OR UPDATE ON retention_deskpreference
  FOR EACH ROW EXECUTE FUNCTION deskpreference_own();

-- Take the first of these items that nobody holds; none is waited for. `p_id` names the claim.
-- An advisory lock an item stands for the row, since items live in the tables of many doors, and staff may lock none of
-- them. Whoever comes second at the same instant goes on to the next item, as with SKIP LOCKED.
CREATE FUNCTION claim_first(p_id uuid, p_queue text, p_items uuid[]) RETURNS uuid LANGUAGE plpgsql AS $$
DECLARE
  i uuid;
  taken uuid;
BEGIN
  FOREACH i IN ARRAY p_items LOOP
    CONTINUE WHEN NOT pg_try_advisory_xact_lock(hashtextextended('claim ' || i::text, 0));
    UPDATE retention_claim SET ended_at = clock_timestamp(), ended_by = 'lapsed'
      WHERE tenant_id = muniment_tenant() AND item_id = i AND ended_at IS NULL AND expires_at <= clock_timestamp();
    INSERT INTO retention_claim (tenant_id, id, queue, item_id) VALUES (muniment_tenant(), p_id, p_queue, i)
      ON CONFLICT (tenant_id, item_id) WHERE ended_at IS NULL DO NOTHING RETURNING item_id INTO taken;
    IF taken IS NOT NULL THEN
      RETURN taken;
    END IF;
  END LOOP;
  RETURN NULL;
END $$;
REVOKE ALL ON FUNCTION claim_first(uuid, text, uuid[]) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION claim_first(uuid, text, uuid[]) TO muniment_staff;

GRANT SELECT, INSERT ON retention_claim, retention_reveal, retention_deskpreference TO muniment_staff;
GRANT UPDATE (expires_at, digest, revealed_until, ended_at, ended_by, act, reason, deferred_until)
  ON retention_claim TO muniment_staff;
GRANT UPDATE (single_keys) ON retention_deskpreference TO muniment_staff;
