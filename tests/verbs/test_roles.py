"""Roles of PostgreSQL, `roles.sql` of its backend: each can do its work and nothing more."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakehouse_source as lake
from lakehouse_source.catalog.sql import migrations
from lakehouse_source.errors import CATALOG_ROLES
from lakehouse_source.upkeep.run import Upkeep
from lakehouse_source.upkeep.steps import Settings
from lakehouse_source.write.commit import prerecord
from tests.postgres_server import PostgresServer

pytestmark = [pytest.mark.slow, pytest.mark.sampled(2)]

SCRIPT = files("lakehouse_source.catalog.backends.postgres").joinpath("roles.sql").read_text()
ROLES = tuple(name.removeprefix("plake_") for name in CATALOG_ROLES)
PAIR = {"txn_app_id": "a", "txn_version": 1}


def _add_files(dataset: lake.Dataset) -> Any:
    folder = Path(dataset.uri.removeprefix("file://")) / "exports" / str(dataset.version)
    folder.mkdir(parents=True)
    pq.write_table(pa.table({"n": [9], "v": [9]}), folder / "1.parquet")
    return dataset.add_files(folder)


def _append(dataset: lake.Dataset, **options: Any) -> Any:
    catalog = dataset._address.catalog
    return lake.write_dataset({"n": [7], "v": [7]}, dataset.uri, catalog=catalog, **options)


def _twice(dataset: lake.Dataset) -> None:
    first = _append(dataset, **PAIR)
    assert _append(dataset, **PAIR).version == first.version


def _stream(dataset: lake.Dataset) -> None:
    for _ in range(12):  # from the ninth on, a commit registers the next write
        _append(dataset)


def _many_files(dataset: lake.Dataset) -> Any:
    catalog, rows = dataset._address.catalog, pa.table({"n": range(40), "v": range(40)})
    options = {"target_file_size_bytes": 1, "row_group_rows": 1}
    return lake.write_dataset(rows, dataset.uri, catalog=catalog, **options)


def _rebased(dataset: lake.Dataset) -> None:
    """Another commit comes first: the files that were recorded move to the next version."""
    later: list[str] = ["files recorded"]

    def reach(point: str) -> None:
        if point in later:
            later.remove(point)
            _append(dataset)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prerecord, "reach", reach)
        assert _append(dataset).version == dataset.version + 2


def _fast_forward(dataset: lake.Dataset) -> None:
    branch = dataset.branch("ahead")
    _append(branch)
    branch.delete("n = 7")
    dataset.fast_forward("ahead")


def _upsert(dataset: lake.Dataset) -> Any:
    return dataset.upsert({"n": [1, 90], "v": [1, 1]}, on="n")


def _read(dataset: lake.Dataset) -> None:
    assert dataset.scan("n >= 0").to_table().num_rows > 0
    assert dataset.scan().explain().files_total > 0
    for found in (dataset.history(), dataset.files(), dataset.tags(), dataset.branches()):
        assert found
    assert all(dataset.inspect.table(name) is not None for name in ("history", "files", "refs"))
    assert list(dataset.read_changes(1, skip_change_commits=True)) is not None
    assert dataset.verify(checksums=True).ok
    catalog = dataset._address.catalog
    assert isinstance(catalog, lake.catalog.Catalog)
    opened = lake.open_catalog(catalog)
    for found in (opened.datasets(), opened.namespaces(), opened.warehouse):
        assert found
    assert opened.dataset("things").version == dataset.version


def _catalog(dataset: lake.Dataset) -> Any:
    return lake.open_catalog(dataset._address.catalog)


def _free_dropped(dataset: lake.Dataset) -> None:
    catalog = _catalog(dataset)
    catalog.drop("spent")
    report = lake.vacuum(catalog, retention_seconds=0, allow_short_retention=True)
    assert not report.failed
    assert all(one.name != "spent" for one in catalog.dropped())


def _maintain(dataset: lake.Dataset) -> None:
    upkeep = Upkeep(_catalog(dataset), Settings(compact=True, keep_last=1))
    try:
        assert upkeep.round()
        lease = upkeep._lease
        assert lease._beat(lease._mine)  # a thread renews the lease, and logs what refuses it
        assert not any(one.error for one in upkeep.state.tables.values())
    finally:
        upkeep.release()


def _view(dataset: lake.Dataset) -> None:
    """As Spark's CREATE VIEW."""
    catalog = dataset._address.catalog
    assert isinstance(catalog, lake.catalog.Catalog)
    with catalog.write() as tx:
        tx.names.put_view(("default", "seen"), {"sql": "SELECT 1"})


SCHEMA = pa.schema([("n", pa.int64())])
# What each role can do, and the ones before it cannot.
VERBS: dict[str, dict[str, Callable[[lake.Dataset], Any]]] = {
    "reader": {"read": _read},
    "appender": {
        "append": _append,
        "append twice with a pair": _twice,
        "a stream of appends": _stream,
        "many files": _many_files,
        "append behind another": _rebased,
        "add_files": _add_files,
        "advance_consumer": lambda d: d.advance_consumer("billing", 3),
        "export_iceberg": lambda d: d.export_iceberg(),
        "append with numbers": lambda d: _append(_catalog(d).dataset("numbered")),
    },
    "writer": {
        "create": lambda d: _catalog(d).create_dataset("more", SCHEMA),
        "create_namespace": lambda d: _catalog(d).create_namespace("sales"),
        "set_namespace_properties": lambda d: _catalog(d).set_namespace_properties(
            "default", {"owner": "ann"}
        ),
        "rename": lambda d: _catalog(d).rename("spare", "other"),
        "drop": lambda d: _catalog(d).drop("surplus"),
        "create view": _view,
        "drop_namespace": lambda d: _catalog(d).drop_namespace("empty"),
        "set_warehouse": lambda d: _catalog(d).set_warehouse(_catalog(d).warehouse),
        "overwrite": lambda d: _append(d, mode="overwrite"),
        "overwrite where": lambda d: _append(d, mode="overwrite", overwrite_where="n = 7"),
        "schema_merge": lambda d: lake.write_dataset(
            {"n": [1], "v": [1], "w": [1]}, d.uri, catalog=d._address.catalog, schema_merge=True
        ),
        "delete": lambda d: d.delete("n = 3"),
        "update": lambda d: d.update({"v": "v + 1"}, "n = 1"),
        "upsert": lambda d: d.refresh().upsert({"n": [5], "v": [1], "w": [1]}, on="n"),
        "add_column": lambda d: d.refresh().add_column("x", pa.string()),
        "promote_column": lambda d: d.refresh().promote_column("v", pa.string()),
        "set_properties": lambda d: d.refresh().set_properties(index_columns=["n"]),
        "set_table_properties": lambda d: d.refresh().set_table_properties({"owner": "ann"}),
        "compact": lambda d: d.compact(),
        "restore": lambda d: d.restore(2),
        "tag": lambda d: d.tag("spring"),
        "drop_tag": lambda d: d.drop_tag("old"),
        "add_consumer": lambda d: d.add_consumer("nightly"),
        "drop_consumer": lambda d: d.drop_consumer("billing"),
        "branch and fast_forward": _fast_forward,
        "clone": lambda d: _catalog(d).dataset("gone").clone("trial"),
        "clone deep": lambda d: d.refresh().clone("copied", deep=True),
    },
    "maintainer": {
        "erase": lambda d: d.erase("n = 2"),
        "drop_branch": lambda d: d.drop_branch("audit"),
        "expire_versions": lambda d: d.expire_versions(keep_last=1),
        "vacuum": lambda d: d.vacuum(retention_seconds=0, allow_short_retention=True),
        "drop with purge": lambda d: _catalog(d).drop("gone", purge=True),
        "free dropped tables": _free_dropped,
        "maintain by itself": _maintain,
    },
}


class Place:
    """A catalog with two datasets, and a login for each role."""

    def __init__(self, server: PostgresServer, folder: Path, script: str = SCRIPT) -> None:
        self.url = server.new_catalog()
        with psycopg.connect(self.url, autocommit=True) as admin:
            admin.execute(script.encode())
            for role in (*ROLES, "nobody"):
                known = admin.execute(f"SELECT FROM pg_roles WHERE rolname = 'the_{role}'")
                if known.fetchone() is None:
                    admin.execute(f"CREATE ROLE the_{role} LOGIN")
                if role != "nobody":
                    admin.execute(f"GRANT plake_{role} TO the_{role}")
        self.uri = str(folder / "default" / "things")
        with lake.open_catalog(self.url) as catalog:
            catalog.set_warehouse(folder)
            catalog.create_namespace("empty")
            for name in ("spare", "surplus", "spent"):
                catalog.create_dataset(name, SCHEMA)
            for name in ("things", "gone"):
                made = catalog.create_dataset(name, pa.schema([("n", pa.int64()), ("v", "int64")]))
                for number in range(4):
                    _ = lake.write_dataset(
                        {"n": range(number, 9), "v": range(number, 9)}, made.uri, catalog=catalog
                    )
            numbers = {"id": lake.Identity()}
            schema = pa.schema([("id", "int64"), ("n", "int64"), ("v", "int64")])
            catalog.create_dataset("numbered", schema, generated=numbers)
            dataset = catalog.dataset("things")
            dataset.delete("n = 4")
            dataset.tag("old", version=2)
            dataset.add_consumer("billing", version=2)
            dataset.branch("audit", version=3)

    def url_of(self, role: str) -> str:
        return self.url.replace("postgres@", f"the_{role}@")

    def run(self, role: str, verb: Callable[[lake.Dataset], Any]) -> None:
        with lake.open_catalog(self.url_of(role)) as catalog:
            verb(lake.open_dataset(self.uri, catalog=catalog))

    def refusal(self, role: str, verb: Callable[[lake.Dataset], Any]) -> Any:
        try:
            self.run(role, verb)
        except lake.AccessDeniedError as error:
            return error
        return None


@pytest.mark.parametrize("role", ROLES)
def test_a_role_does_its_work_and_nothing_more(
    role: str, postgres_server: PostgresServer, tmp_path: Path
) -> None:
    place = Place(postgres_server, tmp_path)
    allowed = True
    for of, verbs in VERBS.items():
        for name, verb in verbs.items():
            if allowed:
                place.run(role, verb)
                continue
            denied = place.refusal(role, verb)
            assert denied is not None, f"{role} could {name}"
            assert not denied.retryable
            assert denied.login == f"the_{role}"
            assert denied.roles[-1] == f"plake_{role}"
            assert f"plake_{of} (" in str(denied)
        allowed = allowed and of != role
    # Nothing that was refused has left anything.
    with lake.open_catalog(place.url) as catalog:
        assert lake.open_dataset(place.uri, catalog=catalog).verify(checksums=True).ok


@pytest.mark.long
def test_each_grant_is_needed(postgres_server: PostgresServer, tmp_path: Path) -> None:
    """Without a statement of the file, some verb of some role is refused."""
    grants = [one for one in SCRIPT.split(";\n") if "GRANT INSERT" in one or "GRANT UPDATE" in one]
    assert len(grants) >= 9
    for number, grant in enumerate(grants):
        place = Place(postgres_server, tmp_path / str(number), SCRIPT.replace(grant, "", 1))
        verbs = [verb for some in VERBS.values() for verb in some.values()]
        assert any(place.refusal("maintainer", verb) for verb in verbs), f"nothing needs {grant}"


def test_every_table_is_in_the_file() -> None:
    for table in (*migrations.TABLES, migrations.FORMAT_TABLE):
        assert f" {table}" in SCRIPT.partition("TO plake_reader;\n")[0] + SCRIPT


def test_a_writer_changes_no_history_by_sql_of_its_own(
    postgres_server: PostgresServer, tmp_path: Path
) -> None:
    place = Place(postgres_server, tmp_path)
    refused = [
        "DELETE FROM transactions",
        "UPDATE transactions SET committed_by = 'ann'",
        "DELETE FROM files",
        "UPDATE files SET expired_at = 1",
        "UPDATE files SET file_path = 'x'",
        "UPDATE datasets SET oldest_version = 3",
        "UPDATE datasets SET dropped_at = 1",
        "UPDATE datasets SET managed = TRUE",  # a vacuum would delete it after DROP TABLE
        "UPDATE dataset_drops SET dropped_at = 1",
        "INSERT INTO dataset_drops (dataset_id, namespace, name, dropped_at) VALUES (1, '', '', 1)",
        "DELETE FROM schema_versions",
        "DROP TABLE files",
        "ALTER TABLE files DISABLE TRIGGER ALL",
        "CREATE TABLE mine (a INT)",
        "SET SESSION AUTHORIZATION postgres",
    ]
    for statement in refused:
        with (
            psycopg.connect(place.url_of("writer"), autocommit=True) as connection,
            pytest.raises(psycopg.errors.InsufficientPrivilege),
        ):
            connection.execute(statement.encode())


@pytest.mark.parametrize("role", ["appender", "writer"])
@pytest.mark.parametrize(
    "trick",
    [
        "UPDATE {}.datasets SET current_version = 0",
        "CREATE TEMPORARY TABLE datasets AS SELECT id, -1 AS current_version FROM {}.datasets",
    ],
)
def test_no_trick_makes_committed_files_look_like_those_of_an_open_write(
    trick: str, role: str, postgres_server: PostgresServer, tmp_path: Path
) -> None:
    place = Place(postgres_server, tmp_path)
    with psycopg.connect(place.url) as admin:
        found = admin.execute("SELECT current_schema()").fetchone()
    assert found is not None
    statements = f"{trick}; DELETE FROM {{}}.files".replace("{}", found[0])
    with (
        psycopg.connect(place.url_of(role), autocommit=True) as connection,
        pytest.raises(psycopg.errors.InsufficientPrivilege, match="only plake_maintainer"),
    ):
        connection.execute(statements.encode())
    place.run("reader", _read)


MOVED = "UPDATE files SET version = 99"
INSERT_EXPIRED = (
    "INSERT INTO files (dataset_id, version, removed_version, schema_version, file_path, "
    "file_size_bytes, row_count, expired_at) "
    "SELECT dataset_id, 0, 0, 0, file_path, 1, 1, 1 FROM files"
)
REMOVED_NOW = (
    "UPDATE files SET removed_version = (SELECT current_version FROM datasets "
    "WHERE id = files.dataset_id) WHERE removed_version IS NULL"
)


def _run_all(connection: psycopg.Connection[Any], statements: list[str]) -> None:
    for statement in statements:
        connection.execute(statement.encode())


@pytest.mark.parametrize(
    ("role", "statements"),
    [
        ("appender", [MOVED]),
        ("appender", ["UPDATE files SET first_row_id = 0"]),
        ("appender", [MOVED, "DELETE FROM files"]),
        ("writer", ["UPDATE files SET is_tombstoned = is_tombstoned", "DELETE FROM files"]),
        ("writer", ["UPDATE files SET removed_version = 99", "DELETE FROM files"]),
        ("writer", ["UPDATE files SET removed_version = 99", MOVED]),
        ("writer", ["UPDATE files SET removed_version = 99, version = 99"]),
        ("writer", ["UPDATE files SET removed_version = NULL WHERE removed_version > 0"]),
        ("writer", ["UPDATE files SET removed_version = 99 WHERE removed_version > 0"]),
        ("writer", ["UPDATE files SET removed_version = version"]),
        ("writer", [REMOVED_NOW]),
        ("writer", ["UPDATE datasets SET claimed_at = 1", REMOVED_NOW]),
        ("writer", ["UPDATE deletion_vectors SET removed_version = NULL"]),
        (
            "appender",
            [INSERT_EXPIRED],
        ),
    ],
)
@pytest.mark.parametrize("apart", [False, True], ids=["one transaction", "each its own"])
@pytest.mark.sampled(5)
def test_nobody_but_a_maintainer_moves_or_deletes_what_is_committed(
    role: str,
    statements: list[str],
    apart: bool,
    postgres_server: PostgresServer,
    tmp_path: Path,
) -> None:
    place = Place(postgres_server, tmp_path)
    place.run("writer", lambda dataset: dataset.compact())
    everything = "SELECT * FROM files ORDER BY id", "SELECT * FROM deletion_vectors"
    with psycopg.connect(place.url) as admin:
        before = [admin.execute(one.encode()).fetchall() for one in everything]
    with psycopg.connect(place.url_of(role), autocommit=apart) as connection:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            _run_all(connection, statements)
        connection.rollback()
    with psycopg.connect(place.url) as admin:
        after = [admin.execute(one.encode()).fetchall() for one in everything]
    if not apart:
        assert after == before
    assert len(after[0]) == len(before[0])


NEXT_VERSION = "UPDATE datasets SET current_version = current_version + 1"
COMMIT = (
    "INSERT INTO transactions (dataset_id, version, timestamp, operation, metadata_json, "
    "summary_json, write_id) SELECT id, {}, 1, 'append', '{{}}', '{{}}', 'w' || id FROM datasets"
)
FORGED = [
    ("appender", [NEXT_VERSION]),
    ("appender", ["UPDATE datasets SET current_version = current_version + 9"]),
    ("appender", [COMMIT.format("current_version + 1")]),
    ("appender", [NEXT_VERSION, COMMIT.format("current_version + 1")]),
    ("appender", [NEXT_VERSION, COMMIT.format("current_version"), NEXT_VERSION]),
    ("appender", [COMMIT.format("9 - current_version")]),
    ("writer", ["UPDATE column_bounds SET lower = upper"]),
    ("writer", ["UPDATE column_bounds SET null_count = 0, row_count = 0"]),
    ("writer", ["DELETE FROM column_bounds WHERE file_id = (SELECT min(id) FROM files)"]),
]


def test_nobody_makes_versions_without_commits_or_narrows_the_index(
    postgres_server: PostgresServer, tmp_path: Path
) -> None:
    """Also not with savepoints: what is checked at the end is checked of what they leave."""
    place = Place(postgres_server, tmp_path)
    everything = ["datasets", "transactions", "files", "column_bounds"]
    with psycopg.connect(place.url, autocommit=True) as admin:
        before = [admin.execute(f"TABLE {one}".encode()).fetchall() for one in everything]
        for role, statements in FORGED:
            for around in (
                statements,
                ["SAVEPOINT a", *statements, "RELEASE SAVEPOINT a"],
                # The checks of what was rolled back do not stand for those of what was not.
                [
                    *("SAVEPOINT a", NEXT_VERSION, COMMIT.format("current_version")),
                    *("ROLLBACK TO a", *statements, "SAVEPOINT b", "ROLLBACK TO b"),
                ],
            ):
                with psycopg.connect(place.url_of(role)) as connection:
                    with pytest.raises(psycopg.errors.InsufficientPrivilege):
                        _run_all(connection, [*around, "COMMIT"])
                    connection.rollback()
                after = [admin.execute(f"TABLE {one}".encode()).fetchall() for one in everything]
                assert [set(one) for one in after] == [set(one) for one in before], statements


def test_savepoints_do_not_make_committed_files_those_of_an_open_write(
    postgres_server: PostgresServer, tmp_path: Path
) -> None:
    place = Place(postgres_server, tmp_path)
    touch = "UPDATE datasets SET claimed_at = 1"
    for change in (MOVED, "DELETE FROM files", REMOVED_NOW):
        for around in (
            ["SAVEPOINT a", change],
            ["SAVEPOINT a", touch, "ROLLBACK TO a", change],
            [touch, "SAVEPOINT a", touch, "RELEASE a", "SAVEPOINT b", change],
        ):
            with psycopg.connect(place.url_of("writer")) as connection:
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    _run_all(connection, around)
                connection.rollback()
    place.run("reader", _read)


def test_an_open_write_moves_and_deletes_its_own_files(
    postgres_server: PostgresServer, tmp_path: Path
) -> None:
    place = Place(postgres_server, tmp_path)
    with psycopg.connect(place.url_of("appender")) as connection:
        connection.execute(
            "INSERT INTO files (id, dataset_id, version, schema_version, file_path, "
            "file_size_bytes, row_count) SELECT 1000, min(id), 6, 1, 'x', 1, 1 FROM datasets"
        )
        for change in ("UPDATE files SET version = 7, first_row_id = 1", "DELETE FROM files"):
            done = connection.execute(f"{change} WHERE id = 1000".encode())
            assert done.rowcount == 1


@pytest.mark.parametrize("role", ["appender", "writer", "maintainer"])
def test_no_client_claims_the_login_of_another(
    role: str, postgres_server: PostgresServer, tmp_path: Path
) -> None:
    place = Place(postgres_server, tmp_path)
    for write_id in ("mine", "mine:of a branch"):
        with psycopg.connect(place.url_of(role)) as connection:
            connection.execute("UPDATE datasets SET current_version = current_version + 1")
            connection.execute(
                "INSERT INTO pending_writes (write_id, dataset_id) VALUES (%s, 1)", (write_id,)
            )
            made = connection.execute(
                "INSERT INTO transactions (dataset_id, version, timestamp, operation, "
                "metadata_json, summary_json, write_id, committed_by) "
                "SELECT dataset_id, 1 + max(version), 1 + max(timestamp), 'append', '{}', '{}', "
                "%s, 'ann' FROM transactions GROUP BY dataset_id LIMIT 1 RETURNING committed_by",
                (write_id,),
            ).fetchone()
            connection.rollback()
        assert made == (f"the_{role}",)


def test_a_branch_tells_who_committed_what_it_shares(
    postgres_server: PostgresServer, tmp_path: Path
) -> None:
    place = Place(postgres_server, tmp_path)
    place.run("appender", _append)
    with lake.open_catalog(place.url_of("writer")) as catalog:
        dataset = lake.open_dataset(place.uri, catalog=catalog)
        theirs, mine = (
            [commit.committed_by for commit in one.history()]
            for one in (dataset, dataset.branch("next"))
        )
    assert {"the_appender", "postgres"} <= set(theirs)
    assert mine == theirs


def test_a_login_without_a_role_is_told_which_there_are(
    postgres_server: PostgresServer, tmp_path: Path
) -> None:
    place = Place(postgres_server, tmp_path)
    with pytest.raises(lake.AccessDeniedError, match="plake_reader") as denied:
        place.run("nobody", _read)
    assert (denied.value.login, denied.value.roles) == ("the_nobody", ())


def test_tables_of_an_older_format_are_for_their_owner(
    postgres_server: PostgresServer, tmp_path: Path
) -> None:
    place = Place(postgres_server, tmp_path)
    with psycopg.connect(place.url, autocommit=True) as admin:
        admin.execute("UPDATE catalog_format SET version = version - 1")
    with pytest.raises(lake.AccessDeniedError, match="open the catalog once as the owner"):
        place.run("maintainer", _read)


# Once as the writer, who may import what is needed, and then as another user.
READS = """
import os, sys
import lakehouse_source as lake

def read(uri, catalog):
    dataset = lake.open_dataset(uri, catalog=catalog or None)
    assert dataset.scan("n > 0").to_table().num_rows == 2
    assert dataset.scan().explain().files_total == 1
    assert dataset.history() and dataset.files() and dataset.inspect.refs().num_rows
    assert dataset.verify(checksums=True).ok
    assert list(dataset.read_changes(0))
    return dataset

read(*sys.argv[1:3]).delete("n = 100")
if os.getuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
try:
    read(*sys.argv[3:5]).delete("n = 1")
except lake.PlakeError as error:
    print(type(error).__name__, error.retryable, error)
"""


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("duckdb", marks=pytest.mark.long)])
def test_a_reader_of_a_file_never_writes(kind: str, request: pytest.FixtureRequest) -> None:
    """The file and all folders are read only, for a user who is not root."""
    # Not pytest's own folder, which it keeps for one user.
    above = Path(tempfile.mkdtemp())
    request.addfinalizer(lambda: shutil.rmtree(above))
    above.chmod(0o755)
    folder, mine = above / "shared", above / "mine"
    folder.mkdir()
    mine.mkdir()
    arguments = []
    for place in (mine, folder):
        url = f"duckdb://{place}/catalog.db" if kind == "duckdb" else ""
        lake.write_dataset({"n": [0, 1, 2]}, place / "things", catalog=url or None)
        arguments += [str(place / "things"), url]
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    before = {path: path.stat().st_mtime_ns for path in (folder, *folder.rglob("*"))}
    done = subprocess.run([sys.executable, "-c", READS, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("CatalogUnavailableError False"), done.stdout
    assert "read-only" in done.stdout
    assert before == {path: path.stat().st_mtime_ns for path in (folder, *folder.rglob("*"))}
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
