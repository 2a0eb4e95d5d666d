"""What `env:NAME` may read, and which hosts get what this machine knows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pyarrow.fs as pafs
import pytest

import lakehouse_source as lake
from lakehouse_source.catalog import open_catalog, redact
from lakehouse_source.catalog.base import UrlOfQuery
from lakehouse_source.storage import StorageLocation
from lakehouse_source.storage.options import gets_secrets, may_be_read
from tests.edges.asking_server import AskingServer, asking_server

pytestmark = pytest.mark.slow

CANARY = "CANARY-41aa"


@pytest.fixture
def server() -> Iterator[AskingServer]:
    with asking_server() as found:
        yield found


def _ask(url: str) -> str:
    """What the error says that an attempt to read a catalog ends with."""
    with pytest.raises(lake.PlakeError) as caught, open_catalog(url) as catalog, catalog.read():
        pass
    return str(caught.value)


READS: dict[str, Callable[[str], object]] = {
    "catalog": lambda value: lake.open_catalog(value),
    "dataset": lambda value: lake.open_dataset("/no/such", catalog=value),
    "storage": lambda value: StorageLocation.of("s3://b/x", {"region": value}),
    "driver": lambda value: StorageLocation.of("memory://b/x", {"anything": value}),
}


@pytest.mark.parametrize("door", READS)
def test_env_reads_no_variable_of_others_and_shows_none(
    door: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", CANARY)
    with pytest.raises(lake.InvalidOptionError, match="PLAKE_ENV_ALLOWED=AWS_SECRET") as caught:
        READS[door]("env:AWS_SECRET_ACCESS_KEY")
    assert CANARY not in repr(caught.value) + str(caught.value)


@pytest.mark.parametrize("value", [CANARY, f"mysql://{CANARY}", f"sqlite:{CANARY}", f"a:{CANARY}"])
def test_a_value_that_is_no_catalog_is_not_shown(
    value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, given in (("PLAKE_OTHER", "env:PLAKE_OTHER"), ("PLAKE_CATALOG", None)):
        monkeypatch.setenv(name, value)
        with pytest.raises(lake.InvalidOptionError, match=f"env:{name}") as caught:
            open_catalog(given)
        assert CANARY not in repr(caught.value) + str(caught.value)


def test_a_catalog_from_the_environment_is_shown_by_its_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PLAKE_LAKE", f"postgresql://u:{CANARY}@127.0.0.1:1/{CANARY}")
    with open_catalog("env:PLAKE_LAKE") as catalog:
        assert "env:PLAKE_LAKE" in repr(catalog)
        assert CANARY not in repr(catalog)


def test_what_a_variable_holds_is_masked_in_errors_of_a_store_under_any_option(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PLAKE_REGION", CANARY)
    location = StorageLocation.of("s3://b/x", {"region": "env:PLAKE_REGION"})
    for one in (location, location.sibling("s3://b/y")):
        assert one.mask(f"no host s3.{CANARY}.amazonaws.com") == "no host s3.***.amazonaws.com"
        assert CANARY not in repr(one)


def test_names_are_permitted_one_by_one_or_by_how_they_begin(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert may_be_read("PLAKE_ANY")
    assert not may_be_read("XPLAKE_ANY")
    monkeypatch.setenv("PLAKE_ENV_ALLOWED", "LAKE_URL, TEAM_*")
    assert [may_be_read(name) for name in ("LAKE_URL", "TEAM_A")] == [True, True]
    assert [may_be_read(name) for name in ("LAKE_URL2", "HOME", "", "TEAM")] == [False] * 4


def test_hosts_are_permitted_with_and_without_a_port(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not gets_secrets("db")
    monkeypatch.setenv("PLAKE_HOSTS_ALLOWED", "db, minio:9000,*.example.com,/run/pg,[::1]:5432")
    for host in ("db", "DB:5432", "db.:1", "http://minio:9000", "a.example.com:1", "/run/pg"):
        assert gets_secrets(host), host
    assert gets_secrets("[::1]:5432")
    for host in ("db2", "minio", "minio:9001", "example.com", "aexample.com", "/run", "[::1]:1"):
        assert not gets_secrets(host), host
    for host in ("db@evil", "evil/db", "evil?db", "evil#db", "db\\.evil", ""):
        assert not gets_secrets(host), host


@pytest.mark.parametrize(
    "host",
    [
        *("evil:9@db", "evil\\@db", "http://evil:9\\@db", "evil:9/x:y.example.com"),
        *(
            "u:p@evil/.example.com",
            "@evil:9/.example.com",
            "/tmp/a.example.com",
            "evil .example.com",
        ),
        *(
            "evil\n.example.com",
            "evil;.example.com",
            "evil%00.example.com",
            "::1.example.com",
            "db\t",
        ),
        *(
            "evil\u3002example.com",
            "evil\u2044.example.com",
            "db:1:2",
            "db:x",
            "[db",
            "http://",
            "*.db",
        ),
    ],
)
def test_a_text_that_clients_may_read_otherwise_is_no_permitted_host(
    host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLAKE_HOSTS_ALLOWED", "db,*.example.com,*.,*,[,http://")
    assert gets_secrets("db")
    assert gets_secrets("a.example.com")
    assert not gets_secrets(host)


def test_the_client_of_s3_goes_where_the_list_of_hosts_does_not_lead(
    server: AskingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Why such texts are refused: the client reads another host than Python does."""
    host = f"127.0.0.1:{server.port}@db"
    monkeypatch.setenv("PLAKE_HOSTS_ALLOWED", "db")
    retry = pafs.AwsStandardS3RetryStrategy(max_attempts=1)
    client = pafs.S3FileSystem(
        access_key="key",
        secret_key="secret",
        scheme="http",
        region="x",
        endpoint_override=host,
        retry_strategy=retry,
        connect_timeout=30,
        request_timeout=30,
    )
    with pytest.raises(OSError, match="AWS Error"):
        client.get_file_info("bucket/x")
    assert server.clients > 0
    assert not gets_secrets(host)


def test_the_host_of_a_query_gets_no_password_that_libpq_finds(
    server: AskingServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / ".pgpass"
    kept.write_text(f"*:*:*:*:{CANARY}\n")
    kept.chmod(0o600)
    url = f"postgresql://u@127.0.0.1:{server.port}/x"
    for variable, value in (
        ("PGPASSWORD", CANARY),
        ("PGPASSFILE", str(kept)),
        ("HOME", str(tmp_path)),
    ):
        with monkeypatch.context() as patched:
            patched.setenv(variable, value)
            server.sent.clear()
            assert "spark.plake.hosts.allowed" in _ask(UrlOfQuery(url))
            assert server.clients > 0
            assert not server.got(CANARY), variable
            if variable != "HOME":  # libpq may take the home folder from the system instead
                _ask(url)  # the program itself named it
                assert server.got(CANARY), variable


def test_a_variable_does_not_lead_the_host_of_a_query_elsewhere(
    server: AskingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGHOSTADDR", "127.0.0.1")
    monkeypatch.setenv("PGPORT", str(server.port))
    monkeypatch.setenv("PGSSLMODE", "disable")
    _ask(UrlOfQuery(f"postgresql://u:{CANARY}@localhost/x"))
    assert server.clients == 0


@pytest.mark.parametrize(
    "parameter",
    [
        *("passfile=/x", "service=x", "sslkey=/x", "sslcert=/x", "%73ervice=x"),
        pytest.param(
            "sslkeylogfile=/x",
            marks=pytest.mark.skipif(
                psycopg.pq.version() < 180000, reason="older ones refuse it themselves"
            ),
        ),
    ],
)
def test_a_query_names_no_file_for_libpq(parameter: str) -> None:
    for host in ("127.0.0.1:1", ""):
        with pytest.raises(lake.InvalidOptionError, match="a query may not give"):
            open_catalog(UrlOfQuery(f"postgresql://u@{host}/x?{parameter}"))


def test_a_service_of_the_environment_does_not_complete_the_url_of_a_query(
    server: AskingServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "services"
    file.write_text(f"[mine]\npassword={CANARY}\n")
    monkeypatch.setenv("PGSERVICEFILE", str(file))
    monkeypatch.setenv("PGSERVICE", "mine")
    assert "PGSERVICE" in _ask(UrlOfQuery(f"postgresql://u@127.0.0.1:{server.port}/x"))
    assert server.clients == 0


@pytest.mark.parametrize(
    "parameter",
    [
        *("password", "%70assword", "pass%77ord", "PASSWORD", "sslpassword", "passfile"),
        *("scram_client_key", "scram_server_key", "oauth_client_secret", "options", "new_one"),
        *("sslkeylogfile", "service", "servicefile", "%", "%zz", "+password"),
    ],
)
def test_every_parameter_that_is_not_known_to_be_harmless_is_redacted(parameter: str) -> None:
    for url in (
        f"postgresql://u@h/db?{parameter}={CANARY}",
        f"postgresql://u@h/db?sslmode=require&{parameter}={CANARY}&user=me",
        f"postgresql://u:{CANARY}@h/db?host=/x&{parameter}=a={CANARY}",
        f"postgresql://u@h/db?{CANARY}",
    ):
        assert CANARY not in redact(url)
        assert redact(url).startswith("postgresql://u")
    assert "sslmode=require" in redact(f"postgresql://h/db?sslmode=require&{parameter}=x")


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://me@corp:{CANARY}@host/db",  # as Azure's servers have users
        f"postgresql://us/er:{CANARY}@host/db",
        f"postgresql:///db?user=me:{CANARY}@host",
        f"postgresql://h/db?host=me:{CANARY}@host",
        f"mysql://me@corp:{CANARY}@host/db",
    ],
)
def test_a_password_behind_a_user_that_is_not_escaped_is_not_shown(url: str) -> None:
    assert CANARY not in redact(url)
    if "corp" in url:
        assert CANARY not in _ask(url)


def test_the_path_of_a_file_is_shown_as_it_is() -> None:
    for url in ("sqlite:////data/a:b@c/x.db", "duckdb:////data/a:b@c/x.db"):
        assert redact(url) == url


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://h/db?application_name=x%26password%3DCANARY",
        "postgresql://h/db?application_name=x%2526password%253DCANARY",
        "postgresql://h/db?application_name=x%26%70assword%3DCANARY",
        "postgresql://h/db?APPLICATION_NAME=x%26api_key%3DCANARY",
        "postgresql://h/db?user=a%00pwd%3DCANARY",
        "postgresql://h/db?host=u%3ACANARY%40h",
        "postgresql://h/db?dbname=postgresql%3A%2F%2Fu%3ACANARY%40h%2Fdb",
        "postgresql://h/db?dbname=password%3DCANARY%20host%3Dx",
        "postgresql://h/db?options=-c%20x.password%3DCANARY",
        "postgresql://h/db#%70assword=CANARY",
        "postgresql://h/db%3Fpassword%3DCANARY",
        "postgresql://h/db%26secret%3DCANARY",
        "postgresql://u%3ACANARY@h/db",
        "postgresql://u%253ACANARY@h/db",
        "postgresql://u:CANARY%40h/db",
        "postgresql://h1,u:CANARY@h2/db",
        "host=h password='a CANARY' dbname=x",
    ],
)
def test_an_encoded_secret_is_not_shown(url: str) -> None:
    """`application_name=x%26password%3D…` showed it: the name of its parameter has no secret."""
    assert "CANARY" not in redact(url)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ann%40corp@h:5432/db?application_name=nightly%20load&user=ann%40corp",
        "postgresql://h/sales%2Fdb?sslrootcert=/etc/ssl/ca%3D1.pem",
        "sqlite:////data/user%3Dann/a:b@c/catalog.db",
        "duckdb:////data/100%25/catalog.db",
    ],
)
def test_a_url_without_a_secret_is_shown_whole(url: str) -> None:
    """Where it is changed, it counts as one with a password, which must not travel."""
    assert redact(url) == url
