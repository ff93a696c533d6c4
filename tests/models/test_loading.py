"""What comes from outside is checked once, before any compiled loop sees it: matrices, arrays, JSON, model folders."""

import hashlib
import json
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import sparse

from tests.helpers import Run
from treelabel import Dataset, Hierarchy, Scores, TreelabelError, load_model, make_model
from treelabel.core.array_schema import Array, Csr, Schema, indices
from treelabel.core.json_text import OUR_LIMITS, read_json
from treelabel.core.matrices import checked_csr, sound_csr
from treelabel.core.npz import open_npz
from treelabel.models.check import CASES, fit_case
from treelabel.rules import TunedRule
from treelabel.text import NgramShape

ONE = Hierarchy.flat(["A"])
DEEP = "[" * 100_000 + "]" * 100_000
LONG = "9" * 5_000

# Matrices

BROKEN: dict[str, tuple[tuple[Any, Any, Any], str]] = {
    "the last pointer is 0": (([], [], [0, 10**8, 0]), "row 1 ends at 0, before its start at 100000000"),
    "falling pointers": (([0.5, 0.5], [0, 0], [0, 3, 2]), "row 1 ends at 2, before its start at 3"),
    "pointers beyond the end": (([0.5], [0], [0, 1, 9]), "row pointers go from 0 to 9"),
    "pointers that begin late": (([0.5], [0], [1, 1, 1]), "row pointers go from 1 to 1"),
    "too few pointers": (([0.5], [0], [0, 1]), "2 row pointers for 2 rows"),
    "pointers that wrap round": (([], [], [0, -(2**63), 0]), "row 0 ends at -9223372036854775808"),
    "no pointers": (([], [], []), "0 row pointers for 2 rows"),
    "a column beyond the last": (([0.5], [1], [0, 1, 1]), "column 1 in row 0, but there are 1 columns"),
    "a column below 0": (([0.5], [-1], [0, 0, 1]), "column -1 in row 1"),
    "fewer values than columns": (([], [0], [0, 1, 1]), "1 column numbers and 0 values"),
    "columns that are no integers": (([0.5], [0.5], [0, 1, 1]), "indices of type float64"),
    "pointers in two dimensions": (([0.5], [0], [[0, 1, 1]]), r"indptr of type int64 and shape \(1, 3\)"),
    "text for values": ((["a"], [0], [0, 1, 1]), "values of type <U1"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_csr_matrix_is_refused(case: str) -> None:
    parts, message = BROKEN[case]
    with pytest.raises(TreelabelError, match=f"^scores: .*{message}"):
        checked_csr(tuple(np.array(part) for part in parts), (2, 1), "scores")  # type: ignore[arg-type]


def test_values_may_have_to_be_finite() -> None:
    parts = np.array([1.0, np.nan]), np.array([0, 1]), np.array([0, 2])
    assert np.isnan(checked_csr(parts, (1, 2), "m").toarray()[0, 1])
    with pytest.raises(TreelabelError, match="m: value 1 is nan, expected finite numbers"):
        checked_csr(parts, (1, 2), "m", finite=True)


def test_a_sound_matrix_stays_as_it_is() -> None:
    dense = np.random.default_rng(0).random((5, 7)) * (np.random.default_rng(1).random((5, 7)) > 0.5)
    for form in ("csr", "csc", "coo", "bsr", "dia", "lil", "dok"):
        given = sparse.csr_array(dense).asformat(form)
        assert np.array_equal(sound_csr(given, "m").toarray(), dense), form
    wide = checked_csr((np.ones(1), np.array([1], np.int64), np.array([0, 1], np.int64)), (1, 2), "m")
    assert wide.indices.dtype == wide.indptr.dtype == np.int32


def broken_matrix(form: str) -> Any:
    """A matrix that scipy has made, and whose numbers were changed afterwards."""
    matrix = sparse.csr_array(np.eye(5)).asformat(form)
    if form == "coo":
        matrix.coords[1][2] = 10**8
    elif form == "lil":
        matrix.rows[2][0] = 10**8
    else:
        matrix.indices[2] = 10**8
    return matrix


@pytest.mark.parametrize("form", ["csr", "csc", "bsr", "coo", "lil"])
def test_a_broken_matrix_is_refused_wherever_it_is_given(form: str) -> None:
    flat = Hierarchy.flat("ABCDE")
    refused: list[Callable[[], Any]] = [
        lambda: Scores(flat, broken_matrix(form)),
        lambda: flat.closure(broken_matrix(form)),
        lambda: flat.most_specific(broken_matrix(form)),
    ]
    for call in refused:
        with pytest.raises(TreelabelError):
            call()


def test_a_dataset_checks_its_matrices() -> None:
    data = Dataset.of(["a"] * 5, ["A"] * 5, Hierarchy.flat("ABCDE"))
    with pytest.raises(TreelabelError, match=r"^features: column 100000000 in row 2"):
        Dataset(data.ids, data.texts, data.labels, data.hierarchy, features=broken_matrix("csr"))
    with pytest.raises(TreelabelError, match=r"^labels: column 100000000 in row 2"):
        Dataset(data.ids, data.texts, broken_matrix("csr"), data.hierarchy)


# Score files


def score_file(path: Path, /, **arrays: Any) -> Path:
    """Write a score file of arrays as they are."""
    Scores(ONE, np.zeros((0, 1))).save(path)
    with np.load(path) as stored:
        kept = {name: stored[name] for name in ("treelabel_scores", "hierarchy", "ids")}
    np.savez(path, **(kept | arrays))
    return path


CSR = {"indptr": np.array([0, 1]), "indices": np.array([0]), "data": np.array([0.5], np.float32)}
NONE = {"indices": np.zeros(0, np.int32), "data": np.zeros(0, np.float32)}
WRONG_ARRAYS: dict[str, tuple[dict[str, Any], str]] = {
    "the one that ended the process": ({**NONE, "indptr": np.array([0, 10**8, 0])}, "row 1 ends at 0, before"),
    "no pointers": ({**NONE, "indptr": np.zeros(0, np.int32)}, "do not fit 1 nodes"),
    "more entries than there can be": (
        {"indptr": np.array([0, 2]), "indices": np.array([0, 0]), "data": np.ones(2)},
        r"indices \(2,\), data \(2,\) do not fit 1 nodes",
    ),
    "two kinds at once": ({**CSR, "values": np.zeros((1, 1))}, "it holds .*; expected treelabel_scores"),
    "something else": ({**CSR, "other": np.zeros(1)}, "it holds"),
    "nothing": ({}, "it holds treelabel_scores, hierarchy, ids; expected"),
    "text": ({**CSR, "data": np.array(["a"])}, "data is of type <U1"),
    "a matrix for a list": ({**CSR, "indices": np.array([[0]])}, r"indices is of type int64 and shape \(1, 1\)"),
    "ids that are a number": ({**CSR, "ids": np.frombuffer(b"3", np.uint8)}, "ids are 3, expected a list of texts"),
    "an id that is a number": ({**CSR, "ids": np.frombuffer(b"[3]", np.uint8)}, "an id that is text, found 3"),
    "more ids": ({**CSR, "ids": np.frombuffer(b'["a", "b"]', np.uint8)}, "do not fit 1 nodes and 2 ids"),
    "deep ids": ({**CSR, "ids": np.frombuffer(DEEP.encode(), np.uint8)}, "nested more than 100 levels deep"),
    "a deep hierarchy": ({**CSR, "hierarchy": np.frombuffer(DEEP.encode(), np.uint8)}, "nested more than 100 levels"),
    "ids that are no text": ({**CSR, "ids": np.frombuffer(b'["\xff"]', np.uint8)}, "byte 3 is not UTF-8"),
    "other bytes": ({**CSR, "indices": np.array([0], ">i4"), "indptr": np.array([0, 1], ">i8")}, ""),
}


@pytest.mark.parametrize("case", WRONG_ARRAYS)
def test_a_score_file_with_wrong_arrays_is_refused(case: str, tmp_path: Path) -> None:
    arrays, message = WRONG_ARRAYS[case]
    file = score_file(tmp_path / "s.npz", **arrays)
    if not message:
        assert Scores.load(file).dense().tolist() == [[0.5]]
        return
    with pytest.raises(TreelabelError, match=rf"s\.npz.*{message}|{message}"):
        Scores.load(file)


@pytest.mark.slow
def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = score_file(tmp_path / "s.npz")
    with zipfile.ZipFile(file) as archive:
        kept = {name: archive.read(name) for name in archive.namelist()}
    header = bytes(np.lib.format.magic(1, 0)) + (118).to_bytes(2, "little")
    said = "{'descr': '<f4', 'fortran_order': False, 'shape': (70000000, 1), }"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in kept.items():
            archive.writestr(name, content)
        with archive.open("values.npy", "w", force_zip64=True) as stream:
            stream.write(header + said.ljust(117).encode() + b"\n")
            for _ in range(10):
                stream.write(bytes(28_000_000))
    monkeypatch.setattr(np.lib.format, "read_array", lambda *_, **__: pytest.fail("it was unpacked"))
    with pytest.raises(
        TreelabelError, match=r"would unpack to 280,000,\d+ bytes, but .* at most .*64 MB and 100 times"
    ):
        Scores.load(file)


@pytest.mark.parametrize("shape", [(10**15, 1), (3, 1), (2**70,)])
def test_a_header_that_promises_more_than_there_is_is_refused(shape: tuple[int, ...], tmp_path: Path) -> None:
    file = score_file(tmp_path / "s.npz", values=np.zeros((2, 1), np.float32))
    with zipfile.ZipFile(file) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    said = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".ljust(117).encode() + b"\n"
    members["values.npy"] = members["values.npy"][:10] + said + members["values.npy"][128:]
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    with pytest.raises(TreelabelError, match="its header says"), open_npz(file, "scores"):
        pass


TREE = Hierarchy.from_paths(["A > B", "A > C"])


def parquet_file(path: Path, columns: dict[str, pa.Array], names_are_given: bool = True) -> Path:
    """Write a Parquet score file of columns as they are."""
    Scores(TREE, np.zeros((0, 3)), () if names_are_given else None).save(path)
    metadata = pq.read_schema(path).metadata
    fields = [pa.field(name, column.type, name != "id") for name, column in columns.items()]
    pq.write_table(pa.table(list(columns.values()), pa.schema(fields, metadata)), path)
    return path


IDS = pa.array(["a", "b"])
INTS, FLOATS = pa.list_(pa.int32()), pa.list_(pa.float32())
WRONG_COLUMNS: dict[str, tuple[dict[str, Any], str]] = {
    "a node without a score": (
        {"id": IDS, "node": pa.array([[0, 1], [0]], INTS), "score": pa.array([[0.5], [0.5, 0.5]], FLOATS)},
        "a document has 2 nodes, but 1 scores",
    ),
    "a missing score": (
        {"id": IDS, "node": pa.array([[0], [0]], INTS), "score": pa.array([[0.5], [None]], FLOATS)},
        "a score or a node is missing",
    ),
    "a missing list": (
        {"id": IDS, "node": pa.array([[0], None], INTS), "score": pa.array([[0.5], None], FLOATS)},
        "a score or a node is missing",
    ),
    "a node beyond the last": (
        {"id": IDS, "node": pa.array([[0], [3]], INTS), "score": pa.array([[0.5], [0.5]], FLOATS)},
        "column 3 in row 1, but there are 3 columns",
    ),
    "more nodes than there are": (
        {"id": IDS, "node": pa.array([[0] * 500, [0]], INTS), "score": pa.array([[0.5] * 500, [1]], FLOATS)},
        "501 values for 2 documents, but 3 nodes allow at most 6",
    ),
    "ids that are numbers": (
        {"id": pa.array([1, 2]), "node": pa.array([[0], [0]], INTS), "score": pa.array([[0.5], [0.5]], FLOATS)},
        "columns id: int64",
    ),
    "scores that are too narrow": (
        {"id": IDS, "scores": pa.array([[0.5], [0.5]], pa.list_(pa.float32(), 1))},
        "columns id",
    ),
    "scores of any length": ({"id": IDS, "scores": pa.array([[0.5], [0.5]], FLOATS)}, "columns id: string, scores"),
    "missing scores": (
        {"id": IDS, "scores": pa.array([[0.5, 0.5, 0.5], None], pa.list_(pa.float32(), 3))},
        # Older versions of Arrow refuse it by themselves.
        "(a score or a node is missing|.*Expected all lists to be of size=3)",
    ),
    "nodes alone": ({"id": IDS, "node": pa.array([[0], [0]], INTS)}, "columns id: string, node"),
}


@pytest.mark.parametrize("case", WRONG_COLUMNS)
def test_a_parquet_file_with_wrong_columns_is_refused(case: str, tmp_path: Path) -> None:
    columns, message = WRONG_COLUMNS[case]
    with pytest.raises(TreelabelError, match=f"s.parquet: .*{message}"):
        Scores.load(parquet_file(tmp_path / "s.parquet", columns))


# Model folders


@pytest.fixture
def model(tmp_path: Path) -> Path:
    fit_case(lambda: make_model("linear"), CASES["path"]).save(tmp_path / "model")
    return tmp_path / "model"


def with_digests(folder: Path, **described: Any) -> None:
    """Write model.json anew, with checksums of what is there."""
    file = folder / "model.json"
    stored = json.loads(file.read_text())
    plain = [each for each in stored["sha256"] if (folder / each).is_file()]
    digests = {each: hashlib.sha256((folder / each).read_bytes()).hexdigest() for each in plain}
    file.write_text(json.dumps({**stored, "sha256": digests, **described}))


def with_arrays(folder: Path, **changed: Any) -> None:
    """Write other arrays, with the right checksum."""
    with np.load(folder / "arrays.npz") as stored:
        arrays = dict(stored)
    for name, change in changed.items():
        arrays[name] = change(arrays[name])
    np.savez(folder / "arrays.npz", **arrays)
    with_digests(folder)


def last(value: Any) -> Callable[[Any], Any]:
    """Change the last number of an array."""
    return lambda array: np.concatenate([array[:-1], np.array([value], array.dtype)])


WRONG_MODELS: dict[str, tuple[dict[str, Callable[[Any], Any]], str]] = {
    "an output below 0": ({"terminal_outputs": last(-1)}, "terminal_outputs holds -1, expected numbers from 0 to"),
    "an output beyond the last": (
        {"node_outputs": last(10**6)},
        "node_outputs holds 1000000, expected numbers from -1 to",
    ),
    "an end beyond all nodes": (
        {"terminals": last(2**31 - 1)},
        "terminals holds 2147483647, expected numbers from 0 to",
    ),
    "pointers that end at 0": ({"weights_indptr": last(0)}, "row pointers go from 0 to 0"),
    "no bias": (
        {"bias": lambda array: array[:0]},
        "weights_indices has .* entries, but .* x 0 outputs allow at most 0",
    ),
    "no idf": ({"idf": lambda array: array[:0]}, "idf has shape"),
    "a weight that is no number": ({"weights_data": last(np.nan)}, "weights_data holds nan"),
    "nodes out of order": ({"nodes": lambda array: array[::-1]}, "nodes holds .* after .*, expected rising"),
    "another type": ({"bias": lambda array: array.astype(np.float64)}, "bias is of type float64 .*, expected float32"),
    "bytes the other way round": ({"bias": lambda array: array.astype(">f4")}, "bias is of type >f4"),
    "one more dimension": ({"bias": lambda array: array[None]}, r"bias is of type float32 and shape \(1, "),
    "a bucket beyond the last": ({"buckets": last(2**30)}, "buckets holds 1073741824"),
    "a share of 2": ({"uniform_weights": last(2.0)}, "uniform_weights holds 2.0, expected numbers from 0 to 1"),
    "a parent that is not among the nodes": (
        {name: lambda array: array[1:] for name in ("nodes", "node_outputs")},
        "nodes holds .*, but not its parent 0",
    ),
}


@pytest.mark.parametrize("case", WRONG_MODELS)
@pytest.mark.slow
def test_a_model_with_wrong_arrays_and_right_checksums_is_refused(case: str, model: Path) -> None:
    changed, message = WRONG_MODELS[case]
    with_arrays(model, **changed)
    with pytest.raises(TreelabelError, match=rf"model/arrays\.npz: damaged: .*{message}"):
        load_model(model)


def test_arrays_that_are_missing_or_foreign_are_refused(model: Path) -> None:
    with np.load(model / "arrays.npz") as stored:
        arrays = dict(stored)
    np.savez(model / "arrays.npz", **arrays, other=np.zeros(3))
    with_digests(model)
    with pytest.raises(TreelabelError, match="there is an array 'other', which does not belong to this model"):
        load_model(model)
    del arrays["bias"]
    np.savez(model / "arrays.npz", **arrays)
    with_digests(model)
    with pytest.raises(TreelabelError, match="the array bias is missing"):
        load_model(model)


WRONG_SETTINGS = {
    "max_iter": ("two", "the setting max_iter is 'two', expected a whole number"),
    "encoder_weight": (1.5, "the setting encoder_weight is 1.5, expected a number from 0 to 1"),
    "tau": (float("nan"), "the setting tau is nan, expected a number"),
    "char_ngram_range": (
        [1, 2, 3],
        r"the setting char_ngram_range is \[1, 2, 3\], expected a list of 2, each a whole number from 1 to 100, "
        "none smaller than the one before or 'auto' or null",
    ),
    "tfidf": (1, "the setting tfidf is 1, expected true or false"),
    "seed": (2**70, "the setting seed is .*, expected a whole number"),
    "hierarchy": (None, "the setting hierarchy is never saved"),
    "name": (1, "the model linear has no setting 'name'"),
    "ngram_rang": (1, "the model linear has no setting 'ngram_rang'; did you mean ngram_range"),
}


@pytest.mark.parametrize("name", WRONG_SETTINGS)
def test_a_setting_of_another_type_is_refused(name: str, model: Path) -> None:
    value, message = WRONG_SETTINGS[name]
    stored = json.loads((model / "model.json").read_text())
    with_digests(model, settings={**stored["settings"], name: value})
    with pytest.raises(TreelabelError, match=f"^{model}: {message}"):
        load_model(model)


WRONG_VALUES: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown head": ({"head": "sky"}, "linear has no head 'sky'"),
    "a head that is a number": ({"head": 3}, r"learned\['head'\] is 3, expected text"),
    "too many features": (
        {"ngrams": {"ngram_range": [1, 1], "char_ngram_range": None, "n_features": 1 << 40, "weights": None}},
        r"learned\['ngrams'\]\['n_features'\] is 1099511627776, expected a whole number from 1 to",
    ),
    "lengths the wrong way round": (
        {"ngrams": {"ngram_range": [1, 1], "char_ngram_range": [5, 3], "n_features": 1 << 22, "weights": None}},
        "char_ngram_range of n-grams: 5",
    ),
    "what does not belong": ({"other": 1}, r"learned has 'other', which does not belong there"),
    "an encoder that is a list": ({"encoder": [1]}, r"learned\['encoder'\] is \[1\], expected a mapping or null"),
}


@pytest.mark.parametrize("case", WRONG_VALUES)
def test_a_learned_value_of_another_type_is_refused(case: str, model: Path) -> None:
    changed, message = WRONG_VALUES[case]
    stored = json.loads((model / "model.json").read_text())
    with_digests(model, learned={**stored["learned"], **changed})
    with pytest.raises(TreelabelError, match=f"^{model}.*: {message}"):
        load_model(model)


def test_a_model_bound_to_another_hierarchy_or_regime_is_refused(model: Path) -> None:
    with_digests(model, fingerprint="0" * 32)
    with pytest.raises(TreelabelError, match="belongs to another hierarchy"):
        load_model(model)
    with_digests(model, regime="some")
    with pytest.raises(TreelabelError, match="'regime' is missing or of the wrong kind"):
        load_model(model)


def test_names_of_files_stay_in_the_folder(model: Path, tmp_path: Path) -> None:
    stored = json.loads((model / "model.json").read_text())
    (tmp_path / "secret").write_text("x")
    digest = hashlib.sha256(b"x").hexdigest()
    for name in ("../secret", str(tmp_path / "secret"), "..", ""):
        with_digests(model, sha256={**stored["sha256"], name: digest})
        with pytest.raises(TreelabelError, match="is no name of a file in the folder"):
            load_model(model)
    (model / "linked").symlink_to(tmp_path / "secret")
    with_digests(model, sha256={**stored["sha256"], "linked": digest})
    with pytest.raises(TreelabelError, match="linked is no ordinary file of this folder"):
        load_model(model)
    (model / "extra").write_text("x")
    with_digests(model, sha256={**stored["sha256"], "extra": digest})
    with pytest.raises(TreelabelError, match="extra does not belong to this model"):
        load_model(model)
    with_digests(model, sha256={})
    with pytest.raises(TreelabelError, match=r"model\.json has no checksum of hierarchy\.json"):
        load_model(model)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes here")
@pytest.mark.parametrize("name", ["model.json", "hierarchy.json", "arrays.npz"])
def test_pipes_and_folders_are_no_files_of_a_model(name: str, model: Path) -> None:
    (model / name).unlink()
    os.mkfifo(model / name)
    with pytest.raises(TreelabelError, match=r"no model folder|is no ordinary file of this folder"):
        load_model(model)
    (model / name).unlink()
    (model / name).mkdir()
    with pytest.raises(TreelabelError, match=r"no model folder|is no ordinary file of this folder"):
        load_model(model)


@pytest.mark.slow
def test_a_bomb_in_a_model_is_refused_by_its_header(model: Path) -> None:
    with np.load(model / "arrays.npz") as stored:
        arrays = dict(stored)
    arrays["weights_data"] = np.zeros(3 * 10**7, np.float32)
    arrays["weights_indices"] = np.zeros(3 * 10**7, np.int32)
    np.savez_compressed(model / "arrays.npz", **arrays)
    with_digests(model)
    with pytest.raises(TreelabelError, match=r"would unpack to .* bytes|30,000,000 entries, but .* allow at most"):
        load_model(model)


# JSON

HARD_JSON: dict[str, tuple[bytes, str]] = {
    "deep": (DEEP.encode(), f"nested more than {OUR_LIMITS.nesting} levels deep"),
    "a little too deep": (b"[" * 102 + b"]" * 102, f"nested more than {OUR_LIMITS.nesting} levels deep"),
    "deep in a mapping": (
        b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
        f"nested more than {OUR_LIMITS.nesting} levels deep",
    ),
    "a long number": (b"[" + LONG.encode() + b"]", "a number is too long"),
    "no UTF-8": (b'["\xff"]', "byte 3 is not UTF-8"),
    "NaN": (b"[NaN]", "it has NaN, which is no number in JSON"),
    "infinity": (b"[-Infinity]", "it has -Infinity"),
    "cut short": (b'{"a": 1', "it is no JSON: Expecting"),
    "nothing": (b"", "it is no JSON: Expecting value"),
}


@pytest.mark.parametrize("case", HARD_JSON)
def test_hard_json_is_one_sentence(case: str, tmp_path: Path) -> None:
    content, message = HARD_JSON[case]
    (tmp_path / "x.json").write_bytes(content)
    with pytest.raises(TreelabelError, match=f"x.json: damaged: no rule, for .*{message}") as error:
        read_json(tmp_path / "x.json", "x.json", "rule")
    assert "\n" not in str(error.value)


def test_json_may_hold_what_it_holds_usually(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_json("[" * 100 + "]" * 100, "x") is not None
    assert read_json('{"a": 1, "a": [2, NaN]}', "x", allow_nan=True)["a"][0] == 2
    assert read_json('"ä"'.encode(), "x") == "ä"
    monkeypatch.setattr("treelabel.core.json_text.MOST_BYTES", 10)
    with pytest.raises(TreelabelError, match="it has 12 bytes, the limit is 10"):
        read_json('"1234567890"', "x")


@pytest.mark.parametrize("content", [DEEP, f'{{"version": {LONG}}}', '{"kind": NaN', "\ud800"])
def test_commands_end_with_one_line(content: str, model: Path, tmp_path: Path, run: Run) -> None:
    raw = content.encode("utf-8", "surrogatepass")
    (tmp_path / "texts.txt").write_text("a cat\n")
    (tmp_path / "rule.json").write_bytes(raw)
    Scores(ONE, [[0.5]]).save(tmp_path / "s.npz")
    ended = run("decide", tmp_path / "s.npz", "--rule", tmp_path / "rule.json", "-o", tmp_path / "d.jsonl")
    assert (ended.code, ended.err.count("\n")) == (2, 1), ended.err
    for name in ("hierarchy.json", "model.json"):
        kept = (model / name).read_bytes()
        (model / name).write_bytes(raw)
        if name != "model.json":
            with_digests(model)
        ended = run("predict", model, tmp_path / "texts.txt", "-o", tmp_path / "p.jsonl")
        assert (ended.code, ended.err.count("\n")) == (2, 1), ended.err
        assert name in ended.err
        (model / name).write_bytes(kept)
        with_digests(model)


def test_a_tuned_rule_with_wrong_settings_is_one_sentence(tmp_path: Path) -> None:
    from treelabel import decide

    scores = Scores(TREE, [[0.9, 0.5, 0.4]])
    wrong: dict[str, tuple[dict[str, Any], ...]] = {
        "threshold": ({"t": "high"}, {"t": [0.5, "x", 1]}, {"t": [0.5] * 7}, {"t": [[0.5]]}, {"t": 1e300}, {"t": {}}),
        "back_off": ({"t": [0.5] * 7}, {"t": [0.5, -1]}, {"t": -1}, {"t": 10**400}),
        "top_k": ({"k": 0.5}, {"k": [1]}, {"k": True}, {"leaves": 1}),
        "optimal:macro_f1@k": ({"seed": -1}, {"seed": 0.5}),
        "optimal:binned_macro_f1@k": ({"bin_edges": 3},),
    }
    for rule, cases in wrong.items():
        for settings in cases:
            TunedRule(rule, settings, TREE.fingerprint).save(tmp_path / "rule.json")
            with pytest.raises(TreelabelError) as error:
                decide(scores, TunedRule.load(tmp_path / "rule.json"), train_frequencies=[1, 1, 1])
            assert "\n" not in str(error.value)


# Schemas


def test_a_schema_says_what_does_not_fit() -> None:
    schema = Schema(
        {"places": indices("count", "nodes", rising=True), "numbers": Array("float32", ("count", "2"), 0, 1)},
        (Csr("count", "nodes"),),
        sizes={"nodes": 4},
        most={"count": 3},
    )
    arrays = {
        "places": np.array([0, 3], np.int32),
        "numbers": np.full((2, 2), 0.5, np.float32),
        "data": np.ones(1, np.float32),
        "indices": np.array([3], np.int32),
        "indptr": np.array([0, 0, 1], np.int32),
    }
    schema.check(arrays)
    wrong: dict[str, dict[str, Any]] = {
        "places holds 4, expected numbers from 0 to 3": {"places": np.array([0, 4], np.int32)},
        "places holds 0 after 0, expected rising": {"places": np.array([0, 0], np.int32)},
        "places has 4 count, the limit here is 3": {"places": np.arange(4, dtype=np.int32)},
        "numbers has shape .* expected count x 2 where count is 2": {"numbers": np.zeros((3, 2), np.float32)},
        "numbers holds nan, expected numbers from 0 to 1": {"numbers": np.full((2, 2), np.nan, np.float32)},
        "column 4 in row 1": {"indices": np.array([4], np.int32)},
        "indptr is of type int32 and shape": {"indptr": np.zeros(9, np.int32)},
    }
    for message, changed in wrong.items():
        with pytest.raises(TreelabelError, match=message):
            schema.check({**arrays, **changed})
    nested = Schema(parts={"0.": schema, "1.": schema})
    nested.check({f"{part}.{name}": array for part in "01" for name, array in arrays.items()})
    with pytest.raises(TreelabelError, match="the array data is missing"):
        nested.check({f"0.{name}": array for name, array in arrays.items()})


@pytest.mark.parametrize(
    "shape",
    [
        {"ngram_range": (1, -1)},
        {"ngram_range": (1, 101)},
        {"n_features": 0},
        {"n_features": 1 << 32},
        {"char_ngram_range": (5, 3)},
        {"char_ngram_range": (0, 3)},
    ],
)
def test_ngrams_that_loops_could_not_count_are_refused(shape: dict[str, Any]) -> None:
    with pytest.raises(TreelabelError, match="of n-grams"):
        NgramShape(**shape)
