"""Going on with a fitted head: other names for its outputs, or weights for more documents under its calibration.

What is learned again are the weights, in one training with all documents; n-grams, the head and the calibration, whose
parameters belong to levels and not to labels, are those of the first fit, which spends 40 to 90% of its time on them
(benchmarks/update.py). Documents are visited in the same order as in a fit, so that the weights are those of fitting
anew with the same settings, bit for bit. They start where every training starts: on mwpd_gpc (10,012 documents),
starting from the dual variables of nine tenths of the documents takes 0.7 times as long in the loop, which is a fifth
of a fit there; but 59% of all documents x outputs have a dual variable, far more than there are weights, and to derive
these from weights, a = 2C max(0, 1 - y w x), multiplies what was pruned and not yet converged by 2C for each document.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from treelabel.calibration.outputs import Outputs
from treelabel.core.errors import TreelabelError, some
from treelabel.core.sparse_product import Weights
from treelabel.hierarchy import label_matrix
from treelabel.hierarchy.moves import Moves
from treelabel.models.linear.fitted import FittedHead
from treelabel.models.linear.heads import Job
from treelabel.models.linear.registry import HEADS
from treelabel.models.linear.weights import WeightCollector

# With more documents than this many times those of before, calibration is fitted anew to held-out documents.
MOST_GROWTH = 2.0


def refit_head(old: FittedHead, job: Job, ratio: float) -> FittedHead:
    """Train the outputs of a head anew, nothing being held out, and keep its calibration.

    Parameters
    ----------
    old : FittedHead
        The head that was fitted before, to documents of the same regime.
    job : Job
        All documents.
    ratio : float
        The number of documents before over that of now.

    Returns
    -------
    FittedHead
    """
    head = HEADS[old.head]
    outputs = head.outputs(job.train)
    collector = WeightCollector(0, job.rows.features.shape[1], outputs.count, job.prune)
    head.train(job, head.c if job.c is None else job.c, outputs, collector)
    kept = type(old.calibration).of(outputs, old.calibration.arrays()).for_more_documents(ratio)
    return FittedHead(old.head, Weights(collector.weights(), collector.bias), kept)


def moved_head(old: FittedHead, moves: Moves) -> FittedHead:
    """Let outputs speak for the new names of their labels, where that is all that changed for them.

    A label's weights tell its documents from all others. They stay right while it keeps these documents: when it is
    renamed, or moved with everything that is below its parent. Where parents have no outputs (the head "leaves"),
    leaves may move anywhere. Anything else changes the documents of some output, and is refused.

    Parameters
    ----------
    old : FittedHead
        The head.
    moves : Moves
        From its hierarchy to the new one.

    Returns
    -------
    FittedHead
    """
    known, above = old.outputs, old.head != "leaves"
    own = known.nodes if above else known.terminals
    targets = [target for node in own.tolist() for target in moves.targets[node]]
    taken = np.bincount(np.array(targets, np.int64), minlength=len(moves.new))
    changed = [node for node in own.tolist() if not _keeps_documents(moves, node, taken, above)]
    if above:
        same_kind = moves.old.is_leaf[known.terminals] == moves.new.is_leaf[moves.forward[known.terminals].indices]
        changed = changed or known.terminals[~same_kind].tolist()
    if changed:
        raise TreelabelError(
            f"other texts than before belong to {some(moves.old.paths(changed))} now, and linear (head={old.head}) has "
            "to learn them anew; name the file that it was trained on with --train (train=). Labels that are renamed "
            "need none"
        )
    return replace(old, calibration=type(old.calibration).of(_renamed(known, moves), old.calibration.arrays()))


def _keeps_documents(moves: Moves, node: int, taken: npt.NDArray[Any], above: bool) -> bool:
    """Return whether an output has the same documents after moves, and, if asked, the same ones above it."""
    found = moves.targets[node]
    if len(found) != 1 or taken[found[0]] > 1:
        return False
    parents = {target for parent in moves.old.parents([node]).indices.tolist() for target in moves.targets[parent]}
    return not above or parents == set(moves.new.parents([found[0]]).indices.tolist())


def _renamed(known: Outputs, moves: Moves) -> Outputs:
    """Assign the outputs to the new nodes."""
    where = np.array([found[0] if len(found) == 1 else -1 for found in moves.targets], np.int32)
    terminals = where[known.terminals]
    order = np.argsort(terminals)
    # Above leaves that moved are other nodes than before, which have no outputs then.
    has = known.node_outputs >= 0
    own = dict(zip(where[known.nodes[has]].tolist(), known.node_outputs[has].tolist(), strict=True))
    at = np.union1d(terminals, list(own))
    nodes = np.unique(moves.new.closure(label_matrix([0, len(at)], at, len(moves.new))).indices).astype(np.int32)
    node_outputs = np.array([own.get(node, -1) for node in nodes.tolist()], np.int32)
    return Outputs(moves.new, nodes, node_outputs, terminals[order], known.terminal_outputs[order])
