"""Models: the registry MODELS, one row each, all with the contract of `base.Model`."""

from treelabel.losses.registry import LOSSES
from treelabel.models.base import Model
from treelabel.models.load import load_model
from treelabel.models.registry import MODELS, make_model
from treelabel.models.store import save_model
from treelabel.models.update import update_model

__all__ = ["LOSSES", "MODELS", "Model", "load_model", "make_model", "save_model", "update_model"]
