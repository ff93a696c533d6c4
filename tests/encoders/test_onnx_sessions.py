"""Graphs whose weights are in another file are refused, wherever a graph can hold a tensor."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treelabel.core.errors import TreelabelError
from treelabel.encoders.onnx_sessions import open_session, refuse_external_data

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

SIZE = 64
WEIGHTS = np.eye(SIZE, dtype=np.float32)


def product() -> Any:
    """Return a graph that multiplies by the unit matrix."""
    from onnx import helper, numpy_helper

    places = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, SIZE]) for name in ("x", "y")]
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    graph = helper.make_graph([node], "product", places[:1], places[1:], [numpy_helper.from_array(WEIGHTS, "w")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def move_outside(tensor: Any) -> None:
    """Let a tensor take its data from a file."""
    tensor.name = tensor.name or "t"
    tensor.data_type = onnx.TensorProto.FLOAT
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="weights.bin")


PLACES: dict[str, Callable[[Any], Any]] = {
    "initializer": lambda model: model.graph.initializer[0],
    "sparse initializer": lambda model: model.graph.sparse_initializer.add().values,
    "indices of a sparse initializer": lambda model: model.graph.sparse_initializer.add().indices,
    "attribute": lambda model: model.graph.node[0].attribute.add(name="a").t,
    "one of several in an attribute": lambda model: model.graph.node[0].attribute.add(name="a").tensors.add(),
    "sparse tensor": lambda model: model.graph.node[0].attribute.add(name="a").sparse_tensor.values,
    "one of several sparse tensors": lambda model: model.graph.node[0].attribute.add().sparse_tensors.add().indices,
    "subgraph": lambda model: model.graph.node[0].attribute.add(name="a").g.initializer.add(),
    "one of several subgraphs": lambda model: (
        model.graph.node[0].attribute.add(name="a").graphs.add().initializer.add()
    ),
    "subgraph of a subgraph": lambda model: (
        model.graph.node[0].attribute.add().g.node.add().attribute.add().g.initializer.add()
    ),
    "function": lambda model: model.functions.add(name="f").node.add().attribute.add(name="a").t,
    "default of a function": lambda model: model.functions.add(name="f").attribute_proto.add(name="a").t,
    "training": lambda model: model.training_info.add().algorithm.initializer.add(),
}


def test_weights_of_the_working_folder_would_be_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import onnxruntime

    model = product()
    move_outside(model.graph.initializer[0])
    (2 * WEIGHTS).tofile(tmp_path / "weights.bin")
    monkeypatch.chdir(tmp_path)
    content = model.SerializeToString()
    running = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    ones = {"x": np.ones((1, SIZE), np.float32)}
    assert running.run(None, ones)[0].tolist() == [[2.0] * SIZE]
    (tmp_path / "graph.onnx").write_bytes(content)
    for graph in (content, tmp_path / "graph.onnx"):
        with pytest.raises(TreelabelError, match="takes weights from another file"):
            open_session(graph)
    assert open_session(product().SerializeToString()).run(None, ones)[0].tolist() == [[1.0] * SIZE]


@pytest.mark.parametrize("place", PLACES)
def test_they_are_found_in_every_place(place: str) -> None:
    model = product()
    found = PLACES[place](model)
    refuse_external_data(model.SerializeToString())
    move_outside(found)
    with pytest.raises(TreelabelError, match="takes weights from another file"):
        refuse_external_data(model.SerializeToString())
    found.ClearField("external_data")
    with pytest.raises(TreelabelError, match="takes weights from another file"):
        refuse_external_data(model.SerializeToString())


def test_another_format_is_refused(tmp_path: Path) -> None:
    """ONNX Runtime reads a format of its own as well, which has files of weights too."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.optimized_model_filepath = str(tmp_path / "graph.ort")
    options.add_session_config_entry("session.save_model_format", "ORT")
    onnxruntime.InferenceSession(product().SerializeToString(), options, providers=["CPUExecutionProvider"])
    onnxruntime.InferenceSession((tmp_path / "graph.ort").read_bytes(), providers=["CPUExecutionProvider"])
    with pytest.raises(TreelabelError, match="no ONNX graph"):
        open_session(tmp_path / "graph.ort")


@given(st.binary(max_size=200), st.integers(0, 10_000))
def test_damage_raises_nothing_else(content: bytes, cut: int) -> None:
    whole = product().SerializeToString()
    for damaged in (content, whole[: cut % len(whole)], whole[: cut % len(whole)] + content):
        with suppress(TreelabelError):
            refuse_external_data(damaged)
