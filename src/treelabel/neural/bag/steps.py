"""How the bag model takes its steps: compiled loops where the loss has a compiled form, numpy gradients otherwise.

Both do the same: one step of stochastic gradient descent per document.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from treelabel.core.compute import in_threads
from treelabel.core.types import FloatArray, LongArray
from treelabel.neural.bag import kernels
from treelabel.neural.bag.kernels import INITIAL_SQUARES, Rows, Weights
from treelabel.neural.losses.base import Loss, Truth
from treelabel.neural.losses.compiled import CompiledLoss, Targets, Workspace, compiled_loss

# So many documents x outputs are judged at once by numpy.
VALUES_AT_ONCE = 1 << 20


@dataclass(frozen=True)
class Examples:
    """Documents to learn from: their n-grams, and the truth as the steps that prepared it take it."""

    rows: Rows
    truth: Any

    def __len__(self) -> int:
        return len(self.rows.ptr) - 1


class Steps(ABC):
    """Takes steps with one loss; weights are changed in place. Ctrl-C and the deadline are noticed between chunks."""

    chunk = 500

    def __init__(self, weights: Weights) -> None:
        self.weights = weights

    @abstractmethod
    def examples(self, rows: Rows, truth: Any) -> Examples:
        """Prepare documents with their labels; refuse labels that the loss cannot learn from.

        Parameters
        ----------
        rows
            The n-grams of the documents.
        truth : label matrix of shape (documents, nodes)

        Returns
        -------
        Examples
        """

    @abstractmethod
    def descend(self, examples: Examples, order: LongArray, learning_rates: tuple[float, float]) -> float:
        """Take one step per document.

        Parameters
        ----------
        examples
            Documents, from `examples`.
        order
            The documents to visit.
        learning_rates
            The first and the last learning rate; it falls evenly in between.

        Returns
        -------
        float
            The sum of the losses.
        """

    @abstractmethod
    def logits(self, examples: Examples) -> FloatArray:
        """Compute the logits that `mean_loss` takes."""

    @abstractmethod
    def mean_loss(self, examples: Examples, logits: FloatArray, inverse_temperature: float) -> float:
        """Compute the mean loss of documents whose logits are multiplied by an inverse temperature.

        Parameters
        ----------
        examples
            Documents, from `examples`.
        logits
            From `logits`.
        inverse_temperature
            The factor of all logits.

        Returns
        -------
        float
            The mean loss.
        """


class CompiledSteps(Steps):
    """Steps of compiled loops; several threads write to the same weights without locks."""

    def __init__(self, loss: CompiledLoss, weights: Weights, threads: int) -> None:
        super().__init__(weights)
        self.compiled, self.plan = loss, loss.plan
        self.workspaces = [loss.workspace() for _ in range(threads)]
        self.chunk = Steps.chunk * threads

    def examples(self, rows: Rows, truth: Any) -> Examples:
        """Prepare documents: see `Steps.examples`."""
        return Examples(rows, self.compiled.targets(truth))

    def descend(self, examples: Examples, order: LongArray, learning_rates: tuple[float, float]) -> float:
        """Take one step per document: see `Steps.descend`."""

        def work(part: LongArray, workspace: Workspace) -> float:
            rows, targets = examples.rows, examples.truth
            return float(kernels.descend(rows, self.plan, targets, self.weights, part, learning_rates, workspace))

        if len(self.workspaces) == 1:
            return work(order, self.workspaces[0])
        parts = zip(np.array_split(order, len(self.workspaces)), self.workspaces, strict=True)
        return sum(in_threads(lambda given: work(*given), parts, threads=len(self.workspaces)))

    def logits(self, examples: Examples) -> FloatArray:
        """List the logits of the groups that documents are judged in."""
        targets: Targets = examples.truth
        count = int(np.diff(self.plan.groups.ptr)[targets.groups].sum())
        return kernels.judged_logits(examples.rows, self.plan, targets, self.weights, count)

    def mean_loss(self, examples: Examples, logits: FloatArray, inverse_temperature: float) -> float:
        """Compute the mean loss of documents: see `Steps.mean_loss`."""
        return kernels.mean_loss(self.plan, examples.truth, logits, inverse_temperature, self.workspaces[0])


class NumpySteps(Steps):
    """Steps along the numpy gradient of any loss, in one thread.

    All outputs are computed for every document: with 350 nodes it takes three to seven times as long as compiled loops,
    and forty times as long for a conditional loss, which would look at few outputs.

    The penalty on output weights, if a loss has one, is descended after each document, at the step length of each
    output's vector.
    """

    def __init__(self, loss: Loss, weights: Weights) -> None:
        super().__init__(weights)
        self.loss = loss
        self.hidden = np.empty(weights.inputs.shape[1], np.float32)

    def examples(self, rows: Rows, truth: Any) -> Examples:
        """Prepare documents: see `Steps.examples`."""
        return Examples(rows, self.loss.checked_truth(truth))

    def descend(self, examples: Examples, order: LongArray, learning_rates: tuple[float, float]) -> float:
        """Take one step per document: see `Steps.descend`."""
        total, truth = 0.0, examples.truth[order]
        logits = np.empty((1, len(self.weights.outputs)), np.float32)
        rates = np.linspace(*learning_rates, len(order), endpoint=False, dtype=np.float32)
        for turn, (document, rate) in enumerate(zip(order.tolist(), rates, strict=True)):
            kernels.all_logits(examples.rows, document, self.weights, self.hidden, logits[0])
            true: Truth = truth[turn : turn + 1]
            total += float(self.loss.loss(logits, true)[0])
            gradient = self.loss.gradient(logits, true)[0].astype(np.float32)
            kernels.descend_along(examples.rows, document, self.weights, gradient, self.hidden, rate)
            if self.loss.has_penalty:
                self._descend_penalty(rate)
        return total

    def _descend_penalty(self, learning_rate: np.float32) -> None:
        squares = self.weights.output_squares
        step = learning_rate / np.sqrt(squares + np.float32(INITIAL_SQUARES)) if len(squares) else learning_rate
        gradient = self.loss.penalty(self.weights.outputs)[1].astype(np.float32)
        self.weights.outputs[:] -= np.reshape(step, (-1, 1)) * gradient

    def logits(self, examples: Examples) -> FloatArray:
        """Compute the logits of all outputs: documents x outputs."""
        found = np.empty((len(examples), len(self.weights.outputs)), np.float32)
        for document in range(len(examples)):
            kernels.all_logits(examples.rows, document, self.weights, self.hidden, found[document])
        return found

    def mean_loss(self, examples: Examples, logits: FloatArray, inverse_temperature: float) -> float:
        """Compute the mean loss of documents: see `Steps.mean_loss`."""
        total, step = 0.0, max(1, VALUES_AT_ONCE // max(1, logits.shape[1]))
        for low in range(0, len(examples), step):
            part = slice(low, low + step)
            total += float(self.loss.loss(inverse_temperature * logits[part], examples.truth[part]).sum())
        return total / max(1, len(examples))


def steps_for(loss: Loss, weights: Weights, threads: int) -> Steps:
    """Choose compiled steps if the loss has a compiled form, else numpy's.

    Parameters
    ----------
    loss
        The loss to train with.
    weights
        The weights to train.
    threads
        The number of threads of compiled steps.

    Returns
    -------
    Steps
        The steps.
    """
    compiled = compiled_loss(loss)
    return NumpySteps(loss, weights) if compiled is None else CompiledSteps(compiled, weights, threads)
