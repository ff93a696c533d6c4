"""The meaning of each metric in one sentence, for somebody who has never heard of it."""

from dataclasses import dataclass
from typing import Final, Literal

from treelabel.metrics.registry import METRICS

Unit = Literal["share", "percent", "nodes"]


@dataclass(frozen=True)
class Meaning:
    """A metric for people: its name, a sentence, how its values are written, and whether more is better."""

    title: str
    sentence: str
    unit: Unit = "share"
    higher_is_better: bool = True

    def written(self, value: float, signed: bool = False) -> str:
        """Write a value, or a difference with its sign; "n/a" where there is none.

        Parameters
        ----------
        signed : bool
            Whether it is a difference.

        Returns
        -------
        str

        >>> Meaning("", "").written(0.51234), Meaning("", "", "percent").written(0.0123, signed=True)
        ('0.512', '+1.230%')
        """
        if value != value:
            return "n/a"
        sign = "+" if signed else ""
        text = f"{100 * value:{sign}.3f}%" if self.unit == "percent" else f"{value:{sign}.3f}"
        return text.replace("-", "\N{MINUS SIGN}")


MEANINGS: Final[dict[str, Meaning]] = {
    "hf1": Meaning(
        "Hierarchical F1",
        "How well the predicted labels and all their ancestors agree with the true ones, averaged over documents: a "
        "wrong leaf under the right branch still earns credit for the branch.",
    ),
    "hp": Meaning(
        "Hierarchical precision",
        "Of the labels predicted for a document, ancestors included, the share that is true; a document without a "
        "prediction counts 0.",
    ),
    "hr": Meaning(
        "Hierarchical recall",
        "Of the true labels of a document, ancestors included, the share that was predicted.",
    ),
    "subset_accuracy": Meaning(
        "Exactly right",
        "The share of documents that got exactly their true labels, down to the most specific one.",
    ),
    "micro_f1": Meaning(
        "Micro-F1",
        "F1 over all single decisions together: frequent labels, mostly those near the top, count most.",
    ),
    "macro_f1": Meaning(
        "Macro-F1",
        "F1 of each label on its own, averaged over all labels: a rare label counts as much as a frequent one, and a "
        "label that is never found counts 0.",
    ),
    "shortest_path": Meaning(
        "Distance to the truth",
        "How many labels a document has too many or too few, ancestors included; for single labels it is the number "
        "of steps through the tree from the predicted to the true one. Lower is better.",
        "nodes",
        higher_is_better=False,
    ),
    "hamming": Meaning(
        "Hamming loss",
        "The share of all yes-or-no questions, one for each document and label, that were answered wrongly. It is "
        "small wherever there are many labels. Lower is better.",
        "percent",
        higher_is_better=False,
    ),
    "hf1_auc": Meaning(
        "Area under precision and recall",
        "How good the scores are before any rule decides: hierarchical precision averaged over all levels of recall.",
    ),
    "ece": Meaning(
        "Calibration error of leaves",
        "How far the probability of the likeliest leaf is from how often that leaf is right, on average: 0.05 means "
        "that probabilities are off by five points. Lower is better.",
        higher_is_better=False,
    ),
}

HEADLINES: Final = tuple(MEANINGS)


def meaning(metric: str) -> Meaning:
    """Return what a metric means; one without a sentence here has the help of its row in METRICS.

    >>> meaning("macro_f1").title, meaning("jaccard").sentence
    ('Macro-F1', 'Shared nodes among all nodes of either set.')
    """
    if metric in MEANINGS:
        return MEANINGS[metric]
    row = METRICS[metric]
    return Meaning(metric, f"{row.help[:1].upper()}{row.help[1:]}.", higher_is_better=row.higher_is_better)
