"""A small data set and a spec of cheap systems, for tests of studies."""

from pathlib import Path

import numpy as np

WORDS = {"dog": "bark paw tail", "cat": "meow paw whisker", "oak": "leaf bark root", "fern": "leaf spore frond"}
PATHS = {"dog": "animal > dog", "cat": "animal > cat", "oak": "plant > oak", "fern": "plant > fern"}

SPEC = """
title = "Pets and plants"
seeds = 2
time_limit = "100s"

[data.small]
train = "train.csv"
test = "test.csv"

[systems.linear]
title = "linear"
model = "linear"
params = {ngram_range = [1, 1], char_ngram_range = [3, 3], head = "nodes"}

[systems.frequent]
model = "most_frequent"
seeds = 1

[[judge]]
rule = "best_leaf"
metrics = ["leaf_accuracy", "hf1_auc"]

[[judge]]
rule = "threshold@0.5"
metrics = ["hf1", "macro_f1"]
"""


def write_data(folder: Path, documents: int = 80) -> None:
    """Write training and test documents: words of their label, and some of others."""
    rng = np.random.default_rng(0)
    names = list(WORDS)
    for part, count in (("train", documents), ("test", documents // 2)):
        lines = ["id,text,category"]
        for at in range(count):
            name = names[at % len(names)]
            words = [*WORDS[name].split(), *rng.choice(" ".join(WORDS.values()).split(), 3)]
            lines.append(f"{part}{at},{' '.join(rng.permutation(words))},{PATHS[name]}")
        (folder / f"{part}.csv").write_text("\n".join(lines) + "\n")


def write_study(folder: Path, text: str = SPEC) -> Path:
    """Write the data and a spec beside them; return the spec's file."""
    write_data(folder)
    file = folder / "small.toml"
    file.write_text(text)
    return file
