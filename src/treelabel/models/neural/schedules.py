"""How learning rates change over the steps of training: the table SCHEDULES, from share of the peak to step."""

from collections.abc import Callable

# Slanted triangular rates begin and end at 1/32 of their peak.
RATIO = 32


def linear(step: int, steps: int, warm_up: float) -> float:
    """Rise from 0 over a share `warm_up` of the steps, then fall to 0: the recipe of BERT.

    >>> [linear(step, 10, 0.2) for step in (0, 1, 2, 6, 10)]
    [0.0, 0.5, 1.0, 0.5, 0.0]
    """
    rising = warm_up * steps
    if step < rising:
        return step / rising
    return (steps - step) / max(steps - rising, 1e-9)


def slanted(step: int, steps: int, warm_up: float) -> float:
    """Slanted triangular rates (Howard and Ruder): (1 + p (32 - 1)) / 32, where p rises to 1, and falls slower.

    >>> [slanted(step, 10, 0.2) for step in (0, 2, 10)]
    [0.03125, 1.0, 0.03125]
    """
    rising = max(1, int(warm_up * steps))
    p = step / rising if step < rising else 1 - (step - rising) / max(steps - rising, 1)
    return (1 + p * (RATIO - 1)) / RATIO


def constant(step: int, steps: int, warm_up: float) -> float:
    """Rise from 0 over a share `warm_up` of the steps, then stay.

    >>> [constant(step, 10, 0.2) for step in (0, 1, 2, 10)]
    [0.0, 0.5, 1.0, 1.0]
    """
    return min(1.0, step / (warm_up * steps)) if warm_up > 0 else 1.0


SCHEDULES: dict[str, Callable[[int, int, float], float]] = {"linear": linear, "slanted": slanted, "constant": constant}
