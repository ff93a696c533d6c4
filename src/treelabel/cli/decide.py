"""Commands that decide: decide, tune, rules."""

from pathlib import Path
from typing import Annotated, Any

import typer

from treelabel.cli import options as o
from treelabel.cli.printing import command_line, print_entry, print_json, print_lines, print_result
from treelabel.core.errors import TreelabelError

ScoresArgument = Annotated[
    Path, typer.Argument(metavar="SCORES", help="Scores (.npz or .parquet); - for standard input.")
]


@o.with_read_options
def decide(
    scores: ScoresArgument,
    read: o.ReadArguments,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="File to write (default: print).")] = None,
    rule: Annotated[str, typer.Option(help=f"{o.RULE_HELP}.")] = "threshold",
    unknown: o.UnknownOption = None,
    train: Annotated[Path | None, typer.Option(help="Training file, for rules that weigh labels by rarity.")] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="Data file of the documents, for a rule that goes by a column."),
    ] = None,
    all_labels: o.AllLabelsOption = False,
    force: o.ForceOption = False,
    json: o.JsonOption = False,
) -> None:
    """Turn scores into labels by a decision rule.

    The output has one line per document: {"id": ..., "labels": [{"label": name, "path": "A > B", "p": 0.93}, ...]}. It
    lists the most specific labels, the likeliest first. "closed": true means that they imply their ancestors;
    "unknown": true means that the rule abstained. 'treelabel rules' lists the rules. The reading options apply to the
    training file, and to --data.

    \b
    Examples:
      treelabel decide scores.npz -o predictions.jsonl --rule optimal:hf1
      treelabel decide scores.npz -o predictions.jsonl --rule tuned.json \\
        --unknown 0.3
      treelabel decide scores.npz --rule "top_k(k=3, leaves=true)"
    """
    from treelabel.core.inputs import STANDARD
    from treelabel.evaluation.predictions import prediction_lines, write_predictions
    from treelabel.rules.decisions import decide as choose
    from treelabel.scores.score_matrix import Scores

    o.check_output(output, force, scores, train, rule, data)
    loaded = Scores.load(scores)
    training = None if train is None else read.read_under(train, loaded.hierarchy)
    settings: dict[str, Any] = {} if unknown is None else {"unknown": unknown}
    columns = None if data is None else _columns(data, loaded, rule, read)
    decisions = choose(loaded, rule, train_frequencies=training, by=columns, **settings)
    if output is None or output == STANDARD:
        print_lines(prediction_lines(decisions, loaded, all_labels))
        return
    write_predictions(decisions, output, loaded, all_labels)
    empty = int((decisions.csr.indptr[1:] == decisions.csr.indptr[:-1]).sum())
    abstained = "" if decisions.unknown is None else f", {int(decisions.unknown.sum()):,} of them unknown"
    text = f"{output}: {len(decisions):,} documents by {decisions.rule}, {empty:,} without a label{abstained}"
    values = {"written": str(output), "documents": len(decisions), "rule": decisions.rule, "without_label": empty}
    print_result(values, text, json, command_line("evaluate", "TRUTH", output))


def _columns(path: Path, scores: Any, rule: str, read: o.ReadArguments) -> dict[str, list[Any]]:
    """Read the column that a rule goes by, in the order of the scores."""
    from treelabel.data.data_file import read_batches
    from treelabel.evaluation.alignment import rows_by_id
    from treelabel.rules.tuned_rule import column_of

    name = column_of(rule)
    if name is None:
        raise TreelabelError(f"--data is for a rule with a limit for each value of a column, which {rule} is not")
    values, ids = list[Any](), list[str]()
    columns: list[str] = []
    for batch in read_batches(path, scores.hierarchy, columns=True, **read.batch_options(path)):
        columns = list(batch.extra)
        values += batch.extra[name].to_pylist() if name in batch.extra else []
        ids += list(batch.ids)
    if len(values) < len(ids):
        raise TreelabelError(f"{path}: no column {name!r}, which the rule goes by; columns are: {', '.join(columns)}")
    rows = rows_by_id(scores, ids, str(path))
    if rows is None and len(values) != len(scores):
        raise TreelabelError(f"{path}: {len(values):,} documents, but {len(scores):,} rows of scores")
    return {name: values if rows is None else [values[row] for row in rows]}


@o.with_read_options
def tune(
    truth: Annotated[Path, typer.Argument(metavar="VALID", help="Validation file with the true labels.")],
    scores: ScoresArgument,
    read: o.ReadArguments,
    output: Annotated[Path, typer.Option("--output", "-o", help="JSON file to write the rule to.")],
    rule: Annotated[
        str,
        typer.Option(
            help="What to tune: macro_f1 (a threshold for each label), micro_f1 (one for all), "
            "back_off(precision=0.95), conformal(coverage=0.9) or risk_control(metric=recall, at_least=0.9)."
        ),
    ] = "macro_f1",
    train: Annotated[Path | None, typer.Option(help="Training file, for risk_control(metric=info_recall).")] = None,
    by: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN", help="For conformal: find a limit for each value of this column; coverage holds in each."
        ),
    ] = None,
    force: o.ForceOption = False,
    json: o.JsonOption = False,
) -> None:
    """Find the numbers of a rule on validation data.

    The output file is a rule for decide, evaluate and compare. It only works with the same hierarchy. A threshold for
    each label needs many validation documents per label; with few, optimal:macro_f1, which needs none, is often better.
    For back_off, a table shows what each precision costs: how many documents get a label, how many get a leaf, how deep
    the label is, and how often it is right. These figures come from documents that the thresholds were not found on.
    conformal finds sets of at most so many nodes that cover the true label with a probability; risk_control finds the
    threshold with a recall or precision, for several labels a text. What they promise holds for documents like these,
    and was not measured on texts that the model learned from.

    \b
    Examples:
      treelabel tune valid.jsonl valid-scores.npz -o tuned.json --rule macro_f1
      treelabel tune valid.jsonl valid-scores.npz -o sets.json \\
        --rule "conformal(coverage=0.9, nodes=3, score=aps)"
      treelabel tune valid.csv valid-scores.npz -o sets.json --by language \\
        --rule "conformal(coverage=0.9)"
      treelabel decide test-scores.npz --rule sets.json --data test.csv
      treelabel tune valid.jsonl valid-scores.npz -o sure.json \\
        --rule "back_off(precision=0.95)"
      treelabel decide test-scores.npz --rule sure.json -o predictions.jsonl
    """
    from treelabel.evaluation.tuning import PRECISIONS, back_off_table
    from treelabel.evaluation.tuning import tune as find
    from treelabel.scores.score_matrix import Scores

    o.check_output(output, force, scores, truth, train)
    loaded = Scores.load(scores)
    data = read.read_under(truth, loaded.hierarchy)
    training = None if train is None else read.read_under(train, loaded.hierarchy)
    tuned = find(data, loaded, rule, training, by)
    tuned.save(output)
    table = None
    if tuned.rule == "back_off":
        asked = sorted({*PRECISIONS, tuned.measured["required precision"]})
        table = back_off_table(data, loaded, asked, tuned.measured["confidence"])
    if json:
        rows = {} if table is None else {"table": [row.to_json() for row in table.rows]}
        print_json({"rule": tuned.rule, "measured": dict(tuned.measured), **rows})
        return
    if table is not None:
        levels = ", ".join("never" if t > 1 else f"{t:.4f}" for t in tuned.settings["t"])
        typer.echo(f"{output}: back_off; least scores of levels 1, 2, ...: {levels}\n\n{table}")
        return
    if "promise" in tuned.measured:
        typer.echo(f"{output}: {_describe_promise(tuned)}")
        return
    count = tuned.measured["documents"]
    reached = ", ".join(f"{name} {value:.4f}" for name, value in tuned.measured.items() if name != "documents")
    typer.echo(f"{output}: {tuned.rule}; {reached} on the {count:,} documents it was tuned on, likely less on others")


def _describe_promise(tuned: Any) -> str:
    """Say what a rule promises, what was found for it, and what it reached on other documents."""
    from treelabel.rules.risk_bounds import EVERYTHING

    limits = tuned.settings["t"]
    each = "group" if tuned.by is None else f"value of {tuned.by}"
    shown = f"t = {limits:.4g}" if isinstance(limits, float) else f"{len(limits):,} limits, one for each {each}"
    if limits == EVERYTHING:
        shown = "the root for every document, as these are too few to promise more"
    known = ("promise", "documents", "values")
    reached = ", ".join(
        f"{name} {value:.4g}" for name, value in tuned.measured.items() if name not in known and value is not None
    )
    return (
        f"{tuned.rule}; {shown}\npromised, for documents like these {tuned.measured['documents']:,}: "
        f"{tuned.measured['promise']}\nmeasured, on documents not used for it: {reached}{_list_values(tuned)}"
    )


def _list_values(tuned: Any) -> str:
    """Write a table of the values of the column that a rule goes by; empty without one."""
    if tuned.by is None:
        return ""
    from treelabel.rules.risk_bounds import EVERYTHING

    rows = tuned.measured["values"]
    width = max(len(tuned.by), *(len(row["value"]) for row in rows))
    lines = [f"{tuned.by:<{width}}  documents       t  covered  leaves"]
    for row in rows:
        limit = "root" if row["t"] >= EVERYTHING else f"{row['t']:.4f}"
        numbers = f"{row['share of documents covered']:7.3f}  {row['mean leaves']:6.1f}"
        lines.append(f"{row['value']:<{width}}  {row['documents']:>9,}  {limit:>6}  {numbers}")
    few = sum(row["t"] >= EVERYTHING for row in rows)
    note = f"\n{few:,} of {len(rows):,} values have too few documents for any promise but the root" if few else ""
    return "\n\n" + "\n".join(lines) + note


def rules(json: o.JsonOption = False) -> None:
    """List the decision rules: what they choose, which metric they are best for, and what that assumes.

    \b
    Example:
      treelabel rules
    """
    from treelabel.rules.registry import RULES

    if json:
        rows = {
            row.name: {
                "help": row.help,
                "best_for": row.best_for,
                "exact": row.is_exact,
                "assumes": row.assumes,
                "settings": row.settings,
                "behind @": row.main,
                "needs": sorted(row.needs),
            }
            for row in RULES.values()
        }
        print_json(rows)
        return
    print_entry("rule", "what it chooses", 27)
    for row in RULES.values():
        kind = {True: "; exact", False: "; approximate", None: ""}[row.is_exact]
        assumed = f", assuming {row.assumes}" if row.assumes else ""
        print_entry(row.name, f"{row.help}{kind}{assumed}", 27)
    typer.echo("")
    print_entry(
        "", "A rule is written name, name@number or name(setting=value, ...). Its settings (--json lists all):", 0
    )
    for row in RULES.values():
        if _settings(row):
            print_entry("", f"{row.name}: {_settings(row)}", 2)
    print_entry(
        "", "all rules: closed=true (add ancestors), unknown=none (abstain where no first-level label reaches this)", 2
    )


def _settings(row: Any) -> str:
    """Write the settings of a rule that it has for itself, the one behind @ first."""
    from treelabel.rules.registry import COMMON

    settings = {name: value for name, value in row.settings.items() if name not in COMMON}
    listed = [f"{name}={'' if value is None else value}".removesuffix("=") for name, value in settings.items()]
    return ", ".join(f"{each} (behind @)" if each.startswith(f"{row.main}") else each for each in listed)
