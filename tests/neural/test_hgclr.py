"""The network of HGCLR: the graph of labels, the choice of words, the contrast, and that scoring needs none of them."""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given
from torch import Tensor, nn

from tests.strategies import Drawn, examples, hierarchies
from treelabel import Hierarchy
from treelabel.neural.backbones import WIDTH, small_bert, with_lora, without_lora
from treelabel.neural.losses.base import Loss
from treelabel.neural.network import LinearOutputs, Network, NetworkSpec
from treelabel.neural.objective import Objective
from treelabel.neural.systems.hgclr import Hgclr, HgclrNetwork, nt_xent, scoring_network, straight_through
from treelabel.neural.systems.hgclr_labels import LabelPaths, PathBias

TREE = Hierarchy.from_paths(["A > B > C", "A > D", "E"])
DIAMOND = Hierarchy.from_edges([("A", "B"), ("A", "C"), ("B", "D"), ("C", "D"), ("D", "E"), ("A", "E")])
VOCABULARY = 30
LENGTH = 6


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    # Networks this small are slower on two cores than on one.
    torch.set_num_threads(1)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


def spec_of(hierarchy: Hierarchy, backbone: Any = None, **values: Any) -> NetworkSpec:
    """The parts of a network that is trained by binary cross-entropy."""
    objective = Objective("bce", hierarchy, np.empty(0, np.int32), np.ones(len(hierarchy), np.int64))
    names = tuple(torch.randn(2, WIDTH) for _ in range(len(hierarchy)))
    made = NetworkSpec(objective, WIDTH, backbone, "mean", 0.0, name_vectors=names)
    return replace(made, **values)


def without_dropout(backbone: Any) -> Any:
    for module in backbone.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return backbone


class Case(NamedTuple):
    """A network, a batch for it, and what it is trained with."""

    network: HgclrNetwork
    inputs: tuple[Tensor, Tensor]
    truth: Any
    loss: Loss


MODES = ["fine-tuned", "LoRA", "frozen"]


def case(mode: str = "fine-tuned", **settings: Any) -> Case:
    """A network without dropout, and four texts, two of them with padding."""
    torch.manual_seed(0)
    backbone = None if mode == "frozen" else without_dropout(small_bert(VOCABULARY, LENGTH))
    if mode == "LoRA":
        backbone = with_lora(backbone, 2)
    parts = spec_of(TREE, backbone)
    network = HgclrNetwork(parts, Hgclr(**settings))
    mask = torch.ones(4, LENGTH, dtype=torch.long)
    mask[:2, 4:] = 0
    tokens = torch.randn(4, LENGTH, WIDTH) if mode == "frozen" else torch.randint(1, VOCABULARY, (4, LENGTH))
    loss = parts.objective.loss
    prepared = network.prepare(loss, [[0, 0, 0, 0, 1], [0, 1, 0, 0, 0], [0, 0, 0, 1, 0], [0, 0, 1, 0, 0]])
    return Case(network.train(), (tokens, mask), prepared.batch(np.arange(4)), loss)


# The graph


def test_siblings_are_at_distance_two_and_trees_are_joined_by_a_root() -> None:
    names = list(TREE.names)
    distance = LabelPaths.of(TREE).distance
    a, b, c, d, e = (names.index(name) for name in "ABCDE")
    assert distance[b, d] == 2
    assert distance[a, e] == 2
    assert (distance[a, c], distance[c, d], distance[c, e], distance[c, c]) == (2, 3, 4, 0)
    assert (distance == distance.T).all()


def test_a_dag_takes_the_shortest_way_through_any_parent() -> None:
    names = list(DIAMOND.names)
    distance = LabelPaths.of(DIAMOND).distance
    assert distance[names.index("A"), names.index("E")] == 1
    assert distance[names.index("B"), names.index("E")] == 2
    assert (distance == distance.T).all()


@given(hierarchies())
@examples(60)
def test_distances_are_those_of_the_hierarchy(drawn: Drawn) -> None:
    left, right = (ids.ravel() for ids in np.indices((len(drawn), len(drawn))))
    expected = drawn.fast.distance(left, right).reshape(len(drawn), len(drawn))
    assert (LabelPaths.of(drawn.fast).distance == expected).all()


def walked(hierarchy: Hierarchy, weights: Sequence[float], start: int) -> dict[int, set[float]]:
    """Walk up and then down from a label; the sums of edge weights on all shortest paths, by label."""
    edges = list(zip(hierarchy.edge_child.tolist(), hierarchy.parent_idx.tolist(), weights, strict=True))
    best: dict[int, int] = {}
    sums: dict[int, set[float]] = {}
    queue = deque([(start, True, 0, 0.0)])
    while queue:
        node, rising, length, total = queue.popleft()
        if length > best.setdefault(node, length) and not rising:
            continue
        if length == best[node]:
            sums.setdefault(node, set()).add(round(total, 4))
        for child, parent, weight in edges:
            if rising and child == node:
                queue.append((parent, True, length + 1, total + weight))
            if parent == node:
                queue.append((child, False, length + 1, total + weight))
    return sums


@given(hierarchies())
@examples(30)
def test_edge_weights_are_averaged_along_paths(drawn: Drawn) -> None:
    bias = PathBias(drawn.fast)
    nn.init.normal_(bias.by_edge)
    nn.init.normal_(bias.by_distance)
    found = bias().detach()
    assert torch.equal(found, found.T)
    edge = found - bias.by_distance.detach()[bias.distance]
    for start in range(len(drawn)):
        sums = walked(drawn.fast, bias.by_edge.tolist(), start)
        for end in range(len(drawn)):
            total = float(edge[start, end] * bias.distance[start, end])
            # A tree has one path; a DAG may have several of the same length.
            assert min(abs(total - each) for each in sums[end]) < 1e-3
            assert len(sums[end]) == 1 or not drawn.fast.is_tree


def test_memory_of_paths_is_that_of_pairs_and_climbs() -> None:
    chain = Hierarchy.from_parents([node - 1 for node in range(40)], [str(node) for node in range(40)])
    paths = LabelPaths.of(chain)
    # Node k climbs to itself, to k ancestors and to the root.
    assert paths.climbs == sum(k + 2 for k in range(40))
    assert paths.distance.shape == paths.climb.shape == (40, 40)
    star = Hierarchy.from_parents([-1] + [0] * 499, [str(node) for node in range(500)])
    assert LabelPaths.of(star).steps.shape[1] < 5 * 500


def test_labels_see_their_names_and_their_place() -> None:
    network = case().network
    before = network.label_encoder().detach()
    network.label_encoder.names[0] += 1.0
    assert not torch.allclose(network.label_encoder()[0], before[0])
    network.label_encoder.names[0] -= 1.0
    nn.init.normal_(network.label_encoder.bias.by_distance, std=3.0)
    assert not torch.allclose(network.label_encoder(), before, atol=1e-3)


# The choice of words


@pytest.mark.parametrize("mode", MODES)
def test_a_threshold_below_zero_keeps_the_text_as_it_is(mode: str) -> None:
    network, inputs, truth, loss = case(mode, threshold=-1.0, contrastive_weight=0.0)
    vectors = network.text_vectors(inputs)
    torch.testing.assert_close(network.positive_vectors(inputs, truth[1]), vectors)
    plain = loss(network.logits(inputs), truth[0])
    torch.testing.assert_close(network.losses(inputs, truth, loss), 2 * plain)


@pytest.mark.parametrize("mode", MODES)
def test_a_threshold_of_one_leaves_no_word(mode: str) -> None:
    network, inputs, truth, _ = case(mode, threshold=1.0)
    words = network.word_vectors(inputs)
    assert network.select_words(words, inputs[1], truth[1]).count_nonzero() == 0
    found = network.positive_vectors(inputs, truth[1])
    if mode == "frozen":
        assert found.count_nonzero() == 0
    else:
        blank = network.backbone(inputs_embeds=torch.zeros_like(words), attention_mask=inputs[1]).last_hidden_state
        torch.testing.assert_close(found[2:], blank[2:].mean(1))


@pytest.mark.parametrize("log_probabilities", [False, True])
def test_choices_are_zero_or_one_and_have_gradients(log_probabilities: bool) -> None:
    network, inputs, truth, loss = case(threshold=0.3, log_probabilities=log_probabilities)
    kept = network.select_words(network.word_vectors(inputs), inputs[1], truth[1])
    assert {*kept.flatten().tolist()} == {0.0, 1.0}
    torch.autograd.backward(network.losses(inputs, truth, loss).mean())
    for name, parameter in network.named_parameters():
        # The bias of keys moves the logits of all labels alike.
        if name != "words_to_labels.key.bias":
            assert parameter.grad is not None, name
            assert parameter.grad.count_nonzero() > 0, name


def test_straight_through_gradients_are_those_of_the_importance_of_what_is_kept() -> None:
    importance = torch.tensor([0.1, 0.2, 0.3], requires_grad=True)
    kept = straight_through(importance, 0.2)
    assert kept.tolist() == [0.0, 0.0, 1.0]
    torch.autograd.backward((kept * torch.tensor([1.0, 2.0, 4.0])).sum())
    assert importance.grad is not None
    assert importance.grad.tolist() == [0.0, 0.0, 4.0]


@pytest.mark.parametrize(("log_probabilities", "share"), [(False, np.e / (np.e + 4)), (True, 1.0)])
def test_how_often_a_word_that_is_certain_is_kept(log_probabilities: bool, share: float) -> None:
    # With noise on P itself, the best label of five wins with probability e / (e + 4), although P is 1.
    network, _, _, _ = case(threshold=0.5, gumbel_temperature=0.01, log_probabilities=log_probabilities)
    certain = torch.eye(5)[:1].expand(4, 5000, 5)
    network.words_to_labels.forward = lambda words, labels: certain  # type: ignore[method-assign]
    kept = network.select_words(torch.zeros(4, 5000, WIDTH), torch.ones(4, 5000), certain[:, 0])
    assert kept.mean().item() == pytest.approx(share, abs=0.02)


def test_words_with_no_probability_at_all_have_gradients() -> None:
    network, inputs, truth, loss = case(threshold=0.5, log_probabilities=True)
    nn.init.normal_(network.words_to_labels.query.weight, std=1e4)
    torch.autograd.backward(network.losses(inputs, truth, loss).mean())
    assert all(bool(p.grad.isfinite().all()) for p in network.parameters() if p.grad is not None)


def test_importance_is_the_share_of_the_labels_of_the_text() -> None:
    network, inputs, truth, _ = case()
    words = network.word_vectors(inputs)
    torch.testing.assert_close(network.importance(words, torch.ones(4, 5)), torch.ones(4, LENGTH))
    assert network.importance(words, torch.zeros(4, 5)).count_nonzero() == 0
    # More labels, more importance, where there is no noise.
    network.eval()
    more = truth[1].clone()
    more[:, 0] = 1.0
    assert (network.importance(words, more) >= network.importance(words, truth[1])).all()


@pytest.mark.parametrize("mode", MODES)
def test_padding_never_counts(mode: str) -> None:
    network, (tokens, mask), truth, loss = case(mode, threshold=0.2)
    network.eval()
    kept = network.select_words(network.word_vectors((tokens, mask)), mask, truth[1])
    assert kept[:2, 4:].count_nonzero() == 0
    before = network.losses((tokens, mask), truth, loss)
    changed = tokens.clone()
    changed[:2, 4:] = 7
    torch.testing.assert_close(network.losses((changed, mask), truth, loss), before)


# The contrast


@pytest.mark.parametrize("temperature", [1.0, 0.1])
@pytest.mark.parametrize("pairs", [1, 2, 5])
def test_contrast_of_equal_pairs_that_are_orthogonal_to_others(pairs: int, temperature: float) -> None:
    # The length of vectors does not matter.
    vectors = torch.eye(pairs, 8) * 3.0
    close = np.exp(1 / temperature)
    expected = -np.log(close / (close + 2 * pairs - 2))
    assert nt_xent(vectors, 2 * vectors, temperature).item() == pytest.approx(expected, abs=1e-5)


def test_contrast_against_its_definition() -> None:
    left, right = torch.randn(2, 5, 7)
    vectors = nn.functional.normalize(torch.cat([left, right]), dim=1).double().numpy()
    losses = []
    for row in range(10):
        alike = {other: np.exp(vectors[row] @ vectors[other] / 0.5) for other in range(10) if other != row}
        losses.append(-np.log(alike[(row + 5) % 10] / sum(alike.values())))
    assert nt_xent(left, right, 0.5).item() == pytest.approx(np.mean(losses), rel=1e-5)


def test_the_contrast_counts_for_every_document_and_has_a_temperature() -> None:
    for temperature in (1.0, 0.1):
        found = []
        for weight in (0.0, 0.3):
            network, inputs, truth, loss = case(
                threshold=0.2, contrastive_weight=weight, contrastive_temperature=temperature
            )
            found.append(network.eval().losses(inputs, truth, loss))
        text, positive = network.text_vectors(inputs), network.positive_vectors(inputs, truth[1])
        contrast = nt_xent(network.projector(text), network.projector(positive), temperature)
        # Five labels: the weight is relative to a mean over them.
        torch.testing.assert_close(found[1] - found[0], (0.3 * 5 * contrast).expand(4), atol=1e-4, rtol=1e-4)


# Scoring


@pytest.mark.parametrize("mode", MODES)
def test_scoring_needs_no_graph(mode: str) -> None:
    network, inputs, _, _ = case(mode)
    network.eval()
    logits = network(inputs)
    network.backbone = without_lora(network.backbone)
    for_scoring = network.for_scoring().eval()
    assert type(for_scoring) is Network
    assert {name.partition(".")[0] for name in for_scoring.state_dict()} <= {"backbone", "outputs"}
    torch.testing.assert_close(for_scoring(inputs), logits, atol=1e-5, rtol=1e-4)
    del network.label_encoder, network.words_to_labels, network.projector
    torch.testing.assert_close(network(inputs), logits, atol=1e-5, rtol=1e-4)


def test_over_frozen_states_there_is_a_hidden_layer_to_learn() -> None:
    network, inputs, truth, loss = case("frozen", threshold=0.2)
    assert network.outputs.hidden.weight.shape == (WIDTH, WIDTH)
    torch.autograd.backward(network.losses(inputs, truth, loss).mean())
    assert network.outputs.hidden.weight.grad.count_nonzero() > 0
    other = Network(None, "mean", LinearOutputs(WIDTH, 5, WIDTH))
    other.load_state_dict(network.for_scoring().state_dict())
    torch.testing.assert_close(other.eval()(inputs), network.eval()(inputs))


def test_names_are_restored_with_weights() -> None:
    network = case("frozen").network
    bare = HgclrNetwork(replace(spec_of(TREE), name_vectors=None), Hgclr())
    assert bare.label_encoder.names.count_nonzero() == 0
    bare.load_state_dict(network.state_dict())
    torch.testing.assert_close(bare.label_encoder(), network.label_encoder())


# Learning

SUBJECTS, TOPICS, KEYWORDS = 4, 4, 2
LONG = 24
SUBJECT_TREE = Hierarchy.from_paths([f"s{i} > s{i}t{j}" for i in range(SUBJECTS) for j in range(TOPICS)])
# Ids of keywords of topics, then of noise; 0 is padding, 1 [CLS].
FIRST_KEYWORD = 2
FIRST_NOISE = FIRST_KEYWORD + SUBJECTS * TOPICS * KEYWORDS
WORDS = FIRST_NOISE + 400


class Texts(NamedTuple):
    """Texts of a topic each: two keywords of it, at `planted`, among words that say nothing."""

    ids: Tensor
    labels: Any
    planted: Any

    @property
    def inputs(self) -> tuple[Tensor, Tensor]:
        return self.ids, torch.ones_like(self.ids)


def texts(count: int, seed: int) -> Texts:
    rng = np.random.default_rng(seed)
    topic = rng.permutation(np.arange(count) % (SUBJECTS * TOPICS))
    ids = rng.integers(FIRST_NOISE, WORDS, (count, LONG))
    ids[:, 0] = 1
    planted = np.zeros((count, LONG), np.bool_)
    for row in range(count):
        planted[row, 1 + rng.choice(LONG - 1, 2, replace=False)] = True
        ids[row, planted[row]] = FIRST_KEYWORD + topic[row] * KEYWORDS + rng.integers(0, KEYWORDS, 2)
    labels = np.zeros((count, len(SUBJECT_TREE)), np.int64)
    labels[np.arange(count), SUBJECTS + topic] = 1
    return Texts(torch.from_numpy(ids), SUBJECT_TREE.closure(labels).toarray().astype(np.int64), planted)


def trained(train: Texts, epochs: int, chooses: bool = True, **settings: Any) -> HgclrNetwork:
    """Train a small BERT from nothing; without `chooses`, graph and attention stay random."""
    torch.manual_seed(0)
    parts = spec_of(SUBJECT_TREE, small_bert(WORDS, LONG), dropout=0.1)
    network = HgclrNetwork(parts, Hgclr(contrastive_weight=0.05, **settings))
    network.label_encoder.requires_grad_(chooses)
    network.words_to_labels.requires_grad_(chooses)
    loss = parts.objective.loss
    prepared = network.prepare(loss, train.labels)
    optimizer = torch.optim.AdamW([p for p in network.parameters() if p.requires_grad], 3e-3)
    rng = np.random.default_rng(0)
    network.train()
    for _ in range(epochs):
        for rows in np.array_split(rng.permutation(len(train.ids)), len(train.ids) // 16):
            optimizer.zero_grad()
            given = tuple(value[rows] for value in train.inputs)
            torch.autograd.backward(network(given, prepared.batch(rows), loss).mean())
            nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimizer.step()
    return network.eval()


def micro_f1(network: Network, test: Texts) -> float:
    with torch.inference_mode():
        found = (network(test.inputs) > 0).numpy()
    return float(2 * (found & (test.labels > 0)).sum() / (found.sum() + test.labels.sum()))


def shares_kept(network: HgclrNetwork, data: Texts) -> tuple[float, float]:
    """The shares of planted words and of noise that are kept, with Gumbel noise."""
    network.train()
    with torch.inference_mode():
        nodes = torch.from_numpy(data.labels).float()
        kept = network.select_words(network.word_vectors(data.inputs), data.inputs[1], nodes).numpy()
    network.eval()
    noise = ~data.planted
    noise[:, 0] = False
    return float(kept[data.planted].mean()), float(kept[noise].mean())


@pytest.mark.slow
def test_it_learns_which_words_matter_and_is_worse_where_they_are_chosen_by_chance() -> None:
    train, test = texts(96, 0), texts(480, 1)
    network = trained(train, 30, threshold=0.2, log_probabilities=True)
    assert micro_f1(network.for_scoring(), test) >= 0.95
    planted, noise = shares_kept(network, test)
    assert planted > 0.75
    assert noise < 0.5
    # Of so many words, a random choice above this threshold keeps as many.
    by_chance = trained(train, 30, chooses=False, threshold=0.06, log_probabilities=True)
    planted, noise = shares_kept(by_chance, test)
    assert planted == pytest.approx(noise, abs=0.05)
    assert micro_f1(by_chance, test) < micro_f1(network, test) - 0.03


@pytest.mark.slow
def test_over_frozen_states_planted_words_are_found() -> None:
    torch.manual_seed(0)
    data, unseen = texts(160, 0), texts(320, 1)
    vectors = torch.randn(WORDS, WIDTH)
    parts = spec_of(SUBJECT_TREE)
    network = HgclrNetwork(parts, Hgclr(contrastive_weight=0.05, threshold=0.2, log_probabilities=True))
    loss = parts.objective.loss
    prepared = network.prepare(loss, data.labels)
    optimizer = torch.optim.AdamW(network.parameters(), 3e-3)
    for _ in range(80):
        optimizer.zero_grad()
        rows = np.arange(160)
        torch.autograd.backward(network((vectors[data.ids], data.inputs[1]), prepared.batch(rows), loss).mean())
        optimizer.step()
    with torch.inference_mode():
        nodes, mask = torch.from_numpy(unseen.labels).float(), unseen.inputs[1]
        importance = network.eval().importance(vectors[unseen.ids], nodes).numpy() * mask.numpy()
    assert importance[unseen.planted].mean() > 1.5 * importance[~unseen.planted].mean()


# Few texts: word vectors of a frozen encoder, and of each topic two texts that say its name three times among words
# that hardly ever return. What those words have in common with the topic is chance, which a text's mean cannot tell.
FEW_WIDTH, FEW_LONG, FEW_NAMES = 448, 32, 3
FEW_WORDS = len(SUBJECT_TREE) + 8000


def few_texts(count: int, seed: int) -> Texts:
    """Texts whose words 0 to 19 are the names of labels."""
    rng = np.random.default_rng(seed)
    topic = rng.permutation(np.arange(count) % (SUBJECTS * TOPICS))
    ids = rng.integers(len(SUBJECT_TREE), FEW_WORDS, (count, FEW_LONG))
    planted = rng.permuted(np.tile(np.arange(FEW_LONG) < FEW_NAMES, (count, 1)), axis=1)
    ids[planted] = np.repeat(SUBJECTS + topic, FEW_NAMES)
    labels = np.zeros((count, len(SUBJECT_TREE)), np.int64)
    labels[np.arange(count), SUBJECTS + topic] = 1
    return Texts(torch.from_numpy(ids), SUBJECT_TREE.closure(labels).toarray().astype(np.int64), planted)


def f1_of_few(epochs: int, seed: int, plain: bool = False, learning_rate: float = 2e-3, **settings: Any) -> float:
    """Train on 32 texts and return micro-F1 of 640 others; `plain` is the scoring network with its loss alone."""
    torch.manual_seed(seed)
    vectors = torch.randn(FEW_WORDS, FEW_WIDTH)
    names = tuple(vectors[: len(SUBJECT_TREE)].unsqueeze(1))
    parts = spec_of(SUBJECT_TREE, width=FEW_WIDTH, dropout=0.1, name_vectors=names)
    network = scoring_network(parts) if plain else HgclrNetwork(parts, Hgclr(log_probabilities=True, **settings))
    train, test = few_texts(32, seed), few_texts(640, seed + 1000)
    loss = parts.objective.loss
    truth = network.prepare(loss, train.labels).batch(np.arange(32))
    optimizer = torch.optim.AdamW(network.parameters(), learning_rate)
    network.train()
    for _ in range(epochs):
        optimizer.zero_grad()
        torch.autograd.backward(network((vectors[train.ids], train.inputs[1]), truth, loss).mean())
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
    with torch.inference_mode():
        found = (network.eval()((vectors[test.ids], test.inputs[1])) > 0).numpy()
    return float(2 * (found & (test.labels > 0)).sum() / (found.sum() + test.labels.sum()))


@pytest.mark.slow
def test_few_texts_suffice_where_words_are_chosen_by_labels_and_plain_cross_entropy_learns_noise() -> None:
    # Seeds 0 and 1 give 0.952 and 0.953, and 0.88 at most for the plain network. It is the choice of words by true
    # labels that helps here: with a flat graph, or names that are exchanged, HGCLR is as good.
    seed = 2
    assert f1_of_few(80, seed, threshold=0.15) >= 0.95
    # Neither three times the epochs nor a faster rate helps it.
    assert f1_of_few(240, seed, plain=True) <= 0.88
    assert f1_of_few(240, seed, plain=True, learning_rate=1e-2) <= 0.88
    # The second reading and the contrast alone, with all words kept, are not what helps.
    assert f1_of_few(80, seed, threshold=-1.0) <= 0.9
