"""HBGL: who attends to whom, what slots hold, how labels are written, and what the global stage learns."""

from collections.abc import Sequence
from itertools import product
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from treelabel import Hierarchy
from treelabel.core.errors import TreelabelError
from treelabel.core.stopping import StopSignal
from treelabel.encoders.backbone import layers_of
from treelabel.neural.backbones import with_lora
from treelabel.neural.losses.base import make_loss
from treelabel.neural.network import LinearOutputs, Network, NetworkSpec
from treelabel.neural.objective import Objective
from treelabel.neural.systems.hbgl import Hbgl, HbglNetwork, keep
from treelabel.neural.systems.hbgl_bodies import BackboneBody
from treelabel.neural.systems.hbgl_labels import (
    GlobalStage,
    alike_when_masked,
    edge_attention,
    sequences,
    subtrees,
)

WIDTH, VOCABULARY, POSITIONS = 16, 40, 16
H = Hierarchy.from_paths(["A > B > C", "A > B > D", "A > E", "F > G", "I"])
LOSS = make_loss("bce", H)
BODIES = ["backbone", "lora", "decoder"]


def bert(layers: int = 2, width: int = WIDTH, vocabulary: int = VOCABULARY, positions: int = POSITIONS) -> Any:
    """A BERT with random weights, large enough that a changed input changes outputs."""
    from transformers import BertConfig, BertModel

    config = BertConfig(
        vocab_size=vocabulary,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=4,
        intermediate_size=2 * width,
        max_position_embeddings=positions,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        initializer_range=0.2 if width == WIDTH else 0.02,
    )
    return BertModel(config, add_pooling_layer=False).eval()


def spec_of(h: Hierarchy, backbone: Any, width: int = WIDTH, **others: Any) -> NetworkSpec:
    """The parts of a network whose names have two pieces each."""
    objective = Objective("bce", h, np.array([], np.int32), np.ones(len(h), np.int64))
    names = tuple(torch.randn(2, width) * 0.2 for _ in range(len(h)))
    given = {"name_vectors": names, "dropout": 0.0, **others}
    return NetworkSpec(objective=objective, width=width, backbone=backbone, pooling="mean", **given)


def network_of(body: str, h: Hierarchy = H, global_steps: int = 0, **settings: Any) -> HbglNetwork:
    """A network with random weights, without a global stage unless it is asked for."""
    torch.manual_seed(0)
    backbone = None if body == "decoder" else bert()
    if body == "lora":
        backbone = with_lora(backbone, 2)
    return HbglNetwork(spec_of(h, backbone), Hbgl(global_steps=global_steps, **settings)).eval()


def texts_of(body: str, lengths: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Random texts of the given lengths, as a network takes them."""
    generator = torch.Generator().manual_seed(1)
    mask = (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).long()
    if body == "decoder":
        return torch.randn(*mask.shape, WIDTH, generator=generator), mask
    return torch.randint(4, VOCABULARY, mask.shape, generator=generator) * mask, mask


def nodes_of(h: Hierarchy, *labels: str) -> Tensor:
    """The labels of one document, closed under ancestors."""
    row = np.zeros((1, len(h)), np.float32)
    row[0, [h.names.index(label) for label in labels]] = 1
    return torch.from_numpy(h.closure(row).toarray().astype(np.float32))


# Who attends to whom


@pytest.mark.parametrize("body", BODIES)
def test_a_slot_changes_the_masks_below_it_alone(body: str) -> None:
    network, inputs = network_of(body), texts_of(body, [5, 7])
    slots = torch.randn(2, 3, WIDTH)
    with torch.no_grad():
        before = network.level_scores(inputs, slots)
        for slot in range(3):
            changed = slots.clone()
            changed[:, slot] += torch.randn(WIDTH)
            after = network.level_scores(inputs, changed)
            for mask in range(3):
                same = torch.allclose(before[:, mask], after[:, mask], atol=1e-5)
                assert same == (mask <= slot), (slot, mask)


@pytest.mark.parametrize("body", BODIES)
def test_slots_see_the_slots_above_and_masks_no_other_mask(body: str) -> None:
    network, inputs = network_of(body), texts_of(body, [5, 7])
    vectors = torch.randn(2, 6, WIDTH)

    def states(given: Tensor) -> Tensor:
        with torch.no_grad():
            return network.body.states(network.body.read(inputs), given, network.slot_levels, network.pattern)

    before = states(vectors)
    for place in range(6):
        changed = vectors.clone()
        changed[:, place] += torch.randn(WIDTH)
        differs = (states(changed) - before).abs().amax((0, 2)) > 1e-5
        seen_by = [i for i in range(6) if (place < 3 and (place <= i < 3 or i - 3 > place)) or i == place]
        assert differs.nonzero().flatten().tolist() == seen_by


def test_the_text_sees_the_text_alone() -> None:
    backbone, inputs = bert(), texts_of("backbone", [5, 7])
    body = BackboneBody(backbone, 3)
    with torch.no_grad():
        alone = backbone(input_ids=inputs[0], attention_mask=inputs[1]).last_hidden_state
        kept: list[Tensor] = []
        backbone.encoder.register_forward_hook(lambda _m, _i, out: kept.append(out.last_hidden_state))
        body.states(inputs, torch.randn(2, 6, WIDTH), torch.arange(1, 4).repeat(2), torch.ones(6, 6).bool())
    there = inputs[1].bool()
    torch.testing.assert_close(kept[0][:, :7][there], alone[there])


@pytest.mark.parametrize("body", BODIES)
def test_all_labels_see_the_text(body: str) -> None:
    network, inputs = network_of(body), texts_of(body, [5])
    other = (torch.cat([inputs[0][:, :4], inputs[0][:, :1]], 1), inputs[1])
    slots = torch.randn(1, 3, WIDTH)
    with torch.no_grad():
        change = network.level_scores(inputs, slots) - network.level_scores(other, slots)
    assert (change.abs().amax(2) > 1e-4).all()


def test_slot_and_mask_of_a_level_share_their_position() -> None:
    network, inputs = network_of("backbone"), texts_of("backbone", [5, 7])
    asked: list[Tensor] = []
    network.backbone.embeddings.position_embeddings.register_forward_hook(lambda _m, i, _o: asked.append(i[0]))
    network.level_scores(inputs, torch.randn(2, 3, WIDTH))
    assert asked[0][0, 7:].tolist() == [5, 6, 7, 5, 6, 7]
    assert asked[0][1].tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 7, 8, 9]


def test_long_texts_leave_positions_for_levels() -> None:
    network = network_of("backbone")
    ids, mask = texts_of("backbone", [POSITIONS])
    found = network.logits((ids, mask))
    torch.testing.assert_close(found, network.logits((ids[:, :13], mask[:, :13])))


@pytest.mark.parametrize("body", BODIES)
def test_logits_do_not_depend_on_the_batch(body: str) -> None:
    network, (given, mask) = network_of(body), texts_of(body, [4, 9, 6])
    with torch.no_grad():
        together = network.logits((given, mask))
        for row, length in enumerate([4, 9, 6]):
            alone = network.logits((given[row : row + 1, :length], mask[row : row + 1, :length]))
            torch.testing.assert_close(together[row : row + 1], alone, atol=1e-4, rtol=1e-4)


def test_encoders_that_would_show_the_answers_are_refused() -> None:
    class NoVectors(torch.nn.Module):
        config = None

        def forward(self, input_ids: Tensor, attention_mask: Tensor) -> None: ...

    class Blind(torch.nn.Module):
        config = None

        def __init__(self) -> None:
            super().__init__()
            self.inner = bert()
            self.get_input_embeddings = self.inner.get_input_embeddings

        def forward(self, attention_mask: Tensor, inputs_embeds: Tensor, position_ids: Tensor) -> Any:
            return self.inner(inputs_embeds=inputs_embeds)

    with pytest.raises(TreelabelError, match="NoVectors does not take inputs_embeds and position_ids"):
        HbglNetwork(spec_of(H, NoVectors()), Hbgl())
    with pytest.raises(TreelabelError, match="Blind does not follow a four-dimensional attention mask"):
        HbglNetwork(spec_of(H, Blind()), Hbgl())
    with pytest.raises(TreelabelError, match="its word vectors have 16 numbers and its hidden states 8"):
        HbglNetwork(spec_of(H, bert(), width=8), Hbgl())
    with pytest.raises(TreelabelError, match="encoder has 3 positions and the hierarchy 3 levels"):
        HbglNetwork(spec_of(H, bert(positions=3)), Hbgl())


# Teacher forcing


def test_slots_hold_the_sums_of_true_labels_and_then_the_end() -> None:
    network = network_of("decoder")
    table, at = network.outputs.embeddings.detach(), H.names.index
    end = table[-1]
    several = network.slots(network.targets(nodes_of(H, "E", "G", "I")))
    assert not several.requires_grad
    expected = [table[at("A")] + table[at("F")] + table[at("I")], table[at("E")] + table[at("G")], end]
    torch.testing.assert_close(several[0], torch.stack(expected))
    full = network.slots(network.targets(nodes_of(H, "C")))
    torch.testing.assert_close(full[0], torch.stack([table[at("A")], table[at("B")], table[at("C")]]))
    none = network.slots(network.targets(torch.zeros(1, len(H))))
    torch.testing.assert_close(none[0], end.expand(3, -1))


@pytest.mark.parametrize("body", BODIES)
def test_the_loss_is_the_cross_entropy_of_masks_given_true_slots(body: str) -> None:
    network, inputs, nodes = network_of(body), texts_of(body, [6]), nodes_of(H, "E", "I")
    targets = network.targets(nodes)
    scores = network.level_scores(inputs, network.slots(targets))
    expected = (functional.softplus(scores) - targets * scores).sum()
    torch.testing.assert_close(network(inputs, nodes, LOSS), expected.view(1))
    assert network.penalty(LOSS) == 0
    torch.autograd.backward(network.losses(inputs, nodes, LOSS))
    assert network.outputs.embeddings.grad.abs().sum() > 0


def test_slots_are_masked_in_training_only() -> None:
    network, inputs, nodes = network_of("decoder", slot_mask=1.0), texts_of("decoder", [6]), nodes_of(H, "C")
    truth, other = nodes, network.outputs.mask.expand(1, 3, -1)
    blind = network.level_scores(inputs, other)
    targets = network.targets(nodes)
    expected = functional.binary_cross_entropy_with_logits(blind, targets, reduction="none").sum((1, 2))
    assert not torch.allclose(network.losses(inputs, truth, LOSS), expected)
    torch.testing.assert_close(network.train().losses(inputs, truth, LOSS), expected)


def test_gold_labels_are_prepared_closed() -> None:
    network = network_of("decoder")
    row = np.zeros((2, len(H)), np.int8)
    row[1, H.names.index("D")] = 1
    batch = network.prepare(LOSS, row).batch(np.array([1]))
    assert [H.names[i] for i in batch[0].nonzero().flatten()] == ["A", "B", "D"]


# Inference


@pytest.mark.parametrize("body", ["backbone", "lora"])
def test_a_text_is_read_once(body: str) -> None:
    network, inputs = network_of(body), texts_of(body, [4, 9, 6])
    asked: list[int] = []
    layer = layers_of(network.backbone)[0]
    layer.register_forward_hook(lambda _module, given, _out: asked.append(given[0].shape[1]))
    with torch.no_grad():
        found = network.logits(inputs)
    assert asked == [9, 1, 2, 3]
    # With gradients nothing is kept, and the scores are the same.
    torch.testing.assert_close(network.logits(inputs).detach(), found, atol=1e-4, rtol=1e-4)
    assert asked[4:] == [10, 11, 12]


@pytest.mark.parametrize("body", BODIES)
def test_writing_level_by_level_is_one_pass_over_what_was_written(body: str) -> None:
    network, inputs = network_of(body), texts_of(body, [4, 9, 6])
    with torch.no_grad():
        logits, kept = network._write_levels(inputs)
        targets = network.targets(kept.float())
        # Slots below the first empty level hold what was kept there.
        scores = network.level_scores(inputs, network.slots(targets))
    for depth in (1, 2, 3):
        level = H.level(depth)
        torch.testing.assert_close(logits[:, level], scores[:, depth - 1, level], atol=1e-4, rtol=1e-4)


def says(network: HbglNetwork, scores: Tensor) -> None:
    """Make each mask give the scores of its level (depth × labels and "end"), whatever the text."""
    levels: list[int] = []
    states = network.body.states
    network.decoder.states = lambda t, v, n, a: levels.append(int(n[-1])) or states(t, v, n, a)  # type: ignore
    every = slice(None)
    network.outputs.forward = lambda hidden, labels=every: scores[levels[-1] - 1][labels].expand(len(hidden), -1)


def test_a_full_path_keeps_its_last_label() -> None:
    network, inputs = network_of("decoder"), texts_of("decoder", [4])
    says(network, 4 * network.targets(nodes_of(H, "D"))[0] - 2)
    assert [found.tolist() for found in network.sequence(inputs)[0]] == [
        [0],
        [H.names.index("B")],
        [H.names.index("D")],
    ]


def test_a_sequence_ends_where_end_is_likelier_than_any_label() -> None:
    network, inputs = network_of("decoder"), texts_of("decoder", [4, 4])
    says(network, 4 * network.targets(nodes_of(H, "E", "G"))[0] - 2)
    expected = [[H.names.index("A"), H.names.index("F")], [H.names.index("E"), H.names.index("G")]]
    assert [[level.tolist() for level in found] for found in network.sequence(inputs)] == [expected] * 2
    assert (network.logits(inputs)[:, H.level(3)] == -2).all()
    says(network, 4 * network.targets(torch.zeros(1, len(H)))[0] - 2)
    assert network.sequence(inputs) == [[], []]


def test_the_best_label_is_kept_where_none_is_likely() -> None:
    scores = torch.tensor([[-3.0, -1.0, -2.0], [-3.0, -2.0, -1.0], [0.5, -1.0, 4.0], [0.5, 0.1, -1.0]])
    assert keep(scores).int().tolist() == [[0, 1, 0], [0, 0, 1], [1, 0, 0], [1, 1, 0]]


def test_a_dag_has_the_levels_of_its_longest_ways() -> None:
    h = Hierarchy.from_edges([("A", "B"), ("B", "C"), ("A", "C"), ("D", "C")])
    network = network_of("decoder", h, global_steps=2)
    assert network.logits(texts_of("decoder", [4, 2])).shape == (2, 4)
    targets = network.targets(nodes_of(h, "C"))
    assert [[*h.names, "end"][int(i)] for i in targets[0].nonzero()[:, 1]] == ["A", "D", "B", "C"]


# The global stage


@pytest.mark.parametrize("body", ["backbone", "decoder"])
def test_a_label_sees_its_parent_and_children_alone(body: str) -> None:
    torch.manual_seed(0)
    network = HbglNetwork(spec_of(H, bert(layers=1) if body == "backbone" else None), Hbgl(global_steps=0)).eval()
    if network.decoder is not None:
        network.decoder.layers = network.decoder.layers[:1]
    allowed = edge_attention(H, np.arange(len(H)))
    levels = torch.from_numpy(np.concatenate([[0], H.depth])).long()
    vectors = torch.randn(1, len(H) + 1, WIDTH)
    with torch.no_grad():
        before = network.body.states(None, vectors, levels, allowed)
        for place in range(len(H) + 1):
            changed = vectors.clone()
            changed[:, place] += torch.randn(WIDTH)
            differs = (network.body.states(None, changed, levels, allowed) - before).abs().amax((0, 2)) > 1e-6
            near = {place - 1}
            for child, parent in enumerate(H.parent.tolist()):
                near |= {child} if parent == place - 1 else {parent} if child == place - 1 else set()
            assert set((differs.nonzero().flatten() - 1).tolist()) == near


def test_masked_leaf_siblings_share_their_targets() -> None:
    groups = alike_when_masked(H)
    called = {name: groups[i] for i, name in enumerate(H.names)}
    assert called["C"] == called["D"]
    assert len(set(groups.tolist())) == len(H) - 1


@pytest.mark.parametrize("body", BODIES)
def test_the_global_stage_trains_label_embeddings_and_nothing_else(body: str) -> None:
    network = network_of(body)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    wanted = {name for name, value in network.named_parameters() if value.requires_grad}
    torch.manual_seed(0)
    parts = spec_of(H, None)
    losses = network.pretrain_labels(GlobalStage(60, 0.02, 0.3, 8), parts)
    assert np.mean(losses[-10:]) < 0.8 * np.mean(losses[:10])
    changed = {name for name, value in network.state_dict().items() if not torch.equal(value, before[name])}
    assert changed == {"outputs.embeddings"}
    assert torch.equal(network.outputs.embeddings[-1], before["outputs.embeddings"][-1])
    assert {name for name, value in network.named_parameters() if value.requires_grad} == wanted
    assert not network.training


def test_the_global_stage_follows_the_seed_and_stops_when_asked() -> None:
    made = [network_of("decoder", global_steps=3).outputs.embeddings for _ in range(2)]
    assert torch.equal(made[0], made[1])
    stop = StopSignal()
    stop.interrupt()
    network = HbglNetwork(spec_of(H, None, stop=stop), Hbgl(global_steps=5))
    assert network.global_losses == []


def random_tree(nodes: int) -> Hierarchy:
    rng = np.random.default_rng(3)
    parents = [-1, *(int(rng.integers(-1, i)) for i in range(1, nodes))]
    return Hierarchy.from_parents(parents, [f"n{i}" for i in range(nodes)])


@pytest.mark.parametrize("longest", [1, 20, 64, 500])
def test_subtrees_are_connected_bounded_and_cover_all_labels(longest: int) -> None:
    h = random_tree(300)
    found = list(subtrees(h, longest, np.random.default_rng(0)))
    assert set(np.concatenate(found).tolist()) == set(range(len(h)))
    for nodes in found:
        assert len(nodes) <= max(longest, h.max_depth)
        assert set(h.parent[nodes].tolist()) <= {-1, *nodes.tolist()}
        assert (edge_attention(h, nodes).sum(1) > 0).all()
    assert len(found) <= 1 + 300 / max(1, max(longest, h.max_depth) - h.max_depth)


def test_every_label_is_in_a_step_however_few_steps_there_are() -> None:
    h = random_tree(2000)
    drawn = list(sequences(h, 1, np.random.default_rng(0)))
    assert len(np.unique(np.concatenate(drawn))) == len(h)
    assert len(list(sequences(h, 50, np.random.default_rng(0)))) == 50
    assert len(list(sequences(H, 7, np.random.default_rng(0)))) == 7


def test_pieces_of_scores_give_the_gradient_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    for piece in (2**22, 5):
        monkeypatch.setattr("treelabel.neural.systems.hbgl_labels.PIECE_SCORES", piece)
        made.append(network_of("backbone", global_steps=3))
    torch.testing.assert_close(made[0].outputs.embeddings, made[1].outputs.embeddings)
    np.testing.assert_allclose(made[0].global_losses, made[1].global_losses, rtol=1e-5)


# Learning: the word of a level names another child below each parent, so that only the labels above tell what it means

CHILDREN, NOISE = 3, 100
Model = TypeVar("Model", bound=Network)


class Documents(NamedTuple):
    """Texts with one path below each of some groups of top labels, their words shuffled among others."""

    hierarchy: Hierarchy
    vocabulary: int
    inputs: tuple[Tensor, Tensor]
    nodes: Tensor


def documents(count: int, seed: int, depth: int, groups: int, hidden_top: bool = False) -> Documents:
    """Make documents with a path of each group; a word at a level below the first stands for any of its children."""
    tops = range(groups * CHILDREN)
    h = Hierarchy.from_paths([list(map(str, path)) for path in product(tops, *[range(CHILDREN)] * (depth - 1))])
    rng, orders = np.random.default_rng(seed), np.random.default_rng(0)
    meaning = np.array([orders.permutation(CHILDREN) for _ in range(len(h) + 1)])
    ids = np.empty((count, 1 + groups * (depth - hidden_top) + 4), np.int64)
    nodes = np.zeros((count, len(h)), np.float32)
    for row in range(count):
        words = [1 + int(word) for word in rng.integers(NOISE, size=4)]
        for group in range(groups):
            node = -1
            for level in range(depth):
                word = int(rng.integers(CHILDREN))
                if level or not hidden_top:
                    words.append(1 + NOISE + (group * depth + level) * CHILDREN + word)
                first = group * CHILDREN if node < 0 else int(h.child_graph[0][node + 1])
                node = first + int(meaning[node, word])
                nodes[row, node] = 1
        ids[row] = [0, *rng.permutation(words)]
    given = torch.from_numpy(ids)
    vocabulary = 1 + NOISE + groups * depth * CHILDREN
    return Documents(h, vocabulary, (given, torch.ones_like(given)), torch.from_numpy(nodes))


def trained(network: Model, train: Documents, epochs: int, rate: float = 3e-3) -> Model:
    """Train with AdamW, batches of 32, and a rate that rises for 50 steps and then falls to 0."""
    loss = make_loss("bce", train.hierarchy)
    truth = network.prepare(loss, train.nodes.numpy().astype(np.int8))
    optimizer = torch.optim.AdamW(network.parameters(), rate)
    batches = [rows for _ in range(epochs) for rows in torch.split(torch.randperm(len(train.nodes)), 32)]
    network.train()
    for step, rows in enumerate(batches):
        for group in optimizer.param_groups:
            group["lr"] = rate * min(1, (step + 1) / 50, 2 * (1 - step / len(batches)))
        given = tuple(part[rows] for part in train.inputs)
        optimizer.zero_grad()
        torch.autograd.backward(network(given, truth.batch(rows.numpy()), loss).mean())
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
    return network.eval()


def micro_f1(found: Tensor, true: Tensor) -> float:
    return float(2 * (found * true).sum() / (found.sum() + true.sum()))


def backbone_for(train: Documents) -> Any:
    torch.manual_seed(0)
    return bert(width=64, vocabulary=train.vocabulary, positions=40)


def hbgl_for(train: Documents) -> HbglNetwork:
    parts = spec_of(train.hierarchy, backbone_for(train), 64)
    return HbglNetwork(parts, Hbgl(global_steps=20))


@pytest.mark.slow
def test_labels_of_one_path_are_learned_sooner_than_by_plain_outputs() -> None:
    train, test = documents(1500, 0, 4, 1), documents(500, 1, 4, 1)
    network = trained(hbgl_for(train), train, 7)
    plain = trained(
        Network(backbone_for(train), "mean", LinearOutputs(64, len(train.hierarchy), dropout=0.0)), train, 7
    )
    with torch.no_grad():
        found, without = (micro_f1((of.logits(test.inputs) > 0).float(), test.nodes) for of in (network, plain))
        kept = micro_f1(network._write_levels(test.inputs)[1].float(), test.nodes)
    assert found >= 0.95
    assert kept >= 0.95
    assert without < found - 0.05


@pytest.mark.slow
def test_mixed_words_of_two_paths_are_told_apart() -> None:
    train, test = documents(1500, 0, 3, 2), documents(500, 1, 3, 2)
    network = trained(hbgl_for(train), train, 7)
    with torch.no_grad():
        assert micro_f1((network.logits(test.inputs) > 0).float(), test.nodes) >= 0.95


@pytest.mark.slow
def test_labels_above_decide_where_the_text_cannot() -> None:
    """Nothing in these texts tells the top label, and the word of the second level means another child below each."""
    train, test = documents(1000, 0, 2, 1, hidden_top=True), documents(500, 1, 2, 1, hidden_top=True)
    network = trained(hbgl_for(train), train, 7)
    targets, level = network.targets(test.nodes), train.hierarchy.level(2)
    with torch.no_grad():
        slots = network.slots(targets)
        given_true, given_others, given_none = (
            micro_f1((network.level_scores(test.inputs, given)[:, 1, level] > 0).float(), test.nodes[:, level])
            for given in (slots, slots.roll(1, 0), network.outputs.mask.expand_as(slots))
        )
        kept = network._write_levels(test.inputs)[1].numpy()
    assert given_true >= 0.95
    assert given_others < 0.6
    assert given_none < 0.6
    # What is written fits together, whichever top label was chosen.
    coherent = (train.hierarchy.closure(kept).toarray() == kept).all(1) & (kept.sum(1) == 2)
    assert coherent.mean() >= 0.95
