"""A server that asks every client for its password in plain text, and keeps what it is sent."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_SSL_REQUEST, _GSS_REQUEST = 80877103, 80877104


class AskingServer:
    """What clients of a false PostgreSQL server sent; `port` is on 127.0.0.1."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self.sent: list[bytes] = []
        self._nobody_inside = threading.Event()
        self._nobody_inside.set()
        threading.Thread(target=self._serve, daemon=True).start()

    @property
    def clients(self) -> int:
        """How many clients connected and left until now."""
        # A client may have its error before this server knows that the client has gone.
        assert self._nobody_inside.wait(30)
        return len(self.sent)

    def got(self, text: str) -> bool:
        """Tell whether a client sent a text."""
        assert self._nobody_inside.wait(30)
        return any(text.encode() in one for one in self.sent)

    def close(self) -> None:
        self._listening.close()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            self._nobody_inside.clear()
            with client:
                client.settimeout(10)
                try:
                    asked = client.recv(4096)
                    while struct.unpack("!II", asked[:8])[1] in (_SSL_REQUEST, _GSS_REQUEST):
                        client.sendall(b"N")
                        asked = client.recv(4096)
                    client.sendall(b"R" + struct.pack("!II", 8, 3))
                    self.sent.append(asked + client.recv(4096))
                except (OSError, struct.error):
                    self.sent.append(b"")
            self._nobody_inside.set()


@contextmanager
def asking_server() -> Iterator[AskingServer]:
    server = AskingServer()
    try:
        yield server
    finally:
        server.close()
