"""The command curve: quality against the number of training documents."""

from typing import Annotated

import typer

from treelabel.cli import options as o
from treelabel.cli.models import parse_settings
from treelabel.cli.printing import echo, print_json


@o.with_read_options
def curve(
    train: o.TrainArgument,
    read: o.ReadArguments,
    model: o.ModelOption = "linear",
    set: Annotated[list[str] | None, typer.Option(help="A setting of the model, as C=1 (repeat).")] = None,  # noqa: A002
    metric: Annotated[str, typer.Option(help="A metric that is the mean over documents of shares.")] = "hf1",
    labels_shown: Annotated[int, typer.Option(min=0, help="How many labels that still gain to list.")] = 10,
    seed: o.SeedOption = 0,
    json: o.JsonOption = False,
) -> None:
    """Learn from an eighth, a quarter, a half and all of the documents, and say what twice as many would gain.

    A fifth of the documents is held out (documents of a --group together) to judge all four models. The gain from twice
    as many is extrapolated by a power law with a floor; its interval is over held-out documents. Last come the labels
    that gained most by the last doubling: more documents of these are likely to pay.

    \b
    Examples:
      treelabel curve train.csv
      treelabel curve train.csv --model bag --metric leaf_accuracy --json
    """
    from treelabel.experiment.learning_curve import learning_curve

    settings = parse_settings(set)
    result = learning_curve(read.read(train), model, metric, seed=seed, most_labels=labels_shown, **settings)
    if json:
        print_json(result.to_json())
    else:
        echo(str(result))
