"""A PostgreSQL server that is not local proves that it is the one that the URL names."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

import lakehouse_source as lake
from lakehouse_source.catalog import open_catalog
from lakehouse_source.catalog.backends.postgres_address import application_name, connection_string
from lakehouse_source.catalog.base import UrlOfQuery
from tests.edges.object_stores import free_port

HOST = "db.example.test"


def _programs() -> Path | None:
    """The programs of an installed PostgreSQL that has TLS; the one of pip has none."""
    for folder in sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True):
        asked = subprocess.run(
            [folder / "pg_config", "--configure"], capture_output=True, text=True, check=False
        )
        if "openssl" in asked.stdout:
            return folder
    return None


PROGRAMS = _programs()
pytestmark = [
    pytest.mark.skipif(
        PROGRAMS is None or shutil.which("openssl") is None, reason="no PostgreSQL with TLS"
    ),
    pytest.mark.slow,
]


class TlsServer:
    """A server on 127.0.0.1 that trusts everybody."""

    def __init__(self, folder: Path) -> None:
        assert PROGRAMS is not None
        self.folder, self.port = folder, free_port()
        # PostgreSQL refuses to run as root.
        self._user = "postgres" if os.getuid() == 0 else None
        if self._user is not None:
            shutil.chown(folder, self._user)
        self._run(PROGRAMS / "initdb", "-A", "trust", "-U", "postgres", "-N", "-D", self._data)
        for name in (HOST, "other.example.test"):
            self._certificate(name)
        options = f"-p {self.port} -k {folder} -c listen_addresses=127.0.0.1 -c fsync=off"
        self._pg_ctl("start", "-w", "-l", str(folder / "log"), "-o", options)

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    def url(self, parameters: str = "", host: str = HOST) -> str:
        database = "postgres" if not parameters else f"postgres?{parameters}"
        mark = "&" if parameters else "?"
        return f"postgresql://postgres@{host}:{self.port}/{database}{mark}hostaddr=127.0.0.1"

    def certificate(self, name: str) -> Path:
        return self._data / f"{name}.crt"

    def show(self, name: str | None) -> None:
        """Show the certificate of a name from now on, or none."""
        local = f"host={self.folder} port={self.port} user=postgres dbname=postgres"
        with psycopg.connect(local, autocommit=True) as connection:
            connection.execute(b"ALTER SYSTEM SET ssl = off")
            if name is not None:
                for setting, end in (("ssl_cert_file", "crt"), ("ssl_key_file", "key")):
                    text = f"ALTER SYSTEM SET {setting} = '{name}.{end}'"
                    connection.execute(text.encode())
                connection.execute(b"ALTER SYSTEM SET ssl = on")
            connection.execute(b"SELECT pg_reload_conf()")
        wanted = b"N" if name is None else b"S"
        give_up = time.monotonic() + 30
        while self._offers() != wanted or (name is not None and not self._shows(name)):
            assert time.monotonic() < give_up
            time.sleep(0.05)

    def stop(self) -> None:
        self._pg_ctl("stop", "-m", "immediate")

    def _offers(self) -> bytes:
        import socket

        with socket.create_connection(("127.0.0.1", self.port), 10) as asking:
            asking.sendall(b"\0\0\0\x08\x04\xd2\x16\x2f")
            return asking.recv(1)

    def _shows(self, name: str) -> bool:
        root = self.certificate(name)
        given = f"host={name} hostaddr=127.0.0.1 port={self.port} user=postgres dbname=postgres"
        try:
            psycopg.connect(f"{given} sslmode=verify-full sslrootcert={root}").close()
        except psycopg.OperationalError:
            return False
        return True

    def _certificate(self, name: str) -> None:
        key, found = self._data / f"{name}.key", self.certificate(name)
        self._run(
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-keyout", key, "-out", found, "-subj", f"/CN={name}"),
            *("-addext", f"subjectAltName=DNS:{name}"),
        )
        key.chmod(0o600)

    def _pg_ctl(self, *arguments: str) -> None:
        assert PROGRAMS is not None
        self._run(PROGRAMS / "pg_ctl", "-D", self._data, *arguments)

    def _run(self, *command: str | Path) -> None:
        subprocess.run(
            command,
            user=self._user,
            cwd=self.folder,
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=120,
        )


@pytest.fixture(scope="module")
def server() -> Iterator[TlsServer]:
    folder = Path(tempfile.mkdtemp(prefix="plake-tls-"))
    if os.getuid() == 0 and "postgres" not in {one.pw_name for one in pwd.getpwall()}:
        pytest.skip("root without a user postgres")
    folder.chmod(0o755)
    made = TlsServer(folder)
    try:
        yield made
    finally:
        made.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _reach(url: str) -> str:
    """Use the catalog; what its error says, or nothing."""
    try:
        with open_catalog(url) as catalog, catalog.write():
            pass
    except lake.CatalogUnavailableError as error:
        return str(error)
    return ""


@pytest.mark.long
@pytest.mark.parametrize("kind", [str, UrlOfQuery])
def test_a_host_that_is_not_local_needs_its_certificate(
    kind: type[str], server: TlsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = f"sslrootcert={server.certificate(HOST)}"
    server.show(HOST)
    assert _reach(kind(server.url(root))) == ""
    # Nobody on this machine trusts who made it.
    assert "certificate verify failed" in _reach(kind(server.url()))
    monkeypatch.setenv("SSL_CERT_FILE", str(server.certificate(HOST)))
    assert _reach(kind(server.url())) == ""


@pytest.mark.long
@pytest.mark.parametrize("kind", [str, UrlOfQuery])
def test_a_server_with_the_certificate_of_another_is_refused(
    kind: type[str], server: TlsServer
) -> None:
    server.show("other.example.test")
    root = f"sslrootcert={server.certificate('other.example.test')}"
    assert "does not match host name" in _reach(kind(server.url(root)))
    assert "certificate verify failed" in _reach(kind(server.url()))


@pytest.mark.parametrize("kind", [str, UrlOfQuery])
def test_a_server_without_a_certificate_is_refused(kind: type[str], server: TlsServer) -> None:
    server.show(None)
    assert "server does not support SSL" in _reach(kind(server.url()))


@pytest.mark.parametrize("kind", [str, UrlOfQuery])
def test_what_the_url_says_wins_and_a_local_host_needs_nothing(
    kind: type[str], server: TlsServer
) -> None:
    server.show(None)
    for mode in ("disable", "prefer"):
        assert _reach(kind(server.url(f"sslmode={mode}"))) == ""
    for host in ("localhost", "127.0.0.1"):
        assert _reach(kind(server.url(host=host))) == ""
    server.show("other.example.test")
    assert _reach(kind(server.url("sslmode=require"))) == ""


def test_the_environment_may_say_how_a_program_connects_but_not_a_query(
    server: TlsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.show(None)
    monkeypatch.setenv("PGSSLMODE", "disable")
    assert _reach(server.url()) == ""
    assert "server does not support SSL" in _reach(UrlOfQuery(server.url()))


def test_a_name_of_the_environment_is_not_local_either(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGHOST", HOST)
    assert "sslmode=verify-full" in connection_string("postgresql://u@/db", "")
    monkeypatch.setenv("PGHOST", "/run/postgresql")
    assert "sslmode" not in connection_string("postgresql://u@/db", "")
    for host in (f"localhost,{HOST}", "localhost.example.test", "127.example.test", "10.0.0.1"):
        assert "verify-full" in connection_string(f"postgresql://u@{host}/db", ""), host


def test_the_server_shows_who_is_connected(
    server: TlsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.show(None)
    shown = "SELECT application_name FROM pg_stat_activity WHERE pid = pg_backend_pid()"
    monkeypatch.setattr("sys.argv", ["/jobs/" + "ä nightly" * 20 + ".py"])

    def seen(parameters: str) -> str:
        url = server.url(parameters, host="localhost")
        with psycopg.connect(connection_string(url, "")) as connection:
            row = connection.execute(shown.encode()).fetchone()
        assert row is not None
        return str(row[0])

    name = pwd.getpwuid(os.getuid()).pw_name
    assert seen("").startswith(f"plake {lake.__version__} {name} ? nightly")
    assert seen("") == application_name()
    assert len(seen("")) == 63
    assert seen("application_name=mine") == "mine"
