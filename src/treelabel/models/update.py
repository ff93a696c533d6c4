"""Bring a model up to date: new texts, new labels, and labels that were renamed, moved, merged, split or deleted."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from scipy import sparse

from treelabel.core.errors import TreelabelError
from treelabel.hierarchy.moves import Moves
from treelabel.hierarchy.regime import regime_of
from treelabel.hierarchy.sets import row_sizes
from treelabel.models.base import Model
from treelabel.models.training import Training, training_of


def update_model(
    model: Model,
    data: Any = None,
    labels: Any = None,
    *,
    moves: Moves | None = None,
    train: Any = None,
    progress: bool | None = None,
) -> Model:
    """Make a model that knows new texts, and another hierarchy, of one that has learned; that one stays as it is.

    - `prototype` and `memory` add texts to what they keep and carry that over to the new hierarchy: no other text is
      needed.
    - `linear` learns its weights anew from its training data and the new texts; n-grams, head, calibration and rule are
      those of the first fit, unless there are more than twice as many texts, or labels of another regime. Labels that
      are only renamed need no training data.
    - All others are fitted anew, with their own settings, to their training data and the new texts.

    Parameters
    ----------
    model : Model
        A model that has learned.
    data : Dataset, sequence of str or None
        New texts with labels of the new hierarchy; None for a hierarchy alone.
    labels : sequence or None
        One list of labels per text, where `data` is a list.
    moves : Moves or None
        From the model's hierarchy to the new one; by default to that of `data`, in which every label must be found.
    train : Dataset or None
        What the model was trained on, under its old hierarchy or the new one. Documents that lose all their labels are
        left out. With it, models that keep sums are fitted anew, too.
    progress : bool or None
        As for `Model.fit`.

    Returns
    -------
    Model

    >>> from treelabel import Hierarchy, make_model
    >>> old, new = Hierarchy.flat(["cat", "dog"]), Hierarchy.flat(["cat", "hound"])
    >>> texts, labels = ["it meows", "it barks"] * 5, [["cat"], ["dog"]] * 5
    >>> model = make_model("memory", hierarchy=old).fit(texts, labels)
    >>> update_model(model, moves=Moves.of(old, new, [("dog", "hound")])).predict(["who barks"])
    [['hound']]
    """
    if not hasattr(model, "hierarchy_"):
        raise TreelabelError(f"this {model.name} model has not learned anything yet; call fit first")
    path = moves
    if path is None:
        path = Moves.of(model.hierarchy_, getattr(data, "hierarchy", model.hierarchy_))
    model.hierarchy_.require_same(path.old.fingerprint, "the table of moves")
    if data is None and path.is_identity:
        raise TreelabelError("there is nothing to update: neither new texts nor another hierarchy were given")
    more = None if data is None else training_of(data, labels, path.new, progress=progress)
    if train is None:
        return _remembering(model._updated(more, path), model, path, more)
    original = training_of(train, None, None, progress=progress)
    original, more = _grouped(original, more, getattr(train, "groups", None), getattr(data, "groups", None))
    original = carried(original, path)
    made = model._refitted(original if more is None else _joined(original, more), len(original))
    return _remembering(made, model, path, more)


def _remembering(made: Model, model: Model, moves: Moves, more: Training | None) -> Model:
    """Carry over what is not learned: the form of labels, and the profile of a model that made none of its own."""
    made.form_ = model.form_
    fitted = made.profile_ is not None and made.profile_ is not model.profile_
    if not fitted and model.profile_ is not None:
        made.profile_ = model.profile_.carried(moves, more)
    return made


def _grouped(
    original: Training, more: Training | None, groups: Sequence[str] | None, others: Sequence[str] | None
) -> tuple[Training, Training | None]:
    """Number the groups of both; documents of data that have none stand alone."""
    if groups is None and others is None:
        return original, more
    names = [f"0 {row}" for row in range(len(original))] if groups is None else [f"= {name}" for name in groups]
    if more is not None:
        names += [f"1 {row}" for row in range(len(more))] if others is None else [f"= {name}" for name in others]
    numbers = np.unique(names, return_inverse=True)[1].astype(np.int64)
    first = replace(original, groups=numbers[: len(original)])
    return first, None if more is None else replace(more, groups=numbers[len(original) :])


def _joined(original: Training, more: Training) -> Training:
    """Put new documents after the original ones, under the regime of all."""
    if (original.features is None) != (more.features is None):
        raise TreelabelError("the original training data and the new ones must both have texts, or both features")
    features = None
    if original.features is not None and more.features is not None:
        if original.features.shape[1] != more.features.shape[1]:
            raise TreelabelError(
                f"the original training data have {original.features.shape[1]:,} features, the new ones "
                f"{more.features.shape[1]:,}; expected the same"
            )
        features = sparse.csr_array(sparse.vstack([original.features, more.features], format="csr"))
    groups = None
    if original.groups is not None and more.groups is not None:
        groups = np.concatenate([original.groups, more.groups])
    every = original.followed_by(more)
    return replace(every, groups=groups, features=features, regime=regime_of(every.hierarchy, every.labels))


def carried(train: Training, moves: Moves) -> Training:
    """Carry training documents over to a new hierarchy; those that lose all their labels are left out.

    Parameters
    ----------
    train : Training
        Under the old hierarchy, or already under the new one.
    moves : Moves
        From the old one to the new one.

    Returns
    -------
    Training
    """
    if train.hierarchy == moves.new:
        return train
    train.hierarchy.require_same(moves.old.fingerprint, "the original training data")
    labels = moves.labels(train.labels)
    kept = (row_sizes(labels) > 0) | (row_sizes(train.labels) == 0)
    moved = replace(train, labels=labels, hierarchy=moves.new, regime=regime_of(moves.new, labels))
    return moved if kept.all() else moved[np.flatnonzero(kept)]
