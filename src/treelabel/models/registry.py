"""The registry of models, and how one is made by its name."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from treelabel.core.errors import TreelabelError
from treelabel.core.registry import Lazy, Registry, suggestion
from treelabel.models.base import Model


@dataclass(frozen=True)
class ModelRow:
    """A row for a class that is imported already, such as a model of another package."""

    name: str
    help: str
    maker: type[Model]


_ROWS: tuple[Lazy[Model] | ModelRow, ...] = (
    Lazy("linear", "tf-idf with a linear output for each node, calibrated; the default", "models.linear.model:Linear"),
    Lazy("extreme", "linear rankers in label trees, for very many labels", "models.extreme.model:Extreme"),
    Lazy("svm", "one support vector machine for each label; the exact baseline of extreme", "models.extreme.svm:Svm"),
    Lazy("bag", "sums of vectors of words and pairs, with any loss (like fastText)", "neural.bag.model:Bag"),
    Lazy(
        "prototype",
        "means of embeddings, shrunk towards parents and label names; no training",
        "models.prototype:Prototype",
    ),
    Lazy(
        "tuned_prototype",
        "prototypes over an encoder that is tuned to the labels; labels can be added later",
        "neural.tuned_prototype:TunedPrototype",
        "neural",
    ),
    Lazy("neural", "a transformer, frozen or fine-tuned, with any loss of LOSSES", "neural.model:Neural"),
    Lazy(
        "hitin",
        "a transformer and a network over the coding tree of the labels",
        "neural.systems.hitin:Hitin",
        "neural",
    ),
    Lazy(
        "hgclr",
        "a transformer with contrastive learning on the words that matter for labels",
        "neural.systems.hgclr:Hgclr",
        "neural",
    ),
    Lazy("hbgl", "a transformer that generates labels level by level", "neural.systems.hbgl:Hbgl", "neural"),
    Lazy("memory", "the labels of the nearest training texts and label names; no training", "models.memory:Memory"),
    Lazy(
        "lexical",
        "labels whose names are in the text, ranked; finds labels that training never saw",
        "models.lexical:Lexical",
    ),
    Lazy(
        "aplc_xlnet",
        "a transformer with clusters of labels by frequency, with fewer dimensions for rare ones",
        "neural.systems.aplc_xlnet:AplcXlnet",
        "neural",
    ),
    Lazy(
        "x_transformer",
        "a transformer that finds clusters of labels, with linear rankers inside them",
        "neural.systems.x_transformer:XTransformer",
        "neural",
    ),
    Lazy(
        "attention_xml",
        "a BiLSTM with attention for every label, and a tree of labels trained level by level",
        "neural.systems.attention_xml:AttentionXml",
        "neural",
    ),
    Lazy(
        "light_xml",
        "a transformer that recalls clusters of labels and ranks their labels",
        "neural.systems.light_xml:LightXml",
        "neural",
    ),
    Lazy("stack", "several models, pooled with weights learned out of fold", "stack.model:Stack"),
    Lazy("most_frequent", "the shares of labels in training, for every text", "models.baselines:MostFrequent"),
    Lazy("nothing", "no label, for every text", "models.baselines:Nothing"),
    Lazy(
        "description_match",
        "labels most of whose words are in one sentence",
        "models.description_match:DescriptionMatch",
    ),
    Lazy(
        "svm_descriptions",
        "one SVM for each label, on the words of label descriptions",
        "models.baselines:SvmDescriptions",
    ),
    Lazy("svm_codes", "one SVM for each label, for texts that are lists of other codes", "models.baselines:SvmCodes"),
    Lazy(
        "zero_shot",
        "similarity to the names and descriptions of labels; no training texts",
        "models.zero_shot:ZeroShot",
    ),
)

MODELS: Registry[Lazy[Model] | ModelRow] = Registry("model", _ROWS)


def make_model(name: str = "linear", **settings: Any) -> Model:
    """Make a model of MODELS with settings of its own; values that a setting cannot have are refused at once.

    Parameters
    ----------
    name
        A row of MODELS.
    **settings
        Settings of the model, by name.

    Returns
    -------
    Model
        A model that has not learned yet.

    >>> make_model("linear", seed=1).seed
    1
    >>> make_model("linear", C=-1)
    Traceback (most recent call last):
    treelabel.core.errors.TreelabelError: the setting C is -1, expected a number from 1e-06 to 1e+06 or null
    """
    check_setting_names(name, settings)
    maker = MODELS.find(name).maker
    maker.check_values(settings)
    made = maker.make(**settings)
    made._check_settings()
    return made


def check_setting_names(model: str, settings: Iterable[str]) -> None:
    """Refuse names that are not settings of a model.

    Parameters
    ----------
    model
        A row of MODELS.
    settings
        The names.
    """
    known = MODELS.find(model).maker.setting_names()
    wrong = [name for name in settings if name not in known]
    if wrong:
        raise TreelabelError(f"the model {model} has no setting {wrong[0]!r}; {suggestion(wrong[0], known)}")
