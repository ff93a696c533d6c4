"""Commands on data: inspect, convert, split, sample."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from treelabel.cli import options as o
from treelabel.cli.moves import MovesOption, OldTaxonomyOption, check_moves, move_without_texts, read_moved
from treelabel.cli.printing import print_entry, print_findings, print_json, print_note, print_result, print_text
from treelabel.core.errors import TreelabelError, printable

if TYPE_CHECKING:
    from treelabel.data.dataset import Dataset
    from treelabel.data.taxonomy.taxonomy_tables import TaxonomyOptions
    from treelabel.hierarchy.hierarchy import Hierarchy

InputArgument = Annotated[Path, typer.Argument(metavar="FILE", help="A data file, a taxonomy, or a score file.")]


def _print(values: dict[str, Any], rows: list[tuple[str, str]], as_json: bool) -> None:
    if as_json:
        print_json(values)
        return
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        print_entry(name, printable(value), width + 2)


def _is_taxonomy(path: Path) -> bool:
    from treelabel.core.inputs import suffixes
    from treelabel.data.taxonomy.taxonomy_files import ENDINGS

    ending, name = suffixes(path)[0], path.name.lower()
    is_named = "taxonomy" in name or "vocab" in name
    return ending in (".taxonomy", ".ttl", ".rdf", ".nt", ".jsonld") or (ending in ENDINGS and is_named)


def _taxonomy_options(read: o.ReadArguments) -> "TaxonomyOptions":
    from treelabel.data.taxonomy.taxonomy_tables import TaxonomyOptions

    return TaxonomyOptions(
        root=read.root,
        sep=read.sep,
        language=read.language,
        encoding=read.encoding or "utf-8",
        limits=read.limits,
        sheet=read.sheet,
    )


@o.with_read_options
def inspect(
    file: InputArgument,
    read: o.ReadArguments,
    train: Annotated[
        Path | None, typer.Option(help="Training file, for the frequencies of labels and for texts in both.")
    ] = None,
    fix: Annotated[
        Path | None, typer.Option(metavar="OUT", help="Write the file anew, with what is safe to mend mended.")
    ] = None,
    force: o.ForceOption = False,
    raw: o.RawOption = False,
    json: o.JsonOption = False,
) -> None:
    """Describe what a file holds and what is wrong with it.

    Counts documents, levels, labels per document, rare and unseen labels, duplicates; finds the regime. Then tells what
    looks wrong, with examples and the option or command that mends it: columns that look like levels, cells with
    several labels, spellings of one label, texts that are in training and test or have different labels, and more.

    --fix OUT unites spellings (case, spaces, HTML entities, Unicode), and leaves out empty texts and copies with the
    same labels. It never changes FILE, and leaves to you what needs judgment.

    FILE may also be a taxonomy (taxonomy.tsv, .ttl) or a score file (.npz, .parquet).

    \b
    Examples:
      treelabel inspect train.csv --text body --labels category --sep ' > '
      treelabel inspect test.jsonl.gz --train train.jsonl.gz --taxonomy tax.tsv \\
        --json
      treelabel inspect raw.csv --labels dept,class,subclass --fix train.csv
    """
    from treelabel.data.io.tables import format_of
    from treelabel.scores.score_files import is_score_file

    is_scores, is_taxonomy = is_score_file(file), _is_taxonomy(file)
    if fix is not None:
        if is_scores or is_taxonomy:
            _refuse_without_documents(file, {"--fix": True})
        format_of(fix)
        o.check_output(fix, force, file, train)
    if is_scores:
        _print(*_scores_summary(file), json)
    elif is_taxonomy:
        from treelabel.data.taxonomy.taxonomy_files import read_with_summary

        hierarchy, form = read_with_summary(file, _taxonomy_options(read.for_files(file)))
        values, rows = _taxonomy_summary(hierarchy)
        _print({"read_as": form, **values}, [("read as", form), *rows], json)
    else:
        _inspect_documents(file, read, train, fix, force, raw, json)


def _inspect_documents(
    file: Path, read: o.ReadArguments, train: Path | None, fix: Path | None, force: bool, raw: bool, json: bool
) -> None:
    from dataclasses import replace

    from treelabel.data.checks.registry import find_problems
    from treelabel.data.checks.repair import repair
    from treelabel.data.checks.repair_file import repair_file
    from treelabel.data.io.format import ReadOptions
    from treelabel.data.write import write

    read = read.for_files(file, train)
    # Labels that training does not have are findings.
    data, training = read.read_with(file, train, widen=True)
    described, findings = data.describe(training), find_problems(data, training)
    done: list[str] = []
    if fix is not None:
        repaired = repair(data, training)
        asked = read.options()
        how = ReadOptions(**{name: asked[name] for name in ("encoding", "delimiter", "header", "quotes", "sheet")})
        changes = repair_file(file, fix, data, repaired, replace(how, limits=read.limits))
        also = "" if changes is None else f", all else as it was; {changes} lists the changes"
        if changes is None:
            written = write(repaired.data, fix, escape_formulas=not raw, overwrite=force)
            also = f", and their hierarchy beside them ({written[1].name})" if written[1:] else ""
        done = [*repaired.done, f"wrote {fix}: {len(repaired.data):,} of {len(data):,} documents{also}"]
    if json:
        checked = {"choices": dict(data.choices), "findings": [finding.to_json() for finding in findings]}
        _print({**described.to_json(), **checked} | ({"fixed": done} if fix is not None else {}), [], json)
        return
    columns = ", ".join(f"{what}: {data.choices[what]}" for what in ("text", "labels", "id"))
    chosen = [("file", str(file)), ("columns", columns), ("hierarchy", data.choices["hierarchy"])]
    chosen += [(what, data.choices[what]) for what in ("sheet", "taxonomy") if what in data.choices]
    if "separator" in data.choices:
        chosen.append(("separator", f"{data.choices['separator']!r} in labels, guessed (--sep says otherwise)"))
    _print({}, [*chosen, *described.rows()], json)
    print_findings(findings)
    if done:
        print_text("\n" + "\n".join(done))


def _taxonomy_summary(hierarchy: "Hierarchy") -> tuple[dict[str, Any], list[tuple[str, str]]]:
    values = {
        "nodes": len(hierarchy),
        "leaves": len(hierarchy.leaves),
        "is_tree": hierarchy.is_tree,
        "nodes_per_level": hierarchy.level_sizes,
        "unique_names": hierarchy.has_unique_names,
        "fingerprint": hierarchy.fingerprint,
    }
    kind = "tree" if hierarchy.is_tree else "DAG"
    rows = [
        ("nodes", f"{len(hierarchy):,} ({len(hierarchy.leaves):,} leaves), {kind} of depth {hierarchy.max_depth}"),
        ("nodes per level", "-".join(f"{size:,}" for size in hierarchy.level_sizes)),
        ("unique names", "yes" if hierarchy.has_unique_names else "no: write labels as paths"),
        ("fingerprint", hierarchy.fingerprint),
    ]
    return values, rows


def _scores_summary(file: Path) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    from treelabel.scores.score_matrix import Scores

    scores = Scores.load(file)
    values, rows = _taxonomy_summary(scores.hierarchy)
    gap = scores.coherence_gap()
    summary = {"documents": len(scores), "sparse": scores.is_sparse, "coherence_gap": gap, "hierarchy": values}
    return summary, [("scores", repr(scores)), ("coherence gap", f"{gap:.3g}"), *rows]


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
        bool, typer.Option(help="Write the hierarchy beside the output, where the labels do not say it.")
    ] = True,
    force: o.ForceOption = False,
    deduplicate: Annotated[bool, typer.Option("--deduplicate", help="Join documents with the same text.")] = False,
    without: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Leave out texts that are in this file, too (training data).")
    ] = None,
    unfold: Annotated[bool, typer.Option("--unfold", help="Make a DAG a tree.")] = False,
    cut: Annotated[int | None, typer.Option(help="Keep this many levels.")] = None,
    other_leaves: Annotated[bool, typer.Option("--other-leaves", help="Let every document end in a leaf.")] = False,
    moves: MovesOption = None,
    old_taxonomy: OldTaxonomyOption = None,
    raw: o.RawOption = False,
    json: o.JsonOption = False,
) -> None:
    """Write a file in another format.

    On the way, duplicates can be dropped and the hierarchy changed. Labels are written as full paths, and the hierarchy
    beside the output where they do not say all of it. Nothing that is there already is replaced without --force.

    Taxonomies (IN and OUT named ...taxonomy..., or .ttl) and score files (.npz, .parquet) convert too, and can be
    unfolded and cut.

    With --moves, data, predictions (.jsonl) and scores are carried to the new --taxonomy: labels that were merged add
    up, a label that was split goes to what its new ones have in common, a deleted one to its parent.

    IN may also be a folder of text files, a pattern of files ('in/*.csv') or a table of SQLite (sqlite:///file.db#table).
    Where formats share an ending (.json, .jsonl, .tsv, .txt), the beginning of the file tells them apart, and --format
    says otherwise.

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
    if is_scores or (_is_taxonomy(source) if moves is None else is_prediction_file(source, read.limits)):
        _refuse_without_documents(source, asked)
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


def _refuse_without_documents(source: Path, options: dict[str, bool]) -> None:

    for option, asked in options.items():
        if asked:
            raise TreelabelError(f"{source} holds no documents, so {option} has nothing to work on")


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

    hierarchy, _ = read_with_summary(source, _taxonomy_options(read.for_files(source)))
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


def _parts(text: str) -> dict[str, float]:

    parts: dict[str, float] = {}
    for part in text.split(","):
        name, _, share = part.strip().partition("=")
        try:
            parts[name] = float(share)
        except ValueError:
            name = ""
        # Names become names of files in one folder.
        if not name or Path(name).name != name:
            raise TreelabelError(f"--parts is {text!r}, expected name=share,... such as train=0.8,test=0.2")
    return parts


@o.with_read_options
def split(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to divide.")],
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where the parts go.")],
    read: o.ReadArguments,
    parts: Annotated[str, typer.Option(help="Names and shares of the parts.")] = "train=0.8,valid=0.1,test=0.1",
    by: Annotated[str, typer.Option(help="random, stratified (by leaf), group, time.")] = "stratified",
    column: Annotated[str | None, typer.Option(help="Column with the group or the time.")] = None,
    per_class: Annotated[int | None, typer.Option(help="Instead: this many documents per class in train.")] = None,
    keep_duplicates: Annotated[
        bool, typer.Option(help="Whether documents with the same text come into one part (not by time or per class).")
    ] = True,
    seed: o.SeedOption = 0,
    to_format: Annotated[str, typer.Option(help="Format of the parts.")] = "jsonl",
    force: o.ForceOption = False,
    raw: o.RawOption = False,
    json: o.JsonOption = False,
) -> None:
    """Divide a file for training and testing.

    The hierarchy is written beside the parts: for the whole folder, or for each part where other data files without one
    stand in it. Documents with the same text (case and spacing aside) come into one part, and with --group those with
    the same value in that column, so that nothing is tested on what it was trained on.

    \b
    Examples:
      treelabel split all.jsonl.gz parts --parts train=0.8,test=0.2 --seed 1
      treelabel split tickets.csv parts --group customer
      treelabel split tickets.csv parts --by time --column created
      treelabel split all.csv parts --per-class 1
    """
    from treelabel import data as d
    from treelabel.core.atomic_output import atomic_group
    from treelabel.data.taxonomy.sibling_taxonomy import taxonomy_ending, write_sibling_taxonomy
    from treelabel.data.write import lacking_taxonomy

    dataset = read.read(file)
    if per_class is not None:
        divided = dict(zip(("train", "test"), d.per_class(dataset, per_class, seed), strict=True))
    else:
        divided = d.split(dataset, _parts(parts), by, column, seed, keep_duplicates=keep_duplicates)  # type: ignore[arg-type]
    ending = d.FORMATS.find(to_format).ending
    if to_format == "sqlite":
        raise TreelabelError("parts are files of their own; choose another --to-format than sqlite")
    targets = {name: folder / f"{name}{ending}" for name in divided}
    there = [path for path in targets.values() if path.exists()]
    if there and not force:
        raise TreelabelError(f"{there[0]} is there already; choose another folder, or replace it with --force")
    folder.mkdir(parents=True, exist_ok=True)
    taxonomy = folder / f"taxonomy{taxonomy_ending(dataset.hierarchy)}"
    # Data files that stand there already would be read with a taxonomy of the whole folder.
    is_alone = not lacking_taxonomy(folder, [file, *targets.values()])
    with atomic_group():
        if is_alone:
            write_sibling_taxonomy([*targets.values()], dataset.hierarchy, taxonomy, overwrite=force)
        for name, part in divided.items():
            d.write(part, targets[name], to_format, "auto", None, not is_alone, not raw, overwrite=force)
    others = sorted(path.name for path in folder.glob(f"*{ending}") if path not in targets.values())
    if others:
        print_note(f"{folder} also holds {', '.join(others)}, not of this split")
    counts = {name: len(part) for name, part in divided.items()}
    for name in (name for name, count in counts.items() if count == 0):
        print_note(f"{targets[name]} has no documents")
    _print(counts, [(str(targets[name]), f"{count:,} documents") for name, count in counts.items()], json)


def sample(
    target: Annotated[
        Path | None, typer.Argument(metavar="[OUT]", help="Where to write the sample; any format.")
    ] = None,
    force: o.ForceOption = False,
    raw: o.RawOption = False,
    json: o.JsonOption = False,
) -> None:
    """Describe the embedded sample, or write it.

    It holds WordNet's definitions of several thousand nouns, in a tree of a few hundred.

    \b
    Examples:
      treelabel sample
      treelabel sample nouns.csv
    """
    from treelabel import data as d

    dataset = d.load_sample()
    if target is None:
        described = dataset.describe()
        _print(described.to_json(), [("file", "the embedded sample"), *described.rows()], json)
        return
    o.check_output(target, force)
    written = [str(path) for path in d.write(dataset, target, escape_formulas=not raw, overwrite=force)]
    if json:
        print_json({"written": written})
    else:
        typer.echo("\n".join(f"wrote {path}" for path in written))
