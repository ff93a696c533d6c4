"""The commands that judge: evaluate, compare, metrics; what they print, how they match documents, what they refuse."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.helpers import Run
from treelabel import Hierarchy, Scores, evaluate, read, write
from treelabel.data import Dataset
from treelabel.evaluation.comparison import T_TEST_NOTE
from treelabel.evaluation.significance import relative_improvement
from treelabel.metrics import METRICS

TREE = Hierarchy.from_paths(["A > C > F", "A > D", "B > E"])
TRUTH = {"a": ["F"], "b": ["E"], "c": ["D"], "d": ["F"]}
FOUND = {"a": ["F"], "b": ["B"], "c": ["C"], "d": []}


def write_lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def lines_of(labels: dict[str, list[str]]) -> list[dict[str, Any]]:
    return [{"id": name, "labels": given} for name, given in labels.items()]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Make a folder with a taxonomy, a truth and a prediction."""
    (tmp_path / "taxonomy.tsv").write_text("".join(f"{above}\t{below}\n" for above, below in TREE.edges("Root")))
    write_lines(tmp_path / "truth.jsonl", lines_of(TRUTH))
    write_lines(tmp_path / "found.jsonl", lines_of(FOUND))
    return tmp_path


def scores_of(ids: list[str] | None) -> Scores:
    values = np.array([[9, 1, 6, 3, 1, 6], [2, 8, 1, 1, 3, 0], [7, 3, 6, 1, 3, 4], [0, 0, 0, 0, 0, 0]]) / 10
    if ids is None:
        return Scores(TREE, values)
    return Scores(TREE, values[["abcd".index(name) for name in ids]], tuple(ids))


EXPECTED = evaluate(list(TRUTH.values()), list(FOUND.values()), hierarchy=TREE)


# evaluate


def test_evaluate_prints_the_usual_metrics_as_a_table(folder: Path, run: Run) -> None:
    ended = run("evaluate", folder / "truth.jsonl", folder / "found.jsonl")
    assert ended.code == 0
    assert ended.err.startswith("next: treelabel report --truth ")
    assert ended.out == f"{EXPECTED.headline}\n\n{EXPECTED.table()}\n"
    assert EXPECTED.headline.startswith("1 of 4 exactly right (25.0%); 3 right at level 1, 1 right down to level 2")
    assert "hf1                0.5417" in ended.out


def test_the_next_command_judges_by_the_same_rule_and_can_be_pasted(folder: Path, run: Run) -> None:
    scores_of(None).save(folder / "the scores.npz")
    ended = run("evaluate", folder / "truth.jsonl", folder / "the scores.npz", "--rule", "top_k(k=2)")
    expected = f"--predictions '{folder / 'the scores.npz'}' --rule 'top_k(k=2)' -o report.html\n"
    assert ended.err.endswith(expected), ended.err


def test_evaluate_prints_json_with_the_same_values(folder: Path, run: Run) -> None:
    stored = run("evaluate", folder / "truth.jsonl", folder / "found.jsonl", "--json").json
    assert stored["documents"] == 4
    assert stored["fingerprint"] == TREE.fingerprint
    assert stored["rule"] is None
    assert stored["values"] == EXPECTED.values


def test_the_taxonomy_can_be_named(folder: Path, run: Run) -> None:
    moved = (folder / "taxonomy.tsv").rename(folder / "tree.tsv")
    ended = run("evaluate", folder / "truth.jsonl", folder / "found.jsonl", "--taxonomy", moved, "--json")
    assert ended.json["values"] == EXPECTED.values


def test_metrics_are_chosen_by_name(folder: Path, run: Run) -> None:
    files = folder / "truth.jsonl", folder / "found.jsonl"
    stored = run("evaluate", *files, "--metrics", "hf1, hf_beta@2,wu_palmer", "--json").json
    assert list(stored["values"]) == ["hf1", "hf_beta@2", "wu_palmer"]
    everything = run("evaluate", *files, "--metrics", "all", "--json").json["values"]
    assert {name for name, row in METRICS.items() if "decisions" in row.needs} <= everything.keys()


def test_documents_are_matched_by_id_in_any_order(folder: Path, run: Run) -> None:
    shuffled = write_lines(folder / "shuffled.jsonl", [*reversed(lines_of(FOUND)), {"id": "more", "labels": ["F"]}])
    assert run("evaluate", folder / "truth.jsonl", shuffled, "--json").json["values"] == EXPECTED.values


def test_numbers_as_ids_are_matched_by_id_too(folder: Path, run: Run) -> None:
    truth = write_lines(folder / "t.jsonl", [{"id": 1, "labels": ["F"]}, {"id": 0, "labels": ["E"]}])
    found = write_lines(folder / "p.jsonl", [{"id": 0, "labels": ["E"]}, {"id": 1, "labels": ["F"]}])
    assert run("evaluate", truth, found, "--json").json["values"]["hf1"] == 1


def test_predictions_without_ids_are_taken_in_order(folder: Path, run: Run) -> None:
    bare = write_lines(folder / "bare.jsonl", [{"labels": given} for given in FOUND.values()])
    assert run("evaluate", folder / "truth.jsonl", bare, "--json").json["values"] == EXPECTED.values


def test_the_same_ids_in_the_same_order_match_though_one_stands_twice(folder: Path, run: Run) -> None:
    truth = write_lines(folder / "t.jsonl", [{"id": "x", "labels": ["F"]}, {"id": "x", "labels": ["E"]}])
    assert run("evaluate", truth, truth, "--json").json["values"]["hf1"] == 1


def test_labels_may_be_names_paths_or_objects_with_probabilities(folder: Path, run: Run) -> None:
    rows: list[dict[str, Any]] = [
        {"id": "a", "labels": [{"label": "F", "path": "A > C > F", "p": 0.93}, {"label": "C", "p": 0.95}]},
        {"id": "b", "labels": "B"},
        {"id": "c", "labels": [["A", "C"]]},
        {"id": "d", "labels": None},
    ]
    found = write_lines(folder / "objects.jsonl", rows)
    assert run("evaluate", folder / "truth.jsonl", found, "--json").json["values"] == EXPECTED.values


def test_what_write_writes_can_be_judged(folder: Path, run: Run) -> None:
    data = Dataset.of([""] * 4, list(FOUND.values()), TREE, ids=list(FOUND))
    for name in ("found.csv", "found.parquet", "found.jsonl.gz"):
        write(data, folder / name)
        assert run("evaluate", folder / "truth.jsonl", folder / name, "--json").json["values"] == EXPECTED.values


@pytest.mark.parametrize("ending", ["npz", "parquet"])
@pytest.mark.parametrize("ids", [None, ["c", "a", "d", "b"]], ids=["in order", "by id"])
@pytest.mark.parametrize("kept", [None, 3], ids=["dense", "csr"])
def test_scores_are_judged_with_a_rule(
    folder: Path, run: Run, ending: str, ids: list[str] | None, kept: int | None
) -> None:
    scores, file = scores_of(ids), folder / f"scores.{ending}"
    (scores if kept is None else scores.top_k(kept)).save(file)
    in_order = scores_of(None) if kept is None else scores_of(None).top_k(kept)
    expected = evaluate(list(TRUTH.values()), scores=in_order, rule="threshold@0.3")
    stored = run("evaluate", folder / "truth.jsonl", file, "--rule", "threshold@0.3", "--json").json
    assert stored["values"] == expected.values
    assert "hf1_auc" in stored["values"]
    assert stored["rule"] == "threshold@0.3"


def test_scores_without_a_rule_are_decided_as_predict_would_which_is_printed(folder: Path, run: Run) -> None:
    scores_of(None).save(folder / "scores.npz")
    stored = run("evaluate", folder / "truth.jsonl", folder / "scores.npz", "--json").json
    expected = evaluate(list(TRUTH.values()), scores=scores_of(None), rule="best_leaf")
    assert (stored["rule"], stored["values"]) == ("best_leaf", expected.values)
    shown = run("evaluate", folder / "truth.jsonl", folder / "scores.npz").out
    assert "Scores were decided by best_leaf, as predict decides for labels like these." in shown.splitlines()


def test_compare_names_the_rule_of_each_system(folder: Path, run: Run) -> None:
    scores_of(None).save(folder / "scores.npz")
    files = [folder / name for name in ("truth.jsonl", "found.jsonl", "scores.npz")]
    shown = run("compare", *files, "--resamples", "20").out.splitlines()
    assert shown[1].split() == ["rule", "labels", "as", "given", "best_leaf"]
    assert shown[-1].startswith("Rules differ (labels as given, best_leaf)")
    stored = run("compare", *files, "--resamples", "20", "--rule", "threshold@0.3", "--json").json
    assert stored["rules"] == {"found.jsonl": None, "scores.npz": "threshold@0.3"}


def test_intervals_are_added_to_table_and_json(folder: Path, run: Run) -> None:
    files = folder / "truth.jsonl", folder / "found.jsonl"
    interval = EXPECTED.interval("hf1")
    table = run("evaluate", *files, "--intervals").out
    assert f"hf1                0.5417  [{interval.low:.4f}, {interval.high:.4f}]" in table.splitlines()
    stored = run("evaluate", *files, "--intervals", "--json").json
    assert stored["intervals"]["hf1"] == pytest.approx([interval.low, interval.high])
    assert stored["intervals"].keys() == stored["values"].keys()


def test_unknown_ends_of_intervals_are_null(folder: Path, run: Run) -> None:
    scores_of(None).save(folder / "scores.npz")
    arguments = ["--metrics", "cross_entropy", "--intervals", "--json"]
    stored = run("evaluate", folder / "truth.jsonl", folder / "scores.npz", *arguments).json
    assert stored["values"]["cross_entropy"] is None
    assert stored["intervals"]["cross_entropy"] == [None, None]


def test_frequencies_come_from_a_training_file_which_needs_no_texts(folder: Path, run: Run) -> None:
    rows = [["F"], ["F"], ["D"], ["E"], ["F"], ["E"]]
    train = write_lines(folder / "train.jsonl", [{"labels": labels} for labels in rows])
    data = read(train, taxonomy=TREE, need_text=False)
    files = folder / "truth.jsonl", folder / "found.jsonl"
    expected = evaluate(
        list(TRUTH.values()), list(FOUND.values()), hierarchy=TREE, metrics=["icm"], train_frequencies=data
    )
    with_train = run("evaluate", *files, "--metrics", "icm", "--train", train, "--json").json["values"]
    without = run("evaluate", *files, "--metrics", "icm", "--json").json["values"]
    assert with_train == expected.values
    assert with_train != without


# compare


@pytest.fixture
def systems(folder: Path) -> list[Path]:
    """Make a larger truth, a training file, and three systems: poor, the same, good."""
    rng = np.random.default_rng(0)
    names = [f"L{number}" for number in range(24)]
    true = rng.integers(0, 24, 150)
    rows = {"big": true}
    rows["poor"] = np.where(rng.random(150) < 0.3, true, rng.integers(0, 24, 150))
    rows["same"] = rows["poor"]
    rows["good"] = np.where(rng.random(150) < 0.9, true, rng.integers(0, 24, 150))
    (folder / "taxonomy.tsv").write_text("".join(f"Root\t{name}\n" for name in names))
    for system, labels in rows.items():
        lines = [{"id": f"d{row}", "labels": [names[label]]} for row, label in enumerate(labels)]
        write_lines(folder / f"{system}.jsonl", lines)
    often = [names[label] for label in range(24) for _ in range(3 if label < 14 else 20)]
    write_lines(folder / "train.jsonl", [{"labels": [name]} for name in often])
    return [folder / f"{system}.jsonl" for system in rows]


def test_compare_shows_intervals_stars_bins_and_the_sign_test(
    systems: list[Path], folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    ended = run("compare", *systems, "--train", folder / "train.jsonl", "--metrics", "hf1,macro_f1")
    assert (ended.code, ended.err) == (0, "")
    lines = {line[:28].strip(): line[28:] for line in ended.out.splitlines()}
    assert lines[""].split() == []
    assert ended.out.splitlines()[0].split() == ["poor.jsonl", "same.jsonl", "good.jsonl"]
    for metric, begin, end in (("hf1", "[", "]"), ("macro_f1", "(", ")"), ("micro_f1", "[", "]")):
        poor, same, good = (cell.split(begin)[0] for cell in lines[metric].split(end)[:3])
        assert "*" not in poor + same
        assert good.strip().endswith("*")
    assert {"1-9 (14 labels)", "10-99 (10 labels)"} <= lines.keys()
    # Fourteen labels can be tested, ten cannot.
    assert lines["1-9 (14 labels)"].count("*") == 1
    assert "*" not in lines["10-99 (10 labels)"]
    assert lines["1-9 (14 labels)"].count("%") == 2
    assert lines["micro sign test"].split()[:3] == ["p", "=", "1"]
    assert lines["micro sign test"].endswith("*")
    closing = ended.out.splitlines()[-3:]
    assert closing[0] == "150 documents; [95% interval]; * differs from the first, p < 0.01"
    assert re.fullmatch(r"No interval of macro_f1: \d+% of the labels have fewer than 5 documents\.", closing[1])
    assert closing[2] == T_TEST_NOTE


def test_why_there_is_no_interval_is_told_in_json_too(systems: list[Path], run: Run) -> None:
    compared = run("compare", *systems, "--resamples", "9", "--json").json["metrics"]
    judged = run("evaluate", *systems[:2], "--metrics", "hf1,macro_f1", "--intervals", "--json").json
    assert judged["intervals"]["macro_f1"] == [None, None]
    assert None not in judged["intervals"]["hf1"]
    assert list(judged["no_interval"]) == ["macro_f1"]
    cell = compared["macro_f1"]["poor.jsonl"]
    assert (cell["low"], cell["high"]) == (None, None)
    assert cell["no_interval"] == judged["no_interval"]["macro_f1"]
    assert "no_interval" not in compared["hf1"]["poor.jsonl"]
    assert f"(no interval: {cell['no_interval']})" in run("evaluate", *systems[:2], "--intervals").out


def test_compare_prints_json_that_agrees_with_evaluate(systems: list[Path], folder: Path, run: Run) -> None:
    stored = run("compare", *systems, "--train", folder / "train.jsonl", "--resamples", "99", "--json").json
    assert stored["documents"] == 150
    assert list(stored["metrics"]) == ["hf1", "micro_f1", "macro_f1"]
    for system in systems[1:]:
        alone = run("evaluate", systems[0], system, "--json").json["values"]
        assert all(stored["metrics"][name][system.name]["value"] == alone[name] for name in stored["metrics"])
    assert stored["metrics"]["hf1"]["poor.jsonl"]["p"] is None
    assert stored["metrics"]["hf1"]["same.jsonl"]["p"] == 1
    assert stored["metrics"]["hf1"]["good.jsonl"]["p"] == pytest.approx(2 * 1 / 100)
    assert stored["sign_test_p"].keys() == {"same.jsonl", "good.jsonl"}
    values = {name: cell["value"] for name, cell in stored["bins"]["1-9"].items()}
    improvement = relative_improvement(values["poor.jsonl"], values["good.jsonl"])
    assert f"({improvement:+.1f}%)" in run("compare", *systems, "--train", folder / "train.jsonl").out


def test_compare_is_the_same_for_the_same_seed_and_not_for_another(systems: list[Path], run: Run) -> None:
    first, again, other = (run("compare", *systems, "--resamples", "50", "--seed", seed).out for seed in "778")
    assert first == again != other


def test_compare_takes_all_metrics_and_scores_beside_predictions(folder: Path, run: Run) -> None:
    scores_of(["d", "c", "b", "a"]).save(folder / "scores.npz")
    files = [folder / name for name in ("truth.jsonl", "found.jsonl", "scores.npz")]
    stored = run("compare", *files, "--metrics", "all", "--resamples", "20", "--json").json
    assert "wu_palmer" in stored["metrics"]
    assert "hf1_auc" not in stored["metrics"]


def test_compare_tells_files_of_the_same_name_apart(folder: Path, run: Run) -> None:
    for system in ("one", "two"):
        (folder / system).mkdir()
        write_lines(folder / system / "found.jsonl", lines_of(FOUND))
    files = [folder / system / "found.jsonl" for system in ("one", "two")]
    stored = run("compare", folder / "truth.jsonl", *files, "--resamples", "9", "--json").json
    assert list(stored["metrics"]["hf1"]) == [str(file) for file in files]


# metrics


def test_metrics_lists_every_metric(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    ended = run("metrics")
    assert ended.code == 0
    head, *lines = ended.out.split("\n\n")[0].splitlines()
    assert head.split()[0] == "metric"
    assert [line.split()[0] for line in lines] == list(METRICS)
    papers = ended.out.split("\n\n")[1].splitlines()
    assert {line.partition("] ")[2].strip() for line in papers} == {row.paper for row in METRICS.values()}
    line = next(line for line in ended.out.splitlines() if line.startswith("jiang_conrath"))
    assert line.split()[1] == "lower"
    assert METRICS["jiang_conrath"].help in line
    assert line.endswith("decisions, frequencies, single label")


def test_metrics_prints_json(run: Run) -> None:
    stored = run("metrics", "--json").json
    assert list(stored) == list(METRICS)
    assert stored["hf1"]["higher_is_better"]
    assert stored["hf1"]["needs"] == ["decisions"]
    assert all(row["help"] and row["paper"] for row in stored.values())


# Mistakes


def bad_files(folder: Path) -> dict[str, Path]:
    """Write what cannot be judged."""
    (folder / "empty.jsonl").touch()
    (folder / "empty.npz").touch()
    (folder / "noise.npz").write_bytes(b"no scores")
    other = Hierarchy.flat("AB")
    Scores(other, np.ones((4, 2))).save(folder / "other.npz")
    scores_of(None)[:3].save(folder / "short.npz")
    rows = lines_of(FOUND)
    return {
        "empty": folder / "empty.jsonl",
        "empty scores": folder / "empty.npz",
        "noise": folder / "noise.npz",
        "other": folder / "other.npz",
        "short scores": folder / "short.npz",
        "absent": folder / "absent.jsonl",
        "folder": folder,
        "missing": write_lines(folder / "missing.jsonl", rows[:2]),
        "twice": write_lines(folder / "twice.jsonl", [*rows, rows[1]]),
        "short": write_lines(folder / "short.jsonl", [{"labels": ["F"]}] * 3),
        "unknown": write_lines(folder / "unknown.jsonl", [{"id": "a", "labels": ["G"]}]),
    }


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("empty", "empty.jsonl: no documents"),
        ("empty scores", "empty.npz: not a score file of treelabel, or damaged"),
        ("noise", "noise.npz: not a score file of treelabel, or damaged"),
        ("other", "other.npz belongs to another hierarchy"),
        ("short scores", "short.npz: 3 rows without ids for 4 documents of the truth"),
        ("absent", "absent.jsonl: no such file"),
        ("folder", "is a folder, expected a file"),
        ("missing", "missing.jsonl: no prediction for 2 of 4 documents: ids 'c', 'd'"),
        ("twice", "twice.jsonl: the id 'b' stands twice"),
        ("short", "short.jsonl: 3 rows without ids for 4 documents of the truth"),
        ("unknown", "unknown.jsonl:1: unknown label 'G'"),
    ],
)
@pytest.mark.parametrize("command", ["evaluate", "compare"])
def test_predictions_that_cannot_be_judged_end_with_code_2_and_one_line(
    command: str, file: str, message: str, folder: Path, run: Run
) -> None:
    systems = [folder / "found.jsonl", bad_files(folder)[file]] if command == "compare" else [bad_files(folder)[file]]
    ended = run(command, folder / "truth.jsonl", *systems)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("treelabel: ")
    assert ended.err.count("\n") == 1
    assert message in ended.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--metrics", "hf2"], "unknown metric 'hf2'; did you mean hf1"),
        (["--metrics", "precision@x"], "expected a number above 0 behind @, such as precision@5"),
        (["--metrics", ","], "nothing to judge: no metric is named"),
        (["--metrics", "hf1_auc"], "this metric needs scores; pass scores="),
        (["--train", "nowhere.csv"], "nowhere.csv: no such file"),
        (["--taxonomy", "nowhere.tsv"], "nowhere.tsv: no such file"),
        (["--nonsense"], "No such option"),
    ],
)
@pytest.mark.parametrize("command", ["evaluate", "compare"])
def test_mistaken_options_end_with_code_2_and_one_line(
    command: str, arguments: list[str], message: str, folder: Path, run: Run
) -> None:
    (folder / "again.jsonl").write_text((folder / "found.jsonl").read_text())
    files = [folder / name for name in ("truth.jsonl", "found.jsonl", "again.jsonl")]
    ended = run(command, *(files if command == "compare" else files[:2]), *arguments)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.count("\n") == 1
    assert message in ended.err


@pytest.mark.parametrize(("rule", "message"), [("best", "unknown rule 'best'"), ("threshold@x", "expected a number")])
def test_a_mistaken_rule_is_refused_where_it_is_needed(rule: str, message: str, folder: Path, run: Run) -> None:
    scores_of(None).save(folder / "scores.npz")
    ended = run("evaluate", folder / "truth.jsonl", folder / "scores.npz", "--rule", rule)
    assert ended.code == 2
    assert message in ended.err


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["found.jsonl"], "comparing needs at least two systems"),
        (["found.jsonl", "found.jsonl"], "the same file stands twice among the systems"),
        (["found.jsonl", "truth.jsonl", "--resamples", "0"], "expected at least 1 resample, found 0"),
    ],
)
def test_comparisons_that_make_no_sense_are_refused(names: list[str], message: str, folder: Path, run: Run) -> None:
    ended = run("compare", *[folder / name if "." in name else name for name in ["truth.jsonl", *names]])
    assert ended.code == 2
    assert message in ended.err


def test_a_truth_with_an_id_twice_cannot_be_matched(folder: Path, run: Run) -> None:
    truth = write_lines(folder / "t.jsonl", [*lines_of(TRUTH), {"id": "a", "labels": ["E"]}])
    ended = run("evaluate", truth, folder / "found.jsonl")
    assert ended.code == 2
    assert "the truth: the id 'a' stands twice" in ended.err


def test_predictions_in_a_field_of_another_name_are_refused(folder: Path, run: Run) -> None:
    found = write_lines(folder / "p.jsonl", [{"id": name, "guess": labels} for name, labels in TRUTH.items()])
    ended = run("evaluate", folder / "truth.jsonl", found, "--json")
    assert (ended.code, ended.out) == (2, "")
    assert "p.jsonl:1: no column looks like the labels; columns are 'id', 'guess'" in ended.err
