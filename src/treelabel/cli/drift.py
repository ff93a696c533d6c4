"""The command drift: whether texts still are what a model was trained on."""

from typing import Annotated

import typer

from treelabel.cli import options as o
from treelabel.cli.printing import print_json, print_text
from treelabel.core.errors import TreelabelError

# For a cron job: texts have drifted.
DRIFTED = 3
# Scores that are held at a time; of more labels, only the likeliest of each text.
MOST_SCORES = 1 << 23
MANY_LABELS = 10_000
MOST_LIKELY = 100


@o.with_read_options
def drift(
    model: o.ModelArgument,
    texts: o.TextsArgument,
    read: o.ReadArguments,
    limit: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="The largest change of a share that is no drift.")
    ] = 0.1,
    seed: o.SeedOption = 0,
    require_signature: o.SignatureOption = None,
    json: o.JsonOption = False,
) -> None:
    """Compare texts with what a model was trained on: unknown words, shares of labels, confidence.

    All are shares from 0 to 1, compared with what the model stores of training and held-out documents. A change exceeds
    the limit if its whole 95% interval does, so a few texts alone are no drift. More confidence and fewer unknown words
    are no drift either. If a change exceeds the limit, the exit code is 3, for a job that runs every night.

    \b
    Examples:
      treelabel drift model this-week.csv
      treelabel drift model this-week.csv --limit 0.05 --json > drift.json \\
        || mail -s "drift" me < drift.json
    """
    import numpy as np

    from treelabel.data.data_file import DataFile
    from treelabel.models.model_inputs import texts_of
    from treelabel.models.persistence.load import load_model
    from treelabel.models.streaming import blank_texts
    from treelabel.operations.drift import DriftMeter

    loaded = load_model(model, require_signature)
    options = read.like(loaded).for_files(texts).options(need_labels=False)
    if options.pop("taxonomy") is not None:
        raise TreelabelError("--taxonomy cannot be given here: the model knows its hierarchy")
    file, h = DataFile.of(texts, **options), loaded.hierarchy_
    meter = DriftMeter(h, loaded.profile_, seed)
    top = MOST_LIKELY if len(h) > MANY_LABELS else None
    size = max(1, min(8192, MOST_SCORES // max(1, min(len(h), MANY_LABELS))))
    for batch in file.batches(h, size):
        blank = blank_texts(texts_of(batch)[0])
        known = batch[np.flatnonzero(~blank)] if blank.any() else batch
        meter.add(loaded.score(known, top=top), loaded.unknown_words(known))
    results = meter.result(limit)
    if all(measure.change is None for measure in results.measures):
        raise TreelabelError(f"{model}: the model remembers nothing of its training that {texts} can be compared with")
    if json:
        print_json(results.to_json())
    else:
        print_text(str(results))
    if results.is_beyond:
        raise typer.Exit(DRIFTED)
