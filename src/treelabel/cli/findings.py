"""Print findings about data: in full for inspect, in one line for fit; and write what inspect --fix repairs."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from treelabel.cli.options import require_file_name, require_new
from treelabel.cli.printing import echo

if TYPE_CHECKING:
    from treelabel.data.checks.finding import Finding
    from treelabel.data.dataset import Dataset


def print_findings(findings: "list[Finding]") -> None:
    """Print every finding with its examples and what mends it."""
    from treelabel.core.errors import printable

    if not findings:
        echo("\nnothing looks wrong")
    for finding in findings:
        echo(printable(f"\n{'serious' if finding.is_serious else 'note'}: {finding.message}", keep="\n"))
        for example in finding.examples:
            echo(printable(f"  {example}"))
        echo(printable(f"  -> {finding.remedy}"))


def write_fixed(
    data: "Dataset", train: "Dataset | None", target: Path, escape_formulas: bool, force: bool
) -> list[str]:
    """Mend a dataset and write it; return what was done."""
    from treelabel.data.checks.repair import repair
    from treelabel.data.write import write

    repaired, done = repair(data, train)
    written = write(repaired, target, escape_formulas=escape_formulas, overwrite=force)
    taxonomy = f", and their hierarchy beside them ({written[1].name})" if written[1:] else ""
    return [*done, f"wrote {target}: {len(repaired):,} of {len(data):,} documents{taxonomy}"]


def require_fixable(target: Path, force: bool) -> None:
    """Refuse to write over a file, or to a name that no data file has, before anything is read."""
    from treelabel.data.io.tables import format_of

    require_file_name(target)
    format_of(target)
    require_new(target, force)


def print_serious(train: Path, data: "Dataset", valid: "Dataset | None") -> None:
    """Say in one line of standard error what is seriously wrong with training data."""
    from treelabel.core.errors import printable
    from treelabel.data.checks.registry import find_problems

    findings = find_problems(data)
    if valid is not None:
        findings = [*(each for each in find_problems(valid, data) if each.kind == "shared_texts"), *findings]
    summary = "; ".join(finding.message for finding in findings if finding.is_serious)
    if summary:
        typer.echo(printable(f"treelabel: note: {summary}; treelabel inspect {train} says more"), err=True)
