"""The likeliest labels of texts, for protocols that ask for a list of labels with scores."""

from collections.abc import Sequence

from treelabel.serve.model_store import ServedModel
from treelabel.serve.schemas import LabelAnswer, PredictSettings
from treelabel.serve.service import Service

# Labels of a text in one answer.
MOST_LABELS = 1_000


async def rank_labels(service: Service, served: ServedModel, texts: Sequence[str], k: int) -> list[list[LabelAnswer]]:
    """Return the likeliest labels of texts.

    These are leaves; any nodes where training texts ended at inner nodes, too. A text without words has none.

    Parameters
    ----------
    service, served
        The service, and one of its models.
    texts
        The texts.
    k
        How many labels of each, at least 1; there are `MOST_LABELS` at most.

    Returns
    -------
    list of lists of LabelAnswer
        One list per text, likeliest labels first.
    """
    count = min(k, MOST_LABELS)
    if len(served.model.stop_nodes_):
        scored = await service.score(served, texts, count)
        return [each["nodes"] if text.strip() else [] for each, text in zip(scored, texts, strict=True)]
    return [each["labels"] for each in await service.predict(served, texts, PredictSettings(k=count))]
