"""Options and steps of commands that carry files to a taxonomy that has changed."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from treelabel.cli.options import ReadArguments, check_output
from treelabel.cli.printing import print_note
from treelabel.core.errors import TreelabelError, locate_errors

if TYPE_CHECKING:
    from treelabel.data.dataset import Dataset
    from treelabel.hierarchy.hierarchy import Hierarchy
    from treelabel.hierarchy.moves import Moves

MovesOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Table of old and new labels, a tab between them (names or paths; nothing behind the tab deletes): what "
        "became of labels that the new --taxonomy calls otherwise.",
    ),
]
OldTaxonomyOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="With --moves: the taxonomy of IN, or hierarchy.json of a model (default: that in the file or beside it, "
        "else the labels of the file).",
    ),
]


def new_hierarchy(read: ReadArguments, moves: Path | None) -> "Hierarchy | None":
    """Read the new taxonomy, without which a table of moves means nothing."""
    from treelabel.data.taxonomy.taxonomy_files import read_taxonomy

    if read.taxonomy is None:
        if moves is not None:
            raise TreelabelError("--moves needs --taxonomy: the file with the new hierarchy, where the labels go")
        return None
    return read_taxonomy(read.taxonomy, root=read.root, limits=read.limits)


def moves_to(old: "Hierarchy", read: ReadArguments, moves: Path | None, partial: bool = False) -> "Moves":
    """Find the labels of an old hierarchy in the new taxonomy, by a table of moves if there is one."""
    from treelabel.data.taxonomy.taxonomy_tables import read_moves
    from treelabel.hierarchy.moves import Moves

    new = new_hierarchy(read, moves)
    rows = [] if moves is None else read_moves(moves, read.encoding or "utf-8", read.limits)
    with locate_errors(read.taxonomy if moves is None else moves):
        return Moves.of(old, old if new is None else new, rows, partial)


def describe_moves(moves: "Moves", partial: bool = False) -> str:
    """Say what became of labels; which ones are new is not known if the old ones are but a part."""
    changes = [f"{count:,} {kind}" for kind, count in moves.counts().items() if kind not in ("same", "path")]
    if len(moves.new_labels) and not partial:
        changes.append(f"{len(moves.new_labels):,} new")
    return f"labels: {', '.join(changes) or 'all stay'}"


def _old_hierarchy(read: ReadArguments, old_taxonomy: Path | None) -> "Hierarchy | None":
    from treelabel.data.taxonomy.taxonomy_files import read_taxonomy

    return None if old_taxonomy is None else read_taxonomy(old_taxonomy, root=read.root, limits=read.limits)


def read_moved(source: Path, read: ReadArguments, moves: Path, old_taxonomy: Path | None) -> "tuple[Dataset, str]":
    """Read a data file under its old taxonomy and carry it to the new one; say what became of the labels."""
    from treelabel.hierarchy.label_matrices import row_sizes

    data = replace(read, taxonomy=None).read(source, taxonomy=_old_hierarchy(read, old_taxonomy))
    partial = data.is_hierarchy_of_labels
    resolved = moves_to(data.hierarchy, read, moves, partial)
    carried = data.moved(resolved)
    emptied = int(((row_sizes(carried.labels) == 0) & (row_sizes(data.labels) > 0)).sum())
    if emptied:
        print_note(f"{emptied:,} documents have no label any more")
    return carried, describe_moves(resolved, partial)


def check_moves(
    files: tuple[Path, Path],
    read: ReadArguments,
    moves: Path | None,
    old_taxonomy: Path | None,
    others: dict[str, bool],
) -> None:
    """Refuse options that do not go with a table of moves, or without one."""

    if moves is None:
        if old_taxonomy is not None:
            raise TreelabelError("--old-taxonomy belongs to --moves; without it, --taxonomy is that of IN")
        return
    source, target = files
    check_output(target, True, source, moves, read.taxonomy, old_taxonomy)
    _ = new_hierarchy(read, moves)
    for option, asked in others.items():
        if asked:
            raise TreelabelError(f"{option} and --moves cannot both change the hierarchy; convert twice")


def move_without_texts(
    source: Path, target: Path, read: ReadArguments, moves: Path, old_taxonomy: Path | None
) -> tuple[dict[str, Any], str]:
    """Carry a score file, which knows its old taxonomy, or a prediction file to the new one; return what to print."""
    from treelabel.operations.move_predictions import move_predictions, predicted_hierarchy
    from treelabel.scores.score_files import is_score_file
    from treelabel.scores.score_matrix import Scores

    if is_score_file(source):
        scores = Scores.load(source)
        resolved = moves_to(scores.hierarchy, read, moves)
        scores.move(resolved).save(target)
        values = {"written": [str(target)], "documents": len(scores), "nodes": len(resolved.new)}
        lines = (
            describe_moves(resolved),
            f"wrote {target}: scores of {len(scores):,} documents, {len(resolved.new):,} nodes",
        )
        return values, "\n".join(lines)
    old = _old_hierarchy(read, old_taxonomy)
    known = predicted_hierarchy(source, read.limits) if old is None else old
    resolved = moves_to(known, read, moves, partial=old is None)
    done = move_predictions(source, target, resolved, read.limits)
    if done.emptied:
        print_note(f"{done.emptied:,} documents have no label any more")
    values = {"written": [str(target)], "documents": done.documents, "changed": done.changed}
    text = f"wrote {target}: {done.documents:,} documents, {done.changed:,} of them with other labels"
    return values, f"{describe_moves(resolved, partial=old is None)}\n{text}"
