"""Descriptions of estimators: a name, a mapping of settings, or a model; and models made of them."""

from collections.abc import Mapping
from typing import Any

from treelabel.core.errors import TreelabelError
from treelabel.encoders.protocol import Encoder
from treelabel.models.base import Model
from treelabel.models.descriptions import Descriptions
from treelabel.models.registry import MODELS, check_setting_names, make_model

Spec = str | Mapping[str, Any] | Model


def make_estimator(spec: Spec, encoder: str | Encoder | None, seed: int, descriptions: Descriptions = None) -> Model:
    """Make a model of its description.

    Parameters
    ----------
    spec : str, mapping or Model
        A name of MODELS, a mapping with it and settings, or a model whose settings are copied.
    encoder : str, Encoder or None
        The encoder, unless the description has one.
    seed : int
        The seed, unless the description has one.
    descriptions : mapping, str or None
        Descriptions of labels, unless the description has some.

    Returns
    -------
    Model
        A model that has not learned.

    >>> make_estimator({"model": "linear", "C": 2.0}, None, 5).get_params()["C"]
    2.0
    """
    if isinstance(spec, Model):
        return without_checkpoints(type(spec)(**spec.get_params(deep=False)))
    reported = dict(spec) if isinstance(spec, Mapping) else {"model": spec}
    if not isinstance(reported.get("model"), str):
        raise TreelabelError(f"expected the name of a model, or a mapping that has it as 'model', found {spec!r}")
    name = reported.pop("model")
    known = MODELS.find(name).maker.setting_names()
    shared = {"encoder": encoder, "seed": seed, "descriptions": descriptions}
    usual = {key: value for key, value in shared.items() if key in known}
    # JSON has no tuples.
    exclusive = {key: tuple(value) if isinstance(value, list) else value for key, value in reported.items()}
    check_setting_names(name, exclusive)
    return without_checkpoints(make_model(name, **{**usual, **exclusive}))


def without_checkpoints(model: Model) -> Model:
    """Return a model without checkpoints: one that learns several times has no one place to go on from."""
    return model.set_params(checkpoint_dir=None) if "checkpoint_dir" in model.setting_names() else model
