"""Tables of moves: files that say what became of the labels of a taxonomy."""

from pathlib import Path

from treelabel.core.errors import TreelabelError, quote
from treelabel.core.inputs import existing_file, numbered_lines
from treelabel.core.limits import DEFAULT_LIMITS, Limits
from treelabel.data.taxonomy.label_characters import require_printable
from treelabel.data.taxonomy.taxonomy_tables import split_lines
from treelabel.hierarchy.moves import Move

OLD_COLUMNS = ("old", "from", "before", "old label", "old_label", "old path", "old_path")
NEW_COLUMNS = ("new", "to", "after", "new label", "new_label", "new path", "new_path")


def read_moves(path: str | Path, encoding: str = "utf-8", limits: Limits = DEFAULT_LIMITS) -> list[Move]:
    """Read a table of moves: a line is an old label and what became of it, names or full paths.

    A name may be given where it is unique in its taxonomy. Two lines with one old label split it, two with one new
    label merge, and a line with nothing behind the old label deletes it. Labels that stay need no line, nor do those
    below a label that was renamed or moved as a whole.

    Parameters
    ----------
    path : str or Path
        Tabs separate columns, or commas, semicolons or bars in a .csv file. A first line with the columns old and new
        (or from and to) is understood, in any order and among others; lines with # are comments.
    encoding : str
        As Python calls it.
    limits : Limits
        The resources that reading may take.

    Returns
    -------
    list of Move
        Each with its file and line.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "moves.tsv")
    ...     _ = file.write_text("old\\tnew\\npet > dog\\tpet > hound\\nfish\\t\\n")
    ...     [(move.old, move.new) for move in read_moves(file)]
    [('pet > dog', 'pet > hound'), ('fish', '')]
    """
    file = existing_file(path)
    numbered = numbered_lines(file, encoding, limits)
    rows = split_lines(file, [(number, line) for number, line in numbered if not line.startswith("#")])
    if not rows:
        raise TreelabelError(f"{file}: no moves; expected lines with an old label and a new one, separated by a tab")
    columns = _columns([cell.lower() for cell in rows[0][1]])
    body = rows if columns is None else rows[1:]
    return [_move(cells, columns, f"{file}:{number}") for number, cells in body]


def _columns(header: list[str]) -> tuple[int, int] | None:
    """Find the columns of a header, or None if the first line is none."""
    old = next((column for column, cell in enumerate(header) if cell in OLD_COLUMNS), None)
    new = next((column for column, cell in enumerate(header) if cell in NEW_COLUMNS), None)
    return None if old is None or new is None else (old, new)


def _move(cells: list[str], columns: tuple[int, int] | None, where: str) -> Move:
    if columns is None and any(cells[2:]):
        raise TreelabelError(
            f"{where}: {len(cells)} columns, expected an old label and a new one; write one line for each new label, "
            "or name the columns old and new in the first line"
        )
    old, new = (cells[column] if column < len(cells) else "" for column in columns or (0, 1))
    if not old:
        raise TreelabelError(f"{where}: no old label before {quote(new)}; new labels need no line")
    require_printable([old, new], where)
    return Move(old, new, where)
