"""Door. Connections of clients: how many there are, and how long one may keep the server waiting.

uvicorn has limits of its own, for what it has read whole. A client that opens connections and says
nothing, or a header a minute, needs others.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

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
