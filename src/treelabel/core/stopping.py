"""Ending a fit early: at a deadline, or when somebody presses Ctrl-C."""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any, Literal

import numpy as np

StopReason = Literal["deadline", "interrupt"]


@dataclass
class StopSignal:
    """Whether a fit is to end early, and why; all parts of one fit share it.

    Models look at it between steps. Those that can end early catch the first KeyboardInterrupt, call `interrupt`, and
    keep what they have; a second one is let through.

    >>> stop = StopSignal()
    >>> bool(stop), stop.interrupt(), bool(stop), stop.reason
    (False, None, True, 'interrupt')
    """

    deadline: float = np.inf
    reason: StopReason | None = None

    def __bool__(self) -> bool:
        if self.reason is None and time.monotonic() > self.deadline:
            self.reason = "deadline"
        return self.reason is not None

    def __getstate__(self) -> dict[str, object]:
        """Return the time that is left: the clock of another process may have begun elsewhere."""
        return {"left": self.deadline - time.monotonic(), "reason": self.reason}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.deadline, self.reason = time.monotonic() + state["left"], state["reason"]

    def interrupt(self) -> None:
        """Take note of Ctrl-C."""
        self.reason = "interrupt"

    def share(self, parts: int) -> "StopSignal":
        """Return the signal of the next of several parts that are left, which have equal shares of the time left."""
        left = max(0.0, self.deadline - time.monotonic())
        return StopSignal(time.monotonic() + left / parts, self.reason)


@contextmanager
def held_interrupt(stop: StopSignal) -> Iterator[None]:
    """Hold the first Ctrl-C back: a step that ends in the middle would leave half its weights changed."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)

    def ask(number: int, frame: FrameType | None) -> None:
        if stop.reason == "interrupt":
            raise KeyboardInterrupt
        stop.interrupt()

    signal.signal(signal.SIGINT, ask)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
