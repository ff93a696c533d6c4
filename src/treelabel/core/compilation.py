"""Compiling loops for the first time on a machine: how long it takes, and a word about it.

This imports nothing of numba, so that a command that compiles nothing does not wait for it.
"""

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

# Compiling that takes no longer than this is not worth a word.
WORTH_A_WORD = 1.0
MESSAGE = "compiling loops, once: this takes some seconds, and is kept for the next time"


class Compilation:
    """Keeps count of the time that compiling takes; compiling is done by one thread at a time.

    >>> said = []
    >>> compilation = Compilation()
    >>> with compilation.announce(said.append, after=0):
    ...     with compilation.going_on():
    ...         compilation.look()
    >>> said == [MESSAGE]
    True
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self._depth, self._since = 0, 0.0
        self._say: Callable[[str], object] | None = None
        self._after = 0.0
        self._collects = False

    @contextmanager
    def announce(self, say: Callable[[str], object], after: float | None = None) -> Iterator[None]:
        """Say it, once, when compiling takes long in the block.

        Parameters
        ----------
        say
            Gets the message.
        after
            The seconds of compiling after which it is said; by default, `WORTH_A_WORD`.
        """
        before = self._say, self._after, self.seconds
        self._say, self._after, self.seconds = say, WORTH_A_WORD if after is None else after, 0.0
        try:
            yield
        finally:
            self._say, self._after, self.seconds = before

    @contextmanager
    def going_on(self) -> Iterator[None]:
        """Count what the block takes as compiling."""
        self.begin()
        try:
            yield
        finally:
            self.end()

    def begin(self) -> None:
        """Begin to compile, perhaps for another loop that is being compiled."""
        if self._depth == 0:
            self._since = time.monotonic()
            # A compiler makes millions of objects that it needs to the end: looking for garbage is a tenth of its time.
            self._collects = gc.isenabled()
            gc.disable()
        self._depth += 1
        self.look()

    def end(self) -> None:
        """End what `begin` began."""
        self.look()
        self._depth -= 1
        if self._depth == 0:
            self.seconds += time.monotonic() - self._since
            if self._collects:
                gc.enable()

    def look(self) -> None:
        """Say that loops are compiled, if that takes long and was not said before."""
        going = time.monotonic() - self._since if self._depth else 0.0
        if self._say is not None and self.seconds + going >= self._after:
            say, self._say = self._say, None
            say(MESSAGE)


compilation = Compilation()
