"""Bring a model up to date: new texts, new labels, and labels that were renamed, moved, merged, split or deleted."""

import warnings
from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from itertools import pairwise
from typing import Any

import numpy as np
from scipy import sparse

from treelabel.core.errors import TreelabelError
from treelabel.hierarchy.label_matrices import row_sizes
from treelabel.hierarchy.labelled_texts import regime_of
from treelabel.hierarchy.moves import Moves
from treelabel.models.base import Model
from treelabel.models.model_inputs import training_of
from treelabel.models.profile import Profile
from treelabel.selection.training import Training


def update_model(
    model: Model,
    data: Any = None,
    labels: Any = None,
    *,
    moves: Moves | None = None,
    train: Any = None,
    forget: bool = False,
    progress: bool | None = None,
) -> Model:
    """Make a model that knows new texts, and another hierarchy, of one that has learned; that one stays as it is.

    - `prototype` and `memory` add texts to what they keep and carry that over to the new hierarchy: no other text is
      needed. `tuned_prototype` does too, and says when tuning its encoder again would pay.
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
    train : Dataset, sequence of Datasets or None
        All that the model learned from so far, under its old hierarchy or the new one: what it was fitted to, and the
        new texts of earlier updates. Documents that lose all their labels are left out. With it, models that keep sums
        are fitted anew, too.
    forget : bool
        Whether to go on where the model learned from documents that are neither in `train` nor in `data`.
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
    if moves is None:
        moves = Moves.of(model.hierarchy_, getattr(data, "hierarchy", model.hierarchy_))
    model.hierarchy_.require_same(moves.old.fingerprint, "the table of moves")
    if data is None and moves.is_identity:
        raise TreelabelError("there is nothing to update: neither new texts nor another hierarchy were given")
    more = None if data is None else training_of(data, labels, moves.new, progress=progress)
    if train is None:
        return _remembering(model._update(more, moves), model, moves, more)
    known = [train] if hasattr(train, "texts") else list(train)
    parts = [training_of(part, None, None, progress=progress) for part in known]
    groups = [getattr(part, "groups", None) for part in (*known, data)[: len(parts) + (more is not None)]]
    moved = [carry_labels(part, moves) for part in _number_groups(parts if more is None else [*parts, more], groups)]
    missing = model.profile_.missing(*(part.texts for part in parts), *([] if more is None else [more.texts]))
    if missing and not forget:
        raise TreelabelError(
            f"the model learned from {model.profile_.documents:,} documents, of which {missing:,} are missing in the "
            f"{sum(map(len, parts)):,} of the training data, and would be forgotten; name the files of all of them, "
            "those of earlier updates too, by several --train (train=[...]), or one that update --save-train wrote; "
            "--forget (forget=True) goes on without them"
        )
    every = reduce(_concatenate, moved)
    made = model._refit(every, len(every) - (0 if more is None else len(more)))
    return _remembering(made, model, moves, more, every)


def _remembering(
    made: Model, model: Model, moves: Moves, more: Training | None, every: Training | None = None
) -> Model:
    """Carry over what is not learned: the form of labels, and the profile of a model that made none of its own."""
    # The columns of an indicator matrix are nodes, of which others may be there now: it has all.
    form = replace(model.form_, columns=[], spellings={}) if model.form_.columns else model.form_
    made.form_, made.reading_ = form, model.reading_
    if model.evidence_.guarantee is not None and made.evidence_ is model.evidence_:
        made.evidence_ = replace(model.evidence_, guarantee=None)
        warnings.warn(
            f"the promise of {made.rule_.partition('(')[0]} was of the model before, and is not one of the updated "
            "model; calibrate it again on documents that it has not learned: treelabel tune, or train= to fit it anew",
            stacklevel=3,
        )
    if getattr(made, "profile_", model.profile_) is model.profile_:
        made.profile_ = model.profile_.carry_over(moves, more)
        if every is not None:
            counted = Profile.of(every, None, made.rule_, made._known_words(), getattr(made, "min_df", 1))
            made.profile_ = made.profile_.with_counts(counted)
    return made


def _number_groups(parts: Sequence[Training], groups: Sequence[Sequence[str] | None]) -> list[Training]:
    """Number the groups of all data; documents of data that have none stand alone."""
    if all(each is None for each in groups):
        return list(parts)
    names: list[str] = []
    for index, (part, named) in enumerate(zip(parts, groups, strict=True)):
        names += [f"{index} {row}" for row in range(len(part))] if named is None else [f"= {name}" for name in named]
    numbers = np.unique(names, return_inverse=True)[1].astype(np.int64)
    ends = np.cumsum([0, *map(len, parts)]).tolist()
    return [replace(part, groups=numbers[low:high]) for part, (low, high) in zip(parts, pairwise(ends), strict=True)]


def _concatenate(original: Training, more: Training) -> Training:
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


def carry_labels(train: Training, moves: Moves) -> Training:
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
    remains = (row_sizes(labels) > 0) | (row_sizes(train.labels) == 0)
    moved = replace(train, labels=labels, hierarchy=moves.new, regime=regime_of(moves.new, labels))
    return moved if remains.all() else moved[np.flatnonzero(remains)]
