"""Ctrl-C between steps: the first one asks to stop after the step that is under way, a second one is let through."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType


@dataclass
class Asked:
    """Whether somebody asked to stop."""

    to_stop: bool = False


@contextmanager
def held_interrupt() -> Iterator[Asked]:
    """Hold the first Ctrl-C back: a step that ends in the middle would leave half its weights changed."""
    asked = Asked()
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return
    before = signal.getsignal(signal.SIGINT)

    def ask(number: int, frame: FrameType | None) -> None:
        if asked.to_stop:
            raise KeyboardInterrupt
        asked.to_stop = True

    signal.signal(signal.SIGINT, ask)
    try:
        yield asked
    finally:
        signal.signal(signal.SIGINT, before)
