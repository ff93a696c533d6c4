"""The command check-metric: which formal properties a metric has."""

from typing import Annotated

import typer

from treelabel.cli import options as o
from treelabel.cli.printing import echo, print_json


def check_metric(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A metric of decisions, with its settings.")],
    tries: Annotated[int, typer.Option(min=6, help="Random situations to draw for each property.")] = 600,
    seed: o.SeedOption = 0,
    json: o.JsonOption = False,
) -> None:
    """Test a metric for the formal properties of the extreme-evaluation paper, and print counter-examples.

    Each property says which of two outputs must score higher: a right label is better than none; a right label that is
    rare is worth more; a wrong label that is rare costs more; a wrong label nearer to the true one is better; one more
    right label is better; right labels in several documents are worth more than in one. Small situations are drawn at
    random, with everything else right, or with anything allowed, and the smallest counter-example is printed. A
    property that holds in all of them is not proven.

    A metric of your own is tested in Python: treelabel.check_metric(function).

    \b
    Examples:
      treelabel check-metric icm
      treelabel check-metric "samples_f1(sets=given)" --json
    """
    from treelabel.evaluation.metric_properties import check_metric as check

    result = check(name, tries=tries, seed=seed)
    if json:
        print_json(result.to_json())
    else:
        echo(str(result))
