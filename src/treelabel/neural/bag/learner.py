"""How the bag model learns: epochs of stochastic gradient descent, with early stopping on validation documents."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from treelabel.calibration.likelihood import fit_temperature
from treelabel.core.compute import in_threads, over_rows
from treelabel.core.errors import TreelabelError
from treelabel.core.progress import Done, progress_bar
from treelabel.core.stopping import StopSignal
from treelabel.core.types import DoubleArray, FloatArray, LongArray
from treelabel.neural.bag import sgd
from treelabel.neural.bag.compiled_loss import COMPILED, CompiledLoss, Targets, Workspace
from treelabel.neural.bag.sgd import INITIAL_SQUARES, BagWeights, NgramRows
from treelabel.neural.objective import LOG_INVERSE_TEMPERATURE, Objective

if TYPE_CHECKING:
    from torch import Tensor

# So many documents x outputs are judged at once by torch.
VALUES_AT_ONCE = 1 << 20
# Ctrl-C and the deadline are noticed between chunks of so many documents, times threads.
CHUNK = 500


@dataclass(frozen=True)
class BagExamples:
    """Documents to learn from: their n-grams, and the truth as the steps that prepared it take it."""

    rows: NgramRows
    truth: Any

    def __len__(self) -> int:
        return len(self.rows.ptr) - 1


class CompiledSteps:
    """Steps of compiled loops; several threads write to the same weights without locks."""

    def __init__(self, loss: CompiledLoss, weights: BagWeights, threads: int) -> None:
        self.compiled, self.plan, self.weights = loss, loss.plan, weights
        self.workspaces = [loss.workspace() for _ in range(threads)]
        self.chunk = CHUNK * threads

    def examples(self, rows: NgramRows, truth: Any) -> BagExamples:
        """Prepare documents with their labels (documents x nodes); refuse labels that the loss cannot learn from."""
        return BagExamples(rows, self.compiled.targets(truth))

    def descend(self, examples: BagExamples, order: LongArray, learning_rates: tuple[float, float]) -> float:
        """Take one step per document of `order`; return the sum of the losses.

        The learning rate falls evenly from the first to the last.
        """

        def work(part: LongArray, workspace: Workspace) -> float:
            rows, targets = examples.rows, examples.truth
            return float(sgd.descend(rows, self.plan, targets, self.weights, part, learning_rates, workspace))

        if len(self.workspaces) == 1:
            return work(order, self.workspaces[0])
        parts = zip(np.array_split(order, len(self.workspaces)), self.workspaces, strict=True)
        return sum(in_threads(lambda part: work(*part), parts, threads=len(self.workspaces)))

    def logits(self, examples: BagExamples) -> FloatArray:
        """List the logits of the groups that documents are judged in."""
        targets: Targets = examples.truth
        count = int(np.diff(self.plan.ptr)[targets.groups].sum())
        return sgd.judged_logits(examples.rows, self.plan, targets, self.weights, count)

    def mean_loss(self, examples: BagExamples, logits: FloatArray, inverse_temperature: float) -> float:
        """Compute the mean loss of documents whose `logits` are multiplied by an inverse temperature."""
        return sgd.mean_loss(self.plan, examples.truth, logits, inverse_temperature, self.workspaces[0])


class AutogradSteps:
    """Steps along the gradient that autograd finds of any loss, in one thread.

    All outputs are computed for every document: with 350 nodes it takes several times as long as compiled loops. The
    penalty on output weights, if a loss has one, is descended after each document, at the step length of each output's
    vector.
    """

    chunk = CHUNK

    def __init__(self, objective: Objective, weights: BagWeights) -> None:
        self.weights = weights
        try:
            self.loss = objective.loss
        except ImportError as error:
            raise TreelabelError(
                f'the model bag trains the loss {objective.name} by torch: pip install "treelabel[neural]"; without '
                f"torch it has {', '.join(COMPILED)}"
            ) from error

    def examples(self, rows: NgramRows, truth: Any) -> BagExamples:
        """Prepare documents: see `CompiledSteps.examples`."""
        return BagExamples(rows, self.loss.prepare(truth))

    def descend(self, examples: BagExamples, order: LongArray, learning_rates: tuple[float, float]) -> float:
        """Take one step per document: see `CompiledSteps.descend`."""
        import torch

        total = 0.0
        rates = np.linspace(*learning_rates, len(order), endpoint=False, dtype=np.float32)
        for document, rate in zip(order.tolist(), rates, strict=True):
            logits = torch.from_numpy(sgd.all_logits(examples.rows, self.weights, document, document + 1))
            truth = examples.truth.batch(np.array([document]))
            loss, gradient = differentiate(self.loss(logits.requires_grad_(), truth).sum(), logits)
            total += loss
            sgd.descend_along(examples.rows, document, self.weights, gradient[0], rate)
            if self.loss.has_penalty:
                self._descend_penalty(rate)
        return total

    def _descend_penalty(self, learning_rate: np.float32) -> None:
        import torch

        squares = self.weights.output_squares
        step = learning_rate / np.sqrt(squares + np.float32(INITIAL_SQUARES)) if len(squares) else learning_rate
        inputs = torch.from_numpy(self.weights.outputs.copy()).requires_grad_()
        _, gradient = differentiate(self.loss.penalty(inputs), inputs)
        self.weights.outputs[:] -= np.reshape(step, (-1, 1)) * gradient

    def logits(self, examples: BagExamples) -> FloatArray:
        """Compute the logits of all outputs: documents x outputs."""
        return sgd.all_logits(examples.rows, self.weights, 0, len(examples))

    def mean_loss(self, examples: BagExamples, logits: FloatArray, inverse_temperature: float) -> float:
        """Compute the mean loss of documents: see `CompiledSteps.mean_loss`."""
        import torch

        total, step = 0.0, max(1, VALUES_AT_ONCE // max(1, logits.shape[1]))
        for low in range(0, len(examples), step):
            rows = np.arange(low, min(low + step, len(examples)))
            scaled = torch.from_numpy((inverse_temperature * logits[rows]).astype(np.float64))
            total += float(self.loss(scaled, examples.truth.batch(rows)).sum())
        return total / max(1, len(examples))


def differentiate(total: "Tensor", inputs: "Tensor") -> tuple[float, FloatArray]:
    """Return a value that was computed from inputs, and its gradient."""
    import torch

    (gradient,) = torch.autograd.grad(total, inputs)
    return float(total.detach()), gradient.numpy()


Steps = CompiledSteps | AutogradSteps


def steps_for(objective: Objective, weights: BagWeights, threads: int) -> Steps:
    """Choose compiled steps, in so many threads, if the loss has a compiled form, else autograd's."""
    if objective.name in COMPILED:
        return CompiledSteps(CompiledLoss.of(objective.spec), weights, threads)
    return AutogradSteps(objective, weights)


def compute_logits(rows: NgramRows, weights: BagWeights) -> FloatArray:
    """Compute the logits of all outputs for documents, in threads: documents x outputs, the same bits in any number."""
    parts = over_rows(lambda start, stop: sgd.all_logits(rows, weights, start, stop), len(rows.ptr) - 1, least=16)
    return np.concatenate(parts)


def node_probabilities(objective: Objective, logits: DoubleArray) -> DoubleArray:
    """Return the probability of every node of the objective's hierarchy, without torch where the loss is compiled."""
    if objective.name in COMPILED:
        return CompiledLoss.of(objective.spec).probabilities(logits)
    return objective.loss.node_probabilities(logits)


def fit_inverse_temperature(steps: Steps, examples: BagExamples) -> tuple[float, float]:
    """Return the smallest mean loss of documents, and the inverse temperature (a factor of all logits) that reaches it.

    The loss is infinite where logits are not finite.
    """
    logits = steps.logits(examples)
    if not np.isfinite(logits).all():
        return np.inf, 1.0
    fitted = fit_temperature(
        lambda inverse: steps.mean_loss(examples, logits, float(inverse)), LOG_INVERSE_TEMPERATURE, tolerance=0.01
    )
    return fitted.loss, fitted.inverse


@dataclass(frozen=True)
class Learner:
    """Takes weights through the epochs of training; the weights are changed in place.

    The learning rate falls from its initial value to 0; `patience` epochs may pass without gain.
    """

    steps: Steps
    rng: np.random.Generator
    learning_rate: float
    epochs: int
    patience: int
    stop: StopSignal
    progress: bool | None

    def learn(self, examples: BagExamples, valid: BagExamples | None) -> list[float]:
        """Run all epochs, or until validation sees no gain, the deadline or Ctrl-C; the best weights are kept.

        Parameters
        ----------
        examples
            The training documents.
        valid
            Documents that judge each epoch, if there are any.

        Returns
        -------
        list[float]
            The validation loss after each epoch, or else the mean training loss.
        """
        weights, seen = self.steps.weights, list[float]()
        best: tuple[FloatArray, FloatArray] | None = None
        with progress_bar("learning", self.epochs * len(examples), self.progress) as done:
            for epoch in range(self.epochs):
                first, last = (self.learning_rate * (1 - (epoch + part) / self.epochs) for part in (0, 1))
                loss = self.run_epoch(examples, (first, last), epoch * len(examples), done)
                seen.append(loss if valid is None else self._validation_loss(valid))
                if valid is not None and np.isfinite(seen[-1]) and seen[-1] <= min(seen):
                    best = weights.inputs.copy(), weights.outputs.copy()
                waited = len(seen) - 1 - int(np.argmin(seen))
                if self.stop or not np.isfinite(loss) or (valid is not None and waited >= self.patience):
                    break
        if best is not None:
            weights.inputs[:], weights.outputs[:] = best
        if not (np.isfinite(weights.outputs).all() and np.isfinite(weights.inputs).all()):
            raise TreelabelError(f"learning diverged at a learning rate of {self.learning_rate:g}; use a smaller one")
        return seen

    def _validation_loss(self, valid: BagExamples) -> float:
        try:
            return fit_inverse_temperature(self.steps, valid)[0]
        except KeyboardInterrupt:
            self.stop.interrupt()
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
                begin, end = (first + share * (last - first) for share in shares)
                total += self.steps.descend(examples, part, (begin, end))
                used += len(part)
                done(before + used, f"loss {total / used:.3f}")
                if self.stop:
                    break
        except KeyboardInterrupt:
            self.stop.interrupt()
        return total / max(1, used)
