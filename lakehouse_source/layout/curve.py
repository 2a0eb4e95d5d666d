"""Pure. The Hilbert curve through a grid of two to four columns.

Cells that follow each other on the curve are neighbours in the grid, so rows that lie together on
it have similar values in every column.

Source: J. Skilling, "Programming the Hilbert curve", AIP Conference Proceedings 707 (2004).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc


def hilbert_keys(cells: Sequence[pa.Array], bits: int) -> pa.Array:
    """The places on the curve of cells of a cube with 2^`bits` cells along each side.

    `cells` has the coordinates, an array of integers for each dimension, at least two. The result
    are integers of 64 bits: `bits` is at most 14, and times the number of dimensions below 64.
    """
    axes = [cell.cast(_NARROW) for cell in cells]
    last = len(axes) - 1
    for bit in range(bits - 1, 0, -1):
        below = _number((1 << bit) - 1)
        for place in range(len(axes)):
            is_set = _bit(axes[place], bit)
            swapped = pc.bit_wise_and(pc.bit_wise_xor(axes[0], axes[place]), below)
            swapped = pc.multiply(swapped, pc.bit_wise_xor(is_set, _number(1)))
            axes[0] = pc.bit_wise_xor(axes[0], swapped)
            axes[place] = pc.bit_wise_xor(axes[place], swapped)
            axes[0] = pc.bit_wise_xor(axes[0], pc.multiply(is_set, below))
    for place in range(1, len(axes)):
        axes[place] = pc.bit_wise_xor(axes[place], axes[place - 1])
    turned = pc.multiply(axes[0], _number(0))
    for bit in range(bits - 1, 0, -1):
        below = _number((1 << bit) - 1)
        turned = pc.bit_wise_xor(turned, pc.multiply(_bit(axes[last], bit), below))
    spread = _spread(bits, len(axes))
    key = None
    for axis in axes:
        mine = spread.take(pc.bit_wise_xor(axis, turned))
        key = mine if key is None else pc.bit_wise_or(pc.shift_left(key, 1), mine)
    return key


# Coordinates are short, so that the processor works on many at once.
_NARROW = pa.int16()


def _number(value: int) -> pa.Scalar:
    return pa.scalar(value, _NARROW)


def _bit(numbers: pa.Array, bit: int) -> pa.Array:
    return pc.bit_wise_and(pc.shift_right(numbers, _number(bit)), _number(1))


@lru_cache
def _spread(bits: int, dimensions: int) -> pa.Array:
    """Each coordinate with as many zeros behind each of its bits as there are other dimensions."""
    return pa.array(
        [
            sum((value >> bit & 1) << bit * dimensions for bit in range(bits))
            for value in range(1 << bits)
        ],
        pa.int64(),
    )
