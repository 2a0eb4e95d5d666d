"""A proxy in front of PostgreSQL that cuts connections around COMMIT, as networks do."""

from __future__ import annotations

import contextlib
import socket
import struct
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

# A simple or extended query whose text is exactly COMMIT.
_WORD = b"COMMIT\0"

# What to do with the nth COMMIT of all connections: None forwards it.
Cut = str | None
BEFORE = "before it is forwarded"
AFTER = "after it was forwarded"
ANSWERED = "after the server answered"
DOWN = "after the client has the answer; nobody is let in any more"


class CuttingProxy:
    """Listens on a Unix socket of its own; `decide(n)` says what happens to COMMIT n."""

    def __init__(self, server_folder: str, decide: Callable[[int], Cut]) -> None:
        self.server = f"{server_folder}/.s.PGSQL.5432"
        self.decide = decide
        self.down = False  # while True, connections are refused
        self.commits = 0
        self.cuts = 0
        self._lock = threading.Lock()
        self._sockets: set[socket.socket] = set()
        self._folder = tempfile.TemporaryDirectory(prefix="cut-")
        self.folder = self._folder.name
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(Path(self.folder) / ".s.PGSQL.5432"))
        self._listener.listen(64)
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> CuttingProxy:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _close(self._listener)
        with self._lock:
            open_ones = list(self._sockets)
        for one in open_ones:
            _close(one)
        self._folder.cleanup()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self.down:
                _close(client)
                continue
            server = socket.socket(socket.AF_UNIX)
            try:
                server.connect(self.server)
            except OSError:
                _close(server)
                _close(client)
                continue
            with self._lock:
                self._sockets |= {client, server}
            link = _Link(client, server)
            threading.Thread(target=self._to_server, args=(link,), daemon=True).start()
            threading.Thread(target=self._to_client, args=(link,), daemon=True).start()

    def _to_server(self, link: _Link) -> None:
        with contextlib.suppress(OSError):
            while data := link.client.recv(65536):
                if not _is_commit(data):
                    link.server.sendall(data)
                    continue
                with self._lock:
                    self.commits += 1
                    cut = self.decide(self.commits)
                    self.cuts += cut is not None
                if cut is None:
                    link.server.sendall(data)
                elif cut == BEFORE:
                    break
                elif cut == AFTER:
                    # The client is cut off before the server can have answered.
                    link.muted = True
                    link.server.sendall(data)
                    _close(link.client)
                    time.sleep(0.002)
                    break
                elif cut == DOWN:
                    self.down = link.last_answer = True
                    link.server.sendall(data)
                else:
                    link.cut_on_answer = True
                    link.server.sendall(data)
        self._end(link)

    def _to_client(self, link: _Link) -> None:
        with contextlib.suppress(OSError):
            while data := link.server.recv(65536):
                if link.cut_on_answer:
                    break
                # Asked before the client gets these bytes: what it had to get before it sent its
                # COMMIT is not the answer to that COMMIT.
                is_last = link.last_answer
                if not link.muted:
                    link.client.sendall(data)
                if is_last:
                    self._cut_others(link)
                    break
        self._end(link)

    def _cut_others(self, link: _Link) -> None:
        with self._lock:
            others = self._sockets - {link.client, link.server}
        for one in others:
            _close(one)

    def _end(self, link: _Link) -> None:
        _close(link.client)
        _close(link.server)
        with self._lock:
            self._sockets -= {link.client, link.server}


class _Link:
    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client = client
        self.server = server
        self.muted = False
        self.cut_on_answer = False
        self.last_answer = False


def _is_commit(data: bytes) -> bool:
    """Tell whether a client sent a query that is only COMMIT."""
    position = 0
    while position + 5 <= len(data):
        (length,) = struct.unpack_from(">I", data, position + 1)
        body = data[position + 5 : position + 1 + length]
        if data[position : position + 1] in (b"Q", b"P") and body.lstrip(b"\0").startswith(_WORD):
            return True
        position += 1 + length
    return False


def _close(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    with contextlib.suppress(OSError):
        one.close()
