"""Neural models in the papers' columns: every loss over frozen embeddings, our own models, and fine-tuning.

    python benchmarks/neural.py                              # all, an hour on two cores; exit 1 if a claim fails
    python benchmarks/neural.py --only own --sets hwv        # our own models on one set
    python benchmarks/neural.py --only a --losses bce,conditional_softmax --seeds 5
    python benchmarks/neural.py --minutes 0 --markdown       # without fine-tuning, tables in Markdown too
    python benchmarks/neural.py --documents 300 --seeds 2    # a glance; claims mean nothing then

Sets are read as benchmarks/fast_models.py reads them: hwv learns from the split val, dbpedia5k is divided, the DAG
mwpd_gpc is unfolded into a tree, in which a document has one path, so that all losses take it. Test labels are looked
at to judge, and for nothing else. The encoder is MiniLM, at 256 tokens; embeddings are kept on disk by the package, so
that the first run takes ten minutes more.

(a) Outputs over frozen embeddings, alone and beside reduced tf-idf (`neural` with tfidf=True; its vectors are made once
a set and seed and shared by all losses, which a check on a few texts compares with the model's own), default settings.
(own) The models of our own. The fast ones see tf-idf or words; "best frozen" is the best of the others with MiniLM.
(b) Fine-tuning within --minutes, one seed: the papers' recipe (AdamW, 2e-5, batch 16, warm-up and linear decay, the
best epoch by a tenth that is held out) but for the rate of outputs (1e-3), for as many epochs as the time allows, which
a few steps tell beforehand. This is MiniLM with few epochs and texts cut short, not the papers' BERT with 20.

Hamming (in thousandths), micro-F1, macro-F1 and the shortest path (edges) are of labels with a score of at least 0.5,
leaf accuracy is of the leaf with the largest score, hF1-AUC is of scores. Numbers are means over seeds ± the reach of a
95% interval. Progress goes to standard error; after Ctrl-C what there is gets printed.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
os.environ.setdefault("HF_HUB_OFFLINE", "1")

from benchmarks import neural_sets
from benchmarks.fast_models import DATA, chosen
from benchmarks.measure import Claim, report
from benchmarks.neural_sets import CORES, Outcome, Run, workers

from treelabel import TreelabelError
from treelabel.evaluation.statistics import seed_interval
from treelabel.losses.registry import LOSSES

SETS = ("hwv", "mwpd_gpc", "dbpedia5k", "clinc150")
MINILM, INT8 = "minilm", "minilm(runtime=int8)"
STATIC = ("potion", "wordllama")
INT8_SETS = ("hwv", "clinc150")
PARTS = {"a": "frozen MiniLM and a linear layer", "own": "models of our own", "b": "fine-tuned MiniLM"}
# Title, and how many of the unit there are in 1.
TITLES = {
    "hamming": ("Hamming", 1000),
    "micro_f1": ("micro-F1", 100),
    "macro_f1": ("macro-F1", 100),
    "hf1_auc": ("hF1-AUC", 100),
    "leaf_accuracy": ("leaf accuracy", 100),
    "shortest_path": ("shortest path", 1),
}
# What is required.
BEST_ON_HWV, STATIC_ON_HWV, INT8_LOSS = 0.52, 0.46, 0.005
ADJUSTED = "conditional_softmax_la"


@dataclass(frozen=True)
class Own:
    """A model of our own; `encoder` is None for fast ones."""

    title: str
    model: str
    encoder: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    sets: Sequence[str] = SETS

    def runs(self, data: str, seeds: int, documents: int | None) -> list[Run]:
        """A run for every seed."""
        settings = {**self.settings, **({} if self.encoder is None else {"encoder": self.encoder})}
        return [Run(data, self.title, self.model, settings, seed, documents) for seed in range(seeds)]


FAST = (Own("linear, tf-idf", "linear"), Own("bag", "bag"))
FROZEN = (
    Own("linear, minilm", "linear", MINILM, {"tfidf": False}),
    Own("linear, tf-idf + minilm", "linear", MINILM),
    Own("prototype, minilm", "prototype", MINILM),
    Own("stack, minilm", "stack", MINILM),
)
# The same but for int8: those whose scores depend on embeddings in different ways.
SMALL = tuple(
    replace(own, title=own.title.replace(MINILM, "minilm in int8"), encoder=INT8, sets=INT8_SETS) for own in FROZEN
)
OF_STATIC = tuple(Own(f"prototype, {name}", "prototype", name) for name in STATIC)
OWN = (*FAST, *FROZEN, *SMALL, *OF_STATIC)


@dataclass(frozen=True)
class Tuning:
    """A fine-tuning run: its settings, documents to learn from, and how much of the time it gets beside others."""

    data: str
    title: str
    settings: Mapping[str, Any]
    learn: int | None
    weight: float


# The encoder learns at the papers' rate, outputs faster: after so few steps from random weights they would hardly have
# moved (on documents held out of clinc150's training, two epochs of 1,000: a log loss of 1.9 instead of 4.0).
ENCODER_RATES = {"all": 2e-5, "lora": 2e-4}
OUTPUT_RATE = 1e-3
LENGTHS = {"hwv": 64, "clinc150": 32}
LEARN = {"hwv": None, "clinc150": 1500}
WEIGHTS = {"hwv": 2.0, "clinc150": 1.0}
TUNED_LOSSES = ("bce", "conditional_softmax", ADJUSTED, "leaf_softmax")
TUNED = (
    *(
        Tuning(data, loss, {"encoder": MINILM, "train": "all", "loss": loss}, LEARN[data], WEIGHTS[data])
        for data in LENGTHS
        for loss in TUNED_LOSSES
    ),
    Tuning("clinc150", "LoRA, conditional_softmax", {"encoder": MINILM, "train": "lora"}, LEARN["clinc150"], 1.0),
    Tuning("clinc150", "scratch, conditional_softmax", {"encoder": "scratch", "train": "all"}, LEARN["clinc150"], 0.5),
)
# What is left of the time for the rest: loading, judging epochs, measuring.
LEARNING_SHARE = 0.85
MOST_EPOCHS = 20
# Scoring is about so many times as fast as learning.
SCORING = 8

Lines = dict[str, list[Outcome]]
# Part and set, then the lines of their table.
Found = dict[tuple[str, str], Lines]


def say(text: str) -> None:
    """Tell how it goes."""
    print(text, file=sys.stderr, flush=True)


# Running


def collect(pool: ProcessPoolExecutor, runs: Iterable[Run], lines: Lines) -> None:
    """Do runs, and add what they give to the lines of a table as it comes."""
    started = list(runs)
    for run, outcome in zip(started, pool.map(neural_sets.do, started), strict=True):
        lines.setdefault(run.title, []).append(outcome)
        told = outcome.problem or f"leaf accuracy {100 * outcome.values['leaf_accuracy']:.1f}, {outcome.took:.1f} s"
        say(f"  {run.data}: {run.title}, seed {run.seed}: {told}")


def embed(specs: Sequence[str], data: str, documents: int | None) -> None:
    """Have the embeddings of a set made, if they are not there yet, with all cores."""
    for spec in specs:
        begun = time.perf_counter()
        try:
            neural_sets.embedded(spec, neural_sets.parts_of(data, documents))
        except TreelabelError as error:
            say(f"  {data}: {error}")
            continue
        say(f"  {data}: embeddings by {spec} after {time.perf_counter() - begun:.1f} s")


def frozen_losses(options: argparse.Namespace, found: Found) -> None:
    """Part (a)."""
    neural_sets.require_same_vectors(MINILM)
    for data in options.sets:
        lines = found.setdefault(("a", data), {})
        embed([MINILM], data, options.documents)
        with tempfile.TemporaryDirectory(prefix="treelabel-bench-") as temporary:
            files = shared_vectors(data, Path(temporary), options)
            with workers(CORES) as pool:
                for title, seeded in files.items():
                    runs = [
                        Run(data, f"{loss}{title}", "neural", {"loss": loss}, seed, options.documents, None, file)
                        for loss in options.losses
                        for seed, file in enumerate(seeded)
                    ]
                    collect(pool, runs, lines)


def shared_vectors(data: str, folder: Path, options: argparse.Namespace) -> dict[str, list[Path]]:
    """Write the vectors that all losses learn from: files of embeddings, and of these beside tf-idf, one a seed."""
    train, test = neural_sets.parts_of(data, options.documents)
    plain = neural_sets.embedded(MINILM, (train, test))
    alone = folder / "alone.npy"
    np.save(alone, np.concatenate(plain))
    files = {"": [alone] * options.seeds, " + tf-idf": [folder / f"{seed}.npy" for seed in range(options.seeds)]}
    for seed, file in enumerate(files[" + tf-idf"]):
        np.save(file, neural_sets.beside_tfidf(plain, train.texts, [test.texts], seed))
    return files


def own_models(options: argparse.Namespace, found: Found) -> None:
    """The models of our own."""
    with workers(1) as pool:
        for data in options.sets:
            lines = found.setdefault(("own", data), {})
            mine = [own for own in OWN if data in own.sets]
            embed(list(dict.fromkeys(own.encoder for own in mine if own.encoder)), data, options.documents)
            for own in mine:
                collect(pool, own.runs(data, options.seeds, options.documents), lines)


def fine_tuning(options: argparse.Namespace, found: Found) -> None:
    """Part (b): measure how fast each kind is, then let all learn for their share of the time."""
    tuned = [each for each in TUNED if each.data in options.sets]
    speeds: dict[tuple[str, str], float] = {}
    with workers(1) as pool:
        for each in tuned:
            lines = found.setdefault(("b", each.data), {})
            run = Run(each.data, each.title, "neural", settings_of(each), 0, options.documents, each.learn)
            kind = each.data, str((each.settings["encoder"], each.settings.get("train")))
            if kind not in speeds:
                speeds[kind] = pool.submit(neural_sets.speed_of, run).result()
                say(f"  {each.data}: {each.title} learns {speeds[kind]:.0f} documents/s")
            seconds = 60 * options.minutes * each.weight / sum(other.weight for other in tuned)
            collect(pool, [timed(run, seconds, speeds[kind])], lines)


def settings_of(each: Tuning) -> dict[str, Any]:
    """The settings of a fine-tuning run; from random weights, all learns at the model's own rate."""
    usual: dict[str, Any] = {"loss": "conditional_softmax", "max_length": LENGTHS[each.data]}
    if each.settings["encoder"] != "scratch":
        rate = ENCODER_RATES[each.settings["train"]]
        usual["learning_rates"] = {"encoder": rate, "hidden": OUTPUT_RATE, "outputs": OUTPUT_RATE}
    return {**usual, **each.settings}


def timed(run: Run, seconds: float, speed: float) -> Run:
    """Give a run as many epochs as its time allows."""
    train, test = neural_sets.parts_of(run.data, run.documents)
    documents = min(len(train), run.learn or len(train))
    learning = seconds - len(test) / (SCORING * speed)
    epochs = int(np.clip(LEARNING_SHARE * learning * speed / documents, 1, MOST_EPOCHS))
    return replace(run, settings={**run.settings, "epochs": epochs}, seconds=max(1.0, learning))


# What is printed


def mean(lines: Lines, title: str, column: str) -> float:
    """The mean over seeds; of what has failed or is not there, no number."""
    values = [outcome.values[column] for outcome in lines.get(title, []) if outcome.values]
    return float(np.mean(values)) if values else float("nan")


def number(outcomes: Sequence[Outcome], column: str) -> str:
    """Write a mean over seeds and the reach of its interval."""
    size = TITLES[column][1]
    interval = seed_interval([size * outcome.values[column] for outcome in outcomes if outcome.values])
    digits = 1 if size == 100 else 2
    reach = interval.high - interval.value
    return f"{interval.value:.{digits}f}" + ("" if np.isnan(reach) else f" ± {reach:.{digits}f}")


def row_of(title: str, outcomes: Sequence[Outcome]) -> list[str]:
    """One line of a table."""
    problem = next((outcome.problem for outcome in outcomes if outcome.problem), "")
    if problem:
        return [f"{title}: {problem.partition(';')[0]}", *[""] * (len(TITLES) + 1)]
    took = float(np.mean([outcome.took for outcome in outcomes]))
    note = next((f" ({outcome.note})" for outcome in outcomes if outcome.note), "")
    return [title + note, *(number(outcomes, column) for column in TITLES), f"{took:.1f}"]


def print_lines(title: str, lines: Lines, markdown: bool) -> None:
    """Print a table."""
    heads = ["", *(name for name, _ in TITLES.values()), "s a run"]
    rows = [row_of(name, outcomes) for name, outcomes in lines.items()]
    table = Table(title=title, title_justify="left")
    for at, head in enumerate(heads):
        table.add_column(head, justify="right" if at else "left", overflow="fold")
    for row in rows:
        table.add_row(*row)
    Console(width=150 if not sys.stdout.isatty() else None).print(table)
    if markdown:
        print(f"\n**{title}**\n")
        for row in (heads, ["---", *["---:"] * (len(heads) - 1)], *rows):
            print(f"| {' | '.join(row)} |")
    print(flush=True)


# Claims


def claims_of(found: Found) -> list[Claim]:
    """All that is required of the parts that have been measured."""
    claims: list[Claim] = []
    for (part, data), lines in found.items():
        if part == "own" and lines:
            claims += [*frozen_claims(data, lines), *int8_claims(data, lines)]
            claims += static_claims(lines) if data == "hwv" else []
        if part == "a" and data == "hwv":
            claims += adjusted_claims(lines)
    return claims


def best_of(lines: Lines, titles: Iterable[str], column: str) -> tuple[str, float]:
    """The line with the largest mean; without any, no name."""
    known = {title: mean(lines, title, column) for title in titles}
    known = {title: value for title, value in known.items() if not np.isnan(value)}
    best = max(known, key=lambda title: known[title], default="")
    return best, known.get(best, float("nan"))


def frozen_claims(data: str, lines: Lines) -> list[Claim]:
    """The best frozen model against a number, or against the best fast one."""
    best, value = best_of(lines, [own.title for own in FROZEN], "leaf_accuracy")
    fast, reference = best_of(lines, [own.title for own in FAST], "leaf_accuracy")
    if not best or not fast:
        return []
    what, peer = f"{data}: best frozen ({best}), leaf accuracy", f"{fast} {100 * reference:.1f}"
    required, least = (f">= {100 * BEST_ON_HWV:g}", BEST_ON_HWV) if data == "hwv" else (">= fast", reference)
    return [Claim(what, f"{100 * value:.1f}", peer, None, required, value >= least)]


def int8_claims(data: str, lines: Lines) -> list[Claim]:
    """What int8 loses with the same model."""
    claims = []
    for exact, small in zip(FROZEN, SMALL, strict=True):
        value, other = (mean(lines, own.title, "leaf_accuracy") for own in (small, exact))
        if not np.isnan(value - other):
            what, peer = f"{data}: {small.title}, leaf accuracy", f"float32 {100 * other:.2f}"
            required = f">= float32 - {100 * INT8_LOSS:g}"
            claims.append(Claim(what, f"{100 * value:.2f}", peer, None, required, value >= other - INT8_LOSS))
    return claims


def static_claims(lines: Lines) -> list[Claim]:
    """The first static encoder that is there."""
    for own in OF_STATIC:
        value = mean(lines, own.title, "leaf_accuracy")
        if not np.isnan(value):
            required = f">= {100 * STATIC_ON_HWV:g}"
            what = f"hwv: {own.title}, leaf accuracy"
            return [Claim(what, f"{100 * value:.1f}", "", None, required, value >= STATIC_ON_HWV)]
    return []


def adjusted_claims(lines: Lines) -> list[Claim]:
    """By how much logit adjustment has the best macro-F1 among losses, or not: told, not required."""
    claims = []
    for beside in ("", " + tf-idf"):
        ours = lines.get(ADJUSTED + beside, [])
        others = [
            title for title in lines if title.endswith(" + tf-idf") == bool(beside) and title != ADJUSTED + beside
        ]
        best, value = best_of(lines, others, "macro_f1")
        if not ours or not best:
            continue
        pairs = zip(ours, lines[best], strict=False)
        gap = seed_interval([100 * (mine.values["macro_f1"] - its.values["macro_f1"]) for mine, its in pairs])
        what = f"hwv: {ADJUSTED}{beside}, macro-F1: {gap.value:+.1f} [{gap.low:+.1f}, {gap.high:+.1f}]"
        own = mean(lines, ADJUSTED + beside, "macro_f1")
        claims.append(Claim(what, f"{100 * own:.1f}", f"best other: {best} {100 * value:.1f}"))
    return claims


def verdicts(claims: Sequence[Claim]) -> list[str]:
    """Say of each requirement in a line whether it is kept."""
    return [
        f"{'OK' if claim.kept else 'FALLS SHORT'}: {claim.what} {claim.ours}, required {claim.required}"
        + (f" ({claim.peer})" if claim.peer else "")
        for claim in claims
        if claim.kept is not None
    ]


def read_options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Measure neural models in the papers' columns.")
    parser.add_argument("--sets", default=",".join(SETS), help="data sets, comma-separated")
    parser.add_argument("--losses", default=",".join(LOSSES), help="losses of part a, comma-separated")
    parser.add_argument("--seeds", type=int, default=3, help="seeds of frozen models")
    parser.add_argument("--minutes", type=float, default=20, help="time for fine-tuning; 0: none")
    parser.add_argument("--only", choices=PARTS, help="one part only")
    parser.add_argument("--documents", type=int, help="at most so many of each set's documents, to try the program")
    parser.add_argument("--markdown", action="store_true", help="print the tables in Markdown too")
    options = parser.parse_args()
    there = {name: (DATA / name).is_dir() for name in chosen(options.sets, dict.fromkeys(SETS))}
    for name in (name for name, is_there in there.items() if not is_there):
        print(f"{name}: not at {DATA}; set TREELABEL_DATA to the folder of the data sets")
    options.sets = [name for name, is_there in there.items() if is_there]
    options.losses = chosen(options.losses, LOSSES)
    return options


def main() -> int:
    """Measure all, print the tables, and return the exit code."""
    options = read_options()
    found: Found = {}
    works = {"a": frozen_losses, "own": own_models, "b": fine_tuning}
    parts = [part for part in PARTS if options.only in (None, part) and (part != "b" or options.minutes > 0)]
    complete, begun = True, time.perf_counter()
    try:
        for part in parts:
            started = time.perf_counter()
            works[part](options, found)
            say(f"{PARTS[part]}: {time.perf_counter() - started:.0f} s")
    except KeyboardInterrupt:
        complete = False
        print("stopped by Ctrl-C; this is what there is:\n")
    for (part, data), lines in found.items():
        cut = f", {LENGTHS[data]} tokens" if part == "b" else ""
        print_lines(f"{data}: {PARTS[part]}{cut}", lines, options.markdown)
    claims = claims_of(found)
    kept = not claims or report("Neural models", claims)
    print("\n".join(verdicts(claims)))
    print(f"{time.perf_counter() - begun:.0f} s in all")
    return 0 if kept and complete else 1


if __name__ == "__main__":
    sys.exit(main())
