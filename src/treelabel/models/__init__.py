"""Models: the table MODELS, one row each, all with the contract of `base.Model`."""

import difflib
from typing import Any

from treelabel.errors import TreelabelError
from treelabel.models.base import Model
from treelabel.models.entry import Entry, find_entry
from treelabel.models.losses import LOSSES
from treelabel.models.store import load_model, save_model

_ROWS: tuple[Entry[Model], ...] = (
    Entry("linear", "tf-idf of words, one linear output a node, calibrated; the default", "linear:Linear"),
    Entry("bag", "vectors of words and pairs, summed, and any loss but match (fastText's family)", "bag:Bag"),
    Entry(
        "prototype", "means of embeddings drawn to their parents and label names, no training", "prototype:Prototype"
    ),
    Entry("neural", "a transformer, frozen or fine-tuned, and any loss of LOSSES", "neural.model:Neural"),
    Entry("stack", "several models, pooled with weights learned out of fold", "stack:Stack"),
    Entry("most_frequent", "every text has the labels of training, by their shares", "baselines:MostFrequent"),
    Entry("nothing", "no text has any label", "baselines:Nothing"),
    Entry(
        "description_match", "labels whose words one sentence has, most of them", "description_match:DescriptionMatch"
    ),
    Entry("svm_descriptions", "one SVM a label, on words of label descriptions", "label_svms:SvmDescriptions"),
    Entry("svm_codes", "one SVM a label, where texts are lists of other codes", "label_svms:SvmCodes"),
    Entry("zero_shot", "the labels' names and descriptions, no training texts", "zero_shot:ZeroShot"),
)

MODELS: dict[str, Entry[Model]] = {row.name: row for row in _ROWS}


def make_model(name: str = "linear", **settings: Any) -> Model:
    """Make a model of MODELS with settings of its own.

    >>> make_model("linear", seed=1).seed
    1
    """
    maker = find_entry(MODELS, name, "model").maker
    known = maker.setting_names()
    wrong = [key for key in settings if key not in known]
    if wrong:
        close = difflib.get_close_matches(wrong[0], known, n=1)
        hint = f"did you mean {close[0]}?" if close else f"it has: {', '.join(known)}"
        raise TreelabelError(f"the model {name} has no setting {wrong[0]!r}; {hint}")
    return maker(**settings)


__all__ = ["LOSSES", "MODELS", "Model", "load_model", "make_model", "save_model"]
