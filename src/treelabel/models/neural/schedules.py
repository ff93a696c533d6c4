"""Learning rate schedules: the table SCHEDULES of functions (step, steps, warmup_ratio) → share of the peak rate.

`step` is the number of a step, from 0, of `steps`; rates rise in the first `warmup_ratio` of them.
"""

import math
from collections.abc import Callable

# The share of a limited time at whose end rates fall to 0.
COOLING = 0.3
# Slanted triangular rates start and end at 1/32 of their peak.
RATIO = 32


def linear(step: int, steps: int, warmup_ratio: float) -> float:
    """Rise from 0 over a share `warmup_ratio` of the steps, then fall to 0: the recipe of BERT.

    Parameters
    ----------
    step
        The number of the step.
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


def slanted(step: int, steps: int, warmup_ratio: float) -> float:
    """Slanted triangular rates (Howard and Ruder 2018): (1 + p (32 - 1)) / 32, where p rises to 1 and falls slowly.

    Parameters
    ----------
    step, steps, warmup_ratio
        As in `linear`.

    Returns
    -------
    float
        The share of the peak rate.

    >>> [slanted(step, 10, 0.2) for step in (0, 2, 10)]
    [0.03125, 1.0, 0.03125]
    """
    warmup = max(1, int(warmup_ratio * steps))
    p = step / warmup if step < warmup else 1 - (step - warmup) / max(steps - warmup, 1)
    return (1 + p * (RATIO - 1)) / RATIO


def constant(step: int, steps: int, warmup_ratio: float) -> float:
    """Rise from 0 over a share `warmup_ratio` of the steps, then stay.

    Parameters
    ----------
    step, steps, warmup_ratio
        As in `linear`.

    Returns
    -------
    float
        The share of the peak rate.

    >>> [constant(step, 10, 0.2) for step in (0, 1, 2, 10)]
    [0.0, 0.5, 1.0, 1.0]
    """
    return min(1.0, step / (warmup_ratio * steps)) if warmup_ratio > 0 else 1.0


SCHEDULES: dict[str, Callable[[int, int, float], float]] = {"linear": linear, "slanted": slanted, "constant": constant}


def cooling(now: float, begun: float, deadline: float) -> float:
    """Bring rates down to 0 before a deadline: without it, training would be cut off while steps are still large.

    Parameters
    ----------
    now, begun, deadline
        Times in seconds; the deadline may be infinite.

    Returns
    -------
    float
        The share of the rate of the schedule: 1 until the last `COOLING` of the time, and then ever less.

    >>> [round(cooling(now, 0.0, 100.0), 2) for now in (0.0, 70.0, 85.0, 100.0, 101.0)], cooling(1.0, 0.0, math.inf)
    ([1.0, 1.0, 0.5, 0.0, 0.0], 1.0)
    """
    if math.isinf(deadline):
        return 1.0
    return min(1.0, max(0.0, deadline - now) / max(COOLING * (deadline - begun), 1e-9))
