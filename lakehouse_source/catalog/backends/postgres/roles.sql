-- Roles for a plake catalog in PostgreSQL, from the least to the most:
--
--   plake_reader      reads: scans, history, inspection, changes. Writes nothing, anywhere.
--   plake_appender    adds rows to datasets that are there, under the schema that is in force;
--                     advances consumers of the change feed.
--   plake_writer      creates datasets and names, overwrites, deletes, updates, merges, compacts,
--                     changes schemas and properties, makes tags, branches and consumers, restores.
--   plake_maintainer  expires versions, vacuums, drops with purge, drops branches.
--
-- Run it as the owner of the catalog's tables, with the catalog's schema first in search_path:
--   psql "$PLAKE_CATALOG" -v ON_ERROR_STOP=1 -f roles.sql
-- and again after a release of plake has changed the tables, which only their owner can do.
-- Then: GRANT plake_reader TO ann;
--
-- The roles say who may change which rows of the catalog. Data files are protected by the
-- permissions of their store. Who may write the catalog's rows can damage what they describe, as
-- far as the grants below go: SECURITY.md has them in a table, which a test compares with this file.
-- Triggers hold what a grant cannot tell: only plake_maintainer deletes or moves files of another
-- transaction than its own, expires them, or changes when they were removed, and changes what the
-- catalog is known by; `committed_by` is the login that commits, whatever a client says; a write
-- belongs to the login that registered it, and the id of an application to the one that used it first;
-- a version is the next one and has its commit; numbers of identity columns are not set back; and
-- bounds in the search index are not made narrower.
-- By SQL of its own an appender can still add rows that no commit of plake would add (files in a
-- version that is there, statistics of files that are there): a check of each file made commits 7 %
-- slower. A writer can remove files in its commits, which the history keeps, and take whole columns
-- out of the search index.

BEGIN;
DO $$
DECLARE role TEXT;
BEGIN
    FOREACH role IN ARRAY ARRAY['plake_reader', 'plake_appender', 'plake_writer', 'plake_maintainer']
    LOOP
        IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = role) THEN
            EXECUTE format('CREATE ROLE %I NOLOGIN', role);
        END IF;
    END LOOP;
    EXECUTE format('GRANT USAGE ON SCHEMA %I TO plake_reader', current_schema());
    EXECUTE format('REVOKE CREATE ON SCHEMA %I FROM PUBLIC', current_schema());
    EXECUTE format('GRANT USAGE ON ALL SEQUENCES IN SCHEMA %I TO plake_appender', current_schema());
END $$;

GRANT plake_reader TO plake_appender;
GRANT plake_appender TO plake_writer;
GRANT plake_writer TO plake_maintainer;

-- What an older text of this file granted.
REVOKE INSERT, UPDATE, DELETE ON catalog_format, datasets, schema_versions, transactions, files,
    deletion_vectors, row_groups, partitions, column_bounds, pending_writes, dataset_namespaces,
    dataset_names, dataset_tags, dataset_branches, catalog_settings, dataset_views, dataset_drops,
    dataset_consumers, iceberg_files, dataset_clones, catalog_leases,
    identity_lanes
    FROM plake_appender, plake_writer, plake_maintainer;

-- plake_reader
GRANT SELECT ON catalog_format, datasets, schema_versions, transactions, files, deletion_vectors,
    row_groups, partitions, column_bounds, pending_writes, dataset_namespaces, dataset_names,
    dataset_tags, dataset_branches, catalog_settings, dataset_views,
    dataset_drops, dataset_consumers, iceberg_files, dataset_clones, catalog_leases,
    identity_lanes TO plake_reader;

-- plake_appender
GRANT INSERT (dataset_id, version, timestamp, operation, metadata_json, summary_json, write_id,
    txn_app_id, txn_version, committed_by, committer_json) ON transactions TO plake_appender;
GRANT INSERT (id, dataset_id, version, schema_version, file_path, file_size_bytes, row_count,
    stats_complete, first_row_id, sha256) ON files TO plake_appender;
GRANT INSERT (file_id, row_group_index, row_count, stats_min_json, stats_max_json,
    null_counts_json, nan_json, total_byte_size, compressed_byte_size) ON row_groups
    TO plake_appender;
GRANT INSERT (file_id, key, value) ON partitions TO plake_appender;
GRANT INSERT (dataset_id, column_id, level, upper, lower, file_id, null_count, row_count,
    may_contain_nan) ON column_bounds TO plake_appender;
GRANT INSERT (dataset_id, file_path, version, kind, erased_version, location, document_json)
    ON iceberg_files TO plake_appender;
-- Not `login`, which the database sets.
GRANT INSERT (write_id, dataset_id, state), DELETE ON pending_writes TO plake_appender;
GRANT UPDATE (state, heartbeat_at) ON pending_writes TO plake_appender;
GRANT UPDATE (current_version, next_row_id, claimed_at) ON datasets TO plake_appender;
GRANT UPDATE (version, first_row_id) ON files TO plake_appender;
GRANT UPDATE (version, advanced_at) ON dataset_consumers TO plake_appender;
GRANT DELETE ON files TO plake_appender;  -- of its own write, before it is committed: see below

GRANT INSERT (sequence, lane, next_number, write_id), UPDATE (next_number, write_id)
    ON identity_lanes TO plake_appender;

-- plake_writer
GRANT INSERT (name, base_uri) ON datasets TO plake_writer;
GRANT INSERT (dataset_id, version, arrow_schema) ON schema_versions TO plake_writer;
GRANT INSERT (dataset_id, file_id, version, file_path, file_size_bytes, blob_offset, blob_length,
    cardinality, small_blob, sha256) ON deletion_vectors TO plake_writer;
GRANT INSERT (branch_id, dataset_id, name, base_version) ON dataset_branches TO plake_writer;
GRANT INSERT (dataset_id, origin_id) ON dataset_clones TO plake_writer;
GRANT UPDATE (file_path) ON files TO plake_writer;  -- of its own write, before it is committed
GRANT UPDATE (properties_json, oldest_version, managed) ON datasets TO plake_writer;
GRANT UPDATE (removed_version, is_tombstoned) ON files TO plake_writer;
GRANT UPDATE (removed_version) ON deletion_vectors TO plake_writer;
GRANT UPDATE (level, upper, lower), DELETE ON column_bounds TO plake_writer;
GRANT UPDATE (base_version) ON dataset_branches TO plake_writer;
GRANT INSERT (lookup, name, properties_json), DELETE ON dataset_namespaces TO plake_writer;
GRANT UPDATE (properties_json) ON dataset_namespaces TO plake_writer;
GRANT INSERT (namespace, lookup, name, dataset_id), DELETE ON dataset_names TO plake_writer;
GRANT INSERT (dataset_id, name, version), DELETE ON dataset_tags TO plake_writer;
GRANT INSERT (name, value), DELETE ON catalog_settings TO plake_writer;
GRANT INSERT (namespace, lookup, name, document_json), DELETE ON dataset_views TO plake_writer;
-- Not `dropped_at`, by which a vacuum tells that the retention has passed.
GRANT INSERT (dataset_id, namespace, name), DELETE ON dataset_drops TO plake_writer;
GRANT INSERT (dataset_id, name, version, keep_seconds), DELETE ON dataset_consumers
    TO plake_writer;

-- plake_maintainer
GRANT UPDATE (dropped_at) ON datasets TO plake_maintainer;
GRANT UPDATE (dataset_id) ON pending_writes TO plake_maintainer;  -- of a branch that ends
-- Rows that have expired already, and vectors that an erasure wrote anew.
GRANT INSERT (removed_version, is_tombstoned, expired_at) ON files TO plake_maintainer;
GRANT INSERT (removed_version) ON deletion_vectors TO plake_maintainer;
GRANT UPDATE (expired_at) ON files, deletion_vectors, iceberg_files TO plake_maintainer;
GRANT DELETE ON datasets, schema_versions, transactions, deletion_vectors, row_groups, partitions,
    dataset_branches, iceberg_files, dataset_clones TO plake_maintainer;
GRANT UPDATE (file_path, file_size_bytes, row_count, stats_complete, sha256) ON files
    TO plake_maintainer;  -- an erasure lets versions name other files, and corrects their counts
GRANT UPDATE (summary_json, metadata_json) ON transactions TO plake_maintainer;
GRANT INSERT (name, holder, beats, lease_seconds), DELETE ON catalog_leases TO plake_maintainer;
GRANT UPDATE (holder, beats, lease_seconds, beat_at) ON catalog_leases TO plake_maintainer;
ALTER TABLE pending_writes ALTER COLUMN login SET DEFAULT session_user;
DO $$
BEGIN  -- Before, only the owner of a table may write it anew: an erasure tells what is left.
    IF current_setting('server_version_num')::INTEGER >= 170000 THEN
        EXECUTE 'GRANT MAINTAIN ON files, row_groups, partitions, column_bounds, deletion_vectors, '
            'transactions, datasets TO plake_maintainer';
    END IF;
END $$;

-- A value that no release of plake can read would stop all who read it, vacuums and erasures too.
-- NOT VALID: only of new and changed rows.
DO $$
DECLARE one TEXT[];
BEGIN
    FOREACH one SLICE 1 IN ARRAY ARRAY[
        ['pending_writes', 'state IN (''pending'', ''abandoned'', ''closed'')'],
        ['datasets', 'json_typeof(properties_json::JSON) = ''object'''],
        ['dataset_namespaces', 'json_typeof(properties_json::JSON) = ''object'''],
        ['dataset_views', 'json_typeof(document_json::JSON) = ''object'''],
        ['iceberg_files', 'json_typeof(document_json::JSON) = ''object'''],
        ['transactions', 'version > 0 AND json_typeof(metadata_json::JSON) = ''object'' '
            'AND json_typeof(summary_json::JSON) = ''object'' '
            'AND json_typeof(committer_json::JSON) = ''object'''],
        ['files', 'row_count >= 0 AND file_size_bytes >= 0'],
        ['deletion_vectors', 'cardinality > 0 AND blob_offset >= 0 AND blob_length > 0']
    ]
    LOOP
        EXECUTE format('ALTER TABLE %I DROP CONSTRAINT IF EXISTS plake_readable', one[1]);
        EXECUTE format('ALTER TABLE %I ADD CONSTRAINT plake_readable CHECK (%s) NOT VALID',
            one[1], one[2]);
    END LOOP;
END $$;

-- A privilege of PostgreSQL holds for all rows of a table. These are for some rows only.
--
-- A write records files in the transaction that commits it, moves them to another version or deletes
-- them where another commit came first, and nothing else changes a row of `files` before it is
-- removed. So a row with no `removed_version` whose xmin is this transaction was recorded by it. What
-- was recorded before a savepoint has the xmin of the transaction, and after it another one, which is
-- refused.
CREATE OR REPLACE FUNCTION plake_only_maintainers() RETURNS trigger LANGUAGE plpgsql
AS $$
DECLARE marks CONSTANT TEXT[] := ARRAY['removed_version', 'is_tombstoned'];
BEGIN
    IF pg_has_role(session_user, 'plake_maintainer', 'MEMBER') OR pg_has_role(
        session_user, (SELECT relowner FROM pg_catalog.pg_class WHERE oid = TG_RELID), 'MEMBER'
    ) THEN
        RETURN CASE TG_OP WHEN 'DELETE' THEN OLD ELSE NEW END;
    END IF;
    IF TG_TABLE_NAME = 'datasets' THEN
        -- A branch begins, or a commit: versions that are gone could be deleted, as could a dataset
        -- that says that its location is plake's choice.
        IF OLD.current_version = 0 OR (
                NEW.current_version - OLD.current_version IN (0, 1)
                AND NEW.next_row_id >= OLD.next_row_id
                AND NEW.oldest_version = OLD.oldest_version
                AND NEW.managed IS NOT DISTINCT FROM OLD.managed) THEN
            RETURN NEW;
        END IF;
    ELSIF TG_TABLE_NAME IN ('catalog_settings', 'identity_lanes') THEN
        NULL;  -- the triggers name the rows
    ELSIF OLD.removed_version IS NULL THEN
        IF TG_TABLE_NAME = 'files' AND OLD.xmin = pg_current_xact_id()::xid THEN
            RETURN CASE TG_OP WHEN 'DELETE' THEN OLD ELSE NEW END;
        END IF;
        -- A commit removes it: not at a version that was there before, and nothing else changes.
        IF TG_OP = 'UPDATE' AND to_jsonb(NEW) - marks = to_jsonb(OLD) - marks
                AND NEW.removed_version >= (
                    SELECT current_version FROM datasets WHERE id = OLD.dataset_id)
                AND NOT EXISTS (SELECT FROM transactions WHERE dataset_id = OLD.dataset_id
                    AND version = NEW.removed_version AND xmin <> pg_current_xact_id()::xid) THEN
            RETURN NEW;
        END IF;
    END IF;
    RAISE EXCEPTION 'only plake_maintainer may change this in table %', TG_TABLE_NAME
        USING ERRCODE = 'insufficient_privilege';
END $$;
-- When a transaction ends, each version that it added to a dataset has its commit.
CREATE OR REPLACE FUNCTION plake_only_commits() RETURNS trigger LANGUAGE plpgsql
AS $$
BEGIN
    IF EXISTS (SELECT FROM transactions WHERE dataset_id = NEW.id
            AND version = NEW.current_version AND xmin = pg_current_xact_id()::xid)
        OR pg_has_role(session_user, 'plake_maintainer', 'MEMBER') OR pg_has_role(
        session_user, (SELECT relowner FROM pg_catalog.pg_class WHERE oid = TG_RELID), 'MEMBER'
    ) THEN
        RETURN NULL;
    END IF;
    RAISE EXCEPTION 'version % of a dataset has no commit', NEW.current_version
        USING ERRCODE = 'insufficient_privilege';
END $$;
-- A search finds the files whose bounds it overlaps. A writer widens bounds to all values, where the
-- keys of a column change, and deletes all those of a column that leaves the index. The cascade of a
-- file that was deleted is neither.
CREATE OR REPLACE FUNCTION plake_only_wider() RETURNS trigger LANGUAGE plpgsql
AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN  -- an update has no table `gone`
        IF NOT EXISTS (SELECT FROM (SELECT DISTINCT g.dataset_id, g.column_id FROM gone AS g
                JOIN files AS f ON f.id = g.file_id) AS g JOIN column_bounds AS b
                ON b.dataset_id = g.dataset_id AND b.column_id = g.column_id) THEN
            RETURN NULL;
        END IF;
    END IF;
    IF pg_has_role(session_user, 'plake_maintainer', 'MEMBER') OR pg_has_role(
        session_user, (SELECT relowner FROM pg_catalog.pg_class WHERE oid = TG_RELID), 'MEMBER'
    ) THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'only plake_maintainer may narrow the search index'
        USING ERRCODE = 'insufficient_privilege';
END $$;
-- The login is what PostgreSQL knows. A branch has a copy of the history of its dataset, which the
-- transaction that makes the branch copies. Any other commit is that of the version to which its
-- transaction has just moved the dataset, and of a write that its login registered.
CREATE OR REPLACE FUNCTION plake_committed_by() RETURNS trigger LANGUAGE plpgsql
AS $$
DECLARE last TEXT;
BEGIN
    IF strpos(NEW.write_id, ':') > 0 AND EXISTS (
        SELECT FROM dataset_branches AS b JOIN transactions AS t ON t.dataset_id = b.dataset_id
        WHERE b.branch_id = NEW.dataset_id AND b.xmin = pg_current_xact_id()::xid
            AND t.version = NEW.version AND t.version <= b.base_version
            AND right(NEW.write_id, length(t.write_id) + 1) = ':' || t.write_id
            AND (t.timestamp, t.operation, t.metadata_json, t.summary_json, t.txn_app_id,
                t.txn_version, t.committed_by, t.committer_json)
            IS NOT DISTINCT FROM (NEW.timestamp, NEW.operation, NEW.metadata_json,
                NEW.summary_json, NEW.txn_app_id, NEW.txn_version, NEW.committed_by,
                NEW.committer_json)
    ) OR pg_has_role(
        session_user, (SELECT relowner FROM pg_catalog.pg_class WHERE oid = TG_RELID), 'MEMBER'
    ) THEN
        RETURN NEW;
    END IF;
    NEW.committed_by := session_user;
    IF NOT EXISTS (
        SELECT FROM datasets AS d JOIN pending_writes AS w ON w.write_id = NEW.write_id
        WHERE d.id = NEW.dataset_id AND d.current_version = NEW.version AND w.state <> 'closed'
            AND (w.login = session_user OR w.login IS NULL)
    ) THEN
        RAISE EXCEPTION 'version % is not the one that is committed, or write % is that of '
            'another login', NEW.version, NEW.write_id USING ERRCODE = 'insufficient_privilege';
    END IF;
    IF NEW.txn_app_id IS NOT NULL THEN
        SELECT t.committed_by INTO last FROM transactions AS t WHERE t.dataset_id = NEW.dataset_id
            AND t.txn_app_id = NEW.txn_app_id ORDER BY t.txn_version DESC LIMIT 1;
        -- The same rule as `statements.LOGINS_OF_APPLICATION`.
        IF last <> session_user AND (
            SELECT bool_or(u.login IS NOT NULL)
                AND NOT coalesce(bool_or(pg_has_role(session_user, u.login, 'MEMBER')), FALSE)
            FROM (SELECT DISTINCT to_regrole(quote_ident(t.committed_by))::OID AS login
                FROM transactions AS t WHERE t.dataset_id = NEW.dataset_id
                AND t.txn_app_id = NEW.txn_app_id) AS u
        ) THEN
            RAISE EXCEPTION 'the id % of an application belongs to the login %, which used it '
                'first', NEW.txn_app_id, last USING ERRCODE = 'insufficient_privilege';
        END IF;
    END IF;
    RETURN NEW;
END $$;
-- A write belongs to the login that registered it. Whoever opens a catalog abandons writes without
-- a heartbeat for a day, which may still be committed.
CREATE OR REPLACE FUNCTION plake_own_writes() RETURNS trigger LANGUAGE plpgsql
AS $$
BEGIN
    IF pg_has_role(session_user, to_regrole(quote_ident(OLD.login))::OID, 'MEMBER')
        OR pg_has_role(session_user, 'plake_maintainer', 'MEMBER') OR pg_has_role(
        session_user, (SELECT relowner FROM pg_catalog.pg_class WHERE oid = TG_RELID), 'MEMBER'
    ) THEN
        RETURN CASE TG_OP WHEN 'DELETE' THEN OLD ELSE NEW END;
    END IF;
    IF TG_OP = 'UPDATE' AND OLD.state = 'pending' AND NEW.state = 'abandoned'
        AND to_jsonb(NEW) - 'state' = to_jsonb(OLD) - 'state'
        AND OLD.heartbeat_at <= (extract(epoch FROM clock_timestamp()) - 86399) * 1000000
    THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'write % belongs to the login %', OLD.write_id, OLD.login
        USING ERRCODE = 'insufficient_privilege';
END $$;
-- A branch is a new dataset under the key that plake gives it: what a maintainer does with a branch
-- happens to no other dataset.
CREATE OR REPLACE FUNCTION plake_new_branch() RETURNS trigger LANGUAGE plpgsql
AS $$
BEGIN
    IF NOT EXISTS (
        SELECT FROM datasets AS b JOIN datasets AS d ON d.id = NEW.dataset_id
        WHERE b.id = NEW.branch_id AND b.current_version = 0
            AND b.base_uri = d.base_uri || '#branch=' || NEW.name
    ) THEN
        RAISE EXCEPTION 'dataset % is no new branch of dataset %', NEW.branch_id, NEW.dataset_id
            USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN NEW;
END $$;
DO $$
DECLARE name TEXT;
BEGIN  -- Without it, a temporary table `datasets` of whoever deletes comes first.
    FOREACH name IN ARRAY ARRAY['plake_only_maintainers', 'plake_only_commits', 'plake_only_wider',
        'plake_committed_by', 'plake_own_writes', 'plake_new_branch']
    LOOP
        EXECUTE format('ALTER FUNCTION %I() SET search_path TO %I, pg_temp', name,
            current_schema());
    END LOOP;
END $$;
CREATE OR REPLACE TRIGGER plake_only_maintainers_expire
    BEFORE UPDATE OF oldest_version, current_version, next_row_id, managed ON datasets
    FOR EACH ROW EXECUTE FUNCTION plake_only_maintainers();
-- Of any column: an update of another one gives a row this transaction's xmin.
CREATE OR REPLACE TRIGGER plake_only_maintainers_change BEFORE UPDATE ON files
    FOR EACH ROW EXECUTE FUNCTION plake_only_maintainers();
CREATE OR REPLACE TRIGGER plake_only_maintainers_change BEFORE UPDATE ON deletion_vectors
    FOR EACH ROW EXECUTE FUNCTION plake_only_maintainers();
CREATE OR REPLACE TRIGGER plake_only_maintainers_delete BEFORE DELETE ON files
    FOR EACH ROW EXECUTE FUNCTION plake_only_maintainers();
-- By its id a folder says that it belongs to the catalog; a fence is that of a catalog that was copied.
CREATE OR REPLACE TRIGGER plake_only_maintainers_change BEFORE DELETE ON catalog_settings
    FOR EACH ROW WHEN (OLD.name IN ('catalog_id', 'fence'))
    EXECUTE FUNCTION plake_only_maintainers();
CREATE OR REPLACE TRIGGER plake_only_maintainers_fence BEFORE INSERT ON catalog_settings
    FOR EACH ROW WHEN (NEW.name = 'fence') EXECUTE FUNCTION plake_only_maintainers();
-- Numbers that were given out do not come again.
CREATE OR REPLACE TRIGGER plake_only_maintainers_set_back BEFORE UPDATE ON identity_lanes
    FOR EACH ROW WHEN (NEW.next_number < OLD.next_number)
    EXECUTE FUNCTION plake_only_maintainers();
CREATE OR REPLACE TRIGGER plake_own_writes BEFORE UPDATE OR DELETE ON pending_writes
    FOR EACH ROW WHEN (OLD.login <> session_user) EXECUTE FUNCTION plake_own_writes();
CREATE OR REPLACE TRIGGER plake_new_branch BEFORE INSERT ON dataset_branches
    FOR EACH ROW EXECUTE FUNCTION plake_new_branch();
CREATE OR REPLACE TRIGGER plake_committed_by BEFORE INSERT ON transactions
    FOR EACH ROW EXECUTE FUNCTION plake_committed_by();
CREATE OR REPLACE TRIGGER plake_only_wider_change BEFORE UPDATE ON column_bounds FOR EACH ROW
    WHEN (length(NEW.lower) > 0 OR NEW.upper <> decode(repeat('ff', 40), 'hex') OR NEW.level <> 0
        OR (NEW.dataset_id, NEW.column_id, NEW.file_id, NEW.null_count, NEW.row_count,
            NEW.may_contain_nan) IS DISTINCT FROM (OLD.dataset_id, OLD.column_id, OLD.file_id,
            OLD.null_count, OLD.row_count, OLD.may_contain_nan))
    EXECUTE FUNCTION plake_only_wider();
CREATE OR REPLACE TRIGGER plake_only_wider_delete AFTER DELETE ON column_bounds
    REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION plake_only_wider();
-- PostgreSQL replaces no constraint trigger.
DROP TRIGGER IF EXISTS plake_only_commits ON datasets;
CREATE CONSTRAINT TRIGGER plake_only_commits AFTER UPDATE OF current_version ON datasets
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    WHEN (NEW.current_version <> OLD.current_version) EXECUTE FUNCTION plake_only_commits();
COMMIT;
