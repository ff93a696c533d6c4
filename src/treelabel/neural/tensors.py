"""Errors of the system that safetensors reports as its own."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

from safetensors import SafetensorError


@contextmanager
def os_errors() -> Iterator[None]:
    """Raise OSError where safetensors reports a full disk.

    >>> with os_errors():
    ...     raise SafetensorError('Error while serializing: I/O error: No space left on device (os error 28)')
    Traceback (most recent call last):
    OSError: [Errno 28] No space left on device
    """
    try:
        yield
    except SafetensorError as error:
        if "(os error 28)" in str(error) or "code: 28" in str(error):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from error
        raise
