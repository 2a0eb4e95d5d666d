"""Door. Who may ask and how much; a line in the log and a count for each request.

A page in a browser can let the browser ask this server: the browser says so by `Origin`, or names
another host (DNS rebinding), and sends JSON only after it asked. So these three are checked.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import json
import logging
import re
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from typing import Any, NamedTuple

LOG = logging.getLogger("plake.server")
MOST_BODY_BYTES = 4 * 1024 * 1024
# More requests at once are answered with 503. Each may hold a body, and its plan.
MOST_REQUESTS = 32
BODY_SECONDS = 30.0
# How long a client may take to read a part of an answer.
SEND_SECONDS = 60.0
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


class Refusal(NamedTuple):
    """Why a request is not answered."""

    status: int
    kind: str
    text: str


_NO_TOKEN = Refusal(
    401, "NotAuthorizedException", "The request has no token that this server knows."
)
_BUSY = Refusal(503, "ServiceUnavailableException", "Too many requests at once: try again.")
_TOO_LARGE = Refusal(413, "BadRequestException", f"The body has more than {MOST_BODY_BYTES} bytes.")
_TOO_SLOW = Refusal(
    408, "BadRequestException", f"The body did not arrive within {BODY_SECONDS:.0f} seconds."
)
_TWO_LENGTHS = Refusal(
    400, "BadRequestException", "Give one Content-Length, or Transfer-Encoding, and not both."
)
_ORIGIN = Refusal(
    403, "ForbiddenException", "Pages in browsers may not ask this server: the request has Origin."
)
_NO_JSON = Refusal(
    415, "BadRequestException", "A body must be JSON: send Content-Type: application/json."
)


class Guard:
    """Checks who asks, and how much, before an application is asked.

    `hosts` are names in `Host` that are known, besides those of this machine. Without a token a
    name must be known. With a token any name will do where no `hosts` are given: no page has the
    token.
    """

    def __init__(
        self,
        application: Application,
        token: str | None,
        metrics: Metrics,
        hosts: Collection[str] = (),
    ) -> None:
        self._application = application
        self._token = None if token is None else _digest(token.encode())
        self._metrics = metrics
        self._hosts = frozenset(host.lower().strip("[]") for host in hosts)
        self._running = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._application(scope, receive, send)
            return
        started = time.perf_counter()
        status = 500

        async def respond(message: MutableMapping[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await asyncio.wait_for(send(message), SEND_SECONDS)

        try:
            await self._serve(scope, receive, respond)
        finally:
            seconds = time.perf_counter() - started
            method = scope["method"] if scope["method"] in _METHODS else "OTHER"
            self._metrics.add(method, status, seconds)
            # Neither the query nor a header is logged: they may hold secrets.
            LOG.info("%s %r %d %.1f ms", method, scope["path"][:500], status, 1000 * seconds)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self._refusal(scope)
        if refusal is not None:
            await _refuse(send, refusal)
            return
        self._running += 1
        try:
            await self._respond(scope, receive, send)
        finally:
            self._running -= 1

    async def _respond(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            body = await asyncio.wait_for(_body(receive), BODY_SECONDS)
        except asyncio.TimeoutError:
            await _refuse(send, _TOO_SLOW)
            return
        if body is None:
            return
        if len(body) > MOST_BODY_BYTES:
            await _refuse(send, _TOO_LARGE)
            return
        if body and not _is_json(_headers(scope, b"content-type")):
            await _refuse(send, _NO_JSON)
            return
        given = False

        async def replay() -> MutableMapping[str, Any]:
            nonlocal given
            if given:
                return await receive()
            given = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self._application(scope, replay, send)

    def _refusal(self, scope: Scope) -> Refusal | None:
        """What the headers say against a request."""
        lengths, encodings = (
            _headers(scope, name) for name in (b"content-length", b"transfer-encoding")
        )
        if len(lengths) + len(encodings) > 1:
            return _TWO_LENGTHS
        host = _headers(scope, b"host")
        if not self._knows([one.decode("latin-1") for one in host]):
            text = "This server does not know the name in Host. Its option --allowed-host adds one."
            return Refusal(403, "ForbiddenException", text)
        if _headers(scope, b"origin"):
            return _ORIGIN
        if not self._may(scope):
            return _NO_TOKEN
        return _BUSY if self._running >= MOST_REQUESTS else None

    def _knows(self, hosts: list[str]) -> bool:
        if self._token is not None and not self._hosts:
            return True
        if len(hosts) != 1:
            return False
        name = _without_port(hosts[0]).lower()
        return name in self._hosts or is_loopback(name)

    def _may(self, scope: Scope) -> bool:
        if self._token is None or scope["path"] == HEALTH:
            return True
        found = _headers(scope, b"authorization")
        given = found[0] if len(found) == 1 else b""
        kind, _, token = given.partition(b" ")
        # The time of this comparison tells neither how much of the token is right nor how long it
        # is.
        is_same = hmac.compare_digest(_digest(token.strip()), self._token)
        return is_same and kind.lower() == b"bearer"


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()


def _headers(scope: Scope, wanted: bytes) -> list[bytes]:
    return [value for name, value in scope["headers"] if name.lower() == wanted]


def _is_json(types: list[bytes]) -> bool:
    return len(types) == 1 and types[0].partition(b";")[0].strip().lower() == b"application/json"


def is_loopback(host: str) -> bool:
    """Tell whether only this machine reaches a host of this name."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _without_port(host: str) -> str:
    found = re.fullmatch(r"(?:\[([^\]]*)\]|([^:]*))(?::\d+)?", host)
    return (found[1] or found[2]) if found else host


async def _body(receive: Receive) -> bytes | None:
    """The body of a request, or of one that is too large its beginning; None: the client left."""
    body, more = bytearray(), True
    while more and len(body) <= MOST_BODY_BYTES:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body += message.get("body", b"")
        more = message.get("more_body", False)
    return bytes(body)


async def _refuse(send: Send, refusal: Refusal) -> None:
    status, kind, text = refusal
    content = json.dumps({"error": {"message": text, "type": kind, "code": status}}).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(content)).encode()),
        # The rest of the request, whose length may be in doubt, is no next request.
        (b"connection", b"close"),
    ]
    if status == 503:
        headers.append((b"retry-after", b"1"))
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": content})
