"""Reporting how training goes: to functions, TensorBoard, MLflow or Weights & Biases, none of which is imported."""

from collections.abc import Callable, Mapping
from typing import Any

from treelabel.core.errors import TreelabelError

# Called with the number of a step and its values: "loss", "learning_rate", "documents_per_second" after a step,
# "training_loss" and "validation_loss" after an epoch.
Callback = Callable[[int, Mapping[str, float]], object]


def callback_of(given: Any) -> Callback:
    """Return the callback of a function, a SummaryWriter of TensorBoard, the module mlflow, or a run of wandb.

    >>> class Writer:
    ...     def add_scalar(self, name, value, step):
    ...         print(name, value, step)
    >>> callback_of(Writer())(3, {"loss": 0.5})
    loss 0.5 3
    """
    if hasattr(given, "add_scalar"):

        def to_tensorboard(step: int, values: Mapping[str, float]) -> None:
            for name, value in values.items():
                given.add_scalar(name, value, step)

        return to_tensorboard
    if hasattr(given, "log_metrics"):
        return lambda step, values: given.log_metrics(dict(values), step=step)
    if hasattr(given, "log"):
        return lambda step, values: given.log(dict(values), step=step)
    if callable(given):
        found: Callback = given
        return found
    raise TreelabelError(
        f"expected a callback: a function of (step, values), a SummaryWriter of TensorBoard, the module mlflow or a "
        f"run of wandb; found {type(given).__name__}"
    )
