"""Door. The server as a process of its own, which `plake serve` starts."""

from __future__ import annotations

import gc
import logging
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from lakehouse_source.arguments import interval
from lakehouse_source.catalog import open_catalog
from lakehouse_source.errors import InvalidOptionError
from lakehouse_source.iceberg.metadata import NEWEST_VERSIONS
from lakehouse_source.server.guard import LOG, Application, is_loopback
from lakehouse_source.server.routes import app
from lakehouse_source.upkeep.run import Upkeep
from lakehouse_source.upkeep.steps import Settings

if TYPE_CHECKING:
    from uvicorn import Config


def serve(
    catalog: str,
    *,
    host: str = "127.0.0.1",
    port: int = 8181,
    token: str | None = None,
    tls_cert: str | None = None,
    tls_key: str | None = None,
    storage: Sequence[str] = (),
    vend_credentials: Sequence[str] = (),
    newest_versions: int = NEWEST_VERSIONS,
    allowed_hosts: Sequence[str] = (),
    maintain: str | None = None,
) -> None:
    """Serve a catalog until the process is told to end.

    `token` is `env:NAME`. `storage` and `vend_credentials` are texts `name=value`; a value
    `env:NAME` is that of an environment variable. `allowed_hosts` are names by which clients may
    call this machine. `maintain` is the time between two rounds of upkeep.
    """
    try:
        from uvicorn import Server
    except ImportError as error:
        raise InvalidOptionError(
            option="server", reason="needs uvicorn: pip install 'plake[server]'."
        ) from error
    known = _token(token)
    is_reached = not is_loopback(host)
    if known is None and is_reached:
        raise InvalidOptionError(
            option="host",
            value=host,
            reason="is reached by other machines: give --token env:NAME, and --tls-cert and "
            "--tls-key, or put a proxy with TLS in front of a server on 127.0.0.1.",
        )
    if is_reached and tls_cert is None:
        LOG.warning(
            "the token and the tables go through the network as clear text: give --tls-cert and "
            "--tls-key, or put a proxy with TLS in front of a server on 127.0.0.1"
        )
    options = _pairs("storage", storage)
    every = None if maintain is None else interval("maintain", maintain)
    opened = open_catalog(catalog, create=False)
    upkeep = None if every is None else Upkeep(opened, Settings(storage_options=options))
    application = app(
        opened,
        token=known,
        storage_options=options,
        vend_credentials=_pairs("vend-credentials", vend_credentials),
        newest_versions=newest_versions,
        allowed_hosts=allowed_hosts,
        upkeep=upkeep,
    )
    logging.getLogger("plake.server").setLevel(logging.INFO)
    # All objects that exist now stay: garbage collection, for which clients wait, need not visit
    # them.
    gc.collect()
    gc.freeze()
    server = Server(configuration(application, host=host, port=port, cert=tls_cert, key=tls_key))
    with running(upkeep, every), suppress(KeyboardInterrupt):
        server.run()


@contextmanager
def running(upkeep: Upkeep | None, every: float | None) -> Iterator[None]:
    """Upkeep in a thread of its own, which ends with the block."""
    if upkeep is None or every is None:
        yield
        return
    stop = threading.Event()
    thread = threading.Thread(target=upkeep.run, args=(every, stop), name="plake-upkeep")
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def configuration(
    application: Application,
    *,
    host: str = "127.0.0.1",
    port: int,
    cert: str | None = None,
    key: str | None = None,
) -> Config:
    """How uvicorn is to serve an application."""
    from uvicorn import Config

    from lakehouse_source.server.connections import Limited

    return Config(
        application,
        host=host,
        port=port,
        ssl_certfile=cert,
        ssl_keyfile=key,
        access_log=False,  # the guard has one, without queries
        log_level="warning",
        server_header=False,
        http=Limited,
        ws="none",
        lifespan="off",
    )


def _token(given: str | None) -> str | None:
    if given is None:
        return None
    if not given.startswith("env:"):
        # Other users of the machine see the arguments of a process.
        raise InvalidOptionError(option="token", reason="must be env:NAME, a variable's name.")
    return _variable(given, "token")


def _variable(given: str, option: str) -> str:
    value = os.environ.get(given.removeprefix("env:"), "")
    if not value:
        raise InvalidOptionError(option=option, value=given, reason="is not set, or is empty.")
    return value


def _pairs(option: str, given: Sequence[str]) -> dict[str, str]:
    found = {}
    for one in given:
        name, sign, value = one.partition("=")
        if not sign or not name:
            raise InvalidOptionError(option=option, value=name, reason="must be name=value.")
        found[name] = _variable(value, option) if value.startswith("env:") else value
    return found
