"""Models that grow: texts and labels are added to what was learned, and that goes over to another hierarchy."""

from abc import abstractmethod
from copy import copy
from typing import Any, Self

from treelabel.core.errors import TreelabelError, some
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.hierarchy.moves import Moves
from treelabel.models.base import Model, Training
from treelabel.models.model_inputs import training_of


class GrowingModel(Model):
    """A model that keeps what later texts can be added to."""

    def partial_fit(self, data: Any, labels: Any = None, *, hierarchy: Hierarchy | None = None) -> Self:
        """Add texts to what was learned; what was chosen stays.

        Parameters
        ----------
        data : Dataset or sequence of str
            Texts, with their labels if it is a Dataset.
        labels : sequence or None
            One list of labels per text.
        hierarchy : Hierarchy or None
            A hierarchy with further labels, if there are any.

        Returns
        -------
        Model
            The model itself.
        """
        if not hasattr(self, "hierarchy_"):
            return self.fit(data, labels, hierarchy=hierarchy)
        larger = self.hierarchy_ if hierarchy is None else hierarchy
        return self._take_in(training_of(data, labels, larger), growth_moves(self.hierarchy_, larger))

    def _update(self, more: Training | None, moves: Moves) -> Self:
        made = copy(self)
        made.hierarchy = None
        return made._take_in(more, moves)

    def _take_in(self, more: Training | None, moves: Moves) -> Self:
        self._carry_over(more, moves)
        if more is not None:
            self._add(more)
        self.profile_ = self.profile_.carry_over(moves, more)
        return self

    @abstractmethod
    def _carry_over(self, more: Training | None, moves: Moves) -> None:
        """Go over to another hierarchy, and make room for the labels of further texts."""

    @abstractmethod
    def _add(self, more: Training) -> None:
        """Add texts with labels of the hierarchy."""


def growth_moves(old: Hierarchy, larger: Hierarchy) -> Moves:
    """Find the labels of a hierarchy in a larger one, by their paths.

    Parameters
    ----------
    old : Hierarchy
        The hierarchy that was learned.
    larger : Hierarchy
        One with further labels; if it lacks any, it is refused.

    Returns
    -------
    Moves

    >>> growth_moves(Hierarchy.flat(["A", "C"]), Hierarchy.flat(["A", "B", "C"])).targets
    ((0,), (2,))
    """
    nodes = {path: node for node, path in enumerate(larger.paths())}
    lost = [path for path in old.paths() if path not in nodes]
    if lost:
        raise TreelabelError(
            f"the new hierarchy lacks labels that were learned: {some(lost)}; labels can be added, not taken away"
        )
    return Moves(old, larger, tuple((nodes[path],) for path in old.paths()))
