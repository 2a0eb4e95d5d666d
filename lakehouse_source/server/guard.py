"""Door. Who may ask and how much; a line in the log and a count for each request."""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

LOG = logging.getLogger("plake.server")
MOST_BODY_BYTES = 4 * 1024 * 1024
HEALTH = "/health"
_BUCKETS = (0.005, 0.025, 0.1, 0.5, 2.5, 10.0)

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]


class Metrics:
    """Counts of requests, and how long they took in seconds, as Prometheus reads them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[tuple[str, int]] = Counter()
        self._buckets: Counter[float] = Counter()
        self._seconds = 0.0
        self._requests = 0

    def add(self, method: str, status: int, seconds: float) -> None:
        with self._lock:
            self._counts[method, status] += 1
            self._requests += 1
            self._seconds += seconds
            for bucket in _BUCKETS:
                self._buckets[bucket] += seconds <= bucket

    def text(self) -> str:
        with self._lock:
            lines = ["# TYPE plake_requests_total counter"]
            lines += [
                f'plake_requests_total{{method="{method}",status="{status}"}} {count}'
                for (method, status), count in sorted(self._counts.items())
            ]
            lines.append("# TYPE plake_request_seconds histogram")
            lines += [
                f'plake_request_seconds_bucket{{le="{bucket}"}} {self._buckets[bucket]}'
                for bucket in _BUCKETS
            ]
            lines.append(f'plake_request_seconds_bucket{{le="+Inf"}} {self._requests}')
            lines.append(f"plake_request_seconds_sum {self._seconds:.6f}")
            lines.append(f"plake_request_seconds_count {self._requests}")
        return "\n".join(lines) + "\n"


_METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"))


class Guard:
    """Checks the token and the size of the body before an application is asked."""

    def __init__(self, application: Application, token: str | None, metrics: Metrics) -> None:
        self._application = application
        self._token = None if token is None else _digest(token.encode())
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._application(scope, receive, send)
            return
        started = time.perf_counter()
        status = 500

        async def told(message: MutableMapping[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._ask(scope, receive, told)
        finally:
            seconds = time.perf_counter() - started
            method = scope["method"] if scope["method"] in _METHODS else "OTHER"
            self._metrics.add(method, status, seconds)
            # Neither the query nor a header is logged: they may hold secrets.
            LOG.info("%s %r %d %.1f ms", method, scope["path"][:500], status, 1000 * seconds)

    async def _ask(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self._may(scope):
            text = "The request has no token that this server knows."
            await _refuse(send, 401, "NotAuthorizedException", text)
            return
        body = bytearray()
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body += message.get("body", b"")
            more = message.get("more_body", False)
            if len(body) > MOST_BODY_BYTES:
                text = f"The body has more than {MOST_BODY_BYTES} bytes."
                await _refuse(send, 413, "BadRequestException", text)
                return
        given = False

        async def replay() -> MutableMapping[str, Any]:
            nonlocal given
            if given:
                return await receive()
            given = True
            return {"type": "http.request", "body": bytes(body), "more_body": False}

        await self._application(scope, replay, send)

    def _may(self, scope: Scope) -> bool:
        if self._token is None or scope["path"] == HEALTH:
            return True
        found = [value for name, value in scope["headers"] if name.lower() == b"authorization"]
        given = found[0] if len(found) == 1 else b""
        kind, _, token = given.partition(b" ")
        # The time of this comparison tells neither how much of the token is right nor how long it
        # is.
        is_same = hmac.compare_digest(_digest(token.strip()), self._token)
        return is_same and kind.lower() == b"bearer"


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()


async def _refuse(send: Send, status: int, kind: str, text: str) -> None:
    content = json.dumps({"error": {"message": text, "type": kind, "code": status}}).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(content)).encode()),
    ]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": content})
