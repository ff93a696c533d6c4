"""Texts and labels in any of the forms that people have them in, taken as training data."""

from typing import Any

from scipy import sparse

from treelabel.core.errors import TreelabelError
from treelabel.core.stopping import StopSignal
from treelabel.core.strings import Strings, require_column
from treelabel.hierarchy import Hierarchy
from treelabel.models.label_forms import take_labels
from treelabel.selection.training import Training


def training_of(
    data: Any,
    labels: Any,
    hierarchy: Hierarchy | None,
    valid: Training | None = None,
    progress: bool | None = None,
    stop: StopSignal | None = None,
) -> Training:
    """Take training data in any of their forms.

    Parameters
    ----------
    data
        A Dataset, or a list of texts.
    labels
        One label or list of labels per text, or an indicator matrix, where `data` is a list; see `take_labels`.
    hierarchy
        The hierarchy, where `data` has none; without one it is made of the labels.
    valid
        Documents to stop early on.
    progress
        Whether to show a progress bar.
    stop
        Tells when to hurry.

    Returns
    -------
    Training
    """
    stop = StopSignal() if stop is None else stop
    # Before its attributes are looked at: a data frame has its columns as attributes.
    require_column(data, "texts")
    if hasattr(data, "texts") and hasattr(data, "labels"):
        if labels is not None:
            raise TreelabelError("labels were given twice: the data have labels of their own")
        if hierarchy is not None:
            hierarchy.require_same(data.hierarchy.fingerprint, "the training data")
        features = getattr(data, "features", None)
        return Training(Strings.of(data.texts), data.labels, data.hierarchy, valid, progress, stop, features=features)
    if labels is None:
        raise TreelabelError("expected a Dataset, or texts and labels")
    texts = Strings.of(data)
    matrix, known, form = take_labels(labels, hierarchy)
    if len(texts) != matrix.shape[0]:
        raise TreelabelError(f"{len(texts):,} texts, but labels for {matrix.shape[0]:,}")
    return Training(texts, matrix, known, valid, progress, stop, form=form.as_spelled(known, matrix, labels))


def texts_of(texts: Any) -> tuple[Strings | sparse.csr_array, tuple[str, ...] | None]:
    """Take texts as a list or as a Dataset, whose ids are kept; or features, where these are all that there is."""
    require_column(texts, "texts")
    if hasattr(texts, "texts"):
        features = getattr(texts, "features", None)
        return Strings.of(texts.texts) if features is None else features, tuple(texts.ids)
    if sparse.issparse(texts):
        return sparse.csr_array(texts), None
    return Strings.of(texts), None
