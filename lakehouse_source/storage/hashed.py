"""Edge. The SHA-256 of a file: while it is written, without reading it again, and as stored."""

from __future__ import annotations

import hashlib
import io
import tempfile
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pyarrow as pa

from lakehouse_source.errors import CorruptDatasetError

# A Parquet writer writes page by page, with a call from C++ to Python for each page. With pieces of
# this size, a write of 10M rows x 8 columns (198 MB) took 1.00 times as long as without a hash;
# with pages, 1.1 times.
_PIECE_BYTES = 256 * 1024
# Below the first number of pieces, starting a thread is not worth it. The second is how many pieces
# may wait for the thread.
_INLINE_PIECES = 4
_MOST_WAITING = 16
_READ_BYTES = 4 * 1024 * 1024
# Files up to this size are verified in memory; several are read at a time.
_MOST_IN_MEMORY_BYTES = 64 * 1024 * 1024


class HashedOutput:
    """A new file whose SHA-256 is known when it is closed. Write to `stream`.

    A thread computes the hash while later data is encoded: `hashlib` releases Python's lock.
    """

    def __init__(self, file: pa.NativeFile) -> None:
        self._tap = _Tap(file)
        self.stream = pa.BufferedOutputStream(pa.PythonFile(self._tap, mode="w"), _PIECE_BYTES)

    def hold(self) -> None:
        """Keep what is written from now on, so that `release` can change it."""
        self.stream.flush()
        self._tap.held = []

    def release(self, change: Callable[[bytes], bytes]) -> None:
        """Write what `hold` kept, changed."""
        self.stream.flush()
        held, self._tap.held = b"".join(self._tap.held or ()), None
        self.stream.write(change(held))

    @property
    def size_bytes(self) -> int:
        """The bytes of the file so far. `stream.tell()` also counts those that `hold` kept."""
        self.stream.flush()
        return self._tap.tell()

    def close(self) -> bytes:
        """Close the file; its SHA-256.

        Raises:
            OSError: the last bytes could not be stored.
        """
        try:
            self.stream.close()
            return self._tap.digest()
        finally:
            self._tap.stop()

    def abandon(self) -> None:
        """Close the incomplete file, without publishing it if the store allows this."""
        self._tap.stop()
        abort = getattr(self._tap.file, "abort", None)
        if abort is not None:
            abort()
        elif not self.stream.closed:
            self.stream.close()


class _Tap:
    """Passes bytes on to a file, and hashes them. `pa.PythonFile` calls it."""

    def __init__(self, file: pa.NativeFile) -> None:
        self.file = file
        self._hash = hashlib.sha256()
        self._pieces = 0
        self._thread: ThreadPoolExecutor | None = None
        self._waiting: deque[Future[None]] = deque()
        self.held: list[bytes] | None = None

    def write(self, data: Any) -> int:
        if self.held is not None:
            self.held.append(bytes(data))
            return len(data)
        self.file.write(data)
        self._pieces += 1
        if self._pieces <= _INLINE_PIECES:
            self._hash.update(data)
            return len(data)
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="plake-hash")
        self._waiting.append(self._thread.submit(self._hash.update, _kept(data)))
        if len(self._waiting) > _MOST_WAITING:
            self._waiting.popleft().result()
        return len(data)

    def digest(self) -> bytes:
        while self._waiting:
            self._waiting.popleft().result()
        return self._hash.digest()

    def stop(self) -> None:
        self._waiting.clear()
        if self._thread is not None:
            self._thread.shutdown(cancel_futures=True)
            self._thread = None

    def tell(self) -> int:
        return int(self.file.tell()) + sum(map(len, self.held or ()))

    def flush(self) -> None:
        self.file.flush()

    def close(self) -> None:
        self.file.close()

    @property
    def closed(self) -> bool:
        return bool(self.file.closed)


def _kept(data: Any) -> bytes:
    # Arrow passes its own buffer, which it reuses, or bytes that it made for this call.
    return data if isinstance(data, bytes) else bytes(data)


def verified(file: pa.NativeFile, expected: bytes | None, path: str) -> pa.NativeFile:
    """The bytes of a file, kept where nobody can change them, if they have the checksum.

    None: there is no checksum, and the file itself is returned. A large file is kept in a temporary
    file: if the file were read a second time, it could have changed since.

    Raises:
        CorruptDatasetError: they have another one.
    """
    if expected is None:
        return file
    found = hashlib.sha256()
    in_memory = file.size() <= _MOST_IN_MEMORY_BYTES
    with io.BytesIO() if in_memory else tempfile.NamedTemporaryFile() as kept:
        for piece in _pieces(file):
            found.update(piece)
            kept.write(piece)
        if found.digest() != expected:
            raise CorruptDatasetError(
                path=path,
                reason=f"its SHA-256 is {found.hexdigest()}, and {expected.hex()} was committed",
            )
        if isinstance(kept, io.BytesIO):
            return pa.BufferReader(kept.getvalue())
        kept.flush()
        return pa.OSFile(kept.name)  # it has no name any more when this returns


def sha256_of(file: pa.NativeFile) -> bytes:
    """The SHA-256 of all bytes of a file that is open for random access."""
    found = hashlib.sha256()
    for piece in _pieces(file):
        found.update(piece)
    return found.digest()


def _pieces(file: pa.NativeFile) -> Iterator[pa.Buffer]:
    file.seek(0)
    while piece := file.read_buffer(_READ_BYTES):
        yield piece
