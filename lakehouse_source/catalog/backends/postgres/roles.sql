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
-- far as the grants below go. Triggers hold what a grant cannot tell: only plake_maintainer deletes or
-- moves files of another transaction than its own, expires them, or changes when they were removed,
-- `committed_by` is the login that commits, whatever a client says, a version is the next one and has
-- its commit, and bounds in the search index are not made narrower. By SQL of its own an appender can
-- still add rows that no commit of plake would add (files in a version that is there, statistics of
-- files that are there): a check of each file made commits 7 % slower. A writer can remove files in its
-- commits, which the history keeps, and take whole columns out of the search index.

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

-- plake_reader
GRANT SELECT ON catalog_format, datasets, schema_versions, transactions, files, deletion_vectors,
    row_groups, partitions, column_bounds, pending_writes, dataset_namespaces, dataset_names,
    dataset_tags, dataset_branches, catalog_settings, dataset_views,
    dataset_drops, dataset_consumers, iceberg_files TO plake_reader;

-- plake_appender
-- An older text of this file granted all columns.
REVOKE INSERT ON files FROM plake_appender;
GRANT INSERT ON transactions, row_groups, partitions, column_bounds, iceberg_files
    TO plake_appender;
GRANT INSERT (id, dataset_id, version, schema_version, file_path, file_size_bytes, row_count,
    stats_complete, first_row_id, sha256) ON files TO plake_appender;
GRANT INSERT, UPDATE, DELETE ON pending_writes TO plake_appender;
GRANT UPDATE (current_version, next_row_id, claimed_at) ON datasets TO plake_appender;
GRANT UPDATE (version, first_row_id) ON files TO plake_appender;
GRANT UPDATE (version, advanced_at) ON dataset_consumers TO plake_appender;
GRANT DELETE ON files TO plake_appender;  -- of its own write, before it is committed: see below

-- plake_writer
GRANT INSERT ON datasets, schema_versions, deletion_vectors, dataset_branches TO plake_writer;
GRANT UPDATE (properties_json, oldest_version, managed) ON datasets TO plake_writer;
GRANT UPDATE (removed_version, is_tombstoned) ON files TO plake_writer;
GRANT UPDATE (removed_version) ON deletion_vectors TO plake_writer;
GRANT UPDATE, DELETE ON column_bounds TO plake_writer;
GRANT UPDATE (base_version) ON dataset_branches TO plake_writer;
GRANT INSERT, UPDATE, DELETE ON dataset_namespaces, dataset_names, dataset_tags, catalog_settings,
    dataset_views TO plake_writer;
-- Not `dropped_at`, by which a vacuum tells that the retention has passed.
GRANT INSERT (dataset_id, namespace, name), DELETE ON dataset_drops TO plake_writer;
GRANT INSERT, DELETE ON dataset_consumers TO plake_writer;

-- plake_maintainer
GRANT UPDATE (dropped_at) ON datasets TO plake_maintainer;
-- Rows that have expired already.
GRANT INSERT (removed_version, is_tombstoned, expired_at) ON files TO plake_maintainer;
GRANT UPDATE (expired_at) ON files, deletion_vectors, iceberg_files TO plake_maintainer;
GRANT DELETE ON datasets, schema_versions, transactions, deletion_vectors, row_groups, partitions,
    dataset_branches, iceberg_files TO plake_maintainer;
GRANT UPDATE (file_path, file_size_bytes, row_count, stats_complete, sha256) ON files
    TO plake_maintainer;  -- an erasure lets versions name other files, and corrects their counts
GRANT UPDATE (summary_json, metadata_json) ON transactions TO plake_maintainer;
DO $$
BEGIN  -- Before, only the owner of a table may write it anew: an erasure tells what is left.
    IF current_setting('server_version_num')::INTEGER >= 170000 THEN
        EXECUTE 'GRANT MAINTAIN ON files, row_groups, partitions, column_bounds, deletion_vectors, '
            'transactions, datasets TO plake_maintainer';
    END IF;
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
                AND NEW.oldest_version = OLD.oldest_version
                AND NEW.managed IS NOT DISTINCT FROM OLD.managed) THEN
            RETURN NEW;
        END IF;
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
-- The login is what PostgreSQL knows. A branch has a copy of the history of its dataset. Any other
-- commit is that of the version to which its transaction has just moved the dataset.
CREATE OR REPLACE FUNCTION plake_committed_by() RETURNS trigger LANGUAGE plpgsql
AS $$
BEGIN
    IF NOT EXISTS (
        SELECT FROM dataset_branches AS b JOIN transactions AS t ON t.dataset_id = b.dataset_id
        WHERE b.branch_id = NEW.dataset_id AND t.version = NEW.version
            AND t.version <= b.base_version
            AND right(NEW.write_id, length(t.write_id) + 1) = ':' || t.write_id
            AND t.committed_by IS NOT DISTINCT FROM NEW.committed_by
    ) AND NOT pg_has_role(
        session_user, (SELECT relowner FROM pg_catalog.pg_class WHERE oid = TG_RELID), 'MEMBER'
    ) THEN
        NEW.committed_by := session_user;
        IF NEW.version <> (SELECT current_version FROM datasets WHERE id = NEW.dataset_id) THEN
            RAISE EXCEPTION 'version % is not the one that is committed', NEW.version
                USING ERRCODE = 'insufficient_privilege';
        END IF;
    END IF;
    RETURN NEW;
END $$;
DO $$
BEGIN  -- Without it, a temporary table `datasets` of whoever deletes comes first.
    EXECUTE format('ALTER FUNCTION plake_only_maintainers() SET search_path TO %I, pg_temp',
        current_schema());
    EXECUTE format('ALTER FUNCTION plake_only_commits() SET search_path TO %I, pg_temp',
        current_schema());
    EXECUTE format('ALTER FUNCTION plake_only_wider() SET search_path TO %I, pg_temp',
        current_schema());
    EXECUTE format('ALTER FUNCTION plake_committed_by() SET search_path TO %I, pg_temp',
        current_schema());
END $$;
CREATE OR REPLACE TRIGGER plake_only_maintainers_expire
    BEFORE UPDATE OF oldest_version, current_version, managed ON datasets
    FOR EACH ROW EXECUTE FUNCTION plake_only_maintainers();
-- Of any column: an update of another one gives a row this transaction's xmin.
CREATE OR REPLACE TRIGGER plake_only_maintainers_change BEFORE UPDATE ON files
    FOR EACH ROW EXECUTE FUNCTION plake_only_maintainers();
CREATE OR REPLACE TRIGGER plake_only_maintainers_change BEFORE UPDATE ON deletion_vectors
    FOR EACH ROW EXECUTE FUNCTION plake_only_maintainers();
CREATE OR REPLACE TRIGGER plake_only_maintainers_delete BEFORE DELETE ON files
    FOR EACH ROW EXECUTE FUNCTION plake_only_maintainers();
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
