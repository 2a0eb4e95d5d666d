"""Door. The server as a process of its own, which `plake serve` starts, and its connections.

uvicorn has limits of its own, for what it has read whole. A client that opens connections and says
nothing, or a header a minute, needs others.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.h11_impl import H11Protocol

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


MOST_CONNECTIONS = 128
HEADERS_SECONDS = 10.0


class Limited(H11Protocol):
    """Closes a connection whose headers do not come in time.

    A new connection takes the place of the one that has been idle the longest. Where every one is
    being answered, the new one is closed.
    """

    _waiting: asyncio.TimerHandle | None = None
    _idle_since = 0.0

    def connection_made(self, transport: Any) -> None:
        if len(self.connections) >= MOST_CONNECTIONS:
            others = [one for one in self.connections if isinstance(one, Limited)]
            idle = [one for one in others if not one._is_busy() or one.transport.is_closing()]
            if not idle:
                transport.abort()
                return
            longest = min(idle, key=lambda one: one._idle_since)
            longest.transport.abort()
            self.connections.discard(longest)
        super().connection_made(transport)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        if self.transport is not None:  # else it was never let in
            super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        self._idle_since = self.loop.time()
        super().on_response_complete()

    def _is_busy(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _watch(self) -> None:
        """Let the time run from the first byte of a request to the end of its headers."""
        if self._is_busy():
            self._forget()
        elif self._waiting is None and not self.transport.is_closing():
            self._idle_since = self.loop.time()
            self._waiting = self.loop.call_later(HEADERS_SECONDS, self.transport.abort)

    def _forget(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None
