"""AttentionXML and LightXML: attention, candidates, products along paths, stages, and few scores of many labels."""

import tracemalloc
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from torch.nn import functional

from tests.helpers import WordVectors, load_model, make_model, registered
from tests.strategies import examples
from treelabel import Dataset, Hierarchy, TreelabelError
from treelabel.core.array_schema import Schema
from treelabel.core.stopping import StopSignal
from treelabel.core.strings import Strings
from treelabel.encoders.token_states import TokenStates
from treelabel.models.base import Training
from treelabel.models.check import CASES, check_model, fit_case, it_learns
from treelabel.models.extreme.label_tree import LabelTree, tree_of
from treelabel.neural.featurizers import KnownVectors
from treelabel.neural.losses.base import make_loss
from treelabel.neural.network import NetworkSpec
from treelabel.neural.objective import Objective
from treelabel.neural.systems.attention_xml import AttentionXml, AttentionXmlNetwork, Level, Reader, attention_weights
from treelabel.neural.systems.candidate_ranking import (
    TreeTargets,
    among,
    choose_clusters,
    rank_documents,
    shallow_levels,
    with_tree,
)
from treelabel.neural.systems.light_xml import LightXml, LightXmlNetwork

NAMES = [f"label{number:02d}" for number in range(24)]
FLAT = Hierarchy.flat(NAMES)
OBJECTIVE = Objective("bce", FLAT, np.zeros(0, np.int32), np.ones(len(FLAT), np.int64))
# Clusters of 3 labels, and of 2 such clusters.
CLUSTERS = [[3 * cluster + place for place in range(3)] for cluster in range(8)]
TWO_LEVELS = tree_of(CLUSTERS)
THREE_LEVELS = tree_of([CLUSTERS[start : start + 2] for start in range(0, 8, 2)])
WIDTH = 12
SMALL: dict[str, dict[str, Any]] = {
    "attention_xml": {"max_flat_labels": 2, "cluster_size": 2, "top_clusters": 2, "lstm_size": 16, "mlp_size": 16},
    "light_xml": {"max_flat_labels": 1, "cluster_size": 2, "top_clusters": 2},
}


@pytest.fixture(autouse=True)
def words(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    monkeypatch.setenv("TREELABEL_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
    torch.set_num_threads(1)
    with registered("words", WordVectors):
        yield


def spec_with_tree(tree: LabelTree) -> NetworkSpec:
    return NetworkSpec(OBJECTIVE, WIDTH, None, "mean", 0.0, tree=tree)


def light(tree: LabelTree = TWO_LEVELS, **settings: Any) -> LightXmlNetwork:
    torch.manual_seed(0)
    return LightXmlNetwork(
        spec_with_tree(tree), LightXml(**{"top_clusters": 2, "bottleneck_size": 8, **settings})
    ).eval()


def attention(tree: LabelTree = THREE_LEVELS, **settings: Any) -> AttentionXmlNetwork:
    torch.manual_seed(0)
    own = {"top_clusters": 2, "lstm_size": 8, "mlp_size": 8, **settings}
    return AttentionXmlNetwork(spec_with_tree(tree), AttentionXml(**own)).eval()


def level_of(width: int, nodes: int, **sizes: Any) -> Level:
    """A level without dropout."""
    return Level(width, nodes, AttentionXml(embedding_dropout=0.0, states_dropout=0.0, **sizes))


def label_rows(rng: np.random.Generator, documents: int, most: int = 4) -> sparse.csr_array:
    """Draw labels of documents; some have none."""
    dense = np.zeros((documents, len(FLAT)), np.bool_)
    for row in dense:
        row[rng.choice(len(FLAT), rng.integers(0, most + 1), replace=False)] = True
    return sparse.csr_array(dense)


def texts_of_states(rng: np.random.Generator, documents: int, least: int = 0) -> TokenStates:
    return TokenStates.of_rows([rng.normal(size=(rng.integers(least, 6), WIDTH)) for _ in range(documents)], WIDTH)


# Attention


def test_without_a_query_attention_is_the_mean_of_the_words() -> None:
    states, mask = torch.randn(2, 4, 6), torch.tensor([[1, 1, 1, 0], [1, 1, 1, 1]]).bool()
    weights = attention_weights(states, mask, torch.zeros(3, 6))
    np.testing.assert_allclose((weights @ states)[0, 1], states[0, :3].mean(0), atol=1e-6)
    np.testing.assert_allclose((weights @ states)[1, 2], states[1].mean(0), atol=1e-6)
    assert weights[0, :, 3].eq(0).all()


def test_queries_of_each_text_are_those_of_all_texts_looked_up() -> None:
    torch.manual_seed(0)
    level = level_of(6, 9, lstm_size=4, mlp_size=5)
    states, mask = torch.randn(2, 4, 8), torch.tensor([[1, 1, 1, 0], [1, 1, 1, 1]]).bool()
    nodes = torch.tensor([[3, 8], [0, 3]])
    np.testing.assert_allclose(
        level.logits(states, mask, nodes).detach(), level.logits(states, mask).gather(1, nodes).detach(), atol=1e-6
    )


def test_a_logit_is_what_the_mlp_makes_of_the_mean_of_the_states() -> None:
    torch.manual_seed(0)
    level = level_of(6, 9, lstm_size=4, mlp_size=5)
    states, mask = torch.randn(2, 4, 8), torch.tensor([[1, 1, 1, 0], [1, 1, 1, 1]]).bool()
    seen = attention_weights(states, mask, level.queries) @ states
    expected = level.output(torch.relu(level.hidden(seen))).squeeze(-1)
    np.testing.assert_allclose(level.logits(states, mask).detach(), expected.detach(), atol=1e-6)


def test_a_reader_reads_both_ways_and_does_not_see_padding() -> None:
    torch.manual_seed(0)
    reader, words = Reader(5, 3), torch.randn(2, 6, 5)
    mask = torch.tensor([[1, 1, 1, 1, 0, 0], [1] * 6]).bool()
    together, alone = reader(words, mask)[0, :4], reader(words[:1, :4], mask[:1, :4])[0]
    np.testing.assert_allclose(together.detach(), alone.detach(), atol=1e-6)
    changed = words.clone()
    changed[0, 3] += 1
    first, last = (reader(each, mask)[0, 0].detach() for each in (words, changed))
    assert torch.equal(first[:3], last[:3])
    assert not torch.allclose(first[3:], last[3:])
    # The same as torch's own for texts without padding and initial states of 0.
    both = torch.nn.LSTM(5, 3, batch_first=True, bidirectional=True)
    own = {f"{name}_reverse": value for name, value in reader.backwards.state_dict().items()}
    both.load_state_dict({**reader.forwards.state_dict(), **own})
    np.testing.assert_allclose(reader(words[1:], mask[1:]).detach(), both(words[1:])[0].detach(), atol=1e-6)


def planted_word_found(seed: int) -> float:
    """Train a label that is true where one word stands; return how often this word has the largest attention."""
    torch.manual_seed(seed)
    words, documents, length = torch.randn(41, 16), 200, 8
    ids, true = torch.randint(0, 40, (documents, length)), torch.rand(documents, 1) < 0.5
    places, rows = torch.randint(0, length, (documents,)), true[:, 0].nonzero()[:, 0]
    ids[rows, places[rows]] = 40
    # Without a reader, which carries words to their neighbours.
    level, states, mask = level_of(16, 1, lstm_size=8, mlp_size=16), words[ids], torch.ones(ids.shape).bool()
    optimizer = torch.optim.Adam(level.parameters(), 1e-2)
    for _ in range(200):
        loss = functional.binary_cross_entropy_with_logits(level.logits(states, mask), true.float())
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
    weights = attention_weights(states, mask, level.queries)[rows, 0]
    return float((weights.argmax(1) == places[rows]).float().mean())


@pytest.mark.slow
def test_attention_finds_the_word_that_decides() -> None:
    found = [planted_word_found(seed) for seed in range(10)]
    # From some random starts a query learns to look away from the word, and stays there.
    assert sum(share > 0.95 for share in found) >= 8


# Candidates


@examples(50)
@given(st.integers(0, 10_000))
def test_true_labels_are_always_candidates_of_training(seed: int) -> None:
    rng = np.random.default_rng(seed)
    labels, inputs = label_rows(rng, 6, most=9), texts_of_states(rng, 6)
    gold = [set(labels.indices[low:high]) for low, high in zip(labels.indptr, labels.indptr[1:], strict=False)]
    network, loss = attention(), make_loss("bce", FLAT)
    for stage in (1, 2):
        truth = network.begin_stage(stage, inputs, loss, labels).batch(np.arange(6))
        nodes, there = network.candidates(truth)
        own = network.tree.above(sparse.eye_array(labels.shape[1], format="csr"))[stage].T.tocsr()
        for row in range(6):
            found = {label for node in nodes[row][there[row]].tolist() for label in own[[node]].indices}
            assert gold[row] <= found
            assert int((among(nodes, truth.levels[stage]) * there)[row].sum()) == int(
                (truth.levels[stage][row] >= 0).sum()
            )
    recaller = light()
    truth = recaller.prepare(loss, labels).batch(np.arange(6))
    nodes, there = recaller.candidates(torch.randn(6, 8), truth)
    for row in range(6):
        assert gold[row] <= set(TWO_LEVELS.labels[nodes[row][there[row]].numpy()].tolist())


def test_candidates_are_true_first_then_the_best_predicted() -> None:
    network = attention(top_clusters=3)
    network.level = 2
    truth = TreeTargets((torch.tensor([[0]]), torch.tensor([[5, -1]]), torch.tensor([[15]])), torch.tensor([[2, 7, 0]]))
    nodes, there = network.candidates(truth)
    assert there.all()
    assert nodes.tolist() == [[15, 16, 17, 6, 7, 8, 21, 22, 23]]


def test_negatives_of_lightxml_come_from_the_clusters_that_it_thinks_best() -> None:
    network = light(top_clusters=3)
    clusters = torch.full((1, 8), -3.0)
    clusters[0, 2], clusters[0, 6] = 2.0, 1.0
    truth = TreeTargets((torch.tensor([[4]]), torch.tensor([[13]])), None)
    labels, _ = network.candidates(clusters, truth)
    assert labels.tolist() == [[12, 13, 14, 6, 7, 8, 18, 19, 20]]
    assert among(labels, truth.levels[1]).sum() == 1


def test_more_clusters_are_chosen_where_more_are_true() -> None:
    scores = torch.rand(2, 8)
    chosen = choose_clusters(scores, torch.tensor([[1, 2, 3], [4, -1, -1]]), 2)
    assert chosen.shape == (2, 3)
    assert set(chosen[0].tolist()) == {1, 2, 3}
    assert chosen[1, 0] == 4


def test_smaller_clusters_are_masked() -> None:
    network = light(tree_of([[0, 1, 2], [3]]))
    nodes, there = network.below(1, torch.tensor([[1, 0]]))
    assert nodes[there].tolist() == [3, 0, 1, 2]
    assert there.tolist() == [[True, False, False, True, True, True]]


# Ranking


def test_with_all_clusters_every_label_is_ranked_by_the_product_of_two_sigmoids() -> None:
    network, vectors = light(top_clusters=8), torch.randn(5, WIDTH)
    labels, p = network.rank((vectors,))
    assert all(sorted(row) == list(range(24)) for row in labels.tolist())
    every = torch.arange(24).expand(5, 24)
    own = network.label_logits(vectors, every).sigmoid()
    cluster = network.recaller(vectors).sigmoid().repeat_interleave(3, dim=1)
    np.testing.assert_allclose(p.detach(), (own * cluster).gather(1, labels).detach(), atol=1e-6)


def test_looking_embeddings_up_gives_what_scoring_all_labels_does(monkeypatch: pytest.MonkeyPatch) -> None:
    network, vectors = light(), torch.randn(5, WIDTH)
    before = network.rank((vectors,))
    monkeypatch.setattr("treelabel.neural.systems.light_xml.WORTH_ALL", 0)
    monkeypatch.setattr("treelabel.neural.systems.candidate_ranking.NUMBERS_AT_ONCE", 100)
    after = network.rank((vectors,))
    assert torch.equal(before[0], after[0])
    np.testing.assert_allclose(before[1].detach(), after[1].detach(), atol=1e-6)


@examples(30)
@given(st.integers(0, 10_000))
def test_no_node_is_likelier_than_the_one_above_it(seed: int) -> None:
    rng = np.random.default_rng(seed)
    inputs, network = texts_of_states(rng, 5), attention()
    levels = []
    for level in range(3):
        network.level = level
        levels.append(rank_documents(network, [np.arange(5)], inputs).toarray())
    for level in (1, 2):
        above = levels[level - 1][:, THREE_LEVELS.parents(level)]
        assert (levels[level] <= above + 1e-7).all()
        # Two of the nodes above are looked below.
        children = np.diff(THREE_LEVELS.children[level])[0]
        assert ((levels[level] > 0).sum(axis=1) == 2 * children).all()


@pytest.mark.parametrize("system", ["light", "flat", "attention"])
def test_few_scores_are_the_largest_of_all(system: str) -> None:
    flat = LabelTree((np.array([0, 24]),), np.arange(24, dtype=np.int32))
    network: Any = attention() if system == "attention" else light(TWO_LEVELS if system == "light" else flat)
    # All labels of a text of one word have the same score.
    texts = texts_of_states(np.random.default_rng(0), 9, least=2)
    inputs: Any = texts if system == "attention" else KnownVectors(torch.randn(9, WIDTH))
    batches = [np.arange(5), np.arange(5, 9)]
    whole = network.score(batches, inputs, OBJECTIVE, 1.0)
    few = network.score(batches, inputs, OBJECTIVE, 1.0, 3)
    assert few.is_sparse
    np.testing.assert_allclose(few.dense(), whole.top_k(3).dense(), atol=1e-6)


def test_the_loss_of_ranking_is_the_log_loss_of_all_nodes() -> None:
    rng = np.random.default_rng(1)
    network, inputs, labels = light(), KnownVectors(torch.randn(7, WIDTH)), label_rows(rng, 7)
    p = rank_documents(network, [np.arange(7)], inputs).toarray().astype(np.float64)
    true = labels.toarray()
    expected = -np.log(np.where(true, np.clip(p, 1e-4, 1 - 1e-4), 1 - p)).sum(axis=1).mean()
    data = Training(Strings.of([""] * 7), labels, network.hierarchy)
    loss, temperature = network.validation_loss([np.arange(7)], inputs, OBJECTIVE, data)
    assert loss == pytest.approx(expected, rel=1e-4)
    assert temperature == 1.0


# Training


def many_labels(documents: int = 400, labels: int = 40) -> Dataset:
    """Texts with one word for each label, and words of groups of labels."""
    rng = np.random.default_rng(0)
    names = [f"label{number:02d}" for number in range(labels)]
    chosen = [rng.choice(labels, 2, replace=False) for _ in range(documents)]
    texts = [" ".join(f"sign{number} group{number // 4}" for number in own) for own in chosen]
    return Dataset.of(texts, [[names[number] for number in own] for own in chosen], Hierarchy.flat(names))


def recall_of_clusters(network: Any, inputs: Any, labels: Any) -> float:
    """Return the share of true clusters among the best ones that are looked into."""
    true = network.tree_labels(labels)[0].toarray()
    with torch.inference_mode():
        scores = network.eval().recaller(network.text_vectors(inputs.batch(np.arange(len(true)))))
    best = scores.topk(network.top_clusters).indices.numpy()
    return float(np.take_along_axis(true, best, axis=1).sum() / true.sum())


@pytest.mark.slow
def test_the_recaller_learns_to_find_the_clusters_of_true_labels() -> None:
    data = many_labels()
    found = []
    for epochs in (1, 15):
        model = make_model(
            "light_xml",
            encoder="words",
            max_flat_labels=4,
            cluster_size=4,
            top_clusters=3,
            epochs=epochs,
            batch_size=16,
        )
        fitted: Any = model.fit(data).fitted_
        found.append(recall_of_clusters(fitted.network, fitted.featurizer.inputs(data.texts), data.labels))
    assert found[0] < found[1] - 0.1
    assert found[1] > 0.8


@pytest.mark.parametrize("system", SMALL)
@pytest.mark.slow
def test_clusters_and_levels_stand_the_battery(system: str) -> None:
    settings = {"encoder": "words", "batch_size": 8, "weight_decay": 0.0, "learning_rate": 1e-2, **SMALL[system]}
    assert not check_model(lambda: make_model(system, epochs=1, **settings), learns=False)
    for case in CASES.values():
        it_learns(fit_case(lambda: make_model(system, epochs=24, **settings), case), case)


def test_a_level_begins_with_what_the_level_above_has_learned() -> None:
    rng = np.random.default_rng(0)
    labels, inputs, network = label_rows(rng, 6), texts_of_states(rng, 6, least=2), attention()
    loss = make_loss("bce", FLAT)
    queries = network.level_at(1).queries.clone()
    with torch.no_grad():
        network.level_at(0).hidden.weight.fill_(0.5)
    truth = network.begin_stage(1, inputs, loss, labels)
    assert network.level_at(1).hidden.weight.eq(0.5).all()
    assert torch.equal(network.level_at(1).queries, queries)
    assert {name.split(".")[1] for name, each in network.named_parameters() if each.requires_grad} == {"1"}
    # What is predicted are the best nodes of the first level, best first.
    network.level = 0
    p = rank_documents(network, [np.arange(6)], inputs).toarray()
    assert truth.predicted is not None
    assert np.array_equal(truth.predicted, np.argsort(-p, axis=1, kind="stable")[:, :2])


def test_every_level_has_its_share_of_the_time() -> None:
    stop = StopSignal(deadline=np.inf)
    assert not stop.share(3)
    assert StopSignal(reason="interrupt").share(2).reason == "interrupt"
    model = make_model("attention_xml", encoder="words", **SMALL["attention_xml"]).fit(
        many_labels(100), max_seconds=1e-6
    )
    assert model.stopped_ == "deadline"
    assert np.isfinite(model.score(["sign1 group0"]).dense()).all()


def test_a_deadline_leaves_a_model_whose_levels_have_all_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    # A clock that goes on by a second in each step; what is before and after steps takes no time.
    clock, steps, rates = [0.0], [], []

    def watch(step: int, values: Mapping[str, float]) -> None:
        if "learning_rate" in values:
            clock[0] += 1
            steps.append(step)
            rates.append(values["learning_rate"])

    monkeypatch.setattr("treelabel.neural.trainer.time.monotonic", lambda: clock[0])
    data = many_labels(120)
    settings = {"encoder": "words", "epochs": 100, "patience": 100, "warmup_ratio": 0.0, "callbacks": (watch,)}
    model: Any = make_model("attention_xml", **settings, **{**SMALL["attention_xml"], "max_flat_labels": 8})
    model.fit(data, max_seconds=60)
    assert model.stopped_ == "deadline"
    network = model.fitted_.network
    assert network.stages > 1
    # Levels have equal shares of the time, and none of them goes on after its own.
    begins = [place for place, step in enumerate(steps) if step == 1]
    assert len(begins) == network.stages
    spent = np.diff([*begins, len(steps)])
    assert spent.max() - spent.min() <= 2
    assert len(steps) <= 60 + network.stages
    # Rates of every level have fallen when its time is over.
    for start, end in zip(begins, [*begins[1:], len(steps)], strict=True):
        assert rates[end - 1] < 0.2 * max(rates[start:end])
    # All labels of a text that are looked at have a score.
    scores = model.score(data.texts[:5]).dense()
    assert np.isfinite(scores).all()
    assert (scores > 0).any(axis=1).all()


@pytest.mark.slow
def test_what_follows_a_stage_that_was_cut_short_writes_no_checkpoint(tmp_path: Path) -> None:
    model = make_model(
        "attention_xml",
        encoder="words",
        epochs=100_000,
        patience=100_000,
        checkpoint_dir=str(tmp_path),
        **SMALL["attention_xml"],
    )
    model.fit(many_labels(100), max_seconds=2)
    assert model.stopped_ == "deadline"
    # How far the first level comes in its share of the time depends on the machine; no other level keeps anything.
    found = {file.parent.name for file in tmp_path.rglob("*.safetensors")}
    assert found <= {"first-0", "all-0"}


# Many labels


def test_level_sizes_divide_until_a_level_is_small() -> None:
    assert shallow_levels(100, 10, 100) == []
    assert shallow_levels(101, 10, 100) == [11]
    assert shallow_levels(5_000, 10, 20) == [5, 50, 500]


@pytest.mark.parametrize("system", SMALL)
@pytest.mark.slow
def test_memory_grows_with_the_scores_that_are_kept(system: str) -> None:
    names = [f"label{number}" for number in range(3_000)]
    texts = [f"word{number % 700} other{number % 70}" for number in range(3_000)]
    own = {"max_flat_labels": 200, "top_clusters": 4, "epochs": 1, "lstm_size": 4, "mlp_size": 4}
    if system == "light_xml":
        own = {"max_flat_labels": 200, "top_clusters": 4, "epochs": 1, "bottleneck_size": 4}
    model = make_model(system, hierarchy=Hierarchy.flat(names), encoder="words", **own)
    model.fit(texts, [[name] for name in names])
    asked = texts * 4
    model.score(asked[:10], top=5)
    tracemalloc.start()
    try:
        scores = model.score(asked, top=5)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert scores.csr().nnz <= 5 * len(asked)
    # All scores would take 4 * 3000 * 12000 bytes.
    assert peak < 4 * 3_000 * 12_000 / 2


# Refusals


@pytest.mark.parametrize(
    ("system", "settings", "match"),
    [
        ("attention_xml", {"mode": "all"}, "reads word vectors"),
        ("attention_xml", {"mode": "lora", "encoder": "scratch"}, "reads word vectors"),
        ("attention_xml", {"cluster_size": 1}, "cluster_size"),
        ("light_xml", {"loss": "champ"}, "a loss of its own: .*, found 'champ'"),
        ("light_xml", {"text_dropout": 1.0}, "text_dropout"),
        ("light_xml", {"hidden_layers": 0}, "hidden_layers"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(system: str, settings: dict[str, Any], match: str) -> None:
    with pytest.raises(TreelabelError, match=match):
        make_model(system, **{"encoder": "words", **settings}).fit(many_labels(20))


def test_what_is_no_label_tree_is_refused() -> None:
    schema, arrays = with_tree(Schema(), 24), dict(TWO_LEVELS.arrays())
    schema.check(arrays)
    twice = arrays["tree_labels"].copy()
    twice[0] = twice[1]
    for name, wrong, match in (
        ("tree_labels", twice, "a label twice"),
        ("tree_children", arrays["tree_children"][::-1].copy(), "does not divide"),
        ("tree_labels", np.zeros(0, np.int32), "number of labels"),
    ):
        with pytest.raises(TreelabelError, match=match):
            schema.check({**arrays, name: wrong})


def test_a_tree_is_saved_with_its_network(tmp_path: Path) -> None:
    model = make_model("light_xml", encoder="words", epochs=1, **SMALL["light_xml"]).fit(many_labels(60))
    model.save(tmp_path / "model")
    loaded: Any = load_model(tmp_path / "model")
    one, other = (each.fitted_.network.tree for each in (model, loaded))
    assert [ends.tolist() for ends in one.children] == [ends.tolist() for ends in other.children]
    assert np.array_equal(one.labels, other.labels)
    with pytest.raises(TreelabelError, match="no graph"):
        model.export()
