"""The command that brings a model up to date: update."""

import csv
import io
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from treelabel.cli import options as o
from treelabel.cli.models import save, size_of
from treelabel.cli.moves import MovesOption, describe_moves, moves_to
from treelabel.cli.printing import command_line, print_note, print_result
from treelabel.cli.process import INTERRUPTED
from treelabel.core.errors import TreelabelError, printable

if TYPE_CHECKING:
    from treelabel.data.dataset import Dataset
    from treelabel.hierarchy.moves import Moves
    from treelabel.models.base import Model
    from treelabel.operations.prediction_changes import PredictionChanges


@o.with_read_options
def update(
    model: o.ModelArgument,
    read: o.ReadArguments,
    output: Annotated[Path, typer.Option("--output", "-o", help="Model folder to write; MODEL does not change.")],
    new: Annotated[
        Path | None, typer.Argument(metavar="[NEW]", help="Data file with new texts and labels of the new taxonomy.")
    ] = None,
    moves: MovesOption = None,
    add_labels: Annotated[
        bool, typer.Option("--add-labels", help="Take labels of NEW that the model does not know for new ones.")
    ] = False,
    train: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="A file that MODEL learned from, for models that cannot add to it; repeat it until all are named.",
        ),
    ] = None,
    save_train: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write all that the new model learned from: the --train of the next update."),
    ] = None,
    forget: Annotated[
        bool, typer.Option("--forget", help="Go on without documents that MODEL learned from and no --train holds.")
    ] = False,
    compare: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Texts to tell which predictions change; with labels: better or worse, too."),
    ] = None,
    changes: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the predictions that change as CSV, with --compare.")
    ] = None,
    force: o.ForceOption = False,
    require_signature: o.SignatureOption = None,
    json: o.JsonOption = False,
) -> None:
    """Bring a model up to date: new texts, new labels, and labels renamed, moved, merged, split or deleted.

    --taxonomy is the new taxonomy. --moves lists the labels that it has renamed, moved, merged, split or deleted, one a
    line: the old label, a tab, the new one. Labels that stay need no line, nor do those below a label that was renamed
    or moved as a whole.

    prototype and memory add texts to what they have stored. linear learns its weights again from --train and NEW, and
    keeps what the first fit chose and calibrated; it needs no texts if labels are only renamed. Other models are fitted
    again to --train and NEW. A model knows from which texts it learned, also in earlier updates: if --train and NEW
    lack any of them, nothing is done. --save-train writes the file that the next update needs. The options for reading
    hold for all data files.

    \b
    Examples:
      treelabel update model new.csv -o model2 --train train.csv \\
        --save-train train2.jsonl
      treelabel update model2 newer.csv -o model3 --train train2.jsonl \\
        --save-train train3.jsonl
      treelabel update model new.csv -o model2 --train train.csv --add-labels \\
        --compare test.csv
      treelabel update model -o model2 --taxonomy spring.tsv --moves moves.tsv
      treelabel update model new.csv -o model2 --taxonomy spring.tsv \\
        --moves moves.tsv --train train.csv --compare test.csv \\
        --changes changes.csv
    """
    from treelabel.models.persistence.load import load_model
    from treelabel.models.persistence.store import require_replaceable
    from treelabel.operations.update import update_model

    files = train or []
    _refuse_contradictions(new, read, add_labels, compare, changes)
    if output.exists() and model.exists() and output.samefile(model):
        raise TreelabelError(f"{output}: is the model to update, which stays as it is; choose another folder for -o")
    require_replaceable(output, force)
    for written in (changes, save_train):
        o.check_output(written, force, new, *files, compare, moves, read.taxonomy)
    _check_train(files, save_train, forget)
    loaded = load_model(model, require_signature)
    read = read.like(loaded)
    path, data = _new_data(loaded, new, read, moves, add_labels)
    known = [_original(file, path, read) for file in files]
    made = update_model(loaded, data, moves=path, train=known or None, forget=forget)
    if getattr(made, "stopped_", None) == "interrupt":
        typer.echo("treelabel: learning was interrupted; nothing was written", err=True)
        raise typer.Exit(INTERRUPTED)
    compared, judged = None, ""
    if compare is not None:
        from treelabel.operations.prediction_changes import prediction_changes

        plain = replace(read, taxonomy=None)
        texts = plain.read(compare, taxonomy=loaded.hierarchy_, need_labels=False)
        compared = prediction_changes(loaded, made, texts, path)
        judged = _judge(loaded, made, path, plain, compare)
    save(made, output, force)
    learned = f"{made.profile_.documents:,} documents"
    lines = [f"{output}: {made.name}, {learned}, {len(path.new):,} nodes, {size_of(output):.1f} MB"]
    lines.append(describe_moves(path))
    if made.evidence_ is loaded.evidence_ or (loaded.evidence_.guarantee and not made.evidence_.guarantee):
        lines.append(
            f"calibration, rule and held-out quality are those of {model}: nothing was held out; fit measures anew"
        )
    if save_train is not None:
        lines.append(_save_train(known if data is None else [*known, data], path, save_train, read.sep))
    if compared is not None:
        lines += [*_write_changes(compared, changes), *([judged] if judged else [])]
    values = {"written": str(output), "documents": made.profile_.documents, "nodes": len(path.new), "lines": lines}
    print_result(values, "\n".join(lines), json, command_line("evaluate", output, "TEST"))


def _refuse_contradictions(
    new: Path | None, read: o.ReadArguments, add_labels: bool, compare: Path | None, changes: Path | None
) -> None:

    if new is None and read.taxonomy is None:
        raise TreelabelError("nothing to update: give NEW, a file with new texts, or --taxonomy with the new hierarchy")
    if add_labels and read.taxonomy is not None:
        raise TreelabelError("--add-labels and --taxonomy cannot both say what the new labels are; leave one out")
    if add_labels and new is None:
        raise TreelabelError("--add-labels takes labels from NEW, but no such file is given")
    if changes is not None and compare is None:
        raise TreelabelError("--changes needs --compare: the texts whose predictions are compared")


def _check_train(files: list[Path], save_train: Path | None, forget: bool) -> None:
    from treelabel.data.io.tables import format_of

    if not files and (save_train is not None or forget):
        option = "--forget" if save_train is None else "--save-train"
        raise TreelabelError(f"{option} needs --train: the files that the model learned from")
    # Before the model is learned and written, not after.
    if save_train is not None and "texts" not in format_of(save_train).holds:
        raise TreelabelError(f"{save_train}: this format holds no texts, which the next update needs; use another")


def _new_data(
    loaded: "Model", new: Path | None, read: o.ReadArguments, moves: Path | None, add_labels: bool
) -> "tuple[Moves, Dataset | None]":
    """Find the way to the new hierarchy, and read the new texts under it."""
    from treelabel.hierarchy.moves import Moves

    plain = replace(read, taxonomy=None)
    if add_labels and new is not None:
        from treelabel.data.transforms import with_further_labels

        data = with_further_labels(plain.read(new), loaded.hierarchy_)
        return Moves.of(loaded.hierarchy_, data.hierarchy), data
    path = moves_to(loaded.hierarchy_, read, moves)
    if new is None:
        return path, None
    try:
        return path, plain.read(new, taxonomy=path.new)
    except TreelabelError as error:
        if read.taxonomy is not None or "unknown label" not in str(error):
            raise
        hint = "if it is a new label, give the new hierarchy with --taxonomy, or --add-labels"
        raise TreelabelError(f"{error}; {hint}") from error


def _original(train: Path, path: "Moves", read: o.ReadArguments) -> "Dataset":
    """Read a training file under the old hierarchy, or under the new one if its labels are of that."""
    from treelabel.data.columns import MissingColumnError

    plain = replace(read, taxonomy=None)
    try:
        return plain.read(train, taxonomy=path.old)
    except MissingColumnError:
        # A file that --save-train wrote has columns of its own.
        guessed = replace(read, text=None, labels=None, id=None)
        if guessed == read:
            raise
        return _original(train, path, guessed)
    except TreelabelError as error:
        if path.is_identity or "unknown" not in str(error):
            raise
        try:
            return plain.read(train, taxonomy=path.new)
        except TreelabelError:
            raise error from None


def _judge(old: "Model", new: "Model", path: "Moves", read: o.ReadArguments, file: Path) -> str:
    """Say whether the new model is better on documents with labels, and on which labels; "" where they have none."""
    from treelabel.operations.prediction_changes import describe_difference

    try:
        data = read.read(file, taxonomy=path.new)
    except TreelabelError as error:
        print_note(f"better or worse cannot be told: {error}")
        return ""
    return describe_difference(old, new, data, path) if data.labels.nnz else ""


def _save_train(parts: "list[Dataset]", path: "Moves", file: Path, sep: str | None) -> str:
    """Write all training data under the new hierarchy, without documents that have lost all their labels."""
    from treelabel.data.transforms import concat
    from treelabel.data.write import write
    from treelabel.hierarchy.label_matrices import row_sizes

    carried = []
    for part in parts:
        moved = part if part.hierarchy == path.new else part.moved(path)
        carried.append(moved[(row_sizes(moved.labels) > 0) | (row_sizes(part.labels) == 0)])
    joined = concat(carried)
    write(joined, file, taxonomy=False, sep=sep, escape_formulas=True)
    return f"wrote {file}: {len(joined):,} documents, the --train of the next update"


def _write_changes(compared: "PredictionChanges", changes: Path | None) -> list[str]:
    """Write what changes, if asked for, and return the lines that say it."""
    from treelabel.core.atomic_output import open_output
    from treelabel.data.io.cells import escape

    lines = [printable(line) for line in compared.summary().splitlines()]
    if changes is None:
        return lines
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows([escape(cell) for cell in row] for row in compared.table())
    with open_output(changes) as stream:
        stream.write(buffer.getvalue().encode())
    return [*lines, f"wrote {changes}: {len(compared.changes):,} predictions that change"]
