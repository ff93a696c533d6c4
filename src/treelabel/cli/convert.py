"""The command that writes a file in another format: documents, taxonomies, scores."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from treelabel.cli import options as o
from treelabel.cli.inspect_file import is_taxonomy_file, refuse_without_documents, taxonomy_options
from treelabel.cli.moves import MovesOption, OldTaxonomyOption, check_moves, move_without_texts, read_moved
from treelabel.cli.printing import print_note, print_result
from treelabel.core.errors import TreelabelError

if TYPE_CHECKING:
    from treelabel.data.dataset import Dataset


@o.with_read_options
def convert(
    source: Annotated[Path, typer.Argument(metavar="IN", help="The file to read; - for standard input.")],
    target: Annotated[
        Path,
        typer.Argument(
            metavar="OUT", help="The file to write; its ending says the format. - for standard output (JSON Lines)."
        ),
    ],
    read: o.ReadArguments,
    to_format: o.ToFormatOption = None,
    labels_as: Annotated[str, typer.Option(help="Write labels as: auto, names or paths.")] = "auto",
    write_taxonomy: Annotated[
        bool, typer.Option(help="Write the hierarchy next to the output, if the labels do not contain it.")
    ] = True,
    force: o.ForceOption = False,
    deduplicate: Annotated[bool, typer.Option("--deduplicate", help="Merge documents with the same text.")] = False,
    without: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Leave out texts that this file also has (training data).")
    ] = None,
    unfold: Annotated[bool, typer.Option("--unfold", help="Turn a DAG into a tree.")] = False,
    cut: Annotated[int | None, typer.Option(help="Keep this many levels.")] = None,
    other_leaves: Annotated[bool, typer.Option("--other-leaves", help="Let every document end in a leaf.")] = False,
    moves: MovesOption = None,
    old_taxonomy: OldTaxonomyOption = None,
    raw: o.RawOption = False,
    json: o.JsonOption = False,
) -> None:
    """Write a file in another format.

    Options also drop duplicates and change the hierarchy. Labels are written as full paths; if these do not contain the
    whole hierarchy, it is written next to the output. No existing file is replaced without --force.

    Taxonomies (IN and OUT named ...taxonomy..., or .ttl) and score files (.npz, .parquet) can be converted too, and
    unfolded and cut.

    With --moves, data, predictions (.jsonl) and scores are carried to the new --taxonomy: labels that were merged add
    up, a label that was split becomes the common ancestor of its new ones, and a deleted label becomes its parent.

    IN may also be a folder of text files, a pattern of files ('in/*.csv') or a table of SQLite (sqlite:///file.db#table).
    Where formats share an ending (.json, .jsonl, .tsv, .txt), the beginning of the file decides, unless --format does.

    \b
    Formats: csv, tsv, jsonl, parquet, fasttext, xmc, htc, xlsx, arrow, annif,
    label_studio, prodigy, argilla, spacy, libmultilabel, libsvm, txt, folder,
    sqlite; add .gz or .zst to compress text.
    Examples:
      treelabel convert train.csv train.parquet --labels category --sep ' > '
      treelabel convert train.jsonl.gz train.ft --taxonomy tax.tsv --deduplicate
      treelabel convert tickets.xlsx tickets.csv --sheet 2
      treelabel convert test.csv clean-test.csv --without train.csv
      treelabel convert subjects.ttl subjects.taxonomy.tsv --language fi
      treelabel convert annotated.json train.csv --taxonomy tax.tsv
      treelabel convert train.csv corpus --to-format annif
      treelabel convert scores.npz new-scores.npz --moves moves.tsv \\
        --taxonomy new.tsv
      zcat train.csv.gz | treelabel convert - - --to-format parquet \\
        | ssh store 'cat > train.parquet'
    """
    from treelabel import data as d
    from treelabel.core.inputs import suffixes
    from treelabel.operations.move_predictions import is_prediction_file
    from treelabel.scores.score_files import is_score_file

    if labels_as not in ("auto", "names", "paths"):
        raise TreelabelError(f"--labels-as is {labels_as!r}, expected auto, names or paths")
    o.check_output(target, force, source, without)
    is_scores = is_score_file(source) or suffixes(target)[0] == ".npz"
    asked = {"--deduplicate": deduplicate, "--other-leaves": other_leaves, "--without": without is not None}
    check_moves((source, target), read, moves, old_taxonomy, {"--unfold": unfold, "--cut": cut is not None})
    if is_scores or (is_taxonomy_file(source) if moves is None else is_prediction_file(source, read.limits)):
        refuse_without_documents(source, asked)
        if moves is not None:
            values, text = move_without_texts(source, target, read, moves, old_taxonomy)
        elif is_scores:
            values, text = _convert_scores(source, target, unfold, cut)
        else:
            values, text = _convert_taxonomy(source, target, read, to_format, unfold, cut)
        print_result(values, text, json)
        return
    changes = ""
    if moves is None:
        dataset, others = read.read_with(source, without)
    else:
        dataset, changes = read_moved(source, read, moves, old_taxonomy)
        others = None if without is None else read.read(without)
    if others is not None:
        dataset = d.without_texts(dataset, others.texts)
    dataset = d.deduplicate(dataset) if deduplicate else dataset
    dataset = d.unfold(dataset) if unfold else dataset
    dataset = d.cut(dataset, cut) if cut is not None else dataset
    dataset = d.with_other_leaves(dataset) if other_leaves else dataset
    written = _write_documents(dataset, target, to_format, labels_as, write_taxonomy, raw, force)
    if written:
        values = {"written": [str(file) for file in written], "documents": len(dataset)}
        lines = [
            f"wrote {written[0]}: {len(dataset):,} documents",
            *(f"wrote {file}: their hierarchy" for file in written[1:]),
        ]
        print_result(values, "\n".join([changes, *lines] if changes else lines), json)


def _write_documents(
    dataset: "Dataset",
    target: Path,
    to_format: str | None,
    labels_as: str,
    write_taxonomy: bool,
    raw: bool,
    force: bool,
) -> list[Path]:
    """Write documents, say what was lost and return the files; standard output has no place for the hierarchy."""
    from treelabel import data as d
    from treelabel.core.inputs import STANDARD
    from treelabel.core.standard import as_output

    written: list[Path] = []
    if target == STANDARD:
        to_format = to_format or "jsonl"
        ending = d.FORMATS.find(to_format).ending
        if not ending:
            raise TreelabelError(f"the format {to_format} cannot be written to standard output; name what to write")
        with as_output(STANDARD, ending) as target:
            d.write(dataset, target, to_format, labels_as, None, False, not raw)  # type: ignore[arg-type]
    else:
        written = d.write(dataset, target, to_format, labels_as, None, write_taxonomy, not raw, overwrite=force)  # type: ignore[arg-type]
    lost = d.losses(dataset, target, to_format)
    if lost:
        print_note(f"this format has no place for {', '.join(lost)}")
    return written


def _convert_scores(source: Path, target: Path, unfold: bool, cut: int | None) -> tuple[dict[str, Any], str]:
    from treelabel.scores.score_matrix import Scores

    scores = Scores.load(source)
    if unfold:
        scores = scores.move(scores.hierarchy.unfold())
    if cut is not None:
        scores = scores.move(scores.hierarchy.cut(cut))
    scores.save(target)
    values = {"written": [str(target)], "documents": len(scores)}
    return values, f"wrote {target}: scores of {len(scores):,} documents"


def _convert_taxonomy(
    source: Path, target: Path, read: o.ReadArguments, to_format: str | None, unfold: bool, cut: int | None
) -> tuple[dict[str, Any], str]:
    from treelabel.core.atomic_output import open_output
    from treelabel.data.taxonomy.taxonomy_files import read_with_summary, write_taxonomy

    hierarchy, _ = read_with_summary(source, taxonomy_options(read.for_files(source)))
    if unfold:
        hierarchy = hierarchy.unfold().new
    if cut is not None:
        hierarchy = hierarchy.cut(cut).new
    values = {"written": [str(target)], "nodes": len(hierarchy)}
    if to_format == "label_studio":
        from treelabel.data.io.label_studio import label_config

        with open_output(target) as stream:
            stream.write(label_config(hierarchy).encode() + b"\n")
        return values, f"wrote {target}: the labelling configuration for {len(hierarchy):,} nodes"
    kinds = {None: None, "annif": "vocabulary", "vocabulary": "vocabulary"}
    if to_format not in kinds:
        raise TreelabelError(
            f"--to-format is {to_format!r}; a taxonomy has the format of its ending, or is a vocabulary (annif) or a "
            "configuration (label_studio)"
        )
    kind = kinds[to_format]
    write_taxonomy(hierarchy, target, kind, read.language)  # type: ignore[arg-type]
    if kind is not None and hierarchy.max_depth > 1:
        print_note("a vocabulary of Annif has no hierarchy; .ttl (SKOS) keeps it")
    return values, f"wrote {target}: {len(hierarchy):,} nodes"
