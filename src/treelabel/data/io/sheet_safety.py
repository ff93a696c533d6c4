"""Checks of Excel files before anything in them is read: what they unpack to, and that they declare no entities."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any
from xml.parsers import expat
from zipfile import BadZipFile, ZipFile

from treelabel.core.errors import TreelabelError
from treelabel.core.limits import Limits

# How the files of old Excel begin, and files of new Excel with a password.
OLD_EXCEL = bytes.fromhex("d0cf11e0a1b11ae1")
PIECE = 1 << 14


def check_archive(path: Path, limits: Limits) -> None:
    """Refuse a file that is no .xlsx file, would unpack to too much, or has XML with declarations of its own.

    Sizes are those that the archive promises; no more than these is ever unpacked.

    Parameters
    ----------
    path : Path
        The file.
    limits : Limits
        `ratio`, `floor` and `whole` apply: all but the sheets is read at once.
    """
    try:
        with ZipFile(path) as archive:
            parts = archive.infolist()
            packed, unpacked = path.stat().st_size, sum(part.file_size for part in parts)
            if limits.exceeds("floor", unpacked) and limits.exceeds("ratio", unpacked / max(1, packed)):
                raise TreelabelError(f"{path}: its {packed:,} bytes unpack to {unpacked:,}; {limits.hint('ratio')}")
            at_once = max((part.file_size for part in parts if "worksheets/" not in part.filename), default=0)
            if limits.exceeds("whole", at_once):
                raise TreelabelError(f"{path}: holds more than can be read at once; {limits.hint('whole')}")
            if "[Content_Types].xml" not in archive.namelist():
                raise BadZipFile("a zip archive without [Content_Types].xml")
            for part in parts:
                if part.filename.lower().endswith((".xml", ".rels")):
                    with locate_damage(path), archive.open(part) as stream:
                        _refuse_declarations(path, stream)
    except BadZipFile as error:
        raise _no_excel_file(path, error) from error


def _no_excel_file(path: Path, error: Exception) -> TreelabelError:
    with path.open("rb") as stream:
        is_old = stream.read(len(OLD_EXCEL)) == OLD_EXCEL
    if is_old:
        return TreelabelError(
            f"{path}: is an old Excel file (.xls) or has a password; open it in Excel and save it as .xlsx without one"
        )
    return TreelabelError(f"{path}: not an .xlsx file: {error}; the file may be damaged, or of another format")


class _RootReached(Exception):  # noqa: N818  no error, but how to stop the parser
    """Declarations are over where the first element begins."""


def _refuse_declarations(path: Path, stream: IO[bytes]) -> None:
    """Refuse XML with a document type, in which entities could grow without end; Excel writes none."""

    def refuse(*_: Any) -> None:
        raise TreelabelError(f"{path}: its XML declares a document type, which no file of Excel does; it is not read")

    def begins(*_: Any) -> None:
        raise _RootReached

    parser = expat.ParserCreate()
    parser.StartDoctypeDeclHandler = refuse
    parser.StartElementHandler = begins
    try:
        while piece := stream.read(PIECE):
            parser.Parse(piece, False)
    except (_RootReached, expat.ExpatError):
        # What is not XML is for the reader proper to say.
        return


@contextmanager
def locate_damage(path: Path) -> Iterator[None]:
    """Say what is wrong with a file where its reader raises any of its many errors."""
    try:
        yield
    except (TreelabelError, MemoryError):
        raise
    except Exception as error:  # zip, XML and openpyxl raise errors that share no base
        why = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise TreelabelError(f"{path}: not an .xlsx file that can be read: {why}; the file may be damaged") from error
