"""Models: the registry MODELS, one row each, all with the contract of `base.Model`."""

from treelabel.models.base import Model
from treelabel.models.persistence.load import load_model
from treelabel.models.persistence.store import save_model
from treelabel.models.registry import MODELS, make_model

__all__ = ["MODELS", "Model", "load_model", "make_model", "save_model"]
