"""Sixteen outputs at once: the two loops in which training a linear model spends its time, as vector instructions.

The weights of a block are stored side by side, features x 16, so that a feature finds those of all outputs of the block
in one cache line. By itself the compiler turns such loops into gathers, one output over many features, or passes the
sums through memory, at 5 ns per feature; with explicit vectors of 16 it takes between 1 and 2 ns. Documents come in a
random order, so what the next ones need is asked for before their turn: waiting for it would take as long again.
"""

from collections.abc import Callable
from typing import Any, cast

import numpy as np

from treelabel.core.compute import kernel
from treelabel.core.types import FloatArray

# So many float32 weights fill one cache line.
BLOCK = 16
LINE_BYTES = 4 * BLOCK


def empty_lines(*shape: int) -> FloatArray:
    """Make room for weights, each vector of 16 in a cache line of its own; NumPy's arrays begin anywhere in a line.

    Parameters
    ----------
    *shape
        The number of vectors, along each axis.

    Returns
    -------
    array of shape (*shape, 16)
        Not initialized.

    >>> weights = empty_lines(2, 3)
    >>> weights.shape, weights.ctypes.data % 64, weights.flags.c_contiguous
    ((2, 3, 16), 0, True)
    """
    size = int(np.prod(shape)) * BLOCK
    room = np.empty(size + BLOCK, np.float32)
    first = -room.ctypes.data % LINE_BYTES // 4
    return room[first : first + size].reshape(*shape, BLOCK)


@kernel
def copy(source: FloatArray, target: FloatArray) -> None:
    """target = source. Assigning to a slice would make numba compile a second for the message of a shape mismatch."""
    for index in range(len(target)):
        target[index] = source[index]


@kernel
def add(source: FloatArray, target: FloatArray) -> None:
    """target += source."""
    for index in range(len(target)):
        target[index] += source[index]


class Instruction:
    """Stands for vector instructions in a loop; numba is imported when it compiles the loop, and not before."""

    def __init__(self, name: str) -> None:
        self._name = name

    @property
    def _numba_type_(self) -> Any:
        from numba.core.registry import cpu_target

        from treelabel.models.linear.vector_instructions import INSTRUCTIONS

        cpu_target.typing_context.refresh()
        return cpu_target.typing_context.resolve_value_type(INSTRUCTIONS[self._name])


prefetch = cast("Callable[..., None]", Instruction("prefetch"))
prefetch_weights = cast("Callable[..., None]", Instruction("prefetch_weights"))
add_products = cast("Callable[..., None]", Instruction("add_products"))
add_multiples = cast("Callable[..., None]", Instruction("add_multiples"))
