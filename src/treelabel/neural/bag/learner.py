"""How the bag model learns: epochs of stochastic gradient descent, with early stopping on validation documents."""

from dataclasses import dataclass, field

import numpy as np

from treelabel.calibration.likelihood import fit_temperature
from treelabel.core.errors import TreelabelError
from treelabel.core.progress import Done, progress_bar
from treelabel.core.stopping import StopSignal
from treelabel.core.types import FloatArray, LongArray
from treelabel.neural.bag.steps import BagExamples, Steps

# The range of the logarithm of the inverse temperature.
LOG_INVERSE_TEMPERATURES = (-3.0, 1.5)


@dataclass(frozen=True)
class BagSchedule:
    """How to learn: the initial learning rate, the number of epochs, and how many of them may pass without gain."""

    learning_rate: float
    epochs: int
    patience: int
    stop: StopSignal = field(default_factory=StopSignal)
    progress: bool | None = None


@dataclass(frozen=True)
class BagValidation:
    """Judges weights by the mean loss of documents, at the temperature that makes it smallest."""

    steps: Steps
    examples: BagExamples

    def __call__(self) -> tuple[float, float]:
        """Return the smallest mean loss, and the inverse temperature (a factor of all logits) that reaches it."""
        logits = self.steps.logits(self.examples)
        if not np.isfinite(logits).all():
            return np.inf, 1.0
        fitted = fit_temperature(
            lambda inverse: self.steps.mean_loss(self.examples, logits, float(inverse)),
            LOG_INVERSE_TEMPERATURES,
            tolerance=0.01,
        )
        return fitted.loss, fitted.inverse


class Learner:
    """Takes weights through the epochs of training; the weights are changed in place."""

    def __init__(self, steps: Steps, config: BagSchedule, rng: np.random.Generator) -> None:
        self.steps, self.config, self.weights, self.rng = steps, config, steps.weights, rng

    def learn(self, examples: BagExamples, validation: BagValidation | None) -> list[float]:
        """Run all epochs, or until validation sees no gain, the deadline or Ctrl-C; the best weights are kept.

        Parameters
        ----------
        examples
            The training documents.
        validation
            Judges each epoch, if given.

        Returns
        -------
        list[float]
            The validation loss after each epoch, or else the mean training loss.
        """
        config, seen = self.config, list[float]()
        best: tuple[FloatArray, FloatArray] | None = None
        with progress_bar("learning", config.epochs * len(examples), config.progress) as done:
            for epoch in range(config.epochs):
                rates = tuple(config.learning_rate * (1 - (epoch + part) / config.epochs) for part in (0, 1))
                loss = self.run_epoch(examples, (rates[0], rates[1]), epoch * len(examples), done)
                seen.append(loss if validation is None else self._validation_loss(validation))
                if validation is not None and np.isfinite(seen[-1]) and seen[-1] <= min(seen):
                    best = self.weights.inputs.copy(), self.weights.outputs.copy()
                waited = len(seen) - 1 - int(np.argmin(seen))
                out_of_patience = validation is not None and waited >= config.patience
                if config.stop or not np.isfinite(loss) or out_of_patience:
                    break
        if best is not None:
            self.weights.inputs[:], self.weights.outputs[:] = best
        if not (np.isfinite(self.weights.outputs).all() and np.isfinite(self.weights.inputs).all()):
            raise TreelabelError(f"learning diverged at a learning rate of {config.learning_rate:g}; use a smaller one")
        return seen

    def _validation_loss(self, validation: BagValidation) -> float:
        try:
            return validation()[0]
        except KeyboardInterrupt:
            self.config.stop.interrupt()
            return np.inf

    def run_epoch(self, examples: BagExamples, learning_rates: tuple[float, float], before: int, done: Done) -> float:
        """Take one step per document in random order, until the deadline or Ctrl-C.

        Parameters
        ----------
        examples
            The training documents.
        learning_rates
            The first and the last learning rate.
        before
            The number of steps of earlier epochs, for the progress bar.
        done
            Moves the progress bar.

        Returns
        -------
        float
            The mean loss.
        """
        order, total, used = self.rng.permutation(len(examples)), 0.0, 0
        first, last = learning_rates
        try:
            for low in range(0, len(order), self.steps.chunk):
                part = order[low : low + self.steps.chunk]
                shares = (low / len(order), (low + len(part)) / len(order))
                rates = tuple(first + share * (last - first) for share in shares)
                total += self._visit(examples, part, (rates[0], rates[1]))
                used += len(part)
                done(before + used, f"loss {total / used:.3f}")
                if self.config.stop:
                    break
        except KeyboardInterrupt:
            self.config.stop.interrupt()
        return total / max(1, used)

    def _visit(self, examples: BagExamples, documents: LongArray, learning_rates: tuple[float, float]) -> float:
        return self.steps.descend(examples, documents, learning_rates)
