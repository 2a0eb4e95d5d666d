"""Pure. The Hilbert curve through a grid of two to four columns.

Cells that follow each other on the curve are neighbours in the grid, so rows that lie together on
it have similar values in every column.

Source: J. Skilling, "Programming the Hilbert curve", AIP Conference Proceedings 707 (2004).
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc


def hilbert_keys(cells: Sequence[pa.Array], bits: int) -> pa.Array:
    """The places on the curve of cells of a cube with 2^`bits` cells along each side.

    `cells` has the coordinates, an array of integers for each dimension, at least two. The result
    are integers of 64 bits: `bits` times the number of dimensions is below 64.
    """
    axes = [cell.cast(pa.int64()) for cell in cells]
    last = len(axes) - 1
    for bit in range(bits - 1, 0, -1):
        below = (1 << bit) - 1
        for place in range(len(axes)):
            is_set = _bit(axes[place], bit)
            swapped = pc.bit_wise_and(pc.bit_wise_xor(axes[0], axes[place]), below)
            swapped = pc.multiply(swapped, pc.subtract(1, is_set))
            axes[0] = pc.bit_wise_xor(axes[0], swapped)
            axes[place] = pc.bit_wise_xor(axes[place], swapped)
            axes[0] = pc.bit_wise_xor(axes[0], pc.multiply(is_set, below))
    for place in range(1, len(axes)):
        axes[place] = pc.bit_wise_xor(axes[place], axes[place - 1])
    turned = pc.multiply(axes[0], 0)
    for bit in range(bits - 1, 0, -1):
        turned = pc.bit_wise_xor(turned, pc.multiply(_bit(axes[last], bit), (1 << bit) - 1))
    axes = [pc.bit_wise_xor(axis, turned) for axis in axes]
    key = pc.multiply(axes[0], 0)
    for bit in range(bits - 1, -1, -1):
        for axis in axes:
            key = pc.bit_wise_or(pc.shift_left(key, 1), _bit(axis, bit))
    return key


def _bit(numbers: pa.Array, bit: int) -> pa.Array:
    return pc.bit_wise_and(pc.shift_right(numbers, bit), 1)
