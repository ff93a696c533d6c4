"""The command review: what is safe to accept, what a person should look at first, and training data of the answers."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from treelabel.cli import options as o
from treelabel.cli.printing import command_line, print_result
from treelabel.core.errors import TreelabelError

if TYPE_CHECKING:
    from treelabel.operations.review import Reviewed


@o.with_read_options
def review(
    read: o.ReadArguments,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="File to write: the queue, or with --apply training data.")
    ],
    model: Annotated[Path | None, typer.Argument(metavar="[MODEL]", help="Model folder that fit wrote.")] = None,
    texts: Annotated[
        Path | None, typer.Argument(metavar="[TEXTS]", help="Data file with texts (labels are not looked at).")
    ] = None,
    precision: Annotated[float, typer.Option(help="The share of accepted predictions that must be right.")] = 0.95,
    alternatives: Annotated[int, typer.Option(min=0, help="Other labels to list for each text.")] = 3,
    apply: Annotated[
        Path | None, typer.Option(metavar="QUEUE", help="Turn a queue that was filled in into training data.")
    ] = None,
    accepted: Annotated[
        bool, typer.Option("--accepted", help="With --apply: take accepted rows, too, with their suggestion.")
    ] = False,
    force: o.ForceOption = False,
    require_signature: o.SignatureOption = None,
    json: o.JsonOption = False,
) -> None:
    """Say which predictions are safe to accept, and which texts a person should look at first.

    The queue has a row for each text: the suggestion with its probability, alternatives, and the status accept or
    review. What is safe to accept is measured on held-out documents. A suggestion is right if none of its labels is
    wrong; where texts have several labels, it may lack some. Texts to review come first, the most useful at the top:
    (1 - p) x density x rarity. Density is how similar the other texts of the file are, and rarity how few training
    documents the suggested label has.

    In the empty column label, write one label, several joined by ';' (or --label-sep), ok for the suggestion, or ? or
    nothing to skip the text. Then --apply turns the queue into training data, which fit reads. Labels are checked
    against the taxonomy next to the queue, or that of MODEL; if one is unknown, its row is named, and nothing written.

    \b
    Examples:
      treelabel review model new.csv -o queue.csv --precision 0.95
      treelabel review --apply queue.csv -o new-training.csv --accepted
    """

    o.check_output(output, force, texts, apply)
    if apply is not None:
        if texts is not None:
            raise TreelabelError(f"--apply reads {apply} alone; leave out {texts}")
        _apply(apply, model, output, force, accepted, read, require_signature, json)
        return
    if model is None or texts is None:
        raise TreelabelError("expected a model and a file with texts, or --apply and a queue")
    if accepted:
        raise TreelabelError("--accepted says what --apply takes; leave it out here")
    _queue(model, texts, output, force, precision, alternatives, read, require_signature, json)


def _queue(
    model: Path,
    texts: Path,
    output: Path,
    force: bool,
    precision: float,
    alternatives: int,
    read: o.ReadArguments,
    require_signature: Path | None,
    json: bool,
) -> None:
    from treelabel.data.queue import LABEL_SEPARATOR, QueueRow, write_queue
    from treelabel.hierarchy.label_ids import decode
    from treelabel.models.persistence.load import load_model
    from treelabel.operations.review import review as look

    loaded = load_model(model, require_signature)
    h, sep = loaded.hierarchy_, read.label_sep or LABEL_SEPARATOR
    data = read.like(loaded).read(texts, taxonomy=h, need_labels=False)
    result = look(loaded, data, precision, alternatives)
    paths = decode(h, result.suggestions, paths=True)
    rows = [
        QueueRow(
            bool(result.accepted[row]),
            float(result.priority[row]),
            paths[row],
            float(result.p[row]),
            [(h.paths([node])[0], p) for node, p in result.alternatives[row]],
        )
        for row in result.order.tolist()
    ]
    write_queue(data[result.order], rows, output, sep, force)
    accepted = int(result.accepted.sum())
    values = {"written": str(output), "texts": len(result.p), "accepted": accepted, "precision": precision}
    text = f"{output}: {_summary(result, precision)}\n"
    text += (
        f"Fill in the column label (several labels joined by {sep!r}, ok for the suggestion, ? or nothing to skip), "
        "then: " + command_line("review", "--apply", output, "-o", "new-training.csv", "--accepted")
    )
    print_result(values, text, json)


def _summary(result: "Reviewed", precision: float) -> str:
    accepted, total, by = int(result.accepted.sum()), len(result.p), result.acceptance
    if by.precision is None:
        how = f"{by.held_out:,} held-out documents" if by.held_out else "probabilities"
        reached = f"none accepted, as {how} show no threshold with a precision of {precision:g}"
    else:
        share = accepted / max(1, total)
        right = f"{by.precision:.3f} of them right by their probabilities alone, as no held-out documents are known"
        if by.held_out:
            right = f"at least {by.precision:g} of them right with 90% confidence ({by.held_out:,} held-out documents)"
        if by.complete is not None and by.complete < 1:
            right += f"; right is a suggestion without a wrong label, and {by.complete:.0%} of those lack none either"
        reached = f"{accepted:,} accepted ({share:.1%}) from p = {by.threshold:.3f} on, {right}"
    return f"{total:,} texts; {reached}; {total - accepted:,} to review, the most useful first"


def _apply(
    queue: Path,
    model: Path | None,
    output: Path,
    force: bool,
    accepted: bool,
    read: o.ReadArguments,
    require_signature: Path | None,
    json: bool,
) -> None:
    from treelabel.data.io.format import ReadOptions
    from treelabel.data.queue import LABEL_SEPARATOR, read_queue
    from treelabel.data.taxonomy.taxonomy_files import read_taxonomy
    from treelabel.models.persistence.load import load_model

    hierarchy = None if read.taxonomy is None else read_taxonomy(read.taxonomy, root=read.root)
    if model is not None:
        hierarchy = load_model(model, require_signature).hierarchy_
    asked = read.for_files(queue).options()
    options = ReadOptions(asked["encoding"], asked["delimiter"], quotes=asked["quotes"], limits=read.limits)
    result = read_queue(queue, hierarchy, accepted, read.label_sep or LABEL_SEPARATOR, options)
    counts = (
        f"{result.labelled:,} labelled, {result.confirmed:,} confirmed, {result.accepted:,} accepted, "
        f"{result.skipped:,} skipped"
    )
    if not len(result.data):
        raise TreelabelError(f"{queue}: no row has a label ({counts}), so there is nothing to write")
    result.write(output, force)
    values = {"written": str(output), "documents": len(result.data), "labelled": result.labelled}
    values |= {"confirmed": result.confirmed, "accepted": result.accepted, "skipped": result.skipped}
    text = f"{output}: {len(result.data):,} documents of {queue}: {counts}"
    print_result(values, text, json, command_line("update", "MODEL", output, "-o", "NEW", "--train", "TRAIN"))
