"""Optimization: the learning rates of groups of parameters, and how rates change from step to step.

SCHEDULES has functions (step, steps, warmup_ratio) → share of the peak rate. `step` is the number of a step, from 0, of
`steps`; rates rise in the first `warmup_ratio` of them. Where time is short, `Pacing` moves on faster in the schedule
than by steps.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from treelabel.encoders.backbone import layers_of
from treelabel.neural.backbones import parameter_depths
from treelabel.neural.network import Network
from treelabel.neural.training_arguments import TrainingArguments

# The share of a limited time at whose end rates fall to 0.
COOLING = 0.3
# After this share of a limited time it is known how long steps take.
LOOK = 0.05
# A plan that takes so many times the time left is given up at once, else only when rates are to fall.
TOO_LONG = 2.0
# Slanted triangular rates start and end at 1/32 of their peak.
RATIO = 32


def linear(step: float, steps: int, warmup_ratio: float) -> float:
    """Rise from 0 over a share `warmup_ratio` of the steps, then fall to 0: the recipe of BERT.

    Parameters
    ----------
    step
        The number of the step, or a place between steps.
    steps
        The number of all steps.
    warmup_ratio
        The share of steps in which the rate rises.

    Returns
    -------
    float
        The share of the peak rate.

    >>> [linear(step, 10, 0.2) for step in (0, 1, 2, 6, 10)]
    [0.0, 0.5, 1.0, 0.5, 0.0]
    """
    warmup = warmup_ratio * steps
    if step < warmup:
        return step / warmup
    return (steps - step) / max(steps - warmup, 1e-9)


def slanted_triangle(step: float, steps: int, warmup_ratio: float) -> float:
    """Slanted triangular rates (Howard and Ruder 2018): (1 + p (32 - 1)) / 32, where p rises to 1 and falls slowly.

    >>> [slanted_triangle(step, 10, 0.2) for step in (0, 2, 10)]
    [0.03125, 1.0, 0.03125]
    """
    warmup = max(1, int(warmup_ratio * steps))
    p = step / warmup if step < warmup else 1 - (step - warmup) / max(steps - warmup, 1)
    return (1 + p * (RATIO - 1)) / RATIO


def constant(step: float, steps: int, warmup_ratio: float) -> float:
    """Rise from 0 over a share `warmup_ratio` of the steps, then stay.

    >>> [constant(step, 10, 0.2) for step in (0, 1, 2, 10)]
    [0.0, 0.5, 1.0, 1.0]
    """
    return min(1.0, step / (warmup_ratio * steps)) if warmup_ratio > 0 else 1.0


Schedule = Callable[[float, int, float], float]
SCHEDULES: dict[str, Schedule] = {"linear": linear, "slanted": slanted_triangle, "constant": constant}


@dataclass
class Pacing:
    """The rates of a training whose time is limited.

    As long as all its steps seem to fit into the time, rates are those of its schedule, as without a limit. Once they
    do not, the rest of the schedule is spread over the rest of the time: its rates might still be rising at the
    deadline otherwise. They fall to 0 whatever the schedule: training would end while steps are still large.

    Parameters
    ----------
    begun, deadline
        Times in seconds.
    first
        The number of the step that it begins with.
    planned
        The number of the step before which it is to end.
    is_patient
        Whether to follow the schedule as long as possible, so that a later run can go on from there.

    >>> pacing = Pacing(begun=0.0, deadline=100.0, first=0, planned=1000)
    >>> times = [(0.0, 0), (4.0, 1), (10.0, 5), (19.0, 10), (55.0, 30), (100.0, 60)]
    >>> [round(pacing.share(now, step, lambda step: linear(step, 1000, 0.1)), 2) for now, step in times]
    [0.0, 0.01, 0.05, 0.99, 0.55, 0.0]
    """

    begun: float
    deadline: float
    first: int
    planned: int
    is_patient: bool = False
    # When the second step began, and when and at which step the schedule was given up.
    second: float = field(default=math.nan, init=False)
    given_up: tuple[float, int] | None = field(default=None, init=False)

    def share(self, now: float, step: int, schedule: Callable[[float], float]) -> float:
        """Return the share of the peak rate in the next step."""
        if step == self.first + 1:
            self.second = now
        if self.given_up is None and self._is_late(now, step):
            self.given_up = now, step
        if self.given_up is None:
            return schedule(step)
        since, position = self.given_up
        passed = min(1.0, (now - since) / max(self.deadline - since, 1e-9))
        cooling = max(0.0, self.deadline - now) / max(COOLING * (self.deadline - self.begun), 1e-9)
        return min(schedule(max(step, position + passed * (self.planned - position))), cooling)

    def _is_late(self, now: float, step: int) -> bool:
        """Return whether the steps that are left will not be over in time, judging by those before."""
        passed = (now - self.begun) / max(self.deadline - self.begun, 1e-9)
        # The first step takes longer than others.
        known = step - self.first - 1
        if passed < 1 - COOLING and (self.is_patient or passed < LOOK or known < 1):
            return False
        pace = (now - self.second) / known if known > 0 else now - self.begun
        longest = 1.0 if passed >= 1 - COOLING else TOO_LONG
        return (self.planned - step) * pace >= longest * (self.deadline - now)


def parameter_groups(
    network: Network, learning_rates: Mapping[str, float], arguments: TrainingArguments
) -> list[dict[str, Any]]:
    """Group parameters by learning rate and weight decay, for an optimizer.

    Rates by group are the discriminative fine-tuning of APLC-XLNet. Biases and norms have no weight decay.

    Parameters
    ----------
    learning_rates
        Those of "encoder" (its last layer), "hidden" and "outputs".
    arguments
        The weight decay of matrices, and the decay of rates from layer to layer.

    Returns
    -------
    list[dict[str, Any]]
        Groups as torch takes them; "initial_lr" is the peak of the schedule.
    """
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}

    def put(parameter: nn.Parameter, rate: float) -> None:
        if parameter.requires_grad:
            groups.setdefault((rate, arguments.weight_decay if parameter.ndim > 1 else 0.0), []).append(parameter)

    if network.backbone is not None:
        last = len(layers_of(network.backbone))
        for parameter, depth in parameter_depths(network.backbone):
            put(parameter, learning_rates["encoder"] * arguments.layerwise_lr_decay ** (last - depth))
    for name, parameter in network.named_parameters():
        if not name.startswith("backbone."):
            put(parameter, learning_rates["hidden" if name.startswith("outputs.hidden.") else "outputs"])
    return [
        {"params": parameters, "lr": rate, "initial_lr": rate, "weight_decay": decay}
        for (rate, decay), parameters in groups.items()
    ]
