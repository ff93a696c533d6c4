"""The metrics against scikit-learn, PyEvALL and napkinXC: speed, memory, and that the values agree.

    python benchmarks/metrics.py           # about two minutes, 3 GB of memory; exits with 1 if a requirement is missed
    python benchmarks/metrics.py --quick   # a tenth of the sizes, always exits with 0
    python benchmarks/metrics.py --later   # only distances and whole rankings, beside hF1 and its area

Both sides of a ratio are measured in this one run on the same data, taking turns, each the best of several repetitions;
compiled loops are warmed first. PyEvALL and napkinXC are installed once into environments of their own under
~/.cache/treelabel-bench; where that fails the reason is printed and their lines are left out.
"""

import argparse
import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from scipy import sparse
from sklearn.metrics import f1_score, precision_score, recall_score

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.measure import Claim, best_of, peak_growth, report, seconds
from benchmarks.peers import MissingPeerError, run_peer
from benchmarks.synthetic import SEED, path_scores, random_tree

from treelabel import Hierarchy, Result, Scores, evaluate
from treelabel.hierarchy import LabelMatrix, label_matrix

F1S = {"micro_f1": "micro", "macro_f1": "macro", "samples_f1": "samples"}
RANKED = ("precision", "recall", "ndcg", "psp")
PLACES = (1, 3, 5)

Ours = TypeVar("Ours")
Peer = TypeVar("Peer")


# Helpers


def taking_turns(repeats: int, ours: Callable[[], Ours], peer: Callable[[], Peer]) -> tuple[float, Ours, float, Peer]:
    """Time two things in turn, so that a busy machine slows down both: best time and result of each."""
    own, other = math.inf, math.inf
    for _ in range(repeats):
        spent, our_result = best_of(1, ours)
        own = min(own, spent)
        spent, peer_result = best_of(1, peer)
        other = min(other, spent)
    return own, our_result, other, peer_result


def agreement(peer: str, largest: float, limit: float) -> Claim:
    """Claim that our values are those of the peer."""
    return Claim(f"  difference to {peer}", f"{largest:.0e}", required=f"<= {limit:g}", kept=bool(largest <= limit))


def random_sets(documents: int, labels: int, each: int = 5) -> tuple[LabelMatrix, LabelMatrix]:
    """Make true and predicted label sets, as many labels each, of which about half agree."""
    rng = np.random.default_rng(SEED)
    # One label from each of `each` equal ranges: different ones, in order.
    true, other = ((np.arange(each) + rng.random((2, documents, each))) * (labels / each)).astype(np.int32)
    ptr = np.arange(documents + 1) * each
    predicted = np.where(rng.random(true.shape) < 0.5, true, other)
    return label_matrix(ptr, true.ravel(), labels), label_matrix(ptr, predicted.ravel(), labels)


# hF1-AUC against the obvious loop


def area_by_loop(scores: npt.NDArray[np.float32], truth: npt.NDArray[np.bool_]) -> float:
    """Compute the area of one document threshold by threshold, as the paper's authors do."""
    precisions, recalls = [1.0], [0.0]
    for threshold in np.unique(scores)[::-1]:
        predicted = scores >= threshold
        precisions.append(precision_score(truth, predicted))
        recalls.append(recall_score(truth, predicted))
        if recalls[-1] == 1:
            break
    return float(np.trapezoid(precisions, recalls))


def curves(documents: int, nodes: int, few: int) -> list[Claim]:
    """Measure hf1_auc; the loop runs over the first few documents only."""
    scores, truth = path_scores(documents, nodes)
    closed = scores.hierarchy.closure(truth[:few]).toarray()
    judge = partial(evaluate, truth, scores=scores, metrics=["hf1_auc"])
    judge()
    ours, result = best_of(7, judge)
    peer, areas = best_of(1, lambda: [area_by_loop(scores.values[row], closed[row]) for row in range(few)])
    what = f"hf1_auc, {documents:,} documents x {nodes:,} nodes"
    return [
        Claim.faster(what, ours, "loop, scaled", peer / few * documents, 1000),
        agreement("the loop", np.abs(result.documents["hf1_auc"][:few] - areas).max(), 1e-6),
    ]


# Set metrics against scikit-learn


def set_metrics(documents: int, labels: int) -> list[Claim]:
    """Measure hP, hR, hF1, ICM and F1s all together against one samples F1 of scikit-learn on the closed sets."""
    h = random_tree(labels, depth=4)
    truth, predicted = random_sets(documents, labels)
    closed, closed_predicted = h.closure(truth), h.closure(predicted)
    names = ["hp", "hr", "hf1", "icm", *F1S]
    judge = partial(evaluate, truth, predicted, hierarchy=h, metrics=names, keep_documents=False)
    judge()
    samples = partial(f1_score, average="samples", zero_division=0)
    ours, result, peer, value = taking_turns(15, judge, partial(samples, closed, closed_predicted))
    bytes_ = closed.astype(np.int8), closed_predicted.astype(np.int8)
    numbers = closed.astype(np.int64), closed_predicted.astype(np.int64)
    small, _ = best_of(15, partial(samples, *bytes_))
    large, _ = best_of(7, partial(samples, *numbers))
    micro, macro = (f1_score(*bytes_, average=average, zero_division=0) for average in ("micro", "macro"))
    found = np.array([result[name] for name in F1S])
    return [
        Claim.faster(f"hP hR hF1 ICM 3 F1s, {documents:,} x {labels:,}", ours, "sklearn samples F1", peer, 1),
        Claim("  peer's CSR as int8, its fastest", seconds(ours), f"sklearn {seconds(small)}", small / ours),
        Claim("  peer's CSR as int64, its usual", seconds(ours), f"sklearn {seconds(large)}", large / ours),
        agreement("sklearn", np.abs(found - [micro, macro, value]).max(), 1e-9),
    ]


def flat_metrics(documents: int, labels: int) -> list[Claim]:
    """Measure micro, macro and samples F1 on flat labels, where both sides see the very same CSR."""
    h = Hierarchy.flat(f"label {label}" for label in range(labels))
    truth, predicted = random_sets(documents, labels)
    judge = partial(evaluate, truth, predicted, hierarchy=h, metrics=list(F1S), keep_documents=False)
    judge()

    def peer_values(true: LabelMatrix, chosen: LabelMatrix) -> list[float]:
        return [f1_score(true, chosen, average=average, zero_division=0) for average in F1S.values()]

    ours, result, peer, values = taking_turns(15, judge, partial(peer_values, truth, predicted))
    small, _ = best_of(15, partial(peer_values, truth.astype(np.int8), predicted.astype(np.int8)))
    return [
        Claim.faster(f"3 F1s, {documents:,} x {labels:,} flat", ours, "sklearn 3 F1s", peer, 5),
        Claim("  peer's CSR as int8, its fastest", seconds(ours), f"sklearn {seconds(small)}", small / ours),
        agreement("sklearn", max(abs(result[name] - value) for name, value in zip(F1S, values, strict=True)), 1e-9),
    ]


# Distances and whole rankings beside the metrics that everybody takes


def with_second_parents(tree: Hierarchy, every: int = 10) -> Hierarchy:
    """Make a DAG of a tree: one in so many nodes has a second parent, the one beside its own."""
    edges = [(tree.names[tree.parent[node]], tree.names[node]) for node in np.flatnonzero(tree.parent >= 0)]
    for node in np.flatnonzero(tree.parent > 0)[::every]:
        beside = tree.parent[node] - 1
        if tree.depth[beside] == tree.depth[node] - 1:
            edges.append((tree.names[beside], tree.names[node]))
    return Hierarchy.from_edges(edges)


def later_metrics(documents: int, labels: int) -> list[Claim]:
    """Measure metrics of distances between labels beside hF1, and of whole rankings beside hF1-AUC."""
    tree = random_tree(labels, depth=4)
    cases = [
        ("tree", tree, each, name) for each in (1, 5) for name in ("shortest_path_sum", "hamming_annotated", "lca_f1")
    ]
    cases += [("DAG", with_second_parents(tree), each, "shortest_path_sum") for each in (1, 5)]
    claims = []
    for kind, h, each, name in cases:
        if each == 5 and name == "lca_f1":
            # Of single labels only.
            continue
        truth, predicted = random_sets(documents, len(h), each)
        names = [name], ["hf1"]
        calls = [partial(evaluate, truth, predicted, hierarchy=h, metrics=row, keep_documents=False) for row in names]
        for call in calls:
            call()
        ours, _, older, _ = taking_turns(9, *calls)
        what = f"{name}, {documents:,} x {len(h):,}, {kind}, {each} a document"
        claims.append(Claim(what, seconds(ours), f"hf1 {seconds(older)}", older / ours))
    scores, paths = path_scores(documents // 10, 1186)
    for name in ("label_ranking_average_precision", "micro_auc", "macro_auc", "argmax_level_accuracy"):
        judge, curve = (partial(evaluate, paths, scores=scores, metrics=[each]) for each in (name, "hf1_auc"))
        judge()
        ours, _, older, _ = taking_turns(3, judge, curve)
        what = f"{name}, {documents // 10:,} x 1,186"
        claims.append(Claim(what, seconds(ours), f"hf1_auc {seconds(older)}", older / ours))
    return claims


# ICM against PyEvALL

PYEVALL = """
import json, sys, time
from pyevall.evaluation import PyEvALLEvaluation
hierarchy, truth, predicted = sys.argv[1:]
with open(hierarchy) as file:
    tree = json.load(file)
started = time.perf_counter()
report = PyEvALLEvaluation().evaluate(predicted, truth, ["ICM"], hierarchy=tree, log_level="none")
spent = time.perf_counter() - started
value = report.report["metrics"]["ICM"]["results"]["average_per_test_case"]
print()
print(json.dumps([spent, value]))
"""


def contrast(documents: int, labels: int) -> list[Claim]:
    """Measure ICM on the same documents; PyEvALL's time is that of its one call, reading its small files included."""
    h = random_tree(labels, depth=4)
    truth, predicted = random_sets(documents, labels)
    judge = partial(evaluate, truth, predicted, hierarchy=h, metrics=["icm"], keep_documents=False)
    judge()
    ours, result = best_of(20, judge)
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder, f"{name}.json") for name in ("hierarchy", "truth", "predicted")]
        below: list[dict[str, Any]] = [{} for _ in range(labels + 1)]
        for node, above in enumerate(h.parent.tolist()):
            below[above][h.names[node]] = below[node]
        files[0].write_text(json.dumps(below[-1]))
        for file, sets in zip(files[1:], (truth, predicted), strict=True):
            rows = sets.indices.reshape(documents, -1).tolist()
            values = [
                {"test_case": "all", "id": str(at), "value": [h.names[n] for n in r]} for at, r in enumerate(rows)
            ]
            file.write_text(json.dumps(values))
        try:
            peer, value = run_peer("pyevall", PYEVALL, *files)
        except MissingPeerError as error:
            print(error)
            return [Claim(f"ICM, {documents:,} documents x {labels:,}", seconds(ours), "not installed")]
    return [
        Claim.faster(f"ICM, {documents:,} documents x {labels:,}", ours, "PyEvALL", peer, 10_000),
        agreement("PyEvALL", abs(result["icm"] - value), 1e-9),
    ]


# The k best labels against napkinXC

NAPKINXC = """
import json, sys, time
import numpy as np
from napkinxc import metrics
from scipy.sparse import csr_matrix
data = np.load(sys.argv[1])
true, ranked = data["true"], data["ranked"]
counted = csr_matrix((np.ones(true.size), true.ravel(), np.arange(len(true) + 1) * true.shape[1]), data["shape"])
weights = metrics.Jain_et_al_inverse_propensity(counted)
true, ranked = true.tolist(), ranked.tolist()
calls = {
    "precision": lambda: metrics.precision_at_k(true, ranked, k=5),
    "recall": lambda: metrics.recall_at_k(true, ranked, k=5),
    "ndcg": lambda: metrics.ndcg_at_k(true, ranked, k=5),
    "psp": lambda: metrics.psprecision_at_k(true, ranked, weights, k=5),
    "macro_f1": lambda: metrics.macro_f1_measure_at_k(true, ranked, k=5),
}
found = {}
for name, call in calls.items():
    times = []
    for _ in range(2):
        started = time.perf_counter()
        values = call()
        times.append(time.perf_counter() - started)
    found[name] = [min(times), values.tolist()]
print(json.dumps(found))
"""


def extreme_labels(documents: int, labels: int, stored: int = 100) -> tuple[npt.NDArray[np.int32], ...]:
    """Make the stored labels of each document (different ones, in order; low ids come often) and five true ones."""
    rng = np.random.default_rng(SEED)
    place = np.arange(stored) + rng.random((documents, stored))
    nodes = (labels * (place / stored) ** 2).astype(np.int32)
    picked = np.sort(rng.permuted(np.tile(np.arange(stored), (documents, 1)), axis=1)[:, :5], axis=1)
    missed = (labels * ((picked + rng.random(picked.shape)) / stored) ** 2).astype(np.int32)
    true = np.where(rng.random(picked.shape) < 0.5, np.take_along_axis(nodes, picked, axis=1), missed)
    # napkinXC takes the largest label that occurs for the last one.
    true[-1, -1] = labels - 1
    return nodes, true


def extreme_case(documents: int, labels: int) -> tuple[Scores, LabelMatrix]:
    """Make scores of the top 100 labels in CSR, true ones a little higher, and the truth."""
    h = Hierarchy.flat(f"label {label}" for label in range(labels))
    nodes, true = extreme_labels(documents, labels)
    truth = label_matrix(np.arange(documents + 1) * true.shape[1], true.ravel(), labels)
    is_true = (nodes[:, :, None] == true[:, None, :]).any(axis=2)
    values = (np.random.default_rng(SEED).random(nodes.shape, dtype=np.float32) + is_true) / 2
    ptr = np.arange(documents + 1) * nodes.shape[1]
    values = np.maximum(values, np.float32(1e-6))
    return Scores(h, sparse.csr_array((values.ravel(), nodes.ravel(), ptr), (documents, labels))), truth


def at_k(scores: Scores, truth: LabelMatrix, wanted: tuple[str, ...]) -> Result:
    """Judge the best labels at all places."""
    names = [f"{metric}@{k}" for metric in wanted for k in PLACES]
    return evaluate(truth, scores=scores, metrics=names, keep_documents=False)


def k_best(documents: int, labels: int) -> list[Claim]:
    """Measure all that napkinXC has too, and our memory.

    napkinXC gets lists that are ranked already, its fastest form; neither that nor its propensities are counted. Ours
    ranks the CSR scores and finds propensities itself, and gives micro F1 on top.
    """
    scores, truth = extreme_case(documents, labels)
    everything = (*RANKED, "micro_f1", "macro_f1")
    at_k(scores, truth, everything)
    some, _ = best_of(5, partial(at_k, scores, truth, RANKED))
    ours, result = best_of(5, partial(at_k, scores, truth, everything))
    nodes, values = (array.reshape(documents, -1) for array in (scores.values.indices, scores.values.data))
    ranked = np.take_along_axis(nodes, np.argsort(-values, axis=1, kind="stable"), axis=1)
    true = truth.indices.reshape(documents, -1)
    what = f"@1 3 5, {documents:,} x {labels:,}"
    claims = []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "data.npz")
        np.savez(file, true=true, ranked=ranked, shape=np.array(truth.shape))
        try:
            peer = run_peer("napkinxc", NAPKINXC, file)
            four = sum(peer[name][0] for name in RANKED)
            differences = [abs(result[f"{name}@{k}"] - peer[name][1][k - 1]) for name in peer for k in PLACES]
            claims += [
                Claim.faster(f"P R nDCG PSP {what}", some, "napkinXC", four, 3),
                Claim.faster("  and micro, macro F1", ours, "napkinXC", four + peer["macro_f1"][0], 3),
                agreement("napkinXC", max(differences), 1e-6),
            ]
        except MissingPeerError as error:
            print(error)
            claims.append(Claim(f"all {what}", seconds(ours), "not installed"))
    grown = peak_growth(
        "from benchmarks.metrics import at_k, extreme_case", f"at_k(*extreme_case({documents}, {labels}), {everything})"
    )
    return [*claims, Claim.at_most("  memory, making the data included", grown, 2000)]


# The first call

FIRST = """
import json, time
started = time.perf_counter()
import treelabel as tl
h = tl.Hierarchy.from_paths(["A > B", "A > C"])
scores = tl.Scores(h, [[0.9, 0.6, 0.3], [0.8, 0.1, 0.7]])
made = time.perf_counter()
tl.evaluate([["B"], ["C"]], scores=scores)["hf1_auc"]
called = time.perf_counter()
print(json.dumps([called - made, called - started]))
"""


def first_call() -> list[Claim]:
    """Measure a new process that judges two documents, compiled loops being cached.

    Beside it stands a process that only imports what anything like it must: numba, scipy.sparse and pyarrow.
    """

    def judging() -> tuple[float, float]:
        done = subprocess.run([sys.executable, "-c", FIRST], check=True, stdout=subprocess.PIPE, text=True)
        call, whole = json.loads(done.stdout)
        return call, whole

    def importing() -> None:
        subprocess.run([sys.executable, "-c", "import numba, scipy.sparse, pyarrow"], check=True)

    judging()
    importing()
    runs = [taking_turns(1, judging, importing) for _ in range(7)]
    process, bare = min(run[0] for run in runs), min(run[2] for run in runs)
    call, whole = (min(run[1][at] for run in runs) for at in range(2))
    return [
        Claim("first evaluate in a new process", seconds(call), required="< 1 s", kept=call < 1),
        Claim("  with imports, hierarchy and scores", seconds(whole), f"bare imports {seconds(bare)}"),
        Claim("  whole process", seconds(process), f"bare imports {seconds(bare)}"),
    ]


# Bootstrap


def bootstrap(documents: int, labels: int, resamples: int) -> list[Claim]:
    """Measure intervals, of a mean over documents beside the obvious loop, and of a mean over labels."""
    truth, predicted = random_sets(documents, labels)
    h = Hierarchy.flat(f"label {label}" for label in range(labels))
    result = evaluate(truth, predicted, hierarchy=h, metrics=["hf1", "macro_f1"])
    values = result.documents["hf1"]

    def loop() -> None:
        rng = np.random.default_rng(SEED)
        means = [values[rng.integers(0, documents, documents)].mean() for _ in range(resamples)]
        np.quantile(means, [0.025, 0.975])

    result.interval("hf1", resamples=2)
    ours, _, peer, _ = taking_turns(3, partial(result.interval, "hf1", resamples=resamples), loop)
    macro, _ = best_of(2, partial(result.interval, "macro_f1", resamples=resamples))
    return [
        Claim(
            f"hF1, {resamples:,} resamples of {documents:,}",
            seconds(ours),
            f"numpy loop {seconds(peer)}",
            peer / ours,
            "< 10 s",
            ours < 10,
        ),
        Claim(f"  macro F1 of {labels:,} labels", seconds(macro), required="< 10 s", kept=macro < 10),
    ]


def main() -> int:
    """Measure all, print the table, and return the exit code."""
    parser = argparse.ArgumentParser(description="Measure the metrics against their peers.")
    parser.add_argument("--quick", action="store_true", help="a tenth of the sizes; always exits with 0")
    parser.add_argument(
        "--later", action="store_true", help="only distances and whole rankings beside hF1 and its area"
    )
    options = parser.parse_args()
    if options.later:
        report("Metrics beside hF1 and hF1-AUC", later_metrics(10_000, 3_561))
        return 0
    quick = options.quick
    part = 10 if quick else 1
    started = time.perf_counter()
    claims = [
        *curves(2003 // part, 1186, 2 if quick else 10),
        *set_metrics(100_000 // part, 10_000 // part),
        *flat_metrics(100_000 // part, 10_000 // part),
        *later_metrics(10_000 // part, 3_561),
        *contrast(100 // part, 10_000 // part),
        *k_best(100_000 // part, 1_000_000 // part),
        *first_call(),
        *bootstrap(100_000 // part, 1_000, 1_000 // part),
    ]
    kept = report("The metrics against their peers", claims)
    print(f"{time.perf_counter() - started:.0f} s in all")
    return 0 if kept or quick else 1


if __name__ == "__main__":
    sys.exit(main())
