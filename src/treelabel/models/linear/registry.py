"""The registry of linear heads."""

from treelabel.calibration.registry import CALIBRATIONS, calibration_for
from treelabel.core.registry import Registry
from treelabel.models.linear.heads import (
    Head,
    outputs_of,
    require_tree_with_one_path,
    train_children,
    train_nodes,
    train_siblings,
)

_ROWS = (
    Head(
        "nodes",
        "squared hinge, each node against all other documents",
        outputs_of,
        train_nodes,
        lambda regime: calibration_for(regime == "multi_path"),
        3.0,
    ),
    Head(
        "leaves",
        "squared hinge, each label where paths end against all other documents",
        lambda train: outputs_of(train, terminals_only=True),
        train_nodes,
        lambda regime: calibration_for(regime == "multi_path"),
        3.0,
    ),
    Head(
        "conditional_softmax",
        "logistic regression among siblings; tau=1 adjusts logits for rare ones",
        lambda train: outputs_of(train, shared=False),
        train_siblings,
        lambda regime: CALIBRATIONS["sibling_softmax"].maker,
        100.0,
        require_tree_with_one_path,
    ),
    Head(
        "conditional_sigmoid",
        "logistic regression of each node among the documents of its parents",
        lambda train: outputs_of(train, shared=False),
        train_children,
        lambda regime: CALIBRATIONS["sibling_sigmoid"].maker,
        100.0,
    ),
)

HEADS: Registry[Head] = Registry("head of linear", _ROWS)
