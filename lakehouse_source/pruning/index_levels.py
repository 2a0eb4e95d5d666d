"""Pure. Levels of the search index: files grouped by how far apart their keys are.

A file's level is the number of leading hexadecimal digits that its lower and upper keys
share. If a file of a level has a lower key up to `highest`, its upper key begins with digits that
are not above those of `highest`, and the search of the level stops there. A level below the true
level is correct too, but makes a search read more files.

Source: the relational interval tree (Kriegel, Poetke, Seidl, VLDB 2000), whose nodes
have two children; with sixteen a search asks for a quarter of the levels.
"""

from __future__ import annotations

from collections.abc import Sequence

# Above every key, because keys have at most 40 bytes. A prefix followed by this text is above all
# keys with the prefix.
ABOVE = b"\xff" * 48


def level(lower: bytes, upper: bytes) -> int:
    """The length in hexadecimal digits of the common prefix of two keys."""
    size = min(len(lower), len(upper))
    different = int.from_bytes(lower[:size], "big") ^ int.from_bytes(upper[:size], "big")
    return (8 * size - different.bit_length()) // 4


def last_of_level(highest: bytes, level: int) -> bytes:
    """The largest possible upper key of a file of a level whose lower key is up to `highest`."""
    whole, half = divmod(level, 2)
    if half and len(highest) > whole:
        return highest[:whole] + bytes((highest[whole] | 0x0F,)) + ABOVE
    return highest[:whole] + ABOVE


def spans(
    ranges: Sequence[tuple[bytes, bytes]], level: int
) -> list[tuple[int, bytes, bytes, bytes]]:
    """Where to find the files of a level that overlap one of the ascending, disjoint `ranges`.

    Each span is `(level, first, last, highest)`: the files wanted have an upper key from
    `first` to `last` and a lower key up to `highest`. Spans do not overlap.
    """
    result: list[tuple[int, bytes, bytes, bytes]] = []
    first, last, highest = b"", b"", b""
    for lower, upper in ranges:
        if last and lower <= last:
            last, highest = last_of_level(upper, level), upper
            continue
        if last:
            result.append((level, first, last, highest))
        first, last, highest = lower, last_of_level(upper, level), upper
    if last:
        result.append((level, first, last, highest))
    return result
