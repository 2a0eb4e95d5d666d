"""Edge. Runs streams of tables in parallel and returns the tables in order, in bounded memory."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import pyarrow as pa

Item = TypeVar("Item")


def in_order(
    items: Sequence[Item],
    open_stream: Callable[[Item], Iterator[pa.Table]],
    *,
    width: int,
    buffer_bytes: int,
) -> Generator[tuple[Item, pa.Table], None, None]:
    """The tables of the streams of all items, each with its item, in the order of the items.

    `width` threads read ahead. They pause while waiting tables have more than `buffer_bytes`; each
    thread also holds one table.
    """
    waiting = _Waiting(buffer_bytes)

    def read(number: int) -> None:
        try:
            for table in open_stream(items[number]):
                if not waiting.put(number, table):
                    return
        finally:
            waiting.end(number)

    with ThreadPoolExecutor(width, thread_name_prefix="plake-read") as pool:
        # Futures of few items at a time: there may be a million.
        ahead = min(len(items), 2 * width)
        futures: deque[Future[None]] = deque(pool.submit(read, n) for n in range(ahead))
        try:
            for number, item in enumerate(items):
                for table in waiting.tables(number):
                    yield item, table
                    del table
                futures.popleft().result()  # raises what the stream raised
                if number + ahead < len(items):
                    futures.append(pool.submit(read, number + ahead))
        finally:
            waiting.stop()
            for future in futures:
                future.cancel()


class _Waiting:
    """Tables that wait for their turn, by the number of their stream."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._size_bytes = 0
        self._tables: dict[int, deque[pa.Table]] = {}
        self._ended: set[int] = set()
        self._turn = 0
        self._blocked = 0
        self._stopped = False
        self._changed = threading.Condition()

    def put(self, number: int, table: pa.Table) -> bool:
        """Let a table wait, as soon as there is room; False: the reader has stopped."""
        size = table.get_total_buffer_size()

        def has_room() -> bool:
            # The stream whose turn it is never pauses, because only later streams fill the buffer.
            wanted = number == self._turn and not self._tables.get(number)
            return self._stopped or wanted or self._size_bytes + size <= self._limit_bytes

        with self._changed:
            if not has_room():
                self._blocked += 1
                self._changed.wait_for(has_room)
                self._blocked -= 1
            if not self._stopped:
                self._tables.setdefault(number, deque()).append(table)
                self._size_bytes += size
                self._tell(number)
            return not self._stopped

    def _tell(self, number: int) -> None:
        # To wake the caller for each table of other streams takes as long as to read a small file.
        if number == self._turn:
            self._changed.notify_all()

    def end(self, number: int) -> None:
        """Mark that a stream has no more tables."""
        with self._changed:
            self._ended.add(number)
            self._tell(number)

    def tables(self, number: int) -> Iterator[pa.Table]:
        """The tables of a stream, whose turn begins now."""
        with self._changed:
            self._turn = number
            self._changed.notify_all()
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._tables.get(number) or number in self._ended)
                if not self._tables.get(number):
                    self._ended.discard(number)
                    self._tables.pop(number, None)
                    return
                table = self._tables[number].popleft()
                self._size_bytes -= table.get_total_buffer_size()
                if self._blocked:
                    self._changed.notify_all()
            yield table
            del table

    def stop(self) -> None:
        """Let all streams end."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
