"""Rules with a limit for each value of a column: by hand, coverage within each value, and what is refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy.stats

from treelabel import Dataset, Hierarchy, Scores, TreelabelError, TunedRule, decide, evaluate, tune
from treelabel.evaluation.document_slices import rows_by_value
from treelabel.rules.conformal import ConformalSets
from treelabel.rules.risk_bounds import EVERYTHING
from treelabel.rules.set_calibration import calibrate_by_value
from treelabel.rules.tuned_rule import column_of, column_values

TREE = Hierarchy.from_paths(["A > B", "A > C", "D"])
SURE, UNSURE = [0.75, 0.25, 0.0], [0.5, 0.25, 0.25]
# B is right where the value is x; where it is y, A alone covers, and the root where it is z.
TRUTH = [["B"]] * 10 + [["C"]] * 10 + [["D"]] * 10
VALUES = ["x"] * 10 + ["y"] * 10 + ["z"] * 10
SCORES = Scores.from_leaves(TREE, ["B", "C", "D"], [UNSURE] * 30)


def tuned() -> TunedRule:
    return tune(TRUTH, SCORES, "conformal(coverage=0.9)", by={"origin": VALUES})


def test_each_value_has_its_own_limit(tmp_path: Path) -> None:
    rule = tuned()
    assert (rule.by, rule.values, rule.settings) == (
        "origin",
        ("x", "y", "z"),
        {"t": [0.0, 0.5, 0.75], "coverage": 0.9},
    )
    assert rule.measured["promise"].endswith("a probability of at least 0.9, within each value of origin")
    assert [(row["value"], row["documents"], row["t"]) for row in rule.measured["values"]] == [
        ("x", 10, 0.0),
        ("y", 10, 0.5),
        ("z", 10, 0.75),
    ]
    rule.save(tmp_path / "rule.json")
    assert TunedRule.load(tmp_path / "rule.json") == rule
    found = decide(SCORES[:3], str(tmp_path / "rule.json"), by=["z", "x", "y"])
    assert found.paths() == [[], ["A > B"], ["A"]]
    assert found.rule == "conformal(t=[0.0, 0.5, 0.75], coverage=0.9, by=origin)"
    assert column_of(rule) == column_of(str(tmp_path / "rule.json")) == "origin"
    assert column_of("best_leaf") is column_of(None) is None


def test_a_rule_without_a_column_is_stored_as_before(tmp_path: Path) -> None:
    tune(TRUTH, SCORES, "conformal(coverage=0.9)").save(tmp_path / "rule.json")
    assert set(json.loads((tmp_path / "rule.json").read_text())) == {
        "kind",
        "version",
        "rule",
        "settings",
        "fingerprint",
        "measured",
    }


def test_columns_come_in_every_form() -> None:
    rule, some = tuned(), SCORES[:2]
    data = Dataset.of(["", ""], [["B"], ["C"]], TREE)
    data = Dataset(data.ids, data.texts, data.labels, TREE, {"origin": pa.chunked_array([["x", "y"]])})
    forms: list[Any] = [["x", "y"], np.array(["x", "y"]), pd.Series(["x", "y"]), {"origin": ["x", "y"]}, data]
    for by in forms:
        assert decide(some, rule, by=by).paths() == [["A > B"], ["A"]]
    assert column_values([1, None, float("nan"), ""], "origin", 4) == ["1", "(missing)", "(missing)", "(missing)"]
    # The truth tells what each document has.
    assert evaluate(data, scores=some, rule=rule, metrics=["set_coverage", "set_size"]).values == {
        "set_coverage": 1.0,
        "set_size": 1.5,
    }
    again = tune(data, some, "conformal(coverage=0.5)", by="origin")
    assert again.values == ("x", "y")


def test_a_value_that_never_calibrated_gets_the_root() -> None:
    """With n = 0 documents the smallest limit that keeps the promise is infinite, and with 8 it is for 0.9."""
    with pytest.warns(UserWarning, match="no document that calibrated the rule had origin = 'w', so that those"):
        assert decide(SCORES[:2], tuned(), by=["w", "x"]).paths() == [[], ["A > B"]]
    few = tune(TRUTH, SCORES, "conformal(coverage=0.9)", by={"origin": ["a"] * 8 + ["b"] * 22})
    assert few.settings["t"][0] == EVERYTHING
    assert decide(SCORES[:1], few, by=["a"]).paths() == [[]]


@pytest.mark.parametrize(
    ("by", "message"),
    [
        (None, "has a limit for each value of the column 'origin'; pass by="),
        (["x"], "1 values of origin for 2 documents"),
        ({"colour": ["x", "y"]}, "the column 'origin', which the documents do not have; further columns are: colour"),
        (Dataset.of(["", ""], [["B"], ["C"]], TREE), "which the documents do not have; further columns are: none"),
        ("origin", "by= is 'origin', expected one value of origin for each document"),
        (7, "by= is 7, expected one value of origin for each document"),
    ],
)
def test_documents_without_the_column_are_refused(by: Any, message: str) -> None:
    with pytest.raises(TreelabelError, match=message):
        decide(SCORES[:2], tuned(), by=by)


@pytest.mark.parametrize(
    ("rule", "by", "message"),
    [
        ("macro_f1", {"origin": VALUES}, "cannot tune 'macro_f1' by a column; expected conformal"),
        ("conformal(coverage=0.9, group=top)", {"origin": VALUES}, "by a column; expected conformal"),
        ("conformal(t=0.5)", {"origin": VALUES}, "by a column; expected conformal"),
        ("conformal(coverage=0.9)", "origin", "by = 'origin' is a column of a Dataset"),
        ("conformal(coverage=0.9)", VALUES, "expected the name of a column, or a name with its values"),
        ("conformal(coverage=0.9)", {"origin": VALUES[1:]}, "29 values of origin for 30 documents"),
        ("conformal(coverage=1)", {"origin": VALUES}, "coverage = 1, expected a share above 0 and below 1"),
    ],
)
def test_what_cannot_be_tuned_by_a_column_is_refused(rule: str, by: Any, message: str) -> None:
    with pytest.raises(TreelabelError, match=message):
        tune(TRUTH, SCORES, rule, by=by)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"settings": {"t": [0.5, 0.5], "coverage": 0.9}}, "damaged: a rule that goes by the column 'origin' must"),
        ({"settings": {"coverage": 0.9}}, "damaged: a rule that goes by the column 'origin' must"),
        ({"settings": {"t": [0.5, -1, 0.5], "coverage": 0.9}}, "t has -1, expected numbers of at least 0"),
        ({"settings": {"t": [0.5, "a", 0.5], "coverage": 0.9}}, "expected a number or a list of numbers"),
        ({"values": ["x", "x", "y"]}, "damaged: a rule that goes by the column 'origin' must be conformal"),
        ({"values": "xyz"}, "values"),
        ({"rule": "threshold"}, "damaged: a rule that goes by the column 'origin' must be conformal"),
        ({"by": 3}, "by"),
        ({"fingerprint": "another"}, "hierarch"),
    ],
)
def test_damaged_rules_are_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    file = tmp_path / "rule.json"
    tuned().save(file)
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(TreelabelError, match=message):
        decide(SCORES[:1], str(file), by=["x"])


def test_a_limit_cannot_be_replaced_in_passing() -> None:
    with pytest.raises(TreelabelError, match="is used as it was tuned, but t was given beside it"):
        decide(SCORES[:1], tuned(), by=["x"], t=0.1)


# Coverage within each value by simulation

WIDE = Hierarchy.from_paths([f"{top} > {top}{leaf}" for top in "ABCD" for leaf in "123"])
DRAWS = 400


def simulated(rng: np.random.Generator, documents: int) -> tuple[Scores, list[list[str]], list[str]]:
    """Draw documents of three values, for one of which scores are far too sure of themselves; it is one in ten."""
    p = rng.dirichlet(np.full(12, 0.3), documents)
    leaves = (rng.random((documents, 1)) < p.cumsum(axis=1)).argmax(axis=1)
    values = rng.choice(["easy", "usual", "hard"], documents, p=[0.3, 0.6, 0.1])
    power = np.where(values == "hard", 4.0, np.where(values == "easy", 0.7, 1.0))[:, None]
    sharp = np.maximum(p, 1e-9) ** power
    names = [[WIDE.names[WIDE.leaves[leaf]]] for leaf in leaves]
    return Scores.from_leaves(WIDE, WIDE.leaves, sharp / sharp.sum(axis=1, keepdims=True)), names, values.tolist()


def test_coverage_holds_within_each_value_where_a_pooled_limit_fails() -> None:
    rng = np.random.default_rng(0)
    scores, truth, values = simulated(rng, 3000)
    new, new_truth, new_values = simulated(rng, 6000)
    apart = tune(truth, scores, "conformal(coverage=0.9)", by={"kind": values})
    pooled = tune(truth, scores, "conformal(coverage=0.9)")
    true = [{name, name[0]} for (name,) in new_truth]

    def covered(rule: TunedRule, value: str) -> float:
        sets = decide(new, rule, by=new_values).most_specific
        names = [[WIDE.names[node] for node in row] for row in np.split(sets.indices, sets.indptr[1:-1])]
        some = [
            not row or bool(set(row) & y) for row, y, each in zip(names, true, new_values, strict=True) if each == value
        ]
        return sum(some) / len(some)

    # 300 documents of "hard" calibrate: 3 standard errors of these and of 600 new ones are 0.064.
    for value in ("easy", "usual", "hard"):
        assert covered(apart, value) == pytest.approx(0.9, abs=0.064)
    assert covered(pooled, "hard") < 0.8


@pytest.mark.parametrize("documents", [50, 400])
@pytest.mark.slow
def test_coverage_of_each_value_lies_within_its_binomial_bounds(documents: int) -> None:
    """Draw validation documents and a new one many times, as `test_conformal` does for other groups."""
    rng = np.random.default_rng(documents)
    scores, truth, values = simulated(rng, 20_000)
    closed = WIDE.closure([[name in (names[0], names[0][0]) for name in WIDE.names] for names in truth])
    family, kind = ConformalSets(), np.array(values)
    limits = family.cover_limits(scores, closed)
    outcomes: dict[str, list[bool]] = {"easy": [], "usual": [], "hard": []}
    for _ in range(DRAWS):
        drawn = rng.choice(len(limits), documents, replace=False)
        found, _ = calibrate_by_value(scores[drawn], closed[drawn], family, 0.9, kind[drawn].tolist())
        t = {each.value: each.t for each in found}
        for value, covered in outcomes.items():
            covered.append(bool(limits[rng.choice(np.flatnonzero(kind == value))] <= t.get(value, EVERYTHING)))
    for covered in outcomes.values():
        # One of 10,000 draws of an exact coverage has fewer.
        assert sum(covered) >= scipy.stats.binom.ppf(1e-4, DRAWS, 0.9)


def test_a_list_is_one_value_wherever_columns_are_read() -> None:
    values = [["en", "fr"], None, "", "en", 7]
    names = column_values({"language": values}, "language", len(values))
    assert names == ["en, fr", "(missing)", "(missing)", "en", "7"]
    assert sorted(rows_by_value(values)) == sorted(set(names))
