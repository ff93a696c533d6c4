"""The schema of a saved neural model: values, arrays and files, declared without torch."""

from typing import Annotated, Any, Literal, NotRequired, TypedDict

from treelabel.core.array_schema import Array, Schema
from treelabel.core.errors import TreelabelError
from treelabel.core.validation import AnyFloat, Between
from treelabel.encoders.registry import Pooling
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.models.persistence.schema import MOST_DIMENSION, EncoderNote, Ngrams, tfidf_arrays
from treelabel.neural.objective import with_objective

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
    featurizer = values.get("featurizer", {})
    if "runtime" in values:
        return with_objective(Schema(files=(GRAPH, TOKENIZER)), hierarchy)
    if "encoder" not in featurizer:
        return with_objective(Schema(files=(WEIGHTS, CONFIG, TOKENIZER)), hierarchy)
    if hidden is None:
        if featurizer["ngrams"] is not None or "width" not in featurizer:
            raise TreelabelError("expected the width of the encoder's vectors, and no n-grams beside them")
        return with_objective(Schema(files=(WEIGHTS,)), hierarchy)
    arrays = {
        "outputs.linear.weight": Array("float32", ("outputs", "hidden" if hidden else "inputs")),
        "outputs.linear.bias": Array("float32", ("outputs",)),
    }
    if hidden:
        arrays["outputs.hidden.weight"] = Array("float32", ("hidden", "inputs"))
        arrays["outputs.hidden.bias"] = Array("float32", ("hidden",))
    sizes, most = {}, {"outputs": 2 * len(hierarchy), "inputs": 2 * MOST_DIMENSION, "hidden": MOST_DIMENSION}
    if featurizer["ngrams"] is not None:
        arrays |= {**tfidf_arrays(), "lsa": Array("float16", ("width", "columns"))}
        sizes["buckets"] = featurizer["ngrams"]["n_features"]
        most |= {"width": sizes["buckets"], "columns": MOST_DIMENSION}
    return with_objective(Schema(arrays, (), sizes, most), hierarchy)
