"""Predictions beside the columns of a data frame of any library."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from treelabel.core.errors import TreelabelError, quote, some
from treelabel.core.frames import Frame
from treelabel.core.strings import Strings
from treelabel.hierarchy.label_matrices import label_matrix, row_sizes
from treelabel.models.label_forms import likeliest
from treelabel.models.streaming import batch_size, decided_batches
from treelabel.rules.decision_columns import column_names, label_separator, prediction_columns
from treelabel.rules.decisions import Decisions, TunedRule
from treelabel.rules.tuned_rule import column_of
from treelabel.scores.score_matrix import Scores


def predict_frame(
    model: Any,
    data: Any,
    text: str | Sequence[str] | None,
    rule: str | TunedRule | None,
    alternatives: int,
    several: bool | None,
    prefix: str,
) -> Any:
    """Predict the labels of a frame's texts, some at a time; see `Model.predict_frame`.

    Parameters
    ----------
    model
        A model that has learned.
    data, text, rule, alternatives, several, prefix
        As for `Model.predict_frame`.

    Returns
    -------
    data frame
    """
    frame = Frame.of(data)
    model.require_fitted()
    texts = frame.texts(frame.text_columns(text, model.reading_.get("text", ())))
    h = model.hierarchy_
    if isinstance(alternatives, bool) or not isinstance(alternatives, int) or alternatives < 0:
        raise TreelabelError(f"expected alternatives= to be a whole number from 0 on, found {quote(alternatives)}")
    names = {name: f"{prefix}{_spell(name)}" for name in column_names(h.max_depth, alternatives, several=False)}
    taken = {name.lower() for name in frame.names}
    clashes = [name for name in names.values() if name.lower() in taken]
    if clashes:
        raise TreelabelError(
            f"the frame has columns {some(clashes)} already, which predictions would replace; rename them, or those of "
            "the predictions: prefix='predicted_'"
        )
    listed = model.regime_ == "multi_path" if several is None else several
    sep = None if listed else label_separator(h)
    by = column_of(rule)
    parts = list(_columns(model, texts, rule, sep, alternatives, None if by is None else {by: frame.values(by)}))
    columns = {names[name]: pa.chunked_array([part[name] for part in parts]).combine_chunks() for name in parts[0]}
    return frame.with_columns(columns)


def _columns(
    model: Any,
    texts: Strings,
    rule: str | TunedRule | None,
    sep: str | None,
    alternatives: int,
    by: Mapping[str, list[Any]] | None,
) -> Iterator[Mapping[str, pa.Array]]:
    size, form = batch_size(len(model.hierarchy_)), model.form_
    batches = ((texts[start : start + size], start) for start in range(0, max(1, len(texts)), size))

    def values_of(_: Any, start: int) -> Any:
        return {name: values[start : start + size] for name, values in (by or {}).items()}

    for decided in decided_batches(model, batches, rule, values_of):
        # Where labels were written as a kind of their own, predictions are written alike.
        write = form.write if form.is_single or form.sep is not None else None
        decisions = decided.decisions if sep is None else _with_one_label(decided.decisions, decided.scores)
        columns = prediction_columns(decisions, decided.scores, sep, alternatives=alternatives, write=write)
        if form.kind in ("numbers", "codes"):
            columns |= {name: _numbers(column) for name, column in columns.items() if _is_label(name)}
        yield columns


def _with_one_label(decisions: Decisions, scores: Scores) -> Decisions:
    """Keep the likeliest label of documents that have several, as `predict` does where `fit` was given one each."""
    labels = decisions.most_specific
    if row_sizes(labels).max(initial=0) <= 1:
        return decisions
    best = likeliest(labels, scores)
    ptr = np.concatenate([[0], np.cumsum(best >= 0)])
    single = label_matrix(ptr, best[best >= 0], len(decisions.hierarchy))
    return replace(decisions, csr=decisions.hierarchy.closure(single), closed=True)


def _is_label(name: str) -> bool:
    return name == "predicted" or (name.startswith("alternative") and not name.endswith("_p"))


def _numbers(column: pa.Array) -> pa.Array:
    is_list = pa.types.is_large_list(column.type)
    return column.cast(pa.large_list(pa.int64()) if is_list else pa.int64())


def _spell(name: str) -> str:
    """Name a column of predictions as users of data frames would: words in full, and numbers apart."""
    word, is_probability = name.removesuffix("_p"), name.endswith("_p")
    if name == "p":
        return "probability"
    stem = word.rstrip("0123456789")
    spelled = "label" if word == "predicted" else f"{stem}_{word[len(stem) :]}" if stem != word else word
    return f"{spelled}_probability" if is_probability else spelled
