-- The tables of schema 0026, the oldest that is opened: a statement a line. `revisions.py` writes the words
-- in capitals that SQL does not have as each database has them; lines after `-- NAME:` are for it alone.
CREATE TABLE api_keys (id VARCHAR(20) NOT NULL, name TEXT NOT NULL, digest BYTES NOT NULL, grants JSON NOT NULL, created TEXT NOT NULL, expires TEXT, revoked TEXT, used TEXT, PRIMARY KEY (id)) UNORDERED
CREATE INDEX ix_api_keys_name ON api_keys (name)
CREATE TABLE audit_events (sequence BIGINT NOT NULL, time COMPARED NOT NULL, action VARCHAR(20) NOT NULL, collection COMPARED, event TEXT NOT NULL, hash VARCHAR(64) NOT NULL, PRIMARY KEY (sequence))
CREATE INDEX ix_audit_events_time ON audit_events (time)
CREATE TABLE audit_head (id INTEGER NOT NULL, sequence BIGINT NOT NULL, hash VARCHAR(64) NOT NULL, pruned BIGINT NOT NULL, pruned_hash VARCHAR(64) NOT NULL, PRIMARY KEY (id))
CREATE TABLE audit_names (digest VARCHAR(32) NOT NULL, collection COMPARED NOT NULL, name COMPARED, PRIMARY KEY (digest)) UNORDERED
CREATE INDEX ix_audit_names_name ON audit_names (name, collection)
CREATE TABLE backups (digest VARCHAR(64) NOT NULL, path TEXT NOT NULL, created TEXT NOT NULL, last_image BIGINT NOT NULL, PRIMARY KEY (digest))
CREATE TABLE collections (id SERIAL8 NOT NULL, name VARCHAR(100) NOT NULL, sequence BIGINT NOT NULL, trimmed BIGINT DEFAULT '0' NOT NULL, "view" VARCHAR(20), PRIMARY KEY (id), UNIQUE (name))
CREATE TABLE derived_rules (id INTEGER NOT NULL, rules VARCHAR(64) NOT NULL, version TEXT NOT NULL, reached BIGINT, PRIMARY KEY (id))
CREATE TABLE home (id SERIAL4 NOT NULL, uid VARCHAR(32) NOT NULL, PRIMARY KEY (id))
CREATE TABLE idempotency_keys (caller VARCHAR(64) NOT NULL, "key" VARCHAR(255) NOT NULL, request VARCHAR(64) NOT NULL, attempt VARCHAR(32) NOT NULL, created TEXT NOT NULL, leased_until TEXT NOT NULL, status INTEGER, headers JSON, body BYTES, PRIMARY KEY (caller, "key"))
CREATE INDEX ix_idempotency_keys_created ON idempotency_keys (created)
CREATE TABLE jobs (id COUNTED, kind VARCHAR(20) NOT NULL, arguments JSON NOT NULL, folder TEXT, state VARCHAR(10) NOT NULL, created TEXT NOT NULL, started TEXT, ended TEXT, worker TEXT, beats BIGINT NOT NULL, attempts INTEGER NOT NULL, lapses INTEGER NOT NULL, cancelling BOOLEAN NOT NULL, progress JSON, result JSON, error TEXT)
CREATE INDEX ix_jobs_state ON jobs (state)
CREATE TABLE loose_files (sha256 VARCHAR(64) NOT NULL, PRIMARY KEY (sha256)) UNORDERED
CREATE TABLE models (id SERIAL8 NOT NULL, digest VARCHAR(100) NOT NULL, name TEXT NOT NULL, dim INTEGER NOT NULL, blades INTEGER DEFAULT '1' NOT NULL, unsigned BOOLEAN DEFAULT FALSE NOT NULL, recipe TEXT NOT NULL, created TEXT NOT NULL, metrics JSON NOT NULL, PRIMARY KEY (id), UNIQUE (digest))
CREATE TABLE aliases (name VARCHAR(100) NOT NULL, collection_id KEY8 NOT NULL, PRIMARY KEY (name), FOREIGN KEY (collection_id) REFERENCES collections (id))
CREATE TABLE archive_studies (collection_id KEY8 NOT NULL, archive VARCHAR(16) NOT NULL, study VARCHAR(16) NOT NULL, day VARCHAR(16) NOT NULL, selection VARCHAR(16) NOT NULL, checked TEXT, instances JSON NOT NULL, PRIMARY KEY (collection_id, archive, study), FOREIGN KEY (collection_id) REFERENCES collections (id) ON DELETE CASCADE) UNORDERED
CREATE TABLE archives (collection_id KEY8 NOT NULL, archive VARCHAR(16) NOT NULL, position BIGINT NOT NULL, instances BIGINT NOT NULL, selection VARCHAR(16) NOT NULL, PRIMARY KEY (collection_id, archive), FOREIGN KEY (collection_id) REFERENCES collections (id) ON DELETE CASCADE)
CREATE TABLE case_lists (collection_id KEY8 NOT NULL, id VARCHAR(64) NOT NULL, name COMPARED NOT NULL, created TEXT NOT NULL, PRIMARY KEY (collection_id, id), CONSTRAINT uq_case_lists_name UNIQUE (collection_id, name), FOREIGN KEY (collection_id) REFERENCES collections (id) ON DELETE CASCADE) UNORDERED
CREATE TABLE fields (collection_id KEY8 NOT NULL, name COMPARED NOT NULL, kind VARCHAR(10) NOT NULL, PRIMARY KEY (collection_id, name, kind), FOREIGN KEY (collection_id) REFERENCES collections (id))
CREATE TABLE former_names (collection_id KEY8 NOT NULL, name VARCHAR(100) NOT NULL, PRIMARY KEY (collection_id, name), FOREIGN KEY (collection_id) REFERENCES collections (id))
CREATE TABLE generations (id COUNTED, collection_id KEY8 NOT NULL, model_id KEY8 NOT NULL, uid VARCHAR(32) NOT NULL, state VARCHAR(10) NOT NULL, created TEXT, announced TEXT, activated TEXT, comparison JSON, FOREIGN KEY (collection_id) REFERENCES collections (id), FOREIGN KEY (model_id) REFERENCES models (id))
CREATE INDEX ix_generations_state ON generations (collection_id, state)
CREATE TABLE images (id COUNTED, collection_id KEY8 NOT NULL, external_id COMPARED NOT NULL, sha256 VARCHAR(64) NOT NULL, media_type VARCHAR(100) NOT NULL, width INTEGER NOT NULL, height INTEGER NOT NULL, split COMPARED NOT NULL, group_name COMPARED, report TEXT, labels JSON NOT NULL, details JSON NOT NULL, record_digest VARCHAR(64) NOT NULL, sequence BIGINT DEFAULT '0' NOT NULL, CONSTRAINT uq_images_external_id UNIQUE (collection_id, external_id), FOREIGN KEY (collection_id) REFERENCES collections (id))
CREATE INDEX ix_images_group ON images (collection_id, group_name)
CREATE INDEX ix_images_sequence ON images (collection_id, sequence)
CREATE INDEX ix_images_sha256 ON images (sha256)
CREATE INDEX ix_images_split ON images (collection_id, split)
CREATE TABLE removals (collection_id KEY8 NOT NULL, target VARCHAR(10) NOT NULL, "key" BIGINT NOT NULL, sequence BIGINT NOT NULL, PRIMARY KEY (collection_id, target, "key"), FOREIGN KEY (collection_id) REFERENCES collections (id)) UNORDERED
CREATE INDEX ix_removals_sequence ON removals (collection_id, target, sequence)
CREATE TABLE reports (id COUNTED, collection_id KEY8 NOT NULL, digest VARCHAR(64) NOT NULL, study COMPARED, keys JSON NOT NULL, patient VARCHAR(16), identity VARCHAR(16), status VARCHAR(12) NOT NULL, issued TEXT, sections JSON NOT NULL, received VARCHAR(10), CONSTRAINT uq_reports_digest UNIQUE (collection_id, digest), FOREIGN KEY (collection_id) REFERENCES collections (id) ON DELETE CASCADE)
CREATE INDEX ix_reports_study ON reports (collection_id, study)
CREATE TABLE vocabulary (collection_id KEY8 NOT NULL, word COMPARED NOT NULL, images INTEGER NOT NULL, PRIMARY KEY (collection_id, word), FOREIGN KEY (collection_id) REFERENCES collections (id) ON DELETE CASCADE) UNORDERED
CREATE TABLE attributes (image_id KEY8 NOT NULL, name COMPARED NOT NULL, position INTEGER NOT NULL, collection_id KEY8 NOT NULL, kind VARCHAR(10) NOT NULL, text_value COMPARED, number_value REAL8, PRIMARY KEY (image_id, name, position), FOREIGN KEY (collection_id) REFERENCES collections (id), FOREIGN KEY (image_id) REFERENCES images (id) ON DELETE CASCADE) UNORDERED
CREATE INDEX ix_attributes_number ON attributes (collection_id, name, kind, number_value, image_id)
CREATE INDEX ix_attributes_text ON attributes (collection_id, name, text_value, image_id)
CREATE TABLE case_entries (collection_id KEY8 NOT NULL, list_id VARCHAR(64) NOT NULL, image_id KEY8 NOT NULL, position INTEGER NOT NULL, note TEXT NOT NULL, saved TEXT NOT NULL, user_id TEXT, user_name TEXT, PRIMARY KEY (collection_id, list_id, image_id), CONSTRAINT uq_case_entries_position UNIQUE (collection_id, list_id, position), FOREIGN KEY (collection_id, list_id) REFERENCES case_lists (collection_id, id) ON DELETE CASCADE, FOREIGN KEY (image_id) REFERENCES images (id) ON DELETE CASCADE) UNORDERED
CREATE INDEX ix_case_entries_image ON case_entries (image_id)
CREATE TABLE embeddings (generation_id KEY8 NOT NULL, image_id KEY8 NOT NULL, sequence BIGINT NOT NULL, vector BYTES NOT NULL, PRIMARY KEY (generation_id, image_id), FOREIGN KEY (generation_id) REFERENCES generations (id), FOREIGN KEY (image_id) REFERENCES images (id) ON DELETE CASCADE)
CREATE INDEX ix_embeddings_image ON embeddings (image_id)
CREATE INDEX ix_embeddings_sequence ON embeddings (generation_id, sequence)
CREATE TABLE feedback (image_id KEY8 NOT NULL, query_digest VARCHAR(64) NOT NULL, collection_id KEY8 NOT NULL, "query" JSON NOT NULL, relevant BOOLEAN NOT NULL, model VARCHAR(100) NOT NULL, created TEXT NOT NULL, user_id TEXT, user_name TEXT, supplemented BOOLEAN DEFAULT FALSE NOT NULL, PRIMARY KEY (image_id, query_digest), FOREIGN KEY (collection_id) REFERENCES collections (id), FOREIGN KEY (image_id) REFERENCES images (id) ON DELETE CASCADE) UNORDERED
CREATE INDEX ix_feedback_created ON feedback (collection_id, created)
CREATE TABLE findings (image_id KEY8 NOT NULL, position INTEGER NOT NULL, start INTEGER NOT NULL, finding COMPARED NOT NULL, stop INTEGER NOT NULL, state VARCHAR(10) NOT NULL, collection_id KEY8 NOT NULL, image_finding COMPARED NOT NULL, PRIMARY KEY (image_id, position, start, finding), FOREIGN KEY (collection_id) REFERENCES collections (id), FOREIGN KEY (image_id) REFERENCES images (id) ON DELETE CASCADE) UNORDERED
CREATE INDEX ix_findings_image_finding ON findings (collection_id, image_finding, image_id)
CREATE TABLE texts (id COUNTED, image_id KEY8 NOT NULL, position INTEGER NOT NULL, text TEXT NOT NULL, CONSTRAINT uq_texts_position UNIQUE (image_id, position), FOREIGN KEY (image_id) REFERENCES images (id) ON DELETE CASCADE)
CREATE TABLE text_embeddings (generation_id KEY8 NOT NULL, text_id KEY8 NOT NULL, sequence BIGINT NOT NULL, vector BYTES NOT NULL, PRIMARY KEY (generation_id, text_id), FOREIGN KEY (generation_id) REFERENCES generations (id), FOREIGN KEY (text_id) REFERENCES texts (id) ON DELETE CASCADE)
CREATE INDEX ix_text_embeddings_sequence ON text_embeddings (generation_id, sequence)
CREATE INDEX ix_text_embeddings_text ON text_embeddings (text_id)
-- sqlite:
CREATE VIRTUAL TABLE image_words USING fts5(words, tokenize = 'ascii')
CREATE TRIGGER audit_events_update BEFORE UPDATE ON audit_events BEGIN SELECT RAISE(ABORT, 'the audit trail is append-only'); END
CREATE TRIGGER audit_events_delete BEFORE DELETE ON audit_events WHEN OLD.sequence > (SELECT coalesce(max(pruned), 0) FROM audit_head) BEGIN SELECT RAISE(ABORT, 'the audit trail is append-only'); END
CREATE TRIGGER audit_events_insert BEFORE INSERT ON audit_events WHEN EXISTS (SELECT 1 FROM audit_events WHERE sequence = NEW.sequence) BEGIN SELECT RAISE(ABORT, 'the audit trail is append-only'); END
CREATE TRIGGER audit_head_update BEFORE UPDATE ON audit_head WHEN NEW.sequence < OLD.sequence OR NEW.pruned < OLD.pruned BEGIN SELECT RAISE(ABORT, 'the audit trail is append-only'); END
CREATE TRIGGER audit_head_delete BEFORE DELETE ON audit_head BEGIN SELECT RAISE(ABORT, 'the audit trail is append-only'); END
CREATE TRIGGER audit_names_update BEFORE UPDATE ON audit_names WHEN NEW.name IS NOT NULL OR NEW.digest <> OLD.digest BEGIN SELECT RAISE(ABORT, 'the audit trail is append-only'); END
-- postgresql:
CREATE TABLE image_words (image_id BIGINT PRIMARY KEY REFERENCES images (id) ON DELETE CASCADE, words TSVECTOR NOT NULL, runs TEXT NOT NULL DEFAULT '')
CREATE INDEX ix_image_words ON image_words USING gin (words)
CREATE FUNCTION audit_refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'the audit trail is append-only'; END $$
CREATE FUNCTION audit_refuse_delete() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF OLD.sequence > (SELECT coalesce(max(pruned), 0) FROM audit_head) THEN RAISE EXCEPTION 'the audit trail is append-only'; END IF; RETURN OLD; END $$
CREATE TRIGGER audit_events_update BEFORE UPDATE OR TRUNCATE ON audit_events EXECUTE FUNCTION audit_refuse()
CREATE TRIGGER audit_events_delete BEFORE DELETE ON audit_events FOR EACH ROW EXECUTE FUNCTION audit_refuse_delete()
CREATE TRIGGER audit_head_update BEFORE UPDATE ON audit_head FOR EACH ROW WHEN (NEW.sequence < OLD.sequence OR NEW.pruned < OLD.pruned) EXECUTE FUNCTION audit_refuse()
CREATE TRIGGER audit_head_delete BEFORE DELETE OR TRUNCATE ON audit_head EXECUTE FUNCTION audit_refuse()
CREATE TRIGGER audit_names_update BEFORE UPDATE ON audit_names FOR EACH ROW WHEN (NEW.name IS NOT NULL OR NEW.digest <> OLD.digest) EXECUTE FUNCTION audit_refuse()
