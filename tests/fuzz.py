"""Mutants of model folders, score files and tuned rules, past all checksums: what a hostile or broken file may hold."""

import hashlib
import json
import warnings
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from treelabel.models import Model, make_model
from treelabel.models.check import CASES
from treelabel.rules import decide
from treelabel.scores import Scores

TEXTS = ["small terrier barks digs", "", "sweet cake baked word3", "日本語 cat", "cat meows softly " * 50]

LINEAR = {
    "nodes": ("leaf", "path", "many", "DAG"),
    "leaves": ("leaf", "path", "many", "DAG"),
    "conditional_softmax": ("leaf", "path"),
    "conditional_sigmoid": ("leaf", "many", "DAG"),
}
OTHERS: dict[str, tuple[str, dict[str, Any], tuple[str, ...]]] = {
    "both": ("linear", {"encoder": "words", "n_features": 4096}, ("leaf", "many")),
    "embedded": ("linear", {"encoder": "words", "tfidf": False}, ("path",)),
    "bag": ("bag", {"vector_size": 8, "epochs": 2, "n_features": 4096}, ("leaf", "path", "many", "DAG")),
    "bag leaves": ("bag", {"vector_size": 8, "epochs": 2, "n_features": 4096, "loss": "leaf_softmax"}, ("path",)),
    "bag rare": (
        "bag",
        {"vector_size": 8, "epochs": 2, "n_features": 4096, "loss": "conditional_softmax_la"},
        ("leaf",),
    ),
    "prototype": ("prototype", {"encoder": "words"}, ("leaf", "path", "many", "DAG")),
    "tuned_prototype": ("tuned_prototype", {"encoder": "words"}, ("leaf",)),
    "memory": ("memory", {}, ("leaf", "many")),
    "extreme": ("extreme", {"leaf_size": 2, "n_trees": 2}, ("leaf", "many", "DAG")),
    "svm": ("svm", {}, ("leaf",)),
    "memory embedded": ("memory", {"encoder": "words"}, ("path", "many")),
    "lexical": ("lexical", {}, ("leaf", "many", "DAG")),
    "stack": (
        "stack",
        {"estimators": ("linear", "prototype", "nothing"), "encoder": "words", "cv": 2},
        ("leaf", "many"),
    ),
    "zero_shot": ("zero_shot", {}, ("leaf", "path")),
    "zero_shot embedded": ("zero_shot", {"encoder": "words"}, ("leaf",)),
    "description_match": ("description_match", {}, ("leaf",)),
    "svm_descriptions": ("svm_descriptions", {}, ("leaf",)),
    "svm_codes": ("svm_codes", {}, ("many",)),
    "most_frequent": ("most_frequent", {}, ("leaf", "DAG")),
    "nothing": ("nothing", {}, ("leaf",)),
    "neural": ("neural", {"encoder": "words", "train": "head", "epochs": 2}, ("leaf",)),
    "neural wide": (
        "neural",
        {"encoder": "words", "train": "head", "epochs": 2, "tfidf": True, "lsa_components": 4, "hidden_size": 3},
        ("many",),
    ),
    "hitin": ("hitin", {"encoder": "words", "mode": "head", "epochs": 1, "tree_size": 4}, ("leaf",)),
    "hgclr": ("hgclr", {"encoder": "words", "mode": "head", "epochs": 1}, ("many",)),
    "hbgl": ("hbgl", {"encoder": "words", "mode": "head", "epochs": 1, "global_steps": 1}, ("leaf",)),
    "aplc_xlnet": ("aplc_xlnet", {"encoder": "words", "mode": "head", "epochs": 1, "hidden_size": 4}, ("path",)),
    "x_transformer": ("x_transformer", {"encoder": "words", "mode": "head", "epochs": 1}, ("leaf", "many")),
    "attention_xml": (
        "attention_xml",
        {"encoder": "words", "epochs": 1, "max_flat_labels": 2, "cluster_size": 2, "lstm_size": 4, "mlp_size": 4},
        ("leaf",),
    ),
    "light_xml": ("light_xml", {"encoder": "words", "epochs": 1, "max_flat_labels": 2, "cluster_size": 2}, ("many",)),
}


def save_models(folder: Path) -> list[Path]:
    """Save small models of every kind; an encoder must be known by the name of "words"."""
    saved = []
    wanted = {f"linear {head}": ("linear", {"head": head, "n_features": 4096}, kinds) for head, kinds in LINEAR.items()}
    for name, (model, settings, kinds) in {**wanted, **OTHERS}.items():
        for kind in kinds:
            case, target = CASES[kind], folder / f"{name} {kind}"
            made: Model = make_model(model, **settings)
            made.fit(case.texts, case.labels, hierarchy=case.hierarchy).save(target)
            saved.append(target)
    return saved


# Arrays

EXTREMES = (-1, 0, 1, 7, -(2**31), 2**31 - 1, 2**31, 2**62, 10**8, 0.5, -0.5, 1e30, 3e38, np.nan, np.inf, -np.inf)
TYPES = ("int8", "uint32", "int32", "int64", ">i4", "float16", "float32", "float64", ">f4", "bool", "U3", "complex64")


def cast(array: Any, dtype: Any) -> Any:
    """Bring an array to another type, whatever becomes of its numbers."""
    with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
        return array.astype(dtype)


def changed_value(array: Any, rng: np.random.Generator) -> Any:
    found = array.copy()
    if found.size:
        at = int(rng.integers(found.size)) if rng.random() < 0.5 else int(rng.choice([0, found.size - 1]))
        found.flat[at] = cast(np.array(EXTREMES[rng.integers(len(EXTREMES))]), found.dtype)
    return found


def all_of_one(array: Any, rng: np.random.Generator) -> Any:
    return np.full_like(array, cast(np.array(EXTREMES[rng.integers(len(EXTREMES))]), array.dtype))


def shifted(array: Any, rng: np.random.Generator) -> Any:
    return array + cast(np.array(rng.choice([-2, -1, 1, 2, 1000])), array.dtype) if array.dtype.kind != "U" else array


def longer(array: Any, rng: np.random.Generator) -> Any:
    return np.concatenate([array, array[-1:] if len(array) else np.zeros(1, array.dtype)]) if array.ndim == 1 else array


CHANGES: tuple[Callable[[Any, np.random.Generator], Any], ...] = (
    changed_value,
    changed_value,
    changed_value,
    changed_value,
    all_of_one,
    shifted,
    longer,
    lambda array, rng: array[:-1],
    lambda array, rng: array[1:],
    lambda array, rng: array[:0],
    lambda array, rng: array[::-1].copy(),
    lambda array, rng: np.sort(array, axis=0),
    lambda array, rng: rng.permutation(array),
    lambda array, rng: array[None],
    lambda array, rng: np.array(0, array.dtype),
    lambda array, rng: array.T if array.ndim > 1 else array[:, None],
    lambda array, rng: np.asfortranarray(array),
    lambda array, rng: cast(array, TYPES[rng.integers(len(TYPES))]),
    lambda array, rng: np.concatenate([array, array]),
)


def mutate_arrays(arrays: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """Change one to three things in arrays."""
    found = dict(arrays)
    for _ in range(1 + int(rng.random() < 0.4) + int(rng.random() < 0.2)):
        names = sorted(found)
        if not names:
            return {"extra": np.zeros(2)}
        one, two = names[rng.integers(len(names))], names[rng.integers(len(names))]
        choice = rng.random()
        if choice < 0.85:
            try:
                found[one] = CHANGES[rng.integers(len(CHANGES))](found[one], rng)
            except (ValueError, TypeError, IndexError):
                continue
        elif choice < 0.92:
            found[one], found[two] = found[two], found[one]
        elif choice < 0.96:
            del found[one]
        else:
            found[f"{one}x"] = found[one]
    return found


# JSON

VALUES: tuple[Any, ...] = (
    *(None, True, False, -1, 0, 1, 2, 31, 32, 64, 10**6, 2**31, 2**63, 2**70, 0.5, -0.5, 1e-300, 1e30, 1e300, "", "x"),
    *("words", "nodes", "leaf", "many", "path", "bce", "cls", "NaN", "x" * 5000, "\ud800", "../x", [], [1], [1, 2]),
    *([2, 1], [0, 10**9], [[]], ["x"], {}, {"a": 1}, {"name": "words"}, {"words": 2, "bits": 99}),
    *(float("nan"), float("inf"), -float("inf")),
)


def mutate_json(value: Any, rng: np.random.Generator) -> Any:
    """Replace, remove, add or swap something somewhere in a JSON value; what it was is left as it was."""
    copied = json.loads(json.dumps(value))
    places = list(_places(copied))
    for _ in range(1 + int(rng.random() < 0.3)):
        holder, key = places[rng.integers(len(places))]
        other, other_key = places[rng.integers(len(places))]
        try:
            choice = rng.random()
            if choice < 0.7:
                holder[key] = deepcopy(VALUES[rng.integers(len(VALUES))])
            elif choice < 0.8:
                del holder[key]
            elif choice < 0.9:
                holder[key] = deepcopy(other[other_key])
            elif isinstance(holder, dict):
                holder[f"{key}x"] = deepcopy(holder[key])
            else:
                holder.append(deepcopy(holder[key]))
        except (KeyError, IndexError):
            continue
    return copied


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    for key in list(value) if isinstance(value, dict) else range(len(value)):
        if key in ("sha256", "kind", "version", "fingerprint", "treelabel_hierarchy"):
            continue
        yield value, key
        if isinstance(value[key], dict | list):
            yield from _places(value[key])


# Folders


def dumps(value: Any) -> bytes:
    """Write JSON as foreign programs might: NaN, Infinity, halves of characters."""
    return json.dumps(value).encode("utf-8", "surrogatepass")


def mutate_folder(source: Path, target: Path, rng: np.random.Generator) -> str:
    """Write a mutant of a model folder, with checksums of what it holds; say what was changed."""
    target.mkdir(exist_ok=True)
    for old in target.iterdir():
        old.unlink()
    files = {file.name: file.read_bytes() for file in source.iterdir()}
    described = json.loads(files.pop("model.json"))
    choice = rng.random()
    what = "arrays" if choice < 0.65 else "json" if choice < 0.9 else "hierarchy" if choice < 0.95 else "bytes"
    if what == "json":
        described = mutate_json(described, rng)
    elif what == "hierarchy":
        files["hierarchy.json"] = dumps(mutate_json(json.loads(files["hierarchy.json"]), rng))
    elif what == "bytes":
        name = sorted(files)[rng.integers(len(files))]
        files[name] = flipped(files[name], rng)
    for name, content in files.items():
        (target / name).write_bytes(content)
    if what == "arrays":
        with np.load(source / "arrays.npz") as stored:
            arrays = mutate_arrays(dict(stored), rng)
        np.savez(target / "arrays.npz", **arrays)
    if isinstance(described, dict):
        described["sha256"] = {
            file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(target.iterdir())
        }
    (target / "model.json").write_bytes(dumps(described))
    return f"{source.name}: {what}"


def flipped(content: bytes, rng: np.random.Generator) -> bytes:
    """Cut bytes short, or change some."""
    if rng.random() < 0.4:
        return content[: int(rng.integers(len(content) + 1))]
    found = bytearray(content)
    for at in rng.integers(len(found), size=int(rng.integers(1, 5))):
        found[at] = int(rng.integers(256))
    return bytes(found)


# Score files


def mutate_npz(source: Path, target: Path, rng: np.random.Generator) -> str:
    """Write a mutant of a score file: its arrays, or the JSON of its ids and its hierarchy."""
    with np.load(source) as stored:
        arrays = dict(stored)
    what = "arrays"
    if rng.random() < 0.2:
        what = str(rng.choice(["ids", "hierarchy"]))
        text = json.loads(bytes(arrays[what])) or ["a", "b"]
        arrays[what] = np.frombuffer(dumps(mutate_json(text, rng)), np.uint8)
    else:
        arrays = mutate_arrays(arrays, rng)
    np.savez(target, **arrays)
    return f"{source.name}: {what}"


def mutate_rows(rows: list[Any], rng: np.random.Generator) -> list[Any]:
    """Change the list of a document, or its id, so that its type stays what it is."""
    found = deepcopy(rows)
    at = int(rng.integers(len(found)))
    if not isinstance(found[at], list) or rng.random() < 0.2:
        found[at] = (None, "", [])[rng.integers(3)]
        return found
    numbers = (None, -1, 0, 1, 2, 10**6, 2**31 - 1, -(2**31))
    row, value = found[at], numbers[rng.integers(len(numbers))]
    if row and rng.random() < 0.6:
        row[int(rng.integers(len(row)))] = value
    elif rng.random() < 0.5:
        row.append(value)
    else:
        found[at] = row[:-1] if rng.random() < 0.5 else row * 1000
    return found


def mutate_parquet(source: Path, target: Path, rng: np.random.Generator) -> str:
    """Write a mutant of a score file: values of its columns, and the types that they have."""
    table = pq.read_table(source)
    columns = {name: table.column(name).to_pylist() for name in table.column_names}
    name = table.column_names[rng.integers(len(columns))]
    columns[name] = mutate_json(columns[name], rng) if rng.random() < 0.4 else mutate_rows(columns[name], rng)
    metadata = dict(table.schema.metadata)
    if rng.random() < 0.1:
        metadata[b"treelabel.scores"] = rng.choice([b"x", b"2", b"", b"1" * 5000])
    fields = [pa.field(each.name, each.type, each.name != "id" or rng.random() < 0.5) for each in table.schema]
    other = (pa.string(), pa.int64(), pa.list_(pa.float64()), pa.list_(pa.int64()), pa.list_(pa.list_(pa.int32())))
    for _ in range(20):
        try:
            made = pa.table([pa.array(columns[each.name], each.type) for each in fields], pa.schema(fields, metadata))
            pq.write_table(made, target)
        except (pa.ArrowException, TypeError, OverflowError, ValueError):
            at = int(rng.integers(len(fields)))
            fields[at] = fields[at].with_type(other[rng.integers(len(other))])
            continue
        return f"{source.name}: {name}"
    target.write_bytes(flipped(source.read_bytes(), rng))
    return f"{source.name}: bytes"


def use_scores(scores: Scores) -> None:
    """Let compiled loops have scores."""
    scores.coherent().top_k(2).best(scores.hierarchy.is_leaf)
    scores.coherent("min")
    for rule in ("threshold", "best_leaf", "optimal:hf1", "optimal:samples_f1", "top_k"):
        decide(scores.coherent(), rule)


# Tuned rules

TUNED: dict[str, dict[str, Any]] = {
    "threshold": {"t": [0.5, 0.25, 0.125]},
    "top_k": {"k": 2, "leaves": True},
    "back_off": {"t": 0.5, "unknown": 0.1},
    "optimal:icm": {"alpha": 2.0, "beta": 3.0, "closed": False},
    "optimal:hf_beta": {"beta": 2.0, "count_root": False},
    "optimal:samples_f1": {"beta": 1.0, "empty": 0.5},
    "beam": {"width": 3},
    "top_down": {"stop": 0.1},
    "optimal:macro_f1@k": {"k": 2, "at_most": True, "seed": 3},
    "optimal:cost": {"similarity": "wu_palmer"},
    "optimal:info_hf1": {"beta": 1.0},
    "optimal:binned_macro_f1@k": {"k": 1, "bin_edges": [1, 10]},
}


def mutate_tuned(rule: str, fingerprint: str, target: Path, rng: np.random.Generator) -> str:
    """Write a mutant of a tuned rule."""
    stored = {"kind": "treelabel tuned rule", "version": 1, "rule": rule, "settings": TUNED[rule]}
    target.write_bytes(dumps(mutate_json({**stored, "fingerprint": fingerprint, "measured": {"f1": 0.5}}, rng)))
    return f"{rule}: {target.read_text()[:300]}"
