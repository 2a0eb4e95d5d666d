"""What a login of PostgreSQL tries by SQL of its own, against other logins and other datasets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
import pytest

import lakehouse_source as lake
from lakehouse_source.catalog.sql import migrations
from lakehouse_source.errors import CATALOG_ROLES
from tests.postgres_server import PostgresServer
from tests.verbs.test_roles import Place

pytestmark = pytest.mark.slow

SECURITY = Path(__file__).parents[2] / "SECURITY.md"
NOW = {"retention_seconds": 0, "allow_short_retention": True}
REFUSED = psycopg.errors.InsufficientPrivilege


@pytest.fixture
def place(postgres_server: PostgresServer, tmp_path: Path) -> Place:
    return Place(postgres_server, tmp_path)


@pytest.fixture
def writer(place: Place) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(place.url_of("writer")) as connection:
        yield connection


def _ids(place: Place) -> dict[str, int]:
    with psycopg.connect(place.url) as admin:
        rows = admin.execute("SELECT base_uri, id FROM datasets").fetchall()
    return {uri.rpartition("/")[2]: identity for uri, identity in rows}


def _commit(connection: psycopg.Connection[Any], dataset: int, *statements: str) -> None:
    """A commit by SQL, as plake makes it, with statements of the attacker's in it."""
    connection.execute(
        "UPDATE datasets SET current_version = current_version + 1 WHERE id = %s", (dataset,)
    )
    write = "md5(random()::TEXT)"
    connection.execute(
        f"WITH w AS (INSERT INTO pending_writes (write_id, dataset_id) VALUES ({write}, %s) "
        "RETURNING write_id) SELECT set_config('my.write', write_id, TRUE) FROM w",
        (dataset,),
    )
    connection.execute(
        "INSERT INTO transactions (dataset_id, version, timestamp, operation, metadata_json, "
        "summary_json, write_id) SELECT id, current_version, 1, 'append', '{}', '{}', "
        "current_setting('my.write') FROM datasets WHERE id = %s",
        (dataset,),
    )
    connection.execute("DELETE FROM pending_writes WHERE write_id = current_setting('my.write')")
    for statement in statements:
        connection.execute(statement.replace("$d", str(dataset)).encode())
    connection.commit()


def _live_file(place: Place) -> Path:
    """The one file of the newest version of `things` that has most rows."""
    with lake.open_catalog(place.url) as catalog:
        files = lake.open_dataset(place.uri, catalog=catalog).files()
    return Path(place.uri) / files[0].path


NAME_FILE = (
    "INSERT INTO files (dataset_id, version, schema_version, file_path, file_size_bytes, "
    "row_count, first_row_id) SELECT $d, current_version, 1, '{}', 1, 1, 0 FROM datasets "
    "WHERE id = $d"
)
NAME_VECTOR = (
    "INSERT INTO deletion_vectors (dataset_id, file_id, version, file_path, file_size_bytes, "
    "blob_offset, blob_length, cardinality) SELECT $d, (SELECT max(id) FROM files WHERE "
    "dataset_id = $d), current_version, '{}', 1, 4, 1, 1 FROM datasets WHERE id = $d"
)
REMOVE = (
    "UPDATE {} SET removed_version = (SELECT current_version FROM datasets WHERE id = $d) "
    "WHERE dataset_id = $d AND removed_version IS NULL"
)


def _expire_and_vacuum(place: Place, uri: str) -> None:
    with lake.open_catalog(place.url_of("maintainer")) as catalog:
        with suppress(lake.PlakeError):
            dataset = lake.open_dataset(uri, catalog=catalog)
            dataset.expire_versions(keep_last=1)
            dataset.vacuum(**NOW)
        lake.vacuum(catalog, **NOW)


@pytest.mark.parametrize("named", ["as a data file", "as a vector"])
@pytest.mark.parametrize("where", ["above", "below"])
def test_a_vacuum_deletes_no_file_of_another_dataset_that_a_row_names(
    named: str, where: str, place: Place, writer: psycopg.Connection[Any]
) -> None:
    rows = {"n": [1], "v": [1]}
    if where == "above":
        victim = _live_file(place)
        mine, path = victim.parent.parent, f"{victim.parent.name}/{victim.name}"
    else:  # in a partition of the victim
        with lake.open_catalog(place.url) as catalog:
            lake.write_dataset(rows, place.uri + "2", catalog=catalog, partition_by="n")
        (victim,) = Path(place.uri + "2").glob("n=1/*.parquet")
        mine, path = victim.parent, victim.name
    with lake.open_catalog(place.url_of("writer")) as catalog:
        lake.write_dataset(rows, mine, catalog=catalog)
    dataset = _ids(place)[quote(mine.name)]
    statement = (NAME_FILE if named == "as a data file" else NAME_VECTOR).format(path)
    table = "files" if named == "as a data file" else "deletion_vectors"
    _commit(writer, dataset, statement)
    _commit(writer, dataset, REMOVE.format(table))
    _commit(writer, dataset)
    _expire_and_vacuum(place, str(mine))
    assert victim.exists()
    with lake.open_catalog(place.url) as catalog:
        assert lake.open_dataset(place.uri, catalog=catalog).verify(checksums=True).ok


@pytest.mark.parametrize("alias", ["{folder}/./{name}", "{link}"])
def test_a_vacuum_deletes_no_file_of_a_dataset_that_a_row_spells_otherwise(
    alias: str, place: Place, writer: psycopg.Connection[Any], tmp_path: Path
) -> None:
    """A dropped dataset in the folder of another one, which is not dropped."""
    victim = _live_file(place)
    link = tmp_path / "link"
    link.symlink_to(victim.parent)
    uri = "file://" + alias.format(folder=victim.parent.parent, name=victim.parent.name, link=link)
    made = writer.execute(
        "INSERT INTO datasets (name, base_uri) VALUES ('x', %s) RETURNING id", (uri,)
    ).fetchone()
    assert made is not None
    writer.execute("UPDATE datasets SET managed = TRUE WHERE id = %s", made)
    writer.execute(
        "INSERT INTO schema_versions (dataset_id, version, arrow_schema) "
        "SELECT %s, 1, arrow_schema FROM schema_versions LIMIT 1",
        made,
    )
    _commit(writer, made[0], NAME_FILE.format(victim.name))
    drop = "INSERT INTO dataset_drops (dataset_id, namespace, name) VALUES (%s, 'default', 'x')"
    writer.execute(drop, made)
    writer.commit()
    with psycopg.connect(place.url) as admin:  # the retention has passed
        admin.execute("UPDATE transactions SET timestamp = 1 WHERE dataset_id = %s", made)
        admin.execute("UPDATE dataset_drops SET dropped_at = 1")
    with lake.open_catalog(place.url_of("maintainer")) as catalog:
        report = lake.vacuum(catalog, **NOW)
    assert len(report.failed) == 1
    assert "Nothing was deleted" in report.failed[0][1]
    assert victim.exists()


def test_no_dataset_begins_as_one_that_was_dropped(writer: psycopg.Connection[Any]) -> None:
    with pytest.raises(REFUSED):
        writer.execute("INSERT INTO datasets (name, base_uri, dropped_at) VALUES ('x', 'y', 1)")


def test_a_branch_that_is_none_lends_no_login_and_no_files(
    place: Place, writer: psycopg.Connection[Any]
) -> None:
    """Its history has `committed_by` of the dataset, and dropping it expires its files."""
    ids = _ids(place)
    with pytest.raises(REFUSED, match="is no new branch"):
        writer.execute(
            "INSERT INTO dataset_branches (branch_id, dataset_id, name, base_version) "
            "VALUES (%s, %s, 'x', 99)",
            (ids["gone"], ids["things"]),
        )


@pytest.mark.parametrize("changed", ["operation", "summary_json", "txn_app_id", "metadata_json"])
def test_a_copied_history_is_that_of_the_dataset(
    changed: str, place: Place, writer: psycopg.Connection[Any]
) -> None:
    made = writer.execute(
        "INSERT INTO datasets (name, base_uri) SELECT 'x', base_uri || '#branch=x' FROM datasets "
        "WHERE id = %s RETURNING id",
        (_ids(place)["things"],),
    ).fetchone()
    assert made is not None
    writer.execute(
        "INSERT INTO dataset_branches (branch_id, dataset_id, name, base_version) "
        "VALUES (%s, %s, 'x', 3)",
        (*made, _ids(place)["things"]),
    )
    columns = "version, timestamp, operation, metadata_json, summary_json, txn_app_id, committed_by"
    forged = columns.replace(changed, "'{\"a\": 1}'")
    copy = (
        f"INSERT INTO transactions (dataset_id, {columns}, write_id) SELECT %s, {{}}, "
        "'mine:' || write_id FROM transactions WHERE dataset_id = %s AND version <= 3"
    )
    values = (*made, _ids(place)["things"])
    writer.execute("SAVEPOINT a")
    with pytest.raises(REFUSED):
        writer.execute(copy.format(forged).encode(), values)
    writer.execute("ROLLBACK TO a")


STOPPING = [
    ("appender", ("INSERT INTO iceberg_files (dataset_id, file_path, version, kind, "
     "erased_version, location, document_json) SELECT id, 'x', 1, 'snapshot', 0, '', 'no JSON' "
     "FROM datasets")),
    ("appender", "INSERT INTO pending_writes (write_id, state) VALUES ('x', 'no state')"),
    ("appender", "UPDATE pending_writes SET state = 'no state'"),
    ("writer", "UPDATE datasets SET properties_json = 'no JSON'"),
    ("writer", "UPDATE datasets SET properties_json = '[]'"),
    ("writer", "UPDATE dataset_namespaces SET properties_json = 'no JSON'"),
    ("writer", ("INSERT INTO dataset_views (namespace, lookup, name, document_json) "
     "VALUES ('default', 'x', 'x', 'no JSON')")),
]  # fmt: skip


@pytest.mark.parametrize(("role", "statement"), STOPPING)
def test_nobody_writes_what_no_vacuum_and_no_erasure_can_read(
    role: str, statement: str, place: Place
) -> None:
    with psycopg.connect(place.url_of("maintainer"), autocommit=True) as admin:
        admin.execute("INSERT INTO pending_writes (write_id) VALUES ('mine')")
    with psycopg.connect(place.url_of("appender"), autocommit=True) as admin:
        admin.execute("INSERT INTO pending_writes (write_id) VALUES ('theirs')")
    refused = (psycopg.errors.CheckViolation, psycopg.errors.InvalidTextRepresentation, REFUSED)
    with psycopg.connect(place.url_of(role)) as connection, pytest.raises(refused):
        connection.execute(statement.encode())
    place.run("maintainer", lambda dataset: dataset.erase("n = 2"))


def test_a_path_that_leads_out_stops_no_erasure(
    place: Place, writer: psycopg.Connection[Any]
) -> None:
    things = _ids(place)["things"]
    _commit(writer, things, NAME_VECTOR.format("../../x.puffin"))
    _commit(writer, things, REMOVE.format("deletion_vectors"))
    place.run("maintainer", lambda dataset: dataset.expire_versions(keep_last=1))
    place.run("maintainer", lambda dataset: dataset.erase("n = 2"))


def _running_write(place: Place, role: str) -> str:
    with psycopg.connect(place.url_of(role)) as connection:
        connection.execute(
            "INSERT INTO pending_writes (write_id, dataset_id) SELECT 'running', id "
            "FROM datasets WHERE base_uri LIKE '%/things'"
        )
    return "running"


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE pending_writes SET state = 'closed'",
        "UPDATE pending_writes SET state = 'abandoned'",
        "UPDATE pending_writes SET heartbeat_at = 0",
        "UPDATE pending_writes SET dataset_id = NULL",
        "UPDATE pending_writes SET login = session_user",
        "DELETE FROM pending_writes",
        (
            "INSERT INTO pending_writes (write_id, state) VALUES ('running', 'closed') "
            "ON CONFLICT (write_id) DO UPDATE SET state = 'closed'"
        ),
        "INSERT INTO pending_writes (write_id, login) VALUES ('x', 'the_appender')",
    ],
)
def test_a_running_write_is_ended_by_its_own_login_only(
    statement: str, place: Place, writer: psycopg.Connection[Any]
) -> None:
    _running_write(place, "appender")
    with pytest.raises(REFUSED):
        writer.execute(statement.encode())
    writer.rollback()
    own = ["closed", "abandoned", "pending"]
    with psycopg.connect(place.url_of("appender")) as connection:
        for state in own:
            connection.execute("UPDATE pending_writes SET state = %s", (state,))
        connection.execute("DELETE FROM pending_writes")


def test_anybody_abandons_a_write_that_was_silent_for_a_day(
    place: Place, writer: psycopg.Connection[Any]
) -> None:
    _running_write(place, "appender")
    with psycopg.connect(place.url) as admin:
        admin.execute("UPDATE pending_writes SET heartbeat_at = heartbeat_at - 90000000000")
    with lake.open_catalog(place.url_of("writer")) as catalog:
        lake.write_dataset({"n": [7], "v": [7]}, place.uri, catalog=catalog)
        with catalog.database.read() as reader:
            assert reader.write_states(["running"])["running"].state.value == "abandoned"
    with pytest.raises(REFUSED):
        writer.execute("UPDATE pending_writes SET state = 'pending' WHERE write_id = 'running'")


def test_nobody_commits_under_the_id_of_a_running_write(
    place: Place, writer: psycopg.Connection[Any]
) -> None:
    """Its own commit would find itself done, and its rows would be lost with success."""
    _running_write(place, "appender")
    things = _ids(place)["things"]
    writer.execute("UPDATE datasets SET current_version = current_version + 1 WHERE id = %s",
                   (things,))  # fmt: skip
    with pytest.raises(REFUSED, match="that of another login"):
        writer.execute(
            "INSERT INTO transactions (dataset_id, version, timestamp, operation, metadata_json, "
            "summary_json, write_id) SELECT id, current_version, 1, 'append', '{}', '{}', "
            "'running' FROM datasets WHERE id = %s",
            (things,),
        )


def _append(place: Place, role: str, number: int) -> Any:
    with lake.open_catalog(place.url_of(role)) as catalog:
        return lake.write_dataset(
            {"n": [70], "v": [number]}, place.uri, catalog=catalog,
            txn_app_id="stream", txn_version=number,
        )  # fmt: skip


def test_no_batch_is_dropped_for_a_number_that_another_login_committed(place: Place) -> None:
    _append(place, "writer", 9)
    for number in (9, 1, 10):
        with pytest.raises(lake.PlakeError, match="the_writer") as refused:
            _append(place, "appender", number)
        assert not refused.value.retryable
    _append(place, "writer", 10)


def test_nobody_commits_under_the_application_of_another_login(
    place: Place, postgres_server: PostgresServer
) -> None:
    first = _append(place, "appender", 1)
    for number in (1, 2, 10):
        with pytest.raises(lake.PlakeError, match="the_appender"):
            _append(place, "writer", number)
    assert _append(place, "appender", 1).version == first.version
    assert _append(place, "appender", 2).version == first.version + 1
    postgres_server.run("GRANT the_appender TO the_writer")
    try:
        assert _append(place, "writer", 2).version == first.version + 1
        assert _append(place, "writer", 3).version == first.version + 2
    finally:
        postgres_server.run("REVOKE the_appender FROM the_writer")


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM catalog_settings WHERE name = 'catalog_id'",
        "UPDATE catalog_settings SET value = 'x'",
        "INSERT INTO catalog_settings (name, value) VALUES ('fence', 'x')",
        "UPDATE datasets SET next_row_id = next_row_id - 1",
    ],
)
def test_a_writer_changes_nothing_that_the_catalog_is_known_by(
    statement: str, writer: psycopg.Connection[Any]
) -> None:
    with pytest.raises(REFUSED):
        writer.execute(statement.encode())


def test_an_appender_does_not_set_numbers_back(place: Place) -> None:
    with psycopg.connect(place.url_of("appender"), autocommit=True) as connection:
        connection.execute(
            "INSERT INTO identity_lanes (sequence, lane, next_number, write_id) "
            "VALUES ('s', 0, 5, NULL)"
        )
        connection.execute("UPDATE identity_lanes SET next_number = 7 WHERE sequence = 's'")
        with pytest.raises(REFUSED):
            connection.execute("UPDATE identity_lanes SET next_number = 6 WHERE sequence = 's'")


# --- the table in SECURITY.md ------------------------------------------------------

_COLUMNS = (
    "SELECT a.attname, {} FROM pg_catalog.pg_attribute AS a WHERE a.attrelid = %s::regclass "
    "AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum"
)


def _rights(admin: psycopg.Connection[Any], role: str, table: str) -> dict[str, list[str]]:
    """What PostgreSQL says that a role may do with each column of a table."""
    asked = ("SELECT", "INSERT", "UPDATE", "REFERENCES")
    columns = ", ".join(f"has_column_privilege('{role}', a.attrelid, a.attnum, '{one}')"
                        for one in asked)  # fmt: skip
    rows = admin.execute(_COLUMNS.format(columns).encode(), (table,)).fetchall()
    found = {one: [row[0] for row in rows if row[1 + n]] for n, one in enumerate(asked)}
    for one in ("DELETE", "TRUNCATE", "TRIGGER"):
        row = admin.execute("SELECT has_table_privilege(%s, %s, %s)", (role, table, one)).fetchone()
        found[one] = ["rows"] if row == (True,) else []
    return found


def _table(admin: psycopg.Connection[Any]) -> str:
    """The table of SECURITY.md, from the rights that PostgreSQL knows."""
    roles = list(CATALOG_ROLES)
    lines = ["| table | appender | writer | maintainer |", "|---|---|---|---|"]
    for table in (migrations.FORMAT_TABLE, *migrations.TABLES):
        before, cells = _rights(admin, roles[0], table), []
        every = before.pop("SELECT")
        assert not any(before.values()), f"plake_reader changes {table}"
        for role in roles[1:]:
            has = _rights(admin, role, table)
            assert has.pop("SELECT") == every
            assert not has["TRUNCATE"] + has["TRIGGER"] + has["REFERENCES"]
            new = {one: [c for c in has[one] if c not in before[one]] for one in has}
            said = [f"{one} {', '.join(new[one])}" for one in ("INSERT", "UPDATE") if new[one]]
            cells.append("; ".join([*said, *(["DELETE"] if new["DELETE"] else [])]))
            before = has
        lines.append(f"| `{table}` | {' | '.join(cells)} |")
    return "\n".join(lines).replace("|  |", "| |").replace("|  |", "| |")


def test_the_rights_of_each_role_are_those_that_the_table_shows(
    postgres_server: PostgresServer, tmp_path: Path
) -> None:
    """Of every table, role, statement and column."""
    place = Place(postgres_server, tmp_path)
    with psycopg.connect(place.url) as admin:
        assert _table(admin) in SECURITY.read_text()
