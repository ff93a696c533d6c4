"""Compile the loops with which learning a linear model ends, by a tiny example of it.

They are called by the functions that call them in earnest, so that they are compiled for the same types.
"""

import numpy as np
from scipy import sparse

from treelabel.calibration.path_softmax import PathSoftmax
from treelabel.core.sparse_product import SparseWeights
from treelabel.core.stopping import StopSignal
from treelabel.core.strings import Strings
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.hierarchy.label_ids import encode
from treelabel.models.linear.conditional import Group, train_groups
from treelabel.models.linear.descent import TrainingRows
from treelabel.models.linear.heads import HeadTask, fit_head, outputs_of
from treelabel.models.linear.pruned_weights import WeightCollector
from treelabel.selection.training import Training

ROWS, WIDTH = 12, 4


def warm_up() -> None:
    """Compile loops in the order in which another process, which begins with texts, does not.

    First what needs no hierarchy, as that one begins by making one; then calibration, the longest of all.
    """
    rng = np.random.default_rng(0)
    features = sparse.csr_array(rng.random((ROWS, WIDTH), np.float32) + np.float32(0.5))
    features = sparse.csr_array((features.data, features.indices.astype(np.int32), features.indptr.astype(np.int32)))
    rows = TrainingRows(features, [np.arange(ROWS // 2)], max_iter=1)
    collector = WeightCollector(ROWS // 2, WIDTH, 2)
    true = np.eye(2, dtype=np.float32)[np.arange(ROWS) % 2]
    group = Group(np.arange(2, dtype=np.int32), np.arange(ROWS), true, np.zeros(2, np.float32))
    train_groups(rows, [group], True, 1.0, collector.take, StopSignal(), lambda _: None)
    collector.weights()
    h = Hierarchy.from_paths(["A > B", "A > C", "D > E", "D > F"])
    labels = [h.names[leaf] for leaf in h.leaves]
    train = Training(Strings.of(["a"] * ROWS), encode(h, [labels[row % 4] for row in range(ROWS)]), h, progress=False)
    outputs = outputs_of(train)
    margins = rng.random((ROWS, outputs.count), np.float32)
    fitted = PathSoftmax(outputs).fit(margins, train.labels)
    fitted.probabilities(margins)
    weights = sparse.csr_array(rng.random((WIDTH, outputs.count), np.float32))
    product = SparseWeights(weights, margins[0].copy())
    fitted.probabilities_of(features, product)
    product.times(features, 0, ROWS)
    job = HeadTask(rows, train, None, 0.0, 0.01)
    for head in ("conditional_softmax", "nodes"):
        fit_head(head, job)
