"""Graphs with weights in other files: refused, as no checksum or signature of a model covers such a file.

ONNX Runtime would look for the file in the working folder. The format is read here as far as that takes, so that
scoring needs no package beside ONNX Runtime; what is no ONNX graph is refused too.
"""

from treelabel.core.errors import TreelabelError

# The messages of onnx.proto that can hold a tensor, by the number of the field, down to the tensors themselves.
INSIDE: dict[str, dict[int, str]] = {
    "ModelProto": {7: "GraphProto", 20: "TrainingInfoProto", 25: "FunctionProto"},
    "TrainingInfoProto": {1: "GraphProto", 2: "GraphProto"},
    "FunctionProto": {7: "NodeProto", 11: "AttributeProto"},
    "GraphProto": {1: "NodeProto", 5: "TensorProto", 15: "SparseTensorProto"},
    "NodeProto": {5: "AttributeProto"},
    "AttributeProto": {
        5: "TensorProto",
        6: "GraphProto",
        10: "TensorProto",
        11: "GraphProto",
        22: "SparseTensorProto",
        23: "SparseTensorProto",
    },
    "SparseTensorProto": {1: "TensorProto", 2: "TensorProto"},
    "TensorProto": {},
}
# TensorProto.external_data, and TensorProto.data_location, which is 1 where the data are elsewhere.
EXTERNAL_DATA, DATA_LOCATION = 13, 14
# How the value of a field is written: a number of any length, 8 bytes, a length and as many bytes, or 4 bytes.
VARINT, EIGHT_BYTES, BYTES, FOUR_BYTES = 0, 1, 2, 5


def refuse_external_data(graph: bytes) -> None:
    """Raise TreelabelError unless all weights of an ONNX graph are in the graph itself.

    Initializers, tensors in attributes, sparse tensors, subgraphs, functions and training graphs are looked at.

    Parameters
    ----------
    graph
        The content of the file.
    """
    view, waiting = memoryview(graph), [("ModelProto", 0, len(graph))]
    while waiting:
        message, start, end = waiting.pop()
        fields = INSIDE[message]
        while start < end:
            tag, start = _number(view, start, end)
            # Readers keep 32 bits of a tag.
            number, kind = (tag & 0xFFFFFFFF) >> 3, tag & 7
            value, begin = 0, start
            if kind == VARINT:
                value, start = _number(view, start, end)
            elif kind == BYTES:
                value, begin = _number(view, start, end)
                start = begin + value
            elif kind in (EIGHT_BYTES, FOUR_BYTES):
                value, start = 1, start + (8 if kind == EIGHT_BYTES else 4)
            else:
                raise TreelabelError(_NO_GRAPH)
            if start > end or number == 0:
                raise TreelabelError(_NO_GRAPH)
            if message == "TensorProto" and (number == EXTERNAL_DATA or (number == DATA_LOCATION and value)):
                raise TreelabelError(
                    "the ONNX graph takes weights from another file (external data), which no checksum or signature "
                    "covers; expected a graph that holds all its weights: export it as one file"
                )
            if kind == BYTES and number in fields:
                waiting.append((fields[number], begin, start))


_NO_GRAPH = "damaged: no ONNX graph; export it again"


def _number(view: memoryview, start: int, end: int) -> tuple[int, int]:
    """Read a number of at most 10 bytes, 7 bits in each, the lowest first; return it and where it ends."""
    value = 0
    for shift, place in enumerate(range(start, min(end, start + 10))):
        value |= (view[place] & 0x7F) << (7 * shift)
        if view[place] < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, place + 1
    raise TreelabelError(_NO_GRAPH)
