"""Fit a model in one call: data frames or texts with labels, and models by preset, name or object."""

import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from treelabel.core.errors import TreelabelError, quote
from treelabel.core.frames import Frame, is_frame
from treelabel.core.registry import Registry
from treelabel.core.strings import as_list, is_missing
from treelabel.data.columns import ListMeaning
from treelabel.data.dataset import Dataset
from treelabel.data.read import hierarchy_of_labels
from treelabel.encoders.files import missing_packages, usable_files
from treelabel.encoders.registry import default_encoder_name
from treelabel.hierarchy.hierarchy import SEPARATOR, Hierarchy, split_path
from treelabel.hierarchy.label_ids import SEPARATORS
from treelabel.hierarchy.label_matrices import row_sizes
from treelabel.models.base import Model
from treelabel.models.registry import make_model


class PresetWarning(UserWarning):
    """A preset needs something that is not installed, so that another one is taken."""


@dataclass(frozen=True)
class Preset:
    """A model with settings, by what it is good for."""

    name: str
    help: str
    model: str
    settings: Mapping[str, Any] = field(default_factory=dict)


# Below this, log losses are equal but for chance.
LEAST_LOSS = 0.001

PRESETS: Registry[Preset] = Registry(
    "preset",
    (
        Preset("fast", "linear over single words", "linear", {"ngram_range": (1, 1), "char_ngram_range": None}),
        Preset("balanced", "linear, which chooses its n-grams; the default", "linear"),
        Preset(
            "best",
            "stack, with the best encoder that is installed, tuned for up to 5 minutes where that pays",
            "stack",
            {"tune": "auto", "tune_seconds": 300.0},
        ),
    ),
)


def make_preset(name: str = "balanced", **settings: Any) -> Model:
    """Make the model of a preset; further settings replace those of the preset.

    Without an encoder, "best" falls back to "balanced", and a PresetWarning says so.

    Parameters
    ----------
    name
        A row of PRESETS.
    **settings
        Settings of the model.

    Returns
    -------
    Model
        A model that has not learned yet.

    >>> make_preset("fast", seed=1)
    Linear(char_ngram_range=None, ngram_range=(1, 1), seed=1)
    """
    preset = PRESETS.find(name)
    if preset.name == "best" and settings.get("encoder") is None:
        try:
            default_encoder_name()
        except TreelabelError as error:
            preset = PRESETS["balanced"]
            warnings.warn(
                PresetWarning(f"the preset best needs an encoder, so that {preset.name} is taken instead: {error}"),
                stacklevel=3,
            )
    return make_model(preset.model, **{**preset.settings, **settings})


def choose_model(model: str | Model | None, preset: str | None, settings: Mapping[str, Any]) -> Model:
    """Make the model that was asked for, by its name or by a preset; both exclude each other.

    Parameters
    ----------
    model
        A row of MODELS, or a model, whose settings are changed.
    preset
        A row of PRESETS; by default, without a model, "balanced".
    settings
        Settings of the model.

    Returns
    -------
    Model
    """
    if model is not None and preset is not None:
        raise TreelabelError(
            f"model and preset exclude each other, found {quote(getattr(model, 'name', model))} and {quote(preset)}: a "
            "preset is a model with settings; leave one out"
        )
    if isinstance(model, Model):
        return model.set_params(**settings)
    return make_preset(preset or "balanced", **settings) if model is None else make_model(model, **settings)


def describe_presets(made: Model) -> str:
    """Say what the other presets would be worth, by what was tried anyway; "" for a model that is not the default one.

    Parameters
    ----------
    made
        A model that `balanced` made, and that has learned.

    Returns
    -------
    str
    """
    trials = made.evidence_.trials
    words = f"ngram_range={PRESETS['fast'].settings['ngram_range']} head="
    fast = [trial.loss for trial in trials if trial.settings.startswith(words)]
    chosen = [trial.loss for trial in trials if trial.chosen]
    if not fast or not chosen:
        return ""
    more = min(fast) - chosen[0]
    # Of next to nothing, a share says nothing.
    gain = f"{more / chosen[0]:+.0%}" if chosen[0] >= LEAST_LOSS else f"{more:+.3f}"
    about = f"{gain} log loss on the sample" if more > 0 else "as good as what was chosen"
    usable = [files.name for files in usable_files() if not missing_packages(files.kind)]
    encoder = "needs an encoder, of which none is installed: treelabel encoders"
    if usable:
        encoder = (
            f"pools it with the encoder {usable[0]}, tuned on these texts where that pays (with a dozen texts a label, "
            "mostly), in minutes; not tried here"
        )
    return f"presets: fast would be {about}; best {encoder}"


def _refuse_wrong_arguments(data: Any, settings: Mapping[str, Any]) -> None:
    """Refuse the name of a file as data, and arguments of `fit` that are spelled otherwise."""
    if isinstance(data, str | os.PathLike):
        raise TreelabelError(
            f"expected a data frame, a Dataset, or texts and labels, found {quote(os.fspath(data))}; if it is a file, "
            f"read it first: fit(treelabel.read({os.fspath(data)!r}))"
        )
    for wrong, right in (("label", "labels"), ("texts", "text"), ("group", "groups"), ("taxonomy", "hierarchy")):
        if wrong in settings:
            raise TreelabelError(f"fit has no argument {quote(wrong)}; did you mean {right}?")


def fit(
    data: Any,
    labels: Any = None,
    *,
    text: str | Sequence[str] | None = None,
    model: str | Model | None = None,
    preset: str | None = None,
    optimize: str | None = None,
    hierarchy: Hierarchy | None = None,
    sep: str | None = None,
    label_sep: str | None = None,
    lists: ListMeaning | None = None,
    classes: Sequence[str] | None = None,
    valid: Any = None,
    sample_weight: Any = None,
    groups: Any = None,
    progress: bool | None = None,
    max_seconds: float | None = None,
    coverage: float | None = None,
    **settings: Any,
) -> Model:
    """Fit a model to a data frame, to texts with labels, or to a Dataset.

    Parameters
    ----------
    data
        A frame of pandas, polars, pyarrow, DuckDB or Hugging Face's datasets; or a list of texts; or a Dataset.
    labels
        The column of the labels, or the columns of levels from the top down (see `Dataset.from_frame`); by default
        guessed. Beside a list of texts, the labels themselves, in any form that `Model.fit` takes.
    text
        The column of the text, or several; by default guessed. `predict_frame` looks for the same.
    model
        A row of MODELS, or a model.
    preset
        A row of PRESETS in place of a model: "fast", "balanced" (the default) or "best".
    optimize
        The metric that predictions will be judged by, a row of METRICS such as "micro_f1": the rule, and n-grams and
        head where models choose them, are chosen for it. By default the rule is best for leaf accuracy where documents
        have one leaf each, and else for hF1.
    hierarchy
        The hierarchy; by default made of the labels.
    sep
        The separator of paths; by default guessed.
    label_sep
        The separator of several labels inside a cell of a frame.
    lists
        What lists of names are: "labels", or the steps of one "path"; by default, those that look like paths are
        refused.
    classes
        The labels of the columns, where labels are an indicator matrix.
    valid
        Documents to stop early or to calibrate on: a frame with the same columns, or a Dataset.
    sample_weight, groups
        One value per document, or the name of a column of the frame.
    progress, max_seconds, coverage
        As for `Model.fit`.
    **settings
        Settings of the model.

    Returns
    -------
    Model
        The fitted model.

    >>> made = fit(["woof", "meow"] * 9, ["pet > dog", "pet > cat"] * 9, preset="fast")
    >>> made.predict(["meow"]).tolist()
    ['pet > cat']
    """
    _refuse_wrong_arguments(data, settings)
    made = choose_model(model, preset, settings if optimize is None else {**settings, "optimize": optimize})
    options = {"valid": valid, "progress": progress, "max_seconds": max_seconds, "coverage": coverage}
    if is_frame(data):
        frame = Frame.of(data)
        options |= {"sample_weight": _column(frame, sample_weight), "groups": _column(frame, groups)}
        if labels is None or _are_columns(labels, frame):
            how = {"text": text, "labels": labels, "sep": sep, "label_sep": label_sep, "lists": lists}
            return _fit_frame(made, frame, hierarchy, how, options)
        columns = frame.text_columns(text)
        how = {"hierarchy": hierarchy, "sep": sep, "lists": lists, "classes": classes}
        made = fit(frame.texts(columns), labels, model=made, **how, **options)
        made.reading_ = {"text": list(columns)}
        return made
    options |= {"sample_weight": sample_weight, "groups": groups}
    if isinstance(data, Dataset) or hierarchy is not None or classes is not None:
        return made.fit(data, _lists_as(lists, labels), hierarchy=hierarchy, classes=classes, **options)
    rows, derived = _with_hierarchy(_lists_as(lists, labels), sep)
    made.fit(data, rows, hierarchy=derived, **options)
    made.form_ = replace(made.form_, derived=True)
    return made


def _fit_frame(
    made: Model, frame: Frame, hierarchy: Hierarchy | None, how: dict[str, Any], options: dict[str, Any]
) -> Model:
    train = Dataset.from_frame(frame, hierarchy=hierarchy, **how)
    if is_frame(options["valid"]):
        options["valid"] = Dataset.from_frame(options["valid"], hierarchy=train.hierarchy, **how)
    column = train.choices["labels"]
    values = frame.values(column) if column in frame.names and len(train) == len(frame) else []
    are_texts = bool(values) and all(value is None or isinstance(value, str) for value in values)
    if are_texts and how["label_sep"] is None and row_sizes(train.labels).max() == 1:
        # One label each: `predict` answers in the same way.
        rows, _ = _with_hierarchy([None if is_missing(value) else value for value in values], how["sep"])
        made.fit(train.texts, rows, hierarchy=train.hierarchy, **options)
    else:
        made.fit(train, **options)
    made.form_ = replace(made.form_, derived=hierarchy is None)
    made.reading_ = dict(train.reading)
    return made


def _lists_as(lists: ListMeaning | None, labels: Any) -> Any:
    """Return labels with lists as what they were said to be: tuples are paths, and sets several labels."""
    if lists is None:
        return labels
    kind = tuple if lists == "path" else set
    return [kind(row) if isinstance(row, list) else row for row in as_list(labels, "labels")]


def _with_hierarchy(labels: Any, sep: str | None) -> tuple[Any, Hierarchy | None]:
    """Make the hierarchy of labels that are texts, as reading a file does; None for those of other forms.

    A separator that no other label has is replaced by the usual one.
    """
    if labels is None or is_frame(labels) or getattr(labels, "ndim", 1) != 1:
        return labels, None
    rows = as_list(labels, "labels")
    if not all(row is None or (isinstance(row, str) and row.strip()) for row in rows):
        return labels, None
    if sep is not None and sep not in SEPARATORS:
        rows = [None if row is None else SEPARATOR.join(split_path(row, sep)) for row in rows]
        labels, sep = rows, SEPARATOR
    keys = dict.fromkeys(sorted({row for row in rows if row is not None}), 0)
    return labels, hierarchy_of_labels(keys, sep, "labels").hierarchy if keys else None


def _are_columns(labels: Any, frame: Frame) -> bool:
    """Return whether labels are names of columns, and not the labels themselves."""
    if isinstance(labels, str):
        return True
    is_list = isinstance(labels, list | tuple) and all(isinstance(name, str) for name in labels)
    return is_list and (len(labels) != len(frame) or set(labels) <= set(frame.names))


def _column(frame: Frame, values: Any) -> Any:
    """Return the values of a column that was asked for by its name; others as they are."""
    if not isinstance(values, str):
        return values
    frame.require(values, "values")
    return frame.values(values)
