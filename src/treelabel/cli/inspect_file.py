"""The command that describes a file and tells what is wrong with it; how taxonomies are told from data files."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from treelabel.cli import options as o
from treelabel.cli.printing import print_findings, print_rows, print_text
from treelabel.core.errors import TreelabelError

if TYPE_CHECKING:
    from treelabel.data.taxonomy.taxonomy_tables import TaxonomyOptions
    from treelabel.hierarchy.hierarchy import Hierarchy

InputArgument = Annotated[Path, typer.Argument(metavar="FILE", help="A data file, a taxonomy, or a score file.")]


def is_taxonomy_file(path: Path) -> bool:
    """Return whether a file is a taxonomy, by its name."""
    from treelabel.core.inputs import suffixes
    from treelabel.data.taxonomy.taxonomy_files import ENDINGS

    ending, name = suffixes(path)[0], path.name.lower()
    is_named = "taxonomy" in name or "vocab" in name
    return ending in (".taxonomy", ".ttl", ".rdf", ".nt", ".jsonld") or (ending in ENDINGS and is_named)


def taxonomy_options(read: o.ReadArguments) -> "TaxonomyOptions":
    """Return the options of reading a taxonomy among those of reading a data file."""
    from treelabel.data.taxonomy.taxonomy_tables import TaxonomyOptions

    return TaxonomyOptions(
        root=read.root,
        sep=read.sep,
        language=read.language,
        encoding=read.encoding or "utf-8",
        limits=read.limits,
        sheet=read.sheet,
    )


def refuse_without_documents(source: Path, options: dict[str, bool]) -> None:
    """Refuse options that are about documents."""
    for option, asked in options.items():
        if asked:
            raise TreelabelError(f"{source} holds no documents, so {option} has nothing to work on")


@o.with_read_options
def inspect(
    file: InputArgument,
    read: o.ReadArguments,
    train: Annotated[
        Path | None, typer.Option(help="Training file, for the frequencies of labels and for texts in both.")
    ] = None,
    fix: Annotated[
        Path | None,
        typer.Option(metavar="OUT", help="Write a copy in which all that can be repaired safely is repaired."),
    ] = None,
    force: o.ForceOption = False,
    raw: o.RawOption = False,
    json: o.JsonOption = False,
) -> None:
    """Describe what a file holds and what is wrong with it.

    Counts documents, levels, labels per document, rare and unseen labels, duplicates; finds the regime. Then tells what
    looks wrong, with examples and the option or command that repairs it: columns that look like levels, cells with
    several labels, spellings of one label, texts that are in training and test or have different labels, and more.

    --fix OUT unites spellings (case, spaces, HTML entities, Unicode), and leaves out empty texts and copies with the
    same labels. It never changes FILE, and leaves to you whatever needs judgment.

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

    is_scores, is_taxonomy = is_score_file(file), is_taxonomy_file(file)
    if fix is not None:
        if is_scores or is_taxonomy:
            refuse_without_documents(file, {"--fix": True})
        format_of(fix)
        o.check_output(fix, force, file, train)
    if is_scores:
        print_rows(*_scores_summary(file), json)
    elif is_taxonomy:
        from treelabel.data.taxonomy.taxonomy_files import read_with_summary

        hierarchy, form = read_with_summary(file, taxonomy_options(read.for_files(file)))
        values, rows = _taxonomy_summary(hierarchy)
        print_rows({"read_as": form, **values}, [("read as", form), *rows], json)
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
        print_rows({**described.to_json(), **checked} | ({"fixed": done} if fix is not None else {}), [], json)
        return
    columns = ", ".join(f"{what}: {data.choices[what]}" for what in ("text", "labels", "id"))
    chosen = [("file", str(file)), ("columns", columns), ("hierarchy", data.choices["hierarchy"])]
    chosen += [(what, data.choices[what]) for what in ("sheet", "taxonomy") if what in data.choices]
    if "separator" in data.choices:
        chosen.append(("separator", f"{data.choices['separator']!r} in labels, guessed (--sep says otherwise)"))
    print_rows({}, [*chosen, *described.rows()], json)
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
