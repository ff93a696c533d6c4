"""The rule that decides where none is named: by what the labels of documents are like."""

from typing import Final

from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.hierarchy.label_matrices import LabelMatrix
from treelabel.hierarchy.labelled_texts import Regime, usual_regime

DEFAULT_RULES: Final[dict[Regime, str]] = {
    "single_path": "best_leaf",
    "partial_path": "optimal:hf1",
    "multi_path": "optimal:samples_f1",
}


def default_rule(hierarchy: Hierarchy, labels: LabelMatrix) -> str:
    """Return the rule for labels of the usual regime of some documents (see `usual_regime`).

    Documents with one leaf each get their best leaf; others the set with the largest expected F1, of a path or of any
    labels.

    Parameters
    ----------
    hierarchy : Hierarchy
        A tree or DAG.
    labels : LabelMatrix, documents x nodes
        As given or closed.

    Returns
    -------
    str
        The name of a rule.

    >>> h = Hierarchy.from_paths(["A > B", "C"])
    >>> default_rule(h, h.closure([[0, 0, 1]])), default_rule(h, h.closure([[1, 1, 0]]))
    ('best_leaf', 'optimal:samples_f1')
    """
    return DEFAULT_RULES[usual_regime(hierarchy, labels)]
