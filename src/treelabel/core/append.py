"""A file that grows under a temporary name until it is whole, and that a later run can go on with.

`atomic_file` hides what it writes until the end, and a process that is killed leaves nothing. Where writing takes
hours, that is too little: here what is done stands in `NAME.partial`, and a journal beside it, `NAME.partial.json`,
says how many of its bytes are sure, what they were made of, and whatever the writer wants to know when it goes on.
Bytes come first and the journal after them, so that a kill at any moment leaves a file that begins with what the
journal says.
"""

import json
import logging
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from io import BytesIO
from pathlib import Path
from typing import IO, Any

from treelabel.core.atomic_output import errors_of, file_target, mode_of, sync
from treelabel.core.errors import TreelabelError, printable, quote
from treelabel.core.locking import NO_FOLLOW, is_own_file, lock

_log = logging.getLogger(__name__)

VERSION = 1
LARGEST_JOURNAL = 1 << 24


class AppendFile:
    """A file under its temporary name: `write` adds bytes, `commit` makes them count, `keep` lets it take its name."""

    def __init__(self, target: Path, about: Mapping[str, Any]) -> None:
        self.target, self.about = target, {"version": VERSION, **about}
        self.path = target.with_name(f"{target.name}.partial")
        self.journal = target.with_name(f"{target.name}.partial.json")
        self.state: dict[str, Any] = {}
        self.size = 0
        # Until it is open.
        self._stream: IO[bytes] = BytesIO()

    def open(self, resume: bool) -> None:
        """Begin, or go on behind what an earlier run made sure of."""
        # With nothing in a journal, the name may be that of anybody's file.
        if os.path.lexists(self.path) and not self._is_ours():
            raise TreelabelError(
                f"{self.path} is there already, and this is the name under which {self.target.name} would be written "
                "until it is whole; move it, or write to another name"
            )
        handle = os.open(self.path, os.O_RDWR | os.O_CREAT | NO_FOLLOW, 0o666)
        if not lock(handle):
            os.close(handle)
            raise TreelabelError(f"{self.target}: another process is writing it; wait for it, or write to another name")
        self._stream = os.fdopen(handle, "r+b")
        if resume:
            self._restore()
        elif self.journal.exists():
            _log.info("%s: what an earlier run left is started over; --resume would go on with it", self.path)
        if not self.size:
            # What an earlier run was sure of is not there any more; and from now on the file is known as ours.
            try:
                self._write_journal()
            except OSError:
                self.remove()
                raise
        self._stream.truncate(self.size)
        self._stream.seek(self.size)

    def _is_ours(self) -> bool:
        """Return whether a file that has the temporary name was begun by an earlier run: it has a journal beside it.

        An empty file is what a run leaves that was killed before it could write one. Files of other users, and links,
        were put there by somebody else.
        """
        return is_own_file(self.path) and (is_own_file(self.journal) or self.path.stat().st_size == 0)

    def _restore(self) -> None:
        if not is_own_file(self.journal):
            return
        try:
            stored = json.loads(self.journal.read_bytes()[:LARGEST_JOURNAL])
            about, state, size = stored["about"], stored["state"], int(stored["size"])
        except (OSError, ValueError, KeyError, TypeError):
            # Killed before anything was sure, or nothing was ever begun.
            return
        if os.fstat(self._stream.fileno()).st_size < size:
            return
        requested = json.loads(json.dumps(self.about))
        for name in {**about, **requested}:
            if about.get(name) != requested.get(name):
                raise TreelabelError(
                    f"{self.path}: cannot go on, for it was begun with another {name}: {quote(str(about.get(name)))}, "
                    f"now {quote(str(requested.get(name)))}; give the same, or start over without --resume"
                )
        self.state, self.size = state, size

    def write(self, data: Any) -> None:
        """Add bytes; they count after `commit`."""
        self._stream.write(data)
        self.size += len(data)

    def commit(self, **state: Any) -> None:
        """Make sure of what was written, with what a later run has to know to go on."""
        self._stream.flush()
        self.state = state
        self._write_journal()

    def _write_journal(self) -> None:
        working = self.journal.with_name(f"{self.journal.name}.new")
        # A new file, so that no link of that name is followed.
        working.unlink(missing_ok=True)
        working.touch(exist_ok=False)
        working.write_text(json.dumps({"about": self.about, "state": self.state, "size": self.size}), encoding="utf-8")
        working.replace(self.journal)

    def close(self) -> None:
        """Close the file under its temporary name."""
        self._stream.close()

    def keep(self) -> None:
        """Let the file take its name."""
        self._stream.flush()
        self.path.chmod(mode_of(self.target, 0o666))
        if self.target.exists():
            sync(self.path)
        self.path.replace(self.target)
        self.journal.unlink(missing_ok=True)
        self.close()

    def remove(self) -> None:
        """Remove all that stands under temporary names."""
        self.close()
        for path in (self.path, self.journal, self.journal.with_name(f"{self.journal.name}.new")):
            with suppress(OSError):
                path.unlink(missing_ok=True)


class StandardOutput:
    """Standard output in the place of a file that grows: what is committed is on its way."""

    def __init__(self) -> None:
        self.state: dict[str, Any] = {}
        self.size = 0

    def write(self, data: Any) -> None:
        """Write bytes; on a terminal, what would drive it is escaped as JSON does it."""
        if sys.stdout.isatty():
            sys.stdout.write(printable(bytes(data).decode(errors="replace"), keep="\n\t"))
        else:
            sys.stdout.buffer.write(data)
        self.size += len(data)

    def commit(self, **state: Any) -> None:
        """Send on what was written."""
        sys.stdout.flush()
        sys.stdout.buffer.flush()
        self.state = state

    def keep(self) -> None:
        """Do nothing more: it is out already."""


@contextmanager
def open_append(path: str | Path, about: Mapping[str, Any], resume: bool = False) -> Iterator[AppendFile]:
    """Write a file that can be gone on with; the block calls `keep`, or puts something else under the name, at its end.

    What was committed is left for a later run if the process is killed or interrupted, or if the disk is full; also,
    with `resume`, if something is wrong with the input.

    Parameters
    ----------
    path : str or Path
        The file, which takes its name only when it is whole.
    about : mapping
        What the file is made of; a run with anything else is refused to go on with it. Where nothing is said, nobody
        could go on with it, and nothing is left.
    resume : bool
        Whether to go on with what an earlier run left.

    Yields
    ------
    AppendFile
        With the `state` of the last commit, empty where nothing was there.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with open_append(Path(folder, "a.txt"), {"of": "numbers"}) as file:
    ...         file.write(b"1 2 3")
    ...         file.commit(last=3)
    ...         print(sorted(path.name for path in Path(folder).iterdir()))
    ...         file.keep()
    ...     sorted(path.name for path in Path(folder).iterdir())
    ['a.txt.partial', 'a.txt.partial.json']
    ['a.txt']
    """
    target = file_target(path, "write to a file and copy it there, or to - for a pipe")
    file = AppendFile(target, about)
    with errors_of(target), closing(file):
        file.open(resume)
        try:
            yield file
        except BaseException as error:
            # What is wrong with the input will be mended, and then it is another one.
            if file.state and (resume or (about and not isinstance(error, TreelabelError))):
                _log.info("%s: holds what is done; the same command with --resume goes on with it", file.path)
            else:
                file.remove()
            raise
