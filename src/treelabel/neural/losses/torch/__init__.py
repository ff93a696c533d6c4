"""Losses for torch: `torch_loss` turns any loss into a module; those with a form of their own here are faster."""

from treelabel.neural.losses.torch.base import Prepared, TorchLoss
from treelabel.neural.losses.torch.registry import require_exportable, torch_loss

__all__ = ["Prepared", "TorchLoss", "require_exportable", "torch_loss"]
