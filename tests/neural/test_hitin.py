"""The tree isomorphism network against a twin with all features of all labels and dense pooling matrices."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from tests.strategies import Drawn, examples, hierarchies
from treelabel import Hierarchy
from treelabel.encoders.onnx_export import export
from treelabel.encoders.onnx_sessions import open_session
from treelabel.neural.network import LinearOutputs
from treelabel.neural.systems import hitin
from treelabel.neural.systems.hitin import NodeNorm, NodePooling, TreeIsomorphismOutputs
from treelabel.neural.systems.hitin_coding_tree import CodingTree, coding_tree

POOLINGS: list[NodePooling] = ["sum", "mean", "max"]
WIDTH, HIDDEN = 5, 4
STARS = Hierarchy.from_edges([(hub, f"{hub}{leaf}") for hub in "ABC" for leaf in range(4)])


def network(tree: CodingTree, pooling: NodePooling = "sum", seed: int = 0, **options: Any) -> TreeIsomorphismOutputs:
    """Make a network in double precision whose norms have seen something."""
    torch.manual_seed(seed)
    made = TreeIsomorphismOutputs(WIDTH, 3, tree, HIDDEN, pooling, **options).double()
    for module in made.modules():
        if isinstance(module, NodeNorm):
            assert module.running_mean is not None
            assert module.running_var is not None
            nn.init.normal_(module.running_mean)
            nn.init.uniform_(module.running_var, 0.5, 2)
            nn.init.normal_(module.weight)
            nn.init.normal_(module.bias)
    return made.eval()


def vectors(texts: int) -> Tensor:
    return torch.randn(texts, WIDTH, generator=torch.Generator().manual_seed(texts), dtype=torch.float64)


def slow_logits(outputs: TreeIsomorphismOutputs, tree: CodingTree, texts: Tensor) -> Tensor:
    """Copy the text for every label, mix the copies, sum by matrices, and use a linear layer for every level."""
    labels = tree.sizes[0]
    copies = outputs.hidden(texts[:, None].expand(-1, labels, -1))
    # Any matrix will do whose rows have the right sums.
    matrix = torch.randn(labels, labels, dtype=torch.float64)
    matrix += ((outputs.scale - matrix.sum(dim=1)) / labels)[:, None]
    nodes = torch.einsum("lm,nmd->nld", matrix, copies) + outputs.shift[:, None]
    heads = torch.split(outputs.linear.weight, HIDDEN, dim=1)
    logits = outputs.linear.bias + slow_pooled(nodes, outputs.pooling) @ heads[0].T
    levels: Any = outputs.levels
    for above, level, head, size in zip(tree.parents, levels, heads[1:], tree.sizes[1:], strict=True):
        belongs = torch.from_numpy(np.eye(size)[above].T)
        nodes = torch.einsum("gc,ncd->ngd", belongs, nodes) @ level[0].weight.T
        nodes = normed(nodes, level[1]).relu() @ level[3].weight.T
        nodes = normed(nodes, level[4]).relu()
        logits = logits + slow_pooled(nodes, outputs.pooling) @ head.T
    return logits


def slow_pooled(nodes: Tensor, pooling: NodePooling) -> Tensor:
    if pooling == "max":
        return nodes.max(dim=1).values
    ones = torch.ones(1, nodes.shape[1], dtype=nodes.dtype)
    return (ones @ nodes)[:, 0] / (nodes.shape[1] if pooling == "mean" else 1)


def normed(nodes: Tensor, norm: Any) -> Tensor:
    centred: Tensor = nodes - norm.running_mean
    found: Tensor = centred / (norm.running_var + norm.eps).sqrt() * norm.weight + norm.bias
    return found


@examples(40)
@given(hierarchies(), st.integers(1, 4), st.sampled_from(POOLINGS), st.integers(1, 3))
def test_logits_are_those_of_the_slow_twin(drawn: Drawn, height: int, pooling: NodePooling, texts: int) -> None:
    tree = coding_tree(drawn.fast, height)
    outputs = network(tree, pooling)
    with torch.no_grad():
        expected = slow_logits(outputs, tree, vectors(texts))
        torch.testing.assert_close(outputs(vectors(texts)), expected, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("pooling", POOLINGS)
def test_logits_do_not_depend_on_the_batch(pooling: NodePooling) -> None:
    outputs = network(coding_tree(STARS, 3), pooling)
    texts = vectors(7)
    one_by_one = torch.cat([outputs(text[None]) for text in texts])
    torch.testing.assert_close(outputs(texts), one_by_one)


def test_all_poolings_take_the_root_as_it_is() -> None:
    tree = coding_tree(STARS, 2)
    logits = []
    for pooling in POOLINGS:
        outputs = network(tree, pooling)
        with torch.no_grad():
            outputs.linear.weight[:, :-HIDDEN] = 0
        logits.append(outputs(vectors(4)))
    for one, two in pairwise(logits):
        torch.testing.assert_close(one, two)


@pytest.mark.parametrize("at_once", [1, 4, 1000])
def test_the_largest_feature_is_found_in_parts(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    outputs = network(coding_tree(STARS, 2), "max")
    expected = outputs(vectors(3))
    monkeypatch.setattr(hitin, "_AT_ONCE", at_once)
    torch.testing.assert_close(outputs(vectors(3)), expected)


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("height", [1, 2, 4])
def test_one_text_can_be_learned_from(pooling: NodePooling, height: int) -> None:
    outputs = network(coding_tree(STARS, height), pooling).train()
    before = [buffer.clone() for buffer in outputs.levels[-1].buffers()]
    loss = outputs(vectors(1)).square().sum()
    loss.backward()
    assert torch.isfinite(loss)
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in outputs.parameters())
    # A root alone tells nothing of the variance of roots.
    assert all(torch.equal(*pair) for pair in zip(before, outputs.levels[-1].buffers(), strict=True))


@pytest.mark.parametrize("pooling", POOLINGS)
def test_every_parameter_learns(pooling: NodePooling) -> None:
    outputs = network(coding_tree(STARS, 3), pooling, dropout=0.0).train()
    outputs(vectors(16)).square().sum().backward()
    for name, parameter in outputs.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 1e-9, name


def test_gradients_of_the_largest_feature_are_those_of_the_slow_twin() -> None:
    tree = coding_tree(STARS, 2)
    outputs = network(tree, "max")
    found = torch.autograd.grad(outputs(vectors(5)).square().sum(), [outputs.scale, outputs.shift])
    expected = torch.autograd.grad(
        slow_logits(outputs, tree, vectors(5)).square().sum(), [outputs.scale, outputs.shift]
    )
    torch.testing.assert_close(found, expected)


def test_norms_count_every_node_of_every_text() -> None:
    norm = NodeNorm(2).double()
    features = torch.randn(3, 4, 2, dtype=torch.float64)
    rows = norm(features).reshape(12, 2)
    torch.testing.assert_close(rows.mean(0), torch.zeros(2, dtype=torch.float64))
    torch.testing.assert_close(norm.running_mean, 0.1 * features.reshape(12, 2).mean(0))


def test_what_is_stored_does_not_hold_the_tree() -> None:
    outputs = network(coding_tree(STARS, 2))
    assert not [name for name in outputs.state_dict() if "parents" in name]
    other = network(coding_tree(STARS, 2), seed=1)
    other.load_state_dict(outputs.state_dict())
    torch.testing.assert_close(other(vectors(3)), outputs(vectors(3)))


def test_only_the_shape_of_the_tree_matters() -> None:
    """A label's place in the tree does not: exchange labels and their factors, and every text has the same logits."""
    tree = coding_tree(STARS, 3)
    outputs = network(tree)
    order = torch.randperm(len(STARS), generator=torch.Generator().manual_seed(0))
    exchanged = CodingTree((tree.parents[0][order.numpy()], *tree.parents[1:]))
    other = network(exchanged)
    other.load_state_dict(outputs.state_dict())
    with torch.no_grad():
        other.scale.copy_(outputs.scale[order])
        other.shift.copy_(outputs.shift[order])
    torch.testing.assert_close(other(vectors(5)), outputs(vectors(5)))


def micro_f1(outputs: nn.Module, hierarchy: Hierarchy, epochs: int) -> float:
    """Train on 8 texts for each leaf, which are its hub's vector, its own, and noise; judge on as many others."""
    draw = torch.Generator().manual_seed(0)
    leaves = torch.tensor(hierarchy.leaves).long().repeat(16)
    hubs = torch.tensor(hierarchy.parent).long()[leaves]
    directions = torch.randn(len(hierarchy), 32, generator=draw)
    texts = directions[leaves] + directions[hubs] + 0.5 * torch.randn(len(leaves), 32, generator=draw)
    truth = torch.zeros(len(leaves), len(hierarchy))
    truth[torch.arange(len(leaves)), leaves] = truth[torch.arange(len(leaves)), hubs] = 1
    half = len(leaves) // 2
    optimizer = torch.optim.Adam(outputs.parameters(), 1e-3)
    for _ in range(epochs):
        for rows in torch.split(torch.randperm(half, generator=draw), 32):
            optimizer.zero_grad()
            loss = nn.functional.binary_cross_entropy_with_logits(outputs(texts[rows]), truth[rows])
            torch.autograd.backward(loss)
            optimizer.step()
    with torch.no_grad():
        found = (outputs.eval()(texts[half:]) > 0).float()
    return float(2 * (found * truth[half:]).sum() / (found.sum() + truth[half:].sum()))


@pytest.mark.slow
def test_hubs_and_leaves_are_learned_within_a_small_budget() -> None:
    """A linear layer is far behind after as many steps. It would catch up: this is no proof that the tree helps."""
    h = Hierarchy.from_edges([(f"hub {hub}", f"{hub} {leaf}") for hub in range(8) for leaf in range(6)])
    torch.manual_seed(0)
    assert micro_f1(TreeIsomorphismOutputs(32, len(h), coding_tree(h), 64), h, 25) >= 0.95
    assert micro_f1(LinearOutputs(32, len(h)), h, 25) <= 0.8


@pytest.mark.slow
@pytest.mark.parametrize("pooling", POOLINGS)
def test_onnx_gives_the_same_logits(pooling: NodePooling, tmp_path: Path) -> None:
    outputs = network(coding_tree(STARS, 3), pooling).float()
    texts = vectors(6).float()
    export(outputs, (texts[:2],), tmp_path / "graph.onnx", (["vectors"], ["logits"]), {0: "texts"})
    graph = open_session(tmp_path / "graph.onnx")
    for count in (1, 6):
        found = graph.run(None, {"vectors": texts[:count].numpy()})[0]
        np.testing.assert_allclose(found, outputs(texts[:count]).detach().numpy(), rtol=1e-4, atol=1e-4)
