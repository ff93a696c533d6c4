"""APLC-XLNet: clusters by frequency, gates, a loss that leaves shut tails alone, and XLNet from scratch."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from tests.helpers import WordVectors, registered
from treelabel import Dataset, Hierarchy, TreelabelError, load_model, make_model
from treelabel.calibration.contract import ABSENT
from treelabel.core.strings import Strings
from treelabel.encoders.backbone import pool
from treelabel.encoders.registry import find_source
from treelabel.models.check import CASES
from treelabel.models.model_inputs import training_of
from treelabel.neural.backbones import learned_tokenizer, small_xlnet
from treelabel.neural.featurizers import KnownVectors
from treelabel.neural.losses.base import make_loss
from treelabel.neural.network import Network, NetworkSpec
from treelabel.neural.objective import Objective
from treelabel.neural.optimization import SCHEDULES, parameter_groups
from treelabel.neural.systems.aplc_xlnet import (
    AplcNetwork,
    AplcXlnet,
    LabelClusters,
    labels_by_frequency,
    product_logit,
)
from treelabel.neural.training_arguments import RATE_GROUPS, TrainingArguments


@pytest.fixture(autouse=True)
def words(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    monkeypatch.setenv("TREELABEL_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
    torch.set_num_threads(1)
    with registered("words", WordVectors):
        yield


def clusters(sizes: list[int], width: int = 8, **settings: Any) -> LabelClusters:
    """Make clusters with weights that say something."""
    torch.manual_seed(3)
    count = sum(sizes)
    given: dict[str, Any] = {"hidden_size": 16, "div_value": 2.0, "columns": np.arange(count), "outputs": count}
    made = LabelClusters(width, sizes, **{**given, "dropout": 0.0, **settings})
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.copy_(torch.randn_like(parameter))
    return made


def test_rare_labels_see_narrower_projections() -> None:
    made = clusters([3, 4, 5, 2], hidden_size=20)
    assert made.widths == [10, 5, 2]
    tails: Any = made.tails
    assert [tail[0].weight.shape for tail in tails] == [(10, 20), (5, 20), (2, 20)]
    assert made.head.weight.shape == (3 + 3, 20)
    biased = [name for name, _ in made.named_parameters() if name.endswith("bias") and "hidden" not in name]
    # Those of layer norms.
    assert biased == [f"tails.{number}.1.bias" for number in range(3)]


def test_a_label_of_a_tail_is_at_most_as_likely_as_its_gate() -> None:
    made, vectors = clusters([2, 3, 4]), torch.randn(50, 8)
    p = torch.sigmoid(made.label_logits(vectors).double())
    x = torch.tanh(made.hidden(vectors))
    gates = torch.sigmoid(made.head(x)[:, 2:].double())
    assert (p[:, 2:5] <= gates[:, [0]] + 1e-6).all()
    assert (p[:, 5:] <= gates[:, [1]] + 1e-6).all()
    own = torch.sigmoid(made.tails[0](x).double())
    torch.testing.assert_close(p[:, 2:5], own * gates[:, [0]], atol=1e-6, rtol=1e-4)


def test_the_logit_of_a_product_is_right_where_probabilities_round_to_0_and_1() -> None:
    one, other = (torch.linspace(-60, 60, 25, dtype=torch.float64) for _ in range(2))
    found = product_logit(one[:, None], other)
    p = torch.sigmoid(one[:, None]) * torch.sigmoid(other)
    near = (one[:, None].abs() < 25) & (other.abs() < 25)
    torch.testing.assert_close(found[near], torch.logit(p)[near], atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(product_logit(torch.tensor(-60.0), torch.tensor(-60.0)), torch.tensor(-120.0))
    torch.testing.assert_close(product_logit(torch.tensor(60.0), torch.tensor(-3.0)), torch.tensor(-3.0))


def test_with_a_true_label_in_every_tail_the_loss_is_dense_cross_entropy() -> None:
    made, vectors = clusters([2, 3, 4]), torch.randn(20, 8)
    true = (torch.rand(20, 9) < 0.3).float()
    true[:, [2, 7]] = 1
    p = torch.sigmoid(made.label_logits(vectors).double())
    expected = functional.binary_cross_entropy(p, true.double(), reduction="none").mean(1)
    torch.testing.assert_close(made.losses(vectors, true).double(), expected, atol=1e-5, rtol=1e-5)


def test_a_tail_without_true_labels_costs_its_gate_alone() -> None:
    made, vectors = clusters([2, 3, 4]), torch.randn(6, 8)
    true = torch.zeros(6, 9)
    true[:, [0, 3]] = 1
    gate = made.head(torch.tanh(made.hidden(vectors)))[:, 3]
    logits = made.label_logits(vectors)[:, :5]
    labels = functional.binary_cross_entropy_with_logits(logits, true[:, :5], reduction="none").sum(1)
    expected = (labels + functional.softplus(gate)) / (5 + 1)
    torch.testing.assert_close(made.losses(vectors, true), expected)
    torch.autograd.backward(made.losses(vectors, true).sum())
    slopes: list[list[Any]] = [[each.grad for each in tail.parameters()] for tail in made.tails]
    assert all(not slope.any() for slope in slopes[1])
    assert all(slope.any() for slope in slopes[0])


def network_of(labels: list[list[str]], hierarchy: Hierarchy, **settings: Any) -> AplcNetwork:
    """Make the network of some training labels."""
    train = training_of(["text"] * len(labels), labels, hierarchy)
    terminal = hierarchy.most_specific(train.labels).indices
    stops = np.unique(terminal[~hierarchy.is_leaf[terminal]]).astype(np.int32)
    objective = Objective.of(train, "bce", None, stops)
    return AplcNetwork(NetworkSpec(objective, 8, None, "mean", 0.0), AplcXlnet(**settings))


def test_labels_are_terminal_labels_of_training_most_frequent_first() -> None:
    h = Hierarchy.from_paths(["A > B", "A > C", "D", "E"])
    network = network_of([["A"], ["C"], ["C"], ["B"], ["D", "C"], ["D"]], h, tail_clusters=2)
    new = network.outputs
    train = training_of(["t"] * 6, [["A"], ["C"], ["C"], ["B"], ["D", "C"], ["D"]], h)
    objective = Objective.of(train, "bce", None, np.array([h.names.index("A")], np.int32))
    named = [
        objective.change.new.names[node] for node in labels_by_frequency(NetworkSpec(objective, 8, None, "mean", 0.0))
    ]
    assert named[:2] == ["C", "D"]
    assert sorted(named[2:]) == ["B", "other [A]"]
    assert new.sizes == [2, 1, 1]
    logits = network.logits((torch.ones(1, 8),))[0]
    absent = {objective.change.new.names[node] for node in np.flatnonzero(logits.detach().numpy() == ABSENT)}
    assert absent == {"A", "E"}


def test_labels_start_at_their_base_rates() -> None:
    names = [f"label{number:03d}" for number in range(200)]
    rng = np.random.default_rng(0)
    shares = 1 / np.arange(1, 201)
    labels = [
        [names[place] for place in rng.choice(200, 3, replace=False, p=shares / shares.sum())] for _ in range(400)
    ]
    h = Hierarchy.flat(names)
    torch.manual_seed(0)
    network = network_of(labels, h, tail_clusters=2)
    train, loss = training_of(["text"] * len(labels), labels, h), make_loss("bce", h)
    vectors = torch.randn(500, 8)
    true = np.asarray(train.labels.sum(axis=0)).ravel()[network.nodes] / len(labels)
    before = torch.sigmoid(network.outputs.label_logits(vectors)).mean(0).detach().numpy()
    assert (before > 0.1).all()
    truth = network.begin_stage(0, KnownVectors(vectors), loss, train.labels)
    p = torch.sigmoid(network.outputs.label_logits(vectors)).mean(0).detach().numpy()
    assert ((p > 0.5 * true) & (p < 2 * true)).all()
    # About ln 2 where all are at 1/2.
    assert network.losses((vectors[:400],), truth.batch(np.arange(400)), loss).mean().item() < 0.2


def test_base_rates_of_labels_that_all_texts_have_or_none_are_finite() -> None:
    network = network_of([["D"], ["D"], ["D", "E"]], Hierarchy.from_paths(["D", "E"]), tail_clusters=1)
    network.outputs.start_at([np.array([1.0]), np.array([0.0])], np.array([0.0]))
    assert torch.isfinite(network.outputs.label_logits(torch.randn(3, 8))).all()


def test_fewer_labels_than_clusters_are_all_in_the_head_and_small_tails() -> None:
    network = network_of([["D"], ["E"]], Hierarchy.from_paths(["D", "E"]), tail_clusters=5)
    assert network.outputs.sizes == [1, 1]


def test_parts_learn_at_rates_of_their_own_which_rise_and_fall() -> None:
    model = make_model("aplc_xlnet", encoder="bert", mode="all")
    assert isinstance(model, AplcXlnet)
    assert model.training.group_rates(model.recipe) == {"encoder": 5e-5, "hidden": 1e-4, "outputs": 2e-3}
    assert TrainingArguments(learning_rate=1.0).group_rates(model.recipe) == dict.fromkeys(RATE_GROUPS, 1.0)
    assert model.lr_scheduler == "slanted"
    shares = [SCHEDULES["slanted"](step, 100, 0.1) for step in range(101)]
    assert int(np.argmax(shares)) == 10
    assert all(np.diff(shares[:11]) > 0)
    assert all(np.diff(shares[10:]) < 0)
    network = network_of([["D"], ["E"]], Hierarchy.from_paths(["D", "E"]))
    groups = parameter_groups(network, {"encoder": 1.0, "hidden": 2.0, "outputs": 3.0}, TrainingArguments())
    rate = {id(parameter): group["lr"] for group in groups for parameter in group["params"]}
    assert {rate[id(p)] for p in network.outputs.hidden.parameters()} == {2.0}
    assert rate[id(network.outputs.head.weight)] == 3.0


def test_scratch_is_an_xlnet_that_is_read_at_its_last_token(tmp_path: Path) -> None:
    case = CASES["leaf"]
    model: Any = make_model("aplc_xlnet", encoder="scratch", epochs=1)
    model.fit(Dataset.of(case.texts, case.labels, case.hierarchy))
    network, featurizer = model.fitted_.network, model.fitted_.featurizer
    assert type(network) is Network
    assert network.backbone.config.model_type == "xlnet"
    assert network.pooling == featurizer.pooling == "last"
    assert featurizer.tokenizer.encode("cat").tokens[-1] == "[CLS]"
    model.save(tmp_path / "model")
    loaded: Any = load_model(tmp_path / "model")
    assert loaded.fitted_.network.backbone.config.model_type == "xlnet"
    assert np.array_equal(loaded.score(case.texts).dense(), model.score(case.texts).dense())


@pytest.mark.parametrize("mode", ["head", "all", "lora"])
@pytest.mark.slow
def test_an_xlnet_in_a_folder_is_used_frozen_or_fine_tuned(mode: str, tmp_path: Path) -> None:
    case, folder = CASES["leaf"], tmp_path / "xlnet"
    torch.manual_seed(0)
    tokenizer = learned_tokenizer(Strings.of(case.texts), "xlnet")
    small_xlnet(tokenizer.get_vocab_size()).save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    assert find_source(str(folder)).pooling == "last"
    model = make_model("aplc_xlnet", encoder=str(folder), mode=mode, epochs=2, max_length=16)
    model.fit(case.texts, case.labels, hierarchy=case.hierarchy)
    model.save(tmp_path / "model")
    expected = model.score(case.texts).dense()
    assert np.array_equal(load_model(tmp_path / "model").score(case.texts).dense(), expected)


@pytest.mark.parametrize("mask", [[1, 1, 0], [0, 1, 1], [1, 1, 1], [0, 0, 0]])
def test_the_last_token_is_the_last_that_is_no_padding(mask: list[int]) -> None:
    hidden = torch.tensor([[[1.0], [2.0], [3.0]]])
    last = max((place for place, there in enumerate(mask) if there), default=0)
    assert pool(hidden, torch.tensor([mask]), "last").item() == last + 1


def test_another_loss_is_refused() -> None:
    case = CASES["leaf"]
    for settings in ({"loss": "champ"}, {"loss_params": {"beta": 0.1}}, {"tail_clusters": 0}, {"div_value": 0.5}):
        with pytest.raises(TreelabelError, match=next(iter(settings))):
            make_model("aplc_xlnet", encoder="words", **settings).fit(case.texts, case.labels, hierarchy=case.hierarchy)


def test_the_best_epoch_is_found_by_labels_that_training_sees() -> None:
    from treelabel.neural.validation_set import with_seen_labels

    h = Hierarchy.from_paths(["A > B", "A > C"])
    shown, held = training_of(["t"], [["B"]], h), training_of(["t", "t"], [["B", "C"], ["C"]], h)
    found = with_seen_labels(held, shown)
    assert found.closed_labels.toarray().tolist() == [[1, 1, 0], [1, 0, 0]]
