"""All that a study found, as one text: its title, its tables, and what became of its claims."""

from collections.abc import Sequence

from treelabel.experiment.claims import Verdict, judge_claims
from treelabel.experiment.estimates import Resampled
from treelabel.experiment.results import Results
from treelabel.experiment.styles import Style, write_heading, write_tables, write_verdicts
from treelabel.experiment.tables import make_tables


def summarize(
    results: Results,
    style: Style = "paper",
    names: Sequence[str] | None = None,
    claims: bool = True,
    significance: bool = True,
    bold: bool = False,
    header: bool = True,
) -> tuple[str, list[Verdict]]:
    """Write the tables of a study and the verdicts on its claims.

    Parameters
    ----------
    results : Results
        The runs of the study.
    style : "paper", "markdown", "latex" or "csv"
        How tables are written.
    names : sequence of str, optional
        Only these tables; by default all.
    claims, significance : bool
        Whether to judge claims (CSV has no place for them), and to test what differs from the best of a column.
    bold, header : bool
        Whether the text may have a terminal's codes for bold, and CSV the names of its columns.

    Returns
    -------
    text : str
    verdicts : list of Verdict
    """
    resampled = Resampled(results)
    tables = make_tables(results, names or None, resampled, significance)
    study = results.spec.name if results.folder is None else results.folder.resolve().name
    texts = [write_heading(results.spec.title, style), write_tables(tables, style, study, bold, header)]
    verdicts = judge_claims(results, resampled) if claims else []
    if style != "csv":
        texts.append(write_verdicts(verdicts, style))
    return "\n\n".join(text for text in texts if text), verdicts
