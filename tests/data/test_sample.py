"""The embedded sample: what it holds, that it is what tools/make_sample.py made, and that it can be learned."""

import hashlib

import numpy as np
import pytest

from treelabel import Hierarchy, load_sample, split
from treelabel.data.sample import SAMPLE_FOLDER


def test_the_sample_has_its_counts() -> None:
    described = load_sample().describe()
    assert (described.documents, described.nodes, described.leaves) == (8770, 353, 273)
    assert described.nodes_per_level == [10, 51, 167, 79, 38, 5, 3]
    assert described.is_tree


@pytest.mark.parametrize(
    ("name", "digest"),
    [
        ("glosses.jsonl", "0945b8999d21d9d684f263d95676df5ed11bf719d89499c17fe24af61696d071"),
        ("taxonomy.tsv", "bc8da4d8274d667a6bf7537d159d5127c2421c379d0eb5b2f00abb882fcf01cd"),
    ],
)
def test_the_files_are_those_the_script_made(name: str, digest: str) -> None:
    assert hashlib.sha256((SAMPLE_FOLDER / name).read_bytes()).hexdigest() == digest


def test_the_files_stay_small() -> None:
    assert sum(file.stat().st_size for file in SAMPLE_FOLDER.iterdir()) < 1.3e6


def test_wordnet_s_licence_lies_beside_the_data() -> None:
    text = (SAMPLE_FOLDER / "LICENSE.txt").read_text(encoding="utf-8")
    assert "WordNet 3.0 Copyright 2006 by Princeton University. All rights reserved." in text
    assert "Permission to use, copy, modify and distribute this software and database" in text
    assert "Title to\ncopyright in this software, database" in text


def test_every_document_is_on_a_single_path_to_a_leaf() -> None:
    described = load_sample().describe()
    assert described.regime == "single_path"
    assert described.regime_share == {"single_path": 1, "partial_path": 0, "multi_path": 0}
    assert described.given_labels_per_document == 1
    assert described.unlabelled == 0


def test_nothing_is_empty_double_or_unused() -> None:
    described = load_sample().describe()
    assert (described.empty_texts, described.duplicate_texts, described.duplicate_ids) == (0, 0, 0)
    assert described.labels_unseen == 0


def test_leaves_end_at_many_depths_and_are_of_very_different_sizes() -> None:
    sample = load_sample()
    h: Hierarchy = sample.hierarchy
    assert set(h.depth[h.leaves].tolist()) == {2, 3, 4, 5, 6, 7}
    sizes = sample.frequencies[h.leaves]
    assert [int(sizes.min()), float(np.median(sizes)), int(sizes.max())] == [5, 19, 315]
    assert h.has_unique_names


def test_the_sample_is_read_once() -> None:
    assert load_sample() is load_sample()


@pytest.mark.slow
def test_a_linear_model_learns_far_more_than_the_majority_class() -> None:
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.svm import LinearSVC

    parts = split(load_sample(), {"train": 0.8, "test": 0.2})
    train, test = parts["train"], parts["test"]
    leaf = {name: part.labels.indices for name, part in parts.items()}
    vectorizer = TfidfVectorizer(sublinear_tf=True, ngram_range=(1, 2))
    model = LinearSVC(random_state=0).fit(vectorizer.fit_transform(train.texts), leaf["train"])
    accuracy = np.mean(model.predict(vectorizer.transform(test.texts)) == leaf["test"])
    majority = np.mean(leaf["test"] == np.bincount(leaf["train"]).argmax())
    assert majority < 0.06
    assert accuracy > 0.7
