"""Models: the table MODELS, one row each, all with the contract of `base.Model`."""

from dataclasses import dataclass
from importlib import import_module
from typing import Any

from treelabel.errors import TreelabelError
from treelabel.models.base import Model
from treelabel.models.losses import LOSSES
from treelabel.models.store import load_model, save_model


@dataclass(frozen=True)
class ModelEntry:
    """A row of MODELS: what it is, and where it is made. Its file is imported when a model is made."""

    name: str
    help: str
    place: str

    @property
    def maker(self) -> type[Model]:
        """The class of the model."""
        module, _, name = self.place.partition(":")
        made: type[Model] = getattr(import_module(f"treelabel.models.{module}"), name)
        return made


_ROWS = (
    ModelEntry("linear", "tf-idf of words, one linear output a node, calibrated; the default", "linear:Linear"),
    ModelEntry("bag", "vectors of words and pairs, summed, and any loss of LOSSES (fastText's family)", "bag:Bag"),
    ModelEntry(
        "prototype", "means of embeddings drawn to their parents and label names, no training", "prototype:Prototype"
    ),
    ModelEntry("most_frequent", "every text has the labels of training, by their shares", "baselines:MostFrequent"),
    ModelEntry("nothing", "no text has any label", "baselines:Nothing"),
    ModelEntry(
        "description_match", "labels whose words one sentence has, most of them", "description_match:DescriptionMatch"
    ),
    ModelEntry("svm_descriptions", "one SVM a label, on words of label descriptions", "label_svms:SvmDescriptions"),
    ModelEntry("svm_codes", "one SVM a label, where texts are lists of other codes", "label_svms:SvmCodes"),
    ModelEntry("zero_shot", "the labels' names and descriptions, no training texts", "zero_shot:ZeroShot"),
)

MODELS: dict[str, ModelEntry] = {row.name: row for row in _ROWS}


def make_model(name: str = "linear", **settings: Any) -> Model:
    """Make a model of MODELS with settings of its own.

    >>> make_model("linear", seed=1).seed
    1
    """
    if name not in MODELS:
        import difflib

        close = difflib.get_close_matches(name, MODELS, n=1)
        hint = f"did you mean {close[0]}?" if close else f"there are: {', '.join(MODELS)}"
        raise TreelabelError(f"unknown model {name!r}; {hint}")
    maker = MODELS[name].maker
    known = maker.setting_names()
    wrong = [key for key in settings if key not in known]
    if wrong:
        raise TreelabelError(f"the model {name} has no setting {wrong[0]!r}; it has: {', '.join(known)}")
    return maker(**settings)


__all__ = ["LOSSES", "MODELS", "Model", "ModelEntry", "load_model", "make_model", "save_model"]
