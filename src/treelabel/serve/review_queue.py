"""The review queue: texts in the order in which a person should label them."""

from collections.abc import Container, Sequence
from pathlib import Path

from treelabel.models.streaming import blank_texts
from treelabel.operations.review import Reviewed, review
from treelabel.serve.learning import read_like
from treelabel.serve.model_store import ServedModel
from treelabel.serve.schemas import ReviewAnswer, ReviewedText

# Texts of a pool that are ranked at most.
MOST_TEXTS = 20_000
ALTERNATIVES = 5


class ReviewQueue:
    """Texts with their suggestions by one model, most useful first."""

    def __init__(self, served: ServedModel, texts: Sequence[str], precision: float = 0.95) -> None:
        self._served = served
        self._texts = list(texts)
        self._result: Reviewed = review(served.model, self._texts, precision, ALTERNATIVES)

    @classmethod
    def of_file(cls, served: ServedModel, pool: Path) -> "ReviewQueue":
        """Rank the first texts of a file, each once; blank ones are left out."""
        column = read_like(served.model, pool, need_labels=False).texts[:MOST_TEXTS]
        shown = (text for text, is_blank in zip(column, blank_texts(column), strict=True) if not is_blank)
        return cls(served, list(dict.fromkeys(shown)))

    def first(self, limit: int, done: Container[str] = ()) -> ReviewAnswer:
        """Return the most useful texts that are not done.

        Parameters
        ----------
        limit
            How many at most.
        done
            Texts that people have labelled already.

        Returns
        -------
        ReviewAnswer
        """
        rows = [row for row in self._result.order.tolist() if self._texts[row] not in done]
        h, table = self._served.model.hierarchy_, self._served.labels
        chosen: list[ReviewedText] = []
        for row in rows[:limit]:
            labels = self._result.suggestions.indices[slice(*self._result.suggestions.indptr[row : row + 2])]
            chosen.append(
                {
                    "text": self._texts[row],
                    "labels": h.paths(labels),
                    "probability": float(self._result.p[row]),
                    "is_safe": bool(self._result.accepted[row]),
                    "priority": float(self._result.priority[row]),
                    "alternatives": [
                        {"node": node, "label": h.names[node], "path": table.fixed(node)[1], "probability": p}
                        for node, p in self._result.alternatives[row]
                    ],
                }
            )
        return {"model": self._served.id, "version": self._served.version, "remaining": len(rows), "texts": chosen}
