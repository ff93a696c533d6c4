"""A trained model as one ONNX graph, from token ids to the probabilities of all nodes; scoring it needs no torch."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from tokenizers import Tokenizer

from treelabel.core.compute import FloatArray
from treelabel.core.errors import TreelabelError
from treelabel.core.strings import Strings
from treelabel.encoders.first_tokens import first_tokens
from treelabel.encoders.sessions import run_graph, session
from treelabel.models.neural.saved import GRAPH, TOKENIZER
from treelabel.models.objective import Objective
from treelabel.models.schema import Arrays
from treelabel.scores import Scores


@dataclass(frozen=True, eq=False)
class Exported:
    """A graph, what its probabilities are of, and the tokenizer of the texts that it takes."""

    objective: Objective
    tokenizer: Tokenizer
    max_length: int
    graph: bytes
    runtime: Literal["onnx", "int8"]
    seen: tuple[float, ...]

    @cached_property
    def _session(self) -> Any:
        return session(self.graph, threads=1)

    def score(self, texts: Strings) -> Scores:
        """Score texts, some thousands at a time."""
        nodes, parts = len(self.objective.change.new), []
        for rows in self.objective.portions(len(texts)):
            tokens = first_tokens(self.tokenizer, list(texts.take(rows)), self.max_length)
            found = self._run(tokens, nodes)
            parts.append(self.objective.scores_of(found).values)
        return Scores.one_after_another(self.objective.hierarchy, parts)

    def _run(self, tokens: list[list[int]], nodes: int) -> FloatArray:
        try:
            return run_graph(self._session, tokens, nodes, self.runtime == "int8")
        except Exception as error:
            # A graph can hold anything, and ONNX Runtime has an exception for each.
            why = str(error).strip().split("\n")[0]
            raise TreelabelError(f"{GRAPH} does not fit the model, or is damaged: {why}") from error

    def state(self) -> tuple[dict[str, Any], Arrays]:
        """What to save: values for JSON, and arrays."""
        values = {"loss": self.objective.name, "runtime": self.runtime, "max_length": self.max_length}
        arrays: dict[str, Any] = {"stops": self.objective.stops, "frequencies": self.objective.frequencies}
        return {**values, "seen": list(self.seen)}, arrays

    def write_files(self, folder: Path) -> None:
        """Write the graph and the tokenizer."""
        (folder / GRAPH).write_bytes(self.graph)
        self.tokenizer.save(str(folder / TOKENIZER))


def read_exported(objective: Objective, values: dict[str, Any], folder: Path) -> Exported:
    """Take back what was saved."""
    tokenizer, length = Tokenizer.from_file(str(folder / TOKENIZER)), int(values["max_length"])
    tokenizer.enable_truncation(length)
    graph = (folder / GRAPH).read_bytes()
    found = Exported(objective, tokenizer, length, graph, values["runtime"], tuple(values["seen"]))
    # Opened now, so that a damaged graph is refused when it is loaded.
    _ = found._session
    return found
