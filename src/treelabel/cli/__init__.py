"""The command line: parse, call one function, print. Errors of a user are one sentence and exit code 2."""

import errno
import logging
import os
import signal
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from treelabel.cli.process import INTERRUPTED, TERMINATED, Terminated, end_quickly, open_standard_files, start_quickly
from treelabel.core.errors import LONGEST_MESSAGE, TreelabelError, printable, shorten
from treelabel.core.progress import QUIET, is_quiet

# Options of every command, which may stand anywhere in the line.
ANYWHERE = ("--debug", "--quiet", "-q")


def main(arguments: list[str] | None = None) -> None:
    """Run `treelabel` with the arguments of the process, and exit."""
    if arguments is None:
        open_standard_files()
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug, quiet = "--debug" in words, bool({"--quiet", "-q"} & {*words})
    words = [word for word in words if word not in ANYWHERE] or ["--help"]
    before = os.environ.get(QUIET)
    if quiet:
        # For child processes, too.
        os.environ[QUIET] = "1"
    if arguments is None:
        signal.signal(signal.SIGTERM, _terminate)
    try:
        if arguments is None:
            start_quickly(words)
        code = _run(words, debug)
    except KeyboardInterrupt:
        code = _say("interrupted; every file is whole, or as it was", INTERRUPTED)
    except Terminated:
        code = _say("terminated; every file is whole, or as it was", TERMINATED)
    finally:
        if quiet:
            os.environ.pop(QUIET)
            os.environ |= {} if before is None else {QUIET: before}
    if arguments is None:
        end_quickly()
    sys.exit(code)


def _terminate(number: int, frame: FrameType | None) -> None:
    # Cleaning up takes a moment, and is not cut short by a second signal.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise Terminated


def _run(arguments: list[str], debug: bool) -> int:
    from typer.exceptions import TyperException

    from treelabel.cli.app import app_of
    from treelabel.cli.warm_up import compile_together

    with _shown_notes(), compile_together(lambda message: is_quiet() or _say(message)):
        try:
            result = app_of(arguments[0])(arguments, prog_name="treelabel", standalone_mode=False)
        except SystemExit:
            # typer ends so when the reader of a pipe (head, say) has seen enough, which is no error.
            return 0
        except (TreelabelError, OSError, MemoryError, TyperException) as error:
            if debug:
                raise
            return _say(_sentence(error) + _gone(), 2)
        except SystemError as error:
            # Ctrl-C within a compiled loop, or while one is loaded: then there are several between.
            cause = error.__cause__
            while isinstance(cause, SystemError):
                cause = cause.__cause__
            if isinstance(cause, KeyboardInterrupt | Terminated):
                raise cause from None
            raise
        except Exception as error:
            if debug:
                raise
            return _say(f"this should not have happened: {type(error).__name__}: {error}; see it whole with --debug", 1)
    if result == INTERRUPTED:
        raise KeyboardInterrupt
    return result if isinstance(result, int) else 0


def _sentence(error: Exception) -> str:
    """Return what is wrong in one line; a mistake in the command line comes with the way to its help."""
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        # Files are named by their writers.
        return f"standard output: cannot be written: {error.strerror}"
    if isinstance(error, MemoryError):
        return "out of memory; work on fewer documents at a time"
    message = " ".join(getattr(error, "message", str(error)).split())
    context = getattr(error, "ctx", None)
    if context is None:
        return message
    shown = " ".join(error.format_message().split()) if hasattr(error, "format_message") else message
    return f"{shown.rstrip('.')} (see '{context.command_path} --help')"


def _gone() -> str:
    """Return the end of a message where the working folder was removed: that is why names lead nowhere."""
    try:
        os.getcwd()
    except OSError:
        return "; the working folder is gone, change to one that is there"
    return ""


class _Notes(logging.Handler):
    """Writes warnings and log records as notes to standard error, each once: a file may be read several times."""

    def __init__(self) -> None:
        super().__init__()
        self._said: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        """Write a log record."""
        self.show(record.getMessage())

    def show(self, message: Warning | str, *_: object, **__: object) -> None:
        """Write a warning."""
        if str(message) not in self._said and not is_quiet():
            self._said.add(str(message))
            _say(f"note: {message}")


@contextmanager
def _shown_notes() -> Iterator[None]:
    """Show what the library warns of and logs, such as the encoder that it chose."""
    logger, notes = logging.getLogger("treelabel"), _Notes()
    before = logger.level
    logger.addHandler(notes)
    logger.setLevel(logging.INFO)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = notes.show
            yield
    finally:
        logger.setLevel(before)
        logger.removeHandler(notes)


def _say(message: str, code: int = 0) -> int:
    """Print one line to stderr: not too long, and with nothing in it that drives the terminal."""
    line = printable(shorten(" ".join(message.splitlines()), LONGEST_MESSAGE))
    with suppress(OSError):
        sys.stderr.write(f"treelabel: {line}\n")
    return code
