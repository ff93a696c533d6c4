"""Declarations of models beside the arrays of `core.schema`: encoders, n-grams, and the widths of features."""

from typing import Annotated, Any, NotRequired, TypedDict

import numpy.typing as npt
from scipy import sparse

from treelabel.core.array_schema import Array, Arrays, Csr, indices
from treelabel.core.errors import TreelabelError
from treelabel.core.validation import Between
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.text.ngrams import LARGEST_N, MOST_FEATURES, NgramShape

# No embedding has more columns.
MOST_DIMENSION = 1 << 16

Length = Annotated[int, Between(1, LARGEST_N)]


class EncoderNote(TypedDict):
    """The record of an encoder in a folder: see `encoder_note`."""

    name: str
    fingerprint: str


class TunedNote(TypedDict):
    """The record of a tuned encoder: the one that was tuned, and the hashes of its weights and of its graph, if any."""

    base: EncoderNote
    digest: str
    graph: NotRequired[str]


class Ngrams(TypedDict):
    """Which n-grams are counted: see `NgramShape`."""

    ngram_range: tuple[Length, Length] | None
    n_features: Annotated[int, Between(1, MOST_FEATURES)]


class AllNgrams(Ngrams):
    """N-grams of words, and of characters if there are any."""

    char_ngram_range: tuple[Length, Length] | None
    weights: list[Annotated[float, Between(0, 1e3)]] | None


def ngram_values(shape: NgramShape) -> AllNgrams:
    """Return the shape of n-grams as JSON keeps it."""
    return {
        "ngram_range": shape.ngram_range,
        "char_ngram_range": shape.char_ngram_range,
        "n_features": shape.n_features,
        "weights": None if shape.weights is None else list(shape.weights),
    }


def saved_shape(values: AllNgrams) -> NgramShape:
    """Make the shape of n-grams of what `ngram_values` returned."""
    weights = values["weights"]
    parts = values["ngram_range"], values["char_ngram_range"], values["n_features"]
    return NgramShape(*parts, None if weights is None else tuple(weights))


def tfidf_arrays() -> dict[str, Array]:
    """Declare what tf-idf has learned: `width` columns of `buckets`."""
    return {"buckets": indices("width", "buckets"), "idf": Array("float32", ("width",), 0)}


def require_width(vectors: Any, width: int, what: object) -> None:
    """Refuse embeddings that are wider or narrower than those that a model has learned from.

    Parameters
    ----------
    vectors : array of shape (texts, columns)
        Embeddings.
    width : int
        The number of columns that the model has learned from.
    what : Model or str
        The model, for the message.
    """
    if vectors.shape[0] and vectors.shape[1] != width:
        raise TreelabelError(
            f"the encoder gives rows of {vectors.shape[1]:,} numbers, but the model {getattr(what, 'name', what)} has "
            f"learned from rows of {width:,}; use the encoder that it was trained with"
        )


def require_inner(hierarchy: Hierarchy, stops: npt.NDArray[Any]) -> None:
    """Refuse stops, inner nodes at which paths end, that are leaves.

    Parameters
    ----------
    stops
        Node ids.
    """
    leaves = stops[hierarchy.is_leaf[stops]]
    if len(leaves):
        raise TreelabelError(f"stops holds {leaves[0]}, which is a leaf; expected inner nodes")


def csr_names(name: str) -> tuple[str, str, str]:
    """Return the names of the arrays of a sparse matrix: data, indices and indptr, after its own name if it has one.

    >>> csr_names("words"), csr_names("")
    (('words_data', 'words_indices', 'words_indptr'), ('data', 'indices', 'indptr'))
    """
    start = f"{name}_" if name else ""
    return f"{start}data", f"{start}indices", f"{start}indptr"


def csr_arrays(name: str, rows: sparse.csr_array) -> dict[str, npt.NDArray[Any]]:
    """Return a sparse matrix as arrays to save, with the names of `csr_names`."""
    return dict(zip(csr_names(name), (rows.data, rows.indices, rows.indptr), strict=True))


def csr_schema(name: str, rows: str, columns: str = "width") -> Csr:
    """Declare what `csr_arrays` returns; `rows` and `columns` are names of sizes."""
    data, indices, indptr = csr_names(name)
    return Csr(rows, columns, indices, indptr, data)


def csr_of(name: str, arrays: Arrays, shape: tuple[int, int]) -> sparse.csr_array:
    """Make a sparse matrix of this shape of what `csr_arrays` returned."""
    return sparse.csr_array(tuple(arrays[each] for each in csr_names(name)), shape)
