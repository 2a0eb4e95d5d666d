"""An HTTP proxy on loopback that fails some requests, by status 500 or a reset, or delays them."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import threading
import time
from types import TracebackType

_METHODS = (b"GET ", b"PUT ", b"POST ", b"HEAD ", b"DELETE ")
STALL_SECONDS = 5.0
_ERROR = (
    b"HTTP/1.1 500 Internal Server Error\r\nContent-Type: application/xml\r\n"
    b"Content-Length: 0\r\nConnection: close\r\n\r\n"
)


class FailingProxy:
    """Forwards to a port; each request fails with `probability`, before or after it is done."""

    def __init__(self, port: int, probability: float, seed: int = 1) -> None:
        self.target = ("127.0.0.1", port)
        self.probability = probability
        self.stall_probability = 0.0  # of a request that waits for `STALL_SECONDS`
        self.fail_after: int | None = None  # so many requests, and the store is gone
        self.requests = 0
        self.failed = 0
        self.stalled = 0
        self.answered_bytes = 0
        self.asked: list[str] = []  # the first line of each request
        self._random = random.Random(seed)
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> FailingProxy:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _choose(self) -> str | None:
        with self._lock:
            self.requests += 1
            if self.fail_after is not None and self.requests > self.fail_after:
                self.failed += 1
                return "reset"
            if self.stall_probability and self._random.random() < self.stall_probability:
                self.stalled += 1
                return "stall"
            if self._random.random() >= self.probability:
                return None
            self.failed += 1
            return self._random.choice(["error", "reset", "reset after", "half"])

    def _serve(self, client: socket.socket) -> None:
        server = socket.create_connection(self.target)
        state: dict[str, str | None] = {"fail": None}
        back = threading.Thread(target=self._back, args=(server, client, state), daemon=True)
        back.start()
        with contextlib.suppress(OSError):
            while data := client.recv(65536):
                if data.startswith(_METHODS):
                    self.asked.append(data.split(b"\r\n", 1)[0].decode())
                    fail = self._choose()
                    if fail == "error":
                        client.sendall(_ERROR)
                        break
                    if fail == "reset":
                        _reset(client)
                        break
                    if fail == "stall":
                        time.sleep(STALL_SECONDS)
                        fail = None
                    state["fail"] = fail
                server.sendall(data)
        _close(server)
        _close(client)

    def _back(
        self, server: socket.socket, client: socket.socket, state: dict[str, str | None]
    ) -> None:
        """Answers come whole, not at all (the request was carried out!), or in part."""
        with contextlib.suppress(OSError):
            while data := server.recv(65536):
                if state["fail"] == "half":
                    client.sendall(data[: len(data) // 2])
                if state["fail"] is not None:
                    _reset(client)
                    break
                with self._lock:
                    self.answered_bytes += len(data)
                client.sendall(data)
        _close(client)
        _close(server)


def _reset(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        # Another thread waits for data of this socket: closing alone would not end it.
        one.shutdown(socket.SHUT_RDWR)
    one.close()


def _close(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()
