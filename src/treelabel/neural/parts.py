"""The parts that a network is made of, whichever system it belongs to."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from treelabel.core.stopping import StopSignal
from treelabel.encoders.sources import Pooling
from treelabel.hierarchy import Hierarchy
from treelabel.models.extreme.label_tree import LabelTree
from treelabel.neural.objective import Objective


@dataclass(frozen=True, eq=False)
class Parts:
    """The parts of a network.

    Parameters
    ----------
    objective
        What it is trained for.
    width
        The width of hidden states, or of the vectors that it is given.
    backbone
        The transformer that is trained; None over frozen states or vectors.
    pooling
        How hidden states become one vector.
    dropout
        Dropout before the outputs.
    hidden_size
        The width of a hidden layer before the outputs; 0 for none.
    name_vectors
        The word vectors of the pieces of each node's name (pieces × width); None where a saved network is restored.
    tree
        The tree of the labels, for networks that rank candidates.
    stop, progress
        Whether to end early, and whether to show a progress bar.
    """

    objective: Objective
    width: int
    backbone: Any
    pooling: Pooling
    dropout: float
    hidden_size: int = 0
    name_vectors: tuple[Tensor, ...] | None = None
    tree: LabelTree | None = None
    stop: StopSignal | None = None
    progress: bool | None = None

    @property
    def hierarchy(self) -> Hierarchy:
        """The hierarchy of the outputs."""
        return self.objective.change.new

    @property
    def label_tree(self) -> LabelTree:
        """The tree of the labels, of which there must be one."""
        assert self.tree is not None
        return self.tree

    @property
    def outputs(self) -> int:
        """The number of logits."""
        return len(self.objective.spec.outputs)
