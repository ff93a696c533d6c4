"""The bag model: every loss, pretrained vectors, early stopping, Ctrl-C and deadlines, threads, unknown texts."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers import load_model, make_model, put
from tests.neural.losses.test_losses import judge, truth_for
from tests.reference import matrix_of
from tests.strategies import Drawn, dags, examples, trees
from treelabel import Dataset, Hierarchy, TreelabelError, evaluate, load_sample, split
from treelabel.models.check import CASES, TREE, check_model
from treelabel.neural.bag import learner as bag_learner
from treelabel.neural.bag.compiled_loss import COMPILED, CompiledLoss, Targets, group_step, mark_true
from treelabel.neural.losses.registry import LOSSES

WORDS = {"terrier": "digs", "poodle": "curly", "dog": "barks", "cat": "meows", "cake": "sweet", "soup": "hot"}


def made_up(names: list[list[str]], h: Hierarchy = TREE, seed: int = 0) -> Dataset:
    """Make texts of one word a label and some noise."""
    rng = np.random.default_rng(seed)
    texts = [
        " ".join([*(WORDS[name] for name in row), *(f"word{number}" for number in rng.integers(0, 20, 3))])
        for row in names
    ]
    return Dataset.of(texts, names, h)


LEAVES = made_up([[name] for name in ("terrier", "poodle", "cat", "cake", "soup") * 12])


@pytest.fixture(scope="module")
def sample() -> tuple[Dataset, Dataset]:
    train, valid, _ = split(load_sample(), {"train": 0.3, "valid": 0.1, "rest": 0.6}, seed=0).values()
    return train, valid


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.slow
def test_every_loss_learns(loss: str) -> None:
    model = make_model("bag", loss=loss, vector_size=20).fit(LEAVES)
    scores = model.score(LEAVES)
    assert scores.is_coherent()
    metric = "coarsest_accuracy" if loss == "win_coarse" else "leaf_accuracy"
    assert evaluate(LEAVES, scores=scores, rule="best_leaf", metrics=[metric])[metric] > 0.95


def test_the_loss_is_chosen_by_what_documents_are_like() -> None:
    many = made_up([["terrier", "cake"], ["cat"]] * 10)
    graph = Hierarchy.from_edges([("pet", "dog"), ("work", "dog"), ("pet", "cat")])
    dag = made_up([["dog"], ["cat"]] * 10, graph)
    chosen = [make_model("bag", vector_size=5, epochs=2).fit(data).objective_.name for data in (LEAVES, many, dag)]
    assert chosen == ["conditional_softmax", "conditional_sigmoid", "leaf_softmax"]
    with pytest.raises(TreelabelError, match="the loss win_log needs one path per document"):
        make_model("bag", loss="win_log").fit(many)
    with pytest.raises(TreelabelError, match="the loss conditional_softmax needs a tree"):
        make_model("bag", loss="conditional_softmax").fit(dag)
    with pytest.raises(TreelabelError, match="unknown loss"):
        make_model("bag", loss="mean").fit(LEAVES)


@pytest.mark.parametrize("loss", ["conditional_softmax", "leaf_softmax", "win_log", "conditional_sigmoid"])
def test_documents_that_end_inside_are_told_from_those_that_do_not(loss: str, tmp_path: Path) -> None:
    data = made_up([[name] for name in ("dog", "terrier", "cat") * 12])
    model = make_model("bag", loss=loss, vector_size=20).fit(data)
    assert evaluate(data, decisions=model.predict(data), metrics=["subset_accuracy"])["subset_accuracy"] > 0.95
    model.save(tmp_path / "model")
    assert np.array_equal(load_model(tmp_path / "model").score(data).dense(), model.score(data).dense())


def test_the_sample_is_learned_better_than_plain_averages_do(sample: tuple[Dataset, Dataset]) -> None:
    train, test = sample
    accuracy = {}
    for threads in (1, 2):
        scores = make_model("bag", threads=threads, epochs=15).fit(train).score(test)
        result = evaluate(test, scores=scores, rule="best_leaf", metrics=["leaf_accuracy", "ece"])
        accuracy[threads] = result["leaf_accuracy"]
        assert result["ece"] < 0.15
    assert accuracy[1] > 0.55
    assert accuracy[2] == pytest.approx(accuracy[1], abs=0.05)


def test_documents_may_end_inside_a_dag() -> None:
    graph = Hierarchy.from_edges([("pet", "dog"), ("work", "dog"), ("pet", "cat"), ("dog", "terrier")])
    data = made_up([[name] for name in ("dog", "terrier", "cat") * 12], graph)
    for loss in ("auto", "bce", "conditional_sigmoid"):
        model = make_model("bag", loss=loss, vector_size=20).fit(data)
        assert model.score(data).is_coherent()
        assert evaluate(data, decisions=model.predict(data), metrics=["subset_accuracy"])["subset_accuracy"] > 0.9


# Early stopping


@pytest.mark.slow
def test_the_best_epoch_is_kept_and_probabilities_are_the_likeliest(sample: tuple[Dataset, Dataset]) -> None:
    train, valid = sample
    model = make_model("bag", vector_size=30, epochs=8, learning_rate=4.0).fit(train, valid=valid)
    found = evaluate(valid, scores=model.score(valid), metrics=["cross_entropy"])["cross_entropy"]
    assert found == pytest.approx(min(model.losses_), rel=1e-4)
    assert model.inverse_temperature_ != 1.0


def test_learning_stops_when_validation_gains_nothing() -> None:
    other = made_up([["cat"], ["cake"]] * 5, seed=1)
    # Labels that contradict the training data: no epoch is better than the first.
    wrong = Dataset.of(list(other.texts), [["soup"], ["terrier"]] * 5, TREE)
    short = make_model("bag", vector_size=10, epochs=10, patience=3).fit(LEAVES, valid=wrong)
    assert len(short.losses_) == 4
    assert int(np.argmin(short.losses_)) == 0
    good = make_model("bag", vector_size=10, epochs=10).fit(LEAVES, valid=other)
    assert evaluate(other, decisions=good.predict(other), metrics=["hf1"])["hf1"] > 0.9


def test_validation_may_hold_what_a_loss_cannot_judge() -> None:
    valid = made_up([["dog"], ["cat", "cake"], [], ["cat"]])
    model = make_model("bag", loss="leaf_softmax", vector_size=10, epochs=3).fit(LEAVES, valid=valid)
    assert len(model.losses_) == 3
    none = make_model("bag", loss="leaf_softmax", vector_size=10, epochs=3).fit(LEAVES, valid=valid[[0, 1, 2]])
    assert none.inverse_temperature_ == 1.0


# Ctrl-C and deadlines


def test_a_deadline_gives_a_model_all_the_same() -> None:
    model = make_model("bag").fit(LEAVES, max_seconds=0)
    assert len(model.losses_) == 1
    assert evaluate(LEAVES, decisions=model.predict(LEAVES), metrics=["hf1"])["hf1"] > 0.5


def test_ctrl_c_keeps_what_was_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    visits = 0
    visit = bag_learner.CompiledSteps.descend

    def interrupted(self: Any, *arguments: Any) -> float:
        nonlocal visits
        visits += 1
        if visits == 6:
            raise KeyboardInterrupt
        return visit(self, *arguments)

    monkeypatch.setattr(bag_learner.CompiledSteps, "descend", interrupted)
    model = make_model("bag").fit(LEAVES)
    assert len(model.losses_) == 6
    assert evaluate(LEAVES, decisions=model.predict(LEAVES), metrics=["hf1"])["hf1"] > 0.9


def test_a_rate_that_diverges_is_said() -> None:
    with pytest.raises(TreelabelError, match="learning diverged at a learning rate of 1e\\+15; use a smaller one"):
        make_model("bag", adaptive=False, learning_rate=1e15).fit(LEAVES)
    plain = make_model("bag", adaptive=False, learning_rate=0.5).fit(LEAVES)
    assert evaluate(LEAVES, decisions=plain.predict(LEAVES), metrics=["hf1"])["hf1"] > 0.95


def test_progress_shows_the_loss(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    make_model("bag", vector_size=10, epochs=2).fit(LEAVES, progress=True)
    shown = capfd.readouterr().err
    assert "learning" in shown
    assert "loss" in shown


# Vectors


def test_pretrained_vectors_tell_of_words_alike(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    hot, cold = rng.normal(size=(2, 8))
    words = {"Hot": hot, "warm": hot, "cold": cold, "icy": cold, "New York": rng.normal(size=8)}
    lines = [f"{word} {' '.join(f'{x:.4f}' for x in vector)}" for word, vector in words.items()]
    data = Dataset.of(["hot", "cold"] * 10 + ["warm", "icy"], [["soup"], ["cake"]] * 10 + [["soup"], ["cake"]], TREE)
    for head in (["5 8"], []):
        file = put(tmp_path, "words.vec", "\n".join([*head, *lines]) + "\n")
        model = make_model("bag", vectors=str(file), epochs=1).fit(data)
        assert model.inputs_.shape[1] == 8
        places = [model.tfidf_.column_of(bucket) for bucket in buckets_of(["hot", "warm", "cold"], model)]
        alike = np.corrcoef(model.inputs_[places])
        assert alike[0, 1] > 0.95 > alike[0, 2]


def buckets_of(words: list[str], model: Any) -> list[int]:
    from treelabel.text.ngram_names import named_ngrams

    return [named_ngrams(word, model.tfidf_.shape)[word] for word in words]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"2 3\nsweet 1 2 3\nhot 1 2\n", r"words.vec:3: expected a word and 3 numbers, found 3 fields"),
        (b"sweet 1 2 3\nhot 1 x 3\n", r"words.vec:2: the vector of 'hot' has a value that is no number"),
        (b"sweet 1 nan 3\n", r"words.vec:1: the vector of 'sweet' is not finite"),
        (b"sweet\n", r"words.vec:1: expected a word and its numbers, found 1 fields"),
        (b"\xba\x16\x4f\x2f\x0c\x00\x00\x00", r"words.vec:1: a binary file, expected word vectors as text"),
        (b"zebra 1 2 3\n", r"words.vec: has no word of the training texts"),
        (b"", r"words.vec: has no word of the training texts"),
    ],
)
def test_wrong_vector_files_are_refused(tmp_path: Path, content: bytes, message: str) -> None:
    file = put(tmp_path, "words.vec", content)
    with pytest.raises(TreelabelError, match=message):
        make_model("bag", vectors=str(file)).fit(LEAVES)
    with pytest.raises(TreelabelError, match="no such file"):
        make_model("bag", vectors=str(tmp_path / "none.vec")).fit(LEAVES)


# Other promises


def test_only_what_training_has_seen_is_stored(tmp_path: Path) -> None:
    model = make_model("bag", vector_size=50).fit(LEAVES)
    assert len(model.inputs_) < 200
    model.save(tmp_path / "model")
    assert sum(file.stat().st_size for file in (tmp_path / "model").iterdir()) < 100_000


def test_unknown_text_has_about_the_shares_of_training() -> None:
    data = made_up([["cat"]] * 40 + [["cake"]] * 10)
    dense = make_model("bag", vector_size=20).fit(data).score(["quite unknown", ""]).dense()
    assert np.array_equal(dense[0], dense[1])
    assert dense[0, data.hierarchy.names.index("pet")] > 0.5


def test_rare_labels_gain_from_logit_adjustment() -> None:
    data = made_up([["cat"]] * 60 + [["cake"]] * 3)
    pet = data.hierarchy.names.index("pet")
    plain, adjusted = (
        make_model("bag", loss=loss, vector_size=20).fit(data).score(["unknown"]).dense()[0, pet]
        for loss in ("conditional_softmax", "conditional_softmax_la")
    )
    assert adjusted < plain


def test_settings_out_of_range_are_told() -> None:
    for setting in ("vector_size", "epochs", "patience", "threads", "learning_rate"):
        with pytest.raises(TreelabelError, match=f"the setting {setting} is 0, expected a .*number from 1"):
            make_model("bag", **{setting: 0}).fit(LEAVES)
    wrong: Any
    for wrong in (0, (0, 1), (2, 2), (1, 0), (1,), "12", (1, 2.0)):
        with pytest.raises(TreelabelError, match=r"the setting ngram_range.* is .*expected"):
            make_model("bag", ngram_range=wrong).fit(LEAVES)
    for wrong in (0, 1, 1000, 2**31, 4.0):
        with pytest.raises(
            TreelabelError, match=r"the setting n_features is .*, expected a (power of two|whole number)"
        ):
            make_model("bag", n_features=wrong).fit(LEAVES)


def test_parameters_of_a_loss_are_those_of_its_own(tmp_path: Path) -> None:
    plain, same, far = (
        make_model("bag", loss="champ", loss_params=params, vector_size=10, epochs=3).fit(LEAVES)
        for params in (None, {"beta": 0.2}, {"beta": 5.0})
    )
    assert np.array_equal(plain.outputs_, same.outputs_)
    assert not np.array_equal(plain.outputs_, far.outputs_)
    far.save(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    assert loaded.loss_params == {"beta": 5.0}
    assert loaded.objective_.spec.params == {"beta": 5.0}
    with pytest.raises(TreelabelError, match=r"the loss champ has no parameter 'tau'; it has: beta=0.2"):
        make_model("bag", loss="champ", loss_params={"tau": 1}).fit(LEAVES)
    with pytest.raises(TreelabelError, match="the parameter beta of the loss champ must be a number from 0 to 1e"):
        make_model("bag", loss="champ", loss_params={"beta": -1}).fit(LEAVES)
    with pytest.raises(TreelabelError, match=r"the setting loss_params is 0\.1, expected a mapping or null"):
        make_model("bag", loss="champ", loss_params=0.1).fit(LEAVES)


# Losses with and without a compiled form


@examples(25)
@given(drawn=trees() | dags(), seed=st.integers(0, 10**6), scale=st.sampled_from([1.0, 30.0]))
@pytest.mark.parametrize("name", COMPILED)
def test_compiled_losses_are_those_of_torch(name: str, drawn: Drawn, seed: int, scale: float) -> None:
    row, rng = LOSSES[name], np.random.default_rng(seed)
    if row.needs_tree and not drawn.fast.is_tree:
        return
    params = {"tau": 0.7} if name == "conditional_softmax_la" else {}
    spec = row.bind(drawn.fast, rng.integers(0, 5, len(drawn)), params)
    compiled, logits = CompiledLoss.of(spec), rng.normal(0, scale, (5, len(spec.outputs)))
    truth = matrix_of(truth_for(spec, drawn.slow, rng, 5), len(drawn))
    losses, gradients = judge_compiled(compiled, compiled.targets(truth), logits)
    expected, by_torch = judge(spec.build(), logits, truth)
    assert losses == pytest.approx(expected, rel=1e-5, abs=1e-4)
    assert gradients == pytest.approx(by_torch, abs=1e-5)
    assert compiled.probabilities(logits) == pytest.approx(spec.build().node_probabilities(logits), abs=1e-9)


def judge_compiled(compiled: CompiledLoss, targets: Targets, logits: Any) -> tuple[Any, Any]:
    """The loss of each document and its gradient, by compiled loops."""
    plan, workspace = compiled.plan, compiled.workspace()
    losses, gradients = np.zeros(len(logits)), np.zeros(logits.shape)
    for document in range(len(logits)):
        mark_true(targets, document, 1, workspace.is_true)
        for group in targets.groups[targets.group_ptr[document] : targets.group_ptr[document + 1]]:
            members = plan.members[plan.ptr[group] : plan.ptr[group + 1]]
            workspace.logits[: len(members)] = logits[document, members] + plan.offsets[members]
            losses[document] += group_step(plan, group, len(members), workspace)
            gradients[document, members] = workspace.logits[: len(members)]
        mark_true(targets, document, 0, workspace.is_true)
    return losses, gradients


@pytest.mark.parametrize("loss", ["bce", "leaf_softmax", "conditional_softmax_la"])
def test_steps_of_autograd_are_those_of_compiled_loops(loss: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fitted() -> Any:
        return make_model("bag", loss=loss, vector_size=10, epochs=3).fit(LEAVES, valid=LEAVES)

    compiled = fitted()
    monkeypatch.setattr("treelabel.neural.bag.learner.COMPILED", {})
    slow = fitted()
    assert slow.losses_ == pytest.approx(compiled.losses_, rel=1e-4)
    assert slow.inverse_temperature_ == pytest.approx(compiled.inverse_temperature_, rel=1e-2)
    assert slow.outputs_ == pytest.approx(compiled.outputs_, abs=1e-3)
    assert slow.score(LEAVES).dense() == pytest.approx(compiled.score(LEAVES).dense(), abs=1e-2)


@pytest.mark.slow
def test_without_torch_compiled_losses_train_and_others_say_what_to_do() -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import treelabel as tl\n"
        "from treelabel.models.check import CASES\n"
        "from treelabel.neural.bag.compiled_loss import COMPILED\n"
        "c = CASES['leaf']\n"
        "for loss in [*COMPILED, 'champ']:\n"
        "    model = tl.make_model('bag', loss=loss, epochs=2)\n"
        "    try: print(model.fit(c.texts, c.labels, hierarchy=c.hierarchy).score(c.texts).is_coherent())\n"
        "    except tl.TreelabelError as error: print(error)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    *coherent, refused = ended.stdout.splitlines()
    assert coherent == ["True"] * len(COMPILED)
    assert refused == (
        'the model bag trains the loss champ by torch: pip install "treelabel[neural]"; without torch it has bce, '
        "conditional_sigmoid, conditional_softmax, conditional_softmax_la, leaf_softmax, win_flat, win_coarse"
    )


@pytest.mark.parametrize("adaptive", [True, False])
def test_a_penalty_on_weights_pulls_children_to_their_parents(adaptive: bool) -> None:
    def apart(**params: float) -> float:
        model = make_model("bag", loss="match", loss_params=params, vector_size=10, epochs=5, adaptive=adaptive)
        match = model.set_params(learning_rate=0.3).fit(LEAVES).objective_.loss
        child, parent = match.child.numpy(), match.parent.numpy()
        return float(np.linalg.norm(model.outputs_[child] - model.outputs_[parent]))

    assert apart(lambda_parameters=0.1) < 0.8 * apart(lambda_parameters=0.0)


# Learning again


def test_a_warm_start_goes_on_where_learning_ended(tmp_path: Path) -> None:
    case = CASES["leaf"]
    data = Dataset.of(case.texts, case.labels, TREE)
    model = make_model("bag", epochs=3, warm_start=True, seed=1).fit(data)
    first, width = model.losses_[-1], model.tfidf_.width
    more = Dataset.of([*case.texts, "zebra zebra"], [*case.labels, ["soup"]], TREE)
    model.fit(more)
    cold = make_model("bag", epochs=3, seed=1).fit(more)
    assert model.tfidf_.width == width + 1
    assert model.losses_[-1] < min(first, cold.losses_[-1])
    model.save(tmp_path / "model")
    assert np.array_equal(load_model(tmp_path / "model").score(more).dense(), model.score(more).dense())
    with pytest.raises(TreelabelError, match="warm_start goes on with vector_size 200, but now it is 50"):
        model.set_params(vector_size=50).fit(data)


def test_a_warm_start_keeps_the_stop_nodes_it_knows() -> None:
    inside, leaves = (made_up([[name] for name in names * 6]) for names in (("dog", "cat"), ("terrier", "cat")))
    model = make_model("bag", vector_size=10, epochs=3, warm_start=True).fit(inside)
    stops, outputs = model.objective_.stop_nodes.tolist(), model.outputs_.shape
    model.fit(leaves)
    assert [TREE.names[node] for node in stops] == ["dog"]
    assert (model.objective_.stop_nodes.tolist(), model.outputs_.shape) == (stops, outputs)


def test_a_warm_start_refuses_what_it_cannot_go_on_with() -> None:
    case = CASES["leaf"]
    model = make_model("bag", epochs=1, warm_start=True, loss="win_log").fit(case.texts, case.labels, hierarchy=TREE)
    with pytest.raises(TreelabelError, match="goes on with the loss win_log"):
        model.set_params(loss="bce").fit(case.texts, case.labels, hierarchy=TREE)
    other = CASES["DAG"]
    with pytest.raises(TreelabelError, match="belongs to another hierarchy"):
        model.set_params(loss="win_log").fit(other.texts, other.labels, hierarchy=other.hierarchy)


@pytest.mark.parametrize("loss", [name for name in LOSSES if name not in COMPILED])
@pytest.mark.slow
def test_losses_without_a_compiled_form_stand_the_battery(loss: str) -> None:
    refused = check_model(lambda: make_model("bag", loss=loss, vector_size=20, epochs=10))
    assert refused == (() if loss in ("champ", "match") else ("many", "DAG"))
