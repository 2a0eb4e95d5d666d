"""A password in the catalog's URL must not come out anywhere."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import re
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import pytest
from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StructField, StructType

import lakehouse_source as lake
from lakehouse_source.spark.session import secrets
from lakehouse_source.spark.source import PlakeDataSource
from tests.doors.frames import load, save
from tests.doors.logged_session import run_logged
from tests.postgres_server import PostgresServer

CANARY = "CANARY-7b31"
SCHEMA = StructType([StructField("id", LongType(), False)])


@pytest.fixture
def catalog(postgres_server: PostgresServer) -> str:
    """A catalog that works and takes any password."""
    return postgres_server.fresh_database(password=CANARY)


def words_of(path: Path) -> bytes:
    return b"".join(file.read_bytes() for file in path.rglob("*") if file.is_file())


def test_nothing_that_is_pickled_holds_the_password(catalog: str, tmp_path: Path) -> None:
    source = PlakeDataSource({"path": str(tmp_path), "catalog": catalog})
    writer = source.writer(SCHEMA, False)
    pickled = [cloudpickle.dumps(source), cloudpickle.dumps(writer)]
    cloudpickle.loads(pickled[1]).commit([])
    source = cloudpickle.loads(cloudpickle.dumps(PlakeDataSource(source.options)))
    reader = source.reader(source.schema())
    pickled += [cloudpickle.dumps(source), cloudpickle.dumps(reader)]
    pickled += [cloudpickle.dumps(partition) for partition in reader.partitions()]
    for content in pickled:
        assert CANARY.encode() not in content
    for thing in (source, writer, source.options, vars(source), vars(writer)):
        assert CANARY not in repr(thing)
    assert CANARY not in repr(lake.open_catalog(catalog))


def test_a_reader_that_reached_an_executor_knows_no_catalog_at_all(
    catalog: str, tmp_path: Path
) -> None:
    source = PlakeDataSource({"path": str(tmp_path), "catalog": catalog})
    source.writer(SCHEMA, False).commit([])
    source = PlakeDataSource(dict(source.options))
    task = cloudpickle.dumps(source.reader(source.schema()))
    assert b"postgres" not in task
    assert b"plake-token" not in task


def test_plans_and_the_dataset_folder_do_not_hold_the_password(
    spark_planner: SparkSession, catalog: str, tmp_path: Path
) -> None:
    folder = tmp_path / "dataset"
    save(spark_planner.range(3), folder, catalog=catalog)
    frame = load(spark_planner, folder, catalog=catalog)
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        for mode in ("simple", "extended", "codegen", "cost", "formatted"):
            frame.where("id > 1").explain(mode=mode)
    plans = shown.getvalue() + frame._jdf.queryExecution().toString()
    plans += frame._jdf.queryExecution().debug().toString()
    assert frame.count() == 3
    assert "plake" in plans
    assert CANARY not in plans
    assert CANARY.encode() not in words_of(folder)
    for text in (repr(frame), str(frame.schema.json())):
        assert CANARY not in text


def test_errors_do_not_hold_the_password(spark: SparkSession, catalog: str, tmp_path: Path) -> None:
    broken = catalog.replace("/test_", "/no_such_")
    wrong_options = [
        {"catalog": broken},
        {"catalog": catalog},  # no dataset there
        {"catalog": f"mysql://u:{CANARY}@h/db"},
        {"catalog": f"postgresql://u:{CANARY}@127.0.0.1:1/db"},
        {"catalog": f"postgresql://u:p@ss:{CANARY}@[bad/db?password={CANARY}"},
    ]
    for options in wrong_options:
        with pytest.raises(PySparkException) as caught:
            load(spark, tmp_path / "none", **options)
        assert CANARY not in str(caught.value), options
        assert CANARY not in repr(caught.value)
    for options in wrong_options[2:]:
        with pytest.raises(PySparkException) as caught:
            save(spark.range(1), tmp_path / "none", **options)
        assert CANARY not in str(caught.value), options
    save(spark.range(1), tmp_path / "some", catalog=catalog)
    for options in ({"versoin": "1"}, {"version": "9"}, {"where": "nope = 1"}, {"columns": "x"}):
        with pytest.raises(PySparkException) as caught:
            load(spark, tmp_path / "some", catalog=catalog, **options)
        assert CANARY not in str(caught.value), options


@pytest.fixture
def private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty place for the folders of sessions."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path / f"plake-{os.getuid()}"


def test_the_kept_url_can_be_read_by_its_user_only(private: Path) -> None:
    url = f"postgresql://u:{CANARY}@host/db"
    token = secrets.conceal(url)
    assert token is not None
    assert re.fullmatch("plake-token:[0-9a-f]{32}", token)
    assert secrets.conceal(url) == token == secrets.conceal(token)
    assert secrets.reveal(token) == url
    (folder,) = private.iterdir()
    assert (private.stat().st_mode & 0o777, folder.stat().st_mode & 0o777) == (0o700, 0o700)
    for kept in folder.iterdir():
        assert kept.stat().st_mode & 0o777 == 0o600
        assert CANARY not in kept.name
    for harmless in ("env:NAME", "sqlite:///a/b.db", "postgresql://host/db", None):
        assert secrets.conceal(harmless) == harmless
    private.chmod(0o755)
    for attempt in (lambda: secrets.reveal(token), lambda: secrets.conceal(url)):
        with pytest.raises(lake.CatalogUnavailableError, match="not a folder of this user alone"):
            attempt()
    private.chmod(0o700)
    (folder / token.removeprefix("plake-token:")).unlink()
    with pytest.raises(lake.CatalogUnavailableError, match="known on the driver only"):
        secrets.reveal(token)


def test_a_token_is_no_path(private: Path) -> None:
    secrets.conceal(f"postgresql://u:{CANARY}@host/db")
    (folder,) = private.iterdir()
    outside = private / ("0" * 32)
    outside.write_text("secret of another program")
    for name in (
        *("/etc/passwd", "../../etc/passwd", "owner", "key", f"{folder.name}/key", "", "."),
        *("0" * 32, "0" * 31 + "\n", f"../{'0' * 32}", "A" * 32, str(outside)),
    ):
        with pytest.raises(lake.CatalogUnavailableError, match="known on the driver only"):
            secrets.reveal(f"plake-token:{name}")


def test_a_token_does_not_tell_a_guessed_password(
    private: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was a hash of the URL and a folder that everybody knows: passwords were tried offline."""
    url = f"postgresql://u:{CANARY}@host/db"
    first = secrets.conceal(url)
    guessed = hashlib.sha256(os.fsencode(private) + url.encode()).hexdigest()[:32]
    assert first != f"plake-token:{guessed}"
    other = tmp_path / "other"
    other.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(other))
    assert secrets.conceal(url) != first


SESSION = """
    from lakehouse_source.spark.session import secrets
    tempfile.tempdir, url = sys.argv[1:]
    print(secrets.conceal(url), flush=True)
    if os.fork() == 0:  # the end of a child ends no session
        sys.exit()
    os.wait()
    print(secrets.reveal(secrets.conceal(url)) == url, flush=True)
    if sys.stdin.readline() == "die\\n":
        os._exit(1)
"""


def test_the_url_goes_with_its_session(private: Path) -> None:
    url = f"postgresql://u:{CANARY}@host/db"
    script = "import os, sys, tempfile\n" + textwrap.dedent(SESSION)
    command = [sys.executable, "-c", script, str(private.parent), url]
    running = [
        subprocess.Popen(command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for _ in range(2)
    ]
    tokens = []
    for process in running:
        assert process.stdout is not None
        tokens.append(process.stdout.readline().strip())
        assert process.stdout.readline().strip() == "True"
    assert len(set(tokens)) == 2
    assert [secrets.reveal(token) for token in tokens] == [url, url]
    running[0].communicate("end\n", timeout=60)
    with pytest.raises(lake.CatalogUnavailableError):
        secrets.reveal(tokens[0])
    assert secrets.reveal(tokens[1]) == url
    running[1].communicate("die\n", timeout=60)
    assert len(list(private.iterdir())) == 1  # nobody could clean up
    secrets.conceal(url)  # the next session does
    with pytest.raises(lake.CatalogUnavailableError):
        secrets.reveal(tokens[1])


SCRIPT = """
    folder, = sys.argv[1:]
    for catalog in (os.environ["PLAKE_SECRET_URL"], "env:PLAKE_SECRET_URL"):
        options = {"path": folder, "catalog": catalog}
        spark.range(3).write.format("plake").mode("append").options(**options).save()
        frame = spark.read.format("plake").options(**options).load()
        print("rows", frame.where("id >= 1").groupBy("id").count().collect())
        listed = ", ".join(f"{key} '{value}'" for key, value in options.items())
        spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW v USING plake OPTIONS ({listed})")
        print("view", spark.sql("SELECT count(*) FROM v").first())
"""


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.spark
def test_the_event_log_and_the_drivers_log_do_not_hold_the_password(
    catalog: str, tmp_path: Path
) -> None:
    environment = {**os.environ, "PLAKE_SECRET_URL": catalog}
    logged = run_logged(SCRIPT, [str(tmp_path / "dataset")], environment, tmp_path)
    assert "view Row(count(1)=6)" in logged.printed
    assert CANARY not in logged.output
    assert [line for line in logged.events if CANARY in line] == []
    assert CANARY.encode() not in words_of(tmp_path / "dataset")
