"""A query names a variable or a host: it gets neither the one nor sends anything to the other."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql.types import LongType, StructField, StructType

import lakehouse_source as lake
from lakehouse_source.spark.protocol.vocabulary import Setting
from lakehouse_source.spark.session.secrets import check_hosts
from lakehouse_source.spark.source import PlakeDataSource
from tests.doors.logged_session import run_logged
from tests.edges.asking_server import AskingServer, asking_server
from tests.postgres_server import PostgresServer

pytestmark = pytest.mark.slow

CANARY = "CANARY-6e02"
ROOT = Path(__file__).parents[2]
HIDDEN = "KEY-OF-A-STORE-91"
SCHEMA = StructType([StructField("id", LongType(), False)])
KEYS = {"access_key": "env:PLAKE_STORE_KEY", "secret_key": "env:PLAKE_STORE_SECRET"}


@pytest.fixture
def server() -> Iterator[AskingServer]:
    with asking_server() as found:
        yield found


def test_a_frame_sends_the_drivers_password_to_no_host_that_it_names(
    server: AskingServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSWORD", CANARY)
    url = f"postgresql://u@127.0.0.1:{server.port}/x"
    options = {"path": str(tmp_path / "x"), "catalog": url}
    source = PlakeDataSource(options)
    for act in (source.schema, lambda: source.writer(SCHEMA, False)):
        with pytest.raises(lake.CatalogUnavailableError, match=r"spark\.plake\.hosts\.allowed"):
            act()
    assert server.clients > 0
    assert not server.got(CANARY)
    monkeypatch.setenv("PLAKE_HOSTS_ALLOWED", f"127.0.0.1:{server.port}")
    with pytest.raises(lake.CatalogUnavailableError):
        PlakeDataSource(options).writer(SCHEMA, False)
    assert server.got(CANARY)


@pytest.mark.parametrize(
    ("uri", "storage"),
    [
        ("s3://b/x", {**KEYS, "endpoint_override": "evil:9000"}),
        ("s3://b/x", {**KEYS, "AWS_ENDPOINT_URL": "https://evil:9000"}),
        ("s3://b/x", {"endpoint_url": "http://evil:9000"}),  # those that the client finds
        ("s3://b/x?endpoint_override=evil:9000&scheme=http", {}),
        ("gs://b/x", {"endpoint_override": "evil:9000"}),
        ("abfs://c@a.evil:9000/x", {}),
        ("abfs://c@evil.dfs.core.windows.net/x", {"sas_token": "env:PLAKE_SAS"}),
        ("abfs://c/x", {"account_name": "evil", "account_key": "env:PLAKE_KEY"}),
        ("abfs://c@a.dfs.core.windows.net/x", {"blob_storage_authority": "evil:9000"}),
        ("sftp://evil:9000/x", {"password": "env:PLAKE_KEY"}),
        ("sftp://good@evil:9000/x", {"password": "env:PLAKE_KEY"}),
        ("webdav://good/x", {"base_url": "https://evil:9000/", "auth": "env:PLAKE_KEY"}),
    ],
)
def test_keys_go_to_no_host_that_only_a_query_names(
    uri: str, storage: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLAKE_HOSTS_ALLOWED", "good")
    with pytest.raises(lake.InvalidOptionError, match=r"evil.*spark\.plake\.hosts\.allowed"):
        check_hosts(uri, storage)
    monkeypatch.setenv("PLAKE_HOSTS_ALLOWED", "good,evil,*.evil,*.windows.net")
    check_hosts(uri, storage)


def test_what_gets_no_secret_needs_no_permission() -> None:
    check_hosts("s3://b/x", KEYS)
    check_hosts("s3://b/x", {"endpoint_override": "minio:9000", "anonymous": "true"})
    check_hosts("abfs://c@a.dfs.core.windows.net/x", {})
    check_hosts("/data/x", {})
    check_hosts("hdfs://cluster/x", {})


def test_a_frame_and_a_write_are_refused_such_a_host(tmp_path: Path) -> None:
    given = {f"storage.{name}": value for name, value in KEYS.items()}
    given |= {"storage.endpoint_override": "evil:9000", "catalog": f"sqlite://{tmp_path}/c.db"}
    source = PlakeDataSource({"path": "s3://b/x", **given})
    for act in (source.schema, lambda: source.writer(SCHEMA, False)):
        with pytest.raises(lake.InvalidOptionError, match="evil:9000"):
            act()


SCRIPT = """
    folder, port = sys.argv[1:]

    def tried(act):
        try:
            act()
        except Exception as error:
            return str(error).splitlines()[0]
        return "done"

    def write(**options):
        frame = spark.range(3).write.format("plake").mode("append")
        frame.options(path=folder, **options).save()

    print("static", tried(lambda: write(catalog="env:TEAM_LAKE")))
    print("name", tried(lambda: spark.sql("CREATE TABLE own.default.t AS SELECT 1 AS i")))
    spark.sql("SET spark.plake.env.allowed=OTHER_LAKE")
    spark.sql("SET spark.plake.hosts.allowed=127.0.0.1")
    print("other", tried(lambda: write(catalog="env:OTHER_LAKE")))
    option = {"spark.plake.env.allowed": "OTHER_LAKE"}
    print("option", tried(lambda: write(catalog="env:OTHER_LAKE", **option)))
    spark.conf.set("spark.sql.catalog.evil", "io.plake.spark.PlakeCatalog")
    spark.conf.set("spark.sql.catalog.evil.catalog", f"postgresql://u@127.0.0.1:{port}/x")
    print("evil", tried(lambda: spark.sql("SHOW TABLES IN evil.default").collect()))
    frame = spark.read.format("plake").option("catalog", f"postgresql://u@127.0.0.1:{port}/x")
    print("frame", tried(lambda: frame.load(folder)))
    history = lambda: lake.spark.open(spark, folder, "env:TEAM_LAKE").history().collect()
    print("driver", tried(history))
"""


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.spark
def test_only_the_configuration_of_the_application_permits_more(
    server: AskingServer, tmp_path: Path
) -> None:
    settings = {
        "spark.plake.env.allowed": "TEAM_*",
        "spark.sql.catalog.own": "io.plake.spark.PlakeCatalog",
        "spark.sql.catalog.own.catalog": "env:TEAM_LAKE",
        "spark.sql.catalog.own.warehouse": str(tmp_path / "warehouse"),
    }
    confs = " ".join(f"--conf {name}={value}" for name, value in settings.items())
    environment = {
        **os.environ,
        "PGPASSWORD": CANARY,
        "TEAM_LAKE": f"sqlite://{tmp_path}/team.db",
        "OTHER_LAKE": f"sqlite://{tmp_path}/{CANARY}.db",
        "PYSPARK_SUBMIT_ARGS": f"{confs} pyspark-shell",
    }
    arguments = [str(tmp_path / "data"), str(server.port)]
    logged = run_logged(SCRIPT, arguments, environment, tmp_path)
    lines = dict(line.split(" ", 1) for line in logged.printed.splitlines() if " " in line)
    assert (lines["static"], lines["name"], lines["driver"]) == ("done", "done", "done")
    assert "'OTHER_LAKE' may not be read" in lines["other"]
    assert "spark.plake.env.allowed" in lines["option"]
    assert not (tmp_path / f"{CANARY}.db").exists()
    assert "A query named this host" in lines["evil"]
    assert "A query named this host" in lines["frame"]
    assert server.clients > 1
    assert not server.got(CANARY)
    assert CANARY not in logged.output


TASKS = """
    import json
    from pyspark.sql.functions import udf

    folder, = sys.argv[1:]
    spark.sql("CREATE TABLE plake.default.t AS SELECT 1L AS i")
    spark.sql(f"CREATE TABLE sales.default.t (i BIGINT) LOCATION '{folder}'")
    spark.sql("INSERT INTO sales.default.t SELECT id FROM range(4)")
    spark.sql("UPDATE sales.default.t SET i = 7 WHERE i = 0")
    stream = spark.readStream.table("sales.default.t").writeStream.format("plake")
    stream = stream.option("checkpointLocation", folder + "-check").trigger(availableNow=True)
    stream.start(folder + "-copy").awaitTermination()
    for planner in ("false", "true"):
        spark.conf.set("spark.plake.planner.enabled", planner)
        frame = spark.read.format("plake").load(folder + "-copy")
        print("read", len(frame.collect()))
    names = udf(lambda one: json.dumps(dict(os.environ)))
    frame = spark.table("sales.default.t").select(names("i").alias("found"))
    print("udf", frame.first())
    for mode in ("extended", "formatted"):
        frame.explain(mode=mode)
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            command = open(f"/proc/{pid}/cmdline").read().replace("\\0", " ").strip()
            environment = open(f"/proc/{pid}/environ").read().replace("\\0", " ")
        except OSError:
            continue
        if "pyspark.daemon" in command and "TASKS_OF=" + folder in environment:
            print("worker", command.rpartition(" ")[2], environment.replace("\\n", " "))
"""


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("name", ["password", "sslpassword", "%70assword"])
def test_no_task_gets_the_url_or_the_password_of_a_catalog(
    postgres_server: PostgresServer, tmp_path: Path, name: str
) -> None:
    urls = [f"{postgres_server.fresh_database()}&{name}={CANARY}" for _ in range(2)]
    settings = {
        "spark.sql.catalog.sales": "io.plake.spark.PlakeCatalog",
        "spark.sql.catalog.sales.catalog": urls[0],
        "spark.sql.catalog.sales.warehouse": str(tmp_path / "sales"),
        "spark.sql.catalog.other": "io.plake.spark.PlakeCatalog",
        "spark.sql.catalog.other.warehouse": f"s3://k:{HIDDEN}@bucket/x?secret_key={HIDDEN}",
        "spark.sql.catalog.other.storage.endpoint_override": f"http://u:{HIDDEN}@minio:9000/x",
        "spark.sql.catalog.other.storage.proxy_password": HIDDEN,
        "spark.sql.catalog.other.storage.secret_key": HIDDEN,
        "spark.sql.catalog.plake.warehouse": str(tmp_path / "warehouse"),
    }
    conf = tmp_path / "conf"
    conf.mkdir()
    ours = (ROOT / "spark_conf" / "spark-defaults.conf").read_text()
    lines = [line + "\n" for line in ours.splitlines() if "redaction" in line]
    lines += [f"{key} {value}\n" for key, value in settings.items()]
    (conf / "spark-defaults.conf").write_text("".join(lines))
    folder = str(tmp_path / "data")
    environment = {**os.environ, "SPARK_CONF_DIR": str(conf), "TASKS_OF": folder}
    logged = run_logged(TASKS, [folder], environment, tmp_path, urls[1])
    workers = [one.split(" ", 2)[1:] for one in logged.printed.splitlines() if one[:7] == "worker "]
    planning = {module: found for module, found in workers if Setting.STATIC in found}
    assert "pyspark.worker" in [module for module, _ in workers]
    assert "pyspark.worker" not in planning
    for found in planning.values():
        assert "http://minio:9000/" in found
        assert urls[0].partition("host=")[2].partition("&")[0] in found
    assert planning
    assert logged.printed.count("read 4\n") == 2
    assert "udf Row(" in logged.printed
    assert HIDDEN not in logged.printed
    assert CANARY not in logged.output
    assert [line for line in logged.events if CANARY in line] == []
