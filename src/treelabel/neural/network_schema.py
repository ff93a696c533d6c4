"""The schema of a saved neural model: values, arrays and files, declared without torch."""

from typing import Annotated, Any, Literal, NotRequired, TypedDict

from treelabel.core.array_schema import Array, Schema
from treelabel.core.errors import TreelabelError
from treelabel.core.validation import AnyFloat, Between
from treelabel.encoders.registry import Pooling
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.models.persistence.schema import MOST_DIMENSION, EncoderNote, Ngrams, require_inner, tfidf_arrays
from treelabel.neural.objective import objective_arrays

WEIGHTS, CONFIG, TOKENIZER, GRAPH = "weights.safetensors", "encoder.json", "tokenizer.json", "model.onnx"
Length = Annotated[int, Between(1, 1 << 20)]


class FrozenValues(TypedDict):
    """A FrozenFeaturizer or StatesFeaturizer: the encoder, the n-grams beside it, and the width of what it says."""

    encoder: EncoderNote
    ngrams: Ngrams | None
    width: NotRequired[Annotated[int, Between(1, 2 * MOST_DIMENSION)]]


class TokenValues(TypedDict):
    """A TokenFeaturizer: how texts are truncated and pooled."""

    max_length: Length
    pooling: Pooling


class NetworkValues(TypedDict):
    """A FittedNetwork."""

    loss: str
    temperature: float
    epoch_losses: list[AnyFloat]
    featurizer: FrozenValues | TokenValues


class ExportedValues(TypedDict):
    """An ExportedNetwork."""

    loss: str
    runtime: Literal["onnx", "int8"]
    max_length: Length
    epoch_losses: list[AnyFloat]


def saved_schema(hierarchy: Hierarchy, values: dict[str, Any], hidden: bool | None) -> Schema:
    """Declare the arrays and files of a graph, of a trained network, or of outputs over frozen embeddings.

    Parameters
    ----------
    hierarchy
        The hierarchy of the model.
    values
        `NetworkValues` or `ExportedValues`.
    hidden
        Whether outputs have a hidden layer; None where weights over a frozen encoder are in a file.

    Returns
    -------
    Schema
        What the folder has to hold.
    """
    nodes = len(hierarchy)
    sizes, most = {"nodes": nodes}, {"stop_nodes": nodes}
    relations = (lambda arrays: require_inner(hierarchy, arrays["stop_nodes"]),)
    if "runtime" in values:
        return Schema(objective_arrays(), (), sizes, most, relations, (GRAPH, TOKENIZER))
    if "encoder" not in values["featurizer"]:
        return Schema(objective_arrays(), (), sizes, most, relations, (WEIGHTS, CONFIG, TOKENIZER))
    if hidden is None:
        if values["featurizer"]["ngrams"] is not None or "width" not in values["featurizer"]:
            raise TreelabelError("expected the width of the encoder's vectors, and no n-grams beside them")
        return Schema(objective_arrays(), (), sizes, most, relations, (WEIGHTS,))
    arrays = {**objective_arrays(), **_outputs(hidden)}
    most |= {"outputs": 2 * nodes, "inputs": 2 * MOST_DIMENSION, "hidden": MOST_DIMENSION}
    if values["featurizer"]["ngrams"] is not None:
        arrays |= {**tfidf_arrays(), "lsa": Array("float16", ("width", "columns"))}
        sizes["buckets"] = values["featurizer"]["ngrams"]["n_features"]
        most |= {"width": sizes["buckets"], "columns": MOST_DIMENSION}
    return Schema(arrays, (), sizes, most, relations)


def _outputs(hidden: bool) -> dict[str, Array]:
    """Declare the outputs, over a hidden layer if there is one."""
    outputs = {
        "outputs.linear.weight": Array("float32", ("outputs", "hidden" if hidden else "inputs")),
        "outputs.linear.bias": Array("float32", ("outputs",)),
    }
    if not hidden:
        return outputs
    return outputs | {
        "outputs.hidden.weight": Array("float32", ("hidden", "inputs")),
        "outputs.hidden.bias": Array("float32", ("hidden",)),
    }
