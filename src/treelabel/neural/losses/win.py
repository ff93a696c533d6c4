"""The hierarchical win (Wu, Tygert and LeCun): flat, raw, log and coarse, as the paper compares them.

The win of a distribution p over leaves, with true leaf y at the end of the path n_1 .. n_l, is
win = sum over j of 2^-j p(n_j) + 2^-l p(y): the sum over leaves of p times the share that a leaf has with y. It is 1
where p(y) = 1, and 0 where p has nothing of y's top label.
"""

from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import special

from treelabel.core.types import DoubleArray, IntArray, LongArray
from treelabel.hierarchy import row_numbers
from treelabel.neural.losses.base import Truth
from treelabel.neural.losses.leaf_softmax import LeafSoftmax


class WinFlat(LeafSoftmax):
    """Cross-entropy over the leaves of a tree, -ln p(y): the paper's training with a flat hierarchy.

    >>> from treelabel.hierarchy import Hierarchy
    >>> h = Hierarchy.from_paths(["A > B", "A > C", "D"])
    >>> WinFlat(h).loss([[0.0, 0.0, 0.0]], [[1, 0, 1, 0]]).round(3).tolist()
    [1.099]
    """

    name = "win_flat"
    needs_tree = True


class WinLog(WinFlat):
    """Minus the logarithm of the win: -ln win. On a flat hierarchy it is the cross-entropy.

    With q = p x shares, normalised, the gradient is p - q.

    >>> from treelabel.hierarchy import Hierarchy
    >>> h = Hierarchy.from_paths(["A > B", "A > C", "D"])
    >>> np.exp(-WinLog(h).loss([[0.0, 0.0, 0.0]], [[1, 0, 1, 0]])).round(3).tolist()
    [0.5]
    """

    name = "win_log"

    def shares(self, truth: Truth) -> DoubleArray:
        """Return the win of choosing each leaf, documents x outputs: 1 for the true one, 0 without labels."""
        h, closed = self.hierarchy, truth.closed
        halves = closed.astype(np.float64)
        halves.data = 0.5 ** h.depth[closed.indices].astype(np.float64)
        terminal = h.most_specific(closed)
        last = np.zeros(len(truth))
        last[row_numbers(terminal)] = 0.5 ** h.depth[terminal.indices].astype(np.float64)
        return np.asarray((halves @ self.below).toarray() + last[:, None] * self.targets(truth))

    def loss(self, logits: npt.ArrayLike, truth: Any) -> DoubleArray:
        """Compute -ln win of each document: see `Loss.loss`."""
        s, true = self.checked(logits, truth)
        return -log_win(s, self.shares(true)) + 0.0

    def gradient(self, logits: npt.ArrayLike, truth: Any) -> DoubleArray:
        """Compute p - q: see `Loss.gradient`."""
        s, true = self.checked(logits, truth)
        shares = self.shares(true)
        labelled, found = shares.any(axis=1), np.zeros(s.shape)
        with np.errstate(divide="ignore"):
            q = special.softmax(s[labelled] + np.log(shares[labelled]), axis=1)
        found[labelled] = special.softmax(s[labelled], axis=1) - q
        return found


class WinRaw(WinLog):
    """Minus the win: -win. Its gradient is win x (p - q), which vanishes where everything is wrong.

    >>> from treelabel.hierarchy import Hierarchy
    >>> h = Hierarchy.from_paths(["A > B", "A > C", "D"])
    >>> WinRaw(h).loss([[0.0, 0.0, 0.0]], [[1, 0, 1, 0]]).round(3).tolist()
    [-0.5]
    """

    name = "win_raw"

    def loss(self, logits: npt.ArrayLike, truth: Any) -> DoubleArray:
        """Compute -win of each document: see `Loss.loss`."""
        s, true = self.checked(logits, truth)
        shares = self.shares(true)
        return np.where(shares.any(axis=1), -np.exp(log_win(s, shares)), 0.0)

    def gradient(self, logits: npt.ArrayLike, truth: Any) -> DoubleArray:
        """Compute win x (p - q): see `Loss.gradient`."""
        s, true = self.checked(logits, truth)
        return -self.loss(s, true)[:, None] * super().gradient(s, true)


class WinCoarse(WinFlat):
    """Cross-entropy over the top labels, with a softmax of their own. Nothing is learned below them.

    Children share the probability of their parent evenly: P(n) = P(parent) / siblings.

    >>> from treelabel.hierarchy import Hierarchy
    >>> loss = WinCoarse(Hierarchy.from_paths(["A > B", "A > C", "D"]))
    >>> loss.outputs.tolist(), loss.probabilities([[0.0, 0.0]]).tolist()
    ([0, 1], [[0.5, 0.5, 0.25, 0.25]])
    """

    name = "win_coarse"
    needs = "path"

    @cached_property
    def outputs(self) -> IntArray:
        """The top labels."""
        h = self.hierarchy
        return np.arange(len(h), dtype=np.int32)[h.level(1)] if len(h) else np.zeros(0, np.int32)

    @cached_property
    def top_and_share(self) -> tuple[LongArray, DoubleArray]:
        """The top label above every node, and the node's share of its probability."""
        h = self.hierarchy
        top, share = np.arange(len(h)), np.ones(len(h))
        children = np.bincount(h.parent + 1, minlength=len(h) + 1)[1:]
        for depth in range(2, h.max_depth + 1):
            level = h.level(depth)
            parents = h.parent[level]
            top[level], share[level] = top[parents], share[parents] / children[parents]
        return top, share

    def probabilities(self, logits: npt.ArrayLike) -> DoubleArray:
        """Return P(top label) x the share of it that a node has: documents x nodes."""
        top, share = self.top_and_share
        return np.asarray(special.softmax(self.checked_logits(logits), axis=1)[:, top] * share)


def log_win(logits: DoubleArray, shares: DoubleArray) -> DoubleArray:
    """Compute ln of the sum over leaves of p x shares, p = softmax(s).

    Parameters
    ----------
    logits
        Documents x outputs.
    shares
        The win of choosing each leaf, documents x outputs; a row of 0 is a document without labels.

    Returns
    -------
    DoubleArray
        Shape (documents,), at most 0; 0 without labels.

    Examples
    --------
    >>> np.exp(log_win(np.zeros((1, 2)), np.array([[1.0, 0.5]]))).tolist()
    [0.75]
    """
    labelled = shares.any(axis=1)
    won = np.zeros(len(logits))
    s, b = logits[labelled], shares[labelled]
    won[labelled] = special.logsumexp(np.where(b > 0, s, -np.inf), b=b, axis=1) - special.logsumexp(s, axis=1)
    return np.minimum(won, 0.0)
