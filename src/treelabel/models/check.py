"""The battery of checks that every model must pass, for the rows of MODELS and for anybody's own."""

import json
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from treelabel.core.array_schema import Arrays
from treelabel.core.errors import TreelabelError
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.hierarchy.label_ids import encode
from treelabel.models.base import Model
from treelabel.models.persistence.load import load_model
from treelabel.rules.decisions import decide
from treelabel.scores.score_matrix import Scores

HARD_TEXTS = ("", " ", "\u0000\t\n", "日本語 текст ✨ \U00020000", "never seen before", "barks " * 20_000)
_WORDS = {
    "terrier": "small terrier barks digs",
    "poodle": "curly poodle barks shows",
    "dog": "dog barks loudly",
    "cat": "cat meows softly",
    "cake": "sweet cake baked",
    "soup": "hot soup cooked",
    "horse": "horse pulls carts",
}


@dataclass(frozen=True, eq=False)
class Case:
    """Texts and labels of one kind."""

    hierarchy: Hierarchy
    texts: list[str]
    labels: list[list[str]]


def made_up(hierarchy: Hierarchy, labels: list[list[str]], seed: int = 0) -> Case:
    """Make texts of the words of their labels, with some noise.

    Parameters
    ----------
    labels
        The labels of each document.
    seed
        Draws the same noise again.

    Returns
    -------
    Case
    """
    rng = np.random.default_rng(seed)
    noise = [f"word{number}" for number in range(30)]
    texts = []
    for row in labels:
        words = " ".join(_WORDS[label] for label in row).split() + rng.choice(noise, 4).tolist()
        texts.append(" ".join(rng.permutation(words).tolist()))
    return Case(hierarchy, texts, labels)


TREE = Hierarchy.from_paths(["pet > dog > terrier", "pet > dog > poodle", "pet > cat", "food > cake", "food > soup"])
DAG = Hierarchy.from_edges([("pet", "dog"), ("work", "dog"), ("pet", "cat"), ("work", "horse")])
# One leaf each, with a label that one document has; paths that end inside; several paths and none; a DAG.
CASES: Mapping[str, Case] = {
    "leaf": made_up(TREE, [[name] for name in ("terrier", "poodle", "cat", "cake") * 12] + [["soup"]]),
    "path": made_up(TREE, [[name] for name in ("terrier", "dog", "cat", "cake") * 12]),
    "many": made_up(TREE, [["terrier", "cake"], ["cat"], ["cat", "cake"], ["poodle"], []] * 12),
    "DAG": made_up(DAG, [["dog"], ["cat"], ["horse"]] * 15),
}

Maker = Callable[[], Model]


def fit_case(make: Maker, case: Case) -> Model:
    """Make a model and let it learn a case.

    Parameters
    ----------
    make
        Makes a model that has not learned yet.
    case
        Texts and labels.

    Returns
    -------
    Model
    """
    return make().fit(case.texts, case.labels, hierarchy=case.hierarchy)


def _require(right: bool, what: str) -> None:
    if not right:
        raise AssertionError(what)


def _unfitted(model: Model) -> Model:
    """Return a model of the same settings that has learned nothing, by scikit-learn, which takes a second to load."""
    from sklearn.base import clone

    copied: Model = clone(model)
    return copied


def scores_are_sound(model: Model, case: Case) -> None:
    """Check that scores belong to the hierarchy, are probabilities, and are coherent as the model promises.

    Parameters
    ----------
    model
        A model that has learned the case.
    case
        Texts and labels.
    """
    scores = model.score(case.texts)
    _require(isinstance(scores, Scores), f"score gives Scores, found {type(scores).__name__}")
    _require(scores.hierarchy == case.hierarchy, "scores belong to another hierarchy")
    _require(len(scores) == len(case.texts), f"{len(case.texts)} texts have {len(scores)} rows of scores")
    values = scores.dense()
    _require(bool(np.isfinite(values).all() and values.min() >= 0 and values.max() <= 1), "scores lie outside [0, 1]")
    _require(scores.is_coherent(), "a node is likelier than its parent")
    if model.regime_ == "single_path" and case.hierarchy.is_tree and model.exhaustive:
        _require(scores.is_exhaustive(), "children do not sum to their parent")


def the_same_seed_gives_the_same(model: Model, case: Case) -> None:
    """Check that learning twice gives the same bits.

    Parameters
    ----------
    model
        A model that has learned the case.
    case
        Texts and labels.
    """
    one, two = (each.score(case.texts).dense() for each in (model, fit_case(lambda: _unfitted(model), case)))
    _require(np.array_equal(one, two), "learning twice with one seed gave different scores")


def a_saved_model_is_the_same(model: Model, case: Case) -> None:
    """Check that a loaded model scores like the saved one, to the last bit, and that folders hold no code.

    Parameters
    ----------
    model
        A model that has learned the case.
    case
        Texts and labels.
    """
    texts = [*case.texts[:5], *HARD_TEXTS]
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "model")
        loaded = load_model(Path(folder) / "model")
        kinds = {file.suffix for file in (Path(folder) / "model").iterdir()}
    _require(kinds <= {".json", ".md", ".npz", ".safetensors"}, f"a model folder holds files of kinds {sorted(kinds)}")
    same = np.array_equal(loaded.score(texts).dense(), model.score(texts).dense())
    _require(same, "the model that was loaded gives other scores")
    _require(loaded.predict(texts) == model.predict(texts), "the model that was loaded predicts other labels")
    _require(loaded.get_params() == model.get_params(), "the model that was loaded has other settings")


def what_is_saved_is_declared(model: Model, case: Case) -> None:
    """Check that the schema fits what is saved; arrays that are missing, foreign or of another shape are refused.

    Parameters
    ----------
    model
        A model that has learned the case.
    case
        Texts and labels.
    """
    values, arrays = model._state()
    schema = model.schema(json.loads(json.dumps(values)))
    schema.check(arrays)
    wrong: dict[str, Arrays] = {"an array that is not declared": {**arrays, "not_declared": np.zeros(1)}}
    for name, array in arrays.items():
        wrong[f"{name} missing"] = {other: kept for other, kept in arrays.items() if other != name}
        wrong[f"{name} as text"] = {**arrays, name: array.astype("U1")}
        wrong[f"{name} of one more dimension"] = {**arrays, name: array[None]}
        if array.size:
            nothing = np.nan if array.dtype.kind == "f" else np.iinfo(array.dtype).min
            wrong[f"{name} of {nothing}"] = {**arrays, name: np.full_like(array, nothing)}
    for what, given in wrong.items():
        try:
            schema.check(given)
        except TreelabelError:
            continue
        raise AssertionError(f"the schema does not refuse {what}")


def no_text_is_too_strange(model: Model, case: Case) -> None:
    """Check that empty, very long and unknown texts have scores, whatever stands beside them, and no texts have none.

    Parameters
    ----------
    model
        A model that has learned the case.
    case
        Texts and labels.
    """
    together = model.score(list(HARD_TEXTS)).dense()
    _require(bool(np.isfinite(together).all()), "a strange text has scores that are no numbers")
    alone = np.concatenate([model.score([text]).dense() for text in HARD_TEXTS])
    _require(np.allclose(together, alone, atol=1e-6), "the scores of a text depend on the texts beside it")
    _require(len(model.score([])) == 0 and model.predict([]) == [], "no texts have scores or labels")


def settings_are_settings(model: Model, case: Case) -> None:
    """Check that get_params returns the settings, and that clone makes an unfitted model with the same ones.

    Parameters
    ----------
    model
        A model that has learned the case.
    case
        Texts and labels.
    """
    copied = _unfitted(model)
    _require(copied.get_params() == model.get_params(), "clone has other settings")
    _require(not hasattr(copied, "hierarchy_"), "clone has learned something")


def what_is_wrong_is_said(model: Model, case: Case) -> None:
    """Check that a model that has not learned, and data without documents or labels, are refused.

    Parameters
    ----------
    model
        A model that has learned the case.
    case
        Texts and labels.
    """
    refused: list[Callable[[], object]] = [
        lambda: _unfitted(model).score(["a"]),
        lambda: _unfitted(model).fit([], [], hierarchy=case.hierarchy),
        lambda: _unfitted(model).fit(["a"], [[]], hierarchy=case.hierarchy),
        lambda: _unfitted(model).fit(["a", "b"], [case.labels[0]], hierarchy=case.hierarchy),
    ]
    for call in refused:
        try:
            call()
        except TreelabelError:
            continue
        raise AssertionError("something that cannot be right was not refused")


def it_learns(model: Model, case: Case) -> None:
    """Check that words that decide are learned, for models that learn from texts.

    Parameters
    ----------
    model
        A model that has learned the case.
    case
        Texts and labels.
    """
    true = case.hierarchy.closure(encode(case.hierarchy, case.labels))
    result = decide(model.score(case.texts), model.default_rule).csr
    both = result.multiply(true).sum(axis=1)
    sizes = result.sum(axis=1) + true.sum(axis=1)
    mean = float(np.where(sizes > 0, 2 * both / np.maximum(sizes, 1), 1.0).mean())
    # With twelve examples of each kind calibration knows little of several labels at once.
    least = 0.75 if model.regime_ == "multi_path" else 0.85
    _require(mean > least, f"hF1 on what it has learned is {mean:.2f}; expected more than {least}")


CHECKS: Mapping[str, Callable[[Model, Case], None]] = {
    check.__name__: check
    for check in (
        scores_are_sound,
        the_same_seed_gives_the_same,
        a_saved_model_is_the_same,
        what_is_saved_is_declared,
        no_text_is_too_strange,
        settings_are_settings,
        what_is_wrong_is_said,
    )
}


def check_model(make: Maker, learns: bool = True) -> tuple[str, ...]:
    """Let a model stand every check on every kind of labels; the first that fails raises AssertionError.

    Each kind is learned once, and once more for the comparison of seeds. `learns=False` is for models that do not look
    at training texts. A model may refuse kinds of labels that it cannot learn, but not all of them; those that it
    refuses are given.

    Parameters
    ----------
    make
        Makes a model that has not learned yet.
    learns
        Whether the model looks at training texts.

    Returns
    -------
    tuple of str
        The kinds of labels that it refuses.

    >>> from treelabel.models import make_model
    >>> check_model(lambda: make_model("most_frequent"), learns=False)
    ()
    """
    checks = [*CHECKS.values(), *([it_learns] if learns else [])]
    refused = {}
    for kind, case in CASES.items():
        try:
            model = fit_case(make, case)
        except TreelabelError as error:
            refused[kind] = str(error)
            continue
        for check in checks:
            try:
                check(model, case)
            except AssertionError as error:
                raise AssertionError(f"{check.__name__} ({kind}): {error}") from None
    _require(len(refused) < len(CASES), f"every kind of labels was refused: {refused}")
    return tuple(refused)
