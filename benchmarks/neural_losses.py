"""What losses over a hierarchy cost in torch: forward and backward, beside binary cross-entropy.

    python benchmarks/neural_losses.py [--nodes 20000] [--repeats 15]

Three trees of the same size, one that branches evenly, one with half of its nodes under the root, and one with half of
them under a top label (conditional losses only); batches of 16 and 64 documents with one leaf each; the loss alone, and
after a linear layer of width 384. Every loss is timed in turn with bce, on one thread and by the processor's time, for
clocks on the wall tell how busy a machine is; the best of several runs counts. How far bce is from 1 times itself shows
how far ratios can be trusted. Required: each conditional loss takes at most 1.5 times as long as bce. Exits with 1 if
one does not.
"""

import argparse
import itertools
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch.nn import functional

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.measure import peak_growth, seconds
from benchmarks.synthetic import random_tree

from treelabel import Hierarchy
from treelabel.hierarchy import label_matrix
from treelabel.neural.losses.base import make_loss
from treelabel.neural.losses.registry import LOSSES

WIDTH = 384
BATCHES = (16, 64)
LIMIT = 1.5
CONDITIONAL = [name for name in LOSSES if name.startswith("conditional")]
PLAIN = "torch's own bce"


def wide_tree(nodes: int) -> Hierarchy:
    """Make a tree with half of its nodes under the root, and the others under these."""
    half = nodes // 2
    above = np.random.default_rng(0).integers(0, half, nodes - half)
    parents = np.append(np.full(half, -1), np.sort(above)).tolist()
    return Hierarchy.from_parents(parents, [f"label {node}" for node in range(nodes)])


def wide_below(nodes: int) -> Hierarchy:
    """Make a tree of two top labels, which have all other nodes for children."""
    half = nodes // 2 - 1
    return Hierarchy.from_parents([-1, -1, *[0] * half, *[1] * half], [f"label {node}" for node in range(2 * half + 2)])


def backward(losses: Tensor, *inputs: Tensor) -> None:
    """Compute the gradients of a mean loss, and throw them away."""
    torch.autograd.grad(losses.mean(), inputs)


Step = Callable[[], object]


def steps_of(h: Hierarchy, name: str, size: int, linear: bool) -> tuple[Step, Step]:
    """Make a training step with a loss, labels ready and weights random; and the step that gets its labels ready."""
    rng, torch_rng = np.random.default_rng(0), torch.Generator().manual_seed(0)
    truth = label_matrix(np.arange(size + 1), rng.choice(h.leaves, size), len(h))
    cost = make_loss("bce" if name == PLAIN else name, h, np.ones(len(h)))
    prepared, rows = cost.prepare(truth), np.arange(size)
    batch, outputs = prepared.batch(rows), len(cost.outputs)
    dense = torch.from_numpy(h.closure(truth).toarray()).float()
    logits = torch.randn(size, outputs, generator=torch_rng, requires_grad=True)
    hidden = torch.randn(size, WIDTH, generator=torch_rng, requires_grad=True)
    weight = (torch.randn(outputs, WIDTH, generator=torch_rng) / WIDTH**0.5).requires_grad_()

    def losses(given: Tensor) -> Tensor:
        if name == PLAIN:
            return functional.binary_cross_entropy_with_logits(given, dense, reduction="none").sum(1)
        return cost(given, batch)

    def step() -> None:
        if linear:
            backward(losses(functional.linear(hidden, weight)), hidden, weight)
        else:
            backward(losses(logits), logits)

    return step, lambda: prepared.batch(rows)


def processor_seconds(step: Step) -> float:
    """Time a step by what it takes of the processor, whoever else wants it."""
    started = time.process_time()
    step()
    return time.process_time() - started


def timed(step: Step, bce: Step, repeats: int) -> tuple[float, float]:
    """Return the seconds of a step, and how many times bce's this is: in turn, the best of each, after a first."""
    step(), bce()
    turns = [(processor_seconds(step), processor_seconds(bce)) for _ in range(repeats)]
    ours, plain = (min(column) for column in zip(*turns, strict=True))
    return ours, ours / plain


def print_ratios(title: str, h: Hierarchy, names: Sequence[str], repeats: int) -> bool:
    """Print what losses cost on a tree; return whether all conditional ones keep to the limit."""
    table = Table("loss", title=title, title_justify="left")
    for size in BATCHES:
        for column in (f"alone, {size}", "x bce", f"linear +, {size}", "x bce", "labels"):
            table.add_column(column, justify="right")
    table.add_column("")
    columns = list(itertools.product(BATCHES, (False, True)))
    plain = {column: steps_of(h, "bce", *column)[0] for column in columns}
    kept = True
    for name in names:
        cells, ratios = [], []
        for size, linear in columns:
            step, labels = steps_of(h, name, size, linear)
            took, ratio = timed(step, plain[size, linear], max(3, repeats // 5) if linear else repeats)
            ratios.append(ratio)
            cells += [
                seconds(took),
                f"{ratio:.2f}",
                *([seconds(min(processor_seconds(labels) for _ in range(repeats)))] if linear else []),
            ]
        good = max(ratios) <= LIMIT
        kept = kept and (good or name not in CONDITIONAL)
        table.add_row(name, *cells, ("OK" if good else "FALLS SHORT") if name in CONDITIONAL else "")
    Console(width=150 if not sys.stdout.isatty() else None).print(table)
    return kept


def print_memory(nodes: int) -> None:
    """Print by how much a step with 64 documents raises the peak of memory: champ beside bce."""
    for name in ("bce", "champ"):
        prepare = f"""
import torch
from benchmarks.synthetic import random_tree
from benchmarks.neural_losses import steps_of
torch.set_num_threads(1)
step, _ = steps_of(random_tree({nodes}, 4), {name!r}, 64, False)
small, _ = steps_of(random_tree(100, 2), {name!r}, 64, False)
small()
"""
        print(f"{name}: a step of 64 documents and {nodes:,} nodes takes {peak_growth(prepare, 'step()'):,.0f} MB")


def main() -> None:
    """Time losses on all trees, and say whether conditional ones keep to the limit."""
    parser = argparse.ArgumentParser(description="Time losses over a hierarchy in torch.")
    parser.add_argument("--nodes", type=int, default=20_000)
    parser.add_argument("--repeats", type=int, default=15)
    options = parser.parse_args()
    # One thread: with several, ratios are of how busy the machine is.
    torch.set_num_threads(1)
    even, wide, below = random_tree(options.nodes, 4), wide_tree(options.nodes), wide_below(options.nodes)
    every = (*LOSSES, PLAIN)
    kept = [
        print_ratios(f"{len(even):,} nodes, {even.level_sizes} a level", even, every, options.repeats),
        print_ratios(f"{len(wide):,} nodes, half under the root", wide, every, options.repeats),
        print_ratios(f"{len(below):,} nodes, half under a top label", below, CONDITIONAL, options.repeats),
    ]
    print_memory(options.nodes)
    print(f"conditional losses <= {LIMIT} x bce: {'OK' if all(kept) else 'FALLS SHORT'}")
    sys.exit(0 if all(kept) else 1)


if __name__ == "__main__":
    main()
